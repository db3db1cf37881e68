//! `tenure convert`: any model that is read to graph JSON, to its memory graph alone, or to the plan
//! that it carries.

use std::path::Path;

use tenure_plan::memory;
use tenure_plan::metadata::MemoryGraph;
use tenure_report::grouped;

use crate::args::ConvertArgs;
use crate::compiled;
use crate::exit::{Exit, Failure};
use crate::ui::Ui;
use crate::{files, pipeline};

/// Runs the command.
pub fn run(args: &ConvertArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.model.model.display();
    let (graph, recorded) = compiled::read(&args.model)?;
    let options = pipeline::options(&args.rules);
    let loaded = pipeline::load(graph, &args.model, 0.0)?;
    for warning in &loaded.warnings {
        ui.warn(warning);
    }
    if let Some(to) = &args.plan {
        let recorded = recorded.ok_or_else(|| {
            Failure::bad(format!("{path}: carries no plan"))
                .hint("a compiled model of Graph Engine (.om) and a dump of the stage Build do")
        })?;
        let carried = compiled::plan(&loaded, &recorded)?;
        for warning in &carried.warnings {
            ui.warn(warning);
        }
        say(to, &carried, ui);
        files::write_json(to, &carried.file)?;
    }
    let Some(output) = &args.output else {
        return Ok(Exit::Done);
    };
    if args.memory {
        let bad = |e: tenure_plan::PlanError| Failure::bad(format!("{path}: {e}"));
        let graph =
            pipeline::ordered(loaded.graph, &loaded.table, &options, &args.rules).map_err(bad)?;
        let found = memory(&graph, &loaded.table, &options).map_err(bad)?;
        files::write_json(output, &MemoryGraph::new(&graph, &found))?;
    } else {
        let text = tenure_graph::json::write(&loaded.graph);
        files::write(output, text.as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Says what the checker makes of a plan that a model carries.
fn say(to: &Path, carried: &compiled::Carried, ui: &Ui) {
    let to = to.display();
    let size = grouped(carried.file.arenas.first().map_or(0, |a| a.size));
    match carried.violations.first() {
        None => ui.say(format!(
            "{to}: {size} bytes; proven, {} accesses checked",
            carried.file.check.accesses
        )),
        Some(first) => ui.warn(format!(
            "{to}: {size} bytes; the checker finds {} faults, the first: {first}",
            carried.violations.len()
        )),
    }
}
