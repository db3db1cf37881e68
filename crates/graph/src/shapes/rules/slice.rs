//! Cutting windows out of tensors.

use rten_shape_inference::{SymExpr, SymTensor};

use super::arithmetic::num;
use super::layout::{as_size, axes, vector};
use crate::dim_expr::{self, constant};
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};
use crate::shapes::fact;

pub(super) fn find(op: &str) -> Option<Rule> {
    (op == "Slice").then_some(slice as Rule)
}

fn slice(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let part = |c: &Context<'_>, i: usize, attr: &str| -> Option<SymTensor> {
        match c.tensors.get(i) {
            Some(Some(tensor)) => Some(tensor.clone()),
            _ => c.int_list(attr).map(|l| vector(&l)),
        }
    };
    let data = c.tensor(0)?.clone();
    let (starts, ends) = (part(c, 1, "starts"), part(c, 2, "ends"));
    let (axis_list, steps) = (part(c, 3, "axes"), part(c, 4, "steps"));
    let (Some(starts), Some(ends)) = (starts, ends) else {
        return impossible("starts or ends are missing");
    };
    let Some(mut dims) = fact::dims(&data) else {
        return Err(Refusal::NoAnswer);
    };
    let n = [&starts, &ends]
        .into_iter()
        .find_map(|t| t.values().map(<[SymExpr]>::len));
    let chosen: Vec<usize> = match (&axis_list, n) {
        (Some(list), _) => match list.values().map(|v| v.iter().map(constant).collect()) {
            Some(Some::<Vec<i128>>(list)) => {
                let list: Vec<i64> = list
                    .into_iter()
                    .map(|a| i64::try_from(a).unwrap_or(i64::MAX))
                    .collect();
                axes(&list, c, dims.len())?
            }
            // Any axis may be cut.
            _ => {
                let dims = c.unknowns(dims.len());
                c.set_dims(0, dtype, dims);
                return Ok(());
            }
        },
        (None, Some(n)) if n <= dims.len() => (0..n).collect(),
        (None, Some(n)) => return impossible(format!("{n} starts for rank {}", dims.len())),
        (None, None) => (0..dims.len()).collect(),
    };
    let whole = dims.clone();
    let at = |t: &SymTensor, i: usize| t.values().and_then(|v| v.get(i).cloned());
    let mut cuts = Vec::new();
    for (i, &axis) in chosen.iter().enumerate() {
        let step = match &steps {
            None => Some(num(1)),
            Some(steps) => at(steps, i),
        };
        let cut = match (
            at(&starts, i),
            at(&ends, i),
            step.as_ref().and_then(constant),
        ) {
            (_, _, Some(0)) => return impossible("a step is 0"),
            (Some(start), Some(end), Some(step)) => Cut::new(&dims[axis], &start, &end, step),
            _ => None,
        };
        dims[axis] = match &cut {
            Some(cut) => cut.len.clone(),
            None => c.unknown(),
        };
        cuts.push(cut);
    }
    let kept = c
        .items(0)
        .and_then(|items| window(items, &whole, &chosen, &cuts));
    c.set_dims(0, dtype, dims);
    if let Some(items) = kept {
        c.fill(0, items);
    }
    Ok(())
}

/// The contents that are left, axis by axis.
fn window(
    mut items: Vec<SymExpr>,
    dims: &[SymExpr],
    axes: &[usize],
    cuts: &[Option<Cut>],
) -> Option<Vec<SymExpr>> {
    // With at least one element, the sizes are as small as the contents.
    if items.is_empty() {
        return None;
    }
    let mut sizes: Vec<usize> = dims.iter().map(as_size).collect::<Option<_>>()?;
    for (&axis, cut) in axes.iter().zip(cuts) {
        let places = cut.as_ref()?.places()?;
        let inner: usize = sizes[axis + 1..].iter().product();
        let block = sizes[axis] * inner;
        let mut kept = Vec::new();
        for outer in items.chunks(block.max(1)) {
            for &place in &places {
                kept.extend_from_slice(outer.get(place * inner..(place + 1) * inner)?);
            }
        }
        sizes[axis] = places.len();
        items = kept;
    }
    Some(items)
}

