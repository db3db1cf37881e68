//! What can be wrong with a plan: one variant a broken rule, each with a code that stays the same
//! from version to version.
//!
//! Codes are grouped: `T00x` the plan as such, `T01x` the order, `T02x` and `T03x` where things
//! lie, `T05x` what memory holds, `T07x` what the options forbid.

use std::fmt;
use tenure_graph::plan::{Item, Phase, Sharing};
use tenure_graph::{NodeId, StorageId, ValueId};

/// Something with the name that a reader of the message knows it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    /// Its id in the graph or the plan.
    pub id: T,
    /// What it is and what it is called, such as `value "x"`.
    pub name: String,
}

impl<T> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A step, and the node whose step it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Position in the schedule.
    pub step: u32,
    /// Whose step it is.
    pub node: Named<NodeId>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {}", self.step, self.node)
    }
}

/// One address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// An arena of the plan.
    Arena(u32),
    /// Memory of its own that the caller owns.
    Caller(StorageId),
}

/// Bytes `start..end` of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// Which address space.
    pub memory: Memory,
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

impl Region {
    /// Whether the two have a byte in common.
    #[must_use]
    pub fn meets(&self, other: &Region) -> bool {
        self.memory == other.memory && self.start.max(other.start) < self.end.min(other.end)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            Memory::Arena(k) => write!(f, "bytes {}..{} of arena {k}", self.start, self.end),
            Memory::Caller(s) => {
                write!(
                    f,
                    "bytes {}..{} of the caller's memory {s}",
                    self.start, self.end
                )
            }
        }
    }
}

/// On whose account memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anchor {
    /// Input slot of the step's node.
    Input(u32),
    /// Output slot of the step's node.
    Output(u32),
    /// Temporary memory of the step's node.
    Workspace(u32),
    /// A copy of the plan.
    Copy(u32),
    /// A value that passes from one to the other at the border of a subgraph; the target.
    Handover(ValueId),
    /// A result that the owner of a body reads itself, such as a loop's condition.
    Taken,
    /// What a loop keeps from one pass to the next.
    State,
    /// Memory that must be zero when it is filled.
    Cleared,
    /// A graph input, written before the first step.
    GraphInput,
    /// A graph input that is kept to the end.
    KeptInput,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anchor::Input(k) => write!(f, "input {k}"),
            Anchor::Output(k) => write!(f, "output {k}"),
            Anchor::Workspace(k) => write!(f, "workspace {k}"),
            Anchor::Copy(k) => write!(f, "copy {k}"),
            Anchor::Handover(to) => write!(f, "handed over to {to}"),
            Anchor::Taken => f.write_str("read by the owner"),
            Anchor::State => f.write_str("kept from pass to pass"),
            Anchor::Cleared => f.write_str("cleared memory"),
            Anchor::GraphInput => f.write_str("graph input"),
            Anchor::KeptInput => f.write_str("graph input kept to the end"),
        }
    }
}

/// What lies in bytes that should hold something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing was ever written there.
    Nothing,
    /// The last thing that was written there on at least one way through the graph.
    Item {
        /// What it is.
        item: Named<Item>,
        /// The step that wrote it.
        step: u32,
    },
    /// Their storage was not held before a step, and is taken anew there.
    Lost {
        /// The step.
        step: u32,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Nothing => f.write_str("nothing was written there"),
            Found::Item { item, step } => write!(f, "{item} was written there at step {step}"),
            Found::Lost { step } => write!(
                f,
                "they are not held right before step {step}, so what was there is lost"
            ),
        }
    }
}

