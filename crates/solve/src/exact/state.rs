//! Where the search stands: what is placed, how low the others can lie, and how to go back.
//!
//! Each unplaced member has a *top*, the highest end of a placed neighbour, up to alignment: there
//! it lies if it is placed next. Its *low* is an offset below which it cannot end up, proven from
//! the rest of the state; a member whose low is above its top waits until something lifts it.

use super::part::Part;
use crate::instance::align_up;
use crate::solution::Techniques;

/// A state to go back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    trail: usize,
    history: usize,
    highest: u64,
}

/// See the module page.
pub(crate) struct State<'a> {
    pub(super) part: &'a Part,
    pub(super) techniques: Techniques,
    /// Everything must end at or below this.
    pub(super) height: u64,
    placed: Vec<bool>,
    /// Placed: the offset.
    tops: Vec<u64>,
    pub(super) lows: Vec<u64>,
    /// No low is above this.
    pub(super) highest: u64,
    /// (member, top, low) before a change.
    trail: Vec<(u32, u64, u64)>,
    /// Placed members.
    history: Vec<u32>,
    /// For each section its unplaced members, then the placed ones, the last placed first.
    pub(super) order: Vec<u32>,
    /// For each section the number of unplaced members.
    pub(super) unplaced: Vec<u32>,
    /// For each section the sum of their sizes.
    pub(super) loads: Vec<u64>,
    /// For each section the number of unplaced members alive there and before it.
    crossing: Vec<u32>,
    /// For each member that was put off the neighbour that lifts it least.
    lifters: Vec<u32>,
    /// Sections to look at, each once.
    pub(super) dirty: Vec<u32>,
    pub(super) is_dirty: Vec<bool>,
    /// Scratch: the sections of the member just placed.
    inside: Vec<bool>,
    /// Scratch of the bounds.
    pub(super) ends: Vec<(u64, u64)>,
    pub(super) steps: u64,
}

impl<'a> State<'a> {
    pub(crate) fn new(part: &'a Part, height: u64, techniques: Techniques) -> Self {
        let sections = part.section_count();
        let fixed: Vec<u64> = part.members.iter().map(|m| m.fixed.unwrap_or(0)).collect();
        let mut unplaced = Vec::with_capacity(sections);
        let mut loads = Vec::with_capacity(sections);
        for section in 0..sections {
            let members = part.inhabitants(section);
            unplaced.push(u32::try_from(members.len()).unwrap_or(u32::MAX));
            loads.push(members.iter().map(|&m| part.size(m as usize)).sum());
        }
        let mut crossing = vec![0; sections];
        for member in 0..part.len() {
            let (first, last) = part.hull(member);
            for count in &mut crossing[first + 1..last] {
                *count += 1;
            }
        }
        State {
            part,
            techniques,
            height,
            placed: vec![false; part.len()],
            tops: fixed.clone(),
            highest: fixed.iter().copied().max().unwrap_or(0),
            lows: fixed,
            trail: Vec::new(),
            history: Vec::new(),
            order: part.all_inhabitants().to_vec(),
            unplaced,
            loads,
            crossing,
            lifters: vec![0; part.len()],
            dirty: Vec::new(),
            is_dirty: vec![false; sections],
            inside: vec![false; sections],
            ends: Vec::new(),
            steps: 0,
        }
    }

    /// Looks at all sections for the first time; false when the members cannot fit.
    pub(crate) fn begin(&mut self) -> bool {
        for member in 0..self.part.len() {
            let low = self.clear_of_fixed(member, self.lows[member]);
            self.lows[member] = low;
            self.highest = self.highest.max(low);
            self.soil(member);
        }
        self.sections_hold()
    }

    pub(crate) fn top(&self, member: usize) -> u64 {
        self.tops[member]
    }

    pub(crate) fn low(&self, member: usize) -> u64 {
        self.lows[member]
    }

    pub(crate) fn is_placed(&self, member: usize) -> bool {
        self.placed[member]
    }

    /// The offsets by member, when all are placed.
    pub(crate) fn into_offsets(self) -> Vec<u64> {
        self.tops
    }

