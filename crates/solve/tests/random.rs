//! Random instances against oracles that share nothing with the crate: all orders tried one by one,
//! and pairs compared one by one.

use std::num::NonZeroUsize;

use fastrand::Rng;
use tenure_solve::validate::{Violation, validate};
use tenure_solve::{
    Buffer, Config, Fits, Instance, Reserved, Rules, Solution, Span, Strategy, solve,
};

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
    /// Runs, each of up to three buffers.
    runs: usize,
    /// Reserved ranges.
    reserved: usize,
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
    let rules = Rules {
        contiguous: random_runs(random, buffers.len(), shape.runs),
        reserved: random_reserved(random, shape),
        ..random_rules(random, buffers.len(), shape.rules)
    };
    let free: Vec<Buffer> = buffers.clone();
    Instance::with_rules(buffers, rules.clone()).unwrap_or_else(|_| {
        // Two fixed ones are on the same bytes and kept apart, or one is on reserved bytes or where
        // its run cannot put it.
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

fn random_runs(random: &mut Rng, buffers: usize, count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<usize> = (0..buffers).collect();
    random.shuffle(&mut all);
    let runs = all.chunks(random.usize(1..=3)).take(count);
    runs.map(<[usize]>::to_vec).collect()
}

fn random_reserved(random: &mut Rng, shape: &Shape) -> Vec<Reserved> {
    let mut reserved: Vec<Reserved> = Vec::new();
    while reserved.len() < shape.reserved {
        let from = random.u64(0..2 * shape.size);
        let range = Reserved::always(from, from + random.u64(1..shape.size));
        let lower = random.u64(0..shape.horizon - 1);
        let range = match random.bool() {
            true => range,
            false => range.during(lower, random.u64(lower + 1..=shape.horizon)),
        };
        let rules = Rules {
            reserved: reserved.iter().copied().chain([range]).collect(),
            ..Rules::default()
        };
        if Instance::with_rules(Vec::new(), rules).is_ok() {
            reserved.push(range);
        }
    }
    reserved
}

/// What is placed as one: a run, or a buffer that is in none.
struct Item {
    members: Vec<usize>,
    /// How far above the begin each member lies.
    above: Vec<u64>,
    /// Up to the last byte of a member.
    size: u64,
}

fn items(instance: &Instance) -> Vec<Item> {
    let buffers = instance.buffers();
    let runs = &instance.rules().contiguous;
    let alone = (0..buffers.len()).filter(|buffer| !runs.iter().flatten().any(|m| m == buffer));
    let lists = alone.map(|buffer| vec![buffer]).chain(runs.iter().cloned());
    let item = |members: Vec<usize>| {
        let (mut above, mut end, mut size) = (Vec::new(), 0, 0);
        for &member in &members {
            let buffer = &buffers[member];
            while end % buffer.alignment != 0 {
                end += 1;
            }
            above.push(end);
            end += buffer.size;
            if buffer.size > 0 {
                size = end;
            }
        }
        Item {
            members,
            above,
            size,
        }
    };
    lists.map(item).collect()
}

impl Item {
    fn sized<'a>(&'a self, instance: &'a Instance) -> impl Iterator<Item = usize> + 'a {
        let members = self.members.iter().copied();
        members.filter(|&member| instance.buffers()[member].size > 0)
    }

    /// Where it must begin, when a member is fixed.
    fn fixed(&self, instance: &Instance) -> Option<u64> {
        let mut members = self.members.iter().zip(&self.above);
        members.find_map(|(&member, above)| Some(instance.buffers()[member].offset? - above))
    }

    /// Whether it may begin there, for its alignments and what is reserved.
    fn may_begin(&self, instance: &Instance, offset: u64) -> bool {
        let aligned = |&member: &usize| offset.is_multiple_of(instance.buffers()[member].alignment);
        let clear = |range: &Reserved| {
            let always = Span {
                lower: 0,
                upper: u64::MAX,
            };
            let time = range.time.unwrap_or(always);
            let meets = |span: Span| span.lower < time.upper && time.lower < span.upper;
            let alive = |member: usize| instance.buffers()[member].live_spans().any(meets);
            let bytes = offset < range.to && range.from < offset + self.size;
            !(bytes && self.sized(instance).any(alive))
        };
        self.members.iter().all(aligned) && instance.rules().reserved.iter().all(clear)
    }
}

/// Whether two items must not share bytes.
fn clash(instance: &Instance, a: &Item, b: &Item) -> bool {
    let rules = instance.rules();
    let has = |item: &Item, set: &Vec<usize>| item.sized(instance).any(|m| set.contains(&m));
    let branch = |choice: &[Vec<usize>], item: &Item| {
        let all = |branch: &Vec<usize>| item.sized(instance).all(|m| branch.contains(&m));
        choice.iter().position(all)
    };
    let exclude = |choice: &Vec<Vec<usize>>| {
        let branches = branch(choice, a).zip(branch(choice, b));
        branches.is_some_and(|(first, second)| first != second)
    };
    let alive = |x: usize, y: usize| alive_together(&instance.buffers()[x], &instance.buffers()[y]);
    let meet = a
        .sized(instance)
        .any(|x| b.sized(instance).any(|y| alive(x, y)));
    let separate = |set: &Vec<usize>| has(a, set) && has(b, set);
    rules.separate.iter().any(separate) || meet && !rules.exclusive.iter().any(exclude)
}

fn alive_together(a: &Buffer, b: &Buffer) -> bool {
    a.live_spans().any(|x| {
        b.live_spans()
            .any(|y| x.lower < y.upper && y.lower < x.upper)
    })
}

fn share_bytes(a: (&Item, u64), b: (&Item, u64)) -> bool {
    a.1 < b.1 + b.0.size && b.1 < a.1 + a.0.size && a.0.size > 0 && b.0.size > 0
}

/// The least height: in some order, the lowest free place for each item is optimal.
fn least_height(instance: &Instance) -> u64 {
    let items = items(instance);
    let sized = items.iter().filter(|item| item.size > 0);
    let (fixed, mut rest): (Vec<&Item>, Vec<&Item>) =
        sized.partition(|item| item.fixed(instance).is_some());
    let place = |item| (item, Item::fixed(item, instance).unwrap());
    let mut placed: Vec<(&Item, u64)> = fixed.into_iter().map(place).collect();
    let mut best = u64::MAX;
    try_orders(instance, &mut rest, &mut placed, &mut best);
    best
}

fn try_orders<'a>(
    instance: &Instance,
    rest: &mut Vec<&'a Item>,
    placed: &mut Vec<(&'a Item, u64)>,
    best: &mut u64,
) {
    let ends = placed.iter().map(|&(item, offset)| offset + item.size);
    let height = ends.max().unwrap_or(0);
    if rest.is_empty() {
        *best = height.min(*best);
    }
    if height >= *best {
        return;
    }
    for next in 0..rest.len() {
        let item = rest.swap_remove(next);
        let clashes = |offset: u64| {
            placed.iter().any(|&(other, other_offset)| {
                clash(instance, item, other) && share_bytes((item, offset), (other, other_offset))
            })
        };
        let mut offset = 0;
        while !item.may_begin(instance, offset) || clashes(offset) {
            offset += 1;
        }
        placed.push((item, offset));
        try_orders(instance, rest, placed, best);
        placed.pop();
        rest.push(item);
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
    for round in 0..128 {
        let shape = Shape {
            buffers: random.usize(1..=7),
            horizon: random.u64(3..9),
            size: 24,
            gaps: round % 4 * 2,
            fixed: round / 4 % 3,
            rules: round as usize / 12 % 4,
            runs: round as usize / 32 % 2 * 2,
            reserved: round as usize / 64 * random.usize(1..=3),
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

/// Whatever the search finds when nobody asks for a capacity, it finds when somebody does.
#[test]
fn what_is_found_fits_when_it_is_asked_for() {
    let mut random = Rng::with_seed(6);
    let mut unproven = 0;
    for (round, buffers) in [60, 250, 1200, 60].into_iter().enumerate() {
        let shape = Shape {
            buffers,
            horizon: 150,
            size: 900,
            gaps: 0,
            fixed: 0,
            rules: 0,
            runs: 0,
            reserved: 0,
        };
        let instance = random_instance(&mut random, &shape);
        let found = solve(&instance, &Config::default()).unwrap();
        unproven += u32::from(!found.proven_optimal);
        let config = Config {
            capacity: Some(found.height),
            ..Config::default()
        };
        let asked = solve(&instance, &config).unwrap();
        assert_eq!(asked.fits, Some(Fits::Yes), "round {round}");
    }
    assert!(unproven > 1, "{unproven} are hard");
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
            runs: round as usize / 6 * 9,
            reserved: round as usize / 6 * random.usize(1..9),
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
        runs: 5,
        reserved: 4,
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

/// Bars that fill a rectangle, so that hardly any placement reaches the bound.
fn wall(random: &mut Rng, pieces: usize) -> Instance {
    let mut tiles = vec![(0u64, 512u64, 0u64, 4096u64)];
    while tiles.len() < pieces {
        let chosen = random.usize(0..tiles.len());
        let (lower, upper, bottom, top) = tiles[chosen];
        let (long, high) = (upper - lower, top - bottom);
        if random.bool() && long >= 4 {
            let at = lower + random.u64(long / 4..=long * 3 / 4);
            tiles[chosen].1 = at;
            tiles.push((at, upper, bottom, top));
        } else if high >= 4 {
            let at = bottom + random.u64(high / 4..=high * 3 / 4);
            tiles[chosen].3 = at;
            tiles.push((lower, upper, at, top));
        }
    }
    let buffers = tiles.into_iter();
    let buffers =
        buffers.map(|(lower, upper, bottom, top)| Buffer::new(top - bottom, lower, upper));
    Instance::new(buffers.collect()).unwrap()
}

#[test]
fn shaken_orders_find_what_the_plain_ones_do_not_and_threads_change_nothing() {
    let instance = wall(&mut Rng::with_seed(9), 600);
    // One round of the plain orders takes most of it, and another has no chance within it.
    let run = |shakes, threads| {
        let mut config = Config {
            steps: Some(70_000_000),
            threads: NonZeroUsize::new(threads).unwrap(),
            ..Config::default()
        };
        config.techniques.ladder = false;
        config.techniques.shakes = shakes;
        solve(&instance, &config).unwrap()
    };
    let shaken = run(true, 1);
    assert!(shaken.proven_optimal);
    assert_eq!(run(true, 3), shaken);
    assert!(shaken.height < run(false, 1).height);
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
            runs: 0,
            reserved: round as usize / 12 % 3,
        };
        let instance = random_instance(&mut random, &shape);
        let items = items(&instance);
        let buffers = instance.buffers();
        let offset = |buffer: &Buffer| random.u64(0..40) * buffer.alignment;
        let offsets: Vec<u64> = buffers.iter().map(offset).collect();
        // Without runs each buffer is an item.
        let clash = |a: usize, b: usize| {
            clash(&instance, &items[a], &items[b])
                && share_bytes((&items[a], offsets[a]), (&items[b], offsets[b]))
        };
        let on_reserved = |a: usize| !items[a].may_begin(&instance, offsets[a]);
        let any = (0..buffers.len()).any(|a| on_reserved(a) || (0..a).any(|b| clash(a, b)));
        match validate(&instance, &offsets, None) {
            Ok(()) => assert!(!any),
            Err(Violation::Overlap { first, second }) => assert!(clash(first, second)),
            Err(Violation::OnReserved { buffer, range }) => {
                assert!(on_reserved(buffer) && range < shape.reserved);
            }
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

#[test]
fn runs_and_reserved_ranges_of_a_placement_are_checked() {
    let buffers = vec![
        Buffer::new(8, 0, 2).with_alignment(4),
        Buffer::new(6, 4, 6).with_alignment(8),
        Buffer::new(5, 4, 6),
        Buffer::new(0, 0, 9),
    ];
    let rules = Rules {
        contiguous: vec![vec![2, 1, 3]],
        reserved: vec![
            Reserved::always(0, 2).during(8, 9),
            Reserved::always(30, 40),
        ],
        ..Rules::default()
    };
    let instance = Instance::with_rules(buffers, rules).unwrap();
    // The run takes 14 bytes: 5, 3 of padding, 6.
    let cases: [(&[u64], Result<(), Violation>); 7] = [
        (&[0, 8, 0, 14], Ok(())),
        (&[0, 24, 16, 30], Ok(())),
        (
            &[0, 16, 4, 22],
            Err(Violation::MisalignedRun {
                buffer: 1,
                begin: 4,
                alignment: 8,
            }),
        ),
        (
            &[0, 16, 0, 22],
            Err(Violation::BrokenRun {
                buffer: 1,
                offset: 16,
                expected: 8,
            }),
        ),
        (
            &[0, 8, 0, 15],
            Err(Violation::BrokenRun {
                buffer: 3,
                offset: 15,
                expected: 14,
            }),
        ),
        (
            &[0, 32, 24, 38],
            Err(Violation::OnReserved {
                buffer: 2,
                range: 1,
            }),
        ),
        (
            &[24, 8, 0, 14],
            Err(Violation::OnReserved {
                buffer: 0,
                range: 1,
            }),
        ),
    ];
    for (offsets, expected) in cases {
        assert_eq!(validate(&instance, offsets, None), expected, "{offsets:?}");
    }
}
