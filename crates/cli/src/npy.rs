//! NumPy's `.npy` files: one array each. Source of the format: NumPy Enhancement Proposal 1.
//!
//! Types that NumPy does not know are written as it writes those of the package `ml_dtypes`: raw
//! bytes (`V2` for bfloat16, `V1` for the 8-bit floats, one of which it also calls `f1`). Types of
//! less than a byte take a byte an element in a file, and are packed in memory.

use tenure_graph::DType;

/// An array: little-endian elements, row by row, small ones packed as a model packs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DType,
    /// Dimensions.
    pub dims: Vec<u64>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// Before the version and the header.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header that is read, in bytes: that of an array of 64 dimensions has some 2000.
const MAX_HEADER: usize = 1 << 16;

/// The name of a type in a file; the first one is what is written.
fn names(dtype: DType) -> &'static [&'static str] {
    match dtype {
        DType::F32 => &["<f4"],
        DType::F64 => &["<f8"],
        DType::F16 => &["<f2"],
        DType::BF16 => &["<V2", "|V2"],
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::F6E2M3
        | DType::F6E3M2 => &["|V1", "<V1", "|u1"],
        DType::F8E5M2 => &["|V1", "<V1", "<f1", "|f1", "|u1"],
        DType::I64 => &["<i8"],
        DType::I32 => &["<i4"],
        DType::I16 => &["<i2"],
        DType::I8 => &["|i1"],
        DType::I4 | DType::I2 => &["|i1", "|V1", "<V1"],
        DType::U64 => &["<u8"],
        DType::U32 => &["<u4"],
        DType::U16 => &["<u2"],
        DType::U8 => &["|u1"],
        DType::U4 | DType::U2 => &["|u1", "|V1", "<V1"],
        DType::Bool => &["|b1"],
        DType::C64 => &["<c8"],
        DType::C128 => &["<c16"],
        _ => &[],
    }
}

impl Array {
    /// Reads a file's bytes as an array of type `dtype`.
    ///
    /// # Errors
    /// What is wrong with the file, or that it holds elements of another type.
    pub fn read(file: &[u8], dtype: DType) -> Result<Self, String> {
        let (header, data) = split(file).ok_or("this is no .npy file")?;
        let descr = field(header, "descr").ok_or("its header has no \"descr\"")?;
        let descr = descr.trim_matches(['\'', '"']);
        // What NumPy writes on the machines that there are, and a byte has no order.
        let descr = descr.replacen('=', "<", 1);
        if !names(dtype).contains(&&*descr) {
            return Err(format!(
                "it holds elements of type {descr:?}, and {dtype} is wanted"
            ));
        }
        if field(header, "fortran_order") != Some("False") {
            return Err(
                "it is written column by column; save numpy.ascontiguousarray(x)".to_owned(),
            );
        }
        let dims = field(header, "shape").and_then(|text| {
            let inner = text.strip_prefix('(')?.strip_suffix(')')?;
            let parts = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
            parts
                .map(|p| p.parse::<u64>().ok())
                .collect::<Option<Vec<_>>>()
        });
        let dims = dims.ok_or("its header has no \"shape\"")?;
        let wide = width(dtype);
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let bytes = elements.and_then(|n| n.checked_mul(wide));
        if bytes != u64::try_from(data.len()).ok() {
            return Err(format!(
                "its shape {dims:?} asks for other than the {} bytes that it holds",
                data.len()
            ));
        }
        let bytes = pack(dtype, data);
        Ok(Array { dtype, dims, bytes })
    }

    /// The file of an array.
    ///
    /// # Errors
    /// When the elements have no fixed size.
    pub fn write(&self) -> Result<Vec<u8>, String> {
        let descr = names(self.dtype).first();
        let descr = descr.ok_or_else(|| format!("{} has no form in a .npy file", self.dtype))?;
        let dims: String = self.dims.iter().map(|d| format!("{d}, ")).collect();
        // A tuple of one has a comma, of more none at the end.
        let dims = match self.dims.len() {
            1 => dims.trim_end(),
            _ => dims.trim_end_matches(", "),
        };
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
        // The data begins at a multiple of 64 bytes.
        let before = MAGIC.len() + 4;
        let padded = (before + header.len() + 1).next_multiple_of(64) - before;
        let length = u16::try_from(padded).map_err(|_| "it has too many dimensions".to_owned())?;
        let mut file = MAGIC.to_vec();
        file.extend([1, 0]);
        file.extend(length.to_le_bytes());
        file.extend(header.as_bytes());
        file.resize(before + padded - 1, b' ');
        file.push(b'\n');
        let elements = self.dims.iter().product::<u64>();
        unpack(self.dtype, &self.bytes, elements, &mut file);
        Ok(file)
    }
}

