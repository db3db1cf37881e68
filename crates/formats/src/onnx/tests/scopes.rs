//! Names: what they stand for, in which order, and how they are made unique.

use super::*;
use crate::Problem;
use bytes::Bytes;
use prost::Message as _;
use tenure_graph::{DType, Dim};

#[test]
fn inputs_constants_and_results_are_nodes() {
    let mut g = graph("main", &["x"], &["y"]);
    g.weight("w", DType::F32, &[4]);
    g.node("Add", &["x", "w"], &["y"]);
    let graph = read(&g.model(17));
    assert_eq!(
        show(&graph),
        "main: x = Data() -> x\n\
         main: w = Const() -> w\n\
         main: Add_y = Add(x, w) -> y\n\
         main: NetOutput = NetOutput(y) -> \n"
    );
    let [x, w, add, out] = [0, 1, 2, 3].map(tenure_graph::NodeId::from_u32);
    assert!([x, w, out].iter().all(|&n| graph.nodes[n].stream.is_none()));
    assert!(graph.nodes[add].stream.is_some());
}

#[test]
fn an_input_with_an_initializer_is_a_constant() {
    let mut g = graph("main", &["w", "x"], &["y"]);
    g.weight("w", DType::F32, &[4]);
    g.node("Add", &["x", "w"], &["y"]);
    let graph = read(&g.model(7));
    let root = &graph.subgraphs[graph.root];
    assert_eq!(root.inputs.len(), 1);
    assert!(show(&graph).contains("w = Const"));
}

#[test]
fn what_is_left_out_is_none() {
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Clip", &["x", "", "x"], &["c"]);
    g.node("LSTM", &["c"], &["", "y", ""]);
    let text = show(&read(&g.model(17)));
    assert!(text.contains("Clip(x, -, x) -> c"), "{text}");
    assert!(text.contains("LSTM(c) -> -, y, -"), "{text}");
}

#[test]
fn nodes_move_behind_what_they_read_and_no_further() {
    let mut g = graph("main", &["x"], &["d"]);
    for (from, to) in [("x", "a"), ("c", "d"), ("x", "b"), ("b", "c"), ("x", "e")] {
        g.node("Relu", &[from], &[to]);
    }
    let graph = read(&g.model(17));
    let order: Vec<&str> = (graph.subgraphs[graph.root].nodes.iter())
        .map(|&n| &*graph.nodes[n].name)
        .collect();
    assert_eq!(
        order,
        [
            "x",
            "Relu_a",
            "Relu_b",
            "Relu_c",
            "Relu_d",
            "Relu_e",
            "NetOutput"
        ]
    );
}

#[test]
fn a_cycle_is_named() {
    let mut g = graph("main", &["x"], &["c"]);
    g.node("Relu", &["x"], &["a"]);
    g.node("Add", &["a", "d"], &["b"]);
    g.node("Relu", &["b"], &["c"]);
    g.node("Relu", &["c"], &["d"]);
    assert_eq!(
        error(&g.model(17)),
        "the nodes form a cycle: node \"Add_b\" (Add) -> node \"Relu_c\" (Relu) -> \
         node \"Relu_d\" (Relu) -> node \"Add_b\" (Add)"
    );
}

#[test]
fn a_node_whose_body_reads_its_result_is_a_cycle() {
    let mut body = graph("t", &[], &["t_y"]);
    body.node("Relu", &["y"], &["t_y"]);
    let mut g = graph("main", &["x"], &["y"]);
    g.node("If", &["x"], &["y"]).graph("then_branch", body);
    assert!(matches!(problem(&g.model(17)), Problem::Cycle(names) if names.len() == 2));
}

#[test]
fn a_name_that_nothing_defines_is_said_with_its_place() {
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Add", &["x", "gone"], &["y"]);
    assert_eq!(
        error(&g.model(17)),
        "node \"Add_y\" (Add): input 1 is \"gone\", which no node, input or initializer defines"
    );

    let mut inner = graph("inner", &[], &["z"]);
    inner.node("Relu", &["gone"], &["z"]).name("");
    let mut g = graph("main", &["x"], &["y"]);
    g.node("If", &["x"], &["y"]).graph("else_branch", inner);
    assert_eq!(
        error(&g.model(17)),
        "node \"If_y\" (If), else: node 0 (Relu): input 0 is \"gone\", which no node, input or \
         initializer defines"
    );

    let g = graph("main", &["x"], &["gone"]);
    let text = error(&g.model(17));
    assert!(
        text.starts_with("output 0 of the graph is \"gone\""),
        "{text}"
    );
}

#[test]
fn names_do_not_leave_their_graph() {
    let mut inner = graph("inner", &[], &["z"]);
    inner.node("Relu", &["x"], &["z"]);
    let mut g = graph("main", &["x"], &["y"]);
    g.node("If", &["x"], &["a"]).graph("then_branch", inner);
    g.node("Add", &["a", "z"], &["y"]);
    assert!(matches!(problem(&g.model(17)), Problem::Undefined { name, .. } if name == "z"));
}

