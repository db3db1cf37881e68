//! Demands on where a node's tensors lie that are not about sharing: kinds of memory, tensors side
//! by side, memory that is cleared ahead, and inputs that are left as garbage.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::demands::{ANY_MEMORY, asks_for_places, keeps_addresses, kind_name};
use tenure_graph::effects::{Alias, Effects, OpTable, Run, Trait, cleared};
use tenure_graph::plan::{Item, Placement, Plan};
use tenure_graph::{Graph, NodeId, ValueId};

use super::{Gather, Reading, Writing};
use crate::program::Op;
use crate::violation::{Anchor, Memory, Outside, Violation};

/// Memory that is cleared before it is filled.
#[derive(Default)]
pub(super) struct ClearedMemory {
    /// What each node clears.
    by: FxHashMap<NodeId, Vec<Item>>,
    /// What must be zero when the node starts that fills it.
    items: FxHashSet<Item>,
    /// The workspaces among them, in numbers from 0 on.
    pub(super) workspaces: FxHashMap<(NodeId, u32), usize>,
}

impl ClearedMemory {
    pub(super) fn new(graph: &Graph, table: &OpTable, plan: &Plan) -> Self {
        let mut all = ClearedMemory::default();
        for step in &plan.steps {
            if !graph.nodes.is_valid(step.node) {
                continue;
            }
            for c in cleared(graph, table, step.node) {
                if all.items.insert(c.item) {
                    all.by.entry(c.cleaner).or_default().push(c.item);
                    if let Item::Workspace(node, k) = c.item {
                        let number = all.workspaces.len();
                        all.workspaces.insert((node, k), number);
                    }
                }
            }
        }
        all
    }
}

impl Gather<'_, '_> {
    /// A node that clears memory writes what others fill later.
    pub(super) fn clears(&mut self, id: NodeId) {
        for item in self.cleared.by.remove(&id).unwrap_or_default() {
            if self.layout.spot(item).is_some() {
                self.write(item, Anchor::Cleared, None);
            }
        }
    }

    /// What a node fills is still as it was cleared.
    pub(super) fn is_cleared(&mut self, id: NodeId, effects: &Effects) {
        let outputs = self.graph.nodes[id].outputs.iter().flatten();
        let outputs = outputs.map(|&value| Item::Value(value));
        let workspaces = (0u32..).zip(&effects.scratch);
        let workspaces = workspaces.map(|(k, _)| Item::Workspace(id, k));
        for item in outputs.chain(workspaces) {
            if self.cleared.items.contains(&item) && self.layout.spot(item).is_some() {
                self.program.ops.push(Op::Read {
                    item,
                    anchor: Anchor::Cleared,
                });
            }
        }
    }

    /// All of them for one node; gives what its garbage is written over.
    pub(super) fn placed(&mut self, id: NodeId, effects: &Effects) -> Vec<Writing> {
        if let Some(run) = effects.input_run {
            self.side_by_side(id, run, true);
        }
        if let Some(run) = effects.output_run {
            self.side_by_side(id, run, false);
        }
        self.kinds(id, effects);
        self.fixed_addresses(id, effects);
        let inputs = effects.spoils.iter();
        inputs.filter_map(|&i| self.spoil(id, effects, i)).collect()
    }

    /// The item in an input slot.
    fn input_item(&self, id: NodeId, slot: u32) -> Option<(ValueId, Item)> {
        let value = self.graph.nodes[id].input(slot as usize)?;
        Some((value, self.source(id, slot, value)))
    }

    fn side_by_side(&mut self, id: NodeId, run: Run, of_inputs: bool) {
        let node = &self.graph.nodes[id];
        let values = if of_inputs {
            node.inputs.to_vec()
        } else {
            node.outputs.to_vec()
        };
        let whole = match (run.whole, of_inputs) {
            (false, _) => None,
            (true, true) => node.output(0).map(|v| (v, Item::Value(v))),
            (true, false) => self.input_item(id, 0),
        };
        if let Some((value, Item::Copy(k))) = whole {
            self.written_copies.entry(k).or_insert(value);
        }
        let mut start = whole.and_then(|(_, item)| self.region(item));
        let mut first = whole.map(|(value, _)| value);
        let mut at = 0u64;
        for (slot, value) in (0u32..).zip(values) {
            let Some(value) = value else { continue };
            let item = if of_inputs {
                self.source(id, slot, value)
            } else {
                Item::Value(value)
            };
            let bytes = self.graph.bytes(value);
            if bytes == Some(0) {
                continue;
            }
            let found = self.region(item);
            if start.is_none() && first.is_none() {
                start = found;
            }
            let first = *first.get_or_insert(value);
            self.shared.same(value, first);
            if let Item::Copy(k) = item {
                self.written_copies.entry(k).or_insert(first);
            }
            let expected = start.and_then(|s| s.start.checked_add(at));
            let is_there = found
                .zip(start)
                .zip(expected)
                .is_some_and(|((f, s), e)| f.memory == s.memory && f.start == e);
            if !is_there {
                let anchor = if of_inputs {
                    Anchor::Input(slot)
                } else {
                    Anchor::Output(slot)
                };
                self.findings.push(Violation::NotSideBySide {
                    site: self.findings.site(self.step, id),
                    anchor,
                    item: self.findings.item(item),
                });
            }
            let stride = self.plan.options.stride(run, self.graph, value);
            at = stride.map_or(u64::MAX, |stride| at.saturating_add(stride));
        }
    }

