//! Operators that move elements without changing them: reshaping, transposing, joining,
//! splitting, padding.

use rten_shape_inference::ops;
use rten_shape_inference::{SymExpr, SymTensor};

use super::arithmetic::{broadcast, count, num, product, same_dim};
use crate::DType;
use crate::dim_expr::constant;
use crate::shapes::adapter::Numbers;
use crate::shapes::context::{Answer, Context, Refusal, Rule, impossible};
use crate::shapes::fact;

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "Reshape" => reshape,
        "Flatten" => flatten,
        "Shape" => shape,
        "Size" => size,
        "Transpose" => transpose,
        "Squeeze" => squeeze,
        "Unsqueeze" => unsqueeze,
        "Concat" => concat,
        "Split" => split,
        "Expand" => expand,
        "Tile" => tile,
        "Pad" => pad,
        "DepthToSpace" => depth_to_space,
        "SpaceToDepth" => space_to_depth,
        "CenterCropPad" => center_crop_pad,
        "Col2Im" => col2im,
        _ => return None,
    })
}

/// A list of integers that newer versions take as input `input` and older ones as attribute
/// `attr`: `None` when it is there and not known, `Some(None)` when it is not there.
pub(super) fn list(c: &Context<'_>, input: usize, attr: &str) -> Option<Option<Vec<i64>>> {
    if c.has(input) {
        return c.ints(input).map(Some);
    }
    Some(c.int_list(attr))
}

/// Position of each of some axes.
pub(super) fn axes(axes: &[i64], c: &Context<'_>, rank: usize) -> Result<Vec<usize>, Refusal> {
    axes.iter().map(|&a| c.axis(a, rank)).collect()
}

/// Integers as known contents.
pub(super) fn vector(ints: &[i64]) -> SymTensor {
    SymTensor::from_vec(ints.iter().map(|&n| num(n)).collect())
}

fn reshape(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let target = match c.tensors.get(1) {
        Some(Some(target)) => target.clone(),
        _ => match c.int_list("shape") {
            Some(shape) => vector(&shape),
            None => return impossible("neither an input nor an attribute gives the shape"),
        },
    };
    c.set_dtype(0, dtype);
    // The rule makes a symbol for each dimension that it does not know.
    if c.length(1).is_some_and(|n| n > fact::MAX_RANK) {
        return Err(Refusal::NoAnswer);
    }
    let data = c.tensor(0)?.clone();
    if let (Some(have), Some(want)) = (fact::dims(&data), target.values())
        && let Some(want) = want.iter().map(constant).collect::<Option<Vec<_>>>()
    {
        check_reshape(&have, &want, c.int("allowzero", 0) != 0)?;
    }
    let rule = ops::Reshape {
        allow_zero: c.int("allowzero", 0) != 0,
    };
    let outputs = c.ask_with(
        &rule,
        Numbers::Multiplied,
        &[Some(data.clone()), Some(target)],
    )?;
    let Some(tensor) = outputs.into_iter().next() else {
        return Err(Refusal::NoAnswer);
    };
    c.set(0, dtype, tensor);
    c.keep_items();
    Ok(())
}

/// Refuses a target shape that cannot hold the elements.
fn check_reshape(have: &[SymExpr], want: &[i128], allow_zero: bool) -> Answer {
    if want.iter().any(|&n| n < -1) || want.iter().filter(|&&n| n == -1).count() > 1 {
        return impossible(format!("{want:?} is no shape to reshape to"));
    }
    let Some(have) = have.iter().map(constant).collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    let multiply = |n: i128, d: i128| n.checked_mul(d);
    let Some(total) = have.iter().copied().try_fold(1, multiply) else {
        return Ok(());
    };
    let mut rest = 1;
    for (i, &n) in want.iter().enumerate() {
        let n = match n {
            -1 => continue,
            0 if !allow_zero => match have.get(i) {
                Some(&n) => n,
                None => return impossible(format!("dimension {i} to copy is not there")),
            },
            n => n,
        };
        match multiply(rest, n) {
            Some(n) => rest = n,
            None => return impossible("the target shape is too large"),
        }
    }
    let fits = if want.contains(&-1) {
        rest != 0 && total % rest == 0
    } else {
        total == rest
    };
    if fits {
        Ok(())
    } else {
        impossible(format!("{total} elements do not fit the shape {want:?}"))
    }
}

