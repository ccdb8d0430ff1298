//! Every value of every column is as the `parquet` crate reads it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use vectile_parquet::{Format, Options, read_metadata};
use vectile_scan::{Container, ContainerFormat, Fetch, FileContainer};

use crate::support::{all_types, assert_same, expected, fetched, object, open, write};

const ROWS: usize = 5000;

async fn check(bytes: Bytes, name: &str) {
    let file = open(bytes.clone()).await.unwrap();
    assert_eq!(file.metadata().unsupported(), None);
    assert_eq!(file.metadata().num_rows(), ROWS as u64);
    let expected = expected(&bytes, file.schema());
    assert_same(&fetched(&file).await.unwrap(), &expected, name);
}

#[tokio::test]
async fn all_types_pages_and_compressions() {
    let batch = all_types(ROWS, 1);
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ];
    for (index, compression) in compressions.into_iter().enumerate() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_size_limit([1 << 20, 3000][index % 2])
                    .set_write_batch_size(500)
                    .set_max_row_group_row_count(Some(2100))
                    .build();
                let name = format!("{compression:?}, {version:?}, dictionary {dictionary}");
                check(write(&batch, properties), &name).await;
            }
        }
    }
}

#[tokio::test]
async fn all_encodings() {
    let batch = all_types(ROWS, 2);
    let encodings: [(&[&str], Encoding); 6] = [
        (
            &[
                "i32",
                "i64",
                "ascending",
                "u64",
                "date",
                "micros",
                "decimal32",
                "decimal64",
            ],
            Encoding::DELTA_BINARY_PACKED,
        ),
        (
            &[
                "text", "long", "large", "view", "binary", "all_null", "required",
            ],
            Encoding::DELTA_LENGTH_BYTE_ARRAY,
        ),
        (
            &[
                "text",
                "long",
                "large",
                "view",
                "binary",
                "fixed",
                "decimal128",
            ],
            Encoding::DELTA_BYTE_ARRAY,
        ),
        (
            &["f32", "f64", "i32", "i64", "fixed", "decimal128"],
            Encoding::BYTE_STREAM_SPLIT,
        ),
        (&["bool"], Encoding::RLE),
        (&["text", "i64", "fixed"], Encoding::PLAIN),
    ];
    for (columns, encoding) in encodings {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let mut properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_writer_version(version)
                .set_max_row_group_row_count(Some(3000))
                .set_data_page_row_count_limit(700)
                .set_write_batch_size(100);
            for column in columns {
                let path = ColumnPath::from(*column);
                properties = properties
                    .set_column_encoding(path.clone(), encoding)
                    .set_column_dictionary_enabled(path, false);
            }
            let bytes = write(&batch, properties.build());
            check(bytes, &format!("{encoding}, {version:?}")).await;
        }
    }
}

#[tokio::test]
async fn dictionaries_that_overflow_into_plain_pages() {
    let batch = all_types(ROWS, 3);
    let properties = WriterProperties::builder()
        .set_dictionary_page_size_limit(500)
        .set_write_batch_size(50)
        .set_data_page_row_count_limit(300)
        .build();
    let bytes = write(&batch, properties);
    check(bytes.clone(), "overflow").await;
    let file = open(bytes).await.unwrap();
    let column = file.schema().index_of("long").unwrap();
    assert_eq!(file.text_encoding(0, column).as_deref(), Some("plain"));
}

#[tokio::test]
async fn types_are_those_that_datafusion_infers() {
    let batch = all_types(10, 4);
    let metadata = [("k".to_owned(), "v".to_owned())];
    let field = Field::new("noted", DataType::Utf8, true).with_metadata(metadata.clone().into());
    let schema = Schema::new_with_metadata(vec![field], metadata.into());
    let noted = RecordBatch::new_empty(Arc::new(schema));
    let file = open(write(&noted, WriterProperties::default()))
        .await
        .unwrap();
    let expected = Schema::new(vec![Field::new("noted", DataType::Utf8View, true)]);
    assert_eq!(file.schema().as_ref(), &expected);

    let bytes = write(&batch, WriterProperties::default());
    let (store, object) = object(bytes.clone()).await;
    let file = vectile_parquet::File::open(Arc::clone(&store), &object)
        .await
        .unwrap();
    let options = Options::default().with_view_types(false);
    let typed = read_metadata(&store, &object, &options).await.unwrap();
    let typed = vectile_parquet::File::new(Arc::new(typed));
    for (field, [views, as_written]) in [
        ("text", [DataType::Utf8View, DataType::Utf8]),
        ("large", [DataType::Utf8View, DataType::LargeUtf8]),
        ("view", [DataType::Utf8View, DataType::Utf8View]),
        ("binary", [DataType::BinaryView, DataType::Binary]),
        ("i8", [DataType::Int8, DataType::Int8]),
    ] {
        let of = |schema: &Schema| schema.field_with_name(field).unwrap().data_type().clone();
        assert_eq!(of(file.schema()), views, "{field}");
        assert_eq!(of(typed.schema()), as_written, "{field}");
    }
    let rows = fetched(&typed).await.unwrap();
    assert_same(
        &rows,
        &crate::support::expected(&bytes, typed.schema()),
        "as written",
    );
    assert_eq!(Format::default().name(), "parquet");
    assert_ne!(
        Format::default().cache_name(),
        Format::new(options).cache_name()
    );
}

