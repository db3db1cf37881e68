//! The command line: commands, options and their meaning.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tenure_guard::Kind;
use tenure_guard::lint::{Code, Level};

/// Plans, proves and shows the memory of neural-network graphs.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Common {
    /// Print nothing but data that was asked for, and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// When to colour the output
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// When to colour the output.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// Makes it the choice of the whole process.
    pub fn write_global(self) {
        let choice = match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan a model's memory, prove the plan, and show it
    Plan(Box<PlanArgs>),
    /// Place the buffers of an allocation CSV
    Solve(SolveArgs),
    /// Prove or refute a plan, whoever made it
    Check(CheckArgs),
    /// Part what must not share memory: copies and control edges, each with its reason
    Guard(GuardArgs),
    /// Report accesses to shared memory whose order is not certain, and what else should be known
    Lint(LintArgs),
    /// Say how two values stand to each other: one memory, in order, apart, or in no order
    Why(WhyArgs),
    /// Write a model as graph JSON, or only its memory
    Convert(ConvertArgs),
    /// Draw a saved plan: lifetimes and memory map
    Report(ReportArgs),
    /// Show what changed between two plans, saved ones or those that compiled models carry
    Diff(DiffArgs),
    /// Feed an allocation trace to the allocator, and compare what it holds with a plan
    Replay(ReplayArgs),
    /// Run a model inside its plan
    Run(Box<RunArgs>),
    /// Find the node whose write breaks another tensor
    Bisect(Box<BisectArgs>),
}

/// How a model is read.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// ONNX model, Graph Engine model or dump, graph JSON or memory JSON; told apart by its content
    pub model: PathBuf,
    /// Value of a free dimension: NAME=N, INPUT@AXIS=N, or a range NAME=LO..HI (HI is planned)
    #[arg(long, value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Let free dimensions without a value stay free: what depends on them is left out of the arena
    #[arg(long)]
    pub dynamic: bool,
    /// Which model of a compiled file that holds several; 0 is the root
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub submodel: usize,
    /// Rows for operators, in TOML (docs/adding-an-operator.md)
    #[arg(long, value_name = "FILE")]
    pub ops: Vec<PathBuf>,
}

/// What a plan must keep to.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Alignment of every offset in bytes, a power of two
    #[arg(long, value_name = "N", default_value = "64", value_parser = alignment)]
    pub align: u64,
    /// Memory that a value gets: its bytes, or what Graph Engine gives it (32 more, rounded up to 32)
    #[arg(long, value_enum, default_value_t = SizeChoice::Raw)]
    pub sizes: SizeChoice,
    /// Node names or operator types whose memory is shared with nobody, separated by commas; '*' is
    /// all of them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub no_reuse: Vec<String>,
    /// Where graph inputs live
    #[arg(long, value_enum, default_value_t = Place::Planned)]
    pub inputs: Place,
    /// Where graph outputs live
    #[arg(long, value_enum, default_value_t = Place::Planned)]
    pub outputs: Place,
    /// Keep the bytes of planned inputs to the end
    #[arg(long)]
    pub keep_inputs: bool,
    /// Which planned inputs, by position, lend their memory after their last reader: numbers
    /// separated by commas, or none [default: all]
    #[arg(long, value_name = "LIST", value_parser = lent, conflicts_with = "keep_inputs")]
    pub lend_inputs: Option<Lent>,
    /// Which planned outputs, by position, may lie in memory that was used before: numbers separated
    /// by commas, or none [default: all]
    #[arg(long, value_name = "LIST", value_parser = lent)]
    pub lend_outputs: Option<Lent>,
    /// Compute what depends on constants alone at load time
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub fold: Switch,
    /// What may share memory
    #[arg(long, value_enum, default_value_t = Share::Full)]
    pub sharing: Share,
    /// Keep the model's order, or look for one with a lower peak
    #[arg(long, value_enum, default_value_t = OrderChoice::File)]
    pub order: OrderChoice,
    /// Number of streams to schedule on; a model that gives its nodes streams keeps them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_STREAMS))]
    pub streams: u32,
}

/// Streams that a model can be scheduled on.
const MOST_STREAMS: i64 = 256;

/// Inputs or outputs by position.
#[derive(Clone, Debug)]
pub struct Lent(pub Vec<u32>);

