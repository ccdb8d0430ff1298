//! The pages of a column chunk, from their headers: whether all values are in a dictionary, and whether the sizes are
//! such that the `parquet` crate may allocate them.
//!
//! ```text
//! chunk    page, page, ..: a dictionary page first, if there is one
//! page     header (Thrift), its compressed bytes
//! ```

use std::ops::Range;

use parquet::file::metadata::ColumnChunkMetaData;

use crate::error::{Fault, corrupt, ensure};
use crate::thrift::{Kind, Reader};

/// The most bytes by which a page may exceed the chunk's uncompressed size: some writers leave headers out of that.
const UNCOUNTED_BYTES: i64 = 1 << 20;

/// The most bytes and values of a page: headers count them in 32 bits.
const MOST: i64 = i32::MAX as i64;

/// The number of the encoding of levels.
const RLE: i64 = 3;

/// Page types.
mod page_types {
    pub(super) const DATA: i64 = 0;
    pub(super) const INDEX: i64 = 1;
    pub(super) const DICTIONARY: i64 = 2;
    pub(super) const DATA_V2: i64 = 3;
}

/// The encoding of the values of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageEncoding {
    Plain,
    /// Indices of entries of the chunk's dictionary.
    Dictionary,
    /// Booleans in runs.
    Rle,
    DeltaBinaryPacked,
    DeltaLengthByteArray,
    DeltaByteArray,
    ByteStreamSplit,
    /// One that this crate leaves to the `parquet` crate.
    Other,
}

impl PageEncoding {
    fn of(number: i64) -> Self {
        match number {
            0 => Self::Plain,
            2 | 8 => Self::Dictionary,
            3 => Self::Rle,
            5 => Self::DeltaBinaryPacked,
            6 => Self::DeltaLengthByteArray,
            7 => Self::DeltaByteArray,
            9 => Self::ByteStreamSplit,
            _ => Self::Other,
        }
    }
}

/// The kind of a page, and the place of its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// The entries of the chunk's dictionary.
    Dictionary,
    /// Levels and values are compressed together. Each kind of levels is preceded by its length in 4 bytes.
    Data,
    /// Levels precede the values, and are not compressed.
    DataV2 {
        /// Bytes of all levels: those of repetition, then those of definition.
        levels: usize,
        /// Bytes of the levels of definition.
        definition: usize,
        /// True if the values are compressed.
        is_compressed: bool,
    },
}

/// A page of a column chunk. All that it says comes from the file: only its range is known to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) kind: PageKind,
    pub(crate) encoding: PageEncoding,
    /// Its bytes in the chunk, behind the header.
    pub(crate) body: Range<usize>,
    /// Bytes of the body when it is inflated.
    pub(crate) inflated: usize,
    /// Its values, or entries, with nulls.
    pub(crate) values: usize,
    /// True if its levels of definition are in the encoding that writers use today.
    pub(crate) has_rle_levels: bool,
}

/// Facts from the page headers of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Entries of the dictionary, if there is one and all data pages refer to it.
    pub(crate) dictionary: Option<u64>,
    /// True if there is more than one dictionary, or one behind data. The format has neither.
    pub(crate) has_odd_dictionaries: bool,
    /// True if the lengths of strings are packed differences, which say how many there are.
    pub(crate) has_delta_lengths: bool,
    /// The pages in their order.
    pub(crate) pages: Vec<Page>,
}

impl Pages {
    /// The data pages in their order.
    pub(crate) fn data(&self) -> impl Iterator<Item = &Page> {
        let pages = self.pages.iter();
        pages.filter(|page| page.kind != PageKind::Dictionary)
    }

    /// Checks that the pages of a flat column have all rows of its row group.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`].
    pub(crate) fn check_rows(&self, rows: usize) -> Result<(), Fault> {
        let values = self.data().map(|page| page.values);
        let found = values.fold(0, usize::saturating_add);
        ensure(found == rows, || {
            format!("{found} rows in pages, {rows} in the row group")
        })
    }
}