/// Bytes of an element in a file.
fn width(dtype: DType) -> u64 {
    u64::from(dtype.bits().unwrap_or(8)).div_ceil(8)
}

/// Elements of less than a byte, one behind the other, the first in the low bits.
fn pack(dtype: DType, data: &[u8]) -> Vec<u8> {
    let Some(bits) = dtype.bits().filter(|b| matches!(b, 2 | 4)) else {
        return data.to_vec();
    };
    let mask = (1u8 << bits) - 1;
    let join = |group: &[u8]| {
        let places = group.iter().zip((0..8).step_by(bits as usize));
        places.fold(0, |byte, (element, at)| byte | (element & mask) << at)
    };
    data.chunks(8 / bits as usize).map(join).collect()
}

fn unpack(dtype: DType, bytes: &[u8], elements: u64, to: &mut Vec<u8>) {
    let Some(bits) = dtype.bits().filter(|b| matches!(b, 2 | 4)) else {
        to.extend(bytes);
        return;
    };
    let signed = matches!(dtype, DType::I4 | DType::I2);
    let mask = (1u8 << bits) - 1;
    let end = to
        .len()
        .saturating_add(usize::try_from(elements).unwrap_or(usize::MAX));
    for byte in bytes {
        for at in (0..8).step_by(bits as usize) {
            let element = byte >> at & mask;
            let negative = signed && element >> (bits - 1) != 0;
            to.push(if negative { element | !mask } else { element });
        }
    }
    to.truncate(end);
}

/// Header and data.
fn split(file: &[u8]) -> Option<(&str, &[u8])> {
    let rest = file.strip_prefix(MAGIC)?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]);
            (usize::try_from(length).ok()?, rest)
        }
        _ => return None,
    };
    if length > MAX_HEADER {
        return None;
    }
    let (header, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

/// The text of a field of the header: a Python dictionary of three keys.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("'{name}':");
    let rest = header[header.find(&key)? + key.len()..].trim_start();
    let end = match rest.chars().next()? {
        '(' => rest.find(')')? + 1,
        '\'' => rest[1..].find('\'')? + 2,
        _ => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dtype: DType, dims: &[u64], bytes: &[u8]) -> Array {
        Array {
            dtype,
            dims: dims.to_vec(),
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for array in [
            array(DType::F32, &[2, 1], &[0, 1, 2, 3, 4, 5, 6, 7]),
            array(DType::Bool, &[], &[1]),
            array(DType::I64, &[0, 3], &[]),
            array(DType::BF16, &[1], &[1, 2]),
            array(DType::I4, &[3], &[0x8f, 0x07]),
            array(DType::U2, &[5], &[0b11_10_01_00, 0b01]),
        ] {
            let file = array.write().unwrap();
            assert!(array.bytes.is_empty() || file.len() % 64 <= 8);
            assert_eq!(Array::read(&file, array.dtype), Ok(array));
        }
    }

    #[test]
    fn the_file_is_what_numpy_writes() {
        let file = array(DType::U8, &[2], &[7, 8]).write().unwrap();
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
        assert_eq!(&file[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert!(
            std::str::from_utf8(&file[10..])
                .unwrap()
                .starts_with(header)
        );
        assert_eq!(file.len(), 130);
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = array(DType::F32, &[2], &[0; 8]).write().unwrap();
        let no = |file: &[u8], dtype| Array::read(file, dtype).unwrap_err();
        assert!(no(&file, DType::F64).contains("<f4"));
        assert!(no(&file[..file.len() - 1], DType::F32).contains("7 bytes"));
        assert!(no(b"PK\x03\x04", DType::F32).contains("no .npy"));
        assert!(no(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", DType::F32).contains("no .npy"));
        let text = String::from_utf8_lossy(&file).replace("False", "True ");
        assert!(Array::read(text.as_bytes(), DType::F32).is_err());
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 9), }";
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(huge.len()).unwrap().to_le_bytes());
        file.extend(huge.as_bytes());
        assert!(no(&file, DType::F32).contains("asks for other"));
    }
}
