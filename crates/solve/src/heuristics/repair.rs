//! Window repair: what is around a place that is too high is taken out and placed again, between all
//! else, which stays.
//!
//! On large instances a placement is too high at few moments. Each of them concerns some hundred
//! buffers, and there a dive or a greedy order that starts anew often does better than the pass over
//! everything did (large neighbourhood search: Shaw, 1998).

use std::cmp::Reverse;

use crate::budget::{Budget, Exhausted, Stop};
use crate::dive::{Dive, Target};
use crate::heuristics::order::{self, Order};
use crate::heuristics::{Fit, greedy};
use crate::instance::{Instance, Piece};
use crate::sorting;

/// Buffers in a window, those that stay included. Larger ones cost more than they give.
const MOST_IN_WINDOW: usize = 1 << 16;

/// Buffers that are looked at to find those of a window.
const MOST_LOOKS: usize = 1 << 18;

/// How often a window that stays too high is made wider.
const MOST_WIDENINGS: usize = 6;

/// How a window is placed, one after the other until it is low enough: by dives, and greedily, which
/// can fill holes between what stays.
const WAYS: [(Order, bool); 8] = [
    (Order::Area, true),
    (Order::LoadSize, true),
    (Order::Size, true),
    (Order::LoadArea, true),
    (Order::Area, false),
    (Order::LoadSize, false),
    (Order::Size, false),
    (Order::LoadArea, false),
];

/// Lowers what ends above `aim`, window by window. What is done within the limits counts.
pub(crate) fn lower(
    instance: &Instance,
    offsets: &mut [u64],
    aim: u64,
    budget: &mut Budget<'_>,
) -> Result<(), Exhausted> {
    let by_start = ByStart::new(instance, budget.stop())?;
    budget.spend(8 * instance.len() as u64)?;
    let mut aim = aim;
    loop {
        let height = instance.height_of(offsets);
        if height <= aim {
            return Ok(());
        }
        // Half of the way, so that windows stay few as long as much is too high.
        let half = aim + (height - aim) / 2;
        let end = |offsets: &[u64], i: usize| offsets[i] + instance.buffers()[i].size;
        let has_pieces = |i: &usize| !instance.pieces(*i).is_empty();
        // The highest first: what cannot be lowered there need not be lower elsewhere.
        let mut high: Vec<(Reverse<u64>, usize)> = (instance.own().filter(has_pieces))
            .filter(|&i| end(offsets, i) > half)
            .map(|i| (Reverse(end(offsets, i)), i))
            .collect();
        budget.spend(4 * instance.len() as u64)?;
        sorting::sort(&mut high, budget.stop())?;
        for (_, buffer) in high {
            let goal = half.max(aim);
            if end(offsets, buffer) > goal {
                let top = repair(instance, &by_start, offsets, buffer, goal, budget)?;
                if top > goal {
                    aim = aim.max(top);
                }
            }
        }
    }
}

/// Buffers by the section in which they begin.
struct ByStart {
    sorted: Vec<(u32, u32)>,
    /// For each section, where the earliest of those begins that are alive in it.
    earliest: Vec<u32>,
}

impl ByStart {
    fn new(instance: &Instance, stop: &Stop<'_>) -> Result<Self, Exhausted> {
        let hulls = (0u32..).zip(0..instance.len());
        let hulls = hulls.filter_map(|(id, i)| Some((id, instance.hull(i)?)));
        let mut sorted: Vec<(u32, u32)> = hulls.clone().map(|(id, h)| (h.lower, id)).collect();
        sorting::sort(&mut sorted, stop)?;
        let mut earliest: Vec<u32> = (0u32..).take(instance.sections()).collect();
        for (_, hull) in hulls {
            let last = &mut earliest[hull.upper as usize - 1];
            *last = (*last).min(hull.lower);
        }
        for section in (1..earliest.len()).rev() {
            earliest[section - 1] = earliest[section - 1].min(earliest[section]);
        }
        Ok(ByStart { sorted, earliest })
    }

