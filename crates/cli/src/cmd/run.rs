//! `tenure run`: executes a model inside its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use serde::Serialize;
use tenure_check::{CheckedPlan, check};
use tenure_formats::weights::Weights;
use tenure_graph::plan::{PlanOptions, Sharing};
use tenure_graph::{Attr, DType, Dim, Graph, Shape, TensorData};
use tenure_plan::{assign, memory, streams};
use tenure_runtime::{Kernels, Layout, Program, RuntimeError};

use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::npy::Array;
use crate::pipeline::{self, Given, Loaded, config, options, since};
use crate::ui::Ui;
use crate::{files, search};

/// Contents of inputs up to so many elements take part in shape inference.
const KNOWN_UP_TO: usize = 256;

/// Runs the command.
pub fn run(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let start = Instant::now();
    let mut graph = pipeline::read_graph(&args.model)?;
    let read = since(start);
    let path = args.model.model.display().to_string();
    let arrays = arrays(&graph, args)?;
    let given = given(&mut graph, args, &arrays)?;
    let loaded = pipeline::load_for(graph, &args.model, &given, read)?;
    for warning in &loaded.warnings {
        ui.warn(warning);
    }
    let mut bench = Bench::new(loaded, args)?;
    let inputs = inputs(&bench.loaded.graph, arrays, args.seed)?;
    let options = options(&args.rules);
    let mut program = bench.program(&options, Layout::Planned, ui)?;
    let fail = |e: RuntimeError| Failure::bad(format!("{path}: {e}"));
    let bytes: Vec<&[u8]> = inputs.iter().map(|(_, a)| &a.bytes[..]).collect();
    let start = Instant::now();
    program.run(&bytes).map_err(fail)?;
    let mut times = vec![since(start)];
    for _ in 0..args.repeat.map_or(0, std::num::NonZero::get) {
        let start = Instant::now();
        program.run(&bytes).map_err(fail)?;
        times.push(since(start));
    }
    let outputs = outputs(&bench.loaded.graph, &program);
    let same = if args.verify {
        let apart = PlanOptions {
            sharing: Sharing::None,
            fold: false,
            ..options
        };
        let mut apart = bench.program(&apart, Layout::Guarded { zone: 0 }, ui)?;
        apart.run(&bytes).map_err(fail)?;
        Some(differences(&program, &apart))
    } else {
        None
    };
    if let Some(folder) = &args.output_dir {
        save(folder, &outputs)?;
    }
    let answer = Answer {
        arena: bench.arena,
        beside: program.beside(),
        outputs: outputs.iter().map(Shown::of).collect(),
        verified: same.as_ref().map(Vec::is_empty),
        differences: same.unwrap_or_default(),
        time_ms: args.repeat.map(|_| Times::of(&times)),
    };
    answer.show(args, ui)
}

/// What is run, and how it is planned.
struct Bench<'a> {
    loaded: Loaded,
    args: &'a RunArgs,
    weights: bool,
    arena: u64,
}

impl<'a> Bench<'a> {
    fn new(loaded: Loaded, args: &'a RunArgs) -> Result<Self, Failure> {
        Ok(Bench {
            loaded,
            args,
            weights: false,
            arena: 0,
        })
    }

    /// Plans the model, proves the plan, and makes it ready to run.
    fn program(
        &mut self,
        options: &PlanOptions,
        layout: Layout,
        ui: &Ui,
    ) -> Result<Program, Failure> {
        let path = self.args.model.model.display().to_string();
        let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{path}: {e}"));
        if !self.weights {
            fetch(&mut self.loaded.graph, self.args)?;
            self.weights = true;
        }
        let table = &self.loaded.table;
        let graph = self.loaded.graph.clone();
        let prepared = pipeline::prepared(graph, table, options, &self.args.model.model)?;
        let graph = pipeline::ordered(prepared.graph, table, options, &self.args.rules)
            .map_err(|e| bad(&e))?;
        let graph = streams::spread(graph, table, options, self.args.rules.streams);
        let found = memory(&graph, table, options).map_err(|e| bad(&e))?;
        let config = config(&self.args.search);
        let planned = search::watched(ui, |watch| assign(found, options, &config, watch));
        let plan = planned.map_err(|e| bad(&e))?.plan;
        if layout == Layout::Planned {
            self.arena = plan.arenas.iter().map(|a| a.size).sum();
        }
        let checked: CheckedPlan = check(&graph, table, &plan).map_err(|violations| {
            let first = violations.first().map(ToString::to_string);
            let first = first.unwrap_or_default();
            Failure::internal(format!("the plan for {path} fails its own check: {first}"))
        })?;
        let kernels = Kernels::builtin();
        Program::new(&graph, table, &checked, &kernels, layout).map_err(|e| bad(&e))
    }
}

