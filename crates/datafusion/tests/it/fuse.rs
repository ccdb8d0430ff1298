//! Aggregates as programs on the CPU, beside DataFusion's operators over the same file and over a table in memory.

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use vectile_datafusion::Gpu;

use crate::support::{Fixture, metric};

async fn fixture() -> Fixture {
    let fixture = Fixture::on(Gpu::none("a test of the CPU"));
    fixture.add_tables().await;
    fixture.run("SET vectile.fuse = true").await.unwrap();
    fixture
}

/// Queries whose aggregates have programs.
const FUSED: &[&str] = &[
    "SELECT flag, name, count(*) FROM {t} GROUP BY CUBE (flag, name) ORDER BY 3 DESC, 1, 2",
    "SELECT count(*), count(int), sum(int), min(int), max(int), avg(int) FROM {t}",
    "SELECT sum(big), min(big), max(big), count(big) FROM {t}",
    "SELECT sum(byte), sum(price), avg(price), min(price), max(price * 2) FROM {t} WHERE id < 9999",
    "SELECT min(float), max(float), count(float) FROM {t}",
    "SELECT name, count(*), sum(price) FROM {t} GROUP BY name ORDER BY name",
    "SELECT one, name, count(int) FROM {t} WHERE int > 0 GROUP BY one, name ORDER BY name",
    "SELECT flag, byte % 4 AS rest, count(*), min(date), max(time) FROM {t} GROUP BY flag, rest ORDER BY flag, rest",
    "SELECT extract(month FROM date) AS month, count(*) FROM {t} GROUP BY month ORDER BY month",
    "SELECT count(*) FROM {t} WHERE name LIKE '%an%' OR int IS NULL",
    "SELECT count(*), sum(id) FROM {t} WHERE int + byte > 100 AND NOT flag",
    "SELECT sum(CASE WHEN flag THEN int WHEN int < 0 THEN byte END) FROM {t}",
    "SELECT count(*) FROM {t} WHERE CASE WHEN name = 'apple' THEN int ELSE byte END > 77",
    "SELECT sum(1), count(*) FILTER (WHERE true) FROM {t}",
    "SELECT sum(1) FROM {t} WHERE id IS NOT NULL",
    "SELECT void, count(*), count(void), sum(void) FROM {t} GROUP BY void",
    "SELECT count(*), sum(int), min(date) FROM {t} WHERE id < 0",
    "SELECT name, count(*) FROM {t} WHERE id < 0 GROUP BY name",
    "SELECT DISTINCT name, flag FROM {t} ORDER BY name, flag",
    "SELECT flag, sum(int) FILTER (WHERE byte > 100), count(*) FROM {t} GROUP BY flag ORDER BY flag",
    "SELECT name, count(*) AS n FROM {t} GROUP BY name HAVING count(*) > 1000 ORDER BY n DESC, name LIMIT 2",
    "SELECT id, count(*), sum(int) FROM {t} GROUP BY id ORDER BY id LIMIT 5",
    "SELECT big, count(*) FROM {t} GROUP BY big ORDER BY 2 DESC, 1 LIMIT 5",
    "SELECT int, byte, name, date, sum(price) AS s FROM {t} GROUP BY int, byte, name, date HAVING count(*) = 1 ORDER BY s DESC, int, byte, name, date LIMIT 20",
    "SELECT id * 1000003 % 1000000007 AS k, sum(price) AS s, avg(int), max(float) FROM {t} GROUP BY k HAVING sum(price) > 100 ORDER BY s DESC, k LIMIT 10",
    "SELECT id * 1000003 % 1000000007 AS k, count(*) AS n FROM {t} GROUP BY k ORDER BY n DESC, k DESC LIMIT 7",
    "SELECT sum(n), count(*) FROM (SELECT id - 1234567 AS k, flag, count(int) AS n FROM {t} GROUP BY k, flag)",
    "SELECT count(DISTINCT id) FROM {t}",
    "SELECT flag, count(DISTINCT int) FROM {t} GROUP BY flag ORDER BY flag",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_have_the_answers_of_operators() {
    let fixture = fixture().await;
    for sql in FUSED {
        let of_file = sql.replace("{t}", "packed");
        let plan = fixture.plan(&of_file).await;
        assert!(plan.contains("device=CPU"), "{sql}: {plan}");
        let (plan, _) = fixture.executed(&of_file).await;
        assert_eq!(metric(&plan, "fallbacks"), 0, "{sql}");
        fixture.same(sql).await;
    }
}

/// Operators take over where a program has no instruction, or a key no dictionary, and the answer is the same.
#[tokio::test]
async fn operators_do_what_programs_cannot() {
    let fixture = fixture().await;
    for sql in [
        "SELECT text, count(*) FROM {t} GROUP BY text ORDER BY text LIMIT 5",
        "SELECT count(DISTINCT int), count(DISTINCT id) FROM {t}",
        "SELECT dict, count(*) FROM {t} GROUP BY dict ORDER BY dict",
        "SELECT name, median(int) FROM {t} GROUP BY name ORDER BY name",
        "SELECT count(*) FROM {t} WHERE nested['x'] > 0",
        "SELECT count(DISTINCT name) FROM {t}",
        "SELECT 1, sum(2) FROM {t} GROUP BY 1",
        "SELECT bool_or(true), avg(2) FROM {t}",
    ] {
        fixture.same(sql).await;
    }
}

/// Answers with and without programs.
async fn same_without(fixture: &Fixture, sql: &str) {
    fixture.run("SET vectile.fuse = true").await.unwrap();
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("device=CPU"), "{sql}: {plan}");
    let fused = fixture.answer(sql).await;
    fixture.run("SET vectile.fuse = false").await.unwrap();
    assert_eq!(fused, fixture.answer(sql).await, "{sql}");
}

