//! Operators that work on the elements of two or more tensors, which are repeated to fit each
//! other. Element `i` of every input is read before element `i` of the output is written, and not
//! after, so the output may be the memory of an input that is not repeated.

use bytemuck::Pod;
use half::{bf16, f16};
use tenure_graph::DType;

use super::element::{Elements, Number, with_size, with_type};
use super::strided::{Loop, at};
use super::{Call, Kernel, Made, Make, Site, kernel};

macro_rules! numbers {
    ($site:expr, |$x:ident, $y:ident| $body:expr) => {
        with_type!($site.input(0)?.dtype, numbers, T => zip($site, |$x: T, $y: T| -> T { $body }))
    };
}

macro_rules! integers {
    ($site:expr, |$x:ident, $y:ident| $body:expr) => {
        with_type!($site.input(0)?.dtype, integers, T => zip($site, |$x: T, $y: T| $body))
    };
}

macro_rules! truth {
    ($site:expr, $types:ident, |$x:ident, $y:ident| $body:expr) => {
        // Graph Engine's files may say that an answer is a number.
        match $site.output(0)?.dtype {
            DType::F32 => with_type!($site.input(0)?.dtype, $types, T => {
                zip($site, |$x: T, $y: T| f32::from(u8::from($body)))
            }),
            _ => with_type!($site.input(0)?.dtype, $types, T => {
                zip($site, |$x: T, $y: T| u8::from($body))
            }),
        }
    };
}

macro_rules! several {
    ($site:expr, |$x:ident, $y:ident| $body:expr) => {
        with_type!($site.output(0)?.dtype, numbers, T => fold($site, 0, |$x: T, $y: T| -> T { $body }))
    };
}

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Add", add),
    ("Sub", subtract),
    ("Mul", |s| numbers!(s, |x, y| x.mul(y))),
    ("Div", |s| numbers!(s, |x, y| x.div(y))),
    ("InplaceAdd", add),
    ("AssignAdd", add),
    ("AssignSub", subtract),
    ("AssignAddVariableOp", add),
    ("AssignSubVariableOp", subtract),
    ("Mod", remainder),
    ("Pow", power),
    ("PRelu", |s| {
        numbers!(s, |x, y| if x < T::default() { x.mul(y) } else { x })
    }),
    ("Equal", |s| truth!(s, numbers_and_truth, |x, y| x == y)),
    ("Greater", |s| truth!(s, numbers, |x, y| x > y)),
    ("GreaterOrEqual", |s| truth!(s, numbers, |x, y| x >= y)),
    ("Less", |s| truth!(s, numbers, |x, y| x < y)),
    ("LessOrEqual", |s| truth!(s, numbers, |x, y| x <= y)),
    ("And", |s| zip(s, |x: u8, y: u8| u8::from(x != 0 && y != 0))),
    ("Or", |s| zip(s, |x: u8, y: u8| u8::from(x != 0 || y != 0))),
    ("Xor", |s| {
        zip(s, |x: u8, y: u8| u8::from((x != 0) != (y != 0)))
    }),
    ("BitwiseAnd", |s| integers!(s, |x, y| x & y)),
    ("BitwiseOr", |s| integers!(s, |x, y| x | y)),
    ("BitwiseXor", |s| integers!(s, |x, y| x ^ y)),
    ("BitShift", shift),
    ("Max", |s| several!(s, |x, y| Number::max(x, y))),
    ("Min", |s| several!(s, |x, y| Number::min(x, y))),
    (
        "Sum",
        |s| with_type!(s.output(0)?.dtype, numbers, T => sum_of::<T>(s, None)),
    ),
    ("Mean", mean),
    ("Where", choose),
];

fn add(site: &Site<'_>) -> Made {
    numbers!(site, |x, y| x.add(y))
}

fn subtract(site: &Site<'_>) -> Made {
    numbers!(site, |x, y| x.sub(y))
}

/// A function of two elements.
struct Zip<T, U, F> {
    f: F,
    rows: Loop<2>,
    /// Inputs that have as many elements as the output, so that it may be written over them.
    whole: [bool; 2],
    types: std::marker::PhantomData<fn(T) -> U>,
}

