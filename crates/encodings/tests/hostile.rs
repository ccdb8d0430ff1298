//! Chunks that no encoder writes: small, and of endless time or memory if they were believed.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, LargeStringArray};
use arrow::datatypes::{DataType, Field};
use vectile_encodings::{
    Column, EncodeOptions, Error, Predicate, Result, Selection, VECTOR_LEN, ZoneMap, encode,
};

const GIB: u64 = 1 << 30;

/// A chunk with this header and these buffers, in version 1, which allows any lengths.
fn chunk(header: Vec<u8>, buffers: Vec<Vec<u8>>) -> Vec<u8> {
    let mut out = (header.len() as u32).to_le_bytes().to_vec();
    out.extend((buffers.len() as u32).to_le_bytes());
    out.extend(buffers.iter().flat_map(|b| (b.len() as u64).to_le_bytes()));
    out.extend(header);
    for buffer in buffers {
        out.resize(out.len().next_multiple_of(64), 0);
        out.extend(buffer);
    }
    out
}

fn parse(
    header: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    data_type: &DataType,
    rows: usize,
) -> Result<Column> {
    Column::parse_version(chunk(header, buffers).into(), data_type, rows, 1)
}

/// Header fields of an integer sequence of one value.
fn constant_ints(value: u64) -> Vec<u8> {
    [vec![0], value.to_le_bytes().to_vec()].concat()
}

/// Header fields and buffers of `rows` values, whose runs are in `levels` of `rle`. The first vector
/// of each level has 512 runs of two, so that the next level is only slightly shorter, and a vector
/// of it is in two vectors of the one before.
fn runs(rows: usize, levels: usize, buffers: &mut Vec<Vec<u8>>) -> Vec<u8> {
    if levels == 0 {
        return constant_ints(7);
    }
    let runs = rows - 512;
    let lengths = (0..rows).step_by(VECTOR_LEN).map(|start| match start {
        0 => 512,
        _ => (rows - start).min(VECTOR_LEN) as u16,
    });
    buffers.push(lengths.flat_map(u16::to_le_bytes).collect());
    let mut header = vec![3];
    header.extend((runs as u64).to_le_bytes());
    header.extend(self::runs(runs, levels - 1, buffers));
    // the lengths less one as ffor: 512 ones in vector 0, and zeros
    let vectors = runs.div_ceil(VECTOR_LEN);
    header.extend([1, 0]);
    buffers.push(vec![0; 8 * vectors]);
    let mut widths = vec![0; vectors];
    widths[0] = 1;
    buffers.push(widths);
    buffers.push([0xff, 0xff, 0, 0].repeat(32));
    header
}

