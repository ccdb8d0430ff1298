//! Bloom filters of chunks: as they were written, and damaged.

mod common;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use common::*;
use vectile_file::*;
use vectile_scan::Container;

/// Unique keys, texts of which each row group has one more, and a column without values.
fn table() -> RecordBatch {
    let rows = 0..5000i64;
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "key",
            Arc::new(Int64Array::from_iter_values(
                rows.clone().map(|i| i * 7919 % 100_003),
            )),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter(
                rows.clone()
                    .map(|i| (i % 3 > 0).then(|| format!("{}", i / 2000))),
            )),
        ),
        ("none", Arc::new(Int64Array::new_null(5000))),
        ("plain", Arc::new(Int64Array::from_iter_values(rows))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)))
        .unwrap()
}

fn with_blooms() -> WriterOptions {
    rows_per_group(2000)
        .with_bloom_filters(["key", "none", "text"])
        .with_bloom_filter_fpp(0.001)
}

async fn file(bytes: Vec<u8>, options: ReadOptions) -> File {
    let store = store_of(bytes).await;
    let metadata = Arc::new(metadata_of(&store).await.unwrap());
    File::new(store, location(), metadata, options)
}

#[tokio::test]
async fn filters_have_the_values_of_their_row_group() {
    let table = table();
    let (bytes, summary) = write(table.schema(), std::slice::from_ref(&table), with_blooms())
        .await
        .unwrap();
    let file = file(bytes, ReadOptions::default()).await;
    assert_eq!(file.num_row_groups(), 3);
    let mut filter_bytes = 0;
    for row_group in 0..3 {
        let has: Vec<bool> = (0..5)
            .map(|column| file.has_bloom_filter(row_group, column))
            .collect();
        assert_eq!(has, [true, true, false, false, false]);
        let filters = file.bloom_filters(row_group, &[0, 1]).await.unwrap();
        let (start, rows) = (row_group * 2000, file.rows(row_group));
        for row in start..start + rows {
            for (column, filter) in filters.iter().enumerate() {
                let value = table.column(column).slice(row, 1);
                assert!(value.null_count() > 0 || filter.may_contain(&value).unwrap());
            }
        }
        let others = Int64Array::from_iter_values((0..1000).map(|i| -i - 1));
        let passed =
            (0..1000).filter(|row| filters[0].may_contain(&others.slice(*row, 1)).unwrap());
        assert!(passed.count() < 10);
        for text in ["0", "1", "2"] {
            let value = StringArray::from(vec![text]);
            let expected = text == row_group.to_string();
            assert_eq!(filters[1].may_contain(&value).unwrap(), expected);
        }
        let chunk = &file.metadata().row_group(row_group).columns[0];
        let bloom = chunk.bloom.clone().unwrap().bytes;
        assert_eq!(bloom.end - bloom.start, filters[0].bytes() as u64);
        filter_bytes += bloom.end - bloom.start;
        assert!(file.bloom_filters(row_group, &[3]).await.is_err());
    }
    assert!(file.bloom_filters(3, &[0]).await.is_err());
    assert!(summary.columns[0].encoded_bytes > filter_bytes);
    let (_, plain) = write(
        table.schema(),
        std::slice::from_ref(&table),
        rows_per_group(2000),
    )
    .await
    .unwrap();
    assert!(plain.bytes + filter_bytes < summary.bytes);
}

#[tokio::test]
async fn damaged_filters_are_errors_or_other_filters() {
    let table = table();
    let (mut bytes, _) = write(table.schema(), &[table], with_blooms())
        .await
        .unwrap();
    let whole = file(bytes.clone(), ReadOptions::default()).await;
    let bloom = whole.metadata().row_group(1).columns[1].bloom.clone();
    let range = bloom.unwrap().bytes;
    let value = StringArray::from(vec!["1"]);
    for at in range.start as usize..range.end as usize {
        bytes[at] ^= 1 << (at % 8);
        let checked = file(bytes.clone(), ReadOptions::default()).await;
        let error = checked
            .bloom_filters(1, &[1])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Bloom filter") && error.contains("text"),
            "{error}"
        );
        let options = ReadOptions::default().with_verify_checksums(false);
        let unchecked = file(bytes.clone(), options).await;
        let filters = unchecked.bloom_filters(1, &[1]).await.unwrap();
        let _true_or_false = filters[0].may_contain(&value).unwrap();
        bytes[at] ^= 1 << (at % 8);
    }
    let fewer = store_of(bytes[..range.start as usize + 3].to_vec()).await;
    let metadata = Arc::clone(whole.metadata());
    let cut = File::new(fewer, location(), metadata, ReadOptions::default());
    assert!(cut.bloom_filters(1, &[1]).await.is_err());
}

#[tokio::test]
async fn filters_that_cannot_be_are_refused() {
    let flag = Field::new("flag", DataType::Boolean, true);
    let list = Field::new_list("list", Field::new_list_field(DataType::Int64, true), true);
    let schema = Arc::new(Schema::new(vec![flag, list]));
    for (column, reason) in [("flag", "Boolean"), ("list", "List"), ("nope", "not have")] {
        let options = WriterOptions::default().with_bloom_filters([column]);
        let error = write(schema.clone(), &[], options).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    for fpp in [0.0, 1.0, f64::NAN] {
        let options = WriterOptions::default().with_bloom_filter_fpp(fpp);
        let error = write(schema.clone(), &[], options).await.unwrap_err();
        assert!(error.to_string().contains("between 0 and 1"), "{error}");
    }
}
