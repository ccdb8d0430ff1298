//! Plan cache of a session: physical plans of queries, reused when the queries run again.
//!
//! ```text
//!  SQL ── known, same session, same tables, same files? ── no ──▶ logical plan ──┐
//!                            │                                                    │
//!                            │   ┌── known, same session, same files? ◀───────────┘
//!                            │   │                 │
//!                           yes yes                no ──▶ plan ──▶ rules ──┬──▶ last rules ──▶ runs
//!                            ▼   ▼                                         └──▶ copy, cached
//!                 copy of the cached plan ──▶ last rules ──▶ runs
//! ```
//!
//! The optimized logical plan is cached too: when only files or rows have changed, planning begins there.
//!
//! A cached plan never runs; copies of it do. The cache stores the plan as it is before the rules that bind operators
//! to one run (dynamic filters) or to a moment. Those rules are applied to each copy.
//!
//! ```text
//!  cache        the plans of a session
//!  sql_query    cache key: the SQL and the tables that its names refer to
//!  recording    which tables DataFusion finds by these names
//!  query        cache key: the logical plan and the files that it reads
//!  environment  other session state that plans depend on
//!  copying      decides which plans can be copied
//!  subqueries   copies whose subqueries have results of their own
//! ```

mod cache;
mod copying;
mod environment;
mod query;
mod recording;
mod sql_query;
mod subqueries;

use std::cell::RefCell;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use object_store::ObjectMeta;

use self::cache::{CachedPlan, PhysicalPlan};
pub(crate) use self::cache::{Outlook, PlanCache};
pub(crate) use self::copying::can_be_copied;
use self::copying::is_current;
use self::environment::PlanningEnvironment;
use self::query::Query;
use self::sql_query::SqlQuery;
use self::subqueries::with_own_subqueries;
use crate::fresh::fresh;
use crate::options::{ParquetMode, VectileOptions};
use crate::pushdown::Rule;
use crate::table::create_table;

/// Maximum number of files of a cached plan, whose metadata it holds.
const MOST_FILES: usize = 4096;

/// Returns a physical plan for `plan`, which is not optimized: from the session's plan cache, or newly planned as by
/// [`SessionState::create_physical_plan`]. Run it once, and call this again for the next run: the scans of a plan that
/// has run return no rows.
///
/// A session in which Vectile is registered caches plans of queries that read Vectile and ORC files and tables in memory
/// only, and with `vectile.parquet` also Parquet files, unless they call functions such as `now()` and `random()`. A cached
/// plan is used as long as the session's settings, functions and rules, the tables and all of their files and rows are the
/// same. If a session has rules that depend on anything else, such as the user of a request, set
/// [`VectileOptions::keep_plans`] to false.
///
/// ```
/// use datafusion::physical_plan::collect;
/// # use datafusion::prelude::SessionContext;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// # let ctx = SessionContext::new();
/// # vectile_datafusion::register(&ctx)?;
/// let (state, query) = ctx.sql("SELECT 1").await?.into_parts();
/// let plan = vectile_datafusion::physical_plan(&state, &query).await?;
/// let rows = collect(plan, state.task_ctx()).await?;
/// # assert_eq!(rows[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns errors of planning.
pub async fn physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    planned(state, plan, None).await
}

/// A statement that is planned, and runs once.
#[derive(Debug)]
#[non_exhaustive]
pub struct PlannedStatement {
    /// Columns of the result, as SQL defines them; none if the statement has no result.
    pub schema: SchemaRef,
    /// The physical plan. Its metrics are complete when it has run.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The session that it runs in.
    pub task: Arc<TaskContext>,
}

