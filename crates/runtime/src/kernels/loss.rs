//! Losses, and dropout, which training needs.
//! Source: the ONNX operator specification.

use tenure_graph::DType;

use super::element::{Number, with_type};
use super::layout::integer_type;
use super::strided::around;
use super::{Call, Made, Make, Site, kernel, kernel_over};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("NegativeLogLikelihoodLoss", |s| loss(s, false)),
    ("SoftmaxCrossEntropyLoss", |s| loss(s, true)),
    ("Dropout", dropout),
];

/// How the losses of all places become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    Each,
    Sum,
    Mean,
}

/// The negative logarithm of the probability of each place's class.
fn loss(site: &Site<'_>, from_scores: bool) -> Made {
    let (x, labels) = (site.input(0)?, site.input(1)?);
    let [images, classes, area] = around(&x.dims, 1);
    let together = match site.text("reduction", "mean") {
        "none" => Together::Each,
        "sum" => Together::Sum,
        "mean" => Together::Mean,
        other => return Err(format!("attribute \"reduction\" is {other:?}")),
    };
    let ignored = site.attrs().int("ignore_index");
    let dtype = integer_type(site, 1)?;
    if labels.elements() != images * area {
        return Err("there is not a label for each place".to_owned());
    }
    if site.optional(2)?.is_some_and(|w| w.elements() != classes) {
        return Err("there is not a weight for each class".to_owned());
    }
    with_type!(x.dtype, floats, T => kernel(move |call| {
        let x = call.read::<T>(0);
        let weights = call.read::<T>(2);
        let labels = label_of(call, dtype);
        let (mut sum, mut total) = (0.0, 0.0);
        for n in 0..images {
            for i in 0..area {
                let place = |c: usize| (n * classes + c) * area + i;
                let mut shift = 0.0;
                if from_scores {
                    let greatest = (0..classes).fold(T::LEAST, |m, c| m.max(x[place(c)])).f64();
                    let all = (0..classes).map(|c| (x[place(c)].f64() - greatest).exp());
                    shift = greatest + all.sum::<f64>().ln();
                    let logs = call.write::<T>(1);
                    if !logs.is_empty() {
                        for c in 0..classes {
                            logs[place(c)] = T::of(x[place(c)].f64() - shift);
                        }
                    }
                }
                let label = labels(n * area + i);
                let (mut value, mut weight) = (0.0, 0.0);
                if Some(label) != ignored {
                    let class = usize::try_from(label).ok().filter(|&c| c < classes);
                    let class = class.ok_or_else(|| format!("there is no class {label}"))?;
                    weight = weights.get(class).map_or(1.0, |w| w.f64());
                    value = -(x[place(class)].f64() - shift) * weight;
                }
                sum += value;
                total += weight;
                if together == Together::Each {
                    call.write::<T>(0)[n * area + i] = T::of(value);
                }
            }
        }
        match together {
            Together::Each => {}
            Together::Sum => call.write::<T>(0).fill(T::of(sum)),
            Together::Mean => call.write::<T>(0).fill(T::of(sum / total)),
        }
        Ok(())
    }))
}

/// Reads labels by place.
fn label_of<'a>(call: &Call<'a>, dtype: DType) -> impl Fn(usize) -> i64 + 'a {
    let (long, short) = (call.read::<i64>(1), call.read::<i32>(1));
    move |i| match dtype {
        DType::I32 => i64::from(short[i]),
        _ => long[i],
    }
}

/// Keeps everything: what is left out in training is random, and refused.
fn dropout(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    let item = x.item()?;
    if site.output(0)?.elements() * item != x.elements() * item {
        return Err("input and output have other numbers of elements".to_owned());
    }
    let masks = site.has_output(1).then(|| site.output(1)).transpose()?;
    if masks.is_some_and(|m| m.dtype != DType::Bool) {
        return Err("a mask of numbers is not supported".to_owned());
    }
    with_type!(x.dtype, floats, T => kernel_over(&[0], move |call| {
        let training = call.read::<u8>(2).first().is_some_and(|&t| t != 0);
        let ratio = match call.read::<T>(1).first() {
            Some(ratio) => ratio.f64(),
            None => 0.5,
        };
        if training && ratio != 0.0 {
            return Err("dropout in training is random, which is not supported".to_owned());
        }
        call.settle(0, 0);
        call.write::<u8>(1).fill(1);
        Ok(())
    }))
}