#[tokio::test]
async fn keys_have_any_type() {
    let fixture = fixture().await;
    let rows = "SELECT value % 5 AS k FROM generate_series(1, 5000)";
    for of in [
        "DECIMAL(10, 2)",
        "DECIMAL(4, 1)",
        "DECIMAL(38, 0)",
        "TINYINT",
        "SMALLINT UNSIGNED",
        "BIGINT UNSIGNED",
        "DATE",
        "TIMESTAMP",
        "BOOLEAN",
    ] {
        let cast = match of {
            "DATE" => "CAST(CAST(k AS INT) AS DATE)".to_owned(),
            _ => format!("CAST(k AS {of})"),
        };
        let name = of.replace([' ', '(', ')', ','], "_");
        let query = format!("SELECT {cast} AS k FROM ({rows})");
        fixture.make(&name, &query).await;
        let sql = format!("SELECT k, count(*), min(k) FROM {name} GROUP BY k ORDER BY k");
        same_without(&fixture, &sql).await;
    }
}

/// Two centuries around 1970, in each unit of time.
#[tokio::test]
async fn times_have_the_parts_that_operators_compute() {
    let fixture = fixture().await;
    for (unit, second, zone) in [
        ("s", 1, ""),
        ("ms", 1_000, ""),
        ("us", 1_000_000, ""),
        ("ns", 1_000_000_000, ""),
        ("s", 1, ", \"UTC\""),
        ("ns", 1_000_000_000, ", \"+00:00\""),
    ] {
        let name = format!("times_{unit}_{}", zone.len());
        let second_of = "(value * 7919 % 6311 - 3155) * 1000003 + value % 7";
        let time = format!("({second_of}) * {second} + value * 123457 % {second}");
        let rows = format!(
            "SELECT CASE WHEN value % 11 > 0 THEN arrow_cast({time}, 'Timestamp({unit}{zone})') END AS t, \
             value AS id FROM generate_series(1, 3000)"
        );
        fixture.make(&name, &rows).await;
        let mut keys: Vec<String> = [
            "year", "quarter", "month", "day", "dow", "doy", "hour", "MINUTE", "second",
        ]
        .map(|part| format!("date_part('{part}', t)"))
        .into();
        let granularities = ["microsecond", "millisecond", "second", "Minute"];
        let coarse = ["hour", "day"].into_iter().filter(|_| zone.is_empty());
        let granularities = granularities.into_iter().chain(coarse);
        keys.extend(granularities.map(|to| format!("date_trunc('{to}', t)")));
        for key in keys {
            let sql = format!(
                "SELECT {key} AS k, count(*), min(id), max({key}), count({key}) FROM {name} \
                 GROUP BY k ORDER BY k LIMIT 300"
            );
            same_without(&fixture, &sql).await;
        }
        let filter = "date_part('hour', t) BETWEEN 3 AND 9 AND date_trunc('minute', t) < t";
        let sql = format!("SELECT count(*), sum(id) FROM {name} WHERE {filter}");
        same_without(&fixture, &sql).await;
    }
    let rows = "SELECT arrow_cast(CASE value % 7 WHEN 0 THEN -9223372036854775807 WHEN 1 THEN 9223372036854775807 \
                WHEN 2 THEN -8334601228800 WHEN 3 THEN -8334601228801 WHEN 4 THEN 8210266876799 \
                WHEN 5 THEN 8210266876800 END, 'Timestamp(s)') AS t FROM generate_series(1, 60)";
    fixture.make("extremes", rows).await;
    for part in ["hour", "second", "year", "doy"] {
        let sql = format!(
            "SELECT date_part('{part}', t) AS k, count(*) FROM extremes GROUP BY k ORDER BY k"
        );
        same_without(&fixture, &sql).await;
    }
    // other time zones, and hours that may not fit nanoseconds
    for (name, key) in [
        ("times_s_7", "date_trunc('hour', t)"),
        ("times_s_7", "date_trunc('month', t)"),
        ("times_ns_0", "date_part('millisecond', t)"),
        (
            "times_s_0",
            "date_part('hour', arrow_cast(t, 'Timestamp(s, \"Europe/Berlin\")'))",
        ),
    ] {
        let sql =
            format!("SELECT {key} AS k, count(*) FROM {name} GROUP BY k ORDER BY k LIMIT 300");
        fixture.run("SET vectile.fuse = true").await.unwrap();
        let fused = fixture.answer(&sql).await;
        fixture.run("SET vectile.fuse = false").await.unwrap();
        assert_eq!(fused, fixture.answer(&sql).await, "{sql}");
    }
}

