//! Column chunks that stay in memory for later queries.

use std::fs;
use std::sync::Arc;

use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt, register};

use crate::support::{Fixture, ROWS, metric};

/// Bytes that a query read, and bytes that the cache had.
fn bytes(plan: &Arc<dyn ExecutionPlan>) -> (usize, usize) {
    (metric(plan, "bytes_scanned"), metric(plan, "bytes_cached"))
}

impl Fixture {
    /// The bytes of one run.
    async fn bytes(&self, sql: &str) -> (usize, usize) {
        bytes(&self.executed(sql).await.0)
    }
}

#[tokio::test]
async fn the_second_query_reads_nothing() {
    for (sql, fuse) in [
        ("SELECT * FROM packed", false),
        (
            "SELECT name, price FROM packed WHERE id BETWEEN 4000 AND 9000",
            false,
        ),
        (
            "SELECT name, text FROM packed WHERE int > 5 AND list IS NOT NULL",
            false,
        ),
        (
            "SELECT byte, sum(price) FROM packed WHERE int > 5 GROUP BY byte",
            false,
        ),
        (
            "SELECT byte, sum(price) FROM packed WHERE int > 5 GROUP BY byte",
            true,
        ),
    ] {
        let fixture = Fixture::new().await;
        fixture
            .run(&format!("SET vectile.fuse = {fuse}"))
            .await
            .unwrap();
        let ordered = format!("{sql} ORDER BY 1, 2");
        let (read, cached) = fixture.bytes(&ordered).await;
        assert!(read > 0 && cached == 0, "{sql}: {read}, {cached}");
        let first = fixture.answer(&ordered).await;
        let (read, cached) = fixture.bytes(&ordered).await;
        assert!(read == 0 && cached > 0, "{sql}: {read}, {cached}");
        fixture.run("SET vectile.cache_memory = 0").await.unwrap();
        assert_eq!(fixture.answer(&ordered).await, first, "{sql}");
    }
}

#[tokio::test]
async fn a_query_reads_what_is_missing() {
    let fixture = Fixture::new().await;
    let (of_id, _) = fixture.bytes("SELECT id FROM packed").await;
    let (of_name, _) = fixture.bytes("SELECT name FROM packed").await;
    let (read, cached) = fixture.bytes("SELECT id, name, price FROM packed").await;
    assert!(read > 0 && cached >= of_id + of_name, "{read}, {cached}");
    let (all, _) = Fixture::new()
        .await
        .bytes("SELECT id, name, price FROM packed")
        .await;
    assert_eq!(read + of_id + of_name, all);
    fixture
        .same("SELECT id, name, price FROM {t} ORDER BY id")
        .await;
}

#[tokio::test]
async fn bloom_filters_are_kept() {
    let fixture = Fixture::empty();
    let path = fixture.path("keys.vectile");
    let copy = format!(
        "COPY (SELECT (value * 7919) % 100003 AS key FROM range(8192)) TO '{}'
         STORED AS VECTILE OPTIONS (row_group_rows 1024, bloom_filter 'key')",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("keys", &path).await;
    let sql = "SELECT * FROM keys WHERE key = 63352";
    let (plan, rows) = fixture.executed(sql).await;
    assert!(rows == 1 && bytes(&plan).0 > 0);
    let pruned = metric(&plan, "row_groups_pruned_by_bloom_filter");
    let (plan, rows) = fixture.executed(sql).await;
    assert!(rows == 1 && bytes(&plan).0 == 0, "{:?}", bytes(&plan));
    let again = metric(&plan, "row_groups_pruned_by_bloom_filter");
    assert!(pruned > 0 && pruned == again);
}

#[tokio::test]
async fn sessions_of_a_runtime_share_chunks() {
    let first = Fixture::new().await;
    let sql = "SELECT sum(int) FROM packed";
    assert!(first.bytes(sql).await.0 > 0);
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, first.ctx.runtime_env());
    register(&ctx).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let second = Fixture { ctx, dir };
    second
        .register("packed", &first.path("packed.vectile"))
        .await;
    assert_eq!(second.bytes(sql).await.0, 0);
}

#[tokio::test]
async fn a_setting_turns_it_off_and_frees_it() {
    let fixture = Fixture::new().await;
    let sql = "SELECT sum(int) FROM packed";
    let (read, _) = fixture.bytes(sql).await;
    fixture.run("SET vectile.cache_memory = 0").await.unwrap();
    assert_eq!(fixture.bytes(sql).await, (read, 0));
    fixture
        .run("SET vectile.cache_memory = '1G'")
        .await
        .unwrap();
    assert_eq!(fixture.bytes(sql).await, (read, 0));
    assert_eq!(fixture.bytes(sql).await.0, 0);
    // Unverified chunks are neither kept nor taken for verified ones.
    fixture
        .run("SET vectile.verify_checksums = false")
        .await
        .unwrap();
    assert_eq!(fixture.bytes(sql).await, (read, 0));
}

#[tokio::test]
async fn a_scan_that_does_not_fit_keeps_nothing() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET vectile.cache_memory = '80K'")
        .await
        .unwrap();
    let small = "SELECT sum(byte) FROM packed";
    assert!(fixture.bytes(small).await.0 > 0);
    assert_eq!(fixture.bytes(small).await.0, 0);
    let all = "SELECT * FROM packed";
    let (read, _) = fixture.bytes(all).await;
    assert!(read > 80 << 10, "{read}");
    assert_eq!(fixture.bytes(all).await.0, read);
    assert_eq!(fixture.bytes(small).await.0, 0);
}

