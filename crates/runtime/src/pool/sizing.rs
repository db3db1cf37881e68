//! The dimensions of what a node makes, from what it reads.
//!
//! The node is looked at alone, as a graph of its own whose inputs have the dimensions that they have
//! now. The rules of shape inference then say the rest: from dimensions and constants where that is
//! enough, else from small contents as well. Where the contents decide as a whole
//! ([`sizes`](crate::kernels::sizes)), they are asked.

use std::sync::Arc;

use tenure_graph::effects::OpTable;
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{
    Attr, CONST_OP, DType, Dialect, Graph, Node, NodeId, Shape, Tensor, TensorData,
};

use crate::kernels::Dims;
use crate::kernels::sizes::{KNOWN_UP_TO, decide, is_decided_by_contents};

/// A node, taken out of its graph.
#[derive(Debug)]
pub(super) struct Lone {
    node: Node,
    opsets: Vec<(Arc<str>, i64)>,
    dialect: Dialect,
    inputs: Vec<Option<DType>>,
    /// Types of the outputs, and their dimensions where the graph knows them.
    outputs: Vec<Option<(DType, Option<Dims>)>>,
}

/// What is known of one of its inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) dims: &'a [usize],
    /// What is in it, if that is to take part.
    pub(super) bytes: Option<&'a [u8]>,
}

impl Lone {
    pub(super) fn new(graph: &Graph, id: NodeId) -> Self {
        let node = &graph.nodes[id];
        let known = |v| {
            let value: &tenure_graph::Value = &graph.values[v];
            (value.dtype, super::known_dims(value))
        };
        let dtype = |v| known(v).0;
        let mut alone = node.clone();
        alone.control.clear();
        Lone {
            inputs: node.inputs.iter().map(|v| v.map(dtype)).collect(),
            outputs: node.outputs.iter().map(|v| v.map(known)).collect(),
            opsets: graph.opsets.clone(),
            dialect: graph.dialect,
            node: alone,
        }
    }

    /// Whether the contents of its inputs decide its sizes as a whole.
    pub(super) fn is_decided_by_contents(&self) -> bool {
        self.node.domain.is_empty() && is_decided_by_contents(&self.node.op)
    }

    /// The graph that is the node alone.
    fn graph(&self, given: &[Option<Given<'_>>]) -> (Graph, NodeId) {
        let mut graph = Graph::new("", self.dialect, "root");
        graph.opsets.clone_from(&self.opsets);
        let root = graph.root;
        let mut inputs = Vec::with_capacity(given.len());
        for (i, (given, dtype)) in given.iter().zip(&self.inputs).enumerate() {
            let (Some(given), Some(dtype)) = (given, *dtype) else {
                inputs.push(None);
                continue;
            };
            let dims: Vec<u64> = given.dims.iter().map(|&d| count(d)).collect();
            let (name, shape) = (format!("input {i}"), Some(Shape::of(&dims)));
            inputs.push(Some(match given.bytes {
                Some(bytes) => {
                    let made = graph.add_node(root, name.clone(), CONST_OP);
                    graph.nodes[made].stream = None;
                    let data = TensorData::Bytes(bytes.to_vec().into());
                    let tensor = Tensor {
                        dtype,
                        shape: dims,
                        data,
                    };
                    let value = Attr::Tensor(Arc::new(tensor));
                    graph.nodes[made].attrs.set("value", value);
                    graph.add_output(made, name, dtype, shape)
                }
                None => graph.add_input(root, name, dtype, shape),
            }));
        }
        let id = graph.add_node(root, self.node.name.clone(), self.node.op.clone());
        let (subgraph, stream) = (graph.nodes[id].subgraph, graph.nodes[id].stream);
        graph.nodes[id] = Node {
            subgraph,
            stream,
            inputs: inputs.into(),
            outputs: Default::default(),
            ..self.node.clone()
        };
        for (i, output) in self.outputs.iter().enumerate() {
            match output {
                Some((dtype, _)) => {
                    graph.add_output(id, format!("output {i}"), *dtype, None);
                }
                None => graph.nodes[id].outputs.push(None),
            }
        }
        let outputs: Vec<_> = graph.nodes[id].outputs.to_vec();
        graph.add_results(root, "results", outputs);
        (graph, id)
    }

    /// The node alone with all dimensions known.
    ///
    /// # Errors
    /// Which dimensions cannot be known, or that they are others than the graph says.
    pub(super) fn size(
        &self,
        table: &OpTable,
        given: &[Option<Given<'_>>],
        all: &dyn Fn(usize) -> Vec<u8>,
    ) -> Result<(Graph, NodeId), String> {
        let (graph, id) = self.graph(given);
        let shaped = infer(graph, table, &Bindings::default()).map_err(|e| e.to_string())?;
        let wrong = shaped.warnings.first().map(ToString::to_string);
        let mut graph = shaped.graph;
        if self.is_decided_by_contents() {
            let contents: Vec<Vec<u8>> = (0..given.len())
                .map(|i| given[i].map_or(Vec::new(), |_| all(i)))
                .collect();
            if !decide(&mut graph, id, &contents) {
                return Err("it cannot have the inputs that it has".to_owned());
            }
        }
        for (output, planned) in graph.nodes[id].outputs.iter().zip(&self.outputs) {
            let (Some(output), Some((dtype, planned))) = (*output, planned) else {
                continue;
            };
            let value = &mut graph.values[output];
            // What the graph says holds where the rule says nothing.
            let found = super::known_dims(value);
            value.dtype = *dtype;
            match (found, planned) {
                (Some(found), Some(planned)) if found != *planned => {
                    return Err(format!(
                        "it makes {:?}, and {:?} was planned",
                        found.as_slice(),
                        planned.as_slice()
                    ));
                }
                (Some(_), _) => {}
                (None, Some(planned)) => {
                    let dims: Vec<u64> = planned.iter().map(|&d| count(d)).collect();
                    value.shape = Some(Shape::of(&dims));
                }
                (None, None) => return Err(wrong.unwrap_or_else(|| UNKNOWN.to_owned())),
            }
        }
        Ok((graph, id))
    }
}

/// What is said where no rule gives the size of an output.
const UNKNOWN: &str = "the sizes of its outputs do not follow from what it reads";

/// Whether a tensor is small enough for its contents to take part.
pub(super) fn takes_part(dims: &[usize]) -> bool {
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    elements.is_some_and(|n| count(n) <= KNOWN_UP_TO)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
