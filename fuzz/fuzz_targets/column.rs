//! Any bytes as a column chunk of any type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::any_column(data));
