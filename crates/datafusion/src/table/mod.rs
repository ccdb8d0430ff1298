//! Tables in memory: rows come as Arrow batches, are encoded in the background, and answer queries at once.
//!
//! ```text
//!  options    what an embedder chooses
//!  row_groups the rows: encoded, full and filling row groups
//!  contents   appends, snapshots, encoding in the background
//!  appender   rows that are added at once, however many
//!  sink       INSERT INTO
//!  encoded    row groups that come encoded
//!  create     CREATE TABLE
//!  retention  removes old row groups
//! ```

mod appender;
mod contents;
mod create;
mod encoded;
mod options;
mod retention;
mod row_groups;
mod sink;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraints, Result, SchemaExt, not_impl_err, plan_err};
#[cfg(feature = "gpu")]
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, SortExpr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::create_ordering;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use object_store::ObjectMeta;
#[cfg(feature = "gpu")]
use tokio::sync::watch;
use vectile_file::{Compression, Encoder};

pub use self::appender::{Appender, Replaced};
pub use self::options::VectileTableOptions;
pub use self::retention::Removed;

pub(crate) use self::create::create_table;

use self::contents::{Contents, Settings, TABLE};
use self::encoded::EncodedRows;
use self::sink::{Before, TableSink};
use crate::error;
use crate::options::VectileOptions;
use crate::snapshot::{Snapshot, store_in};
use crate::source::{VectileSource, scan_plan};

/// A table in memory. Rows are encoded as in files, and scans of them do as much: filters on encoded columns, zone maps,
/// Bloom filters, late decoding, fused pipelines on the CPU and on GPUs, cached plans.
///
/// An append is visible as a whole, from the moment it returns, and a query sees the rows of one moment from start to
/// end. Rows collect as Arrow arrays until they fill a row group, or until none was added for a second; then they are
/// encoded in the background. Nothing is on disk: rows that were not written to files are lost with the process.
///
/// ```
/// use std::sync::Arc;
/// use datafusion::arrow::array::{Float64Array, Int32Array, RecordBatch};
/// use datafusion::prelude::SessionContext;
/// use vectile_datafusion::{VectileTable, VectileTableOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// let ctx = SessionContext::new();
/// vectile_datafusion::register(&ctx)?;
/// let batch = RecordBatch::try_from_iter([
///     ("sensor", Arc::new(Int32Array::from(vec![1, 2, 1])) as _),
///     ("value", Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5])) as _),
/// ])?;
///
/// let table = Arc::new(VectileTable::try_new(batch.schema(), VectileTableOptions::default())?);
/// ctx.register_table("readings", Arc::clone(&table) as _)?;
/// table.append([batch]).await?;
/// ctx.sql("INSERT INTO readings VALUES (3, 4.5)").await?.collect().await?;
///
/// let sums = ctx.sql("SELECT sensor, sum(value) FROM readings GROUP BY sensor").await?;
/// assert_eq!(sums.count().await?, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VectileTable {
    contents: Arc<Contents>,
    constraints: Constraints,
    column_defaults: HashMap<String, Expr>,
    definition: Option<String>,
}

/// The size of a table at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSize {
    /// All rows.
    pub rows: usize,
    /// Rows that are encoded.
    pub sealed_rows: usize,
    /// Row groups that are encoded.
    pub row_groups: usize,
    /// Bytes of memory that all rows take.
    pub bytes: usize,
}

impl VectileTable {
    /// A table of this schema, without rows.
    ///
    /// # Errors
    ///
    /// If the options name columns that the schema does not have or are out of range, if a type cannot be stored, or if
    /// the sort order is not of columns.
    pub fn try_new(schema: SchemaRef, options: VectileTableOptions) -> Result<Self> {
        if options.table.compression != Compression::None {
            return plan_err!("tables in memory are not compressed as a whole");
        }
        let session = VectileOptions::default();
        let writer = options.table.writer_options(&session, &schema)?;
        let row_group_rows = writer.row_group_rows;
        let encoder = Encoder::try_new(TABLE, Arc::clone(&schema), &writer);
        let writer = writer.with_threads(options.threads);
        let background = Encoder::try_new(TABLE, Arc::clone(&schema), &writer);
        let settings = Settings {
            encoder: encoder.map_err(error::file)?,
            background: background.map_err(error::file)?,
            row_group_rows,
            keeps_encodings: options.table.encodings.is_empty()
                && options.table.bloom_filters.is_empty()
                && options.sort_order.is_empty(),
            sort_order: sort_columns(&options.sort_order, &schema)?,
            ordering: create_ordering(&schema, &[options.sort_order])?.pop(),
            seal_after: options.seal_after,
            memory_limit: options.memory_limit,
            schema,
        };
        let memory = MemoryConsumer::new("VectileTable").register(&options.memory_pool);
        Ok(Self {
            contents: Contents::new(settings, memory),
            constraints: Constraints::default(),
            column_defaults: HashMap::new(),
            definition: None,
        })
    }

    /// Sets constraints, which queries trust and appends do not check.
    #[must_use]
    pub fn with_constraints(mut self, constraints: Constraints) -> Self {
        self.constraints = constraints;
        self
    }

    /// Sets the values that an `INSERT` of other columns gives to columns, by name.
    #[must_use]
    pub fn with_column_defaults(mut self, defaults: HashMap<String, Expr>) -> Self {
        self.column_defaults = defaults;
        self
    }

    /// Sets the SQL that the table was made with.
    #[must_use]
    pub fn with_definition(mut self, definition: Option<String>) -> Self {
        self.definition = definition;
        self
    }

