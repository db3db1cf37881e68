//! Operators of a user's own: a Rust trait, and the example in C behind the header, which is compiled
//! where there is a C compiler. They run in the plan and guarded, and a mistake in one is found.

use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Member, Place, PlanOptions, Sharing, Storage};
use tenure_graph::{Graph, text};
use tenure_plan::Config;
use tenure_runtime::bisect::{Finding, Kind, Own, Search, Suspicion, bisect};
use tenure_runtime::kernels::library::LibraryError;
use tenure_runtime::kernels::{Call, Kernel};
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::sanitize::{Hit, Sanitizer};
use tenure_runtime::{Kernels, Layout, Program};

/// `tanh(x * -x / 2) - k x`, where `k` values are held while the user's operator runs.
fn graph(k: usize) -> Graph {
    let mut lines = vec!["%x: float32[16] = Data()".to_owned()];
    lines.extend((0..k).map(|i| format!("%n{i}: float32[16] = Neg(%x)")));
    lines.push("%a: float32[16] = Mul(%x, %n0) @a".to_owned());
    lines.push("%b: float32[16] = example::ScaledTanh(%a) {scale = 0.5} @b".to_owned());
    let sums = (0..k).map(|i| match i {
        0 => "%c0: float32[16] = Add(%b, %n0)".to_owned(),
        _ => format!("%c{i}: float32[16] = Add(%c{}, %n{i})", i - 1),
    });
    lines.extend(sums);
    lines.push(format!("NetOutput(%c{}) @out", k - 1));
    let source = format!(
        "model m onnx\ngraph ^root {{\n  {}\n}}\n",
        lines.join("\n  ")
    );
    text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

/// Whether something that is held lies right behind the output of the user's operator.
fn has_neighbour(graph: &Graph, plan: &CheckedPlan) -> bool {
    let plan = plan.plan();
    let at = |s: &Storage| match s.place {
        Place::Arena { offset, .. } => offset,
        Place::Caller => u64::MAX,
    };
    let is_b =
        |m: &Member| matches!(m.item, Item::Value(v) if graph.value_label(v).starts_with("b"));
    let mut storages = plan.storages.values();
    let Some(b) = storages.find(|s| s.members.iter().any(is_b)) else {
        return false;
    };
    let held = |s: &&Storage| s.life[0].first < b.life[0].first && s.life[0].last > b.life[0].first;
    let mut others = plan.storages.values().filter(held);
    others.any(|s| at(s) == at(b) + b.size)
}

fn planned(graph: &Graph, sharing: Sharing) -> CheckedPlan {
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions {
        sharing,
        ..PlanOptions::default()
    };
    let plan = tenure_plan::plan(graph, &table, &options, &Config::default()).expect("a plan");
    tenure_check::check(graph, &table, &plan.plan).expect("a right plan")
}

/// The plan with its arena turned upside down.
fn upside_down(graph: &Graph, plan: &CheckedPlan) -> CheckedPlan {
    let mut plan = plan.plan().clone();
    let end = plan.arenas[0].size;
    for storage in plan.storages.values_mut() {
        if let Place::Arena { offset, .. } = &mut storage.place {
            *offset = end - *offset - storage.size;
        }
    }
    let table = OpTable::builtin(graph.dialect);
    tenure_check::check(graph, &table, &plan).expect("a right plan")
}

fn input() -> Vec<u8> {
    let numbers = (0..16u8).map(|n| f64::from(n) / 8.0 - 1.0);
    encode(tenure_graph::DType::F32, numbers).expect("numbers")
}

/// What the graph with one held value gives.
fn expected() -> Vec<f32> {
    let numbers = (0..16u8).map(|n| f32::from(n) / 8.0 - 1.0);
    numbers.map(|x| (x * -x * 0.5).tanh() - x).collect()
}

fn is_right(bytes: &[u8]) -> bool {
    let got = decode(tenure_graph::DType::F32, bytes).expect("numbers");
    let pairs = got.into_iter().zip(expected());
    pairs
        .into_iter()
        .all(|(g, e)| (g - f64::from(e)).abs() < 1e-5)
}

fn run(kernels: &Kernels) -> Vec<u8> {
    let graph = graph(1);
    let (table, plan) = (
        OpTable::builtin(graph.dialect),
        planned(&graph, Sharing::Full),
    );
    let program = Program::new(&graph, &table, &plan, kernels, Layout::Planned);
    let mut program = program.expect("a program");
    program.run(&[&input()]).expect("a run");
    program.result(0)
}

/// The same operator as the example in C.
struct ScaledTanh(f32);

impl Kernel for ScaledTanh {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        let x: &[f32] = call.read(0);
        for (y, x) in call.write::<f32>(0).iter_mut().zip(x) {
            *y = (x * self.0).tanh();
        }
        Ok(())
    }
}

#[test]
fn a_kernel_in_rust() {
    let mut kernels = Kernels::builtin();
    assert!(!kernels.is_added("", "Relu"));
    kernels.add("example", "ScaledTanh", |site| {
        let half = site.float("scale", 1.0) == 0.5;
        let scale = half.then_some(0.5).ok_or("only a scale of 0.5 is known")?;
        Ok(Box::new(ScaledTanh(scale)))
    });
    assert!(kernels.is_added("example", "ScaledTanh"));
    assert!(is_right(&run(&kernels)));
}

