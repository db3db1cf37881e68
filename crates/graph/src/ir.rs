//! The graph: nodes, values, subgraphs, control edges, streams.
//!
//! Everything is a node. A graph input is the output of a node of class *input* (`Data`), a
//! weight that of a node of class *constant* (`Const`), and the results of a subgraph are the
//! inputs of its one node of class *output* (`NetOutput`). A value is one output of one node and
//! is written once (SSA). A node may read values of its own subgraph and, where the dialect
//! captures outer names, of every subgraph around it.
//!
//! Which class an operator has, and what it does to memory, is not written here: it is a row of
//! [`crate::effects`].

use cranelift_entity::PrimaryMap;
use smallvec::SmallVec;
use std::sync::Arc;
use thin_vec::ThinVec;

use crate::effects::demands::takes_no_memory;
use crate::{Attrs, DType, NodeId, Shape, StreamId, SubgraphId, ValueId};

/// How many references in a row are followed to where memory is.
const MOST_REFERENCES: usize = 16;

/// Which table of operators a graph's names are looked up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// ONNX: values are captured by name, subgraph inputs and results go by position.
    Onnx,
    /// Graph Engine: subgraph inputs and results carry `parent_index`.
    Ge,
    /// TensorFlow Lite.
    Tflite,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 3] = [Dialect::Onnx, Dialect::Ge, Dialect::Tflite];

    /// The name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Onnx => "onnx",
            Dialect::Ge => "ge",
            Dialect::Tflite => "tflite",
        }
    }

    /// The dialect of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// A whole model: the root and all subgraphs below it, in one table each.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The model's name; may be empty.
    pub name: String,
    /// Which table of operators the names belong to.
    pub dialect: Dialect,
    /// Versions of operator sets by domain (`""` is the default one), as the model lists them.
    pub opsets: Vec<(Arc<str>, i64)>,
    /// Options that the model's file carries.
    pub options: Attrs,
    /// The subgraph that runs first.
    pub root: SubgraphId,
    /// All subgraphs.
    pub subgraphs: PrimaryMap<SubgraphId, Subgraph>,
    /// All nodes.
    pub nodes: PrimaryMap<NodeId, Node>,
    /// All values.
    pub values: PrimaryMap<ValueId, Value>,
}

/// A list of nodes in the order in which the file runs them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subgraph {
    /// Name, unique in the graph.
    pub name: String,
    /// The node that this subgraph belongs to; `None` for the root.
    pub owner: Option<NodeId>,
    /// Its nodes, structural ones included, in execution order.
    pub nodes: Vec<NodeId>,
    /// The nodes of class *input*, by the position of the input they stand for.
    pub inputs: Vec<NodeId>,
    /// The node of class *output*.
    pub output: Option<NodeId>,
    /// Further keys of the file (`dynamic_shape` …).
    pub attrs: Attrs,
}

/// What a subgraph is to its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// `then`, `else`, `branch0` …, `cond`, `body`, `partition`.
    pub role: Arc<str>,
    /// The subgraph.
    pub graph: SubgraphId,
}

impl Body {
    /// Whether it decides whether a `While` goes on.
    #[must_use]
    pub fn is_condition(&self) -> bool {
        &*self.role == "cond"
    }
}

/// One operator.
///
/// A model may have millions: lists that most nodes do not have take one word.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name, unique in its subgraph.
    pub name: String,
    /// Type of the operator, as the dialect writes it.
    pub op: Arc<str>,
    /// Domain of the operator; `""` is the dialect's default.
    pub domain: Arc<str>,
    /// The subgraph that it runs in.
    pub subgraph: SubgraphId,
    /// What it reads; `None` is an optional input left out.
    pub inputs: SmallVec<[Option<ValueId>; 2]>,
    /// What it makes; `None` is an optional output left out.
    pub outputs: SmallVec<[Option<ValueId>; 1]>,
    /// Nodes of the same subgraph that must have run before.
    pub control: ThinVec<NodeId>,
    /// The stream it runs on; `None` runs nothing (inputs, constants, results).
    pub stream: Option<StreamId>,
    /// Attributes.
    pub attrs: Attrs,
    /// Attributes of inputs by position; may be shorter than `inputs`.
    pub input_attrs: ThinVec<Attrs>,
    /// Subgraphs that it runs.
    pub bodies: ThinVec<Body>,
    /// Temporary memory in bytes that the model's file asks for.
    pub workspace: ThinVec<i64>,
    /// Further keys of the file (`kernel_lib`, `order`, `merge` …).
    pub extra: Attrs,
}

/// One output of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name, unique among its subgraph's values. Where the dialect names nodes only, `NODE:OUT`.
    pub name: String,
    /// The node that makes it.
    pub producer: NodeId,
    /// Which of that node's outputs it is.
    pub output: u32,
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions; `None` when not even the rank is known.
    pub shape: Option<Shape>,
    /// What the file says of this output's memory.
    pub hints: Option<Box<OutputHints>>,
}

