//! Events between streams as control edges.
//!
//! In Graph Engine's models the order between two streams stands in pairs of nodes alone: one
//! records an event, and one of the other stream waits for the event of the same number. The rest
//! of the program knows control edges.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

use crate::effects::{GEAR, OpTable, Trait};
use crate::link::NodeDef;
use crate::{Graph, NodeId};

/// The number of the event that a node records or waits for.
const EVENT: &str = "event_id";

/// Gives each node that waits for an event a control edge from the node that recorded it last.
/// `nodes` are those of one subgraph in the order in which they run; who waits for an event that
/// nobody recorded before waits for nothing. A node of one gear of several waits for what runs in that
/// gear.
pub fn to_control(nodes: &mut [NodeDef], table: &OpTable) {
    // The last of each gear, by event.
    let mut recorders: FxHashMap<i64, BTreeMap<String, usize>> = FxHashMap::default();
    for n in 0..nodes.len() {
        let Some(event) = nodes[n].attrs.int(EVENT) else {
            continue;
        };
        let traits = table.traits_of_op(&nodes[n].domain, &nodes[n].op);
        if traits.has(Trait::RecordsEvent) {
            let of = recorders.entry(event).or_default();
            of.insert(gear(&nodes[n]).to_owned(), n);
        } else if traits.has(Trait::WaitsForEvent)
            && let Some(recorders) = recorders.get(&event)
        {
            let mine = gear(&nodes[n]);
            let in_all = recorders.get(ALL_GEARS).copied();
            let waited: Vec<usize> = if mine == ALL_GEARS {
                let last = recorders.values().copied();
                last.filter(|&at| Some(at) >= in_all).collect()
            } else {
                let own = recorders.get(mine).copied();
                own.max(in_all).into_iter().collect()
            };
            for recorder in waited {
                let recorder = nodes[recorder].name.clone();
                let control = &mut nodes[n].control;
                if !control.contains(&recorder) {
                    control.push(recorder);
                }
            }
        }
    }
}

/// Nodes that wait for an event which nobody recorded before, with its number: they wait for nothing.
pub fn in_vain<'a>(
    graph: &'a Graph,
    table: &'a OpTable,
) -> impl Iterator<Item = (NodeId, i64)> + 'a {
    let event = |node: NodeId| graph.nodes[node].attrs.int(EVENT);
    let waits = graph.nodes.keys().filter_map(move |node| {
        let number = event(node)?;
        let has = table.traits(graph, node).has(Trait::WaitsForEvent);
        has.then_some((node, number))
    });
    waits.filter(move |&(node, number)| {
        let mut before = graph.nodes[node].control.iter();
        !before
            .any(|&n| event(n) == Some(number) && table.traits(graph, n).has(Trait::RecordsEvent))
    })
}

/// The label of what runs with every gear.
const ALL_GEARS: &str = "";

/// The one of several gears that a node is in.
fn gear(node: &NodeDef) -> &str {
    node.attrs.str(GEAR).unwrap_or(ALL_GEARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// The nodes that each node waits for, in a graph of the given nodes (name, operator, stream,
    /// event). What is before a `/` of a name is the node's gear.
    fn control(nodes: &[(&str, &str, i64, i64)]) -> Vec<Vec<String>> {
        let node = |&(name, op, stream, event): &(&str, &str, i64, i64)| {
            let gear = name.split_once('/').map_or("", |(gear, _)| gear);
            format!(
                r#"{{"name":"{name}","op":"{op}","stream":{stream},"attrs":{{"event_id":{event},"_batch_label":"{gear}"}}}}"#
            )
        };
        let nodes: Vec<String> = nodes.iter().map(node).collect();
        let text = format!(
            r#"{{"format":"tenure.graph/1","graphs":[{{"name":"root","nodes":[{}]}}]}}"#,
            nodes.join(",")
        );
        let graph = json::read(text.as_bytes()).unwrap();
        let again = json::read(json::write(&graph).as_bytes()).unwrap();
        assert_eq!(again, graph, "written and read again");
        let table = OpTable::builtin(graph.dialect);
        let in_vain: Vec<NodeId> = in_vain(&graph, &table).map(|(node, _)| node).collect();
        let waits =
            |n: &NodeId| &*graph.nodes[*n].op == "Recv" && graph.nodes[*n].control.is_empty();
        assert_eq!(
            in_vain,
            graph.nodes.keys().filter(waits).collect::<Vec<_>>()
        );
        let names = |n: &crate::Node| {
            let control = n.control.iter();
            control.map(|&c| graph.nodes[c].name.clone()).collect()
        };
        graph.nodes.values().map(names).collect()
    }

    #[test]
    fn a_wait_comes_after_the_last_record() {
        let none: [String; 0] = [];
        let found = control(&[
            ("early", "Recv", 1, 7),
            ("first", "Send", 0, 7),
            ("second", "Send", 0, 7),
            ("other", "Send", 0, 8),
            ("wait", "Recv", 1, 7),
            ("again", "Recv", 2, 7),
            ("last", "Relu", 2, 7),
        ]);
        assert_eq!(found[0], none, "nobody has recorded it yet");
        assert_eq!(found[4], ["second"]);
        assert_eq!(found[5], ["second"]);
        assert_eq!(found[6], none, "it waits for nothing");
    }

    #[test]
    fn a_gear_waits_for_what_runs_in_it() {
        let found = control(&[
            ("a/send", "Send", 0, 7),
            ("b/send", "Send", 0, 7),
            ("a/wait", "Recv", 1, 7),
            ("b/wait", "Recv", 1, 7),
            ("wait", "Recv", 1, 7),
            ("send", "Send", 0, 7),
            ("a/again", "Recv", 1, 7),
            ("again", "Recv", 1, 7),
            ("c/wait", "Recv", 1, 7),
        ]);
        assert_eq!(found[2], ["a/send"]);
        assert_eq!(found[3], ["b/send"]);
        assert_eq!(found[4], ["a/send", "b/send"]);
        assert_eq!(found[6..], [["send"], ["send"], ["send"]]);
    }
}
