//! Attention and its relatives of the default domain.

use rten_shape_inference::SymExpr;

use super::arithmetic::num;
use super::elementwise::same;
use crate::DType;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Attention" => attention,
        "FlexAttention" => flex_attention,
        "LinearAttention" => linear_attention,
        "CausalConvWithState" => causal_conv,
        "RotaryEmbedding" => same,
        _ => return None,
    })
}

/// Heads, sequence length and size of a head of one of query, key, value.
struct Heads {
    batch: SymExpr,
    heads: SymExpr,
    length: SymExpr,
    size: SymExpr,
}

impl Heads {
    /// Of input `i`: `[batch, heads, length, size]`, or `[batch, length, heads * size]` with the
    /// number of heads in an attribute.
    fn of(c: &Context<'_>, i: usize, attr: &str) -> Result<Self, Refusal> {
        match &c.dims(i)?[..] {
            [batch, heads, length, size] => Ok(Heads {
                batch: batch.clone(),
                heads: heads.clone(),
                length: length.clone(),
                size: size.clone(),
            }),
            [batch, length, hidden] => {
                let heads = c.int(attr, 0);
                if heads <= 0 {
                    return impossible(format!("input {i} has rank 3, but {attr} is missing"));
                }
                Ok(Heads {
                    batch: batch.clone(),
                    heads: num(heads),
                    length: length.clone(),
                    size: hidden.clone() / num(heads),
                })
            }
            dims => impossible(format!(
                "input {i} has rank {}, expected 3 or 4",
                dims.len()
            )),
        }
    }
}

/// See <https://onnx.ai/onnx/operators/onnx__Attention.html>.
fn attention(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    c.set_dtype(1, c.dtype(1));
    c.set_dtype(2, c.dtype(2));
    c.set_dtype(3, dtype);
    let q = Heads::of(c, 0, "q_num_heads")?;
    let v = Heads::of(c, 2, "kv_num_heads")?;
    let out = if c.rank(0) == Some(3) {
        vec![
            q.batch.clone(),
            q.length.clone(),
            q.heads.clone() * v.size.clone(),
        ]
    } else {
        vec![
            q.batch.clone(),
            q.heads.clone(),
            q.length.clone(),
            v.size.clone(),
        ]
    };
    c.set_dims(0, dtype, out);
    let k = Heads::of(c, 1, "kv_num_heads")?;
    let total = if c.has(4) {
        let [_, _, past, _] = c.dims_of_rank(4)?;
        past + k.length
    } else {
        k.length
    };
    let present = |size: SymExpr| vec![k.batch.clone(), k.heads.clone(), total.clone(), size];
    c.set_dims(1, c.dtype(1), present(k.size));
    c.set_dims(2, c.dtype(2), present(v.size));
    c.set_dims(3, dtype, vec![q.batch, q.heads, q.length, total]);
    Ok(())
}

fn flex_attention(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let [batch, heads, length, _] = c.dims_of_rank(0)?;
    let [_, _, _, size] = c.dims_of_rank(2)?;
    c.set_dims(0, dtype, vec![batch, heads, length, size]);
    Ok(())
}

fn linear_attention(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let [batch, length, _] = c.dims_of_rank(0)?;
    let ([_, _, key], [_, _, value]) = (c.dims_of_rank(1)?, c.dims_of_rank(2)?);
    let (q_heads, kv_heads) = (c.int("q_num_heads", 0), c.int("kv_num_heads", 0));
    if q_heads <= 0 || kv_heads <= 0 {
        return impossible("the numbers of heads are missing");
    }
    let size = value / num(kv_heads);
    c.set_dims(
        0,
        dtype,
        vec![batch.clone(), length, num(q_heads) * size.clone()],
    );
    let state = if c.has(3) { c.dtype(3) } else { dtype };
    c.set_dims(
        1,
        state,
        vec![batch, num(kv_heads), key / num(kv_heads), size],
    );
    Ok(())
}

fn causal_conv(c: &mut Context<'_>) -> Answer {
    let dtype: DType = c.dtype(0);
    let [batch, channels, length] = c.dims_of_rank(0)?;
    let [_, _, kernel] = c.dims_of_rank(1)?;
    c.set_dims(0, dtype, vec![batch.clone(), channels.clone(), length]);
    c.set_dims(1, dtype, vec![batch, channels, kernel - num(1)]);
    Ok(())
}
