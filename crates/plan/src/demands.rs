//! Demands of a graph's file that plans do not meet yet. A graph that makes one is refused: a plan
//! that looks right and is not would be worse than none.

use tenure_graph::{Attr, Attrs, Graph};

use crate::PlanError;

/// Attributes of nodes that ask for more than separate memory.
const OF_NODES: &[&str] = &[
    "continuous_input",
    "continuous_output",
    "_no_padding_continuous_input",
    "_no_padding_continuous_output",
    "atomic_output_index",
    "atomic_input_index",
    "need_gentask_atomic",
    "is_atomic_node",
    "_batch_label",
    "_output_memory_type",
    "_input_memory_type",
    "_workspace_memory_no_reuse_scope",
];

/// Refuses a graph that asks for what cannot be planned yet.
///
/// # Errors
/// [`PlanError::Demand`] with the node and the attribute.
pub(crate) fn refuse_unmet(graph: &Graph) -> Result<(), PlanError> {
    for (id, node) in graph.nodes.iter() {
        let found = OF_NODES
            .iter()
            .copied()
            .find(|name| asks(&node.attrs, name))
            .or_else(|| asks(&node.extra, "merge").then_some("merge"));
        if let Some(attribute) = found {
            return Err(PlanError::Demand {
                node: graph.node_label(id),
                attribute,
            });
        }
    }
    Ok(())
}

/// Whether an attribute is there and says more than "no", 0 or nothing.
fn asks(attrs: &Attrs, name: &str) -> bool {
    match attrs.get(name) {
        None | Some(Attr::Null) => false,
        Some(Attr::List(list)) => {
            list.iter().any(|a| a.as_int() != Some(0)) || name.contains("index") && !list.is_empty()
        }
        Some(Attr::Str(text)) => !text.is_empty(),
        Some(other) => other.as_bool() != Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::Dialect;

    #[test]
    fn a_demand_is_refused_and_its_absence_is_not() {
        let mut graph = Graph::new("", Dialect::Ge, "root");
        let node = graph.add_node(graph.root, "hcom", "HcomAllReduce");
        let set = |graph: &mut Graph, value| {
            graph.nodes[node].attrs.set("continuous_input", value);
        };
        set(&mut graph, Attr::Bool(false));
        assert!(refuse_unmet(&graph).is_ok());
        set(&mut graph, Attr::Bool(true));
        let error = refuse_unmet(&graph).unwrap_err().to_string();
        assert!(error.contains("hcom") && error.contains("continuous_input"));
        let index = Attr::List(vec![Attr::Int(0)]);
        graph.nodes[node].attrs.remove("continuous_input");
        graph.nodes[node].attrs.set("atomic_output_index", index);
        assert!(refuse_unmet(&graph).is_err());
    }
}
