//! Loops over tensors of any rank: what a step along each axis is, in elements, for several
//! tensors at a time.

use smallvec::SmallVec;

use super::Dims;

/// Steps between elements along each axis; a step may be 0 or backwards.
pub(super) type Strides = SmallVec<[isize; 6]>;

/// A position as a signed number; what does not fit is in no memory.
pub(super) fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// A position that a loop has reached.
#[inline(always)]
pub(super) fn at(n: isize) -> usize {
    n.unsigned_abs()
}

/// Strides of a tensor whose elements lie row by row.
pub(super) fn contiguous(dims: &[usize]) -> Strides {
    let mut step = 1isize;
    let mut strides: Strides = SmallVec::from_elem(0, dims.len());
    for (stride, &dim) in strides.iter_mut().zip(dims).rev() {
        *stride = step;
        step = step.saturating_mul(signed(dim));
    }
    strides
}

/// Strides with which a tensor is read as one of `to` dimensions: axes of size 1 are repeated, and
/// missing ones in front.
///
/// # Errors
/// When the dimensions do not fit.
pub(super) fn broadcast(from: &[usize], to: &[usize]) -> Result<Strides, String> {
    let fits = || {
        let missing = to.len().checked_sub(from.len())?;
        let own = contiguous(from);
        let mut strides: Strides = SmallVec::from_elem(0, missing);
        for ((&dim, &wanted), &step) in from.iter().zip(&to[missing..]).zip(&own) {
            match dim {
                _ if dim == wanted => strides.push(if dim == 1 { 0 } else { step }),
                1 => strides.push(0),
                _ => return None,
            }
        }
        Some(strides)
    };
    fits().ok_or_else(|| format!("dimensions {from:?} cannot be repeated to {to:?}"))
}

/// Strides with the axes in another order.
pub(super) fn permuted<T: Copy>(of: &[T], order: &[usize]) -> SmallVec<[T; 6]>
where
    [T; 6]: smallvec::Array<Item = T>,
{
    order.iter().map(|&axis| of[axis]).collect()
}

/// A loop over all positions of some dimensions, with the place in each of `N` tensors.
///
/// Axes that lie behind one another in all tensors are taken together, so that the last one, the
/// row, is as long as can be.
#[derive(Clone, Debug)]
pub(super) struct Loop<const N: usize> {
    /// Axes around the rows: size, and steps.
    outer: SmallVec<[(usize, [isize; N]); 5]>,
    /// Length of a row.
    pub(super) row: usize,
    /// Steps within a row.
    pub(super) steps: [isize; N],
}

impl<const N: usize> Loop<N> {
    /// The loop over `dims`, in order.
    pub(super) fn new(dims: &[usize], strides: [&[isize]; N]) -> Self {
        let mut axes: SmallVec<[(usize, [isize; N]); 5]> = SmallVec::new();
        for (i, &dim) in dims.iter().enumerate() {
            let steps = strides.map(|s| s.get(i).copied().unwrap_or(0));
            if dim == 1 {
                continue;
            }
            let joins = |outer: &(usize, [isize; N])| {
                let mut pairs = outer.1.iter().zip(&steps);
                pairs.all(|(&o, &s)| s.checked_mul(signed(dim)) == Some(o))
            };
            match axes.last_mut() {
                Some(last) if joins(last) => *last = (last.0.saturating_mul(dim), steps),
                _ => axes.push((dim, steps)),
            }
        }
        let (row, steps) = axes.pop().unwrap_or((1, [0; N]));
        let empty = dims.contains(&0);
        Loop {
            outer: if empty { SmallVec::new() } else { axes },
            row: if empty { 0 } else { row },
            steps,
        }
    }

    /// The loop over tensors that are read as one of dimensions `dims`.
    ///
    /// # Errors
    /// When the dimensions do not fit.
    pub(super) fn over(dims: &[usize], tensors: [&[usize]; N]) -> Result<Self, String> {
        let mut strides: [Strides; N] = std::array::from_fn(|_| Strides::new());
        for (stride, tensor) in strides.iter_mut().zip(tensors) {
            *stride = broadcast(tensor, dims)?;
        }
        Ok(Self::new(dims, strides.each_ref().map(|s| &s[..])))
    }

