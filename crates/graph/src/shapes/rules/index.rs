//! Operators that choose elements by index or by value.

use rten_shape_inference::{SymExpr, SymTensor, ops};

use super::arithmetic::{num, product};
use crate::DType;
use crate::dim_expr::constant;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Gather" => gather,
        "GatherElements" => gather_elements,
        "GatherND" => gather_nd,
        "OneHot" => one_hot,
        "NonZero" => non_zero,
        "Compress" => compress,
        "Unique" => unique,
        "TopK" => top_k,
        "ArgMax" | "ArgMin" => arg_extreme,
        _ => return None,
    })
}

fn axis_i32(axis: usize) -> i32 {
    i32::try_from(axis).unwrap_or(i32::MAX)
}

fn gather(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let rank = c.rank(0).ok_or(Refusal::NoAnswer)?;
    let axis = c.axis(c.int("axis", 0), rank)?;
    // An index that the rule cannot use on contents leaves the shape alone.
    let mut inputs = c.tensors.clone();
    if let (Some(values), Some(indices)) = (c.values(0), c.ints(1)) {
        let n = i64::try_from(values.len()).unwrap_or(i64::MAX);
        if indices.iter().any(|&i| i < -n || i >= n) {
            return impossible(format!("an index is out of range for axis {axis} of {n}"));
        }
    } else if c.values(0).is_some() {
        let dims = c.dims(0)?;
        inputs[0] = Some(SymTensor::from_shape(dims));
    }
    let rule = ops::Gather {
        axis: axis_i32(axis),
    };
    let outputs = c.ask_with(&rule, Numbers::Kept, &inputs)?;
    if let Some(tensor) = outputs.into_iter().next() {
        c.set(0, dtype, tensor);
    }
    Ok(())
}

fn gather_elements(c: &mut Context<'_>) -> Answer {
    c.set_like(0, c.dtype(0), 1)
}

fn gather_nd(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let batch_dims = c.count("batch_dims").unwrap_or(0);
    // The rule reads the last dimension of the indices and the rank of the data.
    let tuple = c.dims(1)?.last().and_then(constant);
    if let (Some(tuple), Some(rank)) = (tuple, c.rank(0)) {
        let rest = usize::try_from(tuple)
            .ok()
            .and_then(|t| t.checked_add(batch_dims))
            .and_then(|t| rank.checked_sub(t));
        if rest.is_none() {
            return impossible(format!("indices of {tuple} into rank {rank}"));
        }
    }
    c.first(&ops::GatherND { batch_dims }, Numbers::Kept, dtype)
}

fn one_hot(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(2);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let axis = c.axis(c.int("axis", -1), dims.len() + 1)?;
    let depth = match (c.values(1), c.floats(1)) {
        (Some([depth]), _) => depth.clone(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the depth is a small whole number"
        )]
        (_, Some(depth)) if depth.len() == 1 => num(depth[0] as i64),
        _ => c.unknown(),
    };
    dims.insert(axis, depth);
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn non_zero(c: &mut Context<'_>) -> Answer {
    if c.rank(0) == Some(0) {
        // A scalar counts as a vector of one element.
        let n = c.unknown();
        c.set_dims(0, DType::I64, vec![num(1), n]);
        return Ok(());
    }
    c.first(&ops::NonZero, Numbers::Kept, DType::I64)
}

fn compress(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let chosen = match c.ints(1) {
        Some(flags) => num(i128::try_from(flags.iter().filter(|&&f| f != 0).count()).unwrap_or(0)),
        None => c.unknown(),
    };
    let Some(axis) = c.node.attrs.int("axis") else {
        c.set_dims(0, dtype, vec![chosen]);
        return Ok(());
    };
    let mut dims = c.dims(0)?;
    let axis = c.axis(axis, dims.len())?;
    dims[axis] = chosen;
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn unique(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let n = c.unknown();
    c.set_dims(1, DType::I64, vec![n.clone()]);
    c.set_dims(3, DType::I64, vec![n.clone()]);
    c.set_dtype(0, dtype);
    c.set_dtype(2, DType::I64);
    let mut dims = c.dims(0)?;
    match c.node.attrs.int("axis") {
        None => {
            c.set_dims(2, DType::I64, vec![product(&dims)]);
            c.set_dims(0, dtype, vec![n]);
        }
        Some(axis) => {
            let axis = c.axis(axis, dims.len())?;
            c.set_dims(2, DType::I64, vec![dims[axis].clone()]);
            dims[axis] = n;
            c.set_dims(0, dtype, dims);
        }
    }
    Ok(())
}

fn top_k(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    c.set_dtype(1, DType::I64);
    let mut dims = c.dims(0)?;
    let axis = c.axis(c.int("axis", -1), dims.len())?;
    dims[axis] = match (c.values(1), c.node.attrs.int("k")) {
        (Some([k]), _) => k.clone(),
        (None, Some(k)) if !c.has(1) => num(k),
        _ => c.unknown(),
    };
    c.set_dims(0, dtype, dims.clone());
    c.set_dims(1, DType::I64, dims);
    Ok(())
}

fn arg_extreme(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::I64);
    let mut dims: Vec<SymExpr> = c.dims(0)?;
    let axis = c.axis(c.int("axis", 0), dims.len())?;
    if c.int("keepdims", 1) != 0 {
        dims[axis] = num(1);
    } else {
        dims.remove(axis);
    }
    c.set_dims(0, DType::I64, dims);
    Ok(())
}
