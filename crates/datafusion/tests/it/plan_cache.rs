//! The plan cache: plans that are reused for the next run of a query.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::context::{FunctionFactory, RegisterFunction};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::var_provider::{VarProvider, VarType};
use datafusion::logical_expr::{
    ColumnarValue, CreateFunction, Expr, LogicalPlan, LogicalPlanBuilder, Volatility, create_udf,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use tempfile::TempDir;
use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt, physical_plan, register};

use crate::orc::data;
use crate::support::{Fixture, metric, tune};

/// Counts how often a logical or a physical plan is optimized.
#[derive(Debug, Default)]
pub struct Counting(pub Arc<AtomicUsize>);

impl PhysicalOptimizerRule for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(plan)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Counts the physical plans of a session from now on.
pub fn count_plans(ctx: &SessionContext) -> Arc<AtomicUsize> {
    let count = Arc::default();
    let state = ctx.state();
    let mut rules = state.physical_optimizers().to_vec();
    rules.insert(0, Arc::new(Counting(Arc::clone(&count))));
    let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules);
    *ctx.state_ref().write() = state.build();
    count
}

impl OptimizerRule for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Transformed::no(plan))
    }
}

/// Counts how often an operator of SQL becomes part of a logical plan.
#[derive(Debug)]
struct Translating(Arc<AtomicUsize>);

impl ExprPlanner for Translating {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(PlannerResult::Original(expr))
    }
}

/// Tables in directories, one of which is `t`, and a session that sees files of other sessions at once.
struct Session {
    ctx: SessionContext,
    dir: TempDir,
    planned: Arc<AtomicUsize>,
    translated: Arc<AtomicUsize>,
}

impl Session {
    async fn new() -> Self {
        let runtime = RuntimeEnvBuilder::new()
            .with_object_list_cache_ttl(Some(Duration::from_millis(1)))
            .build_arc()
            .unwrap();
        let config = SessionConfig::new().with_target_partitions(2);
        let ctx = SessionContext::new_with_config_rt(config, runtime);
        register(&ctx).unwrap();
        Self::over(ctx, tempfile::tempdir().unwrap()).await
    }

    async fn on_emulator() -> Option<Self> {
        let Fixture { ctx, dir } = Fixture::on_emulator()?;
        Some(Self::over(ctx, dir).await)
    }

    async fn over(ctx: SessionContext, dir: TempDir) -> Self {
        let planned = count_plans(&ctx);
        let translated = Arc::default();
        let translating = Arc::new(Translating(Arc::clone(&translated)));
        let state = ctx.state_ref();
        state.write().register_expr_planner(translating).unwrap();
        let session = Self {
            ctx,
            dir,
            planned,
            translated,
        };
        session.write("t", "a", 0..20_000).await;
        session.register("t").await;
        session
    }

    fn path(&self, table: &str, file: &str) -> PathBuf {
        self.dir.path().join(table).join(format!("{file}.vectile"))
    }

    /// Writes a file with these row numbers, from another session.
    async fn write(&self, table: &str, file: &str, rows: std::ops::Range<usize>) {
        let path = self.path(table, file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let other = SessionContext::new();
        register(&other).unwrap();
        let select = format!(
            "SELECT value AS id, value % 7 AS k, value % 1000 * 3 AS v, \
             arrow_cast('n' || CAST(value % 13 AS VARCHAR), 'Utf8') AS name \
             FROM range({}, {})",
            rows.start, rows.end
        );
        let options = "OPTIONS (row_group_rows 4096, replace true)";
        let copy = format!(
            "COPY ({select}) TO '{}' STORED AS VECTILE {options}",
            path.display()
        );
        other.sql(&copy).await.unwrap().collect().await.unwrap();
        // Listings expire meanwhile.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    async fn register(&self, table: &str) {
        let directory = self.dir.path().join(table);
        let directory = format!("{}/", directory.display());
        let options = VectileReadOptions::default();
        let registered = self.ctx.register_vectile(table, directory, options);
        registered.await.unwrap();
    }

    async fn plan(&self, sql: &str) -> Arc<dyn ExecutionPlan> {
        let (state, plan) = self.ctx.sql(sql).await.unwrap().into_parts();
        physical_plan(&state, &plan).await.unwrap()
    }

    /// Runs `sql`, with the cached plan if there is one.
    async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let planned = vectile_datafusion::sql(&self.ctx, sql).await?;
        planned.execute()?.try_collect().await
    }

