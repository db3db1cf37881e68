//! Images of other sizes: each element is a weighted sum of elements near the place that it comes
//! from. Source: the ONNX operator specification, `Resize`, and its reference implementation.

use smallvec::SmallVec;
use tenure_graph::{Attr, DType};

use super::element::{Number, with_type};
use super::layout::{integer_type, integers};
use super::strided::contiguous;
use super::window::each;
use super::{Call, Dims, Made, Make, Site, Type, kernel};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("Resize", resize), ("Upsample", resize)];

/// How elements are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// Which of two neighbours is the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearest {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
}

/// Where an element of the output lies in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    CropAndResize,
}

/// What the attributes say.
#[derive(Clone, Debug)]
struct Rules {
    mode: Mode,
    nearest: Nearest,
    coordinates: Coordinates,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
    /// Sizes keep their proportions: 0 no, -1 none larger, 1 none smaller.
    aspect: i8,
    axes: Option<Vec<usize>>,
    /// Inputs of region, scales and sizes.
    slots: [Option<usize>; 3],
    /// Scales that an attribute gives.
    scales: Option<Vec<f64>>,
}

impl Rules {
    fn new(site: &Site<'_>, x: &Type) -> Result<Self, String> {
        let word = |name: &str, text: &str| Err(format!("attribute {name:?} is {text:?}"));
        let old = site.opset() < 11;
        let mode = match site.text("mode", "nearest") {
            "nearest" => Mode::Nearest,
            "linear" | "bilinear" => Mode::Linear,
            "cubic" => Mode::Cubic,
            other => return word("mode", other),
        };
        let nearest = match site.text("nearest_mode", "round_prefer_floor") {
            _ if old => Nearest::Floor,
            "round_prefer_floor" => Nearest::PreferFloor,
            "round_prefer_ceil" => Nearest::PreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return word("nearest_mode", other),
        };
        let coordinates = match site.text("coordinate_transformation_mode", "half_pixel") {
            _ if old => Coordinates::Asymmetric,
            "half_pixel" => Coordinates::HalfPixel,
            "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            "tf_crop_and_resize" => Coordinates::CropAndResize,
            other => return word("coordinate_transformation_mode", other),
        };
        let axes = match site.ints("axes") {
            Some(list) => Some(
                list.iter()
                    .map(|&a| x.axis(a))
                    .collect::<Result<Vec<usize>, String>>()?,
            ),
            None => None,
        };
        Ok(Rules {
            mode,
            nearest,
            coordinates,
            cubic: site.float("cubic_coeff_a", -0.75),
            exclude_outside: site.flag("exclude_outside", false),
            antialias: site.flag("antialias", false),
            extrapolation: site.float("extrapolation_value", 0.0),
            aspect: match site.text("keep_aspect_ratio_policy", "stretch") {
                "not_larger" => -1,
                "not_smaller" => 1,
                _ => 0,
            },
            axes,
            slots: if old {
                [None, Some(1), None]
            } else {
                [Some(1), Some(2), Some(3)]
            },
            scales: match site.attrs().get("scales") {
                Some(Attr::List(list)) => list.iter().map(Attr::as_float).collect(),
                _ => None,
            },
        })
    }

