//! Damaged chunks of encoding `plain`.
#![no_main]
use vectile_encodings::Encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(Encoding::Plain, data));