fn flatten(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let dims = c.dims(0)?;
    // The axis is a number of dimensions: the rank itself is allowed.
    let axis = match c.int("axis", 1) {
        a if usize::try_from(a) == Ok(dims.len()) => dims.len(),
        a => c.axis(a, dims.len())?,
    };
    let (outer, inner) = dims.split_at(axis);
    c.set_dims(0, dtype, vec![product(outer), product(inner)]);
    c.keep_items();
    Ok(())
}

fn shape(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::I64);
    let Ok(dims) = c.dims(0) else {
        let n = c.unknown();
        c.set_dims(0, DType::I64, vec![n]);
        return Ok(());
    };
    let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
    let place = |n: i64| {
        let n = if n < 0 { n.saturating_add(rank) } else { n };
        usize::try_from(n.clamp(0, rank)).unwrap_or(0)
    };
    let (start, end) = (place(c.int("start", 0)), place(c.int("end", rank)));
    let part = dims.get(start..end).unwrap_or_default().to_vec();
    c.set(0, DType::I64, SymTensor::from_vec(part));
    Ok(())
}

fn size(c: &mut Context<'_>) -> Answer {
    let tensor = match c.dims(0) {
        Ok(dims) => SymTensor::from_scalar(product(&dims)),
        Err(_) => SymTensor::from_shape(Vec::new()),
    };
    c.set(0, DType::I64, tensor);
    Ok(())
}

fn transpose(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let dims = c.dims(0)?;
    let Some(perm) = c.int_list("perm") else {
        c.set_dims(0, dtype, dims.into_iter().rev().collect());
        return Ok(());
    };
    let perm = axes(&perm, c, dims.len())?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..dims.len()) {
        return impossible(format!("{perm:?} is no permutation of {} axes", dims.len()));
    }
    let out: Vec<SymExpr> = perm.iter().map(|&a| dims[a].clone()).collect();
    let moved = c.items(0).and_then(|items| permuted(&items, &dims, &perm));
    c.set_dims(0, dtype, out);
    if let Some(items) = moved {
        c.fill(0, items);
    }
    Ok(())
}

/// Contents with the axes in another order.
fn permuted(items: &[SymExpr], dims: &[SymExpr], perm: &[usize]) -> Option<Vec<SymExpr>> {
    // With at least one element, the sizes are as small as the contents.
    if items.is_empty() {
        return None;
    }
    let sizes: Option<Vec<usize>> = dims.iter().map(as_size).collect();
    let sizes = sizes?;
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i];
    }
    (0..items.len())
        .map(|mut n| {
            let mut from = 0;
            for &axis in perm.iter().rev() {
                from += n % sizes[axis] * strides[axis];
                n /= sizes[axis];
            }
            items.get(from).cloned()
        })
        .collect()
}

/// A dimension as a number that can index.
pub(super) fn as_size(dim: &SymExpr) -> Option<usize> {
    usize::try_from(constant(dim)?).ok()
}

fn squeeze(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let Some(given) = list(c, 1, "axes") else {
        // Which axes go is not known, but how many.
        if let (Some(n), Some(rank)) = (c.length(1), c.rank(0)) {
            let dims = c.unknowns(rank.saturating_sub(n));
            c.set_dims(0, dtype, dims);
        }
        return Err(Refusal::NoAnswer);
    };
    let dims = c.dims(0)?;
    let removed = match given {
        Some(given) => axes(&given, c, dims.len())?,
        None if dims.iter().all(|d| constant(d).is_some()) => {
            (0..dims.len()).filter(|&i| dims[i] == num(1)).collect()
        }
        // Any dimension may turn out to be 1.
        None => return Err(Refusal::NoAnswer),
    };
    for &axis in &removed {
        if constant(&dims[axis]).is_some_and(|n| n != 1) {
            return impossible(format!("axis {axis} is not 1"));
        }
    }
    let kept = (0..dims.len()).filter(|i| !removed.contains(i));
    let dims = kept.map(|i| dims[i].clone()).collect();
    c.set_dims(0, dtype, dims);
    c.keep_items();
    Ok(())
}

