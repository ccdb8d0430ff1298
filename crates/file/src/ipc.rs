//! The Arrow IPC frame around encoded columns. Writing:
//!
//! ```text
//! 0        "ARROW1" 0 0
//! 8        schema message, padded to 64
//! ...      per row group: record batch message, padded to 64, and body
//! ...      end of stream: ff ff ff ff 00 00 00 00
//! ...      Vectile footer, padded to 8        <- "vectile.footer" = offset,length,crc32
//! ...      Arrow footer (flatbuffer)
//! -10      length of the Arrow footer, i32
//! -6       "ARROW1"
//! ```
//!
//! Reading needs only the last two lines and the pointer in the Arrow footer. All of that is
//! untrusted: flatbuffers are read through the verifier alone.

use std::collections::HashMap;
use std::ops::Range;

use arrow::datatypes::Schema;
use arrow::ipc::convert::{IpcSchemaEncoder, metadata_to_fb};
use arrow::ipc::{
    Block, Buffer, FieldNode, FooterBuilder, MessageBuilder, MessageHeader, MetadataVersion,
    RecordBatchBuilder, root_as_footer,
};
use bytes::Bytes;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::error::{Error, Place, Result};

/// Bodies, buffers in them, and messages start at multiples of this.
pub(crate) const ALIGNMENT: u64 = 64;

/// Bytes after the Arrow footer: its length and the magic.
pub(crate) const TRAILER_BYTES: u64 = 10;

/// Bytes of the end-of-stream marker.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The bytes before the first message.
pub(crate) const HEADER: &[u8; 8] = b"ARROW1\0\0";

const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
const VERSION_KEY: &str = "vectile.format_version";
const POINTER_KEY: &str = "vectile.footer";

/// The start of the file: magic and schema message.
pub(crate) fn file_header(schema: &Schema) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let message = finish_message(builder, MessageHeader::Schema, schema.as_union_value(), 0);
    let mut bytes = HEADER.to_vec();
    frame(&mut bytes, &message)?;
    Ok(bytes)
}

/// One column of one row group, encoded.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) encoding: &'a str,
    pub(crate) zones: Bytes,
    pub(crate) data: Bytes,
}

/// A record batch message and its body, to be written at an aligned offset.
#[derive(Debug)]
pub(crate) struct Message {
    /// All its bytes, in order.
    pub(crate) pieces: Vec<Bytes>,
    /// Bytes before the body.
    pub(crate) metadata_bytes: u64,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
    /// Per column, where its zones and its data are in the body.
    pub(crate) chunks: Vec<(Range<u64>, Range<u64>)>,
}

/// The record batch of one row that holds a row group.
pub(crate) fn row_group_message(columns: Vec<Parts<'_>>) -> Result<Message> {
    let mut body = Body::default();
    let chunks = columns
        .into_iter()
        .map(|column| body.column(column))
        .collect::<Result<Vec<_>>>()?;
    body.flush();

    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(&vec![FieldNode::new(1, 0); chunks.len() * 4]);
    let buffers = builder.create_vector(&body.buffers);
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(1);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    let batch = batch.finish().as_union_value();
    let body_bytes = signed(body.len)?;
    let message = finish_message(builder, MessageHeader::RecordBatch, batch, body_bytes);

    let mut metadata = Vec::new();
    frame(&mut metadata, &message)?;
    let metadata_bytes = metadata.len() as u64;
    body.pieces.insert(0, metadata.into());
    Ok(Message {
        pieces: body.pieces,
        metadata_bytes,
        body_bytes: body.len,
        chunks,
    })
}

/// A record batch's body as it grows: large buffers are kept as they are, small ones and
/// padding are gathered in `small` between them.
#[derive(Debug, Default)]
struct Body {
    pieces: Vec<Bytes>,
    small: Vec<u8>,
    len: u64,
    buffers: Vec<Buffer>,
}

impl Body {
    /// The buffers of one struct of `encoding`, `zones` and `data`, parents first; without nulls
    /// a validity buffer is empty.
    fn column(&mut self, parts: Parts<'_>) -> Result<(Range<u64>, Range<u64>)> {
        let text = Bytes::copy_from_slice(parts.encoding.as_bytes());
        let text_len = i32::try_from(text.len())
            .map_err(|_| Error::Internal("the name of an encoding is too long".into()))?;
        self.validity()?;
        self.validity()?;
        self.buffer(offsets(0i32.to_le_bytes(), text_len.to_le_bytes()))?;
        self.buffer(text)?;
        let zones = self.binary(parts.zones)?;
        let data = self.binary(parts.data)?;
        Ok((zones, data))
    }

