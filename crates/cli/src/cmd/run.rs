//! `tenure run`: executes a model inside its plan.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tenure_graph::Graph;
use tenure_graph::plan::{PlanOptions, Sharing};
use tenure_runtime::sanitize::{BadWrite, Sanitizer};
use tenure_runtime::session::{Origin, Session, SessionError, Shaped};
use tenure_runtime::whereabouts::{ValueReport, Whereabouts, whereabouts};
use tenure_runtime::{Kernels, Layout, Program, RuntimeError, profile};

use crate::args::{Pooling, RunArgs};
use crate::bench::{Bench, Shot};
use crate::cmd::costs;
use crate::exit::{Exit, Failure};
use crate::npy::Array;
use crate::pipeline::{options, since};
use crate::ui::Ui;
use crate::{files, search};

/// Runs the command.
pub fn run(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.bench.model.model.display().to_string();
    let pooling = match args.pool {
        Pooling::Auto if args.bench.model.dynamic => Pooling::Dynamic,
        pooling => pooling,
    };
    let mut bench = Bench::new(&args.bench, &args.also, pooling, ui)?;
    if !args.json {
        for text in &bench.usual {
            ui.say(format!("no value is given: --dim {text} is taken"));
        }
    }
    let kernels = bench.kernels()?;
    let options = options(&args.bench.rules);
    let session = bench.session(&options)?;
    let apart = if args.verify {
        let apart = PlanOptions {
            sharing: Sharing::None,
            fold: false,
            ..options
        };
        Some(bench.session(&apart)?)
    } else {
        None
    };
    let first = Shot {
        given: std::mem::take(&mut bench.given),
        inputs: std::mem::take(&mut bench.inputs),
    };
    let further = std::mem::take(&mut bench.further);
    let mut runner = Runner {
        args,
        ui,
        path,
        pooling,
        kernels,
        bench: &bench,
        session,
        apart,
        program: None,
    };
    let mut answers = Vec::with_capacity(further.len() + 1);
    for (number, shot) in (1..).zip(std::iter::once(&first).chain(&further)) {
        let done = runner.shot(number, shot).map_err(|failure| {
            if bench.usual.is_empty() || failure.hint.is_some() {
                return failure;
            }
            let taken = bench.usual.join(", ");
            failure.hint(format!(
                "{taken} are taken where no value is given; --dim gives others"
            ))
        });
        match done? {
            Done::Answer(answer) => answers.push(*answer),
            Done::BadWrite(bad) => return refuse(&bad, args, ui),
        }
    }
    let mut answers = answers.into_iter();
    let Some(mut answer) = answers.next() else {
        return Err(Failure::bad("there is nothing to run"));
    };
    answer.usual.clone_from(&bench.usual);
    answer.also = answers.collect();
    answer.show(args, ui)
}

/// What became of a run.
enum Done {
    Answer(Box<Answer>),
    BadWrite(BadWrite),
}

/// What the runs of one process have in common.
struct Runner<'a> {
    args: &'a RunArgs,
    ui: &'a Ui,
    path: String,
    pooling: Pooling,
    kernels: Kernels,
    bench: &'a Bench<'a>,
    session: Session<'a>,
    /// The same model where nothing shares memory.
    apart: Option<Session<'a>>,
    /// The program of the last run, and what it is for.
    program: Option<(Arc<Shaped>, Program)>,
}

