//! Corrects the constants of outer joins and grouping sets.
//!
//! A column has one value below an outer join if a filter says so (`a = 2`) or it is a literal. Above the join it has
//! two values: it is null in rows without a match. DataFusion 55.2 takes it for a constant there too, and then returns
//! a group twice, or omits a sort. So a [`NullableSideExec`] hides such constants from the join. It does the same for
//! an aggregate with grouping sets, where a column is null in the groups of a set that omits it. There it hides the order
//! of rows too: DataFusion takes the groups of all sets for sorted as the rows were, and puts out a group before the last
//! of its rows.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::{EquivalenceClass, EquivalenceGroup};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions, replace_children_if_necessary,
};

use crate::pushdown::Rule;

type Plan = Arc<dyn ExecutionPlan>;

/// The name of the rule.
pub(crate) const RULE: &str = "hide_constants_of_nullable_sides";

/// The name of DataFusion's first rule for joins.
pub(crate) const JOINS: &str = "join_selection";

/// The name of the rule that pushes filters into scans.
const FILTERS: &str = "FilterPushdown";

/// Inserts the rule before the first rule for joins, unless it is present, and after filters were pushed down: a scan
/// knows values that a filter above a projection did not.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    let index_of = |rules: &[Rule], name| rules.iter().position(|rule| rule.name() == name);
    if index_of(rules, RULE).is_none() {
        let joins = index_of(rules, JOINS).unwrap_or(0);
        rules.insert(joins, Arc::new(HideConstants));
        if let Some(filters) = index_of(rules, FILTERS) {
            rules.insert(filters + 1, Arc::new(HideConstants));
        }
    }
}

/// Inserts a [`NullableSideExec`] below outer joins and grouping sets.
#[derive(Debug)]
struct HideConstants;

impl PhysicalOptimizerRule for HideConstants {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        Ok(plan.transform_up(hide_constants)?.data)
    }

    fn name(&self) -> &str {
        RULE
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn hide_constants(node: Plan) -> Result<Transformed<Plan>> {
    let Some(nullable) = nullable_sides(node.as_ref()) else {
        return Ok(Transformed::no(node));
    };
    let keeps_order = !node.is::<AggregateExec>();
    let hide = |(side, nullable): (&Plan, &bool)| -> Result<Plan> {
        let has_order = || side.equivalence_properties().output_ordering().is_some();
        match *nullable && (knows_values(side) || !keeps_order && has_order()) {
            true => Ok(Arc::new(NullableSideExec::try_new(
                Arc::clone(side),
                keeps_order,
            )?)),
            false => Ok(Arc::clone(side)),
        }
    };
    let sides = node.children().into_iter().zip(nullable).map(hide);
    let replaced = replace_children_if_necessary(Arc::clone(&node), sides.collect::<Result<_>>()?)?;
    let is_new = !Arc::ptr_eq(&replaced, &node);
    Ok(Transformed::new_transformed(replaced, is_new))
}

/// For each input of a node, true if its columns are null in some of the node's rows only; `None` if there is no such
/// input.
fn nullable_sides(node: &dyn ExecutionPlan) -> Option<&'static [bool]> {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let has_sets = !aggregate.group_expr().is_single();
        return has_sets.then_some(&[true]);
    }
    let join_type = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        *join.join_type()
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        *join.join_type()
    } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        join.join_type()
    } else {
        *node.downcast_ref::<SymmetricHashJoinExec>()?.join_type()
    };
    match join_type {
        JoinType::Left => Some(&[false, true]),
        JoinType::Right => Some(&[true, false]),
        JoinType::Full => Some(&[true, true]),
        _ => None,
    }
}

/// True if more is known of expressions than which columns are equal: equal columns remain equal if they are null.
fn knows_values(plan: &Plan) -> bool {
    let known = plan.equivalence_properties();
    let is_column = |expression: &Arc<dyn PhysicalExpr>| expression.is::<Column>();
    !known.constants().is_empty()
        || !known
            .eq_group()
            .iter()
            .all(|class| class.iter().all(is_column))
}

/// Passes on its input, but hides everything that is known of its columns except equality, and order if it `keeps_order`.
#[derive(Clone, Debug)]
pub(crate) struct NullableSideExec {
    input: Plan,
    keeps_order: bool,
    properties: Arc<PlanProperties>,
}

impl NullableSideExec {
    fn try_new(input: Plan, keeps_order: bool) -> Result<Self> {
        let known = input.equivalence_properties();
        let orderings = known.oeq_class().iter().filter(|_| keeps_order).cloned();
        let mut kept = EquivalenceProperties::new_with_orderings(input.schema(), orderings);
        let columns = known.eq_group().iter().map(|class| {
            let columns = class.iter().filter(|expression| expression.is::<Column>());
            EquivalenceClass::new(columns.cloned())
        });
        kept.add_equivalence_group(EquivalenceGroup::new(columns))?;
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(kept);
        Ok(Self {
            input,
            keeps_order,
            properties: Arc::new(properties),
        })
    }
}

impl DisplayAs for NullableSideExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "NullableSideExec")
    }
}

impl ExecutionPlan for NullableSideExec {
    fn name(&self) -> &str {
        "NullableSideExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    /// None, so that no sort moves below: one by a column that is a constant there would be left out, and missed above.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::try_new(input, self.keeps_order)?)),
            _ => internal_err!("NullableSideExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Plan>) -> Result<Plan> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("NullableSideExec has one child"),
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Plan>> {
        let Some(input) = self.input.try_swapping_with_projection(projection)? else {
            return Ok(None);
        };
        replace_children_if_necessary(Arc::new(self.clone()), vec![input]).map(Some)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Plan>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}
