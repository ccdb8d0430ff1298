//! Selected rows of text and binary columns, compared with arrow-rs.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, new_null_array};
use arrow::compute::{cast, filter};
use arrow::datatypes::DataType;
use proptest::prelude::*;
use vectile_encodings::{Encoding, Predicate};
use vectile_gpu::{Engine, Group};
use vectile_pipeline::{Expr, Filter, Output};

use crate::catalog::comments;
use crate::samples::{Nulls, Random, VECTOR, strings, with_nulls};
use crate::support::{self, Input, device, driver};

const TYPES: [DataType; 6] = [
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Binary,
    DataType::LargeBinary,
    DataType::BinaryView,
];

/// Upper bound of the numbers in the second column.
const NUMBERS: i32 = 1000;

/// Random bytes from an alphabet: a small one has frequent sequences that become symbols, a large one has none.
pub fn bytes(len: usize, most: u64, alphabet: u64, nulls: Nulls, seed: u64) -> ArrayRef {
    let random = &mut Random::new(seed);
    let values: Vec<Vec<u8>> = (0..len)
        .map(|_| {
            let length = random.below(most + 1);
            let byte = |_| match random.below(4) {
                0 => random.next() as u8,
                _ => (random.below(alphabet) * 255 / alphabet.max(1)) as u8,
            };
            (0..length).map(byte).collect()
        })
        .collect();
    let array: ArrayRef = Arc::new(BinaryArray::from_iter_values(values));
    with_nulls(&array, nulls, random)
}

/// Strings of which some have more than 255, and one more than 65,535 bytes.
fn long(len: usize) -> ArrayRef {
    let text = |row: usize| match row {
        40 => "final special requests ".repeat(4000),
        _ => "carefully even ".repeat(row * 7919 % 90),
    };
    let values: Vec<Vec<u8>> = (0..len).map(|row| text(row).into_bytes()).collect();
    Arc::new(BinaryArray::from_iter_values(values))
}

/// Row groups with a column of strings, in every encoding, and one of numbers.
fn groups(data_type: &DataType) -> Vec<Vec<Input>> {
    let is_text = matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    let (fsst, plain) = (Some(Encoding::Fsst), Some(Encoding::Plain));
    let onpair = Some(Encoding::OnPair);
    let mut all = vec![
        (comments(3000, 1), fsst),
        (comments(33, 2), fsst),
        (strings(40, Nulls::Vectors, 2 * VECTOR + 7, 3), plain),
        (long(200), fsst),
        (long(100), plain),
        (strings(20, Nulls::Some, 700, 5), Some(Encoding::Dict)),
        (new_null_array(&DataType::Utf8, 50), None),
        (strings(1, Nulls::None, 70, 6), None),
        (strings(9, Nulls::None, 1, 7), plain),
        (comments(2500, 11), onpair),
        (long(130), onpair),
        (strings(2, Nulls::Some, 900, 12), onpair),
    ];
    if !is_text {
        all.push((bytes(1500, 40, 7, Nulls::Some, 8), fsst));
        all.push((bytes(1100, 300, 256, Nulls::None, 9), fsst));
        all.push((bytes(1030, 9, 256, Nulls::None, 10), plain));
        all.push((bytes(1500, 40, 7, Nulls::Some, 13), onpair));
        all.push((bytes(1100, 300, 256, Nulls::None, 14), onpair));
    }
    all.into_iter()
        .map(|(array, pin)| row_group(array, pin, data_type))
        .collect()
}

fn row_group(array: ArrayRef, pin: Option<Encoding>, data_type: &DataType) -> Vec<Input> {
    let binary = cast(&array, &DataType::Binary).unwrap();
    let array = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => cast(&array, data_type),
        _ => cast(&binary, data_type),
    };
    let array = array.unwrap();
    let random = &mut Random::new(array.len() as u64);
    let numbers = (0..array.len()).map(|_| random.below(NUMBERS as u64) as i32);
    let numbers = Input {
        array: Arc::new(Int32Array::from_iter_values(numbers)),
        pin: Some(Encoding::Ffor),
    };
    vec![Input { array, pin }, numbers]
}

