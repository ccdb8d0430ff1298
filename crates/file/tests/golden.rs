//! Files of released format versions are read forever. `tests/golden/version-N` holds files as
//! version N was written; they are only ever added to:
//!
//! ```sh
//! cargo test -p vectile-file --test golden -- --ignored
//! ```
//!
//! writes those of the current version. Do that for a new version, never to make a test pass.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::*;
use common::*;
use vectile_encodings::Encoding;
use vectile_file::*;

fn path(version: u32, name: &str) -> PathBuf {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden.join(format!("version-{version}")).join(name)
}

/// A whole vector and a short one; the table has some rows more.
const ROW_GROUP_ROWS: usize = 1060;

/// A column for each encoding.
fn encodings() -> (RecordBatch, HashMap<String, Encoding>) {
    let rows = 1100;
    // The high bits of a product: scattered, and equal on all platforms.
    let scattered = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let ints = |of: &dyn Fn(usize) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(
            (0..rows).map(|i| (i % 10 != 3).then(|| of(i))),
        ))
    };
    let floats = |of: &dyn Fn(usize) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..rows).map(of)))
    };
    let words = |of: &dyn Fn(usize) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows).map(of)))
    };
    let same: ArrayRef = Arc::new(Int64Array::from(vec![7; rows]));
    let columns = [
        ("constant", same),
        ("plain", ints(&|i| scattered(i) as i64)),
        (
            "ffor",
            ints(&|i| -5_000_000_000 + (scattered(i) % 500) as i64),
        ),
        ("delta", ints(&|i| 1_600_000_000 + i as i64 * 60)),
        ("rle", ints(&|i| i as i64 / 30)),
        ("dict", words(&|i| format!("station {}", scattered(i) % 7))),
        ("alp", floats(&|i| (scattered(i) % 10_000) as f64 / 100.0)),
        ("alp_rd", floats(&|i| 1.0 + scattered(i) as f64 / 1e9)),
        (
            "fsst",
            words(&|i| format!("https://example.org/{:x}", scattered(i))),
        ),
    ];
    let pins = columns
        .iter()
        .map(|(name, _)| (name.to_string(), name.parse().unwrap()))
        .collect();
    (RecordBatch::try_from_iter(columns).unwrap(), pins)
}

