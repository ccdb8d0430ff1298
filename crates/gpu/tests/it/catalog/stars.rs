//! Lookups and groups.

use arrow::array::{Float32Array, Int32Array, Int64Array};
use arrow::datatypes::Int64Type;
use vectile_pipeline::{Code, GroupKey, KeyTable, Lookup, PayloadColumn};

use super::*;

/// How the keys of a case are stored, per row group.
#[derive(Clone, Copy)]
struct Keys {
    name: &'static str,
    pins: [Encoding; 3],
    nulls: [Nulls; 3],
    /// The number of a row's key.
    shape: fn(u64, &mut Random) -> i128,
    /// The key of a number.
    key: fn(i128) -> i128,
    data_type: fn() -> DataType,
}

const NO_NULLS: [Nulls; 3] = [Nulls::None; 3];
const SOME_NULLS: [Nulls; 3] = [Nulls::Some, Nulls::None, Nulls::Vectors];

/// Keys from 40 to 939, some of which are far off.
fn scattered(_: u64, random: &mut Random) -> i128 {
    40 + i128::from(random.below(900))
}

/// Few distinct keys, for dictionaries.
fn distinct(_: u64, random: &mut Random) -> i128 {
    40 + 6 * i128::from(random.below(150))
}

fn far_off(row: u64, random: &mut Random) -> i128 {
    match row % 97 {
        5 => 1 << 40,
        6 => -(1 << 31) - 7,
        _ => scattered(row, random),
    }
}

fn outliers(row: u64, random: &mut Random) -> i128 {
    match row % 61 {
        7 => 800 + i128::from(random.below(29_000)),
        _ => 500 + i128::from(random.below(30)),
    }
}

fn in_runs(row: u64, _: &mut Random) -> i128 {
    40 + i128::from(row / 7 * 31 % 900)
}

/// Some keys are so far from the others that, truncated to 32 bits, they have indices of keys.
fn in_far_runs(row: u64, random: &mut Random) -> i128 {
    match row / 7 % 13 {
        5 => (1 << 32) + 10,
        6 => (1 << 31) + 40,
        _ => in_runs(row, random),
    }
}

fn rising(row: u64, _: &mut Random) -> i128 {
    i128::from(row / 3) + 20
}

/// Vectors of one key each.
fn steps(row: u64, _: &mut Random) -> i128 {
    40 + 2 * i128::from(row / VECTOR as u64)
}

// ---- keys of too large a range for a bit each: few numbers of a type, among them minimum and maximum ----

fn of_32(number: i128) -> i128 {
    match number {
        52 => i32::MAX.into(),
        57 => i32::MIN.into(),
        number => number * 143_165 + i128::from(i32::MIN) + 7,
    }
}

fn of_u32(number: i128) -> i128 {
    match number {
        52 => u32::MAX.into(),
        number => number * 143_165,
    }
}

fn of_64(number: i128) -> i128 {
    match number {
        52 => i64::MAX.into(),
        57 => i64::MIN.into(),
        // neither is in tables
        58 => i128::from(i64::MIN) + 1,
        113 => -1,
        number => (number as i64).wrapping_mul(0x1e37_79b9_7f4a_7c15).into(),
    }
}

fn far_rising(number: i128) -> i128 {
    (number << 33) - (1 << 50)
}

fn far_outliers(number: i128) -> i128 {
    match number {
        ..540 => number,
        _ => number << 40,
    }
}

fn of_decimals(number: i128) -> i128 {
    number * 33_333_333_333_333 - 500_000_000_000_000_000
}

