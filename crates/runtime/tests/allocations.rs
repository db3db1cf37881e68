//! A warm run asks the system for no memory. What the thread of the test asks for is counted: others
//! are those of the harness.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Dialect, text};
use tenure_plan::Config;
use tenure_runtime::numbers::encode;
use tenure_runtime::{Kernels, Layout as Memory, Program};

/// Counts what is asked for.
struct Counted;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// Safety: the system's allocator does the work.
#[allow(unsafe_code, reason = "an allocator is unsafe by its nature")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // Safety: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // Safety: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn a_warm_run_allocates_nothing() {
    let lines = "
%x: float32[1, 4, 8, 8] = Data()
%w: float32[8, 4, 3, 3] = Data()
%d: float32[8, 1, 3, 3] = Data()
%m: float32[64, 16] = Data()
%c: float32[1, 8, 8, 8] = Conv(%x, %w) {pads = [1, 1, 1, 1]}
%r: float32[1, 8, 8, 8] = Relu(%c)
%e: float32[1, 8, 8, 8] = Conv(%r, %d) {group = 8, pads = [1, 1, 1, 1]}
%s: float32[1, 8, 8, 8] = Sigmoid(%e)
%a: float32[1, 8, 8, 8] = Mul(%e, %s)
%f: float32[8, 64] = Reshape(%a)
%p: float32[8, 16] = MatMul(%f, %m)
%t: float32[16, 8] = Transpose(%p) {perm = [1, 0]}
%q: float32[16, 8] = Softmax(%t)
%y: float32[16, 1] = ReduceMean(%q) {axes = [1]}
NetOutput(%y) @out";
    let lines = lines.trim().replace('\n', "\n  ");
    let source = format!("model m onnx\ngraph ^root {{\n  {lines}\n}}\n");
    let graph = text::parse(&source).unwrap();
    let table = OpTable::builtin(Dialect::Onnx);
    let options = PlanOptions::default();
    let plan = tenure_plan::plan(&graph, &table, &options, &Config::default()).unwrap();
    let plan = tenure_check::check(&graph, &table, &plan.plan).unwrap();
    let kernels = Kernels::builtin();
    let mut program = Program::new(&graph, &table, &plan, &kernels, Memory::Planned).unwrap();
    let inputs: Vec<Vec<u8>> = (program.inputs().iter())
        .map(|input| {
            let count = input.dims.as_ref().unwrap().iter().product::<u64>();
            let numbers = (0..count).map(|n| (n % 7) as f64 - 3.0);
            encode(input.dtype, numbers).unwrap()
        })
        .collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    for _ in 0..2 {
        program.run(&inputs).unwrap();
    }
    let before = COUNT.get();
    for _ in 0..10 {
        program.run(&inputs).unwrap();
    }
    assert_eq!(COUNT.get(), before);
}
