//! Greedy placement in any order: each buffer goes into a free place among the placed buffers that
//! are alive together with it.

use std::ops::ControlFlow;

use crate::budget::{Budget, Exhausted};
use crate::heuristics::Fit;
use crate::heuristics::index::TimeIndex;
use crate::instance::{Instance, align_up};

/// Places the buffers of `order` one after another, the fixed ones before all others; returns an
/// offset for each buffer of the instance (0 for those of size 0 that are not fixed).
pub(crate) fn place(
    instance: &Instance,
    order: &[u32],
    fit: Fit,
    budget: &mut Budget<'_>,
) -> Result<Vec<u64>, Exhausted> {
    let buffers = instance.buffers();
    let mut offsets: Vec<u64> = buffers
        .iter()
        .map(|buffer| buffer.offset.unwrap_or(0))
        .collect();
    let mut index = TimeIndex::new(instance);
    budget.spend(instance.len() as u64)?;
    for (buffer, _) in buffers
        .iter()
        .enumerate()
        .filter(|(_, buffer)| buffer.offset.is_some())
    {
        index.insert(instance, buffer);
    }
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &buffer in order {
        let buffer = buffer as usize;
        if buffers[buffer].offset.is_some() {
            continue;
        }
        taken.clear();
        let mut steps = 0;
        for &piece in instance.pieces(buffer) {
            steps += index.overlapping(piece, |other| {
                taken.push((offsets[other], offsets[other] + buffers[other].size));
                ControlFlow::Continue(())
            });
        }
        taken.sort_unstable();
        budget.spend(steps + 4 * taken.len() as u64 + 8)?;
        offsets[buffer] = free_place(&taken, buffers[buffer].size, buffers[buffer].alignment, fit);
        index.insert(instance, buffer);
    }
    Ok(offsets)
}

/// The offset that `fit` chooses among the places left by `taken`, sorted (start, end) ranges that
/// may overlap.
fn free_place(taken: &[(u64, u64)], size: u64, alignment: u64, fit: Fit) -> u64 {
    let mut top = 0;
    let mut best: Option<(u64, u64)> = None;
    for &(start, end) in taken {
        if start > top {
            let offset = align_up(top, alignment);
            if offset <= start && start - offset >= size {
                if fit == Fit::First {
                    return offset;
                }
                let room = start - top;
                if best.is_none_or(|(least, _)| room < least) {
                    best = Some((room, offset));
                }
            }
        }
        top = top.max(end);
    }
    match best {
        Some((_, offset)) => offset,
        None => align_up(top, alignment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Stop;
    use crate::instance::Buffer;

    #[test]
    fn first_fit_is_lowest_and_best_fit_is_tightest() {
        let taken = [(0, 4), (16, 20), (18, 24), (32, 40)];
        let cases = [
            (8, 1, Fit::First, 4),
            (8, 1, Fit::Best, 24),
            (8, 8, Fit::First, 8),
            (12, 8, Fit::First, 40),
            (9, 1, Fit::Best, 4),
            (13, 1, Fit::Best, 40),
        ];
        for (size, alignment, fit, expected) in cases {
            let offset = free_place(&taken, size, alignment, fit);
            assert_eq!(offset, expected, "{size} bytes to {alignment}, {fit:?}");
        }
        assert_eq!(free_place(&[], 8, 8, Fit::Best), 0);
    }

    #[test]
    fn fixed_buffers_stay_and_others_go_round_them() {
        let instance = Instance::new(vec![
            Buffer::new(8, 0, 2),
            Buffer::new(4, 1, 3).with_offset(4),
            Buffer::new(4, 2, 4),
        ])
        .unwrap();
        let stop = Stop::new(None, None);
        let mut budget = Budget::new(1000, &stop);
        let offsets = place(&instance, &[0, 1, 2], Fit::First, &mut budget);
        assert_eq!(offsets, Ok(vec![8, 4, 0]));
    }
}
