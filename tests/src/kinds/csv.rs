//! CSV cases: `NAME.expect.json` beside `NAME.csv`.

use std::path::Path;

use serde_json::{Map, Value};
use tenure_formats::csv;
use tenure_solve::{Config, Instance, Solution, solve};

use crate::expect::Judge;
use crate::packings;

/// Runs a CSV case and gives back what does not hold.
pub fn run(path: &Path, expect: &Map<String, Value>) -> Vec<String> {
    let mut judge = Judge::new(expect);
    if expect.get("run").and_then(Value::as_str) != Some("assign") {
        judge.fail("a CSV case runs `assign`");
    }
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    match placed(path) {
        Ok(_) if refused => judge.fail("an error was expected, offsets were found"),
        Ok((table, solution)) => compare(&table, &solution, &mut judge),
        Err(_) if refused => {}
        Err(error) => judge.fail(error),
    }
    judge.failures()
}

fn placed(path: &Path) -> Result<(csv::Table, Solution), String> {
    let name = path.to_string_lossy();
    let stem = name.strip_suffix(".expect.json");
    let csv_path = stem
        .ok_or("a CSV case is called NAME.expect.json")?
        .to_owned()
        + ".csv";
    let file = std::fs::File::open(&csv_path).map_err(|e| format!("{csv_path}: {e}"))?;
    let table = csv::read(file, &csv::Options::default()).map_err(|e| e.to_string())?;
    let instance = Instance::new(packings::of_table(&table)).map_err(|e| e.to_string())?;
    let solution = solve(&instance, &Config::default()).map_err(|e| e.to_string())?;
    Ok((table, solution))
}

fn compare(table: &csv::Table, solution: &Solution, judge: &mut Judge<'_>) {
    judge.equal("optimum", solution.height);
    judge.equal("load", solution.max_load);
    // What simple planners reach says nothing about ours but that it is no worse.
    for key in ["greedy_by_size", "first_fit_by_time"] {
        if let Some(other) = judge.number(key)
            && solution.height > other
        {
            judge.fail(format!(
                "{key}: {} bytes where {other} are reached",
                solution.height
            ));
        }
    }
    let offsets = judge.take("offsets").and_then(Value::as_object);
    for (id, want) in offsets.into_iter().flatten() {
        let row = table.rows().iter().position(|row| row.id == *id);
        if row.map(|i| solution.offsets[i]) != want.as_u64() {
            judge.fail(format!("offsets: {id} is not at {want}"));
        }
    }
}
