//! Pipelines with data that together have every encoding, type, width, shape of nulls and ragged end,
//! every test, expression and output.
//!
//! A kernel takes seconds to compile, and constants are its arguments: a case asks the same with many
//! constants. What is in the columns of a case decides which code its kernels have.

use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{concat, sort};
use arrow::datatypes::{DataType, TimeUnit};
use vectile_encodings::{Encoding, Predicate};
use vectile_gpu::ir::{
    Aggregate, Arithmetic, Comparison, DatePart, Expr, Filter, Literal, Output, Pipeline, Type,
    ValueTest,
};

use crate::samples::{Nulls, Random, Style, VECTOR, array_of, sample, strings, with_nulls};
use crate::support::Input;

/// Pipelines over the same data.
pub struct Case {
    pub name: String,
    /// The columns of each row group.
    pub groups: Vec<Vec<Input>>,
    pub queries: Vec<Query>,
}

/// What is asked. Queries of one name differ in constants only.
pub struct Query {
    pub name: &'static str,
    pub filter: Filter,
    pub output: Output,
}

impl Case {
    pub fn pipeline(&self, query: &Query) -> Arc<Pipeline> {
        let columns = self.groups[0].iter();
        Arc::new(Pipeline {
            columns: columns.map(|c| c.array.data_type().clone()).collect(),
            filter: query.filter.clone(),
            output: query.output.clone(),
        })
    }
}

/// All of them.
pub fn catalog() -> &'static [Case] {
    static CATALOG: LazyLock<Vec<Case>> = LazyLock::new(all);
    &CATALOG
}

fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = types().iter().map(mixed).collect();
    cases.extend(singles());
    cases.extend(widths());
    cases.extend(patches());
    cases.push(dictionaries());
    cases.push(lists());
    cases.extend(arithmetic());
    cases.push(floats());
    cases.push(logic());
    cases.push(casts());
    cases.push(comparisons());
    cases.push(dates());
    cases.push(decimals());
    cases
}

/// Types with a machine type, one at least for each.
pub fn types() -> Vec<DataType> {
    use DataType::*;
    vec![
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Date32,
        Timestamp(TimeUnit::Microsecond, None),
        Decimal32(9, 2),
        Decimal64(18, 3),
        Decimal128(38, 4),
        Float32,
        Float64,
    ]
}

fn is_float(data_type: &DataType) -> bool {
    Type::of(data_type).is_some_and(Type::is_float)
}

fn column(at: usize) -> Expr {
    Expr::Column(at)
}

fn boxed(expr: &Expr) -> Box<Expr> {
    Box::new(expr.clone())
}

fn compare(comparison: Comparison, a: &Expr, b: &Expr) -> Expr {
    Expr::Compare(comparison, boxed(a), boxed(b))
}

fn compute(operation: Arithmetic, a: &Expr, b: &Expr) -> Expr {
    Expr::Arithmetic(operation, boxed(a), boxed(b))
}

fn cast(expr: &Expr, to: Type) -> Expr {
    Expr::Cast(boxed(expr), to)
}

fn int(value: i128, of: Type) -> Expr {
    Expr::Literal(Literal::Int(value, of))
}

fn range(at: usize, low: &Bound<ArrayRef>, high: &Bound<ArrayRef>, negated: bool) -> Filter {
    let (low, high) = (low.clone(), high.clone());
    Filter::Column(at, Predicate::Range { low, high, negated })
}

fn all_totals(at: usize) -> Output {
    Output::Aggregates(vec![
        Aggregate::CountRows,
        Aggregate::Count(column(at)),
        Aggregate::Sum(column(at)),
        Aggregate::Min(column(at)),
        Aggregate::Max(column(at)),
    ])
}

/// Values of a column, ascending, the extremes and `count` between them.
fn constants(groups: &[Vec<Input>], at: usize, count: usize) -> Vec<ArrayRef> {
    let chunks: Vec<&dyn Array> = groups.iter().map(|g| g[at].array.as_ref()).collect();
    let all = sort(&concat(&chunks).unwrap(), None).unwrap();
    let valid = all.slice(all.null_count(), all.len() - all.null_count());
    let last = valid.len() - 1;
    (0..=count + 1)
        .map(|i| valid.slice(last * i / (count + 1), 1))
        .collect()
}

