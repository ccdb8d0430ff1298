//! Columns for external decoders: streams as they are in the file, and the parts that can be decoded in parallel.
//!
//! ```text
//! stream   |run|run|  run  |run|run|run| run |run|..
//! parts    |------------|-----------|-----------|--    a part starts in a run, of which some values are not its own
//! rows      index group   index group   ..
//! ```
//!
//! Small data is decoded here: nulls, dictionaries, lengths of strings.

use arrow::array::ArrayRef;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::columns::{ColumnReader, StripeStreams};
use crate::decode::Decoder;
use crate::error::Result;
use crate::kind::{Encoding, StreamKind, TypeKind};
use crate::position::{IndexGroups, Position};
use crate::schema::Type;
use crate::stream::Stream;

/// A column of a stripe, as streams.
#[derive(Clone, Debug)]
pub struct PartedColumn {
    /// Its type.
    pub data_type: DataType,
    /// Its rows.
    pub rows: usize,
    /// Its nulls, if there are any. Streams have no entries for them.
    pub nulls: Option<NullBuffer>,
    /// Its values.
    pub values: PartedValues,
}

/// The values of a column, as streams.
#[derive(Clone, Debug)]
pub enum PartedValues {
    /// Integers or dates.
    Integers(PartedStream),
    /// Bits, the highest of a byte first. Offsets and counts are in bytes.
    Booleans(PartedStream),
    /// Integers of 8 bits.
    Bytes(PartedStream),
    /// Floats, not compressed by an encoding.
    Floats(Stream),
    /// Decimals.
    Decimals {
        /// Their digits.
        digits: PartedStream,
        /// Per value, the number of digits after the point.
        scales: PartedStream,
        /// The scale of the column.
        scale: i8,
    },
    /// Timestamps.
    Timestamps {
        /// Seconds since `epoch`.
        seconds: PartedStream,
        /// Nanoseconds, without trailing zeros.
        nanoseconds: PartedStream,
        /// The origin of `seconds`, in seconds since 1970.
        epoch: i64,
    },
    /// Indices of dictionary entries.
    Codes {
        /// The indices.
        codes: PartedStream,
        /// The entries.
        entries: ArrayRef,
    },
    /// Text and binary.
    Text {
        /// The bytes of all strings, concatenated.
        bytes: Stream,
        /// The length of each row, 0 for nulls.
        lengths: Vec<u64>,
    },
}

/// A stream, split into parts that together have all of its values.
#[derive(Clone, Debug)]
pub struct PartedStream {
    /// The stream.
    pub stream: Stream,
    /// The decoder of its bytes.
    pub decoder: Decoder,
    /// The parts in order, at least one.
    pub parts: Vec<Part>,
}

/// Values of a stream that can be decoded without the values before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The byte where its first run starts in the inflated stream, if all chunks but the last are full.
    pub at: usize,
    /// The number of values of that run to skip.
    pub skip: usize,
    /// The index of its first value.
    pub first: usize,
    /// The number of its values.
    pub count: usize,
}

/// Returns true if external decoders support columns of this type.
pub(crate) fn is_parted(kind: TypeKind) -> bool {
    use TypeKind::*;
    !matches!(kind, List | Map | Struct | Union)
}

/// Splits the column, if external decoders support it. `stride` rows are an index group.
pub(crate) fn of(
    streams: &StripeStreams<'_>,
    column: &Type,
    rows: usize,
    stride: Option<usize>,
    groups: Vec<IndexGroups>,
) -> Result<Option<PartedColumn>> {
    if !is_parted(column.kind) {
        return Ok(None);
    }
    let reader = streams.reader(column, rows)?;
    let parting = Parting {
        streams,
        starts: starts(&reader, stride),
        reader,
        groups,
    };
    let Some(values) = parting.values()? else {
        return Ok(None);
    };
    Ok(Some(PartedColumn {
        data_type: column.data_type.clone(),
        rows,
        nulls: parting.reader.nulls,
        values,
    }))
}

/// A column being split.
struct Parting<'a> {
    streams: &'a StripeStreams<'a>,
    reader: ColumnReader<'a>,
    groups: Vec<IndexGroups>,
    /// The index of the first value of each index group, and finally the number of values.
    starts: Vec<usize>,
}

/// The index of the first value of each index group, and finally the number of values.
fn starts(reader: &ColumnReader<'_>, stride: Option<usize>) -> Vec<usize> {
    let stride = stride
        .filter(|stride| *stride > 0)
        .unwrap_or(reader.rows.max(1));
    let mut values = 0;
    let starts = (0..reader.rows).step_by(stride).map(|row| {
        let rows = stride.min(reader.rows - row);
        let nulls = reader.nulls.as_ref();
        let start = values;
        values += rows - nulls.map_or(0, |nulls| nulls.slice(row, rows).null_count());
        start
    });
    let mut starts: Vec<usize> = starts.collect();
    starts.push(values);
    starts
}

