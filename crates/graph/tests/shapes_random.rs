//! Shape inference on nodes that make no sense: it ends, and nothing in it panics, the foreign
//! rules behind `catch_unwind` included.

use arbitrary::{Arbitrary, Result, Unstructured};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_graph::effects::OpTable;
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{Attr, DType, Dialect, Dim, Graph, Shape, Tensor, TensorData, ValueId};

/// Operators that have a rule, of the default domain unless they say otherwise.
const OPS: &str = "Abs Add AffineGrid And ArgMax Attention AveragePool BatchNormalization BitCast \
    Cast CastLike CausalConvWithState Ceil CenterCropPad Clip Col2Im Compress Concat \
    ConcatFromSequence ConstantOfShape Conv ConvInteger ConvTranspose DFT DeformConv DepthToSpace \
    DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Equal Expand EyeLike Flatten \
    Floor GRU Gather GatherElements GatherND Gemm GlobalAveragePool Greater GridSample HannWindow \
    Identity ImageDecoder LSTM LayerNormalization LinearAttention MatMul MatMulInteger Max MaxPool \
    MaxRoiPool MaxUnpool MelWeightMatrix Min Mod Mul Multinomial Neg NegativeLogLikelihoodLoss \
    NonMaxSuppression NonZero Not OneHot Optional OptionalGetElement Pad QLinearConv QLinearMatMul \
    QuantizeLinear RNN RandomNormal RandomNormalLike Range ReduceMax ReduceProd ReduceSum Relu \
    Reshape Resize RoiAlign RotaryEmbedding Round STFT SequenceAt SequenceConstruct SequenceInsert \
    Shape Size Slice SoftmaxCrossEntropyLoss SpaceToDepth Split SplitToSequence Squeeze \
    StringNormalizer StringSplit Sub TfIdfVectorizer Tile TopK Transpose Unique Unsqueeze Upsample \
    Where ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:LabelEncoder ai.onnx.ml:LinearClassifier \
    ai.onnx.ml:OneHotEncoder ai.onnx.ml:TreeEnsemble ai.onnx.preview.training:Adam \
    ai.onnx.preview:FlexAttention com.microsoft:Attention com.microsoft:BiasSplitGelu \
    com.microsoft:ConvGrad com.microsoft:EmbedLayerNormalization com.microsoft:FusedMatMul \
    com.microsoft:GatherGrad com.microsoft:GroupQueryAttention com.microsoft:MatMulNBits \
    com.microsoft:MultiHeadAttention com.microsoft:QLinearAdd com.microsoft:SkipLayerNormalization";

const INTS: &[&str] = &[
    "axes",
    "axis",
    "split",
    "pads",
    "strides",
    "dilations",
    "kernel_shape",
    "output_shape",
    "output_padding",
    "perm",
    "starts",
    "ends",
    "shape",
    "pooled_shape",
    "scan_input_axes",
    "ngram_indexes",
];
const INT: &[&str] = &[
    "axis",
    "keepdims",
    "to",
    "ceil_mode",
    "group",
    "num_outputs",
    "batch_dims",
    "allowzero",
    "transA",
    "transB",
    "blocksize",
    "hidden_size",
    "layout",
    "num_heads",
    "kv_num_heads",
    "q_num_heads",
    "inverse",
    "onesided",
    "N",
    "k",
    "sample_size",
    "noop_with_empty_axes",
    "start",
    "end",
    "new_axis",
    "dtype",
    "output_height",
    "transBatchA",
];
const TEXT: &[(&str, &[&str])] = &[
    ("auto_pad", &["SAME_UPPER", "VALID", "NOTSET", "x"]),
    (
        "equation",
        &[
            "ij,jk->ik",
            "...ij->...ji",
            "i->ii",
            "ab",
            "->",
            "...,...->...",
        ],
    ),
    ("direction", &["bidirectional", "reverse"]),
    ("reduction", &["none", "mean"]),
    ("keep_aspect_ratio_policy", &["not_larger", "not_smaller"]),
];
const DTYPES: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::Bool,
    DType::U8,
    DType::String,
    DType::Unknown,
];

/// A number that is small, or one of those that break arithmetic.
fn number(u: &mut Unstructured<'_>) -> Result<i64> {
    const ODD: &[i64] = &[
        i64::MAX,
        i64::MIN,
        i32::MAX as i64,
        i32::MIN as i64,
        1 << 31,
        1 << 30,
        65536,
        46341,
        -1,
    ];
    if u.ratio(1, 6)? {
        return Ok(*u.choose(ODD)?);
    }
    u.int_in_range(-3..=9)
}

