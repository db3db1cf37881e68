//! Which values share memory: views first, then updates in place and values handed over at the
//! borders of subgraphs.
//!
//! Views of one another form a *group*: one piece of bytes under several names. Groups that may
//! hold the same memory one after the other form a *class*; a class becomes a storage.
//!
//! Two classes are joined when their lives meet only at steps where the meeting is the very
//! reason to join: the step of a node that may write its output over its input, or of a transfer
//! whose source and target would be one memory. Every pair of groups alive at such a step must
//! be related that way, or the classes stay apart. So each candidate is judged against all that
//! has been joined before it.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::{Alias, Effects, OpTable};
use tenure_graph::entity::{EntityRef, SecondaryMap};
use tenure_graph::plan::{Copy, Item, Life, Phase, Placement, PlanOptions, Sharing, Span};
use tenure_graph::{Graph, NodeId, ValueId};

use crate::homes::{Home, Homes};
use crate::liveness::moves;
use crate::schedule::Schedule;
use crate::spans::normalise;

/// One piece of memory to be placed.
#[derive(Clone, Debug)]
pub struct Class {
    /// What lives in it, in order of first use, with the bytes of each.
    pub members: Vec<(Item, u64)>,
    /// When it is held.
    pub life: Life,
    /// Bytes of the largest member.
    pub bytes: u64,
    /// Alignment that the members ask for, in bytes.
    pub align: u64,
    /// Whether it holds a graph output that goes to the caller's memory.
    pub caller: bool,
}

/// All classes, and the copies that keep them apart.
#[derive(Clone, Debug)]
pub struct Classes {
    /// In order of first use.
    pub classes: Vec<Class>,
    /// Copies for single readers.
    pub copies: Vec<Copy>,
    /// Outputs that were placed over an input of their node.
    pub in_place: usize,
}

/// Forms the classes.
#[must_use]
pub fn classes(
    graph: &Graph,
    table: &OpTable,
    options: &PlanOptions,
    homes: &Homes,
    schedule: &Schedule,
    mut lives: SecondaryMap<ValueId, Life>,
) -> Classes {
    let mut join = Join::new(graph, table, options, homes, schedule);
    join.add_values(&mut lives);
    join.add_workspaces();
    join.copy_results();
    join.views();
    join.collect_groups();
    join.relate_moves();
    join.walk();
    join.finish()
}

/// Index of an item: values by their id, then workspaces and copies.
type Index = u32;

/// Steps at which one group of a class is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    span: Span,
    group: Index,
}

struct Join<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    options: &'a PlanOptions,
    homes: &'a Homes,
    schedule: &'a Schedule,
    items: Vec<Entry>,
    copies: Vec<Copy>,
    /// Segments of each class, sorted, under the index of its root.
    segments: Vec<SmallVec<[Segment; 1]>>,
    /// Pairs of groups of which the first may become the second at a step, in the same memory.
    related: FxHashSet<(Index, Index, u32)>,
    in_place: usize,
}

/// Which sizes two groups may have to share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    Equal,
    Any,
}

/// What is known of one item.
#[derive(Clone, Debug)]
struct Entry {
    item: Item,
    bytes: u64,
    align: u64,
    life: Life,
    /// Whether it has memory in the plan at all.
    planned: bool,
    /// The item that this one is a view of, or itself.
    group: Index,
    /// Root of its class in the union-find forest; meaningful for groups.
    class: Index,
    /// Graph output in the caller's memory.
    caller: bool,
    /// Graph input in the arena.
    input: bool,
    /// Shares with nobody.
    alone: bool,
}

impl<'a> Join<'a> {
    fn new(
        graph: &'a Graph,
        table: &'a OpTable,
        options: &'a PlanOptions,
        homes: &'a Homes,
        schedule: &'a Schedule,
    ) -> Self {
        Join {
            graph,
            table,
            options,
            homes,
            schedule,
            items: Vec::with_capacity(graph.values.len()),
            copies: Vec::new(),
            segments: Vec::new(),
            related: FxHashSet::default(),
            in_place: 0,
        }
    }

    fn push(&mut self, item: Item, bytes: u64, align: u64, life: Life, planned: bool) -> Index {
        let index = index(self.items.len());
        self.items.push(Entry {
            item,
            bytes,
            align,
            life,
            planned,
            group: index,
            class: index,
            caller: false,
            input: false,
            alone: false,
        });
        index
    }

    fn add_values(&mut self, lives: &mut SecondaryMap<ValueId, Life>) {
        for value in self.graph.values.keys() {
            let bytes = self.graph.bytes(value).unwrap_or(0);
            let planned = self.homes.of[value] == Home::Planned;
            let life = std::mem::take(&mut lives[value]);
            self.push(Item::Value(value), bytes, 1, life, planned);
        }
        let root = &self.graph.subgraphs[self.graph.root];
        for &data in &root.inputs {
            for value in self.graph.nodes[data].outputs.iter().copied().flatten() {
                self.items[value.index()].input = true;
            }
        }
        if self.options.outputs == Placement::User {
            for value in self.results().into_iter().flatten() {
                self.items[value.index()].caller = true;
            }
        }
    }

