//! The example models: small files, real shapes, weights left out.
//!
//! They are made here and committed, so that anybody can plan something at once. Weights are
//! named as external data in a file that does not exist: planning reads none.

use std::fs;
use std::path::Path;
use tenure_formats::testing::{GraphBuilder, Model};
use tenure_graph::DType::{Bool, F32, I64};

use crate::Mode;

/// Version of the ONNX operator set that the models use.
const OPSET: i64 = 20;

/// Writes the models to `examples/models`, or compares them with what is there.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<(), String> {
    let models = [
        ("residual_cnn", residual_cnn()),
        ("transformer", transformer()),
        ("detector_early_exit", detector()),
        ("speech_gru", speech()),
    ];
    let folder = root.join("examples/models");
    let mut stale = Vec::new();
    for (name, model) in models {
        let path = folder.join(format!("{name}.onnx"));
        let bytes = model.encode();
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            continue;
        }
        match mode {
            Mode::Write => {
                fs::write(&path, &bytes).map_err(|e| format!("{}: {e}", path.display()))?;
                println!("wrote {name}.onnx ({} bytes)", bytes.len());
            }
            Mode::Check => stale.push(name),
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} differ from what is made now; run `cargo xtask examples`",
            stale.join(", ")
        ))
    }
}

/// A convolution with bias that keeps the size, or halves it with `stride` 2.
struct Conv {
    from: u64,
    to: u64,
    kernel: u64,
    stride: i64,
}

/// Puts a convolution's nodes into `g` and its weights into `weights`, which is a graph around it.
fn conv(g: &mut GraphBuilder, weights: Option<&mut GraphBuilder>, x: &str, y: &str, c: &Conv) {
    let (w, b) = (format!("{y}.weight"), format!("{y}.bias"));
    let k = i64::try_from(c.kernel).unwrap_or(1);
    g.node("Conv", &[x, &w, &b], &[y])
        .ints("kernel_shape", &[k, k])
        .ints("pads", &[k / 2; 4])
        .ints("strides", &[c.stride, c.stride]);
    let weights = weights.unwrap_or(g);
    weights.weight(&w, F32, &[c.to, c.from, c.kernel, c.kernel]);
    weights.weight(&b, F32, &[c.to]);
}

/// A residual network of the size of ResNet-18 with three stages, for one picture.
fn residual_cnn() -> Model {
    let mut g = GraphBuilder::new("residual_cnn");
    g.input("image", F32, "1, 3, 224, 224");
    let stem = Conv {
        from: 3,
        to: 64,
        kernel: 7,
        stride: 2,
    };
    conv(&mut g, None, "image", "stem", &stem);
    g.node("Relu", &["stem"], &["stem_relu"]);
    g.node("MaxPool", &["stem_relu"], &["stem_pool"])
        .ints("kernel_shape", &[3, 3])
        .ints("pads", &[1; 4])
        .ints("strides", &[2, 2]);
    let mut x = "stem_pool".to_owned();
    let mut from = 64;
    for (stage, to) in [64, 128, 256].into_iter().enumerate() {
        for block in 0..2 {
            let name = |part: &str| format!("s{stage}b{block}_{part}");
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let layer = |from, kernel, stride| Conv {
                from,
                to,
                kernel,
                stride,
            };
            conv(&mut g, None, &x, &name("a"), &layer(from, 3, stride));
            g.node("Relu", &[&name("a")], &[&name("a_relu")]);
            conv(&mut g, None, &name("a_relu"), &name("b"), &layer(to, 3, 1));
            let shortcut = if from == to {
                x
            } else {
                conv(&mut g, None, &x, &name("short"), &layer(from, 1, stride));
                name("short")
            };
            g.node("Add", &[&name("b"), &shortcut], &[&name("sum")]);
            g.node("Relu", &[&name("sum")], &[&name("out")]);
            x = name("out");
            from = to;
        }
    }
    g.node("GlobalAveragePool", &[&x], &["pooled"]);
    g.node("Flatten", &["pooled"], &["features"]).int("axis", 1);
    g.weight("classes.weight", F32, &[1000, 256]);
    g.weight("classes.bias", F32, &[1000]);
    g.node(
        "Gemm",
        &["features", "classes.weight", "classes.bias"],
        &["logits"],
    )
    .int("transB", 1);
    g.node("Softmax", &["logits"], &["probabilities"])
        .int("axis", 1);
    g.output("probabilities", F32, "1, 1000");
    g.model(OPSET)
}