/// Why a value lies outside every arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// A constant, or computed from constants at load time.
    Constant,
    /// State that is kept from run to run.
    Variable,
    /// A graph input in the caller's memory.
    CallerInput,
    /// Its size is not known before the run.
    Dynamic,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outside::Constant => "a constant",
            Outside::Variable => "a variable",
            Outside::CallerInput => "an input in the caller's memory",
            Outside::Dynamic => "of a size that is not known before the run",
        })
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An id or index that the graph or the plan does not have.
    #[error(
        "the plan names {what} {index}, but there are {count}: it was made for another graph, or damaged"
    )]
    UnknownId {
        /// What is numbered so.
        what: &'static str,
        /// The number.
        index: u64,
        /// How many there are.
        count: u64,
    },
    /// An alignment that is no power of two, or looser than the plan's.
    #[error("{what} has alignment {align}, which is no power of two of at least {least}")]
    Alignment {
        /// What is aligned so.
        what: String,
        /// The alignment in bytes.
        align: u64,
        /// The least that is allowed.
        least: u64,
    },
    /// Two node results where there can be one, or a list of the plan that names something twice.
    #[error("{what} stands twice in the plan")]
    ListedTwice {
        /// What it is.
        what: String,
    },
    /// A subgraph below the root without output node.
    #[error("subgraph {subgraph:?} has no output node, so its end cannot be told")]
    NoResults {
        /// Name of the subgraph.
        subgraph: String,
    },

    /// A node of a subgraph that runs has no step.
    #[error("{node} has no step in the schedule")]
    StepMissing {
        /// The node.
        node: Named<NodeId>,
    },
    /// A node has more than one step.
    #[error("{site} is not its first: a node runs once in the schedule")]
    StepTwice {
        /// The second one.
        site: Site,
    },
    /// Inputs, constants, variables and folded nodes have no steps.
    #[error(
        "{site} should not be: the node is an input, constant, variable or computed at load time"
    )]
    StepForbidden {
        /// The step.
        site: Site,
    },
    /// The steps of a node with bodies do not stand in the order begin, enter, body …, end.
    #[error("{site} ({phase:?}) stands where {expected} should stand")]
    WrongPhase {
        /// The step.
        site: Site,
        /// What it says it is.
        phase: Phase,
        /// What should stand here.
        expected: String,
    },
    /// A step of one subgraph stands among those of another.
    #[error("{site} stands among the steps of subgraph {found:?}, but belongs to {expected:?}")]
    OutsideBody {
        /// The step.
        site: Site,
        /// The subgraph whose steps stand here.
        found: String,
        /// The node's own subgraph.
        expected: String,
    },
    /// A node runs before one whose output it reads.
    #[error("{site} reads {value} ({anchor}) before {producer} has made it")]
    BeforeProducer {
        /// The reader's step.
        site: Site,
        /// Which input.
        anchor: Anchor,
        /// What it reads.
        value: Named<ValueId>,
        /// Who makes it.
        producer: Named<NodeId>,
    },
    /// A node runs before one that a control edge puts before it.
    #[error("{site} stands before {before}, which a control edge puts before it")]
    BeforeControl {
        /// The later node's step.
        site: Site,
        /// The node that must run before.
        before: Named<NodeId>,
    },
    /// A node reads a value of a subgraph that does not run around it.
    #[error("{site} reads {value} ({anchor}), which lives in a subgraph that is not around it")]
    OutOfScope {
        /// The reader's step.
        site: Site,
        /// Which input.
        anchor: Anchor,
        /// What it reads.
        value: Named<ValueId>,
    },

    /// Something that needs memory has none.
    #[error("{item} needs {bytes} bytes and has no storage")]
    Unplaced {
        /// What has no memory.
        item: Named<Item>,
        /// The bytes that it needs.
        bytes: u64,
    },
    /// One thing lies in two storages.
    #[error("{item} lies in two places, {first} and {second}")]
    PlacedTwice {
        /// What lies there.
        item: Named<Item>,
        /// The first storage.
        first: StorageId,
        /// The second storage; may be the same one.
        second: StorageId,
    },
    /// A value that lives outside every arena has a storage.
    #[error("{value} is {outside} and must have no storage, but lies in {storage}")]
    OutsidePlaced {
        /// The value.
        value: Named<ValueId>,
        /// Why it lives outside.
        outside: Outside,
        /// Where it was put.
        storage: StorageId,
    },
    /// The plan's list of dynamic values is wrong.
    #[error("{value} is {}listed as dynamic, but its size is {}known", if *.listed { "" } else { "not " }, if *.listed { "" } else { "not " })]
    DynamicList {
        /// The value.
        value: Named<ValueId>,
        /// Whether the plan lists it.
        listed: bool,
    },
    /// A member has fewer bytes than it needs.
    #[error("{item} has {bytes} bytes in {storage}, but needs {needs}")]
    MemberTooSmall {
        /// What lies there.
        item: Named<Item>,
        /// The storage.
        storage: StorageId,
        /// Bytes that the plan gives it.
        bytes: u64,
        /// Bytes that it needs.
        needs: u64,
    },
    /// A member does not lie wholly inside its storage.
    #[error("{item} lies at bytes {offset}.. ({bytes} bytes) of {storage}, which has {size} bytes")]
    MemberOutsideStorage {
        /// What lies there.
        item: Named<Item>,
        /// The storage.
        storage: StorageId,
        /// First byte inside the storage.
        offset: u64,
        /// Bytes of the member.
        bytes: u64,
        /// Bytes of the storage.
        size: u64,
    },
    /// A storage does not lie wholly inside its arena.
    #[error(
        "{storage} lies at {offset} ({size} bytes) of arena {arena}, which has {arena_size} bytes"
    )]
    StorageOutsideArena {
        /// The storage.
        storage: Named<StorageId>,
        /// Its arena.
        arena: u32,
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes of the arena.
        arena_size: u64,
    },
    /// Something starts at a byte that is no multiple of the alignment that it needs.
    #[error("{what} starts at byte {offset}, which is no multiple of {align}")]
    Misaligned {
        /// What starts there.
        what: String,
        /// First byte.
        offset: u64,
        /// The alignment that it needs, in bytes.
        align: u64,
    },
    /// The size of a storage is not rounded up.
    #[error("{storage} has {size} bytes, which is no multiple of the plan's alignment {align}")]
    SizeNotRounded {
        /// The storage.
        storage: Named<StorageId>,
        /// Its bytes.
        size: u64,
        /// The plan's alignment.
        align: u64,
    },
    /// An arena claims a lower bound that it disproves.
    #[error(
        "arena {arena} has {size} bytes, less than its lower bound {lower_bound}: one of the two is wrong"
    )]
    LowerBound {
        /// The arena.
        arena: u32,
        /// Its bytes.
        size: u64,
        /// The bound that is claimed.
        lower_bound: u64,
    },
    /// A life that is not made of ascending, disjoint spans inside the schedule.
    #[error("the life of {storage} is not made of ascending, disjoint spans within {steps} steps")]
    BadLife {
        /// The storage.
        storage: Named<StorageId>,
        /// Steps of the schedule.
        steps: u64,
    },
    /// Two storages hold the same bytes at the same time.
    #[error("{first} and {second} are both held at step {step} and share {region}")]
    LivesOverlap {
        /// One storage.
        first: Named<StorageId>,
        /// The other.
        second: Named<StorageId>,
        /// The bytes that they share.
        region: Region,
        /// The first step at which both are held.
        step: u32,
    },
    /// Outputs that the caller owns lie elsewhere, or something else lies in the caller's memory.
    #[error(
        "{what}: with outputs in the caller's memory each graph output has one storage there, and nothing else has"
    )]
    WrongMemory {
        /// What lies where it should not.
        what: String,
    },

    /// A reader finds other bytes than those of the value that it reads.
    #[error(
        "{site} reads {item} ({anchor}) in {region}, but finds other bytes in {wrong}: {found}"
    )]
    WrongBytes {
        /// The reader's step.
        site: Site,
        /// On whose account it reads.
        anchor: Anchor,
        /// What it should find.
        item: Named<Item>,
        /// Where it reads.
        region: Region,
        /// The first of these bytes that are wrong.
        wrong: Region,
        /// What lies there: the intruder.
        found: Found,
    },
    /// A storage is accessed at a step outside its stated life.
    #[error(
        "{site} accesses {item} ({anchor}), but the life of {storage} does not cover that step"
    )]
    LifeTooShort {
        /// The step.
        site: Site,
        /// On whose account.
        anchor: Anchor,
        /// What is accessed.
        item: Named<Item>,
        /// The storage that it lies in.
        storage: StorageId,
    },
    /// A node writes where it reads, and its operator does not allow it.
    #[error(
        "{site} writes {item} in {region} over {value} ({anchor}), which it still reads: the operator does not allow this in place"
    )]
    OverInput {
        /// The node's step.
        site: Site,
        /// What it writes.
        item: Named<Item>,
        /// The bytes written.
        region: Region,
        /// Which input lies there.
        anchor: Anchor,
        /// The value of that input.
        value: Named<ValueId>,
    },
    /// Two outputs or workspaces of one node lie in the same bytes.
    #[error("{site} writes both {first} and {second} in {region}")]
    OutputsOverlap {
        /// The node's step.
        site: Site,
        /// One of them.
        first: Named<Item>,
        /// The other.
        second: Named<Item>,
        /// The bytes that they share.
        region: Region,
    },
    /// Bytes are copied between two places that overlap without being the same.
    #[error(
        "{site} copies {from} in {source_region} to {to} in {region}: the two overlap and are not the same"
    )]
    PartialOverlap {
        /// The step.
        site: Site,
        /// What is copied.
        from: Named<Item>,
        /// From where.
        source_region: Region,
        /// The copy.
        to: Named<Item>,
        /// To where.
        region: Region,
    },
    /// A reference does not lie in the memory of the input that it refers to.
    #[error(
        "{site}: {output} must lie in the memory of {input} ({anchor}), because it is a reference to it"
    )]
    RefElsewhere {
        /// The node's step.
        site: Site,
        /// The reference.
        output: Named<ValueId>,
        /// Which input it refers to.
        anchor: Anchor,
        /// The value of that input.
        input: Named<ValueId>,
    },
    /// A node hands on whichever of its inputs has come, and they are not one memory.
    #[error(
        "{site} hands on whichever of its inputs has come, so all of them must lie in one place, and {item} ({anchor}) does not"
    )]
    NotMerged {
        /// The node's step.
        site: Site,
        /// Which side and slot.
        anchor: Anchor,
        /// What lies elsewhere.
        item: Named<Item>,
    },
    /// A node writes memory that must not be written.
    #[error("{site} writes {output} over {input} ({anchor}), which is {outside}")]
    OutsideWritten {
        /// The node's step.
        site: Site,
        /// What it writes.
        output: Named<ValueId>,
        /// Which input lies there.
        anchor: Anchor,
        /// The value of that input.
        input: Named<ValueId>,
        /// Why it must not be written.
        outside: Outside,
    },

    /// A constant, a variable or the caller's input is left as garbage.
    #[error("{site} leaves garbage in {input} ({anchor}), which is {outside}")]
    OutsideSpoiled {
        /// The node's step.
        site: Site,
        /// Which input lies there.
        anchor: Anchor,
        /// The value of that input.
        input: Named<ValueId>,
        /// Why it must not be written.
        outside: Outside,
    },
    /// A node keeps the addresses that it was loaded with, and one of its tensors is in the caller's
    /// memory, which may be another in each run.
    #[error(
        "{site} keeps the addresses that it was loaded with, but {item} ({anchor}) is in the caller's memory"
    )]
    FixedAtCallers {
        /// The node's step.
        site: Site,
        /// Which of its tensors.
        anchor: Anchor,
        /// What it is.
        item: Named<Item>,
    },
    /// A tensor does not lie right behind the one before it, as its node needs it.
    #[error("{site} needs {item} ({anchor}) right behind the one before it, and it lies elsewhere")]
    NotSideBySide {
        /// The node's step.
        site: Site,
        /// Which input or output.
        anchor: Anchor,
        /// What lies elsewhere.
        item: Named<Item>,
    },
    /// A tensor or workspace lies in memory of another kind than its node needs.
    #[error("{site} needs {item} ({anchor}) in memory of kind {kind:?}, and it lies in {found:?}")]
    WrongKind {
        /// The node's step.
        site: Site,
        /// Which input, output or workspace.
        anchor: Anchor,
        /// What lies elsewhere.
        item: Named<Item>,
        /// The kind that it needs.
        kind: String,
        /// The kind of the arena that it lies in.
        found: String,
    },

    /// Two accesses to the same bytes, of which one writes, may happen in any order: their nodes run
    /// on different streams.
    #[error(
        "{site} {verb} {item} in {region}, and {other} may touch the same bytes before, after or at the same time: neither waits for the other"
    )]
    Unordered {
        /// One step.
        site: Site,
        /// Whether it reads or writes.
        verb: &'static str,
        /// What it reads or writes.
        item: Named<Item>,
        /// The bytes.
        region: Region,
        /// The other step.
        other: Site,
    },
    /// A node does not wait for one on another stream that has to run before it.
    #[error(
        "{site} starts before {before} has certainly ended: they are on different streams, and the plan does not let it wait"
    )]
    NotAwaited {
        /// The step that starts too soon.
        site: Site,
        /// The step that has to end before.
        before: Site,
    },
    /// A step waits for one that does not stand before it.
    #[error("{site} waits for step {before}, which does not stand before it")]
    WaitBehind {
        /// The step that waits.
        site: Site,
        /// What it waits for.
        before: u32,
    },
    /// A collective finds its tensor elsewhere in another gear.
    #[error("{first} and {second} must lie at one place, for a collective of two gears")]
    NotTied {
        /// The value of one gear.
        first: Named<ValueId>,
        /// The value of another.
        second: Named<ValueId>,
    },
    /// So many streams that their order cannot be followed.
    #[error(
        "the plan runs on {streams} streams, which is more than can be followed for so many steps"
    )]
    TooManyStreams {
        /// How many there are.
        streams: u64,
    },

    /// A variable is read or written in another order than the model has.
    #[error(
        "{site} {verb} {variable} after {before} has touched it, which comes later in the model"
    )]
    VariableOrder {
        /// The node's step.
        site: Site,
        /// Whether it reads or writes.
        verb: &'static str,
        /// The variable.
        variable: Named<ValueId>,
        /// The other node.
        before: Named<NodeId>,
    },

    /// Two things share a storage though the options do not let them.
    #[error("{first} and {second} share {storage}, which sharing = {sharing:?} does not allow")]
    ForbiddenSharing {
        /// The storage.
        storage: StorageId,
        /// One of them.
        first: Named<Item>,
        /// The other.
        second: Named<Item>,
        /// What the options say.
        sharing: Sharing,
    },
    /// Memory of a node that shares with nobody is shared.
    #[error("{item} shares {region} with {other}, but its node was named to share with nobody")]
    Reused {
        /// The output or workspace of such a node.
        item: Named<Item>,
        /// What lies in the same bytes at some time.
        other: Named<Item>,
        /// The bytes.
        region: Region,
    },
    /// Memory that must be held from the first step to the last is handed on.
    #[error("{item} must have its memory at every step, and {storage} is held for some only")]
    NotKept {
        /// What lies there.
        item: Named<Item>,
        /// The storage.
        storage: Named<StorageId>,
    },
    /// A node is computed at load time though its result may differ between runs.
    #[error("{node} cannot be computed at load time: {reason}")]
    NotFoldable {
        /// The node.
        node: Named<NodeId>,
        /// Why not.
        reason: &'static str,
    },
    /// A copy that nobody could use.
    #[error("copy {copy} is for input {input} of node {reader}, but {reason}")]
    WrongCopy {
        /// Number of the copy.
        copy: u32,
        /// The reader that the plan names.
        reader: NodeId,
        /// The input that the plan names.
        input: u32,
        /// What does not fit.
        reason: &'static str,
    },
}

