//! Written tables are read back, for all types and sizes of batches and row groups.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::*;
use common::*;
use vectile_file::*;

#[tokio::test]
async fn every_type_round_trips_in_every_partition() {
    let table = every_type(2500);
    let schema = table.schema();
    let pieces = [
        table.slice(0, 1),
        table.slice(1, 0),
        table.slice(1, 1999),
        table.slice(2000, 500),
    ];
    for row_group_rows in [700, 1024, 2500, 1 << 18] {
        let (bytes, summary) = write(schema.clone(), &pieces, rows_per_group(row_group_rows))
            .await
            .unwrap();
        assert_eq!(summary.rows, 2500);
        assert_eq!(summary.bytes, bytes.len() as u64);
        assert_eq!(summary.row_groups, 2500usize.div_ceil(row_group_rows));
        let (metadata, batches) = read(bytes).await.unwrap();
        assert_eq!(metadata.schema(), &schema);
        assert_eq!(metadata.num_rows(), 2500);
        let mut start = 0;
        for batch in &batches {
            for (index, column) in batch.columns().iter().enumerate() {
                let written = table.column(index).slice(start, batch.num_rows());
                let name = schema.field(index).name();
                assert_eq!(column.data_type(), written.data_type());
                // Not assert_eq!: it would print the arrays.
                let same = plain(column).to_data() == plain(&written).to_data();
                assert!(
                    same,
                    "{name}, row groups of {row_group_rows}, from row {start}"
                );
            }
            start += batch.num_rows();
        }
        assert_eq!(start, 2500);
    }
}

#[tokio::test]
async fn row_groups_have_the_requested_size() {
    let table = small(1000);
    let batches: Vec<_> = (0..10).map(|i| table.slice(i * 100, 100)).collect();
    for rows in [1, 7, 100, 333, 1000, 5000] {
        let (bytes, _) = write(table.schema(), &batches, rows_per_group(rows))
            .await
            .unwrap();
        let (metadata, read) = read(bytes).await.unwrap();
        let sizes: Vec<_> = metadata
            .row_groups()
            .iter()
            .map(|group| group.rows)
            .collect();
        assert!(
            sizes[..sizes.len() - 1].iter().all(|size| *size == rows),
            "{sizes:?}"
        );
        assert_eq!(joined(&table.schema(), &read), table);
    }
}

