//! The problem: buffers with sizes, alignments and lifetimes, checked once and kept in a compact
//! form that every other module reads: times are replaced by *sections*, sets of buffers of which
//! no two may share bytes, and runs and reserved ranges by buffers of a *plain* problem.

use std::borrow::Cow;
use std::ops::Range;

use crate::joined::{Joined, Named};
use crate::rules::{self, Rules};
pub(crate) use crate::sections::Piece;
use crate::sections::compress;
use crate::validate;

/// A half-open interval of time: `lower` belongs to it, `upper` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First time that belongs to the interval.
    pub lower: u64,
    /// First time after it.
    pub upper: u64,
}

/// One buffer, as the caller states it.
///
/// ```
/// use tenure_solve::Buffer;
///
/// // 4 KiB, aligned to 64 bytes, alive at 3..10 but lent out at 5..7.
/// let buffer = Buffer::new(4096, 3, 10).with_alignment(64).with_gap(5, 7);
/// assert_eq!(buffer.offset, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Size in bytes. A buffer of size 0 takes no bytes and clashes with nothing.
    pub size: u64,
    /// The offset must be a multiple of this; at least 1, not necessarily a power of two.
    pub alignment: u64,
    /// First time at which the buffer holds data.
    pub lower: u64,
    /// First time at which it no longer does.
    pub upper: u64,
    /// Sorted disjoint parts of the lifetime in which the bytes may be lent to other buffers.
    pub gaps: Vec<Span>,
    /// The offset in bytes, when it is given and must be kept.
    pub offset: Option<u64>,
}

impl Buffer {
    /// A buffer of `size` bytes that is alive in `lower..upper`: alignment 1, no gaps, free offset.
    pub fn new(size: u64, lower: u64, upper: u64) -> Self {
        Buffer {
            size,
            alignment: 1,
            lower,
            upper,
            gaps: Vec::new(),
            offset: None,
        }
    }

    /// The same buffer with another alignment.
    #[must_use]
    pub fn with_alignment(mut self, alignment: u64) -> Self {
        self.alignment = alignment;
        self
    }

    /// The same buffer with one more gap; gaps are added in the order of time.
    #[must_use]
    pub fn with_gap(mut self, lower: u64, upper: u64) -> Self {
        self.gaps.push(Span { lower, upper });
        self
    }

    /// The same buffer, fixed at `offset`.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The intervals in which the buffer holds its bytes: the lifetime without the gaps.
    ///
    /// The iterator expects a buffer that [`Instance::new`] accepts.
    pub fn live_spans(&self) -> impl Iterator<Item = Span> + '_ {
        let starts = std::iter::once(self.lower).chain(self.gaps.iter().map(|gap| gap.upper));
        let ends = self.gaps.iter().map(|gap| gap.lower);
        starts
            .zip(ends.chain(std::iter::once(self.upper)))
            .map(|(lower, upper)| Span { lower, upper })
            .filter(|span| span.lower < span.upper)
    }
}

