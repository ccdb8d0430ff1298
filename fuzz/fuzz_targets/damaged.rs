//! Damaged chunks of any encoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(data));
