//! Operators that work element by element: unary, binary and variadic ones with broadcasting,
//! casts. Contents of integers are followed, since shapes are computed with these operators.

use rten_shape_inference::SymExpr;

use super::arithmetic::{broadcast, map_contents, truth, zip_contents};
use crate::DType;
use crate::dim_expr::constant;
use crate::shapes::context::{Answer, Context, Rule};
use crate::shapes::fact;

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Acos" | "Acosh" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Celu" | "Clip"
        | "Cos" | "Cosh" | "CumProd" | "CumSum" | "Elu" | "Erf" | "Exp" | "Gelu"
        | "HardSigmoid" | "HardSwish" | "Hardmax" | "LeakyRelu" | "Log" | "LogSoftmax" | "Mish"
        | "PRelu" | "Reciprocal" | "Relu" | "ReverseSequence" | "Scatter" | "ScatterElements"
        | "ScatterND" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softmax"
        | "Softplus" | "Softsign" | "Sqrt" | "Swish" | "Tan" | "Tanh" | "TensorScatter"
        | "ThresholdedRelu" | "Trilu" => same,
        "Identity" => identity,
        "Abs" => abs,
        "Ceil" | "Floor" | "Round" => same,
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
    if let Some(output) = c.outputs.first_mut() {
        output.floats = c.types[0].1.clone();
    }
    Ok(())
}

fn unary(c: &mut Context<'_>, dtype: DType, f: impl Fn(&SymExpr) -> Option<SymExpr>) -> Answer {
    match map_contents(c.tensor(0)?, f) {
        Some(tensor) => {
            c.set(0, dtype, tensor);
            Ok(())
        }
        None => c.set_like(0, dtype, 0),
    }
}

fn abs(c: &mut Context<'_>) -> Answer {
    unary(c, c.dtype(0), |x| x.is_positive().then(|| x.clone()))
}

fn neg(c: &mut Context<'_>) -> Answer {
    unary(c, c.dtype(0), |x| Some(-x.clone()))
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
    // Contents go through a cast between integers; where bits could get lost they are dropped.
    let (low, high): (i128, i128) = match dtype {
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U64 => (0, u64::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::Bool => return unary(c, dtype, |x| Some(truth(constant(x)? != 0))),
        _ => return c.set_like(0, dtype, 0),
    };
    unary(c, dtype, |x| match constant(x) {
        Some(n) => (low..=high).contains(&n).then(|| x.clone()),
        None => Some(x.clone()),
    })
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

fn with_contents(
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
    with_contents(c, c.dtype(0), |x, y| Some(x.clone() + y.clone()))
}

fn sub(c: &mut Context<'_>) -> Answer {
    with_contents(c, c.dtype(0), |x, y| Some(x.clone() - y.clone()))
}

fn mul(c: &mut Context<'_>) -> Answer {
    with_contents(c, c.dtype(0), |x, y| Some(x.clone() * y.clone()))
}

fn div(c: &mut Context<'_>) -> Answer {
    // Integer division truncates, formulas round down: the same for what is not negative.
    with_contents(c, c.dtype(0), |x, y| match (constant(x), constant(y)) {
        (Some(x), Some(y)) => x.checked_div(y).map(crate::dim_expr::number),
        (_, Some(0)) => None,
        _ => (x.is_positive() && y.is_positive()).then(|| x.clone() / y.clone()),
    })
}

fn modulo(c: &mut Context<'_>) -> Answer {
    with_contents(c, c.dtype(0), |x, y| {
        let (x, y) = (constant(x)?, constant(y)?);
        // The sign of the result is the divisor's, or with `fmod` the dividend's: alike for
        // operands that are not negative.
        (x >= 0 && y > 0).then(|| crate::dim_expr::number(x % y))
    })
}

fn max(c: &mut Context<'_>) -> Answer {
    with_contents(c, c.dtype(0), |x, y| Some(x.max(y)))
}

fn min(c: &mut Context<'_>) -> Answer {
    with_contents(c, c.dtype(0), |x, y| Some(x.min(y)))
}

fn equal(c: &mut Context<'_>) -> Answer {
    with_contents(c, DType::Bool, |x, y| {
        if x == y {
            return Some(truth(true));
        }
        let is_negative = |e: &SymExpr| constant(e).is_some_and(|n| n < 0);
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
    with_contents(c, DType::Bool, |x, y| {
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
                Some(item) if is_scalar => rten_shape_inference::SymTensor::from_scalar(item),
                last => {
                    items.extend(last);
                    rten_shape_inference::SymTensor::from_vec(items)
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
        return Err(crate::shapes::context::Refusal::NoAnswer);
    };
    let dims = broadcast(&broadcast(&condition, &x)?, &y)?;
    c.set_dims(0, dtype, dims);
    Ok(())
}
