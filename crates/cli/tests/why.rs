//! `tenure why` as a user runs it: each relation, and a label that is not there.

use std::process::{Command, Output};

use serde_json::{Value, json};

/// A graph of unary nodes and additions: name, operator, inputs, stream.
fn graph(nodes: &[(&str, &str, &[&str], u32)]) -> tempfile::NamedTempFile {
    let node = |&(name, op, inputs, stream): &(&str, &str, &[&str], u32)| {
        let mut node = json!({"name": name, "op": op, "inputs": inputs});
        if op != "NetOutput" {
            let shape = if op == "Reshape" {
                json!([2, 2])
            } else {
                json!([4])
            };
            node["outputs"] = json!([{"dtype": "float32", "shape": shape}]);
        }
        if op != "Data" && op != "NetOutput" {
            node["stream"] = json!(stream);
        }
        node
    };
    let nodes: Vec<Value> = nodes.iter().map(node).collect();
    let graph = json!({"format": "tenure.graph/1", "graphs": [{"name": "root", "nodes": nodes}]});
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), graph.to_string()).expect("written");
    file
}

fn why(file: &tempfile::NamedTempFile, args: &[&str]) -> Output {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let mut command = Command::new(tenure);
    command.arg("why").arg(file.path()).args(args);
    command.output().expect("tenure runs")
}

fn answer(file: &tempfile::NamedTempFile, a: &str, b: &str) -> Value {
    let output = why(file, &[a, b, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).expect("JSON alone on standard output")
}

/// Two streams: `b` alone on the second; `c` reads `a` late.
fn model() -> tempfile::NamedTempFile {
    graph(&[
        ("x", "Data", &[], 0),
        ("a", "Softmax", &["x:0"], 0),
        ("r", "Softmax", &["a:0"], 0),
        ("c", "Add", &["a:0", "r:0"], 0),
        ("s", "Softmax", &["c:0"], 0),
        ("t", "Softmax", &["s:0"], 0),
        ("b", "Softmax", &["x:0"], 1),
        ("out", "NetOutput", &["t:0", "b:0"], 0),
    ])
}

#[test]
fn what_is_over_before_the_other_starts_is_ordered() {
    let found = answer(&model(), "s:0", "a:0");
    assert_eq!(found["relation"], "ordered");
    assert_eq!(
        (&found["first"], &found["second"]),
        (&json!("a:0"), &json!("s:0"))
    );
    assert_eq!(
        found["path"],
        json!([{"from": "c", "to": "s", "by": "data"}])
    );
    assert_eq!(found["wrong"], Value::Null);
}

#[test]
fn what_is_needed_together_is_apart() {
    let found = answer(&model(), "a:0", "r:0");
    assert_eq!(found["relation"], "apart");
    assert_eq!(found["alive"], json!([[0, 2], [1, 2]]));
    let wrong = json!([
        {"node": "a", "does": "writes a:0"},
        {"node": "r", "does": "writes r:0 over it"},
        {"node": "c", "does": "reads a:0 and finds r:0"},
    ]);
    assert_eq!(found["wrong"], wrong);
}

#[test]
fn streams_without_an_edge_have_an_order_that_goes_wrong() {
    let found = answer(&model(), "a:0", "b:0");
    assert_eq!(found["relation"], "unordered");
    let last = |key: &str| found[key].as_array().and_then(|s| s.last().cloned());
    assert_eq!(last("right").expect("a step")["node"], "b");
    let wrong = last("wrong").expect("a step");
    assert_eq!(
        (&wrong["node"], &wrong["does"]),
        (&json!("r"), &json!("reads a:0 and finds b:0"))
    );
}

#[test]
fn a_label_that_is_not_there_is_bad_input_and_near_ones_are_named() {
    let output = why(&model(), &["a:1", "b:0"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.contains("no value is called \"a:1\"; near it are: a:0"),
        "{error}"
    );
}

#[test]
fn the_rule_that_parts_them_is_named() {
    let file = graph(&[("k", "Const", &[], 0), ("out", "NetOutput", &["k:0"], 0)]);
    let found = answer(&file, "k:0", "k:0");
    assert_eq!(found["relation"], "same-memory");
    assert_eq!(found["rules"][0]["rule"], "address-to-output");
    let text = why(&file, &["k:0", "k:0"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("rule of the guard: "), "{text}");
}
