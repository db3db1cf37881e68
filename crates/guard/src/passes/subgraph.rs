//! Borders of subgraphs: what crosses one keeps its own memory where the two sides ask different
//! things of it.
//!
//! The rules are the reference's, one by one, so the pass copies more than is needed where it
//! cannot see the whole; [`crate::control_flow`] does with less.

use rustc_hash::FxHashSet;
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::{Attr, Graph, NodeId, SubgraphId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{
    CONTIGUOUS_INPUT, CONTIGUOUS_OUTPUT, PACKED_INPUT, PACKED_OUTPUT, flag, is_static,
};
use crate::options::Options;
use crate::storage::{Anchor, is_condition, outer_input, reference};
use crate::work::has_unknown_size;

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit.
pub fn run(graph: &Graph, table: &OpTable, _: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::SubgraphIsolation, "subgraph");
    for subgraph in graph.subgraphs.keys() {
        for &id in &graph.subgraphs[subgraph].nodes {
            let inner = graph.subgraphs[subgraph].owner.is_some();
            match table.class(graph, id) {
                OpClass::Input if inner => pass.inner_input(id)?,
                OpClass::Output if inner => pass.inner_results(id, subgraph)?,
                OpClass::While => pass.while_loop(id)?,
                OpClass::Branch if is_static(graph, subgraph) => pass.branches(id)?,
                _ => {}
            }
        }
    }
    pass.done()
}

/// One copy for several values: each with those who read it.
type Behind = Vec<(ValueId, Vec<(NodeId, u32)>)>;

