//! `tenure.plan/1`: a plan in names and numbers, as it is saved, checked again and reported.
//!
//! The file holds no times, dates or host names: the same input and options give the same bytes.
//! Unknown keys are passed over; a newer major version is refused.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use thin_vec::ThinVec;

use crate::changes::Changes;
use crate::plan::{
    Arena, Copy, Item, Member, Phase, Place, Plan, PlanOptions, Span, Step, Storage, Wait,
};
use crate::{Graph, NodeId, StreamId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The value of the key `format`.
pub const FORMAT: &str = "tenure.plan/1";

/// A saved plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    /// [`FORMAT`].
    pub format: String,
    /// The model that was planned.
    pub model: ModelIdentity,
    /// What the user asked for.
    pub options: PlanOptions,
    /// Regions of memory.
    pub arenas: Vec<Arena>,
    /// What was added to the model's graph before it was planned.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub guard: Changes,
    /// The schedule.
    pub steps: Vec<FileStep>,
    /// What lies where.
    pub storages: Vec<FileStorage>,
    /// Copies that the model does not have.
    pub copies: Vec<FileCopy>,
    /// Nodes that are computed at load time.
    pub folded: Vec<String>,
    /// Values whose size is not known before the run.
    pub dynamic: Vec<String>,
    /// How the offsets were found.
    pub strategy: String,
    /// Figures that cannot be read off the storages.
    #[serde(default)]
    pub summary: Summary,
    /// What the checker said.
    pub check: CheckBlock,
}

/// Figures of a plan that cannot be read off its storages. All are raw bytes, not rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Constants of the model: initializers and the outputs of constant nodes.
    pub constants: u64,
    /// Graph inputs whose size is known.
    pub inputs: u64,
    /// Graph outputs whose size is known, each value once; constants and inputs are not counted.
    pub outputs: u64,
    /// All other values that nodes make in the run, views included.
    pub intermediates: u64,
    /// Temporary memory of nodes.
    pub workspaces: u64,
    /// Outputs that were placed over an input of their own node.
    pub in_place: usize,
    /// Bytes that the inserted copies move.
    pub copied: u64,
}

impl Summary {
    /// Sums up a plan. `in_place` is what the planner counted.
    #[must_use]
    pub fn new(graph: &Graph, plan: &Plan, in_place: usize) -> Self {
        let mut sums = Summary {
            in_place,
            ..Summary::default()
        };
        let results = results(graph);
        let root = &graph.subgraphs[graph.root];
        let inputs: FxHashSet<NodeId> = root.inputs.iter().copied().collect();
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        let ran: FxHashSet<NodeId> = plan.steps.iter().map(|s| s.node).collect();
        let folded: FxHashSet<NodeId> = plan.folded.iter().copied().collect();
        let data: FxHashSet<NodeId> = graph
            .subgraphs
            .values()
            .flat_map(|s| s.inputs.iter().copied())
            .collect();
        for (id, value) in graph.values.iter() {
            let producer = value.producer;
            let bytes = graph.bytes(id).unwrap_or(0);
            if inputs.contains(&producer) {
                add(&mut sums.inputs, bytes);
            } else if folded.contains(&producer) {
                continue;
            } else if !ran.contains(&producer) && !data.contains(&producer) {
                add(&mut sums.constants, bytes);
            } else if results.contains(&id) {
                add(&mut sums.outputs, bytes);
            } else {
                add(&mut sums.intermediates, bytes);
            }
        }
        for storage in plan.storages.values() {
            for member in &storage.members {
                match member.item {
                    Item::Workspace(..) => add(&mut sums.workspaces, member.bytes),
                    Item::Copy(_) => add(&mut sums.copied, member.bytes),
                    Item::Value(_) => {}
                }
            }
        }
        sums
    }
}

/// Which model a plan belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// The file that it was read from, as it was named then.
    #[serde(default)]
    pub path: String,
    /// The model's own name.
    pub name: String,
    /// Format that it was read from: `onnx`, `graph-json`, `memory-json`.
    pub format: String,
    /// Operators in all subgraphs.
    pub nodes: usize,
    /// Values in all subgraphs.
    pub values: usize,
    /// SHA-256 of the graph part, in hexadecimal digits.
    pub sha256: String,
}

