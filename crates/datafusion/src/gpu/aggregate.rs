//! An aggregate without grouping over a scan, in one kernel.
//!
//! ```text
//!  open files ─▶ worth it? ─▶ row groups in memory, others ─▶ kernel, a batch at a time ─▶ states
//!       │            │                 │                          │
//!       └────────────┴── an error, or too little ─▶ the plan for the CPU (or, required, the error)
//! ```

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType, reset_plan_states,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use futures::stream::{StreamExt, TryStreamExt};
use vectile_gpu::ir::{Aggregate, Expr, Literal, Number, Pipeline, Total, Type};
use vectile_gpu::{Execution, Group};

use super::load::{Input, Loads, decline, interrupted, look_up, windows};
use super::lower::{Lowering, is_never_null};
use super::metrics::GpuMetrics;
use super::reason::Reason;
use super::relation::Relation;
use super::scalar;
use crate::error;
use crate::options::{GpuMode, VectileOptions};

/// An aggregate function that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Rows, or values.
    Count,
    /// The sum, which the average has with its count.
    Average,
    /// Sum, minimum, maximum.
    Value,
}

/// The most digits of values whose sum over any number of rows that fits a disk has 38 at most.
const MAX_AVERAGE_DIGITS: u8 = 26;

/// Lowers an aggregate over `relation`.
pub(crate) fn lower(
    aggregate: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    relation: &Relation,
    lowering: &mut Lowering<'_>,
) -> Result<(Function, Aggregate), Reason> {
    let unsupported = || Reason::Aggregate(aggregate.name().to_owned());
    if aggregate.is_distinct() || !aggregate.order_bys().is_empty() || aggregate.ignore_nulls() {
        return Err(unsupported());
    }
    let arguments = aggregate.expressions();
    let [argument] = arguments.as_slice() else {
        return Err(unsupported());
    };
    let argument = relation.over_table(argument)?;
    let filter = filter
        .map(|filter| relation.over_table(filter))
        .transpose()?;
    let condition = filter.map(|filter| lowering.value(&filter)).transpose()?;
    let only_where = |value: Expr| match condition.clone() {
        Some(condition) => Expr::Case(vec![(condition, value)], None),
        None => value,
    };
    let function = aggregate.fun().inner();
    if function.is::<Count>() {
        let count = match (is_never_null(&argument), &condition) {
            (true, None) => Aggregate::CountRows,
            (true, Some(_)) => Aggregate::Count(only_where(one())),
            (false, _) => Aggregate::Count(only_where(lowering.value(&argument)?)),
        };
        return Ok((Function::Count, count));
    }
    let value = only_where(lowering.value(&argument)?);
    if function.is::<Sum>() {
        Ok((Function::Value, Aggregate::Sum(value)))
    } else if function.is::<Min>() {
        Ok((Function::Value, Aggregate::Min(value)))
    } else if function.is::<Max>() {
        Ok((Function::Value, Aggregate::Max(value)))
    } else if function.is::<Avg>() {
        match lowering.type_of(&argument)? {
            DataType::Decimal128(digits, _) if digits > MAX_AVERAGE_DIGITS => Err(unsupported()),
            _ => Ok((Function::Average, Aggregate::Sum(value))),
        }
    } else {
        Err(unsupported())
    }
}

/// A value that is there.
fn one() -> Expr {
    Expr::Literal(Literal::Int(1, Type::I32))
}

impl Function {
    /// The state that `total` is, as the aggregate's accumulator has it.
    fn state(self, total: Total, aggregate: &AggregateFunctionExpr) -> Result<Vec<ArrayRef>> {
        let fields = aggregate.state_fields()?;
        let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
        let count = Some(Number::Int(total.count.into()));
        match (self, types.as_slice()) {
            (Self::Count, [of]) => Ok(vec![scalar::array(count, of)?]),
            (Self::Value, [of]) => Ok(vec![scalar::array(total.value, of)?]),
            (Self::Average, [of_count, of_sum]) => Ok(vec![
                scalar::array(count, of_count)?,
                scalar::array(total.value, of_sum)?,
            ]),
            _ => internal_err!("{} has another state than expected", aggregate.name()),
        }
    }
}

/// An aggregate without grouping over a scan, on the GPU.
#[derive(Clone, Debug)]
pub(crate) struct GpuAggregateExec {
    input: Input,
    pipeline: Arc<Pipeline>,
    functions: Vec<Function>,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    mode: AggregateMode,
    filter: Option<Arc<dyn PhysicalExpr>>,
    options: VectileOptions,
    /// Does the same on the CPU.
    cpu: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// What is computed on the device.
pub(crate) struct Fused {
    pub(crate) input: Input,
    pub(crate) pipeline: Pipeline,
    pub(crate) functions: Vec<Function>,
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
}

/// The kernel's work under way.
struct Run {
    execution: Execution,
    metrics: GpuMetrics,
}

impl Run {
    /// Has a thread that may block do `work`.
    async fn with<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<T> + Send + 'static,
    ) -> Result<(Self, T)> {
        let task = SpawnedTask::spawn_blocking(move || {
            let done = work(&mut self)?;
            Ok((self, done))
        });
        task.join().await.map_err(interrupted).flatten()
    }

