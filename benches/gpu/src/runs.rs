//! Runs of 2 to 20 rows, runs whose lengths are runs, and floats in `alp_rd`: filter and count, sums.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array};
use serde_json::json;
use vectile_encodings::Encoding::{self, AlpRd, GpuRfor, Plain, Rle};
use vectile_pipeline::{Aggregate, Expr, Filter, Output};

use crate::alp;
use crate::bench::{Bench, Case, Result};
use crate::data::{GROUP_ROWS, Random, between, count, f64s, i64s};
use crate::others;

/// A column, its encoding, and those to compare with.
struct Measured {
    name: String,
    array: ArrayRef,
    pins: Vec<Encoding>,
    low: ArrayRef,
    high: ArrayRef,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let mut random = Random(13);
    let mut all = vec![];
    for mean in [2, 4, 8, 20] {
        let array = others::runs(&mut random, mean);
        all.push(integers(format!("runs of {mean}"), array));
    }
    all.push(integers("nested runs of 4".into(), nested(&mut random)));
    for top in [99, 1 << 20, 1 << 40] {
        let values = (0..GROUP_ROWS / 3 + 1).flat_map(|_| [random.within(0, top); 3]);
        all.push(Measured {
            name: format!("runs of 3, to {top}"),
            array: i64s(values.take(GROUP_ROWS).collect()),
            pins: vec![Rle],
            low: i64s(vec![top / 4]),
            high: i64s(vec![top / 2]),
        });
    }
    for exceptions in [0, 10, 50, 100] {
        let values: Vec<f64> = (0..GROUP_ROWS)
            .map(|_| 50.0 + random.within(0, 1 << 50) as f64 * 40.0 / (1u64 << 50) as f64)
            .collect();
        let values = alp::with_exceptions(values, exceptions, || {
            f64::from(f32::from_bits((random.next() >> 36) as u32))
        });
        let pins = match exceptions {
            0 => vec![AlpRd, Plain],
            _ => vec![AlpRd],
        };
        let single = |values: &[f64]| -> ArrayRef {
            let values = values.iter().map(|x| *x as f32);
            Arc::new(Float32Array::from_iter_values(values))
        };
        all.push(Measured {
            name: format!("f32, {exceptions} exceptions"),
            array: single(&values),
            pins: pins.clone(),
            low: single(&[60.0]),
            high: single(&[70.0]),
        });
        all.push(Measured {
            name: format!("f64, {exceptions} exceptions"),
            array: f64s(values),
            pins,
            low: f64s(vec![60.0]),
            high: f64s(vec![70.0]),
        });
    }
    bench.header("runs and cut floats: filter and count");
    for of in &all {
        let filter = between(0, Arc::clone(&of.low), Arc::clone(&of.high));
        measure(bench, of, "filter", &filter, &count())?;
    }
    bench.header("runs and cut floats: sum");
    let sum = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
    for of in &all {
        measure(bench, of, "sum", &Filter::Constant(true), &sum)?;
    }
    Ok(())
}

fn measure(
    bench: &mut Bench,
    of: &Measured,
    what: &str,
    filter: &Filter,
    output: &Output,
) -> Result<()> {
    for pin in &of.pins {
        bench.filter(&Case {
            name: format!("{}, {pin}", of.name),
            pin: Some(*pin),
            facts: json!({"what": what}),
            ..Case::new(
                "runs",
                vec![Arc::clone(&of.array)],
                filter.clone(),
                output.clone(),
            )
        })?;
    }
    Ok(())
}

/// Numbers below 1000.
fn integers(name: String, array: ArrayRef) -> Measured {
    Measured {
        name,
        array,
        pins: vec![Rle, GpuRfor],
        low: i64s(vec![250]),
        high: i64s(vec![500]),
    }
}

/// Runs of 1 to 7 rows; 64 consecutive ones have the same length.
fn nested(random: &mut Random) -> ArrayRef {
    let mut values = vec![];
    while values.len() < GROUP_ROWS {
        let len = random.within(1, 7) as usize;
        for _ in 0..64 {
            let value = random.within(0, 999);
            values.extend(std::iter::repeat_n(value, len));
        }
    }
    values.truncate(GROUP_ROWS);
    i64s(values)
}
