//! Pools: one number of each window of each channel of an image.
//! Source: the ONNX operator specification, `MaxPool`, `AveragePool` and `LpPool`.

use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{Number, with_type};
use super::reduce::total;
use super::window::{Axes, Windows, each};
use super::{Made, Make, Site, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("AveragePool", average),
    ("GlobalAveragePool", |s| {
        global_sum(s, |x| x, |sum, count| sum / count)
    }),
    ("GlobalLpPool", |s| {
        let p = s.float("p", 2.0);
        global_sum(s, move |x| x.abs().powf(p), move |sum, _| sum.powf(1.0 / p))
    }),
    ("GlobalMaxPool", global_max),
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
    each(&windows.window, |k| {
        if let Some(place) = windows.place(position, k) {
            f(place);
        }
    });
}

/// How the elements of a window become one: each one's `term`, beginning with `start`, is added, and
/// `last` is what the result is at a position, which is numbered.
struct Fold<A, Term, Add, Last> {
    start: A,
    term: Term,
    add: Add,
    last: Last,
}

/// One number of each window of each channel.
fn fold<T, A, Term, Add, Last>(
    windows: Windows,
    channels: usize,
    by: Fold<A, Term, Add, Last>,
) -> Made
where
    T: Number,
    A: Copy + Send + 'static,
    Term: Fn(T) -> A + Send + 'static,
    Add: Fn(A, A) -> A + Send + 'static,
    Last: Fn(A, usize) -> T + Send + 'static,
{
    let (area, result) = (product(&windows.image), product(&windows.positions));
    let planar = (windows.image.len() <= 2).then(|| windows.with_rank(2));
    let wide = |sizes: &[usize]| {
        planar
            .as_ref()
            .map_or(0, |_| sizes.last().map_or(0, |&n| n))
    };
    let mut columns = vec![by.start; wide(&windows.image)];
    let mut row = vec![by.start; wide(&windows.positions)];
    kernel(move |call| {
        let x = call.read::<T>(0);
        let y = call.write::<T>(0).chunks_exact_mut(result.max(1));
        for (x, y) in x.chunks_exact(area.max(1)).zip(y).take(channels) {
            match &planar {
                Some(windows) => by_rows(windows, x, y, &by, &mut columns, &mut row),
                None => {
                    let mut y = y.iter_mut().enumerate();
                    windows.each_position(|p| {
                        let mut all = by.start;
                        in_window(&windows, p, |place| {
                            all = (by.add)(all, (by.term)(x[place]))
                        });
                        if let Some((number, y)) = y.next() {
                            *y = (by.last)(all, number);
                        }
                    });
                }
            }
        }
        Ok(())
    })
}

/// The same in a channel of two axes: the elements of a column are added first, side by side for all
/// columns, and then those of a row, side by side for all positions.
fn by_rows<T, A, Term, Add, Last>(
    windows: &Windows,
    image: &[T],
    out: &mut [T],
    by: &Fold<A, Term, Add, Last>,
    columns: &mut [A],
    row: &mut [A],
) where
    T: Number,
    A: Copy,
    Term: Fn(T) -> A,
    Add: Fn(A, A) -> A,
    Last: Fn(A, usize) -> T,
{
    let (wide, stride) = (windows.image[1], windows.strides[1]);
    let lines = out.chunks_exact_mut(row.len().max(1)).enumerate();
    for (y, line) in lines {
        columns.fill(by.start);
        for k in 0..windows.window[0] {
            let Some(from) = windows.source(0, y, k) else {
                continue;
            };
            let line = &image[from * wide..(from + 1) * wide];
            for (all, &x) in columns.iter_mut().zip(line) {
                *all = (by.add)(*all, (by.term)(x));
            }
        }
        row.fill(by.start);
        for k in 0..windows.window[1] {
            let (first, from) = windows.first_inside(1, k);
            let to = row.get_mut(first..).unwrap_or(&mut []);
            let from = columns.get(from..).unwrap_or(&[]);
            if stride == 1 {
                for (all, &x) in to.iter_mut().zip(from) {
                    *all = (by.add)(*all, x);
                }
            } else {
                for (all, &x) in to.iter_mut().zip(from.iter().step_by(stride)) {
                    *all = (by.add)(*all, x);
                }
            }
        }
        let first = y * row.len();
        for (number, (to, &all)) in (first..).zip(line.iter_mut().zip(row.iter())) {
            *to = (by.last)(all, number);
        }
    }
}

