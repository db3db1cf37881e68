//! The page allocator: pieces of memory from below, cut into spans of whole pages.
//!
//! It is one layer; layers of it lie on one another, and what is below the lowest is the device
//! ([`Source`]). A piece from below is a *root*. The spans of a root tile it in address order; no
//! two idle neighbours stay apart. Idle spans are kept in lists by their number of pages, of which
//! the one freed last is taken first.
//!
//! | asked for k pages | what is done |
//! | --- | --- |
//! | an idle span of k pages | it is taken |
//! | a larger one, the smallest there is | its last k pages are cut off ([`Split`] says when) |
//! | none | a piece of k pages is taken from below, as long as the threshold is kept |
//!
//! A span remembers until when it is used: a *stamp* of the stream that the layer belongs to. The
//! layer above decides what stamps mean; a merged span has the later one of its parts.

mod look;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Where a layer takes its memory from, and gives it back to.
pub trait Source {
    /// Takes a piece of so many bytes; `None` when there is none.
    fn take(&mut self, bytes: u64) -> Option<Piece>;

    /// Gives back a piece that was taken, used until `stamp`.
    fn give_back(&mut self, piece: Piece, stamp: u64);
}

/// Memory that one layer has from the one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of its first byte.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// What it is in the layer below; of no meaning to the layer that has it.
    pub below: SpanId,
}

/// A span that was handed out. It stands for nothing once the span was handed out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId {
    index: u32,
    generation: u32,
}

/// When a span that is larger than what is asked for is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Never: only spans of the very size are taken.
    Never,
    /// Always.
    Always,
    /// A root that is not cut yet is cut only when the requests that would have cut it add up to
    /// more than so many hundredths of it, so that small requests do not spoil large roots.
    Delayed(u64),
}

/// How a layer takes and cuts memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRules {
    /// Bytes of a page; 0 counts as 1.
    pub page: u64,
    /// Most bytes that are asked for at once. It takes no more than so many from below as long as
    /// it has idle memory that could be given back first.
    pub threshold: Option<u64>,
    /// The least that is taken from below at once, in bytes.
    pub least_piece: u64,
    /// When larger spans are cut.
    pub split: Split,
}

impl Default for PageRules {
    /// Pages of 64 KiB, pieces of what is asked for, cuts that wait for 1 %.
    fn default() -> Self {
        PageRules {
            page: 1 << 16,
            threshold: None,
            least_piece: 0,
            split: Split::Delayed(1),
        }
    }
}

/// What the page allocator refuses. It is then as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// There is no memory.
    #[error(
        "{bytes} bytes cannot be had: {from_below} are taken from below, {idle} of them idle; give idle memory back, or ask for less"
    )]
    NoMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes taken from below.
        from_below: u64,
        /// Idle bytes.
        idle: u64,
    },
    /// More is asked for at once than the threshold allows.
    #[error("{bytes} bytes are more than the threshold of {threshold}: ask for less, or raise it")]
    OverThreshold {
        /// Bytes asked for.
        bytes: u64,
        /// The threshold.
        threshold: u64,
    },
    /// The span is not held: it was freed, or belongs to another layer.
    #[error("the span is not held: it was freed before, or is of another layer")]
    NotHeld,
    /// The span is a part of a root, and a root can only be handed over as a whole.
    #[error("the span is a part of a larger piece and cannot be handed over: copy it")]
    Part,
    /// Spans are held when everything is to be given back.
    #[error("{spans} spans are still held: free them first")]
    Leak {
        /// How many.
        spans: u64,
    },
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Span {
    generation: u32,
    /// Holders; 0 is idle.
    holders: u32,
    address: u64,
    pages: u64,
    stamp: u64,
    /// Neighbours in the root.
    before: u32,
    after: u32,
    /// The class of its size.
    class: u32,
    /// Neighbours in the list of idle spans of this size.
    newer: u32,
    older: u32,
    /// Of the first span of a root: what the root is below.
    below: SpanId,
    /// Of the first span of a root: its pages.
    root_pages: u64,
    /// Of the first span of a root: pages that were asked for in vain while it was whole.
    asked: u64,
}

