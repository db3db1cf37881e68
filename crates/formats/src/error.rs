//! Why a file is no model that can be read.

use std::io;
use std::path::PathBuf;

use tenure_graph::LinkError;
use tenure_graph::json::JsonError;
use tenure_graph::verify::Broken;

/// Why a file is no model that can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The error belongs to this file.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file as it was named by the caller.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<FormatError>,
    },
    /// The system refused.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// A folder, a pipe, a device.
    #[error("is {0}; give the path of a file")]
    NotAFile(&'static str),
    /// No bytes at all.
    #[error("is empty; a model was expected")]
    Empty,
    /// The contents are of a kind that is no model, or of none that is known.
    #[error("looks like {0}; give an ONNX model, a Graph Engine model or dump, or graph JSON")]
    NoModel(String),
    /// An ONNX file that cannot be decoded.
    #[error("is a damaged ONNX file: {0}")]
    Damaged(String),
    /// A file of Graph Engine that cannot be decoded.
    #[error("is a damaged {what}: {at}: {problem}")]
    DamagedAt {
        /// Which kind of file.
        what: &'static str,
        /// Where it is damaged.
        at: Spot,
        /// What is wrong there.
        problem: String,
    },
    /// A compiled model that only its maker can read.
    #[error("is an encrypted model, which cannot be read; give the one before encryption")]
    Encrypted,
    /// A compiled file has fewer models.
    #[error("has no model {number}: it holds {models}, counted from 0")]
    NoSuchModel {
        /// The one that was asked for.
        number: usize,
        /// How many there are.
        models: usize,
    },
    /// Names in a file of Graph Engine that do not fit together.
    #[error(transparent)]
    Link(LinkError),
    /// A file of Graph Engine whose graph breaks rules of [`tenure_graph::verify()`].
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<Broken>),
    /// Graph JSON with a mistake.
    #[error(transparent)]
    Json(Box<JsonError>),
    /// A model with a mistake.
    #[error("{}{problem}", place(path))]
    Model {
        /// From the outermost graph inwards: nodes, bodies, values.
        path: Vec<String>,
        /// What is wrong there.
        problem: Problem,
    },
    /// The contents of a tensor cannot be had.
    #[error(
        "{}the contents of a tensor in {} {problem}",
        place(path),
        quoted(location)
    )]
    Weights {
        /// As in [`FormatError::Model`]; empty when the tensor is not read with its model.
        path: Vec<String>,
        /// The file that the model names.
        location: String,
        /// What is wrong with it.
        problem: WeightsProblem,
    },
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// A byte, counted from 0.
    Byte(u64),
    /// A line of text, counted from 1.
    Line(u64),
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spot::Byte(at) => write!(f, "byte {at}"),
            Spot::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// A name out of a file as messages show it: no control characters, no endless text.
pub(crate) fn shown(name: &str) -> String {
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        None => name.escape_debug().to_string(),
        Some((end, _)) => format!("{}…", name[..end].escape_debug()),
    }
}

/// The same in quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", shown(name))
}

fn place(path: &[String]) -> String {
    // Calls and bodies nest up to 64 deep: the ends say enough.
    const ENDS: usize = 3;
    let show = |parts: &[String]| parts.iter().map(|p| format!("{p}: ")).collect::<String>();
    if path.len() <= 2 * ENDS {
        return show(path);
    }
    let (first, last) = (&path[..ENDS], &path[path.len() - ENDS..]);
    format!("{}…: {}", show(first), show(last))
}

