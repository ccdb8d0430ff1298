//! Loads columns before queries need them, and pins them on the device until they are unloaded.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{ResolvedTableReference, Result, TableReference, exec_err, plan_err};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::{StreamExt, TryStreamExt};
use tokio::sync::watch;
use vectile_gpu::{Error, Group};
use vectile_pipeline::Type;

use super::device::{Device, Gpu};
use super::exec::column_loader::{RowGroupChunks, is_crowded, look_up_each};
use super::exec::input::{Input, TableRowGroup};
use super::exec::metrics::GpuMetrics;
use super::fallback_reason::FallbackReason;
use super::pins::{Follower, Pin, address};
use crate::error;
use crate::options::{GpuMode, VectileOptions};
use crate::source::VectileSource;
use crate::table::VectileTable;
use crate::text::is_text;

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
    /// The reason if the column cannot be on the GPU.
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

/// Columns of a table to load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    gpu: Gpu,
    table: ResolvedTableReference,
    config: FileScanConfig,
    source: VectileSource,
    columns: Vec<usize>,
    /// The table in memory, if it is one: its row groups are loaded, and later ones as they come.
    in_memory: Option<Weak<dyn TableProvider>>,
}

impl Load {
    /// Lists the files of a table. Selects all columns if `columns` is empty.
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
        let load = Self {
            gpu,
            table,
            columns: indices,
            config: config.clone(),
            source: source.clone(),
            in_memory: provider
                .is::<VectileTable>()
                .then(|| Arc::downgrade(&provider)),
        };
        Ok(match provider.downcast_ref() {
            Some(table) => load.of_row_groups(table),
            None => load,
        })
    }

    /// The load of the row groups that a table in memory has now. Rows that are not encoded yet are not loaded.
    fn of_row_groups(mut self, table: &VectileTable) -> Self {
        let groups = vec![FileGroup::new(table.sealed_files())];
        // the snapshot that it was planned with would hold its rows
        self.source = self.source.with_snapshot(None);
        self.config = FileScanConfigBuilder::from(self.config)
            .with_source(Arc::new(self.source.clone()))
            .with_file_groups(groups)
            .build();
        self
    }

    /// Loads the columns, then pins those that the device supports.
    pub(crate) async fn run(&self, context: &Arc<TaskContext>) -> Result<Vec<PinnedColumn>> {
        let options = VectileOptions::of(context.session_config().options());
        if options.gpu == GpuMode::Off {
            return exec_err!("vectile.gpu = off: SET vectile.gpu = 'auto' to load columns");
        }
        let device = self.gpu.device(&options).await;
        let device = device.map_err(|error| error.context("columns cannot be on the GPU"))?;
        let (mut columns, mut reasons) = (Vec::new(), Vec::new());
        for &column in &self.columns {
            let reason = self.reason_against(&device, column, context).await?;
            if reason.is_none() {
                columns.push(column);
            }
            reasons.push((column, reason));
        }
        let mut version = self.version();
        if let Some(version) = &mut version {
            // row groups may have come since this was planned
            version.mark_changed();
        }
        let pins = self.load(&device, columns.clone(), context).await?;
        device.pins.put(pins.clone());
        if let Some(version) = version {
            self.follow(&device, columns, version, context);
        }
        let rows = reasons.into_iter().map(|(column, not_on_gpu)| {
            let empty = self.pin(column);
            let pin = pins.iter().find(|pin| pin.is_of(&empty)).unwrap_or(&empty);
            PinnedColumn {
                not_on_gpu,
                ..PinnedColumn::from(pin)
            }
        });
        Ok(rows.collect())
    }

    /// The version of the row groups, if it is a table in memory.
    fn version(&self) -> Option<watch::Receiver<u64>> {
        let table = self.in_memory.as_ref()?.upgrade()?;
        Some(table.downcast_ref::<VectileTable>()?.sealed_version())
    }

    /// Pins later row groups of a table in memory as they come, until the columns are unloaded or the table is gone.
    fn follow(
        &self,
        device: &Device,
        columns: Vec<usize>,
        mut version: watch::Receiver<u64>,
        context: &Arc<TaskContext>,
    ) {
        let name = |column: usize| self.pin(column).column;
        let columns = Arc::new(Mutex::new(columns.into_iter().map(name).collect()));
        // a row group that the table loses is not held
        let load = Self {
            config: FileScanConfigBuilder::from(self.config.clone())
                .with_file_groups(Vec::new())
                .build(),
            ..self.clone()
        };
        let (device, context) = (device.clone(), Arc::clone(context));
        let followed = Arc::clone(&columns);
        let pins = Arc::clone(&device.pins);
        let id = Follower::new_id();
        let task = SpawnedTask::spawn(async move {
            let mut is_behind = false;
            while version.changed().await.is_ok() {
                match load.reload(&device, &followed, &context).await {
                    Ok(()) => is_behind = false,
                    Err(error) if !is_behind => {
                        is_behind = true;
                        log::warn!("new row groups of {} are not pinned: {error}", load.table);
                    }
                    Err(_) => {}
                }
            }
            // unless another table has the name now
            if device.pins.has_follower(id) {
                let Device { engine, pins, .. } = device.clone();
                let table = load.table.clone();
                let released = blocking(move || pins.release(&engine, |pin, _| pin.table == table));
                // it fails if the runtime ends
                let _ = released.await;
                device.pins.end_follower(id);
            }
        });
        pins.follow(Follower {
            id,
            table: self.table.clone(),
            columns,
            _task: task,
        });
    }

    /// Pins the row groups that the table has now, and releases those that it has no more.
    async fn reload(
        &self,
        device: &Device,
        columns: &Mutex<Vec<String>>,
        context: &TaskContext,
    ) -> Result<()> {
        let provider = self.in_memory.as_ref().and_then(Weak::upgrade);
        let Some(table) = provider.as_ref().and_then(|of| of.downcast_ref()) else {
            return Ok(());
        };
        let load = self.clone().of_row_groups(table);
        let schema = self.source.table_schema().table_schema();
        let followed = || columns.lock().unwrap_or_else(PoisonError::into_inner);
        let indices = followed().clone();
        let indices = indices.iter().filter_map(|name| schema.index_of(name).ok());
        let mut pins = load.load(device, indices.collect(), context).await?;
        {
            // those that were unloaded meanwhile stay so
            let followed = followed();
            pins.retain(|pin| followed.contains(&pin.column));
            device.pins.put(pins);
        }
        let engine = Arc::clone(&device.engine);
        blocking(move || engine.drop_ended()).await
    }

    /// Returns the reason if a column cannot be on the device.
    async fn reason_against(
        &self,
        device: &Device,
        column: usize,
        context: &TaskContext,
    ) -> Result<Option<String>> {
        let table = self.source.table_schema();
        let field = table.table_schema().field(column);
        let (name, data_type) = (field.name().clone(), field.data_type().clone());
        if column >= table.file_schema().fields().len() {
            return Ok(Some(FallbackReason::PartitionColumn(name).to_string()));
        }
        if !is_text(&data_type) && Type::of(&data_type).is_none() {
            let reason = FallbackReason::Type {
                column: name,
                data_type,
            };
            return Ok(Some(reason.to_string()));
        }
        match self.row_groups(device, vec![column], context).await {
            Ok(_) => Ok(None),
            Err(DataFusionError::External(error)) => match error.downcast_ref() {
                Some(Error::Unsupported(reason)) => Ok(Some(reason.clone())),
                _ => Err(DataFusionError::External(error)),
            },
            Err(error) => Err(error),
        }
    }

    /// The row groups of the table, with these columns.
    async fn row_groups(
        &self,
        device: &Device,
        columns: Vec<usize>,
        context: &TaskContext,
    ) -> Result<Vec<TableRowGroup>> {
        let input = Input {
            config: self.config.clone(),
            source: self.source.clone(),
            columns,
            coded: Vec::new(),
            keys: Vec::new(),
        };
        let metrics = ExecutionPlanMetricsSet::new();
        input.open(&device.engine, context, &metrics).await
    }

    /// Loads the columns that are missing on the device, and returns pins with their chunks.
    async fn load(
        &self,
        device: &Device,
        columns: Vec<usize>,
        context: &TaskContext,
    ) -> Result<Vec<Pin>> {
        let mut pins: Vec<Pin> = columns.iter().map(|&column| self.pin(column)).collect();
        let row_groups = self.row_groups(device, columns, context).await?;
        let needed: u64 = row_groups.iter().map(TableRowGroup::bytes).sum();
        if needed > device.engine.memory_limit() {
            return Err(self.no_room(device, needed));
        }
        let chunks = look_up_and_unpin(device.clone(), row_groups, pins.clone()).await?;
        let consumer = MemoryConsumer::new("VectileGpu");
        let reservation = consumer.register(context.memory_pool());
        let metrics = GpuMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let loads = futures::stream::iter(chunks).map(|chunks| {
            let (metrics, reservation) = (metrics.clone(), reservation.new_empty());
            async move {
                match chunks.group() {
                    Some(group) => Ok(group),
                    None => Ok(chunks.load(metrics, reservation, true).await?.group),
                }
            }
        });
        let at_a_time = context.session_config().target_partitions();
        let groups: Vec<Group> = match loads.buffered(at_a_time).try_collect().await {
            Err(error) if is_crowded(&error) => return Err(self.no_room(device, needed)),
            groups => groups?,
        };
        for group in groups {
            for (pin, chunk) in pins.iter_mut().zip(group.columns) {
                pin.chunks.push(chunk);
            }
        }
        // concurrent loads may each have had memory for the last chunk
        if device.pins.bytes_with(&pins) > device.engine.memory_limit() {
            return Err(self.no_room(device, needed));
        }
        let engine = Arc::clone(&device.engine);
        let settled = blocking(move || engine.settle()).await?;
        settled.map_err(error::gpu)?;
        Ok(pins)
    }

    /// A pin of a column, without chunks.
    fn pin(&self, column: usize) -> Pin {
        let schema = self.source.table_schema().table_schema();
        Pin {
            table: self.table.clone(),
            column: schema.field(column).name().clone(),
            chunks: Vec::new(),
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

/// The pins of a table's columns. Selects all columns if `columns` is empty, all tables if `table` is `None`. With
/// `unload`, releases them.
pub(crate) async fn pinned(
    gpu: Gpu,
    table: Option<&str>,
    columns: Vec<String>,
    config: &ConfigOptions,
    unload: bool,
) -> Result<Vec<PinnedColumn>> {
    let Some(Ok(device)) = gpu.opened() else {
        return Ok(Vec::new());
    };
    let tables = table.map(|table| tables_named(table, config));
    let is_named = move |table: &ResolvedTableReference, column: &str| {
        let tables = tables.as_ref();
        tables.is_none_or(|tables| tables.contains(table))
            && (columns.is_empty() || columns.iter().any(|known| known == column))
    };
    blocking(move || {
        let Device { pins, engine, .. } = device;
        let mut pins = match unload {
            true => {
                pins.unfollow(|table, column| is_named(table, column));
                pins.release(&engine, |pin, _| is_named(&pin.table, &pin.column))
            }
            false => pins.all(),
        };
        pins.retain(|pin| is_named(&pin.table, &pin.column));
        pins.iter().map(PinnedColumn::from).collect()
    })
    .await
}

/// The tables that a name may refer to: by the literal name, such as a path, or parsed as SQL does.
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

/// Looks up `row_groups` on the device, and releases pins of `columns` for other versions of their files.
async fn look_up_and_unpin(
    device: Device,
    row_groups: Vec<TableRowGroup>,
    columns: Vec<Pin>,
) -> Result<Vec<RowGroupChunks>> {
    let Device { engine, pins, .. } = device;
    blocking(move || {
        let chunks = look_up_each(&engine, row_groups);
        let current = chunks.iter().flat_map(RowGroupChunks::resident);
        let current: HashSet<usize> = current.map(address).collect();
        pins.release(&engine, |pin, chunk| {
            !current.contains(&address(chunk)) && columns.iter().any(|of| of.is_of(pin))
        });
        chunks
    })
    .await
}

/// Runs blocking work outside the tasks of the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let task = SpawnedTask::spawn_blocking(work);
    task.join().await.map_err(error::interrupted)
}
