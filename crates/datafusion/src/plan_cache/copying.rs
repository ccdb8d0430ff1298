//! Decides which plans can be copied.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::partitioned_topk::PartitionedTopKExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

#[cfg(feature = "gpu")]
use crate::fused::{self, PrewarmExec};
use crate::nullable::NullableSideExec;
#[cfg(feature = "gpu")]
use crate::shared::SharedExec;
use crate::sort::PackedSortExec;
use crate::source::VectileSource;
use crate::windows::{FirstRanksExec, SortedWindowExec};

/// True if [`fresh`](crate::fresh::fresh) copies of `plan` share no state that changes when one of them runs.
///
/// Lists the operators of DataFusion 55.2 that were checked. `LazyMemoryExec` and `RecursiveQueryExec` are excluded
/// because copies share state. `ScalarSubqueryExec` shares results with expressions above it;
/// [`subqueries`](super::subqueries) gives copies their own.
pub(crate) fn can_be_copied(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_known = plan.is::<AggregateExec>()
        || plan.is::<BoundedWindowAggExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<EmptyExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<InterleaveExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<NullableSideExec>()
        || plan.is::<PartialSortExec>()
        || plan.is::<PartitionedTopKExec>()
        || plan.is::<PlaceholderRowExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<ScalarSubqueryExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<UnionExec>()
        || plan.is::<WindowAggExec>()
        || plan.is::<FirstRanksExec>()
        || plan.is::<PackedSortExec>()
        || plan.is::<SortedWindowExec>()
        || is_scan(plan)
        || is_on_gpu(plan);
    is_known && plan.children().into_iter().all(can_be_copied)
}

/// True for scans of Vectile or ORC files without a filter that changes at execution.
fn is_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = plan.downcast_ref::<DataSourceExec>();
    let source = scan.and_then(|scan| scan.downcast_to_file_source::<VectileSource>());
    source.is_some_and(|(_, source)| {
        let changes = |filter| DynamicFilterTracking::classify(filter).contains_dynamic_filter();
        !source.filter().as_ref().is_some_and(changes)
    })
}

/// True for shared plans, for plans for the CPU that prepare a device, and for fused nodes whose CPU plan can be copied.
#[cfg(feature = "gpu")]
fn is_on_gpu(plan: &Arc<dyn ExecutionPlan>) -> bool {
    // copies prepare the nodes of the first plan, whose subqueries never run
    let may_prepare = |of: &PrewarmExec| of.is_settled() || !has_subqueries(plan);
    let prewarm = plan.downcast_ref::<PrewarmExec>();
    plan.is::<SharedExec>()
        || prewarm.is_some_and(may_prepare)
        || fused::as_fused(plan).is_some_and(|node| can_be_copied(node.cpu()))
}

#[cfg(feature = "gpu")]
fn has_subqueries(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ScalarSubqueryExec>() || plan.children().into_iter().any(has_subqueries)
}

/// True if a cached plan would be planned again as it was, as to what a device is ready for.
#[cfg(feature = "gpu")]
pub(super) fn is_current(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fused::is_current(plan)
}

#[cfg(not(feature = "gpu"))]
pub(super) fn is_current(_: &Arc<dyn ExecutionPlan>) -> bool {
    true
}

#[cfg(not(feature = "gpu"))]
fn is_on_gpu(_: &Arc<dyn ExecutionPlan>) -> bool {
    false
}
