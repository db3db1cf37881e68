//! A model with free dimensions, planned anew for each shape that comes along, and kept.
//!
//! The graph keeps its formulas. For values of its dimensions the sizes follow, the model is planned
//! for them, and the plan is proven by the checker, as each plan is; that takes milliseconds, and what
//! was planned last is kept. With a *largest* shape, there is one arena for all: the plan for the
//! largest shape is made once, and for a smaller one its offsets stay where they are, while sizes,
//! views and what lies one behind the other are those of the smaller shape ([`fit`](crate::fit)). The
//! checker has the last word on that, too: where such a plan does not pass, the shape is planned on
//! its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_check::{CheckedPlan, check};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::{Bindings, ShapeError, ShapeWarning, infer_for};
use tenure_graph::{Graph, ValueId};
use tenure_plan::{Config, PlanError, Watch, assign, memory};

use crate::fit::{NoFit, fit};

/// Integers in inputs of the model, by name, as far as they are known before the run.
pub type Contents = BTreeMap<String, Vec<i64>>;

/// What is done with a graph before it is planned: order is added, or nodes are put on streams.
pub type Prepare<'a> = dyn Fn(Graph) -> Result<Graph, String> + 'a;

/// Why a shape cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The dimensions are wrong.
    #[error(transparent)]
    Shapes(#[from] ShapeError),
    /// What is done before the plan has failed.
    #[error("{0}")]
    Preparation(String),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan is wrong, which is a mistake of the planner.
    #[error("the plan fails its own check: {0}")]
    Check(String),
}

/// Where a plan comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was made for this shape.
    Planned,
    /// It is the plan for the largest shape, whose offsets stay.
    Fitted,
    /// It was made for this shape, as the plan for the largest one cannot hold it.
    Apart(NoFit),
}

/// A model planned for one shape.
#[derive(Clone, Debug)]
pub struct Shaped {
    /// The graph that was planned, with this shape.
    pub graph: Graph,
    /// Its plan.
    pub plan: CheckedPlan,
    /// Where that comes from.
    pub origin: Origin,
    /// What looked wrong when the shapes were inferred.
    pub warnings: Vec<ShapeWarning>,
}

/// What was asked for.
type Key = (Bindings, Option<Contents>);

/// A model with free dimensions, and its plans for the shapes that were asked for last.
///
/// ```
/// use tenure_graph::effects::OpTable;
/// use tenure_graph::plan::PlanOptions;
/// use tenure_graph::shapes::Bindings;
/// use tenure_graph::{DType, Dialect, Dim, Graph, Shape};
/// use tenure_plan::{Config, Watch};
/// use tenure_runtime::session::{Contents, Session};
///
/// let mut graph = Graph::new("g", Dialect::Onnx, "main");
/// let shape = Shape::from_iter([Dim::parse("n"), Dim::Known(8)]);
/// let x = graph.add_input(graph.root, "x", DType::F32, Some(shape));
/// let relu = graph.add_node(graph.root, "relu", "Relu");
/// graph.nodes[relu].inputs.push(Some(x));
/// let y = graph.add_output(relu, "y", DType::F32, None);
/// graph.add_results(graph.root, "results", [Some(y)]);
///
/// let table = OpTable::builtin(Dialect::Onnx);
/// let mut session = Session::new(graph, &table, PlanOptions::default(), Config::default());
/// let watch = Watch::default();
/// for (n, arena) in [(2, 64), (64, 2048), (2, 64)] {
///     let shape = Bindings::parse([format!("n={n}")])?;
///     let shaped = session.plan(&shape, &Contents::new(), &watch)?;
///     assert_eq!(shaped.plan.plan().arenas[0].size, arena);
/// }
/// assert_eq!(session.planned(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<'a> {
    graph: Graph,
    table: OpTable,
    options: PlanOptions,
    config: Config,
    prepare: Option<Box<Prepare<'a>>>,
    largest: Option<Bindings>,
    most: usize,
    /// The plan for the largest shape, once it was needed.
    upper: Option<Arc<Shaped>>,
    /// What was asked for last comes first.
    kept: Vec<(Key, Arc<Shaped>)>,
    planned: u64,
}

/// Shapes whose plans are kept, unless it is said otherwise.
const MOST_KEPT: usize = 16;

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Session");
        out.field("kept", &self.kept.len())
            .field("planned", &self.planned);
        out.finish_non_exhaustive()
    }
}

impl<'a> Session<'a> {
    /// A session for a model, whose graph is verified.
    #[must_use]
    pub fn new(graph: Graph, table: &OpTable, options: PlanOptions, config: Config) -> Self {
        Session {
            graph,
            table: table.clone(),
            options,
            config,
            prepare: None,
            largest: None,
            most: MOST_KEPT,
            upper: None,
            kept: Vec::new(),
            planned: 0,
        }
    }

