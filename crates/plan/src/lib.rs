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
mod clocks;
mod demands;
mod homes;
mod liveness;
pub mod metadata;
pub mod order;
pub mod recorded;
mod schedule;
mod spans;
mod storage;
pub mod streams;

pub use assign::{Cut, Placed, Request, place};
pub use homes::{Home, Homes, homes};
pub use liveness::lives;
pub use schedule::{Schedule, schedule};
pub use storage::{Class, Classes, classes};
pub use tenure_solve::{Config, Strategy, Watch};

use tenure_graph::effects::OpTable;
use tenure_graph::effects::demands::{ANY_MEMORY, kind_name};
use tenure_graph::plan::{Arena, Place, Plan, PlanOptions, Storage};
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
    /// Work on more streams than can be followed.
    #[error(
        "the graph runs on {0} streams, which is more than can be followed for so many nodes: put more nodes on each"
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
    /// Memory that would be cleared when it is filled already.
    #[error(
        "node {cleaner:?} clears the memory of {value:?}, but stands behind the node that fills it: let that one wait for {cleaner:?}"
    )]
    ClearedLate {
        /// Label of the value.
        value: String,
        /// Label of the node that clears.
        cleaner: String,
    },
    /// A node that hands on whichever of its inputs comes, where these cannot be one memory.
    #[error(
        "node {node:?} hands on whichever of its inputs comes, so all of them must lie in one memory, and {value:?} cannot lie there: let a copy of it be an input instead"
    )]
    Merge {
        /// Label of the node.
        node: String,
        /// Label of the input.
        value: String,
    },
    /// A node that writes in an input's memory and asks for two places for it.
    #[error(
        "node {node:?} writes in the memory of one of its inputs and asks for that memory to be of two kinds, or in two places: its attributes contradict one another"
    )]
    Torn {
        /// Label of the node.
        node: String,
    },
    /// A tensor of a collective that cannot lie where it does in the other gears.
    #[error(
        "{value:?} must lie at the same place in all parts of the model that are made for one size of a batch each, since a collective uses it, and cannot"
    )]
    Tied {
        /// Label of the value.
        value: String,
    },
    /// Tensors that must lie one behind the other and cannot.
    #[error(
        "the {side} of node {node:?} must lie one behind the other, and cannot: all their sizes must be known, and none of them may have to lie elsewhere"
    )]
    Run {
        /// Label of the node.
        node: String,
        /// `inputs` or `outputs`.
        side: String,
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
    demands::refuse_unmet(graph, table)?;
    let homes = homes(graph, table, options);
    let schedule = schedule(graph, table, &homes.folded)?;
    demands::refuse_late_clearing(graph, table, &schedule)?;
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
    let mut kinds: Vec<i64> = classes.classes.iter().map(|c| c.kind).collect();
    // There is always an arena of ordinary memory, and it is the first.
    kinds.push(ANY_MEMORY);
    kinds.sort_unstable_by_key(|&kind| (kind != ANY_MEMORY, kind));
    kinds.dedup();
    let mut arenas = Vec::with_capacity(kinds.len());
    let mut offsets: Vec<u64> = vec![0; classes.classes.len()];
    let mut cut = None;
    let mut strategy = String::new();
    for &kind in &kinds {
        let mine = || {
            let all = classes.classes.iter().enumerate();
            all.filter(|(_, class)| !class.caller && class.kind == kind)
        };
        let requests: Vec<Request> = mine()
            .map(|(_, class)| Request {
                bytes: class.bytes,
                align: class.align,
                life: class.life.clone(),
                gear: class.gear,
            })
            .collect();
        let mut number: Vec<Option<usize>> = vec![None; classes.classes.len()];
        for (k, (class, _)) in mine().enumerate() {
            number[class] = Some(k);
        }
        let apart = classes.apart.iter();
        let apart: Vec<(usize, usize)> = apart
            .filter_map(|&(a, b)| Some((number[a]?, number[b]?)))
            .collect();
        let placed = place(&requests, &apart, options.align, config, watch)?;
        for ((class, _), offset) in mine().zip(placed.offsets) {
            offsets[class] = offset;
        }
        arenas.push(Arena {
            kind: kind_name(kind).into_owned(),
            ..placed.arena
        });
        cut = cut.or(placed.cut);
        if strategy.is_empty() {
            strategy = placed.strategy;
        }
    }
    let mut storages = tenure_graph::entity::PrimaryMap::with_capacity(classes.classes.len());
    for (class, offset) in classes.classes.into_iter().zip(offsets) {
        let arena = kinds.iter().position(|&kind| kind == class.kind);
        let arena = arena.and_then(|at| u32::try_from(at).ok()).unwrap_or(0);
        let place = if class.caller {
            Place::Caller
        } else {
            Place::Arena { arena, offset }
        };
        storages.push(Storage {
            place,
            size: assign::round_up(class.bytes, options.align)?,
            align: class.align.max(options.align),
            life: class.life,
            members: class.members.into(),
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
            arenas,
            steps: schedule.steps,
            waits: classes.waits,
            storages,
            copies: classes.copies,
            folded: homes.folded.iter().collect(),
            dynamic,
            strategy,
        },
        in_place: classes.in_place,
        cut,
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
