//! Operators that work element by element: unary, binary and variadic ones with broadcasting,
//! casts. Contents of integers are followed, since shapes are computed with these operators.

use rten_shape_inference::{SymExpr, SymTensor};

use super::arithmetic::{broadcast, truth, zip_contents};
use crate::DType;
use crate::dim_expr::{constant, number};
use crate::shapes::context::{Answer, Context, Refusal, Rule};
use crate::shapes::fact::{self, as_float};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Acos" | "Acosh" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Celu" | "Clip"
        | "Cos" | "Cosh" | "CumProd" | "CumSum" | "Elu" | "Erf" | "Exp" | "Gelu"
        | "HardSigmoid" | "HardSwish" | "Hardmax" | "LeakyRelu" | "Log" | "LogSoftmax" | "Mish"
        | "PRelu" | "Reciprocal" | "Relu" | "ReverseSequence" | "Scatter" | "ScatterElements"
        | "ScatterND" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softmax"
        | "Softplus" | "Softsign" | "Swish" | "Tan" | "Tanh" | "TensorScatter"
        | "ThresholdedRelu" | "Trilu" => same,
        "Identity" => identity,
        "Abs" => abs,
        "Ceil" => ceil,
        "Floor" => floor,
        "Round" => round,
        "Sqrt" => sqrt,
        "Neg" => neg,
        "Not" => not,
        "IsInf" | "IsNaN" => test,
        "Cast" => cast,
        "CastLike" => cast_like,
        "BitCast" => bit_cast,
        "Add" => add,
        "Sub" => sub,
        "Mul" => mul,
        "Div" => div,
        "Mod" => modulo,
        "Pow" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "SwiGLU" => binary,
        "Max" => max,
        "Min" => min,
        "Mean" | "Sum" => variadic,
        "Equal" => equal,
        "Greater" => greater,
        "GreaterOrEqual" => greater_or_equal,
        "Less" => less,
        "LessOrEqual" => less_or_equal,
        "And" => and,
        "Or" => or,
        "Xor" => xor,
        "Where" => choose,
        _ => return None,
    })
}

/// Shape and type of the first input.
pub(super) fn same(c: &mut Context<'_>) -> Answer {
    c.set_like(0, c.dtype(0), 0)
}

/// Shape of the first input, truth values.
pub(super) fn test(c: &mut Context<'_>) -> Answer {
    c.set_like(0, DType::Bool, 0)
}

/// Shape and type of the first input for every output.
pub(super) fn all_same(c: &mut Context<'_>) -> Answer {
    for i in 0..c.outputs.len() {
        c.set_like(i, c.dtype(0), 0)?;
    }
    Ok(())
}

fn identity(c: &mut Context<'_>) -> Answer {
    let tensor = c.tensor(0)?.clone();
    c.set(0, c.dtype(0), tensor);
    c.keep_items();
    Ok(())
}

fn unary(c: &mut Context<'_>, dtype: DType, f: impl Fn(&SymExpr) -> Option<SymExpr>) -> Answer {
    c.set_like(0, dtype, 0)?;
    let items = c.items(0);
    if let Some(items) = items.and_then(|i| i.iter().map(f).collect()) {
        c.fill(0, items);
    }
    Ok(())
}

/// Known floats go through a function; other contents are lost.
fn of_floats(c: &mut Context<'_>, f: fn(f64) -> f64) -> Answer {
    let dtype = c.dtype(0);
    unary(c, dtype, |x| Some(rounded(f(as_float(x)?), dtype)))
}

/// A float as the operator gives it, in the precision of its type.
fn rounded(x: f64, dtype: DType) -> SymExpr {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision is asked for"
    )]
    fact::float(if dtype == DType::F64 {
        x
    } else {
        f64::from(x as f32)
    })
}

fn ceil(c: &mut Context<'_>) -> Answer {
    of_floats(c, f64::ceil)
}

fn floor(c: &mut Context<'_>) -> Answer {
    of_floats(c, f64::floor)
}

fn round(c: &mut Context<'_>) -> Answer {
    of_floats(c, f64::round_ties_even)
}

