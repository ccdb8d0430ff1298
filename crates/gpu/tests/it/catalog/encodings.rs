//! Encodings: each alone, in mixtures, with every width, with patches, with tests by dictionaries.

use super::*;

/// A column whose encoding differs between row groups, with every kind of ragged end.
pub fn mixed(data_type: &DataType) -> Case {
    use Nulls::{All, None as Full, Some, Vectors};
    use Style::*;
    const NARROW: &[u32] = &[0, 3, 8];
    let integers: &[(Encoding, Style, Nulls, usize)] = &[
        (Encoding::Constant, Constant, Some, 33),
        (Encoding::Plain, Extremes, Full, 1025),
        (Encoding::Plain, Extremes, Some, 31),
        (Encoding::Ffor, Widths(NARROW), Vectors, 3 * VECTOR),
        (Encoding::Ffor, Outliers(15), Some, 1023),
        (Encoding::Delta, Sorted, Full, 2100),
        (Encoding::Delta, Drifting, Some, 1025),
        (Encoding::Rle, Runs, Full, 2049),
        (Encoding::Dict, Few, Some, 2500),
        (Encoding::Constant, Constant, All, 40),
        (Encoding::Constant, Constant, Full, 1),
        (Encoding::Ffor, Outliers(0), Vectors, 3000),
        (Encoding::Sparse, Rare(8), Some, 3000),
        (Encoding::Delta, Restarts, Full, 2500),
    ];
    let booleans: &[(Encoding, Style, Nulls, usize)] = &[
        (Encoding::Constant, Constant, Full, 33),
        (Encoding::Ffor, Few, Some, 1025),
        (Encoding::Rle, Runs, Vectors, 3000),
        (Encoding::Rle, Runs, Full, 31),
        (Encoding::Constant, Constant, All, 1024),
        (Encoding::Ffor, Extremes, Full, 1023),
        (Encoding::Sparse, Rare(8), Some, 2500),
    ];
    let floats: &[(Encoding, Style, Nulls, usize)] = &[
        (Encoding::Constant, Constant, Some, 33),
        (Encoding::Plain, Extremes, Full, 1025),
        (Encoding::Ffor, Widths(&[1, 5]), Some, 1500),
        (Encoding::Delta, Sorted, Full, 1025),
        (Encoding::Rle, Runs, Vectors, 2049),
        (Encoding::Dict, Few, Some, 2500),
        (Encoding::Alp, Outliers(0), Full, 3 * VECTOR),
        (Encoding::Alp, Outliers(20), Some, 1023),
        (Encoding::AlpRd, Digits, Full, 1025),
        (Encoding::AlpRd, Extremes, Some, 32),
        (Encoding::Constant, Constant, All, 40),
        (Encoding::Plain, Extremes, Full, 1),
        (Encoding::Sparse, Rare(8), Full, 2049),
    ];
    let chunks = match data_type {
        DataType::Boolean => booleans,
        other if is_float(other) => floats,
        _ => integers,
    };
    let groups: Vec<Vec<Input>> = chunks
        .iter()
        .zip(1..)
        .filter(|((encoding, style, ..), _)| applies(data_type, *encoding, *style))
        .map(|((encoding, style, nulls, len), seed)| {
            vec![Input {
                array: sample(data_type, *style, *nulls, *len, seed),
                pin: Option::Some(*encoding).filter(|e| *e != Encoding::Constant),
            }]
        })
        .collect();
    Case {
        lookups: vec![],
        name: format!("mixed {data_type}"),
        queries: questions(&groups, 0),
        groups,
    }
}

/// True if an encoding applies: offsets beyond 64 bits have only `plain`.
fn applies(data_type: &DataType, encoding: Encoding, style: Style) -> bool {
    let is_wide = matches!(data_type, DataType::Decimal128(..)) && style == Style::Extremes;
    !is_wide || encoding == Encoding::Plain
}

