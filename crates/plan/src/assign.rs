//! Offsets for everything that lies in an arena.

use std::collections::BTreeMap;
use tenure_graph::plan::{Arena, Life};
use tenure_solve::{Buffer, Config, Instance, Rules, Solution, Span, Watch, solve_watched};

use crate::PlanError;

/// One piece of memory to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes, before they are rounded up to the arena's alignment.
    pub bytes: u64,
    /// Alignment of the offset that it asks for, a power of two.
    pub align: u64,
    /// When it is held.
    pub life: Life,
    /// The one of several gears in which it is there: those of different gears may share bytes
    /// whenever they are held. `None` is in all.
    pub gear: Option<u32>,
}

/// Where everything went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The arena.
    pub arena: Arena,
    /// Offset of each request.
    pub offsets: Vec<u64>,
    /// Name of the strategy that found the offsets.
    pub strategy: String,
    /// What cut the search short, if anything did.
    pub cut: Option<Cut>,
}

/// What ended a search before it had done what it had steps for: another run may end with another
/// placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The time limit.
    Clock,
    /// The caller, through [`Watch::cancel`].
    Cancelled,
}

impl Cut {
    /// What cut a solution's search short.
    #[must_use]
    pub fn of(solution: &Solution) -> Option<Self> {
        match (solution.cancelled, solution.cut_by_clock) {
            (true, _) => Some(Cut::Cancelled),
            (_, true) => Some(Cut::Clock),
            _ => None,
        }
    }
}

/// Rounds `bytes` up to a multiple of `align`, a power of two.
///
/// # Errors
/// [`PlanError::TooLarge`] when the result does not fit in 64 bits.
pub fn round_up(bytes: u64, align: u64) -> Result<u64, PlanError> {
    bytes
        .checked_next_multiple_of(align.max(1))
        .ok_or(PlanError::TooLarge)
}

/// Places all requests in one arena whose offsets are multiples of `align`. The two of a pair in
/// `apart` get no byte in common, whenever they are held.
///
/// Every request takes its bytes rounded up to `align`, so that the maximum load is a bound that
/// can be reached.
///
/// # Errors
/// Sizes whose sum does not fit in 64 bits, an alignment that is no power of two, or a mistake of
/// the solver, which is never handed on as a plan.
pub fn place(
    requests: &[Request],
    apart: &[(usize, usize)],
    align: u64,
    config: &Config,
    watch: &Watch<'_>,
) -> Result<Placed, PlanError> {
    if !align.is_power_of_two() {
        return Err(PlanError::Alignment(align));
    }
    let mut buffers = Vec::with_capacity(requests.len());
    let mut no_reuse = 0u64;
    let mut base = align;
    for request in requests {
        if !request.align.is_power_of_two() {
            return Err(PlanError::Alignment(request.align));
        }
        let own = request.align.max(align);
        let size = round_up(request.bytes, align)?;
        no_reuse = no_reuse.checked_add(size).ok_or(PlanError::TooLarge)?;
        base = base.max(own);
        buffers.push(buffer(request, size, own));
    }
    let rules = Rules {
        exclusive: gears(requests),
        separate: apart.iter().map(|&(a, b)| vec![a, b]).collect(),
        ..Rules::default()
    };
    let instance = Instance::with_rules(buffers, rules)?;
    let solution = solve_watched(&instance, config, watch)?;
    let cut = Cut::of(&solution);
    Ok(Placed {
        arena: Arena {
            kind: "device".to_owned(),
            size: solution.height,
            align: base,
            lower_bound: solution.max_load,
            proven_optimal: solution.proven_optimal,
            no_reuse,
        },
        offsets: solution.offsets,
        strategy: solution.strategy.to_string(),
        cut,
    })
}

/// One choice with a branch for each gear, if there are any.
fn gears(requests: &[Request]) -> Vec<Vec<Vec<usize>>> {
    let mut branches: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (k, request) in requests.iter().enumerate() {
        if let Some(gear) = request.gear {
            branches.entry(gear).or_default().push(k);
        }
    }
    let choice: Vec<Vec<usize>> = branches.into_values().collect();
    let is_choice = choice.len() > 1;
    is_choice.then_some(choice).into_iter().collect()
}

/// Steps are inclusive in a plan and half-open in an instance.
pub(crate) fn buffer(request: &Request, size: u64, alignment: u64) -> Buffer {
    let upper = |last: u32| u64::from(last) + 1;
    let life = &request.life;
    let (first, last) = match (life.first(), life.last()) {
        (Some(first), Some(last)) => (u64::from(first.first), upper(last.last)),
        _ => (0, 1),
    };
    let mut buffer = Buffer::new(size, first, last).with_alignment(alignment);
    buffer.gaps = life
        .windows(2)
        .map(|pair| Span {
            lower: upper(pair[0].last),
            upper: u64::from(pair[1].first),
        })
        .collect();
    buffer
}
