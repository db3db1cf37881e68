//! `tenure plan`: model to plan, checked and shown.

use std::time::Instant;

use serde::Serialize;
use tenure_check::check;
use tenure_graph::changes::Changes;
use tenure_graph::plan::{Arena, Plan};
use tenure_graph::plan_file::{CheckBlock, ModelIdentity, PlanFile, Summary};
use tenure_graph::{Graph, Node};
use tenure_guard::compile;
use tenure_plan::metadata::MemoryGraph;
use tenure_plan::{Cut, assign, memory, streams};
use tenure_report::{ReportModel, html, text};

use crate::args::{OrderChoice, PlanArgs};
use crate::cmd::costs::{self, Cost, Peak, Streams};
use crate::exit::{Exit, Failure};
use crate::pipeline::{self, Model, config, options, since};
use crate::ui::Ui;
use crate::{files, search, ui};

/// `plan --json`.
#[derive(Serialize)]
struct Json<'a> {
    model: JsonModel<'a>,
    arena: JsonArena<'a>,
    arenas: &'a [Arena],
    bytes: JsonBytes,
    storages: usize,
    in_place: usize,
    copies: JsonCopies,
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<&'a Streams>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a [Cost]>,
    dynamic_values: usize,
    check: &'a CheckBlock,
    warnings: &'a [String],
    cut_by_clock: bool,
    cancelled: bool,
    time_ms: Times,
}

#[derive(Serialize)]
struct JsonModel<'a> {
    path: String,
    format: &'a str,
    nodes: usize,
    values: usize,
}

#[derive(Serialize)]
struct JsonArena<'a> {
    size: u64,
    lower_bound: u64,
    proven_optimal: bool,
    no_reuse: u64,
    strategy: &'a str,
}

#[derive(Serialize)]
struct JsonBytes {
    constants: u64,
    inputs: u64,
    outputs: u64,
    intermediates: u64,
    workspaces: u64,
}

#[derive(Serialize)]
struct JsonCopies {
    inserted: usize,
    bytes: u64,
    /// Order that was added so that nothing has to be copied.
    control_edges: usize,
    /// Copies that the rules of the reference put in when they are followed to the letter; `None`
    /// where nobody counted.
    by_plain_rules: Option<usize>,
}

/// Nodes of a graph, and inputs or outputs of a node, beyond which nobody counts the copies of the
/// plain rules: some of these compare all slots of a node with each other.
const PLAIN_RULES_UP_TO: (usize, usize) = (100_000, 4096);

/// Whether the copies of the plain rules are counted.
fn is_countable(graph: &Graph) -> bool {
    let (nodes, slots) = PLAIN_RULES_UP_TO;
    let is_narrow = |n: &Node| n.inputs.len().max(n.outputs.len()) <= slots;
    graph.nodes.len() <= nodes && graph.nodes.values().all(is_narrow)
}

/// Milliseconds of each stage.
#[derive(Clone, Copy, Default, Serialize)]
struct Times {
    read: f64,
    shapes: f64,
    guard: f64,
    lifetimes: f64,
    solve: f64,
    check: f64,
}

/// A plan, and what was learnt on the way.
struct Outcome {
    source: Source,
    model: ModelIdentity,
    arenas: Vec<Arena>,
    strategy: String,
    storages: usize,
    copies: usize,
    streams: Option<Streams>,
    costs: Option<Vec<Cost>>,
    plain_rules: Option<usize>,
    dynamic: usize,
    summary: Summary,
    check: CheckBlock,
    warnings: Vec<String>,
    cut: Option<Cut>,
    time: Times,
}

/// Where a plan's names come from. A plan in names is several times as large as one in numbers, so
/// it is made only when somebody wants to see it.
enum Source {
    Graph(Box<(Graph, Plan, Changes)>),
    File(Box<PlanFile>),
}

impl Outcome {
    /// How many pairs of nodes were put in order.
    fn control_edges(&self) -> usize {
        match &self.source {
            Source::Graph(all) => all.2.waits.len(),
            Source::File(_) => 0,
        }
    }

    /// The plan in names.
    fn into_file(self) -> PlanFile {
        match self.source {
            Source::Graph(both) => {
                let (graph, plan, guard) = *both;
                let file = PlanFile::new(&graph, self.model, &plan, self.summary, self.check);
                PlanFile { guard, ..file }
            }
            Source::File(file) => *file,
        }
    }
}

/// Runs the command.
pub fn run(args: &PlanArgs, ui: &Ui) -> Result<Exit, Failure> {
    let start = Instant::now();
    let model = pipeline::read(&args.model)?;
    let read = since(start);
    let outcome = match model {
        Model::Graph(graph) => of_graph(graph, args, ui, read)?,
        Model::Memory(text) => of_memory(&text, args, ui, read)?,
    };
    show(outcome, args, ui)
}

