//! Formulas of named dimensions, around the symbolic expressions of `rten-shape-inference`.
//!
//! The wrapped type stays inside this crate, so that the rules can be swapped without a change
//! anywhere else. Its constants are `i32`; a number that does not fit is held as a symbol whose
//! name spells it (`number`), so that no arithmetic on it can wrap, and `eval_with` computes
//! with 128 bits.

mod parse;

use rten_shape_inference::{SymExpr, Symbol};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A formula of named dimensions, in the simplified form of the algebra.
///
/// ```
/// use tenure_graph::dim_expr::DimExpr;
/// let length = DimExpr::parse("(past + 1) // 2").unwrap();
/// assert_eq!(length.names(), ["past"]);
/// assert_eq!(length.eval(|name| (name == "past").then_some(7)), Some(4));
/// assert_eq!(DimExpr::parse(&length.to_string()), Some(length));
/// ```
#[derive(Clone, Debug)]
pub struct DimExpr {
    pub(crate) expr: SymExpr,
}

impl DimExpr {
    /// Reads a formula: numbers, names, `+`, `-`, `*`, `/` and `//` (both round down),
    /// parentheses, `max`, `min`, `ceil_div`, `broadcast`, `floor`, `ceiling`. A name with other
    /// characters than letters, digits, `_`, `.`, `:`, `$` may stand in double quotes.
    ///
    /// A text that is no such formula is one name as a whole (`batch size`). `None` for an empty
    /// text and for one that holds a NUL character.
    ///
    /// What is read is printed and read the same.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        let expr = parse::formula(text).and_then(settle);
        Some(DimExpr {
            expr: expr.unwrap_or_else(|| name(text)),
        })
    }

    /// The name, if the formula is a name alone.
    #[must_use]
    pub fn as_name(&self) -> Option<&str> {
        match &self.expr {
            SymExpr::Var(symbol) if constant(&self.expr).is_none() => Some(&symbol.name),
            _ => None,
        }
    }

    /// The number, if the formula holds no name; `None` too when it is negative.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.eval(|_| None)
    }

    /// The names that stand in the formula, sorted, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self
            .expr
            .iter()
            .filter_map(|e| match e {
                SymExpr::Var(symbol) if !symbol.name.starts_with('\0') => Some(&*symbol.name),
                _ => None,
            })
            .collect();
        names.into_iter().collect()
    }

    /// The formula's value. `None` when a name has none, when a divisor is 0, when the result is
    /// negative or does not fit in 64 bits.
    #[must_use]
    pub fn eval(&self, value_of: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        let value = eval_with(&self.expr, &|name| value_of(name).map(i128::from))?;
        u64::try_from(value).ok()
    }
}

impl PartialEq for DimExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl fmt::Display for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expr {
            // Alone, a name parses back as it is, unless it looks like something else.
            SymExpr::Var(symbol) if is_read_as_name(&symbol.name) => f.write_str(&symbol.name),
            expr => write_sum(f, expr),
        }
    }
}

/// Whether a text is read as the name that it is.
fn is_read_as_name(text: &str) -> bool {
    // To a shape, this mark is a dimension without a name.
    text != "?" && DimExpr::parse(text).is_some_and(|e| e.as_name() == Some(text))
}

/// A symbol for a dimension of the model.
pub(crate) fn name(name: &str) -> SymExpr {
    SymExpr::pos_var(name)
}

/// First characters of the symbols that stand for numbers beyond `i32`. Names with a NUL are
/// never taken from a model.
const NUMBER: &str = "\0=";

/// A number as an expression; exact for all values.
pub(crate) fn number(n: i128) -> SymExpr {
    match i32::try_from(n) {
        Ok(n) => SymExpr::Value(n),
        Err(_) => lifted(n),
    }
}

/// A number as a symbol, out of reach of the algebra's own arithmetic.
pub(crate) fn lifted(n: i128) -> SymExpr {
    SymExpr::Var(Arc::new(Symbol {
        name: format!("{NUMBER}{n}"),
        positive: n >= 0,
        synthetic: false,
    }))
}

/// An expression whose constants are all symbols.
pub(crate) fn lift_constants(expr: &SymExpr) -> SymExpr {
    map_leaves(expr, &|leaf| match leaf {
        SymExpr::Value(n) => lifted(i128::from(*n)),
        _ => leaf.clone(),
    })
}

