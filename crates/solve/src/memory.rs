//! How much memory a search may need, known before it allocates.
//!
//! The estimate adds up what the structures of the search hold for each buffer, live interval and
//! section, for each thread, and what the exact search holds for each pair of buffers of a part. It
//! is meant to lie above what is used, by a small factor; `tests/memory.rs` compares the two.

use crate::exact::MAX_MEMBERS;
use crate::instance::Instance;
use crate::solution::Config;

/// Bytes for each buffer: placements, orders and their keys, events, free places.
const PER_BUFFER: Share = Share {
    once: 96,
    thread: 128,
};

/// Bytes for each live interval: who is alive when.
const PER_PIECE: Share = Share {
    once: 40,
    thread: 64,
};

/// Bytes for each section: the trees of loads and tops.
const PER_SECTION: Share = Share {
    once: 144,
    thread: 160,
};

/// Bytes for each pair of buffers of a part in the exact search: neighbours and sections.
const PER_PAIR: u64 = 16;

/// Bytes in any case.
const BASE: u64 = 1 << 20;

/// What is held once, and what each thread holds.
struct Share {
    once: u64,
    thread: u64,
}

impl Share {
    fn of(&self, threads: u64) -> u64 {
        self.thread
            .saturating_mul(threads)
            .saturating_add(self.once)
    }
}

/// The most bytes that [`solve`](crate::solve) may take beyond the instance, as an estimate.
///
/// ```
/// use tenure_solve::{Buffer, Config, Instance, memory, solve};
///
/// let instance = Instance::new((0..100).map(|at| Buffer::new(8, at, at + 9)).collect())?;
/// let needed = memory::estimate(&instance, &Config::default());
/// let config = Config { memory: Some(needed - 1), ..Config::default() };
/// assert!(solve(&instance, &config).is_err());
/// let config = Config { memory: Some(needed), ..Config::default() };
/// assert!(solve(&instance, &config).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn estimate(instance: &Instance, config: &Config) -> u64 {
    let instance = instance.plain();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let threads = match cfg!(feature = "threads") {
        true => count(config.threads.get()),
        false => 1,
    };
    let pairs = count(instance.len().min(MAX_MEMBERS)).pow(2);
    let shares = [
        (count(instance.len()), PER_BUFFER.of(threads)),
        (count(instance.all_pieces().len()), PER_PIECE.of(threads)),
        (count(instance.sections()), PER_SECTION.of(threads)),
        (pairs, threads.saturating_mul(PER_PAIR)),
    ];
    let bytes = shares.map(|(number, bytes)| number.saturating_mul(bytes));
    bytes.into_iter().fold(BASE, u64::saturating_add)
}