/// Why a list of buffers is no valid problem. Buffers are named by their index in the list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// A lifetime that contains no time.
    #[error("buffer {buffer}: its lifetime {lower}..{upper} is empty; upper must exceed lower")]
    EmptyLifetime {
        /// Index of the buffer.
        buffer: usize,
        /// Start of the lifetime.
        lower: u64,
        /// End of the lifetime.
        upper: u64,
    },
    /// A gap that is empty, leaves the lifetime, or is not after the gap before it.
    #[error(
        "buffer {buffer}: gap {}..{} is empty, outside the lifetime, or not after the gap before it",
        gap.lower,
        gap.upper
    )]
    BadGap {
        /// Index of the buffer.
        buffer: usize,
        /// The offending gap.
        gap: Span,
    },
    /// Gaps that leave no time at which the buffer holds data.
    #[error("buffer {buffer}: its gaps cover the whole lifetime; leave it out instead")]
    NeverAlive {
        /// Index of the buffer.
        buffer: usize,
    },
    /// Alignment 0.
    #[error("buffer {buffer}: alignment 0; the least alignment is 1")]
    ZeroAlignment {
        /// Index of the buffer.
        buffer: usize,
    },
    /// A fixed offset that is no multiple of the alignment.
    #[error("buffer {buffer}: fixed offset {offset} is no multiple of the alignment {alignment}")]
    MisalignedOffset {
        /// Index of the buffer.
        buffer: usize,
        /// The fixed offset in bytes.
        offset: u64,
        /// The alignment in bytes.
        alignment: u64,
    },
    /// Two fixed buffers that are alive together and share bytes; the first of a run stands for it.
    #[error("buffers {first} and {second} are fixed on the same bytes and alive together")]
    FixedClash {
        /// The smaller index.
        first: usize,
        /// The larger index.
        second: usize,
    },
    /// The highest end of what is fixed or reserved plus all sizes and paddings exceeds 63 bits.
    #[error("sizes, paddings and fixed ends add up to more than 63 bits (at buffer {buffer})")]
    Overflow {
        /// Index of the buffer at which the sum overflowed.
        buffer: usize,
    },
    /// The alignments in a run have no common multiple in 63 bits.
    #[error("run {run}: its alignments have no common multiple below 2^63")]
    RunAlignment {
        /// Index in [`Rules::contiguous`].
        run: usize,
    },
    /// A fixed buffer that its run cannot put there.
    #[error(
        "buffer {buffer}: fixed at {offset}, where its run cannot put it: the run begins at a \
         multiple of all its alignments, and its other fixed buffers must agree"
    )]
    FixedOutsideRun {
        /// Index of the buffer.
        buffer: usize,
        /// The fixed offset in bytes.
        offset: u64,
    },
    /// A reserved range without bytes, or for a time without length.
    #[error("reserved range {range} is empty: its ends, in bytes or in time, are in wrong order")]
    EmptyRange {
        /// Index in [`Rules::reserved`].
        range: usize,
    },
    /// A reserved range that ends too high: buffers may have to lie above it.
    #[error("reserved range {range} ends too high: with all buffers above it, beyond 63 bits")]
    HighRange {
        /// Index in [`Rules::reserved`].
        range: usize,
    },
    /// Two reserved ranges that share bytes at some time.
    #[error("reserved ranges {first} and {second} share bytes at some time; make them one")]
    RangesClash {
        /// The smaller index in [`Rules::reserved`].
        first: usize,
        /// The larger index.
        second: usize,
    },
    /// A fixed buffer on reserved bytes.
    #[error("buffer {buffer} is fixed on bytes of reserved range {range} while they are reserved")]
    FixedOnReserved {
        /// Index of the buffer; the first of its run, if it is in one.
        buffer: usize,
        /// Index in [`Rules::reserved`].
        range: usize,
    },
    /// A rule that names no buffer of the instance, or one buffer twice in a choice.
    #[error(
        "a rule names buffer {buffer}, of {buffers}, that there is not or that it named before"
    )]
    BadRule {
        /// The index in the rule.
        buffer: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// More buffers or live intervals than 32-bit indices can name.
    #[error("more than {limit} live intervals")]
    TooMany {
        /// The largest number of live intervals.
        limit: usize,
    },
}

/// A valid problem: where to put the buffers so that those alive together share no byte.
///
/// Building it checks everything that the solver relies on, among it that no sum of sizes and
/// paddings can overflow; so no arithmetic on offsets of this instance can.
#[derive(Clone, Debug)]
pub struct Instance {
    buffers: Vec<Buffer>,
    pieces: Vec<Piece>,
    /// `pieces[first_piece[i]..first_piece[i + 1]]` belong to buffer `i`; none if its size is 0.
    first_piece: Vec<u32>,
    sections: u32,
    rules: Rules,
    /// Whether some buffers share a section that need not, by the rules.
    coarse: bool,
    /// From here on buffers are reserved ranges; only plain problems have them.
    first_reserved: usize,
    /// The plain problem, when there are runs or reserved ranges; the pieces are there.
    joined: Option<Box<Joined>>,
}