/// An expression whose numbers and symbols are replaced.
pub(crate) fn map_leaves(expr: &SymExpr, leaf: &dyn Fn(&SymExpr) -> SymExpr) -> SymExpr {
    let go = |e: &SymExpr| Arc::new(map_leaves(e, leaf));
    match expr {
        SymExpr::Value(_) | SymExpr::Var(_) => leaf(expr),
        SymExpr::Neg(a) => SymExpr::Neg(go(a)),
        SymExpr::Add(a, b) => SymExpr::Add(go(a), go(b)),
        SymExpr::Sub(a, b) => SymExpr::Sub(go(a), go(b)),
        SymExpr::Mul(a, b) => SymExpr::Mul(go(a), go(b)),
        SymExpr::Div(a, b) => SymExpr::Div(go(a), go(b)),
        SymExpr::DivCeil(a, b) => SymExpr::DivCeil(go(a), go(b)),
        SymExpr::Max(a, b) => SymExpr::Max(go(a), go(b)),
        SymExpr::Min(a, b) => SymExpr::Min(go(a), go(b)),
        SymExpr::Broadcast(a, b) => SymExpr::Broadcast(go(a), go(b)),
    }
}

/// The number that an expression is, if it is one.
pub(crate) fn constant(expr: &SymExpr) -> Option<i128> {
    match expr {
        SymExpr::Value(n) => Some(i128::from(*n)),
        SymExpr::Var(symbol) => symbol.name.strip_prefix(NUMBER)?.parse().ok(),
        _ => None,
    }
}

/// Whether every symbol of the expression is a name of the model or a number, so that it may be
/// shown.
pub(crate) fn is_named(expr: &SymExpr) -> bool {
    expr.iter().all(|e| match e {
        SymExpr::Var(symbol) => {
            !symbol.synthetic && (!symbol.name.starts_with('\0') || constant(e).is_some())
        }
        _ => true,
    })
}

/// Computes an expression in 128 bits.
pub(crate) fn eval_with(expr: &SymExpr, value_of: &dyn Fn(&str) -> Option<i128>) -> Option<i128> {
    let both = |a: &SymExpr, b: &SymExpr| Some((eval_with(a, value_of)?, eval_with(b, value_of)?));
    match expr {
        SymExpr::Value(n) => Some(i128::from(*n)),
        SymExpr::Var(symbol) => constant(expr).or_else(|| value_of(&symbol.name)),
        SymExpr::Neg(x) => eval_with(x, value_of)?.checked_neg(),
        SymExpr::Add(a, b) => both(a, b).and_then(|(a, b)| a.checked_add(b)),
        SymExpr::Sub(a, b) => both(a, b).and_then(|(a, b)| a.checked_sub(b)),
        SymExpr::Mul(a, b) => both(a, b).and_then(|(a, b)| a.checked_mul(b)),
        SymExpr::Div(a, b) => both(a, b).and_then(|(a, b)| div_floor(a, b)),
        SymExpr::DivCeil(a, b) => both(a, b).and_then(|(a, b)| div_ceil(a, b)),
        SymExpr::Max(a, b) => both(a, b).map(|(a, b)| a.max(b)),
        SymExpr::Min(a, b) => both(a, b).map(|(a, b)| a.min(b)),
        // Two sizes broadcast when they are equal or one of them is 1.
        SymExpr::Broadcast(a, b) => match both(a, b)? {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        },
    }
}

/// Division that rounds down.
pub(crate) fn div_floor(a: i128, b: i128) -> Option<i128> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    })
}

/// Division that rounds up.
pub(crate) fn div_ceil(a: i128, b: i128) -> Option<i128> {
    div_floor(a.checked_neg()?, b)?.checked_neg()
}

/// Brings an expression into the algebra's normal form, with constants first. Constants whose
/// product could leave `i32` on the way are left as they are.
pub(crate) fn simplify(expr: SymExpr) -> SymExpr {
    if let Some(n) = eval_with(&expr, &|_| None) {
        return number(n);
    }
    if magnitude(&expr) > i32::MAX.unsigned_abs().into() {
        return expr;
    }
    expr.simplify()
}

/// How often a formula is simplified anew before it is taken for none.
const MAX_ROUNDS: usize = 16;

/// Simplifies a formula until it stays the same when it is printed, read and simplified again:
/// once is not enough, since the order of terms depends on how they were grouped. Where forms
/// follow each other in a circle, it is the first of them in the order of texts. `None` for a
/// formula whose simplified form is too long or too deep to be read.
fn settle(expr: SymExpr) -> Option<SymExpr> {
    let mut expr = simplify(expr);
    if matches!(expr, SymExpr::Var(_) | SymExpr::Value(_)) {
        return Some(expr);
    }
    let mut forms: Vec<(String, SymExpr)> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let form = DimExpr { expr };
        let text = form.to_string();
        expr = form.expr;
        if let Some(first) = forms.iter().position(|(t, _)| *t == text) {
            let mut circle = forms.split_off(first);
            // Of two formulas that print the same, the one that was read.
            circle[0].1 = expr;
            return circle.into_iter().min_by(|a, b| a.0.cmp(&b.0)).map(|f| f.1);
        }
        let next = simplify(parse::formula(&text)?);
        forms.push((text, expr));
        expr = next;
    }
    None
}

