//! What operators compute, and the registry that finds it by the operator's domain and type.
//!
//! A kernel is made once for a node, when types and shapes are known, and then run any number of
//! times. It reads and writes where the plan says, and nowhere else. An output may be the very
//! bytes of an input where the operator's row, or the model's file, allows it: a kernel that can
//! work so says it, for all others the input is copied first.
//!
//! A family of operators is a file. Kernels are closures as a rule: what they need of the node is
//! worked out once, and what they capture is all that they use in a run. They allocate nothing
//! then.

mod accumulate;
mod algebra;
mod attention;
mod binary;
mod cast;
mod conv;
mod copies;
mod direct;
mod element;
mod generate;
mod index;
mod joins;
mod layout;
pub mod library;
mod loss;
mod matmul;
mod norm;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod regions;
mod resize;
mod signal;
pub mod sizes;
mod small;
mod strided;
mod unary;
mod vision;
mod window;

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tenure_graph::effects::Cleared;
use tenure_graph::plan::Item;
use tenure_graph::{Attr, Attrs, DType, Dialect, Graph, NodeId, ValueId};

pub use crate::memory::Call;

/// What one node computes. A program on several streams runs it on the thread of its stream.
pub trait Kernel: Send {
    /// Reads the inputs and writes the outputs.
    ///
    /// # Errors
    /// What is wrong with the values that it reads.
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String>;

    /// Whether the kernel is right when input `input` is the very bytes of output `output`.
    fn may_be_over(&self, input: usize, output: usize) -> bool {
        let _ = (input, output);
        false
    }
}

/// A kernel, or why there is none for the node.
pub type Made = Result<Box<dyn Kernel>, String>;

/// A kernel without memory of its own, or with what it captures.
struct Plain<F>(F);

impl<F: FnMut(&mut Call<'_>) -> Result<(), String> + Send> Kernel for Plain<F> {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        (self.0)(call)
    }
}

/// Makes a kernel of a closure that needs its inputs apart from its outputs.
fn kernel(run: impl FnMut(&mut Call<'_>) -> Result<(), String> + Send + 'static) -> Made {
    Ok(Box::new(Plain(run)))
}

/// A kernel some of whose inputs have no elements, so that it may have nothing to write: what it does
/// not write is 0, and not what was there.
struct OfNothing {
    kernel: Box<dyn Kernel>,
    outputs: usize,
}

impl Kernel for OfNothing {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        for output in 0..self.outputs {
            call.write::<u8>(output).fill(0);
        }
        self.kernel.run(call)
    }
}

/// Makes the kernel of a node.
pub(crate) fn make(maker: &Maker, site: &Site<'_>) -> Made {
    let kernel = maker(site)?;
    let is_empty = |value: &Option<ValueId>| {
        let shape = value.and_then(|v| site.graph.values[v].shape.as_ref()?.known());
        shape.is_some_and(|dims| dims.contains(&0))
    };
    let node = &site.graph.nodes[site.node];
    let outputs = node.outputs.len();
    // Operators of Graph Engine may add to what is there.
    let is_onnx = site.graph.dialect == Dialect::Onnx;
    if is_onnx && node.inputs.iter().any(is_empty) && !node.outputs.iter().all(is_empty) {
        return Ok(Box::new(OfNothing { kernel, outputs }));
    }
    Ok(kernel)
}

/// A kernel whose output 0 may be written over some inputs.
struct Over<F>(&'static [usize], F);

impl<F: FnMut(&mut Call<'_>) -> Result<(), String> + Send> Kernel for Over<F> {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        (self.1)(call)
    }

    fn may_be_over(&self, input: usize, output: usize) -> bool {
        output == 0 && self.0.contains(&input)
    }
}

/// Makes a kernel of a closure whose output 0 may be the very bytes of any of `inputs`.
fn kernel_over(
    inputs: &'static [usize],
    run: impl FnMut(&mut Call<'_>) -> Result<(), String> + Send + 'static,
) -> Made {
    Ok(Box::new(Over(inputs, run)))
}

/// The node that a kernel is made for.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    graph: &'a Graph,
    node: NodeId,
    cleared: &'a [Cleared],
}

