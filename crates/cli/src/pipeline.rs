//! What several commands do with a model: read it, give it shapes, name what is unsure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use rustc_hash::FxHashSet;
use tenure_check::{Demand, MemoryViolation, refines};
use tenure_formats::{Kind, ModelFile};
use tenure_graph::changes::Changes;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::plan::{ALL_NODES, Placement, PlanOptions, Sharing, Sizes, Span};
use tenure_graph::plan_file::{ModelIdentity, PlanFile};
use tenure_graph::shapes::{Bindings, infer_for};
use tenure_graph::verify::verify_bodies;
use tenure_graph::{CONST_OP, Dialect, Graph, Node, NodeId, json};
use tenure_guard::compile;
use tenure_plan::metadata::{AllocateKind, MemoryGraph};
use tenure_plan::{Config, PlanError, order};

use crate::args::{ModelArgs, OrderChoice, Place, RuleArgs, SearchArgs, Share, SizeChoice, Switch};
use crate::exit::Failure;
use crate::files;

/// A model whose shapes are known as far as they can be.
pub struct Loaded {
    /// The graph with shapes.
    pub graph: Graph,
    /// What its operators do to memory.
    pub table: OpTable,
    /// Which model it is.
    pub identity: ModelIdentity,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Milliseconds for reading and for shapes.
    pub time: (f64, f64),
}

