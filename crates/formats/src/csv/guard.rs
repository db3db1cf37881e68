//! The bytes of a table on their way to the CSV reader, bounded, with faults of the content told from
//! faults of the file.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use super::MAX_LINE;

/// What is wrong with the input, carried through the CSV reader inside an I/O error.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the line is too long")]
    Line,
    #[error("more than {0} bytes")]
    Bytes(u64),
    #[error("{0}")]
    Gzip(String),
}

/// Tells what the decompressor says of the content from errors of the file below it.
pub(super) struct Unzipped<R>(pub(super) R);

impl<R: Read> Read for Unzipped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        self.0.read(buffer).map_err(|error| match error.kind() {
            InvalidData | InvalidInput | UnexpectedEof => {
                io::Error::other(Fault::Gzip(error.to_string()))
            }
            _ => error,
        })
    }
}

/// Stops the input before a record without an end, or too many bytes, fill the memory.
pub(super) struct Guarded<R> {
    input: R,
    total: u64,
    max_bytes: u64,
    /// Where the record that is being read begins.
    record_start: Rc<Cell<u64>>,
    /// The last byte given; a missing newline at the end is supplied.
    last: u8,
}

impl<R> Guarded<R> {
    /// The guard, and where the caller says at which byte the record that it reads begins.
    pub(super) fn new(input: R, max_bytes: u64) -> (Self, Rc<Cell<u64>>) {
        let record_start = Rc::new(Cell::new(0));
        let guarded = Guarded {
            input,
            total: 0,
            max_bytes,
            record_start: Rc::clone(&record_start),
            last: b'\n',
        };
        (guarded, record_start)
    }
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.total - self.record_start.get() > MAX_LINE {
            return Err(io::Error::other(Fault::Line));
        }
        let mut count = self.input.read(buffer)?;
        if count == 0 && self.last != b'\n' && !buffer.is_empty() {
            buffer[0] = b'\n';
            count = 1;
        }
        if count > 0 {
            self.last = buffer[count - 1];
        }
        self.total += count as u64;
        if self.total > self.max_bytes {
            return Err(io::Error::other(Fault::Bytes(self.max_bytes)));
        }
        Ok(count)
    }
}