/// A kernel that takes an element of input 0 and one of input 1 to one of output 0.
pub(super) fn zip<T: Pod, U: Pod>(
    site: &Site<'_>,
    f: impl Fn(T, T) -> U + Copy + Send + 'static,
) -> Made {
    site.output(0)?.holds::<U>()?;
    let (rows, whole) = pairs(site)?;
    Ok(Box::new(Zip {
        f,
        rows,
        whole,
        types: std::marker::PhantomData,
    }))
}

/// How the elements of inputs 0 and 1 meet, and which of the two have as many as the output: the
/// same for all types.
fn pairs(site: &Site<'_>) -> Result<(Loop<2>, [bool; 2]), String> {
    let (x, y, z) = (site.input(0)?, site.input(1)?, site.output(0)?);
    if x.dtype != y.dtype {
        return Err(format!(
            "its inputs are of types {} and {}",
            x.dtype, y.dtype
        ));
    }
    let second = aligned(site, &x.dims, &y.dims);
    let fits = |input: usize| input == z.elements();
    // Tensors of as many elements are taken one by one, and a single one for all, whatever their
    // dimensions are: other dialects do not say them as this one does.
    let single = |n: usize| fits(n) || n == 1;
    let rows = match Loop::over(&z.dims, [&x.dims, &second]) {
        Ok(rows) => rows,
        Err(_) if single(x.elements()) && single(y.elements()) => {
            let step = |n: usize| isize::from(n != 1);
            let steps = [[step(x.elements())], [step(y.elements())]];
            Loop::new(&[z.elements()], [&steps[0], &steps[1]])
        }
        Err(reason) => return Err(reason),
    };
    Ok((rows, [fits(x.elements()), fits(y.elements())]))
}

/// Dimensions of the second input as they lie under those of the first: before opset 7, attribute
/// `axis` says with which axis they begin.
fn aligned(site: &Site<'_>, x: &[usize], y: &[usize]) -> super::Dims {
    let mut dims: super::Dims = y.iter().copied().collect();
    let axis = site.attrs().int("axis").filter(|_| site.opset() < 7);
    let axis = axis.and_then(|axis| super::axis_of(axis, x.len()).ok());
    if let Some(behind) = axis.and_then(|axis| x.len().checked_sub(axis + y.len())) {
        dims.extend(std::iter::repeat_n(1, behind));
    }
    dims
}

/// The elements of an input in a row.
#[derive(Clone, Copy)]
enum Row<'a, T> {
    /// Those of the output before they are written.
    Same,
    /// One for all.
    One(T),
    /// One after the other.
    Each(&'a [T]),
    /// With steps between them.
    Steps(&'a [T], isize),
}

impl<T: Pod, U: Pod, F: Fn(T, T) -> U + Copy> Zip<T, U, F> {
    fn row<'a>(&self, of: &'a [T], over: bool, k: usize, start: isize) -> Row<'a, T> {
        let (start, step) = (at(start), self.rows.steps[k]);
        match step {
            _ if over => Row::Same,
            0 => Row::One(of[start]),
            1 => Row::Each(&of[start..start + self.rows.row]),
            step => Row::Steps(&of[start..], step),
        }
    }

    fn apart(&self, z: &mut [U], x: Row<'_, T>, y: Row<'_, T>) {
        let f = self.f;
        match (x, y) {
            (Row::Each(x), Row::Each(y)) => {
                for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
                    *z = f(x, y);
                }
            }
            (Row::Each(x), Row::One(y)) => {
                for (z, &x) in z.iter_mut().zip(x) {
                    *z = f(x, y);
                }
            }
            (Row::One(x), Row::Each(y)) => {
                for (z, &y) in z.iter_mut().zip(y) {
                    *z = f(x, y);
                }
            }
            (x, y) => {
                for (i, z) in z.iter_mut().enumerate() {
                    *z = f(element(x, i), element(y, i));
                }
            }
        }
    }

    /// The output is the memory of one input, or of both: its elements are as large.
    fn over(&self, z: &mut [T], x: Row<'_, T>, y: Row<'_, T>) {
        let f = |x: T, y: T| bytemuck::try_cast((self.f)(x, y)).unwrap_or(x);
        match (x, y) {
            (Row::Same, Row::Each(y)) => {
                for (z, &y) in z.iter_mut().zip(y) {
                    *z = f(*z, y);
                }
            }
            (Row::Each(x), Row::Same) => {
                for (z, &x) in z.iter_mut().zip(x) {
                    *z = f(x, *z);
                }
            }
            (Row::Same, Row::One(y)) => {
                for z in z {
                    *z = f(*z, y);
                }
            }
            (x, y) => {
                for (i, z) in z.iter_mut().enumerate() {
                    let of = |row| match row {
                        Row::Same => *z,
                        row => element(row, i),
                    };
                    *z = f(of(x), of(y));
                }
            }
        }
    }
}

