//! Tests of the operator tables. Nodes and tensors are written as text, effects are compared as
//! text.

mod expressions;
mod rows;
mod texts;

use super::*;
use crate::{Attr, Attrs, DType, Shape, Tensor, TensorData};

/// A graph with one node. Inputs and outputs are written `int8[2,3]` (`f`, `i` and `b` are
/// `float32`, `int64` and `bool`), a dimension `?` is not known, `-` is left out; an input
/// `i[2]=1,2` is a constant.
pub(super) struct Site {
    pub(super) graph: Graph,
    pub(super) node: NodeId,
    pub(super) table: OpTable,
}

impl Site {
    pub(super) fn new(dialect: Dialect, op: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let mut graph = Graph::new("", dialect, "root");
        graph.opsets.push((Arc::from(""), 21));
        let root = graph.root;
        let inputs: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(i, text)| add_input(&mut graph, &format!("in{i}"), text))
            .collect();
        let (domain, op) = op.rsplit_once(':').unwrap_or(("", op));
        let node = graph.add_node(root, "node", op);
        graph.nodes[node].domain = domain.into();
        graph.nodes[node].inputs = inputs.into();
        for (i, text) in outputs.iter().enumerate() {
            match tensor(text) {
                Some((dtype, shape)) => {
                    graph.add_output(node, format!("out{i}"), dtype, shape);
                }
                None => graph.nodes[node].outputs.push(None),
            }
        }
        let table = OpTable::builtin(dialect);
        Site { graph, node, table }
    }

    pub(super) fn onnx(op: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        Site::new(Dialect::Onnx, op, inputs, outputs)
    }

    /// Sets integer attributes written `name=1`, `name=1,2`; `opset=N` is the operator set.
    pub(super) fn with(mut self, attrs: &str) -> Self {
        for attr in attrs.split_whitespace() {
            let (name, text) = attr.split_once('=').unwrap();
            let ints: Vec<i64> = text.split(',').map(|i| i.parse().unwrap()).collect();
            if name == "opset" {
                self.graph.opsets[0].1 = ints[0];
                continue;
            }
            let value = match ints[..] {
                [one] => Attr::Int(one),
                _ => Attr::List(ints.into_iter().map(Attr::Int).collect()),
            };
            self.graph.nodes[self.node].attrs.set(name, value);
        }
        self
    }

    pub(super) fn effects(&self) -> Effects {
        self.table.effects(&self.graph, self.node)
    }

    /// What the effects say of memory: `view 0=1` output 0 is a view of input 1, `ref`, `over`
    /// (in place), `with` (aligned), `shape 1`.
    pub(super) fn text(&self) -> String {
        describe(&self.effects())
    }
}

fn describe(effects: &Effects) -> String {
    let mut words = Vec::new();
    let mut list = |name: &str, aliases: &[Alias]| {
        if !aliases.is_empty() {
            words.push(name.to_owned());
        }
        words.extend(aliases.iter().map(|a| format!("{}={}", a.output, a.input)));
    };
    list("view", &effects.views);
    list("ref", &effects.refs);
    list("over", &effects.in_place);
    list("with", &effects.aligned);
    for slot in &effects.shape_only {
        words.push(format!("shape {slot}"));
    }
    words.join(" ")
}

fn tensor(text: &str) -> Option<(DType, Option<Shape>)> {
    if text == "-" {
        return None;
    }
    let (dtype, dims) = text.trim_end_matches(']').split_once('[').unwrap();
    let dtype = match dtype {
        "f" => "float32",
        "i" => "int64",
        "b" => "bool",
        name => name,
    };
    let dim = |d: &str| d.parse().map_or(crate::Dim::Unknown, crate::Dim::Known);
    let dims = dims.split(',').filter(|d| !d.is_empty()).map(dim);
    Some((dtype.parse().unwrap(), Some(dims.collect())))
}

fn add_input(graph: &mut Graph, name: &str, text: &str) -> Option<crate::ValueId> {
    let root = graph.root;
    let Some((text, contents)) = text.split_once('=') else {
        let (dtype, shape) = tensor(text)?;
        return Some(graph.add_input(root, name, dtype, shape));
    };
    let (dtype, shape) = tensor(text)?;
    let node = graph.add_node(root, name, "Const");
    let dims = shape.as_ref()?.known()?.to_vec();
    let numbers = contents.split(',').map(|n| n.parse::<i64>().unwrap());
    let bytes: Vec<u8> = match dtype {
        DType::Bool => numbers.map(|n| u8::from(n != 0)).collect(),
        _ => numbers.flat_map(i64::to_le_bytes).collect(),
    };
    let tensor = Tensor {
        dtype,
        shape: dims,
        data: TensorData::Bytes(bytes.into()),
    };
    graph.nodes[node].attrs = Attrs::from_iter([("value", Attr::Tensor(Arc::new(tensor)))]);
    Some(graph.add_output(node, name, dtype, shape))
}
