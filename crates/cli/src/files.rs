//! Output files: written whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tenure_graph::plan_file::PlanFile;

use crate::exit::Failure;

/// Writes `text` to `path`, whole or not at all.
pub fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    fill(path, |to| to.write_all(text))
}

/// Writes a value as JSON, whole or not at all. A large one is never in memory as text.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Failure> {
    fill(path, |to| {
        let mut to = BufWriter::new(to);
        serde_json::to_writer_pretty(&mut to, value)?;
        to.write_all(b"\n")?;
        to.flush()
    })
}

/// Fills `path` through a temporary file beside it, so that a reader never sees half a file and a
/// failure leaves the old one as it was.
fn fill(path: &Path, text: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Failure> {
    let fail = |what: &str, error: io::Error| {
        Failure::bad(format!("cannot {what} {}: {error}", path.display()))
            .hint("check that the folder exists and can be written; nothing was written")
    };
    // Devices and pipes cannot be replaced, only written to.
    if path.exists() && !path.is_file() && !path.is_dir() {
        let mut file = File::create(path).map_err(|e| fail("write", e))?;
        return text(&mut file).map_err(|e| fail("write", e));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(fail("write", io::ErrorKind::IsADirectory.into()));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tenure-");
    // What a file that is created plainly gets, less the user's mask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // The error names the temporary file, of which the user knows nothing.
    let mut file = (builder.tempfile_in(folder)).map_err(|e| fail("create", e.kind().into()))?;
    text(file.as_file_mut()).map_err(|e| fail("write", e))?;
    file.persist(path).map_err(|e| fail("replace", e.error))?;
    Ok(())
}

/// Reads a whole file.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bad = |e| Failure::bad(format!("{}: cannot be read: {e}", path.display()));
    std::fs::read(path).map_err(bad)
}

/// Reads a saved plan.
pub fn read_plan(path: &Path) -> Result<PlanFile, Failure> {
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{}: {e}", path.display()));
    let text = read(path)?;
    PlanFile::read(&text)
        .map_err(|e| bad(&e).hint("a plan is what `tenure plan MODEL -o PLAN.json` writes"))
}
