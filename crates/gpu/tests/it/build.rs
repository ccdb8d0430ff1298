//! Tables that the device builds from rows and from groups, compared with tables built on the host.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{Decimal128Type, Int32Type, Int64Type};
use vectile_encodings::Predicate;
use vectile_gpu::{Batch, Build, BuildBy, Built, Engine, Error};
use vectile_pipeline::{
    Aggregate, Arithmetic, Code, Expr, Filter, GroupColumn, GroupKey, Literal, Lookup, Output,
    Pipeline, PostAggregation, Type,
};

use crate::support::{Input, driver, input, start, table};

const ROWS: i64 = 20_000;

fn rows() -> std::ops::Range<i64> {
    0..ROWS
}

/// Columns: a key per row, some of them null; the same with duplicates; few values; many; a wide one, a float, a
/// boolean, text.
fn inputs() -> Vec<Input> {
    let key = |row: i64| (row % 101 != 3).then_some(row * 7919 % ROWS * 3 - 500);
    let texts = rows().map(|row| format!("text {}", row % 5));
    vec![
        input(Int64Array::from_iter(rows().map(key)), None),
        input(
            Int32Array::from_iter_values(rows().map(|row| (row % 900) as i32)),
            None,
        ),
        input(
            Int16Array::from_iter(
                rows().map(|row| (row % 13 != 5).then_some((row % 40) as i16 - 20)),
            ),
            None,
        ),
        input(
            Int64Array::from_iter_values(rows().map(|row| row * row)),
            None,
        ),
        input(
            Decimal128Array::from_iter(
                rows().map(|row| (row % 7 != 1).then_some(i128::from(row) << 70)),
            )
            .with_precision_and_scale(38, 2)
            .unwrap(),
            None,
        ),
        input(
            Float64Array::from_iter_values(rows().map(|row| row as f64 / 3.0)),
            None,
        ),
        input(
            BooleanArray::from_iter(rows().map(|row| Some(row % 3 == 0))),
            None,
        ),
        input(StringArray::from_iter_values(texts), None),
    ]
}

fn int(value: i64) -> Box<Expr> {
    Expr::Literal(Literal::Int(value.into(), Type::I64)).into()
}

/// Builds tables from the rows that pass; `None` if keys are not unique.
fn passing(engine: &Arc<Engine>, filter: Filter, tables: &[Build]) -> Option<Vec<Built>> {
    let inputs = inputs();
    let batch = Batch::of(&table(engine, &inputs, 4096)).unwrap();
    let numbers = (0..7).map(Expr::Column);
    let output = Output::Rows(numbers.chain([Expr::DenseId(7), Expr::RowNumber]).collect());
    let mut execution = start(engine, &inputs, filter, output);
    let built = execution.build(&batch, tables).unwrap();
    assert!(execution.statistics().launches > 1);
    built
}

/// Passes rows in which a column of numbers is below a limit.
fn below(column: usize, limit: i64) -> Filter {
    let value = Expr::cast(Expr::Column(column), Type::I64);
    let less = Expr::compare(vectile_pipeline::Comparison::Less, value, *int(limit));
    Filter::Expr(less)
}

