//! The codes of the lint: stable names, how bad each is, and what each means.

use std::fmt;

use crate::finding::Kind;

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Two accesses to one memory, of which one writes, are in no order.
    UnorderedAccess,
    /// A value is overwritten by a node that does not wait for a later reader.
    OverwriteBeforeRead,
    /// A node writes a constant.
    ConstantWritten,
    /// A collective changes an input that others read.
    CollectiveInputWritten,
    /// One memory is two results.
    SameMemoryTwoOutputs,
    /// A dimension has no upper bound, so the value cannot be planned.
    UnboundedDimension,
    /// A body and the node that runs it give one value two shapes.
    ShapeMismatch,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Worth knowing.
    Note,
    /// Costs something, or hints at a mistake; the guard keeps the result right.
    Warning,
    /// The result is not certain, or the program contradicts itself; only its author can say what
    /// is meant.
    Error,
}

impl Level {
    /// Every level, the mildest first.
    pub const ALL: [Level; 3] = [Level::Note, Level::Warning, Level::Error];

    /// The name used on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 7] = [
        Code::UnorderedAccess,
        Code::OverwriteBeforeRead,
        Code::ConstantWritten,
        Code::CollectiveInputWritten,
        Code::SameMemoryTwoOutputs,
        Code::UnboundedDimension,
        Code::ShapeMismatch,
    ];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Code::UnorderedAccess => "W18888",
            Code::OverwriteBeforeRead => "overwrite-before-read",
            Code::ConstantWritten => "constant-written",
            Code::CollectiveInputWritten => "collective-input-written",
            Code::SameMemoryTwoOutputs => "same-memory-two-outputs",
            Code::UnboundedDimension => "unbounded-dimension",
            Code::ShapeMismatch => "shape-mismatch",
        }
    }

    /// The code of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// How bad it is.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Code::UnorderedAccess | Code::ShapeMismatch => Level::Error,
            Code::OverwriteBeforeRead
            | Code::ConstantWritten
            | Code::CollectiveInputWritten
            | Code::UnboundedDimension => Level::Warning,
            Code::SameMemoryTwoOutputs => Level::Note,
        }
    }

    /// What kind of danger it is, where that does not depend on the nodes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Code::UnorderedAccess | Code::OverwriteBeforeRead | Code::ConstantWritten => {
                Kind::ReadWrite
            }
            Code::CollectiveInputWritten => Kind::CollectiveWrite,
            Code::SameMemoryTwoOutputs | Code::UnboundedDimension => Kind::Layout,
            Code::ShapeMismatch => Kind::SubgraphIsolation,
        }
    }

    /// It in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Code::UnorderedAccess => "Accesses to one memory are in no order",
            Code::OverwriteBeforeRead => "A value is overwritten before its last reader",
            Code::ConstantWritten => "A constant is written",
            Code::CollectiveInputWritten => "A collective leaves garbage where others read",
            Code::SameMemoryTwoOutputs => "One memory is two results",
            Code::UnboundedDimension => "A dimension has no upper bound",
            Code::ShapeMismatch => "A body and its owner disagree on a shape",
        }
    }

    /// What goes wrong.
    #[must_use]
    pub const fn harm(self) -> &'static str {
        match self {
            Code::UnorderedAccess => {
                "Two nodes use one memory and one of them writes, but neither waits for the other: \
                 what is read, or what is left in the memory, depends on which runs first."
            }
            Code::OverwriteBeforeRead => {
                "A node writes over a value that a later node still reads. The guard copies the \
                 value for one of them, which costs time and memory."
            }
            Code::ConstantWritten => {
                "A node writes where a constant lies, so that the next run would read something \
                 else. The guard gives the node a copy, and what it writes is lost after the run."
            }
            Code::CollectiveInputWritten => {
                "A collective leaves garbage in an input that others read. The guard gives it a \
                 copy, which costs time and memory."
            }
            Code::SameMemoryTwoOutputs => {
                "One value is two results of the program, so a caller who writes one result writes \
                 both, unless a copy parts them."
            }
            Code::UnboundedDimension => {
                "A dimension has no upper bound, so the value has no place in a plan and its \
                 memory is found while the program runs."
            }
            Code::ShapeMismatch => {
                "A body declares a value with another shape than the node that runs it: one of the \
                 two reads or writes beyond what the other has made room for."
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Code::UnorderedAccess => {
                "Add a control edge from the one that is to come first to the other, or let one \
                 work on a copy."
            }
            Code::OverwriteBeforeRead => {
                "Let the reader come first, by a control edge to the writer, to save the copy."
            }
            Code::ConstantWritten => {
                "Use a variable if the change is meant to last; else let the node write elsewhere."
            }
            Code::CollectiveInputWritten => {
                "Let the others read before the collective starts, to save the copy."
            }
            Code::SameMemoryTwoOutputs => {
                "Copy the value for one of the results, or tell the caller that the two are one."
            }
            Code::UnboundedDimension => "Give the dimension a value, or a range with an upper end.",
            Code::ShapeMismatch => "Correct the shape on one of the two sides.",
        }
    }

    /// What it means and what to do: [`Code::harm`] and [`Code::remedy`].
    #[must_use]
    pub fn explanation(self) -> String {
        format!("{} {}", self.harm(), self.remedy())
    }
}
