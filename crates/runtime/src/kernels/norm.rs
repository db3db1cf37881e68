//! Normalisations: rows, channels or groups of a tensor are brought to a mean and a spread.
//! Source: the ONNX operator specification.

use rten_simd::SimdOp;
use rten_vecmath as simd;
use tenure_graph::DType;

use super::element::{Elements, Number, with_type};
use super::strided::{Loop, around, at, contiguous, signed};
use super::{Made, Make, Site, kernel, kernel_over, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Softmax", |s| softmax(s, Rows::Softmax)),
    ("LogSoftmax", |s| softmax(s, Rows::LogSoftmax)),
    ("Hardmax", |s| softmax(s, Rows::Hardmax)),
    ("LpNormalization", lp),
    ("LayerNormalization", layer),
    ("RMSNormalization", rms),
    ("SimplifiedLayerNormalization", rms),
    ("GroupNormalization", group),
    ("InstanceNormalization", instance),
    ("BatchNormalization", batch),
    ("MeanVarianceNormalization", mean_variance),
    ("LRN", lrn),
];

/// What is done to a row of elements.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Softmax,
    LogSoftmax,
    Hardmax,
}

/// Exponentials that sum up to 1, along an axis. Before opset 13 the tensor counts as a matrix.
fn softmax(site: &Site<'_>, kind: Rows) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    if x.dtype != y.dtype || x.elements() != y.elements() {
        return Err("input and output have other elements".to_owned());
    }
    let [outer, row, inner] = if site.opset() < 13 {
        let axis = site.int("axis", 1);
        // The end is an axis here: then each element is a row.
        let axis = if axis == i64::try_from(x.rank()).unwrap_or(i64::MAX) {
            x.rank()
        } else {
            x.axis(axis)?
        };
        [product(&x.dims[..axis]), product(&x.dims[axis..]), 1]
    } else {
        around(&x.dims, x.axis(site.int("axis", -1))?)
    };
    if x.dtype == DType::F32 && inner == 1 && !matches!(kind, Rows::Hardmax) {
        return kernel_over(&[0], move |call| {
            call.settle_parts(0, 0, row, |row| {
                if matches!(kind, Rows::Softmax) {
                    simd::Softmax::new_mut(row).dispatch();
                } else {
                    simd::LogSoftmax::new_mut(row).dispatch();
                }
            });
            Ok(())
        });
    }
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        call.settle(0, 0);
        let y = call.write::<T>(0);
        for o in 0..outer {
            for i in 0..inner {
                let place = |k: usize| (o * row + k) * inner + i;
                let greatest = (0..row).fold(T::LEAST, |m, k| m.max(y[place(k)]));
                if matches!(kind, Rows::Hardmax) {
                    let first = (0..row).find(|&k| y[place(k)] == greatest);
                    for k in 0..row {
                        y[place(k)] = if Some(k) == first { T::ONE } else { T::default() };
                    }
                    continue;
                }
                let greatest = greatest.f64();
                let sum: f64 = (0..row).map(|k| (y[place(k)].f64() - greatest).exp()).sum();
                for k in 0..row {
                    let above = y[place(k)].f64() - greatest;
                    y[place(k)] = T::of(match kind {
                        Rows::LogSoftmax => above - sum.ln(),
                        _ => above.exp() / sum,
                    });
                }
            }
        }
        Ok(())
    }))
}

/// Divides rows along an axis by their length.
fn lp(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let [outer, row, inner] = around(&x.dims, x.axis(site.int("axis", -1))?);
    let p = site.int("p", 2);
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        call.settle(0, 0);
        let y = call.write::<T>(0);
        for o in 0..outer {
            for i in 0..inner {
                let place = |k: usize| (o * row + k) * inner + i;
                let terms = (0..row).map(|k| y[place(k)].f64());
                let length = match p {
                    1 => terms.map(f64::abs).sum::<f64>(),
                    _ => terms.map(|x| x * x).sum::<f64>().sqrt(),
                };
                for k in 0..row {
                    let x = y[place(k)].f64();
                    y[place(k)] = T::of(if length == 0.0 { 0.0 } else { x / length });
                }
            }
        }
        Ok(())
    }))
}

/// How a scale or bias lies over a row.
struct Weights(Option<Loop<1>>);

