//! Normalisation, dropout, quantisation.

use rten_shape_inference::SymTensor;

use super::arithmetic::num;
use super::elementwise::same;
use crate::DType;
use crate::shapes::context::{Answer, Context, Rule};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "GroupNormalization"
        | "InstanceNormalization"
        | "LRN"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "RMSNormalization" => same,
        "BatchNormalization" => batch,
        "LayerNormalization" | "SimplifiedLayerNormalization" => layer,
        "Dropout" => dropout,
        "QuantizeLinear" => quantize,
        "DequantizeLinear" => dequantize,
        "DynamicQuantizeLinear" => dynamic_quantize,
        _ => return None,
    })
}

fn batch(c: &mut Context<'_>) -> Answer {
    let channels = match c.dims(0).ok().and_then(|d| d.get(1).cloned()) {
        Some(channels) => channels,
        None => match c.dims(1).ok().and_then(|d| d.first().cloned()) {
            Some(channels) => channels,
            None => c.unknown(),
        },
    };
    // Running mean and variance have the type of the statistics that come in; before version 14
    // the outputs are mean, variance and their saved copies.
    let statistics = if c.dtype(3) == DType::Unknown {
        c.dtype(0)
    } else {
        c.dtype(3)
    };
    for i in 1..c.outputs.len() {
        c.set_dims(i, statistics, vec![channels.clone()]);
    }
    same(c)
}

pub(super) fn layer(c: &mut Context<'_>) -> Answer {
    let stash = c.dtype_attr("stash_type").unwrap_or(DType::F32);
    c.set_dtype(0, c.dtype(0));
    c.set_dtype(1, stash);
    c.set_dtype(2, stash);
    let mut dims = c.dims(0)?;
    c.set_dims(0, c.dtype(0), dims.clone());
    let axis = c.axis(c.int("axis", -1), dims.len())?;
    for dim in &mut dims[axis..] {
        *dim = num(1);
    }
    c.set_dims(1, stash, dims.clone());
    c.set_dims(2, stash, dims);
    Ok(())
}

pub(super) fn dropout(c: &mut Context<'_>) -> Answer {
    // The mask has had the type of the data before version 10.
    let mask = if c.opset < 10 {
        c.dtype(0)
    } else {
        DType::Bool
    };
    c.set_dtype(1, mask);
    same(c)?;
    c.set_like(1, mask, 0)
}

pub(super) fn quantize(c: &mut Context<'_>) -> Answer {
    let dtype = if c.has(2) {
        c.dtype(2)
    } else {
        c.dtype_attr("output_dtype")
            .filter(|&d| d != DType::Unknown)
            .unwrap_or(DType::U8)
    };
    c.set_like(0, dtype, 0)
}

pub(super) fn dequantize(c: &mut Context<'_>) -> Answer {
    let dtype = c
        .dtype_attr("output_dtype")
        .filter(|&d| d != DType::Unknown);
    c.set_like(0, dtype.unwrap_or(c.dtype(1)), 0)
}

fn dynamic_quantize(c: &mut Context<'_>) -> Answer {
    c.set(1, DType::F32, SymTensor::from_shape(Vec::new()));
    c.set(2, DType::U8, SymTensor::from_shape(Vec::new()));
    c.set_like(0, DType::U8, 0)
}
