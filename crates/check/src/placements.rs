//! Intervals alone: no two things that are held at the same step share a byte.
//!
//! One sweep over time keeps the intervals of bytes that are held, which are disjoint as long as
//! nothing is wrong; so what starts needs a look at its two neighbours only. O(n log n) in the
//! number of spans.

use std::collections::BTreeMap;
use tenure_graph::StorageId;
use tenure_graph::plan::Span;

use crate::findings::MOST_VIOLATIONS;
use crate::violation::{Memory, Named, Region, Violation};

/// One piece of memory and when it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// Bytes.
    pub size: u64,
    /// The offset must be a multiple of this, a power of two.
    pub align: u64,
    /// When it is held: ascending, disjoint spans.
    pub life: &'a [Span],
    /// First byte.
    pub offset: u64,
    /// Which arena it lies in.
    pub arena: u32,
}

/// Checks placements that come without a graph: alignment, lives, and that no two that are held
/// at the same step share a byte. Returns each arena with the bytes that it needs.
///
/// # Errors
/// What is wrong; a placement is named by its position in the list, as a storage.
///
/// ```
/// use tenure_check::{Placement, check_placements};
/// use tenure_graph::plan::Span;
///
/// let early = [Span { first: 0, last: 3 }];
/// let late = [Span { first: 4, last: 5 }];
/// let at = |life, offset| Placement { size: 64, align: 64, life, offset, arena: 0 };
/// assert_eq!(check_placements(&[at(&early, 0), at(&late, 0)]), Ok(vec![(0, 64)]));
/// assert!(check_placements(&[at(&early, 0), at(&early, 0)]).is_err());
/// ```
pub fn check_placements(placements: &[Placement<'_>]) -> Result<Vec<(u32, u64)>, Vec<Violation>> {
    let mut wrong = Vec::new();
    let mut sizes = BTreeMap::new();
    for (i, p) in placements.iter().enumerate() {
        let storage = name(i);
        if !p.align.is_power_of_two() {
            wrong.push(Violation::Alignment {
                what: storage.name,
                align: p.align,
                least: 1,
            });
        } else if !p.offset.is_multiple_of(p.align) {
            wrong.push(Violation::Misaligned {
                what: storage.name,
                offset: p.offset,
                align: p.align,
            });
        } else if !is_life(p.life, u64::MAX) {
            wrong.push(Violation::BadLife {
                storage,
                steps: u64::MAX,
            });
        } else if let Some(end) = p.offset.checked_add(p.size) {
            let size = sizes.entry(p.arena).or_insert(0);
            *size = end.max(*size);
        } else {
            wrong.push(Violation::StorageOutsideArena {
                storage,
                arena: p.arena,
                offset: p.offset,
                size: p.size,
                arena_size: u64::MAX,
            });
        }
        if wrong.len() >= MOST_VIOLATIONS {
            break;
        }
    }
    if wrong.is_empty() {
        wrong.extend(clashes(placements).into_iter().map(|c| c.violation(name)));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(sizes.into_iter().collect())
}

fn name(index: usize) -> Named<StorageId> {
    let id = StorageId::from_u32(u32::try_from(index).unwrap_or(u32::MAX - 1));
    let name = format!("storage {id}");
    Named { id, name }
}

/// Whether a life is made of ascending, disjoint spans within `steps` steps.
pub(crate) fn is_life(life: &[Span], steps: u64) -> bool {
    life.iter()
        .all(|s| s.first <= s.last && u64::from(s.last) < steps)
        && life.windows(2).all(|pair| pair[0].last < pair[1].first)
}

/// The span of a life that holds a step.
pub(crate) fn span_at(life: &[Span], step: u32) -> Option<Span> {
    let span = life.get(life.partition_point(|s| s.last < step));
    span.copied().filter(|s| s.first <= step)
}

/// Two placements that are held at one step and share bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clash {
    first: usize,
    second: usize,
    region: Region,
    step: u32,
}

impl Clash {
    pub(crate) fn violation(self, name: impl Fn(usize) -> Named<StorageId>) -> Violation {
        Violation::LivesOverlap {
            first: name(self.first),
            second: name(self.second),
            region: self.region,
            step: self.step,
        }
    }
}

/// The clashes of placements whose lives and ends are known to be good. A placement that clashes
/// takes no further part in that span, so there are not more clashes than spans.
pub(crate) fn clashes(placements: &[Placement<'_>]) -> Vec<Clash> {
    // Ends sort before starts at the same time, because a span holds its last step wholly.
    let mut events = Vec::new();
    for (i, p) in placements.iter().enumerate() {
        if p.size > 0 {
            for span in p.life {
                events.push((p.arena, u64::from(span.first), true, i));
                events.push((p.arena, u64::from(span.last) + 1, false, i));
            }
        }
    }
    events.sort_unstable();
    let mut found = Vec::new();
    // Intervals that are held now: first byte → (first byte after it, placement). All held
    // intervals of an arena end before the events of the next arena begin.
    let mut held: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (arena, time, starts, i) in events {
        let p = &placements[i];
        let (start, end) = (p.offset, p.offset.saturating_add(p.size));
        if !starts {
            if held.get(&start).is_some_and(|&(_, owner)| owner == i) {
                held.remove(&start);
            }
            continue;
        }
        // Held intervals are disjoint, so the last that starts before `end` is the last that
        // could reach into this one.
        let other = held.range(..end).next_back();
        if let Some((&at, &(until, owner))) = other.filter(|(_, (until, _))| *until > start) {
            found.push(Clash {
                first: owner,
                second: i,
                region: Region {
                    memory: Memory::Arena(arena),
                    start: start.max(at),
                    end: end.min(until),
                },
                step: u32::try_from(time).unwrap_or(u32::MAX),
            });
            if found.len() >= MOST_VIOLATIONS {
                break;
            }
        } else {
            held.insert(start, (end, i));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_looking_at_all_pairs() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..2000 {
            let lives: Vec<Vec<Span>> = (0..rng.usize(1..7))
                .map(|_| {
                    let first = rng.u32(0..8);
                    let last = first + rng.u32(0..4);
                    let mut life = vec![Span { first, last }];
                    if rng.bool() {
                        let first = last + rng.u32(1..4);
                        life.push(Span { first, last: first });
                    }
                    life
                })
                .collect();
            let placements: Vec<Placement<'_>> = lives
                .iter()
                .map(|life| Placement {
                    size: rng.u64(0..4),
                    align: 1,
                    life,
                    offset: rng.u64(0..12),
                    arena: rng.u32(0..2),
                })
                .collect();
            let meet = |a: &Placement<'_>, b: &Placement<'_>| {
                a.arena == b.arena
                    && a.offset.max(b.offset) < (a.offset + a.size).min(b.offset + b.size)
                    && a.life.iter().any(|s| {
                        b.life
                            .iter()
                            .any(|t| s.first.max(t.first) <= s.last.min(t.last))
                    })
            };
            let expected = placements
                .iter()
                .enumerate()
                .all(|(i, a)| placements[..i].iter().all(|b| !meet(a, b)));
            assert_eq!(
                check_placements(&placements).is_ok(),
                expected,
                "{placements:?}"
            );
            *(if expected { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 200 && bad > 200, "{good} good, {bad} bad");
    }

    #[test]
    fn says_what_is_wrong() {
        let life = [Span { first: 0, last: 1 }];
        let backwards = [Span { first: 1, last: 0 }];
        let good = Placement {
            size: 8,
            align: 8,
            life: &life,
            offset: 8,
            arena: 0,
        };
        let code = |p: Placement<'_>| check_placements(&[p]).map_err(|v| v[0].code());
        assert_eq!(code(good), Ok(vec![(0, 16)]));
        assert_eq!(code(Placement { align: 3, ..good }), Err("T002"));
        assert_eq!(code(Placement { offset: 4, ..good }), Err("T027"));
        assert_eq!(
            code(Placement {
                size: u64::MAX,
                ..good
            }),
            Err("T026")
        );
        assert_eq!(
            code(Placement {
                life: &backwards,
                ..good
            }),
            Err("T030")
        );
    }
}
