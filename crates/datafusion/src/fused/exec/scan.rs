//! Runs the filters of a scan on the GPU, and its projection if there are kernels for it.
//!
//! The scan remains a stream of row groups that follows limits, orders and dynamic filters. Instead of evaluating its
//! filters, it gets the selected rows of a row group from here. If the GPU fails, it evaluates them.
//!
//! ```text
//!  row groups that the stream will read ── a window of them ──▶ on the device, or loaded
//!                                                                        │
//!  stream ◀── row group by row group ── selected row groups ◀── one run ─┘
//! ```
//!
//! A launch takes about as long for one row group as for several, so rows are selected in windows: the requested row
//! group and those that follow. Windows grow, so that little work is wasted if a query stops early or prunes later row
//! groups.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::StreamExt;
use vectile_gpu::{Engine, Error, Group};
use vectile_pipeline::Rows;
use vectile_pipeline::{Output, Pipeline};
use vectile_scan::{Selected, SelectedRows, Selector};

use super::auto::Auto;
use super::column_loader::{RowGroupChunks, look_up_each};
use super::input::{GpuFile, Reads, TableRowGroup};
use super::metrics::GpuMetrics;
use crate::error;
use crate::fused::background::Kind;
use crate::fused::device::Gpu;
use crate::fused::lowering::output_rows::as_type;
use crate::options::{GpuMode, VectileOptions};
use crate::selector::{DeviceScan, PartitionDevice, ScanDevice};

/// Maximum number of row groups selected at once.
const MAX_WINDOW: usize = 16;

/// Divisor of the device's memory for chunks: the limit of a window, as other partitions and queries have windows, too.
const WINDOW_SHARE: u64 = 64;

/// If a launch selects more bytes than this, copying takes longer than the launch. The next window is sized to stay
/// below, judged by the previous one.
const WINDOW_BYTES: usize = 16 << 20;

/// Row groups that a scan reads and copies at the same time.
const LOADS: usize = 4;

/// The filters and projection of a scan, to run on the GPU.
#[derive(Clone, Debug)]
pub(crate) struct GpuScan {
    pub(crate) gpu: Gpu,
    pub(crate) pipeline: Arc<Pipeline>,
    /// The pipeline's columns, by their index in the table's schema.
    pub(crate) columns: Vec<usize>,
    /// Columns that have to be in dictionaries if they are text.
    pub(crate) coded: Vec<usize>,
    pub(crate) options: VectileOptions,
    /// `None` unless `vectile.gpu = auto`.
    pub(crate) auto: Option<Auto>,
    /// The object store of the files.
    pub(crate) store: ObjectStoreUrl,
}

impl fmt::Display for GpuScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.pipeline.output {
            Output::Rows(_) => "filter and project",
            _ => "filter",
        };
        write!(f, "{what} on {}", self.gpu)
    }
}

impl GpuScan {
    fn is_required(&self) -> bool {
        self.options.gpu == GpuMode::Require
    }
}

/// One partition of a [`GpuScan`], for all of its files.
struct GpuPartition {
    scan: GpuScan,
    metrics: GpuMetrics,
    window: Arc<AtomicUsize>,
}

