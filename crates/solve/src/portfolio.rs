//! Runs strategies within the limits and keeps the best placement.
//!
//! # Determinism
//!
//! Tasks count as if they ran one after another in the order of their list: each may use the steps
//! that those before it left, and the earlier one wins a tie. Threads only run ahead on the list;
//! what they find is taken in its order, and what the steps would not have allowed is dropped.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Instant;

use crate::bounds::{self, Bounds};
use crate::budget::{Budget, Exhausted, Stop};
use crate::dive::{Dive, Target};
use crate::exact;
use crate::heuristics::order::{self, Order};
use crate::heuristics::{greedy, sweep};
use crate::instance::Instance;
use crate::solution::{Config, Fits, Solution, SolveError};
use crate::strategy::Strategy;
use crate::validate;

/// Dives from one base order before the best of them becomes the next base.
const DIVES_PER_ROUND: usize = 8;

/// The exact search may use this part of the steps that are left when it begins.
const EXACT_SHARE: u64 = 4;

/// Finds a placement of low height; see [`Config`] for the limits and the crate page for an
/// example.
///
/// A placement is always returned: the one pass of [`Strategy::Sweep`] is made whatever the limits.
/// It is the answer, too, when another strategy was asked for and the time limit cut it.
///
/// # Errors
///
/// Only when a strategy breaks a rule, which is a mistake in this crate.
pub fn solve(instance: &Instance, config: &Config) -> Result<Solution, SolveError> {
    let deadline = config
        .time_limit
        .and_then(|limit| Instant::now().checked_add(limit));
    let bounds = bounds::bounds(instance);
    let ground = Ground {
        instance,
        dive: OnceLock::new(),
        height: bounds.lower_bound,
        stop: Stop::new(deadline),
    };
    let mut search = Search::new(&ground, config, bounds);
    match config.strategy {
        Strategy::Auto => search.portfolio(),
        Strategy::Sweep => {}
        Strategy::Exact => search.prove_small_parts(),
        Strategy::Restarts => search.restarts(),
        strategy => search.alone(strategy),
    }
    search.finish()
}

/// What all tasks of one call read.
struct Ground<'a> {
    instance: &'a Instance,
    /// Made when the first dive asks for it.
    dive: OnceLock<Dive<'a>>,
    /// What the dives aim at.
    height: u64,
    stop: Stop,
}

/// What a task ends with: a placement, nothing below the height it had to beat, or no result
/// within its budget.
type Ending = Result<Option<Vec<u64>>, Exhausted>;

impl<'a> Ground<'a> {
    fn dive(&self) -> &Dive<'a> {
        let make = || Dive::new(self.instance, &bounds::section_loads(self.instance));
        self.dive.get_or_init(make)
    }

    /// Makes one placement with a strategy that is a single pass. A dive ends without one when it
    /// would not be below `beat`.
    fn run(&self, strategy: Strategy, beat: u64, budget: &mut Budget<'_>) -> Ending {
        match strategy {
            Strategy::Greedy(fit, order) => {
                let order = order::sorted(self.instance, order);
                greedy::place(self.instance, &order, fit, budget).map(Some)
            }
            Strategy::Dive(order) => {
                let order = order::sorted(self.instance, order);
                let target = Target {
                    height: self.height,
                    give_up: beat,
                };
                self.dive().run(&order, target, budget)
            }
            Strategy::Auto | Strategy::Sweep | Strategy::Exact | Strategy::Restarts => {
                Ok(Some(sweep::place(self.instance)))
            }
        }
    }
}

/// A placement and how it was found.
struct Found {
    offsets: Vec<u64>,
    height: u64,
    strategy: Strategy,
}

struct Search<'a> {
    ground: &'a Ground<'a>,
    config: &'a Config,
    bounds: Bounds,
    steps_left: u64,
    best: Found,
}

