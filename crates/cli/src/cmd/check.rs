//! `tenure check`: proves or refutes a plan, whoever made it.

use serde::Serialize;
use std::borrow::Cow;
use tenure_check::{check, refines};
use tenure_graph::plan_file::PlanFile;
use tenure_plan::metadata::MemoryGraph;

use crate::args::CheckArgs;
use crate::exit::{Exit, Failure};
use crate::pipeline::Model;
use crate::ui::Ui;
use crate::{files, pipeline};

/// `check --json`.
#[derive(Serialize)]
struct Json {
    passed: bool,
    accesses: u64,
    violations: Vec<JsonViolation>,
}

#[derive(Serialize)]
struct JsonViolation {
    code: &'static str,
    message: String,
}

/// Runs the command.
pub fn run(args: &CheckArgs, ui: &Ui) -> Result<Exit, Failure> {
    let model = pipeline::read(&args.model)?;
    let file: PlanFile = files::read_plan(&args.plan)?;
    let path = args.plan.display();
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{path}: {e}"));
    let other = |model: &str| {
        bad(&format!(
            "was made for another model (its SHA-256 is {}, this one's is {model})",
            file.model.sha256
        ))
        .hint("plan this model again, with the same --dim as it is checked with")
    };
    let (accesses, violations) = match model {
        Model::Graph(graph) => {
            let loaded = pipeline::load(graph, &args.model, 0.0)?;
            if file.model.sha256 != loaded.identity.sha256 {
                return Err(other(&loaded.identity.sha256));
            }
            let planned = match file.guard.is_empty() {
                true => Cow::Borrowed(&loaded.graph),
                false => Cow::Owned(file.guard.apply(&loaded.graph).map_err(|e| bad(&e))?),
            };
            let plan = file.resolve(&planned).map_err(|e| bad(&e))?;
            match refines(&loaded.graph, &planned, &loaded.table) {
                Err(difference) => (0, vec![json(difference.code(), &difference)]),
                Ok(()) => match check(&planned, &loaded.table, &plan) {
                    Ok(checked) => (checked.accesses(), Vec::new()),
                    Err(list) => (0, list.iter().map(|v| json(v.code(), v)).collect()),
                },
            }
        }
        Model::Memory(text) => {
            let graph = MemoryGraph::read(&text)
                .map_err(|e| Failure::bad(format!("{}: {e}", args.model.model.display())))?;
            if file.model.sha256 != graph.sha256() {
                return Err(other(&graph.sha256()));
            }
            match pipeline::check_memory(&graph, &file) {
                Ok(accesses) => (accesses, Vec::new()),
                Err(list) => (0, list.iter().map(|v| json(v.code(), v)).collect()),
            }
        }
    };
    let passed = violations.is_empty();
    if args.json {
        let json = Json {
            passed,
            accesses,
            violations,
        };
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
    } else if passed {
        ui.say(format!("{path}: proven; {accesses} accesses checked"));
    } else {
        for violation in &violations {
            ui.say(format!("{}: {}", violation.code, violation.message));
        }
        ui.say(format!("{path}: refuted; {} violations", violations.len()));
    }
    Ok(if passed { Exit::Done } else { Exit::No })
}

fn json(code: &'static str, message: &impl ToString) -> JsonViolation {
    JsonViolation {
        code,
        message: message.to_string(),
    }
}
