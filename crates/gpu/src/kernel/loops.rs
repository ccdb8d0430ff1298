//! Plans loops over the selected rows of a vector.

use super::columns::{
    columns_of_expr, columns_of_nulls, has_matches, is_float, lookups_of_expr, push,
};
use super::plan::{Combined, ListPlan, MatchesPlan, RowLoop, SparseAccess};
use super::planner::{Planner, SPARSE_SHARE};
use crate::error::{Error, Result};
use vectile_pipeline::{Aggregate, Expr, Matches};

/// The order in which the lanes of a warp process rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneOrder {
    /// Each lane processes its own rows, in row order.
    Each,
    /// Any order.
    Any,
    /// All lanes process the same row of their own at a time.
    Together,
}

impl Planner<'_> {
    /// A loop that computes expressions and looks up the rows' codes in `tables`.
    pub fn row_loop(
        &mut self,
        exprs: &[Expr],
        tables: &[usize],
        order: LaneOrder,
    ) -> Result<RowLoop> {
        let mut columns = vec![];
        let mut all_tables = tables.to_vec();
        for expr in exprs {
            columns_of_expr(expr, &mut columns);
            lookups_of_expr(expr, &mut all_tables);
        }
        let tables = all_tables;
        for lookup in &tables {
            // tables of dictionary values follow those of lookups, and always exist
            if *lookup >= self.tables.len() {
                self.codes_of(*lookup)?;
            }
        }
        let keys = tables.iter().map(|table| self.tables[*table].column);
        let read: Vec<usize> = columns.iter().copied().chain(keys).collect();
        let mut null_columns = read.clone();
        exprs
            .iter()
            .for_each(|expr| columns_of_nulls(expr, &mut null_columns));
        let mut nullable = vec![];
        for column in &null_columns {
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
        let access = match (traits.all(|traits| traits.is_direct()), order) {
            (true, LaneOrder::Any) if self.expected_share() <= SPARSE_SHARE => SparseAccess::All,
            (true, LaneOrder::Any) => SparseAccess::Few,
            (true, LaneOrder::Each) if is_packed => SparseAccess::Own,
            _ => SparseAccess::Never,
        };
        self.is_sparse = access == SparseAccess::All;
        for column in read {
            self.read_by_row(column, self.is_sparse);
        }
        Ok(RowLoop {
            exprs,
            tests,
            columns,
            tables,
            nullable,
            access,
            summed: None,
            combined: None,
        })
    }

    /// A loop over rows that are accumulated: it computes expressions once per combination of a row's matches.
    pub fn combined_loop(
        &mut self,
        exprs: &[Expr],
        tables: &[usize],
        order: LaneOrder,
    ) -> Result<RowLoop> {
        let matches = &self.pipeline.matches;
        if matches.is_empty() {
            return self.row_loop(exprs, tables, order);
        }
        if matches
            .iter()
            .any(|of| has_matches(&Expr::Id(of.code.clone())))
        {
            return Err(Error::Unsupported("matches of matches".into()));
        }
        let lists = matches.iter().flat_map(Matches::list);
        let conditions = self.conditions_of_matches()?;
        let own = 2 * matches.len() + conditions.len();
        let all: Vec<Expr> = lists
            .chain(conditions)
            .chain(exprs.iter().cloned())
            .collect();
        let mut rows = self.row_loop(&all, tables, order)?;
        let exprs = rows.exprs.split_off(own);
        let mut lists = std::mem::replace(&mut rows.exprs, exprs).into_iter();
        let of_list = matches.iter().map_while(|of| {
            let (offset, count) = (lists.next()?, lists.next()?);
            Some(MatchesPlan {
                list: ListPlan { offset, count },
                is_outer: of.is_outer,
            })
        });
        rows.combined = Some(Combined {
            matches: of_list.collect(),
            conditions: lists.collect(),
        });
        // lanes that read their own rows would wait for lanes whose rows have more matches
        if rows.access == SparseAccess::Own {
            rows.access = SparseAccess::Never;
        }
        Ok(rows)
    }

    /// The order in which rows are accumulated: sums of floats depend on it.
    pub fn lane_order<'b>(&self, mut aggregates: impl Iterator<Item = &'b Aggregate>) -> LaneOrder {
        let is_ordered = |aggregate: &Aggregate| match aggregate {
            Aggregate::Sum(expr) => is_float(expr, &self.pipeline.columns),
            _ => false,
        };
        match aggregates.any(is_ordered) {
            true => LaneOrder::Each,
            false => LaneOrder::Any,
        }
    }
}
