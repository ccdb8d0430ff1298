//! Loads columns before queries ask for them, and keeps them on the device until they are unloaded.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{
    ResolvedTableReference, Result, TableReference, exec_datafusion_err, exec_err, plan_err,
};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::{StreamExt, TryStreamExt};
use vectile_gpu::plan::Type;
use vectile_gpu::{Error, Resident};

use super::device::{Device, Gpu};
use super::nodes::load::{Found, Input, Part, find, interrupted, is_crowded};
use super::nodes::metrics::GpuMetrics;
use super::pins::{Pin, address};
use super::reason::Reason;
use super::types::is_text;
use crate::error;
use crate::options::{GpuMode, VectileOptions};
use crate::source::VectileSource;

/// A column that was loaded or unloaded, or could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedColumn {
    /// The table, with its catalog and schema.
    pub table: String,
    /// The column.
    pub column: String,
    /// Row groups on the GPU.
    pub row_groups: usize,
    /// Bytes on the GPU.
    pub bytes: u64,
    /// Why it cannot be on the GPU, if it cannot.
    pub not_on_gpu: Option<String>,
}

impl From<&Pin> for PinnedColumn {
    fn from(pin: &Pin) -> Self {
        Self {
            table: pin.table.to_string(),
            column: pin.column.clone(),
            row_groups: pin.chunks.len(),
            bytes: pin.bytes(),
            not_on_gpu: None,
        }
    }
}

/// Columns of a table that are to be loaded.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    gpu: Gpu,
    table: ResolvedTableReference,
    config: FileScanConfig,
    source: VectileSource,
    columns: Vec<usize>,
}

impl Load {
    /// Lists the files of a table; of all its columns if none is named.
    pub(crate) async fn plan(
        state: &SessionState,
        gpu: Gpu,
        name: &str,
        columns: &[String],
    ) -> Result<Self> {
        let (table, provider) = table_of(state, name).await?;
        if provider.table_type() == TableType::View {
            return plan_err!("{name} is a view: name the table that it reads");
        }
        let scan = provider.scan(state, None, &[], None).await?;
        let scan = scan.downcast_ref::<DataSourceExec>();
        let scan = scan.and_then(|scan| scan.downcast_to_file_source::<VectileSource>());
        let Some((config, source)) = scan else {
            return plan_err!("{name} is not a table of Vectile files, or has no files");
        };
        let schema = source.table_schema().table_schema();
        let mut indices: Vec<usize> = Vec::new();
        for column in columns {
            let index = schema.index_of(column)?;
            if !indices.contains(&index) {
                indices.push(index);
            }
        }
        if columns.is_empty() {
            indices.extend(0..schema.fields().len());
        }
        Ok(Self {
            gpu,
            table,
            columns: indices,
            config: config.clone(),
            source: source.clone(),
        })
    }

    /// Loads the columns, and when all are there pins those that can be on the device.
    pub(crate) async fn run(&self, context: &TaskContext) -> Result<Vec<PinnedColumn>> {
        let device = self.device(context).await?;
        let mut parts = Vec::new();
        for &column in &self.columns {
            parts.push(supported(self.parts(&device, column, context).await)?);
        }
        let needed: u64 = parts.iter().flatten().flatten().map(Part::bytes).sum();
        if needed > device.engine.memory_limit() {
            return Err(self.no_room(&device, needed));
        }
        let found = self.find(&device, parts).await?;
        let mut loaded = Vec::new();
        for (&column, found) in self.columns.iter().zip(found) {
            loaded.push(match found {
                Ok(found) => match load(found, context).await {
                    Err(error) if is_crowded(&error) => return Err(self.no_room(&device, needed)),
                    chunks => supported(chunks)?.map(|chunks| self.pin(column, chunks)),
                },
                Err(reason) => Err(reason),
            });
        }
        let engine = Arc::clone(&device.engine);
        blocking(move || engine.settle())
            .await?
            .map_err(error::gpu)?;
        device.pins.put(loaded.iter().flatten().cloned().collect());
        let columns = self.columns.iter().zip(loaded);
        let rows = columns.map(|(&column, loaded)| match loaded {
            Ok(pin) => PinnedColumn::from(&pin),
            Err(reason) => PinnedColumn {
                not_on_gpu: Some(reason),
                ..PinnedColumn::from(&self.pin(column, Vec::new()))
            },
        });
        Ok(rows.collect())
    }

    /// The device, opened if need be.
    async fn device(&self, context: &TaskContext) -> Result<Device> {
        let options = VectileOptions::of(context.session_config().options());
        if options.gpu == GpuMode::Off {
            return exec_err!("vectile.gpu = off: SET vectile.gpu = 'auto' to load columns");
        }
        let gpu = self.gpu.clone();
        let device = blocking(move || gpu.device()).await?.map_err(no_device)?;
        device.limit(&options);
        Ok(device)
    }

    /// The row groups of a column, if it can be on the device.
    async fn parts(
        &self,
        device: &Device,
        column: usize,
        context: &TaskContext,
    ) -> Result<Vec<Part>> {
        let table = self.source.table_schema();
        let field = table.table_schema().field(column);
        let (name, data_type) = (field.name().clone(), field.data_type().clone());
        let reason = if column >= table.file_schema().fields().len() {
            Reason::PartitionColumn(name)
        } else if !is_text(&data_type) && Type::of(&data_type).is_none() {
            Reason::Type {
                column: name,
                data_type,
            }
        } else {
            let input = Input {
                engine: Arc::clone(&device.engine),
                config: self.config.clone(),
                source: self.source.clone(),
                columns: vec![column],
            };
            return input.open(context, &ExecutionPlanMetricsSet::new()).await;
        };
        Err(error::gpu(Error::Unsupported(reason.to_string())))
    }