/// Cases for every way to store keys.
pub fn stars() -> Vec<Case> {
    use DataType::{Int16, Int32, Int64, UInt32};
    use Encoding::{Delta, Dict, Ffor, GpuDfor, GpuFor, Plain, Rle};
    let all = |name, pin, nulls, shape, data_type| Keys {
        name,
        pins: [pin; 3],
        nulls,
        shape,
        key: |number| number,
        data_type,
    };
    let mixed = Keys {
        name: "mixed",
        pins: [Ffor, Dict, Plain],
        nulls: SOME_NULLS,
        shape: distinct,
        key: |number| number,
        data_type: || Int32,
    };
    let hashed = |name, keys: Keys, key, data_type| Keys {
        name,
        key,
        data_type,
        ..keys
    };
    let far = |name, pin, nulls, shape, key, data_type| {
        hashed(name, all(name, pin, nulls, shape, || Int32), key, data_type)
    };
    let time = || DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let dense = [
        all("ffor", Ffor, NO_NULLS, scattered, || Int32),
        all("ffor nulls", Ffor, SOME_NULLS, scattered, || Int16),
        all("ffor wide", Ffor, NO_NULLS, far_off, || Int64),
        all("ffor patches", Ffor, NO_NULLS, outliers, || Int32),
        all("dict", Dict, SOME_NULLS, distinct, || DataType::Date32),
        all("dict unsigned", Dict, NO_NULLS, in_runs, || UInt32),
        all("plain", Plain, SOME_NULLS, scattered, || Int16),
        all("delta", Delta, NO_NULLS, rising, || Int32),
        all("rle", Rle, SOME_NULLS, in_runs, || Int32),
        all("rle far", Rle, SOME_NULLS, in_far_runs, || Int64),
        all("gpu_for", GpuFor, SOME_NULLS, scattered, || Int32),
        all("gpu_for runs", GpuFor, NO_NULLS, in_runs, || Int16),
        all("gpu_for outliers", GpuFor, NO_NULLS, outliers, || Int32),
        all("gpu_dfor", GpuDfor, NO_NULLS, rising, || Int32),
        mixed,
    ];
    let hashed = [
        far("hashed ffor", Ffor, NO_NULLS, scattered, of_32, || Int32),
        far(
            "hashed ffor nulls",
            Ffor,
            SOME_NULLS,
            scattered,
            of_u32,
            || UInt32,
        ),
        far(
            "hashed ffor wide",
            Ffor,
            SOME_NULLS,
            scattered,
            of_decimals,
            || DataType::Decimal64(18, 3),
        ),
        far(
            "hashed ffor patches",
            Ffor,
            NO_NULLS,
            outliers,
            far_outliers,
            || Int64,
        ),
        far(
            "hashed ffor constants",
            Ffor,
            SOME_NULLS,
            steps,
            of_64,
            || Int64,
        ),
        far("hashed dict", Dict, SOME_NULLS, distinct, of_32, || {
            DataType::Date32
        }),
        far("hashed plain", Plain, SOME_NULLS, scattered, of_64, || {
            Int64
        }),
        far("hashed delta", Delta, NO_NULLS, rising, far_rising, time),
        far(
            "hashed gpu_for",
            GpuFor,
            SOME_NULLS,
            scattered,
            of_64,
            || Int64,
        ),
        far("hashed rle", Rle, SOME_NULLS, in_runs, of_64, || Int64),
        hashed("hashed mixed", mixed, of_64, || Int64),
    ];
    dense.into_iter().chain(hashed).map(star).collect()
}

/// A column of keys, a number with nulls, text, a double, another key of bytes.
fn star(keys: Keys) -> Case {
    let lens = [3000, 1024, 2100];
    let groups: Vec<Vec<Input>> = (0..3)
        .map(|group| {
            let (len, random) = (lens[group], &mut Random::new(31 + group as u64));
            let values: Vec<i128> = (0..len as u64)
                .map(|row| (keys.key)((keys.shape)(row, random)))
                .collect();
            let key = array_of(&(keys.data_type)(), &values);
            let numbers = |limit: u64, random: &mut Random| -> Vec<i128> {
                let number = |_| i128::from(random.below(limit)) - 100;
                (0..len).map(number).collect()
            };
            let number = array_of(&DataType::Int64, &numbers(1 << 20, random));
            let small = array_of(&DataType::Int8, &numbers(3, random));
            let doubles = numbers(5000, random).into_iter();
            let doubles: Vec<f64> = doubles.map(|number| number as f64 / 100.0).collect();
            // rows of blocks are read without decoding if few are selected
            let of_numbers = match keys.pins[group] {
                blocks @ (Encoding::GpuFor | Encoding::GpuDfor) => blocks,
                _ => Encoding::Ffor,
            };
            let input = |array, pin| Input {
                array,
                pin: Some(pin),
            };
            vec![
                input(
                    with_nulls(&key, keys.nulls[group], random),
                    keys.pins[group],
                ),
                input(with_nulls(&number, Nulls::Some, random), of_numbers),
                input(
                    strings(9, keys.nulls[group], len, group as u64),
                    Encoding::Dict,
                ),
                input(
                    Arc::new(arrow::array::Float64Array::from(doubles)),
                    Encoding::Alp,
                ),
                input(small, Encoding::Ffor),
            ]
        })
        .collect();
    let mut queries = queries(&(keys.data_type)());
    if keys.name.starts_with("hashed") {
        // each of these looks up keys in another way
        let names = [
            "shared",
            "numbered",
            "many codes",
            "not there",
            "anti",
            "looked up",
            "one group",
            "semi",
            "semi and anti",
        ];
        queries.retain(|query| names.contains(&query.name));
    }
    if ["ffor nulls", "gpu_dfor", "hashed gpu_for"].contains(&keys.name) {
        queries.extend(computed(&groups));
    }
    let mut lookups = lookups(&groups, keys.key);
    if keys.name.starts_with("gpu_") {
        // between two lookups of keys, numbers are decoded into the same tile
        queries.push(Query {
            name: "one tile",
            filter: Filter::And(vec![
                Filter::Matched(0),
                Filter::Matched(lookups.len()),
                Filter::Matched(1),
            ]),
            output: Output::Groups(
                vec![GroupKey::Code(0)],
                vec![Aggregate::CountRows, Aggregate::Sum(column(1))],
            ),
        });
        lookups.push(lookup_of_numbers(&groups));
    }
    Case {
        name: format!("stars {}", keys.name),
        lookups,
        queries,
        groups,
    }
}