#[inline(always)]
fn element<T: Pod>(row: Row<'_, T>, i: usize) -> T {
    match row {
        Row::Same => T::zeroed(),
        Row::One(x) => x,
        Row::Each(x) => x[i],
        Row::Steps(x, step) => x[i * at(step)],
    }
}

impl<T: Pod, U: Pod, F: Fn(T, T) -> U + Copy + Send> Kernel for Zip<T, U, F> {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        let over = [0, 1].map(|k| call.over(k).is_some());
        let (x, y) = (call.read::<T>(0), call.read::<T>(1));
        let (mut from, row) = (0, self.rows.row);
        if over == [false; 2] {
            let z = call.write::<U>(0);
            self.rows.rows(|[i, j]| {
                let (x, y) = (self.row(x, false, 0, i), self.row(y, false, 1, j));
                self.apart(&mut z[from..from + row], x, y);
                from += row;
            });
        } else {
            let z = call.write::<T>(0);
            self.rows.rows(|[i, j]| {
                let (x, y) = (self.row(x, over[0], 0, i), self.row(y, over[1], 1, j));
                self.over(&mut z[from..from + row], x, y);
                from += row;
            });
        }
        Ok(())
    }

    fn may_be_over(&self, input: usize, output: usize) -> bool {
        output == 0
            && size_of::<T>() == size_of::<U>()
            && self.whole.get(input).copied().unwrap_or(false)
    }
}

/// A function of the elements of any number of tensors, two at a time, and one of the result.
struct Fold<T, F, G> {
    f: F,
    last: G,
    rows: Vec<Loop<1>>,
    whole: Vec<bool>,
    first: usize,
    types: std::marker::PhantomData<fn(T)>,
}

fn fold<T: Number>(
    site: &Site<'_>,
    first: usize,
    f: impl Fn(T, T) -> T + Copy + Send + 'static,
) -> Made {
    fold_to(site, first, f, |x| x)
}

fn fold_to<T: Number>(
    site: &Site<'_>,
    first: usize,
    f: impl Fn(T, T) -> T + Copy + Send + 'static,
    last: impl Fn(T) -> T + Copy + Send + 'static,
) -> Made {
    let (rows, whole) = rows_of(site, first)?;
    Ok(Box::new(Fold {
        f,
        last,
        rows,
        whole,
        first,
        types: std::marker::PhantomData,
    }))
}

/// The rows of all inputs from one on as the output goes through them, and whether each has as many
/// elements as that.
fn rows_of(site: &Site<'_>, first: usize) -> Result<(Vec<Loop<1>>, Vec<bool>), String> {
    let z = site.output(0)?;
    let mut rows = Vec::with_capacity(site.inputs());
    let mut whole = Vec::with_capacity(site.inputs());
    for i in first..site.inputs() {
        let x = site.input(i)?;
        if x.dtype != z.dtype {
            return Err(format!(
                "input {i} is of type {}, the output of {}",
                x.dtype, z.dtype
            ));
        }
        rows.push(Loop::over(&z.dims, [&x.dims])?);
        whole.push(x.elements() == z.elements());
    }
    Ok((rows, whole))
}

