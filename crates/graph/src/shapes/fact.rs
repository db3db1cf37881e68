//! What is known of one value during the walk.
//!
//! Shapes and contents are those of `rten-shape-inference`: a shape of expressions, or the
//! elements of a scalar or vector. A symbol made on the way stands for one unknown number; two
//! dimensions with the same symbol are equal. Everything kept here is bounded, so that no model
//! can make one value expensive.

use rten_shape_inference::{SymExpr, SymTensor, SymbolGen};
use std::sync::Arc;

use crate::dim_expr::{self, DimExpr};
use crate::{DType, Dim, Shape};

/// Greatest rank and number of elements that are followed.
pub(super) const MAX_RANK: usize = 64;
pub(super) const MAX_CONTENTS: usize = 1024;

/// Greatest number of operators and operands in one expression.
const MAX_EXPR: usize = 64;

/// What is known of one value.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    /// Type of the elements.
    pub(super) dtype: DType,
    /// Shape, or contents if they are integers or truth values.
    pub(super) tensor: SymTensor,
    /// Contents of a small constant of floating-point numbers.
    pub(super) floats: Option<Arc<[f64]>>,
    /// Whether all of it follows from the inputs, nothing from what the file says of results.
    pub(super) certain: bool,
}

impl Fact {
    /// Nothing is known.
    pub(super) fn unknown() -> Self {
        Fact {
            dtype: DType::Unknown,
            tensor: unknown_tensor(),
            floats: None,
            certain: true,
        }
    }

    /// A tensor of a type and shape.
    pub(super) fn of(dtype: DType, tensor: SymTensor) -> Self {
        Fact {
            dtype,
            tensor,
            ..Fact::unknown()
        }
    }

    /// What a declared type and shape say. Dimensions without a name become fresh symbols.
    pub(super) fn declared(dtype: DType, shape: Option<&Shape>, symbols: &mut SymbolGen) -> Self {
        let tensor = match shape {
            Some(shape) if shape.0.len() <= MAX_RANK => SymTensor::from_shape(
                shape
                    .0
                    .iter()
                    .map(|d| to_expr(d).unwrap_or_else(|| symbols.gen_positive()))
                    .collect(),
            ),
            _ => unknown_tensor(),
        };
        Fact::of(dtype, tensor)
    }

    /// The dimensions, if the rank is known.
    pub(super) fn dims(&self) -> Option<Vec<SymExpr>> {
        dims(&self.tensor)
    }

    /// The fact without contents.
    pub(super) fn shape_only(&self) -> Self {
        Fact {
            tensor: self
                .dims()
                .map_or_else(unknown_tensor, SymTensor::from_shape),
            floats: None,
            ..*self
        }
    }

    /// The contents as numbers, if they are known and fit.
    pub(super) fn contents(&self) -> Option<Box<[i64]>> {
        self.tensor
            .values()?
            .iter()
            .map(|v| i64::try_from(dim_expr::constant(v)?).ok())
            .collect()
    }
}

/// A tensor of which nothing is known.
pub(super) fn unknown_tensor() -> SymTensor {
    SymTensor::unknown("not known before the run")
}

/// The dimensions of a tensor, if its rank is known.
pub(super) fn dims(tensor: &SymTensor) -> Option<Vec<SymExpr>> {
    Some(tensor.shape()?.collect())
}

/// A declared dimension as an expression; `None` for an unknown one.
pub(super) fn to_expr(dim: &Dim) -> Option<SymExpr> {
    match dim {
        Dim::Known(n) => Some(dim_expr::number(i128::from(*n))),
        Dim::Formula(formula) => Some(formula.expr.clone()),
        Dim::Unknown => None,
    }
}

/// An expression as a dimension of the graph; unknown when it is negative or holds a symbol that
/// is no name of the model.
pub(super) fn to_dim(expr: &SymExpr) -> Dim {
    if let SymExpr::Value(n) = expr {
        return u64::try_from(*n).map_or(Dim::Unknown, Dim::Known);
    }
    if dim_expr::is_named(expr) {
        Dim::from_expr(DimExpr { expr: expr.clone() })
    } else {
        Dim::Unknown
    }
}

/// Brings what a rule made into normal form and within bounds.
pub(super) fn settle(tensor: SymTensor, symbols: &mut SymbolGen) -> SymTensor {
    let mut each = |exprs: &[SymExpr]| -> Vec<SymExpr> {
        exprs.iter().map(|e| settle_expr(e, symbols)).collect()
    };
    if let Some(item) = tensor.as_scalar() {
        let mut item = each(std::slice::from_ref(item));
        return item
            .pop()
            .map_or_else(unknown_tensor, SymTensor::from_scalar);
    }
    if let Some(items) = tensor.as_vector() {
        return if items.len() <= MAX_CONTENTS {
            SymTensor::from_vec(each(items))
        } else {
            SymTensor::from_fixed_shape(&[items.len()])
        };
    }
    match dims(&tensor) {
        Some(dims) if dims.len() <= MAX_RANK => SymTensor::from_shape(each(&dims)),
        _ => unknown_tensor(),
    }
}

/// Brings an expression into normal form; a long one becomes a fresh symbol.
pub(super) fn settle_expr(expr: &SymExpr, symbols: &mut SymbolGen) -> SymExpr {
    if matches!(expr, SymExpr::Value(_) | SymExpr::Var(_)) {
        return expr.clone();
    }
    let short = |e: &SymExpr| e.iter().take(MAX_EXPR + 1).count() <= MAX_EXPR;
    if !short(expr) {
        return symbols.gen_positive();
    }
    let simple = dim_expr::simplify(expr.clone());
    if short(&simple) {
        simple
    } else {
        symbols.gen_positive()
    }
}

/// What holds of a value that comes from either of two sources: what both say. Dimensions that
/// differ become fresh symbols.
pub(super) fn join(a: &Fact, b: &Fact, symbols: &mut SymbolGen) -> Fact {
    let tensor = if a.tensor == b.tensor {
        a.tensor.clone()
    } else {
        match (a.dims(), b.dims()) {
            (Some(x), Some(y)) if x.len() == y.len() => SymTensor::from_shape(
                x.into_iter()
                    .zip(y)
                    .map(|(x, y)| if x == y { x } else { symbols.gen_positive() })
                    .collect(),
            ),
            _ => unknown_tensor(),
        }
    };
    Fact {
        dtype: if a.dtype == b.dtype {
            a.dtype
        } else {
            DType::Unknown
        },
        tensor,
        floats: a.floats.clone().filter(|f| b.floats.as_ref() == Some(f)),
        certain: a.certain && b.certain,
    }
}
