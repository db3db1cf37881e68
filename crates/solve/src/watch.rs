//! How a caller looks on while a search runs, and ends it.

use std::sync::atomic::AtomicBool;

use crate::strategy::Strategy;

/// What is known at some moment of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The least height found so far, in bytes.
    pub height: u64,
    /// A height that no placement can beat, in bytes.
    pub lower_bound: u64,
    /// What found the placement.
    pub strategy: Strategy,
}

/// Hooks into a running search; none by default.
#[derive(Clone, Copy, Default)]
pub struct Watch<'a> {
    /// Called on the thread of the caller when the height or the bound gets better.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// The search ends soon after this becomes true, with the best placement so far.
    pub cancel: Option<&'a AtomicBool>,
}
