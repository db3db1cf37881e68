//! `tenure bisect`: finds the node whose write breaks another tensor, on our executor or on anybody's
//! engine.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use tenure_check::{CheckedPlan, check};
use tenure_graph::changes::Changes;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Plan, PlanOptions, Sharing};
use tenure_graph::plan_file::{CheckBlock, ModelIdentity, PlanFile, Summary};
use tenure_graph::{Graph, NodeId};
use tenure_plan::{assign, memory};
use tenure_runtime::RuntimeError;
use tenure_runtime::bisect::{
    self, Culprit, Engine, Finding, Kind, Own, Search, Suspicion, Trial, Verdict,
};

use crate::args::{BisectArgs, Pooling};
use crate::bench::Bench;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::pipeline::{config, options};
use crate::ui::Ui;

/// Exit code with which a command says that it cannot judge a plan, as `git bisect run` has it.
const CANNOT_SAY: i32 = 125;

/// The first exit code that a shell gives for commands that it cannot run.
const NOT_RUN: i32 = 126;

/// Runs the command.
pub fn run(args: &BisectArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.bench.model.model.display().to_string();
    let mut bench = Bench::new(&args.bench, &[], Pooling::Planned, ui)?;
    for text in &bench.usual {
        ui.say(format!("no value is given: --dim {text} is taken"));
    }
    let kernels = bench.kernels()?;
    if args.exec.is_none() {
        for settled in bench.settle(&kernels)? {
            ui.say(settled.line());
        }
    }
    let (graph, changes, plan) = planned(&bench, args, ui)?;
    let options = plan.plan().options.clone();
    let table = &bench.loaded.table;
    let limits = config(&args.bench.search);
    let replan = |alone: &[String]| -> Option<Plan> {
        let mut options = options.clone();
        options.no_reuse.extend(alone.iter().cloned());
        let found = memory(&graph, table, &options).ok()?;
        let planned = assign(found, &options, &limits, &tenure_plan::Watch::default());
        planned.ok().map(|p| p.plan)
    };
    let identity = bench.loaded.identity.clone();
    let file = |plan: &CheckedPlan| written(&graph, &identity, &changes, plan);
    let is_added = |&n: &NodeId| kernels.is_added(&graph.nodes[n].domain, &graph.nodes[n].op);
    let users = graph.nodes.keys().filter(is_added).collect();
    let mut suspects: Vec<(Suspicion, Vec<NodeId>)> = vec![(Suspicion::UserKernel, users)];
    if let Some(base) = &args.base {
        let base = files::read_plan(base)?;
        let nodes = bisect::changed(&graph, &file(&plan), &base);
        suspects.push((Suspicion::Changed, nodes));
    }
    let search = Search {
        graph: &graph,
        table,
        plan: &plan,
        replan: &replan,
        suspects: &suspects,
        runs: args.runs.get(),
        gap: args.gap,
    };
    let report = match &args.exec {
        Some(command) => {
            let folder = tempfile::Builder::new().prefix("tenure-").tempdir();
            let folder = folder
                .map_err(|e| Failure::bad(format!("cannot create a folder for plans: {e}")))?;
            let mut engine = Shell {
                command,
                folder: folder.path(),
                file: &file,
            };
            bisect::bisect(&search, &mut engine)?
        }
        None => {
            let fail = |e: RuntimeError| Failure::bad(format!("{path}: {e}"));
            let inputs: Vec<&[u8]> = bench.inputs.iter().map(|a| &a.bytes[..]).collect();
            let apart = PlanOptions {
                sharing: Sharing::None,
                ..options.clone()
            };
            let alone = bench.plan(&graph, &apart, ui)?;
            let zone = usize::try_from(args.gap).unwrap_or(usize::MAX);
            let faults = &args.bench.feed.fault;
            let engine = Own::new(&graph, table, &alone, &kernels, faults, &inputs, zone);
            let mut engine = engine.map_err(fail)?;
            if !engine.is_steady() {
                return Err(Failure::bad(format!(
                    "{path}: two runs that share no memory give different results, so no sharing is to blame"
                ))
                .hint("look for a kernel that gives something else each time"));
            }
            bisect::bisect(&search, &mut engine).map_err(fail)?
        }
    };
    show(&graph, &plan, &report, args, ui)
}

