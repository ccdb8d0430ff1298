//! Checks of columns in streams, before they are decoded on the device: `assemble` decodes them.

use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use vectile_encodings::MAX_ROWS;
use vectile_encodings::streams::{
    ByteStream, DeflateChunk, Page, PageCompression, PageEncoding, Pages, RunPart, RunStream,
    StoredValue, StreamColumn, StreamValues,
};

use crate::error::{Error, Result};

/// Limit of the inflated bytes of a stream: offsets in it have 32 bits, including the sign.
const MOST_BYTES: usize = i32::MAX as usize;

fn unsupported<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(reason.into()))
}

/// Checks that lengths and parts are consistent. Streams may have any bytes.
pub(super) fn check(column: &StreamColumn) -> Result<()> {
    let nulls = column.nulls.as_ref().map_or(column.rows, NullBuffer::len);
    if nulls != column.rows || column.rows > MAX_ROWS {
        return unsupported(format!("{} rows, of nulls {nulls}", column.rows));
    }
    let values = column.values();
    match &column.values {
        StreamValues::Integers(stream) | StreamValues::Bytes(stream) => check_runs(stream, values),
        StreamValues::Codes { codes, .. } => check_runs(codes, values),
        StreamValues::Bits(stream) => check_runs(stream, values.div_ceil(8)),
        StreamValues::Decimals {
            digits: one,
            scales: other,
            ..
        }
        | StreamValues::Timestamps {
            seconds: one,
            nanoseconds: other,
            ..
        } => check_runs(one, values).and(check_runs(other, values)),
        StreamValues::Floats(stream) => check_bytes(stream),
        StreamValues::Strings { bytes, lengths } => {
            if lengths.len() != column.rows {
                return unsupported(format!("{} lengths", lengths.len()));
            }
            // memory is taken for these before anything is inflated
            let sum = lengths
                .iter()
                .fold(0u64, |sum, length| sum.saturating_add(*length));
            if sum > bytes.room() as u64 {
                return unsupported(format!("{sum} bytes of text in {}", bytes.room()));
            }
            check_bytes(bytes)
        }
        StreamValues::Pages(pages) => check_pages(pages, values, column.rows),
    }
}

fn check_pages(pages: &Pages, values: usize, rows: usize) -> Result<()> {
    let is_wide = |width| !(1..=8).contains(&width);
    let (is_wrong, is_plain) = match pages.stored {
        StoredValue::Signed(width) | StoredValue::Unsigned(width) => (is_wide(width), true),
        StoredValue::BigEndian(width) => (!(1..=16).contains(&width), true),
        StoredValue::Bits => (pages.entries.is_some(), true),
        StoredValue::Strings => (pages.entries.is_none(), false),
    };
    if is_wrong || pages.dictionary.len() > MOST_BYTES || pages.inflated_bytes() > MOST_BYTES {
        return unsupported(format!("pages of {:?}", pages.stored));
    }
    let is_right = |page: &Page| {
        let encoding = match page.encoding {
            PageEncoding::Plain => is_plain,
            PageEncoding::Indices => true,
            PageEncoding::Runs => pages.stored == StoredValue::Bits,
            PageEncoding::Differences => matches!(
                pages.stored,
                StoredValue::Signed(_) | StoredValue::Unsigned(_)
            ),
            PageEncoding::Planes => pages.stored.width().is_some(),
        };
        let size = match page.compression {
            PageCompression::None => page.inflated == page.bytes.len(),
            PageCompression::Deflate | PageCompression::Snappy => true,
        };
        let is_inside = pages.bytes.get(page.bytes.clone()).is_some();
        encoding
            && size
            && is_inside
            && page.bytes.len().max(page.inflated) <= MOST_BYTES
            && page.levels <= rows
    };
    let mut end = 0;
    for page in &pages.pages {
        if !is_right(page) || page.start != end {
            return unsupported(format!("{page:?} behind {end} values"));
        }
        end = end.saturating_add(page.count);
    }
    match end == values {
        true => Ok(()),
        false => unsupported(format!("pages of {end} values, where there are {values}")),
    }
}

