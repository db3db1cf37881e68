//! The kinds of cases, a file each. A new kind is a row in [`KINDS`].

mod accounting;
mod assign;
mod candidates;
pub mod csv;
mod deviates;
mod edited;
mod edits;
mod exec;
mod lint;
mod order;
pub mod runtime;
mod sanitize;
pub mod trace;

use serde_json::Value;
use tenure_guard::passes::{
    collective_writes, concat_no_task, contiguous_inputs, fixed_addresses, identity,
    in_place_support, joined_offsets, subgraph, tensor_moves, user_addresses, zeroing,
};
use tenure_guard::{compile, in_place, layout, read_write};

use crate::case::{GraphCase, Outcome};
use crate::expect::Judge;

/// What a kind does with a case.
#[derive(Clone, Copy)]
enum Kind {
    /// Judges the keys of `expect` that belong to it, on the graph as given.
    Judges(fn(&GraphCase, &mut Judge<'_>)),
    /// One step that edits the graph, as the reference has it: it takes inputs for its own, and
    /// refuses what the reference refuses. What is expected is judged when all edits are made.
    Step(edits::Pass),
    /// All steps.
    Whole(edits::Pass),
}

/// What can stand in `expect.run`.
const KINDS: &[(&str, Kind)] = &[
    ("assign", Kind::Judges(assign::run)),
    ("exec", Kind::Judges(exec::run)),
    ("sanitize", Kind::Judges(sanitize::run)),
    ("layout_conflict", Kind::Step(layout::resolve)),
    ("compile", Kind::Whole(compile::run)),
    ("hccl_memcpy", Kind::Step(collective_writes::run)),
    ("hccl_continuous_memcpy", Kind::Step(contiguous_inputs::run)),
    ("concat_no_task", Kind::Step(concat_no_task::run)),
    ("mark_same_addr", Kind::Step(fixed_addresses::run)),
    ("inplace", Kind::Step(in_place::resolve)),
    ("inplace_candidates", Kind::Judges(candidates::run)),
    ("inplace_support", Kind::Step(in_place_support::run)),
    ("set_io_offset", Kind::Step(joined_offsets::run)),
    ("memcpy_addr_async", Kind::Step(user_addresses::run)),
    ("atomic_clean", Kind::Step(zeroing::run)),
    ("tensormove_delete", Kind::Step(tensor_moves::run)),
    ("identity", Kind::Step(identity::run)),
    ("subgraph", Kind::Step(subgraph::run)),
    ("lint", Kind::Judges(lint::run)),
    ("rw_conflict", Kind::Step(read_write::resolve)),
];

/// Runs all kinds that a case names, and gives back what does not hold. A case with alternatives
/// is met when one of them is.
pub fn run(case: &GraphCase) -> Outcome {
    let failures = run_once(case);
    let others = case.expect.get("alternatives").and_then(Value::as_array);
    let mut others = others.into_iter().flatten().filter_map(Value::as_object);
    let is_met = |other: &serde_json::Map<String, Value>| {
        let mut expect = other.clone();
        if let Some(run) = case.expect.get("run") {
            expect.insert("run".to_owned(), run.clone());
        }
        let case = GraphCase {
            graph: case.graph.clone(),
            file: case.file.clone(),
            expect,
            folder: case.folder.clone(),
        };
        run_once(&case).is_empty()
    };
    if failures.is_empty() || others.any(is_met) {
        return Outcome::Passed;
    }
    let deviates = || {
        let may = deviates::may_deviate(case, &failures);
        let ours = may.then(|| edits::result(case, &passes(case)))??;
        deviates::judge(case, &ours)
    };
    deviates().map_or(Outcome::Failed(failures.clone()), Outcome::Deviates)
}

/// The edits that a case names.
fn passes(case: &GraphCase) -> Vec<(edits::Pass, edits::Extent)> {
    let kinds = case.kinds().into_iter();
    let named = kinds.filter_map(|name| KINDS.iter().find(|(known, _)| *known == name));
    named
        .filter_map(|(_, kind)| match kind {
            Kind::Judges(_) => None,
            Kind::Step(pass) => Some((*pass, edits::Extent::Step)),
            Kind::Whole(pass) => Some((*pass, edits::Extent::Whole)),
        })
        .collect()
}

fn run_once(case: &GraphCase) -> Vec<String> {
    let names = case.kinds();
    if names.is_empty() {
        return vec!["says no `expect.run`".to_owned()];
    }
    let mut judge = Judge::new(&case.expect);
    judge.take("alternatives");
    let passes = passes(case);
    for name in names {
        match KINDS.iter().find(|(known, _)| *known == name) {
            Some((_, Kind::Judges(kind))) => kind(case, &mut judge),
            Some(_) => {}
            None => judge.fail(format!("kind {name:?} is not built yet")),
        }
    }
    if !passes.is_empty() {
        edits::run(case, &passes, &mut judge);
    }
    judge.failures()
}
