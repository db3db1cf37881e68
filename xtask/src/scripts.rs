//! `cargo xtask scripts`: random scripts for the allocator, judged by an oracle.

use std::time::Instant;

use crate::seeds::{asked, on_all_cores};
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
    let seeds = asked(options, USAGE)?;
    let count = seeds.0;
    let start = Instant::now();
    let look = |seed: u64| {
        let streams = 1 + u32::try_from(seed % 5).unwrap_or(0);
        run(seed, streams, STEPS)
    };
    let sum = on_all_cores(seeds, "a script panicked", look, Tally::add)?;
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
