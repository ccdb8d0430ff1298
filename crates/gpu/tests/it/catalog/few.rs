//! Few groups, with accumulators per thread: some share words as bit fields, some have their own words.

use arrow::array::{Decimal128Array, Float64Array, StringArray};
use vectile_pipeline::GroupKey;

use super::*;

const FLAG: usize = 0;
const STATUS: usize = 1;
const PRICE: usize = 2;
const DISCOUNT: usize = 3;
const SIGNED: usize = 4;
const LONG: usize = 5;
const WIDE: usize = 6;
const DOUBLE: usize = 7;
const SMALL: usize = 8;

/// Dictionaries that are equal or differ between row groups, with and without nulls; patches.
pub fn few() -> Vec<Case> {
    vec![
        case("one dictionary", false, Nulls::None),
        case("several dictionaries, nulls", true, Nulls::Some),
    ]
}

fn case(name: &str, differ: bool, nulls: Nulls) -> Case {
    let groups = (0..3).map(|group| columns(group, differ, nulls)).collect();
    Case {
        name: format!("few groups, {name}"),
        groups,
        lookups: vec![],
        queries: queries(),
    }
}

fn columns(group: usize, differ: bool, nulls: Nulls) -> Vec<Input> {
    let (len, random) = (
        [3000, 1024, 5000][group],
        &mut Random::new(group as u64 + 3),
    );
    let mut numbers = |number: &dyn Fn(usize, u64) -> i128| -> Vec<i128> {
        (0..len).map(|row| number(row, random.next())).collect()
    };
    let decimals = |values: Vec<i128>, precision| -> ArrayRef {
        let values = Decimal128Array::from(values);
        Arc::new(values.with_precision_and_scale(precision, 2).unwrap())
    };
    // codes are assigned in the order of first occurrence
    let flags = ["A", "N", "R"];
    let turn = if differ { group } else { 0 };
    let flag =
        |row: usize, any: u64| flags[(if row < 3 { row } else { any as usize % 3 } + turn) % 3];
    let flags: Vec<&str> = (0..len).map(|row| flag(row, random_of(row))).collect();
    let status = |row: usize| if row % 700 < 699 { "open" } else { "done" };
    let statuses: Vec<&str> = (0..len).map(status).collect();
    let prices = numbers(&|row, any| match row % 211 {
        // wider than the others
        7 => (1 << 30) - 1 - i128::from(any % 1000),
        _ => i128::from(any % (1 << 24)) + 90_000,
    });
    let discounts = numbers(&|_, any| i128::from(any % 11));
    let signed = numbers(&|_, any| i128::from(any % 4000) - 2500);
    let long = numbers(&|row, any| match row % 3 {
        0 => i64::MAX.into(),
        1 => i64::MIN.into(),
        _ => i128::from(any as i64),
    });
    let wide = numbers(&|row, any| (i128::from(any as i64) << 60) - row as i128);
    let doubles = numbers(&|_, any| i128::from(any % 100_000));
    let small = numbers(&|_, any| i128::from(any % 3) - 1);
    let doubles: Vec<f64> = doubles.iter().map(|x| *x as f64 / 100.0 - 300.0).collect();
    let mut input = |array: ArrayRef, pin, is_nullable: bool| Input {
        array: match is_nullable {
            true => with_nulls(&array, nulls, random),
            false => array,
        },
        pin: Some(pin),
    };
    vec![
        input(Arc::new(StringArray::from(flags)), Encoding::Dict, false),
        input(Arc::new(StringArray::from(statuses)), Encoding::Dict, true),
        input(decimals(prices, 15), Encoding::Ffor, false),
        input(decimals(discounts, 15), Encoding::Ffor, false),
        input(array_of(&DataType::Int64, &signed), Encoding::Ffor, true),
        input(array_of(&DataType::Int64, &long), Encoding::Ffor, true),
        input(decimals(wide, 38), Encoding::Plain, true),
        input(Arc::new(Float64Array::from(doubles)), Encoding::Alp, true),
        input(array_of(&DataType::Int8, &small), Encoding::Ffor, true),
    ]
}

fn random_of(row: usize) -> u64 {
    Random::new(row as u64).next()
}

fn queries() -> Vec<Query> {
    use GroupKey::{DictionaryValue, Value};
    let sum = |at| Aggregate::Sum(column(at));
    let all = |at| {
        vec![
            Aggregate::CountRows,
            Aggregate::Sum(column(at)),
            Aggregate::Min(column(at)),
            Aggregate::Max(column(at)),
            Aggregate::Count(column(at)),
        ]
    };
    let one = int(100, Type::I128);
    let discounted = compute(
        Arithmetic::Multiply,
        &column(PRICE),
        &compute(Arithmetic::Subtract, &one, &column(DISCOUNT)),
    );
    let charged = compute(
        Arithmetic::Multiply,
        &discounted,
        &compute(Arithmetic::Add, &one, &column(DISCOUNT)),
    );
    let negative = compute(
        Arithmetic::Multiply,
        &cast(&column(SIGNED), Type::I128),
        &charged,
    );
    let texts = || vec![DictionaryValue(FLAG), DictionaryValue(STATUS)];
    let passing = Filter::Expr(compare(
        Comparison::Less,
        &column(DISCOUNT),
        &int(10, Type::I128),
    ));
    let query = |name, filter, keys, aggregates| Query {
        name,
        filter,
        output: Output::Groups(keys, aggregates),
    };
    vec![
        query(
            "sums that share words",
            passing,
            texts(),
            vec![
                sum(SIGNED),
                sum(PRICE),
                Aggregate::Sum(discounted.clone()),
                Aggregate::Sum(charged),
                sum(SIGNED),
                sum(DISCOUNT),
                Aggregate::CountRows,
            ],
        ),
        query(
            "signed",
            Filter::Constant(true),
            texts(),
            vec![
                Aggregate::Sum(negative),
                sum(SMALL),
                sum(SIGNED),
                Aggregate::Count(column(LONG)),
            ],
        ),
        query(
            "64 bits",
            Filter::Constant(true),
            vec![DictionaryValue(STATUS)],
            all(LONG),
        ),
        query(
            "128 bits",
            Filter::Constant(true),
            vec![Value(column(SMALL))],
            all(WIDE),
        ),
        query(
            "doubles",
            Filter::Constant(true),
            texts(),
            [all(DOUBLE), vec![sum(PRICE), sum(WIDE)]].concat(),
        ),
        query(
            "few rows",
            Filter::Expr(compare(
                Comparison::Equal,
                &column(SIGNED),
                &int(7, Type::I64),
            )),
            vec![Value(column(SMALL)), DictionaryValue(FLAG)],
            vec![sum(PRICE), Aggregate::Max(column(PRICE)), sum(SMALL)],
        ),
        query(
            "more groups",
            Filter::Constant(true),
            vec![DictionaryValue(FLAG), Value(column(DISCOUNT))],
            vec![sum(PRICE), Aggregate::Sum(discounted)],
        ),
        query("nothing but keys", Filter::Constant(true), texts(), vec![]),
    ]
}