fn sqrt(c: &mut Context<'_>) -> Answer {
    of_floats(c, f64::sqrt)
}

fn abs(c: &mut Context<'_>) -> Answer {
    unary(c, c.dtype(0), |x| x.is_positive().then(|| x.clone()))
}

fn neg(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    unary(c, dtype, |x| match as_float(x) {
        Some(x) => Some(rounded(-x, dtype)),
        None => Some(-x.clone()),
    })
}

fn not(c: &mut Context<'_>) -> Answer {
    unary(c, DType::Bool, |x| Some(truth(constant(x)? == 0)))
}

fn cast(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("to").unwrap_or(DType::Unknown);
    cast_to(c, dtype)
}

fn cast_like(c: &mut Context<'_>) -> Answer {
    cast_to(c, c.dtype(1))
}

fn cast_to(c: &mut Context<'_>, dtype: DType) -> Answer {
    // Contents go through where no bits are lost.
    let (low, high): (i128, i128) = match dtype {
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U64 => (0, u64::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::Bool => return unary(c, dtype, |x| Some(truth(constant(x)? != 0))),
        DType::F32 | DType::F64 => return unary(c, dtype, |x| to_float(x, dtype)),
        _ => return c.set_like(0, dtype, 0),
    };
    unary(c, dtype, |x| {
        let n = match as_float(x) {
            #[expect(clippy::cast_possible_truncation, reason = "the cast of the operator")]
            Some(x) if x.abs() < 9e15 => x as i128,
            Some(_) => return None,
            None => match constant(x) {
                Some(n) => n,
                None => return Some(x.clone()),
            },
        };
        (low..=high).contains(&n).then(|| number(n))
    })
}

fn to_float(x: &SymExpr, dtype: DType) -> Option<SymExpr> {
    let x = match as_float(x) {
        Some(x) => x,
        #[expect(clippy::cast_precision_loss, reason = "the cast of the operator")]
        None => constant(x)? as f64,
    };
    Some(rounded(x, dtype))
}

fn bit_cast(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("to").unwrap_or(DType::Unknown);
    c.set_like(0, dtype, 0)
}

/// Type of the first input, shape of the first two broadcast.
pub(super) fn binary(c: &mut Context<'_>) -> Answer {
    broadcast_inputs(c, c.dtype(0), 2)
}

/// Type of the first input, shape of all inputs broadcast.
pub(super) fn variadic(c: &mut Context<'_>) -> Answer {
    broadcast_inputs(c, c.dtype(0), c.tensors.len())
}

fn broadcast_inputs(c: &mut Context<'_>, dtype: DType, n: usize) -> Answer {
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    for i in 1..n {
        dims = broadcast(&dims, &c.dims(i)?)?;
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

/// Contents go through `f`, or, where they are floats, through `g`.
fn with_contents(
    c: &mut Context<'_>,
    f: impl Fn(&SymExpr, &SymExpr) -> Option<SymExpr>,
    g: fn(f64, f64) -> f64,
) -> Answer {
    let dtype = c.dtype(0);
    let either = |x: &SymExpr, y: &SymExpr| match (as_float(x), as_float(y)) {
        (None, None) => f(x, y),
        (x, y) => Some(rounded(g(x?, y?), dtype)),
    };
    zip(c, dtype, either)
}

fn zip(
    c: &mut Context<'_>,
    dtype: DType,
    f: impl Fn(&SymExpr, &SymExpr) -> Option<SymExpr>,
) -> Answer {
    if c.tensors.len() == 2
        && let Some(tensor) = zip_contents(c.tensor(0)?, c.tensor(1)?, f)
    {
        c.set(0, dtype, tensor);
        return Ok(());
    }
    broadcast_inputs(c, dtype, c.tensors.len())
}

fn add(c: &mut Context<'_>) -> Answer {
    with_contents(c, |x, y| Some(x.clone() + y.clone()), |x, y| x + y)
}

fn sub(c: &mut Context<'_>) -> Answer {
    with_contents(c, |x, y| Some(x.clone() - y.clone()), |x, y| x - y)
}

fn mul(c: &mut Context<'_>) -> Answer {
    with_contents(c, |x, y| Some(x.clone() * y.clone()), |x, y| x * y)
}

fn div(c: &mut Context<'_>) -> Answer {
    // Integer division truncates, formulas round down: the same for what is not negative.
    let ints = |x: &SymExpr, y: &SymExpr| match (constant(x), constant(y)) {
        (Some(x), Some(y)) => x.checked_div(y).map(number),
        (_, Some(0)) => None,
        _ => (x.is_positive() && y.is_positive()).then(|| x.clone() / y.clone()),
    };
    with_contents(c, ints, |x, y| x / y)
}

fn modulo(c: &mut Context<'_>) -> Answer {
    // The sign of the result is the divisor's, or with `fmod` the dividend's: alike for operands
    // that are not negative.
    let ints = |x: &SymExpr, y: &SymExpr| {
        let (x, y) = (constant(x)?, constant(y)?);
        (x >= 0 && y > 0).then(|| number(x % y))
    };
    with_contents(c, ints, |x, y| x % y)
}

fn max(c: &mut Context<'_>) -> Answer {
    with_contents(c, |x, y| Some(x.max(y)), f64::max)
}

fn min(c: &mut Context<'_>) -> Answer {
    with_contents(c, |x, y| Some(x.min(y)), f64::min)
}

fn equal(c: &mut Context<'_>) -> Answer {
    let is_negative = |e: &SymExpr| constant(e).is_some_and(|n| n < 0);
    zip(c, DType::Bool, |x, y| {
        if x == y {
            return Some(truth(true));
        }
        match (constant(x), constant(y)) {
            (Some(x), Some(y)) => Some(truth(x == y)),
            _ if is_negative(x) && y.is_positive() || is_negative(y) && x.is_positive() => {
                Some(truth(false))
            }
            _ => None,
        }
    })
}

fn compare(c: &mut Context<'_>, f: fn(i128, i128) -> bool) -> Answer {
    zip(c, DType::Bool, |x, y| {
        Some(truth(f(constant(x)?, constant(y)?)))
    })
}

fn greater(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x > y)
}

fn greater_or_equal(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x >= y)
}

fn less(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x < y)
}

