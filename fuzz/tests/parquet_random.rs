//! Random damage for the target of Parquet, without a fuzzer: `FUZZ_INPUTS` is the number of files.

use std::env;

#[test]
fn files() {
    let inputs = env::var("FUZZ_INPUTS").map_or(200, |count| count.parse().expect("a number"));
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 24
    };
    for _ in 0..inputs {
        let mut damages = vec![next() as u8];
        for _ in 0..1 + next() % 4 {
            // half of the damage is near the end, where footers are
            let offset = next() >> (next() % 24);
            damages.extend((offset as u32).to_le_bytes());
            damages.push(next() as u8);
        }
        vectile_fuzz::parquet::file(&damages);
    }
}
