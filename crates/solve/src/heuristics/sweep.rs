//! Best fit in the order of births, as a memory allocator would do it: a sweep over time with the
//! free places ordered by offset and by room. O(n log n) whatever the instance, so it is the
//! answer that is always there.
//!
//! It looks at nothing but the present. Hence it does not use the gaps of lifetimes, and keeps the
//! bytes of fixed buffers free at all times; the greedy placement does better there.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::instance::{Instance, align_up};

/// How many free places with enough room are tried when padding makes the tightest too small.
const MAX_TRIES: usize = 32;

/// Places all buffers; the offsets are in the order of the instance.
pub(crate) fn place(instance: &Instance) -> Vec<u64> {
    let buffers = instance.buffers();
    let mut offsets: Vec<u64> = buffers
        .iter()
        .map(|buffer| buffer.offset.unwrap_or(0))
        .collect();
    let mut free = FreePlaces::around(fixed_ranges(instance));
    // (last section, offset, end) of those alive: few, so that large tables stay out of this.
    let mut living: BinaryHeap<Reverse<(u32, u64, u64)>> = BinaryHeap::new();
    for birth in births(instance) {
        while let Some(first) = living.peek_mut()
            && first.0.0 <= birth.section
        {
            let Reverse((_, offset, end)) = PeekMut::pop(first);
            free.give(offset, end);
        }
        let Reverse(size) = birth.size;
        let offset = free.take(size, birth.alignment);
        offsets[birth.buffer] = offset;
        living.push(Reverse((birth.end, offset, offset + size)));
    }
    offsets
}

/// What is to be known of a buffer when it is born: looking it up then would miss every cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Birth {
    section: u32,
    /// The largest first.
    size: Reverse<u64>,
    buffer: usize,
    /// Behind its last section.
    end: u32,
    alignment: u64,
}

/// The buffers that are not fixed, sorted.
fn births(instance: &Instance) -> Vec<Birth> {
    let buffers = instance.buffers().iter().enumerate();
    let free = buffers.filter(|(_, buffer)| buffer.offset.is_none());
    let births = free.filter_map(|(index, buffer)| {
        let hull = instance.hull(index)?;
        Some(Birth {
            section: hull.lower,
            size: Reverse(buffer.size),
            buffer: index,
            end: hull.upper,
            alignment: buffer.alignment,
        })
    });
    let mut births: Vec<Birth> = births.collect();
    births.sort_unstable();
    births
}

/// The bytes of the fixed buffers as sorted, disjoint ranges.
fn fixed_ranges(instance: &Instance) -> Vec<(u64, u64)> {
    let buffers = instance.buffers().iter().filter(|buffer| buffer.size > 0);
    let fixed = buffers.filter_map(|buffer| Some((buffer.offset?, buffer.offset? + buffer.size)));
    let mut ranges: Vec<(u64, u64)> = fixed.collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
    ranges
}

/// The free bytes: holes below `top`, and everything from `top` on.
pub(super) struct FreePlaces {
    /// Start → end.
    by_offset: BTreeMap<u64, u64>,
    /// (room, start).
    by_room: BTreeSet<(u64, u64)>,
    top: u64,
}

impl FreePlaces {
    /// All bytes are free.
    pub(super) fn new() -> Self {
        FreePlaces::around(Vec::new())
    }

    /// The holes with at least `room` bytes as (start, end), the tightest first.
    pub(super) fn by_room(&self, room: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let holes = self.by_room.range((room, 0)..);
        holes.map(|&(room, start)| (start, start + room))
    }

    /// The holes as (start, end), the lowest first.
    pub(super) fn by_offset(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_offset.iter().map(|(&start, &end)| (start, end))
    }

    /// From here on everything is free.
    pub(super) fn open_end(&self) -> u64 {
        let last = self.by_offset.last_key_value();
        match last {
            Some((&start, &end)) if end == self.top => start,
            _ => self.top,
        }
    }

