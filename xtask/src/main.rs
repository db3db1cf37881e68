//! Chores of the workspace.
//!
//! `cargo xtask codegen [--check]` writes the code that reads protobuf files, or says whether it
//! is current. `cargo xtask examples [--check]` does the same for the example models.
//! `cargo xtask bench-solve` measures the solver, `cargo xtask bench-run` the run beside other engines.
//! `cargo xtask scripts` runs random scripts for the
//! allocator. `cargo xtask onnx-cases` runs the backend tests of ONNX. `cargo xtask faults` makes nodes
//! of models write where they must not, and looks for them. `cargo xtask graphs` looks for needless
//! copies in random programs.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program prints"
)]

mod bench_run;
mod bench_solve;
mod codegen;
mod examples;
mod faults;
mod graphs;
mod scripts;
mod seeds;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask (codegen | examples) [--check]\n       cargo xtask bench-solve --help\n       cargo xtask bench-run [--rounds N] [--runs N] [NAME…]\n       cargo xtask scripts [COUNT] [FIRST_SEED]\n       cargo xtask graphs [COUNT] [FIRST_SEED]\n       cargo xtask onnx-cases [--every N] [--list FILE] [NAME…]\n       cargo xtask faults [--count N] [--seed N] [--keep-going] [MODEL [--dim NAME=N]…]…";

/// What to do with files that are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Write them.
    Write,
    /// Compare them with what is there.
    Check,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["codegen"] => codegen::run(&root(), Mode::Write),
        ["codegen", "--check"] => codegen::run(&root(), Mode::Check),
        ["examples"] => examples::run(&root(), Mode::Write),
        ["examples", "--check"] => examples::run(&root(), Mode::Check),
        ["bench-solve", "--help"] => {
            println!("{}", bench_solve::USAGE);
            Ok(())
        }
        ["bench-solve", ref options @ ..] => bench_solve::main(&root(), options),
        ["bench-run", ref options @ ..] => bench_run::main(&root(), options),
        ["scripts", ref options @ ..] => scripts::main(options),
        ["graphs", ref options @ ..] => graphs::main(options),
        ["faults", ref options @ ..] => faults::main(&root(), options),
        ["onnx-cases", ref options @ ..] => onnx_cases(options),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the backend tests of ONNX with the release binary. They come from the Python package `onnx`
/// (`tests/python/requirements.txt`); `PYTHON` names an interpreter that has it.
fn onnx_cases(options: &[&str]) -> Result<(), String> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let run = std::process::Command::new(&python)
        .arg(root().join("tests/python/onnx_cases.py"))
        .args(options)
        .status();
    let status = run.map_err(|e| format!("cannot run {}: {e}", python.display()))?;
    if status.success() {
        Ok(())
    } else {
        Err("a case is wrong, or the cases cannot be run; see above".to_owned())
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}
