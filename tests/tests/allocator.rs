//! The allocator under random scripts, for a second; `cargo xtask scripts` goes on for longer.

use std::time::{Duration, Instant};

use tenure_runtime::allocator::{Allocator, Budget, Rules};
use tenure_tests::scripts;

#[test]
fn no_byte_has_two_owners_and_none_is_lost() {
    let start = Instant::now();
    let mut sum = scripts::Tally::default();
    let mut seed = 0;
    while seed < 500 || start.elapsed() < Duration::from_secs(1) {
        let streams = 1 + u32::try_from(seed % 5).unwrap();
        sum.add(scripts::run(seed, streams, 60).unwrap());
        seed += 1;
    }
    // Scripts that never use memory again would show nothing.
    assert!(
        sum.again > seed && sum.across > seed / 10 && sum.refused > seed / 10,
        "{sum:?}"
    );
}

#[test]
fn more_streams_than_a_word_has_bits() {
    for seed in 0..5 {
        scripts::run(seed, 130, 600).unwrap();
    }
}

/// Blocks of many sizes that come and go on a device that is a little larger than what is held:
/// with compaction when a request is refused, and once more then, few requests fail.
#[test]
fn compaction_makes_room_over_a_hundred_thousand_requests() {
    let plain = soak(false);
    let compacted = soak(true);
    assert!(plain.refused > 100, "{plain:?}");
    assert!(
        compacted.refused * 10 < plain.refused,
        "{plain:?} {compacted:?}"
    );
    // Each refused request costs a compaction, which copies what is in its way and no more.
    assert!(
        compacted.copied < compacted.compactions * SOAK_DEVICE / 2,
        "{compacted:?}"
    );
}

const SOAK_DEVICE: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Soak {
    refused: u64,
    compactions: u64,
    copied: u64,
}

fn soak(compacts: bool) -> Soak {
    let rules = Rules {
        segment_bytes: 64 << 10,
        ..Rules::default()
    };
    let mut memory = Allocator::new(rules, Budget::new(Some(SOAK_DEVICE)), 1);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut held = Vec::new();
    let mut result = Soak::default();
    for _ in 0..100_000 {
        let most = 1 << rng.u32(9..16);
        let bytes = rng.u64(1..most);
        while memory.held() + bytes > SOAK_DEVICE * 3 / 4 {
            let block = held.swap_remove(rng.usize(..held.len()));
            memory.release(block, 0).unwrap();
        }
        let mut block = memory.alloc(bytes, 0);
        if block.is_err() && compacts {
            let moves = memory.compact(u64::MAX);
            result.compactions += 1;
            result.copied += moves.iter().map(|m| m.to.end - m.to.start).sum::<u64>();
            block = memory.alloc(bytes, 0);
        }
        match block {
            Ok(block) => {
                memory.set_movable(block, true).unwrap();
                held.push(block);
            }
            Err(_) => result.refused += 1,
        }
    }
    result
}
