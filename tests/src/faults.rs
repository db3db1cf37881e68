//! Faults that nodes of real models are made to have, and whether they are found: writes out of
//! bounds by the guarded run, and by bisecting where they change a result; memory that is used for
//! too long by bisecting.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use tenure_check::{CheckedPlan, check};
use tenure_formats::ModelFile;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Phase, Plan, PlanOptions, Sharing};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{Attr, DType, Graph, NodeId, TensorData};
use tenure_guard::{Options, compile};
use tenure_plan::Config;
use tenure_runtime::bisect::{Finding, Kind, Own, Search, bisect};
use tenure_runtime::numbers::encode;
use tenure_runtime::sanitize::Sanitizer;
use tenure_runtime::{Fault, Kernels};

/// Unused bytes around what is moved apart; no fault reaches further.
const GAP: usize = 4096;

/// Faults that are tried for each that shows, before a model is given up.
const TRIES: u32 = 40;

/// How many faults were made, and what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes out of bounds.
    pub beyond: u32,
    /// Those that the guarded run puts at the right node.
    pub seen: u32,
    /// Those that change a result.
    pub beyond_shown: u32,
    /// Those of them that bisecting puts at the right node.
    pub beyond_found: u32,
    /// Uses of memory for too long, all of which change a result.
    pub late: u32,
    /// Those that bisecting puts at the right node.
    pub late_found: u32,
    /// Runs that bisecting took.
    pub runs: u32,
}

impl Tally {
    /// Takes another one's figures in.
    pub fn add(&mut self, other: Tally) {
        self.beyond += other.beyond;
        self.seen += other.seen;
        self.beyond_shown += other.beyond_shown;
        self.beyond_found += other.beyond_found;
        self.late += other.late;
        self.late_found += other.late_found;
        self.runs += other.runs;
    }
}

/// A model that is ready to be planned, with random numbers for what is not in its file.
pub struct Model {
    graph: Graph,
    table: OpTable,
    inputs: Vec<Vec<u8>>,
    plan: CheckedPlan,
    alone: CheckedPlan,
}

/// Random numbers that deep models bear.
fn random(dtype: DType, elements: u64, rng: &mut Rng) -> Result<Vec<u8>, String> {
    let is_float = matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    let mut number = || match is_float {
        true => rng.f64() * 0.2 - 0.1,
        false => f64::from(rng.u8(..2)),
    };
    let numbers = (0..elements).map(|_| number());
    encode(dtype, numbers).ok_or_else(|| format!("there are no random numbers of type {dtype}"))
}

impl Model {
    /// Reads a model and plans it twice: as usual, and with nothing shared.
    ///
    /// # Errors
    /// What a file, its shapes or its plan have against that.
    pub fn read(path: &Path, dims: &[String]) -> Result<Self, String> {
        let bad = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let file = ModelFile::open(path).map_err(|e| bad(&e))?;
        Self::new(file.graph().map_err(|e| bad(&e))?, dims).map_err(|e| bad(&e))
    }

    /// The same for a graph.
    ///
    /// # Errors
    /// What its shapes or its plan have against that.
    pub fn new(graph: Graph, dims: &[String]) -> Result<Self, String> {
        let bad = |e: &dyn std::fmt::Display| e.to_string();
        let table = OpTable::builtin(graph.dialect);
        let bindings = Bindings::parse(dims).map_err(|e| bad(&e))?;
        let mut graph = infer(graph, &table, &bindings).map_err(|e| bad(&e))?.graph;
        let mut rng = Rng::with_seed(1);
        for node in graph.nodes.values_mut() {
            let Some(Attr::Tensor(tensor)) = node.attrs.get("value") else {
                continue;
            };
            if matches!(tensor.data, TensorData::External { .. }) {
                let mut here = tensor.as_ref().clone();
                let bytes = random(here.dtype, here.shape.iter().product(), &mut rng)?;
                here.data = TensorData::Bytes(bytes.into());
                node.attrs.set("value", Attr::Tensor(Arc::new(here)));
            }
        }
        let done = compile::before_a_plan(&graph, &table, &Options::of(&graph));
        let graph = done.map_err(|e| bad(&e))?.graph(&graph).clone();
        let inputs = &graph.subgraphs[graph.root].inputs;
        let inputs: Result<Vec<Vec<u8>>, String> = (inputs.iter())
            .filter_map(|&n| graph.nodes[n].output(0))
            .map(|value| {
                let value = &graph.values[value];
                let elements = value.shape.as_ref().and_then(tenure_graph::Shape::elements);
                let elements = elements.ok_or("an input has no known shape")?;
                random(value.dtype, elements, &mut rng)
            })
            .collect();
        let planned = |options: &PlanOptions| {
            let plan = tenure_plan::plan(&graph, &table, options, &Config::default());
            let plan = plan.map_err(|e| bad(&e))?.plan;
            check(&graph, &table, &plan).map_err(|v| bad(&v[0]))
        };
        let plan = planned(&PlanOptions::default())?;
        let alone = planned(&PlanOptions {
            sharing: Sharing::None,
            ..PlanOptions::default()
        })?;
        Ok(Model {
            inputs: inputs?,
            graph,
            table,
            plan,
            alone,
        })
    }

