//! Operators that put elements in other places and change none: whatever the elements are, bytes
//! are copied. Source: the ONNX operator specification.

use bytemuck::Pod;
use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{with_size, with_type};
use super::strided::{Loop, Strides, around, at, broadcast, contiguous, permuted, signed};
use super::{Call, Dims, Made, Make, Site, Type, axis_of, kernel, kernel_over, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Transpose", transpose),
    ("Expand", expand),
    ("Tile", tile),
    ("Slice", slice),
    ("Pad", pad),
    ("CenterCropPad", center),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
    ("ReverseSequence", reverse),
    ("Trilu", trilu),
];

/// Integers of an input of type int64 or int32.
pub(super) fn integers(call: &Call<'_>, i: usize, dtype: DType) -> SmallVec<[i64; 8]> {
    match dtype {
        DType::I32 => call.read::<i32>(i).iter().map(|&n| i64::from(n)).collect(),
        _ => call.read::<i64>(i).iter().copied().collect(),
    }
}

/// The type of an input of integers, or int64 where it is left out.
pub(super) fn integer_type(site: &Site<'_>, i: usize) -> Result<DType, String> {
    match site.optional(i)?.map(|t| t.dtype) {
        None => Ok(DType::I64),
        Some(dtype @ (DType::I32 | DType::I64)) => Ok(dtype),
        Some(other) => Err(format!("input {i} is of type {other}, not int64 or int32")),
    }
}

/// Copies the elements at the places of a loop to one place after the other.
fn gather<T: Pod>(places: &Loop<1>, start: isize, from: &[T], to: &mut [T]) {
    let mut done = 0;
    let (row, step) = (places.row, places.steps[0]);
    places.rows(|[p]| {
        let first = start + p;
        let to = &mut to[done..done + row];
        done += row;
        match step {
            1 => to.copy_from_slice(&from[at(first)..at(first) + row]),
            0 => to.fill(from[at(first)]),
            _ => {
                let mut place = first;
                for to in to {
                    *to = from[at(place)];
                    place += step;
                }
            }
        }
    });
}

/// A kernel that copies the elements at the places of a loop.
fn copy(item: usize, places: Loop<1>) -> Made {
    with_size!(item, T => kernel(move |call| {
        gather(&places, 0, call.read::<T>(0), call.write::<T>(0));
        Ok(())
    }))
}

fn transpose(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let order: Vec<usize> = match site.ints("perm") {
        Some(list) => list
            .iter()
            .map(|&a| x.axis(a))
            .collect::<Result<_, String>>()?,
        None => (0..x.rank()).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.rank()) || permuted(&x.dims, &order) != y.dims {
        return Err(format!(
            "{:?} in the order {order:?} is not {:?}",
            x.dims, y.dims
        ));
    }
    let strides: Strides = permuted(&contiguous(&x.dims), &order);
    let places = Loop::new(&y.dims, [&strides]);
    let item = x.item()?;
    // Rows that lie far apart are copied in blocks, so that what is fetched is used.
    if let [.., _, _] = y.dims[..]
        && places.steps[0] != 1
        && places.row > 1
    {
        return with_size!(item, T => blocked::<T>(&y.dims, &strides));
    }
    copy(item, places)
}

/// Side of a block of a transposed copy, in elements.
const BLOCK: usize = 16;

fn blocked<T: Pod>(dims: &[usize], strides: &[isize]) -> Made {
    let rank = dims.len();
    // The axis of the output along which the input's elements lie side by side.
    let near = (0..rank).find(|&a| strides[a] == 1 && dims[a] > 1);
    let last = rank - 1;
    let Some(near) = near.filter(|&a| a != last) else {
        return kernel_of_places::<T>(Loop::new(dims, [strides]));
    };
    let own = contiguous(dims);
    let others: SmallVec<[usize; 6]> = (0..rank).filter(|&a| a != near && a != last).collect();
    let outer = Loop::new(
        &permuted(dims, &others),
        [&permuted(strides, &others), &permuted(&own, &others)],
    );
    let (rows, cols) = (dims[near], dims[last]);
    let (step, row) = (strides[last], own[near]);
    kernel(move |call| {
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        outer.each(|[from, to]| {
            for r0 in (0..rows).step_by(BLOCK) {
                for c0 in (0..cols).step_by(BLOCK) {
                    for r in r0..(r0 + BLOCK).min(rows) {
                        let from = from + signed(r) + signed(c0) * step;
                        let to = at(to + signed(r) * row) + c0;
                        let to = &mut y[to..to + BLOCK.min(cols - c0)];
                        for (c, to) in to.iter_mut().enumerate() {
                            *to = x[at(from + signed(c) * step)];
                        }
                    }
                }
            }
        });
        Ok(())
    })
}

