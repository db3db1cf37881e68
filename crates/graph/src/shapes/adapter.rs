//! The guarded call of a rule of `rten-shape-inference`.
//!
//! Those rules compute with `i32` and fold constants on the way. Numbers that could leave that
//! range are handed over as symbols (see [`crate::dim_expr`]) and computed afterwards with 128
//! bits. A rule that panics on input it did not expect counts as one that knows nothing; the
//! rules of this crate check ranks first, so that this is a last resort.

use rten_shape_inference::{
    InferShapes, InferShapesContext, InferShapesError, SymExpr, SymTensor, SymbolGen,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::context::Refusal;
use super::fact::{dims, settle};
use crate::dim_expr;

/// What a rule does with the numbers it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Compares and hands on; adds a few.
    Kept,
    /// Multiplies those of one tensor with one another.
    Multiplied,
}

/// Greatest number that is handed to a rule as it is: two of them can be added.
const PLAIN: u32 = 1 << 30;

/// Elements of contents that are handed to one rule in all.
const MAX_ELEMENTS: usize = 1 << 16;

/// Calls a rule.
pub(super) fn call(
    rule: &dyn InferShapes,
    numbers: Numbers,
    inputs: &[Option<SymTensor>],
    symbols: &mut SymbolGen,
) -> Result<Vec<SymTensor>, Refusal> {
    let elements: usize = inputs.iter().flatten().map(contents_len).sum();
    let is_safe = elements <= MAX_ELEMENTS && inputs.iter().flatten().all(|t| fits(t, numbers));
    let guarded: Vec<Option<SymTensor>>;
    let inputs = if is_safe {
        inputs
    } else {
        let guard = |t: &SymTensor| {
            if elements > MAX_ELEMENTS && contents_len(t) > 0 {
                dims(t).map_or_else(|| t.clone(), SymTensor::from_shape)
            } else {
                lift(t, numbers)
            }
        };
        guarded = inputs.iter().map(|t| t.as_ref().map(guard)).collect();
        &guarded
    };
    let run = || rule.infer_shapes(InferShapesContext::new(inputs), symbols);
    let outputs = catch_unwind(AssertUnwindSafe(run)).map_err(|_| Refusal::NoAnswer)?;
    match outputs {
        Ok(outputs) => Ok(outputs.into_iter().map(|t| settle(t, symbols)).collect()),
        Err(InferShapesError::UnknownOutputCount) => Err(Refusal::NoAnswer),
        Err(e) => Err(Refusal::Impossible(e.to_string().into())),
    }
}

fn contents_len(tensor: &SymTensor) -> usize {
    tensor.values().map_or(0, <[SymExpr]>::len)
}

/// Whether a rule can compute with a tensor's numbers and stay in `i32`.
fn fits(tensor: &SymTensor, numbers: Numbers) -> bool {
    let Some(mut dims) = tensor.shape() else {
        return true;
    };
    let values = tensor.values().unwrap_or_default();
    match numbers {
        Numbers::Kept => {
            let plain = |e: &SymExpr| dim_expr::magnitude(e) <= PLAIN.into();
            dims.all(|d| plain(&d)) && values.iter().all(plain)
        }
        Numbers::Multiplied => {
            let product = |n: u128, e: &SymExpr| n.saturating_mul(dim_expr::magnitude(e));
            dims.fold(1, |n, d| product(n, &d)) <= PLAIN.into()
                && values.iter().fold(1, product) <= PLAIN.into()
        }
    }
}

/// A tensor whose large numbers are symbols.
fn lift(tensor: &SymTensor, numbers: Numbers) -> SymTensor {
    let largest = match numbers {
        Numbers::Kept => i128::from(PLAIN),
        Numbers::Multiplied => 1,
    };
    // Numbers below 0 have meanings of their own (`-1`, "from the end").
    let number = |n: i128| {
        if n > largest {
            dim_expr::lifted(n)
        } else {
            dim_expr::number(n)
        }
    };
    let each = |exprs: &[SymExpr]| -> Vec<SymExpr> {
        exprs
            .iter()
            .map(|e| match dim_expr::constant(e) {
                Some(n) => number(n),
                None if dim_expr::magnitude(e) <= PLAIN.into() => e.clone(),
                None => dim_expr::lift_constants(e),
            })
            .collect()
    };
    if let Some(item) = tensor.as_scalar() {
        let mut item = each(std::slice::from_ref(item));
        return item
            .pop()
            .map_or_else(|| tensor.clone(), SymTensor::from_scalar);
    }
    if let Some(items) = tensor.as_vector() {
        return SymTensor::from_vec(each(items));
    }
    match dims(tensor) {
        Some(dims) => SymTensor::from_shape(each(&dims)),
        None => tensor.clone(),
    }
}