impl ScanDevice for GpuScan {
    fn partition(
        &self,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Arc<dyn PartitionDevice> {
        Arc::new(GpuPartition {
            scan: self.clone(),
            metrics: GpuMetrics::new(metrics, partition),
            window: Arc::new(AtomicUsize::new(1)),
        })
    }
}

#[async_trait]
impl PartitionDevice for GpuPartition {
    async fn open(&self, opened: DeviceScan<'_>) -> Result<Option<Arc<dyn Selector>>> {
        let scan = &self.scan;
        let device = scan.gpu.device(&scan.options).await;
        let file = device.and_then(|device| {
            let reads = Reads {
                engine: &device.engine,
                store: &scan.store,
                table: opened.table,
                columns: &scan.columns,
                coded: &scan.coded,
                keys: &[],
            };
            let file = reads.of_file(opened.file, opened.object)?;
            Ok((device.engine, file))
        });
        match file {
            Ok((engine, file)) => Ok(Some(Arc::new(GpuSelector {
                engine,
                file: Arc::new(file),
                scan: scan.clone(),
                schema: Arc::clone(opened.schema),
                metrics: self.metrics.clone(),
                window: match opened.can_change {
                    true => Arc::new(AtomicUsize::new(1)),
                    false => Arc::clone(&self.window),
                },
                ahead: Mutex::default(),
                reservation: opened.reservation,
            }))),
            Err(error) if scan.is_required() => Err(error::required(error)),
            Err(error) => {
                self.metrics.add_fallback(scan.gpu.left_to_cpu(error)?);
                Ok(None)
            }
        }
    }
}

/// Selects rows of one file.
struct GpuSelector {
    engine: Arc<Engine>,
    file: Arc<GpuFile>,
    scan: GpuScan,
    /// Schema of the scan's batches.
    schema: SchemaRef,
    metrics: GpuMetrics,
    /// Row groups in the next window. Files of a partition continue with the size of the previous one.
    window: Arc<AtomicUsize>,
    /// Selected row groups that the stream has not requested yet, in its order.
    ahead: Mutex<VecDeque<(usize, Selected)>>,
    /// An empty reservation, from which others are created.
    reservation: MemoryReservation,
}

#[async_trait]
impl Selector for GpuSelector {
    fn is_always_asked(&self) -> bool {
        matches!(self.scan.pipeline.output, Output::Rows(_))
    }

    fn window(&self, row_group: usize) -> usize {
        match self.ahead().iter().any(|(of, _)| *of == row_group) {
            true => 1,
            false => self.window.load(Ordering::Relaxed),
        }
    }

    async fn select(&self, row_groups: Vec<usize>) -> vectile_scan::Result<Option<Selected>> {
        let Some(&row_group) = row_groups.first() else {
            return Ok(None);
        };
        if let Some(selected) = self.take(row_group) {
            return Ok(Some(selected));
        }
        let only_ready = self.scan.auto.is_some();
        let mut attempts = error::Attempts::default();
        let selected = loop {
            let selected = self.select_window(row_groups.clone(), only_ready).await;
            if !attempts.is_next_useful(&selected) {
                break selected;
            }
        };
        match selected {
            Ok(selected) => {
                *self.ahead() = selected.into();
                Ok(self.take(row_group))
            }
            Err(error) if error::is_not_ready(&error) => {
                self.prepare(row_groups);
                self.metrics.add_fallback(error);
                Ok(None)
            }
            Err(error) if self.scan.is_required() => {
                Err(vectile_scan::Error::external(error::required(error)))
            }
            Err(error) => {
                let error = self.scan.gpu.left_to_cpu(error);
                self.metrics
                    .add_fallback(error.map_err(vectile_scan::Error::external)?);
                Ok(None)
            }
        }
    }
}

impl GpuSelector {
    /// Takes the selected rows of a row group. Drops those before it, which the stream no longer needs.
    fn take(&self, row_group: usize) -> Option<Selected> {
        let mut ahead = self.ahead();
        while let Some((of, selected)) = ahead.pop_front() {
            if of == row_group {
                return Some(selected);
            }
        }
        None
    }

    /// Prepares the device for `row_groups` in the background: selects their rows and drops them.
    fn prepare(&self, row_groups: Vec<usize>) {
        let Some(auto) = &self.scan.auto else {
            return;
        };
        if let Some(background) = &auto.background {
            let mut hasher = DefaultHasher::new();
            format!("{:?}", self.scan.pipeline).hash(&mut hasher);
            let which = hasher.finish();
            let what = format!("{which:x} of {} {row_groups:?}", self.file);
            let own = Self {
                engine: Arc::clone(&self.engine),
                file: Arc::clone(&self.file),
                scan: self.scan.clone(),
                schema: Arc::clone(&self.schema),
                // discarded
                metrics: GpuMetrics::new(&ExecutionPlanMetricsSet::new(), 0),
                window: Arc::new(AtomicUsize::new(1)),
                ahead: Mutex::default(),
                reservation: self.reservation.new_empty(),
            };
            let work = async move {
                let selected = own.select_window(row_groups, false).await;
                selected.map(drop).inspect_err(|error| {
                    own.scan.gpu.is_noted(error);
                })
            };
            background.start(Kind::RowGroups, what, auto.session.clone(), work);
        }
    }

