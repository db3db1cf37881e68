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

use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::sync::Arc;

use crate::verify::Broken;
use crate::{Attr, Graph, NodeId, StreamId, SubgraphId, ValueId, canonical, verify};

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
    pub lines: Vec<String>,
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
        let mut work = Work {
            graph: graph.clone(),
            before: FxHashMap::default(),
            removed: FxHashSet::default(),
            instead: FxHashMap::default(),
        };
        let mut log = Log::default();
        for (edit, reason) in &self.edits {
            let words = Words(graph, edit).to_string();
            match work.edit(edit) {
                Ok(()) => log.lines.push(format!("{words}: {reason}")),
                Err(problem) => {
                    return Err(PatchError::Unfit {
                        edit: words,
                        problem,
                    });
                }
            }
        }
        let edited = work.finish();
        verify(&edited).map_err(PatchError::Broken)?;
        Ok((edited, log))
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

/// A graph in the middle of its edits. Lists of nodes are rebuilt at the end, once.
struct Work {
    graph: Graph,
    /// New nodes by the node that they stand right before.
    before: FxHashMap<NodeId, Vec<NodeId>>,
    removed: FxHashSet<NodeId>,
    /// What stands for the outputs of removed nodes; never in a circle.
    instead: FxHashMap<ValueId, ValueId>,
}

impl Work {
    fn has(&self, node: NodeId) -> Result<NodeId, Unfit> {
        if self.graph.nodes.is_valid(node) && !self.removed.contains(&node) {
            Ok(node)
        } else {
            Err(Unfit::NoNode)
        }
    }

    fn slot(&mut self, reader: NodeId, input: u32) -> Result<&mut ValueId, Unfit> {
        self.has(reader)?;
        let slot = self.graph.nodes[reader].inputs.get_mut(input as usize);
        slot.and_then(Option::as_mut).ok_or(Unfit::NoInput)
    }

    fn edit(&mut self, edit: &Edit) -> Result<(), Unfit> {
        match edit {
            Edit::Insert {
                reader,
                input,
                op,
                name,
            } => {
                let value = *self.slot(*reader, *input)?;
                let producer = self.graph.values[value].producer;
                let (dtype, shape) = {
                    let value = &self.graph.values[value];
                    (value.dtype, value.shape.clone())
                };
                let subgraph = self.graph.nodes[*reader].subgraph;
                let node = self.graph.add_node(subgraph, name.clone(), Arc::clone(op));
                // It stands elsewhere than at the end: see `finish`.
                self.graph.subgraphs[subgraph].nodes.pop();
                self.before.entry(*reader).or_default().push(node);
                let nodes = &mut self.graph.nodes;
                let stream = nodes[*reader].stream.or(nodes[producer].stream);
                nodes[node].stream = stream.or(Some(StreamId::from_u32(0)));
                nodes[node].inputs.push(Some(value));
                let output = self
                    .graph
                    .add_output(node, format!("{name}:0"), dtype, shape);
                *self.slot(*reader, *input)? = output;
            }
            Edit::Bypass { node } => self.bypass(self.has(*node)?)?,
            Edit::AddControl { before, after } => {
                let (before, after) = (self.has(*before)?, self.has(*after)?);
                let control = &mut self.graph.nodes[after].control;
                if !control.contains(&before) {
                    control.push(before);
                }
            }
            Edit::RemoveControl { before, after } => {
                let after = self.has(*after)?;
                let control = &mut self.graph.nodes[after].control;
                let at = control.iter().position(|n| n == before);
                control.remove(at.ok_or(Unfit::NoControl)?);
            }
            Edit::SetAttr { node, attr, value } => {
                let node = self.has(*node)?;
                let attrs = &mut self.graph.nodes[node].attrs;
                match value {
                    Some(value) => attrs.set(Arc::clone(attr), value.clone()),
                    None => drop(attrs.remove(attr)),
                }
            }
            Edit::Redirect {
                reader,
                input,
                value,
            } => {
                let values = &self.graph.values;
                if !values.is_valid(*value) || self.has(values[*value].producer).is_err() {
                    return Err(Unfit::NoValue);
                }
                *self.slot(*reader, *input)? = *value;
            }
        }
        Ok(())
    }

