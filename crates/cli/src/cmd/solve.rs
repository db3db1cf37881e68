//! `tenure solve`: buffers of an allocation CSV to offsets.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure_formats::csv::{self, Times};
use tenure_plan::Cut;
use tenure_report::svg::{self, PackedBuffer, Packing};
use tenure_solve::{Buffer, Config, Fits, Instance, InstanceError, Solution, Span, solve_watched};

use crate::args::SolveArgs;
use crate::exit::{Exit, Failure};
use crate::pipeline::{config, since};
use crate::ui::Ui;
use crate::{files, search, ui};

/// `solve --json`.
#[derive(Serialize)]
struct Summary {
    buffers: usize,
    height: u64,
    lower_bound: u64,
    proven_optimal: bool,
    fits: bool,
    strategy: String,
    cut_by_clock: bool,
    cancelled: bool,
    /// Ids of buffers that do not fit into the capacity on their own, when that is proven.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflict: Vec<String>,
    time_ms: f64,
}

/// Runs the command.
pub fn run(args: &SolveArgs, ui: &Ui) -> Result<Exit, Failure> {
    let start = Instant::now();
    // One of them is there: the arguments ask for it.
    let path = args.buffers.as_ref().or(args.input.as_ref());
    let path = path.map_or(Path::new(""), PathBuf::as_path);
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| bad(&e))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(bad(&"is a directory, not an allocation CSV"));
    }
    let times = if args.inclusive {
        Times::Inclusive
    } else {
        Times::HalfOpen
    };
    let options = csv::Options {
        times,
        ..csv::Options::default()
    };
    let table = csv::read(BufReader::new(file), &options).map_err(|e| bad(&e))?;
    let instance = instance(&table, args.align).map_err(|e| bad(&e))?;
    let config = config(&args.search);
    let read = start.elapsed();
    // Writing takes less time than reading.
    let writing = match args.output.is_some() || args.svg.is_some() {
        true => read / 2,
        false => Duration::ZERO,
    };
    let config = Config {
        capacity: args.search.capacity,
        // From the call of the command to its end, as far as the search can see to that.
        time_limit: config
            .time_limit
            .map(|limit| limit.saturating_sub(read + writing)),
        ..config
    };
    let start = Instant::now();
    let solution = search::watched(ui, |watch| solve_watched(&instance, &config, watch));
    let solution = solution.map_err(Failure::internal)?;
    let time_ms = since(start);
    search::kept(|| answer(args, ui, path, &table, &instance, &solution, time_ms))
}

/// Writes and prints what was found.
fn answer(
    args: &SolveArgs,
    ui: &Ui,
    path: &Path,
    table: &csv::Table,
    instance: &Instance,
    solution: &Solution,
    time_ms: f64,
) -> Result<Exit, Failure> {
    if let Some(out) = &args.output {
        let mut text = Vec::new();
        table
            .write_with_offsets(&solution.offsets, &mut text)
            .map_err(Failure::internal)?;
        files::write(out, &text)?;
    }
    if let Some(out) = &args.svg {
        let text = picture(path, table, instance, solution);
        files::write(out, text.as_bytes())?;
    }
    let ids = solution.conflict.iter();
    let ids = ids.filter_map(|&buffer| table.rows().get(buffer));
    let conflict: Vec<String> = ids.map(|row| row.id.to_string()).collect();
    let fits = solution.fits.is_none_or(|f| f == Fits::Yes);
    if args.json {
        let summary = Summary {
            buffers: instance.len(),
            height: solution.height,
            lower_bound: solution.lower_bound,
            proven_optimal: solution.proven_optimal,
            fits,
            strategy: solution.strategy.to_string(),
            cut_by_clock: solution.cut_by_clock,
            cancelled: solution.cancelled,
            conflict,
            time_ms,
        };
        ui.data(serde_json::to_string_pretty(&summary).map_err(Failure::internal)?);
    } else {
        let mut lines = text(instance, solution, args.search.capacity, time_ms);
        if !conflict.is_empty() {
            lines.push(named(&conflict));
        }
        ui.say(lines.join("\n"));
    }
    Ok(match solution.fits {
        None | Some(Fits::Yes) => Exit::Done,
        Some(Fits::No) => Exit::No,
        Some(Fits::Undecided) => Exit::Undecided,
    })
}