fn kernel_of_places<T: Pod>(places: Loop<1>) -> Made {
    kernel(move |call| {
        gather(&places, 0, call.read::<T>(0), call.write::<T>(0));
        Ok(())
    })
}

fn expand(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    copy(
        x.item()?,
        Loop::new(&y.dims, [&broadcast(&x.dims, &y.dims)?]),
    )
}

/// The input, several times along each axis: the output's sizes say how often.
fn tile(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    if x.rank() != y.rank() {
        return Err("input and output have other numbers of axes".to_owned());
    }
    // Each axis becomes two: the copies, and what is copied.
    let own = contiguous(&x.dims);
    let (mut dims, mut strides) = (Dims::new(), Strides::new());
    for ((&from, &to), &step) in x.dims.iter().zip(&y.dims).zip(&own) {
        let times = to.checked_div(from).unwrap_or(0);
        if times.checked_mul(from) != Some(to) {
            return Err(format!("{:?} repeated is not {:?}", x.dims, y.dims));
        }
        dims.extend([times, from]);
        strides.extend([0, step]);
    }
    copy(x.item()?, Loop::new(&dims, [&strides]))
}

/// Part of the input, with steps. What is cut is given by attributes before opset 10, and by
/// inputs since.
fn slice(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let old = site.opset() < 10;
    let attrs = ["starts", "ends", "axes"].map(|name| site.ints(name));
    let mut types = [DType::I64; 5];
    for (i, ty) in types.iter_mut().enumerate().skip(1) {
        *ty = integer_type(site, i)?;
    }
    let item = x.item()?;
    if x.rank() != y.rank() {
        return Err("input and output have other numbers of axes".to_owned());
    }
    with_size!(item, T => kernel(move |call| {
        let list = |i: usize| -> SmallVec<[i64; 8]> {
            if old {
                attrs.get(i - 1).and_then(Option::as_deref).unwrap_or(&[]).iter().copied().collect()
            } else {
                integers(call, i, types[i])
            }
        };
        let cut = Cut::new(&x.dims, &list(1), &list(2), &list(3), &list(4))?;
        if cut.dims != y.dims {
            return Err(format!(
                "the slice has dimensions {:?}, and {:?} was planned",
                cut.dims, y.dims
            ));
        }
        let places = Loop::new(&cut.dims, [&cut.strides]);
        gather(&places, cut.start, call.read::<T>(0), call.write::<T>(0));
        Ok(())
    }))
}

/// Part of a tensor.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    dims: Dims,
    strides: Strides,
    start: isize,
}

impl Cut {
    /// By ONNX's rules: ends beyond a tensor are its end, and a start before it is its first element
    /// also for those that go backwards.
    fn new(
        dims: &[usize],
        starts: &[i64],
        ends: &[i64],
        axes: &[i64],
        steps: &[i64],
    ) -> Result<Self, String> {
        let mut cut = Cut {
            dims: dims.iter().copied().collect(),
            strides: contiguous(dims),
            start: 0,
        };
        for (i, (&start, &end)) in starts.iter().zip(ends).enumerate() {
            let axis = match axes.get(i) {
                Some(&axis) => axis_of(axis, dims.len())?,
                None => axis_of(i64::try_from(i).unwrap_or(i64::MAX), dims.len())?,
            };
            let step = steps.get(i).copied().unwrap_or(1);
            let size = i64::try_from(dims[axis]).unwrap_or(i64::MAX);
            let from_front = |n: i64| if n < 0 { n.saturating_add(size) } else { n };
            let (start, count) = if step > 0 {
                let start = from_front(start).clamp(0, size);
                let end = from_front(end).clamp(0, size);
                let over = end.saturating_sub(start).max(0);
                (start, over / step + i64::from(over % step != 0))
            } else if step < 0 {
                let start = from_front(start).min(size - 1).max(0.min(size - 1));
                let end = from_front(end).clamp(-1, size - 1);
                let (over, step) = (start.saturating_sub(end).max(0), step.saturating_neg());
                (start, over / step + i64::from(over % step != 0))
            } else {
                return Err("a step of 0 leads nowhere".to_owned());
            };
            cut.dims[axis] = usize::try_from(count).unwrap_or(0);
            let stride = cut.strides[axis];
            if count > 0 {
                cut.start += stride * isize::try_from(start).unwrap_or(0);
            }
            let step = isize::try_from(step).unwrap_or(0);
            cut.strides[axis] = stride.saturating_mul(step);
        }
        Ok(cut)
    }
}

