//! The bounds of one section, whose members all lie one over the other: what makes a state dead,
//! and what it proves about the lows.

use super::state::State;

impl State<'_> {
    /// Whether all sections that changed can still end within the height. Looking at one can raise
    /// lows, and so change others: first in, first out, or lows creep up in small steps.
    pub(crate) fn sections_hold(&mut self) -> bool {
        let mut next = 0;
        while let Some(&section) = self.dirty.get(next) {
            next += 1;
            let section = section as usize;
            self.is_dirty[section] = false;
            self.steps += u64::from(self.unplaced[section]);
            if !self.holds(section) {
                self.dirty.drain(..next);
                return false;
            }
        }
        self.dirty.clear();
        true
    }

    /// What a section has to spare at most.
    pub(crate) fn slack(&self, section: usize) -> u64 {
        let lows = self.unplaced_in(section).iter();
        let floor = lows.map(|&member| self.lows[member as usize]).min();
        self.height
            .saturating_sub(floor.unwrap_or(0) + self.loads[section])
    }

    fn unplaced_in(&self, section: usize) -> &[u32] {
        let begin = self.part.inhabitants_begin(section);
        &self.order[begin..begin + self.unplaced[section] as usize]
    }

    /// The head bound: the members sorted by their lows and stacked, each at its low or on the one
    /// before, must end within the height.
    fn holds(&mut self, section: usize) -> bool {
        let load = self.loads[section];
        if self.highest + load <= self.height {
            return true;
        }
        let list = self.unplaced_in(section);
        let (mut floor, mut ceiling) = (u64::MAX, 0);
        for &member in list {
            let low = self.lows[member as usize];
            floor = floor.min(low);
            ceiling = ceiling.max(low);
        }
        if list.is_empty() || ceiling + load <= self.height {
            return true;
        }
        if floor + load > self.height {
            return false;
        }
        if !self.techniques.head_bound {
            let ends = self.unplaced_in(section).iter();
            let end = |&member: &u32| self.lows[member as usize] + self.part.size(member as usize);
            return ends.map(end).all(|end| end <= self.height);
        }
        // Where the lowest ones reach the highest low, stacking leaves no holes.
        let lowest = |&&member: &&u32| self.lows[member as usize] == floor;
        let sizes = list.iter().filter(lowest);
        let reach: u64 = sizes.map(|&member| self.part.size(member as usize)).sum();
        if floor + reach >= ceiling {
            return true;
        }
        self.stacked_end(section) <= self.height
            && (!self.techniques.not_first || self.raise_late(section))
    }

    /// Sorts the members of a section by their lows and stacks them.
    fn stacked_end(&mut self, section: usize) -> u64 {
        let begin = self.part.inhabitants_begin(section);
        let list = &mut self.order[begin..begin + self.unplaced[section] as usize];
        // Insertion sort: little has changed since the last look.
        for index in 1..list.len() {
            let member = list[index];
            let low = self.lows[member as usize];
            let mut at = index;
            while at > 0 && self.lows[list[at - 1] as usize] > low {
                list[at] = list[at - 1];
                at -= 1;
            }
            list[at] = member;
        }
        let mut end = 0;
        for &member in &*list {
            end = self.lows[member as usize].max(end) + self.part.size(member as usize);
        }
        end
    }

    /// A member that cannot lie below all of some set of others, for together they would end too
    /// high, lies above the lowest end among that set ("not first" in the terms of scheduling).
    /// False when that moves a fixed one.
    fn raise_late(&mut self, section: usize) -> bool {
        self.steps += 4 * u64::from(self.unplaced[section]);
        // (least end, sum of sizes from the highest least end down to here)
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(self.unplaced_in(section).iter().map(|&member| {
            let size = self.part.size(member as usize);
            (self.lows[member as usize] + size, size)
        }));
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        for (_, size) in &mut ends {
            sum += *size;
            *size = sum;
        }
        let begin = self.part.inhabitants_begin(section);
        let mut holds = true;
        for at in begin..begin + self.unplaced[section] as usize {
            let member = self.order[at] as usize;
            let size = self.part.size(member);
            let own_end = self.lows[member] + size;
            if own_end - size + sum <= self.height {
                continue;
            }
            // All members that end at or above this one; the member is not one of the others.
            let too_much = |&(end, sum): &(u64, u64)| {
                let others = if own_end >= end { sum - size } else { sum };
                own_end + others > self.height
            };
            let first = ends.partition_point(|entry| !too_much(entry));
            let Some(&(end, _)) = ends.get(first) else {
                continue;
            };
            if end > self.lows[member] {
                if self.part.members[member].fixed.is_some() {
                    holds = false;
                    break;
                }
                self.raise(member, end);
            }
        }
        self.ends = ends;
        holds
    }
}
