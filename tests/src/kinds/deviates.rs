//! Cases that say where copies or merges stand, and why that is strange: another answer counts when
//! it is proven right and copies no more, or when the case's own answer is proven wrong.

use serde_json::Value;
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::patch::Patch;
use tenure_graph::plan::{Placement, PlanOptions};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{Graph, NodeId};
use tenure_plan::Config;

use crate::case::GraphCase;
use crate::kinds::edited::find;

/// Keys of `expect` that say where copies or merges stand, or how many there are.
const OF_PLACES: &[&str] = &[
    "identity_count",
    "max_identity",
    "graph_count",
    "identity_before",
    "no_identity_before",
    "identity_before_any_of",
    "identity_after",
    "inserted",
    "edges",
    "present",
    "absent",
    "inplace",
    "idempotent",
];

/// Whether all that a case misses may be answered otherwise.
#[must_use]
pub fn may_deviate(case: &GraphCase, failures: &[String]) -> bool {
    let has_note = case.file.get("note").is_some_and(|n| !n.is_null());
    let is_ours = matches!(case.origin(), "own" | "bug report kind");
    let is_place = |failure: &String| {
        let key = failure.split(':').next().unwrap_or_default();
        OF_PLACES.contains(&key)
    };
    has_note && !is_ours && failures.iter().all(is_place)
}

/// Judges our answer to a case beside the case's own; gives both in words when ours counts.
#[must_use]
pub fn judge(case: &GraphCase, ours: &Graph) -> Option<String> {
    let given = case.graph.as_ref().ok()?;
    let before = copies(given);
    let mine = proven(ours)?;
    let made = (copies(ours) + mine.further).saturating_sub(before);
    let asked = asked(case, given);
    if made <= asked {
        return Some(format!("{made} copies, proven; the case asks for {asked}"));
    }
    // A number alone does not say what the case's own answer is.
    if places(case).len() < asked {
        return None;
    }
    let own = as_asked(case, given)?;
    let fails = proven(&own).is_none_or(|own| own.further > 0);
    fails.then(|| format!("{made} copies, proven; with those of the case, {asked}, data is lost"))
}

/// How many copying nodes a graph has.
fn copies(graph: &Graph) -> usize {
    let table = OpTable::builtin(graph.dialect);
    let is_copy = |&n: &NodeId| table.traits(graph, n).has(Trait::Copies);
    graph.nodes.keys().filter(is_copy).count()
}

/// How many copies a case asks for.
fn asked(case: &GraphCase, given: &Graph) -> usize {
    let number = |key: &str| case.expect.get(key).and_then(Value::as_u64);
    let total = number("identity_count").or(number("max_identity"));
    if let Some(total) = total.and_then(|n| usize::try_from(n).ok()) {
        return total.saturating_sub(copies(given));
    }
    places(case).len()
}

/// The inputs before which a case wants copies.
fn places(case: &GraphCase) -> Vec<(String, u32)> {
    let list = |key: &str| case.expect.get(key).and_then(Value::as_array);
    let before = list("identity_before").into_iter().flatten();
    let before = before.filter_map(|pair| {
        let input = u32::try_from(pair.get(1)?.as_u64()?).ok()?;
        Some((pair.get(0)?.as_str()?.to_owned(), input))
    });
    let inserted = list("inserted").into_iter().flatten().filter_map(|edge| {
        let (node, input) = edge.get("to")?.as_str()?.rsplit_once(':')?;
        Some((node.to_owned(), input.parse().ok()?))
    });
    let mut places: Vec<(String, u32)> = before.chain(inserted).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The graph with the copies that a case wants and no others.
fn as_asked(case: &GraphCase, given: &Graph) -> Option<Graph> {
    let mut patch = Patch::new();
    for (k, (node, input)) in places(case).into_iter().enumerate() {
        let reader = find(given, &node)?;
        given.nodes[reader].input(input as usize)?;
        patch.insert(reader, input, "Identity", format!("asked_{k}"), "asked for");
    }
    Some(patch.apply(given).ok()?.0)
}

/// A graph whose plan is proven.
struct Proven {
    /// Copies that the plan needs beyond those of the graph.
    further: usize,
}

/// Plans and checks a graph whose inputs and outputs are the caller's.
fn proven(graph: &Graph) -> Option<Proven> {
    let table = OpTable::builtin(graph.dialect);
    let graph = infer(graph.clone(), &table, &Bindings::default())
        .ok()?
        .graph;
    let options = PlanOptions {
        inputs: Placement::User,
        outputs: Placement::User,
        ..PlanOptions::default()
    };
    let plan = tenure_plan::plan(&graph, &table, &options, &Config::default())
        .ok()?
        .plan;
    let further = plan.copies.len();
    tenure_check::check(&graph, &table, &plan).ok()?;
    Some(Proven { further })
}
