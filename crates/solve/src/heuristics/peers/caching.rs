//! A caching allocator for devices, as PyTorch's: memory is reserved in segments and kept, and
//! requests are cut out of what is free in them.
//!
//! * Requests are rounded up to [`ROUNDING`] bytes. Those of at most [`SMALL`] bytes are served from
//!   segments of [`SMALL_SEGMENT`] bytes, larger ones below [`HUGE`] from segments of
//!   [`LARGE_SEGMENT`] bytes, and the others from segments of their size rounded up to
//!   [`SMALL_SEGMENT`]; small requests and all others have separate free lists.
//! * A request takes the smallest free block that is large enough, the lowest of equal ones, and
//!   reserves a segment when there is none. What is left over is split off: always for a small
//!   request, otherwise when it is more than [`SMALL`] bytes.
//! * A block that is freed joins its free neighbours in its segment. Nothing is given back.
//!
//! Here segments lie one after another, above the highest fixed buffer, and begin at multiples of
//! [`SMALL_SEGMENT`], so that alignments that divide [`ROUNDING`] hold by themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::{Request, fixed, requests};
use crate::budget::{Budget, Exhausted};
use crate::instance::{Buffer, Instance, align_up};

const ROUNDING: u64 = 512;
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
const HUGE: u64 = 10 << 20;

/// The state of the allocator.
struct Pool {
    /// End of the highest segment.
    top: u64,
    /// (size, start) of the free blocks, for small and for other requests.
    free: [BTreeSet<(u64, u64)>; 2],
    /// All blocks by their start.
    blocks: BTreeMap<u64, Block>,
}

#[derive(Clone, Copy)]
struct Block {
    size: u64,
    free: bool,
    /// Where its segment begins: blocks of different ones never join.
    segment: u64,
}

pub(super) fn place(instance: &Instance, budget: &mut Budget<'_>) -> Result<Vec<u64>, Exhausted> {
    let buffers = instance.buffers();
    let (mut offsets, ground) = fixed(instance);
    let mut pool = Pool {
        top: align_up(ground, SMALL_SEGMENT),
        free: [BTreeSet::new(), BTreeSet::new()],
        blocks: BTreeMap::new(),
    };
    // Where the block of each buffer begins; the buffer itself may begin later.
    let mut starts = vec![0u64; buffers.len()];
    for request in requests(instance) {
        budget.spend(8)?;
        match request {
            Request::Allocate(index) => {
                let start = pool.allocate(rounded(&buffers[index]));
                starts[index] = start;
                offsets[index] = align_up(start, buffers[index].alignment);
            }
            Request::Free(index) => pool.release(starts[index], rounded(&buffers[index])),
        }
    }
    Ok(offsets)
}

/// What is asked of the allocator for a buffer.
fn rounded(buffer: &Buffer) -> u64 {
    let padding = match ROUNDING.is_multiple_of(buffer.alignment) {
        true => 0,
        false => buffer.alignment - 1,
    };
    align_up(buffer.size + padding, ROUNDING)
}

/// Which free list a request is served from.
fn list(request: u64) -> usize {
    usize::from(request > SMALL)
}

fn segment_size(request: u64) -> u64 {
    if request <= SMALL {
        SMALL_SEGMENT
    } else if request < HUGE {
        LARGE_SEGMENT
    } else {
        align_up(request, SMALL_SEGMENT)
    }
}

impl Pool {
    /// Serves a request; returns the start of its block.
    fn allocate(&mut self, request: u64) -> u64 {
        let free = &mut self.free[list(request)];
        let found = free.range((request, 0)..).next().copied();
        let (size, start) = found.unwrap_or_else(|| {
            let segment = (segment_size(request), self.top);
            self.top += segment.0;
            segment
        });
        free.remove(&(size, start));
        let segment = self.blocks.get(&start).map_or(start, |block| block.segment);
        let over = size - request;
        let split = over > 0 && (request <= SMALL || over > SMALL);
        let kept = if split { request } else { size };
        let block = Block {
            size: kept,
            free: false,
            segment,
        };
        self.blocks.insert(start, block);
        if split {
            free.insert((over, start + kept));
            let rest = Block {
                size: over,
                free: true,
                segment,
            };
            self.blocks.insert(start + kept, rest);
        }
        start
    }

