//! Lookups of columns, of rows and of runs, compared with those of each key.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use vectile_cpu::Execution;
use vectile_encodings::{Column, EncodeOptions, encode};
use vectile_pipeline::{
    Aggregate, Arithmetic, Code, Comparison, Expr, Filter, KeyChunks, KeyTable, Literal, Lookup,
    Number, Output, Pipeline, RowCodes, Type,
};

const ROWS: usize = 9 * 1024 + 77;

fn random(row: usize) -> i64 {
    (row as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 20
}

/// Tables of integers in each of their forms: bits, codes of each width, ranks, slots with and without a filter.
fn tables() -> Vec<Arc<KeyTable>> {
    let few: Vec<i64> = (0..200).map(|key| key * 3).collect();
    let apart: Vec<i64> = (0..3000).map(|key| key * 300 + 5).collect();
    let close: Vec<i64> = (300..900).collect();
    let in_ranges: Vec<i64> = (0..9).chain(100..164).chain([700, 2000]).collect();
    let in_large: Vec<i64> = (-5..9).chain(1000..2700).collect();
    let wide: Vec<i64> = (-100..100).map(|key| key << 40).collect();
    let many: Vec<i64> = (0..300_000)
        .map(|key| random(key) & 0xfff_ffff_ffff)
        .collect();
    let mut many = many;
    many.sort_unstable();
    many.dedup();
    let none = Vec::new();
    let mut tables = Vec::new();
    for keys in [few, apart, close, in_ranges, in_large, wide, many, none] {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys));
        let chunks = KeyChunks::new(&[keys], 1).unwrap();
        for codes in [RowCodes::Set, RowCodes::Rows, RowCodes::Ranks] {
            tables.push(Arc::new(KeyTable::build(&chunks, codes).unwrap()));
        }
    }
    tables
}

/// Columns of keys, with and without runs and nulls, in dictionaries and not; some are stored as runs.
fn columns() -> Vec<ArrayRef> {
    let of = |key: &dyn Fn(usize) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter((0..ROWS).map(key)))
    };
    let any = |row: usize| match row % 3 {
        0 => random(row / 3) & 0xfff_ffff_ffff,
        1 => random(row).rem_euclid(900) * 3,
        _ => random(row).rem_euclid(4000) * 300 + 5,
    };
    vec![
        of(&|row| Some(any(row))),
        of(&|row| (row % 5 > 0).then(|| any(row))),
        of(&|row| Some(any(row / 11))),
        of(&|row| Some(random(row / 700).rem_euclid(900) * 3)),
        of(&|row| (row % 13 > 0).then(|| any(row / 20))),
        of(&|row| Some((random(row / 9).rem_euclid(7) - 3) << 40)),
        of(&|_| Some(6)),
        of(&|_| None),
    ]
}

fn encoded(column: &ArrayRef) -> Column {
    let bytes = encode(column, &EncodeOptions::default()).unwrap();
    Column::parse(bytes.into(), column.data_type(), column.len()).unwrap()
}

fn totals(columns: &[ArrayRef], pipeline: Pipeline) -> Vec<Option<Number>> {
    let encoded: Vec<Column> = columns.iter().map(encoded).collect();
    let pipeline = Arc::new(pipeline);
    let mut execution = Execution::new(Arc::clone(&pipeline));
    let of = Execution::run(&pipeline, &encoded, 0..ROWS, None, &mut |_| Ok(()));
    execution.add(of.unwrap()).unwrap();
    let totals = execution.totals().unwrap();
    totals.into_iter().map(|total| total.value).collect()
}

fn expected(keys: &ArrayRef, values: &ArrayRef, table: &KeyTable, first: bool) -> [i128; 3] {
    let codes = table.codes_of(keys).unwrap();
    let values = values.as_primitive::<Int64Type>().values();
    let mut sums = [0; 3];
    for (row, code) in codes.iter().enumerate() {
        if code.is_some() != first {
            continue;
        }
        sums[0] += 1;
        sums[1] += i128::from(code.unwrap_or(0));
        sums[2] += i128::from(values[row]);
    }
    sums
}

#[test]
fn keys_of_rows_and_of_runs_have_their_codes() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..ROWS).map(|row| random(row) >> 30),
    ));
    let tables = tables();
    let are_runs = columns().into_iter().filter(|keys| {
        let encoded = encoded(keys).describe();
        encoded.contains("rle(")
    });
    assert_eq!(are_runs.count(), 5);
    for (number, keys) in columns().into_iter().enumerate() {
        for (of, table) in tables.iter().enumerate() {
            let lookup = Lookup {
                column: 0,
                key_table: Arc::clone(table),
            };
            let id = Expr::cast(Expr::Id(Code::Lookup(0)), Type::I64);
            let probe = Code::Probe(
                Box::new(Expr::cast(Expr::Column(0), Type::I64)),
                Arc::clone(table),
            );
            for (filter, matched) in [
                (Filter::Matched(0), true),
                (Filter::Unmatched(0), false),
                (Filter::Expr(!Expr::Unmatched(probe.clone())), true),
                (Filter::Expr(Expr::Unmatched(probe)), false),
            ] {
                let pipeline = Pipeline {
                    columns: vec![DataType::Int64; 2],
                    lookups: vec![lookup.clone()],
                    matches: vec![],
                    filter,
                    output: Output::Aggregates(vec![
                        Aggregate::CountRows,
                        Aggregate::Sum(id.clone()),
                        Aggregate::Sum(Expr::Column(1)),
                    ]),
                };
                let context = format!("column {number}, table {of}, {:?}", pipeline.filter);
                let columns = [Arc::clone(&keys), Arc::clone(&values)];
                let found = totals(&columns, pipeline);
                let expected = expected(&keys, &values, table, matched);
                let found = found.iter().map(|of| match of {
                    Some(Number::Int(value)) => *value,
                    _ => 0,
                });
                assert_eq!(found.collect::<Vec<_>>(), expected, "{context}");
            }
        }
    }
}