    /// The graph's outputs, slot by slot.
    fn results(&self) -> Vec<Option<ValueId>> {
        self.graph.subgraphs[self.graph.root]
            .output
            .map(|o| self.graph.nodes[o].inputs.to_vec())
            .unwrap_or_default()
    }

    /// Scratch memory, alignments, and the nodes that share with nobody.
    fn add_workspaces(&mut self) {
        let alone: FxHashSet<&str> = self.options.no_reuse.iter().map(String::as_str).collect();
        for step in &self.schedule.steps {
            if !matches!(step.phase, Phase::Run | Phase::Begin) {
                continue;
            }
            let node = step.node;
            let effects = self.table.effects(self.graph, node);
            let life = self.schedule.span[node];
            for (k, scratch) in (0u32..).zip(&effects.scratch) {
                let life = life.into_iter().collect();
                self.push(
                    Item::Workspace(node, k),
                    scratch.size,
                    scratch.align.max(1),
                    life,
                    true,
                );
            }
            self.align_anchors(node, &effects);
            let n = &self.graph.nodes[node];
            if alone.contains(n.name.as_str()) || alone.contains(&*n.op) {
                for value in n.outputs.iter().copied().flatten() {
                    self.items[value.index()].alone = true;
                }
            }
        }
    }

    fn align_anchors(&mut self, node: NodeId, effects: &Effects) {
        let n = &self.graph.nodes[node];
        for (value, align) in n
            .inputs
            .iter()
            .zip(&effects.input_align)
            .chain(n.outputs.iter().zip(&effects.output_align))
        {
            if let Some(value) = value {
                let entry = &mut self.items[value.index()];
                entry.align = entry.align.max(*align);
            }
        }
    }

    /// Copies for outputs that cannot be handed over where they are: a caller's input as output,
    /// and one value as two of the caller's outputs.
    fn copy_results(&mut self) {
        let Some(output) = self.graph.subgraphs[self.graph.root].output else {
            return;
        };
        let mut seen = FxHashSet::default();
        for (slot, value) in (0u32..).zip(self.results()) {
            let Some(value) = value else { continue };
            let reason = match self.homes.of[value] {
                Home::CallerInput => "the output is an input in the caller's memory",
                Home::Planned if self.options.outputs == Placement::User => {
                    if self.items[value.index()].input {
                        self.items[value.index()].caller = false;
                        "the output is a planned input and goes to the caller's memory"
                    } else if seen.insert(value) {
                        continue;
                    } else {
                        "the value is two of the caller's outputs"
                    }
                }
                _ => continue,
            };
            if self.graph.bytes(value).is_none() {
                continue;
            }
            let copy = self.push_copy(value, output, slot, reason);
            self.items[copy as usize].caller = self.options.outputs == Placement::User;
        }
    }

    fn push_copy(&mut self, value: ValueId, reader: NodeId, input: u32, reason: &str) -> Index {
        let k = index(self.copies.len());
        self.copies.push(Copy {
            value,
            reader,
            input,
            reason: reason.to_owned(),
        });
        let bytes = self.graph.bytes(value).unwrap_or(0);
        let life = self.schedule.span[reader].into_iter().collect();
        self.push(Item::Copy(k), bytes, 1, life, bytes > 0)
    }

    /// Joins views into groups, in execution order so that a view's source has its group already.
    /// What is written in a variable's memory is the variable, however little is shared.
    fn views(&mut self) {
        let shared = self.options.sharing >= Sharing::Views;
        for step in 0..self.schedule.steps.len() {
            let step = self.schedule.steps[step];
            match step.phase {
                Phase::Run => {
                    let effects = self.table.effects(self.graph, step.node);
                    let node = &self.graph.nodes[step.node];
                    let views = effects.views.iter().filter(|_| shared);
                    for alias in views {
                        let from = node.input(alias.input as usize);
                        let to = node.output(alias.output as usize);
                        self.view(from, to);
                    }
                    for alias in &effects.refs {
                        let from = node.input(alias.input as usize);
                        let to = node.output(alias.output as usize);
                        self.variable(from, to);
                    }
                }
                Phase::Enter(k) if shared => {
                    let class = self.table.class(self.graph, step.node);
                    for t in transfers(self.graph, step.node, class) {
                        if t.pass == Pass::View && t.at == Point::Enter(k) {
                            self.view(t.from, t.to);
                        }
                    }
                }
                Phase::Begin | Phase::Enter(_) | Phase::End => {}
            }
        }
    }

    /// What is written in a variable's memory stays there, as a graph output too.
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

