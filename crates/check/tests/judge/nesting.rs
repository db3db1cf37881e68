//! Size and depth cost the checker no more than they must.

use crate::support::planner::{Style, plan};
use std::time::Instant;
use tenure_check::check;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{
    Arena, Item, Life, Member, Phase, Place, Plan, PlanOptions, Span, Step, Storage,
};
use tenure_graph::{DType, Dialect, Graph, NodeId, Shape, SubgraphId, ValueId};

fn node(graph: &mut Graph, at: SubgraphId, op: &str, inputs: &[ValueId], outputs: usize) -> NodeId {
    let name = format!("n{}", graph.nodes.len());
    let node = graph.add_node(at, name, op);
    graph.nodes[node]
        .inputs
        .extend(inputs.iter().copied().map(Some));
    for _ in 0..outputs {
        let name = format!("v{}", graph.values.len());
        graph.add_output(node, name, DType::F32, Some(Shape::of(&[8])));
    }
    node
}

fn output(graph: &Graph, node: NodeId, slot: usize) -> ValueId {
    graph.nodes[node].output(slot).unwrap()
}

/// Bodies inside bodies: an `If` in a `Loop` in an `If` …, each with a few nodes before and after.
fn nested(depth: u32, width: u32) -> Graph {
    let mut graph = Graph::new("", Dialect::Onnx, "root");
    let root = graph.root;
    let cond = graph.add_input(root, "cond", DType::Bool, Some(Shape::of(&[])));
    let trips = graph.add_input(root, "trips", DType::I64, Some(Shape::of(&[])));
    let mut at = root;
    let mut x = graph.add_input(root, "x", DType::F32, Some(Shape::of(&[8])));
    let mut open = Vec::new();
    for level in 0..depth {
        for _ in 0..width {
            let n = node(&mut graph, at, "Relu", &[x], 1);
            x = output(&graph, n, 0);
        }
        let is_loop = level % 2 == 1;
        let owner = if is_loop {
            node(&mut graph, at, "Loop", &[trips, cond, x], 1)
        } else {
            node(&mut graph, at, "If", &[cond], 1)
        };
        open.push((at, owner, x));
        let body = graph.add_subgraph(owner, "body", format!("body{level}"));
        if is_loop {
            graph.add_input(body, format!("i{level}"), DType::I64, Some(Shape::of(&[])));
            graph.add_input(body, format!("c{level}"), DType::Bool, Some(Shape::of(&[])));
            x = graph.add_input(body, format!("s{level}"), DType::F32, Some(Shape::of(&[8])));
        }
        at = body;
    }
    while let Some((outside, owner, outer)) = open.pop() {
        for _ in 0..width {
            let n = node(&mut graph, at, "Add", &[x, outer], 1);
            x = output(&graph, n, 0);
        }
        let name = format!("results{}", graph.nodes.len());
        if graph.nodes[owner].inputs.len() == 1 {
            graph.add_results(at, name, [Some(x)]);
            let other = graph.add_subgraph(owner, "else", format!("else{}", graph.nodes.len()));
            let n = node(&mut graph, other, "Neg", &[outer], 1);
            let result = output(&graph, n, 0);
            let name = format!("results{}", graph.nodes.len());
            graph.add_results(other, name, [Some(result)]);
        } else {
            graph.add_results(at, name, [Some(cond), Some(x)]);
        }
        at = outside;
        x = output(&graph, owner, 0);
    }
    graph.add_results(root, "results", [Some(x)]);
    graph
}

#[test]
fn depth_costs_no_exponential_time() {
    let table = OpTable::builtin(Dialect::Onnx);
    let graph = nested(64, 2);
    let plan = plan(&graph, &table, PlanOptions::default(), Style::Greedy);
    let start = Instant::now();
    let checked = check(&graph, &table, &plan);
    assert!(checked.is_ok(), "{checked:?}");
    // 2^32 times the 300 steps would take days.
    assert!(start.elapsed().as_secs() < 60);
}

/// Each value is the sum of the two before it; three places are enough for all.
fn sums(n: u32) -> (Graph, Plan) {
    let mut graph = Graph::new("", Dialect::Onnx, "root");
    let root = graph.root;
    let x = graph.add_input(root, "x", DType::F32, Some(Shape::of(&[16])));
    let mut values = vec![x, x];
    let mut steps = Vec::new();
    let run = |node| Step {
        node,
        phase: Phase::Run,
        stream: None,
    };
    for k in 0..n as usize {
        let name = format!("n{k}");
        let node = graph.add_node(root, name.clone(), "Add");
        let inputs = [Some(values[k]), Some(values[k + 1])];
        graph.nodes[node].inputs.extend(inputs);
        values.push(graph.add_output(node, name, DType::F32, Some(Shape::of(&[16]))));
        steps.push(run(node));
    }
    let results = graph.add_results(root, "results", [values.last().copied()]);
    steps.push(run(results));
    let storages = (0u32..).zip(&values[1..]).map(|(k, &value)| Storage {
        place: Place::Arena {
            arena: 0,
            offset: u64::from(k % 3) * 64,
        },
        size: 64,
        align: 64,
        life: Life::from_iter([Span {
            first: k.saturating_sub(1),
            last: (k + 1).min(n),
        }]),
        members: [Member {
            item: Item::Value(value),
            offset: 0,
            bytes: 64,
        }]
        .into_iter()
        .collect(),
    });
    let plan = Plan {
        options: PlanOptions::default(),
        arenas: vec![Arena {
            kind: "device".to_owned(),
            size: 192,
            align: 64,
            lower_bound: 192,
            proven_optimal: true,
            no_reuse: u64::from(n) * 64,
        }],
        steps,
        waits: Vec::new(),
        storages: storages.collect(),
        copies: Vec::new(),
        folded: Vec::new(),
        dynamic: Vec::new(),
        strategy: String::new(),
    };
    (graph, plan)
}

#[test]
fn a_long_plan_is_checked_in_its_stride() {
    let n = 20_000;
    let table = OpTable::builtin(Dialect::Onnx);
    let (graph, plan) = sums(n);
    let start = Instant::now();
    let checked = check(&graph, &table, &plan).unwrap();
    let elapsed = start.elapsed();
    assert_eq!(checked.accesses(), 1 + u64::from(n) * 3 + 1);
    // Quadratic time would need minutes.
    assert!(elapsed.as_secs() < 60, "{elapsed:?}");
}
