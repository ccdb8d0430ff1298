//! `vectile.gpu = auto`: the CPU answers until the GPU is ready.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{Int32Array, RecordBatch};
use vectile_datafusion::Gpu;
use vectile_gpu::Engine;

use crate::support::{Fixture, emulator};

/// Enough rows for the GPU to be faster by estimate, once it is ready.
const ROWS: i32 = 3_000_000;

/// One table, in a session with default settings.
async fn fixture() -> Option<Fixture> {
    Some(with_table(Fixture::on_emulator()?).await)
}

/// Like [`fixture`], with a GPU that opens once the sender is used.
async fn opened_later() -> Option<(Fixture, Arc<Engine>, Sender<()>)> {
    let engine = emulator()?;
    let (opened, (send, receive)) = (Arc::clone(&engine), channel());
    let receive = Mutex::new(receive);
    let gpu = Gpu::later(move || {
        let waited = receive.lock().unwrap().recv();
        waited.map_err(|_| String::from("it broke"))?;
        Ok(Arc::clone(&opened))
    });
    Some((with_table(Fixture::on(gpu)).await, engine, send))
}

async fn with_table(fixture: Fixture) -> Fixture {
    let values = Arc::new(Int32Array::from_iter_values(
        (0..ROWS).map(|row| row / 1000),
    ));
    let batch = RecordBatch::try_from_iter([("a", values as _)]).unwrap();
    fixture.ctx.register_batch("plain", batch).unwrap();
    let path = fixture.path("packed.vectile");
    let copy = format!("COPY plain TO '{}' STORED AS VECTILE", path.display());
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    fixture
}

