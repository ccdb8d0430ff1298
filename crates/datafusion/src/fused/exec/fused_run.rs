//! One run of a fused node.
//!
//! ```text
//!  open files ─▶ worth it? ─▶ build sides ─▶ row groups in memory, others ─▶ kernel, a batch at a time
//!       │            │             │                 │                          │            │
//!       │            │             │                 │                          │     rows or groups
//!       └────────────┴─────────────┴── an error, or too little ─▶ the plan for the CPU
//!                                                                (or, required, the error)
//! ```

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{TryFutureExt, try_join};
use futures::stream::{StreamExt, TryStreamExt};
use vectile_gpu::{Batch, Engine, Execution, Statistics};

use super::auto::Auto;
use super::batch_stream::{BatchStream, ExecEnvironment, LoadLimits};
use super::column_loader::missing_bytes;
use super::fused_plan::FusedPlan;
use super::input::{TableRowGroup, decline};
use super::metrics::GpuMetrics;
use super::operation::{CollectedRows, Collector, Operation};
use super::star_pipeline::JoinOrder;
use crate::error;
use crate::fused::background::{CORES_SHARE, Kind};
use crate::fused::cost_model::{Costs, Kernels, Missing, MissingKernel, Work};
use crate::fused::device::{Device, Gpu};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::table::Tables;
use crate::options::{GpuKernels, GpuMode, VectileOptions};

/// A run of a fused node.
pub(super) struct FusedRun<O> {
    pub(super) plan: Arc<FusedPlan<O>>,
    pub(super) metrics: ExecutionPlanMetricsSet,
    pub(super) context: Arc<TaskContext>,
}

/// How the device may run a query.
struct Decision {
    /// True if the interpreter may run it.
    may_interpret: bool,
    /// The reason for the CPU if a kernel would have to be compiled.
    if_not_compiled: Option<FallbackReason>,
}

/// Result of a run on the device.
struct Answer {
    rows: CollectedRows,
    /// Kernels that had to be compiled.
    kernels_compiled: usize,
}

impl<O: Operation> FusedRun<O> {
    /// A run that reports to `metrics`.
    pub(super) fn new(
        plan: Arc<FusedPlan<O>>,
        metrics: &ExecutionPlanMetricsSet,
        context: Arc<TaskContext>,
    ) -> Self {
        Self {
            plan,
            metrics: metrics.clone(),
            context,
        }
    }

    /// Returns a stream of the rows, or of the CPU plan if the GPU does not run the query.
    pub(super) async fn rows(self) -> Result<SendableRecordBatchStream> {
        let metrics = GpuMetrics::new(&self.metrics, 0);
        let mut begun = Instant::now();
        let query = self.plan.auto.as_ref().map(|_| self.plan.identity());
        let query = query.unwrap_or_default();
        let mut work = None;
        let may_decline = self.plan.options.gpu != GpuMode::Require;
        if let Some(reason) = self.plan.refused.get().filter(|_| may_decline) {
            metrics.add_fallback(reason);
            return self.on_cpu(FallbackReason::Refused, query, work);
        }
        let answer = async {
            let mut attempts = error::Attempts::default();
            let mut plan = Arc::clone(&self.plan);
            let answer = loop {
                begun = Instant::now();
                let run = Self::new(Arc::clone(&plan), &self.metrics, Arc::clone(&self.context));
                let answer = run.answer(&query, &mut work, &metrics).await;
                if !attempts.is_next_useful(&answer) {
                    break answer;
                }
                plan = Arc::new(plan.fresh()?);
            };
            let mut answer = match answer? {
                Ok(answer) => answer,
                Err(reason) => return Ok(Err(reason)),
            };
            let operation = &self.plan.operation;
            answer.rows = operation.completed(answer.rows, &self.context).await?;
            Ok(Ok(answer))
        };
        let reason = match answer.await {
            Ok(Ok(answer)) => {
                let was_in_place = answer.kernels_compiled == 0 && metrics.bytes_sent.value() == 0;
                let kernels = match metrics.interpreted.value() {
                    0 => Kernels::Generated,
                    _ => Kernels::Interpreted,
                };
                if let Some(auto) = &self.plan.auto {
                    auto.readiness.add_ready(&query);
                }
                let rows = self.stream(answer.rows)?;
                return Ok(match self.plan.auto.clone().filter(|_| was_in_place) {
                    Some(auto) => at_end(rows, move || {
                        auto.costs.add_gpu(&query, kernels, begun.elapsed());
                    }),
                    None => rows,
                });
            }
            Err(error) if self.plan.options.gpu == GpuMode::Require => {
                return Err(error::required(error));
            }
            Ok(Err(reason)) => reason,
            Err(error) => {
                let error = self.plan.gpu.left_to_cpu(error)?;
                if let Some(auto) = &self.plan.auto {
                    record_refused(&self.plan.gpu, &auto.costs, &query, &error);
                }
                let is_unsupported = error::is_unsupported(&error);
                let reason = FallbackReason::from(error);
                if is_unsupported {
                    self.plan.refused.get_or_init(|| reason.clone());
                }
                reason
            }
        };
        metrics.add_fallback(&reason);
        self.on_cpu(reason, query, work)
    }

