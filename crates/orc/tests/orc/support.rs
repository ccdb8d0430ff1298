//! Files to read, and their expected content.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Schema};
use arrow::ipc::reader::FileReader;
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use vectile_orc::{File, Result};
use vectile_scan::{Container, Fetch};

/// The folder of the files that are kept.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A store with one object of these bytes.
pub async fn object(bytes: Vec<u8>) -> (Arc<dyn ObjectStore>, ObjectMeta) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let location = object_store::path::Path::from("t.orc");
    store.put(&location, bytes.into()).await.unwrap();
    let meta = store.head(&location).await.unwrap();
    (store, meta)
}

/// The ORC file of these bytes.
pub async fn open(bytes: Vec<u8>) -> Result<File> {
    let (store, meta) = object(bytes).await;
    File::open(store, &meta).await
}

/// All rows of a file.
pub async fn read(file: &File) -> Result<RecordBatch> {
    let metadata = file.metadata();
    let schema = metadata.schema();
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let mut batches = vec![];
    for stripe in 0..metadata.stripes().len() {
        let columns = file.decode(stripe, &columns).await?;
        batches.push(RecordBatch::try_new(Arc::clone(schema), columns).unwrap());
    }
    Ok(concat_batches(schema, &batches).unwrap())
}

/// All rows of a file, from the columns that a scan gets.
pub async fn fetched(file: &File) -> vectile_scan::Result<RecordBatch> {
    let metadata = file.metadata();
    let schema = metadata.schema();
    let mut batches = vec![];
    for (row_group, stripe) in metadata.stripes().iter().enumerate() {
        let data = (0..schema.fields().len()).collect();
        let fetch = Fetch {
            row_group,
            data,
            ..Fetch::default()
        };
        let columns = file.fetch(&fetch).await?.columns.into_iter();
        let columns = columns.map(|column| column.unwrap().decode(0..stripe.rows).unwrap());
        batches.push(RecordBatch::try_new(Arc::clone(schema), columns.collect()).unwrap());
    }
    Ok(concat_batches(schema, &batches).unwrap())
}

/// The rows of an Arrow file, as one batch.
pub fn arrow_file(path: &Path) -> RecordBatch {
    let reader = FileReader::try_new(fs::File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

/// The array with the names of fields that `data_type` has.
fn renamed(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    match data_type {
        // they have no casts, and the same names
        DataType::Union(_, _) => Arc::clone(array),
        _ => cast(array, data_type).unwrap(),
    }
}

/// Panics if a column of `found` differs from that of `expected`.
pub fn assert_same(actual: &RecordBatch, expected: &RecordBatch, name: &str) {
    assert_eq!(actual.num_rows(), expected.num_rows(), "{name}");
    let names = |schema: &Schema| -> Vec<String> {
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    };
    assert_eq!(names(&actual.schema()), names(&expected.schema()), "{name}");
    for (index, field) in actual.schema().fields().iter().enumerate() {
        let (actual, expected) = (actual.column(index), expected.column(index));
        let expected = renamed(expected, field.data_type());
        assert_eq!(actual.data_type(), expected.data_type(), "{name}, {field}");
        for row in 0..actual.len() {
            let same = actual.slice(row, 1).to_data() == expected.slice(row, 1).to_data()
                || is_nan(actual, &expected, row);
            assert!(
                same,
                "{name}, {field}, row {row}: {:?}, not {:?}",
                actual.slice(row, 1),
                expected.slice(row, 1)
            );
        }
    }
}

/// Arrow does not treat NaNs as equal.
fn is_nan(actual: &dyn Array, expected: &dyn Array, row: usize) -> bool {
    use arrow::array::AsArray;
    use arrow::datatypes::Float64Type;
    let bits = |array: &dyn Array| {
        Some(
            array
                .as_primitive_opt::<Float64Type>()?
                .value(row)
                .to_bits(),
        )
    };
    actual.is_valid(row)
        && expected.is_valid(row)
        && bits(actual).is_some()
        && bits(actual) == bits(expected)
}

/// The files of a folder, each with the path of its rows.
pub fn files(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|of| of == "orc"))
        .collect();
    files.sort();
    let with_rows = files.into_iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let rows = format!("{}.arrow", name.split('.').next().unwrap());
        let rows = folder.join(rows);
        (path, rows)
    });
    with_rows.collect()
}
