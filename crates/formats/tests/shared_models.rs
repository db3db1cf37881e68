//! Reads every shared model, where the folder with them is at hand: `TENURE_SHARED`, or `shared`
//! beside the workspace.

use std::path::{Path, PathBuf};
use tenure_graph::{Graph, verify};

fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("TENURE_SHARED").map_or(beside, PathBuf::from);
    let found = folder.join("data").is_dir();
    if !found {
        #[expect(clippy::print_stderr, reason = "a test that checks nothing says so")]
        {
            eprintln!("skipped: {} has no models", folder.display());
        }
    }
    found.then_some(folder)
}

fn models(folder: &Path) -> Vec<PathBuf> {
    let mut models: Vec<PathBuf> = ["onnx", "real"]
        .iter()
        .flat_map(|f| {
            std::fs::read_dir(folder.join("data").join(f))
                .into_iter()
                .flatten()
        })
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .collect();
    models.sort();
    models
}

/// Nodes of the file itself: no inputs, results, or initializers.
fn nodes(graph: &Graph) -> usize {
    let own = |n: &&tenure_graph::Node| !matches!(&*n.op, "Data" | "NetOutput" | "Const");
    graph.nodes.values().filter(own).count()
}

#[test]
fn every_shared_model_is_read_and_verified() {
    let Some(folder) = shared() else { return };
    let models = models(&folder);
    assert!(models.len() >= 30, "{} models", models.len());
    for path in models {
        let graph = tenure_formats::read(&path).unwrap_or_else(|e| panic!("{e}"));
        verify(&graph).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
        assert!(nodes(&graph) > 0, "{}", path.display());
    }
}

#[test]
fn resnet50_has_the_nodes_of_the_file() {
    let Some(folder) = shared() else { return };
    let path = folder.join("data/onnx/resnet50.onnx");
    let graph = tenure_formats::read(&path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(nodes(&graph), 122);
    let root = &graph.subgraphs[graph.root];
    assert_eq!(root.inputs.len(), 1);
    let input = graph.nodes[root.inputs[0]].output(0).unwrap();
    assert_eq!(graph.values[input].name, "x");
    assert_eq!(graph.bytes(input), Some(4 * 3 * 224 * 224));
}
