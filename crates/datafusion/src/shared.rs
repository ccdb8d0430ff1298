//! A plan that a query reads in several places, and that runs once.
//!
//! ```text
//!  reader ──┐
//!           ├─▶ rows of a partition, collected by the reader that comes first
//!  reader ──┘
//! ```
//!
//! Each place has a [`SharedExec`] over its own copy of the plan. The copy of the first reader runs, in all partitions:
//! those of a hash join wait for each other. Its rows are held until all readers have them. If they do not fit the pool
//! of memory, each reader runs its own copy.
//!
//! Rules of the optimizer may partition copies in different ways. Such copies run on their own, and so do those whose
//! partitions are not determined by their rows. Nothing else that a rule knows of one place may change what is below a
//! `SharedExec`: so it supports no limits, filters, projections or orders, and does not say how many rows it returns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt, stream};

use crate::stack;

type Plan = Arc<dyn ExecutionPlan>;

/// Copies a plan as if it had never run.
type CopyPlan = fn(&Plan) -> Result<Plan>;

/// Returns the rows of its input, which runs once for all nodes with the same state.
#[derive(Debug)]
pub(crate) struct SharedExec {
    input: Plan,
    state: Arc<SharedState>,
    copy: CopyPlan,
    /// A copy of the input that runs if the rows of the first reader's take too much memory.
    own: Arc<OnceLock<Result<Plan, Arc<DataFusionError>>>>,
    properties: Arc<PlanProperties>,
}

/// State that all readers of a plan share.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Tells the shared plans of a query apart, for `EXPLAIN`.
    number: usize,
    readers: usize,
    run: Mutex<Option<Run>>,
}

/// The run whose rows are shared.
#[derive(Debug)]
struct Run {
    /// The first reader's.
    plan: Plan,
    /// The partitions that some reader has asked for, but not all.
    partitions: HashMap<usize, PartitionState>,
}

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
            run: Mutex::default(),
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
    pub(crate) fn new(input: Plan, state: Arc<SharedState>, copy: CopyPlan) -> Self {
        // an order would be kept only if it were required below all nodes
        let known = EquivalenceProperties::new(input.schema());
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(known);
        Self {
            input,
            state,
            copy,
            own: Arc::default(),
            properties: Arc::new(properties),
        }
    }

    /// The rows of a partition, from the first reader's input. `None` if this one has other partitions.
    fn shared_rows(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Option<Shared<BoxFuture<'static, Collected>>> {
        let partitioning = self.input.output_partitioning();
        let run = self.state.run.lock();
        let mut run = run.unwrap_or_else(PoisonError::into_inner);
        if partitioning.partition_count() != 1 && !matches!(partitioning, Partitioning::Hash(..)) {
            return None;
        }
        let Run { plan, partitions } = run.get_or_insert_with(|| Run {
            plan: Arc::clone(&self.input),
            partitions: HashMap::new(),
        });
        let known = plan.output_partitioning();
        let has_one = |of: &Partitioning| of.partition_count() == 1;
        if known != partitioning && !(has_one(known) && has_one(partitioning)) {
            return None;
        }
        let state = partitions
            .entry(partition)
            .or_insert_with(|| PartitionState {
                rows: collect(Arc::clone(plan), partition, Arc::clone(context))
                    .boxed()
                    .shared(),
                left: self.state.readers,
            });
        state.left = state.left.saturating_sub(1);
        let (rows, is_last) = (state.rows.clone(), state.left == 0);
        if is_last {
            partitions.remove(&partition);
        }
        Some(rows)
    }
}

/// Runs a partition of a plan.
async fn collect(plan: Plan, partition: usize, context: Arc<TaskContext>) -> Collected {
    let consumer = MemoryConsumer::new("VectileShared");
    let memory = consumer.register(context.memory_pool());
    let batches = async {
        // batches may be slices of one
        let (mut batches, mut counted) = (Vec::new(), RecordBatchMemoryCounter::new());
        let mut stream = plan.execute(partition, context)?;
        while let Some(batch) = stream.try_next().await? {
            memory.try_grow(counted.count_batch(&batch))?;
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
            (Some(input), true) => Ok(Arc::new(Self::new(
                input,
                Arc::clone(&self.state),
                self.copy,
            ))),
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
        let Some(rows) = self.shared_rows(partition, &context) else {
            return self.input.execute(partition, context);
        };
        let (input, own, copy) = (Arc::clone(&self.input), Arc::clone(&self.own), self.copy);
        let batches = async move {
            Ok::<_, DataFusionError>(match rows.await {
                Ok(rows) => {
                    let batches = 0..rows.batches.len();
                    let batches = batches.map(move |batch| Ok(rows.batches[batch].clone()));
                    stream::iter(batches).boxed()
                }
                Err(error) if is_exhausted(&error) => {
                    // all partitions are those of one copy
                    let own = own.get_or_init(|| copy(&input).map_err(Arc::new));
                    let own = own.as_ref();
                    let own = own.map_err(|error| DataFusionError::Shared(Arc::clone(error)))?;
                    own.execute(partition, context)?.boxed()
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
        Some(input) => Ok(Arc::new(SharedExec::new(input, state, shared.copy))),
        None => internal_err!("SharedExec has one child"),
    }
}
