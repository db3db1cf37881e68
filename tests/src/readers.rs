//! What must hold of every reader, whatever the bytes: the fuzz targets and a test call the same
//! functions, so that what a fuzzer finds becomes a test by its bytes alone.
//!
//! No input makes a reader panic. What is read goes on through all that follows it, with a small
//! budget: placements are valid, plans pass the checker, and what is written is read the same.

use tenure_check::{Demand, check, check_memory};
use tenure_formats::csv;
use tenure_graph::arbitrary_graph::check as graphs;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{PlanOptions, Span};
use tenure_graph::plan_file::{ModelIdentity, PlanFile};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::verify::verify_bodies;
use tenure_graph::{Graph, text};
use tenure_plan::metadata::{AllocateKind, MemoryGraph};
use tenure_plan::recorded::{recorded, uncleared};
use tenure_plan::{Config, Watch, plan};
use tenure_solve::{Instance, solve};

use crate::packings;

/// A reader: its name, and what is asserted of any bytes.
pub type Reader = (&'static str, fn(&[u8]));

/// All readers.
pub const READERS: [Reader; 10] = [
    ("model", model),
    ("compiled model", compiled),
    ("text dump", compiled),
    ("ONNX-styled dump", compiled),
    ("graph JSON", graphs::json),
    ("graph text", graph_text),
    ("memory JSON", memory_json),
    ("plan file", plan_file),
    ("operator rows", op_rows),
    ("allocation CSV", allocation_csv),
];

fn budget() -> Config {
    Config {
        steps: Some(20_000),
        ..Config::default()
    }
}

/// A model file, through to its checked plan.
///
/// # Panics
/// When the reader or what follows it breaks a rule.
pub fn model(bytes: &[u8]) {
    let Ok(graph) = tenure_formats::read_bytes(bytes.to_vec()) else {
        return;
    };
    assert_eq!(tenure_graph::verify(&graph), Ok(()));
    let table = OpTable::builtin(graph.dialect);
    if verify_bodies(&graph, &table).is_err() {
        return;
    }
    let Ok(shaped) = infer(graph, &table, &Bindings::default()) else {
        return;
    };
    let options = PlanOptions::default();
    if let Ok(planned) = plan(&shaped.graph, &table, &options, &budget())
        && let Err(violations) = check(&shaped.graph, &table, &planned.plan)
    {
        panic!("{}: {}", violations[0], text::print(&shaped.graph));
    }
}

/// A model file that may carry a plan: what it carries is judged, whatever it is.
///
/// # Panics
/// When the reader or what follows it breaks a rule.
pub fn compiled(bytes: &[u8]) {
    model(bytes);
    let Ok(kind) = tenure_formats::detect(bytes) else {
        return;
    };
    let file = tenure_formats::ModelFile {
        kind,
        bytes: bytes.to_vec().into(),
        folder: None,
        number: 0,
    };
    let Ok((graph, Some(record))) = file.compiled() else {
        return;
    };
    let table = OpTable::builtin(graph.dialect);
    let _missed = uncleared(&graph, &table, &record);
    if verify_bodies(&graph, &table).is_err() {
        return;
    }
    if let Ok(plan) = recorded(&graph, &table, &record) {
        // Whatever the verdict is.
        let _verdict = check(&graph, &table, &plan);
    }
}

/// The text form of a graph.
///
/// # Panics
/// When it is read but not printed the same.
pub fn graph_text(bytes: &[u8]) {
    if let Ok(source) = std::str::from_utf8(bytes) {
        graphs::text(source);
    }
}

/// Memory JSON, through to its checked plan.
///
/// # Panics
/// When a plan is made that is wrong.
pub fn memory_json(bytes: &[u8]) {
    let Ok(graph) = MemoryGraph::read(bytes) else {
        return;
    };
    let identity = ModelIdentity::default();
    let options = PlanOptions::default();
    let Ok((file, _)) = graph.plan(identity, &options, &budget(), &Watch::default()) else {
        return;
    };
    let demands: Vec<Demand<'_>> = graph
        .allocates
        .iter()
        .map(|node| Demand {
            name: &node.name,
            bytes: node.bytes,
            align: node.align,
            life: node
                .life
                .iter()
                .map(|&[first, last]| Span { first, last })
                .collect(),
            placed: node.kind != AllocateKind::Caller,
        })
        .collect();
    if let Err(violations) = check_memory(&demands, &file) {
        panic!("{violations:?}");
    }
}

/// A saved plan: read, written and read again; and judged as a plan of a graph that it need not
/// belong to.
///
/// # Panics
/// When it is not read the same again.
pub fn plan_file(bytes: &[u8]) {
    let Ok(file) = PlanFile::read(bytes) else {
        return;
    };
    let json = |file: &PlanFile| serde_json::to_string(file).unwrap_or_else(|e| panic!("{e}"));
    let written = json(&file);
    let again = PlanFile::read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(json(&again), written);
    let graph = sample();
    if let Ok(plan) = file.resolve(&graph) {
        // Whatever the verdict is.
        let _verdict = check(&graph, &OpTable::builtin(graph.dialect), &plan);
    }
}

/// The graph that saved plans are read for.
///
/// # Panics
/// Never: its text is a constant.
#[must_use]
pub fn sample() -> Graph {
    let source = "model m onnx graph ^root {
        %go: bool[] = Data()
        %x: float32[8] = Data()
        %a: float32[8] = Relu(%x)
        %y: float32[8] = If(%go)
          then ^then { %b: float32[8] = Relu(%x^root) NetOutput(%b) @out1 }
          else ^else { %c: float32[8] = Add(%x^root, %a^root) NetOutput(%c) @out2 }
        NetOutput(%y) @out
      }";
    text::parse(source).unwrap_or_else(|e| panic!("{e}"))
}

/// Rows for operators, in TOML: what they say is asked of every node of a graph.
///
/// # Panics
/// When the table does.
pub fn op_rows(bytes: &[u8]) {
    let Ok(rows) = std::str::from_utf8(bytes) else {
        return;
    };
    let graph = sample();
    let mut table = OpTable::builtin(graph.dialect);
    if table.extend_toml(rows).is_ok() {
        for id in graph.nodes.keys() {
            let _class = table.class(&graph, id);
            let _effects = table.effects(&graph, id);
        }
    }
}

/// An allocation CSV, through to its placement.
///
/// # Panics
/// When a placement is wrong or the table is not written back as it was.
pub fn allocation_csv(bytes: &[u8]) {
    let options = csv::Options {
        max_bytes: 1 << 20,
        ..csv::Options::default()
    };
    let Ok(table) = csv::read(bytes, &options) else {
        return;
    };
    let Ok(instance) = Instance::new(packings::of_table(&table)) else {
        return;
    };
    let solution = solve(&instance, &budget()).unwrap_or_else(|e| panic!("{e}"));
    let mut written = Vec::new();
    let done = table.write_with_offsets(&solution.offsets, &mut written);
    done.unwrap_or_else(|e| panic!("{e}"));
    let again = csv::read(&written[..], &csv::Options::default());
    let again = again.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again.rows().len(), table.rows().len());
    for ((row, before), &offset) in again.rows().iter().zip(table.rows()).zip(&solution.offsets) {
        assert_eq!(row.offset, Some(offset));
        let known = [row.lower, row.upper, row.size, row.alignment];
        assert_eq!(
            known,
            [before.lower, before.upper, before.size, before.alignment]
        );
        assert_eq!((&row.id, &row.gaps), (&before.id, &before.gaps));
    }
}
