//! Images: resizing, sampling, boxes.

use rten_shape_inference::{SymExpr, ops};

use super::arithmetic::num;
use super::layout::axes;
use crate::DType;
use crate::dim_expr::constant;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Resize" => resize,
        "Upsample" => upsample,
        "GridSample" => grid_sample,
        "AffineGrid" => affine_grid,
        "ImageDecoder" => image_decoder,
        "NonMaxSuppression" => non_max_suppression,
        _ => return None,
    })
}

/// See <https://onnx.ai/onnx/operators/onnx__Resize.html>.
fn resize(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let chosen = match c.int_list("axes") {
        Some(list) => axes(&list, c, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    // Version 10 has the scales second; later ones a region first, and sizes last.
    let scales_at = if c.tensors.len() == 2 { 1 } else { 2 };
    let is_given = |i: usize| c.has(i) && c.length(i) != Some(0);
    if is_given(3) {
        let sizes = match c.values(3) {
            Some(sizes) => sizes.to_vec(),
            None => c.unknowns(chosen.len()),
        };
        if sizes.len() != chosen.len() {
            return impossible(format!("{} sizes for {} axes", sizes.len(), chosen.len()));
        }
        let policy = c
            .text("keep_aspect_ratio_policy")
            .unwrap_or("stretch")
            .to_owned();
        let sizes = if policy == "stretch" {
            sizes
        } else {
            let inputs: Vec<SymExpr> = chosen.iter().map(|&a| dims[a].clone()).collect();
            match keep_aspect(&inputs, &sizes, policy == "not_larger") {
                Some(sizes) => sizes,
                None => c.unknowns(chosen.len()),
            }
        };
        for (&axis, size) in chosen.iter().zip(sizes) {
            dims[axis] = size;
        }
    } else {
        // A region of the input does not change the size, whatever the operator's text says: neither
        // ONNX's reference nor ONNX Runtime lets it.
        let scales = c.floats(scales_at);
        scale(c, &mut dims, &chosen, scales.as_deref())?;
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

/// Sizes that keep the ratio of the inputs', at most or at least the ones asked for.
fn keep_aspect(inputs: &[SymExpr], sizes: &[SymExpr], not_larger: bool) -> Option<Vec<SymExpr>> {
    #[expect(clippy::cast_precision_loss, reason = "image sizes")]
    let float = |e: &SymExpr| constant(e).map(|n| n as f64);
    let ratios = inputs
        .iter()
        .zip(sizes)
        .map(|(i, s)| Some(float(s)? / float(i)?));
    let ratios: Vec<f64> = ratios.collect::<Option<_>>()?;
    let scale = if not_larger {
        ratios.iter().copied().fold(f64::INFINITY, f64::min)
    } else {
        ratios.iter().copied().fold(0.0, f64::max)
    };
    if !scale.is_finite() {
        return None;
    }
    // Halves are rounded up.
    inputs
        .iter()
        .map(|i| whole((float(i)? * scale + 0.5).floor()))
        .collect()
}

/// A float that is a whole number as a dimension.
fn whole(x: f64) -> Option<SymExpr> {
    #[expect(clippy::cast_possible_truncation, reason = "within 53 bits")]
    (x.abs() < 9e15).then(|| num(x as i64))
}

/// Multiplies the chosen dimensions by scales and rounds down.
fn scale(
    c: &mut Context<'_>,
    dims: &mut [SymExpr],
    chosen: &[usize],
    scales: Option<&[f64]>,
) -> Answer {
    let Some(scales) = scales else {
        for &axis in chosen {
            dims[axis] = c.unknown();
        }
        return Ok(());
    };
    if scales.len() != chosen.len() {
        return impossible(format!("{} scales for {} axes", scales.len(), chosen.len()));
    }
    for (&axis, &scale) in chosen.iter().zip(scales) {
        dims[axis] = match scaled(&dims[axis], scale) {
            Some(dim) => dim,
            None => c.unknown(),
        };
    }
    Ok(())
}

/// A dimension times a scale, rounded down. Numbers are multiplied as the operator does it, in
/// single precision.
fn scaled(dim: &SymExpr, scale: f64) -> Option<SymExpr> {
    if let Some(n) = constant(dim) {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "single precision is what the operator computes in"
        )]
        return whole(f64::from((n as f32 * scale as f32).floor()));
    }
    let inverse = 1.0 / scale;
    if scale == scale.floor() {
        Some(dim.clone() * whole(scale)?)
    } else if inverse == inverse.floor() && scale > 0.0 {
        Some(dim.clone() / whole(inverse)?)
    } else {
        None
    }
}

fn upsample(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let all: Vec<usize> = (0..dims.len()).collect();
    let scales = if c.has(1) {
        c.floats(1)
    } else {
        c.float_list("scales")
    };
    scale(c, &mut dims, &all, scales.as_deref())?;
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn grid_sample(c: &mut Context<'_>) -> Answer {
    c.first(&ops::GridSample, Numbers::Kept, c.dtype(0))
}

fn affine_grid(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    // Sizes are `[N, C, (D,) H, W]`; the grid leaves the channels out and adds coordinates.
    let size = match (c.values(1), c.length(1)) {
        (Some(size), _) => size.to_vec(),
        (None, Some(n)) => c.unknowns(n),
        (None, None) => return Err(Refusal::NoAnswer),
    };
    if size.len() < 4 {
        return impossible(format!("size has {} elements, expected 4 or 5", size.len()));
    }
    let spatial = size[2..].to_vec();
    let mut dims = vec![size[0].clone()];
    let coordinates = i128::try_from(spatial.len()).unwrap_or(0);
    dims.extend(spatial);
    dims.push(num(coordinates));
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn image_decoder(c: &mut Context<'_>) -> Answer {
    let channels = match c.text("pixel_format") {
        Some("Grayscale") => 1,
        _ => 3,
    };
    let (h, w) = (c.unknown(), c.unknown());
    c.set_dims(0, DType::U8, vec![h, w, num(channels)]);
    Ok(())
}

fn non_max_suppression(c: &mut Context<'_>) -> Answer {
    c.first(&ops::NonMaxSuppression, Numbers::Kept, DType::I64)
}