impl Weights {
    fn of(site: &Site<'_>, i: usize, dims: &[usize]) -> Result<Self, String> {
        Ok(Weights(match site.optional(i)? {
            Some(ty) => Some(Loop::over(dims, [&ty.dims])?),
            None => None,
        }))
    }

    /// Calls `f` with the number of each element and the weight for it.
    fn each<T: Number>(&self, weights: &[T], mut f: impl FnMut(usize, f64)) {
        let Some(places) = &self.0 else { return };
        let mut n = 0;
        places.each(|[i]| {
            f(n, weights[at(i)].f64());
            n += 1;
        });
    }
}

/// Mean and spread of a row, and the row of a scale and a bias.
fn layer(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let axis = x.axis(site.int("axis", -1))?;
    let row = product(&x.dims[axis..]);
    let epsilon = site.float("epsilon", 1e-5);
    if x.dtype != y.dtype {
        return Err("input and output are of two types".to_owned());
    }
    let vector = |i: usize| -> Result<bool, String> {
        Ok(site.optional(i)?.is_none_or(|t| t.elements() == row))
    };
    if x.dtype == DType::F32
        && vector(1)?
        && vector(2)?
        && !site.has_output(1)
        && !site.has_output(2)
    {
        #[expect(clippy::cast_possible_truncation, reason = "attributes are float32")]
        let epsilon = epsilon as f32;
        return kernel_over(&[0], move |call| {
            let (scale, bias) = (call.read::<f32>(1), call.read::<f32>(2));
            call.settle(0, 0);
            for row in call.write::<f32>(0).chunks_exact_mut(row.max(1)) {
                normalize(row, scale, bias, epsilon);
            }
            Ok(())
        });
    }
    let (scale, bias) = (
        Weights::of(site, 1, &x.dims[axis..])?,
        Weights::of(site, 2, &x.dims[axis..])?,
    );
    let statistics = site.has_output(1).then(|| site.output(1)).transpose()?;
    if statistics.is_some_and(|s| s.dtype != DType::F32) {
        return Err("mean and spread are of type float32".to_owned());
    }
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        let (scales, biases) = (call.read::<T>(1), call.read::<T>(2));
        call.settle(0, 0);
        for (r, row) in rows_of(row, call.write::<T>(0).len()) {
            let y = &mut call.write::<T>(0)[row];
            let [mean, inverse] = moments(y, epsilon);
            for y in y.iter_mut() {
                *y = T::of((y.f64() - mean) * inverse);
            }
            scale.each(scales, |i, w| y[i] = T::of(y[i].f64() * w));
            bias.each(biases, |i, w| y[i] = T::of(y[i].f64() + w));
            let [means, inverses] = call.write_each::<f32, 2>([1, 2]);
            for (to, value) in [(means, mean), (inverses, inverse)] {
                if let Some(to) = to.get_mut(r) {
                    *to = f32::of(value);
                }
            }
        }
        Ok(())
    }))
}

fn rows_of(row: usize, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let rows = len.checked_div(row).unwrap_or(0);
    (0..rows).map(move |r| (r, r * row..(r + 1) * row))
}

/// Brings a row to mean 0 and spread 1, then scales and shifts it.
fn normalize(row: &mut [f32], scale: &[f32], bias: &[f32], epsilon: f32) {
    #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
    let count = row.len() as f32;
    let mean = simd::Sum::new(row).dispatch() / count;
    let spread = simd::SumSquareSub::new(row, mean).dispatch() / count;
    let inverse = 1.0 / (spread + epsilon).sqrt();
    match (scale, bias) {
        ([], []) => {
            for y in row {
                *y = (*y - mean) * inverse;
            }
        }
        (scale, []) => {
            for (y, s) in row.iter_mut().zip(scale) {
                *y = (*y - mean) * inverse * s;
            }
        }
        (scale, bias) => {
            for ((y, s), b) in row.iter_mut().zip(scale).zip(bias) {
                *y = (*y - mean) * inverse * s + b;
            }
        }
    }
}

/// The mean of some numbers, and the inverse of their spread.
#[expect(clippy::cast_precision_loss, reason = "a number of elements")]
fn moments<T: Number>(of: &[T], epsilon: f64) -> [f64; 2] {
    let count = of.len().max(1) as f64;
    let mean = of.iter().map(|x| x.f64()).sum::<f64>() / count;
    let spread = of.iter().map(|x| (x.f64() - mean).powi(2)).sum::<f64>() / count;
    [mean, 1.0 / (spread + epsilon).sqrt()]
}

