//! Damaged chunks: if parsing and building an image succeed, running a kernel must be safe, and must have the same
//! results as decoding on the CPU.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array};
use arrow::compute::{cast, filter, prep_null_mask_filter};
use arrow::datatypes::DataType;
use vectile_encodings::{Column, EncodeOptions, Encoding, Predicate, encode};
use vectile_gpu::{Batch, DeviceChunk, Engine, Error, Group};
use vectile_pipeline::KeyTable;
use vectile_pipeline::{
    Aggregate, Arithmetic, Automaton, Expr, Filter, GroupKey, Lookup, Output, Pipeline, Type,
    ValueTest,
};

use crate::catalog::comments;
use crate::reference;
use crate::samples::{Nulls, Random, Style, sample, strings};
use crate::support::{self, driver};

const ROWS: usize = 1100;

/// Chunks of a type, in every encoding.
fn chunks(data_type: &DataType) -> Vec<(ArrayRef, Vec<u8>)> {
    let integers = [
        (Encoding::Constant, Style::Constant),
        (Encoding::Plain, Style::Extremes),
        (Encoding::Ffor, Style::Widths(&[3, 11])),
        (Encoding::Ffor, Style::Outliers(20)),
        (Encoding::Delta, Style::Drifting),
        (Encoding::Delta, Style::Outliers(20)),
        (Encoding::Rle, Style::Runs),
        (Encoding::Dict, Style::Few),
        (Encoding::Sparse, Style::Rare(9)),
    ];
    let floats = [
        (Encoding::Alp, Style::Outliers(20)),
        (Encoding::AlpRd, Style::Digits),
    ];
    let is_float = Type::of(data_type).is_some_and(Type::is_float);
    let all = integers.iter().chain(floats.iter().filter(|_| is_float));
    let nulls = [Nulls::None, Nulls::Some, Nulls::Vectors];
    let arrays = all.zip(1..).map(|((encoding, style), seed)| {
        (
            sample(data_type, *style, nulls[seed as usize % 3], ROWS, seed),
            *encoding,
        )
    });
    let text = (1..5).map(|seed| {
        (
            strings(6 * seed, nulls[seed as usize % 3], ROWS, seed),
            Encoding::Dict,
        )
    });
    let arrays: Vec<_> = match data_type {
        DataType::Utf8 => text.collect(),
        _ => arrays.collect(),
    };
    arrays
        .into_iter()
        .filter_map(|(array, encoding)| {
            let pin = Some(encoding).filter(|e| *e != Encoding::Constant);
            // not every encoding applies to every type
            let bytes = encode(&array, &EncodeOptions::pinned(pin)).ok()?;
            Some((array, bytes))
        })
        .collect()
}

/// Changes some bytes, most often at the start, where lengths and widths are.
fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        let reach = [40, 200, bytes.len()][random.below(3) as usize].min(bytes.len());
        let at = random.below(reach as u64) as usize;
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] = bytes[at].wrapping_add(1),
            2 => bytes[at] ^= 1 << random.below(8),
            // a word of ones, or one that is negative
            3 => bytes
                .iter_mut()
                .skip(at & !7)
                .take(8)
                .for_each(|byte| *byte = 0xFF),
            4 => {
                let word = (random.below(100) as i64).wrapping_neg().to_le_bytes();
                bytes
                    .iter_mut()
                    .skip(at & !7)
                    .take(8)
                    .zip(word)
                    .for_each(|(b, w)| *b = w);
            }
            _ if random.below(8) == 0 => bytes.truncate(at.max(1)),
            _ => bytes[at] = 0,
        }
    }
    bytes
}

/// Damaged columns that parse and have an image.
fn survivors(data_type: &DataType, tries: u64) -> Vec<(Column, DeviceChunk)> {
    let random = &mut Random::new(11);
    let mut survivors = vec![];
    for (array, bytes) in chunks(data_type) {
        for _ in 0..tries {
            let damaged = damaged(&bytes, random);
            let Ok(column) = Column::parse(damaged.into(), data_type, array.len()) else {
                continue;
            };
            if let Ok(image) = DeviceChunk::build(&column) {
                survivors.push((column, image));
            }
        }
    }
    survivors
}

fn pipeline(data_type: &DataType, filter: Filter, output: Output) -> Arc<Pipeline> {
    Arc::new(Pipeline {
        columns: vec![data_type.clone()],
        lookups: vec![],
        matches: vec![],
        filter,
        output,
    })
}