fn column_of_runs(levels: usize) -> Result<Column> {
    let rows = 34 * VECTOR_LEN;
    let mut buffers = vec![];
    let mut header = vec![2, 0];
    header.extend(0i128.to_le_bytes());
    header.extend(runs(rows, levels, &mut buffers));
    parse(header, buffers, &DataType::Int64, rows)
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T>, reason: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

fn is_too_large(result: Result<ArrayRef>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

/// Each level of runs doubles the time: 30 of them would take for ever.
#[test]
fn runs_nest_as_deep_as_they_are_written() {
    for levels in [1, 2] {
        let column = column_of_runs(levels).unwrap();
        let values = column.decode(0..column.len()).unwrap();
        assert_eq!(
            &values,
            &(Arc::new(Int64Array::from(vec![7; column.len()])) as ArrayRef)
        );
    }
    for levels in [3, 18, 30] {
        is_corrupt(column_of_runs(levels), "runs nested deeper than 2");
    }
}

#[test]
fn wide_nulls_are_refused_before_they_are_built() {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let lists = DataType::FixedSizeList(item, i32::MAX);
    let list = Arc::new(Field::new("list", lists.clone(), true));
    let types = [
        DataType::FixedSizeBinary(i32::MAX),
        lists,
        DataType::FixedSizeList(Arc::clone(&list), i32::MAX),
        DataType::Struct(vec![list].into()),
        DataType::Dictionary(
            Box::new(DataType::Int8),
            Box::new(DataType::FixedSizeBinary(i32::MAX)),
        ),
    ];
    for data_type in types {
        let column = parse(vec![0, 1], vec![], &data_type, 8192).unwrap();
        is_too_large(column.decode(0..8192));
        is_too_large(column.decode(0..1));
        let mut selection = Selection::all(0, 8192);
        let size = column.decoded_bytes(&selection).unwrap();
        assert!(size >= i32::MAX as u64, "{data_type}: {size}");
        let mut any = |rows: &ArrayRef| Ok(BooleanArray::from(vec![true; rows.len()]));
        assert!(column.filter_with(&mut any, &mut selection).is_err());
        column.filter(&Predicate::IsNull, &mut selection).unwrap();
        assert_eq!(selection.count(), 8192);
    }
    let narrow = parse(vec![0, 1], vec![], &DataType::FixedSizeBinary(16), 8192).unwrap();
    assert_eq!(narrow.decode(0..8192).unwrap().null_count(), 8192);
}

#[test]
fn nulls_are_as_many_as_run_ends_count() {
    let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
    let runs = |ends| {
        let ends = Arc::new(Field::new("run_ends", ends, false));
        DataType::RunEndEncoded(ends, field("values", DataType::Int8))
    };
    let lists = |data_type| DataType::FixedSizeList(field("item", data_type), 1 << 20);
    let fields = |data_type| DataType::Struct(vec![field("a", data_type)].into());
    for (data_type, most) in [
        (runs(DataType::Int16), 32_767),
        (fields(runs(DataType::Int16)), 32_767),
        (lists(runs(DataType::Int32)), 2047),
    ] {
        let rows = most + 1;
        let column = parse(vec![0, 1], vec![], &data_type, rows).unwrap();
        assert_eq!(column.decode(1..rows).unwrap().len(), most);
        let error = column.decode(0..rows).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
}

/// A dictionary whose rows cannot be counted by their bytes.
#[test]
fn entries_without_bytes_are_refused() {
    let parsed = |width: i32| {
        let text = [
            vec![6, 0, 0],
            constant_ints(width as u64),
            constant_ints(width as u64),
        ];
        let header = [
            vec![3, 0],
            1u64.to_le_bytes().to_vec(),
            text.concat(),
            constant_ints(0),
        ];
        let bytes = vec![vec![b'x'; width as usize]];
        parse(header.concat(), bytes, &DataType::FixedSizeBinary(width), 5)
    };
    assert_eq!(parsed(1).unwrap().decode(0..5).unwrap().len(), 5);
    is_corrupt(parsed(0), "entries without bytes");
}

#[test]
fn bounds_of_wide_nulls_take_little_memory() {
    let zones = |data_type: &DataType| {
        let nulls = [0, 1];
        let counts = [&[0, 0, 2, 0][..], &[0; 16], &constant_ints(0)].concat();
        let header = [&nulls[..], &nulls, &counts, &counts].concat();
        ZoneMap::parse_version(chunk(header, vec![]).into(), data_type, 3, 1).unwrap()
    };
    let wide = zones(&DataType::FixedSizeBinary(i32::MAX));
    assert!(!wide.has_bounds() && wide.len() == 3);
    assert!(wide.memory_size() < 4096);
    assert!(zones(&DataType::FixedSizeBinary(16)).has_bounds());
}

/// A column of `rows` rows of the same `bytes` bytes.
fn constant_column(bytes: usize, rows: usize) -> Column {
    let length = constant_ints(bytes as u64);
    let header = [&[0, 0, 6, 0, 0][..], &length, &length].concat();
    parse(header, vec![vec![b'x'; bytes]], &DataType::LargeUtf8, rows).unwrap()
}

#[test]
fn long_constants_are_decoded_a_part_at_a_time() {
    let column = constant_column(1 << 20, 1 << 24);
    is_too_large(column.decode(0..1 << 24));
    is_too_large(column.decode(0..8192));
    let rows = Selection::of_range(5000..13_192);
    let size = column.decoded_bytes(&rows).unwrap();
    assert!((8 * GIB..9 * GIB).contains(&size), "{size}");
    let few = column.decode(9999..10_002).unwrap();
    assert_eq!((few.len(), few.null_count()), (3, 0));
    let mut selection = Selection::all(0, 1 << 24);
    let value: ArrayRef = Arc::new(LargeStringArray::from(vec!["x".repeat(1 << 20)]));
    column
        .filter(&Predicate::equal(value), &mut selection)
        .unwrap();
    assert_eq!(selection.count(), 1 << 24);
}

/// If nulls may pass, rows are tested, and there may be too many of them for one array.
#[test]
fn filters_decode_a_part_at_a_time() {
    let rows = 3000;
    let long = "x".repeat(1 << 16);
    let values = (0..rows).map(|row| (row % 3 > 0).then_some(long.as_str()));
    let array: ArrayRef = Arc::new(LargeStringArray::from_iter(values));
    let bytes = encode(&array, &EncodeOptions::default()).unwrap();
    let column = Column::parse(bytes.into(), array.data_type(), rows).unwrap();
    let mut selection = Selection::all(0, rows);
    let mut largest = 0;
    let mut is_null = |rows: &ArrayRef| {
        largest = largest.max(rows.get_array_memory_size());
        Ok((0..rows.len()).map(|row| Some(rows.is_null(row))).collect())
    };
    column.filter_with(&mut is_null, &mut selection).unwrap();
    assert_eq!(selection.count(), rows / 3);
    assert!(largest < 64 << 20, "{largest} bytes at once");
}

/// Constants and dictionaries consist of numbers or strings, stored as neither.
#[test]
fn constants_and_dictionaries_do_not_nest() {
    let number = [&[2, 0][..], &[0; 16], &constant_ints(7)].concat();
    let constant = |value: &[u8]| [&[0, 0][..], value].concat();
    let dictionary = |entries: &[u8]| {
        [
            &[3, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            entries,
            &constant_ints(0),
        ]
        .concat()
    };
    let parse = |header| parse(header, vec![], &DataType::Int64, 10);
    assert!(parse(constant(&number)).is_ok());
    assert!(parse(dictionary(&number)).is_ok());
    for header in [
        constant(&constant(&number)),
        constant(&dictionary(&number)),
        dictionary(&constant(&number)),
        dictionary(&dictionary(&number)),
        // nulls only, and values
        [&[2, 1][..], &number[2..]].concat(),
    ] {
        is_corrupt(parse(header), "tag");
    }
}

/// A list of ten rows over 2^28 times the same number.
#[test]
fn lists_are_as_large_as_their_items() {
    let rows = 1u64 << 28;
    let lengths = constant_ints(rows);
    let number = [&[0, 0, 2, 0][..], &[0; 16], &constant_ints(7)].concat();
    let header = [&[7, 0][..], &rows.to_le_bytes(), &lengths, &number].concat();
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let column = parse(header, vec![], &DataType::List(item), 1).unwrap();
    assert!(column.decoded_bytes(&Selection::all(0, 1)).unwrap() >= 2 * GIB);
    is_too_large(column.decode(0..1));
}

/// The lengths of the inner lists alone would take 2 GiB.
#[test]
fn lists_of_too_many_lists_are_refused_before_their_lengths_are_read() {
    let (rows, width) = (1u64 << 24, 16);
    let inner = [&[7, 0][..], &0u64.to_le_bytes(), &constant_ints(0), &[0, 1]].concat();
    let lists = [
        &[7, 0][..],
        &(rows * width).to_le_bytes(),
        &constant_ints(width),
        &inner,
    ]
    .concat();
    let field = |data_type| Arc::new(Field::new("item", data_type, true));
    let inner = field(DataType::List(field(DataType::Int32)));
    let data_type = DataType::FixedSizeList(inner, width as i32);
    let column = parse(lists, vec![], &data_type, rows as usize).unwrap();
    let size = column
        .decoded_bytes(&Selection::all(0, column.len()))
        .unwrap();
    assert!(size > GIB, "{size}");
    is_too_large(column.decode(0..column.len()));
    assert_eq!(column.decode(0..3000).unwrap().len(), 3000);
}

/// arrow-rs panics when it compares these.
#[test]
fn dictionaries_of_dictionaries_are_not_compared() {
    let keys = || Box::new(DataType::Int8);
    let inner = DataType::Dictionary(keys(), Box::new(DataType::Int32));
    let data_type = DataType::Dictionary(keys(), Box::new(inner));
    let column = parse(vec![0, 1], vec![], &data_type, 5).unwrap();
    let mut selection = Selection::all(0, 5);
    let value = arrow::array::new_null_array(&data_type, 1);
    let error = column
        .filter(&Predicate::equal(value), &mut selection)
        .unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported(reason) if reason.contains("comparing")),
        "{error}"
    );
    column.filter(&Predicate::IsNull, &mut selection).unwrap();
    assert_eq!(selection.count(), 5);
}

/// Runs are expanded to all their rows before they become a dictionary, or runs of runs.
#[test]
fn runs_that_are_written_out_are_refused_before_they_are() {
    let runs = |values| {
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        DataType::RunEndEncoded(ends, Arc::new(Field::new("values", values, true)))
    };
    let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int16), Box::new(values));
    let decoded = |data_type: DataType| {
        // stored as another type, which is null
        let column = parse(vec![7, 0, 0, 1], vec![], &data_type, 8192).unwrap();
        column.decode(0..8192)
    };
    let wide = || DataType::FixedSizeBinary(1 << 20);
    is_too_large(decoded(dictionary(runs(wide()))));
    is_too_large(decoded(runs(runs(wide()))));
    assert_eq!(decoded(runs(runs(DataType::Int32))).unwrap().len(), 8192);
    // even no rows have one value, regardless of its width
    let none = parse(vec![7, 0, 0, 1], vec![], &runs(runs(wide())), 0).unwrap();
    let announced = none.decoded_bytes(&Selection::all(0, 0)).unwrap();
    let size = none.decode(0..0).unwrap().to_data().get_slice_memory_size();
    assert!(announced >= size.unwrap() as u64);
}