/// The greatest number of each window, and where it is.
fn max(site: &Site<'_>) -> Made {
    let (windows, channels) = windows(site)?;
    if site.has_output(1) {
        return max_with_places(site, windows, channels);
    }
    with_type!(site.input(0)?.dtype, numbers, T => fold(windows, channels, Fold {
        start: T::LEAST,
        term: |x: T| x,
        add: |a: T, b: T| Number::max(a, b),
        last: |all: T, _| all,
    }))
}

fn max_with_places(site: &Site<'_>, windows: Windows, channels: usize) -> Made {
    let column_major = site.flag("storage_order", false);
    let area = product(&windows.image);
    if site.output(1)?.dtype != DType::I64 {
        return Err("places are of type int64".to_owned());
    }
    with_type!(site.input(0)?.dtype, numbers, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let (y, places) = call.write_two::<T, i64>(0, 1);
        let mut to = y.iter_mut().zip(places);
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
                let Some((y, to)) = to.next() else { return };
                *y = best;
                if let Some(at) = at {
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
    let mut counts = Vec::with_capacity(product(&windows.positions));
    windows.each_position(|p| {
        counts.push(if with_padding {
            padded(&windows, p)
        } else {
            let mut count = 0u32;
            in_window(&windows, p, |_| count += 1);
            f64::from(count)
        });
    });
    with_type!(site.input(0)?.dtype, floats, T => fold(windows, channels, Fold {
        start: 0.0,
        term: |x: T| x.f64(),
        add: |a: f64, b: f64| a + b,
        last: move |sum: f64, number: usize| T::of(sum / counts[number]),
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
    with_type!(site.input(0)?.dtype, floats, T => fold(windows, channels, Fold {
        start: 0.0,
        term: move |x: T| x.f64().abs().powf(p),
        add: |a: f64, b: f64| a + b,
        last: move |sum: f64, _| T::of(sum.powf(1.0 / p)),
    }))
}

/// Type and elements of whole channels, of each of which the output has one number.
fn whole_channels(site: &Site<'_>) -> Result<(DType, usize), String> {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let area = x.elements().checked_div(y.elements()).unwrap_or(0);
    if area.checked_mul(y.elements()) != Some(x.elements()) || x.dtype != y.dtype {
        return Err("the output has not one element for each channel".to_owned());
    }
    Ok((x.dtype, area))
}

/// The sum of `term` over each channel, then `last` of it and the number of elements.
fn global_sum(
    site: &Site<'_>,
    term: impl Fn(f64) -> f64 + Copy + Send + 'static,
    last: impl Fn(f64, f64) -> f64 + Copy + Send + 'static,
) -> Made {
    let (dtype, area) = whole_channels(site)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
    let count = area as f64;
    with_type!(dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        for (y, x) in call.write::<T>(0).iter_mut().zip(x.chunks_exact(area.max(1))) {
            *y = T::of(last(total(x, term), count));
        }
        Ok(())
    }))
}

fn global_max(site: &Site<'_>) -> Made {
    let (dtype, area) = whole_channels(site)?;
    with_type!(dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        for (y, x) in call.write::<T>(0).iter_mut().zip(x.chunks_exact(area.max(1))) {
            *y = x.iter().fold(T::LEAST, |all, &x| if x > all { x } else { all });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::window::tests::random;

    #[test]
    fn windows_by_rows_are_those_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..300 {
            let windows = random(&mut rng);
            let image: Vec<f32> = (0..product(&windows.image)).map(|_| rng.f32()).collect();
            let by = Fold {
                start: f32::LEAST,
                term: |x: f32| x,
                add: |a: f32, b: f32| Number::max(a, b),
                last: |all: f32, number: usize| all + <f32 as Number>::of_i64(number as i64),
            };
            let mut wanted: Vec<f32> = Vec::new();
            windows.each_position(|p| {
                let mut best = by.start;
                in_window(&windows, p, |place| best = best.max(image[place]));
                wanted.push((by.last)(best, wanted.len()));
            });
            let mut out = vec![0.0; wanted.len()];
            let (mut columns, mut row) =
                (vec![0.0; windows.image[1]], vec![0.0; windows.positions[1]]);
            by_rows(&windows, &image, &mut out, &by, &mut columns, &mut row);
            assert_eq!(out, wanted, "{windows:?}");
        }
    }
}
