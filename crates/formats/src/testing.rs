//! Makes ONNX models, and with [`ge`] models of Graph Engine: for tests, examples and measurements.
//!
//! ```
//! use tenure_formats::testing::GraphBuilder;
//! use tenure_graph::DType;
//!
//! let mut g = GraphBuilder::new("net");
//! g.input("x", DType::F32, "batch, 3, 224, 224");
//! g.weight("w", DType::F32, &[64, 3, 7, 7]);
//! g.node("Conv", &["x", "w"], &["y"]).ints("strides", &[2, 2]).ints("pads", &[3, 3, 3, 3]);
//! g.output("y", DType::F32, "batch, 64, 112, 112");
//! let graph = tenure_formats::read_bytes(g.model(17).encode())?;
//! assert_eq!(graph.nodes.len(), 4);
//! # Ok::<(), tenure_formats::FormatError>(())
//! ```

pub mod ge;

use prost::Message as _;
use tenure_graph::DType;

pub use crate::generated::onnx as pb;
use pb::attribute_proto::AttributeType as Kind;

/// Makes one graph: a model's, or a body.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    /// All but the nodes, which it holds encoded.
    graph: pb::GraphProto,
    nodes: Vec<pb::NodeProto>,
    /// Bytes of the weights so far.
    weights: u64,
}

impl GraphBuilder {
    /// An empty graph.
    #[must_use]
    pub fn new(name: &str) -> Self {
        GraphBuilder {
            graph: pb::GraphProto {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            nodes: Vec::new(),
            weights: 0,
        }
    }

    /// Adds an input. `dims` are separated by commas: a number, a name or formula, or `?`.
    pub fn input(&mut self, name: &str, dtype: DType, dims: &str) {
        self.graph.input.push(value_info(name, dtype, dims));
    }

    /// Adds an output, which a node or an input defines.
    pub fn output(&mut self, name: &str, dtype: DType, dims: &str) {
        self.graph.output.push(value_info(name, dtype, dims));
    }

    /// Declares type and shape of a value inside.
    pub fn declare(&mut self, name: &str, dtype: DType, dims: &str) {
        let info = value_info(name, dtype, dims).encode_to_vec();
        self.graph.value_info.push(info.into());
    }

    /// Adds a weight whose contents lie in the file `GRAPH.absent.bin`, which need not exist.
    pub fn weight(&mut self, name: &str, dtype: DType, dims: &[u64]) {
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let bytes = elements.and_then(|n| dtype.bytes(n)).unwrap_or(0);
        let location = format!("{}.absent.bin", self.graph.name());
        let entry = |key: &str, value: String| pb::StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value),
        };
        let mut tensor = tensor(name, dtype, dims);
        tensor.data_location = Some(pb::tensor_proto::DataLocation::External.into());
        tensor.external_data = vec![
            entry("location", location),
            entry("offset", self.weights.to_string()),
            entry("length", bytes.to_string()),
        ];
        self.weights += bytes.next_multiple_of(64);
        self.graph.initializer.push(tensor);
    }

    /// Adds a one-dimensional constant of `int64`.
    pub fn ints(&mut self, name: &str, values: &[i64]) {
        let mut tensor = tensor(name, DType::I64, &[values.len() as u64]);
        tensor.raw_data = Some(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        self.graph.initializer.push(tensor);
    }

    /// Adds a constant of one number of `int64` without dimensions.
    pub fn int(&mut self, name: &str, value: i64) {
        let mut tensor = tensor(name, DType::I64, &[]);
        tensor.raw_data = Some(value.to_le_bytes().to_vec().into());
        self.graph.initializer.push(tensor);
    }

    /// Adds a constant of one `float32` without dimensions.
    pub fn float(&mut self, name: &str, value: f32) {
        let mut tensor = tensor(name, DType::F32, &[]);
        tensor.raw_data = Some(value.to_le_bytes().to_vec().into());
        self.graph.initializer.push(tensor);
    }

    /// Adds a constant as it is.
    pub fn initializer(&mut self, tensor: pb::TensorProto) {
        self.graph.initializer.push(tensor);
    }

    /// Adds a node named after its operator and its first output; `""` stands for an optional
    /// input or output left out.
    pub fn node(&mut self, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeBuilder<'_> {
        let at = self.nodes.len();
        self.nodes.push(node(op, inputs, outputs));
        NodeBuilder {
            node: &mut self.nodes[at],
        }
    }

    /// The graph, to be a body.
    #[must_use]
    pub fn graph(mut self) -> pb::GraphProto {
        let nodes = self.nodes.iter();
        self.graph.node = nodes.map(|node| node.encode_to_vec().into()).collect();
        self.graph
    }

    /// A model of this graph, for a version of the default operator set.
    #[must_use]
    pub fn model(self, opset: i64) -> Model {
        Model(pb::ModelProto {
            ir_version: Some(9),
            producer_name: Some("tenure".to_owned()),
            graph: Some(self.graph()),
            opset_import: vec![pb::OperatorSetIdProto {
                domain: None,
                version: Some(opset),
            }],
            ..Default::default()
        })
    }
}

/// Adds to a node.
#[derive(Debug)]
pub struct NodeBuilder<'a> {
    node: &'a mut pb::NodeProto,
}

