//! A short text form of a graph, to be read and written by people: one node a line.
//!
//! ```
//! let text = r#"
//! model two_ways onnx opsets ["" 17]
//! graph ^main {
//!   %x: float32[1, 64] = Data()
//!   %c: bool[] = Data()
//!   %y: float32[1, 64] = If(%c) @choose
//!     then ^then_graph {
//!       %a: float32[1, 64] = Relu(%x^main)
//!       NetOutput(%a) @results
//!     }
//!     else ^else_graph {
//!       %b: float32[1, 64] = custom::Scale(%x^main, _) {factor = 0.5, axes = [0, 1]}
//!       NetOutput(%b) @results
//!     }
//!   NetOutput(%y) @results
//! }
//! "#;
//! let graph = tenure_graph::text::parse(text)?;
//! assert_eq!(graph.subgraphs.len(), 3);
//! assert_eq!(tenure_graph::text::print(&graph).trim(), text.trim());
//! # Ok::<(), tenure_graph::text::TextError>(())
//! ```
//!
//! ```text
//! model    = "model" name [dialect] ["opsets" "[" [string number {"," string number}] "]"]
//!            ["options" map] "graph" body
//! body     = GRAPH ["with" map] "{" {node} "}"
//! node     = [output {"," output} "="] [name "::"] name "(" [input {"," input}] ")" {part}
//!            {name body}                  a role and the subgraph in it
//! output   = VALUE ":" dtype [dims] ["<" [entries] ">"] | "_"
//! input    = VALUE [GRAPH] | "_"          a value of a graph around this one names that graph
//! part     = NODE | map | "after" NODE {"," NODE} | "stream" (number | "none")
//!          | "inputs" list | "workspace" list | "with" map
//! dims     = "[" [dim {"," dim}] "]"      dim: a number, "?" or a formula as a string
//! map      = "{" [entries] "}"            entries: name "=" attr {"," name "=" attr}
//! attr     = "null" | "true" | "false" | number | "inf" | "-inf" | "nan" | string | bytes
//!          | list | map | dtype dims contents
//! contents = bytes | list | "at" string number [number] | "?"
//! ```
//!
//! `VALUE`, `NODE` and `GRAPH` are names after `%`, `@` and `^`. A name of letters, digits and
//! `_ . -` (after a sigil also `/` and inner `:`) stands as it is, any other in quotes; bytes are
//! `x"6f6b"`. `#` begins a comment. The parts of a node stand on its line. A node without a name
//! is called like its first output. `{…}` are a node's attributes, `with {…}` further keys of the
//! file, `<…>` what JSON says of an output beside type and shape, under the same keys.

mod lex;
mod parse;
mod print;

pub use parse::parse;
pub use print::{print, print_to};

/// Why a text is no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct TextError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub problem: String,
}

/// Whether a name can stand without quotes.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text != "_"
        && text.chars().all(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Whether a name can stand after a sigil without quotes.
fn is_bare(text: &str) -> bool {
    !text.is_empty()
        && !text.ends_with(':')
        && text.chars().all(|c| is_bare_char(c) || c == ':')
        && !text.contains("::")
}

fn is_bare_char(c: char) -> bool {
    is_word_char(c) || c == '/'
}

#[cfg(test)]
mod tests;