    /// Calls `f` with the places of each row's first elements, in order.
    #[inline]
    pub(super) fn rows(&self, mut f: impl FnMut([isize; N])) {
        if self.row == 0 {
            return;
        }
        let mut count: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.outer.len());
        let mut places = [0isize; N];
        'rows: loop {
            f(places);
            for (n, (dim, steps)) in count.iter_mut().zip(&self.outer).rev() {
                *n += 1;
                if *n < *dim {
                    for (place, step) in places.iter_mut().zip(steps) {
                        *place += step;
                    }
                    continue 'rows;
                }
                for (place, step) in places.iter_mut().zip(steps) {
                    *place -= step * signed(*n - 1);
                }
                *n = 0;
            }
            return;
        }
    }

    /// Calls `f` with the places of all elements, in order.
    #[inline]
    pub(super) fn each(&self, mut f: impl FnMut([isize; N])) {
        self.rows(|mut places| {
            for _ in 0..self.row {
                f(places);
                for (place, step) in places.iter_mut().zip(&self.steps) {
                    *place += step;
                }
            }
        });
    }
}

/// The dimensions around an axis: of those before it, of it, and of those behind it, the products.
pub(super) fn around(dims: &[usize], axis: usize) -> [usize; 3] {
    let product = super::product;
    [
        product(&dims[..axis]),
        dims.get(axis).copied().unwrap_or(1),
        product(dims.get(axis + 1..).unwrap_or(&[])),
    ]
}

/// The dimensions that tensors have when they are repeated to fit each other.
///
/// # Errors
/// When they do not fit.
pub(super) fn common(tensors: &[&[usize]]) -> Result<Dims, String> {
    let rank = tensors.iter().map(|t| t.len()).max().unwrap_or(0);
    let mut dims: Dims = SmallVec::from_elem(1, rank);
    for tensor in tensors {
        for (dim, &d) in dims.iter_mut().rev().zip(tensor.iter().rev()) {
            match (*dim, d) {
                (1, _) => *dim = d,
                (_, 1) => {}
                (have, d) if have == d => {}
                _ => return Err(format!("dimensions {tensors:?} do not fit each other")),
            }
        }
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_long_as_can_be() {
        let whole = Loop::over(&[2, 3, 4], [&[2, 3, 4], &[2, 3, 4]]).unwrap();
        assert_eq!((whole.row, whole.steps), (24, [1, 1]));
        let bias = Loop::over(&[2, 3, 4], [&[2, 3, 4], &[3, 1]]).unwrap();
        assert_eq!((bias.row, bias.steps), (4, [1, 0]));
        let mut starts = Vec::new();
        bias.rows(|p| starts.push(p));
        assert_eq!(starts, [[0, 0], [4, 1], [8, 2], [12, 0], [16, 1], [20, 2]]);
    }

    #[test]
    fn every_element_is_visited_in_order() {
        let dims = [2, 3, 2];
        let back = permuted(&contiguous(&[2, 2, 3]), &[0, 2, 1]);
        let transposed = Loop::new(&dims, [&back]);
        let mut seen = Vec::new();
        transposed.each(|[p]| seen.push(p));
        assert_eq!(seen, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let mut count = 0;
        Loop::over(&[2, 0], [&[1, 0]])
            .unwrap()
            .each(|[_]| count += 1);
        assert_eq!(count, 0);
        Loop::over(&[], [&[]])
            .unwrap()
            .each(|[p]| count += 1 + at(p));
        assert_eq!(count, 1);
    }

    #[test]
    fn dimensions_that_do_not_fit_are_refused() {
        assert!(broadcast(&[3], &[4]).is_err());
        assert!(broadcast(&[1, 4], &[4]).is_err());
        assert!(common(&[&[2, 3], &[4]]).is_err());
        assert_eq!(common(&[&[2, 1], &[3], &[]]).unwrap()[..], [2, 3]);
    }
}