/// How the border of a tensor is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Border {
    Constant,
    /// Mirrored at the last element.
    Reflect,
    /// The last element again.
    Edge,
    /// From the other side.
    Wrap,
}

/// Adds or cuts off borders. How much is given by an attribute before opset 11, by input 1 since.
fn pad(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let border = match site.text("mode", "constant") {
        "constant" => Border::Constant,
        "reflect" => Border::Reflect,
        "edge" => Border::Edge,
        "wrap" => Border::Wrap,
        other => return Err(format!("attribute \"mode\" is {other:?}")),
    };
    let old = site.opset() < 11;
    let given = site.ints("pads").or_else(|| site.ints("paddings"));
    let value = site.float("value", 0.0);
    let types = [integer_type(site, 1)?, integer_type(site, 3)?];
    if x.rank() != y.rank() || x.dtype != y.dtype {
        return Err("input and output have other axes or types".to_owned());
    }
    with_type!(x.dtype, numbers_and_truth, T => kernel(move |call| {
        let pads: SmallVec<[i64; 8]> = if old {
            given.as_deref().unwrap_or(&[]).iter().copied().collect()
        } else {
            integers(call, 1, types[0])
        };
        let axes = if old { SmallVec::new() } else { integers(call, 3, types[1]) };
        let before = borders(&x, &y, &pads, &axes)?;
        let fill = match call.read::<T>(2).first() {
            Some(&fill) if !old => fill,
            _ => super::element::Number::of(value),
        };
        let places: SmallVec<[(isize, usize); 6]> =
            before.iter().copied().zip(x.dims.iter().copied()).collect();
        fill_borders(&places, &y.dims, border, fill, call.read::<T>(0), call.write::<T>(0))
    }))
}

/// Elements that are added before each axis; fewer than 0 are cut off.
fn borders(x: &Type, y: &Type, pads: &[i64], axes: &[i64]) -> Result<Strides, String> {
    let rank = x.rank();
    let count = if axes.is_empty() { rank } else { axes.len() };
    let (Some(first), Some(last)) = (pads.get(..count), pads.get(count..2 * count)) else {
        return Err(format!(
            "{} pads are not two for each of {count} axes",
            pads.len()
        ));
    };
    let mut before = Strides::from_elem(0, rank);
    let mut sizes: SmallVec<[i64; 6]> = x
        .dims
        .iter()
        .map(|&d| i64::try_from(d).unwrap_or(i64::MAX))
        .collect();
    for i in 0..count {
        let axis = match axes.get(i) {
            Some(&axis) => x.axis(axis)?,
            None => i,
        };
        before[axis] = isize::try_from(first[i]).unwrap_or(0);
        sizes[axis] = sizes[axis].saturating_add(first[i]).saturating_add(last[i]);
    }
    let fits = sizes
        .iter()
        .zip(&y.dims)
        .all(|(&s, &d)| usize::try_from(s) == Ok(d));
    if !fits {
        return Err(format!(
            "with these pads the output has dimensions {sizes:?}, and {:?} was planned",
            y.dims
        ));
    }
    Ok(before)
}

