//! Columns as streams, for decoders on a device: streams as they are in the file, and the parts that can be decoded in
//! parallel, which begin where index groups do.
//!
//! Small data is decoded here: nulls, dictionaries, lengths of strings. So are codecs other than zlib.

use arrow::datatypes::DataType;
use vectile_encodings::streams::{
    ByteStream, DeflateChunk, DeflateChunks, RunPart, RunStream, StreamColumn, StreamValues,
};

use crate::columns::{ColumnReader, StripeStreams};
use crate::compression::Compression;
use crate::decode::Decoder;
use crate::error::Result;
use crate::kind::{Encoding, StreamKind, TypeKind};
use crate::position::{IndexGroups, Position};
use crate::schema::Type;
use crate::stream::Stream;

/// Returns true if devices may decode columns of this type.
pub(crate) fn is_supported(kind: TypeKind) -> bool {
    use TypeKind::*;
    !matches!(kind, List | Map | Struct | Union)
}

/// The column in streams; `None` if a device cannot decode it. `stride` rows are an index group.
pub(crate) fn of(
    streams: &StripeStreams<'_>,
    column: &Type,
    rows: usize,
    stride: Option<usize>,
    groups: Vec<IndexGroups>,
) -> Result<Option<StreamColumn>> {
    if !is_supported(column.kind) {
        return Ok(None);
    }
    let reader = streams.reader(column, rows)?;
    let splitter = Splitter {
        streams,
        starts: starts(&reader, stride),
        reader,
        groups,
    };
    let Some(values) = splitter.values()? else {
        return Ok(None);
    };
    Ok(Some(StreamColumn {
        data_type: column.data_type.clone(),
        rows,
        nulls: splitter.reader.nulls,
        values,
    }))
}

/// A column being split.
struct Splitter<'a> {
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

impl Splitter<'_> {
    fn values(&self) -> Result<Option<StreamValues>> {
        let (column, data, second) = (self.reader.column, StreamKind::Data, StreamKind::Secondary);
        let values = match column.kind {
            TypeKind::Short | TypeKind::Int | TypeKind::Long | TypeKind::Date => {
                self.runs(data).map(StreamValues::Integers)
            }
            TypeKind::Boolean => self.runs(data).map(StreamValues::Bits),
            TypeKind::Byte => self.runs(data).map(StreamValues::Bytes),
            TypeKind::Float | TypeKind::Double => self.bytes(data).map(StreamValues::Floats),
            TypeKind::Decimal => {
                let DataType::Decimal128(_, scale) = column.data_type else {
                    return Ok(None);
                };
                let both = self.runs(data).zip(self.runs(second));
                both.map(|(digits, scales)| StreamValues::Decimals {
                    digits,
                    scales,
                    scale,
                })
            }
            TypeKind::Timestamp | TypeKind::TimestampInstant => {
                let Some(epoch) = self.reader.base()?.epoch_of_utc() else {
                    return Ok(None);
                };
                let both = self.runs(data).zip(self.runs(second));
                both.map(|(seconds, nanoseconds)| StreamValues::Timestamps {
                    seconds,
                    nanoseconds,
                    epoch,
                })
            }
            TypeKind::String | TypeKind::Varchar | TypeKind::Char | TypeKind::Binary => {
                match self.reader.encoding {
                    Encoding::Dictionary { entries, .. } => {
                        let Some(codes) = self.runs(data) else {
                            return Ok(None);
                        };
                        let (entries, _) = self.reader.dictionary(entries as usize)?;
                        Some(StreamValues::Codes { codes, entries })
                    }
                    Encoding::Direct { .. } => {
                        let Some(bytes) = self.bytes(data) else {
                            return Ok(None);
                        };
                        let lengths = self.reader.lengths()?;
                        Some(StreamValues::Strings { bytes, lengths })
                    }
                }
            }
            TypeKind::List | TypeKind::Map | TypeKind::Struct | TypeKind::Union => None,
        };
        Ok(values)
    }

    fn stream(&self, kind: StreamKind) -> Option<&Stream> {
        self.streams.stream(self.reader.column.column, kind)
    }

    fn bytes(&self, kind: StreamKind) -> Option<ByteStream> {
        byte_stream(self.stream(kind)?)
    }

    fn runs(&self, kind: StreamKind) -> Option<RunStream> {
        let (column, encoding) = (self.reader.column.kind, self.reader.encoding);
        let decoder = Decoder::of(column, encoding, kind)?;
        let stream = self.stream(kind)?;
        let parts = self.parts(stream, decoder);
        let parts = parts.unwrap_or_else(|| {
            let values = self.starts.last().copied().unwrap_or_default();
            let count = if decoder == Decoder::Boolean {
                values.div_ceil(8)
            } else {
                values
            };
            vec![RunPart {
                offset: 0,
                skip: 0,
                start: 0,
                count,
            }]
        });
        Some(RunStream {
            stream: byte_stream(stream)?,
            encoding: decoder.run_length()?,
            parts,
        })
    }

    /// One part per index group; `None` if the index does not have their positions.
    fn parts(&self, stream: &Stream, decoder: Decoder) -> Option<Vec<RunPart>> {
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
                let offset = inflated_offset(stream, &chunks, *position)?;
                let skip = position.values;
                if decoder != Decoder::Boolean {
                    return Some(RunPart {
                        offset,
                        skip,
                        start,
                        count: end - start,
                    });
                }
                // a byte may have bits of two groups
                let (first_byte, end_byte) = (start / 8, end.div_ceil(8));
                (skip % 8 == start % 8).then_some(RunPart {
                    offset,
                    skip: skip / 8,
                    start: first_byte,
                    count: end_byte - first_byte,
                })
            });
        parts.collect()
    }
}

/// The bytes of a stream; `None` if it is damaged. All codecs but zlib are inflated here.
fn byte_stream(stream: &Stream) -> Option<ByteStream> {
    match stream.codec.compression() {
        Compression::None => Some(ByteStream::uncompressed(stream.bytes.clone())),
        Compression::Zlib => {
            let chunks = stream.chunks().map(|chunk| {
                let chunk = chunk.ok()?;
                Some(DeflateChunk {
                    bytes: chunk.start..chunk.start + chunk.bytes.len(),
                    is_original: chunk.is_original,
                })
            });
            let deflated = DeflateChunks {
                chunks: chunks.collect::<Option<_>>()?,
                block_bytes: stream.codec.block_bytes(),
            };
            Some(ByteStream {
                bytes: stream.bytes.clone().into(),
                deflated: Some(deflated),
            })
        }
        _ => stream.inflate().ok().map(ByteStream::uncompressed),
    }
}

/// The byte of a position in the inflated stream.
fn inflated_offset(stream: &Stream, chunks: &[usize], position: Position) -> Option<usize> {
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
