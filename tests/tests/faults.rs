//! A kernel that writes too far is named, wherever it stands in a random program and however far it
//! writes; what runs before it is not.

use tenure_graph::NodeId;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::Phase;
use tenure_guard::{Options, compile};
use tenure_plan::{Config, PlanError};
use tenure_runtime::sanitize::{Hit, Sanitizer};
use tenure_runtime::{Fault, Kernels, Program};
use tenure_tests::faults::{Model, Tally};
use tenure_tests::generate::options;
use tenure_tests::programs::{Bounds, program};

/// Inputs of the right sizes.
fn inputs(program: &Program) -> Vec<Vec<u8>> {
    (0..program.inputs().len())
        .map(|i| vec![0; program.input(i).len()])
        .collect()
}

/// Whether a fault was made and found.
fn check(seed: u64) -> bool {
    let graph = program(
        seed,
        Bounds {
            nodes: 10,
            depth: 2,
        },
    );
    let table = OpTable::builtin(graph.dialect);
    let guarded = compile::run(&graph, &table, &Options::of(&graph)).expect("a guarded program");
    let graph = guarded.graph(&graph);
    let config = Config {
        steps: Some(100),
        ..Config::default()
    };
    let plan = match tenure_plan::plan(graph, &table, &options(seed), &config) {
        Err(PlanError::Demand { .. }) => return false,
        planned => planned.expect("a plan").plan,
    };
    let plan = tenure_check::check(graph, &table, &plan).expect("a right plan");
    let mut rng = fastrand::Rng::with_seed(seed);
    let steps = plan.plan().steps.iter();
    let computes = steps.filter(|s| s.phase == Phase::Run);
    let computes: Vec<NodeId> = (computes.map(|s| s.node))
        .filter(|&n| graph.nodes[n].output(0).is_some())
        .collect();
    let Some(id) = rng.choice(computes) else {
        return false;
    };
    let node = graph.node_label(id);
    let far = [1, 4, 100, 1 << 20][rng.usize(..4)];
    let behind = rng.bool();
    let fault = Fault {
        node: node.clone(),
        output: rng.usize(..graph.nodes[id].outputs.len()),
        bytes_past_end: if behind { far } else { 0 },
        bytes_before_start: if behind { 0 } else { far },
        ..Fault::default()
    };
    let kernels = Kernels::builtin();
    let sanitizer = Sanitizer::new(graph, &table, &plan, &kernels, &[fault]);
    let mut sanitizer = sanitizer.expect("a program");
    sanitizer.set_limit(10_000);
    let given = inputs(sanitizer.program());
    let given: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
    let Some(bad) = sanitizer.run(&given).expect("a run") else {
        // Views have no kernel, and some bodies are not entered.
        return false;
    };
    assert_eq!(bad.name, node, "seed {seed}: {bad}");
    // Other tensors may live in the same storage, and then it is one of these that is hit.
    let near = match bad.hit {
        Hit::Past(n) => behind && n < far,
        Hit::Before(n) => !behind && n <= far,
        Hit::Inside(_) => true,
    };
    assert!(near && bad.bytes <= far, "seed {seed}: {bad}");
    true
}

#[test]
fn the_kernel_that_writes_too_far_is_named() {
    let found = (0..150).filter(|&seed| check(seed)).count();
    assert!(found > 75, "only {found} faults were made");
}

/// Both kinds of faults in a small model; `cargo xtask faults` makes many of them in real ones.
#[test]
fn faults_in_a_model_are_put_at_the_right_node() {
    let source = "model m onnx
graph ^root {
  %x: float32[1, 4, 8, 8] = Data()
  %w: float32[8, 4, 3, 3] = Data()
  %m: float32[64, 16] = Data()
  %c: float32[1, 8, 8, 8] = Conv(%x, %w) {pads = [1, 1, 1, 1]} @c
  %r: float32[1, 8, 8, 8] = Relu(%c) @r
  %s: float32[1, 8, 8, 8] = Sigmoid(%c) @s
  %a: float32[1, 8, 8, 8] = Mul(%r, %s) @a
  %f: float32[8, 64] = Reshape(%a) @f
  %p: float32[8, 16] = MatMul(%f, %m) @p
  %t: float32[16, 8] = Transpose(%p) {perm = [1, 0]} @t
  %q: float32[16, 8] = Softmax(%t) @q
  %n: float32[16, 8] = Neg(%t) @n
  %y: float32[16, 8] = Add(%q, %n) @y
  NetOutput(%y) @out
}
";
    let graph = tenure_graph::text::parse(source).expect("a graph");
    let model = Model::new(graph, &[]).expect("a model");
    let mut sum = Tally::default();
    for seed in 0..4 {
        sum.add(
            model
                .faults(1, seed)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}")),
        );
    }
    assert_eq!((sum.beyond, sum.seen, sum.late), (4, 4, 4), "{sum:?}");
    assert!(
        sum.beyond_shown > 0 && sum.beyond_found == sum.beyond_shown,
        "{sum:?}"
    );
    assert_eq!(sum.late_found, sum.late, "{sum:?}");
}