impl Span {
    fn is_root(&self) -> bool {
        self.before == NONE && self.after == NONE
    }
}

/// The parts of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootParts {
    /// What was idle, and is held now.
    pub idle: Vec<SpanId>,
    /// How many parts were held before.
    pub others: usize,
}

/// Idle spans of one size.
#[derive(Clone, Copy, Debug)]
struct Class {
    newest: u32,
    count: u64,
    /// Whether the size is in [`PagePool::sizes`].
    sorted: bool,
}

/// Counters of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Spans that nobody holds.
    pub idle_spans: u64,
    /// Their pages.
    pub idle_pages: u64,
    /// Spans that somebody holds.
    pub held_spans: u64,
    /// Their pages.
    pub held_pages: u64,
}

/// One layer.
#[derive(Clone, Debug)]
pub struct PagePool {
    rules: PageRules,
    spans: Vec<Span>,
    /// Places in `spans` that are nobody's.
    vacant: Vec<u32>,
    classes: Vec<Class>,
    /// Places in `classes`, by number of pages.
    class_of: FxHashMap<u64, u32>,
    /// Sizes of which there may be idle spans. A size stays here when its last span is taken, until
    /// a search comes by, so that a span that is taken and freed in turns costs no search tree.
    sizes: BTreeSet<u64>,
    /// Bytes taken from below.
    from_below: u64,
    stats: PageStats,
}

impl PagePool {
    /// A layer that has taken nothing yet.
    #[must_use]
    pub fn new(rules: PageRules) -> Self {
        let page = rules.page.max(1);
        PagePool {
            rules: PageRules { page, ..rules },
            spans: Vec::new(),
            vacant: Vec::new(),
            classes: Vec::new(),
            class_of: FxHashMap::default(),
            sizes: BTreeSet::new(),
            from_below: 0,
            stats: PageStats::default(),
        }
    }

    /// Pages for so many bytes: at least one.
    fn pages(&self, bytes: u64) -> u64 {
        let page = self.rules.page;
        if page.is_power_of_two() {
            let whole = bytes >> page.trailing_zeros();
            (whole + u64::from(bytes & (page - 1) != 0)).max(1)
        } else {
            bytes.div_ceil(page).max(1)
        }
    }

    /// Hands out memory, from what is idle or else from below.
    ///
    /// # Errors
    /// [`PageError::NoMemory`], [`PageError::OverThreshold`].
    pub fn alloc(&mut self, bytes: u64, below: &mut dyn Source) -> Result<SpanId, PageError> {
        match self.take(bytes) {
            Some(span) => Ok(span),
            None => self.grow(bytes, below),
        }
    }

    fn over(&self, bytes: u64) -> Option<u64> {
        self.rules.threshold.filter(|&threshold| bytes > threshold)
    }

    fn no_memory(&self, bytes: u64) -> PageError {
        PageError::NoMemory {
            bytes,
            from_below: self.from_below,
            idle: self.stats.idle_pages.saturating_mul(self.rules.page),
        }
    }

