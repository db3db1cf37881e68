//! The capacity-guided dive: builds a placement from the bottom up, never backtracks, and aims at
//! a target height.
//!
//! Every buffer lies directly on the highest placed buffer that it meets in time, and the one that
//! can lie lowest comes next. No section can end below its *floor*, the lowest place left for one
//! of its unplaced buffers, plus its *load*, the sum of their sizes. So a buffer is refused where
//! placing it would lift floor plus load of some section above the target, and waits there until
//! enough of the others in that section have been placed. When all are refused the target is
//! raised by the least that lets one of them through.
//!
//! The result ends within the last target, for floor plus load of a section is never less than
//! where its next buffer will end.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

use crate::bounds;
use crate::budget::{Budget, Exhausted, Stop};
use crate::heuristics::index::TimeIndex;
use crate::instance::{Instance, Piece, align_up};
use crate::skyline::Skyline;

/// What all dives on one instance share.
pub(crate) struct Dive<'a> {
    instance: &'a Instance,
    /// Nothing placed.
    skyline: Skyline,
    /// All buffers.
    unplaced: TimeIndex,
    /// The fixed buffers, when there are any.
    fixed: Option<TimeIndex>,
    /// For each section, from the first to behind the last one of all buffers that are born before
    /// and die after it.
    reach: Vec<Piece>,
}

/// The aim of one dive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Height to aim at first, in bytes.
    pub(crate) height: u64,
    /// Give up when the target has to be raised to this height or above.
    pub(crate) give_up: u64,
}

impl<'a> Dive<'a> {
    /// Nothing placed; unless the time ends before that is made.
    pub(crate) fn new(instance: &'a Instance, stop: &Stop<'_>) -> Result<Self, Exhausted> {
        stop.look()?;
        let none = TimeIndex::new(instance);
        let is_fixed = |&index: &usize| instance.buffers()[index].offset.is_some();
        let any_fixed = (0..instance.len()).any(|index| is_fixed(&index));
        let fixed = any_fixed.then(|| {
            let mut fixed = none.clone();
            fixed.insert_all(instance, (0..instance.len()).filter(is_fixed));
            fixed
        });
        stop.look()?;
        let mut unplaced = none;
        unplaced.insert_all(instance, 0..instance.len());
        stop.look()?;
        let skyline = Skyline::new(&bounds::section_loads(instance));
        stop.look()?;
        let reach = reach(instance);
        Ok(Dive {
            instance,
            skyline,
            unplaced,
            fixed,
            reach,
        })
    }

    /// One dive: `ranked` holds the buffers that have pieces, and decides between those that can
    /// lie equally low. Returns an offset for each buffer of the instance, or `None` when it gave
    /// up.
    pub(crate) fn run(
        &self,
        ranked: &[u32],
        target: Target,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Vec<u64>>, Exhausted> {
        budget.spend((self.skyline.len() + 4 * ranked.len()) as u64)?;
        let mut run = Run::new(self, ranked, target.height);
        loop {
            budget.spend(std::mem::take(&mut run.steps))?;
            if run.next(ranked) {
                continue;
            }
            if run.waiting.is_empty() {
                return Ok(Some(run.offsets));
            }
            if run.raise() >= target.give_up {
                return Ok(None);
            }
        }
    }
}

/// For each section, the union of the hulls that contain it.
fn reach(instance: &Instance) -> Vec<Piece> {
    let sections = instance.sections();
    let mut reach: Vec<Piece> = (0u32..)
        .take(sections)
        .map(|section| Piece {
            lower: section,
            upper: section + 1,
        })
        .collect();
    for hull in (0..instance.len()).filter_map(|buffer| instance.hull(buffer)) {
        let first = &mut reach[hull.lower as usize];
        first.upper = first.upper.max(hull.upper);
        let last = &mut reach[hull.upper as usize - 1];
        last.lower = last.lower.min(hull.lower);
    }
    // What reaches farthest of all that begin before a section does so across it, too.
    for section in 1..sections {
        reach[section].upper = reach[section].upper.max(reach[section - 1].upper);
    }
    for section in (1..sections).rev() {
        reach[section - 1].lower = reach[section - 1].lower.min(reach[section].lower);
    }
    reach
}

/// A buffer that may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// In the queue: an offset that it cannot lie below. Waiting: the floor that its section would
    /// have with it.
    height: u64,
    /// Its place in the list of ranks.
    rank: u32,
}

/// The section that refuses a buffer.
struct Refusal {
    section: u32,
    /// This plus the section's load must come down to the target.
    floor: u64,
}

/// The state of one dive.
struct Run<'a> {
    dive: &'a Dive<'a>,
    skyline: Skyline,
    unplaced: TimeIndex,
    offsets: Vec<u64>,
    target: u64,
    /// The highest end so far.
    highest: u64,
    queue: BinaryHeap<Reverse<Candidate>>,
    /// Refused buffers by the section that refused them.
    waiting: BTreeMap<u32, BinaryHeap<Reverse<Candidate>>>,
    lows: Lows<'a>,
    /// For each section, the buffer that last proved its floor to be low enough.
    witness: Vec<usize>,
    steps: u64,
}