/// Ranges with bounds in, at the edge of and beyond the values; empty and full ones.
fn ranges(groups: &[Vec<Input>], at: usize) -> Vec<(Bound<ArrayRef>, Bound<ArrayRef>)> {
    use Bound::{Excluded, Included, Unbounded};
    let c = constants(groups, at, 5);
    let c = |i: usize| Arc::clone(&c[i]);
    vec![
        (Unbounded, Unbounded),
        (Included(c(0)), Included(c(0))),
        (Excluded(c(1)), Excluded(c(5))),
        (Included(c(5)), Included(c(1))),
        (Excluded(c(6)), Unbounded),
        (Unbounded, Excluded(c(0))),
        (Included(c(3)), Unbounded),
        (Unbounded, Included(c(2))),
        (Excluded(c(2)), Included(c(3))),
        (Included(c(6)), Included(c(6))),
    ]
}

/// The same questions of any column: totals in a range, a tree of tests, the rows that pass it.
fn questions(groups: &[Vec<Input>], at: usize) -> Vec<Query> {
    let ranges = ranges(groups, at);
    let mut queries = vec![];
    for (index, (low, high)) in ranges.iter().enumerate() {
        let tree = Filter::Or(vec![
            Filter::And(vec![
                range(at, low, high, true),
                Filter::Column(at, Predicate::IsNotNull),
            ]),
            Filter::And(vec![
                Filter::Column(at, Predicate::IsNull),
                Filter::Constant(true),
            ]),
            Filter::Constant(false),
        ]);
        queries.push(Query {
            name: "totals",
            filter: range(at, low, high, false),
            output: all_totals(at),
        });
        let output = match index % 2 {
            0 => Output::Selection,
            _ => Output::Rows(vec![column(at), Expr::IsNull(Box::new(column(at)))]),
        };
        queries.push(Query {
            name: if index % 2 == 0 { "tree" } else { "rows" },
            filter: tree,
            output,
        });
    }
    queries
}

/// One column with another encoding in each row group, and every kind of ragged end.
fn mixed(data_type: &DataType) -> Case {
    use Nulls::{All, None as Full, Some, Vectors};
    use Style::{Constant, Digits, Drifting, Extremes, Few, Outliers, Runs, Sorted, Widths};
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
    ];
    let booleans: &[(Encoding, Style, Nulls, usize)] = &[
        (Encoding::Constant, Constant, Full, 33),
        (Encoding::Ffor, Few, Some, 1025),
        (Encoding::Rle, Runs, Vectors, 3000),
        (Encoding::Rle, Runs, Full, 31),
        (Encoding::Constant, Constant, All, 1024),
        (Encoding::Ffor, Extremes, Full, 1023),
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
        name: format!("mixed {data_type}"),
        queries: questions(&groups, 0),
        groups,
    }
}

/// Offsets beyond 64 bits have no encoding but `plain`.
fn applies(data_type: &DataType, encoding: Encoding, style: Style) -> bool {
    let is_wide = matches!(data_type, DataType::Decimal128(..)) && style == Style::Extremes;
    !is_wide || encoding == Encoding::Plain
}

/// Several columns, all in one encoding, so that kernels know nothing else.
fn singles() -> Vec<Case> {
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
    ];
    let of_case = |(encoding, style, types): (Encoding, Style, &[&[DataType; 4]])| {
        types
            .iter()
            .map(move |types| single(encoding, style, *types))
            .collect::<Vec<_>>()
    };
    let mut cases: Vec<Case> = cases.into_iter().flat_map(of_case).collect();
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
        name: format!("single {encoding} {}", types[0]),
        groups,
        queries,
    }
}

const EVERY_WIDTH: &[u32] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,
    50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64,
];

/// Every width, in one kernel each.
fn widths() -> Vec<Case> {
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
                name: format!("widths of {name} {data_type}"),
                queries: questions(&groups, 0),
                groups,
            }
        })
        .collect();
    // codes of every width that a dictionary of so many rows has
    let groups: Vec<Vec<Input>> = (1..12u32)
        .map(|bits| {
            let mut values = vec![];
            let random = &mut Random::new(bits.into());
            let codes = 1u64 << bits;
            let rows = (codes as usize * 10).max(2 * VECTOR);
            values.extend((0..rows as u64).map(|row| match row < codes {
                true => i128::from(row) * 77 - 1000,
                false => i128::from(random.below(codes)) * 77 - 1000,
            }));
            vec![Input {
                array: array_of(&Int64, &values),
                pin: Some(Encoding::Dict),
            }]
        })
        .collect();
    cases.push(Case {
        name: "widths of dict".into(),
        queries: questions(&groups, 0),
        groups,
    });
    cases
}

/// Patches and exceptions: none, few, many, in the same column.
fn patches() -> Vec<Case> {
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
            name: format!("patches of {name} {data_type}"),
            queries: questions(&groups, 0),
            groups,
        }
    };
    cases.into_iter().map(case).collect()
}

