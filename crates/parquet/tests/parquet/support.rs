//! Files to read, and their expected content.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    DurationMillisecondArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, LargeStringArray, ListArray, MapArray, NullArray,
    RecordBatch, StringArray, StringViewArray, StructArray, Time32MillisecondArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Fields, Schema, i256};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use vectile_parquet::{File, Result};
use vectile_scan::{Container, Fetch};

/// A store with one object of these bytes.
pub async fn object(bytes: Bytes) -> (Arc<dyn ObjectStore>, ObjectMeta) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let location = Path::from("t.parquet");
    store.put(&location, bytes.into()).await.unwrap();
    let meta = store.head(&location).await.unwrap();
    (store, meta)
}

/// The Parquet file of these bytes.
pub async fn open(bytes: Bytes) -> Result<File> {
    let (store, meta) = object(bytes).await;
    File::open(store, &meta).await
}

/// The bytes of a file of these rows.
pub fn write(batch: &RecordBatch, properties: WriterProperties) -> Bytes {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap().into()
}

/// All rows of a file, from the columns that a scan gets, by row group.
pub async fn fetched(file: &File) -> vectile_scan::Result<Vec<RecordBatch>> {
    let schema = file.schema();
    let mut batches = vec![];
    for row_group in 0..file.num_row_groups() {
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let fetch = Fetch {
            row_group,
            data: all,
            ..Fetch::default()
        };
        let rows = file.rows(row_group);
        let read = file.fetch(&fetch).await?;
        let mut columns = vec![];
        for (index, column) in read.columns.into_iter().enumerate() {
            let values = column.unwrap().decode(0..rows);
            columns.push(values.map_err(|error| file.error(row_group, index, error))?);
        }
        batches.push(RecordBatch::try_new(Arc::clone(schema), columns).unwrap());
    }
    Ok(batches)
}

/// The rows of a file as the `parquet` crate reads them, in the types of `schema`.
pub fn expected(bytes: &Bytes, schema: &Arc<Schema>) -> RecordBatch {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap();
    let own = Arc::clone(builder.schema());
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(|b| b.unwrap()).collect();
    let rows = concat_batches(&own, &batches).unwrap();
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()).unwrap());
    RecordBatch::try_new(Arc::clone(schema), columns.collect()).unwrap()
}

/// Panics if a column differs.
pub fn assert_same(actual: &[RecordBatch], expected: &RecordBatch, name: &str) {
    let schema = expected.schema();
    let actual = concat_batches(&schema, actual).unwrap();
    assert_eq!(actual.num_rows(), expected.num_rows(), "{name}");
    for (index, field) in schema.fields().iter().enumerate() {
        let (actual, expected) = (actual.column(index), expected.column(index));
        assert_eq!(actual.data_type(), expected.data_type(), "{name}, {field}");
        if actual.to_data() == expected.to_data() {
            continue;
        }
        for row in 0..actual.len() {
            let (actual, expected) = (actual.slice(row, 1), expected.slice(row, 1));
            let same = actual.to_data() == expected.to_data();
            assert!(
                same,
                "{name}, {field}, row {row}: {actual:?}, not {expected:?}"
            );
        }
    }
}

