//! Models whose sizes only the data decide: they run, and each such value is said with its reason.

use std::process::Command;

use serde_json::Value;
use tenure_formats::testing::{GraphBuilder, tensor};
use tenure_graph::DType;

/// `x` at the places where a mask is not zero, and a tensor as long as there are such places.
fn model() -> Vec<u8> {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "6");
    let numbers = |n: [f32; 6]| n.map(f32::to_le_bytes).concat();
    let mut mask = tensor("mask", DType::F32, &[6]);
    mask.raw_data = Some(numbers([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]).into());
    g.initializer(mask);
    g.node("Mul", &["x", "mask"], &["kept"]);
    g.node("NonZero", &["kept"], &["places"]).name("find");
    g.node("Transpose", &["places"], &["rows"]);
    g.node("GatherND", &["x", "rows"], &["y"]);
    g.node("Cast", &["kept"], &["truth"]).int("to", 9);
    g.node("Cast", &["truth"], &["ones"]).int("to", 7);
    g.node("ReduceSum", &["ones"], &["count"]);
    g.node("ConstantOfShape", &["count"], &["z"]).name("make");
    g.output("y", DType::F32, "n");
    g.output("z", DType::F32, "n");
    g.model(17).encode()
}

#[test]
fn sizes_are_found_by_running_what_comes_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model()).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let ran = command
        .arg("run")
        .arg(&path)
        .args(["--json", "--verify", "--sanitize"])
        .output();
    let ran = ran.expect("the command runs");
    let error = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{error}");
    let json: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let shapes: Vec<&Value> = (json["outputs"].as_array().expect("outputs").iter())
        .map(|o| &o["shape"])
        .collect();
    assert_eq!(shapes, [&serde_json::json!([4]), &serde_json::json!([4])]);
    assert_eq!(
        (&json["verified"], &json["sanitized"]),
        (&true.into(), &true.into())
    );
    let settled = json["settled"].as_array().expect("a list");
    let reason = |k: usize| settled[k]["why"].as_str().unwrap_or_default();
    assert_eq!(settled.len(), 2, "{json}");
    assert!(
        reason(0).contains("find") && reason(1).contains("count"),
        "{json}"
    );
}
