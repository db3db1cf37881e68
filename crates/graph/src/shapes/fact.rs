//! What is known of one value during the walk.
//!
//! Shapes and contents are those of `rten-shape-inference`: a shape of expressions, or the
//! elements of a scalar or vector. A symbol made on the way stands for one unknown number; two
//! dimensions with the same symbol are equal. A known float among contents is a symbol too
//! ([`float`]), so that rules that move elements move it like any other. Everything kept here is bounded, so that no model
//! can make one value expensive.

use rten_shape_inference::{SymExpr, SymTensor, Symbol, SymbolGen};
use std::sync::Arc;

use crate::dim_expr::{self, DimExpr};
use crate::{DType, Dim, ElementType, Shape, Value};

/// Greatest rank and number of elements that are followed.
pub(super) const MAX_RANK: usize = 32;
pub(super) const MAX_CONTENTS: usize = 256;

/// Greatest number of operators and operands in one expression.
const MAX_EXPR: usize = 64;

/// What is known of one value.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    /// Type of the elements.
    pub(super) dtype: DType,
    /// Shape, or contents of a small tensor of rank 0 or 1.
    pub(super) tensor: SymTensor,
    /// Contents of a small tensor of a higher rank, row by row; its dimensions are numbers.
    pub(super) grid: Option<Arc<[SymExpr]>>,
    /// What is in it, if it is a sequence or an optional.
    pub(super) element: Element,
    /// Whether all of it follows from the inputs, nothing from what the file says of results.
    pub(super) certain: bool,
}

/// What is known of the elements of a sequence or of an optional.
#[derive(Clone, Debug)]
pub(super) enum Element {
    /// Nothing.
    Unknown,
    /// There are none.
    None,
    /// What holds of each.
    Each(Arc<Fact>),
}

impl Element {
    /// What a file says of them.
    pub(super) fn declared(value: &Value, symbols: &mut SymbolGen) -> Self {
        value
            .element()
            .map_or(Element::Unknown, |ty| Self::of(&ty, symbols))
    }

    fn of(ty: &ElementType, symbols: &mut SymbolGen) -> Self {
        let element = ty.element.as_deref();
        Element::Each(Arc::new(Fact {
            element: element.map_or(Element::Unknown, |ty| Self::of(ty, symbols)),
            ..Fact::declared(ty.dtype, ty.shape.as_ref(), symbols)
        }))
    }

    /// Elements like a value, whose contents may differ.
    pub(super) fn each(fact: &Fact) -> Self {
        // A sequence of sequences is as deep as anything gets.
        let is_deep = match &fact.element {
            Element::Each(inner) => matches!(inner.element, Element::Each(_)),
            _ => false,
        };
        if is_deep {
            return Element::Unknown;
        }
        Element::Each(Arc::new(fact.shape_only()))
    }

    /// What holds of the elements of either of two.
    pub(super) fn join(&self, other: &Self, symbols: &mut SymbolGen) -> Self {
        match (self, other) {
            (Element::Unknown, _) | (_, Element::Unknown) => Element::Unknown,
            (Element::None, element) | (element, Element::None) => element.clone(),
            (Element::Each(a), Element::Each(b)) => Element::Each(Arc::new(join(a, b, symbols))),
        }
    }

    /// Whether the same is known of both.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Element::Unknown, Element::Unknown) | (Element::None, Element::None) => true,
            (Element::Each(a), Element::Each(b)) => a.same(b),
            _ => false,
        }
    }
}

impl Fact {
    /// Nothing is known.
    pub(super) fn unknown() -> Self {
        Fact {
            dtype: DType::Unknown,
            tensor: unknown_tensor(),
            grid: None,
            element: Element::Unknown,
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
            grid: None,
            element: self.element.clone(),
            ..*self
        }
    }

    /// Whether the same is known of both.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.tensor == other.tensor
            && self.grid == other.grid
            && self.element.same(&other.element)
    }

    /// Sets the contents, row by row, if the shape is known and holds so many.
    pub(super) fn fill(&mut self, mut items: Vec<SymExpr>) {
        let Some(dims) = self.dims() else { return };
        let sizes: Option<Vec<i128>> = dims.iter().map(dim_expr::constant).collect();
        let count = sizes.and_then(|s| s.iter().try_fold(1i128, |n, &d| n.checked_mul(d)));
        if items.len() > MAX_CONTENTS || count != i128::try_from(items.len()).ok() {
            return;
        }
        match dims.len() {
            0 => {
                self.tensor = items
                    .pop()
                    .map_or_else(unknown_tensor, SymTensor::from_scalar)
            }
            1 => self.tensor = SymTensor::from_vec(items),
            _ => self.grid = Some(Arc::from(items)),
        }
    }

    /// How many expressions the fact holds.
    pub(super) fn len(&self) -> usize {
        let contents = self.tensor.values().or(self.grid.as_deref());
        contents.map_or(0, <[SymExpr]>::len) + self.tensor.ndim().unwrap_or(0)
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

/// First characters of the symbols that stand for known floats.
const FLOAT: &str = "\0~";

/// A known float among contents.
pub(super) fn float(x: f64) -> SymExpr {
    SymExpr::Var(Arc::new(Symbol {
        name: format!("{FLOAT}{:x}", x.to_bits()),
        positive: false,
        synthetic: true,
    }))
}

/// The float that a symbol stands for, if it stands for one.
pub(super) fn as_float(expr: &SymExpr) -> Option<f64> {
    let SymExpr::Var(symbol) = expr else {
        return None;
    };
    let bits = u64::from_str_radix(symbol.name.strip_prefix(FLOAT)?, 16).ok()?;
    Some(f64::from_bits(bits))
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
        grid: a.grid.clone().filter(|_| a.grid == b.grid),
        element: a.element.join(&b.element, symbols),
        certain: a.certain && b.certain,
    }
}
