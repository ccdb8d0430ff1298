//! `delta`, `rle` and `dict`: filter and count; sums over all encodings.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use serde_json::json;
use vectile_encodings::{Encoding, Predicate};
use vectile_pipeline::{Aggregate, Expr, Filter, Output};

use crate::bench::{Bench, Case, Result};
use crate::data::{GROUP_ROWS, Random, between, count, f64s, i64s};

pub fn run(bench: &mut Bench) -> Result<()> {
    let mut random = Random(3);
    filters(bench, &mut random)?;
    sums(bench, &mut random)
}

fn filters(bench: &mut Bench, random: &mut Random) -> Result<()> {
    bench.header("delta, rle, dict: filter and count, one column");
    let mut filter = |name: String, array, filter, pin| {
        bench.filter(&Case {
            name,
            pin: Some(pin),
            ..Case::new("others", vec![array], filter, count())
        })
    };
    for most in [1, 7, 127, 1999] {
        let array = rising(random, most);
        let last = GROUP_ROWS as i64 * most / 2;
        let test = between(0, i64s(vec![last / 4]), i64s(vec![last / 2]));
        let name = format!("delta, steps to {most}");
        filter(name, array, test, Encoding::Delta)?;
    }
    for most in [15, 500] {
        let mut walk: Vec<i64> = vec![];
        for _ in 0..GROUP_ROWS {
            walk.push(walk.last().unwrap_or(&0) + random.within(-most, most));
        }
        let mut sorted = walk.clone();
        sorted.sort_unstable();
        let (low, high) = (sorted[GROUP_ROWS / 4], sorted[GROUP_ROWS / 2]);
        let test = between(0, i64s(vec![low]), i64s(vec![high]));
        let name = format!("delta, a random walk, steps to {most}");
        filter(name, i64s(walk), test, Encoding::Delta)?;
    }
    // no vector, and no lane, is inside or outside as a whole
    let zigzag = (0..GROUP_ROWS as i64).map(|row| {
        if row % 2 == 0 {
            random.within(-9, 9)
        } else {
            500
        }
    });
    let test = between(0, i64s(vec![-5]), i64s(vec![5]));
    filter(
        "delta, zigzag".into(),
        i64s(zigzag.collect()),
        test,
        Encoding::Delta,
    )?;
    for run in [2, 5, 20, 100, 1000] {
        let test = between(0, i64s(vec![250]), i64s(vec![500]));
        let name = format!("rle, runs of {run}");
        filter(name, runs(random, run), test, Encoding::Rle)?;
    }
    for entries in [3, 100, 5000] {
        let text = |x: u64| format!("v{x:05}");
        let values = (0..GROUP_ROWS).map(|_| text(random.next() % entries));
        let array: ArrayRef = Arc::new(StringArray::from_iter_values(values));
        let one = |x: u64| -> ArrayRef { Arc::new(StringArray::from(vec![text(x)])) };
        let test = between(0, one(entries / 3), one(entries / 2));
        let name = format!("dict of {entries} strings, a range");
        filter(name, Arc::clone(&array), test, Encoding::Dict)?;
        let every_other = (0..entries).step_by(2).map(text);
        let test = Predicate::In {
            values: Arc::new(StringArray::from_iter_values(every_other)),
            negated: false,
        };
        let name = format!("dict of {entries} strings, every other");
        filter(name, array, Filter::Column(0, test), Encoding::Dict)?;
    }
    Ok(())
}

fn sums(bench: &mut Bench, random: &mut Random) -> Result<()> {
    bench.header("sums of one column");
    let prices = random.bits(12).iter().map(|x| *x as f64 / 100.0).collect();
    let cases = [
        ("ffor, 10 bits", i64s(random.bits(10)), Encoding::Ffor),
        ("dict, 10 bits", i64s(random.bits(10)), Encoding::Dict),
        ("delta, steps to 7", rising(random, 7), Encoding::Delta),
        ("rle, runs of 20", runs(random, 20), Encoding::Rle),
        ("alp, 12 bits", f64s(prices), Encoding::Alp),
        ("plain, 10 bits", i64s(random.bits(10)), Encoding::Plain),
    ];
    for (name, array, pin) in cases {
        let output = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
        bench.filter(&Case {
            name: format!("sum, {name}"),
            facts: json!({"sum": true}),
            pin: Some(pin),
            ..Case::new("others", vec![array], Filter::Constant(true), output)
        })?;
    }
    Ok(())
}

/// Numbers that rise by 0 to `most`.
pub fn rising(random: &mut Random, most: i64) -> ArrayRef {
    let mut sum = 0;
    let values = (0..GROUP_ROWS).map(|_| {
        sum += random.within(0, most);
        sum
    });
    i64s(values.collect())
}

/// Numbers below 1000 in runs of the mean length `mean`.
pub fn runs(random: &mut Random, mean: i64) -> ArrayRef {
    let mut values = vec![];
    while values.len() < GROUP_ROWS {
        let value = random.within(0, 999);
        let len = random.within(1, 2 * mean - 1);
        values.extend((0..len).map(|_| value));
    }
    values.truncate(GROUP_ROWS);
    i64s(values)
}