    /// What a node reads and makes that keeps its addresses is not in the caller's memory. State that
    /// the caller hands in and such a node writes is left where it is: nowhere else would do.
    fn fixed_addresses(&mut self, id: NodeId, effects: &Effects) {
        let is_asked = self.plan.options.has_callers_memory();
        if !is_asked || !keeps_addresses(self.graph, self.table, id) {
            return;
        }
        let node = &self.graph.nodes[id];
        let slots = (0u32..).take(node.inputs.len());
        let inputs = slots.filter_map(|slot| {
            let (value, item) = self.input_item(id, slot)?;
            Some((Anchor::Input(slot), value, item))
        });
        let outputs = (0u32..).zip(&node.outputs);
        let outputs = outputs
            .filter_map(|(slot, &value)| Some((Anchor::Output(slot), value?, Item::Value(value?))));
        let all: Vec<_> = inputs.chain(outputs).collect();
        for (anchor, value, item) in all {
            let is_callers = match self.layout.spot(item) {
                Some(spot) => matches!(spot.region.memory, Memory::Caller(_)),
                None => match self.layout.outside[value] {
                    Some(Outside::CallerInput) => true,
                    Some(Outside::Variable) => {
                        let is_written = |alias: &Alias| match anchor {
                            Anchor::Input(slot) => alias.input == slot,
                            _ => true,
                        };
                        self.is_callers_state(value) && !effects.refs.iter().any(is_written)
                    }
                    _ => false,
                },
            };
            if is_callers && self.graph.bytes(value) != Some(0) {
                self.findings.push(Violation::FixedAtCallers {
                    site: self.findings.site(self.step, id),
                    anchor,
                    item: self.findings.item(item),
                });
            }
        }
    }

    /// Whether a value is a variable that the caller hands in as it does inputs.
    fn is_callers_state(&self, value: ValueId) -> bool {
        self.plan.options.inputs == Placement::User
            && self.variables.of(value).is_some_and(|variable| {
                let producer = self.graph.values[variable].producer;
                let traits = self.table.traits(self.graph, producer);
                self.graph.nodes[producer].subgraph == self.graph.root
                    && traits.has(Trait::CallerMemory)
            })
    }

    fn kinds(&mut self, id: NodeId, effects: &Effects) {
        let node = &self.graph.nodes[id];
        let mut asked: Vec<(Anchor, Item, i64)> = Vec::new();
        if !effects.input_kinds.is_empty() {
            for slot in (0u32..).take(node.inputs.len()) {
                if let Some((value, item)) = self.input_item(id, slot)
                    && self.graph.bytes(value).is_some_and(|b| b > 0)
                {
                    asked.push((Anchor::Input(slot), item, effects.input_kind(slot)));
                }
            }
        }
        if !effects.output_kinds.is_empty() {
            for (slot, value) in (0u32..).zip(&node.outputs) {
                if let Some(value) = *value
                    && self.graph.bytes(value).is_some_and(|b| b > 0)
                {
                    let item = Item::Value(value);
                    asked.push((Anchor::Output(slot), item, effects.output_kind(slot)));
                }
            }
        }
        for (k, scratch) in effects.workspaces() {
            asked.push((Anchor::Workspace(k), Item::Workspace(id, k), scratch.kind));
        }
        for (anchor, item, kind) in asked {
            if kind == ANY_MEMORY {
                continue;
            }
            let arena = self.layout.spot(item).map(|spot| spot.region.memory);
            let found = match arena {
                Some(Memory::Arena(a)) => self.plan.arenas.get(a as usize).map(|a| &*a.kind),
                _ => None,
            };
            let kind = kind_name(kind);
            if found != Some(&kind) {
                self.findings.push(Violation::WrongKind {
                    site: self.findings.site(self.step, id),
                    anchor,
                    item: self.findings.item(item),
                    kind: kind.into_owned(),
                    found: found.unwrap_or("no arena").to_owned(),
                });
            }
        }
    }

    /// An input is left as garbage: whoever lies there is lost, and what must not be written is not
    /// there.
    fn spoil(&mut self, id: NodeId, effects: &Effects, slot: u32) -> Option<Writing> {
        let (value, item) = self.input_item(id, slot)?;
        let is_written = effects.refs.iter().any(|a| a.input == slot);
        if is_written || self.graph.bytes(value) == Some(0) {
            return None;
        }
        let outside = self.layout.outside[value].filter(|_| !matches!(item, Item::Copy(_)));
        if let Some(outside) = outside.filter(|&o| o != Outside::Dynamic) {
            self.findings.push(Violation::OutsideSpoiled {
                site: self.findings.site(self.step, id),
                anchor: Anchor::Input(slot),
                input: self.findings.value(value),
                outside,
            });
            return None;
        }
        let region = self.region(item)?;
        Some(Writing {
            item,
            region,
            output: None,
            garbage: Some(slot),
        })
    }

    /// Whether a node leaves garbage where it reads.
    pub(super) fn is_own_garbage(w: &Writing, r: &Reading) -> bool {
        matches!(r.anchor, Anchor::Input(input) if w.garbage == Some(input))
    }
}

/// Values that lie in a run without gaps, so that nothing can be said of their alignment.
pub(crate) fn packed(graph: &Graph, table: &OpTable) -> FxHashSet<ValueId> {
    let mut found = FxHashSet::default();
    for (id, node) in &graph.nodes {
        if !asks_for_places(node) {
            continue;
        }
        let effects = table.effects(graph, id);
        let is_packed = |run: Option<Run>| run.is_some_and(|run| run.packed);
        if is_packed(effects.input_run) {
            found.extend(node.inputs.iter().flatten());
        }
        if is_packed(effects.output_run) {
            found.extend(node.outputs.iter().flatten());
        }
    }
    found
}
