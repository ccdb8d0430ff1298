//! Plan node of a fused aggregate over a scan and its joins, or of the rows of a fused star join.
//!
//! ```text
//!  open files ─▶ worth it? ─▶ dimensions ─▶ row groups in memory, others ─▶ kernel, a batch at a time
//!       │            │            │                 │                          │            │
//!       │            │            │                 │                          │     states ─▶ results
//!       └────────────┴────────────┴── an error, or too little ─▶ the plan for the CPU
//!                                                               (or, required, the error)
//! ```

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream, StatisticsArgs, StatisticsContext,
};
use futures::future::{TryFutureExt, try_join};
use futures::stream::{StreamExt, TryStreamExt};
use vectile_gpu::{Batch, Engine, Error, Execution, Rows};
use vectile_pipeline::{Expr, GroupKey, Groups, Total};

use super::auto::Auto;
use super::batch_stream::{BatchStream, ExecEnvironment, LoadLimits};
use super::column_loader::{Input, RowGroupChunks, TableRowGroup, decline, look_up};
use super::cpu_fallback::CpuPlan;
use super::metrics::GpuMetrics;
use super::star_pipeline::StarTemplate;
use crate::error;
use crate::fresh::fresh;
use crate::fused::background::{CORES_SHARE, Kind};
use crate::fused::cost_model::{Costs, Missing, Work};
use crate::fused::device::{Device, Gpu};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::function::{self, Function, Named};
use crate::fused::lowering::group_key::Keys;
use crate::fused::lowering::group_pruning::{GroupPruning, ResultPruning};
use crate::fused::lowering::nested_aggregate::NestedAggregationPlan;
use crate::fused::lowering::output_rows::RowColumns;
use crate::fused::pattern::aggregates::Aggregates;
use crate::fused::pattern::files::{num_rows, num_values};
use crate::fused::table::Tables;
use crate::options::{GpuMode, VectileOptions};
use crate::stack;

/// Computes an aggregate over a scan and its joins, or the rows of such a join, on the GPU.
#[derive(Clone, Debug)]
pub(crate) struct FusedAggregateExec {
    gpu: Gpu,
    input: Input,
    star: StarTemplate,
    /// `None` unless `vectile.gpu = auto`.
    auto: Option<Auto>,
    /// One for each aggregate function; empty for a join.
    functions: Vec<Named>,
    keys: Keys,
    /// True if each group comes exactly once when all rows are in one batch.
    has_distinct_groups: bool,
    /// Nested aggregation of the kernel's groups. If set, `functions` and `keys` describe the outer aggregate.
    nested: Option<NestedAggregationPlan>,
    /// Group pruning, if the parents need only some groups.
    pruning: Option<ResultPruning>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    options: VectileOptions,
    replaced: Replaced,
    cpu: CpuPlan,
    /// Computed lazily.
    statistics: Arc<OnceLock<Arc<Statistics>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    has_run: Arc<AtomicBool>,
}

/// The plan that a node replaces.
#[derive(Clone, Debug)]
pub(crate) enum Replaced {
    Aggregates(Aggregates),
    Join(Arc<dyn ExecutionPlan>, RowColumns),
}

impl Replaced {
    fn plan(&self) -> &dyn ExecutionPlan {
        match self {
            Self::Aggregates(aggregates) => aggregates.last.as_ref(),
            Self::Join(plan, _) => plan.as_ref(),
        }
    }
}

/// The parts of a [`FusedAggregateExec`] that run on the device.
pub(crate) struct FusedParts {
    pub(crate) gpu: Gpu,
    pub(crate) input: Input,
    pub(crate) star: StarTemplate,
    pub(crate) auto: Option<Auto>,
    pub(crate) functions: Vec<Function>,
    pub(crate) keys: Keys,
    /// True if each group comes exactly once when all rows are in one batch.
    pub(crate) has_distinct_groups: bool,
    pub(crate) again: Option<NestedAggregationPlan>,
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
}

/// Up to this many groups, one core turns states into results.
const FEW_GROUPS: usize = 1 << 16;

/// With `auto`, the CPU takes queries with more groups, or possible groups: all its cores read results faster than one.
const MOST_VALUES: u64 = 1 << 22;

/// With `on`, the CPU takes over above this many groups: so many results take memory of the host.
const MOST_GROUPS: u64 = 1 << 24;

/// State of a running kernel execution.
struct Run {
    execution: Execution,
    metrics: GpuMetrics,
    /// Rows in all batches together.
    rows: u64,
    /// Output so far, for groups or rows of a join; the execution holds other totals.
    output: Option<OutputRows>,
}