#[tokio::test]
async fn columns_have_encodings_that_programs_read() {
    let batch = all_types(ROWS, 5);
    let bytes = write(&batch, WriterProperties::default());
    let file = open(bytes).await.unwrap();
    let schema = file.schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let fetch = Fetch {
        row_group: 0,
        data: all.clone(),
        zones: vec![],
    };
    let read = file.fetch(&fetch).await.unwrap();
    assert!(read.bytes_read > 0 && read.bytes_cached == 0);
    for (name, encoding) in [
        ("i8", "ffor"),
        ("i64", "ffor"),
        ("u64", "ffor"),
        ("date", "ffor"),
        ("micros_tz", "ffor"),
        ("decimal64", "ffor"),
        ("f64", "plain"),
        ("bool", "ffor"),
        ("text", "dict"),
        ("view", "dict"),
        ("binary", "dict"),
        ("required", "dict"),
        ("all_null", "constant"),
        ("list", "plain"),
        ("map", "plain"),
    ] {
        let column = schema.index_of(name).unwrap();
        let described = read.columns[column].as_ref().unwrap().describe();
        assert!(described.starts_with(encoding), "{name}: {described}");
        let is_text = name == "text" || name == "required";
        if is_text {
            assert_eq!(file.text_encoding(0, column).as_deref(), Some("dict"));
        }
    }
    // memory is known before and after
    let known = file.data_bytes(0, &all) + read.excess_bytes;
    assert!(known > ROWS * 8 * 10 && known < ROWS * 8 * 100, "{known}");
    let small = schema.index_of("i8").unwrap();
    assert!(file.data_bytes(0, &[small]) <= ROWS);
    assert_eq!(file.data_bytes(7, &[small]), 0);
    assert_eq!(file.data_bytes(0, &[1000]), 0);
}

#[tokio::test]
async fn nan_and_zeros_keep_their_bits() {
    let values = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, 1.5];
    let column: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
    let batch = RecordBatch::try_from_iter([("f", column)]).unwrap();
    let file = open(write(&batch, WriterProperties::default()))
        .await
        .unwrap();
    let rows = fetched(&file).await.unwrap();
    let bits = |array: &Float64Array| -> Vec<u64> {
        array.values().iter().map(|value| value.to_bits()).collect()
    };
    let read = rows[0].column(0).as_primitive::<Float64Type>();
    assert_eq!(bits(read), bits(&Float64Array::from(values.to_vec())));
    assert!(!file.row_group_zones(0).unwrap().has_bounds());
}

#[tokio::test]
async fn files_without_rows_or_columns() {
    let empty = all_types(0, 1);
    let file = open(write(&empty, WriterProperties::default()))
        .await
        .unwrap();
    assert_eq!(file.num_row_groups(), 0);
    assert_eq!(file.row_group_zones(0).unwrap().len(), 0);
    assert!(fetched(&file).await.unwrap().is_empty());
    let fetch = Fetch::default();
    assert!(file.fetch(&fetch).await.is_err());
    assert_eq!(file.row_group_start(3), 0);

    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let schema = Arc::new(Schema::empty());
    let bare = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let file = open(write(&bare, WriterProperties::default()))
        .await
        .unwrap();
    // its writer counts none
    assert_eq!((file.metadata().num_rows(), file.num_row_groups()), (0, 0));
    assert!(file.schema().fields().is_empty() && file.metadata().unsupported().is_none());
}

#[tokio::test]
async fn no_such_row_group_or_column_is_an_error() {
    let batch = all_types(10, 1);
    let file = open(write(&batch, WriterProperties::default()))
        .await
        .unwrap();
    for (row_group, column, reason) in [
        (1, 0, "t.parquet has 1 row groups, no 1"),
        (0, 900, "a table of 40 columns has no column 900"),
    ] {
        for is_data in [true, false] {
            let mut fetch = Fetch {
                row_group,
                ..Fetch::default()
            };
            match is_data {
                true => fetch.data.push(column),
                false => fetch.zones.push(column),
            }
            // there are no vectors to know zones of
            if is_data || row_group == 1 {
                let error = file.fetch(&fetch).await.unwrap_err();
                assert_eq!(error.to_string(), reason);
            }
        }
    }
    assert!(file.fetch(&Fetch::default()).await.is_ok());
}

#[tokio::test]
async fn row_groups_start_at_distinct_bytes() {
    let batch = all_types(1000, 1);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(90))
        .build();
    let bytes = write(&batch, properties);
    let file = open(bytes.clone()).await.unwrap();
    assert_eq!(file.num_row_groups(), 12);
    let starts: Vec<u64> = (0..12).map(|group| file.row_group_start(group)).collect();
    assert!(starts.is_sorted_by(|a, b| a < b) && starts[11] < bytes.len() as u64);
    assert_eq!(file.metadata().row_groups()[11].rows, 10);
    let other = open(write(&all_types(1000, 2), WriterProperties::default()))
        .await
        .unwrap();
    assert_ne!(file.checksum(), other.checksum());
}

#[tokio::test]
async fn batches_of_a_writer_become_one_dictionary() {
    let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]));
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), None).unwrap();
    for start in 0..20 {
        let texts = (0..100).map(|i| (i % 9 > 0).then(|| format!("{}", (start * 7 + i) % 60)));
        let column: ArrayRef = Arc::new(StringArray::from_iter(texts));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        writer.write(&batch).unwrap();
    }
    let bytes = Bytes::from(writer.into_inner().unwrap());
    let file = open(bytes.clone()).await.unwrap();
    assert_same(
        &fetched(&file).await.unwrap(),
        &expected(&bytes, file.schema()),
        "batches",
    );
}
