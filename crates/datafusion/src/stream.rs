//! Scans one file, or a byte range of it: a stream of batches.
//!
//! ```text
//!  queue of row groups ── zone maps of row groups, dynamic filters ──▶ dropped
//!        │
//!        ▼
//!  prefetch (a task): zone maps of vectors ──▶ dropped
//!        │            values of the filters' columns (and of the others, where rows are expected)
//!        ▼
//!  group in memory ── windows of vectors ── filters, cheapest first ──▶ dropped
//!        │
//!        ▼            values of the remaining columns, once a row has survived
//!  decode the survivors of the projected columns ──▶ batches
//! ```
//!
//! One row group is scanned while the next is read, so a partition holds two at most. A GPU selects
//! rows of several at once: those of the row groups to come are kept until it is their turn. Dropping
//! the stream aborts the task.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use vectile_encodings::{Selection, VECTOR_LEN};

use crate::conjunct::Role;
use crate::evaluate::BATCH_BYTES;
use crate::fetch::{Group, Request, columns_of};
use crate::file::ScanFile;
use crate::filters::Filters;
use crate::output::Output;
use crate::projection::{Projection, Rows};
use crate::selector::Selector;

/// The most vectors filtered at a time; bounds the time between two yields.
const MAX_WINDOW_VECTORS: usize = 256;

/// A scan under way.
pub(crate) struct Scan {
    file: Arc<ScanFile>,
    filters: Filters,
    projection: Projection,
    /// Evaluates the query's filters, if it is not for the scan to do.
    device: Option<Arc<dyn Selector>>,
    /// Row groups not yet asked for.
    queue: VecDeque<usize>,
    prefetch: Option<SpawnedTask<Result<Option<Group>>>>,
    group: Option<Group>,
    window: Window,
    /// Whether the last row group had survivors, so that the next one's payload is worth reading
    /// along with its filter columns.
    survivors_expected: bool,
    output: Output,
    finished: bool,
    /// Covers the batch last decoded.
    decoded: MemoryReservation,
    /// Covers the batch last put out, if the GPU made it.
    selected_memory: Option<Arc<MemoryReservation>>,
}

/// What a scan starts from.
pub(crate) struct ScanParts {
    pub(crate) file: Arc<ScanFile>,
    pub(crate) filters: Filters,
    pub(crate) projection: Projection,
    /// Evaluates the query's filters, if it is not for the scan to do.
    pub(crate) device: Option<Arc<dyn Selector>>,
    /// The row groups, in the order to scan them.
    pub(crate) row_groups: Vec<usize>,
    /// Rows per batch.
    pub(crate) batch_size: usize,
    /// Rows after which to stop.
    pub(crate) limit: Option<usize>,
    pub(crate) reservation: MemoryReservation,
}

impl Scan {
    pub(crate) fn new(parts: ScanParts) -> Self {
        let schema = Arc::clone(parts.projection.schema());
        Self {
            window: Window::new(parts.batch_size),
            survivors_expected: parts.filters.is_empty(),
            output: Output::new(schema, parts.batch_size, parts.limit),
            file: parts.file,
            filters: parts.filters,
            projection: parts.projection,
            device: parts.device,
            queue: parts.row_groups.into(),
            prefetch: None,
            group: None,
            finished: false,
            decoded: parts.reservation,
            selected_memory: None,
        }
    }

