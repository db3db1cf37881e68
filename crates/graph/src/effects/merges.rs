//! Merges: nodes that hand on whichever of their inputs has come. Of the nodes that make those inputs
//! one alone runs, so they may all write one memory, and must.
//!
//! Only what is made for a merge directly is known to be an alternative: what stands further before it
//! may run in any case.

use rustc_hash::FxHashMap;

use super::{OpClass, OpTable, Trait, Traits, demands};
use crate::plan::{Copy, Item};
use crate::{Graph, Node, NodeId, ValueId};

/// Merges behind one another that are looked at for two values.
const MOST_DEPTH: usize = 64;

/// The merges of a graph.
#[derive(Clone, Debug, Default)]
pub struct Merges {
    /// The merge that each value is an alternative of, and in which slot. Where there are several, the
    /// first.
    of: FxHashMap<ValueId, (NodeId, u32)>,
    producer: FxHashMap<ValueId, NodeId>,
    /// Output 0 of each merge.
    output: FxHashMap<NodeId, ValueId>,
}

impl Merges {
    /// The merges of a graph.
    #[must_use]
    pub fn new(graph: &Graph, table: &OpTable) -> Self {
        let mut all = Merges::default();
        for (id, node) in &graph.nodes {
            if !is_merge(node, table.traits(graph, id)) {
                continue;
            }
            all.output.extend(node.output(0).map(|out| (id, out)));
            for (slot, &value) in (0u32..).zip(&node.inputs) {
                let Some(value) = value else { continue };
                // What the caller gives, constants and variables are there in any case.
                let class = table.class(graph, graph.values[value].producer);
                if matches!(
                    class,
                    OpClass::Input | OpClass::Constant | OpClass::Variable
                ) {
                    continue;
                }
                all.of.entry(value).or_insert((id, slot));
                all.producer.insert(value, graph.values[value].producer);
            }
        }
        all
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.output.is_empty() && self.of.is_empty()
    }

    /// Whether a value is an alternative of a merge.
    #[must_use]
    pub fn has(&self, value: ValueId) -> bool {
        self.of.contains_key(&value)
    }

    /// The alternative that an item is, or that its node makes; `None` for what is there in any run.
    /// `copies` are those of the plan.
    #[must_use]
    pub fn alternative(&self, graph: &Graph, copies: &[Copy], item: Item) -> Option<ValueId> {
        if self.is_empty() {
            return None;
        }
        if let Item::Value(value) = item {
            return Some(value).filter(|&v| self.has(v));
        }
        let maker = item.maker(graph, copies)?;
        let mut outputs = graph.nodes[maker].outputs.iter().copied().flatten();
        outputs.find(|&v| self.has(v))
    }

    /// Whether at most one of two values is ever made: they are alternatives of one merge, or lead
    /// to it by other merges.
    #[must_use]
    pub fn are_exclusive(&self, a: ValueId, b: ValueId) -> bool {
        let way = |value: ValueId| {
            std::iter::successors(self.of.get(&value), |(merge, _)| {
                self.of.get(self.output.get(merge)?)
            })
            .take(MOST_DEPTH)
        };
        if a == b || !self.has(a) || !self.has(b) || self.producer.get(&a) == self.producer.get(&b)
        {
            return false;
        }
        let mut met = way(a).filter_map(|(merge, slot)| {
            let (_, other) = way(b).find(|(other, _)| other == merge)?;
            Some(slot != other)
        });
        met.next() == Some(true)
    }
}

/// Whether a node hands on whichever of its inputs has come: its operator does, or its file says so.
pub(super) fn is_merge(node: &Node, traits: Traits) -> bool {
    let is_said = [&node.extra, &node.attrs].map(|attrs| demands::flag(attrs, demands::MERGE));
    let is_one = traits.has(Trait::Merges) || is_said.contains(&true);
    is_one && node.bodies.is_empty() && node.inputs.iter().any(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::text::parse;

    #[test]
    fn alternatives_are_what_is_made_for_a_merge() {
        let graph = parse(
            "model m ge graph ^root {
               %x: float32[16] = Data() @x
               %a: float32[16] = A(%x) @a
               %b: float32[16] = A(%a) @b
               %c: float32[16] = A(%x) @c
               %d: float32[16] = A(%x) @d
               %inner: float32[16] = Merge(%b, %c) @inner
               %outer: float32[16] = StreamMerge(%inner, %d) @outer
               NetOutput(%outer) @out
             }",
        )
        .unwrap();
        let merges = Merges::new(&graph, &OpTable::builtin(Dialect::Ge));
        let value = |name: &str| graph.values.iter().find(|(_, v)| v.name == name).unwrap().0;
        let pairs = |names: &[&str]| -> Vec<String> {
            let mut found = Vec::new();
            for (i, &a) in names.iter().enumerate() {
                for &b in &names[i..] {
                    let one = merges.are_exclusive(value(a), value(b));
                    assert_eq!(one, merges.are_exclusive(value(b), value(a)), "{a} {b}");
                    found.extend(one.then(|| format!("{a}{b}")));
                }
            }
            found
        };
        let found = pairs(&["x", "a", "b", "c", "d", "inner", "outer"]);
        assert_eq!(found, ["bc", "bd", "cd", "dinner"]);
    }
}
