//! Queries on the GPU. The emulator runs the same kernels on the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use vectile_datafusion::{Gpu, register_with_gpu};
use vectile_emulator::CpuDevice;
use vectile_gpu::Engine;

use crate::support::{Fixture, ROWS, metric};

/// A device; `None`, with a message, without a C++ compiler.
fn device() -> Option<Arc<CpuDevice>> {
    match CpuDevice::new() {
        Ok(device) => Some(Arc::new(device.without_optimization())),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The tables of [`Fixture::new`] in a session with that GPU.
async fn fixture(gpu: Gpu, mode: &str) -> Fixture {
    let config = SessionConfig::new().with_target_partitions(2);
    let config = config.with_information_schema(true);
    let ctx = SessionContext::new_with_config(config);
    register_with_gpu(&ctx, gpu).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture { ctx, dir };
    fixture.add_tables().await;
    fixture.set("vectile.gpu", mode).await;
    fixture
}

impl Fixture {
    async fn set(&self, key: &str, value: &str) {
        self.run(&format!("SET {key} = '{value}'")).await.unwrap();
    }

    async fn error(&self, sql: &str) -> String {
        self.run(sql).await.unwrap_err().to_string()
    }

    /// Replaces `packed` by a file with row groups of `rows` rows, scanned in one partition.
    async fn repack(&self, rows: usize) {
        self.set("datafusion.execution.target_partitions", "1")
            .await;
        self.set("datafusion.optimizer.repartition_file_scans", "false")
            .await;
        self.ctx.deregister_table("packed").unwrap();
        let path = self.path(&format!("groups_of_{rows}.vectile"));
        let copy = format!(
            "COPY plain TO '{}' STORED AS VECTILE OPTIONS (row_group_rows {rows})",
            path.display()
        );
        self.run(&copy).await.unwrap();
        self.register("packed", &path).await;
    }
}

/// Aggregates of `{t}` that are fused.
const AGGREGATES: &[&str] = &[
    "count(*)",
    "count(int), count(float), count(void), count(flag)",
    "sum(id), min(id), max(id), min(time), max(time), count(time)",
    "sum(int), sum(big), sum(byte), sum(price), sum(void)",
    "min(int), min(big), min(byte), min(price), min(flag), min(void), min(date)",
    "max(int), max(big), max(byte), max(price), max(flag), max(float)",
    "avg(price), avg(byte), min(float)",
    "sum(int * 2 + byte), sum(price * (1 - price)), sum(big + big)",
    "sum(int % 7)",
    "sum(int / 3), sum(big / 3)",
    "min(-price), max(-int)",
    "sum(CASE WHEN int > 0 THEN price END), count(CASE WHEN byte < 9 THEN 1 END)",
    "sum(extract(year FROM date)), sum(extract(month FROM date)), sum(date_part('dow', date))",
    "min(date_part('doy', date)), max(date_part('quarter', date)), max(date_part('day', date))",
    "sum(CASE float WHEN 0.0 THEN 1 WHEN 1.25 THEN 2 ELSE 0 END)",
    "sum(CASE float WHEN -0.0 THEN id WHEN 0.0 THEN 2 WHEN float * 0.0 THEN 7 ELSE id + 1 END)",
    "sum(CASE arrow_cast(float, 'Float64') WHEN CAST('NaN' AS DOUBLE) THEN 1 ELSE 3 END)",
    "sum(CASE WHEN float = 0.0 THEN 1 WHEN float IS DISTINCT FROM -0.0 THEN 2 END)",
    "sum(CASE int WHEN byte THEN 1 WHEN NULL THEN 5 END), count(CASE flag WHEN true THEN 1 END)",
    "sum(int) FILTER (WHERE byte > 100), count(*) FILTER (WHERE int > 0)",
    "sum(CAST(int AS BIGINT)), sum(CAST(byte AS DECIMAL(10, 3))), max(CAST(int AS DOUBLE))",
    "bool_and(flag), bool_or(flag), bool_and(int > -50), bool_or(big < 3), bool_or(flag) FILTER (WHERE int > 0)",
];

const FILTERS: &[&str] = &[
    "true",
    "int > 100",
    "int BETWEEN -100 AND 100 AND byte < 50",
    "price < 500.00 AND date >= DATE '2012-01-01'",
    "float > 0",
    "float = 0 OR float >= 12.5",
    "float = float * 1.0",
    "int > byte",
    "big IS NULL OR flag",
    "NOT flag AND int IN (1, 2, 3, 77, -5)",
    "name = 'apple' OR name IS NULL",
    "name LIKE '%an%' AND int > 0",
    "NOT (name LIKE 'a%' OR int < 0)",
    "coalesce(name, 'zebra') = 'zebra'",
    "one = 'same' AND big IS NOT NULL",
    "extract(month FROM date) = 3 AND price * 2 > 1000",
    "int IS DISTINCT FROM byte",
    "date < DATE '2000-01-01'",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_have_the_same_answers() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    for (i, aggregates) in AGGREGATES.iter().enumerate() {
        // Each with a few filters, all filters with one.
        for (j, filter) in FILTERS.iter().enumerate() {
            if i == 3 || (i + j) % 6 == 0 {
                let sql = format!("SELECT {aggregates} FROM {{t}} WHERE {filter}");
                fixture.same(&sql).await;
            }
        }
    }
}

const GROUPS: &[&str] = &[
    "byte",
    "name",
    "flag, extract(month FROM date)",
    "price",
    "one, void",
    "time",
    "date, byte % 2",
    "bytes",
    "big, name",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_have_the_same_answers() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for (i, groups) in GROUPS.iter().enumerate() {
        let order: Vec<String> = (0..groups.split(", ").count())
            .map(|key| (key + 1).to_string())
            .collect();
        let order = order.join(", ");
        // With NaNs, the minimum float of a group depends in DataFusion on their order.
        let aggregates = AGGREGATES.iter().filter(|of| !of.contains("(float)"));
        for (j, aggregates) in aggregates.enumerate() {
            let filter = FILTERS[(i * 5 + j) % FILTERS.len()];
            if (i + j) % 4 == 0 {
                let sql = format!(
                    "SELECT {groups}, {aggregates} FROM {{t}} WHERE {filter} \
                     GROUP BY {groups} ORDER BY {order}"
                );
                fixture.same(&sql).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_have_the_same_answers() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    let words = "CREATE VIEW words AS SELECT column1 AS word, column2 AS value FROM (VALUES \
                 ('apple', 1), ('cherry', NULL), ('', 3), ('zebra', 4), ('other', 5), (NULL, 6))";
    fixture.run(words).await.unwrap();
    for join in ["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"] {
        let select = match join {
            "JOIN" | "LEFT JOIN" => "value, coalesce(value, 9), sum(id + value), count(*)",
            _ => "name, flag, sum(id), count(*)",
        };
        let sql = format!(
            "SELECT {select} FROM {{t}} {join} words ON name = word WHERE byte > 10 \
             GROUP BY 1, 2 ORDER BY 1, 2"
        );
        fixture.same(&sql).await;
    }
    for sql in [
        "SELECT d.flag, sum(f.int), count(*) FROM {t} f JOIN {t} d ON f.byte = d.id GROUP BY 1 ORDER BY 1",
        "SELECT count(*), sum(f.int * d.byte) FROM {t} f JOIN {t} d ON f.id = d.id AND f.byte <= d.int",
        "SELECT d.name, min(f.date) FROM {t} f JOIN {t} d ON f.big = d.id GROUP BY 1 ORDER BY 1",
        "SELECT d.one, count(*) FROM {t} f JOIN {t} d ON f.int = d.int GROUP BY 1",
    ] {
        fixture.same(sql).await;
    }
}

/// Bloom filters rule out row groups before any data of them is read, as on the CPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bloom_filters_rule_out_row_groups() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    // Keys are unordered, so that zone maps cannot prune.
    let plain = "CREATE TABLE keys_plain AS SELECT value AS id, (value * 7919) % 100003 AS key, \
                 concat('k', (value * 7919) % 100003) AS text FROM range(1, 8193)";
    let path = fixture.path("keys.vectile");
    let copy = format!(
        "COPY (SELECT * FROM keys_plain ORDER BY id) TO '{}' STORED AS VECTILE \
         OPTIONS (row_group_rows 2048, bloom_filter 'key,text', bloom_filter_fpp 0.00001)",
        path.display()
    );
    let few = "CREATE VIEW few AS SELECT column1 AS n, column2 AS word FROM \
               (VALUES (8, 'eight'), (9, 'nine'), (5000, 'many'))";
    for sql in [plain, &copy, few] {
        fixture.run(sql).await.unwrap();
    }
    fixture.register("keys", &path).await;
    // 63352 is the key of row 8; no row has 63353.
    for (sql, pruned) in [
        (
            "SELECT count(*) AS n, sum(id) AS s FROM {t} WHERE key = 63352",
            3,
        ),
        (
            "SELECT count(*) AS n, sum(id) AS s FROM {t} WHERE key = 63353",
            4,
        ),
        (
            "SELECT sum(id) AS s FROM {t} WHERE key IN (63352, 63353) AND id > 0",
            3,
        ),
        (
            "SELECT text, count(*) FROM {t} WHERE text = 'k63352' GROUP BY text",
            3,
        ),
        (
            "SELECT count(*) AS n FROM {t} WHERE key = 63352 OR id = 8",
            3,
        ),
        (
            "SELECT word, sum(id) AS s FROM {t} JOIN few ON id = n WHERE key = 63352 GROUP BY word",
            3,
        ),
        ("SELECT id FROM {t} WHERE key = 63352", 3),
        ("SELECT text FROM {t} WHERE text IN ('k63352', 'none')", 3),
        ("SELECT id FROM {t} WHERE key = 63353", 4),
    ] {
        let plain = fixture.answer(&sql.replace("{t}", "keys_plain")).await;
        let sql = sql.replace("{t}", "keys");
        assert_eq!(fixture.answer(&sql).await, plain, "{sql}");
        let (plan, _) = fixture.executed(&sql).await;
        let metric = |name| metric(&plan, name);
        assert_eq!(metric("row_groups_pruned_by_bloom_filter"), pruned, "{sql}");
        assert_eq!(metric("fallbacks"), 0, "{sql}");
        // Kernels that group, join or aggregate count the rows that they inspect.
        let rows = metric("gpu_rows");
        assert!(rows <= (4 - pruned) * 2048, "{sql}: {rows}");
        let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await;
        assert!(
            analyzed.contains("row_groups_pruned_by_bloom_filter="),
            "{analyzed}"
        );
    }
}

/// The CPU decompresses these values; the GPU then reads them like any others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_values_have_the_same_answers() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    // Every column repeats with a period longer than a vector.
    let repeated = "CREATE TABLE repeated AS SELECT * EXCLUDE (id), value * 10000 + id AS id, \
                    md5(CAST(id AS VARCHAR)) AS hash FROM range(4), \
                    (SELECT * FROM plain WHERE id % 4 = 1)";
    fixture.run(repeated).await.unwrap();
    for table in ["plain", "packed"] {
        fixture.ctx.deregister_table(table).unwrap();
    }
    let rename = "CREATE VIEW plain AS SELECT * FROM repeated";
    fixture.run(rename).await.unwrap();
    let path = fixture.path("compressed.vectile");
    let copy = format!(
        "COPY (SELECT * FROM repeated ORDER BY id) TO '{}' STORED AS VECTILE \
         OPTIONS (compression 'zstd', row_group_rows 6000, 'encoding.hash' 'plain')",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    let store: Arc<dyn object_store::ObjectStore> =
        Arc::new(object_store::local::LocalFileSystem::new());
    let location = object_store::path::Path::from_filesystem_path(&path).unwrap();
    let object = object_store::ObjectStoreExt::head(store.as_ref(), &location);
    let object = object.await.unwrap();
    let metadata = vectile_file::read_metadata(&store, &object).await.unwrap();
    let groups = metadata.row_groups().iter();
    let chunks = groups.flat_map(|group| &group.columns);
    let (all, compressed) = chunks.fold((0, 0), |(all, compressed), chunk| {
        let is_compressed = chunk.compression == vectile_file::Compression::Zstd;
        (all + 1, compressed + usize::from(is_compressed))
    });
    assert!(compressed > all / 2, "{compressed} of {all}");

    let mut queries = Vec::new();
    for (i, aggregates) in AGGREGATES.iter().enumerate() {
        let filter = FILTERS[(3 * i) % FILTERS.len()];
        queries.push(format!("SELECT {aggregates} FROM {{t}} WHERE {filter}"));
    }
    for keys in GROUPS {
        let order = (1..=keys.split(", ").count()).map(|key| key.to_string());
        let order = order.collect::<Vec<_>>().join(", ");
        queries.push(format!(
            "SELECT {keys}, count(*), sum(id), max(int) FROM {{t}} WHERE int > 0 \
             GROUP BY {keys} ORDER BY {order}"
        ));
    }
    queries.extend([
        "SELECT hash, count(*) FROM {t} WHERE hash LIKE '%ab%' GROUP BY hash ORDER BY hash".into(),
        "SELECT min(hash), max(text), count(*) FROM {t} WHERE hash < 'c'".into(),
        "SELECT d.name, sum(f.int) FROM {t} f JOIN {t} d ON f.hash = d.hash \
         WHERE d.id < 10000 GROUP BY 1 ORDER BY 1"
            .into(),
        "SELECT id, hash, name, price FROM {t} WHERE hash > 'f' AND int > 100 ORDER BY id".into(),
    ]);
    // Zone maps answer it.
    let counted = "SELECT count(*) FROM {t} WHERE true";
    let mut left = 0;
    for sql in &queries {
        fixture.same(sql).await;
        let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
        if metric(&plan, "launches") == 0 && sql != counted {
            let sql = sql.replace("{t}", "packed");
            let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await;
            assert!(
                analyzed.contains("fallbacks (External error: not fused: "),
                "{analyzed}"
            );
            left += 1;
        }
    }
    // Kernels know no bounds of decimals in `plain`.
    assert!(left <= queries.len() / 3, "{left} of {}", queries.len());
    // Decompressed text has no dictionary.
    let sql = "SELECT id FROM packed WHERE upper(hash) = 'X'";
    fixture.same(&sql.replace("packed", "{t}")).await;
    let (plan, _) = fixture.executed(sql).await;
    assert_eq!(metric(&plan, "fallbacks"), 1);
    let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await;
    let reason = "text is stored as plain";
    assert!(
        analyzed.contains(reason) && analyzed.contains("+ zstd)=1"),
        "{analyzed}"
    );
    let sql = "SELECT count(*) FROM packed WHERE price * 2 > 1000";
    fixture.same(&sql.replace("packed", "{t}")).await;
    let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await;
    let reason = "fallbacks (External error: not fused: decimals that may overflow)=1";
    assert!(analyzed.contains(reason), "{analyzed}");
}

/// Build sides that differ only in the side of a column in a join filter have key tables of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn similar_build_sides_have_tables_of_their_own() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for (name, rows) in [
        (
            "f",
            "value % 100 AS k, value AS v FROM generate_series(1, 5000)",
        ),
        (
            "a",
            "value AS k, value % 7 AS j, value % 5 AS x FROM generate_series(0, 99)",
        ),
        ("b", "value AS j, value % 4 AS y FROM generate_series(0, 6)"),
        (
            "c",
            "value AS k, value % 3 AS x FROM generate_series(0, 99)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    let query = |x: &str| {
        format!(
            "SELECT d.ax, d.cx, sum(f.v) FROM f JOIN (SELECT a.k, a.x AS ax, c.x AS cx FROM a \
             JOIN c ON a.k = c.k JOIN b ON a.j = b.j AND {x} < b.y) d ON f.k = d.k \
             GROUP BY 1, 2 ORDER BY 1, 2"
        )
    };
    let queries = [query("a.x"), query("c.x")];
    fixture.set("vectile.gpu", "off").await;
    let expected = [
        fixture.answer(&queries[0]).await,
        fixture.answer(&queries[1]).await,
    ];
    assert_ne!(expected[0], expected[1]);
    fixture.set("vectile.gpu", "require").await;
    for (query, expected) in queries.iter().zip(&expected) {
        for kept in [0, 1] {
            let (plan, _) = fixture.executed(query).await;
            assert_eq!(metric(&plan, "lookups_cached"), kept, "{query}");
            assert_eq!(&fixture.answer(query).await, expected, "{query}");
        }
    }
}

/// Functions carry the settings of their session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_outlast_settings() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    for (name, rows) in [
        (
            "sales",
            "value % 900 AS k, value AS v FROM generate_series(1, 5000)",
        ),
        (
            "days",
            "value AS k, DATE '2021-01-01' + CAST(value AS INT) AS day FROM generate_series(0, 899)",
        ),
    ] {
        let path = fixture.path(&format!("{name}.vectile"));
        let path = path.display();
        let copy = format!("COPY (SELECT {rows}) TO '{path}' STORED AS VECTILE");
        fixture.run(&copy).await.unwrap();
        fixture
            .register(name, &fixture.path(&format!("{name}.vectile")))
            .await;
    }
    let query = "SELECT date_part('year', day), sum(v) FROM sales JOIN days ON sales.k = days.k WHERE date_part('month', day) > 2 GROUP BY 1 ORDER BY 1";
    for (background, kept) in [("true", 0), ("false", 1)] {
        fixture.set("vectile.gpu.background", background).await;
        let (plan, _) = fixture.executed(query).await;
        assert_eq!(metric(&plan, "lookups_cached"), kept);
    }
}

/// arrow-rs extracts parts of dates in years -262143 to 262142; for other dates they are null.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_beyond_known_years_have_no_parts() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    let path = fixture.path("dates.vectile");
    let path = path.display();
    let day = |day| format!("arrow_cast(arrow_cast({day}, 'Int32'), 'Date32')");
    let rows = format!(
        "SELECT {} AS d, value AS n FROM generate_series(-4500, 4500) UNION ALL \
         SELECT {}, column1 FROM (VALUES (-96465293), (-96465292), (95026236), (95026237), (NULL))",
        day("value * 477218"),
        day("column1"),
    );
    for sql in [
        format!("CREATE TABLE dates_plain AS {rows}"),
        format!("COPY dates_plain TO '{path}' STORED AS VECTILE"),
        format!("CREATE EXTERNAL TABLE dates_packed STORED AS VECTILE LOCATION '{path}'"),
    ] {
        fixture.run(&sql).await.unwrap();
    }
    for part in ["year", "quarter", "month", "day", "dow", "doy"] {
        let part = format!("date_part('{part}', d)");
        for sql in [
            "SELECT sum({p}), count({p}), min({p}), max({p}), count(*) FROM dates_{t}",
            "SELECT count(*), sum(n) FROM dates_{t} WHERE {p} > 3 OR {p} < -9",
            "SELECT count(*), sum(n) FROM dates_{t} WHERE {p} IS NULL OR NOT {p} = 2",
            "SELECT {p} % 5 AS p, count(*), sum(n) FROM dates_{t} GROUP BY 1 ORDER BY 1",
            "SELECT {p} AS p, n FROM dates_{t} WHERE n > 100 OR n = -7 ORDER BY 2",
        ] {
            fixture.same(&sql.replace("{p}", &part)).await;
        }
    }
}

