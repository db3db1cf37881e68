//! Pairs of nodes in no order, for many memories at once.
//!
//! Reachability from 64 nodes is found by one walk over the nodes of their subgraph, a bit each, so
//! that a program takes time in proportion to its edges for every 64 writers, and not for every
//! pair.

use rustc_hash::FxHashMap;
use tenure_graph::effects::Gears;
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, SubgraphId};

use super::memories::Memory;
use crate::work::Work;

/// Two nodes of one subgraph that use one memory, at least one of them writing, in no order; the
/// first is a writer and, where both are, the earlier one in the order of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) memory: usize,
    pub(super) writer: NodeId,
    pub(super) other: NodeId,
    pub(super) both_write: bool,
}

/// Pairs of all memories, and how many more there are.
pub(super) struct Unordered {
    pub(super) pairs: Vec<Pair>,
    pub(super) left_out: u64,
}

/// A node of some subgraph that uses a memory, itself or in what it runs.
#[derive(Clone, Copy)]
struct User {
    memory: usize,
    node: NodeId,
    writes: bool,
    /// What it uses is a tensor around the memory.
    around: bool,
}

/// How many nodes one walk serves.
const BATCH: usize = u64::BITS as usize;

/// All pairs in no order; at most `most` of one memory are given.
pub(super) fn unordered(
    graph: &Graph,
    work: &Work<'_>,
    memories: &[Memory],
    most: u64,
) -> Unordered {
    let captures = captures(graph);
    let gears = Gears::new(graph);
    let gear = |user: &User| gears.as_ref().and_then(|gears| gears.of(user.node));
    // Of several gears one alone runs.
    let never_both = |a: &User, b: &User| gear(a).zip(gear(b)).is_some_and(|(a, b)| a != b);
    let mut found = Unordered {
        pairs: Vec::new(),
        left_out: 0,
    };
    let mut counts: Vec<u64> = vec![0; memories.len()];
    let mut walk = Walk {
        graph,
        work,
        captures: &captures,
        before: SecondaryMap::new(),
        after: SecondaryMap::new(),
    };
    for (subgraph, users) in levels(graph, work, memories) {
        let writers: Vec<User> = users.iter().filter(|u| u.writes).copied().collect();
        for batch in writers.chunks(BATCH) {
            let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
                continue;
            };
            // Users are sorted by memory, so those that a batch is about stand together.
            let from = users.partition_point(|u| u.memory < first.memory);
            let to = users.partition_point(|u| u.memory <= last.memory);
            walk.run(subgraph, batch);
            for user in &users[from..to] {
                let mut open = walk.in_no_order(batch, *user);
                if user.around {
                    let writers = batch.iter().enumerate();
                    let around = writers.filter(|(_, writer)| writer.around);
                    open &= !around.fold(0, |bits, (bit, _)| bits | 1 << bit);
                }
                if gears.is_some() {
                    let writers = batch.iter().enumerate();
                    let never = writers.filter(|(_, writer)| never_both(writer, user));
                    open &= !never.fold(0, |bits, (bit, _)| bits | 1 << bit);
                }
                while open != 0 {
                    let count = &mut counts[user.memory];
                    if *count >= most {
                        found.left_out += u64::from(open.count_ones());
                        break;
                    }
                    *count += 1;
                    let writer = batch[open.trailing_zeros() as usize];
                    open &= open - 1;
                    found.pairs.push(Pair {
                        memory: user.memory,
                        writer: writer.node,
                        other: user.node,
                        both_write: user.writes,
                    });
                }
            }
        }
    }
    found
}

