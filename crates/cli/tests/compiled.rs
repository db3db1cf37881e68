//! A compiled model carries a plan: written out, judged, and compared with ours.

use std::fs;
use std::path::Path;
use std::process::Command;

use tenure_formats::testing::ge::{Container, Model, Node, Tensor, Value};

/// A chain of nodes over blocks of 512 bytes, each at its offset; the last value is the result.
fn chain(offsets: &[i64], size: i64) -> Model {
    let block = || Tensor::new("DT_FLOAT", &[120]).size(512);
    let mut model = Model::new("chain");
    model.attr("memory_size", Value::Int(size));
    let mut before = String::new();
    for (k, &offset) in offsets.iter().enumerate() {
        let (name, op) = (format!("n{k}"), if k == 0 { "Data" } else { "Abs" });
        let mut node = Node::new(&name, op).output(block()).at(&[offset]);
        if k > 0 {
            node = node.inputs(&[&before]);
        }
        model.add(node);
        before = format!("{name}:0");
    }
    model.add(Node::new("out", "NetOutput").inputs(&[&before]));
    model
}

/// Exit code and what was printed on both streams.
fn tenure(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(args)
        .current_dir(folder)
        .env("LANG", "C.UTF-8")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_plan_in_a_model_is_written_out_and_proven() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = chain(&[0, 512, 1024, 1536], 2048);
    fs::write(at.join("m.om"), model.om(Container::Narrow)).unwrap();
    let (code, out, _) = tenure(at, &["convert", "m.om", "--plan", "own.json"]);
    assert_eq!(code, Some(0));
    assert_eq!(out, "own.json: 2 048 bytes; proven, 8 accesses checked\n");
    let (code, out, _) = tenure(at, &["check", "m.om", "own.json"]);
    assert_eq!(
        (code, &*out),
        (Some(0), "own.json: proven; 8 accesses checked\n")
    );
    // A plan for one encoding is one for the others.
    fs::write(at.join("m.txt"), model.proto_text()).unwrap();
    let (code, ..) = tenure(at, &["check", "m.txt", "own.json"]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_wrong_plan_in_a_model_is_written_out_and_refuted() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = chain(&[0, 512, 512, 1536], 2048);
    fs::write(at.join("m.om"), model.om(Container::Wide)).unwrap();
    let (code, _, err) = tenure(at, &["convert", "m.om", "--plan", "own.json"]);
    assert_eq!(code, Some(0));
    assert!(err.contains("2 048 bytes; the checker finds"), "{err}");
    let (code, out, _) = tenure(at, &["check", "m.om", "own.json"]);
    assert_eq!(code, Some(1), "{out}");
}

#[test]
fn what_changed_and_what_would_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = chain(&[0, 512, 1024, 1536], 2048);
    fs::write(at.join("m.om"), model.om(Container::Wide)).unwrap();
    let plan = [
        "plan", "m.om", "--align", "512", "--sizes", "padded", "--fold", "off", "-q",
    ];
    let (code, ..) = tenure(at, &[&plan[..], &["-o", "ours.json"]].concat());
    assert_eq!(code, Some(0));
    let (code, out, _) = tenure(at, &["diff", "m.om", "ours.json"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(out);
    let (_, out, _) = tenure(at, &["diff", "m.om", "ours.json", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let figures = serde_json::json!({
        "model": "m.om", "recorded": 2048, "own_rules": 2048, "lent": 1024, "proven": true
    });
    assert_eq!(json["compiled"][0], figures);
    assert_eq!(json["arenas"][0]["b"], 1024);
    let (code, _, err) = tenure(at, &["diff", "ours.json", "missing.json"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("missing.json"), "{err}");
}

#[test]
fn a_model_without_a_plan_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut model = Model::new("bare");
    model.add(Node::new("x", "Data").output(Tensor::new("DT_FLOAT", &[4])));
    fs::write(at.join("m.air"), model.proto()).unwrap();
    for args in [
        &["convert", "m.air", "--plan", "p.json"][..],
        &["diff", "m.air", "m.air"],
    ] {
        let (code, _, err) = tenure(at, args);
        assert_eq!(code, Some(2));
        assert!(err.contains("m.air: carries no plan"), "{err}");
    }
}

#[test]
fn each_model_of_a_file_has_a_plan_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let models = [chain(&[0, 512], 1024), chain(&[0, 512, 1024], 1536)];
    fs::write(at.join("m.om"), Model::om_of(&models, Container::Wide)).unwrap();
    let (code, out, _) = tenure(at, &["plan", "m.om", "--json"]);
    assert_eq!(code, Some(0));
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    let said = "the file holds 2 models, and this is of the first, the root; --submodel gives \
                another: 0 chain, 1 chain";
    assert_eq!(summary["warnings"][0], said);
    let args = ["convert", "m.om", "--submodel", "1", "--plan", "own.json"];
    let (code, out, warnings) = tenure(at, &args);
    assert_eq!((code, &*warnings), (Some(0), ""));
    assert_eq!(out, "own.json: 1 536 bytes; proven, 6 accesses checked\n");
    let (code, ..) = tenure(at, &["check", "m.om", "--submodel", "1", "own.json"]);
    assert_eq!(code, Some(0));
    // It is no plan of the root.
    let (code, ..) = tenure(at, &["check", "m.om", "own.json"]);
    assert_ne!(code, Some(0));
    let (code, _, error) = tenure(at, &["plan", "m.om", "--submodel", "2"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("has no model 2: it holds 2"), "{error}");
    fs::write(at.join("one.om"), models[0].om(Container::Wide)).unwrap();
    let (code, _, error) = tenure(at, &["plan", "one.om", "--submodel", "1"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("holds one model alone"), "{error}");
}
