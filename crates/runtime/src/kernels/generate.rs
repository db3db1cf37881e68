//! Operators that make new tensors: from shapes, ranges, single numbers, and from what they find in
//! a tensor. Source: the ONNX operator specification.

use tenure_graph::{Attr, DType, TensorData};

use super::element::{Number, elements_of, with_type};
use super::strided::around;
use super::{Dims, Made, Make, Site, Type, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Shape", shape),
    ("Size", size),
    ("ConstantOfShape", constant),
    ("Range", range),
    ("EyeLike", eye),
    ("NonZero", non_zero),
    ("TopK", top),
    ("Unique", unique),
];

fn shape(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let rank = i64::try_from(x.rank()).unwrap_or(i64::MAX);
    let cut = |n: i64| usize::try_from((if n < 0 { n + rank } else { n }).clamp(0, rank));
    let start = cut(site.int("start", 0)).unwrap_or(0);
    let end = cut(site.int("end", rank)).unwrap_or(0).max(start);
    let dims: Vec<i64> = x.dims[start..end]
        .iter()
        .map(|&d| i64::try_from(d).unwrap_or(i64::MAX))
        .collect();
    if site.output(0)?.elements() != dims.len() {
        return Err("the output has not an element for each dimension".to_owned());
    }
    kernel(move |call| {
        call.write::<i64>(0).copy_from_slice(&dims);
        Ok(())
    })
}

fn size(site: &Site<'_>) -> Made {
    let elements = i64::try_from(site.input(0)?.elements()).unwrap_or(i64::MAX);
    kernel(move |call| {
        call.write::<i64>(0).fill(elements);
        Ok(())
    })
}

fn constant(site: &Site<'_>) -> Made {
    let y = site.output(0)?;
    let item = y.item()?;
    let bytes = match site.attrs().get("value") {
        None => vec![0; item],
        Some(Attr::Tensor(tensor)) => match &tensor.data {
            TensorData::Bytes(bytes) if bytes.len() == item => bytes.to_vec(),
            _ => return Err("attribute \"value\" is not one element".to_owned()),
        },
        Some(_) => return Err("attribute \"value\" is no tensor".to_owned()),
    };
    kernel(move |call| {
        for element in call.write::<u8>(0).chunks_exact_mut(item) {
            element.copy_from_slice(&bytes);
        }
        Ok(())
    })
}

/// The first number, then one more step each time; as many as were planned.
fn range(site: &Site<'_>) -> Made {
    let planned = site.output(0)?.elements();
    with_type!(site.output(0)?.dtype, numbers, T => kernel(move |call| {
        let first = |i: usize| call.read::<T>(i).first().copied();
        let (Some(start), Some(limit), Some(delta)) = (first(0), first(1), first(2)) else {
            return Err("start, limit and delta are single numbers".to_owned());
        };
        let count = ((limit.f64() - start.f64()) / delta.f64()).ceil().max(0.0);
        if usize::of_float(count) != planned {
            return Err(format!("the range has {count} numbers, and {planned} were planned"));
        }
        for (i, y) in call.write::<T>(0).iter_mut().enumerate() {
            let i = i64::try_from(i).unwrap_or(i64::MAX);
            *y = if T::IS_FLOAT {
                T::of(start.f64() + T::of_i64(i).f64() * delta.f64())
            } else {
                start.add(T::of_i64(i).mul(delta))
            };
        }
        Ok(())
    }))
}

/// A count that was computed as a float.
trait OfFloat {
    fn of_float(number: f64) -> Self;
}

impl OfFloat for usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is too large becomes the largest number, which nothing has"
    )]
    fn of_float(number: f64) -> usize {
        number as usize
    }
}

fn eye(site: &Site<'_>) -> Made {
    let y = site.output(0)?;
    let &[_, cols] = &y.dims[..] else {
        return Err("it needs a matrix".to_owned());
    };
    let k = site.int("k", 0);
    with_type!(y.dtype, numbers_and_truth, T => kernel(move |call| {
        for (r, row) in call.write::<T>(0).chunks_exact_mut(cols.max(1)).enumerate() {
            row.fill(T::default());
            let at = i64::try_from(r).ok().and_then(|r| usize::try_from(r.checked_add(k)?).ok());
            if let Some(x) = at.and_then(|c| row.get_mut(c)) {
                *x = T::ONE;
            }
        }
        Ok(())
    }))
}

/// The places of all elements that are not 0: a row for each axis.
fn non_zero(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let &[rank, planned] = &y.dims[..] else {
        return Err("the output is no matrix".to_owned());
    };
    // A scalar counts as a vector of one element.
    let dims = if x.rank() == 0 {
        Dims::from_slice(&[1])
    } else {
        x.dims
    };
    if rank != dims.len() {
        return Err("the output has not a row for each axis".to_owned());
    }
    with_type!(x.dtype, numbers_and_truth, T => kernel(move |call| {
        let values = call.read::<T>(0);
        let places = || (0..values.len()).filter(|&i| values[i] != T::default());
        let found = places().count();
        if found != planned {
            return Err(format!("{found} elements are not 0, and {planned} were planned"));
        }
        let y = call.write::<i64>(0);
        for (n, mut rest) in places().enumerate() {
            for axis in (0..rank).rev() {
                let size = dims[axis].max(1);
                y[axis * found + n] = i64::try_from(rest % size).unwrap_or(i64::MAX);
                rest /= size;
            }
        }
        Ok(())
    }))
}

