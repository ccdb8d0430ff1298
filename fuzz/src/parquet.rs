//! Damaged Parquet files.

use std::panic;
use std::sync::{Arc, LazyLock, Once};

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::Int32Type;
use futures::executor::block_on;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use vectile_parquet::File;

use crate::containers::{damaged, object, read_all};

/// Files to damage.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let builder = || WriterProperties::builder().set_data_page_row_count_limit(20).set_write_batch_size(10);
    let v2 = || builder().set_writer_version(WriterVersion::PARQUET_2_0);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let all = [
        builder().set_bloom_filter_enabled(true),
        builder().set_compression(Compression::SNAPPY),
        v2().set_compression(zstd),
        v2().set_dictionary_enabled(false),
    ];
    all.into_iter().map(|builder| write(builder.build())).collect()
});

fn write(properties: WriterProperties) -> Vec<u8> {
    let numbers = || (0..70).map(|i| (i % 6 > 0).then_some(i * i % 23));
    let lists = (0..70).map(|i| (i % 5 > 0).then(|| vec![Some(i), None]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("int", Arc::new(Int32Array::from_iter(numbers()))),
        ("big", Arc::new(Int64Array::from_iter_values(0..70))),
        ("float", Arc::new(Float64Array::from_iter(numbers().map(|number| number.map(f64::from))))),
        ("flag", Arc::new(BooleanArray::from_iter(numbers().map(|number| number.map(|number| number > 9))))),
        ("decimal", Arc::new(Decimal128Array::from_iter(numbers().map(|number| number.map(i128::from))))),
        ("text", Arc::new(StringArray::from_iter(numbers().map(|number| number.map(|number| format!("text {number}")))))),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("types of Parquet");
    writer.write(&batch).expect("memory");
    writer.into_inner().expect("memory")
}

/// The first byte chooses a file. Others are its damage.
pub fn file(data: &[u8]) {
    let Some((&pick, damages)) = data.split_first() else { return };
    let (store, meta) = object(damaged(&FILES[usize::from(pick) % FILES.len()], damages));
    hide_contained_panics();
    let Ok(file) = block_on(File::open(store, &meta)) else { return };
    read_all(&file);
}

/// Panics of the `parquet` crate are contained. A fuzzer ends at any panic that its hook sees.
fn hide_contained_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let end = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            if !file.contains("/parquet-") && !file.contains("/arrow-") {
                end(info);
            }
        }));
    });
}
