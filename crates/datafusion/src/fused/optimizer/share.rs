//! Finds what a query computes in several places: aggregates, such as those of a `WITH` query that is named twice, and keys
//! of joined tables that restrict several tables.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;

use crate::fused::exec::shared::{SharedExec, SharedState};
use crate::fused::pattern::fingerprint::PlanIdentity;

type Plan = Arc<dyn ExecutionPlan>;

/// Plans with the same rows.
struct EqualPlans {
    identity: PlanIdentity,
    plans: Vec<Plan>,
    /// How often they occur, outside of other plans that occur several times.
    places: usize,
}

impl EqualPlans {
    fn contains(&self, plan: &Plan) -> bool {
        self.plans.iter().any(|of| Arc::ptr_eq(of, plan))
    }
}

/// Makes equal parts of `plan` run once: those whose rows are all collected before any is used.
pub(super) fn share_equal_plans(plan: Plan) -> Result<Plan> {
    let (mut candidates, mut is_recursive) = (Vec::new(), false);
    plan.apply(|node| {
        // its state is reset for each step
        is_recursive |= node.is::<RecursiveQueryExec>();
        candidates.extend(is_aggregate(node).then(|| Arc::clone(node)));
        candidates.extend(joined_keys(node)?.cloned());
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut equal = match is_recursive {
        true => Vec::new(),
        false => equal_plans(candidates)?,
    };
    if equal.is_empty() {
        return Ok(plan);
    }
    plan.apply(|node| {
        Ok(match equal.iter_mut().find(|of| of.contains(node)) {
            Some(of) => {
                of.places += 1;
                TreeNodeRecursion::Jump
            }
            None => TreeNodeRecursion::Continue,
        })
    })?;
    equal.retain(|of| of.places > 1);
    let states = equal.iter().zip(1..);
    let states = states.map(|(of, number)| Arc::new(SharedState::new(number, of.places)));
    let states: Vec<Arc<SharedState>> = states.collect();
    let shared = plan.transform_down(|node| {
        let mut of_node = equal.iter().zip(&states);
        Ok(match of_node.find(|(of, _)| of.contains(&node)) {
            Some((_, state)) => {
                let shared = Arc::new(SharedExec::new(node, Arc::clone(state)));
                Transformed::new(shared, true, TreeNodeRecursion::Jump)
            }
            None => Transformed::no(node),
        })
    });
    shared.data()
}

/// Those of `plans` that are equal to others.
fn equal_plans(plans: Vec<Plan>) -> Result<Vec<EqualPlans>> {
    let mut equal: Vec<EqualPlans> = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        let mut others = plans.iter().enumerate();
        // most queries have no candidates with the same columns
        if !others.any(|(other, of)| other != index && of.schema() == plan.schema()) {
            continue;
        }
        let Some(identity) = PlanIdentity::of(plan)? else {
            continue;
        };
        let is_equal = |of: &&mut EqualPlans| {
            let known = of.plans.first().map(|known| known.schema());
            of.identity == identity && known == Some(plan.schema())
        };
        match equal.iter_mut().find(is_equal) {
            Some(of) => of.plans.push(Arc::clone(plan)),
            None => equal.push(EqualPlans {
                identity,
                plans: vec![Arc::clone(plan)],
                places: 0,
            }),
        }
    }
    equal.retain(|of| of.plans.len() > 1);
    Ok(equal)
}

/// True for aggregates whose rows are groups.
fn is_aggregate(plan: &Plan) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| *aggregate.mode() != AggregateMode::Partial)
}

/// The side of a semi join that has only keys, if they are those of joined tables. Finding them takes longer than keeping
/// them, unlike the keys of one table.
fn joined_keys(plan: &Plan) -> Result<Option<&Plan>> {
    let join = plan.downcast_ref::<HashJoinExec>();
    let join = join.filter(|join| *join.join_type() == JoinType::RightSemi);
    let keys = join.map(HashJoinExec::left);
    Ok(match keys {
        Some(keys) if keys.exists(|node| Ok(node.is::<HashJoinExec>()))? => Some(keys),
        _ => None,
    })
}