/// Runs all kinds of kernels over all damaged chunks of a type. The chunks are row groups of one table, so that each
/// kind needs one kernel.
pub fn run(tries: u64) {
    let Some(device) = driver() else { return };
    use DataType::*;
    for data_type in [
        Boolean,
        Int32,
        UInt64,
        Decimal128(38, 4),
        Float32,
        Float64,
        Utf8,
    ] {
        let engine = Engine::new(Arc::clone(&device));
        let tries = if data_type == Utf8 { 5 * tries } else { tries };
        let survivors = survivors(&data_type, tries);
        assert!(
            survivors.len() as u64 > tries / 8,
            "{data_type}: {} of {tries}",
            survivors.len()
        );
        let groups: Vec<Group> = survivors
            .iter()
            .map(|(column, image)| Group {
                rows: column.len(),
                columns: vec![support::resident(&engine, image)],
            })
            .collect();
        let few = chunks(&data_type).remove(0).0;
        let middle = few.slice(few.len() / 2, 1);
        match data_type {
            Utf8 => text(&engine, &groups),
            _ => numbers(&engine, &data_type, &middle, &groups),
        }
        if data_type == Int32 {
            lookups(&engine, &chunks(&data_type), &groups);
        }
        if data_type != Utf8 {
            check_rows(&engine, &data_type, &survivors, &groups);
        }
    }
}

fn numbers(engine: &Arc<Engine>, data_type: &DataType, middle: &ArrayRef, groups: &[Group]) {
    let x = Expr::Column(0);
    let of = Type::of(data_type).unwrap();
    let range = Predicate::Range {
        low: Bound::Included(Arc::clone(middle)),
        high: Bound::Unbounded,
        negated: false,
    };
    let sum = match of {
        Type::I128 | Type::Bool => x.clone(),
        _ => Expr::arithmetic(Arithmetic::Add, x.clone(), x.clone()),
    };
    let totals = Output::Aggregates(vec![
        Aggregate::Sum(sum),
        Aggregate::Min(x.clone()),
        Aggregate::Max(x),
    ]);
    let filter = Filter::Or(vec![
        Filter::Column(0, range),
        Filter::Column(0, Predicate::IsNull),
    ]);
    let pipeline = pipeline(data_type, filter, totals);
    let batch = Batch::of(groups).unwrap();
    engine.start(pipeline).aggregate(&batch).unwrap();
}

/// Dense and hashed keys: each as a filter, and as the only group key.
fn lookups(engine: &Arc<Engine>, chunks: &[(ArrayRef, Vec<u8>)], groups: &[Group]) {
    let dense: ArrayRef = Arc::new(Int32Array::from_iter_values((0..3000).map(|i| i * 3)));
    // every other value
    let mut some: Vec<i32> = vec![i32::MIN, i32::MAX];
    for (array, _) in chunks {
        let values = array.as_primitive::<arrow::datatypes::Int32Type>();
        some.extend(values.iter().flatten().step_by(2));
    }
    some.sort_unstable();
    some.dedup();
    let sparse: ArrayRef = Arc::new(Int32Array::from(some));
    for keys in [dense, sparse] {
        let codes: Vec<u32> = (0..keys.len() as u32).map(|row| row % 300).collect();
        let codes = Arc::new(KeyTable::new(&keys, &codes, 300).unwrap());
        for filter in [Filter::Matched(0), Filter::Constant(true)] {
            let pipeline = Arc::new(Pipeline {
                columns: vec![DataType::Int32],
                lookups: vec![Lookup {
                    column: 0,
                    key_table: Arc::clone(&codes),
                }],
                matches: vec![],
                filter,
                output: Output::Groups(vec![GroupKey::Code(0)], vec![Aggregate::CountRows]),
            });
            let result = engine
                .start(pipeline)
                .group(&Batch::of(groups).unwrap(), |_| Ok(()));
            assert!(matches!(result, Ok(_) | Err(Error::Unsupported(_))));
        }
    }
}

/// A test that scattered codes pass: they are looked up in a bitmap.
fn text(engine: &Arc<Engine>, groups: &[Group]) {
    let test = ValueTest::new(Arc::new(|array: &ArrayRef| {
        let rows = 0..array.len();
        Ok(rows.map(|row| Some(row % 2 == 0)).collect::<BooleanArray>())
    }));
    let pipeline = pipeline(&DataType::Utf8, Filter::Values(0, test), Output::Selection);
    engine.start(pipeline).select(groups).unwrap();
}

