//! Shape inference: the type and shape of every value, from the shapes of the inputs.
//!
//! [`infer`] puts the values of free dimensions ([`Bindings`]) in wherever the model names them,
//! then walks the graph in execution order and asks one rule per operator. What it finds is
//! written into the graph; sizes that stay free are formulas of the model's own names, or
//! unknown.
//!
//! - `bindings`: what the user says of free dimensions, and which are left;
//! - `fact`: what is known of one value during the walk;
//! - `walk`: the order of the walk, and how the file's own shapes are used;
//! - `control`: branches, loops and scans;
//! - `context`, `adapter`: what a rule sees of its node, and the guarded call of a foreign rule;
//! - `rules`: operator by operator. This is the one place where operator names meet shapes.
//!
//! Shapes the file declares are used where inference knows less, and compared where both know.
//! Graphs of the other dialects carry their shapes themselves; there only the names are replaced.

mod adapter;
mod bindings;
mod context;
mod control;
mod fact;
mod rules;
#[cfg(test)]
mod tests;
mod walk;
mod warning;

pub use bindings::{BindingError, Bindings, FreeDim};
pub use warning::ShapeWarning;

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

use crate::effects::OpTable;
use crate::{Dialect, Graph, ValueId};
use bindings::Resolved;

/// A graph whose types and shapes are filled in as far as they can be known.
#[derive(Clone, Debug)]
pub struct ShapedGraph {
    /// The graph. A dimension is a formula only of names that the model uses.
    pub graph: Graph,
    /// Contents of values that are known integers.
    pub contents: Contents,
    /// What looked wrong on the way, in execution order.
    pub warnings: Vec<ShapeWarning>,
    /// Dimensions of the graph's inputs that have no value, in the order of the inputs; a name
    /// stands once.
    pub free: Vec<FreeDim>,
}

/// Known contents of small integer and truth-value tensors of rank 0 and 1.
#[derive(Clone, Debug, Default)]
pub struct Contents(FxHashMap<ValueId, Box<[i64]>>);

impl Contents {
    /// The elements of a value; `None` when they are not known before the run.
    #[must_use]
    pub fn get(&self, value: ValueId) -> Option<&[i64]> {
        self.0.get(&value).map(|c| &**c)
    }
}

/// Why shapes cannot be inferred at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A dimension that the user names is wrong.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// A tensor is larger than any memory.
    #[error("value {value:?} of shape {shape} and type {dtype} takes more than 2^64 - 1 bytes")]
    TooLarge {
        /// Label of the value.
        value: String,
        /// Its shape.
        shape: String,
        /// Its element type.
        dtype: crate::DType,
    },
}

/// Fills in types and shapes.
///
/// # Errors
///
/// When a binding names a dimension that the model does not have or contradicts it, and when a
/// tensor's size does not fit in 64 bits. Everything else that is wrong is a warning, and the
/// value in question keeps its declared shape or stays dynamic.
///
/// ```
/// use tenure_graph::effects::OpTable;
/// use tenure_graph::shapes::{Bindings, infer};
/// use tenure_graph::{DType, Dialect, Dim, Graph, Shape};
///
/// let mut graph = Graph::new("g", Dialect::Onnx, "main");
/// let shape = Shape::from_iter([Dim::parse("batch"), Dim::Known(8)]);
/// let x = graph.add_input(graph.root, "x", DType::F32, Some(shape));
/// let relu = graph.add_node(graph.root, "relu", "Relu");
/// graph.nodes[relu].inputs.push(Some(x));
/// let y = graph.add_output(relu, "y", DType::Unknown, None);
/// graph.add_results(graph.root, "results", [Some(y)]);
///
/// let table = OpTable::builtin(Dialect::Onnx);
/// let shaped = infer(graph.clone(), &table, &Bindings::default()).unwrap();
/// assert_eq!(shaped.free[0].to_string(), "batch (--dim batch=N)");
/// let shaped = infer(graph, &table, &Bindings::parse(["batch=4"]).unwrap()).unwrap();
/// assert_eq!(shaped.graph.bytes(y), Some(128));
/// ```
pub fn infer(
    graph: Graph,
    table: &OpTable,
    bindings: &Bindings,
) -> Result<ShapedGraph, ShapeError> {
    infer_for(graph, table, bindings, &BTreeMap::new())
}

/// Puts the values of free dimensions in, and infers nothing; returns the dimensions of the graph's
/// inputs that are left, in the order of the inputs.
///
/// # Errors
///
/// When a binding names a dimension that the model does not have or contradicts it.
///
/// ```
/// use tenure_graph::shapes::{Bindings, bind};
/// use tenure_graph::{DType, Dialect, Dim, Graph, Shape};
///
/// let mut graph = Graph::new("g", Dialect::Onnx, "main");
/// let shape = Shape::from_iter([Dim::parse("batch"), Dim::parse("2 * n")]);
/// let x = graph.add_input(graph.root, "x", DType::F32, Some(shape));
/// let free = bind(&mut graph, &Bindings::parse(["n=4"])?)?;
/// assert_eq!(graph.values[x].shape.as_ref().unwrap().to_string(), "[batch, 8]");
/// assert_eq!(free[0].option("1"), "--dim batch=1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bind(graph: &mut Graph, bindings: &Bindings) -> Result<Vec<FreeDim>, BindingError> {
    Resolved::new(graph, bindings)?.substitute(graph);
    Ok(bindings::free_dims(graph))
}

/// The same for a run whose inputs are known: integers that are given for an input of the graph,
/// by its name, count as known contents. What follows from them holds for this run alone.
///
/// # Errors
///
/// As [`infer`].
pub fn infer_for(
    mut graph: Graph,
    table: &OpTable,
    bindings: &Bindings,
    given: &BTreeMap<String, Vec<i64>>,
) -> Result<ShapedGraph, ShapeError> {
    let resolved = Resolved::new(&graph, bindings)?;
    resolved.substitute(&mut graph);
    if graph.dialect != Dialect::Onnx {
        walk::check_sizes(&graph)?;
        return Ok(ShapedGraph {
            graph,
            contents: Contents::default(),
            warnings: Vec::new(),
            free: Vec::new(),
        });
    }
    let free = bindings::free_dims(&graph);
    let (facts, warnings) = walk::run(&graph, table, given);
    let contents = walk::write_back(&mut graph, facts);
    walk::check_sizes(&graph)?;
    Ok(ShapedGraph {
        graph,
        contents: Contents(contents),
        warnings,
        free,
    })
}