    /// The same, with something that is done with each graph before it is planned. It must not
    /// depend on sizes in what it adds where there is a [largest](Session::with_largest) shape.
    #[must_use]
    pub fn with_preparation(self, prepare: impl Fn(Graph) -> Result<Graph, String> + 'a) -> Self {
        Session {
            prepare: Some(Box::new(prepare)),
            ..self
        }
    }

    /// The same, with one arena for all shapes up to this one.
    #[must_use]
    pub fn with_largest(self, largest: Bindings) -> Self {
        Session {
            largest: Some(largest),
            ..self
        }
    }

    /// The same, with at most so many plans kept, at least one.
    #[must_use]
    pub fn with_most_kept(self, most: usize) -> Self {
        Session {
            most: most.max(1),
            ..self
        }
    }

    /// Plans that were made or fitted, all in all.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// The plan for values of the free dimensions: the one that was kept, or a new one. Contents of
    /// inputs count where sizes depend on them, and nowhere else.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn plan(
        &mut self,
        bindings: &Bindings,
        contents: &Contents,
        watch: &Watch<'_>,
    ) -> Result<Arc<Shaped>, SessionError> {
        for with_contents in [None, Some(contents)] {
            let asked = |key: &Key| key.0 == *bindings && key.1.as_ref() == with_contents;
            if let Some(at) = self.kept.iter().position(|(key, _)| asked(key)) {
                let kept = self.kept.remove(at);
                self.kept.insert(0, kept);
                return Ok(Arc::clone(&self.kept[0].1));
            }
        }
        let (shapes, warnings, by_contents) = self.shapes(bindings, contents)?;
        let shaped = Arc::new(self.make(shapes, warnings, watch)?);
        let key = (bindings.clone(), by_contents.then(|| contents.clone()));
        self.kept.insert(0, (key, Arc::clone(&shaped)));
        self.kept.truncate(self.most);
        self.planned += 1;
        Ok(shaped)
    }

    /// The graph with shapes, and whether they hold for these contents alone.
    fn shapes(
        &self,
        bindings: &Bindings,
        contents: &Contents,
    ) -> Result<(Graph, Vec<ShapeWarning>, bool), SessionError> {
        let infer =
            |contents: &Contents| infer_for(self.graph.clone(), &self.table, bindings, contents);
        let plain = infer(&Contents::new())?;
        let open = unsized_values(&plain.graph);
        if open == 0 || contents.is_empty() {
            return Ok((plain.graph, plain.warnings, false));
        }
        let known = infer(contents)?;
        if unsized_values(&known.graph) < open {
            Ok((known.graph, known.warnings, true))
        } else {
            Ok((plain.graph, plain.warnings, false))
        }
    }

    fn make(
        &mut self,
        shapes: Graph,
        warnings: Vec<ShapeWarning>,
        watch: &Watch<'_>,
    ) -> Result<Shaped, SessionError> {
        let graph = self.prepared(shapes)?;
        let mut origin = Origin::Planned;
        if let Some(largest) = self.largest.clone() {
            let upper = self.upper(&largest, watch)?;
            match fit(&upper.graph, upper.plan.plan(), &graph, &self.table) {
                Ok(plan) => {
                    return Ok(Shaped {
                        graph,
                        plan,
                        origin: Origin::Fitted,
                        warnings,
                    });
                }
                Err(reason) => origin = Origin::Apart(reason),
            }
        }
        let plan = self.planned_for(&graph, watch)?;
        Ok(Shaped {
            graph,
            plan,
            origin,
            warnings,
        })
    }

    fn prepared(&self, graph: Graph) -> Result<Graph, SessionError> {
        match &self.prepare {
            Some(prepare) => prepare(graph).map_err(SessionError::Preparation),
            None => Ok(graph),
        }
    }

    fn planned_for(&self, graph: &Graph, watch: &Watch<'_>) -> Result<CheckedPlan, SessionError> {
        let found = memory(graph, &self.table, &self.options)?;
        let plan = assign(found, &self.options, &self.config, watch)?.plan;
        check(graph, &self.table, &plan).map_err(|violations| {
            let first = violations.first().map(ToString::to_string);
            SessionError::Check(first.unwrap_or_default())
        })
    }

    /// The plan for the largest shape.
    fn upper(
        &mut self,
        largest: &Bindings,
        watch: &Watch<'_>,
    ) -> Result<Arc<Shaped>, SessionError> {
        if let Some(upper) = &self.upper {
            return Ok(Arc::clone(upper));
        }
        let shaped = infer_for(self.graph.clone(), &self.table, largest, &Contents::new())?;
        let graph = self.prepared(shaped.graph)?;
        let plan = self.planned_for(&graph, watch)?;
        let upper = Arc::new(Shaped {
            graph,
            plan,
            origin: Origin::Planned,
            warnings: shaped.warnings,
        });
        self.upper = Some(Arc::clone(&upper));
        Ok(upper)
    }
}

/// Values whose sizes are not known.
fn unsized_values(graph: &Graph) -> usize {
    let is_open = |v: &ValueId| graph.bytes(*v).is_none();
    graph.values.keys().filter(is_open).count()
}
