//! DataFusion's last check of a plan, which accepts orders that it does not recognize.
//!
//! DataFusion 55.2 derives what it knows of a sort key from what it knows of its parts. That fails for keys that compare
//! (`<`, `<=`, `>`, `>=`) the result of a function or of a `CASE`: rows sorted by `upper(s) < 'a'` count as unsorted. The
//! check then refuses right plans, of any `ORDER BY` that merges partitions, windows, and ordered aggregates. The rule
//! here also accepts a required order if the input is known to have that very order.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::{ConfigOptions, OptimizerOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::{
    SanityCheckPlan, check_finiteness_requirements, check_plan_sanity,
};
use datafusion::physical_plan::execution_plan::InvariantLevel;
use datafusion::physical_plan::{ChildSatisfactionOptions, ExecutionPlan, ExecutionPlanProperties};

use crate::pushdown::Rule;

type Plan = Arc<dyn ExecutionPlan>;

/// Replaces each `SanityCheckPlan` by a [`CheckPlan`].
pub(crate) fn replace_rules(rules: &mut [Rule]) {
    let theirs = SanityCheckPlan::new();
    for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
        *rule = Arc::new(CheckPlan(SanityCheckPlan::new()));
    }
}

/// Inserts a rule before the check, behind all rules that know DataFusion's operators, unless one of its name is present.
pub(crate) fn insert_before(rules: &mut Vec<Rule>, rule: Rule) {
    let index_of = |name| rules.iter().position(|rule| rule.name() == name);
    if index_of(rule.name()).is_none() {
        let end = index_of(SanityCheckPlan::new().name()).unwrap_or(rules.len());
        rules.insert(end, rule);
    }
}

/// Checks that the inputs of nodes have the orders and distributions that the nodes require.
#[derive(Debug)]
struct CheckPlan(SanityCheckPlan);

impl PhysicalOptimizerRule for CheckPlan {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        plan.apply(|node| {
            check(node, &config.optimizer)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// DataFusion's check of a node, and if it fails, all parts of it with orders as they are recognized here.
fn check(node: &Plan, options: &OptimizerOptions) -> Result<()> {
    let Err(refused) = check_plan_sanity(node, options) else {
        return Ok(());
    };
    check_finiteness_requirements(node.as_ref(), options)?;
    let distributions = node.input_distribution_requirements();
    let orders = node.required_input_ordering();
    for (index, (child, order)) in node.children().into_iter().zip(orders).enumerate() {
        let subset = ChildSatisfactionOptions::new().with_allow_subset(true);
        let distribution = distributions.child_satisfaction(index, child.as_ref(), subset)?;
        let is_sorted = match order {
            Some(order) => is_sorted(child, order.into_single())?,
            None => true,
        };
        if !is_sorted || !distribution.is_satisfied() {
            return Err(refused);
        }
    }
    node.check_invariants(InvariantLevel::Executable)
}

/// True if the rows are known to have an order, or one that has it as its first part.
fn is_sorted(plan: &Plan, order: LexRequirement) -> Result<bool> {
    let known = plan.equivalence_properties();
    if known.ordering_satisfy_requirement(order.clone())? {
        return Ok(true);
    }
    let Some(required) = known.normalize_sort_requirements(order) else {
        return Ok(true);
    };
    let orders = known.oeq_class().iter().cloned();
    let mut orders = orders.filter_map(|order| known.normalize_sort_exprs(order));
    Ok(orders.any(|order| {
        order.len() >= required.len()
            && order.iter().zip(&required).all(|(key, required)| {
                let options = required.options;
                key.expr.eq(&required.expr) && options.is_none_or(|of| of == key.options)
            })
    }))
}
