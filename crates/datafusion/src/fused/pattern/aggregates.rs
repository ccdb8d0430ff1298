//! An aggregate that is planned in two steps.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};

/// An aggregate as it is planned at first.
#[derive(Clone, Debug)]
pub(crate) struct Aggregates {
    /// That of a part of the rows, which has states of groups.
    pub(crate) partial: Arc<AggregateExec>,
    /// That of those states.
    pub(crate) last: Arc<AggregateExec>,
}

impl Aggregates {
    /// `None` if `plan` is no such aggregate.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        use AggregateMode::{Final, FinalPartitioned, Partial};
        let last = plan.downcast_ref::<AggregateExec>()?;
        let partial = last.input().downcast_ref::<AggregateExec>()?;
        let are = matches!(last.mode(), Final | FinalPartitioned) && *partial.mode() == Partial;
        are.then(|| Self {
            partial: Arc::new(partial.clone()),
            last: Arc::new(last.clone()),
        })
    }
}

/// An aggregate of `input` by `keys`, whose columns come first.
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
