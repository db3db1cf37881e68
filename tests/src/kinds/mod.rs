//! The kinds of cases, a file each. A new kind is a row in [`KINDS`].

mod assign;
mod candidates;
pub mod csv;
mod edited;
mod edits;
mod lint;
mod order;

use serde_json::Value;
use tenure_graph::Graph;
use tenure_graph::effects::OpTable;
use tenure_guard::passes::{
    collective_writes, concat_no_task, contiguous_inputs, fixed_addresses, identity,
    in_place_support, joined_offsets, subgraph, tensor_moves, user_addresses, zeroing,
};
use tenure_guard::{GuardError, Guarded, Options, compile, in_place, layout, read_write};

use crate::case::GraphCase;
use crate::expect::Judge;

/// What a kind does with a case.
#[derive(Clone, Copy)]
enum Kind {
    /// Judges the keys of `expect` that belong to it, on the graph as given.
    Judges(fn(&GraphCase, &mut Judge<'_>)),
    /// Edits the graph; what is expected of the result is judged when all edits are made.
    Edits(fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>),
}

/// What can stand in `expect.run`.
const KINDS: &[(&str, Kind)] = &[
    ("assign", Kind::Judges(assign::run)),
    ("layout_conflict", Kind::Edits(layout::resolve)),
    ("compile", Kind::Edits(compile::run)),
    ("hccl_memcpy", Kind::Edits(collective_writes::run)),
    (
        "hccl_continuous_memcpy",
        Kind::Edits(contiguous_inputs::run),
    ),
    ("concat_no_task", Kind::Edits(concat_no_task::run)),
    ("mark_same_addr", Kind::Edits(fixed_addresses::run)),
    ("inplace", Kind::Edits(in_place::resolve)),
    ("inplace_candidates", Kind::Judges(candidates::run)),
    ("inplace_support", Kind::Edits(in_place_support::run)),
    ("set_io_offset", Kind::Edits(joined_offsets::run)),
    ("memcpy_addr_async", Kind::Edits(user_addresses::run)),
    ("atomic_clean", Kind::Edits(zeroing::run)),
    ("tensormove_delete", Kind::Edits(tensor_moves::run)),
    ("identity", Kind::Edits(identity::run)),
    ("subgraph", Kind::Edits(subgraph::run)),
    ("lint", Kind::Judges(lint::run)),
    ("rw_conflict", Kind::Edits(read_write::resolve)),
];

/// Runs all kinds that a case names, and gives back what does not hold. A case with alternatives
/// is met when one of them is.
pub fn run(case: &GraphCase) -> Vec<String> {
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
        };
        run_once(&case).is_empty()
    };
    if failures.is_empty() || others.any(is_met) {
        Vec::new()
    } else {
        failures
    }
}

fn run_once(case: &GraphCase) -> Vec<String> {
    let names = case.kinds();
    if names.is_empty() {
        return vec!["says no `expect.run`".to_owned()];
    }
    let mut judge = Judge::new(&case.expect);
    judge.take("alternatives");
    let mut passes = Vec::new();
    for name in names {
        match KINDS.iter().find(|(known, _)| *known == name) {
            Some((_, Kind::Judges(kind))) => kind(case, &mut judge),
            Some((_, Kind::Edits(pass))) => passes.push(*pass),
            None => judge.fail(format!("kind {name:?} is not built yet")),
        }
    }
    if !passes.is_empty() {
        edits::run(case, &passes, &mut judge);
    }
    judge.failures()
}
