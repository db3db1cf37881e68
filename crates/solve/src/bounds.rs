//! Lower bounds of the height: what no placement can beat.
//!
//! * The *maximum load*: the largest sum of sizes alive at one time.
//! * The end of each fixed buffer.
//! * The *aligned load*: buffers alive together whose offsets are all multiples of `a` start at
//!   least their size, rounded up to `a`, apart; only the topmost may leave its padding out. So
//!   the rounded sizes less the largest padding are a bound, for each `a` in the instance.
//! * The *heaviest clique*, where buffers are kept apart in pairs: each two of them meet.
//! * The *load around reserved ranges*: that many bytes must be free below the height, so a range
//!   that begins below it counts in full.

use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use crate::clique;
use crate::instance::{Instance, align_up};

/// At most this many different alignments are tried, the largest ones first, so that the bounds
/// stay O(n log n) whatever the instance.
const MAX_ALIGNMENTS: usize = 16;

/// At most this many reserved ranges count at one time, the lowest ones, for the same reason.
const MAX_RANGES: usize = 64;

/// The bounds of one instance, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest sum of sizes alive at one time, without padding but that inside of runs.
    pub max_load: u64,
    /// The largest of all bounds; at least `max_load`.
    pub lower_bound: u64,
}

/// Computes all bounds in O(n log n); with pairs that are kept apart, in O(n²) up to 1024 buffers.
///
/// ```
/// use tenure_solve::{Buffer, Instance, bounds};
///
/// let buffers = vec![
///     Buffer::new(100, 0, 2).with_alignment(64),
///     Buffer::new(100, 0, 2).with_alignment(64),
/// ];
/// let bounds = bounds::bounds(&Instance::new(buffers).unwrap());
/// assert_eq!(bounds.max_load, 200);
/// assert_eq!(bounds.lower_bound, 228); // 0..100 and 128..228
/// ```
pub fn bounds(instance: &Instance) -> Bounds {
    let instance = instance.plain();
    let loads = loads_of(instance, instance.own());
    let max_load = loads.iter().copied().max().unwrap_or(0);
    let fixed = instance.buffers()[instance.own()].iter();
    let fixed = fixed.filter(|buffer| buffer.size > 0);
    let fixed = fixed.filter_map(|buffer| Some(buffer.offset? + buffer.size));
    let highest_fixed = fixed.max().unwrap_or(0);
    let aligned = alignments(instance).into_iter();
    let aligned = aligned
        .map(|alignment| aligned_load(instance, alignment))
        .max();
    Bounds {
        max_load,
        lower_bound: around_reserved(instance, &loads)
            .max(highest_fixed)
            .max(clique::heaviest(instance))
            .max(aligned.unwrap_or(0)),
    }
}

/// The largest load, lifted over the reserved ranges of its section.
fn around_reserved(instance: &Instance, loads: &[u64]) -> u64 {
    // (section, is a begin, range)
    let mut events: Vec<(u32, bool, (u64, u64))> = Vec::new();
    for index in instance.own().end..instance.len() {
        let range = &instance.buffers()[index];
        let from = range.offset.unwrap_or(0);
        for piece in instance.pieces(index) {
            events.push((piece.lower, true, (from, from + range.size)));
            events.push((piece.upper, false, (from, from + range.size)));
        }
    }
    events.sort_unstable();
    let mut now: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut bound = 0;
    let mut begin = 0;
    let last = u32::try_from(loads.len()).unwrap_or(u32::MAX);
    for (section, begins, range) in events.into_iter().chain([(last, false, (0, 0))]) {
        let end = section as usize;
        if let Some(&load) = loads[begin..end].iter().max().filter(|&&load| load > 0) {
            let below = now.iter().take(MAX_RANGES);
            let lift = |height, &(from, to): &(u64, u64)| match from < height {
                true => height + (to - from),
                false => height,
            };
            bound = bound.max(below.fold(load, lift));
        }
        begin = end;
        if begins {
            now.insert(range);
        } else {
            now.remove(&range);
        }
    }
    bound
}

/// The sum of the sizes alive in each section, reserved ranges included.
pub(crate) fn section_loads(instance: &Instance) -> Vec<u64> {
    loads_of(instance, 0..instance.len())
}

/// The same of some of the buffers.
fn loads_of(instance: &Instance, buffers: Range<usize>) -> Vec<u64> {
    // Differences wrap below zero and back: only the running sum is meaningful.
    let mut loads = vec![0u64; instance.sections() + 1];
    for index in buffers {
        let size = instance.buffers()[index].size;
        for piece in instance.pieces(index) {
            let (lower, upper) = (piece.lower as usize, piece.upper as usize);
            loads[lower] = loads[lower].wrapping_add(size);
            loads[upper] = loads[upper].wrapping_sub(size);
        }
    }
    loads.pop();
    let mut sum = 0u64;
    for load in &mut loads {
        sum = sum.wrapping_add(*load);
        *load = sum;
    }
    loads
}

/// The different alignments above 1 that some size is no multiple of, largest first: for others
/// the aligned load says nothing new.
fn alignments(instance: &Instance) -> Vec<u64> {
    let buffers = instance.buffers().iter();
    let mut alignments: Vec<u64> = buffers
        .filter(|buffer| buffer.size > 0)
        .map(|buffer| buffer.alignment)
        .filter(|&alignment| alignment > 1)
        .collect();
    alignments.sort_unstable_by(|a, b| b.cmp(a));
    alignments.dedup();
    alignments.truncate(MAX_ALIGNMENTS);
    alignments
}

