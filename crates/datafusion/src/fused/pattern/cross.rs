//! Joins without keys with a table of one row, such as a total: its columns are the same in all rows.
//!
//! They are joins by a key that is the same constant on both sides. A kernel looks its row up as it does for others, and
//! a table of more rows than one has a key that is there more than once.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{JoinSide, JoinType, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, JoinOn, NestedLoopJoinExec};
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

type Plan = Arc<dyn ExecutionPlan>;

/// A join of all rows with one row.
pub(super) struct WithOneRow<'a> {
    /// The side with any number of rows.
    pub(super) probe: JoinSide,
    pub(super) probe_plan: &'a Plan,
    /// The side with one row.
    pub(super) build_plan: &'a Plan,
    /// Rows must pass it.
    pub(super) filter: Option<&'a JoinFilter>,
    /// The columns that are put out, if not all.
    pub(super) projection: Option<&'a [usize]>,
}

impl<'a> WithOneRow<'a> {
    /// `None` if `plan` is another operator, or no side is known to have one row.
    pub(super) fn of(plan: &'a Plan) -> Result<Option<Self>> {
        let nested = plan.downcast_ref::<NestedLoopJoinExec>();
        let nested = nested.filter(|join| *join.join_type() == JoinType::Inner);
        let (left, right) = match (plan.downcast_ref::<CrossJoinExec>(), nested) {
            (Some(join), _) => (join.left(), join.right()),
            (_, Some(join)) => (join.left(), join.right()),
            _ => return Ok(None),
        };
        let (probe, probe_plan, build_plan) = if has_one_row(left)? {
            (JoinSide::Right, right, left)
        } else if has_one_row(right)? {
            (JoinSide::Left, left, right)
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            probe,
            probe_plan,
            build_plan,
            filter: nested.and_then(NestedLoopJoinExec::filter),
            projection: nested.and_then(|join| join.projection().as_deref()),
        }))
    }

    /// The keys by which all rows match.
    pub(super) fn keys() -> JoinOn {
        let constant =
            || Arc::new(Literal::new(ScalarValue::Int32(Some(0)))) as Arc<dyn PhysicalExpr>;
        vec![(constant(), constant())]
    }
}

fn has_one_row(plan: &Plan) -> Result<bool> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    Ok(statistics.num_rows == Precision::Exact(1))
}