    /// Asserts that a copy of the cached plan answers the logical plan of `sql`, too.
    async fn is_known_as_logical_plan(&self, sql: &str) {
        let expected = self.answer(sql).await.0;
        let before = self.planned.load(Ordering::Relaxed);
        let plan = self.plan(sql).await;
        assert_eq!(self.planned.load(Ordering::Relaxed), before, "{sql}");
        let rows = collect(plan, self.ctx.task_ctx()).await.unwrap();
        assert_eq!(text(&rows), expected, "{sql}");
    }

    /// Asserts that `sql` is answered without a logical plan. Another text of it is, too.
    async fn is_known_as_sql(&self, sql: &str) {
        self.is_planned(sql).await;
        for sql in [sql, &format!("  {sql} -- again"), sql] {
            let before = self.translated.load(Ordering::Relaxed);
            let (_, planned) = self.answer(sql).await;
            assert!(!planned, "{sql}");
            assert_eq!(self.translated.load(Ordering::Relaxed), before, "{sql}");
        }
        assert!(!self.is_planned(sql).await, "{sql}");
    }

    /// The answer to `sql`, and true if it had to be planned.
    async fn answer(&self, sql: &str) -> (String, bool) {
        let before = self.planned.load(Ordering::Relaxed);
        let batches = match self.run(sql).await {
            Ok(batches) => batches,
            Err(error) => panic!("{sql}: {error}"),
        };
        (
            text(&batches),
            self.planned.load(Ordering::Relaxed) > before,
        )
    }

    /// Asserts that the answer equals that of a new plan. Returns true if the query had to be planned.
    async fn is_planned(&self, sql: &str) -> bool {
        let expected = self.ctx.sql(sql).await.unwrap().collect().await.unwrap();
        let (answer, planned) = self.answer(sql).await;
        assert_eq!(answer, text(&expected), "{sql}");
        planned
    }

    /// Asserts that `sql` is planned for the first run only.
    async fn is_planned_once(&self, sql: &str) {
        assert!(self.is_planned(sql).await, "kept: {sql}");
        for _ in 0..2 {
            assert!(!self.is_planned(sql).await, "not kept: {sql}");
        }
        self.is_known_as_logical_plan(sql).await;
    }
}

