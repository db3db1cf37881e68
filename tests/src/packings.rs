//! Buffers to be placed: those of a table, and families made from a seed, on which the solver is
//! measured beside files.

use fastrand::Rng;
use tenure_formats::csv;
use tenure_solve::{Buffer, Span};

/// The rows of an allocation CSV as buffers.
#[must_use]
pub fn of_table(table: &csv::Table) -> Vec<Buffer> {
    let buffers = table.rows().iter().map(|row| Buffer {
        size: row.size,
        alignment: row.alignment,
        lower: row.lower,
        upper: row.upper,
        gaps: row
            .gaps
            .iter()
            .map(|&(lower, upper)| Span { lower, upper })
            .collect(),
        offset: row.offset,
    });
    buffers.collect()
}

/// Random buffers as they come in large programs: the logarithm of the duration is uniform over
/// ten octaves, births are uniform over twice as many steps as there are buffers, so that about 77
/// are alive at a time, sizes are log-uniform between 64 bytes and 1 MiB, in multiples of 64.
#[must_use]
pub fn random(count: usize, seed: u64) -> Vec<Buffer> {
    let mut rng = Rng::with_seed(seed);
    (0..count).map(|_| random_buffer(&mut rng, count)).collect()
}

fn random_buffer(rng: &mut Rng, count: usize) -> Buffer {
    let base = 1 << rng.u32(0..=9);
    let lower = rng.u64(0..2 * count.max(1) as u64);
    let upper = lower + base + rng.u64(0..base);
    Buffer::new(log_uniform(rng, 6, 20) / 64 * 64, lower, upper)
}

/// A number whose logarithm is uniform between two powers of two.
fn log_uniform(rng: &mut Rng, from: u32, to: u32) -> u64 {
    let log = f64::from(from) + f64::from(to - from) * rng.f64();
    let (octave, rest) = (log.floor(), log.fract());
    // The fraction in 2^-20: `exp2` of it lies between 1 and 2.
    let mantissa = (rest.exp2() * f64::from(1 << 20)).floor();
    // Both are small positive integers by construction.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an exponent below 64 and a mantissa below 2^21"
    )]
    let (octave, mantissa) = (octave as u32, mantissa as u64);
    (mantissa << octave) >> 20
}

/// Random buffers that have to lie at multiples of anything from 1 byte to 4 KiB, of sizes that are
/// multiples of nothing.
#[must_use]
pub fn aligned(count: usize, seed: u64) -> Vec<Buffer> {
    let mut rng = Rng::with_seed(seed);
    let buffers = (0..count).map(|_| {
        let buffer = random_buffer(&mut rng, count);
        let size = buffer.size + rng.u64(0..64);
        let alignment = 1 << rng.u32(0..=12);
        Buffer { size, ..buffer }.with_alignment(alignment)
    });
    buffers.collect()
}

/// Buffers of which about half are alive together at any time, of sizes up to 1000 bytes.
#[must_use]
pub fn dense(count: usize, seed: u64) -> Vec<Buffer> {
    const STEPS: u64 = 100;
    let mut rng = Rng::with_seed(seed);
    let buffers = (0..count).map(|_| {
        let (one, other) = (rng.u64(0..STEPS), rng.u64(0..STEPS));
        let (lower, upper) = (one.min(other), one.max(other) + 1);
        Buffer::new(rng.u64(1..=1000), lower, upper)
    });
    buffers.collect()
}

/// How a rectangle is cut into smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// In two, from edge to edge.
    Guillotine,
    /// In five: four round one in the middle, which no cut from edge to edge can part.
    Pinwheel,
}

/// The height of every [`tiling`] in bytes.
pub const TILING_HEIGHT: u64 = 1 << 20;

/// Steps over which a [`tiling`] goes.
const TILING_STEPS: u64 = 4096;

/// Buffers that fill a rectangle of time and bytes without a gap: they fit into
/// [`TILING_HEIGHT`] bytes and into no less, and a placement that reaches it wastes nothing. They
/// come in random order. `pieces` is what is made, or a little less when there is no room for more
/// cuts.
#[must_use]
pub fn tiling(pieces: usize, cuts: Cuts, seed: u64) -> Vec<Buffer> {
    let mut rng = Rng::with_seed(seed);
    let mut tiles = vec![Tile {
        lower: 0,
        upper: TILING_STEPS,
        bottom: 0,
        top: TILING_HEIGHT,
    }];
    // A tile too thin to be cut is a wasted try.
    for _ in 0..20 * pieces {
        let missing = pieces.saturating_sub(tiles.len());
        if missing == 0 {
            break;
        }
        let chosen = rng.usize(0..tiles.len());
        // The larger of two, so that sizes do not drift apart too far.
        let other = rng.usize(0..tiles.len());
        let chosen = [chosen, other]
            .into_iter()
            .max_by_key(|&tile| tiles[tile].area())
            .unwrap_or(chosen);
        let cut = match cuts {
            Cuts::Pinwheel if missing >= 4 => tiles[chosen].pinwheel(&mut rng),
            _ => tiles[chosen].halves(&mut rng),
        };
        if let Some(parts) = cut {
            tiles.swap_remove(chosen);
            tiles.extend(parts);
        }
    }
    rng.shuffle(&mut tiles);
    let buffer = |tile: Tile| Buffer::new(tile.top - tile.bottom, tile.lower, tile.upper);
    tiles.into_iter().map(buffer).collect()
}

