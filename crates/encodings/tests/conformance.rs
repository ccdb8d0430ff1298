//! One suite for all encodings and types: arrow-rs is the oracle.

mod samples;

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeBinaryArray, StringArray, UInt32Array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::{filter, take};
use arrow::datatypes::{DataType, Int32Type};
use proptest::prelude::*;
use samples::{LENGTHS, NullPattern, Shape, all_types, array_of};
use vectile_encodings::{
    Column, EncodeOptions, Encoding, Error, Predicate, Selection, VECTOR_LEN, ZoneMap,
    alternatives, encode,
};

/// Encodes by the pinned encoding; `None` if it does not apply to these values.
fn encode_pinned(array: &ArrayRef, pin: Option<Encoding>) -> Option<Column> {
    match encode(array, &EncodeOptions::pinned(pin)) {
        Ok(bytes) => Some(Column::parse(bytes.into(), array.data_type(), array.len()).unwrap()),
        Err(Error::Unsupported(_)) if pin.is_some() => None,
        Err(e) => panic!("{pin:?} of {}: {e}", array.data_type()),
    }
}

fn pins() -> impl Iterator<Item = Option<Encoding>> {
    std::iter::once(None).chain(Encoding::ALL.map(Some))
}

/// Arrow's equality of floats takes NaNs as equal to none; compare them by their bits.
fn assert_same(actual: &ArrayRef, expected: &ArrayRef, context: &str) {
    assert_eq!(actual.data_type(), expected.data_type(), "{context}");
    let (a, b) = (samples::float_bits(actual), samples::float_bits(expected));
    assert_eq!(a.as_ref(), b.as_ref(), "{context}");
}

#[test]
fn every_type_shape_and_encoding_round_trips() {
    let mut applied = std::collections::BTreeMap::<Encoding, usize>::new();
    for data_type in all_types() {
        for shape in Shape::ALL {
            for nulls in NullPattern::ALL {
                let array = array_of(&data_type, shape, nulls, 2 * VECTOR_LEN + 77, 7);
                for pin in pins() {
                    let context = format!("{data_type} {shape:?} {nulls:?} {pin:?}");
                    let Some(column) = encode_pinned(&array, pin) else {
                        continue;
                    };
                    *applied.entry(column.encoding()).or_default() += 1;
                    assert_same(&column.decode(0..array.len()).unwrap(), &array, &context);
                }
            }
        }
    }
    for encoding in Encoding::ALL {
        assert!(
            applied.get(&encoding).is_some_and(|n| *n > 10),
            "{encoding} hardly ever applied: {applied:?}"
        );
    }
}

#[test]
fn arrays_are_shared_as_they_are() {
    for data_type in all_types() {
        for (nulls, len) in NullPattern::ALL
            .into_iter()
            .flat_map(|nulls| LENGTHS.map(|len| (nulls, len)))
        {
            let array = array_of(&data_type, Shape::Random, nulls, len + 3, 5).slice(3, len);
            let context = format!("{data_type} {nulls:?} {len}");
            let column = Column::of_fixed_width(&array).unwrap();
            let is_fixed = data_type.primitive_width().is_some();
            assert_eq!(column.is_some(), is_fixed, "{context}");
            let Some(column) = column else { continue };
            assert_same(&column.decode(0..len).unwrap(), &array, &context);
            let some = len / 3..len - len / 4;
            let part = column.decode(some.clone()).unwrap();
            assert_same(&part, &array.slice(some.start, some.len()), &context);
        }
    }
}

#[test]
fn codes_stand_for_entries_that_ascend() {
    let entries: ArrayRef = Arc::new(StringArray::from(vec!["", "Bergen", "Oslo", "Ås"]));
    let numbers: Vec<u32> = (0..2 * VECTOR_LEN as u32 + 77)
        .map(|row| row * 7 % 4)
        .collect();
    let nulls: NullBuffer = numbers
        .iter()
        .enumerate()
        .map(|(row, _)| row % 5 != 0)
        .collect();
    for nulls in [None, Some(&nulls)] {
        let column = Column::of_codes(&entries, &numbers, nulls)
            .unwrap()
            .unwrap();
        let rows = UInt32Array::new(numbers.clone().into(), nulls.cloned());
        let expected = take(&entries, &rows, None).unwrap();
        assert_same(
            &column.decode(0..numbers.len()).unwrap(),
            &expected,
            "codes",
        );
        let mut selection = Selection::all(0, numbers.len());
        let oslo: ArrayRef = Arc::new(StringArray::from(vec!["Oslo"]));
        column
            .filter(&Predicate::equal(oslo), &mut selection)
            .unwrap();
        let wanted = expected
            .as_string::<i32>()
            .iter()
            .filter(|row| *row == Some("Oslo"));
        assert_eq!(selection.count(), wanted.count());
    }
    let of = |entries: ArrayRef, numbers: &[u32]| Column::of_codes(&entries, numbers, None);
    let unsorted: ArrayRef = Arc::new(StringArray::from(vec!["b", "a"]));
    assert!(of(unsorted, &[0, 1]).unwrap().is_none());
    let twice: ArrayRef = Arc::new(StringArray::from(vec!["a", "a"]));
    assert!(of(twice, &[0, 1]).unwrap().is_none());
    let numbers_are_no_text: ArrayRef = Arc::new(UInt32Array::from(vec![1, 2]));
    assert!(of(numbers_are_no_text, &[0, 1]).unwrap().is_none());
    assert!(of(Arc::clone(&entries), &[]).unwrap().is_none());
    assert!(matches!(of(entries, &[0, 4]), Err(Error::Corrupt { .. })));
}