impl PlannedStatement {
    fn new(schema: &SchemaRef, plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Self {
        Self {
            schema: Arc::clone(schema),
            plan,
            task: state.task_ctx(),
        }
    }

    /// Runs the statement. Rows are computed as they are requested.
    ///
    /// # Errors
    ///
    /// Returns errors of starting the plan.
    pub fn execute(self) -> Result<SendableRecordBatchStream> {
        execute_stream(self.plan, self.task)
    }
}

/// Plans a statement of SQL. A query that runs again takes its plan from the session's plan cache, as
/// [`physical_plan`] says, and is not even made a logical plan. Settings and definitions take effect at once, as with
/// [`SessionContext::sql`].
///
/// ```
/// use futures::TryStreamExt;
/// # use datafusion::arrow::array::RecordBatch;
/// # use datafusion::prelude::SessionContext;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// # let ctx = SessionContext::new();
/// # vectile_datafusion::register(&ctx)?;
/// let query = vectile_datafusion::sql(&ctx, "SELECT 1").await?;
/// let rows: Vec<RecordBatch> = query.execute()?.try_collect().await?;
/// # assert_eq!(rows[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns errors of parsing, planning, settings and definitions.
pub async fn sql(ctx: &SessionContext, sql: &str) -> Result<PlannedStatement> {
    let statement = {
        let state = ctx.state_ref();
        let state = state.read();
        let dialect = state.config_options().sql_parser.dialect;
        state.sql_to_statement(sql, &dialect)?
    };
    plan_statement(ctx, statement).await
}

/// Like [`sql`], for a statement that is parsed.
///
/// # Errors
///
/// Returns errors of planning, settings and definitions.
pub async fn plan_statement(
    ctx: &SessionContext,
    statement: Statement,
) -> Result<PlannedStatement> {
    let state = ctx.state();
    if let Some((plans, environment)) = cache_of(&state)
        && let Some(cached) = plans.of_statement(&environment, &statement)
        && let Some(sql) = &cached.sql
        && sql.is_current(&state).await
        && let Ok(files) = cached.query.files(&state).await
        && !files.is_empty()
    {
        let plan = match copied(&cached, &files, &state)? {
            Some(plan) => plan,
            None => planned_anew(&state, &plans, &environment, &cached, files).await?,
        };
        return Ok(PlannedStatement::new(cached.query.schema(), plan, &state));
    }
    let (plan, sql) = match cache_of(&state) {
        Some(_) => SqlQuery::planned(&state, statement).await?,
        None => (state.statement_to_plan(statement).await?, None),
    };
    let (state, plan) = match plan {
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => execute_definition(ctx, plan).await?,
        query => (state, query),
    };
    let sql = sql.map(Arc::new);
    let physical = planned(&state, &plan, sql).await?;
    Ok(PlannedStatement::new(
        plan.schema().inner(),
        physical,
        &state,
    ))
}

/// Executes a definition or another statement that is no query, such as `SET`, as
/// [`SessionContext::execute_logical_plan`] does, but `CREATE TABLE` makes the table that `vectile.memory_tables` asks for.
/// Returns the plan of its rows, and the session to plan it in.
///
/// # Errors
///
/// Returns errors of the statement.
pub async fn execute_definition(
    ctx: &SessionContext,
    plan: LogicalPlan,
) -> Result<(SessionState, LogicalPlan)> {
    let state = ctx.state();
    if matches!(plan, LogicalPlan::Ddl(_))
        && let Some(plans) = state.config().get_extension::<PlanCache>()
    {
        // plans that no query uses again would hold a table that is dropped
        plans.forget_tables_in_memory();
    }
    match plan {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create))
            if VectileOptions::of(state.config_options()).memory_tables =>
        {
            create_table(ctx, create).await?;
            Ok((ctx.state(), LogicalPlanBuilder::empty(false).build()?))
        }
        plan => Ok(ctx.execute_logical_plan(plan).await?.into_parts()),
    }
}

/// The plan cache of a session and its environment; `None` if it caches no plans.
fn cache_of(state: &SessionState) -> Option<(Arc<PlanCache>, Arc<PlanningEnvironment>)> {
    let plans = state.config().get_extension::<PlanCache>()?;
    let keeps = VectileOptions::of(state.config_options()).keep_plans;
    let environment = keeps.then(|| plans.environment(state)).flatten()?;
    Some((plans, environment))
}

