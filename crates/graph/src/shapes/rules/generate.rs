//! Constants, ranges and random numbers.

use rten_shape_inference::{SymExpr, SymTensor, ops};

use super::arithmetic::{count, num};
use super::layout::vector;
use crate::dim_expr::constant;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};
use crate::shapes::fact::{self, MAX_CONTENTS};
use crate::{Attr, DType, Tensor, TensorData};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Const" | "Constant" => constant_value,
        "ConstantOfShape" => constant_of_shape,
        "Range" => range,
        "EyeLike" => like_input,
        "RandomNormal" | "RandomUniform" => random,
        "RandomNormalLike" | "RandomUniformLike" | "Bernoulli" => like_input,
        "Multinomial" => multinomial,
        _ => return None,
    })
}

fn constant_value(c: &mut Context<'_>) -> Answer {
    let attrs = &c.node.attrs;
    if let Some(Attr::Tensor(tensor)) = attrs.get("value") {
        let tensor = tensor.clone();
        set_tensor(c, &tensor);
    } else if let Some(Attr::Tensor(tensor)) = attrs.get("sparse_value") {
        // The node makes a dense tensor of it.
        let (dtype, dims) = (tensor.dtype, tensor.shape.clone());
        c.set_fixed(0, dtype, &dims);
    } else if let Some(n) = attrs.int("value_int") {
        c.set(0, DType::I64, SymTensor::from_scalar(num(n)));
    } else if let Some(list) = c.int_list("value_ints") {
        c.set(0, DType::I64, vector(&list));
    } else if let Some(x) = attrs.get("value_float").and_then(Attr::as_float) {
        c.set(0, DType::F32, SymTensor::from_scalar(fact::float(x)));
    } else if let Some(list) = c.float_list("value_floats") {
        let items = list.into_iter().map(fact::float).collect();
        c.set(0, DType::F32, SymTensor::from_vec(items));
    } else if attrs.get("value_string").is_some() {
        c.set_dims(0, DType::String, Vec::new());
    } else if let Some(Attr::List(list)) = attrs.get("value_strings") {
        let n = count(list.len());
        c.set_dims(0, DType::String, vec![n]);
    } else {
        return Err(Refusal::NoAnswer);
    }
    Ok(())
}

fn set_tensor(c: &mut Context<'_>, tensor: &Tensor) {
    c.set_fixed(0, tensor.dtype, &tensor.shape);
    let items: Option<Vec<SymExpr>> = match tensor.to_ints(MAX_CONTENTS as u64) {
        Some(ints) => Some(ints.into_iter().map(num).collect()),
        None => floats(tensor).map(|f| f.into_iter().map(fact::float).collect()),
    };
    if let Some(items) = items {
        c.fill(0, items);
    }
}

/// The elements of a small tensor of floats.
fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    let TensorData::Bytes(bytes) = &tensor.data else {
        return None;
    };
    let elements = usize::try_from(tensor.elements()?).ok()?;
    let width = match tensor.dtype {
        DType::F32 => 4,
        DType::F64 => 8,
        _ => return None,
    };
    if elements > MAX_CONTENTS || bytes.len() != elements * width {
        return None;
    }
    bytes
        .chunks_exact(width)
        .map(|b| match width {
            4 => Some(f64::from(f32::from_le_bytes(b.try_into().ok()?))),
            _ => Some(f64::from_le_bytes(b.try_into().ok()?)),
        })
        .collect()
}

fn constant_of_shape(c: &mut Context<'_>) -> Answer {
    let value = match c.node.attrs.get("value") {
        Some(Attr::Tensor(value)) => Some(value.clone()),
        _ => None,
    };
    let dtype = value.as_ref().map_or(DType::F32, |v| v.dtype);
    c.set_dtype(0, dtype);
    // The rule makes a symbol for each dimension that it does not know.
    if c.length(0).is_some_and(|n| n > fact::MAX_RANK) {
        return Err(Refusal::NoAnswer);
    }
    // The rule spells out the elements; so many only as are of use.
    let length = c
        .values(0)
        .and_then(|v| v.first())
        .map_or(Some(1), constant);
    let is_small = length.is_some_and(|n| n <= MAX_CONTENTS as i128);
    let item = match value.as_ref().and_then(|v| v.to_ints(1)).as_deref() {
        Some([item]) if is_small => i32::try_from(*item).ok(),
        _ => None,
    };
    c.first(&ops::ConstantOfShape { value: item }, Numbers::Kept, dtype)
}

fn range(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    if let (Some(start), Some(limit), Some(delta)) = (c.floats(0), c.floats(1), c.floats(2)) {
        let n = match (&start[..], &limit[..], &delta[..]) {
            ([start], [limit], [delta]) => ((limit - start) / delta).ceil().max(0.0),
            _ => f64::NAN,
        };
        #[expect(clippy::cast_possible_truncation, reason = "within 53 bits")]
        if n < 9e15 {
            c.set_dims(0, dtype, vec![num(n as i64)]);
            return Ok(());
        }
    }
    // The rule takes the first element of whatever contents there are.
    if (0..3).any(|i| c.values(i).is_some_and(<[_]>::is_empty)) {
        return impossible("start, limit and delta are one number each");
    }
    let is_symbolic = (0..3).any(|i| match c.values(i) {
        Some([n]) => constant(n).is_none(),
        _ => true,
    });
    if is_symbolic {
        return c.first(&ops::Range, Numbers::Kept, dtype);
    }
    let bounds: Vec<i64> = (0..3).filter_map(|i| c.ints(i)?.first().copied()).collect();
    let &[start, limit, delta] = &bounds[..] else {
        return Err(Refusal::NoAnswer);
    };
    let (start, limit, delta) = (i128::from(start), i128::from(limit), i128::from(delta));
    let Some(n) = crate::dim_expr::div_ceil(limit - start, delta) else {
        return impossible("the step is 0");
    };
    let n = n.max(0);
    let tensor = if n <= MAX_CONTENTS as i128 {
        SymTensor::from_vec((0..n).map(|i| num(start + i * delta)).collect())
    } else {
        SymTensor::from_shape(vec![num(n)])
    };
    c.set(0, dtype, tensor);
    Ok(())
}

/// Shape of the input, type of the attribute or else of the input.
fn like_input(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("dtype").unwrap_or(c.dtype(0));
    c.set_like(0, dtype, 0)
}

fn random(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("dtype").unwrap_or(DType::F32);
    let shape = c.int_list("shape").unwrap_or_default();
    c.set_dims(0, dtype, shape.into_iter().map(num).collect());
    Ok(())
}

fn multinomial(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("dtype").unwrap_or(DType::I32);
    let [batch, _] = c.dims_of_rank(0)?;
    let n = num(c.int("sample_size", 1));
    c.set_dims(0, dtype, vec![batch, n]);
    Ok(())
}
