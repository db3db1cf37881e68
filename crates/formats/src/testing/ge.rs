//! Makes models of Graph Engine in each of the encodings that are read.
//!
//! ```
//! use tenure_formats::testing::ge::{Container, Model, Node, Tensor};
//!
//! let mut model = Model::new("net");
//! model.add(Node::new("x", "Data").output(Tensor::new("DT_FLOAT", &[16]).size(96)).at(&[0]));
//! model.add(Node::new("y", "Relu").inputs(&["x:0"]).output(Tensor::new("DT_FLOAT", &[16]).size(96)).at(&[512]));
//! model.add(Node::new("out", "NetOutput").inputs(&["y:0"]));
//! let graph = tenure_formats::read_bytes(model.om(Container::Wide))?;
//! assert_eq!(graph, tenure_formats::read_bytes(model.proto_text())?);
//! # Ok::<(), tenure_formats::FormatError>(())
//! ```

use crate::wire::{put_bytes, put_float, put_number};
use std::fmt::Write as _;

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// A truth value.
    Flag(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// Text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Truth values.
    Flags(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
    /// Rows of integers.
    Rows(Vec<Vec<i64>>),
}

/// A tensor: an output of a node.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: &'static str,
    dims: Vec<i64>,
    size: i64,
    reuses: Option<u32>,
    attrs: Vec<(String, Value)>,
}

impl Tensor {
    /// A tensor of an element type, as texts name it, and dimensions.
    #[must_use]
    pub fn new(dtype: &'static str, dims: &[i64]) -> Self {
        Tensor {
            dtype,
            dims: dims.to_vec(),
            size: 0,
            reuses: None,
            attrs: Vec::new(),
        }
    }

    /// With so many bytes to allocate.
    #[must_use]
    pub fn size(self, size: i64) -> Self {
        Tensor { size, ..self }
    }

    /// In the memory of an input.
    #[must_use]
    pub fn reuses(self, input: u32) -> Self {
        let reuses = Some(input);
        Tensor { reuses, ..self }
    }

    /// With an attribute.
    #[must_use]
    pub fn attr(mut self, name: &str, value: Value) -> Self {
        self.attrs.push((name.to_owned(), value));
        self
    }

