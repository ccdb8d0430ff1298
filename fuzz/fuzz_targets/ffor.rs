//! Damaged chunks of encoding `ffor`.
#![no_main]
use vectile_encodings::Encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(Encoding::Ffor, data));
