//! `tenure report`: the lifetime chart and the memory map of a saved plan.

use tenure_report::{ReportModel, html};

use crate::args::ReportArgs;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::ui::Ui;

/// Runs the command.
pub fn run(args: &ReportArgs, _ui: &Ui) -> Result<Exit, Failure> {
    let file = files::read_plan(&args.plan)?;
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", args.plan.display()));
    let model = ReportModel::new(file, Vec::new()).map_err(|e| bad(&e))?;
    files::write(&args.output, html::page(&model).as_bytes())?;
    Ok(Exit::Done)
}
