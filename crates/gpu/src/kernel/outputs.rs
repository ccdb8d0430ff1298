//! Plans outputs without groups: rows that are written, and totals.

use super::accumulator::{Accumulator, Accumulators, ResultSlots};
use super::aggregates::Collected;
use super::columns::{columns_of_expr, columns_of_nulls, lookups_of_expr, loops};
use super::loops::LaneOrder;
use super::plan::{OutputPlan, SparseAccess};
use super::planner::Planner;
use super::task::AccumulationScope;
use crate::error::{Error, Result};
use vectile_kernels::{ColumnTraits, Transform};
use vectile_pipeline::{Aggregate, Expr, Op, Type};

/// Bits of the maximum number of rows that a thread processes in a launch.
const THREAD_ROWS_BITS: u32 = 20;

impl Planner<'_> {
    pub fn rows(&mut self, exprs: &[Expr], all: bool) -> Result<OutputPlan> {
        let (mut computed, mut indices, mut copied) = (vec![], vec![], vec![]);
        let (mut null_columns, mut lookups) = (vec![], vec![]);
        for expr in exprs {
            columns_of_nulls(expr, &mut null_columns);
            lookups_of_expr(expr, &mut lookups);
        }
        // a column of strings may be the key of a lookup, too
        let keys = lookups
            .iter()
            .filter_map(|lookup| self.pipeline.lookups.get(*lookup));
        null_columns.extend(keys.map(|lookup| lookup.column));
        for (index, expr) in exprs.iter().enumerate() {
            if let Some(column) = self.pipeline.strings(expr) {
                // strings have kernels of their own: this one reads only their nulls, if anything
                if !null_columns.contains(&column) {
                    self.columns[column].traits = ColumnTraits::default();
                }
                continue;
            }
            match expr {
                // columns without nulls are copied without a loop if all rows are output, except those of 128 bits:
                // there residuals of 32 bits cannot be copied
                Expr::Column(column)
                    if all
                        && !self.columns[*column].traits.nullable()
                        && self.type_of(*column)? != Type::I128 =>
                {
                    copied.push((index, *column));
                    self.read_by_row(*column, false);
                }
                _ => {
                    computed.push(expr.clone());
                    indices.push(index);
                }
            }
        }
        let mut planned = vec![];
        for together in loops(&computed) {
            let indices = together.iter().map(|expr| indices[*expr]).collect();
            let exprs: Vec<Expr> = together.iter().map(|e| computed[*e].clone()).collect();
            planned.push((self.row_loop(&exprs, &[], LaneOrder::Together)?, indices));
        }
        Ok(OutputPlan::Rows {
            columns: exprs.len(),
            copied,
            loops: planned,
        })
    }

    /// Plans the lengths of strings of the only column. The kernel does not depend on the column's bit widths.
    pub fn lengths(&mut self) -> Result<OutputPlan> {
        let [column] = &mut self.columns[..] else {
            let reason = "strings of several columns";
            return Err(Error::Internal(reason.into()));
        };
        if column.traits.has_only(Transform::Text) {
            column.traits.widths = 0;
        }
        Ok(OutputPlan::Lengths)
    }

    /// The column of integers that an aggregate sums, if it is such a sum.
    fn summed(&self, aggregate: &Aggregate) -> Option<usize> {
        let Aggregate::Sum(expr) = aggregate else {
            return None;
        };
        let mut expr = expr;
        while let Expr::Op(Op::Cast(_), operands) = expr
            && let [part] = &operands[..]
        {
            expr = part;
        }
        let Expr::Column(column) = expr else {
            return None;
        };
        let traits = &self.columns[*column].traits;
        (traits.has_only(Transform::Integers) && !traits.is_wide()).then_some(*column)
    }

    /// Partitions expressions into loops; returns their indices, and the column if a loop only sums its values: such
    /// sums have loops of their own.
    fn loops_of_totals(
        &self,
        exprs: &[Expr],
        indices: &[usize],
        aggregates: &[Aggregate],
    ) -> Vec<(Vec<usize>, Option<usize>)> {
        let columns_of = |expr: &Expr| {
            let mut columns = vec![];
            columns_of_expr(expr, &mut columns);
            columns
        };
        let summed = indices.iter().map(|index| self.summed(&aggregates[*index]));
        let summed: Vec<Option<usize>> = summed.collect();
        let others = exprs.iter().zip(&summed);
        let others = others.filter(|(_, summed)| summed.is_none());
        let others: Vec<usize> = others.flat_map(|(expr, _)| columns_of(expr)).collect();
        let mut alone: Vec<(Vec<usize>, Option<usize>)> = vec![];
        let (mut rest, mut of_rest) = (vec![], vec![]);
        for (expr, summed) in summed.into_iter().enumerate() {
            match summed {
                Some(column) if !others.contains(&column) => {
                    match alone.iter_mut().find(|(_, known)| *known == summed) {
                        Some((together, _)) => together.push(expr),
                        None => alone.push((vec![expr], summed)),
                    }
                }
                _ => {
                    rest.push(exprs[expr].clone());
                    of_rest.push(expr);
                }
            }
        }
        let rest = loops(&rest).into_iter();
        let rest = rest.map(|together| together.into_iter().map(|expr| of_rest[expr]).collect());
        alone
            .into_iter()
            .chain(rest.map(|together| (together, None)))
            .collect()
    }

    pub fn totals(&mut self, aggregates: &[Aggregate]) -> Result<OutputPlan> {
        let (mut exprs, mut indices) = (vec![], vec![]);
        let is_combined = !self.pipeline.matches.is_empty();
        for (index, aggregate) in aggregates.iter().enumerate() {
            match (aggregate, aggregate.argument()) {
                // rows, and a column's values, are counted without a loop
                (_, None) => {}
                (Aggregate::Count(Expr::Column(_)), _) if !is_combined => {}
                (_, Some(expr)) => {
                    exprs.push(expr.clone());
                    indices.push(index);
                }
            }
        }
        let mut collected = Collected::new(THREAD_ROWS_BITS + self.pipeline.combination_bits());
        let of_rows = ResultSlots {
            count: 0,
            value: None,
        };
        let mut results = vec![of_rows; aggregates.len()];
        let mut planned = vec![];
        let loops = match is_combined {
            false => self.loops_of_totals(&exprs, &indices, aggregates),
            // the loop counts rows, too
            true => vec![((0..exprs.len()).collect(), None)],
        };
        for (together, summed) in loops {
            let values: Vec<Expr> = together.iter().map(|expr| exprs[*expr].clone()).collect();
            let indices: Vec<usize> = together.iter().map(|expr| indices[*expr]).collect();
            let order = self.lane_order(indices.iter().map(|index| &aggregates[*index]));
            let mut rows = self.combined_loop(&values, &[], order)?;
            let first = collected.all.len();
            for (argument, (index, value)) in indices.iter().zip(&rows.exprs).enumerate() {
                results[*index] = collected.add(&aggregates[*index], value, argument);
            }
            let all = first..collected.all.len();
            let mut slots = collected.all[all.clone()].iter();
            // if few rows remain, they are read one by one
            if rows.access != SparseAccess::All && slots.all(|slot| slot.accumulator.is_of_words())
            {
                rows.summed = summed;
                if summed.is_some() && self.conjuncts().is_empty() {
                    rows.access = SparseAccess::Never;
                }
            }
            planned.push((rows, all));
        }
        let mut counts = vec![];
        for (aggregate, result) in aggregates.iter().zip(&mut results) {
            if let Aggregate::Count(Expr::Column(column)) = aggregate
                && !is_combined
                && self.columns[*column].traits.nullable()
            {
                result.count = collected.push(Accumulator::count(THREAD_ROWS_BITS), None);
                counts.push((result.count, *column));
            }
        }
        let accumulators = Accumulators {
            all: collected.all,
            results,
        };
        if accumulators.are_ordered() {
            self.per = AccumulationScope::Slot;
        }
        Ok(OutputPlan::Totals {
            accumulators,
            loops: planned,
            counts,
        })
    }
}
