//! Queries as SQL, so that a query which runs again need not become a logical plan.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, SetExpr, Statement as SqlStatement, TableFactor, Visit, Visitor,
};

use super::query::listing_of;

/// Maximum number of expressions, relations and queries of a cached statement.
const MOST_NODES: usize = 4096;

/// Maximum depth of a cached statement: the parser's functions that compare and copy statements are recursive.
const MOST_LEVELS: usize = 64;

/// A query as SQL, with the tables that its names refer to. In one [environment](super::environment), they determine its
/// logical plan.
#[derive(Debug)]
pub(super) struct SqlQuery {
    statement: Statement,
    tables: Tables,
}

/// The tables of names; `None`: there is no such table, but the name of a subquery.
type Tables = Vec<(TableReference, Option<Arc<dyn TableProvider>>)>;

impl SqlQuery {
    /// Returns `None` if the plan depends on more than the tables that names refer to, or if `statement` is no query.
    pub(super) async fn of(state: &SessionState, statement: &Statement) -> Option<Self> {
        if !state.relation_planners().is_empty() || !is_plain(statement) {
            return None;
        }
        let mut tables = Tables::new();
        for name in state.resolve_table_references(statement).ok()? {
            let table = table_of(state, &name).await.ok()?;
            if !table.as_ref().is_none_or(has_one_plan) {
                return None;
            }
            tables.push((name, table));
        }
        Some(Self {
            statement: statement.clone(),
            tables,
        })
    }

    /// True if it is the query of `statement`. Places in the text do not count.
    pub(super) fn is_of(&self, statement: &Statement) -> bool {
        &self.statement == statement
    }

    /// True if its names refer to the same tables as before.
    pub(super) async fn is_current(&self, state: &SessionState) -> bool {
        for (name, known) in &self.tables {
            let is_same = match (known, table_of(state, name).await) {
                (Some(known), Ok(Some(table))) => Arc::ptr_eq(known, &table),
                (known, Ok(None)) => known.is_none(),
                _ => false,
            };
            if !is_same {
                return false;
            }
        }
        true
    }
}

/// The table of `name`, found as DataFusion does when it makes a logical plan of SQL.
async fn table_of(
    state: &SessionState,
    name: &TableReference,
) -> Result<Option<Arc<dyn TableProvider>>> {
    match state.schema_for_ref(name.clone()) {
        Ok(schema) => schema.table(name.table()).await,
        Err(_) => Ok(None),
    }
}

/// True if each scan of `table` has the same logical plan. Other providers may come up with a new one each time.
fn has_one_plan(table: &Arc<dyn TableProvider>) -> bool {
    table.is::<ViewTable>() || listing_of(table).is_some()
}

/// True if `statement` is a query of limited size and depth, and all of its relations are names and subqueries.
fn is_plain(statement: &Statement) -> bool {
    let Statement::Statement(statement) = statement else {
        return false;
    };
    let SqlStatement::Query(query) = statement.as_ref() else {
        return false;
    };
    query.visit(&mut Limits::default()).is_continue()
}

/// Breaks off at table functions and the like, after [`MOST_NODES`], and below [`MOST_LEVELS`].
#[derive(Default)]
struct Limits {
    nodes: usize,
    level: usize,
}

impl Limits {
    fn enter(&mut self, levels: usize) -> ControlFlow<()> {
        self.nodes += levels;
        self.level += levels;
        match self.nodes <= MOST_NODES && self.level <= MOST_LEVELS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn leave(&mut self, levels: usize) -> ControlFlow<()> {
        self.level -= levels;
        ControlFlow::Continue(())
    }
}

impl Visitor for Limits {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.enter(levels_of(query))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.leave(levels_of(query))
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.enter(1)
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.leave(1)
    }

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        match relation {
            TableFactor::Table { args: None, .. }
            | TableFactor::Derived { .. }
            | TableFactor::NestedJoin { .. } => self.enter(1),
            _ => ControlFlow::Break(()),
        }
    }

    fn post_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
        self.leave(1)
    }
}

/// Levels of a query and of its set operations: each `UNION` is a level above those before it.
fn levels_of(query: &Query) -> usize {
    let mut levels = 1;
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        levels += 1;
        body = left;
    }
    levels
}
