//! Edits of a graph, built aside and applied all at once.
//!
//! A pass collects what it wants changed, each edit with its reason, while it looks at a graph
//! that stays as it is; [`Patch::apply`] then makes a new graph, or says which edit does not fit.
//! The new graph keeps every rule of [`crate::verify()`](mod@crate::verify) and has canonical ids,
//! so ids of the old one mean nothing in it: names do.
//!
//! ```
//! use tenure_graph::{patch::Patch, text};
//! let graph = text::parse(r#"
//! model m
//! graph ^g {
//!   %x: float32[4] = Data()
//!   NetOutput(%x) @results
//! }"#)?;
//! let results = graph.subgraphs[graph.root].output.unwrap();
//! let mut patch = Patch::new();
//! patch.insert(results, 0, "Identity", "copy", "the caller's input is also a result");
//! let (graph, log) = patch.apply(&graph)?;
//! assert_eq!(text::print(&graph), r#"model m ge
//! graph ^g {
//!   %x: float32[4] = Data()
//!   %copy:0: float32[4] = Identity(%x) @copy
//!   NetOutput(%copy:0) @results
//! }
//! "#);
//! assert_eq!(
//!     log.to_string(),
//!     "insert Identity \"copy\" before input 0 of \"results\": the caller's input is also a result\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod editor;

pub use editor::Editor;

use std::fmt;
use std::sync::Arc;

use crate::verify::Broken;
use crate::{Attr, Attrs, DType, Graph, NodeId, OutputHints, Shape, StreamId, SubgraphId, ValueId};

/// One change. Ids are those of the graph that the patch is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// A new node of one input and one output of the same type stands on an edge, right before
    /// the reader and on its stream.
    Insert {
        /// The reader.
        reader: NodeId,
        /// Which of its inputs.
        input: u32,
        /// Type of the new node.
        op: Arc<str>,
        /// Name of the new node; its output is called `NAME:0`.
        name: String,
    },
    /// A new node, wherever it is needed. Who is to read its outputs is told by
    /// [`Edit::Redirect`]: [`Editor::apply`] gives the node's id.
    Add {
        /// What is added.
        node: Box<NewNode>,
        /// Where it stands.
        spot: Spot,
    },
    /// A node is taken out: whoever reads its output `i` reads its input `i` instead, and whoever
    /// had to wait for the node waits for what it waited for.
    Bypass {
        /// The node; it has no subgraphs.
        node: NodeId,
    },
    /// `after` must wait for `before`.
    AddControl {
        /// An earlier node of the same subgraph.
        before: NodeId,
        /// Who waits.
        after: NodeId,
    },
    /// `after` need not wait for `before`.
    RemoveControl {
        /// Who was waited for.
        before: NodeId,
        /// Who waited.
        after: NodeId,
    },
    /// An attribute of a node is set, or removed.
    SetAttr {
        /// The node.
        node: NodeId,
        /// Name of the attribute.
        attr: Arc<str>,
        /// The value; `None` removes it.
        value: Option<Attr>,
    },
    /// An attribute of one input or output of a node is set, or removed.
    SetSlotAttr {
        /// The node.
        node: NodeId,
        /// Which of its inputs or outputs.
        slot: Slot,
        /// Name of the attribute.
        attr: Arc<str>,
        /// The value; `None` removes it.
        value: Option<Attr>,
    },
    /// An output is an input's memory from now on, or has its own again; nothing is written.
    Reuse {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        output: u32,
        /// Whose memory it is.
        input: Option<u32>,
    },
    /// A node reads another value.
    Redirect {
        /// The reader.
        reader: NodeId,
        /// Which of its inputs.
        input: u32,
        /// What it reads from now on.
        value: ValueId,
    },
}

/// An input or output slot of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Input number.
    In(u32),
    /// Output number.
    Out(u32),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::In(i) => write!(f, "input {i}"),
            Slot::Out(o) => write!(f, "output {o}"),
        }
    }
}

/// Where a new node stands in its subgraph's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Right before a node.
    Before(NodeId),
    /// Right behind a node.
    After(NodeId),
    /// Before all others of a subgraph.
    First(SubgraphId),
}

/// A node that [`Edit::Add`] adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewNode {
    /// Name; a number is added where the subgraph has one of that name already.
    pub name: String,
    /// Type.
    pub op: Arc<str>,
    /// What it reads.
    pub inputs: Vec<ValueId>,
    /// Its outputs, called `NAME:0` and so on.
    pub outputs: Vec<NewOutput>,
    /// Attributes.
    pub attrs: Attrs,
    /// Nodes that it waits for.
    pub control: Vec<NodeId>,
    /// The stream that it runs on; stream 0 if none is given.
    pub stream: Option<StreamId>,
}

/// An output of a [`NewNode`].
#[derive(Clone, Debug, PartialEq)]
pub struct NewOutput {
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Option<Shape>,
    /// What is said of its memory.
    pub hints: Option<Box<OutputHints>>,
}

/// Edits to be applied together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    /// The edits with their reasons, in order.
    edits: Vec<(Edit, String)>,
}

/// What a patch did: one line an edit, with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The lines.
    pub lines: Vec<Line>,
}

/// One edit that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What kind of edit it is.
    pub change: Change,
    /// The edit in words.
    pub what: String,
    /// Why it was made.
    pub reason: String,
    /// The label of the node that was added or taken out; of another edit, of the node that is
    /// another from now on.
    pub node: String,
}