/// Asserts that the payloads of each key's code are the values of its row.
fn check(built: &Built, columns: &[usize], passes: impl Fn(i64) -> bool) {
    let inputs = inputs();
    let keys = &inputs[0].array;
    let codes = built.codes.codes_of(keys).unwrap();
    let numbers = keys.as_primitive::<Int64Type>();
    for (row, code) in codes.iter().enumerate() {
        let is_there = numbers.is_valid(row) && passes(row as i64);
        assert_eq!(code.is_some(), is_there, "row {row}");
    }
    let matched: Vec<u32> = (0..ROWS as u32)
        .filter(|row| codes[*row as usize].is_some())
        .collect();
    assert_eq!(built.codes.len(), matched.len());
    assert_eq!(built.codes.count_keys(keys).unwrap(), matched.len());
    let of_rows = UInt32Array::from(matched);
    let of_codes = UInt32Array::from_iter_values(codes.iter().flatten().copied());
    let others = Int64Array::from(vec![i64::MIN, -501, 3 * ROWS, i64::MAX]);
    let others: ArrayRef = Arc::new(others);
    assert!(
        built
            .codes
            .codes_of(&others)
            .unwrap()
            .iter()
            .all(Option::is_none)
    );
    // payloads of single codes, before all are copied
    let few = UInt32Array::from(vec![of_codes.values().first().copied(), None]);
    let some = built.attributes.iter();
    let some: Vec<ArrayRef> = some
        .map(|attribute| attribute.take(&few).unwrap())
        .collect();
    let values = built.attributes.iter();
    let values: Vec<ArrayRef> = values
        .map(|attribute| attribute.values().unwrap())
        .collect();
    for (some, values) in some.iter().zip(&values) {
        assert_eq!(some, &take(values, &few, None).unwrap());
    }
    assert_eq!(values.len(), columns.len());
    for (values, column) in values.iter().zip(columns) {
        assert!(values.len() == built.codes.count() as usize);
        let own = take(values, &of_codes, None).unwrap();
        let expected = take(&inputs[*column].array, &of_rows, None).unwrap();
        // types are machine types
        let expected = match own.data_type() == expected.data_type() {
            true => expected,
            false => {
                let data = expected.to_data().into_builder();
                arrow::array::make_array(data.data_type(own.data_type().clone()).build().unwrap())
            }
        };
        assert_eq!(&own, &expected, "column {column}");
    }
}

#[test]
fn rows_build_tables() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let unique = |by| Build {
        keys: vec![0],
        is_packed: false,
        by,
        is_unique: true,
    };
    let tables = [
        unique(BuildBy::Nothing),
        unique(BuildBy::Values(vec![2])),
        unique(BuildBy::Values(vec![1, 6, 1])),
        unique(BuildBy::ValuesOrRows(vec![2, 1])),
        unique(BuildBy::ValuesOrRows(vec![3, 4, 5, 6, 2])),
        // text, as dense ids
        unique(BuildBy::Values(vec![7, 2])),
    ];
    let columns: [&[usize]; 6] = [&[], &[2], &[1, 6, 1], &[2, 1], &[3, 4, 5, 6, 2], &[7, 2]];
    type Passes = fn(i64) -> bool;
    let filters: [(Filter, Passes); 3] = [
        (Filter::Constant(true), |_| true),
        (below(1, 450), |row| row % 900 < 450),
        (
            Filter::And(vec![
                Filter::Column(2, Predicate::IsNotNull),
                below(3, 100_000_000),
            ]),
            |row| row % 13 != 5 && row * row < 100_000_000,
        ),
    ];
    for (filter, passes) in filters {
        let built = passing(&engine, filter, &tables).unwrap();
        for (built, columns) in built.iter().zip(columns) {
            check(built, columns, passes);
        }
        let kinds = built.iter().map(|built| built.is_by_row);
        let expected = [false, false, false, false, true, false];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }
}

/// Row numbers count the rows of all row groups, including those that do not pass.
#[test]
fn rows_are_numbered() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let table = Build {
        keys: vec![0],
        is_packed: false,
        by: BuildBy::ValuesOrRows(vec![8, 3]),
        is_unique: true,
    };
    for (filter, limit) in [(Filter::Constant(true), 900), (below(1, 450), 450)] {
        let built = passing(&engine, filter, std::slice::from_ref(&table)).unwrap();
        let numbers = built[0].attributes[0].values().unwrap();
        let numbers = numbers.as_primitive::<Int64Type>();
        let expected = rows().filter(|row| row % 900 < limit);
        assert!(expected.eq(numbers.values().iter().copied()));
    }
}

