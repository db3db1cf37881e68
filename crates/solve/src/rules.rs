//! Rules for more than one buffer: forced separations and exclusions, runs that must be contiguous,
//! and bytes that nothing may use.
//!
//! Every module of the solver sees sections alone, sets of buffers of which no two may share bytes.
//! So separations and exclusions are turned into sections: a separation is a section more, behind
//! all moments, and a moment at which exclusive branches are alive becomes a section for each
//! branch. Runs and reserved ranges are gone by then: see `joined`.

use crate::instance::{Piece, Span};

/// Rules for more than one buffer, which are named by their indices; see
/// [`Instance::with_rules`](crate::Instance::with_rules). A separation wins over an exclusion.
///
/// ```
/// use tenure_solve::{Buffer, Config, Instance, Rules, solve};
///
/// // Three buffers alive together; the first two belong to branches of which one alone runs.
/// let buffers = vec![Buffer::new(8, 0, 4), Buffer::new(6, 0, 4), Buffer::new(4, 0, 9)];
/// let rules = Rules {
///     exclusive: vec![vec![vec![0], vec![1]]],
///     ..Rules::default()
/// };
/// let instance = Instance::with_rules(buffers, rules)?;
/// assert_eq!(solve(&instance, &Config::default())?.height, 12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Runs and reserved ranges:
///
/// ```
/// use tenure_solve::{Buffer, Config, Instance, Reserved, Rules, solve};
///
/// // Two gradients that are summed over all devices as one range, each aligned to 16 bytes.
/// let gradients = [Buffer::new(24, 0, 5), Buffer::new(40, 3, 5)];
/// let mut buffers: Vec<Buffer> = gradients.map(|buffer| buffer.with_alignment(16)).into();
/// buffers.push(Buffer::new(8, 0, 3));
/// let rules = Rules {
///     contiguous: vec![vec![0, 1]],
///     // The device keeps the first 64 bytes for itself, and a driver some more for a time.
///     reserved: vec![Reserved::always(0, 64), Reserved::always(64, 80).during(4, 9)],
///     ..Rules::default()
/// };
/// let solution = solve(&Instance::with_rules(buffers, rules)?, &Config::default())?;
/// assert_eq!(solution.offsets, [80, 112, 64]);
/// assert_eq!(solution.height, 152);
/// assert!(solution.proven_optimal);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Sets of buffers of which no two share bytes, even if they are never alive together: work on
    /// several streams whose order is not certain.
    pub separate: Vec<Vec<usize>>,
    /// Choices of branches, each a list of buffers: buffers in different branches of one choice may
    /// share bytes, even if their lifetimes meet. A buffer stands at most once in a choice.
    pub exclusive: Vec<Vec<Vec<usize>>>,
    /// Runs: lists of buffers that lie one right behind the other, in that order, as what is sent
    /// or cleared in one piece must. A buffer stands in one run at most.
    ///
    /// A run is one buffer to all others. It begins at a multiple of all its alignments, and each
    /// next buffer at the first multiple of its own behind the one before. All its bytes, padding
    /// included, are held whenever one of its buffers is alive. It is apart from what one of them
    /// must be apart from, and belongs to a branch when all of them do; those of size 0 have no say.
    pub contiguous: Vec<Vec<usize>>,
    /// Bytes that no buffer may use. No two may share bytes at the same time.
    pub reserved: Vec<Reserved>,
}

/// Bytes of the arena that no buffer may use, always or for a time. Buffers may lie below and above
/// them; they do not add to the height.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reserved {
    /// The first byte.
    pub from: u64,
    /// The first byte behind.
    pub to: u64,
    /// When; always if it is left out.
    pub time: Option<Span>,
}

impl Reserved {
    /// The bytes `from..to`, at all times.
    pub fn always(from: u64, to: u64) -> Self {
        Reserved {
            from,
            to,
            time: None,
        }
    }

    /// The same bytes in `lower..upper` alone.
    #[must_use]
    pub fn during(self, lower: u64, upper: u64) -> Self {
        Reserved {
            time: Some(Span { lower, upper }),
            ..self
        }
    }
}

/// Sections into which one moment is split at most. Beyond that the rest of its buffers are kept
/// apart although they need not be: an exclusion allows, it does not demand.
const MAX_SPLIT: usize = 64;