    /// What there is of the columns. Releases what is pinned of earlier versions of their files.
    async fn find(
        &self,
        device: &Device,
        parts: Vec<Supported<Vec<Part>>>,
    ) -> Result<Vec<Supported<Vec<Found>>>> {
        let Device { engine, pins, .. } = device.clone();
        let columns = self.columns.iter();
        let columns: Vec<Pin> = columns.map(|&column| self.pin(column, vec![])).collect();
        blocking(move || {
            let parts = parts.into_iter();
            let found = parts.map(|parts| parts.map(|parts| find(&engine, parts)));
            let found: Vec<Supported<Vec<Found>>> = found.collect();
            let current = found.iter().flatten().flatten().filter_map(Found::group);
            let current = current.flat_map(|group| group.columns);
            let current: HashSet<usize> = current.map(|chunk| address(&chunk)).collect();
            pins.release(&engine, |pin, chunk| {
                !current.contains(&address(chunk)) && columns.iter().any(|of| of.is_of(pin))
            });
            found
        })
        .await
    }

    fn pin(&self, column: usize, chunks: Vec<Arc<Resident>>) -> Pin {
        let schema = self.source.table_schema().table_schema();
        Pin {
            table: self.table.clone(),
            column: schema.field(column).name().clone(),
            chunks,
        }
    }

    fn no_room(&self, device: &Device, needed: u64) -> DataFusionError {
        let (table, limit) = (&self.table, device.engine.memory_limit());
        let pinned: u64 = device.pins.bytes().values().sum();
        DataFusionError::ResourcesExhausted(format!(
            "columns of {table} do not fit the GPU's memory: they are {needed} bytes in files and somewhat more \
             there, where {limit} may be kept and {pinned} are pinned. See vectile.gpu.memory_limit and \
             vectile_unload()"
        ))
    }
}

/// What is pinned of a table's columns, or of all columns or tables if none is named. With `unload` it is dropped.
pub(crate) async fn pinned(
    gpu: Gpu,
    table: Option<&str>,
    columns: Vec<String>,
    config: &ConfigOptions,
    unload: bool,
) -> Result<Vec<PinnedColumn>> {
    if !gpu.is_open() {
        return Ok(Vec::new());
    }
    let tables = table.map(|table| tables_named(table, config));
    let is_named = move |pin: &Pin| {
        let tables = tables.as_ref();
        tables.is_none_or(|tables| tables.contains(&pin.table))
            && (columns.is_empty() || columns.contains(&pin.column))
    };
    blocking(move || {
        let Device { pins, engine, .. } = gpu.device().map_err(no_device)?;
        let mut pins = match unload {
            true => pins.release(&engine, |pin, _| is_named(pin)),
            false => pins.all(),
        };
        pins.retain(is_named);
        Ok(pins.iter().map(PinnedColumn::from).collect())
    })
    .await?
}

/// What a name may stand for: a table by just that name, such as a path, or as SQL reads it.
fn tables_named(name: &str, config: &ConfigOptions) -> [ResolvedTableReference; 2] {
    let catalog = &config.catalog;
    [TableReference::bare(name), TableReference::from(name)]
        .map(|table| table.resolve(&catalog.default_catalog, &catalog.default_schema))
}

async fn table_of(
    state: &SessionState,
    name: &str,
) -> Result<(ResolvedTableReference, Arc<dyn TableProvider>)> {
    for table in tables_named(name, state.config_options()) {
        if let Ok(schema) = state.schema_for_ref(table.clone())
            && let Some(provider) = schema.table(&table.table).await?
        {
            return Ok((table, provider));
        }
    }
    plan_err!("table '{name}' not found")
}

/// The chunks of a column. Those that are missing are loaded.
async fn load(found: Vec<Found>, context: &TaskContext) -> Result<Vec<Arc<Resident>>> {
    let consumer = MemoryConsumer::new("VectileGpu");
    let reservation = consumer.register(context.memory_pool());
    let metrics = GpuMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
    let loads = futures::stream::iter(found).map(|found| {
        let (metrics, reservation) = (metrics.clone(), reservation.new_empty());
        async move {
            let mut group = match found.group() {
                Some(group) => group,
                None => found.load(metrics, reservation).await?.group,
            };
            let chunk = group.columns.pop();
            chunk.ok_or_else(|| error::missing_column(0))
        }
    });
    let at_a_time = context.session_config().target_partitions();
    loads.buffered(at_a_time).try_collect().await
}

/// A column's, or why the column cannot be on the device.
type Supported<T> = Result<T, String>;

fn supported<T>(result: Result<T>) -> Result<Supported<T>> {
    if let Err(DataFusionError::External(error)) = &result
        && let Some(Error::Unsupported(reason)) = error.downcast_ref()
    {
        return Ok(Err(reason.clone()));
    }
    result.map(Ok)
}

fn no_device(reason: Arc<str>) -> DataFusionError {
    exec_datafusion_err!("columns cannot be on the GPU: {reason}")
}

/// Work beside the tasks of the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let task = SpawnedTask::spawn_blocking(work);
    task.join().await.map_err(interrupted)
}
