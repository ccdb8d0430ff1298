//! The rows of a table in memory: row groups that are encoded, those that are full, and one that fills.
//!
//! ```text
//!  append ──▶ filling ──▶ full ──▶ encoded in the background ──▶ sealed
//!                │          │                                      │
//!                └──────────┴── prepared: plain row groups         │
//!                                     └──────────▶ a snapshot ◀────┘
//! ```
//!
//! This is data and its invariants alone: nothing here waits or encodes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::datasource::listing::PartitionedFile;
use vectile_file::{MemoryRowGroup, RowGroupSize};

use crate::snapshot::Snapshot;

/// A row group that could not be encoded so often stays as it is.
const MOST_FAILURES: usize = 3;

/// Small batches are joined to plain row groups of about this many rows.
pub(super) const PLAIN_ROWS: usize = 8192;

/// An encoded row group.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) row_group: Arc<MemoryRowGroup>,
    /// The file that stands for it in plans.
    pub(super) file: PartitionedFile,
    /// When its newest row was appended.
    pub(super) newest: Instant,
}

/// A batch of rows that are not encoded.
#[derive(Clone, Debug)]
pub(super) struct PlainRows {
    pub(super) batch: RecordBatch,
    /// The same rows, ready to be scanned.
    pub(super) prepared: Option<Arc<MemoryRowGroup>>,
}

impl From<RecordBatch> for PlainRows {
    fn from(batch: RecordBatch) -> Self {
        Self {
            batch,
            prepared: None,
        }
    }
}

/// Rows that are to become a row group.
#[derive(Clone, Debug)]
pub(super) struct OpenRowGroup {
    pub(super) id: u64,
    parts: Vec<PlainRows>,
    size: RowGroupSize,
    pub(super) newest: Instant,
    /// The files that stand for the rows in plans, if no row came since they were made.
    files: Option<Vec<PartitionedFile>>,
    /// True while a task encodes it.
    is_taken: bool,
    /// How often encoding it has failed.
    failures: usize,
    /// True once a task waits for it to be idle.
    is_timed: bool,
}

impl OpenRowGroup {
    fn new(id: u64) -> Self {
        Self {
            id,
            parts: Vec::new(),
            size: RowGroupSize::default(),
            newest: Instant::now(),
            files: None,
            is_taken: false,
            failures: 0,
            is_timed: false,
        }
    }

    /// True if it stays as it is, because encoding it fails.
    fn is_stuck(&self) -> bool {
        self.failures >= MOST_FAILURES
    }

    /// All rows.
    pub(super) fn batches(&self) -> Vec<RecordBatch> {
        self.parts.iter().map(|part| part.batch.clone()).collect()
    }

    pub(super) fn rows(&self) -> usize {
        self.size.rows()
    }

    /// The parts to be prepared: all that are not, in stretches, each with the small parts before it that have no more
    /// rows. So there are few parts, and a row is joined with others a few times.
    fn unprepared(&self) -> Vec<Range<usize>> {
        let mut stretches = Vec::new();
        let mut at = 0;
        while let Some(part) = self.parts.get(at) {
            if part.prepared.is_some() {
                at += 1;
                continue;
            }
            let (mut start, mut rows) = (at, 0);
            while let Some(part) = self.parts.get(at)
                && part.prepared.is_none()
            {
                rows += part.batch.num_rows();
                at += 1;
            }
            while let Some(before) = start
                .checked_sub(1)
                .and_then(|before| self.parts.get(before))
                && before.prepared.is_some()
                && before.batch.num_rows() <= rows
                && before.batch.num_rows() + rows <= PLAIN_ROWS
            {
                rows += before.batch.num_rows();
                start -= 1;
            }
            stretches.push(start..at);
        }
        stretches
    }
}

/// Rows of an open row group at one moment.
#[derive(Debug)]
pub(super) enum OpenView {
    /// These files stand for them.
    Known(Vec<PartitionedFile>),
    /// They have no files yet.
    New(NewView),
}

/// Rows of an open row group that has no files yet.
#[derive(Debug)]
pub(super) struct NewView {
    id: u64,
    pub(super) parts: Vec<PlainRows>,
    /// The parts that are to be prepared.
    pub(super) unprepared: Vec<Range<usize>>,
}

/// The rows of a table at one moment.
#[derive(Debug)]
pub(super) struct View {
    pub(super) version: u64,
    pub(super) sealed: Vec<PartitionedFile>,
    pub(super) open: Vec<OpenView>,
}

