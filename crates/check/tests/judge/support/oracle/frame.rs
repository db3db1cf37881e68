//! What stays the same in all runs of a plan: where everything lies, and what its nodes do.

use std::collections::BTreeMap;
use tenure_check::Memory;
use tenure_graph::effects::{Effects, OpClass, OpTable};
use tenure_graph::plan::{Item, Phase, Place, Plan};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) memory: Memory,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) storage: StorageId,
}

impl Spot {
    pub(super) fn meets(&self, other: &Spot) -> bool {
        self.memory == other.memory && self.start < other.end && other.start < self.end
    }

    pub(super) fn starts_with(&self, other: &Spot) -> bool {
        self.memory == other.memory && self.start == other.start
    }
}

/// What stays the same in all runs.
pub(super) struct Frame<'a> {
    pub(super) graph: &'a Graph,
    pub(super) plan: &'a Plan,
    /// Whether memory is given back wherever a life says so.
    pub(super) relies_on_lives: bool,
    /// The storages that are held at each step.
    pub(super) held: Vec<Vec<StorageId>>,
    pub(super) spots: BTreeMap<Item, Spot>,
    pub(super) edges: BTreeMap<Memory, Vec<u64>>,
    pub(super) effects: Vec<Effects>,
    pub(super) copies: BTreeMap<(NodeId, u32), u32>,
    /// Steps of each owner: entry and results of each body, and the end.
    pub(super) bodies: BTreeMap<NodeId, (Vec<(u32, u32)>, u32)>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        table: &'a OpTable,
        plan: &'a Plan,
        relies_on_lives: bool,
    ) -> Self {
        let mut held = vec![Vec::new(); plan.steps.len()];
        for (id, storage) in &plan.storages {
            for span in &storage.life {
                for step in span.first..=span.last {
                    held[step as usize].push(id);
                }
            }
        }
        let mut spots = BTreeMap::new();
        let mut edges: BTreeMap<Memory, Vec<u64>> = BTreeMap::new();
        for (storage, s) in &plan.storages {
            let (memory, base) = match s.place {
                Place::Arena { arena, offset } => (Memory::Arena(arena), offset),
                Place::Caller => (Memory::Caller(storage), 0),
            };
            for m in &s.members {
                let start = base + m.offset;
                let end = start + super::super::planner::bytes(graph, table, &plan.copies, m.item);
                edges.entry(memory).or_default().extend([start, end]);
                let spot = Spot {
                    memory,
                    start,
                    end,
                    storage,
                };
                if start < end {
                    spots.insert(m.item, spot);
                }
            }
        }
        for list in edges.values_mut() {
            list.sort_unstable();
            list.dedup();
        }
        let mut bodies: BTreeMap<NodeId, (Vec<(u32, u32)>, u32)> = BTreeMap::new();
        for (number, step) in (0u32..).zip(&plan.steps) {
            let n = &graph.nodes[step.node];
            match step.phase {
                Phase::Enter(_) => bodies.entry(step.node).or_default().0.push((number, 0)),
                Phase::End => bodies.entry(step.node).or_default().1 = number,
                Phase::Run if graph.subgraphs[n.subgraph].output == Some(step.node) => {
                    if let Some(owner) = graph.subgraphs[n.subgraph].owner {
                        bodies.entry(owner).or_default().0.last_mut().unwrap().1 = number;
                    }
                }
                Phase::Run | Phase::Begin => {}
            }
        }
        Frame {
            graph,
            plan,
            relies_on_lives,
            held,
            spots,
            edges,
            effects: graph
                .nodes
                .keys()
                .map(|n| table.effects(graph, n))
                .collect(),
            copies: (0u32..)
                .zip(&plan.copies)
                .map(|(k, c)| ((c.reader, c.input), k))
                .collect(),
            bodies,
        }
    }

    pub(super) fn effects(&self, node: NodeId) -> &Effects {
        &self.effects[node.as_u32() as usize]
    }

    pub(super) fn class(&self, node: NodeId) -> OpClass {
        self.effects(node).class
    }

    /// What a value is a view of in the end.
    pub(super) fn origin(&self, mut value: ValueId) -> ValueId {
        loop {
            let v = &self.graph.values[value];
            let source = self.effects(v.producer).view_of(v.output);
            match source.and_then(|k| self.graph.nodes[v.producer].input(k as usize)) {
                Some(from) => value = from,
                None => return value,
            }
        }
    }

    /// First bytes of the stretches from byte `from` of a place on.
    pub(super) fn edges(&self, spot: &Spot, from: u64) -> &[u64] {
        let all = &self.edges[&spot.memory];
        let at = |byte: u64| all.partition_point(|&e| e < byte);
        &all[at(spot.start + from).min(at(spot.end))..at(spot.end)]
    }

    pub(super) fn source(&self, node: NodeId, slot: u32, value: ValueId) -> Item {
        let copy = self.copies.get(&(node, slot));
        copy.map_or(Item::Value(value), |&k| Item::Copy(k))
    }
}