/// One axis of a slice.
struct Cut {
    /// First element, if known.
    start: Option<i128>,
    step: i128,
    len: SymExpr,
}

impl Cut {
    /// What is left of an axis; `None` when it cannot be told.
    ///
    /// See <https://onnx.ai/onnx/operators/onnx__Slice.html>.
    fn new(size: &SymExpr, start: &SymExpr, end: &SymExpr, step: i128) -> Option<Cut> {
        // Exporters write "to the end" as the greatest integer, or one near it.
        let is_far = |n: i128| n >= i128::from(i32::MAX);
        match (constant(size), constant(start), constant(end)) {
            (Some(0), _, _) => Some(Cut {
                start: Some(0),
                step,
                len: num(0),
            }),
            (Some(size), Some(start), Some(end)) => {
                let place = |n: i128| if n < 0 { n + size } else { n };
                let (start, end) = if step > 0 {
                    (place(start).clamp(0, size), place(end).clamp(0, size))
                } else {
                    (
                        place(start).clamp(0, size - 1),
                        place(end).clamp(-1, size - 1),
                    )
                };
                let len = dim_expr::div_ceil(end - start, step)?.max(0);
                Some(Cut {
                    start: Some(start),
                    step,
                    len: dim_expr::number(len),
                })
            }
            // Everything.
            (None, Some(0), Some(end)) if step == 1 && is_far(end) => Some(Cut {
                start: Some(0),
                step,
                len: size.clone(),
            }),
            (None, Some(-1), Some(end)) if step == -1 && end <= -i128::from(i32::MAX) => {
                Some(Cut {
                    start: None,
                    step,
                    len: size.clone(),
                })
            }
            // All but so many at the front.
            (None, Some(start), Some(end)) if step == 1 && start >= 0 && is_far(end) => Some(Cut {
                start: Some(start),
                step,
                len: (size.clone() - dim_expr::number(start)).max(&num(0)),
            }),
            // The last so many.
            (None, Some(start), Some(end)) if step == 1 && start < 0 && is_far(end) => Some(Cut {
                start: None,
                step,
                len: size.min(&dim_expr::number(-start)),
            }),
            // All but so many at the end.
            (None, Some(0), Some(end)) if step == 1 && end < 0 => Some(Cut {
                start: Some(0),
                step,
                len: (size.clone() + dim_expr::number(end)).max(&num(0)),
            }),
            (_, Some(0), _) if step == 1 && end == size => Some(Cut {
                start: Some(0),
                step,
                len: size.clone(),
            }),
            (_, Some(0), _) if step == 1 && end.is_positive() => Some(Cut {
                start: Some(0),
                step,
                len: size.min(end),
            }),
            (_, Some(start), Some(end)) if step == 1 && 0 <= start && start <= end => {
                let (start_expr, end_expr) = (dim_expr::number(start), dim_expr::number(end));
                Some(Cut {
                    start: Some(start),
                    step,
                    len: size.min(&end_expr) - size.min(&start_expr),
                })
            }
            // A window that starts before it ends, as in `past` to `past + 1`.
            (_, None, _) if step == 1 && start.is_positive() && end.is_positive() => Some(Cut {
                start: None,
                step,
                len: size.min(end) - size.min(start),
            }),
            _ => None,
        }
    }

    /// The positions that are left.
    fn places(&self) -> Option<Vec<usize>> {
        let (start, len) = (self.start?, as_size(&self.len)?);
        // Contents are few, so what is longer has none.
        (0..i128::try_from(len.min(fact::MAX_CONTENTS + 1)).ok()?)
            .map(|k| usize::try_from(start + k * self.step).ok())
            .collect()
    }
}
