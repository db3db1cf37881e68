//! What is measured: files of buffers, models, and families made from a seed.

use std::path::{Path, PathBuf};

use tenure_formats::{ModelFile, csv};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::{Bindings, infer};
use tenure_plan::metadata::{AllocateKind, MemoryGraph};
use tenure_solve::{Buffer, Instance};
use tenure_tests::packings::{self, Cuts};

/// Alignment of the buffers of models, as plans have it by default.
const ALIGNMENT: u64 = 64;

/// One problem.
pub(super) struct Problem {
    pub name: String,
    /// The number of bytes that the file's name asks for, as `A.1048576.csv` does.
    pub capacity: Option<u64>,
    source: Source,
}

enum Source {
    File(PathBuf),
    Made(Box<dyn Fn() -> Vec<Buffer>>),
}

impl Problem {
    /// A file, by the end of its name.
    pub(super) fn file(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(".gz");
        let name = name.strip_suffix(".csv").unwrap_or(name);
        let number = name
            .rsplit_once('.')
            .map(|(name, number)| (name, number.parse()));
        let (name, capacity) = match number {
            Some((name, Ok(capacity))) => (name, Some(capacity)),
            _ => (name, None),
        };
        Problem {
            name: name.to_owned(),
            capacity,
            source: Source::File(path.to_owned()),
        }
    }

    fn made(name: String, make: impl Fn() -> Vec<Buffer> + 'static) -> Self {
        Problem {
            name,
            capacity: None,
            source: Source::Made(Box::new(make)),
        }
    }

    /// The buffers; an error says why there are none.
    pub(super) fn buffers(&self) -> Result<Vec<Buffer>, String> {
        match &self.source {
            Source::Made(make) => Ok(make()),
            Source::File(path) if path.extension().is_some_and(|end| end == "onnx") => model(path),
            Source::File(path) => table(path),
        }
    }

    /// The buffers as an instance.
    pub(super) fn instance(&self) -> Result<Instance, String> {
        Instance::new(self.buffers()?).map_err(|e| e.to_string())
    }
}

/// All files below a folder whose names have one of the endings, in the order of their paths; none
/// when there is no such folder.
pub(super) fn below(folder: &Path, endings: &[&str]) -> Vec<Problem> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|end| name.ends_with(end)) {
                files.push(path);
            }
        }
    }
    files.sort();
    files.iter().map(|path| Problem::file(path)).collect()
}

/// The families, small ones first.
pub(super) fn families() -> Vec<Problem> {
    let mut problems = Vec::new();
    for count in [1_000, 10_000, 100_000, 1_000_000] {
        let make = move || packings::random(count, 1);
        problems.push(Problem::made(format!("random-{count}"), make));
    }
    for count in [1_000, 10_000] {
        let make = move || packings::aligned(count, 1);
        problems.push(Problem::made(format!("aligned-{count}"), make));
    }
    for count in [50, 100, 200, 500] {
        let make = move || packings::dense(count, 1);
        problems.push(Problem::made(format!("dense-{count}"), make));
    }
    for (name, cuts) in [
        ("guillotine", Cuts::Guillotine),
        ("pinwheel", Cuts::Pinwheel),
    ] {
        for pieces in [60, 100, 200, 400, 1_000] {
            let make = move || packings::tiling(pieces, cuts, 1);
            problems.push(Problem::made(format!("{name}-{pieces}"), make));
        }
    }
    problems
}

fn table(path: &Path) -> Result<Vec<Buffer>, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let file = std::io::BufReader::new(file);
    let table = csv::read(file, &csv::Options::default()).map_err(|e| e.to_string())?;
    Ok(packings::of_table(&table))
}

/// What a plan of the model has to place.
fn model(path: &Path) -> Result<Vec<Buffer>, String> {
    let file = ModelFile::open(path).map_err(|e| e.to_string())?;
    let graph = file.graph().map_err(|e| e.to_string())?;
    let table = OpTable::builtin(graph.dialect);
    let shaped = infer(graph, &table, &Bindings::default()).map_err(|e| e.to_string())?;
    if !shaped.free.is_empty() {
        return Err("has dimensions without a value".to_owned());
    }
    let options = PlanOptions {
        align: ALIGNMENT,
        ..PlanOptions::default()
    };
    let memory = tenure_plan::memory(&shaped.graph, &table, &options).map_err(|e| e.to_string())?;
    let graph = MemoryGraph::new(&shaped.graph, &memory);
    let placed = graph.allocates.iter();
    let placed = placed.filter(|allocate| allocate.kind != AllocateKind::Caller);
    let buffers = placed.filter_map(|allocate| {
        let (first, last) = (allocate.life.first()?, allocate.life.last()?);
        let size = allocate.bytes.checked_next_multiple_of(ALIGNMENT)?;
        let mut buffer = Buffer::new(size, u64::from(first[0]), u64::from(last[1]) + 1);
        for pair in allocate.life.windows(2) {
            buffer = buffer.with_gap(u64::from(pair[0][1]) + 1, u64::from(pair[1][0]));
        }
        Some(buffer.with_alignment(allocate.align.max(ALIGNMENT)))
    });
    Ok(buffers.collect())
}
