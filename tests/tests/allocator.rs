//! The allocator under random scripts, for a second; `cargo xtask scripts` goes on for longer.

use std::time::{Duration, Instant};

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