async fn until_loaded(engine: &Engine) {
    let begun = Instant::now();
    while engine.cached_bytes() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(300));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Fixture {
    /// Adds a table `text` of this many distinct strings.
    async fn add_text(&self, rows: usize) {
        let path = self.path("text.vectile");
        let copy = format!(
            "COPY (SELECT concat('row ', value) AS t FROM generate_series(1, {rows})) TO '{}' STORED AS VECTILE",
            path.display()
        );
        self.run(&copy).await.unwrap();
        self.register("text", &path).await;
    }

    async fn set_gpu(&self, gpu: &str, kernels: &str) {
        let set = format!("SET vectile.gpu = '{gpu}'");
        self.run(&set).await.unwrap();
        let set = format!("SET vectile.gpu.kernels = '{kernels}'");
        self.run(&set).await.unwrap();
    }

    async fn analyzed(&self, sql: &str) -> String {
        self.answer(&format!("EXPLAIN ANALYZE {sql}")).await
    }

    /// The first plan of `sql` that runs on the GPU entirely.
    async fn once_ready(&self, sql: &str) -> String {
        let begun = Instant::now();
        loop {
            let plan = self.analyzed(sql).await;
            let is_waiting = plan.contains(" yet: CPU ") || plan.contains("still being prepared");
            if !plan.contains("fallbacks") && !is_waiting {
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
        // The emulator is slow: once measured, the CPU runs the query for good.
        let ready = fixture.once_ready(sql).await;
        assert!(ready.contains("gpu_rows="), "{ready}");
        assert_eq!(fixture.answer(sql).await, expected);
    }
    let plan = fixture.plan("SELECT sum(a) FROM packed WHERE a > 3").await;
    assert!(plan.contains("expected=[CPU "), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_query_is_prepared_once_the_gpu_is_open() {
    let Some((fixture, engine, open)) = opened_later().await else {
        return;
    };
    let sql = "SELECT sum(a) AS s, count(*) AS n FROM packed WHERE a > 17 AND a < 2990";
    let expected = fixture.answer(&sql.replace("packed", "plain")).await;
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("PrewarmExec: aggregates=1"), "{plan}");
    // a program runs it meanwhile
    let left = "device=CPU, not_on_gpu=the GPU is not open yet: CPU ";
    assert!(plan.contains(left), "{plan}");
    // Neither planning nor the queries wait for the device. The first does not open it.
    for _ in 0..2 {
        assert_eq!(fixture.answer(sql).await, expected);
    }
    open.send(()).unwrap();
    until_loaded(&engine).await;
    let ready = fixture.once_ready(sql).await;
    assert!(ready.contains("FusedAggregateExec"), "{ready}");
    assert!(ready.contains("bytes_sent=0"), "{ready}");
    assert_eq!(fixture.answer(sql).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gpu_is_not_prepared_for_columns_that_are_read_once() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let sql = "SELECT sum(a) AS s FROM packed WHERE a > 16 AND a < 2990";
    // the reason of the second is not that the GPU is being prepared
    let plan = fixture.analyzed(sql).await;
    let fell_back = plan.contains("fallbacks") && plan.contains(" yet: CPU ");
    assert!(fell_back, "{plan}");
    // from then on all of it is planned for the CPU, until the GPU is ready
    let plan = fixture.analyzed(sql).await;
    assert!(plan.contains("PrewarmExec: aggregates=1"), "{plan}");
    let is_left = plan.contains("device=CPU, not_on_gpu=") && plan.contains(" yet: CPU ");
    assert!(is_left, "{plan}");
    fixture.once_ready(sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_was_never_asked_is_interpreted() {
    let Some(fixture) = fixture().await else {
        return;
    };
    // loads the interpreter and the column
    fixture.set_gpu("on", "interpreted").await;
    fixture
        .answer("SELECT count(a) FROM packed WHERE a > 5")
        .await;
    fixture.set_gpu("auto", "auto").await;
    let sql = "SELECT sum(a) AS s, max(a) AS m FROM packed WHERE a > 23 AND a < 2990";
    let plan = fixture.analyzed(sql).await;
    assert!(plan.contains("interpreted=1"), "{plan}");
    assert!(!plan.contains("fallbacks"), "{plan}");
    let expected = fixture.answer(&sql.replace("packed", "plain")).await;
    assert_eq!(fixture.answer(sql).await, expected);
}

/// The build side is a join, which cannot run before the later rules have been applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_with_joins_is_prepared_once_the_gpu_is_open() {
    let Some((fixture, engine, open)) = opened_later().await else {
        return;
    };
    for table in ["evens", "threes"] {
        let step = if table == "evens" { 2 } else { 3 };
        let rows = format!("SELECT CAST(value AS INT) AS k FROM generate_series(0, 2999, {step})");
        fixture.make(table, &rows).await;
    }
    let sql = "SELECT sum(a) AS s, count(*) AS n FROM packed \
               JOIN (SELECT evens.k FROM evens JOIN threes ON evens.k = threes.k) AS d ON a = d.k";
    let expected = fixture.answer(&sql.replace("packed", "plain")).await;
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("PrewarmExec: aggregates=1"), "{plan}");
    for _ in 0..2 {
        assert_eq!(fixture.answer(sql).await, expected);
    }
    open.send(()).unwrap();
    until_loaded(&engine).await;
    let ready = fixture.once_ready(sql).await;
    assert!(ready.contains("bytes_sent=0"), "{ready}");
    assert_eq!(fixture.answer(sql).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn require_waits_for_the_gpu() {
    for opens in [true, false] {
        let Some((fixture, _, open)) = opened_later().await else {
            return;
        };
        fixture.run("SET vectile.gpu = 'require'").await.unwrap();
        match opens {
            true => open.send(()).unwrap(),
            false => drop(open),
        }
        for sql in [
            "SELECT sum(a) AS s, count(*) AS n FROM packed WHERE a > 17 AND a < 2990",
            "SELECT a FROM packed WHERE a = 1717",
        ] {
            let answer = fixture.run(sql).await;
            assert_eq!(answer.is_ok(), opens);
            if let Err(error) = answer {
                let error = error.to_string();
                assert!(error.contains("vectile.gpu = require"), "{error}");
                assert!(error.contains("it broke"), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cpu_answers_if_the_gpu_does_not_open() {
    let Some((fixture, _, open)) = opened_later().await else {
        return;
    };
    drop(open);
    for mode in ["auto", "on"] {
        let set = format!("SET vectile.gpu = '{mode}'");
        fixture.run(&set).await.unwrap();
        let sql = "SELECT sum(a) AS s, count(*) AS n FROM packed WHERE a > 17 AND a < 2990";
        let expected = fixture.answer(&sql.replace("packed", "plain")).await;
        for _ in 0..3 {
            assert_eq!(fixture.answer(sql).await, expected);
        }
    }
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

/// Text without a dictionary gets one on the GPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_text_are_numbered_once_the_gpu_is_ready() {
    let Some(fixture) = fixture().await else {
        return;
    };
    fixture.add_text(300_000).await;
    let sql = "SELECT count(*) AS n FROM (SELECT t, count(*) AS m FROM text GROUP BY t HAVING count(*) = 1)";
    let plan = fixture.once_ready(sql).await;
    assert!(plan.contains("FusedAggregateExec"), "{plan}");
    assert!(fixture.answer(sql).await.contains("300000"));
}

/// Its results are made in the background, like columns, although there is an interpreter and the column is loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cpu_answers_until_a_function_of_text_is_evaluated() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let path = fixture.path("words.vectile");
    let copy = format!(
        "COPY (SELECT concat('word ', value % 1000) AS t FROM generate_series(1, {ROWS})) TO '{}' STORED AS VECTILE",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("words", &path).await;
    fixture.set_gpu("on", "interpreted").await;
    let loaded = "SELECT t, count(*) FROM words GROUP BY t HAVING count(*) = 1";
    fixture.answer(loaded).await;
    fixture.set_gpu("auto", "auto").await;
    let sql =
        "SELECT reverse(t) AS r, count(*) AS n FROM words GROUP BY r HAVING max(length(t)) = 6";
    let plan = fixture.analyzed(sql).await;
    assert!(plan.contains("columns are not loaded yet"), "{plan}");
    let plan = fixture.once_ready(sql).await;
    assert!(plan.contains("gpu_rows="), "{plan}");
    assert_eq!(fixture.answer(sql).await.matches("3000").count(), 10);
}

/// A predicate with a long constant has no automaton. Only the chunks show which text has a dictionary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_queries_are_planned_for_the_cpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    fixture.add_text(600_000).await;
    let sql = "SELECT count(*) AS n FROM (SELECT t, count(*) AS m FROM text WHERE t <> repeat('long', 40) GROUP BY t
        HAVING count(*) = 1)";
    let begun = Instant::now();
    let plan = loop {
        assert!(fixture.answer(sql).await.contains("600000"));
        let plan = fixture.analyzed(sql).await;
        if plan.contains("PrewarmExec") && plan.contains("could not do this") {
            break plan;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{plan}");
    };
    assert!(!plan.contains("device=CPU emulator"), "{plan}");
    assert!(plan.contains("PrewarmExec: aggregates=0"), "{plan}");
    assert!(fixture.answer(sql).await.contains("600000"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_prepared_without_background() {
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
            // On a busy machine, the CPU may look so slow that the query waits for the kernel.
            if plan.contains("launches=1") && !plan.contains("compile_time=1ns") {
                break;
            }
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
