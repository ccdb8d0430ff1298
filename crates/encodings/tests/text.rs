//! Text tested by automata over codes, compared with automata over the bytes of strings.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use proptest::prelude::*;
use vectile_encodings::{
    Automaton, Column, EncodeOptions, Encoding, Error, Result, Selection, encode,
};

const TYPES: [DataType; 6] = [
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Binary,
    DataType::LargeBinary,
    DataType::BinaryView,
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// Sentences, some of which are empty or null, have rare letters, or are much longer than others.
fn sentences(rows: usize, seed: u64) -> StringArray {
    const WORDS: [&str; 10] = [
        "special ",
        "requests ",
        "carefully ",
        "deposits",
        " final",
        "Spécial ",
        "楽",
        "s",
        "\n",
        "é",
    ];
    let mut random = Random(seed);
    let sentence = |_| {
        let words = match random.below(50) {
            0 => return None,
            1 => 0,
            2 => 60,
            _ => random.below(9),
        };
        let mut sentence: String = (0..words).map(|_| WORDS[random.below(10)]).collect();
        if random.below(40) == 0 {
            sentence.extend(char::from_u32(random.below(0x2000) as u32));
        }
        Some(sentence)
    };
    (0..rows).map(sentence).collect()
}

fn automata() -> Vec<Automaton> {
    let of = [
        Automaton::like("%special%requests%", false),
        Automaton::like("%SPECIAL%", true),
        Automaton::like("special%", false),
        Automaton::like("%s", false),
        Automaton::like("%c_a%", false),
        Automaton::like("", false),
        Automaton::contains("é"),
        Automaton::regex("^s.*(final|楽)$", false),
        Automaton::regex(r"\s(deposits|re.)+\b{end-half}?", true),
        Automaton::of_characters(20, |count| count > 12),
        Automaton::of_bytes(60, |count| count % 3 == 0),
        Automaton::range(
            Bound::Included(b"d".as_slice()),
            Bound::Excluded(b"sp".as_slice()),
        ),
        Some(Automaton::constant(true)),
        Some(Automaton::constant(false)),
    ];
    let automata: Vec<Automaton> = of.into_iter().flatten().collect();
    assert!(automata.len() >= 13);
    let others: Vec<Automaton> = automata.iter().map(Automaton::not).collect();
    automata.into_iter().chain(others).collect()
}

fn column_of(array: &ArrayRef, pin: Option<Encoding>) -> Option<Column> {
    match encode(array, &EncodeOptions::pinned(pin)) {
        Ok(bytes) => Some(Column::parse(bytes.into(), array.data_type(), array.len()).unwrap()),
        Err(Error::Unsupported(_)) if pin.is_some() => None,
        Err(error) => panic!("{pin:?}: {error}"),
    }
}

/// Which strings pass; null for nulls.
fn passed(automaton: &Automaton, array: &ArrayRef) -> BooleanArray {
    let bytes = cast(array, &DataType::LargeBinary).unwrap();
    let strings = bytes.as_binary::<i64>().iter();
    strings
        .map(|string| Some(automaton.matches(string?)))
        .collect()
}

/// The selected rows that pass, and the number of rows that were decoded to be tested.
fn filtered(
    column: &Column,
    automaton: &Arc<Automaton>,
    rows: &Selection,
) -> Result<(Selection, usize)> {
    let mut selection = rows.clone();
    let mut tested = 0;
    let mut test = |values: &ArrayRef| {
        tested += values.len() - values.null_count();
        Ok(passed(automaton, values))
    };
    column.filter_text(&|| Some(Arc::clone(automaton)), &mut test, &mut selection)?;
    Ok((selection, tested))
}

fn expected(automaton: &Automaton, array: &ArrayRef, rows: &Selection) -> Selection {
    let first = rows.first_vector() * 1024;
    let passed = passed(automaton, &array.slice(first, rows.rows()));
    let passing = passed.iter().map(|passed| passed == Some(true)).collect();
    let mut expected = rows.clone();
    expected.and(&Selection::from_boolean_buffer(
        rows.first_vector(),
        &passing,
    ));
    expected
}

/// A selection of rows of some vectors.
fn some_rows(rows: usize, kind: usize, random: &mut Random) -> Selection {
    match kind {
        0 => Selection::all(0, rows),
        1 => Selection::of_range(rows / 3..rows - rows / 4),
        2 => Selection::all(1, rows - 1024),
        _ => {
            let most = [2, 5, 40][random.below(3)];
            let bits = (0..rows).map(|_| random.below(most) == 0).collect();
            Selection::from_boolean_buffer(0, &bits)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn codes_pass_as_their_strings_do(rows in 1100usize..12_000, seed: u64, of_type in 0usize..6, kind in 0usize..4) {
        let array = cast(&sentences(rows, seed), &TYPES[of_type]).unwrap();
        let selection = some_rows(rows, kind, &mut Random(seed));
        let pins = Encoding::ALL.map(Some).into_iter().chain([None]);
        for column in pins.filter_map(|pin| column_of(&array, pin)) {
            for automaton in automata().into_iter().map(Arc::new) {
                let (filtered, _) = filtered(&column, &automaton, &selection).unwrap();
                let expected = expected(&automaton, &array, &selection);
                prop_assert!(filtered == expected, "{} of {automaton:?}", column.describe());
            }
        }
    }
}

#[test]
fn codes_are_not_decoded_to_be_tested() {
    let array: ArrayRef = Arc::new(sentences(20_000, 3));
    let automaton = Arc::new(Automaton::like("%special%requests%", false).unwrap().not());
    let all = Selection::all(0, array.len());
    let column = column_of(&array, Some(Encoding::OnPair)).unwrap();
    let (found, tested) = filtered(&column, &automaton, &all).unwrap();
    assert_eq!((found, tested), (expected(&automaton, &array, &all), 0));
    // a few rows are
    let few = Selection::of_range(5000..5100);
    let (found, tested) = filtered(&column, &automaton, &few).unwrap();
    assert!(tested > 50, "{tested}");
    assert_eq!(found, expected(&automaton, &array, &few));
}

#[test]
fn nulls_pass_as_the_test_says() {
    let array: ArrayRef = Arc::new(sentences(5000, 8));
    let automaton = Arc::new(Automaton::contains("final").unwrap());
    let mut is_null_or_passes = |values: &ArrayRef| -> Result<BooleanArray> {
        let passed = passed(&automaton, values);
        Ok(passed
            .iter()
            .map(|passed| Some(passed != Some(false)))
            .collect())
    };
    let of_null = is_null_or_passes(&new_null_array(array.data_type(), 1)).unwrap();
    assert!(of_null.value(0));
    for pin in [Encoding::Fsst, Encoding::OnPair] {
        let column = column_of(&array, Some(pin)).unwrap();
        let mut found = Selection::all(0, array.len());
        let automaton = || Some(Arc::clone(&automaton));
        column
            .filter_text(&automaton, &mut is_null_or_passes, &mut found)
            .unwrap();
        let passed = expected(
            &automaton().unwrap(),
            &array,
            &Selection::all(0, array.len()),
        );
        assert_eq!(found.count(), passed.count() + array.null_count());
    }
}

/// Whatever is damaged, the result is an error or some rows.
#[test]
fn damaged_codes_are_errors_or_bits() {
    let array: ArrayRef = Arc::new(sentences(3000, 5));
    let all = Selection::all(0, array.len());
    let automaton = Arc::new(Automaton::like("%special%requests%", false).unwrap());
    for pin in [Encoding::Fsst, Encoding::OnPair] {
        let bytes = encode(&array, &EncodeOptions::pinned(Some(pin))).unwrap();
        let (mut corrupt, mut random) = (0, Random(1));
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(damaged.len());
                damaged[at] = random.below(256) as u8;
            }
            let Ok(column) = Column::parse(damaged.into(), array.data_type(), array.len()) else {
                continue;
            };
            match filtered(&column, &automaton, &all) {
                Ok((found, _)) => assert!(found.count() <= array.len()),
                Err(Error::Corrupt { .. }) => corrupt += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(corrupt > 20, "{pin}: {corrupt}");
    }
}
