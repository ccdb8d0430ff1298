//! Aggregates over `UNION ALL`: each branch is aggregated by itself, and the states of all are merged.
//!
//! ```text
//!  final                final
//!    partial              union
//!      join       ──▶       partial        partial
//!        union              join           join
//!          a                  a              b
//!          b                  c              c
//!        c
//! ```
//!
//! A scan of a branch can then be fused with the joins and the aggregate above it.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

use super::aggregates::{Aggregates, of_mode};
use super::exchange::is_exchange;
use super::fingerprint::PlanIdentity;
use super::reduction::{replaced, scanned_rows};
use crate::fresh::fresh;
use crate::stack;

type Plan = Arc<dyn ExecutionPlan>;

/// Most branches that are aggregated by themselves.
const MOST_BRANCHES: usize = 8;

/// A table that is read once for each branch has at most a row for so many of the branches.
const ROWS_PER_JOINED_ROW: usize = 2;

/// The aggregates of the branches of the union that `aggregates` reads, whose rows are states; `None` if it reads none.
pub(crate) fn branches(aggregates: &Aggregates) -> Result<Option<Vec<Aggregates>>> {
    let partial = aggregates.partial.as_ref();
    if !partial.group_expr().is_single() || partial.limit_options().is_some() {
        return Ok(None);
    }
    let Some(inputs) = inputs(partial.input())? else {
        return Ok(None);
    };
    let branches = inputs.into_iter().map(|input| of_branch(aggregates, input));
    branches.collect::<Result<_>>().map(Some)
}

/// The aggregate of a branch, in two steps that put out states.
fn of_branch(aggregates: &Aggregates, input: Plan) -> Result<Aggregates> {
    let partial = Arc::new(of_mode(&aggregates.partial, AggregateMode::Partial, input)?);
    let input = Arc::clone(&partial) as Plan;
    let last = of_mode(&aggregates.last, AggregateMode::PartialReduce, input)?;
    Ok(Aggregates {
        partial,
        last: Arc::new(last),
    })
}

/// The inputs of a union below operators that treat each row by itself, each with these operators above it; `None` if there
/// is no union.
fn inputs(plan: &Plan) -> Result<Option<Vec<Plan>>> {
    if let Some(union) = plan.downcast_ref::<UnionExec>() {
        let inputs = union.inputs();
        if inputs.len() > MOST_BRANCHES {
            return Ok(None);
        }
        let named = inputs.iter().map(|input| named_as(plan, input));
        return named.collect::<Result<_>>().map(Some);
    }
    if is_exchange(plan) && plan.fetch().is_none() {
        return stack::grown(|| inputs(plan.children()[0]));
    }
    if plan.is::<ProjectionExec>() || plan.is::<FilterExec>() && plan.fetch().is_none() {
        return above(plan, 0);
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(None);
    };
    if join.null_aware || join.fetch().is_some() {
        return Ok(None);
    }
    let sides = [
        (0, left_rows_count_alone(join)),
        (1, right_rows_count_alone(join)),
    ];
    for (side, counts_alone) in sides {
        let [own, other] = [plan.children()[side], plan.children()[1 - side]];
        if counts_alone
            && is_cheap(other, own)?
            && let Some(joined) = above(plan, side)?
        {
            return Ok(Some(joined));
        }
    }
    Ok(None)
}

/// The operator `plan` above each branch of the union below its input with that index.
fn above(plan: &Plan, input: usize) -> Result<Option<Vec<Plan>>> {
    let all: Vec<Plan> = plan.children().into_iter().cloned().collect();
    let Some(inputs) = stack::grown(|| inputs(&all[input]))? else {
        return Ok(None);
    };
    let branches = inputs.into_iter().map(|branch| {
        let mut children = all.clone();
        for (index, child) in children.iter_mut().enumerate() {
            // operators keep what they have read for all who run them
            *child = match index == input {
                true => Arc::clone(&branch),
                false => fresh(child)?,
            };
        }
        replaced(plan, children)?.reset_state()
    });
    branches.collect::<Result<_>>().map(Some)
}

/// A branch with the names of the union's columns.
fn named_as(union: &Plan, branch: &Plan) -> Result<Plan> {
    let (names, own) = (union.schema(), branch.schema());
    let is_named = |(name, own): (&FieldRef, &FieldRef)| name.name() == own.name();
    if names.fields().iter().zip(own.fields()).all(is_named) {
        return Ok(Arc::clone(branch));
    }
    let fields = names.fields().iter().zip(own.fields()).enumerate();
    let columns = fields.map(|(index, (name, own))| ProjectionExpr {
        expr: Arc::new(Column::new(own.name(), index)),
        alias: name.name().clone(),
    });
    let columns: Vec<ProjectionExpr> = columns.collect();
    Ok(Arc::new(ProjectionExec::try_new(
        columns,
        Arc::clone(branch),
    )?))
}

/// True if the rows that a join makes of a row of the left side depend on no other row of that side.
fn left_rows_count_alone(join: &HashJoinExec) -> bool {
    use JoinType::{Inner, Left, LeftAnti, LeftSemi};
    matches!(join.join_type(), Inner | Left | LeftAnti | LeftSemi)
}

/// The same, of the right side.
fn right_rows_count_alone(join: &HashJoinExec) -> bool {
    use JoinType::{Inner, Right, RightAnti, RightSemi};
    matches!(join.join_type(), Inner | Right | RightAnti | RightSemi)
}

/// True if `joined` may be read once for each branch of `union`: it always has the same rows, and few.
fn is_cheap(joined: &Plan, union: &Plan) -> Result<bool> {
    let has_groups = joined.exists(|node| Ok(node.is::<AggregateExec>()))?;
    let rows = scanned_rows(joined)?.saturating_mul(ROWS_PER_JOINED_ROW);
    Ok(!has_groups && rows <= scanned_rows(union)? && PlanIdentity::of(joined)?.is_some())
}
