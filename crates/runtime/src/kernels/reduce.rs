//! Reductions over some axes, the places of the greatest and least, and running sums.

use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{Number, with_type};
use super::strided::{Loop, Strides, around, at, contiguous};
use super::{Call, Dims, Made, Make, Site, Type, kernel, kernel_over, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("ReduceSum", |s| sum_of(s, |x| x, |sum, _| sum)),
    ("ReduceMean", |s| sum_of(s, |x| x, |sum, n| sum / n)),
    ("ReduceL1", |s| sum_of(s, f64::abs, |sum, _| sum)),
    ("ReduceL2", |s| sum_of(s, |x| x * x, |sum, _| sum.sqrt())),
    ("ReduceSumSquare", |s| sum_of(s, |x| x * x, |sum, _| sum)),
    ("ReduceLogSum", |s| sum_of(s, |x| x, |sum, _| sum.ln())),
    ("ReduceLogSumExp", log_sum_exp),
    (
        "ReduceProd",
        |s| with_type!(s.input(0)?.dtype, numbers, T => fold::<T>(s, T::ONE, |all, x| all.mul(x))),
    ),
    (
        "ReduceMax",
        |s| with_type!(s.input(0)?.dtype, numbers_and_truth, T => fold::<T>(s, T::LEAST, Number::max)),
    ),
    ("ReduceMin", |s| {
        with_type!(s.input(0)?.dtype, numbers_and_truth, T => {
            let start = if s.input(0)?.dtype == DType::Bool { T::ONE } else { T::GREATEST };
            fold::<T>(s, start, Number::min)
        })
    }),
    ("ArgMax", |s| place_of(s, true)),
    ("ArgMin", |s| place_of(s, false)),
    ("CumSum", |s| running(s, false)),
    ("CumProd", |s| running(s, true)),
];

/// What is kept, and what is taken together.
struct Axes {
    outer: Loop<1>,
    inner: Loop<1>,
    count: usize,
    /// Nothing is taken together: the operator does nothing at all then.
    none: bool,
}

/// The axes of a node: known when it is made, or read from input 1 when it runs.
struct Given {
    x: Type,
    y: Type,
    keep: bool,
    noop: bool,
    from_input: bool,
    /// The last list of axes, and what follows from it.
    last: Option<(SmallVec<[i64; 8]>, Axes)>,
}

impl Given {
    fn new(site: &Site<'_>) -> Result<Self, String> {
        let mut given = Given {
            x: site.input(0)?,
            y: site.output(0)?,
            keep: site.flag("keepdims", true),
            noop: site.flag("noop_with_empty_axes", false),
            from_input: false,
            last: None,
        };
        match (site.ints("axes"), site.optional(1)?) {
            (None, Some(ty)) if ty.dtype == DType::I64 => given.from_input = true,
            (None, Some(_)) => return Err("axes are of type int64".to_owned()),
            (list, _) => given.set(&list.unwrap_or_default())?,
        }
        if given.x.dtype != given.y.dtype {
            return Err("input and output are of two types".to_owned());
        }
        Ok(given)
    }

    fn set(&mut self, list: &[i64]) -> Result<(), String> {
        if self.last.as_ref().is_none_or(|(last, _)| last[..] != *list) {
            let axes = self.axes(list)?;
            self.last = Some((list.iter().copied().collect(), axes));
        }
        Ok(())
    }

    /// The axes of this run.
    fn get(&mut self, call: &Call<'_>) -> Result<&Axes, String> {
        if self.from_input {
            self.set(call.read(1))?;
        }
        let last = self.last.as_ref().map(|(_, axes)| axes);
        last.ok_or_else(|| "it has no axes".to_owned())
    }

    fn axes(&self, list: &[i64]) -> Result<Axes, String> {
        let (x, rank) = (&self.x, self.x.rank());
        let mut over: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
        let none = list.is_empty() && self.noop;
        for &axis in list {
            over[x.axis(axis)?] = true;
        }
        if list.is_empty() && !none {
            over.fill(true);
        }
        let kept: Dims = (0..rank)
            .filter(|&a| self.keep || !over[a])
            .map(|a| if over[a] { 1 } else { x.dims[a] })
            .collect();
        if kept != self.y.dims {
            return Err(format!(
                "with axes {list:?} the output has dimensions {kept:?}, and not {:?}",
                self.y.dims
            ));
        }
        let strides = contiguous(&x.dims);
        let pick = |taken: bool| -> (Dims, Strides) {
            let axes = (0..rank).filter(|&a| over[a] == taken);
            axes.map(|a| (x.dims[a], strides[a])).unzip()
        };
        let (outer, inner) = (pick(false), pick(true));
        Ok(Axes {
            count: product(&inner.0),
            outer: Loop::new(&outer.0, [&outer.1]),
            inner: Loop::new(&inner.0, [&inner.1]),
            none,
        })
    }
}