/// The rows as an instance, each aligned to `align` at least.
fn instance(table: &csv::Table, align: u64) -> Result<Instance, String> {
    let buffers = table
        .rows()
        .iter()
        .map(|row| {
            // Any alignment is read; both hold at multiples of their least common multiple.
            let alignment = lcm(row.alignment, align).ok_or_else(|| {
                format!(
                    "line {}: alignment {} is too large",
                    row.line, row.alignment
                )
            })?;
            Ok(Buffer {
                size: row.size,
                alignment,
                lower: row.lower,
                upper: row.upper,
                gaps: row
                    .gaps
                    .iter()
                    .map(|&(lower, upper)| Span { lower, upper })
                    .collect(),
                offset: row.offset,
            })
        })
        .collect::<Result<_, String>>()?;
    Instance::new(buffers).map_err(|e| in_lines(&e, table))
}

/// What is wrong with the buffers as a whole, in lines of the table.
fn in_lines(error: &InstanceError, table: &csv::Table) -> String {
    let line = |buffer: usize| table.rows().get(buffer).map_or(0, |row| row.line);
    match *error {
        InstanceError::MisalignedOffset {
            buffer,
            offset,
            alignment,
        } => format!(
            "line {}: the offset {offset} is no multiple of the alignment {alignment}",
            line(buffer)
        ),
        InstanceError::FixedClash { first, second } => format!(
            "line {}: alive together with the buffer on line {} and fixed on the same bytes",
            line(second),
            line(first)
        ),
        InstanceError::Overflow { buffer } => format!(
            "line {}: sizes, paddings and fixed ends up to here add up to more than 63 bits",
            line(buffer)
        ),
        // Everything that concerns one row alone has been refused by the reader.
        _ => error.to_string(),
    }
}

/// The packing as a picture.
fn picture(path: &Path, table: &csv::Table, instance: &Instance, solution: &Solution) -> String {
    let name = path.file_name().unwrap_or_default();
    let rows = table.rows().iter().zip(instance.buffers());
    let buffers = rows.zip(&solution.offsets);
    svg::picture(&Packing {
        title: &name.to_string_lossy(),
        height: solution.height,
        lower_bound: solution.lower_bound,
        buffers: buffers
            .map(|((row, buffer), &offset)| PackedBuffer {
                id: &row.id,
                size: row.size,
                offset,
                life: buffer
                    .live_spans()
                    .map(|span| (span.lower, span.upper))
                    .collect(),
            })
            .collect(),
    })
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x)?.checked_mul(b)
}

/// Buffers named in the text at most.
const NAMED: usize = 12;

fn named(conflict: &[String]) -> String {
    let names = conflict[..conflict.len().min(NAMED)].join(", ");
    let more = match conflict.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("conflict     these alone need more: {names}{more}")
}

fn text(
    instance: &Instance,
    solution: &Solution,
    capacity: Option<u64>,
    time_ms: f64,
) -> Vec<String> {
    let proof = if solution.proven_optimal {
        "proven the least".to_owned()
    } else {
        let over = solution.height - solution.lower_bound;
        format!("{over} bytes above the bound, not proven the least")
    };
    let mut lines = vec![
        format!("buffers      {}", instance.len()),
        format!("height       {} bytes, {proof}", solution.height),
        format!("lower bound  {} bytes", solution.lower_bound),
        format!("strategy     {}", solution.strategy),
        format!("time         {time_ms} ms"),
    ];
    if let (Some(capacity), Some(fits)) = (capacity, solution.fits) {
        lines.push(match fits {
            Fits::Yes => format!("capacity     fits into {capacity} bytes"),
            Fits::No => format!("capacity     proven not to fit into {capacity} bytes"),
            Fits::Undecided => {
                format!("capacity     not decided whether {capacity} bytes are enough")
            }
        });
    }
    lines.extend(Cut::of(solution).map(|cut| ui::cut(cut).to_owned()));
    lines
}
