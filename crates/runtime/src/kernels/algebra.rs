//! Sums of products by letters, and determinants. Source: the ONNX operator specification, `Einsum`
//! and `Det`.

use super::element::{Number, with_type};
use super::strided::{Loop, Strides, at, contiguous};
use super::{Dims, Made, Make, Site, Type, kernel};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("Einsum", einsum), ("Det", determinant)];

/// Letters of the axes that `...` stands for: no letters that anybody writes.
const HIDDEN: u8 = 128;

/// The letters of one tensor, a letter an axis.
fn letters(text: &str, rank: usize) -> Result<Vec<u8>, String> {
    let (before, after) = text.split_once("...").unwrap_or((text, ""));
    let named = before.len() + after.len();
    let hidden = match text.contains("...") {
        true => rank.checked_sub(named),
        false => (named == rank).then_some(0),
    };
    let hidden = hidden.filter(|&n| n < 64);
    let hidden = hidden.ok_or_else(|| format!("{text:?} does not name {rank} axes"))?;
    if !before
        .bytes()
        .chain(after.bytes())
        .all(|c| c.is_ascii_alphabetic())
    {
        return Err(format!("{text:?} are no letters"));
    }
    // The hidden axes are counted from the last one, as axes that are repeated to fit are.
    let hidden = (0..hidden)
        .rev()
        .filter_map(|n| Some(HIDDEN + u8::try_from(n).ok()?));
    Ok(before.bytes().chain(hidden).chain(after.bytes()).collect())
}

/// The letters of the result where the equation does not say: those that stand once, in order.
fn implied(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut all: Vec<u8> = inputs.concat();
    all.sort_unstable();
    let once = |c: &u8| *c >= HIDDEN || all.iter().filter(|d| *d == c).count() == 1;
    let mut kept: Vec<u8> = all.iter().copied().filter(once).collect();
    kept.dedup();
    // What is hidden comes first, from the front.
    kept.sort_by_key(|&c| {
        if c >= HIDDEN {
            (0, u8::MAX - c)
        } else {
            (1, c)
        }
    });
    kept
}

fn einsum(site: &Site<'_>) -> Made {
    let equation: String = site.text("equation", "").split_whitespace().collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&*equation, None),
    };
    let types: Vec<Type> = (0..site.inputs())
        .map(|i| site.input(i))
        .collect::<Result<_, _>>()?;
    let texts: Vec<&str> = left.split(',').collect();
    let y = site.output(0)?;
    if texts.len() != types.len() || types.iter().any(|t| t.dtype != y.dtype) {
        return Err("the equation has other tensors, or they are of several types".to_owned());
    }
    let pairs = texts.iter().zip(&types);
    let inputs = pairs.map(|(text, ty)| letters(text, ty.rank()));
    let inputs: Vec<Vec<u8>> = inputs.collect::<Result<_, _>>()?;
    let kept = match right {
        Some(text) => letters(text, y.rank())?,
        None => implied(&inputs),
    };
    let twice = |(k, c): (usize, &u8)| kept[..k].contains(c);
    if kept.iter().enumerate().any(twice) {
        return Err(format!("the result of {equation:?} has an axis twice"));
    }
    let mut sizes = [1usize; 256];
    for (letters, ty) in inputs.iter().zip(&types) {
        for (&c, &dim) in letters.iter().zip(&ty.dims) {
            let size = &mut sizes[usize::from(c)];
            if *size != 1 && dim != 1 && *size != dim {
                return Err(format!("an axis is {size} and {dim} long"));
            }
            *size = if *size == 1 { dim } else { *size };
        }
    }
    let dims: Dims = kept.iter().map(|&c| sizes[usize::from(c)]).collect();
    if dims != y.dims {
        return Err(format!(
            "the result has dimensions {dims:?}, and not {:?}",
            y.dims
        ));
    }
    let mut summed: Vec<u8> = inputs.concat();
    summed.sort_unstable();
    summed.dedup();
    summed.retain(|c| !kept.contains(c));
    let inner: Dims = summed.iter().map(|&c| sizes[usize::from(c)]).collect();
    // A letter that stands twice in a tensor steps along its diagonal.
    let step = |k: usize, c: u8| -> isize {
        let own = contiguous(&types[k].dims);
        let axes = inputs[k].iter().zip(&types[k].dims).zip(&own);
        axes.filter(|((l, d), _)| **l == c && **d != 1)
            .map(|(_, s)| *s)
            .sum()
    };
    let loops: Vec<[Loop<1>; 2]> = (0..types.len())
        .map(|k| {
            let steps = |of: &[u8]| -> Strides { of.iter().map(|&c| step(k, c)).collect() };
            [
                Loop::new(&dims, [&steps(&kept)]),
                Loop::new(&inner, [&steps(&summed)]),
            ]
        })
        .collect();
    let places = |which: usize| -> Vec<Vec<usize>> {
        let each = |l: &[Loop<1>; 2]| {
            let mut list = Vec::new();
            l[which].each(|[p]| list.push(at(p)));
            list
        };
        loops.iter().map(each).collect()
    };
    let (outer, inner) = (places(0), places(1));
    let terms = 0..inner.first().map_or(0, Vec::len);
    with_type!(y.dtype, numbers, T => kernel(move |call| {
        for i in 0..y.elements() {
            let mut sum = T::default().wide();
            for j in terms.clone() {
                let mut term = T::ONE.wide();
                for (k, (outer, inner)) in outer.iter().zip(&inner).enumerate() {
                    term = term.mul(call.read::<T>(k)[outer[i] + inner[j]].wide());
                }
                sum = sum.add(term);
            }
            call.write::<T>(0)[i] = T::narrow(sum);
        }
        Ok(())
    }))
}

