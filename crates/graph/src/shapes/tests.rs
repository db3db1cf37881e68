//! Inference on graphs built by hand.

use crate::effects::OpTable;
use crate::shapes::{Bindings, ShapeError, ShapedGraph, infer};
use crate::{
    Attr, DType, Dialect, Dim, ElementType, Graph, NodeId, Shape, SubgraphId, Tensor, TensorData,
    ValueId,
};
use std::sync::Arc;

/// A graph under construction.
struct Build {
    graph: Graph,
}

impl Build {
    fn new() -> Self {
        let mut graph = Graph::new("g", Dialect::Onnx, "main");
        graph.opsets.push((Arc::from(""), 21));
        Build { graph }
    }

    fn root(&self) -> SubgraphId {
        self.graph.root
    }

    fn input(&mut self, at: SubgraphId, name: &str, dtype: DType, dims: &[&str]) -> ValueId {
        let shape: Shape = dims.iter().map(|d| Dim::parse(d)).collect();
        self.graph.add_input(at, name, dtype, Some(shape))
    }

    fn node(
        &mut self,
        at: SubgraphId,
        op: &str,
        inputs: &[ValueId],
        attrs: &[(&str, Attr)],
    ) -> NodeId {
        let name = format!("n{}", self.graph.nodes.len());
        let node = self.graph.add_node(at, name, op);
        let target = &mut self.graph.nodes[node];
        target.inputs.extend(inputs.iter().copied().map(Some));
        for (name, value) in attrs {
            target.attrs.set(*name, value.clone());
        }
        node
    }

    fn output(&mut self, node: NodeId) -> ValueId {
        let name = format!("v{}", self.graph.values.len());
        self.graph.add_output(node, name, DType::Unknown, None)
    }

    fn op(&mut self, op: &str, inputs: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
        let node = self.node(self.graph.root, op, inputs, attrs);
        self.output(node)
    }

    fn ints(&mut self, shape: &[u64], items: &[i64]) -> ValueId {
        let node = self.node(
            self.graph.root,
            "Const",
            &[],
            &[("value", ints(shape, items))],
        );
        self.output(node)
    }

    fn infer(&self, dims: &[&str]) -> Result<ShapedGraph, ShapeError> {
        let table = OpTable::builtin(Dialect::Onnx);
        infer(self.graph.clone(), &table, &Bindings::parse(dims).unwrap())
    }

    /// Type and shape of a value, and the warnings.
    fn found(&self, value: ValueId) -> (String, Vec<String>) {
        let shaped = self.infer(&[]).unwrap();
        let warnings = shaped.warnings.iter().map(ToString::to_string).collect();
        (describe(&shaped.graph, value), warnings)
    }

    fn check(&self, value: ValueId, expected: &str) {
        assert_eq!(self.found(value), (expected.to_owned(), Vec::new()));
    }
}

fn describe(graph: &Graph, value: ValueId) -> String {
    let value = &graph.values[value];
    match &value.shape {
        Some(shape) => format!("{}{shape}", value.dtype),
        None => value.dtype.to_string(),
    }
}

fn ints(shape: &[u64], items: &[i64]) -> Attr {
    let bytes: Vec<u8> = items.iter().flat_map(|n| n.to_le_bytes()).collect();
    Attr::Tensor(Arc::new(Tensor {
        dtype: DType::I64,
        shape: shape.to_vec(),
        data: TensorData::Bytes(bytes.into()),
    }))
}

fn list(items: &[i64]) -> Attr {
    Attr::List(items.iter().map(|&n| Attr::Int(n)).collect())
}

#[test]
fn shapes_computed_from_shapes() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["batch", "seq", "64"]);
    let shape = b.op("Shape", &[x], &[]);
    let zero = b.ints(&[1], &[0]);
    let batch = b.op("Gather", &[shape, zero], &[("axis", Attr::Int(0))]);
    let rest = b.ints(&[2], &[1, -16]);
    let rest = b.op("Neg", &[rest], &[]);
    let target = b.op("Concat", &[batch, rest], &[("axis", Attr::Int(0))]);
    let y = b.op("Reshape", &[x, target], &[]);
    b.check(y, "float32[batch, 4 * seq, 16]");
    let shaped = b.infer(&["batch=2", "seq=3"]).unwrap();
    assert_eq!(describe(&shaped.graph, y), "float32[2, 12, 16]");
    assert_eq!(shaped.contents.get(shape), Some(&[2, 3, 64][..]));
}