#[tokio::test]
async fn the_least_recently_used_chunks_go_first() {
    let fixture = Fixture::empty();
    for name in ["a", "b", "c", "d"] {
        fixture
            .make(name, "SELECT random() AS v FROM generate_series(1, 10000)")
            .await;
    }
    // Each has 80 KB.
    fixture
        .run("SET vectile.cache_memory = '256K'")
        .await
        .unwrap();
    let read = async |name: &str| fixture.bytes(&format!("SELECT sum(v) FROM {name}")).await.0;
    for name in ["a", "b", "c", "a"] {
        read(name).await;
    }
    assert!(read("d").await > 0);
    assert_eq!(read("a").await, 0);
    assert_eq!(read("c").await, 0);
    assert!(read("b").await > 0);
    // A smaller limit applies at once.
    fixture
        .run("SET vectile.cache_memory = '200K'")
        .await
        .unwrap();
    assert_eq!(read("b").await, 0);
    assert!(read("a").await > 0);
}

#[tokio::test]
async fn a_replaced_file_is_never_answered_from_memory() {
    let fixture = Fixture::empty();
    // Of the same size.
    fixture.make("t", "SELECT 111111111 AS v").await;
    fixture.make("other", "SELECT 222222222 AS v").await;
    let (path, other) = (fixture.path("t.vectile"), fixture.path("other.vectile"));
    let size = |path| fs::metadata(path).unwrap().len();
    assert_eq!(size(&path), size(&other));
    let sql = "SELECT v + 0 AS w FROM t";
    for _ in 0..2 {
        assert!(fixture.answer(sql).await.contains("111111111"));
    }
    let plan = fixture.ctx.sql(sql).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    fs::rename(&other, &path).unwrap();
    // A plan has listed the old version.
    let error = collect(plan, fixture.ctx.task_ctx()).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("changed while it was read"), "{error}");
    assert!(fixture.answer(sql).await.contains("222222222"));
    let copy = format!(
        "COPY (SELECT 333333333 AS v) TO '{}' STORED AS VECTILE OPTIONS (replace true)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    assert!(fixture.answer(sql).await.contains("333333333"));
}

/// The runtime keeps the listing of a directory for good, and nothing is read that would notice another version.
#[tokio::test]
async fn a_file_replaced_in_a_listed_directory_is_an_error_once() {
    for fuse in [false, true] {
        let fixture = Fixture::empty();
        let directory = fixture.path("t");
        fs::create_dir(&directory).unwrap();
        for (name, offset) in [("t/a", 0), ("b", 5000)] {
            let path = fixture.path(&format!("{name}.vectile"));
            let copy = format!(
                "COPY (SELECT value + {offset} AS v FROM generate_series(1, 1000)) TO '{}' STORED AS VECTILE",
                path.display()
            );
            fixture.run(&copy).await.unwrap();
        }
        fixture.register("t", &directory).await;
        let set = format!("SET vectile.fuse = {fuse}");
        fixture.run(&set).await.unwrap();
        let sql = "SELECT sum(v) AS s FROM t WHERE v % 2 = 0";
        for _ in 0..2 {
            assert!(fixture.answer(sql).await.contains("250500"));
        }
        assert_eq!(fixture.bytes(sql).await.0, 0);
        fs::rename(fixture.path("b.vectile"), directory.join("a.vectile")).unwrap();
        let error = fixture.run(sql).await.unwrap_err().to_string();
        assert!(error.contains("changed while it was read"), "{error}");
        assert!(fixture.answer(sql).await.contains("2750500"));
    }
}

/// Columns of a remote file have memory of their own, so that the budget is what they hold.
#[tokio::test]
async fn remote_files_are_kept_in_parts() {
    let fixture = Fixture::new().await;
    let store = Arc::new(InMemory::new());
    let url = ObjectStoreUrl::parse("mem://test").unwrap();
    fixture.ctx.register_object_store(url.as_ref(), store);
    let copy =
        "COPY plain TO 'mem://test/t.vectile' STORED AS VECTILE OPTIONS (row_group_rows 4096)";
    fixture.run(copy).await.unwrap();
    let options = VectileReadOptions::default();
    let registered = fixture
        .ctx
        .register_vectile("t", "mem://test/t.vectile", options);
    registered.await.unwrap();
    let sql = "SELECT id, name, price FROM t WHERE int > 3 ORDER BY id";
    assert!(fixture.bytes(sql).await.0 > 0);
    assert_eq!(fixture.bytes(sql).await.0, 0);
    let of_plain = fixture.answer(&sql.replace("FROM t", "FROM plain")).await;
    assert_eq!(fixture.answer(sql).await, of_plain);
    fixture
        .run(&copy.replace("4096", "2048, replace true"))
        .await
        .unwrap();
    assert!(fixture.bytes(sql).await.0 > 0);
    assert_eq!(fixture.answer(sql).await, of_plain);
}

#[tokio::test]
async fn it_takes_no_memory_from_queries() {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(64 << 20, 1.0)
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    register(&ctx).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture { ctx, dir };
    fixture.add_tables().await;
    let sql = "SELECT id, name FROM packed";
    assert_eq!(fixture.executed(sql).await.1, ROWS);
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
    assert_eq!(fixture.bytes(sql).await.0, 0);
}
