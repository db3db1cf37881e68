//! The bytes of files: mapped into memory, and, for contents of tensors that a model keeps in
//! other files, only from inside the model's folder.
//!
//! A mapped file is read when its bytes are looked at, not before: planning a model touches no
//! weights. The price is that a file which another program *cuts short* while it is mapped ends
//! the process with a bus error, and one that is changed gives changed bytes. Do not write to
//! model files that are in use. Small files are copied and have no such risk.

use bytes::Bytes;
use memmap2::Mmap;
use std::collections::HashMap;
use std::fs::{self, File, FileType};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use tenure_graph::{Tensor, TensorData};

use crate::error::{FormatError, WeightsProblem};

/// Files up to so many bytes are copied.
const COPY_LIMIT: u64 = 1 << 20;

/// The bytes of a file.
///
/// # Errors
/// [`FormatError::Io`], [`FormatError::NotAFile`], or [`FormatError::Empty`].
pub fn open(path: &Path) -> Result<Bytes, FormatError> {
    // Asked before it is opened: opening a pipe waits for a writer.
    let about = fs::metadata(path).map_err(FormatError::Io)?;
    if let Some(what) = other_than_file(about.file_type()) {
        return Err(FormatError::NotAFile(what));
    }
    let bytes = bytes_of(path).map_err(FormatError::Io)?;
    if bytes.is_empty() {
        return Err(FormatError::Empty);
    }
    Ok(bytes)
}

fn bytes_of(path: &Path) -> std::io::Result<Bytes> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() <= COPY_LIMIT {
        let mut bytes = Vec::new();
        file.by_ref().take(COPY_LIMIT).read_to_end(&mut bytes)?;
        return Ok(bytes.into());
    }
    // Safety: the map is private and read-only, and `Bytes` hands it out as `&[u8]` alone. That
    // its contents stay as they are lies with whoever owns the file; the module says so.
    #[allow(
        unsafe_code,
        reason = "mapping a file is the one way not to read its weights"
    )]
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

fn other_than_file(ty: FileType) -> Option<&'static str> {
    if ty.is_file() {
        None
    } else if ty.is_dir() {
        Some("a folder")
    } else {
        Some("a pipe, a socket or a device")
    }
}

/// Checks that the file that a model names for the contents of a tensor lies in the model's
/// folder, by its text and, where it exists, by where links lead. The file may be absent.
///
/// # Errors
/// [`FormatError::Weights`] with [`WeightsProblem::Outside`].
pub(crate) fn check_location(folder: Option<&Path>, location: &str) -> Result<(), FormatError> {
    let outside = |why| FormatError::Weights {
        path: Vec::new(),
        location: location.to_owned(),
        problem: WeightsProblem::Outside(why),
    };
    // A model may be read on another system than the one that it is run on.
    let drive = location.as_bytes().get(1) == Some(&b':');
    if location.starts_with(['/', '\\']) || drive {
        return Err(outside("the path is absolute"));
    }
    if location.is_empty() || location.contains('\0') {
        return Err(outside("the path names no file"));
    }
    if location.split(['/', '\\']).any(|part| part == "..") {
        return Err(outside("the path holds \"..\""));
    }
    let plain = |c| matches!(c, Component::Normal(_) | Component::CurDir);
    if !Path::new(location).components().all(plain) {
        return Err(outside("the path is absolute"));
    }
    let Some(folder) = folder else { return Ok(()) };
    let Ok(file) = folder.join(location).canonicalize() else {
        return Ok(());
    };
    match folder.canonicalize() {
        Ok(folder) if file.starts_with(&folder) => Ok(()),
        _ => Err(outside("a link leads out; copy the file into the folder")),
    }
}

/// The contents of a model's tensors, wherever they are. Files are mapped once.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: HashMap<String, Bytes>,
}

