//! Whether a graph computes what another does, with nothing but order and harmless nodes added.
//!
//! A plan may be made for a graph to which a guard has added order, nodes that clear memory and
//! nodes that store in a variable what a collective made of a copy of it. That the plan is right for
//! that graph is the business of [`crate::check()`]; that it is then right for the model as well is
//! shown here, by comparing the two by name:
//!
//! - everything that the model has is there, and the same; nodes wait at least for what they waited
//!   for;
//! - an added node clears memory and nothing else, or it assigns to a variable what a node made of
//!   it that gives its result in the memory it read;
//! - nodes that touch variables stand in the same order.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Graph, Node, NodeId, ValueId};

/// A difference that could change what is computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A node of the model is not there, or is another.
    #[error("node {node:?} of the model is {problem} in the graph that was planned")]
    Node {
        /// Label of the node.
        node: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A node was added that could change what is computed.
    #[error(
        "node {node:?} was added to the model, and it neither clears memory nor stores in a variable what was made of it"
    )]
    Added {
        /// Label of the node.
        node: String,
    },
    /// Nodes that touch variables stand in another order.
    #[error(
        "nodes of graph {graph:?} that touch variables stand in another order than in the model"
    )]
    Order {
        /// Name of the subgraph.
        graph: String,
    },
}

impl Difference {
    /// The code of the rule; the same in all versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "T080"
    }
}

/// Compares a model with the graph that was planned for it.
///
/// # Errors
/// The first difference that could change what is computed.
pub fn refines(model: &Graph, planned: &Graph, table: &OpTable) -> Result<(), Difference> {
    let labels: FxHashMap<String, NodeId> = (planned.nodes.keys())
        .map(|n| (planned.node_label(n), n))
        .collect();
    let mut kept: FxHashSet<NodeId> = FxHashSet::default();
    for id in model.nodes.keys() {
        let label = model.node_label(id);
        let problem = match labels.get(&label) {
            None => Some("missing"),
            Some(&same) => {
                kept.insert(same);
                differs(model, id, planned, same)
            }
        };
        if let Some(problem) = problem {
            return Err(Difference::Node {
                node: label,
                problem,
            });
        }
    }
    let read: FxHashSet<ValueId> = (planned.nodes.values())
        .flat_map(|n| n.inputs.iter().copied().flatten())
        .collect();
    for id in planned.nodes.keys().filter(|n| !kept.contains(n)) {
        if !clears(planned, table, id) && !stores_back(planned, table, id, &read) {
            let node = planned.node_label(id);
            return Err(Difference::Added { node });
        }
    }
    let names: FxHashMap<&str, _> = (planned.subgraphs.iter())
        .map(|(id, s)| (s.name.as_str(), id))
        .collect();
    let before = touching(model, table);
    let after = touching(planned, table);
    for subgraph in model.subgraphs.values() {
        let differs = match names.get(subgraph.name.as_str()) {
            None => true,
            Some(&other) => {
                let name = |graph: &Graph, n: &NodeId| graph.nodes[*n].name.clone();
                let mine = subgraph.nodes.iter().filter(|n| before.contains(n));
                let others = planned.subgraphs[other].nodes.iter();
                let others = others.filter(|n| kept.contains(n) && after.contains(n));
                !mine
                    .map(|n| name(model, n))
                    .eq(others.map(|n| name(planned, n)))
            }
        };
        if differs {
            return Err(Difference::Order {
                graph: subgraph.name.clone(),
            });
        }
    }
    Ok(())
}

/// What is another in a node than in its model, if anything.
fn differs(model: &Graph, id: NodeId, planned: &Graph, same: NodeId) -> Option<&'static str> {
    let (a, b) = (&model.nodes[id], &planned.nodes[same]);
    let read = |graph: &Graph, node: &Node| -> Vec<Option<String>> {
        let inputs = node.inputs.iter();
        inputs.map(|v| v.map(|v| graph.value_label(v))).collect()
    };
    let made = |graph: &Graph, node: &Node| -> Vec<Option<tenure_graph::Value>> {
        let outputs = node.outputs.iter();
        let value = |v: ValueId| tenure_graph::Value {
            producer: id,
            ..graph.values[v].clone()
        };
        outputs.map(|v| v.map(value)).collect()
    };
    let bodies = |graph: &Graph, node: &Node| -> Vec<(String, String)> {
        let bodies = node.bodies.iter();
        bodies
            .map(|b| (b.role.to_string(), graph.subgraphs[b.graph].name.clone()))
            .collect()
    };
    let is_same = a.op == b.op
        && a.domain == b.domain
        && a.stream == b.stream
        && a.attrs == b.attrs
        && a.input_attrs == b.input_attrs
        && a.workspace == b.workspace
        && a.extra == b.extra
        && model.subgraphs[a.subgraph].name == planned.subgraphs[b.subgraph].name
        && bodies(model, a) == bodies(planned, b);
    if !is_same {
        return Some("another");
    }
    if read(model, a) != read(planned, b) {
        return Some("a reader of other values");
    }
    if made(model, a) != made(planned, b) {
        return Some("a producer of other values");
    }
    let waits: FxHashSet<String> = (b.control.iter()).map(|&n| planned.node_label(n)).collect();
    let mut waited = a.control.iter().map(|&n| model.node_label(n));
    (!waited.all(|n| waits.contains(&n))).then_some("no longer behind what it waits for")
}

