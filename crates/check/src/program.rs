//! What each step does to memory, as a list of small operations: the only form in which the
//! simulation sees the plan.
//!
//! The list is static: that a value is handed over without a write is decided by where source and
//! target lie, never by what memory holds at that moment. So what a loop's body may write is known
//! before the body is simulated.

use rustc_hash::FxHashMap;
use tenure_graph::plan::{Item, Span};
use tenure_graph::{StorageId, ValueId};

use crate::violation::Anchor;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The item's bytes must be those of its value.
    Read {
        /// A value, or a copy of one.
        item: Item,
        /// On whose account.
        anchor: Anchor,
    },
    /// All bytes of the item are written. They are then those of its value (garbage for a
    /// workspace), and also those of `carries`, whose bytes were copied.
    Write {
        /// What is written.
        item: Item,
        /// On whose account.
        anchor: Anchor,
        /// What it is a copy of.
        carries: Option<ValueId>,
    },
    /// The item's bytes get its value as one more name; nothing is written.
    Name {
        /// What is named.
        value: ValueId,
        /// On whose account.
        anchor: Anchor,
    },
    /// The bytes from `from` on belong to the value as well: it is longer than what it is a view
    /// of.
    Extend {
        /// What is longer.
        value: ValueId,
        /// Byte of the value at which the part begins that is not in the source.
        from: u64,
        /// On whose account.
        anchor: Anchor,
    },
    /// The item's bytes are garbage from here on.
    Spoil {
        /// A value, or a copy of one.
        item: Item,
    },
    /// A state that no pass reads must still be there at the end of each, or it is lost.
    Keep {
        /// The state.
        value: ValueId,
    },
    /// The storage is held from here on and was not before: what its bytes held is lost.
    Take {
        /// The storage.
        storage: StorageId,
    },
    /// An output that the owner fills bit by bit while its bodies run takes its bytes: what is
    /// there is lost, and what is missing is not read.
    Open {
        /// The output.
        value: ValueId,
        /// On whose account.
        anchor: Anchor,
    },
}

/// A node that runs its bodies any number of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeat {
    /// Its last step.
    pub(crate) end: u32,
    /// Outputs whose bytes must be there at the start of every pass.
    pub(crate) kept: Vec<ValueId>,
}

/// How the walk treats a step beyond its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A node that runs exactly one of so many bodies begins.
    Fork(u32),
    /// One of its bodies is entered: body 0, or a later one.
    Way(u32),
    /// It ends.
    Join(u32),
    /// A node that repeats begins.
    Repeat,
    /// One of its bodies is entered.
    Pass(u32),
    /// It ends.
    Until,
}

/// The operations of a whole plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// All operations, step by step.
    pub(crate) ops: Vec<Op>,
    /// Operations before the first step.
    pub(crate) prologue: Vec<Op>,
    /// First operation of each step, and the end of the last.
    pub(crate) starts: Vec<usize>,
    /// What else happens at steps of nodes with bodies.
    pub(crate) marks: FxHashMap<u32, Mark>,
    /// Nodes that repeat, by their first step.
    pub(crate) repeats: FxHashMap<u32, Repeat>,
    /// Steps at which the workspaces of nodes with bodies must be held.
    pub(crate) held: Vec<(Item, Span)>,
}

impl Program {
    /// The operations of steps `first..end`.
    pub(crate) fn range(&self, first: u32, end: u32) -> &[Op] {
        let at = |step: u32| {
            let start = self.starts.get(step as usize);
            start.copied().unwrap_or(self.ops.len())
        };
        &self.ops[at(first)..at(end).max(at(first))]
    }
}

/// Which names stand for the same bytes in every run, whatever memory does.
///
/// A view has its source's bytes; what is handed into a branch or a call has the bytes of what is
/// handed in; a state that every pass hands on unchanged has those of its start value. Each value
/// has one name for its bytes, the root of its tree in this forest.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    parent: Vec<ValueId>,
    united: usize,
}

impl Names {
    /// Every value has a name of its own.
    pub(crate) fn new(values: impl Iterator<Item = ValueId>) -> Self {
        Names {
            parent: values.collect(),
            united: 0,
        }
    }

    /// How often two trees became one.
    pub(crate) fn united(&self) -> usize {
        self.united
    }

    /// The name of a value's bytes.
    pub(crate) fn of(&mut self, value: ValueId) -> ValueId {
        let mut at = value;
        loop {
            let up = self.parent[at.as_u32() as usize];
            if up == at {
                return at;
            }
            let top = self.parent[up.as_u32() as usize];
            self.parent[at.as_u32() as usize] = top;
            at = top;
        }
    }

    /// `value` has the bytes of `source`, and so has all that has the bytes of `value`.
    pub(crate) fn same(&mut self, value: ValueId, source: ValueId) {
        let (tree, root) = (self.of(value), self.of(source));
        if tree != root {
            self.parent[tree.as_u32() as usize] = root;
            self.united += 1;
        }
    }
}
