//! What the plan and the graph say of two things that must not lie as they do: who writes them, who
//! reads them, and when.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;
use tenure_graph::plan::{Item, Life, Phase, Place, Plan, Storage};
use tenure_graph::{Graph, NodeId, StorageId};

use super::{Search, Set};

/// Whether a storage holds what one of these nodes reads, writes or works in.
pub(super) fn touches(search: &Search<'_>, nodes: &[NodeId]) -> impl Fn(&Storage) -> bool {
    let copies = search.plan.plan().copies.clone();
    let nodes: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let mut values = FxHashSet::default();
    for &node in &nodes {
        let node = &search.graph.nodes[node];
        values.extend(node.inputs.iter().chain(&node.outputs).flatten().copied());
    }
    let is_theirs = move |item: Item| match item {
        Item::Value(v) => values.contains(&v),
        Item::Workspace(n, _) => nodes.contains(&n),
        Item::Copy(k) => copies
            .get(k as usize)
            .is_some_and(|c| nodes.contains(&c.reader)),
    };
    move |storage| storage.members.iter().any(|m| is_theirs(m.item))
}

/// Names of the nodes that make what lies in some storages, as `--no-reuse` takes them.
pub(super) fn names(graph: &Graph, plan: &Plan, set: &Set) -> Vec<String> {
    let members = plan.storages.iter().filter(|(id, _)| set.contains(id));
    let makers = members.flat_map(|(_, s)| &s.members);
    let names: BTreeSet<String> = makers
        .filter_map(|m| m.item.maker(graph, &plan.copies))
        .map(|n| graph.nodes[n].name.clone())
        .filter(|name| !name.is_empty())
        .collect();
    names.into_iter().collect()
}

/// Names of nodes, as `--no-reuse` takes them.
pub(super) fn names_of(graph: &Graph, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|&n| graph.nodes[n].name.clone()).collect()
}

/// The steps of a node.
fn steps(plan: &Plan, node: NodeId) -> impl Iterator<Item = u32> {
    let steps = (0u32..).zip(&plan.steps);
    steps.filter(move |(_, s)| s.node == node).map(|(at, _)| at)
}

fn covers(life: &Life, step: u32) -> bool {
    life.iter().any(|s| s.first <= step && step <= s.last)
}

/// Who writes in a storage, and when; names of what is there already are not written.
fn writes(search: &Search<'_>, plan: &Plan, storage: &Storage) -> Vec<(u32, NodeId)> {
    let mut writes = Vec::new();
    for member in &storage.members {
        let Some(node) = member.item.maker(search.graph, &plan.copies) else {
            continue;
        };
        if let Item::Value(value) = member.item {
            let effects = search.table.effects(search.graph, node);
            let outputs = &search.graph.nodes[node].outputs;
            let slot = outputs.iter().position(|&v| v == Some(value));
            let slot = slot.and_then(|s| u32::try_from(s).ok());
            if slot.is_some_and(|s| effects.view_of(s).is_some()) {
                continue;
            }
        }
        writes.extend(steps(plan, node).map(|at| (at, node)));
    }
    writes.sort_unstable();
    writes.dedup();
    writes
}

