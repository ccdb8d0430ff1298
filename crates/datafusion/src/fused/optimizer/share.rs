//! Finds aggregates that a query computes in several places, such as those of a `WITH` query that is named twice.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;

use crate::fresh::fresh;
use crate::fused::pattern::fingerprint::PlanIdentity;
use crate::shared::{SharedExec, SharedState};

type Plan = Arc<dyn ExecutionPlan>;

/// Aggregates with the same groups.
struct EqualAggregates {
    identity: PlanIdentity,
    aggregates: Vec<Plan>,
    /// How often they occur, outside of other aggregates that occur several times.
    places: usize,
}

impl EqualAggregates {
    fn contains(&self, plan: &Plan) -> bool {
        self.aggregates.iter().any(|of| Arc::ptr_eq(of, plan))
    }
}

/// Makes equal aggregates of `plan` run once, but for those in plans that are shared.
pub(super) fn share_aggregates(plan: Plan) -> Result<Plan> {
    let (mut aggregates, mut is_recursive) = (Vec::new(), false);
    plan.apply(|node| {
        if node.is::<SharedExec>() {
            return Ok(TreeNodeRecursion::Jump);
        }
        // its state is reset for each step
        is_recursive |= node.is::<RecursiveQueryExec>();
        aggregates.extend(is_aggregate(node).then(|| Arc::clone(node)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut equal = match is_recursive {
        true => Vec::new(),
        false => equal_aggregates(aggregates)?,
    };
    if equal.is_empty() {
        return Ok(plan);
    }
    plan.apply(|node| {
        if node.is::<SharedExec>() {
            return Ok(TreeNodeRecursion::Jump);
        }
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
        if node.is::<SharedExec>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        let mut of_node = equal.iter().zip(&states);
        Ok(match of_node.find(|(of, _)| of.contains(&node)) {
            Some((_, state)) => {
                let shared = Arc::new(SharedExec::new(node, Arc::clone(state), fresh));
                Transformed::new(shared, true, TreeNodeRecursion::Jump)
            }
            None => Transformed::no(node),
        })
    });
    shared.data()
}

/// Those of `aggregates` that are equal to others.
fn equal_aggregates(aggregates: Vec<Plan>) -> Result<Vec<EqualAggregates>> {
    let mut equal: Vec<EqualAggregates> = Vec::new();
    for (index, aggregate) in aggregates.iter().enumerate() {
        let mut others = aggregates.iter().enumerate();
        // most queries have no aggregates with the same columns
        if !others.any(|(other, plan)| other != index && plan.schema() == aggregate.schema()) {
            continue;
        }
        let Some(identity) = PlanIdentity::of(aggregate)? else {
            continue;
        };
        let is_equal = |of: &&mut EqualAggregates| {
            let known = of.aggregates.first().map(|known| known.schema());
            of.identity == identity && known == Some(aggregate.schema())
        };
        match equal.iter_mut().find(is_equal) {
            Some(of) => of.aggregates.push(Arc::clone(aggregate)),
            None => equal.push(EqualAggregates {
                identity,
                aggregates: vec![Arc::clone(aggregate)],
                places: 0,
            }),
        }
    }
    equal.retain(|of| of.aggregates.len() > 1);
    Ok(equal)
}

/// True for aggregates whose rows are groups.
fn is_aggregate(plan: &Plan) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| *aggregate.mode() != AggregateMode::Partial)
}
