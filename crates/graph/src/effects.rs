//! What operators do to memory: the one table that passes, planner and checker ask.
//!
//! A row says which class an operator has, which outputs are views of which inputs, which inputs
//! an output may be written over, which inputs it asks only for their shape, what scratch it
//! needs. [`OpTable::effects`] applies the row to one node, together with what the model's file
//! says of that node's own outputs (references, in-place hints, workspaces).
//!
//! An operator without a row is safe: it reads all inputs, makes fresh outputs, needs no scratch.

use smallvec::SmallVec;

/// What kind of thing a node is to the flow of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpClass {
    /// Reads inputs, writes outputs.
    Compute,
    /// Stands for an input of its subgraph.
    Input,
    /// A constant: its output lies outside the arena and is never written.
    Constant,
    /// State that is kept from run to run, outside the arena.
    Variable,
    /// Takes the results of its subgraph.
    Output,
    /// Runs exactly one of its bodies (`If`, `Case`).
    Branch,
    /// Runs its one body once (a partition, a function).
    Call,
    /// ONNX `Loop`: inputs are trip count, condition, states; the body takes counter, condition,
    /// states and gives condition, states, one slice of each collected output.
    Loop,
    /// ONNX `Scan`: the first inputs are states, the others are cut into slices.
    Scan,
    /// `While`: bodies `cond` and `body`, all inputs are states.
    While,
    /// Runs its bodies in some way of its own, any number of times.
    Opaque,
}

impl OpClass {
    /// Whether a body of such a node may run more than once.
    #[must_use]
    pub const fn repeats(self) -> bool {
        matches!(
            self,
            OpClass::Loop | OpClass::Scan | OpClass::While | OpClass::Opaque
        )
    }
}

/// What one node does to memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    /// What kind of node it is.
    pub class: OpClass,
    /// Whether a row was found for the operator.
    pub known: bool,
    /// Whether running it twice on the same inputs gives the same outputs and nothing else
    /// happens, so that it may be computed once at load time when its inputs are constants.
    pub pure: bool,
    /// Outputs that are another name for an input's bytes; nothing is written.
    pub views: SmallVec<[Alias; 1]>,
    /// Outputs that the node writes in an input's memory, always (a reference).
    pub refs: SmallVec<[Alias; 1]>,
    /// Outputs that may be written over an input, in order of preference; the conditions of the
    /// row on type, shape and broadcast hold.
    pub in_place: SmallVec<[Alias; 2]>,
    /// Inputs of which only type and shape are looked at.
    pub shape_only: SmallVec<[u32; 1]>,
    /// Temporary memory.
    pub scratch: SmallVec<[Scratch; 1]>,
}

/// Output `output` has to do with the memory of input `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// Output slot.
    pub output: u32,
    /// Input slot.
    pub input: u32,
}

/// Temporary memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two; 1 where the row says nothing.
    pub align: u64,
}