fn numbers(u: &mut Unstructured<'_>) -> Result<Vec<i64>> {
    let n = u.int_in_range(0..=6)?;
    (0..n).map(|_| number(u)).collect()
}

fn dim(u: &mut Unstructured<'_>) -> Result<Dim> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Dim::Unknown,
        1 => Dim::parse("n"),
        2 => Dim::parse("2 * n - 70000 * m"),
        _ => Dim::Known(number(u)?.unsigned_abs()),
    })
}

fn shape(u: &mut Unstructured<'_>) -> Result<Option<Shape>> {
    if u.ratio(1, 12)? {
        return Ok(None);
    }
    let rank = u.int_in_range(0..=6)?;
    (0..rank)
        .map(|_| dim(u))
        .collect::<Result<Shape>>()
        .map(Some)
}

fn constant(u: &mut Unstructured<'_>) -> Result<Attr> {
    let items = numbers(u)?;
    let is_scalar = items.len() == 1 && bool::arbitrary(u)?;
    let is_float = u.ratio(1, 5)?;
    #[expect(clippy::cast_precision_loss, reason = "any float will do")]
    let bytes: Vec<u8> = items
        .iter()
        .flat_map(|n| {
            if is_float {
                (*n as f64).to_le_bytes()
            } else {
                n.to_le_bytes()
            }
        })
        .collect();
    Ok(Attr::Tensor(Arc::new(Tensor {
        dtype: if is_float { DType::F64 } else { DType::I64 },
        shape: if is_scalar {
            Vec::new()
        } else {
            vec![items.len() as u64]
        },
        data: TensorData::Bytes(bytes.into()),
    })))
}

fn graph(u: &mut Unstructured<'_>) -> Result<Graph> {
    let mut graph = Graph::new("g", Dialect::Onnx, "main");
    let root = graph.root;
    let ops: Vec<&str> = OPS.split_whitespace().collect();
    graph.opsets.push((Arc::from(""), u.int_in_range(1..=28)?));
    let mut values: Vec<ValueId> = Vec::new();
    for i in 0..u.int_in_range(1..=4)? {
        values.push(graph.add_input(root, format!("in{i}"), *u.choose(DTYPES)?, shape(u)?));
    }
    for i in 0..u.int_in_range(1..=12)? {
        let name = *u.choose(&ops)?;
        let (domain, op) = name.split_once(':').unwrap_or(("", name));
        let is_constant = u.ratio(1, 4)?;
        let node = graph.add_node(
            root,
            format!("n{i}"),
            if is_constant { "Const" } else { op },
        );
        if is_constant {
            graph.nodes[node].attrs.set("value", constant(u)?);
        } else {
            graph.nodes[node].domain = Arc::from(domain);
            for _ in 0..u.int_in_range(0..=5)? {
                let input = if u.ratio(1, 10)? {
                    None
                } else {
                    Some(*u.choose(&values)?)
                };
                graph.nodes[node].inputs.push(input);
            }
            for _ in 0..u.int_in_range(0..=4)? {
                let attrs = &mut graph.nodes[node].attrs;
                match u.int_in_range(0..=3)? {
                    0 => {
                        let list = numbers(u)?.into_iter().map(Attr::Int).collect();
                        attrs.set(*u.choose(INTS)?, Attr::List(list));
                    }
                    1 => {
                        let (name, texts) = u.choose(TEXT)?;
                        attrs.set(*name, Attr::Str((*u.choose(texts)?).to_owned()));
                    }
                    _ => attrs.set(*u.choose(INT)?, Attr::Int(number(u)?)),
                }
            }
        }
        for k in 0..u.int_in_range(1..=4)? {
            let declared = if u.ratio(1, 5)? { shape(u)? } else { None };
            values.push(graph.add_output(node, format!("v{i}_{k}"), DType::Unknown, declared));
        }
    }
    graph.add_results(root, "results", [values.last().copied()]);
    Ok(graph)
}

#[test]
fn nothing_panics() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let table = OpTable::builtin(Dialect::Onnx);
    arbtest::arbtest(|u| {
        let graph = graph(u)?;
        let text = format!("{:#?}", graph.nodes);
        let result = infer(graph, &table, &Bindings::default());
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{text}");
        if let Ok(shaped) = result {
            for value in shaped.graph.values.values() {
                if let Some(shape) = &value.shape {
                    assert!(!shape.to_string().contains('\0'), "{shape:?}");
                }
            }
        }
        Ok(())
    })
    .budget_ms(3000);
}
