use super::*;
use crate::arbitrary_graph::{Size, any, ge, onnx};
use crate::effects::OpTable;
use crate::text::parse;
use crate::{Dim, Shape, Tensor};
use std::sync::Arc;

/// Breaks a graph.
type Change<'a> = dyn Fn(&mut Graph) + 'a;

const GRAPH: &str = "\
model m onnx
graph ^g {
  %x: float32[4] = Data()
  %c: bool[] = Data()
  %a: float32[4] = Neg(%x)
  %b: float32[4] = Relu(%a) after @a
  %f: float32[4] = If(%c)
    then ^t {
      %d: float32[4] = Relu(%b^g)
      NetOutput(%d) @results
    }
    else ^e {
      NetOutput(%a^g) @results
    }
  NetOutput(%f) @results
}
";

fn node(graph: &Graph, label: &str) -> NodeId {
    let mut nodes = graph.nodes.keys();
    nodes.find(|&n| graph.node_label(n) == label).unwrap()
}

fn value(graph: &Graph, label: &str) -> ValueId {
    let mut values = graph.values.keys();
    values.find(|&v| graph.value_label(v) == label).unwrap()
}

fn node_mut<'a>(graph: &'a mut Graph, label: &str) -> &'a mut crate::Node {
    let node = node(graph, label);
    &mut graph.nodes[node]
}

fn value_mut<'a>(graph: &'a mut Graph, label: &str) -> &'a mut crate::Value {
    let value = value(graph, label);
    &mut graph.values[value]
}

fn hints_mut<'a>(graph: &'a mut Graph, label: &str) -> &'a mut crate::OutputHints {
    value_mut(graph, label).hints.get_or_insert_default()
}

/// Every rule, with a change that breaks it and nothing before it.
#[test]
fn every_rule_is_checked() {
    let strange = NodeId::from_u32(1000);
    let then = SubgraphId::from_u32(1);
    let changes: [(u8, &Change); 30] = [
        (1, &|g| g.root = SubgraphId::from_u32(9)),
        (1, &|g| g.subgraphs[then].nodes.push(strange)),
        (1, &|g| g.subgraphs[then].owner = Some(strange)),
        (1, &|g| node_mut(g, "b").control.push(strange)),
        (1, &|g| {
            node_mut(g, "b").inputs.push(Some(ValueId::from_u32(99)))
        }),
        (1, &|g| {
            node_mut(g, "f").bodies[0].graph = SubgraphId::from_u32(9)
        }),
        (1, &|g| value_mut(g, "b").producer = strange),
        (2, &|g| node_mut(g, "b").subgraph = then),
        (2, &|g| g.subgraphs[then].nodes.truncate(1)),
        (3, &|g| value_mut(g, "b").output = 1),
        (3, &|g| node_mut(g, "b").outputs.clear()),
        (4, &|g| node_mut(g, "f").bodies.truncate(1)),
        (4, &|g| g.subgraphs[then].owner = Some(node(g, "a"))),
        (4, &|g| {
            // The owner moves into its own branch.
            let f = node(g, "f");
            g.nodes[f].subgraph = then;
            g.subgraphs[g.root].nodes.retain(|&n| n != f);
            g.subgraphs[then].nodes.insert(0, f);
        }),
        (6, &|g| g.subgraphs[then].name = "g".into()),
        (6, &|g| node_mut(g, "b").name = "a".into()),
        (6, &|g| value_mut(g, "b").name = "a".into()),
        (7, &|g| node_mut(g, "b").name = "t/d".into()),
        (7, &|g| value_mut(g, "b").name = "t/d".into()),
        (8, &|g| node_mut(g, "a").inputs[0] = Some(value(g, "b"))),
        (8, &|g| node_mut(g, "b").inputs[0] = Some(value(g, "t/d"))),
        (9, &|g| {
            let later = node(g, "b");
            node_mut(g, "a").control.push(later);
        }),
        (10, &|g| g.subgraphs[g.root].inputs.reverse()),
        (11, &|g| g.subgraphs[then].output = None),
        (12, &|g| {
            node_mut(g, "a").input_attrs = [Attrs::new(), Attrs::new()].into()
        }),
        (12, &|g| hints_mut(g, "a").ref_input = Some(1)),
        (12, &|g| hints_mut(g, "a").reuse_input = Some(1)),
        (12, &|g| hints_mut(g, "a").may_inplace = vec![0, 7]),
        (14, &|g| node_mut(g, "a").extra.set("op", Attr::Null)),
        (15, &|g| {
            let big: Shape = [Dim::Known(1 << 62), Dim::Known(3)].into_iter().collect();
            value_mut(g, "b").shape = Some(big);
        }),
    ];
    for (rule, change) in changes {
        let mut graph = parse(GRAPH).unwrap();
        change(&mut graph);
        let broken = verify(&graph).unwrap_err();
        assert_eq!(broken[0].rule, rule, "{broken:?}");
    }
}

