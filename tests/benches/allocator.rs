//! Time of a request and its release from cache: `cargo bench -p tenure-tests --bench allocator`.
//!
//! Prints a table and asserts nothing: machines are shared and noisy. Rounds are shorter than a
//! slice of the scheduler, and of many the fastest counts, which others disturb least.

use std::hint::black_box;
use std::time::Instant;

use tenure_runtime::allocator::{Allocator, Budget, Rules};

const ROUNDS: usize = 1000;
const REQUESTS: u32 = 5000;

/// Nanoseconds of one request with its release: blocks of all sizes in turn, `live` of them at a
/// time.
fn measure(rules: Rules, streams: u32, sizes: &[u64], live: usize) -> f64 {
    let mut memory = Allocator::new(rules, Budget::default(), streams);
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut held = std::collections::VecDeque::with_capacity(live + 1);
        let mut sizes = sizes.iter().cycle();
        let start = Instant::now();
        for _ in 0..REQUESTS {
            let bytes = black_box(*sizes.next().unwrap_or(&1));
            let Ok(block) = memory.alloc(bytes, 0) else {
                return f64::NAN;
            };
            held.push_back(block);
            if held.len() > live
                && let Some(block) = held.pop_front()
                && memory.release(block, 0).is_err()
            {
                return f64::NAN;
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
        for block in held {
            if memory.release(block, 0).is_err() {
                return f64::NAN;
            }
        }
    }
    best * 1e9 / f64::from(REQUESTS)
}

#[expect(clippy::print_stdout, reason = "a program whose output is its purpose")]
fn main() {
    println!(
        "{:<44} {:>10}",
        "a request and its release, from cache", "ns"
    );
    for (name, rules) in [
        ("least memory", Rules::default()),
        ("apart", Rules::apart()),
    ] {
        for (streams, sizes, live) in [
            (1, &[1000_u64][..], 0),
            (1, &[1000, 70_000, 3_000_000], 0),
            (1, &[1000, 70_000, 3_000_000], 16),
            (4, &[1000], 0),
            (4, &[1000, 70_000, 3_000_000], 16),
        ] {
            let nanoseconds = measure(rules, streams, sizes, live);
            let row = format!(
                "{name}, {streams} streams, {} sizes, {live} live",
                sizes.len()
            );
            println!("{row:<44} {nanoseconds:>10.1}");
        }
    }
}
