//! The little language of the operator tables: sizes of scratch memory and conditions.
//!
//! ```text
//! condition := sum ("==" | "!=" | "<" | "<=" | ">" | ">=") sum | NAMED
//! sum       := product (("+" | "-") product)*
//! product   := atom (("*" | "/") atom)*                     "/" rounds down
//! atom      := NUMBER | "-" atom | "(" sum ")"
//!            | ("min" | "max" | "ceil_div") "(" sum ("," sum)* ")"
//!            | fact ("|" "-"? NUMBER)?                      the number stands in for what is left out
//! fact      := "opset" | "attr." NAME ("." ("min" | "max"))?
//!            | ("in" | "out") SLOT? "." field
//! field     := "bytes" | "elems" | "itemsize" | "rank" | "dim[" NUMBER "]" | "present"
//!            | "value" | "min" | "max"
//! ```
//!
//! A slot without a number is the output or input of the entry that the condition belongs to.
//! A fact may be unknown (a free dimension, an input that is no constant); so is then all that is
//! computed from it, and a condition on it does not hold.

use super::OpTable;
use crate::{Attr, Graph, Node, ValueId};

/// Nesting of parentheses and calls beyond which an expression is refused.
const MAX_DEPTH: u32 = 32;
/// Length of an expression's text in bytes beyond which it is refused.
const MAX_LENGTH: usize = 1024;
/// Elements of a constant beyond which its contents count as unknown. Pads, steps and switches,
/// which conditions ask for, have a few per dimension.
const MAX_ELEMENTS: u64 = 1024;

/// A formula over the facts of one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(i128),
    Fact(Fact, Option<i128>),
    Negate(Box<Expr>),
    Binary(Operation, Box<Expr>, Box<Expr>),
}

/// How two numbers make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    CeilDiv,
    Min,
    Max,
}

/// Something that is looked up at the node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    /// Version of the operator set that the node's domain has.
    Opset,
    /// An attribute with one integer, or the least or greatest of its integers.
    Attr(String, Pick),
    /// A property of an anchor.
    Anchor(Anchor, Field),
}

/// An input or output slot; `None` is that of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Input(Option<u32>),
    Output(Option<u32>),
}

/// What is asked of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Bytes,
    Elements,
    ItemSize,
    Rank,
    Dim(i64),
    Present,
    Content(Pick),
}

/// Which of several integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The only one.
    One,
    Min,
    Max,
}

/// Something that holds or not.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// Input and output have the same element type.
    SameType,
    /// Input and output have the same number of elements.
    SameElements,
    /// Permuting the input's axes by attribute `perm` moves axes of size 1 alone.
    KeepsOrder,
    Compare(Expr, Comparison, Expr),
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Where an expression is evaluated: a node, and the output and input of the entry it stands in.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) table: &'a OpTable,
    pub(super) graph: &'a Graph,
    pub(super) node: &'a Node,
    pub(super) output: u32,
    pub(super) input: u32,
}

impl Scope<'_> {
    fn anchor(&self, anchor: Anchor) -> Option<ValueId> {
        match anchor {
            Anchor::Input(slot) => slot_of(&self.node.inputs, slot.unwrap_or(self.input)),
            Anchor::Output(slot) => slot_of(&self.node.outputs, slot.unwrap_or(self.output)),
        }
    }

    /// The integers of a constant; `None` when the value is no constant or not inline.
    fn contents(&self, value: ValueId) -> Option<Vec<i64>> {
        let producer = self.graph.values[value].producer;
        if self.table.class(self.graph, producer) != super::OpClass::Constant {
            return None;
        }
        let attrs = &self.graph.nodes[producer].attrs;
        ["value", "value_int", "value_ints"]
            .iter()
            .find_map(|name| attrs.get(name))
            .and_then(integers)
    }
}

fn slot_of(slots: &[Option<ValueId>], slot: u32) -> Option<ValueId> {
    slots.get(usize::try_from(slot).ok()?).copied().flatten()
}

