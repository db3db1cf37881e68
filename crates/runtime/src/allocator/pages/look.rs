//! What can be asked of pages and spans. Nothing here changes any.

use std::ops::Range;

use super::{NONE, PageError, PagePool, PageStats, SpanId};

impl PagePool {
    /// Bytes that [`recycle`](Self::recycle) would give back.
    #[must_use]
    pub fn recyclable(&self, stamp: u64) -> u64 {
        let pages = self.whole_roots(stamp).map(|(_, s)| s.pages);
        pages.sum::<u64>().saturating_mul(self.rules.page)
    }

    /// The held spans of each root that has some: the roots with the fewest held pages first, and of
    /// as many the one with the lowest address.
    #[must_use]
    pub fn held_by_root(&self) -> Vec<Vec<SpanId>> {
        let mut roots: Vec<(u64, u64, Vec<SpanId>)> = Vec::new();
        for (first, head) in (0u32..).zip(&self.spans) {
            if head.pages == 0 || head.before != NONE {
                continue;
            }
            let (mut pages, mut held) = (0, Vec::new());
            let mut index = first;
            while let Some(span) = self.spans.get(index as usize) {
                if span.holders > 0 {
                    pages += span.pages;
                    let generation = span.generation;
                    held.push(SpanId { index, generation });
                }
                index = span.after;
            }
            if !held.is_empty() {
                roots.push((pages, head.address, held));
            }
        }
        roots.sort();
        roots.into_iter().map(|(_, _, held)| held).collect()
    }

    /// Address and bytes of a held span.
    ///
    /// # Errors
    /// [`PageError::NotHeld`].
    pub fn range(&self, id: SpanId) -> Result<Range<u64>, PageError> {
        self.range_and_stamp(id).map(|held| held.0)
    }

    /// Address and bytes of a held span, and until when it was used before it was handed out.
    ///
    /// # Errors
    /// [`PageError::NotHeld`].
    #[inline]
    pub fn range_and_stamp(&self, id: SpanId) -> Result<(Range<u64>, u64), PageError> {
        let span = self.held(id)?;
        Ok((self.bytes_of(span), span.stamp))
    }

    /// Addresses of all spans, whether they are held, and until when they were used, in no certain
    /// order. For reports and tests.
    pub fn spans(&self) -> impl Iterator<Item = (Range<u64>, bool, u64)> {
        let spans = self.spans.iter().filter(|s| s.pages > 0);
        spans.map(|s| (self.bytes_of(s), s.holders > 0, s.stamp))
    }

    /// How many idle spans of so many pages there are.
    #[must_use]
    pub fn idle_of(&self, pages: u64) -> u64 {
        let class = self.class_of.get(&pages);
        class.map_or(0, |&class| self.classes[class as usize].count)
    }

    /// Bytes of the largest idle span.
    #[must_use]
    pub fn largest_idle(&self) -> u64 {
        let mut sizes = self.sizes.iter().rev();
        let largest = sizes.find(|&&size| self.idle_of(size) > 0);
        largest.map_or(0, |size| size * self.rules.page)
    }

    /// Bytes that are taken from below.
    #[must_use]
    pub fn from_below(&self) -> u64 {
        self.from_below
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.rules.page
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        self.stats
    }
}