    fn number(&self) -> u64 {
        let mut all = crate::ge::NAMES.iter();
        let found = all.find(|(name, _)| *name == self.dtype);
        found.map_or(0, |(_, number)| u64::from(*number))
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    op: String,
    inputs: Vec<String>,
    attrs: Vec<(String, Value)>,
    input_attrs: Vec<Vec<(String, Value)>>,
    stream: i64,
    outputs: Vec<Tensor>,
    offsets: Vec<i64>,
    input_offsets: Vec<i64>,
    workspaces: Vec<(i64, i64)>,
    subgraphs: Vec<String>,
}

impl Node {
    /// A node without inputs and outputs, on stream 0.
    #[must_use]
    pub fn new(name: &str, op: &str) -> Self {
        Node {
            name: name.to_owned(),
            op: op.to_owned(),
            inputs: Vec::new(),
            attrs: Vec::new(),
            input_attrs: Vec::new(),
            stream: 0,
            outputs: Vec::new(),
            offsets: Vec::new(),
            input_offsets: Vec::new(),
            workspaces: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    /// With these inputs: `NODE:OUT`, nothing for one left out, `NODE:-1` for a control edge.
    #[must_use]
    pub fn inputs(mut self, inputs: &[&str]) -> Self {
        self.inputs = inputs.iter().map(|&i| i.to_owned()).collect();
        self
    }

    /// With one more output.
    #[must_use]
    pub fn output(mut self, tensor: Tensor) -> Self {
        self.outputs.push(tensor);
        self
    }

    /// With an attribute.
    #[must_use]
    pub fn attr(mut self, name: &str, value: Value) -> Self {
        self.attrs.push((name.to_owned(), value));
        self
    }

    /// With an attribute of its next input.
    #[must_use]
    pub fn input_attr(mut self, name: &str, value: Value) -> Self {
        self.input_attrs.push(vec![(name.to_owned(), value)]);
        self
    }

    /// On a stream.
    #[must_use]
    pub fn stream(self, stream: i64) -> Self {
        Node { stream, ..self }
    }

    /// With its outputs at these offsets.
    #[must_use]
    pub fn at(mut self, offsets: &[i64]) -> Self {
        self.offsets = offsets.to_vec();
        self
    }

    /// With its inputs at these offsets.
    #[must_use]
    pub fn reads_at(mut self, offsets: &[i64]) -> Self {
        self.input_offsets = offsets.to_vec();
        self
    }

    /// With a workspace of so many bytes at an offset.
    #[must_use]
    pub fn workspace(mut self, bytes: i64, offset: i64) -> Self {
        self.workspaces.push((bytes, offset));
        self
    }

    /// With a subgraph.
    #[must_use]
    pub fn runs(mut self, graph: &str) -> Self {
        self.subgraphs.push(graph.to_owned());
        self
    }
}

/// A model.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    attrs: Vec<(String, Value)>,
    /// Name and nodes of the root and of the subgraphs.
    graphs: Vec<(String, Vec<Node>)>,
    /// Whether names of attributes are written as codes.
    coded: bool,
}

/// Which form of container a compiled model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// A table of numbers of 32 bits.
    Narrow,
    /// A table of numbers of 64 bits.
    Wide,
}

impl Model {
    /// A model whose root has the same name and no nodes.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Model {
            name: name.to_owned(),
            attrs: Vec::new(),
            graphs: vec![(name.to_owned(), Vec::new())],
            coded: false,
        }
    }

    /// Adds an attribute.
    pub fn attr(&mut self, name: &str, value: Value) {
        self.attrs.push((name.to_owned(), value));
    }

    /// Adds a node to the graph that was begun last.
    pub fn add(&mut self, node: Node) {
        if let Some((_, nodes)) = self.graphs.last_mut() {
            nodes.push(node);
        }
    }

    /// Begins a subgraph.
    pub fn graph(&mut self, name: &str) {
        self.graphs.push((name.to_owned(), Vec::new()));
    }

    /// Writes names of attributes as codes, and texts that are their values as numbers.
    #[must_use]
    pub fn coded(self) -> Self {
        Model {
            coded: true,
            ..self
        }
    }

    /// The binary form of `ge.proto`.
    #[must_use]
    pub fn proto(&self) -> Vec<u8> {
        let mut codes = self.coded.then(Codes::default);
        let mut out = Vec::new();
        put_bytes(&mut out, 1, self.name.as_bytes());
        put_number(&mut out, 2, 2);
        let mut first_id = 0;
        for (name, nodes) in &self.graphs {
            let mut graph = Vec::new();
            put_bytes(&mut graph, 1, name.as_bytes());
            for (id, node) in (first_id..).zip(nodes) {
                put_bytes(&mut graph, 6, &node.encode(id, &mut codes));
            }
            first_id += nodes.len() as u64;
            put_bytes(&mut out, 7, &graph);
        }
        let mut attrs = self.attrs.clone();
        attrs.extend(codes.map(Codes::attrs).unwrap_or_default());
        put_attrs(&mut out, 11, &attrs, &mut None);
        out
    }

    /// A compiled model.
    #[must_use]
    pub fn om(&self, container: Container) -> Vec<u8> {
        Model::om_of(std::slice::from_ref(self), container)
    }

    /// A compiled file that holds several models.
    #[must_use]
    pub fn om_of(models: &[Model], container: Container) -> Vec<u8> {
        let rest: Vec<u8> = models
            .iter()
            .flat_map(|m| m.partitions(container))
            .collect();
        let (narrow, wide) = match container {
            Container::Narrow => (rest.len(), 0),
            Container::Wide => (0, rest.len()),
        };
        let mut header = header(0x2000_0000, narrow, wide);
        if models.len() > 1 {
            let count = u32::try_from(models.len()).unwrap_or(u32::MAX);
            header[0x9c..0xa0].copy_from_slice(&count.to_le_bytes());
        }
        [header, rest].concat()
    }

    /// The table of partitions, and they.
    fn partitions(&self, container: Container) -> Vec<u8> {
        let definition = self.proto();
        let size = definition.len();
        let mut rest = Vec::new();
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        // Partition 1 is empty and stands first: their order is free.
        match container {
            Container::Narrow => {
                for n in [2, 1, size, 0, 0, 0, size] {
                    rest.extend(word(n));
                }
            }
            Container::Wide => {
                rest.extend([word(2), word(0)].concat());
                for [kind, offset, size] in [[1, size, 0], [0, 0, size]] {
                    rest.extend((kind as u64).to_le_bytes());
                    rest.extend((offset as u64).to_le_bytes());
                    rest.extend((size as u64).to_le_bytes());
                }
            }
        }
        rest.extend(definition);
        rest
    }

    /// A compiled model of 2019, which has neither codes nor subgraphs.
    #[must_use]
    pub fn om_of_2019(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, self.name.as_bytes());
        for (name, value) in &self.attrs {
            if let ("memory_size", &Value::Int(size)) = (&**name, value) {
                put_number(&mut out, 10, size.cast_unsigned());
            }
        }
        for (id, node) in (0..).zip(&self.graphs[0].1) {
            put_bytes(&mut out, 20, &node.encode_as_of_2019(id));
        }
        [header(0x1000_0000, out.len(), 0), out].concat()
    }

    /// The text form of `ge.proto`.
    #[must_use]
    pub fn proto_text(&self) -> Vec<u8> {
        let mut out = String::new();
        let mut id = 0;
        for (name, nodes) in &self.graphs {
            let _ = writeln!(out, "graph {{\n  name: {name:?}");
            for node in nodes {
                node.print(id, &mut out);
                id += 1;
            }
            out.push_str("}\n");
        }
        print_attrs(&self.attrs, "", &mut out);
        out.into_bytes()
    }

    /// The text form that is styled after ONNX.
    #[must_use]
    pub fn onnx_text(&self) -> Vec<u8> {
        let mut out = format!("ir_version: 5\nproducer_name: {:?}\ngraph {{\n", self.name);
        for (id, node) in (0..).zip(&self.graphs[0].1) {
            node.print_as_onnx(id, &mut out);
        }
        for (name, _) in &self.graphs[1..] {
            let _ = writeln!(
                out,
                "  node {{\n    name: {name:?}\n    op_type: \"subgraph\"\n  }}"
            );
        }
        let _ = writeln!(out, "  name: {:?}\n}}", self.graphs[0].0);
        out.into_bytes()
    }
}

