//! Operators that choose elements by numbers, and those that write them there. Numbers below 0 count
//! from the back; those that name no element are refused when they are read.
//! Source: the ONNX operator specification.

use smallvec::SmallVec;
use tenure_graph::DType;

use super::element::{Elements, Number, with_size, with_type};
use super::layout::{integer_type, rows};
use super::strided::{around, at, contiguous};
use super::{Call, Made, Make, Site, Type, kernel, kernel_over, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("ScatterElements", scatter_elements),
    ("Scatter", scatter_elements),
    ("ScatterND", scatter_nd),
    ("TensorScatter", tensor_scatter),
    ("OneHot", one_hot),
    ("Compress", compress),
];

/// The place that a number names among `size` ones.
#[inline]
fn place(number: i64, size: usize) -> Result<usize, String> {
    let found = if number < 0 {
        usize::try_from(number.unsigned_abs())
            .ok()
            .and_then(|n| size.checked_sub(n))
    } else {
        usize::try_from(number).ok().filter(|&n| n < size)
    };
    found.ok_or_else(|| format!("there is no element {number} among {size}"))
}

/// Numbers of type int64 or int32.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    Long(&'a [i64]),
    Short(&'a [i32]),
}

impl<'a> Numbers<'a> {
    fn read(call: &Call<'a>, i: usize, dtype: DType) -> Self {
        match dtype {
            DType::I32 => Numbers::Short(call.read(i)),
            _ => Numbers::Long(call.read(i)),
        }
    }

    #[inline]
    fn get(self, i: usize) -> i64 {
        match self {
            Numbers::Long(list) => list[i],
            Numbers::Short(list) => i64::from(list[i]),
        }
    }
}

