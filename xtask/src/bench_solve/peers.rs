//! Other planners, run on the same instances: the allocators of the Python package `omnimalloc`,
//! where it is installed, each call in a process of its own with one thread and a limit.
//!
//! They know no alignment, so sizes are rounded up to the largest one of the instance; what they
//! answer is judged by the validator of `tenure-solve` like everything else.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tenure_solve::{Instance, validate};

/// The allocators that place; the last one needs the package `minimalloc` too.
pub(super) const ALLOCATORS: [&str; 5] = [
    "supermalloc",
    "omni",
    "greedy_by_all",
    "telamalloc",
    "minimalloc",
];

const SCRIPT: &str = include_str!("peer.py");

/// What an allocator may take beyond its limit, for start, tables and what it cannot interrupt.
const GRACE: Duration = Duration::from_secs(20);

/// What came of one call.
pub(super) enum Answer {
    /// A valid placement.
    Placed {
        height: u64,
        proven: bool,
        seconds: f64,
    },
    /// It found none in the limit; processor time.
    Nothing { seconds: f64 },
    /// It was stopped after so long.
    Stopped(Duration),
    /// It is not installed.
    Absent,
    /// It failed, or its placement is no valid one.
    Failed(String),
}

/// Runs one allocator on an instance; with a capacity, it is only asked for a fit.
pub(super) fn run(
    allocator: &str,
    instance: &Instance,
    limit: Duration,
    capacity: Option<u64>,
) -> Answer {
    match try_run(allocator, instance, limit, capacity) {
        Ok(answer) => answer,
        Err(message) => Answer::Failed(message),
    }
}

fn try_run(
    allocator: &str,
    instance: &Instance,
    limit: Duration,
    capacity: Option<u64>,
) -> Result<Answer, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (script, input) = (folder.path().join("peer.py"), folder.path().join("in"));
    let output = folder.path().join("out");
    std::fs::write(&script, SCRIPT).map_err(|e| e.to_string())?;
    std::fs::write(&input, table(instance)).map_err(|e| e.to_string())?;
    let mut command = Command::new("python3");
    command.arg(&script).arg(allocator).arg(&input).arg(&output);
    command.arg(limit.as_secs_f64().to_string());
    command.args(capacity.map(|capacity| capacity.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let errors = folder.path().join("errors");
    command.stderr(std::fs::File::create(&errors).map_err(|e| e.to_string())?);
    let Ok(mut child) = command.spawn() else {
        return Ok(Answer::Absent);
    };
    let start = Instant::now();
    let most = limit.saturating_mul(2).saturating_add(GRACE);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if start.elapsed() > most {
            child.kill().map_err(|e| e.to_string())?;
            child.wait().map_err(|e| e.to_string())?;
            return Ok(Answer::Stopped(most));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    match status.code() {
        Some(0) => answer(instance, &output),
        Some(3) => Ok(Answer::Absent),
        _ => {
            let errors = std::fs::read_to_string(&errors).unwrap_or_default();
            Err(errors.lines().last().unwrap_or("no message").to_owned())
        }
    }
}

fn table(instance: &Instance) -> String {
    let alignments = instance.buffers().iter().map(|buffer| buffer.alignment);
    let alignment = alignments.max().unwrap_or(1);
    let mut text = String::new();
    for buffer in sized(instance) {
        let size = buffer.size.next_multiple_of(alignment);
        let _ = writeln!(text, "{} {} {size}", buffer.lower, buffer.upper);
    }
    text
}

/// The buffers that are handed on: allocators refuse a size of 0.
fn sized(instance: &Instance) -> impl Iterator<Item = &tenure_solve::Buffer> {
    instance.buffers().iter().filter(|buffer| buffer.size > 0)
}

fn answer(instance: &Instance, output: &Path) -> Result<Answer, String> {
    let text = std::fs::read_to_string(output).map_err(|e| e.to_string())?;
    let mut lines = text.lines();
    let (seconds, proven) = lines
        .next()
        .and_then(|line| line.split_once(' '))
        .and_then(|(seconds, proven)| Some((seconds.parse::<f64>().ok()?, proven == "1")))
        .ok_or("its output has no first line")?;
    let mut given = lines.map(|line| line.parse::<u64>().map_err(|e| e.to_string()));
    let Some(first) = given.next() else {
        return Ok(Answer::Nothing { seconds });
    };
    let mut given = std::iter::once(first).chain(given);
    let mut offsets = Vec::with_capacity(instance.len());
    let mut height = 0;
    for buffer in instance.buffers() {
        let offset = match buffer.size {
            0 => 0,
            _ => given.next().ok_or("its output is short")??,
        };
        height = height.max(offset.saturating_add(buffer.size));
        offsets.push(offset);
    }
    validate::validate(instance, &offsets, None).map_err(|e| e.to_string())?;
    Ok(Answer::Placed {
        height,
        proven,
        seconds,
    })
}
