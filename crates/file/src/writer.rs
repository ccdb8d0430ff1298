//! Writes a table, row group by row group.
//!
//! Row groups are encoded in the background while the next one fills: one, and others beside it if threads are idle, up
//! to 512 MiB of Arrow arrays. They are written in order, so the file does not depend on the number of threads. The
//! object appears in its store only when [`Writer::finish`] has returned, or when [`publish`] gives a staged one its
//! name.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use arrow::ipc::Block;
use bytes::Bytes;
use futures::future::{Either, select};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::task::JoinSet;
use vectile_encodings::{VECTOR_LEN, ZoneMap};

use crate::encode::{EncodedColumn, EncodedRowGroup, Plan, encode_row_group};
use crate::error::{Error, Result};
use crate::ipc::{self, ChunkParts, FooterPointer};
use crate::metadata::{Bloom, Chunk, RowGroup};
use crate::output::Output;
use crate::publish::{Staged, publish};
use crate::row_group_size::{ROW_GROUP_ARROW_BYTES, RowGroupSize};
use crate::summary::{ColumnSummary, EncodeTime, WriteSummary};
use crate::threads::Thread;
use crate::writer_options::WriterOptions;
use crate::{FORMAT_VERSION, footer};

/// Row groups encoded in parallel take at most this many bytes as Arrow arrays. A row group of TPC-H's `lineitem` has
/// 48 MB, and more than two fifths of the work are in one column: ten keep some twenty threads busy.
const MOST_ENCODING_BYTES: usize = 8 * ROW_GROUP_ARROW_BYTES;

/// Writes one table to one object.
///
/// Call [`write`](Self::write) for each batch and [`finish`](Self::finish) at the end, within a
/// Tokio runtime. Dropping a writer, or [`abort`](Self::abort), discards what was written: no
/// object appears, and one that was there before stays. After an error a writer only fails.
#[derive(Debug)]
pub struct Writer {
    plan: Arc<Plan>,
    row_group_rows: usize,
    filling: Filling,
    /// Row groups being encoded, in file order.
    encoding: VecDeque<Pending>,
    written: Written,
    output: Output,
    failed: bool,
}

/// The row group that is not yet full.
#[derive(Debug, Default)]
struct Filling {
    batches: Vec<RecordBatch>,
    size: RowGroupSize,
}

/// A row group that is being encoded; dropping this cancels it.
#[derive(Debug)]
struct Pending {
    /// One task.
    task: JoinSet<Result<Vec<EncodedRowGroup>>>,
    arrow_bytes: usize,
}

/// The parts of the footer known so far.
#[derive(Debug, Default)]
struct Written {
    row_groups: Vec<RowGroup>,
    blocks: Vec<Block>,
    /// Per column, one zone map of one entry per row group.
    statistics: Vec<Vec<ZoneMap>>,
    /// Per column.
    time: Vec<EncodeTime>,
}

impl Writer {
    /// Creates a writer of a table of this schema to `location`. Nothing is written yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the options name a column that the schema does not have or are out of range, or if
    /// a type cannot be stored.
    pub fn try_new(
        store: Arc<dyn ObjectStore>,
        location: Path,
        schema: SchemaRef,
        options: WriterOptions,
    ) -> Result<Self> {
        let plan = Plan::new(location.to_string(), schema, &options)?;
        let header = ipc::file_header()?;
        let root = options.local_root.as_deref();
        let output = Output::new(store, location, root, header);
        let columns = plan.schema.fields().len();
        Ok(Self {
            plan: Arc::new(plan),
            row_group_rows: options.row_group_rows,
            filling: Filling::default(),
            encoding: VecDeque::new(),
            written: Written {
                statistics: vec![Vec::new(); columns],
                time: vec![EncodeTime::default(); columns],
                ..Written::default()
            },
            output,
            failed: false,
        })
    }