const WIDTH: u64 = 512;
const HEADS: i64 = 8;

/// `y = x · W + b`.
fn linear(g: &mut GraphBuilder, x: &str, y: &str, [from, to]: [u64; 2]) {
    let (w, b, product) = (
        format!("{y}.weight"),
        format!("{y}.bias"),
        format!("{y}_matmul"),
    );
    g.weight(&w, F32, &[from, to]);
    g.weight(&b, F32, &[to]);
    g.node("MatMul", &[x, &w], &[&product]);
    g.node("Add", &[&product, &b], &[y]);
}

fn normalise(g: &mut GraphBuilder, x: &str, y: &str) {
    let (scale, bias) = (format!("{y}.scale"), format!("{y}.bias"));
    g.weight(&scale, F32, &[WIDTH]);
    g.weight(&bias, F32, &[WIDTH]);
    g.node("LayerNormalization", &[x, &scale, &bias], &[y])
        .int("axis", -1)
        .float("epsilon", 1e-5);
}

/// A text encoder of two layers; the length of the text is free.
fn transformer() -> Model {
    let mut g = GraphBuilder::new("transformer");
    g.input("tokens", I64, "1, seq");
    g.input("mask", F32, "1, 1, seq, seq");
    g.weight("embedding", F32, &[32000, WIDTH]);
    g.ints("split_heads", &[0, 0, HEADS, WIDTH as i64 / HEADS]);
    g.ints("join_heads", &[0, 0, WIDTH as i64]);
    g.float("scale", 0.125);
    g.node("Gather", &["embedding", "tokens"], &["x0"])
        .int("axis", 0);
    for layer in 0..2 {
        let n = |part: &str| format!("l{layer}_{part}");
        let x = format!("x{layer}");
        normalise(&mut g, &x, &n("norm1"));
        for (part, order) in [
            ("q", [0, 2, 1, 3]),
            ("k", [0, 2, 3, 1]),
            ("v", [0, 2, 1, 3]),
        ] {
            linear(&mut g, &n("norm1"), &n(part), [WIDTH, WIDTH]);
            let (split, heads) = (n(&format!("{part}_split")), n(&format!("{part}_heads")));
            g.node("Reshape", &[&n(part), "split_heads"], &[&split]);
            g.node("Transpose", &[&split], &[&heads])
                .ints("perm", &order);
        }
        g.node("MatMul", &[&n("q_heads"), &n("k_heads")], &[&n("scores")]);
        g.node("Mul", &[&n("scores"), "scale"], &[&n("scaled")]);
        g.node("Add", &[&n("scaled"), "mask"], &[&n("masked")]);
        g.node("Softmax", &[&n("masked")], &[&n("attention")])
            .int("axis", -1);
        g.node("MatMul", &[&n("attention"), &n("v_heads")], &[&n("mixed")]);
        g.node("Transpose", &[&n("mixed")], &[&n("rows")])
            .ints("perm", &[0, 2, 1, 3]);
        g.node("Reshape", &[&n("rows"), "join_heads"], &[&n("joined")]);
        linear(&mut g, &n("joined"), &n("projected"), [WIDTH, WIDTH]);
        g.node("Add", &[&x, &n("projected")], &[&n("attended")]);
        normalise(&mut g, &n("attended"), &n("norm2"));
        linear(&mut g, &n("norm2"), &n("wide"), [WIDTH, 4 * WIDTH]);
        g.node("Gelu", &[&n("wide")], &[&n("gelu")]);
        linear(&mut g, &n("gelu"), &n("narrow"), [4 * WIDTH, WIDTH]);
        let next = format!("x{}", layer + 1);
        g.node("Add", &[&n("attended"), &n("narrow")], &[&next]);
    }
    normalise(&mut g, "x2", "encoded");
    g.output("encoded", F32, "1, seq, 512");
    g.model(OPSET)
}

/// A convolution and `x · sigmoid(x)`.
fn silu(g: &mut GraphBuilder, weights: Option<&mut GraphBuilder>, x: &str, y: &str, c: &Conv) {
    let (plain, gate) = (format!("{y}_conv"), format!("{y}_gate"));
    conv(g, weights, x, &plain, c);
    g.node("Sigmoid", &[&plain], &[&gate]);
    g.node("Mul", &[&plain, &gate], &[y]);
}

