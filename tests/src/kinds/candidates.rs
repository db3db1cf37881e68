//! Kind `inplace_candidates`: what the first filter leaves of what nodes say they can do in place.

use serde_json::Value;
use tenure_graph::effects::OpTable;
use tenure_guard::in_place;

use crate::case::GraphCase;
use crate::expect::Judge;

/// Finds the candidates and judges them node by node.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let found = case.graph.as_ref().map_err(Clone::clone).and_then(|graph| {
        let table = OpTable::builtin(graph.dialect);
        let all = in_place::candidates(graph, &table).map_err(|e| e.to_string())?;
        Ok((graph, all))
    });
    let (graph, all) = match found {
        Ok(_) if refused => return judge.fail("an error was expected, candidates were found"),
        Ok(found) => found,
        Err(_) if refused => return,
        Err(error) => return judge.fail(error),
    };
    let wanted = judge.take("candidates").and_then(Value::as_object);
    for (name, want) in wanted.into_iter().flatten() {
        let of = all.iter().filter(|c| graph.nodes[c.node].name == *name);
        let got: Vec<Value> = of.map(|c| vec![c.output, c.input].into()).collect();
        if *want != Value::from(got.clone()) {
            judge.fail(format!("candidates: {name}: expected {want}, got {got:?}"));
        }
    }
}
