//! Groups of row groups, compared with a map of all rows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray,
};
use arrow::datatypes::{DataType, Decimal128Type, Int32Type, Int64Type};
use vectile_cpu::Execution;
use vectile_encodings::{Column, EncodeOptions, encode};
use vectile_pipeline::{
    Aggregate, Error, Expr, Filter, GroupKey, Groups, Number, Numbers, Output, Pipeline, Type,
};

/// A key as text; `None` for null.
type Key = Vec<Option<String>>;

/// Number of rows; number of values, sum, minimum, maximum and number of distinct values of the column that is
/// aggregated.
type Row = (u64, u64, i128, i128, i128, u64);

fn column(array: &ArrayRef) -> Column {
    let bytes = encode(array, &EncodeOptions::default()).unwrap();
    Column::parse(bytes.into(), array.data_type(), array.len()).unwrap()
}

fn text_of(array: &ArrayRef, row: usize) -> Option<String> {
    let text = || match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        _ => array
            .as_primitive::<Decimal128Type>()
            .value(row)
            .to_string(),
    };
    array.is_valid(row).then(text)
}

/// A pipeline that groups by all columns but the last.
fn pipeline(row_groups: &[Vec<ArrayRef>]) -> Arc<Pipeline> {
    let columns: Vec<_> = row_groups[0]
        .iter()
        .map(|array| array.data_type().clone())
        .collect();
    let argument = columns.len() - 1;
    let key = |index: usize| match Type::of(&columns[index]) {
        Some(_) => GroupKey::Value(Expr::Column(index)),
        None => GroupKey::DictionaryValue(index),
    };
    let of = [
        Aggregate::Count,
        Aggregate::Sum,
        Aggregate::Min,
        Aggregate::Max,
    ];
    let mut aggregates = vec![Aggregate::CountRows];
    aggregates.extend(of.map(|of| of(Expr::Column(argument))));
    // keys and a decimal may be more than 128 bits
    if columns[argument] == DataType::Int64 {
        aggregates.push(Aggregate::CountDistinct(Expr::Column(argument)));
    }
    Arc::new(Pipeline {
        lookups: vec![],
        matches: vec![],
        filter: Filter::Constant(true),
        output: Output::Groups((0..argument).map(key).collect(), aggregates),
        columns,
    })
}

/// Rows of a part of a row group. Parts need not begin with a vector.
const PART: usize = 50_000;

/// Runs the pipeline. If `is_eager`, groups are merged whenever some were added.
fn run(
    pipeline: &Arc<Pipeline>,
    row_groups: &[Vec<ArrayRef>],
    is_eager: bool,
    ascending: Option<usize>,
) -> Vec<Groups> {
    let mut execution = Execution::new(Arc::clone(pipeline));
    let parts = row_groups.iter().flat_map(|arrays| {
        let rows = arrays[0].len();
        let columns: Vec<Column> = arrays.iter().map(column).collect();
        let firsts = (0..rows.max(1)).step_by(PART);
        firsts.map(move |first| (columns.clone(), first..rows.min(first + PART)))
    });
    for (columns, rows) in parts {
        let mut reserved = 0;
        let partial = Execution::run(pipeline, &columns, rows, ascending, &mut |bytes| {
            assert!(bytes > reserved);
            reserved = bytes;
            Ok(())
        });
        execution.add(partial.unwrap()).unwrap();
        assert!(execution.merged_bytes() > 0);
        if is_eager {
            let mut partitions = execution.partitions();
            partitions
                .iter_mut()
                .for_each(|partition| partition.merge().unwrap());
            execution.put_partitions(partitions);
        }
    }
    add_distinct(&mut execution);
    let partitions = execution.finish().unwrap().into_iter();
    partitions
        .map(|partition| partition.groups().unwrap())
        .collect()
}

/// Counts distinct values.
fn add_distinct(execution: &mut Execution) {
    let values = execution.distinct_values().into_iter();
    let counts = values.map(|values| values.counts().unwrap()).collect();
    execution.add_counts(counts).unwrap();
}

