//! Exact search for small parts of an instance: the least height of buffers that are connected in
//! time, by depth-first branch and bound.
//!
//! Of the placements with the least height take one with the least sum of offsets. In it every
//! buffer that is not fixed lies on the bottom or, up to alignment, on the highest of the buffers
//! below it that it meets. So placing the buffers by rising offset, each directly on what it meets,
//! reaches it; and so it does without the branches that are cut:
//!
//! * *order*: the next buffer does not lie below the last one; of two at the same offset the one
//!   with the smaller index comes first;
//! * *room below*: no unplaced buffer could end at or below the next one's offset, for moving it
//!   there would lower the sum;
//! * *bound*: the buffers still to come in a section, stacked on the lowest place left to one of
//!   them, end below the best height so far.

use crate::budget::{Budget, Exhausted};
use crate::instance::{Instance, align_up};

/// Sets of buffers are bits of a word.
const MAX_BUFFERS: usize = 64;

/// Splits the buffers that have pieces at the moments that no lifetime crosses; gaps count as
/// lifetime here. Each part lists indices of buffers.
pub(crate) fn parts(instance: &Instance) -> Vec<Vec<usize>> {
    let mut hulls: Vec<(u32, u32, usize)> = (0..instance.len())
        .filter_map(|buffer| {
            let hull = instance.hull(buffer)?;
            Some((hull.lower, hull.upper, buffer))
        })
        .collect();
    hulls.sort_unstable();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for (lower, upper, buffer) in hulls {
        match parts.last_mut() {
            Some(part) if lower < end => part.push(buffer),
            _ => parts.push(vec![buffer]),
        }
        end = end.max(upper);
    }
    parts
}

/// What the search says about one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Offsets in the order of the part, below the height to beat; `None` when none was found.
    pub(crate) better: Option<Vec<u64>>,
    /// Whether the search was complete: no placement is lower than the one found or to beat, or
    /// the height that is enough was reached.
    pub(crate) complete: bool,
}

/// Looks for a placement of `part` lower than `beat`, and for ever lower ones until one ends at or
/// below `enough`. A part with more than 64 buffers is not searched.
pub(crate) fn search(
    instance: &Instance,
    part: &[usize],
    beat: u64,
    enough: u64,
    budget: &mut Budget<'_>,
) -> Outcome {
    if part.len() > MAX_BUFFERS {
        return Outcome {
            better: None,
            complete: false,
        };
    }
    let mut tree = Tree::new(instance, part, beat, enough);
    let unplaced = u64::MAX >> (MAX_BUFFERS - part.len());
    let complete = tree.descend(unplaced, None, budget).is_ok();
    Outcome {
        better: tree.better,
        complete,
    }
}

/// One buffer of the part.
struct Member {
    size: u64,
    alignment: u64,
    fixed: Option<u64>,
    /// The members that it meets in time.
    neighbours: u64,
}

struct Tree {
    members: Vec<Member>,
    /// The members alive in each section of the part.
    sections: Vec<u64>,
    /// The members that are fixed.
    fixed: u64,
    /// Offsets of the placed members.
    offsets: Vec<u64>,
    beat: u64,
    enough: u64,
    better: Option<Vec<u64>>,
}

impl Tree {
    fn new(instance: &Instance, part: &[usize], beat: u64, enough: u64) -> Self {
        let bits = |holds: &dyn Fn(usize) -> bool| {
            let members = part.iter().enumerate();
            members.fold(0, |set, (bit, &buffer)| {
                set | u64::from(holds(buffer)) << bit
            })
        };
        let members = part.iter().map(|&buffer| {
            let stated = &instance.buffers()[buffer];
            Member {
                size: stated.size,
                alignment: stated.alignment,
                fixed: stated.offset,
                neighbours: bits(&|other| other != buffer && instance.meet(buffer, other)),
            }
        });
        // Each section that matters begins with a birth.
        let pieces = part.iter().flat_map(|&buffer| instance.pieces(buffer));
        let mut births: Vec<u32> = pieces.map(|piece| piece.lower).collect();
        births.sort_unstable();
        births.dedup();
        let alive = |buffer: usize, section: u32| {
            let mut pieces = instance.pieces(buffer).iter();
            pieces.any(|piece| (piece.lower..piece.upper).contains(&section))
        };
        Tree {
            members: members.collect(),
            sections: births
                .into_iter()
                .map(|section| bits(&|buffer| alive(buffer, section)))
                .collect(),
            fixed: bits(&|buffer| instance.buffers()[buffer].offset.is_some()),
            offsets: vec![0; part.len()],
            beat,
            enough,
            better: None,
        }
    }