/// The integers of an attribute, whatever form the frontend gave it.
fn integers(attr: &Attr) -> Option<Vec<i64>> {
    match attr {
        Attr::Tensor(tensor) => tensor.to_ints(MAX_ELEMENTS),
        Attr::List(_) => attr.as_ints(),
        _ => attr.as_int().map(|i| vec![i]),
    }
}

fn pick(list: &[i64], which: Pick) -> Option<i128> {
    let picked = match which {
        Pick::One => match list {
            [one] => Some(one),
            _ => None,
        },
        Pick::Min => list.iter().min(),
        Pick::Max => list.iter().max(),
    };
    picked.map(|&i| i128::from(i))
}

impl Fact {
    /// The number; `default` where the attribute or the value of the anchor is left out.
    fn look_up(&self, scope: &Scope<'_>, default: Option<i128>) -> Option<i128> {
        match self {
            Fact::Opset => {
                let found = scope.graph.opset(scope.node);
                found.map(i128::from).or(default)
            }
            Fact::Attr(name, which) => match scope.node.attrs.get(name) {
                None | Some(Attr::Null) => default,
                Some(attr) => pick(&integers(attr)?, *which),
            },
            Fact::Anchor(anchor, field) => {
                let value = scope.anchor(*anchor);
                if *field == Field::Present {
                    return Some(i128::from(value.is_some()));
                }
                match value {
                    None => default,
                    Some(value) => field.look_up(scope, value),
                }
            }
        }
    }
}

impl Field {
    fn look_up(self, scope: &Scope<'_>, id: ValueId) -> Option<i128> {
        let value = &scope.graph.values[id];
        let shape = value.shape.as_ref();
        match self {
            Field::Bytes => scope.graph.bytes(id).map(i128::from),
            Field::Elements => shape?.elements().map(i128::from),
            Field::ItemSize => value.dtype.bits().map(|b| i128::from(b.div_ceil(8))),
            Field::Rank => i128::try_from(shape?.0.len()).ok(),
            Field::Dim(index) => {
                let dims = &shape?.0;
                let rank = i64::try_from(dims.len()).ok()?;
                let index = if index < 0 {
                    index.checked_add(rank)?
                } else {
                    index
                };
                let dim = dims.get(usize::try_from(index).ok()?)?;
                dim.known().map(i128::from)
            }
            Field::Present => Some(1),
            Field::Content(which) => pick(&scope.contents(id)?, which),
        }
    }
}

impl Expr {
    /// The number; `None` when a fact is unknown, the arithmetic overflows or divides by zero.
    pub(super) fn eval(&self, scope: &Scope<'_>) -> Option<i128> {
        match self {
            Expr::Number(n) => Some(*n),
            Expr::Fact(fact, default) => fact.look_up(scope, *default),
            Expr::Negate(e) => e.eval(scope)?.checked_neg(),
            Expr::Binary(op, a, b) => op.apply(a.eval(scope)?, b.eval(scope)?),
        }
    }

    /// Reads a size.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::new(text)?;
        let expr = parser.sum()?;
        parser.end()?;
        Ok(expr)
    }
}

impl Operation {
    fn apply(self, a: i128, b: i128) -> Option<i128> {
        match self {
            Operation::Add => a.checked_add(b),
            Operation::Sub => a.checked_sub(b),
            Operation::Mul => a.checked_mul(b),
            Operation::Div if b > 0 => a.checked_div_euclid(b),
            // Rounding up is rounding down with the signs turned.
            Operation::CeilDiv if b > 0 => a.checked_neg()?.checked_div_euclid(b)?.checked_neg(),
            Operation::Div | Operation::CeilDiv => None,
            Operation::Min => Some(a.min(b)),
            Operation::Max => Some(a.max(b)),
        }
    }
}

