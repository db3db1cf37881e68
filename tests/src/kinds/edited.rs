//! What is expected of an edited graph: counts, copies, edges, names, attributes.

use serde_json::Value;
use tenure_graph::{Attr, Attrs, Graph, NodeId};

use crate::expect::Judge;
use crate::kinds::order;

/// Type of the node that copies.
const COPY: &str = "Identity";

/// Judges what is expected of an edited graph.
pub fn judge(graph: &Graph, judge: &mut Judge<'_>) {
    counts(graph, judge);
    copies(graph, judge);
    attributes(graph, judge);
    edges(graph, judge);
    names(graph, judge);
    merges(graph, judge);
    for race in quadruples(judge.take("no_race")) {
        if let Err(reason) = order::no_race(graph, race) {
            judge.fail(format!("no_race: {reason}"));
        }
    }
    for (name, output) in slots(judge.take("no_overwrite")) {
        if let Err(reason) = order::no_overwrite(graph, &name, output) {
            judge.fail(format!("no_overwrite: {reason}"));
        }
    }
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
    let graphs = judge.take("graph_count").and_then(Value::as_object);
    for (name, counts) in graphs.into_iter().flatten() {
        let id = (graph.subgraphs.iter())
            .find(|(_, s)| s.name == *name)
            .map(|(id, _)| id);
        for (op, want) in counts.as_object().into_iter().flatten() {
            let inside = |&n: &NodeId| Some(graph.nodes[n].subgraph) == id && is(graph, n, op);
            let got = graph.nodes.keys().filter(inside).count() as u64;
            if want.as_u64() != Some(got) {
                judge.fail(format!(
                    "graph_count: expected {want} of {op} in {name}, got {got}"
                ));
            }
        }
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

/// The node that a case calls so: by its label, its name, `copy:NODE:IN` for what feeds an input,
/// `assign:NODE:OUT` for the assignment of an output, `clean:NODE` for what clears a node's memory.
pub fn find(graph: &Graph, name: &str) -> Option<NodeId> {
    if let Some(slot) = name.strip_prefix("copy:") {
        let (node, index) = slot.rsplit_once(':')?;
        let value = graph.nodes[find(graph, node)?].input(index.parse().ok()?)?;
        return Some(graph.values[value].producer);
    }
    if let Some(slot) = name.strip_prefix("assign:") {
        let (node, index) = slot.rsplit_once(':')?;
        let value = graph.nodes[find(graph, node)?].output(index.parse().ok()?)?;
        let takes = |&n: &NodeId| is(graph, n, "Assign") && graph.nodes[n].input(1) == Some(value);
        return graph.nodes.keys().find(takes);
    }
    if let Some(node) = name.strip_prefix("clean:") {
        let cleans = |&&n: &&NodeId| is(graph, n, "AtomicAddrClean") || is(graph, n, "MemSet");
        return graph.nodes[find(graph, node)?]
            .control
            .iter()
            .find(cleans)
            .copied();
    }
    let labelled = graph.nodes.keys().find(|&n| graph.node_label(n) == name);
    labelled.or_else(|| graph.nodes.keys().find(|&n| graph.nodes[n].name == name))
}

fn attributes(graph: &Graph, judge: &mut Judge<'_>) {
    for wanted in judge.list("attrs") {
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
    if let ("reuse_input", Some(o)) = (attr, index("output")) {
        let hints = node.output(o).and_then(|v| graph.values[v].hints.as_ref());
        let got = hints.and_then(|h| h.reuse_input).map(u64::from);
        return match got == want.as_u64() {
            true => Ok(()),
            false => Err(format!(
                "{attr:?} of {name:?}: expected {want}, got {got:?}"
            )),
        };
    }
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

/// Edges of data and control, and nodes that stand on them.
fn edges(graph: &Graph, judge: &mut Judge<'_>) {
    for (from, to) in judge.pairs("edges") {
        if !has_edge(graph, from, to) {
            judge.fail(format!("edges: no edge from {from} to {to}"));
        }
    }
    for (from, to) in judge.pairs("control_edges") {
        if !has_control(graph, from, to) {
            judge.fail(format!("control_edges: {to} does not wait for {from}"));
        }
    }
    for (from, to) in judge.pairs("no_control_edges") {
        if has_control(graph, from, to) {
            judge.fail(format!("no_control_edges: {to} waits for {from}"));
        }
    }
    for wanted in judge.list("inserted") {
        let text = |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default();
        let stands = || {
            let (reader, input) = text("to").rsplit_once(':')?;
            let node = find(graph, &format!("copy:{reader}:{input}"))?;
            let (from, output) = text("from").rsplit_once(':')?;
            let source = graph.nodes[find(graph, from)?].output(output.parse().ok()?)?;
            let reads = graph.nodes[node].inputs.contains(&Some(source));
            (reads && is(graph, node, text("op"))).then_some(())
        };
        if stands().is_none() {
            judge.fail(format!("inserted: {wanted} does not stand there"));
        }
    }
    for (name, output) in slots(judge.take("identity_after")) {
        let made = find(graph, &name).and_then(|n| graph.nodes[n].output(output));
        let readers = graph
            .nodes
            .keys()
            .filter(|&n| graph.nodes[n].inputs.contains(&made));
        let readers: Vec<NodeId> = readers.collect();
        if made.is_none() || readers.len() != 1 || !is(graph, readers[0], COPY) {
            judge.fail(format!(
                "identity_after: {name}:{output} is not read by one copy alone"
            ));
        }
    }
}

fn has_edge(graph: &Graph, from: &str, to: &str) -> bool {
    let ends = || {
        let (from, output) = from.rsplit_once(':')?;
        let (to, input) = to.rsplit_once(':')?;
        let made = graph.nodes[find(graph, from)?].output(output.parse().ok()?)?;
        let read = graph.nodes[find(graph, to)?].input(input.parse().ok()?)?;
        Some(made == read)
    };
    ends() == Some(true)
}

fn has_control(graph: &Graph, from: &str, to: &str) -> bool {
    let ends = || Some((find(graph, from)?, find(graph, to)?));
    ends().is_some_and(|(from, to)| graph.nodes[to].control.contains(&from))
}

fn names(graph: &Graph, judge: &mut Judge<'_>) {
    for (key, is_there) in [("present", true), ("absent", false)] {
        for name in judge.list(key).iter().filter_map(Value::as_str) {
            if find(graph, name).is_some() != is_there {
                judge.fail(format!("{key}: {name}"));
            }
        }
    }
}

/// Outputs that take over an input's memory.
fn merges(graph: &Graph, judge: &mut Judge<'_>) {
    for wanted in judge.list("inplace") {
        let output = wanted.get(1).and_then(Value::as_u64);
        let output = output.and_then(|o| usize::try_from(o).ok());
        let node = wanted
            .get(0)
            .and_then(Value::as_str)
            .and_then(|name| find(graph, name));
        let value = node.zip(output).and_then(|(n, o)| graph.nodes[n].output(o));
        let Some(value) = value else {
            judge.fail(format!("inplace: {wanted}: there is no such output"));
            continue;
        };
        let got = graph.values[value]
            .hints
            .as_ref()
            .and_then(|h| h.reuse_input);
        if wanted.get(2).and_then(Value::as_u64) != got.map(u64::from) {
            judge.fail(format!("inplace: expected {wanted}, got {got:?}"));
        }
    }
}

/// Writer with its input, reader with its input.
fn quadruples(list: Option<&Value>) -> Vec<(String, u32, String, u32)> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let one = |list: &Value| {
        let text = |i: usize| list.get(i)?.as_str().map(ToOwned::to_owned);
        let number = |i: usize| u32::try_from(list.get(i)?.as_u64()?).ok();
        Some((text(0)?, number(1)?, text(2)?, number(3)?))
    };
    list.filter_map(one).collect()
}