/// The sum of a function of the elements, and a function of it and the number of elements. Whole
/// numbers are summed up as such where the functions are those of whole numbers.
fn sum_of(
    site: &Site<'_>,
    term: impl Fn(f64) -> f64 + Copy + Send + 'static,
    last: impl Fn(f64, f64) -> f64 + Copy + Send + 'static,
) -> Made {
    let mut given = Given::new(site)?;
    with_type!(site.input(0)?.dtype, numbers, T => kernel(move |call| {
        let axes = given.get(call)?;
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        if axes.none {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = T::of(last(term(x.f64()), 1.0));
            }
            return Ok(());
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of elements")]
        let count = axes.count as f64;
        let mut y = y.iter_mut();
        axes.outer.each(|[start]| {
            let mut sum = 0.0;
            axes.inner.rows(|[i]| {
                let from = at(start + i);
                if axes.inner.steps[0] == 1 {
                    let row = &x[from..from + axes.inner.row];
                    sum += total(row, term);
                } else {
                    for k in 0..axes.inner.row {
                        sum += term(x[from + k * at(axes.inner.steps[0])].f64());
                    }
                }
            });
            if let Some(y) = y.next() {
                *y = T::of(last(sum, count));
            }
        });
        Ok(())
    }))
}

/// The sum of a function of some elements: eight sums side by side, as none of them waits for another.
pub(super) fn total<T: Number>(row: &[T], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; 8];
    let mut chunks = row.chunks_exact(sums.len());
    for chunk in &mut chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += term(x.f64());
        }
    }
    let rest = chunks.remainder().iter().map(|x| term(x.f64()));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Taken from the greatest number, so that nothing overflows.
fn log_sum_exp(site: &Site<'_>) -> Made {
    let mut given = Given::new(site)?;
    with_type!(site.input(0)?.dtype, numbers, T => kernel(move |call| {
        let axes = given.get(call)?;
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        if axes.none {
            y.copy_from_slice(x);
            return Ok(());
        }
        let mut y = y.iter_mut();
        axes.outer.each(|[start]| {
            let (mut greatest, mut sum) = (f64::NEG_INFINITY, 0.0);
            axes.inner.each(|[i]| greatest = greatest.max(x[at(start + i)].f64()));
            let base = if greatest.is_finite() { greatest } else { 0.0 };
            axes.inner.each(|[i]| sum += (x[at(start + i)].f64() - base).exp());
            if let Some(y) = y.next() {
                *y = T::of(base + sum.ln());
            }
        });
        Ok(())
    }))
}

fn fold<T: Number>(
    site: &Site<'_>,
    start: T,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy + Send + 'static,
) -> Made {
    let mut given = Given::new(site)?;
    kernel(move |call| {
        let axes = given.get(call)?;
        let x = call.read::<T>(0);
        let y = call.write::<T>(0);
        if axes.none {
            y.copy_from_slice(x);
            return Ok(());
        }
        let mut y = y.iter_mut();
        axes.outer.each(|[from]| {
            let mut all = start.wide();
            axes.inner.each(|[i]| all = f(all, x[at(from + i)].wide()));
            if let Some(y) = y.next() {
                *y = T::narrow(all);
            }
        });
        Ok(())
    })
}

/// The place of the greatest or least element along an axis.
fn place_of(site: &Site<'_>, greatest: bool) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let [outer, row, inner] = around(&x.dims, x.axis(site.int("axis", 0))?);
    let last = site.flag("select_last_index", false);
    if y.dtype != DType::I64 || y.elements() != outer * inner || row == 0 {
        return Err("the output has not one place for each row".to_owned());
    }
    with_type!(x.dtype, numbers, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let y = call.write::<i64>(0);
        for o in 0..outer {
            for i in 0..inner {
                let number = |k: usize| x[(o * row + k) * inner + i];
                let mut best = 0;
                for k in 1..row {
                    let better = if greatest {
                        number(k) > number(best)
                    } else {
                        number(k) < number(best)
                    };
                    if better || (last && number(k) == number(best)) {
                        best = k;
                    }
                }
                y[o * inner + i] = i64::try_from(best).unwrap_or(i64::MAX);
            }
        }
        Ok(())
    }))
}

/// Sums or products of all elements so far along an axis, which is input 1.
fn running(site: &Site<'_>, is_product: bool) -> Made {
    let x = site.input(0)?;
    let index = site.input(1)?.dtype;
    let (exclusive, reverse) = (site.flag("exclusive", false), site.flag("reverse", false));
    with_type!(x.dtype, numbers, T => kernel_over(&[0], move |call| {
        let axis = match index {
            DType::I32 => call.read::<i32>(1).first().map(|&a| i64::from(a)),
            _ => call.read::<i64>(1).first().copied(),
        };
        let [outer, row, inner] = around(&x.dims, x.axis(axis.ok_or("the axis is missing")?)?);
        call.settle(0, 0);
        let y = call.write::<T>(0);
        for o in 0..outer {
            for i in 0..inner {
                let mut all = if is_product { T::ONE } else { T::default() }.wide();
                for step in 0..row {
                    let k = if reverse { row - 1 - step } else { step };
                    let y = &mut y[(o * row + k) * inner + i];
                    let x = y.wide();
                    let next = if is_product { all.mul(x) } else { all.add(x) };
                    *y = T::narrow(if exclusive { all } else { next });
                    all = next;
                }
            }
        }
        Ok(())
    }))
}
