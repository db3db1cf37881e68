//! A value is a value: random programs are guarded and then run in the memory that their storage
//! classes say, in random orders that data and control edges allow. Every node must read what it
//! read before anything was guarded, when each value had a memory of its own.

use std::collections::BTreeMap;

use tenure_graph::effects::OpTable;
use tenure_graph::{Attr, DType, Dialect, Graph, NodeId, OutputHints, Shape, ValueId, canonical};
use tenure_guard::storage::{Anchor, Classes};
use tenure_guard::{Options, compile};

/// What lies in a memory: which node wrote it, and from what; or garbage.
type Content = String;

/// A program of nodes that read, write in place, leave garbage, or give a value another name.
fn program(rng: &mut fastrand::Rng, nodes: usize) -> Graph {
    let mut graph = Graph::new("random", Dialect::Ge, "root");
    let root = graph.root;
    let shape = || Some(Shape::of(&[4]));
    let mut values: Vec<ValueId> = (0..2)
        .map(|i| graph.add_input(root, format!("x{i}"), DType::F32, shape()))
        .collect();
    let constant = graph.add_node(root, "k", "Const");
    graph.nodes[constant].stream = None;
    values.push(graph.add_output(constant, "k:0", DType::F32, shape()));
    for i in 0..nodes {
        let kind = rng.u8(0..6);
        let op = [
            "Relu",
            "AddInplace",
            "HcomAllReduce",
            "Reshape",
            "Identity",
            "Mul",
        ];
        let id = graph.add_node(root, format!("n{i}"), op[usize::from(kind)]);
        let reads = if matches!(kind, 1 | 5) { 2 } else { 1 };
        for _ in 0..reads {
            // Recent values more often, so that chains grow.
            let from = values
                .len()
                .saturating_sub(rng.usize(1..=4))
                .min(values.len() - 1);
            let any = rng.usize(0..values.len());
            let value = values[if rng.bool() { from } else { any }];
            graph.nodes[id].inputs.push(Some(value));
        }
        if kind == 2 {
            graph.nodes[id]
                .attrs
                .set("_input_mutable", Attr::Bool(true));
        }
        if rng.u8(0..4) == 0 && i > 0 {
            let before = graph.subgraphs[root].nodes[rng.usize(3..3 + i)];
            graph.nodes[id].control.push(before);
        }
        let value = graph.add_output(id, format!("n{i}:0"), DType::F32, shape());
        let mut hints = OutputHints::default();
        match kind {
            1 => hints.ref_input = Some(0),
            3 => hints.reuse_input = Some(0),
            _ => {}
        }
        graph.values[value].hints = Some(Box::new(hints));
        values.push(value);
    }
    let results: Vec<_> = (0..3)
        .map(|_| Some(values[rng.usize(3..values.len().max(4)).min(values.len() - 1)]))
        .collect();
    graph.add_results(root, "results", results);
    canonical(&graph)
}

/// What a node makes of what it reads: copies and names hand it on.
fn made(graph: &Graph, node: NodeId, read: &[Content]) -> Content {
    match &*graph.nodes[node].op {
        "Identity" | "Reshape" | "MemcpyAddrAsync" => read[0].clone(),
        _ => format!("{}({})", graph.nodes[node].name, read.join(",")),
    }
}

/// What each node of the original program reads, by name.
fn expected(graph: &Graph) -> BTreeMap<String, Vec<Content>> {
    let mut of: BTreeMap<ValueId, Content> = BTreeMap::new();
    let mut reads = BTreeMap::new();
    for &id in &graph.subgraphs[graph.root].nodes {
        let node = &graph.nodes[id];
        let read: Vec<Content> = node
            .inputs
            .iter()
            .flatten()
            .map(|v| of[v].clone())
            .collect();
        if let Some(value) = node.output(0) {
            of.insert(value, made(graph, id, &read));
        }
        reads.insert(node.name.clone(), read);
    }
    // Contents that are long would make the test slow; they are compared as they are.
    reads
}

