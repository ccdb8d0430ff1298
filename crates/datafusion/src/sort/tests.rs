//! Sorts by packed keys, beside DataFusion's plan of the same query.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::register;

/// A column of each type that is packed, with nulls, and values that are many or few, close or far apart.
const TABLE: &str = "CREATE TABLE t AS SELECT value AS id, \
    CASE WHEN value % 10 = 3 THEN NULL ELSE concat('a name that is long, ', value * 31 % 17) END AS name, \
    CASE WHEN value % 11 = 3 THEN NULL ELSE arrow_cast(concat('n', value * 31 % 19), 'Utf8') END AS short, \
    concat('text ', value * 7919 % 1000003) AS many, \
    CASE WHEN value % 7 = 1 THEN NULL ELSE value * 7919 % 211 - 100 END AS v, \
    CAST(NULL AS INT) AS none, \
    arrow_cast(value % 200, 'UInt8') AS u8, \
    arrow_cast(value * 18364758544493 % 9223372036854775807, 'UInt64') * arrow_cast(2, 'UInt64') AS u64, \
    CASE value % 3 WHEN 0 THEN -9223372036854775807 WHEN 1 THEN 9223372036854775807 ELSE value END AS far, \
    value % 3 = 1 AS b, \
    CASE WHEN value % 9 = 0 THEN CAST('NaN' AS DOUBLE) WHEN value % 9 = 1 THEN -CAST(0 AS DOUBLE) \
      WHEN value % 9 = 2 THEN 0.0 WHEN value % 9 = 3 THEN -CAST('NaN' AS DOUBLE) \
      WHEN value % 9 = 4 THEN -CAST('Infinity' AS DOUBLE) ELSE CAST(value % 5 AS DOUBLE) / 2 - 1 END AS f64, \
    arrow_cast(CAST(value % 23 AS DOUBLE) / 4 - 2, 'Float32') AS f32, \
    arrow_cast(value % 31 - 15, 'Decimal128(38, 2)') AS money, \
    arrow_cast(concat('-', value % 7, '0000000000000000000000000000000000'), 'Decimal128(38, 2)') AS riches, \
    arrow_cast(value % 100 - 50, 'Date32') AS day, \
    to_timestamp_millis(value % 50 * 86400000 - 1) AS at \
    FROM generate_series(0, 1999)";

/// Orders of `t`; the number decides the rest, so that there is one answer.
const ORDERS: &[&str] = &[
    "id DESC",
    "v, id",
    "v DESC, id",
    "v NULLS FIRST, name DESC NULLS LAST, id DESC",
    "name, id",
    "name DESC, short, id",
    "short NULLS FIRST, id",
    "none, none DESC, id",
    "u8 DESC, u64, id",
    "u64 DESC, id",
    "far, id",
    "far DESC, v, id",
    "far, u64, money, id",
    "b, f64, id",
    "b DESC, f64 DESC NULLS LAST, id",
    "f32, f64, day, id",
    "money DESC, at, id",
    "riches, id",
    "riches, v DESC, name, id",
    "day, at DESC, u8, b, id",
    "v + u8, id % 7, id",
    "many, id",
];

/// A session with `bytes` of memory.
async fn session(bytes: usize) -> Result<SessionContext> {
    session_of(Arc::new(FairSpillPool::new(bytes))).await
}

