//! `cargo xtask graphs`: random programs are guarded, planned and checked, and each copy of the guard
//! is taken out alone to see whether it is needed.

use std::time::Instant;

use crate::seeds::{asked, on_all_cores};
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
    let seeds = asked(options, USAGE)?;
    let start = Instant::now();
    let look = |seed: u64| {
        let name = format!("seed {seed}");
        Ok(look(&name, &random(seed)).unwrap_or_else(|error| Tally {
            wrong: vec![format!("{name}: {error}")],
            ..Tally::default()
        }))
    };
    let panicked = "a program made the guard, the planner or the check panic";
    let mut sum = on_all_cores(seeds, panicked, look, Tally::add)?;
    sum.needless.sort();
    sum.wrong.sort();
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
    for wrong in sum.wrong.iter().take(TOLD) {
        println!("{wrong}");
    }
    match (sum.wrong.len(), sum.needless.len()) {
        (0, 0) => Ok(()),
        (wrong, needless) => Err(format!(
            "{wrong} plans fail their check, {needless} copies are needless"
        )),
    }
}
