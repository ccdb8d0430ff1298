//! Scans row groups of one container: a stream of batches.
//!
//! ```text
//!  queue of row groups ── zone maps of row groups, dynamic filters ──▶ dropped
//!        │
//!        ▼
//!  prefetch (a task): Bloom filters, zone maps of vectors ──▶ dropped
//!        │            values of the filters' columns (and of the others, where rows are expected)
//!        ▼
//!  group in memory ── windows of vectors ── filters, cheapest first ──▶ dropped
//!        │
//!        ▼            values of the remaining columns, once a row has survived
//!  decode the survivors of the projected columns ──▶ batches
//! ```
//!
//! One row group is scanned while the next is read, so a scan holds two at most. A selector selects
//! rows of several at once: those of the row groups to come are kept until it is their turn. Dropping
//! the stream aborts the task.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::executor::block_on_stream;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use vectile_encodings::{Selection, VECTOR_LEN};

use crate::conjunct::{Role, RowGroupFilters};
use crate::error::Result;
use crate::evaluate::BATCH_BYTES;
use crate::fetch::{Fetcher, Group, Request, columns_of, share_of};
use crate::filters::Filters;
use crate::memory::Memory;
use crate::metrics::{Counter, Step, Timer};
use crate::output::Output;
use crate::projection::Projection;
use crate::scan::Scan;
use crate::selector::Selector;
use crate::task::{Spawn, Task, spawn_thread};

/// The most vectors filtered at a time; bounds the time between two yields.
const MAX_WINDOW_VECTORS: usize = 256;

/// A scan under way.
struct Run {
    fetcher: Fetcher,
    filters: Filters,
    projection: Arc<dyn Projection>,
    selector: Option<Arc<dyn Selector>>,
    spawn: Spawn,
    /// Row groups not yet requested.
    queue: VecDeque<usize>,
    /// The vectors to scan of some row groups.
    vectors: HashMap<usize, Range<usize>>,
    prefetch: Option<Task<Option<Group>>>,
    group: Option<Group>,
    window: Window,
    /// True if the last row group had survivors, so that the next one's payload is worth reading
    /// along with its filter columns.
    survivors_expected: bool,
    output: Output,
    finished: bool,
    /// Covers the batch last decoded.
    decoded: Box<dyn Memory>,
    /// Covers the last batch put out, if the selector made it.
    selected_memory: Option<Arc<dyn Any + Send + Sync>>,
}

impl Scan {
    /// Runs the scan as a stream of batches. Dropping the stream ends the scan and its read-ahead.
    pub fn stream(self) -> BoxStream<'static, Result<RecordBatch>> {
        try_unfold(Box::new(Run::new(self)), |mut run| async move {
            Ok(run.next().await?.map(|batch| (batch, run)))
        })
        .boxed()
    }

    /// Runs the scan for callers without a runtime: row groups are read ahead on a thread, and [`next`](Iterator::next)
    /// blocks. The container must not need a runtime either; one in local files or in memory does not.
    pub fn blocking(mut self) -> impl Iterator<Item = Result<RecordBatch>> + Send {
        self.spawn = Arc::new(spawn_thread);
        block_on_stream(self.stream())
    }
}