#[test]
fn attributes_are_checked() {
    let mut deep = Attr::Int(1);
    for _ in 0..MAX_ATTR_DEPTH {
        deep = Attr::List(vec![deep]);
    }
    let tensor = |dtype, data| {
        Attr::Tensor(Arc::new(Tensor {
            dtype,
            shape: vec![2],
            data,
        }))
    };
    let text = |n| TensorData::Strings(vec![bytes::Bytes::new(); n]);
    let bytes = |n| TensorData::Bytes(vec![0; n].into());
    let cases = [
        (None, deep.clone()),
        (Some(13), Attr::List(vec![deep])),
        (
            Some(13),
            Attr::Map(Attrs::from_iter([("a", Attr::Null), ("a", Attr::Null)])),
        ),
        (None, tensor(DType::F32, bytes(8))),
        (Some(16), tensor(DType::F32, bytes(7))),
        (None, tensor(DType::I4, bytes(1))),
        (None, tensor(DType::String, text(2))),
        (Some(16), tensor(DType::String, text(1))),
        (Some(16), tensor(DType::F32, text(2))),
        (Some(16), Attr::List(vec![tensor(DType::String, bytes(2))])),
        (None, tensor(DType::F32, TensorData::Absent)),
    ];
    for (rule, attr) in cases {
        let mut graph = parse(GRAPH).unwrap();
        let a = node(&graph, "a");
        graph.nodes[a].attrs.set("k", attr.clone());
        let found = verify(&graph).err().map(|b| b[0].rule);
        assert_eq!(found, rule, "{attr:?}");
    }
}

#[test]
fn sums_are_checked() {
    let mut graph = parse(GRAPH).unwrap();
    let a = node(&graph, "a");
    graph.nodes[a].workspace = [i64::MAX, -1].into();
    assert_eq!(verify(&graph).unwrap_err()[0].rule, 15);
}

