//! Columns as the streams of a file, to be decoded on the device: their descriptions, and checks of these. `assemble`
//! decodes them.
//!
//! ```text
//! ByteStream   bytes, or chunks of raw Deflate that inflate to blocks of one size
//! RunStream    such bytes, which are runs of values; and consecutive parts of them, each for a warp
//! ```

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use vectile_kernels::RunLength;

use crate::error::{Error, Result};

/// Limit of the inflated bytes of a stream: offsets in it have 32 bits, including the sign.
const MOST_BYTES: usize = i32::MAX as usize;

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
}

/// Bytes, perhaps compressed.
#[derive(Clone, Debug)]
pub struct ByteStream {
    /// The bytes of the file.
    pub bytes: Buffer,
    /// The compressed chunks; `None` if the bytes are not compressed.
    pub chunks: Option<DeflateChunks>,
}

/// Chunks of raw Deflate.
#[derive(Clone, Debug)]
pub struct DeflateChunks {
    /// The chunks, in order.
    pub places: Vec<DeflateChunk>,
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
    /// Parts that are decoded independently. The first begins at the start of the stream.
    pub parts: Vec<RunPart>,
}

/// Values of a stream that are decoded independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Offset of its first run in the inflated stream.
    pub at: usize,
    /// Values of this run that belong to the part before.
    pub skip: usize,
    /// Index of its first value.
    pub first: usize,
    /// Number of values.
    pub count: usize,
}

fn unsupported<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(reason.into()))
}

impl StreamColumn {
    /// Rows that are not null.
    pub(super) fn values(&self) -> usize {
        self.rows - self.nulls.as_ref().map_or(0, NullBuffer::null_count)
    }

    /// Checks that lengths and parts are consistent. Streams may have any bytes.
    pub(super) fn check(&self) -> Result<()> {
        let nulls = self.nulls.as_ref().map_or(self.rows, NullBuffer::len);
        if nulls != self.rows || u32::try_from(self.rows).is_err() {
            return unsupported(format!("{} rows, of nulls {nulls}", self.rows));
        }
        let values = self.values();
        match &self.values {
            StreamValues::Integers(stream) | StreamValues::Bytes(stream) => stream.check(values),
            StreamValues::Codes { codes, .. } => codes.check(values),
            StreamValues::Bits(stream) => stream.check(values.div_ceil(8)),
            StreamValues::Decimals {
                digits: one,
                scales: other,
                ..
            }
            | StreamValues::Timestamps {
                seconds: one,
                nanoseconds: other,
                ..
            } => one.check(values).and(other.check(values)),
            StreamValues::Floats(stream) => stream.check(),
            StreamValues::Strings { bytes, lengths } => {
                if lengths.len() != self.rows {
                    return unsupported(format!("{} lengths", lengths.len()));
                }
                // memory is taken for these before anything is inflated
                let sum = lengths
                    .iter()
                    .fold(0u64, |sum, length| sum.saturating_add(*length));
                if sum > bytes.room() as u64 {
                    return unsupported(format!("{sum} bytes of text in {}", bytes.room()));
                }
                bytes.check()
            }
        }
    }

    /// Its streams of runs, and bytes of a decoded value of each.
    pub(super) fn runs(&self) -> [Option<(&RunStream, usize)>; 2] {
        match &self.values {
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
            StreamValues::Floats(_) | StreamValues::Strings { .. } => [None, None],
        }
    }

    /// Estimates the bytes that decoding takes in addition to the column.
    pub(super) fn scratch_bytes(&self) -> usize {
        let runs = self.runs().into_iter().flatten();
        let runs = runs.map(|(stream, width)| stream.stream.room() + stream.values() * width);
        let bytes = match &self.values {
            StreamValues::Floats(stream) => stream.room(),
            _ => 0,
        };
        runs.fold(bytes, usize::saturating_add)
    }
}

impl ByteStream {
    /// Upper bound of the inflated bytes.
    pub(super) fn room(&self) -> usize {
        match &self.chunks {
            None => self.bytes.len(),
            Some(chunks) => chunks.places.len().saturating_mul(chunks.block_bytes),
        }
    }

    /// Compressed chunks; empty if the bytes are not compressed.
    pub(super) fn chunks(&self) -> &[DeflateChunk] {
        self.chunks
            .as_ref()
            .map_or(&[], |chunks| chunks.places.as_slice())
    }

    fn check(&self) -> Result<()> {
        if self.room() > MOST_BYTES {
            return unsupported(format!("a stream of {} bytes", self.room()));
        }
        if let Some(chunks) = &self.chunks {
            // the kernel writes 16 bytes at a time
            if chunks.block_bytes == 0 || !chunks.block_bytes.is_multiple_of(16) {
                return unsupported(format!("blocks of {} bytes", chunks.block_bytes));
            }
            let outside = |chunk: &&DeflateChunk| self.bytes.get(chunk.bytes.clone()).is_none();
            if let Some(chunk) = chunks.places.iter().find(outside) {
                return unsupported(format!("a chunk at {:?}", chunk.bytes));
            }
        }
        Ok(())
    }
}

impl RunStream {
    /// Values of all parts.
    pub(super) fn values(&self) -> usize {
        self.parts.last().map_or(0, |last| last.first + last.count)
    }

    fn check(&self, values: usize) -> Result<()> {
        self.stream.check()?;
        let mut end = 0;
        for part in &self.parts {
            let is_next = part.first <= end && part.at <= self.stream.room();
            let own_end = part.first.checked_add(part.count);
            let own_end = own_end.filter(|own_end| is_next && *own_end >= end);
            let Some(own_end) = own_end.filter(|_| part.skip <= MOST_BYTES) else {
                return unsupported(format!("{part:?} behind {end} values"));
            };
            end = own_end;
        }
        let begins = |part: &RunPart| (part.at, part.skip, part.first) == (0, 0, 0);
        if end != values || !self.parts.first().is_none_or(begins) {
            return unsupported(format!("parts of {end} values, where there are {values}"));
        }
        let pairs = self.parts.iter().zip(self.parts.iter().skip(1));
        if !pairs
            .into_iter()
            .all(|(part, next)| part.meets(next).is_some())
        {
            return unsupported("parts that do not follow each other");
        }
        Ok(())
    }
}

impl RunPart {
    /// Where the next part's first run starts: its offset in bytes from this part's first run, and the number of
    /// values of this part's runs before it. `None` if it starts before this part's.
    pub(super) fn meets(&self, next: &Self) -> Option<(u32, u32)> {
        let byte = next.at.checked_sub(self.at)?;
        let values = (self.skip + next.first).checked_sub(self.first)?;
        let values = values.checked_sub(next.skip)?;
        Some((u32::try_from(byte).ok()?, u32::try_from(values).ok()?))
    }
}
