//! Allocation tables: `id,lower,upper,size[,alignment][,offset][,gaps]`, one buffer a row, as
//! MiniMalloc reads them; and the same tables written back with the offsets filled in.
//!
//! Lifetimes are half-open. `alignment` (1 when empty) and `offset` (free when empty) may be left
//! out, `gaps` is a space-separated list of half-open `lower-upper` inside the lifetime. Columns
//! come in any order; MiniMalloc's other names of them are read as well, and columns with any other
//! name are kept and written back. Line ends, a byte-order
//! mark, spaces around fields, blank lines and gzip are taken as they come. Control characters other
//! than tabs and line ends are refused: no editor or terminal shows a name with one as it is.
//!
//! Input is hostile: a line or quoted record above [`MAX_LINE`], more decompressed bytes than
//! [`Options::max_bytes`] and more rows than [`Options::max_rows`] are refused before they are held
//! in memory.

mod guard;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Cursor, Read, Write};
use std::ops::Range;

use ::csv::{ReaderBuilder, StringRecord, Terminator, WriterBuilder};
use flate2::read::MultiGzDecoder;

use guard::{Fault, Guarded, Unzipped};

/// The longest line that is read, in bytes, its end included.
pub const MAX_LINE: u64 = 1 << 20;

/// What the two columns of the lifetime are called and mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// `lower,upper`: `upper` is the first time after the lifetime.
    HalfOpen,
    /// `start,end`: `end` is the last time of the lifetime.
    Inclusive,
}

impl Times {
    fn columns(self) -> [&'static str; 2] {
        match self {
            Times::HalfOpen => ["lower", "upper"],
            Times::Inclusive => ["start", "end"],
        }
    }

    fn other(self) -> Times {
        match self {
            Times::HalfOpen => Times::Inclusive,
            Times::Inclusive => Times::HalfOpen,
        }
    }
}

/// How to read a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which columns hold the lifetime.
    pub times: Times,
    /// The most bytes that are read, after decompression.
    pub max_bytes: u64,
    /// The most rows that are read.
    pub max_rows: usize,
}

/// Half-open lifetimes, at most 4 GiB and 8 388 608 rows.
impl Default for Options {
    fn default() -> Self {
        Options {
            times: Times::HalfOpen,
            max_bytes: 4 << 30,
            max_rows: 1 << 23,
        }
    }
}

/// One buffer of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name: any text, once in a table.
    pub id: String,
    /// First time of the lifetime.
    pub lower: u64,
    /// First time after the lifetime, whatever [`Times`] the file uses.
    pub upper: u64,
    /// Size in bytes; may be 0.
    pub size: u64,
    /// The offset must be a multiple of this; at least 1.
    pub alignment: u64,
    /// The offset in bytes, when it is fixed.
    pub offset: Option<u64>,
    /// Sorted disjoint half-open parts of the lifetime in which the bytes may be lent out.
    pub gaps: Vec<(u64, u64)>,
    /// The line on which the row begins, from 1.
    pub line: u64,
}

/// A table that was read: its rows in the order of the file, and the text to write it back.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Row>,
    header: StringRecord,
    fields: Fields,
}

/// The text of all rows in one piece: a table of a million rows would be millions of strings.
#[derive(Clone, Debug, Default)]
struct Fields {
    text: String,
    /// Where each field ends; as many for each row as there are columns.
    ends: Vec<usize>,
}

impl Fields {
    fn push(&mut self, record: &StringRecord) {
        for field in record {
            self.text.push_str(field);
            self.ends.push(self.text.len());
        }
    }

    /// One field; those of each row come behind those of the row before.
    fn get(&self, at: usize) -> &str {
        let before = at.checked_sub(1);
        let from = before.map_or(0, |before| self.ends[before]);
        &self.text[from..self.ends[at]]
    }
}

