//! The rows of a table, and what happens to them: appends, snapshots, encoding in the background.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{
    SortColumn, SortOptions, concat_batches, lexsort_to_indices, partition, sort_to_indices, take,
    take_record_batch,
};
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{
    DataFusionError, Result, exec_datafusion_err, exec_err, resources_datafusion_err,
};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::LexOrdering;
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify, watch};
use vectile_file::{EncodedRowGroup, Encoder, MemoryRowGroup, RowGroupSize, Segment, joinable};

use super::row_groups::{
    NewView, OpenRowGroup, OpenView, PLAIN_ROWS, PlainRows, RowGroups, Sealed, View,
};
use crate::error;
use crate::snapshot::{Snapshot, file_of, mark};
use crate::text::is_text;

/// Appends wait while so many full row groups are not encoded.
const MOST_FULL: usize = 4;

/// A row group that always grows is encoded after this many times its waiting time.
const LONGEST_WAITS: u32 = 10;

/// Values that tell if a column of text repeats them.
const SAMPLE: usize = 256;

/// The name of a table in errors.
pub(super) const TABLE: &str = "a table in memory";

/// The number of the next segment of the process.
static NEXT_SEGMENT: AtomicU64 = AtomicU64::new(1);

/// The number of the next table of the process.
static NEXT_TABLE: AtomicU64 = AtomicU64::new(1);

/// How the rows of a table are encoded and bounded.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) schema: SchemaRef,
    /// Encodes rows that are added at once, by the threads of all writers.
    pub(super) encoder: Encoder,
    /// Encodes rows in the background.
    pub(super) background: Encoder,
    /// Rows of a row group.
    pub(super) row_group_rows: usize,
    /// True if rows that come encoded are as good as if they were encoded here.
    pub(super) keeps_encodings: bool,
    /// The order of the rows of each row group, for plans.
    pub(super) ordering: Option<LexOrdering>,
    /// Columns by which rows are sorted, by index.
    pub(super) sort_order: Vec<(usize, SortOptions)>,
    pub(super) seal_after: Duration,
    pub(super) memory_limit: Option<usize>,
}

/// The rows of a table.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) settings: Settings,
    number: u64,
    row_groups: Mutex<RowGroups>,
    /// Held while rows are prepared for a scan, so that queries that come together do it once.
    preparing: AsyncMutex<()>,
    /// Held while encoded rows take the place of others, and while rows are removed or changed.
    changing: AsyncMutex<()>,
    /// Notified when a row group was encoded, or could not be.
    sealed: Notify,
    /// Why a row group could not be encoded, which would be a defect. Its rows stay as they are.
    failed: Mutex<Option<DataFusionError>>,
    memory: MemoryReservation,
    /// Bytes of rows that are not yet in the table.
    staged: AtomicUsize,
    /// The version of the encoded row groups, for those who wait for another one.
    sealed_version: watch::Sender<u64>,
}

/// Memory of rows that are not yet in a table.
#[derive(Debug)]
pub(super) struct Staged {
    reservation: MemoryReservation,
    contents: Arc<Contents>,
}

impl Staged {
    /// Reserves more memory.
    ///
    /// # Errors
    ///
    /// [`DataFusionError::ResourcesExhausted`] if the table's limit or the pool has no more.
    pub(super) fn try_grow(&self, bytes: usize) -> Result<()> {
        let Contents {
            settings,
            memory,
            staged,
            ..
        } = self.contents.as_ref();
        let before = staged.fetch_add(bytes, Ordering::Relaxed);
        let now = memory.size().saturating_add(before);
        let grown = match settings.memory_limit {
            Some(limit) if now.saturating_add(bytes) > limit => Err(resources_datafusion_err!(
                "the table takes {now} bytes, and with {bytes} more it would exceed its limit of {limit}"
            )),
            _ => self.reservation.try_grow(bytes),
        };
        if grown.is_err() {
            staged.fetch_sub(bytes, Ordering::Relaxed);
        }
        grown
    }

