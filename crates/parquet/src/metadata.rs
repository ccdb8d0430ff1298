//! The metadata of a file, checked and in memory.
//!
//! ```text
//! "PAR1" | column chunks | indexes, filters | footer | u32: bytes of the footer | "PAR1"
//! ```
//!
//! Files are read from their end.

use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use object_store::{ObjectMeta, ObjectStore};
use parquet::basic::{Compression, Encoding, EncodingMask};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use vectile_encodings::{MAX_ROWS, ZoneMap};
use vectile_scan::object::{Handle, Object};

use crate::error::{Error, ErrorOrigin, Fault, Result, contain, corrupt, ensure};
use crate::footer;
use crate::schema::{Columns, TableColumn};
use crate::statistics;

/// Bytes read first; most footers fit.
const TAIL_BYTES: u64 = 64 << 10;

/// The most bytes of a footer.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// Bytes after the footer: its length, and [`MAGIC`].
const END_BYTES: u64 = 8;

const MAGIC: &[u8] = b"PAR1";

/// Ends files whose footer is encrypted.
const ENCRYPTED_MAGIC: &[u8] = b"PARE";

/// Options for reading metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// True if columns of text and binary are read as views, as DataFusion does by default
    /// (`schema_force_view_types`); if false, as the types in the file.
    pub view_types: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { view_types: true }
    }
}

impl Options {
    /// Sets [`view_types`](Self::view_types).
    #[must_use]
    pub fn with_view_types(mut self, view_types: bool) -> Self {
        self.view_types = view_types;
        self
    }
}

/// A file's schema, row groups and their statistics.
#[derive(Debug)]
pub struct Metadata {
    pub(crate) object: Object,
    pub(crate) columns: Columns,
    pub(crate) file_bytes: u64,
    parquet: Arc<ParquetMetaData>,
    rows: u64,
    row_groups: Vec<RowGroup>,
    /// Statistics of the row groups, by column of the table.
    zones: Vec<ZoneMap>,
    unsupported: Option<String>,
    checksum: u32,
}

/// A row group that has rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Rows, one at least.
    pub rows: usize,
    /// Its first byte. No other row group of the file has the same.
    pub start: u64,
    /// Its index in the file, whose row groups without rows count too.
    pub number: usize,
}

impl Metadata {
    /// The location of the file in its object store.
    pub fn file(&self) -> &str {
        self.object.file()
    }

    /// The schema of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// Rows in the file.
    pub fn num_rows(&self) -> u64 {
        self.rows
    }

    /// The row groups that have rows, in file order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.row_groups
    }

    /// The metadata as the `parquet` crate parses it, without page indexes.
    pub fn parquet(&self) -> &Arc<ParquetMetaData> {
        &self.parquet
    }

    /// The first reason not to read the file by this crate, for the first column that it does not read; `None` if it
    /// reads all. Other columns can be read nevertheless.
    pub fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }

    /// The reason not to read a column of the table; `None` if this crate reads it, or there is no such column.
    pub fn unsupported_column(&self, column: usize) -> Option<&str> {
        self.columns.columns.get(column)?.unsupported.as_deref()
    }

    /// Bounds and null counts of a column of the table, one entry for each row group.
    pub fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.zones.get(column)
    }

    /// CRC-32 of the bytes of the footer and of the options: most files with other content have another one, and so has the
    /// same file with other types.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Approximate bytes of memory that this takes.
    pub fn memory_size(&self) -> usize {
        let zones = |zones: &ZoneMap| {
            let bounds = zones.min.get_array_memory_size() + zones.max.get_array_memory_size();
            bounds + zones.len() * size_of::<u64>()
        };
        // three schemas, and two trees of levels that are about as large
        size_of::<Self>()
            + self.parquet.memory_size()
            + 5 * self.schema().fields().size()
            + self.columns.columns.len() * size_of::<TableColumn>()
            + self.row_groups.len() * size_of::<RowGroup>()
            + self.zones.iter().map(zones).sum::<usize>()
    }

    /// The row group of this index, and its metadata; an error if there is none.
    pub(crate) fn row_group(&self, index: usize) -> Result<(&RowGroup, &RowGroupMetaData)> {
        let row_group = self.row_groups.get(index);
        let found = row_group.and_then(|row_group| {
            Some((row_group, self.parquet.row_groups().get(row_group.number)?))
        });
        found.ok_or_else(|| {
            let count = self.row_groups.len();
            let file = self.file();
            Error::InvalidArgument(format!("{file} has {count} row groups, no {index}"))
        })
    }

    /// The column of the table with this index; an error if there is none.
    pub(crate) fn column(&self, index: usize) -> Result<&TableColumn> {
        self.columns.columns.get(index).ok_or_else(|| {
            let count = self.columns.columns.len();
            Error::InvalidArgument(format!("a table of {count} columns has no column {index}"))
        })
    }

    /// The position of a row group, for errors.
    pub(crate) fn origin(&self, row_group: &RowGroup) -> ErrorOrigin {
        ErrorOrigin::file(self.object.file()).row_group(row_group.number)
    }
}