/// An upper bound of every constant that simplifying the expression can make.
pub(crate) fn magnitude(expr: &SymExpr) -> u128 {
    match expr {
        SymExpr::Value(n) => u128::from(n.unsigned_abs()).max(1),
        SymExpr::Var(_) => 1,
        SymExpr::Neg(x) => magnitude(x),
        SymExpr::Add(a, b) | SymExpr::Sub(a, b) => magnitude(a).saturating_add(magnitude(b)),
        SymExpr::Mul(a, b) | SymExpr::Div(a, b) | SymExpr::DivCeil(a, b) => {
            magnitude(a).saturating_mul(magnitude(b))
        }
        SymExpr::Max(a, b) | SymExpr::Min(a, b) | SymExpr::Broadcast(a, b) => {
            magnitude(a).max(magnitude(b))
        }
    }
}

fn write_sum(f: &mut fmt::Formatter<'_>, expr: &SymExpr) -> fmt::Result {
    // The algebra sorts constants to the front and has no subtraction; people write `h - 2`.
    match expr {
        SymExpr::Add(a, b) => match (constant(a), constant(b), &**b) {
            (Some(n), None, b) => {
                write_sum(f, b)?;
                write_constant(f, n)
            }
            (_, Some(n), _) => {
                write_sum(f, a)?;
                write_constant(f, n)
            }
            (None, None, SymExpr::Neg(b)) => {
                write_sum(f, a)?;
                f.write_str(" - ")?;
                write_product(f, b)
            }
            (None, None, b) => {
                write_sum(f, a)?;
                f.write_str(" + ")?;
                write_product(f, b)
            }
        },
        SymExpr::Sub(a, b) => {
            write_sum(f, a)?;
            f.write_str(" - ")?;
            write_product(f, b)
        }
        _ => write_product(f, expr),
    }
}

fn write_constant(f: &mut fmt::Formatter<'_>, n: i128) -> fmt::Result {
    let sign = if n < 0 { '-' } else { '+' };
    write!(f, " {sign} {}", n.unsigned_abs())
}

fn write_product(f: &mut fmt::Formatter<'_>, expr: &SymExpr) -> fmt::Result {
    let (a, op, b) = match expr {
        SymExpr::Mul(a, b) => (a, "*", b),
        SymExpr::Div(a, b) => (a, "//", b),
        _ => return write_atom(f, expr),
    };
    write_product(f, a)?;
    write!(f, " {op} ")?;
    write_atom(f, b)
}

