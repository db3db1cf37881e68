//! Merges: all inputs of a node that hands on whichever of them has come are one memory, and so is what
//! it hands on. Of what makes those inputs one alone runs, so they may all be there at any time.

use tenure_graph::plan::Phase;
use tenure_graph::{NodeId, ValueId};

use super::merge::Sizes;
use super::{Index, Join};
use crate::PlanError;

impl Join<'_> {
    /// Joins what merges hand on.
    ///
    /// # Errors
    /// [`PlanError::Merge`] where that cannot be: nobody can copy what may not have come.
    pub(super) fn merges(&mut self) -> Result<(), PlanError> {
        if self.merges.is_empty() {
            return Ok(());
        }
        let schedule = self.schedule;
        for step in &schedule.steps {
            if step.phase == Phase::Run && self.table.effects(self.graph, step.node).merges {
                self.merge(step.node)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, node: NodeId) -> Result<(), PlanError> {
        let graph = self.graph;
        let n = &graph.nodes[node];
        let has_bytes = |v: &ValueId| graph.bytes(*v) != Some(0);
        let inputs = n.inputs.iter().copied().flatten();
        let refuse = |value: ValueId| PlanError::Merge {
            node: graph.node_label(node),
            value: graph.value_label(value),
        };
        if n.output(0).as_ref().is_some_and(has_bytes)
            && let Some(nothing) = inputs.clone().find(|v| !has_bytes(v))
        {
            return Err(refuse(nothing));
        }
        let mut all: Vec<ValueId> = n.output(0).into_iter().chain(inputs).collect();
        all.retain(has_bytes);
        let Some((&first, rest)) = all.split_first() else {
            return Ok(());
        };
        let base = self.group(first);
        for &value in &all {
            let group = self.group(value);
            let (root, _) = self.find(group);
            // Many may be there at once, so that their ends do not ascend.
            self.items[root as usize].shifted = true;
            // What is handed on has the bytes of what has come.
            self.pieces.insert((group, base), 0);
        }
        for &value in rest {
            let group = self.group(value);
            if !self.join_at(base, group, Sizes::Any, 0) {
                return Err(refuse(value));
            }
        }
        Ok(())
    }

    /// Whether a value is an input of a merge, or what a merge hands on.
    pub(super) fn is_merged(&self, value: ValueId) -> bool {
        let producer = self.graph.values[value].producer;
        self.merges.has(value)
            || !self.merges.is_empty() && self.table.effects(self.graph, producer).merges
    }

    /// Whether at most one of two groups is ever there.
    pub(super) fn are_alternatives(&self, a: Index, b: Index) -> bool {
        let alternative = |index: Index| {
            let item = self.items[index as usize].item;
            self.merges.alternative(self.graph, &self.copies, item)
        };
        let Some((x, y)) = alternative(a).zip(alternative(b)) else {
            return false;
        };
        self.merges.are_exclusive(x, y) && !self.needs(x, b) && !self.needs(y, a)
    }

    /// Whether the node that makes a value reads a group.
    fn needs(&self, value: ValueId, group: Index) -> bool {
        let producer = self.graph.values[value].producer;
        let inputs = (0u32..).take(self.graph.nodes[producer].inputs.len());
        let mut held = inputs.filter_map(|slot| self.held(producer, slot));
        held.any(|held| held == group)
    }
}
