//! Collectives that write what they read (`_input_mutable`): nobody else may see it.
//!
//! An input is copied when it is a constant or variable, when another collective writes it, too, or
//! when somebody reads it after the collective. A reader that is in no order with the collective
//! is made to come first: an edge is cheaper than a copy.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Attrs, Graph, NodeId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::flag;
use crate::options::Options;
use crate::read_write::{INPUT_MUTABLE, writes_inside};
use crate::state::variable_of;
use crate::storage::in_order;

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit, or an input is left out and that is to be refused.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::CollectiveWrite, "collective-writes");
    let mut late = Late::default();
    let nodes = in_order(graph, graph.root);
    for id in nodes
        .into_iter()
        .filter(|&n| flag(&graph.nodes[n].attrs, INPUT_MUTABLE))
    {
        for i in (0u32..).take(graph.nodes[id].inputs.len()) {
            pass.missing_input(id, i, options.refuse_missing_inputs)?;
            if let Some(value) = pass.work.graph().nodes[id].input(i as usize) {
                pass.isolate((id, i), value, options, &mut late)?;
            }
        }
    }
    pass.done()
}

/// The harm of a value that is read too late.
const TOO_LATE: &str = "the collective would write what another reads after it";

/// How many users of a value cannot come before any collective that writes it.
#[derive(Default)]
struct Late(FxHashMap<ValueId, usize>);

impl Pass<'_> {
    fn isolate(
        &mut self,
        (id, i): (NodeId, u32),
        value: ValueId,
        options: &Options,
        late: &mut Late,
    ) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let name = graph.nodes[id].name.clone();
        let copy = format!("{name}_HcclMemcpyPass_Identity{i}");
        let class = self.work.table.class(graph, graph.values[value].producer);
        if matches!(class, OpClass::Constant | OpClass::Variable) {
            let harm = "the collective would write a constant or variable";
            if !options.copies_are_planned {
                self.copy(id, i, &copy, "collective-writes-source", harm)?;
            }
            let assign = format!("{name}_Assign_{i}");
            return self.write_back(id, i, value, &assign, Attrs::new());
        }
        // With several who can only come last nothing else need be looked at.
        let of_value = late.0.entry(value).or_insert_with(|| {
            let users = self.work.users(value).iter();
            let late = users.filter(|&&u| !self.looks_at_shape(u) && self.is_late_for_all(u));
            late.count()
        });
        if *of_value > 1 {
            if options.copies_are_planned {
                return Ok(());
            }
            *of_value = of_value.saturating_sub(1);
            self.copy(id, i, &copy, "collective-writes-shared", TOO_LATE)?;
            return Ok(());
        }
        let users = self.work.users(value).to_vec();
        let others = users.into_iter().filter(|&user| user != (id, i));
        let others: Vec<(NodeId, u32)> = others.filter(|&u| !self.looks_at_shape(u)).collect();
        let last = others.iter().map(|&(n, _)| self.work.position(n)).max();
        let after = self.work.descendants(id, last.unwrap_or(0));
        let before = |reader: NodeId| self.work.is_plainly_before(reader, id);
        // Who uses state after the collective, as the program stands, finds what is there then.
        let is_state_behind = options.exact
            && last.is_some_and(|last| last > self.work.position(id))
            && variable_of(&self.work, value).is_some();
        let is_late = |&(reader, i): &(NodeId, u32)| {
            after.contains(&reader)
                || self.comes_too_late((reader, i), id)
                || !self.work.graph().nodes[reader].bodies.is_empty() && !before(reader)
        };
        if is_state_behind || others.iter().any(is_late) {
            if options.copies_are_planned {
                return Ok(());
            }
            *of_value = of_value.saturating_sub(1);
            self.copy(id, i, &copy, "collective-writes-shared", TOO_LATE)?;
            return Ok(());
        }
        let waits: FxHashSet<NodeId> = self.work.needs(id).collect();
        for (reader, _) in others {
            if !waits.contains(&reader) {
                let reason = "it reads what the collective writes";
                self.work.order(reader, id, reason)?;
            }
        }
        Ok(())
    }

    /// Whether a reader cannot be made to have read before the collective writes.
    fn comes_too_late(&self, (reader, i): (NodeId, u32), collective: NodeId) -> bool {
        let graph = self.work.graph();
        reader == collective
            || graph.nodes[reader].subgraph != graph.nodes[collective].subgraph
            || self.is_late_for_all((reader, i))
    }

    /// Whether a user of a value cannot be put before a collective that writes it.
    fn is_late_for_all(&self, (reader, i): (NodeId, u32)) -> bool {
        let graph = self.work.graph();
        self.work.table.class(graph, reader) == OpClass::Output
            || flag(&graph.nodes[reader].attrs, INPUT_MUTABLE)
            || writes_inside(graph, reader, i)
            || self.work.updates(reader, i)
            || self.hands_on(reader, i)
    }

    /// Whether a reader hands the memory on under another name, so that others read it through it.
    fn hands_on(&self, reader: NodeId, i: u32) -> bool {
        let graph = self.work.graph();
        let outputs = (0u32..).zip(&graph.nodes[reader].outputs);
        let table = self.work.table;
        outputs.into_iter().any(|(o, value)| {
            value.is_some() && crate::storage::reference(graph, table, reader, o) == Some(i)
        })
    }

    /// Whether a reader asks the shape alone, itself or all who read it under another shape.
    fn looks_at_shape(&self, (reader, i): (NodeId, u32)) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        if self.work.effects(reader).shape_only.contains(&i) {
            return true;
        }
        if !table.traits(graph, reader).has(Trait::Relabels) {
            return false;
        }
        let made = graph.nodes[reader].output(0);
        let users = made.map_or(&[][..], |v| self.work.users(v));
        users
            .iter()
            .all(|&(n, i)| self.work.effects(n).shape_only.contains(&i))
    }
}