/// A header of 256 bytes, before `narrow` or `wide` bytes: the length in 32 or in 64 bits.
fn header(version: u32, narrow: usize, wide: usize) -> Vec<u8> {
    let mut header = vec![0; 256];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"IMOD");
    put(4, &256u32.to_le_bytes());
    put(8, &version.to_le_bytes());
    put(
        0x4c,
        &u32::try_from(narrow).unwrap_or(u32::MAX).to_le_bytes(),
    );
    put(0x52, &[1]);
    put(0xb8, &(wide as u64).to_le_bytes());
    header
}

/// Names and texts that have been given numbers.
#[derive(Debug, Default)]
struct Codes {
    names: Vec<String>,
    of_texts: Vec<bool>,
    texts: Vec<String>,
}

impl Codes {
    fn key(&mut self, name: &str, value: &Value) -> Vec<u8> {
        let is_text = matches!(value, Value::Text(_) | Value::Texts(_));
        let known = self.names.iter().position(|n| n == name);
        let mut number = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.of_texts.push(is_text);
            self.names.len() - 1
        });
        let mut key = vec![0];
        loop {
            key.push(u8::try_from(number % 127).unwrap_or_default() + 1);
            number /= 127;
            if number == 0 {
                return key;
            }
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        let known = self.texts.iter().position(|t| t == text);
        let number = known.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        i64::try_from(number).unwrap_or(i64::MAX)
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Text(text) => Value::Int(self.text(text)),
            Value::Texts(texts) => Value::Ints(texts.iter().map(|t| self.text(t)).collect()),
            other => other.clone(),
        }
    }

    fn attrs(self) -> Vec<(String, Value)> {
        vec![
            ("om_compress_version".to_owned(), Value::Int(1)),
            ("attr_name_enum".to_owned(), Value::Texts(self.names)),
            ("attr_value_enum".to_owned(), Value::Texts(self.texts)),
            (
                "attrs_use_string_value".to_owned(),
                Value::Flags(self.of_texts),
            ),
        ]
    }
}

