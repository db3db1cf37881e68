//! The invariants of a graph, and the check that they hold.
//!
//! 1. Every id that the graph mentions exists.
//! 2. Every node stands in the list of its subgraph, once, and in no other.
//! 3. Every value is listed by the node that makes it, in the slot that it names.
//! 4. Subgraphs are a tree under the root: each other subgraph is run by one body of the one node
//!    that it names as its owner, and the root by none.
//! 5. Subgraphs are nested at most [`MAX_DEPTH`] deep.
//! 6. Names are unique: of subgraphs in the graph, of nodes and of values in their subgraph.
//! 7. The labels of nodes ([`Graph::node_label`]) are unique in the graph, and so are those of
//!    values ([`Graph::value_label`]).
//! 8. A node reads values of earlier nodes of its subgraph, or of a subgraph around it from nodes
//!    before the one that runs it. So the order of the lists is an order of execution, and there
//!    are no cycles.
//! 9. Control edges come from earlier nodes of the same subgraph.
//! 10. A subgraph's `inputs` are its nodes of type `Data` (or `AippData`, `AnnData`), sorted by the
//!     input that they stand for (attribute `index` in the root, `parent_index` below, or else their
//!     position).
//! 11. A subgraph has at most one node of type `NetOutput`, which is its `output` and stands last.
//! 12. There are no more input attributes than inputs, a list of kinds of workspaces has an entry
//!     for each, and what a node asks of its memory can be read: flags are flags, lists are lists of
//!     numbers, no memory is of the session and of another special kind, and the inputs that an output
//!     says it is, or may be written over, are inputs of its node.
//! 13. Attributes of one thing have different names, and nest at most [`MAX_ATTR_DEPTH`] deep.
//! 14. Further keys of the file are none of the keys that the format knows.
//! 15. The bytes of every value whose shape is known fit in 63 bits, and so does the sum of all
//!     values and workspaces. So they are numbers with sign, too, which many formats have only.
//! 16. A constant tensor has as many elements as its shape says, where its contents are there.
//!
//! Whether bodies fit the nodes that run them is a matter of the operator table:
//! [`verify_bodies`], rules 17 to 21.
//!
//! The check takes time in proportion to the graph and does not recurse, whatever the graph.

mod bodies;

pub use bodies::verify_bodies;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashSet;

use crate::effects::demands::{misread, uneven_workspaces};
use crate::identity::walk;
use crate::link::inputs_in_order;
use crate::{Attr, Attrs, DType, Graph, Node, NodeId, OUTPUT_OP, SubgraphId, TensorData, ValueId};

/// How many subgraphs may stand around one.
pub const MAX_DEPTH: usize = 64;

/// How many lists and maps may stand around a value inside an attribute.
pub const MAX_ATTR_DEPTH: usize = 32;

/// At most so many broken rules are collected.
pub const MAX_BROKEN: usize = 100;

/// A rule that a graph breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem} (graph rule {rule})")]
pub struct Broken {
    /// Its number in the list at the head of [`crate::verify()`](mod@crate::verify).
    pub rule: u8,
    /// Where.
    pub at: String,
    /// What is wrong.
    pub problem: String,
}

/// Checks all invariants.
///
/// # Errors
/// The rules that the graph breaks, at most [`MAX_BROKEN`]. When ids do not hold together (rules
/// 1 to 5), the others are not looked at.
pub fn verify(graph: &Graph) -> Result<(), Vec<Broken>> {
    let mut check = Check::new(graph);
    check.ids();
    if check.broken.is_empty() {
        check.tree();
    }
    if check.broken.is_empty() {
        check.names();
        check.labels();
        check.edges();
        check.borders();
        check.attributes();
        check.sizes();
    }
    check.done()
}

struct Check<'a> {
    graph: &'a Graph,
    broken: Vec<Broken>,
    /// Places of nodes in the lists of their subgraphs.
    position: SecondaryMap<NodeId, usize>,
}

impl<'a> Check<'a> {
    fn new(graph: &'a Graph) -> Self {
        Check {
            graph,
            broken: Vec::new(),
            position: SecondaryMap::with_capacity(graph.nodes.len()),
        }
    }

