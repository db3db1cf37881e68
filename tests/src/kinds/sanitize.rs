//! `sanitize`: runs the graph guarded, with the faults that the case asks for, and names the node
//! that writes outside of what is its own.

use serde_json::Value;
use tenure_runtime::sanitize::Sanitizer;
use tenure_runtime::{Fault, Kernels};

use crate::case::GraphCase;
use crate::expect::Judge;
use crate::kinds::exec::{self, Ready};

/// Runs the kind.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    if let Err(error) = judged(case, judge) {
        judge.fail(error);
    }
}

fn judged(case: &GraphCase, judge: &mut Judge<'_>) -> Result<(), String> {
    let ready = Ready::new(case)?;
    let faults = faults(case);
    let kernels = Kernels::builtin();
    let sanitizer = Sanitizer::new(&ready.graph, &ready.table, &ready.plan, &kernels, &faults);
    let mut sanitizer = sanitizer.map_err(|e| e.to_string())?;
    sanitizer.set_limit(exec::LIMIT);
    exec::set_variables(case, sanitizer.program_mut())?;
    let inputs = exec::inputs(case, sanitizer.program())?;
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut found = None;
    for number in 0..exec::runs(case) {
        found = sanitizer.run(&inputs).map_err(|e| e.to_string())?;
        if found.is_some() {
            break;
        }
        exec::outputs(sanitizer.program(), number, judge);
    }
    if let Some(want) = judge.take("culprit") {
        // Cases give names without the graph that they stand in, or with it.
        let is_it = |name: &str| {
            let plain = name.rsplit('/').next();
            want.as_str()
                .is_some_and(|want| want == name || Some(want) == plain)
        };
        let named = found
            .as_ref()
            .map_or(want.is_null(), |bad| is_it(&bad.name));
        if !named {
            let found = found.map(|bad| bad.to_string());
            judge.fail(format!("culprit: expected {want}, found {found:?}"));
        }
    }
    Ok(())
}

/// The faults that the case asks for.
fn faults(case: &GraphCase) -> Vec<Fault> {
    let list = case.option("faults").and_then(Value::as_array);
    let number = |fault: &Value, key: &str| {
        let number = fault.get(key).and_then(Value::as_u64);
        usize::try_from(number.unwrap_or(0)).unwrap_or(usize::MAX)
    };
    let fault = |fault: &Value| Fault {
        node: fault
            .get("node")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        output: number(fault, "output"),
        bytes_past_end: number(fault, "bytes_past_end"),
        bytes_before_start: number(fault, "bytes_before_start"),
        ..Fault::default()
    };
    list.into_iter().flatten().map(fault).collect()
}
