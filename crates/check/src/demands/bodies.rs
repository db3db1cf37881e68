//! Nodes with bodies: what passes between an owner and the subgraphs that it runs, and what a loop
//! keeps from pass to pass.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tenure_graph::control::{Pass, Point, Transfer, transfers};
use tenure_graph::effects::OpClass;
use tenure_graph::plan::{Item, Sharing, Span};
use tenure_graph::{NodeId, ValueId};

use super::Gather;
use crate::program::{Mark, Op, Repeat};
use crate::violation::{Anchor, Violation};

/// A node with bodies between its first and its last step.
pub(super) struct Owner {
    node: NodeId,
    class: OpClass,
    begin: u32,
    /// Body that is open.
    body: u32,
    /// In the order in which they happen, point by point.
    transfers: Vec<Transfer>,
    /// Outputs that must be there at the start of every pass.
    kept: Vec<ValueId>,
    /// Temporary memory, held from the first step to the last.
    workspaces: Vec<Item>,
}

impl Owner {
    fn at(&self, point: Point) -> SmallVec<[Transfer; 8]> {
        let first = self.transfers.partition_point(|t| t.at < point);
        let here = self.transfers[first..].iter();
        here.take_while(|t| t.at == point).copied().collect()
    }
}

impl Gather<'_, '_> {
    pub(super) fn begin(&mut self, id: NodeId) {
        let class = self.layout.class[id];
        let effects = self.table.effects(self.graph, id);
        let node = &self.graph.nodes[id];
        let mut transfers = transfers(self.graph, id, class);
        transfers.sort_by_key(|t| t.at);
        let mut owner = Owner {
            node: id,
            class,
            begin: self.step,
            body: 0,
            transfers,
            kept: Vec::new(),
            workspaces: Vec::new(),
        };
        // What is another name of a result is settled when that is known.
        let names = owner.transfers.iter().filter(|t| t.gives_back_a_name());
        let named: FxHashSet<ValueId> = names.filter_map(|t| t.to).collect();
        for &value in node.outputs.iter().flatten() {
            if !named.contains(&value) {
                self.settle(value, None);
            }
        }
        self.copies(id);
        let first = owner.at(Point::Begin);
        for t in &first {
            self.transfer(&owner, id, t);
        }
        // What is not handed over the owner reads itself, all through the step.
        let handed: FxHashSet<ValueId> = first.iter().filter_map(|t| t.from).collect();
        let mut readings = Vec::new();
        for (slot, &value) in (0u32..).zip(&node.inputs) {
            let Some(value) = value.filter(|v| !handed.contains(v)) else {
                continue;
            };
            let unread =
                self.plan.options.sharing >= Sharing::Views && effects.shape_only.contains(&slot);
            if !unread {
                self.input(id, &effects, slot, value, &mut readings);
            }
        }
        let mut writings = self.workspaces(id, &effects);
        for w in &writings {
            if let Item::Workspace(_, k) = w.item {
                self.write(w.item, Anchor::Workspace(k), None);
                owner.workspaces.push(w.item);
            }
        }
        self.apart(id, &effects, &readings, &mut writings);
        if class.repeats() {
            self.keep(&mut owner, &first);
        }
        let mark = match class {
            OpClass::Branch => Mark::Fork(u32::try_from(node.bodies.len()).unwrap_or(u32::MAX)),
            _ => Mark::Repeat,
        };
        if class != OpClass::Call {
            self.program.marks.insert(self.step, mark);
        }
        self.stack.push(owner);
    }

    /// What a node that repeats keeps from pass to pass: states, which have their start values
    /// now, and what is filled bit by bit, which takes its bytes now.
    fn keep(&mut self, owner: &mut Owner, first: &[Transfer]) {
        let states: FxHashSet<ValueId> = first.iter().filter_map(|t| t.to).collect();
        let handed_back: FxHashSet<ValueId> = owner
            .transfers
            .iter()
            .filter(|t| matches!(t.at, Point::Leave(_)))
            .filter_map(|t| t.to)
            .collect();
        let outputs = (0u32..).zip(&self.graph.nodes[owner.node].outputs);
        for (slot, value) in outputs.filter_map(|(slot, v)| Some((slot, (*v)?))) {
            if states.contains(&value) {
                self.cells.insert(value);
            } else if handed_back.contains(&value) || owner.class == OpClass::Opaque {
                let anchor = Anchor::Output(slot);
                self.program.ops.push(Op::Open { value, anchor });
            } else {
                continue;
            }
            owner.kept.push(value);
        }
        self.demand_kept(owner);
    }

