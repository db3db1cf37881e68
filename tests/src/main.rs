//! `tenure-cases`: runs case files and says which fall short.
//!
//! Prints one line for each case that is not met, then `N passed, N failed`. Exit code 0 when none
//! failed, 1 when some did, 2 when a path does not exist.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tenure_tests::case::{self, Outcome};

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program whose output is its purpose"
)]
fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("usage: tenure-cases DIR_OR_FILE...");
        return ExitCode::from(2);
    }
    let mut files = Vec::new();
    for path in &paths {
        if let Err(error) = collect(path, &mut files) {
            eprintln!("error: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    let (mut passed, mut failed) = (0, 0);
    for file in &files {
        match case::run(file) {
            Outcome::Passed => passed += 1,
            Outcome::Deviates(results) => {
                passed += 1;
                println!("deviates {}: {results}", file.display());
            }
            Outcome::Failed(reasons) => {
                failed += 1;
                println!("FAILED {}: {}", file.display(), reasons.join("; "));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// The case files at and below `path`, sorted. A file that is named counts as a case whatever it
/// is called.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.metadata()?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path)? {
        entries.push(entry?.path());
    }
    entries.sort();
    for entry in entries {
        let is_case = entry.extension().is_some_and(|e| e == "json");
        if entry.is_dir() || is_case {
            collect(&entry, files)?;
        }
    }
    Ok(())
}
