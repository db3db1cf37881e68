//! Reading graph JSON.
//!
//! Nodes are taken in one at a time, so that a large file needs no second copy of itself in
//! memory. What a single node says is checked here; how nodes fit together, in `link`.

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

use super::attr::{read_attrs, read_dtype};
use super::{FORMAT, JsonError};
use crate::effects::OpTable;
use crate::ir::runs_nothing;
use crate::link::{GraphDef, ModelDef, NodeDef, OutputDef, Ref, RefTo, link};
use crate::{Attrs, Dialect, Dim, Graph, OutputHints, Shape, StreamId};
use crate::{events, tensor_kinds};

/// Reads a graph.
///
/// # Errors
/// See [`JsonError`]: no JSON, a key with a value of the wrong kind, names that do not fit
/// together, a graph that [`crate::verify()`] refuses. Every message names the place.
pub fn read(json: &[u8]) -> Result<Graph, JsonError> {
    let file: File = serde_json::from_slice(json)?;
    if file.format != FORMAT {
        return Err(JsonError::Format(file.format));
    }
    let table = OpTable::builtin(file.dialect.0);
    let mut graphs = file.graphs;
    for graph in &mut graphs {
        graph.nodes.iter_mut().for_each(tensor_kinds::to_list);
        events::to_control(&mut graph.nodes, &table);
    }
    let graph = link(ModelDef {
        name: file.name,
        dialect: file.dialect.0,
        opsets: (file.opsets.into_iter())
            .map(|o| (o.domain, o.version))
            .collect(),
        options: file.options.0,
        graphs,
    })?;
    match crate::verify::verify(&graph) {
        Ok(()) => Ok(graph),
        Err(broken) => Err(JsonError::Broken(broken)),
    }
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object with the keys \"format\" and \"graphs\"")]
struct File {
    format: String,
    #[serde(default)]
    name: String,
    #[serde(default = "usual_dialect")]
    dialect: DialectName,
    #[serde(default)]
    opsets: Vec<Opset>,
    #[serde(default)]
    options: Options,
    graphs: Vec<GraphDef>,
}

#[derive(serde::Deserialize)]
struct Opset {
    #[serde(default = "no_domain")]
    domain: Arc<str>,
    version: i64,
}

fn no_domain() -> Arc<str> {
    Arc::from("")
}

fn usual_dialect() -> DialectName {
    DialectName(Dialect::Ge)
}

struct DialectName(Dialect);

impl<'de> Deserialize<'de> for DialectName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = String::deserialize(d)?;
        Dialect::from_name(&name).map(DialectName).ok_or_else(|| {
            let known = Dialect::ALL.map(Dialect::name).join(", ");
            de::Error::custom(format!("\"dialect\" is {name:?}, expected one of {known}"))
        })
    }
}

#[derive(Default)]
struct Options(Attrs);

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let map = Map::deserialize(d)?;
        read_attrs(map)
            .map(Options)
            .map_err(|e| de::Error::custom(format!("options: {e}")))
    }
}

impl<'de> Deserialize<'de> for GraphDef {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = GraphDef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a graph: an object with the keys \"name\" and \"nodes\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GraphDef, A::Error> {
                let mut name = None;
                let mut nodes: Option<Vec<(Option<i64>, NodeDef)>> = None;
                let mut others = Map::new();
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "name" => name = Some(map.next_value()?),
                        "nodes" => {
                            let list: Vec<OrderedNode> = map.next_value()?;
                            nodes = Some(list.into_iter().map(|n| (n.order, n.node)).collect());
                        }
                        _ => {
                            others.insert(key, map.next_value()?);
                        }
                    }
                }
                let name: String = name.ok_or_else(|| de::Error::missing_field("name"))?;
                let nodes = nodes.ok_or_else(|| de::Error::missing_field("nodes"))?;
                let attrs = read_attrs(others)
                    .map_err(|e| de::Error::custom(format!("graph {name:?}: {e}")))?;
                Ok(GraphDef {
                    name,
                    attrs,
                    nodes: in_order(nodes),
                })
            }
        }
        d.deserialize_map(Keys)
    }
}