    fn aggregate(&mut self, groups: &[Group]) -> Result<()> {
        let rows = groups.iter().map(|group| group.rows).sum();
        self.metrics.rows.add(rows);
        self.execution.aggregate(groups).map_err(error::gpu)
    }
}

impl GpuAggregateExec {
    /// Puts `fused` in the place of `aggregate`.
    pub(crate) fn new(fused: Fused, aggregate: &AggregateExec, options: VectileOptions) -> Self {
        let schema = aggregate.schema();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let cpu: Arc<dyn ExecutionPlan> = Arc::new(aggregate.clone());
        Self {
            input: fused.input,
            pipeline: Arc::new(fused.pipeline),
            functions: fused.functions,
            aggregates: aggregate.aggr_expr().to_vec(),
            mode: *aggregate.mode(),
            filter: fused.filter,
            options,
            cpu: match cpu.properties().partitioning.partition_count() {
                0 | 1 => cpu,
                _ => Arc::new(CoalescePartitionsExec::new(cpu)),
            },
            // One batch, after which nothing is left to yield to.
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The totals of all row groups; or why they were not computed.
    async fn totals(
        &self,
        metrics: &GpuMetrics,
        context: &TaskContext,
    ) -> Result<Result<Vec<Total>, Reason>> {
        let engine = &self.input.engine;
        let parts = self.input.open(context, &self.metrics).await?;
        if parts.is_empty() {
            let nothing = Total {
                count: 0,
                value: None,
            };
            return Ok(Ok(vec![nothing; self.functions.len()]));
        }
        if self.options.gpu == GpuMode::Auto {
            let memory = engine.memory_limit();
            if let Some(reason) = decline(&parts, self.options.gpu_min_rows, memory) {
                return Ok(Err(reason));
            }
        }
        let mut run = Run {
            execution: engine.start(Arc::clone(&self.pipeline)),
            metrics: metrics.clone(),
        };
        for window in windows(parts, engine.memory_limit()) {
            let engine = Arc::clone(engine);
            let looked_up = run.with(move |run| {
                let looked_up = look_up(&engine, window, &run.metrics);
                run.aggregate(&looked_up.groups)?;
                Ok(looked_up.missing)
            });
            let missing;
            (run, missing) = looked_up.await?;
            let mut loads = Loads::new(missing, metrics, context);
            while let Some(groups) = loads.next().await? {
                (run, ()) = run.with(move |run| run.aggregate(&groups)).await?;
            }
        }
        let execution = run.execution;
        metrics.add(&execution.statistics());
        Ok(Ok(execution.totals()))
    }

    /// The row that this node puts out.
    fn batch(&self, totals: &[Total]) -> Result<RecordBatch> {
        if totals.len() != self.aggregates.len() {
            return internal_err!("{} totals of {:?}", totals.len(), self.functions);
        }
        let mut columns = Vec::new();
        let functions = self.functions.iter().zip(&self.aggregates);
        for ((function, aggregate), total) in functions.zip(totals) {
            let state = function.state(*total, aggregate)?;
            match self.mode {
                AggregateMode::Partial => columns.extend(state),
                _ => {
                    let mut accumulator = aggregate.create_accumulator()?;
                    accumulator.merge_batch(&state)?;
                    columns.push(accumulator.evaluate()?.to_array()?);
                }
            }
        }
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }

    /// The one batch, or the stream of what does the same on the CPU.
    async fn run(self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = GpuMetrics::new(&self.metrics, 0);
        let required = self.options.gpu == GpuMode::Require;
        let reason = match self.totals(&metrics, &context).await {
            Ok(Ok(totals)) => {
                let batch = self.batch(&totals)?;
                let baseline = BaselineMetrics::new(&self.metrics, 0);
                baseline.record_output(batch.num_rows());
                let stream = futures::stream::iter([Ok(batch)]);
                return Ok(Box::pin(RecordBatchStreamAdapter::new(
                    self.schema(),
                    stream,
                )));
            }
            Err(error) if required => return Err(error::required(error)),
            Ok(Err(reason)) => reason,
            Err(error) => error.into(),
        };
        metrics.add_fallback(reason);
        self.cpu.execute(0, context)
    }
}

impl DisplayAs for GpuAggregateExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.aggregates.iter().map(|aggregate| aggregate.name());
        let names = names.collect::<Vec<_>>().join(", ");
        let device = &self.input.engine.device().name;
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "GpuAggregateExec: mode={:?}, aggr=[{names}]", self.mode)?;
                if let Some(filter) = &self.filter {
                    write!(f, ", filter={filter}")?;
                }
                write!(f, ", columns=[{}], device={device}", self.input)
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "aggr={names}")?;
                writeln!(f, "device={device}")
            }
        }
    }
}

impl ExecutionPlan for GpuAggregateExec {
    fn name(&self) -> &str {
        "GpuAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            cpu: reset_plan_states(Arc::clone(&self.cpu))?,
            metrics: ExecutionPlanMetricsSet::new(),
            ..Self::clone(&self)
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("GpuAggregateExec has no partition {partition}");
        }
        let run = self.clone().run(context);
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