    /// The buffers of a large binary array of one value.
    fn binary(&mut self, value: Bytes) -> Result<Range<u64>> {
        let len = signed(value.len() as u64)?;
        self.validity()?;
        self.buffer(offsets(0i64.to_le_bytes(), len.to_le_bytes()))?;
        self.buffer(value)
    }

    fn validity(&mut self) -> Result<()> {
        self.buffer(Bytes::new()).map(drop)
    }

    fn buffer(&mut self, bytes: Bytes) -> Result<Range<u64>> {
        let range = self.len..self.len + bytes.len() as u64;
        self.buffers.push(Buffer::new(
            signed(range.start)?,
            signed(bytes.len() as u64)?,
        ));
        if bytes.len() as u64 <= ALIGNMENT {
            self.small.extend_from_slice(&bytes);
        } else {
            self.flush();
            self.pieces.push(bytes);
        }
        let padded = range.end.next_multiple_of(ALIGNMENT);
        let small = self.small.len() + (padded - range.end) as usize;
        self.small.resize(small, 0);
        self.len = padded;
        Ok(range)
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).into());
        }
    }
}

fn offsets<const N: usize>(start: [u8; N], end: [u8; N]) -> Bytes {
    [start, end].concat().into()
}

fn signed(bytes: u64) -> Result<i64> {
    i64::try_from(bytes).map_err(|_| Error::Internal("a row group of more than 2^63 bytes".into()))
}

fn finish_message(
    mut builder: FlatBufferBuilder<'_>,
    header_type: MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body_bytes: i64,
) -> Vec<u8> {
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(header_type);
    message.add_header(header);
    message.add_bodyLength(body_bytes);
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// Appends a message: continuation marker, length, flatbuffer, and padding so that what follows
/// is aligned.
fn frame(out: &mut Vec<u8>, message: &[u8]) -> Result<()> {
    let start = out.len() + CONTINUATION.len() + size_of::<i32>();
    let end = (start + message.len()).next_multiple_of(ALIGNMENT as usize);
    let len = i32::try_from(end - start).map_err(|_| too_long("an Arrow message"))?;
    out.extend_from_slice(&CONTINUATION);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(message);
    out.resize(end, 0);
    Ok(())
}

fn too_long(what: &str) -> Error {
    Error::InvalidArgument(format!(
        "{what} exceeds 2 GiB: too many columns or row groups"
    ))
}

/// Where the Vectile footer is, and which format it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterPointer {
    pub(crate) version: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) crc32: u32,
}

/// Where a row group's message is in the file.
pub(crate) fn block(offset: u64, message: &Message) -> Result<Block> {
    let metadata =
        i32::try_from(message.metadata_bytes).map_err(|_| too_long("an Arrow message"))?;
    Ok(Block::new(
        signed(offset)?,
        metadata,
        signed(message.body_bytes)?,
    ))
}

/// The end of the file, which follows the (padded) Vectile footer.
pub(crate) fn file_trailer(
    schema: &Schema,
    blocks: &[Block],
    pointer: FooterPointer,
) -> Result<Vec<u8>> {
    let FooterPointer {
        version,
        offset,
        len,
        crc32,
    } = pointer;
    let custom = HashMap::from([
        (VERSION_KEY.to_owned(), version.to_string()),
        (
            POINTER_KEY.to_owned(),
            format!("{offset},{len},{crc32:08x}"),
        ),
    ]);
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<Block>(&[]);
    let record_batches = builder.create_vector(blocks);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let custom = metadata_to_fb(&mut builder, &custom);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(record_batches);
    footer.add_custom_metadata(custom);
    let footer = footer.finish();
    builder.finish(footer, None);

    let mut bytes = builder.finished_data().to_vec();
    let len = i32::try_from(bytes.len()).map_err(|_| too_long("the Arrow footer"))?;
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    Ok(bytes)
}

/// The bytes of the Arrow footer in a file of `file_bytes`, from its last [`TRAILER_BYTES`].
pub(crate) fn arrow_footer_range(
    trailer: &[u8],
    file_bytes: u64,
    place: Place<'_>,
) -> Result<Range<u64>> {
    let Some((len, MAGIC)) = trailer.split_first_chunk::<4>() else {
        return Err(place.not_vectile("it does not end as an Arrow IPC file does"));
    };
    let len = i32::from_le_bytes(*len);
    let end = file_bytes.saturating_sub(TRAILER_BYTES);
    let start = u64::try_from(len)
        .ok()
        .and_then(|len| end.checked_sub(len))
        .filter(|start| *start >= HEADER.len() as u64);
    start
        .map(|start| start..end)
        .ok_or_else(|| place.corrupt(format!("an Arrow footer of {len} bytes in {file_bytes}")))
}