fn codes(
    data_type: &DataType,
    key: fn(i128) -> i128,
    numbers: &[i128],
    code: impl Fn(i128) -> u32,
    count: u32,
) -> Arc<KeyTable> {
    let codes: Vec<u32> = numbers.iter().map(|number| code(*number)).collect();
    let keys = array_of(data_type, &keys_of(key, numbers));
    Arc::new(KeyTable::new(&keys, &codes, count).unwrap())
}

fn keys_of(key: fn(i128) -> i128, numbers: &[i128]) -> Vec<i128> {
    numbers.iter().map(|number| key(*number)).collect()
}

/// Lookups of keys: some with 5 codes, most with 300, some with 70,000, some with one code, and an empty one; some of
/// the texts; and few keys with so large a range that only a large block has room for their bits.
fn lookups(groups: &[Vec<Input>], key: fn(i128) -> i128) -> Vec<Lookup> {
    let data_type = groups[0][0].array.data_type();
    let few: Vec<i128> = (0..900).filter(|key| key % 5 == 2).collect();
    let most: Vec<i128> = (0..1200).filter(|key| key % 11 != 3).collect();
    // the bits are more than a warp copies at once
    let many: Vec<i128> = (0..30_000).filter(|key| key % 5 == 2).collect();
    let last = match data_type {
        DataType::Int16 => 30_000,
        _ if key(1) != 1 => 30_000,
        _ => 290_000,
    };
    let apart: Vec<i128> = (0..900).filter(|key| key % 9 == 2).chain([last]).collect();
    // some keys are duplicates
    let twice: Vec<i128> = many.iter().chain(&many[..50]).copied().collect();
    let there = KeyTable::set(&array_of(data_type, &keys_of(key, &twice))).unwrap();
    let none = KeyTable::new(&array_of(data_type, &[]), &[], 4).unwrap();
    let texts = groups[0][2].array.slice(0, 40);
    let texts = arrow::compute::cast(&texts, &DataType::Utf8).unwrap();
    let mut distinct: Vec<&str> = texts.as_string::<i32>().iter().flatten().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let distinct = &distinct[..distinct.len() / 2 + 1];
    let texts: ArrayRef = Arc::new(arrow::array::StringArray::from(distinct.to_vec()));
    let numbers: Vec<u32> = (0..distinct.len() as u32).collect();
    let texts = KeyTable::new(&texts, &numbers, distinct.len() as u32).unwrap();
    let lookup = |column, key_table| Lookup { column, key_table };
    vec![
        lookup(0, codes(data_type, key, &few, |n| n as u32 % 5, 5)),
        lookup(0, codes(data_type, key, &most, |n| n as u32 % 300, 300)),
        lookup(
            0,
            codes(data_type, key, &few, |n| n as u32 * 71 % 70_000, 70_000),
        ),
        lookup(0, Arc::new(there)),
        lookup(0, Arc::new(none)),
        lookup(2, Arc::new(texts)),
        lookup(0, codes(data_type, key, &apart, |n| n as u32 % 4, 4)),
    ]
}

/// A lookup of some of the numbers.
fn lookup_of_numbers(groups: &[Vec<Input>]) -> Lookup {
    let columns = groups.iter().map(|columns| &columns[1].array);
    let numbers = columns.flat_map(|array| array.as_primitive::<Int64Type>().iter().flatten());
    let some: std::collections::BTreeSet<i64> = numbers.filter(|n| n % 7 == 3).collect();
    let codes: Vec<u32> = some.iter().map(|n| n.rem_euclid(3) as u32).collect();
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(some));
    Lookup {
        column: 1,
        key_table: Arc::new(KeyTable::new(&keys, &codes, 3).unwrap()),
    }
}

