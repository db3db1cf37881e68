//! Kind `lint`: what the guard tells of the graph as given.

use serde_json::Value;
use tenure_graph::effects::OpTable;
use tenure_guard::lint::{self, Code, Hit};

use crate::case::GraphCase;
use crate::expect::Judge;

/// Runs the lint and judges what is expected of it.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    let graph = match &case.graph {
        Ok(graph) => graph,
        Err(error) => return judge.fail(error.clone()),
    };
    let hits = lint::run(graph, &OpTable::builtin(graph.dialect)).hits;
    warnings(&hits, judge);
    let Some(wanted) = judge.take("findings").and_then(Value::as_array) else {
        return;
    };
    for wanted in wanted {
        let nodes = names(wanted);
        let kind = wanted.get("kind").and_then(Value::as_str);
        let is_it = |h: &Hit| kind == Some(h.code.name()) && plain(h) == nodes;
        if !hits.iter().any(is_it) {
            judge.fail(format!("findings: {wanted} was not found, but {hits:?}"));
        }
    }
    let others: Vec<&Hit> = hits
        .iter()
        .filter(|h| h.code != Code::UnorderedAccess)
        .collect();
    if wanted.is_empty() && !others.is_empty() {
        judge.fail(format!("findings: none was expected, found {others:?}"));
    }
}

/// Judges the accesses in no order: exactly the expected pairs.
pub fn warnings(hits: &[Hit], judge: &mut Judge<'_>) {
    let Some(wanted) = judge.take("warnings").and_then(Value::as_array) else {
        return;
    };
    let sorted = |mut nodes: Vec<String>| {
        nodes.sort();
        nodes
    };
    let mut want: Vec<Vec<String>> = wanted.iter().map(|w| sorted(names(w))).collect();
    let found = hits.iter().filter(|h| h.code == Code::UnorderedAccess);
    let mut got: Vec<Vec<String>> = found.map(|h| sorted(plain(h))).collect();
    want.sort();
    got.sort();
    if want != got {
        judge.fail(format!("warnings: expected {want:?}, got {got:?}"));
    }
}

fn names(wanted: &Value) -> Vec<String> {
    let nodes = wanted
        .get("nodes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    nodes
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}

/// The names without the graphs that they stand in, as cases give them.
fn plain(hit: &Hit) -> Vec<String> {
    let plain = |name: &String| name.rsplit('/').next().unwrap_or(name).to_owned();
    hit.nodes.iter().map(plain).collect()
}
