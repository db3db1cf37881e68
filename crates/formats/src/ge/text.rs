//! The text form of protobuf, translated to the binary form, so that one decoder reads both.
//!
//! The whole grammar of the text form is accepted: `field: value`, `message {` … `}` or `<` … `>`,
//! lists in brackets, commas and semicolons between fields, comments, numbers in three bases,
//! strings in pieces with all their escapes. Fields that the schema does not name are passed over.
//!
//! Open messages are kept in a list, not on the call stack, and there may be [`MAX_OPEN`] of them.
//! The translation is never more than a few times as long as the text.

use super::lexer::{Lexer, Token};
use super::schema::{self, FieldDef, Holds, Schema};
use crate::error::{FormatError, Spot};
use crate::wire::{put_bytes, put_float, put_number};

/// How many messages may be open at a time: as many as decoders of protobuf commonly follow.
const MAX_OPEN: usize = 100;

/// How much of a text is looked at to tell what it is.
const MOST_WORDS: usize = 100_000;

/// Which dump a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// The text form of `ge.proto`.
    Proto,
    /// The form that is styled after ONNX.
    Onnx,
    /// The form for people, which says too little to plan by.
    Readable,
}

/// Tells what a text is by the names of its outermost fields; `None` for any other text.
pub(crate) fn probe(text: &[u8]) -> Option<Dump> {
    let mut lexer = Lexer::new(text);
    let mut depth = 0usize;
    let mut in_graph = false;
    let mut word: Option<&[u8]> = None;
    for _ in 0..MOST_WORDS {
        let token = lexer.next().ok()?;
        match token {
            Token::Mark(b'(') if depth == 0 && word == Some(b"graph") => {
                return Some(Dump::Readable);
            }
            Token::Mark(b'{' | b'<') => {
                let word = word.take();
                match (depth, word) {
                    (0, word) => in_graph = word == Some(b"graph"),
                    (1, Some(b"op")) if in_graph => return Some(Dump::Proto),
                    (1, Some(b"node")) if in_graph => return Some(Dump::Onnx),
                    _ => {}
                }
                depth += 1;
            }
            Token::Mark(b'}' | b'>') => depth = depth.checked_sub(1)?,
            Token::Word(name) => {
                let known = schema::MODEL.field(name).is_some() || ONNX_ONLY.contains(&name);
                if depth == 0 && word.is_none() && !known {
                    return None;
                }
                word = Some(name);
            }
            // A value of a field stands behind its colon; the next word is a field again.
            Token::Text(_) | Token::Number(_) => word = None,
            Token::Mark(_) => {}
            Token::End => return in_graph.then_some(Dump::Proto),
        }
    }
    None
}

/// Outermost fields of the ONNX-styled dump alone.
const ONNX_ONLY: &[&[u8]] = &[b"ir_version", b"producer_name", b"model_version"];

/// The binary form of a message that stands in a text.
///
/// # Errors
/// Text that is not of the form, or a value of another kind than its field: the line and what is
/// wrong.
pub(super) fn to_binary(text: &[u8], schema: &'static Schema) -> Result<Vec<u8>, FormatError> {
    let mut translator = Translator {
        lexer: Lexer::new(text),
        open: vec![Open::Message(OpenMessage {
            schema: Some(schema),
            number: 0,
            bytes: Vec::new(),
            close: None,
        })],
    };
    translator.run().map_err(|problem| FormatError::DamagedAt {
        what: "text dump of Graph Engine",
        at: Spot::Line(translator.lexer.line()),
        problem,
    })
}

/// Something that has begun and not ended.
enum Open<'a> {
    Message(OpenMessage),
    /// A list of values of one field.
    List(Name<'a>),
}

/// A message that has begun.
struct OpenMessage {
    /// What it may hold; `None` while it is passed over.
    schema: Option<&'static Schema>,
    /// The number of the field that it is.
    number: u32,
    /// The fields so far.
    bytes: Vec<u8>,
    /// The mark that ends it; `None` for the outermost, which ends with the text.
    close: Option<u8>,
}

/// The name of a field, and what it is; `None` where it is passed over.
#[derive(Clone, Copy)]
struct Name<'a> {
    text: &'a [u8],
    field: Option<&'static FieldDef>,
}

impl Name<'_> {
    /// "NAME takes …".
    fn takes(self, what: &str) -> String {
        format!("{:?} takes {what}", String::from_utf8_lossy(self.text))
    }
}

struct Translator<'a> {
    lexer: Lexer<'a>,
    open: Vec<Open<'a>>,
}

