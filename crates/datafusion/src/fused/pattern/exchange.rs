//! Operators that only move rows between partitions.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;

/// Returns true if `plan` only moves rows between partitions.
pub(crate) fn is_exchange(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CoalescePartitionsExec>() || plan.is::<RepartitionExec>()
}

/// Skips operators that only move rows between partitions.
pub(crate) fn without_exchange(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    match plan.children()[..] {
        [input] if is_exchange(plan) && plan.fetch().is_none() => without_exchange(input),
        _ => plan,
    }
}
