//! Constant tensors: contents stay where they are in the file where the model allows it.

use bytes::Bytes;
use std::collections::HashSet;
use std::path::Path;
use tenure_graph::{DType, Tensor, TensorData};

use super::types;
use crate::error::{FormatError, Problem, quoted};
use crate::generated::onnx as pb;
use crate::weights;

/// The sparse tensors of a model are spelled out up to so many bytes together.
const DENSE_LIMIT: u64 = 64 << 20;

/// Reads tensors and remembers which external files were found to be harmless.
pub(super) struct Tensors<'a> {
    folder: Option<&'a Path>,
    checked: HashSet<String>,
    /// Bytes of sparse tensors that may still be spelled out.
    dense_left: u64,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(folder: Option<&'a Path>) -> Self {
        Tensors {
            folder,
            checked: HashSet::new(),
            dense_left: DENSE_LIMIT,
        }
    }

    /// A tensor without its name.
    pub(super) fn read(&mut self, proto: &pb::TensorProto) -> Result<Tensor, FormatError> {
        if proto.segment.is_some() {
            return Err(Problem::Segmented.into());
        }
        let number = proto.data_type.unwrap_or(0);
        let dtype = types::element(number).ok_or(Problem::ElementType(number))?;
        let shape = dims(&proto.dims)?;
        let elements = (shape.iter())
            .try_fold(1u64, |n, &d| n.checked_mul(d))
            .or_else(|| shape.contains(&0).then_some(0))
            .ok_or(Problem::TooLarge)?;
        let data = if proto.data_location() == pb::tensor_proto::DataLocation::External {
            self.external(proto)?
        } else {
            inline(proto, dtype, elements)?
        };
        Ok(Tensor { dtype, shape, data })
    }

    fn external(&mut self, proto: &pb::TensorProto) -> Result<TensorData, FormatError> {
        let mut location = None;
        let (mut offset, mut length) = (0, None);
        for entry in &proto.external_data {
            let number = || {
                entry.value().parse::<u64>().map_err(|_| {
                    Problem::ExternalData(format!(
                        "{} is {}, which is no number of bytes",
                        entry.key(),
                        quoted(entry.value())
                    ))
                })
            };
            match entry.key() {
                "location" => location = Some(entry.value()),
                "offset" => offset = number()?,
                "length" => length = Some(number()?),
                _ => {}
            }
        }
        let location = location
            .ok_or_else(|| Problem::ExternalData("the key \"location\" is missing".to_owned()))?;
        if !self.checked.contains(location) {
            weights::check_location(self.folder, location)?;
            self.checked.insert(location.to_owned());
        }
        Ok(TensorData::External {
            location: location.to_owned(),
            offset,
            length,
        })
    }

    /// A sparse tensor. The graph's operators see a dense one; its contents are spelled out as
    /// far as [`DENSE_LIMIT`] goes, and otherwise left out.
    pub(super) fn read_sparse(
        &mut self,
        proto: &pb::SparseTensorProto,
    ) -> Result<Tensor, FormatError> {
        let values = proto.values.as_ref().ok_or(Problem::Sparse("no values"))?;
        let values = self.read(values)?;
        let shape = dims(&proto.dims)?;
        let dense = Tensor {
            dtype: values.dtype,
            shape,
            data: TensorData::Absent,
        };
        let left = (dense.bytes()).and_then(|bytes| self.dense_left.checked_sub(bytes));
        let (Some(indices), Some(left)) = (&proto.indices, left) else {
            return Ok(dense);
        };
        self.dense_left = left;
        let indices = self.read(indices)?;
        let data = spread(&values, &indices, &dense.shape)?;
        Ok(Tensor { data, ..dense })
    }
}

fn dims(dims: &[i64]) -> Result<Vec<u64>, Problem> {
    let dim = |(axis, &size): (usize, &i64)| {
        u64::try_from(size).map_err(|_| Problem::Dimension { axis, size })
    };
    dims.iter().enumerate().map(dim).collect()
}

fn inline(proto: &pb::TensorProto, dtype: DType, elements: u64) -> Result<TensorData, Problem> {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let check = |found: u64, expected: u64, unit| {
        if found == expected {
            Ok(())
        } else {
            Err(Problem::Contents {
                found,
                expected,
                unit,
            })
        }
    };
    if dtype == DType::String {
        if proto.string_data.is_empty() && elements > 0 {
            return Ok(TensorData::Absent);
        }
        check(count(proto.string_data.len()), elements, "strings")?;
        return Ok(TensorData::Strings(proto.string_data.clone()));
    }
    let bytes = dtype.bytes(elements).ok_or(Problem::TooLarge)?;
    let contents = match &proto.raw_data {
        Some(raw) if !raw.is_empty() => raw.clone(),
        _ => typed(proto, dtype, elements).map_err(|(found, expected)| Problem::Contents {
            found,
            expected,
            unit: "elements",
        })?,
    };
    if contents.is_empty() && bytes > 0 {
        return Ok(TensorData::Absent);
    }
    check(count(contents.len()), bytes, "bytes")?;
    Ok(TensorData::Bytes(contents))
}