    /// The node's rows, as a stream that holds their memory reservation.
    pub(super) fn stream(&self, rows: CollectedRows) -> Result<SendableRecordBatchStream> {
        let CollectedRows {
            batches,
            content,
            memory,
        } = rows;
        let batches = in_batches(batches, self.context.session_config().batch_size());
        let operation = &self.plan.operation;
        let rows = operation.stream(batches, &content, Arc::clone(&self.context))?;
        let baseline = BaselineMetrics::new(&self.metrics, 0);
        let rows = rows.inspect_ok(move |batch| {
            let _covered = &memory;
            baseline.record_output(batch.num_rows());
        });
        let rows = RecordBatchStreamAdapter::new(operation.schema(), rows);
        Ok(Box::pin(rows))
    }

    /// Runs the CPU plan and records its time for `query`, and for `work` if that is known.
    pub(super) fn on_cpu(
        self,
        reason: FallbackReason,
        query: String,
        work: Option<Work>,
    ) -> Result<SendableRecordBatchStream> {
        let mut config = Arc::clone(self.context.session_config().options());
        if reason.is_for_cpu() && self.plan.options.gpu == GpuMode::Auto {
            // if this does not pay, neither do filters on the GPU
            let options = &mut Arc::make_mut(&mut config).extensions;
            if let Some(options) = options.get_mut::<VectileOptions>() {
                options.gpu = GpuMode::Off;
            }
        }
        let rows = self.plan.cpu.optimized(&config, reason.is_for_cpu())?;
        let begun = Instant::now();
        let rows = rows.execute(0, Arc::clone(&self.context))?;
        let Some(auto) = self.plan.auto.clone() else {
            return Ok(rows);
        };
        let cores = config.execution.target_partitions;
        Ok(at_end(rows, move || {
            let took = begun.elapsed();
            if let Some(work) = work {
                auto.costs.add_work(work, cores, took);
            }
            auto.costs.add_cpu(&query, took);
            auto.add_not_ready(&query, &reason);
            // only now: until here the query needs all cores
            if self.plan.may_be_prepared(&reason, cores) {
                prepare_in_background(&self.plan, self.context);
            }
        }))
    }

