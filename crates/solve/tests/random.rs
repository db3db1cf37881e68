//! Random instances against oracles that share nothing with the crate: all orders tried one by one,
//! and pairs compared one by one.

use std::num::NonZeroUsize;

use fastrand::Rng;
use tenure_solve::validate::{Violation, validate};
use tenure_solve::{Buffer, Config, Fits, Instance, Rules, Solution, Strategy, solve};

/// What random buffers look like.
struct Shape {
    buffers: usize,
    /// Times are below this.
    horizon: u64,
    /// Sizes are below this; one in twenty is 0.
    size: u64,
    /// Out of ten buffers with room for them, how many have a gap.
    gaps: u32,
    /// Out of ten buffers, how many are fixed where the others leave room.
    fixed: u32,
    /// Separations and choices.
    rules: usize,
}

fn random_buffer(random: &mut Rng, shape: &Shape) -> Buffer {
    let lower = random.u64(0..shape.horizon - 1);
    let upper = random.u64(lower + 1..shape.horizon);
    let size = match random.u32(0..20) {
        0 => 0,
        _ => random.u64(1..shape.size),
    };
    let alignment = *random.choice(&[1, 1, 1, 2, 3, 4, 8]).unwrap();
    let buffer = Buffer::new(size, lower, upper).with_alignment(alignment);
    if upper - lower > 2 && random.u32(0..10) < shape.gaps {
        let from = random.u64(lower + 1..upper - 1);
        return buffer.with_gap(from, random.u64(from + 1..upper));
    }
    buffer
}

fn random_instance(random: &mut Rng, shape: &Shape) -> Instance {
    let mut buffers: Vec<Buffer> = Vec::new();
    for _ in 0..shape.buffers {
        buffers.push(random_buffer(random, shape));
        if random.u32(0..10) < shape.fixed {
            let free = buffers.clone();
            let last = buffers.last_mut().unwrap();
            last.offset = Some(random.u64(0..shape.size) * last.alignment);
            if Instance::new(buffers.clone()).is_err() {
                buffers = free;
            }
        }
    }
    let rules = random_rules(random, buffers.len(), shape.rules);
    let free: Vec<Buffer> = buffers.clone();
    Instance::with_rules(buffers, rules.clone()).unwrap_or_else(|_| {
        // Two fixed ones are on the same bytes and kept apart.
        let free = free.into_iter().map(|buffer| Buffer {
            offset: None,
            ..buffer
        });
        Instance::with_rules(free.collect(), rules).unwrap()
    })
}

fn random_rules(random: &mut Rng, buffers: usize, count: usize) -> Rules {
    let mut rules = Rules::default();
    for _ in 0..count {
        let mut all: Vec<usize> = (0..buffers).collect();
        random.shuffle(&mut all);
        all.truncate(random.usize(1..=buffers));
        if random.bool() {
            all.truncate(3);
            rules.separate.push(all);
        } else {
            let branches = all.chunks(random.usize(1..=3));
            rules
                .exclusive
                .push(branches.map(<[usize]>::to_vec).collect());
        }
    }
    rules
}

/// Whether two buffers must not share bytes.
fn clash(instance: &Instance, a: usize, b: usize) -> bool {
    let rules = instance.rules();
    let separate = |set: &Vec<usize>| set.contains(&a) && set.contains(&b);
    let branch = |choice: &[Vec<usize>], of| choice.iter().position(|branch| branch.contains(&of));
    let exclude = |choice: &Vec<Vec<usize>>| {
        let branches = branch(choice, a).zip(branch(choice, b));
        branches.is_some_and(|(first, second)| first != second)
    };
    rules.separate.iter().any(separate)
        || alive_together(&instance.buffers()[a], &instance.buffers()[b])
            && !rules.exclusive.iter().any(exclude)
}

fn alive_together(a: &Buffer, b: &Buffer) -> bool {
    a.live_spans().any(|x| {
        b.live_spans()
            .any(|y| x.lower < y.upper && y.lower < x.upper)
    })
}

fn share_bytes(a: (&Buffer, u64), b: (&Buffer, u64)) -> bool {
    a.1 < b.1 + b.0.size && b.1 < a.1 + a.0.size && a.0.size > 0 && b.0.size > 0
}

