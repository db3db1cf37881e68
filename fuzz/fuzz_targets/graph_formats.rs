//! Random valid graphs through every format.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use tenure_graph::arbitrary_graph::check;

fuzz_target!(|bytes: &[u8]| {
    // Too few bytes make no graph.
    let _ = check::formats(&mut Unstructured::new(bytes));
});
