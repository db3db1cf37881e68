//! The parser of dimension formulas.

use rten_shape_inference::SymExpr;

use super::{name, number};

/// Longest text and deepest nesting that are read as a formula.
const MAX_TEXT: usize = 512;
const MAX_DEPTH: u32 = 32;

/// Reads a whole text as a formula; `None` when it is none.
pub(super) fn formula(text: &str) -> Option<SymExpr> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let mut parser = Parser { rest: text };
    let expr = parser.sum(0)?;
    parser.rest.trim_start().is_empty().then_some(expr)
}

/// Whether a name can stand in a formula without quotes.
pub(super) fn is_plain_name(name: &str) -> bool {
    name.starts_with(starts_name) && name.chars().all(continues_name)
}

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '$')
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':')
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Takes a token if it comes next.
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self, depth: u32) -> Option<SymExpr> {
        let mut left = self.product(depth)?;
        loop {
            if self.take("+") {
                left += self.product(depth)?;
            } else if self.take("-") {
                left = left - self.product(depth)?;
            } else {
                return Some(left);
            }
        }
    }

    fn product(&mut self, depth: u32) -> Option<SymExpr> {
        let mut left = self.factor(depth)?;
        loop {
            if self.take("*") {
                left = left * self.factor(depth)?;
            } else if self.take("//") || self.take("/") {
                left = left / self.factor(depth)?;
            } else {
                return Some(left);
            }
        }
    }

    fn factor(&mut self, depth: u32) -> Option<SymExpr> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.take("-") {
            return Some(match self.factor(depth + 1)? {
                SymExpr::Value(n) if n != i32::MIN => SymExpr::Value(-n),
                expr => -expr,
            });
        }
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            return self.take(")").then_some(inner);
        }
        if self.take("\"") {
            return self.quoted();
        }
        let rest = self.rest.trim_start();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.number();
        }
        if !rest.starts_with(starts_name) {
            return None;
        }
        let end = rest.find(|c| !continues_name(c)).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        let word = word.to_owned();
        self.rest = rest;
        if self.take("(") {
            return self.call(&word, depth + 1);
        }
        Some(name(&word))
    }

    fn number(&mut self) -> Option<SymExpr> {
        let rest = self.rest.trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(end);
        // `2d` is no product.
        if rest.starts_with(continues_name) {
            return None;
        }
        let n: u64 = digits.parse().ok()?;
        self.rest = rest;
        Some(number(n.into()))
    }

    fn quoted(&mut self) -> Option<SymExpr> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return (!text.is_empty()).then(|| name(&text));
                }
                '\\' => text.push(chars.next()?.1),
                c => text.push(c),
            }
        }
        None
    }

    fn call(&mut self, function: &str, depth: u32) -> Option<SymExpr> {
        let mut args = vec![self.sum(depth)?];
        while self.take(",") {
            args.push(self.sum(depth)?);
        }
        if !self.take(")") {
            return None;
        }
        match (&*function.to_ascii_lowercase(), &args[..]) {
            ("max", [first, rest @ ..]) => Some(rest.iter().fold(first.clone(), |m, x| m.max(x))),
            ("min", [first, rest @ ..]) => Some(rest.iter().fold(first.clone(), |m, x| m.min(x))),
            ("ceil_div", [a, b]) => Some(a.div_ceil(b)),
            ("broadcast", [a, b]) => Some(a.broadcast(b)),
            ("floor", [x]) => Some(x.clone()),
            ("ceiling" | "ceil", [SymExpr::Div(a, b)]) => Some(a.div_ceil(b)),
            _ => None,
        }
    }
}
