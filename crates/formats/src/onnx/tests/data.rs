//! Types, tensors and attributes.

use super::*;
use crate::Problem;
use crate::testing::{pb, tensor, value_info};
use bytes::Bytes;
use pb::attribute_proto::AttributeType as Kind;
use std::sync::Arc;
use tenure_graph::{Attr, DType, ElementType, Shape, Tensor, TensorData};

/// A model that holds one initializer `w`.
fn holding(w: pb::TensorProto) -> Model {
    let mut g = graph("main", &["x"], &["y"]);
    g.initializer(w);
    g.node("Op", &["x", "w"], &["y"]);
    g.model(17)
}

/// The attribute `name` of the first node with operator `op`.
fn attr(graph: &Graph, op: &str, name: &str) -> Attr {
    let node = graph.nodes.values().find(|n| &*n.op == op).unwrap();
    node.attrs
        .get(name)
        .unwrap_or_else(|| panic!("{:?}", node.attrs))
        .clone()
}

fn constant(model: &Model, op: &str) -> Arc<Tensor> {
    match attr(&read(model), op, "value") {
        Attr::Tensor(tensor) => tensor,
        other => panic!("{other:?}"),
    }
}

fn contents(w: pb::TensorProto) -> TensorData {
    constant(&holding(w), "Const").data.clone()
}

#[test]
fn every_element_type_is_known() {
    for n in 1..=28 {
        let dtype = crate::onnx::element(n).unwrap_or_else(|| panic!("type {n}"));
        assert_eq!(crate::testing::number(dtype), n);
    }
    assert_eq!(crate::onnx::element(0), None);
    assert_eq!(crate::onnx::element(29), None);
    assert_eq!(crate::onnx::element(-1), None);
}

#[test]
fn types_that_are_no_tensors_are_told_apart() {
    use pb::type_proto::{Map, Optional, Sequence, SparseTensor, Value};
    let tensor = value_info("", DType::F32, "2").r#type.map(Box::new);
    let cases = [
        (
            Value::SequenceType(Box::new(Sequence {
                elem_type: tensor.clone(),
            })),
            DType::Sequence,
            "sequence(tensor(float32[2]))",
        ),
        (
            Value::OptionalType(Box::new(Optional {
                elem_type: tensor.clone(),
            })),
            DType::Optional,
            "optional(tensor(float32[2]))",
        ),
        (
            Value::MapType(Box::new(Map {
                key_type: Some(7),
                value_type: tensor,
            })),
            DType::Map,
            "map(int64, tensor(float32[2]))",
        ),
        (
            Value::SparseTensorType(SparseTensor {
                elem_type: Some(1),
                shape: None,
            }),
            DType::Sparse,
            "tensor(sparse)",
        ),
    ];
    for (value, dtype, text) in cases {
        let ty = pb::TypeProto {
            value: Some(value),
            denotation: None,
        };
        let mut g = graph("main", &[], &["y"]);
        g.node("Optional", &[], &["y"])
            .attribute("type", Kind::TypeProto, |a| {
                a.tp = Some(Box::new(ty.clone()))
            });
        let mut model = g.model(17);
        let root = model.0.graph.as_mut().unwrap();
        root.output[0].r#type = Some(ty);
        let graph = read(&model);
        let value = graph.values.values().next().unwrap();
        assert_eq!(value.dtype, dtype);
        let holds = matches!(dtype, DType::Sequence | DType::Optional);
        let element = holds.then(|| ElementType {
            dtype: DType::F32,
            shape: Some(Shape::of(&[2])),
            element: None,
        });
        assert_eq!(value.element(), element);
        assert_eq!(attr(&graph, "Optional", "type"), Attr::Str(text.to_owned()));
    }
}

#[test]
fn a_negative_dimension_is_said_with_its_place() {
    let mut g = GraphBuilder::new("main");
    g.input("x", DType::F32, "1, -5");
    g.output("x", DType::F32, "");
    assert_eq!(
        error(&g.model(17)),
        "value \"x\": dimension 1 is -5; a dimension is at least 0, or -1 where it is unknown"
    );
    let mut w = tensor("w", DType::F32, &[2]);
    w.dims = vec![-1];
    let text = error(&holding(w));
    assert!(
        text.starts_with("initializer 0 (\"w\"): dimension 0 is -1"),
        "{text}"
    );
}

