//! The judge: is a plan right for a graph?
//!
//! [`check()`] takes the graph, the table of what operators do to memory, and a finished plan. It
//! knows nothing of how the plan was found and shares no code with the planner; it depends on the
//! vocabulary of `tenure-graph` alone.
//!
//! # What is proven
//!
//! If `check` finds nothing, then in every run of the plan (each branch taken or not, each loop
//! passed any number of times, none included) **every reader finds in memory exactly the bytes
//! that it would find if every value had memory of its own**. A run executes the steps in order,
//! and its operators keep to what the table says of them.
//!
//! Besides, the plan is *well-formed*: the schedule respects data and control edges, everything
//! that needs memory has it, inside its arena and aligned; no constant and no caller's input is
//! written; storages whose stated lives meet are disjoint, and the stated lives cover all
//! accesses and the time between a write and the reads of it, so an executor may rely on lives
//! alone; and the options are kept. [`Violation`] has one variant for each of these rules.
//!
//! # The lattice
//!
//! The state of memory maps each byte to a *set of names*: the values whose byte at that place
//! this certainly is, on every way by which the step can be reached. More names are more
//! knowledge; the empty set knows nothing. Where ways join, the sets of each byte are intersected.
//! A read of value `v` demands that all its bytes have `v` among their names.
//!
//! Values that have the same bytes in every run, whatever memory does, go by one name: a view and
//! its source, what is handed into a branch and what it arrives as, a state that a loop never
//! changes and its start value.
//!
//! # Transfer functions
//!
//! | operation | effect on the state |
//! | --- | --- |
//! | node writes output `v` | the bytes of `v` have the name `v` alone, also if nobody reads it |
//! | node uses a workspace | the bytes have no name |
//! | output `v` is a view of input `u` in the same place | `u` is read; its name is that of `v` already |
//! | `u` is copied or handed over to `v`, elsewhere | `u` is read; the bytes of `v` have the names `u` and `v` |
//! | `u` is handed over to `v` in the same place | `u` is read; the bytes gain the name `v` |
//! | a storage is held that was not held at the step from which a run comes | its bytes have no name |
//! | one of several bodies runs | each from the state before; the states after them are joined |
//! | bodies run any number of times | each from the *state at the head*, see below |
//!
//! Reads and writes of one step happen at the same time, so what a node writes may meet what it
//! reads only where its row in the table allows it.
//!
//! # Loops, without iteration
//!
//! The state at the head of a loop must be right before every pass. It is the state before the
//! loop, less what any write in its bodies would change, plus the names of the
//! loop's own states: they live in the owner's outputs, have their start values when the loop
//! begins, and are demanded again after every pass. By induction over the passes all its names
//! hold: a byte that no body changes keeps what it has, a state is there because it was demanded.
//! Names of values inside the bodies are never in the state at the head, so nothing that an
//! earlier pass left behind is taken for a value of this one. The state after the loop is the
//! state at the head too, which covers the loop that is not passed at all.
//!
//! So each body is simulated once, however deep it lies: a step is met once for itself and once
//! for each loop around it (when what the loop may write is taken away), and each branch costs
//! what it changes. With nesting of at most 64 this is O(n log n), not exponential.
//!
//! # What is not proven
//!
//! That the table describes the operators truly, that kernels stay inside their outputs, that an
//! executor runs the steps in order and copies what the plan says, and that a plan is a small one.

#![forbid(unsafe_code)]

mod alternatives;
mod demands;
mod findings;
mod gears;
mod layout;
mod machine;
mod memory;
mod order;
mod placements;
mod program;
mod races;
mod refines;
mod sharing;
mod violation;
mod walk;

pub use memory::{Demand, MemoryViolation, check_memory};
pub use placements::{Placement, check_placements};
pub use refines::{Difference, refines};
pub use violation::{Anchor, Found, Memory, Named, Outside, Region, Site, Violation};

use tenure_graph::Graph;
use tenure_graph::effects::{Gears, OpTable};
use tenure_graph::plan::Plan;

use alternatives::Alternatives;
use findings::Findings;
use layout::Layout;

/// A plan that [`check()`] has found nothing wrong with. Only `check` makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedPlan {
    plan: Plan,
    accesses: u64,
}

impl CheckedPlan {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, which is then no longer known to be checked.
    #[must_use]
    pub fn into_plan(self) -> Plan {
        self.plan
    }

    /// How many accesses were checked: each read and each write of an anchor, also of values that
    /// live outside every arena, each copy and each value handed over between a node and its
    /// bodies, once for every place in the schedule.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }
}