/// The rows as text, sorted.
fn text(batches: &[RecordBatch]) -> String {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Queries with operators that have run-time state.
const QUERIES: [&str; 17] = [
    "SELECT count(*), sum(v) FROM t WHERE k = 3",
    "SELECT k, sum(v), count(DISTINCT name) FROM t GROUP BY k ORDER BY k",
    "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 7",
    "SELECT id FROM t WHERE name = 'n4' ORDER BY id DESC LIMIT 5 OFFSET 2",
    "SELECT a.id, b.name FROM t a JOIN t b ON a.id = b.v WHERE b.id < 50",
    "SELECT a.k, count(b.id) FROM t a LEFT JOIN t b ON a.id = b.v GROUP BY a.k",
    "SELECT count(*) FROM t WHERE id IN (SELECT v FROM t WHERE k = 2)",
    "SELECT count(*) FROM t a WHERE NOT EXISTS (SELECT 1 FROM t b WHERE b.v = a.id)",
    "SELECT count(*) FROM t a JOIN t b ON a.id < b.id WHERE a.id < 60 AND b.id < 60",
    "SELECT DISTINCT name FROM (SELECT name FROM t UNION ALL SELECT name FROM t WHERE k > 3) u",
    "WITH c AS (SELECT k, max(v) AS m FROM t GROUP BY k) SELECT * FROM c a CROSS JOIN c b",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS r FROM t WHERE id < 99",
    "SELECT min(id), max(id) FROM t",
    "SELECT count(*) FROM t WHERE id > 3 AND (SELECT max(v) FROM t) > 5",
    "SELECT k, sum(v) FROM t GROUP BY k HAVING sum(v) > (SELECT avg(v) * 2857 FROM t)",
    "SELECT count(*) FROM t WHERE v > (SELECT avg(v) FROM t WHERE id > (SELECT min(v) + 9 FROM t))",
    "SELECT k, count(*), (SELECT max(id) FROM t) AS m FROM t \
     WHERE v = (SELECT max(v) FROM t) AND id IN (SELECT v FROM t) GROUP BY k",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_planned_once() {
    let session = Session::new().await;
    for sql in QUERIES {
        session.is_planned_once(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_that_runs_again_is_not_translated() {
    let session = Session::new().await;
    let view = "CREATE VIEW odd AS SELECT id, v FROM t WHERE k % 2 = 1";
    session.run(view).await.unwrap();
    for sql in [
        QUERIES[0],
        QUERIES[4],
        QUERIES[13],
        "SELECT count(*) FROM odd WHERE v > 5",
        "WITH odd AS (SELECT v FROM odd WHERE v > 7), u AS (SELECT v FROM odd) \
         SELECT count(*) FROM u WHERE v < 100",
        "SELECT count(*) FROM \"t\" AS x (a, b, c, d) WHERE a + b > 3",
        "SELECT id FROM t WHERE id < 3 UNION ALL (SELECT v FROM odd WHERE v < 9)",
    ] {
        session.is_known_as_sql(sql).await;
    }
}

#[tokio::test]
async fn tables_of_another_schema_are_others() {
    let session = Session::new().await;
    for statement in [
        "CREATE SCHEMA other",
        "CREATE VIEW other.t AS SELECT id + 1 AS id FROM public.t WHERE id < 9",
    ] {
        session.run(statement).await.unwrap();
    }
    let sql = "SELECT count(*), sum(id) FROM t WHERE id >= 0";
    session.is_known_as_sql(sql).await;
    let set = "SET datafusion.catalog.default_schema = 'other'";
    session.run(set).await.unwrap();
    assert!(session.is_planned(sql).await);
    session.is_known_as_sql(sql).await;
    session
        .is_known_as_sql("SELECT max(id) FROM public.t WHERE id >= 0")
        .await;
    session.run("DROP VIEW other.t").await.unwrap();
    assert!(session.run(sql).await.is_err());
}

#[tokio::test]
async fn the_tables_of_a_view_are_those_of_its_definition() {
    let session = Session::new().await;
    session.write("u", "a", 0..10).await;
    session.register("u").await;
    let create = "CREATE OR REPLACE VIEW w AS SELECT * FROM u WHERE id > 2";
    session.run(create).await.unwrap();
    let sql = "SELECT count(*), sum(id) FROM w WHERE id > 1";
    session.is_known_as_sql(sql).await;
    session.write("u", "a", 0..20).await;
    assert!(session.is_planned(sql).await);
    session.run("DROP TABLE u").await.unwrap();
    session.is_known_as_sql(sql).await;
    session.run("DROP VIEW w").await.unwrap();
    assert!(session.run(sql).await.is_err());
}

/// Gives `t` at the first call, and `u` from then on.
#[derive(Debug)]
struct Changing {
    calls: AtomicUsize,
    tables: [Arc<dyn TableProvider>; 2],
}

impl Changing {
    fn table(&self) -> &Arc<dyn TableProvider> {
        &self.tables[self.calls.fetch_add(1, Ordering::Relaxed).min(1)]
    }
}

impl TableFunctionImpl for Changing {
    fn call_with_args(&self, _: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::clone(self.table()))
    }
}

#[async_trait]
impl TableProvider for Changing {
    fn schema(&self) -> SchemaRef {
        self.tables[0].schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        let source = provider_as_source(Arc::clone(self.table()));
        let plan = LogicalPlanBuilder::scan("x", source, None).unwrap().build();
        Some(Cow::Owned(plan.unwrap()))
    }

    async fn scan(
        &self,
        _: &dyn datafusion::catalog::Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        unreachable!("its plan stands for it")
    }
}

#[tokio::test]
async fn relations_that_change_are_asked_each_time() {
    let session = Session::new().await;
    session.write("u", "a", 0..10).await;
    session.register("u").await;
    let mut tables = Vec::new();
    for name in ["t", "u"] {
        tables.push(session.ctx.table_provider(name).await.unwrap());
    }
    let changing = || {
        Arc::new(Changing {
            calls: AtomicUsize::new(0),
            tables: [Arc::clone(&tables[0]), Arc::clone(&tables[1])],
        })
    };
    session.ctx.register_udtf("pick", changing());
    session.ctx.register_table("view", changing()).unwrap();
    for sql in [
        "SELECT count(*) FROM pick() WHERE id >= 0",
        "SELECT count(*) FROM view WHERE id >= 0",
    ] {
        let answers = [20_000, 10, 10].map(|rows| rows.to_string());
        for rows in answers {
            let answer = session.answer(sql).await.0;
            assert!(answer.contains(&format!("| {rows} ")), "{sql}: {answer}");
        }
    }
}

/// A variable with another value each time.
#[derive(Debug, Default)]
struct Ticking(AtomicUsize);

impl VarProvider for Ticking {
    fn get_value(&self, _: Vec<String>) -> Result<ScalarValue> {
        let value = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(ScalarValue::UInt64(Some(value as u64)))
    }

    fn get_type(&self, _: &[String]) -> Option<DataType> {
        Some(DataType::UInt64)
    }
}

#[tokio::test]
async fn variables_may_change() {
    let session = Session::new().await;
    let ticking = Arc::new(Ticking::default());
    session.ctx.register_variable(VarType::UserDefined, ticking);
    let sql = "SELECT @tick AS tick, count(*) FROM t WHERE k = 1";
    assert_ne!(session.answer(sql).await.0, session.answer(sql).await.0);
}

/// Makes functions that return the value of their definition.
#[derive(Debug)]
struct Constants;

#[async_trait]
impl FunctionFactory for Constants {
    async fn create(
        &self,
        _: &SessionState,
        statement: CreateFunction,
    ) -> Result<RegisterFunction> {
        let Some(Expr::Literal(value, _)) = statement.params.function_body else {
            return plan_err!("no literal");
        };
        Ok(RegisterFunction::Scalar(Arc::new(create_udf(
            &statement.name,
            vec![],
            DataType::Int64,
            Volatility::Immutable,
            Arc::new(move |_| Ok(ColumnarValue::Scalar(value.clone()))),
        ))))
    }
}

#[tokio::test]
async fn functions_may_be_defined_anew() {
    let session = Session::new().await;
    let state = session.ctx.state_ref();
    state.write().set_function_factory(Arc::new(Constants));
    let sql = "SELECT max(v + chosen()) FROM t WHERE k = 1";
    for value in [1, 2] {
        let create = format!("CREATE OR REPLACE FUNCTION chosen() RETURNS BIGINT RETURN {value}");
        session.run(&create).await.unwrap();
        assert!(session.is_planned(sql).await);
        session.is_known_as_sql(sql).await;
    }
    session.run("DROP FUNCTION chosen").await.unwrap();
    assert!(session.run(sql).await.is_err());
}

/// The parser's own comparisons and copies of statements are recursive.
#[tokio::test]
async fn deep_statements_are_known_as_logical_plans_only() {
    let session = Session::new().await;
    let terms: Vec<String> = (0..200).map(|id| format!("id = {id}")).collect();
    let sql = format!("SELECT count(*) FROM t WHERE {}", terms.join(" OR "));
    session.is_planned_once(&sql).await;
    let before = session.translated.load(Ordering::Relaxed);
    session.answer(&sql).await;
    assert!(session.translated.load(Ordering::Relaxed) > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_on_a_gpu_are_planned_once() {
    let Some(session) = Session::on_emulator().await else {
        return;
    };
    for mode in ["on", "auto"] {
        session
            .run(&format!("SET vectile.gpu = '{mode}'"))
            .await
            .unwrap();
        for sql in QUERIES {
            session.is_planned_once(sql).await;
        }
    }
    let sql = "SELECT k, sum(v) FROM t WHERE id > 5 GROUP BY k";
    session.run("SET vectile.gpu = 'require'").await.unwrap();
    session.is_planned_once(sql).await;
    let plan = session.plan(sql).await;
    assert_eq!(metric(&plan, "gpu_rows"), 0);
    collect(Arc::clone(&plan), session.ctx.task_ctx())
        .await
        .unwrap();
    assert_eq!(metric(&plan, "gpu_rows"), 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_over_orc_files_are_planned_once() {
    let Some(session) = Session::on_emulator().await else {
        return;
    };
    std::fs::create_dir(session.dir.path().join("o")).unwrap();
    let path = session.dir.path().join("o/a.orc");
    std::fs::copy(data("scan.stripes.orc"), &path).unwrap();
    let location = path.parent().unwrap().display();
    let create = format!("CREATE EXTERNAL TABLE o STORED AS ORC LOCATION '{location}/'");
    session.run(&create).await.unwrap();
    for mode in ["off", "on"] {
        session
            .run(&format!("SET vectile.gpu = '{mode}'"))
            .await
            .unwrap();
        session
            .is_planned_once(
                "SELECT name, count(*), sum(key) FROM o WHERE amount > 0 GROUP BY name",
            )
            .await;
        session
            .is_planned_once("SELECT count(*) FROM o JOIN t ON o.key = t.id WHERE t.k = 3")
            .await;
    }
    // Another file of that name.
    std::fs::copy(data("integers.v1-none.orc"), &path).unwrap();
    session.run("DROP TABLE o").await.unwrap();
    session.run(&create).await.unwrap();
    assert!(session.is_planned("SELECT sum(random) FROM o").await);
}

/// Fused nodes can run several times. DataFusion's operators run once: later, scans have no rows, and others panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_a_gpu_run_again() {
    let Some(session) = Session::on_emulator().await else {
        return;
    };
    session.run("SET vectile.gpu = 'on'").await.unwrap();
    for sql in [
        "SELECT count(*), sum(v) FROM t WHERE k = 3",
        "SELECT k, sum(v), count(*) FROM t GROUP BY k",
        "SELECT a.k, count(b.id) FROM t a LEFT JOIN t b ON a.v = b.id GROUP BY a.k",
        "SELECT count(*) FROM t WHERE id IN (SELECT id FROM t WHERE k = 2)",
        // The key table of this join is not cached.
        "SELECT count(*), sum(b.m) FROM t a \
         JOIN (SELECT k, count(DISTINCT upper(name)) AS m FROM t GROUP BY k) b ON a.id = b.k",
    ] {
        let frame = session.ctx.sql(sql).await.unwrap();
        let expected = frame.clone().collect().await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        for run in 1..4 {
            let rows = collect(Arc::clone(&plan), session.ctx.task_ctx()).await;
            assert!(text(&rows.unwrap()) == text(&expected), "{sql}");
            assert_eq!(metric(&plan, "gpu_rows"), run * 20_000, "{sql}");
        }
    }
}

/// The cached plan may not have run, so that its subqueries may have no results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_on_a_gpu_know_their_own_subqueries() {
    let Some(session) = Session::on_emulator().await else {
        return;
    };
    tune(&session.ctx, |tuning| tuning.build_from_rows = 0);
    for sql in [
        "SET vectile.gpu = 'require'",
        // Opens the device, after which plans differ.
        "SELECT avg(v) FROM t WHERE k < 9",
    ] {
        session.run(sql).await.unwrap();
    }
    for sql in [
        "SELECT a.id, b.v > (SELECT avg(v) FROM t) AS high FROM t b JOIN t a ON a.v = b.id WHERE a.k = 3",
        "SELECT sum(d), max(d * 2) FROM (SELECT b.v - (SELECT avg(v) FROM t) AS d FROM t b JOIN t a ON a.v = b.id) s",
    ] {
        session.plan(sql).await;
        assert!(!session.is_planned(sql).await, "not kept: {sql}");
    }
}

#[tokio::test]
async fn copies_prune_as_the_first_plan_did() {
    let session = Session::new().await;
    session.write("few", "a", 17_000..17_003).await;
    session.register("few").await;
    let sql = "SELECT t.name FROM t JOIN few ON t.id = few.id";
    for _ in 0..3 {
        let plan = session.plan(sql).await;
        let rows = collect(Arc::clone(&plan), session.ctx.task_ctx()).await;
        assert_eq!(
            rows.unwrap()
                .iter()
                .map(RecordBatch::num_rows)
                .sum::<usize>(),
            3
        );
        assert_eq!(metric(&plan, "rows_decoded"), 6);
    }
}

#[tokio::test]
async fn plans_whose_answers_may_change_are_not_cached() {
    let session = Session::new().await;
    for sql in [
        "SELECT count(*) FROM t WHERE now() > TIMESTAMP '2020-01-01T00:00:00Z'",
        "SELECT count(*) FROM t WHERE random() < 2",
        "SELECT count(*) FROM t, information_schema.tables",
        "SELECT count(*) FROM t, range(3)",
        "SELECT 1",
        "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 3) \
         SELECT count(*) FROM r, t",
        "EXPLAIN SELECT count(*) FROM t",
    ] {
        if sql.contains("information_schema") {
            let set = "SET datafusion.catalog.information_schema = true";
            session.run(set).await.unwrap();
        }
        session.is_planned(sql).await;
        assert!(session.is_planned(sql).await, "{sql}");
    }
    let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let sql = format!("SELECT count(*) FROM t WHERE id IN ({})", many.join(", "));
    session.is_planned(&sql).await;
    assert!(session.is_planned(&sql).await, "a long list");
    let sql = "SELECT max(random()) FROM t WHERE id < 3";
    assert_ne!(session.answer(sql).await.0, session.answer(sql).await.0);
}

#[tokio::test]
async fn files_that_change_are_seen() {
    let session = Session::new().await;
    let sql = "SELECT count(*), sum(id), max(id) FROM t WHERE k < 5";
    session.is_planned_once(sql).await;
    session.write("t", "b", 20_000..20_100).await;
    session.is_planned_once(sql).await;
    session.write("t", "b", 30_000..30_100).await;
    session.is_planned_once(sql).await;
    std::fs::remove_file(session.path("t", "b")).unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    session.is_planned_once(sql).await;
    session.write("t", "a", 5..10_000).await;
    session.is_planned_once(sql).await;
    session
        .run("INSERT INTO t SELECT 7, 1, 2, 'x'")
        .await
        .unwrap();
    session.is_planned_once(sql).await;
    let answer = session.answer("SELECT count(*) FROM t").await.0;
    assert!(answer.contains(" 9996 "), "{answer}");
}

/// By default, DataFusion caches listings forever.
#[tokio::test]
async fn a_session_sees_its_own_files() {
    let Fixture { ctx, dir } = Fixture::empty();
    let session = Session::over(ctx, dir).await;
    let sql = "SELECT count(*) AS n, sum(id) FROM t";
    session.is_planned_once(sql).await;
    let insert = "INSERT INTO t SELECT 7, 1, 2, 'x'";
    session.run(insert).await.unwrap();
    session.is_planned_once(sql).await;
    assert!(session.answer(sql).await.0.contains(" 20001 "));
    let copy = format!(
        "COPY (SELECT * FROM t WHERE id < 5) TO '{}' STORED AS VECTILE OPTIONS (replace true)",
        session.path("t", "a").display()
    );
    session.run(&copy).await.unwrap();
    session.is_planned_once(sql).await;
    assert!(session.answer(sql).await.0.contains(" 6 "));
}

#[tokio::test]
async fn one_file_that_is_rewritten_is_seen() {
    let session = Session::new().await;
    session.write("one", "a", 0..10).await;
    let path = session.path("one", "a");
    let path = path.to_str().unwrap();
    let options = VectileReadOptions::default;
    let register = || session.ctx.register_vectile("one", path, options());
    register().await.unwrap();
    let sql = "SELECT count(*), sum(id) FROM one";
    session.is_planned_once(sql).await;
    session.write("one", "a", 10..30).await;
    session.is_planned_once(sql).await;
    std::fs::remove_file(path).unwrap();
    let planned = session.run(sql).await;
    let anew = session.ctx.sql(sql).await.unwrap().collect().await;
    assert_eq!(planned.is_ok(), anew.is_ok());
}

#[tokio::test]
async fn names_may_come_to_mean_other_tables() {
    let session = Session::new().await;
    session.write("u", "a", 0..10).await;
    session.register("u").await;
    let sql = "SELECT count(*), sum(id) FROM u";
    session.is_planned_once(sql).await;
    // The same files, but another table.
    session.run("DROP TABLE u").await.unwrap();
    session.register("u").await;
    session.is_planned_once(sql).await;
    session
        .run("CREATE OR REPLACE VIEW u AS SELECT * FROM t WHERE k = 1")
        .await
        .unwrap();
    session.is_planned_once(sql).await;
    session
        .run("CREATE OR REPLACE VIEW u AS SELECT * FROM t WHERE k = 2")
        .await
        .unwrap();
    session.is_planned_once(sql).await;
    session
        .run("CREATE OR REPLACE TABLE u AS SELECT * FROM t WHERE k = 3")
        .await
        .unwrap();
    assert!(session.is_planned(sql).await);
    session
        .run("INSERT INTO u SELECT * FROM t WHERE k = 4")
        .await
        .unwrap();
    assert!(session.is_planned(sql).await);
}

#[tokio::test]
async fn settings_may_change() {
    let session = Session::new().await;
    let sql = "SELECT count(*), min(arrow_cast('2020-05-05T00:00:00', 'Timestamp(Second, Some(\"UTC\"))')), \
               min(to_timestamp('2020-05-05T00:00:00')), max(v) FROM t WHERE k = 1";
    session.is_planned_once(sql).await;
    for (setting, value) in [
        ("vectile.gpu", "'off'"),
        ("vectile.pushdown_filters", "false"),
        ("datafusion.execution.batch_size", "100"),
        ("datafusion.execution.time_zone", "'+02:00'"),
        ("datafusion.execution.time_zone", "'+03:00'"),
        ("datafusion.execution.target_partitions", "3"),
    ] {
        session
            .run(&format!("SET {setting} = {value}"))
            .await
            .unwrap();
        session.is_planned_once(sql).await;
    }
    session.run("SET vectile.keep_plans = false").await.unwrap();
    assert!(session.is_planned(sql).await);
    assert!(session.is_planned(sql).await);
}

#[tokio::test]
async fn functions_may_change() {
    let session = Session::new().await;
    let sql = "SELECT sum(mine(id)) FROM t WHERE k = 1";
    for value in [1, 2] {
        let mine = create_udf(
            "mine",
            vec![DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            Arc::new(move |_| Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(value))))),
        );
        session.ctx.register_udf(mine);
        session.is_planned_once(sql).await;
    }
}

#[tokio::test]
async fn prepared_statements_are_planned_once_for_their_parameters() {
    let session = Session::new().await;
    for statement in [
        "PREPARE typed(BIGINT, VARCHAR) AS \
         SELECT count(*), sum(v) FROM t WHERE k = $1 AND name = $2",
        "PREPARE untyped AS SELECT count(*), min(id + $1) FROM t",
        "PREPARE any AS SELECT $1 AS x, count(*) FROM t",
    ] {
        session.run(statement).await.unwrap();
    }
    for execute in [
        "EXECUTE typed(1, 'n1')",
        "EXECUTE typed(2, 'n1')",
        "EXECUTE typed(2, 'n3')",
        "EXECUTE untyped(1)",
        "EXECUTE untyped(2)",
        "EXECUTE any(1)",
        "EXECUTE any(1.5)",
        "EXECUTE any('1')",
        "EXECUTE any(NULL)",
    ] {
        session.is_planned_once(execute).await;
    }
    assert!(!session.is_planned("EXECUTE typed(1, 'n1')").await);
    // This parameter is cast to the type in the statement.
    assert!(!session.is_planned("EXECUTE untyped(1.0)").await);
    session.run("DEALLOCATE typed").await.unwrap();
    session
        .run("PREPARE typed(BIGINT) AS SELECT count(*) FROM t WHERE k = $1")
        .await
        .unwrap();
    session.is_planned_once("EXECUTE typed(1)").await;
}

#[tokio::test]
async fn literals_of_other_types_are_other_queries() {
    let session = Session::new().await;
    for literal in [
        "1",
        "0.0",
        "-0.0",
        "1.0",
        "'1'",
        "CAST(1 AS SMALLINT)",
        "DATE '2020-01-01'",
    ] {
        session
            .is_planned_once(&format!("SELECT {literal} AS x, id FROM t WHERE id = 1"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_do_not_disturb_each_other() {
    let session = Arc::new(Session::new().await);
    for sql in QUERIES {
        let expected = session.answer(sql).await.0;
        let runs = (0..8).map(|_| {
            let session = Arc::clone(&session);
            tokio::spawn(async move { session.answer(sql).await })
        });
        for run in runs.collect::<Vec<_>>() {
            assert_eq!(run.await.unwrap(), (expected.clone(), false), "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_cancelled_leaves_nothing_behind() {
    let session = Session::new().await;
    session
        .run("SET datafusion.execution.batch_size = 10")
        .await
        .unwrap();
    for sql in QUERIES {
        let expected = session.answer(sql).await.0;
        for batches in [0, 1, 2] {
            let plan = session.plan(sql).await;
            let mut stream = execute_stream(plan, session.ctx.task_ctx()).unwrap();
            for _ in 0..batches {
                stream.next().await;
            }
            drop(stream);
            assert_eq!(
                session.answer(sql).await,
                (expected.clone(), false),
                "{sql}"
            );
        }
    }
}

#[tokio::test]
async fn few_plans_are_cached() {
    let session = Session::new().await;
    let query = |number: usize| format!("SELECT count(*) FROM t WHERE id < {number}");
    for number in 0..100 {
        session.is_planned_once(&query(number)).await;
    }
    for number in 40..100 {
        assert!(!session.is_planned(&query(number)).await);
    }
    assert!(session.is_planned(&query(3)).await);
}

#[tokio::test]
async fn plans_go_with_their_session() {
    let session = Session::new().await;
    session.is_planned_once(QUERIES[4]).await;
    let runtime = Arc::downgrade(&session.ctx.runtime_env());
    drop(session);
    assert!(runtime.upgrade().is_none());
}

#[tokio::test]
async fn a_file_may_be_replaced_while_a_query_is_planned() {
    let session = Arc::new(Session::new().await);
    let sql = "SELECT count(*), max(id) FROM t WHERE k >= 0";
    for rows in 1..20 {
        let other = Arc::clone(&session);
        let writes = tokio::spawn(async move { other.write("t", "a", 0..1000 + rows).await });
        // The query may read the old file or fail, as without a plan cache.
        let _ = session.run(sql).await;
        writes.await.unwrap();
        session.is_planned(sql).await;
    }
}

/// Orders by keys of which DataFusion does not know that rows are sorted by them.
#[tokio::test]
async fn plans_are_sorted_by_any_key() {
    let session = Session::new().await;
    let key = "(CASE WHEN (CASE WHEN f.name < 'n3' THEN f.v END) < 57 THEN d.k END)";
    let joined = "t f LEFT JOIN (SELECT * FROM t i WHERE i.k = 3 AND i.id < 100) d ON f.k = d.k";
    let sql = format!(
        "SELECT count(*), max(r) FROM (SELECT row_number() OVER (ORDER BY d.k DESC NULLS LAST, f.v, {key}) AS r \
         FROM {joined} WHERE f.id < 2000)"
    );
    session.is_planned_once(&sql).await;
    let sorted = format!(
        "SELECT f.v, d.k, {key} AS key FROM {joined} ORDER BY d.k DESC NULLS LAST, f.v, {key} NULLS LAST LIMIT 50"
    );
    let rows = session.run(&sorted).await.unwrap();
    let rows = pretty_format_batches(&rows).unwrap().to_string();
    let first: Vec<&str> = rows.lines().skip(3).take(2).collect();
    for row in first {
        assert!(row.contains("| 3 |"), "{rows}");
    }
    for sql in [
        "SELECT k FROM t ORDER BY upper(name) < 'N3', id",
        "SELECT k, array_agg(id ORDER BY upper(name) <= 'N3', id DESC) FROM t GROUP BY k ORDER BY k",
        "SELECT sum(v) OVER (PARTITION BY k ORDER BY upper(name) > 'N3', id) AS s FROM t ORDER BY id, s",
    ] {
        session.is_planned_once(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_may_be_replaced_while_a_query_is_planned() {
    let session = Arc::new(Session::new().await);
    session.write("u", "a", 0..10).await;
    session.register("u").await;
    let view =
        |rows: usize| format!("CREATE OR REPLACE VIEW w AS SELECT * FROM u WHERE id < {rows}");
    session.run(&view(0)).await.unwrap();
    let sql = "SELECT count(*), sum(id) FROM w WHERE id >= 0";
    for rows in 1..20 {
        let other = Arc::clone(&session);
        let create = view(rows);
        let replaced = tokio::spawn(async move { other.run(&create).await });
        session.run(sql).await.unwrap();
        replaced.await.unwrap().unwrap();
        session.is_planned(sql).await;
    }
}

/// A plan that DataFusion's last check refuses is not taken from the cache unchecked.
#[tokio::test]
async fn refused_plans_are_refused_again() {
    let session = Session::new().await;
    let sql = "SELECT count(r) FROM (SELECT row_number() OVER (PARTITION BY v ORDER BY x) AS r FROM \
               (SELECT max(id) AS x, v FROM (SELECT * FROM t ORDER BY v LIMIT 3) GROUP BY v))";
    for _ in 0..3 {
        let error = session.run(sql).await.unwrap_err().to_string();
        assert!(error.contains("SanityCheckPlan"), "{error}");
    }
}
