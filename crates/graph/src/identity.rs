//! One numbering of all ids that does not depend on how a graph came about, and a hash of it.
//!
//! Subgraphs are numbered in the order in which a walk from the root meets them: first a graph,
//! then, node by node and body by body, what its nodes run. Nodes are numbered in the order of
//! their subgraphs, values in the order of their nodes. [`canonical`] gives a graph these numbers;
//! graphs that are read from JSON or text have them already.
//!
//! [`identity`] is the SHA-256 of what the graph *is*: structure, operators, attributes, shapes,
//! contents of small constants. It is the same whatever the ids are, and the same before and after
//! a way through JSON or text. Contents of tensors of more than [`INLINE_BYTES`](crate::INLINE_BYTES) are no part of
//! it, since no plan depends on them.

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use sha2::{Digest, Sha256};

use crate::{
    Attr, Attrs, Dim, Graph, NodeId, OutputHints, SubgraphId, Tensor, TensorData, Value, ValueId,
};

/// The subgraphs in canonical order: each right before what its nodes run. Ends on graphs that
/// contain themselves, too.
pub fn walk(graph: &Graph) -> impl Iterator<Item = SubgraphId> + '_ {
    let mut stack = vec![graph.root];
    std::iter::from_fn(move || {
        let next = stack.pop()?;
        for &node in graph.subgraphs[next].nodes.iter().rev() {
            stack.extend(graph.nodes[node].bodies.iter().rev().map(|b| b.graph));
        }
        Some(next)
    })
    .take(graph.subgraphs.len())
}

/// The same graph with canonical ids. Nodes and values that no subgraph lists are dropped, and so
/// are hints that say nothing.
///
/// The graph must be one that [`crate::verify()`] accepts, apart from such nodes and values.
#[must_use]
pub fn canonical(graph: &Graph) -> Graph {
    let mut subgraph_ids: SecondaryMap<SubgraphId, Option<SubgraphId>> = SecondaryMap::new();
    let mut node_ids: SecondaryMap<NodeId, Option<NodeId>> = SecondaryMap::new();
    let mut value_ids: SecondaryMap<ValueId, Option<ValueId>> = SecondaryMap::new();
    let (mut n_nodes, mut n_values) = (0, 0);
    for (i, subgraph) in walk(graph).enumerate() {
        subgraph_ids[subgraph] = Some(SubgraphId::new(i));
        for &node in &graph.subgraphs[subgraph].nodes {
            node_ids[node] = Some(NodeId::new(n_nodes));
            n_nodes += 1;
            for &value in graph.nodes[node].outputs.iter().flatten() {
                value_ids[value] = Some(ValueId::new(n_values));
                n_values += 1;
            }
        }
    }
    let mut new = Graph {
        name: graph.name.clone(),
        dialect: graph.dialect,
        opsets: graph.opsets.clone(),
        options: graph.options.clone(),
        root: SubgraphId::new(0),
        subgraphs: PrimaryMap::with_capacity(graph.subgraphs.len()),
        nodes: PrimaryMap::with_capacity(n_nodes),
        values: PrimaryMap::with_capacity(n_values),
    };
    for id in walk(graph) {
        let mut subgraph = graph.subgraphs[id].clone();
        subgraph.owner = subgraph.owner.and_then(|n| node_ids[n]);
        subgraph.output = subgraph.output.and_then(|n| node_ids[n]);
        for list in [&mut subgraph.nodes, &mut subgraph.inputs] {
            *list = list.iter().filter_map(|&n| node_ids[n]).collect();
        }
        for &node in &graph.subgraphs[id].nodes {
            let mut node = graph.nodes[node].clone();
            for &value in node.outputs.iter().flatten() {
                let value = &graph.values[value];
                new.values.push(Value {
                    producer: node_ids[value.producer].unwrap_or(value.producer),
                    hints: (value.hints.clone()).filter(|h| **h != OutputHints::default()),
                    ..value.clone()
                });
            }
            let renumber = |v: &Option<ValueId>| v.and_then(|v| value_ids[v]);
            node.inputs = node.inputs.iter().map(renumber).collect();
            node.outputs = node.outputs.iter().map(renumber).collect();
            node.control = node.control.iter().filter_map(|&n| node_ids[n]).collect();
            node.subgraph = SubgraphId::new(new.subgraphs.len());
            for body in &mut node.bodies {
                body.graph = subgraph_ids[body.graph].unwrap_or(body.graph);
            }
            new.nodes.push(node);
        }
        new.subgraphs.push(subgraph);
    }
    new
}

