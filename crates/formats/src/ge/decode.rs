//! The binary form of `ge.proto`: what is in an uncompiled model (`.air`), in the first partition of
//! a compiled one, and in text dumps once they are translated.
//!
//! Only fields that planning needs are read; the numbers are those of the schema.

use tenure_graph::Attr;

use super::attrs::{self, Codes, Entries, Reader};
use super::model::{Desc, GraphDef, Model, Op};
use super::source::Source;
use super::types;
use crate::error::FormatError;
use crate::wire::{Field, Message};

/// Reads a `ModelDef`.
///
/// # Errors
/// Damage, with its place.
pub(super) fn model<'a>(source: Source<'a>, message: Message<'a>) -> Result<Model, FormatError> {
    // The model's attributes, which explain the codes of all others, stand behind the graphs.
    let plain = Reader {
        source,
        codes: &Codes::default(),
    };
    let mut model = Model::default();
    let mut attrs = Entries::default();
    for field in source.fields(message) {
        let field = field?;
        match field.number {
            1 => model.name = source.text(&field)?,
            11 => plain.entry(&field, &mut attrs)?,
            _ => {}
        }
    }
    model.attrs = attrs.done();
    let codes = Codes::of(&model.attrs);
    let decoder = Decoder {
        reader: Reader {
            source,
            codes: &codes,
        },
        source,
    };
    for field in source.fields(message) {
        let field = field?;
        if field.number == 7 {
            let graph = decoder.graph(source.inside(&field)?)?;
            model.graphs.push(graph);
        }
    }
    Ok(model)
}

/// The name of a model, in either form.
///
/// # Errors
/// Damage, with its place.
pub(super) fn name<'a>(source: Source<'a>, message: Message<'a>) -> Result<String, FormatError> {
    for field in source.fields(message) {
        let field = field?;
        if field.number == 1 {
            return source.text(&field);
        }
    }
    Ok(String::new())
}

#[derive(Clone, Copy)]
struct Decoder<'a> {
    source: Source<'a>,
    reader: Reader<'a>,
}

impl<'a> Decoder<'a> {
    /// A `GraphDef`.
    fn graph(self, message: Message<'a>) -> Result<GraphDef, FormatError> {
        let source = self.source;
        let mut graph = GraphDef::default();
        let mut attrs = Entries::default();
        for field in source.fields(message) {
            let field = field?;
            match field.number {
                1 => graph.name = source.text(&field)?,
                5 => graph.outputs.push(source.text(&field)?),
                6 => graph.ops.push(self.op(source.inside(&field)?)?),
                11 => self.reader.entry(&field, &mut attrs)?,
                _ => {}
            }
        }
        graph.attrs = attrs.done();
        Ok(graph)
    }

    /// An `OpDef`.
    fn op(self, message: Message<'a>) -> Result<Op, FormatError> {
        let source = self.source;
        let mut op = Op::default();
        let mut attrs = Entries::default();
        for field in source.fields(message) {
            let field = field?;
            match field.number {
                1 => op.name = source.text(&field)?,
                2 => op.op = source.text(&field)?,
                5 => op.inputs.push(source.text(&field)?),
                10 => self.reader.entry(&field, &mut attrs)?,
                21 => op.id = source.number(&field)?,
                22 => op.stream = source.number(&field)?,
                23 => op.input_names.push(source.text(&field)?),
                28 => source.numbers(&field, &mut op.input_offsets)?,
                29 => source.numbers(&field, &mut op.output_offsets)?,
                30 => source.numbers(&field, &mut op.workspace_offsets)?,
                31 => source.numbers(&field, &mut op.workspace_bytes)?,
                33 => op.input_descs.push(self.desc(&field)?),
                34 => op.output_descs.push(self.desc(&field)?),
                35 => op.subgraphs.push(source.text(&field)?),
                _ => {}
            }
        }
        op.attrs = attrs.done();
        Ok(op)
    }

