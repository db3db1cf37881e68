//! Pools of blocks that never split: a block is handed out whole.
//!
//! Blocks lie side by side in the order in which they were made, each at the first multiple of the
//! largest power of two among the alignments of its buffers.

use std::collections::BTreeSet;

use super::{Request, fixed, pooled, requests};
use crate::budget::{Budget, Exhausted};
use crate::instance::{Buffer, Instance, align_up};

/// The classes of sizes start at twice this, in bytes.
const LEAST_CLASS: u64 = 512;

/// A class of two or more buffers that ends with an octave of at least this many bytes stays by
/// itself, however small it is.
const LARGE: u64 = 8 << 20;

/// What happens when no free block is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// A new block is made.
    New,
    /// The largest free one grows.
    Grow,
}

/// A piece of memory that is handed out whole.
struct Block {
    /// Bytes: what the largest of its buffers needs.
    size: u64,
    /// A power of two.
    alignment: u64,
    /// Its buffers in the order of time; never two at once.
    buffers: Vec<usize>,
}

impl Block {
    fn new() -> Self {
        Block {
            size: 0,
            alignment: 1,
            buffers: Vec::new(),
        }
    }

    fn add(&mut self, index: usize, buffer: &Buffer) {
        self.size = self.size.max(room(buffer));
        if buffer.alignment.is_power_of_two() {
            self.alignment = self.alignment.max(buffer.alignment);
        }
        self.buffers.push(index);
    }
}

/// What a buffer needs in a block: another alignment than a power of two is made up for with more
/// bytes.
fn room(buffer: &Buffer) -> u64 {
    match buffer.alignment.is_power_of_two() {
        true => buffer.size,
        false => buffer.size + (buffer.alignment - 1),
    }
}

/// `whole-blocks` and `growing-blocks`.
pub(super) fn whole(
    instance: &Instance,
    shortage: Shortage,
    budget: &mut Budget<'_>,
) -> Result<Vec<u64>, Exhausted> {
    let buffers = instance.buffers();
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of = vec![0usize; buffers.len()];
    // (size, block).
    let mut free: BTreeSet<(u64, usize)> = BTreeSet::new();
    for request in requests(instance) {
        budget.spend(1 + u64::from(free.len().checked_ilog2().unwrap_or(0)))?;
        match request {
            Request::Free(index) => {
                let block = block_of[index];
                free.insert((blocks[block].size, block));
            }
            Request::Allocate(index) => {
                let needed = (room(&buffers[index]), 0);
                let fitting = free.range(needed..).next();
                let chosen = fitting.or(match shortage {
                    Shortage::New => None,
                    Shortage::Grow => free.last(),
                });
                let block = match chosen.copied() {
                    Some(entry) => {
                        free.remove(&entry);
                        entry.1
                    }
                    None => {
                        blocks.push(Block::new());
                        blocks.len() - 1
                    }
                };
                blocks[block].add(index, &buffers[index]);
                block_of[index] = block;
            }
        }
    }
    let side_by_side = vec![Vec::new(); blocks.len()];
    let roots: Vec<usize> = (0..blocks.len()).collect();
    Ok(lay(instance, &blocks, &roots, &side_by_side))
}

/// `equal-blocks`.
pub(super) fn equal(instance: &Instance, budget: &mut Budget<'_>) -> Result<Vec<u64>, Exhausted> {
    let doubling = in_classes(instance, &classes(instance), budget)?;
    let single = in_classes(instance, &[u64::MAX], budget)?;
    let lower = instance.height_of(&single) < instance.height_of(&doubling);
    Ok(if lower { single } else { doubling })
}

/// The largest size of each class, ascending. A class is an octave above [`LEAST_CLASS`]; one with
/// fewer buffers than the average of all octaves joins the next one.
fn classes(instance: &Instance) -> Vec<u64> {
    let buffers = instance.buffers().iter().filter(|buffer| pooled(buffer));
    let mut sizes: Vec<u64> = buffers.map(room).collect();
    sizes.sort_unstable();
    let (Some(&smallest), Some(&largest)) = (sizes.first(), sizes.last()) else {
        return Vec::new();
    };
    let least = if largest > LEAST_CLASS {
        LEAST_CLASS
    } else {
        smallest
    };
    let octave = |size: u64| size.div_ceil(least).next_power_of_two().ilog2().max(1);
    let average = sizes.len() / octave(largest) as usize;
    let mut ends = Vec::new();
    // Where the class begins, and where the octave that it ends with does.
    let (mut first, mut octave_first) = (0, 0);
    for end in 1..=sizes.len() {
        let last = sizes[end - 1];
        if sizes
            .get(end)
            .is_some_and(|&next| octave(next) == octave(last))
        {
            continue;
        }
        let count = end - first;
        let large = sizes[octave_first] >= LARGE && count > 1;
        if count >= average || large || end == sizes.len() {
            ends.push(last);
            first = end;
        }
        octave_first = end;
    }
    ends
}

