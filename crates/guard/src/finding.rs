//! What the passes found, and what they did about it.

use std::fmt;

use tenure_graph::patch::Line;

use crate::in_place::DECLINED;

/// What kind of danger it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One writes what another still reads.
    ReadWrite,
    /// Two ask of one memory what it cannot be both.
    Layout,
    /// What a subgraph gives back or keeps is overwritten.
    SubgraphIsolation,
    /// A collective writes what it reads.
    CollectiveWrite,
    /// Memory must be zero when a node starts.
    Atomic,
    /// Branches give back different memory for one result.
    BranchMapping,
    /// A stream still reads what another takes over.
    StreamLifetime,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] = [
        Kind::ReadWrite,
        Kind::Layout,
        Kind::SubgraphIsolation,
        Kind::CollectiveWrite,
        Kind::Atomic,
        Kind::BranchMapping,
        Kind::StreamLifetime,
    ];

    /// The name used on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::ReadWrite => "read-write",
            Kind::Layout => "layout",
            Kind::SubgraphIsolation => "subgraph-isolation",
            Kind::CollectiveWrite => "collective-write",
            Kind::Atomic => "atomic",
            Kind::BranchMapping => "branch-mapping",
            Kind::StreamLifetime => "stream-lifetime",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One edit, and the stage that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// What kind of danger the stage looks for.
    pub kind: Kind,
    /// The stage.
    pub stage: &'static str,
    /// The edit.
    pub line: Line,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of danger it is.
    pub kind: Kind,
    /// The stage that found it.
    pub stage: &'static str,
    /// The rule that was broken.
    pub rule: &'static str,
    /// Where: an anchor, in words.
    pub at: String,
    /// Who else is involved, in words; may be empty.
    pub with: String,
    /// What would go wrong.
    pub harm: String,
    /// What was done; may be empty.
    pub repair: String,
    /// The label of the node that was put in, if one was.
    pub by: Option<String>,
    /// Bytes that the repair moves in each run, where their number is known.
    pub bytes: Option<u64>,
}

impl Finding {
    /// Whether it is a conflict that is still there. That two tensors were not merged is none.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.repair.is_empty() && self.rule != DECLINED
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            kind,
            stage,
            rule,
            at,
            with,
            harm,
            repair,
            by,
            bytes,
        } = self;
        write!(f, "{kind} ({stage}, {rule}): {at}")?;
        if !with.is_empty() {
            write!(f, " and {with}")?;
        }
        write!(f, ": {harm}")?;
        if !repair.is_empty() {
            write!(f, "; {repair}")?;
        }
        if let Some(by) = by {
            write!(f, " by {by:?}")?;
        }
        match bytes {
            Some(bytes) => write!(f, " ({bytes} bytes)"),
            None => Ok(()),
        }
    }
}
