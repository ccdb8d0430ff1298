//! `vectile.gpu = auto`: the CPU answers until the GPU is ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int32Array, RecordBatch};

use crate::support::Fixture;

/// Enough for the GPU to be expected to be faster, once it is ready.
const ROWS: i32 = 3_000_000;

/// One table, in a session with default settings.
async fn fixture() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    let values = Arc::new(Int32Array::from_iter_values(
        (0..ROWS).map(|row| row / 1000),
    ));
    let batch = RecordBatch::try_from_iter([("a", values as _)]).unwrap();
    fixture.ctx.register_batch("plain", batch).unwrap();
    let path = fixture.path("packed.vectile");
    let copy = format!("COPY plain TO '{}' STORED AS VECTILE", path.display());
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    Some(fixture)
}

impl Fixture {
    async fn analyzed(&self, sql: &str) -> String {
        self.answer(&format!("EXPLAIN ANALYZE {sql}")).await
    }

    /// The first plan of `sql` in which nothing was left to the CPU.
    async fn once_ready(&self, sql: &str) -> String {
        let begun = Instant::now();
        loop {
            let plan = self.analyzed(sql).await;
            if !plan.contains("fallbacks") {
                return plan;
            }
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(300), "{plan}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cpu_answers_until_the_gpu_is_ready() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for sql in [
        "SELECT sum(a) AS s, count(*) AS n FROM packed WHERE a > 17 AND a < 2990",
        "SELECT a FROM packed WHERE a = 1717",
    ] {
        let expected = fixture.answer(&sql.replace("packed", "plain")).await;
        let first = fixture.analyzed(sql).await;
        assert!(first.contains("fallbacks"), "{first}");
        assert!(first.contains(" not "), "{first}");
        assert_eq!(fixture.answer(sql).await, expected);
        let ready = fixture.once_ready(sql).await;
        assert!(ready.contains("gpu_rows="), "{ready}");
        assert_eq!(fixture.answer(sql).await, expected);
    }
    let plan = fixture.plan("SELECT sum(a) FROM packed WHERE a > 3").await;
    assert!(plan.contains("expected=[CPU "), "{plan}");
}

/// The emulator takes much longer than the CPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_ran_on_both_goes_where_it_was_faster() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let sql = "SELECT sum(a * a) AS s FROM packed WHERE a > 19 AND a < 2990";
    fixture.once_ready(sql).await;
    let plan = fixture.analyzed(sql).await;
    assert!(plan.contains("the CPU is faster: CPU "), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_ready_where_nobody_wants_that() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let set = "SET vectile.gpu.background = false";
    fixture.run(set).await.unwrap();
    for sql in [
        "SELECT sum(a) FROM packed WHERE a > 18",
        "SELECT a FROM packed WHERE a = 1718",
    ] {
        for _ in 0..3 {
            let plan = fixture.analyzed(sql).await;
            assert!(plan.contains("fallbacks"), "{plan}");
            assert!(plan.contains("launches=0"), "{plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_scans_are_left_to_the_cpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let path = fixture.path("small.vectile");
    let copy = format!(
        "COPY (SELECT * FROM plain LIMIT 1000) TO '{}' STORED AS VECTILE",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("small", &path).await;
    for sql in [
        "SELECT sum(a) FROM small WHERE a > 0",
        "SELECT a FROM small WHERE a = 0",
    ] {
        let plan = fixture.plan(sql).await;
        assert!(
            plan.contains("not_on_gpu=the CPU is faster: CPU 0."),
            "{plan}"
        );
        fixture.run("SET vectile.gpu = 'on'").await.unwrap();
        let plan = fixture.plan(sql).await;
        assert!(plan.contains("CPU emulator"), "{plan}");
        fixture.run("SET vectile.gpu = 'auto'").await.unwrap();
    }
}
