//! Scans of local files.

mod common;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, Scalar};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::cmp::gt_eq;
use common::*;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use vectile_encodings::Predicate;
use vectile_file::*;
use vectile_scan::{Node, Scan};

/// Writes a file into a folder and opens it. Afterwards there is no runtime.
fn opened(bytes: Vec<u8>, folder: &Path) -> Arc<File> {
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder).unwrap());
    let file = Runtime::new().unwrap().block_on(async {
        store.put(&location(), bytes.into()).await.unwrap();
        let object = store.head(&location()).await.unwrap();
        File::open(store, &object).await.unwrap()
    });
    Arc::new(file)
}

#[test]
fn a_file_is_scanned_without_a_runtime() {
    let (folder, table) = (tempfile::tempdir().unwrap(), small(5000));
    let tables = std::slice::from_ref(&table);
    let written = write(table.schema(), tables, rows_per_group(1000));
    let (mut bytes, _) = Runtime::new().unwrap().block_on(written).unwrap();
    let file = opened(bytes.clone(), folder.path());

    let least: ArrayRef = Arc::new(Int64Array::from(vec![6000]));
    let kept = gt_eq(table.column(0), &Scalar::new(&least)).unwrap();
    let expected = filter_record_batch(&table, &kept).unwrap();
    assert!(expected.num_rows() > 3000);
    let filter = Predicate::Range {
        low: Bound::Included(least),
        high: Bound::Unbounded,
        negated: false,
    };
    let scan = Scan::new(Arc::clone(&file) as _).with_filter(Node::leaf(0, filter));
    let found = scan.unwrap().blocking().collect::<Result<Vec<_>, _>>();
    assert_eq!(joined(&table.schema(), &found.unwrap()), expected);

    let damaged = file.metadata().row_group(2).columns[1].data.clone();
    bytes[damaged.start as usize + 5] ^= 0x40;
    let folder = tempfile::tempdir().unwrap();
    let found: Vec<vectile_scan::Result<RecordBatch>> =
        Scan::new(opened(bytes, folder.path())).blocking().collect();
    let Some(Err(vectile_scan::Error::External(error))) = found.last() else {
        panic!("{found:?}");
    };
    match error.downcast_ref() {
        Some(Error::Corrupt {
            row_group, column, ..
        }) => {
            assert_eq!(*row_group, Some(2));
            assert_eq!(column.as_deref(), Some("price"));
        }
        _ => panic!("{error}"),
    }
}
