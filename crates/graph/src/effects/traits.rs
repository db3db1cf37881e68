//! What passes ask of an operator beyond its class and its effects: one word a question, so that no
//! pass asks an operator's name.

use serde::Deserialize;

/// One thing that is true of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trait {
    /// Its output is memory of the caller, whose address may be another in each run.
    CallerMemory,
    /// It stores a value in a variable that it reads: an assignment, plain or with an operation.
    Assigns,
    /// It copies its inputs to its outputs, byte by byte, and does nothing else.
    Copies,
    /// A copy that the user asked for: it may be taken out where the value and its copy can be one.
    Moves,
    /// A copy that stands for a read of a variable at this point of the order.
    ReadsVariable,
    /// It hands over an address instead of bytes where the hardware can.
    PassesAddress,
    /// Its inputs and outputs keep the addresses that they had when the model was loaded, whoever
    /// runs it.
    FixedAddress,
    /// Output 0 is input 0 under another shape or name.
    Relabels,
    /// Output 0 is whichever input has come: all inputs and output 0 are one memory.
    Merges,
    /// It waits for one of several streams and hands on what that one made.
    MergesStreams,
    /// It hands its data input on to one of several outputs.
    Switches,
    /// It works on the memory that it reads and hands out, without a task of its own.
    NoTask,
    /// A collective that gives its result in the memory it read; where that is a variable, the
    /// variable has to be written back when the collective worked on a copy.
    WritesBack,
    /// A copy that stands for nothing but the value: it may be taken out, and put in, as memory
    /// needs it.
    Transparent,
    /// It looks at its inputs in a way that is no read and no write: a hint to a cache.
    Hint,
    /// It fills memory with zeros.
    Zeroes,
    /// It marks the graph as one whose loops are made of jumps.
    LoopsByJump,
    /// Devices exchange what it reads and writes, and know where that lies.
    Collective,
    /// It puts its inputs one after the other along an axis.
    Concatenates,
    /// It records an event, for which other streams wait.
    RecordsEvent,
    /// It waits for an event.
    WaitsForEvent,
}

/// A set of [`Trait`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u32);

impl Traits {
    /// Whether the set holds a trait.
    #[must_use]
    pub const fn has(self, which: Trait) -> bool {
        self.0 & bit(which) != 0
    }

    /// Takes a trait out of the set.
    pub(super) const fn take_out(&mut self, which: Trait) {
        self.0 &= !bit(which);
    }
}

impl FromIterator<Trait> for Traits {
    fn from_iter<I: IntoIterator<Item = Trait>>(traits: I) -> Self {
        Traits(traits.into_iter().fold(0, |set, t| set | bit(t)))
    }
}

const fn bit(which: Trait) -> u32 {
    1 << which as u32
}
