//! What a rule sees of its node, and where it puts what it finds.

use rten_shape_inference::{InferShapes, SymExpr, SymTensor, SymbolGen};
use std::borrow::Cow;
use std::sync::Arc;

use super::adapter::{self, Numbers};
use super::fact::{self, Element, Fact};
use crate::dim_expr;
use crate::{Attr, DType, Node};

/// Why a rule gives no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It depends on what is not known before the run.
    NoAnswer,
    /// The node cannot run on these inputs.
    Impossible(Cow<'static, str>),
}

/// A refusal because the node cannot run.
pub(super) fn impossible<T>(reason: impl Into<Cow<'static, str>>) -> Result<T, Refusal> {
    Err(Refusal::Impossible(reason.into()))
}

/// What a rule returns.
pub(super) type Answer = Result<(), Refusal>;

/// A rule: reads the inputs, sets the outputs.
pub(super) type Rule = fn(&mut Context<'_>) -> Answer;

/// One node, seen by its rule.
pub(super) struct Context<'a> {
    /// The node.
    pub(super) node: &'a Node,
    /// Version of its operator set; the newest where the model does not say.
    pub(super) opset: i64,
    /// Shapes and contents of its inputs, by position.
    pub(super) tensors: Vec<Option<SymTensor>>,
    /// Types of its inputs.
    pub(super) types: Vec<DType>,
    /// What else is known of the inputs: contents of a higher rank, elements of sequences and
    /// optionals. May be shorter than the inputs.
    pub(super) extras: Vec<Extra>,
    /// What the rule found, by output.
    pub(super) outputs: Vec<Fact>,
    /// Makes symbols for unknown numbers.
    pub(super) symbols: &'a mut SymbolGen,
}

/// What few inputs have.
#[derive(Clone, Debug)]
pub(super) struct Extra {
    /// Contents of a tensor of rank 2 or more, row by row.
    pub(super) grid: Option<Arc<[SymExpr]>>,
    /// What is in a sequence or an optional.
    pub(super) element: Element,
}

impl Extra {
    /// Of a fact; `None` if it has neither.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        let has = fact.grid.is_some() || !matches!(fact.element, Element::Unknown);
        has.then(|| Extra {
            grid: fact.grid.clone(),
            element: fact.element.clone(),
        })
    }

    /// Nothing.
    pub(super) fn nothing() -> Self {
        Extra {
            grid: None,
            element: Element::Unknown,
        }
    }
}