fn write_atom(f: &mut fmt::Formatter<'_>, expr: &SymExpr) -> fmt::Result {
    let call = |f: &mut fmt::Formatter<'_>, function, a, b| {
        write!(f, "{function}(")?;
        write_sum(f, a)?;
        f.write_str(", ")?;
        write_sum(f, b)?;
        f.write_str(")")
    };
    if let Some(n) = constant(expr) {
        return write!(f, "{n}");
    }
    match expr {
        SymExpr::Var(symbol) if parse::is_plain_name(&symbol.name) => f.write_str(&symbol.name),
        SymExpr::Var(symbol) => {
            let escaped = symbol.name.replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "\"{escaped}\"")
        }
        SymExpr::Neg(x) => {
            f.write_str("-")?;
            write_atom(f, x)
        }
        SymExpr::Max(a, b) => call(f, "max", a, b),
        SymExpr::Min(a, b) => call(f, "min", a, b),
        SymExpr::DivCeil(a, b) => call(f, "ceil_div", a, b),
        SymExpr::Broadcast(a, b) => call(f, "broadcast", a, b),
        _ => {
            f.write_str("(")?;
            write_sum(f, expr)?;
            f.write_str(")")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dim;
    use arbitrary::{Result, Unstructured};

    #[test]
    fn formulas_evaluate() {
        let values = |name: &str| match name {
            "past" => Some(512),
            "half" => Some(21),
            "seq" => Some(7),
            "batch size" | "1x" => Some(3),
            _ => None,
        };
        for (text, expected) in [
            ("past", Some(512)),
            ("past + 1", Some(513)),
            ("2*half", Some(42)),
            ("seq // 2", Some(3)),
            ("seq/2", Some(3)),
            ("-(seq - 10)", Some(3)),
            ("seq - 10", None),
            ("(seq - 1) // 2 + 1", Some(4)),
            ("past - seq - half", Some(484)),
            ("past - (seq - half)", Some(526)),
            ("past * (seq // 2)", Some(1536)),
            ("max(seq, half)", Some(21)),
            ("Min(seq, half)", Some(7)),
            ("ceil_div(half, 2)", Some(11)),
            ("ceiling(half / 2)", Some(11)),
            ("floor(half / 2)", Some(10)),
            ("batch size", Some(3)),
            ("\"batch size\" * 2", Some(6)),
            ("1x", Some(3)),
            ("nothing", None),
            ("seq // 0", None),
            ("9000000000", Some(9_000_000_000)),
            ("past * 9000000000", Some(4_608_000_000_000)),
            ("past * 100000 * 100000", Some(5_120_000_000_000)),
            ("past * 18446744073709551615", None),
        ] {
            let expr = DimExpr::parse(text).unwrap();
            assert_eq!(expr.eval(values), expected, "{text}");
            let printed = expr.to_string();
            assert_eq!(DimExpr::parse(&printed), Some(expr), "{text} -> {printed}");
        }
    }

    #[test]
    fn what_is_read_prints_and_reads_the_same() {
        /// Any formula, and some that are none.
        fn formula(u: &mut Unstructured<'_>, depth: u32) -> Result<String> {
            let mut inner = || formula(u, depth.saturating_sub(1));
            let (a, b) = if depth > 0 {
                (inner()?, inner()?)
            } else {
                (String::new(), String::new())
            };
            let leaves = [
                "a",
                "b",
                "J",
                "n",
                "0",
                "1",
                "2",
                "7",
                "21",
                "2147483647",
                "9000000000",
                "18446744073709551615",
                "\"a+b\"",
                "\" c\"",
                "\"?\"",
                "\"\\\"\"",
                "x y",
                "?",
            ];
            Ok(match u.int_in_range(0..=if depth > 0 { 12 } else { 2 })? {
                0..=2 => (*u.choose(&leaves)?).to_owned(),
                3 => format!("-{a}"),
                4 => format!("({a})"),
                5 => format!("{a} + {b}"),
                6 => format!("{a} - {b}"),
                7 => format!("({a}) * ({b})"),
                8 => format!("({a})/({b})"),
                9 => format!("max({a}, {b})"),
                10 => format!("min({a}, {b})"),
                11 => format!("ceil_div({a}, {b})"),
                _ => format!("broadcast({a}, {b})"),
            })
        }
        arbtest::arbtest(|u| {
            let text = formula(u, 5)?;
            let read = Dim::parse(&text);
            let printed = read.to_string();
            assert_eq!(Dim::parse(&printed), read, "{text} -> {printed}");
            if let Dim::Formula(formula) = &read {
                assert_eq!(
                    DimExpr::parse(&printed).as_ref(),
                    Some(&**formula),
                    "{text}"
                );
            }
            Ok(())
        })
        .budget_ms(1000);
        // One form after another, and none the last.
        for text in ["n -J+21", "\"a+b\"", "\"?\"", "\" a\""] {
            let read = Dim::parse(text);
            assert_eq!(Dim::parse(&read.to_string()), read, "{text}");
        }
        // Too long when it is printed with its spaces, so it is a name.
        let long = vec!["a"; 200].join("/");
        assert_eq!(DimExpr::parse(&long).unwrap().as_name(), Some(&*long));
    }

    #[test]
    fn what_is_no_formula_is_one_name() {
        for text in [
            "unk__749",
            "batch size",
            "past_len.1",
            "a +",
            "2x +",
            "{\"a\": [1, 2]}",
            "floor(a",
            "f(x)",
            "größe",
        ] {
            let expr = DimExpr::parse(text).unwrap();
            assert_eq!(expr.as_name(), Some(text));
            assert_eq!(expr.to_string(), text);
        }
        assert_eq!(DimExpr::parse("  "), None);
        assert_eq!(DimExpr::parse("a\0b"), None);
    }

    #[test]
    fn constants_come_last_in_print() {
        for (text, printed) in [
            ("1 + past", "past + 1"),
            ("past - 1", "past - 1"),
            ("(h - 2) / 2 + 1", "(h - 2) // 2 + 1"),
            ("2 * (a + b)", "2 * (a + b)"),
            ("a - b", "a - b"),
            ("a - (b + c)", "a - (b + c)"),
        ] {
            assert_eq!(DimExpr::parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn hostile_formulas_end() {
        let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(DimExpr::parse(&deep).unwrap().as_name(), Some(&*deep));
        let long = vec!["a"; 5000].join("+");
        assert!(DimExpr::parse(&long).unwrap().as_name().is_some());
    }
}
