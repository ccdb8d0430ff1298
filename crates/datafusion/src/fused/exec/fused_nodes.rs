//! Fused nodes among the nodes of a plan.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
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

/// Returns the CPU plan of a fused node; `None` for other nodes.
pub(crate) fn on_cpu(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    as_fused(plan).map(FusedNode::cpu)
}

/// A copy of `plan` with `children`, its CPU plan replaced by `copied` and its expressions with subqueries by `expr`.
/// Returns `None` if `plan` is no fused node, or if `copied` returns `None`.
pub(crate) fn with_subqueries(
    plan: &Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
    copied: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>>,
    expr: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(node) = as_fused(plan) else {
        return Ok(None);
    };
    let Some(cpu) = copied(node.cpu())? else {
        return Ok(None);
    };
    node.with_exprs(children, cpu, &expr).map(Some)
}