impl<'a> Search<'a> {
    /// Begins with the placement of the sweep.
    fn new(ground: &'a Ground<'a>, config: &'a Config, bounds: Bounds) -> Self {
        let offsets = sweep::place(ground.instance);
        Search {
            ground,
            config,
            bounds,
            steps_left: config.steps,
            best: Found {
                height: ground.instance.height_of(&offsets),
                offsets,
                strategy: Strategy::Sweep,
            },
        }
    }

    /// Whether there is nothing more to look for, or no way to go on.
    fn done(&self) -> bool {
        let enough = self
            .config
            .capacity
            .unwrap_or(0)
            .max(self.bounds.lower_bound);
        self.best.height <= enough || self.steps_left == 0 || self.ground.stop.out_of_time()
    }

    /// One single-pass strategy, without a limit of steps.
    fn alone(&mut self, strategy: Strategy) {
        let mut budget = Budget::new(u64::MAX, &self.ground.stop);
        if let Ok(Some(offsets)) = self.ground.run(strategy, u64::MAX, &mut budget) {
            let height = self.ground.instance.height_of(&offsets);
            self.best = Found {
                offsets,
                height,
                strategy,
            };
        }
    }

    fn portfolio(&mut self) {
        let strategies: Vec<Strategy> = Strategy::all()
            .filter(|strategy| matches!(strategy, Strategy::Greedy(..) | Strategy::Dive(_)))
            .collect();
        let (ground, beat) = (self.ground, self.best.height);
        let task =
            |index: usize, budget: &mut Budget<'_>| ground.run(strategies[index], beat, budget);
        self.in_turn(strategies.len(), task, |index| strategies[index]);
        self.prove_small_parts();
        self.restarts();
    }