/// Several columns, all in one encoding, so that kernels have code for nothing else.
pub fn singles() -> Vec<Case> {
    use DataType::*;
    let small = [Int8, UInt16, Int32, Int64];
    let large = [UInt64, Decimal128(38, 4), Float32, Float64];
    let both = [&small, &large];
    let cases = [
        (Encoding::Plain, Style::Extremes, &both[..]),
        (Encoding::Ffor, Style::Widths(&[4, 9]), &both),
        (Encoding::Delta, Style::Sorted, &both),
        (Encoding::Rle, Style::Runs, &both),
        (Encoding::Dict, Style::Few, &both),
        (Encoding::GpuFor, Style::Miniblocks(&[0, 4, 9]), &both),
        (Encoding::GpuDfor, Style::Sorted, &both),
        (Encoding::GpuRfor, Style::Runs, &both),
        (Encoding::Sparse, Style::Rare(5), &both),
    ];
    let of_case = |(encoding, style, types): (Encoding, Style, &[&[DataType; 4]])| {
        types
            .iter()
            .map(move |types| single(encoding, style, *types))
            .collect::<Vec<_>>()
    };
    let mut cases: Vec<Case> = cases.into_iter().flat_map(of_case).collect();
    cases.push(single(Encoding::Delta, Style::Restarts, &small));
    cases.push(single(Encoding::Alp, Style::Outliers(8), &large[2..]));
    cases.push(single(Encoding::AlpRd, Style::Digits, &large[2..]));
    cases
}

fn single(encoding: Encoding, style: Style, types: &[DataType]) -> Case {
    let groups: Vec<Vec<Input>> = [(1025, Nulls::None), (2048, Nulls::Some), (700, Nulls::None)]
        .iter()
        .map(|(len, nulls)| {
            let chunk = |(data_type, seed): (&DataType, u64)| Input {
                array: sample(data_type, style, *nulls, *len, seed),
                pin: Some(encoding),
            };
            types.iter().zip(7..).map(chunk).collect()
        })
        .collect();
    let mut queries = vec![];
    let of_column: Vec<_> = (0..types.len()).map(|at| ranges(&groups, at)).collect();
    for index in 0..of_column[0].len() {
        let tests = of_column.iter().enumerate().map(|(at, ranges)| {
            let (low, high) = &ranges[(index + at) % ranges.len()];
            range(at, low, high, at % 2 == 1)
        });
        let tests: Vec<Filter> = tests.collect();
        let sums = (0..types.len()).flat_map(|at| {
            let value = if is_float(&types[at]) {
                Aggregate::Max
            } else {
                Aggregate::Sum
            };
            [value(column(at)), Aggregate::Count(column(at))]
        });
        let (name, filter, output) = match index % 3 {
            0 => ("all", Filter::And(tests), Output::Selection),
            1 => (
                "some",
                Filter::Or(tests),
                Output::Aggregates(sums.collect()),
            ),
            _ => {
                let exprs = (0..types.len()).map(column).collect();
                ("rows", Filter::And(tests), Output::Rows(exprs))
            }
        };
        queries.push(Query {
            name,
            filter,
            output,
        });
    }
    Case {
        lookups: vec![],
        name: format!("single {encoding} {}", types[0]),
        groups,
        queries,
    }
}

/// Blocks of 128 beside other encodings: few widths in a vector and many, integers of 32 bits and wider ones, and every
/// kind of ragged end.
pub fn blocks() -> Vec<Case> {
    use DataType::*;
    use Encoding::{Delta, Ffor, GpuDfor, GpuFor, GpuRfor};
    use Nulls::{None as Full, Some, Vectors};
    use Style::{Drifting, Extremes, Miniblocks, Outliers, Runs, Sorted, Steps, Widths};
    const FEW: &[u32] = &[3, 7, 7, 0];
    const MANY: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 0, 8];
    let chunks = [
        (GpuFor, Miniblocks(FEW), Full, 3 * VECTOR),
        (GpuFor, Miniblocks(MANY), Some, 2 * VECTOR + 33),
        (GpuFor, Outliers(3), Vectors, 3000),
        (GpuFor, Extremes, Some, 1025),
        (GpuFor, Widths(&[0, 5]), Full, 1),
        (GpuDfor, Sorted, Full, 2100),
        (GpuDfor, Drifting, Some, 1536),
        (GpuDfor, Extremes, Vectors, 2049),
        (GpuDfor, Steps(&[1, 3]), Full, 129),
        (GpuRfor, Runs, Some, 1500),
        (GpuRfor, Extremes, Full, 513),
        (Ffor, Outliers(10), Some, 1100),
        (Delta, Drifting, Full, 1100),
    ];
    let alone = |of: &'static [Encoding]| {
        chunks
            .iter()
            .filter(|(encoding, ..)| of.contains(encoding))
            .copied()
            .collect::<Vec<_>>()
    };
    let cases = [
        (Int32, chunks.to_vec()),
        (Date32, alone(&[GpuFor])),
        (UInt16, alone(&[GpuDfor])),
        (Int64, chunks.to_vec()),
        (UInt64, alone(&[GpuFor])),
        (
            Timestamp(arrow::datatypes::TimeUnit::Microsecond, Option::None),
            alone(&[GpuDfor]),
        ),
        (Decimal128(38, 4), chunks.to_vec()),
        (Float64, alone(&[GpuFor, GpuDfor])),
    ];
    let case = |(data_type, chunks): (DataType, Vec<(Encoding, Style, Nulls, usize)>)| {
        let chunks = chunks.iter().zip(1..);
        let groups: Vec<Vec<Input>> = chunks
            .filter(|((encoding, style, ..), _)| applies(&data_type, *encoding, *style))
            .map(|((encoding, style, nulls, len), seed)| {
                vec![Input {
                    array: sample(&data_type, *style, *nulls, *len, seed),
                    pin: Option::Some(*encoding),
                }]
            })
            .collect();
        Case {
            lookups: vec![],
            name: format!("blocks {data_type}"),
            queries: questions(&groups, 0),
            groups,
        }
    };
    cases.into_iter().map(case).collect()
}