fn unsqueeze(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let Some(given) = list(c, 1, "axes") else {
        if let (Some(n), Some(rank)) = (c.length(1), c.rank(0)) {
            let dims = c.unknowns(rank.saturating_add(n));
            c.set_dims(0, dtype, dims);
        }
        return Err(Refusal::NoAnswer);
    };
    let dims = c.dims(0)?;
    let given = given.unwrap_or_default();
    let rank = dims.len() + given.len();
    if rank > fact::MAX_RANK {
        return Err(Refusal::NoAnswer);
    }
    let mut added = axes(&given, c, rank)?;
    added.sort_unstable();
    if added.windows(2).any(|w| w[0] == w[1]) {
        return impossible("an axis is added twice");
    }
    let mut dims = dims;
    for axis in added {
        dims.insert(axis, num(1));
    }
    c.set_dims(0, dtype, dims);
    c.keep_items();
    Ok(())
}

fn concat(c: &mut Context<'_>) -> Answer {
    let dtype = (0..c.types.len())
        .map(|i| c.dtype(i))
        .find(|&d| d != DType::Unknown)
        .unwrap_or(DType::Unknown);
    c.set_dtype(0, dtype);
    let known: Vec<Vec<SymExpr>> = (0..c.tensors.len())
        .filter_map(|i| c.dims(i).ok())
        .collect();
    let Some(first) = known.first() else {
        return Err(Refusal::NoAnswer);
    };
    let rank = first.len();
    let axis = c.axis(c.int("axis", 1), rank)?;
    if let Some(other) = known.iter().find(|d| d.len() != rank) {
        return impossible(format!("inputs have ranks {rank} and {}", other.len()));
    }
    // Along the other axes, what one input knows holds for all.
    let mut dims = first.clone();
    for other in &known[1..] {
        for i in (0..rank).filter(|&i| i != axis) {
            dims[i] = same_dim(&dims[i], &other[i])?;
        }
    }
    if known.len() < c.tensors.len() {
        dims[axis] = c.unknown();
        c.set_dims(0, dtype, dims);
        return Ok(());
    }
    let rule = ops::Concat {
        axis: i32::try_from(axis).unwrap_or(i32::MAX),
    };
    let parts = with_unknown_contents(c);
    let joined = c.ask_with(&rule, Numbers::Kept, &parts)?.into_iter().next();
    let tensor = match joined {
        Some(joined) if joined.values().is_some() => joined,
        Some(joined) => {
            if let Some(size) = joined.size(axis) {
                dims[axis] = size;
            }
            SymTensor::from_shape(dims)
        }
        None => return Err(Refusal::NoAnswer),
    };
    c.set(0, dtype, tensor);
    Ok(())
}

/// The inputs, with symbols as contents of short vectors of integers whose contents are not
/// known, if others have contents: what is known of a shape in part is kept.
fn with_unknown_contents(c: &mut Context<'_>) -> Vec<Option<SymTensor>> {
    let mut parts = c.tensors.clone();
    let is_int = matches!(c.dtype(0), DType::I64 | DType::I32);
    if !is_int || (0..parts.len()).all(|i| c.values(i).is_none()) {
        return parts;
    }
    for (i, part) in parts.iter_mut().enumerate() {
        if c.values(i).is_some() {
            continue;
        }
        if let Some(n) = c.length(i).filter(|&n| n <= fact::MAX_RANK) {
            let items = (0..n).map(|_| c.symbols.generate()).collect();
            *part = Some(SymTensor::from_vec(items));
        }
    }
    parts
}

fn split(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let n = c.outputs.len();
    for i in 0..n {
        c.set_dtype(i, dtype);
    }
    let dims = c.dims(0)?;
    let axis = c.axis(c.int("axis", 0), dims.len())?;
    let whole = dims[axis].clone();
    let sizes: Vec<SymExpr> = if c.has(1) && c.values(1).is_none() {
        c.unknowns(n)
    } else if let Some(sizes) = c.values(1) {
        sizes.to_vec()
    } else if let Some(sizes) = c.int_list("split") {
        sizes.into_iter().map(num).collect()
    } else {
        let parts = c.count("num_outputs").unwrap_or(n).max(1);
        // All parts are equal but the last, which is smaller when it does not come out even.
        let each = whole.div_ceil(&count(parts));
        let rest = whole.clone() - each.clone() * count(parts - 1);
        (0..parts)
            .map(|i| {
                if i + 1 == parts {
                    rest.clone()
                } else {
                    each.clone()
                }
            })
            .take(n)
            .collect()
    };
    if sizes.len() < n {
        return impossible(format!("{} sizes for {n} outputs", sizes.len()));
    }
    let total = sizes.iter().map(constant).sum::<Option<i128>>();
    if let (Some(total), Some(whole)) = (total, constant(&whole))
        && sizes.len() == n
        && total != whole
    {
        return impossible(format!(
            "parts of {total} in all, but axis {axis} is {whole}"
        ));
    }
    for (i, size) in sizes.into_iter().enumerate().take(n) {
        let mut dims = dims.clone();
        dims[axis] = size;
        c.set_dims(i, dtype, dims);
    }
    Ok(())
}