/// A filter fails for rows that another one drops.
#[tokio::test]
async fn tests_fail_only_for_rows_that_need_them() {
    let fixture = fixture().await;
    let rows = "SELECT value AS id, CASE WHEN value % 1000 < 500 THEN CAST(value % 7 AS VARCHAR) ELSE 'bad' END AS s \
                FROM generate_series(0, 9999)";
    fixture.make("t", rows).await;
    for filter in [
        "s <> 'bad' AND CAST(s AS INT) > 2",
        "id < 400 AND CAST(s AS INT) > 2",
        "CASE WHEN s = 'bad' THEN false ELSE CAST(s AS INT) > 2 END",
    ] {
        let sql = format!("SELECT count(*), sum(id) FROM t WHERE {filter}");
        same_without(&fixture, &sql).await;
    }
}

/// The mean of distances from it is 0, so that no other shift helps.
#[tokio::test]
async fn variances_around_zero_end() {
    let fixture = fixture().await;
    let rows = "SELECT column1 AS g, column2 AS x FROM (VALUES (1, 1000000001.0), (1, 1000000002.0), \
                (2, -1000000001.0), (2, -1000000002.0))";
    let query = format!("SELECT g, CAST(x AS DOUBLE) AS x FROM ({rows})");
    fixture.make("t", &query).await;
    same_without(&fixture, "SELECT g, stddev(x) FROM t GROUP BY g ORDER BY g").await;
}

/// Lowered, each level of this expression has the one below it thirty times.
#[tokio::test]
async fn copies_of_operands_are_bounded() {
    let fixture = fixture().await;
    let items: Vec<String> = (1..=30).map(|item| item.to_string()).collect();
    let mut value = "int".to_owned();
    for _ in 0..8 {
        value = format!(
            "CASE WHEN {value} IN ({}) THEN 1 ELSE 2 END",
            items.join(", ")
        );
    }
    let sql = format!("SELECT sum({value}) FROM packed");
    let fused = fixture.answer(&sql).await;
    fixture.run("SET vectile.fuse = false").await.unwrap();
    assert_eq!(fused, fixture.answer(&sql).await);
}

/// Both settings are tried in one session, whose plans are cached.
#[tokio::test]
async fn a_setting_switches_programs_off() {
    let fixture = fixture().await;
    let sql = "SELECT sum(id) FROM packed WHERE int > 7";
    let answer = fixture.answer(sql).await;
    for (fuse, is_fused) in [("false", false), ("true", true), ("false", false)] {
        let set = format!("SET vectile.fuse = {fuse}");
        fixture.run(&set).await.unwrap();
        let plan = fixture.plan(sql).await;
        assert_eq!(plan.contains("device=CPU"), is_fused, "{plan}");
        assert_eq!(fixture.answer(sql).await, answer);
    }
}

/// A program takes its memory from the pool. If there is too little, the operators take less or fail.
#[tokio::test]
async fn auto_is_for_large_tables_and_short_keys() {
    let fixture = fixture().await;
    for (table, rows) in [("small", 3000), ("few", 290_000), ("large", 600_000)] {
        let rows = format!(
            "SELECT value AS id, value % 7 AS k, value * 7919 * 104729 AS hash, value / 3.0 AS f, \
             'x' || (value % 5) AS short, 'a rather long text of a page ' || value AS long \
             FROM generate_series(1, {rows})"
        );
        fixture.make(table, &rows).await;
    }
    fixture.run("SET vectile.fuse = auto").await.unwrap();
    for (sql, is_fused) in [
        ("SELECT k, count(*), sum(id) FROM large GROUP BY k", true),
        (
            "SELECT short, max(id), sum(f) FROM large GROUP BY short",
            true,
        ),
        (
            "SELECT a.k, sum(b.id) FROM large a JOIN small b ON a.id = b.id GROUP BY a.k",
            true,
        ),
        ("SELECT k, count(*), sum(id) FROM small GROUP BY k", false),
        (
            "SELECT long, count(*) FROM large GROUP BY long ORDER BY 2 LIMIT 3",
            false,
        ),
        ("SELECT k, min(long) FROM large GROUP BY k", false),
        ("SELECT k, min(f) FROM large GROUP BY k", false),
        (
            "SELECT hash, count(*) FROM large GROUP BY hash ORDER BY 2, 1 LIMIT 3",
            true,
        ),
        (
            "SELECT count(DISTINCT hash), count(DISTINCT k) FROM large",
            true,
        ),
        (
            "SELECT k, count(DISTINCT hash), count(DISTINCT id) FROM large GROUP BY k",
            false,
        ),
        // a table of half as many rows as are read
        (
            "SELECT a.k, sum(b.f) FROM large a JOIN few b ON a.id = b.id GROUP BY a.k",
            true,
        ),
        (
            "SELECT a.k, sum(b.id) FROM few a JOIN large b ON a.id = b.id JOIN few c ON a.id = c.id GROUP BY a.k, c.k",
            false,
        ),
    ] {
        let plan = fixture.plan(sql).await;
        assert_eq!(
            plan.contains("FusedAggregateExec"),
            is_fused,
            "{sql}\n{plan}"
        );
    }
}

