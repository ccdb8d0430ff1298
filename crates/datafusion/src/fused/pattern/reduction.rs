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
//!
//! ```text
//!  lineitem (filtered) ⋈ supplier (filtered) ⋈ groups of lineitem by orderkey
//!      └───────── keys of those rows ──semi join──▶ lineitem, below its groups
//! ```
//!
//! Build sides are also reduced by the rows of the probe side itself, if its filters are expected to leave few: `EXISTS`
//! with a condition between both rows looks up groups of all rows of a table. The probe side is then read twice.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use super::exchange::is_exchange;
use super::files::num_rows;
use super::fingerprint::PlanIdentity;
use super::join::{Join, KeptRows};
use super::probe_side::{rows_of, rows_passing};
use super::relation::Relation;
use crate::fresh::fresh;
use crate::fused::string_id::StringId;
use crate::source::{VectileSource, scan_of as scan_of_table};
use crate::stack;

type Plan = Arc<dyn ExecutionPlan>;

/// Fewest rows of a table for which a reduction pays.
const LEAST_ROWS: usize = 1 << 17;

/// A table is reduced by the keys of one with at most one row for so many of its own, as both are read once more.
const ROWS_PER_KEY: usize = 4;

/// Groups are reduced by the keys of a table with as many rows: computing groups takes several times as long as reading.
const ROWS_PER_PROBE_ROW: usize = 1;

/// Fewest filters of a probe side, its joins with filtered tables among them, that are expected to leave few rows.
const LEAST_FILTERS: usize = 2;

/// Few rows of a probe side pass its filters if a build side has so many rows for each of them.
const ROWS_PER_PASSING_ROW: f64 = 8.0;

/// A table is small beside a probe side that has at least so many rows for each of its own.
const ROWS_PER_DIMENSION_ROW: usize = 8;

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

/// Reduces the build sides of a relation by the keys of its own rows, or by the keys of each other.
pub(crate) fn reduce_build_sides(relation: &mut Relation) -> Result<()> {
    for index in 0..relation.joins.len() {
        if let Some(plan) = reduced(relation, index)?
            && let Some(join) = relation.joins.get_mut(index)
        {
            join.plan = plan;
        }
    }
    Ok(())
}

/// The plan of a build side without rows that have no match; `None` if that is not possible, or does not pay.
fn reduced(relation: &Relation, index: usize) -> Result<Option<Plan>> {
    let joins = &relation.joins;
    // a null key, or any row, of the build side may decide about all rows
    let Some(join) = joins
        .get(index)
        .filter(|join| !join.kind.properties().is_null_aware)
    else {
        return Ok(None);
    };
    let by_others = |most_rows| {
        let others = joins.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let mut plans = others.map(|(_, other)| reduced_by(join, other, most_rows));
        plans.find_map(Result::transpose).transpose()
    };
    let rows = num_rows(&relation.config).unwrap_or(0);
    // keys of a small table come without reading the probe side once more
    if let Some(plan) = by_others(rows / ROWS_PER_DIMENSION_ROW)? {
        return Ok(Some(plan));
    }
    match reduced_by_probe_side(relation, join)? {
        Some(plan) => Ok(Some(plan)),
        None => by_others(usize::MAX),
    }
}

/// The plan of a join's build side without rows whose keys no row of the probe side has; `None` if that is not possible,
/// or does not pay: it does for groups, tables of rows, and joins of large tables.
fn reduced_by_probe_side(relation: &Relation, join: &Join) -> Result<Option<Plan>> {
    let is_sparse = leaves_few_beside(relation, &join.plan)?;
    let always = is_sparse || join.reads_matches() || joins_large_tables(&join.plan)?;
    if !always && !join.plan.exists(|node| Ok(node.is::<AggregateExec>()))? {
        return Ok(None);
    }
    let own = relation.source.table_schema().table_schema().fields().len();
    for key in &join.keys {
        if let (Some(column), Some(of_build)) = (column_of(&key.probe), column_of(&key.build))
            && column < own
            && key.probe.data_type(&relation.schema)? == key.build.data_type(&join.plan.schema())?
            && let Some(reducer) = Reducer::of_probe_side(relation, join, column, is_sparse)?
            && let Some(reduced) = reducer.restrict(&join.plan, of_build, always)?
        {
            return Ok(Some(reduced));
        }
    }
    Ok(None)
}

/// True if the filters of a relation's table are expected to leave far fewer rows than a build side has.
fn leaves_few_beside(relation: &Relation, build: &Plan) -> Result<bool> {
    if scanned_rows(build)? < LEAST_ROWS {
        return Ok(false);
    }
    let table = relation.source.table_schema().table_schema().fields().len();
    let columns: Vec<usize> = (0..table).collect();
    let scan = scan_of_table(
        &relation.config,
        relation.source.fresh().with_columns(&columns),
    );
    let rows = rows_passing(scan, relation.filters().of_table)?.zip(rows_of(build)?);
    Ok(rows.is_some_and(|(own, of_build)| own * ROWS_PER_PASSING_ROW <= of_build))
}