/// The nodes of some writes, each once, the last one first.
fn last_first(writes: Vec<(u32, NodeId)>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    for (_, node) in writes.into_iter().rev() {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

/// Two things that must not lie as they do.
pub(super) struct Pair {
    items: [Item; 2],
    shares_bytes: bool,
    /// What lies in the memory first.
    earlier: Vec<Item>,
    /// Who writes the earlier one, the last first.
    earlier_writers: Vec<NodeId>,
    writers: Vec<NodeId>,
}

impl Pair {
    /// Two storages.
    pub(super) fn new(search: &Search<'_>, plan: &Plan, a: StorageId, b: StorageId) -> Self {
        let first = |id: StorageId| plan.storages[id].life.first().map_or(0, |s| s.first);
        let (a, b) = if first(a) <= first(b) { (a, b) } else { (b, a) };
        let [one, other] = [a, b].map(|id| &plan.storages[id]);
        let offset = |s: &Storage| match s.place {
            Place::Arena { offset, .. } => offset,
            Place::Caller => 0,
        };
        let end = |s: &Storage| offset(s).saturating_add(s.size);
        let item = |s: &Storage| s.members.first().map_or(Item::Copy(u32::MAX), |m| m.item);
        // Who writes in one while the other is held and may have been written already. A write
        // past the end is likelier than one before the start.
        let mut beyond: Vec<(bool, u32, NodeId)> = Vec::new();
        for (mine, theirs) in [(one, other), (other, one)] {
            let begins = theirs.life.first().map_or(0, |s| s.first);
            for (step, node) in writes(search, plan, mine) {
                if covers(&theirs.life, step) && begins <= step {
                    beyond.push((offset(mine) > offset(theirs), step, node));
                }
            }
        }
        beyond.sort_unstable();
        let mut writers: Vec<NodeId> = Vec::new();
        for (_, _, node) in beyond {
            if !writers.contains(&node) {
                writers.push(node);
            }
        }
        Pair {
            items: [item(one), item(other)],
            shares_bytes: offset(one) < end(other) && offset(other) < end(one),
            earlier: one.members.iter().map(|m| m.item).collect(),
            earlier_writers: last_first(writes(search, plan, one)),
            writers,
        }
    }

    /// The output of a node, and what is written over it in its own storage.
    pub(super) fn within(search: &Search<'_>, plan: &Plan, node: NodeId) -> Option<Self> {
        let makes = |item: Item| item.maker(search.graph, &plan.copies) == Some(node);
        let mut storages = plan.storages.values();
        let storage =
            storages.find(|s| s.members.len() > 1 && s.members.iter().any(|m| makes(m.item)))?;
        let at = storage.members.iter().position(|m| makes(m.item))?;
        let next = storage.members.get(at + 1).or(storage.members.first())?;
        Some(Pair {
            items: [storage.members[at].item, next.item],
            shares_bytes: true,
            earlier: storage.members.iter().map(|m| m.item).collect(),
            earlier_writers: vec![node],
            writers: Vec::new(),
        })
    }

    pub(super) fn shares_bytes(&self) -> bool {
        self.shares_bytes
    }

    pub(super) fn items(&self) -> [Item; 2] {
        self.items
    }

    pub(super) fn earlier(&self) -> &[Item] {
        &self.earlier
    }

    /// Who writes what lies there first, the last one first.
    pub(super) fn earlier_writers(&self) -> &[NodeId] {
        &self.earlier_writers
    }

    /// Who may write beyond one of the two, the likeliest first.
    pub(super) fn writers(&self) -> Vec<NodeId> {
        self.writers.clone()
    }
}

/// The nodes that read any of these, the last one first, each with the inputs that do. Nodes that
/// read copies do not read them.
pub(super) fn readers(search: &Search<'_>, items: &[Item]) -> Vec<(NodeId, Vec<u32>)> {
    let plan = search.plan.plan();
    let copied: FxHashSet<(NodeId, u32)> =
        plan.copies.iter().map(|c| (c.reader, c.input)).collect();
    let mut readers: Vec<(NodeId, Vec<u32>)> = Vec::new();
    for step in plan.steps.iter().rev() {
        if !matches!(step.phase, Phase::Run | Phase::Begin) {
            continue;
        }
        let slots = (0u32..).zip(&search.graph.nodes[step.node].inputs);
        let slots: Vec<u32> = slots
            .filter(|&(slot, value)| {
                value.is_some_and(|v| items.contains(&Item::Value(v)))
                    && !copied.contains(&(step.node, slot))
            })
            .map(|(slot, _)| slot)
            .collect();
        if !slots.is_empty() {
            readers.push((step.node, slots));
        }
    }
    readers
}

/// The nodes whose outputs have memory in common with others within a storage, in the plan's order.
pub(super) fn sharing_within(search: &Search<'_>) -> Vec<NodeId> {
    let plan = search.plan.plan();
    let mut nodes: FxHashSet<NodeId> = FxHashSet::default();
    for storage in plan.storages.values().filter(|s| s.members.len() > 1) {
        let makers = storage.members.iter();
        nodes.extend(makers.filter_map(|m| m.item.maker(search.graph, &plan.copies)));
    }
    let mut order = Vec::new();
    for step in &plan.steps {
        if nodes.remove(&step.node) {
            order.push(step.node);
        }
    }
    order
}

/// Whether a node writes one of its outputs among these.
pub(super) fn writes_among(graph: &Graph, node: NodeId, items: &[Item]) -> bool {
    let mut outputs = graph.nodes[node].outputs.iter().flatten();
    outputs.any(|&v| items.contains(&Item::Value(v)))
}