#[derive(Debug)]
struct Header {
    page_type: i64,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
    /// The encoding of the levels of definition.
    definition_encoding: i64,
    definition_bytes: i64,
    repetition_bytes: i64,
    is_compressed: bool,
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut header = Self {
            page_type: -1,
            uncompressed: -1,
            compressed: -1,
            values: 0,
            encoding: -1,
            definition_encoding: RLE,
            definition_bytes: 0,
            repetition_bytes: 0,
            is_compressed: true,
        };
        reader.fields(|reader, id, kind| {
            let field = match (id, kind) {
                (1, Kind::Integer) => &mut header.page_type,
                (2, Kind::Integer) => &mut header.uncompressed,
                (3, Kind::Integer) => &mut header.compressed,
                (5 | 7 | 8, Kind::Struct) => {
                    header.read_kind(reader, id == 8)?;
                    return Ok(true);
                }
                _ => return Ok(false),
            };
            *field = reader.integer()?;
            Ok(true)
        })?;
        Ok(header)
    }

    /// Reads what a page of one kind says. Those of version 2 have counts of nulls and rows before the encoding.
    fn read_kind(&mut self, reader: &mut Reader<'_>, is_v2: bool) -> Result<(), Fault> {
        reader.fields(|reader, field, kind| {
            if let (7, true, Kind::Bool(value)) = (field, is_v2, kind) {
                self.is_compressed = value;
                return Ok(true);
            }
            let value = match (field, is_v2) {
                (1, _) => &mut self.values,
                (2, false) | (4, true) => &mut self.encoding,
                (3, false) => &mut self.definition_encoding,
                (5, true) => &mut self.definition_bytes,
                (6, true) => &mut self.repetition_bytes,
                _ => return Ok(false),
            };
            if kind != Kind::Integer {
                return Ok(false);
            }
            *value = reader.integer()?;
            Ok(true)
        })
    }

    /// The page with this body; `None` if it has no values.
    fn page(&self, body: Range<usize>) -> Result<Option<Page>, Fault> {
        let of_levels = |bytes: i64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let kind = match self.page_type {
            page_types::DATA => PageKind::Data,
            page_types::DATA_V2 => {
                let definition = of_levels(self.definition_bytes);
                let levels = definition.saturating_add(of_levels(self.repetition_bytes));
                ensure(levels <= body.len(), || {
                    format!("{levels} bytes of levels in a page of {}", body.len())
                })?;
                PageKind::DataV2 {
                    levels,
                    definition,
                    is_compressed: self.is_compressed,
                }
            }
            page_types::DICTIONARY => PageKind::Dictionary,
            page_types::INDEX => return Ok(None),
            other => return corrupt(format!("a page of type {other}")),
        };
        Ok(Some(Page {
            kind,
            encoding: PageEncoding::of(self.encoding),
            body,
            inflated: usize::try_from(self.uncompressed).unwrap_or(0),
            values: usize::try_from(self.values).unwrap_or(0),
            has_rle_levels: self.definition_encoding == RLE,
        }))
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
        let body = chunk.len() - rest.len() + reader.position()..chunk.len() - next.len();
        rest = next;
        let is_plausible = (0..=most_bytes.min(MOST)).contains(&header.uncompressed)
            && (0..=MOST).contains(&header.values);
        ensure(is_plausible, || format!("{header:?} in {most_bytes} bytes"))?;
        let Some(page) = header.page(body)? else {
            continue;
        };
        match page.kind {
            PageKind::Data | PageKind::DataV2 { .. } => {
                use PageEncoding::*;
                values = values.saturating_add(header.values);
                all_codes &= page.encoding == Dictionary;
                pages.has_delta_lengths |=
                    matches!(page.encoding, DeltaLengthByteArray | DeltaByteArray);
            }
            PageKind::Dictionary => {
                // entries are plain: each takes a byte at least
                ensure(header.values <= header.uncompressed, || {
                    format!("{} entries in {} bytes", header.values, header.uncompressed)
                })?;
                dictionary = Some(header.values as u64);
                pages.has_odd_dictionaries |= !pages.pages.is_empty();
            }
        }
        pages.pages.push(page);
    }
    let most_values = column.num_values().max(0);
    ensure(values <= most_values, || {
        format!("{values} values in pages, {most_values} in the chunk")
    })?;
    pages.dictionary = dictionary.filter(|_| all_codes && !pages.has_odd_dictionaries);
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
        assert_eq!((pages.dictionary, pages.has_delta_lengths), (None, false));
        let found: Vec<_> = pages
            .pages
            .iter()
            .map(|page| (page.kind, page.encoding, page.values))
            .collect();
        assert_eq!(
            found,
            [
                (PageKind::Dictionary, PageEncoding::Plain, 5),
                (PageKind::Data, PageEncoding::Dictionary, 4),
                (PageKind::Data, PageEncoding::Plain, 4),
            ]
        );
        assert!(
            pages
                .pages
                .iter()
                .all(|page| page.body.len() == 3 && page.has_rle_levels)
        );
        assert_eq!(check(&codes).unwrap().dictionary, None);
        let pages = check(&[&plain[..], &page(0, 9, 4, 7)].concat()).unwrap();
        assert!(pages.has_delta_lengths);
    }

    #[test]
    fn there_is_one_dictionary_in_front() {
        let (dictionary, codes) = (page(2, 30, 5, 0), page(0, 9, 4, 8));
        for pages in [
            [&dictionary[..], &codes, &dictionary, &codes].concat(),
            [&codes[..], &dictionary].concat(),
        ] {
            let pages = check(&pages).unwrap();
            assert!(pages.has_odd_dictionaries && pages.dictionary.is_none());
        }
        let usual = check(&[&dictionary[..], &codes].concat()).unwrap();
        assert!(!usual.has_odd_dictionaries);
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
