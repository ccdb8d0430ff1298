//! Blocks of 128 beside `ffor`, `delta` and `rle`: filter and count, sums, full decompression.

use arrow::array::ArrayRef;
use serde_json::json;
use vectile_encodings::Encoding;
use vectile_pipeline::{Aggregate, Expr, Filter, Output};

use crate::bench::{Bench, Case, Result};
use crate::data::{GROUP_ROWS, Random, between, count, i32s, i64s};

pub fn run(bench: &mut Bench) -> Result<()> {
    let mut random = Random(11);
    let mut all: Vec<(String, Vec<i64>, Vec<Encoding>)> = vec![];
    use Encoding::{Delta, Ffor, GpuDfor, GpuFor, GpuRfor, Rle};
    for width in [2, 4, 8, 12, 16, 24] {
        let values = random.bits(width);
        all.push((format!("{width} bits"), values, vec![Ffor, GpuFor]));
    }
    let many = miniblocks(&mut random, |random| 4 + random.within(0, 8) as u32);
    all.push(("4 to 12 bits".into(), many, vec![Ffor, GpuFor]));
    let few = miniblocks(
        &mut random,
        |random| if random.within(0, 31) == 0 { 20 } else { 6 },
    );
    all.push(("6, some 20".into(), few, vec![Ffor, GpuFor]));
    for most in [1, 3, 15, 255] {
        let mut sum = 0;
        let mut step = || {
            sum += random.within(0, most);
            sum
        };
        let values = (0..GROUP_ROWS).map(|_| step()).collect();
        all.push((
            format!("steps to {most}"),
            values,
            vec![Ffor, Delta, GpuFor, GpuDfor],
        ));
    }
    for mean in [4, 20, 100] {
        let mut values = vec![];
        while values.len() < GROUP_ROWS {
            let value = random.within(0, 999);
            let len = random.within(1, 2 * mean - 1);
            values.extend((0..len).map(|_| value));
        }
        values.truncate(GROUP_ROWS);
        all.push((format!("runs of {mean}"), values, vec![Rle, GpuRfor]));
    }
    let i32_of = |values: &[i64]| -> ArrayRef { i32s(values.iter().map(|x| *x as i32).collect()) };
    bench.header("blocks: filter and count");
    for (name, values, pins) in &all {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let bound = |at: usize| i32_of(&[sorted[at]]);
        // unsorted, or zone maps would decide whole vectors
        let range = between(0, bound(GROUP_ROWS / 4), bound(GROUP_ROWS / 2));
        for pin in pins {
            bench.filter(&Case {
                name: format!("{name}, {pin}"),
                pin: Some(*pin),
                facts: json!({"what": "filter"}),
                ..Case::new("blocks", vec![i32_of(values)], range.clone(), count())
            })?;
        }
    }
    bench.header("blocks: sum");
    for (name, values, pins) in &all {
        for pin in pins {
            let output = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
            bench.filter(&Case {
                name: format!("{name}, {pin}"),
                pin: Some(*pin),
                facts: json!({"what": "sum"}),
                ..Case::new(
                    "blocks",
                    vec![i64s(values.clone())],
                    Filter::Constant(true),
                    output,
                )
            })?;
        }
    }
    bench.decompression_header("blocks: decompression");
    for (name, values, pins) in &all {
        for pin in pins {
            let rows = Output::Rows(vec![Expr::Column(0)]);
            bench.decompress(&Case {
                name: format!("{name}, {pin}"),
                pin: Some(*pin),
                ..Case::new("blocks", vec![i32_of(values)], Filter::Constant(true), rows)
            })?;
        }
    }
    Ok(())
}

fn miniblocks(random: &mut Random, mut width: impl FnMut(&mut Random) -> u32) -> Vec<i64> {
    let mut values = vec![];
    while values.len() < GROUP_ROWS {
        let top = (1i64 << width(random)) - 1;
        values.push(top);
        values.extend((1..32).map(|_| random.within(0, top)));
    }
    values
}