#[test]
fn pads_turned_round_in_a_matrix() {
    // How exporters write pads that count from the last axis: two columns, rows reversed.
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["n", "576"]);
    let pads = b.ints(&[4], &[1, 2, 3, 4]);
    let pairs = b.ints(&[2], &[-1, 2]);
    let table = b.op("Reshape", &[pads, pairs], &[]);
    let minus_one = b.ints(&[1], &[-1]);
    let far = b.ints(&[1], &[-i64::MAX]);
    let zero = b.ints(&[1], &[0]);
    let table = b.op("Slice", &[table, minus_one, far, zero, minus_one], &[]);
    let table = b.op("Transpose", &[table], &[("perm", list(&[1, 0]))]);
    let pads = b.op("Reshape", &[table, minus_one], &[]);
    let y = b.op("Pad", &[x, pads], &[]);
    b.check(y, "float32[n + 7, 579]");
    let shaped = b.infer(&[]).unwrap();
    assert_eq!(shaped.contents.get(pads), Some(&[3, 1, 4, 2][..]));
}

#[test]
fn sizes_that_go_through_floats() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["1", "3", "25", "40"]);
    let shape = b.op("Shape", &[x], &[("start", Attr::Int(2))]);
    let shape = b.op("Cast", &[shape], &[("to", Attr::Int(1))]);
    let scale = b.op("Constant", &[], &[("value_float", Attr::Float(1.5))]);
    let scaled = b.op("Mul", &[shape, scale], &[]);
    let whole = b.op("Floor", &[scaled], &[]);
    let ratio = b.op("Div", &[whole, shape], &[]);
    let ratio = b.op("Neg", &[ratio], &[]);
    let ratio = b.op("Neg", &[ratio], &[]);
    let ones = Attr::List(vec![Attr::Float(1.0), Attr::Float(1.0)]);
    let ones = b.op("Constant", &[], &[("value_floats", ones)]);
    let scales = b.op("Concat", &[ones, ratio], &[("axis", Attr::Int(0))]);
    let node = b.node(b.root(), "Resize", &[x], &[]);
    b.graph.nodes[node].inputs.extend([None, Some(scales)]);
    let y = b.output(node);
    b.check(y, "float32[1, 3, 37, 60]");
}

#[test]
fn what_comes_out_of_a_sequence() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["2", "n"]);
    let y = b.input(b.root(), "y", DType::F32, &["3", "n"]);
    let zero = b.ints(&[], &[0]);
    let empty = b.op("SequenceEmpty", &[], &[]);
    let one = b.op("SequenceInsert", &[empty, x], &[]);
    let first = b.op("SequenceAt", &[one, zero], &[]);
    b.check(first, "float32[2, n]");
    let both = b.op("SequenceInsert", &[one, y], &[]);
    let first = b.op("SequenceAt", &[both, zero], &[]);
    b.check(first, "float32[?, n]");
    let joined = b.op(
        "ConcatFromSequence",
        &[one],
        &[("new_axis", Attr::Int(1)), ("axis", Attr::Int(0))],
    );
    b.check(joined, "float32[?, 2, n]");
    let optional = b.op("Optional", &[x], &[]);
    let inside = b.op("OptionalGetElement", &[optional], &[]);
    b.check(inside, "float32[2, n]");
}

#[test]
fn windows_over_any_number_of_dimensions() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["n", "3", "9", "10", "h"]);
    let w = b.input(b.root(), "w", DType::F32, &["8", "3", "3", "3", "3"]);
    let strides = ("strides", list(&[2, 1, 2]));
    let y = b.op("Conv", &[x, w], &[("pads", list(&[1; 6])), strides.clone()]);
    b.check(y, "float32[n, 8, 5, 10, (h - 1) // 2 + 1]");
    let kernel = ("kernel_shape", list(&[2, 2, 2]));
    let ceil = ("ceil_mode", Attr::Int(1));
    let y = b.op("MaxPool", &[x], &[kernel, strides, ceil]);
    let (found, _) = b.found(y);
    assert!(found.starts_with("float32[n, 3, 5, 9, min("), "{found}");
}

#[test]
fn axes_as_attribute_or_as_input() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["1", "n", "4"]);
    let y = b.op("Squeeze", &[x], &[("axes", list(&[0]))]);
    b.check(y, "float32[n, 4]");
    let axes = b.ints(&[1], &[-1]);
    let y = b.op("ReduceSum", &[x, axes], &[("keepdims", Attr::Int(0))]);
    b.check(y, "float32[1, n]");
    let y = b.op("Unsqueeze", &[x, axes], &[]);
    b.check(y, "float32[1, n, 4, 1]");
    let starts = ("starts", list(&[1, 0]));
    let y = b.op(
        "Slice",
        &[x],
        &[
            starts,
            ("ends", list(&[i64::MAX, -1])),
            ("axes", list(&[1, 2])),
        ],
    );
    b.check(y, "float32[1, max(0, n - 1), 3]");
}