/// Sorts nodes by `order`, or else position.
fn in_order(nodes: Vec<(Option<i64>, NodeDef)>) -> Vec<NodeDef> {
    let mut nodes: Vec<(i64, NodeDef)> = (0i64..)
        .zip(nodes)
        .map(|(position, (order, node))| (order.unwrap_or(position), node))
        .collect();
    nodes.sort_by_key(|(order, _)| *order);
    nodes.into_iter().map(|(_, node)| node).collect()
}

struct OrderedNode {
    order: Option<i64>,
    node: NodeDef,
}

impl<'de> Deserialize<'de> for OrderedNode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mut keys = Keys(Map::deserialize(d)?);
        let name = keys.text("name").map_err(de::Error::custom)?;
        let name = name.ok_or_else(|| de::Error::custom("a node has no \"name\""))?;
        read_node(name.clone(), keys).map_err(|e| de::Error::custom(format!("node {name:?}: {e}")))
    }
}

fn read_node(name: String, mut keys: Keys) -> Result<OrderedNode, String> {
    let op: Arc<str> = keys.text("op")?.ok_or("\"op\" is missing")?.into();
    let stream = match keys.int("stream")? {
        None if runs_nothing(&op) => None,
        None => Some(StreamId::from_u32(0)),
        Some(-1) => None,
        Some(stream) => Some(StreamId::from_u32(
            u32::try_from(stream)
                .ok()
                .filter(|&s| s < u32::MAX)
                .ok_or("\"stream\" is a stream's number, or -1 for none")?,
        )),
    };
    let node = NodeDef {
        domain: keys.text("domain")?.unwrap_or_default().into(),
        inputs: keys.list("inputs", read_input)?,
        outputs: keys.list("outputs", read_output)?,
        control: keys.list("control", read_text)?,
        attrs: keys.attrs("attrs")?,
        input_attrs: keys.list("input_attrs", |value| match value {
            Value::Null => Ok(Attrs::new()),
            Value::Object(map) => read_attrs(map),
            other => Err(expected("an object", &other)),
        })?,
        bodies: keys.list("subgraphs", read_body)?,
        workspace: keys.list("workspace", |value| {
            value
                .as_i64()
                .ok_or_else(|| expected("a number of bytes", &value))
        })?,
        stream,
        name,
        op,
        extra: Attrs::new(),
    };
    let order = keys.int("order")?;
    let extra = read_attrs(keys.0)?;
    Ok(OrderedNode {
        order,
        node: NodeDef { extra, ..node },
    })
}

fn read_input(value: Value) -> Result<Option<Ref>, String> {
    let (graph, text) = match value {
        Value::Null => return Ok(None),
        Value::String(text) => (None, text),
        Value::Object(map) => {
            let mut keys = Keys(map);
            let graph = keys.text("graph")?.ok_or("\"graph\" is missing")?;
            let text = keys.text("value")?.ok_or("\"value\" is missing")?;
            (Some(graph), text)
        }
        other => return Err(expected("\"NODE:OUTPUT_INDEX\" or null", &other)),
    };
    let (node, output) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("{text:?} is not \"NODE:OUTPUT_INDEX\""))?;
    let output = output
        .parse()
        .map_err(|_| format!("{text:?} names output {output:?}, which is no output's number"))?;
    Ok(Some(Ref {
        graph,
        to: RefTo::Slot(node.to_owned(), output),
    }))
}

fn read_body(value: Value) -> Result<(Arc<str>, String), String> {
    let Value::Object(map) = value else {
        return Err(expected("an object with \"role\" and \"graph\"", &value));
    };
    let mut keys = Keys(map);
    let graph = keys.text("graph")?.ok_or("\"graph\" is missing")?;
    let role = keys.text("role")?.ok_or("\"role\" is missing")?;
    Ok((role.into(), graph))
}

