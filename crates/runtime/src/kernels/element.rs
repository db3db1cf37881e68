//! Elements: what numbers of the types of tensors can do, and how code is chosen by a type.

use bytemuck::Pod;
use half::{bf16, f16};
use tenure_graph::DType;

use super::{Call, small};

/// A number in a tensor.
///
/// Integers wrap round, as those of NumPy do, and a division by 0 gives 0. The small floats are
/// computed in float32 and rounded once.
pub(super) trait Number: Pod + PartialOrd + Default + std::fmt::Debug + Send + Sync {
    const ONE: Self;
    /// The least and the greatest value; infinite for floats.
    const LEAST: Self;
    const GREATEST: Self;
    const IS_FLOAT: bool;
    /// What many of them are summed up or multiplied in: float32 for the small floats.
    type Wide: Number;
    fn wide(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// The nearest float64.
    fn f64(self) -> f64;
    /// The value of this type that a float64 becomes: cut off for integers, and as close as the
    /// type's range allows.
    fn of(number: f64) -> Self;
    /// The integer, cut off.
    fn i64(self) -> i64;
    /// The integer, with the bits that do not fit left out.
    fn of_i64(number: i64) -> Self;
    fn is_nan(self) -> bool;
    /// Of two numbers the greater, or NaN if one of them is.
    fn max(self, other: Self) -> Self {
        if other > self || other.is_nan() {
            other
        } else {
            self
        }
    }
    /// Of two numbers the less, or NaN if one of them is.
    fn min(self, other: Self) -> Self {
        if other < self || other.is_nan() {
            other
        } else {
            self
        }
    }
}

macro_rules! integer {
    ($($ty:ty),*) => {$(
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            clippy::cast_possible_wrap,
            clippy::cast_lossless,
            clippy::unnecessary_cast,
            reason = "conversions between the types of elements are what this is for"
        )]
        impl Number for $ty {
            const ONE: Self = 1;
            const LEAST: Self = <$ty>::MIN;
            const GREATEST: Self = <$ty>::MAX;
            const IS_FLOAT: bool = false;
            type Wide = $ty;
            #[inline(always)]
            fn wide(self) -> Self { self }
            #[inline(always)]
            fn narrow(wide: Self) -> Self { wide }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)]
            fn abs(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            fn f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn of(number: f64) -> Self { number as Self }
            #[inline(always)]
            fn i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn of_i64(number: i64) -> Self { number as Self }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
        }
    )*};
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float {
    ($($ty:ty, $wide:ty, $from:expr, $to:expr;)*) => {$(
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::unnecessary_cast,
            clippy::redundant_closure_call,
            reason = "conversions between the types of elements are what this is for"
        )]
        impl Number for $ty {
            const ONE: Self = { const ONE: $ty = <$ty as Limits>::ONE; ONE };
            const LEAST: Self = <$ty>::NEG_INFINITY;
            const GREATEST: Self = <$ty>::INFINITY;
            const IS_FLOAT: bool = true;
            type Wide = $wide;
            #[inline(always)]
            fn wide(self) -> $wide { $from(self) }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self { $to(wide) }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn abs(self) -> Self { $to(($from(self)).abs()) }
            #[inline(always)]
            fn f64(self) -> f64 { $from(self) as f64 }
            #[inline(always)]
            fn of(number: f64) -> Self { <$ty as Limits>::round(number) }
            #[inline(always)]
            fn i64(self) -> i64 { $from(self) as i64 }
            #[inline(always)]
            fn of_i64(number: i64) -> Self { <$ty as Limits>::round(number as f64) }
            #[inline(always)]
            fn is_nan(self) -> bool { <$ty>::is_nan(self) }
        }
    )*};
}

/// What the float types spell in different ways.
trait Limits {
    const ONE: Self;
    fn round(number: f64) -> Self;
}

impl Limits for f32 {
    const ONE: Self = 1.0;
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
    fn round(number: f64) -> Self {
        number as f32
    }
}

impl Limits for f64 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn round(number: f64) -> Self {
        number
    }
}

impl Limits for f16 {
    const ONE: Self = f16::ONE;
    #[inline(always)]
    fn round(number: f64) -> Self {
        f16::from_f64(number)
    }
}

impl Limits for bf16 {
    const ONE: Self = bf16::ONE;
    #[inline(always)]
    fn round(number: f64) -> Self {
        bf16::from_f64(number)
    }
}

float! {
    f32, f32, |x: f32| x, |x: f32| x;
    f64, f64, |x: f64| x, |x: f64| x;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
}

/// The elements in bytes that need not be aligned.
pub(super) fn elements_of<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    let elements = bytes.chunks_exact(size_of::<T>().max(1));
    elements.map(bytemuck::pod_read_unaligned).collect()
}