#[tokio::test]
async fn too_little_memory_is_left_to_operators() {
    let whole = fixture().await;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(1 << 10, 1.0)
        .build_arc()
        .unwrap();
    let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
    vectile_datafusion::register_with_gpu(&ctx, Gpu::none("a test of the CPU")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tight = Fixture { ctx, dir };
    let path = whole.path("packed.vectile");
    tight.register("packed", &path).await;
    tight.run("SET vectile.fuse = true").await.unwrap();
    let sql = "SELECT sum(id) FROM packed WHERE int > 7";
    let error = tight.run(sql).await.unwrap_err();
    let error = error.find_root().to_string();
    assert!(error.contains("VectileScan"), "{error}");
}

/// Tables that joins look up: unique keys with nulls among them, distant ones, text, and duplicates.
async fn with_dimensions() -> Fixture {
    let fixture = fixture().await;
    for (name, query) in [
        (
            "dim",
            "SELECT CASE WHEN id % 5 = 0 THEN NULL ELSE id END AS k, name AS n, price * 2 AS p, flag AS f, \
             float AS x, date AS d, byte AS b, big AS w, text AS s FROM plain WHERE id % 3 = 0",
        ),
        (
            "far",
            "SELECT id * 1000003000001 AS k, id % 7 AS g FROM plain WHERE id % 11 = 0",
        ),
        (
            "names",
            "SELECT name AS k, min(id) AS v, count(*) AS c FROM plain WHERE name IS NOT NULL GROUP BY name",
        ),
        (
            "pairs",
            "SELECT byte AS a, name AS b, count(*) AS c FROM plain GROUP BY byte, name",
        ),
        (
            "many",
            "SELECT id % 100 AS k, id AS v FROM plain WHERE id < 1000",
        ),
        ("none", "SELECT id AS k, id AS v FROM plain WHERE id < 0"),
    ] {
        fixture.make(name, query).await;
    }
    fixture
}

/// Queries with joins that programs look up, beside DataFusion's joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_have_the_answers_of_operators() {
    let fixture = with_dimensions().await;
    for sql in [
        "SELECT count(*), sum(p), min(x), max(d), sum(b), count(n), max(w) FROM packed JOIN dim ON id = k",
        "SELECT count(*), sum(p), count(k) FROM packed LEFT JOIN dim ON id = k",
        "SELECT n, f, count(*), sum(price), sum(p) FROM packed JOIN dim ON id = k GROUP BY n, f ORDER BY n, f",
        "SELECT n, count(*) FROM packed LEFT JOIN dim ON id = k GROUP BY n ORDER BY n",
        "SELECT x, d, count(*) FROM packed JOIN dim ON id = k GROUP BY x, d ORDER BY 3 DESC, 1, 2 LIMIT 9",
        "SELECT s, sum(int) FROM packed JOIN dim ON id = k GROUP BY s ORDER BY s LIMIT 20",
        "SELECT count(*), sum(int) FROM packed WHERE id IN (SELECT k FROM dim WHERE f)",
        "SELECT count(*) FROM packed WHERE id NOT IN (SELECT k FROM dim WHERE k IS NOT NULL)",
        "SELECT count(*) FROM packed WHERE id NOT IN (SELECT k FROM dim)",
        "SELECT count(*) FROM packed WHERE int NOT IN (SELECT v FROM none)",
        "SELECT count(*) FROM packed t WHERE NOT EXISTS (SELECT 1 FROM dim WHERE k = t.id AND p > 100)",
        "SELECT count(*), sum(int) FROM packed t WHERE flag OR EXISTS (SELECT 1 FROM dim WHERE k = t.id)",
        "SELECT g, count(*), sum(id) FROM packed JOIN far ON id * 1000003000001 = k GROUP BY g ORDER BY g",
        "SELECT v, c, count(*), sum(int) FROM packed JOIN names ON name = k GROUP BY v, c ORDER BY v, c",
        "SELECT c, count(*) FROM packed JOIN pairs ON byte = a AND name = b GROUP BY c ORDER BY c",
        "SELECT sum(CASE WHEN n LIKE '%an%' THEN int ELSE b END) FROM packed JOIN dim ON id = k",
        "SELECT count(*) FROM packed JOIN dim ON id = k WHERE n IS NULL OR p > price * 2 - 1",
        "SELECT extract(year FROM d) AS y, count(*) FROM packed JOIN dim ON id = k GROUP BY y ORDER BY y",
        "SELECT b, d, count(*), sum(p) FROM packed JOIN dim ON id = k GROUP BY b, d ORDER BY b, d",
        "SELECT b, d, count(*) FROM packed LEFT JOIN dim ON id = k GROUP BY b, d ORDER BY b, d",
        "SELECT k, b, count(*) FROM packed LEFT JOIN dim ON id = k GROUP BY k, b ORDER BY k, b LIMIT 50",
        "SELECT coalesce(b, 7) AS c, extract(year FROM d) AS y, count(*) FROM packed LEFT JOIN dim ON id = k \
         GROUP BY c, y ORDER BY c, y",
        "SELECT 100 / (b - 77) AS c, count(*) FROM packed JOIN dim ON id = k WHERE b <> 77 GROUP BY c ORDER BY c",
        "SELECT b + 1 AS c, CASE WHEN f THEN b END AS e, g, count(*) FROM packed JOIN dim ON id = dim.k \
         JOIN far ON id * 1000003000001 = far.k GROUP BY c, e, g ORDER BY c, e, g",
        "SELECT max(c) FROM (SELECT b, n, count(*) AS c FROM packed JOIN dim ON id = k GROUP BY b, n)",
        "SELECT b, count(DISTINCT d) FROM packed JOIN dim ON id = k GROUP BY b ORDER BY b",
        "SELECT b, count(*) AS c FROM packed JOIN dim ON id = k GROUP BY b ORDER BY c DESC, b LIMIT 3",
        "SELECT count(*), sum(v) FROM packed JOIN none ON id = k",
        "SELECT n, count(*) FROM packed JOIN (SELECT dim.k, dim.n FROM dim JOIN far ON dim.k = far.g) d ON id = d.k \
         GROUP BY n ORDER BY n",
        "SELECT count(*), sum(c) FROM packed JOIN dim ON id = k JOIN names ON n = names.k",
    ] {
        same_without(&fixture, sql).await;
    }
}

