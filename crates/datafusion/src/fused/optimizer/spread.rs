//! Spreads the rows of fused nodes over partitions.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use crate::fused::exec::fused_nodes::as_fused;
use crate::fused::pattern::reduction::replaced;

/// Fewer rows are divided by their keys in less time than it takes to spread them.
const FEW_ROWS: usize = 1 << 16;

/// Where rows of a fused node are divided by their keys, first spreads them in turns: a node has one partition, and a single
/// thread would compute all keys. Nodes that are expected to have few rows stay as they are.
pub(super) fn spread(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let spread = plan.transform_up(|node| {
        let Some(divided) = node.downcast_ref::<RepartitionExec>() else {
            return Ok(Transformed::no(node));
        };
        let input = divided.input();
        let partitions = match divided.partitioning() {
            Partitioning::Hash(_, partitions) if *partitions > 1 => *partitions,
            _ => return Ok(Transformed::no(node)),
        };
        let is_single = input.output_partitioning().partition_count() == 1;
        match is_single.then(|| in_turns(input, partitions)).transpose()? {
            Some(Some(input)) => Ok(Transformed::yes(replaced(&node, vec![input])?)),
            _ => Ok(Transformed::no(node)),
        }
    });
    spread.data()
}

/// `plan` with the rows of the fused node below its projections spread over partitions; `None` if there is no such node.
fn in_turns(
    plan: &Arc<dyn ExecutionPlan>,
    partitions: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if as_fused(plan).is_some() {
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
        if let Precision::Exact(rows) | Precision::Inexact(rows) = statistics.num_rows
            && rows < FEW_ROWS
        {
            return Ok(None);
        }
        let turns = Partitioning::RoundRobinBatch(partitions);
        let spread = RepartitionExec::try_new(Arc::clone(plan), turns)?;
        return Ok(Some(Arc::new(spread)));
    }
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => Ok(match in_turns(projection.input(), partitions)? {
            Some(input) => Some(replaced(plan, vec![input])?),
            None => None,
        }),
        None => Ok(None),
    }
}