/// Runs an expression with `$T` for the type of elements, among those of a set; gives an error for
/// other types.
macro_rules! with_type {
    (@ $dtype:expr, $T:ident => $body:expr; $($variant:ident $ty:ty),*) => {
        match $dtype {
            $(tenure_graph::DType::$variant => {
                type $T = $ty;
                $body
            })*
            other => Err(format!("elements of type {other} are not supported here")),
        }
    };
    ($dtype:expr, floats, $T:ident => $body:expr) => {
        with_type!(@ $dtype, $T => $body; F32 f32, F64 f64, F16 half::f16, BF16 half::bf16)
    };
    ($dtype:expr, integers, $T:ident => $body:expr) => {
        with_type!(@ $dtype, $T => $body;
            I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8)
    };
    ($dtype:expr, numbers, $T:ident => $body:expr) => {
        with_type!(@ $dtype, $T => $body;
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16,
            I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8)
    };
    ($dtype:expr, numbers_and_truth, $T:ident => $body:expr) => {
        with_type!(@ $dtype, $T => $body;
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16,
            I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8, Bool u8)
    };
    ($dtype:expr, indices, $T:ident => $body:expr) => {
        with_type!(@ $dtype, $T => $body; I64 i64, I32 i32)
    };
}
pub(super) use with_type;

/// Runs an expression with `$T` for a type of so many bytes, where elements are only moved.
macro_rules! with_size {
    ($bytes:expr, $T:ident => $body:expr) => {
        match $bytes {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            16 => {
                type $T = [u64; 2];
                $body
            }
            other => Err(format!("elements of {other} bytes are not supported here")),
        }
    };
}
pub(super) use with_size;

/// Elements of any type, each read as a number. For what is read seldom: one piece of code serves
/// all types.
#[derive(Clone, Copy)]
pub(super) enum Elements<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    F16(&'a [f16]),
    BF16(&'a [bf16]),
    I64(&'a [i64]),
    I32(&'a [i32]),
    I16(&'a [i16]),
    I8(&'a [i8]),
    U64(&'a [u64]),
    U32(&'a [u32]),
    U16(&'a [u16]),
    U8(&'a [u8]),
    Bool(&'a [u8]),
    /// Elements of a byte or less.
    Small(Small<'a>),
}

/// Elements of a byte or less, and how many.
#[derive(Clone, Copy)]
pub(super) struct Small<'a> {
    bytes: &'a [u8],
    dtype: DType,
}

macro_rules! any_element {
    ($of:expr, $x:ident => $body:expr, $small:ident => $rest:expr) => {
        match $of {
            Elements::Small($small) => $rest,
            Elements::F32($x) => $body,
            Elements::F64($x) => $body,
            Elements::F16($x) => $body,
            Elements::BF16($x) => $body,
            Elements::I64($x) => $body,
            Elements::I32($x) => $body,
            Elements::I16($x) => $body,
            Elements::I8($x) => $body,
            Elements::U64($x) => $body,
            Elements::U32($x) => $body,
            Elements::U16($x) => $body,
            Elements::U8($x) | Elements::Bool($x) => $body,
        }
    };
}

impl<'a> Elements<'a> {
    /// Whether elements of a type can be read so.
    pub(super) fn check(dtype: DType) -> Result<(), String> {
        if small::is_small(dtype) {
            return Ok(());
        }
        with_type!(dtype, numbers_and_truth, T => {
            let _: Option<T> = None;
            Ok(())
        })
    }

    /// The elements of input `i`, of a type that was [checked](Elements::check); none for others.
    pub(super) fn read(call: &Call<'a>, i: usize, dtype: DType) -> Self {
        match dtype {
            DType::F32 => Elements::F32(call.read(i)),
            DType::F64 => Elements::F64(call.read(i)),
            DType::F16 => Elements::F16(call.read(i)),
            DType::BF16 => Elements::BF16(call.read(i)),
            DType::I64 => Elements::I64(call.read(i)),
            DType::I32 => Elements::I32(call.read(i)),
            DType::I16 => Elements::I16(call.read(i)),
            DType::I8 => Elements::I8(call.read(i)),
            DType::U64 => Elements::U64(call.read(i)),
            DType::U32 => Elements::U32(call.read(i)),
            DType::U16 => Elements::U16(call.read(i)),
            DType::U8 => Elements::U8(call.read(i)),
            DType::Bool => Elements::Bool(call.read(i)),
            dtype => Elements::Small(Small {
                bytes: call.read(i),
                dtype,
            }),
        }
    }

    /// Number of elements; for small ones that of the places there are.
    pub(super) fn len(self) -> usize {
        any_element!(self, x => x.len(), s => {
            s.bytes.len() * 8 / s.dtype.bits().map_or(8, |b| b as usize)
        })
    }

    /// Whether they are floats.
    pub(super) fn is_float(self) -> bool {
        match self {
            Elements::Small(s) => small::is_float(s.dtype),
            Elements::F32(_) | Elements::F64(_) | Elements::F16(_) | Elements::BF16(_) => true,
            _ => false,
        }
    }

    /// The element as a float64; no number where there is none.
    #[inline]
    pub(super) fn f64(self, i: usize) -> f64 {
        any_element!(self, x => x.get(i).map_or(f64::NAN, |x| x.f64()), s => small::get(s.bytes, s.dtype, i))
    }

    /// The element as an integer, cut off; 0 where there is none.
    #[inline]
    pub(super) fn i64(self, i: usize) -> i64 {
        any_element!(self, x => x.get(i).map_or(0, |&x| Number::i64(x)), s => small::get(s.bytes, s.dtype, i).i64())
    }
}
