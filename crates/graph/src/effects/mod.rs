//! What operators do to memory: the one table that passes, planner and checker ask.
//!
//! A row says which class an operator has, which outputs are views of which inputs, which inputs
//! an output may be written over, which inputs it asks only for their shape, what scratch it
//! needs. [`OpTable::effects`] applies the row to one node, together with what the model's file
//! says of that node's own outputs (references, in-place hints, workspaces).
//!
//! An operator without a row is safe: it reads all inputs, makes fresh outputs, needs no scratch,
//! and is not computed ahead of the run.
//!
//! The rows are TOML text: `src/ops/*.toml` are built in, and users add their own with
//! [`OpTable::extend_toml`]. `docs/adding-an-operator.md` describes the format.
//!
//! ```
//! use tenure_graph::effects::{Alias, OpTable};
//! use tenure_graph::{DType, Dialect, Graph, Shape};
//!
//! let mut graph = Graph::new("", Dialect::Onnx, "root");
//! let x = graph.add_input(graph.root, "x", DType::F32, Some(Shape::of(&[2, 3])));
//! let relu = graph.add_node(graph.root, "relu", "Relu");
//! graph.nodes[relu].inputs.push(Some(x));
//! graph.add_output(relu, "y", DType::F32, Some(Shape::of(&[2, 3])));
//!
//! let effects = OpTable::builtin(graph.dialect).effects(&graph, relu);
//! assert_eq!(effects.in_place[..], [Alias { output: 0, input: 0 }]);
//! ```

mod apply;
pub mod demands;
mod expr;
mod gears;
mod merges;
mod pieces;
mod row;
#[cfg(test)]
mod tests;
mod traits;

pub use demands::{Cleared, Run, cleared};
pub use gears::Gears;
pub(crate) use gears::LABEL as GEAR;
pub use merges::Merges;
pub use pieces::{Piece, pieces};
pub use row::TableError;
pub use traits::{Trait, Traits};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, LazyLock};

use crate::ir::domain_key;
use crate::{Dialect, Graph, Node, NodeId};
use row::Row;

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
    /// Outputs that are another name for an input's bytes; nothing is written. Ascending, at
    /// most one an output.
    pub views: SmallVec<[Alias; 1]>,
    /// Outputs that the node writes in an input's memory, always (a reference). Ascending, at
    /// most one an output.
    pub refs: SmallVec<[Alias; 1]>,
    /// Outputs that may be written over an input, in order of preference; the conditions of the
    /// row on type, shape and broadcast hold, and output and input have the same known number of
    /// bytes. What else lives in the input's memory is the planner's to look at: see
    /// [`Effects::tolerates`].
    pub in_place: SmallVec<[Alias; 2]>,
    /// Inputs that may lie in the memory that an output is written over. The kernel walks over
    /// the output's elements and reads element `i` of such an input before it writes element `i`
    /// of any output, and never after; the input has as many elements and bytes as the output.
    /// So `Add(x, x)` may be written over `x`, though it reads that memory twice. Ascending.
    pub aligned: SmallVec<[Alias; 2]>,
    /// Inputs of which only type and shape are looked at.
    pub shape_only: SmallVec<[u32; 1]>,
    /// Temporary memory, by number; some may have no bytes, see [`Effects::workspaces`].
    pub scratch: SmallVec<[Scratch; 1]>,
    /// How many scratch buffers the row asks for whose size is not known: it depends on a free
    /// dimension, or is negative or does not fit in 64 bits.
    pub unsized_scratch: u32,
    /// Alignment that the operator needs of each input in bytes, a power of two; may be shorter
    /// than the list of inputs, the rest is 1.
    pub input_align: SmallVec<[u64; 1]>,
    /// The same for outputs.
    pub output_align: SmallVec<[u64; 1]>,
    /// Inputs in whose memory the node may leave garbage: whoever reads it afterwards reads
    /// something else. Ascending.
    pub spoils: SmallVec<[u32; 1]>,
    /// Output 0 is whichever of the inputs has come: all inputs lie in one memory, and so does output
    /// 0, for which nothing is written.
    pub merges: bool,
    /// The inputs lie one behind the other.
    pub input_run: Option<Run>,
    /// The outputs lie one behind the other.
    pub output_run: Option<Run>,
    /// Kind of memory that each input is read from; may be shorter than the list of inputs, the
    /// rest is [`demands::ANY_MEMORY`].
    pub input_kinds: SmallVec<[i64; 1]>,
    /// Kind of memory that each output is written to, likewise.
    pub output_kinds: SmallVec<[i64; 1]>,
}

