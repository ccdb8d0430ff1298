//! Limits DataFusion's rules for sorts and limits to plans for which they are correct.
//!
//! `PushdownSort` of DataFusion 55.2 changes the order of a scan even if the scan, or a node above it, has a limit,
//! which then takes other rows. `TopKAggregation` makes an aggregate stop at the limit of a sort although a window
//! function between them needs all groups, or a projection between them computes the sort key. It also continues to the
//! aggregates below that one. These rules replace both under their names, and leave such plans unchanged.
//!
//! `EnsureRequirements` of DataFusion 55.2 moves a sort below a node that skips rows (`OFFSET`), which then skips other
//! rows, and returns five rows for `LIMIT 10 OFFSET 5`. It moves the limit of a sort below windows, filters and joins.
//! So the replacement applies it separately to parts of the plan. It also drops a sort below such a node if the sort
//! column is no output of the part, unless the part requires the order.
//!
//! `LimitPushPastWindows` of DataFusion 55.2 stops a sort below window functions after too few rows: it adds up the
//! lookahead of several functions incorrectly, and uses window frames for `lag` and `lead`. It is disabled.
//!
//! `LimitPushdown` of DataFusion 55.2 passes the limit of a merge of sorted partitions to scans as a limit of arbitrary
//! rows, and a scan of Parquet then skips row groups. So scans below such a merge are set to preserve order.
//!
//! `LimitedDistinctAggregation` of DataFusion 55.2 gives a limit to an aggregate that only later becomes ordered, by a
//! merge join below it. Such an aggregate fails when it starts. A further rule removes that limit; the node above the
//! aggregate still has it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::limit_pushdown::LimitPushdown;
use datafusion::physical_optimizer::limit_pushdown_past_window::LimitPushPastWindows;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::pushdown_sort::PushdownSort;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    replace_children_if_necessary,
};

use crate::pushdown::Rule;

type Plan = Arc<dyn ExecutionPlan>;

/// Replaces each `PushdownSort`, `TopKAggregation` and `EnsureRequirements` by a rule limited to safe plans, preserves
/// order for `LimitPushdown`, disables `LimitPushPastWindows`, and adds a rule for ordered aggregates with a limit.
pub(crate) fn replace_rules(rules: &mut Vec<Rule>) {
    let sorts: Rule = Arc::new(PushdownSort::new());
    let aggregates: Rule = Arc::new(TopKAggregation::new());
    for (theirs, is_safe) in [
        (sorts, reads_all_rows as fn(&SortExec) -> Result<bool>),
        (aggregates, takes_first_groups),
    ] {
        for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
            let theirs = Arc::clone(&theirs);
            *rule = Arc::new(SafeSorts { theirs, is_safe });
        }
    }
    let requirements: Rule = Arc::new(EnsureRequirements::new());
    let windows: Rule = Arc::new(LimitPushPastWindows::new());
    let parts: Rule = Arc::new(SeparateParts(Arc::clone(&requirements)));
    let limits: Rule = Arc::new(LimitPushdown::new());
    for (theirs, ours) in [
        (&requirements, parts),
        (&limits, Arc::new(OrderedLimits(Arc::clone(&limits)))),
        (&windows, Arc::new(Disabled(Arc::clone(&windows)))),
    ] {
        for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
            *rule = Arc::clone(&ours);
        }
    }
    // an aggregate becomes ordered by any rule before the check
    let index_of = |name| rules.iter().position(|rule| rule.name() == name);
    if index_of(ORDERED_GROUPS).is_none() {
        let end = index_of(CHECK).unwrap_or(rules.len());
        rules.insert(end, Arc::new(UnlimitedOrderedGroups));
    }
}

/// The name of DataFusion's last rule.
const CHECK: &str = "SanityCheckPlan";

/// The name of [`UnlimitedOrderedGroups`].
const ORDERED_GROUPS: &str = "unlimited_ordered_groups";

/// Removes the limit of a `DISTINCT` whose groups come in an order.
#[derive(Debug)]
struct UnlimitedOrderedGroups;

