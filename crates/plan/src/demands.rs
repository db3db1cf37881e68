//! Demands of a graph's file that plans do not meet yet. A graph that makes one is refused: a plan
//! that looks right and is not would be worse than none.

use tenure_graph::effects::demands::{asked, asks_for_places, is_on_chip};
use tenure_graph::effects::{OpClass, OpTable, cleared};
use tenure_graph::plan::Item;
use tenure_graph::{Graph, ValueId};

use crate::PlanError;
use crate::schedule::Schedule;

/// The node that hands its value back to a merge before it: the graph's loops are made of jumps.
const NEXT_ITERATION: &str = "_next_iteration_node";

/// Refuses a graph that asks for what cannot be planned yet.
///
/// # Errors
/// [`PlanError::Demand`] with the node and the attribute, [`PlanError::Run`].
pub(crate) fn refuse_unmet(graph: &Graph, table: &OpTable) -> Result<(), PlanError> {
    for (id, node) in graph.nodes.iter() {
        let refuse = |attribute| {
            Err(PlanError::Demand {
                node: graph.node_label(id),
                attribute,
            })
        };
        if node.attrs.get(NEXT_ITERATION).is_some() {
            return refuse(NEXT_ITERATION);
        }
        // What stands for others' memory, or runs others, has no say in where that is.
        let is_plain = node.bodies.is_empty() && table.class(graph, id) == OpClass::Compute;
        if let Some(attribute) = asked(node).filter(|_| !is_plain) {
            return refuse(attribute);
        }
        // Memory on the chip is not beside any other, and what has no memory has none for pieces.
        if asks_for_places(node) {
            let effects = table.effects(graph, id);
            let on_chip = |v: &ValueId| {
                let made = &graph.values[*v];
                is_on_chip(&graph.nodes[made.producer], made.output)
            };
            let is_empty = |v: &ValueId| graph.bytes(*v) == Some(0);
            let sides = [
                (
                    effects.input_run,
                    &node.inputs[..],
                    node.output(0),
                    "inputs",
                ),
                (
                    effects.output_run,
                    &node.outputs[..],
                    node.input(0),
                    "outputs",
                ),
            ];
            for (run, slots, whole, side) in sides {
                let Some(run) = run else { continue };
                let is_gone = run.whole && whole.as_ref().is_some_and(is_empty);
                let mut values = slots.iter().flatten();
                if values.any(|v| on_chip(v) || is_gone && !is_empty(v)) {
                    return Err(PlanError::Run {
                        node: graph.node_label(id),
                        side: side.to_owned(),
                    });
                }
            }
        }
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
            let (filler, label) = match c.item {
                Item::Value(value) => (graph.values[value].producer, graph.value_label(value)),
                Item::Workspace(node, k) => (node, format!("{}#{k}", graph.node_label(node))),
                Item::Copy(_) => continue,
            };
            if schedule.first(filler) < schedule.last(c.cleaner) {
                return Err(PlanError::ClearedLate {
                    value: label,
                    cleaner: graph.node_label(c.cleaner),
                });
            }
        }
    }
    Ok(())
}
