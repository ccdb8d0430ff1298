//! The content of the footer, checked and in memory.

use std::fmt;
use std::mem::size_of;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use vectile_encodings::ZoneMap;

use crate::error::{Error, FilePosition, Result};

/// The most rows a row group may have. It bounds the memory a reader needs for one row group, regardless of what a file
/// claims.
pub const MAX_ROW_GROUP_ROWS: usize = 1 << 24;

/// A file's footer: schema, row groups and their statistics.
#[derive(Debug)]
pub struct Metadata {
    pub(crate) file: Arc<str>,
    pub(crate) version: u32,
    pub(crate) schema: SchemaRef,
    pub(crate) num_rows: u64,
    pub(crate) row_groups: Vec<RowGroup>,
    pub(crate) statistics: Vec<ZoneMap>,
    pub(crate) footer_bytes: u64,
    pub(crate) checksum: u32,
    pub(crate) e_tag: Option<String>,
    /// True if it is a local file.
    pub(crate) is_file: bool,
}

/// The position of one row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowGroup {
    /// Rows, at least one and at most [`MAX_ROW_GROUP_ROWS`].
    pub rows: usize,
    /// The bytes of the file that hold it, including its Arrow message.
    pub bytes: Range<u64>,
    /// One chunk per column of the schema.
    pub columns: Vec<Chunk>,
}

/// The position and encoding of one column of one row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes of the file that hold the zone map of its vectors; empty if there is one vector, whose zone map is the
    /// row group's statistics.
    pub zones: Range<u64>,
    /// CRC-32 of the zone map's bytes.
    pub zones_crc32: u32,
    /// Its Bloom filter, if it has one.
    pub bloom: Option<Bloom>,
    /// The bytes of the file that hold the encoded values.
    pub data: Range<u64>,
    /// CRC-32 of the encoded values' bytes.
    pub data_crc32: u32,
    /// How these bytes are compressed as a whole.
    pub compression: Compression,
    /// Their size when decompressed.
    pub data_bytes: u64,
    /// The encoding, e.g. `dict(ffor, fsst(ffor))`.
    pub encoding: Arc<str>,
    /// Bytes its values take as Arrow arrays.
    pub arrow_bytes: u64,
}

/// The position of the Bloom filter of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom {
    /// The bytes of the file that hold it.
    pub bytes: Range<u64>,
    /// CRC-32 of these bytes.
    pub crc32: u32,
}

/// How the bytes of encoded values are compressed, regardless of their encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// By Zstandard.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Zstd => "zstd",
        })
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "none" => Ok(Self::None),
            "zstd" => Ok(Self::Zstd),
            _ => Err(format!(
                "no compression is called '{name}'; there are none and zstd"
            )),
        }
    }
}

impl Metadata {
    /// The format version of the file.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The location of the file in its object store.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The logical schema, as written.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows in the file.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Row groups in the file.
    pub fn num_row_groups(&self) -> usize {
        self.row_groups.len()
    }

    /// All row groups, in file order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.row_groups
    }

    /// One row group.
    ///
    /// # Panics
    ///
    /// If there is no row group `index`; see [`Self::row_groups`] for checked access.
    pub fn row_group(&self, index: usize) -> &RowGroup {
        &self.row_groups[index]
    }

    /// Minimum, maximum and null count of a column, one entry per row group.
    ///
    /// # Panics
    ///
    /// If the schema has no column `column`.
    pub fn row_group_statistics(&self, column: usize) -> &ZoneMap {
        &self.statistics[column]
    }

    /// Bytes of the file that the footer takes, including Arrow's.
    pub fn footer_bytes(&self) -> u64 {
        self.footer_bytes
    }

    /// CRC-32 of the footer, which holds those of all chunks: a file with other content has another one.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Approximate bytes of memory that this takes.
    pub fn memory_size(&self) -> usize {
        let chunks = self.row_groups.len() * self.schema.fields().len();
        size_of::<Self>()
            + self.row_groups.len() * size_of::<RowGroup>()
            + chunks * size_of::<Chunk>()
            + self.schema.fields().size()
            + self
                .statistics
                .iter()
                .map(ZoneMap::memory_size)
                .sum::<usize>()
    }

    /// Adds the position of a column chunk to an error of decoding it.
    pub fn error(&self, row_group: usize, column: usize, error: vectile_encodings::Error) -> Error {
        self.position(row_group, column).encoding(error)
    }

    /// The position of a column chunk, for errors.
    pub(crate) fn position(&self, row_group: usize, column: usize) -> FilePosition<'_> {
        let position = FilePosition::file(&self.file).row_group(row_group);
        match self.schema.fields().get(column) {
            Some(field) => position.column(field.name()),
            None => position,
        }
    }

    /// The row group, or an error if there is none of that index.
    pub(crate) fn try_row_group(&self, index: usize) -> Result<&RowGroup> {
        self.row_groups.get(index).ok_or_else(|| {
            let count = self.row_groups.len();
            Error::InvalidArgument(format!("{} has {count} row groups, no {index}", self.file))
        })
    }
}

impl Chunk {
    /// Bytes of the encoded values, the zone map and the Bloom filter together.
    pub fn encoded_bytes(&self) -> u64 {
        let len = |range: &Range<u64>| range.end - range.start;
        let bloom = self.bloom.as_ref().map_or(0, |bloom| len(&bloom.bytes));
        len(&self.zones) + bloom + len(&self.data)
    }
}
