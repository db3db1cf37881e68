//! `cargo xtask bench-run`: latency and memory of `tenure run` beside other engines.
//!
//! It builds what it needs: the release binary, the engines of `xtask/engines`, and a Python
//! environment with ONNX Runtime. `tests/python/bench_run.py` measures.

use std::path::Path;
use std::process::Command;

/// Packages of the Python environment.
const PACKAGES: [&str; 3] = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0"];

/// Runs the benchmark; the options are those of the script.
///
/// # Errors
/// When something cannot be built, or an answer of tenure is not that of ONNX Runtime.
pub fn main(root: &Path, options: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = root.join("target/bench-run");
    let venv = target.join("venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    run(Command::new(&python).args(pip).args(PACKAGES))?;
    let binary = ["build", "--release", "--workspace", "--bin", "tenure"];
    let features = ["--features", "xtask/chores"];
    run(Command::new(&cargo)
        .args(binary)
        .args(features)
        .current_dir(root))?;
    let engines = target.join("engines");
    let build = ["build", "--release", "--target-dir"];
    let folder = root.join("xtask/engines");
    run(Command::new(&cargo)
        .args(build)
        .arg(&engines)
        .current_dir(folder))?;
    let mut script = Command::new(&python);
    script.arg(root.join("tests/python/bench_run.py"));
    script
        .arg("--engines")
        .arg(engines.join("release"))
        .args(options);
    run(&mut script)
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let status = command
        .status()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program} failed; see above"))
    }
}
