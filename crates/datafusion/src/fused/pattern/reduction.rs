//! Semi-join reduction: rows whose keys a join would drop are left out where their table is read (P. Bernstein and
//! D. Chiu, 1981).
//!
//! ```text
//!  lineitem ⋈ part (filtered) ⋈ groups of lineitem by partkey
//!                  └── keys ──semi join──▶ lineitem, below its groups
//! ```
//!
//! Rows that remain have a match in `part`, so that only its keys are looked up in the groups. Without the reduction, all
//! groups would be computed. DataFusion's dynamic filters do the same while a hash join runs; a fused node takes none.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::datasource::physical_plan::FileScanConfig;
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
use crate::fresh::fresh;
use crate::source::VectileSource;
use crate::stack;

type Plan = Arc<dyn ExecutionPlan>;

/// Fewest rows of a table for which a reduction pays.
const LEAST_ROWS: usize = 1 << 17;

/// A table is reduced by the keys of one with at most one row for so many of its own, as both are read once more.
const ROWS_PER_KEY: usize = 4;

/// Reduces what the groups below joins are computed of, by the keys of the other side.
pub(crate) fn reduce_groups(plan: Plan) -> Result<Plan> {
    let reduced = plan.transform_up(|plan| {
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
            return Ok(Transformed::no(plan));
        };
        let mut children = [Arc::clone(join.left()), Arc::clone(join.right())];
        let mut is_reduced = false;
        for (side, drops_unmatched) in drops_unmatched(join).into_iter().enumerate() {
            let other = Arc::clone(&children[1 - side]);
            for (left, right) in join.on().iter().filter(|_| drops_unmatched) {
                let keys = [left, right];
                if let (Some(own), Some(column)) =
                    (column_of(keys[side]), column_of(keys[1 - side]))
                    && is_alike((&children[side], keys[side]), (&other, keys[1 - side]))?
                    && let Some(reducer) = Reducer::of(&other, column)?
                    && let Some(reduced) = reducer.restrict(&children[side], own, false)?
                {
                    children[side] = reduced;
                    is_reduced = true;
                    break;
                }
            }
        }
        if !is_reduced {
            return Ok(Transformed::no(plan));
        }
        let reduced = replaced(&plan, children.to_vec())?;
        Ok(Transformed::yes(reduced))
    });
    Ok(reduced?.data)
}

/// True for each side of a join of which rows without a match on the other side change nothing.
fn drops_unmatched(join: &HashJoinExec) -> [bool; 2] {
    use JoinType::*;
    if join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return [false; 2];
    }
    match join.join_type() {
        Inner | LeftSemi | RightSemi => [true, true],
        Left | LeftAnti | LeftMark => [false, true],
        Right | RightAnti | RightMark => [true, false],
        Full => [false; 2],
    }
}

/// Reduces the build sides of `joins`, which have one probe side, by the keys of each other.
pub(crate) fn reduce_build_sides(joins: &mut [Join]) -> Result<()> {
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
        let mut plans = others.map(|(_, other)| reduced_by(join, other));
        if let Some(plan) = plans.find_map(Result::transpose).transpose()?
            && let Some(join) = joins.get_mut(reduced)
        {
            join.plan = plan;
        }
    }
    Ok(())
}

/// The plan of a join's build side without rows whose keys `other` lacks; `None` if that is not possible, or does not
/// pay.
fn reduced_by(join: &Join, other: &Join) -> Result<Option<Plan>> {
    if other.kind.properties().kept != KeptRows::Matched {
        return Ok(None);
    }
    for own in &join.keys {
        for key in other.keys.iter().filter(|key| key.probe.eq(&own.probe)) {
            if let (Some(column), Some(of_other)) = (column_of(&own.build), column_of(&key.build))
                && is_alike((&join.plan, &own.build), (&other.plan, &key.build))?
                && let Some(reducer) = Reducer::of(&other.plan, of_other)?
                && let Some(reduced) = reducer.restrict(&join.plan, column, true)?
            {
                return Ok(Some(reduced));
            }
        }
    }
    Ok(None)
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    Some(expr.downcast_ref::<Column>()?.index())
}

/// True if two expressions are of one type.
fn is_alike(
    a: (&Plan, &Arc<dyn PhysicalExpr>),
    b: (&Plan, &Arc<dyn PhysicalExpr>),
) -> Result<bool> {
    Ok(a.1.data_type(&a.0.schema())? == b.1.data_type(&b.0.schema())?)
}

/// A small plan with a column that has all keys of another plan.
struct Reducer {
    plan: Plan,
    column: usize,
    /// Rows that have to be read for it.
    rows: usize,
}