/// In [`Run::witness`]: no buffer.
const NOBODY: usize = usize::MAX;

impl<'a> Run<'a> {
    fn new(dive: &'a Dive<'a>, ranked: &[u32], target: u64) -> Self {
        let buffers = dive.instance.buffers();
        let offsets: Vec<u64> = buffers
            .iter()
            .map(|buffer| buffer.offset.unwrap_or(0))
            .collect();
        let candidates = ranked.iter().zip(0u32..).map(|(&buffer, rank)| {
            let height = offsets[buffer as usize];
            Reverse(Candidate { height, rank })
        });
        Run {
            dive,
            skyline: dive.skyline.clone(),
            unplaced: dive.unplaced.clone(),
            target,
            highest: 0,
            queue: candidates.collect(),
            waiting: BTreeMap::new(),
            lows: Lows {
                dive,
                known: offsets.iter().map(|&offset| (offset, 0)).collect(),
                placements: 1,
                steps: 0,
            },
            witness: vec![NOBODY; dive.instance.sections()],
            offsets,
            steps: 0,
        }
    }

    /// Takes the next candidate from the queue and places it, puts it back higher, or lets it
    /// wait; false when there is none.
    fn next(&mut self, ranked: &[u32]) -> bool {
        let Some(mut first) = self.queue.peek_mut() else {
            return false;
        };
        let Reverse(Candidate { height, rank }) = *first;
        let buffer = ranked[rank as usize] as usize;
        let offset = self.lows.get(buffer, &self.skyline);
        self.steps += 2 * self.skyline.depth();
        if offset > height {
            first.0.height = offset;
            return true;
        }
        PeekMut::pop(first);
        if self.is_fixed(buffer) {
            self.place(buffer, offset);
        } else if let Some(Refusal { section, floor }) = self.refusal(buffer, offset) {
            let height = floor;
            let refused = self.waiting.entry(section).or_default();
            refused.push(Reverse(Candidate { height, rank }));
        } else {
            self.place(buffer, offset);
        }
        true
    }

    fn is_fixed(&self, buffer: usize) -> bool {
        self.dive.instance.buffers()[buffer].offset.is_some()
    }

    /// The first section found whose floor plus load would exceed the target if the buffer were
    /// placed.
    fn refusal(&mut self, buffer: usize, offset: u64) -> Option<Refusal> {
        self.refusal_within(buffer, offset)
            .or_else(|| self.refusal_around(buffer, offset))
    }

    /// The same for the buffer's own sections, as if the next one could lie directly on it.
    fn refusal_within(&mut self, buffer: usize, offset: u64) -> Option<Refusal> {
        let mut refusal = None;
        let floor = offset;
        for &piece in self.dive.instance.pieces(buffer) {
            let least = (self.target + 1).saturating_sub(offset);
            self.steps += self.skyline.heavy(piece, least, |section, _| {
                refusal = Some(Refusal { section, floor });
                ControlFlow::Break(())
            });
        }
        refusal
    }

    /// The same for all sections of the buffers that it would lift.
    fn refusal_around(&mut self, buffer: usize, offset: u64) -> Option<Refusal> {
        let Run {
            dive,
            skyline,
            unplaced,
            lows,
            witness,
            ..
        } = self;
        let instance = dive.instance;
        let size = instance.buffers()[buffer].size;
        let end = offset + size;
        let highest = self.highest.max(end);
        let pieces = instance.pieces(buffer);
        let hull = instance.hull(buffer)?;
        let around = Piece {
            lower: dive.reach[hull.lower as usize].lower,
            upper: dive.reach[hull.upper as usize - 1].upper,
        };
        let mut refusal = None;
        let mut steps = 0;
        // No floor is above the highest end but for alignment, so lighter sections are safe.
        let least = (self.target + 1).saturating_sub(highest).max(1);
        let mut visit = |section: u32, load: u64| {
            if refusal.is_some() {
                return ControlFlow::Break(());
            }
            let allowed = self.target.saturating_sub(load);
            if highest <= allowed {
                return ControlFlow::Continue(());
            }
            let mut lifted = |other: usize| {
                let low = lows.get(other, skyline);
                if low <= allowed && instance.meet(buffer, other) {
                    low.max(end)
                } else {
                    low
                }
            };
            let proof = &mut witness[section as usize];
            if *proof != NOBODY && *proof != buffer && lifted(*proof) <= allowed {
                return ControlFlow::Continue(());
            }
            let mut floor = u64::MAX;
            let here = Piece {
                lower: section,
                upper: section + 1,
            };
            steps += unplaced.overlapping(here, |other| {
                floor = floor.min(lifted(other));
                if floor > allowed {
                    return ControlFlow::Continue(());
                }
                *proof = other;
                ControlFlow::Break(())
            });
            if floor <= allowed {
                return ControlFlow::Continue(());
            }
            refusal = Some(Refusal { section, floor });
            ControlFlow::Break(())
        };
        // Between the pieces and on both sides of them.
        let mut begin = around.lower;
        let mut seen = 0;
        for &piece in pieces {
            let gap = Piece {
                lower: begin,
                upper: piece.lower,
            };
            seen += skyline.heavy(gap, least, &mut visit);
            begin = piece.upper;
        }
        let rest = Piece {
            lower: begin,
            upper: around.upper,
        };
        seen += skyline.heavy(rest, least, &mut visit);
        self.steps += seen + steps + std::mem::take(&mut lows.steps);
        refusal
    }

