//! Any bytes as rows for operators.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_tests::readers;

fuzz_target!(|bytes: &[u8]| readers::op_rows(bytes));
