//! Executes a plan in symbols and compares every read with a run in which nothing shares memory.
//!
//! Each write makes content that was never there before, so stale bytes are never right by
//! chance. Bytes are grouped into the stretches between any two edges of places in the plan:
//! within one, all bytes fare alike.

mod frame;

use std::collections::{BTreeMap, BTreeSet};
use tenure_check::Memory;
use tenure_graph::control::{Pass, Point, Transfer, transfers};
use tenure_graph::effects::{Alias, OpClass, OpTable};
use tenure_graph::plan::{Item, Phase, Place, Plan, Sharing};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

use frame::{Frame, Spot};

/// What several runs have shown.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The first read that found other bytes, in words.
    pub(crate) wrong: Option<String>,
    /// Whether bytes were equal for a reason that the checker does not look for, and that may last
    /// for ever: a state of a loop equals another state or what it was before a pass that does not
    /// hand it on as it is, a pass overwrote bytes and put the same ones back, or the condition of
    /// a `While`, which runs at least once, put back what was overwritten before the loop.
    pub(crate) coincidence: bool,
    /// Steps at which storages were accessed.
    pub(crate) accesses: BTreeSet<(StorageId, u32)>,
}

/// Runs a plan, in memory that is given back wherever lives say so if `relies_on_lives`, with
/// different decisions: a few times, and then until that is enough, but no more
/// than 2000 times. Whatever shows at all shows in far fewer.
pub(crate) fn execute(
    graph: &Graph,
    table: &OpTable,
    plan: &Plan,
    relies_on_lives: bool,
    seed: u64,
    enough: impl Fn(&Outcome) -> bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    let frame = Frame::new(graph, table, plan, relies_on_lives);
    for run in 0..2000 {
        if run >= 16 && enough(&outcome) {
            break;
        }
        let mut machine = Machine {
            f: &frame,
            memory: BTreeMap::new(),
            passes: Vec::new(),
            lost: BTreeSet::new(),
            content: BTreeMap::new(),
            variables: BTreeSet::new(),
            taken: BTreeMap::new(),
            next: 0,
            step: 0,
            run,
            rng: fastrand::Rng::with_seed(seed ^ u64::from(run)),
            outcome: &mut outcome,
        };
        machine.run();
    }
    outcome
}

/// Which content some bytes are of, and from which of its bytes on.
type Content = (u64, u64);

/// A byte of some memory.
type Byte = (Memory, u64);

/// One run.
struct Machine<'f, 'a> {
    f: &'f Frame<'a>,
    /// Content of each stretch: which content, and which of its bytes the stretch begins with.
    memory: BTreeMap<Byte, Content>,
    /// For each pass of a loop that is under way: what stood where it wrote, and whether something
    /// else stood there since.
    passes: Vec<BTreeMap<Byte, (Option<Content>, bool)>>,
    /// Content that each stretch has lost.
    lost: BTreeSet<(Byte, Content)>,
    /// Content of each value, in memory of its own.
    content: BTreeMap<ValueId, u64>,
    /// Values that are names of a variable.
    variables: BTreeSet<ValueId>,
    /// Content of copies of variables: what they held when the copy was made.
    taken: BTreeMap<u32, u64>,
    next: u64,
    step: u32,
    run: u32,
    rng: fastrand::Rng,
    outcome: &'f mut Outcome,
}