impl Runner<'_> {
    fn bad(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::bad(format!("{}: {error}", self.path))
    }

    fn refused(&self, error: &SessionError) -> Failure {
        match error {
            SessionError::Check(_) => Failure::internal(format!("{}: {error}", self.path)),
            // The message has the path.
            SessionError::Preparation(message) => Failure::bad(message),
            _ => self.bad(error),
        }
    }

    /// Plans for one run, and does it.
    fn shot(&mut self, number: usize, shot: &Shot) -> Result<Done, Failure> {
        let Shot { given, inputs } = shot;
        let (bindings, contents) = self.bench.asked(given)?;
        let (start, planned) = (Instant::now(), self.session.planned());
        let session = &mut self.session;
        let shaped = search::watched(self.ui, |watch| session.plan(&bindings, &contents, watch));
        let shaped = shaped.map_err(|e| self.refused(&e))?;
        let plan = Planning {
            from: match &shaped.origin {
                _ if self.session.planned() == planned => "kept".to_owned(),
                Origin::Planned => "planned".to_owned(),
                Origin::Fitted => "fitted into the plan for the largest shape".to_owned(),
                Origin::Apart(reason) => format!("planned apart: {reason}"),
            },
            ms: since(start),
        };
        let values = self.values(&shaped)?;
        let bytes: Vec<&[u8]> = inputs.iter().map(|a| &a.bytes[..]).collect();
        if let Some(bad) = self.sanitized(&shaped, inputs, &bytes)? {
            return Ok(Done::BadWrite(bad));
        }
        let start = Instant::now();
        self.make_program(&shaped)?;
        let made = since(start);
        let (path, ui, args) = (&self.path, self.ui, self.args);
        let fail = |e: RuntimeError| Failure::bad(format!("{path}: {e}"));
        let Some((_, program)) = &mut self.program else {
            return Err(Failure::bad(format!("{path}: there is no program")));
        };
        set_dims(program, inputs).map_err(fail)?;
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
            let trace = profile::trace(&shaped.graph, shaped.plan.plan(), &spans);
            files::write_json(file, &trace)?;
        }
        let outputs = outputs(&shaped.graph, program);
        let same = match &mut self.apart {
            Some(session) => {
                let apart = search::watched(ui, |watch| session.plan(&bindings, &contents, watch));
                let apart = apart.map_err(|e| Failure::bad(format!("{path}: {e}")))?;
                let (table, layout) = (&self.bench.loaded.table, Layout::Guarded { zone: 0 });
                let (graph, plan) = (&apart.graph, &apart.plan);
                let apart = Program::new(graph, table, plan, &self.kernels, layout);
                let mut apart = apart.map_err(fail)?;
                set_dims(&mut apart, inputs).map_err(fail)?;
                apart.run(&bytes).map_err(fail)?;
                Some(differences(program, &apart))
            }
            None => None,
        };
        if let Some(folder) = &args.output_dir {
            match number {
                1 => save(folder, &outputs)?,
                _ => save(&folder.join(format!("run{number}")), &outputs)?,
            }
        }
        Ok(Done::Answer(Box::new(Answer {
            shape: given.dims.clone(),
            usual: Vec::new(),
            plan,
            arena: costs::bytes(shaped.plan.plan()),
            beside: program.beside(),
            threads: program.threads(),
            values,
            memory: Memory::of(program, resident),
            outputs: outputs.iter().map(Shown::of).collect(),
            sanitized: args.sanitize.then_some(true),
            verified: same.as_ref().map(Vec::is_empty),
            differences: same.unwrap_or_default(),
            program_ms: made,
            time_ms: args.repeat.map(|_| Times::of(&times)),
            also: Vec::new(),
        })))
    }

    /// Where all values are.
    ///
    /// # Errors
    /// Where all must be planned, and some are not.
    fn values(&self, shaped: &Shaped) -> Result<Values, Failure> {
        let (graph, plan) = (&shaped.graph, shaped.plan.plan());
        let reports = whereabouts(graph, &self.bench.loaded.table, plan);
        let pooled = |r: &&ValueReport| r.place == Whereabouts::Pooled;
        if self.pooling == Pooling::Planned && reports.iter().any(|r| pooled(&r)) {
            let names = reports.iter().filter(pooled);
            let names = names.map(|r| format!("{} ({})", graph.value_label(r.value), r.why));
            let names: Vec<String> = names.collect();
            return Err(self
                .bad(&format!(
                    "{} values cannot be planned: {}",
                    names.len(),
                    names.join(", ")
                ))
                .hint("--pool auto takes memory for these at each run"));
        }
        Ok(Values::of(graph, &reports))
    }

    /// The first write that is not allowed, if it is looked for.
    fn sanitized(
        &self,
        shaped: &Shaped,
        inputs: &[Array],
        bytes: &[&[u8]],
    ) -> Result<Option<BadWrite>, Failure> {
        if !self.args.sanitize {
            return Ok(None);
        }
        let fail = |e: RuntimeError| self.bad(&e);
        let (table, faults) = (&self.bench.loaded.table, &self.args.bench.feed.fault);
        let (graph, plan) = (&shaped.graph, &shaped.plan);
        let sanitizer = Sanitizer::new(graph, table, plan, &self.kernels, faults);
        let mut sanitizer = sanitizer.map_err(fail)?;
        set_dims(sanitizer.program_mut(), inputs).map_err(fail)?;
        sanitizer.run(bytes).map_err(fail)
    }

    /// Makes the program of a plan, unless it is that of the last run.
    fn make_program(&mut self, shaped: &Arc<Shaped>) -> Result<(), Failure> {
        let before = self.program.take();
        if before.as_ref().is_some_and(|(s, _)| Arc::ptr_eq(s, shaped)) {
            self.program = before;
            return Ok(());
        }
        let (table, faults) = (&self.bench.loaded.table, &self.args.bench.feed.fault);
        let (graph, plan, kernels) = (&shaped.graph, &shaped.plan, &self.kernels);
        let program = match &before {
            Some((_, other)) if faults.is_empty() => {
                Program::new_beside(graph, table, plan, kernels, other)
            }
            _ => Program::with_faults(graph, table, plan, kernels, Layout::Planned, faults),
        };
        let mut program = program.map_err(|e| self.bad(&e))?;
        if let Err(reason) = program.with_threads(plan) {
            self.ui.warn(format!("{}: {reason}", self.path));
        }
        self.program = Some((Arc::clone(shaped), program));
        Ok(())
    }
}

