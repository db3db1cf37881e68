//! Attributes of nodes and tensors, and constant tensors.

use bytes::Bytes;
use std::sync::Arc;
use thin_vec::ThinVec;

use crate::DType;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// No value: the attribute is present and empty.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Str(String),
    /// Bytes that are no UTF-8 text.
    Bytes(Bytes),
    /// A list; elements may differ in kind.
    List(Vec<Attr>),
    /// Named values, in their order.
    Map(Attrs),
    /// A constant tensor.
    Tensor(Arc<Tensor>),
}

impl Attr {
    /// The integer, if it is one (a truth value counts as 0 or 1).
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Attr::Int(i) => Some(*i),
            Attr::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The text, if it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Attr::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The truth value, if it is one (an integer counts as "not 0").
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        self.as_int().map(|i| i != 0)
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Attr::Float(f) => Some(*f),
            #[expect(
                clippy::cast_precision_loss,
                reason = "attributes that stand for floats are small"
            )]
            Attr::Int(i) => Some(*i as f64),
            _ => None,
        }
    }

    /// The list of integers, if every element is one.
    #[must_use]
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        match self {
            Attr::List(list) => list.iter().map(Attr::as_int).collect(),
            _ => None,
        }
    }
}

/// Attributes by name, in the order in which the model lists them. Small: looked up by a scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(ThinVec<(Arc<str>, Attr)>);

impl Attrs {
    /// No attributes.
    #[must_use]
    pub fn new() -> Self {
        Attrs(ThinVec::new())
    }

    /// The attribute `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, a)| a)
    }

    /// The integer attribute `name`.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_int()
    }

    /// The text attribute `name`.
    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// The list of integers `name`.
    #[must_use]
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.get(name)?.as_ints()
    }

    /// Sets `name` to `value`; the place of an attribute that is there already is kept.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: Attr) {
        let name = name.into();
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes the attribute `name` out.
    pub fn remove(&mut self, name: &str) -> Option<Attr> {
        let at = self.0.iter().position(|(n, _)| &**n == name)?;
        Some(self.0.remove(at).1)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().map(|(n, a)| (&**n, a))
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, Attr)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (N, Attr)>>(iter: I) -> Self {
        Attrs(iter.into_iter().map(|(n, a)| (n.into(), a)).collect())
    }
}

/// A constant tensor of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Type of the elements.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// The contents, or where they are.
    pub data: TensorData,
}

/// Contents of at most so many bytes are printed and are part of a graph's identity; of a larger
/// tensor only type and shape are.
pub const INLINE_BYTES: u64 = 1024;

/// The contents of a constant tensor, or where they are.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// Little-endian elements, sub-byte types packed. A slice of the mapped file where the model
    /// allows it, so nothing is read before it is needed.
    Bytes(Bytes),
    /// Strings.
    Strings(Vec<Bytes>),
    /// In another file, relative to the model's folder.
    External {
        /// Path as the model gives it; checked when it is opened, not before.
        location: String,
        /// First byte in that file.
        offset: u64,
        /// Bytes, where the model says.
        length: Option<u64>,
    },
    /// Left out (contents of large constants are not printed).
    Absent,
}

impl Tensor {
    /// Bytes of the contents, as far as they are here or the type says; `None` when unknown.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match &self.data {
            TensorData::Bytes(bytes) => u64::try_from(bytes.len()).ok(),
            TensorData::Strings(strings) => strings.iter().try_fold(0u64, |sum, s| {
                sum.checked_add(u64::try_from(s.len()).ok()?.checked_add(1)?)
            }),
            TensorData::External { .. } | TensorData::Absent => self.dtype.bytes(self.elements()?),
        }
    }

    /// Whether it takes at most [`INLINE_BYTES`].
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.bytes().is_some_and(|n| n <= INLINE_BYTES)
    }

    /// Number of elements; `None` when it does not fit in 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }

    /// The elements as integers, for tensors of integers or truth values of at most `limit`
    /// elements whose contents are inline; `None` otherwise.
    #[must_use]
    pub fn to_ints(&self, limit: u64) -> Option<Vec<i64>> {
        let TensorData::Bytes(bytes) = &self.data else {
            return None;
        };
        let n = self.elements().filter(|&n| n <= limit)?;
        if self.dtype.bytes(n)? != u64::try_from(bytes.len()).ok()? {
            return None;
        }
        macro_rules! read {
            ($ty:ty) => {
                bytes
                    .chunks_exact(size_of::<$ty>())
                    .map(|c| i64::try_from(<$ty>::from_le_bytes(c.try_into().ok()?)).ok())
                    .collect()
            };
        }
        match self.dtype {
            DType::I64 => read!(i64),
            DType::I32 => read!(i32),
            DType::I16 => read!(i16),
            DType::I8 => read!(i8),
            DType::U64 => read!(u64),
            DType::U32 => read!(u32),
            DType::U16 => read!(u16),
            DType::U8 | DType::Bool => read!(u8),
            _ => None,
        }
    }
}
