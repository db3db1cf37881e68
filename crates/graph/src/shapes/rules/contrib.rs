//! Operators of ONNX Runtime (`com.microsoft`).
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.

use rten_shape_inference::{InferShapes, SymExpr, ops};

use super::arithmetic::{broadcast, num};
use super::elementwise::{all_same, same};
use super::matrix::{gemm, of_inputs, product_dims};
use super::{conv, index, layout, norm};
use crate::DType;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "BiasAdd" | "BiasGelu" | "BiasSoftmax" | "FastGelu" | "Gelu" | "GroupNorm"
        | "QLinearLeakyRelu" | "QLinearSigmoid" | "QLinearSoftmax" | "QuickGelu"
        | "RotaryEmbedding" | "Trilu" => same,
        "Inverse" => same,
        "BiasDropout" => norm::dropout,
        "SkipGroupNorm" => all_same,
        "DequantizeLinear" => norm::dequantize,
        "QuantizeLinear" => norm::quantize,
        "SimplifiedLayerNormalization" => norm::layer,
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => skip_layer_norm,
        "EmbedLayerNormalization" => embed_layer_norm,
        "FusedConv" => return conv::find("Conv"),
        "Pad" => return layout::find("Pad"),
        "Unique" => return index::find("Unique"),
        "FusedGemm" => gemm,
        "FusedMatMul" | "TransposeMatMul" => fused_matmul,
        "DynamicQuantizeMatMul" => dynamic_quantize_matmul,
        "MatMulIntegerToFloat" => matmul_integer_to_float,
        "MatMulNBits" | "MatMulBnb4" => matmul_n_bits,
        "QLinearAdd" | "QLinearMul" => qlinear_binary,
        "Attention" | "QAttention" => attention,
        "MultiHeadAttention" => multi_head_attention,
        "GroupQueryAttention" => group_query_attention,
        "BiasSplitGelu" => bias_split_gelu,
        _ => return None,
    })
}

/// Outputs are the result, mean, inverse deviation, and the sum of the inputs.
fn skip_layer_norm(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_like(0, dtype, 0)?;
    c.set_like(3, dtype, 0)?;
    let mut dims = c.dims(0)?;
    if let Some(last) = dims.last_mut() {
        *last = num(1);
    }
    c.set_dims(1, DType::F32, dims.clone());
    c.set_dims(2, DType::F32, dims);
    Ok(())
}

/// Inputs are ids `[batch, length]`, segments, and the tables; outputs the embedding, a mask
/// index and the sum before the normalisation.
fn embed_layer_norm(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(2);
    c.set_dtype(0, dtype);
    let [batch, length] = c.dims_of_rank(0)?;
    let [_, hidden] = c.dims_of_rank(2)?;
    let dims = vec![batch.clone(), length, hidden];
    c.set_dims(0, dtype, dims.clone());
    c.set_dims(1, DType::I32, vec![batch]);
    c.set_dims(2, dtype, dims);
    Ok(())
}

fn fused_matmul(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let operand = |i: usize, batch: &str, last: &str| {
        let mut dims = c.dims(i)?;
        let n = dims.len();
        if n > 1 {
            // The row dimension may stand in front of the batch dimensions.
            if c.int(batch, 0) != 0 {
                dims[..n - 1].rotate_left(1);
            }
            if c.int(last, 0) != 0 {
                dims.swap(n - 2, n - 1);
            }
        }
        Ok(dims)
    };
    let a = operand(0, "transBatchA", "transA")?;
    let b = operand(1, "transBatchB", "transB")?;
    let dims = product_dims(&a, &b)?;
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn dynamic_quantize_matmul(c: &mut Context<'_>) -> Answer {
    of_inputs(c, 0, 1, DType::F32)
}

fn matmul_integer_to_float(c: &mut Context<'_>) -> Answer {
    of_inputs(c, 0, 1, c.dtype(2))
}

fn matmul_n_bits(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let n = c.int("N", -1);
    match dims.last_mut() {
        Some(last) if n >= 0 => *last = num(n),
        _ => return impossible("N is missing, or the input is a scalar"),
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

/// Each operand comes with its scale and zero point.
fn qlinear_binary(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let dims = broadcast(&c.dims(0)?, &c.dims(3)?)?;
    c.set_dims(0, dtype, dims);
    Ok(())
}

/// Input `[batch, length, width]`, weights `[width, 3 * hidden]` of query, key and value.
fn attention(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    c.set_dtype(1, dtype);
    let [batch, length, _] = c.dims_of_rank(0)?;
    let [_, all] = c.dims_of_rank(1)?;
    let sizes = c.int_list("qkv_hidden_sizes");
    let hidden: SymExpr = match sizes.as_deref() {
        Some([_, _, value]) => num(*value),
        _ => all / num(3),
    };
    c.set_dims(
        0,
        dtype,
        vec![batch.clone(), length.clone(), hidden.clone()],
    );
    let heads = c.int("num_heads", 0);
    if heads > 0 && !c.has(4) {
        let present = vec![num(2), batch, num(heads), length, hidden / num(heads)];
        c.set_dims(1, dtype, present);
    }
    Ok(())
}

fn heads(c: &Context<'_>, attr: &str) -> u32 {
    u32::try_from(c.int(attr, 0)).unwrap_or(0)
}

fn with_cache(c: &mut Context<'_>, rule: &dyn InferShapes) -> Answer {
    let dtype = c.dtype(0);
    for i in 0..3 {
        c.set_dtype(i, dtype);
    }
    let outputs = c.ask(rule, Numbers::Multiplied)?;
    for (i, tensor) in outputs.into_iter().enumerate() {
        c.set(i, dtype, tensor);
    }
    Ok(())
}

fn multi_head_attention(c: &mut Context<'_>) -> Answer {
    let num_heads = heads(c, "num_heads");
    // The rule takes a rank of 3 or 5 for granted in key and value.
    if c.has(1) && c.rank(1) == Some(4) || c.has(2) && c.rank(2) == Some(4) {
        let dtype = c.dtype(0);
        c.set_dtype(0, dtype);
        let [batch, length, _] = c.dims_of_rank(0)?;
        let [_, heads, _, size] = c.dims_of_rank(2)?;
        c.set_dims(0, dtype, vec![batch, length, heads * size]);
        return Ok(());
    }
    with_cache(c, &ops::MultiHeadAttention { num_heads })
}

fn group_query_attention(c: &mut Context<'_>) -> Answer {
    let (num_heads, kv_num_heads) = (heads(c, "num_heads"), heads(c, "kv_num_heads"));
    let rule = ops::GroupQueryAttention {
        num_heads,
        kv_num_heads,
    };
    with_cache(c, &rule)
}

/// Half of the last dimension gates the other half.
fn bias_split_gelu(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    if let Some(last) = dims.last_mut() {
        *last = last.clone() / num(2);
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}
