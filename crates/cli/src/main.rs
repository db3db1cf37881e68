//! The command `tenure`: the only part of the workspace that reads arguments and prints.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod cmd;
mod compiled;
mod exit;
mod feed;
mod files;
mod npy;
mod pipeline;
mod search;
mod settle;
mod ui;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, everything else is bad usage; clap prints either on
            // the right stream.
            let failed = error.use_stderr();
            let printed = error.print().is_ok();
            return if failed || !printed {
                exit::Exit::BadInput.into()
            } else {
                exit::Exit::Done.into()
            };
        }
    };
    cli.common.color.write_global();
    let ui = ui::Ui::new(cli.common.quiet);
    match cmd::run(cli.command, &ui) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            ui.error(&failure);
            failure.exit.into()
        }
    }
}