/// True if both sides of some join read many rows.
fn joins_large_tables(plan: &Plan) -> Result<bool> {
    plan.exists(|node| match node.downcast_ref::<HashJoinExec>() {
        Some(join) => Ok(scanned_rows(join.left())?.min(scanned_rows(join.right())?) >= LEAST_ROWS),
        None => Ok(false),
    })
}

/// The plan of a join's build side without rows whose keys `other` lacks; `None` if that is not possible, does not pay,
/// or takes more than `most_rows` to be read.
fn reduced_by(join: &Join, other: &Join, most_rows: usize) -> Result<Option<Plan>> {
    if other.kind.properties().kept != KeptRows::Matched {
        return Ok(None);
    }
    for own in &join.keys {
        for key in other.keys.iter().filter(|key| key.probe.eq(&own.probe)) {
            if let (Some(column), Some(of_other)) = (column_of(&own.build), column_of(&key.build))
                && is_alike((&join.plan, &own.build), (&other.plan, &key.build))?
                && let Some(reducer) = Reducer::of(&other.plan, of_other)?
                && reducer.rows <= most_rows
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
    /// Fewest rows, for each of its own, of a table for which it pays.
    rows_per_row: usize,
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
                    rows_per_row: ROWS_PER_KEY,
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
            // a join drops rows without a match: those that remain have a key of the other side
            for (other, key) in equal_columns(plan, input, origin)? {
                if let Some(other) = children.get(other) {
                    parts.push(Self::of(other, key)?);
                }
            }
            Ok(parts.into_iter().flatten().min_by_key(|part| part.rows))
        })
    }

    /// The values of a column in the rows that `relation` reads, without those that its filters and its joins with small
    /// filtered tables drop; `None` if there may be many, or others the next time. `reduced` is a join of the relation.
    /// `are_few` says that few rows are expected to pass the filters.
    fn of_probe_side(
        relation: &Relation,
        reduced: &Join,
        column: usize,
        are_few: bool,
    ) -> Result<Option<Self>> {
        let rows = num_rows(&relation.config).unwrap_or(0);
        let table = relation.source.table_schema().table_schema().fields().len();
        // operators may fail to number strings, and one row matches all rows or none
        let is_own = |expr: &Arc<dyn PhysicalExpr>| {
            let columns = collect_columns(expr);
            let is_own = columns.iter().all(|column| column.index() < table);
            is_own && !columns.is_empty() && !expr.is::<StringId>()
        };
        let mut joins = Vec::new();
        for join in &relation.joins {
            if join.kind.properties().kept == KeptRows::Matched
                && !std::ptr::eq(join, reduced)
                && join.keys.iter().all(|key| is_own(&key.probe))
                && scanned_rows(&join.plan)? <= rows / ROWS_PER_DIMENSION_ROW
                && is_filtered(&join.plan)?
                && is_repeatable(&join.plan)?
            {
                joins.push(join);
            }
        }
        let filters = relation.filters().of_table;
        if !are_few && filters.len() + joins.len() < LEAST_FILTERS {
            return Ok(None);
        }
        let plan = probe_keys(relation, filters, &joins, column)?;
        Ok(is_repeatable(&plan)?.then_some(Self {
            plan,
            column: 0,
            rows,
            rows_per_row: ROWS_PER_PROBE_ROW,
        }))
    }

    /// `plan` without rows whose value of a column is no key, restricted where its table is read; `None` if that is not
    /// possible, or does not pay: it does below groups, and if `always`.
    fn restrict(&self, plan: &Plan, column: usize, always: bool) -> Result<Option<Plan>> {
        self.restrict_below(plan, column, always.then_some(0))
    }

    /// As [`restrict`](Self::restrict), where `saved` are rows of which some need not be joined or grouped then, beside
    /// those of the table that the column is of. `None` if it does not pay.
    fn restrict_below(
        &self,
        plan: &Plan,
        column: usize,
        saved: Option<usize>,
    ) -> Result<Option<Plan>> {
        stack::grown(|| {
            if plan.fetch().is_some() {
                return Ok(None);
            }
            if plan.is::<DataSourceExec>() {
                let own = scan_of(plan).and_then(num_rows).unwrap_or(0);
                let is_much = |rows: usize| {
                    let is_known = (LEAST_ROWS..usize::MAX).contains(&rows);
                    is_known && rows / self.rows_per_row >= self.rows
                };
                // a small table is reduced by as small a one: others would have to be read for little
                let is_small = self.rows <= own;
                let pays = saved.is_some_and(|saved| is_much(own) || is_small && is_much(saved));
                return pays.then(|| self.semi_join(plan, column)).transpose();
            }
            let Some((input, column)) = origin(plan, column) else {
                return Ok(None);
            };
            let mut children: Vec<Plan> = plan.children().into_iter().cloned().collect();
            let Some(child) = children.get_mut(input) else {
                return Ok(None);
            };
            let saved = match plan.is::<AggregateExec>() {
                true => saved.max(Some(scanned_rows(plan)?)),
                false => saved,
            };
            if let Some(below) = self.restrict_below(child, column, saved)? {
                *child = below;
                return replaced(plan, children).map(Some);
            }
            // rows of the other side are dropped as well if they match no others
            for (other, of_other) in equal_columns(plan, input, column)? {
                if let Some(child) = children.get_mut(other)
                    && let Some(below) = self.restrict_below(child, of_other, saved)?
                {
                    *child = below;
                    return replaced(plan, children).map(Some);
                }
            }
            Ok(None)
        })
    }

    /// A semi join of a scan with the keys.
    fn semi_join(&self, scan: &Plan, column: usize) -> Result<Plan> {
        let column_of = |plan: &Plan, column: usize| -> Arc<dyn PhysicalExpr> {
            Arc::new(Column::new(plan.schema().field(column).name(), column))
        };
        let on = (column_of(&self.plan, self.column), column_of(scan, column));
        semi_join(Arc::clone(scan), &self.plan, vec![on])
    }
}