/// Joins with duplicate keys, which programs combine rows for, beside DataFusion's joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_keys_have_the_answers_of_operators() {
    let fixture = with_dimensions().await;
    fixture
        .make(
            "tags",
            "SELECT CASE WHEN id % 9 = 0 THEN NULL ELSE name END AS k, byte % 5 AS tag, price AS p FROM plain \
             WHERE id % 40 = 3",
        )
        .await;
    fixture
        .make(
            "texts",
            "SELECT byte AS k, name AS n, text AS s, float AS x, big AS w, flag AS f FROM plain WHERE id % 30 = 1",
        )
        .await;
    for sql in [
        "SELECT count(*), sum(v) FROM packed JOIN many ON byte = k",
        "SELECT count(*), sum(v), min(v), max(v - id), sum(price) FROM packed JOIN many ON byte = k WHERE int > 0",
        "SELECT count(*), sum(v), count(v) FROM packed LEFT JOIN many ON byte = k",
        "SELECT count(*), sum(v), count(v) FROM packed LEFT JOIN many ON byte = k AND v > id",
        "SELECT count(*), sum(v) FROM packed JOIN many ON byte = k WHERE v > id OR int IS NULL",
        "SELECT v, count(*), sum(int) FROM packed JOIN many ON byte = k GROUP BY v ORDER BY v",
        "SELECT name, v % 3 AS r, count(*), avg(price) FROM packed LEFT JOIN many ON byte = k GROUP BY name, r \
         ORDER BY name, r",
        "SELECT tag, count(*), sum(p) FROM packed JOIN tags ON name = k WHERE id < 3000 GROUP BY tag ORDER BY tag",
        "SELECT tag, count(*), sum(v) FROM packed JOIN tags ON name = tags.k JOIN many ON byte = many.k \
         WHERE id < 200 AND tag <> v % 5 GROUP BY tag ORDER BY tag",
        "SELECT count(*), sum(v) FROM packed LEFT JOIN tags ON name = tags.k LEFT JOIN many ON byte = many.k \
         WHERE id < 100",
        "SELECT count(*), sum(a.v), sum(b.v) FROM packed JOIN many a ON byte = a.k JOIN many b ON id = b.k",
        "SELECT n, count(*), sum(v) FROM packed JOIN dim ON id = dim.k JOIN many ON byte = many.k GROUP BY n ORDER BY n",
        "SELECT n, f, count(*), count(x), max(w), count(s) FROM packed JOIN texts ON byte = k GROUP BY n, f ORDER BY n, f",
        "SELECT s, count(*), sum(int) FROM packed LEFT JOIN texts ON byte = k GROUP BY s ORDER BY s LIMIT 20",
        "SELECT k, v % 4 AS r, count(*), sum(int) FROM packed LEFT JOIN many ON byte = k GROUP BY k, r ORDER BY k, r",
        "SELECT n, sum(int) FROM packed JOIN texts ON byte = k AND name = n WHERE s LIKE '%1%' OR f GROUP BY n ORDER BY n",
        "SELECT count(*), max(w) FROM packed JOIN texts ON byte = k WHERE x < float AND (n IS NULL OR flag <> f)",
        "SELECT count(*) FROM packed t WHERE EXISTS (SELECT 1 FROM many WHERE k = t.byte AND v > t.id)",
        "SELECT count(*), sum(int) FROM packed t WHERE NOT EXISTS (SELECT 1 FROM many WHERE k = t.byte AND v > t.id)",
        "SELECT count(*) FROM packed t WHERE byte IN (SELECT k FROM many)",
        "SELECT name, count(*) FROM packed t WHERE EXISTS (SELECT 1 FROM many m WHERE m.k = t.byte AND m.v <> t.id) \
         AND NOT EXISTS (SELECT 1 FROM tags g WHERE g.k = t.name AND g.p > t.price) GROUP BY name ORDER BY name",
        "SELECT count(*), sum(v) FROM packed JOIN many ON byte = k \
         WHERE NOT EXISTS (SELECT 1 FROM tags g WHERE g.k = name AND g.p > price AND g.tag <> byte % 5)",
    ] {
        fixture.run("SET vectile.fuse = true").await.unwrap();
        let (plan, _) = fixture.executed(sql).await;
        assert_eq!(metric(&plan, "fallbacks"), 0, "{sql}");
        same_without(&fixture, sql).await;
    }
}

