//! Formulas of named dimensions, around the symbolic expressions of `rten-shape-inference`.
//!
//! The wrapped type stays inside this crate, so that the rules can be swapped without a change
//! anywhere else.

use rten_shape_inference::SymExpr;
use std::fmt;

/// A formula of named dimensions.
#[derive(Clone, Debug)]
pub struct DimExpr {
    pub(crate) expr: SymExpr,
}

impl PartialEq for DimExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl fmt::Display for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}
