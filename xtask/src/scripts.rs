//! `cargo xtask scripts`: random scripts for the allocator, judged by an oracle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tenure_tests::scripts::{Tally, run};

/// How the command is called.
pub const USAGE: &str = "usage: cargo xtask scripts [COUNT] [FIRST_SEED]   (1000000 from 0)";

/// Steps of a script: enough to use memory again several times.
const STEPS: usize = 60;

/// Runs `COUNT` scripts on as many threads as there are cores.
///
/// # Errors
/// What the oracle has against the first script that it finds fault with.
pub fn main(options: &[&str]) -> Result<(), String> {
    let number = |at: usize, usual: u64| match options.get(at) {
        None => Ok(usual),
        Some(text) => text.parse().map_err(|_| USAGE.to_owned()),
    };
    let (count, first) = (number(0, 1_000_000)?, number(1, 0)?);
    if options.len() > 2 {
        return Err(USAGE.to_owned());
    }
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut sum = Tally::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(sum);
            }
            let seed = first.wrapping_add(at);
            let streams = 1 + u32::try_from(seed % 5).unwrap_or(0);
            match run(seed, streams, STEPS) {
                Ok(tally) => sum.add(tally),
                Err(error) => {
                    // The others need not go on.
                    next.fetch_max(count, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let sums: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let panicked = |_| Err("a script panicked".to_owned());
        ended.map(|sum| sum.unwrap_or_else(panicked)).collect()
    });
    let mut sum = Tally::default();
    for tally in sums {
        sum.add(tally?);
    }
    println!(
        "{count} scripts of {STEPS} steps on 1 to 5 streams in {:.0?}: no byte with two owners, no leak",
        start.elapsed()
    );
    println!(
        "requests met with memory of old: {}, of those across streams: {}; refused: {}",
        sum.again, sum.across, sum.refused
    );
    Ok(())
}
