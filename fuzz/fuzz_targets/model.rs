//! Any bytes as a model file, through to its checked plan.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_tests::readers;

fuzz_target!(|bytes: &[u8]| readers::model(bytes));