/// Assigns in program order within each class, then lays blocks into larger ones.
fn in_classes(
    instance: &Instance,
    classes: &[u64],
    budget: &mut Budget<'_>,
) -> Result<Vec<u64>, Exhausted> {
    let buffers = instance.buffers();
    let class_of = |index: usize| {
        let needed = room(&buffers[index]);
        classes.partition_point(|&end| end < needed)
    };
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of = vec![0usize; buffers.len()];
    let mut free: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
    for request in requests(instance) {
        budget.spend(1)?;
        match request {
            Request::Free(index) => free[class_of(index)].push(block_of[index]),
            Request::Allocate(index) => {
                let block = free[class_of(index)].pop().unwrap_or_else(|| {
                    blocks.push(Block::new());
                    blocks.len() - 1
                });
                blocks[block].add(index, &buffers[index]);
                block_of[index] = block;
            }
        }
    }
    let mut guests = vec![Vec::new(); blocks.len()];
    let roots = match classes.len() {
        // Blocks of one class have no need of each other.
        0 | 1 => (0..blocks.len()).collect(),
        _ => nest(instance, &blocks, &mut guests, budget)?,
    };
    Ok(lay(instance, &blocks, &roots, &guests))
}

/// Makes blocks guests of larger ones: guests of one host lie side by side in it, and none of what
/// lies in them is alive together with a buffer of the host. Pairs are looked at in the order in
/// which the blocks were made. Returns the blocks that are nobody's guest.
fn nest(
    instance: &Instance,
    blocks: &[Block],
    guests: &mut [Vec<usize>],
    budget: &mut Budget<'_>,
) -> Result<Vec<usize>, Exhausted> {
    let own: Vec<Vec<(u64, u64)>> = blocks.iter().map(|block| lives(instance, block)).collect();
    // With those of guests, and theirs.
    let mut all = own.clone();
    let mut taken = vec![0u64; blocks.len()];
    let mut is_guest = vec![false; blocks.len()];
    for first in 0..blocks.len() {
        for second in first + 1..blocks.len() {
            budget.spend(1)?;
            if is_guest[first] {
                break;
            }
            if is_guest[second] {
                continue;
            }
            let place = |guest: usize, host: usize| {
                let start = align_up(taken[host], blocks[guest].alignment);
                let end = start + blocks[guest].size;
                let aligned = blocks[guest].alignment <= blocks[host].alignment;
                (aligned && end <= blocks[host].size).then_some((guest, host, end))
            };
            let Some((guest, host, end)) = place(second, first).or_else(|| place(first, second))
            else {
                continue;
            };
            budget.spend(all[guest].len() as u64)?;
            if meet(&own[host], &all[guest]) {
                continue;
            }
            taken[host] = end;
            guests[host].push(guest);
            is_guest[guest] = true;
            let more = std::mem::take(&mut all[guest]);
            all[host].extend(more);
        }
    }
    Ok((0..blocks.len())
        .filter(|&block| !is_guest[block])
        .collect())
}

/// The lifetimes of a block's own buffers, in the order of time.
fn lives(instance: &Instance, block: &Block) -> Vec<(u64, u64)> {
    let buffers = instance.buffers();
    let members = block.buffers.iter().map(|&index| &buffers[index]);
    members.map(|buffer| (buffer.lower, buffer.upper)).collect()
}

/// Whether an interval of one list meets one of the other; the first is sorted and without overlaps.
fn meet(disjoint: &[(u64, u64)], others: &[(u64, u64)]) -> bool {
    others.iter().any(|&(lower, upper)| {
        let next = disjoint.partition_point(|&(_, end)| end <= lower);
        disjoint.get(next).is_some_and(|&(start, _)| start < upper)
    })
}

