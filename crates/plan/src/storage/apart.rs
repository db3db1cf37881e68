//! Classes on several streams whose lives never meet in the schedule, and that must not share bytes
//! all the same: nothing says that the one has ended when the other begins.
//!
//! A class is held at the steps of its own life, and kept apart from each class that begins while
//! one of its accesses may still be going on, unless all accesses of the two are in order. Where
//! that are too many, the class is held until its last access has certainly ended instead.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::plan::{Life, Span};

use super::{Index, Join, Segment};
use crate::spans::{meet, normalise};

/// Classes behind one that are looked at, at least.
const LEAST_LOOKS: usize = 256;

/// Looks in all, if that is more.
const ALL_LOOKS: usize = 1 << 22;

/// Pairs in all: each is one more thing that the solver must look at.
const ALL_PAIRS: usize = 1 << 15;

/// Pairs of accesses that are looked at for two classes.
const MOST_ACCESSES: usize = 4096;

/// What classes on several streams need beside their lives.
#[derive(Default)]
pub(super) struct Apart {
    /// Pairs of roots that must not share bytes.
    pub(super) pairs: Vec<(Index, Index)>,
    /// Roots that are held until their last access has certainly ended.
    pub(super) extended: FxHashSet<Index>,
}

/// A stretch of a class's life.
struct Stretch {
    span: Span,
    until: u32,
    root: Index,
}

impl Join<'_> {
    /// The steps at which a class is held, up to the end of each access if it is extended.
    pub(super) fn life(&self, root: Index, extended: bool) -> Life {
        let held = |s: &Segment| match extended {
            true => Span {
                last: s.span.last.max(self.until(s.group)),
                ..s.span
            },
            false => s.span,
        };
        self.segments[root as usize].iter().map(held).collect()
    }

    /// Finds what must be kept apart.
    pub(super) fn apart(&mut self) -> Apart {
        let mut apart = Apart::default();
        if self.clocks.is_none() {
            return apart;
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        for (root, segments) in (0u32..).zip(&self.segments) {
            let of = |s: &Segment| Stretch {
                span: s.span,
                until: self.until(s.group),
                root,
            };
            stretches.extend(segments.iter().map(of));
        }
        let classes = self.segments.iter().filter(|s| !s.is_empty()).count();
        let looks = LEAST_LOOKS.max(ALL_LOOKS / classes.max(1));
        let most = ALL_PAIRS / classes.max(1);
        stretches.sort_by_key(|s| (s.span.first, s.root));
        let accesses = self.class_accesses();
        let mut found: FxHashSet<(Index, Index)> = FxHashSet::default();
        for one in &stretches {
            if one.until <= one.span.last || apart.extended.contains(&one.root) {
                continue;
            }
            let from = stretches.partition_point(|s| s.span.first <= one.span.last);
            let mut mine = Vec::new();
            let behind = stretches[from..].iter();
            for (looked, other) in behind
                .take_while(|s| s.span.first <= one.until)
                .filter(|s| s.root != one.root)
                .enumerate()
            {
                let pair = (one.root.min(other.root), one.root.max(other.root));
                let is_known = found.contains(&pair) || self.do_lives_meet(one.root, other.root);
                let (first, second) = (one.root as usize, other.root as usize);
                if !is_known && !self.are_in_order(&accesses[first], &accesses[second]) {
                    mine.push(pair);
                    found.insert(pair);
                }
                if looked >= looks || mine.len() > most {
                    apart.extended.insert(one.root);
                    mine.clear();
                    break;
                }
            }
            apart.pairs.extend(mine);
        }
        let extended = &apart.extended;
        let is_held = |root: &Index| extended.contains(root);
        apart.pairs.retain(|(a, b)| !(is_held(a) && is_held(b)));
        apart
    }

    /// The steps that access each class, under its root: where its life has no gaps, the first and
    /// the last of each stream are enough.
    fn class_accesses(&mut self) -> Vec<Vec<u32>> {
        let mut all: Vec<Vec<u32>> = vec![Vec::new(); self.items.len()];
        for item in 0..self.items.len() {
            let entry = &self.items[item];
            let item = super::index(item);
            if entry.group == item && entry.planned {
                let (root, _) = self.find(item);
                let steps = self.accesses.get(item as usize).into_iter().flatten();
                all[root as usize].extend(steps.copied());
            }
        }
        for (steps, segments) in all.iter_mut().zip(&self.segments) {
            steps.sort_unstable();
            steps.dedup();
            let mut life: Life = segments.iter().map(|s| s.span).collect();
            normalise(&mut life);
            if life.len() < 2 {
                self.keep_ends(steps);
            }
        }
        all
    }

    /// Keeps the first and the last of some steps on each stream, of each gear.
    fn keep_ends(&self, steps: &mut Vec<u32>) {
        let Some(clocks) = self.clocks.as_ref().filter(|_| steps.len() > 2) else {
            return;
        };
        let mut ends: FxHashMap<_, (u32, u32)> = FxHashMap::default();
        for &step in steps.iter() {
            let end = ends.entry(clocks.lane(step)).or_insert((step, step));
            end.1 = step;
        }
        steps.clear();
        steps.extend(ends.into_values().flat_map(|(first, last)| [first, last]));
        steps.sort_unstable();
        steps.dedup();
    }

    /// Whether every access of one list is in order with every one of the other; no, where that
    /// would take long to say.
    pub(super) fn are_in_order(&self, one: &[u32], other: &[u32]) -> bool {
        one.len().saturating_mul(other.len()) <= MOST_ACCESSES
            && (one.iter()).all(|&a| other.iter().all(|&b| self.is_in_order(a, b)))
    }

    fn do_lives_meet(&self, a: Index, b: Index) -> bool {
        let (few, many) = (&self.segments[a as usize], &self.segments[b as usize]);
        few.iter()
            .any(|x| many.iter().any(|y| meet(x.span, y.span)))
    }

    /// Whether one of two steps has certainly ended when the other starts, or they are one.
    fn is_in_order(&self, a: u32, b: u32) -> bool {
        let clocks = self.clocks.as_ref();
        a == b || clocks.is_none_or(|c| c.is_before(a.min(b), a.max(b)))
    }
}
