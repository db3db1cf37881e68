//! What other planners would hold: placements that people know from runtimes and compilers, to
//! compare with. They are made on request only; the portfolio does not try them.
//!
//! Each keeps every rule of the instance, so that its height can stand beside ours:
//!
//! * Fixed buffers stay. The greedy planners go round them; a pool lies above the highest of them.
//! * Offsets are aligned. A pool gives a buffer whose alignment it does not keep by itself
//!   `alignment - 1` bytes more and places it at the first multiple inside.
//! * A pool hands out a buffer's bytes at its birth and gets them back at its death: gaps are not
//!   used.

mod blocks;
mod caching;
mod tflite;

use crate::budget::{Budget, Exhausted};
use crate::heuristics::{Fit, greedy};
use crate::instance::{Buffer, Instance};

/// A planner that people know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// `tflite-greedy`, the arena planner of TensorFlow Lite: buffers alive from the first birth to
    /// the last death come first, then the larger ones (the earlier born of equal ones); each takes
    /// the tightest gap among the placed buffers alive together with it, the lowest of these.
    TfliteGreedy,
    /// `tflm-greedy`, the greedy planner of TensorFlow Lite Micro: the larger buffers come first
    /// (equal ones in the order of the instance); each takes the lowest gap that is large enough.
    TflmGreedy,
    /// `equal-blocks`, the block assigner of a graph compiler for accelerators: sizes fall into
    /// classes, and in program order a buffer takes the free block of its class that was freed
    /// last, or else a new one. Then each block shrinks to its largest buffer, and blocks whose
    /// buffers are never alive together are laid into larger ones. With classes of doubling sizes
    /// and with a single class; the lower of the two is the answer.
    EqualBlocks,
    /// `whole-blocks`: in program order a buffer takes the smallest free block that is large
    /// enough, all of it, or else a new block of its size. Blocks lie side by side.
    WholeBlocks,
    /// `growing-blocks`: as `whole-blocks`, but when no free block is large enough, the largest of
    /// them grows. Only without a free block is there a new one.
    GrowingBlocks,
    /// `caching-pool`, the caching allocator of PyTorch on a device, fed in program order. What it
    /// has reserved at the end may be up to a segment more than the height.
    CachingPool,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 6] = [
        Peer::TfliteGreedy,
        Peer::TflmGreedy,
        Peer::EqualBlocks,
        Peer::WholeBlocks,
        Peer::GrowingBlocks,
        Peer::CachingPool,
    ];

    /// The name of the strategy.
    pub fn name(self) -> &'static str {
        match self {
            Peer::TfliteGreedy => "tflite-greedy",
            Peer::TflmGreedy => "tflm-greedy",
            Peer::EqualBlocks => "equal-blocks",
            Peer::WholeBlocks => "whole-blocks",
            Peer::GrowingBlocks => "growing-blocks",
            Peer::CachingPool => "caching-pool",
        }
    }
}

/// Places the buffers as `peer` would; returns an offset for each (0 for those of size 0 that are
/// not fixed). Nothing where buffers are kept apart by rules: pools go by lifetimes alone.
pub(crate) fn place(
    instance: &Instance,
    peer: Peer,
    budget: &mut Budget<'_>,
) -> Result<Option<Vec<u64>>, Exhausted> {
    if !instance.rules().separate.is_empty() {
        return Ok(None);
    }
    let placed = match peer {
        Peer::TfliteGreedy => {
            greedy::place(instance, &tflite::arena_order(instance), Fit::Best, budget)
        }
        Peer::TflmGreedy => {
            greedy::place(instance, &tflite::micro_order(instance), Fit::First, budget)
        }
        Peer::EqualBlocks => blocks::equal(instance, budget),
        Peer::WholeBlocks => blocks::whole(instance, blocks::Shortage::New, budget),
        Peer::GrowingBlocks => blocks::whole(instance, blocks::Shortage::Grow, budget),
        Peer::CachingPool => caching::place(instance, budget),
    };
    placed.map(Some)
}

/// A request to a pool; buffers are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Free(usize),
    Allocate(usize),
}

/// The requests in program order: by time, those that free before those that allocate (lifetimes
/// are half-open), and at the same time in the order of the instance. Fixed buffers and those of
/// size 0 make none.
fn requests(instance: &Instance) -> Vec<Request> {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, buffer) in instance.buffers().iter().enumerate() {
        if pooled(buffer) {
            events.push((buffer.lower, true, index));
            events.push((buffer.upper, false, index));
        }
    }
    events.sort_unstable();
    let request = |(_, birth, index)| match birth {
        true => Request::Allocate(index),
        false => Request::Free(index),
    };
    events.into_iter().map(request).collect()
}

/// Whether a pool has to place the buffer.
fn pooled(buffer: &Buffer) -> bool {
    buffer.offset.is_none() && buffer.size > 0
}

/// The offsets of the fixed buffers (0 for the others), and the end of the highest one: pools lie
/// above it.
fn fixed(instance: &Instance) -> (Vec<u64>, u64) {
    let buffers = instance.buffers().iter();
    let offsets = buffers.clone().map(|buffer| buffer.offset.unwrap_or(0));
    let ends = buffers
        .filter(|buffer| buffer.size > 0)
        .filter_map(|buffer| Some(buffer.offset? + buffer.size));
    (offsets.collect(), ends.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Stop;
    use crate::validate::validate;

    /// The offsets and the height that a peer holds, checked.
    pub(super) fn placed(peer: Peer, buffers: Vec<Buffer>) -> (Vec<u64>, u64) {
        let instance = Instance::new(buffers).unwrap();
        let stop = Stop::new(None, None);
        let offsets = place(&instance, peer, &mut Budget::new(u64::MAX, &stop))
            .unwrap()
            .unwrap();
        assert_eq!(validate(&instance, &offsets, None), Ok(()), "{peer:?}");
        let height = instance.height_of(&offsets);
        (offsets, height)
    }

    #[test]
    fn at_the_same_time_bytes_are_freed_before_they_are_handed_out() {
        let instance = Instance::new(vec![
            Buffer::new(8, 2, 4),
            Buffer::new(8, 0, 2),
            Buffer::new(0, 0, 9),
            Buffer::new(8, 0, 9).with_offset(64),
        ])
        .unwrap();
        let expected = [
            Request::Allocate(1),
            Request::Free(1),
            Request::Allocate(0),
            Request::Free(0),
        ];
        assert_eq!(requests(&instance), expected);
    }

    #[test]
    fn every_peer_keeps_the_rules_of_random_instances() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..300 {
            let buffers = (0..random.usize(1..40))
                .map(|_| {
                    let lower = random.u64(0..30);
                    let upper = lower + random.u64(1..12);
                    let alignment = *random.choice(&[1, 1, 2, 3, 64, 100, 4096]).unwrap();
                    let size = match round % 3 {
                        0 => random.u64(0..300),
                        1 => random.u64(0..3 << 20),
                        _ => random.u64(0..30 << 20),
                    };
                    Buffer::new(size, lower, upper).with_alignment(alignment)
                })
                .collect::<Vec<_>>();
            let mut mixed = buffers.clone();
            // One fixed buffer cannot clash with another.
            let first = &mut mixed[0];
            first.offset = Some(random.u64(0..100) * first.alignment);
            for peer in Peer::ALL {
                placed(peer, buffers.clone());
                placed(peer, mixed.clone());
            }
        }
    }
}
