//! Does the checker say of a plan what executing it shows?

use tenure_check::{Violation, check};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Place, Plan};
use tenure_graph::{Graph, StorageId};

use super::graphs::describe;
use super::oracle::{Outcome, execute};
use super::planner::meet;

/// Codes of the rules that decide whether memory is simulated at all.
fn is_structural(code: &str) -> bool {
    code <= "T030" || code == "T073"
}

/// Compares what the checker says with what the oracle sees. Gives back whether the plan is right.
///
/// The checker compares names, the oracle bytes. So where bytes are equal by coincidence, the
/// checker may accuse what the oracle lets pass; never the other way round.
pub(crate) fn agree(graph: &Graph, table: &OpTable, plan: &Plan, what: &str, seed: u64) -> bool {
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
    let uncovered = |outcome: &Outcome| {
        let outside = |s: &&(StorageId, u32)| {
            let mut life = plan.storages[s.0].life.iter();
            !life.any(|span| span.first <= s.1 && s.1 <= span.last)
        };
        outcome.accesses.iter().find(outside).copied()
    };
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
    let outcome = execute(graph, table, plan, !clash, seed, |outcome| {
        (!bytes || outcome.coincidence || outcome.wrong.is_some())
            && (!has(&["T051"]) || uncovered(outcome).is_some())
    });
    let uncovered = uncovered(&outcome);
    let Outcome {
        wrong, coincidence, ..
    } = outcome;
    let elsewhere = has(&["T055", "T056"]);
    assert!(
        bytes == wrong.is_some() || elsewhere || bytes && coincidence,
        "{what} (seed {seed}): the checker says {said:#?}\nthe oracle says {wrong:?}\n{}",
        describe(graph, plan)
    );
    assert!(
        has(&["T051"]) == uncovered.is_some(),
        "{what} (seed {seed}): the checker says {said:#?}\nthe oracle accesses {uncovered:?}\n{}",
        describe(graph, plan)
    );
    assert_eq!(has(&["T031"]), clash, "{what} (seed {seed}): {said:#?}");
    verdict.is_ok()
}