/// The graph's identity: 64 hexadecimal digits. The graph must be one that [`crate::verify()`]
/// accepts.
#[must_use]
pub fn identity(graph: &Graph) -> String {
    // Values by the place of their subgraph, node and slot, which is what an id would be in the
    // canonical numbering.
    let mut number_of: SecondaryMap<ValueId, u32> = SecondaryMap::with_capacity(graph.values.len());
    let mut place_of: SecondaryMap<NodeId, u32> = SecondaryMap::with_capacity(graph.nodes.len());
    let mut values = 0u32;
    let mut nodes = 0u32;
    for subgraph in walk(graph) {
        for &node in &graph.subgraphs[subgraph].nodes {
            place_of[node] = nodes;
            nodes = nodes.saturating_add(1);
            for &value in graph.nodes[node].outputs.iter().flatten() {
                number_of[value] = values;
                values = values.saturating_add(1);
            }
        }
    }
    let mut out = Stream::new();
    out.text("tenure.graph/1");
    out.text(&graph.name);
    out.text(graph.dialect.name());
    out.count(graph.opsets.len());
    for (domain, version) in &graph.opsets {
        out.text(domain);
        out.int(*version);
    }
    out.attrs(&graph.options);
    for subgraph in walk(graph) {
        let subgraph = &graph.subgraphs[subgraph];
        out.text(&subgraph.name);
        out.attrs(&subgraph.attrs);
        out.count(subgraph.nodes.len());
        for &node in &subgraph.nodes {
            let node = &graph.nodes[node];
            out.text(&node.name);
            out.text(&node.op);
            out.text(&node.domain);
            out.optional(node.stream, |out, s| out.number(u64::from(s.as_u32())));
            out.count(node.inputs.len());
            for &input in &node.inputs {
                out.optional(input, |out, v| out.number(u64::from(number_of[v])));
            }
            out.count(node.control.len());
            for &before in &node.control {
                out.number(u64::from(place_of[before]));
            }
            out.count(node.outputs.len());
            for &output in &node.outputs {
                out.optional(output, |out, v| out.value(&graph.values[v]));
            }
            out.count(node.bodies.len());
            for body in &node.bodies {
                out.text(&body.role);
            }
            out.count(node.workspace.len());
            for &bytes in &node.workspace {
                out.int(bytes);
            }
            out.attrs(&node.attrs);
            out.count(node.input_attrs.len());
            for attrs in &node.input_attrs {
                out.attrs(attrs);
            }
            out.attrs(&node.extra);
        }
    }
    out.finish()
}

/// What is hashed: every part with its length or kind in front, so that no two graphs give the
/// same stream.
struct Stream {
    hash: Sha256,
    /// Collects small pieces: a hash is fed faster with large ones.
    buffer: Vec<u8>,
}

impl Stream {
    const FULL: usize = 1 << 14;

    fn new() -> Self {
        Stream {
            hash: Sha256::new(),
            buffer: Vec::with_capacity(2 * Self::FULL),
        }
    }

    fn finish(mut self) -> String {
        self.hash.update(&self.buffer);
        let digest = self.hash.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= Self::FULL {
            self.hash.update(&self.buffer);
            self.buffer.clear();
        }
    }

    fn kind(&mut self, kind: u8) {
        self.raw(&[kind]);
    }

    fn number(&mut self, n: u64) {
        self.raw(&n.to_le_bytes());
    }

    fn int(&mut self, n: i64) {
        self.raw(&n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        // Lengths fit in 64 bits on every machine.
        self.number(n as u64);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    fn optional<T>(&mut self, value: Option<T>, some: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.kind(0),
            Some(value) => {
                self.kind(1);
                some(self, value);
            }
        }
    }

    fn value(&mut self, value: &Value) {
        self.text(&value.name);
        self.text(value.dtype.name());
        self.optional(value.shape.as_ref(), |out, shape| {
            out.count(shape.0.len());
            for dim in &shape.0 {
                match dim {
                    Dim::Unknown => out.kind(0),
                    Dim::Known(n) => {
                        out.kind(1);
                        out.number(*n);
                    }
                    Dim::Formula(formula) => {
                        out.kind(2);
                        out.text(&formula.to_string());
                    }
                }
            }
        });
        let hints = (value.hints.as_deref()).filter(|h| **h != OutputHints::default());
        self.optional(hints, |out, hints| {
            out.optional(hints.ref_input, |out, i| out.number(u64::from(i)));
            out.optional(hints.reuse_input, |out, i| out.number(u64::from(i)));
            out.count(hints.may_inplace.len());
            for &input in &hints.may_inplace {
                out.number(u64::from(input));
            }
            out.optional(hints.size, Self::number);
            out.count(hints.shape_range.len());
            for &[least, greatest] in &hints.shape_range {
                out.int(least);
                out.int(greatest);
            }
            out.attrs(&hints.attrs);
            out.attrs(&hints.extra);
        });
    }

    fn attrs(&mut self, attrs: &Attrs) {
        self.count(attrs.len());
        for (name, attr) in attrs.iter() {
            self.text(name);
            self.attr(attr);
        }
    }

    fn attr(&mut self, attr: &Attr) {
        match attr {
            Attr::Null => self.kind(0),
            Attr::Bool(b) => {
                self.kind(1);
                self.kind(u8::from(*b));
            }
            Attr::Int(i) => {
                self.kind(2);
                self.int(*i);
            }
            Attr::Float(f) => {
                self.kind(3);
                // All values that are no number are one.
                let f = if f.is_nan() { f64::NAN } else { *f };
                self.number(f.to_bits());
            }
            Attr::Str(text) => {
                self.kind(4);
                self.text(text);
            }
            Attr::Bytes(bytes) => {
                self.kind(5);
                self.bytes(bytes);
            }
            Attr::List(list) => {
                self.kind(6);
                self.count(list.len());
                for attr in list {
                    self.attr(attr);
                }
            }
            Attr::Map(map) => {
                self.kind(7);
                self.attrs(map);
            }
            Attr::Tensor(tensor) => {
                self.kind(8);
                self.tensor(tensor);
            }
        }
    }

    fn tensor(&mut self, tensor: &Tensor) {
        self.text(tensor.dtype.name());
        self.count(tensor.shape.len());
        for &dim in &tensor.shape {
            self.number(dim);
        }
        match &tensor.data {
            _ if !tensor.is_small() => self.kind(0),
            TensorData::Absent => self.kind(0),
            TensorData::Bytes(bytes) => {
                self.kind(1);
                self.bytes(bytes);
            }
            TensorData::Strings(strings) => {
                self.kind(2);
                self.count(strings.len());
                for string in strings {
                    self.bytes(string);
                }
            }
            TensorData::External {
                location,
                offset,
                length,
            } => {
                self.kind(3);
                self.text(location);
                self.number(*offset);
                self.optional(*length, Self::number);
            }
        }
    }
}
