//! Fused nodes among the nodes of a plan.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;

use super::fused_aggregate::FusedAggregateExec;
use super::fused_exec::FusedNode;
use super::fused_join::FusedJoinExec;
use crate::shared::SharedExec;

/// The fused node that `plan` is; `None` for other nodes.
pub(crate) fn as_fused(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn FusedNode> {
    if let Some(aggregate) = plan.downcast_ref::<FusedAggregateExec>() {
        return Some(aggregate);
    }
    let join = plan.downcast_ref::<FusedJoinExec>()?;
    Some(join)
}

/// `plan` with the CPU plan of each fused node in its place. Shared plans stay: all their readers have to get the same rows.
pub(crate) fn without_nodes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let unfused = plan.transform_down(|mut node| {
        if node.is::<SharedExec>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        let mut is_fused = false;
        while let Some(cpu) = as_fused(&node).map(|fused| Arc::clone(fused.cpu())) {
            (node, is_fused) = (cpu, true);
        }
        Ok(match is_fused {
            true => Transformed::yes(node),
            false => Transformed::no(node),
        })
    });
    unfused.data()
}
