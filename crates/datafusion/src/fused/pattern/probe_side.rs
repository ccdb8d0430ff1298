//! The choice of the side of an inner join that is the probe side.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::intervals::utils::check_support;
use datafusion::physical_expr::{PhysicalExpr, conjunction_opt, split_conjunction};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use super::exchange::is_exchange;

/// How the probe side of an inner join is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeSide {
    /// The side of the larger table: a kernel reads it at the speed of memory.
    LargestTable,
    /// The side of the larger table, unless far fewer of its rows are expected to pass its filters than the other side
    /// has: making a table of a row takes several times as long as looking one up.
    MostRows,
}

/// A table is made of the rows of the larger table if the other side has as many for each of them.
const ROWS_PER_ROW: f64 = 4.0;

/// Share of rows that are expected to pass a filter of which nothing is known, as DataFusion does.
const UNKNOWN_SHARE: f64 = 0.2;

impl ProbeSide {
    /// True if the left side of an inner join is the probe side. `tables` are the rows of the largest tables of both
    /// sides, if they may be the probe side.
    pub(super) fn is_left(self, join: &HashJoinExec, tables: [Option<usize>; 2]) -> Result<bool> {
        let [left, right] = tables;
        let is_left = left > right;
        let (larger, other) = match is_left {
            true => (join.left(), join.right()),
            false => (join.right(), join.left()),
        };
        // the rows of a join would have to be put out
        let may_choose = left.is_some() && right.is_some() && is_table(larger);
        if self == Self::LargestTable || !may_choose {
            return Ok(is_left);
        }
        let (Some(larger), Some(other)) = (rows_of(larger)?, rows_of(other)?) else {
            return Ok(is_left);
        };
        Ok(is_left != (larger * ROWS_PER_ROW <= other))
    }
}

/// Fewest rows of a build side for which it matters that the probe side has fewer.
const MANY_ROWS: f64 = 131_072.0;

impl ProbeSide {
    /// True if the build side of a join is expected to have many rows, and more than the probe side: DataFusion makes a
    /// table of the smaller side.
    pub(super) fn is_too_small(
        self,
        probe: &Arc<dyn ExecutionPlan>,
        build: &Arc<dyn ExecutionPlan>,
    ) -> Result<bool> {
        if self == Self::LargestTable {
            return Ok(false);
        }
        let rows = rows_of(probe)?.zip(rows_of(build)?);
        Ok(rows.is_some_and(|(probe, build)| build > MANY_ROWS.max(probe)))
    }
}

/// True for a table, also below filters and projections.
fn is_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = plan.is::<ProjectionExec>() || plan.is::<FilterExec>() || is_exchange(plan);
    match plan.children()[..] {
        [input] if passes => is_table(input),
        _ => plan.is::<DataSourceExec>(),
    }
}

/// Expected rows of a scan that pass `filters`; `None` if nothing is known.
pub(super) fn rows_passing(
    scan: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
) -> Result<Option<f64>> {
    match conjunction_opt(filters) {
        Some(filter) => rows_of(&(Arc::new(FilterExec::try_new(filter, scan)?) as _)),
        None => rows_of(&scan),
    }
}

/// Expected rows of a plan; `None` if nothing is known. DataFusion expects one share of rows for a filter of which it
/// does not know a part; here, the other parts count as well.
pub(super) fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<f64>> {
    let statistics = |plan: &dyn ExecutionPlan| -> Result<Option<f64>> {
        let statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?;
        Ok(statistics.num_rows.get_value().map(|rows| *rows as f64))
    };
    let Some(filter) = plan.downcast_ref::<FilterExec>() else {
        return match plan.children()[..] {
            [input] if plan.is::<ProjectionExec>() || is_exchange(plan) => rows_of(input),
            _ => statistics(plan.as_ref()),
        };
    };
    let schema = filter.input().schema();
    let (known, unknown): (Vec<_>, Vec<_>) = split_conjunction(filter.predicate())
        .into_iter()
        .cloned()
        .partition(|part| check_support(part, &schema));
    let rows = match conjunction_opt(known) {
        Some(known) => statistics(&FilterExec::try_new(known, Arc::clone(filter.input()))?)?,
        None => rows_of(filter.input())?,
    };
    Ok(rows.map(|rows| rows * UNKNOWN_SHARE.powi(unknown.len() as i32)))
}