    /// The weights of the elements of an axis: for each place of the output the first element and
    /// the weight of each from there on. `None` where the output has the value for outside.
    fn taps(&self, from: usize, to: usize, scale: f64, region: [f64; 2]) -> Vec<Option<Tap>> {
        (0..to)
            .map(|p| {
                let x = self.place(p, from, to, scale, region)?;
                Some(self.weights(x, from, scale))
            })
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes of images")]
    fn place(&self, p: usize, from: usize, to: usize, scale: f64, region: [f64; 2]) -> Option<f64> {
        let (p, from, to) = (p as f64, from as f64, to as f64);
        let whole = scale * from;
        let half = (p + 0.5) / scale - 0.5;
        Some(match self.coordinates {
            Coordinates::AlignCorners if whole == 1.0 => 0.0,
            Coordinates::AlignCorners => p * (from - 1.0) / (whole - 1.0),
            Coordinates::Asymmetric => p / scale,
            Coordinates::PytorchHalfPixel if whole == 1.0 => -0.5,
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => half,
            Coordinates::HalfPixelSymmetric => from / 2.0 * (1.0 - to / whole) + half,
            Coordinates::CropAndResize => {
                let size = (region[1] - region[0]) * (from - 1.0);
                let inside = if whole == 1.0 {
                    size / 2.0
                } else {
                    p * size / (whole - 1.0)
                };
                let x = inside + region[0] * (from - 1.0);
                return (0.0..=from - 1.0).contains(&x).then_some(x);
            }
        })
    }

    fn weights(&self, x: f64, size: usize, scale: f64) -> Tap {
        // The element on the left, so that the ratio is above 0 and at most 1.
        let left = x.ceil() - 1.0;
        let ratio = x - left;
        let mut weights: SmallVec<[f64; 4]> = SmallVec::new();
        let mut first = left;
        let shrink = if self.antialias { scale.min(1.0) } else { 1.0 };
        match self.mode {
            Mode::Nearest => {
                #[expect(clippy::float_cmp, reason = "a whole number is its own neighbour")]
                let whole = ratio == 1.0;
                let right = whole
                    || match self.nearest {
                        Nearest::PreferFloor => ratio > 0.5,
                        Nearest::PreferCeil => ratio >= 0.5,
                        Nearest::Floor => false,
                        Nearest::Ceil => true,
                    };
                first += f64::from(u8::from(right));
                weights.push(1.0);
            }
            Mode::Linear => {
                let start = (-1.0 / shrink).floor() + 1.0;
                let mut i = start;
                while i < 2.0 - start {
                    weights.push((1.0 - ((i - ratio) * shrink).abs()).clamp(0.0, 1.0));
                    i += 1.0;
                }
                first += start;
            }
            Mode::Cubic => {
                let start = (-2.0 / shrink).floor() + 1.0;
                let mut i = start;
                while i < 2.0 - start {
                    weights.push(cubic(self.cubic, (i - ratio) * shrink));
                    i += 1.0;
                }
                first += start;
            }
        }
        let mut tap = Tap {
            first: i64::of(first),
            weights,
        };
        if self.exclude_outside {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            for (i, weight) in (tap.first..).zip(&mut tap.weights) {
                if i < 0 || i >= size {
                    *weight = 0.0;
                }
            }
        }
        let sum: f64 = tap.weights.iter().sum();
        if (self.exclude_outside || shrink < 1.0) && sum != 0.0 {
            for weight in &mut tap.weights {
                *weight /= sum;
            }
        }
        tap
    }
}

/// The cubic weight at a distance.
fn cubic(a: f64, x: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// Elements side by side, each with its weight.
#[derive(Clone, Debug)]
struct Tap {
    first: i64,
    weights: SmallVec<[f64; 4]>,
}

/// What a run depends on besides the image.
#[derive(Clone, Debug, Default, PartialEq)]
struct Request {
    region: SmallVec<[f64; 8]>,
    scales: SmallVec<[f64; 8]>,
    sizes: SmallVec<[i64; 8]>,
}

/// Numbers of an input of floats.
fn floats(call: &Call<'_>, slot: Option<usize>, dtype: DType) -> SmallVec<[f64; 8]> {
    let Some(i) = slot else {
        return SmallVec::new();
    };
    match dtype {
        DType::F32 => call.read::<f32>(i).iter().map(|&x| f64::from(x)).collect(),
        DType::F64 => call.read::<f64>(i).iter().copied().collect(),
        _ => call
            .read::<half::f16>(i)
            .iter()
            .map(|&x| f64::from(x))
            .collect(),
    }
}

fn resize(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let rules = Rules::new(site, &x)?;
    if x.rank() != y.rank() || x.dtype != y.dtype || x.elements() == 0 {
        return Err("input and output have other axes or types, or it is empty".to_owned());
    }
    let float_type = |slot: Option<usize>| -> Result<DType, String> {
        let ty = slot.map(|i| site.optional(i)).transpose()?.flatten();
        match ty.map_or(DType::F32, |t| t.dtype) {
            dtype @ (DType::F32 | DType::F64 | DType::F16) => Ok(dtype),
            other => Err(format!("regions and scales are of type {other}")),
        }
    };
    let types = (float_type(rules.slots[0])?, float_type(rules.slots[1])?);
    let size_type = match rules.slots[2] {
        Some(i) => integer_type(site, i)?,
        None => DType::I64,
    };
    let mut last: Option<(Request, Vec<Vec<Option<Tap>>>)> = None;
    with_type!(x.dtype, numbers, T => kernel(move |call| {
        let request = Request {
            region: floats(call, rules.slots[0], types.0),
            scales: match &rules.scales {
                Some(scales) => scales.iter().copied().collect(),
                None => floats(call, rules.slots[1], types.1),
            },
            sizes: rules.slots[2].map_or(SmallVec::new(), |i| integers(call, i, size_type)),
        };
        if last.as_ref().is_none_or(|(for_request, _)| *for_request != request) {
            let taps = all_taps(&rules, &x.dims, &y.dims, &request)?;
            last = Some((request, taps));
        }
        let taps = last.as_ref().map_or(&[][..], |(_, taps)| taps);
        sample(&rules, &x.dims, &y.dims, taps, call.read::<T>(0), call.write::<T>(0));
        Ok(())
    }))
}

/// The weights of all axes.
#[expect(clippy::cast_precision_loss, reason = "sizes of images")]
fn all_taps(
    rules: &Rules,
    from: &[usize],
    to: &[usize],
    request: &Request,
) -> Result<Vec<Vec<Option<Tap>>>, String> {
    let rank = from.len();
    let axes: Vec<usize> = rules.axes.clone().unwrap_or_else(|| (0..rank).collect());
    let mut scales = vec![1.0; rank];
    let mut regions = vec![[0.0, 1.0]; rank];
    for (k, &axis) in axes.iter().enumerate() {
        scales[axis] = match (request.scales.get(k), request.sizes.get(k)) {
            (Some(&scale), _) => scale,
            (None, Some(&size)) => size as f64 / from[axis] as f64,
            (None, None) => return Err("there is not a scale or size for each axis".to_owned()),
        };
        if let (Some(&a), Some(&b)) = (request.region.get(k), request.region.get(axes.len() + k)) {
            regions[axis] = [a, b];
        }
    }
    if request.scales.is_empty() && rules.aspect != 0 {
        let pick = |a: f64, b: f64| if rules.aspect < 0 { a.min(b) } else { a.max(b) };
        let all = axes.iter().map(|&a| scales[a]).reduce(pick).unwrap_or(1.0);
        for &axis in &axes {
            scales[axis] = all;
        }
    }
    for axis in 0..rank {
        let exact = scales[axis] * from[axis] as f64;
        let planned = to[axis] as f64;
        if !scales[axis].is_finite() || scales[axis] <= 0.0 || (exact - planned).abs() > 1.0 {
            return Err(format!(
                "axis {axis} becomes {exact} long, and {planned} was planned"
            ));
        }
    }
    Ok((0..rank)
        .map(|a| rules.taps(from[a], to[a], scales[a], regions[a]))
        .collect())
}

/// Computes all elements of the output.
fn sample<T: Number>(
    rules: &Rules,
    from: &[usize],
    to: &[usize],
    taps: &[Vec<Option<Tap>>],
    x: &[T],
    y: &mut [T],
) {
    let (Some((_, outer)), Some((last, inner))) = (to.split_last(), taps.split_last()) else {
        if let ([y], [x]) = (y, x) {
            *y = *x;
        }
        return;
    };
    let steps = contiguous(from);
    let step = |axis: usize| steps[axis].unsigned_abs();
    let clamp = |i: i64, axis: usize| usize::try_from(i).unwrap_or(0).min(from[axis] - 1);
    let mut lines = y.chunks_exact_mut(last.len().max(1));
    each(outer, |p| {
        let Some(line) = lines.next() else { return };
        // Axes whose place has one element add to where the others begin.
        let mut start = 0;
        let mut wide: SmallVec<[(usize, &Tap); 4]> = SmallVec::new();
        for (axis, &p) in p.iter().enumerate() {
            match &inner[axis][p] {
                None => return line.fill(T::of(rules.extrapolation)),
                Some(tap) if tap.weights.len() == 1 => start += clamp(tap.first, axis) * step(axis),
                Some(tap) => wide.push((axis, tap)),
            }
        }
        let (axis, outer) = (outer.len(), wide.len());
        for (y, tap) in line.iter_mut().zip(last) {
            let Some(tap) = tap else {
                *y = T::of(rules.extrapolation);
                continue;
            };
            if wide.is_empty() && tap.weights.len() == 1 {
                *y = x[start + clamp(tap.first, axis)];
                continue;
            }
            wide.push((axis, tap));
            let counts: Dims = wide.iter().map(|(_, tap)| tap.weights.len()).collect();
            let mut sum = 0.0;
            each(&counts, |k| {
                let (mut weight, mut place) = (1.0, start);
                for (&(axis, tap), &k) in wide.iter().zip(k) {
                    weight *= tap.weights[k];
                    let i = tap.first + i64::try_from(k).unwrap_or(0);
                    place += clamp(i, axis) * step(axis);
                }
                if weight != 0.0 {
                    sum += weight * x[place].f64();
                }
            });
            wide.truncate(outer);
            *y = T::of(if T::IS_FLOAT {
                sum
            } else {
                sum.round_ties_even()
            });
        }
    });
}
