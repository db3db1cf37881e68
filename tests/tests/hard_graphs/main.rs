//! Small graphs that are easily planned wrong, with every choice of options. Each plan must pass the
//! check, and executing it in symbols must find every value whole; and of each plan that is damaged
//! the checker must say what executing it shows.

mod list;
#[path = "../../../crates/check/tests/judge/support/mod.rs"]
#[expect(dead_code, reason = "the simple planners are not needed here")]
mod support;

use support::agree::agree;
use support::damage::damage;
use tenure_graph::Graph;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Placement, Plan, PlanOptions, Sharing};
use tenure_plan::{Config, order, plan};

/// Every choice of what decides where values may lie.
fn all_options() -> Vec<PlanOptions> {
    let mut all = Vec::new();
    for sharing in [Sharing::None, Sharing::Views, Sharing::Full] {
        for outputs in [Placement::Planned, Placement::User] {
            for (inputs, keep_inputs) in [
                (Placement::Planned, false),
                (Placement::Planned, true),
                (Placement::User, false),
            ] {
                let odd = all.len() % 2 == 1;
                all.push(PlanOptions {
                    align: if odd { 1 } else { 64 },
                    inputs,
                    outputs,
                    keep_inputs,
                    fold: odd,
                    sharing,
                    no_reuse: Vec::new(),
                    ..PlanOptions::default()
                });
            }
        }
    }
    all
}

fn planned(name: &str, graph: &Graph, options: &PlanOptions) -> Plan {
    let table = OpTable::builtin(graph.dialect);
    let config = Config {
        steps: Some(1000),
        ..Config::default()
    };
    let planned = plan(graph, &table, options, &config);
    planned
        .unwrap_or_else(|e| panic!("{name} with {options:?}: {e}"))
        .plan
}

#[test]
fn every_plan_is_right() {
    for (name, graph) in list::all() {
        let table = OpTable::builtin(graph.dialect);
        for options in all_options() {
            let turned = order::improve(graph.clone(), &table, &options).unwrap();
            for ordered in [&graph, &turned] {
                let plan = planned(&name, ordered, &options);
                let right = agree(&graph, &table, &plan, &name, 1);
                assert!(right, "{name} with {options:?}");
            }
        }
    }
}

/// `TENURE_ROUNDS` gives the number of walks from each graph.
#[test]
fn damage_is_judged_as_it_shows() {
    let mut rng = fastrand::Rng::with_seed(7);
    let rounds = std::env::var("TENURE_ROUNDS").map_or(2, |s| s.parse().expect("a number"));
    let all = all_options();
    for (name, graph) in list::all() {
        let table = OpTable::builtin(graph.dialect);
        for _ in 0..rounds {
            let mut base = planned(&name, &graph, &all[rng.usize(..all.len())]);
            for _ in 0..40 {
                let mut damaged = base.clone();
                let Some(what) = damage(&mut rng, &graph, &table, &mut damaged) else {
                    continue;
                };
                let what = format!("{name}: {what}");
                if agree(&graph, &table, &damaged, &what, rng.u64(..)) {
                    base = damaged;
                }
            }
        }
    }
}