    /// Selects rows of the first of `row_groups`, and of as many others as fit. With `only_ready`, it neither loads nor
    /// compiles.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotLoaded`] or [`Error::NotCompiled`] if `only_ready` and it would have to.
    async fn select_window(
        &self,
        row_groups: Vec<usize>,
        only_ready: bool,
    ) -> Result<Vec<(usize, Selected)>> {
        let reservation = self.reservation.new_empty();
        let row_groups = row_groups.into_iter();
        let row_groups = row_groups.map(|index| TableRowGroup::new(Arc::clone(&self.file), index));
        let room = self.engine.memory_limit() / WINDOW_SHARE;
        let row_groups = first_within(row_groups.collect(), room);
        let requested = row_groups.len();
        // if this fails, continue with windows of one
        let before = self.window.swap(1, Ordering::Relaxed);
        let mut groups = self.on_device(row_groups, only_ready, &reservation).await?;
        let run = self.run(groups.clone(), only_ready, reservation.new_empty());
        let selected = match run.await {
            // Any of them may have caused it. The others are retried when they are requested.
            Err(error) if groups.len() > 1 && !error::is_not_ready(&error) => {
                groups.truncate(1);
                self.run(groups, only_ready, reservation).await?
            }
            selected => selected?,
        };
        if selected.len() == requested {
            let bytes = selected
                .iter()
                .map(|(_, selected)| selected.rows.bytes())
                .sum();
            let next = next_window(before, requested, bytes);
            self.window.store(next, Ordering::Relaxed);
        }
        Ok(selected)
    }

    /// Looks up row groups and loads the missing ones. Stops before the first that does not fit the device beside those
    /// before it.
    async fn on_device(
        &self,
        row_groups: Vec<TableRowGroup>,
        only_ready: bool,
        reservation: &MemoryReservation,
    ) -> Result<Vec<(usize, Group)>> {
        let engine = Arc::clone(&self.engine);
        let lookup = SpawnedTask::spawn_blocking(move || look_up_each(&engine, row_groups));
        let mut chunks = lookup.join().await.map_err(error::interrupted)?;
        if only_ready {
            let ready = chunks.iter().take_while(|chunks| chunks.group().is_some());
            match ready.count() {
                0 => return Err(error::gpu(Error::NotLoaded)),
                ready => chunks.truncate(ready),
            }
        }
        let mut groups = Vec::with_capacity(chunks.len());
        let mut loads = futures::stream::iter(chunks.clone())
            .map(|chunks| self.load(chunks, reservation.new_empty()))
            .buffered(LOADS);
        while let Some(loaded) = loads.next().await {
            match loaded {
                Ok(group) => groups.push(group),
                Err(_) if chunks.len() > 1 => break,
                Err(error) => return Err(error),
            }
        }
        drop(loads);
        if groups.is_empty() {
            // the first may fit without the others
            chunks.truncate(1);
            for chunks in chunks {
                groups.push(self.load(chunks, reservation.new_empty()).await?);
            }
        }
        Ok(groups)
    }

    /// Returns a row group that is on the device, or loads it.
    async fn load(
        &self,
        chunks: RowGroupChunks,
        reservation: MemoryReservation,
    ) -> Result<(usize, Group)> {
        let row_group = chunks.index();
        if let Some(group) = chunks.group() {
            self.metrics.bytes_cached.add(chunks.bytes());
            return Ok((row_group, group));
        }
        let load = SpawnedTask::spawn(chunks.load(self.metrics.clone(), reservation, true));
        let loaded = load.join().await.map_err(error::interrupted).flatten()?;
        Ok((row_group, loaded.group))
    }

