//! A plan that a query reads in several places, and that runs once.
//!
//! ```text
//!  reader ──┐
//!           ├─▶ rows of a partition, collected by the reader that comes first
//!  reader ──┘
//! ```
//!
//! Each place has a [`SharedExec`] over its own copy of the plan, which the rules of the optimizer change in the same way.
//! The copy of the first reader runs. Its rows are held until all readers have them. If they do not fit the pool of
//! memory, each reader runs its own copy.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt, stream};

use crate::fresh::fresh;
use crate::stack;

type Plan = Arc<dyn ExecutionPlan>;

/// Returns the rows of its input, which runs once for all nodes with the same state.
#[derive(Debug)]
pub(crate) struct SharedExec {
    input: Plan,
    state: Arc<SharedState>,
    properties: Arc<PlanProperties>,
}

/// What the readers of a plan have in common.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Tells the shared plans of a query apart, for `EXPLAIN`.
    number: usize,
    readers: usize,
    partitions: Mutex<HashMap<Partition, PartitionState>>,
}

/// The index of a partition, and the number of partitions.
type Partition = (usize, usize);

struct PartitionState {
    rows: Shared<BoxFuture<'static, Collected>>,
    /// Readers that have not asked for the rows.
    left: usize,
}

/// The rows of a partition, or why there are none.
type Collected = Result<Arc<Rows>, Arc<DataFusionError>>;

struct Rows {
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl SharedState {
    /// The state of `readers` nodes. `number` is that of no other plan that the query shares.
    pub(crate) fn new(number: usize, readers: usize) -> Self {
        Self {
            number,
            readers,
            partitions: Mutex::default(),
        }
    }
}

impl fmt::Debug for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} readers left", self.left)
    }
}

impl SharedExec {
    /// A reader of a plan. The inputs of all nodes with a state have the same rows.
    pub(crate) fn new(input: Plan, state: Arc<SharedState>) -> Self {
        // an order would be kept only if it were required below all nodes
        let known = EquivalenceProperties::new(input.schema());
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(known);
        Self {
            input,
            state,
            properties: Arc::new(properties),
        }
    }

    /// The rows of a partition, which the first reader's input returns.
    fn rows(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Shared<BoxFuture<'static, Collected>> {
        let key = (
            partition,
            self.input.output_partitioning().partition_count(),
        );
        let partitions = self.state.partitions.lock();
        let mut partitions = partitions.unwrap_or_else(PoisonError::into_inner);
        let state = partitions.entry(key).or_insert_with(|| PartitionState {
            rows: collect(Arc::clone(&self.input), partition, Arc::clone(context))
                .boxed()
                .shared(),
            left: self.state.readers,
        });
        state.left = state.left.saturating_sub(1);
        let (rows, is_last) = (state.rows.clone(), state.left == 0);
        if is_last {
            partitions.remove(&key);
        }
        rows
    }
}

/// Runs a partition of a plan.
async fn collect(plan: Plan, partition: usize, context: Arc<TaskContext>) -> Collected {
    let consumer = MemoryConsumer::new("VectileShared");
    let memory = consumer.register(context.memory_pool());
    let batches = async {
        let mut batches = Vec::new();
        let mut stream = plan.execute(partition, context)?;
        while let Some(batch) = stream.try_next().await? {
            memory.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        Ok::<_, DataFusionError>(batches)
    };
    let batches = batches.await.map_err(Arc::new)?;
    Ok(Arc::new(Rows {
        batches,
        _memory: memory,
    }))
}

/// True if there was not enough memory.
fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let SharedState {
            number, readers, ..
        } = &*self.state;
        write!(f, "SharedExec: plan={number}, readers={readers}")
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, Arc::clone(&self.state)))),
            _ => internal_err!("SharedExec has one child"),
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
        let (rows, input) = (self.rows(partition, &context), Arc::clone(&self.input));
        let batches = async move {
            Ok::<_, DataFusionError>(match rows.await {
                Ok(rows) => {
                    let batches = 0..rows.batches.len();
                    let batches = batches.map(move |batch| Ok(rows.batches[batch].clone()));
                    stream::iter(batches).boxed()
                }
                Err(error) if is_exhausted(&error) => {
                    fresh(&input)?.execute(partition, context)?.boxed()
                }
                Err(error) => return Err(DataFusionError::Shared(error)),
            })
        };
        let batches = stream::once(batches).try_flatten();
        let schema = self.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
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
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("SharedExec has one child"),
        }
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// Replaces the states of shared plans by new ones, so that a copy of a plan shares none with the original.
pub(crate) fn with_own_states(plan: Plan) -> Result<Plan> {
    match has_shared(&plan) {
        true => replaced(&plan, &mut Vec::new()),
        false => Ok(plan),
    }
}

fn has_shared(plan: &Plan) -> bool {
    let mut children = plan.children().into_iter();
    plan.is::<SharedExec>() || children.any(|child| stack::grown(|| has_shared(child)))
}

/// `states` are those of the original, each with that of the copy.
fn replaced(plan: &Plan, states: &mut Vec<(Arc<SharedState>, Arc<SharedState>)>) -> Result<Plan> {
    let children = plan.children().into_iter();
    let children = children.map(|child| stack::grown(|| replaced(child, states)));
    let mut children: Vec<Plan> = children.collect::<Result<_>>()?;
    let Some(shared) = plan.downcast_ref::<SharedExec>() else {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        return Arc::clone(plan).replace_children(children, options);
    };
    let known = states
        .iter()
        .find(|(original, _)| Arc::ptr_eq(original, &shared.state));
    let state = match known {
        Some((_, own)) => Arc::clone(own),
        None => {
            let own = Arc::new(SharedState::new(shared.state.number, shared.state.readers));
            states.push((Arc::clone(&shared.state), Arc::clone(&own)));
            own
        }
    };
    match children.pop() {
        Some(input) => Ok(Arc::new(SharedExec::new(input, state))),
        None => internal_err!("SharedExec has one child"),
    }
}
