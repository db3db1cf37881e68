//! Operators that add to memory that somebody else has cleared.

use super::element::{Number, with_type};
use super::{Made, Make, Site, kernel_over};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("AtomicAdd", accumulate)];

/// Adds its input to its output, which somebody has cleared; else it clears it itself.
fn accumulate(site: &Site<'_>) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    if x.dtype != y.dtype || x.elements() != y.elements() {
        return Err("its output has other elements than its input".to_owned());
    }
    let is_cleared = site.is_cleared(0);
    with_type!(x.dtype, numbers, T => kernel_over(&[0], move |call| {
        let over = call.over(0).is_some();
        let x = call.read::<T>(0);
        for (i, y) in call.write::<T>(0).iter_mut().enumerate() {
            let before = if is_cleared { *y } else { T::default() };
            let x = if over { *y } else { x[i] };
            *y = Number::add(before, x);
        }
        Ok(())
    }))
}
