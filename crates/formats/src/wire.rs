//! The outermost fields of a protobuf message, without decoding them: enough to tell an ONNX file
//! from other files, and to say where it breaks off.

/// Wire types of protobuf.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LEN: u8 = 2;
const FIXED32: u8 = 5;

/// Fields of `ModelProto` with the wire type that each has.
const MODEL_FIELDS: &[(u64, u8, &str)] = &[
    (1, VARINT, "ir_version"),
    (2, LEN, "producer_name"),
    (3, LEN, "producer_version"),
    (4, LEN, "domain"),
    (5, VARINT, "model_version"),
    (6, LEN, "doc_string"),
    (7, LEN, "graph"),
    (8, LEN, "opset_import"),
    (14, LEN, "metadata_props"),
    (20, LEN, "training_info"),
    (25, LEN, "functions"),
    (26, LEN, "configuration"),
];

/// What the outermost fields of some bytes say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outline {
    /// The first field is none that a `ModelProto` has.
    Other,
    /// All fields are whole.
    Model {
        /// Whether one of them is the graph.
        graph: bool,
    },
    /// It begins as a `ModelProto` and breaks off or goes wrong.
    Broken(String),
}

/// Looks at the outermost fields.
pub(crate) fn outline(bytes: &[u8]) -> Outline {
    let mut at = 0;
    let mut graph = false;
    while at < bytes.len() {
        let field = field(bytes, at);
        if at == 0 && !matches!(&field, Ok(f) if f.name.is_some()) && !starts_as_model(bytes) {
            return Outline::Other;
        }
        match field {
            Ok(f) => {
                graph |= f.name == Some("graph");
                at = f.end;
            }
            Err(problem) => return Outline::Broken(problem),
        }
    }
    Outline::Model { graph }
}

fn starts_as_model(bytes: &[u8]) -> bool {
    varint(bytes, 0).is_some_and(|(tag, _)| known(tag).is_some())
}

fn known(tag: u64) -> Option<&'static str> {
    let known = MODEL_FIELDS
        .iter()
        .find(|f| f.0 == tag >> 3 && u64::from(f.1) == tag & 7);
    known.map(|f| f.2)
}

struct Field {
    name: Option<&'static str>,
    end: usize,
}

/// The field that begins at `at`.
fn field(bytes: &[u8], at: usize) -> Result<Field, String> {
    let size = bytes.len();
    let cut =
        || format!("it ends after {size} bytes, in the middle of a field; it may be cut short");
    let (tag, body) = varint(bytes, at).ok_or_else(cut)?;
    let name = known(tag);
    let wire_type = u8::try_from(tag & 7).unwrap_or(u8::MAX);
    let (start, length) = match wire_type {
        VARINT => (varint(bytes, body).ok_or_else(cut)?.1, 0),
        FIXED64 => (body, 8),
        FIXED32 => (body, 4),
        LEN => {
            let (length, start) = varint(bytes, body).ok_or_else(cut)?;
            (start, length)
        }
        _ => return Err(format!("byte {at} begins no field")),
    };
    if tag >> 3 == 0 {
        return Err(format!("byte {at} begins no field"));
    }
    let there = size - start;
    match usize::try_from(length).ok().filter(|&l| l <= there) {
        Some(length) => Ok(Field {
            name,
            end: start + length,
        }),
        None => Err(format!(
            "the field {} at byte {at} has {length} bytes, but the file ends after {there} of \
             them; it may be cut short",
            name.map_or_else(|| (tag >> 3).to_string(), |n| format!("\"{n}\""))
        )),
    }
}

/// The variable-length number at `at` and the position behind it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i).min(63);
        if byte < 0x80 {
            return Some((value, at + i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_models_from_other_bytes() {
        let model = [0x08, 0x0a, 0x3a, 0x02, 0x12, 0x00];
        assert_eq!(outline(&model), Outline::Model { graph: true });
        assert_eq!(outline(&model[..2]), Outline::Model { graph: false });
        assert_eq!(
            outline(&[0x0a, 0x00]),
            Outline::Other,
            "field 1 is a number in ONNX"
        );
        assert_eq!(outline(b"hello"), Outline::Other);
    }

    #[test]
    fn says_where_a_model_breaks_off() {
        let broken = |bytes: &[u8]| match outline(bytes) {
            Outline::Broken(text) => text,
            other => panic!("{other:?}"),
        };
        let cut = broken(&[0x08, 0x0a, 0x3a, 0x07, 0x12, 0x00]);
        assert!(cut.contains("\"graph\" at byte 2 has 7 bytes"), "{cut}");
        assert!(cut.contains("after 2 of them"), "{cut}");
        assert!(broken(&[0x08]).contains("after 1 bytes"));
        assert!(broken(&[0x08, 0x0a, 0x07]).contains("byte 2 begins no field"));
        let endless = [[0x3a].as_slice(), &[0xff; 12]].concat();
        broken(&endless);
        let huge = [[0x3a].as_slice(), &[0xff; 9], &[0x01]].concat();
        assert!(broken(&huge).contains("18446744073709551615 bytes"));
    }
}