    /// What is kept from pass to pass must be there before each pass and at the end. A state that
    /// no body reads may be lost as long as nobody reads it after the end.
    fn demand_kept(&mut self, owner: &Owner) {
        let entered = |t: &Transfer| matches!(t.at, Point::Enter(_));
        let handed_in = owner.transfers.iter().filter(|t| entered(t));
        let read: FxHashSet<ValueId> = handed_in.filter_map(|t| t.from).collect();
        for &value in &owner.kept {
            if read.contains(&value) || !self.cells.contains(value) {
                self.read(Item::Value(value), Anchor::State);
            } else {
                self.program.ops.push(Op::Keep { value });
            }
        }
    }

    pub(super) fn enter(&mut self, k: u32) {
        let Some(mut owner) = self.stack.pop() else {
            return;
        };
        owner.body = k;
        match owner.class {
            OpClass::Branch => {
                self.program.marks.insert(self.step, Mark::Way(k));
            }
            OpClass::Call => {}
            _ => {
                self.program.marks.insert(self.step, Mark::Pass(k));
            }
        }
        if owner.class == OpClass::Opaque {
            self.reread(owner.node);
        }
        for t in owner.at(Point::Enter(k)) {
            self.transfer(&owner, owner.node, &t);
        }
        // Inputs of the body that nothing is handed to need memory all the same.
        let body = self.graph.nodes[owner.node].bodies[k as usize].graph;
        for &data in &self.graph.subgraphs[body].nodes {
            if self.layout.class[data] == OpClass::Input {
                for &value in self.graph.nodes[data].outputs.iter().flatten() {
                    if self.layout.outside[value].is_none() {
                        self.settle(value, None);
                    }
                }
            }
        }
        self.stack.push(owner);
    }

    /// An owner of unknown kind reads its inputs whenever it likes.
    fn reread(&mut self, id: NodeId) {
        for (slot, &value) in (0u32..).zip(&self.graph.nodes[id].inputs) {
            if let Some(value) = value {
                let item = self.source(id, slot, value);
                self.read(item, Anchor::Input(slot));
            }
        }
    }

    /// The step of a subgraph's output node: it reads all results, and the owner takes them.
    pub(super) fn results(&mut self, id: NodeId) {
        self.copies(id);
        for (slot, &value) in (0u32..).zip(&self.graph.nodes[id].inputs) {
            if let Some(value) = value {
                let item = self.source(id, slot, value);
                self.read(item, Anchor::Input(slot));
            }
        }
        // The stack is empty at the end of the root.
        let Some(owner) = self.stack.pop() else {
            return;
        };
        for t in owner.at(Point::Leave(owner.body)) {
            self.transfer(&owner, id, &t);
        }
        self.demand_kept(&owner);
        self.stack.push(owner);
    }

    pub(super) fn end(&mut self) {
        let Some(owner) = self.stack.pop() else {
            return;
        };
        let handed_back: FxHashSet<ValueId> = owner.transfers.iter().filter_map(|t| t.to).collect();
        if owner.class == OpClass::Opaque {
            self.reread(owner.node);
        }
        for (slot, &value) in (0u32..).zip(&self.graph.nodes[owner.node].outputs) {
            let Some(value) = value else { continue };
            if owner.class == OpClass::Opaque {
                self.read(Item::Value(value), Anchor::Output(slot));
            } else if !handed_back.contains(&value) && self.region(Item::Value(value)).is_some() {
                self.write(Item::Value(value), Anchor::Output(slot), None);
            }
        }
        for &item in &owner.workspaces {
            let span = Span {
                first: owner.begin,
                last: self.step,
            };
            self.program.held.push((item, span));
        }
        match owner.class {
            OpClass::Call => {}
            OpClass::Branch => {
                let bodies = self.graph.nodes[owner.node].bodies.len();
                let ways = u32::try_from(bodies).unwrap_or(u32::MAX);
                self.program.marks.insert(self.step, Mark::Join(ways));
            }
            _ => {
                self.program.marks.insert(self.step, Mark::Until);
                let repeat = Repeat {
                    end: self.step,
                    kept: owner.kept.clone(),
                };
                self.program.repeats.insert(owner.begin, repeat);
            }
        }
        self.closed.push(owner);
    }

    /// Finds out what nodes with bodies give back unchanged. That a loop never changes a state
    /// shows at its end, and then more may be known of what stands inside: so this is done until
    /// nothing is new, which takes no more rounds than there are levels of nesting.
    pub(super) fn unite(&mut self) {
        let owners = std::mem::take(&mut self.closed);
        loop {
            let known = self.names.united();
            for owner in &owners {
                match owner.class {
                    OpClass::Call | OpClass::Branch => self.unite_results(owner),
                    _ => self.unite_states(owner),
                }
            }
            if self.names.united() == known {
                return;
            }
        }
    }

