//! Filters by rank, beside DataFusion's plan of the same query.

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::register;

/// Partitions of 1 to many rows, text and nulls as keys, ties.
const TABLE: &str = "CREATE TABLE t AS SELECT value AS id, \
    CASE WHEN value % 10 = 3 THEN NULL ELSE concat('a partition of a long name, ', value * 31 % 17) END AS name, \
    value * value % 4001 AS p, \
    CASE WHEN value % 7 = 1 THEN NULL ELSE value * 7919 % 211 END AS v, \
    CASE WHEN value % 9 = 0 THEN CAST('NaN' AS DOUBLE) WHEN value % 9 = 1 THEN -CAST(0 AS DOUBLE) \
      WHEN value % 9 = 2 THEN 0.0 ELSE CAST(value % 5 AS DOUBLE) / 2 END AS f \
    FROM generate_series(0, 9999)";

/// Rows of `t` with a rank `r`.
const RANKS: &[&str] = &[
    "rank() OVER (PARTITION BY name ORDER BY v DESC)",
    "rank() OVER (PARTITION BY name ORDER BY v DESC NULLS LAST)",
    "rank() OVER (PARTITION BY name ORDER BY v NULLS FIRST, p)",
    "rank() OVER (PARTITION BY name, p % 5 ORDER BY v)",
    "rank() OVER (PARTITION BY p ORDER BY f, v)",
    "rank() OVER (PARTITION BY f ORDER BY name DESC, v)",
    "rank() OVER (PARTITION BY name ORDER BY f DESC)",
    "rank() OVER (PARTITION BY name ORDER BY f)",
    "rank() OVER (ORDER BY f, name)",
    "row_number() OVER (PARTITION BY name ORDER BY v, id)",
    "row_number() OVER (PARTITION BY p % 3 ORDER BY name DESC NULLS LAST, id DESC)",
    "row_number() OVER (ORDER BY id)",
];

const FILTERS: &[&str] = &[
    "r = 1",
    "r < 3",
    "r <= 100",
    "7 >= r",
    "r <= 10 AND v > 100",
    "r BETWEEN 5 AND 9",
];

async fn session() -> Result<SessionContext> {
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config(config);
    register(&ctx)?;
    run(&ctx, TABLE).await?;
    Ok(ctx)
}

async fn run(ctx: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    ctx.sql(sql).await?.collect().await
}

async fn text(ctx: &SessionContext, sql: &str) -> Result<String> {
    Ok(pretty_format_batches(&run(ctx, sql).await?)?.to_string())
}

/// Compares the answers with and without the operator, which has to be in the plan.
async fn compare(ctx: &SessionContext, sql: &str) -> Result<()> {
    run(ctx, "SET vectile.fuse = auto").await?;
    let plan = text(ctx, &format!("EXPLAIN {sql}")).await?;
    assert!(plan.contains("FirstRanksExec: first="), "{sql}: {plan}");
    let ours = text(ctx, sql).await?;
    run(ctx, "SET vectile.fuse = off").await?;
    let plan = text(ctx, &format!("EXPLAIN {sql}")).await?;
    assert!(!plan.contains("FirstRanksExec"), "{sql}: {plan}");
    assert_eq!(ours, text(ctx, sql).await?, "{sql}");
    Ok(())
}

