//! Random values, nulls and constants. All share a few kernels: the first row groups of a column are always the same
//! and have every width, encoding and kind of patch. A kernel is generated for everything that occurs in any row
//! group, and constants are its arguments.

use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array, StringArray};
use arrow::datatypes::DataType;
use proptest::prelude::*;
use vectile_encodings::{EncodeOptions, Encoding, Predicate, encode};
use vectile_gpu::{Driver, Engine};
use vectile_pipeline::{
    Aggregate, Arithmetic, Automaton, Comparison, Expr, Filter, Literal, Output, Type, ValueTest,
};

use crate::catalog::{Case, Query, automaton_filter, comments};
use crate::differential::Loaded;
use crate::samples::{Nulls, Random, Style, VECTOR, sample, strings};
use crate::support::{Input, device};

const WIDTHS: &[u32] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32,
];
const CASES: u32 = 32;

fn pinned(array: ArrayRef, pin: Encoding) -> Vec<Input> {
    let pin = Some(pin);
    vec![Input { array, pin }]
}

/// The first row groups of each column.
fn seed(data_type: &DataType) -> Vec<Vec<Input>> {
    let all = |style, nulls, rows, pin| pinned(sample(data_type, style, nulls, rows, 1), pin);
    let widths = match data_type {
        DataType::Float64 => &[0, 5],
        _ => WIDTHS,
    };
    let mut groups = vec![
        all(Style::Extremes, Nulls::Some, 40, Encoding::Plain),
        all(
            Style::Widths(widths),
            Nulls::None,
            widths.len() * VECTOR,
            Encoding::Ffor,
        ),
        all(
            Style::Outliers(20),
            Nulls::Vectors,
            2 * VECTOR,
            Encoding::Ffor,
        ),
        all(Style::Sorted, Nulls::None, VECTOR, Encoding::Delta),
        all(Style::Runs, Nulls::None, VECTOR, Encoding::Rle),
        all(Style::Few, Nulls::None, 500, Encoding::Dict),
    ];
    // differences that are wider than their sums
    groups.push(all(Style::Extremes, Nulls::None, VECTOR, Encoding::Delta));
    if *data_type == DataType::Float64 {
        // offsets of their bits have all widths
        let random = &mut Random::new(1);
        let bits = (1..64u32).flat_map(|width| (0..VECTOR).map(move |_| width));
        let wide = bits.map(|width| f64::from_bits(random.next() >> (64 - width)));
        groups.push(pinned(
            Arc::new(Float64Array::from_iter_values(wide)),
            Encoding::Ffor,
        ));
        groups.push(all(Style::Extremes, Nulls::None, VECTOR, Encoding::Ffor));
        groups.push(all(
            Style::Outliers(20),
            Nulls::None,
            3 * VECTOR,
            Encoding::Alp,
        ));
        groups.push(all(Style::Digits, Nulls::None, VECTOR, Encoding::AlpRd));
    }
    groups
}

/// Row groups of random values, encoded at random.
fn random_groups(
    data_type: &'static DataType,
    values: impl Strategy<Value = ArrayRef> + 'static,
) -> impl Strategy<Value = Vec<Vec<Input>>> {
    let pin = prop::sample::select(Encoding::ALL.to_vec());
    let group = (values, pin).prop_map(move |(array, pin)| {
        assert_eq!(array.data_type(), data_type);
        // if the encoding does not apply, another one
        let pin = Some(pin).filter(|pin| encode(&array, &EncodeOptions::pinned(*pin)).is_ok());
        vec![Input { array, pin }]
    });
    prop::collection::vec(group, 1..4)
}

fn ints() -> impl Strategy<Value = ArrayRef> {
    let value = (any::<i32>(), any::<bool>());
    let values = prop::collection::vec(value, 1..2200);
    (values, 0..32u32, 0..4usize, any::<bool>(), any::<i32>()).prop_map(
        |(values, shift, shape, any_nulls, base)| {
            let mut last = base;
            let value = |(value, flip): (i32, bool)| {
                let small = value >> shift;
                last = match shape {
                    0 => small,
                    1 => base.wrapping_add(small),
                    2 => last.wrapping_add((small & 7).wrapping_sub(1)),
                    _ if value & 31 == 0 => small,
                    _ => last,
                };
                (!any_nulls || flip).then_some(last)
            };
            Arc::new(Int32Array::from_iter(values.into_iter().map(value))) as ArrayRef
        },
    )
}

fn doubles() -> impl Strategy<Value = ArrayRef> {
    let value = (any::<u64>(), -100_000..100_000i32, any::<bool>());
    let values = prop::collection::vec(value, 1..2200);
    (values, 0..4u32, 0..3i32, any::<bool>()).prop_map(|(values, odd, places, any_nulls)| {
        let value = |(bits, number, flip): (u64, i32, bool)| {
            // none, few, many or all are arbitrary floats
            let any = [0, 10, 300, 1000][odd as usize];
            let value = match bits % 1000 < any {
                true => f64::from_bits(bits),
                false => f64::from(number) / 10f64.powi(places),
            };
            (!any_nulls || flip).then_some(value)
        };
        Arc::new(Float64Array::from_iter(values.into_iter().map(value))) as ArrayRef
    })
}