/// Reads the metadata of a file, without its page indexes and Bloom filters.
///
/// # Errors
///
/// [`Error::NotParquet`], [`Error::Corrupt`], [`Error::Unsupported`] if the file is encrypted or its schema too deep;
/// [`Error::Changed`] if the store has another version by now than `object`, and those of the object store.
pub async fn read_metadata(
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    options: &Options,
) -> Result<Metadata> {
    let size = object.size;
    let mut object = Object::new(Arc::clone(store), object);
    let handle = Handle::default();
    let origin = ErrorOrigin::file(object.file());
    let in_file = |fault: Fault| origin.clone().fault(fault);

    let start = size.saturating_sub(TAIL_BYTES);
    let mut tail = object.read_one(&handle, start..size).await?;
    if tail.ends_with(ENCRYPTED_MAGIC) {
        let reason = "its footer is encrypted".into();
        return Err(in_file(Fault::Unsupported(reason)));
    }
    let Some(footer_bytes) = footer_bytes(&tail) else {
        return Err(Error::NotParquet {
            file: Arc::clone(&origin.file),
            reason: "it does not end with PAR1".into(),
        });
    };
    let end = size.saturating_sub(END_BYTES);
    let footer_start = end.checked_sub(footer_bytes);
    let Some(footer_start) = footer_start.filter(|_| footer_bytes <= MAX_FOOTER_BYTES) else {
        let reason = format!("a footer of {footer_bytes} bytes in a file of {size}");
        return Err(in_file(Fault::Corrupt(reason)));
    };
    if footer_start < start {
        tail = object.read_one(&handle, footer_start..size).await?;
    }
    // the tail extends to the end of the file
    let tail_start = tail
        .len()
        .saturating_sub((END_BYTES + footer_bytes) as usize);
    let tail_end = tail.len().saturating_sub(END_BYTES as usize);
    let bytes = tail.slice(tail_start..tail_end);
    parse(object, &bytes, size, footer_start, options)
}

/// Bytes of the footer, as the end of a file says; `None` if it is no Parquet file.
fn footer_bytes(tail: &[u8]) -> Option<u64> {
    let rest = tail.strip_suffix(MAGIC)?;
    let (_, length) = rest.split_last_chunk()?;
    Some(u32::from_le_bytes(*length).into())
}

fn checksum(footer: &[u8], options: &Options) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(footer);
    checksum.update(&[options.view_types.into()]);
    checksum.finalize()
}