/// Text and binary in an encoding added to version 1 after its first files were written.
fn onpair() -> (RecordBatch, HashMap<String, Encoding>) {
    let words = ["final ", "requests ", "sleep. ", "", "Grüße ", "even "];
    let word =
        |i: usize| words[((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % 6];
    let line = |i: usize| -> String { (0..i % 9).map(|k| word(i * 9 + k)).collect() };
    let text = (0..1100).map(|i| (i % 10 != 3).then(|| line(i)));
    let bytes = (0..1100).map(|i| [line(i).into_bytes(), vec![0, 255, i as u8]].concat());
    let columns: [(_, ArrayRef); 2] = [
        ("text", Arc::new(StringViewArray::from_iter(text))),
        ("bytes", Arc::new(BinaryArray::from_iter_values(bytes))),
    ];
    let pins = columns
        .iter()
        .map(|(name, _)| (name.to_string(), Encoding::OnPair));
    (
        RecordBatch::try_from_iter(columns.clone()).unwrap(),
        pins.collect(),
    )
}

/// Integers in the encodings that version 2 added, of 32 bits and wider, and columns of few nulls.
fn integers() -> (RecordBatch, HashMap<String, Encoding>) {
    let rows = 1100;
    let scattered = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let ints = |nulls: usize, of: &dyn Fn(usize) -> i64| -> ArrayRef {
        let value = |i: usize| (i % nulls != nulls - 1).then(|| of(i));
        Arc::new(Int64Array::from_iter((0..rows).map(value)))
    };
    let columns = [
        (
            "gpu_for",
            ints(10, &|i| (scattered(i) % (2 << (i / 32 % 5))) as i64 - 9),
        ),
        (
            "gpu_for wide",
            ints(500, &|i| (scattered(i) as i64) << (i / 40 % 30)),
        ),
        ("gpu_dfor", ints(9, &|i| 70 * i as i64 - (i as i64 % 7))),
        ("gpu_dfor wide", ints(300, &|i| (i as i64) << 33)),
        ("gpu_rfor", ints(500, &|i| i as i64 / 30)),
        ("gpu_rfor wide", ints(8, &|i| (i as i64 / 7) << 40)),
        (
            "sparse",
            ints(600, &|i| if i % 99 == 5 { i as i64 } else { 7 }),
        ),
    ];
    let pin = |name: &str| name.split(' ').next().unwrap().parse().unwrap();
    let pins = columns
        .iter()
        .map(|(name, _)| (name.to_string(), pin(name)))
        .collect();
    (RecordBatch::try_from_iter(columns).unwrap(), pins)
}

fn types() -> RecordBatch {
    every_type(40)
}

#[tokio::test]
async fn every_encoding_of_every_version_is_read() {
    for version in 1..=FORMAT_VERSION {
        let bytes = std::fs::read(path(version, "encodings.vectile")).unwrap();
        let (metadata, batches) = read(bytes).await.unwrap();
        let (table, _) = encodings();
        assert_eq!(metadata.version(), version);
        assert_eq!(metadata.num_row_groups(), 2);
        for group in metadata.row_groups() {
            for (chunk, field) in group.columns.iter().zip(table.schema().fields()) {
                let name = chunk.encoding.split('(').next();
                assert_eq!(name, Some(field.name().as_str()));
            }
        }
        assert_eq!(metadata.schema(), &table.schema());
        assert!(joined(&table.schema(), &batches) == table);
    }
}

#[tokio::test]
async fn onpair_of_every_version_is_read() {
    for version in 1..=FORMAT_VERSION {
        let bytes = std::fs::read(path(version, "onpair.vectile")).unwrap();
        let (metadata, batches) = read(bytes).await.unwrap();
        let (table, _) = onpair();
        let groups = metadata.row_groups().iter();
        for chunk in groups.flat_map(|group| &group.columns) {
            assert!(chunk.encoding.starts_with("onpair("), "{}", chunk.encoding);
        }
        assert!(joined(&table.schema(), &batches) == table);
    }
}

#[tokio::test]
async fn every_type_of_every_version_is_read() {
    for version in 1..=FORMAT_VERSION {
        let bytes = std::fs::read(path(version, "types.vectile")).unwrap();
        let (metadata, batches) = read(bytes).await.unwrap();
        assert_eq!(metadata.schema(), &types().schema());
        let read = joined(metadata.schema(), &batches);
        for (index, column) in types().columns().iter().enumerate() {
            let same = plain(read.column(index)).to_data() == plain(column).to_data();
            assert!(same, "{}", metadata.schema().field(index).name());
        }
    }
}

#[tokio::test]
async fn integers_of_version_2_are_read() {
    let bytes = std::fs::read(path(2, "integers.vectile")).unwrap();
    let (metadata, batches) = read(bytes).await.unwrap();
    let (table, _) = integers();
    for group in metadata.row_groups() {
        for (chunk, field) in group.columns.iter().zip(table.schema().fields()) {
            let (name, pin) = (chunk.encoding.split('('), field.name().split(' '));
            assert!(name.take(1).eq(pin.take(1)), "{field} {}", chunk.encoding);
        }
    }
    assert!(joined(&table.schema(), &batches) == table);
}

#[tokio::test]
async fn compressed_data_of_version_2_are_read() {
    let bytes = std::fs::read(path(2, "compressed.vectile")).unwrap();
    let (metadata, batches) = read(bytes).await.unwrap();
    for chunk in &metadata.row_group(0).columns {
        assert_eq!(chunk.compression, Compression::Zstd);
    }
    let table = repeated(100, 30);
    assert!(joined(&table.schema(), &batches) == table);
}

#[tokio::test]
#[ignore = "writes the files of the current format version"]
async fn write_the_files_of_this_version() {
    let (table, pins) = encodings();
    let options = rows_per_group(ROW_GROUP_ROWS).with_pins(pins);
    let (encodings, _) = write(table.schema(), &[table], options).await.unwrap();
    let (types, _) = write(types().schema(), &[types()], WriterOptions::default())
        .await
        .unwrap();
    let (table, pins) = integers();
    let options = rows_per_group(ROW_GROUP_ROWS).with_pins(pins);
    let (integers, _) = write(table.schema(), &[table], options).await.unwrap();
    let (table, pins) = onpair();
    let options = rows_per_group(ROW_GROUP_ROWS).with_pins(pins);
    let (onpair, _) = write(table.schema(), &[table], options).await.unwrap();
    let options = WriterOptions::default().with_compression(Compression::Zstd);
    let table = repeated(100, 30);
    let (compressed, _) = write(table.schema(), &[table], options).await.unwrap();
    for (name, bytes) in [
        ("compressed.vectile", compressed),
        ("encodings.vectile", encodings),
        ("integers.vectile", integers),
        ("onpair.vectile", onpair),
        ("types.vectile", types),
    ] {
        let path = path(FORMAT_VERSION, name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
