//! Any bytes as a model file that may carry a plan, which is then judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_tests::readers;

fuzz_target!(|bytes: &[u8]| readers::compiled(bytes));