impl Run {
    fn new(scan: Scan) -> Self {
        let (schema, batch_size) = (Arc::clone(scan.schema()), scan.batch_size.max(1));
        let (count, filters) = (scan.container.num_row_groups(), scan.filters);
        let row_groups = scan.row_groups.into_iter();
        let queued = row_groups.filter(|&i| i < count && !filters.exclude(i));
        Self {
            queue: queued.collect(),
            vectors: scan.vectors,
            window: Window::new(batch_size),
            survivors_expected: filters.is_empty(),
            output: Output::new(schema, batch_size, scan.limit),
            fetcher: Fetcher::new(scan.container, scan.metrics),
            filters,
            projection: scan.projection,
            selector: scan.selector,
            spawn: scan.spawn,
            prefetch: None,
            group: None,
            finished: false,
            decoded: scan.memory,
            selected_memory: None,
        }
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
                // drops the rows it has selected ahead, too
                self.selector = None;
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
            let timer = Timer::start(self.fetcher.metrics.as_ref(), Step::Fetching);
            let loaded = task.join().await?;
            drop(timer);
            let Some(mut group) = loaded else {
                continue;
            };
            self.filters.refresh();
            if self.filters.exclude_now(group.row_group) {
                self.fetcher.metrics.add(Counter::RowGroupsPruned, 1);
                continue;
            }
            self.renew(&mut group)?;
            let sure = group.sure_rows();
            self.group = Some(group);
            if self.needs_more_than(sure) {
                self.prefetch = self.start_fetch(sure)?;
            }
            return Ok(true);
        }
    }

    /// Returns true if the limit leaves room for more than `rows` rows.
    fn needs_more_than(&self, rows: usize) -> bool {
        let remaining = self.output.remaining();
        remaining.is_none_or(|remaining| remaining > rows)
    }

    /// The row groups to request together from the selector: `row_group`, which is next, and those after it that will
    /// be needed, as far as is known now. At least `sure` rows come before them.
    fn window(
        &self,
        selector: &dyn Selector,
        row_group: usize,
        mut sure: usize,
    ) -> Result<Vec<RowGroupFilters>> {
        let most = selector.window(row_group);
        let mut window = Vec::with_capacity(most);
        for &next in &self.queue {
            if window.len() == most || !self.needs_more_than(sure) {
                break;
            }
            if next != row_group && self.filters.exclude_now(next) {
                continue;
            }
            let is_open = self.filters.is_open(next);
            if is_open || selector.is_always_asked() {
                window.push(self.filters.for_row_group(next)?);
            }
            if !is_open {
                sure += self.fetcher.container.rows(next);
            }
        }
        Ok(window)
    }

    /// Starts to read the next row group that zone maps do not rule out. At least `sure` rows come before it. Without
    /// the memory for it nothing is read ahead; if the row group is needed now, that is an error.
    fn start_fetch(&mut self, sure: usize) -> Result<Option<Task<Option<Group>>>> {
        while let Some(&row_group) = self.queue.front() {
            self.filters.refresh();
            if self.filters.exclude_now(row_group) {
                self.fetcher.metrics.add(Counter::RowGroupsPruned, 1);
                self.queue.pop_front();
                continue;
            }
            let group_filters = self.filters.for_row_group(row_group)?;
            let is_open = self.filters.is_open(row_group);
            let selector = self.selector.as_ref();
            let selector = selector.filter(|selector| is_open || selector.is_always_asked());
            let selector = match selector {
                Some(selector) => {
                    let window = self.window(selector.as_ref(), row_group, sure)?;
                    Some((Arc::clone(selector), window))
                }
                None => None,
            };
            // A selector reports survivors before anything else is read.
            let expected =
                group_filters.conjuncts.is_empty() || self.survivors_expected || selector.is_some();
            let payload = match expected {
                true => self.projection.columns().to_vec(),
                false => Vec::new(),
            };
            let columns = columns_of(&group_filters.conjuncts, payload.clone());
            let reservation = self.decoded.new_empty();
            let container = &self.fetcher.container;
            let mut bytes = container.data_bytes(row_group, &columns);
            if let Some(vectors) = self.vectors.get(&row_group) {
                bytes = share_of(bytes, vectors, container.rows(row_group));
            }
            let reserved = reservation.try_grow(bytes);
            if reserved.is_err() && self.group.is_some() {
                return Ok(None);
            }
            reserved?;
            self.queue.pop_front();
            let request = Request {
                group_filters,
                vectors: self.vectors.get(&row_group).cloned(),
                payload,
                reservation,
                selector,
            };
            let load = Group::load(self.fetcher.clone(), request);
            return Ok(Some(Task::start(&self.spawn, load)));
        }
        Ok(None)
    }

    /// Takes over dynamic filters that have changed, if their columns have been read.
    fn renew(&self, group: &mut Group) -> Result<()> {
        if group.generation == self.filters.generation() {
            return Ok(());
        }
        group.generation = self.filters.generation();
        let mut conjuncts = self.filters.for_row_group(group.row_group)?.conjuncts;
        conjuncts.retain(|conjunct| {
            let mut columns = conjunct.columns.iter();
            let read = columns.all(|&column| group.columns.has(column));
            read && (group.is_open() || conjunct.role != Role::Exact)
        });
        group.conjuncts = conjuncts;
        Ok(())
    }

    /// Outputs the batch that the selector made of a row group.
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

    /// Filters the next window and decodes the survivors.
    async fn scan_window(&mut self) -> Result<()> {
        let Some(mut group) = self.group.take() else {
            return Ok(());
        };
        if self.filters.refresh() && self.filters.exclude_now(group.row_group) {
            return Ok(());
        }
        if let Some(batch) = group.batch.take() {
            self.selected_memory = group.selected_memory.take();
            self.decoded.try_resize(0)?;
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
            let metrics = self.fetcher.metrics.as_ref();
            let timer = Timer::start(metrics, Step::Fetching);
            let columns = self.projection.columns();
            group.load_payload(&self.fetcher, columns).await?;
            drop(timer);
            let _timer = Timer::start(metrics, Step::Decoding);
            let (count, bytes) = self.reserve_batch(&group, &selection)?;
            let part = selection.take_selected(count);
            let decoded = group.columns.select_all(columns, &part)?;
            let batch = self.projection.batch(decoded, count)?;
            metrics.add(Counter::RowsDecoded, count);
            self.decoded.try_resize(batch.get_array_memory_size())?;
            self.selected_memory = None;
            self.output.push(batch, bytes)?;
            group.survivors = (count < survivors).then_some(selection);
        } else {
            // Nothing to return: let other tasks run and a cancellation through.
            tokio::task::yield_now().await;
        }
        if group.is_last_window() {
            self.survivors_expected = group.has_survivors;
            // The rows held back may be just those that tighten a dynamic filter.
            if self.filters.can_change() {
                self.output.flush()?;
            }
        } else {
            self.group = Some(group);
        }
        Ok(())
    }

    /// The selection of the next window's rows that pass the filters; `None` at the end of the group.
    fn filter_window(&mut self, group: &mut Group) -> Result<Option<Selection>> {
        self.renew(group)?;
        group.conjuncts.retain(|conjunct| conjunct.pays());
        let Some(mut selection) = group.next_window(self.window.vectors) else {
            return Ok(None);
        };
        let metrics = self.fetcher.metrics.as_ref();
        let candidates = selection.count();
        if !group.conjuncts.is_empty() {
            let _timer = Timer::start(metrics, Step::Filtering);
            for conjunct in &group.conjuncts {
                if selection.is_empty() {
                    break;
                }
                conjunct.narrow(&group.columns, &mut selection)?;
            }
        }
        let survivors = selection.count();
        metrics.add(Counter::RowsFiltered, candidates - survivors);
        self.window.adapt(selection.rows(), survivors);
        Ok(Some(selection))
    }

    /// Reserves memory for the first selected rows before they are decoded. Returns their number and bytes. Few wide
    /// rows are a batch; a single one that memory does not suffice for is an error.
    fn reserve_batch(&self, group: &Group, selection: &Selection) -> Result<(usize, u64)> {
        let columns = self.projection.columns();
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

/// The number of vectors to filter at a time: as many as yield about a batch of survivors.
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

    /// Adapts to a window of `rows` rows that had `survivors`.
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
