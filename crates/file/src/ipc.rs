//! The Arrow IPC frame around encoded columns. Writing:
//!
//! ```text
//! 0        "ARROW1" 0 0
//! 8        schema message
//! ...      per row group: record batch message, and body
//! ...      end of stream: ff ff ff ff 00 00 00 00
//! ...      Vectile footer, padded to 8        <- "vectile" = version,offset,length,crc32
//! ...      Arrow footer (flatbuffer)
//! -10      length of the Arrow footer, i32
//! -6       "ARROW1"
//! ```
//!
//! Reading needs only the last two lines and the pointer in the Arrow footer. All of that is
//! untrusted: flatbuffers are read through the verifier alone.

use std::ops::Range;

use arrow::datatypes::Schema;
use arrow::ipc::{
    Block, Buffer, Field, FieldArgs, FieldNode, FooterBuilder, KeyValue, KeyValueArgs, LargeBinary,
    LargeBinaryArgs, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
    SchemaArgs, Type, root_as_footer,
};
use bytes::Bytes;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::error::{Error, FilePosition, Result};

/// Messages and buffers start at multiples of this.
const ALIGNMENT: u64 = 8;

/// Encoded values of at least this many bytes start at a multiple of [`LARGE_ALIGNMENT`].
const LARGE: usize = 4096;
const LARGE_ALIGNMENT: u64 = 64;

/// Bytes after the Arrow footer: its length and the magic.
pub(crate) const TRAILER_BYTES: u64 = 10;

/// Bytes of the end-of-stream marker.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The bytes before the first message.
pub(crate) const HEADER: &[u8; 8] = b"ARROW1\0\0";

const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The key of the pointer to the Vectile footer and of the names and types of columns, which are for human readers.
const POINTER_KEY: &str = "vectile";
const COLUMNS_KEY: &str = "vectile.columns";
/// In version 1, the version and the rest of the pointer.
const VERSION_1_KEYS: [&str; 2] = ["vectile.format_version", "vectile.footer"];

/// The container's column.
const CHUNKS: &str = "chunks";

/// The start of the file: magic and schema message.
pub(crate) fn file_header() -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let container = container(&mut builder);
    let message = finish_message(
        builder,
        MessageHeader::Schema,
        container.as_union_value(),
        0,
    );
    let mut bytes = HEADER.to_vec();
    frame(&mut bytes, &message, 0, ALIGNMENT)?;
    Ok(bytes)
}

/// The container's schema, equal for every table: a binary column, with a row for each column of a row group. So a
/// column of a small table takes no space in flatbuffers, where it would take as much as its values.
fn container<'a>(builder: &mut FlatBufferBuilder<'a>) -> WIPOffset<arrow::ipc::Schema<'a>> {
    let binary = LargeBinary::create(builder, &LargeBinaryArgs {}).as_union_value();
    let children = builder.create_vector::<WIPOffset<Field<'a>>>(&[]);
    let name = builder.create_string(CHUNKS);
    let field = FieldArgs {
        name: Some(name),
        nullable: false,
        type_type: Type::LargeBinary,
        type_: Some(binary),
        dictionary: None,
        children: Some(children),
        custom_metadata: None,
    };
    let field = Field::create(builder, &field);
    let fields = builder.create_vector(&[field]);
    arrow::ipc::Schema::create(
        builder,
        &SchemaArgs {
            fields: Some(fields),
            ..SchemaArgs::default()
        },
    )
}

fn key_value<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    key: &str,
    value: &str,
) -> WIPOffset<KeyValue<'a>> {
    let args = KeyValueArgs {
        key: Some(builder.create_string(key)),
        value: Some(builder.create_string(value)),
    };
    KeyValue::create(builder, &args)
}

/// One column of one row group, encoded.
#[derive(Debug)]
pub(crate) struct ChunkParts {
    pub(crate) zones: Bytes,
    pub(crate) bloom: Bytes,
    pub(crate) data: Bytes,
}

/// The ranges of a column's parts.
#[derive(Debug)]
pub(crate) struct ChunkRanges {
    pub(crate) zones: Range<u64>,
    pub(crate) bloom: Range<u64>,
    pub(crate) data: Range<u64>,
}

/// A record batch message and its body.
#[derive(Debug)]
pub(crate) struct Message {
    /// All its bytes, in order.
    pub(crate) pieces: Vec<Bytes>,
    /// Bytes before the body.
    pub(crate) metadata_bytes: u64,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
    /// Per column, the ranges of its parts in the body.
    pub(crate) chunks: Vec<ChunkRanges>,
}

