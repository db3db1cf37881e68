//! Groups: values that are one piece of bytes under several names.

use tenure_graph::ValueId;
use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::Alias;
use tenure_graph::effects::demands::{ANY_MEMORY, bound_variables};
use tenure_graph::entity::EntityRef;
use tenure_graph::plan::{Item, Phase, Sharing};

use super::{Join, index};
use crate::PlanError;
use crate::homes::Home;

impl Join<'_> {
    /// Joins views into groups, in execution order so that a view's source has its group already.
    /// What is a view of a variable, or is written in its memory, is the variable, however little is
    /// shared: its readers see what was last written there.
    ///
    /// # Errors
    /// [`PlanError::Torn`] for a view of a variable that would have to be elsewhere.
    pub(super) fn views(&mut self) -> Result<(), PlanError> {
        for (value, variable) in bound_variables(self.graph, self.table) {
            self.variable(Some(variable), Some(value));
        }
        for step in 0..self.schedule.steps.len() {
            let step = self.schedule.steps[step];
            match step.phase {
                Phase::Run => {
                    let effects = self.table.effects(self.graph, step.node);
                    let node = &self.graph.nodes[step.node];
                    for alias in &effects.views {
                        let from = node.input(alias.input as usize);
                        let to = node.output(alias.output as usize);
                        let kind = effects.input_kind(alias.input);
                        match from {
                            Some(v) if self.is_variable(v) => {
                                if effects.output_kind(alias.output) != ANY_MEMORY {
                                    return Err(self.torn(step.node));
                                }
                                self.variable(from, to);
                            }
                            // It is a view of what has to be copied to other memory first.
                            Some(v) if kind != ANY_MEMORY && !self.ask(v, kind) => {}
                            _ => self.view(from, to),
                        }
                    }
                    // What must lie elsewhere is written in a copy.
                    let here = |a: &&Alias| !effects.is_placed(**a);
                    for alias in effects.refs.iter().filter(here) {
                        let from = node.input(alias.input as usize);
                        let to = node.output(alias.output as usize);
                        self.variable(from, to);
                    }
                }
                Phase::Enter(k) => {
                    let class = self.table.class(self.graph, step.node);
                    for t in transfers(self.graph, step.node, class) {
                        if t.pass == Pass::View && t.at == Point::Enter(k) {
                            match t.from.is_some_and(|v| self.is_variable(v)) {
                                true => self.variable(t.from, t.to),
                                false => self.view(t.from, t.to),
                            }
                        }
                    }
                }
                Phase::End => {
                    let class = self.table.class(self.graph, step.node);
                    for t in transfers(self.graph, step.node, class) {
                        if t.gives_back_a_name() && t.from.is_some_and(|v| self.is_variable(v)) {
                            self.variable(t.from, t.to);
                        }
                    }
                }
                Phase::Begin => {}
            }
        }
        Ok(())
    }

    /// What is in a variable's memory stays there, as a graph output too.
    fn variable(&mut self, from: Option<ValueId>, to: Option<ValueId>) {
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let group = self.items[from.index()].group;
        let Item::Value(source) = self.items[group as usize].item else {
            return;
        };
        if self.homes.of[source] == Home::Variable {
            let entry = &mut self.items[to.index()];
            entry.group = group;
            entry.planned = false;
            entry.caller = false;
        }
    }

    /// Joins a view to the group of its source, where views may share memory.
    fn view(&mut self, from: Option<ValueId>, to: Option<ValueId>) {
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        if self.sharing() < Sharing::Views {
            return;
        }
        let hints = self.graph.values[to].hints.as_ref();
        let is_forced = hints.is_some_and(|h| h.reuse_input.is_some());
        // What is a view of what is made in any case is no alternative.
        if self.merges.has(to) && !is_forced {
            return;
        }
        let source = self.items[from.index()].group as usize;
        let (a, b) = (&self.items[source], &self.items[to.index()]);
        let outside =
            !a.planned && matches!(a.item, Item::Value(v) if self.homes.of[v] != Home::Dynamic);
        // An output in the caller's memory is its own memory; so is what shares with nobody, and what
        // must stay where it is is not in the caller's input.
        let moves_away = b.pinned && self.is_callers_input(from);
        let apart =
            b.alone || a.alone || b.caller && (a.caller || a.input || outside) || moves_away;
        let fits = is_forced || outside || self.graph.bytes(from) == self.graph.bytes(to);
        // Of unknown size, it can be a name of what is outside all the same.
        let held = b.planned || outside && self.homes.of[to] == Home::Dynamic;
        if !held || apart || !fits || !(a.planned || outside) {
            return;
        }
        // What has to be in special memory is there, or is moved there.
        let moves = b.kind != ANY_MEMORY && a.kind != b.kind;
        let is_special = a.kind != ANY_MEMORY || b.kind != ANY_MEMORY || a.pinned || b.pinned;
        if moves && (outside || a.kind != ANY_MEMORY) || is_special && (a.caller || b.caller) {
            return;
        }
        let (caller, pinned, kept, held) = (b.caller, b.pinned, b.kept, b.held);
        let (align, bytes) = (b.align, b.bytes);
        let planned = a.planned;
        let kind = if a.kind == ANY_MEMORY { b.kind } else { a.kind };
        self.items[to.index()].group = index(source);
        self.items[to.index()].planned = planned;
        self.items[source].caller |= caller;
        self.items[source].pinned |= pinned;
        self.items[source].kept |= kept;
        let root = &mut self.items[source];
        root.held = root.held.max(held);
        root.bytes = root.bytes.max(bytes);
        root.extent.1 = root.extent.1.max(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.items[source].kind = kind;
        self.items[source].align = self.items[source].align.max(align);
    }
}
