//! Expressions: arithmetic, logic, casts, comparisons, dates, decimals.

use arrow::array::Float64Array;

use super::*;

/// A row group with two columns each of these types.
pub fn pairs(types: &[DataType], style: Style, pin: Option<Encoding>) -> Vec<Vec<Input>> {
    let lens = [(1500, Nulls::Some), (700, Nulls::None)];
    let group = |((len, nulls), seed): ((usize, Nulls), u64)| {
        let chunk = |(index, data_type): (usize, &DataType)| {
            [0, 1].map(|second| Input {
                array: sample(
                    data_type,
                    style,
                    nulls,
                    len,
                    seed * 100 + 2 * index as u64 + second,
                ),
                pin,
            })
        };
        types.iter().enumerate().flat_map(chunk).collect()
    };
    lens.into_iter().zip(1..).map(group).collect()
}

pub fn every_row(name: &'static str, exprs: Vec<Expr>) -> Query {
    Query {
        name,
        filter: Filter::Constant(true),
        output: Output::Rows(exprs),
    }
}

/// Arithmetic at the limits of each integer type, and far from them.
pub fn arithmetic() -> Vec<Case> {
    use Arithmetic::{Add, Divide, Multiply, Remainder, Subtract};
    use DataType::*;
    let types = [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64];
    let case = |(types, style, pin): (&[DataType], Style, Option<Encoding>)| {
        let groups = pairs(types, style, pin);
        let mut queries = vec![];
        for (index, data_type) in types.iter().enumerate() {
            let of = Type::of(data_type).unwrap();
            let (x, y) = (column(2 * index), column(2 * index + 1));
            let (low, high) = of.range().unwrap();
            for divisor in [7, high] {
                let mut exprs = vec![
                    compute(Add, &x, &y),
                    compute(Subtract, &x, &y),
                    compute(Multiply, &x, &y),
                    Expr::negate(x.clone()),
                    compute(Divide, &x, &int(divisor, of)),
                    compute(Remainder, &x, &int(divisor, of)),
                    compute(Add, &compute(Multiply, &x, &int(3, of)), &int(high, of)),
                ];
                if low < 0 {
                    exprs.push(compute(Divide, &x, &int(-divisor.min(100), of)));
                    exprs.push(compute(Remainder, &x, &int(-divisor.min(100), of)));
                    exprs.push(compute(Divide, &Expr::negate(x.clone()), &int(low, of)));
                }
                queries.push(every_row("wrapping", exprs));
            }
            queries.push(Query {
                name: "totals",
                filter: Filter::Expr(compare(
                    Comparison::Greater,
                    &compute(Add, &x, &y),
                    &int(1, of),
                )),
                output: Output::Aggregates(vec![
                    Aggregate::Sum(compute(Multiply, &x, &y)),
                    Aggregate::Min(compute(Subtract, &x, &y)),
                    Aggregate::Max(compute(Add, &x, &y)),
                    Aggregate::Count(compute(Add, &x, &y)),
                ]),
            });
        }
        Case {
            lookups: vec![],
            name: format!("arithmetic {style:?}"),
            groups,
            queries,
        }
    };
    vec![
        case((&types, Style::Extremes, Some(Encoding::Plain))),
        case((
            &[Int8, Int32, Int64, UInt32],
            Style::Outliers(0),
            Some(Encoding::Ffor),
        )),
    ]
}

/// Arithmetic on floats, rounded after each operation.
pub fn floats() -> Case {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
    use Comparison::Less;
    let groups = pairs(
        &[DataType::Float32, DataType::Float64],
        Style::Extremes,
        None,
    );
    let mut queries = vec![];
    for (at, literal) in [(0, Literal::F32(1.1)), (2, Literal::F64(1.1))] {
        let (x, y, constant) = (column(at), column(at + 1), Expr::Literal(literal));
        let operations = [Add, Subtract, Multiply, Divide];
        let mut exprs: Vec<Expr> = operations.map(|o| compute(o, &x, &y)).into();
        exprs.push(Expr::negate(x.clone()));
        // the result would differ with a fused multiply-add
        exprs.push(compute(Add, &compute(Multiply, &x, &constant), &y));
        exprs.push(compute(Subtract, &constant, &compute(Multiply, &x, &x)));
        queries.push(every_row("rounding", exprs));
        // compares all bits, also of NaNs
        let computed = operations.map(|o| compute(o, &x, &x));
        let compared = computed.iter().map(|of_x| compare(Less, &x, of_x));
        queries.push(every_row("compared", compared.collect()));
    }
    let (x, y) = (column(0), column(2));
    queries.push(every_row(
        "widening",
        vec![
            cast(&x, Type::F64),
            cast(&y, Type::F32),
            compute(Multiply, &cast(&x, Type::F64), &y),
            compare(Less, &cast(&x, Type::F64), &y),
            compare(Less, &x, &cast(&y, Type::F32)),
        ],
    ));
    Case {
        lookups: vec![],
        name: "floats".into(),
        groups,
        queries,
    }
}

