//! `CREATE TABLE`, in sessions whose tables in memory are Vectile's.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::{Result, exec_err, not_impl_err, plan_err};
use datafusion::logical_expr::CreateMemoryTable;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use super::{VectileTable, VectileTableOptions};
use crate::options::{TableOptions, VectileOptions};

/// Creates the table that a statement defines, with the rows of its query. Its memory counts in the session's pool.
///
/// # Errors
///
/// If there is a table of that name, unless the statement says what to do then; if the table has columns of the same name
/// or of a type that cannot be stored; and errors of the query. Then there is no table.
pub(crate) async fn create_table(ctx: &SessionContext, create: CreateMemoryTable) -> Result<()> {
    let CreateMemoryTable {
        name,
        constraints,
        input,
        if_not_exists,
        or_replace,
        column_defaults,
        temporary,
    } = create;
    if temporary {
        return not_impl_err!("temporary tables");
    }
    let exists = ctx.table_exist(name.clone())?;
    match (if_not_exists, or_replace) {
        (true, true) => return plan_err!("'IF NOT EXISTS' cannot coexist with 'REPLACE'"),
        (true, false) if exists => return Ok(()),
        (false, false) if exists => return exec_err!("Table '{name}' already exists"),
        _ => {}
    }
    let state = ctx.state();
    // types are coerced by the optimizer
    let input = state.optimize(&input)?;
    let schema = Arc::clone(input.schema().inner());
    let mut names = HashSet::new();
    let mut fields = schema.fields().iter();
    if let Some(twice) = fields.find(|field| !names.insert(field.name())) {
        return plan_err!("table '{name}' would have two columns '{}'", twice.name());
    }
    let session = VectileOptions::of(state.config_options());
    let options = VectileTableOptions::default()
        .with_table(TableOptions {
            row_group_rows: Some(session.row_group_rows),
            ..TableOptions::default()
        })
        .with_memory_pool(Arc::clone(&state.runtime_env().memory_pool));
    let table = VectileTable::try_new(schema, options)?
        .with_constraints(constraints)
        .with_column_defaults(column_defaults.into_iter().collect());
    let plan = state.create_physical_plan(&input).await?;
    let mut rows = execute_stream(plan, state.task_ctx())?;
    let mut appender = table.appender();
    while let Some(batch) = rows.try_next().await? {
        appender.write(batch).await?;
    }
    appender.commit().await?;
    if or_replace {
        ctx.deregister_table(name.clone())?;
    }
    ctx.register_table(name, Arc::new(table))?;
    Ok(())
}
