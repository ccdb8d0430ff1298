//! The node that sorts rows by packed keys.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
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
        // what the operator that spills needs to begin with, so that others don't take it meanwhile
        let mut has_memory = self.memory.try_grow(self.spill_bytes()).is_ok();
        while has_memory && let Some(batch) = input.try_next().await? {
            has_memory = self.add(&batch);
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
        }
        if !has_memory {
            return self.in_general(batches, input);
        }
        let order = self.order.clone();
        let timer = self.metrics.elapsed_compute().clone();
        let task = SpawnedTask::spawn_blocking(move || {
            let _timer = timer.timer();
            Order::of(&batches, &order).map(|order| (order, batches))
        });
        let sorted = task.join().await;
        match sorted.map_err(|error| DataFusionError::External(error.into()))?? {
            (Some(order), batches) => Ok(self.put_out(input.schema(), batches, order)),
            (None, batches) => self.in_general(batches, input),
        }
    }

    fn spill_bytes(&self) -> usize {
        let options = self.context.session_config().options();
        options.execution.sort_spill_reservation_bytes
    }

    /// Reserves memory for a batch, its order, and its sorted rows, as DataFusion's operator does. False if there is none.
    fn add(&self, batch: &RecordBatch) -> bool {
        let order = batch.num_rows() * Order::bytes_per_row(self.order.len());
        let bytes = 2 * get_record_batch_memory_size(batch) + order;
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

    /// The rows of `batches` in order. Gives memory back as they leave.
    fn put_out(
        self,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        order: Order,
    ) -> SendableRecordBatchStream {
        let size = self.context.session_config().batch_size().max(1);
        let rows = order.num_rows();
        // sorted rows are the memory of those who take them
        let each = self.memory.size() / 2 / rows.div_ceil(size).max(1);
        self.memory.shrink(self.memory.size() / 2);
        let columns = of_columns(&batches, schema.fields().len());
        let of_schema = Arc::clone(&schema);
        let sorted = (0..rows).step_by(size).map(move |first| {
            let _timer = self.metrics.elapsed_compute().timer();
            let rows = order.rows(first, size);
            let mut sorted = Vec::new();
            interleaved(&of_schema, &columns, &rows, &mut sorted)?;
            self.memory.shrink(each);
            let sorted = sorted.into_iter();
            let sorted = sorted.map(|rows| Ok(rows.record_output(&self.metrics)));
            Ok::<_, DataFusionError>(stream::iter(sorted.collect::<Vec<_>>()))
        });
        let sorted = stream::iter(sorted).try_flatten();
        let sorted = RecordBatchStreamAdapter::new(schema, sorted);
        make_cooperative(Box::pin(sorted))
    }
}

/// The columns of `batches`, each with an array of each batch.
fn of_columns(batches: &[RecordBatch], num_columns: usize) -> Vec<Vec<ArrayRef>> {
    let column = |number| {
        let arrays = batches
            .iter()
            .filter_map(|batch| batch.columns().get(number));
        arrays.cloned().collect()
    };
    (0..num_columns).map(column).collect()
}

/// Appends `rows`, which are numbers of arrays and places in them, to `sorted`: in several batches if offsets of one
/// would be too large.
fn interleaved(
    schema: &SchemaRef,
    columns: &[Vec<ArrayRef>],
    rows: &[(usize, usize)],
    sorted: &mut Vec<RecordBatch>,
) -> Result<()> {
    let all = columns.iter().map(|arrays| {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        interleave(&arrays, rows)
    });
    match all.collect::<Result<Vec<_>, _>>() {
        Ok(columns) => {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let schema = Arc::clone(schema);
            sorted.push(RecordBatch::try_new_with_options(
                schema, columns, &options,
            )?);
            Ok(())
        }
        Err(ArrowError::OffsetOverflowError(_)) if rows.len() > 1 => {
            let (first, second) = rows.split_at(rows.len() / 2);
            interleaved(schema, columns, first, sorted)?;
            interleaved(schema, columns, second, sorted)
        }
        Err(error) => Err(error.into()),
    }
}
