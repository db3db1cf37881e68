//! The outermost fields of a protobuf message, without decoding them: enough to tell models from
//! other files, and to say where one breaks off.

use crate::wire::{Field, Message, Wire};

/// A kind of model that is one protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proto {
    /// ONNX's `ModelProto`.
    Onnx,
    /// Graph Engine's `ModelDef`.
    Ge,
}

/// A field of a message: number, wire type, name.
type Known = (u64, u8, &'static str);

const VARINT: u8 = 0;
const LEN: u8 = 2;

/// Fields of ONNX's `ModelProto`.
const ONNX_FIELDS: &[Known] = &[
    (1, VARINT, "ir_version"),
    (2, LEN, "producer_name"),
    (3, LEN, "producer_version"),
    (4, LEN, "domain"),
    (5, VARINT, "model_version"),
    (6, LEN, "doc_string"),
    (GRAPH, LEN, "graph"),
    (8, LEN, "opset_import"),
    (14, LEN, "metadata_props"),
    (20, LEN, "training_info"),
    (25, LEN, "functions"),
    (26, LEN, "configuration"),
];

/// Fields of Graph Engine's `ModelDef`.
const GE_FIELDS: &[Known] = &[
    (1, LEN, "name"),
    (2, VARINT, "version"),
    (3, LEN, "custom_version"),
    (GRAPH, LEN, "graph"),
    (11, LEN, "attr"),
    (12, LEN, "attr_groups"),
];

/// The graph has the same number in both.
const GRAPH: u64 = 7;

/// The operators of Graph Engine's `GraphDef`; a number that ONNX's `GraphProto` does not have.
const GE_OPERATORS: u64 = 6;

/// What the outermost fields of some bytes say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outline {
    /// The first field is none that such a message has.
    Other,
    /// All fields are whole.
    Model {
        /// Whether one of them is the graph.
        graph: bool,
    },
    /// It begins as such a message and breaks off or goes wrong.
    Broken(String),
}

/// Looks at the outermost fields of what may be a `proto`.
pub(crate) fn outline(bytes: &[u8], proto: Proto) -> Outline {
    let known = match proto {
        Proto::Onnx => ONNX_FIELDS,
        Proto::Ge => GE_FIELDS,
    };
    let of_ge = proto == Proto::Ge;
    let name = |number: u64, wire: u8| {
        let mut all = known.iter();
        all.find(|f| f.0 == number && f.1 == wire).map(|f| f.2)
    };
    // The first byte is the tag of the first field: all known numbers are small.
    let starts = bytes
        .first()
        .is_some_and(|&tag| name(u64::from(tag >> 3), tag & 7).is_some());
    if !starts {
        return Outline::Other;
    }
    let mut graph = false;
    for field in Message::whole(bytes).fields() {
        match field {
            Ok(Field {
                number: GRAPH,
                value: Wire::Bytes(inside),
                ..
            }) => {
                graph = true;
                if is_of_ge(inside) != of_ge {
                    return Outline::Other;
                }
            }
            Ok(_) => {}
            Err(broken) => {
                let at = broken.at;
                let tag = bytes.get(at).copied().unwrap_or_default();
                if u64::from(tag >> 3) == GRAPH && is_of_ge(beginning(bytes, at)) != of_ge {
                    return Outline::Other;
                }
                let what = match name(u64::from(tag >> 3), tag & 7) {
                    Some(name) => format!("byte {at}, in {name:?}: "),
                    None => format!("byte {at}: "),
                };
                return Outline::Broken(what + &broken.problem);
            }
        }
    }
    Outline::Model { graph }
}

/// What is there of a graph that breaks off: what follows the tag at `at` and its length.
fn beginning(bytes: &[u8], at: usize) -> Message<'_> {
    let rest = bytes.get(at + 1..).unwrap_or_default();
    let length = rest.iter().take_while(|&&b| b >= 0x80).count() + 1;
    Message::whole(rest.get(length..).unwrap_or_default())
}

/// Whether a graph is one of Graph Engine's: it has operators under a number that ONNX does not
/// use.
fn is_of_ge(graph: Message<'_>) -> bool {
    let known = |f: Field<'_>| match f.value {
        Wire::Bytes(_) => f.number,
        _ => 0,
    };
    let mut fields = graph.fields().map_while(Result::ok).map(known);
    fields.any(|number| number == GE_OPERATORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_models_from_other_bytes() {
        let onnx = |bytes: &[u8]| outline(bytes, Proto::Onnx);
        let ge = |bytes: &[u8]| outline(bytes, Proto::Ge);
        let model = [0x08, 0x0a, 0x3a, 0x02, 0x12, 0x00];
        assert_eq!(onnx(&model), Outline::Model { graph: true });
        assert_eq!(onnx(&model[..2]), Outline::Model { graph: false });
        assert_eq!(ge(&model), Outline::Other);
        assert_eq!(onnx(&[0x0a, 0x00]), Outline::Other, "a number in ONNX");
        assert_eq!(onnx(b"hello"), Outline::Other);
        // Both kinds may begin with the graph.
        let graph = [0x3a, 0x05, 0x0a, 0x01, b'g', 0x32, 0x00];
        assert_eq!(ge(&graph), Outline::Model { graph: true });
        assert_eq!(onnx(&graph), Outline::Other);
        let graph = [0x3a, 0x05, 0x0a, 0x00, 0x12, 0x01, b'g'];
        assert_eq!(onnx(&graph), Outline::Model { graph: true });
        assert_eq!(ge(&graph), Outline::Other);
    }

    #[test]
    fn says_where_a_model_breaks_off() {
        let Outline::Broken(cut) = outline(&[0x08, 0x0a, 0x3a, 0x07, 0x12, 0x00], Proto::Onnx)
        else {
            panic!("a model that is cut short");
        };
        assert!(cut.starts_with("byte 2, in \"graph\": "), "{cut}");
    }
}
