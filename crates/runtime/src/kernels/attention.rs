//! Attention: values, weighted by how well queries fit keys.
//! Source: the ONNX operator specification, `Attention` and `RotaryEmbedding`.

use tenure_graph::DType;

use super::element::{Elements, Number, with_type};
use super::matmul::{Finish, Matrix, Product};
use super::{Call, Dims, Made, Make, Site, Type, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] =
    &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// How the heads of a tensor lie: batch, heads, rows, width of a row.
#[derive(Clone, Copy, Debug)]
struct Heads {
    batch: usize,
    heads: usize,
    rows: usize,
    width: usize,
    /// The heads lie side by side in each row.
    flat: bool,
}

impl Heads {
    /// A tensor of four axes, or one of three that attribute `count` cuts into heads.
    fn new(ty: &Type, count: usize) -> Result<Self, String> {
        match ty.dims[..] {
            [batch, heads, rows, width] => Ok(Heads {
                batch,
                heads,
                rows,
                width,
                flat: false,
            }),
            [batch, rows, hidden] if count > 0 && hidden % count == 0 => Ok(Heads {
                batch,
                heads: count,
                rows,
                width: hidden / count,
                flat: true,
            }),
            _ => Err(format!("{:?} are not {count} heads", ty.dims)),
        }
    }

    /// Where a row begins.
    fn at(&self, b: usize, h: usize, row: usize) -> usize {
        let place = if self.flat {
            (b * self.rows + row) * self.heads + h
        } else {
            (b * self.heads + h) * self.rows + row
        };
        place * self.width
    }
}

/// What the attributes say.
#[derive(Clone, Debug)]
struct Rules {
    scale: f64,
    causal: bool,
    softcap: f64,
    /// Rows before and behind that are seen; `None` for all.
    window: [Option<i64>; 2],
    /// What output 3 shows: 0 the product, 1 after the cap, 2 with the mask, 3 the weights.
    shown: i64,
}

fn attention(site: &Site<'_>) -> Made {
    let count = |name: &str| usize::try_from(site.int(name, 0)).unwrap_or(0);
    let q = Heads::new(&site.input(0)?, count("q_num_heads"))?;
    let k = Heads::new(&site.input(1)?, count("kv_num_heads"))?;
    let v = Heads::new(&site.input(2)?, count("kv_num_heads"))?;
    let past = match site.optional(4)? {
        Some(ty) => Some(Heads::new(&ty, 0)?),
        None => None,
    };
    let past_v = match site.optional(5)? {
        Some(ty) => Some(Heads::new(&ty, 0)?),
        None => None,
    };
    let fits = k.heads > 0
        && q.heads % k.heads == 0
        && (k.batch, v.batch) == (q.batch, q.batch)
        && (v.heads, v.rows, k.width) == (k.heads, k.rows, q.width)
        && past.is_none_or(|p| (p.batch, p.heads, p.width) == (k.batch, k.heads, k.width))
        && past_v.map(|p| (p.batch, p.heads, p.rows, p.width))
            == past.map(|p| (v.batch, v.heads, p.rows, v.width));
    if !fits {
        return Err("queries, keys, values and their past do not fit each other".to_owned());
    }
    let side = |name: &str| Some(site.int(name, -1)).filter(|&n| n >= 0);
    #[expect(clippy::cast_precision_loss, reason = "a width")]
    let rules = Rules {
        scale: site.float("scale", 1.0 / (q.width as f64).sqrt()),
        causal: site.flag("is_causal", false),
        softcap: site.float("softcap", 0.0),
        window: [side("left_window_size"), side("right_window_size")],
        shown: site.int("qk_matmul_output_mode", 0),
    };
    let mask = site.optional(3)?;
    if let Some(mask) = &mask {
        Elements::check(mask.dtype)?;
        if mask.rank() == 0 || mask.rank() > 4 {
            return Err("the mask has not one to four axes".to_owned());
        }
    }
    let dtypes = [0, 1, 2].map(|i| site.input(i).map(|t| t.dtype));
    let dtype = dtypes[0].clone()?;
    for other in dtypes {
        if other? != dtype {
            return Err("queries, keys and values are of several types".to_owned());
        }
    }
    let plan = Plan {
        q,
        k,
        v,
        past: past.map_or(0, |p| p.rows),
        rules,
        mask,
    };
    if dtype == DType::F64 {
        return attend::<f64, f64>(plan);
    }
    with_type!(dtype, floats, T => attend::<T, f32>(plan))
}

/// One layer of attention.
struct Plan {
    q: Heads,
    k: Heads,
    v: Heads,
    /// Rows of keys and values before the new ones.
    past: usize,
    rules: Rules,
    mask: Option<Type>,
}

