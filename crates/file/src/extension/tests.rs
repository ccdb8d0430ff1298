//! Encoded columns through IPC and the C data interface, and damaged ones.

use std::collections::HashMap;
use std::io::Cursor;

use arrow::array::{
    ArrayData, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int8Array, Int16Array, Int32Array, ListArray, NullArray, RunArray,
    StringArray, StringViewArray, make_array, record_batch,
};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::{Int8Type, Int16Type, Int32Type};
use arrow::ffi::{FFI_ArrowSchema, from_ffi, to_ffi};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use proptest::prelude::*;

use super::*;

fn type_of(array: &dyn Array) -> ColumnType {
    ColumnType::of(&Field::new("c", array.data_type().clone(), true)).unwrap()
}

fn encoded(array: &dyn Array) -> StructArray {
    encode(array, &EncodeOptions::default()).unwrap()
}

/// An array of these chunks.
fn chunks(chunks: &[(i64, &[u8])]) -> StructArray {
    let rows = chunks.iter().map(|(rows, _)| *rows).collect();
    let lens = chunks.iter().map(|(_, data)| data.len());
    let data: Vec<&[u8]> = chunks.iter().map(|(_, data)| *data).collect();
    storage_array(rows, OffsetBuffer::from_lengths(lens), data.concat().into()).unwrap()
}

/// Several times the same chunk.
fn repeated(array: &dyn Array, times: usize) -> StructArray {
    let chunk = encoded(array);
    let data = chunk.column(1).as_binary::<i64>().value(0);
    chunks(&vec![(array.len() as i64, data); times])
}

fn joined(arrays: &[StructArray]) -> ArrayRef {
    let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array as &dyn Array).collect();
    concat(&arrays).unwrap()
}

fn list(values: ArrayRef, lens: impl IntoIterator<Item = usize>) -> ArrayRef {
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lens);
    Arc::new(ListArray::new(item, offsets, values, None))
}

