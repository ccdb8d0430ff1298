//! Copies of plans as if they had never run.
//!
//! A plan changes when it runs: a hash join keeps its table, a top-k its filter, an exchange its channels, and every
//! operator its metrics. A copy shares none of these with the original.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::source::{VectileSource, scan_of};
use crate::stack;

/// A copy of `plan` that has not run.
pub(crate) fn fresh(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let copy = copied(plan)?;
    #[cfg(feature = "gpu")]
    let copy = crate::shared::with_own_states(copy)?;
    Ok(copy)
}

fn copied(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
        && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
    {
        return Ok(scan_of(config, source.fresh()));
    }
    let children = plan.children().into_iter();
    let children = children.map(|child| stack::grown(|| copied(child)));
    let mut children: Vec<_> = children.collect::<Result<_>>()?;
    // Resetting a sort of all rows would give it the filter of a top-k.
    if let Some(sort) = plan.downcast_ref::<SortExec>()
        && sort.fetch().is_none()
        && let Some(input) = children.pop()
    {
        let copy = SortExec::new(sort.expr().clone(), input);
        return Ok(Arc::new(
            copy.with_preserve_partitioning(sort.preserve_partitioning()),
        ));
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    let copy = Arc::clone(plan).replace_children(children, options)?;
    copy.reset_state()
}
