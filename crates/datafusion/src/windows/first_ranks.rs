//! The node that drops rows which no rank keeps.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, EvaluationType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::future;
use futures::stream::StreamExt;

use super::first_rows::{FirstRows, Need};

type Plan = Arc<dyn ExecutionPlan>;

/// Drops rows of each partition of its input that have enough rows of their window partition before them.
///
/// It may keep more rows than the first ones: it puts out a row before it has seen all, and what it keeps track of is
/// limited. DataFusion's `PartitionedTopKExec` takes the place of a sort, and this one shortens its input.
#[derive(Debug)]
pub(crate) struct FirstRanksExec {
    input: Plan,
    need: Need,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FirstRanksExec {
    pub(super) fn new(input: Plan, need: Need) -> Self {
        let properties = PlanProperties::clone(input.properties());
        Self {
            input,
            need,
            properties: Arc::new(properties.with_evaluation_type(EvaluationType::Lazy)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for FirstRanksExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Need {
            first,
            partition_by,
            order_by,
        } = &self.need;
        let partition_by = partition_by.iter().map(ToString::to_string);
        let partition_by = partition_by.collect::<Vec<_>>().join(", ");
        let order_by = order_by.iter().map(ToString::to_string);
        let order_by = order_by.collect::<Vec<_>>().join(", ");
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(
                f,
                "FirstRanksExec: first={first} by [{order_by}] of each [{partition_by}]"
            ),
            DisplayFormatType::TreeRender => {
                writeln!(f, "first={first}")?;
                writeln!(f, "by={order_by}")?;
                writeln!(f, "of each={partition_by}")
            }
        }
    }
}

impl ExecutionPlan for FirstRanksExec {
    fn name(&self) -> &str {
        "FirstRanksExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let order_by = self.need.order_by.iter().map(|key| &key.expr);
        let mut keys = self.need.partition_by.iter().chain(order_by);
        keys.try_fold(TreeNodeRecursion::Continue, |next, key| match next {
            TreeNodeRecursion::Stop => Ok(next),
            _ => f(key),
        })
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.need.clone()))),
            _ => internal_err!("FirstRanksExec has one child"),
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
        let memory = MemoryConsumer::new("VectileTopK").register(context.memory_pool());
        let input = self.input.execute(partition, context)?;
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut rows = FirstRows::new(self.need.clone(), &schema, memory)?;
        let kept = input.filter_map(move |batch| {
            let _timer = metrics.elapsed_compute().timer();
            let kept = batch.and_then(|batch| rows.add(batch)).transpose();
            future::ready(kept.map(|kept| kept.record_output(&metrics)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, kept)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::new(Statistics::clone(input).to_inexact())),
            _ => internal_err!("FirstRanksExec has one child"),
        }
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}
