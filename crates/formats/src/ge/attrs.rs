//! Attributes of nodes, tensors and graphs, and the codes that newer compiled models write in place
//! of their names.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use tenure_graph::verify::MAX_ATTR_DEPTH;
use tenure_graph::{Attr, Attrs, DType, INLINE_BYTES, Tensor, TensorData};

use super::source::Source;
use super::types;
use crate::error::{FormatError, quoted};
use crate::onnx::MAX_ATTRIBUTES;
use crate::wire::{Field, Message};

/// How many elements a list may have to be kept: memory depends on none that is longer.
const LONGEST_LIST: usize = 1 << 16;

/// Names and texts that a model writes once and refers to by number.
#[derive(Debug, Default)]
pub(super) struct Codes {
    /// Whether the model uses codes at all.
    used: bool,
    names: Vec<Arc<str>>,
    /// Whether the values of the attribute of that number are numbers of texts.
    of_texts: Vec<bool>,
    texts: Vec<String>,
}

impl Codes {
    /// The codes that the attributes of a model say.
    pub(super) fn of(model: &Attrs) -> Self {
        let list = |key: &str| match model.get(key) {
            Some(Attr::List(items)) => items.as_slice(),
            _ => &[],
        };
        let texts = |key: &str| {
            list(key)
                .iter()
                .map(|item| item.as_str().unwrap_or_default().to_owned())
                .collect::<Vec<String>>()
        };
        let flags = list("attrs_use_string_value").iter();
        Codes {
            used: model.int("om_compress_version").is_some(),
            names: texts("attr_name_enum").into_iter().map(Arc::from).collect(),
            of_texts: flags.map(|f| f.as_bool() == Some(true)).collect(),
            texts: texts("attr_value_enum"),
        }
    }

    /// The number that a key stands for: its bytes after the first, which is 0, are digits of base
    /// 127, the least first, each with 1 added; `None` for a literal name.
    fn number(key: &[u8]) -> Option<Result<usize, ()>> {
        let digits = key.strip_prefix(b"\0")?;
        let digit = |value: usize, &byte: &u8| {
            let digit = usize::from(byte).checked_sub(1).filter(|&d| d < 127);
            value.checked_mul(127)?.checked_add(digit?)
        };
        Some(digits.iter().rev().try_fold(0, digit).ok_or(()))
    }
}

/// Reads attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) codes: &'a Codes,
}

/// Attributes of one thing under construction: a key that comes again takes the place of the one
/// before, as in every map of protobuf.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<(Arc<str>, Attr)>,
    places: HashMap<Arc<str>, usize>,
}

impl Entries {
    /// Adds one.
    pub(super) fn set(&mut self, name: Arc<str>, value: Attr) {
        match self.places.get(&name) {
            Some(&place) => self.list[place].1 = value,
            None => {
                self.places.insert(Arc::clone(&name), self.list.len());
                self.list.push((name, value));
            }
        }
    }

    /// All of them, sorted by name: their order in a file means nothing.
    pub(super) fn done(mut self) -> Attrs {
        self.list.sort_by(|a, b| a.0.cmp(&b.0));
        self.list.into_iter().collect()
    }
}

impl<'a> Reader<'a> {
    /// Adds an entry of a map of attributes.
    ///
    /// # Errors
    /// Damage, a code that the model does not explain, nesting without end.
    pub(super) fn entry(self, field: &Field<'a>, to: &mut Entries) -> Result<(), FormatError> {
        self.nested_entry(field, to, 0)
    }

    fn nested_entry(
        self,
        field: &Field<'a>,
        to: &mut Entries,
        depth: usize,
    ) -> Result<(), FormatError> {
        let source = self.source;
        let (mut key, mut value) = (&b""[..], Attr::Null);
        for inner in source.fields(source.inside(field)?) {
            let inner = inner?;
            match inner.number {
                1 => key = source.inside(&inner)?.bytes(),
                2 => value = self.value(source.inside(&inner)?, depth)?,
                _ => {}
            }
        }
        let (name, value) = match Codes::number(key) {
            None => (String::from_utf8_lossy(key).into(), value),
            Some(number) => self.decoded(number, value, field.at)?,
        };
        if to.list.len() >= MAX_ATTRIBUTES && !to.places.contains_key(&name) {
            let problem = format!("more than {MAX_ATTRIBUTES} attributes of one thing");
            return Err(source.damaged(field.at, problem));
        }
        to.set(name, value);
        Ok(())
    }

