//! Another implementation of Arrow opens our files, and another language reads our footer by
//! nothing but `docs/file-format.md`.

mod common;

use std::path::Path;
use std::process::Command;

use common::*;
use serde_json::{Value, json};

/// The output of `check_with_pyarrow.py`, or nothing without pyarrow.
fn pyarrow(table: &Path) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check_with_pyarrow.py");
    let Ok(output) = Command::new("python3").arg(script).arg(table).output() else {
        eprintln!("skipped: python3 not installed");
        return None;
    };
    if output.status.code() == Some(3) {
        eprintln!("skipped: pyarrow not installed");
        return None;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test]
async fn pyarrow_lists_columns_and_row_groups() {
    let table = every_type(2500);
    let (bytes, _) = write(
        table.schema(),
        std::slice::from_ref(&table),
        rows_per_group(1000),
    )
    .await
    .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let (metadata, _) = read(bytes).await.unwrap();
    let Some(seen) = pyarrow(file.path()) else {
        return;
    };

    assert_eq!(seen["container"], json!([["chunks", "large_binary"]]));
    let schema = table.schema();
    let columns = schema.fields().iter();
    let columns = columns.map(|field| format!("{}: {}", field.name(), field.data_type()));
    assert_eq!(seen["columns"], columns.collect::<Vec<_>>().join(", "));
    for (column, field) in schema.fields().iter().enumerate() {
        assert_eq!(seen["schema"]["fields"][column]["name"], *field.name());
    }
    let row_groups = seen["row_groups"].as_array().unwrap();
    assert_eq!(row_groups.len(), metadata.num_row_groups());
    for (seen, ours) in row_groups.iter().zip(metadata.row_groups()) {
        assert_eq!(seen["rows"], ours.rows);
        for (index, chunk) in ours.columns.iter().enumerate() {
            assert_eq!(seen["encodings"][index], *chunk.encoding);
        }
    }
}

#[tokio::test]
async fn pyarrow_opens_a_table_without_rows() {
    let table = small(0);
    let (bytes, _) = write(table.schema(), &[], rows_per_group(1000))
        .await
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    if let Some(seen) = pyarrow(file.path()) {
        assert_eq!(seen["schema"]["fields"].as_array().unwrap().len(), 3);
        assert_eq!(seen["row_groups"].as_array().unwrap().len(), 0);
    }
}
