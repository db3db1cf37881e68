//! Local functions are inlined.

use super::*;
use crate::Problem;
use crate::testing::pb;
use pb::attribute_proto::AttributeType as Kind;
use tenure_graph::effects::OpTable;
use tenure_graph::verify::verify_bodies;
use tenure_graph::{Attr, DType, OPSET};

/// `y = local.OP(x)`.
fn call(op: &str) -> GraphBuilder {
    let mut g = graph("main", &["x"], &["y"]);
    g.node(op, &["x"], &["y"]).domain("local").name("call");
    g
}

#[test]
fn a_call_becomes_the_nodes_of_the_function() {
    let mut f = graph("F", &["a"], &["c"]);
    f.node("Relu", &["a"], &["b"]).name("");
    f.node("Neg", &["b"], &["c"]);
    let mut g = call("F");
    g.declare("z", DType::F32, "4");
    g.node("F", &["y"], &["z"]).domain("local").name("");
    let graph = read(&g.model(17).function("F", &[], f));
    assert_eq!(
        show(&graph),
        "main: x = Data() -> x\n\
         main: call/Relu_0 = Relu(x) -> call/b\n\
         main: call/Neg_c = Neg(call/b) -> y\n\
         main: F_1/Relu_0 = Relu(y) -> F_1/b\n\
         main: F_1/Neg_c = Neg(F_1/b) -> z\n\
         main: NetOutput = NetOutput(y) -> \n"
    );
    let shape_of = |name: &str| {
        let value = graph.values.values().find(|v| v.name == name);
        value.and_then(|v| v.shape.clone())
    };
    assert!(shape_of("y").is_some() && shape_of("z").is_some());
    assert!(shape_of("call/b").is_none());
}

#[test]
fn attributes_come_from_the_call_or_the_defaults() {
    let mut f = graph("F", &["a"], &["b"]);
    f.node("Op", &["a"], &["b"])
        .reference("given", Kind::Int, "p")
        .reference("default", Kind::Int, "q")
        .reference("absent", Kind::Int, "r");
    let mut outer = graph("G", &["a"], &["b"]);
    outer
        .node("F", &["a"], &["b"])
        .domain("local")
        .reference("p", Kind::Int, "deep");
    let mut g = graph("main", &["x"], &["y"]);
    g.node("G", &["x"], &["y"]).domain("local").int("deep", 7);
    let mut model = g
        .model(17)
        .function("F", &["p", "r"], f)
        .function("G", &["deep"], outer);
    model.0.functions[0]
        .attribute_proto
        .push(pb::AttributeProto {
            name: Some("q".to_owned()),
            r#type: Some(Kind::Int.into()),
            i: Some(9),
            ..Default::default()
        });
    let graph = read(&model);
    let node = graph.nodes.values().find(|n| &*n.op == "Op").unwrap();
    assert_eq!(node.name, "G_y/F_b/Op_b");
    let attrs: Vec<_> = node.attrs.iter().collect();
    assert_eq!(
        attrs,
        [("given", &Attr::Int(7)), ("default", &Attr::Int(9))]
    );
}

#[test]
fn functions_keep_their_operator_sets() {
    // In version 8 a `Scan` has the lengths of the sequences before its states.
    let mut step = graph("step", &["h", "x_t"], &["h2"]);
    step.node("Add", &["h", "x_t"], &["h2"]);
    let mut old = graph("Old", &["start", "xs", "cases"], &["last"]);
    old.node("Scan", &["", "start", "xs"], &["last"])
        .int("num_scan_inputs", 1)
        .graph("body", step);
    let mut same = graph("Same", &["a"], &["b"]);
    same.node("Relu", &["a"], &["b"]);
    let mut g = graph("main", &[], &["z"]);
    g.input("start", DType::F32, "2, 4");
    g.input("xs", DType::F32, "2, 3, 4");
    g.node("Old", &["start", "xs"], &["y"]).domain("local");
    g.node("Same", &["y"], &["z"]).domain("local");
    let model = (g.model(17).function("Old", &[], old).function_opset(8))
        .function("Same", &[], same)
        .function_opset(17);
    let graph = read(&model);
    let table = OpTable::builtin(graph.dialect);
    verify_bodies(&graph, &table).unwrap_or_else(|e| panic!("{e:?}"));
    let versions: Vec<_> = (graph.nodes.values())
        .filter(|n| ["Scan", "Add", "Relu"].contains(&&*n.op))
        .map(|n| (&*n.op, graph.opset(n), n.extra.int(OPSET)))
        .collect();
    // The body's node is of the function's version too.
    assert_eq!(
        versions,
        [
            ("Scan", Some(8), Some(8)),
            ("Relu", Some(17), None),
            ("Add", Some(8), Some(8)),
        ]
    );
}