impl Pass<'_> {
    fn inner_input(&mut self, id: NodeId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let name = graph.nodes[id].name.clone();
        let Some(value) = graph.nodes[id].output(0) else {
            return Ok(());
        };
        if self.reaches_group(value) {
            let harm = "the input lies in the caller's memory, not next to its neighbours";
            self.note(
                Anchor::output(id, 0),
                "subgraph-input-in-group",
                harm,
                "copied",
            );
            let users = self.work.users(value).to_vec();
            let copy = format!("{name}_output_0_Memcpy");
            let copy = self.work.copy_behind(&[(value, users)], &copy, harm)?;
            self.done_by(1, copy);
        }
        let graph = self.work.graph();
        let outer = outer_input(graph, self.work.table, id);
        if let Some((owner, i)) = outer
            && self.work.table.class(graph, owner) == OpClass::While
            && self.comes_from_constant(value)
            && !self.work.is_copied_before(owner, i)
        {
            let copy = format!("{}_input_{i}_Memcpy", graph.nodes[owner].name);
            let harm = "the loop would write a constant";
            self.copy(owner, i, &copy, "constant-into-loop", harm)?;
        }
        Ok(())
    }

    /// Whether somebody who reads a value, by any name, wants it next to others.
    fn reaches_group(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let mut seen = FxHashSet::default();
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            for &(user, i) in self.work.users(value) {
                let attrs = &graph.nodes[user].attrs;
                if flag(attrs, CONTIGUOUS_INPUT) || flag(attrs, PACKED_INPUT) {
                    return true;
                }
                for (o, made) in (0u32..).zip(&graph.nodes[user].outputs) {
                    let is_alias = reference(graph, self.work.table, user, o) == Some(i);
                    stack.extend(made.filter(|&v| is_alias && seen.insert(v)));
                }
            }
        }
        false
    }

    /// Whether a value is a constant, through inputs and results of partitions.
    fn comes_from_constant(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let mut value = value;
        // Each step goes out of a subgraph or into one that is left no more.
        for _ in 0..graph.values.len() {
            let made = &graph.values[value];
            let next = match table.class(graph, made.producer) {
                OpClass::Constant => return true,
                OpClass::Input => {
                    let outer = outer_input(graph, table, made.producer);
                    let through = outer.filter(|&(owner, _)| {
                        matches!(table.class(graph, owner), OpClass::Call | OpClass::While)
                    });
                    through.and_then(|(owner, i)| graph.nodes[owner].input(i as usize))
                }
                OpClass::Call => {
                    let body = graph.nodes[made.producer].bodies.first();
                    body.and_then(|b| self.result(b.graph, made.output))
                }
                _ => None,
            };
            match next {
                Some(next) => value = next,
                None => return false,
            }
        }
        false
    }

    fn result(&self, subgraph: SubgraphId, index: u32) -> Option<ValueId> {
        let graph = self.work.graph();
        let output = graph.subgraphs[subgraph].output?;
        let mut inputs = graph.nodes[output].inputs.iter().enumerate();
        let (_, value) =
            inputs.find(|(i, _)| result_index(graph, Some(output), *i) == index as usize)?;
        *value
    }

    fn inner_results(&mut self, id: NodeId, subgraph: SubgraphId) -> Result<(), GuardError> {
        for i in (0u32..).take(self.work.graph().nodes[id].inputs.len()) {
            let graph = self.work.graph();
            let table = self.work.table;
            let Some(value) = graph.nodes[id].input(i as usize) else {
                continue;
            };
            let made = &graph.values[value];
            let producer = made.producer;
            let class = table.class(graph, producer);
            let owner = graph.subgraphs[subgraph].owner;
            let in_loop = owner.is_some_and(|o| table.class(graph, o) == OpClass::While);
            let outer_is_static = graph
                .enclosing(subgraph)
                .is_some_and(|s| is_static(graph, s));
            let harm = if outer_is_static && self.comes_from_constant(value) {
                "a constant would be the result's memory"
            } else if is_cleared(graph, producer, made.output) {
                "the result must stay where it was cleared"
            } else if self.comes_from_group(value) {
                "the result lies next to its neighbours, not in the caller's memory"
            } else if class == OpClass::Input && !in_loop {
                "what the subgraph was given would be its result's memory"
            } else if class == OpClass::While
                && is_static(graph, subgraph)
                && has_unknown_size(graph, Anchor::input(id, i))
            {
                "the loop's result has no size that is known before the run"
            } else {
                continue;
            };
            let copy = format!("{}_input_{i}_Memcpy", graph.nodes[id].name);
            self.copy(id, i, &copy, "subgraph-result", harm)?;
        }
        Ok(())
    }

    /// Whether a value is, by some name, one of several outputs side by side.
    fn comes_from_group(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let mut next = Some(value);
        while let Some(value) = next {
            let made = &graph.values[value];
            let attrs = &graph.nodes[made.producer].attrs;
            if flag(attrs, CONTIGUOUS_OUTPUT) || flag(attrs, PACKED_OUTPUT) {
                return true;
            }
            let input = reference(graph, self.work.table, made.producer, made.output);
            next = input.and_then(|i| graph.nodes[made.producer].input(i as usize));
        }
        false
    }

    fn while_loop(&mut self, id: NodeId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let table = self.work.table;
        let name = graph.nodes[id].name.clone();
        for i in (0u32..).take(graph.nodes[id].inputs.len()) {
            let graph = self.work.graph();
            let Some(value) = graph.nodes[id].input(i as usize) else {
                continue;
            };
            let class = table.class(graph, graph.values[value].producer);
            if class != OpClass::Variable && self.work.users(value).len() > 1 {
                let harm = "the loop would write what others read";
                self.copy(
                    id,
                    i,
                    &format!("{name}_input_{i}_Memcpy"),
                    "loop-input-shared",
                    harm,
                )?;
            }
        }
        let graph = self.work.graph();
        let bodies = graph.nodes[id].bodies.iter().map(|b| b.graph);
        let (conditions, bodies): (Vec<_>, Vec<_>) =
            bodies.partition(|&s| is_condition(graph, table, s));
        let unknown = (0u32..).zip(&graph.nodes[id].outputs);
        let unknown = unknown
            .into_iter()
            .any(|(o, _)| has_unknown_size(graph, Anchor::output(id, o)));
        for body in bodies
            .into_iter()
            .filter(|&s| is_static(graph, s))
            .collect::<Vec<_>>()
        {
            if unknown {
                for &condition in &conditions {
                    self.copy_inputs(condition, &FxHashSet::default())?;
                }
            }
            self.loop_body(body)?;
        }
        Ok(())
    }

    /// One copy behind the inputs of a subgraph, but for those that are handed through.
    fn copy_inputs(
        &mut self,
        subgraph: SubgraphId,
        through: &FxHashSet<NodeId>,
    ) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let inputs = graph.subgraphs[subgraph]
            .inputs
            .iter()
            .filter(|n| !through.contains(n));
        let values = inputs.filter_map(|&n| graph.nodes[n].output(0));
        let behind: Behind = values.map(|v| (v, self.work.users(v).to_vec())).collect();
        let behind: Behind = behind
            .into_iter()
            .filter(|(_, users)| !users.is_empty())
            .collect();
        let name = format!("{}_input_Memcpy", graph.subgraphs[subgraph].name);
        if let Some(&(first, _)) = behind.first() {
            let harm = "states are read before new ones are written";
            let at = Anchor::of(self.work.graph(), first);
            self.note(at, "loop-states", harm, "copied");
            let copy = self.work.copy_behind(&behind, &name, harm)?;
            self.done_by(1, copy);
        }
        Ok(())
    }

    fn loop_body(&mut self, body: SubgraphId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let table = self.work.table;
        let Some(output) = graph.subgraphs[body].output else {
            return Ok(());
        };
        let mut through = FxHashSet::default();
        let mut kept = FxHashSet::default();
        for &data in &graph.subgraphs[body].inputs {
            let users = graph.nodes[data]
                .output(0)
                .map_or(&[][..], |v| self.work.users(v));
            let state = outer_input(graph, table, data).map(|(_, i)| i as usize);
            if let [(user, i)] = users
                && *user == output
                && state == Some(result_index(graph, Some(output), *i as usize))
            {
                through.insert(data);
                kept.insert(*i);
            }
        }
        self.copy_inputs(body, &through)?;
        let graph = self.work.graph();
        let inputs = (0u32..).zip(&graph.nodes[output].inputs);
        let written: Vec<u32> = inputs
            .filter(|(i, value)| value.is_some() && !kept.contains(i))
            .map(|(i, _)| i)
            .collect();
        if let Some(&first) = written.first() {
            let name = format!("{}_output_Memcpy", graph.subgraphs[body].name);
            let harm = "states are read before new ones are written";
            self.note(Anchor::input(output, first), "loop-states", harm, "copied");
            let copy = self.work.copy_before(output, &written, &name, harm)?;
            self.done_by(1, copy);
        }
        Ok(())
    }

    /// Copies each further result of a branch that is the memory of one before it.
    fn branches(&mut self, id: NodeId) -> Result<(), GuardError> {
        let bodies: Vec<SubgraphId> = self.work.graph().nodes[id]
            .bodies
            .iter()
            .map(|b| b.graph)
            .collect();
        for body in bodies {
            let Some(output) = self.work.graph().subgraphs[body].output else {
                continue;
            };
            let mut seen = FxHashSet::default();
            for i in (0u32..).take(self.work.graph().nodes[output].inputs.len()) {
                let graph = self.work.graph();
                let Some(value) = graph.nodes[output].input(i as usize) else {
                    continue;
                };
                if !seen.insert(self.work.real_producer(value)) {
                    let copy = format!("{}_input_{i}_Memcpy", graph.nodes[output].name);
                    let harm = "one memory would be two results";
                    self.copy(output, i, &copy, "branch-returns-twice", harm)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether an output is one that is cleared before its node adds to it.
fn is_cleared(graph: &Graph, node: NodeId, output: u32) -> bool {
    let attrs = &graph.nodes[node].attrs;
    let listed = attrs.get("atomic_output_index");
    let listed = match listed {
        Some(Attr::List(list)) => list.iter().any(|i| i.as_int() == Some(i64::from(output))),
        _ => false,
    };
    flag(attrs, "is_atomic_node") && listed
}
