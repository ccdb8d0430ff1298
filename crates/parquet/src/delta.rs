//! Counts of packed differences, which precede strings in two encodings. The `parquet` crate allocates as many lengths
//! as they claim.
//!
//! ```text
//! header   varints: values of a block, miniblocks of a block, values; zigzag varint: the first value
//! block    zigzag varint: the least difference; a width for each miniblock; the miniblocks that have values
//! ```

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use crate::chunks::Chunks;
use crate::error::{Fault, corrupt, ensure};
use crate::thrift::Reader;

/// Checks the counts in the pages of a chunk.
///
/// # Errors
///
/// [`Fault::Corrupt`] if a page claims to have more lengths than values, and errors of decompression.
pub(crate) fn check(
    chunks: &Chunks,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Result<(), Fault> {
    let chunks = Arc::new(chunks.clone());
    let mut pages = SerializedPageReader::new(chunks, column, rows, None)?;
    while let Some(page) = pages.get_next_page()? {
        let (encoding, values) = (page.encoding(), page.num_values() as usize);
        if !matches!(
            encoding,
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
        ) {
            continue;
        }
        // pages with other levels than these are refused by the decoder
        let Some(data) = values_of(&page, column) else {
            continue;
        };
        let end = check_counts(data, values)?;
        if encoding == Encoding::DELTA_BYTE_ARRAY {
            check_counts(data.get(end..).unwrap_or_default(), values)?;
        }
    }
    Ok(())
}

/// The bytes of a data page after its levels.
fn values_of<'a>(page: &'a Page, column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    match page {
        Page::DataPage {
            buf,
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let descr = column.column_descr();
            let levels = [
                (descr.max_rep_level(), *rep_level_encoding),
                (descr.max_def_level(), *def_level_encoding),
            ];
            levels.iter().try_fold(&buf[..], |rest, &(max, encoding)| {
                let bits = 16 - max.leading_zeros() as usize;
                let bytes = match encoding {
                    _ if max <= 0 => 0,
                    Encoding::RLE => {
                        let (len, _) = rest.split_first_chunk()?;
                        (u32::from_le_bytes(*len) as usize).checked_add(4)?
                    }
                    _ => (*num_values as usize * bits).div_ceil(8),
                };
                rest.get(bytes..)
            })
        }
        Page::DataPageV2 {
            buf,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = def_levels_byte_len.checked_add(*rep_levels_byte_len)?;
            buf.get(levels as usize..)
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// Checks that `data` starts with at most `most` packed differences, and returns their end.
fn check_counts(data: &[u8], most: usize) -> Result<usize, Fault> {
    let mut reader = Reader::new(data);
    let block = reader.varint()?;
    let miniblocks = reader.varint()?;
    let values = reader.varint()?;
    reader.integer()?;
    ensure(values <= most as u64, || {
        format!("{values} lengths of {most} values")
    })?;
    let per_miniblock = block.checked_div(miniblocks).unwrap_or(0);
    ensure(per_miniblock > 0 && per_miniblock.is_multiple_of(8), || {
        format!("{miniblocks} miniblocks of {block} values")
    })?;
    let mut at = reader.position();
    let mut left = values.saturating_sub(1);
    while left > 0 {
        let rest = data.get(at..).unwrap_or_default();
        let mut reader = Reader::new(rest);
        reader.integer()?;
        let start = reader.position();
        let end = usize::try_from(miniblocks).ok();
        let widths = end.and_then(|len| rest.get(start..)?.get(..len));
        let Some(widths) = widths else {
            return corrupt(format!("{miniblocks} widths in {} bytes", rest.len()));
        };
        at += start + widths.len();
        for &width in widths {
            if left == 0 {
                break;
            }
            let bytes = (per_miniblock / 8).saturating_mul(width.into());
            at = at.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
            left = left.saturating_sub(per_miniblock);
        }
    }
    Ok(at.min(data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_bounded_and_ends_found() {
        // blocks of 128 values in 4 miniblocks: 40 values take two, of widths 1 and 2
        let mut bytes = vec![0x80, 1, 4, 40, 6, 0, 1, 2, 0, 0];
        bytes.extend([0; 4 + 8]);
        let len = bytes.len();
        bytes.extend([7; 20]);
        assert_eq!(check_counts(&bytes, 40), Ok(len));
        assert!(check_counts(&bytes, 39).is_err());
        assert_eq!(check_counts(&[0x80, 1, 4, 1, 6], 1), Ok(5));
        for len in 0..10 {
            assert!(check_counts(&bytes[..len], 40).is_err());
        }
        assert!(check_counts(&[0, 0, 1, 6], 40).is_err());
    }
}
