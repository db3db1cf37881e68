//! Runs strategies within the limits and keeps the best placement.
//!
//! First the single passes, from the one that is most often best to the one that is least often;
//! then, on each part that is independent in time and still above the bound, rounds of exact
//! search and of dives from changed orders, with limits that rise from round to round.
//!
//! # Determinism
//!
//! Tasks count as if they ran one after another in the order of their list: each may use the steps
//! that those before it left, and the earlier one wins a tie. One that ran ahead with more steps
//! than it had, and used them, is run again with those that it has.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bounds::{self, Bounds};
use crate::budget::{Budget, Exhausted, Stop};
use crate::conflict;
use crate::dive::{Dive, Target};
use crate::exact::{self, MAX_MEMBERS, WAYS, Way};
use crate::heuristics::order::{self, Order};
use crate::heuristics::{core, greedy, peers, repair, sweep};
use crate::instance::Instance;
use crate::memory;
use crate::runner::in_order;
use crate::shakes::{Shakes, Try};
use crate::solution::{Config, Fits, Solution, SolveError, Techniques};
use crate::strategy::Strategy;
use crate::validate;
use crate::watch::{Progress, Watch};

/// Dives from one base order before the best of them becomes the next base.
const DIVES_PER_ROUND: usize = 8;

/// Steps that an exact search may take in the first round; each round allows twice as many.
const EXACT_STEPS: u64 = 1_250_000;

/// Single passes before the best placement is repaired.
const PASSES_BEFORE_REPAIR: usize = 3;

/// Instances of more buffers are repaired before all passes but the first.
const REPAIRED_FIRST: usize = 200_000;

/// Steps for shaken orders for each step of the exact search from the orders as they are: these
/// prove, those find.
const SHAKES_PER_STEP: u64 = 8;

/// The rungs of the ladder lie one over these parts of the way from the best height down to the
/// bound; the deepest is tried first.
const RUNGS: [u64; 4] = [3, 6, 12, 24];

/// Which of the exact ways are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    All,
    /// The patient ones.
    Patient,
    Others,
}

/// Finds a placement of low height; see [`Config`] for the limits and the crate page for an
/// example.
///
/// Within the limit of memory a placement is always returned: the one pass of [`Strategy::Sweep`] is
/// made whatever the other limits. It is the answer, too, when another strategy was asked for and
/// the time limit cut it.
///
/// # Errors
///
/// When the search may need more memory than [`Config::memory`] allows. Any other error is a
/// mistake in this crate.
pub fn solve(instance: &Instance, config: &Config) -> Result<Solution, SolveError> {
    solve_watched(instance, config, &Watch::default())
}

