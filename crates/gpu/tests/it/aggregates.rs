//! Counts, sums, extremes.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use vectile_encodings::{Encoding, Predicate};
use vectile_gpu::Batch;
use vectile_gpu::ir::{Aggregate, Expr, Filter, Number, Output};

use crate::support::{engine, input, start, table};

#[test]
fn counts_and_sums() {
    let Some(engine) = engine() else { return };
    let values = Int64Array::from_iter(
        (0..10_000i64).map(|i| (i % 7 != 3).then_some(i * 37 % 250 * 4 - 200)),
    );
    for pin in [
        None,
        Some(Encoding::Ffor),
        Some(Encoding::Dict),
        Some(Encoding::Rle),
        Some(Encoding::Delta),
        Some(Encoding::Plain),
    ] {
        let inputs = [input(values.clone(), pin)];
        let table = table(&engine, &inputs, 4096);
        let low = Arc::new(Int64Array::from(vec![100])) as ArrayRef;
        let high = Arc::new(Int64Array::from(vec![500])) as ArrayRef;
        let filter = Filter::Column(
            0,
            Predicate::Range {
                low: Bound::Included(low),
                high: Bound::Excluded(high),
                negated: false,
            },
        );
        let column = || Expr::Column(0);
        let output = Output::Aggregates(vec![
            Aggregate::CountRows,
            Aggregate::Sum(column()),
            Aggregate::Min(column()),
            Aggregate::Max(column()),
        ]);
        let mut execution = start(&engine, &inputs, filter, output);
        execution.aggregate(&Batch::of(&table).unwrap()).unwrap();
        let kept: Vec<i64> = values
            .iter()
            .flatten()
            .filter(|v| (100..500).contains(v))
            .collect();
        let totals = execution.totals();
        assert_eq!(totals[0].count, kept.len() as u64, "{pin:?}");
        let numbers = [
            kept.iter().sum::<i64>(),
            *kept.iter().min().unwrap(),
            *kept.iter().max().unwrap(),
        ];
        for (total, number) in totals[1..].iter().zip(numbers) {
            assert_eq!(total.value, Some(Number::Int(number.into())), "{pin:?}");
        }
    }
}

/// The last lane of rows is bounded by where the next one starts, which needs more than 32 bits here.
#[test]
fn rising_beyond_32_bits_where_rows_end() {
    let Some(engine) = engine() else { return };
    let first = (1 << 32) - 40_000;
    let rows = (0..1024)
        .map(|i| i * 1000)
        .chain((0..64).map(|i| first + i * 1000));
    let values: Vec<i64> = rows.collect();
    let inputs = [input(
        Int64Array::from(values.clone()),
        Some(Encoding::Delta),
    )];
    let table = table(&engine, &inputs, values.len());
    for low in values.iter().skip(1024) {
        let bound = Arc::new(Int64Array::from(vec![*low])) as ArrayRef;
        let range = Predicate::Range {
            low: Bound::Included(bound),
            high: Bound::Unbounded,
            negated: false,
        };
        let output = Output::Aggregates(vec![Aggregate::CountRows]);
        let mut execution = start(&engine, &inputs, Filter::Column(0, range), output);
        execution.aggregate(&Batch::of(&table).unwrap()).unwrap();
        let expected = values.iter().filter(|value| *value >= low).count();
        assert_eq!(execution.totals()[0].count, expected as u64, "from {low}");
    }
}
