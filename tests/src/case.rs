//! One case: a file that says what is run and what is expected.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tenure_graph::Graph;

use crate::kinds;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every key of `expect` holds.
    Passed,
    /// Copies or merges stand elsewhere than the case says, and that is as good: both results.
    Deviates(String),
    /// What does not hold, one sentence each; or why the case could not be run.
    Failed(Vec<String>),
}

/// A case on a graph, as the kinds see it.
pub struct GraphCase {
    /// The graph, or why it was refused.
    pub graph: Result<Graph, String>,
    /// The whole file.
    pub file: Map<String, Value>,
    /// The key `expect`.
    pub expect: Map<String, Value>,
    /// The folder that the file is in, where the cases that it names are.
    pub folder: PathBuf,
}

impl GraphCase {
    /// The option `name` of the file.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&Value> {
        self.file.get("options")?.get(name)
    }

    /// Who says what is right: `own`, `bug report kind`, or a test of another project.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.file
            .get("origin")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The values of `run`, in order.
    #[must_use]
    pub fn kinds(&self) -> Vec<&str> {
        match self.expect.get("run") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

/// Runs the case in a file.
#[must_use]
pub fn run(path: &Path) -> Outcome {
    load(path).unwrap_or_else(|reason| Outcome::Failed(vec![reason]))
}

fn outcome(failures: Vec<String>) -> Outcome {
    if failures.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failures)
    }
}

fn load(path: &Path) -> Result<Outcome, String> {
    let (bytes, file) = read(path)?;
    match file.get("format").and_then(Value::as_str) {
        Some("tenure.graph/1") => Ok(kinds::run(&graph_case(path, &bytes, file)?)),
        Some("tenure.trace/1") => Ok(outcome(kinds::trace::run(&file, &expect(&file)?))),
        Some("tenure.csv-case/1") => Ok(outcome(kinds::csv::run(path, &expect(&file)?))),
        Some("tenure.runtime/1") => Ok(outcome(kinds::runtime::run(&file))),
        Some(other) => Err(format!("cases of format {other:?} are not built yet")),
        None => Err("says no `format`".to_owned()),
    }
}

/// The case `name` of the same folder.
///
/// # Errors
/// When it cannot be read or is no case on a graph.
pub fn sibling(case: &GraphCase, name: &str) -> Result<GraphCase, String> {
    let path = case.folder.join(format!("{name}.json"));
    let said = |e| format!("{}: {e}", path.display());
    let (bytes, file) = read(&path).map_err(said)?;
    graph_case(&path, &bytes, file).map_err(said)
}

/// A file as it is, and the same as JSON.
fn read(path: &Path) -> Result<(Vec<u8>, Map<String, Value>), String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot be read: {e}"))?;
    let file: Value = serde_json::from_slice(&bytes).map_err(|e| format!("is no JSON: {e}"))?;
    match file {
        Value::Object(file) => Ok((bytes, file)),
        _ => Err("is no JSON object".to_owned()),
    }
}

fn expect(file: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    match file.get("expect") {
        Some(Value::Object(expect)) => Ok(expect.clone()),
        _ => Err("has no `expect`".to_owned()),
    }
}

fn graph_case(path: &Path, bytes: &[u8], file: Map<String, Value>) -> Result<GraphCase, String> {
    Ok(GraphCase {
        graph: tenure_graph::json::read(bytes).map_err(|e| e.to_string()),
        expect: expect(&file)?,
        file,
        folder: path.parent().unwrap_or(Path::new("")).to_owned(),
    })
}