/// The least height: in some order, the lowest free place for each buffer is optimal.
fn least_height(instance: &Instance) -> u64 {
    let buffers = instance.buffers();
    let sized = (0..buffers.len()).filter(|&buffer| buffers[buffer].size > 0);
    let (fixed, mut rest): (Vec<usize>, Vec<usize>) =
        sized.partition(|&buffer| buffers[buffer].offset.is_some());
    let place = |buffer: usize| (buffer, buffers[buffer].offset.unwrap());
    let mut placed: Vec<(usize, u64)> = fixed.into_iter().map(place).collect();
    let mut best = u64::MAX;
    try_orders(instance, &mut rest, &mut placed, &mut best);
    best
}

fn try_orders(
    instance: &Instance,
    rest: &mut Vec<usize>,
    placed: &mut Vec<(usize, u64)>,
    best: &mut u64,
) {
    let buffers = instance.buffers();
    let ends = placed
        .iter()
        .map(|&(buffer, offset)| offset + buffers[buffer].size);
    let height = ends.max().unwrap_or(0);
    if rest.is_empty() {
        *best = height.min(*best);
    }
    if height >= *best {
        return;
    }
    for next in 0..rest.len() {
        let buffer = rest.swap_remove(next);
        let clashes = |offset: u64| {
            placed.iter().any(|&(other, other_offset)| {
                let here = (&buffers[buffer], offset);
                clash(instance, buffer, other) && share_bytes(here, (&buffers[other], other_offset))
            })
        };
        let mut offset = 0;
        while clashes(offset) {
            offset += buffers[buffer].alignment;
        }
        placed.push((buffer, offset));
        try_orders(instance, rest, placed, best);
        placed.pop();
        rest.push(buffer);
        let last = rest.len() - 1;
        rest.swap(next, last);
    }
}

fn check(instance: &Instance, solution: &Solution) {
    assert_eq!(
        validate(instance, &solution.offsets, Some(solution.height)),
        Ok(())
    );
    assert!(solution.max_load <= solution.lower_bound);
    assert!(solution.lower_bound <= solution.height);
    assert_eq!(
        solution.proven_optimal,
        solution.height == solution.lower_bound
    );
}

#[test]
fn small_instances_are_solved_to_the_optimum() {
    let mut random = Rng::with_seed(1);
    for round in 0..96 {
        let shape = Shape {
            buffers: random.usize(1..=7),
            horizon: random.u64(3..9),
            size: 24,
            gaps: round % 4 * 2,
            fixed: round / 4 % 3,
            rules: round as usize / 12 % 4,
        };
        let instance = random_instance(&mut random, &shape);
        let least = least_height(&instance);
        let solution = solve(&instance, &Config::default()).unwrap();
        check(&instance, &solution);
        assert_eq!(solution.height, least, "{instance:?}");
        assert!(solution.proven_optimal, "{instance:?}");

        for strategy in Strategy::all() {
            let config = Config {
                strategy,
                steps: Some(10_000),
                ..Config::default()
            };
            let solution = solve(&instance, &config).unwrap();
            check(&instance, &solution);
            assert!(solution.height >= least, "{strategy}");
            assert!(solution.lower_bound <= least, "{strategy}: {instance:?}");
        }
        let below = least.checked_sub(1).map(|capacity| (capacity, Fits::No));
        for (capacity, fits) in below.into_iter().chain([(least, Fits::Yes)]) {
            let config = Config {
                capacity: Some(capacity),
                ..Config::default()
            };
            assert_eq!(solve(&instance, &config).unwrap().fits, Some(fits));
        }
    }
}

#[test]
fn every_strategy_is_valid_on_larger_instances() {
    let mut random = Rng::with_seed(2);
    for round in 0..12 {
        let shape = Shape {
            buffers: 120,
            horizon: 60,
            size: 500,
            gaps: round % 3 * 3,
            fixed: round % 2,
            rules: round as usize / 2 % 3 * 4,
        };
        let instance = random_instance(&mut random, &shape);
        for strategy in Strategy::all() {
            let config = Config {
                strategy,
                steps: Some(100_000),
                ..Config::default()
            };
            check(&instance, &solve(&instance, &config).unwrap());
        }
    }
}

