//! `exec`: guards, plans, checks and runs the graph, and compares what comes out.

use serde_json::Value;
use tenure_check::CheckedPlan;
use tenure_graph::Graph;
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::verify::verify_bodies;
use tenure_guard::{Options, compile};
use tenure_plan::Config;
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::{Kernels, Layout, Program};

use crate::case::{self, GraphCase};
use crate::expect::Judge;
use crate::kinds::assign::{self, first};

/// Most instructions of one run of a case.
pub(super) const LIMIT: u64 = 1 << 24;

/// Keys that nobody can judge when there is no plan.
const OF_RUNS: [&str; 7] = [
    "outputs",
    "outputs_per_run",
    "copies",
    "same_copies_as",
    "no_overlap",
    "share",
    "peak_bytes",
];

/// What planned memory is filled with before a run, in turn: as float32, huge numbers and none.
const POISON: [u8; 3] = [0x7f, 0xff, 0x70];

/// Runs the kind.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let ready = match Ready::new(case) {
        Ok(_) if refused => return judge.fail("an error was expected, the graph was planned"),
        Ok(ready) => ready,
        Err(_) if refused => return,
        Err(error) => {
            for key in OF_RUNS {
                judge.take(key);
            }
            return judge.fail(error);
        }
    };
    // These speak of the graph as given, where that is planned as well.
    if !case.kinds().contains(&"assign") {
        assign::sizes(case, ready.plan.plan(), judge);
    }
    assign::places(&ready.graph, ready.plan.plan(), judge);
    copies(case, &ready, judge);
    if let Err(error) = ready.run(case, judge) {
        judge.fail(error);
    }
}

/// A case's graph, guarded, planned and checked.
pub(super) struct Ready {
    pub(super) table: OpTable,
    /// The guarded graph.
    pub(super) graph: Graph,
    pub(super) plan: CheckedPlan,
    /// Copies that the case's graph does not have.
    copies: usize,
}

impl Ready {
    pub(super) fn new(case: &GraphCase) -> Result<Self, String> {
        let given = case.graph.clone()?;
        let table = OpTable::builtin(given.dialect);
        verify_bodies(&given, &table).map_err(|broken| first(&broken))?;
        let shaped = infer(given, &table, &Bindings::default()).map_err(|e| e.to_string())?;
        let given = shaped.graph;
        let guarded = compile::run(&given, &table, &Options::of(&given));
        let graph = guarded.map_err(|e| e.to_string())?.graph(&given).clone();
        let options = assign::options(case);
        let planned = tenure_plan::plan(&graph, &table, &options, &Config::default());
        let plan = planned.map_err(|e| e.to_string())?.plan;
        let plan = tenure_check::check(&graph, &table, &plan)
            .map_err(|found| format!("the plan fails its check: {}", first(&found)))?;
        let copying = |graph: &Graph| {
            let nodes = graph.nodes.keys();
            nodes
                .filter(|&n| table.traits(graph, n).has(Trait::Copies))
                .count()
        };
        let added = copying(&graph).saturating_sub(copying(&given));
        Ok(Ready {
            copies: added + plan.plan().copies.len(),
            graph,
            plan,
            table,
        })
    }

    /// Runs the plan as often as the case says, and judges each run.
    fn run(&self, case: &GraphCase, judge: &mut Judge<'_>) -> Result<(), String> {
        let kernels = Kernels::builtin();
        let program = Program::new(
            &self.graph,
            &self.table,
            &self.plan,
            &kernels,
            Layout::Planned,
        );
        let mut program = program.map_err(|e| e.to_string())?;
        program.set_limit(LIMIT);
        set_variables(case, &mut program)?;
        let inputs = inputs(case, &program)?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let keeps = self.plan.plan().options.keep_inputs;
        for (number, byte) in (0..runs(case)).zip(POISON.into_iter().cycle()) {
            program.poison(byte);
            program.run(&inputs).map_err(|e| e.to_string())?;
            outputs(&program, number, judge);
            for (i, given) in inputs.iter().enumerate().filter(|_| keeps) {
                if program.input(i) != *given {
                    let name = &program.inputs()[i].name;
                    judge.fail(format!("keep_inputs: {name} was changed in run {number}"));
                }
            }
        }
        Ok(())
    }
}

