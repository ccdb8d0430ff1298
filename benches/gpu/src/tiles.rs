//! The integers of the published evaluation of tile-based encodings: filtered, summed and fully decompressed, in each
//! of several encodings. `tiles.cu` measures the published ones with the same data.

use arrow::array::ArrayRef;
use serde_json::json;
use vectile_encodings::Encoding;
use vectile_pipeline::{Aggregate, Expr, Filter, Output};

use crate::bench::{Bench, Case, Result};
use crate::data::{GROUP_ROWS, Random, between, count, i32s};

/// Rows of the sorted column; a row group is its middle.
const SORTED_ROWS: u64 = 250_000_000;
const ZIPF_DISTINCT: usize = 1 << 20;

/// A row group of a distribution with parameter `x`.
struct Data {
    figure: &'static str,
    name: &'static str,
    x: f64,
    values: Vec<u32>,
}

pub fn run(bench: &mut Bench, encodings: &[Encoding]) -> Result<()> {
    for data in distributions() {
        measure(bench, encodings, &data)?;
    }
    Ok(())
}

fn distributions() -> Vec<Data> {
    let mut random = Random(7);
    let mut all = vec![];
    let mut add = |figure, name, x, values| {
        all.push(Data {
            figure,
            name,
            x,
            values,
        })
    };
    for width in 1..=32 {
        let values = random.bits(width).into_iter().map(|x| x as u32);
        add("widths", "uniform", width.into(), values.collect());
    }
    for bits in (2..=28).step_by(2) {
        let first = (SORTED_ROWS - GROUP_ROWS as u64) / 2;
        let rows = first..first + GROUP_ROWS as u64;
        let values = rows.map(|row| ((row << bits) / SORTED_ROWS) as u32);
        add("sorted", "D1", bits.into(), values.collect());
    }
    for bits in (6..=30).step_by(4) {
        let mean = f64::from(1u32 << bits);
        let values = (0..GROUP_ROWS).map(|_| (mean + 20.0 * normal(&mut random)).round() as u32);
        add("normal", "D2", bits.into(), values.collect());
    }
    for halves in 2..=10 {
        let exponent = f64::from(halves) / 2.0;
        add("zipf", "D3", exponent, zipf(&mut random, exponent));
    }
    all
}

fn measure(bench: &mut Bench, encodings: &[Encoding], data: &Data) -> Result<()> {
    let values: Vec<i32> = data.values.iter().map(|x| *x as i32).collect();
    let title = format!("{}, {}", data.name, data.x);
    let mut sorted = values.clone();
    sorted.sort_unstable();
    let one = |row: usize| -> ArrayRef { i32s(vec![sorted[row]]) };
    let range = between(0, one(GROUP_ROWS / 4), one(GROUP_ROWS / 2));
    let array = i32s(values);
    let case = |kind: &str, pin: Encoding, filter: &Filter, output| Case {
        name: format!("{title}: {kind}, {pin}"),
        facts: json!({
            "figure": data.figure,
            "data": data.name,
            "x": data.x,
            "pin": pin.name(),
            "what": kind,
        }),
        pin: Some(pin),
        ..Case::new("tiles", vec![array.clone()], filter.clone(), output)
    };
    let all = Filter::Constant(true);
    bench.header(&format!("{title}: filter and count, sum"));
    for &pin in encodings {
        let sum = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
        bench.filter(&case("filter", pin, &range, count()))?;
        bench.filter(&case("sum", pin, &all, sum))?;
    }
    bench.decompression_header(&format!("{title}: full decompression into device memory"));
    for &pin in encodings {
        let rows = Output::Rows(vec![Expr::Column(0)]);
        bench.decompress(&case("decompress", pin, &all, rows))?;
    }
    Ok(())
}

/// A uniform number in 0..1.
fn share(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// A normal number with mean 0 and deviation 1.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - share(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * share(random)).cos()
}

/// Ranks; the k-th is as frequent as `k^-exponent`.
fn zipf(random: &mut Random, exponent: f64) -> Vec<u32> {
    let mut below = vec![];
    let mut sum = 0.0;
    for rank in 1..=ZIPF_DISTINCT {
        sum += (rank as f64).powf(-exponent);
        below.push(sum);
    }
    let ranks = (0..GROUP_ROWS).map(|_| {
        let share = share(random) * sum;
        below.partition_point(|&below| below <= share) as u32
    });
    ranks.collect()
}