    fn place(&mut self, buffer: usize, offset: u64) {
        let instance = self.dive.instance;
        let size = instance.buffers()[buffer].size;
        self.offsets[buffer] = offset;
        self.highest = self.highest.max(offset + size);
        self.lows.placed(buffer);
        self.unplaced.remove(instance, buffer);
        for &piece in instance.pieces(buffer) {
            self.steps += 3 * self.skyline.depth();
            self.skyline.place(piece, offset + size, size);
        }
        for &piece in instance.pieces(buffer) {
            self.wake(piece);
        }
    }

    /// Moves the candidates that the sections of `piece` no longer refuse back to the queue.
    fn wake(&mut self, piece: Piece) {
        let mut emptied = Vec::new();
        for (&section, refused) in self.waiting.range_mut(piece.lower..piece.upper) {
            self.steps += self.skyline.depth();
            let room = self.target.saturating_sub(self.skyline.load(section));
            while let Some(&Reverse(candidate)) = refused.peek()
                && candidate.height <= room
            {
                refused.pop();
                // The queue asks for its lowest offset.
                let height = 0;
                self.queue.push(Reverse(Candidate {
                    height,
                    ..candidate
                }));
            }
            if refused.is_empty() {
                emptied.push(section);
            }
        }
        for section in emptied {
            self.waiting.remove(&section);
        }
    }

    /// Raises the target by the least that lets a waiting candidate through; returns the target.
    fn raise(&mut self) -> u64 {
        let needs = self.waiting.iter().filter_map(|(&section, refused)| {
            let Reverse(candidate) = refused.peek()?;
            Some(candidate.height + self.skyline.load(section))
        });
        self.target = needs.min().unwrap_or(self.target);
        self.steps += self.skyline.depth() * self.waiting.len() as u64;
        self.wake(Piece {
            lower: 0,
            upper: u32::MAX,
        });
        self.target
    }
}

/// The lowest offsets that unplaced buffers can still have, remembered from one placement to the
/// next.
struct Lows<'a> {
    dive: &'a Dive<'a>,
    /// (offset, number of placements when it was found)
    known: Vec<(u64, u32)>,
    placements: u32,
    steps: u64,
}

/// In [`Lows::known`]: the buffer is placed.
const PLACED: u64 = u64::MAX;

impl Lows<'_> {
    fn placed(&mut self, buffer: usize) {
        self.known[buffer].0 = PLACED;
        self.placements += 1;
    }

    /// The lowest offset that a buffer can have; [`PLACED`] if it has its own already.
    fn get(&mut self, buffer: usize, skyline: &Skyline) -> u64 {
        let (low, when) = self.known[buffer];
        let stated = &self.dive.instance.buffers()[buffer];
        self.steps += 1;
        if low == PLACED || when == self.placements || stated.offset.is_some() {
            return low;
        }
        let pieces = self.dive.instance.pieces(buffer);
        self.steps += skyline.depth() * pieces.len() as u64;
        let tops = pieces.iter().map(|&piece| skyline.top(piece));
        let low = align_up(tops.max().unwrap_or(0), stated.alignment);
        let low = self.above_fixed(buffer, low);
        self.known[buffer] = (low, self.placements);
        low
    }

    /// The lowest aligned offset from `offset` on at which no fixed buffer is in the way.
    fn above_fixed(&mut self, buffer: usize, mut offset: u64) -> u64 {
        let Some(fixed) = &self.dive.fixed else {
            return offset;
        };
        let buffers = self.dive.instance.buffers();
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for &piece in self.dive.instance.pieces(buffer) {
            self.steps += fixed.overlapping(piece, |other| {
                let start = buffers[other].offset.unwrap_or(0);
                taken.push((start, start + buffers[other].size));
                ControlFlow::Continue(())
            });
        }
        taken.sort_unstable();
        for (start, end) in taken {
            if start < offset + buffers[buffer].size && offset < end {
                offset = align_up(end, buffers[buffer].alignment);
            }
        }
        offset
    }
}