    /// An output that every body gives the same bytes has these bytes, and outputs that are given
    /// the same as each other by every body have one name.
    fn unite_results(&mut self, owner: &Owner) {
        let bodies = self.graph.nodes[owner.node].bodies.len();
        let mut results: FxHashMap<ValueId, Vec<ValueId>> = FxHashMap::default();
        for t in &owner.transfers {
            if let (Point::Leave(_), Some(from), Some(to)) = (t.at, t.from, t.to)
                && !self.is_variable(from)
            {
                let name = self.names.of(from);
                results.entry(to).or_default().push(name);
            }
        }
        let mut twins: FxHashMap<Vec<ValueId>, ValueId> = FxHashMap::default();
        for to in self.graph.nodes[owner.node].outputs.iter().flatten() {
            // Results of one output are in the order of the bodies.
            let Some(given) = results.remove(to).filter(|g| g.len() == bodies) else {
                continue;
            };
            if given.iter().all(|name| *name == given[0]) {
                self.names.same(*to, given[0]);
            } else {
                let twin = *twins.entry(given).or_insert(*to);
                self.names.same(*to, twin);
            }
        }
    }

    /// A state that every pass hands on as it got it has the bytes of its start value.
    fn unite_states(&mut self, owner: &Owner) {
        let mut states: FxHashMap<ValueId, State> = FxHashMap::default();
        for t in &owner.transfers {
            let (Some(from), Some(to)) = (t.from, t.to) else {
                continue;
            };
            match t.at {
                Point::Begin => {
                    let starts = &mut states.entry(to).or_default().starts;
                    starts.push(from);
                }
                Point::Enter(_) => {
                    if let Some(state) = states.get_mut(&from) {
                        state.formals.push(to);
                    }
                }
                // A state that is put together slice by slice is no one value handed on.
                Point::Leave(_) if t.pass == Pass::Put => {
                    states.remove(&to);
                }
                Point::Leave(_) => {
                    if let Some(state) = states.get_mut(&to) {
                        state.results.push(from);
                    }
                }
            }
        }
        for &output in self.graph.nodes[owner.node].outputs.iter().flatten() {
            let Some(state) = states.get(&output) else {
                continue;
            };
            let &[start] = &state.starts[..] else {
                continue;
            };
            if self.is_variable(start) {
                continue;
            }
            let mut same: SmallVec<[ValueId; 4]> =
                state.formals.iter().map(|&f| self.names.of(f)).collect();
            same.push(self.names.of(start));
            if state
                .results
                .iter()
                .all(|&r| same.contains(&self.names.of(r)))
            {
                for &formal in &state.formals {
                    self.names.same(formal, start);
                }
                self.names.same(output, start);
            }
        }
    }

    /// One value passes from one side of a subgraph's border to the other. `reader` is the node
    /// whose inputs are handed over: the owner, or the output node of the body.
    fn transfer(&mut self, owner: &Owner, reader: NodeId, t: &Transfer) {
        let sources = t.from.map(|from| self.sources(reader, from));
        let handover = t.to.map_or(Anchor::Taken, Anchor::Handover);
        for &item in sources.iter().flatten() {
            self.read(item, handover);
        }
        let Some(to) = t.to else { return };
        let once = matches!(owner.class, OpClass::Branch | OpClass::Call);
        if let (Pass::View, Some(from)) = (t.pass, t.from) {
            self.settle(to, t.from);
            self.share(to, from);
        } else {
            self.settle(to, None);
        }
        if let (true, Point::Enter(_), Some(from)) = (once, t.at, t.from) {
            self.same(to, from);
        }
        let Some(region) = self.region(Item::Value(to)) else {
            return;
        };
        if matches!(t.pass, Pass::Append | Pass::Put) {
            // The slices that are there already must have stayed.
            self.read(Item::Value(to), Anchor::State);
        }
        let mut source = None;
        for &item in sources.iter().flatten() {
            let same = self.coincide(reader, item, Item::Value(to), region);
            if same && matches!(t.pass, Pass::Slice | Pass::Append | Pass::Put) {
                self.findings.push(Violation::PartialOverlap {
                    site: self.findings.site(self.step, reader),
                    from: self.findings.item(item),
                    source_region: region,
                    to: self.findings.item(Item::Value(to)),
                    region,
                });
            } else if same {
                source = self.region(item);
            }
        }
        match (t.pass, source) {
            (Pass::View | Pass::Move, Some(source)) => self.name(to, source, region, handover),
            (Pass::View | Pass::Move, None) => {
                // What a variable holds now need not be what it held when it was copied before.
                let carries = t.from.filter(|&v| !self.is_variable(v));
                self.write(Item::Value(to), handover, carries);
            }
            // One more slice: what is there stays, so no name is lost.
            (Pass::Append, _) => self.program.ops.push(Op::Name {
                value: to,
                anchor: handover,
            }),
            (Pass::Slice | Pass::Put | Pass::Make | Pass::Take, _) => {
                self.write(Item::Value(to), handover, None);
            }
        }
    }
}

/// One state of a loop, and what is handed into and out of it.
#[derive(Default)]
struct State {
    starts: SmallVec<[ValueId; 1]>,
    formals: SmallVec<[ValueId; 1]>,
    results: SmallVec<[ValueId; 1]>,
}
