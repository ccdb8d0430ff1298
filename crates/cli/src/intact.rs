//! Checks a file of another format before it is read. Faults that its crate would ignore silently,
//! or that would end the process, are errors here.
//!
//! Readers of Arrow and Parquet files trust the lengths in a file: one too large to allocate ends
//! the process. So every length must first fit the file.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::{Block, CompressionType, Message, RecordBatch, root_as_footer, root_as_message};
use bytes::Bytes;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use object_store::ObjectStoreExt;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ColumnChunkMetaData;

use crate::error::{CliError, Result};
use crate::format::Format;
use crate::source::InputFile;

/// Checks the file, as far as its format needs it. Returns its schema, with every column, if the
/// format's reader would merge columns of the same name.
pub async fn check(file: &InputFile) -> Result<Option<SchemaRef>> {
    let schema = match file.kind.format {
        Format::Parquet => parquet_schema(file).await?,
        Format::Arrow | Format::Arrows => arrow_schema(file).await?,
        Format::Vectile | Format::Orc | Format::Csv | Format::Json => return Ok(None),
    };
    Ok(Some(Arc::new(schema)))
}

async fn parquet_schema(file: &InputFile) -> Result<Schema> {
    let reader = DFParquetMetadata::new(file.store.as_ref(), &file.meta);
    let metadata = reader.fetch_metadata().await?;
    for (index, row_group) in metadata.row_groups().iter().enumerate() {
        for column in row_group.columns() {
            if !parquet_ranges(column).all(|(start, len)| fits(start, len, file.meta.size)) {
                return Err(damaged(format!(
                    "column {} of row group {index} lies outside of the file",
                    column.column_path()
                )));
            }
        }
    }
    let metadata = metadata.file_metadata();
    let descriptor = metadata.schema_descr();
    Ok(parquet_to_arrow_schema(
        descriptor,
        metadata.key_value_metadata(),
    )?)
}

/// The start and length of a column's parts.
fn parquet_ranges(column: &ColumnChunkMetaData) -> impl Iterator<Item = (i64, i64)> {
    let start = column.dictionary_page_offset();
    let start = start.unwrap_or_else(|| column.data_page_offset());
    let index =
        |offset: Option<i64>, len: Option<i32>| (offset.unwrap_or(0), i64::from(len.unwrap_or(0)));
    [
        (start, column.compressed_size()),
        index(column.column_index_offset(), column.column_index_length()),
        index(column.offset_index_offset(), column.offset_index_length()),
    ]
    .into_iter()
}

fn fits(start: i64, len: i64, size: u64) -> bool {
    let end = start
        .checked_add(len)
        .and_then(|end| u64::try_from(end).ok());
    start >= 0 && len >= 0 && end.is_some_and(|end| end <= size)
}

fn damaged(what: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("the file is damaged: {what}"))
}

/// The first and last bytes of an Arrow IPC file; a stream does not have them.
const MAGIC: &[u8] = b"ARROW1";

/// The marker before the length of a message, except from an old version.
const CONTINUATION: [u8; 4] = [0xff; 4];

async fn arrow_schema(file: &InputFile) -> Result<Schema> {
    let source = CheckedFile { file };
    let magic = source
        .read(0..file.meta.size.min(MAGIC.len() as u64))
        .await?;
    match magic.as_ref() == MAGIC {
        true => source.check_file().await,
        false => source.check_stream().await,
    }
}

/// An Arrow file that is read by ranges.
struct CheckedFile<'a> {
    file: &'a InputFile,
}