/// Live intervals are counted twice (birth and death) in 32 bits.
const MAX_PIECES: usize = (u32::MAX / 4) as usize;

/// See [`InstanceError::Overflow`].
const MAX_SUM: u64 = i64::MAX as u64;

impl Instance {
    /// Checks the buffers and compresses their lifetimes; O(n log n).
    ///
    /// # Errors
    ///
    /// The first broken rule, see [`InstanceError`].
    pub fn new(buffers: Vec<Buffer>) -> Result<Self, InstanceError> {
        Instance::with_rules(buffers, Rules::default())
    }

    /// Like [`Self::new`], with rules for more than one buffer.
    ///
    /// # Errors
    ///
    /// The first broken rule, see [`InstanceError`].
    pub fn with_rules(buffers: Vec<Buffer>, rules: Rules) -> Result<Self, InstanceError> {
        let mut pieces = 0usize;
        for (index, buffer) in buffers.iter().enumerate() {
            check_buffer(index, buffer)?;
            pieces = pieces.saturating_add(buffer.gaps.len() + 1);
        }
        if pieces.saturating_add(rules.reserved.len()) > MAX_PIECES {
            return Err(InstanceError::TooMany { limit: MAX_PIECES });
        }
        if let Some(buffer) = rules.first_wrong(buffers.len()) {
            let buffers = buffers.len();
            return Err(InstanceError::BadRule { buffer, buffers });
        }
        if rules.is_plain() {
            let first_reserved = buffers.len();
            return Instance::checked(buffers, rules, first_reserved);
        }
        let joined = Joined::new(&buffers, &rules)?;
        Ok(Instance {
            pieces: Vec::new(),
            first_piece: vec![0; buffers.len() + 1],
            sections: joined.plain.sections,
            coarse: false,
            first_reserved: buffers.len(),
            joined: Some(Box::new(joined)),
            buffers,
            rules,
        })
    }

    /// A plain problem whose buffers are good each for itself; those from `first_reserved` on are
    /// reserved ranges.
    pub(crate) fn checked(
        buffers: Vec<Buffer>,
        rules: Rules,
        first_reserved: usize,
    ) -> Result<Self, InstanceError> {
        check_sum(&buffers)?;
        let fixed = buffers.iter().enumerate();
        let fixed = fixed.filter_map(|(index, buffer)| Some((index, buffer, buffer.offset?)));
        if let Some((first, second)) = validate::first_clash(fixed, &rules, buffers.len()) {
            return Err(InstanceError::FixedClash { first, second });
        }
        let instance = Instance::build(buffers, rules, first_reserved);
        if instance.pieces.len() > MAX_PIECES {
            return Err(InstanceError::TooMany { limit: MAX_PIECES });
        }
        Ok(instance)
    }

    /// Buffers and plain rules that are known to be good.
    fn build(buffers: Vec<Buffer>, rules: Rules, first_reserved: usize) -> Self {
        let (mut pieces, mut first_piece, mut sections) = compress(&buffers);
        let mut coarse = false;
        if !rules.is_empty() {
            let of = |buffer: usize| {
                let range = first_piece[buffer] as usize..first_piece[buffer + 1] as usize;
                &pieces[range]
            };
            let by_buffer: Vec<&[Piece]> = (0..buffers.len()).map(of).collect();
            let ruled = rules::apply(&rules, &by_buffer);
            sections = ruled.sections;
            coarse = ruled.coarse;
            first_piece.clear();
            first_piece.push(0);
            let mut end = 0u32;
            for pieces in &ruled.pieces {
                end = end.saturating_add(u32::try_from(pieces.len()).unwrap_or(u32::MAX));
                first_piece.push(end);
            }
            pieces = ruled.pieces.concat();
        }
        Instance {
            buffers,
            pieces,
            first_piece,
            sections,
            rules,
            coarse,
            first_reserved,
            joined: None,
        }
    }

