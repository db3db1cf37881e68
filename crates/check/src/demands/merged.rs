//! Nodes that hand on whichever of their inputs has come: all inputs lie in one memory, and so does
//! what is handed on.

use tenure_graph::effects::{Effects, Trait};
use tenure_graph::plan::Item;
use tenure_graph::{NodeId, ValueId};

use super::Gather;
use crate::violation::{Anchor, Memory, Violation};

impl Gather<'_, '_> {
    fn start(&self, item: Item) -> Option<(Memory, u64)> {
        self.region(item).map(|r| (r.memory, r.start))
    }

    /// Whether output 0 is whichever input has come, and nothing is written. What waits for one of
    /// several streams may also have memory of its own for it.
    pub(super) fn hands_on(&self, id: NodeId, effects: &Effects) -> bool {
        let node = &self.graph.nodes[id];
        let has_its_own = || {
            let input = node.inputs.iter().flatten().next();
            let ends = input.copied().zip(node.output(0));
            self.table.traits(self.graph, id).has(Trait::MergesStreams)
                && ends.is_some_and(|(input, output)| {
                    self.start(Item::Value(input)) != self.start(Item::Value(output))
                })
        };
        effects.merges && !has_its_own()
    }

    /// Demands the one place of a merge.
    pub(super) fn merged(&mut self, id: NodeId, effects: &Effects) {
        let node = &self.graph.nodes[id];
        let output = node.output(0).filter(|_| self.hands_on(id, effects));
        let output = output.map(|v| (Anchor::Output(0), v, Item::Value(v)));
        let inputs = (0u32..).zip(&node.inputs);
        let inputs = inputs.filter_map(|(k, v)| Some((k, (*v)?)));
        let inputs = inputs.map(|(k, v)| (Anchor::Input(k), v, self.source(id, k, v)));
        let all: Vec<(Anchor, ValueId, Item)> = (output.into_iter().chain(inputs))
            .filter(|&(_, v, _)| self.graph.bytes(v) != Some(0))
            .collect();
        let Some(&(_, first, place)) = all.first() else {
            return;
        };
        let expected = self.start(place);
        for (anchor, value, item) in all {
            self.shared.same(value, first);
            // Nobody can copy what may not have come.
            let is_copy = matches!(item, Item::Copy(_));
            if expected.is_none() || is_copy || self.start(item) != expected {
                self.findings.push(Violation::NotMerged {
                    site: self.findings.site(self.step, id),
                    anchor,
                    item: self.findings.item(item),
                });
            }
        }
    }
}
