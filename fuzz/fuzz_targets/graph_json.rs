//! Any bytes as graph JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_graph::arbitrary_graph::check;

fuzz_target!(|bytes: &[u8]| check::json(bytes));
