//! Graph JSON, format `tenure.graph/1`: read and written.
//!
//! The format is made to be written by hand: nodes name one another, everything that has a usual
//! value may be left out. [`write()`] gives back what [`read`] took in, node by node on a line each;
//! what is unknown here is kept (`extra`, `attrs`), so that a model passes through unharmed.
//!
//! ```
//! let text = r#"{"format": "tenure.graph/1", "name": "relu", "graphs": [{"name": "root", "nodes": [
//!     {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [1, 64]}]},
//!     {"name": "y", "op": "Relu", "inputs": ["x:0"], "outputs": [{"dtype": "float32", "shape": [1, 64]}]},
//!     {"name": "out", "op": "NetOutput", "inputs": ["y:0"]}]}]}"#;
//! let graph = tenure_graph::json::read(text.as_bytes())?;
//! assert_eq!(graph.nodes.len(), 3);
//! assert_eq!(tenure_graph::json::read(tenure_graph::json::write(&graph).as_bytes())?, graph);
//! # Ok::<(), tenure_graph::json::JsonError>(())
//! ```
//!
//! | where | keys |
//! | --- | --- |
//! | file | `format`, `name`, `dialect` (`ge` unless given, `onnx`, `tflite`), `opsets` (list of `{"domain", "version"}`), `options`, `graphs`; all other keys are the user's and are ignored |
//! | graph | `name`, `nodes`; all other keys are attributes |
//! | node | `name`, `op`, `domain`, `inputs`, `outputs`, `control`, `order`, `stream`, `attrs`, `input_attrs`, `subgraphs` (list of `{"role", "graph"}`), `workspace`; all other keys are kept, of which `opset` is the version of the operator's set where it is not the model's |
//! | output | `name` (`NODE:OUT` unless given), `dtype` (`undefined` unless given), `shape` (unknown unless given), `ref_input`, `reuse_input`, `may_inplace`, `size`, `shape_range`, `attrs`; all other keys are kept, of which `element` is type and shape of what is in a sequence or an optional |
//!
//! - The first graph is the root. A node's `order` sorts the nodes of its graph (a node without
//!   one counts as its position); written is the order that results, without the key.
//! - `stream` is 0 unless given, -1 is none. `Data`, `Const` and `NetOutput` run nothing and are
//!   on none unless given.
//! - An input is `"NODE:OUT"`, split at the last colon, or `null` (left out), or, of a graph around
//!   this one, `{"graph": GRAPH, "value": "NODE:OUT"}`. An output left out is `null`.
//! - A dimension is a number, a formula of free dimensions (`"past + 1"`), or unknown: -1 or
//!   `null`.
//! - Attributes are JSON values. What JSON lacks is an object of one key: `{"tensor": {"dtype",
//!   "shape", "data"}}` where `data` is the list of elements, their little-endian bytes in
//!   hexadecimal, or `null` for contents left out (or instead of `data` an `external` with
//!   `location`, `offset`, `length`); `{"bytes": HEX}`; `{"float": "nan" | "inf" | "-inf"}`. An
//!   object that only looks like one of these stands inside `{"map": …}`.
//! - Contents of tensors of more than [`INLINE_BYTES`](crate::INLINE_BYTES) are not written.

mod attr;
mod near;
mod read;
mod write;

pub use near::misspelt_keys;
pub use read::read;
pub use write::{write, write_to};

use crate::link::LinkError;
use crate::verify::Broken;

/// The value of the key `format`.
pub const FORMAT: &str = "tenure.graph/1";

/// Why a file is no graph.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// No JSON, or a value of the wrong kind; says where.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    /// JSON of another format.
    #[error("\"format\" is {0:?}, expected {FORMAT:?}")]
    Format(String),
    /// Names that do not fit together.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A graph that breaks rules of [`crate::verify()`](mod@crate::verify).
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<Broken>),
}

#[cfg(test)]
mod tests;
