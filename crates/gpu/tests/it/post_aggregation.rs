//! Computations over groups on the device, compared with the same over all groups on the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type, UInt32Type};
use vectile_gpu::{Batch, Engine};
use vectile_pipeline::{
    Aggregate, Arithmetic, Comparison, Expr, Filter, GroupColumn, GroupKey, Groups, Literal,
    NestedAggregation, Numbers, Output, PostAggregation, TopK, Type,
};

use crate::support::{Input, driver, input, start, table};

const ROWS: i64 = 20_000;

/// Keys: few, some of them null, of a large range, and text; values: some null, and some too large for sums of 64 bits.
fn inputs() -> Vec<Input> {
    let rows = || 0..ROWS;
    let texts = rows().map(|row| (row % 23 != 5).then(|| format!("text {}", row % 23)));
    vec![
        input(
            Int64Array::from_iter_values(rows().map(|row| row * 7 % 300 + 50)),
            None,
        ),
        input(
            Int32Array::from_iter(
                rows().map(|row| (row % 11 != 4).then_some((row % 37) as i32 - 9)),
            ),
            None,
        ),
        input(
            Int64Array::from_iter_values(rows().map(|row| row * 7919 % 3001 * 1_000_000_007)),
            None,
        ),
        input(StringArray::from_iter(texts), None),
        input(
            Int64Array::from_iter(
                rows().map(|row| (row % 5 != 1).then_some(row * 31 % 1009 - 300)),
            ),
            None,
        ),
        input(
            Int64Array::from_iter_values(rows().map(|row| (row * 13 % 101 - 50) << 55)),
            None,
        ),
    ]
}

fn aggregates() -> Vec<Aggregate> {
    let column = Expr::Column;
    vec![
        Aggregate::CountRows,
        Aggregate::Sum(column(4)),
        Aggregate::Min(column(4)),
        Aggregate::Max(column(4)),
        Aggregate::Sum(column(5)),
        Aggregate::Count(column(4)),
    ]
}

/// The value of a column of groups, in one group.
fn value(groups: &Groups, column: GroupColumn, row: usize) -> Option<i128> {
    match column {
        GroupColumn::Key(key_index, _) => {
            let key = &groups.keys[key_index];
            key.is_valid(row).then(|| match key.data_type() {
                arrow::datatypes::DataType::Int32 => {
                    key.as_primitive::<Int32Type>().value(row).into()
                }
                arrow::datatypes::DataType::UInt32 => {
                    key.as_primitive::<UInt32Type>().value(row).into()
                }
                _ => key.as_primitive::<Int64Type>().value(row).into(),
            })
        }
        GroupColumn::Count(aggregate) => Some(groups.totals[aggregate].counts[row].into()),
        GroupColumn::Value(aggregate, _) => {
            let totals = &groups.totals[aggregate];
            let Numbers::Int(values) = &totals.values else {
                panic!("floats")
            };
            (totals.counts[row] > 0).then(|| values[row])
        }
    }
}

/// The groups by some keys.
fn all(engine: &Arc<Engine>, keys: &[GroupKey], post: Option<&PostAggregation>) -> Groups {
    let inputs = inputs();
    let table = table(engine, &inputs, 4096);
    let output = Output::Groups(keys.to_vec(), aggregates());
    let mut execution = start(engine, &inputs, Filter::Constant(true), output);
    let batch = Batch::of(&table).unwrap();
    let groups = match post {
        Some(post) => execution.group_wanted(&batch, post, |_| Ok(())),
        None => execution.group(&batch, |_| Ok(())),
    };
    let mut groups = groups.unwrap();
    assert_eq!(groups.len(), 1);
    groups.pop().unwrap()
}

fn key(column: usize) -> GroupKey {
    match column {
        3 => GroupKey::DictionaryValue(3),
        column => GroupKey::Value(Expr::Column(column)),
    }
}

fn int(value: i64) -> Box<Expr> {
    Expr::Literal(Literal::Int(value.into(), Type::I64)).into()
}

