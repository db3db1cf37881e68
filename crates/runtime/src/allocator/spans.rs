//! Segments of device memory, cut into spans that are held or idle.
//!
//! Idle spans keep what their last users did. Neighbours are made one only where that is the same
//! for both, so that no part waits for the users of another; an allocation may take several that
//! lie side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::clocks::Uses;

/// A run of bytes in a segment.
#[derive(Clone, Debug)]
struct Span {
    bytes: u64,
    /// `None` while somebody holds it.
    idle: Option<Uses>,
}

/// One piece of memory from the device.
#[derive(Clone, Debug)]
struct Segment {
    base: u64,
    bytes: u64,
    /// By offset; they tile the segment.
    spans: BTreeMap<u64, Span>,
}

/// Where a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// Number of the segment.
    pub(super) segment: u64,
    /// First byte in it.
    pub(super) offset: u64,
}

/// All segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    segments: BTreeMap<u64, Segment>,
    /// Number of the next segment.
    next: u64,
    /// Idle spans by size.
    idle: BTreeSet<(u64, At)>,
}

impl Spans {
    /// Adds a segment, all of it idle and used by nobody.
    pub(super) fn add(&mut self, base: u64, bytes: u64) {
        let at = At {
            segment: self.next,
            offset: 0,
        };
        self.next += 1;
        let segment = Segment {
            base,
            bytes,
            spans: BTreeMap::new(),
        };
        self.segments.insert(at.segment, segment);
        self.put(at, bytes, Some(Uses::default()));
    }

    /// The address of a span.
    pub(super) fn address(&self, at: At) -> u64 {
        let base = self.segments.get(&at.segment).map_or(0, |s| s.base);
        base.saturating_add(at.offset)
    }

    /// Takes `bytes` bytes out of what is idle and fits: of the smallest span that is large enough,
    /// or else of spans side by side. What else has used them goes along.
    pub(super) fn take(&mut self, bytes: u64, fits: impl Fn(&Uses) -> bool) -> Option<(At, Uses)> {
        let large = self.idle.range((bytes, START)..).map(|&(_, at)| at);
        let mut large = large.filter(|&at| self.uses(at).is_some_and(&fits));
        let at = large.next();
        let at = at.or_else(|| self.run(bytes, &fits))?;
        Some((at, self.carve(at, bytes)))
    }

    fn uses(&self, at: At) -> Option<&Uses> {
        let segment = self.segments.get(&at.segment)?;
        segment.spans.get(&at.offset)?.idle.as_ref()
    }

    /// The first of idle spans side by side that fit and have so many bytes together.
    fn run(&self, bytes: u64, fits: &impl Fn(&Uses) -> bool) -> Option<At> {
        self.segments.iter().find_map(|(&segment, s)| {
            let mut start = None;
            s.spans.iter().find_map(|(&offset, span)| {
                if !span.idle.as_ref().is_some_and(fits) {
                    start = None;
                    return None;
                }
                let first = *start.get_or_insert(offset);
                (offset + span.bytes - first >= bytes).then_some(At {
                    segment,
                    offset: first,
                })
            })
        })
    }

    /// Makes one held span of the bytes from `at` on, which are idle.
    fn carve(&mut self, at: At, bytes: u64) -> Uses {
        let mut all = Uses::default();
        let end = at.offset + bytes;
        let mut next = at;
        while next.offset < end {
            let Some((size, Some(uses))) = self.remove(next) else {
                break;
            };
            all.add(&uses);
            next.offset += size;
            if next.offset > end {
                let rest = At {
                    offset: end,
                    ..next
                };
                self.put(rest, next.offset - end, Some(uses));
            }
        }
        self.put(at, bytes, None);
        all
    }

    /// A held span becomes idle.
    pub(super) fn give(&mut self, at: At, uses: Uses) {
        if let Some((bytes, _)) = self.remove(at) {
            self.put(at, bytes, Some(uses));
            self.join(at);
        }
    }

    /// Makes one of an idle span and its idle neighbours that have the same users.
    fn join(&mut self, at: At) {
        let Some(segment) = self.segments.get(&at.segment) else {
            return;
        };
        let same = |offset: &u64| {
            let uses = segment.spans.get(offset).and_then(|s| s.idle.as_ref());
            uses.is_some() && uses == self.uses(at)
        };
        let before = segment.spans.range(..at.offset).next_back();
        let before = before.map(|(&offset, _)| offset).filter(same);
        let after = segment.spans.range(at.offset + 1..).next();
        let after = after.map(|(&offset, _)| offset).filter(same);
        let offsets: Vec<u64> = before.into_iter().chain([at.offset]).chain(after).collect();
        if offsets.len() < 2 {
            return;
        }
        let (mut bytes, mut uses) = (0, None);
        for &offset in &offsets {
            if let Some((size, old)) = self.remove(At { offset, ..at }) {
                bytes += size;
                uses = old;
            }
        }
        let offset = offsets[0];
        self.put(At { offset, ..at }, bytes, uses);
    }

    /// Changes what idle spans remember of their users, and makes one of those that remember the
    /// same then.
    pub(super) fn settle(&mut self, forget: impl Fn(&mut Uses)) {
        for segment in self.segments.values_mut() {
            segment
                .spans
                .values_mut()
                .filter_map(|s| s.idle.as_mut())
                .for_each(&forget);
        }
        let all: Vec<At> = self.idle.iter().map(|&(_, at)| at).collect();
        for at in all {
            // It may have become part of another one meanwhile.
            if self.uses(at).is_some() {
                self.join(at);
            }
        }
    }

    /// Takes out segments that are idle as a whole and wait for nobody; gives base and bytes of
    /// each.
    pub(super) fn release(&mut self) -> Vec<(u64, u64)> {
        let idle = |s: &Segment| {
            let mut spans = s.spans.values();
            spans.all(|span| span.idle.as_ref().is_some_and(Uses::is_empty))
        };
        let whole = self.segments.iter().filter(|(_, s)| idle(s));
        let whole: Vec<u64> = whole.map(|(&number, _)| number).collect();
        let mut released = Vec::with_capacity(whole.len());
        for number in whole {
            if let Some(segment) = self.segments.remove(&number) {
                for (&offset, span) in &segment.spans {
                    let at = At {
                        segment: number,
                        offset,
                    };
                    self.idle.remove(&(span.bytes, at));
                }
                released.push((segment.base, segment.bytes));
            }
        }
        released
    }

    /// The streams that idle memory waits for.
    pub(super) fn waits_for(&self) -> BTreeSet<usize> {
        let spans = self.segments.values().flat_map(|s| s.spans.values());
        let uses = spans.filter_map(|span| span.idle.as_ref());
        uses.flat_map(Uses::streams).collect()
    }

    fn put(&mut self, at: At, bytes: u64, idle: Option<Uses>) {
        if idle.is_some() {
            self.idle.insert((bytes, at));
        }
        if let Some(segment) = self.segments.get_mut(&at.segment) {
            segment.spans.insert(at.offset, Span { bytes, idle });
        }
    }

    fn remove(&mut self, at: At) -> Option<(u64, Option<Uses>)> {
        let segment = self.segments.get_mut(&at.segment)?;
        let span = segment.spans.remove(&at.offset)?;
        self.idle.remove(&(span.bytes, at));
        Some((span.bytes, span.idle))
    }
}

/// The first place of all.
const START: At = At {
    segment: 0,
    offset: 0,
};
