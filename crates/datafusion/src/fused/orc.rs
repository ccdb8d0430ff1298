//! Columns of ORC files for the device to decode.

use bytes::Bytes;
use vectile_gpu::{
    ByteStream, DeflateChunk, DeflateChunks, RunLength, RunPart, RunStream, StreamColumn,
    StreamValues,
};
use vectile_orc::{Compression, Decoder, PartedColumn, PartedStream, PartedValues, Sign, Stream};

/// Converts a column for the device; `None` if a stream is damaged or of a kind that the device does not decode.
pub(crate) fn stream_column(column: PartedColumn) -> Option<StreamColumn> {
    let values = match column.values {
        PartedValues::Integers(stream) => StreamValues::Integers(run_stream(stream)?),
        PartedValues::Booleans(stream) => StreamValues::Bits(run_stream(stream)?),
        PartedValues::Bytes(stream) => StreamValues::Bytes(run_stream(stream)?),
        PartedValues::Floats(stream) => StreamValues::Floats(byte_stream(&stream)?),
        PartedValues::Decimals {
            digits,
            scales,
            scale,
        } => StreamValues::Decimals {
            digits: run_stream(digits)?,
            scales: run_stream(scales)?,
            scale,
        },
        PartedValues::Timestamps {
            seconds,
            nanoseconds,
            epoch,
        } => StreamValues::Timestamps {
            seconds: run_stream(seconds)?,
            nanoseconds: run_stream(nanoseconds)?,
            epoch,
        },
        PartedValues::Codes { codes, entries } => StreamValues::Codes {
            codes: run_stream(codes)?,
            entries,
        },
        PartedValues::Text { bytes, lengths } => StreamValues::Strings {
            bytes: byte_stream(&bytes)?,
            lengths,
        },
    };
    Some(StreamColumn {
        data_type: column.data_type,
        rows: column.rows,
        nulls: column.nulls,
        values,
    })
}

fn run_stream(parted: PartedStream) -> Option<RunStream> {
    let encoding = match parted.decoder {
        Decoder::Boolean | Decoder::ByteRle => RunLength::Bytes,
        Decoder::RleV1(sign) => RunLength::V1 {
            is_signed: sign == Sign::Signed,
        },
        Decoder::RleV2(sign) => RunLength::V2 {
            is_signed: sign == Sign::Signed,
        },
        Decoder::Decimals => RunLength::Varints,
        Decoder::Bytes => return None,
    };
    let parts = parted.parts.iter().map(|part| RunPart {
        at: part.at,
        skip: part.skip,
        first: part.first,
        count: part.count,
    });
    Some(RunStream {
        stream: byte_stream(&parted.stream)?,
        encoding,
        parts: parts.collect(),
    })
}

/// The bytes of a stream. All codecs but zlib are inflated here.
fn byte_stream(stream: &Stream) -> Option<ByteStream> {
    let as_they_are = |bytes: Bytes| ByteStream {
        bytes: bytes.into(),
        chunks: None,
    };
    match stream.codec.compression() {
        Compression::None => Some(as_they_are(stream.bytes.clone())),
        Compression::Zlib => {
            let places = stream.chunks().map(|chunk| {
                let chunk = chunk.ok()?;
                Some(DeflateChunk {
                    bytes: chunk.start..chunk.start + chunk.bytes.len(),
                    is_original: chunk.is_original,
                })
            });
            let chunks = DeflateChunks {
                places: places.collect::<Option<_>>()?,
                block_bytes: stream.codec.block_bytes(),
            };
            Some(ByteStream {
                bytes: stream.bytes.clone().into(),
                chunks: Some(chunks),
            })
        }
        _ => stream.inflate().ok().map(as_they_are),
    }
}
