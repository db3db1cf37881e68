//! A model of Graph Engine as its files spell it out, whichever of the encodings it comes in.

use tenure_graph::{Attrs, DType};

/// A model.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Its name; may be empty.
    pub(super) name: String,
    /// Its attributes: sizes of memory, numbers of streams and events, and more.
    pub(super) attrs: Attrs,
    /// The root, then all subgraphs.
    pub(super) graphs: Vec<GraphDef>,
}

/// A graph.
#[derive(Debug, Default)]
pub(super) struct GraphDef {
    pub(super) name: String,
    /// Its results as `NODE:OUT`; often empty, and then the node `NetOutput` has them.
    pub(super) outputs: Vec<String>,
    pub(super) attrs: Attrs,
    pub(super) ops: Vec<Op>,
}

/// A node.
#[derive(Debug, Default)]
pub(super) struct Op {
    pub(super) name: String,
    pub(super) op: String,
    /// `NODE:OUT`, empty for an optional input left out, and `NODE:-1` for a control edge.
    pub(super) inputs: Vec<String>,
    pub(super) attrs: Attrs,
    /// Place in the order of execution, once the model is compiled.
    pub(super) id: i64,
    /// -1 is none.
    pub(super) stream: i64,
    /// Names of the inputs, where the file gives them.
    pub(super) input_names: Vec<String>,
    /// Offset of each connected input.
    pub(super) input_offsets: Vec<i64>,
    /// Offset of each output.
    pub(super) output_offsets: Vec<i64>,
    pub(super) workspace_offsets: Vec<i64>,
    /// Size of each workspace; -1 and 0 are none.
    pub(super) workspace_bytes: Vec<i64>,
    pub(super) input_descs: Vec<Desc>,
    pub(super) output_descs: Vec<Desc>,
    /// Names of the subgraphs that it runs.
    pub(super) subgraphs: Vec<String>,
}

/// What is said of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Desc {
    pub(super) name: String,
    pub(super) dtype: DType,
    /// -1 is a dimension that is not known; a single -2 a rank that is not.
    pub(super) dims: Vec<i64>,
    pub(super) attrs: Attrs,
    /// Bytes to allocate, once the model is compiled.
    pub(super) size: i64,
    /// Whether it lies in the memory of an input.
    pub(super) reuses: bool,
    /// Which one that is; `None` where the encoding leaves it out.
    pub(super) reused: Option<u32>,
}

impl Default for Desc {
    fn default() -> Self {
        Desc {
            name: String::new(),
            dtype: DType::Unknown,
            dims: Vec::new(),
            attrs: Attrs::new(),
            size: 0,
            reuses: false,
            reused: Some(0),
        }
    }
}
