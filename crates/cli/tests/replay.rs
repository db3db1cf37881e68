//! `tenure replay` as a user runs it.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn replay(options: &Value, steps: &[Value], args: &[&str]) -> Output {
    let trace = json!({"format": "tenure.trace/1", "options": options, "trace": steps});
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), trace.to_string()).expect("written");
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let mut command = Command::new(tenure);
    command.arg("replay").arg(file.path()).args(args);
    command.output().expect("tenure runs")
}

fn alloc(id: &str, bytes: u64) -> Value {
    json!({"op": "alloc", "id": id, "bytes": bytes, "stream": 0})
}

fn free(id: &str) -> Value {
    json!({"op": "free", "id": id})
}

/// Two small blocks are freed and a large one does not fit where they were; a plan puts it over
/// both.
fn fragmented() -> Vec<Value> {
    vec![
        alloc("a", 1024),
        alloc("b", 1024),
        free("a"),
        free("b"),
        alloc("c", 2048),
        free("c"),
    ]
}

#[test]
fn what_is_held_is_compared_with_a_plan() {
    let output = replay(&json!({}), &fragmented(), &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let expected = [
        ("steps", 6),
        ("blocks", 3),
        ("asked_max", 2048),
        ("held_max", 4096),
        ("held_at_end", 4096),
        ("idle_at_end", 4096),
        ("taken", 3),
        ("waits", 0),
        ("planned", 2048),
    ];
    for (key, value) in expected {
        assert_eq!(summary[key], value, "{key}");
    }
    assert_eq!(summary["proven_optimal"], true);
    let output = replay(&json!({}), &fragmented(), &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("overhead     100.0 % of the plan"), "{text}");
}

#[test]
fn a_device_that_is_too_small_and_a_capacity_are_said_by_the_exit_code() {
    // Room for the plan, and for the allocator when it gives back what is idle.
    let output = replay(&json!({"device_bytes": 2048}), &fragmented(), &[]);
    assert_eq!(output.status.code(), Some(0));
    let output = replay(&json!({"device_bytes": 2047}), &fragmented(), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(summary["out_of_memory"]["step"], 1);
    let output = replay(&json!({}), &fragmented(), &["--capacity", "4095"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_no_trace_is_refused_with_the_step() {
    for (steps, message) in [
        (vec![free("a")], "trace[0]"),
        (vec![alloc("a", 1), free("a"), free("a")], "trace[2]"),
    ] {
        let output = replay(&json!({}), &steps, &["--json"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(error.contains(message), "{error}");
    }
}