    /// Appends the rows of a batch. Its columns must have the types of the writer's schema, in the same order; their
    /// names are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the batch does not fit the schema: then the writer can continue. After any other
    /// error it cannot.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_sound()?;
        self.plan.check_batch(batch)?;
        let outcome = self.append(batch).await;
        self.note(outcome).await
    }

    /// Appends a row group that is encoded, as it is. It begins behind the rows so far, which end their row group.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if its columns do not have the types of the writer's schema: then the writer can
    /// continue. After any other error it cannot.
    pub async fn write_encoded(&mut self, row_group: &EncodedRowGroup) -> Result<()> {
        self.check_sound()?;
        row_group.check(&self.plan.schema)?;
        let outcome = self.append_encoded(row_group.clone()).await;
        self.note(outcome).await
    }

    /// Writes the remaining rows and the footer, and makes the object visible.
    ///
    /// # Errors
    ///
    /// Those of encoding and of the object store; then there is no object.
    pub async fn finish(self) -> Result<WriteSummary> {
        let staged = self.stage().await?;
        let mut written = publish(vec![staged]).await?;
        let none = || Error::Internal("a file was published without a summary".into());
        written.pop().ok_or_else(none)
    }

    /// Writes the remaining rows and the footer, and leaves it to [`publish`] to make the object visible.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub async fn stage(mut self) -> Result<Staged> {
        self.check_sound()?;
        let outcome = self.close().await;
        let summary = self.note(outcome).await?;
        Ok(Staged::new(self.output, summary))
    }

    /// Approximate bytes of memory held for rows not yet sent to the store.
    pub fn memory_bytes(&self) -> usize {
        // Encoding a row group takes as much more at most.
        let rows = 2 * (self.filling.size.arrow_bytes() + self.encoding_bytes());
        rows + self.output.memory_bytes()
    }

    /// Frees memory: waits until the oldest of several row groups is encoded and being written. Returns `false` if at
    /// most one is being encoded, which is the minimum.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn encode_fewer(&mut self) -> Result<bool> {
        self.check_sound()?;
        if self.encoding.len() < 2 {
            return Ok(false);
        }
        let outcome = self.write_oldest().await;
        self.note(outcome).await
    }

    /// Frees memory: ends the row group that is being filled, if it has a vector at least, and sends encoded bytes as
    /// far as the store takes them.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn relieve(&mut self) -> Result<()> {
        self.check_sound()?;
        let outcome = self.encode_and_send().await;
        self.note(outcome).await
    }

    /// Discards what was written.
    ///
    /// # Errors
    ///
    /// Those of the object store, which may then keep parts of an upload.
    pub async fn abort(mut self) -> Result<()> {
        self.stop_encoding().await;
        self.output.abort().await
    }

    fn check_sound(&self) -> Result<()> {
        if self.failed {
            let reason = format!("writing {} has failed before", self.plan.file);
            return Err(Error::InvalidArgument(reason));
        }
        Ok(())
    }

    /// After a failure, cleans up and remembers it.
    async fn note<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.failed = true;
            self.stop_encoding().await;
            // The first error says more than one of the cleanup.
            let _ = self.output.abort().await;
        }
        outcome
    }

    async fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < batch.num_rows() {
            let rest = batch.slice(start, batch.num_rows() - start);
            let rows = self.filling.size.room(self.row_group_rows, &rest);
            self.filling.push(rest.slice(0, rows));
            start += rows;
            if start < batch.num_rows() || self.filling.size.is_full(self.row_group_rows) {
                self.encode_filling().await?;
            }
        }
        Ok(())
    }

    async fn append_encoded(&mut self, row_group: EncodedRowGroup) -> Result<()> {
        self.encode_filling().await?;
        self.write_encoded_so_far().await?;
        self.written.put(row_group, &mut self.output)?;
        self.output.wait().await
    }

    /// Starts encoding the filled rows, once there is a thread for them.
    async fn encode_filling(&mut self) -> Result<()> {
        self.output.open().await?;
        if self.filling.size.rows() > 0 {
            let thread = self.thread().await?;
            let filled = std::mem::take(&mut self.filling);
            let mut task = JoinSet::new();
            let plan = Arc::clone(&self.plan);
            task.spawn(encode_row_group(plan, None, filled.batches, thread));
            self.encoding.push_back(Pending {
                task,
                arrow_bytes: filled.size.arrow_bytes(),
            });
        }
        self.output.wait().await
    }

    /// Waits for an idle thread, and meanwhile writes row groups that are encoded.
    async fn thread(&mut self) -> Result<Thread> {
        let threads = self.plan.threads.clone();
        loop {
            let fits =
                self.encoding_bytes() + self.filling.size.arrow_bytes() <= MOST_ENCODING_BYTES;
            let Some(oldest) = self.encoding.front_mut() else {
                return threads.one().await;
            };
            let encoded = match fits {
                false => oldest.encoded().await?,
                true => match select(pin!(oldest.encoded()), pin!(threads.one())).await {
                    Either::Left((encoded, _)) => encoded?,
                    Either::Right((thread, _)) => return thread,
                },
            };
            self.put_oldest(encoded)?;
        }
    }

    async fn encode_and_send(&mut self) -> Result<()> {
        if self.filling.size.rows() >= VECTOR_LEN {
            self.encode_filling().await?;
        }
        self.write_encoded_so_far().await?;
        self.output.relieve().await
    }

    /// Writes all row groups being encoded.
    async fn write_encoded_so_far(&mut self) -> Result<()> {
        while self.write_oldest().await? {}
        Ok(())
    }

    /// Writes the next row group of the file; `false` if none is being encoded.
    async fn write_oldest(&mut self) -> Result<bool> {
        let Some(oldest) = self.encoding.front_mut() else {
            return Ok(false);
        };
        let encoded = oldest.encoded().await?;
        self.put_oldest(encoded)?;
        self.output.wait().await?;
        Ok(true)
    }

    fn put_oldest(&mut self, encoded: Vec<EncodedRowGroup>) -> Result<()> {
        self.encoding.pop_front();
        encoded
            .into_iter()
            .try_for_each(|row_group| self.written.put(row_group, &mut self.output))
    }

    fn encoding_bytes(&self) -> usize {
        self.encoding
            .iter()
            .map(|pending| pending.arrow_bytes)
            .sum()
    }

    async fn stop_encoding(&mut self) {
        while let Some(mut pending) = self.encoding.pop_front() {
            pending.task.shutdown().await;
        }
    }

    async fn close(&mut self) -> Result<WriteSummary> {
        self.encode_filling().await?;
        self.write_encoded_so_far().await?;
        let schema = &self.plan.schema;
        let statistics = self.written.statistics()?;
        let footer = footer::encode(schema, &self.written.row_groups, &statistics)?;

        self.output.put(Bytes::from_static(&ipc::END_OF_STREAM))?;
        let pointer = FooterPointer {
            version: FORMAT_VERSION,
            offset: self.output.offset,
            len: footer.len() as u64,
            crc32: crc32fast::hash(&footer),
        };
        self.output.put(padded(footer, 8))?;
        let trailer = ipc::file_trailer(schema, &self.written.blocks, pointer)?;
        self.output.put(trailer.into())?;
        let bytes = self.output.offset;
        self.output.flush().await?;
        Ok(self.written.summary(schema, bytes, self.output.waited))
    }
}