/// Dimensions of a tensor.
pub type Dims = SmallVec<[usize; 6]>;

/// Element type and dimensions of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Type of the elements.
    pub dtype: DType,
    /// Dimensions.
    pub dims: Dims,
}

impl Type {
    /// Number of elements; saturated, as everything in memory has fewer.
    #[must_use]
    pub fn elements(&self) -> usize {
        product(&self.dims)
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The axis that a number means: those below 0 count from the back.
    ///
    /// # Errors
    /// When there is no such axis.
    pub fn axis(&self, axis: i64) -> Result<usize, String> {
        axis_of(axis, self.rank())
    }

    /// Bytes of one element.
    ///
    /// # Errors
    /// For types whose elements are no whole bytes.
    pub fn item(&self) -> Result<usize, String> {
        let bits = self.dtype.bits().filter(|bits| bits % 8 == 0);
        bits.and_then(|bits| usize::try_from(bits / 8).ok())
            .ok_or_else(|| format!("elements of type {} are no whole bytes", self.dtype))
    }

    /// Refuses results whose elements are not as large as the model says.
    fn holds<T>(&self) -> Result<(), String> {
        if self.item()? == size_of::<T>() {
            return Ok(());
        }
        Err(format!(
            "its results are of {} bytes each, and the model says {}",
            size_of::<T>(),
            self.dtype
        ))
    }
}

/// Product of some dimensions, 0 as soon as one is; saturated.
fn product(dims: &[usize]) -> usize {
    if dims.contains(&0) {
        return 0;
    }
    dims.iter().fold(1, |n, &d| n.saturating_mul(d))
}

/// The axis of `rank` ones that a number means: those below 0 count from the back.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let from_front = if axis < 0 {
        axis.saturating_add(signed)
    } else {
        axis
    };
    let found = usize::try_from(from_front).ok().filter(|&a| a < rank);
    found.ok_or_else(|| format!("there is no axis {axis} of {rank}"))
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

    /// Name of the node, as the model has it.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.graph.nodes[self.node].name
    }

    /// Whether output `i` is zero when the node starts. Else a node that adds to it must clear it
    /// itself.
    #[must_use]
    pub fn is_cleared(&self, i: usize) -> bool {
        let value = self.graph.nodes[self.node].output(i);
        value.is_some_and(|v| self.cleared.iter().any(|c| c.item == Item::Value(v)))
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
        let shape = shape.ok_or_else(|| format!("the shape of {what} {i} is not known"))?;
        let dims: Result<Dims, _> = shape.iter().map(|&d| usize::try_from(d)).collect();
        Ok(Type {
            dtype: value.dtype,
            dims: dims.map_err(|_| format!("{what} {i} is too large for this machine"))?,
        })
    }

    /// Type of input `i`; `None` where it is left out.
    ///
    /// # Errors
    /// When its shape is not known.
    pub fn optional(&self, i: usize) -> Result<Option<Type>, String> {
        match self.graph.nodes[self.node].input(i) {
            Some(_) => self.input(i).map(Some),
            None => Ok(None),
        }
    }

    /// Whether output `i` is there.
    #[must_use]
    pub fn has_output(&self, i: usize) -> bool {
        self.graph.nodes[self.node].output(i).is_some()
    }

    /// Version of the operator set that the operator is of; the newest where the model does not
    /// say.
    #[must_use]
    pub fn opset(&self) -> i64 {
        let node = &self.graph.nodes[self.node];
        self.graph.opset(node).unwrap_or(i64::MAX)
    }

    /// An integer attribute, or its default.
    #[must_use]
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attrs().int(name).unwrap_or(default)
    }

    /// A truth value that is an integer attribute, or its default.
    #[must_use]
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.attrs().int(name).map_or(default, |i| i != 0)
    }

    /// A number, or its default. Attributes of ONNX are float32.
    #[must_use]
    pub fn float(&self, name: &str, default: f64) -> f64 {
        let given = self.attrs().get(name).and_then(Attr::as_float);
        given.unwrap_or(default)
    }

    /// Text, or its default.
    #[must_use]
    pub fn text(&self, name: &str, default: &'static str) -> &'a str {
        self.attrs().str(name).unwrap_or(default)
    }

    /// A list of integers; `None` where the attribute is left out.
    #[must_use]
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attrs().ints(name)
    }
}

