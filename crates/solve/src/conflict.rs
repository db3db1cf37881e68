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

/// Steps that bounds take for each buffer, about.
const BOUNDS_STEPS: u64 = 64;

/// Finds buffers of which it is proven that they need more than `capacity`; sorted indices. Of one
/// moment the largest, where their sum is too much: no fewer are. Else it leaves out what is not
/// needed for the proof, and these are all buffers that have a size when no smaller set is found
/// within the budget.
pub(crate) fn find(
    instance: &Instance,
    capacity: u64,
    techniques: Techniques,
    mut budget: Budget<'_>,
) -> Vec<usize> {
    let heaviest = heaviest(instance);
    if let Some(largest) = too_large(instance, &heaviest, capacity) {
        return largest;
    }
    let stop = budget.stop();
    let mut cannot_fit = |set: &[usize]| {
        budget.spend(set.len() as u64 * BOUNDS_STEPS)?;
        let inner = instance.part(set);
        if bounds::bounds(&inner).lower_bound > capacity {
            return Ok(true);
        }
        for way in [WAYS[0], WAYS[1]] {
            let ranked = order::sorted(&inner, way.order, budget.stop())?;
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
    let Ok(parts) = exact::parts(instance, stop) else {
        return set;
    };
    let starts = parts.into_iter();
    let starts = starts.map(|part| part.into_iter().map(|buffer| buffer as usize).collect());
    for start in std::iter::once(heaviest).chain(starts) {
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
fn heaviest(instance: &Instance) -> Vec<usize> {
    let loads = bounds::section_loads(instance);
    let heaviest = (0u32..).zip(&loads).min_by_key(|&(_, &load)| Reverse(load));
    let section = heaviest.map_or(0, |(section, _)| section);
    let alive = |&buffer: &usize| {
        let mut pieces = instance.pieces(buffer).iter();
        pieces.any(|piece| (piece.lower..piece.upper).contains(&section))
    };
    instance.own().filter(alive).collect()
}

/// The fewest of some buffers, all alive at one moment, that are larger together than the capacity.
fn too_large(instance: &Instance, alive: &[usize], capacity: u64) -> Option<Vec<usize>> {
    let size = |&buffer: &usize| instance.buffers()[buffer].size;
    let mut largest = alive.to_vec();
    largest.sort_by_key(|buffer| Reverse(size(buffer)));
    let mut sum = 0;
    let last = largest.iter().position(|buffer| {
        sum += size(buffer);
        sum > capacity
    })?;
    largest.truncate(last + 1);
    largest.sort_unstable();
    Some(largest)
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

    /// With very many buffers at one moment of which all but few are needed, also where no plain sum
    /// shows it.
    #[test]
    fn it_ends_soon_however_many_buffers_are_needed() {
        let sizes = |at: u64| 64 + at % 3;
        let plain = (0..20_000).map(|at| Buffer::new(sizes(at), at % 7, 10));
        let aligned = plain.clone().map(|buffer| buffer.with_alignment(64));
        let sum: u64 = (0..20_000).map(sizes).sum();
        let start = std::time::Instant::now();
        let all: Vec<usize> = (0..20_000).collect();
        assert_eq!(conflict(plain.collect(), sum - 1), all);
        let instance = Instance::new(aligned.collect()).unwrap();
        let stop = Stop::new(None, None);
        let budget = Budget::new(20_000_000, &stop);
        let named = find(&instance, sum, Techniques::default(), budget);
        let inner = instance.part(&named);
        assert!(bounds::bounds(&inner).lower_bound > sum);
        assert!(start.elapsed().as_secs() < 60);
    }

    #[test]
    fn a_fixed_buffer_may_be_all() {
        let high = Buffer::new(8, 0, 1).with_offset(96);
        assert_eq!(conflict(vec![Buffer::new(50, 0, 9), high], 100), [1]);
    }
}