#[test]
fn a_name_defined_twice_is_refused() {
    let duplicate = Problem::Duplicate("a".to_owned());

    let mut g = graph("main", &["x"], &["a"]);
    g.node("Relu", &["x"], &["a"]);
    g.node("Relu", &["x"], &["a"]);
    assert_eq!(problem(&g.model(17)), duplicate);

    let mut g = graph("main", &["a"], &["a"]);
    g.node("Relu", &["a"], &["a"]);
    assert!(matches!(problem(&g.model(17)), Problem::Cycle(_)));

    let mut g = graph("main", &["x", "a"], &["a"]);
    g.node("Relu", &["x"], &["a"]);
    assert_eq!(problem(&g.model(17)), duplicate);

    let mut g = graph("main", &["a", "a"], &["y"]);
    g.node("Relu", &["a"], &["y"]);
    assert_eq!(problem(&g.model(17)), duplicate);

    let mut g = graph("main", &["x"], &["y"]);
    g.weight("a", DType::F32, &[4]);
    g.weight("a", DType::F32, &[4]);
    g.node("Add", &["x", "a"], &["y"]);
    assert_eq!(problem(&g.model(17)), duplicate);
}

#[test]
fn bodies_capture_names_through_all_scopes() {
    let mut innermost = graph("deep", &[], &["d"]);
    innermost.node("Add", &["x", "t"], &["d"]);
    let mut then = graph("then", &[], &["r"]);
    then.node("Neg", &["x"], &["t"]);
    then.node("If", &["c"], &["r"])
        .graph("then_branch", innermost);
    let mut other = graph("else", &[], &["r"]);
    other.node("Relu", &["late"], &["x"]);
    other.node("Relu", &["x"], &["r"]);
    let mut g = graph("main", &["x", "c"], &["y"]);
    g.node("If", &["c"], &["y"])
        .graph("then_branch", then)
        .graph("else_branch", other);
    g.node("Abs", &["x"], &["late"]);
    assert_eq!(
        show(&read(&g.model(17))),
        "main: x = Data() -> x\n\
         main: c = Data() -> c\n\
         main: Abs_late = Abs(x) -> late\n\
         main: If_y = If(c) -> y then=then else=else\n\
         main: NetOutput = NetOutput(y) -> \n\
         then: Neg_t = Neg(x) -> then/t\n\
         then: If_r = If(c) -> then/r then=deep\n\
         then: NetOutput = NetOutput(then/r) -> \n\
         deep: Add_d = Add(x, then/t) -> deep/d\n\
         deep: NetOutput = NetOutput(deep/d) -> \n\
         else: Relu_x = Relu(late) -> else/x\n\
         else: Relu_r = Relu(else/x) -> else/r\n\
         else: NetOutput = NetOutput(else/r) -> \n"
    );
}

#[test]
fn states_of_loops_exist_even_where_nobody_reads_them() {
    let mut body = GraphBuilder::new("body");
    body.input("i", DType::I64, "");
    body.input("go", DType::Bool, "");
    body.input("a", DType::F32, "4");
    body.input("b", DType::F32, "4");
    body.node("Identity", &["go"], &["go_on"]);
    body.node("Add", &["a", "b"], &["a2"]);
    body.node("Neg", &["b"], &["b2"]);
    for (name, dtype) in [
        ("go_on", DType::Bool),
        ("a2", DType::F32),
        ("b2", DType::F32),
        ("a2", DType::F32),
    ] {
        body.output(name, dtype, "");
    }
    let mut g = graph("main", &["x"], &["all"]);
    g.int("n", 3);
    g.node("Loop", &["n", "", "x", "x"], &["", "last", "all"])
        .graph("body", body.clone());
    let text = show(&read(&g.model(17)));
    assert!(
        text.contains("Loop(n, -, x, x) -> Loop_:0, last, all body=body"),
        "{text}"
    );

    let mut g = graph("main", &["x"], &["x"]);
    g.int("n", 3);
    g.node("Loop", &["n", "", "x", "x"], &[])
        .graph("body", body);
    let text = show(&read(&g.model(17)));
    assert!(text.contains("-> Loop_:0, Loop_:1 body"), "{text}");

    let mut body = graph("body", &["h", "x_t"], &["h2", "y_t"]);
    body.node("Add", &["h", "x_t"], &["h2"]);
    body.node("Neg", &["h2"], &["y_t"]);
    let mut g = graph("main", &["h0"], &["ys"]);
    g.input("xs", DType::F32, "steps, 4");
    g.node("Scan", &["h0", "xs"], &["", "ys"])
        .int("num_scan_inputs", 1)
        .graph("body", body);
    let text = show(&read(&g.model(17)));
    assert!(text.contains("Scan(h0, xs) -> Scan_:0, ys"), "{text}");

    // Version 8: the lengths of the sequences come first and are no state.
    let mut body = graph("body", &["h", "x_t"], &["h2", "y_t"]);
    body.node("Add", &["h", "x_t"], &["h2"]);
    body.node("Neg", &["h2"], &["y_t"]);
    let mut g = graph("main", &[], &["ys"]);
    g.input("h0", DType::F32, "2, 4");
    g.input("xs", DType::F32, "2, steps, 4");
    g.node("Scan", &["", "h0", "xs"], &["", "ys"])
        .int("num_scan_inputs", 1)
        .graph("body", body);
    let text = show(&read(&g.model(8)));
    assert!(text.contains("Scan(-, h0, xs) -> Scan_:0, ys"), "{text}");
}