    /// Hands out idle memory, as the rules say.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Option<SpanId> {
        if self.over(bytes).is_some() {
            return None;
        }
        let pages = self.pages(bytes);
        if let Some(&class) = self.class_of.get(&pages) {
            let newest = self.classes[class as usize].newest;
            if newest != NONE {
                return Some(self.hold(newest));
            }
        }
        self.take_larger(pages)
    }

    /// Hands out a part of an idle span of more pages, as the rules say.
    fn take_larger(&mut self, pages: u64) -> Option<SpanId> {
        if self.rules.split == Split::Never {
            return None;
        }
        let index = self.smallest_above(pages)?;
        if let Split::Delayed(percent) = self.rules.split
            && self.spans[index as usize].is_root()
        {
            let span = &mut self.spans[index as usize];
            span.asked = span.asked.saturating_add(pages);
            let enough = u128::from(span.root_pages) * u128::from(percent) / 100;
            if u128::from(span.asked) <= enough {
                return None;
            }
        }
        Some(self.cut(index, pages))
    }

    /// The newest of the smallest idle spans of more than `pages` pages.
    fn smallest_above(&mut self, pages: u64) -> Option<u32> {
        loop {
            let next = pages.checked_add(1)?;
            let size = *self.sizes.range(next..).next()?;
            let class = self.class(size) as usize;
            let newest = self.classes[class].newest;
            if newest != NONE {
                return Some(newest);
            }
            self.sizes.remove(&size);
            self.classes[class].sorted = false;
        }
    }

    /// Hands out idle memory that was used until `stamp` at the latest, of the smallest span that
    /// is large enough; a larger one is cut, whatever the rules say of waiting. Nothing is taken
    /// from below.
    pub fn take_idle(&mut self, bytes: u64, stamp: u64) -> Option<SpanId> {
        let pages = self.pages(bytes);
        let mut sizes = self.sizes.range(pages..);
        let index = sizes.find_map(|size| {
            let class = *self.class_of.get(size)?;
            let mut index = self.classes[class as usize].newest;
            while index != NONE && self.spans[index as usize].stamp > stamp {
                index = self.spans[index as usize].older;
            }
            (index != NONE).then_some(index)
        })?;
        let exact = self.spans[index as usize].pages == pages;
        match self.rules.split {
            _ if exact => Some(self.hold(index)),
            Split::Never => None,
            Split::Always | Split::Delayed(_) => Some(self.cut(index, pages)),
        }
    }

    /// Takes a piece from below, and hands out its last pages.
    ///
    /// # Errors
    /// [`PageError::NoMemory`], [`PageError::OverThreshold`].
    pub fn grow(&mut self, bytes: u64, below: &mut dyn Source) -> Result<SpanId, PageError> {
        if let Some(threshold) = self.over(bytes) {
            return Err(PageError::OverThreshold { bytes, threshold });
        }
        let grown = self.grow_pages(self.pages(bytes), below);
        grown.ok_or_else(|| self.no_memory(bytes))
    }

    fn grow_pages(&mut self, pages: u64, below: &mut dyn Source) -> Option<SpanId> {
        let page = self.rules.page;
        let wanted = pages.checked_mul(page)?;
        if let Some(threshold) = self.rules.threshold
            && self.stats.idle_spans > 0
            && self.from_below.checked_add(wanted)? > threshold
        {
            return None;
        }
        let least = self.rules.least_piece.div_ceil(page);
        let bytes = pages.max(least).checked_mul(page)?;
        let total = self.from_below.checked_add(bytes)?;
        // Before the piece is taken, so that it is not lost when there is no number for a span.
        let index = self.vacancy()?;
        let Some(piece) = below.take(bytes) else {
            self.vacant.push(index);
            return None;
        };
        self.from_below = total;
        let root_pages = bytes / page;
        let class = self.class(root_pages);
        let span = &mut self.spans[index as usize];
        *span = Span {
            generation: span.generation,
            address: piece.address,
            pages: root_pages,
            class,
            below: piece.below,
            root_pages,
            ..VACANT
        };
        self.list(index);
        Some(if root_pages > pages {
            self.cut(index, pages)
        } else {
            self.hold(index)
        })
    }

    /// A place in `spans`.
    fn vacancy(&mut self) -> Option<u32> {
        if let Some(index) = self.vacant.pop() {
            return Some(index);
        }
        let index = u32::try_from(self.spans.len()).ok()?;
        if index == NONE {
            return None;
        }
        self.spans.push(VACANT);
        Some(index)
    }

    /// The last `pages` pages of an idle span that has more are held from now on.
    fn cut(&mut self, index: u32, pages: u64) -> SpanId {
        let Some(tail) = self.vacancy() else {
            // So many spans that there is no number for another: the whole serves as well.
            return self.hold(index);
        };
        self.unlist(index);
        let left = self.spans[index as usize].pages - pages;
        let class = self.class(left);
        let head = &mut self.spans[index as usize];
        (head.pages, head.class) = (left, class);
        let class = self.class(pages);
        let head = &mut self.spans[index as usize];
        let after = head.after;
        head.after = tail;
        let part = Span {
            address: head.address + head.pages * self.rules.page,
            pages,
            class,
            stamp: head.stamp,
            before: index,
            after,
            ..VACANT
        };
        self.list(index);
        let span = &mut self.spans[tail as usize];
        *span = Span {
            generation: span.generation,
            ..part
        };
        if after != NONE {
            self.spans[after as usize].before = tail;
        }
        self.list(tail);
        self.hold(tail)
    }

    /// An idle span is held from now on.
    #[inline]
    fn hold(&mut self, index: u32) -> SpanId {
        self.unlist(index);
        let span = &mut self.spans[index as usize];
        span.holders = 1;
        span.generation = span.generation.wrapping_add(1);
        self.stats.held_spans += 1;
        self.stats.held_pages += span.pages;
        SpanId {
            index,
            generation: span.generation,
        }
    }

    /// The class of a number of pages.
    fn class(&mut self, pages: u64) -> u32 {
        if let Some(&class) = self.class_of.get(&pages) {
            return class;
        }
        if self.classes.len() > 64 + 2 * self.spans.len() {
            self.drop_empty_classes();
        }
        // There are fewer spans than a u32 counts, and each class but the last 64 is of one.
        let class = u32::try_from(self.classes.len()).unwrap_or(NONE);
        self.class_of.insert(pages, class);
        self.classes.push(Class {
            newest: NONE,
            count: 0,
            sorted: false,
        });
        class
    }

    /// Forgets the sizes that no span has: a program that asks for ever new ones takes no more
    /// memory for them than for its spans.
    fn drop_empty_classes(&mut self) {
        let mut places = vec![NONE; self.classes.len()];
        let old = std::mem::take(&mut self.classes);
        self.class_of.clear();
        for span in self.spans.iter_mut().filter(|s| s.pages > 0) {
            let place = &mut places[span.class as usize];
            if *place == NONE {
                *place = u32::try_from(self.classes.len()).unwrap_or(NONE);
                self.classes.push(old[span.class as usize]);
                self.class_of.insert(span.pages, *place);
            }
            span.class = *place;
        }
        self.sizes.retain(|size| self.class_of.contains_key(size));
    }

    #[inline]
    fn list(&mut self, index: u32) {
        let Span { pages, class, .. } = self.spans[index as usize];
        let class = &mut self.classes[class as usize];
        let older = class.newest;
        class.newest = index;
        class.count += 1;
        if !class.sorted {
            class.sorted = true;
            self.sizes.insert(pages);
        }
        if older != NONE {
            self.spans[older as usize].newer = index;
        }
        let span = &mut self.spans[index as usize];
        span.older = older;
        span.newer = NONE;
        self.stats.idle_spans += 1;
        self.stats.idle_pages += pages;
    }

    #[inline]
    fn unlist(&mut self, index: u32) {
        let Span {
            older,
            newer,
            class,
            pages,
            ..
        } = self.spans[index as usize];
        if older != NONE {
            self.spans[older as usize].newer = newer;
        }
        if newer != NONE {
            self.spans[newer as usize].older = older;
        }
        let class = &mut self.classes[class as usize];
        class.count -= 1;
        if class.newest == index {
            class.newest = older;
        }
        self.stats.idle_spans -= 1;
        self.stats.idle_pages -= pages;
    }

    #[inline]
    fn held(&self, id: SpanId) -> Result<&Span, PageError> {
        let span = self.spans.get(id.index as usize);
        let span = span.filter(|s| s.generation == id.generation && s.holders > 0);
        span.ok_or(PageError::NotHeld)
    }

    /// One holder more.
    ///
    /// # Errors
    /// [`PageError::NotHeld`], also when there are as many holders as can be counted.
    pub fn share(&mut self, id: SpanId) -> Result<(), PageError> {
        let more = self.held(id)?.holders.checked_add(1);
        self.spans[id.index as usize].holders = more.ok_or(PageError::NotHeld)?;
        Ok(())
    }

    /// One holder less. When it was the last, the span is idle and used until `stamp`, and one with
    /// its idle neighbours.
    ///
    /// # Errors
    /// [`PageError::NotHeld`].
    #[inline]
    pub fn free(&mut self, id: SpanId, stamp: u64) -> Result<(), PageError> {
        self.held(id)?;
        let index = id.index;
        let span = &mut self.spans[index as usize];
        span.holders -= 1;
        span.stamp = span.stamp.max(stamp);
        if span.holders > 0 {
            return Ok(());
        }
        self.stats.held_spans -= 1;
        self.stats.held_pages -= span.pages;
        let (before, after) = (span.before, span.after);
        self.list(index);
        if after != NONE && self.spans[after as usize].holders == 0 {
            self.join(index, after);
        }
        if before != NONE && self.spans[before as usize].holders == 0 {
            self.join(before, index);
        }
        Ok(())
    }

    /// Makes one of two idle neighbours; the first stays.
    fn join(&mut self, first: u32, second: u32) {
        self.unlist(first);
        self.unlist(second);
        let part = self.spans[second as usize];
        let pages = self.spans[first as usize].pages + part.pages;
        let class = self.class(pages);
        let span = &mut self.spans[first as usize];
        (span.pages, span.class) = (pages, class);
        span.stamp = span.stamp.max(part.stamp);
        span.after = part.after;
        if span.is_root() {
            span.asked = 0;
        }
        if part.after != NONE {
            self.spans[part.after as usize].before = first;
        }
        self.retire(second);
        self.list(first);
    }

    /// A place in `spans` is nobody's from now on.
    fn retire(&mut self, index: u32) {
        let span = &mut self.spans[index as usize];
        *span = Span {
            generation: span.generation.wrapping_add(1),
            ..VACANT
        };
        self.vacant.push(index);
    }

    /// The idle roots that are whole and were used until `stamp` at the latest.
    fn whole_roots(&self, stamp: u64) -> impl Iterator<Item = (u32, &Span)> {
        let spans = (0u32..).zip(&self.spans);
        spans.filter(move |(_, s)| s.pages > 0 && s.holders == 0 && s.is_root() && s.stamp <= stamp)
    }

    /// Gives back the roots that are idle as a whole and were used until `stamp` at the latest.
    /// Returns how many bytes that were.
    pub fn recycle(&mut self, stamp: u64, below: &mut dyn Source) -> u64 {
        let roots: Vec<u32> = self.whole_roots(stamp).map(|(index, _)| index).collect();
        let before = self.from_below;
        for index in roots {
            self.unlist(index);
            let span = self.spans[index as usize];
            let piece = self.forget(index);
            below.give_back(piece, span.stamp);
        }
        before - self.from_below
    }

    /// A root is none of this layer's from now on.
    fn forget(&mut self, index: u32) -> Piece {
        let span = &self.spans[index as usize];
        let piece = Piece {
            address: span.address,
            bytes: span.root_pages * self.rules.page,
            below: span.below,
        };
        self.from_below -= piece.bytes;
        self.retire(index);
        piece
    }

    /// Holds what is idle in the root of a held span, part by part, and counts what else is held.
    ///
    /// # Errors
    /// [`PageError::NotHeld`].
    pub fn hold_idle_of_root(&mut self, id: SpanId) -> Result<RootParts, PageError> {
        self.held(id)?;
        let mut index = id.index;
        while self.spans[index as usize].before != NONE {
            index = self.spans[index as usize].before;
        }
        let mut parts = RootParts {
            idle: Vec::new(),
            others: 0,
        };
        while index != NONE {
            if self.spans[index as usize].holders == 0 {
                parts.idle.push(self.hold(index));
            } else {
                parts.others += 1;
            }
            index = self.spans[index as usize].after;
        }
        Ok(parts)
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// [`PageError::Leak`] when spans are held; nothing is given back then.
    pub fn finalize(&mut self, below: &mut dyn Source) -> Result<(), PageError> {
        let spans = self.stats.held_spans;
        if spans > 0 {
            return Err(PageError::Leak { spans });
        }
        self.recycle(u64::MAX, below);
        Ok(())
    }

    /// Hands over a held root as it is: this layer knows it no more.
    ///
    /// # Errors
    /// [`PageError::Part`] when the span is a part of a root, [`PageError::NotHeld`].
    pub fn move_out(&mut self, id: SpanId) -> Result<Piece, PageError> {
        let span = self.held(id)?;
        if !span.is_root() {
            return Err(PageError::Part);
        }
        let pages = span.pages;
        self.stats.held_spans -= 1;
        self.stats.held_pages -= pages;
        Ok(self.forget(id.index))
    }

    fn bytes_of(&self, span: &Span) -> std::ops::Range<u64> {
        span.address..span.address + span.pages * self.rules.page
    }
}