/// The record batch that holds a row group, a row for each column, to be written at `offset`, a multiple of
/// [`ALIGNMENT`].
pub(crate) fn row_group_message(columns: Vec<ChunkParts>, offset: u64) -> Result<Message> {
    let is_large = columns.iter().any(|column| column.data.len() >= LARGE);
    let rows = columns.len();
    let start = (rows as u64 + 1) * size_of::<i64>() as u64;
    let mut body = Body {
        len: start,
        ..Body::default()
    };
    let mut chunks = Vec::with_capacity(rows);
    let mut bounds = 0i64.to_le_bytes().to_vec();
    for column in columns {
        chunks.push(body.column(column));
        bounds.extend(signed(body.len - start)?.to_le_bytes());
    }
    let buffers = [
        // the validity buffer: without nulls, it is empty
        Buffer::new(0, 0),
        Buffer::new(0, signed(start)?),
        Buffer::new(signed(start)?, signed(body.len - start)?),
    ];
    body.pad(body.len.next_multiple_of(ALIGNMENT));
    body.flush();

    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(&[FieldNode::new(rows as i64, 0)]);
    let buffers = builder.create_vector(&buffers);
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    let batch = batch.finish().as_union_value();
    let body_bytes = signed(body.len)?;
    let message = finish_message(builder, MessageHeader::RecordBatch, batch, body_bytes);

    let mut metadata = Vec::new();
    let alignment = if is_large { LARGE_ALIGNMENT } else { ALIGNMENT };
    frame(&mut metadata, &message, offset, alignment)?;
    let metadata_bytes = metadata.len() as u64;
    metadata.extend(bounds);
    body.pieces.insert(0, metadata.into());
    Ok(Message {
        pieces: body.pieces,
        metadata_bytes,
        body_bytes: body.len,
        chunks,
    })
}

/// A record batch's body as it grows: large parts are kept as they are, small ones and padding are gathered in
/// `small` between them.
#[derive(Debug, Default)]
struct Body {
    pieces: Vec<Bytes>,
    small: Vec<u8>,
    len: u64,
}

impl Body {
    /// Appends all parts of a column.
    fn column(&mut self, parts: ChunkParts) -> ChunkRanges {
        let zones = self.len..self.len + parts.zones.len() as u64;
        let bloom = zones.end..zones.end + parts.bloom.len() as u64;
        let at = match parts.data.len() {
            LARGE.. => bloom.end.next_multiple_of(LARGE_ALIGNMENT),
            _ => bloom.end,
        };
        let data = at..at + parts.data.len() as u64;
        self.put(parts.zones);
        self.put(parts.bloom);
        self.pad(data.start);
        self.put(parts.data);
        ChunkRanges { zones, bloom, data }
    }

    fn put(&mut self, bytes: Bytes) {
        self.len += bytes.len() as u64;
        if bytes.len() < LARGE {
            self.small.extend_from_slice(&bytes);
        } else {
            self.flush();
            self.pieces.push(bytes);
        }
    }

    fn pad(&mut self, end: u64) {
        let zeros = (end - self.len) as usize;
        self.small.resize(self.small.len() + zeros, 0);
        self.len = end;
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).into());
        }
    }
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

/// Appends a message: continuation marker, length, flatbuffer, and padding so that what follows is aligned in a file
/// where `out` starts at `offset`.
fn frame(out: &mut Vec<u8>, message: &[u8], offset: u64, alignment: u64) -> Result<()> {
    let start = out.len() + CONTINUATION.len() + size_of::<i32>();
    let end = offset + (start + message.len()) as u64;
    let end = (end.next_multiple_of(alignment) - offset) as usize;
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

/// The position and format version of the Vectile footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterPointer {
    pub(crate) version: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) crc32: u32,
}

/// The position of a row group's message in the file.
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
    let pointer = format!("{version},{offset},{len},{crc32:08x}");
    let columns = schema.fields().iter();
    let columns = columns.map(|field| format!("{}: {}", field.name(), field.data_type()));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<Block>(&[]);
    let record_batches = builder.create_vector(blocks);
    let schema = container(&mut builder);
    let custom = [
        key_value(&mut builder, POINTER_KEY, &pointer),
        key_value(&mut builder, COLUMNS_KEY, &columns),
    ];
    let custom = builder.create_vector(&custom);
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
    position: FilePosition<'_>,
) -> Result<Range<u64>> {
    let Some((len, MAGIC)) = trailer.split_first_chunk::<4>() else {
        return Err(position.not_vectile("it does not end as an Arrow IPC file does"));
    };
    let len = i32::from_le_bytes(*len);
    let end = file_bytes.saturating_sub(TRAILER_BYTES);
    let start = u64::try_from(len)
        .ok()
        .and_then(|len| end.checked_sub(len))
        .filter(|start| *start >= HEADER.len() as u64);
    start
        .map(|start| start..end)
        .ok_or_else(|| position.corrupt(format!("an Arrow footer of {len} bytes in {file_bytes}")))
}

