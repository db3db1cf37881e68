//! `tenure run`: executes a model inside its plan.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use tenure_graph::Graph;
use tenure_graph::plan::{PlanOptions, Sharing};
use tenure_runtime::sanitize::{BadWrite, Sanitizer};
use tenure_runtime::{Layout, Program, RuntimeError, Usage, profile};

use crate::args::RunArgs;
use crate::bench::Bench;
use crate::cmd::costs;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::npy::Array;
use crate::pipeline::{options, since};
use crate::settle::Settled;
use crate::ui::Ui;

/// Runs the command.
pub fn run(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.bench.model.model.display().to_string();
    let mut bench = Bench::new(&args.bench, ui)?;
    let kernels = bench.kernels()?;
    let settled = bench.settle(&kernels)?;
    let inputs = std::mem::take(&mut bench.inputs);
    let bytes: Vec<&[u8]> = inputs.iter().map(|a| &a.bytes[..]).collect();
    let options = options(&args.bench.rules);
    let (graph, plan) = bench.planned(&options, ui)?;
    let fail = |e: RuntimeError| Failure::bad(format!("{path}: {e}"));
    let (table, faults) = (&bench.loaded.table, &args.bench.feed.fault[..]);
    if args.sanitize {
        let sanitizer = Sanitizer::new(&graph, table, &plan, &kernels, faults);
        let found = sanitizer.and_then(|mut s| s.run(&bytes)).map_err(fail)?;
        if let Some(bad) = found {
            return refuse(&bad, args, ui);
        }
    }
    let arena = costs::bytes(plan.plan());
    let layout = Layout::Planned;
    let program = Program::with_faults(&graph, table, &plan, &kernels, layout, faults);
    let mut program = program.map_err(fail)?;
    if let Err(reason) = program.with_threads(&plan) {
        ui.warn(format!("{path}: {reason}"));
    }
    let start = Instant::now();
    program.run(&bytes).map_err(fail)?;
    let mut times = vec![since(start)];
    for _ in 0..args.repeat.map_or(0, std::num::NonZero::get) {
        let start = Instant::now();
        program.run(&bytes).map_err(fail)?;
        times.push(since(start));
    }
    let resident = resident();
    if let Some(file) = &args.profile {
        let spans = program.run_timed(&bytes).map_err(fail)?;
        files::write_json(file, &profile::trace(&graph, plan.plan(), &spans))?;
    }
    let outputs = outputs(&graph, &program);
    let same = if args.verify {
        let apart = PlanOptions {
            sharing: Sharing::None,
            fold: false,
            ..options
        };
        let (graph, plan) = bench.planned(&apart, ui)?;
        let (table, layout) = (&bench.loaded.table, Layout::Guarded { zone: 0 });
        let apart = Program::new(&graph, table, &plan, &kernels, layout);
        let mut apart = apart.map_err(fail)?;
        apart.run(&bytes).map_err(fail)?;
        Some(differences(&program, &apart))
    } else {
        None
    };
    if let Some(folder) = &args.output_dir {
        save(folder, &outputs)?;
    }
    let answer = Answer {
        arena,
        beside: program.beside(),
        threads: program.threads(),
        settled,
        memory: Memory::of(program.usage(), resident),
        outputs: outputs.iter().map(Shown::of).collect(),
        sanitized: args.sanitize.then_some(true),
        verified: same.as_ref().map(Vec::is_empty),
        differences: same.unwrap_or_default(),
        time_ms: args.repeat.map(|_| Times::of(&times)),
    };
    answer.show(args, ui)
}

/// A write that is not allowed ends the command.
fn refuse(bad: &BadWrite, args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.json {
        let json = serde_json::json!({
            "sanitized": false,
            "node": bad.name,
            "step": bad.step,
            "tensor": bad.tensor,
            "bytes": bad.bytes,
            "message": bad.to_string(),
        });
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
    } else {
        ui.data(bad);
    }
    Ok(Exit::No)
}

/// The graph's outputs with their names; those that are left out are not among them.
fn outputs(graph: &Graph, program: &Program) -> Vec<(String, Array)> {
    let node = graph.subgraphs[graph.root].output;
    let slots = node.map_or(&[][..], |n| &graph.nodes[n].inputs);
    let values = slots.iter().enumerate();
    let array = |(i, value): (usize, &Option<tenure_graph::ValueId>)| {
        let value = &graph.values[(*value)?];
        let dims = program.result_dims(i)?;
        let name = program.results().get(i)?.name.clone();
        let bytes = program.result(i);
        let dtype = value.dtype;
        Some((name, Array { dtype, dims, bytes }))
    };
    values.filter_map(array).collect()
}

/// Names of the outputs in which two runs differ.
fn differences(one: &Program, other: &Program) -> Vec<String> {
    let results = one.results().iter().enumerate();
    let differ = results.filter(|&(i, _)| one.result(i) != other.result(i));
    differ.map(|(_, tensor)| tensor.name.clone()).collect()
}

/// Writes each output to a file of its name.
fn save(folder: &Path, outputs: &[(String, Array)]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::bad(format!("cannot create {}: {e}", folder.display())))?;
    let mut taken = BTreeSet::new();
    for (name, array) in outputs {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let safe: String = name
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .collect();
        let mut file = safe.clone();
        let mut count = 1;
        while !taken.insert(file.clone()) {
            count += 1;
            file = format!("{safe}_{count}");
        }
        let bytes = array
            .write()
            .map_err(|e| Failure::bad(format!("output {name:?}: {e}")))?;
        files::write(&folder.join(format!("{file}.npy")), &bytes)?;
    }
    Ok(())
}

