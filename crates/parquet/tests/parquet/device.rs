//! Pages decoded by the kernels of `kernels/parquet` and inflated by those of `kernels/inflate`, on a CPU instead of a GPU:
//! the same values as from the decoders, and a fault where pages are damaged.

use std::collections::BTreeMap;

use arrow::array::UInt64Array;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Int64Type};
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use vectile_emulator::{Job, JobKernel, Jobs};
use vectile_encodings::streams::{Page, PageCompression, Pages, StreamColumn, StreamValues};
use vectile_kernels::{
    DECODE_PAGES, DataPage, INFLATE, INFLATE_SNAPPY, INFLATE_SNAPPY_WARP_BYTES, INFLATE_WARP_BYTES,
    PageCode,
};
use vectile_scan::{Container, Fetch, FileContainer};

use crate::support::{Draws, all_types, open, write};

const ROWS: usize = 5000;

fn jobs() -> Option<Jobs> {
    let jobs = Jobs::new().inspect_err(|error| eprintln!("skipped: {error}"));
    jobs.ok()
}

/// Inflates bytes to exactly `room`; `None` on a fault.
fn inflate(
    jobs: &mut Jobs,
    compression: PageCompression,
    inputs: &[(Vec<u8>, usize)],
) -> Vec<Option<Vec<u8>>> {
    let (source, name, warp_bytes) = match compression {
        PageCompression::Snappy => (
            INFLATE_SNAPPY.concat(),
            "inflate_snappy",
            INFLATE_SNAPPY_WARP_BYTES,
        ),
        _ => (INFLATE.concat(), "inflate", INFLATE_WARP_BYTES),
    };
    let kernel = JobKernel {
        source: &source,
        name,
        warp_bytes,
        result_words: 2,
        more: &[],
    };
    let all = inputs.iter().map(|(input, room)| Job {
        input: input.clone(),
        room: *room,
        words: vec![input.len() as u32, *room as u32, 0, 0],
        ..Job::default()
    });
    let done = jobs.run(kernel, &all.collect::<Vec<_>>()).unwrap();
    let done = done.into_iter().map(|done| {
        let is_whole = done.result == [done.output.len() as u32, 0];
        is_whole.then_some(done.output)
    });
    done.collect()
}

/// Decodes pages; `None` on a fault.
fn decode(
    jobs: &mut Jobs,
    pages: &Pages,
    inflated: &[(&Page, Vec<u8>)],
    width: usize,
) -> Vec<Option<Vec<u8>>> {
    let kernel = JobKernel {
        source: &DECODE_PAGES.concat(),
        name: "decode_pages",
        warp_bytes: 0,
        result_words: 1,
        more: &[],
    };
    let all = inflated.iter().map(|(page, bytes)| Job {
        input: bytes.clone(),
        from: 0,
        room: page.count * width,
        table: Some(pages.dictionary.inner().to_vec()),
        words: vec![
            bytes.len() as u32,
            page.count as u32,
            page.levels as u32,
            PageCode::of(page.encoding, pages.stored) as u32,
            pages.stored.width().unwrap_or(1),
            pages.dictionary.len() as u32,
            DataPage::flags_of(pages.stored, width),
            0,
        ],
    });
    let done = jobs.run(kernel, &all.collect::<Vec<_>>()).unwrap();
    let done = done
        .into_iter()
        .map(|done| (done.result == [0]).then_some(done.output));
    done.collect()
}

/// The values of a column, without nulls, as kernels have them; `None` if some have more than 64 bits.
fn values_of(array: &ArrayRef) -> Option<Vec<i64>> {
    let valid = (0..array.len() as u64).filter(|row| array.is_valid(*row as usize));
    let rows = UInt64Array::from_iter_values(valid);
    let array = take(array, &rows, None).unwrap();
    Some(match array.data_type() {
        DataType::Float32 => {
            let values = array
                .as_primitive::<arrow::datatypes::Float32Type>()
                .values();
            values.iter().map(|value| value.to_bits().into()).collect()
        }
        DataType::Float64 => {
            let values = array
                .as_primitive::<arrow::datatypes::Float64Type>()
                .values();
            values.iter().map(|value| value.to_bits() as i64).collect()
        }
        DataType::UInt64 => {
            let values = array
                .as_primitive::<arrow::datatypes::UInt64Type>()
                .values();
            values.iter().map(|value| *value as i64).collect()
        }
        DataType::Decimal128(_, _) => {
            let values = array
                .as_primitive::<arrow::datatypes::Decimal128Type>()
                .values();
            let values = values.iter().map(|value| i64::try_from(*value));
            values.collect::<Result<_, _>>().ok()?
        }
        _ => {
            let integers = cast(&array, &DataType::Int64)
                .or_else(|_| cast(&cast(&array, &DataType::Int32).unwrap(), &DataType::Int64));
            integers
                .unwrap()
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        }
    })
}

