//! `ffor`: filter and count by width.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array};
use serde_json::json;
use vectile_encodings::Encoding;

use crate::bench::{Bench, Case, Result};
use crate::data::{Random, between, count, decimals, i32s, i64s};

/// The smallest number, not 0 so that there is a reference.
const LEAST: i64 = -1000;

pub fn run(bench: &mut Bench) -> Result<()> {
    bench.header("ffor: filter and count, one column");
    let mut random = Random(1);
    for width in 1..=32 {
        let values: Vec<i64> = random.bits(width).iter().map(|x| x + LEAST).collect();
        let top = (1i64 << width) - 1;
        // not all of them, or no value would be compared
        let high = (top / 2 + 1).min(top - 1);
        let bounds = [top / 4 + LEAST, high + LEAST];
        let mut types = vec!["i64"];
        if width < 32 {
            types.push("i32");
        }
        if [1, 4, 8, 16, 24].contains(&width) {
            types.extend(["date32", "decimal128"]);
        }
        for of in types {
            let case = case(of, &values, bounds);
            bench.filter(&Case {
                name: format!("{of}, width {width}"),
                facts: json!({"type": of, "width": width}),
                pin: Some(Encoding::Ffor),
                ..case
            })?;
        }
    }
    let values = random.bits(12);
    for of in ["i64", "i32"] {
        bench.filter(&Case {
            name: format!("{of}, plain"),
            facts: json!({"type": of}),
            pin: Some(Encoding::Plain),
            ..case(of, &values, [1000, 2000])
        })?;
    }
    Ok(())
}

fn case(of: &str, values: &[i64], [low, high]: [i64; 2]) -> Case {
    let array = typed(of, values);
    let filter = between(0, typed(of, &[low]), typed(of, &[high]));
    Case::new("ffor", vec![array], filter, count())
}

fn typed(of: &str, values: &[i64]) -> ArrayRef {
    let narrow = || values.iter().map(|x| *x as i32).collect::<Vec<_>>();
    match of {
        "i32" => i32s(narrow()),
        "date32" => Arc::new(Date32Array::from(narrow())),
        "decimal128" => decimals(values.iter().map(|x| i128::from(*x)).collect()),
        _ => i64s(values.to_vec()),
    }
}
