//! The orders in which the greedy placements take the buffers.

use std::cmp::Reverse;

use crate::bounds;
use crate::budget::{Exhausted, Stop};
use crate::instance::Instance;
use crate::sorting;

/// A rule by which buffers are sorted; ties fall to the larger size, then to the earlier birth,
/// then to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// Earliest birth first.
    Birth,
    /// Largest size first.
    Size,
    /// Largest size times duration first.
    Area,
    /// Longest duration first.
    Duration,
    /// Most buffers alive together with it first.
    Conflicts,
    /// Highest load during its life, plus its size, first.
    LoadSize,
    /// Highest load during its life first, then largest area.
    LoadArea,
    /// Highest load during its life first, then longest duration.
    LoadDuration,
    /// Latest death first, then longest duration.
    Death,
}

impl Order {
    /// All orders, in the order in which the portfolio tries them.
    pub const ALL: [Order; 9] = [
        Order::Area,
        Order::LoadArea,
        Order::LoadSize,
        Order::Birth,
        Order::Size,
        Order::Conflicts,
        Order::Duration,
        Order::LoadDuration,
        Order::Death,
    ];

    /// The word in the names of strategies.
    pub fn name(self) -> &'static str {
        match self {
            Order::Birth => "birth",
            Order::Size => "size",
            Order::Area => "area",
            Order::Duration => "duration",
            Order::Conflicts => "conflicts",
            Order::LoadSize => "load-size",
            Order::LoadArea => "load-area",
            Order::LoadDuration => "load-duration",
            Order::Death => "death",
        }
    }
}

/// The indices of the buffers that have pieces, sorted by `order`; O(n log n).
pub(crate) fn sorted(
    instance: &Instance,
    order: Order,
    stop: &Stop<'_>,
) -> Result<Vec<u32>, Exhausted> {
    stop.look()?;
    let buffers = instance.buffers();
    let size = |index: usize| u128::from(buffers[index].size);
    let birth = |index: usize| instance.hull(index).map_or(0, |hull| hull.lower);
    let with = |key: &dyn Fn(usize) -> (u128, u128)| by_key(instance, key, stop);
    match order {
        Order::Birth => with(&|index| (u128::from(u32::MAX - birth(index)), 0)),
        Order::Death => with(&|index| {
            let death = instance.hull(index).map_or(0, |hull| hull.upper);
            (u128::from(death), duration(instance, index))
        }),
        Order::Size => with(&|index| (size(index), 0)),
        Order::Area => with(&|index| (area(instance, index), 0)),
        Order::Duration => with(&|index| (duration(instance, index), 0)),
        Order::Conflicts => {
            let counts = conflicts(instance);
            with(&|index| (counts[index], 0))
        }
        Order::LoadSize => {
            let loads = peak_loads(instance);
            with(&|index| (u128::from(loads[index]) + size(index), 0))
        }
        Order::LoadDuration => {
            let loads = peak_loads(instance);
            with(&|index| (u128::from(loads[index]), duration(instance, index)))
        }
        Order::LoadArea => {
            let loads = peak_loads(instance);
            with(&|index| (u128::from(loads[index]), area(instance, index)))
        }
    }
}

/// The indices of the buffers that have pieces, the largest key first.
fn by_key(
    instance: &Instance,
    key: &dyn Fn(usize) -> (u128, u128),
    stop: &Stop<'_>,
) -> Result<Vec<u32>, Exhausted> {
    let keyed = (0u32..)
        .zip(instance.buffers())
        .filter_map(|(name, buffer)| {
            let birth = instance.hull(name as usize)?.lower;
            let key = key(name as usize);
            Some((Reverse(key), Reverse(buffer.size), birth, name))
        });
    let mut keyed: Vec<_> = keyed.collect();
    sorting::sort(&mut keyed, stop)?;
    Ok(keyed.into_iter().map(|(.., name)| name).collect())
}

/// The order with each element moved back by fewer than `distance` places at random (at least 2).
pub(crate) fn disturbed(order: &[u32], distance: usize, random: &mut fastrand::Rng) -> Vec<u32> {
    let distance = distance.max(2);
    let moved = (0..order.len()).map(|place| place + random.usize(0..distance));
    let moved: Vec<usize> = moved.collect();
    // Sorted by counting: places are few.
    let mut next = vec![0usize; order.len() + distance];
    for &place in &moved {
        next[place + 1] += 1;
    }
    for place in 1..next.len() {
        next[place] += next[place - 1];
    }
    let mut disturbed = vec![0; order.len()];
    for (&buffer, &place) in order.iter().zip(&moved) {
        disturbed[next[place]] = buffer;
        next[place] += 1;
    }
    disturbed
}