/// Checks a plan against the graph that it was made for.
///
/// The graph has passed the verifier of `tenure_graph` and has its shapes; the plan may be
/// anything. Wrong ids and impossible numbers in it are violations, never panics.
///
/// # Errors
///
/// Everything that is wrong, up to 1000 violations. When the plan is not well-formed in its order
/// or its places, memory is not simulated, and more may come to light when that is mended.
///
/// ```
/// use tenure_graph::effects::OpTable;
/// use tenure_graph::plan::{
///     Arena, Item, Member, Phase, Place, Plan, PlanOptions, Span, Step, Storage,
/// };
/// use tenure_graph::{DType, Dialect, Graph, Shape};
///
/// // y = Relu(x), both in bytes 0..64 of one arena.
/// let mut graph = Graph::new("", Dialect::Onnx, "root");
/// let shape = || Some(Shape::of(&[16]));
/// let x = graph.add_input(graph.root, "x", DType::F32, shape());
/// let relu = graph.add_node(graph.root, "relu", "Relu");
/// graph.nodes[relu].inputs.push(Some(x));
/// let y = graph.add_output(relu, "y", DType::F32, shape());
/// let results = graph.add_results(graph.root, "results", [Some(y)]);
///
/// let step = |node| Step { node, phase: Phase::Run, stream: None };
/// let member = |value| Member { item: Item::Value(value), offset: 0, bytes: 64 };
/// let mut plan = Plan {
///     options: PlanOptions::default(),
///     arenas: vec![Arena {
///         kind: "device".into(), size: 64, align: 64,
///         lower_bound: 64, proven_optimal: true, no_reuse: 64,
///     }],
///     steps: vec![step(relu), step(results)],
///     waits: Vec::new(),
///     storages: [Storage {
///         place: Place::Arena { arena: 0, offset: 0 }, size: 64, align: 64,
///         life: [Span { first: 0, last: 1 }].into_iter().collect(),
///         members: [member(x), member(y)].into_iter().collect(),
///     }].into_iter().collect(),
///     copies: vec![], folded: vec![], dynamic: vec![], strategy: String::new(),
/// };
/// let table = OpTable::builtin(graph.dialect);
/// assert!(tenure_check::check(&graph, &table, &plan).is_ok());
///
/// // When x is to be kept to the end, it must not be overwritten.
/// plan.options.keep_inputs = true;
/// let violations = tenure_check::check(&graph, &table, &plan).unwrap_err();
/// assert_eq!(violations[0].code(), "T050");
/// assert_eq!(
///     violations[0].to_string(),
///     "step 1 of node \"results\" reads value \"x\" (graph input kept to the end) in bytes \
///      0..64 of arena 0, but finds other bytes in bytes 0..64 of arena 0: value \"y\" was \
///      written there at step 0",
/// );
/// ```
pub fn check(graph: &Graph, table: &OpTable, plan: &Plan) -> Result<CheckedPlan, Vec<Violation>> {
    let Some(gears) = Gears::new(graph) else {
        let accesses = accesses(graph, table, plan)?;
        let plan = plan.clone();
        return Ok(CheckedPlan { plan, accesses });
    };
    let broken = gears::whole(graph, table, plan, &gears);
    if !broken.is_empty() {
        return Err(broken);
    }
    let mut all = 0;
    for gear in 0..gears.count() {
        let (graph, plan) = gears::only(graph, plan, &gears, gear);
        all += accesses(&graph, table, &plan)?;
    }
    let plan = plan.clone();
    Ok(CheckedPlan {
        plan,
        accesses: all,
    })
}

/// Checks the plan of a model that runs as a whole; gives the number of accesses.
fn accesses(graph: &Graph, table: &OpTable, plan: &Plan) -> Result<u64, Vec<Violation>> {
    let mut findings = Findings::new(graph, plan);
    let mut layout = Layout::read(graph, table, plan, &mut findings);
    order::check(graph, plan, &layout, &mut findings);
    if !findings.is_empty() {
        return Err(findings.into_list());
    }
    let clashes = sharing::lives(plan, &findings);
    // Where lives clash, what they say of gaps means nothing.
    let rely = clashes.is_empty();
    let alternatives = Alternatives::new(graph, table, plan);
    let model = (graph, table, &alternatives);
    let mut demands = demands::gather(model, plan, rely, &mut layout, &mut findings);
    let streams = (&demands, &alternatives);
    races::check(graph, plan, &layout, streams, &mut findings);
    let accesses = walk::run(
        graph,
        plan,
        &layout,
        &mut demands,
        &alternatives,
        &mut findings,
    );
    clashes.into_iter().for_each(|c| findings.push(c));
    sharing::members(plan, &mut demands, &mut findings);
    sharing::no_reuse(graph, table, plan, &mut findings);
    sharing::kept(graph, plan, &mut findings);
    sharing::dynamic(graph, plan, &mut findings);
    sharing::folded(graph, table, plan, &layout, &mut findings);
    if !findings.is_empty() {
        return Err(findings.into_list());
    }
    Ok(accesses)
}
