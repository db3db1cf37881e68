//! Kinds of memory: what some nodes must find or leave in memory of a special kind.
//!
//! Any node can use memory of any kind that it does not ask for, so a value lies in the first
//! special kind that its producer or a reader asks for; a reader that asks for another gets a copy.

use rustc_hash::FxHashSet;
use std::rc::Rc;
use tenure_graph::control::{Pass, transfers};
use tenure_graph::effects::Run;
use tenure_graph::effects::demands::{ANY_MEMORY, SESSION_MEMORY};
use tenure_graph::entity::EntityRef;
use tenure_graph::plan::{Item, Phase};
use tenure_graph::{NodeId, ValueId};

use super::Join;
use crate::homes::Home;

const REASON: &str = "the reader needs it in memory of another kind";

impl Join<'_> {
    /// Values that lie beside others or in memory of a special kind, under all their names.
    pub(super) fn demanded_places(&self) -> FxHashSet<ValueId> {
        let mut found = FxHashSet::default();
        for &(id, _) in self.asking.iter() {
            let node = &self.graph.nodes[id];
            let effects = self.table.effects(self.graph, id);
            let whole = |run: Option<Run>| run.is_some_and(|r| r.whole);
            let inputs = (0u32..).zip(&node.inputs).filter(|&(i, _)| {
                let is_whole = i == 0 && whole(effects.output_run);
                effects.input_run.is_some() || is_whole || effects.input_kind(i) != ANY_MEMORY
            });
            let outputs = (0u32..).zip(&node.outputs).filter(|&(o, _)| {
                let is_whole = o == 0 && whole(effects.input_run);
                effects.output_run.is_some() || is_whole || effects.output_kind(o) != ANY_MEMORY
            });
            found.extend(inputs.chain(outputs).filter_map(|(_, v)| *v));
            for alias in effects.refs.iter().filter(|&&a| effects.is_placed(a)) {
                let slots = [
                    node.input(alias.input as usize),
                    node.output(alias.output as usize),
                ];
                found.extend(slots.into_iter().flatten());
            }
        }
        if !found.is_empty() {
            self.add_names(&mut found);
        }
        found
    }

    /// Adds the names that values have behind views and the borders of subgraphs.
    fn add_names(&self, found: &mut FxHashSet<ValueId>) {
        let graph = self.graph;
        for step in &self.schedule.steps {
            let node = &graph.nodes[step.node];
            if step.phase == Phase::Run {
                for alias in &self.table.effects(graph, step.node).views {
                    let from = node.input(alias.input as usize);
                    if from.is_some_and(|v| found.contains(&v)) {
                        found.extend(node.output(alias.output as usize));
                    }
                }
                continue;
            }
            if matches!(step.phase, Phase::Enter(_)) {
                continue;
            }
            let class = self.table.class(graph, step.node);
            for t in transfers(graph, step.node, class) {
                if t.pass == Pass::View && t.from.is_some_and(|v| found.contains(&v)) {
                    found.extend(t.to);
                }
            }
        }
    }

    /// Gives values the kinds that their producers ask for.
    pub(super) fn output_kinds(&mut self) {
        for (node, _) in Rc::clone(&self.asking).iter().copied() {
            let effects = self.table.effects(self.graph, node);
            for (o, value) in (0u32..).zip(&self.graph.nodes[node].outputs) {
                if let Some(value) = *value {
                    let entry = &mut self.items[value.index()];
                    entry.kind = effects.output_kind(o);
                    entry.alone |= entry.kind == SESSION_MEMORY;
                }
            }
        }
    }

    /// Gives values the kinds that their readers ask for, if they have none yet, and readers copies.
    pub(super) fn input_kinds(&mut self) {
        for (node, _) in Rc::clone(&self.asking).iter().copied() {
            let effects = self.table.effects(self.graph, node);
            if effects.refs.iter().any(|&a| effects.is_placed(a)) {
                self.copy_variables(node, REASON);
            }
            for (i, value) in (0u32..).zip(&self.graph.nodes[node].inputs) {
                let kind = effects.input_kind(i);
                let Some(value) = *value else { continue };
                let is_copied = self.copy_at.contains_key(&(node, i));
                if kind == ANY_MEMORY || is_copied || self.ask(value, kind) {
                    continue;
                }
                if self.graph.bytes(value).is_some() {
                    self.push_copy(value, node, i, REASON);
                }
            }
        }
    }

    /// Copies the variables that a node writes by a reference and that would have to lie elsewhere:
    /// the node works on the copy. Where its result has to be in the variable as well, the graph
    /// has a node that stores it there.
    pub(super) fn copy_variables(&mut self, node: NodeId, reason: &str) {
        let effects = self.table.effects(self.graph, node);
        for &alias in effects.refs.iter().filter(|&&a| effects.is_placed(a)) {
            let Some(value) = self.graph.nodes[node].input(alias.input as usize) else {
                continue;
            };
            let is_copied = self.copy_at.contains_key(&(node, alias.input));
            if is_copied || !self.is_variable(value) || self.graph.bytes(value).is_none() {
                continue;
            }
            let copy = self.push_copy(value, node, alias.input, reason);
            if !self.segments.is_empty() {
                self.add_segments(copy);
            }
        }
    }

    /// Whether a value is a variable under whatever name.
    pub(super) fn is_variable(&self, value: ValueId) -> bool {
        let group = self.group(value);
        matches!(self.items[group as usize].item, Item::Value(v) if self.homes.of[v] == Home::Variable)
    }

    /// Lets a value lie in memory of a kind, if it is in none that is special yet.
    pub(super) fn ask(&mut self, value: ValueId, kind: i64) -> bool {
        let group = self.items[value.index()].group as usize;
        let entry = &mut self.items[group];
        if entry.planned && !entry.caller && entry.kind == ANY_MEMORY {
            entry.kind = kind;
        }
        entry.planned && entry.kind == kind
    }
}
