//! Attributes as JSON values, both ways.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::sync::Arc;

use crate::elements::{from_hex, from_list, to_hex, to_list};
use crate::verify::MAX_ATTR_DEPTH;
use crate::{Attr, Attrs, DType, Tensor, TensorData};

/// Keys of the one-key objects that stand for what JSON lacks.
const MARKS: [&str; 4] = ["tensor", "bytes", "float", "map"];

/// The attributes of a JSON object.
pub(super) fn read_attrs(map: serde_json::Map<String, Value>) -> Result<Attrs, String> {
    attrs_at(map, MAX_ATTR_DEPTH)
}

fn attrs_at(map: serde_json::Map<String, Value>, depth: usize) -> Result<Attrs, String> {
    map.into_iter()
        .map(|(name, value)| {
            let value = attr_at(value, depth).map_err(|e| format!("{name:?}: {e}"))?;
            Ok((name, value))
        })
        .collect()
}

/// `depth` is how many more levels of lists and objects may follow.
fn attr_at(value: Value, depth: usize) -> Result<Attr, String> {
    let inside = || {
        depth
            .checked_sub(1)
            .ok_or_else(|| format!("lists and objects nest more than {MAX_ATTR_DEPTH} deep"))
    };
    Ok(match value {
        Value::Null => Attr::Null,
        Value::Bool(b) => Attr::Bool(b),
        Value::Number(n) => match n.as_i64() {
            Some(i) => Attr::Int(i),
            None if n.is_u64() => return Err(format!("{n} does not fit in 64 bits with sign")),
            None => Attr::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => Attr::Str(s),
        Value::Array(list) => {
            let depth = inside()?;
            let list = list.into_iter().map(|v| attr_at(v, depth));
            Attr::List(list.collect::<Result<_, _>>()?)
        }
        Value::Object(map) => {
            let depth = inside()?;
            let is_marked = map.len() == 1 && map.keys().all(|k| MARKS.contains(&&**k));
            if !is_marked {
                return Ok(Attr::Map(attrs_at(map, depth)?));
            }
            let mut parts = map.into_iter();
            match parts.next() {
                Some((mark, Value::Object(map))) if mark == "map" => {
                    Attr::Map(attrs_at(map, depth)?)
                }
                Some((mark, Value::Object(map))) if mark == "tensor" => {
                    let tensor = read_tensor(map).map_err(|e| format!("tensor: {e}"))?;
                    Attr::Tensor(Arc::new(tensor))
                }
                Some((mark, Value::String(text))) if mark == "bytes" => {
                    Attr::Bytes(from_hex(&text)?)
                }
                Some((mark, Value::String(text))) if mark == "float" => Attr::Float(
                    float_named(&text)
                        .ok_or_else(|| format!("{text:?} is none of nan, inf, -inf"))?,
                ),
                other => Attr::Map(attrs_at(other.into_iter().collect(), depth)?),
            }
        }
    })
}

fn float_named(text: &str) -> Option<f64> {
    Some(match text {
        "nan" => f64::NAN,
        "inf" => f64::INFINITY,
        "-inf" => f64::NEG_INFINITY,
        _ => return None,
    })
}

pub(super) fn read_dtype(name: &str) -> Result<DType, String> {
    name.parse().map_err(|e: crate::UnknownDType| e.to_string())
}

fn read_tensor(mut map: serde_json::Map<String, Value>) -> Result<Tensor, String> {
    let dtype = match map.remove("dtype") {
        Some(Value::String(name)) => read_dtype(&name)?,
        _ => return Err("expected a \"dtype\"".to_owned()),
    };
    let shape: Option<Vec<u64>> = match map.remove("shape") {
        Some(Value::Array(dims)) => dims.iter().map(Value::as_u64).collect(),
        _ => None,
    };
    let mut tensor = Tensor {
        dtype,
        shape: shape.ok_or("expected a \"shape\" of whole numbers")?,
        data: TensorData::Absent,
    };
    tensor.data = match (map.remove("external"), map.remove("data")) {
        (Some(Value::Object(mut external)), None) => {
            let length = external.remove("length").unwrap_or(Value::Null);
            TensorData::External {
                location: match external.remove("location") {
                    Some(Value::String(location)) => location,
                    _ => return Err("external: expected a \"location\"".to_owned()),
                },
                offset: match external.remove("offset") {
                    None => 0,
                    Some(offset) => offset
                        .as_u64()
                        .ok_or("external: \"offset\" is a number of bytes")?,
                },
                length: match length {
                    Value::Null => None,
                    length => Some(
                        length
                            .as_u64()
                            .ok_or("external: \"length\" is a number of bytes")?,
                    ),
                },
            }
        }
        (Some(_), None) => return Err("\"external\" is an object".to_owned()),
        (Some(_), Some(_)) => return Err("give \"data\" or \"external\", not both".to_owned()),
        (None, None | Some(Value::Null)) => TensorData::Absent,
        (None, Some(Value::String(hex))) => TensorData::Bytes(from_hex(&hex)?),
        (None, Some(Value::Array(list))) => {
            let list = list.into_iter().map(|v| attr_at(v, 1));
            let list = list.collect::<Result<_, _>>()?;
            from_list(dtype, tensor.elements(), list).map_err(|e| format!("\"data\": {e}"))?
        }
        (None, Some(_)) => {
            return Err("\"data\" is a list, a hexadecimal text or null".to_owned());
        }
    };
    Ok(tensor)
}

/// Attributes that are written as a JSON object.
pub(super) struct JsonAttrs<'a>(pub(super) &'a Attrs);

