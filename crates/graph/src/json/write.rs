//! Writing graph JSON: a line for each node, in the order of [`crate::identity()`].

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::Formatter;
use std::io;

use super::FORMAT;
use super::attr::JsonAttr;
use super::attr::JsonAttrs;
use crate::identity::walk;
use crate::ir::runs_nothing;
use crate::{Dim, Graph, NodeId, OutputHints, Shape, StreamId, SubgraphId, ValueId};

/// The graph as JSON text. The graph must be one that [`crate::verify()`] accepts.
#[must_use]
pub fn write(graph: &Graph) -> String {
    let mut out = Vec::new();
    // Memory takes everything, and the writer makes UTF-8 only.
    let _ = write_to(graph, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes the graph as JSON text, a node at a time. The graph must be one that
/// [`crate::verify()`] accepts.
///
/// # Errors
/// What the writer says.
pub fn write_to(graph: &Graph, mut to: impl io::Write) -> io::Result<()> {
    let mut json = serde_json::Serializer::with_formatter(&mut to, Lines::default());
    JsonGraph(graph).serialize(&mut json)?;
    to.write_all(b"\n")
}

struct JsonGraph<'a>(&'a Graph);

impl Serialize for JsonGraph<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let graph = self.0;
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("format", FORMAT)?;
        map.serialize_entry("name", &graph.name)?;
        map.serialize_entry("dialect", graph.dialect.name())?;
        if !graph.opsets.is_empty() {
            let opsets: Vec<Opset> = (graph.opsets.iter())
                .map(|(domain, version)| Opset {
                    domain,
                    version: *version,
                })
                .collect();
            map.serialize_entry("opsets", &opsets)?;
        }
        if !graph.options.is_empty() {
            map.serialize_entry("options", &JsonAttrs(&graph.options))?;
        }
        map.serialize_entry("graphs", &JsonSubgraphs(graph))?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Opset<'a> {
    domain: &'a str,
    version: i64,
}

struct JsonSubgraphs<'a>(&'a Graph);

impl Serialize for JsonSubgraphs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(walk(self.0).map(|id| JsonSubgraph(self.0, id)))
    }
}

struct JsonSubgraph<'a>(&'a Graph, SubgraphId);

impl Serialize for JsonSubgraph<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let subgraph = &self.0.subgraphs[self.1];
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("name", &subgraph.name)?;
        for (name, attr) in subgraph.attrs.iter() {
            map.serialize_entry(name, &JsonAttr(attr))?;
        }
        map.serialize_entry("nodes", &JsonNodes(self.0, &subgraph.nodes))?;
        map.end()
    }
}

struct JsonNodes<'a>(&'a Graph, &'a [NodeId]);

impl Serialize for JsonNodes<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.1.iter().map(|&node| JsonNode(self.0, node)))
    }
}

struct JsonNode<'a>(&'a Graph, NodeId);

impl Serialize for JsonNode<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let graph = self.0;
        let node = &graph.nodes[self.1];
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("name", &node.name)?;
        map.serialize_entry("op", &node.op)?;
        if !node.domain.is_empty() {
            map.serialize_entry("domain", &node.domain)?;
        }
        if !node.inputs.is_empty() {
            map.serialize_entry("inputs", &JsonInputs(graph, self.1))?;
        }
        if !node.control.is_empty() {
            let names: Vec<&str> = (node.control.iter())
                .map(|&n| &*graph.nodes[n].name)
                .collect();
            map.serialize_entry("control", &names)?;
        }
        let usual = (!runs_nothing(&node.op)).then(|| StreamId::from_u32(0));
        if node.stream != usual {
            let stream = node.stream.map_or(-1, |s| i64::from(s.as_u32()));
            map.serialize_entry("stream", &stream)?;
        }
        if !node.attrs.is_empty() {
            map.serialize_entry("attrs", &JsonAttrs(&node.attrs))?;
        }
        if !node.input_attrs.is_empty() {
            let attrs: Vec<_> = node.input_attrs.iter().map(JsonAttrs).collect();
            map.serialize_entry("input_attrs", &attrs)?;
        }
        if !node.outputs.is_empty() {
            map.serialize_entry("outputs", &JsonOutputs(graph, self.1))?;
        }
        if !node.bodies.is_empty() {
            let bodies: Vec<Body> = (node.bodies.iter())
                .map(|body| Body {
                    role: &body.role,
                    graph: &graph.subgraphs[body.graph].name,
                })
                .collect();
            map.serialize_entry("subgraphs", &bodies)?;
        }
        if !node.workspace.is_empty() {
            map.serialize_entry("workspace", &node.workspace)?;
        }
        for (name, attr) in node.extra.iter() {
            map.serialize_entry(name, &JsonAttr(attr))?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Body<'a> {
    role: &'a str,
    graph: &'a str,
}