/// Row groups end before there are more rows than run ends count.
#[tokio::test]
async fn run_ends_of_16_bits_count_few_rows() {
    let runs = |rows: i16| {
        let values = Int32Array::from(vec![1, 2]);
        let runs = RunArray::<Int16Type>::try_new(&vec![1, rows].into(), &values).unwrap();
        let runs: ArrayRef = Arc::new(runs);
        let field = Arc::new(Field::new("r", runs.data_type().clone(), true));
        let within = StructArray::new(vec![field].into(), vec![Arc::clone(&runs)], None);
        let columns: [(&str, ArrayRef); 2] = [("r", runs), ("s", Arc::new(within))];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    for (sizes, expected) in [
        (vec![16_384, 16_383], vec![32_767]),
        (vec![8192; 5], vec![16_384, 24_576]),
    ] {
        let batches: Vec<_> = sizes.into_iter().map(runs).collect();
        let (bytes, _) = write(batches[0].schema(), &batches, WriterOptions::default())
            .await
            .unwrap();
        let (metadata, read) = read(bytes).await.unwrap();
        let row_groups = metadata.row_groups().iter();
        assert_eq!(
            row_groups.map(|group| group.rows).collect::<Vec<_>>(),
            expected
        );
        let values = |batches: &[RecordBatch]| -> Vec<Option<i32>> {
            let columns = batches.iter().flat_map(|batch| {
                let within = batch.column(1).as_struct().column(0);
                [Arc::clone(batch.column(0)), Arc::clone(within)]
            });
            let plain = columns.map(|runs| arrow::compute::cast(&runs, &DataType::Int32).unwrap());
            let values = plain.map(|values| values.as_primitive::<Int32Type>().clone());
            values
                .flat_map(|values| values.iter().collect::<Vec<_>>())
                .collect()
        };
        let sum = |batches: &[RecordBatch]| values(batches).into_iter().flatten().sum::<i32>();
        assert_eq!(sum(&read), sum(&batches));
        assert_eq!(values(&read).len(), values(&batches).len());
    }
}

#[tokio::test]
async fn tables_without_rows_or_columns_work() {
    let empty = small(0);
    let (bytes, summary) = write(empty.schema(), &[], WriterOptions::default())
        .await
        .unwrap();
    assert_eq!((summary.rows, summary.row_groups), (0, 0));
    let (metadata, batches) = read(bytes).await.unwrap();
    assert_eq!(metadata.schema(), &empty.schema());
    assert_eq!(metadata.row_group_statistics(2).min.len(), 0);
    assert!(batches.is_empty());

    let (bytes, _) = write(
        empty.schema(),
        &[empty.clone(), empty],
        WriterOptions::default(),
    )
    .await
    .unwrap();
    assert_eq!(read(bytes).await.unwrap().0.num_rows(), 0);

    let schema = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(2500));
    let no_columns = RecordBatch::try_new_with_options(schema.clone(), vec![], &options).unwrap();
    let (bytes, _) = write(schema, &[no_columns], rows_per_group(1000))
        .await
        .unwrap();
    let (metadata, batches) = read(bytes).await.unwrap();
    assert_eq!(metadata.num_rows(), 2500);
    let rows: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [1000, 1000, 500]);

    let nothing_of_anything = every_type(0);
    let schema = nothing_of_anything.schema();
    let (bytes, _) = write(schema.clone(), &[], WriterOptions::default())
        .await
        .unwrap();
    assert_eq!(read(bytes).await.unwrap().0.schema(), &schema);
}

#[tokio::test]
async fn metadata_and_equal_names_are_kept() {
    let notes = |note: &str| HashMap::from([("note".to_owned(), note.to_owned())]);
    let schema = Arc::new(Schema::new_with_metadata(
        vec![
            Field::new("same", DataType::Int32, true).with_metadata(notes("first")),
            Field::new("same", DataType::Int32, false).with_metadata(notes("second")),
            Field::new("", DataType::Int32, false),
        ],
        notes("table \u{1f980}"),
    ));
    let column: ArrayRef = Arc::new(Int32Array::from(vec![3, 4]));
    let columns = vec![column.clone(), column.clone(), column];
    let table = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let (bytes, _) = write(
        schema.clone(),
        std::slice::from_ref(&table),
        WriterOptions::default(),
    )
    .await
    .unwrap();
    let (metadata, batches) = read(bytes).await.unwrap();
    assert_eq!(metadata.schema(), &schema);
    assert_eq!(batches, [table]);
}

#[tokio::test]
async fn the_same_table_gives_the_same_bytes() {
    let table = every_type(1500);
    let one = write(
        table.schema(),
        std::slice::from_ref(&table),
        rows_per_group(1000),
    )
    .await
    .unwrap();
    let halves = [table.slice(0, 750), table.slice(750, 750)];
    let two = write(table.schema(), &halves, rows_per_group(1000))
        .await
        .unwrap();
    let again = write(table.schema(), &halves, rows_per_group(1000))
        .await
        .unwrap();
    assert_eq!(two.0, again.0);
    assert_eq!(one.1.rows, two.1.rows);
}

