//! Rows that are added to a table all at once, however many.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use vectile_file::{EncodedRowGroup, RowGroupSize, arrow_bytes};

use super::contents::{Contents, Staged};
use super::row_groups::Sealed;
use crate::error;

/// Row groups that are encoded at the same time.
const MOST_ENCODING: usize = 4;

/// Rows to be added to a [`VectileTable`](crate::VectileTable). Full row groups are encoded as they come. No query
/// sees the rows before [`commit`](Self::commit); dropping this discards them.
#[derive(Debug)]
pub struct Appender {
    contents: Arc<Contents>,
    batches: Vec<RecordBatch>,
    /// The size of `batches`.
    size: RowGroupSize,
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
            size: RowGroupSize::default(),
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
        self.check()?;
        let settings = &self.contents.settings;
        settings.encoder.check(&batch).map_err(error::file)?;
        self.staged.try_grow(arrow_bytes(&batch))?;
        self.is_incomplete = true;
        let all = batch.num_rows();
        self.total += all as u64;
        let most = settings.row_group_rows;
        let mut start = 0;
        while start < all {
            let rest = batch.slice(start, all - start);
            let rows = self.size.room(most, &rest);
            let slice = rest.slice(0, rows);
            start += rows;
            self.size.add(&slice);
            self.batches.push(slice);
            if start < all || self.size.is_full(most) {
                self.encode().await?;
            }
        }
        self.is_incomplete = false;
        Ok(())
    }

    /// Fails outside of a Tokio runtime, and after an error.
    fn check(&self) -> Result<()> {
        match self.is_incomplete {
            true => exec_err!("adding rows to a table has failed before"),
            false => Contents::check_runtime(),
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
        let bytes = std::mem::take(&mut self.size).arrow_bytes();
        if self.encoding.len() >= MOST_ENCODING {
            self.encoded().await?;
        }
        let contents = Arc::clone(&self.contents);
        let task = SpawnedTask::spawn(async move {
            let encoder = &contents.settings.encoder;
            contents.encode(encoder, Vec::new(), batches).await
        });
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
        self.check()?;
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
        self.check()?;
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
    Contents::check_runtime()?;
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
