//! All stages, in the order in which they are run on a program.
//!
//! Between the layers stands [`values`]: where an edge is enough, no copy is made.
//! The rules of the reference for borders of subgraphs ([`passes::subgraph`](crate::passes::subgraph))
//! are not among the stages: [`control_flow`](crate::control_flow) and the layers do with fewer
//! copies.

use tenure_graph::Graph;
use tenure_graph::effects::OpTable;

use crate::error::GuardError;
use crate::options::Options;
use crate::passes::{
    collective_writes, concat_no_task, contiguous_inputs, fixed_addresses, identity,
    in_place_support, tensor_moves, user_addresses, zeroing,
};
use crate::{Guarded, in_place, layout, read_write, values};

/// One stage.
type Stage = fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>;

/// The stages with their names, in order.
const STAGES: &[(&str, Stage)] = &[
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
];

/// The names of the stages, in order.
pub fn stages() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|&(name, _)| name)
}

/// Runs all stages.
///
/// # Errors
/// Those of the stages; the graph is then as it was.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let options = Options {
        exact_loops: true,
        ..options.clone()
    };
    let mut done = Guarded::default();
    for (_, stage) in STAGES {
        let next = stage(done.graph(graph), table, &options)?;
        done.then(next);
    }
    Ok(done)
}
