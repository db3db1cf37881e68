//! What each step must find and what it does, from the graph and from where the plan put things.
//!
//! One walk over the steps, in which the demands on a single node are decided as well: what it
//! writes may meet what it reads only where its operator allows it, references lie in the memory
//! that they refer to, workspaces and alignments are as asked for. Runs after [`crate::order`] has
//! found nothing.

mod bodies;
mod gaps;
mod merged;
mod placed;
mod variables;

pub(crate) use placed::packed;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tenure_graph::effects::demands::bound_variables;
use tenure_graph::effects::{Alias, Effects, OpClass, OpTable, Run};
use tenure_graph::entity::EntitySet;
use tenure_graph::plan::{Item, Phase, Place, Placement, Plan, Sharing};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

use crate::alternatives::Alternatives;
use crate::findings::Findings;
use crate::layout::Layout;
use crate::program::{Names, Op, Program};
use crate::violation::{Anchor, Outside, Region, Violation};
use bodies::Owner;
use gaps::Gaps;
use placed::ClearedMemory;
use variables::Variables;

/// What the walk found out.
pub(crate) struct Demands {
    /// What each step does.
    pub(crate) program: Program,
    /// Which values have the same bytes.
    pub(crate) names: Names,
    /// Values that change from pass to pass: states of loops.
    pub(crate) cells: EntitySet<ValueId>,
    /// Which values may be members of one storage below `sharing = full`.
    pub(crate) shared: Names,
    /// Copies that a reference is written in, and the reference.
    pub(crate) written_copies: FxHashMap<u32, ValueId>,
    /// Workspaces that are cleared for their nodes, in numbers from 0 on.
    pub(crate) cleared: FxHashMap<(NodeId, u32), usize>,
}

