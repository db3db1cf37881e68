//! What the user reads when something is refused: one error, which names the file once, and exit
//! code 2. The messages themselves are a snapshot.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tenure_formats::testing::{GraphBuilder, tensor};
use tenure_graph::DType;

/// A model of one node `Relu`, called `RELU_NAME`.
fn good() -> Vec<u8> {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "4");
    g.node("Relu", &["x"], &["y"]).name("RELU_NAME");
    g.output("y", DType::F32, "4");
    g.model(17).encode()
}

/// The same with some bytes replaced by others of the same number.
fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = good();
    let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
    bytes
}

/// A model whose input `x` has the given dimensions.
fn shaped(dims: &str) -> Vec<u8> {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, dims);
    g.node("Relu", &["x"], &["y"]);
    g.output("y", DType::F32, "");
    g.model(17).encode()
}

/// A model with a weight in another file, or with fewer bytes than its shape asks for.
fn weighted(location: Option<&str>) -> Vec<u8> {
    use tenure_formats::testing::pb;
    let mut w = tensor("w", DType::F32, &[4]);
    if let Some(location) = location {
        w.data_location = Some(pb::tensor_proto::DataLocation::External.into());
        w.external_data = vec![pb::StringStringEntryProto {
            key: Some("location".to_owned()),
            value: Some(location.to_owned()),
        }];
    } else {
        w.raw_data = Some(vec![0; 3].into());
    }
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "4");
    g.initializer(w);
    g.node("Add", &["x", "w"], &["y"]);
    g.output("y", DType::F32, "4");
    g.model(17).encode()
}

/// Nodes that read each other.
fn cyclic() -> Vec<u8> {
    let mut g = GraphBuilder::new("main");
    g.node("Relu", &["b"], &["a"]);
    g.node("Neg", &["a"], &["b"]);
    g.output("b", DType::F32, "4");
    g.model(17).encode()
}

/// Branches in branches.
fn nested(depth: usize) -> Vec<u8> {
    let mut g = GraphBuilder::new("inner");
    g.node("Relu", &["x"], &["y"]);
    g.output("y", DType::F32, "4");
    for level in 0..depth {
        let mut outer = GraphBuilder::new(&format!("level{level}"));
        outer.node("If", &["x"], &["y"]).graph("then_branch", g);
        outer.output("y", DType::F32, "4");
        g = outer;
    }
    g.input("x", DType::F32, "4");
    g.model(17).encode()
}

/// What the program says on standard error, run in `folder`.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(run.stdout.is_empty(), "{arguments:?}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    said
}

#[test]
fn a_refusal_names_the_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("folder.onnx")).unwrap();
    let files: &[(&str, Vec<u8>)] = &[
        ("good.onnx", good()),
        ("cut.onnx", good()[..30].to_vec()),
        ("cycle.onnx", cyclic()),
        ("deep.onnx", nested(70)),
        ("empty.onnx", Vec::new()),
        ("free.onnx", shaped("n, 4")),
        ("huge.onnx", shaped("4611686018427387904, 4")),
        ("json.json", b"{\"nodes\": []}".to_vec()),
        (
            "mistake.json",
            b"{\"format\": \"tenure.graph/1\", \"graphs\": 3}".to_vec(),
        ),
        (
            "memory.json",
            b"{\"format\": \"tenure.memory/1\", \"name\": 3}".to_vec(),
        ),
        ("outside.onnx", weighted(Some("../secret"))),
        ("picture.onnx", b"\xff\xd8\xff\xe0\0\x10JFIF".to_vec()),
        ("plan.json", b"{\"format\": \"tenure.plan/1\"}".to_vec()),
        ("short.onnx", weighted(None)),
        ("text.onnx", b"once upon a time".to_vec()),
        ("utf8.onnx", replaced(b"RELU_NAME", b"RELU\xffNAME")),
    ];
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
    // The command, and the file that its error is about.
    let mut cases: Vec<(Vec<&str>, &str)> = Vec::new();
    let models = files.iter().map(|(name, _)| *name).skip(1);
    for name in models.chain(["folder.onnx", "missing.onnx"]) {
        cases.push((vec!["plan", name], name));
    }
    for (words, name) in [
        ("check cut.onnx plan.json", "cut.onnx"),
        ("check good.onnx missing.json", "missing.json"),
        ("check good.onnx plan.json", "plan.json"),
        ("check good.onnx picture.onnx", "picture.onnx"),
        ("convert utf8.onnx -o out.json", "utf8.onnx"),
        ("plan good.onnx --dim n=1", "good.onnx"),
        ("plan good.onnx --ops missing.toml", "missing.toml"),
        ("plan good.onnx --ops picture.onnx", "picture.onnx"),
        ("plan good.onnx --ops text.onnx", "text.onnx"),
        ("plan good.onnx -o folder.onnx", "folder.onnx"),
        ("plan good.onnx -o missing/plan.json", "missing/plan.json"),
        ("report missing.json -o out.html", "missing.json"),
        ("report text.onnx -o out.html", "text.onnx"),
    ] {
        cases.push((words.split(' ').collect(), name));
    }
    let mut said = String::new();
    for (arguments, name) in cases {
        let message = refusal(folder, &arguments);
        let error = message.lines().next().unwrap_or_default();
        assert_eq!(error.matches(name).count(), 1, "{arguments:?}: {error}");
        let folder = folder.to_string_lossy();
        assert!(!message.contains(&*folder), "{arguments:?}: {message}");
        said += &format!("$ tenure {}\n{message}\n", arguments.join(" "));
    }
    insta::assert_snapshot!("refusals", said);
}

#[test]
fn what_options_name_in_vain_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    fs::write(&path, good()).expect("a file");
    let said = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let ran = command.arg("plan").arg(&path).args(options).output();
        let ran = ran.expect("the command runs");
        assert_eq!(ran.status.code(), Some(0));
        let said = String::from_utf8([ran.stdout, ran.stderr].concat()).expect("text");
        let lines = said.lines().filter(|line| line.starts_with("warning"));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let known = [
        "--lend-inputs",
        "0",
        "--lend-outputs",
        "0",
        "--no-reuse",
        "Relu",
    ];
    assert_eq!(said(&known), [""; 0]);
    let vain = said(&[
        "--lend-inputs",
        "7",
        "--lend-outputs",
        "1",
        "--no-reuse",
        "Gelu",
    ]);
    let expected = [
        "warning: --lend-inputs: there is no input 7, the model has 1; it is passed over",
        "warning: --lend-outputs: there is no output 1, the model has 1; it is passed over",
        "warning: --no-reuse: no node and no operator is called \"Gelu\"; it is passed over",
    ];
    assert_eq!(vain, expected);
}