    /// The problem that the search works on: without runs, and with reserved ranges as fixed
    /// buffers behind all others. This one, when it has neither.
    pub(crate) fn plain(&self) -> &Instance {
        self.joined.as_ref().map_or(self, |joined| &joined.plain)
    }

    /// The offsets of the buffers, given those of the plain problem.
    pub(crate) fn stated_offsets(&self, plain: Vec<u64>) -> Vec<u64> {
        match &self.joined {
            Some(joined) => joined.stated_offsets(&plain),
            None => plain,
        }
    }

    /// The offsets of the plain problem, given those of the buffers.
    pub(crate) fn plain_offsets<'a>(&self, stated: &'a [u64]) -> Cow<'a, [u64]> {
        match &self.joined {
            Some(joined) => Cow::Owned(joined.plain_offsets(stated)),
            None => Cow::Borrowed(stated),
        }
    }

    /// The buffers that a list of buffers of the plain problem stands for, sorted.
    pub(crate) fn stated_buffers(&self, plain: Vec<usize>) -> Vec<usize> {
        match &self.joined {
            Some(joined) => joined.stated_buffers(&plain),
            None => plain,
        }
    }

    /// What a buffer of the plain problem stands for.
    pub(crate) fn named(&self, plain: usize) -> Named {
        match &self.joined {
            Some(joined) => joined.named(plain),
            None => Named::Buffer(plain),
        }
    }

    /// The buffers of a plain problem that are no reserved ranges.
    pub(crate) fn own(&self) -> Range<usize> {
        0..self.first_reserved
    }

    /// The same plain problem for placements that end at or below `height`: nothing above it is
    /// reserved. Without it a reserved range would count as a fixed buffer, up to its end.
    pub(crate) fn below(&self, height: u64) -> Cow<'_, Instance> {
        let end = |buffer: &Buffer| buffer.offset.unwrap_or(0) + buffer.size;
        let reserved = &self.buffers[self.first_reserved..];
        if reserved.iter().all(|range| end(range) <= height) {
            return Cow::Borrowed(self);
        }
        let mut buffers = self.buffers.clone();
        for range in &mut buffers[self.first_reserved..] {
            let room = height.saturating_sub(range.offset.unwrap_or(0));
            range.size = range.size.min(room);
        }
        let below = Instance::build(buffers, self.rules.clone(), self.first_reserved);
        Cow::Owned(below)
    }

    /// Whether parts of the instance can have fewer clashes than the whole: a moment with very
    /// many branches is not split completely.
    pub(crate) fn is_coarse(&self) -> bool {
        self.coarse
    }

    /// The rules beyond lifetimes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The buffers, in the order in which they were given.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is no buffer at all.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Number of sections (see the module page): the moments at which loads can differ.
    pub fn sections(&self) -> usize {
        self.sections as usize
    }

    /// The plain problem of some of the buffers alone, in that order. Reserved ranges are in it:
    /// behind all others those that some buffer meets, or else those that `buffers` ends with.
    pub(crate) fn part(&self, buffers: &[usize]) -> Instance {
        let own = buffers.iter().filter(|&buffer| self.own().contains(buffer));
        let first_reserved = own.count();
        let mut chosen = buffers.to_vec();
        if first_reserved == buffers.len() {
            let hulls = || buffers.iter().filter_map(|&buffer| self.hull(buffer));
            let first = hulls().map(|hull| hull.lower).min().unwrap_or(0);
            let last = hulls().map(|hull| hull.upper).max().unwrap_or(0);
            let meets = |hull: Piece| hull.lower < last && first < hull.upper;
            let reserved = self.first_reserved..self.buffers.len();
            chosen.extend(reserved.filter(|&range| self.hull(range).is_some_and(meets)));
        }
        let part = chosen.iter().map(|&buffer| self.buffers[buffer].clone());
        Instance::build(part.collect(), self.rules.among(&chosen), first_reserved)
    }

    /// Gives a buffer its offset, which clashes with no other's.
    pub(crate) fn fix(&mut self, buffer: usize, offset: u64) {
        self.buffers[buffer].offset = Some(offset);
    }

    /// All pieces; those of one buffer are neighbours and in the order of time.
    pub(crate) fn all_pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The range in [`Self::all_pieces`] of one buffer; empty when its size is 0.
    pub(crate) fn piece_range(&self, buffer: usize) -> Range<usize> {
        self.first_piece[buffer] as usize..self.first_piece[buffer + 1] as usize
    }

    /// The pieces of one buffer; none when its size is 0.
    pub(crate) fn pieces(&self, buffer: usize) -> &[Piece] {
        &self.pieces[self.piece_range(buffer)]
    }

    /// From the first to behind the last section of a buffer, gaps included; `None` for size 0.
    pub(crate) fn hull(&self, buffer: usize) -> Option<Piece> {
        let pieces = self.pieces(buffer);
        Some(Piece {
            lower: pieces.first()?.lower,
            upper: pieces.last()?.upper,
        })
    }

    /// Whether two buffers share a section.
    pub(crate) fn meet(&self, first: usize, second: usize) -> bool {
        let (mut first, mut second) = (self.pieces(first), self.pieces(second));
        while let ([a, first_rest @ ..], [b, second_rest @ ..]) = (first, second) {
            if a.upper <= b.lower {
                first = first_rest;
            } else if b.upper <= a.lower {
                second = second_rest;
            } else {
                return true;
            }
        }
        false
    }

    /// The end of the highest buffer, in bytes; buffers of size 0 and reserved ranges do not count.
    pub(crate) fn height_of(&self, offsets: &[u64]) -> u64 {
        let ends = self.buffers[self.own()].iter().zip(offsets);
        ends.filter(|(buffer, _)| buffer.size > 0)
            .map(|(buffer, offset)| offset + buffer.size)
            .max()
            .unwrap_or(0)
    }
}

