//! The plan and what it is made of: the types that planner, checker, report and runtime hand on.

use cranelift_entity::PrimaryMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{NodeId, StorageId, StreamId, ValueId};

/// A set of steps from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First step.
    pub first: u32,
    /// Last step.
    pub last: u32,
}

/// The steps at which something is alive: ascending, disjoint spans.
pub type Life = SmallVec<[Span; 1]>;

/// Everything that is needed to run a model in planned memory, with no knowledge of how it was
/// found.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The options that decide what the plan means.
    pub options: PlanOptions,
    /// One region of memory each.
    pub arenas: Vec<Arena>,
    /// The order in which everything runs; a step's number is its place in this list.
    pub steps: Vec<Step>,
    /// What lies where.
    pub storages: PrimaryMap<StorageId, Storage>,
    /// Copies that the model does not have and that make sharing safe.
    pub copies: Vec<Copy>,
    /// Nodes whose results are computed once at load time.
    pub folded: Vec<NodeId>,
    /// Values whose size is not known before the run; they have no storage.
    pub dynamic: Vec<ValueId>,
    /// How the offsets were found.
    pub strategy: String,
}

/// What the user asked for, as far as it decides what a right plan is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Alignment of every offset in bytes, a power of two.
    pub align: u64,
    /// Where graph inputs live.
    pub inputs: Placement,
    /// Where graph outputs live.
    pub outputs: Placement,
    /// Whether planned inputs keep their bytes to the end.
    pub keep_inputs: bool,
    /// Whether nodes that depend on constants alone are computed at load time.
    pub fold: bool,
    /// What may share memory.
    pub sharing: Sharing,
    /// Node names or operator types whose memory is shared with nobody.
    pub no_reuse: Vec<String>,
}

impl Default for PlanOptions {
    /// The defaults of the command line.
    fn default() -> Self {
        PlanOptions {
            align: 64,
            inputs: Placement::Planned,
            outputs: Placement::Planned,
            keep_inputs: false,
            fold: true,
            sharing: Sharing::Full,
            no_reuse: Vec::new(),
        }
    }
}

/// Where inputs or outputs of the graph live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Inside the arena.
    Planned,
    /// In the caller's memory; inputs there are never written.
    User,
}

/// How much may share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// A storage a value.
    None,
    /// Views share their source's storage.
    Views,
    /// Views, updates in place, and values handed over at the borders of subgraphs.
    Full,
}

/// One contiguous region of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arena {
    /// Memory kind: `device` is the default.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Alignment of its base: the strictest of all that lies in it.
    pub align: u64,
    /// Maximum load: no plan of these storages is smaller.
    pub lower_bound: u64,
    /// Whether `size` is proven the least.
    pub proven_optimal: bool,
    /// What the same storages need side by side.
    pub no_reuse: u64,
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A node without bodies runs, or the output node of a subgraph hands its results over.
    Run,
    /// A node with bodies begins: it reads its inputs, and [`crate::control::Point::Begin`]
    /// transfers happen.
    Begin,
    /// Body `k` is entered.
    Enter(u32),
    /// A node with bodies ends: all its outputs are complete.
    End,
}

/// One entry of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node.
    pub node: NodeId,
    /// What happens to it.
    pub phase: Phase,
    /// The stream that it runs on.
    pub stream: Option<StreamId>,
}

/// One piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Where it is.
    pub place: Place,
    /// Bytes, rounded up to the plan's alignment.
    pub size: u64,
    /// Alignment of the offset in bytes.
    pub align: u64,
    /// When it is held.
    pub life: Life,
    /// What lives in it, in order of first use.
    pub members: SmallVec<[Member; 1]>,
}

/// Where a storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an arena.
    Arena {
        /// Which one.
        arena: u32,
        /// First byte.
        offset: u64,
    },
    /// Memory of its own that the caller owns (`--inputs user`, `--outputs user`).
    Caller,
}

/// Something that lives in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is.
    pub item: Item,
    /// Its first byte inside the storage.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What can live in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Item {
    /// A value.
    Value(ValueId),
    /// Temporary memory `k` of a node.
    Workspace(NodeId, u32),
    /// Copy number `k` of [`Plan::copies`].
    Copy(u32),
}

/// A copy of a value for one reader, made right before that reader runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// What is copied.
    pub value: ValueId,
    /// Who reads the copy in place of the value.
    pub reader: NodeId,
    /// Which of its inputs.
    pub input: u32,
    /// Why.
    pub reason: String,
}