    /// The stream of its batches.
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<RecordBatch>> {
        try_unfold(Box::new(self), |mut scan| async move {
            Ok(scan.next().await?.map(|batch| (batch, scan)))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.output.pop() {
                return Ok(Some(batch));
            }
            if self.finished {
                return Ok(None);
            }
            let more = match &self.group {
                _ if self.output.remaining() == Some(0) => false,
                Some(_) => self.scan_window().await.map(|()| true)?,
                None => self.next_group().await?,
            };
            if !more {
                self.finished = true;
                self.prefetch = None;
                // and with it what it has selected ahead
                self.device = None;
                self.output.flush()?;
            }
        }
    }

    /// Waits for the next row group that is worth scanning, and starts to read the one after.
    /// False at the end.
    async fn next_group(&mut self) -> Result<bool> {
        loop {
            let task = match self.prefetch.take() {
                Some(task) => task,
                None => match self.start_fetch(0)? {
                    Some(task) => task,
                    None => return Ok(false),
                },
            };
            let waiting = self.file.metrics.time_fetching.clone();
            let timer = waiting.timer();
            let loaded = task.join().await.map_err(|error| {
                exec_datafusion_err!("reading {} was interrupted: {error}", self.file.location)
            })??;
            drop(timer);
            let Some(mut group) = loaded else {
                continue;
            };
            self.filters.refresh();
            if self.filters.exclude_now(group.row_group) {
                self.file.metrics.row_groups_pruned_dynamic.add(1);
                continue;
            }
            self.relower(&mut group)?;
            let sure = group.sure_rows();
            self.group = Some(group);
            if self.wants_more_than(sure) {
                self.prefetch = self.start_fetch(sure)?;
            }
            return Ok(true);
        }
    }

    /// Whether the limit leaves something for others than `rows`.
    fn wants_more_than(&self, rows: usize) -> bool {
        let remaining = self.output.remaining();
        remaining.is_none_or(|remaining| remaining > rows)
    }

    /// The row groups to ask the GPU for together: `row_group`, which is next, and those after it that
    /// will be wanted, as far as that can be said now. `sure` rows come before them in any case.
    fn window(&self, device: &dyn Selector, row_group: usize, mut sure: usize) -> Vec<usize> {
        let most = device.window(row_group);
        let mut window = Vec::with_capacity(most);
        for &next in &self.queue {
            if window.len() == most || !self.wants_more_than(sure) {
                break;
            }
            if next != row_group && self.filters.exclude_now(next) {
                continue;
            }
            let is_open = self.filters.is_open(next);
            if is_open || device.projects() {
                window.push(next);
            }
            if !is_open {
                sure += self.file.metadata.row_group(next).rows;
            }
        }
        window
    }

    /// Starts to read the next row group that zone maps do not rule out. `sure` rows come before it in
    /// any case. Without the memory for it nothing is read ahead; what is needed now is an error.
    fn start_fetch(&mut self, sure: usize) -> Result<Option<SpawnedTask<Result<Option<Group>>>>> {
        while let Some(&row_group) = self.queue.front() {
            self.filters.refresh();
            if self.filters.exclude_now(row_group) {
                self.file.metrics.row_groups_pruned_dynamic.add(1);
                self.queue.pop_front();
                continue;
            }
            let conjuncts = self.filters.for_row_group(row_group)?;
            let is_open = self.filters.is_open(row_group);
            let device = self.device.as_ref();
            let device = device.filter(|device| is_open || device.projects());
            let device = device.map(|device| {
                let window = self.window(device.as_ref(), row_group, sure);
                (Arc::clone(device), window)
            });
            // The GPU says whether there are survivors before anything else is read.
            let expected = conjuncts.is_empty() || self.survivors_expected || device.is_some();
            let payload = match expected {
                true => self.projection.columns.clone(),
                false => Vec::new(),
            };
            let columns = columns_of(&conjuncts, payload.clone());
            let reservation = self.decoded.new_empty();
            let reserved = reservation.try_grow(self.file.data_bytes(row_group, &columns));
            if reserved.is_err() && self.group.is_some() {
                return Ok(None);
            }
            reserved?;
            self.queue.pop_front();
            let generation = self.filters.generation();
            let request = Request {
                row_group,
                conjuncts,
                generation,
                payload,
                reservation,
                device,
            };
            let load = Group::load(Arc::clone(&self.file), request);
            return Ok(Some(SpawnedTask::spawn(load)));
        }
        Ok(None)
    }

    /// Takes up dynamic filters that have changed, as far as their columns have been read.
    fn relower(&self, group: &mut Group) -> Result<()> {
        if group.generation == self.filters.generation() {
            return Ok(());
        }
        group.generation = self.filters.generation();
        let mut conjuncts = self.filters.for_row_group(group.row_group)?;
        conjuncts.retain(|conjunct| {
            let mut columns = conjunct.columns.iter();
            let read = columns.all(|&column| group.columns.has(column));
            read && (group.is_open() || conjunct.role != Role::Exact)
        });
        group.conjuncts = conjuncts;
        Ok(())
    }

    /// Puts out what the GPU made of a row group.
    async fn put_out(&mut self, mut batch: RecordBatch) -> Result<()> {
        if let Some(remaining) = self.output.remaining() {
            batch = batch.slice(0, remaining.min(batch.num_rows()));
        }
        let bytes = batch.get_array_memory_size() as u64;
        self.output.push(batch, bytes)?;
        if self.filters.can_change() {
            self.output.flush()?;
        }
        Ok(())
    }

    /// Filters the next window and decodes what is left of it.
    async fn scan_window(&mut self) -> Result<()> {
        let Some(mut group) = self.group.take() else {
            return Ok(());
        };
        if self.filters.refresh() && self.filters.exclude_now(group.row_group) {
            return Ok(());
        }
        if let Some(batch) = group.batch.take() {
            self.selected_memory = group.selected_memory.take();
            self.decoded.free();
            return self.put_out(batch).await;
        }
        let selection = match group.survivors.take() {
            Some(survivors) => Some(survivors),
            None => self.filter_window(&mut group)?,
        };
        let Some(mut selection) = selection else {
            return Ok(());
        };
        let mut survivors = selection.count();
        if let Some(remaining) = self.output.remaining().filter(|&limit| limit < survivors) {
            selection.truncate_selected(remaining);
            survivors = remaining;
        }
        if survivors > 0 {
            group.has_survivors = true;
            let metrics = &self.file.metrics;
            let timer = metrics.time_fetching.timer();
            group
                .load_payload(&self.file, &self.projection.columns)
                .await?;
            drop(timer);
            let _timer = metrics.time_decoding.timer();
            let (count, bytes) = self.reserve_batch(&group, &selection)?;
            let part = selection.take_selected(count);
            let start = part.first_vector() * VECTOR_LEN;
            let rows = match count == part.rows() {
                true => Rows::Range(start..start + count),
                false => Rows::Selected(&part),
            };
            let batch = self.projection.batch(&group.columns, &rows, count)?;
            metrics.rows_decoded.add(count);
            self.decoded.try_resize(batch.get_array_memory_size())?;
            self.selected_memory = None;
            self.output.push(batch, bytes)?;
            group.survivors = (count < survivors).then_some(selection);
        } else {
            // Nothing to return, so let others run and a cancellation through.
            tokio::task::yield_now().await;
        }
        if group.is_last_window() {
            self.survivors_expected = group.has_survivors;
            // What is held back may be just what tightens a dynamic filter.
            if self.filters.can_change() {
                self.output.flush()?;
            }
        } else {
            self.group = Some(group);
        }
        Ok(())
    }

    /// The rows of the next window that pass the filters; `None` at the end of the group.
    fn filter_window(&mut self, group: &mut Group) -> Result<Option<Selection>> {
        self.relower(group)?;
        group.conjuncts.retain(|conjunct| conjunct.pays());
        let Some(mut selection) = group.next_window(self.window.vectors) else {
            return Ok(None);
        };
        let metrics = &self.file.metrics;
        let candidates = selection.count();
        if !group.conjuncts.is_empty() {
            let _timer = metrics.time_filtering.timer();
            for conjunct in &group.conjuncts {
                if selection.is_empty() {
                    break;
                }
                conjunct.narrow(&group.columns, &mut selection)?;
            }
        }
        let survivors = selection.count();
        metrics.rows_filtered.add(candidates - survivors);
        self.window.adapt(selection.rows(), survivors);
        Ok(Some(selection))
    }

    /// Reserves memory for the first of the selected rows, before they are decoded: how many, and
    /// their bytes. Few wide rows are a batch; a single one for which there is no memory is an error.
    fn reserve_batch(&self, group: &Group, selection: &Selection) -> Result<(usize, u64)> {
        let columns = &self.projection.columns;
        let size = |rows: &Selection| group.columns.decoded_bytes(columns, rows);
        let mut limit = BATCH_BYTES;
        loop {
            let (count, bytes) = selection.fitting(limit, size)?;
            let reserved = usize::try_from(bytes).unwrap_or(usize::MAX);
            match self.decoded.try_resize(reserved) {
                Ok(()) => return Ok((count, bytes)),
                Err(error) if count == 1 => return Err(error),
                Err(_) => limit = bytes / 2,
            }
        }
    }
}

/// How many vectors to filter at a time: as many as yield about a batch of survivors.
struct Window {
    batch_size: usize,
    least: usize,
    vectors: usize,
}

impl Window {
    fn new(batch_size: usize) -> Self {
        let least = (batch_size / VECTOR_LEN).clamp(1, MAX_WINDOW_VECTORS);
        Self {
            batch_size,
            least,
            vectors: least,
        }
    }

    /// `survivors` of `rows` rows of a window were left.
    fn adapt(&mut self, rows: usize, survivors: usize) {
        let wanted_rows = rows.saturating_mul(self.batch_size) / survivors.max(1);
        let grown = (self.vectors * 4).min(MAX_WINDOW_VECTORS);
        self.vectors = (wanted_rows / VECTOR_LEN).clamp(self.least, grown.max(self.least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_selectivity() {
        let mut window = Window::new(8192);
        assert_eq!(window.vectors, 8);
        window.adapt(8192, 8192);
        assert_eq!(window.vectors, 8);
        window.adapt(8192, 0);
        assert_eq!(window.vectors, 32);
        for _ in 0..4 {
            window.adapt(window.vectors * VECTOR_LEN, 8);
        }
        assert_eq!(window.vectors, MAX_WINDOW_VECTORS);
        window.adapt(MAX_WINDOW_VECTORS * VECTOR_LEN, 8192 * 16);
        assert_eq!(window.vectors, 16);
        assert_eq!(Window::new(1).vectors, 1);
    }
}
