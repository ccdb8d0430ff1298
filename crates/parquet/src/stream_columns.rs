//! Columns in their pages, for decoders on a device: pages as they are in the file, or inflated here if the device does
//! not know their codec.
//!
//! Small data is decoded here: dictionaries, and levels that a device may not see before rows are laid out.

use std::ops::Range;

use arrow::array::ArrayRef;
use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;
use vectile_encodings::MAX_ROWS;
use vectile_encodings::streams::{
    Page as StreamPage, PageCompression, PageEncoding as StreamEncoding, Pages as StreamPages,
    StoredValue, StreamColumn, StreamValues,
};
use vectile_scan::object::{ReadBuffers, filled};

use crate::codes::MAX_ENTRIES;
use crate::error::{Fault, corrupt, ensure, unsupported};
use crate::flat;
use crate::inflate::Inflater;
use crate::levels::Levels;
use crate::metadata::is_dictionary;
use crate::pages::{self, Page, PageEncoding, PageKind, Pages};
use crate::plain::Form;
use crate::schema::TableColumn;
use crate::values::{Kind, prefixed};

/// The most bytes of a page that a device inflates, which one warp does: some 60 MB a second. A larger page would take
/// longer than all of its row group by threads of the CPU.
const MOST_PAGE_BYTES: usize = 256 << 10;

/// The most bytes of pages that are inflated here: devices take no more.
const MOST_BYTES: usize = i32::MAX as usize;

/// The most bytes by which the pages of a chunk may exceed its uncompressed size.
const UNCOUNTED_BYTES: usize = 1 << 20;

/// Returns true if devices may decode the column.
pub(crate) fn is_supported(column: &TableColumn, chunk: &ColumnChunkMetaData) -> bool {
    column.unsupported.is_none()
        && stored(column, chunk).is_some()
        && Inflater::new(chunk.compression()).is_some()
}

/// Returns true if devices inflate the pages of a chunk, unless they have nulls or are large.
pub(crate) fn is_inflated_on_device(chunk: &ColumnChunkMetaData) -> bool {
    use Compression::{GZIP, SNAPPY, UNCOMPRESSED};
    matches!(chunk.compression(), UNCOMPRESSED | SNAPPY | GZIP(_))
}

/// The kind of values, and how devices read them; `None` if they do not.
fn stored(column: &TableColumn, chunk: &ColumnChunkMetaData) -> Option<(Kind, StoredValue)> {
    let kind = flat::kind_of(column, chunk, is_dictionary(chunk))?;
    let stored = match kind {
        Kind::Bits => StoredValue::Bits,
        Kind::Codes => StoredValue::Strings,
        Kind::Strings => return None,
        // a device leaves integers beyond their type to the CPU, which cuts them
        Kind::Fixed(form) | Kind::Float(form) => match form {
            Form::I8 | Form::I16 | Form::I32 => StoredValue::Signed(4),
            Form::U8 | Form::U16 | Form::U32 => StoredValue::Unsigned(4),
            Form::I64 => StoredValue::Signed(8),
            Form::BigEndian(length) => StoredValue::BigEndian(u32::try_from(length).ok()?),
        },
    };
    Some((kind, stored))
}

/// The column in its pages; `None` if a device cannot decode it. The chunk's bytes are `bytes`; pages that are inflated
/// here go to `buffers`.
///
/// # Errors
///
/// [`Fault::Corrupt`].
pub(crate) fn of(
    column: &TableColumn,
    chunk: &ColumnChunkMetaData,
    bytes: &Bytes,
    rows: usize,
    buffers: Option<&dyn ReadBuffers>,
) -> Result<Option<StreamColumn>, Fault> {
    let inflater = Inflater::new(chunk.compression());
    let Some(((kind, stored), inflater)) = stored(column, chunk).zip(inflater) else {
        return Ok(None);
    };
    let pages = pages::check(bytes, chunk)?;
    pages.check_rows(rows)?;
    if rows > MAX_ROWS || pages.has_odd_dictionaries {
        return Ok(None);
    }
    let is_large = pages.dictionary.is_none_or(|entries| entries > MAX_ENTRIES);
    if kind == Kind::Codes && is_large {
        return Ok(None);
    }
    let null_count = chunk
        .statistics()
        .and_then(|statistics| statistics.null_count_opt());
    let mut splitter = Splitter {
        column,
        chunk,
        bytes,
        kind,
        stored,
        inflater,
        levels: (chunk.column_descr().max_def_level() > 0).then(|| Levels::new(rows)),
        has_nulls: null_count != Some(0),
        values: 0,
    };
    splitter.split(&pages, rows, buffers)
}

