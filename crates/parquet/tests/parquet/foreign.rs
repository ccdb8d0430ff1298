//! Files that Arrow's writer does not write: 96-bit timestamps, lists without annotations, features that are not read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType as ParquetType, FixedLenByteArray, FixedLenByteArrayType,
    Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use vectile_parquet::Error;
use vectile_scan::{Container, Fetch};

use crate::support::{all_types, assert_same, expected, fetched, open, write};

/// A file of one column with these values and levels.
fn column<T: ParquetType>(
    schema: &str,
    values: &[T::T],
    def: &[i16],
    rep: Option<&[i16]>,
) -> Bytes {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::default());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let def = (!def.is_empty()).then_some(def);
    column.typed::<T>().write_batch(values, def, rep).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap().into()
}

async fn check(bytes: Bytes, data_type: &DataType, has_bounds: bool) {
    let file = open(bytes.clone()).await.unwrap();
    assert_eq!(file.metadata().unsupported(), None);
    assert_eq!(file.schema().field(0).data_type(), data_type);
    let rows = fetched(&file).await.unwrap();
    assert_same(
        &rows,
        &expected(&bytes, file.schema()),
        &data_type.to_string(),
    );
    let zones = file.row_group_zones(0).unwrap();
    assert_eq!(zones.has_bounds(), has_bounds, "{data_type}");
}

#[tokio::test]
async fn columns_of_other_writers() {
    let mut times = vec![];
    for day in 0..50 {
        let mut time = Int96::new();
        time.set_data(1_000_000 * day, 7, 2_440_588 + day);
        times.push(time);
    }
    let nanos = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None);
    let bytes = column::<Int96Type>("message m { required int96 a; }", &times, &[], None);
    check(bytes, &nanos, false).await;

    let texts: Vec<ByteArray> = (0..50)
        .map(|i| format!("t{}", i % 7).as_str().into())
        .collect();
    for (schema, data_type, has_bounds) in [
        ("required binary a;", DataType::BinaryView, true),
        ("required binary a (UTF8);", DataType::Utf8View, true),
        ("required binary a (ENUM);", DataType::BinaryView, true),
        ("required binary a (JSON);", DataType::Utf8View, true),
        ("required binary a (BSON);", DataType::BinaryView, true),
    ] {
        let schema = format!("message m {{ {schema} }}");
        let bytes = column::<ByteArrayType>(&schema, &texts, &[], None);
        check(bytes, &data_type, has_bounds).await;
    }
    let digits: Vec<ByteArray> = (0..50u8).map(|i| vec![i, 200 - i].into()).collect();
    let schema = "message m { required binary a (DECIMAL(4, 1)); }";
    let bytes = column::<ByteArrayType>(schema, &digits, &[], None);
    check(bytes, &DataType::Decimal128(4, 1), false).await;
    let digits = (0..50u8).map(|i| FixedLenByteArray::from(vec![i, 200 - i, 3]));
    let digits: Vec<FixedLenByteArray> = digits.collect();
    let schema = "message m { required fixed_len_byte_array(3) a (DECIMAL(6, 1)); }";
    let bytes = column::<FixedLenByteArrayType>(schema, &digits, &[], None);
    check(bytes, &DataType::Decimal128(6, 1), true).await;

    let numbers: Vec<i32> = (0..50).map(|i| i - 10).collect();
    for (schema, data_type) in [
        ("(DATE)", DataType::Date32),
        ("(INT_8)", DataType::Int8),
        ("(UINT_8)", DataType::UInt8),
        ("(UINT_32)", DataType::UInt32),
        ("(DECIMAL(5, 2))", DataType::Decimal128(5, 2)),
        ("", DataType::Int32),
    ] {
        let numbers: Vec<i32> = match data_type {
            DataType::UInt8 => numbers.iter().map(|n| n + 10).collect(),
            _ => numbers.clone(),
        };
        let schema = format!("message m {{ required int32 a {schema}; }}");
        let bytes = column::<Int32Type>(&schema, &numbers, &[], None);
        check(bytes, &data_type, true).await;
    }
    let numbers: Vec<i64> = (0..50).map(|i| i - 10).collect();
    let schema = "message m { required int64 a (TIMESTAMP_MILLIS); }";
    let bytes = column::<Int64Type>(schema, &numbers, &[], None);
    let millis = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, Some("UTC".into()));
    check(bytes, &millis, true).await;
}

#[tokio::test]
async fn repeated_fields_are_lists_without_bounds() {
    let schema = "message m { repeated int32 a; }";
    let (def, rep) = ([1, 1, 0, 1, 1, 1], [0, 1, 0, 0, 1, 1]);
    let bytes = column::<Int32Type>(schema, &[1, 2, 3, 4, 5], &def, Some(&rep));
    let item = Field::new("a", DataType::Int32, false);
    let data_type = DataType::List(Arc::new(item));
    check(bytes, &data_type, false).await;
}

#[tokio::test]
async fn types_that_are_too_deep_are_named_and_others_read() {
    let numbers = Int32Array::from(vec![1, 2, 3]);
    let mut deep: ArrayRef = Arc::new(numbers.clone());
    for _ in 0..30 {
        let field = Arc::new(Field::new("f", deep.data_type().clone(), false));
        deep = Arc::new(StructArray::from(vec![(field, deep)]));
    }
    let batch =
        RecordBatch::try_from_iter([("deep", deep), ("flat", Arc::new(numbers) as ArrayRef)]);
    let file = open(write(&batch.unwrap(), WriterProperties::default()))
        .await
        .unwrap();
    let reason = file.metadata().unsupported().unwrap();
    assert_eq!(reason, "column 'deep': a type of more than 24 levels");
    assert!(file.metadata().unsupported_column(0).is_some());
    assert!(file.metadata().unsupported_column(1).is_none());
    let fetch = |column| Fetch {
        row_group: 0,
        data: vec![column],
        zones: vec![],
    };
    assert!(file.fetch(&fetch(1)).await.is_ok());
    let error = file.fetch(&fetch(0)).await.unwrap_err().to_string();
    let expected = "t.parquet, row group 0, column 'deep': a type of more than 24 levels";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn what_is_no_parquet_file_or_encrypted_is_refused() {
    for bytes in [
        &b""[..],
        b"P",
        b"PAR1",
        b"ORC",
        b"PAR1 and no length",
        &[0; 1000],
    ] {
        let error = open(Bytes::from_static(bytes)).await.unwrap_err();
        assert!(matches!(error, Error::NotParquet { .. }), "{error}");
    }
    let whole = write(&all_types(10, 1), WriterProperties::default());
    let mut bytes = whole.to_vec();
    *bytes.last_mut().unwrap() = b'E';
    let error = open(bytes.into()).await.unwrap_err();
    assert_eq!(error.to_string(), "t.parquet: its footer is encrypted");
    let mut bytes = whole.to_vec();
    let at = bytes.len() - 6;
    bytes[at] = 0x7F;
    let error = open(bytes.into()).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}