/// What a file says of one output's memory beyond its type and shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputHints {
    /// The output lives in the memory of this input (a reference).
    pub ref_input: Option<u32>,
    /// The output is this input's memory (an alias), without being a write.
    pub reuse_input: Option<u32>,
    /// Inputs whose memory the kernel may write this output over.
    pub may_inplace: Vec<u32>,
    /// Bytes to allocate, where the file gives them.
    pub size: Option<u64>,
    /// Least and greatest value of each dimension; greatest -1 is "no bound".
    pub shape_range: Vec<[i64; 2]>,
    /// Attributes of the tensor.
    pub attrs: Attrs,
    /// Further keys of the file.
    pub extra: Attrs,
}

/// Key among [`Node::extra`] of the version of a node's operator set, where it is not the model's:
/// the node comes from a function with operator sets of its own.
pub const OPSET: &str = "opset";

/// Type of the node that stands for an input of its subgraph.
pub const INPUT_OP: &str = "Data";

/// Type of the node that takes the results of its subgraph.
pub const OUTPUT_OP: &str = "NetOutput";

/// Type of the node that holds an initializer.
pub const CONST_OP: &str = "Const";

impl Graph {
    /// An empty graph whose root has the given name.
    #[must_use]
    pub fn new(name: impl Into<String>, dialect: Dialect, root: impl Into<String>) -> Self {
        let mut subgraphs = PrimaryMap::new();
        let root = subgraphs.push(Subgraph {
            name: root.into(),
            ..Subgraph::default()
        });
        Graph {
            name: name.into(),
            dialect,
            opsets: Vec::new(),
            options: Attrs::new(),
            root,
            subgraphs,
            nodes: PrimaryMap::new(),
            values: PrimaryMap::new(),
        }
    }

    /// Adds a subgraph of `owner` in the given role.
    pub fn add_subgraph(
        &mut self,
        owner: NodeId,
        role: impl Into<Arc<str>>,
        name: impl Into<String>,
    ) -> SubgraphId {
        let graph = self.subgraphs.push(Subgraph {
            name: name.into(),
            owner: Some(owner),
            ..Subgraph::default()
        });
        self.nodes[owner].bodies.push(Body {
            role: role.into(),
            graph,
        });
        graph
    }

    /// Adds a node without inputs, outputs or attributes at the end of a subgraph, on stream 0.
    pub fn add_node(
        &mut self,
        subgraph: SubgraphId,
        name: impl Into<String>,
        op: impl Into<Arc<str>>,
    ) -> NodeId {
        let id = self.nodes.push(Node {
            name: name.into(),
            op: op.into(),
            domain: Arc::from(""),
            subgraph,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            control: ThinVec::new(),
            stream: Some(StreamId::from_u32(0)),
            attrs: Attrs::new(),
            input_attrs: ThinVec::new(),
            bodies: ThinVec::new(),
            workspace: ThinVec::new(),
            extra: Attrs::new(),
        });
        self.subgraphs[subgraph].nodes.push(id);
        id
    }

    /// Adds an output to a node.
    pub fn add_output(
        &mut self,
        node: NodeId,
        name: impl Into<String>,
        dtype: DType,
        shape: Option<Shape>,
    ) -> ValueId {
        let output = u32::try_from(self.nodes[node].outputs.len()).unwrap_or(u32::MAX);
        let id = self.values.push(Value {
            name: name.into(),
            producer: node,
            output,
            dtype,
            shape,
            hints: None,
        });
        self.nodes[node].outputs.push(Some(id));
        id
    }

    /// Adds an input to a subgraph: a node `Data` with one output. Its position is the number of
    /// inputs that the subgraph has so far.
    pub fn add_input(
        &mut self,
        subgraph: SubgraphId,
        name: impl Into<String>,
        dtype: DType,
        shape: Option<Shape>,
    ) -> ValueId {
        let name = name.into();
        let node = self.add_node(subgraph, name.clone(), INPUT_OP);
        self.nodes[node].stream = None;
        self.subgraphs[subgraph].inputs.push(node);
        self.add_output(node, name, dtype, shape)
    }

    /// Adds the node `NetOutput` that takes a subgraph's results.
    pub fn add_results(
        &mut self,
        subgraph: SubgraphId,
        name: impl Into<String>,
        results: impl IntoIterator<Item = Option<ValueId>>,
    ) -> NodeId {
        let node = self.add_node(subgraph, name, OUTPUT_OP);
        self.nodes[node].stream = None;
        self.nodes[node].inputs.extend(results);
        self.subgraphs[subgraph].output = Some(node);
        node
    }

