//! One case: a file that says what is run and what is expected.

use std::path::Path;

use serde_json::{Map, Value};
use tenure_graph::Graph;

use crate::kinds;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every key of `expect` holds.
    Passed,
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
    let failures = match load(path) {
        Ok(failures) => failures,
        Err(reason) => vec![reason],
    };
    if failures.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failures)
    }
}

fn load(path: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot be read: {e}"))?;
    let file: Value = serde_json::from_slice(&bytes).map_err(|e| format!("is no JSON: {e}"))?;
    let Value::Object(file) = file else {
        return Err("is no JSON object".to_owned());
    };
    let format = file.get("format").and_then(Value::as_str);
    let expect = match file.get("expect") {
        Some(Value::Object(expect)) => expect.clone(),
        _ => return Err("has no `expect`".to_owned()),
    };
    match format {
        Some("tenure.graph/1") => {
            let graph = tenure_graph::json::read(&bytes).map_err(|e| e.to_string());
            Ok(kinds::run(&GraphCase {
                graph,
                file,
                expect,
            }))
        }
        Some("tenure.csv-case/1") => Ok(kinds::csv::run(path, &expect)),
        Some(other) => Err(format!("cases of format {other:?} are not built yet")),
        None => Err("says no `format`".to_owned()),
    }
}
