//! Preloading: columns that are loaded onto the GPU before queries need them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::sum;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use vectile_datafusion::{
    Gpu, VectileSessionStateBuilderExt, load_columns, physical_plan, register_with_gpu,
    unload_columns,
};
use vectile_emulator::CpuDevice;
use vectile_gpu::Engine;

use crate::support::{Fixture, metric};

/// Reads five columns.
const QUERY: &str =
    "SELECT sum(int), sum(big), sum(byte), sum(price), sum(void) FROM packed WHERE int > 100";
const COLUMNS: [&str; 5] = ["int", "big", "byte", "price", "void"];
const LOAD: &str = "SELECT * FROM vectile_load('packed', 'int', 'big', 'byte', 'price', 'void')";
const PINNED: &str = "SELECT column_name FROM vectile_pinned() ORDER BY column_name";

/// The test table in a session with an engine on the emulator; `None` without a C++ compiler.
async fn fixture() -> Option<(Fixture, Arc<Engine>)> {
    let device = match CpuDevice::new() {
        Ok(device) => Arc::new(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let engine = Engine::new(device);
    let fixture = session(Gpu::new(Arc::clone(&engine))).await;
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    Some((fixture, engine))
}

async fn session(gpu: Gpu) -> Fixture {
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config(config);
    register_with_gpu(&ctx, gpu).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture { ctx, dir };
    fixture.add_tables().await;
    fixture
}

impl Fixture {
    /// Bytes that are sent to the device for the query.
    async fn sent(&self) -> usize {
        metric(&self.executed(QUERY).await.0, "bytes_sent")
    }

    async fn rows(&self, sql: &str) -> usize {
        let batches = self.run(sql).await.unwrap();
        batches.iter().map(RecordBatch::num_rows).sum()
    }

    async fn failure(&self, sql: &str) -> String {
        self.run(sql).await.unwrap_err().strip_backtrace()
    }

    /// Replaces the file of `packed` by one with other rows.
    async fn rewrite(&self) {
        let path = self.path("packed.vectile");
        let copy = format!(
            "COPY (SELECT * FROM plain WHERE id < 5000) TO '{}' STORED AS VECTILE OPTIONS (replace true)",
            path.display()
        );
        self.run(&copy).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_stay_until_they_are_unloaded() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    let loaded = fixture.answer(LOAD).await;
    assert_eq!(fixture.sent().await, 0, "{loaded}");
    assert_eq!(fixture.rows(PINNED).await, 5);
    // Columns that are not pinned are evicted.
    engine.clear();
    assert_eq!(fixture.sent().await, 0);
    let pinned = engine.cached_bytes();

    let unload = "SELECT row_groups, bytes > 0 AS has_bytes FROM vectile_unload('packed', 'big')";
    insta::assert_snapshot!(fixture.answer(unload).await, @r"
    +------------+-----------+
    | row_groups | has_bytes |
    +------------+-----------+
    | 3          | true      |
    +------------+-----------+
    ");
    assert!(engine.cached_bytes() < pinned);
    assert_eq!(fixture.rows(PINNED).await, 4);
    assert!(fixture.sent().await > 0);

    engine.clear();
    let unloaded = fixture.rows("SELECT * FROM vectile_unload()").await;
    assert_eq!((unloaded, engine.cached_bytes()), (4, 0));
    assert_eq!(fixture.rows(PINNED).await, 0);
    assert_eq!(
        fixture.rows("SELECT * FROM vectile_unload('packed')").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_supported_columns_are_loaded() {
    let Some((fixture, _)) = fixture().await else {
        return;
    };
    let sql = "SELECT column_name, row_groups, bytes > 0 AS has_bytes, not_on_gpu \
               FROM vectile_load('packed')";
    insta::assert_snapshot!(fixture.answer(sql).await, @r#"
    +-------------+------------+-----------+--------------------------------------------------------------+
    | column_name | row_groups | has_bytes | not_on_gpu                                                   |
    +-------------+------------+-----------+--------------------------------------------------------------+
    | id          | 3          | true      |                                                              |
    | int         | 3          | true      |                                                              |
    | big         | 3          | true      |                                                              |
    | byte        | 3          | true      |                                                              |
    | float       | 3          | true      |                                                              |
    | flag        | 3          | true      |                                                              |
    | date        | 3          | true      |                                                              |
    | time        | 3          | true      |                                                              |
    | price       | 3          | true      |                                                              |
    | name        | 3          | true      |                                                              |
    | text        | 3          | true      |                                                              |
    | bytes       | 3          | true      |                                                              |
    | dict        | 0          | false     | no kernel for dict, which is Dictionary(Int32, Utf8)         |
    | list        | 0          | false     | no kernel for list, which is List(Int32)                     |
    | nested      | 0          | false     | no kernel for nested, which is Struct("x": Int32, "y": Utf8) |
    | void        | 3          | true      |                                                              |
    | one         | 3          | true      |                                                              |
    +-------------+------------+-----------+--------------------------------------------------------------+
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_directories_are_loaded_without_partition_columns() {
    let Some((fixture, _)) = fixture().await else {
        return;
    };
    let copy = format!(
        "COPY (SELECT id, byte % 3 AS part FROM plain) TO '{}/' STORED AS VECTILE PARTITIONED BY (part)",
        fixture.path("parts").display()
    );
    fixture.run(&copy).await.unwrap();
    let table = format!(
        "CREATE EXTERNAL TABLE parts (id BIGINT, part INT) STORED AS VECTILE PARTITIONED BY (part) LOCATION '{}/'",
        fixture.path("parts").display()
    );
    fixture.run(&table).await.unwrap();
    let loaded = load_columns(&fixture.ctx, "parts", &[]).await.unwrap();
    let rows = loaded
        .iter()
        .map(|row| (row.row_groups, row.not_on_gpu.as_deref()));
    let part = Some("part is not in the files");
    assert_eq!(rows.collect::<Vec<_>>(), [(3, None), (0, part)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_survive_pressure() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    let others = "SELECT sum(id), min(id), max(id), min(time), max(time), count(time) FROM packed WHERE float > 0";
    fixture.run(others).await.unwrap();
    let idle = engine.cached_bytes();
    fixture.run(LOAD).await.unwrap();
    let limit = engine.cached_bytes() - idle + 30_000;
    let set = format!("SET vectile.gpu.memory_limit = '{limit}'");
    fixture.run(&set).await.unwrap();
    assert!(engine.cached_bytes() > limit);
    let load = "SELECT * FROM vectile_load('packed', 'date')";
    // Threads of the previous query may hold chunks for a moment, which cannot be evicted then.
    let begun = Instant::now();
    while let Err(error) = fixture.run(load).await {
        assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(engine.cached_bytes() <= limit);
    assert_eq!(fixture.rows(PINNED).await, 6);
    assert_eq!(fixture.sent().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_do_not_fit_are_not_pinned() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    let all = "SELECT * FROM vectile_load('packed')";
    // More may be on the device temporarily than is kept.
    let loaded = fixture.run(all).await.unwrap();
    let of_columns = loaded
        .iter()
        .filter_map(|batch| batch.column_by_name("bytes"));
    let of_columns = of_columns.filter_map(|bytes| sum(bytes.as_primitive::<UInt64Type>()));
    let bytes: u64 = of_columns.sum();
    assert!(0 < bytes && bytes <= engine.cached_bytes());
    fixture.run("SELECT * FROM vectile_unload()").await.unwrap();
    let one = "SELECT * FROM vectile_load('packed', 'byte')";
    fixture.run(one).await.unwrap();
    // Too little for the files' data, or only for what kernels need in addition.
    for limit in [bytes / 2, bytes - 500] {
        let set = format!("SET vectile.gpu.memory_limit = '{limit}'");
        fixture.run(&set).await.unwrap();
        let error = fixture.failure(all).await;
        assert!(error.contains("do not fit the GPU's memory"), "{error}");
        assert!(error.contains(&format!("{limit} may be kept")), "{error}");
        assert_eq!(fixture.rows(PINNED).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_damaged_file_is_pinned() {
    let Some((fixture, _)) = fixture().await else {
        return;
    };
    let path = fixture.path("packed.vectile");
    let mut bytes = std::fs::read(&path).unwrap();
    let data = bytes.len() / 2;
    bytes[1000..data]
        .iter_mut()
        .step_by(500)
        .for_each(|byte| *byte ^= 1);
    std::fs::write(&path, bytes).unwrap();
    let error = fixture
        .failure("SELECT * FROM vectile_load('packed')")
        .await;
    assert!(error.contains("checksum"), "{error}");
    assert_eq!(fixture.rows(PINNED).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_of_earlier_files_go() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    fixture.run(LOAD).await.unwrap();
    let before = engine.cached_bytes();
    fixture.rewrite().await;
    fixture.run(LOAD).await.unwrap();
    assert!(engine.cached_bytes() < before);
    let rows = "SELECT sum(row_groups) AS row_groups FROM vectile_pinned()";
    assert!(fixture.answer(rows).await.contains("| 5 "));
    assert_eq!(fixture.sent().await, 0);
    // By name, after the table was dropped.
    fixture.ctx.deregister_table("packed").unwrap();
    assert_eq!(
        fixture.rows("SELECT * FROM vectile_unload('packed')").await,
        5
    );
    assert_eq!(engine.cached_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_stays_while_any_table_pins_it() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    fixture
        .register("again", &fixture.path("packed.vectile"))
        .await;
    for table in ["packed", "again"] {
        let loaded = load_columns(&fixture.ctx, table, &COLUMNS).await.unwrap();
        assert_eq!(loaded.len(), 5);
        assert_eq!(loaded[0].column, "int");
        assert_eq!(loaded[0].not_on_gpu, None);
    }
    let bytes = engine.cached_bytes();
    let unloaded = unload_columns(&fixture.ctx, Some("again"), &[]).await;
    assert_eq!(unloaded.unwrap().len(), 5);
    assert_eq!(engine.cached_bytes(), bytes);
    assert_eq!(fixture.sent().await, 0);
    unload_columns(&fixture.ctx, None, &["int"]).await.unwrap();
    assert!(engine.cached_bytes() < bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_loads_each_time_it_runs() {
    let Some((fixture, _)) = fixture().await else {
        return;
    };
    let ctx = &fixture.ctx;
    fixture.answer(&format!("EXPLAIN {LOAD}")).await;
    assert_eq!(fixture.rows(PINNED).await, 0);
    fixture
        .run(&format!("PREPARE load AS {LOAD}"))
        .await
        .unwrap();
    fixture
        .run(&format!("CREATE VIEW load AS {LOAD}"))
        .await
        .unwrap();
    let (state, query) = ctx.sql(LOAD).await.unwrap().into_parts();
    let reused = physical_plan(&state, &query).await.unwrap();
    for run in 0..6 {
        match run {
            0 | 1 => _ = fixture.run("EXECUTE load").await.unwrap(),
            2 | 3 => _ = collect(Arc::clone(&reused), ctx.task_ctx()).await.unwrap(),
            4 => _ = fixture.run("SELECT count(*) FROM load").await.unwrap(),
            _ => {
                let plan = physical_plan(&state, &query).await.unwrap();
                collect(plan, ctx.task_ctx()).await.unwrap();
            }
        }
        assert_eq!(
            fixture.rows("SELECT * FROM vectile_unload()").await,
            5,
            "{run}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_is_dropped_pins_nothing() {
    let Some((fixture, engine)) = fixture().await else {
        return;
    };
    let mut is_done = false;
    for polls in 0.. {
        let frame = fixture.ctx.sql(LOAD).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let mut rows = execute_stream(plan, fixture.ctx.task_ctx()).unwrap();
        for _ in 0..polls {
            is_done |= futures::poll!(rows.next()).is_ready();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        drop(rows);
        if is_done {
            break;
        }
        assert_eq!(fixture.rows(PINNED).await, 0, "{polls} polls");
    }
    fixture.run("SELECT * FROM vectile_unload()").await.unwrap();
    engine.clear();
    assert_eq!(engine.cached_bytes(), 0);
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_calls_are_errors() {
    let Some((fixture, _)) = fixture().await else {
        return;
    };
    fixture
        .run("CREATE VIEW seen AS SELECT * FROM packed")
        .await
        .unwrap();
    let mut errors = String::new();
    for call in [
        "vectile_load()",
        "vectile_load(1)",
        "vectile_load('missing')",
        "vectile_load('a.b.missing')",
        "vectile_load('packed', 'missing')",
        "vectile_load('plain')",
        "vectile_load('seen')",
        "vectile_unload('packed', 1)",
    ] {
        let error = fixture.failure(&format!("SELECT * FROM {call}")).await;
        let line = error.lines().next().unwrap_or_default();
        errors.push_str(&format!("{call}: {line}\n"));
    }
    fixture.run("SET vectile.gpu = 'off'").await.unwrap();
    errors.push_str(&fixture.failure(LOAD).await);
    insta::assert_snapshot!(errors, @r#"
    vectile_load(): Error during planning: vectile_load takes the name of a table, and names of its columns if not all
    vectile_load(1): Error during planning: vectile_load takes names, as strings
    vectile_load('missing'): Error during planning: table 'missing' not found
    vectile_load('a.b.missing'): Error during planning: table 'a.b.missing' not found
    vectile_load('packed', 'missing'): Arrow error: Schema error: Unable to get field named "missing". Valid fields: ["id", "int", "big", "byte", "float", "flag", "date", "time", "price", "name", "text", "bytes", "dict", "list", "nested", "void", "one"]
    vectile_load('plain'): Error during planning: plain is not a table of Vectile files, or has no files
    vectile_load('seen'): Error during planning: seen is a view: name the table that it reads
    vectile_unload('packed', 1): Error during planning: vectile_unload takes names, as strings
    Execution error: vectile.gpu = off: SET vectile.gpu = 'auto' to load columns
    "#);
    // Names that SQL folds to lower case, and names with a schema.
    fixture.run("SET vectile.gpu = 'on'").await.unwrap();
    for name in ["PACKED", "public.packed", "datafusion.public.packed"] {
        let load = format!("SELECT * FROM vectile_load('{name}', 'int', 'int')");
        assert_eq!(fixture.rows(&load).await, 1);
        assert_eq!(fixture.rows(PINNED).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gpu_loading_fails_and_there_is_nothing_to_unload() {
    let fixture = session(Gpu::none("none today")).await;
    let error = fixture.failure(LOAD).await;
    let expected = ["columns cannot be on the GPU", "none today"];
    assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(fixture.rows("SELECT * FROM vectile_unload()").await, 0);
    let ctx = SessionContext::new();
    let error = load_columns(&ctx, "packed", &[]).await.unwrap_err();
    assert!(error.to_string().contains("vectile_load"), "{error}");
    let state = datafusion::execution::SessionStateBuilder::new_with_default_features();
    let ctx = SessionContext::new_with_state(state.with_vectile().build());
    let error = load_columns(&ctx, "packed", &[]).await.unwrap_err();
    assert!(error.to_string().contains("'packed' not found"), "{error}");
}