/// Rows are divided by the root of their mean square.
fn rms(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let axis = x.axis(site.int("axis", -1))?;
    let row = product(&x.dims[axis..]);
    let epsilon = site.float("epsilon", 1e-5);
    let scale = Weights::of(site, 1, &x.dims[axis..])?;
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        let scales = call.read::<T>(1);
        call.settle(0, 0);
        for y in call.write::<T>(0).chunks_exact_mut(row.max(1)) {
            #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
            let count = y.len() as f64;
            let mean = y.iter().map(|x| x.f64().powi(2)).sum::<f64>() / count;
            let inverse = 1.0 / (mean + epsilon).sqrt();
            for y in y.iter_mut() {
                *y = T::of(y.f64() * inverse);
            }
            scale.each(scales, |i, w| y[i] = T::of(y[i].f64() * w));
        }
        Ok(())
    }))
}

/// Groups of channels are brought to mean 0 and spread 1. Scale and bias are for each channel since
/// opset 21, for each group before.
fn group(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let groups = usize::try_from(site.int("num_groups", 1)).unwrap_or(0);
    let channels = x.dims.get(1).copied().unwrap_or(0);
    if groups == 0 || channels % groups != 0 {
        return Err(format!("{channels} channels are not {groups} groups"));
    }
    let by_group = site.input(1)?.elements() == groups && groups != channels;
    channelwise(site, channels / groups, by_group)
}

fn instance(site: &Site<'_>) -> Made {
    channelwise(site, 1, false)
}

/// `together` channels in a row are brought to mean 0 and spread 1, then each is scaled and
/// shifted.
fn channelwise(site: &Site<'_>, together: usize, by_group: bool) -> Made {
    let (x, scale, bias) = (site.input(0)?, site.input(1)?, site.input(2)?);
    let [_, channels, area] = around(&x.dims, 1);
    let epsilon = site.float("epsilon", 1e-5);
    let weights = if by_group {
        channels / together.max(1)
    } else {
        channels
    };
    if scale.elements() != weights || bias.elements() != weights {
        return Err(format!("there are not {weights} scales and biases"));
    }
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        let (scale, bias) = (call.read::<T>(1), call.read::<T>(2));
        call.settle(0, 0);
        let row = (together * area).max(1);
        for (r, y) in call.write::<T>(0).chunks_exact_mut(row).enumerate() {
            let [mean, inverse] = moments(y, epsilon);
            for (k, y) in y.chunks_exact_mut(area.max(1)).enumerate() {
                let channel = (r * together + k) % channels.max(1);
                let weight = if by_group { channel / together } else { channel };
                let (s, b) = (scale[weight].f64(), bias[weight].f64());
                for y in y {
                    *y = T::of((y.f64() - mean) * inverse * s + b);
                }
            }
        }
        Ok(())
    }))
}