fn put_attrs(out: &mut Vec<u8>, number: u32, attrs: &[(String, Value)], codes: &mut Option<Codes>) {
    for (name, value) in attrs {
        let mut entry = Vec::new();
        let (key, value) = match codes {
            Some(codes) => (codes.key(name, value), codes.value(value)),
            None => (name.clone().into_bytes(), value.clone()),
        };
        put_bytes(&mut entry, 1, &key);
        put_bytes(&mut entry, 2, &value.encode());
        put_bytes(out, number, &entry);
    }
}

impl Value {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut list = Vec::new();
        match self {
            Value::Flag(flag) => put_number(&mut out, 5, u64::from(*flag)),
            Value::Int(i) => put_number(&mut out, 3, i.cast_unsigned()),
            Value::Float(f) => put_float(&mut out, 4, *f),
            Value::Text(text) => put_bytes(&mut out, 2, text.as_bytes()),
            Value::Ints(ints) => {
                for i in ints {
                    put_number(&mut list, 3, i.cast_unsigned());
                }
            }
            Value::Flags(flags) => {
                // Packed, as current writers do.
                let flags: Vec<u8> = flags.iter().map(|&f| u8::from(f)).collect();
                put_bytes(&mut list, 5, &flags);
            }
            Value::Texts(texts) => {
                for text in texts {
                    put_bytes(&mut list, 2, text.as_bytes());
                }
            }
            Value::Rows(rows) => {
                let mut all = Vec::new();
                for row in rows {
                    let mut one = Vec::new();
                    for i in row {
                        put_number(&mut one, 1, i.cast_unsigned());
                    }
                    put_bytes(&mut all, 1, &one);
                }
                put_bytes(&mut out, 14, &all);
            }
        }
        if matches!(self, Value::Ints(_) | Value::Flags(_) | Value::Texts(_)) {
            put_bytes(&mut out, 1, &list);
        }
        out
    }

    fn print(&self) -> String {
        let list = |name: &str, items: &[String]| {
            let items: String = items.iter().map(|i| format!(" {name}: {i}")).collect();
            format!("list {{{items} }}")
        };
        match self {
            Value::Flag(flag) => format!("b: {flag}"),
            Value::Int(i) => format!("i: {i}"),
            Value::Float(f) => format!("f: {f}"),
            Value::Text(text) => format!("s: {text:?}"),
            Value::Ints(ints) => list("i", &ints.iter().map(i64::to_string).collect::<Vec<_>>()),
            Value::Flags(flags) => {
                list("b", &flags.iter().map(bool::to_string).collect::<Vec<_>>())
            }
            Value::Texts(texts) => {
                let quoted: Vec<String> = texts.iter().map(|t| format!("{t:?}")).collect();
                list("s", &quoted)
            }
            Value::Rows(rows) => {
                let row = |row: &Vec<i64>| format!("list_list_i {{ list_i: {row:?} }}");
                let rows: Vec<String> = rows.iter().map(row).collect();
                format!("list_list_int {{ {} }}", rows.join(" "))
            }
        }
    }

    fn print_as_onnx(&self, name: &str, out: &mut String) {
        let (kind, fields) = match self {
            Value::Flag(flag) => ("INT", format!("i: {}", u8::from(*flag))),
            Value::Int(i) => ("INT", format!("i: {i}")),
            Value::Float(f) => ("FLOAT", format!("f: {f}")),
            Value::Text(text) => ("STRING", format!("s: {text:?}")),
            Value::Ints(ints) => ("INTS", fields("ints", ints.iter().map(i64::to_string))),
            Value::Flags(flags) => {
                let flags = flags.iter().map(|&f| u8::from(f).to_string());
                ("INTS", fields("ints", flags))
            }
            Value::Texts(texts) => {
                let texts = texts.iter().map(|t| format!("{t:?}"));
                ("STRINGS", fields("strings", texts))
            }
            Value::Rows(rows) => {
                for (k, row) in rows.iter().enumerate() {
                    Value::Ints(row.clone()).print_as_onnx(&format!("{name}_{k}"), out);
                }
                return;
            }
        };
        let _ = writeln!(
            out,
            "    attribute {{ name: {name:?} {fields} type: {kind} }}"
        );
    }
}