    /// The subgraph in which a value is made.
    #[must_use]
    pub fn home(&self, value: ValueId) -> SubgraphId {
        self.nodes[self.values[value].producer].subgraph
    }

    /// The node of `subgraph` that is `node` or runs it; `None` if it stands elsewhere.
    #[must_use]
    pub fn around(&self, mut node: NodeId, subgraph: SubgraphId) -> Option<NodeId> {
        while self.nodes[node].subgraph != subgraph {
            node = self.subgraphs[self.nodes[node].subgraph].owner?;
        }
        Some(node)
    }

    /// How many subgraphs stand around one: 0 for the root.
    #[must_use]
    pub fn depth(&self, subgraph: SubgraphId) -> usize {
        std::iter::successors(self.enclosing(subgraph), |&s| self.enclosing(s)).count()
    }

    /// The subgraph that the owner of `subgraph` runs in.
    #[must_use]
    pub fn enclosing(&self, subgraph: SubgraphId) -> Option<SubgraphId> {
        Some(self.nodes[self.subgraphs[subgraph].owner?].subgraph)
    }

    /// Bytes of memory of a value: what its type and shape need, or what the file asks for where that
    /// is not known; `None` when it cannot be known before the run. None at all, 0, if the file says
    /// that it is on the chip, always empty or somebody else's.
    #[must_use]
    pub fn bytes(&self, value: ValueId) -> Option<u64> {
        let made = &self.values[value];
        if self.takes_no_memory(made) {
            return Some(0);
        }
        let needed = made.shape.as_ref().and_then(|s| s.bytes(made.dtype));
        needed.or_else(|| self.asked_bytes(value))
    }

    /// Bytes of memory that the model's file asks for.
    #[must_use]
    pub fn asked_bytes(&self, value: ValueId) -> Option<u64> {
        let made = &self.values[value];
        let size = made.hints.as_ref()?.size;
        size.filter(|_| !self.takes_no_memory(made))
    }

    fn takes_no_memory(&self, made: &Value) -> bool {
        // Only files of Graph Engine say so.
        if self.dialect != Dialect::Ge {
            return false;
        }
        // What is written in an input is where that is.
        let mut made = made;
        for _ in 0..MOST_REFERENCES {
            let hints = made.hints.as_deref();
            let node = &self.nodes[made.producer];
            let input = hints.and_then(|h| h.ref_input.or(h.reuse_input));
            let source = input.and_then(|i| node.input(usize::try_from(i).ok()?));
            match source {
                Some(source) => made = &self.values[source],
                None => return takes_no_memory(node, made.output, hints),
            }
        }
        false
    }

    /// The version of the operator set that a node's operator is of: what the node says under
    /// [`OPSET`], or the highest one that the model lists for its domain; `None` where it lists
    /// none.
    #[must_use]
    pub fn opset(&self, node: &Node) -> Option<i64> {
        if let Some(version) = node.extra.int(OPSET) {
            return Some(version);
        }
        let domain = domain_key(&node.domain);
        let versions = self.opsets.iter().filter(|(d, _)| domain_key(d) == domain);
        versions.map(|&(_, version)| version).max()
    }

    /// A name of a value that is unique in the whole graph: its own in the root, and
    /// `SUBGRAPH/NAME` below.
    #[must_use]
    pub fn value_label(&self, value: ValueId) -> String {
        self.label(self.home(value), &self.values[value].name)
    }

    /// A name of a node that is unique in the whole graph: its own in the root, and
    /// `SUBGRAPH/NAME` below.
    #[must_use]
    pub fn node_label(&self, node: NodeId) -> String {
        self.label(self.nodes[node].subgraph, &self.nodes[node].name)
    }

    fn label(&self, subgraph: SubgraphId, name: &str) -> String {
        if subgraph == self.root {
            name.to_owned()
        } else {
            format!("{}/{name}", self.subgraphs[subgraph].name)
        }
    }
}

impl Node {
    /// The value in output slot `i`.
    #[must_use]
    pub fn output(&self, i: usize) -> Option<ValueId> {
        self.outputs.get(i).copied().flatten()
    }

    /// The value in input slot `i`.
    #[must_use]
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }
}

/// One spelling for each domain of operators: the default one of ONNX has two.
#[must_use]
pub(crate) fn domain_key(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Whether a node of this type stands for an input of its subgraph: `Data`, or what Graph Engine puts
/// in its place where images are converted on the way in (`AippData`) or labels come in (`AnnData`).
#[must_use]
pub(crate) fn stands_for_input(op: &str) -> bool {
    matches!(op, INPUT_OP | "AippData" | "AnnData")
}

/// Whether a node of this type runs nothing, so that it is on no stream unless its file says so.
#[must_use]
pub(crate) fn runs_nothing(op: &str) -> bool {
    stands_for_input(op) || matches!(op, OUTPUT_OP | CONST_OP)
}
