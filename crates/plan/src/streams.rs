//! Streams: which nodes run side by side, so that what takes longest is not held up.
//!
//! List scheduling by critical path, after Topcuoglu, Hariri and Wu, "Performance-effective and
//! low-complexity task scheduling for heterogeneous computing" (2002). The rank of a node is the
//! cost of the longest way from it to the end. Nodes are met in the order of the file, which stays
//! the order of the steps, and each goes to the stream on which it would end first. A stream on which
//! a predecessor ran is kept free for the successor of the highest rank, as if that ran there already.
//!
//! What a node costs is not known before it runs; it is taken to be the bytes that it reads and
//! writes, and a little more for its start.

use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, StreamId, SubgraphId};

use crate::homes::homes;
use tenure_graph::plan::PlanOptions;

/// What it costs to start a node, in bytes that could have been moved meanwhile.
const START: u64 = 4096;

/// What it costs to wait for an event of another stream, likewise.
const EVENT: u64 = 4096;

/// Puts the nodes of a graph on at most `count` streams, numbered from 0. A graph that is on several
/// streams already keeps them.
///
/// The order of the nodes stays what it was: the waits that hold the streams together follow from
/// the edges, see [`crate::memory()`].
///
/// ```
/// use tenure_graph::{effects::OpTable, plan::PlanOptions, text};
///
/// let graph = text::parse("model m ge
/// graph ^g {
///   %x: float32[64] = Data()
///   %a: float32[64] = Neg(%x)
///   %b: float32[64] = Neg(%x)
///   %c: float32[64] = Add(%a, %b)
///   NetOutput(%c) @out
/// }
/// ").unwrap();
/// let table = OpTable::builtin(graph.dialect);
/// let graph = tenure_plan::streams::spread(graph, &table, &PlanOptions::default(), 2);
/// let streams: Vec<_> = graph.nodes.values().filter_map(|n| n.stream).collect();
/// assert_eq!(streams.iter().max().unwrap().as_u32(), 1);
/// ```
#[must_use]
pub fn spread(mut graph: Graph, table: &OpTable, options: &PlanOptions, count: u32) -> Graph {
    if count < 2 || used(&graph) > 1 {
        return graph;
    }
    let homes = homes(&graph, table, options);
    let runs = |node: NodeId| {
        let class = table.class(&graph, node);
        let is_data = matches!(
            class,
            OpClass::Input | OpClass::Output | OpClass::Constant | OpClass::Variable
        );
        !is_data && !homes.folded.contains(node)
    };
    let runs: SecondaryMap<NodeId, bool> = {
        let mut all = SecondaryMap::with_capacity(graph.nodes.len());
        graph.nodes.keys().for_each(|n| all[n] = runs(n));
        all
    };
    let mut spread = Spread {
        graph: &graph,
        runs,
        cost: SecondaryMap::with_capacity(graph.nodes.len()),
        stream: SecondaryMap::with_capacity(graph.nodes.len()),
        count: count as usize,
    };
    // Bodies stand behind the subgraphs around them, and cost what is in them.
    let mut subgraphs = vec![graph.root];
    let mut next = 0;
    while let Some(&subgraph) = subgraphs.get(next) {
        next += 1;
        let nodes = graph.subgraphs[subgraph].nodes.iter();
        let bodies = nodes.flat_map(|&n| graph.nodes[n].bodies.iter());
        subgraphs.extend(bodies.map(|b| b.graph));
    }
    for &subgraph in subgraphs.iter().rev() {
        spread.costs(subgraph);
        spread.subgraph(subgraph);
    }
    let stream = spread.stream;
    for (id, node) in &mut graph.nodes {
        if let Some(stream) = stream[id] {
            node.stream = Some(StreamId::from_u32(stream));
        }
    }
    graph
}

/// How many streams the nodes of a graph are on.
#[must_use]
pub fn used(graph: &Graph) -> usize {
    let mut all: Vec<StreamId> = graph.nodes.values().filter_map(|n| n.stream).collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

struct Spread<'a> {
    graph: &'a Graph,
    /// Nodes that have steps.
    runs: SecondaryMap<NodeId, bool>,
    cost: SecondaryMap<NodeId, u64>,
    stream: SecondaryMap<NodeId, Option<u32>>,
    count: usize,
}