    fn view(&mut self, from: Option<ValueId>, to: Option<ValueId>) {
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let source = self.items[from.index()].group as usize;
        let (a, b) = (&self.items[source], &self.items[to.index()]);
        let outside = !a.planned && matches!(a.item, Item::Value(v) if self.homes.of[v] != Home::Dynamic);
        // An output in the caller's memory is its own memory; so is what shares with nobody.
        let apart = b.alone || a.alone || b.caller && (a.caller || a.input || outside);
        // An output whose bytes would stay in the caller's input is copied out of it.
        let leaves = outside && self.is_result(to) && matches!(a.item, Item::Value(v) if self.homes.of[v] == Home::CallerInput);
        let fits = self.graph.bytes(from) == self.graph.bytes(to) || outside;
        if !b.planned || apart || leaves || !fits || !(a.planned || outside) {
            return;
        }
        let caller = b.caller;
        let align = b.align;
        let planned = a.planned;
        self.items[to.index()].group = index(source);
        self.items[to.index()].planned = planned;
        self.items[source].caller |= caller;
        self.items[source].align = self.items[source].align.max(align);
    }

    fn is_result(&self, value: ValueId) -> bool {
        self.graph.subgraphs[self.graph.root]
            .output
            .is_some_and(|o| self.graph.nodes[o].inputs.contains(&Some(value)))
    }

    /// Gives each group the life of all its names, and makes a class of it.
    fn collect_groups(&mut self) {
        for i in 0..self.items.len() {
            let group = self.items[i].group as usize;
            if group != i {
                let life = std::mem::take(&mut self.items[i].life);
                self.items[group].life.extend(life);
            }
        }
        let whole = Span {
            first: 0,
            last: self.schedule.end(),
        };
        self.segments = Vec::with_capacity(self.items.len());
        for (i, entry) in self.items.iter_mut().enumerate() {
            if entry.alone {
                entry.life = Life::from_elem(whole, 1);
            }
            normalise(&mut entry.life);
            let group = index(i);
            let held = entry.planned && entry.group == group;
            let spans = entry.life.iter().filter(|_| held);
            self.segments
                .push(spans.map(|&span| Segment { span, group }).collect());
        }
    }

    /// Notes which groups are one value before and after a transfer.
    fn relate_moves(&mut self) {
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

    fn group(&self, value: ValueId) -> Index {
        self.items[value.index()].group
    }

    /// Meets every node and transfer in execution order and joins what may be joined.
    fn walk(&mut self) {
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
                Phase::Run => self.run(step.node, number),
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
    }

    /// References and updates in place of one node.
    fn run(&mut self, node: NodeId, step: u32) {
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
            if !self.items[target as usize].planned {
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
            return;
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

    fn find(&mut self, group: Index) -> Index {
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
        let (large, small) = if self.segments[a as usize].len() >= self.segments[b as usize].len()
        {
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

    /// The step at which an item is first written.
    fn start(&self, item: Index) -> u32 {
        let entry = &self.items[item as usize];
        match entry.item {
            Item::Value(value) => {
                let producer = self.graph.values[value].producer;
                let home = self.graph.nodes[producer].subgraph;
                self.schedule.span[producer]
                    .map_or_else(|| self.schedule.body[home].first, |s| s.first)
            }
            Item::Workspace(..) | Item::Copy(_) => entry.life.first().map_or(0, |s| s.first),
        }
    }

    fn finish(mut self) -> Classes {
        let mut place: Vec<Option<usize>> = vec![None; self.items.len()];
        let mut classes: Vec<Class> = Vec::new();
        let mut order: Vec<Index> = (0..index(self.items.len()))
            .filter(|&i| self.items[i as usize].planned)
            .collect();
        let roots: Vec<Index> = (0..index(self.items.len()))
            .map(|i| {
                let group = self.items[i as usize].group;
                self.find(group)
            })
            .collect();
        order.sort_by_key(|&i| (self.start(i), i));
        for i in order {
            let root = roots[i as usize] as usize;
            let entry = &self.items[i as usize];
            let at = *place[root].get_or_insert_with(|| {
                let head = &self.items[root];
                let mut life: Life = self.segments[root].iter().map(|s| s.span).collect();
                normalise(&mut life);
                classes.push(Class {
                    members: Vec::new(),
                    life,
                    bytes: 0,
                    align: head.align.max(1),
                    caller: head.caller,
                });
                classes.len() - 1
            });
            let class = &mut classes[at];
            class.members.push((entry.item, entry.bytes));
            class.bytes = class.bytes.max(entry.bytes);
        }
        Classes {
            classes,
            copies: self.copies,
            in_place: self.in_place,
        }
    }
}

/// Ids are 32 bits wide, and so is the number of items that a graph can have.
fn index(i: usize) -> Index {
    u32::try_from(i).unwrap_or(u32::MAX)
}
