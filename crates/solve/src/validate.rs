//! The judge of placements: takes the problem as the caller stated it and a list of offsets, and
//! says which rule is broken first. It shares no code with the placement and knows no sections.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

use crate::instance::{Buffer, Instance};
use crate::joined::Named;
use crate::rules::{Branches, Rules};

/// The rule that a list of offsets breaks. Buffers are named by their index in the instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not one offset for each buffer.
    #[error("{offsets} offsets for {buffers} buffers")]
    WrongCount {
        /// Number of offsets.
        offsets: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// An offset that is no multiple of the buffer's alignment.
    #[error("buffer {buffer}: offset {offset} is no multiple of the alignment {alignment}")]
    Misaligned {
        /// Index of the buffer.
        buffer: usize,
        /// Its offset in bytes.
        offset: u64,
        /// Its alignment in bytes.
        alignment: u64,
    },
    /// A fixed buffer that lies elsewhere.
    #[error("buffer {buffer}: fixed at {fixed} but placed at {offset}")]
    FixedMoved {
        /// Index of the buffer.
        buffer: usize,
        /// The offset it must have.
        fixed: u64,
        /// The offset it got.
        offset: u64,
    },
    /// A buffer whose end exceeds 64 bits.
    #[error("buffer {buffer}: offset {offset} plus its size exceeds 64 bits")]
    Overflow {
        /// Index of the buffer.
        buffer: usize,
        /// Its offset in bytes.
        offset: u64,
    },
    /// A buffer that ends above the capacity.
    #[error("buffer {buffer} ends at {end}, above the capacity {capacity}")]
    AboveCapacity {
        /// Index of the buffer.
        buffer: usize,
        /// Its end in bytes.
        end: u64,
        /// The capacity in bytes.
        capacity: u64,
    },
    /// A run that does not begin at a multiple of all its alignments.
    #[error("buffer {buffer}: its run begins at {begin}, no multiple of its alignment {alignment}")]
    MisalignedRun {
        /// Index of a buffer of the run.
        buffer: usize,
        /// The offset of the first one in bytes.
        begin: u64,
        /// The alignment of the buffer in bytes.
        alignment: u64,
    },
    /// A buffer that is not right behind the one before it in its run.
    #[error(
        "buffer {buffer}: at {offset}, but the buffer before it in its run puts it at {expected}"
    )]
    BrokenRun {
        /// Index of the buffer.
        buffer: usize,
        /// Its offset in bytes.
        offset: u64,
        /// The offset that it must have.
        expected: u64,
    },
    /// A buffer on reserved bytes.
    #[error("buffer {buffer} lies on bytes of reserved range {range} while they are reserved")]
    OnReserved {
        /// Index of the buffer; the first of its run, if it is in one.
        buffer: usize,
        /// Index of the range in [`Rules::reserved`].
        range: usize,
    },
    /// Two buffers that are alive together and share bytes; the first of a run stands for it.
    #[error("buffers {first} and {second} are alive together and share bytes")]
    Overlap {
        /// The smaller index.
        first: usize,
        /// The larger index.
        second: usize,
    },
}

/// Checks a placement in O(n log n): alignment, fixed offsets, the capacity if one is given, runs,
/// reserved ranges, and that no two buffers alive together share a byte.
///
/// # Errors
///
/// The first broken rule; buffers alone come before runs, and runs before pairs.
///
/// ```
/// use tenure_solve::{Buffer, Instance, validate};
///
/// let instance = Instance::new(vec![Buffer::new(8, 0, 2), Buffer::new(8, 1, 3)]).unwrap();
/// assert!(validate::validate(&instance, &[0, 8], Some(16)).is_ok());
/// assert!(validate::validate(&instance, &[0, 7], None).is_err());
/// ```
pub fn validate(
    instance: &Instance,
    offsets: &[u64],
    capacity: Option<u64>,
) -> Result<(), Violation> {
    let buffers = instance.buffers();
    if offsets.len() != buffers.len() {
        return Err(Violation::WrongCount {
            offsets: offsets.len(),
            buffers: buffers.len(),
        });
    }
    for (index, (buffer, &offset)) in buffers.iter().zip(offsets).enumerate() {
        check_alone(index, buffer, offset, capacity)?;
    }
    for run in &instance.rules().contiguous {
        check_run(run, buffers, offsets)?;
    }
    let plain = instance.plain();
    let offsets = instance.plain_offsets(offsets);
    let placed = plain.buffers().iter().zip(&*offsets).enumerate();
    let placed = placed.map(|(index, (buffer, &offset))| (index, buffer, offset));
    let Some((first, second)) = first_clash(placed, plain.rules(), plain.len()) else {
        return Ok(());
    };
    // Ranges come behind buffers, and no two of them clash.
    let first = instance.named(first).index();
    Err(match instance.named(second) {
        Named::Buffer(second) => Violation::Overlap {
            first: first.min(second),
            second: first.max(second),
        },
        Named::Range(range) => Violation::OnReserved {
            buffer: first,
            range,
        },
    })
}

/// Checks that a run begins at a multiple of all its alignments and has no gap but for them. Each
/// buffer has been checked alone.
fn check_run(run: &[usize], buffers: &[Buffer], offsets: &[u64]) -> Result<(), Violation> {
    let Some(&first) = run.first() else {
        return Ok(());
    };
    let mut expected = offsets[first];
    for &buffer in run {
        let alignment = buffers[buffer].alignment;
        if !offsets[first].is_multiple_of(alignment) {
            return Err(Violation::MisalignedRun {
                buffer,
                begin: offsets[first],
                alignment,
            });
        }
        let aligned = expected.checked_next_multiple_of(alignment);
        expected = aligned.unwrap_or(u64::MAX);
        if offsets[buffer] != expected {
            return Err(Violation::BrokenRun {
                buffer,
                offset: offsets[buffer],
                expected,
            });
        }
        expected += buffers[buffer].size;
    }
    Ok(())
}