/// Milliseconds since `start`.
pub fn since(start: Instant) -> f64 {
    // Microseconds are as fine as anybody reads them.
    (start.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

/// What a model file holds.
pub enum Model {
    /// A graph, and the name of the format that it was read from.
    Graph(Graph),
    /// The text of a memory graph.
    Memory(bytes::Bytes),
}

/// Opens a model's file.
pub fn open(args: &ModelArgs) -> Result<ModelFile, Failure> {
    let mut file = ModelFile::open(&args.model).map_err(Failure::bad)?;
    file.number = args.submodel;
    if file.number > 0 && file.models().is_ok_and(|names| names.is_empty()) {
        let path = args.model.display();
        let hint = "leave --submodel out";
        return Err(Failure::bad(format!("{path}: holds one model alone")).hint(hint));
    }
    Ok(file)
}

/// Reads what a file holds.
pub fn read(args: &ModelArgs) -> Result<Model, Failure> {
    let file = open(args)?;
    match file.kind {
        Kind::MemoryJson => Ok(Model::Memory(file.bytes)),
        _ => {
            let bad = |e| Failure::bad(format!("{}: {e}", args.model.display()));
            file.graph().map(Model::Graph).map_err(bad)
        }
    }
}

/// Waits for events that order nothing.
fn waits_in_vain(graph: &Graph, table: &OpTable) -> Option<String> {
    let mut all = tenure_graph::events::in_vain(graph, table);
    let (node, event) = all.next()?;
    let node = graph.node_label(node);
    let others = match all.count() {
        0 => String::new(),
        more => format!(", and {more} more like it"),
    };
    Some(format!(
        "node {node:?} waits for event {event}, which no node before it records: it orders nothing{others}"
    ))
}

/// Says which models a compiled file holds, where nobody has asked for one of several.
fn several_models(args: &ModelArgs, graph: &Graph) -> Option<String> {
    if graph.dialect != Dialect::Ge || args.submodel > 0 {
        return None;
    }
    let names = ModelFile::open(&args.model).ok()?.models().ok()?;
    if names.len() < 2 {
        return None;
    }
    let list: Vec<String> = (0..)
        .zip(&names)
        .map(|(k, name)| format!("{k} {name}"))
        .collect();
    Some(format!(
        "the file holds {} models, and this is of the first, the root; --submodel gives another: {}",
        names.len(),
        list.join(", ")
    ))
}

/// Reads a graph; a memory graph is none.
pub fn read_graph(args: &ModelArgs) -> Result<Graph, Failure> {
    match read(args)? {
        Model::Graph(graph) => Ok(graph),
        Model::Memory(_) => Err(Failure::bad(format!(
            "{}: is a memory graph: it has no nodes to look at",
            args.model.display()
        ))
        .hint("give the model that it was made of")),
    }
}

/// What is known of a model's inputs.
#[derive(Clone, Default)]
pub struct Given {
    /// Values of dimensions, as `--dim` takes them.
    pub dims: Vec<String>,
    /// Whether dimensions may stay without a value.
    pub may_stay_free: bool,
    /// Integers in inputs, by name.
    pub contents: BTreeMap<String, Vec<i64>>,
}

/// Gives a graph its shapes and verifies it.
pub fn load(graph: Graph, args: &ModelArgs, read_ms: f64) -> Result<Loaded, Failure> {
    let given = Given {
        dims: args.dim.clone(),
        may_stay_free: args.dynamic,
        ..Given::default()
    };
    load_for(graph, args, &given, read_ms)
}

/// The same for inputs that are known.
pub fn load_for(
    graph: Graph,
    args: &ModelArgs,
    given: &Given,
    read_ms: f64,
) -> Result<Loaded, Failure> {
    let path = args.model.display();
    let mut table = OpTable::builtin(graph.dialect);
    for file in &args.ops {
        let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", file.display()));
        let text = String::from_utf8(files::read(file)?)
            .map_err(|_| bad(&"is not UTF-8 text; a table of operators is TOML"))?;
        table.extend_toml(&text).map_err(|e| bad(&e))?;
    }
    let start = Instant::now();
    let format = graph.dialect.name();
    let fits = |()| verify_bodies(&graph, &table);
    tenure_graph::verify(&graph)
        .and_then(fits)
        .map_err(|broken| {
            let first = broken.first().map(ToString::to_string).unwrap_or_default();
            Failure::bad(format!("{path}: {first}"))
        })?;
    let sha256 = tenure_graph::identity(&graph);
    let bindings = Bindings::parse(&given.dims).map_err(Failure::bad)?;
    let shaped = infer_for(graph, &table, &bindings, &given.contents)
        .map_err(|e| Failure::bad(format!("{path}: {e}")))?;
    if !given.may_stay_free && !shaped.free.is_empty() {
        let names: Vec<String> = shaped.free.iter().map(ToString::to_string).collect();
        return Err(Failure::bad(format!(
            "{path}: these dimensions have no value: {}",
            names.join(", ")
        ))
        .hint(format!(
            "give each a value, as in {}, or leave them free with --dynamic",
            shaped.free[0].option("1")
        )));
    }
    let mut warnings: Vec<String> = shaped.warnings.iter().map(ToString::to_string).collect();
    let graph = shaped.graph;
    warnings.extend(json::misspelt_keys(&graph));
    warnings.extend(unknown_operators(&graph, &table));
    warnings.extend(several_models(args, &graph));
    warnings.extend(waits_in_vain(&graph, &table));
    let identity = ModelIdentity {
        path: path.to_string(),
        name: graph.name.clone(),
        format: format.to_owned(),
        nodes: operators(&graph, &table),
        values: graph.values.len(),
        sha256,
    };
    Ok(Loaded {
        graph,
        table,
        identity,
        warnings,
        time: (read_ms, since(start)),
    })
}

/// How many operators the model has, in all subgraphs: nodes that stand for inputs, initializers
/// and results are none.
fn operators(graph: &Graph, table: &OpTable) -> usize {
    let counts = |(id, node): (NodeId, &Node)| {
        let class = table.class(graph, id);
        !matches!(class, OpClass::Input | OpClass::Output) && *node.op != *CONST_OP
    };
    graph.nodes.iter().filter(|&n| counts(n)).count()
}

/// One warning that names the operators without a row, each once. What an ordinary operator of Graph
/// Engine does is written in the graph itself.
fn unknown_operators(graph: &Graph, table: &OpTable) -> Option<String> {
    if graph.dialect == Dialect::Ge {
        return None;
    }
    let mut names: Vec<String> = graph
        .nodes
        .values()
        .filter(|node| !table.has_row(&node.domain, &node.op))
        .map(|node| match &*node.domain {
            "" => node.op.to_string(),
            domain => format!("{domain}:{}", node.op),
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "no row says what these operators do to memory, so they are taken to read all inputs and to share nothing: {} (rows can be given with --ops)",
        names.join(", ")
    ))
}

/// The rules of a plan.
pub fn options(rules: &RuleArgs) -> PlanOptions {
    let placement = |place| match place {
        Place::Planned => Placement::Planned,
        Place::User => Placement::User,
    };
    PlanOptions {
        align: rules.align,
        inputs: placement(rules.inputs),
        outputs: placement(rules.outputs),
        keep_inputs: rules.keep_inputs,
        fold: rules.fold == Switch::On,
        sharing: match rules.sharing {
            Share::None => Sharing::None,
            Share::Views => Sharing::Views,
            Share::Full => Sharing::Full,
        },
        no_reuse: rules.no_reuse.clone(),
        sizes: match rules.sizes {
            SizeChoice::Raw => Sizes::Raw,
            SizeChoice::Padded => Sizes::Padded,
        },
        lent_inputs: rules.lend_inputs.clone().map(|lent| lent.0),
        lent_outputs: rules.lend_outputs.clone().map(|lent| lent.0),
    }
}

/// What options name and a model does not have: it is passed over.
pub fn unmet(graph: &Graph, options: &PlanOptions) -> Vec<String> {
    let root = &graph.subgraphs[graph.root];
    let outputs = root.output.map_or(0, |o| graph.nodes[o].inputs.len());
    let lists = [
        (
            "--lend-inputs",
            "input",
            &options.lent_inputs,
            root.inputs.len(),
        ),
        ("--lend-outputs", "output", &options.lent_outputs, outputs),
    ];
    let mut said = Vec::new();
    for (option, what, list, count) in lists {
        let is_there = |&position: &u32| usize::try_from(position).is_ok_and(|p| p < count);
        let missing = list.iter().flatten().filter(|position| !is_there(position));
        said.extend(missing.map(|position| {
            format!(
                "{option}: there is no {what} {position}, the model has {count}; it is passed over"
            )
        }));
    }
    let is_known = |name: &str| {
        let mut nodes = graph.nodes.values();
        name == ALL_NODES || nodes.any(|n| n.name == name || &*n.op == name)
    };
    let unknown = options.no_reuse.iter().filter(|name| !is_known(name));
    said.extend(unknown.map(|name| {
        format!("--no-reuse: no node and no operator is called {name:?}; it is passed over")
    }));
    said
}

/// The limits of the search.
pub fn config(search: &SearchArgs) -> Config {
    let cores = std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN);
    let base = match search.time_limit {
        Some(limit) => Config::with_time_limit(limit),
        None => Config::default(),
    };
    Config {
        strategy: search.strategy,
        threads: search.threads.unwrap_or(cores),
        ..base
    }
}

/// A graph as it is planned, and what was added to the model for that.
pub struct Prepared {
    /// The graph.
    pub graph: Graph,
    /// What was added.
    pub changes: Changes,
}

/// Adds to a model what a plan of it needs: order, and nodes that clear memory or store results
/// back in variables. Where the added order would change what readers of variables see, none is
/// added: the planner then makes copies.
pub fn prepared(
    graph: Graph,
    table: &OpTable,
    options: &PlanOptions,
    path: &Path,
) -> Result<Prepared, Failure> {
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", path.display()));
    let inputs = graph.subgraphs[graph.root].inputs.len();
    let is_kept = (0..inputs).any(|input| options.keeps_input(input));
    let options = tenure_guard::Options {
        // In planned memory an input is dead after its last reader, unless it is to be kept.
        inputs_donated: options.inputs == Placement::Planned && !is_kept,
        ..tenure_guard::Options::of(&graph)
    };
    let done = compile::before_a_plan(&graph, table, &options).map_err(|e| bad(&e))?;
    let Some(guarded) = done.graph else {
        let changes = Changes::default();
        return Ok(Prepared { graph, changes });
    };
    let mut changes = Changes::between(&graph, &guarded);
    let mut planned = changes.apply(&graph).map_err(|e| bad(&e))?;
    if refines(&graph, &planned, table).is_err() {
        let added: FxHashSet<String> = changes.added.iter().map(|a| a.name.clone()).collect();
        changes.waits.retain(|w| added.contains(&w.before));
        planned = changes.apply(&graph).map_err(|e| bad(&e))?;
        refines(&graph, &planned, table).map_err(Failure::internal)?;
    }
    Ok(Prepared {
        graph: planned,
        changes,
    })
}

/// The graph in the order that is asked for.
pub fn ordered(
    graph: Graph,
    table: &OpTable,
    options: &PlanOptions,
    rules: &RuleArgs,
) -> Result<Graph, PlanError> {
    match rules.order {
        OrderChoice::File => Ok(graph),
        OrderChoice::Auto => order::improve(graph, table, options),
    }
}

/// Checks a plan of a memory graph; gives back how many storages were looked at.
pub fn check_memory(graph: &MemoryGraph, plan: &PlanFile) -> Result<u64, Vec<MemoryViolation>> {
    let demands: Vec<Demand<'_>> = graph
        .allocates
        .iter()
        .map(|a| Demand {
            name: &a.name,
            bytes: a.bytes,
            align: a.align,
            life: a
                .life
                .iter()
                .map(|&[first, last]| Span { first, last })
                .collect(),
            placed: a.kind != AllocateKind::Caller,
        })
        .collect();
    tenure_check::check_memory(&demands, plan)
}
