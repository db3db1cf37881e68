//! `tenure.memory/1`: the memory graph on its own, before placement.
//!
//! Tensor nodes say what a tensor is (shape, type, format, alignment), allocate nodes say what has
//! to be placed (bytes, alignment, life). This is all that placement needs, so a compiler that has
//! a graph of its own can write such a file and have it planned and checked.

use serde::{Deserialize, Serialize};
use tenure_graph::Graph;
use tenure_graph::plan::{Arena, Item, PlanOptions, Span};
use tenure_graph::plan_file::{
    CheckBlock, FileMember, FileStorage, MemberKind, ModelIdentity, PlanFile, Summary,
};
use tenure_solve::{Config, Watch};

use crate::assign::{Cut, Request, place, round_up};
use crate::{Memory, PlanError};

/// The value of the key `format`.
pub const FORMAT: &str = "tenure.memory/1";

/// What has to be placed, and the tensors that live in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryGraph {
    /// [`FORMAT`].
    pub format: String,
    /// Name of the model.
    #[serde(default)]
    pub name: String,
    /// Number of steps of the schedule.
    pub steps: u32,
    /// What is placed.
    pub allocates: Vec<Allocate>,
    /// What lives in it.
    pub tensors: Vec<TensorNode>,
}

/// One piece of memory to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocate {
    /// Name, unique among the allocate nodes.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub kind: AllocateKind,
    /// Bytes.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    #[serde(default = "one")]
    pub align: u64,
    /// Spans of steps, both ends included, ascending and disjoint.
    pub life: Vec<[u32; 2]>,
}

/// What an allocate node is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocateKind {
    /// Tensors.
    #[default]
    Tensor,
    /// Temporary memory of one node.
    Workspace,
    /// Memory of its own that the caller owns; not placed.
    Caller,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorNode {
    /// Name, unique among the tensor nodes.
    pub name: String,
    /// Type of the elements.
    pub dtype: String,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Layout of the elements; `ND` is row-major.
    #[serde(default = "nd")]
    pub format: String,
    /// Alignment in bytes, a power of two.
    #[serde(default = "one")]
    pub align: u64,
    /// Bytes.
    pub bytes: u64,
    /// Name of the allocate node that it lives in.
    pub allocate: String,
    /// First byte inside it.
    #[serde(default)]
    pub offset: u64,
}

fn one() -> u64 {
    1
}

fn nd() -> String {
    "ND".to_owned()
}

impl MemoryGraph {
    /// Writes down what [`crate::memory()`] found, in names.
    #[must_use]
    pub fn new(graph: &Graph, memory: &Memory) -> Self {
        let label = |item: &Item| match *item {
            Item::Value(value) => graph.value_label(value),
            Item::Workspace(node, k) => format!("{}#{k}", graph.node_label(node)),
            Item::Copy(k) => format!("copy {k}"),
        };
        let mut out = MemoryGraph {
            format: FORMAT.to_owned(),
            name: graph.name.clone(),
            steps: u32::try_from(memory.schedule.steps.len()).unwrap_or(u32::MAX),
            allocates: Vec::with_capacity(memory.classes.classes.len()),
            tensors: Vec::new(),
        };
        for class in &memory.classes.classes {
            let name = class.members.first().map(|m| label(&m.item));
            let name = name.unwrap_or_default();
            let first = class.members.first().map(|m| m.item);
            let scratch = matches!(first, Some(Item::Workspace(..)));
            for member in &class.members {
                let value = match member.item {
                    Item::Value(value) => value,
                    Item::Copy(k) => memory.classes.copies[k as usize].value,
                    Item::Workspace(..) => continue,
                };
                let value = &graph.values[value];
                out.tensors.push(TensorNode {
                    name: label(&member.item),
                    dtype: value.dtype.name().to_owned(),
                    shape: value
                        .shape
                        .as_ref()
                        .and_then(tenure_graph::Shape::known)
                        .map(|s| s.to_vec())
                        .unwrap_or_default(),
                    format: nd(),
                    align: class.align,
                    bytes: member.bytes,
                    allocate: name.clone(),
                    offset: member.offset,
                });
            }
            out.allocates.push(Allocate {
                name,
                kind: if class.caller {
                    AllocateKind::Caller
                } else if scratch {
                    AllocateKind::Workspace
                } else {
                    AllocateKind::Tensor
                },
                bytes: class.bytes,
                align: class.align,
                life: class.life.iter().map(|s| [s.first, s.last]).collect(),
            });
        }
        out
    }

    /// Reads a memory graph and looks for contradictions.
    ///
    /// # Errors
    /// Text that is no such JSON, another format, names that stand twice or nowhere, tensors
    /// outside their allocate node, lives that do not ascend or end after the last step.
    pub fn read(text: &[u8]) -> Result<Self, PlanError> {
        let graph: MemoryGraph = serde_json::from_slice(text)
            .map_err(|e| PlanError::Memory(format!("no memory graph: {e}")))?;
        graph.verify()?;
        Ok(graph)
    }