impl Plan {
    /// What is added to the scores of a row of queries: the mask, and minus infinity for what may
    /// not be seen.
    fn bias<W: Number>(&self, call: &Call<'_>, b: usize, h: usize, row: usize, to: &mut [W]) {
        let all = to.len();
        let valid = call.read::<i64>(6).get(b).copied();
        let new = i64::try_from(self.q.rows).unwrap_or(i64::MAX);
        let past = i64::try_from(self.past).unwrap_or(i64::MAX);
        let offset = match valid {
            Some(valid) if self.past == 0 => valid - new,
            _ => past,
        };
        let mask = self.mask.as_ref().map(|ty| {
            let elements = Elements::read(call, 3, ty.dtype);
            (
                elements,
                self.mask_row(ty, b, h, row),
                ty.dtype == DType::Bool,
            )
        });
        let width = self
            .mask
            .as_ref()
            .and_then(|t| t.dims.last().copied())
            .unwrap_or(all);
        for (j, to) in to.iter_mut().enumerate() {
            let past_by = i64::try_from(row).unwrap_or(i64::MAX) + offset
                - i64::try_from(j).unwrap_or(i64::MAX);
            let [left, right] = self.rules.window;
            let seen = (!self.rules.causal || past_by >= 0)
                && left.is_none_or(|n| past_by <= n)
                && right.is_none_or(|n| -past_by <= n)
                && valid.is_none_or(|n| i64::try_from(j).is_ok_and(|j| j < n));
            *to = match &mask {
                _ if !seen => W::LEAST,
                None => W::default(),
                Some(_) if j >= width => W::LEAST,
                Some((mask, from, true)) => {
                    if mask.f64(from + j) != 0.0 {
                        W::default()
                    } else {
                        W::LEAST
                    }
                }
                Some((mask, from, false)) => W::of(mask.f64(from + j)),
            };
        }
    }

    /// Where the mask's row for a row of queries begins.
    fn mask_row(&self, ty: &Type, b: usize, h: usize, row: usize) -> usize {
        let mut dims: Dims = std::iter::repeat_n(1, 4 - ty.rank()).collect();
        dims.extend(ty.dims.iter().copied());
        let pick = |axis: usize, i: usize| if dims[axis] == 1 { 0 } else { i };
        ((pick(0, b) * dims[1] + pick(1, h)) * dims[2] + pick(2, row)) * dims[3]
    }
}

fn attend<T: Number, W: Product>(plan: Plan) -> Made {
    let (q, k, v) = (plan.q, plan.k, plan.v);
    let all = plan.past + k.rows;
    let zeros = |n: usize| vec![W::default(); n];
    let (mut queries, mut keys) = (zeros(q.rows * q.width), zeros(all * k.width));
    let (mut values, mut scores) = (zeros(all * v.width), zeros(q.rows * all));
    let (mut out, mut bias) = (zeros(q.rows * v.width), zeros(all));
    let mut masked = vec![false; q.rows];
    let mut room = W::Room::default();
    let past = Heads {
        rows: plan.past,
        flat: false,
        ..k
    };
    let present = Heads {
        rows: all,
        flat: false,
        ..k
    };
    let result = Heads {
        width: v.width,
        ..q
    };
    kernel(move |call| {
        for b in 0..q.batch {
            for h in 0..q.heads {
                let group = h / (q.heads / k.heads);
                let x = call.read::<T>(0);
                for (row, to) in queries.chunks_exact_mut(q.width.max(1)).enumerate() {
                    widen(&x[q.at(b, h, row)..], to);
                }
                for (new, old, heads, to) in [(1, 4, k, &mut keys), (2, 5, v, &mut values)] {
                    let old_heads = Heads {
                        width: heads.width,
                        ..past
                    };
                    let (x, before) = (call.read::<T>(new), call.read::<T>(old));
                    for (row, to) in to.chunks_exact_mut(heads.width.max(1)).enumerate() {
                        match row.checked_sub(past.rows) {
                            Some(row) => widen(&x[heads.at(b, group, row)..], to),
                            None => widen(&before[old_heads.at(b, group, row)..], to),
                        }
                    }
                }
                if h % (q.heads / k.heads) == 0 {
                    for (output, heads, from) in [(1, k, &keys), (2, v, &values)] {
                        let heads = Heads {
                            width: heads.width,
                            ..present
                        };
                        let to = call.write::<T>(output);
                        if to.is_empty() {
                            continue;
                        }
                        for (row, from) in from.chunks_exact(heads.width.max(1)).enumerate() {
                            let at = heads.at(b, group, row);
                            narrow(from, &mut to[at..at + heads.width]);
                        }
                    }
                }
                if all == 0 || q.rows == 0 {
                    continue;
                }
                let left = (&queries[..], Matrix::new(q.rows, q.width, false));
                let right = (&keys[..], Matrix::new(k.width, all, true));
                W::product(&mut room, &mut scores, left, right, Finish::default())?;
                for score in &mut scores {
                    *score = W::of(score.f64() * plan.rules.scale);
                }
                let shown = (b * q.heads + h) * q.rows * all;
                let show = |call: &mut Call<'_>, stage: i64, scores: &[W]| {
                    let to = call.write::<T>(3);
                    if plan.rules.shown == stage && !to.is_empty() {
                        narrow(scores, &mut to[shown..shown + scores.len()]);
                    }
                };
                show(call, 0, &scores);
                let cap = plan.rules.softcap;
                if cap > 0.0 {
                    for score in &mut scores {
                        *score = W::of((score.f64() / cap).tanh() * cap);
                    }
                }
                show(call, 1, &scores);
                for (row, scores) in scores.chunks_exact_mut(all).enumerate() {
                    plan.bias(call, b, h, row, &mut bias);
                    masked[row] = bias.iter().all(|&b| b == W::LEAST);
                    for (score, &bias) in scores.iter_mut().zip(&bias) {
                        *score = score.add(bias);
                    }
                }
                show(call, 2, &scores);
                for (scores, &masked) in scores.chunks_exact_mut(all).zip(&masked) {
                    soften(scores, masked);
                }
                show(call, 3, &scores);
                let left = (&scores[..], Matrix::new(q.rows, all, false));
                let right = (&values[..], Matrix::new(all, v.width, false));
                if !out.is_empty() {
                    W::product(&mut room, &mut out, left, right, Finish::default())?;
                }
                let to = call.write::<T>(0);
                for (row, from) in out.chunks_exact(v.width.max(1)).enumerate() {
                    let at = result.at(b, h, row);
                    narrow(from, &mut to[at..at + v.width]);
                }
            }
        }
        Ok(())
    })
}

