//! Operators that put tensors one after the other along an axis, or cut one into parts: whatever
//! their elements are, they copy runs of bytes.

use super::{Made, Make, Site, Type, kernel};

/// The kernels of this family. The dialects have other names for the axis.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Concat", |site| {
        concat(site, site.attrs().int("axis").unwrap_or(1))
    }),
    ("ConcatD", |site| concat(site, site.int("concat_dim", 0))),
    ("ConcatV2D", |site| concat(site, site.int("concat_dim", 0))),
    ("Split", |site| split(site, site.int("axis", 0))),
    ("SplitD", |site| split(site, site.int("split_dim", 0))),
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
    fn new(whole: &Type, parts: &[Type], axis: i64) -> Result<Self, String> {
        let axis = whole.axis(axis)?;
        let mut rows = 0usize;
        let mut runs = Vec::with_capacity(parts.len());
        let behind = whole.dims[axis + 1..].iter().product::<usize>() * whole.item()?;
        for (i, part) in parts.iter().enumerate() {
            let mut like = part.dims.clone();
            if let (Some(of_part), Some(of_whole)) = (like.get_mut(axis), whole.dims.get(axis)) {
                rows = rows.saturating_add(*of_part);
                runs.push(of_part.saturating_mul(behind));
                *of_part = *of_whole;
            }
            if like != whole.dims || part.dtype != whole.dtype {
                return Err(format!("part {i} does not fit the whole"));
            }
        }
        if rows != whole.dims[axis] {
            return Err(format!(
                "the parts have {rows} rows, and the whole has {}",
                whole.dims[axis]
            ));
        }
        let turn = runs.iter().sum();
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

/// The inputs one after the other.
fn concat(site: &Site<'_>, axis: i64) -> Made {
    let parts: Result<Vec<Type>, String> = (0..site.inputs()).map(|i| site.input(i)).collect();
    let pattern = Pattern::new(&site.output(0)?, &parts?, axis)?;
    kernel(move |call| {
        for part in 0..pattern.runs.len() {
            let from: &[u8] = call.read(part);
            let whole: &mut [u8] = call.write(0);
            let bytes = pattern.runs[part];
            if bytes == 0 {
                continue;
            }
            let start: usize = pattern.runs[..part].iter().sum();
            let turns = whole.chunks_exact_mut(pattern.turn);
            for (turn, run) in turns.zip(from.chunks_exact(bytes)) {
                turn[start..start + bytes].copy_from_slice(run);
            }
        }
        Ok(())
    })
}

/// The parts of the input.
fn split(site: &Site<'_>, axis: i64) -> Made {
    let parts: Result<Vec<Type>, String> = (0..site.outputs()).map(|i| site.output(i)).collect();
    let pattern = Pattern::new(&site.input(0)?, &parts?, axis)?;
    kernel(move |call| {
        let whole: &[u8] = call.read(0);
        for (part, to, from, bytes) in pattern.runs(whole.len()) {
            call.write(part)[to..to + bytes].copy_from_slice(&whole[from..from + bytes]);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::DType;

    fn ty(shape: &[usize]) -> Type {
        Type {
            dtype: DType::U8,
            dims: shape.iter().copied().collect(),
        }
    }

    #[test]
    fn runs_alternate_where_the_axis_is_an_inner_one() {
        let (whole, parts) = (ty(&[2, 5]), [ty(&[2, 2]), ty(&[2, 3])]);
        for axis in [1, -1] {
            let pattern = Pattern::new(&whole, &parts, axis).unwrap();
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
            assert!(Pattern::new(&whole, &parts, axis).is_err());
        }
    }
}
