//! Models of Graph Engine: compiled (`.om`), not yet compiled (`.air`), and the dumps that it writes
//! of both.
//!
//! | file | what is read of it |
//! | --- | --- |
//! | `.om` | the model's definition out of the container, in its three forms; not weights, kernels, tasks |
//! | `.air` | the binary form of `ge.proto` |
//! | `ge_proto_*.txt` | its text form |
//! | `ge_onnx_*.pbtxt` | the text form that is styled after ONNX, for models without subgraphs |
//!
//! All of them become one intermediate [`model`], and that becomes a graph ([`build`]). The file is
//! read field by field where it lies; texts are translated to the binary form first ([`text`]). So
//! there is one decoder, and memory grows with the file alone.

mod attrs;
mod build;
pub(crate) mod container;
mod decode;
mod lexer;
mod model;
mod onnx_dump;
mod order;
mod schema;
mod source;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod types;

#[cfg(any(test, feature = "testing"))]
pub(crate) use types::NAMES;

pub(crate) use build::Built;

use bytes::Bytes;

use crate::Kind;
use crate::detect::without_mark;
use crate::error::FormatError;
use crate::wire::Message;
use container::Definition;
use model::Model;
use source::Source;

/// Reads a model of one of Graph Engine's kinds; `number` says which, where a compiled file holds
/// several.
///
/// # Errors
/// What is wrong with it, and where.
pub(crate) fn read(kind: Kind, file: &Bytes, number: usize) -> Result<Built, FormatError> {
    let model = match kind {
        Kind::GeOm => compiled(file, number),
        Kind::GeText => from_text(file, &schema::MODEL, decode::model),
        Kind::GeOnnxText => from_text(file, &schema::ONNX_MODEL, onnx_dump::model),
        _ => {
            let what = "model of Graph Engine";
            decode::model(Source { file, what }, Message::whole(file))
        }
    };
    build::build(model?)
}

/// A model in a container.
fn compiled(file: &Bytes, number: usize) -> Result<Model, FormatError> {
    let source = container_of(file);
    let most = u64::try_from(number).map_or(u64::MAX, |n| n.saturating_add(1));
    let all = container::definitions(source, most)?;
    let models = all.len();
    match all.into_iter().nth(number) {
        Some(Definition::Current(message)) => decode::model(source, message),
        Some(Definition::Of2019(message)) => decode::model_of_2019(source, message),
        None => Err(FormatError::NoSuchModel { number, models }),
    }
}

/// The names of the models in a container, in the order of the file.
///
/// # Errors
/// Damage, encryption.
pub(crate) fn names(file: &Bytes) -> Result<Vec<String>, FormatError> {
    let source = container_of(file);
    let all = container::definitions(source, container::MOST_MODELS)?.into_iter();
    let name = |one| match one {
        Definition::Current(message) | Definition::Of2019(message) => decode::name(source, message),
    };
    all.map(name).collect()
}

fn container_of(file: &Bytes) -> Source<'_> {
    let what = "compiled model (.om)";
    Source { file, what }
}

/// The model in a text.
fn from_text(
    file: &Bytes,
    schema: &'static schema::Schema,
    decode: fn(Source<'_>, Message<'_>) -> Result<Model, FormatError>,
) -> Result<Model, FormatError> {
    let binary = Bytes::from(text::to_binary(without_mark(file), schema)?);
    let what = "text dump of Graph Engine";
    let source = Source {
        file: &binary,
        what,
    };
    decode(source, Message::whole(&binary))
}
