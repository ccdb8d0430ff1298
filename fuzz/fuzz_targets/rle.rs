//! Damaged chunks of encoding `rle`.
#![no_main]
use vectile_encodings::Encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::damaged(Encoding::Rle, data));