/// A detector that stops early when the coarse features are sure of what they see.
fn detector() -> Model {
    let mut g = GraphBuilder::new("detector_early_exit");
    g.input("image", F32, "1, 3, 320, 320");
    let layer = |from, to, kernel, stride| Conv {
        from,
        to,
        kernel,
        stride,
    };
    silu(&mut g, None, "image", "p1", &layer(3, 32, 3, 2));
    silu(&mut g, None, "p1", "p2", &layer(32, 64, 3, 2));
    silu(&mut g, None, "p2", "p3", &layer(64, 128, 3, 2));
    silu(&mut g, None, "p3", "p3_out", &layer(128, 128, 3, 1));
    g.node("Add", &["p3", "p3_out"], &["p3_sum"]);
    silu(&mut g, None, "p3_sum", "p4", &layer(128, 256, 3, 2));
    silu(&mut g, None, "p4", "p5", &layer(256, 512, 3, 2));
    g.node("GlobalAveragePool", &["p5"], &["summary"]);
    conv(&mut g, None, "summary", "sureness", &layer(512, 1, 1, 1));
    g.ints("one", &[1]);
    g.node("Reshape", &["sureness", "one"], &["sureness_flat"]);
    g.float("threshold", 2.0);
    g.node("Greater", &["sureness_flat", "threshold"], &["sure"]);

    let mut coarse = GraphBuilder::new("coarse");
    conv(
        &mut coarse,
        Some(&mut g),
        "p4",
        "coarse_boxes",
        &layer(256, 84, 1, 1),
    );
    coarse.output("coarse_boxes", F32, "1, 84, 20, 20");

    let mut fine = GraphBuilder::new("fine");
    let around = &mut g;
    silu(
        &mut fine,
        Some(around),
        "p5",
        "wide",
        &layer(512, 256, 1, 1),
    );
    fine.initializer(scales(&[1.0, 1.0, 2.0, 2.0]));
    fine.node("Resize", &["wide", "", "scales"], &["up"])
        .text("mode", "nearest")
        .text("coordinate_transformation_mode", "asymmetric")
        .text("nearest_mode", "floor");
    fine.node("Concat", &["up", "p4"], &["joined4"])
        .int("axis", 1);
    silu(
        &mut fine,
        Some(around),
        "joined4",
        "f4",
        &layer(512, 256, 3, 1),
    );
    silu(
        &mut fine,
        Some(around),
        "p3_sum",
        "down3",
        &layer(128, 256, 3, 2),
    );
    fine.node("Concat", &["f4", "down3"], &["joined3"])
        .int("axis", 1);
    silu(
        &mut fine,
        Some(around),
        "joined3",
        "f3",
        &layer(512, 256, 3, 1),
    );
    conv(
        &mut fine,
        Some(around),
        "f3",
        "fine_boxes",
        &layer(256, 84, 1, 1),
    );
    fine.output("fine_boxes", F32, "1, 84, 20, 20");

    g.node("If", &["sure"], &["boxes"])
        .graph("then_branch", coarse)
        .graph("else_branch", fine);
    g.node("Sigmoid", &["boxes"], &["detections"]);
    g.output("detections", F32, "1, 84, 20, 20");
    g.model(OPSET)
}

fn scales(values: &[f32]) -> tenure_formats::testing::pb::TensorProto {
    let mut tensor = tenure_formats::testing::tensor("scales", F32, &[values.len() as u64]);
    tensor.float_data = values.to_vec();
    tensor
}

const HIDDEN: u64 = 640;

/// The weights of a gated recurrent unit for inputs of `from` numbers.
fn gru_weights(g: &mut GraphBuilder, name: &str, from: u64) {
    g.weight(&format!("{name}.input"), F32, &[from, 3 * HIDDEN]);
    g.weight(&format!("{name}.state"), F32, &[HIDDEN, 3 * HIDDEN]);
    g.weight(&format!("{name}.bias"), F32, &[3 * HIDDEN]);
}