    /// Computes the rows of all row groups, or says why not. Sets `work` once the amount of work is known.
    async fn answer(
        &self,
        query: &str,
        work: &mut Option<Work>,
        metrics: &GpuMetrics,
    ) -> Result<Result<Answer, FallbackReason>> {
        let plan = &self.plan;
        let device = &plan.gpu.device(&plan.options).await?;
        let engine = &device.engine;
        let opened = plan.input.open(engine, &self.context, &self.metrics);
        let row_groups = opened.await?;
        if row_groups.is_empty() {
            return Ok(Ok(self.of_no_rows()?));
        }
        if plan.options.gpu != GpuMode::Require
            && let Some(reason) = decline(&row_groups, engine.memory_limit())
        {
            return Ok(Err(reason));
        }
        let mut limits = LoadLimits {
            loads: self.cores(),
            may_compile: true,
            may_interpret: true,
        };
        let mut if_not_compiled = None;
        if let Some(auto) = &plan.auto {
            let work = *work.insert(work_for(auto, &row_groups));
            match self.decided(auto, query, work, device, &row_groups).await? {
                Ok(decision) => {
                    limits.may_interpret = decision.may_interpret;
                    limits.may_compile = decision.if_not_compiled.is_none();
                    if_not_compiled = decision.if_not_compiled;
                }
                Err(reason) => return Ok(Err(reason)),
            }
        }
        let environment = ExecEnvironment {
            device,
            metrics,
            context: &self.context,
            limits,
        };
        let answer = self.computed(&environment, &row_groups).await;
        match if_not_compiled {
            Some(reason) if answer.as_ref().is_err_and(error::is_not_compiled) => Ok(Err(reason)),
            // values of functions are loaded like columns, however often the query is asked
            Some(reason) if answer.as_ref().is_err_and(error::is_not_ready) => {
                Ok(Err(match reason {
                    FallbackReason::NotCompiled(estimate) => FallbackReason::NotLoaded(estimate),
                    reason => reason,
                }))
            }
            _ => answer.map(Ok),
        }
    }

    pub(super) fn cores(&self) -> usize {
        self.context.session_config().target_partitions()
    }

    /// Decides by the estimates of `auto` if the device runs `query`. Returns the reason if it does not.
    async fn decided(
        &self,
        auto: &Auto,
        query: &str,
        work: Work,
        device: &Device,
        row_groups: &[TableRowGroup],
    ) -> Result<Result<Decision, FallbackReason>> {
        let cores = self.cores();
        let cpu_is_faster = |missing| auto.cpu_is_faster(Some(query), work, missing, cores);
        let mut missing = Missing::default();
        if let Some(reason) = cpu_is_faster(missing) {
            return Ok(Err(reason));
        }
        let star = &self.plan.star;
        missing.builds = star.builds(Some(&device.key_tables))?;
        missing.bytes = missing_bytes(&device.engine, row_groups).await?;
        if !missing.builds.is_empty() && cpu_is_faster(missing).is_none() {
            missing.bytes += star.missing_build_bytes(device, &self.context).await?;
        }
        // doing the same work here at the same time would slow down both
        let is_being_prepared = auto.is_being_prepared(query);
        let not_ready = || is_being_prepared.then_some(FallbackReason::BeingPrepared);
        if !missing.is_loaded()
            && let Some(reason) = cpu_is_faster(missing).or_else(not_ready)
        {
            return Ok(Err(reason));
        }
        let has_interpreter = has_interpreter(&device.engine).await?;
        auto.costs.note_interpreter(has_interpreter);
        let has_interpreter =
            has_interpreter && self.plan.options.gpu_kernels != Some(GpuKernels::Generated);
        let without = |kernel| cpu_is_faster(Missing { kernel, ..missing });
        let decision = Decision {
            may_interpret: has_interpreter && without(MissingKernel::Interpreted).is_none(),
            if_not_compiled: without(MissingKernel::Compiled).or_else(not_ready),
        };
        // a kernel that is not worth compiling is not there: columns and tables would be of no use
        let may_have_kernel = !has_interpreter || auto.is_worth_compiling(query, cores);
        Ok(match decision {
            Decision {
                may_interpret: false,
                if_not_compiled: Some(reason),
            } if !may_have_kernel => Err(reason),
            decision => Ok(decision),
        })
    }

    fn of_no_rows(&self) -> Result<Answer> {
        Ok(Answer {
            rows: self.plan.operation.of_no_rows()?,
            kernels_compiled: 0,
        })
    }