impl NodeBuilder<'_> {
    /// Gives it a name; `""` takes the name away.
    pub fn name(self, name: &str) -> Self {
        self.node.name = Some(name.to_owned());
        self
    }

    /// Puts its operator in a domain.
    pub fn domain(self, domain: &str) -> Self {
        self.node.domain = Some(domain.to_owned());
        self
    }

    /// An integer.
    pub fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, Kind::Int, |a| a.i = Some(value))
    }

    /// Integers.
    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, Kind::Ints, |a| a.ints = values.to_vec())
    }

    /// A number.
    pub fn float(self, name: &str, value: f32) -> Self {
        self.attribute(name, Kind::Float, |a| a.f = Some(value))
    }

    /// Text.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, Kind::String, |a| a.s = Some(value.to_owned().into()))
    }

    /// A subgraph.
    pub fn graph(self, name: &str, graph: GraphBuilder) -> Self {
        let graph = graph.graph().encode_to_vec();
        self.attribute(name, Kind::Graph, |a| a.g = Some(graph.into()))
    }

    /// The attribute `of` of the function around.
    pub fn reference(self, name: &str, kind: Kind, of: &str) -> Self {
        self.attribute(name, kind, |a| a.ref_attr_name = Some(of.to_owned()))
    }

    /// An attribute of any kind.
    pub fn attribute(
        self,
        name: &str,
        kind: Kind,
        fill: impl FnOnce(&mut pb::AttributeProto),
    ) -> Self {
        let mut attribute = pb::AttributeProto {
            name: Some(name.to_owned()),
            r#type: Some(kind.into()),
            ..Default::default()
        };
        fill(&mut attribute);
        self.node.attribute.push(attribute);
        self
    }
}

/// A whole model.
#[derive(Clone, Debug)]
pub struct Model(pub pb::ModelProto);

impl Model {
    /// Adds a local function of the domain `local`, made of the nodes of a graph; the names of its
    /// inputs and outputs are those of the graph.
    #[must_use]
    pub fn function(mut self, name: &str, attributes: &[&str], body: GraphBuilder) -> Self {
        let names =
            |infos: &[pb::ValueInfoProto]| infos.iter().map(|i| i.name().to_owned()).collect();
        let body = body.graph();
        self.0.functions.push(pb::FunctionProto {
            name: Some(name.to_owned()),
            domain: Some("local".to_owned()),
            input: names(&body.input),
            output: names(&body.output),
            attribute: attributes.iter().map(|&a| a.to_owned()).collect(),
            node: body.node,
            value_info: body.value_info,
            ..Default::default()
        });
        self
    }

    /// Gives the last function a version of the default operator set of its own.
    #[must_use]
    pub fn function_opset(mut self, version: i64) -> Self {
        if let Some(function) = self.0.functions.last_mut() {
            function.opset_import.push(pb::OperatorSetIdProto {
                domain: None,
                version: Some(version),
            });
        }
        self
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }
}

/// Reads bytes as a model, whatever they are.
///
/// # Panics
/// When what is read breaks a rule of graphs: a mistake of the reader.
pub fn check(bytes: &[u8]) {
    if let Ok(graph) = crate::read_bytes(bytes.to_vec())
        && let Err(broken) = tenure_graph::verify(&graph)
    {
        panic!("read, but not sound: {broken:?}");
    }
}

/// A node named after its operator and its first output.
#[must_use]
pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> pb::NodeProto {
    let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
    pb::NodeProto {
        op_type: Some(op.to_owned()),
        name: Some(format!("{op}_{}", outputs.first().unwrap_or(&""))),
        input: owned(inputs),
        output: owned(outputs),
        ..Default::default()
    }
}

/// A tensor without contents.
#[must_use]
pub fn tensor(name: &str, dtype: DType, dims: &[u64]) -> pb::TensorProto {
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(number(dtype)),
        dims: dims
            .iter()
            .map(|&d| i64::try_from(d).unwrap_or(i64::MAX))
            .collect(),
        ..Default::default()
    }
}

/// Name and type of a value; see [`GraphBuilder::input`] for `dims`.
#[must_use]
pub fn value_info(name: &str, dtype: DType, dims: &str) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::dimension::Value;
    let dim = |text: &str| pb::tensor_shape_proto::Dimension {
        value: match text.parse() {
            Ok(n) => Some(Value::DimValue(n)),
            Err(_) if text == "?" => None,
            Err(_) => Some(Value::DimParam(text.to_owned())),
        },
        denotation: None,
    };
    let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
    let tensor = pb::type_proto::Tensor {
        elem_type: Some(number(dtype)),
        shape: Some(pb::TensorShapeProto {
            dim: dims.map(dim).collect(),
        }),
    };
    pb::ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(pb::TypeProto {
            value: Some(pb::type_proto::Value::TensorType(tensor)),
            denotation: None,
        }),
        ..Default::default()
    }
}

/// The ONNX number of an element type; 0 (undefined) for types that tensors do not have.
#[must_use]
pub fn number(dtype: DType) -> i32 {
    (1..64)
        .find(|&n| crate::onnx::element(n) == Some(dtype))
        .unwrap_or(0)
}