/// A query over very many matches ends when it is dropped: its program holds the file no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_matches_can_be_cancelled() {
    let fixture = fixture().await;
    let one = "SELECT 1 AS k, value AS v FROM generate_series(1, 9000)";
    fixture.make("left", one).await;
    fixture.make("right", one).await;
    let sql = "SELECT sum(a.v * b.v - c.v) FROM left a JOIN right b ON a.k = b.k JOIN right c ON a.k = c.k";
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("device=CPU"), "{plan}");
    let frame = fixture.ctx.sql(sql).await.unwrap();
    let run = tokio::time::timeout(std::time::Duration::from_millis(300), frame.collect());
    assert!(run.await.is_err());
    // the runtime waits for blocking tasks when it ends
}

/// A word has a bit for each key that is null.
#[tokio::test]
async fn groups_have_any_number_of_keys() {
    let fixture = fixture().await;
    for count in [64, 65, 70] {
        let columns: Vec<String> = (0..count)
            .map(|column| match column {
                0 => "CASE WHEN value % 3 = 0 THEN NULL ELSE value % 2 = 0 END AS c0".to_owned(),
                _ => format!("(value * {column}) % 5 = 0 AS c{column}"),
            })
            .collect();
        let rows = format!(
            "SELECT {} FROM generate_series(1, 3000)",
            columns.join(", ")
        );
        let name = format!("t{count}");
        fixture.make(&name, &rows).await;
        let keys: Vec<String> = (0..count).map(|column| format!("c{column}")).collect();
        let keys = keys.join(", ");
        let sql = format!("SELECT {keys}, count(*) FROM {name} GROUP BY {keys} ORDER BY {keys}");
        same_without(&fixture, &sql).await;
    }
}

