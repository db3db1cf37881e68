//! Every plan of a random graph passes the check, is sound in its figures, and is the same twice.
//! More graphs are looked at when `TENURE_GRAPHS` gives their number.

use tenure_graph::arbitrary_graph::Size;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Plan, PlanOptions, Sharing};
use tenure_graph::{Graph, StreamId, text};
use tenure_plan::{Config, PlanError, order, plan};
use tenure_tests::generate::{graph, options, say_more};

/// How many graphs are looked at.
fn graphs() -> u64 {
    std::env::var("TENURE_GRAPHS").map_or(400, |n| n.parse().expect("a number"))
}

fn try_plan(graph: &Graph, options: &PlanOptions) -> Result<Plan, PlanError> {
    let table = OpTable::builtin(graph.dialect);
    let config = Config {
        steps: Some(100_000),
        ..Config::default()
    };
    plan(graph, &table, options, &config).map(|planned| planned.plan)
}

fn planned(graph: &Graph, options: &PlanOptions) -> Option<Plan> {
    match try_plan(graph, options) {
        Ok(plan) => Some(plan),
        Err(error) => panic!("{error}"),
    }
}

/// All nodes of a graph on one stream.
fn on_one_stream(mut graph: Graph) -> Graph {
    for node in graph.nodes.values_mut() {
        node.stream = node.stream.map(|_| StreamId::from_u32(0));
    }
    graph
}

#[test]
fn every_plan_passes_its_check() {
    let mut checked = 0;
    for seed in 0..graphs() {
        let nodes = [30, 30, 100, 150][usize::try_from(seed % 4).unwrap()];
        let mut graph = graph(seed, Size { nodes, depth: 3 });
        let keeps_streams = seed % 16 == 1;
        if !keeps_streams {
            graph = on_one_stream(graph);
        }
        let says_more = seed % 5 == 4;
        if says_more {
            say_more(seed, &mut graph);
        }
        let table = OpTable::builtin(graph.dialect);
        let options = options(seed);
        let model = graph.clone();
        if seed % 3 == 0 {
            // What cannot be planned in one order is refused in the other as well.
            graph = order::improve(graph, &table, &options).unwrap_or_else(|_| model.clone());
        }
        let plan = match try_plan(&graph, &options) {
            Ok(plan) => plan,
            Err(PlanError::UnsizedReference { .. }) if says_more => continue,
            Err(error) => panic!("seed {seed} is refused: {error}"),
        };
        if let Err(violations) = tenure_check::check(&model, &table, &plan) {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!(
                "seed {seed} with {options:?}:\n{}\n{}",
                list.join("\n"),
                text::print(&model)
            );
        }
        checked += 1;
        let arena = &plan.arenas[0];
        assert!(arena.lower_bound <= arena.size && arena.size <= arena.no_reuse);
        assert_eq!(arena.lower_bound % options.align, 0);
    }
    assert!(
        checked > graphs() * 3 / 4,
        "only {checked} graphs were planned"
    );
}

#[test]
fn more_sharing_never_raises_the_bound() {
    for seed in 0..graphs() {
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
