//! Measures the solver: height, bound and processor time over files and made families, beside other
//! planners, and with one technique off at a time. Prints Markdown.
//!
//! One thread; each figure is one run, or the shortest of five when they are over in 50 ms.

mod instances;
mod peers;
mod tables;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenure_solve::{Config, Fits, Instance, Solution, Strategy, solve};

use instances::Problem;

pub(crate) const USAGE: &str = "\
cargo xtask bench-solve [--peers] [--planners] [--ablation] [--time-limit SECONDS]
                        [--data FOLDER] [--only WORD]... [FILE]...

  FILE            allocation CSVs and ONNX models; without any: all tables below FOLDER/dsa, all
                  models below FOLDER/onnx, and the families made from a seed
  --data          default: ../shared/data beside the workspace
  --only          instances whose name has one of the words
  --time-limit    wall time of each search; without it searches have their fixed budget of work,
                  and peers 10 seconds
  --peers         the allocators of the Python package omnimalloc, where it is installed
  --planners      what the named strategies of other planners hold, and best fit against first fit
  --ablation      each technique of the search switched off, one at a time";

/// What peers get when no limit is given.
const PEER_LIMIT: Duration = Duration::from_secs(10);

/// What a single pass of a named strategy gets, whatever the limit of searches.
const PASS_LIMIT: Duration = Duration::from_secs(60);

/// What was asked for.
#[derive(Default)]
struct Options {
    peers: bool,
    planners: bool,
    ablation: bool,
    limit: Option<Duration>,
    data: Option<PathBuf>,
    only: Vec<String>,
    files: Vec<PathBuf>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
            match arg {
                "--peers" => options.peers = true,
                "--planners" => options.planners = true,
                "--ablation" => options.ablation = true,
                "--time-limit" => {
                    let seconds = value()?.trim_end_matches('s').parse().ok();
                    let limit = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
                    options.limit = Some(limit.ok_or("--time-limit takes seconds, as 10 or 0.5")?);
                }
                "--data" => options.data = Some(value()?.into()),
                "--only" => options.only.push((*value()?).to_owned()),
                _ if arg.starts_with('-') => return Err(format!("unknown option {arg}\n{USAGE}")),
                file => options.files.push(file.into()),
            }
        }
        Ok(options)
    }

    fn config(&self, strategy: Strategy) -> Config {
        let base = match self.limit {
            Some(limit) => Config::with_time_limit(limit),
            None => Config::default(),
        };
        Config { strategy, ..base }
    }

    fn problems(&self, root: &Path) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.files.is_empty() {
            let beside = || root.parent().unwrap_or(root).join("shared/data");
            let data = self.data.clone().unwrap_or_else(beside);
            let kinds: [(&str, &[&str]); 2] = [("dsa", &[".csv", ".csv.gz"]), ("onnx", &[".onnx"])];
            for (name, endings) in kinds {
                let folder = data.join(name);
                let found = instances::below(&folder, endings);
                if found.is_empty() {
                    println!(
                        "{} has no instances: skipped (see --data)\n",
                        folder.display()
                    );
                }
                problems.extend(found);
            }
            problems.extend(instances::families());
        } else {
            problems.extend(self.files.iter().map(|file| Problem::file(file)));
        }
        let wanted = |name: &str| self.only.iter().any(|word| name.contains(word.as_str()));
        problems.retain(|problem| self.only.is_empty() || wanted(&problem.name));
        problems
    }
}

/// A solution and the processor time of finding it, the instance's making included.
struct Run {
    solution: Solution,
    seconds: f64,
}

fn run(problem: &Problem, config: &Config) -> Result<(Instance, Run), String> {
    let buffers = problem.buffers()?;
    let mut best: Option<(Instance, Run)> = None;
    for _ in 0..REPEATS {
        let buffers = buffers.clone();
        let watch = Watch::start();
        let instance = Instance::new(buffers).map_err(|e| e.to_string())?;
        let solution = solve(&instance, config).map_err(|e| e.to_string())?;
        let seconds = watch.seconds();
        if best.as_ref().is_none_or(|(_, run)| seconds < run.seconds) {
            best = Some((instance, Run { solution, seconds }));
        }
        if seconds > SHORT {
            break;
        }
    }
    best.ok_or_else(|| "was not run".to_owned())
}

/// How often runs are made that are over in [`SHORT`]; the shortest counts.
const REPEATS: u32 = 5;

/// Seconds up to which a run's wall time is taken: the system's books of processor time are kept
/// every few milliseconds, and a run this short is seldom put aside.
const SHORT: f64 = 0.05;

/// Processor time of this thread where the system keeps it (Linux), else wall time.
struct Watch {
    wall: Instant,
    cpu: Option<u64>,
}

impl Watch {
    fn start() -> Self {
        Watch {
            cpu: cpu_nanoseconds(),
            wall: Instant::now(),
        }
    }

    fn seconds(&self) -> f64 {
        let wall = self.wall.elapsed().as_secs_f64();
        match (self.cpu, cpu_nanoseconds()) {
            (Some(start), Some(end)) if wall > SHORT => {
                Duration::from_nanos(end - start).as_secs_f64()
            }
            _ => wall,
        }
    }
}

/// Nanoseconds that this thread has run.
fn cpu_nanoseconds() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Runs the chore.
pub(crate) fn main(root: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let problems = options.problems(root);
    if cpu_nanoseconds().is_none() {
        println!("This system keeps no processor time of a thread: times are wall times.\n");
    }
    let solved = tables::least_height(&problems, &options);
    tables::capacities(&problems, &options);
    if options.planners {
        tables::planners(&solved);
        tables::fits(&solved);
    }
    if options.peers {
        tables::peers(&solved, &options);
    }
    if options.ablation {
        tables::ablation(&solved, &options);
    }
    Ok(())
}

/// Whether a run says that something fits.
fn verdict(fits: Option<Fits>) -> &'static str {
    match fits {
        Some(Fits::Yes) => "fits",
        Some(Fits::No) => "proven not to fit",
        Some(Fits::Undecided) => "undecided",
        None => "",
    }
}
