//! `tenure replay`: an allocation trace through the allocator, beside a plan of the same blocks.

use serde::Serialize;
use tenure_runtime::allocator::AllocError;
use tenure_runtime::trace::{Replay, Trace, TraceError};
use tenure_solve::{Buffer, Instance, Solution, solve_watched};

use crate::args::ReplayArgs;
use crate::exit::{Exit, Failure};
use crate::pipeline::config;
use crate::ui::Ui;
use crate::{files, search};

/// `replay --json`. Bytes where nothing else is said.
#[derive(Serialize)]
struct Summary {
    steps: usize,
    blocks: usize,
    /// Most that were asked for and not freed at any time: nobody can do with less.
    asked_max: u64,
    /// Most that the allocator had from the device.
    held_max: u64,
    /// What it has at the end.
    held_at_end: u64,
    /// Idle at the end.
    idle_at_end: u64,
    /// How often it took memory from the device.
    taken: u64,
    /// How often the host waited for a stream.
    waits: u64,
    /// What a plan of the same blocks needs.
    planned: u64,
    planned_lower_bound: u64,
    proven_optimal: bool,
    /// The step that was refused for lack of memory, and why; the plan is of the blocks up to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_memory: Option<Refusal>,
}

#[derive(Serialize)]
struct Refusal {
    step: usize,
    reason: String,
}

/// Runs the command.
pub fn run(args: &ReplayArgs, ui: &Ui) -> Result<Exit, Failure> {
    let path = args.trace.display();
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{path}: {e}"));
    let trace = Trace::read(&files::read(&args.trace)?).map_err(|e| bad(&e))?;
    let (replay, refused) = trace.replay_to_the_end();
    let out_of_memory = match refused {
        None => None,
        Some(TraceError::Refused {
            step,
            error: error @ AllocError::OutOfMemory { .. },
        }) => Some(Refusal {
            step,
            reason: error.to_string(),
        }),
        Some(other) => return Err(bad(&other)),
    };
    let instance = instance(&trace, &replay).map_err(|e| bad(&e))?;
    let config = config(&args.search);
    let solution = search::watched(ui, |watch| solve_watched(&instance, &config, watch));
    let solution = solution.map_err(Failure::internal)?;
    let fits = args.search.capacity;
    let fits = fits.is_none_or(|capacity| replay.stats().most_reserved <= capacity);
    let summary = summary(&trace, &replay, &solution, out_of_memory);
    if args.json {
        ui.data(serde_json::to_string_pretty(&summary).map_err(Failure::internal)?);
    } else {
        ui.say(text(&summary).join("\n"));
    }
    Ok(if fits && summary.out_of_memory.is_none() {
        Exit::Done
    } else {
        Exit::No
    })
}

/// The blocks as buffers that live from the step that asks for them to the one that frees them. A
/// planner knows all that in advance, and makes streams wait where that saves memory.
fn instance(trace: &Trace, replay: &Replay) -> Result<Instance, tenure_solve::InstanceError> {
    let time = |step: usize| u64::try_from(step).unwrap_or(u64::MAX);
    let lives = replay.lives().iter().filter(|life| life.bytes > 0);
    let buffers = lives.map(|life| {
        let end = life.to.unwrap_or(trace.steps.len());
        let buffer = Buffer::new(life.bytes, time(life.from), time(end));
        buffer.with_alignment(trace.rules.granularity.max(1))
    });
    Instance::new(buffers.collect())
}

fn summary(
    trace: &Trace,
    replay: &Replay,
    solution: &Solution,
    out_of_memory: Option<Refusal>,
) -> Summary {
    let (stats, device) = (replay.stats(), replay.device());
    Summary {
        steps: trace.steps.len(),
        blocks: replay.lives().len(),
        asked_max: replay.most_held(),
        held_max: stats.most_reserved,
        held_at_end: stats.reserved,
        idle_at_end: stats.idle,
        taken: device.takes,
        waits: device.waits,
        planned: solution.height,
        planned_lower_bound: solution.lower_bound,
        proven_optimal: solution.proven_optimal,
        out_of_memory,
    }
}

fn text(summary: &Summary) -> Vec<String> {
    let proof = match summary.proven_optimal {
        true => "proven the least",
        false => "not proven the least",
    };
    let mut lines = vec![
        format!("steps        {}", summary.steps),
        format!("blocks       {}", summary.blocks),
        format!("asked for    {} bytes at most", summary.asked_max),
        format!(
            "held         {} bytes at most, {} at the end, {} of them idle",
            summary.held_max, summary.held_at_end, summary.idle_at_end
        ),
        format!("planned      {} bytes, {proof}", summary.planned),
        format!(
            "overhead     {}",
            overhead(summary.held_max, summary.planned)
        ),
        format!("device       asked for memory {} times", summary.taken),
        format!("host         waited {} times for a stream", summary.waits),
    ];
    if let Some(refusal) = &summary.out_of_memory {
        lines.push(format!(
            "refused      trace[{}]: {}",
            refusal.step, refusal.reason
        ));
    }
    lines
}

/// What the allocator has more than the plan, in percent.
fn overhead(held: u64, planned: u64) -> String {
    let more = i128::from(held) - i128::from(planned);
    let tenths = (more * 1000).checked_div(i128::from(planned)).unwrap_or(0);
    let sign = if tenths < 0 { "-" } else { "" };
    let tenths = tenths.unsigned_abs();
    format!("{sign}{}.{} % of the plan", tenths / 10, tenths % 10)
}
