//! The vocabulary of tenure and its invariants: graphs, what operators do to memory, plans.
//!
//! | word | meaning |
//! | --- | --- |
//! | *node* | one operator, or a structural node (input, constant, results) |
//! | *value* | one output of one node, written once |
//! | *anchor* | one input or output slot of a node |
//! | *effect* | what a node does to the memory of its anchors |
//! | *storage* | one piece of memory that one or more values live in; what is placed |
//! | *step* | position in the schedule; steps of a subgraph lie inside their owner's |
//! | *life* | the steps at which a storage is held, from the start of its first writer to the end of its last reader |
//! | *arena* | one contiguous region of memory |
//! | *load* | bytes alive at a step; its maximum is the lower bound of any plan |
//! | *plan* | schedule, storages, offsets, copies: enough to run |
//!
//! This crate reads no files and prints nothing.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary_graph;
mod attr;
pub mod changes;
pub mod control;
mod dim;
pub mod dim_expr;
mod dtype;
pub mod effects;
mod element_type;
mod elements;
pub mod events;
pub mod identity;
mod ids;
mod ir;
pub mod json;
pub mod link;
pub mod patch;
pub mod plan;
pub mod plan_file;
pub mod recorded;
pub mod shapes;
pub mod tensor_kinds;
pub mod text;
pub mod verify;
mod words;

pub use attr::{Attr, Attrs, INLINE_BYTES, Tensor, TensorData};
pub use cranelift_entity as entity;
pub use dim::{Dim, Shape};
pub use dtype::{DType, UnknownDType};
pub use element_type::ElementType;
pub use identity::{canonical, identity};
pub use ids::{NodeId, StorageId, StreamId, SubgraphId, ValueId};
pub use ir::{
    Body, CONST_OP, Dialect, Graph, INPUT_OP, Node, OPSET, OUTPUT_OP, OutputHints, Subgraph, Value,
};
pub use link::{LinkError, LinkProblem, Place};
pub use verify::verify;
pub use words::Words;