impl Effects {
    /// The temporary memory that has bytes, each with its number.
    pub fn workspaces(&self) -> impl Iterator<Item = (u32, &Scratch)> {
        (0u32..).zip(&self.scratch).filter(|(_, s)| s.size > 0)
    }

    /// Whether an entry of [`Effects::in_place`] may be used when the inputs in slots `sharers`
    /// lie in that same memory, from the same byte on: those of the same value and of its views
    /// (the entry's own input may be among them).
    ///
    /// That the memory is dead afterwards and may be written at all is not looked at here.
    #[must_use]
    pub fn tolerates(&self, entry: Alias, sharers: impl IntoIterator<Item = u32>) -> bool {
        let harmless = |input| {
            let shared = Alias { input, ..entry };
            input == entry.input
                || self.aligned.binary_search(&shared).is_ok()
                || self.shape_only.contains(&input)
        };
        sharers.into_iter().all(harmless)
    }

    /// The kind of memory that an input must be read from.
    #[must_use]
    pub fn input_kind(&self, input: u32) -> i64 {
        let kind = self.input_kinds.get(input as usize);
        kind.copied().unwrap_or(demands::ANY_MEMORY)
    }

    /// The kind of memory that an output must be written to.
    #[must_use]
    pub fn output_kind(&self, output: u32) -> i64 {
        let kind = self.output_kinds.get(output as usize);
        kind.copied().unwrap_or(demands::ANY_MEMORY)
    }

    /// Whether a reference, or what it refers to, must lie beside others or in memory of a special
    /// kind.
    #[must_use]
    pub fn is_placed(&self, reference: Alias) -> bool {
        self.output_kind(reference.output) != demands::ANY_MEMORY
            || self.input_kind(reference.input) != demands::ANY_MEMORY
            || self.output_run.is_some()
            || self.input_run.is_some()
    }

    /// The input that output `output` is a view of.
    #[must_use]
    pub fn view_of(&self, output: u32) -> Option<u32> {
        let found = self.views.binary_search_by_key(&output, |v| v.output);
        found.ok().map(|i| self.views[i].input)
    }
}

/// Output `output` has to do with the memory of input `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Kind of memory that it is.
    pub kind: i64,
    /// Whether nobody else may have its bytes at any time.
    pub alone: bool,
    /// Whether it must be zero when the node starts.
    pub cleared: bool,
}

/// Rows by operator.
type Domain = FxHashMap<Arc<str>, Arc<Row>>;

/// The rows of one dialect. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OpTable {
    /// Rows by domain and operator.
    rows: Arc<FxHashMap<Arc<str>, Domain>>,
}

impl OpTable {
    /// The built-in rows of a dialect.
    #[must_use]
    pub fn builtin(dialect: Dialect) -> Self {
        static ONNX: LazyLock<OpTable> = LazyLock::new(|| OpTable::embedded(ONNX_TEXTS));
        static GE: LazyLock<OpTable> = LazyLock::new(|| OpTable::embedded(GE_TEXTS));
        static TFLITE: LazyLock<OpTable> = LazyLock::new(|| OpTable::embedded(TFLITE_TEXTS));
        let table: &OpTable = match dialect {
            Dialect::Onnx => &ONNX,
            Dialect::Ge => &GE,
            Dialect::Tflite => &TFLITE,
        };
        table.clone()
    }

    /// A table without rows: every operator is unknown.
    #[must_use]
    pub fn empty() -> Self {
        OpTable {
            rows: Arc::default(),
        }
    }

    fn embedded(texts: &[&str]) -> Self {
        let mut table = OpTable::empty();
        for text in texts {
            if let Err(e) = table.extend_toml(text) {
                unreachable!("a built-in table of operators is wrong: {e}");
            }
        }
        table
    }