    /// Computes the rows of `row_groups`.
    async fn computed(
        &self,
        environment: &ExecEnvironment<'_>,
        row_groups: &[TableRowGroup],
    ) -> Result<Answer> {
        let star = &self.plan.star;
        let batch_stream = || {
            let costs = self.plan.auto.as_ref().map(|auto| Arc::clone(&auto.costs));
            BatchStream::new(row_groups.to_vec(), environment, costs)
        };
        // row groups are loaded while build sides are read
        let mut first = batch_stream();
        let tables = star.tables(environment);
        let ((tables, stages), ()) = try_join(tables, first.begin()).await?;
        environment.metrics.add_stages(stages);
        if star.is_empty(&tables) {
            return self.of_no_rows();
        }
        let (mut operation, mut first) = (self.plan.operation.clone(), Some(first));
        loop {
            let batch_stream = first.take().unwrap_or_else(batch_stream);
            let answer = self.attempt(&mut operation, environment, batch_stream, &tables);
            let answer = answer.await;
            let has_kernel = !answer.as_ref().is_err_and(error::is_unsupported);
            if !operation.change_for_retry(has_kernel)? {
                return answer;
            }
        }
    }

    /// Computes the rows of all row groups once. `operation` may require another attempt.
    async fn attempt(
        &self,
        operation: &mut O,
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
        let plan = &self.plan;
        let mut pipeline = plan.star.pipeline(tables, JoinOrder::MostSelective)?;
        operation.replace_outputs(&plan.operation, &mut pipeline.output);
        let rows = batch_stream.rows();
        let mut run = KernelRun {
            execution: engine.start(Arc::new(pipeline)),
            metrics: GpuMetrics::clone(metrics),
            collector: operation.clone().collector(tables, rows, context),
        };
        run.collector.begin(&mut run.execution, plan.options.gpu);
        run.execution.expect_rows(rows);
        limits.limit(&mut run.execution);
        // a running task is not cancelled by dropping this future
        let _cancel = run.execution.cancel_on_drop();
        if operation.needs_single_batch() && batch_stream.fit_device() {
            let mut next = batch_stream.next().await?;
            match next.take_if(|batch| batch.num_rows() as u64 == rows) {
                Some(all) => run = run.with(all).await?,
                None => {
                    while let Some(batch) = next {
                        run = run.compiled(batch).await?;
                        next = batch_stream.next().await?;
                    }
                    batch_stream = batch_stream.restarted();
                }
            }
        }
        while let Some(batch) = batch_stream.next().await? {
            run = run.with(batch).await?;
        }
        let (changed, rows, statistics) = run.finished().await?;
        *operation = changed;
        metrics.add(&statistics);
        let kernels_compiled = statistics.kernels_compiled;
        if let Some(auto) = &plan.auto {
            auto.costs.add_compile(kernels_compiled, statistics.compile);
        }
        Ok(Answer {
            rows,
            kernels_compiled,
        })
    }

    /// Computes the rows and drops them. Afterwards columns, tables and kernels are on the device.
    async fn prepare(self, may_interpret: bool) -> Result<()> {
        let plan = &self.plan;
        let metrics = GpuMetrics::new(&self.metrics, 0);
        let device = plan.gpu.device(&plan.options).await?;
        let opened = plan
            .input
            .open(&device.engine, &self.context, &self.metrics);
        let row_groups = opened.await?;
        let limits = LoadLimits {
            loads: (self.cores() / CORES_SHARE).max(1),
            may_compile: true,
            may_interpret,
        };
        let environment = ExecEnvironment {
            device: &device,
            metrics: &metrics,
            context: &self.context,
            limits,
        };
        self.computed(&environment, &row_groups).await?;
        // the next run has all row groups in one batch, for which the kernel may differ; build sides run once
        let plan = Arc::new(self.plan.fresh()?);
        let again = Self::new(plan, &self.metrics, Arc::clone(&self.context));
        again.computed(&environment, &row_groups).await.map(drop)
    }
}