/// The users of every memory that is written and used by several, by the subgraphs in which they,
/// or what runs them, stand side by side; sorted by memory and place, each node once.
fn levels(graph: &Graph, work: &Work<'_>, memories: &[Memory]) -> Vec<(SubgraphId, Vec<User>)> {
    let mut levels: FxHashMap<SubgraphId, Vec<User>> = FxHashMap::default();
    for (memory, found) in memories.iter().enumerate() {
        if found.uses.len() < 2 || !found.uses.iter().any(|u| u.writes) {
            continue;
        }
        for access in found.uses.iter().filter(|access| !access.last) {
            let mut node = Some(access.node);
            while let Some(here) = node {
                let subgraph = graph.nodes[here].subgraph;
                levels.entry(subgraph).or_default().push(User {
                    memory,
                    node: here,
                    writes: access.writes,
                    around: access.around,
                });
                node = graph.subgraphs[subgraph].owner;
            }
        }
    }
    let mut levels: Vec<(SubgraphId, Vec<User>)> = levels.into_iter().collect();
    levels.sort_by_key(|&(subgraph, _)| subgraph);
    for (_, users) in &mut levels {
        users.sort_by_key(|u| (u.memory, work.position(u.node), u.node, !u.writes, u.around));
        users.dedup_by_key(|u| (u.memory, u.node));
    }
    levels
}

/// For nodes with subgraphs, the nodes beside them whose values are read inside by name.
fn captures(graph: &Graph) -> FxHashMap<NodeId, Vec<NodeId>> {
    let mut captures: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    for (id, node) in &graph.nodes {
        for &value in node.inputs.iter().flatten() {
            let around = graph.around(id, graph.home(value));
            if let Some(owner) = around.filter(|&owner| owner != id) {
                let producer = graph.values[value].producer;
                captures.entry(owner).or_default().push(producer);
            }
        }
    }
    captures
}

/// What certainly comes before and after the nodes of a batch, a bit each.
struct Walk<'a> {
    graph: &'a Graph,
    work: &'a Work<'a>,
    captures: &'a FxHashMap<NodeId, Vec<NodeId>>,
    /// The nodes of the batch that have ended when a node starts.
    before: SecondaryMap<NodeId, u64>,
    /// The nodes of the batch that start when a node has ended.
    after: SecondaryMap<NodeId, u64>,
}

impl Walk<'_> {
    fn run(&mut self, subgraph: SubgraphId, batch: &[User]) {
        let nodes = &self.graph.subgraphs[subgraph].nodes;
        for &node in nodes {
            self.before[node] = 0;
            self.after[node] = 0;
        }
        let mut own: FxHashMap<NodeId, u64> = FxHashMap::default();
        for (bit, user) in batch.iter().enumerate() {
            *own.entry(user.node).or_default() |= 1 << bit;
        }
        let own = |n: NodeId| own.get(&n).copied().unwrap_or(0);
        // The list of a subgraph is an order of execution.
        for &node in nodes {
            let mut bits = 0;
            for n in self.needs(node) {
                bits |= self.before[n] | own(n);
            }
            self.before[node] = bits;
        }
        for &node in nodes.iter().rev() {
            let bits = self.after[node] | own(node);
            if bits != 0 {
                let needs: Vec<NodeId> = self.needs(node).collect();
                for n in needs {
                    self.after[n] |= bits;
                }
            }
        }
    }

    /// The nodes beside a node that have ended when it starts.
    fn needs(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let subgraph = self.graph.nodes[node].subgraph;
        let captured = self.captures.get(&node).into_iter().flatten().copied();
        let all = self.work.needs(node).chain(captured);
        all.filter(move |&n| self.graph.nodes[n].subgraph == subgraph)
    }

    /// The nodes of a batch that use the same memory as a node and are in no order with it. Of two
    /// writers the later one is told of the earlier.
    fn in_no_order(&self, batch: &[User], user: User) -> u64 {
        let start = batch.partition_point(|w| w.memory < user.memory);
        let place = self.work.position(user.node);
        let end = batch.partition_point(|w| {
            let at = (w.memory, self.work.position(w.node));
            at < (user.memory, if user.writes { place } else { u32::MAX })
        });
        let ones = |n: usize| if n >= BATCH { u64::MAX } else { (1 << n) - 1 };
        let asked = ones(end) & !ones(start);
        asked & !(self.before[user.node] | self.after[user.node])
    }
}
