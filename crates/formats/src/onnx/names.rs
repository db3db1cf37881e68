//! Names that are unique: of nodes and values in their subgraph, of subgraphs in the model.
//!
//! A label is `SUBGRAPH/NAME`, or the name alone in the root (see
//! [`Graph::value_label`](tenure_graph::Graph::value_label)). Names of subgraphs hold no `/` and
//! are never the part before the `/` of a name in the root: so labels are unique too.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

/// Which names stand in the file as they are. Where two clash, these are kept.
#[derive(Default)]
pub(super) struct Given {
    pub(super) nodes: SecondaryMap<NodeId, bool>,
    pub(super) values: SecondaryMap<ValueId, bool>,
}

/// Makes all names unique.
pub(super) fn settle(graph: &mut Graph, given: &Given) {
    let mut nodes = PerGraph::new(graph);
    let mut values = PerGraph::new(graph);
    for kept in [true, false] {
        for (id, node) in graph
            .nodes
            .iter()
            .filter(|&(id, _)| given.nodes[id] == kept)
        {
            nodes.take(node.subgraph, id, &node.name);
        }
        for (id, value) in graph
            .values
            .iter()
            .filter(|&(id, _)| given.values[id] == kept)
        {
            values.take(graph.nodes[value.producer].subgraph, id, &value.name);
        }
    }
    let (nodes, values) = (nodes.changed, values.changed);
    for (id, name) in nodes {
        graph.nodes[id].name = name;
    }
    for (id, name) in values {
        graph.values[id].name = name;
    }
    settle_graphs(graph);
}

/// Makes the names of subgraphs unique and fit to stand in labels.
fn settle_graphs(graph: &mut Graph) {
    let mut names = Names::default();
    for &node in &graph.subgraphs[graph.root].nodes {
        let node = &graph.nodes[node];
        let values = node
            .outputs
            .iter()
            .flatten()
            .map(|&v| &graph.values[v].name);
        for (before, _) in values.chain([&node.name]).filter_map(|n| n.split_once('/')) {
            names.used.insert(Cow::Borrowed(before));
        }
    }
    let plain: Vec<String> = (graph.subgraphs.values())
        .map(|s| s.name.replace('/', "."))
        .collect();
    let settled: Vec<String> = (plain.iter())
        .map(|name| names.take(name).unwrap_or_else(|| name.clone()))
        .collect();
    for (subgraph, name) in graph.subgraphs.values_mut().zip(settled) {
        subgraph.name = name;
    }
}

/// Names by subgraph, and what has to change.
struct PerGraph<'a, Id> {
    names: Vec<Names<'a>>,
    changed: Vec<(Id, String)>,
}

impl<'a, Id> PerGraph<'a, Id> {
    fn new(graph: &Graph) -> Self {
        // Growing a table hashes every name once more.
        let room = graph.subgraphs.values().map(|s| Names {
            used: HashSet::with_capacity(s.nodes.len()),
            next: HashMap::new(),
        });
        PerGraph {
            names: room.collect(),
            changed: Vec::new(),
        }
    }

    fn take(&mut self, subgraph: SubgraphId, id: Id, name: &'a str) {
        if let Some(other) = self.names[subgraph.as_u32() as usize].take(name) {
            self.changed.push((id, other));
        }
    }
}

/// The names that are taken.
#[derive(Default)]
struct Names<'a> {
    used: HashSet<Cow<'a, str>>,
    /// The next number to try behind a name.
    next: HashMap<&'a str, u64>,
}

impl<'a> Names<'a> {
    /// Takes a name; where it is taken already, one that is free, which is returned.
    fn take(&mut self, name: &'a str) -> Option<String> {
        if self.used.insert(Cow::Borrowed(name)) {
            return None;
        }
        let next = self.next.entry(name).or_insert(2);
        loop {
            let candidate = format!("{name}_{next}");
            *next += 1;
            if self.used.insert(Cow::Owned(candidate.clone())) {
                return Some(candidate);
            }
        }
    }
}
