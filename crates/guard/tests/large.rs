//! Programs of the size that the guard is made for: the work must not grow with the number of
//! pairs of anchors that share memory.

use tenure_graph::effects::OpTable;
use tenure_graph::{Attr, DType, Dialect, Graph, NodeId, Shape, SubgraphId, ValueId, canonical};
use tenure_guard::{Options, compile, layout};

fn node(graph: &mut Graph, at: SubgraphId, name: String, op: &str, inputs: &[ValueId]) -> NodeId {
    let node = graph.add_node(at, name, op);
    graph.nodes[node]
        .inputs
        .extend(inputs.iter().copied().map(Some));
    node
}

fn value(graph: &mut Graph, node: NodeId, output: u32) -> ValueId {
    let name = format!("{}:{output}", graph.nodes[node].name);
    graph.add_output(node, name, DType::F32, Some(Shape::of(&[4])))
}

fn flag(graph: &mut Graph, node: NodeId, name: &str) {
    graph.nodes[node].attrs.set(name, Attr::Bool(true));
}

/// A chain of operators, collectives that each read a run of it side by side, and loops that update
/// their state in one step.
fn program(operators: usize, collectives: usize, loops: usize) -> Graph {
    let mut graph = Graph::new("large", Dialect::Ge, "root");
    let root = graph.root;
    let x = graph.add_input(root, "x", DType::F32, Some(Shape::of(&[4])));
    let mut chain = vec![x];
    for i in 0..operators {
        let relu = node(&mut graph, root, format!("relu{i}"), "Relu", &[chain[i]]);
        let made = value(&mut graph, relu, 0);
        chain.push(made);
    }
    let run = 50;
    for i in 0..collectives {
        let at = 1 + i * (operators - run) / collectives.max(1);
        let name = format!("gather{i}");
        let gather = node(
            &mut graph,
            root,
            name,
            "HcomAllGather",
            &chain[at..at + run],
        );
        flag(&mut graph, gather, "continuous_input");
        value(&mut graph, gather, 0);
    }
    let mut state = *chain.last().unwrap();
    for i in 0..loops {
        let id = node(&mut graph, root, format!("while{i}"), "While", &[state]);
        state = value(&mut graph, id, 0);
        for role in ["cond", "body"] {
            let body = graph.add_subgraph(id, role, format!("{role}{i}"));
            let old = graph.add_input(body, "old", DType::F32, Some(Shape::of(&[4])));
            let step = node(&mut graph, body, "step".to_owned(), "Relu", &[old]);
            let new = value(&mut graph, step, 0);
            graph.add_results(body, "results", [Some(new)]);
        }
    }
    graph.add_results(root, "results", [Some(state)]);
    canonical(&graph)
}

fn copies(graph: &Graph) -> usize {
    let is_copy = |n: &&tenure_graph::Node| &*n.op == "Identity";
    graph.nodes.values().filter(is_copy).count()
}

#[test]
fn a_hundred_thousand_nodes_a_thousand_collectives_a_hundred_loops() {
    let graph = program(100_000, 1_000, 100);
    let table = OpTable::builtin(Dialect::Ge);
    let guarded = layout::resolve(&graph, &table, &Options::default()).unwrap();
    // Each loop's one state is read by the operator that makes the new one.
    assert_eq!(copies(guarded.graph(&graph)), 100);
}

#[test]
fn a_thousand_collectives_on_the_same_tensors() {
    let mut graph = program(100, 0, 0);
    let root = graph.root;
    let results = graph.subgraphs[root].nodes.pop().unwrap();
    let of =
        |graph: &Graph, name: &str| graph.values.keys().find(|&v| graph.values[v].name == name);
    let tensors = ["relu1:0", "relu2:0"].map(|name| of(&graph, name).unwrap());
    for i in 0..1000 {
        let gather = node(
            &mut graph,
            root,
            format!("gather{i}"),
            "HcomAllGather",
            &tensors,
        );
        flag(&mut graph, gather, "continuous_input");
        value(&mut graph, gather, 0);
    }
    graph.subgraphs[root].nodes.push(results);
    let graph = canonical(&graph);
    let table = OpTable::builtin(Dialect::Ge);
    let guarded = layout::resolve(&graph, &table, &Options::default()).unwrap();
    // One keeps the tensors, all others get copies of both.
    assert_eq!(copies(guarded.graph(&graph)), 2 * 999);
}

#[test]
fn a_wide_split_joined_again_the_other_way_round() {
    let mut graph = Graph::new("wide", Dialect::Ge, "root");
    let root = graph.root;
    let x = graph.add_input(root, "x", DType::F32, Some(Shape::of(&[4])));
    let copy = node(&mut graph, root, "first".to_owned(), "Relu", &[x]);
    let made = value(&mut graph, copy, 0);
    let split = node(&mut graph, root, "split".to_owned(), "Split", &[made]);
    flag(&mut graph, split, "continuous_output");
    let mut parts: Vec<ValueId> = (0..1000).map(|o| value(&mut graph, split, o)).collect();
    parts.reverse();
    let concat = node(&mut graph, root, "concat".to_owned(), "Concat", &parts);
    flag(&mut graph, concat, "continuous_input");
    let result = value(&mut graph, concat, 0);
    graph.add_results(root, "results", [Some(result)]);
    let graph = canonical(&graph);
    let table = OpTable::builtin(Dialect::Ge);
    let guarded = layout::resolve(&graph, &table, &Options::default()).unwrap();
    assert!(
        copies(guarded.graph(&graph)) >= 999,
        "{}",
        copies(guarded.graph(&graph))
    );
    let again = layout::resolve(guarded.graph(&graph), &table, &Options::default()).unwrap();
    assert_eq!(again.graph, None);
}

#[test]
fn all_stages_on_a_hundred_thousand_nodes() {
    let graph = program(100_000, 1_000, 100);
    let table = OpTable::builtin(Dialect::Ge);
    let guarded = compile::run(&graph, &table, &Options::default()).unwrap();
    // Tensors that two collectives want next to other neighbours are copied for one of them, and
    // each loop's state once.
    assert_eq!(copies(guarded.graph(&graph)), 100);
}

#[test]
fn a_thousand_collectives_write_what_two_thousand_read() {
    let mut graph = program(100, 0, 0);
    let root = graph.root;
    let results = graph.subgraphs[root].nodes.pop().unwrap();
    let x = graph
        .values
        .keys()
        .find(|&v| graph.values[v].name == "relu5:0")
        .unwrap();
    for i in 0..1000 {
        let reduce = node(
            &mut graph,
            root,
            format!("reduce{i}"),
            "HcomAllReduce",
            &[x],
        );
        flag(&mut graph, reduce, "_input_mutable");
        value(&mut graph, reduce, 0);
    }
    for i in 0..2_000 {
        let read = node(&mut graph, root, format!("read{i}"), "Relu", &[x]);
        let made = value(&mut graph, read, 0);
        let clear = node(&mut graph, root, format!("add{i}"), "ScatterAdd", &[made]);
        value(&mut graph, clear, 0);
        let outputs = Attr::List(vec![Attr::Int(0)]);
        graph.nodes[clear].attrs.set("atomic_output_index", outputs);
    }
    graph.subgraphs[root].nodes.push(results);
    let graph = canonical(&graph);
    let table = OpTable::builtin(Dialect::Ge);
    let guarded = compile::run(&graph, &table, &Options::default()).unwrap();
    // The last of the collectives may have the memory when all others have read it.
    assert_eq!(copies(guarded.graph(&graph)), 999);
}
