//! Runs and reserved ranges, taken out before the search: a run becomes one buffer, and a reserved
//! range a fixed one behind all others. So every heuristic and the exact search see a *plain*
//! problem of buffers with lifetimes and pairs that clash.
//!
//! A reserved range differs from a fixed buffer in one thing: it does not count in the height, nor
//! in any bound. [`Instance::height_of`], [`Instance::below`] and [`crate::bounds`] know it.

use std::collections::BTreeMap;

use crate::instance::{Buffer, Instance, InstanceError, Span};
use crate::rules::Rules;

/// The plain problem, and where what was stated is in it.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) plain: Instance,
    /// For each stated buffer: its plain one, and how many bytes above that it lies.
    places: Vec<(usize, u64)>,
    /// For each plain buffer that is no reserved range: the stated one, or the first of its run.
    first: Vec<usize>,
}

/// What a plain buffer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// A buffer, or the run that begins with it.
    Buffer(usize),
    /// A reserved range, by its index in the rules.
    Range(usize),
}

impl Named {
    /// The index that it holds.
    pub(crate) fn index(self) -> usize {
        match self {
            Named::Buffer(index) | Named::Range(index) => index,
        }
    }
}

impl Joined {
    /// The buffers must be good each for itself, and the rules name none but them.
    pub(crate) fn new(buffers: &[Buffer], rules: &Rules) -> Result<Self, InstanceError> {
        let mut run_of: Vec<Option<usize>> = vec![None; buffers.len()];
        for (run, members) in rules.contiguous.iter().enumerate() {
            for &member in members {
                run_of[member] = Some(run);
            }
        }
        let mut plain: Vec<Buffer> = Vec::new();
        let mut places = vec![(usize::MAX, 0); buffers.len()];
        let mut first = Vec::new();
        for (index, buffer) in buffers.iter().enumerate() {
            if places[index].0 != usize::MAX {
                continue;
            }
            match run_of[index] {
                Some(run) => {
                    let members = &rules.contiguous[run];
                    let (whole, above) = join(run, members, buffers)?;
                    for (&member, above) in members.iter().zip(above) {
                        places[member] = (plain.len(), above);
                    }
                    first.extend(members.first());
                    plain.push(whole);
                }
                None => {
                    places[index] = (plain.len(), 0);
                    first.push(index);
                    plain.push(buffer.clone());
                }
            }
        }
        for (range, reserved) in rules.reserved.iter().enumerate() {
            let always = Span {
                lower: 0,
                upper: u64::MAX,
            };
            let time = reserved.time.unwrap_or(always);
            if reserved.from >= reserved.to || time.lower >= time.upper {
                return Err(InstanceError::EmptyRange { range });
            }
            let size = reserved.to - reserved.from;
            plain.push(Buffer::new(size, time.lower, time.upper).with_offset(reserved.from));
        }
        let sized = |buffer: usize| (buffers[buffer].size > 0).then_some(places[buffer].0);
        let plain_rules = plain_rules(rules, &(0..buffers.len()).map(sized).collect::<Vec<_>>());
        let checked = Instance::checked(plain, plain_rules, first.len());
        let plain = checked.map_err(|error| in_stated(error, &first))?;
        Ok(Joined {
            plain,
            places,
            first,
        })
    }

    /// See [`Instance::stated_offsets`].
    pub(crate) fn stated_offsets(&self, plain: &[u64]) -> Vec<u64> {
        let places = self.places.iter();
        places.map(|&(whole, above)| plain[whole] + above).collect()
    }

    /// See [`Instance::plain_offsets`]: runs lie where their first buffer does.
    pub(crate) fn plain_offsets(&self, stated: &[u64]) -> Vec<u64> {
        let first = self.first.iter().map(|&buffer| stated[buffer]);
        let reserved = &self.plain.buffers()[self.first.len()..];
        let reserved = reserved.iter().map(|range| range.offset.unwrap_or(0));
        first.chain(reserved).collect()
    }

    /// See [`Instance::stated_buffers`].
    pub(crate) fn stated_buffers(&self, plain: &[usize]) -> Vec<usize> {
        let mut chosen = vec![false; self.plain.len()];
        for &buffer in plain {
            chosen[buffer] = true;
        }
        let stated = self.places.iter().enumerate();
        let stated = stated.filter(|(_, (whole, _))| chosen[*whole]);
        stated.map(|(buffer, _)| buffer).collect()
    }

    /// See [`Instance::named`].
    pub(crate) fn named(&self, plain: usize) -> Named {
        named(plain, &self.first)
    }
}

fn named(plain: usize, first: &[usize]) -> Named {
    match first.get(plain) {
        Some(&buffer) => Named::Buffer(buffer),
        None => Named::Range(plain - first.len()),
    }
}