fn read_output(value: Value) -> Result<Option<OutputDef>, String> {
    let map = match value {
        Value::Null => return Ok(None),
        Value::Object(map) => map,
        other => return Err(expected("an object or null", &other)),
    };
    let mut keys = Keys(map);
    let dtype = keys.text("dtype")?;
    let shape = match keys.0.shift_remove("shape") {
        None | Some(Value::Null) => None,
        Some(Value::Array(dims)) => Some(
            dims.into_iter()
                .map(read_dim)
                .collect::<Result<Shape, _>>()
                .map_err(|e| format!("\"shape\": {e}"))?,
        ),
        Some(other) => return Err(format!("\"shape\": {}", expected("a list", &other))),
    };
    let name = keys.text("name")?;
    let hints = OutputHints {
        ref_input: keys.index("ref_input")?,
        reuse_input: keys.index("reuse_input")?,
        may_inplace: keys.list("may_inplace", read_index)?,
        size: keys.take("size", |value| {
            value
                .as_u64()
                .ok_or_else(|| expected("a number of bytes", &value))
        })?,
        shape_range: keys.list("shape_range", |value| {
            serde_json::from_value(value.clone())
                .map_err(|_| expected("a pair of numbers, least and greatest", &value))
        })?,
        attrs: keys.attrs("attrs")?,
        extra: read_attrs(keys.0)?,
    };
    Ok(Some(OutputDef {
        name,
        dtype: dtype.map_or(Ok(crate::DType::Unknown), |name| read_dtype(&name))?,
        shape,
        hints: (hints != OutputHints::default()).then(|| Box::new(hints)),
    }))
}

fn read_dim(value: Value) -> Result<Dim, String> {
    match &value {
        Value::Null => Ok(Dim::Unknown),
        Value::String(formula) => Ok(Dim::parse(formula)),
        Value::Number(n) if n.as_i64() == Some(-1) => Ok(Dim::Unknown),
        Value::Number(n) if n.is_u64() => Ok(n.as_u64().map_or(Dim::Unknown, Dim::Known)),
        _ => Err(expected(
            "a size, a formula, or -1 for an unknown size",
            &value,
        )),
    }
}

fn read_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(expected("a text", &other)),
    }
}

fn read_index(value: Value) -> Result<u32, String> {
    value
        .as_u64()
        .and_then(|i| u32::try_from(i).ok())
        .ok_or_else(|| expected("an input's number", &value))
}

/// The keys of an object that nobody took yet.
struct Keys(Map<String, Value>);

impl Keys {
    /// The value of a key, read by `read`; `None` when the key is missing or null.
    fn take<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        // Order matters only among the keys that are left over, so it is kept.
        match self.0.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).map_err(|e| format!("{key:?}: {e}")),
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        self.take(key, read_text)
    }

    fn index(&mut self, key: &str) -> Result<Option<u32>, String> {
        self.take(key, read_index)
    }

    fn int(&mut self, key: &str) -> Result<Option<i64>, String> {
        self.take(key, |value| {
            value
                .as_i64()
                .ok_or_else(|| expected("a whole number", &value))
        })
    }

    fn attrs(&mut self, key: &str) -> Result<Attrs, String> {
        let attrs = self.take(key, |value| match value {
            Value::Object(map) => read_attrs(map),
            other => Err(expected("an object", &other)),
        })?;
        Ok(attrs.unwrap_or_default())
    }

    fn list<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(Value) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let list = self.take(key, |value| {
            let Value::Array(list) = value else {
                return Err(expected("a list", &value));
            };
            (list.into_iter().enumerate())
                .map(|(i, value)| read(value).map_err(|e| format!("[{i}]: {e}")))
                .collect()
        })?;
        Ok(list.unwrap_or_default())
    }
}

/// "expected …, found …", the latter shortened.
fn expected(what: &str, found: &Value) -> String {
    match found {
        Value::Array(_) => format!("expected {what}, found a list"),
        Value::Object(_) => format!("expected {what}, found an object"),
        Value::String(text) if text.len() > 40 => format!("expected {what}, found a long text"),
        other => format!("expected {what}, found {other}"),
    }
}