    /// Runs tasks until there is nothing more to look for. Returns the last one that lowered the
    /// height.
    fn in_turn(
        &mut self,
        tasks: usize,
        task: impl Fn(usize, &mut Budget<'_>) -> Ending + Sync,
        strategy: impl Fn(usize) -> Strategy,
    ) -> Option<usize> {
        let mut winner = None;
        if self.done() {
            return winner;
        }
        let steps_left = AtomicU64::new(self.steps_left);
        let stop = &self.ground.stop;
        let run = |index: usize, unwanted: &AtomicBool| {
            // Threads that run ahead may see too much here, never too little.
            let limit = steps_left.load(Ordering::Relaxed);
            let mut budget = Budget::new(limit, stop).unless(unwanted);
            let ending = task(index, &mut budget);
            (ending, budget.used())
        };
        in_order(self.config.threads, tasks, run, |index, (ending, used)| {
            let affordable = used <= self.steps_left;
            self.steps_left = self.steps_left.saturating_sub(used);
            steps_left.store(self.steps_left, Ordering::Relaxed);
            if let Ok(Some(offsets)) = ending
                && affordable
            {
                let height = self.ground.instance.height_of(&offsets);
                if height < self.best.height {
                    let strategy = strategy(index);
                    self.best = Found {
                        offsets,
                        height,
                        strategy,
                    };
                    winner = Some(index);
                }
            }
            if self.done() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        winner
    }

    /// Solves the parts that are independent in time and small enough exactly: the least height of
    /// a part is a bound for the whole.
    fn prove_small_parts(&mut self) {
        if self.done() {
            return;
        }
        let buffers = self.ground.instance.buffers();
        let mut budget = Budget::new(self.steps_left / EXACT_SHARE, &self.ground.stop);
        for part in exact::parts(self.ground.instance) {
            let end = |offsets: &[u64]| {
                let ends = part
                    .iter()
                    .map(|&buffer| offsets[buffer] + buffers[buffer].size);
                ends.max().unwrap_or(0)
            };
            let height = end(&self.best.offsets);
            let bound = self.bounds.lower_bound;
            if height <= bound {
                continue;
            }
            let outcome = exact::search(self.ground.instance, &part, height, bound, &mut budget);
            for (&buffer, offset) in part.iter().zip(outcome.better.into_iter().flatten()) {
                self.best.offsets[buffer] = offset;
                self.best.strategy = Strategy::Exact;
            }
            if outcome.complete {
                self.bounds.lower_bound = bound.max(end(&self.best.offsets));
            }
        }
        self.best.height = self.ground.instance.height_of(&self.best.offsets);
        self.steps_left = self.steps_left.saturating_sub(budget.used());
    }

    /// Dives again and again, from random changes of the best order so far and at targets between
    /// the bound and the best height.
    fn restarts(&mut self) {
        let order = match self.best.strategy {
            Strategy::Dive(order) => order,
            _ => Order::Area,
        };
        let ground = self.ground;
        let mut base = order::sorted(ground.instance, order);
        let mut random = fastrand::Rng::with_seed(self.config.seed);
        while !self.done() {
            let changed: Vec<Vec<u32>> = (1..=DIVES_PER_ROUND)
                .map(|strength| disturbed(&base, base.len() >> strength, &mut random))
                .collect();
            let (low, high) = (self.bounds.lower_bound, self.best.height);
            let task = |index: usize, budget: &mut Budget<'_>| {
                let part = (high - low) / DIVES_PER_ROUND as u64 * index as u64;
                let target = Target {
                    height: low + part,
                    give_up: high,
                };
                ground.dive().run(&changed[index], target, budget)
            };
            let winner = self.in_turn(DIVES_PER_ROUND, task, |_| Strategy::Restarts);
            if let Some(winner) = winner {
                base = changed[winner].clone();
            }
        }
    }

    fn finish(self) -> Result<Solution, SolveError> {
        let Bounds {
            max_load,
            lower_bound,
        } = self.bounds;
        let Found {
            offsets,
            height,
            strategy,
        } = self.best;
        if let Err(violation) = validate::validate(self.ground.instance, &offsets, Some(height)) {
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
        Ok(Solution {
            offsets,
            height,
            max_load,
            lower_bound,
            proven_optimal: height == lower_bound,
            fits,
            strategy,
            cut_by_clock: self.ground.stop.out_of_time(),
        })
    }
}

/// The order with each element moved back by fewer than `distance` places at random (at least 2).
fn disturbed(order: &[u32], distance: usize, random: &mut fastrand::Rng) -> Vec<u32> {
    let places = order.iter().enumerate();
    let mut keyed: Vec<(usize, u32)> = places
        .map(|(place, &buffer)| (place + random.usize(0..distance.max(2)), buffer))
        .collect();
    keyed.sort_by_key(|&(place, _)| place);
    keyed.into_iter().map(|(_, buffer)| buffer).collect()
}

/// Runs `task(0)`, `task(1)`, … on `threads` threads and hands their results to `take` in that
/// order, until it breaks; tasks still running then see their flag set.
fn in_order<T: Send>(
    threads: NonZeroUsize,
    tasks: usize,
    task: impl Fn(usize, &AtomicBool) -> T + Sync,
    mut take: impl FnMut(usize, T) -> ControlFlow<()>,
) {
    let unwanted = AtomicBool::new(false);
    if threads.get() == 1 || tasks <= 1 {
        for index in 0..tasks {
            if take(index, task(index, &unwanted)).is_break() {
                return;
            }
        }
        return;
    }
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(tasks) {
            let sender = sender.clone();
            let (next, task, unwanted) = (&next, &task, &unwanted);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= tasks || unwanted.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send((index, task(index, unwanted))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: Vec<Option<T>> = (0..tasks).map(|_| None).collect();
        let mut taken = 0;
        for (index, result) in receiver {
            waiting[index] = Some(result);
            while let Some(result) = waiting.get_mut(taken).and_then(Option::take) {
                if take(taken, result).is_break() {
                    unwanted.store(true, Ordering::Relaxed);
                    return;
                }
                taken += 1;
            }
        }
    });
}
