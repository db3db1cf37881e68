//! Any bytes as a model file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_formats::testing::check;

fuzz_target!(|bytes: &[u8]| check(bytes));