fn lent(text: &str) -> Result<Lent, String> {
    if text == "none" {
        return Ok(Lent(Vec::new()));
    }
    let number = |part: &str| part.trim().parse::<u32>();
    let numbers: Result<Vec<u32>, _> = text.split(',').map(number).collect();
    let numbers = numbers.map_err(|_| "is neither a list of positions, as 0,2, nor none")?;
    Ok(Lent(numbers))
}

/// How much memory a value gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeChoice {
    /// Its bytes
    Raw,
    /// What the file records, or its bytes rounded up to 32, and 32 more
    Padded,
}

/// How offsets are searched for.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Budget: exit 1 when more is needed. Bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub capacity: Option<u64>,
    /// Search strategy
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = strategy)]
    pub strategy: tenure_solve::Strategy,
    /// How long the search may go on: 500ms, 6s, 1.5s, 2m
    #[arg(long, alias = "timeout", value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// Threads of the search [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
}

/// `tenure plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Save the plan
    #[arg(long, short, value_name = "PLAN.json")]
    pub output: Option<PathBuf>,
    /// Save the report
    #[arg(long, value_name = "R.html")]
    pub report: Option<PathBuf>,
    /// Say what each rule costs, by planning without it
    #[arg(long)]
    pub costs: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure solve`.
#[derive(Debug, Args)]
pub struct SolveArgs {
    /// Allocation CSV, plain or gzip
    #[arg(required_unless_present = "input")]
    pub buffers: Option<PathBuf>,
    /// The same, for those who call MiniMalloc with it
    #[arg(long, value_name = "FILE", conflicts_with = "buffers")]
    pub input: Option<PathBuf>,
    /// Least alignment of every buffer in bytes
    #[arg(long, value_name = "N", default_value = "1", value_parser = alignment)]
    pub align: u64,
    #[command(flatten)]
    pub search: SearchArgs,
    /// `end` of `start,end` is the last step and belongs to the buffer
    #[arg(long)]
    pub inclusive: bool,
    /// Write the rows with their offsets
    #[arg(long, short, value_name = "OUT.csv")]
    pub output: Option<PathBuf>,
    /// Draw the packing
    #[arg(long, value_name = "OUT.svg")]
    pub svg: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The plan
    pub plan: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Show repairs of this kind alone; the graph has all of them
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub only: Option<Kind>,
    /// Write the resolved graph
    #[arg(long, short, value_name = "GRAPH.json")]
    pub output: Option<PathBuf>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure lint`.
#[derive(Debug, Args)]
pub struct LintArgs {
    /// ONNX model, Graph Engine model or dump, or graph JSON; told apart by its content
    #[arg(required_unless_present = "explain")]
    pub model: Option<PathBuf>,
    /// Value of a free dimension: NAME=N or INPUT@AXIS=N
    #[arg(long, value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Which model of a compiled file that holds several; 0 is the root
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub submodel: usize,
    /// Rows for operators, in TOML (docs/adding-an-operator.md)
    #[arg(long, value_name = "FILE")]
    pub ops: Vec<PathBuf>,
    /// How findings are written
    #[arg(long, value_enum, default_value_t = LintFormat::Text)]
    pub format: LintFormat,
    /// Exit 1 when there are findings of this level or above (error, warning, note), or of one of
    /// these codes; never
    #[arg(long, value_name = "LEVEL|CODE", value_delimiter = ',', value_parser = fail_on, default_value = "error")]
    pub fail_on: Vec<FailOn>,
    /// Report this kind alone
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub only: Option<Kind>,
    /// Say what a code means and what to do about it
    #[arg(long, value_name = "CODE", value_parser = code)]
    pub explain: Option<Code>,
    /// Write to a file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LintFormat {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
    /// SARIF 2.1.0, for code hosts and editors
    Sarif,
}

/// Findings that make the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// None.
    Never,
    /// Those of a level or above.
    Level(Level),
    /// Those of a code.
    Code(Code),
}

/// `tenure why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// A value, as plan files name it
    pub a: String,
    /// The other value
    pub b: String,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Write the memory graph alone (tenure.memory/1): what has to be placed, and for how long
    #[arg(long)]
    pub memory: bool,
    /// Write the plan that a compiled model carries
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// Where to write the graph
    #[arg(
        long,
        short,
        value_name = "GRAPH.json",
        required_unless_present = "plan"
    )]
    pub output: Option<PathBuf>,
}

