//! What must hold of every input: called by property tests and by the fuzz targets alike.

use arbitrary::{Result, Unstructured};

use super::{Size, any};
use crate::{canonical, identity, json, text, verify};

/// Whatever the bytes, reading them as JSON ends without a panic, and what is read is written and
/// read the same.
///
/// # Panics
/// When it is not so.
pub fn json(bytes: &[u8]) {
    if let Ok(graph) = json::read(bytes) {
        assert_eq!(verify(&graph), Ok(()));
        let written = json::write(&graph);
        let again = json::read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
        // What is no number is not equal to itself, so texts are compared and not graphs.
        assert_eq!(json::write(&again), written);
        assert_eq!(identity(&again), identity(&graph), "{written}");
    }
}

/// The same for the text form.
///
/// # Panics
/// When it is not so.
pub fn text(source: &str) {
    if let Ok(graph) = text::parse(source) {
        assert_eq!(verify(&graph), Ok(()));
        let printed = text::print(&graph);
        let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(text::print(&again), printed);
        assert_eq!(identity(&again), identity(&graph), "{printed}");
    }
}

/// A random graph is valid, and the same in canonical numbers and after a way through JSON and
/// through text.
///
/// # Errors
/// None but those of `u`.
///
/// # Panics
/// When it is not so.
pub fn formats(u: &mut Unstructured<'_>) -> Result<()> {
    let graph = any(u, Size::default())?;
    assert_eq!(verify(&graph), Ok(()));
    let canonical = canonical(&graph);
    assert_eq!(verify(&canonical), Ok(()));
    let written = json::write(&graph);
    let again = json::read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert!(again == canonical, "{written}");
    let printed = text::print(&graph);
    let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert!(again == canonical, "{printed}");
    for same in [&canonical, &again] {
        assert_eq!(identity(same), identity(&graph), "{printed}");
    }
    Ok(())
}
