//! Writes query results: `COPY ... TO` and `INSERT INTO`.
//!
//! ```text
//! batches ── demultiplexer ──▶ a writer per file ── encode, send ──▶ staged files
//!                                                                        │ all of them are complete
//!                                                                        ▼
//!                                                           published together
//! ```

use std::fmt::{self, Formatter};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_datafusion_err};
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::DataSink;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricsSet,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::mpsc::Receiver;
use vectile_encodings::Compressor;
use vectile_file::{Staged, WriteSummary, Writer, WriterOptions, publish};

use crate::error;
use crate::file::is_local;
use crate::listing::Listings;
use crate::options::{TableOptions, VectileOptions};
use crate::snapshot::{Snapshot, segment_of};

/// Writes Vectile files, one for each file of DataFusion's demultiplexer.
///
/// Files appear once all input is written, encoded and sent: a query that fails leaves none.
pub struct VectileSink {
    config: FileSinkConfig,
    schema: SchemaRef,
    options: WriterOptions,
    replace: bool,
    /// Rows to write instead of those of the input: their row groups stay encoded.
    snapshot: Option<Arc<Snapshot>>,
    metrics: ExecutionPlanMetricsSet,
}

impl VectileSink {
    /// A sink for the files of `config`.
    ///
    /// # Errors
    ///
    /// Returns a configuration error if `options` names a column that is not written.
    pub fn try_new(
        config: FileSinkConfig,
        options: &TableOptions,
        session: &VectileOptions,
    ) -> Result<Self> {
        let schema = get_writer_schema(&config);
        let is_local = is_local(&config.object_store_url);
        Ok(Self {
            options: options
                .writer_options(session, &schema)?
                .with_local_root(is_local.then(|| "/".into())),
            replace: options.replace,
            snapshot: None,
            schema,
            config,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Writes the rows of a table in memory as one file, instead of those of the input.
    pub(crate) fn with_snapshot(mut self, snapshot: &Arc<Snapshot>) -> Self {
        self.snapshot = Some(Arc::clone(snapshot));
        self
    }

    /// Writes the rows of a table in memory: encoded row groups as they are, and behind them the rest.
    async fn write_snapshot(&self, snapshot: &Snapshot, context: &Arc<TaskContext>) -> Result<u64> {
        let target = self.config.table_paths.first();
        let path = target.map(|url| url.prefix().clone());
        let path = path.ok_or_else(|| internal_datafusion_err!("a file without a name"))?;
        let runtime = context.runtime_env();
        let store = runtime.object_store(&self.config.object_store_url)?;
        self.check_absent(&store, &path).await?;
        let mut writer = self.writer(&store, path.clone(), &self.compressor(context))?;
        let memory = Budget::of(context.memory_pool());
        if let Err(error) = write_segments(&mut writer, snapshot, &memory).await {
            // The first error is the one to report.
            let _ = writer.abort().await;
            return Err(error);
        }
        let staged = writer.stage().await.map_err(error::file)?;
        self.finish(vec![(path, staged)], &store, &runtime).await
    }

    /// Publishes all files, and counts what they have. Returns the number of rows.
    async fn finish(
        &self,
        files: Vec<(Path, Staged)>,
        store: &Arc<dyn ObjectStore>,
        runtime: &RuntimeEnv,
    ) -> Result<u64> {
        let rows_written = self.counter("rows_written", MetricCategory::Rows);
        let bytes_written = self.counter("bytes_written", MetricCategory::Bytes);
        let mut rows = 0;
        for summary in self.publish(files, store, Listings::of(runtime)).await? {
            rows_written.add(summary.rows as usize);
            bytes_written.add(summary.bytes as usize);
            rows += summary.rows;
        }
        Ok(rows)
    }

    /// Writes all files of the demultiplexer, and stages them.
    async fn write_files(
        &self,
        files: &mut DemuxedStreamReceiver,
        store: &Arc<dyn ObjectStore>,
        memory: &Budget,
        compressor: &Option<Arc<dyn Compressor>>,
    ) -> Result<Vec<(Path, Staged)>> {
        let mut tasks: JoinSet<Result<(Path, Staged)>> = JoinSet::new();
        while let Some((path, batches)) = files.recv().await {
            self.check_in_table(&path)?;
            self.check_absent(store, &path).await?;
            let writer = self.writer(store, path.clone(), compressor)?;
            let memory = memory.new_empty();
            tasks.spawn(async move { Ok((path, write_file(writer, batches, memory).await?)) });
        }
        let mut staged = Vec::new();
        let mut failed = None;
        while let Some(joined) = tasks.join_next().await {
            match joined.map_err(interrupted).flatten() {
                Ok(file) => staged.push(file),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(staged),
            Some(error) => {
                abort(staged).await;
                Err(error)
            }
        }
    }

    /// Fails if the table's location is a glob that does not contain the file which an `INSERT` would write.
    fn check_in_table(&self, path: &Path) -> Result<()> {
        let mut urls = self.config.table_paths.iter();
        match urls.any(|url| url.contains(path, false)) {
            true => Ok(()),
            false => exec_err!("{path} would not be a file of the table: its location is a glob"),
        }
    }

    /// Fails if the one file that a `COPY` names exists, unless it may be replaced. Names in directories are generated.
    async fn check_absent(&self, store: &Arc<dyn ObjectStore>, path: &Path) -> Result<()> {
        let named = self
            .config
            .table_paths
            .iter()
            .any(|url| url.prefix() == path);
        if !named || self.replace {
            return Ok(());
        }
        match store.head(path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => exec_err!(
                "{} exists; it is replaced with OPTIONS (replace true)",
                self.config.original_url
            ),
        }
    }

    /// Publishes all files under their names.
    async fn publish(
        &self,
        files: Vec<(Path, Staged)>,
        store: &Arc<dyn ObjectStore>,
        listings: Listings,
    ) -> Result<Vec<WriteSummary>> {
        let (paths, staged): (Vec<Path>, Vec<Staged>) = files.into_iter().unzip();
        for path in &paths {
            self.check_absent(store, path).await?;
        }
        // A task, which continues if the query is dropped: it must not publish only some of the files.
        let published = tokio::spawn(async move {
            let published = publish(staged).await;
            paths.iter().for_each(|path| listings.forget(path));
            published
        });
        let published = published.await.map_err(interrupted)?;
        published.map_err(error::file)
    }

    fn writer(
        &self,
        store: &Arc<dyn ObjectStore>,
        path: Path,
        compressor: &Option<Arc<dyn Compressor>>,
    ) -> Result<Writer> {
        let schema = Arc::clone(&self.schema);
        let options = self.options.clone().with_compressor(compressor.clone());
        Writer::try_new(Arc::clone(store), path, schema, options).map_err(error::file)
    }

    /// Compresses strings besides the CPU, if set.
    #[cfg(feature = "gpu")]
    fn compressor(&self, context: &TaskContext) -> Option<Arc<dyn Compressor>> {
        let bytes = self.counter("text_bytes_compressed_on_gpu", MetricCategory::Bytes);
        crate::fused::counting_compressor(context.session_config(), bytes)
    }

    #[cfg(not(feature = "gpu"))]
    fn compressor(&self, _: &TaskContext) -> Option<Arc<dyn Compressor>> {
        None
    }

    /// The number of row groups that are written as they are.
    fn encoded_row_groups(&self) -> usize {
        let files = self.snapshot.iter().flat_map(|snapshot| &snapshot.files);
        let segments: Vec<_> = files.filter_map(segment_of).collect();
        let row_groups = segments.iter().flat_map(|segment| segment.row_groups());
        row_groups.filter(|of| of.encoded().is_some()).count()
    }

    fn counter(&self, name: &'static str, category: MetricCategory) -> Count {
        MetricBuilder::new(&self.metrics)
            .with_category(category)
            .global_counter(name)
    }
}

/// Memory from the pool for a writer.
struct Budget {
    reservation: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
}

impl Budget {
    fn of(pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            reservation: MemoryConsumer::new("VectileSink").register(pool),
            pool: Arc::clone(pool),
        }
    }

    fn new_empty(&self) -> Self {
        Self {
            reservation: self.reservation.new_empty(),
            pool: Arc::clone(&self.pool),
        }
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        self.reservation.try_resize(bytes)
    }

    /// True if at least half of the pool's memory is unused.
    fn is_ample(&self) -> bool {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => self.pool.reserved() <= limit / 2,
            MemoryLimit::Infinite | MemoryLimit::Unknown => true,
        }
    }
}

/// Writes the batches of one file, and stages it.
async fn write_file(
    mut writer: Writer,
    mut batches: Receiver<RecordBatch>,
    memory: Budget,
) -> Result<Staged> {
    while let Some(batch) = batches.recv().await {
        if let Err(error) = write_batch(&mut writer, &batch, &memory).await {
            // The first error is the one to report.
            let _ = writer.abort().await;
            return Err(error);
        }
    }
    writer.stage().await.map_err(error::file)
}

/// Writes the rows of a table in memory: encoded row groups as they are, and behind them the rest.
async fn write_segments(writer: &mut Writer, snapshot: &Snapshot, memory: &Budget) -> Result<()> {
    let segments: Vec<_> = snapshot.files.iter().filter_map(segment_of).collect();
    let row_groups = || segments.iter().flat_map(|segment| segment.row_groups());
    for encoded in row_groups().filter_map(|row_group| row_group.encoded()) {
        writer.write_encoded(encoded).await.map_err(error::file)?;
    }
    for plain in row_groups().filter(|row_group| row_group.encoded().is_none()) {
        let batch = plain.decode().map_err(error::file)?;
        write_batch(writer, &batch, memory).await?;
    }
    Ok(())
}

/// Writes a batch. If memory is short, encodes fewer row groups at the same time; if even one is too many, ends it
/// early.
async fn write_batch(writer: &mut Writer, batch: &RecordBatch, memory: &Budget) -> Result<()> {
    writer.write(batch).await.map_err(error::file)?;
    while memory.try_resize(writer.memory_bytes()).is_err() || !memory.is_ample() {
        if !writer.encode_fewer().await.map_err(error::file)? {
            break;
        }
    }
    if memory.try_resize(writer.memory_bytes()).is_err() {
        writer.relieve().await.map_err(error::file)?;
        memory.try_resize(writer.memory_bytes())?;
    }
    Ok(())
}

async fn abort(files: Vec<(Path, Staged)>) {
    for (_, file) in files {
        // The first error is reported instead. An upload that remains staged is no file.
        let _ = file.abort().await;
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
        context: &Arc<TaskContext>,
        demux_task: SpawnedTask<Result<()>>,
        mut file_stream_rx: DemuxedStreamReceiver,
        object_store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let memory = Budget::of(context.memory_pool());
        let compressor = self.compressor(context);
        let files = self
            .write_files(&mut file_stream_rx, &object_store, &memory, &compressor)
            .await;
        if files.is_err() {
            drop(file_stream_rx);
        }
        // The query's own error comes from the demultiplexer; if a writer fails, it fails as a consequence.
        let demuxed = demux_task
            .join_unwind()
            .await
            .map_err(interrupted)
            .flatten();
        let files = files?;
        if let Err(error) = demuxed {
            abort(files).await;
            return Err(error);
        }
        self.finish(files, &object_store, &context.runtime_env())
            .await
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
        match &self.snapshot {
            Some(snapshot) => self.write_snapshot(snapshot, context).await,
            None => FileSink::write_all(self, data, context).await,
        }
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
                write!(f, "VectileSink(url={}", self.config.original_url)?;
                match self.encoded_row_groups() {
                    0 => f.write_str(")"),
                    count => write!(f, ", encoded_row_groups={count})"),
                }
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "format: vectile")?;
                write!(f, "file={}", self.config.original_url)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use arrow::array::{ArrayRef, StringArray};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use object_store::memory::InMemory;
    use vectile_encodings::{Encoding, Splits, Uncompressed};
    use vectile_file::Threads;

    use super::*;

    const ROWS: usize = 4096;

    /// Delays the text of each row group.
    #[derive(Debug, Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Compressor for Slow {
        fn compress(&self, _: &Uncompressed<'_>) -> Option<Splits> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(50));
            self.now.fetch_sub(1, Ordering::SeqCst);
            None
        }
    }

    /// Writes eight row groups. Returns for how many at most the text was encoded concurrently.
    async fn written_with(pool: &Arc<dyn MemoryPool>) -> usize {
        let text = (0..ROWS).map(|row| format!("a row group like all others {}", row % 9));
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(text));
        let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
        let slow = Arc::new(Slow::default());
        let options = WriterOptions::default()
            .with_row_group_rows(ROWS)
            .with_pins([("text", Encoding::Fsst)])
            .with_threads(Threads::new(4))
            .with_compressor(Some(slow.clone()));
        let store = Arc::new(InMemory::new());
        let schema = batch.schema();
        let mut writer = Writer::try_new(store, Path::from("t"), schema, options).unwrap();
        let memory = Budget::of(pool);
        for _ in 0..8 {
            for start in (0..ROWS).step_by(512) {
                let batch = batch.slice(start, 512);
                write_batch(&mut writer, &batch, &memory).await.unwrap();
            }
        }
        let summary = writer.finish().await.unwrap();
        assert_eq!(summary.row_groups, 8, "none ends early");
        slow.most.load(Ordering::SeqCst)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn fewer_row_groups_are_encoded_at_once_where_memory_is_short() {
        // A writer needs twice the rows of one row group, and as much for the one being filled.
        let row_group_bytes = ROWS * 33;
        let pool = |row_groups| -> Arc<dyn MemoryPool> {
            Arc::new(GreedyMemoryPool::new(row_groups * row_group_bytes))
        };
        assert!(written_with(&pool(100)).await > 2);
        assert!(written_with(&pool(6)).await <= 2);
        // Memory needed by others is not taken for mere speed.
        let pool = pool(100);
        let other = MemoryConsumer::new("other").register(&pool);
        other.grow(60 * row_group_bytes);
        assert!(written_with(&pool).await <= 2);
    }
}
