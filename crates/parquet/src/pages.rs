//! The pages of a column chunk, from their headers: whether all values are in a dictionary, and whether the sizes are
//! such that the `parquet` crate may allocate them.
//!
//! ```text
//! chunk    page, page, ..: a dictionary page first, if there is one
//! page     header (Thrift), its compressed bytes
//! ```

use parquet::file::metadata::ColumnChunkMetaData;

use crate::error::{Fault, corrupt, ensure};
use crate::thrift::{Kind, Reader};

/// The most bytes by which a page may exceed the chunk's uncompressed size: some writers leave headers out of that.
const UNCOUNTED_BYTES: i64 = 1 << 20;

/// Page types.
mod page_types {
    pub(super) const DATA: i64 = 0;
    pub(super) const INDEX: i64 = 1;
    pub(super) const DICTIONARY: i64 = 2;
    pub(super) const DATA_V2: i64 = 3;
}

/// Encodings of pages.
mod encodings {
    pub(super) const PLAIN_DICTIONARY: i64 = 2;
    pub(super) const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
    pub(super) const DELTA_BYTE_ARRAY: i64 = 7;
    pub(super) const RLE_DICTIONARY: i64 = 8;
}

/// Facts from the page headers of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Entries of the dictionary, if there is one and all data pages refer to it.
    pub(crate) dictionary: Option<u64>,
    /// True if the lengths of strings are packed differences, which say how many there are.
    pub(crate) has_delta_lengths: bool,
}

#[derive(Debug, Default)]
struct Header {
    page_type: i64,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut header = Self {
            page_type: -1,
            uncompressed: -1,
            compressed: -1,
            values: 0,
            encoding: -1,
        };
        reader.fields(|reader, id, kind| {
            let field = match (id, kind) {
                (1, Kind::Integer) => &mut header.page_type,
                (2, Kind::Integer) => &mut header.uncompressed,
                (3, Kind::Integer) => &mut header.compressed,
                (5 | 7 | 8, Kind::Struct) => {
                    // the third kind of pages has counts of nulls and rows before the encoding
                    let encoding = if id == 8 { 4 } else { 2 };
                    reader.fields(|reader, field, kind| match kind {
                        Kind::Integer if field == 1 => {
                            header.values = reader.integer()?;
                            Ok(true)
                        }
                        Kind::Integer if field == encoding => {
                            header.encoding = reader.integer()?;
                            Ok(true)
                        }
                        _ => Ok(false),
                    })?;
                    return Ok(true);
                }
                _ => return Ok(false),
            };
            *field = reader.integer()?;
            Ok(true)
        })?;
        Ok(header)
    }
}

/// Checks the headers of the pages in a chunk, whose metadata is `column`.
///
/// # Errors
///
/// [`Fault::Corrupt`] if pages are not within the chunk, or their sizes are not plausible.
pub(crate) fn check(chunk: &[u8], column: &ColumnChunkMetaData) -> Result<Pages, Fault> {
    let most_bytes = column.uncompressed_size().saturating_add(UNCOUNTED_BYTES);
    let mut pages = Pages::default();
    let (mut all_codes, mut dictionary, mut values) = (true, None, 0i64);
    let mut rest = chunk;
    while !rest.is_empty() {
        let mut reader = Reader::new(rest);
        let header = match Header::read(&mut reader) {
            Ok(header) => header,
            // bytes after the last page belong to no page
            Err(_) if values >= column.num_values() => break,
            Err(fault) => return Err(fault),
        };
        let end = usize::try_from(header.compressed).ok();
        let end = end.and_then(|bytes| bytes.checked_add(reader.position()));
        let Some(next) = end.and_then(|end| rest.get(end..)) else {
            return corrupt(format!(
                "a page of {} bytes, {} are left",
                header.compressed,
                rest.len() - reader.position()
            ));
        };
        rest = next;
        let is_plausible = (0..=most_bytes).contains(&header.uncompressed) && header.values >= 0;
        ensure(is_plausible, || format!("{header:?} in {most_bytes} bytes"))?;
        match header.page_type {
            page_types::DATA | page_types::DATA_V2 => {
                use encodings::*;
                values = values.saturating_add(header.values);
                all_codes &= matches!(header.encoding, PLAIN_DICTIONARY | RLE_DICTIONARY);
                pages.has_delta_lengths |=
                    matches!(header.encoding, DELTA_LENGTH_BYTE_ARRAY | DELTA_BYTE_ARRAY);
            }
            page_types::DICTIONARY => {
                // entries are plain: each takes a byte at least
                ensure(header.values <= header.uncompressed, || {
                    format!("{} entries in {} bytes", header.values, header.uncompressed)
                })?;
                dictionary = Some(header.values as u64);
            }
            page_types::INDEX => (),
            other => return corrupt(format!("a page of type {other}")),
        }
    }
    let most_values = column.num_values().max(0);
    ensure(values <= most_values, || {
        format!("{values} values in pages, {most_values} in the chunk")
    })?;
    pages.dictionary = dictionary.filter(|_| all_codes);
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    /// A page of these sizes, with a header of type 0 or 2.
    fn page(page_type: u8, uncompressed: u8, values: u8, encoding: u8) -> Vec<u8> {
        let header = match page_type {
            0 => 0x2C,
            _ => 0x4C,
        };
        let mut bytes = vec![0x15, page_type * 2, 0x15, uncompressed * 2, 0x15, 6];
        bytes.extend([header, 0x15, values * 2, 0x15, encoding * 2, 0, 0]);
        bytes.extend([0xAB; 3]);
        bytes
    }

    fn check(chunk: &[u8]) -> Result<Pages, Fault> {
        let schema = parse_message_type("message m { required binary a; }").unwrap();
        let schema = SchemaDescriptor::new(Arc::new(schema));
        let chunk_metadata = ColumnChunkMetaData::builder(schema.column(0))
            .set_num_values(8)
            .set_total_uncompressed_size(40)
            .build();
        super::check(chunk, &chunk_metadata.unwrap())
    }

    #[test]
    fn chunks_are_dictionaries_if_all_their_data_pages_are() {
        let dictionary = page(2, 30, 5, 0);
        let (codes, plain) = (page(0, 9, 4, 8), page(0, 9, 4, 0));
        let pages = check(&[&dictionary[..], &codes, &codes].concat()).unwrap();
        assert_eq!(pages.dictionary, Some(5));
        let pages = check(&[&dictionary[..], &codes, &plain].concat()).unwrap();
        assert_eq!(pages, Pages::default());
        assert_eq!(check(&codes).unwrap().dictionary, None);
        let pages = check(&[&plain[..], &page(0, 9, 4, 7)].concat()).unwrap();
        assert!(pages.has_delta_lengths);
    }

    #[test]
    fn sizes_are_plausible() {
        let (codes, entries) = (page(0, 9, 4, 8), page(2, 30, 31, 0));
        assert!(check(&entries).is_err());
        assert!(check(&codes[..codes.len() - 1]).is_err());
        assert!(check(&[&codes[..], &codes, &codes].concat()).is_err());
        assert!(check(&page(5, 9, 4, 8)).is_err());
        // padding
        assert!(check(&[&codes[..], &codes, &[0xFF]].concat()).is_ok());
        assert!(check(&[&codes[..], &[0xFF]].concat()).is_err());
    }
}
