//! `cargo xtask graphs`: random programs are guarded, planned and checked, and each copy of the guard
//! is taken out alone to see whether it is needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tenure_tests::needless::{Tally, look, random};

/// How the command is called.
pub const USAGE: &str = "usage: cargo xtask graphs [COUNT] [FIRST_SEED]   (1000000 from 0)";

/// How many needless copies are told.
const TOLD: usize = 20;

/// Looks at `COUNT` programs on as many threads as there are cores.
///
/// # Errors
/// When a plan fails its check, or a copy is needless.
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
            let name = format!("seed {}", first.wrapping_add(at));
            match look(&name, &random(first.wrapping_add(at))) {
                Ok(tally) => sum.add(tally),
                Err(error) => {
                    // The others need not go on.
                    next.fetch_max(count, Ordering::Relaxed);
                    return Err(format!("{name}: {error}"));
                }
            }
        }
    };
    let sums: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let panicked =
            |_| Err("a program made the guard, the planner or the check panic".to_owned());
        ended.map(|sum| sum.unwrap_or_else(panicked)).collect()
    });
    let mut sum = Tally::default();
    for tally in sums {
        sum.add(tally?);
    }
    sum.needless.sort();
    println!(
        "{} programs guarded, planned and checked in {:.0?}; {} refused",
        sum.programs,
        start.elapsed(),
        sum.refused
    );
    println!(
        "{} copies: {} that plans cannot do without, {} of variables at a moment, {} by rules alone",
        sum.copies(),
        sum.needed,
        sum.moments,
        sum.by_rule.values().sum::<u64>()
    );
    for (rule, copies) in &sum.by_rule {
        println!("  {copies:>9} {rule}");
    }
    for line in sum.needless.iter().take(TOLD) {
        println!("needless: {line}");
    }
    match sum.needless.len() {
        0 => Ok(()),
        needless => Err(format!("{needless} copies are needless")),
    }
}
