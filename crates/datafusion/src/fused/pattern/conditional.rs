//! Semi and anti joins with a filter beside their keys: `EXISTS (SELECT .. WHERE d.k = f.k AND d.x <> f.y)`.
//!
//! A lookup finds one row for a key. If the keys of the build side are unique, the join filter becomes a filter on that
//! row. Otherwise it may follow from the minimum and maximum of each key: some `x` of a key is larger than `y` if the
//! maximum is, and some `x` differs from `y` if the minimum or the maximum does. The build side then becomes an
//! aggregate by its keys. For other filters, kernels evaluate the filter per match.
//!
//! A mark join keeps all rows, and adds a column that is true if the join would keep the row: `EXISTS (..) OR f.y > 3`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, IsNotNullExpr, Literal,
};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::projection::ProjectionExec;
use vectile_pipeline::Type;

use super::aggregates::grouped;
use super::columns::substituted;
use super::exchange::without_exchange;
use super::join::Sides;
use crate::fused::fallback_reason::FallbackReason;

type Expr = Arc<dyn PhysicalExpr>;

/// A build side with unique keys, and the filter that the row of a key must meet.
pub(super) struct Conditional {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    /// Over the schema of `plan`, in the order of the join's keys.
    pub(super) keys: Vec<Expr>,
    /// Over `columns`.
    condition: Expr,
    /// The columns of the condition, by side.
    columns: Vec<SideColumn>,
}

/// A column of one side of the join, by its index there.
#[derive(Clone, Copy)]
enum SideColumn {
    Probe(usize),
    Build(usize),
}

impl Conditional {
    /// Converts a semi or anti join with a filter; `None` for other joins, and if one row of a key does not decide the
    /// filter.
    pub(super) fn of(
        join: &HashJoinExec,
        sides: &Sides<'_>,
    ) -> Result<Option<Self>, FallbackReason> {
        let Some(filter) = join.filter() else {
            return Ok(None);
        };
        if sides.kind.properties().adds_columns {
            return Ok(None);
        }
        let plan = Arc::clone(without_exchange(sides.build_plan));
        let keys: Vec<Expr> = sides.keys.iter().map(|(_, key)| Arc::clone(key)).collect();
        let side_column = |of: &ColumnIndex| match of.side == sides.probe {
            true => SideColumn::Probe(of.index),
            false => SideColumn::Build(of.index),
        };
        let all = Self {
            columns: filter.column_indices().iter().map(side_column).collect(),
            condition: Arc::clone(filter.expression()),
            plan,
            keys,
        };
        match is_unique_by(&all.plan, &all.keys) {
            true => Ok(Some(all)),
            false => all.by_min_max(filter),
        }
    }

    /// Converts a mark join, whose mark tells if a row has a match. Without a filter, the build side is reduced to
    /// unique keys.
    pub(super) fn of_mark(join: &HashJoinExec, sides: &Sides<'_>) -> Result<Self, FallbackReason> {
        if join.filter().is_some() {
            let reason = "a mark join with a condition on both sides";
            return Self::of(join, sides)?.ok_or_else(|| FallbackReason::Join(reason.into()));
        }
        let plan = without_exchange(sides.build_plan);
        let keys: Vec<Expr> = sides.keys.iter().map(|(_, key)| Arc::clone(key)).collect();
        let (plan, keys) = match is_unique_by(plan, &keys) {
            true => (Arc::clone(plan), keys),
            false => {
                let plan = grouped(Arc::clone(plan), &keys, vec![])?;
                let keys = columns_in_front(&plan, keys.len());
                (plan, keys)
            }
        };
        Ok(Self {
            plan,
            keys,
            condition: Arc::new(Literal::new(true.into())),
            columns: vec![],
        })
    }

