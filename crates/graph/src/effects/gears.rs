//! Gears: parts of a program that are made for one size of a batch each, of which one alone runs.
//!
//! Nodes of one gear have one label. What has none runs with every gear. Since the others' nodes do
//! not run, nothing of theirs is ever in memory; but collectives, which other devices reach into,
//! must find their tensors at the same place whichever gear runs.

use rustc_hash::FxHashMap;

use super::{OpTable, Trait};
use crate::{Graph, NodeId, ValueId};
use cranelift_entity::SecondaryMap;

/// The attribute that gives a node's gear.
pub(crate) const LABEL: &str = "_batch_label";

/// The gears of a graph.
#[derive(Clone, Debug)]
pub struct Gears {
    names: Vec<String>,
    of: SecondaryMap<NodeId, Option<u32>>,
}

impl Gears {
    /// The gears of a graph; `None` if it has fewer than two. What is inside a node of a gear is of
    /// that gear.
    #[must_use]
    pub fn new(graph: &Graph) -> Option<Self> {
        let label = |node: NodeId| graph.nodes[node].attrs.str(LABEL);
        let mut names: Vec<String> = (graph.nodes.keys())
            .filter_map(|n| Some(label(n)?.to_owned()))
            .filter(|name| !name.is_empty())
            .collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < 2 {
            return None;
        }
        let mut of: SecondaryMap<NodeId, Option<u32>> = SecondaryMap::new();
        let mut pending = vec![(graph.root, None)];
        while let Some((subgraph, around)) = pending.pop() {
            for &node in &graph.subgraphs[subgraph].nodes {
                let own = label(node).and_then(|l| names.binary_search_by(|n| (**n).cmp(l)).ok());
                let own = own.and_then(|gear| u32::try_from(gear).ok());
                of[node] = around.or(own);
                let bodies = graph.nodes[node].bodies.iter();
                pending.extend(bodies.map(|b| (b.graph, of[node])));
            }
        }
        Some(Gears { names, of })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    /// The label of a gear.
    #[must_use]
    pub fn name(&self, gear: u32) -> &str {
        self.names.get(gear as usize).map_or("", String::as_str)
    }

    /// The gear of a node; `None` for what runs with every gear.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<u32> {
        self.of[node]
    }

    /// Sets of values that must lie at one place: what collectives read and write, by kind of
    /// operator and by how many of these stand before them in their gear.
    #[must_use]
    pub fn tied(&self, graph: &Graph, table: &OpTable) -> Vec<Vec<ValueId>> {
        let mut met: FxHashMap<(u32, &str), usize> = FxHashMap::default();
        let mut places: FxHashMap<(&str, usize, bool, usize), usize> = FxHashMap::default();
        let mut tied: Vec<Vec<ValueId>> = Vec::new();
        let nodes = graph.subgraphs.values().flat_map(|s| &s.nodes);
        for &id in nodes {
            let Some(gear) = self.of[id] else { continue };
            if !table.traits(graph, id).has(Trait::Collective) {
                continue;
            }
            let node = &graph.nodes[id];
            let number = met.entry((gear, &node.op)).or_default();
            for (is_input, list) in [(true, &node.inputs[..]), (false, &node.outputs[..])] {
                for (slot, value) in list.iter().enumerate() {
                    let Some(value) = *value else { continue };
                    let key = (&*node.op, *number, is_input, slot);
                    let place = *places.entry(key).or_insert(tied.len());
                    if place == tied.len() {
                        tied.push(Vec::new());
                    }
                    tied[place].push(value);
                }
            }
            *number += 1;
        }
        tied.retain(|values| values.len() > 1);
        tied
    }
}
