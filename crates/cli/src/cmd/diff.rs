//! `tenure diff`: what changed between two plans.
//!
//! Where a side is a compiled model, its plan is the one that it carries, and the figures say what
//! would do: the arena of that plan, the least that we find under the rules that it was made by, and
//! the least where inputs and outputs may share memory too.

use std::path::Path;

use serde::Serialize;
use tenure_check::check;
use tenure_formats::ModelFile;
use tenure_graph::plan::{Arena, PlanOptions};
use tenure_graph::plan_file::PlanFile;
use tenure_plan::recorded::{lent_rules, own_rules};
use tenure_plan::{Config, Watch, assign, memory};
use tenure_report::diff::{Diff, text};
use tenure_report::grouped;
use tenure_report::text::Style;

use crate::args::{DiffArgs, ModelArgs};
use crate::compiled;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::pipeline::{self, Loaded};
use crate::ui::Ui;

/// `diff --json`.
#[derive(Serialize)]
struct Json {
    #[serde(flatten)]
    diff: Diff,
    /// Figures of the sides that are compiled models.
    compiled: Vec<Figures>,
}

/// Bytes that a compiled model takes, all arenas together.
#[derive(Serialize)]
struct Figures {
    /// The model, as it was named.
    model: String,
    /// As the model's plan has it.
    recorded: u64,
    /// The least found under the same rules.
    own_rules: u64,
    /// The least found where inputs and outputs may share memory.
    lent: u64,
    /// Whether the checker proves the model's plan.
    proven: bool,
}

/// Runs the command.
pub fn run(args: &DiffArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (a, figures_of_a) = side(&args.a, ui)?;
    let (b, figures_of_b) = side(&args.b, ui)?;
    let diff = Diff::new(&a, &b);
    let compiled: Vec<Figures> = figures_of_a.into_iter().chain(figures_of_b).collect();
    if args.json {
        let json = Json { diff, compiled };
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
        return Ok(Exit::Done);
    }
    let style = Style {
        color: ui.colors(),
        unicode: ui.unicode(),
    };
    ui.say(text(&diff, style).trim_end());
    for figures in &compiled {
        ui.say(format!("\n{}", sentence(figures)));
    }
    Ok(Exit::Done)
}

fn sentence(figures: &Figures) -> String {
    format!(
        "{}: Graph Engine {} bytes{}, ours {} under its own rules, {} if inputs and outputs may \
         share",
        figures.model,
        grouped(figures.recorded),
        if figures.proven { "" } else { " (refuted)" },
        grouped(figures.own_rules),
        grouped(figures.lent)
    )
}

/// The plan of one side, and the figures of a compiled model.
fn side(path: &Path, ui: &Ui) -> Result<(PlanFile, Option<Figures>), Failure> {
    let not_both = "give a plan that `tenure plan MODEL -o PLAN.json` wrote, or a compiled model";
    if let Err(no_model) = ModelFile::open(path) {
        let plan = files::read_plan(path);
        return plan
            .map(|plan| (plan, None))
            .map_err(|_| Failure::bad(no_model).hint(not_both));
    }
    let args = of_model(path);
    let (graph, recorded) = compiled::read(&args)?;
    let recorded = recorded.ok_or_else(|| {
        Failure::bad(format!("{}: carries no plan", path.display())).hint(not_both)
    })?;
    let loaded = pipeline::load(graph, &args, 0.0)?;
    let carried = compiled::plan(&loaded, &recorded)?;
    for warning in &carried.warnings {
        ui.warn(warning);
    }
    let figures = Figures {
        model: path.display().to_string(),
        recorded: total(&carried.file.arenas),
        own_rules: least(&loaded, &own_rules(), path)?,
        lent: least(&loaded, &lent_rules(), path)?,
        proven: carried.violations.is_empty(),
    };
    Ok((carried.file, Some(figures)))
}

/// A model without further wishes.
fn of_model(path: &Path) -> ModelArgs {
    ModelArgs {
        model: path.to_owned(),
        dim: Vec::new(),
        dynamic: true,
        submodel: 0,
        ops: Vec::new(),
    }
}

/// Bytes of the least plan that is found under some rules, all arenas together. The plan is checked
/// like every other.
fn least(loaded: &Loaded, options: &PlanOptions, path: &Path) -> Result<u64, Failure> {
    let bad = |e: tenure_plan::PlanError| Failure::bad(format!("{}: {e}", path.display()));
    let prepared = pipeline::prepared(loaded.graph.clone(), &loaded.table, options, path)?;
    let found = memory(&prepared.graph, &loaded.table, options).map_err(bad)?;
    let config = Config::default();
    let planned = assign(found, options, &config, &Watch::default()).map_err(bad)?;
    check(&prepared.graph, &loaded.table, &planned.plan)
        .map_err(|violations| Failure::internal(&violations[0]))?;
    Ok(total(&planned.plan.arenas))
}

/// Bytes of all arenas together.
fn total(arenas: &[Arena]) -> u64 {
    arenas.iter().fold(0, |sum, a| sum.saturating_add(a.size))
}
