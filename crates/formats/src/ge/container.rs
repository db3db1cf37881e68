//! The container of compiled models (`.om`): a header, a table of partitions, and the partition that
//! holds the model's definition. All numbers are little-endian.
//!
//! There are three forms. The table has numbers of 32 bits, or of 64 bits where the header states
//! its length in 64 bits; files of 2019 have no table, and the definition follows the header.
//! Partitions with weights, kernels and tasks are not looked at. A file may hold several models, each
//! with a table of its own behind the partitions of the one before.

use super::source::Source;
use crate::error::FormatError;
use crate::wire::Message;

/// The first bytes of the file.
pub(crate) const MAGIC: &[u8] = b"IMOD";

const HEADER_SIZE: usize = 4;
const VERSION: usize = 8;
const LENGTH: usize = 0x4c;
const ENCRYPTED: usize = 0x50;
const MODEL_TYPE: usize = 0x52;
const MODELS: usize = 0x9c;
const LENGTH_64: usize = 0xb8;

/// The least header: all that is looked at lies in it.
const LEAST_HEADER: usize = 0xc0;

/// A model made of several models, whose table has numbers of 64 bits in any case.
const FLOW: u8 = 3;

/// Headers of this version know no length of 64 bits: they have other things in its place.
const OLD_VERSION: u64 = 0x1000_0000;

/// The type of the partition that holds the model's definition.
const DEFINITION: u64 = 0;

/// More partitions than a model has.
const MOST_PARTITIONS: u64 = 1024;

/// More models than a file has.
pub(super) const MOST_MODELS: u64 = 4096;

/// The definition of a model.
pub(super) enum Definition<'a> {
    /// A `ge.proto` model.
    Current(Message<'a>),
    /// A model of 2019.
    Of2019(Message<'a>),
}

/// Finds the definitions of the first models in the file, up to `most`; the very first is the root.
///
/// # Errors
/// Damage, encryption, a model without a definition.
pub(super) fn definitions(
    source: Source<'_>,
    most: u64,
) -> Result<Vec<Definition<'_>>, FormatError> {
    let file: &[u8] = source.file;
    let cut = |what: &str| {
        let problem = format!("it ends after {} bytes, inside {what}", file.len());
        source.damaged(file.len(), problem)
    };
    if file.len() < LEAST_HEADER {
        return Err(cut("the header"));
    }
    match file[ENCRYPTED] {
        0 => {}
        1 => return Err(FormatError::Encrypted),
        other => {
            let problem = format!("says encryption {other}, which is not known");
            return Err(source.damaged(ENCRYPTED, problem));
        }
    }
    let header = number(file, HEADER_SIZE, 4).unwrap_or_default();
    let header = usize::try_from(header)
        .ok()
        .filter(|&h| (LEAST_HEADER..=file.len()).contains(&h))
        .ok_or_else(|| {
            let problem = format!("says that the header has {header} bytes, which cannot be");
            source.damaged(HEADER_SIZE, problem)
        })?;
    check_length(source, header)?;
    let Some(&first) = file.get(header) else {
        return Err(cut("the header"));
    };
    // A table begins with the number of its partitions, of which 10 are the tag of a field with a
    // name as well; but then the number goes on with zeros, and a name with its length.
    let zeros = file.get(header + 1..header + 4);
    if first == 0x0a && zeros != Some(&[0, 0, 0]) {
        let size = file.len() - header;
        let whole = Message::part(file, header, size).ok_or_else(|| cut("the definition"))?;
        return Ok(vec![Definition::Of2019(whole)]);
    }
    let wide = length_64(file).is_some() || file[MODEL_TYPE] == FLOW;
    let mut at = header;
    let mut found = Vec::new();
    for _ in 0..models(source)?.min(most) {
        let table = Table::read(source, at, wide)?;
        found.push(Definition::Current(table.definition()?));
        at = table.end_of_partitions();
    }
    Ok(found)
}

/// How many models the header says there are.
fn models(source: Source<'_>) -> Result<u64, FormatError> {
    let file: &[u8] = source.file;
    if number(file, VERSION, 4) == Some(OLD_VERSION) {
        return Ok(1);
    }
    let stated = number(file, MODELS, 4).unwrap_or_default().max(1);
    if stated > MOST_MODELS {
        let problem =
            format!("says that there are {stated} models; at most {MOST_MODELS} are read");
        return Err(source.damaged(MODELS, problem));
    }
    Ok(stated)
}