/// Output rows of the node.
struct OutputRows {
    node: FusedAggregateExec,
    tables: Tables,
    batches: Vec<RecordBatch>,
    /// True if batches are results; false if they are states to be merged.
    are_results: bool,
    /// Groups not yet added to `batches`. If no others follow, they are all groups: final results, which can be pruned.
    pending: Vec<Groups>,
    /// Memory reservations for `pending`.
    pending_memory: Vec<MemoryReservation>,
    /// Memory reservation for `batches`.
    memory: MemoryReservation,
}

impl Run {
    /// Compiles a kernel for `batch` on a thread that may block.
    async fn compiled(mut self, batch: Batch, is_nested: bool) -> Result<Self> {
        let task = SpawnedTask::spawn_blocking(move || {
            let compiled = self.execution.compile_groups(&batch, is_nested);
            compiled.map_err(error::gpu)?;
            Ok(self)
        });
        task.join().await.map_err(error::interrupted).flatten()
    }

    /// Adds the rows of `batch` on a thread that may block.
    async fn with(mut self, batch: Batch) -> Result<Self> {
        let task = SpawnedTask::spawn_blocking(move || {
            self.aggregate(&batch)?;
            Ok(self)
        });
        task.join().await.map_err(error::interrupted).flatten()
    }

    fn aggregate(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.metrics.rows.add(batch.num_rows());
        let Some(output) = &mut self.output else {
            return self.execution.aggregate(batch).map_err(error::gpu);
        };
        if let Replaced::Join(_, columns) = &output.node.replaced {
            let columns = columns.clone();
            let rows = self.execution.rows_of_batch(batch).map_err(error::gpu)?;
            return output.add_rows(&rows, &columns);
        }
        // reserves memory for tables and groups until they are batches
        let room = output.memory.new_empty();
        let reserve = |bytes| {
            let refused = |error: DataFusionError| Error::Refused {
                wanted: bytes,
                reason: error.strip_backtrace(),
            };
            room.try_resize(bytes).map_err(refused)
        };
        let node = &output.node;
        let is_all = batch.num_rows() as u64 == self.rows;
        let post_aggregation = match (&node.nested, &node.pruning) {
            (Some(nested), _) if is_all => Some(nested.post_aggregation()?),
            (Some(_), _) => {
                let reason = "groups of several launches, which are grouped again";
                return Err(error::gpu(Error::Unsupported(reason.into())));
            }
            (None, Some(pruning)) if is_all => Some(pruning.on_device(&node.functions)?),
            (None, _) => None,
        };
        let groups = match post_aggregation {
            Some(computation) => self.execution.group_wanted(batch, &computation, reserve),
            None => self.execution.group(batch, reserve),
        };
        let groups = groups.map_err(error::gpu)?;
        let may_be_all =
            output.batches.is_empty() && output.pending.is_empty() && groups.len() == 1;
        if node.has_distinct_groups && may_be_all {
            output.pending.extend(groups);
            output.pending_memory.push(room);
            return Ok(());
        }
        output.add_pending()?;
        groups
            .iter()
            .try_for_each(|groups| output.add_groups(groups))
    }
}

impl OutputRows {
    fn add_rows(&mut self, rows: &[Rows], columns: &RowColumns) -> Result<()> {
        for batch in columns.batches(rows, &self.tables, &self.node.schema())? {
            // count slices: several arrays may share a buffer that the device returned
            let bytes: usize = batch.columns().iter().map(bytes_of).sum();
            self.memory.try_grow(bytes)?;
            self.batches.push(batch);
        }
        Ok(())
    }

    /// Adds the groups that might have been all groups.
    fn add_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        pending
            .iter()
            .try_for_each(|groups| self.add_groups(groups))?;
        self.pending_memory.clear();
        Ok(())
    }

    /// Adds the pending groups: only the required ones if there are no others. Called after the last batch.
    fn end(&mut self) -> Result<()> {
        if let Some(pruning) = self.node.pruning.take()
            && let [groups] = &self.pending[..]
        {
            // ignore the error: the operator above evaluates it again
            if let Ok(selected) = pruning.of(groups, &mut self.node.functions) {
                self.pending = vec![groups.filtered(&selected).map_err(error::gpu)?];
            }
        }
        self.are_results = self.node.has_distinct_groups && self.pending.len() == 1;
        self.add_pending()
    }

    fn add_groups(&mut self, groups: &Groups) -> Result<()> {
        if groups.count == 0 {
            return Ok(());
        }
        let FusedAggregateExec {
            keys,
            functions,
            replaced: Replaced::Aggregates(aggregates),
            ..
        } = &mut self.node
        else {
            return internal_err!("groups of a join");
        };
        let schema = aggregates.partial.schema();
        let mut batch = function::batch_of(groups, keys, &self.tables, functions, &schema)?;
        if self.are_results {
            let schema = aggregates.last.schema();
            batch = function::results_of(&batch, keys.len(), functions, &schema)?;
        }
        self.memory.try_grow(batch.get_array_memory_size())?;
        self.batches.push(batch);
        Ok(())
    }
}

