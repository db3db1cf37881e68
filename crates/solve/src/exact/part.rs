//! A part of an instance in the form that the exact search reads: members numbered by rank, their
//! conflicts, and the sections that can bind.

use std::ops::Range;

use crate::instance::{Instance, Piece};

/// One member of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    /// The offset, when it is given.
    pub(crate) fixed: Option<u64>,
    /// A member of lower rank that differs in nothing, and so goes below this one.
    pub(crate) twin: Option<u32>,
}

/// Members in the order of their rank: of two that could lie equally low, the search tries the one
/// with the lower rank first.
pub(crate) struct Part {
    pub(crate) members: Vec<Member>,
    neighbours: Lists,
    /// Those of the neighbours that are fixed.
    obstacles: Lists,
    sections: Lists,
    inhabitants: Lists,
}

/// Many short lists in one.
struct Lists {
    items: Vec<u32>,
    starts: Vec<u32>,
}

impl Lists {
    fn collect(lists: impl Iterator<Item = impl IntoIterator<Item = u32>>) -> Self {
        let mut items = Vec::new();
        let mut starts = vec![0];
        for list in lists {
            items.extend(list);
            starts.push(u32::try_from(items.len()).unwrap_or(u32::MAX));
        }
        Lists { items, starts }
    }

    fn range(&self, list: usize) -> Range<usize> {
        self.starts[list] as usize..self.starts[list + 1] as usize
    }

    fn get(&self, list: usize) -> &[u32] {
        &self.items[self.range(list)]
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

impl Part {
    /// `ranked` holds the buffers of the part, each with pieces, in the order of their rank.
    pub(crate) fn new(instance: &Instance, ranked: &[u32]) -> Self {
        let sections = maximal_sections(instance, ranked);
        let inhabitants = Lists::collect(sections.iter().cloned());
        let mut homes: Vec<Vec<u32>> = vec![Vec::new(); ranked.len()];
        for (section, members) in (0u32..).zip(&sections) {
            for &member in members {
                homes[member as usize].push(section);
            }
        }
        let mut seen = vec![u32::MAX; ranked.len()];
        let neighbours = Lists::collect((0u32..).zip(&homes).map(|(member, homes)| {
            seen[member as usize] = member;
            let mut list = Vec::new();
            for &section in homes {
                for &other in &sections[section as usize] {
                    if seen[other as usize] != member {
                        seen[other as usize] = member;
                        list.push(other);
                    }
                }
            }
            list
        }));
        let mut members: Vec<Member> = Vec::with_capacity(ranked.len());
        for (rank, &buffer) in ranked.iter().enumerate() {
            let stated = &instance.buffers()[buffer as usize];
            let same = |other: &u32| {
                let candidate = &instance.buffers()[ranked[*other as usize] as usize];
                (*other as usize) < rank
                    && candidate.size == stated.size
                    && candidate.alignment == stated.alignment
                    && candidate.offset.is_none()
                    && homes[*other as usize] == homes[rank]
            };
            let twins = neighbours.get(rank).iter().copied().filter(same);
            members.push(Member {
                size: stated.size,
                alignment: stated.alignment,
                fixed: stated.offset,
                twin: if stated.offset.is_none() {
                    twins.max()
                } else {
                    None
                },
            });
        }
        let obstacles = Lists::collect((0..ranked.len()).map(|member| {
            let fixed = |other: &u32| members[*other as usize].fixed.is_some();
            let list = neighbours.get(member).iter().copied().filter(fixed);
            list.collect::<Vec<u32>>()
        }));
        Part {
            obstacles,
            members,
            neighbours,
            sections: Lists::collect(homes.into_iter()),
            inhabitants,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The size of one member in bytes.
    pub(crate) fn size(&self, member: usize) -> u64 {
        self.members[member].size
    }

    /// The members that conflict with one.
    pub(crate) fn neighbours(&self, member: usize) -> &[u32] {
        self.neighbours.get(member)
    }

    /// The fixed members that conflict with one.
    pub(crate) fn obstacles(&self, member: usize) -> &[u32] {
        self.obstacles.get(member)
    }

    /// The sections in which a member is alive; at least one.
    pub(crate) fn sections(&self, member: usize) -> &[u32] {
        self.sections.get(member)
    }

    /// From the first to behind the last section of a member.
    pub(crate) fn hull(&self, member: usize) -> (usize, usize) {
        let sections = self.sections(member);
        let first = sections.first().map_or(0, |&section| section as usize);
        let last = sections.last().map_or(0, |&section| section as usize);
        (first, last + 1)
    }

    /// Number of sections.
    pub(crate) fn section_count(&self) -> usize {
        self.inhabitants.len()
    }

    /// The members alive in a section.
    pub(crate) fn inhabitants(&self, section: usize) -> &[u32] {
        self.inhabitants.get(section)
    }

    /// The members of all sections, one section after the other.
    pub(crate) fn all_inhabitants(&self) -> &[u32] {
        &self.inhabitants.items
    }

    /// Where those of one section begin in [`Self::all_inhabitants`].
    pub(crate) fn inhabitants_begin(&self, section: usize) -> usize {
        self.inhabitants.range(section).start
    }

    /// About what it costs to look at everything once.
    pub(crate) fn work(&self) -> u64 {
        (self.neighbours.items.len() + self.inhabitants.items.len()) as u64
    }
}

/// The members alive in each section that no other section contains.
fn maximal_sections(instance: &Instance, ranked: &[u32]) -> Vec<Vec<u32>> {
    // (section, is a death, member): members are born in their first and dead after their last.
    let mut events: Vec<(u32, bool, u32)> = Vec::new();
    for (member, &buffer) in (0u32..).zip(ranked) {
        for &Piece { lower, upper } in instance.pieces(buffer as usize) {
            events.push((lower, true, member));
            events.push((upper, false, member));
        }
    }
    events.sort_unstable();
    let mut alive: Vec<u32> = Vec::new();
    let mut sections: Vec<Vec<u32>> = Vec::new();
    let mut births = false;
    for (_, birth, member) in events {
        if birth {
            alive.push(member);
        } else {
            if births {
                sections.push(alive.clone());
            }
            alive.retain(|&other| other != member);
        }
        births = birth;
    }
    sections
}
