//! What can go wrong.

use tenure_graph::patch::PatchError;

/// Why a graph cannot be guarded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GuardError {
    /// The graph contradicts itself, or leaves out what must be known.
    #[error("{at}: {problem}")]
    Malformed {
        /// Where.
        at: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A copy is needed of a tensor whose size is not known in a graph that counts as static.
    #[error(
        "{at}: a copy must stand here, because {reason}; but the tensor has an unknown dimension \
         in a graph that is not marked `dynamic_shape`: mark it, or give the dimension"
    )]
    UnknownSize {
        /// Where the copy would stand.
        at: String,
        /// Why it is needed.
        reason: String,
    },
    /// An edit does not fit the graph: a fault of a pass.
    #[error(transparent)]
    Patch(#[from] PatchError),
}
