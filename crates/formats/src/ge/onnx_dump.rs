//! The dump that is styled after ONNX: what a node and its tensors are stands in attributes.
//!
//! All scalars of a node are attributes under their own names (`id`, `output_i` …), and so are the
//! fields of its tensors (`output_desc_size:0`) and their attributes (`output_desc_attr_NAME:0`).
//! A node with many tensors has each of them as a JSON object in one text (`output_desc_0`).
//! Subgraphs are nodes of the root with the operator `subgraph`; whose they are is not written, so a
//! model that has them is refused.

use std::sync::Arc;
use tenure_graph::{Attr, DType};

use super::attrs::Entries;
use super::model::{Desc, GraphDef, Model, Op};
use super::schema::{FLOAT, FLOATS, GRAPH_VALUE, INT, INTS, STRING, STRINGS};
use super::source::Source;
use super::types;
use crate::error::{FormatError, Problem, Within as _, quoted};
use crate::onnx::{MAX_ATTRIBUTES, MAX_INPUTS};
use crate::wire::{Field, Message};

/// What stands before the type of each operator.
const PREFIX: &str = "ge:";

/// The operator of a node that holds a subgraph.
const SUBGRAPH: &str = "subgraph";

/// Reads a `ModelProto` of such a dump.
///
/// # Errors
/// Damage; subgraphs, of which the dump does not say who runs them; an operator that is not one of
/// Graph Engine.
pub(super) fn model<'a>(source: Source<'a>, message: Message<'a>) -> Result<Model, FormatError> {
    let mut model = Model::default();
    for field in source.fields(message) {
        let field = field?;
        match field.number {
            2 => model.name = source.text(&field)?,
            7 => {
                let graph = graph(source, source.inside(&field)?)?;
                model.graphs.push(graph);
            }
            _ => {}
        }
    }
    Ok(model)
}

