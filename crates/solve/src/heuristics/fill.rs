//! Best fit in the order of births around buffers that have their places already: what the sweep
//! does, in the holes of a placement.
//!
//! At the birth of a buffer the free places are those of the moment; what is born later, within
//! its life, is known, for it has its place, and is gone round.

use crate::budget::{Budget, Exhausted};
use crate::heuristics::sweep::FreePlaces;
use crate::instance::{Instance, Piece, align_up};
use crate::sorting;

/// How many free places with enough room are tried, the tightest first, before the lowest that
/// does is taken.
const MAX_TRIES: usize = 48;

/// Gives an offset to each buffer that has pieces and is not `placed`. Gaps of those buffers are
/// not used.
pub(crate) fn place(
    instance: &Instance,
    placed: &[bool],
    offsets: &mut [u64],
    budget: &mut Budget<'_>,
) -> Result<(), Exhausted> {
    let buffers = instance.buffers();
    // (first section, offset, end) of the placed ones, by birth.
    let mut future: Vec<(u32, u64, u64)> = Vec::new();
    // (section, is a birth, is a free buffer, size for births with the largest first, buffer)
    let mut events: Vec<(u32, bool, bool, u64, usize)> = Vec::new();
    for index in 0..instance.len() {
        let size = buffers[index].size;
        if placed[index] {
            for piece in instance.pieces(index) {
                future.push((piece.lower, offsets[index], offsets[index] + size));
                events.push((piece.lower, true, false, 0, index));
                events.push((piece.upper, false, false, 0, index));
            }
        } else if let Some(hull) = instance.hull(index) {
            events.push((hull.lower, true, true, u64::MAX - size, index));
            events.push((hull.upper, false, true, 0, index));
        }
    }
    sorting::sort(&mut future, budget.stop())?;
    sorting::sort(&mut events, budget.stop())?;
    let mut free = FreePlaces::new();
    let mut obstacles: Vec<(u64, u64)> = Vec::new();
    for (section, birth, open, _, index) in events {
        let size = buffers[index].size;
        if !birth {
            free.give(offsets[index], offsets[index] + size);
            continue;
        }
        if open {
            let upper = instance
                .hull(index)
                .map_or(section, |hull: Piece| hull.upper);
            let begin = future.partition_point(|&(lower, ..)| lower <= section);
            let end = future.partition_point(|&(lower, ..)| lower < upper);
            obstacles.clear();
            obstacles.extend(
                future[begin..end]
                    .iter()
                    .map(|&(_, start, end)| (start, end)),
            );
            obstacles.sort_unstable();
            budget.spend(64 + 4 * obstacles.len() as u64)?;
            offsets[index] = find(&free, size, buffers[index].alignment, &obstacles);
        }
        free.occupy(offsets[index], offsets[index] + size);
    }
    Ok(())
}

/// Where `size` bytes are free, now and clear of the sorted obstacles.
fn find(free: &FreePlaces, size: u64, alignment: u64, obstacles: &[(u64, u64)]) -> u64 {
    let fits = |(start, end): (u64, u64)| between(start, end, size, alignment, obstacles);
    let tightest = free.by_room(size).take(MAX_TRIES).find_map(fits);
    tightest
        .or_else(|| free.by_offset().find_map(fits))
        .or_else(|| between(free.open_end(), u64::MAX, size, alignment, obstacles))
        .unwrap_or(u64::MAX)
}

/// The lowest aligned offset of `size` bytes in `start..end` that are clear of the obstacles.
fn between(
    start: u64,
    end: u64,
    size: u64,
    alignment: u64,
    obstacles: &[(u64, u64)],
) -> Option<u64> {
    let mut offset = align_up(start, alignment);
    // Obstacles can overlap, as they need not be alive together; those that end first come first
    // only among disjoint ones, so all that begin below the end are looked at.
    for &(from, to) in obstacles {
        if from >= end || from >= offset.checked_add(size)? {
            break;
        }
        if to > offset {
            offset = align_up(to, alignment);
        }
    }
    (offset.checked_add(size)? <= end).then_some(offset)
}
