//! The tables that are printed, row by row as figures come in.

use std::fmt::Display;

use tenure_solve::{Config, Fit, Order, Peer, Strategy, Techniques};

use super::instances::Problem;
use super::peers::{self, Answer};
use super::{Options, PASS_LIMIT, PEER_LIMIT, Run, run, verdict};

/// An instance that could be read, and what the portfolio found.
pub(super) struct Solved<'a> {
    problem: &'a Problem,
    bound: u64,
    height: u64,
    seconds: f64,
}

/// Prints a row.
fn row<T: Display>(cells: impl IntoIterator<Item = T>) {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).collect();
    println!("| {} |", cells.join(" | "));
}

/// Prints a heading and the head of a table: the first column is text, the others are numbers.
fn head(title: &str, columns: &[&str]) {
    println!("\n## {title}\n");
    row(columns);
    let rules = columns.iter().enumerate();
    row(rules.map(|(at, _)| if at == 0 { "---" } else { "---:" }));
}

fn seconds(seconds: f64) -> String {
    match seconds {
        0.0..0.1 => format!("{seconds:.4}"),
        0.1..10.0 => format!("{seconds:.2}"),
        _ => format!("{seconds:.1}"),
    }
}

/// How far `height` lies above `base`.
fn above(height: u64, base: u64) -> String {
    if height == base {
        return "0".to_owned();
    }
    let part = (ratio(height, base) - 1.0) * 100.0;
    match part.abs() {
        0.0..0.005 => format!("{:+}", i128::from(height) - i128::from(base)),
        _ => format!("{part:+.2} %"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// Geometric mean of ratios.
fn mean(ratios: &[f64]) -> f64 {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let count = u32::try_from(ratios.len()).unwrap_or(u32::MAX);
    (sum / f64::from(count.max(1))).exp()
}

/// The least height that the portfolio finds, for every instance.
pub(super) fn least_height<'a>(problems: &'a [Problem], options: &Options) -> Vec<Solved<'a>> {
    let columns = [
        "instance", "buffers", "bound", "height", "gap", "proven", "found by", "CPU s",
    ];
    head("Least height", &columns);
    let mut solved = Vec::new();
    for problem in problems {
        let (
            instance,
            Run {
                solution,
                seconds: used,
            },
        ) = match run(problem, &options.config(Strategy::Auto)) {
            Ok(done) => done,
            Err(why) => {
                row([&*problem.name, "", "", "", "", "", &why, ""]);
                continue;
            }
        };
        let (bound, height) = (solution.lower_bound, solution.height);
        row([
            problem.name.clone(),
            instance.len().to_string(),
            bound.to_string(),
            height.to_string(),
            above(height, bound),
            if solution.proven_optimal { "yes" } else { "" }.to_owned(),
            solution.strategy.to_string(),
            seconds(used),
        ]);
        solved.push(Solved {
            problem,
            bound,
            height,
            seconds: used,
        });
    }
    let total = solved.iter().map(|solved| solved.seconds).sum();
    row(["sum", "", "", "", "", "", "", &seconds(total)]);
    solved
}

/// Whether each instance fits into the capacity that its name states.
pub(super) fn capacities(problems: &[Problem], options: &Options) {
    if problems.iter().all(|problem| problem.capacity.is_none()) {
        return;
    }
    let mut columns = vec!["instance", "capacity", "answer", "CPU s"];
    if options.peers {
        columns.extend(["supermalloc", "CPU s"]);
    }
    head("Fit into a capacity", &columns);
    let (mut ours, mut theirs) = (0.0, 0.0);
    for problem in problems {
        let Some(capacity) = problem.capacity else {
            continue;
        };
        let config = Config {
            capacity: Some(capacity),
            ..options.config(Strategy::Auto)
        };
        let Ok((
            instance,
            Run {
                solution,
                seconds: used,
            },
        )) = run(problem, &config)
        else {
            continue;
        };
        ours += used;
        let mut cells = vec![
            problem.name.clone(),
            capacity.to_string(),
            verdict(solution.fits).to_owned(),
            seconds(used),
        ];
        if options.peers {
            let limit = options.limit.unwrap_or(PEER_LIMIT);
            let (said, used) = match peers::run("supermalloc", &instance, limit, Some(capacity)) {
                Answer::Placed {
                    height, seconds, ..
                } if height <= capacity => ("fits".to_owned(), seconds),
                Answer::Placed { seconds, .. } | Answer::Nothing { seconds } => {
                    ("no fit found".to_owned(), seconds)
                }
                Answer::Stopped(after) => ("stopped".to_owned(), after.as_secs_f64()),
                Answer::Absent => ("not installed".to_owned(), 0.0),
                Answer::Failed(why) => (why, 0.0),
            };
            theirs += used;
            cells.extend([said, seconds(used)]);
        }
        row(cells);
    }
    let mut cells = vec![
        "sum".to_owned(),
        String::new(),
        String::new(),
        seconds(ours),
    ];
    if options.peers {
        cells.extend([String::new(), seconds(theirs)]);
    }
    row(cells);
}

/// Strategies of other planners, as the columns of their table.
fn planner_strategies() -> Vec<Strategy> {
    let greedy = [
        Strategy::Greedy(Fit::First, Order::Birth),
        Strategy::Greedy(Fit::Best, Order::Birth),
        Strategy::Greedy(Fit::Best, Order::Size),
    ];
    let peers = Peer::ALL.map(Strategy::Peer);
    greedy.into_iter().chain(peers).collect()
}

/// What the planners that people know would hold, as multiples of the bound.
pub(super) fn planners(solved: &[Solved<'_>]) {
    let strategies = planner_strategies();
    let names: Vec<String> = strategies.iter().map(ToString::to_string).collect();
    let mut columns = vec!["instance", "bound", "auto"];
    columns.extend(names.iter().map(String::as_str));
    head(
        "What other planners hold, as multiples of the bound",
        &columns,
    );
    let mut ratios = vec![Vec::new(); strategies.len() + 1];
    for Solved {
        problem,
        bound,
        height,
        ..
    } in solved
    {
        let mut heights = vec![Some(*height)];
        for &strategy in &strategies {
            heights.push(height_of(problem, strategy));
        }
        let mut cells = vec![problem.name.clone(), bound.to_string()];
        for (column, height) in heights.into_iter().enumerate() {
            let ratio = height.map(|height| ratio(height, *bound));
            cells.push(ratio.map_or("cut".to_owned(), |ratio| format!("{ratio:.3}")));
            ratios[column].extend(ratio);
        }
        row(cells);
    }
    let means = ratios.iter().map(|ratios| format!("{:.3}", mean(ratios)));
    let cells = ["geometric mean".to_owned(), String::new()].into_iter();
    row(cells.chain(means));
}

/// What one strategy places; `None` when it does not end in time.
fn height_of(problem: &Problem, strategy: Strategy) -> Option<u64> {
    let config = Config {
        strategy,
        ..Config::with_time_limit(PASS_LIMIT)
    };
    let (_, run) = run(problem, &config).ok()?;
    let whole = run.solution.strategy == strategy;
    whole.then_some(run.solution.height)
}

/// How much higher first fit ends than best fit in the same order.
pub(super) fn fits(solved: &[Solved<'_>]) {
    let columns = [
        "order",
        "instances",
        "mean",
        "least",
        "most",
        "best fit lower",
        "first fit lower",
    ];
    head("First fit above best fit", &columns);
    let mut all = Vec::new();
    for order in Order::ALL {
        let pairs = solved.iter().filter_map(|solved| {
            let height = |fit| height_of(solved.problem, Strategy::Greedy(fit, order));
            Some(ratio(height(Fit::First)?, height(Fit::Best)?))
        });
        let ratios: Vec<f64> = pairs.collect();
        fits_row(order.name(), &ratios);
        all.extend(ratios);
    }
    fits_row("all", &all);
}

fn fits_row(name: &str, ratios: &[f64]) {
    let percent = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    row([
        name.to_owned(),
        ratios.len().to_string(),
        percent(mean(ratios)),
        percent(least),
        percent(most),
        ratios
            .iter()
            .filter(|&&ratio| ratio > 1.0)
            .count()
            .to_string(),
        ratios
            .iter()
            .filter(|&&ratio| ratio < 1.0)
            .count()
            .to_string(),
    ]);
}

/// The installed peers on the same instances, with their heights above ours.
pub(super) fn peers(solved: &[Solved<'_>], options: &Options) {
    let limit = options.limit.unwrap_or(PEER_LIMIT);
    let columns = [
        "instance",
        "tenure",
        "CPU s",
        "peer",
        "height",
        "above ours",
        "proven",
        "CPU s",
    ];
    head(
        &format!("Peers, at most {} s each", limit.as_secs_f64()),
        &columns,
    );
    let mut absent = Vec::new();
    for allocator in peers::ALLOCATORS {
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), 0.0, 0.0);
        for Solved {
            problem,
            height,
            seconds: used,
            ..
        } in solved
        {
            let Ok(instance) = problem.instance() else {
                continue;
            };
            let start = [
                problem.name.clone(),
                height.to_string(),
                seconds(*used),
                allocator.to_owned(),
            ];
            let end = match peers::run(allocator, &instance, limit, None) {
                Answer::Placed {
                    height: other,
                    proven,
                    seconds: used_there,
                } => {
                    ratios.push(ratio(other, *height));
                    ours += used;
                    theirs += used_there;
                    let proven = if proven { "yes" } else { "" };
                    [
                        other.to_string(),
                        above(other, *height),
                        proven.to_owned(),
                        seconds(used_there),
                    ]
                }
                Answer::Nothing { seconds: used } => [
                    "none".to_owned(),
                    String::new(),
                    String::new(),
                    seconds(used),
                ],
                Answer::Stopped(after) => [
                    "stopped".to_owned(),
                    String::new(),
                    String::new(),
                    format!("> {}", after.as_secs()),
                ],
                Answer::Failed(why) => [why, String::new(), String::new(), String::new()],
                Answer::Absent => {
                    absent.push(allocator);
                    break;
                }
            };
            row(start.into_iter().chain(end));
        }
        if !ratios.is_empty() {
            row([
                format!("{} instances", ratios.len()),
                String::new(),
                seconds(ours),
                allocator.to_owned(),
                format!("mean {:.4}", mean(&ratios)),
                format!(
                    "{} lower than ours",
                    ratios.iter().filter(|&&ratio| ratio < 1.0).count()
                ),
                String::new(),
                seconds(theirs),
            ]);
        }
    }
    if !absent.is_empty() {
        println!("\nNot installed, and so left out: {}", absent.join(", "));
    }
}

/// The search with one technique off at a time.
pub(super) fn ablation(solved: &[Solved<'_>], options: &Options) {
    let mut techniques = Techniques::default();
    let names: Vec<&str> = techniques.named().iter().map(|(name, _)| *name).collect();
    let mut columns = vec!["instance", "bound", "all on"];
    columns.extend(&names);
    head(
        "Without one technique: height above the bound, CPU s",
        &columns,
    );
    for Solved {
        problem,
        bound,
        height,
        seconds: used,
    } in solved
    {
        let cell = |height, used| format!("{}, {}", above(height, *bound), seconds(used));
        let mut cells = vec![
            problem.name.clone(),
            bound.to_string(),
            cell(*height, *used),
        ];
        for off in 0..names.len() {
            let mut techniques = Techniques::default();
            *techniques.named()[off].1 = false;
            let config = Config {
                techniques,
                ..options.config(Strategy::Auto)
            };
            cells.push(match run(problem, &config) {
                Ok((_, run)) => cell(run.solution.height, run.seconds),
                Err(why) => why,
            });
        }
        row(cells);
    }
}