/// Result of a kernel execution.
struct Answer {
    batches: Vec<RecordBatch>,
    /// True if the node emits `batches` as they are. If false, they are states of groups; a group may occur more than
    /// once, as each launch of a kernel has its own.
    are_results: bool,
    /// Memory reservation for `batches`.
    memory: Option<MemoryReservation>,
    /// Kernels that had to be compiled.
    kernels_compiled: usize,
}

impl FusedAggregateExec {
    /// A node that runs `fused` instead of the plan in `cpu`.
    pub(crate) fn new(
        fused: FusedParts,
        replaced: Replaced,
        cpu: CpuPlan,
        options: VectileOptions,
    ) -> Self {
        // Do not copy the replaced plan's properties: they may be wrong, as it is planned before constants of outer
        // joins are hidden.
        let properties = PlanProperties::new(
            EquivalenceProperties::new(replaced.plan().schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let named = match &replaced {
            Replaced::Aggregates(aggregates) => aggregates.partial.aggr_expr(),
            Replaced::Join(..) => &[],
        };
        let functions = fused.functions.into_iter().zip(named.iter().cloned());
        Self {
            gpu: fused.gpu,
            input: fused.input,
            star: fused.star,
            auto: fused.auto,
            functions: functions.collect(),
            keys: fused.keys,
            has_distinct_groups: fused.has_distinct_groups,
            nested: fused.again,
            pruning: None,
            filter: fused.filter,
            options,
            replaced,
            cpu,
            statistics: Arc::default(),
            // Blocking work runs on other threads; then the batches are ready.
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
            has_run: Arc::default(),
        }
    }

    /// A copy that prunes groups by `pruning`. Returns `None` if all groups are needed for that.
    pub(crate) fn pruned(&self, pruning: &GroupPruning) -> Result<Option<Self>, FallbackReason> {
        let mut groups = self.pruning.clone().unwrap_or_default();
        let keys = self.keys.len();
        let narrows = self.has_distinct_groups && keys > 0;
        if !narrows || !groups.add(pruning, keys, &self.functions)? {
            return Ok(None);
        }
        Ok(Some(Self {
            pruning: Some(groups),
            ..self.clone()
        }))
    }

    /// Returns an error if a query without filters or joins groups by a key with so many values that the CPU should do
    /// it. This is checked again when chunks are loaded.
    pub(crate) fn check_groups(&self) -> Result<(), FallbackReason> {
        let is_unfiltered = self.star.dimensions.is_empty() && self.filter.is_none();
        let is_plain = is_unfiltered && self.nested.is_none();
        if self.options.gpu != GpuMode::Auto || !is_plain {
            return Ok(());
        }
        let rows = num_rows(&self.input.config).unwrap_or_default() as u128;
        for key in self.keys.of_kernel() {
            let GroupKey::Value(Expr::Column(column)) = key else {
                continue;
            };
            let column = self.input.columns.get(*column);
            let values = column.and_then(|&column| num_values(&self.input.config, column));
            // Values further apart are hashed: then only values that occur count.
            let many = values.filter(|&values| values > MOST_VALUES.into() && values <= 2 * rows);
            if let Some(values) = many {
                let most = MOST_VALUES;
                return Err(FallbackReason::ManyGroups { values, most });
            }
        }
        Ok(())
    }

    /// Computes the rows of all row groups, or says why not. Sets `work` once the amount of work is known.
    async fn answer(
        &self,
        query: &str,
        work: &mut Option<Work>,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<Result<Answer, FallbackReason>> {
        let device = &self.gpu.device(&self.options).await?;
        let engine = &device.engine;
        let parts = self.input.open(engine, context, &self.metrics).await?;
        if parts.is_empty() {
            return self.empty_result().map(Ok);
        }
        if self.options.gpu != GpuMode::Require
            && let Some(reason) = decline(&parts, engine.memory_limit())
        {
            return Ok(Err(reason));
        }
        let cores = context.session_config().target_partitions();
        let mut limits = LoadLimits {
            loads: cores,
            may_compile: true,
        };
        let mut if_not_compiled = None;
        if let Some(auto) = &self.auto {
            let work = *work.insert(self.work(auto, &parts));
            let cpu_is_faster = |missing| auto.cpu_is_faster(Some(query), work, missing, cores);
            let mut missing = Missing::default();
            if let Some(reason) = cpu_is_faster(missing) {
                return Ok(Err(reason));
            }
            missing.bytes = self.missing_bytes(engine, &parts).await?;
            missing.rows = self.star.rows_to_read(Some(&device.key_tables))?;
            // doing the same work here at the same time would slow down both
            let is_being_prepared = auto.is_being_prepared(query);
            let not_ready = || is_being_prepared.then_some(FallbackReason::BeingPrepared);
            if (missing.bytes > 0 || missing.rows > 0)
                && let Some(reason) = cpu_is_faster(missing).or_else(not_ready)
            {
                return Ok(Err(reason));
            }
            missing.kernel = true;
            if_not_compiled = cpu_is_faster(missing).or_else(not_ready);
            limits.may_compile = if_not_compiled.is_none();
        }
        let environment = ExecEnvironment {
            device,
            metrics,
            context,
            limits,
        };
        let answer = self.computed(&environment, &parts).await;
        match if_not_compiled {
            Some(reason) if answer.as_ref().is_err_and(error::is_not_compiled) => Ok(Err(reason)),
            _ => answer.map(Ok),
        }
    }

    /// Computes the rows of `parts`.
    async fn computed(
        &self,
        environment: &ExecEnvironment<'_>,
        parts: &[TableRowGroup],
    ) -> Result<Answer> {
        let batch_stream = || {
            let costs = self.auto.as_ref().map(|auto| Arc::clone(&auto.costs));
            BatchStream::new(parts.to_vec(), environment, costs)
        };
        // row groups are loaded while dimensions are read
        let mut first = batch_stream();
        let tables = self.star.tables(environment);
        let ((tables, stages), ()) = try_join(tables, first.begin()).await?;
        environment.metrics.add_stages(stages);
        if self.star.is_empty(&tables) {
            return self.empty_result();
        }
        let (mut node, mut first) = (self.clone(), Some(first));
        loop {
            let batch_stream = first.take().unwrap_or_else(batch_stream);
            let answer = node.attempt(self, environment, batch_stream, &tables);
            let answer = answer.await;
            let has_kernel = !answer.as_ref().is_err_and(error::is_unsupported);
            if !function::recompute(&mut node.functions, has_kernel)? {
                return answer;
            }
        }
    }

    /// The work for `parts`.
    fn work(&self, auto: &Auto, parts: &[TableRowGroup]) -> Work {
        let rows = parts.iter().map(|part| part.rows() as u64).sum();
        let planned = auto.planned;
        // row groups that were ruled out had no matching rows
        let fewer = planned.rows as f64 / f64::max(rows as f64, 1.0);
        Work {
            rows,
            bytes: parts.iter().map(TableRowGroup::bytes).sum(),
            strings: parts.iter().map(TableRowGroup::strings).sum(),
            passing: (planned.passing * fewer).min(1.0),
            ..planned
        }
    }

    /// Bytes of columns of `parts` that are not on the device. Starts copying those in host memory.
    async fn missing_bytes(&self, engine: &Arc<Engine>, parts: &[TableRowGroup]) -> Result<u64> {
        let (engine, parts) = (Arc::clone(engine), parts.to_vec());
        let task = SpawnedTask::spawn_blocking(move || look_up(&engine, parts));
        let lookup = task.join().await.map_err(error::interrupted).flatten()?;
        Ok(lookup
            .missing
            .iter()
            .map(RowGroupChunks::missing_bytes)
            .sum())
    }

    /// Returns why the CPU should run the query, if that is known at planning. Always `None` without `auto`.
    pub(crate) fn is_for_cpu(&self, cores: usize) -> Option<FallbackReason> {
        let (auto, query) = (self.auto.as_ref()?, self.identity());
        if self.gpu.opened().is_some() {
            return auto.cpu_was_faster(&query);
        }
        let rows = self.star.rows_to_read(None).unwrap_or_default();
        let reason = auto.cpu_is_faster_than_opening(Some(&query), rows, cores);
        if reason.is_none() {
            auto.costs.add_opened(&query);
        }
        reason
    }

    /// Records the time of a CPU plan that includes this aggregate.
    pub(crate) fn record_cpu(&self, took: Duration) {
        if let Some(auto) = &self.auto {
            auto.costs.add_cpu_within(&self.identity(), took);
        }
    }

    /// Identifies the query: the operation and its files.
    fn identity(&self) -> String {
        let files = self.input.config.file_groups.iter();
        let files = files.flat_map(|group| group.iter());
        let mut hasher = DefaultHasher::new();
        files.for_each(|file| file.object_meta.location.hash(&mut hasher));
        // exclude state that changes between runs: the estimate, and if the device is open
        let mut node = self.clone();
        node.auto = None;
        node.gpu = Gpu::none("");
        node.filter = node.filter.map(without_subqueries);
        let without = |expr| Ok::<_, DataFusionError>(without_subqueries(expr));
        if let Ok(star) = (node.star.clone()).with_exprs(&|expr| without(Arc::clone(expr))) {
            node.star = star;
        }
        let pruning = node.pruning.take();
        node.pruning = pruning.and_then(|pruning| pruning.with_filters(without).ok());
        let nested = node.nested.take();
        node.nested = nested.and_then(|nested| nested.with_exprs(without).ok());
        let node = DisplayableExecutionPlan::new(&node).one_line().to_string();
        format!("{node} {:x}", hasher.finish())
    }

    /// Prepares the device for the next run of this query, if the session has a background worker.
    pub(crate) fn prepare_in_background(&self, context: Arc<TaskContext>) {
        if let Some(auto) = &self.auto
            && let Some(background) = &auto.background
        {
            let (costs, query) = (Arc::clone(&auto.costs), self.identity());
            let (work, gpu) = (self.clone().prepare(context), self.gpu.clone());
            let name = query.clone();
            let work = work.inspect_err(move |error| record_refused(&gpu, &costs, &query, error));
            background.start(Kind::Query, name, auto.session.clone(), work);
        }
    }

    /// Computes the rows and drops them. Afterwards columns, tables and kernels are on the device.
    async fn prepare(self, context: Arc<TaskContext>) -> Result<()> {
        let node: Arc<dyn ExecutionPlan> = Arc::new(self);
        let node = fresh(&node)?;
        let Some(node) = node.downcast_ref::<Self>() else {
            return internal_err!("a copy of FusedAggregateExec is another node");
        };
        let metrics = GpuMetrics::new(&node.metrics, 0);
        let device = node.gpu.device(&node.options).await?;
        let parts = node.input.open(&device.engine, &context, &node.metrics);
        let parts = parts.await?;
        let cores = context.session_config().target_partitions();
        let limits = LoadLimits {
            loads: (cores / CORES_SHARE).max(1),
            may_compile: true,
        };
        let environment = ExecEnvironment {
            device: &device,
            metrics: &metrics,
            context: &context,
            limits,
        };
        node.computed(&environment, &parts).await?;
        // the next run has all row groups in one batch, for which the kernel may differ
        node.computed(&environment, &parts).await.map(drop)
    }

    /// Computes the rows of all row groups once. Functions may require another attempt.
    async fn attempt(
        &mut self,
        planned: &Self,
        environment: &ExecEnvironment<'_>,
        mut batch_stream: BatchStream,
        tables: &Tables,
    ) -> Result<Answer> {
        let ExecEnvironment {
            device: Device { engine, .. },
            metrics,
            context,
            limits,
        } = *environment;
        let mut pipeline = self.star.pipeline(tables)?;
        if self.nested.is_none() {
            function::replace(&planned.functions, &self.functions, &mut pipeline.output);
        }
        let consumer = MemoryConsumer::new("VectileGpuGroups");
        let output = self.puts_out_rows().then(|| OutputRows {
            node: self.clone(),
            tables: tables.clone(),
            batches: Vec::new(),
            are_results: false,
            pending: Vec::new(),
            pending_memory: Vec::new(),
            memory: consumer.register(context.memory_pool()),
        });
        let mut run = Run {
            execution: engine.start(Arc::new(pipeline)),
            metrics: GpuMetrics::clone(metrics),
            rows: batch_stream.rows(),
            output,
        };
        match self.options.gpu {
            GpuMode::Require => {}
            GpuMode::Auto => run.execution.limit_groups(MOST_VALUES),
            GpuMode::On | GpuMode::Off => run.execution.limit_groups(MOST_GROUPS),
        }
        run.execution.expect_rows(batch_stream.rows());
        if !limits.may_compile {
            run.execution.without_compiler();
        }
        // a running task is not cancelled by dropping this future
        let _cancel = run.execution.cancel_on_drop();
        let needs_all_groups = self.pruning.is_some() || self.nested.is_some();
        if needs_all_groups && batch_stream.fit_device() {
            // pruning and nested aggregation need all rows in one batch
            let mut next = batch_stream.next().await?;
            match next.take_if(|batch| batch.num_rows() as u64 == run.rows) {
                Some(all) => run = run.with(all).await?,
                None => {
                    while let Some(batch) = next {
                        run = run.compiled(batch, self.nested.is_some()).await?;
                        next = batch_stream.next().await?;
                    }
                    batch_stream = batch_stream.restarted();
                }
            }
        }
        while let Some(batch) = batch_stream.next().await? {
            run = run.with(batch).await?;
        }
        if let Some(mut output) = run.output.take() {
            let task = SpawnedTask::spawn_blocking(move || {
                output.end()?;
                Ok(output)
            });
            run.output = Some(task.join().await.map_err(error::interrupted).flatten()?);
        }
        let statistics = run.execution.statistics();
        metrics.add(&statistics);
        let kernels_compiled = statistics.kernels_compiled;
        if let Some(auto) = &self.auto {
            auto.costs.add_compile(kernels_compiled, statistics.compile);
        }
        let answer = match run.output {
            Some(output) => {
                self.functions = output.node.functions;
                Answer {
                    are_results: output.are_results || self.is_join(),
                    batches: output.batches,
                    memory: Some(output.memory),
                    kernels_compiled,
                }
            }
            None => self.total(&run.execution.totals())?,
        };
        Ok(Answer {
            kernels_compiled,
            ..answer
        })
    }

    /// True if the output is rows or groups, of which there may be none.
    fn puts_out_rows(&self) -> bool {
        self.is_join() || self.nested.is_some() || !self.keys.of_kernel().is_empty()
    }

    fn is_join(&self) -> bool {
        matches!(self.replaced, Replaced::Join(..))
    }

    /// The result for empty input.
    fn empty_result(&self) -> Result<Answer> {
        if self.puts_out_rows() {
            return Ok(Answer {
                batches: Vec::new(),
                are_results: self.is_join(),
                memory: None,
                kernels_compiled: 0,
            });
        }
        let total = Total {
            count: 0,
            value: None,
        };
        let width = self.functions.iter().map(|(function, _)| function.width());
        self.clone().total(&vec![total; width.sum()])
    }

    /// The output row of an aggregate without keys.
    fn total(&mut self, mut totals: &[Total]) -> Result<Answer> {
        let mut columns = Vec::new();
        for (function, aggregate) in &mut self.functions {
            let Some(own) = totals.split_off(..function.width()) else {
                return internal_err!("too few totals for {}", aggregate.name());
            };
            let mut accumulator = aggregate.create_accumulator()?;
            accumulator.merge_batch(&function.state(own, aggregate)?)?;
            columns.push(accumulator.evaluate()?.to_array()?);
        }
        Ok(Answer {
            batches: vec![RecordBatch::try_new(self.schema(), columns)?],
            are_results: true,
            memory: None,
            kernels_compiled: 0,
        })
    }

    /// Merges states of groups into results.
    fn results(
        &self,
        states: Vec<RecordBatch>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows: usize = states.iter().map(RecordBatch::num_rows).sum();
        let partitions = context.session_config().target_partitions();
        let Replaced::Aggregates(Aggregates { partial, last }) = &self.replaced else {
            return internal_err!("states of a join");
        };
        let states = MemorySourceConfig::try_new_exec(&[states], partial.schema(), None)?;
        if rows <= FEW_GROUPS || partitions < 2 || self.keys.is_empty() {
            return of_mode(last, AggregateMode::Final, states)?.execute(0, context);
        }
        let by = Partitioning::Hash(partial.output_group_expr(), partitions);
        let states = Arc::new(RepartitionExec::try_new(states, by)?);
        let results = of_mode(last, AggregateMode::FinalPartitioned, states)?;
        CoalescePartitionsExec::new(Arc::new(results)).execute(0, context)
    }

    /// Returns a stream of the rows, or of the CPU plan if the GPU does not run the query.
    async fn run(self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = GpuMetrics::new(&self.metrics, 0);
        let required = self.options.gpu == GpuMode::Require;
        let begun = Instant::now();
        let query = self.auto.as_ref().map(|_| self.identity());
        let query = query.unwrap_or_default();
        let mut work = None;
        let answer = self.answer(&query, &mut work, &metrics, &context);
        let reason = match answer.await {
            Ok(Ok(answer)) => {
                let was_in_place = answer.kernels_compiled == 0 && metrics.bytes_sent.value() == 0;
                let Answer {
                    batches,
                    are_results,
                    memory,
                    ..
                } = answer;
                let batches = in_batches(batches, context.session_config().batch_size());
                // an aggregate without keys has a row for empty input, too
                let has_a_row = !self.is_join() && self.keys.is_empty();
                let is_all = match batches.is_empty() {
                    true => !has_a_row,
                    false => are_results,
                };
                let rows = match is_all {
                    true => Box::pin(MemoryStream::try_new(batches, self.schema(), None)?),
                    false => self.results(batches, context)?,
                };
                let baseline = BaselineMetrics::new(&self.metrics, 0);
                let rows = rows.inspect_ok(move |batch| {
                    let _covered = &memory;
                    baseline.record_output(batch.num_rows());
                });
                let rows = RecordBatchStreamAdapter::new(self.schema(), rows);
                return Ok(match self.auto.clone().filter(|_| was_in_place) {
                    Some(auto) => {
                        let note = move || auto.costs.add_gpu(&query, begun.elapsed());
                        at_end(Box::pin(rows), note)
                    }
                    None => Box::pin(rows),
                });
            }
            Err(error) if required => return Err(error::required(error)),
            Ok(Err(reason)) => reason,
            Err(error) => {
                let error = self.gpu.left_to_cpu(error)?;
                if let Some(auto) = &self.auto {
                    record_refused(&self.gpu, &auto.costs, &query, &error);
                }
                error.into()
            }
        };
        metrics.add_fallback(&reason);
        let mut config = Arc::clone(context.session_config().options());
        if reason.is_of_cost() {
            // if this does not pay, neither do filters on the GPU
            let options = &mut Arc::make_mut(&mut config).extensions;
            if let Some(options) = options.get_mut::<VectileOptions>() {
                options.gpu = GpuMode::Off;
            }
        }
        let rows = self.cpu.optimized(&config)?;
        let begun = Instant::now();
        let rows = rows.execute(0, Arc::clone(&context))?;
        let Some(auto) = self.auto.clone() else {
            return Ok(rows);
        };
        let cores = config.execution.target_partitions;
        Ok(at_end(rows, move || {
            let took = begun.elapsed();
            if let Some(work) = work {
                auto.costs.add_work(work, cores, took);
            }
            auto.costs.add_cpu(&query, took);
            // only now: until here the query needs all cores
            if reason.can_be_prepared() {
                self.prepare_in_background(context);
            }
        }))
    }

    /// Column names of the rows, for `EXPLAIN`.
    fn row_names(&self) -> String {
        let schema = self.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    /// The grouping expressions, for `EXPLAIN`.
    fn group_by(&self) -> String {
        let Replaced::Aggregates(aggregates) = &self.replaced else {
            return String::new();
        };
        let keys = aggregates.partial.group_expr().expr().iter();
        let keys = keys.map(|(key, name)| match key.to_string() {
            key if &key == name => key,
            key => format!("{key} as {name}"),
        });
        keys.collect::<Vec<_>>().join(", ")
    }
}

impl DisplayAs for FusedAggregateExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = stack::levels(&self.filter);
        stack::with_room(levels, || self.fmt_parts(t, f))
    }
}

impl FusedAggregateExec {
    fn fmt_parts(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.functions.iter().map(|(_, aggregate)| aggregate.name());
        let names = names.collect::<Vec<_>>().join(", ");
        let device = &self.gpu;
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "{}: ", self.name())?;
                if !self.keys.is_empty() {
                    write!(f, "gby=[{}], ", self.group_by())?;
                }
                if self.is_join() {
                    write!(
                        f,
                        "rows=[{}], joins=[{}]",
                        self.row_names(),
                        self.star.joins()
                    )?;
                } else {
                    write!(f, "aggr=[{names}]")?;
                    if !self.star.dimensions.is_empty() {
                        write!(f, ", joins=[{}]", self.star.joins())?;
                    }
                }
                if let Some(filter) = &self.filter {
                    write!(f, ", filter={filter}")?;
                }
                if let Some(nested) = &self.nested {
                    write!(f, "{nested}")?;
                }
                if let Some(pruning) = &self.pruning {
                    write!(f, "{pruning}")?;
                }
                write!(f, ", columns=[{}], device={device}", self.input)?;
                match &self.auto {
                    Some(auto) => write!(f, ", expected=[{}]", auto.estimate),
                    None => Ok(()),
                }
            }
            DisplayFormatType::TreeRender => {
                match self.is_join() {
                    true => writeln!(f, "rows={}", self.row_names())?,
                    false => writeln!(f, "aggr={names}")?,
                }
                writeln!(f, "device={device}")
            }
        }
    }
}

