//! Kinds that edit the graph: passes of the guard, and what is expected of the edited graph.

use serde_json::Value;
use tenure_graph::effects::OpTable;
use tenure_graph::verify::verify_bodies;
use tenure_graph::{Attr, Attrs, Graph, NodeId};
use tenure_guard::{GuardError, Guarded, Options};

use crate::case::GraphCase;
use crate::expect::Judge;

/// A pass of the guard.
pub type Pass = fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>;

/// Type of the node that copies.
const COPY: &str = "Identity";

/// Runs passes one after the other on the case's graph, and judges what they made of it.
pub fn run(case: &GraphCase, passes: &[Pass], judge: &mut Judge<'_>) {
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let done = match guarded(case, passes) {
        Ok(_) if refused => return judge.fail("an error was expected, a graph was made"),
        Ok(done) => done,
        Err(_) if refused => return,
        Err(error) => return judge.fail(error),
    };
    let graph = &done.graph;
    counts(graph, judge);
    copies(graph, judge);
    attributes(graph, judge);
    if judge.take("idempotent").and_then(Value::as_bool) == Some(true) {
        match apply(graph.clone(), passes) {
            Ok(again) if again.graph == *graph => {}
            Ok(again) => judge.fail(format!("idempotent: the second run did: {}", again.log)),
            Err(error) => judge.fail(format!("idempotent: {error}")),
        }
    }
}

fn guarded(case: &GraphCase, passes: &[Pass]) -> Result<Guarded, String> {
    let graph = case.graph.clone()?;
    let table = OpTable::builtin(graph.dialect);
    if let Err(broken) = verify_bodies(&graph, &table) {
        return Err(broken.first().map(ToString::to_string).unwrap_or_default());
    }
    apply(graph, passes)
}

fn apply(graph: Graph, passes: &[Pass]) -> Result<Guarded, String> {
    let table = OpTable::builtin(graph.dialect);
    let mut done = Guarded::of(&graph);
    for pass in passes {
        let options = Options::of(&done.graph);
        let next = pass(&done.graph, &table, &options).map_err(|e| e.to_string())?;
        done.then(next);
    }
    Ok(done)
}

fn is(graph: &Graph, node: NodeId, op: &str) -> bool {
    &*graph.nodes[node].op == op
}

fn counts(graph: &Graph, judge: &mut Judge<'_>) {
    let count = graph.nodes.keys().filter(|&n| is(graph, n, COPY)).count() as u64;
    judge.equal("identity_count", count);
    if let Some(most) = judge.number("max_identity")
        && count > most
    {
        judge.fail(format!(
            "max_identity: expected at most {most}, got {count}"
        ));
    }
    for (op, want) in judge
        .take("count")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let got = graph.nodes.keys().filter(|&n| is(graph, n, op)).count() as u64;
        if want.as_u64() != Some(got) {
            judge.fail(format!("count: expected {want} of {op}, got {got}"));
        }
    }
}

fn copies(graph: &Graph, judge: &mut Judge<'_>) {
    for slot in slots(judge.take("identity_before")) {
        if !is_copied(graph, &slot) {
            judge.fail(format!(
                "identity_before: no copy before {} {}",
                slot.0, slot.1
            ));
        }
    }
    for slot in slots(judge.take("no_identity_before")) {
        if is_copied(graph, &slot) {
            judge.fail(format!(
                "no_identity_before: a copy before {} {}",
                slot.0, slot.1
            ));
        }
    }
    let any = judge
        .take("identity_before_any_of")
        .and_then(Value::as_array);
    if let Some(any) = any
        && !any
            .iter()
            .any(|all| slots(Some(all)).iter().all(|s| is_copied(graph, s)))
    {
        judge.fail("identity_before_any_of: none of the alternatives holds");
    }
}

/// Pairs of a node's name and a number.
fn slots(list: Option<&Value>) -> Vec<(String, usize)> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let slot = |pair: &Value| {
        let index = usize::try_from(pair.get(1)?.as_u64()?).ok()?;
        Some((pair.get(0)?.as_str()?.to_owned(), index))
    };
    list.filter_map(slot).collect()
}

fn is_copied(graph: &Graph, (name, index): &(String, usize)) -> bool {
    find(graph, &format!("copy:{name}:{index}")).is_some_and(|n| is(graph, n, COPY))
}

/// The node that a case calls so: by its label, its name, or `copy:NODE:IN` for what feeds an
/// input.
fn find(graph: &Graph, name: &str) -> Option<NodeId> {
    if let Some(slot) = name.strip_prefix("copy:") {
        let (node, index) = slot.rsplit_once(':')?;
        let value = graph.nodes[find(graph, node)?].input(index.parse().ok()?)?;
        return Some(graph.values[value].producer);
    }
    let labelled = graph.nodes.keys().find(|&n| graph.node_label(n) == name);
    labelled.or_else(|| graph.nodes.keys().find(|&n| graph.nodes[n].name == name))
}

fn attributes(graph: &Graph, judge: &mut Judge<'_>) {
    let wanted = judge
        .take("attrs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for wanted in wanted {
        if let Err(reason) = attribute(graph, wanted) {
            judge.fail(format!("attrs: {reason}"));
        }
    }
}

fn attribute(graph: &Graph, wanted: &Value) -> Result<(), String> {
    let text = |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default();
    let index = |key: &str| {
        let index = wanted.get(key).and_then(Value::as_u64)?;
        usize::try_from(index).ok()
    };
    let (name, attr) = (text("node"), text("attr"));
    let id = find(graph, name).ok_or_else(|| format!("there is no node {name:?}"))?;
    let node = &graph.nodes[id];
    let attrs: Option<&Attrs> = if let Some(o) = index("output") {
        let hints = node.output(o).and_then(|v| graph.values[v].hints.as_ref());
        hints.map(|h| &h.attrs)
    } else if let Some(i) = index("input") {
        node.input_attrs.get(i)
    } else {
        Some(&node.attrs)
    };
    let got = attrs.and_then(|a| a.get(attr));
    let want = wanted.get("value").unwrap_or(&Value::Null);
    if equal(got, want) {
        Ok(())
    } else {
        Err(format!(
            "{attr:?} of {name:?}: expected {want}, got {got:?}"
        ))
    }
}

fn equal(got: Option<&Attr>, want: &Value) -> bool {
    match (got, want) {
        (None, Value::Null) => true,
        (Some(Attr::Bool(got)), Value::Bool(want)) => got == want,
        (Some(Attr::Int(got)), Value::Number(want)) => want.as_i64() == Some(*got),
        (Some(Attr::Float(got)), Value::Number(want)) => want.as_f64() == Some(*got),
        (Some(Attr::Str(got)), Value::String(want)) => got == want,
        (Some(Attr::List(got)), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(g, w)| equal(Some(g), w))
        }
        _ => false,
    }
}
