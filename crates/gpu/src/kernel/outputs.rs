//! What becomes of the rows that pass, without groups: they are written, or added up.

use super::columns::{argument_of, loops};
use super::loops::Walk;
use super::plan::{OutputPlan, Total, Typed};
use super::planner::Planner;
use crate::error::Result;
use crate::plan::{Aggregate, Expr};

/// Rows of a launch that a thread sees, at most, as bits.
const THREAD_ROWS_BITS: u32 = 20;

impl Planner<'_> {
    pub fn rows(&mut self, exprs: &[Expr], all: bool) -> Result<OutputPlan> {
        let (mut computed, mut places, mut copied) = (vec![], vec![], vec![]);
        for (place, expr) in exprs.iter().enumerate() {
            match expr {
                // columns without nulls of which every row is wanted need no loop
                Expr::Column(column) if all && !self.columns[*column].shape.nullable() => {
                    self.type_of(*column)?;
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

    pub fn totals(&mut self, aggregates: &[Aggregate]) -> Result<OutputPlan> {
        let (mut exprs, mut places, mut counts) = (vec![], vec![], vec![]);
        for (place, aggregate) in aggregates.iter().enumerate() {
            match (aggregate, argument_of(aggregate)) {
                (Aggregate::Count(Expr::Column(column)), _) => counts.push((place, Some(*column))),
                (_, Some(expr)) => {
                    exprs.push(expr.clone());
                    places.push(place);
                }
                (_, None) => counts.push((place, None)),
            }
        }
        let mut planned = vec![];
        for together in loops(&exprs) {
            let values: Vec<Expr> = together.iter().map(|expr| exprs[*expr].clone()).collect();
            let places: Vec<usize> = together.iter().map(|expr| places[*expr]).collect();
            let walk = self.walk_of(places.iter().map(|place| &aggregates[*place]));
            let rows = self.row_loop(&values, &[], walk)?;
            let totals = places.iter().zip(&rows.exprs);
            let totals = totals.map(|(place, value)| (*place, total(&aggregates[*place], value)));
            let totals = totals.collect();
            planned.push((rows, totals));
        }
        Ok(OutputPlan::Totals {
            aggregates: aggregates.len(),
            counts,
            loops: planned,
        })
    }
}

fn total(aggregate: &Aggregate, value: &Typed) -> Total {
    let bits = value.bounds.bits();
    match aggregate {
        Aggregate::CountRows | Aggregate::Count(_) => Total::Count,
        Aggregate::Min(_) => Total::Min,
        Aggregate::Max(_) => Total::Max,
        Aggregate::Sum(_) if value.of.is_float() => Total::SumFloat,
        Aggregate::Sum(_) => Total::Sum {
            wide: bits + THREAD_ROWS_BITS > 63,
            by_eight: bits + 3 <= 31,
        },
    }
}