    /// Adds rows, as `--ops FILE` gives them. A row takes the place of the one that its domain
    /// and operator had before.
    ///
    /// # Errors
    ///
    /// When the text is no such table; the table is then as it was.
    pub fn extend_toml(&mut self, text: &str) -> Result<(), TableError> {
        let new = row::parse(text)?;
        let rows = Arc::make_mut(&mut self.rows);
        for (domain, op, row) in new {
            rows.entry(domain).or_default().insert(op, row);
        }
        Ok(())
    }

    /// The same rows without a trait: what would be if no operator had it.
    #[must_use]
    pub fn without(&self, which: Trait) -> Self {
        let mut table = self.clone();
        for row in Arc::make_mut(&mut table.rows)
            .values_mut()
            .flat_map(Domain::values_mut)
        {
            if row.traits.has(which) {
                Arc::make_mut(row).traits.take_out(which);
            }
        }
        table
    }

    /// Whether an operator has a row.
    #[must_use]
    pub fn has_row(&self, domain: &str, op: &str) -> bool {
        self.find(domain, op).is_some()
    }

    /// What subgraph `body` of a node of this operator is to it, where the model's file gives them
    /// in order and without roles: what the operator's row says, or `branch` and its number.
    #[must_use]
    pub fn role(&self, domain: &str, op: &str, body: usize) -> String {
        let roles = self.find(domain, op).map(|row| row.roles.as_slice());
        let role = roles.and_then(|roles| roles.get(body));
        role.cloned().unwrap_or_else(|| format!("branch{body}"))
    }

    /// What kind of node an operator makes, if it runs no subgraphs that its row does not know of.
    #[must_use]
    pub fn class_of_op(&self, domain: &str, op: &str) -> OpClass {
        self.find(domain, op)
            .map_or(OpClass::Compute, |row| row.class)
    }

    /// What else is known of an operator.
    #[must_use]
    pub fn traits_of_op(&self, domain: &str, op: &str) -> Traits {
        self.find(domain, op)
            .map(|row| row.traits)
            .unwrap_or_default()
    }

    /// What kind of node a node is. One that has bodies though its operator is not known to have
    /// them is [`OpClass::Opaque`].
    #[must_use]
    pub fn class(&self, graph: &Graph, node: NodeId) -> OpClass {
        let node = &graph.nodes[node];
        self.class_of(node, self.row(node))
    }

    /// What else is known of a node's operator.
    #[must_use]
    pub fn traits(&self, graph: &Graph, node: NodeId) -> Traits {
        let row = self.row(&graph.nodes[node]);
        row.map(|row| row.traits).unwrap_or_default()
    }

    /// Whether a reference that the model's file states for this node is a view: another shape or
    /// name of the input, and nothing is written.
    #[must_use]
    pub fn ref_is_view(&self, graph: &Graph, node: NodeId) -> bool {
        self.row(&graph.nodes[node])
            .is_some_and(|row| row.ref_is_view)
    }

    /// What a node does to memory.
    #[must_use]
    pub fn effects(&self, graph: &Graph, node: NodeId) -> Effects {
        let node = &graph.nodes[node];
        apply::effects(self, graph, node, self.row(node))
    }

    fn row(&self, node: &Node) -> Option<&Row> {
        self.find(&node.domain, &node.op)
    }

    fn find(&self, domain: &str, op: &str) -> Option<&Row> {
        let row = self.rows.get(domain_key(domain))?.get(op)?;
        Some(row)
    }

    fn class_of(&self, node: &Node, row: Option<&Row>) -> OpClass {
        match row.map_or(OpClass::Compute, |row| row.class) {
            OpClass::Compute if !node.bodies.is_empty() => OpClass::Opaque,
            class => class,
        }
    }
}

const STRUCTURE: &str = include_str!("../ops/structure.toml");
const ONNX_TEXTS: &[&str] = &[
    STRUCTURE,
    include_str!("../ops/onnx.toml"),
    include_str!("../ops/onnx_ml.toml"),
    include_str!("../ops/onnx_training.toml"),
    include_str!("../ops/com_microsoft.toml"),
    include_str!("../ops/com_microsoft_training.toml"),
];
const GE_TEXTS: &[&str] = &[STRUCTURE, include_str!("../ops/ge.toml")];
const TFLITE_TEXTS: &[&str] = &[STRUCTURE, include_str!("../ops/tflite.toml")];
