//! Compiled models carry a plan: it is proven or refuted, and ours is never larger under the same
//! rules.

use std::path::{Path, PathBuf};

use tenure_check::check;
use tenure_formats::testing::ge::{Container, Model, Node, Tensor, Value};
use tenure_formats::{ModelFile, detect};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::recorded::Recorded;
use tenure_graph::{Dialect, Graph};
use tenure_plan::recorded::{lent_rules, own_rules, recorded, uncleared};
use tenure_plan::{Config, plan};

fn table() -> OpTable {
    OpTable::builtin(Dialect::Ge)
}

fn compiled(bytes: Vec<u8>) -> (Graph, Recorded) {
    let file = ModelFile {
        kind: detect(&bytes).unwrap_or_else(|e| panic!("{e}")),
        bytes: bytes.into(),
        folder: None,
        number: 0,
    };
    let (graph, record) = file.compiled().unwrap_or_else(|e| panic!("{e}"));
    (graph, record.expect("a compiled model"))
}

/// Codes of what the checker finds wrong with the plan of a file.
fn faults(graph: &Graph, record: &Recorded) -> Vec<&'static str> {
    let plan = recorded(graph, &table(), record).unwrap_or_else(|e| panic!("{e}"));
    match check(graph, &table(), &plan) {
        Ok(_) => Vec::new(),
        Err(list) => list.iter().map(tenure_check::Violation::code).collect(),
    }
}

/// The least arena that we find under some rules.
fn ours(graph: &Graph, options: &PlanOptions) -> (u64, u64) {
    let planned = plan(graph, &table(), options, &Config::default());
    let planned = planned.unwrap_or_else(|e| panic!("{e}"));
    check(graph, &table(), &planned.plan).unwrap_or_else(|v| panic!("{}", v[0]));
    let arena = &planned.plan.arenas[0];
    (arena.size, arena.lower_bound)
}

/// Four blocks in a row, of which the last lies where the first was; a workspace that is kept.
fn sample() -> Model {
    let block = || Tensor::new("DT_FLOAT", &[120]).size(512);
    let mut model = Model::new("sample");
    model.attr("memory_size", Value::Int(2560));
    model.add(Node::new("x", "Data").output(block()).at(&[1536]));
    model.add(
        Node::new("a", "Abs")
            .inputs(&["x:0"])
            .output(block())
            .at(&[0]),
    );
    model.add(
        Node::new("b", "Abs")
            .inputs(&["a:0"])
            .attr("workspace_reuse_flag", Value::Flags(vec![false]))
            .workspace(8, 2048)
            .output(block())
            .at(&[512]),
    );
    model.add(
        Node::new("c", "InplaceAbs")
            .inputs(&["b:0"])
            .output(block().reuses(0))
            .at(&[512]),
    );
    model.add(
        Node::new("d", "Abs")
            .inputs(&["c:0"])
            .output(block())
            .at(&[0]),
    );
    model.add(
        Node::new("e", "Abs")
            .inputs(&["d:0"])
            .output(block())
            .at(&[1024]),
    );
    model.add(Node::new("out", "NetOutput").inputs(&["e:0"]));
    model
}

#[test]
fn a_plan_in_a_file_is_proven_and_a_wrong_one_is_refuted() {
    let (graph, record) = compiled(sample().om(Container::Wide));
    assert_eq!(faults(&graph, &record), [""; 0]);
    let places = record.values.len();
    // Every value in the place of every other one: right only where nothing is needed any more.
    let mut wrong = 0;
    for i in 0..places {
        for j in (0..places).filter(|&j| j != i) {
            let mut other = record.clone();
            other.values[i].1 = other.values[j].1;
            wrong += usize::from(!faults(&graph, &other).is_empty());
        }
    }
    assert_eq!(wrong, 18, "of {}", places * (places - 1));
    // What is kept in a workspace is nobody else's, even before its node.
    let mut shared = record.clone();
    shared.workspaces[0].2 = 1024;
    assert_eq!(faults(&graph, &shared), ["T031", "T071"]);
    let mut far = record.clone();
    far.values[1].1 = 1 << 40;
    assert_eq!(faults(&graph, &far), ["T026"]);
    let mut odd = record;
    odd.values[1].1 = 1;
    assert!(!faults(&graph, &odd).is_empty());
}

#[test]
fn our_plan_is_as_large_as_the_load_and_never_larger_than_the_files() {
    let (graph, _) = compiled(sample().om(Container::Narrow));
    assert_eq!(ours(&graph, &own_rules()), (2560, 2560));
    assert_eq!(ours(&graph, &lent_rules()), (1536, 1536));
}

fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("TENURE_SHARED").map_or(beside, PathBuf::from);
    let folder = folder.join("data/ge");
    let found = folder.is_dir();
    if !found {
        #[expect(clippy::print_stderr, reason = "a test that checks nothing says so")]
        {
            eprintln!("skipped: there is no {}", folder.display());
        }
    }
    found.then_some(folder)
}

/// Every compiled model and dump of a folder, by name.
fn models(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let kinds = ["om", "txt", "pbtxt"];
            path.extension()
                .is_some_and(|e| kinds.iter().any(|k| e == *k))
        })
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{e}"));
            (name.into_owned(), bytes)
        })
        .collect();
    found.sort();
    found
}

/// Offset and size of each buffer of a plan, from the rows of a table.
fn rows(table: &str) -> Vec<(u64, u64)> {
    let lines = table.lines().filter(|l| !l.starts_with('#')).skip(1);
    let number = |text: &str| {
        text.parse::<u64>()
            .unwrap_or_else(|e| panic!("{text}: {e}"))
    };
    let mut rows: Vec<(u64, u64)> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .map(|row| (number(row[4]), number(row[3])))
        .collect();
    rows.sort_unstable();
    rows
}

#[test]
fn shared_models_are_read_with_their_plans_and_ours_are_no_larger() {
    let Some(folder) = shared() else { return };
    let models = models(&folder);
    assert!(models.len() >= 5, "{} models", models.len());
    for (name, bytes) in models {
        let (graph, record) = compiled(bytes);
        assert_eq!(faults(&graph, &record), [""; 0], "{name}");
        assert_eq!(uncleared(&graph, &table(), &record), [], "{name}");
        let carried = recorded(&graph, &table(), &record).unwrap_or_else(|e| panic!("{e}"));
        // The file's own figure is the end of its highest buffer.
        let ends = carried.storages.values().map(|s| match s.place {
            tenure_graph::plan::Place::Arena { offset, .. } => offset + s.size,
            tenure_graph::plan::Place::Caller => 0,
        });
        let size = carried.arenas[0].size;
        assert_eq!(ends.max(), Some(size), "{name}");
        for options in [own_rules(), lent_rules()] {
            let (least, bound) = ours(&graph, &options);
            assert_eq!(least, bound, "{name}");
            assert!(least <= size, "{name}: {least} > {size}");
        }
        if let Some(stem) = name.split('.').next()
            && let Ok(table) = std::fs::read_to_string(folder.join(format!("{stem}.ge-plan.csv")))
        {
            let size_of = |s: &tenure_graph::plan::Storage| match s.members[0].item {
                tenure_graph::plan::Item::Value(v) => graph.asked_bytes(v),
                _ => Some(s.members[0].bytes),
            };
            let mut found: Vec<(u64, u64)> = (carried.storages.values())
                .filter_map(|s| match s.place {
                    tenure_graph::plan::Place::Arena { offset, .. } => Some((offset, size_of(s)?)),
                    tenure_graph::plan::Place::Caller => None,
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, rows(&table), "{name}");
        }
    }
}

#[test]
fn shared_encodings_of_one_model_are_one_graph() {
    let Some(folder) = shared() else { return };
    let all = models(&folder).into_iter();
    let all = all.filter(|(name, _)| name.contains("autoencoder"));
    let mut seen = Vec::new();
    for (name, bytes) in all {
        let (graph, record) = compiled(bytes);
        assert_eq!(graph.nodes.len(), 46, "{name}");
        let runs = graph.nodes.values().filter(|n| &*n.op != "Const").count();
        assert_eq!(runs, 29, "{name}");
        // Only some encodings have attributes of the model.
        if !record.sizes.is_empty() {
            assert_eq!(record.sizes[0], (0, 6_014_464), "{name}");
            assert_eq!(record.zero_copy, Some(313_856), "{name}");
        }
        let edges: Vec<_> = (graph.nodes.values())
            .map(|n| {
                (
                    n.name.clone(),
                    n.inputs.to_vec(),
                    n.control.to_vec(),
                    n.stream,
                )
            })
            .collect();
        let sizes: Vec<_> = (graph.values.keys())
            .map(|v| (graph.bytes(v), graph.asked_bytes(v)))
            .collect();
        seen.push((edges, sizes, record.values, record.workspaces));
    }
    assert_eq!(seen.len(), 4);
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}