/// Channels are brought to the mean and spread that are given, or, in training, to their own.
fn batch(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let [_, channels, area] = around(&x.dims, 1);
    let epsilon = site.float("epsilon", 1e-5);
    let momentum = site.float("momentum", 0.9);
    let training = site.flag("training_mode", false);
    let old = site.opset() < 7 && !site.flag("is_test", false);
    if old || (site.opset() < 9 && !site.flag("spatial", true)) {
        return Err("this form of an old operator set is not supported".to_owned());
    }
    let weights = [1, 2, 3, 4].map(|i| site.input(i));
    let dtype = weights[0].as_ref().map_or(DType::Unknown, |w| w.dtype);
    let statistics = weights[2].as_ref().map_or(DType::Unknown, |w| w.dtype);
    for weight in weights {
        if weight?.elements() != channels {
            return Err(format!(
                "there are not {channels} scales, biases, means and spreads"
            ));
        }
    }
    if training && statistics != x.dtype {
        return Err("in training, means and spreads are of the image's type".to_owned());
    }
    for dtype in [dtype, statistics] {
        Elements::check(dtype)?;
    }
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        let read = |i, dtype| Elements::read(call, i, dtype);
        let (scale, bias) = (read(1, dtype), read(2, dtype));
        let (mean, spread) = (read(3, statistics), read(4, statistics));
        call.settle(0, 0);
        for c in 0..channels {
            let y = call.write::<T>(0);
            let images = y.len().checked_div(channels * area).unwrap_or(0);
            let places = move |n: usize| (n * channels + c) * area..(n * channels + c + 1) * area;
            let (mut m, mut v) = (mean.f64(c), spread.f64(c));
            if training {
                #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
                let count = (images * area).max(1) as f64;
                let all = || (0..images).flat_map(|n| &y[places(n)]).map(|x| x.f64());
                m = all().sum::<f64>() / count;
                v = all().map(|x| (x - m).powi(2)).sum::<f64>() / count;
            }
            let factor = scale.f64(c) / (v + epsilon).sqrt();
            let shift = bias.f64(c) - m * factor;
            for n in 0..images {
                affine(&mut y[places(n)], factor, shift);
            }
            if training {
                let running = |old: f64, new: f64| T::of(old * momentum + new * (1.0 - momentum));
                let [means, spreads] = call.write_each::<T, 2>([1, 2]);
                if let Some(to) = means.get_mut(c) {
                    *to = running(mean.f64(c), m);
                }
                if let Some(to) = spreads.get_mut(c) {
                    *to = running(spread.f64(c), v);
                }
            }
        }
        Ok(())
    }))
}

fn affine<T: Number>(y: &mut [T], factor: f64, shift: f64) {
    if let Ok(y) = bytemuck::try_cast_slice_mut::<T, f32>(y)
        && size_of::<T>() == size_of::<f32>()
    {
        let (factor, shift) = (f32::of(factor), f32::of(shift));
        for y in y {
            *y = *y * factor + shift;
        }
        return;
    }
    for y in y {
        *y = T::of(y.f64() * factor + shift);
    }
}

/// Mean 0 and spread 1 over some axes.
fn mean_variance(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let axes = site.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let mut over = vec![false; x.rank()];
    for axis in axes {
        over[x.axis(axis)?] = true;
    }
    let strides = contiguous(&x.dims);
    let pick = |taken: bool| -> (super::Dims, super::strided::Strides) {
        let axes = (0..x.rank()).filter(|&a| over[a] == taken);
        axes.map(|a| (x.dims[a], strides[a])).unzip()
    };
    let (kept, reduced) = (pick(false), pick(true));
    let (outer, inner) = (
        Loop::new(&kept.0, [&kept.1]),
        Loop::new(&reduced.0, [&reduced.1]),
    );
    let count = signed(product(&reduced.0));
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        call.settle(0, 0);
        let y = call.write::<T>(0);
        #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
        let count = count as f64;
        outer.each(|[start]| {
            let (mut sum, mut squares) = (0.0, 0.0);
            inner.each(|[i]| sum += y[at(start + i)].f64());
            let mean = sum / count;
            inner.each(|[i]| squares += (y[at(start + i)].f64() - mean).powi(2));
            let spread = (squares / count).sqrt();
            inner.each(|[i]| {
                let y = &mut y[at(start + i)];
                *y = T::of((y.f64() - mean) / (spread + 1e-9));
            });
        });
        Ok(())
    }))
}

/// Local response: each number is divided by those of the channels around it.
fn lrn(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let [_, channels, area] = around(&x.dims, 1);
    let size = usize::try_from(site.int("size", 1)).unwrap_or(1).max(1);
    let (alpha, beta) = (site.float("alpha", 1e-4), site.float("beta", 0.75));
    let bias = site.float("bias", 1.0);
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        let images = x.len().checked_div(channels * area).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a number of channels")]
        let share = alpha / size as f64;
        for n in 0..images {
            for c in 0..channels {
                let first = c.saturating_sub((size - 1) / 2);
                let last = (c + (size - 1).div_ceil(2)).min(channels - 1);
                for i in 0..area {
                    let place = |c: usize| (n * channels + c) * area + i;
                    let squares: f64 = (first..=last).map(|c| x[place(c)].f64().powi(2)).sum();
                    let by = (bias + share * squares).powf(beta);
                    y[place(c)] = T::of(x[place(c)].f64() / by);
                }
            }
        }
        Ok(())
    }))
}
