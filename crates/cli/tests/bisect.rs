//! `tenure bisect` with somebody's engine and with our own, and the guarded and the timed run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tenure_formats::testing::GraphBuilder;
use tenure_graph::DType;

fn tenure(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(args).output().expect("the command runs")
}

fn said(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| {
        let error = String::from_utf8_lossy(&output.stderr);
        panic!("{e}: {text}{error}")
    })
}

/// The example of a residual network: its weights are not needed where somebody else runs it.
fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models");
    root.join("residual_cnn.onnx").display().to_string()
}

/// A small model: `y = softmax(x) * -x`.
fn small(folder: &Path) -> PathBuf {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "4,16");
    g.node("Softmax", &["x"], &["s"]).name("soft");
    g.node("Neg", &["x"], &["n"]).name("neg");
    g.node("Mul", &["s", "n"], &["y"]).name("mul");
    g.output("y", DType::F32, "4,16");
    let path = folder.join("model.onnx");
    fs::write(&path, g.model(17).encode()).expect("a file");
    path
}

/// An engine that is right when one of two nodes shares memory with nobody.
#[cfg(unix)]
#[test]
fn two_tensors_that_must_not_share_are_found_by_exit_codes() {
    let (one, other) = ("Conv_s0b0_a", "Conv_s1b0_a");
    let engine = format!(
        "grep -qx -e {one} -e {other} \"$TENURE_NO_REUSE\" && test -s \"$TENURE_PLAN\"; exit $? #"
    );
    let found = tenure(&["bisect", &example(), "--json", "--exec", &engine]);
    let json = said(&found);
    assert_eq!(found.status.code(), Some(1), "{json}");
    assert_eq!(json["finding"], "culprit", "{json}");
    let pair: Vec<&str> = json["pair"]
        .as_array()
        .expect("a pair")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let begins = |k: usize, name: &str| pair[k].starts_with(name);
    assert!(begins(0, "s0b0_a") && begins(1, "s1b0_a"), "{json}");
    assert_eq!(json["kind"], "writes-late", "{json}");
    // The activation is written over the result of the convolution, which may be late as well.
    assert_eq!(json["node"], "Relu_s0b0_a_relu", "{json}");
    assert_eq!(json["or"], serde_json::json!([one]), "{json}");
    assert!(json["runs"].as_u64().is_some_and(|n| n < 25), "{json}");
}

#[cfg(unix)]
#[test]
fn what_an_engine_says_is_taken_by_its_exit_code() {
    let model = example();
    for (engine, code, finding) in [
        ("exit 0 #", Some(0), "right"),
        ("exit 1 #", Some(1), "not-sharing"),
        ("exit 125 #", Some(3), "undecided"),
    ] {
        let found = tenure(&["bisect", &model, "--json", "--runs", "1", "--exec", engine]);
        assert_eq!(found.status.code(), code, "{engine}");
        assert_eq!(said(&found)["finding"], finding);
    }
    for engine in ["exit 126 #", "kill -9 $$ #"] {
        let failed = tenure(&["bisect", &model, "--exec", engine]);
        assert_eq!(failed.status.code(), Some(2), "{engine}");
    }
}

#[test]
fn a_fault_is_seen_guarded_and_none_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = small(folder.path()).display().to_string();
    let right = tenure(&["run", &model, "--sanitize", "--json"]);
    assert_eq!(said(&right)["sanitized"], true);
    let wrong = tenure(&[
        "run",
        &model,
        "--sanitize",
        "--json",
        "--fault",
        "neg:0:past=8",
    ]);
    assert_eq!(wrong.status.code(), Some(1));
    let json = said(&wrong);
    assert_eq!(
        (&json["node"], &json["bytes"]),
        (&"neg".into(), &8.into()),
        "{json}"
    );
    let found = tenure(&["bisect", &model, "--json"]);
    assert_eq!(said(&found)["finding"], "right");
}

#[test]
fn a_trace_has_each_step_and_the_memory_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = small(folder.path()).display().to_string();
    let out = folder.path().join("trace.json");
    let out = out.to_str().expect("a path");
    let ran = tenure(&["run", &model, "--streams", "2", "--profile", out, "--json"]);
    let json = said(&ran);
    assert_eq!(json["threads"], 2, "{json}");
    assert!(json["memory"]["touched"].as_u64() <= json["memory"]["planned"].as_u64());
    let trace: Value = serde_json::from_slice(&fs::read(out).expect("a trace")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let steps: Vec<&str> = (events.iter())
        .filter(|e| e["ph"] == "X")
        .filter_map(|e| e["name"].as_str())
        .collect();
    for node in ["soft", "neg", "mul"] {
        assert!(steps.contains(&node), "{steps:?}");
    }
}
