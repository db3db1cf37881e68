//! The guard: finds every way in which shared memory could corrupt data, and parts what must be
//! parted with few copies.
//!
//! Each pass takes a graph and gives a new one, the log of its edits, each with the reason, and
//! what it found ([`Guarded`]). Edits are made through the patches of `tenure-graph` alone. What an
//! operator does to memory is asked of the operator table, never of the operator's name.
//!
//! ```
//! use tenure_graph::{Dialect, effects::OpTable, json};
//! use tenure_guard::{Options, layout};
//!
//! // A constant may not be the caller's output: the caller would hold the constant's own memory.
//! let graph = json::read(br#"{"format": "tenure.graph/1", "graphs": [{"name": "root", "nodes": [
//!     {"name": "c", "op": "Const", "outputs": [{"dtype": "float32", "shape": [4]}]},
//!     {"name": "out", "op": "NetOutput", "inputs": ["c:0"]}]}]}"#)?;
//! let table = OpTable::builtin(Dialect::Ge);
//! let guarded = layout::resolve(&graph, &table, &Options::of(&graph))?;
//! assert_eq!(guarded.findings[0].rule, "user-output-is-immutable");
//! assert_eq!(guarded.graph(&graph).nodes.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod compile;
pub mod control_flow;
mod error;
mod finding;
pub mod in_place;
pub mod layout;
pub mod lint;
mod names;
mod needless;
mod options;
pub mod passes;
pub mod read_write;
pub mod repairs;
mod state;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod values;
pub mod why;
pub mod witness;
mod work;

pub use error::GuardError;
pub use finding::{Edited, Finding, Kind};
pub use options::Options;

use tenure_graph::Graph;

/// What a pass did to a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guarded {
    /// The new graph; `None` where the pass has nothing to change.
    pub graph: Option<Graph>,
    /// The edits in order, each with its reason.
    pub edits: Vec<Edited>,
    /// What was found; where something was done about it, with the repair.
    pub findings: Vec<Finding>,
}

impl Guarded {
    /// The graph as it is now, when `given` is what the pass was given.
    #[must_use]
    pub fn graph<'a>(&'a self, given: &'a Graph) -> &'a Graph {
        self.graph.as_ref().unwrap_or(given)
    }

    /// The edits in words, a line each.
    #[must_use]
    pub fn log(&self) -> String {
        let lines = self.edits.iter().map(|edit| format!("{}\n", edit.line));
        lines.collect()
    }

    /// Adds what all stages did when they looked at the program again: what was left before and is
    /// not found now is left no more.
    pub(crate) fn then_all(&mut self, next: Guarded) {
        self.findings.retain(|f| !f.repair.is_empty());
        self.then(next);
    }

    /// Adds what a further pass did.
    pub fn then(&mut self, next: Guarded) {
        if next.graph.is_some() {
            self.graph = next.graph;
        }
        self.edits.extend(next.edits);
        self.findings.extend(next.findings);
    }
}