/// Gives inputs whose sizes are free the shapes of what is given.
fn set_dims(program: &mut Program, inputs: &[Array]) -> Result<(), RuntimeError> {
    let mut arrays = inputs.iter().enumerate();
    arrays.try_for_each(|(i, array)| program.set_input_dims(i, &array.dims))
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
    fn of(program: &Program, resident: Option<u64>) -> Self {
        let usage = program.usage();
        Memory {
            planned: usage.planned,
            touched: usage.touched,
            pooled: program.pooled().most_reserved,
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

/// How a run came to its plan.
#[derive(Serialize)]
struct Planning {
    /// Whether it was kept from a run before, or where it comes from.
    from: String,
    /// Milliseconds for shapes, plan and proof.
    ms: f64,
}

/// Where all values are.
#[derive(Serialize)]
struct Values {
    planned: usize,
    pooled: usize,
    outside: usize,
    list: Vec<ValueLine>,
}

/// Where a value is.
#[derive(Serialize)]
struct ValueLine {
    value: String,
    shape: String,
    place: &'static str,
    why: String,
}

impl Values {
    fn of(graph: &Graph, reports: &[ValueReport]) -> Self {
        let count = |place| reports.iter().filter(|r| r.place == place).count();
        let line = |report: &ValueReport| {
            let value = &graph.values[report.value];
            let shape = value.shape.as_ref();
            ValueLine {
                value: graph.value_label(report.value),
                shape: shape.map_or("?".to_owned(), ToString::to_string),
                place: match report.place {
                    Whereabouts::Planned => "planned",
                    Whereabouts::Pooled => "pooled",
                    Whereabouts::Outside => "outside",
                },
                why: report.why.clone(),
            }
        };
        Values {
            planned: count(Whereabouts::Planned),
            pooled: count(Whereabouts::Pooled),
            outside: count(Whereabouts::Outside),
            list: reports.iter().map(line).collect(),
        }
    }

    /// Reasons why values are pooled that are named, unless all are asked for.
    const SHOWN: usize = 5;

    fn say(&self, ui: &Ui, all: bool) {
        let Values {
            planned,
            pooled,
            outside,
            list,
        } = self;
        ui.say(format!(
            "values: {planned} planned, {pooled} pooled, {outside} outside"
        ));
        if all {
            let wide = |of: fn(&ValueLine) -> &str| {
                list.iter()
                    .map(|l| of(l).chars().count())
                    .max()
                    .unwrap_or(0)
            };
            let (name, shape) = (wide(|l| &l.value), wide(|l| &l.shape));
            for line in list {
                let ValueLine {
                    value,
                    shape: dims,
                    place,
                    why,
                } = line;
                ui.say(format!("  {value:name$}  {dims:shape$}  {place:7}  {why}"));
            }
            return;
        }
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for line in list.iter().filter(|l| l.place == "pooled") {
            match reasons.iter_mut().find(|(why, _)| *why == line.why) {
                Some((_, count)) => *count += 1,
                None => reasons.push((&line.why, 1)),
            }
        }
        for (why, count) in reasons.iter().take(Self::SHOWN) {
            ui.say(format!("  {count} pooled: {why}"));
        }
        if let Some(more) = reasons.len().checked_sub(Self::SHOWN).filter(|&n| n > 0) {
            ui.say(format!("  and {more} reasons more; --values lists all"));
        }
    }
}

/// What the command says.
#[derive(Serialize)]
struct Answer {
    /// Values of dimensions, as `--dim` takes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shape: Vec<String>,
    /// Those of them that nobody has given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    usual: Vec<String>,
    plan: Planning,
    /// Bytes of planned memory.
    arena: u64,
    /// Bytes that kernels need beside it.
    beside: u64,
    /// Threads that the streams had; 0 where all ran on one.
    threads: usize,
    /// Milliseconds to make the program of the plan, memory included.
    program_ms: f64,
    memory: Memory,
    /// Where each value is, and why.
    values: Values,
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
    /// The runs after the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<Answer>,
}

impl Answer {
    fn show(&self, args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
        if args.json {
            let text = serde_json::to_string_pretty(self).map_err(Failure::internal)?;
            ui.data(text);
        } else {
            let many = !self.also.is_empty();
            for answer in std::iter::once(self).chain(&self.also) {
                if many {
                    let Planning { from, ms } = &answer.plan;
                    let shape = answer.shape.join(" ");
                    let program = answer.program_ms;
                    ui.say(format!(
                        "shape {shape}: {from}, {ms:.3} ms, and {program:.3} ms for the program"
                    ));
                }
                answer.say(args, ui);
            }
        }
        let all = || std::iter::once(self).chain(&self.also);
        let most = all().map(|answer| answer.arena).max().unwrap_or(0);
        let mut exit = search::within(args.bench.search.capacity, most, ui);
        for answer in all() {
            if answer.verified == Some(false) {
                let names = answer.differences.join(", ");
                ui.warn(format!(
                    "outputs differ from a run that shares no memory: {names}"
                ));
                exit = Exit::No;
            }
        }
        Ok(exit)
    }

    fn say(&self, args: &RunArgs, ui: &Ui) {
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
        self.values.say(ui, args.values);
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