impl Parting<'_> {
    fn values(&self) -> Result<Option<PartedValues>> {
        let (column, data, second) = (self.reader.column, StreamKind::Data, StreamKind::Secondary);
        let values = match column.kind {
            TypeKind::Short | TypeKind::Int | TypeKind::Long | TypeKind::Date => {
                self.stream(data).map(PartedValues::Integers)
            }
            TypeKind::Boolean => self.stream(data).map(PartedValues::Booleans),
            TypeKind::Byte => self.stream(data).map(PartedValues::Bytes),
            TypeKind::Float | TypeKind::Double => self.bytes(data).map(PartedValues::Floats),
            TypeKind::Decimal => {
                let DataType::Decimal128(_, scale) = column.data_type else {
                    return Ok(None);
                };
                let both = self.stream(data).zip(self.stream(second));
                both.map(|(digits, scales)| PartedValues::Decimals {
                    digits,
                    scales,
                    scale,
                })
            }
            TypeKind::Timestamp | TypeKind::TimestampInstant => {
                let both = self.stream(data).zip(self.stream(second));
                let epoch = self.reader.base()?.epoch_of_utc();
                both.zip(epoch)
                    .map(|((seconds, nanoseconds), epoch)| PartedValues::Timestamps {
                        seconds,
                        nanoseconds,
                        epoch,
                    })
            }
            TypeKind::String | TypeKind::Varchar | TypeKind::Char | TypeKind::Binary => {
                match self.reader.encoding {
                    Encoding::Dictionary { entries, .. } => {
                        let Some(codes) = self.stream(data) else {
                            return Ok(None);
                        };
                        let (entries, _) = self.reader.dictionary(entries as usize)?;
                        Some(PartedValues::Codes { codes, entries })
                    }
                    Encoding::Direct { .. } => {
                        let Some(bytes) = self.bytes(data) else {
                            return Ok(None);
                        };
                        let lengths = self.reader.lengths()?;
                        Some(PartedValues::Text { bytes, lengths })
                    }
                }
            }
            TypeKind::List | TypeKind::Map | TypeKind::Struct | TypeKind::Union => None,
        };
        Ok(values)
    }

    fn bytes(&self, kind: StreamKind) -> Option<Stream> {
        self.streams
            .stream(self.reader.column.column, kind)
            .cloned()
    }

    fn stream(&self, kind: StreamKind) -> Option<PartedStream> {
        let (column, encoding) = (self.reader.column.kind, self.reader.encoding);
        let decoder = Decoder::of(column, encoding, kind)?;
        let stream = self.bytes(kind)?;
        let parts = self.parts(&stream, decoder);
        let parts = parts.unwrap_or_else(|| {
            let values = self.starts.last().copied().unwrap_or_default();
            let count = if decoder == Decoder::Boolean {
                values.div_ceil(8)
            } else {
                values
            };
            vec![Part {
                at: 0,
                skip: 0,
                first: 0,
                count,
            }]
        });
        Some(PartedStream {
            stream,
            decoder,
            parts,
        })
    }

    /// One part per index group; `None` if the index does not have their positions.
    fn parts(&self, stream: &Stream, decoder: Decoder) -> Option<Vec<Part>> {
        let groups = self
            .groups
            .iter()
            .find(|groups| groups.stream == stream.kind)?;
        if groups.positions.is_empty() || groups.positions.len() + 1 != self.starts.len() {
            return None;
        }
        let chunks = stream.chunks().map(|chunk| Some(chunk.ok()?.offset));
        let chunks: Vec<usize> = chunks.collect::<Option<_>>()?;
        let spans = self.starts.iter().zip(self.starts.iter().skip(1));
        let parts = groups
            .positions
            .iter()
            .zip(spans)
            .map(|(position, (&start, &end))| {
                let at = inflated_offset(stream, &chunks, *position)?;
                let skip = position.values;
                if decoder != Decoder::Boolean {
                    return Some(Part {
                        at,
                        skip,
                        first: start,
                        count: end - start,
                    });
                }
                // a byte may have bits of two groups
                let (first, end) = (start / 8, end.div_ceil(8));
                (skip % 8 == start % 8).then_some(Part {
                    at,
                    skip: skip / 8,
                    first,
                    count: end - first,
                })
            });
        parts.collect()
    }
}

/// The byte of a position in the inflated stream.
fn inflated_offset(stream: &Stream, chunks: &[usize], position: Position) -> Option<usize> {
    use crate::compression::Compression;
    if stream.codec.compression() == Compression::None {
        return Some(position.offset);
    }
    // a group may begin where the stream ends
    let chunk = match chunks.binary_search(&position.offset) {
        Ok(chunk) => chunk,
        Err(chunks) if position.offset == stream.bytes.len() => chunks,
        Err(_) => return None,
    };
    chunk
        .checked_mul(stream.codec.block_bytes())?
        .checked_add(position.byte)
}