/// Results of no groups and of very many, in one partition and in several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_finished_in_as_many_partitions_as_they_need() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    let path = fixture.path("many.vectile");
    let path = path.display();
    let rows = "SELECT value % 70000 AS id, value AS x FROM generate_series(1, 150000)";
    for sql in [
        format!("CREATE TABLE many_plain AS {rows}"),
        format!("COPY many_plain TO '{path}' STORED AS VECTILE OPTIONS (row_group_rows 65536)"),
        format!("CREATE EXTERNAL TABLE many_packed STORED AS VECTILE LOCATION '{path}'"),
    ] {
        fixture.run(&sql).await.unwrap();
    }
    for partitions in ["1", "3"] {
        let setting = "datafusion.execution.target_partitions";
        fixture.set(setting, partitions).await;
        for filter in ["true", "x < 40000", "x < 0"] {
            // The operators above need the groups by another key, in order, or not at all.
            for sql in [
                "SELECT id, count(*), avg(x) FROM many_{t} WHERE {f} GROUP BY id ORDER BY id",
                "SELECT id % 10, sum(n), max(a) FROM (SELECT id, count(*) AS n, avg(x) AS a \
                 FROM many_{t} WHERE {f} GROUP BY id) GROUP BY 1 ORDER BY 1",
                "SELECT count(*) FROM (SELECT id FROM many_{t} WHERE {f} GROUP BY id HAVING sum(x) > 90000)",
            ] {
                fixture.same(&sql.replace("{f}", filter)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_come_to_joins_by_their_keys() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for key in ["", "_rows"] {
        let key = format!("datafusion.optimizer.hash_join_single_partition_threshold{key}");
        fixture.set(&key, "0").await;
    }
    for partitions in ["1", "2"] {
        let setting = "datafusion.execution.target_partitions";
        fixture.set(setting, partitions).await;
        // The first join is by a GROUP BY column, the second by a cast of one.
        for key in ["big", "byte"] {
            let groups =
                format!("SELECT {key}, count(*) AS n, avg(price) FROM {{t}} GROUP BY {key}");
            for sql in [
                format!("SELECT * FROM ({groups}) g JOIN plain d ON g.{key} = d.id ORDER BY d.id"),
                format!(
                    "SELECT * FROM ({groups}) g JOIN ({groups}) h ON g.n = h.{key} ORDER BY g.{key}"
                ),
            ] {
                let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
                assert!(plan.contains("FusedAggregateExec"), "{plan}");
                fixture.same(&sql).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_have_the_same_answers() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    // Without an order, rows come in the order of the file.
    fixture
        .set("datafusion.execution.target_partitions", "1")
        .await;
    // The device projects numbers; for text and lists it only selects rows.
    let columns = [
        "int, flag, id",
        "date, text, name",
        "id, time",
        "price, void",
        "big, byte + 1 AS next, float",
        "date, list, dict",
        "1 AS one",
    ];
    for (i, columns) in columns.iter().enumerate() {
        for (j, filter) in FILTERS.iter().enumerate() {
            let text = columns.contains("text") || columns.contains("list");
            if (*filter != "true" || !text) && (i < 2 || (i + j) % 4 == 0) {
                let sql = format!("SELECT {columns} FROM {{t}} WHERE {filter}");
                fixture.same(&sql).await;
            }
        }
    }
    for sql in [
        "SELECT name, count(*), sum(int) FROM {t} WHERE byte > 9 GROUP BY name ORDER BY name",
        "SELECT date, int FROM {t} WHERE int > 0 LIMIT 7",
        "SELECT text FROM {t} WHERE int > 0 LIMIT 7",
        "SELECT date, text FROM {t} WHERE int > 0 ORDER BY date DESC, text LIMIT 7",
    ] {
        fixture.same(sql).await;
    }
    // Joins that return rows have no lookup for duplicate keys: their scans are fused instead.
    fixture.set("vectile.gpu", "on").await;
    for (columns, fallbacks) in [("count(*) AS n, sum(a.int)", 0), ("a.int AS n, b.id", 1)] {
        for tests in [
            "a.int = b.byte WHERE a.byte > 3 AND b.int < 9",
            "a.name = b.name WHERE a.int > 490 AND b.int = 7",
        ] {
            let sql =
                format!("SELECT {columns} FROM {{t}} a JOIN {{t}} b ON {tests} ORDER BY 1, 2");
            fixture.same(&sql).await;
            let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
            assert_eq!(metric(&plan, "fallbacks"), fallbacks, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_say_what_is_fused_and_what_is_not() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for (sql, expected) in [
        (
            "SELECT sum(int) FROM packed WHERE byte > 3 AND name = 'apple'",
            "FusedAggregateExec: aggr=[sum(packed.int)], filter=byte@3 > 3 AND name@9 = apple, \
             columns=[byte, name, int], device=CPU emulator",
        ),
        (
            "SELECT name, date AS day, flag, count(*) FROM packed WHERE int > 3 GROUP BY name, day, flag",
            "FusedAggregateExec: gby=[name@2 as name, date@1 as date, flag@0 as flag], \
             aggr=[count(Int64(1))], filter=int@1 > 3, columns=[int, name, date, flag], device=CPU emulator",
        ),
        (
            "SELECT count(DISTINCT int) FROM packed",
            "FusedAggregateExec: aggr=[count(alias1)], groups=[gby=[alias1], aggr=[]], columns=[int]",
        ),
        (
            "SELECT count(*), sum(d.int) FROM packed f JOIN plain d ON f.id = d.id AND f.byte > d.byte",
            "joins=[id = id (inner)]",
        ),
        (
            "SELECT count(*) FROM packed WHERE name IN (SELECT name FROM plain WHERE int > 9)",
            "joins=[name = name (semi)]",
        ),
        (
            "SELECT id FROM packed WHERE int > 3",
            "gpu=filter and project on CPU emulator",
        ),
        (
            "SELECT name, int, count(*) FROM packed WHERE int > 3 GROUP BY ROLLUP (name, int)",
            "filter=int@1 > 3, sets=[(), (name), (name, int)], columns=[",
        ),
        (
            "SELECT float, count(*) FROM packed GROUP BY float",
            "not_on_gpu=no kernel for grouping by float@4",
        ),
        (
            "SELECT count(*) FROM packed f JOIN plain d ON f.id = d.id AND f.byte = d.byte",
            "joins=[id = id AND byte = byte (inner)]",
        ),
        (
            "SELECT count(*) FROM packed f JOIN plain d ON f.id = d.id AND upper(f.name) = d.name",
            "joins=[id = id AND string_id(upper(name@",
        ),
        (
            "SELECT f.text, d.name FROM packed f JOIN plain d ON f.id = d.id WHERE f.int > 3",
            "FusedJoinExec: rows=[text, name], joins=[id = id (inner)]",
        ),
        (
            "SELECT count(*) FROM packed f \
             WHERE EXISTS (SELECT 1 FROM plain d WHERE f.id = d.id AND f.byte <> d.byte)",
            "filter=byte@3 != min@",
        ),
        (
            "SELECT name, sum(int) FROM packed GROUP BY name ORDER BY sum(int) LIMIT 3",
            "first=3 by sum(packed.int)",
        ),
        (
            "SELECT name, sum(int) FROM packed GROUP BY name HAVING sum(int) > 40",
            "having=sum(packed.int)@0 > 40",
        ),
        (
            "SELECT name, avg(byte) FROM packed GROUP BY name HAVING avg(byte) > 40 AND sum(int) > 2 * avg(byte)",
            "having=avg(packed.byte)@0 > 40 AND CAST(sum(packed.int)@1 AS Float64) > 2 * avg(packed.byte)@0",
        ),
        (
            "SELECT name, avg(price) FROM packed GROUP BY name ORDER BY avg(price) DESC LIMIT 3",
            "first=3 by avg(packed.price)",
        ),
        (
            "SELECT count(*) FROM packed WHERE int > (SELECT avg(int) FROM packed)",
            "filter=CAST(int@",
        ),
        (
            "SELECT count(*) FROM packed f FULL JOIN plain d ON f.id = d.id",
            "not_on_gpu=join: it is of type Full",
        ),
        (
            "SELECT count(*) FROM packed f JOIN plain d ON f.float = d.float",
            "not_on_gpu=no kernel for float, which is Float64",
        ),
        ("SELECT id FROM packed", "not_on_gpu=there is no filter"),
        (
            "SELECT max(upper(name)) FILTER (WHERE byte > 3) FROM packed WHERE int > 3",
            "FusedAggregateExec: aggr=[max(upper(packed.name)) FILTER (WHERE packed.byte > Int64(3))], \
             filter=int@1 > 3, columns=[int, byte, name], device=CPU emulator",
        ),
        (
            "SELECT count(list) FROM packed WHERE int > 3",
            "gpu=filter on CPU emulator, not_fused=no kernel for ",
        ),
        (
            "SELECT sum(length(concat(text, name))) FROM packed",
            "not_on_gpu=no kernel for character_length(",
        ),
        (
            "SELECT median(int) FROM packed",
            "not_on_gpu=no kernel for median(packed.int)",
        ),
        (
            "SELECT sum(price / 7) FROM packed",
            "FusedAggregateExec: aggr=[sum(packed.price / Int64(7))], columns=[price]",
        ),
        (
            "SELECT sum(price / byte) FROM packed",
            "not_on_gpu=no kernel for price@8 / ",
        ),
        (
            "SELECT count(*), count(DISTINCT int), count(DISTINCT id) FROM packed",
            "FusedAggregateExec: aggr=[count(Int64(1)), count(DISTINCT packed.int), \
             count(DISTINCT packed.id)], columns=[int, id]",
        ),
        (
            "SELECT sum(int) FROM (SELECT int FROM packed UNION ALL SELECT int FROM plain) AS both",
            "FusedAggregateExec: aggr=[sum(both.int)], mode=Partial, columns=[int]",
        ),
        (
            "SELECT id FROM packed WHERE int > 3 ORDER BY int LIMIT 3",
            "not_on_gpu=a few rows that come first are found sooner by the CPU",
        ),
        (
            "SELECT id FROM packed WHERE int * 0.5 > 1 AND length(text) > int",
            "not_on_gpu=no kernel for ",
        ),
    ] {
        let plan = fixture.plan(sql).await;
        assert!(plan.contains(expected), "{sql}\n{plan}");
    }
    fixture.set("vectile.gpu", "auto").await;
    let plan = fixture.plan("SELECT sum(int) FROM packed").await;
    let expected = "not_on_gpu=the CPU is faster: CPU 0.";
    assert!(plan.contains(expected), "{plan}");
    fixture.set("vectile.gpu", "off").await;
    let plan = fixture.plan("SELECT sum(int) FROM packed").await;
    assert!(!plan.contains("gpu") && !plan.contains("Fused"), "{plan}");
}

/// Prunes 40,000 groups, some of which have no values.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn averages_prune_groups() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    let path = fixture.path("means.vectile");
    let path = path.display();
    let rows = "SELECT value * 7919 % 40000 AS id, \
                CASE WHEN value % 5 > 0 THEN value * 31 % 100003 - 50000 END AS whole, \
                CASE WHEN value % 40000 > 99 THEN CAST(value * 37 % 99991 AS DECIMAL(14, 4)) END AS price, \
                CAST(value * 37 % 99991 AS DECIMAL(12, 2)) AS cost, \
                CAST(value * 31 % 100003 AS DOUBLE) / 7 AS float FROM generate_series(1, 110000)";
    let copy = format!("COPY ({rows}) TO '{path}' STORED AS VECTILE");
    fixture.run(&copy).await.unwrap();
    let create = format!("CREATE EXTERNAL TABLE means STORED AS VECTILE LOCATION '{path}'");
    fixture.run(&create).await.unwrap();
    for (of, then, shown) in [
        (
            "avg(whole)",
            "HAVING avg(whole) > 48000.5 ORDER BY id",
            "having=",
        ),
        (
            "avg(cost)",
            "HAVING avg(cost) > 98765.4321 ORDER BY id",
            "having=",
        ),
        (
            "avg(cost)",
            "HAVING sum(cost) > 2.5 * avg(cost) AND avg(cost) < 1000 ORDER BY id",
            "having=",
        ),
        (
            "avg(whole)",
            "HAVING avg(whole) - avg(cost) > 40000 OR avg(whole) IS NULL ORDER BY id",
            "having=",
        ),
        (
            "avg(whole)",
            "ORDER BY avg(whole) DESC NULLS LAST, id LIMIT 12",
            "first=12 by avg(means.whole)",
        ),
        (
            "avg(whole)",
            "ORDER BY avg(whole) NULLS FIRST, id LIMIT 12",
            "first=12 by avg(means.whole)",
        ),
        (
            "avg(cost)",
            "ORDER BY avg(cost) DESC, id LIMIT 12",
            "first=12 by avg(means.cost)",
        ),
        (
            "avg(cost)",
            "ORDER BY avg(cost), id LIMIT 100",
            "first=100 by avg(means.cost)",
        ),
        (
            "avg(price)",
            "ORDER BY avg(price) NULLS FIRST, id LIMIT 3",
            "first=3 by avg(means.price)",
        ),
    ] {
        let sql = format!("SELECT id, {of}, count(*) FROM means GROUP BY id {then}");
        let plan = fixture.plan(&sql).await;
        assert!(plan.contains(shown), "{sql}\n{plan}");
        fixture.set("vectile.gpu", "off").await;
        let expected = fixture.answer(&sql).await;
        fixture.set("vectile.gpu", "require").await;
        assert_eq!(fixture.answer(&sql).await, expected, "{sql}");
    }
    // The last digits of such averages depend on the order of rows.
    let sql = "SELECT id, avg(float) FROM means GROUP BY id HAVING avg(float) > 14000";
    let plan = fixture.plan(sql).await;
    assert!(
        plan.contains("FusedAggregateExec") && !plan.contains("having="),
        "{plan}"
    );
}

/// Only `auto` leaves very many groups to the CPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_groups_are_on_the_gpu_unless_auto() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    let path = fixture.path("many.vectile");
    let path = path.display();
    let rows = "SELECT 2 * value AS id, value % 7 AS week FROM generate_series(1, 2200000)";
    let copy = format!("COPY ({rows}) TO '{path}' STORED AS VECTILE");
    fixture.run(&copy).await.unwrap();
    let create = format!("CREATE EXTERNAL TABLE many STORED AS VECTILE LOCATION '{path}'");
    fixture.run(&create).await.unwrap();
    for (having, first) in [("count(*) > 0", "2200000"), ("count(*) > 1", "0")] {
        let sql = format!("SELECT id, count(*) FROM many GROUP BY id HAVING {having}");
        let (plan, rows) = fixture.executed(&sql).await;
        assert_eq!(rows.to_string(), first, "{sql}");
        assert_eq!(metric(&plan, "fallbacks"), 0, "{sql}");
        assert_eq!(metric(&plan, "gpu_rows"), 2_200_000, "{sql}");
    }
}

#[tokio::test]
async fn without_a_gpu_plans_do_not_change() {
    let with = fixture(Gpu::none("there is none"), "on").await;
    for sql in [
        "SELECT sum(int), count(*) FROM packed WHERE byte > 3",
        "SELECT id FROM packed WHERE int > 3",
    ] {
        with.set("vectile.gpu", "on").await;
        let auto = with.plan(sql).await;
        with.set("vectile.gpu", "off").await;
        assert_eq!(auto, with.plan(sql).await);
        with.set("vectile.gpu", "require").await;
        let error = with.error(sql).await;
        assert!(
            error.contains("vectile.gpu = require: there is none"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_queries_are_errors_with_require() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(Arc::clone(&device) as _)), "require").await;
    let error = fixture.error("SELECT list FROM packed").await;
    let expected = "vectile.gpu = require: there is no filter";
    assert!(error.contains(expected), "{error}");
    // Some calls may fail without affecting the query.
    let mut errors = Vec::new();
    for n in 1..8 {
        device.fail_after(n);
        errors.extend(fixture.run("SELECT sum(int) FROM packed").await.err());
    }
    device.fail_after(0);
    assert!(!errors.is_empty());
    for error in errors {
        let error = error.to_string();
        assert!(error.contains("vectile.gpu = require"), "{error}");
    }
    let error = fixture
        .error("SELECT id FROM packed WHERE upper(text) = 'X'")
        .await;
    assert!(error.contains("text is stored as"), "{error}");
    fixture.set("vectile.gpu.memory_limit", "1K").await;
    let error = fixture.error("SELECT sum(big) FROM packed").await;
    assert!(error.contains("device memory do not fit"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cpu_does_what_fails_on_the_gpu() {
    let Some(device) = device() else { return };
    let engine = Engine::new(Arc::clone(&device) as _);
    let fixture = fixture(Gpu::new(Arc::clone(&engine)), "on").await;
    for sql in [
        "SELECT sum(int), count(*) FROM packed WHERE byte > 3",
        "SELECT big FROM packed WHERE int = 3",
        "SELECT text FROM packed WHERE int = 3",
    ] {
        fixture.set("vectile.gpu", "off").await;
        let expected = fixture.answer(sql).await;
        fixture.set("vectile.gpu", "on").await;
        let mut fallbacks = 0;
        for n in 1.. {
            engine.clear();
            device.fail_after(n);
            let (plan, _) = fixture.executed(sql).await;
            let failed = !device.fault_pending();
            fallbacks += metric(&plan, "fallbacks");
            engine.clear();
            device.fail_after(n);
            assert_eq!(fixture.answer(sql).await, expected, "{sql}, call {n}");
            device.fail_after(0);
            if !failed {
                break;
            }
        }
        assert!(fallbacks > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_stay_on_the_device() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let fixture = fixture(Gpu::new(Arc::clone(&engine)), "require").await;
    for sql in [
        "SELECT sum(int), count(*) FROM packed WHERE date >= DATE '2012-07-08'",
        "SELECT int FROM packed WHERE date >= DATE '2012-07-08'",
    ] {
        engine.clear();
        let (cold, _) = fixture.executed(sql).await;
        assert!(metric(&cold, "bytes_sent") > 0);
        assert_eq!(metric(&cold, "bytes_cached"), 0);
        let (warm, _) = fixture.executed(sql).await;
        assert_eq!(metric(&warm, "bytes_sent"), 0);
        assert!(metric(&warm, "bytes_cached") > 0);
        for plan in [&cold, &warm] {
            // Row groups of 4096 rows, the first of which has no such rows.
            assert_eq!(metric(plan, "row_groups_pruned_statistics"), 1);
            assert_eq!(metric(plan, "gpu_rows"), ROWS - 4096);
            assert_eq!(metric(plan, "fallbacks"), 0);
        }
    }
    let text = fixture
        .answer("EXPLAIN ANALYZE SELECT sum(int) FROM packed")
        .await;
    for name in [
        "kernel_time=",
        "copy_time=",
        "compile_time=",
        "bytes_cached=",
    ] {
        assert!(text.contains(name), "{name} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_larger_than_the_memory_limit_pass_through() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let fixture = fixture(Gpu::new(Arc::clone(&engine)), "require").await;
    fixture
        .same("SELECT sum(int), sum(byte), sum(price) FROM {t}")
        .await;
    let all = engine.cached_bytes();
    engine.clear();
    fixture
        .set("vectile.gpu.memory_limit", &(all * 2 / 3).to_string())
        .await;
    fixture
        .same("SELECT sum(int), sum(byte), sum(price) FROM {t}")
        .await;
    assert!(engine.cached_bytes() <= all * 2 / 3);
    // Columns loaded before the device was full are read once more, and so may be those evicted for them.
    for _ in 0..2 {
        fixture
            .same("SELECT sum(int), sum(byte), sum(price) FROM {t}")
            .await;
    }
    // From then on they come from host memory.
    let (plan, _) = fixture
        .executed("SELECT sum(int), sum(byte), sum(price) FROM packed")
        .await;
    assert_eq!(metric(&plan, "bytes_sent"), 0);
    assert_eq!(metric(&plan, "gpu_rows"), ROWS);
    fixture
        .same("SELECT sum(int), sum(byte), sum(price) FROM {t}")
        .await;
    fixture.set("vectile.gpu", "on").await;
    fixture
        .set("vectile.gpu.memory_limit", &(all / 2).to_string())
        .await;
    let (plan, _) = fixture
        .executed("SELECT sum(int), sum(byte), sum(price) FROM packed")
        .await;
    assert_eq!(metric(&plan, "fallbacks"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_query_gives_everything_back() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let fixture = fixture(Gpu::new(Arc::clone(&engine)), "require").await;
    fixture.repack(512).await;
    for (i, sql) in [
        "SELECT sum(int) FROM packed",
        "SELECT big FROM packed WHERE int <> 3",
    ]
    .iter()
    .cycle()
    .take(6)
    .enumerate()
    {
        engine.clear();
        let frame = fixture.ctx.sql(sql).await.unwrap();
        let mut stream = frame.execute_stream().await.unwrap();
        let wait = Duration::from_millis(i as u64);
        let _ = tokio::time::timeout(wait, stream.next()).await;
        drop(stream);
    }
    let pool = &fixture.ctx.runtime_env().memory_pool;
    until("nothing is reserved", || pool.reserved() == 0).await;
}

/// Waits up to 5 s until `holds` returns true, for effects of other tasks and threads.
async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not seen in 5 s: {what}");
}

/// Threads that read and copy are not interrupted, but they release what they hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_dropped_while_it_loads_gives_everything_back() {
    for last in [1, 2, 7] {
        let copies = Arc::new(AtomicUsize::new(0));
        let is_held = Arc::new(AtomicBool::new(false));
        let (counter, held) = (Arc::clone(&copies), Arc::clone(&is_held));
        let device = match CpuDevice::new() {
            Ok(device) => device.before_copy(move || {
                let copy = counter.fetch_add(1, Ordering::SeqCst) + 1;
                while copy >= last && held.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }),
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let device = Arc::new(device);
        let engine = Engine::new(Arc::clone(&device) as _);
        let fixture = fixture(Gpu::new(Arc::clone(&engine)), "require").await;
        fixture.repack(512).await;
        let sql = "SELECT sum(int), sum(big), sum(id) FROM {t}";
        let packed = sql.replace("{t}", "packed");
        let frame = fixture.ctx.sql(&packed).await.unwrap();
        // Counts from here on: the device has compressed what was written before.
        copies.store(0, Ordering::SeqCst);
        is_held.store(true, Ordering::SeqCst);
        let query = tokio::spawn(async move { frame.collect().await });
        until("it copies", || copies.load(Ordering::SeqCst) >= last).await;
        let pool = Arc::clone(&fixture.ctx.runtime_env().memory_pool);
        assert!(pool.reserved() > 0);
        assert!(device.allocated_host_bytes() > 0);
        query.abort();
        assert!(query.await.unwrap_err().is_cancelled());
        until("nothing is reserved", || pool.reserved() == 0).await;
        is_held.store(false, Ordering::SeqCst);
        let is_empty = || {
            engine.clear();
            engine.cached_bytes() == 0 && device.allocated_host_bytes() == 0
        };
        until("no chunk and no pinned memory", is_empty).await;
        fixture.same(sql).await;
        drop((fixture, engine));
        let left = || device.allocated_bytes() + device.allocated_host_bytes();
        until("no memory of the device", || left() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_row_groups_take_few_launches() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    fixture.repack(128).await;
    let row_groups = ROWS.div_ceil(128);
    // Selecting rows takes one kernel, projecting numbers one more, a text column two.
    for (columns, kernels) in [
        ("id, int", 2),
        ("id, list", 1),
        ("id, text", 4),
        ("text", 3),
    ] {
        let sql = format!("SELECT {columns} FROM {{t}} WHERE int > 100");
        fixture.same(&sql).await;
        let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
        // 1, 2, 4, 8 and then 16 row groups at a time.
        assert_eq!(metric(&plan, "launches"), kernels * 8, "{row_groups}");
        assert_eq!(metric(&plan, "gpu_rows"), ROWS);
        assert_eq!(metric(&plan, "fallbacks"), 0);
        assert_eq!(metric(&plan, "bytes_sent"), 0);
        let bytes = metric(&plan, "bytes_cached");
        let (second, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
        assert!(bytes > 0 && metric(&second, "bytes_cached") == bytes);
    }
    // Later ranges of the file continue with the window size of earlier ones.
    fixture
        .set("datafusion.optimizer.repartition_file_scans", "true")
        .await;
    fixture
        .set("datafusion.optimizer.repartition_file_min_size", "1")
        .await;
    let sql = "SELECT id, int FROM {t} WHERE int > 100";
    fixture.same(sql).await;
    let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
    let launches = metric(&plan, "launches");
    assert!(launches > 2 * 8 && launches < 2 * 14, "{launches} launches");
    fixture
        .set("datafusion.optimizer.repartition_file_scans", "false")
        .await;
    // The zone maps of `id` rule out row groups at both ends, and show for others that all rows pass.
    let sql =
        "SELECT id, list FROM {t} WHERE id >= 1000 AND id < 9000 AND (int > 400 OR id < 2000)";
    fixture.same(sql).await;
    let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
    assert!(metric(&plan, "row_groups_pruned_statistics") >= 14);
    assert!(metric(&plan, "gpu_rows") <= 8192);
    assert!(metric(&plan, "launches") <= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_selected_beyond_a_limit() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    fixture.repack(128).await;
    // Zone maps show that all rows have such an id.
    for (limit, row_groups) in [(100, 1), (200, 2), (300, 3), (500, 4), (800, 7)] {
        let sql = format!("SELECT id, byte FROM {{t}} WHERE id >= 0 LIMIT {limit}");
        fixture.same(&sql).await;
        let (plan, rows) = fixture.executed(&sql.replace("{t}", "packed")).await;
        assert_eq!(rows, limit);
        assert_eq!(metric(&plan, "gpu_rows"), row_groups * 128, "{limit}");
    }
    // The number of rows that pass is unknown: windows grow.
    for columns in ["id, int", "id, text"] {
        for limit in [5, 150, 1000] {
            let sql = format!("SELECT {columns} FROM {{t}} WHERE int > 100 LIMIT {limit}");
            fixture.same(&sql).await;
            let (plan, rows) = fixture.executed(&sql.replace("{t}", "packed")).await;
            assert_eq!(rows, limit);
            // A third of the rows pass.
            let (inspected, needed) = (metric(&plan, "gpu_rows"), limit * 3 + 128);
            assert!(inspected <= 2 * needed, "{inspected} rows for {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_top_k_rules_out_later_row_groups() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    fixture.repack(128).await;
    for columns in ["id, int", "id, text"] {
        // The best row group is scanned first, and rules out the others.
        for order in ["DESC", "ASC"] {
            let sql =
                format!("SELECT {columns} FROM {{t}} WHERE int > 100 ORDER BY id {order} LIMIT 5");
            fixture.same(&sql).await;
            let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
            assert!(metric(&plan, "row_groups_pruned_dynamic_filter") > 60);
            assert!(metric(&plan, "gpu_rows") <= ROWS / 8);
        }
        // Any row group may have the best rows, so the filter tightens gradually.
        let sql =
            format!("SELECT {columns} FROM {{t}} WHERE byte > 3 ORDER BY big DESC, id LIMIT 200");
        fixture.same(&sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_row_group_that_fails_goes_to_the_cpu() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    fixture
        .set("datafusion.execution.target_partitions", "1")
        .await;
    // Three times the large value fits 38 digits, but its bit width does not prove that.
    let create = "CREATE TABLE wide AS SELECT id, int, arrow_cast(\
        CASE id WHEN 5000 THEN '30000000000000000000000000000000000000' ELSE CAST(id AS VARCHAR) END, \
        'Decimal128(38, 0)') AS d FROM plain";
    fixture.run(create).await.unwrap();
    fixture.ctx.deregister_table("plain").unwrap();
    fixture
        .run("CREATE TABLE plain AS SELECT * FROM wide")
        .await
        .unwrap();
    fixture.repack(512).await;
    let sql = "SELECT id, d * 3 AS triple FROM {t} WHERE int > 0";
    fixture.same(sql).await;
    let sql = sql.replace("{t}", "packed");
    let (plan, _) = fixture.executed(&sql).await;
    assert_eq!(metric(&plan, "fallbacks"), 1);
    assert_eq!(metric(&plan, "gpu_rows"), ROWS - 512);
    assert!(metric(&plan, "launches") < 2 * 19);
    fixture.set("vectile.gpu", "require").await;
    let error = fixture.error(&sql).await;
    assert!(error.contains("vectile.gpu = require"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_fails_is_selected_anew() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(Arc::clone(&device) as _)), "on").await;
    fixture.repack(1024).await;
    for sql in [
        "SELECT id, int FROM packed WHERE int > 100",
        "SELECT id, text FROM packed WHERE int > 100",
    ] {
        fixture.set("vectile.gpu", "on").await;
        let expected = fixture.answer(sql).await;
        let (mut faults, mut fallbacks, mut errors) = (0, 0, 0);
        for call in 1.. {
            fixture.set("vectile.gpu", "on").await;
            device.fail_after(call);
            let (plan, _) = fixture.executed(sql).await;
            fallbacks += metric(&plan, "fallbacks");
            device.fail_after(call);
            assert_eq!(fixture.answer(sql).await, expected, "{sql}, call {call}");
            fixture.set("vectile.gpu", "require").await;
            device.fail_after(call);
            match fixture.run(sql).await {
                Ok(_) => {}
                Err(error) => {
                    errors += 1;
                    assert!(
                        error.to_string().contains("vectile.gpu = require"),
                        "{error}"
                    );
                }
            }
            let failed = !device.fault_pending();
            device.fail_after(0);
            if !failed {
                break;
            }
            faults += 1;
        }
        // The first row group is a window by itself, which is the only one without a second attempt.
        assert!(fallbacks > 0 && errors > 0);
        assert!(
            2 * fallbacks < faults && 2 * errors < faults,
            "{faults} faults"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_wait_are_accounted_for() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    fixture.repack(512).await;
    let sql = "SELECT id, big, price FROM {t} WHERE int IS NULL OR int <> 3";
    fixture.same(sql).await;
    let launches = async || {
        let (plan, _) = fixture.executed(&sql.replace("{t}", "packed")).await;
        metric(&plan, "launches")
    };
    let free = launches().await;
    // A row group takes 16 KiB, so windows must be smaller. A window begins when the rows of the previous one have been
    // consumed, whose memory may be released a moment later: there is room for both.
    fixture
        .run("SET datafusion.runtime.memory_limit = '96K'")
        .await
        .unwrap();
    fixture.same(sql).await;
    let short = launches().await;
    assert!(
        short > free,
        "{short} launches with little memory, {free} else"
    );
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_is_reported_and_not_used() {
    let Some(device) = device() else { return };
    let engine = Engine::new(Arc::clone(&device) as _);
    let fixture = fixture(Gpu::new(engine), "on").await;
    let queries = [
        "SELECT sum(int), count(*) FROM packed WHERE byte > 3",
        "SELECT big FROM packed WHERE int = 3",
    ];
    let plan = async |sql: &str| {
        let plan = fixture.ctx.sql(sql).await.unwrap();
        plan.create_physical_plan().await.unwrap()
    };
    let (planned, expected) = (plan(queries[1]).await, fixture.answer(queries[0]).await);
    device.lose();
    assert_eq!(fixture.answer(queries[0]).await, expected);
    let calls = device.calls();
    for sql in queries {
        let explained = fixture.answer(&format!("EXPLAIN {sql}")).await;
        let on_gpu = explained.contains(", gpu=") || explained.contains("FusedAggregateExec");
        assert!(!on_gpu, "{explained}");
        assert_eq!(
            explained.matches("the GPU is lost").count(),
            1,
            "{explained}"
        );
        // Partitions come in any order.
        let sorted = sql.replace("int = 3", "int = 3 ORDER BY big");
        fixture.same(&sorted.replace("packed", "{t}")).await;
    }
    // An earlier plan does not try the device either.
    let batches = collect(Arc::clone(&planned), fixture.ctx.task_ctx()).await;
    assert!(batches.is_ok());
    assert!(metric(&planned, "fallbacks") > 0);
    assert_eq!(device.calls(), calls);
    fixture.set("vectile.gpu", "require").await;
    let error = fixture.error(queries[0]).await;
    assert!(
        error.contains("vectile.gpu = require: the GPU is lost"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_query_launches_no_more() {
    let launches = Arc::new(AtomicUsize::new(0));
    let is_held = Arc::new(AtomicBool::new(false));
    let (counter, held) = (Arc::clone(&launches), Arc::clone(&is_held));
    let device = match CpuDevice::new() {
        Ok(device) => device.before_launch(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            while held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let fixture = fixture(Gpu::new(Engine::new(Arc::new(device))), "require").await;
    fixture.repack(512).await;
    // Two launches for each window: select rows, project values.
    let sql = "SELECT big FROM packed WHERE int <> 3";
    fixture.answer(sql).await;
    launches.store(0, Ordering::SeqCst);
    is_held.store(true, Ordering::SeqCst);
    let frame = fixture.ctx.sql(sql).await.unwrap();
    let query = tokio::spawn(async move { frame.collect().await });
    while launches.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    query.abort();
    assert!(query.await.unwrap_err().is_cancelled());
    // Reading ahead is a task of its own, which ends soon after the query. The launch is another.
    let runtime = tokio::runtime::Handle::current().metrics();
    while runtime.num_alive_tasks() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_held.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(launches.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_groups_are_accounted_for() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    let sql = "SELECT id, sum(int) FROM {t} GROUP BY id ORDER BY id";
    fixture.same(sql).await;
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
    // Tables of 10,000 groups are larger.
    fixture
        .run("SET datafusion.runtime.memory_limit = '32K'")
        .await
        .unwrap();
    let error = fixture.error(&sql.replace("{t}", "packed")).await;
    assert!(
        error.contains("host memory for results were refused"),
        "{error}"
    );
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test]
async fn settings_are_shown() {
    let fixture = fixture(Gpu::none("there is none"), "on").await;
    let shown = async |key: &str| fixture.answer(&format!("SHOW {key}")).await;
    fixture.set("vectile.gpu.memory_limit", "3G").await;
    fixture.set("vectile.gpu.host_memory_limit", "2K").await;
    for (key, value) in [
        ("vectile.gpu", "| on "),
        ("vectile.gpu.memory_limit", "| 3221225472 "),
        ("vectile.gpu.host_memory_limit", "| 2048 "),
        ("vectile.gpu.background", "| true "),
    ] {
        let one = shown(key).await;
        assert!(one.contains(value), "{one}");
        assert_eq!(one.matches("vectile.").count(), 1, "{one}");
        let all = shown("ALL").await;
        assert!(all.contains(&format!("| {key} ")), "{all}");
    }
}

/// Blocks are decoded in shared memory, which tests use as well.
#[tokio::test]
async fn keys_in_blocks_are_reread_after_tests() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    let rows =
        "SELECT value % 300 AS k, value * 7 % 200 AS l, CAST(value % 90 AS DOUBLE) / 4 AS price
        FROM generate_series(0, 20000) AS rows(value)";
    let keys = "SELECT value AS k, value % 11 AS a, concat('name ', value % 5) AS name
        FROM generate_series(0, 120) AS keys(value)";
    for (table, of) in [("facts", rows), ("keys", keys)] {
        let path = fixture.path(&format!("{table}.vectile"));
        let pins = match table {
            "facts" => "OPTIONS ('encoding.k' 'gpu_for', 'encoding.l' 'gpu_dfor')",
            _ => "",
        };
        let copy = format!(
            "COPY ({of}) TO '{}' STORED AS VECTILE {pins}",
            path.display()
        );
        fixture.run(&copy).await.unwrap();
        fixture.register(table, &path).await;
    }
    for sql in [
        "SELECT d.name, sum(f.price) AS n FROM facts f JOIN keys d ON f.k = d.k WHERE f.k % 7 = 3
         GROUP BY d.name ORDER BY d.name",
        "SELECT count(*) AS n FROM facts WHERE k % 7 = 3 AND k < 250 AND k % 5 = 2",
        "SELECT count(*) AS n, sum(f.price) AS m FROM facts f JOIN keys d ON f.k = d.k JOIN keys e ON f.l = e.k
         WHERE d.a < e.a",
        "SELECT e.name, sum(f.l) AS n FROM facts f JOIN keys d ON f.k = d.k JOIN keys e ON f.l = e.k
         WHERE d.a < e.a AND f.k <> 17 GROUP BY e.name ORDER BY e.name",
    ] {
        fixture.set("vectile.gpu", "require").await;
        let on_gpu = fixture.answer(sql).await;
        let plan = fixture.answer(&format!("EXPLAIN {sql}")).await;
        assert!(plan.contains("FusedAggregateExec"), "{plan}");
        fixture.set("vectile.gpu", "off").await;
        assert_eq!(on_gpu, fixture.answer(sql).await, "{sql}");
    }
}

/// Key tables that the device builds: planned, counted, cached and not cached, and left to the CPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_dimensions_become_lookups_on_the_device() {
    let Some(device) = device() else { return };
    let fixture = fixture(Gpu::new(Engine::new(device)), "require").await;
    for (name, rows) in [
        (
            "sales",
            "value % 900 AS k, value % 70 AS j, value AS v FROM generate_series(1, 5000)",
        ),
        (
            "days",
            "value AS k, value % 40 AS x, concat('day ', value) AS name FROM generate_series(0, 799)",
        ),
        (
            "shops",
            "value AS j, value * 1000003 AS far, value % 3 AS y FROM generate_series(0, 59)",
        ),
        (
            "twice",
            "value % 400 AS k, value AS x FROM generate_series(0, 799)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    let by = "sales JOIN days ON sales.k = days.k";
    let post_aggregation = "(SELECT k, count(*) AS n FROM twice GROUP BY k) g";
    let queries = [
        // Each with the number of its lookups, and of those built on the device.
        (
            format!("SELECT x, sum(v) FROM {by} GROUP BY x ORDER BY x"),
            1,
            1,
        ),
        (format!("SELECT sum(v * x), count(*) FROM {by}"), 1, 1),
        (
            format!(
                "SELECT y, sum(v + x) FROM {by} JOIN shops ON sales.j = shops.j GROUP BY y ORDER BY y"
            ),
            2,
            2,
        ),
        (
            format!("SELECT count(*), sum(n) FROM sales JOIN {post_aggregation} ON sales.k = g.k"),
            1,
            1,
        ),
        (
            "SELECT count(*) FROM sales WHERE k IN (SELECT k FROM twice WHERE x > 300)".into(),
            1,
            1,
        ),
        (
            "SELECT sum(y) FROM sales JOIN shops ON sales.j * 1000003 = shops.far".into(),
            1,
            1,
        ),
        (
            format!("SELECT name, sum(v) FROM {by} WHERE x = 3 GROUP BY name ORDER BY name"),
            1,
            1,
        ),
        (
            format!("SELECT upper(name) AS n, sum(v) FROM {by} GROUP BY n ORDER BY n"),
            1,
            0,
        ),
    ];
    let built = |plan: &_| metric(plan, "lookups_built_on_gpu");
    for (query, lookups, on_device) in &queries {
        fixture.set("vectile.gpu", "off").await;
        let expected = fixture.answer(query).await;
        fixture.set("vectile.gpu", "require").await;
        // The CPU builds small tables.
        let plan = fixture.answer(&format!("EXPLAIN {query}")).await;
        assert!(!plan.contains("built on"), "{plan}");
        fixture.build_from_rows(0);
        let plan = fixture.answer(&format!("EXPLAIN {query}")).await;
        let is_on_device = *on_device > 0;
        assert_eq!(plan.contains("built on the GPU"), is_on_device, "{plan}");
        assert_eq!(plan.contains("built on the CPU: "), !is_on_device, "{plan}");
        fixture.keep_key_tables(false);
        for _ in 0..2 {
            let (plan, _) = fixture.executed(query).await;
            assert_eq!(
                (built(&plan), metric(&plan, "lookups_cached")),
                (*on_device, 0)
            );
            assert_eq!(&fixture.answer(query).await, &expected, "{query}");
        }
        fixture.keep_key_tables(true);
        fixture.executed(query).await;
        let (plan, _) = fixture.executed(query).await;
        assert_eq!(
            (built(&plan), metric(&plan, "lookups_cached")),
            (0, *lookups)
        );
        assert_eq!(&fixture.answer(query).await, &expected, "{query}");
        fixture.build_from_rows(1_000_000);
    }
    // If keys are duplicate, the CPU builds a multimap.
    fixture.build_from_rows(0);
    let query = "SELECT sum(v), sum(x * v), count(*) FROM sales JOIN twice ON sales.k = twice.k";
    fixture.set("vectile.gpu", "off").await;
    let expected = fixture.answer(query).await;
    fixture.set("vectile.gpu", "require").await;
    let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {query}")).await;
    assert!(analyzed.contains("duplicate join keys)=1"), "{analyzed}");
    assert_eq!(fixture.answer(query).await, expected);
    // Two multimaps of the same rows are cached together.
    let grouped = "SELECT x % 7 AS g, sum(v), sum(x) FROM sales JOIN twice ON sales.k = twice.k GROUP BY 1 ORDER BY 1";
    fixture.set("vectile.gpu", "off").await;
    let expected = fixture.answer(grouped).await;
    fixture.set("vectile.gpu", "require").await;
    for cached in [0, 2] {
        let (plan, _) = fixture.executed(grouped).await;
        assert_eq!(metric(&plan, "lookups_cached"), cached);
        assert_eq!(fixture.answer(grouped).await, expected);
    }
    // The duplicate keys of a join that returns rows are detected once, and remembered.
    let rows = "SELECT v, x FROM sales JOIN twice ON sales.k = twice.k";
    for _ in 0..2 {
        let error = fixture.error(rows).await;
        assert!(error.contains("duplicate join keys"), "{error}");
    }
}

const FUSED_QUERIES: [&str; 3] = [
    "SELECT sum(int) FROM {t} WHERE byte > 9",
    "SELECT byte, count(*) FROM {t} GROUP BY byte ORDER BY byte",
    "SELECT id FROM {t} WHERE int > 100 ORDER BY id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_does_not_compile_is_an_error_on_the_emulator() {
    let Ok(device) = CpuDevice::new() else { return };
    let device = Arc::new(device.with_broken_compiler());
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for sql in FUSED_QUERIES {
        let error = fixture.error(&sql.replace("{t}", "packed")).await;
        assert!(error.contains("a kernel does not compile"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_does_not_compile_is_left_to_the_cpu_but_with_require() {
    let Ok(device) = CpuDevice::new() else { return };
    let device = Arc::new(device.as_a_gpu().with_broken_compiler());
    let fixture = fixture(Gpu::new(Engine::new(device)), "on").await;
    for sql in FUSED_QUERIES {
        fixture.set("vectile.gpu", "on").await;
        fixture.same(sql).await;
        let sql = sql.replace("{t}", "packed");
        let (plan, _) = fixture.executed(&sql).await;
        assert!(metric(&plan, "fallbacks") > 0, "{sql}");
        fixture.set("vectile.gpu", "require").await;
        let error = fixture.error(&sql).await;
        assert!(error.contains("vectile.gpu = require"), "{error}");
        assert!(error.contains("a kernel does not compile"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_compiler_queries_are_interpreted() {
    let Ok(device) = CpuDevice::new() else { return };
    let engine = Engine::new(Arc::new(device.without_compiler()));
    let fixture = fixture(Gpu::new(Arc::clone(&engine)), "require").await;
    for sql in FUSED_QUERIES {
        fixture.same(sql).await;
    }
    // what only a generated kernel can do is left to the CPU, and the device stays
    fixture.set("vectile.gpu.kernels", "generated").await;
    let sql = FUSED_QUERIES[0].replace("{t}", "packed");
    let error = fixture.error(&sql).await;
    assert!(error.contains("the kernel needs a compiler"), "{error}");
    for mode in ["on", "auto"] {
        fixture.set("vectile.gpu", mode).await;
        for sql in FUSED_QUERIES {
            fixture.same(sql).await;
        }
    }
    fixture.set("vectile.gpu", "on").await;
    let analyzed = fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await;
    let reason = "fallbacks (External error: the kernel needs a compiler: there is none)=1";
    assert!(analyzed.contains(reason), "{analyzed}");
    engine.check().unwrap();
    fixture.set("vectile.gpu.kernels", "auto").await;
    let (plan, _) = fixture.executed(&sql).await;
    assert_eq!(metric(&plan, "fallbacks"), 0);
    assert!(metric(&plan, "launches") > 0);
    assert_eq!(metric(&plan, "interpreted"), metric(&plan, "launches"));
}