/// Composite keys of two columns, some of which are in the table: with a small range, or one too large for a bit each.
fn computed(groups: &[Vec<Input>]) -> Vec<Query> {
    let pairs = groups.iter().flat_map(|columns| {
        let small = arrow::compute::cast(&columns[4].array, &DataType::Int64).unwrap();
        let small: Vec<_> = small.as_primitive::<Int64Type>().iter().collect();
        let numbers = columns[1].array.as_primitive::<Int64Type>().iter();
        let pairs = numbers.zip(small).map(|(a, b)| Some((a?, b?)));
        pairs.flatten().collect::<Vec<_>>()
    });
    let pairs: std::collections::BTreeSet<(i64, i64)> = pairs.collect();
    let some: Vec<(i64, i64)> = pairs.into_iter().step_by(3).collect();
    let of = |factor: i64, count: u32| {
        let keys = some.iter().map(|(a, b)| a.wrapping_mul(factor) + b);
        let distinct: std::collections::BTreeSet<i64> = keys.collect();
        let codes: Vec<u32> = (0..distinct.len() as u32).map(|n| n % count).collect();
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(distinct));
        let codes = match count {
            1 => KeyTable::set(&keys),
            count => KeyTable::new(&keys, &codes, count),
        };
        let product = compute(
            Arithmetic::Multiply,
            &column(1),
            &int(factor.into(), Type::I64),
        );
        let key = compute(Arithmetic::Add, &product, &cast(&column(4), Type::I64));
        Code::Probe(Box::new(key), Arc::new(codes.unwrap()))
    };
    let is_matched = |code: &Code| !Expr::Unmatched(code.clone());
    let worth: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..5).map(|n| (n != 2).then_some(n * 9 - 20)),
    ));
    let worth_of =
        |code: &Code| Expr::Payload(code.clone(), PayloadColumn::new(Arc::clone(&worth)));
    let mut queries = vec![];
    for factor in [1, 1 << 36] {
        let (few, many, one) = (of(factor, 5), of(factor, 300), of(factor, 1));
        let sums = vec![
            Aggregate::CountRows,
            Aggregate::Sum(worth_of(&few)),
            Aggregate::Sum(column(1)),
        ];
        queries.extend([
            Query {
                name: "computed keys",
                filter: Filter::Expr(is_matched(&few)),
                output: Output::Groups(vec![GroupKey::Value(Expr::Id(few.clone()))], sums.clone()),
            },
            Query {
                name: "computed keys, some of them there",
                filter: Filter::And(vec![Filter::Matched(1), Filter::Expr(!is_matched(&one))]),
                output: Output::Groups(
                    vec![
                        GroupKey::Value(Expr::Id(many.clone())),
                        GroupKey::Code(0),
                        GroupKey::Value(worth_of(&few)),
                    ],
                    vec![Aggregate::CountRows, Aggregate::Max(worth_of(&few))],
                ),
            },
            Query {
                name: "computed keys without groups",
                filter: Filter::And(vec![Filter::Expr(is_matched(&one)), Filter::Matched(0)]),
                output: Output::Aggregates(sums),
            },
            Query {
                name: "rows of computed keys",
                filter: Filter::Expr(is_matched(&many)),
                output: Output::Rows(vec![
                    column(0),
                    Expr::Id(many.clone()),
                    worth_of(&few),
                    Expr::Id(Code::Lookup(0)),
                ]),
            },
        ]);
    }
    queries
}