/// Checks what concerns one buffer alone.
fn check_buffer(index: usize, buffer: &Buffer) -> Result<(), InstanceError> {
    let &Buffer {
        alignment,
        lower,
        upper,
        ..
    } = buffer;
    if lower >= upper {
        return Err(InstanceError::EmptyLifetime {
            buffer: index,
            lower,
            upper,
        });
    }
    let mut free_from = lower;
    let mut lent = 0;
    for &gap in &buffer.gaps {
        if gap.lower >= gap.upper || gap.lower < free_from || gap.upper > upper {
            return Err(InstanceError::BadGap { buffer: index, gap });
        }
        free_from = gap.upper;
        lent += gap.upper - gap.lower;
    }
    if lent == upper - lower {
        return Err(InstanceError::NeverAlive { buffer: index });
    }
    if alignment == 0 {
        return Err(InstanceError::ZeroAlignment { buffer: index });
    }
    if let Some(offset) = buffer.offset
        && !offset.is_multiple_of(alignment)
    {
        return Err(InstanceError::MisalignedOffset {
            buffer: index,
            offset,
            alignment,
        });
    }
    Ok(())
}

/// No buffer that lies directly on others can end above the highest fixed end plus all sizes and
/// paddings: that sum bounds every offset the solver computes. It is kept to 63 bits, so that an
/// offset plus a load cannot overflow either.
fn check_sum(buffers: &[Buffer]) -> Result<(), InstanceError> {
    let add = |sum: u64, more: u64| sum.checked_add(more).filter(|&sum| sum <= MAX_SUM);
    let mut sum = 0;
    for (index, buffer) in buffers.iter().enumerate() {
        if let Some(offset) = buffer.offset {
            let end = add(offset, buffer.size);
            sum = sum.max(end.ok_or(InstanceError::Overflow { buffer: index })?);
        }
    }
    for (index, buffer) in buffers.iter().enumerate() {
        sum = add(sum, buffer.size)
            .and_then(|sum| add(sum, buffer.alignment - 1))
            .ok_or(InstanceError::Overflow { buffer: index })?;
    }
    Ok(())
}

