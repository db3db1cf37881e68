//! The simulation: the program runs on the machine, every branch from the same state, every loop
//! body once from a state that is right for all its passes.

use tenure_graph::plan::{Item, Place, Plan};
use tenure_graph::{Graph, StorageId, ValueId};

use crate::alternatives::Alternatives;
use crate::demands::Demands;
use crate::findings::Findings;
use crate::layout::{Layout, Spot};
use crate::machine::{Content, Machine, Writer};
use crate::placements::span_at;
use crate::program::{Mark, Op};
use crate::violation::{Anchor, Found, Memory, Outside, Region, Violation};

/// Runs the program; what is wrong goes to `findings`. Returns the number of accesses.
pub(crate) fn run(
    graph: &Graph,
    plan: &Plan,
    layout: &Layout,
    demands: &mut Demands,
    alternatives: &Alternatives<'_>,
    findings: &mut Findings<'_>,
) -> u64 {
    let program = std::mem::take(&mut demands.program);
    let mut walk = Walk {
        graph,
        plan,
        layout,
        demands,
        alternatives,
        findings,
        machine: Machine::default(),
        lost: Vec::new(),
        step: 0,
        accesses: 0,
    };
    for op in &program.prologue {
        walk.op(op);
    }
    for step in (0u32..).take(plan.steps.len()) {
        walk.step = step;
        let mark = program.marks.get(&step).copied();
        match mark {
            Some(Mark::Way(k)) if k > 0 => walk.machine.end_way(),
            Some(Mark::Pass(k)) if k > 0 => walk.machine.rewind(),
            Some(Mark::Join(ways)) if ways > 1 => {
                walk.machine.end_way();
                walk.machine.join();
            }
            Some(Mark::Until) => {
                walk.machine.rewind();
                walk.machine.unmark();
                walk.forget_lost();
            }
            _ => {}
        }
        for op in program.range(step, step.saturating_add(1)) {
            walk.op(op);
        }
        match mark {
            Some(Mark::Fork(ways)) if ways > 1 => walk.machine.mark(),
            Some(Mark::Repeat) => {
                if let Some(repeat) = program.repeats.get(&step) {
                    // What any pass may write is lost, except what is kept from pass to pass.
                    for at in step.saturating_add(1)..repeat.end {
                        for op in program.range(at, at.saturating_add(1)) {
                            walk.spoil(op, at);
                        }
                    }
                    for &value in &repeat.kept {
                        walk.name(value);
                    }
                }
                walk.machine.mark();
            }
            _ => {}
        }
        if walk.findings.is_full() {
            break;
        }
    }
    for &(item, span) in &program.held {
        walk.held_throughout(item, span.first, span.last);
    }
    walk.accesses
}

struct Walk<'w, 'a> {
    graph: &'w Graph,
    plan: &'w Plan,
    layout: &'w Layout,
    demands: &'w mut Demands,
    alternatives: &'w Alternatives<'w>,
    findings: &'w mut Findings<'a>,
    machine: Machine,
    /// States that some pass of an open loop loses, and what lies there then. A loop inside
    /// another ends before it.
    lost: Vec<(ValueId, Option<Writer>)>,
    step: u32,
    accesses: u64,
}

