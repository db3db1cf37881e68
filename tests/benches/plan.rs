//! Time and memory of a plan as models grow, from an ONNX file to a checked plan:
//! `cargo bench -p tenure-tests`.
//!
//! Prints a table and asserts nothing: machines are shared and noisy. Each row is a process of its
//! own, since the peak of a process never falls. Time is its processor time, memory the most that
//! was resident, the mapped file included. Both come from the system's own books, which only Linux
//! keeps where they are read here.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use tenure_formats::testing::GraphBuilder;
use tenure_graph::DType;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::{Bindings, infer};
use tenure_plan::{Config, Watch, assign, memory};

/// The first argument of the processes that make one row.
const ROW: &str = "row";

/// The bytes of a model of so many values: operators over a pool of live values, of which two in
/// three read one and the third reads two.
fn synthetic(values: usize) -> Vec<u8> {
    const OPERATORS: [(&str, usize); 6] = [
        ("Relu", 1),
        ("Sigmoid", 1),
        ("Softmax", 1),
        ("Identity", 1),
        ("Add", 2),
        ("Mul", 2),
    ];
    const POOL: usize = 64;
    // One pool for each shape, so that operators of two inputs fit.
    const SHAPES: [&str; 4] = ["1024", "16, 16", "8, 32, 4", "1, 3, 64, 64"];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut graph = GraphBuilder::new("synthetic");
    let mut pools: Vec<Vec<String>> = Vec::new();
    for (i, shape) in SHAPES.iter().enumerate() {
        let name = format!("x{i}");
        graph.input(&name, DType::F32, shape);
        pools.push(vec![name]);
    }
    for i in SHAPES.len()..values {
        let pool = &mut pools[rng.usize(..SHAPES.len())];
        let (op, reads) = OPERATORS[rng.usize(..OPERATORS.len())];
        let inputs: Vec<&str> = (0..reads)
            .map(|_| &*pool[rng.usize(..pool.len())])
            .collect();
        let made = format!("v{i}");
        graph.node(op, &inputs, &[&made]);
        if pool.len() < POOL {
            pool.push(made);
        } else {
            pool[rng.usize(..POOL)] = made;
        }
    }
    for (pool, shape) in pools.iter().zip(SHAPES) {
        if let Some(last) = pool.last() {
            graph.output(last, DType::F32, shape);
        }
    }
    graph.model(21).encode()
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

/// Plans the model in a file and prints its row.
#[expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
fn row(path: &Path) {
    let mut times = Vec::new();
    let mut start = Instant::now();
    let mut lap = |times: &mut Vec<u128>| {
        times.push(start.elapsed().as_millis());
        start = Instant::now();
    };
    let graph = tenure_formats::read(path).unwrap();
    lap(&mut times);
    let values = graph.values.len();
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions::default();
    let graph = infer(graph, &table, &Bindings::default()).unwrap().graph;
    lap(&mut times);
    let found = memory(&graph, &table, &options).unwrap();
    lap(&mut times);
    let planned = assign(found, &options, &Config::default(), &Watch::default()).unwrap();
    lap(&mut times);
    tenure_check::check(&graph, &table, &planned.plan).unwrap();
    lap(&mut times);
    let arena = &planned.plan.arenas[0];
    let (cpu, peak) = books().unwrap_or((f64::NAN, 0));
    let times: Vec<String> = times.iter().map(|ms| format!("{ms:>9}")).collect();
    println!(
        "{values:>9} {} {cpu:>9.2} {:>8} {:>8.4}",
        times.join(" "),
        peak / values as u64,
        arena.size as f64 / arena.lower_bound as f64
    );
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, path] = &arguments[..]
        && first == ROW
    {
        row(path.as_ref());
        return ExitCode::SUCCESS;
    }
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "values",
        "read ms",
        "shapes ms",
        "lives ms",
        "solve ms",
        "check ms",
        "cpu s",
        "B/value",
        "/bound"
    );
    let folder = tempfile::tempdir().unwrap();
    for values in [10_000, 100_000, 300_000, 1_000_000] {
        let path = folder.path().join(format!("{values}.onnx"));
        std::fs::write(&path, synthetic(values)).unwrap();
        let row = Command::new(&arguments[0]).arg(ROW).arg(&path).status();
        if !row.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