/// All rows of a table.
#[derive(Debug)]
pub(super) struct RowGroups {
    most_rows: usize,
    version: u64,
    next_id: u64,
    sealed: Vec<Sealed>,
    /// Grows with each change of `sealed`.
    sealed_version: u64,
    /// Bytes of `sealed`.
    sealed_bytes: usize,
    /// Full ones, and those that wait no longer.
    full: Vec<OpenRowGroup>,
    filling: OpenRowGroup,
    /// The snapshot of this version.
    snapshot: Option<Arc<Snapshot>>,
}

impl RowGroups {
    /// No rows; later row groups of at most `most_rows`.
    pub(super) fn new(most_rows: usize) -> Self {
        Self {
            most_rows: most_rows.max(1),
            version: 0,
            next_id: 1,
            sealed: Vec::new(),
            sealed_version: 0,
            sealed_bytes: 0,
            full: Vec::new(),
            filling: OpenRowGroup::new(0),
            snapshot: None,
        }
    }

    fn change(&mut self) {
        self.version += 1;
        self.snapshot = None;
    }

    /// Adds rows, all at once: encoded ones and others.
    pub(super) fn append(&mut self, sealed: Vec<Sealed>, parts: Vec<PlainRows>) {
        let newest = Instant::now();
        self.add(sealed, newest);
        for part in parts {
            self.fill(part, newest);
        }
        self.change();
    }

    fn add(&mut self, sealed: Vec<Sealed>, newest: Instant) {
        self.sealed_version += u64::from(!sealed.is_empty());
        for row_group in sealed {
            self.sealed_bytes += row_group.row_group.bytes();
            self.sealed.push(Sealed {
                newest,
                ..row_group
            });
        }
    }

    fn fill(&mut self, part: PlainRows, newest: Instant) {
        let all = part.batch.num_rows();
        let mut start = 0;
        while start < all {
            let rest = part.batch.slice(start, all - start);
            let rows = self.filling.size.room(self.most_rows, &rest);
            let part = match rows == all {
                true => part.clone(),
                false => rest.slice(0, rows).into(),
            };
            start += rows;
            self.filling.size.add(&part.batch);
            self.filling.newest = newest;
            self.filling.files = None;
            self.filling.parts.push(part);
            if start < all || self.filling.size.is_full(self.most_rows) {
                self.end_filling();
            }
        }
    }

    /// Ends the row group that fills, if it has rows, so that it is encoded next.
    pub(super) fn end_filling(&mut self) {
        if self.filling.rows() > 0 {
            let next = self.new_row_group();
            self.full.push(std::mem::replace(&mut self.filling, next));
        }
    }

    /// The row group that fills, if it has rows and no task waits for it to be idle. One does from now on.
    pub(super) fn time_filling(&mut self) -> Option<u64> {
        let filling = &mut self.filling;
        let is_new = filling.rows() > 0 && !filling.is_timed;
        filling.is_timed |= is_new;
        is_new.then_some(filling.id)
    }

    /// No task waits for the row group to be idle any more, if it still fills.
    pub(super) fn untime_filling(&mut self, id: u64) {
        if self.filling.id == id {
            self.filling.is_timed = false;
        }
    }

    fn new_row_group(&mut self) -> OpenRowGroup {
        let id = self.next_id;
        self.next_id += 1;
        OpenRowGroup::new(id)
    }

    /// Takes the full row groups that no task encodes.
    pub(super) fn take_full(&mut self) -> Vec<OpenRowGroup> {
        let is_free = |open: &&mut OpenRowGroup| !open.is_taken && !open.is_stuck();
        let free = self.full.iter_mut().filter(is_free);
        let taken = free.map(|open| {
            open.is_taken = true;
            open.clone()
        });
        taken.collect()
    }

    /// Gives a row group back that was taken and is not encoded.
    pub(super) fn give_back(&mut self, id: u64) {
        if let Some(open) = self.full.iter_mut().find(|open| open.id == id) {
            open.is_taken = false;
        }
    }

    /// Counts a failure to encode a row group. Returns true if it stays as it is from now on.
    pub(super) fn note_failure(&mut self, id: u64) -> bool {
        let failed = self.full.iter_mut().find(|open| open.id == id);
        failed.is_some_and(|open| {
            open.failures += 1;
            open.is_stuck()
        })
    }

    /// Small row groups to be encoded anew with `rows` others, oldest first: each has no more rows than those behind it
    /// together, so that a row is encoded at most as often as its row group doubles. Those before a large row group stay
    /// apart, so that a row group spans no more time than it must.
    pub(super) fn neighbours(&self, rows: usize) -> Vec<Sealed> {
        let mut all = rows;
        let mut found = Vec::new();
        for sealed in self.sealed.iter().rev() {
            let rows = sealed.row_group.rows();
            if 2 * rows > self.most_rows || rows > all || all + rows > self.most_rows {
                break;
            }
            all += rows;
            found.push(sealed.clone());
        }
        found.reverse();
        found
    }