/// The contents out of the field that ONNX has for this type, as little-endian bytes; empty when
/// the field is.
///
/// # Errors
/// How many entries the field has and how many it should have.
fn typed(proto: &pb::TensorProto, dtype: DType, elements: u64) -> Result<Bytes, (u64, u64)> {
    /// The low `$n` bytes of each entry.
    macro_rules! low_bytes {
        ($field:expr, $n:literal) => {{
            let bytes = $field
                .iter()
                .flat_map(|e| e.to_le_bytes().into_iter().take($n));
            ($field.len(), bytes.collect())
        }};
    }
    let int32 = &proto.int32_data;
    let (entries, contents): (usize, Vec<u8>) = match dtype {
        DType::F32 | DType::C64 => low_bytes!(proto.float_data, 4),
        DType::F64 | DType::C128 => low_bytes!(proto.double_data, 8),
        DType::I64 => low_bytes!(proto.int64_data, 8),
        DType::U64 => low_bytes!(proto.uint64_data, 8),
        DType::U32 => low_bytes!(proto.uint64_data, 4),
        DType::I32 => low_bytes!(int32, 4),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => low_bytes!(int32, 2),
        DType::F6E2M3 | DType::F6E3M2 => (int32.len(), pack_six_bits(int32)),
        _ => low_bytes!(int32, 1),
    };
    // Two entries are one complex number; one entry is a byte of two 4-bit or four 2-bit numbers.
    let expected = match (dtype, dtype.bits()) {
        (DType::C64 | DType::C128, _) => elements.saturating_mul(2),
        (_, Some(2 | 4)) => dtype.bytes(elements).unwrap_or(u64::MAX),
        _ => elements,
    };
    let found = u64::try_from(entries).unwrap_or(u64::MAX);
    if found == 0 || found == expected {
        Ok(contents.into())
    } else {
        Err((found, expected))
    }
}

/// Four 6-bit numbers in three bytes, the first in the lowest bits.
fn pack_six_bits(entries: &[i32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len());
    for group in entries.chunks(4) {
        let bits = (group.iter().rev()).fold(0u32, |bits, &e| bits << 6 | (e & 0x3f) as u32);
        let used = (group.len() * 6).div_ceil(8);
        bytes.extend_from_slice(&bits.to_le_bytes()[..used]);
    }
    bytes
}

/// The dense contents of a sparse tensor: `indices` are positions in the flattened tensor, or one
/// row of coordinates for each value.
fn spread(values: &Tensor, indices: &Tensor, shape: &[u64]) -> Result<TensorData, Problem> {
    let TensorData::Bytes(bytes) = &values.data else {
        return Ok(TensorData::Absent);
    };
    let Some(indices_of) = indices.to_ints(u64::MAX) else {
        return Ok(TensorData::Absent);
    };
    let bits = values.dtype.bits().unwrap_or(0);
    if bits == 0 || !bits.is_multiple_of(8) {
        return Ok(TensorData::Absent);
    }
    let width = (bits / 8) as usize;
    let count = bytes.len() / width;
    let rank = match indices.shape[..] {
        [_] => 1,
        [_, rank] if rank == shape.len() as u64 => shape.len(),
        _ => return Err(Problem::Sparse("the indices have the wrong shape")),
    };
    if count.checked_mul(rank) != Some(indices_of.len()) {
        return Err(Problem::Sparse("values and indices differ in number"));
    }
    let elements = shape.iter().product::<u64>();
    let mut dense = vec![0u8; usize::try_from(elements).unwrap_or(0).saturating_mul(width)];
    for k in 0..count {
        let at = &indices_of[k * rank..(k + 1) * rank];
        let flat = match (indices.shape.len(), at) {
            (1, &[flat]) => u64::try_from(flat).ok().filter(|&f| f < elements),
            _ => at.iter().zip(shape).try_fold(0u64, |flat, (&i, &d)| {
                let i = u64::try_from(i).ok().filter(|&i| i < d)?;
                Some(flat * d + i)
            }),
        };
        let flat = (flat.and_then(|f| usize::try_from(f).ok()))
            .ok_or(Problem::Sparse("an index lies outside the shape"))?;
        dense[flat * width..(flat + 1) * width].copy_from_slice(&bytes[k * width..(k + 1) * width]);
    }
    Ok(TensorData::Bytes(dense.into()))
}
