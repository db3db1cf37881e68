//! Sessions: plans that are kept and given up, shapes that do not fit a larger one, and constants that
//! several programs share. And a loop whose trip count is computed.

use std::sync::Arc;

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::Bindings;
use tenure_graph::{Attr, CONST_OP, DType, Dialect, Dim, Graph, NodeId, Shape, Tensor, ValueId};
use tenure_plan::{Config, Watch};
use tenure_runtime::fit::NoFit;
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::session::{Contents, Origin, Session, Shaped};
use tenure_runtime::{Kernels, Layout, Program};

fn input(graph: &mut Graph, name: &str, dims: &[&str]) -> ValueId {
    let shape: Shape = dims.iter().map(|d| Dim::parse(d)).collect();
    graph.add_input(graph.root, name, DType::F32, Some(shape))
}

fn node(graph: &mut Graph, op: &str, inputs: &[ValueId]) -> NodeId {
    let name = format!("{}{}", op.to_lowercase(), graph.nodes.len());
    let node = graph.add_node(graph.root, name, op);
    graph.nodes[node]
        .inputs
        .extend(inputs.iter().copied().map(Some));
    node
}

fn output(graph: &mut Graph, node: NodeId) -> ValueId {
    let name = format!("{}:0", graph.nodes[node].name);
    graph.add_output(node, name, DType::Unknown, None)
}

fn constant(graph: &mut Graph, dtype: DType, dims: &[u64], numbers: &[f64]) -> ValueId {
    let made = node(graph, CONST_OP, &[]);
    graph.nodes[made].stream = None;
    let bytes = encode(dtype, numbers.iter().copied()).expect("numbers");
    let tensor = Tensor {
        dtype,
        shape: dims.to_vec(),
        data: tenure_graph::TensorData::Bytes(bytes.into()),
    };
    let value = Attr::Tensor(Arc::new(tensor));
    graph.nodes[made].attrs.set("value", value);
    let name = format!("{}:0", graph.nodes[made].name);
    graph.add_output(made, name, dtype, Some(Shape::of(dims)))
}

/// `relu(z[n:]) + 1` for `x` of `n` elements and `z` of 160: what it makes gets smaller as `n` grows.
fn falling() -> Graph {
    let mut graph = Graph::new("g", Dialect::Onnx, "main");
    let (x, z) = (
        input(&mut graph, "x", &["n"]),
        input(&mut graph, "z", &["160"]),
    );
    let start = node(&mut graph, "Shape", &[x]);
    let start = output(&mut graph, start);
    let end = constant(&mut graph, DType::I64, &[1], &[160.0]);
    let rest = node(&mut graph, "Slice", &[z, start, end]);
    let rest = output(&mut graph, rest);
    let y = node(&mut graph, "Relu", &[rest]);
    let y = output(&mut graph, y);
    let one = constant(&mut graph, DType::F32, &[1], &[1.0]);
    let y = node(&mut graph, "Add", &[y, one]);
    let y = output(&mut graph, y);
    graph.add_results(graph.root, "results", [Some(y)]);
    graph
}

fn plan(session: &mut Session<'_>, n: u64) -> Arc<Shaped> {
    let shape = Bindings::parse([format!("n={n}")]).expect("a dimension");
    let shaped = session.plan(&shape, &Contents::new(), &Watch::default());
    shaped.expect("a plan")
}

fn session(graph: Graph) -> Session<'static> {
    let table = OpTable::builtin(Dialect::Onnx);
    Session::new(graph, &table, PlanOptions::default(), Config::default())
}

#[test]
fn as_many_plans_are_kept_as_is_said() {
    let mut session = session(falling()).with_most_kept(2);
    for (n, planned) in [(3, 1), (4, 2), (3, 2), (5, 3), (3, 3), (4, 4)] {
        let _shaped = plan(&mut session, n);
        assert_eq!(session.planned(), planned, "n={n}");
    }
}