/// Plans `plan`, the logical plan of `sql`, or finds it in the cache.
async fn planned(
    state: &SessionState,
    plan: &LogicalPlan,
    sql: Option<Arc<SqlQuery>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let reads_parquet = VectileOptions::of(state.config_options()).parquet != ParquetMode::Off;
    // plans of DataFusion's reader are not copied
    let query = Query::of(plan).filter(|query| reads_parquet || !query.is_of_parquet());
    let Some(((plans, environment), query)) = cache_of(state).zip(query) else {
        return state.create_physical_plan(plan).await;
    };
    // If listing files fails, planning reports the error.
    let files = query.files(state).await.unwrap_or_default();
    if files.is_empty() || files.len() > MOST_FILES {
        return state.create_physical_plan(plan).await;
    }
    let cached = match plans.of_query(&environment, &query) {
        Some(cached) => {
            let copy = copied(&cached, &files, state)?;
            let cached = CachedPlan {
                sql: sql.clone().or(cached.sql),
                ..cached
            };
            if let Some(plan) = copy {
                if sql.is_some() {
                    plans.put(&environment, cached);
                }
                return Ok(plan);
            }
            cached
        }
        None => CachedPlan {
            sql,
            query: Arc::new(query),
            optimized: Arc::new(state.optimize(plan)?),
            physical: None,
        },
    };
    planned_anew(state, &plans, &environment, &cached, files).await
}

/// Plans a query for the files and rows of this moment, and caches the plan if it can be copied. `files` were listed
/// before.
async fn planned_anew(
    state: &SessionState,
    plans: &PlanCache,
    environment: &Arc<PlanningEnvironment>,
    cached: &CachedPlan,
    files: Vec<ObjectMeta>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let query = &cached.query;
    let planning = async {
        let planner = state.query_planner();
        let plan = planner.create_physical_plan(&cached.optimized, state);
        let plan = plan.await?;
        Ok::<_, DataFusionError>((plan, UNFINISHED.with(RefCell::take)))
    };
    let (plan, unfinished) = UNFINISHED.scope(RefCell::default(), planning).await?;
    if let Some(unfinished) = unfinished
        && files.len() <= MOST_FILES
        && can_be_copied(&unfinished)
        && let Ok(Some(copy)) = with_own_subqueries(&unfinished)
        && let Ok(copy) = fresh(&copy)
    {
        // Planning has listed the files too, between these two times.
        let is_same = query.files(state).await.is_ok_and(|after| after == files);
        let physical = is_same.then(|| PhysicalPlan {
            files: files.into(),
            plan: copy,
        });
        let cached = cached.clone();
        plans.put(environment, CachedPlan { physical, ..cached });
    }
    Ok(plan)
}

/// A copy of a cached plan, ready to run; `None` if its tables have other files now, or a device is ready for other nodes.
fn copied(
    cached: &CachedPlan,
    files: &[ObjectMeta],
    state: &SessionState,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let physical = cached.physical.as_ref();
    let is_of_files = |of: &&PhysicalPlan| of.files.as_ref() == files && is_current(&of.plan);
    let Some(physical) = physical.filter(is_of_files) else {
        return Ok(None);
    };
    let copy = with_own_subqueries(&physical.plan)?;
    copy.map(|copy| finished(fresh(&copy)?, state)).transpose()
}

tokio::task_local! {
    /// The plan being made, in the state in which it is cached.
    static UNFINISHED: RefCell<Option<Arc<dyn ExecutionPlan>>>;
}

/// Records the plan to be cached. Rules behind this one are applied whenever a plan is used.
#[derive(Debug)]
struct RecordPlan;

const RECORD_PLAN: &str = "record_plan";

impl PhysicalOptimizerRule for RecordPlan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Fails outside of `physical_plan`, where the plan is not cached.
        let _ = UNFINISHED.try_with(|unfinished| unfinished.replace(Some(Arc::clone(&plan))));
        Ok(plan)
    }

    fn name(&self) -> &str {
        RECORD_PLAN
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Inserts the rule that records plans, before dynamic filters are pushed down. If there is no such rule, no plan is
/// cached.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    rules.retain(|rule| rule.name() != RECORD_PLAN);
    let dynamic = FilterPushdown::new_post_optimization();
    let is_dynamic = |rule: &Rule| rule.name() == dynamic.name();
    if let Some(index) = rules.iter().rposition(is_dynamic) {
        rules.insert(index, Arc::new(RecordPlan));
    }
}

/// Applies the rules behind [`RecordPlan`] to `plan`.
fn finished(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let rules = state.physical_optimizers().iter();
    let mut last = rules.skip_while(|rule| rule.name() != RECORD_PLAN).skip(1);
    last.try_fold(plan, |plan, rule| rule.optimize_with_context(plan, state))
}
