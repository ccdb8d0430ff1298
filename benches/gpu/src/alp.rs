//! `alp`: filter and count by width and exceptions.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array};
use serde_json::json;
use vectile_encodings::{Encoding, VECTOR_LEN};

use crate::bench::{Bench, Case, Result};
use crate::data::{Random, between, count, f64s};

pub fn run(bench: &mut Bench) -> Result<()> {
    bench.header("alp: filter and count, one column of floats with two decimals");
    let mut random = Random(2);
    for width in [8, 12, 16, 21] {
        for exceptions in [0, 1, 5, 10, 20, 50] {
            let values = with_exceptions(hundredths(&mut random, width), exceptions, || {
                f64::from_bits(random.next() >> 2)
            });
            double(bench, values, width, Encoding::Alp, exceptions)?;
        }
    }
    for exceptions in [0, 10] {
        let values = with_exceptions(hundredths(&mut random, 12), exceptions, || {
            f64::from(f32::from_bits((random.next() >> 36) as u32))
        });
        single(bench, values, Encoding::Alp, exceptions)?;
    }
    double(bench, hundredths(&mut random, 12), 12, Encoding::Plain, 0)?;
    single(bench, hundredths(&mut random, 12), Encoding::Plain, 0)
}

fn hundredths(random: &mut Random, width: u32) -> Vec<f64> {
    let bits = random.bits(width);
    bits.iter().map(|x| *x as f64 / 100.0).collect()
}

/// A case with this many exceptions in each vector.
pub fn with_exceptions(
    mut values: Vec<f64>,
    exceptions: usize,
    mut other: impl FnMut() -> f64,
) -> Vec<f64> {
    for vector in values.chunks_mut(VECTOR_LEN) {
        for i in 0..exceptions {
            vector[(i * 1021 + 7) % VECTOR_LEN] = other();
        }
    }
    values
}

fn double(
    bench: &mut Bench,
    values: Vec<f64>,
    width: u32,
    pin: Encoding,
    exceptions: usize,
) -> Result<()> {
    let top = ((1u64 << width) - 1) as f64 / 100.0;
    let filter = between(0, f64s(vec![top / 4.0]), f64s(vec![top / 2.0]));
    measure(bench, f64s(values), filter, "f64", width, pin, exceptions)
}

fn single(bench: &mut Bench, values: Vec<f64>, pin: Encoding, exceptions: usize) -> Result<()> {
    let array = |values: Vec<f64>| -> ArrayRef {
        let values = values.iter().map(|x| *x as f32);
        Arc::new(Float32Array::from_iter_values(values))
    };
    let filter = between(0, array(vec![10.0]), array(vec![20.0]));
    measure(bench, array(values), filter, "f32", 12, pin, exceptions)
}

fn measure(
    bench: &mut Bench,
    array: ArrayRef,
    filter: vectile_pipeline::Filter,
    of: &str,
    width: u32,
    pin: Encoding,
    exceptions: usize,
) -> Result<()> {
    let name = match pin {
        Encoding::Plain => format!("{of}, plain"),
        _ => format!("{of}, width {width}, {exceptions} exceptions"),
    };
    bench.filter(&Case {
        name,
        facts: json!({"type": of, "width": width, "exceptions": exceptions}),
        pin: Some(pin),
        ..Case::new("alp", vec![array], filter, count())
    })
}
