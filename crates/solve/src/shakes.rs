//! Short exact searches from orders that are shaken a little: what to try next, and what to learn
//! from a success.
//!
//! An exact search that is going to succeed does so early: its first choices were right. So many
//! short searches that begin differently find more than a few long ones. Only some ways have a
//! chance on an instance, and which is not known beforehand; so a way that succeeded is taken more
//! often, from the order that succeeded, and so is the rung that it reached.

use crate::budget::{Exhausted, Stop};
use crate::exact::{WAYS, Way};
use crate::heuristics::order;
use crate::instance::Instance;

/// Searches that are drawn before any of them can teach anything: at most so many run at a time.
const BATCH: usize = 8;

/// Heights lie one over these parts of the way from the best height down to the bound.
const RUNGS: [u64; 5] = [1, 6, 12, 24, 48];

/// How much more often what succeeded is taken, in terms of what did not yet.
const GAIN: u64 = 4;

/// Steps of the shortest searches, and what comes to them for each pair of buffers: about what a
/// few hundred nodes cost.
const STEPS: u64 = 2_500_000;
const STEPS_PER_PAIR: u64 = 16;

/// Limits go by [`luby`]'s sequence, up to this power of two.
const MOST_DOUBLINGS: u32 = 4;

/// What has been learned on one instance.
pub(crate) struct Shakes {
    ways: Vec<Shaken>,
    /// How often each rung is taken.
    rungs: [u64; RUNGS.len()],
    steps: u64,
    grain: u64,
    tries: u64,
}

/// A way, the order that did best in it, and how often it is taken.
struct Shaken {
    way: Way,
    order: Vec<u32>,
    weight: u64,
}

/// One search to make.
pub(crate) struct Try {
    pub(crate) way: Way,
    pub(crate) order: Vec<u32>,
    pub(crate) height: u64,
    pub(crate) limit: u64,
    /// Indices in [`Shakes`].
    shaken: usize,
    rung: usize,
}

impl Shakes {
    /// All heights are multiples of `grain`, or the bound.
    pub(crate) fn new(instance: &Instance, grain: u64, stop: &Stop<'_>) -> Result<Self, Exhausted> {
        let mut ways: Vec<Shaken> = Vec::new();
        for way in WAYS {
            let order = order::sorted(instance, way.order, stop)?;
            let known = |other: &Shaken| other.way.visits_as(way) && other.order == order;
            if !ways.iter().any(known) {
                let weight = 1;
                ways.push(Shaken { way, order, weight });
            }
        }
        let buffers = instance.len() as u64;
        let pairs = buffers.saturating_mul(buffers);
        Ok(Shakes {
            ways,
            rungs: [1; RUNGS.len()],
            steps: STEPS.saturating_add(pairs.saturating_mul(STEPS_PER_PAIR)),
            grain,
            tries: 0,
        })
    }

    /// Some searches at heights from `bound` to below `best`; at the bound alone where nothing else
    /// is `asked`.
    pub(crate) fn draw(
        &mut self,
        bound: u64,
        best: u64,
        asked: bool,
        random: &mut fastrand::Rng,
    ) -> Vec<Try> {
        let gap = best.saturating_sub(bound);
        let one = |_| {
            self.tries += 1;
            let shaken = weighted(self.ways.iter().map(|shaken| shaken.weight), random);
            let rung = match asked {
                true => 0,
                false => weighted(self.rungs.iter().copied(), random),
            };
            let height = best - gap.div_ceil(RUNGS[rung]);
            let Shaken { way, order, .. } = &self.ways[shaken];
            let strength = random.u32(4..=6);
            Try {
                way: *way,
                order: order::disturbed(order, order.len() >> strength, random),
                height: (height / self.grain * self.grain).max(bound),
                limit: self
                    .steps
                    .saturating_mul(1 << luby(self.tries).min(MOST_DOUBLINGS)),
                shaken,
                rung,
            }
        };
        (0..BATCH).map(one).collect()
    }

    /// A search found a placement.
    pub(crate) fn succeeded(&mut self, made: Try) {
        self.rungs[made.rung] += GAIN;
        let shaken = &mut self.ways[made.shaken];
        shaken.weight += GAIN;
        shaken.order = made.order;
    }
}

/// The place of a weight, drawn by weight; the weights are few, and at least one is not 0.
fn weighted(weights: impl Iterator<Item = u64> + Clone, random: &mut fastrand::Rng) -> usize {
    let mut rest = random.u64(0..weights.clone().sum::<u64>().max(1));
    let mut weights = weights;
    let place = weights.position(|weight| match rest.checked_sub(weight) {
        Some(less) => {
            rest = less;
            false
        }
        None => true,
    });
    place.unwrap_or(0)
}

/// The sequence of Luby, Sinclair and Zuckerman as powers of two: 0 0 1 0 0 1 2 0 … from 1 on.
/// Whatever the distribution of the times until success, it loses little to the best limits.
fn luby(mut index: u64) -> u32 {
    loop {
        let digits = index.max(1).ilog2() + 1;
        let full = u64::MAX >> (64 - digits);
        if index >= full {
            return digits - 1;
        }
        index -= full >> 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristics::order::Order;
    use crate::instance::Buffer;

    #[test]
    fn limits_double_as_rarely_as_luby_says() {
        let first: Vec<u32> = (1..=15).map(luby).collect();
        assert_eq!(first, [0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 3]);
        assert_eq!(luby(u64::MAX), 63);
    }

    #[test]
    fn what_succeeds_is_taken_more_often() {
        let buffers = (0..40).map(|at| Buffer::new(8 * (1 + at * 7 % 5), at, at + 3 + at % 9));
        let instance = Instance::new(buffers.collect()).unwrap();
        let mut shakes = Shakes::new(&instance, 8, &Stop::new(None, None)).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..30 {
            let mut tries = shakes.draw(80, 200, false, &mut random);
            assert!(tries.iter().all(|made| (80..200).contains(&made.height)));
            let chosen = tries.iter().position(|made| made.way.order == Order::Death);
            if let Some(chosen) = chosen {
                shakes.succeeded(tries.swap_remove(chosen));
            }
        }
        let drawn = shakes.draw(80, 200, true, &mut random);
        assert!(drawn.iter().all(|made| made.height == 80));
        let liked = drawn.iter().filter(|made| made.way.order == Order::Death);
        assert!(liked.count() > BATCH / 2);
    }
}
