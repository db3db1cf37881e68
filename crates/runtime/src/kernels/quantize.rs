//! Whole numbers that stand for others by a scale and a zero point, and what is computed with them.
//! Source: the ONNX operator specification.

use tenure_graph::DType;

use super::conv::{Sizes, lay_out};
use super::element::{Elements, Number, with_type};
use super::matmul::{Finish, Matrix, Product, Stacks};
use super::small::Writer;
use super::strided::around;
use super::{Call, Made, Make, Site, Type, kernel, small};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
    ("com.microsoft:QuantizeLinear", quantize),
    ("com.microsoft:DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic),
    ("MatMulInteger", |s| product(s, false)),
    ("QLinearMatMul", |s| product(s, true)),
    ("ConvInteger", |s| conv(s, false)),
    ("QLinearConv", |s| conv(s, true)),
];

/// Which scale and zero point belong to an element.
#[derive(Clone, Debug)]
enum Spread {
    /// One for all.
    One,
    /// One for each place on an axis: its size, and the elements behind it.
    Axis(usize, usize),
    /// One for each block of places on an axis: sizes of axis and block, elements behind.
    Blocks(usize, usize, usize),
}

impl Spread {
    fn new(site: &Site<'_>, x: &Type, scale: &Type) -> Result<Self, String> {
        let block = usize::try_from(site.int("block_size", 0)).unwrap_or(0);
        if scale.elements() == 1 && block == 0 {
            return Ok(Spread::One);
        }
        let axis = x.axis(site.int("axis", 1))?;
        let [_, size, inner] = around(&x.dims, axis);
        if block > 0 {
            let blocks = size.div_ceil(block);
            let fits = scale.rank() == x.rank() && scale.dims.get(axis) == Some(&blocks);
            return if fits && scale.elements() * size == x.elements() * blocks {
                Ok(Spread::Blocks(size, block, inner))
            } else {
                Err("there is not a scale for each block".to_owned())
            };
        }
        if scale.elements() == size {
            Ok(Spread::Axis(size, inner))
        } else {
            Err(format!(
                "{} scales are not those of {size} places",
                scale.elements()
            ))
        }
    }

    #[inline]
    fn of(&self, i: usize) -> usize {
        match *self {
            Spread::One => 0,
            Spread::Axis(size, inner) => i / inner % size,
            Spread::Blocks(size, block, inner) => {
                let (outer, place) = (i / (inner * size), i / inner % size);
                (outer * size.div_ceil(block) + place / block) * inner + i % inner
            }
        }
    }
}

/// The types of scale and zero point, where the latter is there.
fn types(site: &Site<'_>) -> Result<(DType, Option<DType>), String> {
    let scale = site.input(1)?.dtype;
    let zero = site.optional(2)?.map(|t| t.dtype);
    Elements::check(scale)?;
    if let Some(zero) = zero {
        Elements::check(zero)?;
    }
    Ok((scale, zero))
}

fn zero_at(call: &Call<'_>, i: usize, dtype: Option<DType>, k: usize) -> f64 {
    match dtype {
        Some(dtype) if call.has(i) => Elements::read(call, i, dtype).f64(k),
        _ => 0.0,
    }
}

/// Divides by the scale, rounds to the nearest even number, and adds the zero point.
fn quantize(site: &Site<'_>) -> Made {
    let (x, scale, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let spread = Spread::new(site, &x, &scale)?;
    let (scale, zero) = types(site)?;
    Elements::check(x.dtype)?;
    let round = !small::is_small(y.dtype) || !small::is_float(y.dtype);
    let number = move |call: &Call<'_>, i: usize| {
        let (x, scales) = (
            Elements::read(call, 0, x.dtype),
            Elements::read(call, 1, scale),
        );
        let k = spread.of(i);
        let ratio = if matches!(scales, Elements::F32(_)) {
            // As precise as the types say, so that ties fall the same way.
            f64::from(f32::of(x.f64(i)) / f32::of(scales.f64(k)))
        } else {
            x.f64(i) / scales.f64(k)
        };
        let ratio = if round {
            ratio.round_ties_even()
        } else {
            ratio
        };
        ratio + zero.map_or(0.0, |z| Elements::read(call, 2, z).f64(k))
    };
    if small::is_small(y.dtype) {
        let elements = y.elements();
        let writer = Writer {
            dtype: y.dtype,
            saturate: site.flag("saturate", true),
            round: 0,
            clamp: true,
        };
        return kernel(move |call| {
            for i in 0..elements {
                let number = number(call, i);
                writer.set(call.write::<u8>(0), i, number);
            }
            Ok(())
        });
    }
    with_type!(y.dtype, integers, T => kernel(move |call| {
        for i in 0..y.elements() {
            let number = T::of(number(call, i));
            call.write::<T>(0)[i] = number;
        }
        Ok(())
    }))
}