/// `tenure diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A saved plan, or a compiled model that carries one
    pub a: PathBuf,
    /// What it is compared with, likewise
    pub b: PathBuf,
    /// Print the changes as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A saved plan
    pub plan: PathBuf,
    /// Where to write
    #[arg(long, short, value_name = "R.html")]
    pub output: PathBuf,
}

/// `tenure replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// An allocation trace (tenure.trace/1)
    pub trace: PathBuf,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a run works on.
#[derive(Debug, Args)]
pub struct FeedArgs {
    /// Contents of an input, as NumPy writes them; inputs without get random numbers
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub input: Vec<String>,
    /// Random numbers for weights whose file is missing, so that a model can be run without them
    #[arg(long)]
    pub random_weights: bool,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// A shared library with operators of your own, behind the C interface of tenure_kernel.h; its code
    /// is run
    #[arg(long, value_name = "LIB")]
    pub kernels: Vec<PathBuf>,
    /// A node that is made to write where or when it must not, to see that it is found:
    /// NODE:OUTPUT:past=BYTES, before=BYTES, late-write=STEPS or late-read=STEPS
    #[arg(long, value_name = "FAULT", value_parser = fault, hide = true)]
    pub fault: Vec<tenure_runtime::Fault>,
}

/// What is run, and how it is planned.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub feed: FeedArgs,
}

/// `tenure run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Write each output as D/NAME.npy
    #[arg(long, value_name = "D")]
    pub output_dir: Option<PathBuf>,
    /// Which values get their memory from the allocator at each run
    #[arg(long, value_enum, default_value_t = Pooling::Auto)]
    pub pool: Pooling,
    /// Run once more with other values of free dimensions, in the same process
    #[arg(long, value_name = "NAME=N,…")]
    pub also: Vec<String>,
    /// List all values: whether each is planned or pooled, and why
    #[arg(long)]
    pub values: bool,
    /// Compare with a run in which no two values share memory, bit by bit; exit 1 when they differ
    #[arg(long)]
    pub verify: bool,
    /// Run with guard zones around all memory and look at all of it after each step; exit 1 when a
    /// node writes what is not its own, which is named
    #[arg(long)]
    pub sanitize: bool,
    /// Write when each step of the last run ran, and the bytes in use, as a trace for Perfetto
    #[arg(long, value_name = "OUT.json")]
    pub profile: Option<PathBuf>,
    /// Run so many times more, and print how long it took
    #[arg(long, value_name = "N")]
    pub repeat: Option<std::num::NonZeroU32>,
    /// Print what was run as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tenure bisect`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Try each plan with this command of the shell in place of our own executor. It gets the path of
    /// a plan, and that of a list of nodes whose memory is shared with nobody; its exit code says
    /// whether the result is right: 0 it is, 125 it cannot be said, 1 to 124 it is wrong
    #[arg(long, value_name = "CMD")]
    pub exec: Option<String>,
    /// The plan that gives a wrong result [default: it is made, as `tenure plan` does]
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// A plan that gave the right result: what lies elsewhere in it is suspected first
    #[arg(long, value_name = "PLAN.json")]
    pub base: Option<PathBuf>,
    /// Runs before it is believed that a result is always right, or always wrong
    #[arg(long, value_name = "N", default_value = "3")]
    pub runs: std::num::NonZeroU32,
    /// Unused bytes around what is moved apart
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size)]
    pub gap: u64,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

/// Which values get their memory from the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pooling {
    /// None: all must be planned, else it is an error that names those that cannot be
    Planned,
    /// Those whose size depends on a free dimension or on data: one plan for all shapes
    Dynamic,
    /// Those whose size the data decide; all else is planned for the shapes at hand
    Auto,
}

/// Where inputs or outputs live.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Place {
    /// Inside the arena
    Planned,
    /// In the caller's memory
    User,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// What may share memory.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Share {
    /// A storage a value
    None,
    /// Views share their source's storage
    Views,
    /// Views, updates in place, values handed over at subgraph borders
    Full,
}

/// Which order to run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderChoice {
    /// The model's own
    File,
    /// The best one found
    Auto,
}

