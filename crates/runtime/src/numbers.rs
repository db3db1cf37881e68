//! Elements as numbers: how contents that a model's file lists become bytes, and back.

use tenure_graph::{Attr, DType, Graph, NodeId, TensorData};

/// The bytes of one element: little-endian, as everywhere in a program's memory. A truth value is
/// 0 or 1. `None` for types whose elements are no whole bytes or no numbers here.
fn element(dtype: DType, number: f64, to: &mut Vec<u8>) -> Option<()> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number outside the type's range becomes the nearest one that it has"
    )]
    match dtype {
        DType::F32 => to.extend((number as f32).to_le_bytes()),
        DType::F64 => to.extend(number.to_le_bytes()),
        DType::F16 => to.extend(half::f16::from_f64(number).to_le_bytes()),
        DType::BF16 => to.extend(half::bf16::from_f64(number).to_le_bytes()),
        DType::I64 => to.extend((number as i64).to_le_bytes()),
        DType::I32 => to.extend((number as i32).to_le_bytes()),
        DType::I16 => to.extend((number as i16).to_le_bytes()),
        DType::I8 => to.extend((number as i8).to_le_bytes()),
        DType::U64 => to.extend((number as u64).to_le_bytes()),
        DType::U32 => to.extend((number as u32).to_le_bytes()),
        DType::U16 => to.extend((number as u16).to_le_bytes()),
        DType::U8 => to.push(number as u8),
        DType::Bool => to.push(u8::from(number != 0.0)),
        _ => return None,
    }
    Some(())
}

/// The bytes of a tensor whose elements are these numbers.
///
/// ```
/// use tenure_graph::DType;
/// use tenure_runtime::numbers::{decode, encode};
///
/// let bytes = encode(DType::F32, [1.0, -2.5]).unwrap();
/// assert_eq!(bytes.len(), 8);
/// assert_eq!(decode(DType::F32, &bytes).unwrap(), [1.0, -2.5]);
/// ```
#[must_use]
pub fn encode(dtype: DType, numbers: impl IntoIterator<Item = f64>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for number in numbers {
        element(dtype, number, &mut bytes)?;
    }
    Some(bytes)
}

/// The number that the bytes of one element stand for. `None` when they are not as many as the type
/// has, and for types whose elements are no whole bytes or no numbers here.
#[must_use]
pub fn number(dtype: DType, bytes: &[u8]) -> Option<f64> {
    macro_rules! read {
        ($ty:ty) => {
            <$ty>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers beyond 2^53 become the nearest ones"
    )]
    Some(match dtype {
        DType::F32 => read!(f32).into(),
        DType::F64 => read!(f64),
        DType::F16 => read!(half::f16).into(),
        DType::BF16 => read!(half::bf16).into(),
        DType::I64 => read!(i64) as f64,
        DType::I32 => read!(i32).into(),
        DType::I16 => read!(i16).into(),
        DType::I8 => read!(i8).into(),
        DType::U64 => read!(u64) as f64,
        DType::U32 => read!(u32).into(),
        DType::U16 => read!(u16).into(),
        DType::U8 | DType::Bool => read!(u8).into(),
        _ => return None,
    })
}

/// The numbers in a tensor's bytes; bytes at the end that are no whole element are passed over.
/// `None` for types whose elements are no whole bytes or no numbers here.
#[must_use]
pub fn decode(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    let size = usize::try_from(dtype.bytes(1)?).ok()?;
    let elements = bytes.chunks_exact(size);
    elements.map(|element| number(dtype, element)).collect()
}

/// Name of the attribute with the contents of a constant, or the first contents of a variable.
const CONTENTS: &str = "value";

/// The bytes that attribute `value` of a node gives its output: a tensor, or numbers in lists that
/// may be nested. `Ok(None)` when the node has no such attribute.
///
/// # Errors
/// What is wrong with the attribute.
pub fn contents(graph: &Graph, node: NodeId) -> Result<Option<Vec<u8>>, String> {
    let Some(attr) = graph.nodes[node].attrs.get(CONTENTS) else {
        return Ok(None);
    };
    let value = graph.nodes[node].output(0).ok_or("it has no output")?;
    let dtype = graph.values[value].dtype;
    let bytes = match attr {
        Attr::Tensor(tensor) => match &tensor.data {
            TensorData::Bytes(bytes) => bytes.to_vec(),
            TensorData::External { .. } | TensorData::Strings(_) | TensorData::Absent => {
                return Err("they are not in the graph".to_owned());
            }
        },
        other => {
            let mut numbers = Vec::new();
            flatten(other, &mut numbers).ok_or("attribute \"value\" is no list of numbers")?;
            encode(dtype, numbers).ok_or_else(|| format!("elements of type {dtype} are unknown"))?
        }
    };
    let wanted = graph.bytes(value);
    let given = u64::try_from(bytes.len()).ok();
    if wanted != given {
        let wanted = wanted.map_or("an unknown number of".to_owned(), |n| n.to_string());
        return Err(format!(
            "its output has {wanted} bytes, attribute \"value\" {}",
            bytes.len()
        ));
    }
    Ok(Some(bytes))
}

/// The numbers in nested lists, in order. Lists nest as deep as the readers of files let them.
fn flatten(attr: &Attr, to: &mut Vec<f64>) -> Option<()> {
    match attr {
        Attr::List(list) => list.iter().try_for_each(|a| flatten(a, to)),
        other => {
            let number = other.as_float().or_else(|| {
                let truth = other.as_bool()?;
                Some(f64::from(u8::from(truth)))
            });
            to.push(number?);
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::{Dialect, Shape};

    #[test]
    fn elements_of_every_type_pass_both_ways() {
        for &dtype in DType::ALL {
            let Some(bytes) = encode(dtype, [0.0, 1.0, 1.0]) else {
                continue;
            };
            assert_eq!(dtype.bytes(3), u64::try_from(bytes.len()).ok(), "{dtype}");
            assert_eq!(decode(dtype, &bytes), Some(vec![0.0, 1.0, 1.0]), "{dtype}");
        }
    }

    #[test]
    fn contents_are_as_many_as_the_shape_says() {
        let mut graph = Graph::new("", Dialect::Ge, "root");
        let node = graph.add_node(graph.root, "k", "Const");
        graph.add_output(node, "k:0", DType::F32, Some(Shape::of(&[1, 2])));
        assert_eq!(contents(&graph, node), Ok(None));
        let row = |n| Attr::List(vec![Attr::Int(n), Attr::Float(0.5)]);
        graph.nodes[node]
            .attrs
            .set("value", Attr::List(vec![row(7)]));
        assert_eq!(contents(&graph, node), Ok(encode(DType::F32, [7.0, 0.5])));
        let more = Attr::List(vec![row(7), row(8)]);
        graph.nodes[node].attrs.set("value", more);
        assert!(contents(&graph, node).is_err());
        let text = Attr::Str("seven".to_owned());
        graph.nodes[node].attrs.set("value", text);
        assert!(contents(&graph, node).is_err());
    }
}