/// Checks selected rows. Offsets that wrap around, which no writer emits, decode to the same values as on the CPU if
/// they are as wide as the machine's words.
fn check_rows(
    engine: &Arc<Engine>,
    data_type: &DataType,
    survivors: &[(Column, DeviceChunk)],
    groups: &[Group],
) {
    let output = Output::Rows(vec![Expr::Column(0)]);
    let pipeline = pipeline(data_type, Filter::Constant(true), output);
    let rows = engine.start(pipeline).rows(groups).unwrap();
    assert_eq!(rows.len(), survivors.len());
    assert!(rows.iter().all(|rows| rows.count == ROWS));
    if !matches!(
        data_type,
        DataType::Int32 | DataType::UInt64 | DataType::Float64
    ) {
        return;
    }
    for ((column, _), rows) in survivors.iter().zip(rows) {
        let Ok(expected) = column.decode(0..ROWS) else {
            continue;
        };
        let actual = reference::values_of(&rows.columns[0]);
        for (row, (actual, expected)) in actual
            .iter()
            .zip(reference::values_of(&expected))
            .enumerate()
        {
            let encoding = column.describe();
            assert!(
                actual.same(expected),
                "row {row} of {data_type}, {encoding}: {actual:?} for {expected:?}"
            );
        }
    }
}

#[test]
fn damaged_chunks() {
    run(40);
}

/// Damaged chunks that have an image have the strings that the CPU decodes. They are binary, so that the CPU does not
/// check UTF-8.
pub fn check_strings() {
    let Some(device) = driver() else { return };
    let engine = Engine::new(device);
    let automaton = Arc::new(Automaton::like("%special%final%", false).unwrap());
    let random = &mut Random::new(5);
    let (mut survivors, mut groups) = (vec![], vec![]);
    let texts = [
        (comments(2500, 1), Encoding::Fsst, "fsst(fsst, "),
        (comments(400, 2), Encoding::Fsst, "fsst("),
        (strings(50, Nulls::Some, 700, 3), Encoding::Plain, "plain("),
        (comments(2500, 4), Encoding::OnPair, "onpair("),
    ];
    for (texts, pin, expected) in texts {
        let texts = cast(&texts, &DataType::Binary).unwrap();
        let options = EncodeOptions::pinned(pin);
        let bytes = encode(&texts, &options).unwrap();
        let whole = Column::parse(bytes.clone().into(), &DataType::Binary, texts.len()).unwrap();
        assert!(
            whole.describe().starts_with(expected),
            "{}",
            whole.describe()
        );
        for _ in 0..300 {
            let damaged = damaged(&bytes, random);
            let Ok(column) = Column::parse(damaged.into(), &DataType::Binary, texts.len()) else {
                continue;
            };
            let Ok(image) = DeviceChunk::build(&column) else {
                // the CPU does not check that codes do not cross strings
                let is_looked_at = pin != Encoding::OnPair;
                assert!(!is_looked_at || column.decode(0..texts.len()).is_err());
                continue;
            };
            survivors.push(column.decode(0..texts.len()).unwrap());
            groups.push(Group {
                rows: column.len(),
                columns: vec![support::resident(&engine, &image)],
            });
        }
    }
    assert!(survivors.len() > 100, "{}", survivors.len());
    let own = Arc::clone(&automaton);
    let function = move |array: &ArrayRef| {
        let passes = array.as_binary::<i32>().iter();
        let passes = passes.map(|text| text.map(|text| own.matches(text)));
        Ok(passes.collect::<BooleanArray>())
    };
    let test = ValueTest::new(Arc::new(function)).with_automaton(Some(automaton));
    let passing = Filter::Values(0, test.clone());
    let pipeline = self::pipeline(&DataType::Binary, passing, Output::Selection);
    let selections = engine.start(pipeline).select(&groups).unwrap();
    let rows = |filter| {
        let pipeline = self::pipeline(
            &DataType::Binary,
            filter,
            Output::Rows(vec![Expr::Column(0)]),
        );
        engine.start(pipeline).rows(&groups).unwrap()
    };
    let selected = rows(Filter::Values(0, test.clone()));
    let all = rows(Filter::Constant(true));
    let actual = selections.iter().zip(selected).zip(all);
    for (((selection, selected), all), texts) in actual.zip(survivors) {
        let expected = prep_null_mask_filter(&test.evaluate(&texts).unwrap());
        assert_eq!(selection.to_boolean_buffer(), *expected.values());
        assert_eq!(selected.columns, [filter(&texts, &expected).unwrap()]);
        assert_eq!(all.columns, [texts]);
    }
}

#[test]
fn damaged_strings() {
    check_strings();
}