/// An output, as it is shown.
#[derive(Serialize)]
struct Shown {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    greatest: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
}

impl Shown {
    fn of((name, array): &(String, Array)) -> Self {
        let numbers = tenure_runtime::numbers::decode(array.dtype, &array.bytes);
        let numbers = numbers.filter(|n| !n.is_empty());
        let fold = |f: fn(f64, f64) -> f64| {
            let numbers = numbers.as_ref()?;
            numbers.iter().copied().reduce(f).filter(|n| n.is_finite())
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a mean is shown with a few digits"
        )]
        let count = numbers.as_ref().map_or(1.0, |n| n.len() as f64);
        Shown {
            name: name.clone(),
            dtype: array.dtype.to_string(),
            shape: array.dims.clone(),
            least: fold(f64::min),
            greatest: fold(f64::max),
            mean: fold(|a, b| a + b).map(|sum| sum / count),
        }
    }
}

/// How long runs took, in milliseconds.
#[derive(Serialize)]
struct Times {
    /// The first run.
    first: f64,
    /// Number of runs after it, for which the rest is.
    runs: usize,
    least: f64,
    median: f64,
    p90: f64,
    greatest: f64,
}

impl Times {
    fn of(all: &[f64]) -> Self {
        let mut rest = all.get(1..).unwrap_or(&[]).to_vec();
        rest.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let last = rest.len().saturating_sub(1);
            rest.get(last * percent / 100).copied().unwrap_or(0.0)
        };
        Times {
            first: all.first().copied().unwrap_or(0.0),
            runs: rest.len(),
            least: at(0),
            median: at(50),
            p90: at(90),
            greatest: at(100),
        }
    }
}

/// Where the memory of the run was, in bytes.
#[derive(Serialize)]
struct Memory {
    /// The arenas.
    planned: u64,
    /// What of them was read or written.
    touched: u64,
    /// What the allocator held for values that cannot be planned.
    pooled: u64,
    /// Constants, variables and memory of the caller.
    outside: u64,
    /// What kernels needed beside the arenas.
    beside: u64,
    /// What the process had in memory after the run; `None` where the system does not say.
    resident: Option<u64>,
}

impl Memory {
    fn of(usage: Usage, resident: Option<u64>) -> Self {
        Memory {
            planned: usage.planned,
            touched: usage.touched,
            pooled: 0,
            outside: usage.outside,
            beside: usage.beside,
            resident,
        }
    }

    fn say(&self, ui: &Ui) {
        let Memory {
            planned,
            touched,
            pooled,
            outside,
            beside,
            resident,
        } = self;
        ui.say(format!(
            "memory: {planned} bytes planned, {touched} of them touched; {pooled} pooled; {outside} outside (constants, variables, inputs and outputs of the caller); {beside} beside"
        ));
        if let Some(resident) = resident {
            let all = planned + pooled + outside + beside;
            let rest = match resident.checked_sub(all) {
                Some(more) => {
                    format!("{more} more than these: the program, the model's file and its graph")
                }
                None => format!(
                    "{} less than these: pages that nobody has touched",
                    all - resident
                ),
            };
            ui.say(format!("resident: {resident} bytes, {rest}"));
        }
    }
}

/// Bytes that the process has in memory, as Linux says them.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the command says.
#[derive(Serialize)]
struct Answer {
    /// Bytes of planned memory.
    arena: u64,
    /// Bytes that kernels need beside it.
    beside: u64,
    /// Threads that the streams had; 0 where all ran on one.
    threads: usize,
    memory: Memory,
    /// Values whose sizes only the data decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settled: Vec<Settled>,
    outputs: Vec<Shown>,
    /// Whether the guarded run has seen nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    sanitized: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ms: Option<Times>,
}

impl Answer {
    fn show(&self, args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
        if args.json {
            let text = serde_json::to_string_pretty(self).map_err(Failure::internal)?;
            ui.data(text);
        } else {
            self.say(ui);
        }
        if self.verified == Some(false) {
            let names = self.differences.join(", ");
            ui.warn(format!(
                "outputs differ from a run that shares no memory: {names}"
            ));
            return Ok(Exit::No);
        }
        Ok(Exit::Done)
    }

    fn say(&self, ui: &Ui) {
        ui.say(format!(
            "ran in an arena of {} bytes, and {} bytes beside it",
            self.arena, self.beside
        ));
        if self.threads > 0 {
            ui.say(format!("{} streams, a thread each", self.threads));
        }
        for output in &self.outputs {
            let range = match (output.least, output.greatest, output.mean) {
                (Some(least), Some(greatest), Some(mean)) => {
                    format!("  {least:.6} to {greatest:.6}, mean {mean:.6}")
                }
                _ => String::new(),
            };
            let (name, dtype, shape) = (&output.name, &output.dtype, &output.shape);
            ui.say(format!("output {name}  {dtype} {shape:?}{range}"));
        }
        self.memory.say(ui);
        for settled in &self.settled {
            ui.say(settled.line());
        }
        if self.sanitized == Some(true) {
            ui.say("guarded: no node writes what is not its own");
        }
        if self.verified == Some(true) {
            ui.say("verified: the same bits as a run that shares no memory");
        }
        if let Some(t) = &self.time_ms {
            ui.say(format!(
                "first run {:.3} ms; {} more: least {:.3}, median {:.3}, 90 % {:.3}, greatest {:.3} ms",
                t.first, t.runs, t.least, t.median, t.p90, t.greatest
            ));
        }
    }
}