impl<T: Number, F: Fn(T, T) -> T + Copy + Send, G: Fn(T) -> T + Copy + Send> Kernel
    for Fold<T, F, G>
{
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        // What the output is the memory of comes first: the others are added to it.
        let over = (0..self.rows.len()).find(|&k| call.over(k + self.first).is_some());
        let start = over.unwrap_or(0);
        let order = std::iter::once(start).chain((0..self.rows.len()).filter(|&k| k != start));
        for (n, k) in order.enumerate() {
            if n == 0 && over.is_some() {
                continue;
            }
            let (rows, f) = (&self.rows[k], self.f);
            let x = call.read::<T>(k + self.first);
            let z = call.write::<T>(0);
            let mut from = 0;
            rows.rows(|[i]| {
                let z = &mut z[from..from + rows.row];
                from += rows.row;
                let x = x[at(i)..].iter().step_by(at(rows.steps[0]).max(1));
                let mut x = x.copied();
                let one = (rows.steps[0] == 0).then(|| x.next()).flatten();
                for z in z {
                    let Some(x) = one.or_else(|| x.next()) else {
                        return;
                    };
                    *z = if n == 0 { x } else { f(*z, x) };
                }
            });
        }
        for z in call.write::<T>(0) {
            *z = (self.last)(*z);
        }
        Ok(())
    }

    fn may_be_over(&self, input: usize, output: usize) -> bool {
        // Two inputs in the output's memory would be the same tensor, which is read once only.
        let k = input.checked_sub(self.first);
        output == 0 && k == Some(0) && self.whole.first().copied().unwrap_or(false)
    }
}

fn mean(site: &Site<'_>) -> Made {
    let count = f64::from(u32::try_from(site.inputs()).unwrap_or(u32::MAX));
    with_type!(site.output(0)?.dtype, floats, T => sum_of::<T>(site, Some(count)))
}

/// The sum of any number of tensors, divided by a number if there is one. Small floats are summed up
/// beside the output, in float32, and rounded once.
fn sum_of<T: Number>(site: &Site<'_>, divisor: Option<f64>) -> Made {
    let last = move |sum: f64, divisor: f64| T::of(sum / divisor);
    if size_of::<T>() == size_of::<T::Wide>() {
        return match divisor {
            Some(divisor) => fold_to(site, 0, T::add, move |x| last(x.f64(), divisor)),
            None => fold_to(site, 0, T::add, |x| x),
        };
    }
    let rows = rows_of(site, 0)?.0;
    let mut sums = vec![T::Wide::default(); site.output(0)?.elements()];
    kernel(move |call| {
        sums.fill(T::Wide::default());
        for (k, rows) in rows.iter().enumerate() {
            let x = call.read::<T>(k);
            let mut sums = sums.iter_mut();
            rows.each(|[i]| {
                if let Some(sum) = sums.next() {
                    *sum = sum.add(x[at(i)].wide());
                }
            });
        }
        for (z, sum) in call.write::<T>(0).iter_mut().zip(&sums) {
            *z = last(sum.f64(), divisor.unwrap_or(1.0));
        }
        Ok(())
    })
}

/// The sign is that of the divisor, or with `fmod` that of the dividend.
fn remainder(site: &Site<'_>) -> Made {
    let of_dividend = site.flag("fmod", false);
    match site.input(0)?.dtype {
        DType::F32 => zip(site, move |x: f32, y: f32| {
            f32::of(modulo(of_dividend, x.into(), y.into()))
        }),
        DType::F64 => zip(site, move |x: f64, y: f64| modulo(of_dividend, x, y)),
        DType::F16 => zip(site, move |x: f16, y: f16| {
            f16::of(modulo(of_dividend, x.into(), y.into()))
        }),
        DType::BF16 => zip(site, move |x: bf16, y: bf16| {
            bf16::of(modulo(of_dividend, x.into(), y.into()))
        }),
        dtype => with_type!(dtype, integers, T => zip(site, move |x: T, y: T| {
            if y == 0 {
                return 0;
            }
            let rest = x.wrapping_rem(y);
            let zero = T::default();
            let turned = rest != zero && (rest < zero) != (y < zero);
            if turned && !of_dividend { rest.wrapping_add(y) } else { rest }
        })),
    }
}