#[tokio::test]
async fn ranks_are_those_of_all_rows() -> Result<()> {
    let ctx = session().await?;
    for size in [100, 8192] {
        let set = format!("SET datafusion.execution.batch_size = {size}");
        run(&ctx, &set).await?;
        for rank in RANKS {
            for filter in FILTERS {
                let sql = format!(
                    "SELECT id, name, r FROM (SELECT *, {rank} AS r FROM t) WHERE {filter} ORDER BY id"
                );
                compare(&ctx, &sql).await?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn ranks_of_groups_are_those_of_all_groups() -> Result<()> {
    let ctx = session().await?;
    let groups = "SELECT name, p % 100 AS p, sum(id) AS s FROM t GROUP BY ROLLUP (name, p % 100)";
    let ranks = format!(
        "SELECT *, rank() OVER w AS r, row_number() OVER w AS n FROM ({groups}) WINDOW w AS (PARTITION BY name ORDER BY s DESC)"
    );
    let sql = format!("SELECT name, p, s, r FROM ({ranks}) WHERE r <= 5 ORDER BY name, s, p");
    compare(&ctx, &sql).await?;
    // Another window may have seen all rows before.
    let ranks = "SELECT *, rank() OVER (PARTITION BY name ORDER BY v) AS r, row_number() OVER (PARTITION BY name ORDER BY id) AS n FROM t";
    compare(
        &ctx,
        &format!("SELECT id, r, n FROM ({ranks}) WHERE r <= 3 ORDER BY id"),
    )
    .await?;
    run(&ctx, "SET vectile.fuse = auto").await?;
    let plan = text(&ctx, &format!("EXPLAIN {sql}")).await?;
    let after = |name: &str| plan.find(name).unwrap_or_default();
    assert!(
        after("SortExec: expr=[name") < after("RepartitionExec: partitioning=Hash"),
        "{plan}"
    );
    assert!(
        after("RepartitionExec: partitioning=Hash") < after("FirstRanksExec"),
        "{plan}"
    );
    assert!(
        plan.contains("first=5 by [s@2 DESC] of each [name@0]"),
        "{plan}"
    );
    Ok(())
}

/// Queries that count rows, or keep others than the first ones, get all of them.
#[tokio::test]
async fn other_queries_get_all_rows() -> Result<()> {
    let ctx = session().await?;
    for (columns, filter) in [
        ("rank() OVER w AS r", "r > 3"),
        ("rank() OVER w AS r", "r <> 1"),
        ("rank() OVER w AS r", "r <= 3 OR v = 1"),
        ("rank() OVER w AS r", "r + 0 <= 3"),
        ("rank() OVER w AS r", "r < 1"),
        ("rank() OVER w AS r", "r <= 10001"),
        ("dense_rank() OVER w AS r", "r <= 3"),
        ("rank() OVER w AS r, sum(v) OVER w AS o", "r <= 3"),
        ("rank() OVER w AS r, lead(v) OVER w AS o", "r <= 3"),
        (
            "rank() OVER w AS r, count(*) OVER (PARTITION BY name) AS o",
            "r <= 3",
        ),
        (
            "rank() OVER w AS r, row_number() OVER (PARTITION BY name ORDER BY id) AS o",
            "o <= 3",
        ),
        ("rank() OVER (PARTITION BY name) AS r", "r <= 3"),
        ("v AS r, rank() OVER w AS o", "r <= 3"),
        (
            "rank() OVER (PARTITION BY arrow_cast(name, 'Dictionary(Int32, Utf8)') ORDER BY v) AS r",
            "r <= 3",
        ),
        (
            "rank() OVER (PARTITION BY name ORDER BY make_array(v)) AS r",
            "r <= 3",
        ),
    ] {
        let sql = format!(
            "EXPLAIN SELECT * FROM (SELECT id, v, {columns} FROM t WINDOW w AS (PARTITION BY name ORDER BY v)) WHERE {filter}"
        );
        let plan = text(&ctx, &sql).await?;
        assert!(!plan.contains("FirstRanksExec"), "{sql}: {plan}");
    }
    Ok(())
}

#[tokio::test]
async fn dropped_rows_are_no_output() -> Result<()> {
    let ctx = session().await?;
    let sql = "EXPLAIN ANALYZE SELECT id, r FROM \
        (SELECT *, rank() OVER (PARTITION BY name ORDER BY id) AS r FROM t) WHERE r <= 3";
    let plan = text(&ctx, sql).await?;
    let line = plan.lines().find(|line| line.contains("first=3")).unwrap();
    let rows = line.split("output_rows=").nth(1).unwrap();
    let rows = rows.split([',', ' ']).next().unwrap();
    // 18 partitions in each of up to 2 inputs
    let rows: usize = rows.parse().unwrap();
    assert!((18 * 3..10_000).contains(&rows), "{plan}");
    Ok(())
}