impl Table {
    /// The buffers, in the order of the file.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Writes the rows in the order of the file, every column as it was read, with the offsets (in
    /// the order of [`Table::rows`]) in the column `offset`, which is the last one if there was
    /// none.
    ///
    /// # Errors
    ///
    /// [`Error::OffsetCount`] when there is not one offset a row, [`Error::Io`] from `out`.
    pub fn write_with_offsets(&self, offsets: &[u64], out: impl Write) -> Result<(), Error> {
        if offsets.len() != self.rows.len() {
            return Err(Error::OffsetCount {
                rows: self.rows.len(),
                offsets: offsets.len(),
            });
        }
        let columns = self.header.len();
        let column = self.header.iter().position(|name| name == "offset");
        let column = column.unwrap_or(columns);
        let mut writer = WriterBuilder::new().from_writer(out);
        let written = |error: ::csv::Error| Error::Io(error.into());
        let before = self.header.iter().take(column);
        let behind = self.header.iter().skip(column + 1);
        let header = before.chain(["offset"]).chain(behind);
        writer.write_record(header).map_err(written)?;
        for (row, offset) in offsets.iter().enumerate() {
            let field = |at| self.fields.get(row * columns + at);
            let before = (0..column).map(field);
            let behind = (column + 1..columns).map(field);
            let offset = offset.to_string();
            let record = before.chain([&*offset]).chain(behind);
            writer.write_record(record).map_err(written)?;
        }
        writer.flush().map_err(Error::Io)
    }
}

/// A column's name, and what MiniMalloc calls it as well.
const ALSO: [(&str, &str); 4] = [
    ("id", "buffer"),
    ("id", "buffer_id"),
    ("lower", "begin"),
    ("start", "begin"),
];

/// Why a text is no number of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFault {
    /// It begins with a minus sign.
    Negative,
    /// It exceeds 64 bits.
    Overflow,
    /// It has other characters than digits, or none.
    NotANumber,
}

impl std::fmt::Display for NumberFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NumberFault::Negative => "is negative",
            NumberFault::Overflow => "does not fit into 64 bits",
            NumberFault::NotANumber => "is no whole number",
        })
    }
}