    /// Takes bytes that are free.
    pub(super) fn occupy(&mut self, start: u64, end: u64) {
        if end > self.top {
            self.add(self.top, end);
            self.join_below(self.top, end);
            self.top = end;
        }
        let hole = self.by_offset.range(..=start).next_back();
        if let Some((&hole_start, &hole_end)) = hole {
            self.remove(hole_start, hole_end);
            self.add(hole_start, start);
            self.add(end, hole_end);
        }
    }

    /// Joins the hole `start..end` with one that ends at its start.
    fn join_below(&mut self, start: u64, end: u64) {
        let below = self.by_offset.range(..start).next_back();
        if let Some((&below_start, &below_end)) = below
            && below_end == start
        {
            self.remove(below_start, below_end);
            self.remove(start, end);
            self.add(below_start, end);
        }
    }

    /// All bytes are free but those of the sorted, disjoint `ranges`.
    fn around(ranges: Vec<(u64, u64)>) -> Self {
        let mut free = FreePlaces {
            by_offset: BTreeMap::new(),
            by_room: BTreeSet::new(),
            top: 0,
        };
        for (start, end) in ranges {
            free.add(free.top, start);
            free.top = end;
        }
        free
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_offset.insert(start, end);
            self.by_room.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.by_offset.remove(&start);
        self.by_room.remove(&(end - start, start));
    }

    /// Takes `size` bytes out of a place and returns their offset.
    fn take(&mut self, size: u64, alignment: u64) -> u64 {
        let holes = self.by_room.range((size, 0)..).take(MAX_TRIES);
        let mut holes = holes.map(|&(room, start)| (start, start + room));
        let hole = holes.find(|&(start, end)| {
            let offset = align_up(start, alignment);
            offset <= end && end - offset >= size
        });
        let Some((start, end)) = hole else {
            return self.take_top(size, alignment);
        };
        let offset = align_up(start, alignment);
        self.remove(start, end);
        self.add(start, offset);
        self.add(offset + size, end);
        offset
    }

    /// Takes `size` bytes at the open end; a hole that reaches up to it is used too.
    fn take_top(&mut self, size: u64, alignment: u64) -> u64 {
        if let Some((&start, &end)) = self.by_offset.last_key_value()
            && end == self.top
        {
            self.remove(start, end);
            self.top = start;
        }
        let offset = align_up(self.top, alignment);
        self.add(self.top, offset);
        self.top = offset + size;
        offset
    }

    /// Gives bytes back and joins them with the free ones beside them.
    pub(super) fn give(&mut self, mut start: u64, mut end: u64) {
        let below = self.by_offset.range(..start).next_back();
        if let Some((&below_start, &below_end)) = below
            && below_end == start
        {
            self.remove(below_start, below_end);
            start = below_start;
        }
        if let Some(&above_end) = self.by_offset.get(&end) {
            self.remove(end, above_end);
            end = above_end;
        }
        self.add(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Buffer;

    fn offsets(buffers: Vec<Buffer>) -> Vec<u64> {
        place(&Instance::new(buffers).unwrap())
    }

    #[test]
    fn holes_are_joined_and_taken_again() {
        let buffers = vec![
            Buffer::new(8, 0, 2),
            Buffer::new(6, 0, 2),
            Buffer::new(4, 0, 9),
            Buffer::new(14, 3, 9),
            Buffer::new(2, 3, 9),
        ];
        assert_eq!(offsets(buffers), [0, 8, 14, 0, 18]);
    }

    #[test]
    fn the_hole_below_the_open_end_is_stretched() {
        let buffers = vec![
            Buffer::new(8, 0, 9),
            Buffer::new(4, 0, 2),
            Buffer::new(6, 3, 9),
        ];
        assert_eq!(offsets(buffers), [0, 8, 8]);
    }

    #[test]
    fn fixed_bytes_are_never_taken() {
        let buffers = vec![
            Buffer::new(8, 0, 2).with_offset(4),
            Buffer::new(8, 8, 9).with_offset(8),
            Buffer::new(4, 0, 2),
            Buffer::new(5, 0, 2).with_alignment(4),
        ];
        assert_eq!(offsets(buffers), [4, 8, 0, 16]);
    }
}
