//! One writer for every format: writes batches to a complete file, or to none.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow::json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use object_store::ObjectStoreExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use vectile_file::{EncodeTime, Staged, Writer as VectileWriter, WriterOptions, publish};

use crate::dictionaries::GrowingDictionaries;
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format};
use crate::location::Destination;
use crate::nearest;
use crate::text_options::TextArgs;
use crate::upload::Upload;

/// Zstandard level of the Parquet files we write: where its ratio curve flattens.
const PARQUET_ZSTD_LEVEL: i32 = 3;

/// Encoded bytes gathered before they are handed to the upload.
const FLUSH_BYTES: usize = 1 << 20;

/// A file to be written.
pub struct Output {
    /// The path or URL.
    pub destination: Destination,
    /// The format and compression.
    pub kind: FileKind,
    /// Options, for Vectile only.
    pub options: WriterOptions,
    /// Options, for CSV only.
    pub text: TextArgs,
}

/// Sizes and times of a finished file.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Rows written.
    pub rows: u64,
    /// Bytes of the same rows as Arrow arrays in memory.
    pub arrow_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Per column, for Vectile files only.
    pub columns: Vec<ColumnSummary>,
    /// Time spent reading its rows.
    pub reading: Duration,
    /// Time spent filtering and sorting them.
    pub arranging: Duration,
    /// Time its writer waited for the store; for Vectile files only.
    pub storing: Duration,
}

/// Encodings and sizes of one column.
#[derive(Clone, Debug)]
pub struct ColumnSummary {
    /// The column's name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: String,
    /// The encodings used, most frequent first.
    pub encodings: Vec<String>,
    /// Bytes of its values as Arrow arrays in memory.
    pub arrow_bytes: u64,
    /// Bytes of its values and zone maps in the file.
    pub encoded_bytes: u64,
    /// Time spent on encoding it.
    pub time: EncodeTime,
}

/// Writes one table to one file.
pub struct TableWriter {
    destination: Destination,
    inner: Inner,
    rows: u64,
    arrow_bytes: u64,
    schema: SchemaRef,
}

enum Inner {
    Vectile(Box<VectileWriter>),
    Bytes(Box<BytesWriter>),
}

/// A format whose encoder works in memory, and the upload of its output.
struct BytesWriter {
    encoder: Encoder,
    encoded: SharedBuffer,
    upload: Upload,
}

impl Inner {
    fn try_new(output: &Output, schema: &SchemaRef) -> Result<Self> {
        let (destination, kind) = (&output.destination, output.kind);
        if kind.format == Format::Vectile {
            let writer = vectile_writer(output, schema)?;
            return Ok(Inner::Vectile(Box::new(writer)));
        }
        let encoded = SharedBuffer::default();
        Ok(Inner::Bytes(Box::new(BytesWriter {
            encoder: Encoder::try_new(kind.format, &output.text, schema, encoded.clone())?,
            encoded,
            upload: Upload::new(destination, kind.compression)?,
        })))
    }
}

impl TableWriter {
    /// Starts a file.
    pub fn try_new(output: Output, schema: &SchemaRef) -> Result<Self> {
        let inner = Inner::try_new(&output, schema);
        let destination = output.destination;
        let inner = inner.map_err(|error| cannot_write(&destination, error))?;
        Ok(TableWriter {
            destination,
            inner,
            rows: 0,
            arrow_bytes: 0,
            schema: Arc::clone(schema),
        })
    }

