//! `tenure guard` as a user runs it: exit codes, what is told and how often, names of results.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn file(nodes: &Value) -> tempfile::NamedTempFile {
    let graph = json!({"format": "tenure.graph/1", "graphs": [{"name": "root", "nodes": nodes}]});
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), graph.to_string()).expect("written");
    file
}

fn guard(file: &tempfile::NamedTempFile, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("guard").arg(file.path()).args(args);
    command.output().expect("tenure runs")
}

fn node(name: &str, op: &str, inputs: &[&str]) -> Value {
    let output = json!({"dtype": "float32", "shape": [4]});
    let outputs = match op {
        "NetOutput" | "LabelSwitchByIndex" => json!([]),
        _ => json!([output]),
    };
    json!({"name": name, "op": op, "inputs": inputs, "outputs": outputs})
}

/// That two tensors keep memory of their own is told, and is no conflict.
#[test]
fn a_declined_merge_is_no_failure() {
    let mut merge = node("m", "Relu", &["x:0"]);
    merge["attrs"] = json!({"_output_inplace_ability": [[0, 0]]});
    let file = file(&json!([
        node("x", "Data", &[]),
        merge,
        node("w", "LabelSwitchByIndex", &["m:0"]),
        node("out", "NetOutput", &["m:0"]),
    ]));
    let output = guard(&file, &[]);
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8(output.stdout).expect("text");
    assert_eq!(told.matches("in-place-declined").count(), 1, "{told}");
    assert_eq!(told.matches("_alloc_fixed_addr\"").count(), 2, "{told}");
}

#[test]
fn a_key_that_is_misspelt_is_told() {
    let mut late = node("y", "Relu", &["x:0"]);
    late["contol"] = json!(["x"]);
    let file = file(&json!([node("x", "Data", &[]), late]));
    let output = guard(&file, &[]);
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.contains("is it \"control\"?"), "{told}");
}

#[test]
fn an_input_that_is_not_there_is_refused() {
    for key in ["ref_input", "reuse_input"] {
        let mut over = node("y", "Relu", &["x:0"]);
        over["outputs"][0][key] = json!(1);
        let file = file(&json!([node("x", "Data", &[]), over]));
        let output = guard(&file, &[]);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).expect("text");
        let expected = format!("{key} of output 0 names input 1, but there are 1");
        assert!(told.contains(&expected), "{told}");
    }
}