/// Weights that sum up to 1; none where nothing may be seen.
fn soften<W: Number>(scores: &mut [W], masked: bool) {
    let greatest = scores.iter().fold(W::LEAST, |m, &s| m.max(s)).f64();
    if masked || greatest == f64::NEG_INFINITY {
        scores.fill(W::default());
        return;
    }
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        let weight = (score.f64() - greatest).exp();
        sum += weight;
        *score = W::of(weight);
    }
    for score in scores {
        *score = W::of(score.f64() / sum);
    }
}

fn widen<T: Number, W: Number>(from: &[T], to: &mut [W]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = W::of(from.f64());
    }
}

fn narrow<T: Number, W: Number>(from: &[W], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::of(from.f64());
    }
}

/// Turns pairs of elements of each row by an angle of its place.
fn rotary(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let count = usize::try_from(site.int("num_heads", 0)).unwrap_or(0);
    let heads = Heads::new(&x, count)?;
    let width = usize::try_from(site.int("rotary_embedding_dim", 0)).unwrap_or(0);
    let width = if width == 0 {
        heads.width
    } else {
        width.min(heads.width)
    };
    let half = width / 2;
    let interleaved = site.flag("interleaved", false);
    let cache = site.input(1)?;
    let places = site.optional(3)?;
    let rows = if places.is_some() {
        cache.dims.first().copied().unwrap_or(0)
    } else {
        heads.batch * heads.rows
    };
    if cache.elements() != rows * half || product(&site.input(2)?.dims) != rows * half {
        return Err("there is not an angle for each pair".to_owned());
    }
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let (x, cos, sin) = (call.read::<T>(0), call.read::<T>(1), call.read::<T>(2));
        let ids = call.read::<i64>(3);
        let y = call.write::<T>(0);
        y.copy_from_slice(x);
        for b in 0..heads.batch {
            for h in 0..heads.heads {
                for row in 0..heads.rows {
                    let place = match ids.get(b * heads.rows + row) {
                        Some(&id) => usize::try_from(id).ok().filter(|&id| id < rows),
                        None => Some(b * heads.rows + row),
                    };
                    let place = place.ok_or("a place has no angles")?;
                    let at = heads.at(b, h, row);
                    for i in 0..half {
                        let (c, s) = (cos[place * half + i].f64(), sin[place * half + i].f64());
                        let (i, j) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                        let (u, v) = (x[at + i].f64(), x[at + j].f64());
                        y[at + i] = T::of(c * u - s * v);
                        y[at + j] = T::of(s * u + c * v);
                    }
                }
            }
        }
        Ok(())
    }))
}
