//! DataFusion's rules about sorts and limits, where they leave the rows of the query as they are.
//!
//! `PushdownSort` of DataFusion 55.2 gives a scan another order although the scan, or a node above it, has a limit: its
//! first rows are other ones then. `TopKAggregation` has an aggregate stop at the limit of a sort although a window
//! function between them needs all groups, or a projection between them computes what the sort is by. It goes on to the
//! aggregates below that one. These rules replace them under their names, and leave such plans alone.
//!
//! `EnsureRequirements` of DataFusion 55.2 moves a sort below a node that skips rows (`OFFSET`), which then skips other
//! ones, and of `LIMIT 10 OFFSET 5` leaves five. It moves the limit of a sort below windows, filters and joins. So a rule
//! takes its place that applies it to parts of the plan, each for itself. It also drops a sort below such a node if the
//! column of the sort is no output of the part, unless the part says that it requires the order.
//!
//! `LimitPushPastWindows` of DataFusion 55.2 has a sort below window functions stop after too few rows: it adds up what
//! several of them look ahead wrongly, and takes frames for what `lag` and `lead` look at. It is off.
//!
//! `LimitPushdown` of DataFusion 55.2 gives the limit of a merge of sorted partitions to scans as one of any rows. A scan of
//! Parquet then leaves out row groups. So scans below such a merge are asked to keep the order.

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
    let requirements: Rule = Arc::new(EnsureRequirements::new());
    let windows: Rule = Arc::new(LimitPushPastWindows::new());
    let parts: Rule = Arc::new(InParts(Arc::clone(&requirements)));
    let limits: Rule = Arc::new(LimitPushdown::new());
    for (theirs, ours) in [
        (&requirements, parts),
        (&limits, Arc::new(InOrder(Arc::clone(&limits)))),
        (&windows, Arc::new(Off(Arc::clone(&windows)))),
    ] {
        for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
            *rule = Arc::clone(&ours);
        }
    }
}

/// Does nothing in the place of a rule.
#[derive(Debug)]
struct Off(Rule);

impl PhysicalOptimizerRule for Off {
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

/// Applies a rule that pushes limits down, and has those of merges of sorted partitions take the first rows.
#[derive(Debug)]
struct InOrder(Rule);

impl PhysicalOptimizerRule for InOrder {
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

/// Has `node`, if it is a scan, take the first rows for its limit, and stops where no limit is pushed on.
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

/// Applies a rule to parts of a plan, each for itself, so that no sort and no limit of a sort passes their borders. A node
/// that skips rows is the top of a part. Another one starts below a sort with a limit, where more than projections and
/// filters of a scan are.
#[derive(Debug)]
struct InParts(Rule);

impl PhysicalOptimizerRule for InParts {
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

impl InParts {
    /// `plan`, optimized by itself.
    fn part(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let optimized = self.0.optimize(plan, config)?;
        let optimized = OutputRequirements::new_remove_mode().optimize(optimized, config)?;
        Ok(Arc::new(PartExec(optimized)))
    }

    /// `plan` with a part below its projections and filters, if it has more than these and a scan.
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

/// A part of a plan that a rule does not look into.
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
            // its own partial one has no other below
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
