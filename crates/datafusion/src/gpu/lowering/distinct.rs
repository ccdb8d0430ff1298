//! `count(DISTINCT x)` of groups, which DataFusion plans as a count over groups by `x`, too.
//!
//! The kernel has the groups of both. What is counted are their keys as the kernel has them, codes among them, so that
//! text is looked at only where it is a result.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::projection::ProjectionExec;
use vectile_gpu::plan::{GroupTotals, Groups, Numbers};

use super::grouping::Keys;
use crate::gpu::pattern::aggregates::Aggregates;
use crate::gpu::pattern::columns::over;
use crate::gpu::pattern::exchange::is_exchange;
use crate::gpu::reason::Reason;

/// A count of distinct values, as it is planned.
pub(crate) struct CountDistinct {
    /// That which has a group for each of the values.
    pub(crate) inner: Aggregates,
    /// The columns of its groups that the groups of the outer one are by.
    pub(crate) groups: Vec<usize>,
    /// The column that is counted.
    counted: usize,
}

impl CountDistinct {
    /// `None` if `outer` is something else.
    pub(crate) fn of(outer: &Aggregates) -> Result<Option<Self>, Reason> {
        let partial = outer.partial.as_ref();
        if !partial.group_expr().is_single() || partial.limit_options().is_some() {
            return Ok(None);
        }
        let mut exprs = Exprs::new();
        for (function, filter) in partial.aggr_expr().iter().zip(partial.filter_expr()) {
            let is_count = function.fun().inner().is::<Count>() && !function.is_distinct();
            let arguments = function.expressions();
            let [argument] = &arguments[..] else {
                return Ok(None);
            };
            if !is_count || filter.is_some() {
                return Ok(None);
            }
            exprs.push(Arc::clone(argument));
        }
        let counts = exprs.len();
        let keys = partial.group_expr().expr().iter();
        exprs.extend(keys.map(|(key, _)| Arc::clone(key)));
        let Some((inner, exprs)) = below(partial.input(), exprs)? else {
            return Ok(None);
        };
        let columns = exprs
            .iter()
            .map(|expr| Some(expr.downcast_ref::<Column>()?.index()));
        let Some(columns) = columns.collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let (counted, groups) = columns.split_at(counts);
        let Some(&first) = counted.first() else {
            return Ok(None);
        };
        let all = inner.partial.group_expr().expr().len();
        let covers = (0..all).all(|column| column == first || groups.contains(&column));
        let is_one = counted.iter().all(|column| *column == first) && !groups.contains(&first);
        Ok((covers && is_one && !groups.is_empty()).then(|| Self {
            inner,
            groups: groups.to_vec(),
            counted: first,
        }))
    }
}

type Exprs = Vec<Arc<dyn PhysicalExpr>>;

/// The aggregate without functions that the columns of `exprs` come from, and these over its columns.
fn below(
    plan: &Arc<dyn ExecutionPlan>,
    exprs: Exprs,
) -> Result<Option<(Aggregates, Exprs)>, Reason> {
    if plan.fetch().is_some() {
        return Ok(None);
    }
    if let Some(aggregates) = Aggregates::of(plan) {
        let has_no_functions = |of: &AggregateExec| of.aggr_expr().is_empty();
        let is_whole = aggregates.partial.limit_options().is_none();
        let is_distinct = has_no_functions(&aggregates.partial) && is_whole;
        return Ok(is_distinct.then_some((aggregates, exprs)));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let exprs = exprs.iter().map(|expr| over(expr, projection.expr()));
        return below(projection.input(), exprs.collect::<Result<_, Reason>>()?);
    }
    match plan.children()[..] {
        [input] if is_exchange(plan) => below(input, exprs),
        _ => Ok(None),
    }
}

/// How the kernel's groups become those that are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Regrouping {
    /// The kernel's keys that stay.
    keys: Vec<usize>,
    /// The key whose values are counted.
    counted: usize,
    /// Counts that are wanted.
    counts: usize,
}

impl Regrouping {
    /// That of a count, by the keys of all of its groups, and the keys of those that are wanted.
    pub(crate) fn of(
        count: &CountDistinct,
        all: &Keys,
        counts: usize,
    ) -> Result<(Self, Keys), Reason> {
        let wanted = all.some(&count.groups);
        let [counted] = all.some(&[count.counted]).of_columns()[..] else {
            return Err(Reason::Failed("a count of no key".into()));
        };
        let keys = wanted.of_columns();
        if keys.contains(&counted) {
            // attributes of one dimension have one code
            return Err(Reason::GroupKey(
                "attributes of a table of which one is counted".into(),
            ));
        }
        let of = Self {
            keys,
            counted,
            counts,
        };
        Ok((of, wanted))
    }

    /// The groups that are wanted, of all that there are.
    pub(crate) fn regrouped(&self, groups: &Groups) -> Result<Groups> {
        let key = |number: &usize| {
            let key = groups.keys.get(*number).cloned();
            key.ok_or_else(|| internal_datafusion_err!("no key {number}"))
        };
        let keys: Vec<ArrayRef> = self.keys.iter().map(key).collect::<Result<_>>()?;
        let fields = keys
            .iter()
            .map(|key| Field::new("key", key.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut distinct = new_group_values(schema, &GroupOrdering::None)?;
        let mut numbers = Vec::new();
        distinct.intern(&keys, &mut numbers)?;
        let counted = key(&self.counted)?;
        let mut counts = vec![0u64; distinct.len()];
        for (row, &number) in numbers.iter().enumerate() {
            if let Some(count) = counts.get_mut(number) {
                *count += u64::from(counted.is_valid(row));
            }
        }
        // at their places among the kernel's
        let count = counts.len();
        let all = groups.keys.iter();
        let mut all: Vec<ArrayRef> = all
            .map(|key| new_null_array(key.data_type(), count))
            .collect();
        if count > 0 {
            for (number, values) in self.keys.iter().zip(distinct.emit(EmitTo::All)?) {
                if let Some(key) = all.get_mut(*number) {
                    *key = values;
                }
            }
        }
        let totals = GroupTotals {
            counts,
            values: Numbers::Int(vec![]),
        };
        Ok(Groups {
            count,
            keys: all,
            totals: vec![totals; self.counts],
        })
    }
}