impl Spread<'_> {
    /// What the nodes of a subgraph cost, whose bodies have been looked at.
    fn costs(&mut self, subgraph: SubgraphId) {
        for &node in &self.graph.subgraphs[subgraph].nodes {
            if !self.runs[node] {
                continue;
            }
            let n = &self.graph.nodes[node];
            let values = n.inputs.iter().chain(&n.outputs).flatten();
            let bytes = values.map(|&v| self.graph.bytes(v).unwrap_or(0));
            let inside = n
                .bodies
                .iter()
                .flat_map(|b| &self.graph.subgraphs[b.graph].nodes);
            let inside = inside.map(|&n| self.cost[n]);
            let sum = bytes.chain(inside).fold(START, u64::saturating_add);
            self.cost[node] = sum;
        }
    }

    /// The nodes of the same subgraph that a node waits for.
    fn before(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let n = &self.graph.nodes[node];
        let read = n.inputs.iter().flatten();
        let producers = read.map(|&v| self.graph.values[v].producer);
        let all = producers.chain(n.control.iter().copied());
        let home = n.subgraph;
        all.filter(move |&p| self.runs[p] && self.graph.nodes[p].subgraph == home)
    }

    fn subgraph(&mut self, subgraph: SubgraphId) {
        let nodes: Vec<NodeId> = (self.graph.subgraphs[subgraph].nodes.iter().copied())
            .filter(|&n| self.runs[n])
            .collect();
        let mut rank: SecondaryMap<NodeId, u64> = SecondaryMap::new();
        // The successor of the highest rank.
        let mut heir: SecondaryMap<NodeId, Option<NodeId>> = SecondaryMap::new();
        for &node in nodes.iter().rev() {
            rank[node] = rank[node].saturating_add(self.cost[node]);
            for before in self.before(node) {
                if heir[before].is_none() || rank[node] >= rank[before] {
                    rank[before] = rank[node];
                    heir[before] = Some(node);
                }
            }
        }
        let mut free: Vec<u64> = vec![0; self.count];
        // For whom a stream is kept, and for how long that will take.
        let mut kept: Vec<Option<(NodeId, u64)>> = vec![None; self.count];
        let mut end: SecondaryMap<NodeId, u64> = SecondaryMap::new();
        for &node in &nodes {
            let mut best: Option<(u64, u64, usize)> = None;
            for stream in 0..self.count {
                let mut ready = free[stream];
                if let Some((_, cost)) = kept[stream].filter(|&(heir, _)| heir != node) {
                    ready = ready.saturating_add(cost);
                }
                let mut waits = 0;
                for before in self.before(node) {
                    let is_here = self.stream[before] == Some(index(stream));
                    let wait = if is_here { 0 } else { EVENT };
                    waits += wait;
                    ready = ready.max(end[before].saturating_add(wait));
                }
                let found = (ready.saturating_add(self.cost[node]), waits, stream);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
            let Some((ends, _, stream)) = best else {
                return;
            };
            self.stream[node] = Some(index(stream));
            end[node] = ends;
            free[stream] = ends;
            kept[stream] = heir[node].map(|heir| (heir, self.cost[heir]));
            for (other, kept) in kept.iter_mut().enumerate() {
                if other != stream && kept.is_some_and(|(heir, _)| heir == node) {
                    *kept = None;
                }
            }
        }
    }
}

fn index(stream: usize) -> u32 {
    u32::try_from(stream).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::text;

    /// The streams of all nodes that run, in order.
    fn streams(lines: &str, count: u32) -> Vec<u32> {
        let text = format!("model m ge\ngraph ^g {{\n{lines}\n  NetOutput(%z) @results\n}}\n");
        let graph = text::parse(&text).unwrap();
        let table = OpTable::builtin(graph.dialect);
        let graph = spread(graph, &table, &PlanOptions::default(), count);
        let nodes = graph.nodes.values().filter(|n| &*n.op != "Data");
        nodes.filter_map(|n| Some(n.stream?.as_u32())).collect()
    }

    #[test]
    fn a_chain_stays_on_one_stream() {
        let lines = "  %x: float32[4096] = Data()\n  %a: float32[4096] = Neg(%x)\n  \
                     %b: float32[4096] = Neg(%a)\n  %z: float32[4096] = Neg(%b)";
        assert_eq!(streams(lines, 4), [0, 0, 0]);
    }

    #[test]
    fn the_longer_branch_goes_on_where_it_began() {
        let lines = "  %x: float32[4096] = Data()\n  %a: float32[4096] = Neg(%x)\n  \
                     %b: float32[4096] = Neg(%a)\n  %c: float32[4096] = Neg(%a)\n  \
                     %d: float32[4096] = Neg(%c)\n  %z: float32[4096] = Add(%b, %d)";
        assert_eq!(streams(lines, 2), [0, 1, 0, 0, 0]);
        assert_eq!(streams(lines, 1), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn given_streams_stay() {
        let lines = "  %a: float32[4] = Neg() stream 7\n  %z: float32[4] = Neg(%a) stream 3";
        assert_eq!(streams(lines, 2), [7, 3]);
    }
}
