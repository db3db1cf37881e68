//! Pools: one number of each window of each channel of an image.
//! Source: the ONNX operator specification, `MaxPool`, `AveragePool` and `LpPool`.

use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{Number, with_type};
use super::window::{Axes, Windows, each};
use super::{Made, Make, Site, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("AveragePool", average),
    ("GlobalAveragePool", |s| {
        global(s, 0.0, |sum, x| sum + x, |sum, count| sum / count)
    }),
    ("GlobalLpPool", |s| {
        let p = s.float("p", 2.0);
        global(
            s,
            0.0,
            move |sum, x| sum + x.abs().powf(p),
            move |sum, _| sum.powf(1.0 / p),
        )
    }),
    ("GlobalMaxPool", |s| {
        global(s, f64::NEG_INFINITY, f64::max, |max, _| max)
    }),
    ("LpPool", lp),
    ("MaxPool", max),
    ("MaxUnpool", unpool),
];

/// The windows of a node, and the number of channels of the whole batch.
fn windows(site: &Site<'_>) -> Result<(Windows, usize), String> {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let ([n, c, image @ ..], [m, d, positions @ ..]) = (&x.dims[..], &y.dims[..]) else {
        return Err("image and output need two axes or more".to_owned());
    };
    if (n, c) != (m, d) || x.dtype != y.dtype {
        return Err("image and output have not the same channels".to_owned());
    }
    let window = site.ints("kernel_shape").unwrap_or_default();
    let window: Option<Axes> = window.iter().map(|&n| usize::try_from(n).ok()).collect();
    let window = window.ok_or("attribute \"kernel_shape\" is no list of sizes")?;
    Ok((Windows::new(site, image, &window, positions)?, n * c))
}

/// Calls `f` for each place of the image in the window at a position, by its number.
#[inline]
fn in_window(windows: &Windows, position: &[usize], mut f: impl FnMut(usize)) {
    if let (&[py, px], &[_, wide]) = (position, &windows.image[..]) {
        for ky in 0..windows.window[0] {
            let Some(y) = windows.source(0, py, ky) else {
                continue;
            };
            for kx in 0..windows.window[1] {
                if let Some(x) = windows.source(1, px, kx) {
                    f(y * wide + x);
                }
            }
        }
        return;
    }
    each(&windows.window, |k| {
        if let Some(place) = windows.place(position, k) {
            f(place);
        }
    });
}

/// The greatest number of each window, and where it is.
fn max(site: &Site<'_>) -> Made {
    let (windows, channels) = windows(site)?;
    let column_major = site.flag("storage_order", false);
    let area = product(&windows.image);
    let with_places = site.has_output(1);
    if with_places && site.output(1)?.dtype != DType::I64 {
        return Err("places are of type int64".to_owned());
    }
    with_type!(site.input(0)?.dtype, numbers, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let (y, places) = call.write_two::<T, i64>(0, 1);
        let (mut y, mut places) = (y.iter_mut(), places.iter_mut());
        for channel in 0..channels {
            let x = &x[channel * area..(channel + 1) * area];
            windows.each_position(|p| {
                let (mut best, mut at) = (T::LEAST, None);
                in_window(&windows, p, |place| {
                    if x[place] > best || x[place].is_nan() || at.is_none() {
                        best = x[place];
                        at = Some(place);
                    }
                });
                if let Some(y) = y.next() {
                    *y = best;
                }
                if !with_places {
                    return;
                }
                if let (Some(to), Some(at)) = (places.next(), at) {
                    let inside = if column_major { turned(&windows.image, at) } else { at };
                    *to = i64::try_from(channel * area + inside).unwrap_or(i64::MAX);
                }
            });
        }
        Ok(())
    }))
}

/// The number of a place when the first axis is the fastest.
fn turned(image: &[usize], place: usize) -> usize {
    let mut rest = place;
    let mut index: SmallVec<[usize; 3]> = image
        .iter()
        .rev()
        .map(|&size| {
            let i = rest % size;
            rest /= size;
            i
        })
        .collect();
    index.reverse();
    let pairs = index.iter().zip(image).rev();
    pairs.fold(0, |place, (i, size)| place * size + i)
}

fn average(site: &Site<'_>) -> Made {
    let (windows, channels) = windows(site)?;
    let with_padding = site.flag("count_include_pad", false);
    let area = product(&windows.image);
    with_type!(site.input(0)?.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let mut y = call.write::<T>(0).iter_mut();
        for channel in 0..channels {
            let x = &x[channel * area..(channel + 1) * area];
            windows.each_position(|p| {
                let (mut sum, mut count) = (0.0, 0u32);
                in_window(&windows, p, |place| {
                    sum += x[place].f64();
                    count += 1;
                });
                let count = if with_padding { padded(&windows, p) } else { f64::from(count) };
                if let Some(y) = y.next() {
                    *y = T::of(sum / count);
                }
            });
        }
        Ok(())
    }))
}