/// Walks over the plan's steps; what is wrong goes to `findings`. `rely` tells whether stated lives
/// are looked at for gaps.
pub(crate) fn gather(
    (graph, table, alternatives): (&Graph, &OpTable, &Alternatives<'_>),
    plan: &Plan,
    rely: bool,
    layout: &mut Layout,
    findings: &mut Findings<'_>,
) -> Demands {
    let variables = Variables::new(graph, &layout.class);
    let mut gather = Gather {
        graph,
        table,
        plan,
        layout,
        findings,
        program: Program::default(),
        names: Names::new(graph.values.keys()),
        shared: Names::new(graph.values.keys()),
        cells: EntitySet::with_capacity(graph.values.len()),
        written_copies: FxHashMap::default(),
        variables,
        bound: bound_variables(graph, table),
        cleared: ClearedMemory::new(graph, table, plan),
        alternatives,
        handed: FxHashMap::default(),
        unplaced: FxHashSet::default(),
        stack: Vec::new(),
        closed: Vec::new(),
        step: 0,
    };
    gather.run(rely);
    gather.unite();
    Demands {
        program: gather.program,
        names: gather.names,
        cells: gather.cells,
        shared: gather.shared,
        written_copies: gather.written_copies,
        cleared: gather.cleared.workspaces,
    }
}

struct Gather<'g, 'a> {
    graph: &'g Graph,
    table: &'g OpTable,
    plan: &'g Plan,
    layout: &'g mut Layout,
    findings: &'g mut Findings<'a>,
    program: Program,
    names: Names,
    shared: Names,
    cells: EntitySet<ValueId>,
    /// Copies that a reference is written in, and the reference.
    written_copies: FxHashMap<u32, ValueId>,
    variables: Variables,
    /// Outputs that are written in the memory of variables, with those.
    bound: FxHashMap<ValueId, ValueId>,
    /// What must be zero, and who clears it.
    cleared: ClearedMemory,
    /// What is made for nodes that hand on one of several.
    alternatives: &'g Alternatives<'g>,
    /// Where nodes that have copies find the values that they hand over.
    handed: FxHashMap<(NodeId, ValueId), SmallVec<[Item; 1]>>,
    /// Values that were found to have no memory.
    unplaced: FxHashSet<ValueId>,
    /// Nodes with bodies that are open.
    stack: Vec<Owner>,
    /// Nodes with bodies that have ended, in that order.
    closed: Vec<Owner>,
    step: u32,
}

/// Something that a node reads at a place.
#[derive(Clone, Copy)]
struct Reading {
    anchor: Anchor,
    item: Item,
    region: Region,
}

/// Something that a node writes at a place.
#[derive(Clone, Copy)]
struct Writing {
    item: Item,
    region: Region,
    /// The output slot, if it is an output that may lie over an input.
    output: Option<u32>,
    /// The input slot, if it is garbage that is left there.
    garbage: Option<u32>,
}

impl Gather<'_, '_> {
    fn run(&mut self, rely: bool) {
        self.graph_inputs();
        let mut gaps = rely.then(|| Gaps::new(self.graph, self.plan));
        for (number, step) in (0u32..).zip(&self.plan.steps) {
            self.step = number;
            self.program.starts.push(self.program.ops.len());
            let class = |node| self.layout.class[node];
            let taken = gaps
                .as_mut()
                .map(|g| g.go_to(self.graph, self.plan, number, class));
            let taken = taken.into_iter().flatten();
            self.program
                .ops
                .extend(taken.map(|storage| Op::Take { storage }));
            match step.phase {
                Phase::Run => {
                    let subgraph = self.graph.nodes[step.node].subgraph;
                    if self.graph.subgraphs[subgraph].output == Some(step.node) {
                        self.results(step.node);
                    } else {
                        self.node(step.node);
                    }
                }
                Phase::Begin => self.begin(step.node),
                Phase::Enter(k) => self.enter(k),
                Phase::End => self.end(),
            }
            if self.findings.is_full() {
                break;
            }
        }
        self.kept_inputs();
        self.caller_memory();
        self.program.starts.push(self.program.ops.len());
    }

    fn graph_inputs(&mut self) {
        for value in self.root_inputs() {
            self.settle(value, None);
            if self.layout.spot(Item::Value(value)).is_some() {
                self.program.prologue.push(Op::Write {
                    item: Item::Value(value),
                    anchor: Anchor::GraphInput,
                    carries: None,
                });
            }
        }
    }

    fn kept_inputs(&mut self) {
        let inputs = &self.graph.subgraphs[self.graph.root].inputs;
        let kept = (inputs.iter().enumerate()).filter(|&(k, _)| self.plan.options.keeps_input(k));
        let values = kept.flat_map(|(_, &data)| self.graph.nodes[data].outputs.iter().flatten());
        for &value in values {
            if self.layout.spot(Item::Value(value)).is_some() {
                self.program.ops.push(Op::Read {
                    item: Item::Value(value),
                    anchor: Anchor::KeptInput,
                });
            }
        }
    }

    fn root_inputs(&self) -> Vec<ValueId> {
        let root = &self.graph.subgraphs[self.graph.root];
        let data = root.nodes.iter().copied();
        data.filter(|&n| self.layout.class[n] == OpClass::Input)
            .flat_map(|n| self.graph.nodes[n].outputs.iter().flatten().copied())
            .collect()
    }

    /// Decides where a value lives when its producer's step comes, and that it has memory if it
    /// needs any. `source` is what it is another name of, if anything.
    fn settle(&mut self, value: ValueId, source: Option<ValueId>) {
        if self.layout.outside[value].is_some() {
            return;
        }
        let spot = self.layout.spot(Item::Value(value));
        // A name for a variable's bytes is the variable, whatever the options say.
        if let Some(variable) = source.filter(|&s| self.is_variable(s)) {
            if let Some(spot) = spot {
                self.findings.push(Violation::OutsidePlaced {
                    value: self.findings.value(value),
                    outside: Outside::Variable,
                    storage: spot.storage,
                });
            }
            self.layout.outside[value] = Some(Outside::Variable);
            self.variables.same(value, variable);
            return;
        }
        if spot.is_some() {
            return;
        }
        // A name for bytes outside is outside itself.
        let inherited = source
            .filter(|_| self.plan.options.sharing >= Sharing::Views)
            .and_then(|s| self.layout.outside[s])
            .filter(|&outside| outside != Outside::Dynamic);
        if let (Some(_), Some(source)) = (inherited, source) {
            self.layout.outside[value] = inherited;
            self.variables.same(value, source);
            return;
        }
        match self.graph.bytes(value) {
            None => {
                self.layout.outside[value] = Some(Outside::Dynamic);
                if !self.layout.dynamic.contains(value) {
                    self.findings.push(Violation::DynamicList {
                        value: self.findings.value(value),
                        listed: false,
                    });
                }
            }
            Some(0) => {}
            Some(bytes) => {
                if self.unplaced.insert(value) {
                    self.findings.push(Violation::Unplaced {
                        item: self.findings.item(Item::Value(value)),
                        bytes,
                    });
                }
            }
        }
    }

    /// Where a node finds the value in one of its input slots: in a copy, if it has one.
    fn source(&self, node: NodeId, slot: u32, value: ValueId) -> Item {
        let copy = self.layout.copy_at.get(&(node, slot));
        copy.map_or(Item::Value(value), |&k| Item::Copy(k))
    }

    /// All places in which a node finds a value that it hands over: its input slots may have
    /// copies of their own.
    fn sources(&self, node: NodeId, value: ValueId) -> SmallVec<[Item; 1]> {
        let copied = self.handed.get(&(node, value));
        copied.map_or_else(
            || SmallVec::from_elem(Item::Value(value), 1),
            SmallVec::clone,
        )
    }

    /// The bytes of an item; `None` if it has none in planned memory.
    fn region(&self, item: Item) -> Option<Region> {
        let region = self.layout.spot(item)?.region;
        (region.start < region.end).then_some(region)
    }

    fn read(&mut self, item: Item, anchor: Anchor) {
        self.program.ops.push(Op::Read { item, anchor });
        if let Item::Value(value) = item {
            self.touch(value, false);
        }
    }

    /// If the value is a name of a variable, the node of this step must come in its place among
    /// those that touch it.
    fn touch(&mut self, value: ValueId, writes: bool) {
        let Some(step) = self.plan.steps.get(self.step as usize) else {
            return;
        };
        let touch = self.variables.touch(self.graph, step.node, value, writes);
        if let Some((variable, before)) = touch {
            self.findings.push(Violation::VariableOrder {
                site: self.findings.site(self.step, step.node),
                verb: if writes { "writes" } else { "reads" },
                variable: self.findings.value(variable),
                before: self.findings.node(before),
            });
        }
    }

    fn write(&mut self, item: Item, anchor: Anchor, carries: Option<ValueId>) {
        let write = Op::Write {
            item,
            anchor,
            carries,
        };
        self.program.ops.push(write);
    }

    /// The copies that are made right before a node runs.
    fn copies(&mut self, node: NodeId) {
        let Some(copies) = self.layout.copies_of.get(&node).cloned() else {
            return;
        };
        for (slot, &value) in (0u32..).zip(&self.graph.nodes[node].inputs) {
            if let Some(value) = value {
                let item = self.source(node, slot, value);
                let places = self.handed.entry((node, value)).or_default();
                // Slots without a copy all find the value itself.
                if places.last() != Some(&item) {
                    places.push(item);
                }
            }
        }
        for k in copies {
            let value = self.plan.copies[k as usize].value;
            let (from, to) = (Item::Value(value), Item::Copy(k));
            self.read(from, Anchor::Copy(k));
            let Some(region) = self.region(to) else {
                let bytes = self.graph.bytes(value).unwrap_or(0);
                if bytes > 0 {
                    let item = self.findings.item(to);
                    self.findings.push(Violation::Unplaced { item, bytes });
                }
                continue;
            };
            if !self.coincide(node, from, to, region) {
                self.write(to, Anchor::Copy(k), None);
            }
        }
    }

    /// Whether two places are the same, so that nothing is copied; a violation if they overlap
    /// and are not.
    fn coincide(&mut self, node: NodeId, from: Item, to: Item, region: Region) -> bool {
        let Some(source) = self.region(from) else {
            return false;
        };
        let same = source.memory == region.memory && source.start == region.start;
        if !same && source.meets(&region) {
            self.findings.push(Violation::PartialOverlap {
                site: self.findings.site(self.step, node),
                from: self.findings.item(from),
                source_region: source,
                to: self.findings.item(to),
                region,
            });
        }
        same
    }

    /// A value becomes another name of the bytes of `source`, which begin where it begins.
    fn name(&mut self, value: ValueId, source: Region, region: Region, anchor: Anchor) {
        self.program.ops.push(Op::Name { value, anchor });
        let from = source.end - source.start;
        if from < region.end - region.start {
            let extend = Op::Extend {
                value,
                from,
                anchor,
            };
            self.program.ops.push(extend);
        }
    }

    /// Two values may be members of one storage though the options allow no more than views.
    fn share(&mut self, to: ValueId, from: ValueId) {
        if self.plan.options.sharing >= Sharing::Views {
            self.shared.same(to, from);
        }
    }

    /// `to` has the bytes of `from` in every run, if `from` cannot change behind its back.
    fn same(&mut self, to: ValueId, from: ValueId) {
        if !self.is_variable(from) {
            self.names.same(to, from);
        }
    }

    /// Whether a value is a name of a variable, whose bytes are those of the moment.
    fn is_variable(&self, value: ValueId) -> bool {
        self.layout.outside[value] == Some(Outside::Variable)
    }

    fn node(&mut self, id: NodeId) {
        let effects = self.table.effects(self.graph, id);
        let node = &self.graph.nodes[id];
        self.copies(id);
        self.clears(id);
        self.is_cleared(id, &effects);
        let mut readings = self.inputs(id, &effects);
        let mut writings = self.workspaces(id, &effects);
        let mut named = Vec::new();
        for (slot, &value) in (0u32..).zip(&node.outputs) {
            let Some(value) = value else { continue };
            let anchor = Anchor::Output(slot);
            if let Some(&variable) = self.bound.get(&value) {
                self.settle(value, Some(variable));
                self.touch(variable, true);
                continue;
            }
            let reference = effects.refs.iter().find(|a| a.output == slot);
            let is_one = is_one_memory(&effects, slot) || slot == 0 && self.hands_on(id, &effects);
            let view = effects
                .view_of(slot)
                .filter(|_| reference.is_none() && !is_one);
            let input = |k: u32| node.input(k as usize);
            let source = view.or(reference.map(|a| a.input)).and_then(input);
            if let Some(alias) = reference {
                self.reference(id, value, alias, &effects);
            }
            match (view, source) {
                (Some(_), Some(from)) => {
                    self.settle(value, source);
                    // One alternative of a merge keeps its name when the others are written.
                    if !self.alternatives.has(value) {
                        self.same(value, from);
                    }
                    self.share(value, from);
                }
                _ => self.settle(value, None),
            }
            let Some(region) = self.region(Item::Value(value)) else {
                continue;
            };
            self.alignment(
                id,
                Item::Value(value),
                effects.output_align.get(slot as usize),
            );
            let shared = match (view, source) {
                // The pieces lie where they must, or that is found elsewhere.
                _ if is_one => Some(region),
                (Some(k), Some(from)) => {
                    let from = self.source(id, k, from);
                    let is_here = self.coincide(id, from, Item::Value(value), region);
                    is_here.then(|| self.region(from).unwrap_or(region))
                }
                _ => None,
            };
            if let Some(source) = shared {
                named.push((value, source, region, anchor));
                readings.push(Reading {
                    anchor,
                    item: Item::Value(value),
                    region,
                });
                continue;
            }
            writings.push(Writing {
                item: Item::Value(value),
                region,
                output: Some(slot),
                garbage: None,
            });
        }
        if effects.merges {
            self.merged(id, &effects);
        }
        let garbage = self.placed(id, &effects);
        for (value, source, region, anchor) in named {
            self.name(value, source, region, anchor);
        }
        for w in &writings {
            let anchor = match (w.item, w.output) {
                (_, Some(slot)) => Anchor::Output(slot),
                (Item::Workspace(_, k), None) => Anchor::Workspace(k),
                _ => continue,
            };
            self.write(w.item, anchor, None);
        }
        let spoils = garbage.iter().map(|w| Op::Spoil { item: w.item });
        self.program.ops.extend(spoils);
        writings.extend(garbage);
        self.apart(id, &effects, &readings, &mut writings);
    }

    /// The reads of a node, and where they happen.
    fn inputs(&mut self, id: NodeId, effects: &Effects) -> Vec<Reading> {
        let mut readings = Vec::new();
        for (slot, &value) in (0u32..).zip(&self.graph.nodes[id].inputs) {
            let Some(value) = value else { continue };
            let viewed = || effects.views.iter().any(|a| a.input == slot);
            let unread = self.plan.options.sharing >= Sharing::Views
                && effects.shape_only.contains(&slot)
                && !viewed();
            if unread {
                continue;
            }
            self.input(id, effects, slot, value, &mut readings);
        }
        readings
    }

    /// One input is read.
    fn input(
        &mut self,
        id: NodeId,
        effects: &Effects,
        slot: u32,
        value: ValueId,
        readings: &mut Vec<Reading>,
    ) {
        let item = self.source(id, slot, value);
        let anchor = Anchor::Input(slot);
        self.read(item, anchor);
        if let Some(region) = self.region(item) {
            self.alignment(id, item, effects.input_align.get(slot as usize));
            readings.push(Reading {
                anchor,
                item,
                region,
            });
        }
    }

    fn alignment(&mut self, id: NodeId, item: Item, align: Option<&u64>) {
        let (Some(spot), Some(&align)) = (self.layout.spot(item), align) else {
            return;
        };
        // The base of the memory is aligned as its storage says.
        let base = self.plan.storages[spot.storage].align;
        let start = spot.region.start;
        if align > base || !start.is_multiple_of(align.max(1)) {
            let item = self.findings.item(item).name;
            let node = self.findings.node(id).name;
            self.findings.push(Violation::Misaligned {
                what: format!("{item}, as {node} needs it,"),
                offset: start,
                align,
            });
        }
    }

    fn workspaces(&mut self, id: NodeId, effects: &Effects) -> Vec<Writing> {
        let mut writings = Vec::new();
        for (k, scratch) in effects.workspaces() {
            let item = Item::Workspace(id, k);
            let Some(region) = self.region(item) else {
                self.findings.push(Violation::Unplaced {
                    item: self.findings.item(item),
                    bytes: scratch.size,
                });
                continue;
            };
            self.alignment(id, item, Some(&scratch.align));
            writings.push(Writing {
                item,
                region,
                output: None,
                garbage: None,
            });
        }
        writings
    }

    /// A reference is written in the memory of its input, and that memory may be written.
    fn reference(&mut self, id: NodeId, output: ValueId, alias: &Alias, effects: &Effects) {
        let Some(input) = self.graph.nodes[id].input(alias.input as usize) else {
            return;
        };
        let item = self.source(id, alias.input, input);
        let copied = matches!(item, Item::Copy(_));
        let outside = self.layout.outside[input];
        let anchor = Anchor::Input(alias.input);
        match item {
            Item::Copy(k) => {
                self.written_copies.insert(k, output);
            }
            _ => self.shared.same(output, input),
        }
        // Where there are no bytes, there is nothing to lie in.
        let empty = |v| self.graph.bytes(v) == Some(0);
        if empty(output) || empty(input) && outside != Some(Outside::Variable) {
            return;
        }
        if let (Some(Outside::Constant | Outside::CallerInput), false) = (outside, copied) {
            self.findings.push(Violation::OutsideWritten {
                site: self.findings.site(self.step, id),
                output: self.findings.value(output),
                anchor,
                input: self.findings.value(input),
                outside: outside.unwrap_or(Outside::Constant),
            });
            return;
        }
        let place = self.region(Item::Value(output));
        let here = match outside {
            // What is written in a variable's memory is the variable, unless it must lie elsewhere.
            Some(Outside::Variable) if !(copied && effects.is_placed(*alias)) => {
                let here = place.is_none() && !copied;
                if here {
                    self.layout.outside[output] = outside;
                    self.variables.same(output, input);
                    self.touch(input, true);
                }
                here
            }
            _ => match (place, self.region(item)) {
                (Some(to), Some(from)) => to.memory == from.memory && to.start == from.start,
                // A value of unknown size has no place yet, and neither has its reference.
                (place, source) => place.is_none() && source.is_none(),
            },
        };
        if !here {
            self.findings.push(Violation::RefElsewhere {
                site: self.findings.site(self.step, id),
                output: self.findings.value(output),
                anchor,
                input: self.findings.value(input),
            });
        }
    }

    /// What a node writes meets neither what else it writes nor, unless its operator allows it,
    /// what it reads.
    fn apart(
        &mut self,
        id: NodeId,
        effects: &Effects,
        readings: &[Reading],
        writings: &mut [Writing],
    ) {
        writings.sort_unstable_by_key(|w| w.region);
        for pair in writings.windows(2) {
            let (a, b) = (pair[0].region, pair[1].region);
            if a.meets(&b) {
                self.findings.push(Violation::OutputsOverlap {
                    site: self.findings.site(self.step, id),
                    first: self.findings.item(pair[0].item),
                    second: self.findings.item(pair[1].item),
                    region: Region {
                        memory: a.memory,
                        start: b.start,
                        end: a.end.min(b.end),
                    },
                });
                // Without order among the writes the search below finds nothing sensible.
                return;
            }
        }
        // Inputs that lie exactly where an output is written, by the output's place in the list.
        let mut sharers: Vec<SmallVec<[Reading; 2]>> = vec![SmallVec::new(); writings.len()];
        for r in readings {
            // Writes are disjoint and sorted, so their ends ascend as well.
            let first = writings.partition_point(|w| {
                (w.region.memory, w.region.end) <= (r.region.memory, r.region.start)
            });
            let meeting = writings.iter().enumerate().skip(first);
            for (i, w) in meeting.take_while(|(_, w)| w.region.meets(&r.region)) {
                if Self::is_own_garbage(w, r) {
                    continue;
                }
                let input = matches!(r.anchor, Anchor::Input(_));
                if input && w.output.is_some() && w.region.start == r.region.start {
                    sharers[i].push(*r);
                } else {
                    self.over_input(id, w, r);
                }
                if self.findings.is_full() {
                    return;
                }
            }
        }
        for (w, sharers) in writings.iter().zip(&sharers) {
            if let Some(r) = w.output.and_then(|o| not_tolerated(effects, o, sharers)) {
                self.over_input(id, w, &r);
            }
        }
    }

    fn over_input(&mut self, id: NodeId, w: &Writing, r: &Reading) {
        let value = match r.item {
            Item::Copy(k) => self.plan.copies[k as usize].value,
            Item::Value(value) => value,
            Item::Workspace(..) => return,
        };
        self.findings.push(Violation::OverInput {
            site: self.findings.site(self.step, id),
            item: self.findings.item(w.item),
            region: w.region,
            anchor: r.anchor,
            value: self.findings.value(value),
        });
    }

    /// Graph outputs that the caller owns have one storage each, and nothing else has.
    fn caller_memory(&mut self) {
        let user = self.plan.options.outputs == Placement::User;
        let mut held: FxHashMap<StorageId, u32> = FxHashMap::default();
        let output = self.graph.subgraphs[self.graph.root].output;
        let results = output.into_iter().filter(|_| user).flat_map(|id| {
            let slots = (0u32..).zip(&self.graph.nodes[id].inputs);
            slots.filter_map(move |(slot, &value)| Some((id, slot, value?)))
        });
        for (id, slot, value) in results {
            let Some(spot) = self.layout.spot(self.source(id, slot, value)) else {
                continue;
            };
            let caller = self.plan.storages[spot.storage].place == Place::Caller;
            if !caller || spot.region.start != 0 || held.insert(spot.storage, slot).is_some() {
                let what = format!("output {slot}, {}", self.findings.value(value));
                self.findings.push(Violation::WrongMemory { what });
            }
        }
        for (storage, s) in &self.plan.storages {
            if s.place == Place::Caller && !held.contains_key(&storage) {
                let what = self.findings.storage(storage).name;
                self.findings.push(Violation::WrongMemory { what });
            }
        }
    }
}

/// Whether an output is one memory with pieces on the other side of a node that has no task.
fn is_one_memory(effects: &Effects, output: u32) -> bool {
    let is_whole = |run: Option<Run>| run.is_some_and(|run| run.whole);
    output == 0 && is_whole(effects.input_run) || is_whole(effects.output_run)
}

/// An input that output `output` may not be written over, of those that lie where it is written.
/// `None` if the operator lets the output take over one of them and reads the others element by
/// element where it writes.
fn not_tolerated(effects: &Effects, output: u32, sharers: &[Reading]) -> Option<Reading> {
    let slot = |r: &Reading| match r.anchor {
        Anchor::Input(slot) => slot,
        _ => u32::MAX,
    };
    let entry = |r: &Reading| {
        let input = slot(r);
        let entry = Alias { output, input };
        let may = effects.refs.contains(&entry) || effects.in_place.contains(&entry);
        may.then_some(entry)
    };
    let refused = |entry: Alias| {
        let mut all = sharers.iter();
        all.find(|r| !effects.tolerates(entry, [slot(r)])).copied()
    };
    let Some(first) = sharers.iter().find_map(entry) else {
        return sharers.first().copied();
    };
    // What the first does not tolerate must be what is taken over itself.
    let other = refused(first)?;
    entry(&other).map_or(Some(other), refused)
}
