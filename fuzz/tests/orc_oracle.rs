//! Each column of the ORC test files, compared with `orc-rust`.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, concat};
use arrow::datatypes::Float64Type;
use futures::executor::block_on;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use orc_rust::arrow_reader::ArrowReaderBuilder;
use orc_rust::projection::ProjectionMask;

/// Writers in C++ count nanoseconds before 1970 back from the second after, which `orc-rust` does not read.
const MOMENTS: [&str; 3] = ["timestamp", "instant", "moment"];

fn oracle(path: &Path, name: &str) -> ArrayRef {
    let builder = ArrowReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let mask = ProjectionMask::named_roots(builder.file_metadata().root_data_type(), &[name]);
    let batches = builder.with_projection(mask).build();
    let arrays: Vec<ArrayRef> = batches.map(|batch| Arc::clone(batch.unwrap().column(0))).collect();
    concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap()
}

fn ours(file: &vectile_orc::File, column: usize) -> ArrayRef {
    let stripes = 0..file.metadata().stripes().len();
    let arrays = stripes.map(|stripe| block_on(file.decode(stripe, &[column])).unwrap().remove(0));
    let arrays: Vec<ArrayRef> = arrays.collect();
    concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap()
}

/// Arrow does not treat NaNs as equal.
fn bits(array: &ArrayRef) -> ArrayRef {
    match array.as_primitive_opt::<Float64Type>() {
        Some(floats) => Arc::new(floats.unary::<_, arrow::datatypes::UInt64Type>(f64::to_bits)),
        None => Arc::clone(array),
    }
}

#[test]
fn columns_are_those_of_orc_rust() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/orc/tests/data");
    let mut columns = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "orc") {
            continue;
        }
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let location = object_store::path::Path::from("t.orc");
        block_on(store.put(&location, fs::read(&path).unwrap().into())).unwrap();
        let meta = block_on(store.head(&location)).unwrap();
        let file = block_on(vectile_orc::File::open(store, &meta)).unwrap();
        for (index, field) in file.metadata().schema().fields().iter().enumerate() {
            if MOMENTS.iter().any(|name| field.name().starts_with(name)) {
                continue;
            }
            let (actual, expected) = (ours(&file, index), oracle(&path, field.name()));
            let expected = cast(&expected, actual.data_type()).unwrap_or(expected);
            assert_eq!(actual.len(), expected.len(), "{}, {field}", path.display());
            assert!(bits(&actual) == bits(&expected), "{}, {field}", path.display());
            columns += 1;
        }
    }
    assert!(columns > 300, "{columns} columns");
}
