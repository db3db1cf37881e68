//! A model that is to be run: read for the inputs that are given, planned as often as need be.

use std::time::Instant;

use tenure_check::{CheckedPlan, check};
use tenure_graph::changes::Changes;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::Bindings;
use tenure_graph::{Attr, Graph};
use tenure_plan::{PlanError, assign, memory, streams};
use tenure_runtime::Kernels;
use tenure_runtime::session::{Contents, Session};

use crate::args::{BenchArgs, Pooling};
use crate::exit::Failure;
use crate::feed::Range;
use crate::npy::Array;
use crate::pipeline::{self, Given, Loaded, config, since};
use crate::settle::{self, Settled};
use crate::ui::Ui;
use crate::{feed, search};

/// What one run is given.
pub struct Shot {
    /// Values of dimensions, and what is known of the inputs.
    pub given: Given,
    /// Contents of the inputs, in the order of the graph's.
    pub inputs: Vec<Array>,
}

/// What is run, and how it is planned.
pub struct Bench<'a> {
    /// The model with the shapes of the first run.
    pub loaded: Loaded,
    /// Contents of the inputs of the first run, in the order of the graph's.
    pub inputs: Vec<Array>,
    /// All runs after the first.
    pub further: Vec<Shot>,
    /// Values of dimensions that nobody has given, as `--dim` takes them.
    pub usual: Vec<String>,
    args: &'a BenchArgs,
    has_weights: bool,
    /// What the first run is given.
    pub given: Given,
    /// The model as it was read.
    base: Graph,
    ranges: Vec<Range>,
    pooling: Pooling,
}

impl<'a> Bench<'a> {
    /// Reads the model and its inputs. `also` are values of dimensions for one more run each.
    pub fn new(
        args: &'a BenchArgs,
        also: &[String],
        pooling: Pooling,
        ui: &Ui,
    ) -> Result<Self, Failure> {
        let BenchArgs { model, feed, .. } = args;
        let start = Instant::now();
        let mut base = pipeline::read_graph(model)?;
        let read = since(start);
        let (dims, ranges) = feed::ranges(&model.dim);
        let mut runs = feed::runs(feed::arrays(&base, feed)?)?;
        let mut dims_of = vec![dims.clone(); runs.len()];
        for text in also {
            runs.push(runs[0].clone());
            dims_of.push(feed::instead(&dims, text)?);
        }
        let mut usual: Vec<String> = Vec::new();
        let mut shots: Vec<(Given, _)> = Vec::with_capacity(runs.len());
        for (arrays, dims) in runs.into_iter().zip(&dims_of) {
            let mut given = feed::given(&mut base, dims, &ranges, &arrays)?;
            feed::within(&mut given, &ranges)?;
            for text in feed::usual(&base, &mut given)? {
                if !usual.contains(&text) {
                    usual.push(text);
                }
            }
            shots.push((given, arrays));
        }
        let mut shots = shots.into_iter().map(|(given, arrays)| {
            let inputs = feed::inputs(&base, &given, arrays, feed.seed)?;
            Ok(Shot { given, inputs })
        });
        let Some(Shot { given, inputs }) = shots.next().transpose()? else {
            return Err(Failure::bad("there is nothing to run"));
        };
        let further: Vec<Shot> = shots.collect::<Result<_, Failure>>()?;
        let first = match pooling {
            Pooling::Dynamic => Given {
                dims: dims.clone(),
                may_stay_free: true,
                ..Given::default()
            },
            Pooling::Planned | Pooling::Auto => given.clone(),
        };
        let loaded = pipeline::load_for(base.clone(), model, &first, read)?;
        for warning in &loaded.warnings {
            ui.warn(warning);
        }
        Ok(Bench {
            loaded,
            inputs,
            further,
            usual,
            args,
            has_weights: false,
            given,
            base,
            ranges,
            pooling,
        })
    }

