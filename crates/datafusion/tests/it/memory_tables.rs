//! Tables in memory: appends, snapshots, inserts, retention, copies to files and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::{
    AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::functions::expr_fn::now;
use datafusion::logical_expr::{col, lit};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use futures::future::try_join_all;
use vectile_datafusion::{
    Gpu, TableOptions, VectileReadOptions, VectileSessionContextExt, VectileTable,
    VectileTableOptions, load_columns, register, register_with_gpu,
};

use crate::plan_cache::{Counting, count_plans};
use crate::support::emulator;

fn session() -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4));
    register(&ctx).unwrap();
    ctx
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("word", DataType::Utf8, true),
    ]))
}

/// Rows with these ids.
fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let words = ids
        .clone()
        .map(|id| (id % 5 != 0).then(|| format!("w{}", id % 3)));
    let words: StringArray = words.collect();
    let ids: Int64Array = ids.collect();
    RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(words)]).unwrap()
}

/// Row groups of 4096 rows, which are encoded only when they are full.
fn options() -> VectileTableOptions {
    let mut table = TableOptions::default();
    table.row_group_rows = Some(4096);
    VectileTableOptions::default()
        .with_table(table)
        .with_seal_after(Duration::from_secs(3600))
}

fn table(ctx: &SessionContext, name: &str, options: VectileTableOptions) -> Arc<VectileTable> {
    let table = Arc::new(VectileTable::try_new(schema(), options).unwrap());
    ctx.register_table(name, Arc::clone(&table) as _).unwrap();
    table
}

/// A table of DataFusion with these rows.
fn plain(rows: impl Into<Vec<RecordBatch>>) -> Arc<dyn TableProvider> {
    Arc::new(MemTable::try_new(schema(), vec![rows.into()]).unwrap())
}

async fn run(ctx: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    vectile_datafusion::sql(ctx, sql)
        .await?
        .execute()?
        .try_collect()
        .await
}

