//! Adds to a graph what no tool interprets but every format must carry.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use std::sync::Arc;

use crate::{
    Attr, Attrs, DType, Dim, Graph, NodeId, OutputHints, Shape, Tensor, TensorData, ValueId,
};

/// Gives nodes and values odd names, and everything unknown attributes, further keys and unusual
/// shapes. What the graph means to a planner changes only in shapes.
///
/// # Errors
/// None but those of `u`.
pub fn decorate(u: &mut Unstructured<'_>, graph: &mut Graph) -> Result<()> {
    graph.name = odd_text(u)?;
    graph.options = attrs(u, "")?;
    if u.arbitrary()? {
        graph
            .opsets
            .push((Arc::from("ai.onnx.ml"), i64::from(u.arbitrary::<u8>()?)));
    }
    let subgraphs: Vec<_> = graph.subgraphs.keys().collect();
    for id in subgraphs {
        graph.subgraphs[id].attrs = attrs(u, "x-")?;
    }
    let nodes: Vec<NodeId> = graph.nodes.keys().collect();
    for (i, id) in nodes.into_iter().enumerate() {
        if u.ratio(2, 3)? {
            continue;
        }
        let node = &mut graph.nodes[id];
        // The number keeps names different.
        node.name = format!("{}#n{i}", odd_text(u)?);
        node.extra = attrs(u, "x-")?;
        for (name, attr) in attrs(u, "x-")?.iter() {
            node.attrs.set(name, attr.clone());
        }
        node.input_attrs.resize(node.inputs.len(), Attrs::new());
        if let Some(last) = node.input_attrs.last_mut() {
            last.set("x-shape", attr(u, 2)?);
        }
        node.workspace.push(u.arbitrary::<i32>()?.max(-1).into());
    }
    let values: Vec<ValueId> = graph.values.keys().collect();
    for (i, id) in values.into_iter().enumerate() {
        if u.ratio(2, 3)? {
            continue;
        }
        let name = format!("{}#v{i}", odd_text(u)?);
        let dims = [Dim::Unknown, Dim::Known(3), Dim::parse("batch + 1")];
        let inputs = graph.nodes[graph.values[id].producer].inputs.len();
        let value = &mut graph.values[id];
        value.name = name;
        value.dtype = *u.choose(DType::ALL)?;
        value.shape = match u.int_in_range(0..=2)? {
            0 => None,
            n => Some(
                (0..n)
                    .map(|_| Ok(u.choose(&dims)?.clone()))
                    .collect::<Result<Shape>>()?,
            ),
        };
        let hints = OutputHints {
            ref_input: input(u, inputs)?,
            reuse_input: input(u, inputs)?,
            may_inplace: u
                .arbitrary::<Vec<u8>>()?
                .into_iter()
                .map(u32::from)
                .filter(|&input| is_there(input, inputs))
                .collect(),
            size: u.arbitrary::<Option<u32>>()?.map(u64::from),
            shape_range: vec![[0, -1]; u.int_in_range(0..=1)?],
            attrs: attrs(u, "")?,
            extra: attrs(u, "x-")?,
        };
        value.hints = (hints != OutputHints::default()).then(|| Box::new(hints));
    }
    Ok(())
}

/// One of a node's inputs, or none.
fn input(u: &mut Unstructured<'_>, inputs: usize) -> Result<Option<u32>> {
    let input = u.arbitrary::<Option<u8>>()?.map(u32::from);
    Ok(input.filter(|&input| is_there(input, inputs)))
}

fn is_there(input: u32, inputs: usize) -> bool {
    usize::try_from(input).is_ok_and(|input| input < inputs)
}

/// Up to three attributes; their names start with `stem`.
fn attrs(u: &mut Unstructured<'_>, stem: &str) -> Result<Attrs> {
    let mut attrs = Attrs::new();
    for _ in 0..u.int_in_range(0..=3)? {
        attrs.set(format!("{stem}{}", odd_text(u)?), attr(u, 3)?);
    }
    Ok(attrs)
}

/// Text with whatever a format might stumble over.
fn odd_text(u: &mut Unstructured<'_>) -> Result<String> {
    let pieces = [
        "a", "tensor", "map", ":0", "/", " ", "\"", "\\", "\n", "é", "%", "@", "null", "-1", "{",
        "]", "\u{0}", "𝄞", ".", "#",
    ];
    (0..u.int_in_range(0..=3)?)
        .map(|_| Ok(*u.choose(&pieces)?))
        .collect()
}

/// A random attribute of any kind, nested at most `depth` deep.
pub(super) fn attr(u: &mut Unstructured<'_>, depth: u32) -> Result<Attr> {
    let deepest = if depth == 0 { 6 } else { 9 };
    Ok(match u.int_in_range(0..=deepest)? {
        0 => Attr::Null,
        1 => Attr::Bool(u.arbitrary()?),
        2 => Attr::Int(u.arbitrary()?),
        3 => {
            // What is no number is not equal to itself, which would spoil comparisons.
            let float: f64 = u.arbitrary()?;
            Attr::Float(if float.is_nan() { f64::INFINITY } else { float })
        }
        4 => Attr::Str(odd_text(u)?),
        5 => Attr::Bytes(Bytes::from(u.arbitrary::<Vec<u8>>()?)),
        6 => Attr::Tensor(Arc::new(tensor(u)?)),
        7 => {
            let list = (0..u.int_in_range(0..=3)?).map(|_| attr(u, depth - 1));
            Attr::List(list.collect::<Result<_>>()?)
        }
        _ => {
            let mut map = Attrs::new();
            for _ in 0..u.int_in_range(0..=2)? {
                map.set(odd_text(u)?, attr(u, depth - 1)?);
            }
            Attr::Map(map)
        }
    })
}

fn tensor(u: &mut Unstructured<'_>) -> Result<Tensor> {
    let dtype = *u.choose(DType::ALL)?;
    let shape: Vec<u64> = (0..u.int_in_range(0..=2)?)
        .map(|_| u.int_in_range(0..=4))
        .collect::<Result<_>>()?;
    let elements: u64 = shape.iter().product();
    let data = match (u.int_in_range(0..=3)?, dtype.bytes(elements)) {
        (0, _) => TensorData::Absent,
        (1, _) => TensorData::External {
            location: odd_text(u)?,
            offset: u.arbitrary()?,
            length: u.arbitrary()?,
        },
        (_, Some(bytes)) => {
            let bytes = (0..bytes).map(|_| u.arbitrary());
            TensorData::Bytes(bytes.collect::<Result<Vec<u8>>>()?.into())
        }
        (_, None) if dtype == DType::String => {
            let strings = (0..elements).map(|_| Ok(u.arbitrary::<Vec<u8>>()?.into()));
            TensorData::Strings(strings.collect::<Result<_>>()?)
        }
        (_, None) => TensorData::Absent,
    };
    Ok(Tensor { dtype, shape, data })
}