/// Tests of strings and numbers by their dictionaries, with contiguous, scattered, all and no answers.
fn dictionaries() -> Case {
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
        ValueTest(Arc::new(move |array: &ArrayRef| {
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
    }
    Case {
        name: "dictionaries".into(),
        groups,
        queries,
    }
}

/// Lists of constants on columns that are no dictionaries.
fn lists() -> Case {
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
    // four neighbours are one range, and another kernel
    Case {
        name: "lists".into(),
        queries: vec![query(0), query(3), query(7)],
        groups,
    }
}

/// A row group with two columns each of these types.
fn pairs(types: &[DataType], style: Style, pin: Option<Encoding>) -> Vec<Vec<Input>> {
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

fn every_row(name: &'static str, exprs: Vec<Expr>) -> Query {
    Query {
        name,
        filter: Filter::Constant(true),
        output: Output::Rows(exprs),
    }
}

/// Arithmetic at the limits of each integer type, and far from them.
fn arithmetic() -> Vec<Case> {
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
                    Expr::Negate(boxed(&x)),
                    compute(Divide, &x, &int(divisor, of)),
                    compute(Remainder, &x, &int(divisor, of)),
                    compute(Add, &compute(Multiply, &x, &int(3, of)), &int(high, of)),
                ];
                if low < 0 {
                    exprs.push(compute(Divide, &x, &int(-divisor.min(100), of)));
                    exprs.push(compute(Remainder, &x, &int(-divisor.min(100), of)));
                    exprs.push(compute(Divide, &Expr::Negate(boxed(&x)), &int(low, of)));
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
fn floats() -> Case {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
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
        exprs.push(Expr::Negate(boxed(&x)));
        // would differ if it were fused
        exprs.push(compute(Add, &compute(Multiply, &x, &constant), &y));
        exprs.push(compute(Subtract, &constant, &compute(Multiply, &x, &x)));
        queries.push(every_row("rounding", exprs));
    }
    let (x, y) = (column(0), column(2));
    queries.push(every_row(
        "widening",
        vec![
            cast(&x, Type::F64),
            cast(&y, Type::F32),
            compute(Multiply, &cast(&x, Type::F64), &y),
        ],
    ));
    Case {
        name: "floats".into(),
        groups,
        queries,
    }
}

/// Three truth values, in expressions and as filters.
fn logic() -> Case {
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
    let not = |expr: &Expr| Expr::Not(boxed(expr));
    let is_null = |expr: &Expr| Expr::IsNull(boxed(expr));
    let and = |parts: &[&Expr]| Expr::And(parts.iter().map(|p| (*p).clone()).collect());
    let or = |parts: &[&Expr]| Expr::Or(parts.iter().map(|p| (*p).clone()).collect());
    let case = |whens: &[(&Expr, &Expr)], last: Option<&Expr>| {
        let whens = whens.iter().map(|(w, t)| ((*w).clone(), (*t).clone()));
        Expr::Case(whens.collect(), last.map(boxed))
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
    queries.push(Query {
        name: "nothing",
        filter: Filter::Constant(false),
        output: Output::Aggregates(vec![Aggregate::CountRows, Aggregate::Min(n.clone())]),
    });
    queries.push(every_row("no columns", vec![]));
    Case {
        name: "logic".into(),
        groups,
        queries,
    }
}

/// Casts between all types that cannot fail.
fn casts() -> Case {
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
fn comparisons() -> Case {
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

/// Parts of dates: around every new year of three centuries, at leap days, over all days there are.
fn dates() -> Case {
    let mut days: Vec<i128> = vec![];
    for year in -60..240 {
        let start = year * 365 + i128::from(((year + 69) as i64).div_euclid(4));
        days.extend((-1..=1).map(|near| start + near));
        days.extend([start + 58, start + 59, start + 60]);
    }
    days.extend((0..400).map(|i| i128::from(i32::MIN) + i * (1 << 32) / 399));
    days.extend([i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 1, 0, -1].map(i128::from));
    // the era's last day, years 0 and 100 multiples
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
    let exprs: Vec<Expr> = parts
        .map(|part| Expr::DatePart(part, Box::new(column(0))))
        .into();
    let year = |year: i128| {
        let of_column = Expr::DatePart(DatePart::Year, Box::new(column(0)));
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

/// Decimals as TPC-H has them: products and sums that fit because the data do.
fn decimals() -> Case {
    use Arithmetic::{Add, Multiply, Subtract};
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
    let mut queries = vec![every_row(
        "products",
        vec![less.clone(), taxed.clone(), total.clone()],
    )];
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
        name: "decimals".into(),
        groups,
        queries,
    }
}