    /// Frees the block at `start` that served a request, and joins it with its neighbours.
    fn release(&mut self, mut start: u64, request: u64) {
        let free = &mut self.free[list(request)];
        let Some(mut block) = self.blocks.remove(&start) else {
            return;
        };
        let joins = |other: &Block| other.free && other.segment == block.segment;
        let above = self.blocks.get(&(start + block.size)).copied();
        let below = self.blocks.range(..start).next_back();
        let below = below.map(|(&at, &other)| (at, other));
        if let Some(above) = above.filter(joins) {
            free.remove(&(above.size, start + block.size));
            self.blocks.remove(&(start + block.size));
            block.size += above.size;
        }
        if let Some((at, below)) = below.filter(|(_, other)| joins(other)) {
            free.remove(&(below.size, at));
            start = at;
            block.size += below.size;
        }
        block.free = true;
        free.insert((block.size, start));
        self.blocks.insert(start, block);
    }
}

#[cfg(test)]
mod tests {
    use crate::heuristics::peers::Peer;
    use crate::heuristics::peers::tests::placed;
    use crate::instance::Buffer;

    const MIB: u64 = 1 << 20;

    fn offsets(buffers: Vec<Buffer>) -> Vec<u64> {
        placed(Peer::CachingPool, buffers).0
    }

    #[test]
    fn small_requests_share_segments_and_are_cut_exactly() {
        // 700 bytes are 1024; three of them and then half of a segment, and what does not fit into
        // the first one.
        let buffers = vec![
            Buffer::new(700, 0, 9),
            Buffer::new(512, 0, 9),
            Buffer::new(MIB, 0, 9),
            Buffer::new(MIB, 0, 9),
        ];
        assert_eq!(offsets(buffers), [0, 1024, 1536, 2 * MIB]);
    }

    #[test]
    fn large_requests_leave_a_small_rest_unused() {
        // 9.5 MiB in a segment of 20 leaves 10.5; 9.5 of those leaves 1, too small to be split off,
        // so that 1.5 MiB reserves another segment. 12.5 MiB fit into its rest; 19 have a segment
        // of 20, all of it.
        let halves = [19, 19, 3, 25, 38, 3].map(|half| Buffer::new(half * MIB / 2, 0, 9));
        let expected = [0, 19, 40, 43, 80, 68].map(|half| half * MIB / 2);
        assert_eq!(offsets(halves.to_vec()), expected);
    }

    #[test]
    fn the_tightest_free_block_is_taken_and_neighbours_join() {
        let buffers = vec![
            Buffer::new(2048, 0, 2),
            Buffer::new(512, 0, 9),
            Buffer::new(1024, 0, 2),
            Buffer::new(512, 0, 4),
            // Between the two that stay, not where the 2048 were.
            Buffer::new(1024, 2, 4),
            // Where the two of 1024 and 512 have joined with the rest of the segment is more room
            // than where the 2048 were.
            Buffer::new(2048, 4, 6),
            Buffer::new(2049, 4, 6),
        ];
        let expected = [0, 2048, 2560, 3584, 2560, 0, 2560];
        assert_eq!(offsets(buffers), expected);
    }

    #[test]
    fn blocks_of_different_segments_do_not_join() {
        // Two segments of 12 MiB, both freed; 14 MiB fit into neither.
        let buffers = vec![
            Buffer::new(12 * MIB, 0, 1),
            Buffer::new(12 * MIB, 0, 1),
            Buffer::new(14 * MIB, 1, 2),
        ];
        assert_eq!(offsets(buffers), [0, 12 * MIB, 24 * MIB]);
    }

    #[test]
    fn a_stricter_alignment_is_bought_with_bytes() {
        // 1024 + 4095 bytes are 5120 from 512 on; the multiple of 4096 inside is 4096.
        let buffers = vec![
            Buffer::new(1, 0, 9),
            Buffer::new(1024, 0, 9).with_alignment(4096),
            Buffer::new(1, 0, 9),
            Buffer::new(1, 0, 9).with_offset(5),
        ];
        let base = 2 * MIB;
        assert_eq!(offsets(buffers), [base, base + 4096, base + 5632, 5]);
    }
}