impl Serialize for JsonAttrs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, attr)| (name, JsonAttr(attr))))
    }
}

/// An attribute that is written as a JSON value.
pub(super) struct JsonAttr<'a>(pub(super) &'a Attr);

impl Serialize for JsonAttr<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Attr::Null => s.serialize_unit(),
            Attr::Bool(b) => s.serialize_bool(*b),
            Attr::Int(i) => s.serialize_i64(*i),
            Attr::Float(f) if f.is_finite() => s.serialize_f64(*f),
            Attr::Float(f) => marked(s, "float", &float_name(*f)),
            Attr::Str(text) => s.serialize_str(text),
            Attr::Bytes(bytes) => marked(s, "bytes", &to_hex(bytes)),
            Attr::List(list) => s.collect_seq(list.iter().map(JsonAttr)),
            Attr::Map(map) if map.len() == 1 && map.iter().all(|(k, _)| MARKS.contains(&k)) => {
                marked(s, "map", &JsonAttrs(map))
            }
            Attr::Map(map) => JsonAttrs(map).serialize(s),
            Attr::Tensor(tensor) => marked(s, "tensor", &JsonTensor(tensor)),
        }
    }
}

fn float_name(f: f64) -> &'static str {
    if f.is_nan() {
        "nan"
    } else if f > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

fn marked<S: Serializer>(s: S, mark: &str, value: &impl Serialize) -> Result<S::Ok, S::Error> {
    s.collect_map([(mark, value)])
}

struct JsonTensor<'a>(&'a Tensor);

impl Serialize for JsonTensor<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let tensor = self.0;
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("dtype", tensor.dtype.name())?;
        map.serialize_entry("shape", &tensor.shape)?;
        match &tensor.data {
            TensorData::External {
                location,
                offset,
                length,
            } => {
                let external = External {
                    location,
                    offset: *offset,
                    length: *length,
                };
                map.serialize_entry("external", &external)?;
            }
            TensorData::Absent => map.serialize_entry("data", &())?,
            _ if !tensor.is_small() => map.serialize_entry("data", &())?,
            data => match (to_list(tensor), data) {
                (Some(list), _) => {
                    let list: Vec<JsonAttr> = list.iter().map(JsonAttr).collect();
                    map.serialize_entry("data", &list)?;
                }
                (None, TensorData::Bytes(bytes)) => map.serialize_entry("data", &to_hex(bytes))?,
                (None, _) => map.serialize_entry("data", &())?,
            },
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct External<'a> {
    location: &'a str,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
}
