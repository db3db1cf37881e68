//! A graph as text, in the order of [`crate::identity()`].

use std::fmt::{self, Display, Write};

use super::{is_bare, is_word};
use crate::elements::{to_hex, to_list};
use crate::ir::runs_nothing;
use crate::{
    Attr, Attrs, Dim, Graph, NodeId, OutputHints, Shape, StreamId, SubgraphId, Tensor, TensorData,
    ValueId,
};

/// The graph as text. The graph must be one that [`crate::verify()`](mod@crate::verify) accepts.
#[must_use]
pub fn print(graph: &Graph) -> String {
    let mut text = String::new();
    // A string takes everything.
    let _ = print_to(graph, &mut text);
    text
}

/// Writes the graph as text, a node at a time. The graph must be one that
/// [`crate::verify()`](mod@crate::verify) accepts.
///
/// # Errors
/// What the writer says.
pub fn print_to(graph: &Graph, to: &mut impl Write) -> fmt::Result {
    write!(to, "model {} {}", Name(&graph.name), graph.dialect.name())?;
    if !graph.opsets.is_empty() {
        let opsets =
            (graph.opsets.iter()).map(|(domain, version)| format!("{} {version}", Quoted(domain)));
        write!(to, " opsets [{}]", opsets.collect::<Vec<_>>().join(", "))?;
    }
    if !graph.options.is_empty() {
        write!(to, " options {}", Map(&graph.options))?;
    }
    to.write_str("\ngraph ")?;
    body(graph, graph.root, 0, to)
}

fn body(graph: &Graph, id: SubgraphId, depth: usize, to: &mut impl Write) -> fmt::Result {
    let subgraph = &graph.subgraphs[id];
    write!(to, "{}", Sigil('^', &subgraph.name))?;
    if !subgraph.attrs.is_empty() {
        write!(to, " with {}", Map(&subgraph.attrs))?;
    }
    to.write_str(" {\n")?;
    for &node in &subgraph.nodes {
        indent(depth + 1, to)?;
        line(graph, node, to)?;
        to.write_str("\n")?;
        for inner in &graph.nodes[node].bodies {
            indent(depth + 2, to)?;
            write!(to, "{} ", Name(&inner.role))?;
            body(graph, inner.graph, depth + 2, to)?;
        }
    }
    indent(depth, to)?;
    to.write_str("}\n")
}

fn indent(depth: usize, to: &mut impl Write) -> fmt::Result {
    (0..depth).try_for_each(|_| to.write_str("  "))
}

/// A node without its bodies.
fn line(graph: &Graph, id: NodeId, to: &mut impl Write) -> fmt::Result {
    let node = &graph.nodes[id];
    for (i, output) in node.outputs.iter().enumerate() {
        to.write_str(if i == 0 { "" } else { ", " })?;
        match output {
            None => to.write_str("_")?,
            Some(value) => output_slot(graph, *value, to)?,
        }
    }
    if !node.outputs.is_empty() {
        to.write_str(" = ")?;
    }
    if !node.domain.is_empty() {
        write!(to, "{}::", Name(&node.domain))?;
    }
    write!(to, "{}(", Name(&node.op))?;
    for (i, &input) in node.inputs.iter().enumerate() {
        to.write_str(if i == 0 { "" } else { ", " })?;
        match input {
            None => to.write_str("_")?,
            Some(value) => {
                write!(to, "{}", Sigil('%', &graph.values[value].name))?;
                let home = graph.home(value);
                if home != node.subgraph {
                    write!(to, "{}", Sigil('^', &graph.subgraphs[home].name))?;
                }
            }
        }
    }
    to.write_str(")")?;
    let first = node.output(0).map(|v| &*graph.values[v].name);
    if first != Some(&node.name) {
        write!(to, " {}", Sigil('@', &node.name))?;
    }
    if !node.attrs.is_empty() {
        write!(to, " {}", Map(&node.attrs))?;
    }
    for (i, &before) in node.control.iter().enumerate() {
        to.write_str(if i == 0 { " after " } else { ", " })?;
        write!(to, "{}", Sigil('@', &graph.nodes[before].name))?;
    }
    let usual = (!runs_nothing(&node.op)).then(|| StreamId::from_u32(0));
    match node.stream {
        stream if stream == usual => {}
        None => to.write_str(" stream none")?,
        Some(stream) => write!(to, " stream {}", stream.as_u32())?,
    }
    if !node.input_attrs.is_empty() {
        write!(to, " inputs {}", Joined(node.input_attrs.iter().map(Map)))?;
    }
    if !node.workspace.is_empty() {
        write!(to, " workspace {}", Joined(node.workspace.iter()))?;
    }
    if !node.extra.is_empty() {
        write!(to, " with {}", Map(&node.extra))?;
    }
    Ok(())
}

