use super::*;
use crate::arbitrary_graph::{Size, any};
use crate::canonical;
use crate::{Graph, identity};
use std::path::{Path, PathBuf};

/// A root of the given nodes.
fn root(nodes: &str) -> String {
    format!(r#"{{"format": "tenure.graph/1", "graphs": [{{"name": "root", "nodes": [{nodes}]}}]}}"#)
}

const X: &str = r#"{"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [4]}]}"#;

fn round_trip(json: &str) -> Graph {
    let graph = read(json.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{json}"));
    let written = write(&graph);
    let again = read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(again, graph, "{written}");
    assert_eq!(identity(&again), identity(&graph));
    assert_eq!(write(&again), written);
    graph
}

/// Folder of the shared cases: from `TENURE_SHARED`, or beside the workspace.
fn shared_cases() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var_os("TENURE_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    shared.join("cases")
}

fn json_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
}

#[test]
fn shared_cases_round_trip() {
    let mut files = Vec::new();
    json_files(&shared_cases(), &mut files);
    files.sort();
    let mut graphs = 0;
    for path in &files {
        let text = std::fs::read(path).unwrap();
        let case: serde_json::Value = serde_json::from_slice(&text).unwrap();
        if case.get("format").and_then(|f| f.as_str()) != Some(FORMAT) {
            continue;
        }
        graphs += 1;
        let refused = case.pointer("/expect/error").is_some();
        match read(&text) {
            Ok(_) => drop(round_trip(std::str::from_utf8(&text).unwrap())),
            Err(e) => assert!(refused, "{}: {e}", path.display()),
        }
    }
    if graphs == 0 {
        #[expect(clippy::print_stderr, reason = "says why nothing was tested")]
        {
            eprintln!("no shared cases found: not tested");
        }
    }
}

#[test]
fn random_graphs_round_trip() {
    arbtest::arbtest(|u| {
        let graph = any(u, Size::default())?;
        assert_eq!(crate::verify(&graph), Ok(()));
        let canonical = canonical(&graph);
        assert_eq!(crate::verify(&canonical), Ok(()));
        assert_eq!(identity(&canonical), identity(&graph));
        let written = write(&graph);
        let again = read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
        assert_eq!(again, canonical, "{written}");
        Ok(())
    })
    .budget_ms(1000);
}