/// Arrays of many types with these values.
fn arrays(values: &[Option<i32>]) -> Vec<ArrayRef> {
    let ints = Arc::new(Int32Array::from(values.to_vec()));
    let text = |value: &Option<i32>| value.map(|value| format!("{}", value % 50));
    let texts: Vec<Option<String>> = values.iter().map(text).collect();
    let borrowed = || texts.iter().map(Option::as_deref);
    let strings: ArrayRef = Arc::new(borrowed().collect::<StringArray>());
    let decimals = values.iter().map(|value| value.map(i128::from));
    let decimals: Decimal128Array = decimals.collect();
    let fields = Fields::from(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let parts: Vec<ArrayRef> = vec![Arc::clone(&ints) as ArrayRef, Arc::clone(&strings)];
    let lens = (0..values.len()).map(|row| usize::from(row % 2 == 0) * 2);
    let lens = lens.take(values.len() / 2 * 2);
    let even = values.len() / 2 * 2;
    vec![
        Arc::clone(&ints) as ArrayRef,
        Arc::clone(&strings),
        Arc::new(borrowed().collect::<StringViewArray>()),
        Arc::new(BinaryArray::from_opt_vec(
            borrowed().map(|text| text.map(str::as_bytes)).collect(),
        )),
        Arc::new(
            values
                .iter()
                .map(|v| v.map(|v| v % 3 == 0))
                .collect::<BooleanArray>(),
        ),
        Arc::new(
            values
                .iter()
                .map(|v| v.map(f64::from))
                .collect::<arrow::array::Float64Array>(),
        ),
        Arc::new(decimals.with_precision_and_scale(20, 3).unwrap()),
        Arc::new(borrowed().collect::<DictionaryArray<Int32Type>>()),
        Arc::new(borrowed().collect::<RunArray<Int32Type>>()),
        Arc::new(StructArray::new(fields, parts, None)),
        list(strings.slice(0, even), lens),
        Arc::new(NullArray::new(values.len())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arrays_round_trip(
        values in prop::collection::vec(prop::option::weighted(0.9, any::<i32>()), 0..3000),
        cut in any::<prop::sample::Index>(),
    ) {
        for array in arrays(&values) {
            let of_type = type_of(&array);
            prop_assert_eq!(&decode(&encoded(&array), &of_type).unwrap(), &array);
            let cut = cut.index(array.len() + 1);
            let parts = [array.slice(0, cut), array.slice(cut, array.len() - cut)];
            let parts = parts.map(|part| encoded(&part));
            let decoded = decode(&joined(&parts), &of_type).unwrap();
            prop_assert_eq!(decoded.data_type(), array.data_type());
            prop_assert_eq!(&decoded, &array);
        }
    }

    #[test]
    fn damaged_chunks_do_no_harm(
        seed in prop::collection::vec(prop::option::weighted(0.9, 0..1000i32), 1..1100),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
        rows in prop_oneof![Just(None), (-1..3000i64).prop_map(Some)],
    ) {
        for array in arrays(&seed) {
            let chunk = encoded(&array);
            let sound = chunk.column(1).as_binary::<i64>();
            let sound = if sound.is_empty() { &[][..] } else { sound.value(0) };
            let mut bytes = sound.to_vec();
            for (index, byte) in &damage {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] ^= byte;
                }
            }
            let rows = rows.unwrap_or(array.len() as i64);
            let cut = &sound[..len.index(sound.len() + 1)];
            for bytes in [&bytes[..], cut] {
                let of_type = type_of(&array);
                let sound = (array.len() as i64, sound);
                let decoded = decode(&chunks(&[(rows, bytes), sound]), &of_type);
                if let Ok(decoded) = decoded {
                    prop_assert_eq!(decoded.len(), rows as usize + array.len());
                    decoded.to_data().validate_full().unwrap();
                }
            }
        }
    }
}

/// A batch that has what may get lost: nullability, metadata, another extension type.
fn batch() -> RecordBatch {
    let said = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    let uuid = FixedSizeBinaryArray::try_from_iter((0..3u8).map(|i| [i; 16])).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(StringArray::from(vec![Some("Porto"), None, Some("Porto")])),
        Arc::new(uuid),
    ];
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("place", DataType::Utf8, true).with_metadata(said("unit", "none")),
        Field::new("id", DataType::FixedSizeBinary(16), true)
            .with_metadata(said(EXTENSION_TYPE_NAME_KEY, "arrow.uuid")),
    ];
    let schema = Schema::new_with_metadata(fields, said("origin", "test"));
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn through_ipc(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let mut writer = StreamWriter::try_new(vec![], &batches[0].schema()).unwrap();
    batches
        .iter()
        .for_each(|batch| writer.write(batch).unwrap());
    let bytes = writer.into_inner().unwrap();
    let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    reader.map(Result::unwrap).collect()
}

#[test]
fn batches_round_trip_through_ipc() {
    let (first, second) = (batch(), batch().slice(1, 2));
    let encoded = [&first, &second].map(|batch| encode_batch(batch).unwrap());
    let read = through_ipc(&encoded);
    assert_eq!(read, encoded);
    let schema = read[0].schema();
    assert_eq!(schema.metadata(), first.schema().metadata());
    assert_eq!(schema.field(1).metadata()["unit"], "none");
    assert!(
        schema
            .fields()
            .iter()
            .all(|field| field.has_valid_extension_type::<ColumnType>())
    );
    let read = concat_batches(&schema, &read).unwrap();
    assert_eq!(read.num_rows(), 2);
    let expected = concat_batches(&first.schema(), [&first, &second]).unwrap();
    assert_eq!(decode_batch(&read).unwrap(), expected);
    assert_eq!(decode_batch(&read.slice(1, 1)).unwrap(), second);
}

/// Also of columns that are encoded.
#[test]
fn any_batch_round_trips() {
    for batch in [
        batch(),
        batch().slice(0, 0),
        encode_batch(&batch()).unwrap(),
    ] {
        let encoded = encode_batch(&batch).unwrap();
        assert_eq!(encoded.num_rows(), batch.num_rows().min(1));
        assert_eq!(decode_batch(&encoded).unwrap(), batch);
    }
}

#[test]
fn the_order_of_a_dictionary_is_kept() {
    let array: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    let field = Field::new("d", array.data_type().clone(), false).with_dict_is_ordered(true);
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap();
    let read = through_ipc(&[encode_batch(&batch).unwrap()]);
    let decoded = decode_batch(&read[0]).unwrap();
    assert_eq!(decoded.schema().field(0).dict_is_ordered(), Some(true));
}