#[test]
fn duplicate_keys_are_detected() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let of_duplicates = |is_unique| Build {
        keys: vec![1],
        is_packed: false,
        by: BuildBy::Nothing,
        is_unique,
    };
    let built = passing(&engine, Filter::Constant(true), &[of_duplicates(false)]).unwrap();
    assert_eq!(built[0].codes.len(), 900);
    assert!(passing(&engine, Filter::Constant(true), &[of_duplicates(true)]).is_none());
    // one row per key
    let built = passing(&engine, below(3, 900 * 900), &[of_duplicates(true)]);
    assert_eq!(built.unwrap()[0].codes.len(), 900);
}

#[test]
fn tables_of_no_rows_and_of_nulls() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let table = Build {
        keys: vec![0],
        is_packed: false,
        by: BuildBy::ValuesOrRows(vec![2, 3]),
        is_unique: true,
    };
    for filter in [below(3, -1), Filter::Column(0, Predicate::IsNull)] {
        let built = passing(&engine, filter, std::slice::from_ref(&table)).unwrap();
        check(&built[0], &[2, 3], |_| false);
    }
}

#[test]
fn unsupported_tables_are_errors() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let inputs = inputs();
    let batch = Batch::of(&table(&engine, &inputs, 4096)).unwrap();
    let build = |outputs: Vec<Expr>, table: Build| {
        let mut execution = start(
            &engine,
            &inputs,
            Filter::Constant(true),
            Output::Rows(outputs),
        );
        execution.build(&batch, &[table]).unwrap_err()
    };
    for (outputs, key, by, reason) in [
        (vec![Expr::Column(5)], 0, BuildBy::Nothing, "no integers"),
        (vec![Expr::Column(4)], 0, BuildBy::Nothing, "no integers"),
        (
            vec![Expr::Column(0), Expr::Column(3)],
            0,
            BuildBy::Values(vec![1]),
            "many codes",
        ),
        (
            vec![Expr::Column(0), Expr::Column(7)],
            0,
            BuildBy::ValuesOrRows(vec![1]),
            "strings",
        ),
        (vec![Expr::Column(0)], 5, BuildBy::Nothing, "no integers"),
    ] {
        let table = Build {
            keys: vec![key],
            is_packed: false,
            by,
            is_unique: false,
        };
        let error = build(outputs, table);
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains(reason), "{message}, not {reason}");
    }
}

/// Kernels look up tables that were built on the device, compared with tables of the same keys built on the host.
#[test]
fn kernels_probe_built_tables() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let columns = [3, 4, 5, 2];
    let table_of = |by| Build {
        keys: vec![0],
        is_packed: false,
        by,
        is_unique: true,
    };
    let tables = [
        table_of(BuildBy::ValuesOrRows(columns.to_vec())),
        table_of(BuildBy::Values(vec![2])),
    ];
    let mut built = passing(&engine, below(1, 450), &tables).unwrap();
    let by_value = built.pop().unwrap();
    let by_row = built.pop().unwrap();
    assert!(by_row.is_by_row);
    let attributes = by_row.attributes;
    let (by_row, by_value) = (Arc::new(by_row.codes), Arc::new(by_value.codes));
    // probe side: keys that are in the tables, and others
    let keys = rows().map(|row| row * 31 % (4 * ROWS) - 1000);
    let facts = vec![input(Int64Array::from_iter_values(keys), None)];
    let batch = Batch::of(&table(&engine, &facts, 8192)).unwrap();
    let outputs = attributes.iter();
    let outputs = outputs.map(|attribute| Expr::Payload(Code::Lookup(0), Arc::clone(attribute)));
    let pipeline = Pipeline {
        columns: vec![facts[0].array.data_type().clone()],
        lookups: vec![
            Lookup {
                column: 0,
                key_table: Arc::clone(&by_row),
            },
            Lookup {
                column: 0,
                key_table: Arc::clone(&by_value),
            },
        ],
        matches: vec![],
        filter: Filter::Matched(0),
        output: Output::Rows(
            outputs
                .chain([Expr::Column(0), Expr::Id(Code::Lookup(1))])
                .collect(),
        ),
    };
    let matched = engine
        .start(Arc::new(pipeline))
        .rows_of_batch(&batch)
        .unwrap();
    let matched: Vec<&vectile_pipeline::Rows> =
        matched.iter().filter(|rows| rows.count > 0).collect();
    assert!(matched.iter().map(|rows| rows.count).sum::<usize>() > 1000);
    for rows in matched {
        let [of_attributes @ .., keys, codes] = &rows.columns[..] else {
            panic!("{rows:?}");
        };
        let by_row: UInt32Array = by_row.codes_of(keys).unwrap().into_iter().collect();
        for (own, attribute) in of_attributes.iter().zip(&attributes) {
            let expected = take(&attribute.values().unwrap(), &by_row, None).unwrap();
            assert_eq!(own, &expected);
        }
        let by_value: UInt32Array = by_value.codes_of(keys).unwrap().into_iter().collect();
        assert_eq!(codes.as_ref(), &by_value as &dyn Array);
    }
}

