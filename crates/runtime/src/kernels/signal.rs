//! Windows and Fourier transforms of signals. Source: the ONNX operator specification.

use std::f64::consts::PI;

use super::element::{Number, with_type};
use super::layout::{integer_type, integers};
use super::strided::around;
use super::{Made, Make, Site, kernel};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("HannWindow", |s| window(s, [0.5, 0.5, 0.0])),
    ("HammingWindow", |s| {
        window(s, [25.0 / 46.0, 21.0 / 46.0, 0.0])
    }),
    ("BlackmanWindow", |s| window(s, [0.42, 0.5, 0.08])),
    ("DFT", dft),
];

/// A sum of cosines; periodic, or the same from both sides.
#[expect(clippy::cast_precision_loss, reason = "a number of samples")]
fn window(site: &Site<'_>, [a, b, c]: [f64; 3]) -> Made {
    let y = site.output(0)?;
    let size = y.elements();
    let period = if site.flag("periodic", true) {
        size
    } else {
        size.saturating_sub(1).max(1)
    };
    with_type!(y.dtype, numbers, T => kernel(move |call| {
        for (n, y) in call.write::<T>(0).iter_mut().enumerate() {
            let angle = 2.0 * PI * n as f64 / period as f64;
            *y = T::of(a - b * angle.cos() + c * (2.0 * angle).cos());
        }
        Ok(())
    }))
}

/// The transform along an axis, which is input 2 since opset 20 and an attribute before. Numbers
/// have a real part, or a real and an imaginary one, on the last axis.
#[expect(clippy::cast_precision_loss, reason = "a number of samples")]
fn dft(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let old = site.opset() < 20;
    let (given, axis_type) = (site.int("axis", 1), integer_type(site, 2)?);
    let (inverse, onesided) = (site.flag("inverse", false), site.flag("onesided", false));
    let (Some(&parts), Some(&parts_out)) = (x.dims.last(), y.dims.last()) else {
        return Err("it needs an axis of real and imaginary parts".to_owned());
    };
    if x.rank() != y.rank() || x.dtype != y.dtype || !(1..=2).contains(&parts) {
        return Err("input and output do not fit each other".to_owned());
    }
    let length_type = integer_type(site, 1)?;
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let axis = if old { Some(given) } else { integers(call, 2, axis_type).first().copied() };
        let axis = x.axis(axis.unwrap_or(-2))?;
        let [outer, size, _] = around(&x.dims, axis);
        let inner: usize = x.dims.get(axis + 1..x.rank() - 1).unwrap_or(&[]).iter().product();
        let bins = y.dims[axis];
        let length = integers(call, 1, length_type).first().copied();
        // A half of a spectrum stands for a whole signal, and the other way round.
        let halved = onesided && inverse;
        let natural = if halved { bins } else { size };
        let length = length.map_or(natural, |n| usize::try_from(n).unwrap_or(0));
        let expected = if onesided && !inverse { length / 2 + 1 } else { length };
        if bins != expected || length == 0 || axis + 1 == x.rank() {
            return Err(format!("the output has {bins} places along axis {axis}, not {expected}"));
        }
        let data = call.read::<T>(0);
        let out = call.write::<T>(0);
        let sign = if inverse { 1.0 } else { -1.0 };
        let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
        let value = |o: usize, n: usize, i: usize| -> [f64; 2] {
            // Behind the half of a spectrum lies its mirror image.
            let (n, turned) = if halved && n >= size { (length - n, -1.0) } else { (n, 1.0) };
            if n >= size {
                return [0.0; 2];
            }
            let at = ((o * size + n) * inner + i) * parts;
            let imaginary = if parts == 2 { data[at + 1].f64() } else { 0.0 };
            [data[at].f64(), turned * imaginary]
        };
        for o in 0..outer {
            for i in 0..inner {
                for k in 0..bins {
                    let mut sum = [0.0; 2];
                    for n in 0..length {
                        let [re, im] = value(o, n, i);
                        let angle = sign * 2.0 * PI * (k * n % length) as f64 / length as f64;
                        sum[0] += re * angle.cos() - im * angle.sin();
                        sum[1] += re * angle.sin() + im * angle.cos();
                    }
                    let at = ((o * bins + k) * inner + i) * parts_out;
                    for (part, sum) in sum.iter().take(parts_out).enumerate() {
                        out[at + part] = T::of(sum * scale);
                    }
                }
            }
        }
        Ok(())
    }))
}