#[test]
fn groups_are_aggregated_again() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    for keys in [
        vec![0],
        vec![1],
        vec![2],
        vec![0, 1],
        vec![1, 2],
        vec![3, 0],
        vec![1, 3],
    ] {
        let kernel: Vec<GroupKey> = keys.iter().map(|column| key(*column)).collect();
        let groups = all(&engine, &kernel, None);
        // the last key unchanged, and a remainder of the count
        let key_index = keys.len() - 1;
        let columns = vec![
            GroupColumn::Key(key_index, Type::I64),
            GroupColumn::Count(0),
            GroupColumn::Value(1, Type::I64),
            GroupColumn::Value(2, Type::I64),
            GroupColumn::Value(3, Type::I64),
            GroupColumn::Value(4, Type::I128),
        ];
        let remainder = Expr::arithmetic(Arithmetic::Remainder, Expr::Column(1), *int(3));
        let above = Expr::compare(Comparison::Greater, Expr::Column(1), *int(1));
        let post = PostAggregation {
            columns: columns.clone(),
            conditions: vec![above],
            top_k: None,
            nested: Some(NestedAggregation {
                keys: vec![Expr::Column(0), remainder],
                aggregates: vec![
                    Aggregate::CountRows,
                    Aggregate::Sum(Expr::Column(2)),
                    Aggregate::Min(Expr::Column(3)),
                    Aggregate::Max(Expr::Column(4)),
                    Aggregate::Sum(Expr::Column(5)),
                    Aggregate::Count(Expr::Column(0)),
                ],
            }),
        };
        let nested = all(&engine, &kernel, Some(&post));
        let name = |groups: &Groups, row: usize, key_index: usize| {
            let key = &groups.keys[key_index];
            match key.as_string_opt::<i32>() {
                Some(texts) => texts.is_valid(row).then(|| texts.value(row).to_owned()),
                None => value(groups, GroupColumn::Key(key_index, Type::I64), row)
                    .map(|key| key.to_string()),
            }
        };
        let mut expected = BTreeMap::new();
        for row in 0..groups.count {
            let of = |column: usize| value(&groups, columns[column], row);
            let count = of(1).unwrap();
            if count <= 1 {
                continue;
            }
            let own = name(&groups, row, key_index);
            let entry = expected.entry((own.clone(), count % 3));
            let actual: &mut [Option<i128>; 6] =
                entry.or_insert([Some(0), None, None, None, None, Some(0)]);
            let mut add = |index: usize, other: Option<i128>, with: fn(i128, i128) -> i128| {
                actual[index] = match (actual[index], other) {
                    (Some(a), Some(b)) => Some(with(a, b)),
                    (a, b) => a.or(b),
                };
            };
            add(0, Some(1), |a, b| a + b);
            add(1, of(2), |a, b| a + b);
            add(2, of(3), i128::min);
            add(3, of(4), i128::max);
            add(4, of(5), |a, b| a + b);
            add(5, Some(own.is_some().into()), |a, b| a + b);
        }
        let mut actual = BTreeMap::new();
        for row in 0..nested.count {
            let own = name(&nested, row, 0);
            let rest = value(&nested, GroupColumn::Key(1, Type::I64), row).unwrap();
            let mut values = [None; 6];
            for (index, to) in values.iter_mut().enumerate() {
                *to = match index {
                    0 | 5 => value(&nested, GroupColumn::Count(index), row),
                    _ => value(&nested, GroupColumn::Value(index, Type::I64), row),
                };
            }
            assert!(
                actual.insert((own, rest), values).is_none(),
                "{keys:?}: twice"
            );
        }
        assert_eq!(actual, expected, "{keys:?}");
    }
}

#[test]
fn groups_are_pruned() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let columns = vec![GroupColumn::Value(1, Type::I64), GroupColumn::Count(0)];
    let kernel = [key(2)];
    let groups = all(&engine, &kernel, None);
    let sums: Vec<Option<i128>> = (0..groups.count)
        .map(|row| value(&groups, columns[0], row))
        .collect();
    for (descending, nulls_first, count) in [
        (true, false, 1),
        (true, true, 10),
        (false, false, 10),
        (false, true, 200),
    ] {
        let post = PostAggregation {
            columns: columns.clone(),
            conditions: vec![],
            top_k: Some(TopK {
                by: Expr::Column(0),
                of: Type::I64,
                descending,
                nulls_first,
                count,
            }),
            nested: None,
        };
        let first = all(&engine, &kernel, Some(&post));
        let mut known: Vec<Option<i128>> = sums.clone();
        let rank = |sum: &Option<i128>| match sum {
            None => (!nulls_first, 0),
            Some(sum) => (nulls_first, if descending { -*sum } else { *sum }),
        };
        known.sort_by_key(rank);
        let last = rank(&known[count - 1]);
        let is_first = |sum: &&Option<i128>| rank(sum) <= last;
        let actual: Vec<Option<i128>> = (0..first.count)
            .map(|row| value(&first, columns[0], row))
            .collect();
        let (of_all, of_found) = (
            sums.iter().filter(is_first).count(),
            actual.iter().filter(is_first).count(),
        );
        assert_eq!(of_all, of_found, "{descending} {nulls_first} {count}");
        assert!(
            actual.len() < sums.len() / 2,
            "{} of {}",
            actual.len(),
            sums.len()
        );
    }
    for least in [100, 3000, 1 << 40] {
        let above = Expr::compare(Comparison::Greater, Expr::Column(0), *int(least));
        let post = PostAggregation {
            columns: columns.clone(),
            conditions: vec![above],
            ..PostAggregation::default()
        };
        let some = all(&engine, &kernel, Some(&post));
        let mut actual: Vec<Option<i128>> = (0..some.count)
            .map(|row| value(&some, columns[0], row))
            .collect();
        let mut expected = sums.clone();
        expected.retain(|sum| sum.is_some_and(|sum| sum > least.into()));
        actual.sort();
        expected.sort();
        assert_eq!(actual, expected);
    }
}