impl PhysicalOptimizerRule for UnlimitedOrderedGroups {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        plan.transform_down(|node| {
            let distinct = node.downcast_ref::<AggregateExec>().filter(|aggregate| {
                let limit = aggregate.limit_options();
                aggregate.aggr_expr().is_empty()
                    && limit.is_some_and(|limit| limit.descending().is_none())
                    && !aggregate.is_unordered_unfiltered_group_by_distinct()
            });
            Ok(match distinct {
                Some(distinct) => {
                    Transformed::yes(Arc::new(distinct.with_new_limit_options(None)) as Plan)
                }
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        ORDERED_GROUPS
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Disables a rule, keeping its name.
#[derive(Debug)]
struct Disabled(Rule);

impl PhysicalOptimizerRule for Disabled {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        Ok(plan)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Applies a rule that pushes limits down, then makes scans below limited merges of sorted partitions take their first
/// rows.
#[derive(Debug)]
struct OrderedLimits(Rule);

impl PhysicalOptimizerRule for OrderedLimits {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let plan = self.0.optimize(plan, config)?;
        plan.transform_down(
            |node| match node.downcast_ref::<SortPreservingMergeExec>() {
                Some(merge) if merge.fetch().is_some() => {
                    let input = Arc::clone(merge.input()).transform_down(keep_order)?;
                    input.map_data(|input| replace_children_if_necessary(node, vec![input]))
                }
                _ => Ok(Transformed::no(node)),
            },
        )
        .data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Makes `node`, if it is a scan with a limit, take its first rows. Stops below nodes through which no limit is pushed.
fn keep_order(node: Plan) -> Result<Transformed<Plan>> {
    if node.supports_limit_pushdown() {
        return Ok(Transformed::no(node));
    }
    let kept = match node.fetch() {
        Some(_) => node.with_preserve_order(true),
        None => None,
    };
    let is_new = kept.is_some();
    let kept = kept.unwrap_or(node);
    Ok(Transformed::new(kept, is_new, TreeNodeRecursion::Jump))
}

/// Applies a rule only to sorts for which it is correct.
#[derive(Debug)]
struct SafeSorts {
    theirs: Rule,
    is_safe: fn(&SortExec) -> Result<bool>,
}

impl PhysicalOptimizerRule for SafeSorts {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        plan.transform_down(|node| {
            // the rule handles a sort together with the merge of its partitions
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

impl SafeSorts {
    fn has_unsafe_sorts(&self, plan: &Plan) -> Result<bool> {
        plan.exists(|node| match node.downcast_ref::<SortExec>() {
            Some(sort) => Ok(!(self.is_safe)(sort)?),
            None => Ok(false),
        })
    }
}

/// Applies a rule separately to parts of a plan, so that no sort and no limit of a sort crosses their boundaries. A
/// node that skips rows is the root of a part. Another part starts below a sort with a limit, unless there are only
/// projections and filters of a scan.
#[derive(Debug)]
struct SeparateParts(Rule);

impl PhysicalOptimizerRule for SeparateParts {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let parted = plan.transform_up(|node| {
            if let Some(limit) = node.downcast_ref::<GlobalLimitExec>()
                && limit.skip() > 0
            {
                let mark = OutputRequirements::new_add_mode();
                let input = mark.optimize(Arc::clone(limit.input()), config)?;
                let node = replace_children_if_necessary(node, vec![input])?;
                return Ok(Transformed::yes(self.part(node, config)?));
            }
            match node.downcast_ref::<SortExec>() {
                Some(sort) if sort.fetch().is_some() => {
                    let input = self.part_below(sort.input(), config)?;
                    input.map_data(|input| replace_children_if_necessary(node, vec![input]))
                }
                _ => Ok(Transformed::no(node)),
            }
        })?;
        let optimized = self.0.optimize(parted.data, config)?;
        if !parted.transformed {
            return Ok(optimized);
        }
        let whole = optimized.transform_down(|node| {
            Ok(match node.downcast_ref::<PartExec>() {
                Some(PartExec(plan)) => Transformed::yes(Arc::clone(plan)),
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

impl SeparateParts {
    /// Optimizes `plan` by itself. If only another part is left of it, returns that part: parts are not nested.
    fn part(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let optimized = self.0.optimize(plan, config)?;
        let optimized = OutputRequirements::new_remove_mode().optimize(optimized, config)?;
        match optimized.is::<PartExec>() {
            true => Ok(optimized),
            false => Ok(Arc::new(PartExec(optimized))),
        }
    }

    /// Makes the subplan below the projections and filters of `plan` a part, unless it is just a scan.
    fn part_below(&self, plan: &Plan, config: &ConfigOptions) -> Result<Transformed<Plan>> {
        let plan = Arc::clone(plan);
        plan.transform_down(|node| {
            if node.children().is_empty() {
                return Ok(Transformed::no(node));
            }
            if node.is::<ProjectionExec>() || node.is::<FilterExec>() && node.fetch().is_none() {
                return Ok(Transformed::no(node));
            }
            let part = self.part(node, config)?;
            Ok(Transformed::new(part, true, TreeNodeRecursion::Jump))
        })
    }
}

/// A part of a plan, opaque to rules.
#[derive(Debug)]
struct PartExec(Plan);

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
        self.0.properties()
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
        self.0.execute(partition, context)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.0.as_ref(), args)
    }
}

/// True if no node below `sort` has a limit.
fn reads_all_rows(sort: &SortExec) -> Result<bool> {
    let is_limited = |node: &Plan| Ok(node.fetch().is_some());
    Ok(!sort.input().exists(is_limited)?)
}

/// True if the first rows of `sort` come from the first groups of an aggregate below it, provided `TopKAggregation`
/// assumes so: it follows the sort column by name, and also looks below windows.
fn takes_first_groups(sort: &SortExec) -> Result<bool> {
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
            // its own partial aggregate has no other below
            let is_another = |node: &Plan| {
                let below = node.downcast_ref::<AggregateExec>();
                Ok(below.is_some_and(|below| *below.mode() != AggregateMode::Partial))
            };
            let schema = aggregate.schema();
            let names = schema.fields().iter().map(|field| field.name());
            return Ok(is_only(names, column) && !aggregate.input().exists(is_another)?);
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
            // if the new name is that of another output, the rule would follow it as well
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

/// True if `column` is the only one of its name in `names`.
fn is_only<'a>(names: impl Iterator<Item = &'a String>, column: &Column) -> bool {
    let mut matching = names.enumerate().filter(|(_, name)| *name == column.name());
    matching
        .next()
        .is_some_and(|(index, _)| index == column.index())
        && matching.next().is_none()
}
