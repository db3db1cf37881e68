//! Offsets that a compiled model carries: the plan of whoever compiled it.

use crate::{NodeId, ValueId};

/// A plan as the file of a compiled model records it: a place for each buffer, and nothing else.
///
/// Nothing of it is believed: places that make no sense are for the checker to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Bytes of each kind of memory (the kinds of [`crate::effects::demands`]), where the file says
    /// so.
    pub sizes: Vec<(i64, u64)>,
    /// Bytes at the end of ordinary memory that stand for inputs and outputs of the caller, where
    /// the file says so.
    pub zero_copy: Option<u64>,
    /// Where values lie: first byte, in the memory of their kind.
    pub values: Vec<(ValueId, u64)>,
    /// Where workspaces lie, by node and place among those that take bytes.
    pub workspaces: Vec<(NodeId, u32, u64)>,
    /// Bytes that a node fills with zeros: first byte and number.
    pub cleared: Vec<(NodeId, u64, u64)>,
}