/// The pages of a column, inflated.
fn inflated<'a>(jobs: &mut Jobs, pages: &'a Pages) -> Vec<(&'a Page, Vec<u8>)> {
    let bytes = |page: &Page| pages.bytes[page.bytes.clone()].to_vec();
    let inflated = pages.pages.iter().map(|page| match page.compression {
        PageCompression::None => (page, bytes(page)),
        by => {
            let inflated = inflate(jobs, by, &[(bytes(page), page.inflated)]);
            (page, inflated.into_iter().next().unwrap().unwrap())
        }
    });
    inflated.collect()
}

fn kind(column: &StreamColumn, page: &Page) -> String {
    format!(
        "{:?} {:?} of {}",
        page.compression, page.encoding, column.data_type
    )
}

/// How files are written.
fn files() -> Vec<WriterProperties> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ];
    let mut files = vec![];
    for compression in compressions {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let builder = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_dictionary_page_size_limit(4000)
                    .set_data_page_row_count_limit(700)
                    .set_write_batch_size(100);
                files.push(builder.clone().build());
                if !dictionary {
                    let planes = ["i32", "u32", "i64", "f32", "f64", "decimal64"];
                    let planes = planes.iter().fold(builder, |builder, name| {
                        let path = parquet::schema::types::ColumnPath::from(*name);
                        builder.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT)
                    });
                    files.push(planes.build());
                }
            }
        }
    }
    files
}

#[tokio::test]
async fn pages_have_the_values_of_the_decoders() {
    let Some(mut jobs) = jobs() else { return };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut draws = Draws(7);
    let mut faults = 0;
    for (number, properties) in files().into_iter().enumerate() {
        let file = open(write(&all_types(ROWS, number as u64), properties))
            .await
            .unwrap();
        let all: Vec<usize> = (0..file.schema().fields().len()).collect();
        let streams = file.stream_columns(0, &all, None).await.unwrap();
        for (index, column) in streams.columns {
            let StreamValues::Pages(pages) = &column.values else {
                panic!("{column:?}");
            };
            let fetch = Fetch {
                row_group: 0,
                data: vec![index],
                ..Fetch::default()
            };
            let read = file.fetch(&fetch).await.unwrap().columns.swap_remove(index);
            let array = read.unwrap().decode(0..ROWS).unwrap();
            assert_eq!(
                column.nulls.as_ref(),
                array
                    .logical_nulls()
                    .filter(|nulls| nulls.null_count() > 0)
                    .as_ref()
            );
            let width = if column.data_type == DataType::Float32 {
                4
            } else {
                8
            };
            let expected = match &pages.entries {
                None => match values_of(&array) {
                    Some(values) => values,
                    None => {
                        let inflated = inflated(&mut jobs, pages);
                        let decoded = decode(&mut jobs, pages, &inflated, width);
                        assert!(decoded.contains(&None), "{}", column.data_type);
                        continue;
                    }
                },
                Some(entries) => {
                    let rank = |text: &ArrayRef| {
                        let text = cast(text, &DataType::Binary).unwrap();
                        let text = text.as_binary::<i32>().iter().flatten();
                        text.map(<[u8]>::to_vec).collect::<Vec<_>>()
                    };
                    let entries = rank(entries);
                    assert!(entries.is_sorted_by(|a, b| a < b));
                    let ranks = rank(&array).into_iter();
                    ranks
                        .map(|text| entries.binary_search(&text).unwrap() as i64)
                        .collect()
                }
            };
            let expected: Vec<u8> = expected
                .iter()
                .flat_map(|value| value.to_le_bytes()[..width].to_vec())
                .collect();
            let mut inflated = inflated(&mut jobs, pages);
            let decoded = decode(&mut jobs, pages, &inflated, width);
            for (decoded, (page, _)) in decoded.iter().zip(&inflated) {
                let kind = kind(&column, page);
                let own = &expected[page.start * width..][..page.count * width];
                assert!(decoded.as_deref() == Some(own), "{kind}: {page:?}");
                *seen.entry(kind).or_default() += 1;
            }
            // damaged pages are values or faults
            for (_, bytes) in &mut inflated {
                damage(bytes, &mut draws);
            }
            let decoded = decode(&mut jobs, pages, &inflated, width);
            faults += decoded.iter().filter(|decoded| decoded.is_none()).count();
        }
    }
    assert!(
        seen.len() > 150 && faults > 100,
        "{faults} faults, {seen:?}"
    );
    for name in [
        "Snappy Indices of Int64",
        "Deflate Planes of Float64",
        "None Differences of Int32",
        "Snappy Runs of Boolean",
    ] {
        assert!(seen.contains_key(name), "{name}: {seen:?}");
    }
}

/// Flips a few bits, or cuts bytes off.
fn damage(bytes: &mut Vec<u8>, draws: &mut Draws) {
    for _ in 0..draws.below(4) {
        if !bytes.is_empty() {
            let at = draws.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << draws.below(8);
        }
    }
    if draws.below(3) == 0 {
        bytes.truncate(draws.below(bytes.len() as u64 + 1) as usize);
    }
}