impl Context<'_> {
    /// Whether input `i` is there.
    pub(super) fn has(&self, i: usize) -> bool {
        matches!(self.tensors.get(i), Some(Some(_)))
    }

    /// Type of input `i`.
    pub(super) fn dtype(&self, i: usize) -> DType {
        self.types.get(i).copied().unwrap_or(DType::Unknown)
    }

    /// What is known of input `i` as a whole.
    pub(super) fn fact(&self, i: usize) -> Fact {
        let tensor = self.tensors.get(i).cloned().flatten();
        let fact = Fact::of(self.dtype(i), tensor.unwrap_or_else(fact::unknown_tensor));
        Fact {
            element: self.element(i),
            grid: self.extras.get(i).and_then(|e| e.grid.clone()),
            ..fact
        }
    }

    /// What is in input `i`, a sequence or an optional.
    pub(super) fn element(&self, i: usize) -> Element {
        let extra = self.extras.get(i);
        extra.map_or(Element::Unknown, |e| e.element.clone())
    }

    /// What is known of input `i`; refuses when it is not there.
    pub(super) fn tensor(&self, i: usize) -> Result<&SymTensor, Refusal> {
        match self.tensors.get(i) {
            Some(Some(tensor)) => Ok(tensor),
            _ => impossible(format!("input {i} is missing")),
        }
    }

    /// Dimensions of input `i`; refuses when its rank is not known.
    pub(super) fn dims(&self, i: usize) -> Result<Vec<SymExpr>, Refusal> {
        fact::dims(self.tensor(i)?).ok_or(Refusal::NoAnswer)
    }

    /// Dimensions of input `i`, of which there must be `rank`.
    pub(super) fn dims_of_rank<const N: usize>(&self, i: usize) -> Result<[SymExpr; N], Refusal> {
        let dims = self.dims(i)?;
        let found = dims.len();
        dims.try_into()
            .or_else(|_| impossible(format!("input {i} has rank {found}, expected {N}")))
    }

    /// Number of dimensions of input `i`, if known.
    pub(super) fn rank(&self, i: usize) -> Option<usize> {
        self.tensors.get(i)?.as_ref()?.ndim()
    }

    /// Contents of input `i`, if known.
    pub(super) fn values(&self, i: usize) -> Option<&[SymExpr]> {
        self.tensors.get(i)?.as_ref()?.values()
    }

    /// Contents of input `i` of whatever rank, row by row.
    pub(super) fn items(&self, i: usize) -> Option<Vec<SymExpr>> {
        match self.values(i) {
            Some(values) => Some(values.to_vec()),
            None => Some(self.extras.get(i)?.grid.as_ref()?.to_vec()),
        }
    }

    /// Contents of input `i` as numbers, if all are known.
    pub(super) fn ints(&self, i: usize) -> Option<Vec<i64>> {
        let number = |v| i64::try_from(dim_expr::constant(v)?).ok();
        self.values(i)?.iter().map(number).collect()
    }

    /// Contents of input `i` as floats, if all are known.
    pub(super) fn floats(&self, i: usize) -> Option<Vec<f64>> {
        self.values(i)?.iter().map(fact::as_float).collect()
    }

    /// Number of elements of input `i` if it is a vector of known length.
    pub(super) fn length(&self, i: usize) -> Option<usize> {
        let tensor = self.tensors.get(i)?.as_ref()?;
        match fact::dims(tensor)?.as_slice() {
            [n] => usize::try_from(dim_expr::constant(n)?).ok(),
            _ => None,
        }
    }

    /// Integer attribute, or what it is by default.
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.node.attrs.int(name).unwrap_or(default)
    }

    /// Integer attribute that may be used as a number of things.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        usize::try_from(self.node.attrs.int(name)?).ok()
    }

    /// Attribute of integers.
    pub(super) fn int_list(&self, name: &str) -> Option<Vec<i64>> {
        self.node.attrs.ints(name)
    }

    /// Attribute of floats.
    pub(super) fn float_list(&self, name: &str) -> Option<Vec<f64>> {
        match self.node.attrs.get(name)? {
            Attr::List(list) => list.iter().map(Attr::as_float).collect(),
            _ => None,
        }
    }

    /// Text attribute.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.node.attrs.str(name)
    }

    /// Attribute that is the number of an ONNX element type.
    pub(super) fn dtype_attr(&self, name: &str) -> Option<DType> {
        onnx_dtype(self.node.attrs.int(name)?)
    }

    /// Position that a possibly negative axis means among `rank`.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Refusal> {
        resolve_axis(axis, rank)
    }

    /// A symbol for an unknown size.
    pub(super) fn unknown(&mut self) -> SymExpr {
        self.symbols.gen_positive()
    }

    /// `rank` unknown sizes.
    pub(super) fn unknowns(&mut self, rank: usize) -> Vec<SymExpr> {
        self.symbols.gen_shape(rank.min(fact::MAX_RANK + 1))
    }

    /// Sets what output `i` is; one that the node does not have is passed over.
    pub(super) fn set(&mut self, i: usize, dtype: DType, tensor: SymTensor) {
        if let Some(output) = self.outputs.get_mut(i) {
            output.dtype = dtype;
            output.tensor = fact::settle(tensor, self.symbols);
        }
    }

    /// Sets the shape of output `i`.
    pub(super) fn set_dims(&mut self, i: usize, dtype: DType, dims: Vec<SymExpr>) {
        self.set(i, dtype, SymTensor::from_shape(dims));
    }

    /// Sets the shape of output `i` to fixed numbers.
    pub(super) fn set_fixed(&mut self, i: usize, dtype: DType, dims: &[u64]) {
        let dims = dims.iter().map(|&d| dim_expr::number(d.into())).collect();
        self.set_dims(i, dtype, dims);
    }

    /// Sets the contents of output `i`, whose shape is set, row by row.
    pub(super) fn fill(&mut self, i: usize, items: Vec<SymExpr>) {
        if let Some(output) = self.outputs.get_mut(i) {
            let settle = |e: &SymExpr| fact::settle_expr(e, self.symbols);
            output.fill(items.iter().map(settle).collect());
        }
    }

    /// Output 0, whose shape is set, holds the elements of input 0 in the same order.
    pub(super) fn keep_items(&mut self) {
        if let Some(items) = self.items(0) {
            self.fill(0, items);
        }
    }

    /// Sets output `i` to a sequence or an optional.
    pub(super) fn set_container(&mut self, i: usize, dtype: DType, element: Element) {
        if let Some(output) = self.outputs.get_mut(i) {
            output.dtype = dtype;
            output.element = element;
        }
    }

    /// Sets the type of output `i` alone.
    pub(super) fn set_dtype(&mut self, i: usize, dtype: DType) {
        if let Some(output) = self.outputs.get_mut(i) {
            output.dtype = dtype;
        }
    }

    /// Gives output `i` the shape of input `of`, without contents.
    pub(super) fn set_like(&mut self, i: usize, dtype: DType, of: usize) -> Answer {
        // The type holds even when the shape is not known.
        self.set_dtype(i, dtype);
        let dims = self.dims(of)?;
        if let Some(output) = self.outputs.get_mut(i) {
            // What an input has is in normal form already.
            output.tensor = SymTensor::from_shape(dims);
        }
        Ok(())
    }

    /// Asks a rule of `rten-shape-inference` about the node's inputs.
    pub(super) fn ask(
        &mut self,
        rule: &dyn InferShapes,
        numbers: Numbers,
    ) -> Result<Vec<SymTensor>, Refusal> {
        adapter::call(rule, numbers, &self.tensors, self.symbols)
    }

    /// Asks a rule of `rten-shape-inference` about other inputs than the node's own.
    pub(super) fn ask_with(
        &mut self,
        rule: &dyn InferShapes,
        numbers: Numbers,
        inputs: &[Option<SymTensor>],
    ) -> Result<Vec<SymTensor>, Refusal> {
        adapter::call(rule, numbers, inputs, self.symbols)
    }

    /// Asks a rule about the node's inputs and takes what it says of the first output.
    pub(super) fn first(
        &mut self,
        rule: &dyn InferShapes,
        numbers: Numbers,
        dtype: DType,
    ) -> Answer {
        self.set_dtype(0, dtype);
        let outputs = self.ask(rule, numbers)?;
        if let Some(tensor) = outputs.into_iter().next() {
            self.set(0, dtype, tensor);
        }
        Ok(())
    }
}

/// Position that a possibly negative axis means among `rank`.
pub(super) fn resolve_axis(axis: i64, rank: usize) -> Result<usize, Refusal> {
    let n = i64::try_from(rank).unwrap_or(i64::MAX);
    let at = if axis < 0 {
        axis.saturating_add(n)
    } else {
        axis
    };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => impossible(format!("axis {axis} is out of range for rank {rank}")),
    }
}

/// The element type that ONNX numbers so.
pub(super) fn onnx_dtype(number: i64) -> Option<DType> {
    // https://onnx.ai/onnx/api/classes.html#tensorproto, `DataType`.
    const TYPES: [DType; 27] = [
        DType::Unknown,
        DType::F32,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::String,
        DType::Bool,
        DType::F16,
        DType::F64,
        DType::U32,
        DType::U64,
        DType::C64,
        DType::C128,
        DType::BF16,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::U4,
        DType::I4,
        DType::F4E2M1,
        DType::F8E8M0,
        DType::U2,
        DType::I2,
    ];
    TYPES.get(usize::try_from(number).ok()?).copied()
}
