//! Time and memory of a plan as graphs grow: `cargo bench -p tenure-tests`.
//!
//! Prints a table and asserts nothing: machines are shared and noisy. Time is processor time of
//! the whole process, memory the most that was resident, graph included. Both come from the
//! system's own books, which only Linux keeps where they are read here.

use std::time::Instant;

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{DType, Dialect, Graph, Shape, ValueId};
use tenure_plan::{Config, assign, memory};

/// Operators over a pool of live values: two of three read one value, the third reads two.
fn synthetic(values: usize) -> Graph {
    const OPERATORS: [(&str, usize); 6] = [
        ("Relu", 1),
        ("Sigmoid", 1),
        ("Softmax", 1),
        ("Identity", 1),
        ("Add", 2),
        ("Mul", 2),
    ];
    const POOL: usize = 64;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut graph = Graph::new("synthetic", Dialect::Onnx, "main");
    graph.opsets.push(("".into(), 21));
    let root = graph.root;
    // One pool for each shape, so that operators of two inputs fit.
    let shapes: [&[u64]; 4] = [&[1024], &[16, 16], &[8, 32, 4], &[1, 3, 64, 64]];
    let mut pools: Vec<Vec<ValueId>> = Vec::new();
    for (i, shape) in shapes.iter().enumerate() {
        let shape = Some(Shape::of(shape));
        pools.push(vec![graph.add_input(
            root,
            format!("x{i}"),
            DType::F32,
            shape,
        )]);
    }
    while graph.values.len() < values {
        let i = graph.values.len();
        let pool = rng.usize(..pools.len());
        let (op, reads) = OPERATORS[rng.usize(..OPERATORS.len())];
        let node = graph.add_node(root, format!("{op}_{i}"), op);
        for _ in 0..reads {
            let at = rng.usize(..pools[pool].len());
            let value = pools[pool][at];
            graph.nodes[node].inputs.push(Some(value));
        }
        let made = graph.add_output(node, format!("v{i}"), DType::F32, None);
        if pools[pool].len() < POOL {
            pools[pool].push(made);
        } else {
            let at = rng.usize(..POOL);
            pools[pool][at] = made;
        }
    }
    let results: Vec<Option<ValueId>> = pools.iter().map(|p| p.last().copied()).collect();
    graph.add_results(root, "results", results);
    graph
}

/// Processor time of this process in seconds, and the most memory that was resident in bytes.
fn books() -> Option<(f64, u64)> {
    // Clock ticks are hundredths of a second on every Linux that Rust runs on.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u32 = fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().ok()?;
    Some((f64::from(ticks) / 100.0, kilobytes * 1024))
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
fn main() {
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "values", "shapes ms", "lives ms", "solve ms", "check ms", "cpu s", "B/value", "/bound"
    );
    // Ascending, since the peak of the process never falls.
    for values in [10_000, 100_000, 300_000, 1_000_000] {
        let before = books();
        let graph = synthetic(values);
        let table = OpTable::builtin(graph.dialect);
        let options = PlanOptions::default();
        let mut times = Vec::new();
        let mut start = Instant::now();
        let mut lap = |times: &mut Vec<u128>| {
            times.push(start.elapsed().as_millis());
            start = Instant::now();
        };
        let graph = infer(graph, &table, &Bindings::default()).unwrap().graph;
        lap(&mut times);
        let found = memory(&graph, &table, &options).unwrap();
        lap(&mut times);
        let planned = assign(found, &options, &Config::default()).unwrap();
        lap(&mut times);
        tenure_check::check(&graph, &table, &planned.plan).unwrap();
        lap(&mut times);
        let arena = &planned.plan.arenas[0];
        let (cpu, peak) = match (before, books()) {
            (Some(before), Some(after)) => (after.0 - before.0, after.1),
            _ => (f64::NAN, 0),
        };
        println!(
            "{values:>9} {:>9} {:>9} {:>9} {:>9} {cpu:>9.2} {:>8} {:>8.4}",
            times[0],
            times[1],
            times[2],
            times[3],
            peak / values as u64,
            arena.size as f64 / arena.lower_bound as f64
        );
    }
}
