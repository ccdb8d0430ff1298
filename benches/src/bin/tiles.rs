//! Claim: on the CPU, the tile-based encodings are about as fast as those they replace.
//!
//! `cargo run --release --bin tiles -- [RUNS]`, default 25. A million values on one core: decoded to Arrow arrays of 8192
//! rows, and filtered by a range. Encodings take turns. Arrays are compared.

use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, Int32Array, Int64Array};
use vectile_benches::report::{Times, print_table};
use vectile_encodings::{Column, EncodeOptions, Encoding, Predicate, Selection, encode};

const VALUES: usize = 1 << 20;
const BATCH_ROWS: usize = 8192;

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed * 2 + 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A column in an encoding, and its times to decode and to filter.
struct Raced {
    column: Column,
    bytes: usize,
    decode: Times,
    filter: Times,
}

impl Raced {
    fn new(array: &ArrayRef, encoding: Encoding) -> Self {
        let bytes = encode(array, &EncodeOptions::pinned(encoding)).expect("the encoding applies");
        let len = bytes.len();
        let column =
            Column::parse(bytes.into(), array.data_type(), array.len()).expect("our own bytes");
        let decoded = column.decode(0..VALUES).expect("our own bytes");
        assert_eq!(&decoded, array, "{encoding}");
        Self {
            column,
            bytes: len,
            decode: Times::default(),
            filter: Times::default(),
        }
    }

    /// Runs once; returns the number of rows kept.
    fn run(&mut self, range: &Predicate) -> usize {
        let start = Instant::now();
        for first in (0..VALUES).step_by(BATCH_ROWS) {
            let rows = first..first + BATCH_ROWS;
            black_box(self.column.decode(rows).expect("our own bytes"));
        }
        self.decode.push(start.elapsed());
        let start = Instant::now();
        let mut selection = Selection::all(0, VALUES);
        let done = self.column.filter(range, &mut selection);
        done.expect("our own bytes");
        self.filter.push(start.elapsed());
        selection.count()
    }
}

/// A row for an array: `ours` and the encoding of the same family.
fn race(runs: usize, name: &str, values: &[i64], is_wide: bool, of: [Encoding; 2]) -> Vec<String> {
    let array_of = |values: &[i64]| -> ArrayRef {
        match is_wide {
            true => Arc::new(Int64Array::from(values.to_vec())),
            false => Arc::new(Int32Array::from_iter_values(
                values.iter().map(|value| *value as i32),
            )),
        }
    };
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let bound = |percent: usize| Bound::Included(array_of(&[sorted[VALUES / 100 * percent]]));
    let range = Predicate::Range {
        low: bound(30),
        high: bound(45),
        negated: false,
    };
    let array = array_of(values);
    let mut raced = of.map(|encoding| Raced::new(&array, encoding));
    for _ in 0..runs {
        let [ours, theirs] = &mut raced;
        assert_eq!(ours.run(&range), theirs.run(&range));
    }
    let rate = |times: &Times| format!("{:.2}", VALUES as f64 / times.median() / 1e9);
    let [a, b] = &raced;
    let ratio = |a: &Times, b: &Times| format!("{:.2}", a.median() / b.median());
    vec![
        format!("{} {name}", if is_wide { "i64" } else { "i32" }),
        of.map(Encoding::name).join(", "),
        format!("{:.2}", b.bytes as f64 / a.bytes as f64),
        rate(&a.decode),
        rate(&b.decode),
        ratio(&a.decode, &b.decode),
        rate(&a.filter),
        rate(&b.filter),
        ratio(&a.filter, &b.filter),
    ]
}

fn main() {
    let runs = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(25);
    let mut rows = vec![];
    for is_wide in [false, true] {
        let mut add = |name: &str, of, values: Vec<i64>| {
            rows.push(race(runs, name, &values, is_wide, of));
        };
        let blocks = [Encoding::Ffor, Encoding::GpuFor];
        let mut next = random(3);
        for bits in [4, 8, 17, 24] {
            let values = (0..VALUES).map(|_| (next() >> (64 - bits)) as i64);
            add(&format!("at {bits} bits"), blocks, values.collect());
        }
        let mut bits = 0;
        let values = (0..VALUES).map(|row| {
            if row % 32 == 0 {
                bits = 3 + next() % 18;
            }
            (next() >> (64 - bits)) as i64
        });
        add("at 3 to 20 bits", blocks, values.collect());
        if is_wide {
            let values = (0..VALUES).map(|_| (next() >> 24) as i64);
            add("at 40 bits", blocks, values.collect());
        }
        let mut sum = 0;
        let values = (0..VALUES).map(|_| {
            sum += (next() % 15) as i64;
            sum
        });
        add(
            "sorted",
            [Encoding::Delta, Encoding::GpuDfor],
            values.collect(),
        );
        for length in [2, 4, 16, 100] {
            let mut value = 0;
            let values = (0..VALUES).map(|_| {
                if next().is_multiple_of(length) {
                    value = (next() % 1000) as i64;
                }
                value
            });
            add(
                &format!("in runs of {length}"),
                [Encoding::Rle, Encoding::GpuRfor],
                values.collect(),
            );
        }
    }
    println!("{VALUES} values, one core, {runs} runs; G values/s by the median\n");
    print_table(
        &[
            "",
            "encodings",
            "size",
            "decode",
            "its",
            "ratio",
            "filter",
            "its",
            "ratio",
        ],
        &rows,
    );
}
