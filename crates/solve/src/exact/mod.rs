//! Exact search on parts that are independent in time: whether the buffers of a part fit below a
//! height, by depth-first branch and bound.
//!
//! | module | holds |
//! | --- | --- |
//! | `part` | the buffers of a part, their conflicts and sections |
//! | `tree` | the search |
//! | `state` | what is placed and how low the rest can lie, with undo |
//! | `section` | the bounds |

mod part;
mod section;
mod state;
mod tree;

use crate::budget::{Budget, Exhausted, Stop};
use crate::heuristics::order::Order;
use crate::instance::Instance;
use crate::solution::Techniques;
use crate::sorting;
use part::Part;
use tree::{Tree, Visit};

/// A part with more buffers is not searched: the search recurs once for each.
pub(crate) const MAX_MEMBERS: usize = 1000;

/// An order of the buffers and a way to use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) order: Order,
    visit: Visit,
    /// How many times more steps it may take than most.
    pub(crate) patience: u64,
}

impl Way {
    /// Whether the other finds nothing with the same order that this one does not.
    pub(crate) fn covers(self, other: Way) -> bool {
        self.visits_as(other) && self.patience >= other.patience
    }

    /// Whether both do the same with the same order, however long.
    pub(crate) fn visits_as(self, other: Way) -> bool {
        self.visit == other.visit
    }
}

/// The ways that are tried in turn; each solves instances that no other does. Those that succeed
/// most may take longest, and one of these is tried for a moment before the other.
pub(crate) const WAYS: [Way; 10] = {
    const fn way(visit: Visit, order: Order, patience: u64) -> Way {
        Way {
            order,
            visit,
            patience,
        }
    }
    [
        way(Visit::ByOffset, Order::Birth, 1),
        way(Visit::ByOffset, Order::LoadDuration, 8),
        way(Visit::ByOffset, Order::Birth, 8),
        way(Visit::ByOffset, Order::Conflicts, 1),
        way(Visit::ByOffset, Order::Duration, 1),
        way(Visit::ByOffset, Order::LoadArea, 1),
        way(Visit::ByOffset, Order::Death, 1),
        way(Visit::ByOffset, Order::Area, 1),
        way(Visit::ByOffset, Order::LoadSize, 1),
        way(Visit::ByRank, Order::LoadDuration, 1),
    ]
};

/// Splits the buffers that have pieces at the moments that no lifetime crosses; gaps count as
/// lifetime here. Each part lists indices of buffers, reserved ranges left out.
pub(crate) fn parts(instance: &Instance, stop: &Stop<'_>) -> Result<Vec<Vec<u32>>, Exhausted> {
    let mut hulls: Vec<(u32, u32, u32)> = (0u32..)
        .take(instance.own().len())
        .filter_map(|buffer| {
            let hull = instance.hull(buffer as usize)?;
            Some((hull.lower, hull.upper, buffer))
        })
        .collect();
    sorting::sort(&mut hulls, stop)?;
    let mut parts: Vec<Vec<u32>> = Vec::new();
    let mut end = 0;
    for (lower, upper, buffer) in hulls {
        match parts.last_mut() {
            Some(part) if lower < end => part.push(buffer),
            _ => parts.push(vec![buffer]),
        }
        end = end.max(upper);
    }
    Ok(parts)
}

