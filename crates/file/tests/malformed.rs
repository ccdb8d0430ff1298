//! Truncated and damaged files: a typed error, or the right answer where a byte means nothing.

mod common;

use std::ops::Range;

use arrow::array::RecordBatch;
use common::*;
use object_store::ObjectStoreExt;
use vectile_file::*;

async fn small_file() -> (RecordBatch, Vec<u8>) {
    let table = small(60);
    let (bytes, _) = write(
        table.schema(),
        std::slice::from_ref(&table),
        rows_per_group(40),
    )
    .await
    .unwrap();
    (table, bytes)
}

/// The bytes of the file that a checksum covers: all chunks.
async fn chunks(bytes: &[u8]) -> Vec<Range<u64>> {
    let (metadata, _) = read(bytes.to_vec()).await.unwrap();
    let chunks = metadata
        .row_groups()
        .iter()
        .flat_map(|group| &group.columns);
    chunks
        .flat_map(|chunk| [chunk.zones.clone(), chunk.data.clone()])
        .collect()
}

fn is_typed(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. } | Error::NotVectile { .. } | Error::UnsupportedVersion { .. }
    )
}

#[tokio::test]
async fn truncation_at_every_length_is_an_error() {
    let (_, bytes) = small_file().await;
    for len in 0..bytes.len() {
        let error = read(bytes[..len].to_vec()).await.unwrap_err();
        assert!(is_typed(&error), "{len} bytes: {error:?}");
    }
}

#[tokio::test]
async fn a_flipped_bit_in_any_byte_is_an_error_or_harmless() {
    let (table, mut bytes) = small_file().await;
    let chunks = chunks(&bytes).await;
    for index in 0..bytes.len() {
        let covered = chunks.iter().any(|chunk| chunk.contains(&(index as u64)));
        // One bit of each byte: all of them take a minute.
        let bit = index % 8;
        bytes[index] ^= 1 << bit;
        match read(bytes.clone()).await {
            Ok((_, batches)) => {
                assert!(!covered, "byte {index} can change unnoticed");
                assert_eq!(joined(&table.schema(), &batches), table, "byte {index}");
            }
            Err(error) => {
                assert!(is_typed(&error), "byte {index}: {error:?}");
                let named = matches!(
                    &error,
                    Error::Corrupt {
                        row_group: Some(_),
                        column: Some(_),
                        ..
                    }
                );
                assert!(!covered || named, "byte {index}: {error}");
            }
        }
        bytes[index] ^= 1 << bit;
    }
}

#[tokio::test]
async fn encoded_row_groups_are_read_as_they_were_written_or_not_at_all() {
    let (_, mut bytes) = small_file().await;
    let metadata = metadata_of(&store_of(bytes.clone()).await).await.unwrap();
    for index in 0..metadata.row_group(0).bytes.end as usize {
        let covered = metadata.row_group(0).columns.iter();
        let covered = covered.flat_map(|chunk| [chunk.zones.clone(), chunk.data.clone()]);
        let covered = covered
            .into_iter()
            .any(|chunk| chunk.contains(&(index as u64)));
        bytes[index] ^= 1;
        let store = store_of(bytes.clone()).await;
        let object = store.head(&location()).await.unwrap();
        let file = File::open(store, &object).await;
        match file.unwrap().read_encoded(0).await {
            Ok(row_group) => {
                assert!(!covered, "byte {index} can change unnoticed");
                assert_eq!(row_group.rows(), metadata.row_group(0).rows);
            }
            Err(error) => assert!(covered && is_typed(&error), "byte {index}: {error:?}"),
        }
        bytes[index] ^= 1;
    }
    let store = store_of(bytes).await;
    let object = store.head(&location()).await.unwrap();
    let file = File::open(store, &object).await.unwrap();
    let count = metadata.num_row_groups();
    assert!(matches!(
        file.read_encoded(count).await,
        Err(Error::InvalidArgument(_))
    ));
}