/// A condition on a column of runs holds for the rows of the runs for which it holds, nulls aside.
#[test]
fn conditions_hold_for_rows_of_runs() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    for keys in columns() {
        let odd = Expr::compare(
            Comparison::Less,
            Expr::arithmetic(
                Arithmetic::Remainder,
                Expr::Column(0),
                Expr::Literal(Literal::Int(7, Type::I64)),
            ),
            Expr::Literal(Literal::Int(3, Type::I64)),
        );
        let is_null = Expr::is_null(Expr::Column(0));
        for (filter, of_null) in [(odd.clone(), false), (Expr::or(vec![is_null, odd]), true)] {
            let pipeline = Pipeline {
                columns: vec![DataType::Int64; 2],
                lookups: vec![],
                matches: vec![],
                filter: Filter::Expr(filter),
                output: Output::Aggregates(vec![
                    Aggregate::CountRows,
                    Aggregate::Sum(Expr::Column(1)),
                ]),
            };
            let found = totals(&[Arc::clone(&keys), Arc::clone(&values)], pipeline);
            let of = keys.as_primitive::<Int64Type>();
            let passes = |row: &usize| match of.is_valid(*row) {
                true => of.value(*row) % 7 < 3,
                false => of_null,
            };
            let rows: Vec<usize> = (0..ROWS).filter(passes).collect();
            let expected = [
                rows.len() as i128,
                rows.iter().map(|row| *row as i128).sum(),
            ];
            let found = found.iter().map(|of| match of {
                Some(Number::Int(value)) => *value,
                _ => 0,
            });
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}

/// Runs of values other than integers are tested row by row.
#[test]
fn conditions_on_runs_of_floats_hold_for_their_rows() {
    let keys: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..ROWS).map(|row| (random(row / 40).rem_euclid(50)) as f64 / 3.0),
    ));
    let filter = Expr::compare(
        Comparison::Less,
        Expr::arithmetic(Arithmetic::Add, Expr::Column(0), Expr::Column(0)),
        Expr::cast(Expr::Literal(Literal::Int(9, Type::I64)), Type::F64),
    );
    let pipeline = Pipeline {
        columns: vec![DataType::Float64],
        lookups: vec![],
        matches: vec![],
        filter: Filter::Expr(filter),
        output: Output::Aggregates(vec![Aggregate::CountRows]),
    };
    let found = totals(&[Arc::clone(&keys)], pipeline);
    let of = keys.as_primitive::<Float64Type>().values();
    let expected = of.iter().filter(|value| **value + **value < 9.0).count();
    assert!(expected > 0 && expected < ROWS);
    assert!(matches!(found[0], Some(Number::Int(count)) if count == expected as i128));
}

/// Text is looked up by the codes of its runs.
#[test]
fn text_of_runs_has_the_codes_of_its_entries() {
    let text = |row: usize| format!("text {}", random(row).rem_euclid(40));
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..30).map(|key| format!("text {key}")),
    ));
    let codes: Vec<u32> = (0..30).collect();
    let table = Arc::new(KeyTable::new(&keys, &codes, 30).unwrap());
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    for run in [1, 15, 400] {
        for null in [3, usize::MAX] {
            let of = |row: usize| (row % null != 2).then(|| text(row / run));
            let column: ArrayRef = Arc::new(StringArray::from_iter((0..ROWS).map(of)));
            for (filter, matched) in [(Filter::Matched(0), true), (Filter::Unmatched(0), false)] {
                let pipeline = Pipeline {
                    columns: vec![DataType::Utf8, DataType::Int64],
                    lookups: vec![Lookup {
                        column: 0,
                        key_table: Arc::clone(&table),
                    }],
                    matches: vec![],
                    filter,
                    output: Output::Aggregates(vec![
                        Aggregate::CountRows,
                        Aggregate::Sum(Expr::Column(1)),
                    ]),
                };
                let found = totals(&[Arc::clone(&column), Arc::clone(&values)], pipeline);
                let [count, _, sum] = expected(&column, &values, &table, matched);
                let found = found.iter().map(|of| match of {
                    Some(Number::Int(value)) => *value,
                    _ => 0,
                });
                assert_eq!(found.collect::<Vec<_>>(), [count, sum]);
            }
        }
    }
}
