//! The wire format of protobuf, read and written field by field without a schema: positions in the
//! file are kept, nothing is copied, and nothing is read that is not asked for.
//!
//! A message is a stretch of the file. Its fields are looked at one after the other; a field that
//! holds a message is a stretch again. So a reader takes no memory for what it does not keep.

/// Wire types of protobuf.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LEN: u8 = 2;
const FIXED32: u8 = 5;

/// A place at which bytes are no protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Offset in the file.
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) problem: String,
}

/// A stretch of a file that holds the fields of a message, or text, or numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    file: &'a [u8],
    start: usize,
    end: usize,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// Its number in the schema.
    pub(crate) number: u64,
    /// What it holds.
    pub(crate) value: Wire<'a>,
    /// Offset in the file.
    pub(crate) at: usize,
    /// Offset of the next field.
    pub(crate) end: usize,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire<'a> {
    /// A number of variable length: integers, truth values, enumerations.
    Varint(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Eight bytes, which nothing that is read has.
    Fixed64,
    /// A message, text, bytes, or several numbers.
    Bytes(Message<'a>),
}

impl<'a> Message<'a> {
    /// The whole file as one message.
    pub(crate) fn whole(file: &'a [u8]) -> Self {
        Message {
            file,
            start: 0,
            end: file.len(),
        }
    }

    /// A part of a file; `None` when the file ends before it does.
    pub(crate) fn part(file: &'a [u8], start: usize, size: usize) -> Option<Self> {
        let end = start.checked_add(size).filter(|&end| end <= file.len())?;
        Some(Message { file, start, end })
    }

    /// Its bytes.
    pub(crate) fn bytes(self) -> &'a [u8] {
        &self.file[self.start..self.end]
    }

    /// Offset of its first byte in the file.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// Its fields in the order of the file, ending with the first that is broken.
    pub(crate) fn fields(self) -> impl Iterator<Item = Result<Field<'a>, Broken>> {
        let mut at = self.start;
        std::iter::from_fn(move || {
            if at >= self.end {
                return None;
            }
            let field = self.field(at);
            at = field.as_ref().map_or(self.end, |f| f.end);
            Some(field)
        })
    }

    /// Its bytes as numbers of variable length, one after the other (a packed list).
    pub(crate) fn varints(self) -> impl Iterator<Item = Result<u64, Broken>> {
        let mut at = self.start;
        std::iter::from_fn(move || {
            if at >= self.end {
                return None;
            }
            let number = self.varint(at).ok_or_else(|| self.cut(at));
            at = number.as_ref().map_or(self.end, |n| n.1);
            Some(number.map(|n| n.0))
        })
    }

    /// The field that begins at `at`.
    fn field(self, at: usize) -> Result<Field<'a>, Broken> {
        let cut = || self.cut(at);
        let (tag, body) = self.varint(at).ok_or_else(cut)?;
        let no_field = || Broken {
            at,
            problem: "begins no field".to_owned(),
        };
        if tag >> 3 == 0 {
            return Err(no_field());
        }
        let (value, end) = match u8::try_from(tag & 7).unwrap_or(u8::MAX) {
            VARINT => {
                let (number, end) = self.varint(body).ok_or_else(cut)?;
                (Wire::Varint(number), end)
            }
            FIXED64 => {
                let _bytes: [u8; 8] = self.array(body).ok_or_else(cut)?;
                (Wire::Fixed64, body + 8)
            }
            FIXED32 => {
                let bytes = self.array(body).ok_or_else(cut)?;
                (Wire::Fixed32(u32::from_le_bytes(bytes)), body + 4)
            }
            LEN => {
                let (length, start) = self.varint(body).ok_or_else(cut)?;
                let there = self.end - start;
                let length = usize::try_from(length).ok().filter(|&l| l <= there);
                let end = start + length.ok_or_else(|| self.short(at, tag, body, there))?;
                let file = self.file;
                (Wire::Bytes(Message { file, start, end }), end)
            }
            _ => return Err(no_field()),
        };
        Ok(Field {
            number: tag >> 3,
            value,
            at,
            end,
        })
    }

    /// What is said of a field that is longer than what is left for it.
    fn short(self, at: usize, tag: u64, body: usize, there: usize) -> Broken {
        let length = self.varint(body).map_or(0, |(length, _)| length);
        let whole = if self.start == 0 && self.end == self.file.len() {
            "the file"
        } else {
            "the message around it"
        };
        Broken {
            at,
            problem: format!(
                "field {} has {length} bytes, but {whole} ends after {there} of them; it may be cut \
                 short",
                tag >> 3
            ),
        }
    }

    fn cut(self, at: usize) -> Broken {
        Broken {
            at,
            problem: format!(
                "it ends after {} bytes, in the middle of a field; it may be cut short",
                self.end
            ),
        }
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.file.get(at..self.end)?.first_chunk().copied()
    }

    /// The variable-length number at `at` and the position behind it.
    fn varint(self, at: usize) -> Option<(u64, usize)> {
        let mut value = 0u64;
        let bytes = self.file.get(at..self.end)?;
        for (i, &byte) in bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i).min(63);
            if byte < 0x80 {
                return Some((value, at + i + 1));
            }
        }
        None
    }
}

/// Writes a number of variable length.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

/// Writes a field that holds a number.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, VARINT);
    put_varint(out, value);
}

/// Writes a field that holds a 32-bit float.
pub(crate) fn put_float(out: &mut Vec<u8>, number: u32, value: f32) {
    put_tag(out, number, FIXED32);
    out.extend(value.to_le_bytes());
}

/// Writes a field that holds a message or text.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, LEN);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(bytes: &[u8]) -> Broken {
        let fields = Message::whole(bytes).fields();
        let error = fields.filter_map(Result::err).next();
        error.unwrap_or_else(|| panic!("{bytes:?} is whole"))
    }

    #[test]
    fn fields_have_their_places() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, 0x01, 0x02, 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0,
        ];
        let fields: Vec<_> = Message::whole(&bytes).fields().collect();
        let seen: Vec<_> = (fields.iter())
            .map(|f| f.as_ref().map(|f| (f.number, f.at, f.end)).unwrap())
            .collect();
        assert_eq!(seen, [(1, 0, 3), (2, 3, 7), (3, 7, 12), (4, 12, 21)]);
        let Wire::Bytes(packed) = fields[1].as_ref().unwrap().value else {
            panic!("{fields:?}");
        };
        let numbers: Vec<_> = packed.varints().map(Result::unwrap).collect();
        assert_eq!((packed.start(), numbers), (5, vec![1, 2]));
    }

    #[test]
    fn says_where_a_message_breaks_off() {
        let cut = broken(&[0x08, 0x0a, 0x3a, 0x07, 0x12, 0x00]);
        assert_eq!(cut.at, 2);
        assert!(cut.problem.contains("field 7 has 7 bytes"), "{cut:?}");
        assert!(cut.problem.contains("after 2 of them"), "{cut:?}");
        assert!(broken(&[0x08]).problem.contains("after 1 bytes"));
        let none = broken(&[0x08, 0x0a, 0x07]);
        assert_eq!((none.at, &*none.problem), (2, "begins no field"));
        broken(&[0x25, 0, 0, 0]);
        broken(&[0x21, 0, 0, 0, 0]);
        broken(&[[0x3a].as_slice(), &[0xff; 12]].concat());
        let huge = broken(&[[0x3a].as_slice(), &[0xff; 9], &[0x01]].concat());
        assert!(huge.problem.contains("18446744073709551615 bytes"));
    }
}
