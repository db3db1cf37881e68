//! The plan and what it is made of: the types that planner, checker, report and runtime hand on.

use cranelift_entity::PrimaryMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::effects::Run;
use crate::{Graph, NodeId, StorageId, StreamId, ValueId};

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
    /// What waits for what on another stream, ascending; empty where all is on one.
    pub waits: Vec<Wait>,
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
    /// Node names or operator types whose memory is shared with nobody; [`ALL_NODES`] is all.
    pub no_reuse: Vec<String>,
    /// How much memory a value gets for its bytes.
    #[serde(default, skip_serializing_if = "Sizes::is_raw")]
    pub sizes: Sizes,
    /// Which planned inputs of the graph, by position, lend their memory after their last reader;
    /// the others keep their bytes to the end. `None` is all, or none with `keep_inputs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_inputs: Option<Vec<u32>>,
    /// Which planned outputs of the graph, by position, may lie in memory that others used before;
    /// the others have theirs from the start. `None` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_outputs: Option<Vec<u32>>,
}

/// The entry of [`PlanOptions::no_reuse`] that stands for every node.
pub const ALL_NODES: &str = "*";

/// How much memory a value gets for its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// As many as it has, or as the file asks for if that is more.
    #[default]
    Raw,
    /// What Graph Engine gives it: the size that the file asks for, or else its bytes rounded up to
    /// 32, and 32 more for engines that read past the end.
    Padded,
}

impl Sizes {
    fn is_raw(&self) -> bool {
        *self == Sizes::Raw
    }
}

impl PlanOptions {
    /// Bytes of memory that a value gets; `None` when its size is not known before the run.
    #[must_use]
    pub fn held(&self, graph: &Graph, value: ValueId) -> Option<u64> {
        let bytes = graph.bytes(value)?;
        match (graph.asked_bytes(value), self.sizes) {
            (None, _) if bytes == 0 => Some(0),
            (Some(asked), _) => Some(bytes.max(asked)),
            (None, Sizes::Raw) => Some(bytes),
            (None, Sizes::Padded) => bytes.checked_next_multiple_of(SPARE)?.checked_add(SPARE),
        }
    }

    /// How many bytes behind the start of a value in a run the next one starts; `None` when that
    /// is not known.
    #[must_use]
    pub fn stride(&self, run: Run, graph: &Graph, value: ValueId) -> Option<u64> {
        run.stride(if run.packed {
            graph.bytes(value)?
        } else {
            self.held(graph, value)?
        })
    }

    /// Whether the planned input of the graph at a position keeps its bytes to the end.
    #[must_use]
    pub fn keeps_input(&self, position: usize) -> bool {
        match &self.lent_inputs {
            Some(lent) => !is_listed(lent, position),
            None => self.keep_inputs,
        }
    }

    /// Whether the planned output of the graph at a position has its memory from the start.
    #[must_use]
    pub fn keeps_output(&self, position: usize) -> bool {
        let lent = self.lent_outputs.as_ref();
        lent.is_some_and(|lent| !is_listed(lent, position))
    }

    /// Whether inputs or outputs are in the caller's memory.
    #[must_use]
    pub fn has_callers_memory(&self) -> bool {
        [self.inputs, self.outputs].contains(&Placement::User)
    }

    /// Whether no memory is ever handed on: only what is one value, or written by reference, shares.
    #[must_use]
    pub fn hands_nothing_on(&self) -> bool {
        self.no_reuse.iter().any(|name| name == ALL_NODES)
    }
}

/// Bytes to which Graph Engine rounds sizes up, and which it adds.
const SPARE: u64 = 32;

fn is_listed(list: &[u32], position: usize) -> bool {
    list.iter().any(|&at| at as usize == position)
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
            sizes: Sizes::Raw,
            lent_inputs: None,
            lent_outputs: None,
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

/// A step starts when a step of another stream has ended: that one records an event, and this one
/// waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    /// The step that waits.
    pub step: u32,
    /// The step that has to end before.
    pub before: u32,
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

impl Item {
    /// The node on whose account it is written: the producer, the owner of the workspace, the reader of
    /// the copy. `None` for a copy that is not among `copies`, those of the plan.
    #[must_use]
    pub fn maker(self, graph: &Graph, copies: &[Copy]) -> Option<NodeId> {
        match self {
            Item::Value(value) => Some(graph.values[value].producer),
            Item::Workspace(node, _) => Some(node),
            Item::Copy(k) => copies.get(k as usize).map(|copy| copy.reader),
        }
    }
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
