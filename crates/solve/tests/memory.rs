//! The estimate of memory against what the system counts. One test alone in its process: the count
//! is the process's.

use std::num::NonZeroUsize;

use tenure_solve::{Buffer, Config, Instance, memory, solve};

/// A field of the system's books of this process in bytes (Linux).
fn system(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

/// About a hundred buffers alive at a time, which no search places at the bound soon.
fn buffers(count: u64) -> Vec<Buffer> {
    let mut random = fastrand::Rng::with_seed(6);
    let buffers = (0..count).map(|_| {
        let lower = random.u64(0..count / 2);
        let longest = 1 << random.u32(0..10);
        let upper = lower + random.u64(1..=longest);
        let alignment = 1 << random.u32(0..4);
        Buffer::new(random.u64(1..1000), lower, upper).with_alignment(alignment)
    });
    buffers.collect()
}

#[test]
fn the_estimate_is_above_what_is_used_and_not_far() {
    // From small to large: the books keep the highest figure.
    for (count, threads) in [(1_000, 1), (6_000, 1), (20_000, 2)] {
        let instance = Instance::new(buffers(count)).unwrap();
        let config = Config {
            threads: NonZeroUsize::new(threads).unwrap(),
            steps: Some(15_000_000),
            ..Config::default()
        };
        let needed = memory::estimate(&instance, &config);
        let before = system("VmRSS");
        solve(&instance, &config).unwrap();
        let (Some(before), Some(most)) = (before, system("VmHWM")) else {
            // This system keeps no such books.
            return;
        };
        let used = most.saturating_sub(before);
        assert!(
            used <= needed,
            "{count} buffers: {used} used, {needed} estimated"
        );
        if count == 20_000 {
            assert!(
                needed < 8 * used,
                "{count} buffers: {used} used, {needed} estimated"
            );
        }
    }
}
