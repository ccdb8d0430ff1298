//! Loops over the rows of a vector that are left.

use std::sync::Arc;

use super::columns::{
    columns_of_expr, columns_of_nulls, has_partners, is_float, lookups_of_expr, push,
};
use super::plan::{Combined, ListPlan, PartnersPlan, Picks, RowLoop};
use super::planner::{Planner, SPARSE_SHARE};
use crate::error::{Error, Result};
use crate::plan::{Aggregate, Expr, Partners};

/// Where the partners of a row begin, and how many they are.
pub(super) fn list_of(partners: &Partners) -> [Expr; 2] {
    let code = || Box::new(partners.code.clone());
    [&partners.first, &partners.count].map(|values| Expr::Entry(code(), Arc::clone(values)))
}

/// How the lanes of a warp go through their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Each its own, in their order.
    Each,
    /// As is best, in any order.
    Any,
    /// All the same row at a time.
    Together,
}

impl Planner<'_> {
    /// A loop that computes expressions, and finds codes in tables.
    pub fn row_loop(&mut self, exprs: &[Expr], tables: &[usize], walk: Walk) -> Result<RowLoop> {
        let mut columns = vec![];
        let mut looked = tables.to_vec();
        for expr in exprs {
            columns_of_expr(expr, &mut columns);
            lookups_of_expr(expr, &mut looked);
        }
        let tables = looked;
        for lookup in &tables {
            // those of entries are behind those of lookups, and there
            if *lookup >= self.tables.len() {
                self.codes_of(*lookup)?;
            }
        }
        let keys = tables.iter().map(|table| self.tables[*table].column);
        let read: Vec<usize> = columns.iter().copied().chain(keys).collect();
        let mut asked = read.clone();
        exprs
            .iter()
            .for_each(|expr| columns_of_nulls(expr, &mut asked));
        let mut nullable = vec![];
        for column in &asked {
            if self.columns[*column].traits.nullable() {
                push(*column, &mut nullable);
            }
        }
        self.computed.clear();
        let exprs = exprs.iter().map(|expr| self.typed(expr));
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let tests = std::mem::take(&mut self.tests);
        let mut traits = read.iter().map(|column| &self.columns[*column].traits);
        let is_packed = traits.clone().all(|traits| traits.is_packed());
        let picks = match (traits.all(|traits| traits.is_direct()), walk) {
            (true, Walk::Any) if self.expected_share() <= SPARSE_SHARE => Picks::All,
            (true, Walk::Any) => Picks::Few,
            (true, Walk::Each) if is_packed => Picks::Own,
            _ => Picks::Never,
        };
        self.is_sparse = picks == Picks::All;
        for column in read {
            self.read_by_row(column, self.is_sparse);
        }
        Ok(RowLoop {
            exprs,
            tests,
            columns,
            tables,
            nullable,
            picks,
            summed: None,
            combined: None,
        })
    }

    /// The same of rows that are accumulated: once for each combination with their partners.
    pub fn combined_loop(
        &mut self,
        exprs: &[Expr],
        tables: &[usize],
        walk: Walk,
    ) -> Result<RowLoop> {
        let partners = &self.pipeline.partners;
        if partners.is_empty() {
            return self.row_loop(exprs, tables, walk);
        }
        if partners.iter().any(|of| has_partners(&of.code)) {
            return Err(Error::Unsupported("partners of partners".into()));
        }
        let lists = partners.iter().flat_map(list_of);
        let conditions = self.conditions_of_partners()?;
        let own = 2 * partners.len() + conditions.len();
        let all: Vec<Expr> = lists
            .chain(conditions)
            .chain(exprs.iter().cloned())
            .collect();
        let mut rows = self.row_loop(&all, tables, walk)?;
        let exprs = rows.exprs.split_off(own);
        let mut lists = std::mem::replace(&mut rows.exprs, exprs).into_iter();
        let of_list = partners.iter().map_while(|of| {
            let (first, count) = (lists.next()?, lists.next()?);
            Some(PartnersPlan {
                list: ListPlan { first, count },
                is_outer: of.is_outer,
            })
        });
        rows.combined = Some(Combined {
            partners: of_list.collect(),
            conditions: lists.collect(),
        });
        // lanes that take their own rows would wait for those that have more partners
        if rows.picks == Picks::Own {
            rows.picks = Picks::Never;
        }
        Ok(rows)
    }

    /// How rows are accumulated: of sums of floats the order matters.
    pub fn walk_of<'b>(&self, mut aggregates: impl Iterator<Item = &'b Aggregate>) -> Walk {
        let is_ordered = |aggregate: &Aggregate| match aggregate {
            Aggregate::Sum(expr) => is_float(expr, &self.pipeline.columns),
            _ => false,
        };
        match aggregates.any(is_ordered) {
            true => Walk::Each,
            false => Walk::Any,
        }
    }
}