/// Keys of a large range, and composite keys of two columns, compared with tables built on the host.
#[test]
fn keys_of_a_large_range_are_hashed() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let inputs = inputs();
    let batch = Batch::of(&table(&engine, &inputs, 4096)).unwrap();
    let spread = |row: i64| row.wrapping_mul(0x5851_f42d_4c95_7f2d);
    let far = Expr::arithmetic(
        Arithmetic::Multiply,
        Expr::Column(3),
        *int(0x5851_f42d_4c95_7f2d),
    );
    let outputs = vec![far, Expr::Column(3), Expr::Column(1), Expr::Column(2)];
    let one = |by| Build {
        keys: vec![0],
        is_packed: false,
        by,
        is_unique: true,
    };
    let packed = Build {
        keys: vec![1, 2],
        is_packed: true,
        by: BuildBy::ValuesOrRows(vec![1, 3]),
        is_unique: true,
    };
    let tables = [
        one(BuildBy::Nothing),
        one(BuildBy::ValuesOrRows(vec![1])),
        one(BuildBy::Values(vec![3])),
        packed,
    ];
    let mut execution = start(&engine, &inputs, below(1, 600), Output::Rows(outputs));
    let built = execution.build(&batch, &tables).unwrap().unwrap();
    let all = rows().map(|row| spread(row * row));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(all));
    let first = i64::from(built[3].digits[1].0 == 0);
    assert_eq!((built[3].digits.len(), first), (2, 1));
    let counts: i64 = built[3].digits[1].1 + 1;
    let packed = rows().map(|row| row * row * counts + row % 900);
    let packed: ArrayRef = Arc::new(Int64Array::from_iter_values(packed));
    let expected: Vec<bool> = rows().map(|row| row % 900 < 600).collect();
    for (built, keys) in built.iter().zip([&keys, &keys, &keys, &packed]) {
        let codes = built.codes.codes_of(keys).unwrap();
        let matched: Vec<bool> = codes.iter().map(Option::is_some).collect();
        assert!(matched == expected);
        let count = expected.iter().filter(|is_there| **is_there).count();
        assert_eq!(built.codes.len(), count);
        assert_eq!(built.codes.count_keys(keys).unwrap(), count);
        let others: ArrayRef = Arc::new(Int64Array::from(vec![-1, 7, i64::MIN, i64::MAX]));
        assert_eq!(built.codes.count_keys(&others).unwrap(), 0);
        assert!(
            built
                .codes
                .codes_of(&others)
                .unwrap()
                .iter()
                .all(Option::is_none)
        );
        let Some(values) = built.attributes.first() else {
            continue;
        };
        let values = values.values().unwrap();
        let rows = rows()
            .zip(codes)
            .filter_map(|(row, code)| Some((row, code?)));
        for (row, code) in rows {
            match built.is_by_row {
                true => {
                    assert_eq!(
                        values.as_primitive::<Int64Type>().value(code as usize),
                        row * row
                    );
                }
                false => {
                    let own = values.as_primitive::<arrow::datatypes::Int16Type>();
                    let is_null = row % 13 == 5;
                    assert_eq!(own.is_null(code as usize), is_null);
                    if !is_null {
                        assert_eq!(i64::from(own.value(code as usize)), row % 40 - 20);
                    }
                }
            }
        }
    }
    // duplicates
    let twice = Expr::arithmetic(
        Arithmetic::Multiply,
        Expr::cast(Expr::Column(1), Type::I64),
        *int(0x5851_f42d_4c95_7f2d),
    );
    let mut execution = start(
        &engine,
        &inputs,
        Filter::Constant(true),
        Output::Rows(vec![twice]),
    );
    let built = execution.build(&batch, &[one(BuildBy::Nothing)]).unwrap();
    assert!(built.is_none());
}