/// A mistake in a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file holds no graph.
    #[error("the model has no graph; the file may be cut short or be another kind of protobuf")]
    NoGraph,
    /// The graph computes nothing.
    #[error("the graph has no nodes and no outputs; the file may be another kind of protobuf")]
    EmptyGraph,
    /// A node without an operator type.
    #[error("the node has no operator type")]
    NoOperator,
    /// A node with more inputs than can be looked at.
    #[error("the node has {0} inputs; at most 10 000 are read")]
    TooManyInputs(usize),
    /// A node with more attributes than any operator has.
    #[error("the node has {0} attributes; no operator has more than a few dozen")]
    TooManyAttributes(usize),
    /// Something that must have a name has none.
    #[error("{0} has no name")]
    NoName(String),
    /// A name that is defined twice in one graph.
    #[error("{} is defined twice in this graph; every value is written once", quoted(.0))]
    Duplicate(String),
    /// A function that the model defines twice.
    #[error("the function {} is defined twice", quoted(.0))]
    DuplicateFunction(String),
    /// A name that nothing defines.
    #[error(
        "{slot} is {}, which no node, input or initializer defines",
        quoted(name)
    )]
    Undefined {
        /// Which input or output names it.
        slot: String,
        /// The name.
        name: String,
    },
    /// Nodes that wait for one another.
    #[error("the nodes form a cycle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// A dimension that is no size.
    #[error("dimension {axis} is {size}; a dimension is at least 0, or -1 where it is unknown")]
    Dimension {
        /// Its position.
        axis: usize,
        /// What stands there.
        size: i64,
    },
    /// A text that names no element type.
    #[error("{} is no element type", quoted(.0))]
    ElementName(String),
    /// An operator in a dump that is not one of Graph Engine's.
    #[error(
        "has the operator {}; operators in dumps of Graph Engine begin with \"ge:\"",
        quoted(.0)
    )]
    NotOfGe(String),
    /// A subgraph in a dump that does not say who runs it.
    #[error(
        "is a subgraph, and this kind of dump does not say which node runs it; dump with \
         DUMP_GRAPH_FORMAT=ge_proto"
    )]
    OwnerUnknown,
    /// More tensors than a node has.
    #[error("speaks of {number} inputs or outputs; there can be {most} at most")]
    Tensors {
        /// How many it speaks of.
        number: usize,
        /// How many there can be.
        most: usize,
    },
    /// An output in the memory of an input that cannot be told.
    #[error("output {output} lies in the memory of an input, and the file does not say of which")]
    Reference {
        /// Which output.
        output: usize,
    },
    /// Text that is no edge.
    #[error("input {} is no \"NODE:OUTPUT\"", quoted(.0))]
    Edge(String),
    /// A number of a stream that is none.
    #[error("is on stream {0}; a stream has a number from 0 on, or -1 for none")]
    Stream(i64),
    /// Memory of a size that is not known.
    #[error(
        "workspace {index} has {size} bytes; the model may have been saved before its shapes were known"
    )]
    Workspace {
        /// Which workspace.
        index: usize,
        /// What stands there.
        size: i64,
    },
    /// The number of an element type that a tensor cannot have.
    #[error("element type {0} is not known")]
    ElementType(i32),
    /// A number of elements that does not fit in 64 bits.
    #[error("the tensor has more elements than can be addressed")]
    TooLarge,
    /// Contents that are not what type and shape say.
    #[error("has {found} {unit} of contents; type and shape ask for {expected}")]
    Contents {
        /// What is there.
        found: u64,
        /// What should be there.
        expected: u64,
        /// `bytes`, `elements`, `strings`.
        unit: &'static str,
    },
    /// A tensor whose contents are spread over several messages.
    #[error(
        "is stored in segments, which is not supported; save the model with a current exporter"
    )]
    Segmented,
    /// A sparse tensor whose parts do not belong together.
    #[error("is a damaged sparse tensor: {0}")]
    Sparse(&'static str),
    /// A key of `external_data` that cannot be used.
    #[error("external data: {0}")]
    ExternalData(String),
    /// A reference to an attribute outside a function.
    #[error("refers to the attribute {} of a function, but stands in no function", quoted(.0))]
    StrayReference(String),
    /// An attribute of a kind that is not known.
    #[error("is of kind {0}, which is not known")]
    AttributeKind(i32),
    /// A function that is called by itself.
    #[error("the function calls itself: {}", .0.join(" -> "))]
    Recursion(Vec<String>),
    /// A call that does not fit the function.
    #[error("the call has {found} {what}, the function takes {limit}")]
    Call {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many the call has.
        found: usize,
        /// How many there are at most.
        limit: usize,
    },
    /// Subgraphs and calls that are nested too deep.
    #[error("subgraphs and function calls are nested more than {0} deep")]
    TooDeep(usize),
    /// Types in types beyond what the decoder follows: 100 messages, of which a type takes two.
    #[error("types are nested too deep to be decoded; about 50 levels can be")]
    TooDeepToDecode,
    /// A part of the model that is no message of its kind.
    #[error("cannot be decoded: {0}; the file may be damaged")]
    Damaged(String),
    /// Functions that grow beyond all bounds when they are inlined.
    #[error("inlining the model's functions takes more than {0} bytes of memory; inline fewer")]
    TooManyInlined(u64),
    /// More nodes or values than ids.
    #[error("the model has more than 4 billion nodes or values")]
    TooMany,
}

/// Why the contents of a tensor cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsProblem {
    /// A path that names no file below the model's folder.
    #[error(
        "would lie outside the model's folder ({0}); only files beside or below the model are read"
    )]
    Outside(&'static str),
    /// No such file, or no permission.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// A folder, a pipe, a device.
    #[error("cannot be read: it is {0}")]
    NotAFile(&'static str),
    /// The file ends before the contents do.
    #[error("take bytes {from} to {to}, but the file has {size}")]
    Short {
        /// First byte.
        from: u64,
        /// First byte after the contents.
        to: u64,
        /// Size of the file.
        size: u64,
    },
    /// The model's length is not what type and shape say.
    #[error("have {found} bytes; type and shape ask for {expected}")]
    Length {
        /// What the model says.
        found: u64,
        /// What type and shape say.
        expected: u64,
    },
    /// The model was saved without them.
    #[error("were left out when the model was saved")]
    Absent,
}

impl FormatError {
    /// The same error, told of the file.
    pub(crate) fn in_file(self, path: impl Into<PathBuf>) -> Self {
        FormatError::InFile {
            path: path.into(),
            error: Box::new(self),
        }
    }

    /// The same error, told of the place around it.
    #[must_use]
    pub(crate) fn within(mut self, place: impl FnOnce() -> String) -> Self {
        if let FormatError::Model { path, .. } | FormatError::Weights { path, .. } = &mut self {
            path.insert(0, place());
        }
        self
    }
}

impl From<LinkError> for FormatError {
    fn from(error: LinkError) -> Self {
        FormatError::Link(error)
    }
}

impl From<JsonError> for FormatError {
    fn from(error: JsonError) -> Self {
        FormatError::Json(Box::new(error))
    }
}

impl From<Problem> for FormatError {
    fn from(problem: Problem) -> Self {
        FormatError::Model {
            path: Vec::new(),
            problem,
        }
    }
}

/// Adds places to the error of a result.
pub(crate) trait Within<T> {
    /// The same result, its error told of the place around it.
    fn within(self, place: impl FnOnce() -> String) -> Result<T, FormatError>;
}

impl<T, E: Into<FormatError>> Within<T> for Result<T, E> {
    fn within(self, place: impl FnOnce() -> String) -> Result<T, FormatError> {
        self.map_err(|e| e.into().within(place))
    }
}