/// Compares groups with those of all rows.
fn check(row_groups: &[Vec<ArrayRef>], distinct: std::ops::Range<usize>) {
    let mut expected: BTreeMap<Key, Row> = BTreeMap::new();
    let mut seen = HashSet::new();
    for arrays in row_groups {
        let (argument, keys) = arrays.split_last().unwrap();
        for row in 0..argument.len() {
            let key: Key = keys.iter().map(|key| text_of(key, row)).collect();
            let value = text_of(argument, row).map(|value| value.parse::<i128>().unwrap());
            let group = expected
                .entry(key.clone())
                .or_insert((0, 0, 0, i128::MAX, i128::MIN, 0));
            group.0 += 1;
            if let Some(value) = value {
                group.5 += u64::from(seen.insert((key, value)));
                group.1 += 1;
                group.2 += value;
                group.3 = group.3.min(value);
                group.4 = group.4.max(value);
            }
        }
    }
    assert!(
        distinct.contains(&expected.len()),
        "{} groups",
        expected.len()
    );
    let pipeline = pipeline(row_groups);
    let modes = [false, true].map(|is_eager| [(is_eager, None), (is_eager, Some(0))]);
    for (is_eager, ascending) in modes.into_iter().flatten() {
        let mut found = BTreeMap::new();
        for groups in run(&pipeline, row_groups, is_eager, ascending) {
            let ints = |aggregate: usize| match &groups.totals[aggregate].values {
                Numbers::Int(values) => values.clone(),
                Numbers::Float(_) | Numbers::Text(_) => panic!("sums of integers"),
            };
            let (sums, minima, maxima) = (ints(2), ints(3), ints(4));
            for group in 0..groups.count {
                let key: Key = groups.keys.iter().map(|key| text_of(key, group)).collect();
                let counts = |aggregate: usize| groups.totals[aggregate].counts[group];
                let distinct = match groups.totals.len() {
                    6 => counts(5),
                    _ => expected.get(&key).map_or(0, |row| row.5),
                };
                let row = match counts(1) {
                    0 => (counts(0), 0, 0, i128::MAX, i128::MIN, distinct),
                    some => (
                        counts(0),
                        some,
                        sums[group],
                        minima[group],
                        maxima[group],
                        distinct,
                    ),
                };
                assert_eq!(counts(2), counts(1));
                assert!(found.insert(key, row).is_none(), "a group that comes twice");
            }
        }
        assert_eq!(found.len(), expected.len());
        for (key, row) in &expected {
            assert_eq!(found.get(key), Some(row), "{key:?}");
        }
    }
}

/// Numbers without a pattern.
fn random(row_group: usize, row: usize, salt: u64) -> u64 {
    let mut x = (row_group as u64) << 40 ^ row as u64 ^ salt << 56;
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

fn row_groups(
    count: usize,
    rows: usize,
    arrays: impl Fn(usize, usize) -> Vec<ArrayRef>,
) -> Vec<Vec<ArrayRef>> {
    (0..count)
        .map(|row_group| arrays(row_group, rows))
        .collect()
}

fn ints(rows: usize, value: impl Fn(usize) -> Option<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter((0..rows).map(value)))
}

fn decimals(rows: usize, value: impl Fn(usize) -> Option<i128>) -> ArrayRef {
    Arc::new(Decimal128Array::from_iter((0..rows).map(value)))
}

/// Values to be aggregated, some of them null in some row groups.
fn values(row_group: usize, rows: usize) -> ArrayRef {
    let is_null = |row: usize| row_group == 1 && random(1, row, 9).is_multiple_of(3);
    ints(rows, |row| {
        (!is_null(row)).then_some(random(row_group, row, 8) as i64 % 1000)
    })
}

#[test]
fn keys_far_apart_are_hashed() {
    let arrays = |row_group: usize, rows: usize| {
        let key = |row: usize| random(0, row + row_group * 7_000, 1) as i64;
        let is_null = |row: usize| row_group != 0 && row % 50 == 3;
        vec![
            ints(rows, |row| (!is_null(row)).then(|| key(row))),
            values(row_group, rows),
        ]
    };
    check(&row_groups(4, 20_000, arrays), 40_000..41_002);
    check(&row_groups(2, 3_000, arrays), 5_900..6_002);
}

