//! An aggregate that is planned in two steps.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

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