fn fill_borders<T: Pod>(
    axes: &[(isize, usize)],
    dims: &[usize],
    border: Border,
    fill: T,
    x: &[T],
    y: &mut [T],
) -> Result<(), String> {
    if x.is_empty() && border != Border::Constant && !y.is_empty() {
        return Err("an empty tensor has no elements for its border".to_owned());
    }
    let Some((&(before, size), outer)) = axes.split_last() else {
        y.copy_from_slice(x);
        return Ok(());
    };
    let (row, rows) = dims.split_last().map_or((1, dims), |(&r, d)| (r, d));
    let mut from = 0;
    super::window::each(rows, |p| {
        let to = &mut y[from..from + row];
        from += row;
        let source = outer
            .iter()
            .zip(p)
            .try_fold(0, |place, (&(before, size), &p)| {
                Some(place * size + inside(signed(p) - before, size, border)?)
            });
        let Some(source) = source else {
            to.fill(fill);
            return;
        };
        let line = &x[source * size..(source + 1) * size];
        for (i, to) in to.iter_mut().enumerate() {
            let k = signed(i) - before;
            *to = inside(k, size, border).map_or(fill, |k| line[k]);
        }
    });
    Ok(())
}

/// The element that stands at a place in or beside an axis.
#[inline]
fn inside(place: isize, size: usize, border: Border) -> Option<usize> {
    if let Some(n) = usize::try_from(place).ok().filter(|&n| n < size) {
        return Some(n);
    }
    let last = signed(size) - 1;
    match border {
        Border::Constant => None,
        Border::Edge => Some(at(place.clamp(0, last))),
        Border::Wrap => Some(at(place.rem_euclid(signed(size)))),
        Border::Reflect if last == 0 => Some(0),
        Border::Reflect => {
            let turn = place.rem_euclid(2 * last);
            Some(at(turn.min(2 * last - turn)))
        }
    }
}

/// Cuts or pads some axes in the middle.
fn center(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    if x.rank() != y.rank() {
        return Err("input and output have other numbers of axes".to_owned());
    }
    let before = |(&from, &to): (&usize, &usize)| {
        if to >= from {
            signed((to - from) / 2)
        } else {
            -signed((from - to) / 2)
        }
    };
    let pairs = x.dims.iter().zip(&y.dims);
    let axes: Vec<(isize, usize)> = pairs.map(|p| (before(p), *p.0)).collect();
    let item = x.item()?;
    with_size!(item, T => kernel(move |call| {
        let fill = bytemuck::Zeroable::zeroed();
        let (from, to) = (call.read::<T>(0), call.write::<T>(0));
        fill_borders(&axes, &y.dims, Border::Constant, fill, from, to)
    }))
}

/// The sizes of an image whose channels hold blocks: batch, block, channels, height and width of
/// the deep one.
fn blocks(deep: &Type, block: i64) -> Result<[usize; 5], String> {
    let block = usize::try_from(block).unwrap_or(0);
    let &[n, c, h, w] = &deep.dims[..] else {
        return Err("it needs an image of two axes".to_owned());
    };
    let square = block.checked_mul(block).filter(|&b| b > 0 && c % b == 0);
    let square =
        square.ok_or_else(|| format!("{c} channels are no blocks of {block} by {block}"))?;
    Ok([n, block, c / square, h, w])
}

fn depth_to_space(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let [n, b, c, h, w] = blocks(&x, site.int("blocksize", 0))?;
    if y.dims[..] != [n, c, h * b, w * b] {
        return Err("the output has other sizes".to_owned());
    }
    let own = |dims: &[usize], order: &[usize]| permuted(&contiguous(dims), order);
    let strides: Strides = match site.text("mode", "DCR") {
        "CRD" => own(&[n, c, b, b, h, w], &[0, 1, 4, 2, 5, 3]),
        _ => own(&[n, b, b, c, h, w], &[0, 3, 4, 1, 5, 2]),
    };
    copy(x.item()?, Loop::new(&[n, c, h, b, w, b], [&strides]))
}

fn space_to_depth(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let [n, b, c, h, w] = blocks(&y, site.int("blocksize", 0))?;
    if x.dims[..] != [n, c, h * b, w * b] {
        return Err("the output has other sizes".to_owned());
    }
    let crd = site.text("mode", "DCR") == "CRD";
    let own = contiguous(&[n, c, h, b, w, b]);
    let (order, dims) = if crd {
        ([0, 1, 3, 5, 2, 4], [n, c, b, b, h, w])
    } else {
        ([0, 3, 5, 1, 2, 4], [n, b, b, c, h, w])
    };
    let strides: Strides = permuted(&own, &order);
    copy(x.item()?, Loop::new(&dims, [&strides]))
}

