//! Parquet files whose bytes are damaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vectile_fuzz::parquet::file(data));
