//! What operators compute, and the registry that finds it by the operator's type.
//!
//! A kernel is made once for a node, when types and shapes are known, and then run any number of
//! times. It reads and writes where the plan says, and nowhere else. An output may be the very
//! bytes of an input where the operator's row, or the model's file, allows it; the kernel is right
//! then as well.

mod copies;
mod elementwise;
mod joins;

use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BTreeMap;

use tenure_graph::effects::Cleared;
use tenure_graph::{Attrs, DType, Graph, NodeId};

use crate::memory::{Address, Memory};

/// What one node computes.
pub trait Kernel: std::fmt::Debug {
    /// Reads the inputs and writes the outputs.
    fn run(&self, call: &Call<'_>);
}

/// One run of a kernel: where everything is.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    memory: &'a Memory,
    inputs: &'a [Address],
    outputs: &'a [Address],
    scratch: &'a [Address],
}

impl<'a> Call<'a> {
    /// A run of a kernel on the given places, for each slot one; those that are left out have no
    /// bytes.
    #[must_use]
    pub fn new(
        memory: &'a Memory,
        inputs: &'a [Address],
        outputs: &'a [Address],
        scratch: &'a [Address],
    ) -> Self {
        Call {
            memory,
            inputs,
            outputs,
            scratch,
        }
    }

    /// The bytes of input `i`; none where it is left out.
    #[must_use]
    pub fn input(&self, i: usize) -> &'a [Cell<u8>] {
        self.at(self.inputs, i)
    }

    /// The bytes of output `i`; none where it is left out.
    #[must_use]
    pub fn output(&self, i: usize) -> &'a [Cell<u8>] {
        self.at(self.outputs, i)
    }

    /// The bytes of temporary memory `k`.
    #[must_use]
    pub fn scratch(&self, k: usize) -> &'a [Cell<u8>] {
        self.at(self.scratch, k)
    }

    fn at(&self, list: &[Address], i: usize) -> &'a [Cell<u8>] {
        list.get(i)
            .map_or(&[], |&address| self.memory.bytes(address))
    }
}

/// The node that a kernel is made for.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    graph: &'a Graph,
    node: NodeId,
    cleared: &'a [Cleared],
}

/// Element type and dimensions of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Type of the elements.
    pub dtype: DType,
    /// Dimensions.
    pub shape: SmallVec<[u64; 4]>,
}

impl Type {
    /// Number of elements; saturated, as the bytes of everything in memory fit in 64 bits.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }
}

impl<'a> Site<'a> {
    /// The node `node` of a graph, for which nobody clears memory.
    #[must_use]
    pub fn new(graph: &'a Graph, node: NodeId) -> Self {
        Site {
            graph,
            node,
            cleared: &[],
        }
    }

    /// The same with memory that others have cleared when the node starts.
    #[must_use]
    pub fn with_cleared(self, cleared: &'a [Cleared]) -> Self {
        Site { cleared, ..self }
    }

    /// Whether output `i` is zero when the node starts. Else a node that adds to it must clear it
    /// itself.
    #[must_use]
    pub fn is_cleared(&self, i: usize) -> bool {
        let value = self.graph.nodes[self.node].output(i);
        value.is_some_and(|v| self.cleared.iter().any(|c| c.value == v))
    }

    /// The node's attributes.
    #[must_use]
    pub fn attrs(&self) -> &'a Attrs {
        &self.graph.nodes[self.node].attrs
    }

    /// Number of input slots.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.graph.nodes[self.node].inputs.len()
    }

    /// Number of output slots.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.graph.nodes[self.node].outputs.len()
    }

    /// Type of input `i`.
    ///
    /// # Errors
    /// When it is left out, or its shape is not known.
    pub fn input(&self, i: usize) -> Result<Type, String> {
        let value = self.graph.nodes[self.node].input(i);
        self.type_of(value, "input", i)
    }

    /// Type of output `i`.
    ///
    /// # Errors
    /// When it is left out, or its shape is not known.
    pub fn output(&self, i: usize) -> Result<Type, String> {
        let value = self.graph.nodes[self.node].output(i);
        self.type_of(value, "output", i)
    }

    fn type_of(
        &self,
        value: Option<tenure_graph::ValueId>,
        what: &str,
        i: usize,
    ) -> Result<Type, String> {
        let value = &self.graph.values[value.ok_or_else(|| format!("{what} {i} is left out"))?];
        let shape = value.shape.as_ref().and_then(|s| s.known());
        Ok(Type {
            dtype: value.dtype,
            shape: shape.ok_or_else(|| format!("the shape of {what} {i} is not known"))?,
        })
    }
}

/// Makes a kernel for a node, or says why it cannot.
pub type Make = fn(&Site<'_>) -> Result<Box<dyn Kernel>, String>;

/// Kernels by the type of the operator.
///
/// ```
/// use tenure_runtime::Kernels;
///
/// let kernels = Kernels::builtin();
/// assert!(kernels.find("Relu").is_some());
/// assert!(kernels.find("NoSuchOperator").is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    by_op: BTreeMap<String, Make>,
}

impl Kernels {
    /// The built-in kernels.
    #[must_use]
    pub fn builtin() -> Self {
        let families = [copies::KERNELS, elementwise::KERNELS, joins::KERNELS];
        let rows = families.into_iter().flatten();
        Kernels {
            by_op: rows.map(|&(op, make)| (op.to_owned(), make)).collect(),
        }
    }

    /// Adds a kernel, which takes the place of the one that the operator had before.
    pub fn add(&mut self, op: impl Into<String>, make: Make) {
        self.by_op.insert(op.into(), make);
    }

    /// What makes kernels for an operator.
    #[must_use]
    pub fn find(&self, op: &str) -> Option<Make> {
        self.by_op.get(op).copied()
    }
}

/// Elements of type float32 in memory.
#[derive(Clone, Copy)]
struct Floats<'a>(&'a [[Cell<u8>; 4]]);

impl<'a> Floats<'a> {
    /// The whole elements in some bytes.
    fn of(bytes: &'a [Cell<u8>]) -> Self {
        Floats(bytes.as_chunks().0)
    }

    fn len(self) -> usize {
        self.0.len()
    }

    fn get(self, i: usize) -> f32 {
        let bytes = self.0.get(i).map(|b| b.each_ref().map(Cell::get));
        f32::from_le_bytes(bytes.unwrap_or_default())
    }

    fn set(self, i: usize, number: f32) {
        let cells = self.0.get(i).into_iter().flatten();
        for (cell, byte) in cells.zip(number.to_le_bytes()) {
            cell.set(byte);
        }
    }
}

/// Refuses everything but float32.
fn float(ty: &Type, what: &str) -> Result<(), String> {
    match ty.dtype {
        DType::F32 => Ok(()),
        other => Err(format!("{what} is of type {other}, and float32 is needed")),
    }
}
