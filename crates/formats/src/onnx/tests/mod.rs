//! Models made for the purpose: what the reader makes of them, and what it says of bad ones.

mod calls;
mod data;
mod hostile;
mod scopes;

use tenure_graph::{Graph, ValueId, verify};

use crate::testing::{GraphBuilder, Model};
use crate::{FormatError, read_bytes};

/// The graph of a model, which must be sound.
fn read(model: &Model) -> Graph {
    let graph = read_bytes(model.encode()).unwrap_or_else(|e| panic!("{e}"));
    verify(&graph).unwrap_or_else(|e| panic!("{e:?}"));
    graph
}

/// What is said of a bad model.
fn error(model: &Model) -> String {
    match read_bytes(model.encode()) {
        Ok(graph) => panic!("read:\n{}", show(&graph)),
        Err(e) => e.to_string(),
    }
}

/// The problem of a bad model, without its place.
fn problem(model: &Model) -> crate::Problem {
    match read_bytes(model.encode()) {
        Err(FormatError::Model { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

/// A graph in short: `GRAPH: NAME = OP(INPUTS) -> OUTPUTS`, a line a node.
fn show(graph: &Graph) -> String {
    let label = |v: &Option<ValueId>| v.map_or("-".to_owned(), |v| graph.value_label(v));
    let list = |vs: &[Option<ValueId>]| vs.iter().map(label).collect::<Vec<_>>().join(", ");
    let mut text = String::new();
    for subgraph in graph.subgraphs.values() {
        for &node in &subgraph.nodes {
            let node = &graph.nodes[node];
            let bodies: Vec<String> = (node.bodies.iter())
                .map(|b| format!(" {}={}", b.role, graph.subgraphs[b.graph].name))
                .collect();
            text += &format!(
                "{}: {} = {}({}) -> {}{}\n",
                subgraph.name,
                node.name,
                node.op,
                list(&node.inputs),
                list(&node.outputs),
                bodies.concat(),
            );
        }
    }
    text
}

/// A graph with the `float32` vectors `inputs` and `outputs`.
fn graph(name: &str, inputs: &[&str], outputs: &[&str]) -> GraphBuilder {
    let mut g = GraphBuilder::new(name);
    for input in inputs {
        g.input(input, tenure_graph::DType::F32, "4");
    }
    for output in outputs {
        g.output(output, tenure_graph::DType::F32, "4");
    }
    g
}
