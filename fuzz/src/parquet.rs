//! Damaged Parquet files.

use std::panic;
use std::sync::{Arc, LazyLock, Once};

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::Int32Type;
use futures::executor::block_on;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use vectile_parquet::File;
use vectile_scan::{Container, Fetch, FileContainer};

/// Row groups with more rows are not decoded here: few bytes can encode many rows.
const MAX_ROWS: usize = 1 << 20;

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

/// The first byte chooses a file. Each five that follow are an offset and a replacement; a last one truncates the file.
pub fn file(data: &[u8]) {
    let Some((&pick, rest)) = data.split_first() else { return };
    let mut bytes = FILES[usize::from(pick) % FILES.len()].clone();
    let (damages, cut) = rest.as_chunks();
    for &[a, b, c, d, value] in damages {
        let offset = u32::from_le_bytes([a, b, c, d]) as usize;
        let offset = bytes.len() - 1 - offset % bytes.len();
        bytes[offset] = value;
    }
    if let Some(&cut) = cut.first() {
        bytes.truncate(bytes.len().saturating_sub(usize::from(cut)));
    }
    hide_contained_panics();
    read(bytes);
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

/// Reads everything in a file, as columns and in pages.
fn read(bytes: Vec<u8>) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let location = Path::from("t.parquet");
    block_on(store.put(&location, bytes.into())).expect("memory");
    let meta = block_on(store.head(&location)).expect("it was put there");
    let Ok(file) = block_on(File::open(store, &meta)) else { return };
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    for row_group in 0..file.num_row_groups() {
        let rows = file.rows(row_group);
        if rows > MAX_ROWS {
            continue;
        }
        let _ = block_on(file.stream_columns(row_group, &columns, None));
        for &column in &columns {
            let fetch = Fetch { row_group, data: vec![column], zones: vec![column] };
            let Ok(read) = block_on(file.fetch(&fetch)) else { continue };
            let Some(values) = &read.columns[column] else { panic!("no column {column}") };
            if let Ok(values) = values.decode(0..rows) {
                assert_eq!(values.len(), rows);
            }
        }
    }
}