/// A row of a family's table: what makes a kernel for a node, or says why it cannot.
pub type Make = fn(&Site<'_>) -> Made;

/// The same, with what it captures.
pub type Maker = dyn Fn(&Site<'_>) -> Made + Send + Sync;

/// Kernels by domain and type of the operator.
///
/// ```
/// use tenure_runtime::Kernels;
///
/// let kernels = Kernels::builtin();
/// assert!(kernels.find("", "Relu").is_some());
/// assert!(kernels.find("", "NoSuchOperator").is_none());
/// ```
#[derive(Clone, Default)]
pub struct Kernels {
    by_op: BTreeMap<String, Entry>,
}

/// What makes kernels for an operator.
#[derive(Clone)]
struct Entry {
    make: Arc<Maker>,
    /// Whether a user has added it.
    added: bool,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.operators()).finish()
    }
}

/// The name that an operator of a domain is found by.
fn key(domain: &str, op: &str) -> String {
    match domain {
        "" | "ai.onnx" => op.to_owned(),
        _ => format!("{domain}:{op}"),
    }
}

impl Kernels {
    /// The built-in kernels.
    #[must_use]
    pub fn builtin() -> Self {
        let families = [
            accumulate::KERNELS,
            algebra::KERNELS,
            attention::KERNELS,
            binary::KERNELS,
            cast::KERNELS,
            conv::KERNELS,
            copies::KERNELS,
            generate::KERNELS,
            index::KERNELS,
            joins::KERNELS,
            layout::KERNELS,
            loss::KERNELS,
            matmul::KERNELS,
            norm::KERNELS,
            pool::KERNELS,
            quantize::KERNELS,
            recurrent::KERNELS,
            reduce::KERNELS,
            regions::KERNELS,
            resize::KERNELS,
            signal::KERNELS,
            unary::KERNELS,
            vision::KERNELS,
        ];
        let rows = families.into_iter().flatten();
        Kernels {
            by_op: rows
                .map(|&(op, make)| {
                    let (make, added) = (Arc::new(make), false);
                    (op.to_owned(), Entry { make, added })
                })
                .collect(),
        }
    }

    /// Adds a kernel, which takes the place of the one that the operator had before. The domain is
    /// `""` for the default one.
    pub fn add(
        &mut self,
        domain: &str,
        op: &str,
        make: impl Fn(&Site<'_>) -> Made + Send + Sync + 'static,
    ) {
        let (make, added) = (Arc::new(make), true);
        self.by_op.insert(key(domain, op), Entry { make, added });
    }

    /// What makes kernels for an operator.
    #[must_use]
    pub fn find(&self, domain: &str, op: &str) -> Option<&Maker> {
        self.by_op.get(&key(domain, op)).map(|entry| &*entry.make)
    }

    /// The same, to keep.
    pub(crate) fn maker(&self, domain: &str, op: &str) -> Option<Arc<Maker>> {
        let entry = self.by_op.get(&key(domain, op));
        entry.map(|entry| Arc::clone(&entry.make))
    }

    /// Whether the kernel of an operator was [added](Kernels::add), and is not built in.
    #[must_use]
    pub fn is_added(&self, domain: &str, op: &str) -> bool {
        self.by_op.get(&key(domain, op)).is_some_and(|e| e.added)
    }

    /// All operators that there are kernels for, those of the default domain without a domain.
    pub fn operators(&self) -> impl Iterator<Item = &str> {
        self.by_op.keys().map(String::as_str)
    }
}
