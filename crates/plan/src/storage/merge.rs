//! Classes: groups that hold the same memory one after the other.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tenure_graph::effects::demands::ANY_MEMORY;
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
pub(super) enum Sizes {
    Equal,
    Any,
}

impl Join<'_> {
    /// Notes which groups are one value before and after a transfer.
    pub(super) fn relate_moves(&mut self) {
        if self.sharing() < Sharing::Full {
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
            let full = self.sharing() == Sharing::Full;
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
    fn is_placeable(
        &self,
        node: NodeId,
        alias: Alias,
        (from, to): (ValueId, ValueId),
    ) -> Result<bool, PlanError> {
        let is_copied = self.is_copied(node, alias.input);
        // A variable that would have to lie elsewhere is copied, if its size is known.
        let is_placed = self.table.effects(self.graph, node).is_placed(alias);
        let home = match self.items[self.group(from) as usize].item {
            Item::Value(source) => self.homes.of[source],
            Item::Workspace(..) | Item::Copy(_) => Home::Planned,
        };
        let read_only = matches!(home, Home::Constant | Home::CallerInput);
        match (self.graph.bytes(from), self.graph.bytes(to)) {
            _ if home == Home::Variable && !is_copied && !is_placed => Ok(false),
            // Where there are no bytes, there is nothing to lie in.
            (Some(0), Some(_)) | (_, Some(0)) => Ok(false),
            (Some(_), Some(_)) => Ok(true),
            (None, None) if !read_only && home != Home::Variable => Ok(false),
            _ => Err(PlanError::UnsizedReference {
                node: self.graph.node_label(node),
                output: self.graph.value_label(to),
                input: self.graph.value_label(from),
            }),
        }
    }

    /// Outputs that are written in the memory of inputs. May be asked for again.
    pub(super) fn references(
        &mut self,
        node: NodeId,
        step: u32,
        effects: &Effects,
    ) -> Result<(), PlanError> {
        for alias in &effects.refs {
            let n = &self.graph.nodes[node];
            let (Some(from), Some(to)) = (
                n.input(alias.input as usize),
                n.output(alias.output as usize),
            ) else {
                continue;
            };
            let target = self.group(to);
            if !self.is_placeable(node, *alias, (from, to))? {
                continue;
            }
            self.written.insert((node, alias.input));
            let source = self.held(node, alias.input).unwrap_or(target);
            let free = self.alone_at(node, *alias, effects);
            let reason = "the reader writes there, and the value is needed afterwards";
            if !(free && self.hand_over(source, target, step)) {
                if self.is_copied(node, alias.input) {
                    return Err(self.torn(node));
                }
                let copy = self.late_copy(from, node, alias.input, reason);
                if !self.hand_over(copy, target, step) {
                    return Err(self.torn(node));
                }
            }
        }
        Ok(())
    }

    /// References, garbage and updates in place of one node.
    fn run(&mut self, node: NodeId, step: u32) -> Result<(), PlanError> {
        let effects = self.table.effects(self.graph, node);
        self.references(node, step, &effects)?;
        self.spoils(node, step, &effects)?;
        if self.sharing() < Sharing::Full {
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
            let from = self.held(node, alias.input).unwrap_or(self.group(from));
            let to = self.group(to);
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

    /// What a node writes would have to be in two places.
    pub(super) fn torn(&self, node: NodeId) -> PlanError {
        PlanError::Torn {
            node: self.graph.node_label(node),
        }
    }

    fn is_copied(&self, node: NodeId, input: u32) -> bool {
        self.copy_at.contains_key(&(node, input))
    }

    /// Lets the first become the second at a step, from the same byte on.
    fn hand_over(&mut self, from: Index, to: Index, step: u32) -> bool {
        let is_new = self.related.insert((from, to, step));
        let joined = self.join(from, to, Sizes::Any);
        if !joined && is_new {
            self.related.remove(&(from, to, step));
        }
        joined
    }

    /// Inputs that are left as garbage: nothing else may be there at the step, nor afterwards. May
    /// be asked for again.
    pub(super) fn spoils(
        &mut self,
        node: NodeId,
        step: u32,
        effects: &Effects,
    ) -> Result<(), PlanError> {
        if effects.spoils.is_empty() {
            return Ok(());
        }
        // How many inputs find each group.
        let mut readers: FxHashMap<Index, usize> = FxHashMap::default();
        let inputs = (0u32..).take(self.graph.nodes[node].inputs.len());
        for held in inputs.filter_map(|i| self.held(node, i)) {
            *readers.entry(held).or_default() += 1;
        }
        for &input in &effects.spoils {
            // A reference writes there itself, and once is enough.
            if !self.written.insert((node, input)) || effects.refs.iter().any(|a| a.input == input)
            {
                continue;
            }
            let n = &self.graph.nodes[node];
            let Some(value) = n.input(input as usize) else {
                continue;
            };
            let source = self.held(node, input).unwrap_or(self.group(value));
            let is_alone = readers.get(&source).is_none_or(|&n| n == 1);
            let outside = !self.items[source as usize].planned;
            match self.graph.bytes(value) {
                Some(0) => continue,
                // It has memory of its own, and nothing is known of who is there when.
                None if self.homes.of[value] == Home::Dynamic => continue,
                None => {
                    return Err(PlanError::UnsizedReference {
                        node: self.graph.node_label(node),
                        output: format!("garbage in input {input}"),
                        input: self.graph.value_label(value),
                    });
                }
                Some(_) => {}
            }
            let garbage = self.garbage(node, input, value);
            if !(is_alone && !outside && self.hand_over(source, garbage, step)) {
                if self.is_copied(node, input) {
                    return Err(self.torn(node));
                }
                readers.entry(source).and_modify(|n| *n -= 1);
                let reason = "the reader leaves garbage there, and the value is needed afterwards";
                let copy = self.late_copy(value, node, input, reason);
                if !self.hand_over(copy, garbage, step) {
                    return Err(self.torn(node));
                }
            }
        }
        Ok(())
    }

    /// What a node leaves in an input.
    fn garbage(&mut self, node: NodeId, input: u32, value: ValueId) -> Index {
        let bytes = self.graph.bytes(value).unwrap_or(0);
        let life = self.schedule.span[node].into_iter().collect();
        let item = Item::Workspace(node, u32::MAX - input);
        let garbage = self.push(item, bytes, 1, life, true);
        self.items[garbage as usize].hidden = true;
        self.add_segments(garbage);
        garbage
    }

    /// Whether a node that writes an output over an input reads the same bytes through no other input, or
    /// only through inputs that it reads exactly where it writes, and makes no other name of them.
    fn alone_at(&self, node: NodeId, alias: Alias, effects: &Effects) -> bool {
        let inputs = &self.graph.nodes[node].inputs;
        let Some(group) = self.held(node, alias.input) else {
            return false;
        };
        // A name that the node itself makes of the input would be of what is written there.
        let outputs = &self.graph.nodes[node].outputs;
        let mut views = effects.views.iter().filter(|v| v.output != alias.output);
        let is_named = |v: &Alias| {
            let named = outputs.get(v.output as usize).copied().flatten();
            named.is_some_and(|named| self.group(named) == group)
        };
        if views.any(is_named) {
            return false;
        }
        let slots = (0u32..).zip(inputs).map(|(j, _)| j);
        let sharers = slots.filter(|&j| self.held(node, j) == Some(group));
        effects.tolerates(alias, sharers)
    }

    /// The root of a group's class, and the byte at which the group starts, seen from the root.
    pub(super) fn find(&mut self, group: Index) -> (Index, i64) {
        let mut root = group;
        let mut start = 0;
        while self.items[root as usize].class != root {
            start += self.items[root as usize].at;
            root = self.items[root as usize].class;
        }
        let (mut at, mut left) = (group, start);
        while at != root {
            let entry = &mut self.items[at as usize];
            let (next, step) = (entry.class, entry.at);
            (entry.class, entry.at) = (root, left);
            (at, left) = (next, left - step);
        }
        (root, start)
    }

    /// Joins the classes of two groups, from the same byte on, if they may be one memory.
    fn join(&mut self, a: Index, b: Index, sizes: Sizes) -> bool {
        self.join_at(a, b, sizes, 0)
    }

    /// Joins the classes of two groups if both can be in one memory so that the second starts
    /// `shift` bytes behind the first.
    pub(super) fn join_at(&mut self, a: Index, b: Index, sizes: Sizes, shift: i64) -> bool {
        let Some(fit) = self.fit(a, b, sizes, shift) else {
            return false;
        };
        let Fit { a, b, shift, kind } = fit;
        if a == b {
            return true;
        }
        let more = self.segments[a as usize].len() >= self.segments[b as usize].len();
        let (large, small, shift) = if more { (a, b, shift) } else { (b, a, -shift) };
        let moved = std::mem::take(&mut self.segments[small as usize]);
        let kept = &mut self.segments[large as usize];
        let in_order = kept.last() <= moved.first();
        kept.extend(moved);
        let s = &mut self.items[small as usize];
        (s.class, s.at) = (large, shift);
        let (caller, pinned, input, align) = (s.caller, s.pinned, s.input, s.align);
        let (extent, shifted, unsorted) = (s.extent, s.shifted, s.unsorted);
        let (kept, pieced, comes_back) = (s.kept, s.pieced, s.comes_back);
        let l = &mut self.items[large as usize];
        l.caller |= caller;
        l.pinned |= pinned;
        l.input |= input;
        l.align = l.align.max(align);
        l.kept |= kept;
        l.pieced |= pieced;
        l.comes_back |= comes_back;
        l.shifted |= shifted || shift != 0;
        // Many may be joined side by side before anybody asks for the order.
        l.unsorted |= unsorted || !in_order;
        l.extent.0 = l.extent.0.min(extent.0 + shift);
        l.extent.1 = l.extent.1.max(extent.1 + shift);
        l.kind = kind;
        true
    }

    /// Whether two groups can be in one memory so; gives their classes, and how far apart these
    /// start.
    pub(super) fn fit(&mut self, a: Index, b: Index, sizes: Sizes, shift: i64) -> Option<Fit> {
        let ((a, at_a), (b, at_b)) = (self.find(a), self.find(b));
        // Where b's root starts, seen from a's root.
        let shift = at_a.checked_add(shift)?.checked_sub(at_b)?;
        let (x, y) = (&self.items[a as usize], &self.items[b as usize]);
        if a == b {
            let kind = x.kind;
            return (shift == 0).then_some(Fit { a, b, shift, kind });
        }
        let from = y.extent.0.checked_add(shift)?;
        let to = y.extent.1.checked_add(shift)?;
        let is_beside = to <= x.extent.0 || from >= x.extent.1;
        let is_shared = !is_beside && (x.alone || y.alone);
        let align = i64::try_from(x.align.max(y.align)).ok()?;
        let apart = !x.planned
            || !y.planned
            || is_shared
            || sizes == Sizes::Equal && x.bytes != y.bytes
            || x.caller && (y.caller || y.input)
            || y.caller && (x.caller || x.input)
            // The caller's memory holds one output from its first byte on, and is of no kind.
            || (x.caller || y.caller) && (shift != 0 || x.shifted || y.shifted)
            || x.caller && (y.kind != ANY_MEMORY || y.pinned)
            || y.caller && (x.kind != ANY_MEMORY || x.pinned)
            || sizes == Sizes::Equal && x.kind != y.kind
            || shift % align != 0;
        let kind = match (x.kind, y.kind) {
            (one, other) if one == other => one,
            (ANY_MEMORY, kind) | (kind, ANY_MEMORY) => kind,
            _ => return None,
        };
        let fits = !apart && (is_beside || self.compatible(a, b, shift));
        fits.then_some(Fit { a, b, shift, kind })
    }

    /// Whether one group's bytes become another's at the step at which the one ends and the other
    /// begins.
    fn hands_over(&self, from: &Segment, to: &Segment, shift: i64) -> bool {
        let step = to.span.first;
        let pair = (from.group, to.group, step);
        from.span.last == step
            && !self.items[from.group as usize].lasting
            && self.has_ended(from.group, step)
            && shift == 0
            && self.related.contains(&pair)
    }

    /// Whether the lives of two classes, the second `shift` bytes behind the first, meet only where
    /// their bytes do not, or where their groups are related.
    fn compatible(&mut self, a: Index, b: Index, shift: i64) -> bool {
        for root in [a, b] {
            if std::mem::take(&mut self.items[root as usize].unsorted) {
                self.segments[root as usize].sort_unstable();
            }
        }
        let is_plain =
            shift == 0 && !self.items[a as usize].shifted && !self.items[b as usize].shifted;
        let (mut few, mut many) = (&self.segments[a as usize], &self.segments[b as usize]);
        let mut few_first = true;
        if few.len() > many.len() {
            std::mem::swap(&mut few, &mut many);
            few_first = false;
        }
        if is_plain {
            let meet_well = few.iter().all(|x| {
                // Segments of such a class meet in single steps at most, so their ends ascend.
                let from = many.partition_point(|y| y.span.last < x.span.first);
                many[from..]
                    .iter()
                    .take_while(|y| y.span.first <= x.span.last)
                    // One ends where the other begins: what goes on afterwards is never
                    // overwritten by what is dead at once.
                    .all(|y| self.hands_over(x, y, 0) || self.hands_over(y, x, 0))
            });
            return meet_well && self.take_turns(a, b);
        }
        let (few, many) = (few.clone(), many.clone());
        let shift = if few_first { shift } else { -shift };
        // Below full sharing nothing follows upon another in the same bytes, but by a reference.
        let in_turn = self.sharing() == Sharing::Full;
        let streams = self.clocks.is_some();
        few.iter().all(|x| {
            let until_x = x.span.last.max(self.until(x.group));
            let mut meeting = many
                .iter()
                .take_while(|y| !in_turn || streams || y.span.first <= x.span.last);
            meeting.all(|y| {
                let before = |until: u32, later: &Segment| in_turn && until < later.span.first;
                before(until_x, y)
                    || before(y.span.last.max(self.until(y.group)), x)
                    || in_turn && self.follow(x, y)
                    || self.may_meet(x, y, shift)
            })
        })
    }

    /// Whether two segments that are alive together may be, the class of the second starting
    /// `shift` bytes behind that of the first.
    fn may_meet(&mut self, x: &Segment, y: &Segment, shift: i64) -> bool {
        let start_x = self.find(x.group).1;
        let start_y = self.find(y.group).1 + shift;
        let end = |group: Index, start: i64| end_of(start, self.items[group as usize].bytes);
        let is_beside = end(x.group, start_x) <= start_y || end(y.group, start_y) <= start_x;
        let between = start_y - start_x;
        let is_piece =
            |one: Index, other: Index, behind: i64| self.pieces.get(&(one, other)) == Some(&behind);
        is_beside
            || is_piece(x.group, y.group, between)
            || is_piece(y.group, x.group, -between)
            || between == 0 && self.are_alternatives(x.group, y.group)
            || self.hands_over(x, y, between)
            || self.hands_over(y, x, -between)
    }
}

/// The byte after the last of something that starts at a byte of its class.
pub(super) fn end_of(start: i64, bytes: u64) -> i64 {
    start.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Two classes that can be one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    a: Index,
    b: Index,
    /// How far the second starts behind the first.
    shift: i64,
    /// Kind of memory that both can be in.
    kind: i64,
}
