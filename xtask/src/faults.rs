//! `cargo xtask faults`: nodes of real models are made to write where and when they must not, and each
//! such fault must be found.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tenure_tests::faults::{Model, Tally};

/// How the command is called.
pub const USAGE: &str = "usage: cargo xtask faults [--count N] [--seed N] [--keep-going] [MODEL [--dim NAME=N]…]…   (50 of each kind in each example model)";

/// Makes faults in the models that are named, or in the examples.
///
/// # Errors
/// Models that cannot be run, and faults that are not found.
pub fn main(root: &Path, options: &[&str]) -> Result<(), String> {
    let (mut count, mut seed) = (50u64, 0u64);
    let mut keep_going = false;
    let mut models: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        let mut value = || options.next().copied().ok_or_else(|| USAGE.to_owned());
        match option {
            "--count" => count = value()?.parse().map_err(|_| USAGE.to_owned())?,
            "--seed" => seed = value()?.parse().map_err(|_| USAGE.to_owned())?,
            "--keep-going" => keep_going = true,
            "--dim" => {
                let last = models.last_mut().ok_or_else(|| USAGE.to_owned())?;
                last.1.push(value()?.to_owned());
            }
            path => models.push((PathBuf::from(path), Vec::new())),
        }
    }
    if models.is_empty() {
        models = examples(root)?;
    }
    let start = Instant::now();
    let mut sum = Tally::default();
    let mut failed = 0u32;
    'all: for (path, dims) in &models {
        let model = Model::read(path, dims)?;
        for round in 0..count {
            match model.faults(1, seed + round) {
                Ok(tally) => sum.add(tally),
                Err(error) => {
                    failed += 1;
                    println!("{}, seed {}: {error}", path.display(), seed + round);
                    if !keep_going {
                        break 'all;
                    }
                }
            }
        }
    }
    println!(
        "{} writes out of bounds: {} seen by the guarded run; {} of them change a result, {} found by bisecting",
        sum.beyond, sum.seen, sum.beyond_shown, sum.beyond_found
    );
    println!(
        "{} uses of memory for too long: {} found by bisecting; {} runs in {:.0?}",
        sum.late,
        sum.late_found,
        sum.runs,
        start.elapsed()
    );
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} faults were not found")),
    }
}

/// The example models.
fn examples(root: &Path) -> Result<Vec<(PathBuf, Vec<String>)>, String> {
    let folder = root.join("examples/models");
    let entries = std::fs::read_dir(&folder).map_err(|e| e.to_string())?;
    let mut models: Vec<(PathBuf, Vec<String>)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| (path, Vec::new()))
        .collect();
    models.sort();
    Ok(models)
}