/// Like [`solve`], with hooks to follow the search and to end it.
///
/// ```
/// use std::cell::Cell;
/// use tenure_solve::{Buffer, Config, Instance, Watch, solve_watched};
///
/// let buffers = (0..9).map(|at| Buffer::new(8 + at % 3, at, at + 4)).collect();
/// let best = Cell::new(u64::MAX);
/// let progress = |now: tenure_solve::Progress| best.set(now.height);
/// let watch = Watch { progress: Some(&progress), ..Watch::default() };
/// let solution = solve_watched(&Instance::new(buffers)?, &Config::default(), &watch)?;
/// assert_eq!(solution.height, best.get());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`solve`].
pub fn solve_watched(
    instance: &Instance,
    config: &Config,
    watch: &Watch<'_>,
) -> Result<Solution, SolveError> {
    if let Some(limit) = config.memory {
        let needed = memory::estimate(instance, config);
        if needed > limit {
            return Err(SolveError::Memory { needed, limit });
        }
    }
    let clock = config.time_limit.map(|limit| (Instant::now(), limit));
    let stated = instance;
    let instance = stated.plain();
    let bounds = bounds::bounds(instance);
    let sweep_start = clock.map(|_| Instant::now());
    let offsets = sweep::place(instance);
    let swept = Found {
        height: instance.height_of(&offsets),
        offsets,
        strategy: Strategy::Sweep,
    };
    // What cannot be cut, as the last check, takes no longer than the sweep.
    let reserve = sweep_start.map_or(Duration::ZERO, |start| start.elapsed());
    let deadline = |parts: u32| {
        let (start, limit) = clock?;
        let now = start.elapsed();
        start.checked_add(now + limit.saturating_sub(now + reserve) / parts)
    };
    let portfolio = matches!(
        config.strategy,
        Strategy::Auto | Strategy::Exact | Strategy::Restarts
    );
    // What is better ends below; a strategy asked for by name may end above.
    let below = match portfolio {
        true => instance.below(swept.height),
        false => Cow::Borrowed(instance),
    };
    // A search that comes down from above may pass a capacity that the one aimed at it never hits.
    // Each gets half of the time, and half of the steps where they are given.
    let mut aimed = None;
    if config.capacity.is_some() && portfolio {
        let stop = Stop::new(deadline(2), watch.cancel);
        let ground = Ground::new(&below, &stop);
        let mut search = Search::new(&ground, config, watch, bounds, swept.clone());
        search.steps_left = config.steps.map_or(search.steps_left, |steps| steps / 2);
        search.run();
        let decided = search.decided();
        aimed = Some((decided, stop.out_of_time(), search.best, search.bounds));
    }
    let stop = Stop::new(deadline(1), watch.cancel);
    let ground = Ground::new(&below, &stop);
    let mut search = Search::new(&ground, config, watch, bounds, swept);
    let Some((decided, cut, best, bounds)) = aimed else {
        search.run();
        return search.finish(stated);
    };
    search.aims_lower = true;
    search.known = best.height;
    search.steps_left -= config.steps.map_or(0, |steps| steps / 2);
    if !decided {
        search.run();
    }
    if best.height <= search.best.height {
        search.best = best;
    }
    search.bounds.lower_bound = bounds.lower_bound.max(search.bounds.lower_bound);
    let solution = search.finish(stated)?;
    let cut_by_clock = solution.cut_by_clock || cut;
    Ok(Solution {
        cut_by_clock,
        ..solution
    })
}

/// What all tasks on one instance read.
struct Ground<'a> {
    instance: &'a Instance,
    /// Made when the first dive asks for it, if the time allows.
    dive: OnceLock<Result<Dive<'a>, Exhausted>>,
    stop: &'a Stop<'a>,
}

/// What a task ends with: a placement, nothing below the height it had to beat, or no result
/// within its budget.
type Ending = Result<Option<Vec<u64>>, Exhausted>;

impl<'a> Ground<'a> {
    fn new(instance: &'a Instance, stop: &'a Stop<'a>) -> Self {
        Ground {
            instance,
            dive: OnceLock::new(),
            stop,
        }
    }

    fn dive(&self) -> Result<&Dive<'a>, Exhausted> {
        let make = || Dive::new(self.instance, self.stop);
        self.dive.get_or_init(make).as_ref().map_err(|&cut| cut)
    }

    /// Makes one placement with a strategy that is a single pass. A dive aims at the target, and ends
    /// without one where it says to give up.
    fn run(&self, strategy: Strategy, target: Target, budget: &mut Budget<'_>) -> Ending {
        match strategy {
            Strategy::Greedy(fit, order) => {
                let order = order::sorted(self.instance, order, self.stop)?;
                greedy::place(self.instance, &order, fit, budget).map(Some)
            }
            Strategy::Core(order) => core::place(self.instance, order, target, budget),
            Strategy::Dive(order) => {
                let order = order::sorted(self.instance, order, self.stop)?;
                self.dive()?.run(&order, target, budget)
            }
            Strategy::Peer(peer) => peers::place(self.instance, peer, budget),
            Strategy::Auto | Strategy::Sweep | Strategy::Exact | Strategy::Restarts => {
                Ok(Some(sweep::place(self.instance)))
            }
        }
    }
}

/// A placement and how it was found.
#[derive(Clone)]
struct Found {
    offsets: Vec<u64>,
    height: u64,
    strategy: Strategy,
}

/// The search on an instance, or on one part of it.
struct Search<'a> {
    ground: &'a Ground<'a>,
    config: &'a Config,
    watch: &'a Watch<'a>,
    bounds: Bounds,
    /// The height of what is not part of this instance.
    outside: u64,
    /// Whether it aims lower than at the capacity that it is asked for.
    aims_lower: bool,
    /// What another search has found: heights above it are no news.
    known: u64,
    steps_left: u64,
    best: Found,
}