/// The inputs of a join, and their columns, which equal a column of `input` in rows of the join. The join has such a
/// column of `input`, see [`origin`].
fn equal_columns(plan: &Plan, input: usize, column: usize) -> Result<Vec<(usize, usize)>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(Vec::new());
    };
    let mut equal = Vec::new();
    for (left, right) in join.on() {
        let (own, other) = match input {
            0 => ((join.left(), left), (join.right(), right)),
            _ => ((join.right(), right), (join.left(), left)),
        };
        if column_of(own.1) == Some(column)
            && is_alike(own, other)?
            && let Some(of_other) = column_of(other.1)
        {
            equal.push((1 - input, of_other));
        }
    }
    Ok(equal)
}

/// A plan of the values of a column in those rows of a relation's table that pass `filters` and have a match in each of
/// `joins`.
fn probe_keys(
    relation: &Relation,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    joins: &[&Join],
    column: usize,
) -> Result<Plan> {
    let source = &relation.source;
    let predicate = source.filter().filter(|_| source.evaluates_filters());
    let of_scan = predicate.iter().flat_map(split_conjunction);
    let of_scan: Vec<_> = of_scan.collect();
    let filters: Vec<_> = filters
        .into_iter()
        .filter(|filter| !of_scan.contains(&filter))
        .collect();
    let keys = joins.iter().flat_map(|join| &join.keys);
    let used = keys.map(|key| &key.probe).chain(&filters);
    let used = used.flat_map(collect_columns).map(|column| column.index());
    let mut columns: Vec<usize> = used.chain([column]).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut plan = scan_of_table(&relation.config, source.fresh().with_columns(&columns));
    let own = |expr: &Arc<dyn PhysicalExpr>| {
        let renumbered = Arc::clone(expr).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let index = columns.iter().position(|used| *used == column.index());
            let column = Column::new(column.name(), index.unwrap_or_default());
            Ok(Transformed::yes(Arc::new(column) as _))
        });
        renumbered.data()
    };
    if !filters.is_empty() {
        let filters = filters.iter().map(own).collect::<Result<Vec<_>>>()?;
        plan = Arc::new(FilterExec::try_new(conjunction(filters), plan)?);
    }
    for join in joins {
        let keys = join.keys.iter();
        let keys = keys.map(|key| Ok((Arc::clone(&key.build), own(&key.probe)?)));
        plan = semi_join(plan, &join.plan, keys.collect::<Result<_>>()?)?;
    }
    let field = source.table_schema().table_schema().field(column);
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), column));
    let key = ProjectionExpr::new(own(&key)?, field.name().clone());
    Ok(Arc::new(ProjectionExec::try_new([key], plan)?))
}

/// The rows of a plan with a match in another one, which is much smaller. `on` are pairs of the other's key and its own.
fn semi_join(plan: Plan, other: &Plan, on: JoinOn) -> Result<Plan> {
    // operators keep state while they run, such as the files that are left to be read
    let joined = HashJoinExec::try_new(
        fresh(other)?,
        plan,
        on,
        None,
        &JoinType::RightSemi,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(Arc::new(joined))
}

/// The operator with other inputs.
pub(crate) fn replaced(plan: &Plan, children: Vec<Plan>) -> Result<Plan> {
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
pub(crate) fn scanned_rows(plan: &Plan) -> Result<usize> {
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
