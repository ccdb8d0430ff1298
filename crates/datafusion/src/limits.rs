//! DataFusion's rules about sorts and limits, where they leave the rows of the query as they are.
//!
//! `PushdownSort` of DataFusion 55.2 gives a scan another order although the scan, or a node above it, has a limit: its
//! first rows are other ones then. `TopKAggregation` has an aggregate stop at the limit of a sort although a window
//! function between them needs all groups, or a projection between them computes what the sort is by. These rules
//! replace them under their names, and leave such plans alone.
//!
//! `EnsureRequirements` of DataFusion 55.2 moves a sort below a node that skips rows (`OFFSET`), which then skips other
//! ones, and of `LIMIT 10 OFFSET 5` leaves five. So a rule takes its place that applies it below such nodes and above
//! them, each for itself.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::pushdown_sort::PushdownSort;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use crate::pushdown::Rule;

type Plan = Arc<dyn ExecutionPlan>;

/// Puts a rule that is limited to safe plans in the place of each `PushdownSort`, `TopKAggregation` and
/// `EnsureRequirements`.
pub(crate) fn replace_rules(rules: &mut [Rule]) {
    let sorts: Rule = Arc::new(PushdownSort::new());
    let aggregates: Rule = Arc::new(TopKAggregation::new());
    for (theirs, is_safe) in [
        (sorts, reads_all_rows as fn(&SortExec) -> Result<bool>),
        (aggregates, wants_first_groups),
    ] {
        for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
            let theirs = Arc::clone(&theirs);
            *rule = Arc::new(OfSafeSorts { theirs, is_safe });
        }
    }
    let theirs: Rule = Arc::new(EnsureRequirements::new());
    for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
        *rule = Arc::new(AroundOffsets(Arc::clone(&theirs)));
    }
}

/// Applies a rule about sorts to those that are safe.
#[derive(Debug)]
struct OfSafeSorts {
    theirs: Rule,
    is_safe: fn(&SortExec) -> Result<bool>,
}

impl PhysicalOptimizerRule for OfSafeSorts {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        plan.transform_down(|node| {
            // their rule looks at a sort together with the merge of its partitions
            let merge = node.downcast_ref::<SortPreservingMergeExec>();
            let sort = merge.map_or(&node, SortPreservingMergeExec::input);
            if !sort.is::<SortExec>() || self.has_unsafe_sorts(&node)? {
                return Ok(Transformed::no(node));
            }
            let optimized = self.theirs.optimize(node, config)?;
            Ok(Transformed::new(optimized, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl OfSafeSorts {
    fn has_unsafe_sorts(&self, plan: &Plan) -> Result<bool> {
        plan.exists(|node| match node.downcast_ref::<SortExec>() {
            Some(sort) => Ok(!(self.is_safe)(sort)?),
            None => Ok(false),
        })
    }
}

/// Applies a rule to what a node that skips rows is the top of, and to the rest, so that no sort passes such a node.
#[derive(Debug)]
struct AroundOffsets(Rule);

impl PhysicalOptimizerRule for AroundOffsets {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let parted = plan.transform_up(|node| {
            let limit = node.downcast_ref::<GlobalLimitExec>();
            if limit.is_none_or(|limit| limit.skip() == 0) {
                return Ok(Transformed::no(node));
            }
            let part = PartExec::try_new(self.0.optimize(node, config)?)?;
            Ok(Transformed::yes(Arc::new(part) as Plan))
        })?;
        let optimized = self.0.optimize(parted.data, config)?;
        if !parted.transformed {
            return Ok(optimized);
        }
        let whole = optimized.transform_down(|node| {
            Ok(match node.downcast_ref::<PartExec>() {
                Some(part) => Transformed::yes(Arc::clone(&part.plan)),
                None => Transformed::no(node),
            })
        });
        whole.data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A part of a plan that a rule does not look into.
#[derive(Debug)]
struct PartExec {
    plan: Plan,
    statistics: Arc<Statistics>,
}

impl PartExec {
    fn try_new(plan: Plan) -> Result<Self> {
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
        Ok(Self { plan, statistics })
    }
}

impl DisplayAs for PartExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "PartExec")
    }
}

impl ExecutionPlan for PartExec {
    fn name(&self) -> &str {
        "PartExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Plan> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(self: Arc<Self>, _: Vec<Plan>, _: ReplaceChildrenOptions) -> Result<Plan> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Plan>) -> Result<Plan> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }

    /// Those of all of its rows: it has one partition.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }
}

/// Whether nothing below `sort` has a limit.
fn reads_all_rows(sort: &SortExec) -> Result<bool> {
    let is_limited = |node: &Plan| Ok(node.fetch().is_some());
    Ok(!sort.input().exists(is_limited)?)
}

/// Whether the first rows of `sort` are of the first groups of an aggregate below it, if `TopKAggregation` takes them for
/// that: it follows the sort's column by name, and looks below windows, too.
fn wants_first_groups(sort: &SortExec) -> Result<bool> {
    let by = &sort.expr().first().expr;
    let Some(mut column) = by
        .downcast_ref::<Column>()
        .filter(|_| sort.fetch().is_some())
    else {
        return Ok(true);
    };
    let mut node = sort.input();
    loop {
        let name = column.name();
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return Ok(is_only(
                aggregate.schema().fields().iter().map(|f| f.name()),
                column,
            ));
        }
        if !matches!(
            node.cardinality_effect(),
            CardinalityEffect::Equal | CardinalityEffect::GreaterEqual
        ) {
            return Ok(true);
        }
        if node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>() || node.fetch().is_some()
        {
            return Ok(false);
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let outputs = projection.expr();
            let below = outputs.get(column.index());
            let below = below.and_then(|output| output.expr.downcast_ref::<Column>());
            let Some(below) = below else {
                return Ok(false);
            };
            // a new name that is the name of another output would be followed once more
            let is_new = below.name() != name;
            let is_taken = outputs.iter().any(|output| output.alias == below.name());
            if !is_only(outputs.iter().map(|output| &output.alias), column) || is_new && is_taken {
                return Ok(false);
            }
            column = below;
        }
        let [input] = node.children()[..] else {
            return Ok(false);
        };
        node = input;
    }
}

/// Whether no other one of `names` is that of `column`.
fn is_only<'a>(names: impl Iterator<Item = &'a String>, column: &Column) -> bool {
    let mut places = names.enumerate().filter(|(_, name)| *name == column.name());
    places
        .next()
        .is_some_and(|(place, _)| place == column.index())
        && places.next().is_none()
}
