//! Loads a model and a plan that was saved for it, proves the plan, and runs it.
//!
//! `cargo run -p tenure-runtime --example saved_plan -- MODEL PLAN.json` runs on zeros and prints how
//! many bytes each output has. The plan is what `tenure plan MODEL -o PLAN.json` writes.

use std::error::Error;
use std::path::Path;

use tenure_formats::ModelFile;
use tenure_graph::effects::OpTable;
use tenure_graph::plan_file::PlanFile;
use tenure_graph::shapes::{Bindings, infer};
use tenure_runtime::{Kernels, Layout, Program};

/// An output: its name and its bytes.
type Output = (String, Vec<u8>);

/// Outputs of the model by name, for inputs that are all zeros.
fn run(model: &Path, plan: &Path) -> Result<Vec<Output>, Box<dyn Error>> {
    // The graph that was planned: shapes, and what was added to the model's own.
    let graph = ModelFile::open(model)?.graph()?;
    let table = OpTable::builtin(graph.dialect);
    let graph = infer(graph, &table, &Bindings::default())?.graph;
    let file = PlanFile::read(&std::fs::read(plan)?)?;
    let graph = file.guard.apply(&graph)?;
    let plan = file.resolve(&graph)?;
    // Only a plan that is proven can be run.
    let plan = tenure_check::check(&graph, &table, &plan).map_err(|v| v[0].to_string())?;
    let kernels = Kernels::builtin();
    let mut program = Program::new(&graph, &table, &plan, &kernels, Layout::Planned)?;
    let inputs: Vec<Vec<u8>> = (0..program.inputs().len())
        .map(|i| vec![0; program.input(i).len()])
        .collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    program.run(&inputs)?;
    let names = program.results().iter().map(|t| t.name.clone());
    Ok(names
        .enumerate()
        .map(|(i, name)| (name, program.result(i)))
        .collect())
}

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, plan] = args.as_slice() else {
        return Err("usage: saved_plan MODEL PLAN.json".into());
    };
    for (name, bytes) in run(Path::new(model), Path::new(plan))? {
        println!("{name}: {} bytes", bytes.len());
    }
    Ok(())
}

#[test]
fn a_saved_plan_runs() {
    use tenure_graph::plan::PlanOptions;
    use tenure_graph::plan_file::{CheckBlock, ModelIdentity, Summary};
    let model = br#"{"format": "tenure.graph/1", "graphs": [{"name": "root", "nodes": [
      {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [2]}]},
      {"name": "y", "op": "Exp", "inputs": ["x:0"], "outputs": [{"dtype": "float32", "shape": [2]}]},
      {"name": "out", "op": "NetOutput", "inputs": ["y:0"]}]}]}"#;
    let folder = tempfile::tempdir().expect("a folder");
    let (at, plan_at) = (
        folder.path().join("m.json"),
        folder.path().join("plan.json"),
    );
    std::fs::write(&at, model).expect("a file");
    let graph = tenure_graph::json::read(model).expect("a graph");
    let table = OpTable::builtin(graph.dialect);
    let config = tenure_plan::Config::default();
    let planned = tenure_plan::plan(&graph, &table, &PlanOptions::default(), &config);
    let plan = planned.expect("a plan").plan;
    let summary = Summary::new(&graph, &plan, 0);
    let identity = ModelIdentity::default();
    let file = PlanFile::new(&graph, identity, &plan, summary, CheckBlock::default());
    let text = serde_json::to_vec(&file).expect("JSON");
    std::fs::write(&plan_at, text).expect("a file");
    let outputs = run(&at, &plan_at).expect("a run");
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].1, [1.0f32, 1.0].map(f32::to_le_bytes).concat());
}