impl<'a> Search<'a> {
    /// Begins with a placement.
    fn new(
        ground: &'a Ground<'a>,
        config: &'a Config,
        watch: &'a Watch<'a>,
        bounds: Bounds,
        best: Found,
    ) -> Self {
        let steps = || Config::default_steps(ground.instance.len());
        Search {
            ground,
            config,
            watch,
            bounds,
            outside: 0,
            aims_lower: false,
            known: u64::MAX,
            steps_left: config.steps.unwrap_or_else(steps),
            best,
        }
    }

    /// Does what the strategy says.
    fn run(&mut self) {
        self.report();
        match self.config.strategy {
            Strategy::Auto => {
                self.all_passes();
                self.improve(true, true);
            }
            Strategy::Sweep => {}
            Strategy::Exact => self.improve(true, false),
            Strategy::Restarts => self.improve(false, true),
            strategy => self.alone(strategy),
        }
    }

    /// The height at which there is nothing more to look for.
    fn enough(&self) -> u64 {
        let capacity = self.config.capacity.unwrap_or(0);
        capacity.max(self.bounds.lower_bound)
    }

    /// The height that is aimed at first.
    fn aim(&self) -> u64 {
        match self.aims_lower {
            true => self.bounds.lower_bound,
            false => self.enough(),
        }
    }

    /// Whether no height is of use but that of the capacity.
    fn asked(&self) -> bool {
        self.config.capacity.is_some() && !self.aims_lower
    }

    /// Whether there is nothing more to look for, or no way to go on.
    fn done(&self) -> bool {
        self.decided() || self.steps_left == 0 || self.ground.stop.is_over()
    }

    /// Whether there is nothing more to look for.
    fn decided(&self) -> bool {
        let capacity = self.config.capacity;
        let cannot_fit = capacity.is_some_and(|capacity| self.bounds.lower_bound > capacity);
        self.best.height <= self.enough() || cannot_fit
    }

    /// Whether the exact search takes all of it.
    fn small(&self) -> bool {
        self.ground.instance.len() <= MAX_MEMBERS
    }

    fn report(&self) {
        let height = self.best.height.max(self.outside);
        if let Some(progress) = self.watch.progress
            && height <= self.known
        {
            progress(Progress {
                height,
                lower_bound: self.bounds.lower_bound,
                strategy: self.best.strategy,
            });
        }
    }

    /// Keeps a placement if it is lower than the best; whether it was.
    fn offer(&mut self, offsets: Vec<u64>, strategy: Strategy) -> bool {
        let height = self.ground.instance.height_of(&offsets);
        let better = height < self.best.height;
        if better {
            self.best = Found {
                offsets,
                height,
                strategy,
            };
            self.report();
        }
        better
    }

    /// One single-pass strategy, without a limit of steps.
    fn alone(&mut self, strategy: Strategy) {
        let mut budget = Budget::new(u64::MAX, self.ground.stop);
        let target = Target {
            height: self.aim(),
            give_up: u64::MAX,
        };
        if let Ok(Some(offsets)) = self.ground.run(strategy, target, &mut budget) {
            self.best.height = u64::MAX;
            self.offer(offsets, strategy);
        }
    }

    /// The single passes, with a repair where it pays: behind the first few, or before all of them
    /// where each would take longer.
    fn all_passes(&mut self) {
        let first = match self.ground.instance.len() > REPAIRED_FIRST {
            true => 0,
            false => PASSES_BEFORE_REPAIR,
        };
        self.single_passes(Strategy::single_passes().take(first));
        self.repair();
        self.single_passes(Strategy::single_passes().skip(first));
    }

    /// Lowers the best placement where it is too high.
    fn repair(&mut self) {
        let instance = self.ground.instance;
        // On small instances the exact search does all of this, and more.
        let pays = instance.rules().is_empty() && !self.small();
        if self.done() || !self.config.techniques.repair || !pays {
            return;
        }
        let mut budget = Budget::new(self.steps_left, self.ground.stop);
        let mut offsets = self.best.offsets.clone();
        let aim = self.aim();
        let _cut = repair::lower(instance, &mut offsets, aim, &mut budget);
        self.steps_left = self.steps_left.saturating_sub(budget.used());
        self.offer(offsets, self.best.strategy);
    }