/// Prepares the device for the next run of a query, if the session has a background worker. Columns that no earlier query
/// has read are not loaded: most are never read again. Kernels are compiled if that pays.
pub(super) fn prepare_in_background<O: Operation>(
    plan: &Arc<FusedPlan<O>>,
    context: Arc<TaskContext>,
) {
    if let Some(auto) = &plan.auto
        && let Some(background) = &auto.background
        // the parts of a query share its context
        && auto.costs.add_read(&context, &plan.column_ids())
    {
        let (costs, gpu, query) = (Arc::clone(&auto.costs), plan.gpu.clone(), plan.identity());
        let (readiness, ready) = (Arc::clone(&auto.readiness), query.clone());
        let cores = context.session_config().target_partitions();
        let may_interpret = !auto.is_worth_compiling(&query, cores);
        let (plan, name) = (Arc::clone(plan), query.clone());
        let work = async move {
            let metrics = ExecutionPlanMetricsSet::new();
            let plan = Arc::new(plan.fresh()?);
            FusedRun::new(plan, &metrics, context)
                .prepare(may_interpret)
                .await
        };
        let work = work.inspect_ok(move |()| readiness.add_ready(&ready));
        let work = work.inspect_err(move |error| record_refused(&gpu, &costs, &query, error));
        background.start(Kind::Query, name, auto.session.clone(), work);
    }
}

/// A running execution of a kernel, and what it has returned so far. Work is done on threads that may block.
struct KernelRun<C> {
    execution: Execution,
    metrics: GpuMetrics,
    collector: C,
}

impl<C: Collector> KernelRun<C> {
    /// Compiles a kernel for `batch`.
    async fn compiled(self, batch: Batch) -> Result<Self> {
        self.on_thread(move |run| run.collector.compile(&mut run.execution, &batch))
            .await
    }

    /// Adds the rows of `batch`.
    async fn with(self, batch: Batch) -> Result<Self> {
        self.on_thread(move |run| {
            if batch.is_empty() {
                return Ok(());
            }
            run.metrics.rows.add(batch.num_rows());
            run.collector.add(&mut run.execution, &batch)
        })
        .await
    }

    async fn on_thread(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let task = SpawnedTask::spawn_blocking(move || work(&mut self).map(|()| self));
        task.join().await.map_err(error::interrupted).flatten()
    }

    /// Returns the operation as it was left, the rows, and the statistics of the execution.
    async fn finished(self) -> Result<(C::Operation, CollectedRows, Statistics)>
    where
        C::Operation: Send + 'static,
    {
        let task = SpawnedTask::spawn_blocking(move || {
            let (operation, rows) = self.collector.finish(&self.execution)?;
            Ok((operation, rows, self.execution.statistics()))
        });
        task.join().await.map_err(error::interrupted).flatten()
    }
}

/// The work for `row_groups`.
fn work_for(auto: &Auto, row_groups: &[TableRowGroup]) -> Work {
    let rows = row_groups
        .iter()
        .map(|row_group| row_group.rows() as u64)
        .sum();
    let planned = auto.planned;
    // row groups that were ruled out had no matching rows
    let fewer = planned.rows as f64 / f64::max(rows as f64, 1.0);
    Work {
        rows,
        bytes: row_groups.iter().map(TableRowGroup::bytes).sum(),
        strings: row_groups.iter().map(TableRowGroup::strings).sum(),
        passing: (planned.passing * fewer).min(1.0),
        ..planned
    }
}

/// True if the device runs queries without kernels of their own, by the interpreter.
async fn has_interpreter(engine: &Arc<Engine>) -> Result<bool> {
    let engine = Arc::clone(engine);
    // loads it
    let task = SpawnedTask::spawn_blocking(move || engine.has_interpreter());
    task.join().await.map_err(error::interrupted)
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
    let has_no_kernel = error::is_unsupported(error) || error::is_without_compiler(error);
    if has_no_kernel || gpu.is_noted(error) {
        costs.add_refused(query);
    }
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