/// Whether a node clears memory and does nothing else.
fn clears(graph: &Graph, table: &OpTable, id: NodeId) -> bool {
    let node = &graph.nodes[id];
    let is_plain = node.inputs.is_empty() && node.outputs.is_empty() && node.bodies.is_empty();
    is_plain && table.traits(graph, id).has(Trait::Zeroes)
}

/// Whether a node assigns to a variable what another made of that variable and gives in the memory
/// it read; nobody reads the assignment's own output.
fn stores_back(graph: &Graph, table: &OpTable, id: NodeId, read: &FxHashSet<ValueId>) -> bool {
    let node = &graph.nodes[id];
    let (Some(variable), Some(made)) = (node.input(0), node.input(1)) else {
        return false;
    };
    let source = &graph.values[made];
    let slot = source.output as usize;
    table.traits(graph, id).has(Trait::Assigns)
        && node.inputs.len() == 2
        && table.class(graph, graph.values[variable].producer) == OpClass::Variable
        && table.traits(graph, source.producer).has(Trait::WritesBack)
        && graph.nodes[source.producer].input(slot) == Some(variable)
        && !node.outputs.iter().flatten().any(|v| read.contains(v))
}

/// Nodes that read a variable, under whatever name, or run others that may.
fn touching(graph: &Graph, table: &OpTable) -> FxHashSet<NodeId> {
    let is_variable = |&n: &NodeId| table.class(graph, n) == OpClass::Variable;
    if !graph.nodes.keys().any(|n| is_variable(&n)) {
        return FxHashSet::default();
    }
    let mut names: FxHashSet<ValueId> = FxHashSet::default();
    let mut nodes: FxHashSet<NodeId> = FxHashSet::default();
    // A name that is made of a name stands behind it; across borders of subgraphs owners count.
    let order = graph
        .subgraphs
        .values()
        .flat_map(|s| s.nodes.iter().copied());
    for id in order {
        let node = &graph.nodes[id];
        if is_variable(&id) {
            names.extend(node.outputs.iter().flatten());
            continue;
        }
        let reads = node.inputs.iter().flatten().any(|v| names.contains(v));
        if !reads && node.bodies.is_empty() {
            continue;
        }
        nodes.insert(id);
        let effects = table.effects(graph, id);
        for (o, value) in (0u32..).zip(&node.outputs) {
            let mut aliases = effects.views.iter().chain(&effects.refs);
            let same = aliases.any(|a| {
                let source = node.input(a.input as usize);
                a.output == o && source.is_some_and(|v| names.contains(&v))
            });
            if same || !node.bodies.is_empty() {
                names.extend(*value);
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::{Dialect, text};

    const MODEL: &str = "model m ge\ngraph ^g {\n  %v: float32[4] = Variable()\n  %a: float32[4] = Relu(%v)\n  \
         %c: float32[4] = HcomBroadcast(%v) {_input_mutable = true}\n  %b: float32[4] = Relu(%a)\n  \
         NetOutput(%b, %c) @results\n}\n";

    fn told(planned: &str) -> String {
        let table = OpTable::builtin(Dialect::Ge);
        let graph = |text: &str| text::parse(text).unwrap();
        match refines(&graph(MODEL), &graph(planned), &table) {
            Ok(()) => String::new(),
            Err(difference) => difference.to_string(),
        }
    }

    #[test]
    fn order_and_harmless_nodes_are_no_difference() {
        assert_eq!(told(MODEL), "");
        assert_eq!(told(&MODEL.replace("Relu(%a)", "Relu(%a) after @c")), "");
        let clean = "  AtomicAddrClean() @clean\n  %a:";
        assert_eq!(told(&MODEL.replace("  %a:", clean)), "");
        let back = "  %s: float32[4] <ref_input = 0> = Assign(%v, %c)\n  %b:";
        assert_eq!(told(&MODEL.replace("  %b:", back)), "");
    }

    #[test]
    fn everything_else_is() {
        let cases = [
            ("Relu(%a)", "Relu(%v)"),
            ("Relu(%a)", "Neg(%a)"),
            ("%b: float32[4]", "%b: float32[5]"),
            ("NetOutput(%b, %c)", "NetOutput(%c, %b)"),
            (
                "  %b:",
                "  %s: float32[4] <ref_input = 0> = Assign(%v, %a)\n  %b:",
            ),
            (
                "  %b:",
                "  %s: float32[4] <ref_input = 0> = AddInplace(%v)\n  %b:",
            ),
            ("  %b:", "  %s: float32[4] = Relu(%a)\n  %b:"),
        ];
        for (from, to) in cases {
            let edited = MODEL.replace(from, to);
            assert_ne!(edited, MODEL);
            assert_ne!(told(&edited), "", "{from} to {to}");
        }
        let mut lines: Vec<&str> = MODEL.lines().collect();
        lines.swap(3, 4);
        assert!(told(&lines.join("\n")).contains("order"));
    }
}
