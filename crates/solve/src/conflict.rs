//! Why a capacity cannot be met: a small set of buffers that do not fit into it on their own.

use std::cmp::Reverse;

use crate::bounds;
use crate::budget::{Budget, Exhausted};
use crate::exact::{self, WAYS};
use crate::heuristics::order;
use crate::instance::Instance;
use crate::solution::Techniques;

/// Steps for one proof that a smaller set does not fit either.
const PROOF_STEPS: u64 = 1_000_000;

/// Finds buffers of which it is proven that they need more than `capacity`, by leaving out what is
/// not needed for the proof; sorted indices. All buffers that have a size when no smaller set is
/// found within the budget.
pub(crate) fn find(
    instance: &Instance,
    capacity: u64,
    techniques: Techniques,
    mut budget: Budget<'_>,
) -> Vec<usize> {
    let mut cannot_fit = |set: &[usize]| {
        let inner = instance.part(set);
        if bounds::bounds(&inner).lower_bound > capacity {
            return Ok(true);
        }
        for way in [WAYS[0], WAYS[1]] {
            let ranked = order::sorted(&inner, way.order);
            let proof = budget.within(PROOF_STEPS, |budget| {
                exact::search(&inner, &ranked, capacity, way, techniques, budget)
            });
            match proof {
                Ok(found) => return Ok(found.is_none()),
                Err(Exhausted) => budget.spend(0)?,
            }
        }
        Ok::<bool, Exhausted>(false)
    };
    let buffers = instance.buffers();
    let all = instance.own().filter(|&buffer| buffers[buffer].size > 0);
    let mut set: Vec<usize> = all.collect();
    let starts = exact::parts(instance).into_iter();
    let starts = starts.map(|part| part.into_iter().map(|buffer| buffer as usize).collect());
    for start in heaviest(instance).into_iter().chain(starts) {
        let mut start: Vec<usize> = start;
        start.sort_unstable();
        match cannot_fit(&start) {
            Ok(true) => {
                set = start;
                break;
            }
            Ok(false) => {}
            Err(Exhausted) => return set,
        }
    }
    // Leaves out runs of buffers, from halves down to single ones.
    let mut run = set.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < set.len() {
            let mut smaller = set.clone();
            smaller.drain(at..(at + run).min(set.len()));
            match cannot_fit(&smaller) {
                Ok(true) => set = smaller,
                Ok(false) => at += run,
                Err(Exhausted) => return set,
            }
        }
        if run <= 1 {
            return set;
        }
        run = run.div_ceil(2);
    }
}

/// The buffers alive in the section with the largest load.
fn heaviest(instance: &Instance) -> Option<Vec<usize>> {
    let loads = bounds::section_loads(instance);
    let heaviest = (0u32..).zip(&loads).min_by_key(|&(_, &load)| Reverse(load));
    let section = heaviest?.0;
    let alive = |&buffer: &usize| {
        let mut pieces = instance.pieces(buffer).iter();
        pieces.any(|piece| (piece.lower..piece.upper).contains(&section))
    };
    Some(instance.own().filter(alive).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Stop;
    use crate::instance::Buffer;

    fn conflict(buffers: Vec<Buffer>, capacity: u64) -> Vec<usize> {
        let instance = Instance::new(buffers).unwrap();
        let stop = Stop::new(None, None);
        let budget = Budget::new(u64::MAX, &stop);
        find(&instance, capacity, Techniques::default(), budget)
    }

    #[test]
    fn of_a_heavy_moment_only_what_is_needed_is_named() {
        let buffers = vec![
            Buffer::new(10, 0, 9),
            Buffer::new(70, 0, 3),
            Buffer::new(50, 2, 5),
            Buffer::new(90, 6, 9),
        ];
        assert_eq!(conflict(buffers, 100), [1, 2]);
    }

    #[test]
    fn what_no_load_shows_is_proven_by_search() {
        let rows = [
            (0, 1, 24),
            (1, 2, 16),
            (0, 2, 24),
            (0, 3, 8),
            (3, 4, 16),
            (1, 5, 16),
            (2, 5, 32),
            (4, 5, 24),
            (9, 12, 60),
        ];
        let buffers = rows.map(|(lower, upper, size)| Buffer::new(size, lower, upper));
        let named = conflict(buffers.to_vec(), 71);
        assert!(!named.contains(&8), "{named:?}");
        let inner = named
            .iter()
            .map(|&buffer| buffers[buffer].clone())
            .collect();
        let inner = Instance::new(inner).unwrap();
        let config = crate::Config::default();
        assert!(crate::solve(&inner, &config).unwrap().lower_bound > 71);
    }

    #[test]
    fn a_fixed_buffer_may_be_all() {
        let high = Buffer::new(8, 0, 1).with_offset(96);
        assert_eq!(conflict(vec![Buffer::new(50, 0, 9), high], 100), [1]);
    }
}