    /// Tries all ways to go on; `last` is the last member placed. An error ends the whole search.
    fn descend(
        &mut self,
        unplaced: u64,
        last: Option<usize>,
        budget: &mut Budget<'_>,
    ) -> Result<(), Exhausted> {
        if unplaced == 0 {
            let ends = self.offsets.iter().zip(&self.members);
            self.beat = ends
                .map(|(offset, member)| offset + member.size)
                .max()
                .unwrap_or(0);
            self.better = Some(self.offsets.clone());
            return Ok(());
        }
        let mut lows = [0; MAX_BUFFERS];
        let mut lowest_end = u64::MAX;
        for member in each(unplaced) {
            lows[member] = self.low(member, unplaced);
            if self.members[member].fixed.is_none() {
                lowest_end = lowest_end.min(lows[member] + self.members[member].size);
            }
        }
        budget.spend(8 * (self.sections.len() + self.members.len()) as u64)?;
        if !self.within_bound(unplaced, &lows) {
            return Ok(());
        }
        let after = last.map_or((0, 0), |last| (self.offsets[last], last + 1));
        let mut candidates: Vec<(u64, usize)> = each(unplaced)
            .map(|member| (lows[member], member))
            .filter(|&(low, member)| (low, member) >= after && low < lowest_end)
            .collect();
        candidates.sort_unstable();
        for (low, member) in candidates {
            self.offsets[member] = low;
            self.descend(unplaced & !(1 << member), Some(member), budget)?;
            if self.beat <= self.enough {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The lowest offset that a member can have on the placed ones and clear of the fixed ones.
    fn low(&self, member: usize, unplaced: u64) -> u64 {
        let Member {
            size,
            alignment,
            fixed,
            neighbours,
        } = self.members[member];
        if let Some(fixed) = fixed {
            return fixed;
        }
        let end = |other: usize| self.offsets[other] + self.members[other].size;
        let top = each(neighbours & !unplaced).map(end).max().unwrap_or(0);
        let mut low = align_up(top, alignment);
        // The placed ones end at or below `low`; an unplaced fixed one may lie across it. Lifting
        // the member above one can push it into another.
        loop {
            let mut obstacles = each(neighbours & unplaced & self.fixed).filter_map(|other| {
                let start = self.members[other].fixed?;
                let end = start + self.members[other].size;
                (start < low + size && low < end).then_some(end)
            });
            match obstacles.next() {
                Some(end) => low = align_up(end, alignment),
                None => return low,
            }
        }
    }

    /// Whether every section can still end below the height to beat.
    fn within_bound(&self, unplaced: u64, lows: &[u64; MAX_BUFFERS]) -> bool {
        self.sections.iter().all(|&alive| {
            let to_come = alive & unplaced;
            let floor = each(to_come).map(|member| lows[member]).min().unwrap_or(0);
            let load: u64 = each(to_come).map(|member| self.members[member].size).sum();
            to_come == 0 || floor + load < self.beat
        })
    }
}

/// The members of a set, by rising index.
fn each(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let member = set.trailing_zeros() as usize;
        set &= set.checked_sub(1)?;
        Some(member)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Stop;
    use crate::instance::Buffer;

    fn least(buffers: Vec<Buffer>) -> u64 {
        let instance = Instance::new(buffers).unwrap();
        let part: Vec<usize> = (0..instance.len()).collect();
        let stop = Stop::new(None);
        let mut budget = Budget::new(1_000_000, &stop);
        let outcome = search(&instance, &part, u64::MAX, 0, &mut budget);
        assert!(outcome.complete);
        instance.height_of(&outcome.better.unwrap())
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
        assert_eq!(least(buffers.to_vec()), 72);
    }

    #[test]
    fn alignment_and_fixed_buffers_leave_holes() {
        let aligned = |size, alignment| Buffer::new(size, 0, 4).with_alignment(alignment);
        assert_eq!(
            least(vec![aligned(100, 64), aligned(60, 64), aligned(30, 4)]),
            194
        );
        assert_eq!(
            least(vec![aligned(100, 64), aligned(60, 64), aligned(42, 4)]),
            206
        );
        let fixed = Buffer::new(8, 1, 2).with_offset(8);
        assert_eq!(least(vec![fixed.clone(), Buffer::new(12, 0, 4)]), 28);
        assert_eq!(least(vec![fixed, Buffer::new(8, 0, 4)]), 16);
    }

    #[test]
    fn a_search_that_is_cut_proves_nothing() {
        let buffers = (0..20)
            .map(|at| Buffer::new(7 + at % 5, at, at + 6))
            .collect();
        let instance = Instance::new(buffers).unwrap();
        let part: Vec<usize> = (0..20).collect();
        let stop = Stop::new(None);
        let outcome = search(&instance, &part, 60, 0, &mut Budget::new(1000, &stop));
        assert!(!outcome.complete);
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
        assert_eq!(parts(&instance), [vec![1], vec![0, 3, 4]]);
    }
}