impl<'a> Translator<'a> {
    fn run(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let token = self.lexer.next()?;
            if let Some(&Open::List(name)) = self.open.last() {
                match token {
                    Token::Mark(b',') => {}
                    Token::Mark(b']') => drop(self.open.pop()),
                    token => self.value(name, token)?,
                }
                continue;
            }
            match token {
                Token::Mark(b',' | b';') => {}
                Token::Word(text) => {
                    let field = self.message().and_then(|m| m.schema?.field(text));
                    self.after(Name { text, field })?;
                }
                // The name of an extension, of which there are none.
                Token::Mark(b'[') => {
                    loop {
                        match self.lexer.next()? {
                            Token::Mark(b']') => break,
                            Token::End => return Err("a name in brackets has no end".to_owned()),
                            _ => {}
                        }
                    }
                    let text = b"an extension";
                    self.after(Name { text, field: None })?;
                }
                Token::End => return self.end(),
                Token::Mark(mark) => self.close(mark)?,
                Token::Text(_) | Token::Number(_) => {
                    return Err("a value stands where the name of a field should".to_owned());
                }
            }
        }
    }

    /// The innermost message.
    fn message(&mut self) -> Option<&mut OpenMessage> {
        self.open.iter_mut().rev().find_map(|open| match open {
            Open::Message(message) => Some(message),
            Open::List(_) => None,
        })
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        let inside = self.open.len().saturating_sub(1);
        match self.open.pop() {
            Some(Open::Message(root)) if inside == 0 => Ok(root.bytes),
            _ => Err(format!(
                "the text ends inside {inside} messages; it may be cut short"
            )),
        }
    }

    /// What follows the name of a field.
    fn after(&mut self, name: Name<'a>) -> Result<(), String> {
        let mut token = self.lexer.next()?;
        let colon = matches!(token, Token::Mark(b':'));
        if colon {
            token = self.lexer.next()?;
        }
        match token {
            Token::Mark(b'[') => self.push(Open::List(name)),
            Token::Mark(b'{' | b'<') => self.value(name, token),
            token if colon => self.value(name, token),
            _ => Err(name.takes("a colon and a value, or a message")),
        }
    }

    /// A value of a field: a message begins, or a plain value stands there.
    fn value(&mut self, name: Name<'a>, token: Token<'a>) -> Result<(), String> {
        let Token::Mark(mark @ (b'{' | b'<')) = token else {
            return self.scalar(name, token);
        };
        let schema = match name.field.map(|f| f.holds) {
            None => None,
            Some(Holds::Message(schema)) => Some(schema),
            Some(_) => return Err(name.takes("a value, but a message begins here")),
        };
        self.push(Open::Message(OpenMessage {
            schema,
            number: name.field.map_or(0, |f| f.number),
            bytes: Vec::new(),
            close: Some(if mark == b'{' { b'}' } else { b'>' }),
        }))
    }

    fn push(&mut self, open: Open<'a>) -> Result<(), String> {
        if self.open.len() > MAX_OPEN {
            return Err(format!(
                "messages are nested more than {MAX_OPEN} deep, which is not followed"
            ));
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, mark: u8) -> Result<(), String> {
        let fits = |open: &Open<'_>| matches!(open, Open::Message(m) if m.close == Some(mark));
        let Some(Open::Message(done)) = self.open.pop_if(|open| fits(open)) else {
            return Err(format!("'{}' does not belong here", mark.escape_ascii()));
        };
        if done.schema.is_some()
            && let Some(around) = self.message()
        {
            put_bytes(&mut around.bytes, done.number, &done.bytes);
        }
        Ok(())
    }

    fn scalar(&mut self, name: Name<'a>, token: Token<'a>) -> Result<(), String> {
        if matches!(token, Token::Mark(_) | Token::End) {
            return Err(name.takes("a value, and none stands here"));
        }
        let Some(field) = name.field else {
            return Ok(());
        };
        let number = field.number;
        let Some(message) = self.message() else {
            return Ok(());
        };
        let out = &mut message.bytes;
        match (field.holds, token) {
            (Holds::Number, Token::Word(b"true" | b"True" | b"t")) => put_number(out, number, 1),
            (Holds::Number, Token::Word(b"false" | b"False" | b"f")) => put_number(out, number, 0),
            (Holds::Number | Holds::Name(_), Token::Number(text)) => {
                let value = whole(text);
                let value = value.ok_or_else(|| name.takes("a whole number of 64 bits"))?;
                put_number(out, number, value);
            }
            (Holds::Name(names), Token::Word(word)) => {
                let known = names.iter().find(|(n, _)| n.as_bytes() == word);
                let (_, value) = known.ok_or_else(|| {
                    let word = String::from_utf8_lossy(word);
                    name.takes(&format!("a name out of a list that {word:?} is not in"))
                })?;
                put_number(out, number, u64::from(*value));
            }
            (Holds::Float, Token::Number(text) | Token::Word(text)) => {
                let value = float(text).ok_or_else(|| name.takes("a number"))?;
                put_float(out, number, value);
            }
            (Holds::Text, Token::Text(text)) => put_bytes(out, number, &text),
            (Holds::Number | Holds::Name(_) | Holds::Float, _) => {
                return Err(name.takes("a number"));
            }
            (Holds::Text, _) => return Err(name.takes("a text in quotes")),
            (Holds::Message(_), _) => return Err(name.takes("a message")),
        }
        Ok(())
    }
}

/// A whole number with or without a sign, in decimal, octal or hexadecimal digits, as the 64 bits
/// that stand for it.
fn whole(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let value = match (hex, digits.strip_prefix('0')) {
        (Some(hex), _) => u64::from_str_radix(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8),
        (None, _) => digits.parse(),
    };
    let value = value.ok()?;
    if negative {
        0i64.checked_sub_unsigned(value).map(i64::cast_unsigned)
    } else {
        Some(value)
    }
}

/// A number with or without a point, `inf` or `nan`; the letter `f` may follow the digits.
fn float(text: &[u8]) -> Option<f32> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_suffix(['f', 'F'])
        .filter(|t| t.ends_with(|c: char| c.is_ascii_digit() || c == '.'))
        .unwrap_or(text)
        .parse()
        .ok()
}