#[tokio::test]
async fn without_checksums_damage_is_at_worst_a_wrong_value() {
    let table = every_type(60);
    let (bytes, _) = write(table.schema(), &[table], rows_per_group(60))
        .await
        .unwrap();
    let metadata = metadata_of(&store_of(bytes.clone()).await).await.unwrap();
    for (column, chunk) in metadata.row_group(0).columns.iter().enumerate() {
        let data = Fetch {
            data: vec![column],
            ..Fetch::default()
        };
        damage(&bytes, &metadata, chunk.data.clone(), &data).await;
        let zones = Fetch {
            zones: vec![column],
            ..Fetch::default()
        };
        damage(&bytes, &metadata, chunk.zones.clone(), &zones).await;
    }
}

#[tokio::test]
async fn damage_to_compressed_data_is_at_worst_a_wrong_value() {
    let table = repeated(50, 30);
    let options = WriterOptions::default().with_compression(Compression::Zstd);
    let (bytes, _) = write(table.schema(), &[table], options).await.unwrap();
    let metadata = metadata_of(&store_of(bytes.clone()).await).await.unwrap();
    for (column, chunk) in metadata.row_group(0).columns.iter().enumerate() {
        assert_eq!(chunk.compression, Compression::Zstd);
        let data = Fetch {
            data: vec![column],
            ..Fetch::default()
        };
        damage(&bytes, &metadata, chunk.data.clone(), &data).await;
    }
}

/// Changes each byte of a range in turn and reads. Any outcome but a panic is fine.
async fn damage(bytes: &[u8], metadata: &Metadata, range: Range<u64>, fetch: &Fetch) {
    let options = ReadOptions::default().with_verify_checksums(false);
    let at = location();
    let mut bytes = bytes.to_vec();
    for index in range.start as usize..range.end as usize {
        let byte = bytes[index];
        for other in [byte ^ 1, byte ^ 0x80, !byte] {
            bytes[index] = other;
            let store = store_of(bytes.clone()).await;
            let Ok(data) = read_row_group(&store, &at, metadata, fetch, &options).await else {
                continue;
            };
            for column in data.columns.iter().flatten() {
                let _array_or_error = column.decode(0..column.len());
            }
        }
        bytes[index] = byte;
    }
}

#[tokio::test]
async fn other_files_are_named_as_such() {
    for bytes in [
        b"".to_vec(),
        b"PAR1....PAR1".to_vec(),
        b"a,b\n1,2\n3,4\n5,6\n7,8\n".to_vec(),
    ] {
        let error = read(bytes).await.unwrap_err();
        assert!(matches!(error, Error::NotVectile { .. }), "{error}");
    }
    let mut plain = Vec::new();
    let table = small(10);
    let mut writer = arrow::ipc::writer::FileWriter::try_new(&mut plain, &table.schema()).unwrap();
    writer.write(&table).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let error = read(plain).await.unwrap_err();
    assert!(matches!(error, Error::NotVectile { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_shrinks_after_it_was_listed_is_an_error() {
    let (_, bytes) = small_file().await;
    let store = store_of(bytes.clone()).await;
    let object = store.head(&location()).await.unwrap();
    let metadata = metadata_of(&store).await.unwrap();
    store
        .put(&location(), bytes[..200].to_vec().into())
        .await
        .unwrap();
    assert!(read_metadata(&store, &object).await.is_err());
    let fetch = Fetch {
        data: vec![0, 1, 2],
        ..Fetch::default()
    };
    let options = ReadOptions::default();
    assert!(
        read_row_group(&store, &location(), &metadata, &fetch, &options)
            .await
            .is_err()
    );
    store.delete(&location()).await.unwrap();
    let error = read_metadata(&store, &object).await.unwrap_err();
    assert!(matches!(error, Error::ObjectStore(_)), "{error}");
}