/// Elements of the window at a position that lie in the image or its padding: a last window may
/// reach beyond both.
#[expect(clippy::cast_precision_loss, reason = "a number of elements")]
fn padded(windows: &Windows, position: &[usize]) -> f64 {
    let inside = |axis: usize| {
        let end = windows.image[axis] + windows.before[axis] + windows.after[axis];
        let start = position[axis] * windows.strides[axis];
        let room = end.saturating_sub(start).div_ceil(windows.dilations[axis]);
        room.min(windows.window[axis])
    };
    (0..position.len()).map(inside).product::<usize>() as f64
}

fn lp(site: &Site<'_>) -> Made {
    let (windows, channels) = windows(site)?;
    let p = site.float("p", 2.0);
    let area = product(&windows.image);
    with_type!(site.input(0)?.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let mut y = call.write::<T>(0).iter_mut();
        for channel in 0..channels {
            let x = &x[channel * area..(channel + 1) * area];
            windows.each_position(|position| {
                let mut sum = 0.0;
                in_window(&windows, position, |place| sum += x[place].f64().abs().powf(p));
                if let Some(y) = y.next() {
                    *y = T::of(sum.powf(1.0 / p));
                }
            });
        }
        Ok(())
    }))
}

/// One number of each whole channel: the sum of `term`, or the greatest, then `last` of it and the
/// number of elements.
fn global(
    site: &Site<'_>,
    start: f64,
    add: impl Fn(f64, f64) -> f64 + Copy + Send + 'static,
    last: impl Fn(f64, f64) -> f64 + Copy + Send + 'static,
) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let area = x.elements().checked_div(y.elements()).unwrap_or(0);
    if area.checked_mul(y.elements()) != Some(x.elements()) || x.dtype != y.dtype {
        return Err("the output has not one element for each channel".to_owned());
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
    let count = area as f64;
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        for (y, x) in call.write::<T>(0).iter_mut().zip(x.chunks_exact(area.max(1))) {
            let all = x.iter().fold(start, |all, x| add(all, x.f64()));
            *y = T::of(last(all, count));
        }
        Ok(())
    }))
}

/// Puts numbers back where a pool took them from; the rest is 0.
fn unpool(site: &Site<'_>) -> Made {
    let (x, places, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    if places.dtype != DType::I64 || places.elements() != x.elements() || x.dtype != y.dtype {
        return Err("it needs a place for each number".to_owned());
    }
    // The places are those of an image as large as the window and the padding say, which the
    // output may be larger than.
    let rank = x.rank().saturating_sub(2);
    let sizes = |name: &str, fill: usize, n: usize| -> Result<Vec<usize>, String> {
        let given = site.ints(name);
        let list: Option<Vec<usize>> = match given {
            Some(list) => list.iter().map(|&n| usize::try_from(n).ok()).collect(),
            None => Some(vec![fill; n]),
        };
        list.filter(|l| l.len() == n)
            .ok_or_else(|| format!("attribute {name:?} is not {n} sizes"))
    };
    let (window, strides) = (sizes("kernel_shape", 1, rank)?, sizes("strides", 1, rank)?);
    let pads = sizes("pads", 0, 2 * rank)?;
    let mut inner = x.dims.clone();
    for axis in 0..rank {
        let whole = x.dims[axis + 2].saturating_sub(1) * strides[axis] + window[axis];
        inner[axis + 2] = whole.saturating_sub(pads[axis] + pads[axis + rank]);
    }
    let outer = y.dims.clone();
    with_type!(x.dtype, numbers, T => kernel(move |call| {
        let (x, places) = (call.read::<T>(0), call.read::<i64>(1));
        let y = call.write::<T>(0);
        y.fill(T::default());
        for (&x, &place) in x.iter().zip(places) {
            let place = usize::try_from(place).ok().and_then(|p| moved(p, &inner, &outer));
            let to = place.and_then(|p| y.get_mut(p));
            *to.ok_or("a place lies outside of the output")? = x;
        }
        Ok(())
    }))
}

/// The number that an element of a tensor of dimensions `inner` has in one of dimensions `outer`.
fn moved(place: usize, inner: &[usize], outer: &[usize]) -> Option<usize> {
    let (mut rest, mut step, mut to) = (place, 1, 0);
    for (&inner, &outer) in inner.iter().zip(outer).rev() {
        let i = rest.checked_rem(inner)?;
        if i >= outer {
            return None;
        }
        to += i * step;
        rest /= inner;
        step *= outer;
    }
    (rest == 0).then_some(to)
}