/// A column being split into its pages.
struct Splitter<'a> {
    column: &'a TableColumn,
    chunk: &'a ColumnChunkMetaData,
    bytes: &'a Bytes,
    kind: Kind,
    stored: StoredValue,
    inflater: Inflater,
    /// The nulls so far, if values may be null.
    levels: Option<Levels>,
    /// False if statistics say that no value is null.
    has_nulls: bool,
    /// The number of values so far.
    values: usize,
}

/// A page's bytes, and how they are compressed.
struct Body {
    bytes: Range<usize>,
    compression: PageCompression,
    inflated: usize,
}

impl Splitter<'_> {
    fn split(
        &mut self,
        pages: &Pages,
        rows: usize,
        buffers: Option<&dyn ReadBuffers>,
    ) -> Result<Option<StreamColumn>, Fault> {
        let data: Vec<&Page> = pages.data().collect();
        let encodings: Option<Vec<StreamEncoding>> = data
            .iter()
            .map(|page| self.encoding(page.encoding))
            .collect();
        let has_rle_levels = data.iter().all(|page| page.has_rle_levels);
        let Some(encodings) = encodings.filter(|_| has_rle_levels || self.levels.is_none()) else {
            return Ok(None);
        };
        let (dictionary, entries) = self.dictionary(pages)?;
        let inflated = match self.is_inflated_here(&data) {
            true => Some(self.inflate(&data, buffers)?),
            false => None,
        };
        let mut at = 0;
        let mut split = Vec::with_capacity(data.len());
        for (page, encoding) in data.into_iter().zip(encodings) {
            let body = match &inflated {
                Some(inflated) => {
                    let start = at;
                    at += page.inflated;
                    inflated_body(page, inflated, start..at)?
                }
                None => match self.body(page)? {
                    Some(body) => body,
                    None => return Ok(None),
                },
            };
            split.push(self.page(page, body, encoding, inflated.as_ref())?);
        }
        Ok(Some(StreamColumn {
            data_type: self.column.data_type.clone(),
            rows,
            nulls: self.levels.take().and_then(Levels::finish),
            values: StreamValues::Pages(StreamPages {
                bytes: inflated.unwrap_or_else(|| self.bytes.clone()).into(),
                pages: split,
                stored: self.stored,
                dictionary: dictionary.into(),
                entries,
            }),
        }))
    }

    /// The encoding of values as devices know it.
    fn encoding(&self, encoding: PageEncoding) -> Option<StreamEncoding> {
        if !self.kind.reads(encoding) {
            return None;
        }
        Some(match encoding {
            PageEncoding::Plain => StreamEncoding::Plain,
            PageEncoding::Dictionary => StreamEncoding::Indices,
            PageEncoding::Rle => StreamEncoding::Runs,
            PageEncoding::DeltaBinaryPacked => StreamEncoding::Differences,
            PageEncoding::ByteStreamSplit => StreamEncoding::Planes,
            _ => return None,
        })
    }

    /// True if a device cannot inflate the pages, or would be slower, or levels are needed before it does.
    fn is_inflated_here(&self, pages: &[&Page]) -> bool {
        let has_unseen_levels = pages.iter().any(|page| page.kind == PageKind::Data)
            && self.levels.is_some()
            && self.has_nulls;
        let has_large_pages = pages.iter().any(|page| page.inflated > MOST_PAGE_BYTES);
        match self.chunk.compression() {
            Compression::UNCOMPRESSED => false,
            _ => has_unseen_levels || has_large_pages || !is_inflated_on_device(self.chunk),
        }
    }

    /// The data pages, inflated, one behind the other.
    fn inflate(
        &mut self,
        pages: &[&Page],
        buffers: Option<&dyn ReadBuffers>,
    ) -> Result<Bytes, Fault> {
        let sizes = pages.iter().map(|page| page.inflated);
        let all = sizes.fold(0, usize::saturating_add);
        let declared = usize::try_from(self.chunk.uncompressed_size()).unwrap_or(0);
        ensure(all <= declared.saturating_add(UNCOUNTED_BYTES), || {
            format!("{all} bytes in pages, {declared} in the chunk")
        })?;
        let bytes = self.bytes;
        if all > MOST_BYTES {
            return unsupported(format!("pages of {all} bytes"));
        }
        let inflater = &mut self.inflater;
        filled(buffers, all, |mut to| {
            for page in pages {
                let Some((own, others)) = to.split_at_mut_checked(page.inflated) else {
                    return corrupt("pages that are too large");
                };
                inflate_page(inflater, page, bytes, own)?;
                to = others;
            }
            Ok(all)
        })
    }

    /// A page in the file, whose levels are outside of what is compressed, or are all 1.
    fn body(&self, page: &Page) -> Result<Option<Body>, Fault> {
        let (start, is_compressed) = match page.kind {
            PageKind::DataV2 {
                levels,
                is_compressed,
                ..
            } => (page.body.start + levels, is_compressed),
            PageKind::Data | PageKind::Dictionary => (page.body.start, true),
        };
        let levels = start - page.body.start;
        if page.inflated == levels {
            // writers may leave out what has no bytes
            return Ok(Some(Body {
                bytes: start..start,
                compression: PageCompression::None,
                inflated: 0,
            }));
        }
        let mut bytes = start..page.body.end;
        let Some(inflated) = page.inflated.checked_sub(levels) else {
            return corrupt(format!(
                "{levels} bytes of levels in a page of {}",
                page.inflated
            ));
        };
        let compression = match self.chunk.compression() {
            Compression::SNAPPY if is_compressed => PageCompression::Snappy,
            Compression::GZIP(_) if is_compressed => {
                let gzip = self.bytes.get(bytes.clone());
                let Some(deflated) = gzip.and_then(|gzip| deflated(gzip, inflated)) else {
                    return Ok(None);
                };
                bytes = start + deflated.start..start + deflated.end;
                PageCompression::Deflate
            }
            _ => PageCompression::None,
        };
        let is_none = compression == PageCompression::None;
        ensure(!is_none || bytes.len() == inflated, || {
            format!("{} bytes instead of {inflated}", bytes.len())
        })?;
        Ok(Some(Body {
            bytes,
            compression,
            inflated,
        }))
    }

    /// The page, with its nulls added to those of the column.
    fn page(
        &mut self,
        page: &Page,
        mut body: Body,
        encoding: StreamEncoding,
        inflated: Option<&Bytes>,
    ) -> Result<StreamPage, Fault> {
        let mut unseen = 0;
        let count = match (&mut self.levels, page.kind) {
            (None, _) => page.values,
            (Some(_), _) if page.values == 0 => 0,
            (
                Some(known),
                PageKind::DataV2 {
                    levels, definition, ..
                },
            ) => {
                let end = page.body.start + levels;
                let own = self.bytes.get(end - definition..end).unwrap_or_default();
                known.append(own, page.values)?
            }
            (Some(known), _) if body.compression != PageCompression::None => {
                unseen = page.values;
                known.append_values(page.values);
                page.values
            }
            (Some(known), _) => {
                let bytes = inflated.unwrap_or(self.bytes);
                let (own, values) = prefixed(bytes.get(body.bytes.clone()).unwrap_or_default())?;
                body.bytes.start = body.bytes.end - values.len();
                body.inflated = values.len();
                known.append(own, page.values)?
            }
        };
        let start = self.values;
        self.values += count;
        Ok(StreamPage {
            bytes: body.bytes,
            compression: body.compression,
            inflated: body.inflated,
            levels: unseen,
            encoding,
            start,
            count,
        })
    }

    /// The value of each entry of the dictionary; and the distinct entries in ascending order, if they are strings.
    fn dictionary(&mut self, pages: &Pages) -> Result<(Vec<i64>, Option<ArrayRef>), Fault> {
        let page = pages.pages.first();
        let Some(page) = page.filter(|page| page.kind == PageKind::Dictionary) else {
            return Ok((Vec::new(), None));
        };
        if page.encoding != PageEncoding::Plain && page.encoding != PageEncoding::Dictionary {
            return corrupt("a dictionary whose entries are not plain");
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(page.inflated).is_err() {
            return unsupported(format!("a dictionary of {} bytes", page.inflated));
        }
        bytes.resize(page.inflated, 0);
        inflate_page(&mut self.inflater, page, self.bytes, &mut bytes)?;
        match self.kind {
            Kind::Fixed(form) | Kind::Float(form) => Ok((form.entries(&bytes, page.values)?, None)),
            Kind::Codes | Kind::Strings => {
                let ranks = flat::ranks(self.column, &bytes, page.values)?;
                let Some(ranks) = ranks else {
                    return unsupported("entries that have no order");
                };
                let values = ranks.ranks.into_iter().map(i64::from).collect();
                Ok((values, Some(ranks.sorted)))
            }
            Kind::Bits => corrupt("a dictionary of booleans"),
        }
    }
}

