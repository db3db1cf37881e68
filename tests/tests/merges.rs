//! Merges: alternatives are one memory in every plan, and the checker finds what would be lost.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Place, Placement, Plan, PlanOptions};
use tenure_graph::text::parse;
use tenure_graph::{Dialect, Graph, ValueId};
use tenure_plan::{Config, PlanError, plan};

fn graph(nodes: &str) -> (Graph, OpTable) {
    let text = format!("model m ge graph ^root {{ %x: float32[16] = Data() @x {nodes} }}");
    (parse(&text).unwrap(), OpTable::builtin(Dialect::Ge))
}

fn value(graph: &Graph, name: &str) -> ValueId {
    let mut values = graph.values.iter();
    values.find(|(_, v)| v.name == name).unwrap().0
}

fn planned(graph: &Graph, table: &OpTable) -> Result<Plan, PlanError> {
    let options = PlanOptions::default();
    let planned = plan(graph, table, &options, &Config::default())?;
    tenure_check::check(graph, table, &planned.plan).unwrap();
    Ok(planned.plan)
}

fn start(graph: &Graph, plan: &Plan, name: &str) -> u64 {
    let item = Item::Value(value(graph, name));
    let held = plan.storages.values().find_map(|s| {
        let member = s.members.iter().find(|m| m.item == item)?;
        match s.place {
            Place::Arena { offset, .. } => Some(offset + member.offset),
            Place::Caller => None,
        }
    });
    held.unwrap()
}

/// `c` reads `a` behind what may be made instead of it.
const ALTERNATIVES: &str = "
    %p: float32[16] = Abs(%x) @p
    %q: float32[16] = Abs(%p) @q
    %a: float32[16] = Abs(%x) @a
    %b: float32[16] = Abs(%q) @b
    %m: float32[16] = Merge(%a, %b) @m
    %c: float32[16] = Add(%a, %m) @c
    NetOutput(%c) @out";

#[test]
fn alternatives_are_one_memory() {
    let (graph, table) = graph(ALTERNATIVES);
    let plan = planned(&graph, &table).unwrap();
    let places = ["a", "b", "m"].map(|name| start(&graph, &plan, name));
    assert!(places.iter().all(|at| *at == places[0]), "{places:?}");
}

#[test]
fn what_lies_elsewhere_is_refuted() {
    let (graph, table) = graph(ALTERNATIVES);
    for name in ["a", "b", "m"] {
        let mut plan = planned(&graph, &table).unwrap();
        move_out(&graph, &mut plan, name);
        let broken = tenure_check::check(&graph, &table, &plan).unwrap_err();
        assert!(broken.iter().any(|v| v.code() == "T066"), "{broken:?}");
    }
}

#[test]
fn what_is_made_in_any_case_is_no_alternative() {
    // `q` is made whether or not `b` is, so it does not lie where `a` may be.
    let (graph, table) = graph(ALTERNATIVES);
    let mut plan = planned(&graph, &table).unwrap();
    let (q, place) = (value(&graph, "q"), start(&graph, &plan, "a"));
    assert_ne!(start(&graph, &plan, "q"), place);
    for storage in plan.storages.values_mut() {
        if storage.members.iter().any(|m| m.item == Item::Value(q)) {
            storage.place = Place::Arena {
                arena: 0,
                offset: place,
            };
        }
    }
    let broken = tenure_check::check(&graph, &table, &plan).unwrap_err();
    assert!(broken.iter().any(|v| v.code() == "T050"), "{broken:?}");
}