const EVERY_WIDTH: &[u32] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,
    50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64,
];

/// All widths, in one kernel per case.
pub fn widths() -> Vec<Case> {
    use DataType::*;
    let upto = |bits: usize| &EVERY_WIDTH[..=bits];
    let cases = [
        ("ffor", Int32, Encoding::Ffor, Style::Widths(upto(32)), 33),
        (
            "ffor",
            UInt64,
            Encoding::Ffor,
            Style::Widths(EVERY_WIDTH),
            65,
        ),
        ("delta", Int32, Encoding::Delta, Style::Steps(upto(32)), 33),
        (
            "delta",
            Int64,
            Encoding::Delta,
            Style::Steps(EVERY_WIDTH),
            65,
        ),
        (
            "gpu_for",
            Int32,
            Encoding::GpuFor,
            Style::Miniblocks(upto(32)),
            33,
        ),
        (
            "gpu_for",
            UInt64,
            Encoding::GpuFor,
            Style::Widths(EVERY_WIDTH),
            65,
        ),
        (
            "gpu_dfor",
            Int32,
            Encoding::GpuDfor,
            Style::Steps(upto(32)),
            33,
        ),
        (
            "gpu_dfor",
            Int64,
            Encoding::GpuDfor,
            Style::Steps(EVERY_WIDTH),
            65,
        ),
        ("alp", Float64, Encoding::Alp, Style::Widths(upto(48)), 49),
        ("alp", Float32, Encoding::Alp, Style::Widths(upto(20)), 21),
    ];
    let mut cases: Vec<Case> = cases
        .into_iter()
        .map(|(name, data_type, encoding, style, vectors)| {
            let groups = vec![vec![Input {
                array: sample(&data_type, style, Nulls::None, vectors * VECTOR - 5, 3),
                pin: Some(encoding),
            }]];
            Case {
                lookups: vec![],
                name: format!("widths of {name} {data_type}"),
                queries: questions(&groups, 0),
                groups,
            }
        })
        .collect();
    // codes of every width that a dictionary for this number of rows can have
    let groups: Vec<Vec<Input>> = (1..12u32)
        .map(|bits| {
            let mut values = vec![];
            let random = &mut Random::new(bits.into());
            let codes = 1u64 << bits;
            let rows = (codes as usize * 10).max(2 * VECTOR);
            // alternating far apart, so that dictionary values have to be looked up
            let entry = |code: u64| i128::from(code) * 77 - i128::from(code % 2) - 1000;
            values.extend((0..rows as u64).map(|row| match row < codes {
                true => entry(row),
                false => entry(random.below(codes)),
            }));
            vec![Input {
                array: array_of(&Int64, &values),
                pin: Some(Encoding::Dict),
            }]
        })
        .collect();
    cases.push(Case {
        lookups: vec![],
        name: "widths of dict".into(),
        queries: questions(&groups, 0),
        groups,
    });
    cases
}