const VACANT: Span = Span {
    generation: 0,
    holders: 0,
    address: 0,
    pages: 0,
    class: 0,
    stamp: 0,
    before: NONE,
    after: NONE,
    newer: NONE,
    older: NONE,
    below: SpanId {
        index: 0,
        generation: 0,
    },
    root_pages: 0,
    asked: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// As much memory as is asked for.
    struct Endless(u64);

    impl Source for Endless {
        fn take(&mut self, bytes: u64) -> Option<Piece> {
            let address = self.0;
            self.0 += bytes;
            Some(Piece {
                address,
                bytes,
                below: SpanId::default(),
            })
        }

        fn give_back(&mut self, _: Piece, _: u64) {}
    }

    /// Ever new sizes: what is kept of them stays of the order of the spans, and all idle spans are
    /// in the lists of their sizes, of which a search finds the next larger one.
    #[test]
    fn sizes_that_no_span_has_are_forgotten() {
        for split in [Split::Never, Split::Always, Split::Delayed(1)] {
            let mut pool = PagePool::new(PageRules {
                page: 1,
                split,
                ..PageRules::default()
            });
            let (mut below, mut rng) = (Endless(0), fastrand::Rng::with_seed(7));
            let mut held = Vec::new();
            for round in 0..20_000_u64 {
                held.push(pool.alloc(rng.u64(1..1 << 40), &mut below).unwrap());
                if held.len() > 8 {
                    let span = held.swap_remove(rng.usize(..held.len()));
                    pool.free(span, round).unwrap();
                }
                if round % 50 == 0 {
                    pool.recycle(u64::MAX, &mut below);
                }
                assert!(pool.classes.len() <= 65 + 2 * pool.spans.len());
                assert_eq!(pool.classes.len(), pool.class_of.len());
            }
            let idle = pool.spans.iter().filter(|s| s.pages > 0 && s.holders == 0);
            let mut sizes: Vec<u64> = idle.map(|s| s.pages).collect();
            sizes.sort_unstable();
            assert_eq!(sizes.len() as u64, pool.stats.idle_spans);
            for (at, &size) in sizes.iter().enumerate() {
                let same = sizes.iter().filter(|&&s| s == size).count() as u64;
                assert_eq!(pool.idle_of(size), same);
                let next = sizes[at..].iter().find(|&&s| s > size).copied();
                let found = pool.smallest_above(size);
                assert_eq!(found.map(|index| pool.spans[index as usize].pages), next);
            }
            assert_eq!(pool.largest_idle(), sizes.last().copied().unwrap_or(0));
        }
    }
}