#[test]
fn what_cannot_be_one_memory_is_an_error() {
    // The caller's input is there in any case, and a loop of jumps comes round again.
    let outside = "
        %a: float32[16] = Abs(%x) @a
        %m: float32[16] = StreamMerge(%a, %x) @m
        %c: float32[16] = Add(%m, %x) @c
        NetOutput(%c) @out";
    let (graph1, table) = graph(outside);
    let error = planned(&graph1, &table).unwrap_err();
    assert!(
        matches!(&error, PlanError::Merge { node, .. } if node == "m"),
        "{error}"
    );
    let jumps = "
        %a: float32[16] = Enter(%x) @a
        %m: float32[16] = Merge(%a) @m {_next_iteration_node = \"n\"}
        %n: float32[16] = NextIteration(%m) @n
        NetOutput(%m) @out";
    let (graph2, table) = graph(jumps);
    let error = planned(&graph2, &table).unwrap_err();
    assert!(matches!(&error, PlanError::Demand { .. }), "{error}");
}

#[test]
fn what_waits_for_a_stream_may_have_memory_of_its_own() {
    let (graph, table) = graph(&ALTERNATIVES.replace("Merge(", "StreamMerge("));
    let mut plan = planned(&graph, &table).unwrap();
    let places = ["a", "b", "m"].map(|name| start(&graph, &plan, name));
    assert!(places.iter().all(|at| *at == places[0]), "{places:?}");
    move_out(&graph, &mut plan, "m");
    assert!(tenure_check::check(&graph, &table, &plan).is_ok());
    move_out(&graph, &mut plan, "b");
    let broken = tenure_check::check(&graph, &table, &plan).unwrap_err();
    assert!(broken.iter().any(|v| v.code() == "T066"), "{broken:?}");
}

/// Gives a value memory of its own, behind all else.
fn move_out(graph: &Graph, plan: &mut Plan, name: &str) {
    let item = Item::Value(value(graph, name));
    let end = plan.arenas[0].size;
    plan.arenas[0].size += 64;
    let mut moved = None;
    for storage in plan.storages.values_mut() {
        if let Some(at) = storage.members.iter().position(|m| m.item == item) {
            let mut apart = storage.clone();
            apart.members = [storage.members.remove(at)].into_iter().collect();
            apart.place = Place::Arena {
                arena: 0,
                offset: end,
            };
            moved = Some(apart);
        }
    }
    plan.storages.push(moved.unwrap());
}

#[test]
fn what_is_there_in_any_case_is_no_alternative() {
    // `x` would be written over by `b`, and the caller could not give both of two inputs.
    let over = "
        %b: float32[16] = Abs() @b
        %m: float32[16] = Merge(%x, %b) @m
        %r: float32[16] = Abs(%m) @r
        %q: float32[16] = Abs(%x) @q
        NetOutput(%r, %q) @out";
    let two = "
        %y: float32[16] = Data() @y
        %m: float32[16] = Merge(%x, %y) @m
        NetOutput(%m) @out";
    for nodes in [over, two] {
        let (graph, table) = graph(nodes);
        let error = planned(&graph, &table).unwrap_err();
        assert!(matches!(&error, PlanError::Merge { .. }), "{error}");
    }
}

#[test]
fn one_input_is_handed_on_as_well() {
    let (graph, table) = graph(
        "%a: float32[16] = Abs(%x) @a
         %m: float32[16] = StreamMerge(%a) @m
         NetOutput(%m) @out",
    );
    let plan = planned(&graph, &table).unwrap();
    assert_eq!(start(&graph, &plan, "a"), start(&graph, &plan, "m"));
}

#[test]
fn a_name_of_another_value_may_be_an_alternative() {
    for op in ["Merge", "StreamMerge"] {
        let (graph, table) = graph(&format!(
            "%p: float32[16] = Abs(%x) @p
             %v: float32[4, 4] <ref_input = 0> = Reshape(%p) @v
             %b: float32[4, 4] = Abs(%p) @b
             %m: float32[4, 4] = {op}(%v, %b) @m
             %c: float32[4, 4] = Abs(%m) @c
             NetOutput(%c) @out"
        ));
        let plan = planned(&graph, &table).unwrap();
        let places = ["v", "b", "m"].map(|name| start(&graph, &plan, name));
        assert!(places.iter().all(|at| *at == places[0]), "{places:?}");
    }
}

#[test]
fn whatever_has_come_goes_to_the_callers_memory() {
    let (graph, table) = graph(
        "%a: float32[16] = Abs(%x) @a
         %b: float32[16] = Abs(%x) @b
         %m: float32[16] = StreamMerge(%a, %b) @m
         NetOutput(%m) @out",
    );
    let options = PlanOptions {
        inputs: Placement::User,
        outputs: Placement::User,
        ..PlanOptions::default()
    };
    let plan = plan(&graph, &table, &options, &Config::default())
        .unwrap()
        .plan;
    tenure_check::check(&graph, &table, &plan).unwrap();
    assert_eq!(plan.copies.len(), 1);
}

#[test]
fn nothing_comes_from_what_takes_no_memory() {
    for op in ["Merge", "StreamMerge"] {
        let (graph, table) = graph(&format!(
            "%a: float32[16] = Abs(%x) @a {{_output_memory_type = [32768]}}
             %b: float32[16] = Abs(%x) @b
             %m: float32[16] = {op}(%a, %b) @m
             NetOutput(%m) @out"
        ));
        let error = planned(&graph, &table).unwrap_err();
        assert!(matches!(error, PlanError::Merge { .. }), "{error}");
    }
}
