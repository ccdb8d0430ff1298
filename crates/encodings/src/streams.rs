//! Columns as the streams of a file of another format, for decoders on a device.
//!
//! A container that has such columns describes them with these types; a device decodes them. Neither knows the other.
//!
//! ```text
//! ByteStream   bytes, or chunks of raw Deflate that inflate to blocks of one size
//! RunStream    such bytes, which are runs of values; and consecutive parts of them, to be decoded in parallel
//! Pages        pages of Parquet, each compressed and encoded by itself
//!
//! stream   |run|run|  run  |run|run|run| run |run|..
//! parts    |------------|-----------|-----------|--    a part starts in a run, of which some values are not its own
//! ```
//!
//! Descriptions may be wrong, since they come from files: decoders check them.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

/// A column in streams.
#[derive(Clone, Debug)]
pub struct StreamColumn {
    /// Its type.
    pub data_type: DataType,
    /// Its rows.
    pub rows: usize,
    /// Null rows, if there are any. Streams have no values for these.
    pub nulls: Option<NullBuffer>,
    /// Its streams.
    pub values: StreamValues,
}

/// The streams of a column.
#[derive(Clone, Debug)]
pub enum StreamValues {
    /// Integers, dates.
    Integers(RunStream),
    /// Bits, the highest of a byte first. Offsets, counts and skips are in bytes.
    Bits(RunStream),
    /// Integers of 8 bits.
    Bytes(RunStream),
    /// Decimals.
    Decimals {
        /// Unscaled values.
        digits: RunStream,
        /// The scale of each value.
        scales: RunStream,
        /// The scale of the column.
        scale: i8,
    },
    /// Nanoseconds since 1970.
    Timestamps {
        /// Seconds since `epoch`.
        seconds: RunStream,
        /// Nanoseconds of each value: `n << 3 | z`, for n if z is 0, else for n * 10^(z + 1).
        nanoseconds: RunStream,
        /// Seconds since 1970.
        epoch: i64,
    },
    /// Floats of 32 or 64 bits.
    Floats(ByteStream),
    /// Codes of a dictionary.
    Codes {
        /// Indices of entries.
        codes: RunStream,
        /// The dictionary.
        entries: ArrayRef,
    },
    /// Strings.
    Strings {
        /// The bytes of all strings, in order.
        bytes: ByteStream,
        /// The length of each row, 0 for nulls.
        lengths: Vec<u64>,
    },
    /// Booleans, integers, decimals, dates, times and floats, or codes of a dictionary, in pages of Parquet.
    Pages(Pages),
}

/// Values in pages of Parquet.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Bytes that the pages lie in.
    pub bytes: Buffer,
    /// The pages in their order.
    pub pages: Vec<Page>,
    /// How values are stored.
    pub stored: StoredValue,
    /// The value of each entry of the file's dictionary: an integer, the bits of a float, or the index of one of
    /// `entries`.
    pub dictionary: ScalarBuffer<i64>,
    /// The distinct entries, if values are codes.
    pub entries: Option<ArrayRef>,
}

/// How values are stored in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue {
    /// Signed integers of so many bytes, the lowest first.
    Signed(u32),
    /// Unsigned integers of so many bytes, the lowest first; floats.
    Unsigned(u32),
    /// Signed integers of so many bytes, the highest first.
    BigEndian(u32),
    /// Booleans.
    Bits,
    /// Strings, all of which are in the dictionary.
    Strings,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its range of the bytes.
    pub bytes: Range<usize>,
    /// Their compression.
    pub compression: PageCompression,
    /// Bytes that it inflates to.
    pub inflated: usize,
    /// Levels of definition in front of its values, in runs behind 4 bytes of their length. All of them have to be 1.
    /// Pages without them have 0.
    pub levels: usize,
    /// The encoding of its values.
    pub encoding: PageEncoding,
    /// The index of its first value.
    pub start: usize,
    /// Its values.
    pub count: usize,
}

/// The compression of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCompression {
    /// None.
    None,
    /// Raw Deflate.
    Deflate,
    /// Raw Snappy.
    Snappy,
}

/// The encoding of the values of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEncoding {
    /// One behind the other.
    Plain,
    /// Indices of the dictionary.
    Indices,
    /// Booleans in runs.
    Runs,
    /// Packed differences.
    Differences,
    /// The first bytes of all values, then the second ones, and so on.
    Planes,
}