#[test]
fn graphs_in_attributes_of_a_call_are_of_the_callers_operator_sets() {
    let mut f = graph("F", &["a"], &["b"]);
    f.node("If", &["a"], &["b"])
        .reference("then_branch", Kind::Graph, "way")
        .reference("else_branch", Kind::Graph, "way");
    let mut way = graph("way", &[], &["r"]);
    way.node("Relu", &["x"], &["r"]);
    let mut g = graph("main", &["x"], &["y"]);
    g.node("F", &["x"], &["y"])
        .domain("local")
        .graph("way", way);
    let graph = read(&g.model(17).function("F", &["way"], f).function_opset(11));
    for node in graph.nodes.values() {
        let expected = if &*node.op == "If" { 11 } else { 17 };
        assert_eq!(graph.opset(node), Some(expected), "{}", node.name);
    }
}

#[test]
fn a_reference_outside_a_function_is_refused() {
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Op", &["x"], &["y"]).reference("a", Kind::Int, "b");
    assert_eq!(
        problem(&g.model(17)),
        Problem::StrayReference("b".to_owned())
    );
}

#[test]
fn bodies_in_a_function_see_its_names_and_no_others() {
    let branch = |read: &str| {
        let mut then = graph("then", &[], &["r"]);
        then.node("Add", &[read, "a"], &["r"])
            .reference("axis", Kind::Int, "p");
        let mut f = graph("F", &["a"], &["b"]);
        f.node("Neg", &["a"], &["inner"]);
        f.node("If", &["a"], &["b"]).graph("then_branch", then);
        let mut g = graph("main", &["x", "c"], &["y"]);
        g.node("F", &["x"], &["y"]).domain("local").int("p", 3);
        g.model(17).function("F", &["p"], f)
    };
    let graph = read(&branch("inner"));
    assert!(
        show(&graph).contains("Add(F_y/inner, x)"),
        "{}",
        show(&graph)
    );
    let add = graph.nodes.values().find(|n| &*n.op == "Add").unwrap();
    assert_eq!(add.attrs.int("axis"), Some(3));
    assert!(matches!(problem(&branch("c")), Problem::Undefined { name, .. } if name == "c"));
}

#[test]
fn a_graph_given_to_a_function_sees_the_names_of_the_caller() {
    let mut f = graph("F", &["a"], &["b"]);
    f.node("If", &["a"], &["b"])
        .reference("then_branch", Kind::Graph, "p");
    let mut given = graph("given", &[], &["r"]);
    given.node("Relu", &["c"], &["r"]);
    let mut g = graph("main", &["x", "c"], &["y"]);
    g.node("F", &["x"], &["y"])
        .domain("local")
        .graph("p", given);
    let text = show(&read(&g.model(17).function("F", &["p"], f)));
    assert!(text.contains("F_y.given: Relu_r = Relu(c) ->"), "{text}");
}

#[test]
fn inputs_left_out_are_left_out_inside() {
    let mut f = graph("F", &["a", "b", "c"], &["d", "e"]);
    f.node("Clip", &["a", "b", "c"], &["d"]);
    f.node("Neg", &["d"], &["e"]);
    let mut g = graph("main", &["x"], &["y"]);
    g.node("F", &["x", ""], &["", "y"]).domain("local");
    let text = show(&read(&g.model(17).function("F", &[], f)));
    assert!(text.contains("Clip(x, -, -) -> F_/d"), "{text}");
}

