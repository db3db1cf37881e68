//! Keys of a file that may be misspelt: unknown ones that look like one of the format.
//!
//! Unknown keys are kept unread, so a `contol` loses its control edge without a word; a reader of
//! the file should be told.

use strsim::osa_distance;

use crate::verify::{NODE_KEYS, OUTPUT_KEYS};
use crate::{Attrs, Graph};

/// Keys shorter than this are near to too many others.
const SHORTEST: usize = 4;

/// How many letters may be wrong, missing or too many.
const WRONG_LETTERS: usize = 2;

/// At most so many are named.
const MOST: usize = 10;

/// What to tell of keys that nobody reads and that are nearly a key of the format, in the order of
/// the nodes; at most ten.
///
/// ```
/// let text = r#"{"format": "tenure.graph/1", "name": "m", "graphs": [{"name": "root", "nodes": [
///     {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [4]}]},
///     {"name": "y", "op": "Relu", "inputs": ["x:0"], "contol": ["x"]}]}]}"#;
/// let graph = tenure_graph::json::read(text.as_bytes())?;
/// assert_eq!(
///     tenure_graph::json::misspelt_keys(&graph),
///     ["node \"y\": nothing reads the key \"contol\"; is it \"control\"?"]
/// );
/// # Ok::<(), tenure_graph::json::JsonError>(())
/// ```
#[must_use]
pub fn misspelt_keys(graph: &Graph) -> Vec<String> {
    let nodes = graph.nodes.iter().flat_map(|(id, node)| {
        let outputs = node.outputs.iter().flatten();
        let hints = outputs.filter_map(|&v| graph.values[v].hints.as_deref());
        let own = near(&node.extra, NODE_KEYS);
        let of_outputs = hints.flat_map(|hints| near(&hints.extra, OUTPUT_KEYS));
        own.chain(of_outputs).map(move |(key, meant)| {
            let node = graph.node_label(id);
            format!("node {node:?}: nothing reads the key {key:?}; is it {meant:?}?")
        })
    });
    nodes.take(MOST).collect()
}

fn near<'a>(extra: &'a Attrs, keys: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    extra.iter().filter_map(move |(key, _)| {
        let is_near = |meant: &&&str| {
            key.len() >= SHORTEST
                && key.len().abs_diff(meant.len()) <= WRONG_LETTERS
                && osa_distance(key, meant) <= WRONG_LETTERS
        };
        keys.iter().find(is_near).map(|&meant| (key, meant))
    })
}