/// Three-valued logic, in expressions and as filters.
pub fn logic() -> Case {
    let booleans = |len: usize, seed: u64| -> Vec<Input> {
        let (a, b) = (seed, seed + 10);
        [a, b]
            .map(|seed| Input {
                array: sample(&DataType::Boolean, Style::Few, Nulls::Some, len, seed),
                pin: None,
            })
            .into_iter()
            .chain([Input {
                array: sample(&DataType::Int32, Style::Few, Nulls::Some, len, seed + 20),
                pin: None,
            }])
            .collect()
    };
    let groups = vec![booleans(1500, 1), booleans(33, 2)];
    let (a, b, n) = (column(0), column(1), column(2));
    let null = Expr::Literal(Literal::Null(Type::Bool));
    let not = |expr: &Expr| !expr.clone();
    let is_null = |expr: &Expr| Expr::is_null(expr.clone());
    let and = |parts: &[&Expr]| Expr::and(parts.iter().map(|p| (*p).clone()).collect());
    let or = |parts: &[&Expr]| Expr::or(parts.iter().map(|p| (*p).clone()).collect());
    let case = |whens: &[(&Expr, &Expr)], last: Option<&Expr>| {
        let whens = whens.iter().map(|(w, t)| ((*w).clone(), (*t).clone()));
        Expr::case(whens.collect(), last.cloned())
    };
    let of_int = Expr::Literal(Literal::Null(Type::I32));
    let exprs = vec![
        and(&[&a, &b]),
        or(&[&a, &b]),
        not(&a),
        not(&and(&[&a, &not(&b)])),
        and(&[&a, &b, &null]),
        or(&[&a, &null, &b]),
        and(&[]),
        or(&[]),
        is_null(&and(&[&a, &b])),
        is_null(&null),
        case(&[(&a, &n), (&b, &int(-5, Type::I32))], None),
        case(&[(&a, &n), (&b, &of_int)], Some(&int(1 << 30, Type::I32))),
        case(&[(&null, &a)], Some(&b)),
        case(
            &[(&not(&a), &b), (&is_null(&n), &null)],
            Some(&and(&[&a, &b])),
        ),
        int(1, Type::Bool),
        null.clone(),
        of_int.clone(),
        compute(Arithmetic::Add, &n, &of_int),
        compare(Comparison::Less, &n, &of_int),
    ];
    let mut queries = vec![every_row("values", exprs)];
    for expr in [
        or(&[&and(&[&a, &not(&b)]), &is_null(&n)]),
        null.clone(),
        and(&[&a, &b]),
    ] {
        queries.push(Query {
            name: "filter",
            filter: Filter::And(vec![
                Filter::Or(vec![
                    Filter::Expr(expr),
                    Filter::Column(0, Predicate::IsNull),
                ]),
                Filter::Expr(not(&b)),
            ]),
            output: Output::Aggregates(vec![
                Aggregate::CountRows,
                Aggregate::Count(a.clone()),
                Aggregate::Sum(cast(&a, Type::I32)),
                Aggregate::Min(b.clone()),
                Aggregate::Max(n.clone()),
                Aggregate::Sum(of_int.clone()),
                Aggregate::Count(int(3, Type::I64)),
                Aggregate::Sum(int(3, Type::I64)),
            ]),
        });
    }
    let either = Filter::Expr(or(&[&a, &b]));
    queries.push(Query {
        name: "one loop",
        filter: Filter::Or(vec![
            Filter::And(vec![
                Filter::Expr(and(&[&a, &not(&b)])),
                Filter::Column(2, Predicate::IsNotNull),
                either.clone(),
            ]),
            Filter::And(vec![
                Filter::Expr(not(&and(&[&a, &b]))),
                either,
                Filter::Expr(is_null(&n)),
            ]),
        ]),
        output: Output::Aggregates(vec![Aggregate::CountRows, Aggregate::Max(n.clone())]),
    });
    queries.push(Query {
        name: "nothing",
        filter: Filter::Constant(false),
        output: Output::Aggregates(vec![Aggregate::CountRows, Aggregate::Min(n.clone())]),
    });
    queries.push(every_row("no columns", vec![]));
    Case {
        lookups: vec![],
        name: "logic".into(),
        groups,
        queries,
    }
}

