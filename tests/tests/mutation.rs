//! Plans of the real planner, damaged in every way: the checker must say of each what executing it
//! shows. The same test over plans that are too simple to be wrong is in the checker's crate, and
//! both can be made longer by the same variables of the environment.

#[path = "../../crates/check/tests/judge/support/mod.rs"]
#[expect(dead_code, reason = "the simple planners are not needed here")]
mod support;

use support::agree::agree;
use support::damage::damage;
use support::graphs::{describe, random_graph};
use tenure_check::check;
use tenure_plan::{Config, plan};
use tenure_tests::generate::options;

/// A number from the environment, by which the test is made larger.
fn given(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |s| s.parse().expect("a number"))
}

#[test]
fn checker_and_execution_agree_on_real_plans() {
    let first = given("TENURE_SEED", 11);
    let rounds = given("TENURE_ROUNDS", 60);
    let most_nodes = usize::try_from(given("TENURE_NODES", 30)).unwrap();
    let mut rng = fastrand::Rng::with_seed(first);
    let (mut right, mut wrong) = (0, 0);
    for seed in first..first + rounds {
        let nodes = rng.usize(3..most_nodes);
        let (graph, table) = random_graph(&mut rng, nodes);
        let config = Config {
            steps: Some(10_000),
            ..Config::default()
        };
        let options = options(seed);
        let Ok(planned) = plan(&graph, &table, &options, &config) else {
            continue;
        };
        let mut base = planned.plan;
        let checked = check(&graph, &table, &base);
        assert!(
            checked.is_ok(),
            "seed {seed}: {checked:#?}\n{}",
            describe(&graph, &base)
        );
        for _ in 0..40 {
            let mut damaged = base.clone();
            let Some(what) = damage(&mut rng, &graph, &table, &mut damaged) else {
                continue;
            };
            if agree(&graph, &table, &damaged, what, rng.u64(..)) {
                right += 1;
                base = damaged;
            } else {
                wrong += 1;
            }
        }
    }
    assert!(
        right > rounds * 3 && wrong > rounds * 8,
        "{right} right, {wrong} wrong"
    );
}