#[test]
fn what_is_larger_at_a_smaller_size_is_planned_apart() {
    let largest = Bindings::parse(["n=80"]).expect("a dimension");
    let mut session = session(falling()).with_largest(largest);
    assert_eq!(plan(&mut session, 80).origin, Origin::Fitted);
    let apart = plan(&mut session, 2);
    assert!(
        matches!(apart.origin, Origin::Apart(NoFit::Larger { .. })),
        "{:?}",
        apart.origin
    );
}

#[test]
fn programs_share_constants_and_nothing_else() {
    let mut session = session(falling());
    let (table, kernels) = (OpTable::builtin(Dialect::Onnx), Kernels::builtin());
    let (a, b) = (plan(&mut session, 158), plan(&mut session, 159));
    let first = Program::new(&a.graph, &table, &a.plan, &kernels, Layout::Planned);
    let mut first = first.expect("a program");
    let beside = Program::new_beside(&b.graph, &table, &b.plan, &kernels, &first);
    let mut beside = beside.expect("a program");
    let z = encode(DType::F32, (0..160).map(f64::from)).expect("numbers");
    let run = |program: &mut Program, n: usize| {
        let x = vec![0; 4 * n];
        program.run(&[&x, &z]).expect("a run");
        decode(DType::F32, &program.result(0)).expect("numbers")
    };
    assert_eq!(run(&mut first, 158), [159.0, 160.0]);
    assert_eq!(run(&mut beside, 159), [160.0]);
    drop(first);
    assert_eq!(run(&mut beside, 159), [160.0]);
}

#[test]
fn a_loop_runs_as_often_as_its_trip_count_said_when_it_began() {
    let mut graph = Graph::new("g", Dialect::Onnx, "main");
    let x = input(&mut graph, "x", &["n"]);
    let sum = node(&mut graph, "ReduceSum", &[x]);
    graph.nodes[sum].attrs.set("keepdims", Attr::Int(0));
    let sum = output(&mut graph, sum);
    let trips = node(&mut graph, "Cast", &[sum]);
    graph.nodes[trips].attrs.set("to", Attr::Int(7));
    let trips = output(&mut graph, trips);
    let start = constant(&mut graph, DType::F32, &[1], &[0.0]);
    let one = constant(&mut graph, DType::F32, &[1], &[1.0]);
    let repeat = node(&mut graph, "Loop", &[trips]);
    graph.nodes[repeat].inputs.extend([None, Some(start)]);
    let body = graph.add_subgraph(repeat, "body", "body");
    let scalar = || Some(Shape::default());
    graph.add_input(body, "pass", DType::I64, scalar());
    let condition = graph.add_input(body, "condition", DType::Bool, scalar());
    let mut state = graph.add_input(body, "state", DType::F32, Some(Shape::of(&[1])));
    for (name, op) in [("a", "Neg"), ("b", "Neg"), ("c", "Add")] {
        let made = graph.add_node(body, name, op);
        graph.nodes[made].inputs.push(Some(state));
        if op == "Add" {
            graph.nodes[made].inputs.push(Some(one));
        }
        state = graph.add_output(made, name, DType::F32, None);
    }
    let same = graph.add_node(body, "same", "Identity");
    graph.nodes[same].inputs.push(Some(condition));
    let condition = graph.add_output(same, "same", DType::Bool, None);
    graph.add_results(body, "body results", [Some(condition), Some(state)]);
    let last = output(&mut graph, repeat);
    graph.add_results(graph.root, "results", [Some(last)]);

    let shaped = plan(&mut session(graph), 4);
    let (table, kernels) = (OpTable::builtin(Dialect::Onnx), Kernels::builtin());
    let (graph, plan) = (&shaped.graph, &shaped.plan);
    let program = Program::new(graph, &table, plan, &kernels, Layout::Planned);
    let mut program = program.expect("a program");
    for passes in [3.0, 0.0, 1.0] {
        let x = encode(DType::F32, [passes, 0.0, 0.0, 0.0]).expect("numbers");
        program.run(&[&x]).expect("a run");
        assert_eq!(decode(DType::F32, &program.result(0)), Some(vec![passes]));
    }
}