/// Offsets of all buffers: `roots` side by side above the fixed buffers, the guests of each block
/// side by side in it.
fn lay(instance: &Instance, blocks: &[Block], roots: &[usize], guests: &[Vec<usize>]) -> Vec<u64> {
    let (mut offsets, mut top) = fixed(instance);
    // Blocks that have their place; those in them follow.
    let mut placed: Vec<(usize, u64)> = Vec::new();
    for &root in roots {
        let start = align_up(top, blocks[root].alignment);
        placed.push((root, start));
        top = start + blocks[root].size;
    }
    while let Some((block, start)) = placed.pop() {
        for &index in &blocks[block].buffers {
            offsets[index] = align_up(start, instance.buffers()[index].alignment);
        }
        let mut inside = start;
        for &guest in &guests[block] {
            let start = align_up(inside, blocks[guest].alignment);
            placed.push((guest, start));
            inside = start + blocks[guest].size;
        }
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristics::peers::Peer;
    use crate::heuristics::peers::tests::placed;

    /// 100 and 60 alive together, then 50 and 90, then 200.
    fn program() -> Vec<Buffer> {
        vec![
            Buffer::new(100, 0, 2),
            Buffer::new(60, 0, 2),
            Buffer::new(50, 2, 4),
            Buffer::new(90, 2, 4),
            Buffer::new(200, 4, 6),
        ]
    }

    #[test]
    fn the_smallest_free_block_that_is_large_enough_is_handed_out_whole() {
        // Blocks of 100 and 60; the 50 takes the 60, the 90 the 100; the 200 needs a new one.
        let (offsets, height) = placed(Peer::WholeBlocks, program());
        assert_eq!((offsets, height), (vec![0, 100, 100, 0, 160], 360));
        // The block of 100 grows to 200 instead.
        let (offsets, height) = placed(Peer::GrowingBlocks, program());
        assert_eq!((offsets, height), (vec![0, 200, 200, 0, 0], 260));
    }

    #[test]
    fn within_a_class_the_block_freed_last_is_taken() {
        // All sizes are of one octave. The 90 takes the block of the 60, which was freed last, and
        // the 50 that of the 100.
        let buffers = vec![
            Buffer::new(100, 0, 2),
            Buffer::new(60, 0, 2),
            Buffer::new(90, 2, 4),
            Buffer::new(50, 2, 4),
        ];
        let (offsets, height) = placed(Peer::EqualBlocks, buffers);
        assert_eq!((offsets, height), (vec![0, 100, 100, 0], 190));
        // The 200 is of another class, and what is dead when it lives is laid into its block.
        let (offsets, height) = placed(Peer::EqualBlocks, program());
        assert_eq!((offsets, height), (vec![0, 100, 100, 0, 0], 200));
    }

    #[test]
    fn classes_are_octaves_and_small_ones_join_the_next() {
        let sized = |sizes: &[u64]| {
            let buffers = sizes.iter().map(|&size| Buffer::new(size, 0, 1));
            classes(&Instance::new(buffers.collect()).unwrap())
        };
        assert_eq!(sized(&[]), Vec::<u64>::new());
        assert_eq!(sized(&[100]), [100]);
        // Four octaves up to 8192, six sizes: one is enough for a class of its own. Nothing lies in
        // the octave up to 4096.
        assert_eq!(
            sized(&[400, 900, 1024, 1500, 1600, 8000]),
            [1024, 1600, 8000]
        );
        // Four octaves, eight sizes: a class has at least two, so that the 900 joins.
        let sizes = [900, 1500, 1600, 3000, 3100, 8000, 8100, 8192];
        assert_eq!(sized(&sizes), [1600, 3100, 8192]);
        // Two large sizes stay for themselves although their octave is a small one.
        let mut sizes = vec![1024; 42];
        sizes.extend([9 << 20, 10 << 20, 20 << 20]);
        assert_eq!(sized(&sizes), [1024, 10 << 20, 20 << 20]);
    }

    #[test]
    fn blocks_that_never_meet_are_laid_into_larger_ones() {
        let large = Buffer::new(4096, 0, 2);
        let small = |lower, upper| Buffer::new(1024, lower, upper);
        // Both small ones are dead while the large one lives, but not together with each other.
        let buffers = vec![large, small(2, 4), small(2, 4)];
        assert_eq!(placed(Peer::EqualBlocks, buffers), (vec![0, 0, 1024], 4096));
        // One that lives on cannot be a guest.
        let buffers = vec![Buffer::new(4096, 0, 2), small(1, 4), small(2, 4)];
        assert_eq!(placed(Peer::EqualBlocks, buffers), (vec![0, 4096, 0], 5120));
    }

    #[test]
    fn pools_lie_above_what_is_fixed_and_keep_alignments() {
        let buffers = vec![
            Buffer::new(10, 0, 2).with_offset(7),
            Buffer::new(10, 0, 2).with_alignment(16),
            Buffer::new(10, 0, 2).with_alignment(6),
        ];
        // The pool begins at 17: 32..42, then a block of 15 bytes at 42, which is a multiple of 6.
        for peer in [Peer::WholeBlocks, Peer::GrowingBlocks] {
            assert_eq!(placed(peer, buffers.clone()), (vec![7, 32, 42], 52));
        }
    }
}