fn less_or_equal(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x <= y)
}

fn and(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x != 0 && y != 0)
}

fn or(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| x != 0 || y != 0)
}

fn xor(c: &mut Context<'_>) -> Answer {
    compare(c, |x, y| (x != 0) != (y != 0))
}

fn choose(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(1);
    c.set_dtype(0, dtype);
    let (condition, x, y) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    if let (Some(condition), Some(x), Some(y)) = (condition.values(), x.values(), y.values()) {
        let n = condition.len().max(x.len()).max(y.len());
        let at = |list: &[SymExpr], i: usize| match list {
            [one] => Some(one.clone()),
            list if list.len() == n => list.get(i).cloned(),
            _ => None,
        };
        let items: Option<Vec<SymExpr>> = (0..n)
            .map(|i| {
                let chosen = if constant(&at(condition, i)?)? != 0 {
                    x
                } else {
                    y
                };
                at(chosen, i)
            })
            .collect();
        if let Some(mut items) = items {
            let is_scalar = (0..3).all(|i| c.rank(i) == Some(0));
            let tensor = match items.pop() {
                Some(item) if is_scalar => SymTensor::from_scalar(item),
                last => {
                    items.extend(last);
                    SymTensor::from_vec(items)
                }
            };
            c.set(0, dtype, tensor);
            return Ok(());
        }
    }
    // The branches may be known better than the condition; all three broadcast.
    let (condition, x, y) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let dims = [condition, x, y].map(fact::dims);
    let [Some(condition), Some(x), Some(y)] = dims else {
        return Err(Refusal::NoAnswer);
    };
    let dims = broadcast(&broadcast(&condition, &x)?, &y)?;
    c.set_dims(0, dtype, dims);
    Ok(())
}