/// Bytes of a decoded value of a column in pages.
pub(super) fn page_value_bytes(column: &StreamColumn) -> usize {
    match column.data_type {
        DataType::Float32 => 4,
        _ => 8,
    }
}

fn check_bytes(stream: &ByteStream) -> Result<()> {
    if stream.room() > MOST_BYTES {
        return unsupported(format!("a stream of {} bytes", stream.room()));
    }
    if let Some(deflated) = &stream.deflated {
        // the kernel writes 16 bytes at a time
        if deflated.block_bytes == 0 || !deflated.block_bytes.is_multiple_of(16) {
            return unsupported(format!("blocks of {} bytes", deflated.block_bytes));
        }
        let outside = |chunk: &&DeflateChunk| stream.bytes.get(chunk.bytes.clone()).is_none();
        if let Some(chunk) = deflated.chunks.iter().find(outside) {
            return unsupported(format!("a chunk at {:?}", chunk.bytes));
        }
    }
    Ok(())
}

fn check_runs(runs: &RunStream, values: usize) -> Result<()> {
    check_bytes(&runs.stream)?;
    let mut end = 0;
    for part in &runs.parts {
        let is_next = part.start <= end && part.offset <= runs.stream.room();
        let own_end = part.start.checked_add(part.count);
        let own_end = own_end.filter(|own_end| is_next && *own_end >= end);
        let Some(own_end) = own_end.filter(|_| part.skip <= MOST_BYTES) else {
            return unsupported(format!("{part:?} behind {end} values"));
        };
        end = own_end;
    }
    let begins = |part: &RunPart| (part.offset, part.skip, part.start) == (0, 0, 0);
    if end != values || !runs.parts.first().is_none_or(begins) {
        return unsupported(format!("parts of {end} values, where there are {values}"));
    }
    let pairs = runs.parts.iter().zip(runs.parts.iter().skip(1));
    if !pairs
        .into_iter()
        .all(|(part, next)| part.meets(next).is_some())
    {
        return unsupported("parts that do not follow each other");
    }
    Ok(())
}

/// The streams of runs of a column, and bytes of a decoded value of each.
pub(super) fn runs(column: &StreamColumn) -> [Option<(&RunStream, usize)>; 2] {
    match &column.values {
        StreamValues::Integers(one) | StreamValues::Codes { codes: one, .. } => {
            [Some((one, 8)), None]
        }
        StreamValues::Bits(one) | StreamValues::Bytes(one) => [Some((one, 1)), None],
        StreamValues::Decimals {
            digits: one,
            scales: other,
            ..
        }
        | StreamValues::Timestamps {
            seconds: one,
            nanoseconds: other,
            ..
        } => [Some((one, 8)), Some((other, 8))],
        StreamValues::Floats(_) | StreamValues::Strings { .. } | StreamValues::Pages(_) => {
            [None, None]
        }
    }
}

/// Estimates the bytes that decoding takes in addition to the column.
pub(super) fn scratch_bytes(column: &StreamColumn) -> usize {
    let runs = runs(column).into_iter().flatten();
    let runs = runs.map(|(stream, width)| {
        let values = stream.values().saturating_mul(width);
        stream.stream.room().saturating_add(values)
    });
    let bytes = match &column.values {
        StreamValues::Floats(stream) => stream.room(),
        StreamValues::Pages(pages) => {
            let values = pages.values().saturating_mul(page_value_bytes(column));
            let read = pages.bytes.len() + pages.dictionary.inner().len();
            values
                .saturating_add(pages.inflated_bytes())
                .saturating_add(read)
        }
        _ => 0,
    };
    runs.fold(bytes, usize::saturating_add)
}