#[test]
fn every_length_round_trips() {
    for data_type in all_types() {
        for len in LENGTHS {
            let array = array_of(&data_type, Shape::Random, NullPattern::Some, len, 3);
            for pin in pins() {
                let Some(column) = encode_pinned(&array, pin) else {
                    continue;
                };
                assert_eq!(column.len(), len);
                assert_same(
                    &column.decode(0..len).unwrap(),
                    &array,
                    &format!("{data_type} {len} {pin:?}"),
                );
            }
        }
    }
}

/// A single string of megabytes, random bytes, and an empty string, side by side.
#[test]
fn long_and_random_strings_round_trip() {
    use arrow::array::LargeBinaryArray;
    let mut random = samples::Random::new(5);
    let mut noise = |len| (0..len).map(|_| random.next() as u8).collect::<Vec<u8>>();
    let words = b"quick foxes and lazy dogs, ".repeat(150_000);
    for (rows, long) in [
        (1, vec![]),
        (3, words.clone()),
        (100, noise(3 << 20)),
        (1100, words),
    ] {
        let value = |row: usize| match row % 50 {
            1 => Some(long.clone()).filter(|_| row < 100),
            3 => None,
            5 | 7 => Some(vec![]),
            _ => Some(noise(row % 30)),
        };
        let values: Vec<Option<Vec<u8>>> = (0..rows).map(value).collect();
        let array: ArrayRef = Arc::new(LargeBinaryArray::from_iter(values));
        for pin in [
            None,
            Some(Encoding::Plain),
            Some(Encoding::Fsst),
            Some(Encoding::OnPair),
        ] {
            let column = encode_pinned(&array, pin).unwrap();
            let context = format!("{rows} {pin:?}");
            assert_same(&column.decode(0..rows).unwrap(), &array, &context);
            for row in [0, 1, rows / 2, rows - 1] {
                let row = row.min(rows - 1);
                let single = column.decode(row..row + 1).unwrap();
                assert_same(&single, &array.slice(row, 1), &context);
            }
        }
    }
}

#[test]
fn sliced_arrays_encode_as_their_copies() {
    for data_type in all_types() {
        for shape in [Shape::Random, Shape::Runs] {
            let whole = array_of(&data_type, shape, NullPattern::Some, 3 * VECTOR_LEN, 5);
            for (offset, len) in [(1, 1500), (13, 1024), (1030, 7)] {
                let slice = whole.slice(offset, len);
                let indices =
                    UInt32Array::from_iter_values((offset..offset + len).map(|i| i as u32));
                let copy = match data_type {
                    // a slice of these is compared as it is: `take` would rebuild it
                    DataType::Union(_, _) | DataType::RunEndEncoded(_, _) => slice.clone(),
                    _ => take(&whole, &indices, None).unwrap(),
                };
                for pin in pins() {
                    let Some(column) = encode_pinned(&slice, pin) else {
                        continue;
                    };
                    assert_same(
                        &column.decode(0..len).unwrap(),
                        &copy,
                        &format!("{data_type} {pin:?} {offset} {len}"),
                    );
                }
            }
        }
    }
}

#[test]
fn wide_residuals_of_every_width_round_trip() {
    use arrow::array::{Int64Array, UInt64Array};
    for width in 0..=64u32 {
        let max = u64::MAX.checked_shr(64 - width).unwrap_or(0);
        let mut state = 11u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state ^ state >> 31) & max
        };
        let values: Vec<u64> = (0..1500).map(|_| next()).collect();
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(values.clone()));
        let signed: ArrayRef = Arc::new(Int64Array::from_iter_values(
            values.iter().map(|v| *v as i64),
        ));
        for array in [unsigned, signed] {
            for pin in [Encoding::Ffor, Encoding::Delta, Encoding::Rle] {
                let column = encode_pinned(&array, Some(pin)).unwrap();
                assert_same(
                    &column.decode(0..array.len()).unwrap(),
                    &array,
                    &format!("width {width} {pin}"),
                );
            }
        }
    }
}

fn selection_of(bits: &BooleanArray, first_vector: usize) -> Selection {
    Selection::from_boolean_buffer(first_vector, bits.values())
}

