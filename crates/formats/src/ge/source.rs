//! The file that a message is read from: what is wrong with it is told with the place.

use bytes::Bytes;

use crate::error::{FormatError, Spot};
use crate::wire::{Broken, Field, Message, Wire};

/// The file, and what messages call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a Bytes,
    pub(super) what: &'static str,
}

impl<'a> Source<'a> {
    /// The error for a place in the file.
    pub(super) fn damaged(self, at: usize, problem: impl Into<String>) -> FormatError {
        FormatError::DamagedAt {
            what: self.what,
            at: Spot::Byte(at as u64),
            problem: problem.into(),
        }
    }

    /// The fields of a message, one after the other.
    pub(super) fn fields(
        self,
        message: Message<'a>,
    ) -> impl Iterator<Item = Result<Field<'a>, FormatError>> {
        message
            .fields()
            .map(move |field| field.map_err(|e| self.broken(e)))
    }

    fn broken(self, broken: Broken) -> FormatError {
        self.damaged(broken.at, broken.problem)
    }

    /// A field of another kind than the schema has under its number.
    fn other(self, field: &Field<'_>, what: &str) -> FormatError {
        self.damaged(
            field.at,
            format!("field {} should hold {what}", field.number),
        )
    }

    /// A message, text, or bytes.
    pub(super) fn inside(self, field: &Field<'a>) -> Result<Message<'a>, FormatError> {
        match field.value {
            Wire::Bytes(message) => Ok(message),
            _ => Err(self.other(field, "a message or text")),
        }
    }

    /// Text. What is no UTF-8 is shown with marks in its place.
    pub(super) fn text(self, field: &Field<'a>) -> Result<String, FormatError> {
        let bytes = self.inside(field)?.bytes();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Bytes, as a slice of the file.
    pub(super) fn slice(self, field: &Field<'a>) -> Result<Bytes, FormatError> {
        Ok(self.file.slice_ref(self.inside(field)?.bytes()))
    }

    /// A whole number.
    pub(super) fn number(self, field: &Field<'_>) -> Result<i64, FormatError> {
        match field.value {
            Wire::Varint(number) => Ok(number.cast_signed()),
            _ => Err(self.other(field, "a number")),
        }
    }

    /// A truth value.
    pub(super) fn flag(self, field: &Field<'_>) -> Result<bool, FormatError> {
        Ok(self.number(field)? != 0)
    }

    /// Adds the whole numbers of a field of a list: one, or several packed together.
    pub(super) fn numbers(self, field: &Field<'a>, to: &mut Vec<i64>) -> Result<(), FormatError> {
        match field.value {
            Wire::Varint(number) => to.push(number.cast_signed()),
            Wire::Bytes(packed) => {
                for number in packed.varints() {
                    to.push(number.map_err(|e| self.broken(e))?.cast_signed());
                }
            }
            _ => return Err(self.other(field, "numbers")),
        }
        Ok(())
    }

    /// Adds the 32-bit floats of a field of a list: one, or several packed together.
    pub(super) fn floats(self, field: &Field<'a>, to: &mut Vec<f32>) -> Result<(), FormatError> {
        match field.value {
            Wire::Fixed32(bits) => to.push(f32::from_bits(bits)),
            Wire::Bytes(packed) => {
                let (whole, rest) = packed.bytes().as_chunks();
                if !rest.is_empty() {
                    return Err(self.other(field, "32-bit numbers"));
                }
                to.extend(whole.iter().map(|&b| f32::from_le_bytes(b)));
            }
            _ => return Err(self.other(field, "numbers")),
        }
        Ok(())
    }
}
