//! Column chunks built tag by tag: nesting, counts and widths that no encoder writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::built_column(data));
