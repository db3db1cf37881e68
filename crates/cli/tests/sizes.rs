//! Models whose sizes are free, or decided by the data: what is planned for which shape, what is
//! pooled, and what is said of that.

use std::process::Command;

use serde_json::{Value, json};
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

/// What a run says as JSON, or its exit code and its error.
fn run(model: &[u8], options: &[&str]) -> Result<Value, (Option<i32>, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let ran = command.arg("run").arg(&path).arg("--json").args(options);
    let ran = ran.output().expect("the command runs");
    if ran.status.code() != Some(0) {
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        return Err((ran.status.code(), error));
    }
    Ok(serde_json::from_slice(&ran.stdout).expect("JSON"))
}

fn shapes(run: &Value) -> Vec<Value> {
    let outputs = run["outputs"].as_array().expect("outputs");
    outputs.iter().map(|o| o["shape"].clone()).collect()
}

#[test]
fn what_the_data_decide_is_pooled() {
    let json = run(&model(), &["--verify", "--sanitize"]).expect("it runs");
    assert_eq!(shapes(&json), [json!([4]), json!([4])]);
    assert_eq!(
        (&json["verified"], &json["sanitized"]),
        (&json!(true), &json!(true))
    );
    let values = json["values"]["list"].as_array().expect("a list");
    let why = |name: &str| {
        let line = values
            .iter()
            .find(|v| v["value"] == name)
            .expect("the value");
        (
            line["place"].as_str(),
            line["why"].as_str().unwrap_or_default(),
        )
    };
    assert_eq!(why("kept").0, Some("planned"));
    assert_eq!(why("mask").0, Some("outside"));
    for (name, node) in [("places", "find"), ("y", "find"), ("z", "make")] {
        let (place, why) = why(name);
        assert!(
            place == Some("pooled") && why.contains(node),
            "{name}: {why}"
        );
    }
    assert!(json["memory"]["pooled"].as_u64() > Some(0), "{json}");
}

#[test]
fn what_must_be_planned_and_cannot_be_is_named() {
    let (code, error) = run(&model(), &["--pool", "planned"]).expect_err("it cannot be planned");
    assert_eq!(code, Some(2));
    assert!(
        error.contains("places (the data of find (NonZero)"),
        "{error}"
    );
}

/// `y = softmax(x xᵀ)`, with two free dimensions.
fn free() -> Vec<u8> {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "batch,n,4");
    g.node("Transpose", &["x"], &["t"]).ints("perm", &[0, 2, 1]);
    g.node("MatMul", &["x", "t"], &["p"]);
    g.node("Softmax", &["p"], &["y"]);
    g.output("y", DType::F32, "batch,n,n");
    g.model(17).encode()
}

#[test]
fn free_dimensions_take_usual_values_that_are_said() {
    let json = run(&free(), &["--verify"]).expect("it runs");
    assert_eq!(json["usual"], json!(["batch=1", "n=64"]));
    assert_eq!(shapes(&json), [json!([1, 64, 64])]);
    assert_eq!(json["values"]["pooled"], 0);
}

#[test]
fn several_shapes_run_in_one_process() {
    let also = [
        "--verify",
        "--also",
        "n=3",
        "--also",
        "n=5,batch=2",
        "--also",
        "n=3",
    ];
    let also = |first: &[&'static str]| [first, &also[..]].concat();
    let from = |json: &Value| -> Vec<(Value, Value, String)> {
        let runs = json["also"].as_array().expect("runs").iter();
        let all = std::iter::once(json).chain(runs);
        let one = |run: &Value| {
            let from = run["plan"]["from"].as_str().expect("a text");
            let verified = run["verified"].clone();
            (shapes(run)[0].clone(), verified, from.to_owned())
        };
        all.map(one).collect()
    };
    let expected = |[a, b, c, d]: [&str; 4]| {
        [
            ([1, 8, 8], a),
            ([1, 3, 3], b),
            ([2, 5, 5], c),
            ([1, 3, 3], d),
        ]
        .map(|(shape, from)| (json!(shape), json!(true), from.to_owned()))
    };
    let each = run(&free(), &also(&["--dim", "n=8"])).expect("it runs");
    let planned = "planned";
    assert_eq!(from(&each), expected([planned, planned, planned, "kept"]));

    let ranged = run(&free(), &also(&["--dim", "n=2..8", "--dim", "batch=1..2"]));
    let ranged = ranged.expect("it runs");
    let fitted = "fitted into the plan for the largest shape";
    let mut fits = expected([fitted, fitted, fitted, fitted]);
    // The greatest value of each range where no other is given.
    for (k, shape) in [[2, 8, 8], [2, 3, 3], [2, 5, 5], [2, 3, 3]]
        .iter()
        .enumerate()
    {
        fits[k].0 = json!(shape);
    }
    fits[3].2 = "kept".to_owned();
    assert_eq!(from(&ranged), fits);
    let arenas = |json: &Value| -> Vec<Value> {
        let runs = json["also"].as_array().expect("runs").iter();
        runs.map(|run| run["arena"].clone()).collect()
    };
    assert_eq!(arenas(&ranged), vec![ranged["arena"].clone(); 3]);

    let pooled = run(&free(), &also(&["--pool", "dynamic"])).expect("it runs");
    let kept = "kept";
    assert_eq!(
        from(&pooled)[1..],
        expected([planned, kept, kept, kept])[1..]
    );
}

#[test]
fn what_lies_outside_of_a_range_is_refused() {
    let options = ["--dim", "n=2..8", "--also", "n=9"];
    let (code, error) = run(&free(), &options).expect_err("it is outside");
    assert_eq!(code, Some(2));
    assert!(error.contains("the range is 2..8"), "{error}");
}

#[test]
fn a_budget_that_is_too_small_is_exit_code_1() {
    let enough = run(&free(), &["--dim", "n=8", "--capacity", "1KiB"]).expect("it fits");
    let arena = enough["arena"].as_u64().expect("bytes");
    let less = (arena - 1).to_string();
    let options = ["--dim", "n=8", "--capacity", &less];
    let (code, error) = run(&free(), &options).expect_err("it does not fit");
    assert_eq!(code, Some(1));
    let warning = format!("needs {arena} bytes, 1 more than the capacity of {less}");
    assert!(error.contains(&warning), "{error}");
}

/// Nobody waits for random numbers without end.
#[test]
fn inputs_that_are_too_large_for_random_contents_are_refused_at_once() {
    for size in ["99999999999999999", "4000000000"] {
        let dim = format!("n={size}");
        let (code, error) = run(&free(), &["--dim", &dim]).expect_err("it is too large");
        assert_eq!(code, Some(2));
        assert!(
            error.contains("--input x=FILE.npy") && error.contains(&format!("[1, {size}, 4]")),
            "{error}"
        );
    }
}
