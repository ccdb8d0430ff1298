//! Tables to write and ways to read them back.

#![allow(dead_code, reason = "each test uses some")]

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile_file::*;

pub fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub fn location() -> Path {
    Path::from("dir/table.vectile")
}

/// Options for row groups of `row_group_rows` rows.
pub fn rows_per_group(row_group_rows: usize) -> WriterOptions {
    WriterOptions::default().with_row_group_rows(row_group_rows)
}

/// Writes the batches, which are of `schema`, and returns the bytes of the file.
pub async fn write(
    schema: SchemaRef,
    batches: &[RecordBatch],
    options: WriterOptions,
) -> Result<(Vec<u8>, WriteSummary)> {
    let store = memory();
    let mut writer = Writer::try_new(Arc::clone(&store), location(), schema, options)?;
    for batch in batches {
        writer.write(batch).await?;
    }
    let summary = writer.finish().await?;
    let bytes = store.get(&location()).await?.bytes().await?;
    Ok((bytes.to_vec(), summary))
}

pub async fn store_of(bytes: Vec<u8>) -> Arc<dyn ObjectStore> {
    let store = memory();
    store.put(&location(), bytes.into()).await.unwrap();
    store
}

pub async fn metadata_of(store: &Arc<dyn ObjectStore>) -> Result<Metadata> {
    let object = store.head(&location()).await?;
    read_metadata(store, &object).await
}

/// Every row group of the file as a batch.
pub async fn read(bytes: Vec<u8>) -> Result<(Metadata, Vec<RecordBatch>)> {
    let store = store_of(bytes).await;
    let metadata = metadata_of(&store).await?;
    let mut batches = Vec::new();
    for row_group in 0..metadata.num_row_groups() {
        batches.push(read_group(&store, &metadata, row_group).await?);
    }
    Ok((metadata, batches))
}

async fn read_group(
    store: &Arc<dyn ObjectStore>,
    metadata: &Metadata,
    row_group: usize,
) -> Result<RecordBatch> {
    let all: Vec<usize> = (0..metadata.schema().fields().len()).collect();
    let fetch = Fetch {
        row_group,
        data: all.clone(),
        zones: all,
    };
    let options = ReadOptions::default();
    let data = read_row_group(store, &location(), metadata, &fetch, &options).await?;
    let rows = metadata.row_group(row_group).rows;
    let columns = data.columns.iter().enumerate().map(|(index, column)| {
        let column = column.as_ref().expect("every column was asked for");
        column
            .decode(0..rows)
            .map_err(|error| metadata.error(row_group, index, error))
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let columns = columns.collect::<Result<_>>()?;
    let schema = Arc::clone(metadata.schema());
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// One batch of all batches.
pub fn joined(schema: &SchemaRef, batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(schema, batches).unwrap()
}

/// Dictionaries may come back with other entries for the same values.
pub fn plain(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Dictionary(_, values) => cast(array, values).unwrap(),
        _ => Arc::clone(array),
    }
}

/// A small table: integers, doubles, strings, with nulls.
pub fn small(rows: usize) -> RecordBatch {
    let every = |n: usize| move |i: usize| (!i.is_multiple_of(n)).then_some(i);
    let ids = Int64Array::from_iter_values((0..rows as i64).map(|i| 1000 + i * 3));
    let prices: Float64Array = (0..rows)
        .map(every(5))
        .map(|i| Some(i? as f64 / 4.0))
        .collect();
    let names: StringArray = (0..rows)
        .map(every(7))
        .map(|i| Some(format!("name {}", i? % 9)))
        .collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(ids) as ArrayRef, false),
        ("price", Arc::new(prices), true),
        ("name", Arc::new(names), true),
    ])
    .unwrap()
}

/// A block of random numbers and text, several times.
pub fn repeated(rows: usize, times: usize) -> RecordBatch {
    let random = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let values = || (0..rows * times).map(|i| random(i % rows + 1));
    let text = values().map(|value| format!("{value:x}"));
    RecordBatch::try_from_iter([
        (
            "i",
            Arc::new(UInt64Array::from_iter_values(values())) as ArrayRef,
        ),
        ("s", Arc::new(StringArray::from_iter_values(text))),
    ])
    .unwrap()
}

