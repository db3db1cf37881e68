//! Addresses that nodes keep: what such a node reads or makes is not in the caller's memory, which
//! may be another in each run.

use tenure_graph::effects::Trait;
use tenure_graph::effects::demands::keeps_addresses;
use tenure_graph::entity::EntityRef;
use tenure_graph::plan::{Item, Phase, Placement};
use tenure_graph::{NodeId, ValueId};

use super::Join;
use crate::homes::Home;

pub(super) const REASON: &str = "a node keeps the address that it was loaded with";

impl Join<'_> {
    /// Nodes that keep their addresses, where there is memory of the caller's.
    pub(super) fn fixed(&self) -> Vec<NodeId> {
        if !self.options.has_callers_memory() {
            return Vec::new();
        }
        let steps = self.schedule.steps.iter();
        let nodes = steps.filter(|s| s.phase == Phase::Run).map(|s| s.node);
        nodes
            .filter(|&n| keeps_addresses(self.graph, self.table, n))
            .collect()
    }

    /// Keeps what these nodes read and make out of the caller's outputs.
    pub(super) fn pin(&mut self, fixed: &[NodeId]) {
        for &node in fixed {
            let node = &self.graph.nodes[node];
            for value in node.inputs.iter().chain(&node.outputs).copied().flatten() {
                self.items[value.index()].pinned = true;
            }
        }
    }

    /// Gives these nodes copies of what lies in the caller's inputs, and of the caller's state where
    /// they do not write it: a copy would keep that from the caller.
    pub(super) fn fixed_addresses(&mut self, fixed: &[NodeId]) {
        for &node in fixed {
            let refs = self.table.effects(self.graph, node).refs;
            for (i, value) in (0u32..).zip(&self.graph.nodes[node].inputs) {
                let Some(value) = *value else { continue };
                let is_copied = self.copy_at.contains_key(&(node, i));
                let is_written = refs.iter().any(|alias| alias.input == i);
                let is_callers =
                    self.is_callers_input(value) || !is_written && self.is_callers_state(value);
                if !is_copied && is_callers && self.graph.bytes(value).is_some() {
                    self.push_copy(value, node, i, REASON);
                }
            }
        }
    }

    /// Whether a value is an input in the caller's memory, under whatever name.
    pub(super) fn is_callers_input(&self, value: ValueId) -> bool {
        let group = self.group(value);
        matches!(self.items[group as usize].item, Item::Value(v) if self.homes.of[v] == Home::CallerInput)
    }

    /// Whether a value is state that the caller hands in as it does inputs, under whatever name.
    fn is_callers_state(&self, value: ValueId) -> bool {
        let Item::Value(state) = self.items[self.group(value) as usize].item else {
            return false;
        };
        let producer = self.graph.values[state].producer;
        self.options.inputs == Placement::User
            && self.homes.of[state] == Home::Variable
            && self.graph.nodes[producer].subgraph == self.graph.root
            && (self.table.traits(self.graph, producer)).has(Trait::CallerMemory)
    }
}