fn fields(name: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|i| format!("{name}: {i}")).collect();
    items.join(" ")
}

fn print_attrs(attrs: &[(String, Value)], indent: &str, out: &mut String) {
    for (name, value) in attrs {
        let _ = writeln!(
            out,
            "{indent}attr {{\n{indent}  key: {name:?}\n{indent}  value {{ {} }}\n{indent}}}",
            value.print()
        );
    }
}

impl Node {
    /// The inputs that are no control edges.
    fn anchors(&self) -> usize {
        self.inputs.iter().filter(|i| !i.ends_with(":-1")).count()
    }

    fn encode(&self, id: u64, codes: &mut Option<Codes>) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, self.name.as_bytes());
        put_bytes(&mut out, 2, self.op.as_bytes());
        for input in &self.inputs {
            put_bytes(&mut out, 5, input.as_bytes());
        }
        put_attrs(&mut out, 10, &self.attrs, codes);
        put_number(&mut out, 21, id);
        put_number(&mut out, 22, self.stream.cast_unsigned());
        for (number, offsets) in [(28, &self.input_offsets), (29, &self.offsets)] {
            for offset in offsets {
                put_number(&mut out, number, offset.cast_unsigned());
            }
        }
        for (bytes, offset) in &self.workspaces {
            put_number(&mut out, 30, offset.cast_unsigned());
            put_number(&mut out, 31, bytes.cast_unsigned());
        }
        for k in 0..self.anchors() {
            let mut desc = Vec::new();
            let attrs = self.input_attrs.get(k);
            put_attrs(&mut desc, 5, attrs.map_or(&[], Vec::as_slice), codes);
            put_bytes(&mut out, 33, &desc);
        }
        for tensor in &self.outputs {
            let mut desc = Vec::new();
            put_number(&mut desc, 2, tensor.number());
            let mut shape = Vec::new();
            for dim in &tensor.dims {
                put_number(&mut shape, 1, dim.cast_unsigned());
            }
            put_bytes(&mut desc, 3, &shape);
            put_attrs(&mut desc, 5, &tensor.attrs, codes);
            put_number(&mut desc, 10, tensor.size.cast_unsigned());
            if let Some(input) = tensor.reuses {
                put_number(&mut desc, 12, 1);
                put_number(&mut desc, 17, input.into());
            }
            put_bytes(&mut out, 34, &desc);
        }
        for graph in &self.subgraphs {
            put_bytes(&mut out, 35, graph.as_bytes());
        }
        out
    }

    fn encode_as_of_2019(&self, id: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, self.name.as_bytes());
        put_bytes(&mut out, 2, self.op.as_bytes());
        put_number(&mut out, 3, id);
        put_number(&mut out, 4, self.stream.cast_unsigned());
        for input in &self.inputs {
            let (node, output) = input.rsplit_once(':').unwrap_or_default();
            put_bytes(&mut out, 8, node.as_bytes());
            let output: i64 = output.parse().unwrap_or_default();
            put_number(&mut out, 9, output.cast_unsigned());
        }
        for (number, offsets) in [(10, &self.input_offsets), (11, &self.offsets)] {
            for offset in offsets {
                put_number(&mut out, number, offset.cast_unsigned());
            }
        }
        for tensor in &self.outputs {
            let mut desc = Vec::new();
            // The numbers of 2019; 0 is left out.
            match tensor.dtype {
                "DT_FLOAT16" => put_number(&mut desc, 2, 1),
                "DT_INT32" => put_number(&mut desc, 2, 3),
                _ => {}
            }
            let mut dims = Vec::new();
            for dim in &tensor.dims {
                dims.push(u8::try_from(*dim).unwrap_or_default());
            }
            put_bytes(&mut desc, 3, &dims);
            put_number(&mut desc, 4, tensor.size.cast_unsigned());
            if let Some(input) = tensor.reuses {
                put_number(&mut desc, 5, 1);
                put_number(&mut desc, 11, input.into());
            }
            put_bytes(&mut out, 13, &desc);
        }
        for (bytes, offset) in &self.workspaces {
            put_number(&mut out, 20, offset.cast_unsigned());
            put_number(&mut out, 21, bytes.cast_unsigned());
        }
        put_attrs(&mut out, 30, &self.attrs, &mut None);
        out
    }

    fn print(&self, id: u64, out: &mut String) {
        let _ = writeln!(
            out,
            "  op {{\n    name: {:?}\n    type: {:?}",
            self.name, self.op
        );
        for input in &self.inputs {
            let _ = writeln!(out, "    input: {input:?}");
        }
        print_attrs(&self.attrs, "    ", out);
        let _ = writeln!(out, "    id: {id}");
        if self.stream != 0 {
            let _ = writeln!(out, "    stream_id: {}", self.stream);
        }
        for (name, offsets) in [
            ("input_i", &self.input_offsets),
            ("output_i", &self.offsets),
        ] {
            for offset in offsets {
                let _ = writeln!(out, "    {name}: {offset}");
            }
        }
        for (bytes, offset) in &self.workspaces {
            let _ = writeln!(out, "    workspace: {offset}\n    workspace_bytes: {bytes}");
        }
        for k in 0..self.anchors() {
            out.push_str("    input_desc {\n");
            let attrs = self.input_attrs.get(k);
            print_attrs(attrs.map_or(&[], Vec::as_slice), "      ", out);
            out.push_str("    }\n");
        }
        for tensor in &self.outputs {
            let _ = writeln!(out, "    output_desc {{\n      dtype: {}", tensor.dtype);
            let dims = fields("dim", tensor.dims.iter().map(i64::to_string));
            let _ = writeln!(out, "      shape {{ {dims} }}");
            print_attrs(&tensor.attrs, "      ", out);
            let _ = writeln!(out, "      size: {}", tensor.size);
            if let Some(input) = tensor.reuses {
                let _ = writeln!(
                    out,
                    "      reuse_input: true\n      reuse_input_index: {input}"
                );
            }
            out.push_str("    }\n");
        }
        for graph in &self.subgraphs {
            let _ = writeln!(out, "    subgraph_name: {graph:?}");
        }
        out.push_str("  }\n");
    }

    fn print_as_onnx(&self, id: i64, out: &mut String) {
        out.push_str("  node {\n");
        for input in &self.inputs {
            let _ = writeln!(out, "    input: {input:?}");
        }
        let _ = writeln!(
            out,
            "    name: {:?}\n    op_type: \"ge:{}\"",
            self.name, self.op
        );
        let mut attr = |name: &str, value: Value| value.print_as_onnx(name, out);
        for (name, value) in &self.attrs {
            attr(name, value.clone());
        }
        attr("id", Value::Int(id));
        attr("stream_id", Value::Int(self.stream));
        attr("input_i", Value::Ints(self.input_offsets.clone()));
        attr("output_i", Value::Ints(self.offsets.clone()));
        let workspaces = self.workspaces.iter();
        let sizes = workspaces.clone().map(|w| w.0).collect();
        attr("workspace", Value::Ints(workspaces.map(|w| w.1).collect()));
        attr("workspace_bytes", Value::Ints(sizes));
        let count = |n: usize| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
        attr("input_desc_nums", count(self.anchors()));
        for (k, attrs) in self.input_attrs.iter().enumerate() {
            for (name, value) in attrs {
                attr(&format!("input_desc_attr_{name}:{k}"), value.clone());
            }
        }
        attr("output_desc_nums", count(self.outputs.len()));
        for (k, tensor) in self.outputs.iter().enumerate() {
            let mut field = |name: &str, value| attr(&format!("output_desc_{name}:{k}"), value);
            field("dtype", Value::Text(tensor.dtype.to_owned()));
            field("shape", Value::Ints(tensor.dims.clone()));
            field("size", Value::Int(tensor.size));
            field("reuse_input", Value::Flag(tensor.reuses.is_some()));
            for (name, value) in &tensor.attrs {
                field(&format!("attr_{name}"), value.clone());
            }
        }
        out.push_str("  }\n");
    }
}
