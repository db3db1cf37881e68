//! Convolution and pooling over any number of spatial dimensions.
//!
//! The rules of `rten-shape-inference` are not asked here: in 0.27 they leave out every spatial
//! dimension after the second.

use rten_shape_inference::SymExpr;

use super::arithmetic::num;
use crate::DType;
use crate::dim_expr::constant;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Conv" => conv,
        "ConvInteger" => conv_integer,
        "QLinearConv" => qlinear_conv,
        "ConvTranspose" => conv_transpose,
        "DeformConv" => conv,
        "AveragePool" | "LpPool" => pool,
        "MaxPool" => max_pool,
        "GlobalAveragePool" | "GlobalLpPool" | "GlobalMaxPool" => global_pool,
        "MaxUnpool" => max_unpool,
        "MaxRoiPool" => max_roi_pool,
        "RoiAlign" => roi_align,
        _ => return None,
    })
}

/// How a window moves over the spatial dimensions.
struct Window {
    kernel: Vec<SymExpr>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Starts, then ends.
    pads: Vec<i64>,
    /// The output is as large as the input over the stride.
    same: bool,
    ceil: bool,
}

impl Window {
    fn of(c: &Context<'_>, kernel: Vec<SymExpr>) -> Result<Self, Refusal> {
        let n = kernel.len();
        let list = |name: &str, len: usize, default: i64, least: i64| {
            let list = c.int_list(name).filter(|l| !l.is_empty());
            let list = list.unwrap_or_else(|| vec![default; len]);
            if list.len() == len && list.iter().all(|&n| n >= least) {
                Ok(list)
            } else {
                impossible(format!("{name} {list:?} for {n} spatial dimensions"))
            }
        };
        let auto = c.text("auto_pad").unwrap_or("NOTSET");
        Ok(Window {
            strides: list("strides", n, 1, 1)?,
            dilations: list("dilations", n, 1, 1)?,
            pads: match auto {
                "NOTSET" => list("pads", 2 * n, 0, i64::MIN)?,
                _ => vec![0; 2 * n],
            },
            same: auto.starts_with("SAME"),
            ceil: c.int("ceil_mode", 0) != 0,
            kernel,
        })
    }

    /// Size of output dimension `d` for an input of `size`.
    ///
    /// See <https://onnx.ai/onnx/operators/onnx__MaxPool.html>.
    fn output(&self, d: usize, size: &SymExpr) -> Result<SymExpr, Refusal> {
        let stride = num(self.strides[d]);
        if self.same {
            return Ok(size.div_ceil(&stride));
        }
        let (start, end) = (self.pads[d], self.pads[self.kernel.len() + d]);
        let padded = size.clone() + num(i128::from(start) + i128::from(end));
        let reach = num(self.dilations[d]) * (self.kernel[d].clone() - num(1)) + num(1);
        let moves = crate::dim_expr::simplify(padded - reach);
        if constant(&moves).is_some_and(|n| n < 0) {
            return impossible(format!(
                "the window is larger than the padded input along spatial dimension {d}"
            ));
        }
        if !self.ceil {
            return Ok(moves / stride + num(1));
        }
        // A window that would start behind the input and its front padding is left out.
        let starts = size.clone() + num(i128::from(start) - 1);
        Ok((moves.div_ceil(&stride) + num(1)).min(&(starts / stride + num(1))))
    }
}

