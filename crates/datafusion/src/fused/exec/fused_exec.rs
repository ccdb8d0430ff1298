//! The node of a fused plan, for any operation.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream, StatisticsArgs, StatisticsContext,
};
use futures::stream::{StreamExt, TryStreamExt};

use super::build_side::OtherExpr;
use super::fused_plan::FusedPlan;
use super::fused_run::{FusedRun, prepare_in_background};
use super::operation::Operation;
use crate::fused::fallback_reason::FallbackReason;

/// Runs a scan, its joins and an operation over them in one kernel. Its children are the build sides.
#[derive(Debug)]
pub(crate) struct FusedExec<O> {
    plan: Arc<FusedPlan<O>>,
    properties: Arc<PlanProperties>,
    /// Computed lazily.
    statistics: Arc<OnceLock<Arc<Statistics>>>,
    metrics: ExecutionPlanMetricsSet,
    has_run: AtomicBool,
}

/// A fused node of any operation.
pub(crate) trait FusedNode {
    /// The plan that computes the same rows on the CPU.
    fn cpu(&self) -> &Arc<dyn ExecutionPlan>;

    /// Records the time of a CPU plan that includes this node's part, `share` of it where there are other nodes.
    fn record_cpu(&self, took: Duration, share: Option<f64>);

    /// Why the device was not ready for the node and may still not be.
    fn not_ready(&self) -> Option<FallbackReason>;

    /// The time that is expected on the CPU, in seconds.
    fn expected_on_cpu(&self) -> f64;

    /// Prepares the device for the next run of this node, which the CPU has run for this `reason`, if that helps and the
    /// session has a background worker.
    fn prepare_in_background(&self, reason: &FallbackReason, context: Arc<TaskContext>);

    /// A copy with `children`, the CPU plan `cpu`, and `other` of each expression.
    fn with_exprs(
        &self,
        children: Vec<Arc<dyn ExecutionPlan>>,
        cpu: Arc<dyn ExecutionPlan>,
        other: OtherExpr<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

impl<O: Operation> FusedExec<O> {
    pub(crate) fn new(plan: FusedPlan<O>) -> Self {
        Self::with_statistics(plan, Arc::default())
    }

    fn with_statistics(plan: FusedPlan<O>, statistics: Arc<OnceLock<Arc<Statistics>>>) -> Self {
        Self {
            properties: Arc::new(properties_of(&plan.operation)),
            plan: Arc::new(plan),
            statistics,
            metrics: ExecutionPlanMetricsSet::new(),
            has_run: AtomicBool::new(false),
        }
    }

    /// A copy that has not run, with other build sides.
    fn with_plan(&self, plan: FusedPlan<O>) -> Self {
        Self::with_statistics(plan, Arc::clone(&self.statistics))
    }
}

/// The properties of a node that does `operation`. They follow from what it does, not from the CPU plan: that one is
/// planned before constants of outer joins are hidden, so its constants may be wrong.
fn properties_of<O: Operation>(operation: &O) -> PlanProperties {
    // Row groups come in the order in which they are loaded. Filters show constants, but no operator has needed them.
    let equivalence = EquivalenceProperties::new(operation.schema());
    let one_partition = Partitioning::UnknownPartitioning(1);
    // The CPU may have to take over until the last batch is computed, so all are collected before the first is put out.
    let emission = EmissionType::Final;
    // Files and build sides have an end; others are not fused.
    let bounded = Boundedness::Bounded;
    let properties = PlanProperties::new(equivalence, one_partition, emission, bounded);
    // Blocking work runs on other threads; then the batches are ready.
    properties.with_scheduling_type(SchedulingType::Cooperative)
}

impl<O: Operation> FusedNode for FusedExec<O> {
    fn cpu(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan.cpu.plan
    }

    fn record_cpu(&self, took: Duration, share: Option<f64>) {
        self.plan.record_cpu(took, share);
    }

    fn not_ready(&self) -> Option<FallbackReason> {
        self.plan.not_ready()
    }

    fn expected_on_cpu(&self) -> f64 {
        let auto = self.plan.auto.as_ref();
        auto.map_or(0.0, |auto| auto.expected.cpu.as_secs_f64())
    }

    fn prepare_in_background(&self, reason: &FallbackReason, context: Arc<TaskContext>) {
        let cores = context.session_config().target_partitions();
        if self.plan.may_be_prepared(reason, cores) {
            prepare_in_background(&self.plan, context);
        }
    }

    fn with_exprs(
        &self,
        children: Vec<Arc<dyn ExecutionPlan>>,
        cpu: Arc<dyn ExecutionPlan>,
        other: OtherExpr<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut plan = self.plan.with_children(children)?;
        plan.cpu = plan.cpu.of(cpu);
        Ok(Arc::new(self.with_plan(plan.with_exprs(other)?)))
    }
}

impl<O: Operation> DisplayAs for FusedExec<O> {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "{plan}"),
            DisplayFormatType::TreeRender => {
                writeln!(f, "{}={}", O::OUTPUTS, plan.operation.outputs())?;
                match plan.is_on_cpu {
                    true => writeln!(f, "device=CPU"),
                    false => writeln!(f, "device={}", plan.gpu),
                }
            }
        }
    }
}

impl<O: Operation> ExecutionPlan for FusedExec<O> {
    fn name(&self) -> &str {
        O::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // Scans are divided without this where possible.
        vec![false; self.children().len()]
    }

    /// Estimates by the CPU plan, which has the same rows: only its operators know how many rows a filter or a join
    /// leaves. They are not exact, as the CPU plan may know wrong constants. A number of rows that any input gives is.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if let Some(known) = self.statistics.get() {
            return Ok(Arc::clone(known));
        }
        let context = StatisticsContext::new();
        let of_cpu = context.compute(self.plan.cpu.plan.as_ref(), &StatisticsArgs::new())?;
        let mut statistics = Statistics::clone(&of_cpu).to_inexact();
        if let Some(rows) = self.plan.operation.num_rows() {
            statistics.num_rows = Precision::Exact(rows);
        }
        let statistics = self.statistics.get_or_init(|| Arc::new(statistics));
        Ok(Arc::clone(statistics))
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.plan.with_children(children)?;
        Ok(Arc::new(self.with_plan(plan)))
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
            return internal_err!("{} has no partition {partition}", O::NAME);
        }
        let plan = match self.has_run.swap(true, Ordering::Relaxed) {
            false => Arc::clone(&self.plan),
            true => Arc::new(self.plan.fresh()?),
        };
        let is_on_cpu = plan.is_on_cpu;
        let run = FusedRun::new(plan, &self.metrics, context);
        let stream = match is_on_cpu {
            true => futures::stream::once(run.rows_of_program())
                .try_flatten()
                .boxed(),
            false => futures::stream::once(run.rows()).try_flatten().boxed(),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