#[test]
fn a_list_of_graphs_is_a_list_of_bodies() {
    let mut g = graph("main", &["x"], &["y"]);
    let bodies: Vec<_> = (["b", "", "b"].iter())
        .map(|name| {
            let mut b = graph(name, &[], &["r"]);
            b.node("Relu", &["x"], &["r"]);
            Bytes::from(b.graph().encode_to_vec())
        })
        .collect();
    g.node("Custom", &["x"], &["y"]).domain("own").attribute(
        "cases",
        crate::testing::pb::attribute_proto::AttributeType::Graphs,
        |a| {
            a.graphs = bodies;
        },
    );
    let text = show(&read(&g.model(17)));
    assert!(
        text.contains("-> y cases0=b cases1=Custom_y_cases1 cases2=b_2"),
        "{text}"
    );
}

#[test]
fn names_and_labels_are_unique() {
    let mut then = graph("a/b", &[], &["r"]);
    then.node("Relu", &["x"], &["r"]).name("same");
    let mut other = graph("x", &[], &["r"]);
    other.node("Relu", &["x"], &["r"]).name("same");
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Relu", &["x"], &["x/r"]).name("x");
    g.node("Relu", &["x"], &["p"]).name("");
    g.node("Relu", &["x"], &["q"]).name("Relu_1");
    g.node("Relu", &["x"], &["a.b/r"]).name("x");
    g.node("If", &["x"], &["y"])
        .graph("then_branch", then)
        .graph("else_branch", other);
    assert_eq!(
        show(&read(&g.model(17))),
        "main: x_3 = Data() -> x\n\
         main: x = Relu(x) -> x/r\n\
         main: Relu_1_2 = Relu(x) -> p\n\
         main: Relu_1 = Relu(x) -> q\n\
         main: x_2 = Relu(x) -> a.b/r\n\
         main: If_y = If(x) -> y then=a.b_2 else=x_2\n\
         main: NetOutput = NetOutput(y) -> \n\
         a.b_2: same = Relu(x) -> a.b_2/r\n\
         a.b_2: NetOutput = NetOutput(a.b_2/r) -> \n\
         x_2: same = Relu(x) -> x_2/r\n\
         x_2: NetOutput = NetOutput(x_2/r) -> \n"
    );
}

#[test]
fn declared_shapes_are_kept() {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "batch, past + 1, ?, 0, -1");
    g.declare("m", DType::F16, "7");
    g.output("y", DType::F32, "8");
    g.node("Custom", &["x"], &["m", "n"]);
    g.node("Custom", &["m", "n"], &["y"]);
    let graph = read(&g.model(17));
    let of = |name: &str| graph.values.values().find(|v| v.name == name).unwrap();
    let x = of("x").shape.clone().unwrap();
    assert_eq!(x.to_string(), "[batch, past + 1, ?, 0, ?]");
    assert!(matches!(x.0[1], Dim::Formula(_)));
    assert_eq!(of("m").dtype, DType::F16);
    assert_eq!(of("m").shape, Some(tenure_graph::Shape::of(&[7])));
    assert_eq!((of("n").dtype, &of("n").shape), (DType::Unknown, &None));
    assert_eq!(of("y").shape, Some(tenure_graph::Shape::of(&[8])));
}

#[test]
fn operator_sets_are_taken_as_they_come() {
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Relu", &["x"], &["y"]).domain("ai.onnx");
    let mut model = g.model(13);
    let opset = |domain: &str, version| crate::testing::pb::OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    model
        .0
        .opset_import
        .extend([opset("own", 2), opset("ai.onnx", 17), opset("own", 1)]);
    let graph = read(&model);
    assert_eq!(graph.opsets, [("".into(), 17), ("own".into(), 2)]);
    assert!(graph.nodes.values().all(|n| n.domain.is_empty()));
    model.0.opset_import.clear();
    assert_eq!(read(&model).opsets, []);
}