fn modulo(of_dividend: bool, x: f64, y: f64) -> f64 {
    let rest = x % y;
    if !of_dividend && rest != 0.0 && (rest < 0.0) != (y < 0.0) {
        rest + y
    } else {
        rest
    }
}

/// The exponent may be of another type than the base.
fn power(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.input(1)?);
    if x.dtype == y.dtype {
        return match x.dtype {
            DType::F32 => zip(
                site,
                |x: f32, y: f32| if y == 2.0 { x * x } else { x.powf(y) },
            ),
            dtype => with_type!(dtype, numbers, T => zip(site, |x: T, y: T| raise(x, y))),
        };
    }
    let z = site.output(0)?;
    let rows = Loop::over(&z.dims, [&x.dims, &y.dims])?;
    Elements::check(y.dtype)?;
    with_type!(x.dtype, numbers, T => super::kernel(move |call| {
        let (x, y) = (call.read::<T>(0), Elements::read(call, 1, y.dtype));
        let mut z = call.write::<T>(0).iter_mut();
        rows.each(|[i, j]| {
            if let Some(z) = z.next() {
                let (x, j) = (x[at(i)], at(j));
                *z = if y.is_float() { raise(x, y.f64(j)) } else { raise(x, y.i64(j)) };
            }
        });
        Ok(())
    }))
}

/// Whole powers of whole numbers are exact, and wrap round.
fn raise<T: Number, U: Number>(x: T, y: U) -> T {
    if T::IS_FLOAT || y.f64() < 0.0 || U::IS_FLOAT {
        return T::of(x.f64().powf(y.f64()));
    }
    let exponent = u32::try_from(y.i64()).unwrap_or(u32::MAX);
    T::of_i64(x.i64().wrapping_pow(exponent))
}

fn shift(site: &Site<'_>) -> Made {
    let left = match site.text("direction", "") {
        "LEFT" => true,
        "RIGHT" => false,
        other => {
            return Err(format!(
                "attribute \"direction\" is {other:?}, not LEFT or RIGHT"
            ));
        }
    };
    with_type!(site.input(0)?.dtype, integers, T => zip(site, move |x: T, y: T| {
        let by = u32::try_from(y.i64()).unwrap_or(u32::MAX);
        let moved = if left { x.checked_shl(by) } else { x.checked_shr(by) };
        // All bits are moved out; to the right the sign comes in.
        moved.unwrap_or(if left || x >= T::default() { 0 } else { T::default().wrapping_sub(1) })
    }))
}

/// `Where`: a condition chooses between the elements of two tensors.
fn choose(site: &Site<'_>) -> Made {
    let (c, x, y, z) = (
        site.input(0)?,
        site.input(1)?,
        site.input(2)?,
        site.output(0)?,
    );
    if c.dtype != DType::Bool || x.dtype != y.dtype {
        return Err("it needs a condition of truth values and two inputs of one type".to_owned());
    }
    let rows = Loop::over(&z.dims, [&c.dims, &x.dims, &y.dims])?;
    let whole = [&x, &y].map(|t| t.elements() == z.elements());
    with_size!(z.item()?, T => Ok(Box::new(Choose::<T> {
        rows,
        whole,
        types: std::marker::PhantomData,
    })))
}

struct Choose<T> {
    rows: Loop<3>,
    whole: [bool; 2],
    types: std::marker::PhantomData<fn(T)>,
}

impl<T: Pod> Kernel for Choose<T> {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        let (c, x, y) = (call.read::<u8>(0), call.read::<T>(1), call.read::<T>(2));
        let over = [1, 2].map(|k| call.over(k).is_some());
        let mut z = call.write::<T>(0).iter_mut();
        self.rows.each(|[i, j, k]| {
            let Some(z) = z.next() else { return };
            let (first, from, place) = if c[at(i)] != 0 {
                (over[0], x, j)
            } else {
                (over[1], y, k)
            };
            if !first {
                *z = from[at(place)];
            }
        });
        Ok(())
    }

    fn may_be_over(&self, input: usize, output: usize) -> bool {
        let k = input.checked_sub(1);
        output == 0 && k.is_some_and(|k| self.whole.get(k).copied().unwrap_or(false))
    }
}