/// One step of a gated recurrent unit: `next` from `x` and the state `h`.
fn gru(g: &mut GraphBuilder, name: &str, x: &str, h: &str, next: &str) {
    let n = |part: &str| format!("{name}_{part}");
    let weight = |part: &str| format!("{name}.{part}");
    g.node("MatMul", &[x, &weight("input")], &[&n("x")]);
    g.node("Add", &[&n("x"), &weight("bias")], &[&n("xb")]);
    g.node("MatMul", &[h, &weight("state")], &[&n("h")]);
    for from in ["xb", "h"] {
        let parts = ["r", "z", "n"].map(|gate| n(&format!("{from}_{gate}")));
        g.node("Split", &[&n(from)], &[&parts[0], &parts[1], &parts[2]])
            .int("axis", -1)
            .int("num_outputs", 3);
    }
    for gate in ["r", "z"] {
        let sum = n(&format!("{gate}_sum"));
        g.node(
            "Add",
            &[&n(&format!("xb_{gate}")), &n(&format!("h_{gate}"))],
            &[&sum],
        );
        g.node("Sigmoid", &[&sum], &[&n(gate)]);
    }
    g.node("Mul", &[&n("r"), &n("h_n")], &[&n("reset")]);
    g.node("Add", &[&n("xb_n"), &n("reset")], &[&n("n_sum")]);
    g.node("Tanh", &[&n("n_sum")], &[&n("new")]);
    // z·h + (1 - z)·new = new + z·(h - new)
    g.node("Sub", &[h, &n("new")], &[&n("change")]);
    g.node("Mul", &[&n("z"), &n("change")], &[&n("kept")]);
    g.node("Add", &[&n("new"), &n("kept")], &[next]);
}

/// Speech to text: a Scan over the frames of the sound, then a Loop that writes one token a pass.
fn speech() -> Model {
    const TOKENS: u64 = 5000;
    let mut g = GraphBuilder::new("speech_gru");
    g.input("frames", F32, "400, 1, 80");
    g.weight("subsample.weight", F32, &[80, HIDDEN]);
    g.weight("start", F32, &[1, HIDDEN]);
    g.weight("embedding", F32, &[TOKENS, HIDDEN]);
    g.weight("vocabulary", F32, &[HIDDEN, TOKENS]);
    gru_weights(&mut g, "listen", HIDDEN);
    gru_weights(&mut g, "write", 2 * HIDDEN);
    g.node("MatMul", &["frames", "subsample.weight"], &["projected"]);
    g.node("Relu", &["projected"], &["features"]);

    let mut listen = GraphBuilder::new("listen");
    listen.input("heard", F32, "1, 640");
    listen.input("frame", F32, "1, 640");
    gru(&mut listen, "listen", "frame", "heard", "heard_next");
    listen.node("Identity", &["heard_next"], &["memory_row"]);
    listen.output("heard_next", F32, "1, 640");
    listen.output("memory_row", F32, "1, 640");
    g.node("Scan", &["start", "features"], &["heard_all", "memory"])
        .int("num_scan_inputs", 1)
        .graph("body", listen);

    // The decoder attends to the memory of all frames: 400 rows of 640 numbers.
    g.node("Squeeze", &["memory", "axis_1"], &["rows"]);
    g.node("Transpose", &["rows"], &["columns"])
        .ints("perm", &[1, 0]);
    g.ints("axis_1", &[1]);
    g.ints("first_token", &[1]);
    g.int("most_tokens", 120);
    g.int("end_token", 2);

    let mut write = GraphBuilder::new("write");
    write.input("pass", I64, "");
    write.input("go", Bool, "");
    write.input("token", I64, "1");
    write.input("state", F32, "1, 640");
    write.node("MatMul", &["state", "columns"], &["match"]);
    write
        .node("Softmax", &["match"], &["attention"])
        .int("axis", -1);
    write.node("MatMul", &["attention", "rows"], &["context"]);
    write
        .node("Gather", &["embedding", "token"], &["embedded"])
        .int("axis", 0);
    write
        .node("Concat", &["embedded", "context"], &["fed"])
        .int("axis", 1);
    gru(&mut write, "write", "fed", "state", "state_next");
    write.node("MatMul", &["state_next", "vocabulary"], &["logits"]);
    write
        .node("ArgMax", &["logits"], &["token_next"])
        .int("axis", 1)
        .int("keepdims", 0);
    write.node("Equal", &["token_next", "end_token"], &["ended"]);
    write.node("Squeeze", &["ended"], &["ended_one"]);
    write.node("Not", &["ended_one"], &["go_on"]);
    write
        .node("LogSoftmax", &["logits"], &["scores"])
        .int("axis", 1);
    write.output("go_on", Bool, "");
    write.output("token_next", I64, "1");
    write.output("state_next", F32, "1, 640");
    write.output("scores", F32, "1, 5000");
    g.node(
        "Loop",
        &["most_tokens", "", "first_token", "heard_all"],
        &["token_last", "state_last", "all_scores"],
    )
    .graph("body", write);
    g.output("token_last", I64, "1");
    g.output("all_scores", F32, "?, 1, 5000");
    g.model(OPSET)
}
