//! The order of a graph's nodes: as in the file, or, where a node stands before what it reads,
//! the topological order nearest to it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::Problem;
use crate::generated::onnx as pb;

/// How many nodes of a cycle are named.
const SHOWN: usize = 8;

/// Positions of the nodes in an order in which each comes after the nodes that make what it, or a
/// subgraph of it, reads.
///
/// # Errors
/// A value that two nodes make, or a cycle.
pub(super) fn order(nodes: &[pb::NodeProto]) -> Result<Vec<usize>, Problem> {
    let mut maker: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
    for (n, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if maker.insert(name, n).is_some() {
                return Err(Problem::Duplicate(name.clone()));
            }
        }
    }
    let sources: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| {
            let made = |name: &&str| maker.get(name).copied();
            let mut sources: Vec<usize> = names_read(node).iter().filter_map(made).collect();
            sources.sort_unstable();
            sources.dedup();
            sources
        })
        .collect();
    let in_order = |(n, sources): (usize, &Vec<usize>)| sources.iter().all(|&s| s < n);
    if sources.iter().enumerate().all(in_order) {
        return Ok((0..nodes.len()).collect());
    }

    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (n, sources) in sources.iter().enumerate() {
        for &s in sources {
            readers[s].push(n);
        }
    }
    let mut waits: Vec<usize> = sources.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len())
        .filter(|&n| waits[n] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(n)) = ready.pop() {
        order.push(n);
        for &reader in &readers[n] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() == nodes.len() {
        Ok(order)
    } else {
        Err(Problem::Cycle(cycle(nodes, &sources, &waits)))
    }
}

/// The names of nodes that wait for one another, in the order in which data would flow.
fn cycle(nodes: &[pb::NodeProto], sources: &[Vec<usize>], waits: &[usize]) -> Vec<String> {
    // A node that still waits has a source that still waits: going back must come round.
    let mut path: Vec<usize> = Vec::new();
    let mut place: HashMap<usize, usize> = HashMap::new();
    let mut at = waits.iter().position(|&w| w > 0);
    while let Some(n) = at {
        if let Some(&first) = place.get(&n) {
            path.drain(..first);
            break;
        }
        place.insert(n, path.len());
        path.push(n);
        at = sources[n].iter().copied().find(|&s| waits[s] > 0);
    }
    path.reverse();
    let first = (0..path.len()).min_by_key(|&i| path[i]).unwrap_or(0);
    path.rotate_left(first);
    let mut names: Vec<String> = (path.iter().take(SHOWN))
        .map(|&n| super::node_title(n, &nodes[n]))
        .collect();
    if path.len() > SHOWN {
        names.push(format!("{} more", path.len() - SHOWN));
    }
    names.extend(path.first().map(|&n| super::node_title(n, &nodes[n])));
    names
}

/// The names that a node reads, or that its subgraphs read from around them.
fn names_read(node: &pb::NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    let mut scopes = Vec::new();
    for graph in subgraphs(node) {
        captured(graph, &mut scopes, &mut names);
    }
    names
}

fn subgraphs(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute
        .iter()
        .flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

/// Adds the names that a graph reads and that none of `scopes` defines. Recursion is as deep as
/// the file nests, which the decoder limits.
fn captured<'a>(
    graph: &'a pb::GraphProto,
    scopes: &mut Vec<HashSet<&'a str>>,
    names: &mut Vec<&'a str>,
) {
    let defined = (graph
        .node
        .iter()
        .flat_map(|n| &n.output)
        .map(String::as_str))
    .chain(graph.input.iter().map(pb::ValueInfoProto::name))
    .chain(graph.initializer.iter().map(pb::TensorProto::name))
    .chain((graph.sparse_initializer.iter()).filter_map(|s| s.values.as_ref().map(|v| v.name())));
    scopes.push(defined.collect());
    let read = (graph.node.iter().flat_map(|n| &n.input).map(String::as_str))
        .chain(graph.output.iter().map(pb::ValueInfoProto::name));
    names.extend(read.filter(|name| !scopes.iter().any(|s| s.contains(name))));
    for graph in graph.node.iter().flat_map(subgraphs) {
        captured(graph, scopes, names);
    }
    scopes.pop();
}
