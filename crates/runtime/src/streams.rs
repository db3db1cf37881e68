//! A thread a stream: each runs its steps first in, first out, records an event where another one
//! waits for it, and waits for the events of others as the plan says; the caller waits for all.
//!
//! What must not happen at the same time is known from the plan's waits. That they are enough is
//! shown once more here, for the very addresses that the instructions touch (`ordered`), before any
//! thread is started: two units that touch a byte, one of them writing, are in order. So the bytes
//! that come out are those of a run on one stream.
//!
//! A node with bodies is one unit, with all that is in it: it begins when the streams in it have come
//! so far, and they go on when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tenure_graph::StreamId;
use tenure_graph::plan::{Phase, Plan};

use crate::RuntimeError;
use crate::exec::execute;
use crate::memory::{Address, Memory};
use crate::pool::{Pool, Pooled, Slot};
use crate::profile::{Clock, Timed};
use crate::program::{Action, Instruction};
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, MutexGuard, PoisonError};

/// Pairs of accesses that are compared at most, before a program is taken to be too large for this.
const MOST_PAIRS: u64 = 1 << 27;

/// What one thread runs without looking up: a step, or a node with all its bodies.
#[derive(Debug, Default)]
struct Unit {
    code: Vec<Instruction>,
    /// For each other thread that it waits for, how many units of that one must be over.
    waits: Vec<(usize, u32)>,
    /// Whether somebody waits for its end.
    records: bool,
    /// Shared slots of the pool that it has to do with.
    lets_go: Vec<Slot>,
}

/// A unit's place: its thread, and its number there.
type At = (usize, u32);

/// Units by thread, and all of them in the plan's order.
#[derive(Debug, Default)]
struct Units {
    of: Vec<Vec<Unit>>,
    order: Vec<At>,
}

