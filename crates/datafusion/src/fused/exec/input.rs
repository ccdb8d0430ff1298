//! The row groups that a kernel reads: those that zone maps and Bloom filters leave of a table's files.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use vectile_gpu::{ChunkKey, Engine, Error};

use crate::error;
use crate::file::ScanFile;
use crate::fused::cost_model::{ColumnId, hashed};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::file_rows::FileRowGroup;
use crate::fused::pattern::fingerprint::file_key;
use crate::metrics::ScanMetrics;
use crate::opener::Parts;
use crate::source::VectileSource;
use crate::text::is_text;

/// A table scan of a kernel: columns by their index in the table's schema.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) config: FileScanConfig,
    /// Prunes row groups by the kernel's filters.
    pub(crate) source: VectileSource,
    pub(crate) columns: Vec<usize>,
    /// Columns that, if they are text, the kernel reads only as dictionary codes.
    pub(crate) coded: Vec<usize>,
    /// Columns that are keys of groups or joins.
    pub(crate) keys: Vec<usize>,
}

/// The columns of a table that a kernel reads.
pub(crate) struct Reads<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) store: &'a ObjectStoreUrl,
    pub(crate) table: &'a Schema,
    pub(crate) columns: &'a [usize],
    /// Columns that, if they are text, the kernel reads only as dictionary codes.
    pub(crate) coded: &'a [usize],
    /// Columns that are keys of groups or joins.
    pub(crate) keys: &'a [usize],
}

/// A row group for a kernel to read.
#[derive(Clone)]
pub(crate) struct TableRowGroup {
    pub(super) file: Arc<GpuFile>,
    /// Index in the file.
    pub(super) index: usize,
    pub(super) rows: usize,
    /// Bytes of its columns in the file.
    pub(super) bytes: u64,
    /// Number of text key columns without a dictionary.
    text_keys: usize,
}

/// An open file, and the name of its chunks on the device.
pub(crate) struct GpuFile {
    pub(super) scan: Arc<ScanFile>,
    pub(super) engine: Arc<Engine>,
    pub(super) key: Arc<str>,
    /// Indices in the file's schema, in the order of the pipeline.
    pub(super) columns: Vec<usize>,
    /// The text keys among `columns`.
    text_keys: Vec<usize>,
}

/// True if text in the encoding of that name has no dictionary.
fn is_in_splits(encoding: &str) -> bool {
    let names = ["plain", "fsst", "onpair"];
    names.into_iter().any(|name| encoding.starts_with(name))
}

impl Input {
    /// The columns that are read. They are those of a table by its schema: its files may change from query to query.
    pub(crate) fn column_ids(&self) -> Vec<ColumnId> {
        let schema = self.source.table_schema().table_schema();
        let table = hashed(&(self.config.object_store_url.as_str(), schema));
        let columns = self.columns.iter();
        columns
            .map(|column| ColumnId(hashed(&(table, column))))
            .collect()
    }

