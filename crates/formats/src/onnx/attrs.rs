//! Attributes: all kinds but graphs, which become bodies of their node.

use std::sync::Arc;
use tenure_graph::{Attr, Attrs, DType, Tensor, TensorData};

use super::tensor::Tensors;
use super::types;
use crate::error::{FormatError, Problem};
use crate::generated::onnx as pb;
use bytes::Bytes;
use pb::attribute_proto::AttributeType as Kind;

/// The value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Data.
    Data(Kind),
    /// One subgraph, still encoded.
    Graph(&'a Bytes),
    /// A list of subgraphs, still encoded.
    Graphs(&'a [Bytes]),
    /// Present without any value.
    Nothing,
}

/// Which field of an attribute holds its value. Files older than IR version 2 do not say; there
/// it is the one that is set.
pub(super) fn content(proto: &pb::AttributeProto) -> Result<Content<'_>, Problem> {
    let number = proto.r#type.unwrap_or(0);
    let mut kind = Kind::try_from(number).map_err(|_| Problem::AttributeKind(number))?;
    if kind == Kind::Undefined {
        let set = [
            (proto.f.is_some(), Kind::Float),
            (proto.i.is_some(), Kind::Int),
            (proto.s.is_some(), Kind::String),
            (proto.t.is_some(), Kind::Tensor),
            (proto.g.is_some(), Kind::Graph),
            (proto.sparse_tensor.is_some(), Kind::SparseTensor),
            (proto.tp.is_some(), Kind::TypeProto),
            (!proto.floats.is_empty(), Kind::Floats),
            (!proto.ints.is_empty(), Kind::Ints),
            (!proto.strings.is_empty(), Kind::Strings),
            (!proto.tensors.is_empty(), Kind::Tensors),
            (!proto.graphs.is_empty(), Kind::Graphs),
            (!proto.sparse_tensors.is_empty(), Kind::SparseTensors),
            (!proto.type_protos.is_empty(), Kind::TypeProtos),
        ];
        match set.into_iter().find(|&(is_set, _)| is_set) {
            Some((_, found)) => kind = found,
            None => return Ok(Content::Nothing),
        }
    }
    Ok(match kind {
        Kind::Graph => proto.g.as_ref().map_or(Content::Nothing, Content::Graph),
        Kind::Graphs => Content::Graphs(&proto.graphs),
        kind => Content::Data(kind),
    })
}

/// The value of an attribute that holds data.
pub(super) fn data(
    proto: &pb::AttributeProto,
    kind: Kind,
    tensors: &mut Tensors<'_>,
) -> Result<Attr, FormatError> {
    let int = |&i: &i64| Attr::Int(i);
    let float = |&f: &f32| Attr::Float(f64::from(f));
    let ty = |t: &pb::TypeProto| types::text(t).map(Attr::Str);
    Ok(match kind {
        Kind::Float => float(&proto.f()),
        Kind::Int => int(&proto.i()),
        Kind::String => string(proto.s.as_ref().unwrap_or(&Bytes::new())),
        Kind::Tensor => match &proto.t {
            Some(t) => tensor(tensors.read(t)?),
            None => Attr::Null,
        },
        Kind::SparseTensor => match &proto.sparse_tensor {
            Some(t) => tensor(tensors.read_sparse(t)?),
            None => Attr::Null,
        },
        Kind::TypeProto => proto.tp.as_deref().map_or(Ok(Attr::Null), ty)?,
        Kind::Floats => list(proto.floats.iter().map(|f| Ok(float(f))))?,
        Kind::Ints => list(proto.ints.iter().map(|i| Ok(int(i))))?,
        Kind::Strings => list(proto.strings.iter().map(|s| Ok(string(s))))?,
        Kind::Tensors => list((proto.tensors.iter()).map(|t| Ok(tensor(tensors.read(t)?))))?,
        Kind::SparseTensors => {
            list((proto.sparse_tensors.iter()).map(|t| Ok(tensor(tensors.read_sparse(t)?))))?
        }
        Kind::TypeProtos => list(proto.type_protos.iter().map(ty))?,
        Kind::Undefined | Kind::Graph | Kind::Graphs => Attr::Null,
    })
}

fn list(items: impl Iterator<Item = Result<Attr, FormatError>>) -> Result<Attr, FormatError> {
    Ok(Attr::List(items.collect::<Result<_, _>>()?))
}

fn tensor(tensor: Tensor) -> Attr {
    Attr::Tensor(Arc::new(tensor))
}

/// Text, or bytes where they are none.
fn string(bytes: &Bytes) -> Attr {
    match std::str::from_utf8(bytes) {
        Ok(text) => Attr::Str(text.to_owned()),
        Err(_) => Attr::Bytes(bytes.clone()),
    }
}

/// Gives the constant of a node `Constant` the one form that everything later knows: a tensor
/// under `value`, whichever of its attributes the model used.
pub(super) fn normalise_constant(attrs: &mut Attrs) {
    const FORMS: [&str; 7] = [
        "sparse_value",
        "value_int",
        "value_ints",
        "value_float",
        "value_floats",
        "value_string",
        "value_strings",
    ];
    let Some(form) = FORMS.iter().find(|f| attrs.get(f).is_some()) else {
        return;
    };
    let Some(value) = attrs.remove(form) else {
        return;
    };
    let constant = match &value {
        Attr::Tensor(tensor) => Some(Arc::clone(tensor)),
        Attr::List(items) => constant(form, items, vec![items.len() as u64]),
        item => constant(form, std::slice::from_ref(item), Vec::new()),
    };
    match constant {
        Some(tensor) => attrs.set("value", Attr::Tensor(tensor)),
        None => attrs.set(*form, value),
    }
}

fn constant(form: &str, items: &[Attr], shape: Vec<u64>) -> Option<Arc<Tensor>> {
    let (dtype, data) = if form.starts_with("value_int") {
        let ints = items.iter().map(|i| Some(i.as_int()?.to_le_bytes()));
        (DType::I64, TensorData::Bytes(flat(ints)?))
    } else if form.starts_with("value_float") {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "ONNX attributes are binary32; the value came from one"
        )]
        let floats = items
            .iter()
            .map(|f| Some((f.as_float()? as f32).to_le_bytes()));
        (DType::F32, TensorData::Bytes(flat(floats)?))
    } else {
        let text = items.iter().map(|s| match s {
            Attr::Str(s) => Some(Bytes::copy_from_slice(s.as_bytes())),
            Attr::Bytes(b) => Some(b.clone()),
            _ => None,
        });
        (
            DType::String,
            TensorData::Strings(text.collect::<Option<_>>()?),
        )
    };
    Some(Arc::new(Tensor { dtype, shape, data }))
}

fn flat<const N: usize>(items: impl Iterator<Item = Option<[u8; N]>>) -> Option<Bytes> {
    let items: Vec<[u8; N]> = items.collect::<Option<_>>()?;
    Some(Bytes::from(items.concat()))
}