/// Runs queries over the seed, followed by random row groups.
fn check(groups: Vec<Vec<Input>>, queries: Vec<Query>) {
    static ENGINE: LazyLock<Option<Arc<Engine>>> =
        LazyLock::new(|| Some(Engine::new(device()? as Arc<dyn Driver>)));
    let Some(engine) = ENGINE.as_ref() else {
        return;
    };
    let case = Case {
        lookups: vec![],
        name: "random".into(),
        groups,
        queries,
    };
    let loaded = Loaded::new(&case, engine);
    case.queries.iter().for_each(|query| loaded.check(query));
    drop(loaded);
    engine.clear();
}

fn queries(low: ArrayRef, high: ArrayRef, included: bool, expr: Expr) -> Vec<Query> {
    let x = Expr::Column(0);
    let bound = |constant: ArrayRef| match included {
        true => Bound::Included(constant),
        false => Bound::Excluded(constant),
    };
    let range = |negated: bool| {
        Filter::Column(
            0,
            Predicate::Range {
                low: bound(Arc::clone(&low)),
                high: bound(Arc::clone(&high)),
                negated,
            },
        )
    };
    vec![
        Query {
            name: "totals",
            filter: range(false),
            output: Output::Aggregates(vec![
                Aggregate::CountRows,
                Aggregate::Sum(x.clone()),
                Aggregate::Min(x.clone()),
                Aggregate::Max(expr.clone()),
            ]),
        },
        Query {
            name: "rows",
            filter: Filter::Or(vec![range(true), Filter::Column(0, Predicate::IsNull)]),
            output: Output::Rows(vec![x, expr]),
        },
    ]
}

fn of_column(operation: Arithmetic, literal: Literal) -> Expr {
    Expr::arithmetic(operation, Expr::Column(0), Expr::Literal(literal))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_integers(
        random in random_groups(&DataType::Int32, ints()),
        low in any::<i32>(), high in any::<i32>(), included: bool,
        // a constant of another number of bits would need another kernel
        constant in 1 << 20..i32::MAX,
    ) {
        let mut groups = seed(&DataType::Int32);
        groups.extend(random);
        let one = |value: i32| Arc::new(Int32Array::from(vec![value])) as ArrayRef;
        let expr = of_column(Arithmetic::Multiply, Literal::Int(constant.into(), Type::I32));
        check(groups, queries(one(low), one(high), included, expr));
    }

    #[test]
    fn random_doubles(
        random in random_groups(&DataType::Float64, doubles()),
        low in -1000.0..1000.0f64, high in any::<u64>(), included: bool, constant in any::<f64>(),
    ) {
        let mut groups = seed(&DataType::Float64);
        groups.extend(random);
        let one = |value: f64| Arc::new(Float64Array::from(vec![value])) as ArrayRef;
        let less = Expr::compare(Comparison::Less, Expr::Column(0), Expr::Literal(Literal::F64(constant)));
        check(groups, queries(one(low), one(f64::from_bits(high)), included, less));
    }

    #[test]
    fn random_tests_of_strings(
        distinct in 1..60u64, rows in 1..2200usize, seed in 0..1000u64, answers in any::<u64>(),
    ) {
        let few = (1..7).map(|n| strings(1 << n, Nulls::Some, 1500, n));
        let few = few.chain([strings(40, Nulls::Vectors, 2 * VECTOR, 9)]);
        let random = [strings(distinct.min(rows as u64 / 8 + 1), Nulls::Vectors, rows, seed)];
        let groups = few.chain(random).map(|array| pinned(array, Encoding::Dict)).collect();
        let passes = move |text: &str| answers >> ((text.len() + text.bytes().map(usize::from).sum::<usize>()) % 64) & 1 == 1;
        let test = ValueTest::new(Arc::new(move |array: &ArrayRef| {
            let text = arrow::array::AsArray::as_string::<i32>(array);
            Ok(text.iter().map(|text| text.map(passes)).collect())
        }));
        let query = Query {
            name: "strings",
            filter: Filter::Values(0, test),
            output: Output::Selection,
        };
        check(groups, vec![query]);
    }

    /// Strings in splits with one, two or no symbol tables, and in dictionaries.
    #[test]
    fn random_patterns(
        parts in prop::collection::vec("[sé%_]|[a-z]{1,2}|special| |%", 0..6),
        texts in prop::collection::vec(("[a-zé ]{0,9}|special ?", 0..400u16), 1..9),
        rows in 1..2200usize, seed in 0..1000u64, pin in 0..3usize,
    ) {
        let Some(automaton) = Automaton::like(&parts.concat(), false) else { return Ok(()) };
        let random = &mut Random::new(seed);
        // some are long, some are empty, some are null
        let all: u64 = texts.iter().map(|(_, share)| u64::from(*share)).sum();
        let text = |at: u64| {
            let mut at = at;
            let chosen = texts.iter().find(|(_, share)| {
                let is_here = at < u64::from(*share);
                at = at.saturating_sub(u64::from(*share));
                is_here
            });
            chosen.map(|(text, share)| text.repeat(usize::from(*share) % 40))
        };
        let texts: StringArray = (0..rows).map(|_| text(random.below(all + 1))).collect();
        let pin = [Encoding::Fsst, Encoding::Plain, Encoding::OnPair][pin];
        let groups = vec![
            pinned(comments(3000, 1), Encoding::Fsst),
            pinned(Arc::new(texts), pin),
            pinned(strings(20, Nulls::Some, 500, 1), Encoding::Plain),
        ];
        let query = Query {
            name: "patterns",
            filter: automaton_filter(automaton),
            output: Output::Selection,
        };
        check(groups, vec![query]);
    }
}