    fn bypass(&mut self, node: NodeId) -> Result<(), Unfit> {
        let removed = &self.graph.nodes[node];
        if !removed.bodies.is_empty() {
            return Err(Unfit::HasBodies);
        }
        let ways: Option<Vec<(ValueId, ValueId)>> = (removed.outputs.iter().enumerate())
            .filter_map(|(i, output)| output.map(|output| (i, output)))
            .map(|(i, output)| Some((output, removed.input(i)?)))
            .collect();
        for (output, input) in ways.ok_or(Unfit::NoWayThrough)? {
            let mut source = input;
            while let Some(&further) = self.instead.get(&source) {
                source = further;
            }
            if source == output {
                return Err(Unfit::NoWayThrough);
            }
            self.instead.insert(output, input);
        }
        self.removed.insert(node);
        Ok(())
    }

    fn finish(mut self) -> Graph {
        let subgraphs: Vec<_> = self.graph.subgraphs.keys().collect();
        for id in subgraphs {
            let old = std::mem::take(&mut self.graph.subgraphs[id].nodes);
            let mut new = Vec::with_capacity(old.len());
            for node in old {
                new.extend(self.before.remove(&node).unwrap_or_default());
                if !self.removed.contains(&node) {
                    new.push(node);
                }
            }
            self.graph.subgraphs[id].nodes = new;
            let removed = &self.removed;
            let subgraph = &mut self.graph.subgraphs[id];
            subgraph.inputs.retain(|n| !removed.contains(n));
            subgraph.output = subgraph.output.filter(|n| !removed.contains(n));
        }
        if !self.removed.is_empty() {
            self.reconnect();
        }
        canonical(&self.graph)
    }

    /// Lets all nodes read and wait past the removed ones.
    fn reconnect(&mut self) {
        let order: Vec<NodeId> = crate::identity::walk(&self.graph)
            .flat_map(|s| self.graph.subgraphs[s].nodes.clone())
            .collect();
        // Whoever reads past a removed node waits for what that node waited for, or lets the node
        // wait that stands around the reader in the same subgraph.
        let mut waits: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for &id in &order {
            for i in 0..self.graph.nodes[id].inputs.len() {
                let mut input = self.graph.nodes[id].inputs[i];
                while let Some((from, &instead)) =
                    input.and_then(|v| Some((v, self.instead.get(&v)?)))
                {
                    let removed = &self.graph.nodes[self.graph.values[from].producer];
                    if let Some(waiter) = self.around(id, removed.subgraph) {
                        waits.entry(waiter).or_default().extend(&removed.control);
                    }
                    input = Some(instead);
                }
                self.graph.nodes[id].inputs[i] = input;
            }
        }
        for id in order {
            let old = &self.graph.nodes[id].control;
            let more = waits.remove(&id).unwrap_or_default();
            if !more.is_empty() || old.iter().any(|n| self.removed.contains(n)) {
                let control = self.past_removed(old.iter().copied().chain(more).collect());
                self.graph.nodes[id].control = control.into();
            }
        }
    }

    /// The node of `subgraph` that is `node` or runs it.
    fn around(&self, mut node: NodeId, subgraph: SubgraphId) -> Option<NodeId> {
        while self.graph.nodes[node].subgraph != subgraph {
            node = self.graph.subgraphs[self.graph.nodes[node].subgraph].owner?;
        }
        Some(node)
    }

    /// The given nodes, with what a removed one needed of the same subgraph in its place.
    fn past_removed(&self, mut stack: Vec<NodeId>) -> Vec<NodeId> {
        let nodes = &self.graph.nodes;
        stack.reverse();
        let mut control = Vec::new();
        let mut seen = FxHashSet::default();
        while let Some(node) = stack.pop() {
            if !seen.insert(node) {
                continue;
            }
            if self.removed.contains(&node) {
                let read = nodes[node].inputs.iter().flatten();
                let made_by = read.map(|&v| self.graph.values[v].producer);
                stack.extend(made_by.filter(|&n| nodes[n].subgraph == nodes[node].subgraph));
                stack.extend(&nodes[node].control);
            } else {
                control.push(node);
            }
        }
        control
    }
}

#[cfg(test)]
mod tests;