/// Arrow's filter counts rows by their bytes, and loses rows without any; this keeps them.
fn filtered(array: &ArrayRef, bits: &BooleanArray) -> ArrayRef {
    if array.data_type() != &DataType::FixedSizeBinary(0) {
        return filter(array, bits).unwrap();
    }
    let valid = arrow::compute::is_not_null(array).unwrap();
    let valid = filter(&valid, bits).unwrap();
    let nulls = NullBuffer::new(valid.as_boolean().values().clone());
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let rows = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), nulls, valid.len());
    Arc::new(rows.unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn selecting_is_filtering(seed in 0u64..1 << 32, len in 1usize..4000, density in 0u32..=100, type_index in 0usize..1000) {
        let types = all_types();
        let data_type = &types[type_index % types.len()];
        let shape = Shape::ALL[seed as usize % Shape::ALL.len()];
        let array = array_of(data_type, shape, NullPattern::ALL[seed as usize / 7 % 4], len, seed);
        let first_vector = seed as usize % len.div_ceil(VECTOR_LEN);
        let tail = array.slice(first_vector * VECTOR_LEN, len - first_vector * VECTOR_LEN);
        let mut state = seed;
        let bits: BooleanArray = (0..tail.len())
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                Some((state >> 33) % 100 < u64::from(density))
            })
            .collect();
        let expected = filtered(&tail, &bits);
        for pin in pins() {
            if let Some(column) = encode_pinned(&array, pin) {
                let selected = column.select(&selection_of(&bits, first_vector)).unwrap();
                assert_same(&selected, &expected, &format!("{data_type} {shape:?} {pin:?}"));
            }
        }
    }

    #[test]
    fn any_range_decodes(seed in 0u64..1 << 32, len in 1usize..4000, a in 0.0f64..1.0, b in 0.0f64..1.0, type_index in 0usize..1000) {
        let types = all_types();
        let data_type = &types[type_index % types.len()];
        let array = array_of(data_type, Shape::ALL[seed as usize % Shape::ALL.len()], NullPattern::Some, len, seed);
        let (a, b) = ((a * len as f64) as usize, (b * len as f64) as usize);
        let rows = a.min(b)..a.max(b);
        for pin in pins() {
            if let Some(column) = encode_pinned(&array, pin) {
                let decoded = column.decode(rows.clone()).unwrap();
                let expected = array.slice(rows.start, rows.len());
                assert_same(&decoded, &expected, &format!("{data_type} {rows:?} {pin:?}"));
            }
        }
    }

    #[test]
    fn predicates_agree_with_arrow(seed in 0u64..1 << 32, len in 1usize..3000, type_index in 0usize..1000, kind in 0usize..9) {
        let types: Vec<_> = all_types().into_iter().filter(samples::is_ordered).collect();
        let data_type = &types[type_index % types.len()];
        let shape = Shape::ALL[seed as usize % Shape::ALL.len()];
        let array = array_of(data_type, shape, NullPattern::ALL[seed as usize / 5 % 4], len, seed);
        let Some(predicate) = predicate_over(&array, kind, seed) else { return Ok(()) };
        let passed = predicate.evaluate(&array).unwrap();
        for pin in pins() {
            let Some(column) = encode_pinned(&array, pin) else { continue };
            let mut selection = Selection::all(0, len);
            column.filter(&predicate, &mut selection).unwrap();
            let expected: Vec<usize> = (0..len).filter(|i| passed.is_valid(*i) && passed.value(*i)).collect();
            let found: Vec<usize> = selection.to_boolean_buffer().set_indices().collect();
            prop_assert_eq!(found, expected, "{} {:?} {:?} {:?}", data_type, shape, pin, predicate);

            let mut selection = Selection::all(0, len);
            column.filter_with(&mut |rows| predicate.evaluate(rows), &mut selection).unwrap();
            let expected = passed.iter().filter(|p| *p == Some(true)).count();
            prop_assert_eq!(selection.count(), expected, "{} {:?} {:?}", data_type, pin, predicate);
        }
    }
}