    /// Replaces some of the memory by what rows take once they are encoded.
    pub(super) fn replace(&self, before: usize, after: usize) {
        let before = before.min(self.reservation.size());
        self.reservation.grow(after);
        self.reservation.shrink(before);
        self.contents.staged.fetch_add(after, Ordering::Relaxed);
        self.contents.staged.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let bytes = self.reservation.size();
        self.contents.staged.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Lets another task wait for a row group to be idle, unless this one has.
struct Timed {
    contents: Weak<Contents>,
    id: u64,
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(contents) = self.contents.upgrade() {
            contents.row_groups().untime_filling(self.id);
        }
    }
}

/// Marks a taken row group as free again, unless it was encoded.
struct Taken {
    contents: Arc<Contents>,
    id: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.contents.row_groups().give_back(self.id);
        self.contents.sealed.notify_waiters();
    }
}

impl Contents {
    pub(super) fn new(settings: Settings, memory: MemoryReservation) -> Arc<Self> {
        Arc::new(Self {
            number: NEXT_TABLE.fetch_add(1, Ordering::Relaxed),
            row_groups: Mutex::new(RowGroups::new(settings.row_group_rows)),
            settings,
            preparing: AsyncMutex::default(),
            changing: AsyncMutex::default(),
            sealed: Notify::new(),
            failed: Mutex::default(),
            memory,
            staged: AtomicUsize::new(0),
            sealed_version: watch::Sender::new(0),
        })
    }

    pub(super) fn row_groups(&self) -> MutexGuard<'_, RowGroups> {
        self.row_groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that count in the memory pool.
    pub(super) fn bytes(&self) -> usize {
        self.memory.size()
    }

    /// Memory for rows that are not yet in the table.
    pub(super) fn staging(self: &Arc<Self>) -> Staged {
        Staged {
            reservation: self.memory.new_empty(),
            contents: Arc::clone(self),
        }
    }

    /// Reserves what the rows take now, and publishes the version of the encoded row groups.
    fn settle(&self) {
        let row_groups = self.row_groups();
        self.memory.resize(row_groups.bytes());
        self.sealed_version.send_if_modified(|version| {
            std::mem::replace(version, row_groups.sealed_version()) != *version
        });
    }

    /// The version of the encoded row groups, which ends with the table.
    #[cfg(feature = "gpu")]
    pub(super) fn sealed_version(&self) -> watch::Receiver<u64> {
        self.sealed_version.subscribe()
    }

    /// Fails outside of a Tokio runtime, which encodes rows in the background.
    pub(super) fn check_runtime() -> Result<()> {
        match Handle::try_current() {
            Ok(_) => Ok(()),
            Err(_) => exec_err!("a table in memory needs a Tokio runtime, which encodes its rows"),
        }
    }

    /// Adds rows, all at once, whose memory is reserved: encoded ones, and others that are encoded later. Call it in a
    /// Tokio runtime.
    pub(super) fn append(self: &Arc<Self>, sealed: Vec<Sealed>, parts: Vec<PlainRows>) {
        self.row_groups().append(sealed, parts);
        self.settle();
        self.seal_full();
        self.seal_later();
    }

    /// As [`append`](Self::append), and removes all rows before, whose number it returns.
    pub(super) fn replace(self: &Arc<Self>, sealed: Vec<Sealed>, parts: Vec<PlainRows>) -> usize {
        let removed = {
            let mut row_groups = self.row_groups();
            let removed = row_groups.clear();
            row_groups.append(sealed, parts);
            removed
        };
        self.settle();
        self.sealed.notify_waiters();
        self.seal_full();
        self.seal_later();
        removed
    }

    /// Waits until few row groups are full that are not encoded.
    pub(super) async fn room(self: &Arc<Self>) {
        self.wait_until(|row_groups| row_groups.num_full(u64::MAX) < MOST_FULL)
            .await;
    }

