//! Classes: groups that hold the same memory one after the other.

use smallvec::SmallVec;
use tenure_graph::effects::{Alias, Effects};
use tenure_graph::entity::EntityRef;
use tenure_graph::plan::{Item, Phase, Sharing};
use tenure_graph::{NodeId, ValueId};

use super::{Index, Join, Segment, index};
use crate::PlanError;
use crate::homes::Home;
use crate::liveness::moves;

/// Which sizes two groups may have to share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    Equal,
    Any,
}

impl Join<'_> {
    /// Notes which groups are one value before and after a transfer.
    pub(super) fn relate_moves(&mut self) {
        if self.options.sharing < Sharing::Full {
            return;
        }
        for step in &self.schedule.steps {
            if step.phase != Phase::Begin {
                continue;
            }
            for (at, t) in moves(self.graph, self.table, self.schedule, step.node) {
                if let (Some(from), Some(to)) = (t.from, t.to) {
                    let pair = (self.group(from), self.group(to));
                    self.related.insert((pair.0, pair.1, at));
                }
            }
        }
    }

    pub(super) fn group(&self, value: ValueId) -> Index {
        self.items[value.index()].group
    }

    /// Meets every node and transfer in execution order and joins what may be joined.
    pub(super) fn walk(&mut self) -> Result<(), PlanError> {
        // Transfers that happen while a body runs wait for their step.
        let mut waiting: Vec<Vec<(u32, ValueId, ValueId)>> = Vec::new();
        for number in 0..self.schedule.steps.len() {
            let step = self.schedule.steps[number];
            let number = index(number);
            let full = self.options.sharing == Sharing::Full;
            match step.phase {
                Phase::Begin => {
                    let mut list = Vec::new();
                    if full {
                        for (at, t) in moves(self.graph, self.table, self.schedule, step.node) {
                            if let (Some(from), Some(to)) = (t.from, t.to) {
                                list.push((at, from, to));
                            }
                        }
                        // Taken from the back, in the order in which they happen.
                        list.sort_by_key(|&(at, _, _)| std::cmp::Reverse(at));
                    }
                    waiting.push(list);
                }
                Phase::End => {
                    waiting.pop();
                }
                Phase::Enter(_) => {}
                Phase::Run => self.run(step.node, number)?,
            }
            if let Some(list) = waiting.last_mut() {
                let mut due = Vec::new();
                while list.last().is_some_and(|&(at, _, _)| at <= number) {
                    due.extend(list.pop());
                }
                for (_, from, to) in due.into_iter().rev() {
                    let (from, to) = (self.group(from), self.group(to));
                    self.join(from, to, Sizes::Equal);
                }
            }
        }
        Ok(())
    }

    /// Whether a reference to `from` takes part in planned memory; if so, both sizes are known.
    fn is_placeable(&self, node: NodeId, from: ValueId, to: ValueId) -> Result<bool, PlanError> {
        let home = match self.items[self.group(from) as usize].item {
            Item::Value(source) => self.homes.of[source],
            Item::Workspace(..) | Item::Copy(_) => Home::Planned,
        };
        let read_only = matches!(home, Home::Constant | Home::CallerInput);
        match (self.graph.bytes(from), self.graph.bytes(to)) {
            _ if home == Home::Variable => Ok(false),
            // Where there are no bytes, there is nothing to lie in.
            (Some(0), Some(_)) | (_, Some(0)) => Ok(false),
            (Some(_), Some(_)) => Ok(true),
            (None, None) if !read_only => Ok(false),
            _ => Err(PlanError::UnsizedReference {
                node: self.graph.node_label(node),
                output: self.graph.value_label(to),
                input: self.graph.value_label(from),
            }),
        }
    }

    /// References and updates in place of one node.
    fn run(&mut self, node: NodeId, step: u32) -> Result<(), PlanError> {
        let effects = self.table.effects(self.graph, node);
        for alias in &effects.refs {
            let n = &self.graph.nodes[node];
            let (Some(from), Some(to)) = (
                n.input(alias.input as usize),
                n.output(alias.output as usize),
            ) else {
                continue;
            };
            let target = self.group(to);
            if !self.is_placeable(node, from, to)? {
                continue;
            }
            let source = self.group(from);
            let free = self.alone_at(node, *alias, &effects);
            self.related.insert((source, target, step));
            if !(free && self.join(source, target, Sizes::Any)) {
                self.related.remove(&(source, target, step));
                let reason = "the reader writes there, and the value is needed afterwards";
                let copy = self.push_copy(from, node, alias.input, reason);
                let life = self.items[copy as usize].life.clone();
                self.segments.push(
                    life.iter()
                        .map(|&span| Segment { span, group: copy })
                        .collect(),
                );
                self.related.insert((copy, target, step));
                self.join(copy, target, Sizes::Any);
            }
        }
        if self.options.sharing < Sharing::Full {
            return Ok(());
        }
        let mut done: SmallVec<[u32; 4]> = SmallVec::new();
        for alias in &effects.in_place {
            if done.contains(&alias.output) {
                continue;
            }
            let n = &self.graph.nodes[node];
            let (Some(from), Some(to)) = (
                n.input(alias.input as usize),
                n.output(alias.output as usize),
            ) else {
                continue;
            };
            let (from, to) = (self.group(from), self.group(to));
            if from == to || !self.alone_at(node, *alias, &effects) {
                continue;
            }
            let pair = (from, to, step);
            self.related.insert(pair);
            if self.join(from, to, Sizes::Equal) {
                done.push(alias.output);
                self.in_place += 1;
            } else {
                self.related.remove(&pair);
            }
        }
        Ok(())
    }

    /// Whether a node that writes an output over an input reads the same bytes through no other input, or
    /// only through inputs that it reads exactly where it writes.
    fn alone_at(&self, node: NodeId, alias: Alias, effects: &Effects) -> bool {
        let inputs = &self.graph.nodes[node].inputs;
        let input = inputs.get(alias.input as usize).copied().flatten();
        let Some(group) = input.map(|v| self.group(v)) else {
            return false;
        };
        let sharers = (0u32..)
            .zip(inputs)
            .filter(|(_, input)| input.is_some_and(|v| self.group(v) == group))
            .map(|(j, _)| j);
        effects.tolerates(alias, sharers)
    }

    pub(super) fn find(&mut self, group: Index) -> Index {
        let mut root = group;
        while self.items[root as usize].class != root {
            root = self.items[root as usize].class;
        }
        let mut at = group;
        while at != root {
            at = std::mem::replace(&mut self.items[at as usize].class, root);
        }
        root
    }

    /// Joins the classes of two groups if they may be one memory.
    fn join(&mut self, a: Index, b: Index, sizes: Sizes) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return true;
        }
        let (x, y) = (&self.items[a as usize], &self.items[b as usize]);
        let apart = !x.planned
            || !y.planned
            || x.alone
            || y.alone
            || sizes == Sizes::Equal && x.bytes != y.bytes
            || x.caller && (y.caller || y.input)
            || y.caller && (x.caller || x.input);
        if apart || !self.compatible(a, b) {
            return false;
        }
        let (large, small) = if self.segments[a as usize].len() >= self.segments[b as usize].len() {
            (a, b)
        } else {
            (b, a)
        };
        let moved = std::mem::take(&mut self.segments[small as usize]);
        let kept = &mut self.segments[large as usize];
        if kept.last() <= moved.first() {
            kept.extend(moved);
        } else {
            kept.extend(moved);
            kept.sort_unstable();
        }
        let (caller, input, align) = {
            let s = &self.items[small as usize];
            (s.caller, s.input, s.align)
        };
        self.items[small as usize].class = large;
        let l = &mut self.items[large as usize];
        l.caller |= caller;
        l.input |= input;
        l.align = l.align.max(align);
        true
    }

    /// Whether one group's bytes become another's at the step at which the one ends and the other
    /// begins.
    fn hands_over(&self, from: &Segment, to: &Segment) -> bool {
        let step = to.span.first;
        from.span.last == step && self.related.contains(&(from.group, to.group, step))
    }

    /// Whether the lives of two classes meet only where their groups are related.
    fn compatible(&self, a: Index, b: Index) -> bool {
        let (mut few, mut many) = (&self.segments[a as usize], &self.segments[b as usize]);
        if few.len() > many.len() {
            std::mem::swap(&mut few, &mut many);
        }
        few.iter().all(|x| {
            // Segments of a class meet in single steps at most, so their ends ascend as well.
            let from = many.partition_point(|y| y.span.last < x.span.first);
            many[from..]
                .iter()
                .take_while(|y| y.span.first <= x.span.last)
                .all(|y| {
                    // One ends where the other begins: what goes on afterwards is never
                    // overwritten by what is dead at once.
                    self.hands_over(x, y) || self.hands_over(y, x)
                })
        })
    }
}
