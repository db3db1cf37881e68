//! The order of a graph's nodes: as in the file, or, where a node stands before what it reads,
//! the topological order nearest to it.

use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::build::MAX_DEPTH;
use super::partial::{GraphNames, NodeNames};
use super::{decode, node_title};
use crate::error::{FormatError, Problem, Within as _};
use crate::generated::onnx as pb;

/// How many nodes of a cycle are named.
const SHOWN: usize = 8;

/// Positions of the encoded nodes in an order in which each comes after the nodes that make what
/// it, or a subgraph of it, reads.
///
/// # Errors
/// A node that cannot be decoded, a value that two nodes make, or a cycle.
pub(super) fn order(nodes: &[Bytes]) -> Result<Vec<usize>, FormatError> {
    let mut maker: HashMap<Bytes, usize> = HashMap::with_capacity(nodes.len());
    let mut read: Vec<Vec<Bytes>> = Vec::with_capacity(nodes.len());
    for (n, node) in nodes.iter().enumerate() {
        let mut node: NodeNames = decode(node).within(|| format!("node {n}"))?;
        for name in node.output.drain(..).filter(|name| !name.is_empty()) {
            if maker.insert(name.clone(), n).is_some() {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(Problem::Duplicate(name).into());
            }
        }
        read.push(names_read(node).within(|| format!("node {n}"))?);
    }
    let sources: Vec<Vec<usize>> = read
        .into_iter()
        .map(|read| {
            let mut sources: Vec<usize> = (read.iter())
                .filter_map(|n| maker.get(n).copied())
                .collect();
            sources.sort_unstable();
            sources.dedup();
            sources
        })
        .collect();
    drop(maker);
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
        Err(Problem::Cycle(cycle(nodes, &sources, &waits)?).into())
    }
}

/// The names of nodes that wait for one another, in the order in which data would flow.
fn cycle(
    nodes: &[Bytes],
    sources: &[Vec<usize>],
    waits: &[usize],
) -> Result<Vec<String>, FormatError> {
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
    let title = |n: usize| -> Result<String, FormatError> {
        let node: pb::NodeProto = decode(&nodes[n]).within(|| format!("node {n}"))?;
        Ok(node_title(n, &node))
    };
    let shown = path.iter().take(SHOWN).map(|&n| title(n));
    let mut names = shown.collect::<Result<Vec<String>, _>>()?;
    if path.len() > SHOWN {
        names.push(format!("{} more", path.len() - SHOWN));
    }
    names.extend(names.first().cloned());
    Ok(names)
}

/// The names that a node reads, or that its subgraphs read from around them.
fn names_read(node: NodeNames) -> Result<Vec<Bytes>, FormatError> {
    let mut names = Vec::new();
    let mut scopes = Vec::new();
    for graph in node.graphs() {
        captured(graph, &mut scopes, &mut names)?;
    }
    names.extend(node.input);
    Ok(names)
}

/// Adds the names that an encoded graph reads and that none of `scopes` defines.
fn captured(
    graph: &Bytes,
    scopes: &mut Vec<HashSet<Bytes>>,
    names: &mut Vec<Bytes>,
) -> Result<(), FormatError> {
    if scopes.len() >= MAX_DEPTH {
        return Err(Problem::TooDeep(MAX_DEPTH).into());
    }
    let graph: GraphNames = decode(graph)?;
    let nodes = graph.node.iter().map(decode);
    let nodes = nodes.collect::<Result<Vec<NodeNames>, _>>()?;
    let sparse = graph.sparse_initializer.iter();
    let defined = (nodes.iter().flat_map(|n| &n.output))
        .chain(graph.input.iter().map(|i| &i.name))
        .chain(graph.initializer.iter().map(|t| &t.name))
        .chain(sparse.filter_map(|s| Some(&s.values.as_ref()?.name)));
    scopes.push(defined.cloned().collect());
    let read = (nodes.iter().flat_map(|n| &n.input)).chain(graph.output.iter().map(|o| &o.name));
    let outer = read.filter(|name| !scopes.iter().any(|s| s.contains(*name)));
    names.extend(outer.cloned());
    for graph in nodes.iter().flat_map(NodeNames::graphs) {
        captured(graph, scopes, names)?;
    }
    scopes.pop();
    Ok(())
}