impl Machine<'_, '_> {
    fn run(&mut self) {
        let f = self.f;
        let root = &f.graph.subgraphs[f.graph.root];
        for (id, node) in &f.graph.nodes {
            let class = f.class(id);
            let given = matches!(class, OpClass::Constant | OpClass::Variable)
                || f.plan.folded.contains(&id)
                || class == OpClass::Input && node.subgraph == f.graph.root;
            for &value in node.outputs.iter().flatten().filter(|_| given) {
                let content = self.fresh();
                self.define(value, content);
                if class == OpClass::Variable {
                    self.variables.insert(value);
                }
            }
        }
        self.steps(0, u32::try_from(f.plan.steps.len()).unwrap());
        for (position, &data) in root.inputs.iter().enumerate() {
            if f.plan.options.keeps_input(position) {
                for &value in f.graph.nodes[data].outputs.iter().flatten() {
                    self.read(Item::Value(value), value);
                }
            }
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn fail(&mut self, text: String) {
        self.outcome.wrong.get_or_insert(text);
    }

    /// The content of an item that has that of a value, as far as it is known.
    fn content_of(&self, item: Item, value: ValueId) -> Option<u64> {
        let taken = match item {
            Item::Copy(k) => self.taken.get(&k),
            Item::Value(_) | Item::Workspace(..) => None,
        };
        taken.or_else(|| self.content.get(&value)).copied()
    }

    /// A value gets the content of another, which is found in an item. The content of a variable
    /// is that of the moment: what is taken from it at two times need not be equal. A view of a
    /// variable is the variable, and nothing is taken.
    fn passed_on(&mut self, item: Item, from: ValueId, to: ValueId, is_view: bool) -> u64 {
        let mut content = self.content_of(item, from).unwrap_or(0);
        if self.variables.contains(&from) {
            if is_view && self.f.spots.contains_key(&Item::Value(to)) {
                self.fail(format!("{to} is a variable and lies elsewhere"));
            }
            if !self.f.spots.contains_key(&Item::Value(to)) {
                self.variables.insert(to);
            } else if item == Item::Value(from) {
                content = self.fresh();
            }
        }
        self.content.insert(to, content);
        content
    }

    /// A value gets content, in its own memory and in the plan's.
    fn define(&mut self, value: ValueId, content: u64) {
        self.content.insert(value, content);
        self.store(Item::Value(value), Some(content), 0);
    }

    /// Writes the bytes of an item from its byte `from` on; no content is garbage.
    fn store(&mut self, item: Item, content: Option<u64>, from: u64) {
        let Some(&spot) = self.f.spots.get(&item) else {
            return;
        };
        self.outcome.accesses.insert((spot.storage, self.step));
        for &edge in self.f.edges(&spot, from) {
            let new = content.map(|c| (c, edge - spot.start));
            self.put((spot.memory, edge), new);
        }
    }

    /// A stretch holds other content from now on; none is garbage.
    fn put(&mut self, place: Byte, new: Option<Content>) {
        let old = match new {
            Some(new) => self.memory.insert(place, new),
            None => self.memory.remove(&place),
        };
        if old != new {
            self.lost.extend(old.map(|old| (place, old)));
        }
        for pass in &mut self.passes {
            let (stood, changed) = pass.entry(place).or_insert((old, false));
            *changed |= new != *stood;
        }
    }

    /// A step is next. A storage that was not held at the last one, and is now, holds garbage.
    fn go_to(&mut self, step: u32) {
        let f = self.f;
        let before = std::mem::replace(&mut self.step, step);
        if before == step || !f.relies_on_lives {
            return;
        }
        let held = |step: u32| &f.held[step as usize];
        for &id in held(step) {
            if held(before).binary_search(&id).is_ok() {
                continue;
            }
            let storage = &f.plan.storages[id];
            let (memory, start) = match storage.place {
                Place::Arena { arena, offset } => (Memory::Arena(arena), offset),
                Place::Caller => (Memory::Caller(id), 0),
            };
            let edges = f.edges.get(&memory).map_or(&[][..], Vec::as_slice);
            for &edge in edges {
                if start <= edge && edge < start + storage.size {
                    self.put((memory, edge), None);
                }
            }
        }
    }

    fn read(&mut self, item: Item, value: ValueId) {
        let Some(content) = self.content_of(item, value) else {
            self.fail(format!(
                "{value} is read at step {} before it is made",
                self.step
            ));
            return;
        };
        let Some(&spot) = self.f.spots.get(&item) else {
            return;
        };
        self.outcome.accesses.insert((spot.storage, self.step));
        for &edge in self.f.edges(&spot, 0) {
            let expected = Some((content, edge - spot.start));
            if self.memory.get(&(spot.memory, edge)).copied() != expected {
                let (step, run) = (self.step, self.run);
                self.fail(format!("{item:?} is wrong at step {step} in run {run}"));
                return;
            }
        }
    }

    fn steps(&mut self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            self.go_to(at);
            let step = self.f.plan.steps[at as usize];
            let n = &self.f.graph.nodes[step.node];
            if step.phase == Phase::Begin {
                self.owner(step.node);
                at = self.f.bodies[&step.node].1;
            } else if self.f.graph.subgraphs[n.subgraph].output == Some(step.node) {
                self.copies(step.node);
                self.read_inputs(step.node);
            } else {
                self.node(step.node);
            }
            at += 1;
        }
    }

    fn copies(&mut self, node: NodeId) {
        for (k, copy) in (0u32..).zip(&self.f.plan.copies) {
            if copy.reader == node {
                self.read(Item::Value(copy.value), copy.value);
                let mut content = self.content.get(&copy.value).copied();
                if self.variables.contains(&copy.value) {
                    let now = self.fresh();
                    self.taken.insert(k, now);
                    content = Some(now);
                }
                let (from, to) = (Item::Value(copy.value), Item::Copy(k));
                let spots = &self.f.spots;
                // In the value's own place there is nothing to do, so nothing is accessed.
                let idle = matches!((spots.get(&from), spots.get(&to)), (Some(a), Some(b)) if a.starts_with(b));
                if !idle {
                    self.move_bytes(from, to, content);
                }
            }
        }
    }

    /// Bytes pass from one place to another; where both are the same, nothing is written but what
    /// the target has more.
    fn move_bytes(&mut self, from: Item, to: Item, content: Option<u64>) {
        let spots = &self.f.spots;
        let from = match (spots.get(&from), spots.get(&to)) {
            (Some(a), Some(b)) if a.starts_with(b) => a.end - a.start,
            (Some(a), Some(b)) if a.meets(b) => {
                let step = self.step;
                self.fail(format!(
                    "{to:?} is copied over a part of itself at step {step}"
                ));
                0
            }
            _ => 0,
        };
        self.store(to, content, from);
    }

    fn read_inputs(&mut self, node: NodeId) -> Vec<(u32, Spot)> {
        let effects = self.f.effects(node);
        let mut reads = Vec::new();
        for (slot, &value) in (0u32..).zip(&self.f.graph.nodes[node].inputs) {
            let Some(value) = value else { continue };
            let asked_for_shape = self.f.plan.options.sharing != Sharing::None
                && effects.shape_only.contains(&slot)
                && effects.views.iter().all(|a| a.input != slot);
            if !asked_for_shape {
                let item = self.f.source(node, slot, value);
                self.read(item, value);
                reads.extend(self.f.spots.get(&item).map(|&spot| (slot, spot)));
            }
        }
        reads
    }

    fn node(&mut self, node: NodeId) {
        let f = self.f;
        let effects = f.effects(node);
        self.copies(node);
        let reads = self.read_inputs(node);
        let mut writes: Vec<(Option<u32>, Spot)> = Vec::new();
        let mut kept: Vec<Spot> = Vec::new();
        for (k, _) in (0u32..).zip(&effects.scratch) {
            let item = Item::Workspace(node, k);
            writes.extend(f.spots.get(&item).map(|&spot| (None, spot)));
            self.store(item, None, 0);
        }
        let outputs = &f.graph.nodes[node].outputs;
        for (slot, &value) in (0u32..).zip(outputs) {
            let Some(value) = value else { continue };
            let is_ref = effects.refs.iter().any(|a| a.output == slot);
            let source = effects.view_of(slot).filter(|_| !is_ref);
            let source = source.and_then(|k| Some((k, f.graph.nodes[node].input(k as usize)?)));
            let to = f.spots.get(&Item::Value(value)).copied();
            let Some((k, from)) = source else {
                writes.extend(to.map(|spot| (Some(slot), spot)));
                continue;
            };
            let item = f.source(node, k, from);
            let content = self.passed_on(item, from, value, true);
            self.move_bytes(item, Item::Value(value), Some(content));
            match (f.spots.get(&item), to) {
                (Some(a), Some(b)) if a.starts_with(&b) => kept.push(b),
                _ => writes.extend(to.map(|spot| (Some(slot), spot))),
            }
        }
        for (slot, &value) in (0u32..).zip(outputs) {
            let Some(value) = value else { continue };
            let is_ref = effects.refs.iter().any(|a| a.output == slot);
            let source = effects.refs.iter().find(|a| a.output == slot);
            let source = source.and_then(|a| f.graph.nodes[node].input(a.input as usize));
            if source.is_some_and(|v| self.variables.contains(&v)) {
                self.variables.insert(value);
            }
            if is_ref || effects.view_of(slot).is_none() {
                let content = self.fresh();
                self.define(value, content);
            }
        }
        // What would go wrong inside the node, whose reads and writes happen at the same time.
        for (i, (slot, w)) in writes.iter().enumerate() {
            let over_write = writes[..i].iter().any(|(_, other)| other.meets(w));
            let over_view = kept.iter().any(|v| v.meets(w));
            // One input is taken over, and every other one there is read in step with the write.
            let there: Vec<&(u32, Spot)> = reads.iter().filter(|(_, r)| r.meets(w)).collect();
            let taken = |a: &Alias| {
                let in_step = |input: u32| effects.aligned.contains(&Alias { input, ..*a });
                Some(a.output) == *slot
                    && there.iter().any(|(input, _)| *input == a.input)
                    && there.iter().all(|(input, r)| {
                        r.starts_with(w) && (*input == a.input || in_step(*input))
                    })
            };
            let mut takes = effects.in_place.iter().chain(&effects.refs);
            let over_read = !there.is_empty() && !takes.any(taken);
            if over_write || over_view || over_read {
                let step = self.step;
                self.fail(format!("{node} destroys what it works with at step {step}"));
            }
        }
    }

    fn owner(&mut self, node: NodeId) {
        let f = self.f;
        let class = f.class(node);
        let transfers = transfers(f.graph, node, class);
        let (bodies, end) = f.bodies[&node].clone();
        let n = &f.graph.nodes[node];
        let begin = self.step;
        self.copies(node);
        self.transfer(node, &transfers, Point::Begin);
        self.look_for_coincidence(node, &transfers, &BTreeMap::new());
        self.own_inputs(node, &transfers);
        let effects = f.effects(node);
        for (k, _) in (0u32..).zip(&effects.scratch) {
            let item = Item::Workspace(node, k);
            self.store(item, None, 0);
            if let Some(spot) = f.spots.get(&item) {
                let held = (begin..=end).map(|step| (spot.storage, step));
                self.outcome.accesses.extend(held);
            }
        }
        // What is filled bit by bit is held, and looked at, from the start on.
        let is_target = |v: ValueId| transfers.iter().any(|t| t.to == Some(v));
        let is_state = |v: ValueId| {
            let start = |t: &Transfer| t.to == Some(v) && t.at == Point::Begin;
            transfers.iter().any(start)
        };
        let filled = |v: &ValueId| {
            class == OpClass::Opaque || class.repeats() && is_target(*v) && !is_state(*v)
        };
        let outputs: Vec<ValueId> = n.outputs.iter().flatten().copied().collect();
        for &value in outputs.iter().filter(|v| filled(v)) {
            let content = self.fresh();
            self.define(value, content);
        }
        let count = u32::try_from(bodies.len()).unwrap();
        let passes = if self.run < 4 {
            self.run
        } else {
            self.rng.u32(0..4)
        };
        let cond = n.bodies.iter().position(|b| &*b.role == "cond");
        let order: Vec<u32> = match class {
            OpClass::Branch if self.run < 4 => vec![self.run % count],
            OpClass::Branch => vec![self.rng.u32(0..count)],
            OpClass::Call => (0..count).collect(),
            OpClass::While => {
                let cond = cond.map(|c| u32::try_from(c).unwrap());
                let others: Vec<u32> = (0..count).filter(|&k| Some(k) != cond).collect();
                let pass = || cond.into_iter().chain(others.iter().copied());
                (0..passes).flat_map(|_| pass()).chain(cond).collect()
            }
            OpClass::Opaque => (0..passes * count)
                .map(|_| self.rng.u32(0..count))
                .collect(),
            _ => (0..passes).flat_map(|_| 0..count).collect(),
        };
        let before = (self.memory.clone(), self.lost.clone());
        for k in order {
            let (enter, results) = bodies[k as usize];
            self.go_to(enter);
            if class == OpClass::Opaque {
                self.read_inputs(node);
            }
            if class.repeats() {
                self.passes.push(BTreeMap::new());
            }
            self.transfer(node, &transfers, Point::Enter(k));
            self.steps(enter + 1, results + 1);
            let output = f.plan.steps[results as usize].node;
            let before = self.content.clone();
            self.transfer(output, &transfers, Point::Leave(k));
            self.look_for_coincidence(node, &transfers, &before);
            if class.repeats() {
                let pass = self.passes.pop().unwrap_or_default();
                let put_back = |(place, (stood, changed)): (_, (Option<_>, bool))| {
                    changed && stood.is_some() && self.memory.get(&place).copied() == stood
                };
                self.outcome.coincidence |= pass.into_iter().any(put_back);
            }
        }
        if class == OpClass::While {
            let (memory, lost) = before;
            let put_back = |(place, now): (&Byte, &Content)| {
                memory.get(place) != Some(now) && lost.contains(&(*place, *now))
            };
            self.outcome.coincidence |= self.memory.iter().any(put_back);
        }
        self.go_to(end);
        if class == OpClass::Opaque {
            self.read_inputs(node);
        }
        for &value in &outputs {
            if class == OpClass::Opaque {
                self.read(Item::Value(value), value);
            } else if !is_target(value) {
                let content = self.fresh();
                self.define(value, content);
            }
        }
    }

    /// Are the states of a loop equal to one another, or to what they were before a pass that does
    /// not simply hand them on?
    fn look_for_coincidence(
        &mut self,
        node: NodeId,
        transfers: &[Transfer],
        before: &BTreeMap<ValueId, u64>,
    ) {
        let mut seen = BTreeSet::new();
        for t in transfers.iter().filter(|t| t.at == Point::Begin) {
            let Some(state) = t.to.filter(|_| self.f.class(node).repeats()) else {
                continue;
            };
            let content = self.content.get(&state);
            let handed_on = |result: ValueId| {
                let result = self.f.origin(result);
                transfers.iter().any(|t| {
                    matches!(t.at, Point::Enter(_)) && t.from == Some(state) && t.to == Some(result)
                })
            };
            let changes = transfers.iter().any(|t| {
                let result = t.from.filter(|_| matches!(t.at, Point::Leave(_)));
                t.to == Some(state) && result.is_some_and(|r| !handed_on(r))
            });
            let equal = changes && content.is_some() && content == before.get(&state);
            self.outcome.coincidence |= equal || !seen.insert(content);
        }
    }

    /// The owner reads what it does not hand over itself.
    fn own_inputs(&mut self, node: NodeId, transfers: &[Transfer]) {
        let effects = self.f.effects(node);
        for (slot, &value) in (0u32..).zip(&self.f.graph.nodes[node].inputs) {
            let Some(value) = value else { continue };
            let handed = transfers
                .iter()
                .any(|t| t.at == Point::Begin && t.from == Some(value));
            let shape =
                self.f.plan.options.sharing != Sharing::None && effects.shape_only.contains(&slot);
            if !handed && !shape {
                let item = self.f.source(node, slot, value);
                self.read(item, value);
                let scratch = (0..effects.scratch.len()).any(|k| {
                    let k = Item::Workspace(node, u32::try_from(k).unwrap());
                    let spots = &self.f.spots;
                    matches!((spots.get(&k), spots.get(&item)), (Some(a), Some(b)) if a.meets(b))
                });
                if scratch {
                    self.fail(format!("{node} works over its input {slot}"));
                }
            }
        }
    }

    fn transfer(&mut self, reader: NodeId, transfers: &[Transfer], at: Point) {
        let f = self.f;
        for t in transfers.iter().filter(|t| t.at == at) {
            let items: Vec<Item> = match t.from {
                None => Vec::new(),
                Some(from) => (0u32..)
                    .zip(&f.graph.nodes[reader].inputs)
                    .filter(|(_, v)| **v == Some(from))
                    .map(|(slot, _)| f.source(reader, slot, from))
                    .collect(),
            };
            let own = t.from.map(Item::Value).filter(|_| items.is_empty());
            let items: Vec<Item> = items.into_iter().chain(own).collect();
            if let Some(from) = t.from {
                items.iter().for_each(|&item| self.read(item, from));
            }
            let Some(to) = t.to else { continue };
            let target = f.spots.get(&Item::Value(to)).copied();
            let near = |item: &&Item| {
                let spot = f.spots.get(item);
                matches!((spot, target), (Some(a), Some(b)) if a.meets(&b))
            };
            match t.pass {
                Pass::View | Pass::Move => {
                    let item = items.iter().find(near).or(items.first());
                    if let (Some(&item), Some(from)) = (item, t.from) {
                        let content = self.passed_on(item, from, to, t.pass == Pass::View);
                        self.move_bytes(item, Item::Value(to), Some(content));
                    }
                }
                Pass::Append => {
                    if items.iter().any(|i| near(&i)) {
                        self.fail(format!("a slice of {to} lies in it"));
                    }
                    self.read(Item::Value(to), to);
                    let content = self.fresh();
                    self.define(to, content);
                }
                Pass::Put => {
                    if items.iter().any(|i| near(&i)) {
                        self.fail(format!("what is put into {to} lies in it"));
                    }
                    self.read(Item::Value(to), to);
                    let content = self.fresh();
                    self.define(to, content);
                }
                Pass::Slice | Pass::Make | Pass::Take => {
                    if items.iter().any(|i| near(&i)) {
                        self.fail(format!("slice {to} lies in its source"));
                    }
                    let content = self.fresh();
                    self.define(to, content);
                }
            }
        }
    }
}
