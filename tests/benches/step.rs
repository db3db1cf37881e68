//! Time of a step beside its kernel: `cargo bench -p tenure-tests --bench step`.
//!
//! Chains of operators on one element, whose kernels do next to nothing: what is printed is the time
//! of a step with its kernel, and so more than the step alone. Nothing is asserted: machines are shared
//! and noisy, and of many runs the fastest counts.

use std::time::Instant;

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Graph, StreamId, text};
use tenure_plan::Config;
use tenure_runtime::{Kernels, Layout, Program};

const RUNS: usize = 3000;
const STEPS: usize = 1000;

/// A chain of so many steps of an operator, and what goes in.
fn chain(op: &str) -> Graph {
    let mut lines = vec!["%v0: float32[1] = Data() {index = 0}".to_owned()];
    lines.extend((0..STEPS).map(|n| {
        let inputs = match op {
            "Add" => format!("%v{n}, %v{n}"),
            _ => format!("%v{n}"),
        };
        format!("%v{}: float32[1] = {op}({inputs})", n + 1)
    }));
    lines.push(format!("NetOutput(%v{STEPS}) @out"));
    let lines = lines.join("\n  ");
    let source = format!("model m onnx opsets [\"\" 17] graph ^root {{\n  {lines}\n}}\n");
    text::parse(&source).unwrap_or_else(|error| panic!("{error}"))
}

/// Nanoseconds of a step.
fn measure(graph: &Graph, threads: bool) -> Result<f64, Box<dyn std::error::Error>> {
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions {
        fold: false,
        ..PlanOptions::default()
    };
    let plan = tenure_plan::plan(graph, &table, &options, &Config::default())?.plan;
    let plan = tenure_check::check(graph, &table, &plan).map_err(|found| format!("{found:?}"))?;
    let mut program = Program::new(graph, &table, &plan, &Kernels::builtin(), Layout::Planned)?;
    if threads {
        program.with_threads(&plan)?;
    }
    let input = 1.0f32.to_le_bytes();
    let mut best = f64::INFINITY;
    let runs = if threads { RUNS / 100 } else { RUNS };
    for _ in 0..runs {
        let start = Instant::now();
        program.run(&[&input])?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best * 1e9 / STEPS as f64)
}

#[expect(clippy::print_stdout, reason = "a program whose output is its purpose")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<44} {:>10}", "a step with a kernel of one element", "ns");
    for op in ["Neg", "Relu", "Add"] {
        let graph = chain(op);
        println!("{op:<44} {:>10.1}", measure(&graph, false)?);
    }
    let mut graph = chain("Neg");
    for (number, node) in (0u32..).zip(graph.nodes.values_mut()) {
        node.stream = Some(StreamId::from_u32(number % 2));
    }
    let name = "Neg, each on another stream than the last";
    println!("{name:<44} {:>10.1}", measure(&graph, true)?);
    Ok(())
}