    fn done(self) -> Result<(), Vec<Broken>> {
        if self.broken.is_empty() {
            Ok(())
        } else {
            Err(self.broken)
        }
    }

    fn fail(&mut self, rule: u8, at: impl Into<String>, problem: impl Into<String>) {
        if self.broken.len() < MAX_BROKEN {
            self.broken.push(Broken {
                rule,
                at: at.into(),
                problem: problem.into(),
            });
        }
    }

    fn node(&self, node: NodeId) -> String {
        format!("node {:?}", self.graph.node_label(node))
    }

    fn subgraph(&self, subgraph: SubgraphId) -> String {
        format!("graph {:?}", self.graph.subgraphs[subgraph].name)
    }

    /// Rules 1, 2 and 3.
    fn ids(&mut self) {
        let graph = self.graph;
        let has_node = |n: NodeId| graph.nodes.is_valid(n);
        let has_value = |v: ValueId| graph.values.is_valid(v);
        let has_graph = |s: SubgraphId| graph.subgraphs.is_valid(s);
        if !has_graph(graph.root) {
            self.fail(1, "root", format!("there is no {}", graph.root));
        }
        for (id, subgraph) in &graph.subgraphs {
            let nodes = (subgraph.nodes.iter())
                .chain(&subgraph.inputs)
                .chain(&subgraph.output)
                .chain(&subgraph.owner);
            for &missing in nodes.filter(|&&n| !has_node(n)) {
                self.fail(1, id.to_string(), format!("there is no node {missing}"));
            }
        }
        for (id, node) in &graph.nodes {
            if !has_graph(node.subgraph) {
                let problem = format!("there is no graph {}", node.subgraph);
                self.fail(1, id.to_string(), problem);
            }
            for &missing in node.control.iter().filter(|&&n| !has_node(n)) {
                self.fail(1, id.to_string(), format!("there is no node {missing}"));
            }
            let values = node.inputs.iter().chain(&node.outputs).flatten();
            for &missing in values.filter(|&&v| !has_value(v)) {
                self.fail(1, id.to_string(), format!("there is no value {missing}"));
            }
            for body in node.bodies.iter().filter(|b| !has_graph(b.graph)) {
                let problem = format!("there is no graph {}", body.graph);
                self.fail(1, id.to_string(), problem);
            }
        }
        for (id, value) in &graph.values {
            if !has_node(value.producer) {
                let problem = format!("there is no node {}", value.producer);
                self.fail(1, id.to_string(), problem);
            }
        }
        if !self.broken.is_empty() {
            return;
        }
        let mut listed: SecondaryMap<NodeId, bool> = SecondaryMap::new();
        for (id, subgraph) in &graph.subgraphs {
            for (position, &node) in subgraph.nodes.iter().enumerate() {
                if std::mem::replace(&mut listed[node], true) || graph.nodes[node].subgraph != id {
                    let problem = format!("node {node} is of another graph or listed twice");
                    self.fail(2, id.to_string(), problem);
                }
                self.position[node] = position;
            }
        }
        for id in graph.nodes.keys().filter(|&n| !listed[n]) {
            self.fail(2, id.to_string(), "no graph lists this node");
        }
        let mut made: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        for (id, node) in &graph.nodes {
            for (slot, &value) in node.outputs.iter().enumerate() {
                let Some(value) = value else { continue };
                let says = &graph.values[value];
                if says.producer != id || says.output as usize != slot {
                    let problem = format!(
                        "value {value} in output {slot} says that it is output {} of {}",
                        says.output, says.producer
                    );
                    self.fail(3, id.to_string(), problem);
                }
                made[value] = true;
            }
        }
        for id in graph.values.keys().filter(|&v| !made[v]) {
            self.fail(3, id.to_string(), "no node lists this value");
        }
    }

