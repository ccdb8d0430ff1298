//! Damaged files: an error with its position, or other values; never more.

use std::fs;

use vectile_orc::{Error, Result, StreamKind};

use crate::support::{data, open, read};

fn golden(name: &str) -> Vec<u8> {
    fs::read(data().join(name)).unwrap()
}

/// Reads everything, statistics and Bloom filters included.
async fn read_all(bytes: Vec<u8>) -> Result<usize> {
    let file = open(bytes).await?;
    let rows = read(&file).await?;
    Ok(rows.num_rows())
}

#[tokio::test]
async fn what_is_no_orc_file_is_refused() {
    for bytes in [
        vec![],
        vec![3],
        b"ORC".to_vec(),
        vec![0; 1000],
        b"PAR1 but no more, PAR1".to_vec(),
    ] {
        let error = open(bytes).await.unwrap_err();
        assert!(matches!(error, Error::NotOrc { .. }), "{error}");
    }
}

#[tokio::test]
async fn truncated_files_are_refused() {
    let whole = golden("types.v2-snappy.orc");
    for cut in [1, 2, 30, 1000, whole.len() / 2] {
        assert!(open(whole[..whole.len() - cut].to_vec()).await.is_err());
        assert!(open(whole[cut..].to_vec()).await.is_err() || cut < 30);
    }
}

#[tokio::test]
async fn errors_name_stripe_column_and_stream() {
    let mut bytes = golden("types.v1-zlib.orc");
    let file = open(bytes.clone()).await.unwrap();
    let column = file.metadata().schema().index_of("text").unwrap();
    let number = file.metadata().root().children[column].column;
    let mut streams = file.metadata().stripes()[0].streams.iter();
    let lengths =
        streams.find(|stream| stream.column == number && stream.kind == StreamKind::Length);
    let start = lengths.unwrap().bytes.start as usize;
    // a chunk that is longer than its stream
    bytes[start + 2] = 0x40;
    let error = open(bytes)
        .await
        .unwrap()
        .decode(0, &[column])
        .await
        .unwrap_err()
        .to_string();
    let place = "corrupt file t.orc, stripe 0, column 'text', stream LENGTH: a chunk of ";
    assert!(error.starts_with(place), "{error}");
}

#[tokio::test]
async fn any_byte_may_be_wrong() {
    for name in [
        "types.v1-none.orc",
        "types.v1-zlib.orc",
        "types.v2-lz4.orc",
        "integers.v2-none.orc",
    ] {
        let whole = golden(name);
        let mut errors = 0;
        for at in (0..whole.len()).step_by(whole.len() / 150) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            match read_all(bytes).await {
                Ok(_) => (),
                Err(Error::Corrupt { .. } | Error::Unsupported { .. } | Error::NotOrc { .. }) => {
                    errors += 1
                }
                Err(error) => panic!("{name}, byte {at}: {error}"),
            }
        }
        assert!(errors > 0, "{name}");
    }
}
