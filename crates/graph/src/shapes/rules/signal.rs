//! Signal processing.

use rten_shape_inference::{SymExpr, ops};

use super::arithmetic::num;
use crate::DType;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "DFT" => dft,
        "STFT" => stft,
        "BlackmanWindow" | "HammingWindow" | "HannWindow" => window,
        "MelWeightMatrix" => mel_weights,
        _ => return None,
    })
}

/// See <https://onnx.ai/onnx/operators/onnx__DFT.html>.
fn dft(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let rank = dims.len();
    if rank < 2 {
        return impossible(format!("input of rank {rank} has no signal axis"));
    }
    // The axis is an attribute in version 17, an input from version 20 on.
    let axis = match (c.node.attrs.int("axis"), c.has(2)) {
        (Some(axis), _) => axis,
        (None, false) if c.opset < 20 => 1,
        (None, false) => -2,
        (None, true) => match c.ints(2).as_deref() {
            Some([axis]) => *axis,
            _ => {
                // Whatever the axis is, a full transform of the whole signal keeps its length.
                let is_full = c.int("onesided", 0) == 0 && !c.has(1);
                if !is_full {
                    dims = c.unknowns(rank);
                }
                let is_real = c.int("onesided", 0) != 0 && c.int("inverse", 0) != 0;
                dims[rank - 1] = if is_real { num(1) } else { num(2) };
                c.set_dims(0, dtype, dims);
                return Ok(());
            }
        },
    };
    let axis = c.axis(axis, rank)?;
    let (inverse, onesided) = (c.int("inverse", 0) != 0, c.int("onesided", 0) != 0);
    let given = match (c.has(1), c.values(1)) {
        (false, _) => None,
        (true, Some([n])) => Some(n.clone()),
        (true, _) => Some(c.unknown()),
    };
    let (length, parts) = if inverse && onesided {
        let full = (dims[axis].clone() - num(1)) * num(2);
        (given.unwrap_or(full), num(1))
    } else {
        let full = given.unwrap_or_else(|| dims[axis].clone());
        let kept = if onesided {
            full / num(2) + num(1)
        } else {
            full
        };
        (kept, num(2))
    };
    dims[axis] = length;
    dims[rank - 1] = parts;
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn stft(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let rule = ops::STFT {
        onesided: c.int("onesided", 1) != 0,
    };
    // The rule reads scalars; a vector of one element means the same.
    let mut inputs = c.tensors.clone();
    for i in [1, 3] {
        if let (Some([item]), Some(input)) = (c.values(i), inputs.get_mut(i)) {
            *input = Some(rten_shape_inference::SymTensor::from_scalar(item.clone()));
        }
    }
    let outputs = c.ask_with(&rule, Numbers::Kept, &inputs)?;
    if let Some(tensor) = outputs.into_iter().next() {
        c.set(0, dtype, tensor);
    }
    Ok(())
}

/// The one element of an input, or a symbol.
fn element(c: &mut Context<'_>, i: usize) -> SymExpr {
    match c.values(i) {
        Some([n]) => n.clone(),
        _ => c.unknown(),
    }
}

fn window(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("output_datatype").unwrap_or(DType::F32);
    let n = element(c, 0);
    c.set_dims(0, dtype, vec![n]);
    Ok(())
}

fn mel_weights(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype_attr("output_datatype").unwrap_or(DType::F32);
    let (bins, length) = (element(c, 0), element(c, 1));
    c.set_dims(0, dtype, vec![length / num(2) + num(1), bins]);
    Ok(())
}
