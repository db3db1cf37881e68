//! Samples of images at places that are computed, and boxes that are chosen.
//! Source: the ONNX operator specification, `GridSample` and `NonMaxSuppression`.

use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{Number, elements_of, with_type};
use super::window::each;
use super::{Made, Make, Site, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] =
    &[("GridSample", sample), ("NonMaxSuppression", suppress)];

/// Elements near a place, `None` where one counts as 0, and their weights.
type Taps = SmallVec<[(Option<usize>, f64); 4]>;

/// How elements near a place are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What lies beside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// One axis of the image.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: f64,
    corners: bool,
    padding: Padding,
}

impl Axis {
    /// The place that a number between -1 and 1 means.
    fn place(&self, n: f64) -> f64 {
        if self.corners {
            (n + 1.0) / 2.0 * (self.size - 1.0)
        } else {
            ((n + 1.0) * self.size - 1.0) / 2.0
        }
    }

    fn borders(&self) -> [f64; 2] {
        if self.corners {
            [0.0, self.size - 1.0]
        } else {
            [-0.5, self.size - 0.5]
        }
    }

    fn reflect(&self, x: f64) -> f64 {
        let [low, high] = self.borders();
        let range = high - low;
        if (low..=high).contains(&x) || range <= 0.0 {
            return if range <= 0.0 { 0.0 } else { x };
        }
        let past = if x < low { low - x } else { x - high };
        let turns = (past / range).trunc();
        let rest = past - turns * range;
        let even = turns % 2.0 == 0.0;
        if (x < low) == even {
            low + rest
        } else {
            high - rest
        }
    }

    /// A place outside brought back, as the padding says.
    fn inside(&self, x: f64) -> f64 {
        let [low, high] = self.borders();
        match self.padding {
            _ if (low..=high).contains(&x) => x,
            Padding::Zeros => x,
            Padding::Border => x.clamp(0.0, (self.size - 1.0).max(0.0)),
            Padding::Reflection => self.reflect(x),
        }
    }

    /// The element at a whole place; `None` where it counts as 0.
    fn element(&self, x: f64) -> Option<usize> {
        let last = (self.size - 1.0).max(0.0);
        let x = match self.padding {
            Padding::Zeros if !(0.0..=last).contains(&x) => return None,
            Padding::Zeros => x,
            Padding::Border => x.clamp(0.0, last),
            Padding::Reflection => self.reflect(x).trunc().clamp(0.0, last),
        };
        usize::try_from(i64::of(x)).ok()
    }

    /// Elements near a place and their weights.
    fn taps(&self, x: f64, mode: Mode) -> Taps {
        let x = if mode == Mode::Nearest {
            x.round_ties_even()
        } else {
            x
        };
        let x = self.inside(x);
        let left = x.floor();
        let ratio = x - left;
        match mode {
            Mode::Nearest => SmallVec::from_slice(&[(self.element(x), 1.0)]),
            Mode::Linear => SmallVec::from_slice(&[
                (self.element(left), 1.0 - ratio),
                (self.element(left + 1.0), ratio),
            ]),
            Mode::Cubic => (-1i8..3)
                .map(|i| {
                    let i = f64::from(i);
                    (self.element(left + i), keys(i - ratio))
                })
                .collect(),
        }
    }
}

/// The weight of Keys' cubic at a distance, with -0.75.
fn keys(x: f64) -> f64 {
    let (a, x) = (-0.75, x.abs());
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of images")]
fn sample(site: &Site<'_>) -> Made {
    let (x, grid, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let mode = match site.text("mode", "linear") {
        "linear" | "bilinear" => Mode::Linear,
        "cubic" | "bicubic" => Mode::Cubic,
        "nearest" => Mode::Nearest,
        other => return Err(format!("attribute \"mode\" is {other:?}")),
    };
    let padding = match site.text("padding_mode", "zeros") {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(format!("attribute \"padding_mode\" is {other:?}")),
    };
    let corners = site.flag("align_corners", false);
    let rank = x.rank().saturating_sub(2);
    let fits = rank > 0
        && grid.rank() == rank + 2
        && grid.dims[rank + 1] == rank
        && grid.dims[0] == x.dims[0]
        && y.rank() == x.rank()
        && y.dims[..2] == x.dims[..2]
        && y.dims[2..] == grid.dims[1..=rank]
        && x.dtype == y.dtype;
    if !fits {
        return Err("image, grid and output do not fit each other".to_owned());
    }
    let axes: SmallVec<[Axis; 3]> = x.dims[2..]
        .iter()
        .map(|&size| Axis {
            size: size as f64,
            corners,
            padding,
        })
        .collect();
    let (batch, channels) = (x.dims[0], x.dims[1]);
    let (area, places) = (product(&x.dims[2..]), product(&y.dims[2..]));
    if grid.dtype != x.dtype {
        return Err("image and grid are of two types".to_owned());
    }
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let (image, grid) = (call.read::<T>(0), call.read::<T>(1));
        let out = call.write::<T>(0);
        for n in 0..batch {
            for p in 0..places {
                let at = (n * places + p) * rank;
                // The grid names the last axis first.
                let taps: SmallVec<[Taps; 3]> = axes
                    .iter()
                    .enumerate()
                    .map(|(a, axis)| axis.taps(axis.place(grid[at + rank - 1 - a].f64()), mode))
                    .collect();
                let counts: SmallVec<[usize; 3]> = taps.iter().map(SmallVec::len).collect();
                for c in 0..channels {
                    let image = &image[(n * channels + c) * area..(n * channels + c + 1) * area];
                    let mut sum = 0.0;
                    each(&counts, |k| {
                        let (mut place, mut weight) = (Some(0), 1.0);
                        for (a, &k) in k.iter().enumerate() {
                            let (element, w) = taps[a][k];
                            weight *= w;
                            let size = usize::of_size(axes[a].size);
                            place = place.zip(element).map(|(p, e)| p * size + e);
                        }
                        if let Some(place) = place {
                            sum += weight * image[place].f64();
                        }
                    });
                    out[(n * channels + c) * places + p] = T::of(sum);
                }
            }
        }
        Ok(())
    }))
}