/// The plan that is looked at, and the graph that it is for.
fn planned(
    bench: &Bench<'_>,
    args: &BisectArgs,
    ui: &Ui,
) -> Result<(Graph, Changes, CheckedPlan), Failure> {
    let Some(path) = &args.plan else {
        let options = options(&args.bench.rules);
        let (graph, changes) = bench.prepared(&options)?;
        let plan = bench.plan(&graph, &options, ui)?;
        return Ok((graph, changes, plan));
    };
    let file = files::read_plan(path)?;
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", path.display()));
    if file.model.sha256 != bench.loaded.identity.sha256 {
        return Err(bad(
            &"was made for another model, or with other values of --dim",
        ));
    }
    let graph = file.guard.apply(&bench.loaded.graph).map_err(|e| bad(&e))?;
    let plan = file.resolve(&graph).map_err(|e| bad(&e))?;
    let table: &OpTable = &bench.loaded.table;
    match check(&graph, table, &plan) {
        Ok(plan) => Ok((graph, file.guard, plan)),
        Err(violations) => {
            let first = violations.first().map(ToString::to_string);
            Err(bad(&first.unwrap_or_default())
                .hint("the plan itself is wrong: `tenure check` says all that is"))
        }
    }
}

/// A plan in names.
fn written(
    graph: &Graph,
    identity: &ModelIdentity,
    changes: &Changes,
    plan: &CheckedPlan,
) -> PlanFile {
    let check = CheckBlock {
        passed: true,
        accesses: plan.accesses(),
    };
    let summary = Summary::new(graph, plan.plan(), 0);
    let file = PlanFile::new(graph, identity.clone(), plan.plan(), summary, check);
    PlanFile {
        guard: changes.clone(),
        ..file
    }
}

/// Somebody's engine, behind a command of the shell.
struct Shell<'a> {
    command: &'a str,
    folder: &'a Path,
    file: &'a dyn Fn(&CheckedPlan) -> PlanFile,
}

impl Engine for Shell<'_> {
    type Error = Failure;

    fn run(&mut self, trial: &Trial<'_>) -> Result<Verdict, Failure> {
        let (plan, list) = (
            self.folder.join("plan.json"),
            self.folder.join("no-reuse.txt"),
        );
        files::write_json(&plan, &(self.file)(trial.plan))?;
        let names: String = trial.apart.iter().map(|name| format!("{name}\n")).collect();
        files::write(&list, names.as_bytes())?;
        let mut command = if cfg!(windows) {
            let mut command = Command::new("cmd");
            command.arg("/C").arg(self.command).arg(&plan).arg(&list);
            command
        } else {
            let mut command = Command::new("sh");
            let line = format!("{} \"$@\"", self.command);
            command.arg("-c").arg(line).arg("sh").arg(&plan).arg(&list);
            command
        };
        // What it prints must not stand among our own answers.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        let status = command
            .env("TENURE_PLAN", &plan)
            .env("TENURE_NO_REUSE", &list)
            .status()
            .map_err(|e| Failure::bad(format!("--exec {:?} cannot be run: {e}", self.command)))?;
        match status.code() {
            Some(0) => Ok(Verdict::Right),
            Some(CANNOT_SAY) => Ok(Verdict::Unknown),
            Some(code) if (1..CANNOT_SAY).contains(&code) => Ok(Verdict::Wrong),
            Some(code) => Err(Failure::bad(format!(
                "--exec {:?} ended with exit code {code}",
                self.command
            ))
            .hint(format!(
                "0 says that the result is right, {CANNOT_SAY} that it cannot be said, anything else below {NOT_RUN} that it is wrong; other codes end the search"
            ))),
            None => Err(Failure::bad(format!(
                "--exec {:?} was ended by a signal",
                self.command
            ))
            .hint("let the command catch crashes of the engine and exit with 1")),
        }
    }
}

/// `bisect --json`.
#[derive(Serialize)]
struct Json<'a> {
    /// `right`, `not-sharing`, `culprit` or `undecided`.
    finding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Nodes that it may be as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    or: Vec<String>,
    /// What lies in the two places that must not be where they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pair: Vec<String>,
    /// What a guarded run has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspicion: Option<&'static str>,
    unsteady: bool,
    runs: u32,
    message: &'a str,
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::OutOfBounds => "out-of-bounds",
        Kind::WritesLate => "writes-late",
        Kind::ReadsLate => "reads-late",
        Kind::InPlace => "in-place",
    }
}

