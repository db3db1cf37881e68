//! Helpers that rules share: broadcasting, sums and products of dimensions, known contents.

use rten_shape_inference::{SymExpr, SymTensor};

use crate::dim_expr;
use crate::shapes::context::{Refusal, impossible};

/// A number as a dimension.
pub(super) fn num(n: impl Into<i128>) -> SymExpr {
    dim_expr::number(n.into())
}

/// A number of things as a dimension.
pub(super) fn count(n: usize) -> SymExpr {
    dim_expr::number(i128::try_from(n).unwrap_or(i128::MAX))
}

/// The product of dimensions.
pub(super) fn product(dims: &[SymExpr]) -> SymExpr {
    // An empty tensor is empty whatever its other dimensions are.
    if dims.contains(&num(0)) {
        return num(0);
    }
    let factors = dims.iter().filter(|d| **d != num(1)).cloned();
    factors.reduce(|a, b| a * b).unwrap_or_else(|| num(1))
}

/// The shape that two shapes broadcast to.
///
/// See <https://onnx.ai/onnx/repo-docs/Broadcasting.html>.
pub(super) fn broadcast(a: &[SymExpr], b: &[SymExpr]) -> Result<Vec<SymExpr>, Refusal> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let extra = long.len() - short.len();
    let mut dims = long.to_vec();
    for (dim, other) in dims[extra..].iter_mut().zip(short) {
        *dim = broadcast_dim(dim, other)?;
    }
    Ok(dims)
}

/// The dimension that two dimensions broadcast to.
pub(super) fn broadcast_dim(a: &SymExpr, b: &SymExpr) -> Result<SymExpr, Refusal> {
    if a == b {
        return Ok(a.clone());
    }
    match (dim_expr::constant(a), dim_expr::constant(b)) {
        (Some(1), _) => Ok(b.clone()),
        (_, Some(1)) => Ok(a.clone()),
        (Some(x), Some(y)) => impossible(format!("dimensions {x} and {y} cannot broadcast")),
        // The other can only be the same or 1.
        (Some(_), None) => Ok(a.clone()),
        (None, Some(_)) => Ok(b.clone()),
        (None, None) => Ok(a.broadcast(b)),
    }
}

/// Two dimensions that must be equal: the one that is known better.
pub(super) fn same_dim(a: &SymExpr, b: &SymExpr) -> Result<SymExpr, Refusal> {
    match (dim_expr::constant(a), dim_expr::constant(b)) {
        (Some(x), Some(y)) if x != y => impossible(format!("dimensions {x} and {y} must be equal")),
        (None, Some(_)) => Ok(b.clone()),
        (None, None) if !dim_expr::is_named(a) => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

/// Applies a function to the contents of two tensors, element by element with broadcasting of
/// single elements. `None` when contents are not known or the function gives none.
pub(super) fn zip_contents(
    a: &SymTensor,
    b: &SymTensor,
    f: impl Fn(&SymExpr, &SymExpr) -> Option<SymExpr>,
) -> Option<SymTensor> {
    let (x, y) = (a.values()?, b.values()?);
    if a.ndim() == Some(0) && b.ndim() == Some(0) {
        return Some(SymTensor::from_scalar(f(x.first()?, y.first()?)?));
    }
    let items: Option<Vec<SymExpr>> = match (x, y) {
        ([x], ys) => ys.iter().map(|y| f(x, y)).collect(),
        (xs, [y]) => xs.iter().map(|x| f(x, y)).collect(),
        (xs, ys) if xs.len() == ys.len() => xs.iter().zip(ys).map(|(x, y)| f(x, y)).collect(),
        _ => None,
    };
    Some(SymTensor::from_vec(items?))
}

/// A truth value as contents.
pub(super) fn truth(b: bool) -> SymExpr {
    SymExpr::Value(i32::from(b))
}
