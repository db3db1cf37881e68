//! `tenure convert`: any model that is read to graph JSON, or to its memory graph alone.

use tenure_plan::memory;
use tenure_plan::metadata::MemoryGraph;

use crate::args::ConvertArgs;
use crate::exit::{Exit, Failure};
use crate::pipeline::Model;
use crate::ui::Ui;
use crate::{files, pipeline};

/// Runs the command.
pub fn run(args: &ConvertArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.model.model.display();
    let Model::Graph(graph) = pipeline::read(&args.model.model)? else {
        return Err(Failure::bad(format!(
            "{path}: is a memory graph already: there is no graph in it to convert"
        )));
    };
    let options = pipeline::options(&args.rules)?;
    let loaded = pipeline::load(graph, &args.model, 0.0)?;
    for warning in &loaded.warnings {
        ui.warn(warning);
    }
    if args.memory {
        let bad = |e: tenure_plan::PlanError| Failure::bad(format!("{path}: {e}"));
        let graph =
            pipeline::ordered(loaded.graph, &loaded.table, &options, &args.rules).map_err(bad)?;
        let found = memory(&graph, &loaded.table, &options).map_err(bad)?;
        files::write_json(&args.output, &MemoryGraph::new(&graph, &found))?;
    } else {
        let text = tenure_graph::json::write(&loaded.graph);
        files::write(&args.output, text.as_bytes())?;
    }
    Ok(Exit::Done)
}