fn dequantize(site: &Site<'_>) -> Made {
    let (x, scale, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let spread = Spread::new(site, &x, &scale)?;
    let (scale, zero) = types(site)?;
    Elements::check(x.dtype)?;
    with_type!(y.dtype, floats, T => kernel(move |call| {
        let x = Elements::read(call, 0, x.dtype);
        let scales = Elements::read(call, 1, scale);
        let zeros = zero.map(|z| Elements::read(call, 2, z));
        for (i, y) in call.write::<T>(0).iter_mut().enumerate() {
            let k = spread.of(i);
            let zero = zeros.map_or(0.0, |z| z.f64(k));
            *y = T::of((x.f64(i) - zero) * scales.f64(k));
        }
        Ok(())
    }))
}

/// Scale and zero point from the numbers themselves, 0 among them.
fn dynamic(site: &Site<'_>) -> Made {
    if site.input(0)?.dtype != DType::F32 {
        return Err("it takes float32".to_owned());
    }
    kernel(move |call| {
        let x = call.read::<f32>(0);
        let low = x.iter().fold(0.0, |m: f32, &x| m.min(x));
        let high = x.iter().fold(0.0, |m: f32, &x| m.max(x));
        let scale = (high - low) / 255.0;
        let zero = if scale == 0.0 {
            0.0
        } else {
            (-low / scale).round_ties_even().clamp(0.0, 255.0)
        };
        for (y, &x) in call.write::<u8>(0).iter_mut().zip(x) {
            let ratio = if scale == 0.0 {
                0.0
            } else {
                (x / scale).round_ties_even()
            };
            *y = u8::of(f64::from(ratio + zero));
        }
        let (scales, zeros) = call.write_two::<f32, u8>(1, 2);
        scales.fill(scale);
        zeros.fill(u8::of(f64::from(zero)));
        Ok(())
    })
}

/// The inputs of one side: numbers, scale and zero point by slot.
#[derive(Clone, Copy)]
struct Side {
    data: usize,
    zero: usize,
    dtype: DType,
    zero_type: Option<DType>,
    zeros: usize,
}

impl Side {
    fn new(site: &Site<'_>, data: usize, zero: usize) -> Result<Self, String> {
        let dtype = site.input(data)?.dtype;
        Elements::check(dtype)?;
        let given = site.optional(zero)?;
        if let Some(zero) = &given {
            Elements::check(zero.dtype)?;
        }
        Ok(Side {
            data,
            zero,
            dtype,
            zero_type: given.as_ref().map(|t| t.dtype),
            zeros: given.map_or(0, |t| t.elements()),
        })
    }

    /// The numbers less their zero points, as int32. A zero point is for each place of an axis with
    /// `inner` elements behind it, or for all.
    fn widen(&self, call: &Call<'_>, inner: usize, to: &mut Vec<i32>) {
        let numbers = Elements::read(call, self.data, self.dtype);
        to.clear();
        for i in 0..numbers.len() {
            let k = if self.zeros > 1 {
                i / inner.max(1) % self.zeros
            } else {
                0
            };
            let zero = zero_at(call, self.zero, self.zero_type, k);
            to.push(i32::of(numbers.f64(i) - zero));
        }
    }
}

/// What a sum of products becomes: itself, or a whole number with a scale and zero point.
#[derive(Clone, Copy)]
struct Rescale {
    /// Scales of the two sides, then of the output, by slot; the output's zero point.
    scales: [usize; 3],
    zero: usize,
    scale_type: DType,
    zero_type: DType,
    right_scales: usize,
}

impl Rescale {
    fn new(site: &Site<'_>, scales: [usize; 3], zero: usize) -> Result<Self, String> {
        let scale_type = site.input(scales[2])?.dtype;
        let zero_type = site.output(0)?.dtype;
        for dtype in [scale_type, zero_type] {
            Elements::check(dtype)?;
        }
        Ok(Rescale {
            scales,
            zero,
            scale_type,
            zero_type,
            right_scales: site.input(scales[1])?.elements(),
        })
    }

    /// The number for a sum whose right side has scale number `k`.
    fn apply(&self, call: &Call<'_>, sum: i32, k: usize) -> f64 {
        let scale =
            |i: usize, k: usize| Elements::read(call, self.scales[i], self.scale_type).f64(k);
        let k = if self.right_scales > 1 {
            k % self.right_scales
        } else {
            0
        };
        let factor = scale(0, 0) * scale(1, k) / scale(2, 0);
        (f64::from(sum) * factor).round_ties_even()
            + zero_at(call, self.zero, Some(self.zero_type), 0)
    }
}

/// Writes sums to the output, whose columns have a scale of the right side each.
fn finish(
    call: &mut Call<'_>,
    sums: &[i32],
    rescale: Option<Rescale>,
    dtype: DType,
    column: impl Fn(usize) -> usize,
) -> Result<(), String> {
    let Some(rescale) = rescale else {
        call.write::<i32>(0).copy_from_slice(sums);
        return Ok(());
    };
    with_type!(dtype, integers, T => {
        for (i, &sum) in sums.iter().enumerate() {
            let number = rescale.apply(call, sum, column(i));
            if let Some(y) = call.write::<T>(0).get_mut(i) {
                *y = T::of(number);
            }
        }
        Ok(())
    })
}

/// The two sides of a product, and what its sums are scaled to, if they are.
fn sides(site: &Site<'_>, with_scales: bool) -> Result<(Side, Side, Option<Rescale>), String> {
    if with_scales {
        let rescale = Rescale::new(site, [1, 4, 6], 7)?;
        let sides = (Side::new(site, 0, 2)?, Side::new(site, 3, 5)?);
        return Ok((sides.0, sides.1, Some(rescale)));
    }
    let sides = (Side::new(site, 0, 2)?, Side::new(site, 1, 3)?);
    if site.output(0)?.dtype != DType::I32 {
        return Err("the output is of type int32".to_owned());
    }
    Ok((sides.0, sides.1, None))
}

fn product(site: &Site<'_>, with_scales: bool) -> Made {
    let y = site.output(0)?;
    let (a, b, rescale) = sides(site, with_scales)?;
    let (left, right) = (site.input(a.data)?, site.input(b.data)?);
    let stacks = Stacks::new(&left.dims, &right.dims, [false; 2])?;
    // A row of the left side has a zero point, and a column of the right one.
    let inner = left.dims.last().copied().unwrap_or(1);
    let cols = stacks.right.cols;
    if rescale.is_some_and(|_| site.input(1).is_ok_and(|t| t.elements() > 1)) {
        return Err("a scale for each row is not supported".to_owned());
    }
    let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
    let mut sums = vec![0i32; y.elements()];
    kernel(move |call| {
        a.widen(call, inner, &mut wide_a);
        b.widen(call, 1, &mut wide_b);
        stacks.multiply(&mut (), &mut sums, &wide_a, &wide_b, 1.0)?;
        finish(call, &sums, rescale, y.dtype, |i| i % cols.max(1))
    })
}

fn conv(site: &Site<'_>, with_scales: bool) -> Made {
    let y = site.output(0)?;
    let (x, w, rescale) = sides(site, with_scales)?;
    let sizes = Sizes::new(site, &site.input(x.data)?, &site.input(w.data)?, &y)?;
    if site.optional(8)?.is_some_and(|b| b.dtype != DType::I32) {
        return Err("biases are of type int32".to_owned());
    }
    let (rows, cols) = (sizes.inputs * sizes.window(), sizes.places());
    let (mut image, mut weights) = (Vec::new(), Vec::new());
    let mut matrix = vec![0i32; rows.saturating_mul(cols)];
    let mut sums = vec![0i32; y.elements()];
    kernel(move |call| {
        x.widen(call, 1, &mut image);
        w.widen(call, rows, &mut weights);
        let bias = call.read::<i32>(8);
        let (pixels, taps) = (sizes.inputs * sizes.area(), sizes.outputs * rows);
        let result = sizes.outputs * cols;
        for k in 0..sizes.batch * sizes.groups {
            let group = k % sizes.groups;
            lay_out(&sizes, &image[k * pixels..(k + 1) * pixels], 0, &mut matrix);
            let out = &mut sums[k * result..(k + 1) * result];
            if out.is_empty() {
                continue;
            }
            let left = Matrix::new(sizes.outputs, rows, false);
            let right = Matrix::new(rows, cols, false);
            let taps = &weights[group * taps..(group + 1) * taps];
            i32::product(
                &mut (),
                out,
                (taps, left),
                (&matrix, right),
                Finish::default(),
            )?;
            for (channel, out) in out.chunks_exact_mut(cols).enumerate() {
                let bias = bias
                    .get(group * sizes.outputs + channel)
                    .copied()
                    .unwrap_or(0);
                for y in out {
                    *y = y.wrapping_add(bias);
                }
            }
        }
        let channels = sizes.groups * sizes.outputs;
        finish(call, &sums, rescale, y.dtype, |i| {
            i / cols.max(1) % channels.max(1)
        })
    })
}
