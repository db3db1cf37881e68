//! Regions of images brought to one size. Source: the ONNX operator specification, `RoiAlign`, and
//! K. He et al., "Mask R-CNN", 2017.

use tenure_graph::DType;

use super::element::{Number, with_type};
use super::{Made, Make, Site, kernel};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("RoiAlign", align)];

/// What the attributes say.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Half an element less, and regions of less than an element stay so small.
    half: bool,
    greatest: bool,
    /// Samples of a bin along an axis; as many as it covers elements where that is 0.
    samples: f64,
    scale: f64,
    /// Whether numbers are float64. All others are computed as float32, as the number of samples
    /// depends on how they are rounded.
    wide: bool,
}

impl Rules {
    #[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
    fn round(&self, x: f64) -> f64 {
        if self.wide { x } else { f64::from(x as f32) }
    }

    /// Where a region starts, how long each of `bins` bins is, and its samples.
    fn axis(&self, from: f64, to: f64, bins: f64) -> (f64, f64, f64) {
        let offset = if self.half { 0.5 } else { 0.0 };
        let place = |x: f64| self.round(self.round(x * self.scale) - offset);
        let (start, end) = (place(from), place(to));
        let long = self.round(end - start);
        let long = if self.half { long } else { long.max(1.0) };
        let bin = self.round(long / bins);
        let samples = if self.samples > 0.0 {
            self.samples
        } else {
            bin.ceil().max(0.0)
        };
        (start, bin, samples)
    }

    /// Sample `n` of bin `k`.
    fn sample(&self, (start, bin, samples): (f64, f64, f64), k: f64, n: f64) -> f64 {
        let first = self.round(start + self.round(k * bin));
        self.round(first + self.round(self.round((n + 0.5) * bin) / samples))
    }
}

/// The two elements beside a place, with their weights; `None` where it lies outside.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place within an image"
)]
fn taps(x: f64, size: usize) -> Option<[(usize, f64); 2]> {
    let last = size.checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "the size of an image")]
    let inside = (-1.0..=size as f64).contains(&x);
    if !inside {
        return None;
    }
    let x = x.max(0.0);
    let low = x as usize;
    if low >= last {
        return Some([(last, 1.0), (last, 0.0)]);
    }
    let part = x.fract();
    Some([(low, 1.0 - part), (low + 1, part)])
}

/// So many numbers from 0 on.
fn count(n: f64) -> impl Iterator<Item = f64> + Clone {
    std::iter::successors(Some(0.0), |k| Some(k + 1.0)).take_while(move |&k| k < n)
}

fn align(site: &Site<'_>) -> Made {
    let (x, rois, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let (&[images, channels, height, width], &[regions, 4]) = (&x.dims[..], &rois.dims[..]) else {
        return Err("it needs images with channels, and four numbers for each region".to_owned());
    };
    let &[made, planes, rows, columns] = &y.dims[..] else {
        return Err("it makes images with channels".to_owned());
    };
    if (made, planes) != (regions, channels) || rois.dtype != x.dtype || y.dtype != x.dtype {
        return Err("regions and output are not those of the images".to_owned());
    }
    if site.input(2)?.dtype != DType::I64 || site.input(2)?.elements() != regions {
        return Err("it needs the number of an image for each region".to_owned());
    }
    let usual = if site.opset() < 16 {
        "output_half_pixel"
    } else {
        "half_pixel"
    };
    let rules = Rules {
        half: match site.text("coordinate_transformation_mode", usual) {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => return Err(format!("coordinate_transformation_mode is {other:?}")),
        },
        greatest: match site.text("mode", "avg") {
            "avg" => false,
            "max" => true,
            other => return Err(format!("attribute \"mode\" is {other:?}")),
        },
        samples: f64::from(i32::try_from(site.int("sampling_ratio", 0)).unwrap_or(0)),
        scale: site.float("spatial_scale", 1.0),
        wide: x.dtype == DType::F64,
    };
    #[expect(clippy::cast_precision_loss, reason = "the size of an image")]
    let (bins_down, bins_right) = (rows as f64, columns as f64);
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let (x, rois, of) = (call.read::<T>(0), call.read::<T>(1), call.read::<i64>(2));
        let mut y = call.write::<T>(0).iter_mut();
        for (roi, &image) in rois.chunks_exact(4).zip(of) {
            let image = usize::try_from(image).ok().filter(|&n| n < images);
            let image = image.ok_or("a region names an image that is not there")?;
            let roi = [0, 1, 2, 3].map(|k| roi[k].f64());
            if !roi.iter().all(|edge| edge.is_finite()) {
                return Err("a region has no finite edges".to_owned());
            }
            let right = rules.axis(roi[0], roi[2], bins_right);
            let down = rules.axis(roi[1], roi[3], bins_down);
            // So that a region that is far too large for its image ends.
            if down.2 * right.2 > 1e9 {
                return Err("a region has more samples than anybody waits for".to_owned());
            }
            for channel in 0..channels {
                let plane = &x[(image * channels + channel) * height * width..][..height * width];
                for i in count(bins_down) {
                    for j in count(bins_right) {
                        let (mut sum, mut greatest) = (0.0, f64::NEG_INFINITY);
                        for a in count(down.2) {
                            let v = taps(rules.sample(down, i, a), height);
                            for b in count(right.2) {
                                let h = taps(rules.sample(right, j, b), width);
                                let mut one = 0.0;
                                let mut terms = f64::NEG_INFINITY;
                                for &(r, p) in v.iter().flatten() {
                                    for &(c, q) in h.iter().flatten() {
                                        let term = p * q * plane[r * width + c].f64();
                                        one += term;
                                        terms = terms.max(term);
                                    }
                                }
                                sum += one;
                                greatest = greatest.max(if terms.is_finite() { terms } else { 0.0 });
                            }
                        }
                        let mean = sum / (down.2 * right.2).max(1.0);
                        let found = match rules.greatest {
                            true if greatest.is_finite() => greatest,
                            true => 0.0,
                            false => mean,
                        };
                        if let Some(y) = y.next() {
                            *y = T::of(found);
                        }
                    }
                }
            }
        }
        Ok(())
    }))
}