/// Why a table was refused. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing in the first line is the name of a column, or there is no line.
    #[error("line 1: no header; the first line must name the columns, as `id,lower,upper,size`")]
    MissingHeader,
    /// A column that must be there is not.
    #[error("line {line}: no column `{column}` in the header{hint}")]
    MissingColumn {
        /// Line of the header.
        line: u64,
        /// Its name.
        column: &'static str,
        /// What to do, when the file uses the other [`Times`]; else empty.
        hint: &'static str,
    },
    /// A column name that stands twice.
    #[error("line {line}: the header names column `{column}` twice")]
    DuplicateColumn {
        /// Line of the header.
        line: u64,
        /// Its name.
        column: String,
    },
    /// A row with more or fewer fields than the header.
    #[error("line {line}: the header names {expected} columns, but this row has {found}{hint}")]
    FieldCount {
        /// Line of the row.
        line: u64,
        /// Number of columns in the header.
        expected: usize,
        /// Number of fields in the row.
        found: usize,
        /// What to look at.
        hint: &'static str,
    },
    /// A field that must be a number and is none.
    #[error("line {line}: {column} `{text}` {fault}")]
    BadNumber {
        /// Line of the row.
        line: u64,
        /// The column.
        column: &'static str,
        /// What stands there, shortened.
        text: String,
        /// What is wrong with it.
        fault: NumberFault,
    },
    /// A lifetime that contains no time.
    #[error("line {line}: the lifetime is empty: {column} {upper} is not after {lower}")]
    EmptyLifetime {
        /// Line of the row.
        line: u64,
        /// The column of its end.
        column: &'static str,
        /// Start of the lifetime.
        lower: u64,
        /// What stands as its end.
        upper: u64,
    },
    /// Alignment 0.
    #[error("line {line}: alignment 0; the least is 1, or leave the field empty")]
    ZeroAlignment {
        /// Line of the row.
        line: u64,
    },
    /// A gap that is malformed, empty, outside the lifetime, or meets another gap; or gaps that
    /// leave nothing of the lifetime.
    #[error("line {line}: gap `{text}` {reason}")]
    BadGap {
        /// Line of the row.
        line: u64,
        /// The gap, or all of them, as they stand there, shortened.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An id that stands on two lines.
    #[error("line {line}: id `{id}` stands on line {first} already; ids must be unique")]
    DuplicateId {
        /// Line of the second row.
        line: u64,
        /// Line of the first row.
        first: u64,
        /// The id, shortened.
        id: String,
    },
    /// A line, or a quoted record over several lines, longer than [`MAX_LINE`].
    #[error("line {line}: longer than {MAX_LINE} bytes; is this an allocation table?")]
    LineTooLong {
        /// The line on which it begins.
        line: u64,
    },
    /// Bytes that are not UTF-8.
    #[error("line {line}: not UTF-8 text; is this an allocation table?")]
    NotText {
        /// Line of the row.
        line: u64,
    },
    /// A control character that is no tab and no line end.
    #[error("line {line}: the control character U+{:04X}; is this an allocation table?", u32::from(*.control))]
    Control {
        /// Line of the row.
        line: u64,
        /// The character.
        control: char,
    },
    /// More bytes than the options allow.
    #[error("the table has more than {max_bytes} bytes after decompression")]
    TooLarge {
        /// The limit that was hit.
        max_bytes: u64,
    },
    /// More rows than the options allow.
    #[error("line {line}: more than {max_rows} buffers")]
    TooManyRows {
        /// Line of the first row too many.
        line: u64,
        /// The limit that was hit.
        max_rows: usize,
    },
    /// Not one offset for each row.
    #[error("{offsets} offsets for {rows} rows")]
    OffsetCount {
        /// Number of rows.
        rows: usize,
        /// Number of offsets.
        offsets: usize,
    },
    /// A gzip file that cannot be decompressed to its end.
    #[error("line {line}: the gzip file is damaged or cut short: {reason}")]
    Damaged {
        /// The line at which it breaks off.
        line: u64,
        /// What the decompressor says.
        reason: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(io::Error),
}

/// Reads a table, plain or gzip.
///
/// # Errors
///
/// The first fault, with its line; see [`Error`].
///
/// ```
/// use tenure_formats::csv;
///
/// let text = "id,lower,upper,size\na,0,4,100\nb,2,6,50\n";
/// let table = csv::read(text.as_bytes(), &csv::Options::default())?;
/// assert_eq!(table.rows()[1].upper, 6);
///
/// let mut out = Vec::new();
/// table.write_with_offsets(&[0, 100], &mut out)?;
/// assert_eq!(out, b"id,lower,upper,size,offset\na,0,4,100,0\nb,2,6,50,100\n");
/// # Ok::<(), csv::Error>(())
/// ```
pub fn read(mut input: impl Read, options: &Options) -> Result<Table, Error> {
    let magic = head(&mut input, 2)?;
    let gzip = magic == [0x1f, 0x8b];
    let input = Cursor::new(magic).chain(input);
    if gzip {
        read_text(Unzipped(MultiGzDecoder::new(input)), options)
    } else {
        read_text(input, options)
    }
}

/// The first `count` bytes, or fewer at the end of the input.
fn head(input: &mut impl Read, count: u64) -> Result<Vec<u8>, Error> {
    let mut head = Vec::new();
    input
        .take(count)
        .read_to_end(&mut head)
        .map_err(|error| from_io(error, 1))?;
    Ok(head)
}

fn read_text(mut input: impl Read, options: &Options) -> Result<Table, Error> {
    let mut head = head(&mut input, 3)?;
    if head == "\u{feff}".as_bytes() {
        head.clear();
    }
    let input = Cursor::new(head).chain(input);
    let (guarded, record_start) = Guarded::new(input, options.max_bytes);
    // The carriage return of `\r\n` is trimmed with the other spaces.
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .terminator(Terminator::Any(b'\n'))
        .from_reader(guarded);
    let mut table = Table {
        rows: Vec::new(),
        header: StringRecord::new(),
        fields: Fields::default(),
    };
    let read = read_rows(&mut reader, &record_start, options, &mut table);
    // An id that stands twice comes before a fault further down.
    first_twice(&table.rows)?;
    read.map(|()| table)
}

/// Reads header and rows up to the first fault.
fn read_rows<R: Read>(
    reader: &mut ::csv::Reader<R>,
    record_start: &Cell<u64>,
    options: &Options,
    table: &mut Table,
) -> Result<(), Error> {
    let mut columns: Option<Columns> = None;
    let mut record = StringRecord::new();
    loop {
        let start = reader.position().byte();
        record_start.set(start);
        let next_line = reader.position().line();
        let more = reader
            .read_record(&mut record)
            .map_err(|error| from_csv(error, next_line))?;
        if !more {
            break;
        }
        // The reader skips empty lines silently, so its own position would be theirs.
        let inside = record
            .as_slice()
            .bytes()
            .filter(|&byte| byte == b'\n')
            .count() as u64;
        let line = next_line.max(reader.position().line().saturating_sub(inside + 1));
        if reader.position().byte() - start > MAX_LINE {
            return Err(Error::LineTooLong { line });
        }
        // Some of them count as spaces, so before those are cut off.
        if let Some(control) = unreadable(record.as_slice()) {
            return Err(Error::Control { line, control });
        }
        record.trim();
        if record.len() == 1 && record.get(0) == Some("") {
            continue;
        }
        let Some(columns) = &columns else {
            columns = Some(Columns::find(&record, line, options.times)?);
            table.header = record.clone();
            continue;
        };
        if table.rows.len() == options.max_rows {
            let max_rows = options.max_rows;
            return Err(Error::TooManyRows { line, max_rows });
        }
        let row = columns.row(&record, line)?;
        table.rows.push(row);
        table.fields.push(&record);
    }
    match columns {
        Some(_) => Ok(()),
        None => Err(Error::MissingHeader),
    }
}

/// The first control character that is no tab and no line end.
fn unreadable(text: &str) -> Option<char> {
    let mut controls = text.chars().filter(|c| c.is_control());
    controls.find(|c| !matches!(c, '\t' | '\r' | '\n'))
}

/// Refuses an id that stands on two lines.
fn first_twice(rows: &[Row]) -> Result<(), Error> {
    let mut lines: HashMap<&str, u64> = HashMap::with_capacity(rows.len());
    for row in rows {
        if let Some(first) = lines.insert(&row.id, row.line) {
            return Err(Error::DuplicateId {
                line: row.line,
                first,
                id: shortened(&row.id),
            });
        }
    }
    Ok(())
}

/// Where each column stands.
struct Columns {
    count: usize,
    times: Times,
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
    alignment: Option<usize>,
    offset: Option<usize>,
    gaps: Option<usize>,
}

impl Columns {
    fn find(header: &StringRecord, line: u64, times: Times) -> Result<Self, Error> {
        let exactly = |name: &str| header.iter().position(|column| column == name);
        let position = |name: &str| {
            let also = ALSO.iter().filter(|(column, _)| *column == name);
            let mut also = also.filter_map(|(_, also)| exactly(also));
            exactly(name).or_else(|| also.next())
        };
        let [lower, upper] = times.columns();
        let [other_lower, other_upper] = times.other().columns();
        let names = ["id", "size", lower, upper, other_lower, other_upper];
        if names.into_iter().all(|name| position(name).is_none()) {
            return Err(Error::MissingHeader);
        }
        let mut names = HashSet::new();
        let mut named = header.iter().filter(|name| !name.is_empty());
        if let Some(name) = named.find(|name| !names.insert(*name)) {
            return Err(Error::DuplicateColumn {
                line,
                column: shortened(name),
            });
        }
        let other = position(other_lower).is_some() && position(other_upper).is_some();
        let needed = |column: &'static str| {
            let is_time = column == lower || column == upper;
            position(column).ok_or(Error::MissingColumn {
                line,
                column,
                hint: match times {
                    Times::HalfOpen if is_time && other => {
                        "; `start,end` with the end included are read with --inclusive"
                    }
                    Times::Inclusive if is_time && other => {
                        "; `lower,upper` are half-open and read without --inclusive"
                    }
                    _ => "",
                },
            })
        };
        Ok(Columns {
            count: header.len(),
            times,
            id: needed("id")?,
            lower: needed(lower)?,
            upper: needed(upper)?,
            size: needed("size")?,
            alignment: position("alignment"),
            offset: position("offset"),
            gaps: position("gaps"),
        })
    }

    fn row(&self, record: &StringRecord, line: u64) -> Result<Row, Error> {
        if record.len() != self.count {
            return Err(Error::FieldCount {
                line,
                expected: self.count,
                found: record.len(),
                hint: match record.as_slice().contains('\n') {
                    true => "; a quote on it is closed on another line, or not at all",
                    false => "",
                },
            });
        }
        let required = |at: usize, column| number(&record[at], column, line);
        let optional = |at: Option<usize>, column| match at.map(|at| &record[at]) {
            None | Some("") => Ok(None),
            Some(text) => number(text, column, line).map(Some),
        };
        let [lower_name, upper_name] = self.times.columns();
        let lower = required(self.lower, lower_name)?;
        let stated = required(self.upper, upper_name)?;
        let upper = match self.times {
            Times::HalfOpen => stated,
            Times::Inclusive => stated.checked_add(1).ok_or_else(|| Error::BadNumber {
                line,
                column: upper_name,
                text: shortened(&record[self.upper]),
                fault: NumberFault::Overflow,
            })?,
        };
        if upper <= lower {
            return Err(Error::EmptyLifetime {
                line,
                column: upper_name,
                lower,
                upper: stated,
            });
        }
        let alignment = optional(self.alignment, "alignment")?.unwrap_or(1);
        if alignment == 0 {
            return Err(Error::ZeroAlignment { line });
        }
        let gaps = self.gaps.map_or("", |at| &record[at]);
        Ok(Row {
            id: record[self.id].to_owned(),
            lower,
            upper,
            size: required(self.size, "size")?,
            alignment,
            offset: optional(self.offset, "offset")?,
            gaps: read_gaps(gaps, self.times, lower..upper, line)?,
            line,
        })
    }
}