    /// Adds the rows of batches, all at once. Their columns must have the types of the schema, in the same order; their
    /// names are ignored. Waits while more rows come than are encoded. It needs a Tokio runtime with a timer, which also
    /// encodes the rows later.
    ///
    /// # Errors
    ///
    /// If a batch does not fit the schema, or memory is exhausted. Then no row is added.
    pub async fn append(&self, batches: impl IntoIterator<Item = RecordBatch>) -> Result<()> {
        appender::append(&self.contents, batches.into_iter().collect()).await
    }

    /// Adds more rows at once than should wait as Arrow arrays.
    pub fn appender(&self) -> Appender {
        Appender::new(&self.contents)
    }

    /// Encodes all rows that are there, and waits until they are.
    ///
    /// # Errors
    ///
    /// Errors of encoding, which would be defects. The rows stay as they are, and queries see them.
    pub async fn flush(&self) -> Result<()> {
        self.contents.flush().await
    }

    /// Removes the encoded row groups whose newest row was appended longer ago than `age`. Queries that run go on to see
    /// them.
    pub async fn remove_older_than(&self, age: Duration) -> Removed {
        retention::remove_older_than(&self.contents, age).await
    }

    /// Removes the encoded row groups of which all rows pass `filter`, by their zone maps: `at < ..`, for example, in a
    /// table whose rows come in the order of `at`. Nothing is decoded, and rows of other row groups stay. Queries that run
    /// go on to see them.
    ///
    /// # Errors
    ///
    /// If the filter is not one of the table's columns.
    pub async fn remove_row_groups(&self, filter: &Expr) -> Result<Removed> {
        retention::remove_row_groups(&self.contents, filter).await
    }

    /// Removes all rows. Queries that run go on to see them.
    pub async fn clear(&self) {
        let _changing = self.contents.change().await;
        self.contents.replace(Vec::new(), Vec::new());
    }

    /// The table's size now.
    pub fn size(&self) -> TableSize {
        let bytes = self.contents.bytes();
        let row_groups = self.contents.row_groups();
        let sealed = row_groups.sealed().iter();
        let sealed_rows = sealed.map(|sealed| sealed.row_group.rows());
        TableSize {
            rows: row_groups.rows(),
            sealed_rows: sealed_rows.sum(),
            row_groups: row_groups.sealed().len(),
            bytes,
        }
    }

    /// The version of the encoded row groups, which ends with the table.
    #[cfg(feature = "gpu")]
    pub(crate) fn sealed_version(&self) -> watch::Receiver<u64> {
        self.contents.sealed_version()
    }

    /// The files that stand for encoded row groups.
    #[cfg(feature = "gpu")]
    pub(crate) fn sealed_files(&self) -> Vec<PartitionedFile> {
        let row_groups = self.contents.row_groups();
        let sealed = row_groups.sealed().iter();
        sealed.map(|sealed| sealed.file.clone()).collect()
    }

    /// The version of the rows of this moment, as a file that changes with it.
    pub(crate) fn mark(&self) -> ObjectMeta {
        self.contents.mark()
    }

    /// The rows of this moment.
    pub(crate) async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.contents.snapshot().await
    }
}

/// The columns of a sort order, by index.
fn sort_columns(order: &[SortExpr], schema: &Schema) -> Result<Vec<(usize, SortOptions)>> {
    let columns = order.iter().map(|sort| {
        let Expr::Column(column) = &sort.expr else {
            return plan_err!(
                "tables in memory are sorted by columns, not by {}",
                sort.expr
            );
        };
        let options = SortOptions {
            descending: !sort.asc,
            nulls_first: sort.nulls_first,
        };
        Ok((schema.index_of(column.name())?, options))
    });
    columns.collect()
}

#[async_trait]
impl TableProvider for VectileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.contents.settings.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.definition.as_deref()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.column_defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // a rule of the physical optimizer gives them to the scan
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let snapshot = self.snapshot().await?;
        let url = store_in(state.runtime_env())?;
        let source = VectileSource::new(TableSchema::from(self.schema()))
            .with_snapshot(Some(Arc::clone(&snapshot)));
        let partitions = state.config().target_partitions();
        // other filters are applied to rows afterwards, so that more than `limit` rows may be needed
        let limit = limit.filter(|_| filters.is_empty());
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_constraints(self.constraints.clone())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        scan_plan(state, snapshot.scanned_by(scan, partitions).build())
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.schema()
            .logically_equivalent_names_and_types(&input.schema())?;
        let before = match op {
            InsertOp::Append => Before::Stay,
            InsertOp::Overwrite => Before::Replaced,
            InsertOp::Replace => return not_impl_err!("REPLACE INTO a table in memory"),
        };
        let sink = TableSink::new(&self.contents, before);
        if let Some(rows) = EncodedRows::of(&input, &self.contents.settings, state).await {
            let none = Arc::new(EmptyExec::new(input.schema()));
            let sink = Arc::new(sink.with_encoded(rows));
            return Ok(Arc::new(DataSinkExec::new(none, sink, None)));
        }
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }

    /// Removes all rows when it runs. `DELETE` and `UPDATE` are refused: DataFusion 55.2 does not tell a table all of
    /// their filters, and a session without our rules would delete all rows.
    async fn truncate(&self, _: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let none = Arc::new(EmptyExec::new(self.schema()));
        let sink = TableSink::new(&self.contents, Before::Removed);
        Ok(Arc::new(DataSinkExec::new(none, Arc::new(sink), None)))
    }
}
