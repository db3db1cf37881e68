//! Any bytes as a saved plan.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_tests::readers;

fuzz_target!(|bytes: &[u8]| readers::plan_file(bytes));