/// All casts between types that cannot fail.
pub fn casts() -> Case {
    use DataType::*;
    let types = [
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        Decimal128(38, 0),
    ];
    let small: Vec<i128> = (0..1500).map(|row| row % 2).collect();
    let group = |nulls: Nulls| -> Vec<Input> {
        let random = &mut Random::new(9);
        let chunk = |data_type: &DataType| Input {
            array: with_nulls(&array_of(data_type, &small), nulls, random),
            pin: Some(Encoding::Ffor),
        };
        let mut columns: Vec<Input> = types.iter().map(chunk).collect();
        for (data_type, seed) in [(Int64, 5), (Int32, 6), (UInt32, 7)] {
            columns.push(Input {
                array: sample(&data_type, Style::Extremes, nulls, small.len(), seed),
                pin: Some(Encoding::Plain),
            });
        }
        columns
    };
    let targets = [
        Type::I8,
        Type::U8,
        Type::I32,
        Type::U64,
        Type::I128,
        Type::F32,
        Type::F64,
    ];
    let narrow = (0..types.len()).map(|at| cast(&column(at), targets[at % targets.len()]));
    let second = (0..types.len()).map(|at| cast(&column(at), targets[(at + 3) % targets.len()]));
    let wide = [
        cast(&column(9), Type::F32),
        cast(&column(9), Type::F64),
        cast(&column(9), Type::I128),
        cast(&column(10), Type::I64),
        cast(&column(10), Type::F32),
        cast(&column(11), Type::I64),
        cast(&column(11), Type::F32),
        cast(&column(11), Type::U64),
    ];
    Case {
        lookups: vec![],
        name: "casts".into(),
        groups: vec![group(Nulls::Some), group(Nulls::None)],
        queries: vec![
            every_row("small", narrow.collect()),
            every_row("other", second.collect()),
            every_row("wide", wide.into()),
        ],
    }
}

/// All comparisons of all types, with each other and with constants.
pub fn comparisons() -> Case {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    use DataType::*;
    let types = [
        Int8,
        UInt32,
        Int64,
        UInt64,
        Decimal128(38, 4),
        Float32,
        Float64,
    ];
    let groups = pairs(&types, Style::Extremes, Some(Encoding::Plain));
    let all = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
    let of_columns = |(index, comparison): (usize, Comparison)| {
        let at = 2 * (index % types.len());
        compare(comparison, &column(at), &column(at + 1))
    };
    let pairs = (0..12).map(|i| of_columns((i, all[(i + i / 7) % 6])));
    let pairs: Vec<Expr> = pairs.collect();
    let literals = [
        Literal::Int(-1, Type::I8),
        Literal::Int(u32::MAX.into(), Type::U32),
        Literal::Int(i64::MIN.into(), Type::I64),
        Literal::Int(u64::MAX.into(), Type::U64),
        Literal::Int(10i128.pow(38) - 1, Type::I128),
        Literal::F32(-0.0),
        Literal::F64(f64::NAN),
    ];
    let with_literals = literals.iter().enumerate().map(|(index, literal)| {
        compare(
            all[(index + 2) % 6],
            &column(2 * index),
            &Expr::Literal(*literal),
        )
    });
    let with_literals: Vec<Expr> = with_literals.collect();
    let nulls = [Type::F32, Type::F64, Type::I128].map(|of| {
        let at = [10, 12, 8][[Type::F32, Type::F64, Type::I128]
            .iter()
            .position(|t| *t == of)
            .unwrap()];
        compare(Less, &column(at), &Expr::Literal(Literal::Null(of)))
    });
    Case {
        lookups: vec![],
        name: "comparisons".into(),
        groups,
        queries: vec![
            every_row("columns", pairs[..4].to_vec()),
            every_row("columns", pairs[4..8].to_vec()),
            every_row("columns", pairs[8..].to_vec()),
            every_row("constants", with_literals[..4].to_vec()),
            every_row("constants", with_literals[4..].to_vec()),
            every_row("nulls", nulls.into()),
        ],
    }
}

