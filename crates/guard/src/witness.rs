//! A schedule that goes wrong, step by step: what stands behind a finding.

use std::fmt;

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The label of the node that runs.
    pub node: String,
    /// What it does that matters here; it may be empty.
    pub does: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { node, does } = self;
        match does.as_str() {
            "" => f.write_str(node),
            does => write!(f, "{node} {does}"),
        }
    }
}
