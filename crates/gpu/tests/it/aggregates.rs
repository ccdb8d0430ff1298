//! Counts, sums, minimum and maximum.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use vectile_emulator::Recorder;
use vectile_encodings::{Encoding, Predicate};
use vectile_pipeline::{Aggregate, Expr, Filter, GroupKey, Number, Numbers, Output};

use vectile_gpu::{Batch, Driver, Engine};

use crate::support::{device, engine, input, start, table};

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

#[test]
fn batches_share_kernels() {
    let Some(device) = device() else { return };
    let recorder = Arc::new(Recorder::new(Arc::into_inner(device).unwrap()));
    let engine = Engine::new(Arc::clone(&recorder) as Arc<dyn Driver>);
    let inputs = |bits: u32| {
        let values = (0..2048).map(|row| row % (1 << bits));
        [input(
            Int64Array::from_iter_values(values),
            Some(Encoding::Ffor),
        )]
    };
    let groups = [3, 9].map(|bits| table(&engine, &inputs(bits), 2048));
    let [narrow, wide] = groups.each_ref().map(|groups| Batch::of(groups).unwrap());
    let both = Batch::of(&groups.concat()).unwrap();
    let low = Arc::new(Int64Array::from(vec![2])) as ArrayRef;
    let range = Predicate::Range {
        low: Bound::Included(low),
        high: Bound::Unbounded,
        negated: false,
    };
    let filter = Filter::Column(0, range);
    let execution = || {
        let output = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
        start(&engine, &inputs(3), filter.clone(), output)
    };
    let mut in_turn = execution();
    for batch in [&narrow, &wide, &narrow] {
        // a recorder launches nothing
        assert!(in_turn.aggregate(batch).is_err());
    }
    assert_eq!(recorder.take().len(), 2, "one for the first, one for all");
    assert!(execution().aggregate(&both).is_err());
    assert_eq!(recorder.take().len(), 0, "that for all");
}

/// A kernel also covers everything that occurred in earlier batches, such as strings that a later one does not have.
#[test]
fn batches_without_strings_behind_one_with_them() {
    let Some(engine) = engine() else { return };
    let texts = |texts: Vec<Option<&str>>, pin| [input(StringArray::from(texts), pin)];
    let with = texts(
        vec![Some("a"), None, Some("ab"), Some("a")],
        Some(Encoding::Fsst),
    );
    let nulls = texts(vec![None; 40], None);
    let entries = texts(vec![Some("a"), Some("b")], Some(Encoding::Dict));
    let bound = || Bound::Included(Arc::new(StringArray::from(vec!["a"])) as ArrayRef);
    let filter = Filter::Column(
        0,
        Predicate::Range {
            low: bound(),
            high: bound(),
            negated: false,
        },
    );
    let output = Output::Aggregates(vec![Aggregate::CountRows]);
    let mut execution = start(&engine, &with, filter, output);
    for (inputs, count) in [(&with, 2), (&nulls, 2), (&entries, 3), (&with, 5)] {
        let groups = table(&engine, inputs, 1024);
        execution.aggregate(&Batch::of(&groups).unwrap()).unwrap();
        assert_eq!(execution.totals()[0].count, count);
    }
}

/// A kernel also covers strings as keys of earlier batches.
#[test]
fn batches_whose_keys_are_strings_and_entries() {
    let Some(engine) = engine() else { return };
    let texts = |texts: Vec<Option<&str>>, pin| [input(StringArray::from(texts), pin)];
    let strings = vec![Some("a"), None, Some("ab"), Some("a")];
    let with = texts(strings, Some(Encoding::Fsst));
    let nulls = texts(vec![None; 40], None);
    let entries = texts(vec![Some("a"), Some("b")], Some(Encoding::Dict));
    let plain = texts(vec![Some("b"), Some("c"), None], Some(Encoding::Plain));
    for first in [&with, &entries, &nulls] {
        let keys = vec![GroupKey::DictionaryValue(0)];
        let output = Output::Groups(keys, vec![Aggregate::CountRows]);
        let mut execution = start(&engine, &with, Filter::Constant(true), output);
        for (inputs, expected) in [
            (first, None),
            (&entries, Some("a 1, b 1")),
            (&with, Some("a 2, ab 1, null 1")),
            (&nulls, Some("null 40")),
            (&plain, Some("b 1, c 1, null 1")),
            (&entries, Some("a 1, b 1")),
        ] {
            let batch = Batch::of(&table(&engine, inputs, 1024)).unwrap();
            let groups = execution.group(&batch, |_| Ok(())).unwrap();
            let mut all = vec![];
            for groups in groups {
                let keys = groups.keys[0].as_string::<i32>().iter();
                let counts = groups.totals[0].counts.iter();
                let named = keys.map(|key| key.unwrap_or("null")).zip(counts);
                all.extend(named.map(|(key, count)| format!("{key} {count}")));
            }
            all.sort();
            if let Some(expected) = expected {
                assert_eq!(all.join(", "), expected);
            }
        }
    }
}

/// The last lane of rows is bounded by the start of the next one, which needs more than 32 bits here.
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

/// Each thread has the maximum rows for sums that share a word, all with the value of the largest magnitude.
#[test]
fn sums_of_groups_fill_their_fields() {
    let Some(engine) = engine() else { return };
    // 16 vectors for each of 16 warps: 2^9 rows per thread. With a count, fields take 64 bits or 65.
    let rows = 16 * 16 * 1024;
    for (first, second) in [
        ((1i64 << 20) - 1, (1i64 << 16) - 1),
        (1 - (1 << 19), (1 << 16) - 1),
        (-(1 << 18), 1 - (1 << 15)),
        ((1 << 54) - 1, -1),
        (1 - (1 << 54), -1),
        (-(1 << 54), 0),
        (i64::MIN, i64::MAX),
    ] {
        let column = |value| Arc::new(Int64Array::from(vec![value; rows])) as ArrayRef;
        let keys = Int64Array::from_iter_values((0..rows as i64).map(|row| row / 1024 % 64 / 63));
        let inputs = [
            input(keys, Some(Encoding::Ffor)),
            input(column(first), None),
            input(column(second), None),
        ];
        let table = table(&engine, &inputs, rows);
        let sum = |at| Aggregate::Sum(Expr::Column(at));
        let keys = vec![GroupKey::Value(Expr::Column(0))];
        let output = Output::Groups(keys, vec![sum(1), sum(2), Aggregate::CountRows]);
        let mut execution = start(&engine, &inputs, Filter::Constant(true), output);
        let (mut counts, mut sums) = ([0; 2], [[0; 2]; 2]);
        for groups in execution
            .group(&Batch::of(&table).unwrap(), |_| Ok(()))
            .unwrap()
        {
            let keys = groups.keys[0].as_primitive::<Int64Type>();
            for group in 0..groups.count {
                let key = keys.value(group) as usize;
                counts[key] += i128::from(groups.totals[2].counts[group]);
                for (sum, total) in sums[key].iter_mut().zip(&groups.totals) {
                    let Numbers::Int(values) = &total.values else {
                        panic!("floats");
                    };
                    *sum += values[group];
                }
            }
        }
        let of_key = [rows as i128 / 64 * 63, rows as i128 / 64];
        assert_eq!(counts, of_key);
        let all = [i128::from(first), i128::from(second)];
        let expected = of_key.map(|rows| all.map(|value| value * rows));
        assert_eq!(sums, expected, "{first} and {second}");
    }
}
