//! Claim: bulk decoding is not behind the `fastlanes` and `alp` crates.
//!
//! `cargo run --release --bin decode -- [RUNS]`, default 15. A million values; ours from the bytes of
//! a chunk to Arrow arrays of 8192 rows, theirs from packed vectors of the same width into one
//! buffer (which does less: no allocation, no array, no choice of encoding). Answers are checked.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, PrimitiveArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::ArrowPrimitiveType;
use fastlanes::{Delta, FoR, Transpose};
use vectile_benches::report::{Times, print_table};
use vectile_encodings::{Column, EncodeOptions, Encoding, encode};

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

/// Runs both in turns.
fn race(runs: usize, ours: &mut dyn FnMut(), theirs: &mut dyn FnMut()) -> (Times, Times) {
    let time = |work: &mut dyn FnMut()| -> Duration {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut times = (Times::default(), Times::default());
    (ours(), theirs());
    for _ in 0..runs {
        times.0.push(time(ours));
        times.1.push(time(theirs));
    }
    times
}

fn column(array: &ArrayRef, encoding: Encoding) -> Column {
    let bytes = encode(
        array,
        &EncodeOptions::pinned(encoding),
    )
    .expect("the encoding applies");
    Column::parse(bytes.into(), array.data_type(), array.len()).expect("our own bytes")
}

fn decode(column: &Column) {
    for start in (0..VALUES).step_by(BATCH_ROWS) {
        black_box(
            column
                .decode(start..start + BATCH_ROWS)
                .expect("our own bytes"),
        );
    }
}

fn row(name: String, peer: &str, (ours, theirs): (Times, Times), bytes: usize) -> Vec<String> {
    let rate = |t: &Times| format!("{:.2}", VALUES as f64 / t.median() / 1e9);
    vec![
        name,
        rate(&ours),
        format!("{:.1}", VALUES as f64 * bytes as f64 / ours.median() / 1e9),
        ours.show(),
        peer.into(),
        rate(&theirs),
        theirs.show(),
        format!("{:.2}", theirs.median() / ours.median()),
    ]
}

macro_rules! ffor {
    ($rows:ident, $runs:ident, $array:ty, $t:ty, $u:ty, $width:literal) => {{
        let mut next = random($width);
        let values: Vec<$t> = (0..VALUES)
            .map(|_| 1000 + (next() & ((1 << $width) - 1)) as $t)
            .collect();
        let array: ArrayRef = Arc::new(<$array>::from(values.clone()));
        let ours = column(&array, Encoding::Ffor);
        const B: usize = 1024 * $width / <$u>::BITS as usize;
        let mut packed = vec![[0 as $u; B]; VALUES / 1024];
        for (packed, values) in packed.iter_mut().zip(values.as_chunks::<1024>().0) {
            FoR::for_pack::<$width, B>(&values.map(|v| v as $u), 1000, packed);
        }
        let mut out = vec![0 as $u; VALUES];
        let times = race($runs, &mut || decode(&ours), &mut || {
            for (packed, out) in packed.iter().zip(out.as_chunks_mut::<1024>().0) {
                FoR::unfor_pack::<$width, B>(packed, 1000, out);
            }
            black_box(&out);
        });
        assert!(out.iter().zip(&values).all(|(a, b)| *a as $t == *b));
        assert_eq!(&ours.decode(0..VALUES).expect("our own bytes"), &array);
        $rows.push(row(
            format!("ffor {} at {} bits", stringify!($t), $width),
            "fastlanes",
            times,
            size_of::<$t>(),
        ));
    }};
}

macro_rules! delta {
    ($rows:ident, $runs:ident, $array:ty, $t:ty, $u:ty, $lanes:literal) => {{
        const W: usize = 4;
        const B: usize = 1024 * W / <$u>::BITS as usize;
        let mut next = random(9);
        let mut sum = 0;
        let values: Vec<$t> = (0..VALUES)
            .map(|_| {
                sum += (next() % 15) as $t;
                sum
            })
            .collect();
        let array: ArrayRef = Arc::new(<$array>::from(values.clone()));
        let ours = column(&array, Encoding::Delta);
        let mut packed = vec![([0 as $u; $lanes], [0 as $u; B]); VALUES / 1024];
        for ((bases, packed), values) in packed.iter_mut().zip(values.as_chunks::<1024>().0) {
            let (mut transposed, mut deltas) = ([0; 1024], [0; 1024]);
            Transpose::transpose(&values.map(|v| v as $u), &mut transposed);
            bases.copy_from_slice(&transposed[..$lanes]);
            Delta::delta::<$lanes>(&transposed, bases, &mut deltas);
            fastlanes::BitPacking::pack::<W, B>(&deltas, packed);
        }
        let mut out = vec![0 as $u; VALUES];
        let times = race($runs, &mut || decode(&ours), &mut || {
            let mut transposed = [0; 1024];
            for ((bases, packed), out) in packed.iter().zip(out.as_chunks_mut::<1024>().0) {
                Delta::undelta_pack::<$lanes, W, B>(packed, bases, &mut transposed);
                Transpose::untranspose(&transposed, out);
            }
            black_box(&out);
        });
        assert!(out.iter().zip(&values).all(|(a, b)| *a as $t == *b));
        assert_eq!(&ours.decode(0..VALUES).expect("our own bytes"), &array);
        $rows.push(row(
            format!("delta {}, sorted", stringify!($t)),
            "fastlanes",
            times,
            size_of::<$t>(),
        ));
    }};
}

fn alp(runs: usize) -> Vec<String> {
    const W: usize = 17;
    const B: usize = 1024 * W / 64;
    let mut next = random(3);
    let values: Vec<f64> = (0..VALUES)
        .map(|_| (next() % 100_000) as f64 / 100.0)
        .collect();
    let array: ArrayRef = Arc::new(Float64Array::from(values.clone()));
    let ours = column(&array, Encoding::Alp);
    let (exponents, integers, positions, exceptions, _) = alp::encode(&values, None);
    let base = integers.iter().copied().min().unwrap_or(0) as u64;
    let mut packed = vec![[0u64; B]; VALUES / 1024];
    for (packed, values) in packed.iter_mut().zip(integers.as_chunks::<1024>().0) {
        FoR::for_pack::<W, B>(&values.map(|v| v as u64), base, packed);
    }
    let mut out = vec![0.0; VALUES];
    let times = race(runs, &mut || decode(&ours), &mut || {
        let mut integers = [0u64; 1024];
        for (packed, out) in packed.iter().zip(out.as_chunks_mut::<1024>().0) {
            FoR::unfor_pack::<W, B>(packed, base, &mut integers);
            alp::decode_into::<f64>(&integers.map(|v| v as i64), exponents, out);
        }
        for (position, value) in positions.iter().zip(&exceptions) {
            out[*position as usize] = *value;
        }
        black_box(&out);
    });
    assert_eq!(out, values);
    assert_eq!(&ours.decode(0..VALUES).expect("our own bytes"), &array);
    row("alp f64, two decimals".into(), "alp + fastlanes", times, 8)
}

fn dict<T: ArrowPrimitiveType>(
    name: &str,
    runs: usize,
    entry: impl Fn(u64) -> T::Native,
) -> Vec<String>
where
    PrimitiveArray<T>: From<Vec<T::Native>>,
{
    const W: usize = 8;
    const B: usize = 1024 * W / 32;
    let mut next = random(5);
    let codes: Vec<u32> = (0..VALUES).map(|_| (next() % 200) as u32).collect();
    let entries: ArrayRef = Arc::new(PrimitiveArray::<T>::from(
        (0..200).map(entry).collect::<Vec<_>>(),
    ));
    let array = take(&entries, &UInt32Array::from(codes.clone()), None).expect("codes in bounds");
    let ours = column(&array, Encoding::Dict);
    let mut packed = vec![[0u32; B]; VALUES / 1024];
    for (packed, codes) in packed.iter_mut().zip(codes.as_chunks::<1024>().0) {
        fastlanes::BitPacking::pack::<W, B>(codes, packed);
    }
    let times = race(runs, &mut || decode(&ours), &mut || {
        for packed in packed.chunks(BATCH_ROWS / 1024) {
            let mut codes = vec![0u32; packed.len() * 1024];
            for (packed, codes) in packed.iter().zip(codes.as_chunks_mut::<1024>().0) {
                fastlanes::BitPacking::unpack::<W, B>(packed, codes);
            }
            black_box(take(&entries, &UInt32Array::from(codes), None).expect("codes in bounds"));
        }
    });
    assert_eq!(&ours.decode(0..VALUES).expect("our own bytes"), &array);
    row(
        format!("dict {name}, 200 entries"),
        "fastlanes + arrow take",
        times,
        size_of::<T::Native>(),
    )
}

fn main() {
    let runs = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(15);
    let mut rows = vec![];
    ffor!(rows, runs, Int32Array, i32, u32, 4);
    ffor!(rows, runs, Int32Array, i32, u32, 8);
    ffor!(rows, runs, Int32Array, i32, u32, 12);
    ffor!(rows, runs, Int32Array, i32, u32, 17);
    ffor!(rows, runs, Int32Array, i32, u32, 24);
    ffor!(rows, runs, Int64Array, i64, u64, 8);
    ffor!(rows, runs, Int64Array, i64, u64, 17);
    ffor!(rows, runs, Int64Array, i64, u64, 24);
    ffor!(rows, runs, Int64Array, i64, u64, 40);
    delta!(rows, runs, Int32Array, i32, u32, 32);
    delta!(rows, runs, Int64Array, i64, u64, 16);
    rows.push(alp(runs));
    rows.push(dict::<arrow::datatypes::Int32Type>("i32", runs, |i| {
        i as i32 * 7919
    }));
    rows.push(dict::<arrow::datatypes::Int64Type>("i64", runs, |i| {
        i as i64 * 7919
    }));
    println!("{VALUES} values, one core, {runs} runs; G values/s by the median, ms (least-most)\n");
    print_table(
        &[
            "",
            "Vectile",
            "GB/s",
            "ms",
            "peer",
            "G values/s",
            "ms",
            "ratio",
        ],
        &rows,
    );
}
