//! The table is always the same, in whatever ranges it is generated.

use std::collections::HashSet;
use std::ops::Range;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::DataType;
use md5::{Digest, Md5};
use vectile_hits::{Scale, Table};

fn table() -> Table {
    Table::new(Scale::try_from(0.02).unwrap())
}

fn rows(table: Table, range: Range<u64>) -> RecordBatch {
    let batches: Vec<RecordBatch> = table.generate(range).map(Result::unwrap).collect();
    concat_batches(&Table::schema(), &batches).unwrap()
}

/// All values as text, a line each. Queries and their answers belong to exactly these rows.
#[test]
fn the_rows_are_known() {
    let all = rows(table(), 0..u64::MAX);
    assert_eq!(all.num_rows(), 20_000);
    let mut digest = Md5::new();
    for column in all.columns() {
        let text = cast(column, &DataType::Utf8).unwrap();
        for value in text.as_string::<i32>() {
            digest.update(value.unwrap_or("null"));
            digest.update("\n");
        }
    }
    let digest: String = digest
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(digest, "c98c3f33097a237a990181ac3405560d");
}

#[test]
fn ranges_join_seamlessly() {
    let whole = rows(table(), 3_000..15_000);
    for parts in [2, 7, 100] {
        let cut = |part: u64| 3_000 + 12_000 * part / parts;
        let parts: Vec<RecordBatch> = (0..parts)
            .map(|part| rows(table(), cut(part)..cut(part + 1)))
            .collect();
        assert_eq!(concat_batches(&Table::schema(), &parts).unwrap(), whole);
    }
    let last = rows(table(), 19_999..u64::MAX);
    assert_eq!(last.num_rows(), 1);
    assert_eq!(table().generate(20_000..20_001).count(), 0);
}

#[test]
fn columns_are_many_and_distinct() {
    let schema = Table::schema();
    let names: HashSet<&String> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names.len(), schema.fields().len());
    assert!((100..110).contains(&names.len()), "{}", names.len());
    let all = rows(table(), 0..u64::MAX);
    for (field, column) in schema.fields().iter().zip(all.columns()) {
        assert_eq!(
            field.is_nullable(),
            column.null_count() > 0,
            "{}",
            field.name()
        );
        let text = cast(column, &DataType::Utf8).unwrap();
        let values: HashSet<Option<&str>> = text.as_string::<i32>().iter().collect();
        assert!(values.len() > 1, "{} is constant", field.name());
    }
}