#[tokio::test]
async fn only_requested_columns_are_read() {
    let table = small(5000);
    let (bytes, summary) = write(table.schema(), &[table], rows_per_group(2048))
        .await
        .unwrap();
    let store = store_of(bytes).await;
    let metadata = metadata_of(&store).await.unwrap();
    assert_eq!(metadata.num_row_groups(), 3);
    let options = ReadOptions::default();

    let zones = Fetch {
        row_group: 1,
        zones: vec![2, 0, 2],
        ..Fetch::default()
    };
    let zones = read_row_group(&store, &location(), &metadata, &zones, &options)
        .await
        .unwrap();
    assert!(zones.columns.iter().all(Option::is_none));
    assert!(zones.zones[1].is_none());
    assert_eq!(zones.zones[0].as_ref().unwrap().null_count.len(), 2);
    let chunks = &metadata.row_group(1).columns;
    let zone_bytes = |c: usize| chunks[c].zones.end - chunks[c].zones.start;
    assert_eq!(zones.bytes_read, zone_bytes(0) + zone_bytes(2));

    let data = Fetch {
        row_group: 1,
        data: vec![1],
        zones: vec![],
    };
    let data = read_row_group(&store, &location(), &metadata, &data, &options)
        .await
        .unwrap();
    assert_eq!(data.columns[1].as_ref().unwrap().len(), 2048);
    assert_eq!(data.bytes_read, chunks[1].data.end - chunks[1].data.start);

    let none = Fetch::default();
    let none = read_row_group(&store, &location(), &metadata, &none, &options)
        .await
        .unwrap();
    assert_eq!(none.bytes_read, 0);
    let encoded: u64 = summary
        .columns
        .iter()
        .map(|column| column.encoded_bytes)
        .sum();
    assert!(encoded < summary.bytes);
    assert!(metadata.footer_bytes() < summary.bytes);
    assert!(metadata.memory_size() > 0);
}

#[tokio::test]
async fn missing_columns_and_row_groups_are_errors() {
    let table = small(10);
    let (bytes, _) = write(table.schema(), &[table], WriterOptions::default())
        .await
        .unwrap();
    let store = store_of(bytes).await;
    let metadata = metadata_of(&store).await.unwrap();
    for fetch in [
        Fetch {
            row_group: 1,
            ..Fetch::default()
        },
        Fetch {
            data: vec![3],
            ..Fetch::default()
        },
        Fetch {
            zones: vec![usize::MAX],
            ..Fetch::default()
        },
    ] {
        let options = ReadOptions::default();
        let error = read_row_group(&store, &location(), &metadata, &fetch, &options)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
}

#[tokio::test]
async fn row_group_statistics_have_an_entry_per_row_group() {
    let table = small(3000);
    let (bytes, _) = write(
        table.schema(),
        std::slice::from_ref(&table),
        rows_per_group(1024),
    )
    .await
    .unwrap();
    let (metadata, _) = read(bytes).await.unwrap();
    for column in 0..3 {
        let zones = metadata.row_group_statistics(column);
        assert_eq!(
            (zones.min.len(), zones.max.len(), zones.exact.len()),
            (3, 3, 3)
        );
        let nulls: Vec<u64> = zones.null_count.values().to_vec();
        let expected = |start, len| table.column(column).slice(start, len).null_count() as u64;
        assert_eq!(
            nulls,
            [expected(0, 1024), expected(1024, 1024), expected(2048, 952)]
        );
    }
}

#[tokio::test]
async fn small_tables_are_small() {
    let table = RecordBatch::try_from_iter([
        ("id", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef),
        ("price", Arc::new(Float64Array::from(vec![1.5, 2.25]))),
        ("name", Arc::new(StringArray::from(vec!["alpha", "beta"]))),
        ("day", Arc::new(Date32Array::from(vec![19_723, 19_724]))),
    ])
    .unwrap();
    let options = WriterOptions::default();
    let (bytes, _) = write(table.schema(), std::slice::from_ref(&table), options)
        .await
        .unwrap();
    assert!(bytes.len() < 2000, "{} bytes", bytes.len());
    let (metadata, batches) = read(bytes).await.unwrap();
    assert!(
        metadata
            .row_group(0)
            .columns
            .iter()
            .all(|c| c.zones.is_empty())
    );
    assert_eq!(joined(&table.schema(), &batches), table);
}

#[tokio::test]
async fn repeated_patterns_are_compressed() {
    let table = repeated(1000, 30);
    let compressed = WriterOptions::default().with_compression(Compression::Zstd);
    let of = async |options| {
        let written = write(table.schema(), std::slice::from_ref(&table), options).await;
        written.unwrap().0
    };
    let (plain, compressed) = (of(WriterOptions::default()).await, of(compressed).await);
    assert!(compressed.len() * 4 < plain.len());
    let (metadata, batches) = read(compressed.clone()).await.unwrap();
    for chunk in &metadata.row_group(0).columns {
        assert_eq!(chunk.compression, Compression::Zstd);
        assert!(chunk.data_bytes > 4 * (chunk.data.end - chunk.data.start));
    }
    assert_eq!(joined(&table.schema(), &batches), table);
    // readers that reserve memory need to know
    let store = store_of(compressed).await;
    let object = store.head(&location()).await.unwrap();
    let file = File::open(store, &object).await.unwrap();
    use object_store::ObjectStoreExt;
    use vectile_scan::Container;
    let held: u64 = metadata
        .row_group(0)
        .columns
        .iter()
        .map(|c| c.data_bytes)
        .sum();
    assert!(file.data_bytes(0, &[0, 1]) as u64 > held);
}

#[tokio::test]
async fn tables_with_large_footers_are_read() {
    let columns = 700;
    let fields: Vec<_> = (0..columns)
        .map(|i| {
            Field::new(
                format!("a column with quite a long name {i}"),
                DataType::Int32,
                false,
            )
        })
        .collect();
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..8));
    let schema = Arc::new(Schema::new(fields));
    let table = RecordBatch::try_new(schema.clone(), vec![column; columns]).unwrap();
    let (bytes, _) = write(
        schema.clone(),
        std::slice::from_ref(&table),
        rows_per_group(2),
    )
    .await
    .unwrap();
    let (metadata, batches) = read(bytes).await.unwrap();
    assert!(metadata.footer_bytes() > 128 << 10);
    assert_eq!(joined(&schema, &batches), table);
}