/// `NODE:OUT`.
pub(crate) fn slot_name(graph: &Graph, value: ValueId) -> String {
    let value = &graph.values[value];
    format!("{}:{}", graph.nodes[value.producer].name, value.output)
}

struct JsonInputs<'a>(&'a Graph, NodeId);

impl Serialize for JsonInputs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let graph = self.0;
        let node = &graph.nodes[self.1];
        let mut seq = s.serialize_seq(Some(node.inputs.len()))?;
        for &input in &node.inputs {
            match input {
                None => seq.serialize_element(&())?,
                Some(value) if graph.home(value) == node.subgraph => {
                    seq.serialize_element(&slot_name(graph, value))?;
                }
                Some(value) => seq.serialize_element(&Captured {
                    graph: &graph.subgraphs[graph.home(value)].name,
                    value: slot_name(graph, value),
                })?,
            }
        }
        seq.end()
    }
}

#[derive(serde::Serialize)]
struct Captured<'a> {
    graph: &'a str,
    value: String,
}

struct JsonOutputs<'a>(&'a Graph, NodeId);

impl Serialize for JsonOutputs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let outputs = &self.0.nodes[self.1].outputs;
        s.collect_seq(outputs.iter().map(|o| o.map(|id| JsonValue(self.0, id))))
    }
}

struct JsonValue<'a>(&'a Graph, ValueId);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let value = &self.0.values[self.1];
        let mut map = s.serialize_map(None)?;
        if value.name != slot_name(self.0, self.1) {
            map.serialize_entry("name", &value.name)?;
        }
        map.serialize_entry("dtype", value.dtype.name())?;
        if let Some(shape) = &value.shape {
            map.serialize_entry("shape", &JsonShape(shape))?;
        }
        if let Some(hints) = &value.hints {
            write_hints(hints, &mut map)?;
        }
        map.end()
    }
}

fn write_hints<M: SerializeMap>(hints: &OutputHints, map: &mut M) -> Result<(), M::Error> {
    if let Some(input) = hints.ref_input {
        map.serialize_entry("ref_input", &input)?;
    }
    if let Some(input) = hints.reuse_input {
        map.serialize_entry("reuse_input", &input)?;
    }
    if !hints.may_inplace.is_empty() {
        map.serialize_entry("may_inplace", &hints.may_inplace)?;
    }
    if let Some(size) = hints.size {
        map.serialize_entry("size", &size)?;
    }
    if !hints.shape_range.is_empty() {
        map.serialize_entry("shape_range", &hints.shape_range)?;
    }
    if !hints.attrs.is_empty() {
        map.serialize_entry("attrs", &JsonAttrs(&hints.attrs))?;
    }
    for (name, attr) in hints.extra.iter() {
        map.serialize_entry(name, &JsonAttr(attr))?;
    }
    Ok(())
}

struct JsonShape<'a>(&'a Shape);

impl Serialize for JsonShape<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.0.iter().map(JsonDim))
    }
}

struct JsonDim<'a>(&'a Dim);

impl Serialize for JsonDim<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Dim::Known(n) => s.serialize_u64(*n),
            Dim::Formula(formula) => s.collect_str(formula),
            Dim::Unknown => s.serialize_i64(-1),
        }
    }
}

/// Breaks lines down to the list of nodes, and writes each node on one line.
#[derive(Default)]
struct Lines {
    /// How many objects and lists are open.
    depth: usize,
}

impl Lines {
    /// File, list of graphs, graph, list of nodes.
    const BROKEN: usize = 4;

    fn next<W: ?Sized + io::Write>(&self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(b",")?;
        }
        if self.depth <= Self::BROKEN {
            self.break_line(to)
        } else if first {
            Ok(())
        } else {
            to.write_all(b" ")
        }
    }

    fn break_line<W: ?Sized + io::Write>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| to.write_all(b"  "))
    }

    fn close<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < Self::BROKEN {
            self.break_line(to)?;
        }
        Ok(())
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        to.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to)?;
        to.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        to.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to)?;
        to.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
