//! Eager aggregation: aggregates of columns that an outer join adds, such as `count(o.key)` of customers joined with
//! their orders.
//!
//! A row may have any number of matches, but a lookup returns one. So the matches of each key are aggregated before the
//! join: a row then has one match, and the counts of its group are added up.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality, ScalarValue};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::{Sum, sum_udaf};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{CaseExpr, Column, IsNullExpr, Literal};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::aggregates::grouped;
use super::columns::{columns_from, projected, selected, substituted};
use super::exchange::without_exchange;
use crate::fused::fallback_reason::FallbackReason;

type Expr = Arc<dyn PhysicalExpr>;

/// Pushes an aggregate below an outer join, and returns the aggregate of the aggregated matches. `None` unless all
/// arguments are columns of the matches, and no group key is. Its functions combine partial results (a count becomes a
/// sum of counts), and keep their names.
pub(crate) fn before_join(
    partial: &AggregateExec,
) -> Result<Option<AggregateExec>, FallbackReason> {
    if !partial.group_expr().is_single() || partial.limit_options().is_some() {
        return Ok(None);
    }
    let Some((join, columns)) = join_below(partial.input())? else {
        return Ok(None);
    };
    let all_keys = join.on().iter().cloned();
    let (kept, added, keys): (_, _, Vec<(Expr, Expr)>) = match join.join_type() {
        JoinType::Left => (join.left(), join.right(), all_keys.collect()),
        JoinType::Right => {
            let keys = all_keys.map(|(left, right)| (right, left));
            (join.right(), join.left(), keys.collect())
        }
        _ => return Ok(None),
    };
    let is_plain = join.filter().is_none() && !join.null_aware;
    if !is_plain || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    // Indices of the first column of each side in the output of the join.
    let left = join.left().schema().fields().len();
    let (first_kept, first_added) = match join.join_type() {
        JoinType::Left => (0, left),
        _ => (left, 0),
    };
    let kept_columns = first_kept..first_kept + kept.schema().fields().len();
    let added_schema = added.schema();
    let added_columns = first_added..first_added + added_schema.fields().len();

    let mut group_by = Vec::new();
    for (key, name) in partial.group_expr().expr() {
        let key = substituted(key, &columns)?;
        let used = collect_columns(&key);
        if used.is_empty() || !used.iter().all(|used| kept_columns.contains(&used.index())) {
            return Ok(None);
        }
        group_by.push((key, name.clone()));
    }
    let mut of_matches = Vec::new();
    for (number, function) in partial.aggr_expr().iter().enumerate() {
        let is_filtered = partial
            .filter_expr()
            .get(number)
            .is_some_and(Option::is_some);
        let arguments = function.expressions();
        let [argument] = &arguments[..] else {
            return Ok(None);
        };
        let argument = substituted(argument, &columns)?;
        // In an unmatched row, the argument is null.
        let column = argument.downcast_ref::<Column>();
        let Some(column) = column.filter(|column| added_columns.contains(&column.index())) else {
            return Ok(None);
        };
        if is_filtered || !adds_up(function) {
            return Ok(None);
        }
        let own = Arc::new(Column::new(column.name(), column.index() - first_added));
        let builder = AggregateExprBuilder::new(Arc::new(function.fun().clone()), vec![own]);
        let builder = builder
            .schema(Arc::clone(&added_schema))
            .alias(format!("of{number}"));
        of_matches.push(Arc::new(builder.build()?));
    }
    let of_added: Vec<Expr> = keys.iter().map(|(_, key)| Arc::clone(key)).collect();
    let added = grouped(Arc::clone(without_exchange(added)), &of_added, of_matches)?;
    let schema = added.schema();
    let on = keys.into_iter().zip(schema.fields()).enumerate();
    let on = on.map(|(number, ((key, _), field))| {
        (key, Arc::new(Column::new(field.name(), number)) as Expr)
    });
    let joined = HashJoinExec::try_new(
        Arc::clone(kept),
        added,
        on.collect(),
        None,
        &JoinType::Left,
        None,
        *join.partition_mode(),
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let joined: Arc<dyn ExecutionPlan> = Arc::new(joined);
    let own = columns_from(&kept.schema(), 0);
    let none = (0..first_kept).map(|_| ProjectionExpr::new(Arc::new(Column::new("", 0)), ""));
    let own: Vec<ProjectionExpr> = none.chain(own).collect();
    for (key, _) in &mut group_by {
        *key = substituted(key, &own)?;
    }
    let schema = joined.schema();
    let first = kept_columns.len() + of_added.len();
    let functions = partial
        .aggr_expr()
        .iter()
        .enumerate()
        .map(|(number, function)| {
            let index = first + number;
            let value: Expr = Arc::new(Column::new(schema.field(index).name(), index));
            let is_count = function.fun().inner().is::<Count>();
            let (fun, value) = match is_count {
                true => (sum_udaf(), or_zero(value)?),
                false => (Arc::new(function.fun().clone()), value),
            };
            let builder = AggregateExprBuilder::new(fun, vec![value]);
            let builder = builder.schema(Arc::clone(&schema)).alias(function.name());
            Ok(Arc::new(builder.build()?))
        });
    let functions = functions.collect::<Result<Vec<_>, FallbackReason>>()?;
    Ok(Some(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(group_by),
        functions,
        partial.filter_expr().to_vec(),
        joined,
        schema,
    )?))
}

/// The join that `plan` projects, and the plan's columns as expressions over those of the join.
fn join_below(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Option<(&HashJoinExec, Vec<ProjectionExpr>)>, FallbackReason> {
    let plan = without_exchange(plan);
    if plan.fetch().is_some() {
        return Ok(None);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let Some((join, below)) = join_below(projection.input())? else {
            return Ok(None);
        };
        return Ok(Some((join, projected(projection.expr(), &below)?)));
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(None);
    };
    let mut columns = columns_from(&join.left().schema(), 0);
    columns.extend(columns_from(&join.right().schema(), columns.len()));
    if let Some(kept) = &join.projection {
        columns = selected(kept, &columns);
    }
    Ok(Some((join, columns)))
}

/// Returns true if the result for a group follows from results for its parts. Sums of floats depend on their order.
fn adds_up(function: &AggregateFunctionExpr) -> bool {
    let of = function.fun().inner();
    let is_known = of.is::<Count>() || of.is::<Sum>() || of.is::<Min>() || of.is::<Max>();
    let is_of_floats = function.field().data_type().is_floating();
    let is_plain = !function.is_distinct() && function.order_bys().is_empty();
    is_known && is_plain && !is_of_floats && !function.ignore_nulls()
}

fn or_zero(count: Expr) -> Result<Expr, FallbackReason> {
    let is_null: Expr = Arc::new(IsNullExpr::new(Arc::clone(&count)));
    let zero: Expr = Arc::new(Literal::new(ScalarValue::Int64(Some(0))));
    Ok(Arc::new(CaseExpr::try_new(
        None,
        vec![(is_null, zero)],
        Some(count),
    )?))
}
