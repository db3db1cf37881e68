//! The heaviest set of buffers of which every two meet.
//!
//! Where buffers are kept apart in pairs, as on several streams, such a set may meet at no one moment,
//! and still needs as many bytes as its buffers have together. It is found by branch and bound, with
//! the bound of a colouring: of buffers that never meet a clique has one, so it weighs at most the
//! heaviest of each colour (Babel, "A fast algorithm for the maximum weight clique problem", 1994).
//! What is found when the steps are used up is a bound as well.

use std::cmp::Reverse;

use crate::instance::Instance;

/// Larger instances are left alone: who meets whom takes memory and time in proportion to the square.
const MOST_BUFFERS: usize = 1024;

/// Sets that are looked at.
const STEPS: u32 = 20_000;

/// The bytes of the heaviest clique that is found; 0 where buffers are kept apart by time alone, so
/// that the largest load says it, where there are too many, or where some are kept apart that need not
/// be.
pub(crate) fn heaviest(instance: &Instance) -> u64 {
    let buffers = instance.buffers();
    let mut members: Vec<usize> = instance.own().filter(|&b| buffers[b].size > 0).collect();
    let by_time = instance.rules().separate.is_empty() || instance.is_coarse();
    if by_time || members.len() > MOST_BUFFERS {
        return 0;
    }
    members.sort_by_key(|&b| (Reverse(buffers[b].size), b));
    let words = members.len().div_ceil(64);
    let mut meets = vec![vec![0u64; words]; members.len()];
    for (i, &a) in members.iter().enumerate() {
        for (j, &b) in members[..i].iter().enumerate() {
            if instance.meet(a, b) {
                meets[i][j / 64] |= 1 << (j % 64);
                meets[j][i / 64] |= 1 << (i % 64);
            }
        }
    }
    let mut search = Search {
        weights: members.iter().map(|&b| buffers[b].size).collect(),
        meets,
        best: 0,
        left: STEPS,
    };
    let mut all = vec![0u64; words];
    (0..members.len()).for_each(|i| all[i / 64] |= 1 << (i % 64));
    search.extend(&mut all, 0);
    search.best
}

struct Search {
    /// Falling.
    weights: Vec<u64>,
    /// Whom each meets, a bit each.
    meets: Vec<Vec<u64>>,
    best: u64,
    left: u32,
}

impl Search {
    /// Extends a clique of this weight by some of those that meet all of it.
    fn extend(&mut self, candidates: &mut [u64], weight: u64) {
        self.best = self.best.max(weight);
        for (one, most) in self.coloured(candidates).into_iter().rev() {
            if self.left == 0 || weight.saturating_add(most) <= self.best {
                return;
            }
            self.left -= 1;
            let met = candidates.iter().zip(&self.meets[one]);
            let mut met: Vec<u64> = met.map(|(a, b)| a & b).collect();
            self.extend(&mut met, weight.saturating_add(self.weights[one]));
            candidates[one / 64] &= !(1 << (one % 64));
        }
    }

    /// The candidates colour by colour, each with the most that a clique of it and those before it can
    /// weigh.
    fn coloured(&self, candidates: &[u64]) -> Vec<(usize, u64)> {
        let mut left = candidates.to_vec();
        let mut order = Vec::new();
        let mut most = 0u64;
        loop {
            // The heaviest comes first, so it is the weight of its colour.
            let mut free = left.clone();
            let Some(first) = next(&free) else {
                return order;
            };
            most = most.saturating_add(self.weights[first]);
            while let Some(one) = next(&free) {
                order.push((one, most));
                left[one / 64] &= !(1 << (one % 64));
                free[one / 64] &= !(1 << (one % 64));
                for (free, met) in free.iter_mut().zip(&self.meets[one]) {
                    *free &= !met;
                }
            }
        }
    }
}

/// The first bit that is set.
fn next(bits: &[u64]) -> Option<usize> {
    let (word, bits) = bits.iter().enumerate().find(|(_, bits)| **bits != 0)?;
    Some(word * 64 + bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Rules};

    /// The heaviest clique among all subsets.
    fn brute(instance: &Instance) -> u64 {
        let n = instance.len();
        let weight = |set: u32| {
            let of = |&i: &usize| set >> i & 1 == 1;
            let members: Vec<usize> = (0..n).filter(of).collect();
            let all_meet = members.iter().all(|&a| {
                let others = members.iter().filter(|&&b| b > a);
                others.into_iter().all(|&b| instance.meet(a, b))
            });
            let sum = members.iter().map(|&m| instance.buffers()[m].size).sum();
            if all_meet { sum } else { 0 }
        };
        (0..1u32 << n).map(weight).max().unwrap_or(0)
    }

    #[test]
    fn three_in_pairs_need_their_sum() {
        let buffers = (0..3u64).map(|i| Buffer::new(10 + i, i, i + 1)).collect();
        let separate = vec![vec![0, 1], vec![1, 2], vec![0, 2]];
        let rules = Rules {
            separate,
            ..Rules::default()
        };
        let instance = Instance::with_rules(buffers, rules).unwrap();
        assert_eq!(heaviest(&instance), 33);
        let bounds = crate::bounds::bounds(&instance);
        assert_eq!((bounds.lower_bound, bounds.max_load < 33), (33, true));
    }

    #[test]
    fn random_cliques_are_the_heaviest() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..300 {
            let n = random.usize(2..11);
            let buffers = (0..n)
                .map(|_| {
                    let first = random.u64(0..12);
                    Buffer::new(random.u64(1..9), first, first + random.u64(1..5))
                })
                .collect();
            let pair = |random: &mut fastrand::Rng| {
                let (a, b) = (random.usize(..n), random.usize(..n - 1));
                vec![a, if b >= a { b + 1 } else { b }]
            };
            let rules = Rules {
                separate: (0..random.usize(1..12))
                    .map(|_| pair(&mut random))
                    .collect(),
                ..Rules::default()
            };
            let instance = Instance::with_rules(buffers, rules).unwrap();
            assert_eq!(heaviest(&instance), brute(&instance));
        }
    }
}