/// The k greatest or least elements along an axis, and their places.
fn top(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let axis = x.axis(site.int("axis", -1))?;
    let [outer, row, inner] = around(&x.dims, axis);
    let k = y.dims[axis];
    let greatest = site.flag("largest", true);
    let y_elements = outer.checked_mul(inner).and_then(|n| n.checked_mul(k));
    if k > row || y_elements != Some(y.elements()) {
        return Err(format!("there are no {k} elements among {row}"));
    }
    with_type!(x.dtype, numbers, T => {
        let mut order: Vec<usize> = Vec::with_capacity(row);
        kernel(move |call| {
            let given = call.read::<i64>(1).first();
            if given.is_some_and(|&g| usize::try_from(g) != Ok(k)) {
                return Err(format!("other than the {k} elements are asked for that were planned"));
            }
            let x = call.read::<T>(0);
            let (y, places) = call.write_two::<T, i64>(0, 1);
            for o in 0..outer {
                for i in 0..inner {
                    let number = |r: usize| x[(o * row + r) * inner + i];
                    order.clear();
                    order.extend(0..row);
                    order.sort_unstable_by(|&a, &b| {
                        let (x, y) = (number(a), number(b));
                        let less = x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
                        let turned = if greatest { less.reverse() } else { less };
                        turned.then(a.cmp(&b))
                    });
                    for (n, &r) in order[..k].iter().enumerate() {
                        let to = (o * k + n) * inner + i;
                        if let Some(y) = y.get_mut(to) {
                            *y = number(r);
                        }
                        if let Some(place) = places.get_mut(to) {
                            *place = i64::try_from(r).unwrap_or(i64::MAX);
                        }
                    }
                }
            }
            Ok(())
        })
    })
}

/// The rows that are compared: how many elements lie before and behind the axis, and along it.
fn rows_of(site: &Site<'_>, x: &Type) -> Result<[usize; 3], String> {
    Ok(match site.attrs().int("axis") {
        Some(axis) => around(&x.dims, x.axis(axis)?),
        None => [1, product(&x.dims), 1],
    })
}

/// Groups of equal rows, each in order, so that its first row is the one that stands first.
fn groups_of<T: Number>(
    x: &[T],
    [outer, rows, inner]: [usize; 3],
    sorted: bool,
) -> Vec<Vec<usize>> {
    let element = |row: usize, n: usize| x[(n / inner * rows + row) * inner + n % inner];
    let compare = |a: usize, b: usize| {
        let pairs = (0..outer * inner).map(|n| (element(a, n), element(b, n)));
        let order = pairs.map(|(x, y)| x.partial_cmp(&y).unwrap_or(std::cmp::Ordering::Equal));
        order.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    };
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|&a, &b| compare(a, b));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for row in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], row).is_eq() => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    if !sorted {
        groups.sort_by_key(|group| group[0]);
    }
    groups
}

/// How many rows of these bytes differ.
pub(super) fn different_rows(site: &Site<'_>, bytes: &[u8]) -> Result<usize, String> {
    let x = site.input(0)?;
    let dims = rows_of(site, &x)?;
    with_type!(x.dtype, numbers_and_truth, T => {
        let x: Vec<T> = elements_of(bytes);
        if x.len() != dims.iter().product::<usize>() {
            return Err("it has another number of elements than its shape says".to_owned());
        }
        Ok(groups_of(&x, dims, true).len())
    })
}

/// Each row once, with where it stands first, which one each row is, and how often it stands.
fn unique(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let sorted = site.flag("sorted", true);
    let dims = rows_of(site, &x)?;
    let planned = match site.attrs().int("axis") {
        Some(axis) => y.dims.get(x.axis(axis)?).copied().unwrap_or(0),
        None => y.elements(),
    };
    let [outer, rows, inner] = dims;
    let width = outer * inner;
    for i in 1..4 {
        if site.has_output(i) && site.output(i)?.dtype != DType::I64 {
            return Err("places are of type int64".to_owned());
        }
    }
    with_type!(x.dtype, numbers_and_truth, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let element = |row: usize, n: usize| x[(n / inner * rows + row) * inner + n % inner];
        let groups = groups_of(x, dims, sorted);
        if groups.len() != planned {
            return Err(format!("{} rows differ, and {planned} were planned", groups.len()));
        }
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let y = call.write::<T>(0);
        for (k, group) in groups.iter().enumerate() {
            for n in 0..width {
                y[(n / inner * planned + k) * inner + n % inner] = element(group[0], n);
            }
        }
        let [first, which, counts] = call.write_each::<i64, 3>([1, 2, 3]);
        for (k, group) in groups.iter().enumerate() {
            if let Some(to) = first.get_mut(k) {
                *to = number(group[0]);
            }
            if let Some(to) = counts.get_mut(k) {
                *to = number(group.len());
            }
            for &row in group {
                if let Some(to) = which.get_mut(row) {
                    *to = number(k);
                }
            }
        }
        Ok(())
    }))
}