/// A rectangle of time and bytes.
#[derive(Clone, Copy)]
struct Tile {
    lower: u64,
    upper: u64,
    bottom: u64,
    top: u64,
}

impl Tile {
    fn area(&self) -> u64 {
        (self.upper - self.lower) * (self.top - self.bottom)
    }

    fn halves(self, rng: &mut Rng) -> Option<Vec<Tile>> {
        Some(if rng.bool() {
            let at = between(rng, self.lower, self.upper)?;
            vec![Tile { upper: at, ..self }, Tile { lower: at, ..self }]
        } else {
            let at = between(rng, self.bottom, self.top)?;
            vec![Tile { top: at, ..self }, Tile { bottom: at, ..self }]
        })
    }

    fn pinwheel(self, rng: &mut Rng) -> Option<Vec<Tile>> {
        let x = between(rng, self.lower, self.upper)?;
        let y = between(rng, self.bottom, self.top)?;
        let (left, right) = ordered(x, between(rng, self.lower, self.upper)?)?;
        let (low, high) = ordered(y, between(rng, self.bottom, self.top)?)?;
        let tile = |lower, upper, bottom, top| Tile {
            lower,
            upper,
            bottom,
            top,
        };
        Some(vec![
            tile(self.lower, right, self.bottom, low),
            tile(right, self.upper, self.bottom, high),
            tile(left, self.upper, high, self.top),
            tile(self.lower, left, low, self.top),
            tile(left, right, low, high),
        ])
    }
}

/// A place in the middle three fifths; `None` when there is no room.
fn between(rng: &mut Rng, from: u64, to: u64) -> Option<u64> {
    let fifth = (to - from) / 5;
    let (from, to) = (from + fifth.max(1), to - fifth.max(1));
    (from <= to).then(|| rng.u64(from..=to))
}

fn ordered(a: u64, b: u64) -> Option<(u64, u64)> {
    (a != b).then(|| (a.min(b), a.max(b)))
}

#[cfg(test)]
mod tests {
    use tenure_solve::{Config, Instance, bounds, solve};

    use super::*;

    #[test]
    fn tilings_are_full_at_every_step_and_fit() {
        for cuts in [Cuts::Guillotine, Cuts::Pinwheel] {
            for (pieces, seed) in [(1, 0), (5, 1), (60, 2), (203, 3), (1000, 4)] {
                let buffers = tiling(pieces, cuts, seed);
                assert_eq!(buffers.len(), pieces, "{cuts:?}");
                let area = |buffer: &Buffer| (buffer.upper - buffer.lower) * buffer.size;
                let sum: u64 = buffers.iter().map(area).sum();
                assert_eq!(sum, TILING_STEPS * TILING_HEIGHT, "{cuts:?} {pieces}");
                // No step has more than the height, so by the area none has less.
                let bound = bounds::bounds(&Instance::new(buffers).unwrap());
                assert_eq!(bound.max_load, TILING_HEIGHT, "{cuts:?} {pieces}");
            }
        }
    }

    #[test]
    fn a_small_tiling_is_put_together_again() {
        for cuts in [Cuts::Guillotine, Cuts::Pinwheel] {
            let instance = Instance::new(tiling(20, cuts, 5)).unwrap();
            let solution = solve(&instance, &Config::default()).unwrap();
            assert_eq!(solution.height, TILING_HEIGHT, "{cuts:?}");
        }
    }

    #[test]
    fn sizes_and_durations_are_spread_over_their_octaves() {
        let buffers = random(10_000, 1);
        let octaves = |value: fn(&Buffer) -> u64| {
            let mut counts = [0; 64];
            buffers
                .iter()
                .for_each(|b| counts[value(b).ilog2() as usize] += 1);
            counts
        };
        let sizes = octaves(|buffer| buffer.size);
        assert!(
            sizes[6..20].iter().all(|count| (550..900).contains(count)),
            "{sizes:?}"
        );
        assert!(
            sizes[..6]
                .iter()
                .chain(&sizes[20..])
                .all(|&count| count == 0)
        );
        let durations = octaves(|buffer| buffer.upper - buffer.lower);
        assert!(
            durations[..10]
                .iter()
                .all(|count| (850..1150).contains(count)),
            "{durations:?}"
        );
        assert!(buffers.iter().all(|buffer| buffer.size.is_multiple_of(64)));
    }

    #[test]
    fn the_same_seed_gives_the_same_buffers() {
        for family in [random, aligned, dense] {
            assert_eq!(family(50, 7), family(50, 7));
            assert_ne!(family(50, 7), family(50, 8));
        }
    }
}
