//! From a graph with shapes to a plan: schedule, lifetimes, storages, offsets.
//!
//! The stages stand in the order in which data flows through them: [`homes()`] (what is planned at
//! all), [`schedule()`] (the order), [`lives`] (when each value is needed), [`classes`] (what shares
//! memory), [`place`] (offsets); [`plan()`] is all of them. [`metadata`] is the memory graph on its
//! own, for compilers that have their own graph.
//!
//! The planner reads no files, prints nothing, and asks no operator's name: what an operator does
//! to memory it finds in the table of `tenure_graph::effects`.

#![forbid(unsafe_code)]

pub mod assign;
mod demands;
mod homes;
mod liveness;
pub mod metadata;
pub mod order;
mod schedule;
mod spans;
mod storage;

pub use assign::{Cut, Placed, Request, place};
pub use homes::{Home, Homes, homes};
pub use liveness::lives;
pub use schedule::{Schedule, schedule};
pub use storage::{Class, Classes, classes};
pub use tenure_solve::{Config, Strategy, Watch};

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Member, Place, Plan, PlanOptions, Storage};
use tenure_graph::{Graph, ValueId};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The schedule has more steps than can be counted.
    #[error("the schedule has more than 4 294 967 295 steps: split the model")]
    TooManySteps,
    /// A body whose end is not marked.
    #[error(
        "subgraph {subgraph:?} has no node of type NetOutput: add one, without inputs if need be"
    )]
    NoResults {
        /// Name of the subgraph.
        subgraph: String,
    },
    /// Work on several streams, whose order is not one list.
    #[error(
        "the graph runs on {0} streams; plans are made for one stream as yet: put all nodes on one stream"
    )]
    Streams(usize),
    /// The graph asks for more than separate memory.
    #[error(
        "node {node:?} has the attribute {attribute:?}, and plans cannot meet what it asks for yet: take it out, or plan without this node"
    )]
    Demand {
        /// Label of the node.
        node: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// A reference that can neither be placed where it must lie nor be given a copy to lie in.
    #[error(
        "node {node:?} writes output {output:?} in the memory of {input:?}, and the sizes of both must be known to plan that: give their dimensions with --dim"
    )]
    UnsizedReference {
        /// Label of the node.
        node: String,
        /// Label of the output.
        output: String,
        /// Label of the value that it refers to.
        input: String,
    },
    /// Sizes do not fit in 64 bits.
    #[error(
        "the sizes of the storages add up to more than 64 bits can count: check the dimensions given with --dim"
    )]
    TooLarge,
    /// Not a power of two.
    #[error("alignment {0} is not a power of two")]
    Alignment(u64),
    /// A memory graph that makes no sense.
    #[error("{0}")]
    Memory(String),
    /// The solver refused the instance.
    #[error("the solver refused the storages: {0}")]
    Instance(#[from] tenure_solve::InstanceError),
    /// The solver made a mistake.
    #[error(transparent)]
    Solver(#[from] tenure_solve::SolveError),
}

/// A plan with what was learnt on the way.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Outputs that were placed over an input of their node.
    pub in_place: usize,
    /// What cut the search short, if anything did.
    pub cut: Option<Cut>,
}

/// Classes of a graph, ready to be placed, and the schedule behind them.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What is planned at all.
    pub homes: Homes,
    /// The order.
    pub schedule: Schedule,
    /// What shares memory.
    pub classes: Classes,
}

/// Everything before offsets: what is planned, when it runs, what lives how long and where
/// together.
///
/// # Errors
/// More steps than 32 bits can count, more than one stream, or a demand that cannot be met.
pub fn memory(graph: &Graph, table: &OpTable, options: &PlanOptions) -> Result<Memory, PlanError> {
    demands::refuse_unmet(graph)?;
    let mut streams: Vec<_> = graph.nodes.values().filter_map(|n| n.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    if streams.len() > 1 {
        return Err(PlanError::Streams(streams.len()));
    }
    drop(streams);
    let homes = homes(graph, table, options);
    let schedule = schedule(graph, table, &homes.folded)?;
    let lives = lives(graph, table, options, &homes, &schedule);
    let classes = classes(graph, table, options, &homes, &schedule, lives)?;
    Ok(Memory {
        homes,
        schedule,
        classes,
    })
}

/// Places what [`memory()`] found.
///
/// # Errors
/// See [`place`].
pub fn assign(
    memory: Memory,
    options: &PlanOptions,
    config: &Config,
    watch: &Watch<'_>,
) -> Result<Planned, PlanError> {
    let Memory {
        homes,
        schedule,
        classes,
    } = memory;
    let requests: Vec<Request> = classes
        .classes
        .iter()
        .filter(|class| !class.caller)
        .map(|class| Request {
            bytes: class.bytes,
            align: class.align,
            life: class.life.clone(),
        })
        .collect();
    let placed = place(&requests, options.align, config, watch)?;
    drop(requests);
    let mut offsets = placed.offsets.iter();
    let mut storages = tenure_graph::entity::PrimaryMap::with_capacity(classes.classes.len());
    for class in classes.classes {
        let next = if class.caller { None } else { offsets.next() };
        let place = next.map_or(Place::Caller, |&offset| Place::Arena { arena: 0, offset });
        storages.push(Storage {
            place,
            size: assign::round_up(class.bytes, options.align)?,
            align: class.align.max(options.align),
            life: class.life,
            members: class
                .members
                .iter()
                .map(|&(item, bytes)| Member {
                    item,
                    offset: 0,
                    bytes,
                })
                .collect(),
        });
    }
    let dynamic: Vec<ValueId> = homes
        .of
        .iter()
        .filter(|(_, home)| **home == Home::Dynamic)
        .map(|(value, _)| value)
        .collect();
    Ok(Planned {
        plan: Plan {
            options: options.clone(),
            arenas: vec![placed.arena],
            steps: schedule.steps,
            storages,
            copies: classes.copies,
            folded: homes.folded.iter().collect(),
            dynamic,
            strategy: placed.strategy,
        },
        in_place: classes.in_place,
        cut: placed.cut,
    })
}

/// Plans a graph whose shapes are known as far as they can be.
///
/// # Errors
/// See [`memory()`] and [`assign()`].
pub fn plan(
    graph: &Graph,
    table: &OpTable,
    options: &PlanOptions,
    config: &Config,
) -> Result<Planned, PlanError> {
    let found = memory(graph, table, options)?;
    assign(found, options, config, &Watch::default())
}