/// A size that is kept as a float.
trait OfSize {
    fn of_size(size: f64) -> usize;
}

impl OfSize for usize {
    fn of_size(size: f64) -> usize {
        usize::try_from(i64::of(size)).unwrap_or(0)
    }
}

/// What chooses boxes, and from how many.
#[derive(Clone, Copy, Debug)]
struct Suppression {
    batch: usize,
    /// Boxes of one image.
    count: usize,
    classes: usize,
    /// Whether a box is its center and its size, and not two corners.
    centered: bool,
}

impl Suppression {
    fn of(site: &Site<'_>) -> Result<Self, String> {
        let (boxes, scores) = (site.input(0)?, site.input(1)?);
        let (&[batch, count, 4], &[b, classes, n]) = (&boxes.dims[..], &scores.dims[..]) else {
            return Err("boxes have four numbers, and a score in each class".to_owned());
        };
        let floats = boxes.dtype == DType::F32 && scores.dtype == DType::F32;
        if (b, n) != (batch, count) || !floats {
            return Err("boxes and scores do not fit each other".to_owned());
        }
        Ok(Suppression {
            batch,
            count,
            classes,
            centered: site.flag("center_point_box", false),
        })
    }

    /// The best boxes of each class that do not lie over better ones: image, class and box. At most
    /// `most` of a class, with scores above `least`, that share no more than `overlap` with another.
    fn choose(
        &self,
        boxes: &[f32],
        scores: &[f32],
        most: i64,
        overlap: f32,
        least: Option<f32>,
    ) -> Vec<[usize; 3]> {
        let Suppression {
            batch,
            count,
            classes,
            centered,
        } = *self;
        let most = usize::try_from(most).unwrap_or(0);
        let mut chosen: Vec<[usize; 3]> = Vec::new();
        for b in 0..batch {
            let corners = |i: usize| {
                let at = (b * count + i) * 4;
                let Some(&[p, q, r, s]) = boxes.get(at..at + 4) else {
                    return [0.0; 4];
                };
                if centered {
                    [q - s / 2.0, p - r / 2.0, q + s / 2.0, p + r / 2.0]
                } else {
                    [p.min(r), q.min(s), p.max(r), q.max(s)]
                }
            };
            for c in 0..classes {
                let score = |i: usize| scores[(b * classes + c) * count + i];
                let mut order: Vec<usize> = (0..count).collect();
                order.retain(|&i| least.is_none_or(|least| score(i) > least));
                order.sort_by(|&i, &j| score(j).total_cmp(&score(i)));
                let mut kept: Vec<usize> = Vec::new();
                for i in order {
                    if kept.len() >= most {
                        break;
                    }
                    let is_apart = |&j: &usize| shared(corners(i), corners(j)) <= overlap;
                    if kept.iter().all(is_apart) {
                        kept.push(i);
                        chosen.push([b, c, i]);
                    }
                }
            }
        }
        chosen
    }
}

/// How many boxes are chosen from inputs of these bytes.
pub(super) fn chosen_boxes(site: &Site<'_>, inputs: &[Vec<u8>]) -> Result<usize, String> {
    let suppression = Suppression::of(site)?;
    let bytes = |i: usize| inputs.get(i).map_or(&[][..], Vec::as_slice);
    let floats = |i: usize| -> Vec<f32> { elements_of(bytes(i)) };
    let most = bytes(2).first_chunk();
    let most = most.map_or(0, |b| i64::from_le_bytes(*b));
    let number = |i: usize| bytes(i).first_chunk().map(|b| f32::from_le_bytes(*b));
    let (boxes, scores) = (floats(0), floats(1));
    let Suppression {
        batch,
        count,
        classes,
        ..
    } = suppression;
    if boxes.len() != batch * count * 4 || scores.len() != batch * classes * count {
        return Err("boxes and scores are fewer than their shapes say".to_owned());
    }
    let overlap = number(3).unwrap_or(0.0);
    Ok(suppression
        .choose(&boxes, &scores, most, overlap, number(4))
        .len())
}

/// The best boxes of each class that do not lie over better ones.
fn suppress(site: &Site<'_>) -> Made {
    let (suppression, y) = (Suppression::of(site)?, site.output(0)?);
    let &[planned, 3] = &y.dims[..] else {
        return Err("the output has three numbers for each box".to_owned());
    };
    kernel(move |call| {
        let (boxes, scores) = (call.read::<f32>(0), call.read::<f32>(1));
        let most = call.read::<i64>(2).first().copied().unwrap_or(0);
        let number = |i: usize| call.read::<f32>(i).first().copied();
        let overlap = number(3).unwrap_or(0.0);
        let chosen = suppression.choose(boxes, scores, most, overlap, number(4));
        if chosen.len() != planned {
            return Err(format!(
                "{} boxes are chosen, and {planned} were planned",
                chosen.len()
            ));
        }
        for (to, from) in call.write::<i64>(0).iter_mut().zip(chosen.iter().flatten()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        Ok(())
    })
}

/// The part of two boxes that both cover.
fn shared(a: [f32; 4], b: [f32; 4]) -> f32 {
    let side = |k: usize| (a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
    let area = |x: [f32; 4]| (x[2] - x[0]) * (x[3] - x[1]);
    let both = side(0) * side(1);
    let all = area(a) + area(b) - both;
    if all <= 0.0 { 0.0 } else { both / all }
}