/// Codes of two bits for "a", "b" and "ab", in a split of three strings.
#[test]
fn entries_are_not_trusted() {
    let mut dictionary = vec![0; 32];
    dictionary[12] = 0b110;
    dictionary.push(0b01_00);
    let parse = |kind: u8, entries: u64, dictionary: &[u8], codes: &[u8]| {
        let bytes = constant_ints(codes.len() as u64);
        let header = [
            &[6, 0, kind][..],
            &entries.to_le_bytes(),
            &constant_ints(2),
            &bytes,
        ];
        let buffers = vec![dictionary.to_vec(), codes.to_vec()];
        parse(header.concat(), buffers, &DataType::Utf8, 3)
    };
    let decode = |codes: &[u8]| parse(3, 3, &dictionary, codes)?.decode(0..3);
    let expected: ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["ab", "ba", "ab"]));
    // ab b a ab
    assert_eq!(&decode(&[0b10_00_01_10]).unwrap(), &expected);
    is_corrupt(decode(&[0b11_00_01_10]), "code 3 of 3 entries");
    is_corrupt(decode(&[0b10_00_01_10, 0]), "1 bytes behind the codes");
    is_corrupt(decode(&[0b00_00_01_10]), "5 bytes, its lengths say 6");
    is_corrupt(decode(&[]), "at most 0 possible");
    is_corrupt(parse(4, 3, &dictionary, &[0]), "4 symbol tables");
    is_corrupt(parse(3, 4095, &dictionary, &[0]), "at most 4094");
    is_corrupt(parse(3, 3, &dictionary[..32], &[0]), "0 bytes for 1 pairs");
    dictionary[32] = 0b10_00;
    is_corrupt(parse(3, 3, &dictionary, &[0]), "an entry behind it");
}