impl Violation {
    /// The code of the rule; the same in all versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Violation::UnknownId { .. } => "T001",
            Violation::Alignment { .. } => "T002",
            Violation::ListedTwice { .. } => "T003",
            Violation::NoResults { .. } => "T004",
            Violation::StepMissing { .. } => "T010",
            Violation::StepTwice { .. } => "T011",
            Violation::StepForbidden { .. } => "T012",
            Violation::WrongPhase { .. } => "T013",
            Violation::OutsideBody { .. } => "T014",
            Violation::BeforeProducer { .. } => "T015",
            Violation::BeforeControl { .. } => "T016",
            Violation::OutOfScope { .. } => "T017",
            Violation::Unplaced { .. } => "T020",
            Violation::PlacedTwice { .. } => "T021",
            Violation::OutsidePlaced { .. } => "T022",
            Violation::DynamicList { .. } => "T023",
            Violation::MemberTooSmall { .. } => "T024",
            Violation::MemberOutsideStorage { .. } => "T025",
            Violation::StorageOutsideArena { .. } => "T026",
            Violation::Misaligned { .. } => "T027",
            Violation::SizeNotRounded { .. } => "T028",
            Violation::LowerBound { .. } => "T029",
            Violation::BadLife { .. } => "T030",
            Violation::LivesOverlap { .. } => "T031",
            Violation::WrongMemory { .. } => "T032",
            Violation::WrongBytes { .. } => "T050",
            Violation::LifeTooShort { .. } => "T051",
            Violation::OverInput { .. } => "T052",
            Violation::OutputsOverlap { .. } => "T053",
            Violation::PartialOverlap { .. } => "T054",
            Violation::RefElsewhere { .. } => "T055",
            Violation::OutsideWritten { .. } => "T056",
            Violation::VariableOrder { .. } => "T057",
            Violation::OutsideSpoiled { .. } => "T058",
            Violation::NotSideBySide { .. } => "T059",
            Violation::WrongKind { .. } => "T060",
            Violation::Unordered { .. } => "T061",
            Violation::TooManyStreams { .. } => "T062",
            Violation::NotAwaited { .. } => "T063",
            Violation::NotTied { .. } => "T065",
            Violation::NotMerged { .. } => "T066",
            Violation::FixedAtCallers { .. } => "T067",
            Violation::WaitBehind { .. } => "T064",
            Violation::ForbiddenSharing { .. } => "T070",
            Violation::Reused { .. } => "T071",
            Violation::NotFoldable { .. } => "T072",
            Violation::WrongCopy { .. } => "T073",
            Violation::NotKept { .. } => "T074",
        }
    }
}
