//! Loads columns of row groups to the device.
//!
//! ```text
//!  files ── footers, zone maps ──▶ row groups ──┬── columns in memory ───────▶ one batch, at once
//!                                               └── read ── build ── copy ──▶ batches as they arrive
//! ```
//!
//! The engine's memory, on the device and on the host, is looked up for all row groups together, since larger copies
//! from host memory are faster. If a query reads more than fits the device, that happens window by window.
//!
//! Reading and copying run ahead of the kernels, by a bounded number of row groups. Each row group is a task that ends
//! when the query is dropped.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::FutureExt;
use futures::stream::{BoxStream, Peekable, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use vectile_encodings::Column;
use vectile_encodings::streams::StreamColumn;
use vectile_gpu::{Batch, ChunkKey, ChunkRun, DeviceChunk, Engine, Error, Group, Resident};
use vectile_scan::object::{ReadBuffer, ReadBuffers};

use super::input::TableRowGroup;
use super::metrics::GpuMetrics;
use crate::error;

/// Bytes of device layouts for a launch of the kernel. The first batches are small, so that the kernel is compiled
/// while others load. Sizes do not depend on arrival times, because the kernel depends on what is in a batch.
const BATCH_BYTES: RangeInclusive<usize> = 64 << 20..=512 << 20;

/// Row groups loaded from an object store for each one from a local disk: requests have a high latency, and many of
/// them fill the network.
const REQUESTS: usize = 4;

/// Loaded row groups that wait for the kernel, for each that is loaded at a time. They take device memory only, and
/// loading goes on while the first kernel is compiled.
const AHEAD: usize = 16;

/// Divisor of the device's memory for chunks: the size of a window if a query needs more than all of it.
const WINDOW_SHARE: u64 = 4;

/// Divides row groups into windows that are looked up together, in order: one if they fit `memory`, else windows that
/// leave memory for the next one and for other queries.
pub(crate) fn windows(row_groups: Vec<TableRowGroup>, memory: u64) -> Vec<Vec<TableRowGroup>> {
    let all: u64 = row_groups.iter().map(|row_group| row_group.bytes).sum();
    let most = if all <= memory {
        all
    } else {
        memory / WINDOW_SHARE
    };
    let mut windows: Vec<Vec<TableRowGroup>> = Vec::new();
    let mut bytes = 0;
    for row_group in row_groups {
        bytes += row_group.bytes;
        match windows.last_mut() {
            Some(window) if bytes <= most => window.push(row_group),
            _ => {
                bytes = row_group.bytes;
                windows.push(vec![row_group]);
            }
        }
    }
    windows
}

/// Result of [`look_up`].
pub(crate) struct WindowLookup {
    /// Row groups on the device, or being copied to it.
    pub(crate) batch: Batch,
    /// Bytes of these in the file.
    pub(crate) bytes: usize,
    /// Row groups that have to be loaded.
    pub(crate) missing: Vec<RowGroupChunks>,
}

/// Looks up all of `row_groups` at once. Blocks, as chunks in host memory are copied to the device.
pub(crate) fn look_up(engine: &Engine, row_groups: Vec<TableRowGroup>) -> Result<WindowLookup> {
    let runs = runs_of(&row_groups);
    let rows = row_groups.iter().map(|row_group| row_group.rows).collect();
    if let Some(batch) = engine.batch(rows, &runs) {
        let bytes: u64 = row_groups.iter().map(|row_group| row_group.bytes).sum();
        return Ok(WindowLookup {
            batch,
            bytes: bytes as usize,
            missing: Vec::new(),
        });
    }
    let (mut groups, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
    for chunks in look_up_each(engine, row_groups) {
        match chunks.group() {
            Some(group) => {
                bytes += chunks.bytes();
                groups.push(group);
            }
            None => missing.push(chunks),
        }
    }
    let batch = Batch::of(&groups).map_err(error::gpu)?;
    if missing.is_empty() {
        engine.keep(runs, &batch);
    }
    Ok(WindowLookup {
        batch,
        bytes,
        missing,
    })
}

/// Keeps a batch if it has all of `row_groups`, in their order.
pub(crate) fn keep(engine: &Engine, row_groups: &[TableRowGroup], batch: &Batch) {
    let rows = row_groups.iter().map(|row_group| row_group.rows);
    // row groups for which there was no memory come last, one by one
    if batch.rows().iter().copied().eq(rows) {
        engine.keep(runs_of(row_groups), batch);
    }
}

/// Bytes of columns of `row_groups` that are not on the device. Starts copying those in host memory.
pub(crate) async fn missing_bytes(
    engine: &Arc<Engine>,
    row_groups: &[TableRowGroup],
) -> Result<u64> {
    let (engine, row_groups) = (Arc::clone(engine), row_groups.to_vec());
    let task = SpawnedTask::spawn_blocking(move || look_up(&engine, row_groups));
    let lookup = task.join().await.map_err(error::interrupted).flatten()?;
    let missing = lookup.missing.iter();
    Ok(missing.map(RowGroupChunks::missing_bytes).sum())
}

/// The chunk runs of each column of the pipeline.
fn runs_of(row_groups: &[TableRowGroup]) -> Vec<Vec<ChunkRun>> {
    let width = row_groups
        .first()
        .map_or(0, |row_group| row_group.file.columns.len());
    let mut runs: Vec<Vec<ChunkRun>> = vec![Vec::new(); width];
    let same = |a: &TableRowGroup, b: &TableRowGroup| {
        Arc::ptr_eq(&a.file, &b.file) && a.index.checked_add(1) == Some(b.index)
    };
    for row_groups in row_groups.chunk_by(same) {
        let Some(first) = row_groups.first() else {
            continue;
        };
        for (&column, runs) in first.file.columns.iter().zip(&mut runs) {
            runs.push(ChunkRun {
                file: Arc::clone(&first.file.key),
                column,
                row_groups: first.index..first.index + row_groups.len(),
            });
        }
    }
    runs
}

/// Looks up the columns of each of `row_groups`. Blocks as [`look_up`].
pub(crate) fn look_up_each(engine: &Engine, row_groups: Vec<TableRowGroup>) -> Vec<RowGroupChunks> {
    engine.drop_ended();
    let keys = row_groups.iter().flat_map(|row_group| {
        let columns = row_group.file.columns.iter();
        columns.map(|&column| row_group.key(column))
    });
    let keys: Vec<ChunkKey> = keys.collect();
    let mut columns = engine.lookup_all(&keys).into_iter();
    let chunks = row_groups.into_iter().map(|row_group| {
        let columns = columns
            .by_ref()
            .take(row_group.file.columns.len())
            .collect();
        RowGroupChunks { row_group, columns }
    });
    chunks.collect()
}

/// A row group and its resident columns, in the order of the pipeline.
#[derive(Clone)]
pub(crate) struct RowGroupChunks {
    row_group: TableRowGroup,
    columns: Vec<Option<Arc<Resident>>>,
}

/// A row group on the device, and the bytes that were copied.
pub(crate) struct Loaded {
    pub(crate) group: Group,
    bytes: usize,
}

impl RowGroupChunks {
    /// Index in the file.
    pub(crate) fn index(&self) -> usize {
        self.row_group.index
    }

    /// Bytes of its columns in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.row_group.bytes as usize
    }

    /// The row group, if all of its columns are on the device.
    pub(crate) fn group(&self) -> Option<Group> {
        let columns = self.columns.iter().cloned().collect::<Option<_>>()?;
        Some(Group {
            rows: self.row_group.rows,
            columns,
        })
    }

    /// Its columns that are on the device.
    pub(crate) fn resident(&self) -> impl Iterator<Item = &Arc<Resident>> {
        self.columns.iter().flatten()
    }

    /// The columns that are not on the device, by index in the file: in the order of `columns`.
    fn missing(&self) -> Vec<usize> {
        let columns = self.row_group.file.columns.iter().zip(&self.columns);
        let missing = columns.filter(|(_, resident)| resident.is_none());
        missing.map(|(&column, _)| column).collect()
    }

    /// [`missing`](Self::missing) in ascending order, each once.
    fn missing_ascending(&self) -> Vec<usize> {
        let mut missing = self.missing();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Bytes in the file of the columns that are not on the device.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let file = &self.row_group.file.scan.file;
        file.data_bytes(self.row_group.index, &self.missing()) as u64
    }

    /// Loads the missing columns. Fails if that takes a decode kernel that is not compiled and `may_compile` is false.
    pub(crate) async fn load(
        mut self,
        metrics: GpuMetrics,
        reservation: MemoryReservation,
        may_compile: bool,
    ) -> Result<Loaded> {
        // The columns as read, and their device layouts.
        reservation.try_grow(2 * self.missing_bytes() as usize)?;
        let copy = match self.row_group.file.scan.file.reads_on_thread() {
            true => {
                let runtime = Handle::current();
                SpawnedTask::spawn_blocking(move || {
                    self.refresh();
                    self.count_cached(&metrics);
                    let bytes = match runtime.block_on(self.read_streams()) {
                        streams if streams.is_empty() => 0,
                        streams => self.decode(&streams, &metrics, may_compile)?,
                    };
                    let columns = runtime.block_on(self.read())?;
                    let loaded = self.copy(columns, &metrics)?;
                    Ok(Loaded {
                        bytes: loaded.bytes + bytes,
                        ..loaded
                    })
                })
            }
            false => {
                self.count_cached(&metrics);
                let columns = self.read().await?;
                SpawnedTask::spawn_blocking(move || self.copy(columns, &metrics))
            }
        };
        let loaded = copy.join().await.map_err(error::interrupted)??;
        drop(reservation);
        Ok(loaded)
    }

    /// Counts bytes of resident columns as cached.
    fn count_cached(&self, metrics: &GpuMetrics) {
        let cached = self.row_group.bytes.saturating_sub(self.missing_bytes());
        metrics.bytes_cached.add(cached as usize);
    }

    /// Looks up columns that another query has loaded meanwhile. Blocks as [`look_up`].
    fn refresh(&mut self) {
        let columns = self.row_group.file.columns.iter();
        let keys: Vec<ChunkKey> = columns.map(|&column| self.row_group.key(column)).collect();
        let now = self.row_group.file.engine.lookup_all(&keys);
        for (column, now) in self.columns.iter_mut().zip(now) {
            *column = column.take().or(now);
        }
    }

    /// Reads the streams of missing columns that the device can decode.
    async fn read_streams(&self) -> Vec<(ChunkKey, StreamColumn)> {
        let (file, row_group) = (&self.row_group.file, &self.row_group);
        let missing = self.missing_ascending();
        let staging = Arc::new(Staging(Arc::clone(&file.engine)));
        let read = file.scan.stream_columns(row_group.index, &missing, staging);
        let streams = read.await.into_iter();
        let streams = streams.map(|(column, streams)| (row_group.key(column), streams));
        streams.collect()
    }

    /// Decodes streams on the device and returns the bytes copied. Columns that it cannot decode stay missing; reading
    /// them on the CPU reports errors. Blocks.
    fn decode(
        &mut self,
        streams: &[(ChunkKey, StreamColumn)],
        metrics: &GpuMetrics,
        may_compile: bool,
    ) -> Result<usize> {
        let engine = &self.row_group.file.engine;
        let assembled = engine.assemble_all(streams, may_compile);
        let assembled = assembled.map_err(error::gpu)?;
        metrics.add_assembled(&assembled);
        let columns = self.row_group.file.columns.iter().zip(&mut self.columns);
        for (column, slot) in columns.filter(|(_, slot)| slot.is_none()) {
            let mut decoded = streams.iter().zip(&assembled.chunks);
            let decoded = decoded.find(|((key, _), _)| key.column == *column);
            *slot = decoded.and_then(|(_, chunk)| chunk.clone());
        }
        Ok(assembled.sent)
    }

    /// Reads the missing columns, by index in the file.
    async fn read(&self) -> Result<Vec<Option<Column>>> {
        let missing = self.missing_ascending();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let (file, index) = (&self.row_group.file, self.row_group.index);
        let staging = Arc::new(Staging(Arc::clone(&file.engine)));
        Ok(file.scan.read(index, missing, staging).await?.columns)
    }

    /// Copies columns to the device. Blocks.
    fn copy(mut self, columns: Vec<Option<Column>>, metrics: &GpuMetrics) -> Result<Loaded> {
        let row_group = self.row_group.clone();
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        for column in self.missing() {
            let values = columns.get(column).and_then(Option::as_ref);
            let values = values.ok_or_else(|| error::missing_column(column))?;
            let chunk = DeviceChunk::build(values).map_err(error::gpu)?;
            bytes += chunk.info().bytes;
            chunks.push((row_group.key(column), chunk));
        }
        drop(columns);
        let start = Instant::now();
        let chunks: Vec<(ChunkKey, &DeviceChunk)> = chunks
            .iter()
            .map(|(key, chunk)| (key.clone(), chunk))
            .collect();
        let loaded = row_group
            .file
            .engine
            .load_all(&chunks)
            .map_err(error::gpu)?;
        metrics.copy_time.add_elapsed(start);
        metrics.bytes_sent.add(bytes);
        let slots = self.columns.iter_mut().filter(|slot| slot.is_none());
        for (slot, resident) in slots.zip(loaded) {
            *slot = Some(resident);
        }
        let group = self.group().ok_or_else(|| error::missing_column(0))?;
        Ok(Loaded { group, bytes })
    }
}

/// The engine's staging memory as buffers for reading files.
#[derive(Debug)]
struct Staging(Arc<Engine>);

impl ReadBuffers for Staging {
    fn take(&self, bytes: usize) -> Option<Box<dyn ReadBuffer>> {
        Some(Box::new(self.0.staging(bytes)?))
    }
}

/// Row groups being loaded, in batches.
pub(crate) struct Loads {
    loads: Peekable<BoxStream<'static, (RowGroupChunks, Result<Loaded>)>>,
    /// Row groups for which the device had no memory; they are loaded last, one at a time.
    crowded: Vec<RowGroupChunks>,
    /// Target size of the next batch.
    batch_bytes: usize,
    metrics: GpuMetrics,
    reservation: MemoryReservation,
    may_compile: bool,
}

impl Loads {
    /// Starts loading `concurrency` row groups at a time: more from an object store, and some ahead of the kernel.
    pub(crate) fn new(
        missing: Vec<RowGroupChunks>,
        metrics: &GpuMetrics,
        context: &TaskContext,
        concurrency: usize,
        may_compile: bool,
    ) -> Self {
        let consumer = MemoryConsumer::new("VectileGpu");
        let reservation = consumer.register(context.memory_pool());
        let (counted, reserved) = (metrics.clone(), reservation.new_empty());
        let concurrency = concurrency.max(1);
        let on_thread = |chunks: &RowGroupChunks| chunks.row_group.file.scan.file.reads_on_thread();
        let at_a_time = match missing.iter().all(on_thread) {
            true => concurrency,
            // waiting for a response takes no core
            false => concurrency * REQUESTS,
        };
        let turns = Arc::new(Semaphore::new(at_a_time));
        let loads = futures::stream::iter(missing).map(move |chunks| {
            let (metrics, reservation) = (counted.clone(), reserved.new_empty());
            let load = chunks.clone().load(metrics, reservation, may_compile);
            let turns = Arc::clone(&turns);
            let task = SpawnedTask::spawn(async move {
                let _turn = turns.acquire().await;
                load.await
            });
            async move {
                (
                    chunks,
                    task.join().await.map_err(error::interrupted).flatten(),
                )
            }
        });
        Self {
            loads: loads
                .buffered(concurrency.saturating_mul(AHEAD))
                .boxed()
                .peekable(),
            crowded: Vec::new(),
            batch_bytes: *BATCH_BYTES.start(),
            metrics: metrics.clone(),
            reservation,
            may_compile,
        }
    }

    /// Starts loading before the first call of [`Self::next`].
    pub(crate) fn begin(&mut self) {
        // the first poll starts the tasks
        let _ = Pin::new(&mut self.loads).peek().now_or_never();
    }

    /// Returns the next batch. The caller must have dropped the previous one.
    pub(crate) async fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < self.batch_bytes {
            match self.loads.next().await {
                Some((_, Ok(loaded))) => {
                    bytes += loaded.bytes;
                    batch.push(loaded.group);
                }
                Some((chunks, Err(error))) if is_crowded(&error) => {
                    self.crowded.push(chunks);
                    if !batch.is_empty() {
                        break;
                    }
                }
                Some((_, Err(error))) => return Err(error),
                None => break,
            }
        }
        self.batch_bytes = (2 * self.batch_bytes).min(*BATCH_BYTES.end());
        if batch.is_empty()
            && let Some(chunks) = self.crowded.pop()
        {
            let reservation = self.reservation.new_empty();
            let load = chunks.load(self.metrics.clone(), reservation, self.may_compile);
            batch.push(load.await?.group);
        }
        match batch.is_empty() {
            true => Ok(None),
            false => Batch::of(&batch).map(Some).map_err(error::gpu),
        }
    }
}

/// True if the device was out of memory.
pub(crate) fn is_crowded(error: &DataFusionError) -> bool {
    let DataFusionError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref();
    error.is_some_and(|error| matches!(error, Error::OutOfMemory { .. }))
}