impl ExecutionPlan for FusedAggregateExec {
    fn name(&self) -> &str {
        match self.replaced {
            Replaced::Aggregates(_) => "FusedAggregateExec",
            Replaced::Join(..) => "GpuJoinExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        let dimensions = self.star.dimensions.iter();
        dimensions.map(|dimension| &dimension.plan).collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // Scans are divided without this where possible.
        vec![false; self.star.dimensions.len()]
    }

    /// Statistics of the replaced plan.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if let Some(known) = self.statistics.get() {
            return Ok(Arc::clone(known));
        }
        let plan = self.replaced.plan();
        let statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?;
        Ok(Arc::clone(self.statistics.get_or_init(|| statistics)))
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.star.dimensions.len() {
            return internal_err!(
                "FusedAggregateExec has {} children",
                self.star.dimensions.len()
            );
        }
        let mut replaced = Self::clone(&self);
        for (dimension, plan) in replaced.star.dimensions.iter_mut().zip(children) {
            dimension.plan = plan;
        }
        replaced.metrics = ExecutionPlanMetricsSet::new();
        replaced.has_run = Arc::default();
        Ok(Arc::new(replaced))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("FusedAggregateExec has no partition {partition}");
        }
        let mut node = self.clone();
        if self.has_run.swap(true, Ordering::Relaxed) {
            // Operators of dimensions can run only once.
            for dimension in &mut node.star.dimensions {
                dimension.plan = fresh(&dimension.plan)?;
            }
        }
        let run = node.run(context);
        let stream = futures::stream::once(run).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Returns the CPU plan of a fused aggregate or join; `None` for other nodes.