/// Passes rows whose number is below `most`; without a test if all are.
fn below(most: i32) -> Filter {
    let high: ArrayRef = Arc::new(Int32Array::from(vec![most]));
    let range = Predicate::Range {
        low: Bound::Unbounded,
        high: Bound::Excluded(high),
        negated: false,
    };
    match most {
        NUMBERS => Filter::Constant(true),
        _ => Filter::Column(1, range),
    }
}

/// Asserts that the selected rows of some row groups are those that arrow-rs selects.
fn check(engine: &Arc<Engine>, inputs: &[Vec<Input>], groups: &[Group], most: i32, mixed: bool) {
    let exprs = match mixed {
        true => vec![Expr::Column(1), Expr::Column(0)],
        false => vec![Expr::Column(0)],
    };
    let of_strings = exprs.len() - 1;
    let mut execution = support::start(engine, &inputs[0], below(most), Output::Rows(exprs));
    let rows = execution.rows(groups).unwrap();
    assert!(execution.statistics().launches > 0);
    assert_eq!(rows.len(), groups.len());
    for (rows, inputs) in rows.iter().zip(inputs) {
        let numbers = inputs[1].array.as_any().downcast_ref::<Int32Array>();
        let passes = numbers.unwrap().values().iter().map(|n| *n < most);
        let passes = BooleanArray::from(passes.collect::<Vec<_>>());
        for (column, array) in rows.columns.iter().enumerate() {
            array.to_data().validate_full().unwrap();
            let input = &inputs[usize::from(mixed && column == 0)];
            let expected = filter(&input.array, &passes).unwrap();
            assert_eq!(array, &expected, "below {most}: {:?}", input.pin);
        }
        assert_eq!(rows.count, passes.true_count());
        let of_strings = &rows.columns[of_strings];
        assert_eq!(of_strings.data_type(), inputs[0].array.data_type());
    }
}

/// Strings of these types, in every encoding.
pub fn run(types: &[DataType]) {
    let Some(device) = driver() else { return };
    for data_type in types {
        let engine = Engine::new(Arc::clone(&device));
        let inputs = groups(data_type);
        let loaded: Vec<Group> = inputs.iter().map(|g| support::group(&engine, g)).collect();
        for most in [0, 1, 10, 500, 999, NUMBERS] {
            check(&engine, &inputs, &loaded, most, most % 20 != 0);
        }
        // some of the row groups
        for part in [0..1, 1..4, 3..6] {
            let (inputs, loaded) = (&inputs[part.clone()], &loaded[part]);
            check(&engine, inputs, loaded, 300, false);
        }
    }
}

#[test]
fn strings_of_every_type_and_encoding() {
    run(&TYPES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_strings(
        seed in 1u64..u64::MAX,
        rows in 1usize..2200,
        longest in 0u64..80,
        alphabet in 1u64..256,
        pin in prop::sample::select(vec![Encoding::Plain, Encoding::Fsst, Encoding::OnPair]),
        most in prop_oneof![Just(0), Just(NUMBERS), 0..30, 0..NUMBERS],
    ) {
        let Some(device) = device() else { return Ok(()) };
        let engine = Engine::new(device);
        let array = bytes(rows, longest, alphabet, Nulls::Some, seed);
        // the first row group is always the same, so that all share a kernel
        let inputs: Vec<Vec<Input>> = [(comments(40, 1), Encoding::Fsst), (array, pin)]
            .into_iter()
            .map(|(array, pin)| row_group(array, Some(pin), &DataType::Binary))
            .collect();
        let loaded: Vec<Group> = inputs.iter().map(|g| support::group(&engine, g)).collect();
        check(&engine, &inputs, &loaded, most, false);
    }
}
