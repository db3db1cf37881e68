//! Reductions.

use rten_shape_inference::SymExpr;

use super::arithmetic::num;
use super::layout::{axes, list};
use crate::dim_expr::constant;
use crate::shapes::context::{Answer, Context, Refusal, Rule};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMean"
        | "ReduceSum" | "ReduceSumSquare" => reduce,
        "ReduceProd" => reduce_product,
        "ReduceMax" => reduce_max,
        "ReduceMin" => reduce_min,
        _ => return None,
    })
}

pub(super) fn reduce(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let keep = c.int("keepdims", 1) != 0;
    let mut dims = c.dims(0)?;
    let reduced: Vec<usize> = match list(c, 1, "axes") {
        Some(Some(given)) if !given.is_empty() => axes(&given, c, dims.len())?,
        // Without axes all are reduced, or none if the node says so.
        Some(_) if c.int("noop_with_empty_axes", 0) != 0 => Vec::new(),
        Some(_) => (0..dims.len()).collect(),
        None => {
            // The length of the axes tells the rank.
            let n = c.length(1);
            let rank = if keep {
                Some(dims.len())
            } else {
                n.and_then(|n| dims.len().checked_sub(n))
            };
            let dims = c.unknowns(
                rank.filter(|_| keep || n != Some(0))
                    .ok_or(Refusal::NoAnswer)?,
            );
            c.set_dims(0, dtype, dims);
            return Ok(());
        }
    };
    if keep {
        for axis in reduced {
            dims[axis] = num(1);
        }
    } else {
        let kept = (0..dims.len()).filter(|i| !reduced.contains(i));
        dims = kept.map(|i| dims[i].clone()).collect();
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

/// A reduction of a whole vector whose contents are known, which some models use on shapes.
fn with_contents(
    c: &mut Context<'_>,
    f: impl Fn(SymExpr, &SymExpr) -> SymExpr,
    start: SymExpr,
) -> Answer {
    reduce(c)?;
    let result = match c.values(0) {
        Some(values) if c.rank(0) == Some(1) => values.iter().fold(start, f),
        _ => return Ok(()),
    };
    let Some(output) = c.outputs.first() else {
        return Ok(());
    };
    let (dtype, dims) = (output.dtype, output.dims());
    match dims.as_deref() {
        Some([]) => c.set(
            0,
            dtype,
            rten_shape_inference::SymTensor::from_scalar(result),
        ),
        Some([n]) if constant(n) == Some(1) && c.int("keepdims", 1) != 0 => {
            c.set(
                0,
                dtype,
                rten_shape_inference::SymTensor::from_vec(vec![result]),
            );
        }
        _ => {}
    }
    Ok(())
}

fn reduce_product(c: &mut Context<'_>) -> Answer {
    with_contents(c, |a, b| a * b.clone(), num(1))
}

fn reduce_max(c: &mut Context<'_>) -> Answer {
    match c.values(0).and_then(<[SymExpr]>::first).cloned() {
        Some(first) => with_contents(c, |a, b| a.max(b), first),
        None => reduce(c),
    }
}

fn reduce_min(c: &mut Context<'_>) -> Answer {
    match c.values(0).and_then(<[SymExpr]>::first).cloned() {
        Some(first) => with_contents(c, |a, b| a.min(b), first),
        None => reduce(c),
    }
}