/// A number for most of 1100 rows, and `rows` exceptions after it.
#[test]
fn rows_of_exceptions_are_not_trusted() {
    let parse = |others: u64, counts: [u16; 2], places: &[u8]| {
        let header = [
            &[2, 0][..],
            &5i128.to_le_bytes(),
            &[7],
            &40u64.to_le_bytes(),
            &others.to_le_bytes(),
            &constant_ints(2),
            places,
        ];
        let mut buffers = vec![counts.map(u16::to_le_bytes).concat()];
        if places[0] == 7 {
            buffers.push(vec![]);
        }
        parse(header.concat(), buffers, &DataType::Int64, 1100)
    };
    let column = parse(2, [1, 1], &constant_ints(70)).unwrap();
    assert_eq!(column.describe(), "sparse(constant, constant)");
    let expected = (0..1100).map(|row| if row % 1024 == 70 { 7 } else { 45 });
    let expected: ArrayRef = Arc::new(Int64Array::from_iter_values(expected));
    assert_eq!(&column.decode(0..1100).unwrap(), &expected);
    let mut selection = Selection::all(0, 1100);
    let seven: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    column
        .filter(&Predicate::equal(seven), &mut selection)
        .unwrap();
    assert_eq!(selection.count(), 2);

    let far = parse(2, [1, 1], &constant_ints(1024)).unwrap();
    is_corrupt(far.decode(0..1100), "row 1024 of a vector");
    is_corrupt(
        far.filter(
            &Predicate::equal(expected.slice(0, 1)),
            &mut Selection::all(0, 1100),
        ),
        "row 1024",
    );
    is_corrupt(
        parse(2, [1, 2], &constant_ints(3)),
        "3 others in the vectors, 2 in all",
    );
    is_corrupt(
        parse(1101, [1, 1], &constant_ints(3)),
        "at most 1100 possible",
    );
    is_corrupt(
        parse(1026, [1025, 1], &constant_ints(3)),
        "1025 others in a vector",
    );
    // exceptions in exceptions in exceptions
    let nested = |inner: &[u8]| [&[7][..], &[0; 16], inner, &constant_ints(0)].concat();
    let third = nested(&constant_ints(0));
    is_corrupt(parse(0, [0, 0], &nested(&third)), "nested deeper");
}