#[test]
fn rows_need_columns() {
    let of_rows = |rows| batch_of(vec![], &Schema::empty(), vec![], rows).unwrap();
    let none = of_rows(0);
    assert_eq!(decode_batch(&encode_batch(&none).unwrap()).unwrap(), none);
    let error = encode_batch(&of_rows(3)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    let error = decode_batch(&of_rows(3)).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// An array and its field as they arrive in another library.
fn through_ffi(data: ArrayData, field: &Field) -> (ArrayRef, Field) {
    let (array, storage) = to_ffi(&data).unwrap();
    let schema = FFI_ArrowSchema::try_from(field).unwrap();
    assert_eq!(DataType::try_from(&storage).unwrap(), *field.data_type());
    // SAFETY: `to_ffi` exported both from an array of this type.
    let data = unsafe { from_ffi(array, &schema) }.unwrap();
    (make_array(data), Field::try_from(&schema).unwrap())
}

#[test]
fn arrays_round_trip_through_the_c_data_interface() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter((0..3000).map(|i| Some(i * i))));
    let array = joined(&[
        encoded(&values.slice(0, 1100)),
        encoded(&values.slice(1100, 1900)),
    ]);
    let field = Field::new("squares", ColumnType::storage(), false);
    let field = field.with_extension_type(type_of(&values));
    for data in [array.to_data(), array.slice(1, 1).to_data()] {
        let is_all = data.len() == 2;
        let (array, read) = through_ffi(data, &field);
        assert_eq!(read, field);
        let of_type: ColumnType = read.try_extension_type().unwrap();
        let expected = if is_all {
            values.clone()
        } else {
            values.slice(1100, 1900)
        };
        assert_eq!(&decode(&array, &of_type).unwrap(), &expected);
    }
}

/// A library may pass any pointer.
#[test]
fn buffers_need_no_alignment() {
    let seed: Vec<_> = (0..5000).map(|i| (i % 7 > 0).then_some(i * i)).collect();
    let shifted = |bytes: &[u8], by: usize| {
        let bytes = [&vec![0; by], bytes].concat();
        Buffer::from_vec(bytes).slice(by)
    };
    for array in arrays(&seed) {
        let chunk = encoded(&array);
        let field = Field::new("c", ColumnType::storage(), false);
        for by in 0..=8 {
            let children = chunk.to_data().child_data().to_vec();
            let children = children.into_iter().map(|child| {
                let last = child.buffers().len() - 1;
                let mut buffers = child.buffers().to_vec();
                buffers[last] = shifted(&buffers[last], by);
                let builder = child.into_builder().buffers(buffers);
                // SAFETY: it is only exported; the values are those of a sound array.
                unsafe { builder.build_unchecked() }
            });
            let data = chunk
                .to_data()
                .into_builder()
                .child_data(children.collect());
            // SAFETY: as above.
            let data = unsafe { data.build_unchecked() };
            let (read, _) = through_ffi(data, &field);
            assert_eq!(&decode(&read, &type_of(&array)).unwrap(), &array, "{by}");
        }
    }
}