fn suspicion(suspicion: Suspicion) -> &'static str {
    match suspicion {
        Suspicion::UserKernel => "user-kernel",
        Suspicion::Changed => "changed",
        Suspicion::None => "none",
    }
}

/// What an item is called.
fn label(graph: &Graph, plan: &Plan, item: Item) -> String {
    match item {
        Item::Value(v) => graph.value_label(v),
        Item::Workspace(n, k) => format!("workspace {k} of {}", graph.node_label(n)),
        Item::Copy(k) => match plan.copies.get(k as usize) {
            Some(copy) => format!("the copy of {}", graph.value_label(copy.value)),
            None => "a copy".to_owned(),
        },
    }
}

/// One sentence on what was found.
fn sentence(graph: &Graph, plan: &Plan, culprit: &Culprit) -> String {
    let name = |n: NodeId| format!("{:?} ({})", graph.node_label(n), graph.nodes[n].op);
    let node = name(culprit.node);
    let [one, other] = culprit.pair.map(|item| label(graph, plan, item));
    let mut text = match culprit.kind {
        Kind::OutOfBounds => format!(
            "node {node} writes outside of its memory: {one:?} and {other:?} must not be neighbours"
        ),
        Kind::WritesLate => format!(
            "node {node} still writes {one:?} when the plan has given its memory to {other:?}"
        ),
        Kind::ReadsLate => format!(
            "node {node} still reads {one:?} when the plan has given its memory to {other:?}"
        ),
        Kind::InPlace => format!(
            "node {node} is wrong when its output lies over its input ({one:?} and {other:?})"
        ),
    };
    if !culprit.or.is_empty() {
        let others: Vec<String> = culprit.or.iter().map(|&n| name(n)).collect();
        text.push_str(&format!("; it may also be {}", others.join(", ")));
    }
    text
}

fn show(
    graph: &Graph,
    plan: &CheckedPlan,
    report: &bisect::Report,
    args: &BisectArgs,
    ui: &Ui,
) -> Result<Exit, Failure> {
    let plan = plan.plan();
    let (finding, message, exit) = match &report.finding {
        Finding::Right => (
            "right",
            "the plan gives the right result".to_owned(),
            Exit::Done,
        ),
        Finding::NotSharing => (
            "not-sharing",
            "the result is wrong even when nothing shares memory: no sharing is to blame"
                .to_owned(),
            Exit::No,
        ),
        Finding::Culprit(culprit) => ("culprit", sentence(graph, plan, culprit), Exit::No),
        Finding::Undecided => (
            "undecided",
            "it cannot be said which node it is: too many trials had no answer".to_owned(),
            Exit::Undecided,
        ),
    };
    let culprit = match &report.finding {
        Finding::Culprit(culprit) => Some(culprit),
        _ => None,
    };
    let seen = culprit.and_then(|c| c.seen.as_ref());
    if args.json {
        let nodes = |c: &Culprit| c.or.iter().map(|&n| graph.node_label(n)).collect();
        let pair = |c: &Culprit| c.pair.map(|item| label(graph, plan, item)).to_vec();
        let json = Json {
            finding,
            kind: culprit.map(|c| kind(c.kind)),
            node: culprit.map(|c| graph.node_label(c.node)),
            or: culprit.map(nodes).unwrap_or_default(),
            pair: culprit.map(pair).unwrap_or_default(),
            seen: seen.map(ToString::to_string),
            suspicion: culprit.map(|c| suspicion(c.suspicion)),
            unsteady: report.unsteady,
            runs: report.runs,
            message: &message,
        };
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
        return Ok(exit);
    }
    ui.data(message);
    if let Some(seen) = seen {
        ui.say(format!("seen in a guarded run: {seen}"));
    }
    match culprit.map(|c| c.suspicion) {
        Some(Suspicion::UserKernel) => ui.say("it was found among the user's own kernels"),
        Some(Suspicion::Changed) => {
            ui.say("it was found among what lies elsewhere than in the plan that was right")
        }
        Some(Suspicion::None) | None => {}
    }
    if report.unsteady {
        ui.say(
            "the fault comes and goes: the same plan was right at one time and wrong at another",
        );
    }
    ui.say(format!("{} runs", report.runs));
    Ok(exit)
}