/// The pointer to the Vectile footer, from the bytes of the Arrow footer.
pub(crate) fn footer_pointer(arrow_footer: &[u8], place: Place<'_>) -> Result<FooterPointer> {
    let footer = root_as_footer(arrow_footer)
        .map_err(|error| place.corrupt(format!("the Arrow footer is not readable: {error}")))?;
    let value_of = |name: &str| {
        let pairs = footer.custom_metadata()?;
        let pair = pairs.iter().find(|pair| pair.key() == Some(name))?;
        pair.value()
    };
    let version = value_of(VERSION_KEY)
        .ok_or_else(|| place.not_vectile("it is an Arrow IPC file, but not of encoded columns"))?;
    let version = version
        .parse()
        .ok()
        .filter(|version| *version > 0)
        .ok_or_else(|| place.corrupt(format!("the format version is {version:?}")))?;
    if version > crate::FORMAT_VERSION {
        return Err(place.version(version));
    }
    value_of(POINTER_KEY)
        .and_then(|value| parse_pointer(value, version))
        .ok_or_else(|| place.corrupt(format!("no readable {POINTER_KEY} in the Arrow footer")))
}

fn parse_pointer(value: &str, version: u32) -> Option<FooterPointer> {
    let (offset, rest) = value.split_once(',')?;
    let (len, crc32) = rest.split_once(',')?;
    Some(FooterPointer {
        version,
        offset: offset.parse().ok()?,
        len: len.parse().ok()?,
        crc32: u32::from_str_radix(crc32, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use arrow::ipc::root_as_message;

    fn pointer() -> FooterPointer {
        FooterPointer {
            version: crate::FORMAT_VERSION,
            offset: 64,
            len: 7,
            crc32: 0x00ab_cdef,
        }
    }

    fn trailer(pointer: FooterPointer) -> Vec<u8> {
        let schema = Schema::new(vec![Field::new("a", DataType::Utf8, false)]);
        file_trailer(&crate::schema::container(&schema), &[], pointer).unwrap()
    }

    fn footer_of(file: &[u8]) -> Result<FooterPointer> {
        let place = Place::file("t");
        let size = file.len() as u64;
        let tail = &file[file.len() - TRAILER_BYTES as usize..];
        let range = arrow_footer_range(tail, size, place)?;
        footer_pointer(&file[range.start as usize..range.end as usize], place)
    }

    #[test]
    fn the_trailer_leads_to_the_footer() {
        let mut file = HEADER.to_vec();
        file.extend(trailer(pointer()));
        assert_eq!(footer_of(&file).unwrap(), pointer());
    }

    #[test]
    fn newer_versions_are_refused_politely() {
        let newer = FooterPointer {
            version: crate::FORMAT_VERSION + 1,
            ..pointer()
        };
        let mut file = HEADER.to_vec();
        file.extend(trailer(newer));
        let error = footer_of(&file).unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedVersion { found, .. } if found == newer.version),
            "{error}"
        );
    }

    #[test]
    fn any_flipped_bit_of_the_trailer_is_an_error_or_harmless() {
        let mut file = HEADER.to_vec();
        file.extend(trailer(pointer()));
        for bit in HEADER.len() * 8..file.len() * 8 {
            file[bit / 8] ^= 1 << (bit % 8);
            let _typed = footer_of(&file);
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn row_group_messages_are_aligned_and_verified() {
        let data = Bytes::from(vec![7u8; 1000]);
        let message = row_group_message(vec![
            Parts {
                encoding: "plain",
                zones: Bytes::from_static(b"zones"),
                data: data.clone(),
            },
            Parts {
                encoding: "constant",
                zones: Bytes::new(),
                data: Bytes::new(),
            },
        ])
        .unwrap();
        let bytes = message.pieces.concat();
        assert_eq!(
            bytes.len() as u64,
            message.metadata_bytes + message.body_bytes
        );
        assert_eq!(message.metadata_bytes % ALIGNMENT, 0);
        for (zones, data) in &message.chunks {
            assert_eq!(zones.start % ALIGNMENT, 0);
            assert_eq!(data.start % ALIGNMENT, 0);
        }
        let (zones, values) = &message.chunks[0];
        let body = &bytes[message.metadata_bytes as usize..];
        assert_eq!(&body[zones.start as usize..zones.end as usize], b"zones");
        assert_eq!(body[values.start as usize..values.end as usize], data);
        let parsed = root_as_message(&bytes[8..message.metadata_bytes as usize]).unwrap();
        let batch = parsed.header_as_record_batch().unwrap();
        assert_eq!(batch.length(), 1);
        assert_eq!(batch.nodes().unwrap().len(), 8);
        assert_eq!(batch.buffers().unwrap().len(), 20);
        assert_eq!(parsed.bodyLength() as u64, message.body_bytes);
    }
}