/// How often the case is run.
pub(super) fn runs(case: &GraphCase) -> usize {
    let runs = case.option("runs").and_then(Value::as_u64);
    usize::try_from(runs.unwrap_or(1)).unwrap_or(usize::MAX)
}

/// What the case gives for a tensor.
fn given<'a>(case: &'a GraphCase, tensor: &str) -> Option<&'a Value> {
    let given = case.file.get("inputs").and_then(Value::as_object);
    let mut all = given.into_iter().flatten();
    all.find(|(name, _)| format!("{name}:0") == tensor)
        .map(|(_, numbers)| numbers)
}

/// Sets what the case says of variables.
pub(super) fn set_variables(case: &GraphCase, program: &mut Program) -> Result<(), String> {
    for i in 0..program.variables().len() {
        let variable = &program.variables()[i];
        if let Some(numbers) = given(case, &variable.name) {
            let bytes = encode(variable.dtype, flatten(numbers)).unwrap_or_default();
            program.set_variable(i, &bytes).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// The values of the case's inputs, as the program wants them.
pub(super) fn inputs(case: &GraphCase, program: &Program) -> Result<Vec<Vec<u8>>, String> {
    let inputs = program.inputs().iter().map(|input| {
        let numbers = given(case, &input.name);
        let numbers = numbers.and_then(|n| encode(input.dtype, flatten(n)));
        numbers.ok_or_else(|| format!("the case gives no values for input {}", input.name))
    });
    inputs.collect()
}

/// The numbers in a list that may be nested.
fn flatten(list: &Value) -> Vec<f64> {
    match list {
        Value::Array(list) => list.iter().flat_map(flatten).collect(),
        other => other
            .as_f64()
            .or(other.as_bool().map(|b| f64::from(u8::from(b))))
            .into_iter()
            .collect(),
    }
}

/// Judges the results of one run.
pub(super) fn outputs(program: &Program, number: usize, judge: &mut Judge<'_>) {
    let same = judge.take("outputs").and_then(Value::as_array);
    let by_run = judge.take("outputs_per_run").and_then(Value::as_array);
    let this_run = by_run.and_then(|runs| runs.get(number)?.as_array());
    for (key, want) in [("outputs", same), ("outputs_per_run", this_run)] {
        let Some(want) = want else { continue };
        if want.len() != program.results().len() {
            judge.fail(format!(
                "{key}: there are {} outputs",
                program.results().len()
            ));
        }
        for (i, (want, result)) in want.iter().zip(program.results()).enumerate() {
            let got = decode(result.dtype, &program.result(i));
            if got.as_ref() != Some(&flatten(want)) {
                judge.fail(format!(
                    "{key}: output {i} of run {number}: expected {want}, got {got:?}"
                ));
            }
        }
    }
    if by_run.is_some() && this_run.is_none() {
        judge.fail(format!("outputs_per_run: nothing is said of run {number}"));
    }
}

/// Judges how many copies were made.
fn copies(case: &GraphCase, ready: &Ready, judge: &mut Judge<'_>) {
    let least = judge.take("copies").and_then(|c| c.get("min")?.as_u64());
    if least.is_some_and(|least| (ready.copies as u64) < least) {
        judge.fail(format!(
            "copies: expected {least:?} or more, got {}",
            ready.copies
        ));
    }
    let Some(other) = judge.take("same_copies_as").and_then(Value::as_str) else {
        return;
    };
    match case::sibling(case, other).and_then(|other| Ready::new(&other)) {
        Ok(twin) if twin.copies == ready.copies => {}
        Ok(twin) => judge.fail(format!(
            "same_copies_as: {} here, {} in {other}",
            ready.copies, twin.copies
        )),
        Err(error) => judge.fail(format!("same_copies_as: {error}")),
    }
}
