//! The commands, a file each.

mod bisect;
mod check;
mod convert;
mod costs;
mod diff;
mod guard;
mod lint;
mod plan;
mod replay;
mod report;
mod run;
mod solve;
mod why;

use crate::args::Command;
use crate::exit::{Exit, Failure};
use crate::ui::Ui;

/// Runs a command.
pub fn run(command: Command, ui: &Ui) -> Result<Exit, Failure> {
    match command {
        Command::Plan(args) => plan::run(&args, ui),
        Command::Solve(args) => solve::run(&args, ui),
        Command::Check(args) => check::run(&args, ui),
        Command::Guard(args) => guard::run(args, ui),
        Command::Lint(args) => lint::run(args, ui),
        Command::Why(args) => why::run(args, ui),
        Command::Convert(args) => convert::run(&args, ui),
        Command::Report(args) => report::run(&args, ui),
        Command::Diff(args) => diff::run(&args, ui),
        Command::Replay(args) => replay::run(&args, ui),
        Command::Run(args) => run::run(&args, ui),
        Command::Bisect(args) => bisect::run(&args, ui),
    }
}