fn output_slot(graph: &Graph, id: ValueId, to: &mut impl Write) -> fmt::Result {
    let value = &graph.values[id];
    write!(to, "{}: {}", Sigil('%', &value.name), value.dtype)?;
    if let Some(shape) = &value.shape {
        write!(to, "{}", Dims(shape))?;
    }
    match value.hints.as_deref() {
        Some(hints) if *hints != OutputHints::default() => {
            write!(to, " <{}>", Entries(&hint_entries(hints)))
        }
        _ => Ok(()),
    }
}

/// Hints under the keys that JSON has for them.
fn hint_entries(hints: &OutputHints) -> Attrs {
    let index = |i: u32| Attr::Int(i64::from(i));
    let ranges = hints.shape_range.iter();
    let ranges = ranges.map(|range| Attr::List(range.map(Attr::Int).to_vec()));
    let known = [
        ("ref_input", hints.ref_input.map(index)),
        ("reuse_input", hints.reuse_input.map(index)),
        (
            "may_inplace",
            (!hints.may_inplace.is_empty())
                .then(|| Attr::List(hints.may_inplace.iter().copied().map(index).collect())),
        ),
        // The verifier refuses more than 63 bits.
        (
            "size",
            (hints.size).map(|n| Attr::Int(i64::try_from(n).unwrap_or(i64::MAX))),
        ),
        (
            "shape_range",
            (!hints.shape_range.is_empty()).then(|| Attr::List(ranges.collect())),
        ),
        (
            "attrs",
            (!hints.attrs.is_empty()).then(|| Attr::Map(hints.attrs.clone())),
        ),
    ];
    let known = known
        .into_iter()
        .filter_map(|(key, attr)| Some((key.to_owned(), attr?)));
    let extra = hints.extra.iter().map(|(k, a)| (k.to_owned(), a.clone()));
    known.chain(extra).collect()
}

/// A name where only a name can stand.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_word(self.0) {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

/// A name after its sigil.
struct Sigil<'a>(char, &'a str);

impl Display for Sigil<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(self.0)?;
        if is_bare(self.1) {
            f.write_str(self.1)
        } else {
            Quoted(self.1).fmt(f)
        }
    }
}

/// Text in quotes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// `[a, b]`.
struct Joined<I>(I);

impl<I: Iterator<Item: Display> + Clone> Display for Joined<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.0.clone().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            item.fmt(f)?;
        }
        f.write_str("]")
    }
}

struct Dims<'a>(&'a Shape);

impl Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = self.0.0.iter().map(|dim| match dim {
            Dim::Known(n) => n.to_string(),
            Dim::Formula(formula) => Quoted(&formula.to_string()).to_string(),
            Dim::Unknown => "?".to_owned(),
        });
        Joined(dims).fmt(f)
    }
}

/// `{name = attr, …}`.
struct Map<'a>(&'a Attrs);

impl Display for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", Entries(self.0))
    }
}

struct Entries<'a>(&'a Attrs);

impl Display for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, attr)) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            write!(f, "{} = {}", Name(name), One(attr))?;
        }
        Ok(())
    }
}

/// An attribute.
struct One<'a>(&'a Attr);

impl Display for One<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Attr::Null => f.write_str("null"),
            Attr::Bool(b) => b.fmt(f),
            Attr::Int(i) => i.fmt(f),
            Attr::Float(x) if x.is_nan() => f.write_str("nan"),
            // The debug form always shows that it is no integer.
            Attr::Float(x) => write!(f, "{x:?}"),
            Attr::Str(text) => Quoted(text).fmt(f),
            Attr::Bytes(bytes) => hex(bytes, f),
            Attr::List(list) => Joined(list.iter().map(One)).fmt(f),
            Attr::Map(map) => Map(map).fmt(f),
            Attr::Tensor(t) => tensor(t, f),
        }
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "x\"{}\"", to_hex(bytes))
}

fn tensor(tensor: &Tensor, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}{} ", tensor.dtype, Joined(tensor.shape.iter()))?;
    match &tensor.data {
        TensorData::External {
            location,
            offset,
            length,
        } => {
            write!(f, "at {} {offset}", Quoted(location))?;
            length.map_or(Ok(()), |length| write!(f, " {length}"))
        }
        TensorData::Absent => f.write_str("?"),
        _ if !tensor.is_small() => f.write_str("?"),
        data => match (to_list(tensor), data) {
            (Some(list), _) => Joined(list.iter().map(One)).fmt(f),
            (None, TensorData::Bytes(bytes)) => hex(bytes, f),
            (None, _) => f.write_str("?"),
        },
    }
}