    /// Name and value behind a code.
    fn decoded(
        self,
        number: Result<usize, ()>,
        value: Attr,
        at: usize,
    ) -> Result<(Arc<str>, Attr), FormatError> {
        let codes = self.codes;
        let fail = |problem: String| self.source.damaged(at, problem);
        let Ok(number) = number else {
            return Err(fail("the code of an attribute is too long".to_owned()));
        };
        let Some(name) = codes.names.get(number).filter(|_| codes.used) else {
            return Err(fail(format!(
                "attribute number {number} has no name: the model lists {} under \
                 \"attr_name_enum\"",
                codes.names.len()
            )));
        };
        if codes.of_texts.get(number) != Some(&true) {
            return Ok((Arc::clone(name), value));
        }
        let text = |value: &Attr| {
            let place = value.as_int().and_then(|i| usize::try_from(i).ok());
            let text = place.and_then(|i| codes.texts.get(i));
            text.cloned().map(Attr::Str).ok_or_else(|| {
                fail(format!(
                    "attribute {} has a text that is not listed under \"attr_value_enum\"",
                    quoted(name)
                ))
            })
        };
        let value = match &value {
            Attr::List(items) => Attr::List(items.iter().map(text).collect::<Result<_, _>>()?),
            Attr::Null => Attr::Null,
            one => text(one)?,
        };
        Ok((Arc::clone(name), value))
    }

    /// The value of an attribute. Graphs in attributes and what is not known become empty; so does
    /// what is long and has no bearing on memory: code, long lists.
    fn value(self, message: Message<'a>, depth: usize) -> Result<Attr, FormatError> {
        let source = self.source;
        if depth >= MAX_ATTR_DEPTH {
            let problem = format!("attributes are nested more than {MAX_ATTR_DEPTH} deep");
            return Err(source.damaged(message.start(), problem));
        }
        let mut value = Attr::Null;
        for field in source.fields(message) {
            let field = field?;
            value = match field.number {
                1 => self.list(source.inside(&field)?, depth + 1)?,
                2 | 17 => text(source.slice(&field)?),
                3 | 15 => Attr::Int(source.number(&field)?),
                4 => self.float(&field)?,
                5 => Attr::Bool(source.flag(&field)?),
                7 => short(source.slice(&field)?),
                10 => self.named(&field, depth + 1)?,
                12 => self.tensor(source.inside(&field)?)?,
                14 => self.rows(source.inside(&field)?, false)?,
                16 => self.rows(source.inside(&field)?, true)?,
                _ => value,
            };
        }
        Ok(value)
    }

    fn float(self, field: &Field<'a>) -> Result<Attr, FormatError> {
        let mut floats = Vec::new();
        self.source.floats(field, &mut floats)?;
        Ok(Attr::Float(floats.last().copied().unwrap_or(0.0).into()))
    }

    /// A list. Which of its members is filled says what it holds: old files state nothing else.
    fn list(self, message: Message<'a>, depth: usize) -> Result<Attr, FormatError> {
        let source = self.source;
        let mut items = Vec::new();
        for field in source.fields(message) {
            let field = field?;
            match field.number {
                2 => items.push(text(source.slice(&field)?)),
                3 | 12 => {
                    let mut numbers = Vec::new();
                    source.numbers(&field, &mut numbers)?;
                    items.extend(numbers.into_iter().map(Attr::Int));
                }
                4 => {
                    let mut floats = Vec::new();
                    source.floats(&field, &mut floats)?;
                    items.extend(floats.into_iter().map(|f| Attr::Float(f.into())));
                }
                5 => {
                    let mut flags = Vec::new();
                    source.numbers(&field, &mut flags)?;
                    items.extend(flags.into_iter().map(|f| Attr::Bool(f != 0)));
                }
                7 => items.push(short(source.slice(&field)?)),
                9 => items.push(self.tensor(source.inside(&field)?)?),
                11 => items.push(self.named(&field, depth)?),
                _ => {}
            }
            if items.len() > LONGEST_LIST {
                return Ok(Attr::Null);
            }
        }
        Ok(Attr::List(items))
    }

    /// A list of lists, of floats or of whole numbers.
    fn rows(self, message: Message<'a>, of_floats: bool) -> Result<Attr, FormatError> {
        let source = self.source;
        let mut rows = Vec::new();
        let mut length = 0;
        for row in source.fields(message) {
            let row = row?;
            let mut items = Vec::new();
            for field in source.fields(source.inside(&row)?) {
                let field = field?;
                let (mut numbers, mut floats) = (Vec::new(), Vec::new());
                match of_floats {
                    true => source.floats(&field, &mut floats)?,
                    false => source.numbers(&field, &mut numbers)?,
                }
                items.extend(numbers.into_iter().map(Attr::Int));
                items.extend(floats.into_iter().map(|f| Attr::Float(f.into())));
            }
            length += items.len() + 1;
            if length > LONGEST_LIST {
                return Ok(Attr::Null);
            }
            rows.push(Attr::List(items));
        }
        Ok(Attr::List(rows))
    }

