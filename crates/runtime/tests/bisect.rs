//! Bisecting where its ways part: a fault that comes and goes, a kernel that is not right in place, an
//! engine that cannot say, and results that are wrong for other reasons.

use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Place, Plan, PlanOptions, Sharing};
use tenure_graph::{Dialect, Graph, text};
use tenure_plan::Config;
use tenure_runtime::Kernels;
use tenure_runtime::bisect::{
    Culprit, Engine, Finding, Kind, Own, Report, Search, Suspicion, Trial, Verdict, bisect,
};
use tenure_runtime::kernels::{Call, Kernel};
use tenure_runtime::numbers::encode;

fn graph() -> Graph {
    let source = "model m onnx
graph ^root {
  %x: float32[16] = Data()
  %a: float32[16] = Exp(%x) @a
  %b: float32[16] = Relu(%a) @b
  %c: float32[4, 4] = Reshape(%b) @c
  %d: float32[4, 4] = Transpose(%c) {perm = [1, 0]} @d
  %e: float32[4, 4] = Transpose(%d) {perm = [1, 0]} @e
  %f: float32[4, 4] = Transpose(%e) {perm = [1, 0]} @f
  %g: float32[4, 4] = Transpose(%f) {perm = [1, 0]} @g
  NetOutput(%g) @out
}
";
    text::parse(source).unwrap_or_else(|e| panic!("{e}"))
}

fn plan_of(graph: &Graph, options: &PlanOptions) -> Plan {
    let table = OpTable::builtin(Dialect::Onnx);
    let planned = tenure_plan::plan(graph, &table, options, &Config::default());
    planned.unwrap().plan
}

fn planned(graph: &Graph, sharing: Sharing) -> CheckedPlan {
    let options = PlanOptions {
        sharing,
        ..PlanOptions::default()
    };
    let table = OpTable::builtin(Dialect::Onnx);
    tenure_check::check(graph, &table, &plan_of(graph, &options)).unwrap()
}

fn searched<E: Engine<Error: std::fmt::Debug>>(graph: &Graph, engine: &mut E, runs: u32) -> Report {
    let replan = |alone: &[String]| {
        Some(plan_of(
            graph,
            &PlanOptions {
                no_reuse: alone.to_vec(),
                ..PlanOptions::default()
            },
        ))
    };
    let table = OpTable::builtin(Dialect::Onnx);
    let search = Search {
        graph,
        table: &table,
        plan: &planned(graph, Sharing::Full),
        replan: &replan,
        suspects: &[],
        runs,
        gap: 64,
    };
    bisect(&search, engine).unwrap()
}

/// An engine by a rule: the run's number and the first bytes of values say what is right.
struct Rule<F>(u32, F);

impl<F: FnMut(u32, &CheckedPlan) -> Verdict> Engine for Rule<F> {
    type Error = ();

    fn run(&mut self, trial: &Trial<'_>) -> Result<Verdict, ()> {
        self.0 += 1;
        Ok((self.1)(self.0, trial.plan))
    }
}

/// Whether two values begin at the same byte.
fn meet(graph: &Graph, plan: &CheckedPlan, names: [&str; 2]) -> bool {
    let at = |name: &str| {
        let is_it = |item: Item| matches!(item, Item::Value(v) if graph.values[v].name == name);
        let mut storages = plan.plan().storages.values();
        let storage = storages.find(|s| s.members.iter().any(|m| is_it(m.item)))?;
        match storage.place {
            Place::Arena { offset, .. } => Some(offset),
            Place::Caller => None,
        }
    };
    at(names[0]) == at(names[1])
}

#[test]
fn a_fault_that_comes_and_goes_is_found_with_several_runs_a_trial() {
    let graph = graph();
    assert!(meet(&graph, &planned(&graph, Sharing::Full), ["d", "f"]));
    let rule = |run: u32, plan: &CheckedPlan| match meet(&graph, plan, ["d", "f"])
        && run.is_multiple_of(3)
    {
        true => Verdict::Wrong,
        false => Verdict::Right,
    };
    let report = searched(&graph, &mut Rule(0, rule), 6);
    assert!(report.unsteady);
    let Finding::Culprit(Culprit { kind, node, .. }) = report.finding else {
        panic!("{report:?}");
    };
    assert_eq!((kind, &*graph.nodes[node].name), (Kind::WritesLate, "d"));
    // Seen too seldom, it is taken for right.
    let report = searched(&graph, &mut Rule(0, rule), 2);
    assert_eq!(report.finding, Finding::Right);
}

#[test]
fn what_no_sharing_explains_is_said() {
    let graph = graph();
    for (verdict, finding) in [
        (Verdict::Wrong, Finding::NotSharing),
        (Verdict::Unknown, Finding::Undecided),
        (Verdict::Right, Finding::Right),
    ] {
        let report = searched(&graph, &mut Rule(0, |_, _: &CheckedPlan| verdict), 1);
        assert_eq!((report.finding, report.unsteady), (finding, false));
    }
}

/// Adds neighbours, and says wrongly that this is right in place.
struct Neighbours;

impl Kernel for Neighbours {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        let over = call.over(0).is_some();
        let x: &[f32] = call.read(0);
        let y = call.write::<f32>(0);
        for k in 0..y.len() {
            let before = k
                .checked_sub(1)
                .map_or(0.0, |b| if over { y[b] } else { x[b] });
            y[k] = before + if over { y[k] } else { x[k] };
        }
        Ok(())
    }

    fn may_be_over(&self, _: usize, _: usize) -> bool {
        true
    }
}

#[test]
fn a_kernel_that_is_not_right_in_place() {
    let graph = graph();
    let mut kernels = Kernels::builtin();
    kernels.add("", "Relu", |_| Ok(Box::new(Neighbours)));
    let x = encode(tenure_graph::DType::F32, (0..16u8).map(f64::from)).unwrap();
    let inputs = [x.as_slice()];
    let table = OpTable::builtin(Dialect::Onnx);
    let alone = planned(&graph, Sharing::None);
    let mut engine = Own::new(&graph, &table, &alone, &kernels, &[], &inputs, 64).unwrap();
    let report = searched(&graph, &mut engine, 1);
    let Finding::Culprit(culprit) = report.finding else {
        panic!("{report:?}");
    };
    assert_eq!(culprit.kind, Kind::InPlace, "{culprit:?}");
    assert_eq!(graph.nodes[culprit.node].name, "b");
    assert_eq!(culprit.suspicion, Suspicion::None);
}