fn of_graph(graph: Graph, args: &PlanArgs, ui: &Ui, read_ms: f64) -> Result<Outcome, Failure> {
    let options = options(&args.rules);
    let loaded = pipeline::load(graph, &args.model, read_ms)?;
    let path = args.model.model.display();
    let bad = |e: tenure_plan::PlanError| Failure::bad(format!("{path}: {e}"));
    let start = Instant::now();
    let options_of_file = tenure_guard::Options::of(&loaded.graph);
    let plain_rules = (args.json && is_countable(&loaded.graph)).then(|| {
        let counted =
            compile::copies_by_plain_rules(&loaded.graph, &loaded.table, &options_of_file);
        counted.ok()
    });
    let plain_rules = plain_rules.flatten();
    let path_of = &args.model.model;
    let prepared = pipeline::prepared(loaded.graph, &loaded.table, &options, path_of)?;
    let changes = prepared.changes;
    let guard = since(start);
    let start = Instant::now();
    // The check is against the model's own order.
    let own = (args.rules.order == OrderChoice::Auto).then(|| prepared.graph.clone());
    let graph =
        pipeline::ordered(prepared.graph, &loaded.table, &options, &args.rules).map_err(bad)?;
    let mut warnings = loaded.warnings;
    warnings.extend(pipeline::unmet(&graph, &options));
    let wanted = args.rules.streams;
    let given = streams::used(&graph);
    if wanted > 1 && given > 1 {
        warnings.push(format!(
            "the model puts its nodes on {given} streams: they stay there, whatever --streams says"
        ));
    }
    let alone = (wanted > 1).then(|| graph.clone());
    let graph = streams::spread(graph, &loaded.table, &options, wanted);
    let found = memory(&graph, &loaded.table, &options).map_err(bad)?;
    let lifetimes = since(start);
    let start = Instant::now();
    let config = config(&args.search);
    let planned = search::watched(ui, |watch| assign(found, &options, &config, watch));
    let planned = planned.map_err(bad)?;
    let solve = since(start);
    let plan = planned.plan;
    let streams = match alone {
        Some(alone) => {
            let mut peaks =
                costs::peaks(alone, &loaded.table, &options, &config, wanted).map_err(bad)?;
            peaks.push(Peak {
                streams: streams::used(&graph),
                bytes: costs::bytes(&plan),
            });
            Some(Streams::new(&graph, &plan, peaks))
        }
        None => None,
    };
    let costs = args.costs.then(|| {
        let size = costs::bytes(&plan);
        costs::costs(&graph, &loaded.table, &options, &config, size)
    });
    let costs = costs.transpose().map_err(bad)?;
    let summary = Summary::new(&graph, &plan, planned.in_place);
    let model = own.as_ref().unwrap_or(&graph);
    let start = Instant::now();
    let checked = check(model, &loaded.table, &plan).map_err(|violations| {
        let list: Vec<String> = violations
            .iter()
            .take(10)
            .map(ToString::to_string)
            .collect();
        Failure::internal(format!(
            "the plan for {path} fails its own check, so nothing was written:\n  {}",
            list.join("\n  ")
        ))
    })?;
    let block = CheckBlock {
        passed: true,
        accesses: checked.accesses(),
    };
    let check = since(start);
    Ok(Outcome {
        model: loaded.identity,
        arenas: plan.arenas.clone(),
        strategy: plan.strategy.clone(),
        storages: plan.storages.len(),
        copies: plan.copies.len(),
        dynamic: plan.dynamic.len(),
        summary,
        check: block,
        plain_rules,
        streams,
        costs,
        source: Source::Graph(Box::new((graph, plan, changes))),
        warnings,
        cut: planned.cut,
        time: Times {
            read: loaded.time.0,
            shapes: loaded.time.1,
            guard,
            lifetimes,
            solve,
            check,
        },
    })
}