/// What kind of edit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node was added.
    Added,
    /// A node was taken out.
    TakenOut,
    /// A node waits for another.
    Ordered,
    /// A node waits for another no more.
    Released,
    /// An attribute was set or removed.
    Marked,
    /// An output shares an input's memory, or does so no more.
    Merged,
    /// A node reads another value.
    Redirected,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

impl Edit {
    /// What kind of edit it is.
    #[must_use]
    pub const fn change(&self) -> Change {
        match self {
            Edit::Insert { .. } | Edit::Add { .. } => Change::Added,
            Edit::Bypass { .. } => Change::TakenOut,
            Edit::AddControl { .. } => Change::Ordered,
            Edit::RemoveControl { .. } => Change::Released,
            Edit::SetAttr { .. } | Edit::SetSlotAttr { .. } => Change::Marked,
            Edit::Reuse { .. } => Change::Merged,
            Edit::Redirect { .. } => Change::Redirected,
        }
    }

    /// The node that is another after the edit; of a new node, the one beside it, if any.
    const fn subject(&self) -> Option<NodeId> {
        match self {
            Edit::Insert { reader: node, .. }
            | Edit::Redirect { reader: node, .. }
            | Edit::Bypass { node }
            | Edit::AddControl { after: node, .. }
            | Edit::RemoveControl { after: node, .. }
            | Edit::SetAttr { node, .. }
            | Edit::SetSlotAttr { node, .. }
            | Edit::Reuse { node, .. } => Some(*node),
            Edit::Add { .. } => None,
        }
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// An edit that does not fit the graph, or not after the edits before it.
    #[error("cannot {edit}: {problem}")]
    Unfit {
        /// The edit in words.
        edit: String,
        /// Why it does not fit.
        problem: Unfit,
    },
    /// All edits fit, but the graph that they make breaks rules.
    #[error("the edited graph is not valid: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<Broken>),
}

/// Why an edit does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The graph has no such node, or an edit before this one took it out.
    #[error("there is no such node")]
    NoNode,
    /// The node has no such input, or it is left out.
    #[error("there is no such input")]
    NoInput,
    /// The graph has no such value, or an edit before this one took it out.
    #[error("there is no such value")]
    NoValue,
    /// The node has no such output, or it is left out.
    #[error("there is no such output")]
    NoOutput,
    /// The graph has no such subgraph.
    #[error("there is no such subgraph")]
    NoSubgraph,
    /// There is no such control edge.
    #[error("there is no such control edge")]
    NoControl,
    /// A node with subgraphs cannot be taken out.
    #[error("the node has subgraphs")]
    HasBodies,
    /// An output of the node has no input in its place.
    #[error("an output has no input of the same number")]
    NoWayThrough,
}

impl Patch {
    /// No edits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Adds an edit.
    pub fn push(&mut self, edit: Edit, reason: impl Into<String>) {
        self.edits.push((edit, reason.into()));
    }

    /// Adds [`Edit::Insert`].
    pub fn insert(
        &mut self,
        reader: NodeId,
        input: u32,
        op: impl Into<Arc<str>>,
        name: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let (op, name) = (op.into(), name.into());
        let edit = Edit::Insert {
            reader,
            input,
            op,
            name,
        };
        self.push(edit, reason);
    }

    /// The graph with all edits made, and the log of them.
    ///
    /// # Errors
    /// The first edit that does not fit, or the rules that the result would break; `graph` is as
    /// it was in any case.
    pub fn apply(&self, graph: &Graph) -> Result<(Graph, Log), PatchError> {
        let mut editor = Editor::new(graph);
        for (edit, reason) in &self.edits {
            editor.apply(edit, reason)?;
        }
        editor.finish()
    }
}

/// An edit in words, with the labels of a graph.
struct Words<'a>(&'a Graph, &'a Edit);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |node: NodeId| match self.0.nodes.is_valid(node) {
            true => format!("{:?}", self.0.node_label(node)),
            false => node.to_string(),
        };
        match self.1 {
            Edit::Insert {
                reader,
                input,
                op,
                name,
            } => {
                let reader = label(*reader);
                write!(f, "insert {op} {name:?} before input {input} of {reader}")
            }
            Edit::Add { node, .. } => write!(f, "add {} {:?}", node.op, node.name),
            Edit::SetSlotAttr {
                node,
                slot,
                attr,
                value,
            } => {
                let verb = if value.is_some() { "set" } else { "remove" };
                write!(f, "{verb} {attr:?} of {slot} of {}", label(*node))
            }
            Edit::Reuse {
                node,
                output,
                input,
            } => {
                let node = label(*node);
                match input {
                    Some(i) => write!(f, "let output {output} of {node} be its input {i}"),
                    None => write!(f, "let output {output} of {node} have its own memory"),
                }
            }
            Edit::Bypass { node } => write!(f, "take out {}", label(*node)),
            Edit::AddControl { before, after } => {
                write!(f, "let {} wait for {}", label(*after), label(*before))
            }
            Edit::RemoveControl { before, after } => {
                write!(f, "let {} not wait for {}", label(*after), label(*before))
            }
            Edit::SetAttr {
                node,
                attr,
                value: Some(_),
            } => write!(f, "set {attr:?} of {}", label(*node)),
            Edit::SetAttr { node, attr, .. } => write!(f, "remove {attr:?} of {}", label(*node)),
            Edit::Redirect {
                reader,
                input,
                value,
            } => {
                let value = match self.0.values.is_valid(*value) {
                    true => format!("{:?}", self.0.value_label(*value)),
                    false => value.to_string(),
                };
                write!(f, "let input {input} of {} read {value}", label(*reader))
            }
        }
    }
}

#[cfg(test)]
mod tests;
