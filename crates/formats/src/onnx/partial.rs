//! Messages of which few fields are wanted: enough to put nodes in order and to find values by
//! their names, without decoding all that hangs on them. Texts stay slices of the file.
//!
//! Fields and their numbers are those of the schema, `proto/onnx-ml.proto`.

use bytes::Bytes;

/// The names in a `NodeProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeNames {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) input: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) output: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<Graphs>,
}

/// The graphs in an `AttributeProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Graphs {
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(super) g: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub(super) graphs: Vec<Bytes>,
}

impl NodeNames {
    /// The graphs in all attributes, encoded.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &Bytes> {
        let attributes = self.attribute.iter();
        attributes.flat_map(|a| a.g.iter().chain(&a.graphs))
    }
}

/// What defines and reads names in a `GraphProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GraphNames {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) node: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<TensorName>,
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializer: Vec<SparseName>,
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueName>,
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueName>,
}

/// The name of a `TensorProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorName {
    #[prost(bytes = "bytes", tag = "8")]
    pub(super) name: Bytes,
}

/// The name of a `SparseTensorProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SparseName {
    #[prost(message, optional, tag = "1")]
    pub(super) values: Option<TensorName>,
}

/// The name of a `ValueInfoProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueName {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) name: Bytes,
}