/// Numbers that look random, the same in each run.
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mixed = self.0 ^ self.0 >> 33;
        mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 11
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A column of each type that Arrow writes to Parquet; every fifth value or so is null, but in some columns.
pub fn all_types(rows: usize, seed: u64) -> RecordBatch {
    let mut draws = Draws(seed);
    macro_rules! column {
        ($array:ty, $value:expr) => {{
            let values = (0..rows).map(|row| {
                let draw = draws.next();
                let value = $value;
                (draw % 5 != 0).then(|| value(draw, row))
            });
            Arc::new(<$array>::from_iter(values)) as ArrayRef
        }};
        ($array:ty, $value:expr, timezone) => {{
            let values = (0..rows).map(|row| Some($value(draws.next(), row)));
            Arc::new(<$array>::from_iter(values).with_timezone("Europe/Berlin")) as ArrayRef
        }};
    }
    let text = |draw: u64, _| format!("value {}", draw % 40);
    let long = |draw: u64, row: usize| format!("{row} and a long text {draw}");
    let decimal = |array: ArrayRef, precision, scale| -> ArrayRef {
        let array = array.as_any().downcast_ref::<Decimal128Array>().unwrap();
        Arc::new(
            array
                .clone()
                .with_precision_and_scale(precision, scale)
                .unwrap(),
        )
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", column!(BooleanArray, |draw: u64, _| draw & 4 == 0)),
        ("i8", column!(Int8Array, |draw: u64, _| draw as i8)),
        ("i16", column!(Int16Array, |draw: u64, _| draw as i16)),
        ("i32", column!(Int32Array, |draw: u64, _| draw as i32)),
        (
            "i64",
            column!(Int64Array, |draw: u64, _| draw as i64 - (1 << 50)),
        ),
        ("ascending", column!(Int64Array, |_, row| row as i64 * 3)),
        ("u8", column!(UInt8Array, |draw: u64, _| draw as u8)),
        ("u16", column!(UInt16Array, |draw: u64, _| draw as u16)),
        (
            "u32",
            column!(UInt32Array, |draw: u64, _| (draw as u32) | 1 << 31),
        ),
        ("u64", column!(UInt64Array, |draw: u64, _| draw | 1 << 63)),
        (
            "f32",
            column!(Float32Array, |draw: u64, _| draw as f32 / 7.0),
        ),
        (
            "f64",
            column!(Float64Array, |draw: u64, _| draw as f64 / 7.0 - 1e9),
        ),
        (
            "date",
            column!(Date32Array, |draw: u64, _| draw as i32 % 40_000),
        ),
        (
            "time32",
            column!(Time32MillisecondArray, |draw: u64, _| (draw % 86_400_000)
                as i32),
        ),
        (
            "time64",
            column!(
                Time64MicrosecondArray,
                |draw: u64, _| (draw % 86_400_000_000) as i64
            ),
        ),
        (
            "seconds",
            column!(TimestampSecondArray, |draw: u64, _| (draw % 2_000_000_000)
                as i64),
        ),
        (
            "millis",
            column!(TimestampMillisecondArray, |draw: u64, _| draw as i64
                % 10_000_000),
        ),
        (
            "micros",
            column!(TimestampMicrosecondArray, |draw: u64, _| -(draw as i64)),
        ),
        (
            "nanos",
            column!(TimestampNanosecondArray, |draw: u64, _| draw as i64),
        ),
        (
            "micros_tz",
            column!(
                TimestampMicrosecondArray,
                |draw: u64, _| draw as i64,
                timezone
            ),
        ),
        (
            "seconds_tz",
            column!(
                TimestampSecondArray,
                |draw: u64, _| draw as i64 % 1000,
                timezone
            ),
        ),
        (
            "duration",
            column!(DurationMillisecondArray, |draw: u64, _| draw as i64),
        ),
        ("text", column!(StringArray, text)),
        ("long", column!(StringArray, long)),
        ("large", column!(LargeStringArray, text)),
        ("view", column!(StringViewArray, text)),
        (
            "binary",
            column!(BinaryArray, |draw: u64, _| vec![0xFF, (draw % 50) as u8]),
        ),
        ("nulls", Arc::new(NullArray::new(rows))),
    ];
    let numbers = column!(Decimal128Array, |draw: u64, _| i128::from(draw % 100_000)
        - 50_000);
    columns.push(("decimal32", decimal(Arc::clone(&numbers), 7, 2)));
    columns.push(("decimal64", decimal(Arc::clone(&numbers), 15, 4)));
    let wide = column!(Decimal128Array, |draw: u64, _| (i128::from(draw)
        - (1 << 50))
        << 40);
    columns.push(("decimal128", decimal(wide, 38, 10)));
    let widest = column!(Decimal256Array, |draw: u64, _| i256::from_i128(
        i128::from(draw) - 5
    ));
    let widest = widest
        .as_any()
        .downcast_ref::<Decimal256Array>()
        .unwrap()
        .clone();
    columns.push((
        "decimal256",
        Arc::new(widest.with_precision_and_scale(50, 3).unwrap()),
    ));
    let fixed = (0..rows).map(|_| Some((draws.next() % 300).to_le_bytes()));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 8).unwrap();
    columns.push(("fixed", Arc::new(fixed)));
    columns.push(("all_null", Arc::new(StringArray::new_null(rows))));
    let key = |row: usize| ["x", "y", "z"][row % 3];
    let required = StringArray::from_iter_values((0..rows).map(key));
    columns.push((
        "dictionary",
        cast(
            &required,
            &DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        )
        .unwrap(),
    ));
    columns.push(("required", Arc::new(required)));
    columns.extend(nested(rows, &mut draws));
    let fields = columns.iter().map(|(name, array)| {
        let nullable = array.logical_null_count() > 0;
        Field::new(*name, array.data_type().clone(), nullable)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Fields>()));
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn nested(rows: usize, draws: &mut Draws) -> Vec<(&'static str, ArrayRef)> {
    let lengths: Vec<usize> = (0..rows).map(|_| draws.below(4) as usize).collect();
    let items: usize = lengths.iter().sum();
    let valid: Vec<bool> = (0..rows).map(|_| draws.below(6) > 0).collect();
    let mut drawn = |len: usize| -> Vec<Option<i32>> {
        (0..len)
            .map(|_| Some(draws.below(50) as i32).filter(|value| *value > 5))
            .collect()
    };
    let numbers: ArrayRef = Arc::new(Int32Array::from(drawn(items)));
    let texts = drawn(items).into_iter();
    let texts = texts.map(|number| number.map(|number| format!("item {number}")));
    let texts: ArrayRef = Arc::new(StringArray::from_iter(texts));
    let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
    let offsets = || OffsetBuffer::from_lengths(lengths.iter().copied());
    let nulls = || Some(NullBuffer::from(valid.clone()));
    let list = ListArray::new(item(&numbers), offsets(), Arc::clone(&numbers), nulls());
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int32, true),
        Field::new("t", DataType::Utf8, true),
    ]);
    let of_structs: ArrayRef = Arc::new(StructArray::new(
        fields.clone(),
        vec![Arc::clone(&numbers), Arc::clone(&texts)],
        None,
    ));
    let list_of_structs = ListArray::new(
        item(&of_structs),
        offsets(),
        Arc::clone(&of_structs),
        nulls(),
    );
    let plain: ArrayRef = Arc::new(Int32Array::from(drawn(rows)));
    let words = drawn(rows).into_iter();
    let words = words.map(|number| number.map(|number| format!("w{number}")));
    let words: ArrayRef = Arc::new(StringArray::from_iter(words));
    let structs = StructArray::new(fields, vec![plain, words], nulls());
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..items).map(|item| format!("k{item}")),
    ));
    let entries = StructArray::new(
        Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int32, true),
        ]),
        vec![keys, numbers],
        None,
    );
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let map = MapArray::new(entry, offsets(), entries, nulls(), false);
    vec![
        ("list", Arc::new(list)),
        ("structs", Arc::new(structs)),
        ("list_of_structs", Arc::new(list_of_structs)),
        ("map", Arc::new(map)),
    ]
}
