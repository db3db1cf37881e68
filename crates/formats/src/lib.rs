//! Readers: model files and allocation tables become graphs and rows.
//!
//! ```no_run
//! let graph = tenure_formats::read("model.onnx".as_ref())?;
//! println!("{} nodes", graph.nodes.len());
//! # Ok::<(), tenure_formats::FormatError>(())
//! ```
//!
//! No file is trusted: sizes are checked before they are used, nesting is bounded, and a model
//! names no file outside its folder. Weights are never read to make a graph (see [`weights`]).

pub mod csv;
mod detect;
mod error;
mod ge;
mod generated;
mod onnx;
mod outline;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod weights;
mod wire;

pub use detect::{Kind, detect};
pub use error::{FormatError, Problem, Spot, WeightsProblem};

use bytes::Bytes;
use std::path::{Path, PathBuf};
use tenure_graph::Graph;
use tenure_graph::recorded::Recorded;

/// A file that holds a model: what kind it is, and its bytes.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// What the contents are.
    pub kind: Kind,
    /// The contents.
    pub bytes: Bytes,
    /// Where files lie that the model names.
    pub folder: Option<PathBuf>,
    /// Which model of a compiled file that holds several; 0 is the root.
    pub number: usize,
}

impl ModelFile {
    /// Opens a file and looks at what it is.
    ///
    /// # Errors
    /// [`FormatError::InFile`] around what [`weights::open`] and [`detect`] say.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let open = || {
            let bytes = weights::open(path)?;
            Ok(ModelFile {
                kind: detect(&bytes)?,
                bytes,
                folder: Some(weights::folder_of(path).to_owned()),
                number: 0,
            })
        };
        open().map_err(|e: FormatError| e.in_file(path))
    }

    /// The graph in it.
    ///
    /// # Errors
    /// What is wrong with the model; [`FormatError::NoModel`] for memory JSON, which has no graph.
    pub fn graph(&self) -> Result<Graph, FormatError> {
        match self.kind {
            Kind::Onnx => onnx::read(self.bytes.clone(), self.folder.as_deref()),
            Kind::GeOm | Kind::GeProto | Kind::GeText | Kind::GeOnnxText => {
                Ok(ge::read(self.kind, &self.bytes, self.number)?.graph)
            }
            Kind::GraphJson => Ok(tenure_graph::json::read(detect::without_mark(&self.bytes))?),
            Kind::MemoryJson => Err(FormatError::NoModel(
                "memory JSON, which lists buffers and has no graph".to_owned(),
            )),
        }
    }
}

impl ModelFile {
    /// The names of the models in a compiled file that holds several; none for other files.
    ///
    /// # Errors
    /// As for [`ModelFile::graph`].
    pub fn models(&self) -> Result<Vec<String>, FormatError> {
        match self.kind {
            Kind::GeOm => {
                let names = ge::names(&self.bytes)?;
                Ok(if names.len() > 1 { names } else { Vec::new() })
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The graph in it, and the plan that it carries; `None` for one that carries none.
    ///
    /// # Errors
    /// As for [`ModelFile::graph`].
    pub fn compiled(&self) -> Result<(Graph, Option<Recorded>), FormatError> {
        match self.kind {
            Kind::GeOm | Kind::GeProto | Kind::GeText | Kind::GeOnnxText => {
                let built = ge::read(self.kind, &self.bytes, self.number)?;
                Ok((built.graph, built.recorded))
            }
            Kind::Onnx | Kind::GraphJson | Kind::MemoryJson => Ok((self.graph()?, None)),
        }
    }
}

/// Reads the model in a file.
///
/// # Errors
/// [`FormatError::InFile`]: what is wrong with the file.
pub fn read(path: &Path) -> Result<Graph, FormatError> {
    let file = ModelFile::open(path)?;
    file.graph().map_err(|e| e.in_file(path))
}

/// Reads a model out of bytes. Locations of external data are checked by their text alone.
///
/// # Errors
/// What is wrong with the bytes.
pub fn read_bytes(bytes: impl Into<Bytes>) -> Result<Graph, FormatError> {
    let bytes = bytes.into();
    ModelFile {
        kind: detect(&bytes)?,
        bytes,
        folder: None,
        number: 0,
    }
    .graph()
}