/// A `GraphProto`.
fn graph<'a>(source: Source<'a>, message: Message<'a>) -> Result<GraphDef, FormatError> {
    let mut graph = GraphDef::default();
    for field in source.fields(message) {
        let field = field?;
        match field.number {
            1 => {
                let op = node(source, source.inside(&field)?)?;
                graph.ops.push(op);
            }
            2 => graph.name = source.text(&field)?,
            12 => {
                for inner in source.fields(source.inside(&field)?) {
                    let inner = inner?;
                    if inner.number == 1 {
                        graph.outputs.push(source.text(&inner)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(graph)
}

/// A `NodeProto`.
fn node<'a>(source: Source<'a>, message: Message<'a>) -> Result<Op, FormatError> {
    let mut op = Op::default();
    let mut attributes = Vec::new();
    for field in source.fields(message) {
        let field = field?;
        match field.number {
            1 => op.inputs.push(source.text(&field)?),
            3 => op.name = source.text(&field)?,
            4 => op.op = source.text(&field)?,
            5 => attributes.push(attribute(source, &field)?),
            _ => {}
        }
    }
    let place = format!("node {}", quoted(&op.name));
    let Some(name) = op.op.strip_prefix(PREFIX) else {
        let problem = match &*op.op {
            SUBGRAPH => Problem::OwnerUnknown,
            _ => Problem::NotOfGe(op.op.clone()),
        };
        return Err(problem).within(|| place);
    };
    op.op = name.to_owned();
    let mut others = Entries::default();
    let mut kept = 0usize;
    let most = attributes.len().min(MAX_INPUTS);
    for (name, value) in attributes {
        if let Some(left) = take(&mut op, &name, value, most).within(|| place.clone())? {
            kept += 1;
            if kept > MAX_ATTRIBUTES {
                return Err(Problem::TooManyAttributes(kept)).within(|| place);
            }
            others.set(name.into(), left);
        }
    }
    op.attrs = others.done();
    for desc in op.input_descs.iter_mut().chain(&mut op.output_descs) {
        desc.attrs = sorted(std::mem::take(&mut desc.attrs));
    }
    Ok(op)
}

fn sorted(attrs: tenure_graph::Attrs) -> tenure_graph::Attrs {
    let mut entries = Entries::default();
    for (name, value) in attrs.iter() {
        entries.set(Arc::from(name), value.clone());
    }
    entries.done()
}

/// An `AttributeProto`: name and value.
fn attribute<'a>(source: Source<'a>, field: &Field<'a>) -> Result<(String, Attr), FormatError> {
    let mut name = String::new();
    let mut kind = 0;
    let (mut floats, mut ints, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for inner in source.fields(source.inside(field)?) {
        let inner = inner?;
        match inner.number {
            1 => name = source.text(&inner)?,
            2 | 7 => source.floats(&inner, &mut floats)?,
            3 | 8 => source.numbers(&inner, &mut ints)?,
            4 | 9 => texts.push(source.text(&inner)?),
            20 => kind = u32::try_from(source.number(&inner)?).unwrap_or(u32::MAX),
            _ => {}
        }
    }
    let floats = || floats.iter().map(|&f| Attr::Float(f.into()));
    let value = match kind {
        INT => ints.last().map_or(Attr::Int(0), |&i| Attr::Int(i)),
        FLOAT => floats().next_back().unwrap_or(Attr::Float(0.0)),
        STRING => Attr::Str(texts.pop().unwrap_or_default()),
        INTS => Attr::List(ints.into_iter().map(Attr::Int).collect()),
        FLOATS => Attr::List(floats().collect()),
        STRINGS => Attr::List(texts.into_iter().map(Attr::Str).collect()),
        GRAPH_VALUE => Attr::Null,
        _ => Attr::Null,
    };
    Ok((name, value))
}

/// Puts what an attribute says where it belongs; gives back one that is the node's own. A node has
/// at most `most` tensors on a side: each has an attribute of its own at least.
fn take(op: &mut Op, name: &str, value: Attr, most: usize) -> Result<Option<Attr>, Problem> {
    let ints = || value.as_ints().unwrap_or_default();
    let int = || value.as_int().unwrap_or_default();
    match name {
        "id" => op.id = int(),
        "stream_id" => op.stream = int(),
        "input_i" => op.input_offsets = ints(),
        "output_i" => op.output_offsets = ints(),
        "workspace" => op.workspace_offsets = ints(),
        "workspace_bytes" => op.workspace_bytes = ints(),
        "input_name" => {
            if let Attr::List(names) = &value {
                let names = names.iter().filter_map(Attr::as_str);
                op.input_names = names.map(str::to_owned).collect();
            }
        }
        "subgraph_name" => return Err(Problem::OwnerUnknown),
        // The same is said by the inputs of nodes.
        "src_name" | "src_index" | "dst_name" | "dst_index" | "is_input_const" => {}
        _ => {
            let side = match name.split_once("_desc_") {
                Some(("input", field)) => Some((&mut op.input_descs, field)),
                Some(("output", field)) => Some((&mut op.output_descs, field)),
                _ => None,
            };
            return match side {
                Some((descs, field)) => tensor(descs, field, value, most).map(|()| None),
                None => Ok(Some(value)),
            };
        }
    }
    Ok(None)
}

/// What a field says of one of a node's tensors.
fn tensor(descs: &mut Vec<Desc>, field: &str, value: Attr, most: usize) -> Result<(), Problem> {
    if field == "nums" {
        let number = value.as_int().and_then(|n| usize::try_from(n).ok());
        return grow(descs, number.unwrap_or_default(), most).map(drop);
    }
    if let Ok(place) = field.parse::<usize>() {
        let text = value.as_str().unwrap_or_default();
        let desc = grow(descs, place.saturating_add(1), most)?;
        return whole(desc, text);
    }
    let Some((field, place)) = field.rsplit_once(':') else {
        return Ok(());
    };
    let Ok(place) = place.parse::<usize>() else {
        return Ok(());
    };
    let Some(desc) = grow(descs, place.saturating_add(1), most)? else {
        return Ok(());
    };
    set(desc, field, value)
}

/// Makes sure that there are so many descriptions; gives back the last of them.
fn grow(descs: &mut Vec<Desc>, number: usize, most: usize) -> Result<Option<&mut Desc>, Problem> {
    if number > most {
        return Err(Problem::Tensors { number, most });
    }
    if descs.len() < number {
        // Which input an output refers to is not written.
        descs.resize_with(number, || Desc {
            reused: None,
            ..Desc::default()
        });
    }
    Ok(number.checked_sub(1).and_then(|last| descs.get_mut(last)))
}

/// Sets a field of a description.
fn set(desc: &mut Desc, field: &str, value: Attr) -> Result<(), Problem> {
    match field {
        "dtype" => {
            let name = value.as_str().unwrap_or_default();
            let dtype = types::named(name);
            desc.dtype = dtype.ok_or_else(|| Problem::ElementName(name.to_owned()))?;
        }
        "shape" => desc.dims = numbers(&value).ok_or_else(|| no_number(field))?,
        "size" => desc.size = number(&value).ok_or_else(|| no_number(field))?,
        "reuse_input" => desc.reuses = value.as_bool() == Some(true),
        "name" => desc.name = value.as_str().unwrap_or_default().to_owned(),
        _ => {
            if let Some(name) = field.strip_prefix("attr_")
                && desc.attrs.len() < MAX_ATTRIBUTES
            {
                desc.attrs.set(name, value);
            }
        }
    }
    Ok(())
}

/// A whole number, also as text.
fn number(value: &Attr) -> Option<i64> {
    match value {
        Attr::Str(text) => text.parse().ok(),
        other => other.as_int(),
    }
}

fn numbers(value: &Attr) -> Option<Vec<i64>> {
    match value {
        Attr::List(items) => items.iter().map(number).collect(),
        one => number(one).map(|n| vec![n]),
    }
}

fn no_number(field: &str) -> Problem {
    Problem::Damaged(format!(
        "the {field:?} of a tensor is not made of whole numbers"
    ))
}

/// Reads a whole description that stands in JSON, with the same names of fields.
fn whole(desc: Option<&mut Desc>, text: &str) -> Result<(), Problem> {
    let Some(desc) = desc else { return Ok(()) };
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)
        .map_err(|e| Problem::Damaged(format!("the description of a tensor is no JSON: {e}")))?;
    let mut has_shape = false;
    for (name, value) in fields {
        let value = match value {
            serde_json::Value::Bool(flag) => Attr::Bool(flag),
            serde_json::Value::Number(n) => n.as_i64().map_or(Attr::Null, Attr::Int),
            serde_json::Value::String(text) => Attr::Str(text),
            serde_json::Value::Array(items) => {
                let item = |item: serde_json::Value| match item {
                    serde_json::Value::String(text) => Attr::Str(text),
                    other => other.as_i64().map_or(Attr::Null, Attr::Int),
                };
                Attr::List(items.into_iter().map(item).collect())
            }
            serde_json::Value::Null | serde_json::Value::Object(_) => Attr::Null,
        };
        has_shape |= name == "shape";
        set(desc, &name, value)?;
    }
    if !has_shape && desc.size <= 0 {
        let problem = "the description of a tensor has neither \"shape\" nor \"size\"";
        return Err(Problem::Damaged(problem.to_owned()));
    }
    if desc.dtype == DType::Unknown && desc.size <= 0 {
        let problem = "the description of a tensor has neither \"dtype\" nor \"size\"";
        return Err(Problem::Damaged(problem.to_owned()));
    }
    Ok(())
}
