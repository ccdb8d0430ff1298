//! The node that evaluates window functions over sorted rows.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    InputDistributionRequirements, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::rows::{Functions, Rows};

type Plan = Arc<dyn ExecutionPlan>;

/// Evaluates window functions over sorted rows, a batch at a time.
#[derive(Debug)]
pub(crate) struct SortedWindowExec {
    /// The operator that would do the same.
    window: Plan,
    exprs: Vec<Arc<dyn WindowExpr>>,
    input: Plan,
    functions: Functions,
    metrics: ExecutionPlanMetricsSet,
}

impl SortedWindowExec {
    /// The node that does what `plan` does; `None` if it is another operator, or has other functions.
    pub(super) fn instead_of(plan: &Plan) -> Result<Option<Self>> {
        let (exprs, input) = if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
            let is_sorted = matches!(window.input_order_mode, InputOrderMode::Sorted);
            if !is_sorted || window.state_observer().is_some() {
                return Ok(None);
            }
            (window.window_expr(), window.input())
        } else if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
            (window.window_expr(), window.input())
        } else {
            return Ok(None);
        };
        let functions = Functions::of(exprs, &input.schema())?;
        Ok(functions.map(|functions| Self {
            window: Arc::clone(plan),
            exprs: exprs.to_vec(),
            input: Arc::clone(input),
            functions,
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// The windows.
    pub(super) fn window_expr(&self) -> &[Arc<dyn WindowExpr>] {
        &self.exprs
    }

    /// The sorted rows.
    pub(super) fn input(&self) -> &Plan {
        &self.input
    }
}

impl DisplayAs for SortedWindowExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.exprs.iter().map(|window| window.name());
        let names = names.collect::<Vec<_>>().join(", ");
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "SortedWindowExec: wdw=[{names}]")
            }
            DisplayFormatType::TreeRender => writeln!(f, "select_list={names}"),
        }
    }
}

impl ExecutionPlan for SortedWindowExec {
    fn name(&self) -> &str {
        "SortedWindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.window.properties()
    }

    fn children(&self) -> Vec<&Plan> {
        self.window.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.window.apply_expressions(f)
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.window.required_input_ordering()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.window.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.window.maintains_input_order()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        options: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        let window = Arc::clone(&self.window).replace_children(children, options)?;
        match Self::instead_of(&window)? {
            Some(window) => Ok(Arc::new(window)),
            None => internal_err!("another input of a window has other columns"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Plan>) -> Result<Plan> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut rows = Rows::new(self.functions.clone(), self.schema());
        let input = input.map_ok(Some).chain(stream::once(async { Ok(None) }));
        let known = input.map(move |batch| {
            let batch = batch?;
            let _timer = metrics.elapsed_compute().timer();
            let known = rows.add(batch)?;
            let known = known.into_iter().map(|batch| batch.record_output(&metrics));
            let known: Vec<RecordBatch> = known.collect();
            Ok::<_, DataFusionError>(stream::iter(known).map(Ok))
        });
        let known = known.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            known,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.window.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.window.statistics_from_inputs(inputs, arguments)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
