//! Runs strategies within the limits and keeps the best placement.
//!
//! # Determinism
//!
//! Strategies count as if they ran one after another in the order of [`Strategy::all`]: each may
//! use the steps that those before it left, and the earlier one wins a tie. Threads only run ahead
//! on that list; what they find is taken in its order, and what the steps would not have allowed
//! is dropped.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use crate::bounds::{self, Bounds};
use crate::budget::{Budget, Exhausted, Stop};
use crate::heuristics::{greedy, order, sweep};
use crate::instance::Instance;
use crate::solution::{Config, Fits, Solution, SolveError};
use crate::strategy::Strategy;
use crate::validate;

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
    let stop = Stop::new(deadline);
    let mut search = Search::new(instance, config, &stop);
    match config.strategy {
        Strategy::Auto => search.portfolio(),
        Strategy::Sweep => search.sweep(),
        Strategy::Greedy(..) => search.alone(config.strategy),
    }
    search.finish()
}

/// The best placement so far.
struct Incumbent {
    offsets: Vec<u64>,
    height: u64,
    strategy: Strategy,
}

struct Search<'a> {
    instance: &'a Instance,
    config: &'a Config,
    stop: &'a Stop,
    bounds: Bounds,
    steps_left: u64,
    best: Option<Incumbent>,
}

impl<'a> Search<'a> {
    fn new(instance: &'a Instance, config: &'a Config, stop: &'a Stop) -> Self {
        Search {
            instance,
            config,
            stop,
            bounds: bounds::bounds(instance),
            steps_left: config.steps,
            best: None,
        }
    }

    /// The height at which there is nothing more to look for.
    fn goal(&self) -> u64 {
        self.config
            .capacity
            .unwrap_or(0)
            .max(self.bounds.lower_bound)
    }

    fn done(&self) -> bool {
        self.best
            .as_ref()
            .is_some_and(|best| best.height <= self.goal())
    }

    fn keep(&mut self, offsets: Vec<u64>, strategy: Strategy) {
        let height = self.instance.height_of(&offsets);
        if self.best.as_ref().is_none_or(|best| height < best.height) {
            self.best = Some(Incumbent {
                offsets,
                height,
                strategy,
            });
        }
    }

    fn sweep(&mut self) {
        self.keep(sweep::place(self.instance), Strategy::Sweep);
    }

    /// One strategy, without a limit of steps.
    fn alone(&mut self, strategy: Strategy) {
        let mut budget = Budget::new(u64::MAX, self.stop);
        match run(self.instance, strategy, &mut budget) {
            Ok(offsets) => self.keep(offsets, strategy),
            Err(Exhausted) => self.sweep(),
        }
    }

    fn portfolio(&mut self) {
        self.sweep();
        if self.done() {
            return;
        }
        let strategies: Vec<Strategy> = Strategy::all()
            .filter(|strategy| matches!(strategy, Strategy::Greedy(..)))
            .collect();
        let steps_left = AtomicU64::new(self.steps_left);
        let (instance, stop) = (self.instance, self.stop);
        let try_one = |index: usize, unwanted: &AtomicBool| {
            let limit = steps_left.load(Ordering::Relaxed);
            let mut budget = Budget::new(limit, stop).unless(unwanted);
            let placement = run(instance, strategies[index], &mut budget);
            (placement, budget.used())
        };
        in_order(
            self.config.threads,
            strategies.len(),
            try_one,
            |index, (placement, used)| {
                let left = self.steps_left.checked_sub(used);
                self.steps_left = left.unwrap_or(0);
                steps_left.store(self.steps_left, Ordering::Relaxed);
                if let (Ok(offsets), Some(_)) = (placement, left) {
                    self.keep(offsets, strategies[index]);
                }
                if self.done() || self.steps_left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
    }

    fn finish(self) -> Result<Solution, SolveError> {
        let Bounds {
            max_load,
            lower_bound,
        } = self.bounds;
        let Incumbent {
            offsets,
            height,
            strategy,
        } = match self.best {
            Some(best) => best,
            None => Incumbent {
                offsets: sweep::place(self.instance),
                height: 0,
                strategy: Strategy::Sweep,
            },
        };
        if let Err(violation) = validate::validate(self.instance, &offsets, Some(height)) {
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
            cut_by_clock: self.stop.out_of_time(),
        })
    }
}

/// Makes one placement with a strategy that is a single pass.
fn run(
    instance: &Instance,
    strategy: Strategy,
    budget: &mut Budget<'_>,
) -> Result<Vec<u64>, Exhausted> {
    match strategy {
        Strategy::Greedy(fit, order) => {
            greedy::place(instance, &order::sorted(instance, order), fit, budget)
        }
        Strategy::Auto | Strategy::Sweep => Ok(sweep::place(instance)),
    }
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
            scope.spawn(|| {
                let sender = sender;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= tasks || unwanted.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send((index, task(index, &unwanted))).is_err() {
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
