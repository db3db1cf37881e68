//! Text to tokens, each with its place.

use super::{TextError, is_bare_char, is_word_char};

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A bare name.
    Word(String),
    /// A number as it is spelled.
    Number(String),
    /// A name or text in quotes.
    Str(String),
    /// `x"…"`.
    Bytes(Vec<u8>),
    /// `%…`.
    Value(String),
    /// `@…`.
    Node(String),
    /// `^…`.
    Graph(String),
    /// `::`.
    Path,
    /// Any other character.
    Mark(char),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Word(text) | Kind::Number(text) => write!(f, "{text:?}"),
            Kind::Str(text) => write!(f, "the text {text:?}"),
            Kind::Bytes(_) => f.write_str("bytes"),
            Kind::Value(name) => write!(f, "the value {name:?}"),
            Kind::Node(name) => write!(f, "the node {name:?}"),
            Kind::Graph(name) => write!(f, "the graph {name:?}"),
            Kind::Path => f.write_str("\"::\""),
            Kind::Mark(c) => write!(f, "{:?}", c.to_string()),
            Kind::End => f.write_str("the end"),
        }
    }
}

/// Line and column, from 1.
pub(super) type At = (u32, u32);

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: At,
    /// Whether it is the first of its line.
    pub(super) first: bool,
}

pub(super) fn error(at: At, problem: impl Into<String>) -> TextError {
    TextError {
        line: at.0,
        column: at.1,
        problem: problem.into(),
    }
}

/// Reads tokens one by one.
pub(super) struct Lexer<'a> {
    rest: std::str::Chars<'a>,
    at: At,
    first: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Lexer {
            rest: text.chars(),
            at: (1, 1),
            first: true,
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn peek_second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.at = (self.at.0.saturating_add(1), 1);
            self.first = true;
        } else {
            self.at.1 = self.at.1.saturating_add(1);
        }
        Some(c)
    }

    fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|&c| wanted(c)) {
            text.push(c);
            self.bump();
        }
        text
    }

    pub(super) fn next(&mut self) -> Result<Token, TextError> {
        loop {
            self.take_while(char::is_whitespace);
            if self.peek() != Some('#') {
                break;
            }
            self.take_while(|c| c != '\n');
        }
        let (at, first) = (self.at, self.first);
        self.first = false;
        let kind = self.kind(at)?;
        Ok(Token { kind, at, first })
    }

    fn kind(&mut self, at: At) -> Result<Kind, TextError> {
        let Some(c) = self.peek() else {
            return Ok(Kind::End);
        };
        Ok(match c {
            'x' if self.peek_second() == Some('"') => {
                self.bump();
                let digits = self.quoted(at)?;
                let bytes = crate::elements::from_hex(&digits).map_err(|e| error(at, e))?;
                Kind::Bytes(bytes.to_vec())
            }
            '"' => Kind::Str(self.quoted(at)?),
            'A'..='Z' | 'a'..='z' | '_' => Kind::Word(self.take_while(is_word_char)),
            '0'..='9' | '-' | '+' => {
                Kind::Number(self.take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)))
            }
            '%' => Kind::Value(self.sigil(at)?),
            '@' => Kind::Node(self.sigil(at)?),
            '^' => Kind::Graph(self.sigil(at)?),
            ':' if self.peek_second() == Some(':') => {
                self.bump();
                self.bump();
                Kind::Path
            }
            c => {
                self.bump();
                Kind::Mark(c)
            }
        })
    }

    /// The name after a sigil.
    fn sigil(&mut self, at: At) -> Result<String, TextError> {
        let sigil = self.bump().unwrap_or_default();
        if self.peek() == Some('"') {
            return self.quoted(at);
        }
        let mut name = String::new();
        loop {
            name.push_str(&self.take_while(is_bare_char));
            // A colon belongs to the name only where the name goes on behind it.
            let inner = self.peek() == Some(':') && self.peek_second().is_some_and(is_bare_char);
            if name.is_empty() || !inner {
                break;
            }
            name.extend(self.bump());
        }
        if name.is_empty() {
            return Err(error(at, format!("expected a name after {sigil:?}")));
        }
        Ok(name)
    }

    /// A text in quotes.
    fn quoted(&mut self, at: At) -> Result<String, TextError> {
        self.bump();
        let mut text = String::new();
        loop {
            let here = self.at;
            match self.bump() {
                None => return Err(error(at, "the text has no closing quote")),
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(here)?),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, at: At) -> Result<char, TextError> {
        let unknown = || error(at, "expected one of \\\" \\\\ \\n \\r \\t \\u{…}");
        Ok(match self.bump() {
            Some(c @ ('"' | '\\')) => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') if self.peek() == Some('{') => {
                self.bump();
                let digits = self.take_while(|c| c.is_ascii_hexdigit());
                let code = u32::from_str_radix(&digits, 16).ok();
                let c = code.and_then(char::from_u32).ok_or_else(unknown)?;
                if self.bump() != Some('}') {
                    return Err(unknown());
                }
                c
            }
            _ => return Err(unknown()),
        })
    }
}