/// Whole rows along an axis.
fn gather(site: &Site<'_>) -> Made {
    let (x, numbers, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let [outer, size, row] = rows(&x, x.axis(site.int("axis", 0))?)?;
    let dtype = integer_type(site, 1)?;
    let count = numbers.elements();
    if y.elements() * x.item()? != outer * count * row || x.dtype != y.dtype {
        return Err("the output has not a row for each number".to_owned());
    }
    kernel(move |call| {
        let (x, numbers) = (call.read::<u8>(0), Numbers::read(call, 1, dtype));
        let y = call.write::<u8>(0);
        for o in 0..outer {
            for i in 0..count {
                let from = (o * size + place(numbers.get(i), size)?) * row;
                let to = (o * count + i) * row;
                y[to..to + row].copy_from_slice(&x[from..from + row]);
            }
        }
        Ok(())
    })
}

/// How the elements of a tensor of numbers lie in one of more elements, without an axis.
struct Along {
    dims: SmallVec<[usize; 6]>,
    /// Steps in the tensor that is chosen from, 0 along the axis.
    steps: SmallVec<[isize; 6]>,
    axis_step: usize,
    size: usize,
}

impl Along {
    fn new(x: &Type, numbers: &Type, axis: i64) -> Result<Self, String> {
        let axis = x.axis(axis)?;
        let fits = x.rank() == numbers.rank()
            && (0..x.rank()).all(|a| a == axis || numbers.dims[a] <= x.dims[a]);
        if !fits {
            return Err(format!(
                "numbers of dimensions {:?} do not fit a tensor of {:?}",
                numbers.dims, x.dims
            ));
        }
        let mut steps = contiguous(&x.dims);
        let axis_step = at(steps[axis]);
        steps[axis] = 0;
        Ok(Along {
            dims: numbers.dims.clone(),
            steps,
            axis_step,
            size: x.dims[axis],
        })
    }

    /// Calls `f` for each number with its place and that of the element that it names.
    fn each(&self, numbers: Numbers<'_>, mut f: impl FnMut(usize, usize)) -> Result<(), String> {
        let mut i = 0;
        let mut done = Ok(());
        super::strided::Loop::new(&self.dims, [&self.steps]).each(|[start]| {
            if done.is_ok() {
                match place(numbers.get(i), self.size) {
                    Ok(k) => f(i, at(start) + k * self.axis_step),
                    Err(reason) => done = Err(reason),
                }
            }
            i += 1;
        });
        done
    }
}

fn gather_elements(site: &Site<'_>) -> Made {
    let (x, numbers) = (site.input(0)?, site.input(1)?);
    let along = Along::new(&x, &numbers, site.int("axis", 0))?;
    let dtype = integer_type(site, 1)?;
    let item = x.item()?;
    with_size!(item, T => kernel(move |call| {
        let (x, numbers) = (call.read::<T>(0), Numbers::read(call, 1, dtype));
        let y = call.write::<T>(0);
        along.each(numbers, |i, from| y[i] = x[from])
    }))
}

/// How a new element and an old one become one.
#[derive(Clone, Copy, Debug)]
enum Join {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl Join {
    fn of(site: &Site<'_>) -> Result<Self, String> {
        match site.text("reduction", "none") {
            "none" => Ok(Join::Replace),
            "add" => Ok(Join::Add),
            "mul" => Ok(Join::Mul),
            "max" => Ok(Join::Max),
            "min" => Ok(Join::Min),
            other => Err(format!("attribute \"reduction\" is {other:?}")),
        }
    }

    #[inline]
    fn apply<T: Number>(self, old: T, new: T) -> T {
        match self {
            Join::Replace => new,
            Join::Add => old.add(new),
            Join::Mul => old.mul(new),
            Join::Max => Number::max(old, new),
            Join::Min => Number::min(old, new),
        }
    }
}

fn scatter_elements(site: &Site<'_>) -> Made {
    let (x, numbers, updates) = (site.input(0)?, site.input(1)?, site.input(2)?);
    let along = Along::new(&x, &numbers, site.int("axis", 0))?;
    let dtype = integer_type(site, 1)?;
    let join = Join::of(site)?;
    if updates.dims != numbers.dims || updates.dtype != x.dtype {
        return Err("there is not an update for each number".to_owned());
    }
    with_type!(x.dtype, numbers_and_truth, T => kernel_over(&[0], move |call| {
        let (numbers, updates) = (Numbers::read(call, 1, dtype), call.read::<T>(2));
        call.settle(0, 0);
        let y = call.write::<T>(0);
        along.each(numbers, |i, to| y[to] = join.apply(y[to], updates[i]))
    }))
}

/// Tuples of numbers that name parts of a tensor.
struct Tuples {
    /// Batches, tuples in each, numbers in a tuple.
    batches: usize,
    count: usize,
    width: usize,
    /// Sizes of the axes that a tuple names.
    sizes: SmallVec<[usize; 6]>,
    /// Elements of a part.
    part: usize,
}

impl Tuples {
    fn new(x: &Type, numbers: &Type, batch: usize) -> Result<Self, String> {
        let width = numbers.dims.last().copied();
        let width = width.filter(|&w| batch + w <= x.rank() && batch < numbers.rank().max(1));
        let width = width.ok_or("the numbers name more axes than there are")?;
        Ok(Tuples {
            batches: product(&x.dims[..batch]),
            count: product(&numbers.dims[batch..numbers.rank() - 1]),
            width,
            sizes: x.dims[batch..batch + width].iter().copied().collect(),
            part: product(&x.dims[batch + width..]),
        })
    }

    /// Calls `f` with the number of each tuple and of the part that it names.
    fn each(&self, numbers: Numbers<'_>, mut f: impl FnMut(usize, usize)) -> Result<(), String> {
        for batch in 0..self.batches {
            for k in 0..self.count {
                let tuple = batch * self.count + k;
                let mut part = batch;
                for (i, &size) in self.sizes.iter().enumerate() {
                    part = part * size + place(numbers.get(tuple * self.width + i), size)?;
                }
                f(tuple, part);
            }
        }
        Ok(())
    }
}

fn gather_nd(site: &Site<'_>) -> Made {
    let (x, numbers, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let batch = usize::try_from(site.int("batch_dims", 0)).unwrap_or(usize::MAX);
    let tuples = Tuples::new(&x, &numbers, batch.min(x.rank()))?;
    let dtype = integer_type(site, 1)?;
    if y.elements() != tuples.batches * tuples.count * tuples.part || x.dtype != y.dtype {
        return Err("the output has not a part for each tuple".to_owned());
    }
    let bytes = tuples.part * x.item()?;
    kernel(move |call| {
        let (x, numbers) = (call.read::<u8>(0), Numbers::read(call, 1, dtype));
        let y = call.write::<u8>(0);
        tuples.each(numbers, |to, from| {
            let from = &x[from * bytes..(from + 1) * bytes];
            y[to * bytes..(to + 1) * bytes].copy_from_slice(from);
        })
    })
}

fn scatter_nd(site: &Site<'_>) -> Made {
    let (x, numbers, updates) = (site.input(0)?, site.input(1)?, site.input(2)?);
    let tuples = Tuples::new(&x, &numbers, 0)?;
    let dtype = integer_type(site, 1)?;
    let join = Join::of(site)?;
    if updates.elements() != tuples.count * tuples.part || updates.dtype != x.dtype {
        return Err("there is not an update for each tuple".to_owned());
    }
    with_type!(x.dtype, numbers_and_truth, T => kernel_over(&[0], move |call| {
        let (numbers, updates) = (Numbers::read(call, 1, dtype), call.read::<T>(2));
        call.settle(0, 0);
        let y = call.write::<T>(0);
        let part = tuples.part;
        tuples.each(numbers, |from, to| {
            let from = &updates[from * part..(from + 1) * part];
            for (y, &new) in y[to * part..(to + 1) * part].iter_mut().zip(from) {
                *y = join.apply(*y, new);
            }
        })
    }))
}

/// Writes a run of a sequence axis of a cache, from a place of each batch on.
fn tensor_scatter(site: &Site<'_>) -> Made {
    let (cache, update) = (site.input(0)?, site.input(1)?);
    let axis = cache.axis(site.int("axis", -2))?;
    let circular = site.text("mode", "linear") == "circular";
    let batch = cache.dims.first().copied().unwrap_or(0);
    let [outer, size, row] = rows(&cache, axis)?;
    let steps = update.dims.get(axis).copied().unwrap_or(0);
    if axis == 0 || update.rank() != cache.rank() || outer % batch.max(1) != 0 {
        return Err("the update does not fit the cache".to_owned());
    }
    let starts = site.optional(2)?.map_or(0, |t| t.elements());
    if starts != 0 && starts != batch {
        return Err("there is not a start for each batch".to_owned());
    }
    kernel_over(&[0], move |call| {
        let (update, starts) = (call.read::<u8>(1), call.read::<i64>(2));
        call.settle(0, 0);
        let y = call.write::<u8>(0);
        for o in 0..outer {
            let start = starts
                .get(o / (outer / batch.max(1)).max(1))
                .copied()
                .unwrap_or(0);
            let start = usize::try_from(start).map_err(|_| "a start is below 0".to_owned())?;
            for s in 0..steps {
                let to = start + s;
                let to = if circular { to % size.max(1) } else { to };
                if to >= size {
                    return Err(format!("place {to} is beyond the {size} of the cache"));
                }
                let from = (o * steps + s) * row;
                let to = (o * size + to) * row;
                y[to..to + row].copy_from_slice(&update[from..from + row]);
            }
        }
        Ok(())
    })
}

/// Rows with one element on, the rest off. Numbers that name none leave all off.
fn one_hot(site: &Site<'_>) -> Made {
    let (numbers, y) = (site.input(0)?, site.output(0)?);
    let [outer, depth, inner] = around(&y.dims, y.axis(site.int("axis", -1))?);
    if outer * inner != numbers.elements() {
        return Err("the output has not a row for each number".to_owned());
    }
    let item = y.item()?;
    Elements::check(numbers.dtype)?;
    with_size!(item, T => kernel(move |call| {
        let (numbers, values) = (Elements::read(call, 0, numbers.dtype), call.read::<T>(2));
        let &[off, on] = values else {
            return Err("it needs a value for off and one for on".to_owned());
        };
        let y = call.write::<T>(0);
        y.fill(off);
        for o in 0..outer {
            for i in 0..inner {
                if let Ok(k) = place(numbers.i64(o * inner + i), depth) {
                    y[(o * depth + k) * inner + i] = on;
                }
            }
        }
        Ok(())
    }))
}

/// The rows whose condition is true; as many as were planned.
fn compress(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    let [outer, size, row] = match site.attrs().int("axis") {
        Some(axis) => rows(&x, x.axis(axis)?)?,
        None => [1, x.elements(), x.item()?],
    };
    let planned = match site.attrs().int("axis") {
        Some(axis) => y.dims[x.axis(axis)?],
        None => y.elements(),
    };
    kernel(move |call| {
        let (x, taken) = (call.read::<u8>(0), call.read::<u8>(1));
        let found = taken.iter().take(size).filter(|&&t| t != 0).count();
        if found != planned {
            return Err(format!(
                "{found} rows are taken, and {planned} were planned"
            ));
        }
        let y = call.write::<u8>(0);
        let mut to = 0;
        for o in 0..outer {
            for (i, _) in taken
                .iter()
                .take(size)
                .enumerate()
                .filter(|(_, t)| **t != 0)
            {
                let from = (o * size + i) * row;
                y[to..to + row].copy_from_slice(&x[from..from + row]);
                to += row;
            }
        }
        Ok(())
    })
}