/// A predicate whose constants are mostly values of the array.
fn predicate_over(array: &ArrayRef, kind: usize, seed: u64) -> Option<Predicate> {
    let valid: Vec<usize> = (0..array.len()).filter(|i| array.is_valid(*i)).collect();
    let pick = |salt: u64| -> Option<ArrayRef> {
        let at = (seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 7;
        let row = *valid.get(at as usize % valid.len().max(1))?;
        Some(array.slice(row, 1))
    };
    let negated = seed & 1 == 1;
    Some(match kind {
        0 => Predicate::IsNull,
        1 => Predicate::IsNotNull,
        2 => Predicate::equal(pick(1)?),
        3 => Predicate::Range {
            low: Bound::Included(pick(1)?),
            high: Bound::Unbounded,
            negated,
        },
        4 => Predicate::Range {
            low: Bound::Unbounded,
            high: Bound::Excluded(pick(2)?),
            negated,
        },
        5 => Predicate::Range {
            low: Bound::Excluded(pick(1)?),
            high: Bound::Included(pick(2)?),
            negated,
        },
        6 => Predicate::Range {
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            negated,
        },
        7 | 8 => {
            let count = if kind == 7 { 3 } else { 40 };
            let values = (0..count).map(pick).collect::<Option<Vec<_>>>()?;
            let values =
                arrow::compute::concat(&values.iter().map(|v| v.as_ref()).collect::<Vec<_>>())
                    .ok()?;
            Predicate::In { values, negated }
        }
        _ => return None,
    })
}

#[test]
fn constants_outside_the_values_are_decided() {
    use arrow::array::Int32Array;
    let array: ArrayRef = Arc::new(Int32Array::from_iter_values(
        (0..3000).map(|i| 1000 + i % 50),
    ));
    for pin in pins() {
        let Some(column) = encode_pinned(&array, pin) else {
            continue;
        };
        for (low, high, expected) in [
            (i32::MIN, 999, 0),
            (1050, i32::MAX, 0),
            (i32::MIN, i32::MAX, 3000),
            (1000, 1049, 3000),
            (1049, 1049, 60),
            (5, 4, 0),
        ] {
            let bound = |v: i32| Bound::Included(Arc::new(Int32Array::from(vec![v])) as ArrayRef);
            let mut selection = Selection::all(0, 3000);
            let range = Predicate::Range {
                low: bound(low),
                high: bound(high),
                negated: false,
            };
            column.filter(&range, &mut selection).unwrap();
            assert_eq!(selection.count(), expected, "{pin:?} {low}..={high}");
        }
    }
}

#[test]
fn a_constant_of_another_type_is_refused() {
    let array = array_of(&DataType::Int32, Shape::Random, NullPattern::None, 100, 1);
    let column = encode_pinned(&array, None).unwrap();
    let constant = array_of(&DataType::Int64, Shape::Random, NullPattern::None, 1, 1);
    let refused = column.filter(&Predicate::equal(constant), &mut Selection::all(0, 100));
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}

#[test]
fn zone_maps_bound_their_vectors() {
    for data_type in all_types() {
        for shape in Shape::ALL {
            let array = array_of(&data_type, shape, NullPattern::Some, 2500, 9);
            let built = ZoneMap::of(&array).unwrap();
            let zones = ZoneMap::parse(built.encode().unwrap().into(), &data_type, 3).unwrap();
            assert_same(&zones.min, &built.min, "min");
            assert_same(&zones.max, &built.max, "max");
            let merged = zones.merge().unwrap();
            assert_eq!(merged.len(), 1);
            for (zone, bounds, rows) in [
                (0, &zones, 0..1024),
                (1, &zones, 1024..2048),
                (2, &zones, 2048..2500),
                (0, &merged, 0..2500),
            ] {
                let vector = array.slice(rows.start, rows.len());
                let nulls = vector.logical_null_count() as u64;
                if !matches!(data_type, DataType::Union(_, _)) {
                    assert_eq!(bounds.null_count.value(zone), nulls, "{data_type}");
                }
                if !samples::is_ordered(&data_type) || nulls == vector.len() as u64 {
                    continue;
                }
                if bounds.min.is_null(zone) || bounds.max.is_null(zone) {
                    continue;
                }
                let bound = |array: &ArrayRef| Bound::Included(array.slice(zone, 1));
                let within = Predicate::Range {
                    low: bound(&bounds.min),
                    high: bound(&bounds.max),
                    negated: false,
                };
                let inside = within.evaluate(&vector).unwrap();
                assert_eq!(
                    inside.true_count() as u64 + nulls,
                    vector.len() as u64,
                    "{data_type} {shape:?}"
                );
                if bounds.exact.value(zone) {
                    for value in [&bounds.min, &bounds.max] {
                        let found = Predicate::equal(value.slice(zone, 1))
                            .evaluate(&vector)
                            .unwrap();
                        assert!(found.true_count() > 0, "{data_type} {shape:?}");
                    }
                }
            }
        }
    }
}

/// 3000 rows of numbers, dictionaries, lists and structs, each of which may be null.
fn structs() -> arrow::array::StructArray {
    use arrow::array::{DictionaryArray, Int32Array, ListArray, StructArray};
    use arrow::datatypes::{Field, Int8Type};
    let rows = 0..3000;
    let numbers: Int32Array = rows.clone().map(|i| (i % 5 > 0).then_some(i)).collect();
    let text = |i: i32| format!("{:02} {}", i / 100, "x".repeat(40));
    let texts = rows.clone().map(|i| (i % 7 > 0).then(|| text(i)));
    let texts: Vec<Option<String>> = texts.collect();
    let dictionary: DictionaryArray<Int8Type> = texts.iter().map(Option::as_deref).collect();
    let lists = rows.clone().map(|i| Some(vec![Some(i)]));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let of = |columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>| {
        let fields = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let fields = fields.collect::<Vec<_>>().into();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        StructArray::new(fields, columns, nulls)
    };
    let inner: ArrayRef = Arc::new(of(vec![("d", Arc::new(dictionary))], None));
    // a field has values where its struct is null
    let nulls = NullBuffer::from_iter(rows.map(|i| i % 3 > 0));
    let numbers: ArrayRef = Arc::new(numbers);
    of(
        vec![("n", numbers), ("s", inner), ("l", Arc::new(lists))],
        Some(nulls),
    )
}

#[test]
fn fields_of_structs_have_bounds() {
    let array = structs().slice(100, 2500);
    let built = ZoneMap::of(&array).unwrap();
    let parse = |zones: &ZoneMap, rows| {
        ZoneMap::parse(zones.encode().unwrap().into(), array.data_type(), rows).unwrap()
    };
    let zones = parse(&built, 3);
    let whole = parse(&zones.merge().unwrap(), 1);
    assert!(!zones.has_bounds() && !whole.has_bounds());
    let number = |zones: &ZoneMap, zone| {
        let zones = zones.field(&[0]).unwrap();
        assert!(zones.has_bounds() && zones.null_count.is_null(zone));
        let value = |bounds: &ArrayRef| bounds.as_primitive::<Int32Type>().value(zone);
        (value(&zones.min), value(&zones.max))
    };
    // every third row is a null struct; the first one is row 102
    assert_eq!(number(&zones, 0), (101, 1123));
    assert_eq!(number(&zones, 1), (1124, 2147));
    assert_eq!(number(&zones, 2), (2149, 2599));
    assert_eq!(number(&whole, 0), (101, 2599));
    let text = |zones: &ZoneMap, zone| {
        let zones = zones.field(&[1, 0]).unwrap();
        assert!(!zones.exact.value(zone), "they are cut");
        let value = |bounds: &ArrayRef| bounds.as_string::<i32>().value(zone).to_string();
        (value(&zones.min), value(&zones.max))
    };
    let bound = |first: &str, last: &str| {
        let bound = |text: &str, end| format!("{text} {}{end}", "x".repeat(28));
        (bound(first, "x"), bound(last, "y"))
    };
    assert_eq!(text(&zones, 0), bound("01", "11"));
    assert_eq!(text(&zones, 2), bound("21", "25"));
    assert_eq!(text(&whole, 0), bound("01", "25"));
    assert!(!zones.field(&[2]).unwrap().has_bounds(), "lists have none");
    assert!(zones.field(&[3]).is_none() && zones.field(&[0, 0]).is_none());
}

/// A column of decimals that fit 128 bits may be compared with some that do not.
#[test]
fn constants_may_be_beyond_the_integers_that_are_stored() {
    use arrow::array::Decimal256Array;
    use arrow::datatypes::i256;
    let array = |values: Vec<Option<i256>>| -> ArrayRef {
        let array = Decimal256Array::from(values);
        Arc::new(array.with_precision_and_scale(76, 2).unwrap())
    };
    let rows = 0..2000i128;
    let values = rows.map(|row| (row % 7 > 0).then(|| i256::from_i128(row * row - 9000)));
    let column = array(values.collect());
    let far = i256::from_i128(i128::MAX).wrapping_mul(i256::from_i128(8));
    let constants = [far.wrapping_neg(), i256::from_i128(-9000), i256::ZERO, far];
    let bounds = constants.map(|constant| array(vec![Some(constant)]));
    let bounds = bounds.iter().flat_map(|bound| {
        let bound = || ArrayRef::clone(bound);
        [Bound::Included(bound()), Bound::Excluded(bound())]
    });
    let bounds: Vec<Bound<ArrayRef>> = bounds.chain([Bound::Unbounded]).collect();
    let mut predicates: Vec<Predicate> = vec![];
    for negated in [false, true] {
        let pairs = bounds
            .iter()
            .flat_map(|low| bounds.iter().map(move |high| (low, high)));
        predicates.extend(pairs.map(|(low, high)| Predicate::Range {
            low: low.clone(),
            high: high.clone(),
            negated,
        }));
        for values in [&constants[..], &constants[3..]] {
            let values = array(values.iter().copied().map(Some).collect());
            predicates.push(Predicate::In { values, negated });
        }
    }
    for pin in [
        None,
        Some(Encoding::Ffor),
        Some(Encoding::Plain),
        Some(Encoding::Dict),
    ] {
        let Some(encoded) = encode_pinned(&column, pin) else {
            continue;
        };
        for predicate in &predicates {
            let passed = predicate.evaluate(&column).unwrap();
            let expected: BooleanArray = passed.iter().map(|p| Some(p == Some(true))).collect();
            let mut selection = Selection::all(0, column.len());
            encoded.filter(predicate, &mut selection).unwrap();
            assert_eq!(
                &selection.to_boolean_buffer(),
                expected.values(),
                "{pin:?}: {predicate:?}"
            );
        }
    }
}

/// Includes values of which arrow-rs creates no dictionaries, or only some with duplicate values.
#[test]
fn dictionaries_of_any_values_are_read_and_filtered() {
    use arrow::array::{
        DictionaryArray, DurationSecondArray, FixedSizeListArray, Int8Array, Int32Array, ListArray,
        MapBuilder, StringBuilder, StructArray,
    };
    use arrow::datatypes::{Field, Int8Type};
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..6));
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let field = Arc::new(Field::new("n", DataType::Int32, true));
    let lists = (0..3).map(|row| Some(vec![Some(row); row as usize]));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let pairs = FixedSizeListArray::new(item, 2, Arc::clone(&numbers), None);
    let structs = StructArray::new(vec![field].into(), vec![numbers.slice(1, 3)], None);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in 0..3 {
        (0..row).for_each(|key| {
            maps.keys().append_value(format!("key {key}"));
            maps.values().append_value(format!("value {row}"));
        });
        maps.append(true).unwrap();
    }
    let values: [ArrayRef; 6] = [
        Arc::new(lists),
        Arc::new(pairs),
        Arc::new(structs),
        Arc::new(maps.finish()),
        Arc::new(BooleanArray::from(vec![true, false, true])),
        Arc::new(DurationSecondArray::from(vec![5, 6, 5])),
    ];
    for values in values {
        // more rows than keys of 8 bits can number, if each had one
        let keys = (0..1500).map(|row| (row % 5 > 0).then_some((row % 3) as i8));
        let keys: Int8Array = keys.collect();
        let array = DictionaryArray::<Int8Type>::new(keys, values);
        let array: ArrayRef = Arc::new(array);
        let column = encode_pinned(&array, None).unwrap();
        let decoded = column.decode(0..array.len()).unwrap();
        assert_same(&decoded, &array, &array.data_type().to_string());
        let mut is_valid = |values: &ArrayRef| {
            assert_eq!(values.data_type(), array.data_type());
            let is_valid = |row| Some(values.is_valid(row));
            Ok((0..values.len()).map(is_valid).collect())
        };
        let mut selection = Selection::all(0, array.len());
        column.filter_with(&mut is_valid, &mut selection).unwrap();
        assert_eq!(selection.count(), array.len() - array.null_count());
    }
}

