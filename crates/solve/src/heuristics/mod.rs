//! Single-pass placements: an order of the buffers and a rule for where the next one goes.
//!
//! No order is good on all instances, so the [portfolio](crate::portfolio) runs several. All of
//! them are near-linear: they look only at the placed buffers that are alive together with the
//! new one.

pub(crate) mod core;
pub(crate) mod fill;
pub(crate) mod greedy;
pub(crate) mod index;
pub(crate) mod order;
pub(crate) mod peers;
pub(crate) mod repair;
pub(crate) mod sweep;

/// Which of the free places a buffer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fit {
    /// The lowest that is large enough.
    First,
    /// The one that leaves the least room over (the lowest of these); open room at the top last.
    Best,
}