#[test]
fn the_largest_sums_do_not_overflow() {
    let mut random = Rng::with_seed(5);
    for fixed in [false, true] {
        let mut buffers: Vec<Buffer> = (0..40)
            .map(|_| {
                let lower = random.u64(0..30);
                let size = random.u64(1 << 55..1 << 56);
                Buffer::new(size, lower, lower + random.u64(1..9))
            })
            .collect();
        if fixed {
            buffers[0].offset = Some(1 << 60);
        }
        let fixed_end = buffers[0]
            .offset
            .map_or(0, |offset| offset + buffers[0].size);
        let sum: u64 = buffers.iter().map(|buffer| buffer.size).sum();
        buffers.push(Buffer::new(i64::MAX as u64 - sum - fixed_end, 0, 40));
        let instance = Instance::new(buffers.clone()).unwrap();
        buffers.push(Buffer::new(1, 0, 1));
        assert!(Instance::new(buffers).is_err());
        for strategy in Strategy::all() {
            let config = Config {
                strategy,
                steps: Some(100_000),
                ..Config::default()
            };
            check(&instance, &solve(&instance, &config).unwrap());
        }
    }
}

#[test]
fn threads_do_not_change_the_solution() {
    let mut random = Rng::with_seed(3);
    let shape = Shape {
        buffers: 150,
        horizon: 80,
        size: 500,
        gaps: 1,
        fixed: 0,
        rules: 3,
    };
    for steps in [0, 1_000, 30_000, 300_000, 3_000_000] {
        let instance = random_instance(&mut random, &shape);
        let with_threads = |threads| {
            let threads = NonZeroUsize::new(threads).unwrap();
            solve(
                &instance,
                &Config {
                    steps: Some(steps),
                    threads,
                    ..Config::default()
                },
            )
            .unwrap()
        };
        let alone = with_threads(1);
        for threads in [2, 3, 8] {
            assert_eq!(
                with_threads(threads),
                alone,
                "{threads} threads, {steps} steps"
            );
        }
    }
}

#[test]
fn the_validator_agrees_with_comparing_all_pairs() {
    let mut random = Rng::with_seed(4);
    let mut accepted = 0;
    for round in 0..2000 {
        let shape = Shape {
            buffers: random.usize(1..6),
            horizon: random.u64(3..12),
            size: 12,
            gaps: round % 4 * 2,
            fixed: 0,
            rules: round as usize / 4 % 3,
        };
        let instance = random_instance(&mut random, &shape);
        let buffers = instance.buffers();
        let offset = |buffer: &Buffer| random.u64(0..40) * buffer.alignment;
        let offsets: Vec<u64> = buffers.iter().map(offset).collect();
        let clash = |a: usize, b: usize| {
            clash(&instance, a, b)
                && share_bytes((&buffers[a], offsets[a]), (&buffers[b], offsets[b]))
        };
        let any = (0..buffers.len()).any(|a| (0..a).any(|b| clash(a, b)));
        match validate(&instance, &offsets, None) {
            Ok(()) => assert!(!any),
            Err(Violation::Overlap { first, second }) => assert!(clash(first, second)),
            Err(other) => panic!("{other}"),
        }
        accepted += u32::from(!any);
    }
    assert!(
        (200..1800).contains(&accepted),
        "{accepted} of 2000 are valid"
    );
}

#[test]
fn every_rule_of_a_placement_is_checked() {
    let instance = Instance::new(vec![
        Buffer::new(8, 0, 2).with_alignment(4),
        Buffer::new(8, 1, 3).with_offset(16),
        Buffer::new(0, 0, 9),
    ])
    .unwrap();
    let cases: [(&[u64], Option<u64>, Violation); 6] = [
        (
            &[0, 16],
            None,
            Violation::WrongCount {
                offsets: 2,
                buffers: 3,
            },
        ),
        (
            &[2, 16, 0],
            None,
            Violation::Misaligned {
                buffer: 0,
                offset: 2,
                alignment: 4,
            },
        ),
        (
            &[0, 17, 0],
            None,
            Violation::FixedMoved {
                buffer: 1,
                fixed: 16,
                offset: 17,
            },
        ),
        (
            &[u64::MAX - 3, 16, 0],
            None,
            Violation::Overflow {
                buffer: 0,
                offset: u64::MAX - 3,
            },
        ),
        (
            &[0, 16, 0],
            Some(23),
            Violation::AboveCapacity {
                buffer: 1,
                end: 24,
                capacity: 23,
            },
        ),
        (
            &[12, 16, 0],
            None,
            Violation::Overlap {
                first: 0,
                second: 1,
            },
        ),
    ];
    for (offsets, capacity, expected) in cases {
        assert_eq!(validate(&instance, offsets, capacity), Err(expected));
    }
    assert_eq!(validate(&instance, &[8, 16, 99], Some(24)), Ok(()));
}