    /// The condition, over the probe side's columns `own` and the build side's columns `added`.
    pub(super) fn condition(
        &self,
        own: &[ProjectionExpr],
        added: &[ProjectionExpr],
    ) -> Result<Expr, FallbackReason> {
        let columns = self.columns.iter().map(|column| {
            let column = match *column {
                SideColumn::Probe(index) => own.get(index),
                SideColumn::Build(index) => added.get(index),
            };
            column.cloned().ok_or_else(no_column)
        });
        substituted(&self.condition, &columns.collect::<Result<Vec<_>, _>>()?)
    }

    /// An expression that is true if there is no match or the condition is not true. The key of a missing row is null.
    pub(super) fn is_unmet(
        &self,
        added: &[ProjectionExpr],
        condition: Expr,
    ) -> Result<Expr, FallbackReason> {
        let key = self.keys.first().ok_or_else(no_column)?;
        let is_there: Expr = Arc::new(IsNotNullExpr::new(substituted(key, added)?));
        let is_met: Expr = Arc::new(BinaryExpr::new(is_there, Operator::And, condition));
        let truth = |value: bool| Arc::new(Literal::new(value.into())) as Expr;
        let branches = vec![(is_met, truth(false))];
        Ok(Arc::new(CaseExpr::try_new(
            None,
            branches,
            Some(truth(true)),
        )?))
    }

    /// Converts the condition to one on the minimum and maximum of each key; `None` if they do not decide it.
    fn by_min_max(self, filter: &JoinFilter) -> Result<Option<Self>, FallbackReason> {
        let (mut of_build, mut of_probe, mut of_both) = (vec![], vec![], vec![]);
        for conjunct in split_conjunction(&self.condition) {
            let columns = collect_columns(conjunct);
            let used = columns
                .iter()
                .map(|column| self.columns.get(column.index()));
            let used: Vec<SideColumn> = used
                .map(|column| column.copied().ok_or_else(no_column))
                .collect::<Result<_, _>>()?;
            let has_probe = used
                .iter()
                .any(|column| matches!(column, SideColumn::Probe(_)));
            let has_build = used
                .iter()
                .any(|column| matches!(column, SideColumn::Build(_)));
            match (has_probe, has_build) {
                (false, true) => of_build.push(self.over_build_side(conjunct)?),
                (true, true) => of_both.push(conjunct),
                _ => of_probe.push(Arc::clone(conjunct)),
            }
        }
        let [compared] = of_both[..] else {
            return Ok(None);
        };
        let Some(compared) = compared.downcast_ref::<BinaryExpr>() else {
            return Ok(None);
        };
        let is_of = |expr: &Expr, of_build: bool| {
            let columns = collect_columns(expr);
            let mut used = columns
                .iter()
                .filter_map(|column| self.columns.get(column.index()));
            !columns.is_empty()
                && used.all(|column| matches!(column, SideColumn::Build(_)) == of_build)
        };
        let (left, right) = (compared.left(), compared.right());
        let (own, operator, other) = match (is_of(left, false), is_of(right, false)) {
            (true, false) if is_of(right, true) => (left, *compared.op(), right),
            (false, true) if is_of(left, true) => {
                let Some(swapped) = compared.op().swap() else {
                    return Ok(None);
                };
                (right, swapped, left)
            }
            _ => return Ok(None),
        };
        let input = match of_build.is_empty() {
            true => Arc::clone(&self.plan),
            false => Arc::new(FilterExec::try_new(
                conjunction(of_build),
                Arc::clone(&self.plan),
            )?) as _,
        };
        let data_type = own.data_type(filter.schema())?;
        if Type::of(&data_type).is_none_or(Type::is_float) || data_type == DataType::Boolean {
            return Ok(None);
        }
        let plan = min_max_by(input, &self.keys, &self.over_build_side(other)?)?;
        let (smallest, largest) = (self.keys.len(), self.keys.len() + 1);
        // The columns of the condition, followed by minimum and maximum.
        let mut columns = self.columns.clone();
        let first = columns.len();
        columns.extend([SideColumn::Build(smallest), SideColumn::Build(largest)]);
        let bound =
            |index: usize| Arc::new(Column::new(["min", "max"][index], first + index)) as Expr;
        let compare = |operator, bound: Expr| {
            Arc::new(BinaryExpr::new(Arc::clone(own), operator, bound)) as Expr
        };
        let met = match operator {
            Operator::NotEq => Arc::new(BinaryExpr::new(
                compare(Operator::NotEq, bound(0)),
                Operator::Or,
                compare(Operator::NotEq, bound(1)),
            )),
            Operator::Gt | Operator::GtEq => compare(operator, bound(0)),
            Operator::Lt | Operator::LtEq => compare(operator, bound(1)),
            _ => return Ok(None),
        };
        of_probe.push(met);
        Ok(Some(Self {
            keys: columns_in_front(&plan, self.keys.len()),
            plan,
            condition: conjunction(of_probe),
            columns,
        }))
    }