/// Bytes with matches near and far, and runs of literals.
fn text(draws: &mut Draws, most: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = vec![];
    let len = draws.below(most) as usize;
    while bytes.len() < len {
        let most = [4, 20, 90, 3000][draws.below(4) as usize];
        let count = 1 + draws.below(most) as usize;
        match draws.below(4) {
            0 => bytes.extend((0..count).map(|_| draws.below(256) as u8)),
            1 => bytes.extend((0..count).map(|_| draws.below(3) as u8)),
            _ if bytes.is_empty() => (),
            _ => {
                let far = bytes.len().min(1 << draws.below(18));
                let distance = 1 + draws.below(far as u64) as usize;
                for _ in 0..count {
                    bytes.push(bytes[bytes.len() - distance]);
                }
            }
        }
    }
    bytes
}

/// An element of each kind that encoders may use, which is more than they do: lengths in 1 to 4 bytes, distances in 4.
fn elements(draws: &mut Draws) -> (Vec<u8>, Vec<u8>) {
    let (mut elements, mut bytes): (Vec<u8>, Vec<u8>) = (vec![], vec![]);
    for _ in 0..draws.below(400) {
        let most = [8, 60, 300, 9000][draws.below(4) as usize];
        let length = 1 + draws.below(most) as usize;
        match draws.below(4) {
            kind @ 1..=3 if !bytes.is_empty() => {
                let far = bytes.len().min([0, 2047, 65_535, 1 << 20][kind as usize]);
                let distance = 1 + draws.below(far as u64) as usize;
                let length = if kind == 1 {
                    4 + length % 8
                } else {
                    1 + length % 64
                };
                match kind {
                    1 => elements.extend([
                        1 | (length as u8 - 4) << 2 | ((distance >> 8) as u8) << 5,
                        distance as u8,
                    ]),
                    2 => {
                        elements.push(2 | (length as u8 - 1) << 2);
                        elements.extend(&distance.to_le_bytes()[..2]);
                    }
                    _ => {
                        elements.push(3 | (length as u8 - 1) << 2);
                        elements.extend(&distance.to_le_bytes()[..4]);
                    }
                }
                for _ in 0..length {
                    bytes.push(bytes[bytes.len() - distance]);
                }
            }
            _ => {
                let least = match length {
                    0..=60 => 0,
                    61..=256 => 1,
                    _ => 2,
                };
                match least.max(draws.below(5) as usize) {
                    0 => elements.push((length as u8 - 1) << 2),
                    more => {
                        elements.push((59 + more as u8) << 2);
                        elements.extend(&(length - 1).to_le_bytes()[..more]);
                    }
                }
                let literal: Vec<u8> = (0..length).map(|_| draws.below(256) as u8).collect();
                elements.extend(&literal);
                bytes.extend(literal);
            }
        }
    }
    let mut chunk = vec![];
    let mut length = bytes.len();
    while length >= 128 {
        chunk.push(length as u8 | 128);
        length >>= 7;
    }
    chunk.push(length as u8);
    chunk.extend(elements);
    (chunk, bytes)
}

#[test]
fn snappy_is_inflated_as_on_the_cpu() {
    let Some(mut jobs) = jobs() else { return };
    let mut draws = Draws(3);
    let mut chunks = vec![];
    for number in 0..60 {
        let bytes = text(&mut draws, 60_000 >> (number % 12));
        let compressed = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
        chunks.push((compressed, bytes.len()));
        let (compressed, bytes) = elements(&mut draws);
        chunks.push((compressed, bytes.len()));
    }
    for number in 0..120 {
        let (chunk, len) = chunks[number].clone();
        for _ in 0..3 {
            let mut damaged = chunk.clone();
            damage(&mut damaged, &mut draws);
            chunks.push((damaged, len));
        }
        chunks.push((chunk, len + 1));
    }
    let (mut right, mut faults) = (0, 0);
    let actual = inflate(&mut jobs, PageCompression::Snappy, &chunks);
    for ((chunk, len), actual) in chunks.iter().zip(actual) {
        let expected = snap::raw::Decoder::new().decompress_vec(chunk).ok();
        let expected = expected.filter(|expected| expected.len() == *len);
        assert!(actual == expected, "{len} bytes of {chunk:?}");
        match expected {
            Some(_) => right += 1,
            None => faults += 1,
        }
    }
    assert!(right > 120 && faults > 150, "{right} and {faults}");
}

/// The kernels touch nothing but their input and output.
#[test]
fn kernels_are_clean_under_sanitizers() {
    if jobs().is_none() {
        return;
    }
    for test in [
        "device::snappy_is_inflated_as_on_the_cpu",
        "device::pages_have_the_values_of_the_decoders",
    ] {
        if let Err(error) = vectile_emulator::run_sanitized_self(test) {
            eprintln!("skipped: {error}");
        }
    }
}