    /// The work done since it was last asked for.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            trail: self.trail.len(),
            history: self.history.len(),
            highest: self.highest,
        }
    }

    pub(crate) fn undo(&mut self, mark: Mark) {
        self.highest = mark.highest;
        for member in self.history.drain(mark.history..).rev() {
            let member = member as usize;
            self.placed[member] = false;
            let size = self.part.size(member);
            for &section in self.part.sections(member) {
                self.unplaced[section as usize] += 1;
                self.loads[section as usize] += size;
            }
            let (first, last) = self.part.hull(member);
            for count in &mut self.crossing[first + 1..last] {
                *count += 1;
            }
        }
        for (member, top, low) in self.trail.drain(mark.trail..).rev() {
            self.tops[member as usize] = top;
            self.lows[member as usize] = low;
        }
        for section in self.dirty.drain(..) {
            self.is_dirty[section as usize] = false;
        }
    }

    /// Puts a member at its top; false when that hits a fixed neighbour.
    pub(crate) fn place(&mut self, member: usize, offset: u64) -> bool {
        let part = self.part;
        let size = part.size(member);
        self.placed[member] = true;
        self.history.push(index(member));
        for &section in part.sections(member) {
            let section = section as usize;
            let begin = part.inhabitants_begin(section);
            let list = &mut self.order[begin..begin + self.unplaced[section] as usize];
            if let Some(at) = list.iter().position(|&other| other as usize == member) {
                list[at..].rotate_left(1);
            }
            self.unplaced[section] -= 1;
            self.loads[section] -= size;
            self.inside[section] = true;
        }
        let (first, last) = part.hull(member);
        for count in &mut self.crossing[first + 1..last] {
            *count -= 1;
        }
        let lifted = self.lift_neighbours(member, offset + size);
        for &section in part.sections(member) {
            self.inside[section as usize] = false;
        }
        match lifted {
            Some(exactly) => {
                // The bounds of its own sections counted with just this, but for alignment.
                if !exactly || !self.techniques.put_off || !self.techniques.head_bound {
                    self.soil(member);
                }
                // They do not count the hole that a twin that waits for the other leaves.
                offset + size <= self.height
            }
            None => false,
        }
    }

    /// Lifts the neighbours of the member just placed to its end. `Some(true)` when all that move
    /// lie exactly there, `None` when a fixed one would have to move.
    fn lift_neighbours(&mut self, member: usize, end: u64) -> Option<bool> {
        let part = self.part;
        let mut exactly = true;
        for &other in part.neighbours(member) {
            let other = other as usize;
            if self.placed[other] || self.tops[other] >= end {
                continue;
            }
            let stated = &part.members[other];
            if stated.fixed.is_some() {
                return None;
            }
            let top = align_up(end, stated.alignment);
            let low = self.clear_of_fixed(other, self.lows[other].max(top));
            self.trail
                .push((index(other), self.tops[other], self.lows[other]));
            self.tops[other] = top;
            if self.lows[other] < low {
                self.lows[other] = low;
                self.highest = self.highest.max(low);
                exactly &= low == end;
                for &section in part.sections(other) {
                    if !self.inside[section as usize] {
                        self.soil_section(section);
                    }
                }
            }
        }
        Some(exactly)
    }

    /// The member does not lie at its top, and nothing more is placed below `from`: raises its low
    /// to what it can then have. Something must lift it that begins below its end, for else it
    /// could drop back. False when nothing can.
    pub(crate) fn put_off(&mut self, member: usize, from: u64) -> bool {
        let part = self.part;
        let stated = &part.members[member];
        if stated.fixed.is_some() {
            return false;
        }
        let lifter = self.lifters[member] as usize;
        let least = self.lows[lifter].max(from) + part.size(lifter);
        if !self.placed[lifter]
            && self.lows[member] > self.tops[member]
            && align_up(least, stated.alignment) == self.lows[member]
        {
            // Lows only rise, so no other one lifts it less.
            return true;
        }
        let end = self.tops[member] + stated.size;
        let mut least = u64::MAX;
        self.steps += part.neighbours(member).len() as u64;
        for &other in part.neighbours(member) {
            let begin = self.lows[other as usize].max(from);
            if !self.placed[other as usize] && begin < end {
                let other_end = begin + part.size(other as usize);
                if other_end < least {
                    least = other_end;
                    self.lifters[member] = other;
                }
            }
        }
        if least == u64::MAX {
            return false;
        }
        self.raise(member, least);
        true
    }

    /// Raises a low to `offset`, aligned and clear of fixed neighbours, if it is below that.
    pub(super) fn raise(&mut self, member: usize, offset: u64) {
        let aligned = align_up(offset, self.part.members[member].alignment);
        let low = self.clear_of_fixed(member, aligned);
        if low > self.lows[member] {
            self.trail
                .push((index(member), self.tops[member], self.lows[member]));
            self.lows[member] = low;
            self.highest = self.highest.max(low);
            self.soil(member);
        }
    }

    /// The least offset from `low` on at which no unplaced fixed neighbour is in the way.
    fn clear_of_fixed(&self, member: usize, mut low: u64) -> u64 {
        let stated = &self.part.members[member];
        let obstacles = self.part.obstacles(member);
        if obstacles.is_empty() || stated.fixed.is_some() {
            return low;
        }
        // Lifting it over one can push it into another.
        loop {
            let hit = obstacles.iter().find_map(|&other| {
                let other = other as usize;
                let start = self.tops[other];
                let end = start + self.part.size(other);
                let hit = !self.placed[other] && start < low + stated.size && low < end;
                hit.then_some(end)
            });
            match hit {
                Some(end) => low = align_up(end, stated.alignment),
                None => return low,
            }
        }
    }

    /// Whether the member just placed was the last to cross some moment.
    pub(crate) fn opens_cut(&self, member: usize) -> bool {
        let (first, last) = self.part.hull(member);
        self.crossing[first + 1..last].contains(&0)
    }

    /// All sections of a member have to be looked at.
    fn soil(&mut self, member: usize) {
        let part = self.part;
        for &section in part.sections(member) {
            self.soil_section(section);
        }
    }

    fn soil_section(&mut self, section: u32) {
        if !self.is_dirty[section as usize] {
            self.is_dirty[section as usize] = true;
            self.dirty.push(section);
        }
    }
}

/// A member as it is kept.
pub(super) fn index(member: usize) -> u32 {
    u32::try_from(member).unwrap_or(u32::MAX)
}