async fn session_of(pool: Arc<dyn MemoryPool>) -> Result<SessionContext> {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_sort_spill_reservation_bytes(1 << 16);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let ctx = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
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

/// Compares the answers with and without the operator. Returns the plan with it, and its metrics.
async fn compare(ctx: &SessionContext, sql: &str) -> Result<String> {
    run(ctx, "SET vectile.fuse = off").await?;
    let plan = text(ctx, &format!("EXPLAIN {sql}")).await?;
    assert!(!plan.contains("PackedSortExec"), "{sql}: {plan}");
    let theirs = text(ctx, sql).await?;
    run(ctx, "SET vectile.fuse = auto").await?;
    assert_eq!(text(ctx, sql).await?, theirs, "{sql}");
    text(ctx, &format!("EXPLAIN ANALYZE {sql}")).await
}

#[tokio::test]
async fn rows_are_in_the_order_of_their_keys() -> Result<()> {
    let ctx = session(usize::MAX).await?;
    for size in [100, 8192] {
        run(
            &ctx,
            &format!("SET datafusion.execution.batch_size = {size}"),
        )
        .await?;
        for order in ORDERS {
            let plan = compare(&ctx, &format!("SELECT id, name FROM t ORDER BY {order}")).await?;
            assert!(plan.contains("PackedSortExec: expr="), "{order}: {plan}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn keys_that_are_too_wide_are_sorted_in_general() -> Result<()> {
    let ctx = session(usize::MAX).await?;
    let sql = "SELECT riches, far, id FROM t ORDER BY riches, far, id";
    let plan = compare(&ctx, sql).await?;
    assert!(
        plan.contains("general_sorts=1") || plan.contains("general_sorts=2"),
        "{plan}"
    );
    let sql = "SELECT money, far, id FROM t ORDER BY money, far, id";
    let plan = compare(&ctx, sql).await?;
    assert!(plan.contains("general_sorts=0"), "{plan}");
    Ok(())
}

#[tokio::test]
async fn other_types_keep_their_operator() -> Result<()> {
    let ctx = session(usize::MAX).await?;
    for key in [
        "[v, id]",
        "arrow_cast(name, 'Dictionary(Int32, Utf8)')",
        "arrow_cast(many, 'Binary')",
    ] {
        let plan = compare(&ctx, &format!("SELECT id FROM t ORDER BY {key}, id")).await?;
        assert!(!plan.contains("PackedSortExec"), "{key}: {plan}");
    }
    let plan = compare(&ctx, "SELECT id FROM t ORDER BY v, id LIMIT 10").await?;
    assert!(!plan.contains("PackedSortExec"), "{plan}");
    Ok(())
}

#[tokio::test]
async fn no_rows_and_no_columns() -> Result<()> {
    let ctx = session(usize::MAX).await?;
    for sql in [
        "SELECT * FROM t WHERE id < 0 ORDER BY v, id",
        "SELECT count(*) FROM (SELECT id FROM t WHERE id > 7 ORDER BY v, id OFFSET 3)",
        "SELECT row_number() OVER (ORDER BY v, id) AS n FROM t WHERE id % 2000 = 7",
    ] {
        compare(&ctx, sql).await?;
    }
    Ok(())
}

#[tokio::test]
async fn rows_that_do_not_fit_into_memory_are_spilled() -> Result<()> {
    let ctx = session(1_200_000).await?;
    run(&ctx, "SET datafusion.execution.batch_size = 1000").await?;
    let sql = "SELECT a.id, a.v, b.name, b.many FROM t AS a JOIN t AS b ON a.v = b.v \
        ORDER BY a.v, a.id, b.id";
    let sql = format!(
        "SELECT count(*), sum(n * (id + 1)) FROM \
        (SELECT id, row_number() OVER (ORDER BY v, id, many) AS n FROM ({sql}))"
    );
    let plan = compare(&ctx, &sql).await?;
    assert!(plan.contains("general_sorts=1"), "{plan}");
    Ok(())
}

#[tokio::test]
async fn a_sort_above_another_has_memory_left() -> Result<()> {
    let sql = "SELECT count(*), sum(n * m) FROM (SELECT *, row_number() OVER (ORDER BY name, id, other) AS m FROM \
        (SELECT a.id, b.id AS other, b.name, b.many, row_number() OVER (ORDER BY a.v, a.id, b.id) AS n \
        FROM t AS a JOIN t AS b ON a.v = b.v))";
    let mut answered = 0;
    for bytes in (1..=16).map(|quarters| quarters << 18) {
        let ctx = session_of(Arc::new(GreedyMemoryPool::new(bytes))).await?;
        run(&ctx, "SET datafusion.execution.batch_size = 1000").await?;
        run(&ctx, "SET vectile.fuse = off").await?;
        let Ok(theirs) = text(&ctx, sql).await else {
            continue;
        };
        answered += 1;
        run(&ctx, "SET vectile.fuse = auto").await?;
        assert_eq!(text(&ctx, sql).await?, theirs, "{bytes}");
    }
    assert!(answered > 3, "{answered}");
    Ok(())
}

#[tokio::test]
async fn rows_that_are_nullable_in_some_batches_are_sorted() -> Result<()> {
    let ctx = session(usize::MAX).await?;
    let sql = "SELECT id, x FROM (SELECT id, 1 AS x FROM t WHERE id % 2 = 0 UNION ALL SELECT id, v FROM t) ORDER BY x, id";
    let plan = compare(&ctx, sql).await?;
    assert!(plan.contains("PackedSortExec"), "{plan}");
    Ok(())
}