impl Walk<'_, '_> {
    fn op(&mut self, op: &Op) {
        match *op {
            Op::Read { item, anchor } => self.read(item, anchor),
            Op::Write {
                item,
                anchor,
                carries,
            } => {
                self.accesses += 1;
                if let Some(spot) = self.layout.spot(item) {
                    self.alive(item, anchor, spot);
                    let content = self.content(item, anchor, carries);
                    let writer = self.writer(item);
                    let region = spot.region;
                    let made = self.alternatives.of(item);
                    let alternatives = self.alternatives;
                    let stays = |name: ValueId| {
                        made.is_some_and(|made| alternatives.are_exclusive(made, name))
                    };
                    self.machine
                        .write_beside(region, region.start, &content, writer, stays);
                }
            }
            Op::Name { value, anchor } => {
                self.accesses += 1;
                if let Some(spot) = self.layout.spot(Item::Value(value)) {
                    self.alive(Item::Value(value), anchor, spot);
                    self.name(value);
                }
            }
            Op::Extend {
                value,
                from,
                anchor,
            } => {
                let item = Item::Value(value);
                if let Some(spot) = self.layout.spot(item) {
                    self.alive(item, anchor, spot);
                    let content = self.content(item, anchor, None);
                    let writer = self.writer(item);
                    let (region, base) = rest(spot.region, from);
                    self.machine.write(region, base, &content, writer);
                }
            }
            Op::Spoil { item } => {
                if let Some(spot) = self.layout.spot(item) {
                    let (region, writer) = (spot.region, self.writer(item));
                    let nothing = Content::default();
                    self.machine.write(region, region.start, &nothing, writer);
                }
            }
            Op::Keep { value } => {
                let spot = self.layout.spot(Item::Value(value));
                let name = self.demands.names.of(value);
                let wrong = spot.and_then(|spot| self.machine.wrong(spot.region, name));
                self.lost.extend(wrong.map(|(_, writer)| (value, writer)));
            }
            Op::Take { storage } => {
                let region = self.storage_region(storage);
                let writer = lost_at(self.step);
                let nothing = Content::default();
                self.machine.write(region, region.start, &nothing, writer);
            }
            Op::Open { value, anchor } => {
                let item = Item::Value(value);
                if let Some(spot) = self.layout.spot(item) {
                    self.alive(item, anchor, spot);
                    let content = self.content(item, anchor, None);
                    let writer = self.writer(item);
                    let region = spot.region;
                    self.machine.write(region, region.start, &content, writer);
                }
            }
        }
    }

    /// Makes the machine forget what an operation of another pass may overwrite with other bytes.
    fn spoil(&mut self, op: &Op, step: u32) {
        let (item, anchor, carries, from) = match *op {
            Op::Take { storage } => {
                let region = self.storage_region(storage);
                let nothing = Content::default();
                self.machine
                    .weaken(region, region.start, &nothing, lost_at(step));
                return;
            }
            Op::Spoil { item } => {
                if let Some(spot) = self.layout.spot(item) {
                    let region = spot.region;
                    let item = Some(item);
                    let writer = Writer { item, step };
                    self.machine
                        .weaken(region, region.start, &Content::default(), writer);
                }
                return;
            }
            Op::Write {
                item,
                anchor,
                carries,
            } => (item, anchor, carries, 0),
            Op::Open { value, anchor } => (Item::Value(value), anchor, None, 0),
            Op::Extend {
                value,
                from,
                anchor,
            } => (Item::Value(value), anchor, None, from),
            Op::Read { .. } | Op::Name { .. } | Op::Keep { .. } => return,
        };
        if let Some(spot) = self.layout.spot(item) {
            let content = self.content(item, anchor, carries);
            let (region, base) = rest(spot.region, from);
            let item = Some(item);
            let writer = Writer { item, step };
            self.machine.weaken(region, base, &content, writer);
        }
    }

    /// Makes the machine forget the states of the loop that ends here which some pass lost.
    fn forget_lost(&mut self) {
        let node = self.plan.steps[self.step as usize].node;
        while let Some(&(value, writer)) = self.lost.last()
            && self.graph.values[value].producer == node
        {
            self.lost.pop();
            if let Some(spot) = self.layout.spot(Item::Value(value)) {
                let writer = writer.unwrap_or(self.writer(Item::Value(value)));
                let region = spot.region;
                self.machine
                    .write(region, region.start, &Content::default(), writer);
            }
        }
    }

    fn read(&mut self, item: Item, anchor: Anchor) {
        if anchor != Anchor::State {
            self.accesses += 1;
        }
        let (Some(spot), Some(name)) = (self.layout.spot(item), self.name_of(item)) else {
            return;
        };
        if anchor != Anchor::State {
            self.alive(item, anchor, spot);
        }
        if let Some((wrong, writer)) = self.machine.wrong(spot.region, name) {
            let found = match writer {
                None => Found::Nothing,
                Some(Writer { item: None, step }) => Found::Lost { step },
                Some(Writer {
                    item: Some(item),
                    step,
                }) => Found::Item {
                    item: self.findings.item(item),
                    step,
                },
            };
            self.findings.push(Violation::WrongBytes {
                site: self.site(),
                anchor,
                item: self.findings.item(item),
                region: spot.region,
                wrong,
                found,
            });
        }
    }

    fn name(&mut self, value: ValueId) {
        if let Some(spot) = self.layout.spot(Item::Value(value)) {
            let name = self.demands.names.of(value);
            let writer = self.writer(Item::Value(value));
            self.machine.name(spot.region, name, writer);
        }
    }