#[test]
fn large_numbers_are_exact() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::I8, &["65536", "65536", "3"]);
    let y = b.op("Flatten", &[x], &[("axis", Attr::Int(2))]);
    b.check(y, "int8[4294967296, 3]");
    let all = b.ints(&[1], &[-1]);
    let y = b.op("Reshape", &[x, all], &[]);
    b.check(y, "int8[12884901888]");
    let y = b.op("Concat", &[y, y], &[("axis", Attr::Int(0))]);
    b.check(y, "int8[25769803776]");
    let n = b.input(b.root(), "m", DType::I8, &["n", "65536", "65536"]);
    let y = b.op("Reshape", &[n, all], &[]);
    let shaped = b.infer(&["n=5"]).unwrap();
    assert_eq!(describe(&shaped.graph, y), "int8[21474836480]");
}

#[test]
fn a_tensor_beyond_64_bits_is_an_error() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["9000000000", "9000000000"]);
    b.op("Relu", &[x], &[]);
    assert_eq!(
        b.infer(&[]).unwrap_err().to_string(),
        "value \"x\" of shape [9000000000, 9000000000] and type float32 takes more than 2^64 - 1 bytes"
    );
}

#[test]
fn impossible_nodes_fall_back_with_a_warning() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["2", "3"]);
    let y = b.input(b.root(), "y", DType::F32, &["2", "4"]);
    let node = b.node(b.root(), "Add", &[x, y], &[]);
    let sum = b
        .graph
        .add_output(node, "sum", DType::F32, Some(Shape::of(&[2, 9])));
    let (found, warnings) = b.found(sum);
    assert_eq!(found, "float32[2, 9]");
    assert_eq!(
        warnings,
        [
            "node \"n2\" (Add) cannot run on inputs float32[2, 3], float32[2, 4]: \
          dimensions 3 and 4 cannot broadcast"
        ]
    );
}

#[test]
fn declared_shapes_help_and_are_compared() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["n", "3"]);
    let count = b.node(b.root(), "NonZero", &[x], &[]);
    let count = b
        .graph
        .add_output(count, "count", DType::I64, Some(Shape::of(&[2, 7])));
    b.check(count, "int64[2, 7]");
    let wrong = b.node(b.root(), "Relu", &[x], &[]);
    let wrong = b
        .graph
        .add_output(wrong, "wrong", DType::F32, Some(Shape::of(&[5, 4])));
    let (found, warnings) = b.found(wrong);
    assert_eq!(found, "float32[n, 3]");
    assert_eq!(
        warnings,
        [
            "value \"wrong\": the file declares float32[5, 4], but float32[n, 3] follows from the \
          inputs; float32[n, 3] is used"
        ]
    );
}

#[test]
fn operators_without_a_rule_are_named_once() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["n", "3"]);
    let y = b.op("Mystery", &[x], &[]);
    let z = b.op("Mystery", &[y], &[]);
    let (found, warnings) = b.found(z);
    assert_eq!(found, "undefined");
    assert_eq!(
        warnings,
        ["no shape rule for Mystery: shapes behind them are unknown unless the file gives them"]
    );
}

#[test]
fn branches_agree_or_not() {
    let mut b = Build::new();
    let condition = b.input(b.root(), "c", DType::Bool, &[]);
    let x = b.input(b.root(), "x", DType::F32, &["n", "3"]);
    let owner = b.node(b.root(), "If", &[condition], &[]);
    let y = b.output(owner);
    let then = b.graph.add_subgraph(owner, "then", "then");
    let node = b.node(then, "Relu", &[x], &[]);
    let result = b.output(node);
    b.graph.add_results(then, "r", [Some(result)]);
    let other = b.graph.add_subgraph(owner, "else", "else");
    let node = b.node(other, "Concat", &[x, x], &[("axis", Attr::Int(1))]);
    let result = b.output(node);
    b.graph.add_results(other, "r", [Some(result)]);
    b.check(y, "float32[n, ?]");
}