/// Values of a field in null structs are neither stored nor part of its bounds.
#[test]
fn fields_of_null_structs_are_null() {
    use arrow::array::{Int32Array, StructArray};
    use arrow::datatypes::Field;
    let rows = 2000;
    let of = |name: &str, column: ArrayRef, nulls: Vec<bool>| {
        let field = Field::new(name, column.data_type().clone(), true);
        let nulls = Some(NullBuffer::from(nulls));
        StructArray::new(vec![field].into(), vec![column], nulls)
    };
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
    let inner = of("n", numbers, (0..rows).map(|row| row % 5 > 0).collect());
    let nulls = (0..rows).map(|row| row < 1024 && row % 2 > 0).collect();
    let array: ArrayRef = Arc::new(of("s", Arc::new(inner), nulls));
    let has_value = |row: i32| row < 1024 && row % 2 > 0 && row % 5 > 0;
    let column = encode_pinned(&array, None).unwrap();
    let decoded = column.decode(0..rows as usize).unwrap();
    let inner = decoded.as_struct().column(0).as_struct();
    let numbers = inner.column(0).as_primitive::<Int32Type>();
    let expected = (0..rows).map(|row| has_value(row).then_some(row));
    assert!(numbers.iter().eq(expected.clone()));
    let passing = |predicate: Predicate| {
        let mut selection = Selection::all(0, rows as usize);
        column
            .filter_field(&[0, 0], &predicate, &mut selection)
            .unwrap();
        selection.count()
    };
    let values = expected.flatten().count();
    assert_eq!(passing(Predicate::IsNotNull), values);
    assert_eq!(passing(Predicate::IsNull), rows as usize - values);
    let all = Predicate::Range {
        low: Bound::Unbounded,
        high: Bound::Unbounded,
        negated: false,
    };
    assert_eq!(passing(all), values);
    let zones = ZoneMap::of(&array).unwrap().field(&[0, 0]).unwrap();
    let max = zones.max.as_primitive::<Int32Type>();
    assert!(max.iter().eq([Some(1023), None]));
}