/// Parts of dates: around every new year of three centuries, at leap days, and over all days, most of which have no
/// parts.
pub fn dates() -> Case {
    let mut days: Vec<i128> = vec![];
    for year in -60..240 {
        let start = year * 365 + i128::from(((year + 69) as i64).div_euclid(4));
        days.extend((-1..=1).map(|near| start + near));
        days.extend([start + 58, start + 59, start + 60]);
    }
    days.extend((0..400).map(|i| i128::from(i32::MIN) + i * (1 << 32) / 399));
    days.extend([i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 1, 0, -1].map(i128::from));
    // the first and the last date that has parts, and the days next to them
    days.extend([-96_465_293, -96_465_292, 95_026_236, 95_026_237]);
    // the last day of an era, years 0 and multiples of 100
    days.extend(
        [
            -719_468, -719_469, -719_528, -719_529, 11_016, 47_540, 10_956,
        ]
        .map(i128::from),
    );
    days.retain(|day| *day <= i128::from(i32::MAX));
    let array = array_of(&DataType::Date32, &days);
    let nulls = with_nulls(&array, Nulls::Some, &mut Random::new(4));
    let near = array_of(
        &DataType::Date32,
        &(-800..1800).map(|d| d + 10_000).collect::<Vec<_>>(),
    );
    let chunk = |array: ArrayRef, pin| {
        vec![Input {
            array,
            pin: Some(pin),
        }]
    };
    let parts = [
        DatePart::Year,
        DatePart::Quarter,
        DatePart::Month,
        DatePart::Day,
        DatePart::DayOfWeek,
        DatePart::DayOfYear,
    ];
    let exprs: Vec<Expr> = parts.map(|part| Expr::date_part(part, column(0))).into();
    let year = |year: i128| {
        let of_column = Expr::date_part(DatePart::Year, column(0));
        Filter::Expr(compare(
            Comparison::Equal,
            &of_column,
            &int(year, Type::I32),
        ))
    };
    let in_year = |number: i128| Query {
        name: "in a year",
        filter: year(number),
        output: Output::Aggregates(vec![
            Aggregate::CountRows,
            Aggregate::Max(exprs[5].clone()),
            Aggregate::Min(exprs[4].clone()),
        ]),
    };
    Case {
        lookups: vec![],
        name: "dates".into(),
        groups: vec![
            chunk(nulls, Encoding::Plain),
            chunk(array, Encoding::Plain),
            chunk(near, Encoding::Delta),
        ],
        queries: vec![
            every_row("parts", exprs.clone()),
            in_year(1996),
            in_year(2000),
            in_year(1900),
        ],
    }
}

/// Parts of times of day, and times cut to units: around 1970, over all times with parts, and over all, most of which
/// have no parts.
pub fn times() -> Case {
    let of = DataType::Timestamp(TimeUnit::Second, None);
    let mut random = Random::new(7);
    let mut seconds = |span: u64, len: usize| -> Vec<i128> {
        let start = -(i128::from(span) / 2);
        (0..len)
            .map(|_| start + i128::from(random.below(span)))
            .collect()
    };
    let mut all = seconds(u64::MAX, 700);
    let days = Bounds::known(DatePart::Hour);
    all.extend([i64::MIN, i64::MAX, 0, -1].map(i128::from));
    all.extend([days.0, days.0 - 1, days.1, days.1 + 1]);
    let near = seconds(400_000, 1500);
    let known = seconds(1 << 43, 1100);
    let chunk = |values: &[i128], nulls| {
        vec![Input {
            array: with_nulls(&array_of(&of, values), nulls, &mut Random::new(5)),
            pin: None,
        }]
    };
    let parts = [DatePart::Hour, DatePart::Minute, DatePart::Second];
    let mut exprs: Vec<Expr> = parts.map(|part| Expr::date_part(part, column(0))).into();
    let days = || Expr::floor_divide(column(0), 86_400);
    exprs.push(Expr::date_part(DatePart::Month, days()));
    exprs.extend([1, 7, 3_600, 86_400_000_000_000].map(|by| Expr::floor_divide(column(0), by)));
    let cut = Expr::arithmetic(Arithmetic::Multiply, days(), int(86_400, Type::I64));
    exprs.push(cut);
    Case {
        lookups: vec![],
        name: "times".into(),
        groups: vec![
            chunk(&near, Nulls::Some),
            chunk(&known, Nulls::None),
            chunk(&all, Nulls::Some),
        ],
        queries: vec![every_row("parts", exprs)],
    }
}