#[test]
fn keys_close_together_have_an_array() {
    let arrays = |row_group: usize, rows: usize| {
        let key = |row: usize| (row_group * rows + row) as i64 / 3 - 5_000;
        let is_null = |row: usize| row_group == 2 && row % 70 == 3;
        vec![
            ints(rows, |row| (!is_null(row)).then(|| key(row))),
            values(row_group, rows),
        ]
    };
    check(&row_groups(3, 60_000, arrays), 59_000..60_002);
}

/// A key may be the last of a row group and the first of the next, or fill one. The last row group does not ascend.
#[test]
fn ascending_keys_are_kept_apart() {
    for (count, is_last) in [(5, false), (6, true)] {
        let arrays = |row_group: usize, rows: usize| {
            let key = move |row: usize| match row_group {
                1 | 2 => rows as i64 / 3,
                5 if is_last => row as i64,
                _ => (row_group.saturating_sub(2) * rows + row) as i64 / 3,
            };
            vec![
                ints(rows, |row| Some(key(row))),
                ints(rows, |row| Some(random(row_group, row, 2) as i64 % 3)),
                values(row_group, rows),
            ]
        };
        check(&row_groups(count, 50_000, arrays), 60_000..200_000);
    }
}

#[test]
fn several_keys_are_one() {
    let arrays = |row_group: usize, rows: usize| {
        let other = (0..rows).map(|row| (row % 11 > 0).then_some(random(0, row, 3) as i32));
        vec![
            ints(rows, |row| {
                (row % 13 > 0).then_some(random(0, row, 2) as i64 >> 8)
            }),
            Arc::new(Int32Array::from_iter(other)) as ArrayRef,
            values(row_group, rows),
        ]
    };
    check(&row_groups(3, 30_000, arrays), 29_000..30_001);
}

#[test]
fn keys_of_128_bits_may_be_short_in_a_row_group() {
    let arrays = |row_group: usize, rows: usize| {
        let own = |row: usize| i128::from(random(0, row, 4) as i64 % 20_000);
        let key = move |row: usize| match row_group {
            0 => own(row),
            _ if row.is_multiple_of(2) => own(row),
            _ => own(row) * 1_000_000_007_000_000_000_000,
        };
        vec![
            decimals(rows, |row| (row % 17 > 0).then(|| key(row))),
            decimals(rows, |row| (row % 3 > 0).then(|| key(row) * 5 - 1)),
        ]
    };
    check(&row_groups(3, 50_000, arrays), 20_000..80_000);
}

#[test]
fn extremes_of_64_bits_are_exact() {
    let arrays = |row_group: usize, rows: usize| {
        let value = |row: usize| match (row_group, row % 4) {
            (_, 0) => None,
            (0, _) => Some(i128::from([i64::MIN, i64::MAX][row % 2])),
            (_, 1) => Some(i128::from(i64::MAX) * 2),
            (_, _) => Some(i128::from(i64::MIN) * 2),
        };
        vec![
            ints(rows, |row| Some(row as i64 % 40)),
            decimals(rows, value),
        ]
    };
    check(&row_groups(3, 2_000, arrays), 40..41);
}

#[test]
fn sums_outgrow_64_bits() {
    let arrays = |_, rows: usize| {
        vec![
            ints(rows, |row| Some(row as i64 % 9)),
            ints(rows, |row| Some(i64::MAX / 2_000 - row as i64)),
        ]
    };
    check(&row_groups(30, 1_000, arrays), 9..10);
}

#[test]
fn codes_of_dictionaries_differ_between_row_groups() {
    let arrays = |row_group: usize, rows: usize| {
        let text = |row: usize| random(row_group % 2, row, 5) % (100 + row_group as u64);
        let texts = (0..rows).map(|row| (row % 19 > 0).then(|| format!("text {}", text(row))));
        vec![
            Arc::new(StringArray::from_iter(texts)) as ArrayRef,
            ints(rows, |row| Some(random(0, row, 6) as i64 % 700)),
            values(row_group, rows),
        ]
    };
    check(&row_groups(4, 50_000, arrays), 60_000..120_000);
    check(&row_groups(3, 2_000, arrays), 1_500..6_001);
}