/// The example in C, compiled; `None` where there is no compiler.
fn compiled(folder: &Path, name: &str, defines: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let library = folder.join(format!("lib{name}.so"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
        .args(defines);
    command.arg("-I").arg(root.join("crates/runtime/include"));
    command.arg(root.join("examples/kernels/scaled_tanh.c"));
    command.arg("-o").arg(&library).arg("-lm");
    match command.output() {
        Err(_) => {
            use std::io::Write;
            let mut out = std::io::stdout();
            writeln!(out, "skipped: there is no C compiler {compiler:?}").expect("an output");
            None
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{said}");
            Some(library)
        }
    }
}

#[test]
fn the_example_in_c_runs_in_the_plan_and_guarded() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(library) = compiled(folder.path(), "right", &[]) else {
        return;
    };
    let mut kernels = Kernels::builtin();
    let names = kernels.add_library(&library).expect("a library");
    assert_eq!(names, ["example:ScaledTanh"]);
    assert!(is_right(&run(&kernels)));
    let graph = graph(1);
    let (table, plan) = (
        OpTable::builtin(graph.dialect),
        planned(&graph, Sharing::Full),
    );
    let mut guarded = Sanitizer::new(&graph, &table, &plan, &kernels, &[]).expect("a program");
    assert_eq!(guarded.run(&[&input()]), Ok(None));
    assert!(is_right(&guarded.program().result(0)));
}

#[test]
fn a_mistake_in_c_is_seen_guarded_and_found_by_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(library) = compiled(folder.path(), "far", &["-DTOO_FAR=1"]) else {
        return;
    };
    let mut kernels = Kernels::builtin();
    kernels.add_library(&library).expect("a library");
    let mut graphs = (1..8).flat_map(|k| {
        let (graph, plan) = (graph(k), planned(&graph(k), Sharing::Full));
        let turned = upside_down(&graph, &plan);
        [(graph.clone(), plan), (graph, turned)]
    });
    let found = graphs.find(|(graph, plan)| has_neighbour(graph, plan));
    let (graph, plan) = found.expect("a plan in which the mistake shows");
    let table = OpTable::builtin(graph.dialect);
    let mut guarded = Sanitizer::new(&graph, &table, &plan, &kernels, &[]).expect("a program");
    let bad = guarded
        .run(&[&input()])
        .expect("a run")
        .expect("a bad write");
    assert_eq!((&*bad.name, bad.bytes), ("b", 4), "{bad}");

    let alone = planned(&graph, Sharing::None);
    let given = input();
    let inputs = [given.as_slice()];
    let engine = Own::new(&graph, &table, &alone, &kernels, &[], &inputs, 4096);
    let mut engine = engine.expect("an engine");
    assert!(engine.is_steady());
    let is_users =
        |&n: &tenure_graph::NodeId| kernels.is_added(&graph.nodes[n].domain, &graph.nodes[n].op);
    let users = graph.nodes.keys().filter(is_users).collect();
    let search = Search {
        graph: &graph,
        table: &table,
        plan: &plan,
        replan: &|_| None,
        suspects: &[(Suspicion::UserKernel, users)],
        runs: 2,
        gap: 4096,
    };
    let report = bisect(&search, &mut engine).expect("a search");
    let Finding::Culprit(culprit) = report.finding else {
        panic!("{report:?}");
    };
    assert_eq!(graph.nodes[culprit.node].name, "b");
    assert_eq!(culprit.kind, Kind::OutOfBounds);
    assert_eq!(culprit.suspicion, Suspicion::UserKernel);
    assert!(culprit.seen.is_some() && !report.unsteady);
}

/// The guarded run names the node also where it writes thousands of elements off, on either side; and
/// a plain run and one that shares nothing are not broken by it.
#[test]
fn a_mistake_in_c_is_seen_wherever_it_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    for far in [2_i32, 17, 1000, 16_384, -16, -1000, -16_384] {
        let define = format!("-DTOO_FAR={far}");
        let Some(library) = compiled(folder.path(), &format!("far{far}"), &[&define]) else {
            return;
        };
        let mut kernels = Kernels::builtin();
        kernels.add_library(&library).expect("a library");
        let graph = graph(1);
        let table = OpTable::builtin(graph.dialect);
        let plan = planned(&graph, Sharing::Full);
        let mut guarded = Sanitizer::new(&graph, &table, &plan, &kernels, &[]).expect("a program");
        let bad = guarded.run(&[&input()]).expect("a run");
        let bad = bad.unwrap_or_else(|| panic!("{far} places off is not seen"));
        for layout in [Layout::Planned, Layout::Guarded { zone: 0 }] {
            let program = Program::new(&graph, &table, &plan, &kernels, layout);
            let mut program = program.expect("a program");
            program.run(&[&input()]).expect("a run");
            let arenas = plan.plan().arenas.iter().map(|arena| arena.size);
            if layout == Layout::Planned {
                assert_eq!(program.usage().planned, arenas.sum::<u64>());
            }
        }
        let hit = match far {
            1.. => Hit::Past(4 * (far.unsigned_abs() as usize - 1)),
            _ => Hit::Before(4 * (far.unsigned_abs() as usize - 15)),
        };
        assert_eq!((&*bad.name, bad.bytes, bad.hit), ("b", 4, hit));
    }
}

#[test]
fn what_is_no_library_is_refused() {
    let mut kernels = Kernels::default();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for path in [file.as_path(), Path::new("there/is/none.so")] {
        let refused = kernels.add_library(path);
        assert!(
            matches!(refused, Err(LibraryError::Load { .. })),
            "{refused:?}"
        );
    }
}