/// Reads `2-4 6-9`, in any order, each end meant as that of the lifetime; the result is sorted.
fn read_gaps(
    text: &str,
    times: Times,
    life: Range<u64>,
    line: u64,
) -> Result<Vec<(u64, u64)>, Error> {
    let bad = |text: &str, reason| Error::BadGap {
        line,
        text: shortened(text),
        reason,
    };
    let mut gaps = Vec::new();
    for word in text.split_whitespace() {
        if word.contains('@') {
            return Err(bad(word, "lends out some of the bytes; only all can be"));
        }
        let (from, to) = word
            .split_once('-')
            .ok_or_else(|| bad(word, "is not of the form lower-upper"))?;
        let (from, to) = (number(from, "gaps", line)?, number(to, "gaps", line)?);
        let to = match times {
            Times::HalfOpen => to,
            Times::Inclusive => to
                .checked_add(1)
                .ok_or_else(|| bad(word, "is outside the lifetime"))?,
        };
        if from >= to {
            return Err(bad(
                word,
                "is empty: its upper end is not after the lower one",
            ));
        }
        if from < life.start || to > life.end {
            return Err(bad(word, "is outside the lifetime"));
        }
        gaps.push((from, to));
    }
    gaps.sort_unstable();
    if gaps.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(bad(text, "has parts that overlap"));
    }
    let lent: u64 = gaps.iter().map(|(from, to)| to - from).sum();
    if lent == life.end - life.start {
        return Err(bad(
            text,
            "covers the whole lifetime; leave the buffer out instead",
        ));
    }
    Ok(gaps)
}

