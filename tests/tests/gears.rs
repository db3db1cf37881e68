//! Gears: parts of a program of which one alone runs overlay, and collectives lie at one place in
//! all of them.

use tenure_check::check;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Arena, Item, Place, Plan, PlanOptions, Storage};
use tenure_graph::{Graph, ValueId};
use tenure_plan::{Config, plan};

/// Two gears between a first and a last node: a chain of three values of 4 KiB each, or one
/// collective that works on 8 and on 16 KiB.
fn model(collective: bool) -> Graph {
    let node = |name: &str, op: &str, input: &str, gear: &str, elements: u32| {
        let attrs = match gear {
            "" => String::new(),
            gear => format!(r#""attrs": {{"_batch_label": "{gear}"}},"#),
        };
        format!(
            r#"{{"name": "{name}", "op": "{op}", "inputs": ["{input}:0"], {attrs}
                "outputs": [{{"dtype": "float32", "shape": [{elements}]}}]}}"#
        )
    };
    let mut nodes = vec![
        r#"{"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [1024]}]}"#
            .to_owned(),
        node("s", "Foo", "x", "", 1024),
    ];
    for (gear, elements) in [("small", 2048), ("large", 4096)] {
        let name = |k: u32| format!("{gear}{k}");
        nodes.push(node(&name(1), "Foo", "s", gear, elements));
        let op = if collective { "HcomAllReduce" } else { "Foo" };
        nodes.push(node(&name(2), op, &name(1), gear, elements));
    }
    nodes.push(
        r#"{"name": "m", "op": "Foo", "inputs": ["small2:0", "large2:0"],
            "outputs": [{"dtype": "float32", "shape": [1024]}]}"#
            .to_owned(),
    );
    nodes.push(r#"{"name": "out", "op": "NetOutput", "inputs": ["m:0"]}"#.to_owned());
    let text = format!(
        r#"{{"format": "tenure.graph/1", "graphs": [{{"name": "root", "nodes": [{}]}}]}}"#,
        nodes.join(", ")
    );
    tenure_graph::json::read(text.as_bytes()).unwrap()
}

fn planned(graph: &Graph) -> Plan {
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions::default();
    let planned = plan(graph, &table, &options, &Config::default()).unwrap();
    if let Err(broken) = check(graph, &table, &planned.plan) {
        panic!("{broken:?}");
    }
    planned.plan
}

fn value(graph: &Graph, name: &str) -> ValueId {
    let mut values = graph.values.keys();
    values.find(|&v| graph.value_label(v) == name).unwrap()
}

/// The first byte of a value.
fn start(graph: &Graph, plan: &Plan, name: &str) -> u64 {
    let item = Item::Value(value(graph, name));
    let found = plan.storages.values().find_map(|s| {
        let member = s.members.iter().find(|m| m.item == item)?;
        let Place::Arena { offset, .. } = s.place else {
            return None;
        };
        Some(offset + member.offset)
    });
    found.unwrap()
}

#[test]
fn gears_overlay() {
    let graph = model(false);
    let plan = planned(&graph);
    // The two values of the large one alone.
    assert_eq!(plan.arenas[0].size, 2 * 16384);
    assert_eq!(plan.arenas[0].lower_bound, plan.arenas[0].size);
}

#[test]
fn collectives_of_gears_lie_at_one_place() {
    let graph = model(true);
    let mut plan = planned(&graph);
    for (small, large) in [("small1:0", "large1:0"), ("small2:0", "large2:0")] {
        assert_eq!(start(&graph, &plan, small), start(&graph, &plan, large));
    }
    // One of them moves to memory of its own.
    let item = Item::Value(value(&graph, "small2:0"));
    let storages = plan.storages.values_mut();
    let mut storages = storages.filter(|s| s.members.iter().any(|m| m.item == item));
    let storage = storages.next().unwrap();
    let member = *storage.members.iter().find(|m| m.item == item).unwrap();
    storage.members.retain(|m| m.item != item);
    let arena: &mut Arena = &mut plan.arenas[0];
    let moved = Storage {
        place: Place::Arena {
            arena: 0,
            offset: arena.size,
        },
        members: [member].into_iter().collect(),
        ..storage.clone()
    };
    arena.size += moved.size;
    plan.storages.push(moved);
    let table = OpTable::builtin(graph.dialect);
    let broken = check(&graph, &table, &plan).unwrap_err();
    assert_eq!(broken[0].code(), "T065", "{broken:?}");
}

