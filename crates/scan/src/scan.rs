//! The description of a scan: rows, columns, and the engine's memory and metrics.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::stream::{StreamExt, TryStreamExt};

use crate::conjunct::Role;
use crate::container::Container;
use crate::error::{Error, Result};
use crate::fetch::Fetcher;
use crate::filters::Filters;
use crate::memory::Memory;
use crate::metrics::{Counter, Metrics};
use crate::node::Node;
use crate::projection::{Columns, Projection};
use crate::selector::Selector;
use crate::task::{self, Spawn};

/// Default rows per batch.
const BATCH_ROWS: usize = 8192;

/// Row groups whose Bloom filters are read in parallel.
const BLOOMS: usize = 16;

/// A scan of one container. [`stream`](Self::stream) or [`blocking`](Self::blocking) runs it.
#[non_exhaustive]
pub struct Scan {
    /// The container to scan.
    pub container: Arc<dyn Container>,
    /// The filters on its rows. They are of the same container.
    pub filters: Filters,
    /// Forms the output batches.
    pub projection: Arc<dyn Projection>,
    /// Evaluates the exact filters instead of the scan, if there is one.
    pub selector: Option<Arc<dyn Selector>>,
    /// The row groups, in the order to scan them. Those that the container does not have are ignored.
    pub row_groups: Vec<usize>,
    /// The vectors to scan of row groups of which others scan the rest.
    pub vectors: HashMap<usize, Range<usize>>,
    /// Approximate rows per batch.
    pub batch_size: usize,
    /// Rows after which to stop.
    pub limit: Option<usize>,
    /// The reservation that rows in memory are charged to.
    pub memory: Box<dyn Memory>,
    /// Receives counters and times.
    pub metrics: Arc<dyn Metrics>,
    /// Runs the read-ahead.
    pub spawn: Spawn,
}

impl Scan {
    /// A scan of all rows and columns, without a limit on memory.
    pub fn new(container: Arc<dyn Container>) -> Self {
        Self {
            filters: Filters::none(Arc::clone(&container)),
            projection: Arc::new(Columns::all(container.schema())),
            selector: None,
            row_groups: (0..container.num_row_groups()).collect(),
            vectors: HashMap::new(),
            batch_size: BATCH_ROWS,
            limit: None,
            memory: Box::new(()),
            metrics: Arc::new(()),
            spawn: Arc::new(task::spawn),
            container,
        }
    }

    /// Returns the rows that pass `filter`, and no others.
    ///
    /// # Errors
    ///
    /// If constants are not of their column's type.
    pub fn with_filter(mut self, filter: Node) -> Result<Self> {
        let container = Arc::clone(&self.container);
        self.filters = Filters::try_new(container, vec![filter], Role::Exact, vec![])?;
        Ok(self)
    }

    /// The row groups that may have rows of the scan, in its order, for callers that read them whole in another way. Zone
    /// maps, dynamic filters and Bloom filters prune as they do when the scan runs.
    ///
    /// # Errors
    ///
    /// The container's, if Bloom filters cannot be read.
    pub async fn row_groups_left(mut self) -> Result<Vec<usize>> {
        self.filters.refresh();
        let fetcher = Fetcher::new(self.container, self.metrics);
        let (filters, fetcher) = (&self.filters, &fetcher);
        let count = fetcher.container.num_row_groups();
        let row_groups = self.row_groups.into_iter();
        let row_groups = row_groups.filter(|&i| i < count && !filters.exclude(i));
        let left = futures::stream::iter(row_groups).map(async |row_group| {
            let counter = if filters.exclude_now(row_group) {
                Counter::RowGroupsPruned
            } else if filters.have_blooms(row_group)
                && fetcher
                    .rules_out(&filters.for_row_group(row_group)?)
                    .await?
            {
                Counter::RowGroupsPrunedByBloomFilter
            } else {
                return Ok(Some(row_group));
            };
            fetcher.metrics.add(counter, 1);
            Ok::<_, Error>(None)
        });
        let left: Vec<Option<usize>> = left.buffered(BLOOMS).try_collect().await?;
        Ok(left.into_iter().flatten().collect())
    }

    /// Returns these columns, in this order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the container does not have them.
    pub fn with_columns(mut self, names: &[&str]) -> Result<Self> {
        let schema = self.container.schema();
        let columns = names.iter().map(|name| {
            let unknown = |_| Error::InvalidArgument(format!("there is no column '{name}'"));
            schema.index_of(name).map_err(unknown)
        });
        let columns: Vec<usize> = columns.collect::<Result<_>>()?;
        self.projection = Arc::new(Columns::try_new(&columns, schema)?);
        Ok(self)
    }

    /// Stops after `rows` rows.
    #[must_use]
    pub fn with_limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.projection.schema()
    }
}
