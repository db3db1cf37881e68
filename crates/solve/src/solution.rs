//! What the caller asks for and what it gets.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::strategy::Strategy;
use crate::validate::Violation;

/// What the search does beyond trying everything, each with its reason. All are on by default; they
/// are switched off to measure what each is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// Dive on the buffers of heavy sections first and fill the rest in around them: light sections
    /// cannot bind, and they are most of a large instance.
    pub core_first: bool,
    /// Raise what was passed over to where something can lift it: else it could drop back down, and
    /// the same placement was tried already.
    pub put_off: bool,
    /// Bound a section by stacking its buffers from their least offsets instead of all from the
    /// least one: holes that nobody can fill count.
    pub head_bound: bool,
    /// Raise a buffer that would end too high below a set of others: forced orders show early.
    pub not_first: bool,
    /// Keep buffers that differ in nothing in one order: any other is the same placement.
    pub twins: bool,
    /// Search what no unplaced buffer connects in time apart: one side's failures are not repeated
    /// for every placement of the other.
    pub split: bool,
    /// Begin again with rising limits: a bad first choice is never corrected by going on.
    pub restarts: bool,
    /// Search briefly from orders that are changed a little, more often from those that did well:
    /// what succeeds does so early, and which order does is luck.
    pub shakes: bool,
    /// Aim at heights between the bound and the best, and not only at the bound: where the bound
    /// cannot be reached, aiming at it leads nowhere.
    pub ladder: bool,
    /// Take out what is around a place that is too high and place it again between all else: large
    /// placements are too high at few moments.
    pub repair: bool,
}

impl Techniques {
    /// The names and current values, in the order of the fields.
    pub fn named(&mut self) -> [(&'static str, &mut bool); 10] {
        [
            ("core-first", &mut self.core_first),
            ("put-off", &mut self.put_off),
            ("head-bound", &mut self.head_bound),
            ("not-first", &mut self.not_first),
            ("twins", &mut self.twins),
            ("split", &mut self.split),
            ("restarts", &mut self.restarts),
            ("shakes", &mut self.shakes),
            ("ladder", &mut self.ladder),
            ("repair", &mut self.repair),
        ]
    }
}

/// All on.
impl Default for Techniques {
    fn default() -> Self {
        Techniques {
            core_first: true,
            put_off: true,
            head_bound: true,
            not_first: true,
            twins: true,
            split: true,
            restarts: true,
            shakes: true,
            ladder: true,
            repair: true,
        }
    }
}

/// How to solve: strategy, limits and goal.
///
/// Everything but [`time_limit`](Config::time_limit) is deterministic: the same instance and
/// configuration give the same solution on every machine and for every number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What to run.
    pub strategy: Strategy,
    /// Steps that the search may take, beyond the one pass that is always made; a step is a few
    /// nanoseconds of one core; `None` is what [`Config::default_steps`] says, and with a capacity
    /// as much again where that does not decide it. Single-pass
    /// strategies asked for by name have no such limit. With `u64::MAX` and no time limit the search
    /// ends only when it has proven its best placement.
    pub steps: Option<u64>,
    /// When to stop by the clock, counted from the call.
    pub time_limit: Option<Duration>,
    /// The most bytes that the search may take beyond the instance. When the
    /// [estimate](crate::memory::estimate) is higher it does not begin; there is no limit without it.
    pub memory: Option<u64>,
    /// Threads to search with. They do not change the solution.
    pub threads: NonZeroUsize,
    /// Seed of the random parts of the search.
    pub seed: u64,
    /// Stop at the first placement that ends at or below this many bytes, and say in
    /// [`Solution::fits`] whether there is one. Without it the least height is looked for.
    pub capacity: Option<u64>,
    /// What the search does; all of it but in measurements.
    pub techniques: Techniques,
}

impl Config {
    /// The steps that a search may take by default: about half a second of one core, up to three
    /// for six thousand buffers, and from fifteen thousand on a fifth of a millisecond for each, up
    /// to some ten seconds: so that several dives get to their ends.
    #[must_use]
    pub fn default_steps(buffers: usize) -> u64 {
        const BASE: u64 = 100_000_000;
        // Of those that are no longer searched exactly, and may all be alive together.
        const PER_BUFFER: u64 = 100_000;
        const SOME: u64 = 600_000_000;
        const PER_MANY: u64 = 40_000;
        const MOST: u64 = 2_000_000_000;
        let buffers = u64::try_from(buffers).unwrap_or(u64::MAX);
        let several = buffers.saturating_mul(PER_BUFFER).clamp(BASE, SOME);
        buffers.saturating_mul(PER_MANY).clamp(several, MOST)
    }

    /// The portfolio, limited by the clock and not by steps.
    pub fn with_time_limit(limit: Duration) -> Self {
        Config {
            steps: Some(u64::MAX),
            time_limit: Some(limit),
            ..Config::default()
        }
    }
}

/// The portfolio with the default budget of steps, one thread, and no capacity.
impl Default for Config {
    fn default() -> Self {
        Config {
            strategy: Strategy::Auto,
            steps: None,
            time_limit: None,
            memory: None,
            threads: NonZeroUsize::MIN,
            seed: 0,
            capacity: None,
            techniques: Techniques::default(),
        }
    }
}

/// The answer to "does it fit into the capacity?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// The solution does.
    Yes,
    /// Proven that no placement does.
    No,
    /// Neither was found within the limits.
    Undecided,
}

/// A placement that has been validated, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// The offset of each buffer in bytes, in the order of the instance.
    pub offsets: Vec<u64>,
    /// The end of the highest buffer in bytes, not rounded; buffers of size 0 do not count.
    pub height: u64,
    /// The largest sum of sizes alive at one time, in bytes; a part of `lower_bound`.
    pub max_load: u64,
    /// A height that no placement can beat, in bytes: the strongest one that was proven.
    pub lower_bound: u64,
    /// Whether `height` is proven to be the least: it equals `lower_bound`.
    pub proven_optimal: bool,
    /// The answer about [`Config::capacity`]; `None` when there was none.
    pub fits: Option<Fits>,
    /// When it is proven not to fit: buffers, as sorted indices, that do not fit into the capacity
    /// even on their own. Empty otherwise.
    pub conflict: Vec<usize>,
    /// The strategy that found the placement; never [`Strategy::Auto`]. It is another one than asked
    /// for when that found nothing, or nothing better, within its limits.
    pub strategy: Strategy,
    /// Whether the time limit cut the search, so that another run may end with another solution.
    pub cut_by_clock: bool,
    /// Whether the caller ended the search through [`Watch::cancel`](crate::Watch::cancel).
    pub cancelled: bool,
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// The search may need more memory than it is allowed; nothing was allocated.
    #[error(
        "the search may need {needed} bytes of memory, above the limit of {limit}; raise it, or \
         search with fewer threads"
    )]
    Memory {
        /// The estimate in bytes.
        needed: u64,
        /// [`Config::memory`].
        limit: u64,
    },
    /// A strategy made a placement that breaks a rule, which is a mistake in this crate; nothing of
    /// it is returned.
    #[error("internal error: strategy {strategy} made an invalid placement: {violation}")]
    InvalidPlacement {
        /// The strategy.
        strategy: Strategy,
        /// The rule that it broke.
        violation: Violation,
    },
}