    /// The buffers that meet some sections; `None` when there are too many to look at.
    fn meeting(
        &self,
        instance: &Instance,
        span: Piece,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Vec<u32>>, Exhausted> {
        let Some(&from) = self.earliest.get(span.lower as usize) else {
            return Ok(None);
        };
        let first = self.sorted.partition_point(|&(lower, _)| lower < from);
        let end = self
            .sorted
            .partition_point(|&(lower, _)| lower < span.upper);
        if end - first > MOST_LOOKS {
            return Ok(None);
        }
        budget.spend((end - first) as u64)?;
        let all = self.sorted[first..end].iter().map(|&(_, id)| id);
        let meets = |&id: &u32| {
            let hull = instance.hull(id as usize);
            hull.is_some_and(|hull| hull.upper > span.lower)
        };
        Ok(Some(all.filter(meets).collect()))
    }
}

/// Places what meets a buffer again, and more around it if need be; gives how high it ends then.
fn repair(
    instance: &Instance,
    by_start: &ByStart,
    offsets: &mut [u64],
    buffer: usize,
    goal: u64,
    budget: &mut Budget<'_>,
) -> Result<u64, Exhausted> {
    let mut top = offsets[buffer] + instance.buffers()[buffer].size;
    let Some(mut span) = instance.hull(buffer) else {
        return Ok(top);
    };
    for _ in 0..MOST_WIDENINGS {
        let Some(around) = by_start.meeting(instance, span, budget)? else {
            return Ok(top);
        };
        let is_free = |id: &u32| {
            let i = *id as usize;
            instance.own().contains(&i) && instance.buffers()[i].offset.is_none()
        };
        let mut free: Vec<u32> = around.iter().copied().filter(is_free).collect();
        free.sort_unstable();
        let hulls = free.iter().filter_map(|&id| instance.hull(id as usize));
        let wide = hulls.fold(span, |a, b| Piece {
            lower: a.lower.min(b.lower),
            upper: a.upper.max(b.upper),
        });
        let Some(near) = by_start.meeting(instance, wide, budget)? else {
            return Ok(top);
        };
        budget.spend(16 * near.len() as u64)?;
        if near.len() > MOST_IN_WINDOW {
            return Ok(top);
        }
        let part: Vec<usize> = near.iter().map(|&id| id as usize).collect();
        let mut inner = instance.part(&part);
        let is_in = |id: &u32| free.binary_search(id).is_ok();
        let is_inner: Vec<bool> = near.iter().map(is_in).collect();
        top = 0;
        for (k, &i) in part.iter().enumerate() {
            if is_inner[k] {
                top = top.max(offsets[i] + instance.buffers()[i].size);
            } else {
                inner.fix(k, offsets[i]);
            }
        }
        let dive = Dive::new(&inner, budget.stop())?;
        for (order, greedily) in WAYS {
            budget.spend(64 * near.len() as u64)?;
            let ranked = order::sorted(&inner, order, budget.stop())?;
            let target = Target {
                height: goal,
                give_up: top,
            };
            let placed = match greedily {
                true => Some(greedy::place(&inner, &ranked, Fit::First, budget)?),
                false => dive.run(&ranked, target, budget)?,
            };
            let Some(placed) = placed else { continue };
            let ends = (0..near.len()).filter(|&k| is_inner[k]);
            let end = ends.map(|k| placed[k] + inner.buffers()[k].size).max();
            let end = end.unwrap_or(0);
            if end < top {
                top = end;
                for (k, &i) in part.iter().enumerate() {
                    offsets[i] = placed[k];
                }
            }
            if top <= goal {
                return Ok(top);
            }
        }
        span = wide;
    }
    Ok(top)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds;
    use crate::heuristics::sweep;
    use crate::instance::Buffer;
    use crate::validate;

    /// Random buffers, some of them aligned, some lent out for a while, a few where they must be.
    fn random(seed: u64, count: usize) -> Instance {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut fixed = 0;
        for _ in 0..count {
            let born = rng.u64(..2 * count as u64);
            let dies = born + (1 << rng.u64(2..9)) + rng.u64(..4);
            let mut buffer = Buffer::new(rng.u64(1..5000), born, dies);
            match rng.u8(..10) {
                0 => buffer = buffer.with_alignment(1 << rng.u32(..10)),
                1 => buffer = buffer.with_gap(born + 1, born + 3),
                2 if rng.u8(..20) == 0 => {
                    buffer = buffer.with_offset(fixed);
                    fixed += buffer.size;
                }
                _ => {}
            }
            buffers.push(buffer);
        }
        Instance::new(buffers).unwrap()
    }

    #[test]
    fn a_repaired_placement_is_one_and_never_higher() {
        let (mut before, mut after) = (0, 0);
        for seed in 0..6 {
            let instance = random(seed, 400);
            let mut offsets = sweep::place(&instance);
            let first = instance.height_of(&offsets);
            let aim = bounds::bounds(&instance).lower_bound;
            let stop = Stop::new(None, None);
            // Wherever it is cut, what is there then holds.
            let steps = [u64::MAX, 30_000, 300_000][usize::try_from(seed % 3).unwrap()];
            let mut budget = Budget::new(steps, &stop);
            let _cut = lower(&instance, &mut offsets, aim, &mut budget);
            assert_eq!(
                validate::validate(&instance, &offsets, None),
                Ok(()),
                "{seed}"
            );
            let last = instance.height_of(&offsets);
            assert!(last <= first, "{seed}: {first} {last}");
            (before, after) = (before + first, after + last);
        }
        assert!(after < before, "{before} {after}");
    }
}
