//! Types and shapes: ONNX `TypeProto` becomes element type and dimensions.

use tenure_graph::{DType, Dim, ElementType, Shape};

use crate::error::{FormatError, Problem, Within as _, quoted};
use crate::generated::onnx as pb;
use pb::tensor_shape_proto::dimension::Value as DimValue;
use pb::type_proto::Value as Kind;

/// The element type of ONNX number `n`; `None` for a number that is no type.
pub(crate) fn element(n: i32) -> Option<DType> {
    use pb::tensor_proto::DataType as T;
    Some(match T::try_from(n).ok()? {
        T::Undefined => return None,
        T::Float => DType::F32,
        T::Uint8 => DType::U8,
        T::Int8 => DType::I8,
        T::Uint16 => DType::U16,
        T::Int16 => DType::I16,
        T::Int32 => DType::I32,
        T::Int64 => DType::I64,
        T::String => DType::String,
        T::Bool => DType::Bool,
        T::Float16 => DType::F16,
        T::Double => DType::F64,
        T::Uint32 => DType::U32,
        T::Uint64 => DType::U64,
        T::Complex64 => DType::C64,
        T::Complex128 => DType::C128,
        T::Bfloat16 => DType::BF16,
        T::Float8e4m3fn => DType::F8E4M3FN,
        T::Float8e4m3fnuz => DType::F8E4M3FNUZ,
        T::Float8e5m2 => DType::F8E5M2,
        T::Float8e5m2fnuz => DType::F8E5M2FNUZ,
        T::Uint4 => DType::U4,
        T::Int4 => DType::I4,
        T::Float4e2m1 => DType::F4E2M1,
        T::Float8e8m0 => DType::F8E8M0,
        T::Uint2 => DType::U2,
        T::Int2 => DType::I2,
        T::Float6e2m3 => DType::F6E2M3,
        T::Float6e3m2 => DType::F6E3M2,
    })
}

/// What a model declares of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    pub(super) dtype: DType,
    pub(super) shape: Option<Shape>,
    /// What is in it, if it is a sequence or an optional.
    pub(super) element: Option<ElementType>,
}

impl Declared {
    /// Nothing is declared.
    pub(super) const UNKNOWN: Self = Declared {
        dtype: DType::Unknown,
        shape: None,
        element: None,
    };
}

/// What the free dimensions of a type stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Dimensions of the model.
    Model,
    /// Dimensions of a function, which mean something else at each of its calls.
    Function,
}

/// Type and shape that a type declares. An element type that is not known (a newer ONNX, or a
/// field left out) is [`DType::Unknown`]: what can be planned without it still is.
pub(super) fn declared(ty: Option<&pb::TypeProto>, names: Names) -> Result<Declared, FormatError> {
    let tensor = |dtype, shape: &Option<pb::TensorShapeProto>| {
        let shape = shape.as_ref().map(|s| self::shape(s, names)).transpose()?;
        Ok(Declared {
            dtype,
            shape,
            element: None,
        })
    };
    let container = |dtype, inner: Option<&pb::TypeProto>| {
        // Types nest no deeper than the decoder follows.
        let inner = declared(inner, names)?;
        Ok(Declared {
            dtype,
            shape: None,
            element: (inner.dtype != DType::Unknown).then(|| ElementType {
                dtype: inner.dtype,
                shape: inner.shape,
                element: inner.element.map(Box::new),
            }),
        })
    };
    match ty.and_then(|t| t.value.as_ref()) {
        None => Ok(Declared::UNKNOWN),
        Some(Kind::TensorType(t)) => {
            let dtype = t.elem_type.and_then(element).unwrap_or(DType::Unknown);
            tensor(dtype, &t.shape)
        }
        Some(Kind::SparseTensorType(t)) => tensor(DType::Sparse, &t.shape),
        Some(Kind::SequenceType(t)) => container(DType::Sequence, t.elem_type.as_deref()),
        Some(Kind::OptionalType(t)) => container(DType::Optional, t.elem_type.as_deref()),
        Some(Kind::MapType(_)) => tensor(DType::Map, &None),
        Some(Kind::OpaqueType(_)) => Ok(Declared::UNKNOWN),
    }
}

fn shape(proto: &pb::TensorShapeProto, names: Names) -> Result<Shape, Problem> {
    let dim = |(axis, d): (usize, &pb::tensor_shape_proto::Dimension)| match &d.value {
        None => Ok(Dim::Unknown),
        Some(DimValue::DimValue(-1)) => Ok(Dim::Unknown),
        Some(DimValue::DimValue(n)) => match u64::try_from(*n) {
            Ok(n) => Ok(Dim::Known(n)),
            Err(_) => Err(Problem::Dimension { axis, size: *n }),
        },
        Some(DimValue::DimParam(text)) => Ok(match Dim::parse(text) {
            Dim::Formula(_) if names == Names::Function => Dim::Unknown,
            dim => dim,
        }),
    };
    proto.dim.iter().enumerate().map(dim).collect()
}

/// The type of a value by its name.
pub(super) fn declared_by(
    info: &pb::ValueInfoProto,
    names: Names,
) -> Result<Declared, FormatError> {
    declared(info.r#type.as_ref(), names).within(|| format!("value {}", quoted(info.name())))
}

/// A type as text: `tensor(float32[2, ?])`, `sequence(tensor(int64))`.
pub(super) fn text(ty: &pb::TypeProto) -> Result<String, FormatError> {
    let mut open = String::new();
    let mut depth = 0usize;
    let mut ty = Some(ty);
    // Types nest on one side only, so that a loop does.
    let inner = loop {
        let (word, next) = match ty.and_then(|t| t.value.as_ref()) {
            Some(Kind::SequenceType(t)) => ("sequence(".to_owned(), &t.elem_type),
            Some(Kind::OptionalType(t)) => ("optional(".to_owned(), &t.elem_type),
            Some(Kind::MapType(t)) => {
                let key = t.key_type.and_then(element).unwrap_or(DType::Unknown);
                (format!("map({key}, "), &t.value_type)
            }
            _ => break declared(ty, Names::Model)?,
        };
        open.push_str(&word);
        depth += 1;
        ty = next.as_deref();
    };
    let shape = inner.shape.map_or(String::new(), |s| s.to_string());
    Ok(format!(
        "{open}tensor({}{shape}){}",
        inner.dtype,
        ")".repeat(depth)
    ))
}