/// Dictionaries of evenly spaced numbers that differ between row groups: of one value, of two with the largest
/// distance, and of numbers beyond 64 bits.
pub fn evenly_spaced() -> Vec<Case> {
    use DataType::*;
    let of = |first: i128, step: i128, entries: i128| (first, step, entries);
    let (far, wide) = (10i128.pow(20), 10i128.pow(15));
    let cases = [
        (Int8, vec![of(-128, 85, 4), of(5, 1, 1), of(-1, 1, 3)]),
        (
            Int64,
            vec![of(i64::MIN.into(), i64::MAX.into(), 3), of(-9, 4, 700)],
        ),
        (UInt64, vec![of(0, i64::MAX.into(), 3), of(1 << 63, 3, 90)]),
        (Date32, vec![of(-3, 7, 300), of(20_000, 1, 1)]),
        (
            Decimal128(15, 2),
            vec![of(100, 100, 50), of(-50, 25, 8), of(7, 9, 2)],
        ),
        (
            Decimal128(38, 4),
            vec![of(far, wide, 40), of(-far, far / 20, 2)],
        ),
    ];
    let case = |(data_type, chunks): (DataType, Vec<(i128, i128, i128)>)| {
        let chunk = |(index, (first, step, entries)): (usize, &(i128, i128, i128))| {
            let random = &mut Random::new(index as u64 + 5);
            let rows = 2 * VECTOR + 100 * index;
            let entry = |code: i128| first + step * code;
            let values: Vec<i128> = (0..rows as i128)
                .map(|row| match row < *entries {
                    true => entry(row),
                    false => entry(random.below(*entries as u64).into()),
                })
                .collect();
            let nulls = [Nulls::None, Nulls::Some][index % 2];
            vec![Input {
                array: with_nulls(&array_of(&data_type, &values), nulls, random),
                pin: Some(Encoding::Dict),
            }]
        };
        let groups: Vec<Vec<Input>> = chunks.iter().enumerate().map(chunk).collect();
        Case {
            lookups: vec![],
            name: format!("evenly spaced {data_type}"),
            queries: questions(&groups, 0),
            groups,
        }
    };
    cases.into_iter().map(case).collect()
}

/// Patches and exceptions: none, few, many, in the same column.
pub fn patches() -> Vec<Case> {
    use DataType::*;
    let cases = [
        ("ffor", Int64, Encoding::Ffor, [0, 1, 10, 60, 300]),
        ("delta", UInt32, Encoding::Delta, [0, 1, 10, 60, 300]),
        ("alp", Float64, Encoding::Alp, [0, 1, 50, 400, 1000]),
        ("alp", Float32, Encoding::Alp, [0, 1, 50, 400, 1000]),
    ];
    let case = |(name, data_type, encoding, shares): (&str, DataType, Encoding, [u64; 5])| {
        let chunk = |(share, seed): (&u64, u64)| {
            let nulls = [Nulls::None, Nulls::Some][seed as usize % 2];
            vec![Input {
                array: sample(
                    &data_type,
                    Style::Outliers(*share),
                    nulls,
                    2 * VECTOR + 77,
                    seed,
                ),
                pin: Some(encoding),
            }]
        };
        let groups: Vec<Vec<Input>> = shares.iter().zip(20..).map(chunk).collect();
        Case {
            lookups: vec![],
            name: format!("patches of {name} {data_type}"),
            queries: questions(&groups, 0),
            groups,
        }
    };
    cases.into_iter().map(case).collect()
}

/// Tests of strings and numbers by dictionaries: contiguous, scattered, all or no codes pass.
pub fn dictionaries() -> Case {
    let lens = [
        (3000, Nulls::Some),
        (1025, Nulls::None),
        (50, Nulls::All),
        (2048, Nulls::Vectors),
    ];
    let groups: Vec<Vec<Input>> = lens
        .into_iter()
        .zip(1..)
        .map(|((len, nulls), seed)| {
            let numbers = sample(&DataType::Int32, Style::Few, Nulls::Some, len, seed + 50);
            let pinned = |array: ArrayRef| Input {
                array,
                pin: Some(Encoding::Dict),
            };
            vec![
                pinned(strings(20 + seed * 3, nulls, len, seed)),
                pinned(numbers),
            ]
        })
        .collect();
    let text = |test: fn(&str) -> bool| {
        ValueTest::new(Arc::new(move |array: &ArrayRef| {
            let passes = array.as_string::<i32>().iter().map(|text| text.map(test));
            Ok(passes.collect::<BooleanArray>())
        }))
    };
    let tests: [fn(&str) -> bool; 6] = [
        |text| text.contains('e'),
        |text| text.starts_with("quick"),
        |_| true,
        |_| false,
        |text| text.len() % 3 == 1,
        |text| text.is_empty(),
    ];
    let text_ranges = ranges(&groups, 0);
    let picked = constants(&groups, 0, 5);
    let picked: Vec<&dyn Array> = picked.iter().map(|c| c.as_ref()).collect();
    let list = concat(&picked).unwrap();
    let numbers = constants(&groups, 1, 3);
    let mut queries = vec![];
    for (index, test) in tests.into_iter().enumerate() {
        let (low, high) = &text_ranges[index];
        let in_list = |negated| Predicate::In {
            values: list.slice(index % 3, 4),
            negated,
        };
        let number = Predicate::In {
            values: Arc::clone(&numbers[index % numbers.len()]),
            negated: index % 2 == 1,
        };
        let filter = Filter::And(vec![
            Filter::Or(vec![
                Filter::Values(0, text(test)),
                Filter::Column(0, in_list(false)),
                Filter::And(vec![
                    Filter::Column(0, in_list(true)),
                    range(0, low, high, false),
                ]),
            ]),
            Filter::Or(vec![
                Filter::Column(1, number),
                Filter::Column(1, Predicate::IsNull),
            ]),
        ]);
        let output = match index % 2 {
            0 => Output::Aggregates(vec![
                Aggregate::CountRows,
                Aggregate::Count(column(0)),
                Aggregate::Sum(column(1)),
            ]),
            _ => Output::Selection,
        };
        let name = if index % 2 == 0 {
            "totals"
        } else {
            "selection"
        };
        queries.push(Query {
            name,
            filter,
            output,
        });
        queries.push(Query {
            name: "one",
            filter: Filter::Values(0, text(test)),
            output: Output::Selection,
        });
        queries.extend(within_expressions(text(test), index));
    }
    Case {
        lookups: vec![],
        name: "dictionaries".into(),
        groups,
        queries,
    }
}