    fn single_passes(&mut self, strategies: impl Iterator<Item = Strategy>) {
        let core_first = self.config.techniques.core_first;
        // On small instances the exact search finds all that these two would, and more.
        let small = self.small();
        let wanted = |strategy: &Strategy| match strategy {
            Strategy::Core(_) => core_first && !small,
            Strategy::Greedy(..) => !small,
            _ => true,
        };
        let strategies: Vec<Strategy> = strategies.filter(wanted).collect();
        let ground = self.ground;
        let target = Target {
            height: self.aim(),
            give_up: self.best.height,
        };
        let task =
            |index: usize, budget: &mut Budget<'_>| ground.run(strategies[index], target, budget);
        self.in_turn(strategies.len(), task, |search, index, ending| {
            if let Ok(Some(offsets)) = ending {
                search.offer(offsets, strategies[index]);
            }
            false
        });
    }

    /// Runs tasks until there is nothing more to look for or `take`, which gets what the steps
    /// allow, says that it is enough.
    fn in_turn<T: Send>(
        &mut self,
        tasks: usize,
        task: impl Fn(usize, &mut Budget<'_>) -> T + Sync,
        mut take: impl FnMut(&mut Self, usize, T) -> bool,
    ) {
        if self.done() {
            return;
        }
        let steps_left = AtomicU64::new(self.steps_left);
        let stop = self.ground.stop;
        let run = |index: usize, unwanted: &AtomicBool| {
            // Threads that run ahead may see too much here, never too little.
            let limit = steps_left.load(Ordering::Relaxed);
            let mut budget = Budget::new(limit, stop).unless(unwanted);
            let ending = task(index, &mut budget);
            (ending, limit, budget.used())
        };
        in_order(
            self.config.threads,
            tasks,
            run,
            |index, (ending, limit, used)| {
                let ending = if used > self.steps_left && limit > self.steps_left {
                    task(index, &mut Budget::new(self.steps_left, stop))
                } else {
                    ending
                };
                self.steps_left = self.steps_left.saturating_sub(used);
                steps_left.store(self.steps_left, Ordering::Relaxed);
                let enough = take(self, index, ending);
                if enough || self.done() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
    }

    /// Works on the parts that are independent in time, each of them within its share of the steps:
    /// a height that one of them needs is a bound for the whole.
    fn improve(&mut self, exact: bool, dives: bool) {
        let instance = self.ground.instance;
        let Ok(parts) = exact::parts(instance, self.ground.stop) else {
            return;
        };
        let mut parts_left = parts.len() as u64;
        if parts_left <= 1 {
            return self.rounds(exact, dives);
        }
        for part in parts {
            let share = self.steps_left / parts_left;
            parts_left -= 1;
            let buffers: Vec<usize> = part.iter().map(|&buffer| buffer as usize).collect();
            let end = |&b: &usize| self.best.offsets[b] + instance.buffers()[b].size;
            let height = buffers.iter().map(end).max().unwrap_or(0);
            if height <= self.enough() {
                continue;
            }
            if self.ground.stop.is_over() {
                break;
            }
            let offsets: Vec<u64> = buffers.iter().map(|&b| self.best.offsets[b]).collect();
            let inner = instance.part(&buffers);
            let ground = Ground::new(&inner, self.ground.stop);
            let mut search = Search {
                ground: &ground,
                config: self.config,
                watch: self.watch,
                bounds: self.bounds,
                outside: self.best.height,
                aims_lower: self.aims_lower,
                known: self.known,
                steps_left: share,
                best: Found {
                    offsets,
                    height,
                    strategy: self.best.strategy,
                },
            };
            search.rounds(exact, dives);
            self.steps_left -= share - search.steps_left;
            self.bounds.lower_bound = search.bounds.lower_bound;
            if search.best.height < height {
                self.best.strategy = search.best.strategy;
                for (&buffer, &offset) in buffers.iter().zip(&search.best.offsets) {
                    self.best.offsets[buffer] = offset;
                }
            }
        }
        self.best.height = instance.height_of(&self.best.offsets);
        self.report();
    }

    /// Rounds of exact search and of dives, until there is nothing more to look for.
    fn rounds(&mut self, exact: bool, dives: bool) {
        let instance = self.ground.instance;
        let first = match self.best.strategy {
            Strategy::Dive(order) | Strategy::Core(order) => order,
            _ => Order::Area,
        };
        let Ok(mut base) = order::sorted(instance, first, self.ground.stop) else {
            return;
        };
        let exact = exact && base.len() <= MAX_MEMBERS;
        let dives = dives && (self.config.techniques.restarts || !exact);
        let mut random = fastrand::Rng::with_seed(self.config.seed);
        let shaken = exact && self.config.techniques.shakes;
        let mut shakes = shaken.then(|| Shakes::new(instance, grain(instance), self.ground.stop));
        let mut round = 0;
        while !self.done() && (exact || dives) {
            let before = self.steps_left;
            if exact {
                self.exact_round(round);
            }
            if let Some(Ok(shakes)) = &mut shakes {
                let steps = (before - self.steps_left).saturating_mul(SHAKES_PER_STEP);
                self.shake(shakes, steps, &mut random);
            }
            // A dive costs far less than an exact search may.
            for _ in 0..if exact { 1 << (2 * round).min(8) } else { 1 } {
                if dives && !self.done() {
                    self.dive_round(&mut base, &mut random);
                }
            }
            round += 1;
        }
    }

    /// The exact search at the height aimed at, and when that fails at the rungs of a ladder between
    /// it and the best height, again and again while one is reached: that costs far less than
    /// missing one. Where a capacity is asked for there is no use in rungs above it.
    fn exact_round(&mut self, round: u32) {
        let Techniques {
            restarts, ladder, ..
        } = self.config.techniques;
        let limit = if restarts {
            EXACT_STEPS.saturating_mul(1 << round.min(60))
        } else {
            u64::MAX
        };
        self.exact_at(self.aim(), limit, Turn::All);
        while ladder && !self.asked() && self.exact_rung(limit) {}
    }

    /// The exact search at the rungs of the ladder, by the patient ways and then by the others,
    /// until one finds a placement or proves that there is none; whether one did.
    fn exact_rung(&mut self, limit: u64) -> bool {
        let (best, bound) = (self.best.height, self.aim());
        for turn in [Turn::Patient, Turn::Others] {
            let mut last = bound;
            for part in RUNGS {
                let rung = best - best.saturating_sub(bound).div_ceil(part);
                // Those that are no rungs of their own, and the bound, have been tried.
                if rung == last || self.done() {
                    continue;
                }
                last = rung;
                if self.exact_at(rung, limit, turn) {
                    return true;
                }
            }
        }
        false
    }

    /// The exact search at one height in the ways whose turn it is, each within `limit` steps times
    /// its patience, until one finds a placement or proves that there is none; whether one did.
    fn exact_at(&mut self, height: u64, limit: u64, turn: Turn) -> bool {
        let techniques = self.config.techniques;
        let instance = self.ground.instance;
        let taken = |way: &Way| match turn {
            Turn::All => true,
            Turn::Patient => way.patience > 1,
            Turn::Others => way.patience == 1,
        };
        let mut attempts: Vec<(Way, Vec<u32>)> = Vec::new();
        for way in WAYS.into_iter().filter(taken) {
            let Ok(order) = order::sorted(instance, way.order, self.ground.stop) else {
                return false;
            };
            // Where all sections have the same load, half of the orders are the same.
            let covers = |(other, known): &(Way, Vec<u32>)| other.covers(way) && *known == order;
            if !attempts.iter().any(covers) {
                attempts.push((way, order));
            }
        }
        let task = |index: usize, budget: &mut Budget<'_>| {
            let (way, order) = &attempts[index];
            budget.within(limit.saturating_mul(way.patience), |budget| {
                exact::search(instance, order, height, *way, techniques, budget)
            })
        };
        let mut decided = false;
        self.in_turn(attempts.len(), task, |search, _, ending| {
            decided = search.decides(height, ending);
            decided
        });
        decided
    }

    /// Takes what an exact search at a height ended with: whether it found a placement or proved
    /// that there is none.
    fn decides(&mut self, height: u64, ending: Ending) -> bool {
        match ending {
            Ok(Some(offsets)) => self.offer(offsets, Strategy::Exact),
            Ok(None) => {
                let grain = grain(self.ground.instance);
                let next = (height / grain + 1).saturating_mul(grain);
                // Higher than the best is said of what the best need not beat.
                let next = next.min(self.best.height);
                self.bounds.lower_bound = self.bounds.lower_bound.max(next);
                self.report();
                true
            }
            Err(Exhausted) => false,
        }
    }

    /// Short exact searches from shaken orders, for about as many steps; see [`Shakes`].
    fn shake(&mut self, shakes: &mut Shakes, steps: u64, random: &mut fastrand::Rng) {
        let techniques = self.config.techniques;
        let instance = self.ground.instance;
        let asked = self.asked() || !techniques.ladder;
        let end = self.steps_left.saturating_sub(steps);
        while !self.done() && self.steps_left > end {
            let best = self.best.height;
            let mut tries = shakes.draw(self.aim(), best, asked, random);
            let task = |index: usize, budget: &mut Budget<'_>| {
                let made: &Try = &tries[index];
                budget.within(made.limit, |budget| {
                    let Try { order, height, .. } = made;
                    exact::search(instance, order, *height, made.way, techniques, budget)
                })
            };
            let mut last = None;
            self.in_turn(tries.len(), task, |search, index, ending| {
                let decided = search.decides(tries[index].height, ending);
                last = decided.then_some(index);
                decided
            });
            if let Some(index) = last.filter(|_| self.best.height < best) {
                shakes.succeeded(tries.swap_remove(index));
            }
        }
    }

    /// Dives from random changes of the base order, at heights between the bound and the best. The
    /// last that lowers the height becomes the base.
    fn dive_round(&mut self, base: &mut Vec<u32>, random: &mut fastrand::Rng) {
        let ladder = self.config.techniques.ladder;
        let ground = self.ground;
        let mut changed: Vec<Vec<u32>> = Vec::new();
        for strength in 1..=DIVES_PER_ROUND {
            if ground.stop.is_over() {
                return;
            }
            changed.push(order::disturbed(base, base.len() >> strength, random));
        }
        let (low, high) = (self.aim(), self.best.height);
        let task = |index: usize, budget: &mut Budget<'_>| {
            let rung = if ladder { index as u64 } else { 0 };
            let target = Target {
                height: low + (high - low) / DIVES_PER_ROUND as u64 * rung,
                give_up: high,
            };
            ground.dive()?.run(&changed[index], target, budget)
        };
        let mut winner = None;
        self.in_turn(DIVES_PER_ROUND, task, |search, index, ending| {
            if let Ok(Some(offsets)) = ending
                && search.offer(offsets, Strategy::Restarts)
            {
                winner = Some(index);
            }
            false
        });
        if let Some(winner) = winner {
            *base = changed.swap_remove(winner);
        }
    }

