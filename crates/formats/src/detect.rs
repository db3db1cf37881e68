//! What a file is, told by its contents and never by its name.

use crate::error::{FormatError, Problem, quoted};
use crate::ge::container::MAGIC;
use crate::ge::text::{Dump, probe};
use crate::outline::{Outline, Proto, outline};

/// A kind of file that a plan can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ONNX model (protobuf).
    Onnx,
    /// A compiled model of Graph Engine (`.om`), which carries a plan.
    GeOm,
    /// A model of Graph Engine in the binary form of `ge.proto` (`.air`).
    GeProto,
    /// A dump of Graph Engine in the text form of `ge.proto`.
    GeText,
    /// A dump of Graph Engine in the text form that is styled after ONNX.
    GeOnnxText,
    /// Graph JSON, `tenure.graph/1`.
    GraphJson,
    /// Memory JSON, `tenure.memory/1`: buffers and lifetimes without a graph.
    MemoryJson,
}

impl Kind {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Onnx => "onnx",
            Kind::GeOm => "ge-om",
            Kind::GeProto => "ge-proto",
            Kind::GeText => "ge-proto-text",
            Kind::GeOnnxText => "ge-onnx-text",
            Kind::GraphJson => "graph-json",
            Kind::MemoryJson => "memory-json",
        }
    }
}

/// First bytes of files that are no models, or none that is read, from a position on.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (0, b"GIF8", "a GIF picture"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x7fELF", "an ELF program or library"),
    (
        0,
        b"PK\x03\x04",
        "a zip archive (a PyTorch file or a wheel?)",
    ),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
    (4, b"TFL3", "a TensorFlow Lite model, which is not read"),
    (
        4,
        b"ORTM",
        "an ORT-format model, which is not read; give the ONNX file that it was made from",
    ),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras?)"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x80\x02", "a Python pickle (an old PyTorch file?)"),
    (0, b"\x80\x04", "a Python pickle"),
    (
        8,
        b"{\"",
        "a safetensors file, which holds weights and no graph",
    ),
    (
        0,
        b"version https://git-lfs",
        "a Git LFS pointer; fetch the file itself",
    ),
];

/// The kind of a file with these contents.
///
/// # Errors
/// [`FormatError::NoModel`] says what the contents look like instead; [`FormatError::Damaged`] and
/// [`FormatError::Model`] for an ONNX file that is cut short, [`FormatError::Empty`]. That a file is
/// one of Graph Engine's is told before it is known to be whole.
///
/// ```
/// use tenure_formats::{Kind, detect};
/// assert_eq!(detect(b" {\"format\": \"tenure.graph/1\", \"graphs\": []}")?, Kind::GraphJson);
/// let error = detect(b"\xff\xd8\xff\xe0\0\x10JFIF").unwrap_err();
/// assert!(error.to_string().starts_with("looks like a JPEG picture"));
/// # Ok::<(), tenure_formats::FormatError>(())
/// ```
pub fn detect(bytes: &[u8]) -> Result<Kind, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty);
    }
    let onnx = outline(bytes, Proto::Onnx);
    if onnx == (Outline::Model { graph: true }) {
        return Ok(Kind::Onnx);
    }
    if bytes.starts_with(MAGIC) {
        return Ok(Kind::GeOm);
    }
    let signed = |(at, magic, _): &&(usize, &[u8], &str)| {
        bytes.get(*at..).is_some_and(|b| b.starts_with(magic))
    };
    if let Some((_, _, what)) = SIGNATURES.iter().find(signed) {
        return Err(FormatError::NoModel((*what).to_owned()));
    }
    let text = without_mark(bytes).trim_ascii_start();
    if text.first() == Some(&b'{') {
        return json(text);
    }
    let ge = outline(bytes, Proto::Ge);
    if ge == (Outline::Model { graph: true }) {
        return Ok(Kind::GeProto);
    }
    if is_text(bytes) {
        match probe(text) {
            Some(Dump::Proto) => return Ok(Kind::GeText),
            Some(Dump::Onnx) => return Ok(Kind::GeOnnxText),
            Some(Dump::Readable) => {
                return Err(FormatError::NoModel(
                    "a dump of Graph Engine for people (ge_readable), which has no sizes; dump \
                     with DUMP_GRAPH_FORMAT=ge_proto"
                        .to_owned(),
                ));
            }
            None => {}
        }
        let first: String = String::from_utf8_lossy(text).chars().take(40).collect();
        let first = first.lines().next().unwrap_or_default();
        return Err(FormatError::NoModel(format!("text that begins {first:?}")));
    }
    match (onnx, ge) {
        (Outline::Broken(problem), _) => Err(FormatError::Damaged(problem)),
        // The reader says where.
        (_, Outline::Broken(_)) => Ok(Kind::GeProto),
        (Outline::Model { .. }, _) | (_, Outline::Model { .. }) => Err(Problem::NoGraph.into()),
        (Outline::Other, Outline::Other) => Err(FormatError::NoModel(
            "binary data of an unknown kind".to_owned(),
        )),
    }
}

/// The bytes without a byte-order mark before them.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The kind that the key `format` of a JSON file names.
fn json(text: &[u8]) -> Result<Kind, FormatError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: Option<serde_json::Value>,
    }
    let head: Head = serde_json::from_slice(text)
        .map_err(|e| FormatError::NoModel(format!("JSON with a mistake ({e})")))?;
    let no_model = |what: String| Err(FormatError::NoModel(what));
    match head.format.as_ref().and_then(|f| f.as_str()) {
        Some("tenure.graph/1") => Ok(Kind::GraphJson),
        Some("tenure.memory/1") => Ok(Kind::MemoryJson),
        Some("tenure.plan/1") => no_model("a saved plan (\"format\": \"tenure.plan/1\")".into()),
        Some(other) => no_model(format!("JSON of the format {}", quoted(other))),
        None => no_model("JSON without the key \"format\"".into()),
    }
}

/// Whether the first bytes are text.
fn is_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1024)];
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c');
    match std::str::from_utf8(head) {
        Ok(text) => !text.contains(is_control),
        // The last character may be cut.
        Err(e) if e.error_len().is_none() => {
            let text = std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default();
            !text.contains(is_control)
        }
        Err(_) => false,
    }
}
