//! A file of nulls of any type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::any_type(data));
