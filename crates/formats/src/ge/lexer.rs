//! The words of the text form of protobuf.

use std::borrow::Cow;

/// One word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, or a word that is a value.
    Word(&'a [u8]),
    /// A number, with its sign.
    Number(&'a [u8]),
    /// What stood in quotes; adjacent pieces are one text.
    Text(Cow<'a, [u8]>),
    /// A mark of punctuation.
    Mark(u8),
    /// The text is over.
    End,
}

/// Cuts a text into words, and counts lines.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Lexer {
            text,
            at: 0,
            line: 1,
        }
    }

    /// The line of the word that was read last, counted from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The next word.
    ///
    /// # Errors
    /// A character that begins no word, a text in quotes without an end or with a wrong escape.
    pub(super) fn next(&mut self) -> Result<Token<'a>, String> {
        self.skip();
        let Some(&first) = self.text.get(self.at) else {
            return Ok(Token::End);
        };
        match first {
            b'"' | b'\'' => self.quoted(),
            b'-' => {
                let start = self.at;
                self.at += 1;
                self.skip();
                let digits = self.word();
                match digits {
                    [] => Err("a number is missing after '-'".to_owned()),
                    // Space between sign and digits is legal, and nobody writes it.
                    _ if start + 1 + digits.len() != self.at => {
                        Err("a space parts '-' from its number; take it out".to_owned())
                    }
                    _ => Ok(Token::Number(&self.text[start..self.at])),
                }
            }
            b'0'..=b'9' | b'.' => Ok(Token::Number(self.word())),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(Token::Word(self.word())),
            b'{' | b'}' | b'<' | b'>' | b'[' | b']' | b':' | b',' | b';' | b'(' | b')' | b'/' => {
                self.at += 1;
                Ok(Token::Mark(first))
            }
            other => Err(format!("'{}' begins no word", other.escape_ascii())),
        }
    }

    /// Passes over space and comments.
    fn skip(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c' => {}
                b'#' => {
                    let rest = &self.text[self.at..];
                    let end = rest.iter().position(|&b| b == b'\n');
                    self.at += end.unwrap_or(rest.len());
                    continue;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    /// Letters, digits, and what stands in numbers.
    fn word(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let mut end = 0;
        for (i, &byte) in rest.iter().enumerate() {
            let sign = matches!(byte, b'+' | b'-')
                && i > 0
                && matches!(rest[i - 1], b'e' | b'E')
                && rest[0].is_ascii_digit();
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || sign) {
                break;
            }
            end = i + 1;
        }
        self.at += end;
        &rest[..end]
    }

    /// Text in quotes, with the pieces that follow it.
    fn quoted(&mut self) -> Result<Token<'a>, String> {
        let mut text = self.piece()?;
        loop {
            self.skip();
            if !matches!(self.text.get(self.at), Some(b'"' | b'\'')) {
                return Ok(Token::Text(text));
            }
            let more = self.piece()?;
            text.to_mut().extend_from_slice(&more);
        }
    }

    /// One piece of text in quotes, which begins here.
    fn piece(&mut self) -> Result<Cow<'a, [u8]>, String> {
        let quote = self.text[self.at];
        let start = self.at + 1;
        let plain = |&b: &u8| b != quote && b != b'\\' && b != b'\n';
        let rest = &self.text[start..];
        let length = rest.iter().take_while(|b| plain(b)).count();
        self.at = start + length;
        let mut text = Cow::Borrowed(&rest[..length]);
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err("a text in quotes has no end; the file may be cut short".to_owned());
            };
            self.at += 1;
            match byte {
                b'\n' => return Err("a text in quotes ends with the line".to_owned()),
                b'\\' => self.escape(text.to_mut())?,
                byte if byte == quote => return Ok(text),
                byte => text.to_mut().push(byte),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let byte = self.text.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        out.push(match byte {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'\'' | b'"' | b'?' => byte,
            b'0'..=b'7' => {
                self.at -= 1;
                let value = self.digits(8, 3).unwrap_or_default();
                u8::try_from(value & 0xff).unwrap_or_default()
            }
            b'x' | b'X' => {
                let value = self.digits(16, 2);
                let value = value.ok_or("\\x takes hexadecimal digits")?;
                u8::try_from(value & 0xff).unwrap_or_default()
            }
            b'u' | b'U' => {
                let most = if byte == b'u' { 4 } else { 8 };
                let letter = self.digits(16, most).and_then(char::from_u32);
                let letter = letter.ok_or("\\u takes the number of a character")?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            other => return Err(format!("\\{} is no escape", other.escape_ascii())),
        });
        Ok(())
    }

    /// The number in up to `most` digits; `None` where there is none.
    fn digits(&mut self, base: u32, most: usize) -> Option<u32> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest
            .iter()
            .take(most)
            .map_while(|&b| char::from(b).to_digit(base));
        let mut value = None;
        let mut length = 0;
        for digit in digits {
            value = Some(value.unwrap_or(0u32).wrapping_mul(base).wrapping_add(digit));
            length += 1;
        }
        self.at += length;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Vec<Token<'_>>, String> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match lexer.next()? {
                Token::End => return Ok(all),
                token => all.push(token),
            }
        }
    }

    #[test]
    fn words_of_every_kind() {
        use Token::{Mark, Number, Text, Word};
        let text = "op { id: -1 f: 1.5e-3 s: \"a\\n\" 'b\\303\\244' # note\n x: 0x1F }";
        let text_token = Text(Cow::Borrowed("a\nbä".as_bytes()));
        assert_eq!(
            words(text).unwrap(),
            [
                Word(b"op"),
                Mark(b'{'),
                Word(b"id"),
                Mark(b':'),
                Number(b"-1"),
                Word(b"f"),
                Mark(b':'),
                Number(b"1.5e-3"),
                Word(b"s"),
                Mark(b':'),
                text_token,
                Word(b"x"),
                Mark(b':'),
                Number(b"0x1F"),
                Mark(b'}'),
            ]
        );
    }

    #[test]
    fn escapes() {
        for (text, bytes) in [
            (r#""\\\'\"\?""#, b"\\'\"?".as_slice()),
            (r#""\0\0019""#, b"\0\x019"),
            (r#""\x41\u00e4""#, "Aä".as_bytes()),
            (r#""\a\b\f\r\t\v""#, b"\x07\x08\x0c\r\t\x0b"),
        ] {
            let expected = [Token::Text(Cow::Borrowed(bytes))];
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        for wrong in [
            r#""\q""#,
            r#""\x""#,
            r#""\ud800""#,
            "\"a",
            "\"a\nb\"",
            "@",
            "-",
            "- 1",
        ] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
