//! The messages of Graph Engine's text dumps, as far as they are read: names of fields, their
//! numbers, what they hold. The numbers are those of the binary form, so that a text that is written
//! in numbers is the binary form.

/// A message.
#[derive(Debug)]
pub(super) struct Schema {
    /// Its fields; others are passed over.
    pub(super) fields: &'static [FieldDef],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct FieldDef {
    /// Name in the text.
    pub(super) name: &'static str,
    /// Number in the binary form.
    pub(super) number: u32,
    /// What it holds.
    pub(super) holds: Holds,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds {
    /// A whole number or a truth value.
    Number,
    /// A name that stands for a number: the names by their numbers.
    Name(&'static [(&'static str, u32)]),
    /// A 32-bit floating-point number.
    Float,
    /// Text or bytes.
    Text,
    /// A message.
    Message(&'static Schema),
}

impl Schema {
    /// The field of that name.
    pub(super) fn field(&self, name: &[u8]) -> Option<&'static FieldDef> {
        self.fields.iter().find(|f| f.name.as_bytes() == name)
    }
}

const fn field(name: &'static str, number: u32, holds: Holds) -> FieldDef {
    FieldDef {
        name,
        number,
        holds,
    }
}

use Holds::{Float, Message, Name, Number, Text};

/// `ModelDef`.
pub(super) static MODEL: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("version", 2, Number),
        field("custom_version", 3, Text),
        field("graph", 7, Message(&GRAPH)),
        field("attr", 11, Message(&ATTR_ENTRY)),
    ],
};

/// `GraphDef`.
pub(super) static GRAPH: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("input", 4, Text),
        field("output", 5, Text),
        field("op", 6, Message(&OP)),
        field("attr", 11, Message(&ATTR_ENTRY)),
    ],
};

/// `OpDef`.
static OP: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("type", 2, Text),
        field("input", 5, Text),
        field("attr", 10, Message(&ATTR_ENTRY)),
        field("id", 21, Number),
        field("stream_id", 22, Number),
        field("input_name", 23, Text),
        field("input_i", 28, Number),
        field("output_i", 29, Number),
        field("workspace", 30, Number),
        field("workspace_bytes", 31, Number),
        field("input_desc", 33, Message(&TENSOR_DESC)),
        field("output_desc", 34, Message(&TENSOR_DESC)),
        field("subgraph_name", 35, Text),
    ],
};

/// `TensorDescriptor`.
static TENSOR_DESC: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("dtype", 2, Name(super::types::NAMES)),
        field("shape", 3, Message(&SHAPE)),
        field("layout", 4, Text),
        field("attr", 5, Message(&ATTR_ENTRY)),
        field("size", 10, Number),
        field("reuse_input", 12, Number),
        field("reuse_input_index", 17, Number),
    ],
};

/// `ShapeDef`.
static SHAPE: Schema = Schema {
    fields: &[field("dim", 1, Number)],
};

/// `TensorDef`.
static TENSOR: Schema = Schema {
    fields: &[
        field("desc", 1, Message(&TENSOR_DESC)),
        field("data", 2, Text),
    ],
};

/// An entry of a map of attributes.
static ATTR_ENTRY: Schema = Schema {
    fields: &[field("key", 1, Text), field("value", 2, Message(&ATTR))],
};

/// `AttrDef`.
static ATTR: Schema = Schema {
    fields: &[
        field("list", 1, Message(&LIST)),
        field("s", 2, Text),
        field("i", 3, Number),
        field("f", 4, Float),
        field("b", 5, Number),
        field("bt", 7, Text),
        field("func", 10, Message(&NAMED_ATTRS)),
        field("t", 12, Message(&TENSOR)),
        field("list_list_int", 14, Message(&ROWS)),
        field("dt", 15, Name(super::types::NAMES)),
        field("list_list_float", 16, Message(&FLOAT_ROWS)),
        field("expression", 17, Text),
    ],
};

/// `ListValue`.
static LIST: Schema = Schema {
    fields: &[
        field("s", 2, Text),
        field("i", 3, Number),
        field("f", 4, Float),
        field("b", 5, Number),
        field("bt", 7, Text),
        field("t", 9, Message(&TENSOR)),
        field("na", 11, Message(&NAMED_ATTRS)),
        field("dt", 12, Name(super::types::NAMES)),
    ],
};

/// `NamedAttrs`.
static NAMED_ATTRS: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("attr", 2, Message(&ATTR_ENTRY)),
    ],
};

/// `ListListInt`.
static ROWS: Schema = Schema {
    fields: &[field("list_list_i", 1, Message(&ROW))],
};

/// A row of it.
static ROW: Schema = Schema {
    fields: &[field("list_i", 1, Number)],
};

/// `ListListFloat`.
static FLOAT_ROWS: Schema = Schema {
    fields: &[field("list_list_f", 1, Message(&FLOAT_ROW))],
};

/// A row of it.
static FLOAT_ROW: Schema = Schema {
    fields: &[field("list_f", 1, Float)],
};

/// The ONNX-styled dump: `ModelProto`.
pub(super) static ONNX_MODEL: Schema = Schema {
    fields: &[
        field("producer_name", 2, Text),
        field("graph", 7, Message(&ONNX_GRAPH)),
    ],
};

/// `GraphProto`.
static ONNX_GRAPH: Schema = Schema {
    fields: &[
        field("node", 1, Message(&ONNX_NODE)),
        field("name", 2, Text),
        field("output", 12, Message(&ONNX_VALUE)),
    ],
};

/// `ValueInfoProto`.
static ONNX_VALUE: Schema = Schema {
    fields: &[field("name", 1, Text)],
};

/// `NodeProto`.
static ONNX_NODE: Schema = Schema {
    fields: &[
        field("input", 1, Text),
        field("name", 3, Text),
        field("op_type", 4, Text),
        field("attribute", 5, Message(&ONNX_ATTRIBUTE)),
    ],
};

/// `AttributeProto`.
static ONNX_ATTRIBUTE: Schema = Schema {
    fields: &[
        field("name", 1, Text),
        field("f", 2, Float),
        field("i", 3, Number),
        field("s", 4, Text),
        field("g", 6, Message(&ONNX_GRAPH)),
        field("floats", 7, Float),
        field("ints", 8, Number),
        field("strings", 9, Text),
        field("type", 20, Name(ATTRIBUTE_TYPES)),
    ],
};

/// Kinds of ONNX attributes that dumps use.
const ATTRIBUTE_TYPES: &[(&str, u32)] = &[
    ("UNDEFINED", 0),
    ("FLOAT", FLOAT),
    ("INT", INT),
    ("STRING", STRING),
    ("TENSOR", 4),
    ("GRAPH", GRAPH_VALUE),
    ("FLOATS", FLOATS),
    ("INTS", INTS),
    ("STRINGS", STRINGS),
    ("TENSORS", 9),
    ("GRAPHS", 10),
];

/// Number of the kind FLOAT.
pub(super) const FLOAT: u32 = 1;
/// Number of the kind INT.
pub(super) const INT: u32 = 2;
/// Number of the kind STRING.
pub(super) const STRING: u32 = 3;
/// Number of the kind GRAPH.
pub(super) const GRAPH_VALUE: u32 = 5;
/// Number of the kind FLOATS.
pub(super) const FLOATS: u32 = 6;
/// Number of the kind INTS.
pub(super) const INTS: u32 = 7;
/// Number of the kind STRINGS.
pub(super) const STRINGS: u32 = 8;
