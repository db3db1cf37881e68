//! Random programs on several streams, a thread each, give the bytes of a run on one thread; and a
//! warm run of the threads asks the system for no memory. `TENURE_PROGRAMS` gives the number of
//! programs for a longer search.

use std::alloc::{GlobalAlloc, Layout as Bytes, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Graph, StreamId, text};
use tenure_guard::{Options, compile};
use tenure_plan::{Config, PlanError};
use tenure_runtime::{Kernels, Layout, Program, RuntimeError};
use tenure_tests::generate::options;
use tenure_tests::programs::{Bounds, program};

/// Counts what all threads ask for.
struct Counted;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// Safety: the system's allocator does the work.
#[allow(unsafe_code, reason = "an allocator is unsafe by its nature")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Bytes) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // Safety: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Bytes) {
        // Safety: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn planned(graph: &Graph, table: &OpTable, options: &PlanOptions) -> Option<CheckedPlan> {
    let config = Config {
        steps: Some(100),
        ..Config::default()
    };
    let plan = match tenure_plan::plan(graph, table, options, &config) {
        Err(PlanError::Demand { .. } | PlanError::Torn { .. } | PlanError::Run { .. }) => {
            return None;
        }
        planned => planned.expect("a plan").plan,
    };
    Some(tenure_check::check(graph, table, &plan).expect("a right plan"))
}

/// Threads that the program was run on; `None` if it cannot be planned, or reads variables that
/// another stream writes at the same time.
fn check(seed: u64) -> Option<usize> {
    let bounds = Bounds {
        nodes: 12,
        depth: usize::try_from(seed % 3).expect("a small number"),
    };
    let mut graph = program(seed, bounds);
    let mut rng = fastrand::Rng::with_seed(seed);
    let streams = rng.u32(2..5);
    for node in graph.nodes.values_mut() {
        node.stream = Some(StreamId::from_u32(rng.u32(..streams)));
    }
    let table = OpTable::builtin(graph.dialect);
    let guarded = compile::run(&graph, &table, &Options::of(&graph)).expect("a guarded program");
    let graph = guarded.graph(&graph).clone();
    let plan = planned(&graph, &table, &options(seed))?;
    let kernels = Kernels::builtin();
    let make =
        || Program::new(&graph, &table, &plan, &kernels, Layout::Planned).expect("a program");
    let (mut one, mut many) = (make(), make());
    match many.with_threads(&plan) {
        Err(RuntimeError::Streams(_)) if !many.variables().is_empty() => return None,
        done => done.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", text::print(&graph))),
    }
    for poison in [0x7f, 0xff, 0x70] {
        let inputs: Vec<Vec<u8>> = (one.inputs().iter())
            .map(|tensor| {
                let count: u64 = tensor.dims.iter().flatten().product();
                let numbers = (0..count).map(|_| f64::from(rng.i32(-4..5)));
                tenure_runtime::numbers::encode(tensor.dtype, numbers).expect("numbers")
            })
            .collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        for program in [&mut one, &mut many] {
            program.set_limit(1_000_000);
            program.poison(poison);
            program
                .run(&inputs)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        for i in 0..one.results().len() {
            assert_eq!(one.result(i), many.result(i), "seed {seed}, output {i}");
        }
        for i in 0..one.variables().len() {
            assert_eq!(
                one.variable(i),
                many.variable(i),
                "seed {seed}, variable {i}"
            );
        }
    }
    Some(many.threads())
}

/// What has no task writes nothing, so that other streams may read the pieces meanwhile.
fn pieces_are_read_beside_their_whole() {
    let text = "model m ge graph ^root {
        %x: float32[8] = Data() stream 0
        %a: float32[8] = Relu(%x) stream 0
        %b: float32[8] = Relu(%x) stream 0
        %c: float32[16] = ConcatD(%a, %b) {concat_dim = 0, _no_task = true,
          _no_padding_continuous_input = true, _output_reuse_input = true,
          _reuse_input_on_dim_index = 0} stream 0
        %y: float32[8] = Relu(%a) stream 1
        %z: float32[16] = Relu(%c) stream 0
        NetOutput(%y, %z) @out
      }";
    let graph = text::parse(text).expect("a graph");
    let table = OpTable::builtin(graph.dialect);
    let plan = planned(&graph, &table, &PlanOptions::default()).expect("a plan");
    let kernels = Kernels::builtin();
    let mut program =
        Program::new(&graph, &table, &plan, &kernels, Layout::Planned).expect("a program");
    program.with_threads(&plan).expect("threads");
    let input: Vec<u8> = [1f32, -2., 3., -4., 5., -6., 7., -8.]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    program.run(&[&input]).expect("a run");
    let piece = program.result(0).to_vec();
    assert_eq!(program.result(1), [piece.clone(), piece].concat());
}

/// One test, since what is counted is what all threads of the process ask for.
#[test]
fn threads_give_the_bytes_of_one_stream_and_ask_for_no_memory() {
    pieces_are_read_beside_their_whole();
    let count = std::env::var("TENURE_PROGRAMS").map_or(60, |n| n.parse().expect("a number"));
    let threads: Vec<usize> = (0..count).filter_map(check).collect();
    assert!(threads.len() > usize::try_from(count).expect("a small number") * 3 / 4);
    let several = threads.iter().filter(|&&n| n > 1).count();
    assert!(
        several > threads.len() / 2,
        "{several} of {}",
        threads.len()
    );
    warm();
}

fn warm() {
    let source = "model m ge
graph ^g {
  %x: float32[64] = Data()
  %a: float32[64] = Neg(%x)
  %b: float32[64] = Relu(%x)
  %c: float32[64] = Mul(%a, %b)
  %d: float32[64] = Add(%a, %a)
  %e: float32[64] = Add(%c, %d)
  NetOutput(%e) @out
}
";
    let mut graph = text::parse(source).expect("a graph");
    for (at, node) in graph.nodes.values_mut().enumerate() {
        node.stream = Some(StreamId::from_u32(u32::from(at % 2 == 0)));
    }
    let table = OpTable::builtin(graph.dialect);
    let plan = planned(&graph, &table, &PlanOptions::default()).expect("a plan");
    let kernels = Kernels::builtin();
    let program = Program::new(&graph, &table, &plan, &kernels, Layout::Planned);
    let mut program = program.expect("a program");
    program.with_threads(&plan).expect("threads");
    assert_eq!(program.threads(), 2);
    let x = [0; 256];
    for _ in 0..3 {
        program.run(&[&x]).expect("a run");
    }
    let before = COUNT.load(Ordering::Relaxed);
    for _ in 0..20 {
        program.run(&[&x]).expect("a run");
    }
    assert_eq!(COUNT.load(Ordering::Relaxed), before);
    let spans = program.run_timed(&[&x]).expect("a run");
    let mut threads: Vec<usize> = spans.iter().map(|s| s.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads, [0, 1]);
    assert!(spans.iter().all(|s| s.start <= s.end));
}