    /// Rules 4 and 5.
    fn tree(&mut self) {
        let graph = self.graph;
        let mut runs: SecondaryMap<SubgraphId, usize> = SecondaryMap::new();
        for (id, node) in &graph.nodes {
            for body in &node.bodies {
                runs[body.graph] += 1;
                if graph.subgraphs[body.graph].owner != Some(id) {
                    let problem = format!("runs {}, which names another owner", body.graph);
                    self.fail(4, id.to_string(), problem);
                }
            }
        }
        for (id, subgraph) in &graph.subgraphs {
            let is_root = id == graph.root;
            if runs[id] != usize::from(!is_root) || subgraph.owner.is_some() == is_root {
                self.fail(4, self.subgraph(id), "is not run by exactly one body");
            }
        }
        if !self.broken.is_empty() {
            return;
        }
        // Every subgraph has one owner now, so those that the walk misses are a circle.
        let mut depth: SecondaryMap<SubgraphId, usize> = SecondaryMap::new();
        for id in walk(graph) {
            depth[id] = 1 + graph.enclosing(id).map_or(0, |outer| depth[outer]);
            if depth[id] == MAX_DEPTH + 2 {
                let problem = format!("graphs are nested more than {MAX_DEPTH} deep");
                self.fail(5, self.subgraph(id), problem);
            }
        }
        for id in graph.subgraphs.keys().filter(|&s| depth[s] == 0) {
            self.fail(4, self.subgraph(id), "contains itself");
        }
    }

    /// Rule 6.
    fn names(&mut self) {
        let graph = self.graph;
        let mut seen = FxHashSet::default();
        for (id, subgraph) in &graph.subgraphs {
            if !seen.insert(&*subgraph.name) {
                self.fail(6, self.subgraph(id), "another graph has this name");
            }
        }
        for id in graph.subgraphs.keys() {
            let (mut nodes, mut values) = (FxHashSet::default(), FxHashSet::default());
            for &node in &graph.subgraphs[id].nodes {
                if !nodes.insert(&*graph.nodes[node].name) {
                    self.fail(
                        6,
                        self.node(node),
                        "another node of the graph has this name",
                    );
                }
                for &value in graph.nodes[node].outputs.iter().flatten() {
                    let name = &*graph.values[value].name;
                    if !values.insert(name) {
                        let problem = format!("value {name:?}: another of the graph has this name");
                        self.fail(6, self.node(node), problem);
                    }
                }
            }
        }
    }

    /// Rule 7.
    fn labels(&mut self) {
        // Inside one subgraph labels differ as names do, so only those with a `/` can meet those
        // of another subgraph.
        let graph = self.graph;
        let mut seen = FxHashSet::default();
        let doubtful = |s, name: &str| s != graph.root || name.contains('/');
        for (id, node) in &graph.nodes {
            if doubtful(node.subgraph, &node.name) && !seen.insert(graph.node_label(id)) {
                self.fail(7, self.node(id), "another node has this label");
            }
        }
        seen.clear();
        for (id, value) in &graph.values {
            if doubtful(graph.home(id), &value.name) {
                let label = graph.value_label(id);
                if seen.contains(&label) {
                    self.fail(
                        7,
                        format!("value {label:?}"),
                        "another value has this label",
                    );
                }
                seen.insert(label);
            }
        }
    }

    /// Rules 8 and 9.
    fn edges(&mut self) {
        let graph = self.graph;
        for (id, node) in &graph.nodes {
            for (i, &value) in node.inputs.iter().enumerate() {
                let Some(value) = value else { continue };
                let home = graph.home(value);
                // Up to the subgraph that makes the value.
                let mut at = id;
                while graph.nodes[at].subgraph != home {
                    match graph.subgraphs[graph.nodes[at].subgraph].owner {
                        Some(owner) => at = owner,
                        None => break,
                    }
                }
                let label = || graph.value_label(value);
                if graph.nodes[at].subgraph != home {
                    let problem = format!("input {i} is {:?} of a graph not around it", label());
                    self.fail(8, self.node(id), problem);
                } else if self.position[graph.values[value].producer] >= self.position[at] {
                    let problem = format!("input {i} is {:?}, which is made later", label());
                    self.fail(8, self.node(id), problem);
                }
            }
            for &before in &node.control {
                if graph.nodes[before].subgraph != node.subgraph
                    || self.position[before] >= self.position[id]
                {
                    let problem = format!(
                        "control edge from {}, which is no earlier node of this graph",
                        self.node(before)
                    );
                    self.fail(9, self.node(id), problem);
                }
            }
        }
    }

