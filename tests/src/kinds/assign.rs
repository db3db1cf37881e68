//! `assign`: plans the graph as it is given and looks at offsets and sizes.

use serde_json::Value;
use tenure_graph::Graph;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Place, Placement, Plan, PlanOptions};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::verify::verify_bodies;
use tenure_plan::{Config, order};

use crate::case::GraphCase;
use crate::expect::Judge;

/// Runs the kind.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    if case.origin() != "bug report kind" {
        return super::accounting::run(case, judge);
    }
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let options = options(case);
    let planned = case
        .graph
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|graph| planned(graph.clone(), &options, Order::File));
    let (graph, plan) = match planned {
        Ok(_) if refused => return judge.fail("an error was expected, a plan was made"),
        Ok(done) => done,
        Err(_) if refused => return,
        Err(error) => return judge.fail(error),
    };
    sizes(case, &plan, judge);
    places(&graph, &plan, judge);
    if let Some(want) = judge.number("best_order_peak") {
        match planned_again(case, &options) {
            Ok(got) if got == want => {}
            Ok(got) => judge.fail(format!("best_order_peak: expected {want}, got {got}")),
            Err(error) => judge.fail(error),
        }
    }
}

/// Judges what is said of the arena's size.
pub(super) fn sizes(case: &GraphCase, plan: &Plan, judge: &mut Judge<'_>) {
    let size = plan.arenas.iter().map(|a| a.size).sum();
    judge.equal("peak_bytes", size);
    let budget = case.option("budget").and_then(Value::as_u64);
    if let (Some(want), Some(budget)) = (judge.take("fits").and_then(Value::as_bool), budget)
        && (size <= budget) != want
    {
        judge.fail(format!("fits: {size} bytes into {budget}, expected {want}"));
    }
}

/// Which order is planned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    File,
    Best,
}

fn planned_again(case: &GraphCase, options: &PlanOptions) -> Result<u64, String> {
    let graph = case.graph.clone()?;
    let (_, plan) = planned(graph, options, Order::Best)?;
    Ok(plan.arenas.iter().map(|a| a.size).sum())
}

/// A graph that keeps to the rules, with shapes.
pub(super) fn shaped(graph: Graph) -> Result<(Graph, OpTable), String> {
    let table = OpTable::builtin(graph.dialect);
    tenure_graph::verify(&graph)
        .and_then(|()| verify_bodies(&graph, &table))
        .map_err(|broken| first(&broken))?;
    let shaped = infer(graph, &table, &Bindings::default()).map_err(|e| e.to_string())?;
    Ok((shaped.graph, table))
}

/// Whether a plan passes its check.
pub(super) fn checked(graph: &Graph, table: &OpTable, plan: &Plan) -> Result<(), String> {
    let checked = tenure_check::check(graph, table, plan);
    let failed = |broken: Vec<_>| format!("the plan fails its check: {}", first(&broken));
    checked.map(drop).map_err(failed)
}

/// Shapes, plan, check.
fn planned(graph: Graph, options: &PlanOptions, order: Order) -> Result<(Graph, Plan), String> {
    let (graph, table) = shaped(graph)?;
    let graph = match order {
        Order::File => graph,
        Order::Best => order::improve(graph, &table, options).map_err(|e| e.to_string())?,
    };
    let planned = tenure_plan::plan(&graph, &table, options, &Config::default())
        .map_err(|e| e.to_string())?;
    checked(&graph, &table, &planned.plan)?;
    Ok((graph, planned.plan))
}

pub(super) fn first(list: &[impl ToString]) -> String {
    list.first().map(ToString::to_string).unwrap_or_default()
}

/// The options of these cases: graph inputs lie outside unless the case says otherwise.
pub(super) fn options(case: &GraphCase) -> PlanOptions {
    let flag = |name| case.option(name).and_then(Value::as_bool) == Some(true);
    PlanOptions {
        align: case
            .option("alignment")
            .and_then(Value::as_u64)
            .unwrap_or_else(|| PlanOptions::default().align),
        inputs: if flag("inputs_in_arena") {
            Placement::Planned
        } else {
            Placement::User
        },
        keep_inputs: flag("keep_inputs"),
        ..PlanOptions::default()
    }
}

/// Judges what is said of single tensors.
pub(super) fn places(graph: &Graph, plan: &Plan, judge: &mut Judge<'_>) {
    let find = |name: &str| find(graph, plan, name);
    for (a, b) in judge.pairs("no_overlap") {
        match (find(a), find(b)) {
            (Some(Some(x)), Some(Some(y))) if x.0 < y.1 && y.0 < x.1 => {
                judge.fail(format!("no_overlap: {a} and {b} share bytes"));
            }
            (Some(_), Some(_)) => {}
            _ => judge.fail(format!("no_overlap: {a} or {b} does not exist")),
        }
    }
    for (a, b) in judge.pairs("share") {
        match (find(a), find(b)) {
            (Some(Some(x)), Some(Some(y))) if x.0 == y.0 => {}
            _ => judge.fail(format!("share: {a} and {b} do not start at one address")),
        }
    }
    let planned = judge.take("planned").and_then(Value::as_object);
    for (name, want) in planned.into_iter().flatten() {
        if want.as_bool() != Some(find(name).flatten().is_some()) {
            judge.fail(format!("planned: {name}: expected {want}"));
        }
    }
}

/// First byte and the byte after the last.
type Range = (u64, u64);

/// Where a tensor or workspace lies in the arena, `Some(None)` if outside it; `None` when there is
/// no such thing.
fn find(graph: &Graph, plan: &Plan, name: &str) -> Option<Option<Range>> {
    let placed = plan.storages.values().find_map(|storage| {
        let Place::Arena { offset, .. } = storage.place else {
            return None;
        };
        let member = storage.members.iter().find(|m| match m.item {
            Item::Value(value) => graph.value_label(value) == name,
            Item::Workspace(node, k) => format!("{}#{k}", graph.node_label(node)) == name,
            Item::Copy(_) => false,
        })?;
        let first = offset + member.offset;
        Some((first, first + member.bytes))
    });
    let exists = || graph.values.keys().any(|v| graph.value_label(v) == name);
    (placed.is_some() || exists()).then_some(placed)
}
