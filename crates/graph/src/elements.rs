//! Contents of constant tensors as lists of numbers and texts, both ways; bytes in hexadecimal.
//! What the readers and writers of JSON and text share.

use bytes::Bytes;

use crate::{Attr, DType, Tensor, TensorData};

/// Applies a macro to the Rust type of the elements, where there is one: first those that are
/// integers, then those that are floats.
macro_rules! by_element_type {
    ($dtype:expr, $int:ident, $float:ident, $other:expr) => {
        match $dtype {
            DType::I64 => $int!(i64),
            DType::I32 => $int!(i32),
            DType::I16 => $int!(i16),
            DType::I8 => $int!(i8),
            DType::U64 => $int!(u64),
            DType::U32 => $int!(u32),
            DType::U16 => $int!(u16),
            DType::U8 | DType::Bool => $int!(u8),
            DType::F32 => $float!(f32),
            DType::F64 => $float!(f64),
            _ => $other,
        }
    };
}

/// The elements as numbers or texts that give the same contents when they are read again; `None`
/// where only the bytes themselves do.
pub(crate) fn to_list(tensor: &Tensor) -> Option<Vec<Attr>> {
    let elements = tensor.elements()?;
    match &tensor.data {
        TensorData::Strings(strings) => {
            let fits = tensor.dtype == DType::String && elements == strings.len() as u64;
            fits.then(|| strings.iter().map(text_or_bytes).collect())
        }
        TensorData::Bytes(bytes) if tensor.dtype.bytes(elements)? == bytes.len() as u64 => {
            macro_rules! int {
                ($ty:ty) => {
                    bytes
                        .chunks_exact(size_of::<$ty>())
                        .map(|c| {
                            let n = <$ty>::from_le_bytes(c.try_into().ok()?);
                            i64::try_from(n).ok().map(Attr::Int)
                        })
                        .collect()
                };
            }
            macro_rules! float {
                ($ty:ty) => {
                    bytes
                        .chunks_exact(size_of::<$ty>())
                        .map(|c| {
                            let n = f64::from(<$ty>::from_le_bytes(c.try_into().ok()?));
                            n.is_finite().then_some(Attr::Float(n))
                        })
                        .collect()
                };
            }
            by_element_type!(tensor.dtype, int, float, None)
        }
        _ => None,
    }
}

/// The contents that a list spells out, for a tensor of the given type and number of elements.
///
/// # Errors
/// What does not fit.
pub(crate) fn from_list(
    dtype: DType,
    elements: Option<u64>,
    list: Vec<Attr>,
) -> Result<TensorData, String> {
    if elements != u64::try_from(list.len()).ok() {
        let found = list.len();
        return Err(format!("{found} elements are not what the shape asks for"));
    }
    if dtype == DType::String {
        let strings = list.into_iter().map(|element| match element {
            Attr::Str(text) => Ok(Bytes::from(text)),
            Attr::Bytes(bytes) => Ok(bytes),
            _ => Err("expected texts".to_owned()),
        });
        return Ok(TensorData::Strings(strings.collect::<Result<_, _>>()?));
    }
    let mut bytes = Vec::new();
    for element in &list {
        let misfit = || format!("an element is no {dtype}");
        macro_rules! int {
            ($ty:ty) => {{
                let n = <$ty>::try_from(element.as_int().ok_or_else(misfit)?);
                bytes.extend_from_slice(&n.map_err(|_| misfit())?.to_le_bytes());
            }};
        }
        macro_rules! float {
            ($ty:ty) => {{
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "rounds to the element type"
                )]
                let n = element.as_float().ok_or_else(misfit)? as $ty;
                bytes.extend_from_slice(&n.to_le_bytes());
            }};
        }
        by_element_type!(
            dtype,
            int,
            float,
            return Err(format!("contents of {dtype} are written as bytes"))
        );
    }
    Ok(TensorData::Bytes(Bytes::from(bytes)))
}

fn text_or_bytes(bytes: &Bytes) -> Attr {
    match std::str::from_utf8(bytes) {
        Ok(text) => Attr::Str(text.to_owned()),
        Err(_) => Attr::Bytes(bytes.clone()),
    }
}

/// Bytes from hexadecimal digits.
///
/// # Errors
/// Says what was expected.
pub(crate) fn from_hex(text: &str) -> Result<Bytes, String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect())
        }
        _ => Err("expected an even number of hexadecimal digits".to_owned()),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|d| char::from(DIGITS[usize::from(d)]))
        .collect()
}
