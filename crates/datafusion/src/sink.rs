//! Writes query results: `COPY ... TO` and `INSERT INTO`.

use std::fmt::{self, Formatter};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::DataSink;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricsSet,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use object_store::ObjectStore;
use object_store::path::Path;
use vectile_file::{Writer, WriterOptions};

use crate::error;
use crate::options::{TableOptions, VectileOptions};

/// Writes Vectile files, one for each that DataFusion's demultiplexer asks for.
///
/// A file comes into being when all input has been written: a query that fails leaves none.
pub struct VectileSink {
    config: FileSinkConfig,
    schema: SchemaRef,
    options: WriterOptions,
    metrics: ExecutionPlanMetricsSet,
}

impl VectileSink {
    /// A sink for the files of `config`.
    ///
    /// # Errors
    ///
    /// A configuration error when `options` names a column that is not written.
    pub fn try_new(
        config: FileSinkConfig,
        options: &TableOptions,
        session: &VectileOptions,
    ) -> Result<Self> {
        let schema = get_writer_schema(&config);
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            options: options.writer_options(session, &schema, parallelism)?,
            schema,
            config,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Writes what comes for each file, and hands back the writers, not finished.
    async fn write_files(
        &self,
        files: &mut DemuxedStreamReceiver,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<Vec<Writer>> {
        let mut tasks: JoinSet<Result<Writer>> = JoinSet::new();
        while let Some((path, mut batches)) = files.recv().await {
            let mut writer = self.writer(store, path)?;
            tasks.spawn(async move {
                while let Some(batch) = batches.recv().await {
                    if let Err(error) = writer.write(&batch).await {
                        // The first error is the one to report.
                        let _ = writer.abort().await;
                        return Err(error::file(error));
                    }
                }
                Ok(writer)
            });
        }
        let mut writers = Vec::new();
        let mut failed = None;
        while let Some(joined) = tasks.join_next().await {
            match joined.map_err(interrupted).flatten() {
                Ok(writer) => writers.push(writer),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(writers),
            Some(error) => {
                abort(writers).await;
                Err(error)
            }
        }
    }

    fn writer(&self, store: &Arc<dyn ObjectStore>, path: Path) -> Result<Writer> {
        let schema = Arc::clone(&self.schema);
        Writer::try_new(Arc::clone(store), path, schema, self.options.clone()).map_err(error::file)
    }

    fn counter(&self, name: &'static str, category: MetricCategory) -> Count {
        MetricBuilder::new(&self.metrics)
            .with_category(category)
            .global_counter(name)
    }
}

async fn abort(writers: Vec<Writer>) {
    for writer in writers {
        // An error has happened already; a staged upload that stays behind is no file.
        let _ = writer.abort().await;
    }
}

fn interrupted(error: impl fmt::Display) -> DataFusionError {
    exec_datafusion_err!("writing was interrupted: {error}")
}

#[async_trait]
impl FileSink for VectileSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        _context: &Arc<TaskContext>,
        demux_task: SpawnedTask<Result<()>>,
        mut file_stream_rx: DemuxedStreamReceiver,
        object_store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let writers = self.write_files(&mut file_stream_rx, &object_store).await;
        if writers.is_err() {
            drop(file_stream_rx);
        }
        // The query's own error comes out of the demultiplexer; a writer's makes that one fail as
        // a consequence.
        let demuxed = demux_task
            .join_unwind()
            .await
            .map_err(interrupted)
            .flatten();
        let writers = writers?;
        if let Err(error) = demuxed {
            abort(writers).await;
            return Err(error);
        }
        let rows_written = self.counter("rows_written", MetricCategory::Rows);
        let bytes_written = self.counter("bytes_written", MetricCategory::Bytes);
        let mut rows = 0;
        for writer in writers {
            let summary = writer.finish().await.map_err(error::file)?;
            rows_written.add(summary.rows as usize);
            bytes_written.add(summary.bytes as usize);
            rows += summary.rows;
        }
        Ok(rows)
    }
}

#[async_trait]
impl DataSink for VectileSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        FileSink::write_all(self, data, context).await
    }
}

impl fmt::Debug for VectileSink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectileSink").finish_non_exhaustive()
    }
}

impl DisplayAs for VectileSink {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "VectileSink(url={})", self.config.original_url)
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "format: vectile")?;
                write!(f, "file={}", self.config.original_url)
            }
        }
    }
}