/// They have no nulls of their own, and are read as they were written.
#[test]
fn unions_of_null_structs_stay_as_they_are() {
    use arrow::array::{Int32Array, StructArray, UnionArray};
    use arrow::buffer::ScalarBuffer;
    use arrow::datatypes::{Field, UnionFields};
    let rows = 1500;
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
    let variants = UnionFields::from_fields(vec![Field::new("n", DataType::Int32, true)]);
    let types = ScalarBuffer::from(vec![0_i8; rows as usize]);
    let union = UnionArray::try_new(variants, types, None, vec![numbers]).unwrap();
    let mut array: ArrayRef = Arc::new(union);
    for name in ["u", "s"] {
        let nulls = (0..rows).map(|row| row % 3 > 0).collect::<Vec<_>>();
        let field = Field::new(name, array.data_type().clone(), true);
        let nulls = Some(NullBuffer::from(nulls));
        array = Arc::new(StructArray::new(vec![field].into(), vec![array], nulls));
    }
    let column = encode_pinned(&array, None).unwrap();
    let decoded = column.decode(0..rows as usize).unwrap();
    let union = decoded.as_struct().column(0).as_struct().column(0);
    assert_eq!(union.logical_null_count(), 0);
    for (predicate, expected) in [
        (Predicate::IsNull, 0),
        (Predicate::IsNotNull, rows as usize),
    ] {
        let mut selection = Selection::all(0, rows as usize);
        column
            .filter_field(&[0, 0], &predicate, &mut selection)
            .unwrap();
        assert_eq!(selection.count(), expected, "{predicate:?}");
    }
}