/// A page that is inflated, at a range of `inflated`. Levels of version 2 are not in it.
fn inflated_body(page: &Page, inflated: &Bytes, mut range: Range<usize>) -> Result<Body, Fault> {
    if let PageKind::DataV2 { levels, .. } = page.kind {
        range.start += levels;
    }
    ensure(inflated.get(range.clone()).is_some(), || {
        format!("levels beyond a page of {} bytes", page.inflated)
    })?;
    Ok(Body {
        inflated: range.len(),
        bytes: range,
        compression: PageCompression::None,
    })
}

/// Inflates a page to `to`. Levels of version 2 are left out: `to` begins with as many zeros.
fn inflate_page(
    inflater: &mut Inflater,
    page: &Page,
    chunk: &[u8],
    to: &mut [u8],
) -> Result<(), Fault> {
    let body = chunk.get(page.body.clone()).unwrap_or_default();
    let (levels, is_compressed) = match page.kind {
        PageKind::DataV2 {
            levels,
            is_compressed,
            ..
        } => (levels, is_compressed),
        _ => (0, true),
    };
    let (Some(from), Some(to)) = (body.get(levels..), to.get_mut(levels..)) else {
        return corrupt(format!(
            "{levels} bytes of levels in a page of {}",
            page.inflated
        ));
    };
    match is_compressed {
        true => inflater.inflate(from, to),
        false => Inflater::Uncompressed.inflate(from, to),
    }
}

/// The Deflate within a gzip file of one member that inflates to so many bytes; `None` if it has another header than writers
/// use, or more members.
fn deflated(gzip: &[u8], inflated: usize) -> Option<Range<usize>> {
    const HEADER_BYTES: usize = 10;
    const TRAILER_BYTES: usize = 8;
    let is_simple = gzip.starts_with(&[0x1F, 0x8B, 8, 0]);
    let (_, size) = gzip.split_last_chunk()?;
    let is_all = u32::from_le_bytes(*size) as usize == inflated;
    let end = gzip.len().checked_sub(TRAILER_BYTES)?;
    (is_simple && is_all && end >= HEADER_BYTES).then_some(HEADER_BYTES..end)
}