#[test]
fn names_that_are_none_give_unknown_dimensions() {
    use pb::tensor_shape_proto::dimension::Value;
    for text in ["", "?", "-1", " "] {
        let mut g = graph("main", &["x"], &["x"]);
        g.node("Op", &["x"], &["y"]);
        let mut model = g.model(17);
        let ty = model.0.graph.as_mut().unwrap().input[0].r#type.as_mut();
        match ty.unwrap().value.as_mut() {
            Some(pb::type_proto::Value::TensorType(t)) => {
                let dim = &mut t.shape.as_mut().unwrap().dim[0];
                dim.value = Some(Value::DimParam(text.to_owned()));
            }
            other => panic!("{other:?}"),
        }
        let graph = read(&model);
        let x = graph.values.values().next().unwrap();
        assert_eq!(x.shape.as_ref().unwrap().to_string(), "[?]", "{text:?}");
    }
}

#[test]
fn contents_in_typed_fields_become_bytes() {
    let bytes = |w: pb::TensorProto| match contents(w) {
        TensorData::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    let int32 = |dtype, n, values: &[i32]| {
        let mut w = tensor("w", dtype, &[n]);
        w.int32_data = values.to_vec();
        bytes(w)
    };
    assert_eq!(int32(DType::I32, 1, &[-2]), [0xfe, 0xff, 0xff, 0xff]);
    assert_eq!(
        int32(DType::F16, 2, &[0x3c00, 0xbc00]),
        [0x00, 0x3c, 0x00, 0xbc]
    );
    assert_eq!(int32(DType::I8, 2, &[-1, 3]), [0xff, 3]);
    assert_eq!(int32(DType::Bool, 2, &[1, 0]), [1, 0]);
    assert_eq!(int32(DType::I4, 3, &[0x21, 0x03]), [0x21, 0x03]);
    assert_eq!(int32(DType::U2, 5, &[0xe4, 0x01]), [0xe4, 0x01]);
    // The packing that the schema writes out for 6-bit floats.
    let x = [0x01, 0x22, 0x33, 0x3f];
    assert_eq!(
        int32(DType::F6E2M3, 4, &x),
        [
            0x01 | ((0x22 & 0x3) << 6),
            (0x22 >> 2) | ((0x33 & 0xf) << 4),
            (0x33 >> 4) | (0x3f << 2)
        ]
    );
    assert_eq!(int32(DType::F6E3M2, 1, &[0x2a]), [0x2a]);

    let mut w = tensor("w", DType::F32, &[1]);
    w.float_data = vec![1.5];
    assert_eq!(bytes(w), 1.5f32.to_le_bytes());
    let mut w = tensor("w", DType::C64, &[1]);
    w.float_data = vec![1.5, 2.5];
    assert_eq!(
        bytes(w),
        [1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat()
    );
    let mut w = tensor("w", DType::F64, &[1]);
    w.double_data = vec![-0.5];
    assert_eq!(bytes(w), (-0.5f64).to_le_bytes());
    let mut w = tensor("w", DType::I64, &[]);
    w.int64_data = vec![i64::MIN];
    assert_eq!(bytes(w), i64::MIN.to_le_bytes());
    let mut w = tensor("w", DType::U32, &[1]);
    w.uint64_data = vec![0xffff_fffe];
    assert_eq!(bytes(w), 0xffff_fffe_u32.to_le_bytes());
}

#[test]
fn contents_must_be_as_many_as_the_shape_says() {
    let two = || tensor("w", DType::F32, &[2]);
    let raw = pb::TensorProto {
        raw_data: Some(Bytes::from_static(&[0; 7])),
        ..two()
    };
    let typed = pb::TensorProto {
        float_data: vec![0.0; 3],
        ..two()
    };
    let strings = pb::TensorProto {
        string_data: vec![Bytes::new()],
        ..tensor("w", DType::String, &[2])
    };
    for (w, found, expected, unit) in [
        (raw, 7, 8, "bytes"),
        (typed, 3, 2, "elements"),
        (strings, 1, 2, "strings"),
    ] {
        let wanted = Problem::Contents {
            found,
            expected,
            unit,
        };
        assert_eq!(problem(&holding(w)), wanted);
    }
    let mut w = tensor("w", DType::F32, &[1 << 40, 1 << 40]);
    assert!(matches!(problem(&holding(w.clone())), Problem::TooLarge));
    w.data_type = Some(99);
    assert_eq!(problem(&holding(w.clone())), Problem::ElementType(99));
    w.segment = Some(pb::tensor_proto::Segment::default());
    assert_eq!(problem(&holding(w)), Problem::Segmented);
}

#[test]
fn contents_may_be_left_out() {
    assert_eq!(contents(tensor("w", DType::F32, &[2])), TensorData::Absent);
    assert_eq!(
        contents(tensor("w", DType::String, &[2])),
        TensorData::Absent
    );
    let empty = TensorData::Bytes(Bytes::new());
    assert_eq!(contents(tensor("w", DType::F32, &[0, 1 << 62, 8])), empty);
}

#[test]
fn external_contents_are_named_and_not_read() {
    let mut g = graph("main", &["x"], &["y"]);
    g.weight("v", DType::F32, &[3]);
    g.weight("w", DType::F16, &[5, 2]);
    g.node("Op", &["x", "v", "w"], &["y"]);
    let mut model = g.model(17);
    let graph = read(&model);
    let last = graph.nodes.values().rfind(|n| &*n.op == "Const").unwrap();
    let Some(Attr::Tensor(w)) = last.attrs.get("value") else {
        panic!("{last:?}");
    };
    assert_eq!(
        w.data,
        TensorData::External {
            location: "main.absent.bin".to_owned(),
            offset: 64,
            length: Some(20)
        }
    );
    let weights = &mut model.0.graph.as_mut().unwrap().initializer;
    weights[0].external_data[1].value = Some("-4".to_owned());
    let text = error(&model);
    assert!(
        text.contains("offset is \"-4\", which is no number"),
        "{text}"
    );
    model.0.graph.as_mut().unwrap().initializer[0]
        .external_data
        .clear();
    let text = error(&model);
    assert!(text.contains("key \"location\" is missing"), "{text}");
}

#[test]
fn constants_have_one_form() {
    let of = |kind, name: &str, fill: &dyn Fn(&mut pb::AttributeProto)| {
        let mut g = graph("main", &[], &["y"]);
        g.node("Constant", &[], &["y"]).attribute(name, kind, fill);
        let tensor = constant(&g.model(17), "Constant");
        (tensor.dtype, tensor.shape.clone(), tensor.data.clone())
    };
    let bytes = |b: &[u8]| TensorData::Bytes(Bytes::copy_from_slice(b));
    let seven = 7i64.to_le_bytes();
    let half = 0.1f32.to_le_bytes();
    assert_eq!(
        of(Kind::Int, "value_int", &|a| a.i = Some(7)),
        (DType::I64, vec![], bytes(&seven))
    );
    assert_eq!(
        of(Kind::Ints, "value_ints", &|a| a.ints = vec![7, 7]),
        (DType::I64, vec![2], bytes(&[seven, seven].concat()))
    );
    assert_eq!(
        of(Kind::Float, "value_float", &|a| a.f = Some(0.1)),
        (DType::F32, vec![], bytes(&half))
    );
    assert_eq!(
        of(Kind::Floats, "value_floats", &|a| a.floats = vec![0.1]),
        (DType::F32, vec![1], bytes(&half))
    );
    let text = Bytes::from_static(b"\xfftext");
    let strings = TensorData::Strings(vec![text.clone()]);
    assert_eq!(
        of(Kind::String, "value_string", &|a| a.s = Some(text.clone())),
        (DType::String, vec![], strings.clone())
    );
    assert_eq!(
        of(Kind::Strings, "value_strings", &|a| a.strings =
            vec![text.clone()]),
        (DType::String, vec![1], strings)
    );
    assert_eq!(
        of(Kind::Tensor, "value", &|a| {
            let mut t = tensor("", DType::U8, &[2]);
            t.raw_data = Some(Bytes::from_static(&[1, 2]));
            a.t = Some(Box::new(t));
        }),
        (DType::U8, vec![2], bytes(&[1, 2]))
    );
    assert_eq!(
        of(Kind::SparseTensor, "sparse_value", &|a| {
            a.sparse_tensor = Some(Box::new(sparse(&[2, 2], &[3, 0], &[2])));
        }),
        (DType::U8, vec![2, 2], bytes(&[20, 0, 0, 10]))
    );
}

/// The values 10, 20 at `indices`.
fn sparse(dims: &[i64], indices: &[i64], shape: &[u64]) -> pb::SparseTensorProto {
    let mut values = tensor("w", DType::U8, &[2]);
    values.raw_data = Some(Bytes::from_static(&[10, 20]));
    let mut at = tensor("", DType::I64, shape);
    at.int64_data = indices.to_vec();
    pb::SparseTensorProto {
        values: Some(values),
        indices: Some(at),
        dims: dims.to_vec(),
    }
}

#[test]
fn sparse_initializers_are_spelled_out() {
    let holding = |sparse: pb::SparseTensorProto| {
        let mut g = graph("main", &["x"], &["y"]);
        g.node("Op", &["x", "w"], &["y"]);
        let mut model = g.model(17);
        model
            .0
            .graph
            .as_mut()
            .unwrap()
            .sparse_initializer
            .push(sparse);
        model
    };
    let coordinates = sparse(&[2, 3], &[0, 1, 1, 2], &[2, 2]);
    assert_eq!(
        constant(&holding(coordinates), "Const").data,
        TensorData::Bytes(Bytes::from_static(&[0, 10, 0, 0, 0, 20]))
    );
    for bad in [
        sparse(&[2, 3], &[0, 1, 1, 3], &[2, 2]),
        sparse(&[2, 3], &[0, 6], &[2]),
        sparse(&[2, 3], &[0, -1], &[2]),
        sparse(&[2, 3], &[0], &[1]),
        sparse(&[2, 3], &[0, 1, 1], &[1, 3]),
    ] {
        assert!(matches!(problem(&holding(bad)), Problem::Sparse(_)));
    }
    // A few bytes of a file may not ask for gigabytes.
    let large = sparse(&[1 << 40, 1 << 10], &[0, 6], &[2]);
    assert_eq!(constant(&holding(large), "Const").data, TensorData::Absent);
}

#[test]
fn attributes_of_all_kinds_are_kept() {
    let mut g = graph("main", &["x"], &["y"]);
    g.node("Op", &["x"], &["y"])
        .int("i", -3)
        .float("f", 0.5)
        .text("s", "text")
        .ints("is", &[1, 2])
        .attribute("fs", Kind::Floats, |a| a.floats = vec![0.5])
        .attribute("b", Kind::String, |a| {
            a.s = Some(Bytes::from_static(&[0xff]))
        })
        .attribute("ss", Kind::Strings, |a| {
            a.strings = vec![Bytes::from_static(b"a")]
        })
        .attribute("ts", Kind::Tensors, |a| {
            a.tensors = vec![tensor("", DType::F32, &[0])]
        })
        .attribute("st", Kind::SparseTensors, |a| {
            a.sparse_tensors = vec![sparse(&[2], &[0, 1], &[2])];
        })
        .attribute("old", Kind::Undefined, |a| a.ints = vec![4])
        .attribute("none", Kind::Undefined, |_| ());
    let graph = read(&g.clone().model(17));
    let of = |name| attr(&graph, "Op", name);
    assert_eq!(of("i"), Attr::Int(-3));
    assert_eq!(of("f"), Attr::Float(0.5));
    assert_eq!(of("s"), Attr::Str("text".to_owned()));
    assert_eq!(of("is").as_ints(), Some(vec![1, 2]));
    assert_eq!(of("fs"), Attr::List(vec![Attr::Float(0.5)]));
    assert_eq!(of("b"), Attr::Bytes(Bytes::from_static(&[0xff])));
    assert_eq!(of("ss"), Attr::List(vec![Attr::Str("a".to_owned())]));
    assert!(matches!(of("ts"), Attr::List(l) if matches!(l[..], [Attr::Tensor(_)])));
    assert!(matches!(of("st"), Attr::List(l) if matches!(l[..], [Attr::Tensor(_)])));
    assert_eq!(of("old").as_ints(), Some(vec![4]));
    assert_eq!(of("none"), Attr::Null);

    let mut g = super::graph("main", &["x"], &["y"]);
    g.node("Op", &["x"], &["y"])
        .attribute("i", Kind::Int, |a| a.r#type = Some(77));
    assert_eq!(
        error(&g.model(17)),
        "node \"Op_y\" (Op): attribute \"i\": is of kind 77, which is not known"
    );
}
