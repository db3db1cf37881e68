//! Losses, optimisers and gradients.

use rten_shape_inference::SymExpr;

use super::arithmetic::num;
use super::elementwise::same;
use super::reduce::reduce;
use crate::DType;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

/// Operators of the default domain and of `ai.onnx.preview.training`.
pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "SoftmaxCrossEntropyLoss" => cross_entropy,
        "NegativeLogLikelihoodLoss" => likelihood,
        "Adam" => adam,
        "Adagrad" | "Momentum" => momentum,
        _ => return None,
    })
}

/// Operators of ONNX Runtime's training graphs.
pub(super) fn find_microsoft(op: &str) -> Option<Rule> {
    Some(match op {
        "BiasGeluGrad_dX"
        | "DropoutGrad"
        | "FastGeluGrad"
        | "GeluGrad"
        | "LogSoftmaxGrad"
        | "LogSoftmaxGrad_13"
        | "QuickGeluGrad"
        | "ReluGrad"
        | "Scale"
        | "SigmoidGrad"
        | "SoftmaxGrad"
        | "SoftmaxGrad_13"
        | "TanhGrad"
        | "LeakyReluGrad"
        | "BiasFastGeluGrad_dX" => same,
        "SoftmaxCrossEntropyLossGrad" | "SoftmaxCrossEntropyLossInternalGrad" => like_second,
        "SoftmaxCrossEntropyLossInternal" => cross_entropy,
        "ConvGrad" => conv_grad,
        "BatchNormalizationGrad"
        | "LayerNormalizationGrad"
        | "SimplifiedLayerNormalizationGrad" => norm_grad,
        "InPlaceAccumulatorV2" => accumulate,
        "InPlaceAccumulator" | "GradientAccumulator" | "ZeroGradient" => same,
        "GatherGrad" => shape_of_first,
        "SliceGrad" | "GatherElementsGrad" => shape_of_second,
        "ReduceSumTraining" => reduce,
        "BroadcastGradientArgs" => gradient_axes,
        _ => return None,
    })
}

/// Inputs scores `[N, C, ...]` and labels `[N, ...]`.
fn loss(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    if c.text("reduction").unwrap_or("mean") == "none" {
        return c.set_like(0, dtype, 1);
    }
    c.set_dims(0, dtype, Vec::new());
    Ok(())
}

fn likelihood(c: &mut Context<'_>) -> Answer {
    loss(c)
}

fn cross_entropy(c: &mut Context<'_>) -> Answer {
    let result = loss(c);
    c.set_like(1, c.dtype(0), 0)?;
    result
}

/// Inputs are rate, counter, then so many groups of `n` tensors: parameters, gradients, states.
fn optimiser(c: &mut Context<'_>, groups: usize) -> Answer {
    let given = c.tensors.len().saturating_sub(2);
    let n = given / groups;
    if n == 0 || n * groups != given {
        return impossible(format!("{given} tensors are no {groups} groups"));
    }
    // The outputs are the parameters and the states; gradients have none.
    for k in 0..c.outputs.len() {
        let group = if k < n { 0 } else { k / n + 1 };
        let input = 2 + group * n + k % n;
        c.set_like(k, c.dtype(input), input)?;
    }
    Ok(())
}

fn adam(c: &mut Context<'_>) -> Answer {
    optimiser(c, 4)
}

fn momentum(c: &mut Context<'_>) -> Answer {
    optimiser(c, 3)
}

fn like_second(c: &mut Context<'_>) -> Answer {
    c.set_like(0, c.dtype(1), 1)
}

/// Inputs are the gradient, data and weights; outputs the gradients of data, weights, bias.
fn conv_grad(c: &mut Context<'_>) -> Answer {
    c.set_dtype(2, c.dtype(2));
    c.set_like(0, c.dtype(1), 1)?;
    c.set_like(1, c.dtype(2), 2)?;
    let channels: SymExpr = match c.dims(2)?.into_iter().next() {
        Some(channels) => channels,
        None => return impossible("the weights are a scalar"),
    };
    c.set_dims(2, c.dtype(2), vec![channels]);
    Ok(())
}

/// Inputs are the gradient, data and scale; outputs the gradients of data, scale, bias.
fn norm_grad(c: &mut Context<'_>) -> Answer {
    c.set_like(0, c.dtype(1), 1)?;
    c.set_like(1, c.dtype(2), 2)?;
    c.set_like(2, c.dtype(2), 2)
}

fn accumulate(c: &mut Context<'_>) -> Answer {
    c.set_dims(0, DType::Bool, vec![num(1)]);
    c.set_like(1, c.dtype(0), 0)
}

/// The shape that input `i` holds.
fn shape_in(c: &mut Context<'_>, i: usize, dtype: DType) -> Answer {
    c.set_dtype(0, dtype);
    let dims = match (c.values(i), c.length(i)) {
        (Some(dims), _) => dims.to_vec(),
        (None, Some(n)) => c.unknowns(n),
        (None, None) => return Err(Refusal::NoAnswer),
    };
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn shape_of_first(c: &mut Context<'_>) -> Answer {
    shape_in(c, 0, c.dtype(2))
}

fn shape_of_second(c: &mut Context<'_>) -> Answer {
    shape_in(c, 1, c.dtype(0))
}

fn gradient_axes(c: &mut Context<'_>) -> Answer {
    for i in 0..2 {
        let n = c.unknown();
        c.set_dims(i, DType::I64, vec![n]);
    }
    Ok(())
}