    /// The solution of the instance whose plain form was searched.
    fn finish(self, stated: &Instance) -> Result<Solution, SolveError> {
        let Bounds {
            max_load,
            lower_bound,
        } = self.bounds;
        let instance = self.ground.instance;
        let Found {
            offsets,
            height,
            strategy,
        } = self.best;
        let offsets = stated.stated_offsets(offsets);
        if let Err(violation) = validate::validate(stated, &offsets, Some(height)) {
            return Err(SolveError::InvalidPlacement {
                strategy,
                violation,
            });
        }
        let fits = self.config.capacity.map(|capacity| {
            if height <= capacity {
                Fits::Yes
            } else if lower_bound > capacity {
                Fits::No
            } else {
                Fits::Undecided
            }
        });
        let capacity = self.config.capacity.filter(|_| fits == Some(Fits::No));
        let conflict = capacity.map(|capacity| {
            let budget = Budget::new(self.steps_left.max(EXACT_STEPS), self.ground.stop);
            conflict::find(instance, capacity, self.config.techniques, budget)
        });
        Ok(Solution {
            offsets,
            height,
            max_load,
            lower_bound,
            proven_optimal: height == lower_bound,
            fits,
            conflict: stated.stated_buffers(conflict.unwrap_or_default()),
            strategy,
            cut_by_clock: self.ground.stop.out_of_time(),
            cancelled: self.ground.stop.cancelled(),
        })
    }
}

/// All heights that a placement without needless room can have are multiples of this.
fn grain(instance: &Instance) -> u64 {
    let buffers = instance.buffers().iter();
    let numbers = buffers.filter(|buffer| buffer.size > 0).flat_map(|buffer| {
        let aligned = (buffer.alignment > 1).then_some(buffer.alignment);
        [Some(buffer.size), aligned, buffer.offset]
    });
    let divisor = numbers.flatten().fold(0, |mut a, mut b| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    divisor.max(1)
}
