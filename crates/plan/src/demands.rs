//! Demands of a graph's file that plans do not meet yet. A graph that makes one is refused: a plan
//! that looks right and is not would be worse than none.

use tenure_graph::effects::demands::asked;
use tenure_graph::effects::{OpClass, OpTable, cleared};
use tenure_graph::{Attr, Graph};

use crate::PlanError;
use crate::schedule::Schedule;

/// Marks the parts of a program that are made for one size of a batch each and run never together:
/// collectives must lie at the same place in all of them.
const BATCH_LABEL: &str = "_batch_label";

/// All inputs and the first output of a node are one memory, whoever of them comes.
const MERGE: &str = "merge";

/// Refuses a graph that asks for what cannot be planned yet.
///
/// # Errors
/// [`PlanError::Demand`] with the node and the attribute.
pub(crate) fn refuse_unmet(graph: &Graph, table: &OpTable) -> Result<(), PlanError> {
    let mut label: Option<&str> = None;
    for (id, node) in graph.nodes.iter() {
        let refuse = |attribute| {
            Err(PlanError::Demand {
                node: graph.node_label(id),
                attribute,
            })
        };
        if node.extra.get(MERGE).and_then(Attr::as_bool) == Some(true) {
            return refuse(MERGE);
        }
        // What stands for others' memory, or runs others, has no say in where that is.
        let is_plain = node.bodies.is_empty() && table.class(graph, id) == OpClass::Compute;
        if let Some(attribute) = asked(node).filter(|_| !is_plain) {
            return refuse(attribute);
        }
        let mine = node.attrs.str(BATCH_LABEL).filter(|l| !l.is_empty());
        if mine.is_some() && label.is_some() && mine != label {
            return refuse(BATCH_LABEL);
        }
        label = label.or(mine);
    }
    Ok(())
}

/// Refuses a schedule in which memory is filled before it is cleared.
///
/// # Errors
/// [`PlanError::ClearedLate`].
pub(crate) fn refuse_late_clearing(
    graph: &Graph,
    table: &OpTable,
    schedule: &Schedule,
) -> Result<(), PlanError> {
    for step in &schedule.steps {
        for c in cleared(graph, table, step.node) {
            let producer = graph.values[c.value].producer;
            if schedule.first(producer) < schedule.last(c.cleaner) {
                return Err(PlanError::ClearedLate {
                    value: graph.value_label(c.value),
                    cleaner: graph.node_label(c.cleaner),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::Dialect;

    #[test]
    fn several_sizes_of_a_batch_are_refused_and_one_is_not() {
        let mut graph = Graph::new("", Dialect::Ge, "root");
        let table = OpTable::builtin(Dialect::Ge);
        let refuse_unmet = |graph: &Graph| refuse_unmet(graph, &table);
        for name in ["a", "b"] {
            let node = graph.add_node(graph.root, name, "HcomAllReduce");
            let label = Attr::Str("batch_0".into());
            graph.nodes[node].attrs.set(BATCH_LABEL, label);
            assert!(refuse_unmet(&graph).is_ok());
        }
        let node = graph.add_node(graph.root, "c", "HcomAllReduce");
        let label = Attr::Str("batch_1".into());
        graph.nodes[node].attrs.set(BATCH_LABEL, label);
        let error = refuse_unmet(&graph).unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains(BATCH_LABEL));
    }
}