/// Queries with expressions that test strings of the first column; the second column has numbers.
pub fn within_expressions(test: ValueTest, number: usize) -> Vec<Query> {
    let passes = || Expr::Values(0, test.clone());
    let int = |value: i64| Expr::Literal(Literal::Int(value.into(), Type::I32));
    let either = Expr::case(vec![(passes(), column(1))], Some(int(7)));
    let compared = Expr::compare(Comparison::Less, column(1), int(3));
    let some = Expr::or(vec![!passes(), compared]);
    let kind = Expr::case(
        vec![(Expr::is_null(passes()), int(0)), (passes(), int(1))],
        Some(int(2)),
    );
    let sums = || {
        vec![
            Aggregate::CountRows,
            Aggregate::Sum(either.clone()),
            Aggregate::Count(Expr::case(vec![(passes(), int(1))], None)),
        ]
    };
    let (names, output) = match number % 4 {
        0 => (
            ["within totals", "within totals of some"],
            Output::Aggregates(sums()),
        ),
        1 => (
            ["within groups", "within groups of some"],
            Output::Groups(vec![GroupKey::Value(kind)], sums()),
        ),
        2 => (
            ["within rows", "within some rows"],
            Output::Rows(vec![kind, either.clone(), passes()]),
        ),
        _ => (["within all", "within a filter"], Output::Selection),
    };
    let filters = [Filter::Constant(true), Filter::Expr(some)];
    let queries = names.into_iter().zip(filters);
    let queries = queries.map(|(name, filter)| Query {
        name,
        filter,
        output: output.clone(),
    });
    queries.collect()
}

/// Lists of constants on columns without dictionaries.
pub fn lists() -> Case {
    let lens = [(2000, Nulls::Some), (1024, Nulls::None)];
    let groups: Vec<Vec<Input>> = lens
        .into_iter()
        .zip(1..)
        .map(|((len, nulls), seed)| {
            let chunk = |data_type: &DataType, style, pin| Input {
                array: sample(data_type, style, nulls, len, seed),
                pin: Some(pin),
            };
            vec![
                chunk(&DataType::Int16, Style::Widths(&[4]), Encoding::Ffor),
                chunk(&DataType::Float64, Style::Extremes, Encoding::Plain),
                chunk(&DataType::Float64, Style::Outliers(10), Encoding::Alp),
                chunk(&DataType::Date32, Style::Runs, Encoding::Rle),
            ]
        })
        .collect();
    let listed = |at: usize, from: usize| {
        let all = constants(&groups, at, 9);
        let some: Vec<&dyn Array> = all[from..from + 4].iter().map(|c| c.as_ref()).collect();
        concat(&some).unwrap()
    };
    let query = |from: usize| {
        let test = |at: usize| {
            let (values, negated) = (listed(at, from), at % 2 == 1);
            Filter::Column(at, Predicate::In { values, negated })
        };
        Query {
            name: "lists",
            filter: Filter::Or(vec![test(0), Filter::And(vec![test(1), test(2), test(3)])]),
            output: Output::Selection,
        }
    };
    // four neighbours are one range, which has another kernel
    Case {
        lookups: vec![],
        name: "lists".into(),
        queries: vec![query(0), query(3), query(7)],
        groups,
    }
}