#[test]
fn results_that_have_a_name_already_are_copied() {
    let mut f = graph("F", &["a"], &["a", "b", "b"]);
    f.node("Neg", &["a"], &["b"]);
    let mut g = graph("main", &["x"], &["p", "q", "r"]);
    g.node("F", &["x"], &["p", "q", "r"]).domain("local");
    assert_eq!(
        show(&read(&g.model(17).function("F", &[], f))),
        "main: x = Data() -> x\n\
         main: F_p/Neg_b = Neg(x) -> q\n\
         main: F_p/p = Identity(x) -> p\n\
         main: F_p/r = Identity(q) -> r\n\
         main: NetOutput = NetOutput(p, q, r) -> \n"
    );
}

#[test]
fn calls_must_fit() {
    let mut f = graph("F", &["a"], &["b"]);
    f.node("Neg", &["a"], &["b"]);
    let mut g = graph("main", &["x"], &["y"]);
    g.node("F", &["x", "x"], &["y"]).domain("local");
    assert_eq!(
        error(&g.model(17).function("F", &[], f)),
        "node \"F_y\" (F): the call has 2 inputs, the function takes 1"
    );
    let f = graph("F", &["a"], &["b"]);
    let text = error(&call("F").model(17).function("F", &[], f));
    assert!(
        text.contains("output 0 of function \"F\" is \"b\""),
        "{text}"
    );
}

#[test]
fn a_function_defined_twice_is_refused() {
    let f = || graph("F", &["a"], &["a"]);
    let model = call("F")
        .model(17)
        .function("F", &[], f())
        .function("F", &[], f());
    assert_eq!(problem(&model), Problem::DuplicateFunction("F".to_owned()));
}

#[test]
fn a_result_that_is_an_input_left_out_is_left_out() {
    let mut g = graph("main", &["x"], &["z"]);
    g.node("F", &["", "x"], &["y", "z"]).domain("local");
    g.node("Op", &["x", "y"], &["w"]);
    let f = graph("F", &["a", "b"], &["a", "b"]);
    let text = show(&read(&g.model(17).function("F", &[], f)));
    assert!(text.contains("Op(x, -) -> w"), "{text}");
}

#[test]
fn recursion_is_refused() {
    let calls = |name: &str, callee: &str| {
        let mut f = graph(name, &["a"], &["b"]);
        f.node(callee, &["a"], &["b"]).domain("local");
        f
    };
    let model = call("F")
        .model(17)
        .function("F", &[], calls("F", "G"))
        .function("G", &[], calls("G", "F"));
    assert_eq!(
        problem(&model),
        Problem::Recursion(["F", "G", "F"].map(crate::error::quoted).to_vec())
    );

    let mut f = graph("F", &["a"], &["b"]);
    f.node("If", &["a"], &["b"]).graph("then_branch", {
        let mut then = graph("then", &[], &["b2"]);
        then.node("F", &["a"], &["b2"]).domain("local");
        then
    });
    let model = call("F").model(17).function("F", &[], f);
    assert!(matches!(problem(&model), Problem::Recursion(_)));
}

#[test]
fn deep_chains_and_explosions_are_refused() {
    let chain = |depth: usize, width: usize| {
        let mut model = call("F0").model(17);
        for i in 0..depth {
            let mut f = graph("f", &["a"], &["b"]);
            let callee = format!("F{}", i + 1);
            for k in 1..width {
                f.node(&callee, &["a"], &[&format!("b{k}")]).domain("local");
            }
            f.node(&callee, &["a"], &["b"]).domain("local");
            model = model.function(&format!("F{i}"), &[], f);
        }
        let mut last = graph("f", &["a"], &["b"]);
        last.node("Neg", &["a"], &["b"]);
        model.function(&format!("F{depth}"), &[], last)
    };
    assert_eq!(read(&chain(20, 1)).nodes.len(), 3);
    assert!(matches!(problem(&chain(100, 1)), Problem::TooDeep(_)));
    let text = error(&chain(100, 1));
    assert!(text.contains("…") && text.len() < 400, "{text}");

    let mut model = chain(16, 2);
    let graph = model.0.graph.take().unwrap();
    let limit = 1 << 20;
    match super::super::build::build(&model.0, graph, None, limit) {
        Err(FormatError::Model { problem, .. }) => {
            assert_eq!(problem, Problem::TooManyInlined(limit));
        }
        other => panic!("{other:?}"),
    }
}
