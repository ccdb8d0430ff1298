//! Several columns of predicates at once.

use serde_json::json;
use vectile_encodings::Encoding;
use vectile_pipeline::Filter;

use crate::bench::{Bench, Case, Result};
use crate::data::{Random, between, count, i32s};

pub fn run(bench: &mut Bench) -> Result<()> {
    bench
        .header("several predicate columns of 32-bit integers, 12 bits each; nearly all rows pass");
    let mut random = Random(4);
    let narrow = |x: i64| x as i32;
    let arrays: Vec<_> = (0..10)
        .map(|_| i32s(random.bits(12).into_iter().map(narrow).collect()))
        .collect();
    for pin in [Encoding::Ffor, Encoding::Plain] {
        for columns in [1, 2, 4, 6, 8, 10] {
            let tests = (0..columns).map(|c| between(c, i32s(vec![5]), i32s(vec![4090])));
            let filter = Filter::And(tests.collect());
            bench.filter(&Case {
                name: format!("{columns} columns, {pin}"),
                facts: json!({"columns": columns}),
                pin: Some(pin),
                ..Case::new("columns", arrays[..columns].to_vec(), filter, count())
            })?;
        }
    }
    Ok(())
}