fn alignment(text: &str) -> Result<u64, String> {
    let n = u64::from_str(text).map_err(|e| e.to_string())?;
    if n.is_power_of_two() && n <= 1 << 32 {
        Ok(n)
    } else {
        Err("an alignment is a power of two of at most 4 GiB, such as 64".to_owned())
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    let all = Kind::ALL.map(Kind::name);
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("the kinds are {}", all.join(", ")))
}

fn code(name: &str) -> Result<Code, String> {
    let all = Code::ALL.map(Code::name);
    Code::from_name(name).ok_or_else(|| format!("the codes are {}", all.join(", ")))
}

fn fail_on(name: &str) -> Result<FailOn, String> {
    if name == "never" {
        return Ok(FailOn::Never);
    }
    let level = Level::ALL.into_iter().find(|level| level.name() == name);
    if let Some(level) = level {
        return Ok(FailOn::Level(level));
    }
    let known = |e| format!("give never, note, warning, error or a code: {e}");
    code(name).map(FailOn::Code).map_err(known)
}

fn strategy(name: &str) -> Result<tenure_solve::Strategy, String> {
    name.parse()
        .map_err(|e: tenure_solve::UnknownStrategy| e.to_string())
}

/// A fault: `NODE:OUTPUT:KIND=N`, where a name may hold colons.
fn fault(text: &str) -> Result<tenure_runtime::Fault, String> {
    let bad = || "a fault is NODE:OUTPUT:past=N, before=N, late-write=N or late-read=N".to_owned();
    let mut parts = text.rsplitn(3, ':');
    let what = parts.next().and_then(|w| w.split_once('='));
    let (kind, count) = what.ok_or_else(bad)?;
    let output = parts.next().and_then(|n| n.parse().ok()).ok_or_else(bad)?;
    let node = parts.next().ok_or_else(bad)?.to_owned();
    let count: u32 = count.parse().map_err(|_| bad())?;
    let bytes = usize::try_from(count).map_err(|_| bad())?;
    let mut fault = tenure_runtime::Fault {
        node,
        output,
        ..tenure_runtime::Fault::default()
    };
    match kind {
        "past" => fault.bytes_past_end = bytes,
        "before" => fault.bytes_before_start = bytes,
        "late-write" => fault.writes_late = count,
        "late-read" => fault.reads_late = count,
        _ => return Err(bad()),
    }
    Ok(fault)
}

/// A number of bytes, plain or with `KiB`, `MiB`, `GiB`.
fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("B", 1),
    ];
    let text = text.trim();
    let (number, unit) = UNITS
        .iter()
        .find_map(|&(name, bytes)| text.strip_suffix(name).map(|n| (n.trim_end(), bytes)))
        .unwrap_or((text, 1));
    let bad = || "a size is a number of bytes, or a number with KiB, MiB or GiB".to_owned();
    if let Ok(n) = u64::from_str(number) {
        return n.checked_mul(unit).ok_or_else(bad);
    }
    // A fraction of a unit, exact to the byte below: digits, a point, digits.
    let (whole, fraction) = number.split_once('.').ok_or_else(bad)?;
    let digits = u32::try_from(fraction.len()).map_err(|_| bad())?;
    if digits == 0 || digits > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let whole = u64::from_str(whole).map_err(|_| bad())?;
    let part = u64::from_str(fraction).map_err(|_| bad())?;
    let scale = 10u128.pow(digits);
    let bytes = u128::from(unit) * (u128::from(whole) * scale + u128::from(part)) / scale;
    u64::try_from(bytes).map_err(|_| bad())
}

/// A duration such as `500ms`, `6s`, `1.5s`, `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "a duration is a number with ms, s or m, such as 500ms or 1.5s".to_owned();
    let (number, unit) = [("ms", 0.001), ("s", 1.0), ("m", 60.0)]
        .into_iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|n| (n, unit)))
        .ok_or_else(bad)?;
    let number: f64 = number.trim_end().parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_durations() {
        assert_eq!(size("1.5KiB"), Ok(1536));
        assert_eq!(size("1048576"), Ok(1 << 20));
        assert_eq!(size("2 GiB"), Ok(2 << 30));
        assert!(size("1.5").is_ok_and(|n| n == 1));
        for bad in [
            "",
            "x",
            "-1",
            "1.",
            "KiB",
            "99999999999GiB",
            "1.0000000001MiB",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "s", "-1s", "infs", "nans", "1h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