/// The metadata in the bytes of a footer, which starts at `footer_start`.
fn parse(
    object: Object,
    bytes: &[u8],
    file_bytes: u64,
    footer_start: u64,
    options: &Options,
) -> Result<Metadata> {
    let origin = ErrorOrigin::file(object.file());
    let in_file = |fault: Fault| origin.clone().fault(fault);
    footer::check(bytes).map_err(in_file)?;
    let parsed = contain(|| {
        let parquet = Arc::new(ParquetMetaDataReader::decode_metadata(bytes)?);
        let columns = Columns::of(&parquet, options.view_types)?;
        Ok((parquet, columns))
    });
    let (parquet, mut columns) = parsed.map_err(in_file)?;
    let mut row_groups: Vec<RowGroup> = Vec::with_capacity(parquet.num_row_groups());
    let mut rows = 0u64;
    let mut too_large = None;
    let leaves = parquet.file_metadata().schema_descr().num_columns();
    for (number, row_group) in parquet.row_groups().iter().enumerate() {
        let next = row_groups.last().map_or(0, |last| last.start + 1);
        let checked = check_row_group(row_group, leaves, footer_start);
        let (group_rows, start) =
            checked.map_err(|fault| origin.clone().row_group(number).fault(fault))?;
        // row groups without rows are not read
        if group_rows == 0 {
            continue;
        }
        if group_rows > MAX_ROWS {
            too_large = Some(format!("row group {number} has {group_rows} rows"));
        }
        rows = rows.saturating_add(group_rows as u64);
        row_groups.push(RowGroup {
            rows: group_rows,
            start: start.max(next),
            number,
        });
        for column in &mut columns.columns {
            let chunks = row_group.columns().get(column.leaves.clone());
            let mut chunks = chunks.unwrap_or_default().iter();
            if chunks.any(|chunk| chunk.compression() == Compression::LZO) {
                column.unsupported = Some("compression LZO".into());
            }
        }
    }
    let reasons = columns.columns.iter().find_map(|column| {
        let reason = column.unsupported.as_ref()?;
        Some(format!("column '{}': {reason}", column.name))
    });
    let zones = columns.columns.iter().map(|column| {
        let groups = row_groups.iter().filter_map(|row_group| {
            let chunks = parquet.row_groups().get(row_group.number)?.columns();
            Some((chunks, row_group.rows as u64))
        });
        statistics::of_row_groups(column, groups)
    });
    Ok(Metadata {
        zones: zones.collect(),
        unsupported: too_large.or(reasons),
        checksum: checksum(bytes, options),
        object,
        columns,
        file_bytes,
        parquet,
        rows,
        row_groups,
    })
}

/// Checks that the chunks of a row group lie before `end`; returns its rows and where it starts.
fn check_row_group(
    row_group: &RowGroupMetaData,
    leaves: usize,
    end: u64,
) -> Result<(usize, u64), Fault> {
    let chunks = row_group.columns();
    ensure(chunks.len() == leaves, || {
        format!("{} column chunks of {leaves} columns", chunks.len())
    })?;
    let Ok(rows) = usize::try_from(row_group.num_rows()) else {
        return corrupt(format!("{} rows", row_group.num_rows()));
    };
    let mut start = end;
    for chunk in chunks {
        start = start.min(chunk_range(chunk, end)?.start);
    }
    Ok((rows, start))
}

/// The bytes of the file that hold a chunk, which end no later than `end`.
pub(crate) fn chunk_range(chunk: &ColumnChunkMetaData, end: u64) -> Result<Range<u64>, Fault> {
    let offset = chunk
        .dictionary_page_offset()
        .unwrap_or(chunk.data_page_offset());
    range_of(Some(offset), Some(chunk.compressed_size()), end).ok_or_else(|| {
        let size = chunk.compressed_size();
        Fault::Corrupt(format!(
            "a column chunk of {size} bytes at {offset}, which is not before byte {end}"
        ))
    })
}

/// A range of the file, if it is known and ends no later than `end`.
pub(crate) fn range_of(offset: Option<i64>, bytes: Option<i64>, end: u64) -> Option<Range<u64>> {
    let start = u64::try_from(offset?).ok()?;
    let range = start..start.checked_add(u64::try_from(bytes?).ok()?)?;
    (range.end <= end).then_some(range)
}

/// Returns true if the metadata of a chunk says that all its values are in a dictionary.
pub(crate) fn is_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let is_code = |encoding| {
        matches!(
            encoding,
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
        )
    };
    let only_codes = |mask: &EncodingMask| mask.encodings().all(is_code);
    let of_pages = chunk.page_encoding_stats_mask().map(only_codes);
    // without these, the encodings of pages, levels and dictionary together
    let is_possible = |encoding| is_code(encoding) || is_level(encoding);
    chunk.dictionary_page_offset().is_some()
        && of_pages.unwrap_or_else(|| chunk.encodings().all(is_possible))
}

#[expect(deprecated, reason = "old files have it")]
fn is_level(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::RLE | Encoding::BIT_PACKED)
}