#[tokio::test]
async fn dictionaries_that_overflow_their_keys_split_row_groups() {
    let batch = |start: i32| {
        let words = StringArray::from_iter_values((start..start + 100).map(|i| i.to_string()));
        let keys = Int8Array::from_iter_values(0..100);
        let array: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(words)));
        RecordBatch::try_from_iter([("d", array)]).unwrap()
    };
    let batches = [batch(0), batch(100), batch(200)];
    let (bytes, _) = write(batches[0].schema(), &batches, WriterOptions::default())
        .await
        .unwrap();
    let (metadata, read) = read(bytes).await.unwrap();
    assert_eq!(metadata.num_rows(), 300);
    let values =
        |batch: &RecordBatch| arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
    let read: Vec<_> = read.iter().map(values).collect();
    let written: Vec<_> = batches.iter().map(values).collect();
    assert_eq!(read, written);
}

#[tokio::test]
async fn futures_can_be_spawned() {
    let table = small(100);
    let (bytes, _) = write(table.schema(), &[table], WriterOptions::default())
        .await
        .unwrap();
    let store = store_of(bytes).await;
    let rows = tokio::spawn(async move {
        let metadata = metadata_of(&store).await.unwrap();
        let fetch = Fetch {
            data: vec![0],
            ..Fetch::default()
        };
        let options = ReadOptions::default().with_verify_checksums(false);
        let data = read_row_group(&store, &location(), &metadata, &fetch, &options)
            .await
            .unwrap();
        data.columns[0].as_ref().unwrap().len()
    });
    assert_eq!(rows.await.unwrap(), 100);
}