/// A value of one gear over one that every gear needs.
#[test]
fn a_gear_does_not_lie_over_what_all_need() {
    let graph = model(false);
    let mut plan = planned(&graph);
    let (s, large) = (start(&graph, &plan, "s:0"), value(&graph, "large1:0"));
    let item = Item::Value(large);
    for storage in plan.storages.values_mut() {
        if storage.members.iter().any(|m| m.item == item) {
            storage.place = Place::Arena {
                arena: 0,
                offset: s,
            };
        }
    }
    plan.arenas[0].size += 16384;
    let table = OpTable::builtin(graph.dialect);
    assert!(check(&graph, &table, &plan).is_err());
}

/// A graph of nodes with name, inputs, stream and gear, each of which makes a value of 1 KiB.
fn nodes(list: &[(&str, &str, &[&str], i64, &str)]) -> Graph {
    let node = |&(name, op, inputs, stream, gear): &(&str, &str, &[&str], i64, &str)| {
        let inputs: Vec<String> = inputs.iter().map(|i| format!("\"{i}:0\"")).collect();
        let attrs = match gear {
            "" => String::new(),
            gear => format!(r#""attrs": {{"_batch_label": "{gear}"}},"#),
        };
        format!(
            r#"{{"name": "{name}", "op": "{op}", "inputs": [{}], "stream": {stream}, {attrs}
                "outputs": [{{"dtype": "float32", "shape": [256]}}]}}"#,
            inputs.join(", ")
        )
    };
    let list: Vec<String> = list.iter().map(node).collect();
    let text = format!(
        r#"{{"format": "tenure.graph/1", "graphs": [{{"name": "root", "nodes": [{}]}}]}}"#,
        list.join(", ")
    );
    tenure_graph::json::read(text.as_bytes()).unwrap()
}

#[test]
fn an_input_of_one_gear_is_free_in_the_others() {
    let graph = nodes(&[
        ("d", "Data", &[], -1, ""),
        ("a", "Foo", &["d"], 0, "a"),
        ("b", "Foo", &[], 0, "b"),
    ]);
    assert_eq!(planned(&graph).arenas[0].size, 2048);
}

#[test]
fn gears_end_in_a_merge() {
    let graph = nodes(&[
        ("u", "Foo", &[], 0, ""),
        ("a", "Foo", &["u"], 0, "a"),
        ("b", "Foo", &["u"], 1, "b"),
        ("m", "Merge", &["a", "b"], 0, ""),
        ("r", "Foo", &["m"], 0, ""),
    ]);
    assert_eq!(planned(&graph).arenas[0].size, 2048);
}

#[test]
fn order_goes_through_no_other_gear() {
    // `b` must wait for `u` itself, though `a`, which does, stands before it on its stream.
    let graph = nodes(&[
        ("u", "Foo", &[], 0, ""),
        ("a", "Foo", &["u"], 1, "a"),
        ("b", "Foo", &["u"], 1, "b"),
    ]);
    let plan = planned(&graph);
    assert_eq!((plan.waits.len(), plan.arenas[0].size), (2, 2048));
    // On streams of their own they share memory all the same, since one alone runs.
    let graph = nodes(&[
        ("a", "Foo", &[], 0, "a"),
        ("b", "Foo", &[], 1, "b"),
        ("c", "Foo", &[], 1, "b"),
    ]);
    assert_eq!(planned(&graph).arenas[0].size, 1024);
}
