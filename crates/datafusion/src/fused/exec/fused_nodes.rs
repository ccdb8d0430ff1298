//! Fused nodes among the nodes of a plan.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use super::fused_aggregate::FusedAggregateExec;
use super::fused_exec::FusedNode;
use super::fused_join::FusedJoinExec;

/// The fused node that `plan` is; `None` for other nodes.
pub(crate) fn as_fused(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn FusedNode> {
    if let Some(aggregate) = plan.downcast_ref::<FusedAggregateExec>() {
        return Some(aggregate);
    }
    let join = plan.downcast_ref::<FusedJoinExec>()?;
    Some(join)
}