/// One step of the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStep {
    /// Label of the node.
    pub node: String,
    /// `run`, `begin`, `enter K`, `end`.
    pub phase: Cow<'static, str>,
    /// Stream that it runs on; `null` for what runs nothing.
    pub stream: Option<u32>,
    /// Events that it waits for.
    #[serde(default)]
    pub waits: ThinVec<u32>,
    /// Events that it records.
    #[serde(default)]
    pub records: ThinVec<u32>,
}

/// One storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStorage {
    /// Name of the first thing that lives in it.
    pub name: String,
    /// Number of the arena; `null` is memory of its own that the caller owns.
    pub arena: Option<u32>,
    /// First byte in the arena.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Alignment of the offset in bytes.
    pub align: u64,
    /// First step at which it is held.
    pub first: u32,
    /// Last step at which it is held.
    pub last: u32,
    /// All steps at which it is held, where there are gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// What lives in it.
    pub values: Vec<FileMember>,
}

/// Something that lives in a storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMember {
    /// Label of the value; `NODE#K` for workspace K of a node; `copy K` for a copy.
    pub name: String,
    /// What it is.
    pub kind: MemberKind,
    /// First byte inside the storage.
    #[serde(default)]
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Type of the elements.
    #[serde(default)]
    pub dtype: Cow<'static, str>,
    /// Shape, as text.
    #[serde(default)]
    pub shape: String,
    /// Label of the node that makes it, and its operator.
    #[serde(default)]
    pub producer: String,
    /// Label of the last node that reads it; empty if nobody does.
    #[serde(default)]
    pub last_reader: String,
}

/// What a member of a storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberKind {
    /// A graph input.
    Input,
    /// A graph output.
    Output,
    /// Any other value.
    Intermediate,
    /// Temporary memory of one node.
    Workspace,
    /// A copy that the planner inserted.
    Copy,
}

/// A copy for one reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCopy {
    /// Label of the value that is copied.
    pub value: String,
    /// Label of the node that reads the copy.
    pub reader: String,
    /// Which of its inputs.
    pub input: u32,
    /// Why.
    pub reason: String,
}

/// What the checker said of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckBlock {
    /// Whether every demand holds.
    pub passed: bool,
    /// Reads and writes that were looked at.
    pub accesses: u64,
}

/// Why a plan file does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFileError {
    /// Another format or a newer version.
    #[error(
        "the plan says format {0:?}, which is not {FORMAT:?}: make the plan again with this version"
    )]
    Format(String),
    /// No JSON, or not that of a plan.
    #[error("no plan: {0}")]
    Json(String),
    /// A name that the model does not have.
    #[error("{place} names {kind} {name:?}, which the model does not have")]
    UnknownName {
        /// Where the name stands.
        place: String,
        /// `node` or `value`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// What the plan adds to the model's graph does not fit it.
    #[error("what the plan adds to the model does not fit: {0}")]
    Change(String),
    /// A text that stands for a number or a phase and is none.
    #[error("{place}: {text:?} is not understood")]
    Malformed {
        /// Where it stands.
        place: String,
        /// The text.
        text: String,
    },
}

impl PlanFile {
    /// Writes a plan out in names.
    #[must_use]
    pub fn new(
        graph: &Graph,
        model: ModelIdentity,
        plan: &Plan,
        summary: Summary,
        check: CheckBlock,
    ) -> Self {
        let readers = last_readers(graph, plan);
        let facts = Facts {
            graph,
            plan,
            readers,
            inputs: graph.subgraphs[graph.root].inputs.iter().copied().collect(),
            results: results(graph),
        };
        let storages = plan
            .storages
            .values()
            .map(|storage| facts.storage(storage))
            .collect();
        PlanFile {
            format: FORMAT.to_owned(),
            model,
            options: plan.options.clone(),
            arenas: plan.arenas.clone(),
            guard: Changes::default(),
            steps: steps(graph, plan),
            storages,
            copies: plan
                .copies
                .iter()
                .map(|copy| FileCopy {
                    value: graph.value_label(copy.value),
                    reader: graph.node_label(copy.reader),
                    input: copy.input,
                    reason: copy.reason.clone(),
                })
                .collect(),
            folded: plan.folded.iter().map(|&n| graph.node_label(n)).collect(),
            dynamic: plan.dynamic.iter().map(|&v| graph.value_label(v)).collect(),
            strategy: plan.strategy.clone(),
            summary,
            check,
        }
    }

