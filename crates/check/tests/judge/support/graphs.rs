//! Random graphs, what is special about some of them, and plans in words.

use arbitrary::Unstructured;
use tenure_graph::arbitrary_graph::{Size, ge, onnx};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::Plan;
use tenure_graph::{Graph, StreamId, ValueId};

/// A random graph on one stream, and a table for it. In some tables the operators with bodies are of unknown
/// kind, and some operators need scratch memory.
pub(crate) fn random_graph(rng: &mut fastrand::Rng, nodes: usize) -> (Graph, OpTable) {
    loop {
        let bytes: Vec<u8> = (0..nodes * 40).map(|_| rng.u8(..)).collect();
        let mut u = Unstructured::new(&bytes);
        let size = Size { nodes, depth: 3 };
        let graph = if rng.bool() {
            onnx(&mut u, size)
        } else {
            ge(&mut u, size)
        };
        let Ok(mut graph) = graph else { continue };
        for node in graph.nodes.values_mut() {
            node.stream = node.stream.map(|_| StreamId::from_u32(0));
        }
        let mut table = OpTable::builtin(graph.dialect);
        if rng.u8(0..6) == 0 {
            let rows = "[[op]]\nops = [\"If\", \"Loop\", \"While\"]\nclass = \"opaque\"\n";
            table.extend_toml(rows).unwrap();
        }
        if rng.u8(0..4) == 0 {
            let rows = "[[op]]\nops = [\"Mul\", \"Softmax\", \"Neg\"]\nscratch = [{ size = \"in0.bytes\" }]\n";
            table.extend_toml(rows).unwrap();
        }
        return (graph, table);
    }
}

/// A plan in short lines, for messages.
pub(crate) fn describe(graph: &Graph, plan: &Plan) -> String {
    let mut lines = vec![format!("{:?}", plan.options)];
    for (number, step) in plan.steps.iter().enumerate() {
        let n = &graph.nodes[step.node];
        let slots = |slots: &[Option<ValueId>]| {
            let names = slots
                .iter()
                .map(|v| v.map_or("-".to_owned(), |v| v.to_string()));
            names.collect::<Vec<_>>().join(" ")
        };
        lines.push(format!(
            "{number:3} {} {} {:?}: {} <- {}",
            step.node,
            n.op,
            step.phase,
            slots(&n.outputs),
            slots(&n.inputs)
        ));
    }
    for subgraph in graph.subgraphs.values() {
        let formals = subgraph.inputs.iter().map(|&d| graph.nodes[d].output(0));
        lines.push(format!(
            "{} {:?}",
            subgraph.name,
            formals.collect::<Vec<_>>()
        ));
    }
    for (id, s) in &plan.storages {
        let life: Vec<_> = s.life.iter().map(|s| (s.first, s.last)).collect();
        let members: Vec<_> = s
            .members
            .iter()
            .map(|m| (m.item, m.offset, m.bytes))
            .collect();
        lines.push(format!(
            "{id} {:?} +{} {life:?} {members:?}",
            s.place, s.size
        ));
    }
    lines.push(format!("{:?}", plan.copies));
    lines.join("\n")
}