/// Turns the first elements of each sequence round; input 1 says how many.
fn reverse(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let (batch, time) = (
        x.axis(site.int("batch_axis", 1))?,
        x.axis(site.int("time_axis", 0))?,
    );
    if batch + time != 1 || site.input(1)?.dtype != DType::I64 {
        return Err("the first two axes are those of batch and time".to_owned());
    }
    let (rows, cols) = (x.dims[0], x.dims[1]);
    let inner = product(&x.dims[2..]);
    let item = x.item()?;
    with_size!(item, T => kernel(move |call| {
        let lengths = call.read::<i64>(1);
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        for r in 0..rows {
            for c in 0..cols {
                let (n, t) = if batch == 0 { (r, c) } else { (c, r) };
                let steps = if batch == 0 { cols } else { rows };
                let length = lengths.get(n).and_then(|&l| usize::try_from(l).ok());
                let length = length.filter(|&l| l <= steps);
                let length = length.ok_or("a sequence is longer than the tensor")?;
                let from = if t < length { length - 1 - t } else { t };
                let from = if batch == 0 { r * cols + from } else { from * cols + c };
                let to = r * cols + c;
                y[to * inner..(to + 1) * inner].copy_from_slice(&x[from * inner..(from + 1) * inner]);
            }
        }
        Ok(())
    }))
}

/// Keeps the upper or lower triangle of matrices.
fn trilu(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let upper = site.flag("upper", true);
    let [.., rows, cols] = x.dims[..] else {
        return Err("it needs a matrix".to_owned());
    };
    let item = x.item()?;
    with_size!(item, T => kernel_over(&[0], move |call| {
        let k = call.read::<i64>(1).first().copied().unwrap_or(0);
        call.settle(0, 0);
        let area = rows * cols;
        for matrix in call.write::<T>(0).chunks_exact_mut(area.max(1)) {
            for (r, row) in matrix.chunks_exact_mut(cols.max(1)).enumerate() {
                for (c, x) in row.iter_mut().enumerate() {
                    let past = (signed(c) - signed(r)) as i64;
                    let keep = if upper { past >= k } else { past <= k };
                    if !keep {
                        *x = bytemuck::Zeroable::zeroed();
                    }
                }
            }
        }
        Ok(())
    }))
}

/// Bytes of the elements behind an axis, and the numbers before and on it.
pub(super) fn rows(ty: &Type, axis: usize) -> Result<[usize; 3], String> {
    let [outer, size, inner] = around(&ty.dims, axis);
    Ok([outer, size, inner * ty.item()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_numpy() {
        let cut = |start, end, step| {
            let cut = Cut::new(&[5], &[start], &[end], &[], &[step]).unwrap();
            let mut places = Vec::new();
            Loop::new(&cut.dims, [&cut.strides]).each(|[p]| places.push(cut.start + p));
            places
        };
        assert_eq!(cut(1, 4, 1), [1, 2, 3]);
        assert_eq!(cut(-3, i64::MAX, 2), [2, 4]);
        assert_eq!(cut(-1, i64::MIN, -1), [4, 3, 2, 1, 0]);
        assert_eq!(cut(10, 1, -2), [4, 2]);
        assert_eq!(cut(3, 1, 1), [0isize; 0]);
        assert!(Cut::new(&[5], &[0], &[1], &[], &[0]).is_err());
        assert!(Cut::new(&[5], &[0], &[1], &[1], &[]).is_err());
        assert_eq!(
            Cut::new(&[0], &[i64::MIN], &[i64::MAX], &[], &[i64::MIN])
                .unwrap()
                .dims[..],
            [0]
        );
    }

    #[test]
    fn borders_are_mirrored_and_wrapped() {
        let all = |border, size| -> Vec<Option<usize>> {
            (-3..6).map(|p| inside(p, size, border)).collect()
        };
        let some = |list: [usize; 9]| list.map(Some).to_vec();
        assert_eq!(all(Border::Reflect, 3), some([1, 2, 1, 0, 1, 2, 1, 0, 1]));
        assert_eq!(all(Border::Edge, 3), some([0, 0, 0, 0, 1, 2, 2, 2, 2]));
        assert_eq!(all(Border::Wrap, 3), some([0, 1, 2, 0, 1, 2, 0, 1, 2]));
        assert_eq!(inside(-7, 1, Border::Reflect), Some(0));
        assert_eq!(inside(-1, 3, Border::Constant), None);
    }
}
