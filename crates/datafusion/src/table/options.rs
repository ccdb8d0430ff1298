//! Options of tables in memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::logical_expr::SortExpr;
use vectile_file::Threads;

use crate::options::TableOptions;

/// How long rows may wait for others of their row group, by default.
const SEAL_AFTER: Duration = Duration::from_secs(1);

/// Options of a [`VectileTable`](crate::VectileTable). The defaults suit a table that grows at any speed.
#[derive(Clone)]
#[non_exhaustive]
pub struct VectileTableOptions {
    /// Encodings, Bloom filters and rows of a row group, as of files. Compression as a whole is refused: rows of memory
    /// would be decompressed for each query.
    pub table: TableOptions,
    /// Columns by which the rows of each row group are sorted. Scans are in that order where the bounds of row groups
    /// allow it.
    pub sort_order: Vec<SortExpr>,
    /// How long after the last append rows are encoded although their row group is not full.
    pub seal_after: Duration,
    /// Maximum bytes of the table: appends that would exceed it fail. `None`: as many as the memory pool has.
    pub memory_limit: Option<usize>,
    /// The memory pool in which all of its bytes count.
    pub memory_pool: Arc<dyn MemoryPool>,
    /// The threads that encode rows in the background: by default a quarter of the processors, at least one. Rows of an
    /// [`Appender`](crate::Appender), such as those of `INSERT`, are encoded by the threads of all writers.
    pub threads: Threads,
}

impl Default for VectileTableOptions {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            table: TableOptions::default(),
            sort_order: Vec::new(),
            seal_after: SEAL_AFTER,
            memory_limit: None,
            memory_pool: Arc::new(UnboundedMemoryPool::default()),
            threads: Threads::new((processors / 4).max(1)),
        }
    }
}

impl VectileTableOptions {
    /// Sets [`table`](Self::table).
    #[must_use]
    pub fn with_table(mut self, table: TableOptions) -> Self {
        self.table = table;
        self
    }

    /// Sets [`sort_order`](Self::sort_order).
    #[must_use]
    pub fn with_sort_order(mut self, order: Vec<SortExpr>) -> Self {
        self.sort_order = order;
        self
    }

    /// Sets [`seal_after`](Self::seal_after).
    #[must_use]
    pub fn with_seal_after(mut self, after: Duration) -> Self {
        self.seal_after = after;
        self
    }

    /// Sets [`memory_limit`](Self::memory_limit).
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: Option<usize>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Sets [`memory_pool`](Self::memory_pool).
    #[must_use]
    pub fn with_memory_pool(mut self, pool: Arc<dyn MemoryPool>) -> Self {
        self.memory_pool = pool;
        self
    }

    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }
}

impl fmt::Debug for VectileTableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectileTableOptions")
            .field("table", &self.table)
            .field("sort_order", &self.sort_order)
            .field("seal_after", &self.seal_after)
            .field("memory_limit", &self.memory_limit)
            .finish_non_exhaustive()
    }
}