fn queries(key: &DataType) -> Vec<Query> {
    use Filter::{Matched, Unmatched};
    use GroupKey::{DictionaryValue, Value};
    let all = || {
        vec![
            Aggregate::CountRows,
            Aggregate::Sum(column(1)),
            Aggregate::Min(column(1)),
            Aggregate::Max(column(1)),
            Aggregate::Count(column(1)),
            Aggregate::Sum(column(3)),
            Aggregate::Min(column(3)),
            Aggregate::Max(column(3)),
        ]
    };
    let sum = || vec![Aggregate::Sum(column(1))];
    let wide = Expr::arithmetic(
        Arithmetic::Multiply,
        cast(&column(1), Type::I128),
        int(1 << 60, Type::I128),
    );
    let square = Aggregate::Sum(compute(
        Arithmetic::Multiply,
        &wide,
        &cast(&column(4), Type::I128),
    ));
    let worth: ArrayRef = Arc::new(Int64Array::from(vec![
        Some(7),
        None,
        Some(-1 << 40),
        Some(0),
        Some(3),
    ]));
    let share: ArrayRef = Arc::new(Float32Array::from_iter_values(
        (0..300).map(|i| i as f32 / 8.0),
    ));
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter((0..300).map(|i| Some(i % 3 == 0))));
    let limits: ArrayRef = Arc::new(Int32Array::from_iter_values((0..300).map(|i| i * 9000)));
    let payload = |lookup, values: &ArrayRef| {
        Expr::Payload(Code::Lookup(lookup), PayloadColumn::new(Arc::clone(values)))
    };
    let query = |name, filter, output| Query {
        name,
        filter,
        output,
    };
    let fixed = Type::of(key).is_some();
    assert!(fixed);
    vec![
        // first, because shared memory keeps the contents of earlier kernels:
        // bits in shared memory, and sums of floats per slot
        query(
            "few of floats",
            Matched(3),
            Output::Groups(vec![Value(column(4))], all()),
        ),
        query(
            "shared",
            Filter::And(vec![Matched(0), Matched(1)]),
            Output::Groups(vec![GroupKey::Code(0), DictionaryValue(2)], all()),
        ),
        query(
            "large block",
            Filter::And(vec![Matched(6), Matched(0)]),
            Output::Groups(vec![GroupKey::Code(6), GroupKey::Code(0)], sum()),
        ),
        query(
            "bits for a large block, wide sums",
            Matched(6),
            Output::Groups(
                vec![GroupKey::Code(6), GroupKey::Code(1)],
                vec![square.clone()],
            ),
        ),
        query(
            "numbered",
            Matched(1),
            Output::Groups(
                vec![GroupKey::Code(1), Value(column(4)), DictionaryValue(2)],
                all(),
            ),
        ),
        query(
            "many codes",
            Filter::And(vec![Matched(2), Unmatched(5)]),
            Output::Groups(vec![GroupKey::Code(2), GroupKey::Code(5)], vec![square]),
        ),
        query(
            "not there",
            Filter::Constant(true),
            Output::Groups(
                vec![GroupKey::Code(0), GroupKey::Code(4), GroupKey::Code(3)],
                sum(),
            ),
        ),
        query(
            "anti",
            Filter::And(vec![Unmatched(3), Matched(5)]),
            Output::Groups(
                vec![GroupKey::Code(5)],
                vec![Aggregate::CountRows, Aggregate::Sum(column(1))],
            ),
        ),
        query(
            "registers",
            Filter::Expr(compare(
                Comparison::Less,
                &column(1),
                &int(700_000, Type::I64),
            )),
            Output::Groups(vec![Value(column(4))], all()),
        ),
        query(
            "hashed",
            Filter::Constant(true),
            Output::Groups(vec![Value(column(0)), Value(column(1))], sum()),
        ),
        query(
            "parts",
            Filter::Constant(true),
            Output::Groups(
                // 20 bits each, and more than two
                vec![
                    Value(column(1)),
                    Value(column(1)),
                    Value(column(1)),
                    Value(column(0)),
                ],
                vec![
                    Aggregate::CountDistinct(column(4)),
                    Aggregate::Sum(column(1)),
                ],
            ),
        ),
        query(
            "distinct",
            Matched(3),
            Output::Groups(
                vec![Value(column(4))],
                vec![
                    Aggregate::CountDistinct(column(0)),
                    Aggregate::CountDistinct(column(1)),
                    Aggregate::CountRows,
                ],
            ),
        ),
        query(
            "values",
            Filter::Constant(true),
            Output::Groups(vec![Value(column(0))], vec![]),
        ),
        query(
            "looked up",
            Filter::Expr(Expr::or(vec![
                payload(1, &flags),
                compare(
                    Comparison::Less,
                    &cast(&payload(1, &limits), Type::I64),
                    &column(1),
                ),
            ])),
            Output::Groups(
                vec![Value(payload(1, &flags)), Value(payload(0, &worth))],
                vec![
                    Aggregate::Sum(payload(0, &worth)),
                    Aggregate::Max(payload(1, &share)),
                ],
            ),
        ),
        query(
            "one group",
            Filter::And(vec![Matched(3), Matched(5)]),
            Output::Aggregates(vec![
                Aggregate::CountRows,
                Aggregate::Sum(column(1)),
                Aggregate::Sum(payload(0, &worth)),
            ]),
        ),
        query(
            "none",
            Matched(4),
            Output::Groups(vec![GroupKey::Code(4)], sum()),
        ),
        query("semi", Matched(3), Output::Selection),
        query(
            "semi and anti",
            Filter::Or(vec![Unmatched(1), Matched(5)]),
            Output::Rows(vec![column(0), payload(1, &limits)]),
        ),
    ]
}