    fn verify(&self) -> Result<(), PlanError> {
        let fail = |text: String| Err(PlanError::Memory(text));
        if self.format != FORMAT {
            return fail(format!(
                "format {:?} is not {FORMAT:?}: write the file again with this version",
                self.format
            ));
        }
        let mut names = rustc_hash::FxHashMap::default();
        for a in &self.allocates {
            let name = &a.name;
            if names.insert(name.as_str(), a.bytes).is_some() {
                return fail(format!("allocate node {name:?} stands twice"));
            }
            if !a.align.is_power_of_two() {
                return fail(format!(
                    "allocate node {name:?}: alignment {} is not a power of two",
                    a.align
                ));
            }
            let ordered =
                a.life.iter().all(|s| s[0] <= s[1]) && a.life.windows(2).all(|w| w[0][1] < w[1][0]);
            if a.life.is_empty() || !ordered {
                return fail(format!(
                    "allocate node {name:?}: its life must be ascending, disjoint spans [first, last]"
                ));
            }
            if a.life.iter().any(|s| s[1] >= self.steps) {
                return fail(format!(
                    "allocate node {name:?}: its life ends after the last of {} steps",
                    self.steps
                ));
            }
        }
        let mut tensors = rustc_hash::FxHashSet::default();
        for t in &self.tensors {
            let name = &t.name;
            if !tensors.insert(name.as_str()) {
                return fail(format!("tensor node {name:?} stands twice"));
            }
            let Some(&bytes) = names.get(t.allocate.as_str()) else {
                return fail(format!(
                    "tensor node {name:?} lives in {:?}, which is no allocate node",
                    t.allocate
                ));
            };
            if t.offset.checked_add(t.bytes).is_none_or(|end| end > bytes) {
                return fail(format!(
                    "tensor node {name:?} does not fit into {:?} of {bytes} bytes",
                    t.allocate
                ));
            }
        }
        Ok(())
    }

    /// SHA-256 of the whole memory graph, in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> String {
        use sha2::Digest;
        let mut hasher = sha2::Sha256::new();
        // A memory graph is plain data, which always has a text.
        hasher.update(serde_json::to_vec(self).unwrap_or_default());
        hasher
            .finalize()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    /// Places all allocate nodes. The check block of the result is left for the checker.
    ///
    /// # Errors
    /// See [`place`].
    pub fn plan(
        &self,
        model: ModelIdentity,
        options: &PlanOptions,
        config: &Config,
        watch: &Watch<'_>,
    ) -> Result<(PlanFile, Option<Cut>), PlanError> {
        let placed_nodes = self
            .allocates
            .iter()
            .filter(|a| a.kind != AllocateKind::Caller);
        let requests: Vec<Request> = placed_nodes
            .map(|a| Request {
                bytes: a.bytes,
                align: a.align,
                life: spans(a).collect(),
                gear: None,
            })
            .collect();
        let placed = place(&requests, &[], options.align, config, watch)?;
        let mut members: rustc_hash::FxHashMap<&str, Vec<FileMember>> =
            rustc_hash::FxHashMap::default();
        for t in &self.tensors {
            members.entry(&t.allocate).or_default().push(member(t));
        }
        let mut offsets = placed.offsets.iter();
        let mut storages = Vec::with_capacity(self.allocates.len());
        for a in &self.allocates {
            let caller = a.kind == AllocateKind::Caller;
            let offset = if caller { None } else { offsets.next() };
            let values = members.remove(a.name.as_str()).unwrap_or_default();
            storages.push(storage(a, offset.copied(), options.align, values)?);
        }
        let arenas: Vec<Arena> = vec![placed.arena];
        let file = PlanFile {
            format: tenure_graph::plan_file::FORMAT.to_owned(),
            model,
            options: options.clone(),
            arenas,
            guard: tenure_graph::changes::Changes::default(),
            steps: Vec::new(),
            storages,
            copies: Vec::new(),
            folded: Vec::new(),
            dynamic: Vec::new(),
            strategy: placed.strategy,
            summary: self.summary(),
            check: CheckBlock::default(),
        };
        Ok((file, placed.cut))
    }
}

impl MemoryGraph {
    fn summary(&self) -> Summary {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
        let scratch = |a: &&Allocate| a.kind == AllocateKind::Workspace;
        Summary {
            intermediates: sum(&mut self.tensors.iter().map(|t| t.bytes)),
            workspaces: sum(&mut self.allocates.iter().filter(scratch).map(|a| a.bytes)),
            ..Summary::default()
        }
    }
}

fn spans(a: &Allocate) -> impl Iterator<Item = Span> {
    a.life.iter().map(|&[first, last]| Span { first, last })
}

fn member(t: &TensorNode) -> FileMember {
    let dims: Vec<String> = t.shape.iter().map(u64::to_string).collect();
    FileMember {
        name: t.name.clone(),
        kind: MemberKind::Intermediate,
        offset: t.offset,
        bytes: t.bytes,
        dtype: t.dtype.clone().into(),
        shape: format!("[{}]", dims.join(", ")),
        producer: String::new(),
        last_reader: String::new(),
    }
}

fn storage(
    a: &Allocate,
    offset: Option<u64>,
    align: u64,
    values: Vec<FileMember>,
) -> Result<FileStorage, PlanError> {
    let spans: Vec<Span> = spans(a).collect();
    Ok(FileStorage {
        name: a.name.clone(),
        arena: offset.map(|_| 0),
        offset: offset.unwrap_or(0),
        size: round_up(a.bytes, align)?,
        align: a.align.max(align),
        first: spans.first().map_or(0, |s| s.first),
        last: spans.last().map_or(0, |s| s.last),
        spans: if spans.len() > 1 { spans } else { Vec::new() },
        values,
    })
}