#[test]
fn damaged_ids_do_no_harm() {
    arbtest::arbtest(|u| {
        let mut graph = any(
            u,
            Size {
                nodes: 12,
                depth: 3,
            },
        )?;
        let count = |n| u32::try_from(n).unwrap();
        let nodes = count(graph.nodes.len());
        let values = count(graph.values.len());
        let subgraphs = count(graph.subgraphs.len());
        // Now and then one too many.
        let id = |u: &mut arbitrary::Unstructured<'_>, n: u32| u.int_in_range(0..=n);
        for _ in 0..u.int_in_range(1..=6)? {
            let node = NodeId::from_u32(id(u, nodes - 1)?);
            let other = NodeId::from_u32(id(u, nodes)?);
            let value = ValueId::from_u32(id(u, values)?);
            let subgraph = SubgraphId::from_u32(id(u, subgraphs - 1)?);
            match u.int_in_range(0..=9)? {
                0 => graph.nodes[node].inputs.push(Some(value)),
                1 => graph.nodes[node].outputs.push(Some(value)),
                2 => graph.nodes[node].control.push(other),
                3 => graph.nodes[node].subgraph = SubgraphId::from_u32(id(u, subgraphs)?),
                4 => graph.subgraphs[subgraph].owner = Some(other),
                5 => graph.subgraphs[subgraph].nodes.push(other),
                6 => graph.subgraphs[subgraph].nodes.reverse(),
                7 => graph.subgraphs[subgraph].output = Some(other),
                8 => graph.subgraphs[subgraph].inputs.push(other),
                _ => graph.nodes[node].bodies.push(crate::Body {
                    role: "more".into(),
                    graph: SubgraphId::from_u32(id(u, subgraphs)?),
                }),
            }
        }
        if verify(&graph).is_ok() {
            let json = crate::json::write(&graph);
            let again = crate::json::read(json.as_bytes()).unwrap();
            let canonical = crate::canonical(&graph);
            assert!(again == canonical, "{json}");
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn random_graphs_have_fitting_bodies() {
    for make in [onnx, ge] {
        arbtest::arbtest(|u| {
            let graph = make(u, Size::default())?;
            let table = OpTable::builtin(graph.dialect);
            assert_eq!(verify_bodies(&graph, &table), Ok(()));
            Ok(())
        })
        .budget_ms(300);
    }
}

/// What is wrong with the bodies of a graph: the first message.
fn bodies(text: &str) -> String {
    let graph = parse(text).unwrap();
    match verify_bodies(&graph, &OpTable::builtin(graph.dialect)) {
        Ok(()) => "fits".to_owned(),
        Err(broken) => broken[0].to_string(),
    }
}

#[test]
fn bodies_that_do_not_fit() {
    let model = |opsets: &str, node: &str| {
        bodies(&format!(
            "model m onnx {opsets} graph ^g {{ %c: bool[] = Data() %n: int64[] = Data() %s: float32[2] = Data()\n {node} }}"
        ))
    };
    let onnx = |node: &str| model("", node);
    let old = |node: &str| model("opsets [\"ai.onnx\" 8]", node);
    let ge = |node: &str| {
        bodies(&format!(
            "model m graph ^g {{ %c: bool[] = Data() %s: float32[2] = Data()\n {node} }}"
        ))
    };
    let s = "float32[2]";
    let body = |inputs: usize, results: &str| {
        let inputs: String = (0..inputs)
            .map(|i| format!("%i{i}: bool[] = Data() "))
            .collect();
        format!("body ^b {{ {inputs} NetOutput({results}) @o }}")
    };
    let branch = |results: &str| format!("{{ NetOutput({results}) @o }}");
    let cases = [
        (
            onnx(&format!(
                "%y: {s} = If(%c) then ^t {} else ^e {}",
                branch("%s^g"),
                branch("%n^g")
            )),
            "fits",
        ),
        (
            onnx(&format!(
                "%y: {s} = If(%c) then ^t {} else ^e {}",
                branch("%s^g"),
                branch("")
            )),
            "graph \"e\": gives no output 0 of node \"y\" (graph rule 17)",
        ),
        (
            onnx(&format!(
                "%y: {s} = If(%c) then ^t {}",
                branch("%s^g, %s^g")
            )),
            "its result 1 becomes output 1 of node \"y\", which it has not (graph rule 17)",
        ),
        (
            onnx(&format!("%y: {s} = Relu(%s) then ^t {}", branch("%s^g"))),
            "fits",
        ),
        (
            onnx(&format!(
                "%y: {s} = Loop(%n, %c, %s) {}",
                body(3, "%i1, %i2")
            )),
            "fits",
        ),
        (
            onnx(&format!(
                "%y: {s}, %z: {s} = Loop(%n, _, %s) {}",
                body(3, "%i1, %i2, %i2")
            )),
            "fits",
        ),
        (
            onnx(&format!(
                "%y: {s}, %z: {s} = Loop(%n, _, %s) {}",
                body(3, "%i1, %i2")
            )),
            "gives 2 results for 2 outputs",
        ),
        (
            onnx(&format!(
                "%y: {s} = Loop(%n, %c, %s) {}",
                body(2, "%i1, %i1")
            )),
            "has 2 inputs, node \"y\" asks for 3",
        ),
        (
            onnx(&format!("%y: {s} = Loop(%n, %c, %s) {}", body(3, "%i1, _"))),
            "gives 1 results, node \"y\" asks for 2 at least",
        ),
        (
            onnx(&format!(
                "_ = Loop(%n, %c, %s) @y\n {}",
                body(3, "%i1, %i2")
            )),
            "its first 1 outputs hold its states and must exist",
        ),
        (
            onnx(&format!("%y: {s} = Loop(%n) {}", body(2, "%i1"))),
            "a trip count and a condition",
        ),
        (
            onnx(&format!("%y: {s} = Loop(%n, %c, %s)")),
            "a loop has one body",
        ),
        (
            onnx(&format!(
                "%y: {s} = Scan(%s, %s) {{num_scan_inputs = 1}}\n {}",
                body(2, "%i0")
            )),
            "fits",
        ),
        (
            onnx(&format!(
                "%y: {s} = Scan(%s, %s) {{num_scan_inputs = 3}}\n {}",
                body(2, "%i0")
            )),
            "\"num_scan_inputs\" is at least 1",
        ),
        (
            onnx(&format!(
                "%y: {s} = Scan(%s, %s) {{num_scan_inputs = 1}}\n {}",
                body(1, "%i0")
            )),
            "has 1 inputs, node \"y\" asks for 2 (graph rule 19)",
        ),
        (
            old(&format!(
                "%y: {s} = Scan(_, %s, %s) {{num_scan_inputs = 1}}\n {}",
                body(2, "%i0")
            )),
            "fits",
        ),
        (
            old(&format!(
                "%y: {s} = Scan(%n, %s, %s) {{num_scan_inputs = 1}}\n {}",
                body(3, "%i0, %i1")
            )),
            "has 3 inputs, node \"y\" asks for 2 (graph rule 19)",
        ),
        (
            old(&format!(
                "%y: {s} = Scan(%n, %s, %s) {{num_scan_inputs = 3}}\n {}",
                body(2, "%i0")
            )),
            "\"num_scan_inputs\" is at least 1",
        ),
        (
            ge(&format!(
                "%y: {s} = While(%s) cond ^q {} {}",
                branch("%c^g"),
                body(1, "%i0")
            )),
            "fits",
        ),
        (
            ge(&format!("%y: {s} = While(%s) {}", body(1, "%i0"))),
            "one body in the role \"cond\" and one other",
        ),
        (
            ge(&format!(
                "%y: {s} = While(%s, %c) cond ^q {} {}",
                branch("%c^g"),
                body(1, "%i0")
            )),
            "2 states, but 1 outputs",
        ),
        (
            ge(&format!(
                "%y: {s} = While(%s) cond ^q {} {}",
                branch(""),
                body(1, "%i0")
            )),
            "a condition gives one value",
        ),
        (
            ge(&format!(
                "%y: {s} = While(%s) cond ^q {} {}",
                branch("%c^g"),
                body(2, "%i0")
            )),
            "node \"b/i1\": stands for input 1 of node \"y\", which it has not",
        ),
        (
            ge(&format!(
                "%y: {s} = While(%s) cond ^q {} body ^b {{ }}",
                branch("%c^g")
            )),
            "graph \"b\": gives no output 0",
        ),
        (
            ge("NetOutput(%s) @o\n body ^b { }"),
            "its operator has no subgraphs (graph rule 21)",
        ),
    ];
    for (i, (found, expected)) in cases.iter().enumerate() {
        assert!(found.contains(expected), "case {i}: {found}\n{expected}");
    }
}

#[test]
fn what_a_node_asks_of_its_memory_can_be_read() {
    let said = |attrs: &str, workspaces: &str| {
        let text = format!(
            "model m ge graph ^g {{
               %x: float32[4] = Data()
               %y: float32[4] = Op(%x) {{{attrs}}} workspace [{workspaces}]
               NetOutput(%y) @out
             }}"
        );
        parse(&text)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    for flag in [
        "continuous_input",
        "_no_padding_continuous_output",
        "no_reuse_mem_flag",
    ] {
        assert_eq!(said(&format!("{flag} = true"), ""), "");
        assert_eq!(said(&format!("{flag} = 1"), ""), "");
        let refused = said(&format!("{flag} = \"true\""), "");
        assert!(
            refused.contains(&format!("{flag} is neither true nor false")),
            "{refused}"
        );
    }
    for list in [
        "workspace_reuse_flag",
        "_output_memory_type",
        "atomic_output_index",
    ] {
        assert_eq!(said(&format!("{list} = [0]"), "64"), "");
        assert_eq!(said(&format!("{list} = []"), "64"), "");
        for wrong in ["\"false\"", "0", "[\"0\"]"] {
            let refused = said(&format!("{list} = {wrong}"), "64");
            assert!(
                refused.contains(&format!("{list} is no list of numbers")),
                "{refused}"
            );
        }
    }
    // The session's memory is the device's.
    let both = "of the session and of another kind";
    let scope = "_workspace_memory_no_reuse_scope = [1]";
    assert_eq!(said(&format!("{scope}, _workspace_type = [0]"), "64"), "");
    assert!(said(&format!("{scope}, _workspace_type = [17]"), "64").contains(both));
    assert_eq!(said("_output_memory_type = [4294967298]", ""), "");
    assert!(said("_output_memory_type = [4294967313]", "").contains(both));
}