#[test]
fn groups_build_tables() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let inputs = inputs();
    let batch = Batch::of(&table(&engine, &inputs, 4096)).unwrap();
    let keys = vec![GroupKey::Value(Expr::Column(1))];
    let aggregates = vec![Aggregate::CountRows, Aggregate::Sum(Expr::Column(3))];
    let output = Output::Groups(keys, aggregates);
    let mut execution = start(&engine, &inputs, Filter::Constant(true), output);
    let above = Expr::compare(
        vectile_pipeline::Comparison::Greater,
        Expr::Column(1),
        *int(22),
    );
    let post = PostAggregation {
        columns: vec![
            GroupColumn::Key(0, Type::I32),
            GroupColumn::Count(0),
            GroupColumn::Value(1, Type::I64),
        ],
        conditions: vec![above],
        ..PostAggregation::default()
    };
    let half = Expr::arithmetic(
        Arithmetic::Multiply,
        Expr::cast(Expr::Column(1), Type::F64),
        Expr::Literal(Literal::F64(0.5)),
    );
    let computed = [
        Expr::average(Expr::Column(2), Expr::Column(1)),
        Expr::rounded(half, 1 << 60),
    ];
    let rows: Vec<Expr> = (0..3).map(Expr::Column).chain(computed).collect();
    let table = Build {
        keys: vec![0],
        is_packed: false,
        by: BuildBy::ValuesOrRows(vec![1, 2, 3, 4]),
        is_unique: true,
    };
    let built = execution.build_from_groups(&batch, &post, &rows, &[table]);
    let [built] = &built.unwrap().unwrap()[..] else {
        panic!("one table");
    };
    assert!(built.is_by_row);
    let values = built
        .attributes
        .iter()
        .map(|attribute| attribute.values().unwrap());
    let values: Vec<ArrayRef> = values.collect();
    let groups: ArrayRef = Arc::new(Int32Array::from_iter_values(0..900));
    let codes = built.codes.codes_of(&groups).unwrap();
    for (group, code) in groups
        .as_primitive::<Int32Type>()
        .values()
        .iter()
        .zip(codes)
    {
        let own = || rows_of_group((*group).into());
        let count = own().count() as i64;
        assert_eq!(code.is_some(), count > 22);
        if let Some(code) = code {
            let value = |number: usize| {
                values[number]
                    .as_primitive::<Int64Type>()
                    .value(code as usize)
            };
            assert_eq!(value(0), count);
            let sum = own().map(|row| row * row).sum::<i64>();
            assert_eq!((value(1), value(2)), (sum, sum / count));
            // ties round away from zero
            let half = values[3].as_primitive::<Decimal128Type>();
            let half = half.value(code as usize);
            assert_eq!(half, i128::from((count + 1) / 2));
        }
    }
}

fn rows_of_group(group: i64) -> impl Iterator<Item = i64> {
    rows().filter(move |row| row % 900 == group)
}
