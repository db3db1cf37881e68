//! Names that are unique: of nodes and values in their subgraph, of subgraphs in the model.
//!
//! A label is `SUBGRAPH/NAME`, or the name alone in the root (see
//! [`Graph::value_label`](tenure_graph::Graph::value_label)). Names of subgraphs hold no `/` and
//! are never the part before the `/` of a name in the root: so labels are unique too.

use std::collections::{HashMap, HashSet};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, ValueId};

/// Which names stand in the file as they are. Where two clash, these are kept.
#[derive(Default)]
pub(super) struct Given {
    pub(super) nodes: SecondaryMap<NodeId, bool>,
    pub(super) values: SecondaryMap<ValueId, bool>,
}

/// Makes all names unique.
pub(super) fn settle(graph: &mut Graph, given: &Given) {
    let mut in_graph: Vec<(Names, Names)> = Vec::new();
    in_graph.resize_with(graph.subgraphs.len(), Default::default);
    for kept in [true, false] {
        for (id, node) in &mut graph.nodes {
            if given.nodes[id] == kept {
                in_graph[node.subgraph.as_u32() as usize]
                    .0
                    .settle(&mut node.name);
            }
        }
        for (id, value) in &mut graph.values {
            if given.values[id] == kept {
                let home = graph.nodes[value.producer].subgraph;
                in_graph[home.as_u32() as usize].1.settle(&mut value.name);
            }
        }
    }

    let mut graphs = Names::default();
    let root_nodes = graph.subgraphs[graph.root].nodes.iter();
    for &node in root_nodes {
        let node = &graph.nodes[node];
        let values = node
            .outputs
            .iter()
            .flatten()
            .map(|&v| &graph.values[v].name);
        for (before, _) in values.chain([&node.name]).filter_map(|n| n.split_once('/')) {
            graphs.used.insert(before.to_owned());
        }
    }
    for subgraph in graph.subgraphs.values_mut() {
        subgraph.name = subgraph.name.replace('/', ".");
        graphs.settle(&mut subgraph.name);
    }
}

/// The names that are taken.
#[derive(Default)]
struct Names {
    used: HashSet<String>,
    /// The next number to try behind a name.
    next: HashMap<String, u64>,
}

impl Names {
    /// Changes the name to one that is free, and takes it.
    fn settle(&mut self, name: &mut String) {
        if self.used.insert(name.clone()) {
            return;
        }
        let next = self.next.entry(name.clone()).or_insert(2);
        loop {
            let candidate = format!("{name}_{next}");
            *next += 1;
            if self.used.insert(candidate.clone()) {
                *name = candidate;
                return;
            }
        }
    }
}
