//! Where each value of a planned model is, and why: planned, pooled, or outside of both.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tenure_graph::control::transfers;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::plan::{Item, Plan};
use tenure_graph::{Dim, Graph, NodeId, ValueId};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whereabouts {
    /// In an arena, or in memory of the caller that the plan counts on.
    Planned,
    /// In memory of the allocator, taken at each run.
    Pooled,
    /// Beside both: constants, variables, inputs of the caller, and names of these.
    Outside,
}

/// Where a value is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReport {
    /// The value.
    pub value: ValueId,
    /// Where it is.
    pub place: Whereabouts,
    /// Why.
    pub why: String,
}

/// Where all values of a graph are, in execution order of the nodes that make them.
#[must_use]
pub fn whereabouts(graph: &Graph, table: &OpTable, plan: &Plan) -> Vec<ValueReport> {
    let members = plan.storages.values().flat_map(|s| &s.members);
    let mut planned: FxHashMap<ValueId, u64> = FxHashMap::default();
    for member in members {
        if let Item::Value(value) = member.item {
            planned.insert(value, member.bytes);
        }
    }
    let mut causes = Causes::new(graph, plan);
    let mut out = Vec::new();
    let mut pending = vec![graph.root];
    while let Some(subgraph) = pending.pop() {
        for &node in &graph.subgraphs[subgraph].nodes {
            causes.enter(graph, table, node);
            for &value in graph.nodes[node].outputs.iter().flatten() {
                let (place, why) = if let Some(bytes) = planned.get(&value) {
                    (Whereabouts::Planned, format!("{bytes} bytes"))
                } else if causes.is_dynamic(value) {
                    (Whereabouts::Pooled, causes.of(graph, table, value))
                } else {
                    let why = match table.class(graph, node) {
                        OpClass::Constant => "a constant",
                        OpClass::Variable => "a variable",
                        OpClass::Input => "memory of the caller",
                        _ if plan.folded.contains(&node) => "computed once from constants",
                        _ => "another name of what is outside",
                    };
                    (Whereabouts::Outside, why.to_owned())
                };
                out.push(ValueReport { value, place, why });
            }
            let bodies = graph.nodes[node].bodies.iter().rev();
            pending.extend(bodies.map(|b| b.graph));
        }
    }
    out
}

/// The nodes whose data decide sizes, by the values whose sizes follow from that.
struct Causes {
    dynamic: FxHashMap<ValueId, Option<NodeId>>,
    /// Names of dimensions that inputs of the graph have.
    names: BTreeSet<String>,
}

impl Causes {
    fn new(graph: &Graph, plan: &Plan) -> Self {
        let values = plan.dynamic.iter();
        let inputs = graph.subgraphs[graph.root].inputs.iter();
        let inputs = inputs.filter_map(|&node| graph.nodes[node].output(0));
        let dims = inputs.filter_map(|value| graph.values[value].shape.as_ref());
        let mut causes = Causes {
            dynamic: values.map(|&v| (v, None)).collect(),
            names: dims
                .flat_map(|shape| shape.0.iter().flat_map(names_of))
                .collect(),
        };
        // What follows from these names alone has no node to blame.
        for value in &plan.dynamic {
            if causes.names(graph, *value).is_none() {
                let producer = graph.values[*value].producer;
                causes.dynamic.insert(*value, Some(producer));
            }
        }
        causes
    }

    fn is_dynamic(&self, value: ValueId) -> bool {
        self.dynamic.contains_key(&value)
    }

    /// A node's outputs have the cause of what it reads, and so has what it hands to its bodies.
    fn enter(&mut self, graph: &Graph, table: &OpTable, node: NodeId) {
        let found = &graph.nodes[node];
        let cause = |causes: &Self, v: &ValueId| causes.dynamic.get(v).copied().flatten();
        let first = found.inputs.iter().flatten().find_map(|v| cause(self, v));
        let inherit = |causes: &mut Self, value: ValueId, from: Option<NodeId>| {
            if let (Some(Some(own)), Some(from)) = (causes.dynamic.get_mut(&value), from) {
                *own = from;
            }
        };
        for &value in found.outputs.iter().flatten() {
            inherit(self, value, first);
        }
        if found.bodies.is_empty() {
            return;
        }
        let class = table.class(graph, node);
        for transfer in transfers(graph, node, class) {
            let (Some(from), Some(to)) = (transfer.from, transfer.to) else {
                continue;
            };
            if graph.values[from].producer != node && graph.values[to].producer != node {
                let from = cause(self, &from).or(Some(node));
                inherit(self, to, from);
            } else if graph.values[to].producer != node {
                // The state of a loop.
                inherit(self, to, Some(node));
            }
        }
    }

    fn of(&self, graph: &Graph, table: &OpTable, value: ValueId) -> String {
        match self.dynamic.get(&value).copied().flatten() {
            Some(node) if table.class(graph, node) == OpClass::Input => {
                let label = graph.node_label(node);
                format!("its size follows from the shape of input {label}")
            }
            Some(node) => {
                let found = &graph.nodes[node];
                let label = graph.node_label(node);
                format!("the data of {label} ({}) decide its size", found.op)
            }
            None => {
                let names = self.names(graph, value).unwrap_or_default();
                format!("its size follows from {names}")
            }
        }
    }

    /// The names of inputs that a value's size follows from; `None` where it does not follow from such
    /// names alone.
    fn names(&self, graph: &Graph, value: ValueId) -> Option<String> {
        let dims = &graph.values[value].shape.as_ref()?.0;
        if dims.contains(&Dim::Unknown) {
            return None;
        }
        let names: BTreeSet<String> = dims.iter().flat_map(names_of).collect();
        let names = names.is_subset(&self.names).then_some(names)?;
        Some(names.into_iter().collect::<Vec<_>>().join(", "))
    }
}

/// The names that stand in a dimension.
fn names_of(dim: &Dim) -> Vec<String> {
    match dim {
        Dim::Formula(formula) => formula.names().iter().map(ToString::to_string).collect(),
        Dim::Known(_) | Dim::Unknown => Vec::new(),
    }
}
