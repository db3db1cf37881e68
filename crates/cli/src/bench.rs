//! A model that is to be run: read for the inputs that are given, planned as often as need be.

use std::time::Instant;

use tenure_check::{CheckedPlan, check};
use tenure_graph::Graph;
use tenure_graph::changes::Changes;
use tenure_graph::plan::PlanOptions;
use tenure_plan::{PlanError, assign, memory, streams};
use tenure_runtime::Kernels;

use crate::args::BenchArgs;
use crate::exit::Failure;
use crate::npy::Array;
use crate::pipeline::{self, Given, Loaded, config, since};
use crate::settle::{self, Settled};
use crate::ui::Ui;
use crate::{feed, search};

/// What is run, and how it is planned.
pub struct Bench<'a> {
    pub loaded: Loaded,
    /// Contents of the inputs, in the order of the graph's.
    pub inputs: Vec<Array>,
    args: &'a BenchArgs,
    has_weights: bool,
    given: Given,
}

impl<'a> Bench<'a> {
    /// Reads the model and its inputs.
    pub fn new(args: &'a BenchArgs, ui: &Ui) -> Result<Self, Failure> {
        let BenchArgs { model, feed, .. } = args;
        let start = Instant::now();
        let mut graph = pipeline::read_graph(model)?;
        let read = since(start);
        let arrays = feed::arrays(&graph, feed)?;
        let given = feed::given(&mut graph, model, &arrays)?;
        let loaded = pipeline::load_for(graph, model, &given, read)?;
        for warning in &loaded.warnings {
            ui.warn(warning);
        }
        let inputs = feed::inputs(&loaded.graph, arrays, feed.seed)?;
        Ok(Bench {
            loaded,
            inputs,
            args,
            has_weights: false,
            given,
        })
    }

    fn bad(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::bad(format!("{}: {error}", self.args.model.model.display()))
    }

    /// Makes the contents of weights that are in other files known.
    pub fn fetch(&mut self) -> Result<(), Failure> {
        if !self.has_weights {
            feed::fetch(
                &mut self.loaded.graph,
                &self.args.feed,
                &self.args.model.model,
            )?;
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

    /// Plans the model with its weights, and proves the plan.
    pub fn planned(
        &mut self,
        options: &PlanOptions,
        ui: &Ui,
    ) -> Result<(Graph, CheckedPlan), Failure> {
        self.fetch()?;
        let (graph, _) = self.prepared(options)?;
        let plan = self.plan(&graph, options, ui)?;
        Ok((graph, plan))
    }
}
