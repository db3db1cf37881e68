//! Every plan of a random graph passes the check, is sound in its figures, and is the same twice.

use tenure_graph::arbitrary_graph::Size;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Plan, PlanOptions, Sharing};
use tenure_graph::{Graph, text};
use tenure_plan::{Config, PlanError, plan};
use tenure_tests::generate::{graph, options};

const GRAPHS: u64 = 400;

fn planned(graph: &Graph, options: &PlanOptions) -> Option<Plan> {
    let table = OpTable::builtin(graph.dialect);
    let config = Config {
        steps: 100_000,
        ..Config::default()
    };
    match plan(graph, &table, options, &config) {
        Ok(planned) => Some(planned.plan),
        // Streams are not planned yet, and some random graphs have several.
        Err(PlanError::Streams(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_plan_passes_its_check() {
    let mut checked = 0;
    for seed in 0..GRAPHS {
        // Every fourth graph is large.
        let nodes = if seed % 4 < 3 { 30 } else { 150 };
        let graph = graph(seed, Size { nodes, depth: 3 });
        let table = OpTable::builtin(graph.dialect);
        let options = options(seed);
        let Some(plan) = planned(&graph, &options) else {
            continue;
        };
        if let Err(violations) = tenure_check::check(&graph, &table, &plan) {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!(
                "seed {seed} with {options:?}:\n{}\n{}",
                list.join("\n"),
                text::print(&graph)
            );
        }
        checked += 1;
        let arena = &plan.arenas[0];
        assert!(arena.lower_bound <= arena.size && arena.size <= arena.no_reuse);
        assert_eq!(arena.lower_bound % options.align, 0);
    }
    assert!(checked > GRAPHS / 2, "only {checked} graphs were planned");
}

#[test]
fn more_sharing_never_raises_the_bound() {
    for seed in 0..GRAPHS {
        let graph = graph(seed, Size::default());
        let bound = |sharing| {
            let options = PlanOptions {
                align: 1,
                sharing,
                ..PlanOptions::default()
            };
            planned(&graph, &options).map(|p| p.arenas[0].lower_bound)
        };
        let (none, views, full) = (
            bound(Sharing::None),
            bound(Sharing::Views),
            bound(Sharing::Full),
        );
        assert!(
            full <= views && views <= none,
            "seed {seed}: {none:?} {views:?} {full:?}"
        );
    }
}

#[test]
fn the_same_input_gives_the_same_plan() {
    for seed in 0..40 {
        let graph = graph(seed, Size::default());
        let options = options(seed);
        assert_eq!(planned(&graph, &options), planned(&graph, &options));
    }
}
