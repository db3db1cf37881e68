//! Kinds that edit the graph: passes of the guard, and what is expected of the edited graph.

use serde_json::Value;
use tenure_graph::effects::OpTable;
use tenure_graph::verify::verify_bodies;
use tenure_graph::{Attr, Graph};
use tenure_guard::{GuardError, Guarded, Options, lint};

use crate::case::GraphCase;
use crate::expect::Judge;
use crate::kinds::{self, edited};

/// A pass of the guard.
pub type Pass = fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>;

/// How much of the guard a pass is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// One step, judged by what the reference does.
    Step,
    /// All of it.
    Whole,
}

/// Runs passes one after the other on the case's graph, and judges what they made of it.
pub fn run(case: &GraphCase, passes: &[(Pass, Extent)], judge: &mut Judge<'_>) {
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let (graph, done) = match guarded(case, passes) {
        Ok(_) if refused => return judge.fail("an error was expected, a graph was made"),
        Ok(done) => done,
        Err(_) if refused => return,
        Err(error) => return judge.fail(error),
    };
    let graph = done.graph(&graph);
    edited::judge(graph, judge);
    let is_whole = passes.iter().any(|&(_, extent)| extent == Extent::Whole);
    if is_whole {
        let table = OpTable::builtin(graph.dialect);
        kinds::lint::warnings(&lint::run(graph, &table).hits, judge);
    }
    if let Some(want) = judge.take("has_conflict").and_then(Value::as_bool)
        && want == done.findings.is_empty()
    {
        judge.fail(format!(
            "has_conflict: expected {want}, found {:?}",
            done.findings
        ));
    }
    if judge.take("idempotent").and_then(Value::as_bool) == Some(true) {
        match apply(graph, passes) {
            Ok(again) if again.graph.is_none() => {}
            Ok(again) => judge.fail(format!("idempotent: the second run did: {}", again.log())),
            Err(error) => judge.fail(format!("idempotent: {error}")),
        }
    }
}

/// What the passes make of a case's graph.
#[must_use]
pub fn result(case: &GraphCase, passes: &[(Pass, Extent)]) -> Option<Graph> {
    let (graph, done) = guarded(case, passes).ok()?;
    Some(done.graph.unwrap_or(graph))
}

/// The case's graph, and what the passes did to it.
fn guarded(case: &GraphCase, passes: &[(Pass, Extent)]) -> Result<(Graph, Guarded), String> {
    let graph = case.graph.clone()?;
    let table = OpTable::builtin(graph.dialect);
    if let Err(broken) = verify_bodies(&graph, &table) {
        return Err(broken.first().map(ToString::to_string).unwrap_or_default());
    }
    let done = apply(&graph, passes)?;
    Ok((graph, done))
}

fn apply(graph: &Graph, passes: &[(Pass, Extent)]) -> Result<Guarded, String> {
    let table = OpTable::builtin(graph.dialect);
    let mut done = Guarded::default();
    for &(pass, extent) in passes {
        let donated = graph.options.get("inputs_donated").and_then(Attr::as_bool);
        let options = Options {
            inputs_donated: donated.unwrap_or(extent == Extent::Step),
            refuse_missing_inputs: extent == Extent::Step,
            ..Options::of(done.graph(graph))
        };
        let next = pass(done.graph(graph), &table, &options).map_err(|e| e.to_string())?;
        done.then(next);
    }
    Ok(done)
}