/// The rows of a query as text.
async fn answer(ctx: &SessionContext, sql: &str) -> String {
    let batches = run(ctx, sql).await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// The one number that a query returns.
async fn number(ctx: &SessionContext, sql: &str) -> i64 {
    let batches = run(ctx, sql).await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_answer_as_soon_as_they_are_appended() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    let count = "SELECT count(*) FROM t";
    assert_eq!(number(&ctx, count).await, 0);
    let none = answer(
        &ctx,
        "SELECT word, sum(id) FROM t WHERE id > 3 GROUP BY word",
    )
    .await;
    assert_eq!(none, "++\n++");
    let mut total = 0;
    for size in [1, 10, 1000, 1, 8192, 100, 4095, 1] {
        table.append([rows(total..total + size)]).await.unwrap();
        total += size;
        assert_eq!(number(&ctx, count).await, total);
        assert_eq!(
            number(&ctx, "SELECT sum(id) FROM t").await,
            total * (total - 1) / 2
        );
        let filtered = format!("SELECT count(id) FROM t WHERE id >= {}", total - 1);
        assert_eq!(number(&ctx, &filtered).await, 1);
        let words = "SELECT count(word) FROM t WHERE word LIKE 'w%'";
        assert_eq!(number(&ctx, words).await, total - (total + 4) / 5);
    }
    table.flush().await.unwrap();
    let size = table.size();
    assert_eq!(
        (size.rows, size.sealed_rows),
        (total as usize, total as usize)
    );
    assert_eq!(
        number(&ctx, "SELECT sum(id) FROM t").await,
        total * (total - 1) / 2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_in_memory_answer_as_datafusions_do() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table
        .append([rows(0..10_000), rows(10_000..10_007)])
        .await
        .unwrap();
    let other = session();
    other.register_table("t", plain([rows(0..10_007)])).unwrap();
    for query in [
        "SELECT word, count(*), min(id), max(id), sum(id) FROM t GROUP BY word ORDER BY word",
        "SELECT id, word FROM t WHERE word = 'w1' AND id BETWEEN 4000 AND 4100 ORDER BY id",
        "SELECT id FROM t ORDER BY id DESC LIMIT 5",
        "SELECT count(DISTINCT word) FROM t",
        "SELECT a.word, count(*) FROM t a JOIN t b ON a.id = b.id + 1 GROUP BY a.word ORDER BY 1",
        "SELECT id FROM t WHERE id = (SELECT max(id) FROM t)",
    ] {
        let of_table = answer(&ctx, query).await;
        assert_eq!(of_table, answer(&other, query).await, "{query}");
        run(&ctx, "SET vectile.fuse = 'on'").await.unwrap();
        let fused = answer(&ctx, query).await;
        assert_eq!(of_table, fused, "{query}");
        run(&ctx, "SET vectile.fuse = 'default'").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_and_readers_count_exactly() {
    const WRITERS: i64 = 50;
    const APPENDS: i64 = 10;
    let ctx = session();
    let table = table(&ctx, "t", options());
    let writers = (0..WRITERS).map(|writer| {
        let table = Arc::clone(&table);
        tokio::spawn(async move {
            for append in 0..APPENDS {
                let first = (writer * APPENDS + append) * 100;
                table
                    .append([rows(first..first + 60), rows(first + 60..first + 100)])
                    .await?;
            }
            Ok::<_, DataFusionError>(())
        })
    });
    let readers = (0..50).map(|_| {
        let ctx = ctx.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..4 {
                // appends are of 100 rows, and both scans see the same ones
                let both = "SELECT (SELECT count(*) FROM t WHERE id >= 0) AS again, count(word), count(*) FROM t";
                let batches = run(&ctx, both).await?;
                let of = |column: usize| batches[0].column(column).as_primitive::<Int64Type>().value(0);
                let (again, words, count) = (of(0), of(1), of(2));
                assert_eq!(again, count);
                assert_eq!(words, count / 5 * 4);
                assert_eq!(count % 100, 0);
                assert!(count >= last);
                last = count;
                // the same through a data frame, whose plan is not cached
                let joined = "SELECT count(*) FROM t a JOIN t b ON a.id = b.id";
                let frame = ctx.sql(joined).await?.collect().await?;
                let joined = frame[0].column(0).as_primitive::<Int64Type>().value(0);
                assert!(joined >= last && joined % 100 == 0, "{joined}");
            }
            Ok::<_, DataFusionError>(())
        })
    });
    let all: Vec<_> = writers.chain(readers).collect();
    for done in try_join_all(all).await.unwrap() {
        done.unwrap();
    }
    assert_eq!(
        number(&ctx, "SELECT count(*) FROM t").await,
        WRITERS * APPENDS * 100
    );
    assert_eq!(
        number(&ctx, "SELECT count(DISTINCT id) FROM t").await,
        WRITERS * APPENDS * 100
    );
    assert!(table.size().row_groups > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_sees_one_moment_from_start_to_end() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table.append([rows(0..6000)]).await.unwrap();
    let query = vectile_datafusion::sql(&ctx, "SELECT id FROM t")
        .await
        .unwrap();
    table.append([rows(6000..9000)]).await.unwrap();
    table.flush().await.unwrap();
    assert_eq!(
        table
            .remove_row_groups(&col("id").gt_eq(lit(0)))
            .await
            .unwrap()
            .rows,
        9000
    );
    let seen: Vec<RecordBatch> = query.execute().unwrap().try_collect().await.unwrap();
    assert_eq!(seen.iter().map(RecordBatch::num_rows).sum::<usize>(), 6000);
    assert_eq!(number(&ctx, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_groups_are_encoded_in_the_background() {
    let ctx = session();
    let table = table(
        &ctx,
        "t",
        options().with_seal_after(Duration::from_millis(20)),
    );
    let settled = async || {
        for _ in 0..500 {
            let size = table.size();
            if size.sealed_rows == size.rows {
                return size;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} is not encoded", table.size());
    };
    table.append([rows(0..100)]).await.unwrap();
    let size = settled().await;
    assert_eq!((size.rows, size.row_groups), (100, 1));
    // small row groups are joined
    for first in [100, 200, 300, 400] {
        table.append([rows(first..first + 100)]).await.unwrap();
        settled().await;
    }
    let size = settled().await;
    assert_eq!(size.rows, 500);
    assert!(size.row_groups <= 3, "{size:?}");
    table.append([rows(500..20_000)]).await.unwrap();
    let size = settled().await;
    assert!((5..=8).contains(&size.row_groups), "{size:?}");
    assert_eq!(number(&ctx, "SELECT sum(id) FROM t").await, 19_999 * 10_000);
    let plan = answer(&ctx, "EXPLAIN SELECT sum(id) FROM t WHERE word = 'w1'").await;
    assert!(
        plan.contains("file_type=vectile") && plan.contains("encoded="),
        "{plan}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_insert_and_create() {
    let ctx = session();
    run(&ctx, "SET vectile.memory_tables = true").await.unwrap();
    run(
        &ctx,
        "CREATE TABLE t (id BIGINT NOT NULL, word TEXT DEFAULT 'none')",
    )
    .await
    .unwrap();
    run(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, NULL)")
        .await
        .unwrap();
    run(&ctx, "INSERT INTO t (id) VALUES (3)").await.unwrap();
    run(&ctx, "INSERT INTO t SELECT id + 10, word FROM t")
        .await
        .unwrap();
    let sum = "SELECT count(*), count(word), sum(id) FROM t";
    let before = answer(&ctx, sum).await;
    assert!(
        before.contains("| 6        | 4             | 42 "),
        "{before}"
    );
    run(&ctx, "INSERT INTO t VALUES (NULL, 'b')")
        .await
        .unwrap_err();
    assert_eq!(answer(&ctx, sum).await, before);
    run(&ctx, "CREATE TABLE t (id INT)").await.unwrap_err();
    run(&ctx, "CREATE TABLE IF NOT EXISTS t (id INT)")
        .await
        .unwrap();
    assert_eq!(answer(&ctx, sum).await, before);
    run(&ctx, "INSERT OVERWRITE t VALUES (7, 'x')")
        .await
        .unwrap();
    assert_eq!(number(&ctx, "SELECT sum(id) FROM t").await, 7);
    // DataFusion would tell the table no filter
    run(&ctx, "DELETE FROM t WHERE id IN (SELECT 1)")
        .await
        .unwrap_err();
    run(&ctx, "UPDATE t SET word = 'y' WHERE false")
        .await
        .unwrap_err();
    assert_eq!(number(&ctx, "SELECT sum(id) FROM t").await, 7);
    assert_eq!(
        number_of_rows(&run(&ctx, "TRUNCATE TABLE t").await.unwrap()),
        1
    );
    assert_eq!(number(&ctx, "SELECT count(*) FROM t").await, 0);
    run(
        &ctx,
        "CREATE OR REPLACE TABLE t AS SELECT value AS v FROM range(100000)",
    )
    .await
    .unwrap();
    assert_eq!(number(&ctx, "SELECT sum(v) FROM t").await, 99_999 * 50_000);
    let provider = ctx.table_provider("t").await.unwrap();
    assert!(provider.is::<VectileTable>());
    run(
        &ctx,
        "CREATE TABLE failed AS SELECT 1 / (v - v) AS x FROM t",
    )
    .await
    .unwrap_err();
    assert!(!ctx.table_exist("failed").unwrap());
    run(&ctx, "DROP TABLE t").await.unwrap();
    run(&ctx, "SELECT * FROM t").await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_changes_rows_that_its_filter_excludes() {
    let ctx = session();
    run(&ctx, "CREATE TABLE t AS SELECT value AS id FROM range(10)")
        .await
        .unwrap();
    run(&ctx, "CREATE TABLE u AS SELECT 3 AS id").await.unwrap();
    let sum = "SELECT sum(id) FROM t";
    for statement in [
        "DELETE FROM t WHERE 1 = 0",
        "DELETE FROM t WHERE id = 1 AND id = 2",
        "UPDATE t SET id = 5 WHERE false",
    ] {
        run(&ctx, statement).await.unwrap();
        assert_eq!(number(&ctx, sum).await, 45, "{statement}");
    }
    for statement in [
        "DELETE FROM t WHERE id IN (SELECT id FROM u)",
        "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
        "DELETE FROM t WHERE id = (SELECT max(id) FROM u)",
        "UPDATE t SET id = 5 WHERE id NOT IN (SELECT id FROM u)",
        "UPDATE t SET id = u.id FROM u WHERE t.id = u.id + 1",
    ] {
        run(&ctx, statement).await.unwrap_err();
        assert_eq!(number(&ctx, sum).await, 45, "{statement}");
    }
    run(&ctx, "DELETE FROM t WHERE id = 3").await.unwrap();
    run(&ctx, "UPDATE t SET id = id + 1 WHERE id >= 8")
        .await
        .unwrap();
    assert_eq!(number(&ctx, sum).await, 44);
    run(&ctx, "DELETE FROM t").await.unwrap();
    assert_eq!(number(&ctx, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_cached_until_rows_come() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table.append([rows(0..5000)]).await.unwrap();
    table.flush().await.unwrap();
    let count = count_plans(&ctx);
    let planned = || count.swap(0, Ordering::Relaxed) > 0;
    let logical = Arc::new(AtomicUsize::new(0));
    ctx.add_optimizer_rule(Arc::new(Counting(Arc::clone(&logical))));
    let query = "SELECT word, sum(id) FROM t GROUP BY word ORDER BY word";
    let first = answer(&ctx, query).await;
    assert!(planned());
    for _ in 0..3 {
        assert_eq!(answer(&ctx, query).await, first);
        assert!(!planned());
    }
    let logical = || logical.swap(0, Ordering::Relaxed) > 0;
    assert!(logical());
    table.append([rows(5000..5001)]).await.unwrap();
    assert_ne!(answer(&ctx, query).await, first);
    assert!(planned() && !logical());
    // the name of another table
    ctx.deregister_table("t").unwrap();
    self::table(&ctx, "t", options());
    assert_ne!(answer(&ctx, query).await, first);
    assert!(planned() && logical());
}

#[tokio::test]
async fn cached_plans_hold_no_table_that_is_gone() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table.append([rows(0..10)]).await.unwrap();
    let query = "SELECT sum(id) FROM t";
    answer(&ctx, query).await;
    table.append([rows(10..20)]).await.unwrap();
    let weak = Arc::downgrade(&table);
    drop(table);
    ctx.deregister_table("t").unwrap();
    run(&ctx, "SELECT 1").await.unwrap();
    assert!(weak.upgrade().is_none());
    run(&ctx, query).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_keep_what_is_encoded() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table.append([rows(0..10_000)]).await.unwrap();
    table.flush().await.unwrap();
    table.append([rows(10_000..10_010)]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.vectile").display().to_string();
    let copy = format!("COPY t TO '{path}' STORED AS VECTILE");
    let plan = answer(&ctx, &format!("EXPLAIN {copy}")).await;
    assert!(plan.contains("encoded_row_groups=3"), "{plan}");
    assert_eq!(number_of_rows(&run(&ctx, &copy).await.unwrap()), 10_010);
    ctx.register_vectile("file", &path, VectileReadOptions::default())
        .await
        .unwrap();
    let all = "SELECT count(*), count(word), min(word), sum(id), max(id) FROM ";
    assert_eq!(
        answer(&ctx, &format!("{all} file t")).await,
        answer(&ctx, &format!("{all} t")).await
    );
    // a column less, or other encodings, are written anew
    let plan = answer(
        &ctx,
        &format!("EXPLAIN COPY (SELECT id FROM t) TO '{path}.2' STORED AS VECTILE"),
    )
    .await;
    assert!(!plan.contains("encoded_row_groups"), "{plan}");
    // it exists
    run(&ctx, &copy).await.unwrap_err();

    let back = self::table(&ctx, "back", options());
    let insert = "INSERT INTO back SELECT * FROM file";
    let plan = answer(&ctx, &format!("EXPLAIN {insert}")).await;
    assert!(plan.contains("encoded_row_groups=4"), "{plan}");
    run(&ctx, insert).await.unwrap();
    assert_eq!(back.size().sealed_rows, 10_010);
    assert_eq!(
        answer(&ctx, &format!("{all} back t")).await,
        answer(&ctx, &format!("{all} t")).await
    );
    run(&ctx, "INSERT INTO back SELECT * FROM t").await.unwrap();
    assert_eq!(back.size().rows, 20_020);
    let filtered = answer(&ctx, &format!("EXPLAIN {insert} WHERE id > 5")).await;
    assert!(!filtered.contains("encoded_row_groups"), "{filtered}");
}

fn number_of_rows(count: &[RecordBatch]) -> u64 {
    let column = count[0].column(0);
    column
        .as_primitive::<datafusion::arrow::datatypes::UInt64Type>()
        .value(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn old_row_groups_are_removed() {
    let ctx = session();
    let table = table(&ctx, "t", options());
    table.append([rows(0..4096 * 3 + 100)]).await.unwrap();
    table.flush().await.unwrap();
    let before = table.size().bytes;
    let removed = table
        .remove_row_groups(&col("id").lt(lit(8192)))
        .await
        .unwrap();
    assert_eq!((removed.row_groups, removed.rows), (2, 8192));
    let removed = table
        .remove_row_groups(&col("id").lt(lit(8192 + 10)))
        .await
        .unwrap();
    assert_eq!(removed.rows, 0, "not all of its rows");
    assert_eq!(number(&ctx, "SELECT min(id) FROM t").await, 8192);
    assert!(table.size().bytes < before);
    table
        .remove_row_groups(&col("other").lt(lit(1)))
        .await
        .unwrap_err();
    // no row was appended so long ago
    assert_eq!(
        table
            .remove_older_than(Duration::from_secs(3600))
            .await
            .rows,
        0
    );
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        table.remove_older_than(Duration::from_millis(1)).await.rows,
        4096 + 100
    );
    table.append([rows(0..5)]).await.unwrap();
    table.clear().await;
    assert_eq!(table.size().rows, 0);
    assert_eq!(number(&ctx, "SELECT count(*) FROM t").await, 0);
    assert_eq!(table.size().bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_counts_in_the_pool() {
    let pool = Arc::new(GreedyMemoryPool::new(400 << 10));
    let options = options().with_memory_pool(pool.clone());
    let table = VectileTable::try_new(schema(), options).unwrap();
    table.append([rows(0..4000)]).await.unwrap();
    let size = table.size().bytes;
    assert!(size >= 4000 * 8, "{size}");
    let error = table.append([rows(0..100_000)]).await.unwrap_err();
    assert!(
        matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
        "{error}"
    );
    assert_eq!(table.size().rows, 4000);
    assert_eq!(table.size().bytes, size);
    table.flush().await.unwrap();
    let encoded = table.size().bytes;
    assert!(encoded < size, "{encoded} {size}");
    let limited = VectileTable::try_new(schema(), self::options().with_memory_limit(Some(1000)));
    limited.unwrap().append([rows(0..100)]).await.unwrap_err();
    drop(table);
    use datafusion::execution::memory_pool::MemoryPool;
    // the task that encoded rows may just end
    for _ in 0..500 {
        if pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} bytes are reserved", pool.reserved());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_groups_are_sorted() {
    let ctx = session();
    let options = options().with_sort_order(vec![col("id").sort(false, true)]);
    let table = table(&ctx, "t", options);
    table.append([rows(0..4096)]).await.unwrap();
    table
        .append([rows(5000..5010), rows(4096..5000)])
        .await
        .unwrap();
    for _ in 0..2 {
        let batches = run(&ctx, "SELECT id FROM t WHERE id >= 4096")
            .await
            .unwrap();
        let ids: Vec<i64> = batches
            .iter()
            .flat_map(|batch| {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
            })
            .collect();
        assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
        let top = answer(&ctx, "SELECT id FROM t ORDER BY id DESC LIMIT 3").await;
        assert!(top.contains("5009"), "{top}");
        assert_eq!(
            number(
                &ctx,
                "SELECT count(*) FROM (SELECT id FROM t ORDER BY id DESC)"
            )
            .await,
            5010
        );
        table.flush().await.unwrap();
    }
    let by_value =
        VectileTableOptions::default().with_sort_order(vec![(col("id") + lit(1)).sort(true, true)]);
    VectileTable::try_new(schema(), by_value).unwrap_err();
}

#[tokio::test]
async fn other_batches_are_refused() {
    let table = VectileTable::try_new(schema(), options()).unwrap();
    let words = || Arc::new(StringArray::from(vec!["a"])) as _;
    let ids = Arc::new(Int32Array::from(vec![1])) as _;
    let other = RecordBatch::try_from_iter([("id", ids), ("word", words())]).unwrap();
    table.append([rows(0..3), other]).await.unwrap_err();
    assert_eq!(table.size().rows, 0);
    let ids = Arc::new(Int64Array::from(vec![None])) as _;
    let null = RecordBatch::try_from_iter([("id", ids), ("word", words())]).unwrap();
    table.append([null]).await.unwrap_err();
    let mut compressed = TableOptions::default();
    compressed.compression = vectile_file::Compression::Zstd;
    let options = VectileTableOptions::default().with_table(compressed);
    VectileTable::try_new(schema(), options).unwrap_err();
}

/// A generator of numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_sequence_of_changes_leaves_the_rows_it_should() {
    for seed in 1..=8 {
        let mut random = Random(seed);
        let (ctx, other) = (session(), session());
        let wait = Duration::from_millis([1, 20, 3_600_000][random.below(3) as usize]);
        let table = table(&ctx, "t", options().with_seal_after(wait));
        let mut all: Vec<RecordBatch> = Vec::new();
        let mut next = 0;
        for _ in 0..30 {
            match random.below(10) {
                0..=4 => {
                    let sizes = [1, 3, 700, 1024, 4096, 5000, 9000];
                    let batches = (0..=random.below(2)).map(|_| {
                        let size = sizes[random.below(sizes.len() as u64) as usize];
                        next += size;
                        rows(next - size..next)
                    });
                    let batches: Vec<_> = batches.collect();
                    table.append(batches.clone()).await.unwrap();
                    all.extend(batches);
                }
                5 => {
                    let mut appender = table.appender();
                    let batch = rows(next..next + 10_000);
                    next += 10_000;
                    appender.write(batch.clone()).await.unwrap();
                    if random.below(3) > 0 {
                        appender.commit().await.unwrap();
                        all.push(batch);
                    }
                }
                6 => table.flush().await.unwrap(),
                7 => {
                    table.flush().await.unwrap();
                    let first = random.below(next as u64 + 1) as i64;
                    let old = col("id").lt(lit(first));
                    let removed = table.remove_row_groups(&old).await.unwrap().rows;
                    let left = run(&ctx, "SELECT id, word FROM t").await.unwrap();
                    // what is gone is old
                    let count = |batches: &[RecordBatch]| {
                        let ids = batches
                            .iter()
                            .map(|of| of.column(0).as_primitive::<Int64Type>());
                        let ids = ids.flat_map(|of| of.values().to_vec());
                        let (old, new): (Vec<i64>, Vec<i64>) = ids.partition(|id| *id < first);
                        (old.len(), new.len())
                    };
                    let (before, after) = (count(&all), count(&left));
                    assert_eq!((before.0 - removed, before.1), after, "seed {seed}");
                    all = left;
                }
                8 => {
                    run(
                        &ctx,
                        "INSERT INTO t SELECT id, 'again' FROM t WHERE id % 97 = 1",
                    )
                    .await
                    .unwrap();
                    let copies = other.read_table(plain(all.clone())).unwrap();
                    let copies = copies.filter((col("id") % lit(97)).eq(lit(1))).unwrap();
                    let copies = copies
                        .select(vec![col("id"), lit("again").alias("word")])
                        .unwrap();
                    all.extend(copies.collect().await.unwrap());
                }
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
            other.register_table("t", plain(all.clone())).unwrap();
            let fuse = ["on", "auto", "off"][random.below(3) as usize];
            run(&ctx, &format!("SET vectile.fuse = '{fuse}'"))
                .await
                .unwrap();
            for query in [
                "SELECT count(*), count(word), sum(id), min(id), max(id), min(word) FROM t",
                "SELECT word, count(*), sum(id) FROM t WHERE id % 3 = 1 GROUP BY word ORDER BY word",
                "SELECT id, word FROM t WHERE word >= 'w1' ORDER BY id, word LIMIT 7",
                "SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.word = 'w2'",
            ] {
                let expected = answer(&other, query).await;
                assert_eq!(answer(&ctx, query).await, expected, "seed {seed}: {query}");
            }
            other.deregister_table("t").unwrap();
            assert_eq!(
                table.size().rows,
                all.iter().map(RecordBatch::num_rows).sum::<usize>()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_follow_tables() {
    let Some(engine) = emulator() else { return };
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    register_with_gpu(&ctx, Gpu::new(Arc::clone(&engine))).unwrap();
    run(&ctx, "SET vectile.gpu = 'require'").await.unwrap();
    let table = table(&ctx, "t", options());
    table.append([rows(0..8192 + 50)]).await.unwrap();
    while table.size().sealed_rows < 8192 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // row groups on the device, and rows that are not encoded
    let query = "SELECT word, count(*), sum(id) FROM t GROUP BY word ORDER BY word";
    let cpu = session();
    let expected = async |rows: RecordBatch| {
        cpu.register_table("t", plain([rows])).unwrap();
        let expected = answer(&cpu, query).await;
        cpu.deregister_table("t").unwrap();
        expected
    };
    assert_eq!(answer(&ctx, query).await, expected(rows(0..8242)).await);

    let loaded = load_columns(&ctx, "t", &["id", "word"]).await.unwrap();
    assert!(
        loaded.iter().all(|column| column.row_groups == 2),
        "{loaded:?}"
    );
    let pinned = async |row_groups: i64| {
        let sum = "SELECT CAST(coalesce(sum(row_groups), 0) AS BIGINT) AS n FROM vectile_pinned()";
        for _ in 0..1000 {
            let batches = run(&ctx, sum).await.unwrap();
            let column = batches[0].column(0);
            if column.as_primitive::<Int64Type>().value(0) == row_groups {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{}", answer(&ctx, "SELECT * FROM vectile_pinned()").await);
    };
    pinned(4).await;
    table.append([rows(8242..4096 * 4)]).await.unwrap();
    pinned(8).await;
    assert_eq!(answer(&ctx, query).await, expected(rows(0..4096 * 4)).await);
    let removed = table
        .remove_row_groups(&col("id").lt(lit(4096)))
        .await
        .unwrap();
    assert_eq!(removed.rows, 4096);
    pinned(6).await;
    // another column is not followed any more
    vectile_datafusion::unload_columns(&ctx, Some("t"), &["word"])
        .await
        .unwrap();
    pinned(3).await;
    table.append([rows(20_000..24_096)]).await.unwrap();
    pinned(4).await;
    ctx.deregister_table("t").unwrap();
    drop(table);
    pinned(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_files_are_found_by_name() {
    let ctx = session();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (name, query) in [
        ("1", "SELECT 1 AS a, 2 AS b"),
        ("2", "SELECT 20 AS b, 10 AS a"),
    ] {
        let copy = format!(
            "COPY ({query}) TO '{}.vectile' STORED AS VECTILE",
            path(name)
        );
        run(&ctx, &copy).await.unwrap();
    }
    let files = format!("{}/", dir.path().display());
    let options = VectileReadOptions::default();
    ctx.register_vectile("files", files, options).await.unwrap();
    run(&ctx, "SET vectile.memory_tables = true").await.unwrap();
    run(&ctx, "CREATE TABLE t AS SELECT * FROM files LIMIT 0")
        .await
        .unwrap();
    run(&ctx, "INSERT INTO t SELECT * FROM files")
        .await
        .unwrap();
    assert_eq!(number(&ctx, "SELECT sum(a) FROM t").await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_are_no_reason_to_trust_an_order() {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    register(&ctx).unwrap();
    let field = Field::new("k", DataType::Int64, true);
    let schema = Arc::new(Schema::new(vec![field]));
    let options = options().with_sort_order(vec![col("k").sort(true, false)]);
    let table = Arc::new(VectileTable::try_new(Arc::clone(&schema), options).unwrap());
    ctx.register_table("t", Arc::clone(&table) as _).unwrap();
    for values in [vec![Some(2), None, Some(1)], vec![Some(4), Some(3), None]] {
        let column = Arc::new(Int64Array::from(values));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        table.append([batch]).await.unwrap();
        let sorted = answer(&ctx, "SELECT k FROM t ORDER BY k NULLS LAST").await;
        let expected = answer(
            &ctx,
            "SELECT k FROM (SELECT k + 0 AS k FROM t) ORDER BY k NULLS LAST",
        )
        .await;
        assert_eq!(sorted, expected);
        table.flush().await.unwrap();
    }
    let expected = answer(
        &ctx,
        "SELECT k, count(*) FROM (SELECT k + 0 AS k FROM t) GROUP BY k ORDER BY k",
    )
    .await;
    assert_eq!(
        answer(&ctx, "SELECT k, count(*) FROM t GROUP BY k ORDER BY k").await,
        expected
    );
    assert_eq!(
        number(&ctx, "SELECT count(*) FROM (SELECT k FROM t GROUP BY k)").await,
        5
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_of_batches_need_not_fit_together() {
    use datafusion::arrow::array::{ArrayRef, DictionaryArray, Int8Array, StringViewArray};
    use datafusion::arrow::datatypes::Int8Type;
    let of = |first: i32| {
        let keys = Int8Array::from_iter_values(0..100);
        let values = StringViewArray::from_iter_values((first..first + 100).map(|i| i.to_string()));
        let array = DictionaryArray::<Int8Type>::new(keys, Arc::new(values));
        RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap()
    };
    let ctx = session();
    let table = VectileTable::try_new(of(0).schema(), options()).unwrap();
    let table = Arc::new(table);
    ctx.register_table("t", Arc::clone(&table) as _).unwrap();
    for (number_of_appends, first) in [0, 100, 200].into_iter().enumerate() {
        table.append([of(first)]).await.unwrap();
        let rows = 100 * (number_of_appends as i64 + 1);
        assert_eq!(number(&ctx, "SELECT count(d) FROM t").await, rows);
        let one = format!("SELECT count(*) FROM t WHERE d = '{}'", rows - 1);
        assert_eq!(number(&ctx, &one).await, 1);
    }
    table.flush().await.unwrap();
    assert_eq!(table.size().sealed_rows, 300);
    assert_eq!(number(&ctx, "SELECT count(d) FROM t").await, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_have_the_types_that_queries_return() {
    let ctx = session();
    run(&ctx, "SET vectile.memory_tables = true").await.unwrap();
    run(&ctx, "CREATE TABLE t AS SELECT 1 AS x UNION ALL SELECT 2.5")
        .await
        .unwrap();
    assert!(answer(&ctx, "SELECT sum(x) FROM t").await.contains("3.5"));
    // a plan that holds the rows does not outlive the table
    let pool = Arc::clone(&ctx.runtime_env().memory_pool);
    assert!(pool.reserved() > 0);
    run(&ctx, "DROP TABLE t").await.unwrap();
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_knows_the_time() {
    let at = DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into()));
    let schema = Arc::new(Schema::new(vec![Field::new("at", at, false)]));
    let table = VectileTable::try_new(Arc::clone(&schema), options()).unwrap();
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as i64;
    for day in [-3, 3] {
        let day = since + day * 24 * 3600 * 1_000_000_000;
        let times = TimestampNanosecondArray::from(vec![day; 4096]).with_timezone("+00:00");
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(times)]).unwrap();
        table.append([batch]).await.unwrap();
        table.flush().await.unwrap();
    }
    let removed = table.remove_row_groups(&col("at").lt(now())).await.unwrap();
    assert_eq!((removed.row_groups, removed.rows), (1, 4096));
}

#[test]
fn appends_outside_of_a_runtime_fail() {
    let table = VectileTable::try_new(schema(), options()).unwrap();
    let error = futures::executor::block_on(table.append([rows(0..5000)])).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
    let mut appender = table.appender();
    futures::executor::block_on(appender.write(rows(0..5000))).unwrap_err();
    futures::executor::block_on(table.flush()).unwrap_err();
    assert_eq!(table.size().rows, 0);
}
