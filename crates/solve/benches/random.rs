//! Placement of random buffers: durations over nine powers of two, births spread so that about 75
//! are alive at a time, sizes log-uniform between 64 bytes and 1 MiB.
//!
//! `cargo bench -p tenure-solve`

use divan::{Bencher, black_box};
use tenure_solve::{Buffer, Config, Instance, Strategy, solve};

fn main() {
    divan::main();
}

fn random_buffers(count: usize) -> Vec<Buffer> {
    let mut random = fastrand::Rng::with_seed(1);
    let births = 2 * count as u64;
    (0..count)
        .map(|_| {
            let base = 1 << random.u32(0..=9);
            let lower = random.u64(0..births);
            let upper = lower + base + random.u64(0..base);
            // Uniform between two powers of two, which is close to log-uniform over all of them.
            let power = 1 << random.u32(6..20);
            let size = (power + random.u64(0..power)) / 64 * 64;
            Buffer::new(size, lower, upper)
        })
        .collect()
}

#[divan::bench(args = [1_000, 10_000, 100_000, 1_000_000], sample_count = 5)]
fn build(bencher: Bencher, count: usize) {
    let buffers = random_buffers(count);
    bencher
        .with_inputs(|| buffers.clone())
        .bench_values(|buffers| Instance::new(black_box(buffers)));
}

#[divan::bench(args = [1_000, 10_000, 100_000, 1_000_000], sample_count = 3)]
fn sweep(bencher: Bencher, count: usize) {
    run(bencher, count, "sweep");
}

#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 3)]
fn best_fit_area(bencher: Bencher, count: usize) {
    run(bencher, count, "best-fit-area");
}

#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 3)]
fn dive_area(bencher: Bencher, count: usize) {
    run(bencher, count, "dive-area");
}

#[divan::bench(args = [1_000, 10_000, 100_000, 1_000_000], sample_count = 3)]
fn auto(bencher: Bencher, count: usize) {
    run(bencher, count, "auto");
}

fn run(bencher: Bencher, count: usize, strategy: &str) {
    let strategy: Strategy = strategy.parse().expect("a name from the list");
    let instance = Instance::new(random_buffers(count)).expect("valid buffers");
    let config = Config {
        strategy,
        ..Config::default()
    };
    bencher.bench(|| solve(black_box(&instance), &config));
}