fn expand(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    if let Some(target) = c.values(1) {
        let target = target.to_vec();
        let dims = broadcast(&c.dims(0)?, &target)?;
        c.set_dims(0, dtype, dims);
        return Ok(());
    }
    // The rank is known from the length of the target shape; a dimension above 1 stays, and so
    // do those that the target does not reach.
    let (Some(n), Ok(dims)) = (c.length(1), c.dims(0)) else {
        return Err(Refusal::NoAnswer);
    };
    let n = n.min(fact::MAX_RANK + 1);
    let rank = dims.len().max(n);
    let mut out = c.unknowns(rank);
    let extra = rank - dims.len();
    for (i, dim) in dims.into_iter().enumerate() {
        let is_reached = i + extra + n >= rank;
        if !is_reached || constant(&dim).is_some_and(|n| n > 1) {
            out[i + extra] = dim;
        }
    }
    c.set_dims(0, dtype, out);
    Ok(())
}

fn tile(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let dims = c.dims(0)?;
    // Version 1 has a number of tiles and an axis, each one element.
    if c.has(2) {
        let dims = c.unknowns(dims.len());
        c.set_dims(0, dtype, dims);
        return Ok(());
    }
    if c.length(1).is_some_and(|n| n != dims.len()) {
        return impossible("the number of repeats is not the rank");
    }
    c.first(&ops::Tile, Numbers::Multiplied, dtype)
}

fn pad(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let data = c.tensor(0)?.clone();
    let pads = match c.tensors.get(1) {
        Some(Some(pads)) => pads.clone(),
        _ => match c.int_list("pads").or_else(|| c.int_list("paddings")) {
            Some(pads) => vector(&pads),
            None => return impossible("pads are missing"),
        },
    };
    let axis_list = c.tensors.get(3).cloned().flatten();
    if let Some(rank) = data.ndim()
        && let Some(n) = pads.values().map(<[SymExpr]>::len)
    {
        let axes = match &axis_list {
            Some(axes) => axes.values().map(<[SymExpr]>::len),
            None => Some(rank),
        };
        if axes.is_some_and(|axes| n != 2 * axes) {
            return impossible(format!("{n} pads for rank {rank}"));
        }
    }
    let inputs = [Some(data), Some(pads), None, axis_list];
    let outputs = c.ask_with(&ops::Pad, Numbers::Kept, &inputs)?;
    if let Some(tensor) = outputs.into_iter().next() {
        c.set(0, dtype, tensor);
    }
    Ok(())
}

fn depth_to_space(c: &mut Context<'_>) -> Answer {
    let [n, channels, h, w] = c.dims_of_rank(0)?;
    let block = num(c.int("blocksize", 1).max(1));
    let dims = vec![
        n,
        channels / (block.clone() * block.clone()),
        h * block.clone(),
        w * block,
    ];
    c.set_dims(0, c.dtype(0), dims);
    Ok(())
}

fn space_to_depth(c: &mut Context<'_>) -> Answer {
    let [n, channels, h, w] = c.dims_of_rank(0)?;
    let block = num(c.int("blocksize", 1).max(1));
    let dims = vec![
        n,
        channels * (block.clone() * block.clone()),
        h / block.clone(),
        w / block,
    ];
    c.set_dims(0, c.dtype(0), dims);
    Ok(())
}

fn center_crop_pad(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let mut dims = c.dims(0)?;
    let chosen = match c.int_list("axes") {
        Some(list) => axes(&list, c, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    let sizes = match c.values(1) {
        Some(sizes) => sizes.to_vec(),
        None => c.unknowns(chosen.len()),
    };
    for (&axis, size) in chosen.iter().zip(sizes) {
        dims[axis] = size;
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn col2im(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    let [n, channels, _] = c.dims_of_rank(0)?;
    let block = match c.values(2) {
        Some(block) => product(block),
        None => c.unknown(),
    };
    let mut dims = vec![n, channels / block];
    match (c.values(1), c.length(1)) {
        (Some(image), _) => dims.extend_from_slice(image),
        (None, Some(n)) => dims.extend(c.unknowns(n)),
        (None, None) => return Err(Refusal::NoAnswer),
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}