fn check_alone(
    index: usize,
    buffer: &Buffer,
    offset: u64,
    capacity: Option<u64>,
) -> Result<(), Violation> {
    if !offset.is_multiple_of(buffer.alignment) {
        return Err(Violation::Misaligned {
            buffer: index,
            offset,
            alignment: buffer.alignment,
        });
    }
    if let Some(fixed) = buffer.offset
        && fixed != offset
    {
        return Err(Violation::FixedMoved {
            buffer: index,
            fixed,
            offset,
        });
    }
    let Some(end) = offset.checked_add(buffer.size) else {
        return Err(Violation::Overflow {
            buffer: index,
            offset,
        });
    };
    match capacity {
        Some(capacity) if buffer.size > 0 && end > capacity => Err(Violation::AboveCapacity {
            buffer: index,
            end,
            capacity,
        }),
        _ => Ok(()),
    }
}

/// The first pair found, smaller index first, of two that share bytes and may not. Ends must not
/// overflow; the rules must name none but the `buffers`.
pub(crate) fn first_clash<'a>(
    placed: impl Iterator<Item = (usize, &'a Buffer, u64)>,
    rules: &Rules,
    buffers: usize,
) -> Option<(usize, usize)> {
    let sized = placed.filter(|(_, buffer, _)| buffer.size > 0);
    if rules.is_empty() {
        return first_meeting(sized);
    }
    let placed: Vec<(usize, &Buffer, u64)> = sized.collect();
    first_separated(&placed, rules, buffers).or_else(|| first_not_excluded(&placed, rules, buffers))
}

/// Sweeps over time with the live buffers ordered by offset: a newcomer can only clash with its
/// two neighbours in that order.
fn first_meeting<'a>(
    placed: impl Iterator<Item = (usize, &'a Buffer, u64)>,
) -> Option<(usize, usize)> {
    let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (birth, offset, end, index) in events(placed) {
        if !birth {
            live.remove(&offset);
            continue;
        }
        let below = live.range(..=offset).next_back();
        let below = below.filter(|&(_, &(below_end, _))| below_end > offset);
        let above = live.range(offset..end).next();
        if let Some((_, &(_, other))) = below.or(above) {
            return Some((index.min(other), index.max(other)));
        }
        live.insert(offset, (end, index));
    }
    None
}

/// (is a birth, offset, end, index) in the order of time up to the last birth; deaths come before
/// births of the same time.
fn events<'a>(
    placed: impl Iterator<Item = (usize, &'a Buffer, u64)>,
) -> impl Iterator<Item = (bool, u64, u64, usize)> {
    let mut births = Vec::with_capacity(placed.size_hint().0);
    for (index, buffer, offset) in placed {
        let end = offset + buffer.size;
        for span in buffer.live_spans() {
            births.push((span.lower, offset, end, index, span.upper));
        }
    }
    births.sort_unstable();
    let mut births = births.into_iter().peekable();
    // Those alive are few beside all.
    let mut living: BinaryHeap<Reverse<(u64, u64, u64, usize)>> = BinaryHeap::new();
    std::iter::from_fn(move || {
        let &(time, ..) = births.peek()?;
        if let Some(first) = living.peek_mut()
            && let Reverse((death, ..)) = *first
            && death <= time
        {
            let Reverse((_, offset, end, index)) = PeekMut::pop(first);
            return Some((false, offset, end, index));
        }
        let (_, offset, end, index, death) = births.next()?;
        living.push(Reverse((death, offset, end, index)));
        Some((true, offset, end, index))
    })
}

/// Two of a set that must be apart.
fn first_separated(
    placed: &[(usize, &Buffer, u64)],
    rules: &Rules,
    buffers: usize,
) -> Option<(usize, usize)> {
    let mut ranges = vec![None; buffers];
    for &(index, buffer, offset) in placed {
        ranges[index] = Some((offset, offset + buffer.size));
    }
    rules.separate.iter().find_map(|set| {
        let mut set: Vec<(u64, u64, usize)> = set
            .iter()
            .filter_map(|&index| ranges[index].map(|(offset, end)| (offset, end, index)))
            .collect();
        set.sort_unstable();
        set.dedup();
        let clash = set.windows(2).find(|pair| pair[1].0 < pair[0].1)?;
        Some((clash[0].2.min(clash[1].2), clash[0].2.max(clash[1].2)))
    })
}

/// Two that are alive together and do not exclude each other. Those that may share bytes make the
/// live ranges overlap, so all that could reach a newcomer are looked at.
fn first_not_excluded(
    placed: &[(usize, &Buffer, u64)],
    rules: &Rules,
    buffers: usize,
) -> Option<(usize, usize)> {
    let branches = Branches::new(rules, buffers);
    let longest = placed.iter().map(|(_, buffer, _)| buffer.size).max()?;
    let mut live: BTreeMap<(u64, usize), u64> = BTreeMap::new();
    for (birth, offset, end, index) in events(placed.iter().copied()) {
        if !birth {
            live.remove(&(offset, index));
            continue;
        }
        let reach = (offset.saturating_sub(longest), 0)..(end, 0);
        let mut others = live.range(reach);
        let clash = others.find(|&(&(_, other), &other_end)| {
            other_end > offset && !branches.exclude(index, other)
        });
        if let Some((&(_, other), _)) = clash {
            return Some((index.min(other), index.max(other)));
        }
        live.insert((offset, index), end);
    }
    None
}
