//! Any bytes as an allocation CSV, through to its placement.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_tests::readers;

fuzz_target!(|bytes: &[u8]| readers::allocation_csv(bytes));
