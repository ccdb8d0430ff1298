//! Random inputs for the targets of ORC, without a fuzzer: `FUZZ_INPUTS` is their number.

use std::env;

/// Pseudo-random bytes, equal in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.next() % most;
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn inputs() -> u64 {
    env::var("FUZZ_INPUTS").map_or(200, |count| count.parse().expect("a number"))
}

#[test]
fn streams() {
    let mut random = Random(1);
    for _ in 0..100 * inputs() {
        let mut stream = random.bytes(300);
        // with random lengths, runs are rarely long and most chunks are damaged
        if let Some(pick) = stream.first_mut().filter(|_| random.next() % 2 == 0) {
            *pick %= 8;
        }
        vectile_fuzz::orc::decoders(&stream);
    }
}

#[test]
fn files() {
    let mut random = Random(2);
    for _ in 0..inputs() {
        let mut damages = vec![random.next() as u8];
        for _ in 0..1 + random.next() % 4 {
            // half of the damage is near the end, where footers are
            let offset = random.next() >> (random.next() % 24);
            damages.extend((offset as u32).to_le_bytes());
            damages.push(random.next() as u8);
        }
        vectile_fuzz::orc::file(&damages);
    }
}
