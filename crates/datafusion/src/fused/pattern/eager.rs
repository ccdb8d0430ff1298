//! Eager aggregation: aggregates of columns that an outer join adds, such as `count(o.key)` of customers joined with
//! their orders.
//!
//! A row may have any number of matches, but a lookup returns one. So the matches of each key are aggregated before the
//! join: a row then has one match, and the counts of its group are added up.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
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

/// The sides of an outer join.
struct Sides<'a> {
    /// The side whose rows are kept, matched or not, and the side that adds its columns to them.
    kept: &'a Arc<dyn ExecutionPlan>,
    added: &'a Arc<dyn ExecutionPlan>,
    /// Pairs of keys, of the kept and of the added side.
    keys: Vec<(Expr, Expr)>,
    /// Indices of each side's columns in the output of the join.
    kept_columns: Range<usize>,
    added_columns: Range<usize>,
}

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
    let Some(sides) = Sides::of(join) else {
        return Ok(None);
    };
    let Some(group_by) = keys_of_kept(partial, &columns, &sides)? else {
        return Ok(None);
    };
    let Some(of_matches) = functions_of_matches(partial, &columns, &sides)? else {
        return Ok(None);
    };
    let joined = joined_with_aggregated(join, &sides, of_matches)?;
    let group_by = over_kept_first(group_by, &sides)?;
    let schema = joined.schema();
    let first = sides.kept_columns.len() + sides.keys.len();
    Ok(Some(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(group_by),
        combining_functions(partial, &schema, first)?,
        partial.filter_expr().to_vec(),
        joined,
        schema,
    )?))
}

impl<'a> Sides<'a> {
    /// The sides of `join`; `None` unless it is a left or right outer join by equal keys alone.
    fn of(join: &'a HashJoinExec) -> Option<Self> {
        let is_plain = join.filter().is_none() && !join.null_aware;
        if !is_plain || join.null_equality() != NullEquality::NullEqualsNothing {
            return None;
        }
        let keys = join.on().iter().cloned();
        let left_columns = 0..join.left().schema().fields().len();
        let right = join.right().schema().fields().len();
        let right_columns = left_columns.end..left_columns.end + right;
        match join.join_type() {
            JoinType::Left => Some(Self {
                kept: join.left(),
                added: join.right(),
                keys: keys.collect(),
                kept_columns: left_columns,
                added_columns: right_columns,
            }),
            JoinType::Right => Some(Self {
                kept: join.right(),
                added: join.left(),
                keys: keys.map(|(left, right)| (right, left)).collect(),
                kept_columns: right_columns,
                added_columns: left_columns,
            }),
            _ => None,
        }
    }
}

/// The group keys of `partial` with their names, over the output of the join. `None` if a key uses no column, or one
/// that the join adds. `columns` are those of the aggregate's input, over the output of the join.
fn keys_of_kept(
    partial: &AggregateExec,
    columns: &[ProjectionExpr],
    sides: &Sides<'_>,
) -> Result<Option<Vec<(Expr, String)>>, FallbackReason> {
    let is_kept = |used: &Column| sides.kept_columns.contains(&used.index());
    let mut group_by = Vec::new();
    for (key, name) in partial.group_expr().expr() {
        let key = substituted(key, columns)?;
        let used = collect_columns(&key);
        if used.is_empty() || !used.iter().all(is_kept) {
            return Ok(None);
        }
        group_by.push((key, name.clone()));
    }
    Ok(Some(group_by))
}

/// The functions of `partial`, over the rows of the added side. `None` if one cannot be combined from results for parts
/// of a group, or its argument is no column of the added side. `columns` are as in [`keys_of_kept`].
fn functions_of_matches(
    partial: &AggregateExec,
    columns: &[ProjectionExpr],
    sides: &Sides<'_>,
) -> Result<Option<Vec<Arc<AggregateFunctionExpr>>>, FallbackReason> {
    let added = &sides.added_columns;
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
        let argument = substituted(argument, columns)?;
        // In an unmatched row, the argument is null.
        let column = argument.downcast_ref::<Column>();
        let Some(column) = column.filter(|column| added.contains(&column.index())) else {
            return Ok(None);
        };
        if is_filtered || !adds_up(function) {
            return Ok(None);
        }
        let own = Arc::new(Column::new(column.name(), column.index() - added.start));
        let builder = AggregateExprBuilder::new(Arc::new(function.fun().clone()), vec![own]);
        let builder = builder
            .schema(sides.added.schema())
            .alias(format!("of{number}"));
        of_matches.push(Arc::new(builder.build()?));
    }
    Ok(Some(of_matches))
}

/// Joins the kept side with the results of `of_matches` for each key of the added side. The output has the columns of
/// the kept side, the keys, then the results.
fn joined_with_aggregated(
    join: &HashJoinExec,
    sides: &Sides<'_>,
    of_matches: Vec<Arc<AggregateFunctionExpr>>,
) -> Result<Arc<dyn ExecutionPlan>, FallbackReason> {
    let keys = sides.keys.iter();
    let of_added: Vec<Expr> = keys.clone().map(|(_, key)| Arc::clone(key)).collect();
    let added = Arc::clone(without_exchange(sides.added));
    let added = grouped(added, &of_added, of_matches)?;
    let schema = added.schema();
    let on = keys.zip(schema.fields()).enumerate();
    let on = on.map(|(number, ((key, _), field))| {
        let aggregated = Arc::new(Column::new(field.name(), number)) as Expr;
        (Arc::clone(key), aggregated)
    });
    Ok(Arc::new(HashJoinExec::try_new(
        Arc::clone(sides.kept),
        added,
        on.collect(),
        None,
        &JoinType::Left,
        None,
        *join.partition_mode(),
        NullEquality::NullEqualsNothing,
        false,
    )?))
}

/// Rewrites group keys over the output of the join to keys over an output that has the kept side's columns first.
fn over_kept_first(
    mut group_by: Vec<(Expr, String)>,
    sides: &Sides<'_>,
) -> Result<Vec<(Expr, String)>, FallbackReason> {
    let before = 0..sides.kept_columns.start;
    let none = before.map(|_| ProjectionExpr::new(Arc::new(Column::new("", 0)), ""));
    let own = columns_from(&sides.kept.schema(), 0);
    let own: Vec<ProjectionExpr> = none.chain(own).collect();
    for (key, _) in &mut group_by {
        *key = substituted(key, &own)?;
    }
    Ok(group_by)
}

/// The functions that combine the results for matches, which are the columns of `schema` from `first` on, to those of
/// `partial`.
fn combining_functions(
    partial: &AggregateExec,
    schema: &SchemaRef,
    first: usize,
) -> Result<Vec<Arc<AggregateFunctionExpr>>, FallbackReason> {
    let functions = partial.aggr_expr().iter().enumerate();
    let combining = functions.map(|(number, function)| {
        let index = first + number;
        let value: Expr = Arc::new(Column::new(schema.field(index).name(), index));
        let (fun, value) = match function.fun().inner().is::<Count>() {
            true => (sum_udaf(), or_zero(value)?),
            false => (Arc::new(function.fun().clone()), value),
        };
        let builder = AggregateExprBuilder::new(fun, vec![value]);
        let builder = builder.schema(Arc::clone(schema)).alias(function.name());
        Ok(Arc::new(builder.build()?))
    });
    combining.collect()
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