/// Threads that are ready to run, and keep ready between runs.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the run that the threads are to do.
    round: u64,
    /// Units of each thread that are over, as far as anybody waits for them.
    done: Vec<u32>,
    /// Threads that are through with the run.
    through: usize,
    limit: u64,
    /// When the run began, if it is timed.
    timed: Option<Instant>,
    spans: Vec<Timed>,
    error: Option<RuntimeError>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds.
    fn until(&self, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !holds(&state) {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl Threads {
    /// Gives the instructions of a program to threads. They are taken out of `code`, unless there is an
    /// error. `results` is the step that hands the graph's results over, when everything has ended.
    ///
    /// # Errors
    /// [`RuntimeError::Streams`] where the plan's waits do not order what the instructions touch.
    pub(crate) fn new(
        plan: &Plan,
        memory: &Memory,
        pool: &Pool,
        code: &mut Vec<Instruction>,
        results: Option<u32>,
    ) -> Result<Self, RuntimeError> {
        let layout = Layout::new(plan, results)?;
        let mut accesses = Vec::new();
        let mut slots: BTreeMap<Slot, BTreeSet<At>> = BTreeMap::new();
        for instruction in code.iter() {
            if let Action::Stray { .. } = instruction.action {
                return Err(refused("a node is made to write where it must not"));
            }
            let unit = layout.unit_of(instruction.step)?;
            for (slot, writes) in instruction.pooled().into_iter().flat_map(Pooled::slots) {
                slots.entry(slot).or_default().insert(unit);
                accesses.push((place_of(slot), writes, unit));
            }
            accesses.extend(instruction.reads().map(|at| (at, false, unit)));
            accesses.extend(instruction.writes().map(|at| (at, true, unit)));
        }
        ordered(&layout.units, &mut accesses)?;
        // What one thread alone has to do with goes back where its code says.
        slots.retain(|_, units| {
            let first = units.first().map(|at| at.0);
            units.iter().any(|at| Some(at.0) != first)
        });
        let units = layout.fill(code, &slots)?;
        pool.look().set_shared(
            slots
                .iter()
                .map(|(&slot, units)| (slot, units.len()))
                .collect(),
        );
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                done: vec![0; units.len()],
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let mut threads = Threads {
            shared: shared.clone(),
            handles: Vec::with_capacity(units.len()),
        };
        for (me, units) in units.into_iter().enumerate() {
            // Safety: `ordered` has shown that units of different threads that touch a byte, one of
            // them writing, are in order by the waits, which `work` keeps; blocks of the allocator are
            // those of slots, for which it has shown the same, or one unit's own; and the program
            // touches its own handle only while no run is on.
            #[expect(unsafe_code, reason = "threads work in one memory")]
            let memory = unsafe { memory.alias() };
            let (shared, pool) = (shared.clone(), pool.clone());
            let builder = Builder::new().name(format!("stream {me}"));
            let spawned = builder.spawn(move || work(me, units, memory, &pool, &shared));
            let handle = spawned.map_err(|e| refused(&format!("no thread can be had: {e}")))?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }

    /// Runs all units once, and waits for all streams.
    pub(crate) fn run(&self, limit: u64, timed: bool) -> Result<Vec<Timed>, RuntimeError> {
        let count = self.handles.len();
        {
            let mut state = self.shared.lock();
            state.round += 1;
            state.done.fill(0);
            state.through = 0;
            state.limit = limit;
            state.timed = timed.then(Instant::now);
            state.error = None;
        }
        self.shared.changed.notify_all();
        let mut state = self.shared.until(|s| s.through == count);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.spans)),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for handle in self.handles.drain(..) {
            // A thread that panics has said so already.
            let _ended = handle.join();
        }
    }
}

/// What a thread does: run after run, unit after unit.
fn work(me: usize, mut units: Vec<Unit>, mut memory: Memory, pool: &Pool, shared: &Shared) {
    let mut round = 0;
    loop {
        let (limit, timed) = {
            let state = shared.until(|s| s.stop || s.round != round);
            if state.stop {
                return;
            }
            round = state.round;
            (state.limit, state.timed)
        };
        let mut clock = timed.map(|start| Clock::new(start, me));
        for (number, unit) in (1u32..).zip(&mut units) {
            if !unit.waits.is_empty() {
                let waits = &unit.waits;
                let come = |s: &State| waits.iter().all(|&(thread, n)| s.done[thread] >= n);
                drop(shared.until(come));
            }
            let failed = run_unit(unit, &mut memory, pool, limit, &mut clock, shared);
            if unit.records || failed {
                let mut state = shared.lock();
                state.done[me] = number;
                drop(state);
                shared.changed.notify_all();
            }
        }
        let mut state = shared.lock();
        if let Some(clock) = clock {
            state.spans.extend(clock.into_spans());
        }
        state.through += 1;
        drop(state);
        shared.changed.notify_all();
    }
}

/// Runs a unit, unless the run has failed already; gives whether it has now.
fn run_unit(
    unit: &mut Unit,
    memory: &mut Memory,
    pool: &Pool,
    limit: u64,
    clock: &mut Option<Clock>,
    shared: &Shared,
) -> bool {
    if unit.code.is_empty() || shared.lock().error.is_some() {
        return false;
    }
    let code = &mut unit.code;
    let done = catch_unwind(AssertUnwindSafe(|| match clock {
        Some(clock) => execute(memory, pool, code, limit, clock),
        None => execute(memory, pool, code, limit, &mut ()),
    }));
    let done = done.unwrap_or_else(|_| Err(refused("a kernel has panicked")));
    let Err(error) = done else {
        if !unit.lets_go.is_empty() {
            let mut pool = pool.look();
            unit.lets_go.iter().for_each(|&slot| pool.let_go(slot));
        }
        return false;
    };
    shared.lock().error.get_or_insert(error);
    true
}

fn refused(reason: &str) -> RuntimeError {
    RuntimeError::Streams(reason.to_owned())
}

/// Which unit each step is in, and what waits for what.
struct Layout {
    units: Units,
    /// The unit of each step; none for what runs nowhere.
    of_step: Vec<Option<At>>,
}

impl Layout {
    fn new(plan: &Plan, results: Option<u32>) -> Result<Self, RuntimeError> {
        let mut streams: Vec<StreamId> = plan.steps.iter().filter_map(|s| s.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let count = streams.len().max(1);
        let mut layout = Layout {
            units: Units {
                of: std::iter::repeat_with(Vec::new).take(count).collect(),
                order: Vec::new(),
            },
            of_step: vec![None; plan.steps.len()],
        };
        // What each thread's next unit waits for.
        let mut pending: Vec<BTreeMap<usize, u32>> = vec![BTreeMap::new(); count];
        let mut step = 0;
        while step < plan.steps.len() {
            let end = end_of(plan, step);
            let inside = plan.steps.get(step..end).unwrap_or_default();
            // What runs on no stream waits for all of them, and so does the end of the graph.
            let is_end = results.is_some_and(|end| usize::try_from(end) == Ok(step));
            let all = is_end || inside.iter().all(|s| s.stream.is_none());
            let mut threads: Vec<usize> = if all {
                (0..count).collect()
            } else {
                let on = inside.iter().filter_map(|s| s.stream);
                on.filter_map(|s| streams.binary_search(&s).ok()).collect()
            };
            threads.sort_unstable();
            threads.dedup();
            let own = plan.steps[step].stream;
            let own = own.and_then(|s| streams.binary_search(&s).ok());
            let me = own.or(threads.first().copied()).unwrap_or(0);
            let number =
                u32::try_from(layout.units.of[me].len()).map_err(|_| refused("too many steps"))?;
            let mut waits = std::mem::take(&mut pending[me]);
            let mut wait = |(thread, n): At| {
                if thread != me && n > 0 {
                    let most = waits.entry(thread).or_default();
                    *most = n.max(*most);
                }
            };
            for &thread in &threads {
                let so_far = u32::try_from(layout.units.of[thread].len()).unwrap_or(u32::MAX);
                wait((thread, so_far));
            }
            for at in step..end {
                for w in waits_of(plan, at) {
                    let before = usize::try_from(w).unwrap_or(usize::MAX);
                    if before >= step {
                        continue;
                    }
                    if let Some((thread, n)) = layout.of_step.get(before).copied().flatten() {
                        wait((thread, n + 1));
                    }
                }
                layout.of_step[at] = Some((me, number));
            }
            for &thread in threads.iter().filter(|&&t| t != me) {
                pending[thread].insert(me, number + 1);
            }
            layout.units.of[me].push(Unit {
                waits: waits.into_iter().collect(),
                ..Unit::default()
            });
            layout.units.order.push((me, number));
            step = end;
        }
        layout.record();
        Ok(layout)
    }

    /// Notes which units somebody waits for.
    fn record(&mut self) {
        let all = self.units.of.iter().flatten();
        let waited: Vec<At> = all.flat_map(|u| u.waits.iter().copied()).collect();
        for (thread, n) in waited {
            let last = usize::try_from(n).ok().and_then(|n| n.checked_sub(1));
            let units = &mut self.units.of[thread];
            if let Some(unit) = last.and_then(|at| units.get_mut(at)) {
                unit.records = true;
            }
        }
    }

    fn unit_of(&self, step: u32) -> Result<At, RuntimeError> {
        let at = usize::try_from(step).ok().and_then(|s| self.of_step.get(s));
        at.copied()
            .flatten()
            .ok_or_else(|| refused("a step is in no unit"))
    }

    /// Moves the instructions to their units, each of which lets go of the shared slots that it has to
    /// do with.
    fn fill(
        mut self,
        code: &mut Vec<Instruction>,
        shared: &BTreeMap<Slot, BTreeSet<At>>,
    ) -> Result<Vec<Vec<Unit>>, RuntimeError> {
        // Where each unit's instructions begin: they lie together, as the steps do.
        let mut first: BTreeMap<At, (usize, usize)> = BTreeMap::new();
        for (at, instruction) in code.iter().enumerate() {
            let range = first
                .entry(self.unit_of(instruction.step)?)
                .or_insert((at, at));
            if at > range.1 + 1 {
                return Err(refused("the instructions of a step do not lie together"));
            }
            range.1 = at;
        }
        for (at, instruction) in code.iter().enumerate() {
            let unit = self.unit_of(instruction.step)?;
            let (from, to) = first.get(&unit).copied().unwrap_or((at, at));
            let inside = |target: &usize| (from..=to + 1).contains(target);
            if !instruction.action.targets().all(|t| inside(&t)) {
                return Err(refused("a jump leaves its node"));
            }
        }
        for mut instruction in code.drain(..) {
            // Every instruction has a unit, or there was an error above.
            let Ok(at) = self.unit_of(instruction.step) else {
                continue;
            };
            let from = first.get(&at).map_or(0, |range| range.0);
            instruction.action.shift_targets(from);
            if let Action::Pooled(pooled) = &mut instruction.action {
                pooled.leave(|slot| shared.contains_key(&slot));
            }
            self.units.of[at.0][at.1 as usize].code.push(instruction);
        }
        for (&slot, units) in shared {
            for &(thread, number) in units {
                self.units.of[thread][number as usize].lets_go.push(slot);
            }
        }
        Ok(self.units.of)
    }
}

/// A slot of the pool as a place of its own, which no block is.
fn place_of(slot: Slot) -> Address {
    Address {
        block: u32::MAX,
        start: usize::try_from(slot).unwrap_or(usize::MAX - 1),
        len: 1,
    }
}

/// The step behind a step, or behind the node with bodies that begins there.
fn end_of(plan: &Plan, step: usize) -> usize {
    let mut depth = 0usize;
    for (at, s) in plan.steps.iter().enumerate().skip(step) {
        match s.phase {
            Phase::Begin => depth += 1,
            Phase::End => depth = depth.saturating_sub(1),
            Phase::Run | Phase::Enter(_) => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    plan.steps.len()
}

/// The steps that a step waits for.
fn waits_of(plan: &Plan, step: usize) -> impl Iterator<Item = u32> {
    let step = u32::try_from(step).unwrap_or(u32::MAX);
    let from = plan.waits.partition_point(|w| w.step < step);
    let mine = plan.waits[from..]
        .iter()
        .take_while(move |w| w.step == step);
    mine.map(|w| w.before)
}

/// Whether any two units that touch a byte, one of them writing, are in order: by their thread, or by
/// waits. Vector clocks say how many units of each thread are over when a unit begins.
fn ordered(units: &Units, accesses: &mut [(Address, bool, At)]) -> Result<(), RuntimeError> {
    let mut clocks: BTreeMap<At, Vec<u32>> = BTreeMap::new();
    let mut last: Vec<Vec<u32>> = vec![vec![0; units.of.len()]; units.of.len()];
    for &(thread, number) in &units.order {
        let mut clock = last[thread].clone();
        for &(other, n) in &units.of[thread][number as usize].waits {
            let theirs = n.checked_sub(1).and_then(|k| clocks.get(&(other, k)));
            for (mine, theirs) in clock.iter_mut().zip(theirs.into_iter().flatten()) {
                *mine = (*mine).max(*theirs);
            }
        }
        clock[thread] = number + 1;
        last[thread].clone_from(&clock);
        clocks.insert((thread, number), clock);
    }
    let before = |a: At, b: At| clocks.get(&b).is_some_and(|clock| clock[a.0] > a.1);
    accesses.sort_unstable();
    let mut open: Vec<(Address, bool, At)> = Vec::new();
    let mut pairs = 0u64;
    for &(at, writes, unit) in accesses.iter().filter(|a| a.0.len > 0) {
        open.retain(|(o, ..)| o.block == at.block && o.end() > at.start);
        pairs += open.len() as u64;
        if pairs > MOST_PAIRS {
            return Err(refused("there are too many steps for a thread a stream"));
        }
        for &(_, wrote, other) in &open {
            if (writes || wrote)
                && unit.0 != other.0
                && !before(unit, other)
                && !before(other, unit)
            {
                return Err(refused("steps that touch the same memory are in no order"));
            }
        }
        open.push((at, writes, unit));
    }
    Ok(())
}