#[tokio::test]
async fn batches_that_do_not_fit_are_refused_and_the_writer_goes_on() {
    let table = small(10);
    let store = memory();
    let mut writer = Writer::try_new(
        store.clone(),
        location(),
        table.schema(),
        WriterOptions::default(),
    )
    .unwrap();
    let other = table.project(&[1, 0, 2]).unwrap();
    let fewer = table.project(&[0]).unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    let mut columns = table.slice(0, 2).columns().to_vec();
    columns[0] = ids;
    let nulls =
        RecordBatch::try_from_iter(["id", "price", "name"].into_iter().zip(columns)).unwrap();
    for batch in [other, fewer, nulls] {
        let error = writer.write(&batch).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    writer.write(&table).await.unwrap();
    assert_eq!(writer.finish().await.unwrap().rows, 10);
    assert_eq!(metadata_of(&store).await.unwrap().num_rows(), 10);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let schema = small(0).schema();
    let open = |options| Writer::try_new(memory(), location(), schema.clone(), options);
    let unknown =
        WriterOptions::default().with_pins([("nmae", vectile_encodings::Encoding::Plain)]);
    let error = open(unknown).unwrap_err().to_string();
    assert!(error.contains("'nmae'"), "{error}");
    assert!(open(rows_per_group(0)).is_err());
    assert!(open(rows_per_group(MAX_ROW_GROUP_ROWS + 1)).is_err());
}

#[tokio::test]
async fn pinned_columns_have_their_encoding() {
    let table = small(2000);
    let options = WriterOptions::default().with_pins([("id", vectile_encodings::Encoding::Plain)]);
    let (bytes, summary) = write(table.schema(), std::slice::from_ref(&table), options)
        .await
        .unwrap();
    let encodings: Vec<_> = summary.columns[0].encodings.keys().collect();
    assert!(encodings[0].starts_with("plain"), "{encodings:?}");
    assert_eq!(read(bytes).await.unwrap().1, [table]);
}

/// A type of `levels` levels, `leaf` in lists, structs and dictionaries in turn.
fn nested(leaf: &ArrayRef, levels: usize) -> ArrayRef {
    (1..levels).fold(Arc::clone(leaf), |inner, level| {
        let field = Arc::new(Field::new("item", inner.data_type().clone(), true));
        match level % 2 {
            0 => Arc::new(StructArray::from(vec![(field, inner)])),
            _ => {
                let offsets = OffsetBuffer::from_lengths(vec![1; inner.len()]);
                Arc::new(ListArray::new(field, offsets, inner, None))
            }
        }
    })
}

#[tokio::test]
async fn types_nest_as_deep_as_is_documented() {
    let leaves: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter_values((0..5000).map(|i| i / 40 % 7))),
        // few strings, whose lengths come in runs
        Arc::new(StringArray::from_iter_values(
            (0..5000).map(|i| "x".repeat(i % 1200 / 40)),
        )),
        Arc::new(Float64Array::from_iter_values(
            (0..5000).map(|i| f64::from(i % 1000) / 8.0),
        )),
    ];
    for leaf in leaves {
        let deepest = nested(&leaf, 24);
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&deepest))]).unwrap();
        let pieces = std::slice::from_ref(&batch);
        let (bytes, _) = write(batch.schema(), pieces, rows_per_group(5000))
            .await
            .unwrap();
        let (_, batches) = read(bytes).await.unwrap();
        assert!(batches[0].column(0).to_data() == deepest.to_data());

        let deeper = nested(&leaf, 25);
        let batch = RecordBatch::try_from_iter([("a", deeper)]).unwrap();
        let error = write(batch.schema(), &[batch], rows_per_group(5000))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
}

/// Slices of one large array, as operators hand them out.
async fn row_groups_of(array: ArrayRef) -> usize {
    let table = RecordBatch::try_from_iter([("a", array)]).unwrap();
    let slices: Vec<_> = (0..table.num_rows())
        .step_by(8192)
        .map(|start| table.slice(start, 8192.min(table.num_rows() - start)))
        .collect();
    let written = write(table.schema(), &slices, WriterOptions::default()).await;
    written.unwrap().1.row_groups
}

#[tokio::test]
async fn row_groups_are_sized_by_the_rows_of_slices() {
    let rows = 400_000;
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3 * rows as i64));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let offsets = OffsetBuffer::from_lengths(vec![3; rows]);
    let lists = ListArray::new(item, offsets, values, None);
    assert_eq!(row_groups_of(Arc::new(lists)).await, 2);

    let names = StringArray::from_iter_values((0..80_000).map(|i| format!("{i:0120}")));
    let keys = Int32Array::from_iter_values((0..rows as i32).map(|row| row % 10));
    let dictionary = DictionaryArray::new(keys, Arc::new(names));
    assert_eq!(row_groups_of(Arc::new(dictionary)).await, 2);
}