fn is_corrupt<T>(result: Result<T>, reason: &str) {
    let error = result.err().unwrap();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn rows_of_chunks_are_checked() {
    let array = Int64Array::from(vec![1, 5, 2]);
    let of_type = type_of(&array);
    let chunk = encoded(&array);
    let data = chunk.column(1).as_binary::<i64>().value(0);
    for rows in [i64::MIN, -1, 0, MAX_ROW_GROUP_ROWS as i64 + 1, i64::MAX] {
        is_corrupt(
            decode(&chunks(&[(3, data), (rows, data)]), &of_type),
            "allowed",
        );
    }
    for rows in [1, 2, 4, 1025, MAX_ROW_GROUP_ROWS as i64] {
        is_corrupt(
            decode(&chunks(&[(rows, data)]), &of_type),
            "encoded column, row group 0",
        );
    }
    is_corrupt(
        decode(&chunks(&[(3, data), (3, &[])]), &of_type),
        "row group 1",
    );
}

#[test]
fn nulls_among_chunks_are_damage() {
    let values = Int64Array::from(vec![1]);
    let of_type = type_of(&values);
    let chunk = encoded(&values);
    let (fields, columns, _) = chunk.clone().into_parts();
    let null = StructArray::new(fields, columns.clone(), Some(vec![false].into()));
    is_corrupt(decode(&null, &of_type), "null");
    // a tool that knows no nullability
    let fields = storage_fields();
    let fields = fields
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true));
    let fields = Fields::from(fields.collect::<Vec<_>>());
    let nullable = StructArray::new(fields.clone(), columns.clone(), None);
    assert_eq!(
        decode(&nullable, &of_type).unwrap().as_ref(),
        &values as &dyn Array
    );
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let null = StructArray::new(fields.clone(), vec![rows, columns[1].clone()], None);
    is_corrupt(decode(&null, &of_type), "null");
    let data: ArrayRef = Arc::new(LargeBinaryArray::from_opt_vec(vec![None]));
    let null = StructArray::new(fields, vec![columns[0].clone(), data], None);
    is_corrupt(decode(&null, &of_type), "null");
    // and so are nulls among values that have none
    let values = Int64Array::from(vec![None, Some(1)]);
    let of_type = ColumnType::of(&Field::new("c", DataType::Int64, false)).unwrap();
    is_corrupt(decode(&encoded(&values), &of_type), "not nullable");
}