    /// Adds rows.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.arrow_bytes += arrow_bytes(batch.columns());
        let written = match &mut self.inner {
            Inner::Vectile(writer) => writer.write(batch).await.map_err(CliError::from),
            Inner::Bytes(writer) => writer.write(batch).await,
        };
        written.map_err(|error| cannot_write(&self.destination, error))
    }

    /// Writes the remaining rows, and leaves it to [`StagedTable::publish`] to give the file its name. `reading` is the
    /// time it took to read the rows.
    pub async fn stage(self, reading: Duration) -> Result<StagedTable> {
        let TableWriter {
            destination,
            inner,
            rows,
            arrow_bytes,
            schema,
        } = self;
        let staged = match inner {
            Inner::Vectile(writer) => match writer.stage().await {
                Ok(staged) => Ok(StagedFile::Vectile(Box::new(staged))),
                Err(error) => Err(error.into()),
            },
            Inner::Bytes(writer) => writer.stage().await.map(StagedFile::Bytes),
        };
        let file = staged.map_err(|error| cannot_write(&destination, error))?;
        Ok(StagedTable {
            destination,
            file,
            schema,
            summary: Summary {
                rows,
                arrow_bytes,
                reading,
                ..Summary::default()
            },
        })
    }

    /// Completes the file.
    #[cfg(test)]
    pub async fn finish(self) -> Result<Summary> {
        self.stage(Duration::ZERO).await?.publish().await
    }

    /// Aborts: nothing is left of the file.
    pub async fn abort(self) {
        match self.inner {
            // The caller already reports an error, which this one would hide.
            Inner::Vectile(writer) => drop(writer.abort().await),
            Inner::Bytes(writer) => writer.upload.abort().await,
        }
    }
}

/// A written table whose file does not have its name yet.
pub struct StagedTable {
    destination: Destination,
    file: StagedFile,
    schema: SchemaRef,
    summary: Summary,
}

enum StagedFile {
    Vectile(Box<Staged>),
    Bytes(Upload),
}

impl StagedTable {
    /// The destination of the file.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Gives the file its name.
    pub async fn publish(self) -> Result<Summary> {
        let StagedTable {
            destination,
            file,
            schema,
            summary,
        } = self;
        let published = match file {
            StagedFile::Vectile(staged) => publish_vectile(*staged, &schema).await,
            StagedFile::Bytes(upload) => publish_bytes(upload, &destination).await,
        };
        let published = published.map_err(|error| cannot_write(&destination, error))?;
        Ok(Summary {
            rows: summary.rows,
            arrow_bytes: summary.arrow_bytes,
            reading: summary.reading,
            ..published
        })
    }

    /// Aborts: nothing is left of the file.
    pub async fn abort(self) {
        match self.file {
            // The caller already reports an error, which this one would hide.
            StagedFile::Vectile(staged) => drop(staged.abort().await),
            StagedFile::Bytes(upload) => upload.abort().await,
        }
    }
}

fn cannot_write(destination: &Destination, error: CliError) -> CliError {
    error
        .context(format!("cannot write {}", destination.display))
        .hint("no file was left behind")
}

fn vectile_writer(output: &Output, schema: &SchemaRef) -> Result<VectileWriter> {
    let destination = &output.destination;
    let options = output.options.clone();
    let options = options.with_local_root(destination.local_root());
    let store = Arc::clone(&destination.store);
    let writer =
        VectileWriter::try_new(store, destination.path.clone(), Arc::clone(schema), options)?;
    Ok(writer)
}

async fn publish_vectile(staged: Staged, schema: &SchemaRef) -> Result<Summary> {
    let written = publish(vec![staged]).await?.pop();
    let written =
        written.ok_or_else(|| CliError::failed("a file was published without a summary"))?;
    let columns = written.columns.into_iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| ColumnSummary {
        name: column.name,
        data_type: field.data_type().to_string(),
        encodings: by_frequency(column.encodings),
        arrow_bytes: column.arrow_bytes,
        encoded_bytes: column.encoded_bytes,
        time: column.time,
    });
    Ok(Summary {
        bytes: written.bytes,
        storing: written.storing,
        columns: columns.collect(),
        ..Summary::default()
    })
}

/// The names, most frequent first.
pub fn by_frequency(counts: BTreeMap<String, usize>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(name, _)| name).collect()
}

impl BytesWriter {
    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        // Encoding is CPU work; other tasks continue elsewhere meanwhile.
        tokio::task::block_in_place(|| self.encoder.write(batch))?;
        match self.encoded.len() >= FLUSH_BYTES {
            true => self.upload.put(self.encoded.take()).await,
            false => Ok(()),
        }
    }

    async fn stage(self) -> Result<Upload> {
        let BytesWriter {
            encoder,
            encoded,
            mut upload,
        } = self;
        let done = async {
            tokio::task::block_in_place(|| encoder.finish())?;
            upload.put(encoded.take()).await
        };
        match done.await {
            Ok(()) => Ok(upload),
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }
}