/// Decimals as in TPC-H: the data rule out overflow of products and sums.
pub fn decimals() -> Case {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
    let of = DataType::Decimal128(15, 2);
    let chunk = |low: i128, span: u64, len: usize, nulls: Nulls, seed: u64| {
        let random = &mut Random::new(seed);
        let values: Vec<i128> = (0..len)
            .map(|_| low + i128::from(random.below(span)))
            .collect();
        Input {
            array: with_nulls(&array_of(&of, &values), nulls, random),
            pin: Some(Encoding::Ffor),
        }
    };
    let group = |len: usize, nulls: Nulls, seed: u64| {
        vec![
            chunk(90_000, 10_000_000, len, nulls, seed),
            chunk(0, 11, len, Nulls::None, seed + 1),
            chunk(-500, 1000, len, nulls, seed + 2),
            chunk(1 << 61, 1 << 40, len, nulls, seed + 3),
        ]
    };
    let groups = vec![
        group(2500, Nulls::Some, 1),
        group(1024, Nulls::None, 9),
        group(1, Nulls::None, 17),
    ];
    let (price, discount, signed, large) = (column(0), column(1), column(2), column(3));
    let one = int(100, Type::I128);
    let less = compute(Multiply, &price, &compute(Subtract, &one, &discount));
    let taxed = compute(Multiply, &less, &compute(Add, &one, &signed));
    let total = compute(Multiply, &compute(Multiply, &less, &large), &signed);
    let between = |low: i128, high: i128| {
        let constant = |value: i128| Bound::Included(array_of(&of, &[value]));
        range(1, &constant(low), &constant(high), false)
    };
    let quotient = |value: &Expr, divisor| {
        let scaled = compute(Multiply, value, &int(1_000_000, Type::I128));
        compute(Divide, &scaled, &int(divisor, Type::I128))
    };
    let mut queries = vec![
        every_row("products", vec![less.clone(), taxed.clone(), total.clone()]),
        every_row(
            "quotients",
            vec![
                quotient(&price, 3),
                quotient(&signed, -7),
                quotient(&large, 1 << 40),
            ],
        ),
    ];
    for (low, high) in [(5, 7), (0, 10), (11, 12)] {
        queries.push(Query {
            name: "revenue",
            filter: Filter::And(vec![
                between(low, high),
                Filter::Expr(compare(Comparison::Less, &signed, &int(240, Type::I128))),
            ]),
            output: Output::Aggregates(vec![
                Aggregate::Sum(less.clone()),
                Aggregate::Sum(taxed.clone()),
                Aggregate::Sum(total.clone()),
                Aggregate::Min(total.clone()),
                Aggregate::Max(large.clone()),
                Aggregate::CountRows,
            ]),
        });
    }
    Case {
        lookups: vec![],
        name: "decimals".into(),
        groups,
        queries,
    }
}

/// Signed numbers whose bounds by their packing exceed 64 bits, beside negative ones that are not packed; and small
/// unsigned numbers whose differences wrap.
pub fn around_64_bits() -> Case {
    let (signed, unsigned) = (DataType::Int64, DataType::UInt64);
    let group = |start: i128, step: i128, pin: Encoding| -> Vec<Input> {
        let values: Vec<i128> = (0..1500).map(|row| start + row % 700 * step).collect();
        let random = &mut Random::new(3);
        let small = |random: &mut Random| -> Vec<i128> {
            (0..1500).map(|_| i128::from(random.below(9))).collect()
        };
        let [a, b] = [small(random), small(random)];
        let columns = [(&signed, values), (&unsigned, a), (&unsigned, b)];
        let columns = columns.into_iter().enumerate();
        let input = |(at, (of, values)): (usize, (&DataType, Vec<i128>))| Input {
            array: with_nulls(&array_of(of, &values), Nulls::Some, random),
            pin: (at == 0).then_some(pin),
        };
        columns.map(input).collect()
    };
    let difference = compute(Arithmetic::Subtract, &column(1), &column(2));
    let seventh = compute(Arithmetic::Divide, &difference, &int(7, Type::U64));
    let is_large = compare(Comparison::Greater, &difference, &int(5, Type::U64));
    let limits = [-1_000_000, -1, 0, 5, 100, 1 << 62];
    let range = |low: Option<i128>, high: Option<i128>| {
        let bound = |of: Option<i128>| match of {
            Some(value) => Bound::Included(array_of(&signed, &[value])),
            None => Bound::Unbounded,
        };
        let (low, high) = (bound(low), bound(high));
        let negated = false;
        Filter::Column(0, Predicate::Range { low, high, negated })
    };
    let tested = |filter| Query {
        name: "range",
        filter,
        output: Output::Selection,
    };
    let below = limits.map(|limit| tested(range(None, Some(limit))));
    let above = limits.map(|limit| tested(range(Some(limit), None)));
    let mut queries: Vec<Query> = below.into_iter().chain(above).collect();
    queries.push(tested(Filter::Expr(is_large.clone())));
    queries.push(every_row(
        "differences",
        vec![difference.clone(), seventh.clone()],
    ));
    queries.push(Query {
        name: "totals of differences",
        filter: Filter::Expr(is_large),
        output: Output::Aggregates(vec![
            Aggregate::Sum(difference.clone()),
            Aggregate::Min(difference.clone()),
            Aggregate::Max(difference),
            Aggregate::Sum(seventh),
        ]),
    });
    Case {
        lookups: vec![],
        name: "arithmetic around 64 bits".into(),
        groups: vec![
            group(100, (1 << 62) / 600, Encoding::Ffor),
            group(-900_000, 1500, Encoding::Plain),
        ],
        queries,
    }
}

