//! `count(DISTINCT x)` of groups, which DataFusion plans as a count over groups by `x`, too.
//!
//! The kernel has the groups of both. The CPU counts their keys as they come from the kernel, codes among them, so that it
//! looks at text only where that is a result.

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
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
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
    /// The aggregate that has a group for each of the values.
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
    /// Makes it for a count, of which `all` are the keys. Also gives the keys of the groups that are wanted.
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

    /// The groups that are wanted, of all that there are. Those of several launches may have some in common.
    pub(crate) fn regrouped(&self, all: &[Groups]) -> Result<Groups> {
        let Some(one) = all.first() else {
            return Ok(Groups {
                count: 0,
                keys: vec![],
                totals: vec![],
            });
        };
        let mut distinct = self.group_values(one, false)?;
        let mut seen = match all.len() {
            1 => None,
            _ => Some(self.group_values(one, true)?),
        };
        let (mut numbers, mut of_seen) = (Vec::new(), Vec::new());
        let mut counts = Vec::new();
        for groups in all {
            numbers.clear();
            of_seen.clear();
            let known = match &mut seen {
                None => 0,
                Some(seen) => {
                    let known = seen.len();
                    seen.intern(&self.keys_of(groups, true)?, &mut of_seen)?;
                    known
                }
            };
            distinct.intern(&self.keys_of(groups, false)?, &mut numbers)?;
            counts.resize(distinct.len(), 0u64);
            let counted = key(groups, self.counted)?;
            for (row, &number) in numbers.iter().enumerate() {
                let is_new = of_seen.get(row).is_none_or(|seen| *seen >= known);
                if let Some(count) = counts.get_mut(number) {
                    *count += u64::from(is_new && counted.is_valid(row));
                }
            }
        }
        // at their places among the kernel's
        let count = counts.len();
        let keys = one.keys.iter();
        let mut keys: Vec<ArrayRef> = keys
            .map(|key| new_null_array(key.data_type(), count))
            .collect();
        if count > 0 {
            for (number, values) in self.keys.iter().zip(distinct.emit(EmitTo::All)?) {
                if let Some(key) = keys.get_mut(*number) {
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
            keys,
            totals: vec![totals; self.counts],
        })
    }

    /// The keys of groups that stay, and that which is counted.
    fn keys_of(&self, groups: &Groups, with_counted: bool) -> Result<Vec<ArrayRef>> {
        let counted = with_counted.then_some(&self.counted);
        let keys = self.keys.iter().chain(counted);
        keys.map(|number| key(groups, *number).cloned()).collect()
    }

    /// None of such keys.
    fn group_values(&self, like: &Groups, with_counted: bool) -> Result<Box<dyn GroupValues>> {
        let keys = self.keys_of(like, with_counted)?;
        let fields = keys
            .iter()
            .map(|key| Field::new("key", key.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        new_group_values(schema, &GroupOrdering::None)
    }
}

fn key(groups: &Groups, number: usize) -> Result<&ArrayRef> {
    let key = groups.keys.get(number);
    key.ok_or_else(|| internal_datafusion_err!("no key {number}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int32Array, UInt32Array};
    use arrow::datatypes::UInt32Type;

    use super::*;

    /// Groups by a code and a number, which is counted.
    fn groups(codes: &[u32], numbers: &[Option<i32>]) -> Groups {
        Groups {
            count: codes.len(),
            keys: vec![
                Arc::new(Int32Array::from(numbers.to_vec())),
                Arc::new(UInt32Array::from(codes.to_vec())),
            ],
            totals: vec![],
        }
    }

    fn counted(all: &[Groups]) -> Vec<(u32, u64)> {
        let regrouping = Regrouping {
            keys: vec![1],
            counted: 0,
            counts: 1,
        };
        let groups = regrouping.regrouped(all).unwrap();
        let codes = groups.keys[1].as_primitive::<UInt32Type>().values().iter();
        assert_eq!(groups.keys[0].len(), groups.count);
        codes
            .copied()
            .zip(groups.totals[0].counts.iter().copied())
            .collect()
    }

    #[test]
    fn values_are_counted_once_and_nulls_are_not() {
        let one = groups(&[7, 3, 7, 7], &[Some(1), None, Some(2), None]);
        assert_eq!(counted(&[one]), [(7, 2), (3, 0)]);
    }

    #[test]
    fn what_several_launches_have_counts_once() {
        let first = groups(&[7, 3, 7], &[Some(1), Some(1), Some(2)]);
        let second = groups(&[3, 7, 9, 7], &[Some(1), Some(5), Some(1), Some(1)]);
        assert_eq!(counted(&[first, second]), [(7, 3), (3, 1), (9, 1)]);
    }

    #[test]
    fn there_may_be_no_groups() {
        let regrouping = Regrouping {
            keys: vec![1],
            counted: 0,
            counts: 1,
        };
        assert_eq!(regrouping.regrouped(&[]).unwrap().count, 0);
        assert_eq!(regrouping.regrouped(&[groups(&[], &[])]).unwrap().count, 0);
    }
}