/// Two vectors of which few rows are null, and few are not.
#[test]
fn few_nulls_are_not_trusted() {
    let parse = |kinds: [u8; 2], counts: &[u8], rows: &[u16; 2]| {
        let header = [&[2, 3][..], &[0], &[0; 16], &constant_ints(7)].concat();
        // rows of 11 bits, the first of each of two lanes
        let mut packed = vec![0; 128 * 11];
        packed[..2].copy_from_slice(&rows[0].to_le_bytes());
        packed[4..6].copy_from_slice(&rows[1].to_le_bytes());
        let buffers = vec![kinds.to_vec(), vec![], counts.to_vec(), vec![11], packed];
        self::parse(header, buffers, &DataType::Int64, 2048)
    };
    let column = parse([3, 4], &[0, 0], &[5, 9]).unwrap();
    let expected = (0..2048).map(|row| ((row < 1024 && row != 5) || row == 1033).then_some(7));
    let expected: ArrayRef = Arc::new(Int64Array::from_iter(expected));
    assert_eq!(&column.decode(0..2048).unwrap(), &expected);
    is_corrupt(parse([3, 4], &[0, 0], &[5, 1024]), "row 1024 of a vector");
    is_corrupt(parse([3, 5], &[0], &[5, 9]), "a kind of 5, at most 4");
    is_corrupt(
        parse([3, 4], &[0], &[5, 9]),
        "a buffer of 1 bytes where 2 belong",
    );
    is_corrupt(
        parse([3, 0], &[1, 0], &[5, 9]),
        "a buffer of 2 bytes where 1 belong",
    );
}
