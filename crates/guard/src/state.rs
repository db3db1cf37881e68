//! State: what is written in a variable's memory is the variable, and a copy of it has what it held
//! at that moment.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::{Graph, NodeId, StreamId, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::options::Options;
use crate::passes::Pass;
use crate::storage::{reference, source_of};
use crate::work::Work;

/// The variable that a value is, if it is one, or written in one's memory, or another name of it.
pub(crate) fn variable_of(work: &Work<'_>, value: ValueId) -> Option<NodeId> {
    let graph = work.graph();
    let mut known = work.variables();
    let mut way = Vec::new();
    let mut next = Some(value);
    // Each step goes to what is made earlier, so it ends.
    let variable = loop {
        let Some(value) = next else { break None };
        if let Some(&variable) = known.get(&value) {
            break variable;
        }
        way.push(value);
        let producer = graph.values[value].producer;
        if work.table.class(graph, producer) == OpClass::Variable {
            break Some(producer);
        }
        next = source_of(graph, work.table, value);
    };
    known.extend(way.into_iter().map(|value| (value, variable)));
    variable
}

/// Who writes which variable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers(FxHashMap<NodeId, Vec<NodeId>>);

impl Writers {
    /// The writers of all variables of a program.
    pub(crate) fn of(work: &Work<'_>) -> Self {
        let graph = work.graph();
        let mut writers = Writers::default();
        for (id, node) in &graph.nodes {
            for (i, value) in (0u32..).zip(&node.inputs) {
                if let Some(value) = *value
                    && work.updates(id, i)
                    && let Some(variable) = variable_of(work, value)
                {
                    writers.0.entry(variable).or_default().push(id);
                }
            }
        }
        writers
    }

    /// Whether a copy has what a variable held at a moment, and it or the variable is written
    /// afterwards: in the order of the file, as state is written and read in that order.
    pub(crate) fn is_moment(&self, work: &Work<'_>, id: NodeId) -> bool {
        let graph = work.graph();
        let node = &graph.nodes[id];
        let comes_before = |writer: &NodeId| {
            graph.nodes[*writer].subgraph == node.subgraph
                && work.position(*writer) < work.position(id)
        };
        node.inputs.iter().zip(&node.outputs).any(|(&from, &to)| {
            let Some(variable) = from.and_then(|v| variable_of(work, v)) else {
                return false;
            };
            let mut writers = self.0.get(&variable).into_iter().flatten();
            writers.any(|w| !comes_before(w)) || to.is_some_and(|v| is_updated(work, v))
        })
    }
}

/// Whether somebody writes a value, under whatever name; what happens inside nodes with subgraphs
/// is not looked at, and counts.
fn is_updated(work: &Work<'_>, value: ValueId) -> bool {
    let graph = work.graph();
    let mut seen = FxHashSet::from_iter([value]);
    let mut names = vec![value];
    while let Some(name) = names.pop() {
        for &(user, i) in work.users(name) {
            if work.updates(user, i) || !graph.nodes[user].bodies.is_empty() {
                return true;
            }
            for (o, &output) in (0u32..).zip(&graph.nodes[user].outputs) {
                let is_name = reference(graph, work.table, user, o) == Some(i);
                names.extend(output.filter(|&v| is_name && seen.insert(v)));
            }
        }
    }
    false
}

/// Puts edges between those who read and write one variable, in the order of the file: what is
/// ordered for other reasons afterwards then keeps that order, or is copied.
///
/// Nodes of different streams are in no order but that of their edges, and get none here.
///
/// # Errors
/// When an edit does not fit.
pub(crate) fn keep_order(
    graph: &Graph,
    table: &OpTable,
    _: &Options,
) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::ReadWrite, "state-order");
    let writers = Writers::of(&pass.work);
    if writers.0.is_empty() {
        return pass.done();
    }
    // Who writes by what it runs writes as well.
    let mut writes: FxHashSet<(NodeId, NodeId)> = FxHashSet::default();
    for (&variable, nodes) in &writers.0 {
        for &node in nodes {
            let owner = |n: &NodeId| graph.subgraphs[graph.nodes[*n].subgraph].owner;
            let all = std::iter::successors(Some(node), owner);
            writes.extend(all.map(|n| (variable, n)));
        }
    }
    for subgraph in graph.subgraphs.keys() {
        let mut open: FxHashMap<(NodeId, Option<StreamId>), Touched> = FxHashMap::default();
        for &node in &graph.subgraphs[subgraph].nodes {
            let read = graph.nodes[node].inputs.iter().flatten();
            let mut variables: Vec<NodeId> = read
                .filter_map(|&v| variable_of(&pass.work, v))
                .filter(|v| writers.0.contains_key(v))
                .collect();
            variables.sort_unstable();
            variables.dedup();
            let is_result = graph.subgraphs[subgraph].output == Some(node);
            for variable in variables.into_iter().filter(|_| !is_result) {
                let stream = graph.nodes[node].stream;
                let touched = open.entry((variable, stream)).or_default();
                let mut first: Vec<NodeId> = touched.writer.into_iter().collect();
                if writes.contains(&(variable, node)) {
                    first.append(&mut touched.readers);
                    touched.writer = Some(node);
                } else {
                    touched.readers.push(node);
                }
                for before in first {
                    if !pass.work.is_plainly_before(before, node) {
                        let reason = "it comes before among those who use the variable";
                        pass.work.order(before, node, reason)?;
                    }
                }
            }
        }
    }
    pass.done()
}

/// The last writer of a variable, and who has read it since.
#[derive(Default)]
struct Touched {
    writer: Option<NodeId>,
    readers: Vec<NodeId>,
}