fn per_buffer<T>(instance: &Instance, key: impl FnMut(usize) -> T) -> Vec<T> {
    (0..instance.len()).map(key).collect()
}

/// Number of sections in which the buffer is alive.
fn duration(instance: &Instance, buffer: usize) -> u128 {
    let pieces = instance.pieces(buffer).iter();
    pieces
        .map(|piece| u128::from(piece.upper - piece.lower))
        .sum()
}

fn area(instance: &Instance, buffer: usize) -> u128 {
    duration(instance, buffer) * u128::from(instance.buffers()[buffer].size)
}

/// Number of pieces that share a section with each buffer: those born before it dies less those
/// dead before it is born. A neighbour that meets several of its pieces counts several times.
fn conflicts(instance: &Instance) -> Vec<u128> {
    let sections = instance.sections();
    let mut born_before = vec![0u32; sections + 2];
    let mut dead_before = vec![0u32; sections + 2];
    for piece in instance.all_pieces() {
        born_before[piece.lower as usize + 1] += 1;
        dead_before[piece.upper as usize] += 1;
    }
    for section in 1..sections + 2 {
        born_before[section] += born_before[section - 1];
        dead_before[section] += dead_before[section - 1];
    }
    per_buffer(instance, |index| {
        let pieces = instance.pieces(index).iter();
        pieces
            .map(|piece| {
                let born = born_before[piece.upper as usize];
                u128::from(born - dead_before[piece.lower as usize])
            })
            .sum()
    })
}

/// The highest load of a section in which each buffer is alive; 0 for size 0.
fn peak_loads(instance: &Instance) -> Vec<u64> {
    let maxima = RangeMaxima::new(bounds::section_loads(instance));
    per_buffer(instance, |index| {
        let pieces = instance.pieces(index).iter();
        pieces
            .map(|piece| maxima.query(piece.lower as usize, piece.upper as usize))
            .max()
            .unwrap_or(0)
    })
}

/// Range maxima over a list that does not change: a segment tree in one array.
struct RangeMaxima {
    leaves: usize,
    tree: Vec<u64>,
}

impl RangeMaxima {
    fn new(values: Vec<u64>) -> Self {
        let leaves = values.len();
        let mut tree = vec![0; leaves];
        tree.extend(values);
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        RangeMaxima { leaves, tree }
    }

    fn query(&self, lower: usize, upper: usize) -> u64 {
        let (mut lower, mut upper) = (lower + self.leaves, upper + self.leaves);
        let mut maximum = 0;
        while lower < upper {
            if lower % 2 == 1 {
                maximum = maximum.max(self.tree[lower]);
                lower += 1;
            }
            if upper % 2 == 1 {
                upper -= 1;
                maximum = maximum.max(self.tree[upper]);
            }
            lower /= 2;
            upper /= 2;
        }
        maximum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Buffer;

    #[test]
    fn each_order_sorts_by_its_rule() {
        // Sizes, durations and loads all rank the four differently.
        let instance = Instance::new(vec![
            Buffer::new(10, 0, 9),
            Buffer::new(40, 1, 2),
            Buffer::new(0, 0, 9),
            Buffer::new(15, 2, 6),
            Buffer::new(38, 7, 8),
        ])
        .unwrap();
        let cases = [
            (Order::Birth, [1, 0, 3, 4]),
            (Order::Size, [1, 4, 3, 0]),
            (Order::Area, [1, 4, 0, 3]),
            (Order::Duration, [0, 1, 4, 3]),
            (Order::Conflicts, [0, 1, 4, 3]),
            (Order::LoadSize, [1, 4, 0, 3]),
            (Order::LoadArea, [1, 0, 4, 3]),
        ];
        for (order, expected) in cases {
            let sorted = sorted(&instance, order, &Stop::new(None, None));
            assert_eq!(sorted, Ok(expected.to_vec()), "{order:?}");
        }
    }

    #[test]
    fn conflicts_count_pieces_that_share_a_section() {
        let instance = Instance::new(vec![
            Buffer::new(1, 0, 10).with_gap(2, 8),
            Buffer::new(1, 3, 5),
            Buffer::new(1, 0, 4),
        ])
        .unwrap();
        // Each buffer meets itself too; the first meets its two pieces and the third buffer.
        assert_eq!(conflicts(&instance), [3, 2, 3]);
    }
}
