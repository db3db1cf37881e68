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
//! assert_eq!(guarded.graph.nodes.len(), 3);
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
mod options;
pub mod passes;
pub mod read_write;
pub mod storage;
pub mod values;
mod work;

pub use error::GuardError;
pub use finding::{Finding, Kind};
pub use options::Options;

use tenure_graph::Graph;
use tenure_graph::patch::Log;

/// A graph after a pass, and what the pass did.
#[derive(Clone, Debug, PartialEq)]
pub struct Guarded {
    /// The graph.
    pub graph: Graph,
    /// The edits, one line each with its reason.
    pub log: Log,
    /// What was found; where something was done about it, with the repair.
    pub findings: Vec<Finding>,
}

impl Guarded {
    /// A graph to which nothing was done yet.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        Guarded {
            graph: graph.clone(),
            log: Log::default(),
            findings: Vec::new(),
        }
    }

    /// Adds what a further pass did to the graph.
    pub fn then(&mut self, next: Guarded) {
        self.graph = next.graph;
        self.log.lines.extend(next.log.lines);
        self.findings.extend(next.findings);
    }
}