/// Averages of sums of 64 bits, and of 128: for the latter, kernels have minimum and maximum only for few buckets.
#[test]
fn groups_are_pruned_by_averages() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let kernel = [key(2)];
    let groups = all(&engine, &kernel, None);
    for (aggregate, of, factor) in [
        (1, Type::I64, 1),
        (1, Type::I128, 10_000),
        (4, Type::I128, 10_000),
    ] {
        let columns = vec![
            GroupColumn::Value(aggregate, of),
            GroupColumn::Count(aggregate),
        ];
        let by = Expr::Literal(Literal::Int(factor, of));
        let by = Expr::arithmetic(Arithmetic::Multiply, Expr::Column(0), by);
        let by = Expr::average(by, Expr::Column(1));
        let average = |groups: &Groups, row: usize| {
            let [sum, count] = [0, 1].map(|column| value(groups, columns[column], row));
            sum.zip(count).map(|(sum, count)| sum * factor / count)
        };
        let averages = |groups: &Groups| -> Vec<Option<i128>> {
            let mut all: Vec<_> = (0..groups.count).map(|row| average(groups, row)).collect();
            all.sort();
            all
        };
        let all_averages = averages(&groups);
        for (descending, count) in [(true, 10), (false, 10), (true, 1)] {
            let post = PostAggregation {
                columns: columns.clone(),
                top_k: Some(TopK {
                    by: by.clone(),
                    of,
                    descending,
                    nulls_first: false,
                    count,
                }),
                ..PostAggregation::default()
            };
            let first = averages(&all(&engine, &kernel, Some(&post)));
            assert!(first.len() < all_averages.len() / 2, "{}", first.len());
            let of_first = |averages: &[Option<i128>]| -> Vec<i128> {
                let some = averages.iter().flatten().copied();
                let mut some: Vec<i128> = some.collect();
                if descending {
                    some.reverse();
                }
                let last = some[count - 1];
                some.retain(|average| match descending {
                    true => *average >= last,
                    false => *average <= last,
                });
                some
            };
            assert_eq!(of_first(&first), of_first(&all_averages));
        }
        let least = all_averages[all_averages.len() - 30].unwrap();
        let post = PostAggregation {
            columns: columns.clone(),
            conditions: vec![Expr::compare(
                Comparison::Greater,
                by.clone(),
                Expr::Literal(Literal::Int(least, of)),
            )],
            ..PostAggregation::default()
        };
        let some = averages(&all(&engine, &kernel, Some(&post)));
        let mut expected = all_averages.clone();
        expected.retain(|average| average.is_some_and(|average| average > least));
        assert_eq!(some, expected);
    }
}

/// Minimum and maximum of floats are stored as ranks in the total order: the device cannot compare them with constants.
#[test]
fn groups_of_unsupported_conditions_are_all_read() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let values: ArrayRef = Arc::new(arrow::array::Float64Array::from_iter_values(
        (0..ROWS).map(|row| row as f64 / 7.0),
    ));
    let keys = Int64Array::from_iter_values((0..ROWS).map(|row| row * 7919 % 3001 * 1_000_000_007));
    let inputs = [input(keys, None), input(values, None)];
    let table = table(&engine, &inputs, 4096);
    let batch = Batch::of(&table).unwrap();
    let output = Output::Groups(vec![key(0)], vec![Aggregate::Max(Expr::Column(1))]);
    let above = Expr::compare(
        Comparison::Greater,
        Expr::Column(0),
        Expr::Literal(Literal::F64(2000.0)),
    );
    let post = PostAggregation {
        columns: vec![GroupColumn::Value(0, Type::F64)],
        conditions: vec![above],
        ..PostAggregation::default()
    };
    let mut execution = start(&engine, &inputs, Filter::Constant(true), output);
    let groups = execution.group_wanted(&batch, &post, |_| Ok(())).unwrap();
    assert_eq!(groups[0].count, 3001, "all of them");
}