/// A random order that data and control edges allow.
fn order(rng: &mut fastrand::Rng, graph: &Graph) -> Vec<NodeId> {
    let mut left: Vec<NodeId> = graph.subgraphs[graph.root].nodes.clone();
    let mut done: Vec<NodeId> = Vec::new();
    while !left.is_empty() {
        let is_ready = |&&id: &&NodeId| {
            let node = &graph.nodes[id];
            let reads = node
                .inputs
                .iter()
                .flatten()
                .map(|&v| graph.values[v].producer);
            let is_result = graph.subgraphs[graph.root].output == Some(id);
            let mut needs = reads.chain(node.control.iter().copied());
            needs.all(|n| done.contains(&n)) && (!is_result || left.len() == 1)
        };
        let ready: Vec<NodeId> = left.iter().filter(is_ready).copied().collect();
        let next = ready[rng.usize(0..ready.len())];
        left.retain(|&n| n != next);
        done.push(next);
    }
    done
}

/// Runs a guarded program in the memory of its classes; gives the first node that reads what it
/// should not.
fn run(
    graph: &Graph,
    order: &[NodeId],
    expected: &BTreeMap<String, Vec<Content>>,
) -> Result<(), String> {
    let table = OpTable::builtin(graph.dialect);
    let classes = Classes::build(graph, &table, graph.root).map_err(|e| e.to_string())?;
    let mut memory: BTreeMap<usize, Content> = BTreeMap::new();
    for &id in order {
        let node = &graph.nodes[id];
        let class_of = |anchor| classes.class_of(anchor).expect("an anchor with memory");
        let inputs = (0u32..)
            .zip(&node.inputs)
            .map(|(i, _)| class_of(Anchor::input(id, i)));
        let inputs: Vec<usize> = inputs.collect();
        let read: Vec<Content> = inputs.iter().map(|c| memory[c].clone()).collect();
        // A node that gives another name looks at nothing.
        if let Some(want) = expected.get(&node.name)
            && &*node.op != "Reshape"
            && *want != read
        {
            return Err(format!("{} reads {read:?}, not {want:?}", node.name));
        }
        if node.attrs.get("_input_mutable").is_some() {
            for &class in &inputs {
                memory.insert(class, format!("garbage of {}", node.name));
            }
        }
        if node.output(0).is_some() {
            let content = if node.inputs.is_empty() {
                format!("{}()", node.name)
            } else {
                made(graph, id, &read)
            };
            memory.insert(class_of(Anchor::output(id, 0)), content);
        }
    }
    for name in ["k", "x0", "x1"] {
        let kept = graph
            .nodes
            .keys()
            .find(|&n| graph.nodes[n].name == name)
            .expect("a source");
        let class = classes.class_of(Anchor::output(kept, 0)).expect("a class");
        if memory[&class] != format!("{name}()") {
            return Err(format!("{name} was overwritten: {}", memory[&class]));
        }
    }
    Ok(())
}

#[test]
fn every_node_reads_what_was_meant_in_every_order() {
    let table = OpTable::builtin(Dialect::Ge);
    let rounds = std::env::var("TENURE_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok());
    for seed in 0..rounds.unwrap_or(1000) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let nodes = rng.usize(1..14);
        let graph = program(&mut rng, nodes);
        let guarded = compile::run(&graph, &table, &Options::default())
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let safe = guarded.graph(&graph);
        let expected = expected(&graph);
        for _ in 0..4 {
            let order = order(&mut rng, safe);
            if let Err(wrong) = run(safe, &order, &expected) {
                let text = tenure_graph::text::print;
                panic!(
                    "seed {seed}: {wrong}\n{}\n{}\n{}",
                    text(&graph),
                    text(safe),
                    guarded.log
                );
            }
        }
    }
}