/// Zone maps as in files of version 1.
#[test]
fn bounds_of_structs_and_dictionaries_may_be_missing() {
    let structs = structs();
    let dictionary = Arc::clone(structs.column(1).as_struct().column(0));
    for array in [Arc::new(structs) as ArrayRef, dictionary] {
        let zones = ZoneMap::of(&array).unwrap();
        let none = arrow::array::new_null_array(array.data_type(), zones.len());
        let old = ZoneMap {
            min: none.clone(),
            max: none,
            ..zones
        };
        let data_type = array.data_type();
        let read = ZoneMap::parse(old.encode().unwrap().into(), data_type, 3).unwrap();
        assert_eq!(read.null_count, old.null_count);
        assert_eq!(read.min.logical_null_count(), 3);
        assert!(read.field(&[0]).is_none());
        assert_eq!(read.merge().unwrap().min.logical_null_count(), 1);
    }
}

/// Constants have the type of their values.
#[test]
fn dictionaries_and_fields_are_filtered_as_their_values() {
    let array = structs().slice(100, 2500);
    let inner = array.column(1);
    let dictionary = inner.as_struct().column(0);
    // a field of a null struct is null
    let within = |field: &ArrayRef| {
        let nulls = array.nulls().unwrap();
        let nulls: BooleanArray = (!nulls.inner()).into();
        arrow::compute::nullif(field, &nulls).unwrap()
    };
    let numbers = &within(array.column(0));
    let texts = arrow::compute::cast(dictionary, &DataType::Utf8).unwrap();
    let values = within(&texts);
    let struct_column = encode_pinned(&(Arc::new(array.clone()) as ArrayRef), None).unwrap();
    let dictionary_column = encode_pinned(dictionary, None).unwrap();
    let bounds = |values: &ArrayRef| {
        let valid = (500..values.len()).filter(|row| values.is_valid(*row));
        let rows: Vec<usize> = valid.step_by(700).collect();
        [rows[0], rows[1]].map(|row| values.slice(row, 1))
    };
    for (path, values) in [(vec![0], numbers), (vec![1, 0], &values)] {
        let [low, high] = bounds(values);
        let range = |negated| Predicate::Range {
            low: Bound::Included(low.clone()),
            high: Bound::Excluded(high.clone()),
            negated,
        };
        let members = arrow::compute::concat(&[low.as_ref(), high.as_ref()]).unwrap();
        let among = |negated| Predicate::In {
            values: members.clone(),
            negated,
        };
        for predicate in [
            range(false),
            range(true),
            among(false),
            among(true),
            Predicate::IsNull,
            Predicate::IsNotNull,
        ] {
            let passed = predicate.evaluate(values).unwrap();
            let expected: BooleanArray = passed.iter().map(|p| Some(p == Some(true))).collect();
            assert!(expected.true_count() > 0);
            let mut selection = Selection::all(0, 2500);
            struct_column
                .filter_field(&path, &predicate, &mut selection)
                .unwrap();
            assert_eq!(&selection.to_boolean_buffer(), expected.values());
            if path.len() > 1 {
                let passed = predicate.evaluate(&texts).unwrap();
                let expected: BooleanArray = passed.iter().map(|p| Some(p == Some(true))).collect();
                let mut selection = Selection::all(0, 2500);
                dictionary_column
                    .filter(&predicate, &mut selection)
                    .unwrap();
                assert_eq!(&selection.to_boolean_buffer(), expected.values());
            }
        }
    }
    let mut asked = 0;
    let mut is_long = |values: &ArrayRef| {
        assert_eq!(values.data_type(), dictionary.data_type());
        asked += values.len();
        Ok((0..values.len())
            .map(|row| Some(values.is_valid(row)))
            .collect())
    };
    let mut selection = Selection::all(0, 2500);
    dictionary_column
        .filter_with(&mut is_long, &mut selection)
        .unwrap();
    assert_eq!(selection.count(), 2500 - dictionary.null_count());
    assert!(asked < 100, "distinct values are asked about: {asked}");
    let error = struct_column.filter_field(&[3], &Predicate::IsNull, &mut selection);
    assert!(matches!(error, Err(Error::Unsupported(_))), "{error:?}");

    let nulls = arrow::array::new_null_array(array.data_type(), 10);
    let nulls = encode_pinned(&nulls, None).unwrap();
    for (predicate, expected) in [(Predicate::IsNull, 10), (Predicate::IsNotNull, 0)] {
        let mut selection = Selection::all(0, 10);
        nulls
            .filter_field(&[1, 0], &predicate, &mut selection)
            .unwrap();
        assert_eq!(selection.count(), expected);
    }
}