/// Checks that the file is as long as its header says.
fn check_length(source: Source<'_>, header: usize) -> Result<(), FormatError> {
    let file: &[u8] = source.file;
    let (at, stated) = match length_64(file) {
        None => (LENGTH, number(file, LENGTH, 4).unwrap_or_default()),
        Some(length) => (LENGTH_64, length),
    };
    let there = (file.len() - header) as u64;
    if stated > there {
        return Err(source.damaged(
            at,
            format!(
                "says that {stated} bytes follow the header, but there are {there}; it may be cut \
                 short"
            ),
        ));
    }
    Ok(())
}

/// What the header says in 64 bits of how many bytes follow it; `None` where it does not.
fn length_64(file: &[u8]) -> Option<u64> {
    if number(file, VERSION, 4) == Some(OLD_VERSION) {
        return None;
    }
    number(file, LENGTH_64, 8).filter(|&length| length > 0)
}

/// The table of partitions.
struct Table<'a> {
    source: Source<'a>,
    header: usize,
    /// Whether its numbers are of 64 bits.
    wide: bool,
    partitions: u64,
    /// Offset of the first byte behind it.
    end: usize,
}

impl<'a> Table<'a> {
    fn read(source: Source<'a>, header: usize, wide: bool) -> Result<Self, FormatError> {
        let file: &[u8] = source.file;
        let cut = || {
            let problem = format!(
                "it ends after {} bytes, inside the table of partitions",
                file.len()
            );
            source.damaged(header, problem)
        };
        let partitions = number(file, header, 4).ok_or_else(cut)?;
        if partitions == 0 || partitions > MOST_PARTITIONS {
            let problem = format!(
                "the table says {partitions} partitions; a model has one, and at most \
                 {MOST_PARTITIONS}"
            );
            return Err(source.damaged(header, problem));
        }
        let table = Table {
            source,
            header,
            wide,
            partitions,
            end: 0,
        };
        let end = usize::try_from(partitions)
            .ok()
            .map(|n| table.row(n))
            .filter(|&end| end <= file.len());
        Ok(Table {
            end: end.ok_or_else(cut)?,
            ..table
        })
    }

    /// Offset of row `k`. There are few, so this is never too large.
    fn row(&self, k: usize) -> usize {
        let (head, row) = if self.wide { (8, 24) } else { (4, 12) };
        self.header + head + row * k
    }

    /// Type, offset and size in row `k`.
    fn entry(&self, k: usize) -> Option<(u64, u64, u64)> {
        let (file, at): (&[u8], usize) = (self.source.file, self.row(k));
        let width = if self.wide { 8 } else { 4 };
        Some((
            number(file, at, 4)?,
            number(file, at + width, width)?,
            number(file, at + 2 * width, width)?,
        ))
    }

    /// Offset of the first byte behind the table and all partitions.
    fn end_of_partitions(&self) -> usize {
        let rows = usize::try_from(self.partitions).unwrap_or_default();
        let end = |k| {
            let (_, offset, size) = self.entry(k)?;
            let end = usize::try_from(offset.checked_add(size)?).ok()?;
            self.end.checked_add(end)
        };
        let ends = (0..rows).filter_map(end);
        ends.fold(self.end, usize::max)
    }

    fn definition(&self) -> Result<Message<'a>, FormatError> {
        let rows = usize::try_from(self.partitions).unwrap_or_default();
        for k in 0..rows {
            let Some((kind, offset, size)) = self.entry(k) else {
                continue;
            };
            if kind != DEFINITION {
                continue;
            }
            let start = usize::try_from(offset)
                .ok()
                .and_then(|o| self.end.checked_add(o));
            let size_here = usize::try_from(size).ok();
            let part = start
                .zip(size_here)
                .and_then(|(start, size)| Message::part(self.source.file, start, size));
            return part.ok_or_else(|| {
                let problem = format!(
                    "partition {k} is said to have {size} bytes from byte {offset} behind the \
                     table, which the file has not"
                );
                self.source.damaged(self.row(k), problem)
            });
        }
        let problem = "the table has no partition of type 0, which holds the model's definition";
        Err(self.source.damaged(self.header, problem))
    }
}

/// The number of `width` bytes at `at`; `None` where the file ends before it does.
fn number(file: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(width)?)?;
    let mut number = 0;
    for &byte in bytes.iter().rev() {
        number = number << 8 | u64::from(byte);
    }
    Some(number)
}