    /// Reads a saved plan.
    ///
    /// # Errors
    /// Text that is no plan, or a plan of another format or a newer version.
    pub fn read(text: &[u8]) -> Result<Self, PlanFileError> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let json = |e: serde_json::Error| PlanFileError::Json(e.to_string());
        // The format decides whether the rest can be understood at all.
        let head: Head = serde_json::from_slice(text).map_err(json)?;
        if head.format != FORMAT {
            return Err(PlanFileError::Format(head.format));
        }
        serde_json::from_slice(text).map_err(json)
    }

    /// Finds the names of a saved plan in a graph.
    ///
    /// Whether the plan is right is the checker's business, and whether it belongs to the graph is
    /// said by [`ModelIdentity::sha256`]; here only names and texts are looked at.
    ///
    /// # Errors
    /// A name that the graph does not have, a text that is no phase.
    pub fn resolve(&self, graph: &Graph) -> Result<Plan, PlanFileError> {
        let names = Names::new(graph);
        let steps = self
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| {
                let place = || format!("step {i}");
                Ok(Step {
                    node: names.node(&step.node, place)?,
                    phase: parse_phase(&step.phase).ok_or_else(|| PlanFileError::Malformed {
                        place: place(),
                        text: step.phase.to_string(),
                    })?,
                    stream: match step.stream {
                        // The number that stands for no stream.
                        Some(u32::MAX) => {
                            let (place, text) = (place(), u32::MAX.to_string());
                            return Err(PlanFileError::Malformed { place, text });
                        }
                        stream => stream.map(StreamId::from_u32),
                    },
                })
            })
            .collect::<Result<_, _>>()?;
        let waits = self.waits()?;
        let mut storages = cranelift_entity::PrimaryMap::with_capacity(self.storages.len());
        for (i, storage) in self.storages.iter().enumerate() {
            let members = storage
                .values
                .iter()
                .map(|member| {
                    Ok(Member {
                        item: names.item(member, || format!("storage {i}"))?,
                        offset: member.offset,
                        bytes: member.bytes,
                    })
                })
                .collect::<Result<_, _>>()?;
            let whole = Span {
                first: storage.first,
                last: storage.last,
            };
            storages.push(Storage {
                place: match storage.arena {
                    Some(arena) => Place::Arena {
                        arena,
                        offset: storage.offset,
                    },
                    None => Place::Caller,
                },
                size: storage.size,
                align: storage.align,
                life: if storage.spans.is_empty() {
                    std::iter::once(whole).collect()
                } else {
                    storage.spans.iter().copied().collect()
                },
                members,
            });
        }
        let copies = self
            .copies
            .iter()
            .enumerate()
            .map(|(i, copy)| {
                let place = || format!("copy {i}");
                Ok(Copy {
                    value: names.value(&copy.value, place)?,
                    reader: names.node(&copy.reader, place)?,
                    input: copy.input,
                    reason: copy.reason.clone(),
                })
            })
            .collect::<Result<_, _>>()?;
        let folded = self
            .folded
            .iter()
            .map(|n| names.node(n, || "folded".to_owned()))
            .collect::<Result<_, _>>()?;
        let dynamic = self
            .dynamic
            .iter()
            .map(|v| names.value(v, || "dynamic".to_owned()))
            .collect::<Result<_, _>>()?;
        Ok(Plan {
            options: self.options.clone(),
            arenas: self.arenas.clone(),
            steps,
            waits,
            storages,
            copies,
            folded,
            dynamic,
            strategy: self.strategy.clone(),
        })
    }
}