    /// The name of the bytes that an item should have; `None` for workspaces that may begin with
    /// anything. Copies of a variable and cleared workspaces have names of their own, beyond those of
    /// the values: a copy has the bytes of the moment when it was made.
    fn name_of(&mut self, item: Item) -> Option<ValueId> {
        let copies = self.plan.copies.len();
        let own = |k: usize| {
            let id = u32::try_from(self.graph.values.len() + k).unwrap_or(u32::MAX);
            ValueId::from_u32(id.min(u32::MAX - 1))
        };
        match item {
            Item::Value(value) => Some(self.demands.names.of(value)),
            Item::Copy(k) => {
                let value = self.plan.copies.get(k as usize)?.value;
                match self.layout.outside[value] {
                    Some(Outside::Variable) => Some(own(k as usize)),
                    _ => Some(self.demands.names.of(value)),
                }
            }
            Item::Workspace(node, k) => {
                let number = self.demands.cleared.get(&(node, k))?;
                Some(own(copies + number))
            }
        }
    }

    /// The names of the bytes that are written to an item.
    ///
    /// The state of a loop changes its bytes from pass to pass, so its name may stand in the
    /// state's own place alone: a copy elsewhere would keep the name when the bytes are no longer
    /// those of the state.
    fn content(&mut self, item: Item, anchor: Anchor, carries: Option<ValueId>) -> Content {
        let mut content = Content::default();
        // What its own node leaves in a workspace is garbage.
        let is_garbage = matches!(anchor, Anchor::Workspace(_));
        if let Some(own) = self.name_of(item).filter(|_| !is_garbage) {
            if self.demands.cells.contains(own) {
                content.state = Some(own);
            } else {
                content.steady.push(own);
            }
        }
        if let Some(value) = carries {
            let carried = self.demands.names.of(value);
            if !self.demands.cells.contains(carried) {
                content.steady.push(carried);
            }
        }
        content.steady.sort_unstable();
        content.steady.dedup();
        content
    }

    fn writer(&self, item: Item) -> Writer {
        Writer {
            item: Some(item),
            step: self.step,
        }
    }

    /// All bytes of a storage.
    fn storage_region(&self, id: StorageId) -> Region {
        let storage = &self.plan.storages[id];
        let (memory, start) = match storage.place {
            Place::Arena { arena, offset } => (Memory::Arena(arena), offset),
            Place::Caller => (Memory::Caller(id), 0),
        };
        let end = start.saturating_add(storage.size);
        Region { memory, start, end }
    }

    fn site(&self) -> crate::violation::Site {
        let node = self.plan.steps[self.step as usize].node;
        self.findings.site(self.step, node)
    }

    /// A violation unless the storage's stated life covers the step. Where there are no bytes,
    /// nothing is accessed.
    fn alive(&mut self, item: Item, anchor: Anchor, spot: Spot) {
        let life = &self.plan.storages[spot.storage].life;
        let bytes = spot.region.start < spot.region.end;
        if bytes && span_at(life, self.step).is_none() {
            self.findings.push(Violation::LifeTooShort {
                site: self.site(),
                anchor,
                item: self.findings.item(item),
                storage: spot.storage,
            });
        }
    }

    /// A violation unless one span of the storage's life covers all steps from `first` to `last`.
    fn held_throughout(&mut self, item: Item, first: u32, last: u32) {
        let Some(spot) = self.layout.spot(item) else {
            return;
        };
        let life = &self.plan.storages[spot.storage].life;
        if span_at(life, first).is_none_or(|s| s.last < last) {
            self.step = last;
            self.findings.push(Violation::LifeTooShort {
                site: self.site(),
                anchor: Anchor::Workspace(match item {
                    Item::Workspace(_, k) => k,
                    Item::Value(_) | Item::Copy(_) => 0,
                }),
                item: self.findings.item(item),
                storage: spot.storage,
            });
        }
    }
}

/// Who took away what a storage held before it is taken anew.
fn lost_at(step: u32) -> Writer {
    Writer { item: None, step }
}

/// The bytes of a region from its byte `from` on, and where the whole begins.
fn rest(region: Region, from: u64) -> (Region, u64) {
    let start = region.start.saturating_add(from).min(region.end);
    (Region { start, ..region }, region.start)
}