/// The largest, over all sections, of the rounded sizes less the largest padding, taken over the
/// buffers whose alignment is a multiple of `alignment`.
fn aligned_load(instance: &Instance, alignment: u64) -> u64 {
    // (section, is a birth, padding, rounded size, last section): deaths come first.
    let mut events: Vec<(u32, bool, u64, u64, u32)> = Vec::new();
    for (index, buffer) in instance.buffers().iter().enumerate() {
        if !buffer.alignment.is_multiple_of(alignment) {
            continue;
        }
        let rounded = align_up(buffer.size, alignment);
        let padding = rounded - buffer.size;
        for piece in instance.pieces(index) {
            events.push((piece.lower, true, padding, rounded, piece.upper));
            events.push((piece.upper, false, padding, rounded, piece.upper));
        }
    }
    events.sort_unstable();
    // Live paddings, largest on top; entries whose piece has ended are dropped when they surface.
    let mut paddings: BinaryHeap<(u64, u32)> = BinaryHeap::new();
    let mut sum = 0u64;
    let mut bound = 0u64;
    for (position, &(section, birth, padding, rounded, upper)) in events.iter().enumerate() {
        if !birth {
            sum -= rounded;
            continue;
        }
        sum += rounded;
        paddings.push((padding, upper));
        let more_births = events.get(position + 1);
        if more_births.is_some_and(|next| next.0 == section && next.1) {
            continue;
        }
        while paddings.peek().is_some_and(|&(_, end)| end <= section) {
            paddings.pop();
        }
        let largest = paddings.peek().map_or(0, |&(padding, _)| padding);
        bound = bound.max(sum - largest);
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Buffer;
    use crate::rules::{Reserved, Rules};

    fn bounds_of(buffers: Vec<Buffer>) -> (u64, u64) {
        let bounds = bounds(&Instance::new(buffers).unwrap());
        (bounds.max_load, bounds.lower_bound)
    }

    #[test]
    fn gaps_do_not_count() {
        let lent = Buffer::new(100, 0, 10).with_gap(2, 8);
        let guest = Buffer::new(100, 3, 5);
        assert_eq!(bounds_of(vec![lent.clone(), guest]), (100, 100));
        let late_guest = Buffer::new(100, 3, 9);
        assert_eq!(bounds_of(vec![lent, late_guest]), (200, 200));
    }

    #[test]
    fn a_fixed_end_is_a_bound() {
        assert_eq!(
            bounds_of(vec![Buffer::new(8, 0, 1).with_offset(64)]),
            (8, 72)
        );
    }

    #[test]
    fn size_zero_counts_nowhere() {
        let buffers = vec![Buffer::new(0, 0, 9).with_offset(64), Buffer::new(0, 0, 9)];
        assert_eq!(bounds_of(buffers), (0, 0));
        assert_eq!(bounds_of(vec![]), (0, 0));
    }

    #[test]
    fn the_largest_padding_may_lie_on_top() {
        let aligned = |size, lower, upper| Buffer::new(size, lower, upper).with_alignment(64);
        // 10, 60 and 20 bytes in slots of 64: the one with padding 54 goes on top.
        let together = vec![aligned(10, 0, 1), aligned(60, 0, 1), aligned(20, 0, 1)];
        assert_eq!(bounds_of(together), (90, 3 * 64 - 54));
        // The large padding of a dead buffer must not be used.
        let apart = vec![aligned(1, 0, 1), aligned(60, 0, 2), aligned(61, 1, 2)];
        assert_eq!(bounds_of(apart), (121, 2 * 64 - 4));
    }

    #[test]
    fn a_load_is_lifted_over_the_ranges_that_it_reaches_at_its_time() {
        let bound = |reserved: Vec<Reserved>| {
            let buffers = vec![Buffer::new(60, 0, 4), Buffer::new(40, 2, 6)];
            let rules = Rules {
                reserved,
                ..Rules::default()
            };
            let bounds = bounds(&Instance::with_rules(buffers, rules).unwrap());
            assert_eq!(bounds.max_load, 100);
            bounds.lower_bound
        };
        assert_eq!(bound(vec![Reserved::always(100, 200)]), 100);
        assert_eq!(bound(vec![Reserved::always(99, 200)]), 201);
        // The second is reached over the first.
        let second = Reserved::always(110, 120);
        assert_eq!(bound(vec![second, Reserved::always(0, 10)]), 110);
        assert_eq!(bound(vec![second, Reserved::always(0, 11)]), 121);
        // While 60 bytes are alive, and while 40 are.
        assert_eq!(bound(vec![Reserved::always(0, 90).during(0, 2)]), 150);
        assert_eq!(bound(vec![Reserved::always(0, 50).during(4, 9)]), 100);
    }

    #[test]
    fn strictly_aligned_buffers_bind_among_looser_ones() {
        let buffers = vec![
            Buffer::new(100, 0, 1).with_alignment(64),
            Buffer::new(60, 0, 1).with_alignment(128),
            Buffer::new(4, 0, 1),
        ];
        // Multiples of 64: 128 + 64 - 28.
        assert_eq!(bounds_of(buffers), (164, 164));
    }
}