impl PlanFile {
    /// Which steps wait for which.
    fn waits(&self) -> Result<Vec<Wait>, PlanFileError> {
        let mut recorded: FxHashMap<u32, u32> = FxHashMap::default();
        let numbered = || (0u32..).zip(&self.steps);
        let wrong = |step: u32, event: u32, what: &str| PlanFileError::Malformed {
            place: format!("step {step}"),
            text: format!("event {event}, which {what},"),
        };
        for (number, step) in numbered() {
            for &event in &step.records {
                if recorded.insert(event, number).is_some() {
                    return Err(wrong(number, event, "another step records as well"));
                }
            }
        }
        let mut waits = Vec::new();
        for (number, step) in numbered() {
            for &event in &step.waits {
                let before = recorded.get(&event).copied();
                let before = before.ok_or_else(|| wrong(number, event, "no step records"))?;
                waits.push(Wait {
                    step: number,
                    before,
                });
            }
        }
        waits.sort_unstable();
        Ok(waits)
    }
}

/// The schedule in names. The events are numbered in the order in which they are recorded.
fn steps(graph: &Graph, plan: &Plan) -> Vec<FileStep> {
    let mut steps: Vec<FileStep> = (plan.steps.iter())
        .map(|step| FileStep {
            node: graph.node_label(step.node),
            phase: phase_text(step.phase),
            stream: step.stream.map(StreamId::as_u32),
            waits: ThinVec::new(),
            records: ThinVec::new(),
        })
        .collect();
    let mut events: Vec<u32> = plan.waits.iter().map(|w| w.before).collect();
    events.sort_unstable();
    events.dedup();
    for (event, &step) in (0u32..).zip(&events) {
        if let Some(step) = steps.get_mut(step as usize) {
            step.records.push(event);
        }
    }
    for wait in &plan.waits {
        let event = events.binary_search(&wait.before).ok();
        let event = event.and_then(|e| u32::try_from(e).ok());
        if let (Some(step), Some(event)) = (steps.get_mut(wait.step as usize), event) {
            step.waits.push(event);
        }
    }
    steps
}

/// The last node of the schedule that names each value.
fn last_readers(graph: &Graph, plan: &Plan) -> FxHashMap<ValueId, NodeId> {
    let mut readers = FxHashMap::default();
    for step in plan.steps.iter().rev() {
        if matches!(step.phase, Phase::Run | Phase::Begin) {
            for value in graph.nodes[step.node].inputs.iter().copied().flatten() {
                readers.entry(value).or_insert(step.node);
            }
        }
    }
    readers
}

/// The values that are graph outputs.
fn results(graph: &Graph) -> FxHashSet<ValueId> {
    graph.subgraphs[graph.root]
        .output
        .map(|o| graph.nodes[o].inputs.iter().copied().flatten().collect())
        .unwrap_or_default()
}

/// What is looked up for each storage of a plan that is written out.
struct Facts<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    readers: FxHashMap<ValueId, NodeId>,
    inputs: FxHashSet<NodeId>,
    results: FxHashSet<ValueId>,
}

