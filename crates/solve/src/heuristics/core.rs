//! The core first: a dive places the buffers that are alive in heavy sections, and the others fill
//! in around them.
//!
//! Only sections whose load is near the target can make it hard to reach; on large instances they
//! are few, and most buffers never meet one.

use crate::bounds;
use crate::budget::{Budget, Exhausted};
use crate::dive::{Dive, Target};
use crate::heuristics::fill;
use crate::heuristics::order::{self, Order};
use crate::instance::Instance;

/// A section is heavy when its load is above this share of the target, in percent; tried in turn
/// until the others fit in.
const SHARES: [u64; 4] = [97, 90, 65, 50];

/// Larger cores are not tried: a dive on all buffers costs little more.
const MAX_CORE: usize = 100_000;

/// Returns the best placement over all shares, or `None` when none is below `target.give_up`.
pub(crate) fn place(
    instance: &Instance,
    order: Order,
    target: Target,
    budget: &mut Budget<'_>,
) -> Result<Option<Vec<u64>>, Exhausted> {
    if instance.is_coarse() {
        // What the core shares bytes in would clash in the whole.
        return Ok(None);
    }
    let loads = bounds::section_loads(instance);
    let mut best: Option<(u64, Vec<u64>)> = None;
    let mut last_core = 0;
    for share in SHARES {
        let heavy = target.height / 100 * share;
        budget.spend(2 * (instance.sections() + instance.len()) as u64)?;
        let core = alive_in(instance, &loads, |load| load > heavy);
        // A core that is hardly larger than the last one leaves as much to be filled in.
        if core.len() <= last_core + last_core / 4 {
            continue;
        }
        if core.len() > MAX_CORE {
            break;
        }
        last_core = core.len();
        let give_up = best.as_ref().map_or(target.give_up, |(height, _)| *height);
        let target = Target { give_up, ..target };
        match around_core(instance, &core, order, target, budget) {
            Ok(Some(Placement { core, all, offsets })) => {
                if all < give_up {
                    best = Some((all, offsets));
                }
                // A larger core helps where the others did not fit in, and hardly ever where the
                // core itself is what is high.
                if all == core {
                    break;
                }
            }
            Ok(None) => break,
            // What was found within the limits counts.
            Err(Exhausted) if best.is_some() => break,
            Err(Exhausted) => return Err(Exhausted),
        }
    }
    Ok(best.map(|(_, offsets)| offsets))
}

/// What came of one share.
struct Placement {
    /// Height of the core alone.
    core: u64,
    /// Height with the others.
    all: u64,
    offsets: Vec<u64>,
}

/// Dives on the core and fills in the others.
fn around_core(
    instance: &Instance,
    core: &[usize],
    order: Order,
    target: Target,
    budget: &mut Budget<'_>,
) -> Result<Option<Placement>, Exhausted> {
    let inner = instance.part(core);
    budget.spend(16 * core.len() as u64)?;
    let dive = Dive::new(&inner, budget.stop())?;
    let ranked = order::sorted(&inner, order, budget.stop())?;
    let Some(placed_core) = dive.run(&ranked, target, budget)? else {
        return Ok(None);
    };
    let core_height = inner.height_of(&placed_core);
    let buffers = instance.buffers().iter();
    let mut placed: Vec<bool> = buffers.map(|buffer| buffer.offset.is_some()).collect();
    let mut offsets: Vec<u64> = instance
        .buffers()
        .iter()
        .map(|buffer| buffer.offset.unwrap_or(0))
        .collect();
    for (&buffer, offset) in core.iter().zip(placed_core) {
        placed[buffer] = true;
        offsets[buffer] = offset;
    }
    fill::place(instance, &placed, &mut offsets, budget)?;
    Ok(Some(Placement {
        core: core_height,
        all: instance.height_of(&offsets),
        offsets,
    }))
}

/// The buffers that are alive in a section whose load is `chosen`, and all that are fixed.
fn alive_in(instance: &Instance, loads: &[u64], chosen: impl Fn(u64) -> bool) -> Vec<usize> {
    let mut before = Vec::with_capacity(loads.len() + 1);
    let mut count = 0u32;
    before.push(count);
    for &load in loads {
        count += u32::from(chosen(load));
        before.push(count);
    }
    let buffers = instance.buffers();
    let meets = |&buffer: &usize| {
        let mut pieces = instance.pieces(buffer).iter();
        pieces.any(|piece| {
            let fixed = buffers[buffer].offset.is_some();
            fixed || before[piece.lower as usize] < before[piece.upper as usize]
        })
    };
    (0..instance.len()).filter(meets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Stop;
    use crate::instance::Buffer;
    use crate::validate;

    #[test]
    fn others_fill_in_around_the_core_and_what_is_fixed() {
        let mut buffers = vec![
            Buffer::new(60, 0, 10),
            Buffer::new(40, 4, 6),
            Buffer::new(30, 5, 20),
            Buffer::new(10, 12, 13).with_offset(0),
        ];
        buffers.extend((0..8).map(|at| Buffer::new(10, 12 + at, 14 + at)));
        let instance = Instance::new(buffers).unwrap();
        let stop = Stop::new(None, None);
        let mut budget = Budget::new(u64::MAX, &stop);
        let target = Target {
            height: 130,
            give_up: u64::MAX,
        };
        let offsets = place(&instance, Order::Area, target, &mut budget);
        let offsets = offsets.unwrap().unwrap();
        assert_eq!(instance.height_of(&offsets), 130);
        validate::validate(&instance, &offsets, Some(130)).unwrap();
    }
}