/// Maps the contents of constants that are in other files.
fn fetch(graph: &mut Graph, args: &RunArgs) -> Result<(), Failure> {
    let model = &args.model.model;
    let mut weights = Weights::beside(model);
    let mut rng = Rng::with_seed(!args.seed);
    for node in graph.nodes.values_mut() {
        let Some(Attr::Tensor(tensor)) = node.attrs.get("value") else {
            continue;
        };
        let TensorData::External { location, .. } = &tensor.data else {
            continue;
        };
        let is_missing = || {
            model
                .parent()
                .is_some_and(|folder| !folder.join(location).exists())
        };
        let bytes = if args.random_weights && is_missing() {
            // Small, and of either sign, so that deep models stay in range.
            random(
                &node.name,
                tensor.dtype,
                &tensor.shape,
                [-0.05, 0.05],
                &mut rng,
            )?
            .bytes
            .into()
        } else {
            weights.contents(tensor).map_err(|e| {
                Failure::bad(format!("{}: {:?}: {e}", model.display(), node.name))
                    .hint("--random-weights runs a model without its weights")
            })?
        };
        let mut here = tensor.as_ref().clone();
        here.data = TensorData::Bytes(bytes);
        node.attrs.set("value", Attr::Tensor(Arc::new(here)));
    }
    Ok(())
}

/// The graph's inputs: name, type and shape.
fn formals(graph: &Graph) -> impl Iterator<Item = &tenure_graph::Value> {
    let inputs = graph.subgraphs[graph.root].inputs.iter();
    inputs.filter_map(|&node| Some(&graph.values[graph.nodes[node].output(0)?]))
}

/// What `--input` gives, by the name of the input.
fn arrays(graph: &Graph, args: &RunArgs) -> Result<BTreeMap<String, Array>, Failure> {
    let mut arrays = BTreeMap::new();
    for text in &args.input {
        // A name may hold a `=`, and so may a path: the longest name that there is wins.
        let names: Vec<&str> = formals(graph).map(|v| &*v.name).collect();
        let splits = text
            .match_indices('=')
            .map(|(at, _)| (&text[..at], &text[at + 1..]));
        let Some((name, file)) = splits.clone().rfind(|(n, _)| names.contains(n)) else {
            let known = names.join(", ");
            return Err(if splits.count() == 0 {
                Failure::bad(format!("--input {text:?}: expected NAME=FILE.npy"))
            } else {
                Failure::bad(format!("--input {text:?}: the model has no such input"))
            }
            .hint(format!("its inputs are {known}")));
        };
        let value = formals(graph).find(|v| v.name == name);
        let dtype = value.map_or(DType::Unknown, |v| v.dtype);
        let bytes = files::read(Path::new(file))?;
        let array = Array::read(&bytes, dtype)
            .map_err(|e| Failure::bad(format!("{file}: cannot be input {name:?}: {e}")))?;
        if arrays.insert(name.to_owned(), array).is_some() {
            return Err(Failure::bad(format!("--input {name}: is given twice")));
        }
    }
    Ok(arrays)
}

