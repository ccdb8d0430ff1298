//! Queries as SQL, so that a query which runs again need not become a logical plan.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, SetExpr, Statement as SqlStatement, TableFactor, Visit, Visitor,
};

use super::query::has_files;
use super::recording::{RecordingCatalogs, Tables};

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

impl SqlQuery {
    /// Makes a logical plan of `statement`. There is no query if the plan depends on more than the tables that names
    /// refer to, or if `statement` is something else.
    pub(super) async fn planned(
        state: &SessionState,
        statement: Statement,
    ) -> Result<(LogicalPlan, Option<Self>)> {
        if !state.relation_planners().is_empty() || !is_plain(&statement) {
            return Ok((state.statement_to_plan(statement).await?, None));
        }
        let names = state.resolve_table_references(&statement)?;
        let catalogs = RecordingCatalogs::new(state.catalog_list());
        let mut recording = state.clone();
        recording.register_catalog_list(Arc::new(catalogs.clone()));
        let plan = recording.statement_to_plan(statement.clone()).await?;
        let tables = catalogs.take();
        let defaults = &state.config_options().catalog;
        let is_recorded = |name: TableReference| {
            tables.contains_key(&name.resolve(&defaults.default_catalog, &defaults.default_schema))
        };
        let has_one_plan = tables.values().all(has_one_plan) && names.into_iter().all(is_recorded);
        Ok((plan, has_one_plan.then_some(Self { statement, tables })))
    }

    /// True if it is the query of `statement`. Places in the text do not count.
    pub(super) fn is_of(&self, statement: &Statement) -> bool {
        &self.statement == statement
    }

    /// True if its names refer to the same tables as before.
    pub(super) async fn is_current(&self, state: &SessionState) -> bool {
        for (name, known) in &self.tables {
            let Ok(schema) = state.schema_for_ref(name.clone()) else {
                return false;
            };
            let table = schema.table(&name.table).await;
            if !matches!(table, Ok(Some(table)) if Arc::ptr_eq(known, &table)) {
                return false;
            }
        }
        true
    }
}

/// True if each scan of `table` has the same logical plan. Other providers may come up with a new one each time.
fn has_one_plan(table: &Arc<dyn TableProvider>) -> bool {
    table.is::<ViewTable>() || has_files(table)
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