/// The least multiple of `alignment` that is not below `offset`.
///
/// Never overflows for offsets of an [`Instance`], by its check of sums.
pub(crate) fn align_up(offset: u64, alignment: u64) -> u64 {
    if alignment.is_power_of_two() {
        (offset + (alignment - 1)) & !(alignment - 1)
    } else {
        offset.next_multiple_of(alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_may_touch_each_other_and_the_ends() {
        let buffer = Buffer::new(1, 0, 10)
            .with_gap(0, 2)
            .with_gap(2, 3)
            .with_gap(8, 10);
        let spans: Vec<Span> = buffer.live_spans().collect();
        assert_eq!(spans, [Span { lower: 3, upper: 8 }]);
        assert!(Instance::new(vec![buffer]).is_ok());
    }

    #[test]
    fn every_rule_is_checked() {
        let good = Buffer::new(8, 0, 4);
        let gap = |lower, upper| Span { lower, upper };
        let cases = [
            (
                vec![Buffer::new(8, 4, 4)],
                InstanceError::EmptyLifetime {
                    buffer: 0,
                    lower: 4,
                    upper: 4,
                },
            ),
            (
                vec![good.clone(), good.clone().with_gap(1, 5)],
                InstanceError::BadGap {
                    buffer: 1,
                    gap: gap(1, 5),
                },
            ),
            (
                vec![good.clone().with_gap(2, 3).with_gap(1, 2)],
                InstanceError::BadGap {
                    buffer: 0,
                    gap: gap(1, 2),
                },
            ),
            (
                vec![good.clone().with_gap(2, 2)],
                InstanceError::BadGap {
                    buffer: 0,
                    gap: gap(2, 2),
                },
            ),
            (
                vec![good.clone().with_gap(0, 4)],
                InstanceError::NeverAlive { buffer: 0 },
            ),
            (
                vec![good.clone().with_alignment(0)],
                InstanceError::ZeroAlignment { buffer: 0 },
            ),
            (
                vec![good.clone().with_alignment(6).with_offset(8)],
                InstanceError::MisalignedOffset {
                    buffer: 0,
                    offset: 8,
                    alignment: 6,
                },
            ),
            (
                vec![good.clone().with_offset(4), good.clone().with_offset(11)],
                InstanceError::FixedClash {
                    first: 0,
                    second: 1,
                },
            ),
            (
                vec![good.clone(), good.clone().with_offset(u64::MAX)],
                InstanceError::Overflow { buffer: 1 },
            ),
            (
                vec![Buffer::new(1 << 62, 0, 1), Buffer::new(1 << 62, 0, 1)],
                InstanceError::Overflow { buffer: 1 },
            ),
        ];
        for (buffers, expected) in cases {
            assert_eq!(Instance::new(buffers).unwrap_err(), expected);
        }
    }

    #[test]
    fn rules_name_buffers_that_are_there_once() {
        let buffers = vec![Buffer::new(8, 0, 4); 2];
        let separate = Rules {
            separate: vec![vec![0, 2]],
            ..Rules::default()
        };
        let twice = Rules {
            exclusive: vec![vec![vec![0], vec![1, 0]]],
            ..Rules::default()
        };
        for (rules, buffer) in [(separate, 2), (twice, 0)] {
            let error = Instance::with_rules(buffers.clone(), rules).unwrap_err();
            assert_eq!(error, InstanceError::BadRule { buffer, buffers: 2 });
        }
    }

    #[test]
    fn alignments_need_not_be_powers_of_two() {
        let cases = [(0, 8, 0), (1, 8, 8), (7, 6, 12), (12, 6, 12), (5, 1, 5)];
        for (offset, alignment, expected) in cases {
            assert_eq!(
                align_up(offset, alignment),
                expected,
                "{offset} to {alignment}"
            );
        }
    }
}
