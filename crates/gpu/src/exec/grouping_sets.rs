//! Grouping sets: groups by some of the keys, made on the device of the groups by all keys.

use super::execution::{Execution, Prepared};
use super::group_table::GroupTable;
use super::groups::bytes_of_group;
use super::post_aggregation::Columns;
use crate::error::{Error, Result};
use crate::kernel::Accumulator;
use crate::runtime::Batch;
use vectile_pipeline::{
    Aggregate, Comparison, Expr, GroupColumn, GroupKey, GroupTotals, Groups, Literal, Numbers,
    Output, Type, parallel,
};

impl Execution {
    /// As [`Execution::group`], for a batch that holds all rows, by each of several sets of keys. A set has the indices
    /// of some keys, in ascending order. For each set, returns its groups, perhaps in parts, with the keys of the set.
    ///
    /// # Errors
    ///
    /// As [`Execution::group`]; [`Error::Unsupported`] if computing all groups takes several launches, for floats, and
    /// for counts of distinct values.
    pub fn group_sets(
        &mut self,
        batch: &Batch,
        sets: &[Vec<usize>],
        mut reserve: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Vec<Groups>>> {
        self.watch(|this| {
            let (prepared, table) = this.all_groups(batch)?;
            this.is_one_launch = true;
            let digits = prepared.bindings.digits().len();
            let group_bytes = bytes_of_group(table.layout.accumulators.results.len(), digits);
            let mut held = 0_usize;
            let sets = sets.iter().map(|keys| {
                let mut more = |bytes: usize| reserve(bytes.saturating_add(held));
                let mut groups = this.groups_by(&prepared, &table, keys, &mut more)?;
                let count: usize = groups.iter().map(|groups| groups.count).sum();
                held = held.saturating_add(count.saturating_mul(group_bytes));
                groups
                    .iter_mut()
                    .try_for_each(|groups| this.set_text(groups))?;
                Ok(groups)
            });
            sets.collect()
        })
    }

    /// The groups by the keys with these indices, made of the groups of a table.
    fn groups_by(
        &mut self,
        prepared: &Prepared,
        table: &GroupTable,
        keys: &[usize],
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        if keys.len() == prepared.bindings.digits().len() {
            return self.on_device(prepared, table, None, reserve);
        }
        let columns = self.columns(prepared, table)?;
        let of_keys = keys.iter().map(|&key| {
            let value = columns.column(GroupColumn::Key(key, Type::I64))?;
            Ok(GroupKey::Value(value))
        });
        let of_keys = of_keys.collect::<Result<_>>()?;
        let output = Output::Groups(of_keys, merges(&columns)?);
        let (most, has_parts) = (self.most_groups, self.has_parts);
        let passing = [columns.has_rows()];
        let parts = self.then(&columns, &passing, output, |next, batch| {
            next.has_parts = has_parts;
            next.limit_groups(most);
            let parts = next.group(batch, &mut *reserve)?;
            match next.groups_are_distinct() {
                true => Ok(parts),
                false => Err(Error::Unsupported("groups of several launches".into())),
            }
        })?;
        let threads = self.threads_for_parts(parts.iter().map(|part| part.count).sum());
        let parts = parallel::map(threads, parts, |part| {
            let Groups {
                count,
                keys: values,
                totals,
            } = part;
            let keys = keys.iter().zip(&values);
            let keys = keys.map(|(&key, values)| self.as_key(&columns, key, values));
            Ok(Groups {
                count,
                keys: keys.collect::<Result<_>>()?,
                totals: merged(&columns, totals)?,
            })
        });
        parts.into_iter().collect()
    }
}

/// For each aggregate of the table: the sum of its counts and, if it has a value, what merges its values.
fn merges(columns: &Columns<'_>) -> Result<Vec<Aggregate>> {
    let accumulators = &columns.layout.accumulators;
    let mut merges = vec![];
    for (number, result) in accumulators.results.iter().enumerate() {
        let (count, value) = columns.result(number)?;
        if accumulators.all[result.count].accumulator == Accumulator::DistinctCount {
            return Err(Error::Unsupported("coarser sets of distinct values".into()));
        }
        merges.push(Aggregate::Sum(count.clone()));
        let (Some(value), Some(at)) = (value, result.value) else {
            continue;
        };
        let zero = Expr::Literal(Literal::Int(0, Type::I64));
        let has_value = Expr::compare(Comparison::Greater, count, zero);
        let some = |value| Expr::case(vec![(has_value, value)], None);
        merges.push(match accumulators.all[at].accumulator {
            Accumulator::Sum { .. } => Aggregate::Sum(value),
            Accumulator::Min(of) if !of.is_float() => Aggregate::Min(some(value)),
            Accumulator::Max(of) if !of.is_float() => Aggregate::Max(some(value)),
            _ => return Err(Error::Unsupported("coarser groups of floats".into())),
        });
    }
    Ok(merges)
}

/// The results of the table's aggregates, from those of [`merges`].
fn merged(columns: &Columns<'_>, totals: Vec<GroupTotals>) -> Result<Vec<GroupTotals>> {
    let mut totals = totals.into_iter().map(|totals| totals.values);
    let mut next = || {
        let next = totals.next();
        next.ok_or_else(|| Error::Internal("too few totals of a set".into()))
    };
    let results = columns.layout.accumulators.results.iter();
    let results = results.map(|result| {
        let Numbers::Int(counts) = next()? else {
            return Err(Error::Internal("counts that are no integers".into()));
        };
        Ok(GroupTotals {
            counts: counts.into_iter().map(|count| count as u64).collect(),
            values: match result.value {
                None => Numbers::Int(vec![]),
                Some(_) => next()?,
            },
        })
    });
    results.collect()
}