impl Facts<'_> {
    fn storage(&self, storage: &Storage) -> FileStorage {
        let values: Vec<FileMember> = storage.members.iter().map(|m| self.member(m)).collect();
        let (arena, offset) = match storage.place {
            Place::Arena { arena, offset } => (Some(arena), offset),
            Place::Caller => (None, 0),
        };
        FileStorage {
            name: values.first().map(|m| m.name.clone()).unwrap_or_default(),
            arena,
            offset,
            size: storage.size,
            align: storage.align,
            first: storage.life.first().map_or(0, |s| s.first),
            last: storage.life.last().map_or(0, |s| s.last),
            spans: if storage.life.len() > 1 {
                storage.life.to_vec()
            } else {
                Vec::new()
            },
            values,
        }
    }

    fn member(&self, member: &Member) -> FileMember {
        let file = FileMember {
            name: String::new(),
            kind: MemberKind::Intermediate,
            offset: member.offset,
            bytes: member.bytes,
            dtype: Cow::Borrowed(""),
            shape: String::new(),
            producer: String::new(),
            last_reader: String::new(),
        };
        match member.item {
            Item::Value(value) => FileMember {
                name: self.graph.value_label(value),
                kind: self.kind(value),
                last_reader: self
                    .readers
                    .get(&value)
                    .map_or_else(String::new, |&n| self.node(n)),
                ..self.describe(value, file)
            },
            Item::Workspace(node, k) => FileMember {
                name: format!("{}#{k}", self.graph.node_label(node)),
                kind: MemberKind::Workspace,
                producer: self.node(node),
                last_reader: self.node(node),
                ..file
            },
            Item::Copy(k) => {
                let file = FileMember {
                    name: format!("copy {k}"),
                    kind: MemberKind::Copy,
                    ..file
                };
                match self.plan.copies.get(k as usize) {
                    Some(copy) => FileMember {
                        last_reader: self.node(copy.reader),
                        ..self.describe(copy.value, file)
                    },
                    None => file,
                }
            }
        }
    }

    fn describe(&self, value: ValueId, file: FileMember) -> FileMember {
        let v = &self.graph.values[value];
        FileMember {
            dtype: Cow::Borrowed(v.dtype.name()),
            shape: v.shape.as_ref().map_or("?".to_owned(), ToString::to_string),
            producer: self.node(v.producer),
            ..file
        }
    }

    fn node(&self, node: NodeId) -> String {
        format!(
            "{} ({})",
            self.graph.node_label(node),
            self.graph.nodes[node].op
        )
    }

    fn kind(&self, value: ValueId) -> MemberKind {
        if self.inputs.contains(&self.graph.values[value].producer) {
            MemberKind::Input
        } else if self.results.contains(&value) {
            MemberKind::Output
        } else {
            MemberKind::Intermediate
        }
    }
}

fn phase_text(phase: Phase) -> Cow<'static, str> {
    match phase {
        Phase::Run => "run".into(),
        Phase::Begin => "begin".into(),
        Phase::Enter(k) => format!("enter {k}").into(),
        Phase::End => "end".into(),
    }
}

fn parse_phase(text: &str) -> Option<Phase> {
    match text {
        "run" => Some(Phase::Run),
        "begin" => Some(Phase::Begin),
        "end" => Some(Phase::End),
        _ => text.strip_prefix("enter ")?.parse().ok().map(Phase::Enter),
    }
}

/// Labels of a graph, to look up.
struct Names {
    nodes: FxHashMap<String, NodeId>,
    values: FxHashMap<String, ValueId>,
}

impl Names {
    fn new(graph: &Graph) -> Self {
        Names {
            nodes: graph
                .nodes
                .keys()
                .map(|n| (graph.node_label(n), n))
                .collect(),
            values: graph
                .values
                .keys()
                .map(|v| (graph.value_label(v), v))
                .collect(),
        }
    }

    fn node(&self, name: &str, place: impl Fn() -> String) -> Result<NodeId, PlanFileError> {
        self.nodes
            .get(name)
            .copied()
            .ok_or_else(|| PlanFileError::UnknownName {
                place: place(),
                kind: "node",
                name: name.to_owned(),
            })
    }

    fn value(&self, name: &str, place: impl Fn() -> String) -> Result<ValueId, PlanFileError> {
        self.values
            .get(name)
            .copied()
            .ok_or_else(|| PlanFileError::UnknownName {
                place: place(),
                kind: "value",
                name: name.to_owned(),
            })
    }

    fn item(&self, member: &FileMember, place: impl Fn() -> String) -> Result<Item, PlanFileError> {
        let malformed = || PlanFileError::Malformed {
            place: place(),
            text: member.name.clone(),
        };
        match member.kind {
            MemberKind::Workspace => {
                let (node, k) = member.name.rsplit_once('#').ok_or_else(malformed)?;
                let k = k.parse().map_err(|_| malformed())?;
                Ok(Item::Workspace(self.node(node, place)?, k))
            }
            MemberKind::Copy => {
                let k = member.name.strip_prefix("copy ").ok_or_else(malformed)?;
                Ok(Item::Copy(k.parse().map_err(|_| malformed())?))
            }
            MemberKind::Input | MemberKind::Output | MemberKind::Intermediate => {
                Ok(Item::Value(self.value(&member.name, place)?))
            }
        }
    }
}
