//! The ONNX frontend: a protobuf `ModelProto` becomes a graph.
//!
//! What a reader of the graph sees:
//!
//! - Local functions are gone: each call is replaced by the function's nodes, called
//!   `CALL/INNER`. Where the function's operator sets are not the model's, they say so under the
//!   key [`tenure_graph::OPSET`].
//! - Nodes that the file leaves without a name are called `OP_POSITION`. A name that comes twice
//!   gets `_2`, `_3` …; subgraphs have names that are unique in the model and hold no `/`, so
//!   that labels are unique.
//! - Names of values are those of the file. An output that only a loop needs, for its state, is
//!   called `NODE:OUT`.
//! - Nodes that stand before what they read are moved behind it.
//! - Weights are slices of the file's bytes or references to other files; none is read.
//!
//! Nodes and the types of values are left encoded and decoded one at a time ([`decode`]), so that a
//! large model is never in memory twice.
//! - The domain `ai.onnx` is written as the empty one, which it means.

mod attrs;
mod build;
mod calls;
mod inline;
mod names;
mod order;
mod partial;
mod scope;
mod tensor;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use build::{MAX_ATTRIBUTES, MAX_INPUTS};
#[cfg(any(test, feature = "testing"))]
pub(crate) use types::element;

use bytes::Bytes;
use std::path::Path;
use tenure_graph::Graph;

use crate::error::{FormatError, Problem, quoted, shown};
use crate::generated::onnx as pb;

/// About how many bytes the nodes of inlined functions may take, all calls together: some
/// 400 000 nodes. Functions that call functions grow without bound.
const INLINE_LIMIT: u64 = 1 << 28;

/// Reads an ONNX model. `folder` is where its external data lies; without one, locations are
/// checked by their text alone.
pub(crate) fn read(bytes: Bytes, folder: Option<&Path>) -> Result<Graph, FormatError> {
    let mut model: pb::ModelProto = decode(&bytes).map_err(|problem| match problem {
        Problem::Damaged(detail) => FormatError::Damaged(detail),
        problem => problem.into(),
    })?;
    let graph = model.graph.take().ok_or(Problem::NoGraph)?;
    if graph.node.is_empty() && graph.output.is_empty() {
        return Err(Problem::EmptyGraph.into());
    }
    build::build(&model, graph, folder, INLINE_LIMIT)
}

/// Decodes a message. What it holds of the file's bytes are slices of them.
fn decode<M: prost::Message + Default>(bytes: &Bytes) -> Result<M, Problem> {
    M::decode(bytes.clone()).map_err(|error| {
        let text = error.to_string();
        if text.contains("recursion limit") {
            return Problem::TooDeepToDecode;
        }
        let detail = text.strip_prefix("failed to decode Protobuf message: ");
        Problem::Damaged(detail.unwrap_or(&text).to_owned())
    })
}

/// How messages call a node.
fn node_title(position: usize, node: &pb::NodeProto) -> String {
    if node.name().is_empty() {
        format!("node {position} ({})", shown(node.op_type()))
    } else {
        format!("node {} ({})", quoted(node.name()), shown(node.op_type()))
    }
}

/// The domain that a text means.
fn domain(text: &str) -> &str {
    if text == "ai.onnx" { "" } else { text }
}
