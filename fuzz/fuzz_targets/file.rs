//! Any bytes as a file: trailer, footer, row groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::any_file(data));