    /// Replaces an open row group and sealed ones by those that they have become. Returns false, and changes nothing, if
    /// any of them is gone.
    pub(super) fn seal(&mut self, id: u64, joined: &[Sealed], sealed: Vec<Sealed>) -> bool {
        let Some(at) = self.full.iter().position(|open| open.id == id) else {
            return false;
        };
        let is_joined = |known: &Sealed| {
            let mut joined = joined.iter();
            joined.any(|other| Arc::ptr_eq(&known.row_group, &other.row_group))
        };
        if self.sealed.iter().filter(|known| is_joined(known)).count() != joined.len() {
            return false;
        }
        let newest = joined.iter().map(|sealed| sealed.newest);
        let newest = newest.fold(self.full.remove(at).newest, Instant::max);
        self.remove(is_joined);
        self.add(sealed, newest);
        self.change();
        true
    }

    /// Removes the encoded row groups that `is_removed`, and returns them.
    pub(super) fn remove(&mut self, is_removed: impl Fn(&Sealed) -> bool) -> Vec<Sealed> {
        let removed = self.sealed.extract_if(.., |sealed| is_removed(sealed));
        let removed: Vec<Sealed> = removed.collect();
        if !removed.is_empty() {
            let bytes = removed.iter().map(|sealed| sealed.row_group.bytes());
            self.sealed_bytes -= bytes.sum::<usize>();
            self.sealed_version += 1;
            self.change();
        }
        removed
    }

    /// Removes all rows, and returns their number.
    pub(super) fn clear(&mut self) -> usize {
        let rows = self.rows();
        self.sealed.clear();
        self.sealed_version += 1;
        self.sealed_bytes = 0;
        self.full.clear();
        self.filling = self.new_row_group();
        self.change();
        rows
    }

    fn open(&self) -> impl Iterator<Item = &OpenRowGroup> {
        self.full.iter().chain([&self.filling])
    }

    /// The number of all rows.
    pub(super) fn rows(&self) -> usize {
        let sealed = self.sealed.iter().map(|sealed| sealed.row_group.rows());
        sealed.sum::<usize>() + self.open().map(OpenRowGroup::rows).sum::<usize>()
    }

    /// Bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        let open = self.open().map(|open| open.size.arrow_bytes());
        self.sealed_bytes + open.sum::<usize>()
    }

    /// The encoded row groups.
    pub(super) fn sealed(&self) -> &[Sealed] {
        &self.sealed
    }

    /// Grows with each change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Grows with each change of the encoded row groups.
    pub(super) fn sealed_version(&self) -> u64 {
        self.sealed_version
    }

    /// The number of row groups that are full, or wait no longer, and are to be encoded: of those with a lower number
    /// than `end`.
    pub(super) fn num_full(&self, end: u64) -> usize {
        let is_counted = |open: &&OpenRowGroup| open.id < end && !open.is_stuck();
        self.full.iter().filter(is_counted).count()
    }

    /// The row group that fills.
    pub(super) fn filling(&self) -> &OpenRowGroup {
        &self.filling
    }

    /// The snapshot of all rows, if one was made since the last change.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    /// All rows.
    pub(super) fn view(&self) -> View {
        let open = self.open().filter(|open| open.rows() > 0);
        let open = open.map(|open| match &open.files {
            Some(files) => OpenView::Known(files.clone()),
            None => OpenView::New(NewView {
                id: open.id,
                parts: open.parts.clone(),
                unprepared: open.unprepared(),
            }),
        });
        View {
            version: self.version,
            sealed: self
                .sealed
                .iter()
                .map(|sealed| sealed.file.clone())
                .collect(),
            open: open.collect(),
        }
    }

    /// Keeps what the rows of a view have become: as many parts, and files. Rows that were appended meanwhile stay.
    pub(super) fn prepare(
        &mut self,
        view: &NewView,
        parts: Vec<PlainRows>,
        files: &[PartitionedFile],
    ) {
        let mut open = self.full.iter_mut().chain([&mut self.filling]);
        let Some(open) = open.find(|open| open.id == view.id) else {
            return;
        };
        let before = view.parts.len();
        if before <= open.parts.len() {
            let has_all = before == open.parts.len();
            open.parts.splice(..before, parts);
            open.files = has_all.then(|| files.to_vec());
        }
    }

    /// Keeps the snapshot of a version, if there is no later one.
    pub(super) fn keep(&mut self, snapshot: &Arc<Snapshot>) {
        if snapshot.version == self.version {
            self.snapshot = Some(Arc::clone(snapshot));
        }
    }
}
