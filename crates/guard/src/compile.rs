//! All stages, in the order in which they are run on a program.
//!
//! Between the layers stands [`values`]: where an edge is enough, no copy is made.
//! The rules of the reference for borders of subgraphs ([`passes::subgraph`](crate::passes::subgraph))
//! are not among the stages: [`crate::control_flow`] and the layers do with fewer copies.

use tenure_graph::effects::demands::{CLEARS_INPUTS, CLEARS_OUTPUTS};
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::{Graph, NodeId};

use crate::error::GuardError;
use crate::names::keep_result_names;
use crate::options::Options;
use crate::passes::{
    collective_writes, concat_no_task, contiguous_inputs, fixed_addresses, identity,
    in_place_support, subgraph, tensor_moves, user_addresses, zeroing,
};
use crate::{Guarded, control_flow, in_place, layout, needless, read_write, state, values};

/// One stage.
type Stage = fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>;

/// The stages with their names, in order.
const STAGES: &[(&str, Stage)] = &[
    ("state-order", state::keep_order),
    ("identity", identity::run),
    ("collective-writes", collective_writes::run),
    ("contiguous-inputs", contiguous_inputs::run),
    ("in-place-support", in_place_support::run),
    ("zeroing", zeroing::run),
    ("user-addresses", user_addresses::run),
    ("concat-no-task", concat_no_task::run),
    ("tensor-moves", tensor_moves::run),
    ("values", values::resolve),
    ("read-write", read_write::resolve),
    // Layer 2 takes copies out, so that readers and writers meet that did not before.
    ("values", values::resolve),
    ("layout", layout::resolve),
    ("fixed-addresses", fixed_addresses::run),
    ("in-place", in_place::resolve),
    // What copies a variable reads it when whoever reads the copy did.
    ("state-order", state::keep_order),
];

/// What stages begin with, and say of themselves.
const PARTS: &[(&str, Stage)] = &[(control_flow::STAGE, |graph, table, _| {
    control_flow::isolate(graph, table, layout::analysed)
})];

/// The stages before a plan. What [`copies_are_planned`](Options::copies_are_planned) leaves of
/// them: order where it is enough, nodes that clear memory, and what is stored back in variables.
const BEFORE_A_PLAN: &[(&str, Stage)] = &[
    ("state-order", state::keep_order),
    ("collective-writes", collective_writes::run),
    ("zeroing", zeroing::run),
    ("values", values::resolve),
];

/// The stages that follow the rules of the reference to the letter: no order is added where a copy
/// does, and what a loop is given counts as written.
const PLAIN_RULES: &[(&str, Stage)] = &[
    ("identity", identity::run),
    ("collective-writes", collective_writes::run),
    ("contiguous-inputs", contiguous_inputs::run),
    ("subgraph", subgraph::run),
    ("zeroing", zeroing::run),
    ("user-addresses", user_addresses::run),
    ("tensor-moves", tensor_moves::run),
    ("read-write", read_write::resolve),
    ("layout", layout::resolve),
];

/// Prepares a program for a planner that makes copies itself: [`Guarded::graph`] is the program
/// with order, with nodes that clear memory, and with assignments of what collectives made of
/// copies of variables.
///
/// Models whose operators write nothing but outputs of their own pass through unchanged, in one
/// look at each node.
///
/// # Errors
/// Those of the stages; the graph is then as it was.
pub fn before_a_plan(
    graph: &Graph,
    table: &OpTable,
    options: &Options,
) -> Result<Guarded, GuardError> {
    if !graph.nodes.keys().any(|node| asks(graph, table, node)) {
        return Ok(Guarded::default());
    }
    let options = Options {
        exact: true,
        copies_are_planned: true,
        ..options.clone()
    };
    stages_of(BEFORE_A_PLAN, graph, table, &options)
}

/// Whether a node writes an input's memory, leaves garbage there, or needs cleared memory.
fn asks(graph: &Graph, table: &OpTable, node: NodeId) -> bool {
    let attrs = &graph.nodes[node].attrs;
    let mut clears = [CLEARS_INPUTS, CLEARS_OUTPUTS].iter();
    clears.any(|name| attrs.get(name).is_some()) || {
        let effects = table.effects(graph, node);
        !effects.refs.is_empty() || !effects.spoils.is_empty()
    }
}

/// How many copies the rules of the reference put into a program when they are followed to the
/// letter.
///
/// # Errors
/// Those of the stages.
pub fn copies_by_plain_rules(
    graph: &Graph,
    table: &OpTable,
    options: &Options,
) -> Result<usize, GuardError> {
    let done = stages_of(PLAIN_RULES, graph, table, options)?;
    let copies = |graph: &Graph| {
        let copies = |n: &NodeId| table.traits(graph, *n).has(Trait::Copies);
        graph.nodes.keys().filter(copies).count()
    };
    Ok(copies(done.graph(graph)).saturating_sub(copies(graph)))
}

fn stages_of(
    stages: &[(&str, Stage)],
    graph: &Graph,
    table: &OpTable,
    options: &Options,
) -> Result<Guarded, GuardError> {
    let mut done = Guarded::default();
    for (_, stage) in stages {
        let next = stage(done.graph(graph), table, options)?;
        done.then(next);
    }
    Ok(done)
}

/// The names of the stages, in order.
pub fn stages() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|&(name, _)| name)
}

/// Runs all stages, and takes out the copies that with all the others nobody needs.
///
/// # Errors
/// Those of the stages; the graph is then as it was.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let done = once(graph, table, options)?;
    let exact = exact(options);
    let again = Again {
        table,
        options: &exact,
    };
    let mut done = needless::take_out(graph, done, table, &again)?;
    if let Some(after) = &mut done.graph {
        keep_result_names(graph, after, table);
    }
    Ok(done)
}

/// The stages, for copies to be tried.
struct Again<'a> {
    table: &'a OpTable,
    options: &'a Options,
}

impl needless::Guard for Again<'_> {
    fn all(&self, graph: &Graph) -> Result<Guarded, GuardError> {
        stages_of(STAGES, graph, self.table, self.options)
    }

    fn stages(&self, names: &[&str], graph: &Graph) -> Result<Guarded, GuardError> {
        let mut done = Guarded::default();
        for name in names {
            let stage = PARTS.iter().chain(STAGES).find(|(stage, _)| stage == name);
            if let Some((_, stage)) = stage {
                let next = stage(done.graph(graph), self.table, self.options)?;
                done.then(next);
            }
        }
        Ok(done)
    }
}

/// Runs all stages, and leaves copies in that with all the others nobody needs.
///
/// # Errors
/// Those of the stages; the graph is then as it was.
pub fn once(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    stages_of(STAGES, graph, table, &exact(options))
}

/// The options of a program that must give what it says.
fn exact(options: &Options) -> Options {
    Options {
        exact: true,
        ..options.clone()
    }
}