async fn publish_bytes(mut upload: Upload, destination: &Destination) -> Result<Summary> {
    if let Err(error) = upload.finish().await {
        upload.abort().await;
        return Err(error);
    }
    tokio::task::block_in_place(|| destination.sync()).map_err(|error| {
        CliError::from(error).hint("the file is there, but may not be on disk yet")
    })?;
    let stored = destination.store.head(&destination.path).await;
    Ok(Summary {
        bytes: stored.map_or(upload.bytes(), |meta| meta.size),
        ..Summary::default()
    })
}

/// Encodes batches in a format.
enum Encoder {
    Parquet(Box<ArrowWriter<SharedBuffer>>, SchemaRef),
    Csv(Box<arrow::csv::Writer<SharedBuffer>>, TextArgs),
    Json(arrow::json::Writer<SharedBuffer, LineDelimited>),
    Arrow(Box<FileWriter<SharedBuffer>>, GrowingDictionaries),
    Arrows(Box<StreamWriter<SharedBuffer>>),
}

impl Encoder {
    fn try_new(
        format: Format,
        text: &TextArgs,
        schema: &SchemaRef,
        out: SharedBuffer,
    ) -> Result<Self> {
        Ok(match format {
            Format::Parquet => {
                crate::parquet_schema::check(schema)?;
                let level = ZstdLevel::try_new(PARQUET_ZSTD_LEVEL)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    .build();
                let schema = nearest::parquet_schema(schema);
                let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties))?;
                Encoder::Parquet(Box::new(writer), schema)
            }
            Format::Csv => {
                let mut writer = arrow::csv::WriterBuilder::new()
                    .with_header(text.has_header())
                    .with_delimiter(text.delimiter())
                    .with_null(text.null().to_owned())
                    .build(out);
                // An empty batch, so that a table without rows still gets its header line.
                writer.write(&RecordBatch::new_empty(Arc::clone(schema)))?;
                Encoder::Csv(Box::new(writer), text.clone())
            }
            Format::Json => Encoder::Json(JsonBuilder::new().with_explicit_nulls(true).build(out)),
            Format::Arrow => {
                let options = ipc_options()?;
                let writer = FileWriter::try_new_with_options(out, schema, options)?;
                Encoder::Arrow(Box::new(writer), GrowingDictionaries::new(schema))
            }
            Format::Arrows => {
                let writer = StreamWriter::try_new_with_options(out, schema, ipc_options()?)?;
                Encoder::Arrows(Box::new(writer))
            }
            Format::Orc => {
                return Err(CliError::failed("ORC files are read and not written")
                    .hint("choose .vectile, .parquet or .arrow"));
            }
            Format::Vectile => {
                return Err(CliError::failed(
                    "Vectile files are not made by this encoder",
                ));
            }
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Encoder::Parquet(writer, schema) => writer.write(&nearest::fit(batch, schema)?)?,
            Encoder::Csv(writer, text) => {
                text.check_nulls(batch)?;
                writer.write(batch)?;
            }
            Encoder::Json(writer) => writer.write(batch)?,
            Encoder::Arrow(writer, dictionaries) => writer.write(&dictionaries.grow(batch)?)?,
            Encoder::Arrows(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Encoder::Parquet(writer, _) => drop(writer.close()?),
            Encoder::Csv(..) => (), // flushed with every batch
            Encoder::Json(mut writer) => writer.finish()?,
            Encoder::Arrow(mut writer, _) => writer.finish()?,
            Encoder::Arrows(mut writer) => writer.finish()?,
        }
        Ok(())
    }
}

fn ipc_options() -> Result<IpcWriteOptions> {
    let compression = Some(CompressionType::LZ4_FRAME);
    Ok(IpcWriteOptions::default()
        .try_with_compression(compression)?
        .with_dictionary_handling(arrow::ipc::writer::DictionaryHandling::Delta))
}

/// A buffer between the synchronous encoders and the upload.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that these arrays' values take in memory, without unused parts of their buffers.
pub fn arrow_bytes(columns: &[ArrayRef]) -> u64 {
    let bytes = columns.iter().map(|column| {
        let sliced = column.to_data().get_slice_memory_size();
        sliced.unwrap_or_else(|_| column.get_array_memory_size()) as u64
    });
    bytes.sum()
}