/// A column of every type, of `rows` rows, with nulls if a type has them.
pub fn every_type(rows: usize) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let mut add = |array: ArrayRef| columns.push((array.data_type().to_string(), array));
    flat_types(rows, &mut add);
    nested_types(rows, &mut add);
    let fields: Vec<_> = columns
        .iter()
        .enumerate()
        .map(|(i, (name, array))| {
            Field::new(format!("{i} {name}"), array.data_type().clone(), true)
        })
        .collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn valid(i: usize) -> bool {
    i % 3 != 1
}

/// Values by row, null in every third.
fn numbers<T: ArrowPrimitiveType>(
    rows: usize,
    of: impl Fn(usize) -> T::Native,
) -> PrimitiveArray<T> {
    (0..rows).map(|i| valid(i).then(|| of(i))).collect()
}

fn flat_types(rows: usize, add: &mut impl FnMut(ArrayRef)) {
    let texts: Vec<Option<String>> = (0..rows)
        .map(|i| valid(i).then(|| "text ".repeat(i % 6) + &i.to_string()))
        .collect();
    let bytes: Vec<Option<&[u8]>> = texts
        .iter()
        .map(|t| t.as_deref().map(str::as_bytes))
        .collect();
    add(Arc::new(NullArray::new(rows)));
    add(Arc::new(BooleanArray::from_iter(
        (0..rows).map(|i| valid(i).then_some(i % 2 == 0)),
    )));
    add(Arc::new(numbers::<Int8Type>(rows, |i| i as i8)));
    add(Arc::new(numbers::<Int16Type>(rows, |i| i as i16 - 50)));
    add(Arc::new(numbers::<Int32Type>(rows, |i| i as i32 * -7)));
    add(Arc::new(numbers::<Int64Type>(rows, |i| {
        i64::MIN + i as i64
    })));
    add(Arc::new(numbers::<UInt8Type>(rows, |i| i as u8)));
    add(Arc::new(numbers::<UInt16Type>(rows, |i| i as u16)));
    add(Arc::new(numbers::<UInt32Type>(rows, |i| {
        u32::MAX - i as u32
    })));
    add(Arc::new(numbers::<UInt64Type>(rows, |i| {
        u64::MAX - i as u64
    })));
    let halves: Vec<Option<f32>> = (0..rows).map(|i| valid(i).then_some(i as f32)).collect();
    let halves: ArrayRef = Arc::new(Float32Array::from(halves));
    add(cast(&halves, &DataType::Float16).unwrap());
    add(Arc::new(numbers::<Float32Type>(rows, |i| i as f32 / 3.0)));
    add(Arc::new(numbers::<Float64Type>(rows, |i| i as f64 / 100.0)));
    add(Arc::new(
        numbers::<Decimal32Type>(rows, |i| i as i32)
            .with_precision_and_scale(9, 2)
            .unwrap(),
    ));
    add(Arc::new(
        numbers::<Decimal64Type>(rows, |i| i as i64)
            .with_precision_and_scale(18, -2)
            .unwrap(),
    ));
    add(Arc::new(
        numbers::<Decimal128Type>(rows, |i| i as i128 - 7)
            .with_precision_and_scale(38, 10)
            .unwrap(),
    ));
    let wide = numbers::<Decimal256Type>(rows, |i| i256::from_i128(i as i128));
    add(Arc::new(wide.with_precision_and_scale(76, 0).unwrap()));
    add(Arc::new(numbers::<Date32Type>(rows, |i| i as i32 + 19_000)));
    add(Arc::new(numbers::<Date64Type>(rows, |i| {
        i as i64 * 86_400_000
    })));
    add(Arc::new(numbers::<Time32SecondType>(rows, |i| i as i32)));
    add(Arc::new(numbers::<Time64NanosecondType>(rows, |i| {
        i as i64
    })));
    add(Arc::new(numbers::<TimestampMillisecondType>(rows, |i| {
        i as i64
    })));
    let zoned = numbers::<TimestampNanosecondType>(rows, |i| i as i64 * 1_000_000_007);
    add(Arc::new(zoned.with_timezone("Europe/Lisbon")));
    add(Arc::new(numbers::<DurationMicrosecondType>(rows, |i| {
        i as i64
    })));
    add(Arc::new(numbers::<IntervalYearMonthType>(rows, |i| {
        i as i32
    })));
    add(Arc::new(numbers::<IntervalDayTimeType>(rows, |i| {
        IntervalDayTime::new(i as i32, -1)
    })));
    add(Arc::new(numbers::<IntervalMonthDayNanoType>(rows, |i| {
        IntervalMonthDayNano::new(i as i32, 2, i as i64)
    })));
    add(Arc::new(StringArray::from(texts.clone())));
    add(Arc::new(LargeStringArray::from(texts.clone())));
    add(Arc::new(StringViewArray::from_iter(texts.clone())));
    add(Arc::new(BinaryArray::from_iter(bytes.clone())));
    add(Arc::new(LargeBinaryArray::from_iter(bytes.clone())));
    add(Arc::new(BinaryViewArray::from_iter(bytes)));
    let fixed = (0..rows).map(|i| valid(i).then_some([i as u8; 5]));
    add(Arc::new(
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 5).unwrap(),
    ));
}