impl Reducer {
    /// The cheapest part of `plan` with all keys that a column of `plan` has, and fewer than its table; `None` if there
    /// is none.
    fn of(plan: &Plan, column: usize) -> Result<Option<Self>> {
        stack::grown(|| {
            if plan.fetch().is_some() {
                return Ok(None);
            }
            let whole = match is_filtered(plan)? && is_repeatable(plan)? {
                true => Some(Self {
                    plan: Arc::clone(plan),
                    column,
                    rows: scanned_rows(plan)?,
                }),
                // it is read twice, and must have the same rows both times
                false => None,
            };
            let Some((input, origin)) = origin(plan, column) else {
                return Ok(whole);
            };
            let children = plan.children();
            let below = children.get(input).map(|below| Self::of(below, origin));
            let mut parts = vec![whole, below.transpose()?.flatten()];
            if let Some(join) = plan.downcast_ref::<HashJoinExec>()
                && let Some(other) = children.get(1 - input)
            {
                // the join drops rows without a match: those that remain have a key of the other side
                let keys = join.on().iter().map(|(left, right)| match input {
                    0 => (left, right),
                    _ => (right, left),
                });
                for (own, key) in keys.filter(|(own, _)| column_of(own) == Some(origin)) {
                    if let Some(key_column) = column_of(key)
                        && is_alike((children[input], own), (other, key))?
                    {
                        parts.push(Self::of(other, key_column)?);
                    }
                }
            }
            Ok(parts.into_iter().flatten().min_by_key(|part| part.rows))
        })
    }

    /// `plan` without rows whose value of a column is no key, restricted where its table is read; `None` if that is not
    /// possible, or does not pay: it does below groups, and if `always`.
    fn restrict(&self, plan: &Plan, column: usize, always: bool) -> Result<Option<Plan>> {
        stack::grown(|| {
            if plan.fetch().is_some() {
                return Ok(None);
            }
            if plan.is::<DataSourceExec>() {
                let rows = scan_of(plan).and_then(num_rows).unwrap_or(0);
                let pays = always && rows >= LEAST_ROWS && rows / ROWS_PER_KEY >= self.rows;
                return pays.then(|| self.semi_join(plan, column)).transpose();
            }
            let Some((input, column)) = origin(plan, column) else {
                return Ok(None);
            };
            let mut children: Vec<Plan> = plan.children().into_iter().cloned().collect();
            let Some(child) = children.get_mut(input) else {
                return Ok(None);
            };
            let always = always || plan.is::<AggregateExec>();
            match self.restrict(child, column, always)? {
                Some(below) => *child = below,
                None => return Ok(None),
            }
            replaced(plan, children).map(Some)
        })
    }

    /// A semi join of a scan with the keys.
    fn semi_join(&self, scan: &Plan, column: usize) -> Result<Plan> {
        let column_of = |plan: &Plan, column: usize| -> Arc<dyn PhysicalExpr> {
            Arc::new(Column::new(plan.schema().field(column).name(), column))
        };
        let on = vec![(column_of(scan, column), column_of(&self.plan, self.column))];
        // operators keep state while they run, such as the files that are left to be read
        let keys = fresh(&self.plan)?;
        let joined = HashJoinExec::try_new(
            Arc::clone(scan),
            keys,
            on,
            None,
            &JoinType::LeftSemi,
            None,
            PartitionMode::Auto,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(Arc::new(joined))
    }
}

fn replaced(plan: &Plan, children: Vec<Plan>) -> Result<Plan> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(children, options)
}

/// The input of an operator, and its column there, whose value a column of the operator has: rows without some values
/// may as well be dropped before the operator. `None` if there is no such column.
fn origin(plan: &Plan, column: usize) -> Option<(usize, usize)> {
    if is_exchange(plan) {
        return Some((0, column));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some((0, column_of(&projection.expr().get(column)?.expr)?));
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
        return Some((0, column_of(&groups.expr().get(column)?.0)?));
    }
    let join = plan.downcast_ref::<HashJoinExec>()?;
    if join.null_equality() != NullEquality::NullEqualsNothing {
        return None;
    }
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

/// True if a plan has the same rows whenever it runs. Aggregates need not: the first value is any, and a sum of floats
/// depends on the order of rows.
fn is_repeatable(plan: &Plan) -> Result<bool> {
    let has_aggregate = plan.exists(|node| Ok(node.is::<AggregateExec>()))?;
    Ok(!has_aggregate && PlanIdentity::of(plan)?.is_some())
}

/// The scan of a Vectile table.
fn scan_of(plan: &Plan) -> Option<&FileScanConfig> {
    let scan = plan.downcast_ref::<DataSourceExec>()?;
    let (config, _) = scan.downcast_to_file_source::<VectileSource>()?;
    Some(config)
}

/// True if a plan may have fewer keys than the table that it reads.
fn is_filtered(plan: &Plan) -> Result<bool> {
    let mut is_filtered = false;
    plan.apply(|node| {
        let has_filter = scan_of(node).is_some_and(|scan| scan.file_source.filter().is_some());
        is_filtered |= has_filter || node.is::<FilterExec>() || node.is::<HashJoinExec>();
        Ok(match is_filtered {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(is_filtered)
}

/// Rows of all tables that a plan reads; `usize::MAX` if they are not known.
fn scanned_rows(plan: &Plan) -> Result<usize> {
    let mut rows = 0usize;
    plan.apply(|node| {
        if node.children().is_empty() {
            let own = scan_of(node).and_then(num_rows);
            rows = rows.saturating_add(own.unwrap_or(usize::MAX));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows)
}