impl Rules {
    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.separate.is_empty() && self.exclusive.is_empty() && self.is_plain()
    }

    /// Whether there are neither runs nor reserved ranges.
    pub(crate) fn is_plain(&self) -> bool {
        self.contiguous.is_empty() && self.reserved.is_empty()
    }
}

impl Rules {
    /// The plain rules among some buffers, which get the indices of their places in the list.
    pub(crate) fn among(&self, buffers: &[usize]) -> Rules {
        if self.is_empty() {
            return Rules::default();
        }
        let highest = buffers.iter().max().map_or(0, |&buffer| buffer + 1);
        let mut places = vec![None; highest];
        for (place, &buffer) in buffers.iter().enumerate() {
            places[buffer] = Some(place);
        }
        let place = |&buffer: &usize| places.get(buffer).copied().flatten();
        let among = |set: &Vec<usize>| set.iter().filter_map(place).collect::<Vec<usize>>();
        let branches = |choice: &Vec<Vec<usize>>| choice.iter().map(among).collect();
        Rules {
            separate: self.separate.iter().map(among).collect(),
            exclusive: self.exclusive.iter().map(branches).collect(),
            ..Rules::default()
        }
    }

    /// The first index that is not below `buffers`, or stands twice in one choice or in runs.
    pub(crate) fn first_wrong(&self, buffers: usize) -> Option<usize> {
        let separate = self.separate.iter().flatten();
        let exclusive = self.exclusive.iter().flatten().flatten();
        let contiguous = self.contiguous.iter().flatten();
        let mut named = separate.chain(exclusive).chain(contiguous);
        let unknown = named.find(|&&buffer| buffer >= buffers);
        let twice = |lists: &Vec<Vec<usize>>| {
            let mut members: Vec<usize> = lists.iter().flatten().copied().collect();
            members.sort_unstable();
            let twice = members.windows(2).find(|pair| pair[0] == pair[1]);
            twice.map(|pair| pair[0])
        };
        unknown
            .copied()
            .or_else(|| self.exclusive.iter().find_map(twice))
            .or_else(|| twice(&self.contiguous))
    }
}

/// The choices and branches of each buffer.
pub(crate) struct Branches {
    /// Buffer → (choice, branch), by choice.
    of: Vec<Vec<(u32, u32)>>,
}

impl Branches {
    /// All indices of the rules must be below `buffers`.
    pub(crate) fn new(rules: &Rules, buffers: usize) -> Self {
        let mut of = vec![Vec::new(); buffers];
        for (choice, branches) in (0u32..).zip(&rules.exclusive) {
            for (branch, members) in (0u32..).zip(branches) {
                for &member in members {
                    of[member].push((choice, branch));
                }
            }
        }
        Branches { of }
    }

    /// Whether some choice puts the two buffers into different branches.
    pub(crate) fn exclude(&self, first: usize, second: usize) -> bool {
        let (mut first, mut second) = (&self.of[first][..], &self.of[second][..]);
        while let ([a, first_rest @ ..], [b, second_rest @ ..]) = (first, second) {
            if a.0 == b.0 && a.1 != b.1 {
                return true;
            }
            if a.0 <= b.0 {
                first = first_rest;
            }
            if b.0 <= a.0 {
                second = second_rest;
            }
        }
        false
    }

    /// Appends sets that cover all pairs of `members` that do not exclude each other; false when
    /// they cover others as well.
    fn split(&self, members: Vec<u32>, sets: &mut Vec<Vec<u32>>) -> bool {
        let mut all = true;
        let mut waiting = vec![members];
        let mut made = 0;
        while let Some(members) = waiting.pop() {
            let choice = self.open_choice(&members);
            match choice {
                Some((choice, branches)) if made + waiting.len() + branches.len() <= MAX_SPLIT => {
                    for &branch in branches.iter().rev() {
                        let other = |&(c, b): &(u32, u32)| c == choice && b != branch;
                        let stays = |&&m: &&u32| !self.of[m as usize].iter().any(other);
                        waiting.push(members.iter().filter(stays).copied().collect());
                    }
                }
                left => {
                    all &= left.is_none();
                    made += 1;
                    sets.push(members);
                }
            }
        }
        all
    }