    /// Rules 10, 11 and 12.
    fn borders(&mut self) {
        let graph = self.graph;
        for (id, subgraph) in &graph.subgraphs {
            match inputs_in_order(graph, id) {
                Err((node, key)) => {
                    self.fail(10, self.node(node), format!("{key:?} is no input's number"));
                }
                Ok(inputs) if inputs != subgraph.inputs => {
                    self.fail(10, self.subgraph(id), "its inputs are not in order");
                }
                Ok(_) => {}
            }
            let outputs = (subgraph.nodes.iter()).filter(|&&n| &*graph.nodes[n].op == OUTPUT_OP);
            let last = subgraph.nodes.last().filter(|_| subgraph.output.is_some());
            if !outputs.eq(last) || last != subgraph.output.as_ref() {
                self.fail(11, self.subgraph(id), "its NetOutput is not its last node");
            }
        }
        for (id, node) in &graph.nodes {
            if node.input_attrs.len() > node.inputs.len() {
                let problem = format!(
                    "{} inputs, but attributes for {}",
                    node.inputs.len(),
                    node.input_attrs.len()
                );
                self.fail(12, self.node(id), problem);
            }
            self.named_inputs(id, node);
        }
    }

    /// Rule 12, the inputs that outputs name.
    fn named_inputs(&mut self, id: NodeId, node: &Node) {
        for (output, value) in node.outputs.iter().enumerate() {
            let hints = value.and_then(|v| self.graph.values[v].hints.as_deref());
            let Some(hints) = hints else { continue };
            let keys = [
                ("ref_input", hints.ref_input.as_slice()),
                ("reuse_input", hints.reuse_input.as_slice()),
                ("may_inplace", &hints.may_inplace),
            ];
            let inputs = node.inputs.len();
            let is_there = |&input: &u32| usize::try_from(input).is_ok_and(|i| i < inputs);
            for (key, named) in keys {
                if let Some(missing) = named.iter().find(|input| !is_there(input)) {
                    let problem = format!(
                        "{key} of output {output} names input {missing}, but there are {inputs}"
                    );
                    self.fail(12, self.node(id), problem);
                }
            }
        }
    }

    /// Rules 13, 14 and 16.
    fn attributes(&mut self) {
        let graph = self.graph;
        self.attrs("options", &graph.options, &[]);
        for (id, subgraph) in &graph.subgraphs {
            self.attrs(&self.subgraph(id), &subgraph.attrs, GRAPH_KEYS);
        }
        for (id, node) in &graph.nodes {
            let all = [&node.attrs, &node.extra]
                .into_iter()
                .chain(&node.input_attrs);
            if all.into_iter().all(Attrs::is_empty) {
                continue;
            }
            let at = self.node(id);
            self.attrs(&at, &node.attrs, &[]);
            self.attrs(&at, &node.extra, NODE_KEYS);
            for attrs in &node.input_attrs {
                self.attrs(&at, attrs, &[]);
            }
        }
        for (id, value) in &graph.values {
            if let Some(hints) = &value.hints {
                let at = format!("value {:?}", graph.value_label(id));
                self.attrs(&at, &hints.attrs, &[]);
                self.attrs(&at, &hints.extra, OUTPUT_KEYS);
            }
        }
    }