    /// Selects rows of all `groups` in one launch.
    async fn run(
        &self,
        groups: Vec<(usize, Group)>,
        only_ready: bool,
        reservation: MemoryReservation,
    ) -> Result<Vec<(usize, Selected)>> {
        let (row_groups, groups): (Vec<usize>, Vec<Group>) = groups.into_iter().unzip();
        let rows_read = groups.iter().map(|group| group.rows).sum();
        let mut execution = self.engine.start(Arc::clone(&self.scan.pipeline));
        if only_ready {
            execution.without_compiler();
        }
        // a running task is not cancelled by dropping this future
        let _cancel = execution.cancel_on_drop();
        let (projects, schema) = (self.is_always_asked(), Arc::clone(&self.schema));
        let run = SpawnedTask::spawn_blocking(move || {
            let selected: Vec<SelectedRows> = match projects {
                true => {
                    let rows = execution.rows(&groups).map_err(error::gpu)?.into_iter();
                    let batches = rows.map(|rows| batch(rows, &schema));
                    batches
                        .map(|batch| batch.map(SelectedRows::Batch))
                        .collect::<Result<_>>()?
                }
                false => {
                    let selections = execution.select(&groups).map_err(error::gpu)?;
                    selections.into_iter().map(SelectedRows::Which).collect()
                }
            };
            Ok((selected, execution.statistics()))
        });
        let (selected, statistics) = run.join().await.map_err(error::interrupted).flatten()?;
        self.metrics.rows.add(rows_read);
        self.metrics.add(&statistics);
        reservation.try_grow(selected.iter().map(SelectedRows::bytes).sum())?;
        let memory: Arc<dyn Any + Send + Sync> = Arc::new(reservation);
        let selected = selected.into_iter().map(|rows| Selected {
            rows,
            memory: Arc::clone(&memory),
        });
        Ok(row_groups.into_iter().zip(selected).collect())
    }

    fn ahead(&self) -> MutexGuard<'_, VecDeque<(usize, Selected)>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Size of the next window, after a window of `taken` row groups with `bytes` of selected rows and a size of up to
/// `before`.
fn next_window(before: usize, taken: usize, bytes: usize) -> usize {
    let fit = WINDOW_BYTES / (bytes / taken.max(1)).max(1);
    before.max(2 * taken).min(MAX_WINDOW).min(fit).max(1)
}

/// The first of `row_groups`, and those behind it as long as all fit `memory` bytes.
fn first_within(mut row_groups: Vec<TableRowGroup>, memory: u64) -> Vec<TableRowGroup> {
    let mut bytes = 0;
    let fits = row_groups.iter().take_while(|row_group| {
        bytes += row_group.bytes();
        bytes <= memory
    });
    let fits = fits.count().max(1);
    row_groups.truncate(fits);
    row_groups
}

/// Casts values of machine types to the schema's types; strings have them already.
fn batch(rows: Rows, schema: &SchemaRef) -> Result<RecordBatch> {
    if rows.count == 0 {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let columns = rows.columns.iter().zip(schema.fields());
    let typed = columns.map(|(values, field)| as_type(values, field.data_type()));
    let typed: Vec<ArrayRef> = typed.collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(schema, typed, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_long_as_results_are_small() {
        let mut window = 1;
        let mut windows = Vec::new();
        for _ in 0..6 {
            windows.push(window);
            window = next_window(window, window, 0);
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        // A short last window of a file does not shrink the next ones.
        assert_eq!(next_window(8, 3, 3 << 10), 8);
        assert_eq!(next_window(8, 8, 8 * (WINDOW_BYTES / 5)), 5);
        assert_eq!(next_window(8, 8, 8 * (WINDOW_BYTES * 2)), 1);
    }
}
