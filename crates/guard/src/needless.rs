//! Copies that nobody needs once all others stand.
//!
//! A stage cannot know what the stages after it will part: a copy before a branch is for nothing
//! when one inside is needed anyway. So each copy is taken out alone, and where the guard then makes
//! do with fewer bytes or fewer copies, that is the program. A copy that holds what a variable was at a
//! moment stays.

use rustc_hash::FxHashSet;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::{Edit, Patch, Slot};
use tenure_graph::{Graph, NodeId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Edited, Finding, Kind};
use crate::storage::{Anchor, Classes, in_order, reference};

const STAGE: &str = "needless";

/// Nodes that are looked at in all attempts together: in large programs copies are not tried.
const NODES_OF_ATTEMPTS: usize = 1 << 14;

/// Takes out the copies of a guarded program that the guard can do without.
///
/// # Errors
/// Those of `guard`.
pub(crate) fn take_out(
    given: &Graph,
    mut done: Guarded,
    table: &OpTable,
    guard: impl Fn(&Graph) -> Result<Guarded, GuardError>,
) -> Result<Guarded, GuardError> {
    let Some(mut graph) = done.graph.take() else {
        return Ok(done);
    };
    let labels: FxHashSet<String> = given.nodes.keys().map(|n| given.node_label(n)).collect();
    let mut left = NODES_OF_ATTEMPTS;
    let mut has_gained = true;
    while std::mem::take(&mut has_gained) {
        for label in candidates(&graph, table, &labels)? {
            let Some(rest) = left.checked_sub(graph.nodes.len()) else {
                break;
            };
            left = rest;
            let Some(node) = graph.nodes.keys().find(|&n| graph.node_label(n) == label) else {
                continue;
            };
            let mut patch = Patch::new();
            patch.push(
                Edit::Bypass { node },
                "with the other copies nobody needs it",
            );
            let (without, log) = patch.apply(&graph)?;
            let again = guard(&without)?;
            let (old, new) = (price(&graph, table), price(again.graph(&without), table));
            if new.0 > old.0 || new.1 > old.1 || new == old {
                continue;
            }
            let is_its = |f: &Finding| f.by.as_deref() == Some(&*label);
            let found = done.findings.iter().find(|f| is_its(f));
            let kind = found.map_or(Kind::ReadWrite, |f| f.kind);
            done.findings.retain(|f| !is_its(f));
            done.edits.extend(log.lines.into_iter().map(|line| Edited {
                kind,
                stage: STAGE,
                line,
            }));
            graph = again.graph(&without).clone();
            done.then(again);
            has_gained = true;
        }
    }
    done.graph = Some(graph);
    Ok(done)
}

/// The labels of the copies of one value that were put into a program, in order of execution: one
/// in front of a node comes before those inside it, which cost more where they run often.
fn candidates(
    graph: &Graph,
    table: &OpTable,
    given: &FxHashSet<String>,
) -> Result<Vec<String>, GuardError> {
    let classes = Classes::build(graph, table, graph.root)?;
    let is_one = |&n: &NodeId| {
        let is_copy = table.traits(graph, n).has(Trait::Copies);
        is_copy && graph.nodes[n].inputs.len() == 1 && !is_moment(graph, table, &classes, n)
    };
    let nodes = in_order(graph, graph.root);
    let copies = nodes.into_iter().filter(is_one);
    let labels = copies.map(|n| graph.node_label(n));
    Ok(labels.filter(|label| !given.contains(label)).collect())
}

/// Whether a copy parts a variable from other memory, and one of the two is written.
fn is_moment(graph: &Graph, table: &OpTable, classes: &Classes, copy: NodeId) -> bool {
    let members = |class: usize| classes.lists[class].iter().map(|&m| classes.anchors[m]);
    let class_of = |m: Anchor| table.class(graph, m.node);
    let is_written = |m: Anchor| {
        let effects = table.effects(graph, m.node);
        match m.slot {
            Slot::In(i) => effects.spoils.contains(&i),
            // Memory with a second origin is written by it, as the state of a loop is.
            Slot::Out(o) => {
                effects.refs.iter().any(|alias| alias.output == o)
                    || m.node != copy
                        && !matches!(class_of(m), OpClass::Variable | OpClass::Input)
                        && reference(graph, table, m.node, o).is_none()
            }
        }
    };
    let from = classes.class_of(Anchor::input(copy, 0));
    let to = classes.class_of(Anchor::output(copy, 0));
    let (Some(from), Some(to)) = (from, to) else {
        return true;
    };
    let mut source = members(from);
    source.any(|m| m.is_output() && class_of(m) == OpClass::Variable)
        && members(from).chain(members(to)).any(is_written)
}

/// The bytes that copies move, each node once, and how many tensors they copy.
fn price(graph: &Graph, table: &OpTable) -> (u64, usize) {
    let copies = graph.nodes.keys();
    let copies = copies.filter(|&n| table.traits(graph, n).has(Trait::Copies));
    let mut price = (0u64, 0);
    for value in copies.flat_map(|n| graph.nodes[n].outputs.iter().flatten()) {
        price.0 = price.0.saturating_add(graph.bytes(*value).unwrap_or(0));
        price.1 += 1;
    }
    price
}