impl CheckedFile<'_> {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let location = &self.file.meta.location;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(self.file.store.get_range(location, range).await?)
    }

    /// Reads `len` bytes at `start`; an error if the file is shorter.
    async fn read_part(&self, start: i64, len: i64) -> Result<Bytes> {
        match fits(start, len, self.file.meta.size) {
            true => self.read(start as u64..(start + len) as u64).await,
            false => Err(damaged("a part lies outside of the file")),
        }
    }

    /// Checks messages, then a footer with their positions, its length, and the magic again.
    async fn check_file(&self) -> Result<Schema> {
        let end = (self.file.meta.size as i64).saturating_sub(MAGIC.len() as i64 + 4);
        let tail = self.read_part(end, MAGIC.len() as i64 + 4).await?;
        let Some(footer_len) = tail.strip_suffix(MAGIC).and_then(|len| int(len, 0)) else {
            return Err(damaged("its end is missing"));
        };
        let footer_len = i64::from(footer_len);
        let footer = self.read_part(end - footer_len, footer_len).await?;
        let footer = root_as_footer(&footer).map_err(damaged)?;
        let dictionaries = footer.dictionaries().into_iter().flatten();
        let batches = footer.recordBatches().into_iter().flatten();
        for block in dictionaries.chain(batches) {
            self.check_block(block).await?;
        }
        let schema = footer.schema().ok_or_else(|| damaged("it has no schema"))?;
        Ok(fb_to_schema(schema))
    }

    async fn check_block(&self, block: &Block) -> Result<()> {
        let metadata_len = i64::from(block.metaDataLength());
        let metadata = self.read_part(block.offset(), metadata_len).await?;
        let flatbuffer = match metadata.get(..4) == Some(&CONTINUATION) {
            true => metadata.get(8..),
            false => metadata.get(4..),
        };
        let message = root_as_message(flatbuffer.unwrap_or_default()).map_err(damaged)?;
        self.check_body(&message, block.offset() + metadata_len, block.bodyLength())
            .await
    }

    /// Checks the schema's message, and the others in sequence.
    async fn check_stream(&self) -> Result<Schema> {
        let mut schema = None;
        let mut at = 0;
        let size = self.file.meta.size as i64;
        while at < size {
            let prefix = self.read_part(at, (size - at).min(8)).await?;
            let prefix_len = match prefix.get(..4) == Some(&CONTINUATION) {
                true => 8,
                false => 4,
            };
            let Some(metadata_len) = int(&prefix, prefix_len - 4).map(i64::from) else {
                break; // fewer bytes than a length has: for the reader, the end
            };
            if metadata_len == 0 {
                break;
            }
            at += prefix_len as i64;
            let metadata = self.read_part(at, metadata_len).await?;
            at += metadata_len;
            let message = root_as_message(&metadata).map_err(damaged)?;
            self.check_body(&message, at, message.bodyLength()).await?;
            at += message.bodyLength();
            if let (None, Some(message_schema)) = (&schema, message.header_as_schema()) {
                schema = Some(fb_to_schema(message_schema));
            }
        }
        schema.ok_or_else(|| damaged("it has no schema"))
    }

    /// Checks that a message's body is in the file and its buffers are in the body, and the
    /// decompressed sizes of compressed buffers.
    async fn check_body(&self, message: &Message<'_>, start: i64, len: i64) -> Result<()> {
        if !fits(start, len, self.file.meta.size) {
            return Err(damaged("a batch lies outside of the file"));
        }
        let dictionary = message.header_as_dictionary_batch();
        let batch = dictionary.and_then(|dictionary| dictionary.data());
        let Some(batch) = batch.or_else(|| message.header_as_record_batch()) else {
            return Ok(());
        };
        let buffers: Vec<(i64, i64)> = batch
            .buffers()
            .into_iter()
            .flatten()
            .map(|buffer| (buffer.offset(), buffer.length()))
            .collect();
        let inside = |&(offset, buffer_len): &(i64, i64)| fits(offset, buffer_len, len as u64);
        if !buffers.iter().all(inside) {
            return Err(damaged("a buffer lies outside of its batch"));
        }
        self.check_sizes(&batch, start, &buffers).await
    }

    /// Checks sizes: a compressed buffer begins with its decompressed length, or -1 if it is stored
    /// uncompressed.
    async fn check_sizes(
        &self,
        batch: &RecordBatch<'_>,
        start: i64,
        buffers: &[(i64, i64)],
    ) -> Result<()> {
        let Some(compression) = batch.compression() else {
            return Ok(());
        };
        let compressed: Vec<(u64, i64)> = buffers
            .iter()
            .filter(|(_, len)| *len >= 8)
            .map(|(offset, len)| ((start + offset) as u64, *len))
            .collect();
        let prefixes: Vec<_> = compressed.iter().map(|(at, _)| *at..at + 8).collect();
        let location = &self.file.meta.location;
        let prefixes = self.file.store.get_ranges(location, &prefixes).await?;
        for (prefix, (_, len)) in prefixes.iter().zip(compressed) {
            let plain = prefix
                .first_chunk()
                .map_or(0, |bytes| i64::from_le_bytes(*bytes));
            if plain > len.saturating_mul(most_per_byte(compression.codec())) {
                return Err(damaged(format!("{len} bytes are to become {plain}")));
            }
        }
        Ok(())
    }
}

/// The most bytes that a compressed byte can expand to.
fn most_per_byte(codec: CompressionType) -> i64 {
    match codec {
        CompressionType::LZ4_FRAME => 255, // a byte of a match's length
        _ => 1 << 15,                      // Zstandard: a block of 128 KiB in 4 bytes
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_le_bytes(*bytes))
}
