//! What the built-in rows say of single nodes.

use super::*;
use crate::OutputHints;

/// Cases are written `OPERATOR ATTRIBUTE… | INPUT… -> OUTPUT… | EFFECTS`, see [`Site`].
fn check(cases: &[&str]) {
    for case in cases {
        let [op, anchors, expected] = case.split('|').collect::<Vec<_>>()[..] else {
            panic!("{case:?} has not three parts");
        };
        let (op, attrs) = op.trim().split_once(' ').unwrap_or((op.trim(), ""));
        let (inputs, outputs) = anchors.split_once("->").unwrap();
        let inputs: Vec<&str> = inputs.split_whitespace().collect();
        let outputs: Vec<&str> = outputs.split_whitespace().collect();
        let found = Site::onnx(op, &inputs, &outputs).with(attrs).text();
        assert_eq!(found, expected.trim(), "{case}");
    }
}

#[test]
fn embedded_tables_parse() {
    for dialect in [Dialect::Onnx, Dialect::Ge, Dialect::Tflite] {
        assert!(OpTable::builtin(dialect).has_row("", "NetOutput"));
    }
}

#[test]
fn every_operator_of_the_onnx_schemas_has_a_row() {
    let table = OpTable::builtin(Dialect::Onnx);
    let names = include_str!("../../ops/onnx-schemas.txt").lines();
    let missing: Vec<&str> = names
        .filter(|line| !line.starts_with('#'))
        .filter(|line| {
            let (domain, op) = line.split_once(' ').unwrap();
            !table.has_row(domain, op)
        })
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn views() {
    check(&[
        "Reshape | f[2,3] i[1] -> f[6] | view 0=0",
        "Reshape | f[?,3] i[1] -> f[?] |",
        "Squeeze | f[1,3] -> f[3] | view 0=0",
        "BitCast | f[3] -> int32[3] | view 0=0",
        "Identity | string[3] -> string[3] |",
        "Cast | f[3] -> f[3] | view 0=0",
        "Expand | f[3] i[2] -> f[1,3] | view 0=0",
        "Expand | f[3] i[2] -> f[2,3] |",
        "Split | f[4] -> f[4] | view 0=0",
        "Split | f[4] -> f[2] f[2] |",
        "Concat | f[0,4] f[2,4] -> f[2,4] | view 0=1",
        "Concat | f[1,4] f[1,4] -> f[2,4] |",
        "Slice | f[4] i[1] i[1] -> f[4] | view 0=0",
        "Slice | f[4] i[1] i[1] - i[1]=-1 -> f[4] |",
        "Slice | f[4] i[1] i[1] - i[1] -> f[4] |",
        "Slice starts=0 ends=4 | f[4] -> f[4] | view 0=0",
        "Pad | f[4] i[2]=0,0 -> f[4] | view 0=0",
        "Pad | f[4] i[2]=-1,1 -> f[4] |",
        "Pad pads=-1,1 opset=2 | f[4] -> f[4] |",
        "Pad pads=0,0 opset=2 | f[4] -> f[4] | view 0=0",
        "Transpose perm=1,0,2 | f[1,4,2] -> f[4,1,2] | view 0=0",
        "Transpose perm=0,2,1 | f[1,4,2] -> f[1,2,4] |",
        "Transpose | f[4,1] -> f[1,4] | view 0=0",
        "Transpose | f[4,2] -> f[2,4] |",
        // Not permutations: a wrong model must not be taken for a view.
        "Transpose perm=0,0 | f[1,4] -> f[1,4] |",
        "Transpose perm=5,0 | f[1,4] -> f[4,1] |",
        "Transpose perm=-1,0 | f[1,4] -> f[4,1] |",
    ]);
}

#[test]
fn dropout_is_a_view_when_it_is_known_to_drop_nothing() {
    let x = "float32[4]";
    check(&[
        "Dropout opset=13 | f[4] -> f[4] b[4] | view 0=0",
        "Dropout opset=13 | f[4] f[] b[]=0 -> f[4] | view 0=0",
        "Dropout opset=13 | f[4] f[] b[]=1 -> f[4] | over 0=0 with 0=0",
        "Dropout opset=13 | f[4] f[] b[] -> f[4] | over 0=0 with 0=0",
        "Dropout opset=10 | f[4] -> f[4] | view 0=0",
        "Dropout opset=6 is_test=1 | f[4] -> f[4] | view 0=0",
        "Dropout opset=6 | f[4] -> f[4] | over 0=0 with 0=0",
    ]);
    let pure = |inputs: &[&str]| Site::onnx("Dropout", inputs, &[x]).effects().pure;
    assert!(pure(&[x]));
    assert!(!pure(&[x, "float32[]", "bool[]=1"]));
    assert!(!pure(&[x, "float32[]", "bool[]"]));
}

#[test]
fn element_by_element() {
    check(&[
        "Relu | f[4,4] -> f[4,4] | over 0=0 with 0=0",
        "Relu | f[?] -> f[?] |",
        "Add | f[4,4] f[4,4] -> f[4,4] | over 0=0 0=1 with 0=0 0=1",
        "Add | f[4,4] f[4] -> f[4,4] | over 0=0 with 0=0",
        "Add | f[4] f[4,1] -> f[4,4] |",
        "Add | f[1,64] f[64] -> f[1,64] | over 0=0 0=1 with 0=0 0=1",
        "Add | f[64,1] f[64] -> f[64,64] |",
        "Sum | f[4,4] - f[4,4] -> f[4,4] | over 0=0 0=2 with 0=0 0=2",
        "Less | f[4,4] f[4,4] -> b[4,4] |",
        "Equal | uint8[4] b[4] -> b[4] | over 0=0 0=1 with 0=0 0=1",
        "Where | b[4,4] f[4,4] f[4] -> f[4,4] | over 0=1 with 0=1",
        "Where | b[4] uint8[4] uint8[4] -> uint8[4] | over 0=1 0=2 0=0 with 0=0 0=1 0=2",
        "Cast | f[4] -> int32[4] | over 0=0 with 0=0",
        "Cast | f[4] -> float16[4] |",
        // The same bytes, but twice the elements at half the width.
        "Add | float64[2] float64[] -> f[4] |",
        "DequantizeLinear | int32[4] f[] -> f[4] | over 0=0 with 0=0",
        "CastLike | int32[4] f[] -> f[4] | over 0=0 with 0=0 shape 1",
    ]);
}

#[test]
fn other_kernels_in_place() {
    check(&[
        "Softmax | f[2,4] -> f[2,4] | over 0=0",
        "LayerNormalization | f[2,4] f[4] f[4] -> f[2,4] f[2,1] | over 0=0",
        "BatchNormalization | f[2,4] f[4] f[4] f[4] f[4] -> f[2,4] | over 0=0",
        "BatchNormalization training_mode=1 | f[2,4] f[4] f[4] f[4] f[4] -> f[2,4] | over 0=0",
        "BatchNormalization opset=9 | f[2,4] f[4] f[4] f[4] f[4] -> f[2,4] f[4] f[4] | over 0=0",
        "CumSum | f[2,4] i[] -> f[2,4] | over 0=0",
        "CumSum exclusive=1 | f[2,4] i[] -> f[2,4] |",
        "ScatterND | f[2,4] i[1,1] f[1,4] -> f[2,4] | over 0=0",
        "Gemm | f[2,4] f[4,4] f[2,4] -> f[2,4] | over 0=2",
        "Gemm | f[2,4] f[4,4] f[4] -> f[2,4] |",
        "MatMul | f[2,4] f[4,4] -> f[2,4] |",
        "SoftmaxCrossEntropyLoss | f[2,4] i[2] -> f[] f[2,4] | over 1=0",
        "com.microsoft:ReluGrad | f[2,4] f[2,4] -> f[2,4] | over 0=0 0=1 with 0=0 0=1",
        "com.microsoft:SkipLayerNormalization | f[2,4] f[2,4] f[4] -> f[2,4] - - f[2,4] \
         | over 0=0 0=1 3=0 3=1 with 0=0 0=1 3=0 3=1",
        "com.microsoft:InPlaceAccumulatorV2 | f[2,4] f[2,4] b[] -> b[1] |",
        "com.microsoft:InPlaceAccumulatorV2 | f[2,4] f[2,4] b[] -> b[1] f[2,4] | over 1=0 with 1=0 1=1",
    ]);
}

#[test]
fn optimizers_update_each_tensor_on_its_own() {
    check(&[
        "ai.onnx.preview.training:Momentum | f[] i[] f[4] f[9] f[4] f[9] f[4] f[9] \
         -> f[4] f[9] f[4] f[9] | over 0=2 1=3 2=6 3=7 \
         with 0=2 0=4 0=6 1=3 1=5 1=7 2=2 2=4 2=6 3=3 3=5 3=7",
        // An input too few: which tensor belongs to which is not known.
        "ai.onnx.preview.training:Momentum | f[] i[] f[4] f[9] f[4] f[9] f[4] -> f[4] f[9] f[4] f[9] |",
        "ai.onnx.preview.training:Momentum | f[] i[] -> |",
        "ai.onnx.preview.training:Momentum | f[] -> f[4] |",
    ]);
}

#[test]
fn an_input_in_the_same_memory_must_be_aligned() {
    let over = Alias {
        output: 0,
        input: 0,
    };
    let x = "float32[4,4]";
    let add = Site::onnx("Add", &[x, x], &[x]).effects();
    assert!(add.tolerates(over, [0, 1]));
    let add = Site::onnx("Add", &[x, "float32[4]"], &[x]).effects();
    assert!(!add.tolerates(over, [1]));
    let scatter = Site::onnx("ScatterElements", &[x, "int64[4,4]", x], &[x]).effects();
    assert!(scatter.tolerates(over, [0]));
    assert!(!scatter.tolerates(over, [0, 2]));
    let cast = Site::onnx("CastLike", &["int32[4]", "float32[4]"], &["float32[4]"]).effects();
    assert!(cast.tolerates(over, [1]));
}

#[test]
fn classes_and_purity() {
    let class = |op: &str| {
        let site = Site::onnx(op, &[], &["float32[1]"]);
        let effects = site.effects();
        assert_eq!(effects.class, site.table.class(&site.graph, site.node));
        (effects.class, effects.pure)
    };
    assert_eq!(class("If"), (OpClass::Branch, false));
    assert_eq!(class("Loop"), (OpClass::Loop, false));
    assert_eq!(class("Scan"), (OpClass::Scan, false));
    assert_eq!(class("SequenceMap"), (OpClass::Opaque, false));
    assert_eq!(class("Constant"), (OpClass::Constant, true));
    assert_eq!(class("Const"), (OpClass::Constant, true));
    assert_eq!(class("Data"), (OpClass::Input, false));
    assert_eq!(class("NetOutput"), (OpClass::Output, false));
    assert_eq!(class("RandomUniform"), (OpClass::Compute, false));
    assert_eq!(class("Range"), (OpClass::Compute, true));
    assert_eq!(class("ai.onnx:Range"), (OpClass::Compute, true));
    assert_eq!(class("example:Range"), (OpClass::Compute, false));
}

#[test]
fn shape_only_inputs() {
    check(&[
        "Shape | f[4] -> i[1] | shape 0",
        "RandomNormalLike | f[4] -> f[4] | shape 0",
        "ConstantOfShape | i[1] -> f[4] |",
    ]);
}

#[test]
fn unknown_operators_are_safe() {
    let x = "float32[4]";
    let effects = Site::onnx("example:Secret", &[x], &[x]).effects();
    assert!(!effects.known && !effects.pure);
    assert_eq!(describe(&effects), "");
}

#[test]
fn bodies_that_a_row_does_not_know_of_make_a_node_opaque() {
    for op in ["Relu", "example:Secret"] {
        let mut site = Site::onnx(op, &["float32[4]"], &["float32[4]"]);
        site.graph.add_subgraph(site.node, "body", "inner");
        let effects = site.effects();
        assert_eq!((effects.class, effects.pure), (OpClass::Opaque, false));
        assert_eq!(describe(&effects), "");
    }
}

#[test]
fn hints_of_the_file() {
    let x = "float32[4]";
    let with = |op: &str, hints: OutputHints| {
        let mut site = Site::new(Dialect::Ge, op, &[x, x], &[x]);
        let output = site.graph.nodes[site.node].output(0).unwrap();
        site.graph.values[output].hints = Some(Box::new(hints));
        site
    };
    let reference = |ref_input| OutputHints {
        ref_input: Some(ref_input),
        ..OutputHints::default()
    };
    assert_eq!(with("InplaceAdd", reference(0)).text(), "ref 0=0");
    assert_eq!(with("Reshape", reference(0)).text(), "view 0=0");
    assert_eq!(with("InplaceAdd", reference(7)).text(), "");
    let reuse = OutputHints {
        reuse_input: Some(1),
        ..OutputHints::default()
    };
    assert_eq!(with("Foo", reuse.clone()).text(), "view 0=1");
    // An alias that does not fit into its input is none.
    let too_large = OutputHints {
        size: Some(1 << 20),
        ..reuse
    };
    assert_eq!(with("Foo", too_large).text(), "");
    let leave = |may_inplace| OutputHints {
        may_inplace,
        ..OutputHints::default()
    };
    assert_eq!(with("Foo", leave(vec![1, 0, 1])).text(), "over 0=1 0=0");
    assert_eq!(with("Add", leave(vec![0])).text(), "over 0=0 with 0=0 0=1");
    assert_eq!(with("Add", leave(vec![9])).text(), "");
}

#[test]
fn workspaces_of_the_file() {
    let mut site = Site::new(Dialect::Ge, "Foo", &["float32[4]"], &["float32[4]"]);
    site.graph.nodes[site.node].workspace = [64, 0, -1, 128, i64::MIN].into();
    let sizes: Vec<u64> = site.effects().scratch.iter().map(|s| s.size).collect();
    assert_eq!(sizes, [64, 0, 0, 128, 0]);
}

#[test]
fn classes_of_graph_engine() {
    let class = |op: &str| Site::new(Dialect::Ge, op, &[], &[]).effects().class;
    assert_eq!(class("Variable"), OpClass::Variable);
    assert_eq!(class("RefData"), OpClass::Variable);
    assert_eq!(class("_While"), OpClass::While);
    assert_eq!(class("StatelessCase"), OpClass::Branch);
    assert_eq!(class("PartitionedCall"), OpClass::Call);
    assert_eq!(class("Foo"), OpClass::Compute);
}

#[test]
fn many_inputs_take_time_in_proportion() {
    let x = "float32[4]";
    let mut site = Site::onnx("Sum", &[x], &[x]);
    let input = site.graph.nodes[site.node].inputs[0];
    site.graph.nodes[site.node].inputs = smallvec::smallvec![input; 100_000];
    assert_eq!(site.effects().in_place.len(), 100_000);
}
