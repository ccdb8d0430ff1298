//! The node that sorts rows by packed keys.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    ExecutionPlanProperties, InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::codes::have_codes;
use super::general;
use super::order::Order;

type Plan = Arc<dyn ExecutionPlan>;

/// Sorts each partition of its input, all rows at once, by integers into which their keys are packed.
///
/// If the keys do not fit, or the rows and their keys take more memory than the pool has, DataFusion's operator sorts
/// them: it can spill to disk.
#[derive(Debug)]
pub(crate) struct PackedSortExec {
    /// The operator that does the same.
    sort: Arc<SortExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl PackedSortExec {
    /// The node that does what `plan` does; `None` if it is another operator, keeps the first rows alone, has no work, or
    /// has keys that are not packed.
    pub(super) fn instead_of(plan: &Plan) -> Result<Option<Self>> {
        let sort = plan.downcast_ref::<SortExec>();
        let Some(sort) = sort.filter(|sort| sort.fetch().is_none()) else {
            return Ok(None);
        };
        let input = sort.input();
        let properties = input.equivalence_properties();
        if properties.ordering_satisfy(sort.expr().clone())? {
            return Ok(None);
        }
        for key in sort.expr() {
            if !have_codes(&key.expr.data_type(&input.schema())?) {
                return Ok(None);
            }
        }
        Ok(Some(Self {
            sort: Arc::new(sort.clone()),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

impl DisplayAs for PackedSortExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.sort.expr();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let each = self.sort.preserve_partitioning();
                write!(
                    f,
                    "PackedSortExec: expr=[{order}], preserve_partitioning=[{each}]"
                )
            }
            DisplayFormatType::TreeRender => writeln!(f, "{order}"),
        }
    }
}

impl ExecutionPlan for PackedSortExec {
    fn name(&self) -> &str {
        "PackedSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn children(&self) -> Vec<&Plan> {
        self.sort.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.sort.apply_expressions(f)
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.sort.input_distribution_requirements()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.sort.benefits_from_input_partitioning()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        options: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        let sort: Plan = Arc::clone(&self.sort).replace_children(children, options)?;
        match sort.downcast_ref::<SortExec>() {
            Some(sort) => Ok(Arc::new(Self {
                sort: Arc::new(sort.clone()),
                metrics: ExecutionPlanMetricsSet::new(),
            })),
            None => internal_err!("a sort of another input is another operator"),
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
        let input = self.sort.input().execute(partition, Arc::clone(&context))?;
        let consumer = MemoryConsumer::new(format!("VectileSort[{partition}]"));
        let sorter = Sorter {
            order: self.sort.expr().clone(),
            memory: consumer
                .with_can_spill(true)
                .register(context.memory_pool()),
            context,
            metrics: BaselineMetrics::new(&self.metrics, partition),
            general: MetricBuilder::new(&self.metrics).counter("general_sorts", partition),
        };
        let rows = stream::once(sorter.sorted(input)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.sort.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.sort.statistics_from_inputs(inputs, arguments)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// Sorts a partition.
struct Sorter {
    order: LexOrdering,
    memory: MemoryReservation,
    context: Arc<TaskContext>,
    metrics: BaselineMetrics,
    /// Counts partitions that DataFusion's operator sorts.
    general: Count,
}

impl Sorter {
    async fn sorted(
        self,
        mut input: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        let mut batches = Vec::new();
        while let Some(batch) = input.try_next().await? {
            let has_memory = self.add(&batch);
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
            if !has_memory {
                return self.in_general(batches, input);
            }
        }
        let order = self.order.clone();
        let timer = self.metrics.elapsed_compute().clone();
        let task = SpawnedTask::spawn_blocking(move || {
            let _timer = timer.timer();
            Order::of(&batches, &order).map(|order| (order, batches))
        });
        match task
            .join()
            .await
            .map_err(|error| DataFusionError::External(error.into()))??
        {
            (Some(order), batches) => Ok(self.put_out(input.schema(), batches, order)),
            (None, batches) => self.in_general(batches, input),
        }
    }

    /// Reserves memory for a batch and its order. False if there is none.
    fn add(&self, batch: &RecordBatch) -> bool {
        let order = batch.num_rows() * Order::bytes_per_row(self.order.len());
        let bytes = get_record_batch_memory_size(batch) + order;
        self.memory.try_grow(bytes).is_ok()
    }

    /// The rows of `batches` and `rest`, sorted by DataFusion's operator.
    fn in_general(
        self,
        batches: Vec<RecordBatch>,
        rest: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        self.memory.free();
        self.general.add(1);
        let schema = rest.schema();
        let rows = stream::iter(batches.into_iter().map(Ok)).chain(rest);
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        let sorted = general::sorted(rows, self.order, self.context)?;
        let (schema, metrics) = (sorted.schema(), self.metrics);
        let sorted = sorted.map(move |batch| Ok(batch?.record_output(&metrics)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted)))
    }

    /// The rows of `batches` in order.
    fn put_out(
        self,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        order: Order,
    ) -> SendableRecordBatchStream {
        let size = self.context.session_config().batch_size().max(1);
        let firsts = (0..order.num_rows()).step_by(size);
        let sorted = firsts.map(move |first| {
            let _timer = self.metrics.elapsed_compute().timer();
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            let rows = interleave_record_batch(&batches, &order.rows(first, size))?;
            Ok(rows.record_output(&self.metrics))
        });
        let sorted = RecordBatchStreamAdapter::new(schema, stream::iter(sorted));
        make_cooperative(Box::pin(sorted))
    }
}