#[test]
fn long_strings_are_bounded_from_above() {
    use arrow::array::StringArray;
    for (value, bound) in [
        ("a".repeat(40), Some("a".repeat(31) + "b")),
        ("é".repeat(20), Some("é".repeat(15) + "ê")),
        ("\u{10FFFF}".repeat(10), None),
        (
            "x".to_string() + &"\u{10FFFF}".repeat(10),
            Some("y".to_string()),
        ),
    ] {
        let array: ArrayRef = Arc::new(StringArray::from(vec![value.clone()]));
        let zones = ZoneMap::of(&array).unwrap();
        assert!(!zones.exact.value(0));
        let max = zones.max.as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(max.iter().next().unwrap(), bound.as_deref());
        let merged = zones.merge().unwrap();
        assert_eq!(merged.max.is_null(0), bound.is_none());
    }
}

#[test]
fn pins_that_do_not_apply_say_what_does() {
    let text = array_of(&DataType::Utf8, Shape::Random, NullPattern::None, 3000, 1);
    let error = encode(&text, &EncodeOptions::pinned(Encoding::Alp))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("alp") && error.contains("onpair, fsst"),
        "{error}"
    );
    let error = encode(&text, &EncodeOptions::pinned(Encoding::Constant))
        .unwrap_err()
        .to_string();
    assert!(error.contains("constant"), "{error}");
}

/// Even if all rows are distinct, as in a short last row group.
#[test]
fn a_pinned_dictionary_takes_any_values() {
    let text = arrow::array::StringArray::from(vec!["c", "a", "b"]);
    let numbers = arrow::array::Int64Array::from_iter_values((0..5000).rev());
    for array in [Arc::new(text) as ArrayRef, Arc::new(numbers)] {
        let column = encode_pinned(&array, Some(Encoding::Dict)).unwrap();
        assert_eq!(column.encoding(), Encoding::Dict);
        assert_same(&column.decode(0..array.len()).unwrap(), &array, "pinned");
    }
}

#[test]
fn the_choice_is_near_the_best_alternative() {
    for data_type in all_types() {
        for shape in Shape::ALL {
            let array = array_of(&data_type, shape, NullPattern::Some, 20_000, 21);
            let chosen = encode(&array, &EncodeOptions::default()).unwrap().len();
            for (encoding, bytes) in alternatives(&array).unwrap() {
                assert!(bytes > 0, "{data_type} {shape:?}: {encoding}");
                if let Ok(other) = encode(&array, &EncodeOptions::pinned(encoding)) {
                    let allowed = other.len() * 23 / 20 + 2048;
                    assert!(
                        chosen <= allowed,
                        "{data_type} {shape:?}: {chosen} chosen, {encoding} takes {}",
                        other.len()
                    );
                }
            }
        }
    }
}

/// The size predicted before decoding is close to the actual one.
#[test]
fn sizes_are_known_before_decoding() {
    for data_type in all_types() {
        for shape in Shape::ALL {
            let some = array_of(&data_type, shape, NullPattern::ALL[0], 3000, 3);
            // enough that sizes are exact
            let rows = UInt32Array::from_iter_values((0..60_000).map(|row| row % 3000));
            let array = take(&some, &rows, None).unwrap();
            if array.is_empty() {
                continue; // arrow loses rows without bytes here, too
            }
            let bytes = encode(&array, &EncodeOptions::default()).unwrap();
            let column = Column::parse(bytes.into(), &data_type, array.len()).unwrap();
            let selection = Selection::of_range(100..50_000);
            let known = column.decoded_bytes(&selection).unwrap();
            let decoded = column.select(&selection).unwrap();
            let actual = match decoded.data_type() {
                // whose entries are in memory once, with the column
                DataType::Utf8View | DataType::BinaryView => decoded.len() * 16,
                // stored as another type, which is what is decoded
                DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) => 0,
                _ => decoded.to_data().get_slice_memory_size().unwrap(),
            } as u64;
            let context = format!("{data_type} {shape:?}: {known} of {actual} bytes");
            assert!(known + known / 8 + 4096 >= actual, "{context}");
            let bound = (actual + actual / 2).max(2 << 20);
            assert!(
                actual == 0 || known <= bound || is_view(&data_type),
                "{context}"
            );
        }
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

#[test]
fn nulls_alone_have_alternatives_without_a_dictionary() {
    for data_type in [DataType::Utf8, DataType::BinaryView, DataType::Int64] {
        let array = arrow::array::new_null_array(&data_type, 3000);
        let found = alternatives(&array).unwrap();
        let has = |wanted| found.iter().any(|(encoding, _)| *encoding == wanted);
        assert!(has(Encoding::Plain) && !has(Encoding::Dict), "{found:?}");
    }
}