    /// The first choice of which more than one branch is among the members, and those branches.
    fn open_choice(&self, members: &[u32]) -> Option<(u32, Vec<u32>)> {
        let all = members.iter().flat_map(|&m| &self.of[m as usize]);
        let mut pairs: Vec<(u32, u32)> = all.copied().collect();
        pairs.sort_unstable();
        pairs.dedup();
        let open = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0)?[0].0;
        let of_choice = pairs.iter().filter(|pair| pair.0 == open);
        Some((open, of_choice.map(|pair| pair.1).collect()))
    }
}

/// What rules make of the pieces.
pub(crate) struct Ruled {
    /// By buffer.
    pub(crate) pieces: Vec<Vec<Piece>>,
    pub(crate) sections: u32,
    /// Whether some buffers share a section that need not.
    pub(crate) coarse: bool,
}

/// The pieces of all buffers under the rules; `pieces` holds those that lifetimes alone give, none
/// for buffers of size 0.
pub(crate) fn apply(rules: &Rules, pieces: &[&[Piece]]) -> Ruled {
    let branches = Branches::new(rules, pieces.len());
    // (section, is a birth, buffer): deaths first.
    let mut events: Vec<(u32, bool, u32)> = Vec::new();
    for (buffer, pieces) in (0u32..).zip(pieces) {
        for piece in *pieces {
            events.push((piece.lower, true, buffer));
            events.push((piece.upper, false, buffer));
        }
    }
    events.sort_unstable();
    let mut ruled: Vec<Vec<Piece>> = vec![Vec::new(); pieces.len()];
    let mut sections = 0;
    let mut coarse = false;
    let mut alive: Vec<u32> = Vec::new();
    let mut sets: Vec<Vec<u32>> = Vec::new();
    let mut next = 0;
    while next < events.len() {
        let now = events[next].0;
        while let Some(&(_, birth, buffer)) = events.get(next).filter(|event| event.0 == now) {
            next += 1;
            if birth {
                alive.push(buffer);
            } else {
                alive.retain(|&other| other != buffer);
            }
        }
        coarse |= !branches.split(alive.clone(), &mut sets);
        enter(&mut sets, &mut ruled, &mut sections);
    }
    for set in &rules.separate {
        let sized = set.iter().filter(|&&buffer| !pieces[buffer].is_empty());
        let mut set: Vec<u32> = sized
            .filter_map(|&buffer| u32::try_from(buffer).ok())
            .collect();
        set.sort_unstable();
        set.dedup();
        sets.push(set);
        enter(&mut sets, &mut ruled, &mut sections);
    }
    Ruled {
        pieces: ruled,
        sections,
        coarse,
    }
}

/// Makes a section of each set with members.
fn enter(sets: &mut Vec<Vec<u32>>, ruled: &mut [Vec<Piece>], sections: &mut u32) {
    for set in sets.drain(..).filter(|set| !set.is_empty()) {
        for buffer in set {
            let pieces = &mut ruled[buffer as usize];
            match pieces.last_mut() {
                Some(last) if last.upper == *sections => last.upper += 1,
                _ => pieces.push(Piece {
                    lower: *sections,
                    upper: *sections + 1,
                }),
            }
        }
        *sections += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_split_by_branch_and_the_common_ones_are_in_each() {
        let rules = Rules {
            exclusive: vec![vec![vec![0, 1], vec![2]], vec![vec![3], vec![0]]],
            ..Rules::default()
        };
        let branches = Branches::new(&rules, 5);
        let mut sets = Vec::new();
        assert!(branches.split(vec![0, 1, 2, 3, 4], &mut sets));
        assert_eq!(sets, [vec![1, 3, 4], vec![0, 1, 4], vec![2, 3, 4]]);
        for (a, b) in (0..5).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let together = |set: &Vec<u32>| set.contains(&a) && set.contains(&b);
            let excluded = branches.exclude(a as usize, b as usize);
            assert_eq!(sets.iter().any(together), !excluded, "{a} {b}");
        }
    }

    #[test]
    fn many_choices_at_once_do_not_explode() {
        let pair = |at: usize| vec![vec![2 * at], vec![2 * at + 1]];
        let rules = Rules {
            exclusive: (0..40).map(pair).collect(),
            ..Rules::default()
        };
        let mut sets = Vec::new();
        let branches = Branches::new(&rules, 80);
        assert!(!branches.split((0..80).collect(), &mut sets));
        assert!(sets.len() <= MAX_SPLIT, "{}", sets.len());
    }
}
