//! Matrix products.

use rten_shape_inference::{SymExpr, ops};

use super::arithmetic::{broadcast, same_dim};
use crate::DType;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "MatMul" => matmul,
        "MatMulInteger" => matmul_integer,
        "QLinearMatMul" => qlinear_matmul,
        "Gemm" => gemm,
        "Einsum" => einsum,
        "Det" => det,
        _ => return None,
    })
}

/// The shape of a product of two stacks of matrices; a vector counts as a row on the left and as
/// a column on the right, and its other dimension is left out.
///
/// See <https://onnx.ai/onnx/operators/onnx__MatMul.html>.
pub(super) fn product_dims(a: &[SymExpr], b: &[SymExpr]) -> Result<Vec<SymExpr>, Refusal> {
    let (a_batch, m, k) = match a {
        [] => return impossible("a scalar cannot be multiplied as a matrix"),
        [k] => (&[][..], None, k),
        [batch @ .., m, k] => (batch, Some(m), k),
    };
    let (b_batch, k2, n) = match b {
        [] => return impossible("a scalar cannot be multiplied as a matrix"),
        [k] => (&[][..], k, None),
        [batch @ .., k, n] => (batch, k, Some(n)),
    };
    same_dim(k, k2)?;
    let mut dims = broadcast(a_batch, b_batch)?;
    dims.extend(m.cloned());
    dims.extend(n.cloned());
    Ok(dims)
}

pub(super) fn matmul(c: &mut Context<'_>) -> Answer {
    of_inputs(c, 0, 1, c.dtype(0))
}

fn matmul_integer(c: &mut Context<'_>) -> Answer {
    of_inputs(c, 0, 1, DType::I32)
}

fn qlinear_matmul(c: &mut Context<'_>) -> Answer {
    of_inputs(c, 0, 3, c.dtype(7))
}

pub(super) fn of_inputs(c: &mut Context<'_>, a: usize, b: usize, dtype: DType) -> Answer {
    c.set_dtype(0, dtype);
    let dims = product_dims(&c.dims(a)?, &c.dims(b)?)?;
    c.set_dims(0, dtype, dims);
    Ok(())
}

pub(super) fn gemm(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let (transpose_a, transpose_b) = (c.int("transA", 0) != 0, c.int("transB", 0) != 0);
    let a: [SymExpr; 2] = c.dims_of_rank(0)?;
    let b: [SymExpr; 2] = c.dims_of_rank(1)?;
    same_dim(&a[usize::from(!transpose_a)], &b[usize::from(transpose_b)])?;
    let rule = ops::Gemm {
        transpose_a,
        transpose_b,
    };
    c.first(&rule, Numbers::Kept, dtype)
}

fn einsum(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let Some(equation) = c.text("equation").map(str::to_owned) else {
        return impossible("the equation is missing");
    };
    let rule = ops::Einsum {
        equation: &equation,
    };
    c.first(&rule, Numbers::Kept, dtype)
}

fn det(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    if dims.len() < 2 {
        return impossible("a matrix has rank 2 at least");
    }
    dims.truncate(dims.len() - 2);
    c.set_dims(0, dtype, dims);
    Ok(())
}