/// More columns than a warp has lanes: filters, rows and totals of all of them, and an expression of many.
pub fn many_columns() -> Case {
    use Arithmetic::Add;
    const COLUMNS: usize = 75;
    let types = [
        DataType::Int32,
        DataType::Int64,
        DataType::Float64,
        DataType::Decimal128(38, 4),
        DataType::UInt8,
    ];
    // few columns are decoded as a whole: kernel plans have a tile for each
    let pin = |at: usize| match at % 25 {
        0 => Encoding::Delta,
        10 => Encoding::Rle,
        _ => [Encoding::Ffor, Encoding::Dict, Encoding::Plain][at / 2 % 3],
    };
    let group = |len: usize, nulls: Nulls| -> Vec<Input> {
        let column = |at: usize| {
            let random = &mut Random::new(at as u64);
            let values: Vec<i128> = (0..len as u64)
                .map(|row| i128::from(row / 8 * (at as u64 + 3) % 120 + random.below(7)))
                .collect();
            let array = match &types[at % types.len()] {
                DataType::Float64 => {
                    let values = values.iter().map(|value| *value as f64 / 4.0);
                    Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
                }
                of => array_of(of, &values),
            };
            let nulls = if at.is_multiple_of(2) {
                nulls
            } else {
                Nulls::None
            };
            Input {
                array: with_nulls(&array, nulls, random),
                pin: Some(pin(at)),
            }
        };
        (0..COLUMNS).map(column).collect()
    };
    let groups = vec![group(2100, Nulls::Some), group(1024, Nulls::Vectors)];
    let less = |at: usize, limit: i128| {
        let of = Type::of(groups[0][at].array.data_type()).unwrap();
        compare(Comparison::Less, &column(at), &int(limit, of))
    };
    let tests = |limit| {
        (0..COLUMNS)
            .filter(|at| at % 5 != 2)
            .map(move |at| (at, limit))
    };
    let all = || (0..COLUMNS).map(column);
    // with the key and the filter's column, fewer than 32 together
    let sum = (0..COLUMNS)
        .filter(|at| at % 5 == 1 || at % 5 == 4)
        .take(28)
        .map(|at| cast(&column(at), Type::I64))
        .reduce(|a, b| compute(Add, &a, &b))
        .unwrap();
    let few = Filter::Expr(less(70, 60));
    let queries = vec![
        Query {
            name: "all columns",
            filter: Filter::Constant(true),
            output: Output::Rows(all().collect()),
        },
        Query {
            name: "all columns of some rows",
            filter: few.clone(),
            output: Output::Rows(all().rev().collect()),
        },
        Query {
            name: "tests of all",
            filter: Filter::And(
                tests(125)
                    .map(|(at, limit)| {
                        Filter::Expr(Expr::or(vec![less(at, limit), Expr::is_null(column(at))]))
                    })
                    .collect(),
            ),
            output: Output::Selection,
        },
        Query {
            name: "totals of all",
            filter: few,
            output: Output::Aggregates(
                all()
                    .flat_map(|of| [Aggregate::Sum(of.clone()), Aggregate::Count(of)])
                    .collect(),
            ),
        },
        Query {
            name: "groups of a sum of many",
            filter: Filter::Expr(less(74, 100)),
            output: Output::Groups(
                vec![GroupKey::Value(column(4))],
                vec![Aggregate::Sum(sum), Aggregate::CountRows],
            ),
        },
    ];
    Case {
        lookups: vec![],
        name: "many columns".into(),
        groups,
        queries,
    }
}