    /// Rewrites an expression over columns of the build side alone to one over its schema.
    fn over_build_side(&self, expr: &Expr) -> Result<Expr, FallbackReason> {
        let schema = self.plan.schema();
        let columns = self.columns.iter().map(|column| {
            let index = match *column {
                SideColumn::Build(index) => index,
                // There are no such columns in `expr`.
                SideColumn::Probe(_) => 0,
            };
            let field = schema.fields().get(index).ok_or_else(no_column)?;
            let column = Column::new(field.name(), index);
            Ok(ProjectionExpr::new(Arc::new(column), field.name().clone()))
        });
        substituted(expr, &columns.collect::<Result<Vec<_>, FallbackReason>>()?)
    }
}

/// The first `count` columns of a plan.
fn columns_in_front(plan: &Arc<dyn ExecutionPlan>, count: usize) -> Vec<Expr> {
    let schema = plan.schema();
    let fields = schema.fields().iter().zip(0..count);
    let columns = fields.map(|(field, index)| Arc::new(Column::new(field.name(), index)) as Expr);
    columns.collect()
}

fn no_column() -> FallbackReason {
    FallbackReason::Defect("a condition on a column that is not there".into())
}

/// Plans the minimum and maximum of an expression for each key.
fn min_max_by(
    input: Arc<dyn ExecutionPlan>,
    keys: &[Expr],
    of: &Expr,
) -> Result<Arc<dyn ExecutionPlan>, FallbackReason> {
    let schema = input.schema();
    let functions = [("min", min_udaf()), ("max", max_udaf())].map(|(name, function)| {
        let builder = AggregateExprBuilder::new(function, vec![Arc::clone(of)]);
        let builder = builder.schema(Arc::clone(&schema)).alias(name);
        builder.build().map(Arc::new)
    });
    let functions = functions.into_iter();
    let functions = functions.collect::<datafusion::common::Result<Vec<_>>>()?;
    Ok(grouped(input, keys, functions)?)
}

/// Returns true if the keys of `plan` are known to be unique: an aggregate groups by some of them.
fn is_unique_by(plan: &Arc<dyn ExecutionPlan>, keys: &[Expr]) -> bool {
    let columns = keys
        .iter()
        .filter_map(|key| Some(key.downcast_ref::<Column>()?.index()));
    has_groups_of(plan, &columns.collect::<Vec<_>>())
}

fn has_groups_of(plan: &Arc<dyn ExecutionPlan>, columns: &[usize]) -> bool {
    let plan = without_exchange(plan);
    if plan.fetch().is_some() {
        return false;
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = columns.iter().filter_map(|&column| {
            let projected = projection.expr().get(column)?;
            Some(projected.expr.downcast_ref::<Column>()?.index())
        });
        return has_groups_of(projection.input(), &below.collect::<Vec<_>>());
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let below = columns
            .iter()
            .filter_map(|&column| match filter.projection() {
                Some(kept) => kept.get(column).copied(),
                None => Some(column),
            });
        return has_groups_of(filter.input(), &below.collect::<Vec<_>>());
    }
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
        return false;
    };
    let is_last = !matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::PartialReduce
    );
    let groups = aggregate.group_expr();
    let mut all = 0..groups.expr().len();
    is_last && groups.is_single() && all.all(|group| columns.contains(&group))
}