    /// Opens the files and returns the row groups that zone maps and Bloom filters leave.
    pub(crate) async fn open(
        &self,
        engine: &Arc<Engine>,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Vec<TableRowGroup>> {
        let url = &self.config.object_store_url;
        let files = self.files(context, metrics).await?;
        let row_groups = files.into_iter().map(|(scan, object, left)| {
            let reads = Reads {
                engine,
                store: url,
                table: self.source.table_schema().table_schema(),
                columns: &self.columns,
                coded: &self.coded,
                keys: &self.keys,
            };
            let file = Arc::new(reads.of_file(scan, &object)?);
            let left = left.into_iter();
            let row_groups = left.map(|index| TableRowGroup::new(Arc::clone(&file), index));
            Ok(row_groups.filter(|row_group| row_group.rows > 0).collect())
        });
        let row_groups: Vec<Vec<TableRowGroup>> = row_groups.collect::<Result<_>>()?;
        Ok(row_groups.into_iter().flatten().collect())
    }

    /// Opens the files. Returns the row groups of each that zone maps and Bloom filters leave.
    pub(super) async fn files(
        &self,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Vec<(Arc<ScanFile>, ObjectMeta, Vec<usize>)>> {
        let url = &self.config.object_store_url;
        let store = context.runtime_env().object_store(url)?;
        let metrics = ScanMetrics::new(metrics, 0);
        let mut opener = self.source.opener(store, &self.config, 0, metrics);
        let table = self.source.table_schema().table_schema();
        opener.projection = ProjectionExprs::from_indices(&self.columns, table);
        let opener = &opener;
        let options = context.session_config().options();
        let concurrency = options.execution.meta_fetch_concurrency.get();
        let files = futures::stream::iter(whole_files(&self.config)).map(async |file| {
            let object = file.object_meta.clone();
            let Some((file, scan)) = opener.scan(file, Parts::RowGroups).await? else {
                return Ok(None);
            };
            let left = scan.row_groups_left().await;
            let left = left.map_err(|error| file.error(error))?;
            Ok::<_, DataFusionError>(Some((file, object, left)))
        });
        let files: Vec<_> = files.buffered(concurrency).try_collect().await?;
        Ok(files.into_iter().flatten().collect())
    }

    /// The columns in a file, in the order of the pipeline. Returns [`Error::Unsupported`] if one is missing or has
    /// another type there.
    pub(super) fn columns_in(&self, file: &ScanFile) -> Result<Vec<usize>> {
        file_columns(
            file,
            self.source.table_schema().table_schema(),
            &self.columns,
        )
    }
}

impl Reads<'_> {
    /// The columns in an open file. Returns [`Error::Unsupported`] if one is missing or stored in another way.
    pub(crate) fn of_file(&self, scan: Arc<ScanFile>, object: &ObjectMeta) -> Result<GpuFile> {
        let schema = scan.file.schema();
        let columns = file_columns(&scan, self.table, self.columns)?;
        let of_file = |of_table: &[usize]| {
            let both = self.columns.iter().zip(&columns);
            let listed = both.filter(|(column, _)| of_table.contains(column));
            let texts = listed.filter(|(_, column)| is_text(schema.field(**column).data_type()));
            texts.map(|(_, column)| *column).collect::<Vec<usize>>()
        };
        for column in of_file(self.coded) {
            let row_groups = 0..scan.file.num_row_groups();
            let mut encodings = row_groups.filter_map(|at| scan.file.text_encoding(at, column));
            if let Some(encoding) = encodings.find(|encoding| is_in_splits(encoding)) {
                let reason = format!("text is stored as {encoding}");
                return Err(error::gpu(Error::Unsupported(reason)));
            }
        }
        let text_keys = of_file(self.keys);
        // A rewritten file may have the same size and time.
        let checksum = scan.file.checksum();
        let key = format!("{} {checksum:08x}", file_key(self.store, object)).into();
        if let Some(life) = scan.file.life() {
            self.engine.tie(&key, life);
        }
        Ok(GpuFile {
            key,
            engine: Arc::clone(self.engine),
            columns,
            text_keys,
            scan,
        })
    }
}

/// The indices in a file of `columns` of a table. Returns [`Error::Unsupported`] if one is missing or stored in another
/// way.
fn file_columns(scan: &ScanFile, table: &Schema, columns: &[usize]) -> Result<Vec<usize>> {
    let schema = scan.file.schema();
    let columns = columns.iter().map(|&column| {
        let field = table.field(column);
        match schema.index_of(field.name()) {
            Ok(index) if schema.field(index).data_type() == field.data_type() => Ok(index),
            _ => {
                let (file, name) = (scan.file.location(), field.name());
                let reason = format!("{file} has no {name} of type {}", field.data_type());
                Err(error::gpu(Error::Unsupported(reason)))
            }
        }
    });
    columns.collect()
}

/// The name of its chunks.
impl fmt::Display for GpuFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

/// Column names, for `EXPLAIN`.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.source.table_schema().table_schema();
        for (i, &column) in self.columns.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", table.field(column).name())?;
        }
        Ok(())
    }
}

/// The files of all partitions, with adjacent byte ranges joined.
fn whole_files(config: &FileScanConfig) -> Vec<PartitionedFile> {
    let mut whole: Vec<PartitionedFile> = Vec::new();
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        let joins = |before: &&mut PartitionedFile| {
            let ends = before.range.as_ref().map(|range| range.end);
            before.object_meta.location == file.object_meta.location
                && ends.is_some()
                && ends == file.range.as_ref().map(|range| range.start)
        };
        match (whole.last_mut().filter(joins), &file.range) {
            (Some(before), Some(range)) => {
                before.range = before.range.as_ref().map(|joined| FileRange {
                    start: joined.start,
                    end: range.end,
                });
            }
            _ => whole.push(file.clone()),
        }
    }
    whole
}

impl TableRowGroup {
    pub(crate) fn new(file: Arc<GpuFile>, index: usize) -> Self {
        let container = &file.scan.file;
        let keys = file.text_keys.iter();
        let encodings = keys.filter_map(|&key| file.scan.file.text_encoding(index, key));
        Self {
            text_keys: encodings.filter(|encoding| is_in_splits(encoding)).count(),
            rows: container.rows(index),
            bytes: container.data_bytes(index, &file.columns) as u64,
            index,
            file,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The row group, for readers of other columns.
    pub(crate) fn of_file(&self) -> FileRowGroup {
        FileRowGroup {
            scan: Arc::clone(&self.file.scan),
            row_group: self.index,
        }
    }

    /// Bytes of its columns in the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of strings in text keys without a dictionary.
    pub(crate) fn strings(&self) -> u64 {
        self.rows as u64 * self.text_keys as u64
    }

    /// The key of a column's chunk.
    pub(super) fn key(&self, column: usize) -> ChunkKey {
        ChunkKey {
            file: Arc::clone(&self.file.key),
            row_group: self.index,
            column,
        }
    }
}
/// Returns why a query over `row_groups` would not pay, if so.
pub(crate) fn decline(row_groups: &[TableRowGroup], memory: u64) -> Option<FallbackReason> {
    let bytes = row_groups.iter().map(|row_group| row_group.bytes).sum();
    (bytes > memory).then_some(FallbackReason::TooLarge {
        bytes,
        limit: memory,
    })
}