impl Weights {
    /// For a model in the given folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Weights {
            folder: folder.into(),
            files: HashMap::new(),
        }
    }

    /// For the model in the given file.
    #[must_use]
    pub fn beside(model: &Path) -> Self {
        Self::new(folder_of(model))
    }

    /// The contents of a tensor: little-endian elements, sub-byte types packed.
    ///
    /// # Errors
    /// [`FormatError::Weights`]: the file is missing, too short or outside the model's folder, the
    /// contents were left out, or they are strings.
    pub fn contents(&mut self, tensor: &Tensor) -> Result<Bytes, FormatError> {
        let (location, offset, length) = match &tensor.data {
            TensorData::Bytes(bytes) => return Ok(bytes.clone()),
            TensorData::External {
                location,
                offset,
                length,
            } => (location, *offset, *length),
            TensorData::Strings(_) | TensorData::Absent => {
                return Err(FormatError::Weights {
                    path: Vec::new(),
                    location: String::new(),
                    problem: WeightsProblem::Absent,
                });
            }
        };
        let fail = |problem| FormatError::Weights {
            path: Vec::new(),
            location: location.clone(),
            problem,
        };
        let file = self.file(location)?;
        let size = file.len() as u64;
        let expected = tensor.elements().and_then(|n| tensor.dtype.bytes(n));
        let found = length.or(expected).unwrap_or(size.saturating_sub(offset));
        if let Some(expected) = expected.filter(|&e| e != found) {
            return Err(fail(WeightsProblem::Length { found, expected }));
        }
        let to = offset.saturating_add(found);
        let range = usize::try_from(offset).ok().zip(usize::try_from(to).ok());
        match range {
            Some((from, to)) if to <= file.len() => Ok(file.slice(from..to)),
            _ => Err(fail(WeightsProblem::Short {
                from: offset,
                to,
                size,
            })),
        }
    }

    fn file(&mut self, location: &str) -> Result<Bytes, FormatError> {
        if let Some(bytes) = self.files.get(location) {
            return Ok(bytes.clone());
        }
        check_location(Some(&self.folder), location)?;
        let path = self.folder.join(location);
        let fail = |problem| FormatError::Weights {
            path: Vec::new(),
            location: location.to_owned(),
            problem,
        };
        let about = fs::metadata(&path).map_err(|e| fail(WeightsProblem::Io(e)))?;
        if let Some(what) = other_than_file(about.file_type()) {
            return Err(fail(WeightsProblem::NotAFile(what)));
        }
        let bytes = bytes_of(&path).map_err(|e| fail(WeightsProblem::Io(e)))?;
        self.files.insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// The folder that a file lies in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::GraphBuilder;
    use tenure_graph::DType;

    /// The text of an error.
    fn said<T: std::fmt::Debug>(result: Result<T, FormatError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn locations_outside_the_folder_are_refused() {
        for (location, why) in [
            ("../w.bin", "holds \"..\""),
            ("a/../../w.bin", "holds \"..\""),
            ("a\\..\\w.bin", "holds \"..\""),
            ("/etc/passwd", "is absolute"),
            ("\\\\server\\w.bin", "is absolute"),
            ("C:\\w.bin", "is absolute"),
            ("c:w.bin", "is absolute"),
            ("", "names no file"),
            ("a\0b", "names no file"),
        ] {
            let text = said(check_location(None, location));
            assert!(text.contains(why), "{location:?}: {text}");
        }
        for location in ["w.bin", "./w.bin", "a/b/w.bin", "..w.bin", "a..b"] {
            check_location(None, location).unwrap();
        }
    }

    #[test]
    fn a_model_that_names_such_a_location_is_refused() {
        let mut g = GraphBuilder::new("../evil");
        g.input("x", DType::F32, "4");
        g.weight("w", DType::F32, &[4]);
        g.node("Add", &["x", "w"], &["y"]);
        g.output("y", DType::F32, "4");
        let text = said(crate::read_bytes(g.model(17).encode()));
        assert!(
            text.contains("\"../evil.absent.bin\" would lie outside"),
            "{text}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_folder_are_refused() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("w.bin"), [0; 8]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.bin");
        symlink(outside.path().join("w.bin"), &link).unwrap();
        symlink(outside.path(), folder.path().join("dir")).unwrap();
        fs::write(folder.path().join("in.bin"), [0; 8]).unwrap();
        symlink("in.bin", folder.path().join("inner.bin")).unwrap();
        for location in ["link.bin", "dir/w.bin"] {
            let text = said(check_location(Some(folder.path()), location));
            assert!(text.contains("a link leads out"), "{text}");
        }
        for location in ["in.bin", "inner.bin", "absent.bin", "dir/absent.bin"] {
            check_location(Some(folder.path()), location).unwrap();
        }
    }

    #[test]
    fn only_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            said(open(folder.path())),
            "is a folder; give the path of a file"
        );
        let empty = folder.path().join("empty");
        fs::write(&empty, []).unwrap();
        assert_eq!(said(open(&empty)), "is empty; a model was expected");
        assert!(said(open(&folder.path().join("none"))).starts_with("cannot be read: "));
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_do_not_hang() {
        let text = "is a pipe, a socket or a device; give the path of a file";
        assert_eq!(said(open("/dev/zero".as_ref())), text);
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(said(open(&pipe)), text);
        }
    }

    #[test]
    fn contents_come_from_the_file_beside_the_model() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.bin"), (0..16).collect::<Vec<u8>>()).unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        let mut weights = Weights::beside(&folder.path().join("m.onnx"));
        let mut contents = |location: &str, offset, length| {
            weights.contents(&Tensor {
                dtype: DType::I16,
                shape: vec![3],
                data: TensorData::External {
                    location: location.to_owned(),
                    offset,
                    length,
                },
            })
        };
        let expected = [4, 5, 6, 7, 8, 9];
        assert_eq!(contents("w.bin", 4, Some(6)).unwrap(), expected[..]);
        assert_eq!(contents("w.bin", 4, None).unwrap(), expected[..]);
        let text = said(contents("w.bin", 11, None));
        assert!(
            text.ends_with("take bytes 11 to 17, but the file has 16"),
            "{text}"
        );
        let text = said(contents("w.bin", u64::MAX, None));
        assert!(text.contains("but the file has 16"), "{text}");
        let text = said(contents("w.bin", 0, Some(5)));
        assert!(
            text.ends_with("have 5 bytes; type and shape ask for 6"),
            "{text}"
        );
        assert!(said(contents("none.bin", 0, None)).contains("cannot be read"));
        assert!(said(contents("d", 0, None)).contains("it is a folder"));
        assert!(said(contents("../w.bin", 0, None)).contains("would lie outside"));
    }
}