/// Tables large enough that the keys of one side restrict the other, and a part of a plan runs twice.
async fn with_large_tables() -> Fixture {
    let fixture = fixture().await;
    for (table, rows) in [
        (
            "fact",
            "SELECT value % 20000 AS fid, value % 100 AS v FROM generate_series(1, 150000)",
        ),
        (
            "dim",
            "SELECT value AS k, value % 7 AS c FROM generate_series(1, 20000)",
        ),
        (
            "wide",
            "SELECT value % 5000 + 1000 AS id2, value % 9 AS w FROM generate_series(1, 140000)",
        ),
        (
            "cust",
            "SELECT value AS id, value + 1000 AS id2, value % 3 AS c FROM generate_series(1, 5000)",
        ),
        (
            "ord",
            "SELECT value % 6000 AS cid, value % 11 AS x FROM generate_series(1, 30000)",
        ),
    ] {
        fixture.make(table, rows).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_one_side_restrict_the_other() {
    let fixture = with_large_tables().await;
    let some = "(SELECT id, id2 FROM cust WHERE id IN (SELECT cid FROM ord WHERE x > 5)) d";
    let groups = "(SELECT fid, sum(v) AS s FROM fact GROUP BY fid) g";
    for sql in [
        "SELECT count(*), sum(d.c), sum(b.w) FROM fact f JOIN (SELECT * FROM dim WHERE c = 3) d ON f.fid = d.k \
         JOIN wide b ON b.id2 = f.fid"
            .to_owned(),
        format!("SELECT d.id, g.s FROM {some} JOIN {groups} ON d.id2 = g.fid ORDER BY 1"),
        format!(
            "SELECT d.id, g.s FROM (SELECT id, id2 FROM cust JOIN ord ON cid = id AND x = 3 AND cid < 100) d \
             JOIN {groups} ON d.id2 = g.fid ORDER BY 1"
        ),
        format!(
            "SELECT d.id, g.s FROM (SELECT id, id2 FROM cust LEFT JOIN ord ON cid = id AND x = 3) d \
             JOIN {groups} ON d.id2 = g.fid ORDER BY 1, 2"
        ),
        format!(
            "SELECT count(*), sum(d.id), sum(b.w) FROM fact f JOIN {some} ON fid = d.id2 \
             LEFT JOIN (SELECT id2, min(w) AS w FROM wide GROUP BY id2) b ON b.id2 = f.fid"
        ),
        format!(
            "SELECT count(*), sum(g.s) FROM (SELECT id2 FROM cust WHERE c = 1) d LEFT JOIN {groups} ON d.id2 = g.fid"
        ),
        format!(
            "SELECT count(*), sum(d.id2) FROM (SELECT id2 FROM cust WHERE c = 1) d \
             WHERE NOT EXISTS (SELECT 1 FROM {groups} WHERE g.fid = d.id2 AND g.s > 400)"
        ),
        format!(
            "SELECT count(*), sum(d.id2) FROM (SELECT id2 FROM cust WHERE c = 1) d \
             WHERE d.id2 NOT IN (SELECT fid FROM {groups} WHERE g.s > 400)"
        ),
        "SELECT count(*) FROM fact f JOIN (SELECT * FROM dim WHERE c = 3) d ON f.fid = d.k \
         WHERE f.v < 0.5 * (SELECT avg(v) FROM fact g WHERE g.fid = d.k)"
            .to_owned(),
    ] {
        fixture.run("SET vectile.fuse = true").await.unwrap();
        let fused = fixture.answer(&sql).await;
        fixture.run("SET vectile.fuse = false").await.unwrap();
        assert_eq!(fused, fixture.answer(&sql).await, "{sql}");
    }
    fixture.run("SET vectile.fuse = true").await.unwrap();
    let sql = format!("SELECT d.id, g.s FROM {some} JOIN {groups} ON d.id2 = g.fid");
    let plan = fixture.plan(&sql).await;
    assert!(plan.contains("joins=[fid = "), "{plan}");
    // groups may differ from run to run
    let sql = "SELECT count(*) FROM (SELECT c, first_value(id2) AS k FROM cust WHERE id > 7 GROUP BY c) d \
               JOIN (SELECT fid, sum(v) AS s FROM fact GROUP BY fid) g ON d.k = g.fid";
    let plan = fixture.plan(sql).await;
    assert!(!plan.contains("joins=[fid = "), "{plan}");
}

/// A table with several rows for each key, nulls and NaNs, and a small one.
async fn with_pairs() -> Fixture {
    let fixture = fixture().await;
    for (table, rows) in [
        (
            "pairs",
            "SELECT CASE WHEN value % 37 > 0 THEN value / 4 END AS k, \
             CASE WHEN value % 11 > 0 THEN value * value % 5 END AS s, value % 100 AS v, value % 2 AS o, \
             CASE WHEN value % 13 > 0 THEN value * value % 3 ELSE CAST('NaN' AS DOUBLE) END AS f \
             FROM generate_series(1, 150000)",
        ),
        (
            "some",
            "SELECT value AS id, value % 3 AS c FROM generate_series(1, 90)",
        ),
        (
            "returned",
            "SELECT value * 3 AS k FROM generate_series(1, 9000)",
        ),
    ] {
        fixture.make(table, rows).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_few_rows_restrict_what_exists() {
    let fixture = with_pairs().await;
    let outer = "SELECT count(*), sum(a.v), sum(a.k) FROM pairs a JOIN some ON id = a.v AND c = 1 WHERE a.v > 40";
    let others = [
        "b.s <> a.s",
        "a.s > b.s",
        "b.s <> a.s AND b.v % 7 = 3",
        "b.s <> a.s AND b.v < 0",
        "b.s <> a.s AND b.o = a.o",
        "b.f <> a.f",
        "b.f < a.f",
        "b.s <> a.s AND b.v < 10 AND a.o = 1",
    ];
    let exists = others.map(|other| {
        let inner = format!("EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND {other})");
        [
            format!("{outer} AND {inner}"),
            format!("{outer} AND NOT {inner}"),
            format!("{outer} AND ({inner} OR a.o = 1)"),
        ]
    });
    let both = "SELECT x.k FROM pairs x JOIN pairs y ON x.k = y.k AND x.s <> y.s";
    let further = [
        format!("{outer} AND a.k IN ({both})"),
        format!("{outer} AND a.k NOT IN ({both} WHERE x.k > 0)"),
        format!("{outer} AND a.k NOT IN ({both})"),
        format!("{outer} AND a.k IN ({both}) AND a.k IN (SELECT r.k FROM returned r JOIN ({both}) z ON z.k = r.k)"),
        format!("{outer} AND a.k NOT IN (SELECT r.k FROM returned r JOIN ({both}) z ON z.k = r.k)"),
        format!(
            "{outer} AND EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND b.s <> a.s) \
             AND NOT EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND b.s <> a.s AND b.v > 60)"
        ),
        format!(
            "{outer} AND EXISTS (SELECT 1 FROM (SELECT * FROM pairs ORDER BY k, v LIMIT 9000) b \
             WHERE b.k = a.k AND b.s <> a.s)"
        ),
        format!("{outer} AND a.v + random() > 0 AND EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND b.s <> a.s)"),
        format!(
            "{outer} AND a.s > (SELECT min(c) FROM some) \
             AND EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND b.s <> a.s)"
        ),
        "SELECT count(*), sum(a.v), sum(g.m) FROM pairs a JOIN some ON id = a.v AND c = 1 \
         LEFT JOIN (SELECT k, max(s) AS m FROM pairs GROUP BY k) g ON g.k = a.k WHERE a.v > 40"
            .to_owned(),
        "SELECT count(*), sum(a.v) FROM pairs a WHERE a.v = 7 AND a.o = 1 AND a.s = 2 \
         AND CAST(a.k AS INT) IN (SELECT CAST(x.k AS INT) FROM pairs x JOIN pairs y ON x.k = y.k AND x.s < y.s)"
            .to_owned(),
    ];
    // marks of rows without a match in an outer join
    let left =
        "SELECT count(*), sum(a.v), sum(a.k) FROM pairs a LEFT JOIN some ON id = a.v AND id > 50";
    let marked = [
        "id IN (SELECT v FROM pairs WHERE v < 70) OR a.o = 1",
        "c NOT IN (SELECT v FROM pairs WHERE v IS NOT NULL) OR a.o = 1",
        "EXISTS (SELECT 1 FROM pairs b WHERE b.v = id) OR a.o = 1",
        "EXISTS (SELECT 1 FROM pairs b WHERE b.v = id AND b.s > a.s) OR c IS NULL",
        "id IN (SELECT v FROM pairs WHERE v < 70)",
        "EXISTS (SELECT 1 FROM pairs b WHERE b.v = id AND b.s > a.s)",
    ]
    .map(|test| format!("{left} WHERE {test}"));
    for sql in exists.iter().flatten().chain(&further).chain(&marked) {
        fixture.run("SET vectile.fuse = true").await.unwrap();
        let fused = fixture.answer(sql).await;
        fixture.run("SET vectile.fuse = false").await.unwrap();
        assert_eq!(fused, fixture.answer(sql).await, "{sql}");
    }
    fixture.run("SET vectile.fuse = true").await.unwrap();
    for (sql, part) in [
        (&exists[0][0], "joins=[k = k (semi)]"),
        (&exists[0][1], "joins=[k = k (semi)]"),
        (&exists[5][0], "join_type=RightSemi, on=[(k@0, k@"),
        (&further[0], "join_type=RightSemi, on=[(k@0, k@"),
    ] {
        let plan = fixture.plan(sql).await;
        assert!(plan.contains(part), "{plan}");
    }
    // a filter that differs from run to run, and too few filters
    let few = "SELECT count(*) FROM pairs a WHERE a.v > 40 AND EXISTS (SELECT 1 FROM pairs b WHERE b.k = a.k AND b.s <> a.s)";
    for sql in [&further[7][..], few] {
        let plan = fixture.plan(sql).await;
        assert!(!plan.contains("joins=[k = k (semi)]"), "{plan}");
    }
}

/// Row groups whose zone maps show that no row has a match are not read.
#[tokio::test]
async fn keys_of_joins_prune_row_groups() {
    let fixture = fixture().await;
    let rows = "SELECT value AS id, value % 10 AS v FROM generate_series(0, 599999)";
    fixture.make("sorted", rows).await;
    let keys = "SELECT value * 7 AS k FROM generate_series(0, 99)";
    fixture.make("keys", keys).await;
    let sql = "SELECT count(*), sum(v) FROM sorted JOIN keys ON id = k";
    let (plan, _) = fixture.executed(sql).await;
    let pruned = metric(&plan, "row_groups_pruned_dynamic_filter");
    assert!(pruned > 0, "{pruned}");
    same_without(&fixture, sql).await;
    let none = "SELECT count(*), sum(v) FROM sorted JOIN keys ON id = k + 2000000";
    same_without(&fixture, none).await;
}

/// A query that computes the same groups three times.
const SHARED: &str = "WITH g AS (SELECT name, byte, count(*) AS n FROM {t} GROUP BY name, byte) \
                      SELECT a.name, a.n, b.n FROM g a JOIN g b ON a.name = b.name AND a.byte = b.byte + 1 \
                      WHERE a.n >= (SELECT min(n) FROM g) ORDER BY 1, 2, 3 LIMIT 9";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_aggregates_run_once() {
    let fixture = fixture().await;
    let sql = SHARED.replace("{t}", "packed");
    let plan = fixture.plan(&sql).await;
    assert_eq!(
        plan.matches("SharedExec: plan=1, readers=3").count(),
        3,
        "{plan}"
    );
    // the second run has the plan of the first
    for _ in 0..2 {
        fixture.same(SHARED).await;
        let (plan, _) = fixture.executed(&sql).await;
        let rows = metric(&plan, "rows_decoded");
        let (once, _) = fixture
            .executed("SELECT name, byte, count(*) FROM packed GROUP BY name, byte")
            .await;
        assert_eq!(rows, metric(&once, "rows_decoded"));
    }
    for sql in [
        "SELECT count(*), sum(n) FROM (SELECT name, count(*) AS n FROM packed GROUP BY name) g",
        "SELECT a.n, b.n FROM (SELECT name, count(*) AS n FROM packed WHERE id < 5000 GROUP BY name) a \
         JOIN (SELECT name, count(*) AS n FROM packed WHERE id < 5001 GROUP BY name) b ON a.name = b.name",
        "SELECT a.n, b.n FROM (SELECT name, count(*) AS n FROM packed WHERE random() < 2 GROUP BY name) a \
         JOIN (SELECT name, count(*) AS n FROM packed WHERE random() < 2 GROUP BY name) b ON a.name = b.name",
    ] {
        let plan = fixture.plan(sql).await;
        assert!(!plan.contains("SharedExec"), "{plan}");
    }
    fixture.run("SET vectile.fuse = false").await.unwrap();
    assert!(!fixture.plan(&sql).await.contains("SharedExec"));
}