impl Condition {
    /// Whether the condition is known to hold.
    pub(super) fn holds(&self, scope: &Scope<'_>) -> bool {
        self.decide(scope).unwrap_or(false)
    }

    fn decide(&self, scope: &Scope<'_>) -> Option<bool> {
        if let Condition::Compare(a, comparison, b) = self {
            let (a, b) = (a.eval(scope)?, b.eval(scope)?);
            return Some(match comparison {
                Comparison::Equal => a == b,
                Comparison::NotEqual => a != b,
                Comparison::Less => a < b,
                Comparison::LessEqual => a <= b,
                Comparison::Greater => a > b,
                Comparison::GreaterEqual => a >= b,
            });
        }
        let values = &scope.graph.values;
        let input = &values[scope.anchor(Anchor::Input(None))?];
        let output = &values[scope.anchor(Anchor::Output(None))?];
        match self {
            Condition::SameType => Some(input.dtype == output.dtype),
            Condition::SameElements => {
                Some(input.shape.as_ref()?.elements()? == output.shape.as_ref()?.elements()?)
            }
            _ => {
                let dims = input.shape.as_ref()?.known()?;
                let perm = match scope.node.attrs.get("perm") {
                    Some(attr) => integers(attr)?,
                    None => (0..i64::try_from(dims.len()).ok()?).rev().collect(),
                };
                Some(keeps_order(&dims, &perm))
            }
        }
    }

    /// Reads a condition.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "same-dtype" => return Ok(Condition::SameType),
            "same-elements" => return Ok(Condition::SameElements),
            "keeps-order" => return Ok(Condition::KeepsOrder),
            _ => {}
        }
        let mut parser = Parser::new(text)?;
        let left = parser.sum().map_err(unknown_condition)?;
        let comparison = parser.comparison().map_err(unknown_condition)?;
        let right = parser.sum()?;
        parser.end()?;
        Ok(Condition::Compare(left, comparison, right))
    }
}

fn unknown_condition(cause: String) -> String {
    format!(
        "{cause}; a condition is `same-dtype`, `same-elements`, `keeps-order` or a comparison \
         such as `attr.axis|0 == -1`"
    )
}

/// Whether `perm` leaves the axes that are not of size 1 in their order, so that the permuted
/// tensor has the same bytes: an axis of size 1 adds nothing to the place of an element.
fn keeps_order(dims: &[u64], perm: &[i64]) -> bool {
    let mut seen = vec![false; dims.len()];
    let mut last = None;
    for &axis in perm {
        let Some(axis) = usize::try_from(axis).ok().filter(|&a| a < dims.len()) else {
            return false;
        };
        if std::mem::replace(&mut seen[axis], true) {
            return false;
        }
        if dims[axis] != 1 {
            if last > Some(axis) {
                return false;
            }
            last = Some(axis);
        }
    }
    perm.len() == dims.len()
}