#[test]
fn other_arrays_are_refused() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let renamed = StructArray::from(vec![(
        Arc::new(Field::new("rows", DataType::Int64, false)),
        Arc::clone(&ints),
    )]);
    let others: [&dyn Array; 2] = [&ints, &renamed];
    for array in others {
        let error = decode(array, &type_of(&ints)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let batch = record_batch!(("a", Int32, [1])).unwrap();
    let error = decode_batch(&batch).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column 'a' is not of type vectile.column"
    );
    let storage = encode_batch(&batch).unwrap();
    let field = Field::new("a", ColumnType::storage(), false);
    let plain = RecordBatch::try_new(
        Arc::new(Schema::new(vec![field])),
        storage.columns().to_vec(),
    );
    let error = decode_batch(&plain.unwrap()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    let rows = NullArray::new(MAX_ROW_GROUP_ROWS + 1);
    let error = encode(&rows, &EncodeOptions::default()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn metadata_are_checked() {
    let array = encoded(&Int32Array::from(vec![1]));
    let decode_with = |metadata: Option<&str>| {
        let mut said = HashMap::from([(
            EXTENSION_TYPE_NAME_KEY.to_owned(),
            ColumnType::NAME.to_owned(),
        )]);
        said.extend(metadata.map(|text| (EXTENSION_TYPE_METADATA_KEY.to_owned(), text.to_owned())));
        let field = Field::new("c", ColumnType::storage(), false).with_metadata(said);
        let is_valid = field.has_valid_extension_type::<ColumnType>();
        let columns: Vec<ArrayRef> = vec![Arc::new(array.clone())];
        let decoded = batch_of(vec![field], &Schema::empty(), columns, 1);
        let decoded = decode_batch(&decoded.unwrap());
        assert_eq!(is_valid, decoded.is_ok(), "{metadata:?}");
        decoded
    };
    let sound = r#"{"data_type":"Int32","nullable":false,"version":2}"#;
    let of_type = ColumnType::of(&Field::new("c", DataType::Int32, false)).unwrap();
    assert_eq!(of_type.serialize_metadata().as_deref(), Some(sound));
    assert_eq!(
        ColumnType::deserialize_metadata(Some(sound)).unwrap(),
        of_type
    );
    decode_with(Some(sound)).unwrap();
    for metadata in [
        "",
        "{",
        "[]",
        "2",
        r#"{"version":2}"#,
        r#"{"data_type":"Int32"}"#,
        r#"{"data_type":"Int32","version":0}"#,
        r#"{"data_type":"Int32","version":1}"#,
        r#"{"data_type":"Int32","version":"2"}"#,
        r#"{"data_type":"Int32","version":4294967298}"#,
        r#"{"data_type":"Int33","version":2}"#,
        r#"{"data_type":{"FixedSizeBinary":-1},"version":2}"#,
        r#"{"data_type":{"Union":[[],"Dense"]},"version":2}"#,
    ] {
        is_corrupt(decode_with(Some(metadata)), "encoded column, column 'c'");
    }
    is_corrupt(decode_with(None), "no metadata");
    let deep = |levels: usize| "[".repeat(levels);
    is_corrupt(decode_with(Some(&deep(100_000))), "not readable");
    let error = decode_with(Some(r#"{"data_type":"Int32","version":3}"#)).unwrap_err();
    assert!(
        matches!(error, Error::UnsupportedVersion { found: 3, .. }),
        "{error}"
    );
    let mut field = Field::new("c", DataType::Int32, false);
    assert!(field.try_with_extension_type(of_type).is_err());
}

#[test]
fn columns_have_the_same_rows() {
    let batch = record_batch!(("a", Int32, [1, 2]), ("b", Int32, [3, 4])).unwrap();
    let whole = encode_batch(&batch).unwrap();
    let part = encode_batch(&batch.slice(0, 1)).unwrap();
    let columns = vec![whole.column(0).clone(), part.column(1).clone()];
    let mixed = RecordBatch::try_new(whole.schema(), columns).unwrap();
    is_corrupt(decode_batch(&mixed), "row group 0, column 'b': 1 rows");
}

fn is_refused(array: &dyn Array, of_type: &ColumnType) {
    let error = decode(array, of_type).unwrap_err();
    assert!(matches!(error, Error::Encoding { .. }), "{error}");
}

/// A few bytes claim any number of rows.
#[test]
fn decoded_sizes_are_bounded() {
    let zeros = Int64Array::from_iter_values(std::iter::repeat_n(0, 1 << 20));
    let of_type = type_of(&zeros);
    let array = repeated(&zeros, 1000);
    is_refused(&array, &of_type);
    assert_eq!(decode(&array.slice(0, 3), &of_type).unwrap().len(), 3 << 20);
}

/// Where arrow-rs would panic, or give wrong arrays.
#[test]
fn overflows_are_errors() {
    // offsets of lists
    let many = list(Arc::new(NullArray::new(1 << 28)), [1 << 28]);
    let of_type = type_of(&many);
    is_refused(&repeated(&many, 8), &of_type);
    assert_eq!(decode(&repeated(&many, 7), &of_type).unwrap().len(), 7);
    // run ends
    let ends = Int16Array::from(vec![20_000]);
    let runs = RunArray::<Int16Type>::try_new(&ends, &StringArray::from(vec!["a"])).unwrap();
    is_refused(&repeated(&runs, 2), &type_of(&runs));
    // keys of dictionaries, which are merged, or cannot be
    let of_values = |values: ArrayRef| {
        let keys = Int8Array::from_iter_values((0..100).chain([0; 200]));
        Arc::new(DictionaryArray::<Int8Type>::new(keys, values)) as ArrayRef
    };
    let texts = |from: i32| (from..from + 100).map(|i| i.to_string());
    let parts = |make: &dyn Fn(i32) -> ArrayRef| [0, 100].map(make);
    let strings = parts(&|from| of_values(Arc::new(StringArray::from_iter_values(texts(from)))));
    let views = parts(&|from| of_values(Arc::new(StringViewArray::from_iter_values(texts(from)))));
    let pairs = strings.clone().map(|keys| {
        let item = Arc::new(Field::new_list_field(keys.data_type().clone(), true));
        Arc::new(FixedSizeListArray::new(item, 2, keys, None)) as ArrayRef
    });
    let fits = [strings[0].clone(), strings[0].clone()];
    for parts in [strings, views, pairs] {
        let of_type = type_of(&parts[0]);
        let both = joined(&parts.each_ref().map(|part| encoded(part)));
        is_refused(&both, &of_type);
        assert_eq!(&decode(&both.slice(1, 1), &of_type).unwrap(), &parts[1]);
    }
    let both = joined(&fits.each_ref().map(|part| encoded(part)));
    assert_eq!(decode(&both, &type_of(&fits[0])).unwrap().len(), 600);
}
