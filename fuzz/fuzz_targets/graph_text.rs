//! Any text as the text form of a graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_graph::arbitrary_graph::check;

fuzz_target!(|text: &str| check::text(text));
