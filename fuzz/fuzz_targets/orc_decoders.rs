//! Any bytes for each decoder of ORC's streams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::orc::decoders(data));