fn of_memory(text: &[u8], args: &PlanArgs, ui: &Ui, read: f64) -> Result<Outcome, Failure> {
    let options = options(&args.rules);
    let path = args.model.model.display();
    let bad = |e: tenure_plan::PlanError| Failure::bad(format!("{path}: {e}"));
    let graph = MemoryGraph::read(text).map_err(bad)?;
    let identity = ModelIdentity {
        path: path.to_string(),
        name: graph.name.clone(),
        format: "memory-json".to_owned(),
        nodes: 0,
        values: graph.tensors.len(),
        sha256: graph.sha256(),
    };
    let start = Instant::now();
    let config = config(&args.search);
    let planned = search::watched(ui, |watch| graph.plan(identity, &options, &config, watch));
    let (mut file, cut) = planned.map_err(bad)?;
    let solve = since(start);
    let start = Instant::now();
    let accesses = pipeline::check_memory(&graph, &file).map_err(|violations| {
        let list: Vec<String> = violations
            .iter()
            .take(10)
            .map(ToString::to_string)
            .collect();
        Failure::internal(format!(
            "the plan fails its own check:\n  {}",
            list.join("\n  ")
        ))
    })?;
    file.check = CheckBlock {
        passed: true,
        accesses,
    };
    Ok(Outcome {
        model: file.model.clone(),
        arenas: file.arenas.clone(),
        strategy: file.strategy.clone(),
        storages: file.storages.len(),
        copies: 0,
        plain_rules: None,
        streams: None,
        costs: None,
        dynamic: 0,
        summary: file.summary,
        check: file.check.clone(),
        source: Source::File(Box::new(file)),
        warnings: Vec::new(),
        cut,
        time: Times {
            read,
            solve,
            check: since(start),
            ..Times::default()
        },
    })
}

fn show(outcome: Outcome, args: &PlanArgs, ui: &Ui) -> Result<Exit, Failure> {
    let size: u64 = outcome.arenas.iter().map(|a| a.size).sum();
    let cut = outcome.cut;
    let json = if args.json {
        let json = json(&outcome, args);
        Some(serde_json::to_string_pretty(&json).map_err(Failure::internal)?)
    } else {
        None
    };
    let summary = json.is_none() && !ui.quiet();
    let streams = outcome.streams.as_ref().map(Streams::line);
    let costs = outcome.costs.iter().flatten().map(Cost::line);
    let costs: Vec<String> = costs.collect();
    if args.output.is_some() || args.report.is_some() || summary {
        let warnings = outcome.warnings.clone();
        let file = outcome.into_file();
        if let Some(path) = &args.output {
            files::write_json(path, &file)?;
        }
        if args.report.is_some() || summary {
            let mut model = ReportModel::new(file, warnings).map_err(Failure::internal)?;
            // Exporters call every graph the same; the file's name says which one it is.
            if let Some(stem) = args.model.model.file_stem() {
                model.model.name = stem.to_string_lossy().into_owned();
            }
            if let Some(path) = &args.report {
                files::write(path, html::page(&model).as_bytes())?;
            }
            if summary {
                let style = text::Style {
                    color: ui.colors(),
                    unicode: ui.unicode(),
                };
                ui.say(text::summary(&model, style).trim_end());
                streams.iter().for_each(|line| ui.say(line));
                if !costs.is_empty() {
                    ui.say("What rules cost:");
                }
                costs.iter().for_each(|line| ui.say(format!("  {line}")));
            }
        }
    }
    if let Some(json) = json {
        ui.data(json);
    } else if let Some(cut) = cut {
        ui.say(ui::cut(cut));
    }
    Ok(search::within(args.search.capacity, size, ui))
}

fn json<'a>(outcome: &'a Outcome, args: &PlanArgs) -> Json<'a> {
    let sums = &outcome.summary;
    let arena = outcome.arenas.first();
    let figure = |f: fn(&tenure_graph::plan::Arena) -> u64| arena.map_or(0, f);
    Json {
        model: JsonModel {
            path: args.model.model.display().to_string(),
            format: &outcome.model.format,
            nodes: outcome.model.nodes,
            values: outcome.model.values,
        },
        arena: JsonArena {
            size: figure(|a| a.size),
            lower_bound: figure(|a| a.lower_bound),
            proven_optimal: arena.is_none_or(|a| a.proven_optimal),
            no_reuse: figure(|a| a.no_reuse),
            strategy: &outcome.strategy,
        },
        bytes: JsonBytes {
            constants: sums.constants,
            inputs: sums.inputs,
            outputs: sums.outputs,
            intermediates: sums.intermediates,
            workspaces: sums.workspaces,
        },
        arenas: &outcome.arenas,
        storages: outcome.storages,
        in_place: sums.in_place,
        copies: JsonCopies {
            inserted: outcome.copies,
            bytes: sums.copied,
            control_edges: outcome.control_edges(),
            by_plain_rules: outcome.plain_rules,
        },
        streams: outcome.streams.as_ref(),
        costs: outcome.costs.as_deref(),
        dynamic_values: outcome.dynamic,
        check: &outcome.check,
        warnings: &outcome.warnings,
        cut_by_clock: outcome.cut == Some(Cut::Clock),
        cancelled: outcome.cut == Some(Cut::Cancelled),
        time_ms: outcome.time,
    }
}