/// The buffer that a run is, and how far above its begin each of its buffers lies.
fn join(
    run: usize,
    members: &[usize],
    buffers: &[Buffer],
) -> Result<(Buffer, Vec<u64>), InstanceError> {
    let mut alignment = 1;
    let mut above = Vec::with_capacity(members.len());
    let (mut end, mut size) = (0u64, 0);
    for &member in members {
        let buffer = &buffers[member];
        let common = least_common_multiple(alignment, buffer.alignment);
        alignment = common.ok_or(InstanceError::RunAlignment { run })?;
        let begin = end.checked_next_multiple_of(buffer.alignment);
        let begin = begin.ok_or(InstanceError::Overflow { buffer: member })?;
        above.push(begin);
        let next = begin.checked_add(buffer.size);
        end = next.ok_or(InstanceError::Overflow { buffer: member })?;
        if buffer.size > 0 {
            size = end;
        }
    }
    let mut fixed = None;
    for (&member, &above) in members.iter().zip(&above) {
        let Some(offset) = buffers[member].offset else {
            continue;
        };
        let begin = offset.checked_sub(above).filter(|begin| {
            begin.is_multiple_of(alignment) && fixed.is_none_or(|fixed| fixed == *begin)
        });
        fixed = begin;
        if begin.is_none() {
            let buffer = member;
            return Err(InstanceError::FixedOutsideRun { buffer, offset });
        }
    }
    let spans = lives(members, buffers);
    let gaps = spans.windows(2).map(|pair| Span {
        lower: pair[0].upper,
        upper: pair[1].lower,
    });
    let whole = Buffer {
        size,
        alignment,
        lower: spans.first().map_or(0, |span| span.lower),
        upper: spans.last().map_or(0, |span| span.upper),
        gaps: gaps.collect(),
        offset: fixed,
    };
    Ok((whole, above))
}

/// When one of the buffers that have a size is alive: sorted spans of which no two touch.
fn lives(members: &[usize], buffers: &[Buffer]) -> Vec<Span> {
    let sized = members.iter().map(|&member| &buffers[member]);
    let sized = sized.filter(|buffer| buffer.size > 0);
    let mut spans: Vec<Span> = sized.flat_map(Buffer::live_spans).collect();
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let joins = next.lower <= last.upper;
        if joins {
            last.upper = last.upper.max(next.upper);
        }
        joins
    });
    spans
}

/// The rules for plain buffers, given the one of each stated buffer that has a size: a separation
/// of a member is one of its run, and a run is in a branch when all of it is.
fn plain_rules(rules: &Rules, wholes: &[Option<usize>]) -> Rules {
    let count = |buffers: &mut dyn Iterator<Item = usize>| {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for whole in buffers.filter_map(|buffer| wholes[buffer]) {
            *counts.entry(whole).or_default() += 1;
        }
        counts
    };
    let members = count(&mut (0..wholes.len()));
    let counted = |list: &Vec<usize>| count(&mut list.iter().copied());
    let branch = |list: &Vec<usize>| {
        let all = |(whole, found): &(usize, usize)| members.get(whole) == Some(found);
        let whole = counted(list).into_iter().filter(all);
        whole.map(|(whole, _)| whole).collect::<Vec<usize>>()
    };
    let separate = rules.separate.iter();
    let exclusive = rules.exclusive.iter();
    Rules {
        separate: separate
            .map(|set| counted(set).into_keys().collect())
            .collect(),
        exclusive: exclusive
            .map(|choice| choice.iter().map(branch).collect())
            .collect(),
        ..Rules::default()
    }
}

/// An error of the plain problem in the names of what was stated.
fn in_stated(error: InstanceError, first: &[usize]) -> InstanceError {
    match error {
        InstanceError::FixedClash {
            first: a,
            second: b,
        } => match (named(a, first), named(b, first)) {
            (Named::Buffer(a), Named::Buffer(b)) => InstanceError::FixedClash {
                first: a.min(b),
                second: a.max(b),
            },
            (Named::Range(first), Named::Range(second)) => {
                InstanceError::RangesClash { first, second }
            }
            (Named::Buffer(buffer), Named::Range(range))
            | (Named::Range(range), Named::Buffer(buffer)) => {
                InstanceError::FixedOnReserved { buffer, range }
            }
        },
        InstanceError::Overflow { buffer } => match named(buffer, first) {
            Named::Buffer(buffer) => InstanceError::Overflow { buffer },
            Named::Range(range) => InstanceError::HighRange { range },
        },
        other => other,
    }
}

fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let common = a.checked_div(x)?.checked_mul(b)?;
    i64::try_from(common).is_ok().then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Reserved;

    fn joined(buffers: Vec<Buffer>, rules: Rules) -> Result<Instance, InstanceError> {
        Instance::with_rules(buffers, rules)
    }

    fn run(members: &[usize]) -> Rules {
        Rules {
            contiguous: vec![members.to_vec()],
            ..Rules::default()
        }
    }

    fn reserved(ranges: &[Reserved]) -> Rules {
        Rules {
            reserved: ranges.to_vec(),
            ..Rules::default()
        }
    }

    #[test]
    fn a_run_is_one_buffer_that_is_alive_with_any_of_its_own() {
        let buffers = vec![
            Buffer::new(5, 4, 6).with_alignment(4),
            Buffer::new(1, 0, 9),
            Buffer::new(3, 0, 2).with_alignment(6),
            Buffer::new(0, 7, 9),
        ];
        let instance = joined(buffers, run(&[2, 0, 3])).unwrap();
        let plain = instance.plain();
        let whole = Buffer::new(9, 0, 6).with_alignment(12).with_gap(2, 4);
        assert_eq!(plain.buffers(), [whole, Buffer::new(1, 0, 9)]);
        assert_eq!(instance.stated_offsets(vec![24, 0]), [28, 0, 24, 33]);
        assert_eq!(*instance.plain_offsets(&[28, 0, 24, 33]), [24, 0]);
        assert_eq!(instance.stated_buffers(vec![0]), [0, 2, 3]);
    }

    #[test]
    fn a_run_is_apart_from_what_one_must_be_and_in_a_branch_when_all_are() {
        let rules = Rules {
            separate: vec![vec![1, 3], vec![0, 1, 2]],
            exclusive: vec![vec![vec![0, 1], vec![2]], vec![vec![1], vec![2, 3]]],
            ..run(&[0, 1])
        };
        let instance = joined(vec![Buffer::new(8, 0, 1); 4], rules).unwrap();
        let expected = Rules {
            separate: vec![vec![0, 2], vec![0, 1]],
            exclusive: vec![vec![vec![0], vec![1]], vec![vec![], vec![1, 2]]],
            ..Rules::default()
        };
        assert_eq!(*instance.plain().rules(), expected);
    }

    #[test]
    fn what_is_reserved_above_the_height_is_left_out() {
        let ranges = [Reserved::always(0, 4), Reserved::always(20, 30)];
        let instance = joined(vec![Buffer::new(8, 0, 1)], reserved(&ranges)).unwrap();
        let sizes = |height| {
            let below = instance.plain().below(height);
            let sizes = below.buffers().iter().map(|buffer| buffer.size);
            sizes.collect::<Vec<u64>>()
        };
        assert_eq!(sizes(40), [8, 4, 10]);
        assert_eq!(sizes(24), [8, 4, 4]);
        assert_eq!(sizes(20), [8, 4, 0]);
        assert_eq!(sizes(3), [8, 3, 0]);
    }

    #[test]
    fn every_fault_is_told() {
        let good = Buffer::new(8, 0, 4);
        let fixed = |offset| good.clone().with_offset(offset);
        let aligned = |alignment| good.clone().with_alignment(alignment);
        let cases = [
            (
                vec![good.clone(); 2],
                run(&[0, 1, 0]),
                InstanceError::BadRule {
                    buffer: 0,
                    buffers: 2,
                },
            ),
            (
                vec![aligned(1 << 40), aligned(3u64.pow(20))],
                run(&[0, 1]),
                InstanceError::RunAlignment { run: 0 },
            ),
            (
                vec![fixed(16), fixed(25)],
                run(&[0, 1]),
                InstanceError::FixedOutsideRun {
                    buffer: 1,
                    offset: 25,
                },
            ),
            (
                vec![good.clone(), fixed(4)],
                run(&[0, 1]),
                InstanceError::FixedOutsideRun {
                    buffer: 1,
                    offset: 4,
                },
            ),
            (
                vec![aligned(16), fixed(16)],
                run(&[0, 1]),
                InstanceError::FixedOutsideRun {
                    buffer: 1,
                    offset: 16,
                },
            ),
            (
                vec![Buffer::new(u64::MAX, 0, 1); 2],
                run(&[0, 1]),
                InstanceError::Overflow { buffer: 1 },
            ),
            // The run of 1 and 3 lies at 8..24.
            (
                vec![fixed(20), good.clone(), good.clone(), fixed(16)],
                run(&[1, 3]),
                InstanceError::FixedClash {
                    first: 0,
                    second: 1,
                },
            ),
            (
                vec![],
                reserved(&[Reserved::always(0, 4), Reserved::always(4, 4)]),
                InstanceError::EmptyRange { range: 1 },
            ),
            (
                vec![],
                reserved(&[Reserved::always(0, 4).during(3, 3)]),
                InstanceError::EmptyRange { range: 0 },
            ),
            (
                vec![good.clone()],
                reserved(&[Reserved::always(0, u64::MAX)]),
                InstanceError::HighRange { range: 0 },
            ),
            (
                vec![good.clone()],
                reserved(&[
                    Reserved::always(0, 4).during(0, 2),
                    Reserved::always(2, 9).during(2, 4),
                    Reserved::always(3, 5).during(1, 3),
                ]),
                InstanceError::RangesClash {
                    first: 0,
                    second: 2,
                },
            ),
            (
                vec![good.clone(), fixed(16)],
                reserved(&[Reserved::always(23, 30)]),
                InstanceError::FixedOnReserved {
                    buffer: 1,
                    range: 0,
                },
            ),
        ];
        for (buffers, rules, expected) in cases {
            assert_eq!(joined(buffers, rules).unwrap_err(), expected);
        }
    }
}