    /// A `TensorDescriptor`.
    fn desc(self, field: &Field<'a>) -> Result<Desc, FormatError> {
        let source = self.source;
        let mut desc = Desc::default();
        let mut attrs = Entries::default();
        for field in source.fields(source.inside(field)?) {
            let field = field?;
            match field.number {
                1 => desc.name = source.text(&field)?,
                2 => desc.dtype = attrs::element(source, &field, types::element)?,
                3 => desc.dims = attrs::shape(source, &field)?,
                5 => self.reader.entry(&field, &mut attrs)?,
                10 => desc.size = source.number(&field)?,
                12 => desc.reuses = source.flag(&field)?,
                17 => desc.reused = u32::try_from(source.number(&field)?).ok(),
                _ => {}
            }
        }
        desc.attrs = attrs.done();
        Ok(desc)
    }
}

/// Reads a `ModelDef` of 2019, which has its nodes in itself.
///
/// # Errors
/// Damage, with its place.
pub(super) fn model_of_2019<'a>(
    source: Source<'a>,
    message: Message<'a>,
) -> Result<Model, FormatError> {
    let reader = Reader {
        source,
        codes: &Codes::default(),
    };
    let mut model = Model::default();
    let mut graph = GraphDef::default();
    let mut attrs = Entries::default();
    for field in source.fields(message) {
        let field = field?;
        let mut set = |name: &str| -> Result<(), FormatError> {
            let number = source.number(&field)?;
            attrs.set(name.into(), Attr::Int(number));
            Ok(())
        };
        match field.number {
            1 => model.name = source.text(&field)?,
            10 => set("memory_size")?,
            11 => set("stream_num")?,
            12 => set("event_num")?,
            13 => set("weight_size")?,
            15 => set("label_num")?,
            20 => {
                let op = op_of_2019(reader, source.inside(&field)?)?;
                graph.ops.push(op);
            }
            30 => reader.entry(&field, &mut attrs)?,
            _ => {}
        }
    }
    graph.name.clone_from(&model.name);
    model.attrs = attrs.done();
    model.graphs.push(graph);
    Ok(model)
}

/// An `OpDef` of 2019: inputs are named by their producers, without the output where all are
/// output 0.
fn op_of_2019<'a>(reader: Reader<'a>, message: Message<'a>) -> Result<Op, FormatError> {
    let source = reader.source;
    let mut op = Op::default();
    let mut attrs = Entries::default();
    let (mut producers, mut outputs) = (Vec::new(), Vec::new());
    for field in source.fields(message) {
        let field = field?;
        match field.number {
            1 => op.name = source.text(&field)?,
            2 => op.op = source.text(&field)?,
            3 => op.id = source.number(&field)?,
            4 => op.stream = source.number(&field)?,
            5 => op.input_names.push(source.text(&field)?),
            8 => producers.push(source.text(&field)?),
            9 => source.numbers(&field, &mut outputs)?,
            10 => source.numbers(&field, &mut op.input_offsets)?,
            11 => source.numbers(&field, &mut op.output_offsets)?,
            12 => op.input_descs.push(desc_of_2019(source, &field)?),
            13 => op.output_descs.push(desc_of_2019(source, &field)?),
            20 => source.numbers(&field, &mut op.workspace_offsets)?,
            21 => source.numbers(&field, &mut op.workspace_bytes)?,
            30 => reader.entry(&field, &mut attrs)?,
            _ => {}
        }
    }
    for (k, producer) in producers.into_iter().enumerate() {
        let output = outputs.get(k).copied().unwrap_or(0);
        op.inputs.push(match &*producer {
            "" => producer,
            _ => format!("{producer}:{output}"),
        });
    }
    op.attrs = attrs.done();
    Ok(op)
}

/// A `TensorDescriptor` of 2019.
fn desc_of_2019<'a>(source: Source<'a>, field: &Field<'a>) -> Result<Desc, FormatError> {
    let mut desc = Desc {
        // Number 0, which is left out, is a type here.
        dtype: tenure_graph::DType::F32,
        ..Desc::default()
    };
    for field in source.fields(source.inside(field)?) {
        let field = field?;
        match field.number {
            2 => desc.dtype = attrs::element(source, &field, types::element_of_2019)?,
            3 => source.numbers(&field, &mut desc.dims)?,
            4 => desc.size = source.number(&field)?,
            5 => desc.reuses = source.flag(&field)?,
            11 => desc.reused = u32::try_from(source.number(&field)?).ok(),
            _ => {}
        }
    }
    Ok(desc)
}
