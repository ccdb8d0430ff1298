//! Damaged chunks of encoding `delta`.
#![no_main]
use vectile_encodings::Encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(Encoding::Delta, data));