    /// The model and the plans of its shapes, kept as long as the session.
    pub fn session(&mut self, options: &PlanOptions) -> Result<Session<'a>, Failure> {
        self.fetch()?;
        let table = self.loaded.table.clone();
        let (args, rules) = (self.args, options.clone());
        let prepare = move |graph: Graph| -> Result<Graph, String> {
            let prepared = pipeline::prepared(graph, &table, &rules, &args.model.model);
            let graph = prepared.map_err(|e| e.message)?.graph;
            let graph = pipeline::ordered(graph, &table, &rules, &args.rules);
            let path = args.model.model.display();
            let graph = graph.map_err(|e| format!("{path}: {e}"))?;
            Ok(streams::spread(graph, &table, &rules, args.rules.streams))
        };
        let config = config(&self.args.search);
        let table = &self.loaded.table;
        let session = Session::new(self.base.clone(), table, options.clone(), config);
        let session = session.with_preparation(prepare);
        if self.ranges.is_empty() || self.pooling == Pooling::Dynamic {
            return Ok(session);
        }
        // The first run's values stand for dimensions without a range.
        let is_ranged = |text: &&String| {
            let name = text.rsplit_once('=').map(|(name, _)| name.trim());
            !self.ranges.iter().any(|r| Some(&*r.name) == name)
        };
        let others = self.given.dims.iter().filter(is_ranged).cloned();
        let greatest = self.ranges.iter();
        let greatest = greatest.map(|r| format!("{}={}", r.name, r.greatest));
        let largest = Bindings::parse(others.chain(greatest)).map_err(Failure::bad)?;
        Ok(session.with_largest(largest))
    }

    /// What a session is asked for so that it can do a run.
    pub fn asked(&self, given: &Given) -> Result<(Bindings, Contents), Failure> {
        let (dims, contents) = match self.pooling {
            Pooling::Dynamic => (feed::ranges(&self.args.model.dim).0, Contents::new()),
            Pooling::Planned | Pooling::Auto => (given.dims.clone(), given.contents.clone()),
        };
        Ok((Bindings::parse(dims).map_err(Failure::bad)?, contents))
    }

    fn bad(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::bad(format!("{}: {error}", self.args.model.model.display()))
    }

    /// Makes the contents of weights that are in other files known.
    pub fn fetch(&mut self) -> Result<(), Failure> {
        if !self.has_weights {
            feed::fetch(&mut self.base, &self.args.feed, &self.args.model.model)?;
            // The same nodes, with shapes: their weights are there once.
            let nodes = self.loaded.graph.nodes.values_mut();
            for (node, base) in nodes.zip(self.base.nodes.values()) {
                if let Some(Attr::Tensor(tensor)) = base.attrs.get("value") {
                    node.attrs.set("value", Attr::Tensor(tensor.clone()));
                }
            }
            self.has_weights = true;
        }
        Ok(())
    }

    /// Gives values sizes that only the data decide, for the inputs that are given.
    pub fn settle(&mut self, kernels: &Kernels) -> Result<Vec<Settled>, Failure> {
        self.fetch()?;
        let Loaded { graph, table, .. } = &mut self.loaded;
        settle::settle(graph, table, kernels, &self.given, &self.inputs).map_err(|e| self.bad(&e))
    }

    /// The built-in kernels, and those of the user's libraries.
    pub fn kernels(&self) -> Result<Kernels, Failure> {
        let mut kernels = Kernels::builtin();
        for library in &self.args.feed.kernels {
            kernels.add_library(library).map_err(Failure::bad)?;
        }
        Ok(kernels)
    }

    /// The graph as it is planned, and what was added to the model's for that.
    pub fn prepared(&self, options: &PlanOptions) -> Result<(Graph, Changes), Failure> {
        let table = &self.loaded.table;
        let graph = self.loaded.graph.clone();
        let prepared = pipeline::prepared(graph, table, options, &self.args.model.model)?;
        let graph = pipeline::ordered(prepared.graph, table, options, &self.args.rules)
            .map_err(|e| self.bad(&e))?;
        let graph = streams::spread(graph, table, options, self.args.rules.streams);
        Ok((graph, prepared.changes))
    }

    /// Plans a graph and proves the plan.
    pub fn plan(
        &self,
        graph: &Graph,
        options: &PlanOptions,
        ui: &Ui,
    ) -> Result<CheckedPlan, Failure> {
        let table = &self.loaded.table;
        let found = memory(graph, table, options).map_err(|e| self.bad(&e))?;
        let config = config(&self.args.search);
        let planned = search::watched(ui, |watch| assign(found, options, &config, watch));
        let plan = planned.map_err(|e: PlanError| self.bad(&e))?.plan;
        check(graph, table, &plan).map_err(|violations| {
            let first = violations.first().map(ToString::to_string);
            let (path, first) = (self.args.model.model.display(), first.unwrap_or_default());
            Failure::internal(format!("the plan for {path} fails its own check: {first}"))
        })
    }
}