/// What the given inputs say of dimensions and contents. Inputs whose rank is not known take the
/// shape that is given.
fn given(
    graph: &mut Graph,
    args: &RunArgs,
    arrays: &BTreeMap<String, Array>,
) -> Result<Given, Failure> {
    let mut given = Given::default();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let set: BTreeSet<String> = args
        .model
        .dim
        .iter()
        .filter_map(|text| Some(text.rsplit_once('=')?.0.trim().to_owned()))
        .collect();
    for (name, array) in arrays {
        let Some(value) = graph.values.values_mut().find(|v| v.name == *name) else {
            continue;
        };
        let Some(shape) = &value.shape else {
            value.shape = Some(Shape::of(&array.dims));
            continue;
        };
        let fits = shape.0.len() == array.dims.len()
            && (shape.0.iter().zip(&array.dims)).all(|(d, &n)| d.known().is_none_or(|k| k == n));
        if !fits {
            return Err(Failure::bad(format!(
                "input {name:?} has shape {shape}, and {:?} is given",
                array.dims
            )));
        }
        for (axis, (dim, &n)) in shape.0.iter().zip(&array.dims).enumerate() {
            if let Dim::Known(_) = dim {
                continue;
            }
            let key = match dim {
                Dim::Formula(_) => dim.to_string(),
                _ => String::new(),
            };
            let by_axis = format!("{name}@{axis}");
            if set.contains(&by_axis) || set.contains(&key) {
                continue;
            }
            // Exporters use one name for dimensions that differ: then each axis has its own.
            if !key.is_empty() && names.get(&key).is_none_or(|&first| first == n) {
                names.insert(key, n);
            } else {
                given.dims.push(format!("{by_axis}={n}"));
            }
        }
    }
    given
        .dims
        .extend(names.iter().map(|(name, n)| format!("{name}={n}")));
    for (name, array) in arrays {
        if let Some(items) = integers(array) {
            given.contents.insert(name.clone(), items);
        }
    }
    Ok(given)
}

/// The integers in a small array of integers or truth values.
fn integers(array: &Array) -> Option<Vec<i64>> {
    let tensor = tenure_graph::Tensor {
        dtype: array.dtype,
        shape: array.dims.clone(),
        data: TensorData::Bytes(array.bytes.clone().into()),
    };
    tensor.to_ints(u64::try_from(KNOWN_UP_TO).unwrap_or(0))
}

/// Contents of all inputs, in the order of the graph's: those that are given, and random ones.
fn inputs(
    graph: &Graph,
    mut arrays: BTreeMap<String, Array>,
    seed: u64,
) -> Result<Vec<(String, Array)>, Failure> {
    let mut rng = Rng::with_seed(seed);
    let mut inputs = Vec::new();
    for value in formals(graph) {
        let array = match arrays.remove(&value.name) {
            Some(array) => array,
            None => {
                let shape = value.shape.as_ref().and_then(|s| s.known());
                let dims = shape.ok_or_else(|| {
                    Failure::bad(format!("input {:?} has no known shape", value.name))
                        .hint(format!("give it with --input {}=FILE.npy", value.name))
                })?;
                random(&value.name, value.dtype, &dims, [0.0, 1.0], &mut rng)?
            }
        };
        inputs.push((value.name.clone(), array));
    }
    Ok(inputs)
}

/// Numbers of a range, and whole ones that are 0 or 1, which every table has a row for.
fn random(
    name: &str,
    dtype: DType,
    dims: &[u64],
    [low, high]: [f64; 2],
    rng: &mut Rng,
) -> Result<Array, Failure> {
    let no = || {
        Failure::bad(format!(
            "{name:?}: there are no random numbers of type {dtype}"
        ))
        .hint(format!("give it with --input {name}=FILE.npy"))
    };
    let elements = dims.iter().product::<u64>();
    let is_float = matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    let mut bytes = Vec::new();
    for _ in 0..elements {
        let number = if is_float {
            low + (high - low) * rng.f64()
        } else {
            f64::from(rng.u8(..2))
        };
        let element = tenure_runtime::numbers::encode(dtype, [number]);
        bytes.extend(element.ok_or_else(no)?);
    }
    let dims = dims.to_vec();
    Ok(Array { dtype, dims, bytes })
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

/// What the command says.
#[derive(Serialize)]
struct Answer {
    /// Bytes of planned memory.
    arena: u64,
    /// Bytes that kernels need beside it.
    beside: u64,
    outputs: Vec<Shown>,
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