/// Bytes, perhaps compressed.
#[derive(Clone, Debug)]
pub struct ByteStream {
    /// The bytes of the file.
    pub bytes: Buffer,
    /// The compressed chunks; `None` if the bytes are not compressed.
    pub deflated: Option<DeflateChunks>,
}

/// Chunks of raw Deflate.
#[derive(Clone, Debug)]
pub struct DeflateChunks {
    /// The chunks, in order.
    pub chunks: Vec<DeflateChunk>,
    /// Bytes that each chunk inflates to, except the last, which may inflate to fewer.
    pub block_bytes: usize,
}

/// A chunk.
#[derive(Clone, Debug)]
pub struct DeflateChunk {
    /// Its range in the stream.
    pub bytes: Range<usize>,
    /// True if the chunk is stored uncompressed.
    pub is_original: bool,
}

/// Values in runs.
#[derive(Clone, Debug)]
pub struct RunStream {
    /// The bytes.
    pub stream: ByteStream,
    /// Encoding of the runs.
    pub encoding: RunLength,
    /// Parts that are decoded independently and have all values. The first begins at the start of the stream.
    pub parts: Vec<RunPart>,
}

/// A run-length encoding of ORC, or an alternative to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunLength {
    /// Runs of bytes.
    Bytes,
    /// Runs of integers, version 1; signed ones are zigzagged.
    V1 {
        /// True for signed integers.
        is_signed: bool,
    },
    /// Runs of integers, version 2.
    V2 {
        /// True for signed integers.
        is_signed: bool,
    },
    /// No runs, but signed varints of up to 64 bits.
    Varints,
}

/// Values of a stream that are decoded independently of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Offset of its first run in the inflated stream, provided that all chunks but the last are full.
    pub offset: usize,
    /// Values of this run that belong to the part before.
    pub skip: usize,
    /// Index of its first value.
    pub start: usize,
    /// Number of values.
    pub count: usize,
}

impl StreamColumn {
    /// Rows that are not null.
    pub fn values(&self) -> usize {
        self.rows - self.nulls.as_ref().map_or(0, NullBuffer::null_count)
    }
}

impl ByteStream {
    /// Bytes that are not compressed.
    pub fn uncompressed(bytes: impl Into<Buffer>) -> Self {
        Self {
            bytes: bytes.into(),
            deflated: None,
        }
    }

    /// Upper bound of the inflated bytes.
    pub fn room(&self) -> usize {
        match &self.deflated {
            None => self.bytes.len(),
            Some(deflated) => deflated.chunks.len().saturating_mul(deflated.block_bytes),
        }
    }

    /// Compressed chunks; empty if the bytes are not compressed.
    pub fn chunks(&self) -> &[DeflateChunk] {
        self.deflated
            .as_ref()
            .map_or(&[], |deflated| deflated.chunks.as_slice())
    }
}

impl Pages {
    /// Values of all pages.
    pub fn values(&self) -> usize {
        self.pages
            .last()
            .map_or(0, |last| last.start.saturating_add(last.count))
    }

    /// Bytes that the compressed pages inflate to.
    pub fn inflated_bytes(&self) -> usize {
        let compressed = self.pages.iter();
        let compressed = compressed.filter(|page| page.compression != PageCompression::None);
        compressed
            .map(|page| page.inflated)
            .fold(0, usize::saturating_add)
    }
}

impl StoredValue {
    /// Bytes of a plain value; `None` if values are bits, or strings.
    pub fn width(self) -> Option<u32> {
        match self {
            Self::Signed(width) | Self::Unsigned(width) | Self::BigEndian(width) => Some(width),
            Self::Bits | Self::Strings => None,
        }
    }
}

impl RunStream {
    /// Values of all parts.
    pub fn values(&self) -> usize {
        self.parts
            .last()
            .map_or(0, |last| last.start.saturating_add(last.count))
    }
}

impl RunPart {
    /// Where the next part's first run starts: its offset in bytes from this part's first run, and the number of
    /// values of this part's runs before it. `None` if it starts before this part's.
    pub fn meets(&self, next: &Self) -> Option<(u32, u32)> {
        let byte = next.offset.checked_sub(self.offset)?;
        let values = self.skip.checked_add(next.start)?.checked_sub(self.start)?;
        let values = values.checked_sub(next.skip)?;
        Some((u32::try_from(byte).ok()?, u32::try_from(values).ok()?))
    }
}
