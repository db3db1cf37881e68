//! Typed ids of everything that a graph or a plan numbers.
//!
//! An id is a `u32` index into one table. Its `Display` is the form that the text format and all
//! messages use (`%v12`, `@n3` …), so that a message can be searched for in a dump.

use cranelift_entity::entity_impl;

/// A node of a graph: one operator, or one of the structural nodes that stand for inputs,
/// constants and results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);
entity_impl!(NodeId, "@n");

/// A value: one output of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);
entity_impl!(ValueId, "%v");

/// A subgraph: the root, a branch, a loop body, a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubgraphId(u32);
entity_impl!(SubgraphId, "^g");

/// A storage of a plan: one piece of memory that one or more values live in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(u32);
entity_impl!(StorageId, "$m");

/// A stream: an in-order queue of work. Streams are numbered by the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);
entity_impl!(StreamId, "~s");
