//! What becomes of the rows that pass, without groups: they are written, or added up.

use super::accumulator::{Accumulator, Accumulators, Outcome};
use super::aggregates::Collected;
use super::columns::{argument_of, columns_of_nulls, loops};
use super::loops::Walk;
use super::plan::OutputPlan;
use super::planner::Planner;
use super::task::Per;
use crate::error::{Error, Result};
use crate::plan::{Aggregate, Expr, Type};
use vectile_kernels::{ColumnTraits, Transform};

/// Rows of a launch that a thread sees, at most, as bits.
const THREAD_ROWS_BITS: u32 = 20;

impl Planner<'_> {
    pub fn rows(&mut self, exprs: &[Expr], all: bool) -> Result<OutputPlan> {
        let (mut computed, mut places, mut copied) = (vec![], vec![], vec![]);
        let mut asked = vec![];
        exprs
            .iter()
            .for_each(|expr| columns_of_nulls(expr, &mut asked));
        for (place, expr) in exprs.iter().enumerate() {
            if let Some(column) = self.pipeline.strings(expr) {
                // they have kernels of their own: nothing of the column is in this one, but for its nulls
                if !asked.contains(&column) {
                    self.columns[column].traits = ColumnTraits::default();
                }
                continue;
            }
            match expr {
                // columns without nulls of which every row is wanted need no loop, but those of 128 bits: residuals of
                // 32 bits are not copied to such
                Expr::Column(column)
                    if all
                        && !self.columns[*column].traits.nullable()
                        && self.type_of(*column)? != Type::I128 =>
                {
                    copied.push((place, *column));
                }
                _ => {
                    computed.push(expr.clone());
                    places.push(place);
                }
            }
        }
        let mut planned = vec![];
        for together in loops(&computed) {
            let places = together.iter().map(|expr| places[*expr]).collect();
            let exprs: Vec<Expr> = together.iter().map(|e| computed[*e].clone()).collect();
            planned.push((self.row_loop(&exprs, &[], Walk::Together)?, places));
        }
        Ok(OutputPlan::Rows {
            columns: exprs.len(),
            copied,
            loops: planned,
        })
    }

    /// Lengths of strings of the only column. That they differ in width is no reason for another kernel.
    pub fn lengths(&mut self) -> Result<OutputPlan> {
        let [column] = &mut self.columns[..] else {
            let reason = "strings of several columns";
            return Err(Error::Unsupported(reason.into()));
        };
        if column.traits.has_only(Transform::Text) {
            column.traits.widths = 0;
        }
        Ok(OutputPlan::Lengths)
    }

    pub fn totals(&mut self, aggregates: &[Aggregate]) -> Result<OutputPlan> {
        let (mut exprs, mut places) = (vec![], vec![]);
        for (place, aggregate) in aggregates.iter().enumerate() {
            match (aggregate, argument_of(aggregate)) {
                // rows, and a column's values, are counted without a loop
                (Aggregate::Count(Expr::Column(_)), _) | (_, None) => {}
                (_, Some(expr)) => {
                    exprs.push(expr.clone());
                    places.push(place);
                }
            }
        }
        let mut collected = Collected::new(THREAD_ROWS_BITS);
        let of_rows = Outcome {
            count: 0,
            value: None,
        };
        let mut results = vec![of_rows; aggregates.len()];
        let mut planned = vec![];
        for together in loops(&exprs) {
            let values: Vec<Expr> = together.iter().map(|expr| exprs[*expr].clone()).collect();
            let places: Vec<usize> = together.iter().map(|expr| places[*expr]).collect();
            let walk = self.walk_of(places.iter().map(|place| &aggregates[*place]));
            let rows = self.row_loop(&values, &[], walk)?;
            let first = collected.all.len();
            for (argument, (place, value)) in places.iter().zip(&rows.exprs).enumerate() {
                results[*place] = collected.add(&aggregates[*place], value, argument);
            }
            planned.push((rows, first..collected.all.len()));
        }
        let mut counts = vec![];
        for (aggregate, result) in aggregates.iter().zip(&mut results) {
            if let Aggregate::Count(Expr::Column(column)) = aggregate
                && self.columns[*column].traits.nullable()
            {
                result.count = collected.push(Accumulator::Count, None);
                counts.push((result.count, *column));
            }
        }
        let accumulators = Accumulators {
            all: collected.all,
            results,
        };
        if accumulators.are_ordered() {
            self.per = Per::Slot;
        }
        Ok(OutputPlan::Totals {
            accumulators,
            loops: planned,
            counts,
        })
    }
}