pub(crate) fn on_cpu(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let node = plan.downcast_ref::<FusedAggregateExec>()?;
    Some(&node.cpu.plan)
}

/// A copy of `plan` with `children`, its CPU plan replaced by `copied` and its expressions with subqueries by `expr`.
/// Returns `None` if `plan` is no fused node, or if `copied` returns `None`.
pub(crate) fn with_subqueries(
    plan: &Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
    copied: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>>,
    expr: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(node) = plan.downcast_ref::<FusedAggregateExec>() else {
        return Ok(None);
    };
    let Some(cpu) = copied(&node.cpu.plan)? else {
        return Ok(None);
    };
    let mut copy = node.clone();
    copy.cpu.plan = cpu;
    copy.star = copy.star.with_exprs(&expr)?;
    let own = |own: Arc<dyn PhysicalExpr>| expr(&own);
    copy.filter = copy.filter.map(own).transpose()?;
    copy.pruning = copy
        .pruning
        .map(|pruning| pruning.with_filters(own))
        .transpose()?;
    copy.nested = copy
        .nested
        .map(|nested| nested.with_exprs(own))
        .transpose()?;
    copy.input.source = copy.input.source.with_predicate(&expr)?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::new(copy).replace_children(children, options).map(Some)
}

/// Returns `rows` and calls `then` when the stream ends.
pub(super) fn at_end(
    rows: SendableRecordBatchStream,
    then: impl FnOnce() + Send + 'static,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let mut then = Some(then);
    let end = futures::stream::poll_fn(move |_| {
        if let Some(then) = then.take() {
            then();
        }
        Poll::Ready(None)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(end)))
}