    /// Encodes all rows that are there, and waits until they are.
    ///
    /// # Errors
    ///
    /// The error of encoding some, which would be a defect.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<()> {
        Self::check_runtime()?;
        let end = {
            let mut row_groups = self.row_groups();
            row_groups.end_filling();
            row_groups.filling().id
        };
        self.seal_full();
        self.wait_until(|row_groups| row_groups.num_full(end) == 0)
            .await;
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }

    async fn wait_until(self: &Arc<Self>, is_so: impl Fn(&RowGroups) -> bool) {
        loop {
            let mut sealed = pin!(self.sealed.notified());
            sealed.as_mut().enable();
            if is_so(&self.row_groups()) {
                return;
            }
            // those of a runtime that has ended, and those that failed
            self.seal_full();
            sealed.await;
        }
    }

    /// Encodes full row groups in the background.
    fn seal_full(self: &Arc<Self>) {
        let full = self.row_groups().take_full();
        for open in full {
            let taken = Taken {
                contents: Arc::clone(self),
                id: open.id,
            };
            // a task of its own: appending does not wait for it
            tokio::spawn(async move {
                let contents = &taken.contents;
                if let Err(error) = contents.seal(open).await
                    && contents.row_groups().note_failure(taken.id)
                {
                    let failed = contents.failed.lock();
                    *failed.unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
        }
    }

    /// Encodes the row group that fills when nothing was appended for a while.
    fn seal_later(self: &Arc<Self>) {
        let Some(id) = self.row_groups().time_filling() else {
            return;
        };
        let timed = Timed {
            contents: Arc::downgrade(self),
            id,
        };
        let wait = self.settings.seal_after;
        tokio::spawn(async move {
            let contents = &timed.contents;
            for _ in 0..LONGEST_WAITS {
                tokio::time::sleep(wait).await;
                let Some(contents) = contents.upgrade() else {
                    return;
                };
                let idle = {
                    let row_groups = contents.row_groups();
                    let filling = row_groups.filling();
                    (filling.id == id).then(|| filling.newest.elapsed())
                };
                match idle {
                    None => return,
                    Some(idle) if idle >= wait => break,
                    Some(_) => {}
                }
            }
            if let Some(contents) = contents.upgrade() {
                {
                    let mut row_groups = contents.row_groups();
                    if row_groups.filling().id == id {
                        row_groups.end_filling();
                    }
                }
                contents.seal_full();
            }
        });
    }

    /// Encodes a row group, together with small ones before it.
    async fn seal(self: &Arc<Self>, open: OpenRowGroup) -> Result<()> {
        let mut joined = self.row_groups().neighbours(open.rows());
        loop {
            let small = joined.iter().map(|sealed| Arc::clone(&sealed.row_group));
            let small: Vec<_> = small.collect();
            let encoder = &self.settings.background;
            let sealed = match self.encode(encoder, small, open.batches()).await {
                Err(_) if !joined.is_empty() => {
                    joined.clear();
                    continue;
                }
                sealed => sealed?,
            };
            let _changing = self.changing.lock().await;
            let is_sealed = self.row_groups().seal(open.id, &joined, sealed);
            if is_sealed {
                self.settle();
                return Ok(());
            }
            if joined.is_empty() {
                // its rows were removed or changed meanwhile
                return Ok(());
            }
            joined.clear();
        }
    }

    /// Encodes rows as row groups of this table.
    pub(super) async fn encode(
        &self,
        encoder: &Encoder,
        small: Vec<Arc<MemoryRowGroup>>,
        batches: Vec<RecordBatch>,
    ) -> Result<Vec<Sealed>> {
        let settings = &self.settings;
        let mut runs = vec![batches];
        if !small.is_empty() || !settings.sort_order.is_empty() {
            let (schema, order) = (Arc::clone(&settings.schema), settings.sort_order.clone());
            runs = blocking(move || {
                let decoded = small.iter().map(|of| of.decode().map_err(error::file));
                let mut all = decoded.collect::<Result<Vec<_>>>()?;
                all.extend(runs.into_iter().flatten());
                match order.is_empty() {
                    true => Ok(vec![all]),
                    false => sorted(&schema, all, &order)
                        .map(|sorted| sorted.into_iter().map(|one| vec![one]).collect()),
                }
            })
            .await?;
        }
        let mut sealed = Vec::new();
        for batches in runs {
            let encoded = encoder.encode(batches).await;
            for encoded in encoded.map_err(error::file)? {
                sealed.push(self.sealed(encoded)?);
            }
        }
        Ok(sealed)
    }

    /// A row group of this table that is encoded.
    pub(super) fn sealed(&self, encoded: EncodedRowGroup) -> Result<Sealed> {
        let schema = Arc::clone(&self.settings.schema);
        let row_group = MemoryRowGroup::of_encoded(TABLE, schema, encoded).map_err(error::file)?;
        let row_group = Arc::new(row_group);
        Ok(Sealed {
            file: self.file(vec![Arc::clone(&row_group)])?,
            row_group,
            newest: Instant::now(),
        })
    }

    /// The file that stands for row groups of this table.
    fn file(&self, row_groups: Vec<Arc<MemoryRowGroup>>) -> Result<PartitionedFile> {
        let number = NEXT_SEGMENT.fetch_add(1, Ordering::Relaxed);
        let name = Path::from(format!("{}/{number}", self.number));
        let schema = Arc::clone(&self.settings.schema);
        let segment =
            Segment::try_new(name, number as u32, schema, row_groups).map_err(error::file)?;
        file_of(Arc::new(segment))
    }

    /// Prepares batches that fit the schema for scans, if they are worth a row group each.
    pub(super) async fn prepared(&self, batches: Vec<RecordBatch>) -> Result<Vec<PlainRows>> {
        let is_large = |batch: &RecordBatch| batch.num_rows() >= PLAIN_ROWS / 2;
        if !self.settings.sort_order.is_empty() || !batches.iter().any(is_large) {
            return Ok(batches.into_iter().map(PlainRows::from).collect());
        }
        let prepare = self.preparation();
        blocking(move || {
            let parts = batches.into_iter().map(|batch| match is_large(&batch) {
                true => prepare.plain(batch),
                false => Ok(PlainRows::from(batch)),
            });
            parts.collect()
        })
        .await
    }

    fn preparation(&self) -> Preparation {
        let last = self.row_groups().sealed().last().cloned();
        Preparation {
            schema: Arc::clone(&self.settings.schema),
            order: self.settings.sort_order.clone(),
            like: last.map(|sealed| sealed.row_group),
        }
    }

    /// The version of the rows, as a file that changes with it.
    pub(super) fn mark(&self) -> ObjectMeta {
        mark(self.number, self.row_groups().version())
    }

    /// All rows at one moment after the call. Rows that are not encoded become plain row groups first.
    ///
    /// # Errors
    ///
    /// Errors of making row groups, which would be defects.
    pub(super) async fn snapshot(self: &Arc<Self>) -> Result<Arc<Snapshot>> {
        if let Some(known) = self.row_groups().snapshot() {
            return Ok(known);
        }
        let _preparing = self.preparing.lock().await;
        let View {
            version,
            sealed: mut files,
            open,
        } = {
            let row_groups = self.row_groups();
            match row_groups.snapshot() {
                Some(known) => return Ok(known),
                None => row_groups.view(),
            }
        };
        for open in open {
            files.extend(match open {
                OpenView::Known(files) => files,
                OpenView::New(view) => self.prepare(view).await?,
            });
        }
        let Settings {
            schema, ordering, ..
        } = &self.settings;
        let snapshot = Snapshot::new(self.number, version, files, schema, ordering.clone())?;
        let snapshot = Arc::new(snapshot);
        self.row_groups().keep(&snapshot);
        Ok(snapshot)
    }

    /// The files that stand for an open row group.
    async fn prepare(&self, view: NewView) -> Result<Vec<PartitionedFile>> {
        let mut parts = view.parts.clone();
        if !view.unprepared.is_empty() {
            let (prepare, unprepared) = (self.preparation(), view.unprepared.clone());
            parts = blocking(move || {
                // from the last one on, so that the others stay where they are
                for stretch in unprepared.into_iter().rev() {
                    let batches = parts[stretch.clone()].iter();
                    let batches = batches.map(|part| part.batch.clone()).collect();
                    parts.splice(stretch, prepare.joined(batches)?);
                }
                Ok(parts)
            })
            .await?;
        }
        let row_groups = parts.iter().filter_map(|part| part.prepared.clone());
        let files = match self.settings.sort_order.is_empty() {
            true => vec![self.file(row_groups.collect())?],
            // each is sorted, all together are not
            false => {
                let files = row_groups.map(|row_group| self.file(vec![row_group]));
                files.collect::<Result<_>>()?
            }
        };
        self.row_groups().prepare(&view, parts, &files);
        Ok(files)
    }

    /// Waits until no other change is under way, and holds off others.
    pub(super) async fn change(&self) -> AsyncMutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// Removes the row groups that `is_removed`. Returns them.
    pub(super) fn remove(&self, is_removed: impl Fn(&Sealed) -> bool) -> Vec<Sealed> {
        let removed = self.row_groups().remove(is_removed);
        self.settle();
        removed
    }
}

/// How batches become plain row groups.
struct Preparation {
    schema: SchemaRef,
    order: Vec<(usize, SortOptions)>,
    /// An encoded row group. Text that has a dictionary in it gets one, so that a device can read both.
    like: Option<Arc<MemoryRowGroup>>,
}

impl Preparation {
    /// A row group of a batch, as it is.
    fn plain(&self, batch: RecordBatch) -> Result<PlainRows> {
        let has_dictionary = |column| {
            let encoding = self.like.as_ref().and_then(|like| like.encoding(column));
            is_text(self.schema.field(column).data_type())
                && match encoding {
                    Some(encoding) => encoding.starts_with("dict"),
                    None => repeats(batch.column(column)),
                }
        };
        let schema = Arc::clone(&self.schema);
        // Bounds of text take as long as all others, for rows that are soon encoded anew. An order needs them.
        let is_of_order = |column| self.order.iter().any(|(by, _)| *by == column);
        let has_bounds = |column| is_of_order(column) || !is_text(schema.field(column).data_type());
        let batch_schema = Arc::clone(&schema);
        let prepared =
            MemoryRowGroup::of_batch(TABLE, batch_schema, &batch, has_dictionary, has_bounds);
        Ok(PlainRows {
            batch,
            prepared: Some(Arc::new(prepared.map_err(error::file)?)),
        })
    }

    /// Row groups of batches, joined to larger ones where they are small.
    fn joined(&self, batches: Vec<RecordBatch>) -> Result<Vec<PlainRows>> {
        let mut groups: Vec<(RowGroupSize, Vec<RecordBatch>)> = Vec::new();
        for batch in batches {
            // a batch that would have to be cut stays apart
            let fits = |(size, _): &&mut (RowGroupSize, _)| {
                !size.is_full(PLAIN_ROWS) && size.room(usize::MAX, &batch) == batch.num_rows()
            };
            let mut last = groups.pop_if(|group| fits(&group)).unwrap_or_default();
            last.0.add(&batch);
            last.1.push(batch);
            groups.push(last);
        }
        let mut parts = Vec::new();
        for (_, group) in groups {
            match self.order.is_empty() {
                true => {
                    for mut batches in joinable(group).map_err(error::file)? {
                        let batch = match batches.len() {
                            1 => batches.remove(0),
                            _ => concat_batches(&self.schema, &batches)?,
                        };
                        parts.push(self.plain(batch)?);
                    }
                }
                false => {
                    for batch in sorted(&self.schema, group, &self.order)? {
                        parts.push(self.plain(batch)?);
                    }
                }
            }
        }
        Ok(parts)
    }
}

/// True if most of the first values of a column of text are there more than once.
fn repeats(array: &ArrayRef) -> bool {
    let some = array.slice(0, array.len().min(SAMPLE));
    let sorted = sort_to_indices(&some, None, None).and_then(|by| take(&some, &by, None));
    let runs = sorted.and_then(|sorted| partition(&[sorted]));
    runs.is_ok_and(|runs| 2 * runs.len() <= some.len())
}

/// The rows of batches, sorted by columns: one batch, or several if one cannot have them.
fn sorted(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    order: &[(usize, SortOptions)],
) -> Result<Vec<RecordBatch>> {
    let runs = joinable(batches).map_err(error::file)?.into_iter();
    let sorted = runs.map(|batches| {
        let batch = concat_batches(schema, &batches)?;
        let columns = order.iter().map(|(column, options)| SortColumn {
            values: Arc::clone(batch.column(*column)),
            options: Some(*options),
        });
        let indices = lexsort_to_indices(&columns.collect::<Vec<_>>(), None)?;
        Ok(take_record_batch(&batch, &indices)?)
    });
    sorted.collect()
}

/// Runs work that takes long outside the threads of the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let task = SpawnedTask::spawn_blocking(work);
    let done = task.join().await;
    done.map_err(|error| exec_datafusion_err!("work on a table was interrupted: {error}"))?
}