fn padded(mut bytes: Vec<u8>, alignment: usize) -> Bytes {
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
    bytes.into()
}

impl Filling {
    fn push(&mut self, batch: RecordBatch) {
        self.size.add(&batch);
        self.batches.push(batch);
    }
}

impl Pending {
    /// Waits for the result. Nothing is lost if the future is dropped.
    async fn encoded(&mut self) -> Result<Vec<EncodedRowGroup>> {
        let none = || Error::Internal("a row group was encoded twice".into());
        let joined = self.task.join_next().await.ok_or_else(none)?;
        joined.map_err(|error| Error::Internal(format!("encoding ended early: {error}")))?
    }
}

impl Written {
    /// Passes a row group to the output and records its position.
    fn put(&mut self, row_group: EncodedRowGroup, output: &mut Output) -> Result<()> {
        let start = output.offset;
        let parts = row_group.columns.iter().map(parts).collect();
        let message = ipc::row_group_message(parts, start)?;
        self.blocks.push(ipc::block(start, &message)?);
        let body = start + message.metadata_bytes;
        let in_file = |range: &Range<u64>| body + range.start..body + range.end;
        for piece in message.pieces {
            output.put(piece)?;
        }
        let mut columns = Vec::with_capacity(row_group.columns.len());
        for (index, column) in row_group.columns.into_iter().enumerate() {
            let ranges = &message.chunks[index];
            columns.push(Chunk {
                zones: in_file(&ranges.zones),
                zones_crc32: column.zones_crc32,
                bloom: column.bloom.map(|bloom| Bloom {
                    bytes: in_file(&ranges.bloom),
                    crc32: crc32fast::hash(&bloom),
                }),
                data: in_file(&ranges.data),
                data_crc32: column.data_crc32,
                compression: column.compression,
                data_bytes: column.data_bytes,
                encoding: column.encoding,
                arrow_bytes: column.arrow_bytes,
            });
            self.statistics[index].push(column.statistics);
            self.time[index] += column.time;
        }
        self.row_groups.push(RowGroup {
            rows: row_group.rows,
            bytes: start..output.offset,
            columns,
        });
        Ok(())
    }

