//! Prints what shape inference finds in models: one JSON object a line, for comparison with
//! another tool (`tests/python/shapes_oracle.py`).
//!
//! `cargo run --release -p tenure-tests --example dump_shapes -- [--dim NAME=N]... MODEL...`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use tenure_graph::effects::OpTable;
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{Dim, Graph, Shape};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut bindings = Bindings::default();
    let mut paths = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--dim" {
            bindings.add(&args.next().unwrap_or_default())?;
        } else {
            paths.push(arg);
        }
    }
    for path in paths {
        let line = match dump(Path::new(&path), &bindings) {
            Ok(found) => found,
            Err(e) => json!({"path": path, "error": e.to_string()}),
        };
        println!("{line}");
    }
    Ok(())
}

fn dump(path: &Path, bindings: &Bindings) -> Result<Value, Box<dyn std::error::Error>> {
    let graph = tenure_formats::read(path)?;
    let start = Instant::now();
    let shaped = infer(graph.clone(), &OpTable::builtin(graph.dialect), bindings)?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok(json!({
        "path": path.display().to_string(),
        "ms": milliseconds,
        "nodes": graph.nodes.len(),
        "values": values(&shaped.graph),
        "warnings": shaped.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "free": shaped.free.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }))
}

/// Name, type and dimensions of every value. A formula is its text, an unknown dimension `null`.
fn values(graph: &Graph) -> Vec<Value> {
    let dim = |dim: &Dim| match dim {
        Dim::Known(n) => json!(n),
        Dim::Formula(formula) => json!(formula.to_string()),
        Dim::Unknown => Value::Null,
    };
    let shape = |shape: &Shape| -> Value { shape.0.iter().map(dim).collect() };
    graph
        .values
        .iter()
        .map(|(id, value)| {
            let in_root = graph.home(id) == graph.root;
            let shape = value.shape.as_ref().map(shape);
            json!([value.name, in_root, value.dtype.name(), shape])
        })
        .collect()
}
