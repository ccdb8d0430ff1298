//! Damaged chunks of encoding `constant`.
#![no_main]
use vectile_encodings::Encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(Encoding::Constant, data));