#[test]
fn a_loop_is_a_fixpoint() {
    let mut b = Build::new();
    let trips = b.ints(&[], &[10]);
    let go = b.node(b.root(), "Constant", &[], &[("value_int", Attr::Int(1))]);
    let go = b.output(go);
    let grows = b.input(b.root(), "grows", DType::F32, &["n", "3"]);
    let stays = b.input(b.root(), "stays", DType::F32, &["n", "5"]);
    let owner = b.node(b.root(), "Loop", &[trips, go, grows, stays], &[]);
    let outputs: Vec<ValueId> = (0..3).map(|_| b.output(owner)).collect();
    let body = b.graph.add_subgraph(owner, "body", "body");
    b.input(body, "i", DType::I64, &[]);
    let cond = b.input(body, "cond", DType::Bool, &[]);
    let state = b.input(body, "state", DType::F32, &["?", "3"]);
    let other = b.input(body, "other", DType::F32, &["?", "?"]);
    let cond_out = b.node(body, "Identity", &[cond], &[]);
    let cond_out = b.output(cond_out);
    let longer = b.node(body, "Concat", &[state, state], &[("axis", Attr::Int(0))]);
    let longer = b.output(longer);
    let kept = b.node(body, "Relu", &[other], &[]);
    let kept = b.output(kept);
    b.graph.add_results(
        body,
        "r",
        [Some(cond_out), Some(longer), Some(kept), Some(kept)],
    );
    b.check(outputs[0], "float32[?, 3]");
    b.check(outputs[1], "float32[n, 5]");
    b.check(outputs[2], "float32[10, n, 5]");
    b.check(longer, "float32[?, 3]");
}

#[test]
fn a_known_condition_takes_one_branch() {
    for (size, expected) in [
        ("1", "float32[4]"),
        ("3", "float32[3, 4]"),
        ("n", "float32"),
    ] {
        let mut b = Build::new();
        let root = b.root();
        let x = b.input(root, "x", DType::F32, &[size, "4"]);
        let shape = b.op("Shape", &[x], &[("end", Attr::Int(1))]);
        let one = b.ints(&[1], &[1]);
        let condition = b.op("Equal", &[shape, one], &[]);
        let owner = b.node(root, "If", &[condition], &[]);
        let result = b.output(owner);
        for (role, op) in [("then", "Squeeze"), ("else", "Identity")] {
            let body = b.graph.add_subgraph(owner, role, role);
            let axes = b.node(body, "Constant", &[], &[("value", ints(&[1], &[0]))]);
            let axes = b.output(axes);
            let inputs = if role == "then" {
                vec![x, axes]
            } else {
                vec![x]
            };
            let inner = b.node(body, op, &inputs, &[]);
            let inner = b.output(inner);
            b.graph.add_results(body, "r", [Some(inner)]);
        }
        b.check(result, expected);
    }
}

#[test]
fn elements_of_sequences_have_the_declared_type() {
    let mut b = Build::new();
    let root = b.root();
    let images = b.graph.add_input(root, "images", DType::Sequence, None);
    b.graph.values[images].set_element(&ElementType {
        dtype: DType::U8,
        shape: Some(
            [Dim::Unknown, Dim::Unknown, Dim::Known(3)]
                .into_iter()
                .collect(),
        ),
        element: None,
    });
    let (zero, one) = (b.ints(&[], &[0]), b.ints(&[], &[1]));
    let first = b.op("SequenceAt", &[images, zero], &[]);
    let second = b.op("SequenceAt", &[images, one], &[]);
    b.check(first, "uint8[?, ?, 3]");
    // Two images need not be of one size.
    let sizes = [first, second].map(|v| b.op("Shape", &[v], &[]));
    let same = b.op("Equal", &sizes, &[]);
    b.check(sizes[0], "int64[3]");
    let shaped = b.infer(&[]).unwrap();
    assert_eq!(shaped.contents.get(same), None);
}

#[test]
fn a_scan_cuts_and_stacks() {
    let mut b = Build::new();
    let start = b.input(b.root(), "start", DType::F32, &["4"]);
    let xs = b.input(b.root(), "xs", DType::F32, &["4", "seq"]);
    let attrs = [
        ("num_scan_inputs", Attr::Int(1)),
        ("scan_input_axes", list(&[1])),
        ("scan_output_axes", list(&[-1])),
    ];
    let owner = b.node(b.root(), "Scan", &[start, xs], &attrs);
    let outputs: Vec<ValueId> = (0..2).map(|_| b.output(owner)).collect();
    let body = b.graph.add_subgraph(owner, "body", "body");
    let state = b.graph.add_input(body, "state", DType::Unknown, None);
    let slice = b.graph.add_input(body, "slice", DType::Unknown, None);
    let sum = b.node(body, "Add", &[state, slice], &[]);
    let sum = b.output(sum);
    b.graph.add_results(body, "r", [Some(sum), Some(sum)]);
    b.check(outputs[0], "float32[4]");
    b.check(outputs[1], "float32[4, seq]");
}