/// A convolution of input 0 with the weights in input `weights`.
fn convolve(c: &mut Context<'_>, weights: usize, dtype: DType) -> Answer {
    c.set_dtype(0, dtype);
    let data = c.dims(0)?;
    if data.len() < 2 {
        return impossible(format!("input of rank {} has no channels", data.len()));
    }
    let n = data.len() - 2;
    let weights = match c.dims(weights) {
        Ok(weights) if weights.len() == data.len() => Some(weights),
        Ok(weights) => {
            return impossible(format!(
                "input of rank {} and weights of rank {}",
                data.len(),
                weights.len()
            ));
        }
        Err(_) => None,
    };
    let kernel = match (&weights, c.int_list("kernel_shape")) {
        (_, Some(kernel)) if kernel.len() == n => kernel.into_iter().map(num).collect(),
        (Some(weights), _) => weights[2..].to_vec(),
        (None, _) => c.unknowns(n),
    };
    let window = Window::of(c, kernel)?;
    let channels = match weights {
        Some(weights) => {
            check_channels(c, &data[1], &weights[1])?;
            weights[0].clone()
        }
        None => c.unknown(),
    };
    let mut dims = vec![data[0].clone(), channels];
    for (d, size) in data[2..].iter().enumerate() {
        dims.push(window.output(d, size)?);
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn check_channels(c: &Context<'_>, channels: &SymExpr, per_group: &SymExpr) -> Answer {
    let groups = i128::from(c.int("group", 1));
    match (constant(channels), constant(per_group)) {
        (Some(have), Some(each)) if each.checked_mul(groups) != Some(have) => impossible(format!(
            "input has {have} channels, weights are for {groups} groups of {each}"
        )),
        _ => Ok(()),
    }
}

fn conv(c: &mut Context<'_>) -> Answer {
    convolve(c, 1, c.dtype(0))
}

fn conv_integer(c: &mut Context<'_>) -> Answer {
    convolve(c, 1, DType::I32)
}

fn qlinear_conv(c: &mut Context<'_>) -> Answer {
    convolve(c, 3, c.dtype(7))
}

/// See <https://onnx.ai/onnx/operators/onnx__ConvTranspose.html>.
fn conv_transpose(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let (data, weights) = (c.dims(0)?, c.dims(1)?);
    if data.len() < 2 || weights.len() != data.len() {
        return impossible(format!(
            "input of rank {} and weights of rank {}",
            data.len(),
            weights.len()
        ));
    }
    let n = data.len() - 2;
    let kernel = match c.int_list("kernel_shape") {
        Some(kernel) if kernel.len() == n => kernel.into_iter().map(num).collect(),
        _ => weights[2..].to_vec(),
    };
    let window = Window::of(c, kernel)?;
    let extra = c.int_list("output_padding").unwrap_or_else(|| vec![0; n]);
    // Newer models may list the whole shape, with batch and channels.
    let fixed = c
        .int_list("output_shape")
        .map(|s| s[s.len().saturating_sub(n)..].to_vec());
    let mut dims = vec![data[0].clone(), weights[1].clone() * num(c.int("group", 1))];
    for (d, size) in data[2..].iter().enumerate() {
        let stride = num(window.strides[d]);
        dims.push(match &fixed {
            Some(fixed) if d < fixed.len() => num(fixed[d]),
            _ if window.same => size.clone() * stride,
            _ => {
                let pads = i128::from(window.pads[d]) + i128::from(window.pads[n + d]);
                let reach = num(window.dilations[d]) * (window.kernel[d].clone() - num(1)) + num(1);
                let extra = i128::from(extra.get(d).copied().unwrap_or(0));
                stride * (size.clone() - num(1)) + reach + num(extra - pads)
            }
        });
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn pool(c: &mut Context<'_>) -> Answer {
    let dims = pooled(c)?;
    c.set_dims(0, c.dtype(0), dims);
    Ok(())
}

fn max_pool(c: &mut Context<'_>) -> Answer {
    c.set_dtype(1, DType::I64);
    let dims = pooled(c)?;
    c.set_dims(0, c.dtype(0), dims.clone());
    c.set_dims(1, DType::I64, dims);
    Ok(())
}

fn pooled(c: &mut Context<'_>) -> Result<Vec<SymExpr>, Refusal> {
    c.set_dtype(0, c.dtype(0));
    let data = c.dims(0)?;
    let kernel = c.int_list("kernel_shape").unwrap_or_default();
    if data.len() < 2 || kernel.len() != data.len() - 2 {
        return impossible(format!(
            "kernel {kernel:?} for input of rank {}",
            data.len()
        ));
    }
    let window = Window::of(c, kernel.into_iter().map(num).collect())?;
    let mut dims = data[..2].to_vec();
    for (d, size) in data[2..].iter().enumerate() {
        dims.push(window.output(d, size)?);
    }
    Ok(dims)
}

fn global_pool(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    for dim in dims.iter_mut().skip(2) {
        *dim = num(1);
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn max_unpool(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let data = c.dims(0)?;
    if c.has(2) {
        let dims = match c.values(2) {
            Some(shape) => shape.to_vec(),
            None => c.unknowns(data.len()),
        };
        c.set_dims(0, dtype, dims);
        return Ok(());
    }
    let kernel = c.int_list("kernel_shape").unwrap_or_default();
    if data.len() < 2 || kernel.len() != data.len() - 2 {
        return impossible(format!(
            "kernel {kernel:?} for input of rank {}",
            data.len()
        ));
    }
    let n = kernel.len();
    let window = Window::of(c, kernel.into_iter().map(num).collect())?;
    let mut dims = data[..2].to_vec();
    for (d, size) in data[2..].iter().enumerate() {
        let pads = i128::from(window.pads[d]) + i128::from(window.pads[n + d]);
        let stride = num(window.strides[d]);
        dims.push((size.clone() - num(1)) * stride - num(pads) + window.kernel[d].clone());
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn max_roi_pool(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let (data, rois) = (c.dims_of_rank::<4>(0)?, c.dims_of_rank::<2>(1)?);
    let (h, w) = match c.int_list("pooled_shape").as_deref() {
        Some(&[h, w]) => (h, w),
        _ => return impossible("pooled_shape is not of two numbers"),
    };
    let [_, channels, ..] = data;
    let [n, _] = rois;
    c.set_dims(0, dtype, vec![n, channels, num(h), num(w)]);
    Ok(())
}

fn roi_align(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let [_, channels, ..] = c.dims_of_rank::<4>(0)?;
    let rois = c.dims(1).ok().and_then(|d| d.first().cloned());
    let n = match rois.or_else(|| c.dims(2).ok().and_then(|d| d.first().cloned())) {
        Some(n) => n,
        None => c.unknown(),
    };
    let (h, w) = (c.int("output_height", 1), c.int("output_width", 1));
    c.set_dims(0, dtype, vec![n, channels, num(h), num(w)]);
    Ok(())
}