    /// Attributes under a name of their own.
    fn named(self, field: &Field<'a>, depth: usize) -> Result<Attr, FormatError> {
        let source = self.source;
        if depth >= MAX_ATTR_DEPTH {
            let problem = format!("attributes are nested more than {MAX_ATTR_DEPTH} deep");
            return Err(source.damaged(field.at, problem));
        }
        let mut entries = Entries::default();
        for inner in source.fields(source.inside(field)?) {
            let inner = inner?;
            match inner.number {
                1 => entries.set("name".into(), Attr::Str(source.text(&inner)?)),
                2 => self.nested_entry(&inner, &mut entries, depth + 1)?,
                _ => {}
            }
        }
        Ok(Attr::Map(entries.done()))
    }

    /// A constant tensor. Contents that are not what type and shape ask for lie elsewhere: among the
    /// weights of a compiled model, or in a layout of their own.
    fn tensor(self, message: Message<'a>) -> Result<Attr, FormatError> {
        let source = self.source;
        let (mut dtype, mut dims, mut data) = (DType::Unknown, Vec::new(), Bytes::new());
        for field in source.fields(message) {
            let field = field?;
            match field.number {
                1 => {
                    for inner in source.fields(source.inside(&field)?) {
                        let inner = inner?;
                        match inner.number {
                            2 => dtype = element(source, &inner, types::element)?,
                            3 => dims = shape(source, &inner)?,
                            _ => {}
                        }
                    }
                }
                2 => data = source.slice(&field)?,
                _ => {}
            }
        }
        let shape: Option<Vec<u64>> = dims.into_iter().map(|d| u64::try_from(d).ok()).collect();
        let Some(shape) = shape else {
            return Ok(Attr::Null);
        };
        let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let expected = elements.and_then(|n| dtype.bytes(n));
        let data = match expected {
            Some(bytes) if bytes == data.len() as u64 => TensorData::Bytes(data),
            _ => TensorData::Absent,
        };
        Ok(Attr::Tensor(Arc::new(Tensor { dtype, shape, data })))
    }
}

/// The dimensions in a field that holds a shape.
pub(super) fn shape<'a>(source: Source<'a>, field: &Field<'a>) -> Result<Vec<i64>, FormatError> {
    let mut dims = Vec::new();
    for dim in source.fields(source.inside(field)?) {
        let dim = dim?;
        if dim.number == 1 {
            source.numbers(&dim, &mut dims)?;
        }
    }
    Ok(dims)
}

/// The element type in a field that holds its number.
pub(super) fn element(
    source: Source<'_>,
    field: &Field<'_>,
    of: impl Fn(u64) -> Option<DType>,
) -> Result<DType, FormatError> {
    let number = source.number(field)?;
    let dtype = u64::try_from(number).ok().and_then(of);
    dtype.ok_or_else(|| source.damaged(field.at, format!("element type {number} is not known")))
}

/// Text, or bytes where they are none.
fn text(bytes: Bytes) -> Attr {
    match std::str::from_utf8(&bytes) {
        Ok(text) => Attr::Str(text.to_owned()),
        Err(_) => short(bytes),
    }
}

/// Bytes, if they are few: many are the code of a kernel.
fn short(bytes: Bytes) -> Attr {
    match bytes.len() as u64 {
        0..=INLINE_BYTES => Attr::Bytes(bytes),
        _ => Attr::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbers_of_base_127() {
        let number = |key: &[u8]| Codes::number(key);
        assert_eq!(number(b"value"), None);
        assert_eq!(number(b"\0\x01"), Some(Ok(0)));
        assert_eq!(number(b"\0\x03"), Some(Ok(2)));
        assert_eq!(number(b"\0\x7f\x02"), Some(Ok(126 + 127)));
        assert_eq!(number(b"\0\x80"), Some(Err(())), "no digit of base 127");
        assert_eq!(number(b"\0\x02\0"), Some(Err(())), "no digit of base 127");
        assert_eq!(
            number(&[b"\0".as_slice(), &[9; 40]].concat()),
            Some(Err(()))
        );
    }
}
