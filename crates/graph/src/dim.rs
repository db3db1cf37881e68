//! Dimensions: known, a formula of named free dimensions, or unknown.

use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

use crate::DType;

/// One dimension of a shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Dim {
    /// A number.
    Known(u64),
    /// A formula of named dimensions, such as `past + 1`.
    Formula(Arc<crate::dim_expr::DimExpr>),
    /// Nothing is known.
    Unknown,
}

impl Dim {
    /// Reads a dimension as models write it: a number, a name, or a formula of names. An empty
    /// text, `?` (which some exporters write for unrelated dimensions) and a negative number are
    /// no names: the dimension is unknown.
    ///
    /// ```
    /// use tenure_graph::Dim;
    /// assert_eq!(Dim::parse("224"), Dim::Known(224));
    /// assert_eq!(Dim::parse("past + 1").to_string(), "past + 1");
    /// assert_eq!(Dim::parse("?"), Dim::Unknown);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.trim() == "?" {
            return Dim::Unknown;
        }
        match crate::dim_expr::DimExpr::parse(text) {
            Some(expr) => Self::from_expr(expr),
            None => Dim::Unknown,
        }
    }

    /// The dimension that a formula gives.
    pub(crate) fn from_expr(expr: crate::dim_expr::DimExpr) -> Self {
        if !expr.names().is_empty() {
            return Dim::Formula(Arc::new(expr));
        }
        expr.as_number().map_or(Dim::Unknown, Dim::Known)
    }

    /// The number, if it is known.
    #[must_use]
    pub fn known(&self) -> Option<u64> {
        match self {
            Dim::Known(n) => Some(*n),
            _ => None,
        }
    }
}

impl From<u64> for Dim {
    fn from(n: u64) -> Self {
        Dim::Known(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(n) => n.fmt(f),
            Dim::Formula(e) => e.fmt(f),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// The dimensions of a tensor whose rank is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape(pub SmallVec<[Dim; 4]>);

impl Shape {
    /// A shape of known dimensions.
    ///
    /// ```
    /// use tenure_graph::{DType, Shape};
    /// assert_eq!(Shape::of(&[2, 3]).bytes(DType::F16), Some(12));
    /// ```
    #[must_use]
    pub fn of(dims: &[u64]) -> Self {
        Shape(dims.iter().map(|&d| Dim::Known(d)).collect())
    }

    /// The dimensions as numbers, if all are known.
    #[must_use]
    pub fn known(&self) -> Option<SmallVec<[u64; 4]>> {
        self.0.iter().map(Dim::known).collect()
    }

    /// Number of elements, if all dimensions are known and the product fits in 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        // A zero makes the tensor empty whatever the other dimensions are, overflow included.
        let dims = self.known()?;
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }

    /// Bytes of a tensor of this shape and type; `None` when that cannot be known or does not
    /// fit in 64 bits.
    #[must_use]
    pub fn bytes(&self, dtype: DType) -> Option<u64> {
        dtype.bytes(self.elements()?)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            d.fmt(f)?;
        }
        f.write_str("]")
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(iter: I) -> Self {
        Shape(iter.into_iter().collect())
    }
}