fn number(text: &str, column: &'static str, line: u64) -> Result<u64, Error> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fault = match text.strip_prefix('-') {
        Some(rest) if digits(rest) => NumberFault::Negative,
        None if digits(text) => match text.parse() {
            Ok(number) => return Ok(number),
            Err(_) => NumberFault::Overflow,
        },
        _ => NumberFault::NotANumber,
    };
    Err(Error::BadNumber {
        line,
        column,
        text: shortened(text),
        fault,
    })
}

/// Text of the file for a message: at most 40 characters, control characters escaped.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    short
}

/// An error of the CSV reader, in the record that begins on a line.
fn from_csv(error: ::csv::Error, line: u64) -> Error {
    let at = error.position().map_or(line, ::csv::Position::line);
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => from_io(error, line),
        ::csv::ErrorKind::Utf8 { .. } => Error::NotText { line: at },
        other => Error::Io(io::Error::other(format!("{other:?}"))),
    }
}

fn from_io(error: io::Error, line: u64) -> Error {
    let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
    match fault {
        Some(Fault::Line) => Error::LineTooLong { line },
        Some(&Fault::Bytes(max_bytes)) => Error::TooLarge { max_bytes },
        Some(Fault::Gzip(reason)) => Error::Damaged {
            line,
            reason: reason.clone(),
        },
        None => Error::Io(error),
    }
}

#[cfg(test)]
mod tests;