/// Reads the language of the module's head.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("longer than {MAX_LENGTH} bytes"));
        }
        Ok(Parser {
            text,
            at: 0,
            depth: 0,
        })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes `token` after spaces, if it is next.
    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{token}`")))
        }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let found = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("{rest:?}"),
        };
        format!("expected {wanted}, found {found} in {:?}", self.text)
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip_space();
        match self.rest() {
            "" => Ok(()),
            _ => Err(self.unexpected("an operator or the end")),
        }
    }

    /// Takes the longest run of characters that satisfy `accept`.
    fn run(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        // Longer tokens first: `<` begins `<=`.
        for (token, comparison) in [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessEqual),
            (">=", Comparison::GreaterEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ] {
            if self.take(token) {
                return Ok(comparison);
            }
        }
        Err(self.unexpected("a comparison"))
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let tokens = [("+", Operation::Add), ("-", Operation::Sub)];
        self.chain(&tokens, Self::product)
    }

    fn product(&mut self) -> Result<Expr, String> {
        let tokens = [("*", Operation::Mul), ("/", Operation::Div)];
        self.chain(&tokens, Self::atom)
    }

    fn chain(
        &mut self,
        tokens: &[(&str, Operation)],
        next: fn(&mut Self) -> Result<Expr, String>,
    ) -> Result<Expr, String> {
        let mut left = next(self)?;
        while let Some(&(_, op)) = tokens.iter().find(|(token, _)| self.take(token)) {
            let right = next(self)?;
            left = Expr::Binary(op, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        let atom = self.atom_at_depth();
        self.depth -= 1;
        atom
    }

    fn atom_at_depth(&mut self) -> Result<Expr, String> {
        if self.take("(") {
            let inner = self.sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("-") {
            return Ok(Expr::Negate(Box::new(self.atom()?)));
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Expr::Number(i128::from(self.number()?)));
        }
        for (name, op) in [
            ("min(", Operation::Min),
            ("max(", Operation::Max),
            ("ceil_div(", Operation::CeilDiv),
        ] {
            if self.take(name) {
                let call = self.chain(&[(",", op)], Self::sum)?;
                self.expect(")")?;
                return Ok(call);
            }
        }
        let fact = self.fact()?;
        let default = if self.take("|") {
            let negative = self.take("-");
            self.skip_space();
            let number = i128::from(self.number()?);
            Some(if negative { -number } else { number })
        } else {
            None
        };
        Ok(Expr::Fact(fact, default))
    }

    fn number(&mut self) -> Result<u64, String> {
        let at = self.at;
        let digits = self.run(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| {
            self.at = at;
            self.unexpected("a number below 2^64")
        })
    }

    fn fact(&mut self) -> Result<Fact, String> {
        self.skip_space();
        let start = self.at;
        let word = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
        let anchor = match word {
            "opset" => return Ok(Fact::Opset),
            "attr" => {
                self.expect(".")?;
                let name = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
                if name.is_empty() {
                    return Err(self.unexpected("the name of an attribute"));
                }
                let which = if self.take(".min") {
                    Pick::Min
                } else if self.take(".max") {
                    Pick::Max
                } else {
                    Pick::One
                };
                return Ok(Fact::Attr(name.to_owned(), which));
            }
            _ => anchor(word).ok_or_else(|| {
                self.at = start;
                self.unexpected("a number, `(`, `inK.`, `outK.`, `attr.`, `opset` or a function")
            })?,
        };
        self.expect(".")?;
        Ok(Fact::Anchor(anchor, self.field()?))
    }

    fn field(&mut self) -> Result<Field, String> {
        let start = self.at;
        Ok(match self.run(|c| c.is_ascii_alphabetic()) {
            "bytes" => Field::Bytes,
            "elems" => Field::Elements,
            "itemsize" => Field::ItemSize,
            "rank" => Field::Rank,
            "present" => Field::Present,
            "value" => Field::Content(Pick::One),
            "min" => Field::Content(Pick::Min),
            "max" => Field::Content(Pick::Max),
            "dim" => {
                self.expect("[")?;
                let negative = self.take("-");
                let index = i64::try_from(self.number()?)
                    .map_err(|_| "the index of a dimension is too large".to_owned())?;
                self.expect("]")?;
                Field::Dim(if negative { -index } else { index })
            }
            _ => {
                self.at = start;
                return Err(self.unexpected(
                    "`bytes`, `elems`, `itemsize`, `rank`, `dim[K]`, `present`, `value`, `min` \
                     or `max`",
                ));
            }
        })
    }
}

/// Reads `in`, `in3`, `out`, `out0`.
fn anchor(word: &str) -> Option<Anchor> {
    let slot = |digits: &str| match digits {
        "" => Some(None),
        _ => digits.parse().ok().map(Some),
    };
    if let Some(digits) = word.strip_prefix("in") {
        return slot(digits).map(Anchor::Input);
    }
    slot(word.strip_prefix("out")?).map(Anchor::Output)
}