#[test]
fn keys_of_more_than_128_bits_are_unsupported() {
    let wide = |rows: usize| ints(rows, |row| Some([i64::MIN, i64::MAX, 7][row % 3]));
    let arrays = vec![wide(5_000), wide(5_000), wide(5_000), values(0, 5_000)];
    let columns: Vec<Column> = arrays.iter().map(column).collect();
    let pipeline = pipeline(&[arrays]);
    let error = Execution::run(&pipeline, &columns, 0..5_000, None, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

#[test]
fn sums_of_floats_do_not_depend_on_when_groups_are_merged() {
    let arrays = |row_group: usize, rows: usize| {
        let floats = (0..rows).map(|row| random(row_group, row, 7) as f64 / 1e3);
        vec![
            ints(rows, |row| Some((random(0, row % 9_000, 1) >> 1) as i64)),
            Arc::new(Float64Array::from_iter_values(floats)) as ArrayRef,
        ]
    };
    let row_groups = row_groups(5, 40_000, arrays);
    let pipeline = pipeline(&row_groups);
    let bits = |is_eager: bool, ascending: Option<usize>| {
        let mut all = BTreeMap::new();
        for groups in run(&pipeline, &row_groups, is_eager, ascending) {
            let Numbers::Float(sums) = &groups.totals[2].values else {
                panic!("sums of floats");
            };
            let keys = groups.keys[0].as_primitive::<Int64Type>().values();
            all.extend(
                keys.iter()
                    .copied()
                    .zip(sums.iter().map(|sum| sum.to_bits())),
            );
        }
        all
    };
    let expected = bits(false, None);
    assert_eq!(expected.len(), 9_000);
    assert_eq!(expected, bits(true, None));
    assert_eq!(expected, bits(false, Some(0)));
}

/// Distinct values of all rows, of which there are few or many, and none in some row groups.
#[test]
fn distinct_values_of_all_rows_are_counted() {
    for (count, most) in [(1, 7), (5, 300), (5, u64::MAX)] {
        let value = |row_group: usize, row: usize| {
            let is_null = row_group == 2 || row.is_multiple_of(3);
            (!is_null).then(|| (random(row_group % 2, row, 7) % most) as i64)
        };
        let arrays = |row_group: usize, rows: usize| {
            let other = ints(rows, |row| Some(row as i64 % 5));
            vec![ints(rows, |row| value(row_group, row)), other]
        };
        let row_groups = row_groups(count, 30_000, arrays);
        let distinct = |column: usize| Aggregate::CountDistinct(Expr::Column(column));
        let aggregates = vec![distinct(0), Aggregate::CountRows, distinct(1)];
        let pipeline = Arc::new(Pipeline {
            columns: vec![DataType::Int64; 2],
            lookups: vec![],
            matches: vec![],
            filter: Filter::Constant(true),
            output: Output::Aggregates(aggregates),
        });
        let mut execution = Execution::new(Arc::clone(&pipeline));
        let mut seen = HashSet::new();
        for (row_group, arrays) in row_groups.iter().enumerate() {
            let columns: Vec<Column> = arrays.iter().map(column).collect();
            let partial = Execution::run(&pipeline, &columns, 0..30_000, None, &mut |_| Ok(()));
            execution.add(partial.unwrap()).unwrap();
            seen.extend((0..30_000).filter_map(|row| value(row_group, row)));
        }
        assert!(execution.counts_distinct());
        add_distinct(&mut execution);
        let totals = execution.totals().unwrap().into_iter();
        let totals: Vec<_> = totals.map(|total| total.value).collect();
        let expected = [seen.len(), count * 30_000, 5];
        let expected = expected.map(|count| Some(Number::Int(count as i128)));
        assert_eq!(totals, expected);
    }
}