fn nested_types(rows: usize, add: &mut impl FnMut(ArrayRef)) {
    let nulls = || Some(NullBuffer::from_iter((0..rows).map(valid)));
    let ints = |rows: usize| Arc::new(numbers::<Int32Type>(rows, |i| i as i32)) as ArrayRef;
    let item = || Arc::new(Field::new("item", DataType::Int32, true));
    let lengths = || (0..rows).map(|i| if valid(i) { i % 4 } else { 0 });
    let total: usize = lengths().sum();
    let offsets = OffsetBuffer::from_lengths(lengths());
    add(Arc::new(ListArray::new(
        item(),
        offsets,
        ints(total),
        nulls(),
    )));
    let offsets = OffsetBuffer::from_lengths(lengths());
    add(Arc::new(LargeListArray::new(
        item(),
        offsets,
        ints(total),
        nulls(),
    )));
    add(Arc::new(FixedSizeListArray::new(
        item(),
        3,
        ints(rows * 3),
        nulls(),
    )));

    let fields: Fields = vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
    ]
    .into();
    let words = || {
        Arc::new(StringArray::from_iter_values(
            (0..rows).map(|i| i.to_string()),
        ))
    };
    add(Arc::new(StructArray::new(
        fields,
        vec![ints(rows), words()],
        nulls(),
    )));

    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in 0..rows {
        for key in 0..if valid(i) { i % 3 } else { 0 } {
            map.keys().append_value(key.to_string());
            map.values().append_option(valid(key).then_some(i as i32));
        }
        map.append(valid(i)).unwrap();
    }
    add(Arc::new(map.finish()));

    let keys: Int8Array = (0..rows)
        .map(|i| valid(i).then_some((i % 4) as i8))
        .collect();
    let words = StringArray::from(vec![Some("spring"), Some("summer"), None, Some("winter")]);
    add(Arc::new(DictionaryArray::new(keys, Arc::new(words))));

    let ends =
        Int32Array::from_iter_values((1..=rows as i32).filter(|i| i % 2 == 0 || *i == rows as i32));
    let values = ints(ends.len());
    add(Arc::new(RunArray::try_new(&ends, values.as_ref()).unwrap()));

    let ids: ScalarBuffer<i8> = (0..rows).map(|i| (i % 2) as i8).collect();
    let children = UnionFields::try_new(
        [0, 1],
        [
            Field::new("int", DataType::Int32, true),
            Field::new("bool", DataType::Boolean, true),
        ],
    );
    let bools = Arc::new(BooleanArray::from(vec![true; rows]));
    add(Arc::new(
        UnionArray::try_new(children.unwrap(), ids, None, vec![ints(rows), bools]).unwrap(),
    ));
}
