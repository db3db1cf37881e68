//! The search itself: does a part fit below a height? Depth-first over canonical placements.
//!
//! Of all placements that fit take one with the least sum of offsets. In it each member that is
//! not fixed lies on the bottom or, up to alignment, on the highest of its neighbours below it. So
//! placing members by rising offset (equal ones by rank), each directly on what it meets, reaches
//! it. At each node one candidate is placed next, and all candidates before it are *put off*: they
//! go higher than they could lie now.

use super::part::Part;
use super::state::{Mark, State};
use crate::budget::{Budget, Exhausted};
use crate::solution::Techniques;

/// Which of the ways to go on is tried first; the same ways are tried in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The lowest candidate first: as the dive does.
    ByOffset,
    /// The candidate with the lowest rank first, at whatever offset.
    ByRank,
}

/// One search. Its stack grows with the members: see [`super::MAX_MEMBERS`].
pub(crate) struct Tree<'a> {
    part: &'a Part,
    techniques: Techniques,
    visit: Visit,
    state: State<'a>,
    /// All members; those of a node are neighbours in it.
    members: Vec<u32>,
    /// (offset, member) of the nodes on the path.
    candidates: Vec<(u64, u32)>,
}

/// An offset and a rank: where the next member may lie at the earliest.
type From = (u64, u32);

impl<'a> Tree<'a> {
    /// Nothing is placed; everything has to end at or below `height`.
    pub(crate) fn new(part: &'a Part, height: u64, techniques: Techniques, visit: Visit) -> Self {
        Tree {
            part,
            techniques,
            visit,
            state: State::new(part, height, techniques),
            members: (0u32..).take(part.len()).collect(),
            candidates: Vec::new(),
        }
    }

    /// Offsets by member, when they fit; `None` when they cannot.
    pub(crate) fn run(mut self, budget: &mut Budget<'_>) -> Result<Option<Vec<u64>>, Exhausted> {
        budget.spend(4 * self.part.work())?;
        if !self.state.begin() {
            return Ok(None);
        }
        let fits = self.descend(0, self.part.len(), (0, 0), budget)?;
        Ok(fits.then(|| self.state.into_offsets()))
    }

    /// Whether the unplaced members in `self.members[first..last]` fit. If so all are placed; else
    /// everything is as before, but for the order of those members.
    fn descend(
        &mut self,
        first: usize,
        last: usize,
        from: From,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Exhausted> {
        if first == last {
            return Ok(true);
        }
        let mark = self.state.mark();
        let start = self.candidates.len();
        let fits = self.try_all(first, last, from, budget);
        self.candidates.truncate(start);
        if !matches!(fits, Ok(true)) {
            self.state.undo(mark);
        }
        fits
    }

    fn try_all(
        &mut self,
        first: usize,
        last: usize,
        from: From,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Exhausted> {
        budget.spend(4 * (last - first) as u64 + self.state.take_steps())?;
        let start = self.candidates.len();
        if !self.collect(first, last, from) {
            return Ok(false);
        }
        let end = self.candidates.len();
        match self.visit {
            Visit::ByOffset => {
                for index in start..end {
                    let (offset, member) = self.candidates[index];
                    if self.try_one(first, last, offset, member, budget)? {
                        return Ok(true);
                    }
                    if !self.put_off(offset, member) {
                        break;
                    }
                }
            }
            Visit::ByRank => {
                let end = self.viable(start, end);
                self.candidates[start..end].sort_unstable_by_key(|&(_, member)| member);
                for index in start..end {
                    let (offset, member) = self.candidates[index];
                    if self.try_one(first, last, offset, member, budget)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Puts off what lies before `from`, and appends the candidates in canonical order. False when
    /// there is no way to go on.
    fn collect(&mut self, first: usize, last: usize, from: From) -> bool {
        let mut lowest_end = u64::MAX;
        for index in first..last {
            let member = self.members[index] as usize;
            let top = self.state.top(member);
            let waits = self.state.low(member) > top || (top, self.members[index]) < from;
            // Asked again at each node: what would lift it may be gone.
            if self.techniques.put_off && waits && !self.state.put_off(member, from.0) {
                return false;
            }
            lowest_end = lowest_end.min(top + self.part.size(member));
        }
        if !self.state.sections_hold() {
            return false;
        }
        let start = self.candidates.len();
        for index in first..last {
            let member = self.members[index];
            let top = self.state.top(member as usize);
            let lies_there = top == self.state.low(member as usize);
            // Above the end of an unplaced member nothing can lift that one any more.
            if lies_there && top < lowest_end && (top, member) >= from {
                let twin = self.part.members[member as usize].twin;
                let twin_waits = twin.is_some_and(|twin| !self.state.is_placed(twin as usize));
                if !(self.techniques.twins && twin_waits) {
                    self.candidates.push((top, member));
                }
            }
        }
        self.candidates[start..].sort_unstable();
        true
    }

    /// The candidate goes higher than here, and so do those after it; false when it cannot.
    fn put_off(&mut self, offset: u64, member: u32) -> bool {
        !self.techniques.put_off
            || self.state.put_off(member as usize, offset) && self.state.sections_hold()
    }

    /// How far into the candidates one can go while all before can be put off.
    fn viable(&mut self, start: usize, end: usize) -> usize {
        let mark = self.state.mark();
        let mut viable = start;
        while viable < end {
            let (offset, member) = self.candidates[viable];
            viable += 1;
            if !self.put_off(offset, member) {
                break;
            }
        }
        self.state.undo(mark);
        viable
    }

    /// Places one member and goes on.
    fn try_one(
        &mut self,
        first: usize,
        last: usize,
        offset: u64,
        member: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Exhausted> {
        let mark: Mark = self.state.mark();
        budget.spend(4 * self.part.neighbours(member as usize).len() as u64)?;
        if self.state.place(member as usize, offset) && self.state.sections_hold() {
            let from = (offset, member + 1);
            let members = &mut self.members[first..last];
            let at = members.iter().position(|&other| other == member);
            members.swap(at.unwrap_or(0), last - first - 1);
            let splits = self.techniques.split && self.state.opens_cut(member as usize);
            let fits = if splits {
                self.descend_apart(first, last - 1, from, budget)?
            } else {
                self.descend(first, last - 1, from, budget)?
            };
            if fits {
                return Ok(true);
            }
        }
        self.state.undo(mark);
        Ok(false)
    }

    /// Like [`Self::descend`], for the groups of members between moments that nothing unplaced
    /// crosses: the tightest first, and when one does not fit, the others need not be tried.
    fn descend_apart(
        &mut self,
        first: usize,
        last: usize,
        from: From,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Exhausted> {
        let part = self.part;
        self.members[first..last].sort_unstable_by_key(|&member| part.hull(member as usize));
        // (slack, first, last)
        let mut groups: Vec<(u64, usize, usize)> = Vec::new();
        let mut begin = first;
        let mut reach = 0;
        for index in first..=last {
            let next = self.members[..last].get(index);
            let hull = next.map(|&member| part.hull(member as usize));
            if index > begin && hull.is_none_or(|(lower, _)| lower >= reach) {
                let (lower, _) = part.hull(self.members[begin] as usize);
                let slacks = (lower..reach).map(|section| self.state.slack(section));
                groups.push((slacks.min().unwrap_or(0), begin, index));
                begin = index;
            }
            reach = reach.max(hull.map_or(0, |(_, upper)| upper));
        }
        groups.sort_unstable();
        for (_, begin, end) in groups {
            if !self.descend(begin, end, from, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