#[test]
fn a_scan_of_version_8_cuts_a_batch_first() {
    let mut b = Build::new();
    b.graph.opsets = vec![("".into(), 8)];
    let root = b.root();
    let start = b.input(root, "start", DType::F32, &["n", "4"]);
    let xs = b.input(root, "xs", DType::F32, &["n", "seq", "4"]);
    let ys = b.input(root, "ys", DType::F32, &["2", "7", "2", "4"]);
    let attrs = [
        ("num_scan_inputs", Attr::Int(2)),
        // Attributes of later versions, which this one does not know.
        ("scan_input_axes", list(&[1, 1])),
        ("scan_output_axes", list(&[-1])),
    ];
    let owner = b.node(root, "Scan", &[start, xs, ys], &attrs);
    b.graph.nodes[owner].inputs.insert(0, None);
    let outputs: Vec<ValueId> = (0..2).map(|_| b.output(owner)).collect();
    let body = b.graph.add_subgraph(owner, "body", "body");
    let state = b.graph.add_input(body, "state", DType::Unknown, None);
    let x = b.graph.add_input(body, "x", DType::Unknown, None);
    let y = b.graph.add_input(body, "y", DType::Unknown, None);
    let sum = b.node(body, "Add", &[state, x], &[]);
    let sum = b.output(sum);
    let wide = b.node(body, "Add", &[x, y], &[]);
    let wide = b.output(wide);
    b.graph.add_results(body, "r", [Some(sum), Some(wide)]);
    b.check(sum, "float32[4]");
    b.check(wide, "float32[2, 4]");
    b.check(outputs[0], "float32[2, 4]");
    b.check(outputs[1], "float32[2, 7, 2, 4]");
}

#[test]
fn loops_in_loops_end_soon() {
    // Each loop wants several passes over the one inside it.
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["n"]);
    let mut at = b.root();
    let mut state = x;
    let mut owners = Vec::new();
    for _ in 0..40 {
        let trips = b.node(at, "Constant", &[], &[("value_int", Attr::Int(3))]);
        let trips = b.output(trips);
        let owner = b.node(at, "Loop", &[trips, trips, state], &[]);
        let result = b.output(owner);
        owners.push((at, result));
        at = b
            .graph
            .add_subgraph(owner, "body", format!("body{}", owners.len()));
        b.input(at, "i", DType::I64, &[]);
        b.input(at, "cond", DType::Bool, &[]);
        state = b.graph.add_input(at, "state", DType::Unknown, None);
    }
    let mut result = state;
    while let Some((outer, owner_result)) = owners.pop() {
        let twice = b.node(at, "Concat", &[result, result], &[("axis", Attr::Int(0))]);
        let twice = b.output(twice);
        let cond = b.node(at, "Constant", &[], &[("value_int", Attr::Int(1))]);
        let cond = b.output(cond);
        b.graph.add_results(at, "r", [Some(cond), Some(twice)]);
        (at, result) = (outer, owner_result);
    }
    let (found, _) = b.found(result);
    assert!(["float32", "float32[?]"].contains(&&*found), "{found}");
}

#[test]
fn contents_do_not_explode() {
    let mut b = Build::new();
    let x = b.input(b.root(), "x", DType::F32, &["a", "b", "c"]);
    let mut shape = b.op("Shape", &[x], &[]);
    let mut product = b.op("Size", &[x], &[]);
    for _ in 0..50 {
        shape = b.op("Concat", &[shape, shape], &[("axis", Attr::Int(0))]);
        product = b.op("Mul", &[product, product], &[]);
    }
    let one = b.ints(&[1], &[1]);
    let product = b.op("Reshape", &[product, one], &[]);
    let y = b.op("ConstantOfShape", &[product], &[]);
    b.check(y, "float32[?]");
    b.check(shape, &format!("int64[{}]", 3u64 << 50));
}

#[test]
fn long_chains_keep_their_names() {
    let mut b = Build::new();
    let mut x = b.input(b.root(), "x", DType::F32, &["n", "16", "h", "h"]);
    for _ in 0..20_000 {
        let y = b.op("Relu", &[x], &[]);
        x = b.op("Add", &[x, y], &[]);
    }
    b.check(x, "float32[n, 16, h, h]");
}
