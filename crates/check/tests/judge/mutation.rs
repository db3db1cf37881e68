//! The proof of the checker: plans are damaged in every way, and the checker must say exactly what
//! executing the damaged plan shows.

use std::collections::BTreeMap;
use tenure_check::check;
use tenure_graph::plan::{Placement, PlanOptions, Sharing};

use crate::support::agree::agree;
use crate::support::damage::damage;
use crate::support::graphs::{describe, random_graph};
use crate::support::planner::{Style, plan};

fn random_options(rng: &mut fastrand::Rng) -> PlanOptions {
    let placement = |user| {
        if user {
            Placement::User
        } else {
            Placement::Planned
        }
    };
    PlanOptions {
        align: [1, 4, 16][rng.usize(0..3)],
        inputs: placement(rng.u8(0..4) == 0),
        outputs: Placement::Planned,
        keep_inputs: rng.u8(0..4) == 0,
        fold: rng.bool(),
        sharing: [Sharing::None, Sharing::Views, Sharing::Full, Sharing::Full][rng.usize(0..4)],
        no_reuse: Vec::new(),
        ..PlanOptions::default()
    }
}

/// A number from the environment, by which the test is made larger.
fn given(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |s| s.parse().expect("a number"))
}

#[test]
fn checker_and_execution_agree() {
    let mut rng = fastrand::Rng::with_seed(given("TENURE_SEED", 1));
    let rounds = usize::try_from(given("TENURE_ROUNDS", 40)).unwrap();
    let most_nodes = usize::try_from(given("TENURE_NODES", 30)).unwrap();
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut shared = 0;
    for round in 0..rounds {
        let nodes = rng.usize(3..most_nodes);
        let (graph, table) = random_graph(&mut rng, nodes);
        let options = random_options(&mut rng);
        for style in [Style::Naive, Style::Greedy] {
            let mut base = plan(&graph, &table, options.clone(), style);
            let checked = check(&graph, &table, &base);
            assert!(
                checked.is_ok(),
                "round {round}: {checked:#?}\n{}",
                describe(&graph, &base)
            );
            for _ in 0..40 {
                let mut damaged = base.clone();
                let Some(what) = damage(&mut rng, &graph, &table, &mut damaged) else {
                    continue;
                };
                let right = agree(&graph, &table, &damaged, what, rng.u64(..));
                counts.entry(what).or_default()[usize::from(right)] += 1;
                if right {
                    base = damaged;
                }
            }
            shared += base
                .storages
                .values()
                .filter(|s| s.members.len() > 1)
                .count();
        }
    }
    for (what, [wrong, _]) in &counts {
        let always_right = ["place in another order", "add a copy"].contains(what);
        assert!(
            always_right || *wrong > 0,
            "{what} never did harm: {counts:?}"
        );
    }
    assert!(shared > rounds, "too few plans share memory");
}
