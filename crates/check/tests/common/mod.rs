//! What the tests of the checker are made of: plans from two planners that are too simple to be
//! wrong, damage, and an oracle that executes plans.

pub(crate) mod damage;
pub(crate) mod oracle;
pub(crate) mod planner;

use arbitrary::Unstructured;
use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::arbitrary_graph::{Size, ge, onnx};
use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::Plan;
use tenure_graph::{Graph, ValueId};

/// A random graph and a table for it. In some tables the operators with bodies are of unknown
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
        let Ok(graph) = graph else { continue };
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

/// Whether some loop has two states that start with the same bytes. Such states may stay equal for
/// ever, by a symmetry of the graph that the oracle sees and the checker does not look for.
pub(crate) fn has_twin_states(graph: &Graph, table: &OpTable) -> bool {
    let mut root: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let of = |root: &FxHashMap<ValueId, ValueId>, v: ValueId| *root.get(&v).unwrap_or(&v);
    // Ids grow in execution order, owners before what is in their bodies.
    for (id, node) in &graph.nodes {
        let effects = table.effects(graph, id);
        for view in &effects.views {
            let from = node.input(view.input as usize);
            let to = node.output(view.output as usize);
            if let (Some(from), Some(to)) = (from, to) {
                root.insert(to, of(&root, from));
            }
        }
        let mut starts = FxHashSet::default();
        for t in transfers(graph, id, effects.class) {
            let (Some(from), Some(to)) = (t.from, t.to) else {
                continue;
            };
            if t.at == Point::Begin && !starts.insert(of(&root, from)) {
                return true;
            }
            if t.pass == Pass::View {
                root.insert(to, of(&root, from));
            }
        }
    }
    false
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