/// The pointer to the Vectile footer, from the bytes of the Arrow footer.
pub(crate) fn footer_pointer(
    arrow_footer: &[u8],
    position: FilePosition<'_>,
) -> Result<FooterPointer> {
    let footer = root_as_footer(arrow_footer)
        .map_err(|error| position.corrupt(format!("the Arrow footer is not readable: {error}")))?;
    let value_of = |name: &str| {
        let pairs = footer.custom_metadata()?;
        let pair = pairs.iter().find(|pair| pair.key() == Some(name))?;
        pair.value()
    };
    let of_version_1 = || {
        let [version, pointer] = VERSION_1_KEYS.map(value_of);
        Some((version?, pointer.unwrap_or_default()))
    };
    let pointer = value_of(POINTER_KEY).map(|value| value.split_once(',').unwrap_or((value, "")));
    let (version, pointer) = pointer.or_else(of_version_1).ok_or_else(|| {
        position.not_vectile("it is an Arrow IPC file, but not of encoded columns")
    })?;
    let version = version
        .parse()
        .ok()
        .filter(|version| *version > 0)
        .ok_or_else(|| position.corrupt(format!("the format version is {version:?}")))?;
    if version > crate::FORMAT_VERSION {
        return Err(position.version(version));
    }
    parse_pointer(pointer, version).ok_or_else(|| {
        position.corrupt("no readable place of the Vectile footer in the Arrow footer")
    })
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
    use arrow::datatypes::DataType;
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
        let field = arrow::datatypes::Field::new("a", DataType::Utf8, false);
        file_trailer(&Schema::new(vec![field]), &[], pointer).unwrap()
    }

    fn footer_of(file: &[u8]) -> Result<FooterPointer> {
        let position = FilePosition::file("t");
        let size = file.len() as u64;
        let tail = &file[file.len() - TRAILER_BYTES as usize..];
        let range = arrow_footer_range(tail, size, position)?;
        footer_pointer(&file[range.start as usize..range.end as usize], position)
    }

    #[test]
    fn the_trailer_leads_to_the_footer() {
        let mut file = HEADER.to_vec();
        file.extend(trailer(pointer()));
        assert_eq!(footer_of(&file).unwrap(), pointer());
    }

    #[test]
    fn pointers_of_version_1_are_read() {
        let mut builder = FlatBufferBuilder::new();
        let values = ["1", "64,7,00abcdef"];
        let pairs = VERSION_1_KEYS.iter().zip(values);
        let pairs = pairs.map(|(key, value)| key_value(&mut builder, key, value));
        let pairs: Vec<_> = pairs.collect();
        let pairs = builder.create_vector(&pairs);
        let mut footer = FooterBuilder::new(&mut builder);
        footer.add_custom_metadata(pairs);
        let footer = footer.finish();
        builder.finish(footer, None);
        let parsed = footer_pointer(builder.finished_data(), FilePosition::file("t")).unwrap();
        assert_eq!(
            parsed,
            FooterPointer {
                version: 1,
                ..pointer()
            }
        );
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
        let data = Bytes::from(vec![7u8; 5000]);
        let parts = |data: &Bytes| ChunkParts {
            zones: Bytes::from_static(b"zones"),
            bloom: Bytes::from_static(b"blooms"),
            data: data.clone(),
        };
        let small = parts(&Bytes::from_static(b"data"));
        let offset = 16;
        let message = row_group_message(vec![small, parts(&data)], offset).unwrap();
        let bytes = message.pieces.concat();
        assert_eq!(
            bytes.len() as u64,
            message.metadata_bytes + message.body_bytes
        );
        let body = offset + message.metadata_bytes;
        assert!(body.is_multiple_of(LARGE_ALIGNMENT));
        let large = &message.chunks[1].data;
        assert!((body + large.start).is_multiple_of(LARGE_ALIGNMENT));
        let in_body = |range: &Range<u64>| {
            &bytes[message.metadata_bytes as usize..][range.start as usize..range.end as usize]
        };
        assert_eq!(in_body(&message.chunks[0].data), b"data");
        assert_eq!(in_body(&message.chunks[1].zones), b"zones");
        assert_eq!(in_body(&message.chunks[1].bloom), b"blooms");
        assert_eq!(in_body(large), data);
        let parsed = root_as_message(&bytes[8..message.metadata_bytes as usize]).unwrap();
        let batch = parsed.header_as_record_batch().unwrap();
        assert_eq!(batch.length(), 2);
        assert_eq!(batch.nodes().unwrap().len(), 1);
        assert_eq!(batch.buffers().unwrap().len(), 3);
        for buffer in batch.buffers().unwrap() {
            assert!((buffer.offset() as u64).is_multiple_of(ALIGNMENT));
        }
        assert_eq!(parsed.bodyLength() as u64, message.body_bytes);
        assert!(message.body_bytes.is_multiple_of(ALIGNMENT));

        let small = row_group_message(vec![parts(&Bytes::new())], offset).unwrap();
        assert!(small.metadata_bytes.is_multiple_of(ALIGNMENT));
    }
}
