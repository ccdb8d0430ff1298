//! Aggregates that DataFusion plans as a partial and a final step.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};

/// The two steps of an aggregate.
#[derive(Clone, Debug)]
pub(crate) struct Aggregates {
    /// The partial step, which computes states of groups from some of the rows.
    pub(crate) partial: Arc<AggregateExec>,
    /// The last step, which merges those states: to results, or to states that an operator above merges.
    pub(crate) last: Arc<AggregateExec>,
}

impl Aggregates {
    /// The aggregate that ends in `plan`; `None` if `plan` is not the last step above a partial one.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        use AggregateMode::{Final, FinalPartitioned, Partial, PartialReduce};
        let last = plan.downcast_ref::<AggregateExec>()?;
        let partial = last.input().downcast_ref::<AggregateExec>()?;
        let is_two_step = matches!(last.mode(), Final | FinalPartitioned | PartialReduce)
            && *partial.mode() == Partial;
        is_two_step.then(|| Self {
            partial: Arc::new(partial.clone()),
            last: Arc::new(last.clone()),
        })
    }

    /// True if the rows are states of groups, which an operator above merges.
    pub(crate) fn are_states(&self) -> bool {
        *self.last.mode() == AggregateMode::PartialReduce
    }

    /// With a partial step that groups by all keys of its grouping sets, and has no limit.
    pub(crate) fn by_all_keys(self) -> Result<Self> {
        let partial = self.partial.as_ref();
        let by_all_keys = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(partial.group_expr().expr().to_vec()),
            partial.aggr_expr().to_vec(),
            partial.filter_expr().to_vec(),
            Arc::clone(partial.input()),
            partial.input_schema(),
        )?;
        Ok(Self {
            partial: Arc::new(by_all_keys),
            ..self
        })
    }
}

/// The aggregate in another mode, over `input`.
pub(crate) fn of_mode(
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

/// Plans an aggregate of `input` by `keys`, in two steps. The columns of the keys come first.
pub(super) fn grouped(
    input: Arc<dyn ExecutionPlan>,
    keys: &[Arc<dyn PhysicalExpr>],
    functions: Vec<Arc<AggregateFunctionExpr>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let named = keys.iter().enumerate();
    let named = named.map(|(number, key)| (Arc::clone(key), format!("key{number}")));
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(named.collect()),
        functions.clone(),
        vec![None; functions.len()],
        input,
        Arc::clone(&schema),
    )?;
    let last = AggregateExec::try_new(
        AggregateMode::FinalPartitioned,
        partial.group_expr().as_final(),
        functions.clone(),
        vec![None; functions.len()],
        Arc::new(partial),
        schema,
    )?;
    Ok(Arc::new(last))
}
