use super::*;
use crate::arbitrary_graph::{Size, any};
use crate::text::parse;
use crate::{Dim, Shape, Tensor};
use std::sync::Arc;

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

/// Every rule, with a change that breaks it and nothing before it.
fn node_mut<'a>(graph: &'a mut Graph, label: &str) -> &'a mut crate::Node {
    let node = node(graph, label);
    &mut graph.nodes[node]
}

fn value_mut<'a>(graph: &'a mut Graph, label: &str) -> &'a mut crate::Value {
    let value = value(graph, label);
    &mut graph.values[value]
}

#[test]
fn every_rule_is_checked() {
    let strange = NodeId::from_u32(1000);
    let then = SubgraphId::from_u32(1);
    let changes: [(u8, &dyn Fn(&mut Graph)); 27] = [
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
            node_mut(g, "a").input_attrs = vec![Attrs::new(); 2]
        }),
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
    graph.nodes[a].workspace = vec![i64::MAX, -1];
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
        let (nodes, values, subgraphs) =
            (graph.nodes.len(), graph.values.len(), graph.subgraphs.len());
        // Now and then one too many.
        let id = |u: &mut arbitrary::Unstructured<'_>, n: usize| u.int_in_range(0..=n as u32);
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
            assert!(crate::json::read(json.as_bytes()).unwrap() == crate::canonical(&graph));
        }
        Ok(())
    })
    .budget_ms(500);
}
