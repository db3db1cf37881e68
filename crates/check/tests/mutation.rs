//! The proof of the checker: plans are damaged in every way, and the checker must say exactly what
//! executing the damaged plan shows.

mod common;

use common::damage::damage;
use common::oracle::{Outcome, execute};
use common::planner::{Style, meet, plan};
use common::{describe, has_twin_states, random_graph};
use std::collections::BTreeMap;
use tenure_check::{Violation, check};
use tenure_graph::Graph;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Place, Placement, Plan, PlanOptions, Sharing};

/// Runs in which an oracle must see what the checker says is wrong. Whatever shows at all shows in
/// far fewer.
const MOST_RUNS: u32 = 2000;

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
    }
}

/// Codes of the rules that decide whether memory is simulated at all.
fn is_structural(code: &str) -> bool {
    code < "T030" || code == "T073"
}

/// Compares what the checker says with what the oracle sees. Gives back whether the plan is right.
fn agree(graph: &Graph, table: &OpTable, plan: &Plan, what: &str, seed: u64) -> bool {
    let verdict = check(graph, table, plan);
    let violations = verdict.as_ref().err().map_or(&[][..], Vec::as_slice);
    let codes: Vec<&str> = violations.iter().map(Violation::code).collect();
    if codes.iter().any(|c| is_structural(c)) {
        return false;
    }
    let said: Vec<String> = violations
        .iter()
        .map(|v| format!("{} {v}", v.code()))
        .collect();
    let has = |list: &[&str]| codes.iter().any(|c| list.contains(c));
    let bytes = has(&["T050", "T052", "T053", "T054"]);
    let mut outcome = execute(graph, table, plan, 16, seed);
    let exact = !has_twin_states(graph, table);
    if bytes && outcome.wrong.is_none() && exact {
        outcome = execute(graph, table, plan, MOST_RUNS, seed);
    }
    let Outcome { wrong, accesses } = outcome;
    let elsewhere = has(&["T055", "T056"]);
    assert!(
        bytes == wrong.is_some() || elsewhere || bytes && !exact,
        "{what} (seed {seed}): the checker says {said:#?}\nthe oracle says {wrong:?}\n{}",
        describe(graph, plan)
    );
    let uncovered = accesses.iter().find(|(storage, step)| {
        let life = &plan.storages[*storage].life;
        !life.iter().any(|s| s.first <= *step && *step <= s.last)
    });
    assert!(
        has(&["T051"]) == uncovered.is_some(),
        "{what} (seed {seed}): the checker says {said:#?}\nthe oracle accesses {uncovered:?}\n{}",
        describe(graph, plan)
    );
    let placed: Vec<_> = plan
        .storages
        .values()
        .filter_map(|s| match s.place {
            Place::Arena { arena, offset } => Some((arena, offset, s)),
            Place::Caller => None,
        })
        .collect();
    let clash = placed.iter().enumerate().any(|(i, (arena, at, s))| {
        placed[..i].iter().any(|(other, from, t)| {
            arena == other
                && (*at).max(*from) < (at + s.size).min(from + t.size)
                && meet(&s.life, &t.life)
        })
    });
    assert_eq!(has(&["T031"]), clash, "{what} (seed {seed}): {said:#?}");
    verdict.is_ok()
}

#[test]
fn checker_and_execution_agree() {
    let mut rng = fastrand::Rng::with_seed(
        std::env::var("TENURE_SEED").map_or(1, |s| s.parse().expect("a number")),
    );
    let rounds = std::env::var("TENURE_ROUNDS").map_or(60, |s| s.parse().expect("a number"));
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut shared = 0;
    for round in 0..rounds {
        let nodes = rng.usize(3..30);
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
    eprintln!("[wrong, right]: {counts:#?}; {shared} storages are shared at the end");
    for (what, [wrong, _]) in &counts {
        let always_right = *what == "place in another order";
        assert!(always_right || *wrong > 0, "{what} never did harm");
    }
    assert!(shared > rounds, "too few plans share memory");
}
