//! Conversions between types of elements. Source: the ONNX operator specification, `Cast`.

use half::{bf16, f16};
use tenure_graph::DType;

use super::element::{Elements, Number, with_type};
use super::small::Writer;
use super::unary::map;
use super::{Made, Make, Site, Type, kernel, small};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("Cast", cast), ("CastLike", cast)];

/// The pairs that models have in number are loops of their own, and may be done in place.
fn cast(site: &Site<'_>) -> Made {
    let (from, to) = (site.input(0)?, site.output(0)?);
    match (from.dtype, to.dtype) {
        (DType::F32, DType::F16) => map(site, f16::from_f32),
        (DType::F16, DType::F32) => map(site, f16::to_f32),
        (DType::F32, DType::BF16) => map(site, bf16::from_f32),
        (DType::BF16, DType::F32) => map(site, bf16::to_f32),
        (DType::I64, DType::I32) => map(site, convert::<i64, i32>),
        (DType::I32, DType::I64) => map(site, convert::<i32, i64>),
        (DType::I64, DType::F32) => map(site, convert::<i64, f32>),
        (DType::F32, DType::I64) => map(site, convert::<f32, i64>),
        (DType::I32, DType::F32) => map(site, convert::<i32, f32>),
        (DType::F32, DType::I32) => map(site, convert::<f32, i32>),
        (DType::U8 | DType::Bool, DType::F32) => map(site, convert::<u8, f32>),
        (DType::Bool, DType::I64) => map(site, convert::<u8, i64>),
        _ => any(site, &from, &to),
    }
}

/// Whole numbers keep their low bits; floats are cut off.
#[inline(always)]
fn convert<T: Number, U: Number>(x: T) -> U {
    if T::IS_FLOAT || U::IS_FLOAT {
        U::of(x.f64())
    } else {
        U::of_i64(x.i64())
    }
}

/// Any type to any other.
fn any(site: &Site<'_>, from: &Type, to: &Type) -> Made {
    Elements::check(from.dtype)?;
    if from.elements() != to.elements() {
        return Err("input and output have other numbers of elements".to_owned());
    }
    let dtype = from.dtype;
    if to.dtype == DType::Bool {
        return kernel(move |call| {
            let x = Elements::read(call, 0, dtype);
            for (i, y) in call.write::<u8>(0).iter_mut().enumerate() {
                *y = u8::from(x.f64(i) != 0.0);
            }
            Ok(())
        });
    }
    if small::is_small(to.dtype) {
        let writer = Writer {
            dtype: to.dtype,
            saturate: site.flag("saturate", true),
            round: match site.text("round_mode", "up") {
                "up" => 1,
                "down" => -1,
                _ => 0,
            },
            clamp: false,
        };
        let elements = to.elements();
        return kernel(move |call| {
            let x = Elements::read(call, 0, dtype);
            let y = call.write::<u8>(0);
            for i in 0..elements {
                writer.set(y, i, x.f64(i));
            }
            Ok(())
        });
    }
    with_type!(to.dtype, numbers, U => kernel(move |call| {
        let x = Elements::read(call, 0, dtype);
        let by_float = x.is_float() || U::IS_FLOAT;
        for (i, y) in call.write::<U>(0).iter_mut().enumerate() {
            *y = if by_float { U::of(x.f64(i)) } else { U::of_i64(x.i64(i)) };
        }
        Ok(())
    }))
}