/// By elimination with the greatest element of each column.
fn determinant(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let &[.., rows, cols] = &x.dims[..] else {
        return Err("it needs a matrix".to_owned());
    };
    if rows != cols || site.output(0)?.elements().checked_mul(rows * cols) != Some(x.elements()) {
        return Err("it needs square matrices".to_owned());
    }
    let mut m = vec![0.0; rows * rows];
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        for (y, x) in call.write::<T>(0).iter_mut().zip(x.chunks_exact((rows * rows).max(1))) {
            for (m, x) in m.iter_mut().zip(x) {
                *m = x.f64();
            }
            *y = T::of(eliminate(&mut m, rows));
        }
        Ok(())
    }))
}

fn eliminate(m: &mut [f64], n: usize) -> f64 {
    let mut det = 1.0;
    for c in 0..n {
        let size = |r: &usize| m[r * n + c].abs();
        let best = (c..n)
            .max_by(|a, b| size(a).total_cmp(&size(b)))
            .unwrap_or(c);
        if best != c {
            for k in 0..n {
                m.swap(best * n + k, c * n + k);
            }
            det = -det;
        }
        let pivot = m[c * n + c];
        if pivot == 0.0 {
            return 0.0;
        }
        det *= pivot;
        for r in c + 1..n {
            let factor = m[r * n + c] / pivot;
            for k in c..n {
                m[r * n + k] -= factor * m[c * n + k];
            }
        }
    }
    det
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_axes() {
        assert_eq!(
            letters("i...j", 4),
            Ok(vec![b'i', HIDDEN + 1, HIDDEN, b'j'])
        );
        assert!(letters("ij", 3).is_err());
        assert!(letters("i1", 2).is_err());
        assert!(letters("ij...", 1).is_err());
        let inputs = [vec![b'b', b'a'], vec![HIDDEN, b'b']];
        assert_eq!(implied(&inputs), [HIDDEN, b'a']);
    }

    #[test]
    fn determinants_by_elimination() {
        assert_eq!(eliminate(&mut [0.0, 2.0, 3.0, 4.0], 2), -6.0);
        assert_eq!(eliminate(&mut [1.0, 2.0, 2.0, 4.0], 2), 0.0);
    }
}
