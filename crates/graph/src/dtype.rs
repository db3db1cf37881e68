//! Element types and the bytes that they take.

use std::fmt;
use std::str::FromStr;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:expr;)*) => {
        /// The type of a value's elements, or the kind of a value that is no tensor.
        ///
        /// Names are those of NumPy and ONNX (`float32`, `int64`, `bfloat16` …).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every type, in the order of declaration.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Bits of one element; `None` where elements have no fixed size (strings,
            /// sequences, optionals, maps, handles and unknown types).
            #[must_use]
            pub const fn bits(self) -> Option<u32> {
                match self { $(DType::$variant => $bits,)* }
            }

            /// The name used in JSON, text and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }
        }

        impl FromStr for DType {
            type Err = UnknownDType;
            fn from_str(s: &str) -> Result<Self, UnknownDType> {
                match s { $($name => Ok(DType::$variant),)* _ => Err(UnknownDType(s.to_owned())) }
            }
        }
    };
}

dtypes! {
    /// IEEE 754 binary32.
    F32 = "float32", Some(32);
    /// IEEE 754 binary64.
    F64 = "float64", Some(64);
    /// IEEE 754 binary16.
    F16 = "float16", Some(16);
    /// The upper half of a binary32.
    BF16 = "bfloat16", Some(16);
    /// 8-bit float, 4 exponent bits, no infinities.
    F8E4M3FN = "float8e4m3fn", Some(8);
    /// 8-bit float, 4 exponent bits, no infinities, no negative zero.
    F8E4M3FNUZ = "float8e4m3fnuz", Some(8);
    /// 8-bit float, 5 exponent bits.
    F8E5M2 = "float8e5m2", Some(8);
    /// 8-bit float, 5 exponent bits, no infinities, no negative zero.
    F8E5M2FNUZ = "float8e5m2fnuz", Some(8);
    /// 8-bit power of two (scale type).
    F8E8M0 = "float8e8m0", Some(8);
    /// 6-bit float, 2 exponent bits, four in three bytes.
    F6E2M3 = "float6e2m3", Some(6);
    /// 6-bit float, 3 exponent bits, four in three bytes.
    F6E3M2 = "float6e3m2", Some(6);
    /// 4-bit float, two in a byte.
    F4E2M1 = "float4e2m1", Some(4);
    /// 4-bit float, 1 exponent bit, two in a byte.
    F4E1M2 = "float4e1m2", Some(4);
    /// 8-bit float whose exponent takes as many bits as it needs.
    HF8 = "hifloat8", Some(8);
    /// 4-bit float of the same kind, two in a byte.
    HF4 = "hifloat4", Some(4);
    /// Signed 64-bit integer.
    I64 = "int64", Some(64);
    /// Signed 32-bit integer.
    I32 = "int32", Some(32);
    /// Signed 16-bit integer.
    I16 = "int16", Some(16);
    /// Signed 8-bit integer.
    I8 = "int8", Some(8);
    /// Signed 4-bit integer, two in a byte.
    I4 = "int4", Some(4);
    /// Signed 2-bit integer, four in a byte.
    I2 = "int2", Some(2);
    /// Unsigned 64-bit integer.
    U64 = "uint64", Some(64);
    /// Unsigned 32-bit integer.
    U32 = "uint32", Some(32);
    /// Unsigned 16-bit integer.
    U16 = "uint16", Some(16);
    /// Unsigned 8-bit integer.
    U8 = "uint8", Some(8);
    /// Unsigned 4-bit integer, two in a byte.
    U4 = "uint4", Some(4);
    /// Unsigned 2-bit integer, four in a byte.
    U2 = "uint2", Some(2);
    /// Unsigned 1-bit integer, eight in a byte.
    U1 = "uint1", Some(1);
    /// Truth value, one byte.
    Bool = "bool", Some(8);
    /// Two binary16.
    C32 = "complex32", Some(32);
    /// Two binary32.
    C64 = "complex64", Some(64);
    /// Two binary64.
    C128 = "complex128", Some(128);
    /// Text of any length; its bytes live outside any arena.
    String = "string", None;
    /// A handle to a resource.
    Resource = "resource", None;
    /// A sequence of values.
    Sequence = "sequence", None;
    /// A value that may be absent.
    Optional = "optional", None;
    /// A map of values.
    Map = "map", None;
    /// A sparse tensor: its size depends on the data.
    Sparse = "sparse", None;
    /// Nothing is known of the type.
    Unknown = "undefined", None;
}

impl DType {
    /// Bytes of `elements` elements, sub-byte types packed and rounded up to a whole byte.
    ///
    /// `None` when the type has no fixed size or the number does not fit in 64 bits.
    ///
    /// ```
    /// use tenure_graph::DType;
    /// assert_eq!(DType::F32.bytes(6), Some(24));
    /// assert_eq!(DType::I4.bytes(3), Some(2));
    /// assert_eq!(DType::String.bytes(1), None);
    /// assert_eq!(DType::F64.bytes(u64::MAX), None);
    /// ```
    #[must_use]
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let bits = u128::from(elements).checked_mul(u128::from(self.bits()?))?;
        u64::try_from(bits.div_ceil(8)).ok()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown element type {0:?}; known types are float32, float16, bfloat16, int64, uint8, bool …"
)]
pub struct UnknownDType(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert!("float".parse::<DType>().is_err());
    }
}
