//! Events between streams as control edges.
//!
//! In Graph Engine's models the order between two streams stands in pairs of nodes alone: one
//! records an event, and one of the other stream waits for the event of the same number. The rest
//! of the program knows control edges.

use rustc_hash::FxHashMap;

use crate::effects::{OpTable, Trait};
use crate::link::NodeDef;

/// The number of the event that a node records or waits for.
const EVENT: &str = "event_id";

/// Gives each node that waits for an event a control edge from the node that recorded it last.
/// `nodes` are those of one subgraph in the order in which they run; who waits for an event that
/// nobody recorded before waits for nothing.
pub fn to_control(nodes: &mut [NodeDef], table: &OpTable) {
    let mut recorders: FxHashMap<i64, usize> = FxHashMap::default();
    for n in 0..nodes.len() {
        let Some(event) = nodes[n].attrs.int(EVENT) else {
            continue;
        };
        let traits = table.traits_of_op(&nodes[n].domain, &nodes[n].op);
        if traits.has(Trait::RecordsEvent) {
            recorders.insert(event, n);
        } else if traits.has(Trait::WaitsForEvent)
            && let Some(&recorder) = recorders.get(&event)
        {
            let recorder = nodes[recorder].name.clone();
            let control = &mut nodes[n].control;
            if !control.contains(&recorder) {
                control.push(recorder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::json;

    /// The nodes that each node waits for, in a graph of the given nodes (name, operator, stream,
    /// event).
    fn control(nodes: &[(&str, &str, i64, i64)]) -> Vec<Vec<String>> {
        let node = |&(name, op, stream, event): &(&str, &str, i64, i64)| {
            format!(
                r#"{{"name":"{name}","op":"{op}","stream":{stream},"attrs":{{"event_id":{event}}}}}"#
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
}
