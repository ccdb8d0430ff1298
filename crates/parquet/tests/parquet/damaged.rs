//! Damaged files: an error with its position, or other values; never more.

use std::panic;
use std::sync::Once;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use vectile_parquet::Error;
use vectile_scan::{Container, Fetch, FileContainer};

use crate::support::{Draws, all_types, open, write};

/// Panics of the `parquet` crate are contained, and need not be printed. Those of tests are.
fn hide_contained_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            if file.contains("tests/parquet") {
                print(info);
            }
        }));
    });
}

/// Files of few rows that have all types, pages, and encodings.
fn files() -> Vec<Bytes> {
    let batch = all_types(60, 11);
    let builder = || {
        WriterProperties::builder()
            .set_max_row_group_row_count(Some(40))
            .set_data_page_row_count_limit(15)
            .set_write_batch_size(5)
            .set_bloom_filter_enabled(true)
            .set_bloom_filter_max_ndv(20)
    };
    let mut delta = builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false);
    for (column, encoding) in [
        ("long", Encoding::DELTA_BYTE_ARRAY),
        ("text", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("binary", Encoding::DELTA_BYTE_ARRAY),
        ("i32", Encoding::BYTE_STREAM_SPLIT),
        ("f64", Encoding::BYTE_STREAM_SPLIT),
        ("decimal128", Encoding::DELTA_BYTE_ARRAY),
    ] {
        delta = delta.set_column_encoding(ColumnPath::from(column), encoding);
    }
    let zstd = Compression::ZSTD(ZstdLevel::default());
    [
        builder().build(),
        builder().set_compression(Compression::SNAPPY).build(),
        builder()
            .set_compression(zstd)
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .build(),
        delta.build(),
    ]
    .map(|properties| write(&batch, properties))
    .to_vec()
}

/// Reads everything, statistics and Bloom filters included. Returns the number of columns that were refused.
async fn read_all(bytes: Bytes) -> Result<usize, Error> {
    let file = open(bytes).await?;
    let mut refused = 0;
    let columns = file.schema().fields().len();
    for row_group in 0..file.num_row_groups() {
        let rows = file.rows(row_group);
        for column in 0..columns {
            let fetch = Fetch {
                row_group,
                data: vec![column],
                zones: vec![column],
            };
            file.data_bytes(row_group, &[column]);
            // columns that a device cannot decode are left out
            let streams = file.stream_columns(row_group, &[column], None).await;
            assert!(streams.is_ok());
            let read = file.fetch(&fetch).await;
            let error = match read {
                Ok(read) => {
                    let values = read.columns[column].as_ref().unwrap();
                    let values = values.decode(0..rows);
                    values
                        .err()
                        .map(|error| file.error(row_group, column, error))
                }
                Err(error) => Some(error),
            };
            if file.has_bloom_filter(row_group, column) {
                let _ = file.bloom_filters(row_group, &[column]).await;
            }
            let Some(error) = error else { continue };
            refused += 1;
            let vectile_scan::Error::External(error) = error else {
                panic!("{error}");
            };
            match error.downcast_ref() {
                Some(Error::Corrupt { origin, .. } | Error::Unsupported { origin, .. }) => {
                    assert!(origin.row_group.is_some() && origin.column.is_some());
                }
                _ => panic!("{error}"),
            }
        }
    }
    Ok(refused)
}

/// Reads damaged bytes; returns true if the damage was found.
async fn is_refused(bytes: Vec<u8>, name: &str) -> bool {
    match read_all(bytes.into()).await {
        Ok(refused) => refused > 0,
        Err(Error::Corrupt { .. } | Error::Unsupported { .. } | Error::NotParquet { .. }) => true,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Times the flips and cuts of each file.
const TIMES: u64 = 500;

#[tokio::test]
async fn any_bytes_may_be_wrong() {
    hide_contained_panics();
    for (number, whole) in files().into_iter().enumerate() {
        assert_eq!(read_all(whole.clone()).await.unwrap(), 0);
        let footer = whole.len() - 8 - footer_bytes(&whole);
        let mut draws = Draws(number as u64);
        let mut refused = 0;
        for time in 0..TIMES {
            let mut bytes = whole.to_vec();
            // pages and footers alike, often the same byte with all of its bits
            let range = match time % 2 {
                0 => 0..footer,
                _ => footer..whole.len(),
            };
            let at = range.start + draws.below(range.len() as u64) as usize;
            match draws.below(3) {
                0 => bytes[at] = draws.next() as u8,
                1 => bytes[at] = 0xFF,
                _ => bytes[at] ^= 1 << draws.below(8),
            }
            refused += u64::from(is_refused(bytes, &format!("file {number}, byte {at}")).await);
        }
        assert!(refused > TIMES / 4, "{number}: {refused}");
    }
}

fn footer_bytes(bytes: &[u8]) -> usize {
    let at = bytes.len() - 8;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

#[tokio::test]
async fn truncated_files_are_refused() {
    hide_contained_panics();
    let whole = &files()[1];
    for cut in (1..whole.len()).step_by(whole.len() / 200) {
        let name = format!("cut {cut}");
        assert!(
            is_refused(whole[..whole.len() - cut].to_vec(), &name).await,
            "{name}"
        );
        is_refused(whole[cut..].to_vec(), &name).await;
        // a part within is missing
        let mut bytes = whole[..cut / 2].to_vec();
        bytes.extend(&whole[cut..]);
        is_refused(bytes, &name).await;
    }
}

#[tokio::test]
async fn errors_name_row_group_and_column() {
    let whole = &files()[0];
    let file = open(whole.clone()).await.unwrap();
    let column = file.schema().index_of("i32").unwrap();
    let chunk = file
        .metadata()
        .parquet()
        .row_group(1)
        .column(column)
        .clone();
    let (start, _) = chunk.byte_range();
    let mut bytes = whole.to_vec();
    // the first field of the page's header
    bytes[start as usize] = 0xFF;
    let fetch = Fetch {
        row_group: 1,
        data: vec![column],
        zones: vec![],
    };
    let file = open(bytes.into()).await.unwrap();
    let error = file.fetch(&fetch).await.unwrap_err().to_string();
    let place = "corrupt file t.parquet, row group 1, column 'i32': a value of kind 15";
    assert_eq!(error, place);
}