/// Records that the GPU cannot run a query, if `error` says so.
fn record_refused(gpu: &Gpu, costs: &Costs, query: &str, error: &DataFusionError) {
    if error::is_unsupported(error) || gpu.is_noted(error) {
        costs.add_refused(query);
    }
}

/// Replaces subqueries in `expr` by a placeholder, as their display changes once they have run.
fn without_subqueries(expr: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    let without = Arc::clone(&expr).transform_up(|expr| {
        Ok(match expr.is::<ScalarSubqueryExpr>() {
            true => Transformed::yes(Arc::new(Column::new("subquery", 0)) as _),
            false => Transformed::no(expr),
        })
    });
    without.data().unwrap_or(expr)
}

/// Slices `batches` to at most `most` rows each.
fn in_batches(batches: Vec<RecordBatch>, most: usize) -> Vec<RecordBatch> {
    let most = most.max(1);
    let slices = batches.into_iter().flat_map(|batch| {
        let starts = (0..batch.num_rows()).step_by(most);
        let slice = move |start| batch.slice(start, most.min(batch.num_rows() - start));
        starts.map(slice).collect::<Vec<_>>()
    });
    slices.collect()
}

/// Bytes of an array's rows. Shared buffers count by slice.
fn bytes_of(array: &ArrayRef) -> usize {
    let data = array.to_data();
    data.get_slice_memory_size()
        .unwrap_or_else(|_| data.get_array_memory_size())
}

/// The aggregate in another mode, over `input`.
fn of_mode(
    aggregate: &AggregateExec,
    mode: AggregateMode,
    input: Arc<dyn ExecutionPlan>,
) -> Result<AggregateExec> {
    AggregateExec::try_new(
        mode,
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        input,
        aggregate.input_schema(),
    )
}