    /// Nodes that compute something in the root graph.
    fn candidates(&self) -> Vec<NodeId> {
        let steps = self.plan.plan().steps.iter();
        let root = self.graph.root;
        let computes = |n: &NodeId| {
            let node = &self.graph.nodes[*n];
            let is_view = self.table.effects(&self.graph, *n).view_of(0).is_some();
            node.subgraph == root && node.output(0).is_some() && !is_view
        };
        let runs = steps.filter(|s| s.phase == Phase::Run);
        runs.map(|s| s.node).filter(computes).collect()
    }

    /// Makes `count` writes out of bounds and `count` uses of memory for too long, and looks for each.
    ///
    /// # Errors
    /// A fault that is not found, or is put at another node; what the runtime says.
    pub fn faults(&self, count: u32, seed: u64) -> Result<Tally, String> {
        let mut rng = Rng::with_seed(seed);
        let nodes = self.candidates();
        let mut tally = Tally::default();
        for _ in 0..count {
            let fault = self.beyond(&nodes, &mut rng);
            self.look_for_write(&fault, &mut tally)?;
        }
        for _ in 0..count.saturating_mul(TRIES) {
            if tally.late >= count {
                break;
            }
            let fault = self.late(&nodes, &mut rng);
            self.look_for_late(&fault, &mut tally)?;
        }
        Ok(tally)
    }

    fn any(&self, nodes: &[NodeId], rng: &mut Rng) -> Fault {
        let node = rng.choice(nodes).map(|&n| self.graph.node_label(n));
        Fault {
            node: node.unwrap_or_default(),
            ..Fault::default()
        }
    }

    fn beyond(&self, nodes: &[NodeId], rng: &mut Rng) -> Fault {
        let far = [1, 4, 64, 1000, GAP][rng.usize(..5)];
        let behind = rng.u8(..3) > 0;
        Fault {
            bytes_past_end: if behind { far } else { 0 },
            bytes_before_start: if behind { 0 } else { far },
            ..self.any(nodes, rng)
        }
    }

    fn late(&self, nodes: &[NodeId], rng: &mut Rng) -> Fault {
        let steps = rng.u32(1..6);
        let writes = rng.bool();
        Fault {
            writes_late: if writes { steps } else { 0 },
            reads_late: if writes { 0 } else { steps },
            ..self.any(nodes, rng)
        }
    }

    fn look_for_write(&self, fault: &Fault, tally: &mut Tally) -> Result<(), String> {
        let kernels = Kernels::builtin();
        let faults = std::slice::from_ref(fault);
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let (graph, table) = (&self.graph, &self.table);
        let guarded = Sanitizer::new(graph, table, &self.plan, &kernels, faults);
        let found = guarded.and_then(|mut s| s.run(&inputs));
        tally.beyond += 1;
        match found.map_err(|e| e.to_string())? {
            Some(bad) if bad.name == fault.node => tally.seen += 1,
            other => {
                let other = other.map(|bad| bad.to_string());
                return Err(format!("{fault:?}: the guarded run says {other:?}"));
            }
        }
        if let Some(finding) = self.bisected(fault, tally)? {
            tally.beyond_shown += 1;
            self.judge(fault, &finding, |kind| kind == Kind::OutOfBounds)?;
            tally.beyond_found += 1;
        }
        Ok(())
    }

    fn look_for_late(&self, fault: &Fault, tally: &mut Tally) -> Result<(), String> {
        if let Some(finding) = self.bisected(fault, tally)? {
            tally.late += 1;
            self.judge(fault, &finding, |kind| kind != Kind::OutOfBounds)?;
            tally.late_found += 1;
        }
        Ok(())
    }

    fn judge(
        &self,
        fault: &Fault,
        finding: &Finding,
        fits: impl Fn(Kind) -> bool,
    ) -> Result<(), String> {
        if let Finding::Culprit(c) = finding
            && self.graph.node_label(c.node) == fault.node
            && fits(c.kind)
        {
            return Ok(());
        }
        let name = |n: NodeId| self.graph.node_label(n);
        Err(match finding {
            Finding::Culprit(c) => {
                let or: Vec<String> = c.or.iter().map(|&n| name(n)).collect();
                format!(
                    "{fault:?}: {:?} of {:?}, or of {or:?}",
                    c.kind,
                    name(c.node)
                )
            }
            other => format!("{fault:?}: {other:?}"),
        })
    }

    /// What bisecting finds; `None` where the fault does not show.
    fn bisected(&self, fault: &Fault, tally: &mut Tally) -> Result<Option<Finding>, String> {
        let kernels = Kernels::builtin();
        let faults = std::slice::from_ref(fault);
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let (graph, table) = (&self.graph, &self.table);
        let engine = Own::new(graph, table, &self.alone, &kernels, faults, &inputs, GAP);
        let mut engine = engine.map_err(|e| e.to_string())?;
        let replan = |alone: &[String]| -> Option<Plan> {
            let options = PlanOptions {
                no_reuse: alone.to_vec(),
                ..PlanOptions::default()
            };
            let planned = tenure_plan::plan(graph, table, &options, &Config::default());
            planned.ok().map(|p| p.plan)
        };
        let search = Search {
            graph,
            table,
            plan: &self.plan,
            replan: &replan,
            suspects: &[],
            runs: 1,
            gap: GAP as u64,
        };
        let report = bisect(&search, &mut engine).map_err(|e| e.to_string())?;
        tally.runs += report.runs;
        Ok((report.finding != Finding::Right).then_some(report.finding))
    }
}
