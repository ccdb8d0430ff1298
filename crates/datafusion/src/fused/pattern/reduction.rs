//! Semi-join reduction: the keys of one build side restrict another (P. Bernstein and D. Chiu, 1981).
//!
//! ```text
//!  probe ⋈ part (filtered) ⋈ groups of lineitem by partkey
//!             └── keys ──semi join──▶ lineitem, below its groups
//! ```
//!
//! Rows of the probe side that remain have a match in `part`, so that no others of the second build side are looked up.
//! Without the reduction, all of its groups would be computed.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use super::exchange::is_exchange;
use super::files::num_rows;
use super::fingerprint::PlanIdentity;
use super::join::{Join, KeptRows};
use crate::source::VectileSource;
use crate::stack;

/// Fewest rows of a table for which a reduction pays.
const LEAST_ROWS: usize = 1 << 17;

/// A table is reduced by the keys of one with at most one row for so many of its own, as both are read once more.
const ROWS_PER_KEY: usize = 4;

/// Reduces the build sides of `joins`, which have one probe side, by the keys of each other.
pub(crate) fn reduce(joins: &mut [Join]) -> Result<()> {
    for reduced in 0..joins.len() {
        let Some(join) = joins.get(reduced) else {
            continue;
        };
        // a null key, or any row, of the build side may decide about all rows
        if join.kind.properties().is_null_aware {
            continue;
        }
        let others = joins.iter().enumerate();
        let others = others.filter(|(other, _)| *other != reduced);
        let mut reducers = others.map(|(_, other)| reduced_by(join, other));
        if let Some(plan) = reducers.find_map(Result::transpose).transpose()?
            && let Some(join) = joins.get_mut(reduced)
        {
            join.plan = plan;
        }
    }
    Ok(())
}

/// The plan of a join's build side without rows whose keys `other` lacks; `None` if that is not possible, or does not
/// pay.
fn reduced_by(join: &Join, other: &Join) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let keeps_matched = other.kind.properties().kept == KeptRows::Matched;
    let [key] = &other.keys[..] else {
        return Ok(None);
    };
    let is_filtered = keeps_matched && is_filtered(&other.plan)?;
    // it is read twice, and must have the same rows both times
    if !is_filtered || PlanIdentity::of(&other.plan)?.is_none() {
        return Ok(None);
    }
    let (of_other, of_join) = (other.plan.schema(), join.plan.schema());
    for own in join.keys.iter().filter(|own| own.probe.eq(&key.probe)) {
        let is_alike = key.build.data_type(&of_other)? == own.build.data_type(&of_join)?;
        if let (true, Some(column)) = (is_alike, own.build.downcast_ref::<Column>()) {
            let keys = Keys {
                plan: &other.plan,
                key: &key.build,
                rows: scanned_rows(&other.plan)?,
            };
            return restricted(&join.plan, column.index(), &keys);
        }
    }
    Ok(None)
}

/// The keys that rows are restricted to.
struct Keys<'a> {
    plan: &'a Arc<dyn ExecutionPlan>,
    key: &'a Arc<dyn PhysicalExpr>,
    /// Rows that have to be read for them.
    rows: usize,
}

/// `plan` without rows for which a column is not among `keys`, restricted where its table is read; `None` if that is
/// not possible, or the table is too small.
fn restricted(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    keys: &Keys<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    stack::grown(|| {
        if plan.fetch().is_some() {
            return Ok(None);
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            let scan = scan.downcast_to_file_source::<VectileSource>();
            let rows = scan.and_then(|(config, _)| num_rows(config)).unwrap_or(0);
            let pays = rows >= LEAST_ROWS && rows / ROWS_PER_KEY >= keys.rows;
            return pays.then(|| with_keys(plan, column, keys)).transpose();
        }
        let Some((input, column)) = origin(plan, column) else {
            return Ok(None);
        };
        let children = plan.children();
        let Some(below) = children.get(input).copied() else {
            return Ok(None);
        };
        let Some(below) = restricted(below, column, keys)? else {
            return Ok(None);
        };
        let mut children: Vec<_> = children.into_iter().cloned().collect();
        if let Some(child) = children.get_mut(input) {
            *child = below;
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Arc::clone(plan)
            .replace_children(children, options)
            .map(Some)
    })
}

/// A semi join of a scan with the keys.
fn with_keys(
    scan: &Arc<dyn ExecutionPlan>,
    column: usize,
    keys: &Keys<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = scan.schema();
    let own = Column::new(schema.field(column).name(), column);
    let joined = HashJoinExec::try_new(
        Arc::clone(scan),
        Arc::clone(keys.plan),
        vec![(Arc::new(own), Arc::clone(keys.key))],
        None,
        &JoinType::LeftSemi,
        None,
        PartitionMode::Auto,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(Arc::new(joined))
}

/// The input of an operator, and its column there, whose value a column of the operator has; `None` if a filter of that
/// column must not move below the operator.
fn origin(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(usize, usize)> {
    let of = |expr: &Arc<dyn PhysicalExpr>| Some(expr.downcast_ref::<Column>()?.index());
    if is_exchange(plan) {
        return Some((0, column));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some((0, of(&projection.expr().get(column)?.expr)?));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let kept = filter.projection().as_ref();
        let column = kept.map_or(Some(column), |kept| kept.get(column).copied())?;
        return Some((0, column));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        if !groups.is_single() || aggregate.limit_options().is_some() {
            return None;
        }
        // keys are the first columns
        return Some((0, of(&groups.expr().get(column)?.0)?));
    }
    let join = plan.downcast_ref::<HashJoinExec>()?;
    let column = join
        .projection
        .as_ref()
        .map_or(Some(column), |kept| kept.get(column).copied())?;
    let left = join.left().schema().fields().len();
    match join.join_type() {
        JoinType::Inner if column >= left => Some((1, column - left)),
        JoinType::Inner | JoinType::LeftSemi => Some((0, column)),
        JoinType::RightSemi => Some((1, column)),
        _ => None,
    }
}

/// True if a plan may have fewer keys than the table that it reads.
fn is_filtered(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut is_filtered = false;
    plan.apply(|node| {
        let scan = node.downcast_ref::<DataSourceExec>();
        let scan = scan.and_then(|scan| scan.downcast_to_file_source::<VectileSource>());
        let has_filter = scan.is_some_and(|(config, _)| config.file_source.filter().is_some());
        is_filtered |= has_filter || node.is::<FilterExec>() || node.is::<HashJoinExec>();
        Ok(match is_filtered {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(is_filtered)
}

/// Rows of all tables that a plan reads; `usize::MAX` if they are not known.
fn scanned_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut rows = 0usize;
    plan.apply(|node| {
        if node.children().is_empty() {
            let scan = node.downcast_ref::<DataSourceExec>();
            let scan = scan.and_then(|scan| scan.downcast_to_file_source::<VectileSource>());
            let own = scan.and_then(|(config, _)| num_rows(config));
            rows = rows.saturating_add(own.unwrap_or(usize::MAX));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows)
}
