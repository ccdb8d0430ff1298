//! Rows that are added to a table all at once, however many.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use tokio::runtime::Handle;
use vectile_file::{EncodedRowGroup, arrow_bytes};

use super::contents::{Contents, Staged};
use super::row_groups::{Sealed, room};
use crate::error;

/// Row groups that are encoded at the same time.
const MOST_ENCODING: usize = 4;

/// Rows to be added to a [`VectileTable`](crate::VectileTable). Full row groups are encoded as they come. Nobody sees the
/// rows before [`commit`](Self::commit); dropping this discards them.
#[derive(Debug)]
pub struct Appender {
    contents: Arc<Contents>,
    batches: Vec<RecordBatch>,
    /// Rows and bytes of `batches`.
    rows: usize,
    bytes: usize,
    /// Row groups being encoded, with the bytes of their rows.
    encoding: VecDeque<(usize, SpawnedTask<Result<Vec<Sealed>>>)>,
    sealed: Vec<Sealed>,
    total: u64,
    staged: Staged,
    /// True while rows are added, and after that has failed.
    is_incomplete: bool,
}

/// The numbers of rows of [`Appender::replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// Rows that were added.
    pub added: u64,
    /// Rows that were removed.
    pub removed: u64,
}

impl Appender {
    pub(super) fn new(contents: &Arc<Contents>) -> Self {
        Self {
            staged: contents.staging(),
            is_incomplete: false,
            contents: Arc::clone(contents),
            batches: Vec::new(),
            rows: 0,
            bytes: 0,
            encoding: VecDeque::new(),
            sealed: Vec::new(),
            total: 0,
        }
    }

    /// Adds the rows of a batch. Its columns must have the types of the table's schema, in the same order; their names
    /// are ignored.
    ///
    /// # Errors
    ///
    /// If the batch does not fit the schema or memory is exhausted: then the rows before stay. If encoding fails, or the
    /// future is dropped: then this only fails.
    pub async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.check_complete()?;
        let settings = &self.contents.settings;
        settings.encoder.check(&batch).map_err(error::file)?;
        let bytes = arrow_bytes(&batch);
        self.staged.try_grow(bytes)?;
        self.is_incomplete = true;
        self.total += batch.num_rows() as u64;
        let most = settings.row_group_rows;
        let row_bytes = bytes / batch.num_rows().max(1);
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = room(most, self.rows, self.bytes, row_bytes);
            if rows == 0 {
                self.encode().await?;
                continue;
            }
            let rows = rows.min(batch.num_rows() - start);
            let slice = batch.slice(start, rows);
            start += rows;
            self.rows += rows;
            self.bytes += arrow_bytes(&slice);
            self.batches.push(slice);
            if self.rows >= most {
                self.encode().await?;
            }
        }
        self.is_incomplete = false;
        Ok(())
    }

    fn check_complete(&self) -> Result<()> {
        match self.is_incomplete {
            true => exec_err!("adding rows to a table has failed before"),
            false => Ok(()),
        }
    }

    /// Adds a row group that is encoded.
    pub(super) fn write_encoded(&mut self, encoded: EncodedRowGroup) -> Result<()> {
        let sealed = self.contents.sealed(encoded)?;
        self.staged.try_grow(sealed.row_group.bytes())?;
        self.total += sealed.row_group.rows() as u64;
        self.sealed.push(sealed);
        Ok(())
    }

    /// Encodes the rows so far, which are a row group.
    async fn encode(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.batches);
        let bytes = std::mem::take(&mut self.bytes);
        self.rows = 0;
        if self.encoding.len() >= MOST_ENCODING {
            self.encoded().await?;
        }
        let contents = Arc::clone(&self.contents);
        let task = SpawnedTask::spawn(async move { contents.encode(Vec::new(), batches).await });
        self.encoding.push_back((bytes, task));
        Ok(())
    }

    /// Waits for the first row group being encoded.
    async fn encoded(&mut self) -> Result<()> {
        let Some((bytes, task)) = self.encoding.pop_front() else {
            return Ok(());
        };
        let sealed = task.join().await;
        let sealed =
            sealed.map_err(|error| exec_datafusion_err!("encoding ended early: {error}"))??;
        let encoded = sealed.iter().map(|sealed| sealed.row_group.bytes());
        self.staged.replace(bytes, encoded.sum());
        self.sealed.extend(sealed);
        Ok(())
    }

    /// Adds all rows to the table, where queries see them at once. Returns their number.
    ///
    /// # Errors
    ///
    /// Errors of encoding; then no row is added.
    pub async fn commit(mut self) -> Result<u64> {
        self.check_complete()?;
        while !self.encoding.is_empty() {
            self.encoded().await?;
        }
        let parts = self.contents.prepared(self.batches).await?;
        self.contents.room().await;
        self.contents.append(self.sealed, parts);
        Ok(self.total)
    }

    /// As [`commit`](Self::commit), and removes all rows that were there before. Queries that run go on to see them.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit); then no row is removed.
    pub async fn replace(mut self) -> Result<Replaced> {
        self.check_complete()?;
        while !self.encoding.is_empty() {
            self.encoded().await?;
        }
        let contents = Arc::clone(&self.contents);
        let parts = contents.prepared(self.batches).await?;
        let _changing = contents.change().await;
        let removed = contents.replace(self.sealed, parts);
        Ok(Replaced {
            added: self.total,
            removed: removed as u64,
        })
    }
}

/// Adds batches to a table at once.
pub(super) async fn append(contents: &Arc<Contents>, batches: Vec<RecordBatch>) -> Result<()> {
    if Handle::try_current().is_err() {
        return exec_err!("rows are appended in a Tokio runtime, which encodes them later");
    }
    for batch in &batches {
        let encoder = &contents.settings.encoder;
        encoder.check(batch).map_err(error::file)?;
    }
    let staged = contents.staging();
    staged.try_grow(batches.iter().map(arrow_bytes).sum())?;
    let parts = contents.prepared(batches).await?;
    contents.room().await;
    contents.append(Vec::new(), parts);
    drop(staged);
    Ok(())
}
