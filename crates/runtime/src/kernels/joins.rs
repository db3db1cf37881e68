//! Operators that put tensors one after the other along an axis, or cut one into parts: whatever
//! their elements are, they copy runs of bytes.

use tenure_graph::DType;

use super::{Call, Kernel, Make, Site, Type};
use crate::memory::copy;

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("ConcatD", concat),
    ("ConcatV2D", concat),
    ("SplitD", split),
];

/// How the whole and its parts lie to one another.
#[derive(Debug)]
struct Pattern {
    /// Bytes of one run of each part; the runs of all parts, in turn, are the whole.
    runs: Vec<usize>,
    /// Their sum.
    turn: usize,
}

impl Pattern {
    fn new(whole: &Type, parts: &[Type], axis: Option<i64>) -> Result<Self, String> {
        let rank = whole.shape.len();
        let axis = axis.unwrap_or(0);
        let signed = i64::try_from(rank).unwrap_or(i64::MAX);
        let from_front = if axis < 0 {
            axis.saturating_add(signed)
        } else {
            axis
        };
        let axis = usize::try_from(from_front).ok().filter(|&a| a < rank);
        let axis = axis.ok_or_else(|| format!("there is no such axis among {rank}"))?;
        let mut rows = 0u64;
        let mut runs = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            let mut like = part.shape.clone();
            if let (Some(of_part), Some(of_whole)) = (like.get_mut(axis), whole.shape.get(axis)) {
                rows = rows.saturating_add(*of_part);
                *of_part = *of_whole;
            }
            if like != whole.shape || part.dtype != whole.dtype {
                return Err(format!("part {i} does not fit the whole"));
            }
            runs.push(run(part.dtype, &part.shape[axis..])?);
        }
        if rows != whole.shape[axis] {
            return Err(format!(
                "the parts have {rows} rows, and the whole has {}",
                whole.shape[axis]
            ));
        }
        let turn = run(whole.dtype, &whole.shape[axis..])?;
        Ok(Pattern { runs, turn })
    }

    /// The runs in order: which part, where in the part, where in the whole, how many bytes.
    fn runs(&self, whole: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let turns = whole.checked_div(self.turn).unwrap_or(0);
        (0..turns).flat_map(move |t| {
            let mut at = t * self.turn;
            self.runs.iter().enumerate().map(move |(part, &bytes)| {
                let start = at;
                at += bytes;
                (part, t * bytes, start, bytes)
            })
        })
    }
}

/// Bytes of one run: all elements that lie behind one another in a part.
fn run(dtype: DType, dims: &[u64]) -> Result<usize, String> {
    let whole = dtype.bits().is_some_and(|bits| bits % 8 == 0);
    let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let bytes = elements.filter(|_| whole).and_then(|n| dtype.bytes(n));
    let bytes = bytes.and_then(|n| usize::try_from(n).ok());
    bytes.ok_or_else(|| format!("elements of type {dtype} are no whole bytes"))
}

/// The inputs one after the other.
#[derive(Debug)]
struct Concat(Pattern);

fn concat(site: &Site<'_>) -> Result<Box<dyn Kernel>, String> {
    let parts: Result<Vec<Type>, String> = (0..site.inputs()).map(|i| site.input(i)).collect();
    let axis = site.attrs().int("concat_dim");
    Ok(Box::new(Concat(Pattern::new(
        &site.output(0)?,
        &parts?,
        axis,
    )?)))
}

impl Kernel for Concat {
    fn run(&self, call: &Call<'_>) {
        let whole = call.output(0);
        for (part, from, to, bytes) in self.0.runs(whole.len()) {
            let from = call.input(part).get(from..from + bytes);
            let to = whole.get(to..to + bytes);
            copy(from.unwrap_or_default(), to.unwrap_or_default());
        }
    }
}

/// The parts of the input.
#[derive(Debug)]
struct Split(Pattern);

fn split(site: &Site<'_>) -> Result<Box<dyn Kernel>, String> {
    let parts: Result<Vec<Type>, String> = (0..site.outputs()).map(|i| site.output(i)).collect();
    let axis = site.attrs().int("split_dim");
    Ok(Box::new(Split(Pattern::new(
        &site.input(0)?,
        &parts?,
        axis,
    )?)))
}

impl Kernel for Split {
    fn run(&self, call: &Call<'_>) {
        let whole = call.input(0);
        for (part, to, from, bytes) in self.0.runs(whole.len()) {
            let from = whole.get(from..from + bytes);
            let to = call.output(part).get(to..to + bytes);
            copy(from.unwrap_or_default(), to.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(shape: &[u64]) -> Type {
        Type {
            dtype: DType::U8,
            shape: shape.iter().copied().collect(),
        }
    }

    #[test]
    fn runs_alternate_where_the_axis_is_an_inner_one() {
        let (whole, parts) = (ty(&[2, 5]), [ty(&[2, 2]), ty(&[2, 3])]);
        for axis in [1, -1] {
            let pattern = Pattern::new(&whole, &parts, Some(axis)).unwrap();
            let runs: Vec<_> = pattern.runs(10).collect();
            assert_eq!(
                runs,
                [(0, 0, 0, 2), (1, 0, 2, 3), (0, 2, 5, 2), (1, 3, 7, 3)]
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let parts = [ty(&[2, 2]), ty(&[2, 3])];
        for (whole, axis) in [
            (ty(&[2, 6]), 1),
            (ty(&[3, 5]), 1),
            (ty(&[2, 5]), 0),
            (ty(&[2, 5]), 2),
        ] {
            assert!(Pattern::new(&whole, &parts, Some(axis)).is_err());
        }
    }
}
