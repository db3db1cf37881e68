//! Element types by their numbers. Graph Engine counts them in two ways: one in its protobuf files,
//! another in the files of 2019 and in attributes.

use tenure_graph::DType;

/// Names of the element types in texts, by the number that they have in protobuf files.
pub(crate) const NAMES: &[(&str, u32)] = &[
    ("DT_UNDEFINED", 0),
    ("DT_FLOAT", 1),
    ("DT_FLOAT16", 2),
    ("DT_INT8", 3),
    ("DT_UINT8", 4),
    ("DT_INT16", 5),
    ("DT_UINT16", 6),
    ("DT_INT32", 7),
    ("DT_INT64", 8),
    ("DT_UINT32", 9),
    ("DT_UINT64", 10),
    ("DT_BOOL", 11),
    ("DT_DOUBLE", 12),
    ("DT_STRING", 13),
    ("DT_DUAL_SUB_INT8", 14),
    ("DT_DUAL_SUB_UINT8", 15),
    ("DT_COMPLEX64", 16),
    ("DT_COMPLEX128", 17),
    ("DT_QINT8", 18),
    ("DT_QINT16", 19),
    ("DT_QINT32", 20),
    ("DT_QUINT8", 21),
    ("DT_QUINT16", 22),
    ("DT_RESOURCE", 23),
    ("DT_STRING_REF", 24),
    ("DT_DUAL", 25),
    ("DT_VARIANT", 26),
    ("DT_BF16", 27),
    ("DT_INT4", 28),
    ("DT_UINT1", 29),
    ("DT_INT2", 30),
    ("DT_UINT2", 31),
    ("DT_COMPLEX32", 32),
    ("DT_HIFLOAT8", 33),
    ("DT_FLOAT8_E5M2", 34),
    ("DT_FLOAT8_E4M3FN", 35),
    ("DT_FLOAT8_E8M0", 36),
    ("DT_FLOAT6_E3M2", 37),
    ("DT_FLOAT6_E2M3", 38),
    ("DT_FLOAT4_E2M1", 39),
    ("DT_FLOAT4_E1M2", 40),
    ("DT_HIFLOAT4", 41),
];

/// The element type with this number in a protobuf file; `None` for a number that is no type.
///
/// A handle (`resource`, `variant`) has no elements. A `dual` is two types at once, whose size the
/// number does not say.
pub(super) fn element(number: u64) -> Option<DType> {
    Some(match number {
        0 | 25 => DType::Unknown,
        1 => DType::F32,
        2 => DType::F16,
        3 | 14 | 18 => DType::I8,
        4 | 15 | 21 => DType::U8,
        5 | 19 => DType::I16,
        6 | 22 => DType::U16,
        7 | 20 => DType::I32,
        8 => DType::I64,
        9 => DType::U32,
        10 => DType::U64,
        11 => DType::Bool,
        12 => DType::F64,
        13 | 24 => DType::String,
        16 => DType::C64,
        17 => DType::C128,
        23 | 26 => DType::Resource,
        27 => DType::BF16,
        28 => DType::I4,
        29 => DType::U1,
        30 => DType::I2,
        31 => DType::U2,
        32 => DType::C32,
        33 => DType::HF8,
        34 => DType::F8E5M2,
        35 => DType::F8E4M3FN,
        36 => DType::F8E8M0,
        37 => DType::F6E3M2,
        38 => DType::F6E2M3,
        39 => DType::F4E2M1,
        40 => DType::F4E1M2,
        41 => DType::HF4,
        _ => return None,
    })
}

/// The element type with this number in a file of 2019; `None` for a number that is no type.
pub(super) fn element_of_2019(number: u64) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        2 | 14 | 18 => DType::I8,
        3 | 20 => DType::I32,
        4 | 15 | 21 => DType::U8,
        6 | 19 => DType::I16,
        7 | 22 => DType::U16,
        8 => DType::U32,
        9 => DType::I64,
        10 => DType::U64,
        11 => DType::F64,
        12 => DType::Bool,
        13 | 24 => DType::String,
        16 => DType::C64,
        17 => DType::C128,
        23 | 26 => DType::Resource,
        25 | 28 => DType::Unknown,
        _ => return None,
    })
}

/// The element type of this name in a text.
pub(super) fn named(name: &str) -> Option<DType> {
    let (_, number) = NAMES.iter().find(|(n, _)| *n == name)?;
    element(u64::from(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_numbers() {
        for (place, (name, number)) in (0u32..).zip(NAMES) {
            assert_eq!(*number, place, "{name}");
            assert!(named(name).is_some(), "{name}");
        }
        assert_eq!(element(NAMES.len() as u64), None);
        assert_eq!(named("DT_FLOAT16"), Some(DType::F16));
        assert_eq!(element_of_2019(1), Some(DType::F16));
    }
}