    /// One set of attributes; `taken` are names that mean something else in the file.
    fn attrs(&mut self, at: &str, attrs: &Attrs, taken: &[&str]) {
        if let Some((name, _)) = attrs.iter().find(|(name, _)| taken.contains(name)) {
            self.fail(14, at, format!("{name:?} is a key of the format"));
        }
        let mut sets = vec![(attrs, 0)];
        let mut stack = Vec::new();
        while let Some((set, depth)) = sets.pop() {
            let mut names = FxHashSet::default();
            for (name, attr) in set.iter() {
                if set.len() > 1 && !names.insert(name) {
                    self.fail(13, at, format!("two attributes are called {name:?}"));
                }
                stack.push((attr, depth));
            }
            while let Some((attr, depth)) = stack.pop() {
                if depth >= MAX_ATTR_DEPTH && matches!(attr, Attr::List(_) | Attr::Map(_)) {
                    let problem = format!("attributes nest more than {MAX_ATTR_DEPTH} deep");
                    self.fail(13, at, problem);
                    return;
                }
                match attr {
                    Attr::List(list) => stack.extend(list.iter().map(|a| (a, depth + 1))),
                    Attr::Map(map) => sets.push((map, depth + 1)),
                    Attr::Tensor(tensor) => {
                        let expected = match &tensor.data {
                            TensorData::Bytes(_) => {
                                tensor.elements().and_then(|n| tensor.dtype.bytes(n))
                            }
                            TensorData::Strings(_) if tensor.dtype == DType::String => {
                                tensor.elements()
                            }
                            TensorData::Strings(_) => None,
                            TensorData::External { .. } | TensorData::Absent => continue,
                        };
                        let found = match &tensor.data {
                            TensorData::Strings(strings) => strings.len(),
                            TensorData::Bytes(bytes) => bytes.len(),
                            _ => 0,
                        };
                        if expected != u64::try_from(found).ok() {
                            let problem = "contents of a tensor do not fit its type and shape";
                            self.fail(16, at, problem);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Rule 15.
    fn sizes(&mut self) {
        let graph = self.graph;
        let mut sum = Some(0u64);
        for (id, value) in &graph.values {
            let bytes = graph.bytes(id);
            let known = value.shape.as_ref().and_then(|s| s.known()).is_some();
            if bytes.is_none() && known && value.dtype.bits().is_some() {
                let at = format!("value {:?}", graph.value_label(id));
                self.fail(15, at, "its bytes do not fit in 63 bits");
            }
            let bytes = bytes.max(graph.asked_bytes(id));
            sum = sum.and_then(|sum| sum.checked_add(bytes.unwrap_or(0)));
        }
        for (id, node) in &graph.nodes {
            // The file says 0 or -1 where there is none.
            if let Some(wrong) = node.workspace.iter().find(|&&bytes| bytes < -1) {
                let at = format!("node {:?}", graph.node_label(id));
                self.fail(
                    15,
                    at,
                    format!("a workspace of {wrong} bytes: its size is not known"),
                );
            }
        }
        for (id, node) in &graph.nodes {
            if let Some((key, entries)) = uneven_workspaces(node) {
                let at = format!("node {:?}", graph.node_label(id));
                let workspaces = node.workspace.len();
                let problem = format!(
                    "{key} has {entries} entries for {workspaces} workspaces: it needs one for each"
                );
                self.fail(12, at, problem);
            }
            if let Some(problem) = misread(node) {
                let at = format!("node {:?}", graph.node_label(id));
                self.fail(12, at, problem);
            }
        }
        let workspaces = graph.nodes.values().flat_map(|n| &n.workspace);
        for bytes in workspaces.filter_map(|&b| u64::try_from(b).ok()) {
            sum = sum.and_then(|sum| sum.checked_add(bytes));
        }
        let fits = sum.is_some_and(|sum| i64::try_from(sum).is_ok());
        if !fits && self.broken.is_empty() {
            self.fail(15, "graph", "the bytes of all values do not fit in 63 bits");
        }
    }
}

/// Keys of a graph in JSON that are no attributes.
const GRAPH_KEYS: &[&str] = &["name", "nodes"];

/// Keys of a node in JSON that the format knows.
pub(crate) const NODE_KEYS: &[&str] = &[
    "name",
    "op",
    "domain",
    "inputs",
    "outputs",
    "control",
    "order",
    "stream",
    "attrs",
    "input_attrs",
    "subgraphs",
    "workspace",
];

/// Keys of an output in JSON that the format knows.
pub(crate) const OUTPUT_KEYS: &[&str] = &[
    "name",
    "dtype",
    "shape",
    "ref_input",
    "reuse_input",
    "may_inplace",
    "size",
    "shape_range",
    "attrs",
];

#[cfg(test)]
mod tests;