/// Looks for a placement of the buffers in `ranked` that ends at or below `height`; of equally
/// good ways the one with the buffer of lower rank is tried first. The offsets are in the order of
/// the instance, those of other buffers mean nothing; `None` when there is no such placement.
pub(crate) fn search(
    instance: &Instance,
    ranked: &[u32],
    height: u64,
    way: Way,
    techniques: Techniques,
    budget: &mut Budget<'_>,
) -> Result<Option<Vec<u64>>, Exhausted> {
    if ranked.len() > MAX_MEMBERS {
        return Err(Exhausted);
    }
    let instance = &*instance.below(height);
    let alive = |&&buffer: &&u32| instance.hull(buffer as usize).is_some();
    let ranked: &[u32] = &ranked.iter().filter(alive).copied().collect::<Vec<u32>>();
    let part = Part::new(instance, ranked);
    let tree = Tree::new(&part, height, techniques, way.visit);
    let found = tree.run(budget)?;
    Ok(found.map(|placed| {
        let buffers = instance.buffers().iter();
        let mut offsets: Vec<u64> = buffers.map(|buffer| buffer.offset.unwrap_or(0)).collect();
        for (&buffer, offset) in ranked.iter().zip(placed) {
            offsets[buffer as usize] = offset;
        }
        offsets
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristics::order;
    use crate::instance::Buffer;

    /// Asks for every height from below until one fits.
    fn least(buffers: &[Buffer], techniques: Techniques, way: Way) -> u64 {
        let instance = Instance::new(buffers.to_vec()).unwrap();
        let stop = Stop::new(None, None);
        let ranked = order::sorted(&instance, way.order, &stop).unwrap();
        let mut budget = Budget::new(u64::MAX, &stop);
        let mut fits = |height| {
            let found = search(&instance, &ranked, height, way, techniques, &mut budget);
            let found = found.unwrap();
            if let Some(offsets) = &found {
                assert!(instance.height_of(offsets) <= height);
                crate::validate::validate(&instance, offsets, Some(height)).unwrap();
            }
            found.is_some()
        };
        (0..).find(|&height| fits(height)).unwrap()
    }

    /// The least height with each way, and with each technique off.
    fn always(buffers: &[Buffer], height: u64) {
        for way in WAYS {
            assert_eq!(
                least(buffers, Techniques::default(), way),
                height,
                "{way:?}"
            );
        }
        for off in 0..Techniques::default().named().len() {
            let mut techniques = Techniques::default();
            *techniques.named()[off].1 = false;
            assert_eq!(
                least(buffers, techniques, WAYS[0]),
                height,
                "{techniques:?}"
            );
            assert_eq!(
                least(buffers, techniques, WAYS[1]),
                height,
                "{techniques:?}"
            );
        }
    }

    #[test]
    fn the_load_cannot_always_be_reached() {
        let rows = [
            (0, 1, 24),
            (1, 2, 16),
            (0, 2, 24),
            (0, 3, 8),
            (3, 4, 16),
            (1, 5, 16),
            (2, 5, 32),
            (4, 5, 24),
        ];
        let buffers = rows.map(|(lower, upper, size)| Buffer::new(size, lower, upper));
        always(&buffers, 72);
    }

    #[test]
    fn alignment_and_fixed_buffers_leave_holes() {
        let aligned = |size, alignment| Buffer::new(size, 0, 4).with_alignment(alignment);
        always(&[aligned(100, 64), aligned(60, 64), aligned(30, 4)], 194);
        always(&[aligned(100, 64), aligned(60, 64), aligned(42, 4)], 206);
        // A buffer that waits for its twin leaves a hole below the next one.
        let twins = [Buffer::new(6, 0, 4), Buffer::new(6, 0, 4)];
        let others = [aligned(7, 4), aligned(19, 24), aligned(21, 4)];
        always(&[&others[..], &twins].concat(), 61);
        let fixed = Buffer::new(8, 1, 2).with_offset(8);
        always(&[fixed.clone(), Buffer::new(12, 0, 4)], 28);
        always(&[fixed.clone(), Buffer::new(8, 0, 4)], 16);
        // One is lifted over two fixed ones, and another drops between them.
        let second = Buffer::new(4, 3, 4).with_offset(20);
        always(
            &[fixed, second, Buffer::new(9, 0, 4), Buffer::new(8, 0, 2)],
            33,
        );
    }

    #[test]
    fn gaps_are_used() {
        let lent = Buffer::new(8, 0, 10).with_gap(3, 7);
        always(
            &[lent.clone(), Buffer::new(8, 4, 6), Buffer::new(2, 0, 10)],
            10,
        );
        always(&[lent, Buffer::new(8, 4, 8), Buffer::new(2, 0, 10)], 18);
    }

    #[test]
    fn a_search_that_is_cut_proves_nothing() {
        let buffers = (0..60)
            .map(|at| Buffer::new(7 + at * 5 % 11, at, at + 9))
            .collect();
        let instance = Instance::new(buffers).unwrap();
        let stop = Stop::new(None, None);
        let ranked = order::sorted(&instance, Order::Birth, &stop).unwrap();
        let mut budget = Budget::new(1000, &stop);
        let techniques = Techniques::default();
        let found = search(&instance, &ranked, 110, WAYS[1], techniques, &mut budget);
        assert_eq!(found, Err(Exhausted));
    }

    #[test]
    fn parts_are_cut_where_nothing_lives() {
        let instance = Instance::new(vec![
            Buffer::new(1, 4, 6),
            Buffer::new(1, 0, 2),
            Buffer::new(0, 0, 9),
            Buffer::new(1, 5, 9).with_gap(6, 8),
            Buffer::new(1, 6, 7),
        ])
        .unwrap();
        let stop = Stop::new(None, None);
        assert_eq!(parts(&instance, &stop), Ok(vec![vec![1], vec![0, 3, 4]]));
    }
}