    /// Per column, one zone map with an entry per row group; none without row groups.
    fn statistics(&self) -> Result<Vec<ZoneMap>> {
        self.statistics
            .iter()
            .filter(|zones| !zones.is_empty())
            .map(|zones| join(zones))
            .collect()
    }

    fn summary(&self, schema: &SchemaRef, bytes: u64, storing: Duration) -> WriteSummary {
        let mut columns: Vec<ColumnSummary> = schema
            .fields()
            .iter()
            .zip(&self.time)
            .map(|(field, time)| ColumnSummary {
                name: field.name().clone(),
                arrow_bytes: 0,
                encoded_bytes: 0,
                encodings: BTreeMap::new(),
                time: *time,
            })
            .collect();
        for row_group in &self.row_groups {
            for (column, chunk) in columns.iter_mut().zip(&row_group.columns) {
                column.arrow_bytes += chunk.arrow_bytes;
                column.encoded_bytes += chunk.encoded_bytes();
                *column
                    .encodings
                    .entry(chunk.encoding.to_string())
                    .or_default() += 1;
            }
        }
        WriteSummary {
            rows: self.row_groups.iter().map(|group| group.rows as u64).sum(),
            bytes,
            row_groups: self.row_groups.len(),
            storing,
            columns,
        }
    }
}

fn parts(column: &EncodedColumn) -> ChunkParts {
    ChunkParts {
        zones: column.zones.clone(),
        bloom: column.bloom.clone().unwrap_or_default(),
        data: column.data.clone(),
    }
}

/// Joins the entries of several zone maps into one.
pub(crate) fn join(zones: &[ZoneMap]) -> Result<ZoneMap> {
    let min: Vec<_> = zones.iter().map(|z| z.min.as_ref()).collect();
    let max: Vec<_> = zones.iter().map(|z| z.max.as_ref()).collect();
    Ok(ZoneMap {
        min: concat(&min)?,
        max: concat(&max)?,
        null_count: zones.iter().flat_map(|z| z.null_count.iter()).collect(),
        exact: zones.iter().flat_map(|z| z.exact.iter()).collect(),
    })
}
