//! Predicates over text in splits, on the emulated GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vectile_datafusion::Gpu;
use vectile_emulator::CpuDevice;
use vectile_gpu::Engine;

use crate::support::{Fixture, emulator, metric};

async fn fixture() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    fixture.add_tables().await;
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    Some(fixture)
}

/// Each of these has an automaton, so that the whole query is on the GPU.
#[tokio::test]
async fn tests_of_text_are_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for test in [
        "text LIKE '%9%'",
        "text LIKE '%number%77%'",
        "text NOT LIKE '%a%'",
        "text ILIKE '%NUMBER 1%'",
        "text LIKE '____ number%'",
        "starts_with(text, 'a') OR text LIKE '%5' OR text IS NULL",
        "text < 'd' AND text >= 'b'",
        "text IN ('alpha number 1', 'x', '')",
        "text NOT IN ('alpha number 1', 'x', '')",
        "text <> 'alpha number 1'",
        "substr(text, 1, 2) IN ('al', 'be', 'x')",
        "strpos(text, 'number 9') > 0",
        "text IS NOT NULL AND int > 3",
        "length(text) = 20 OR name = 'x'",
        "CASE WHEN text IS NULL THEN int < 3 ELSE int >= 3 END",
        "bytes > 'a'",
    ] {
        let sql =
            format!("SELECT count(*) AS n, sum(big) AS s, min(int) AS m FROM {{t}} WHERE {test}");
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        assert!(plan.contains("FusedAggregateExec"), "{plan}");
        let answer = async |table: &str| fixture.answer(&sql.replace("{t}", table)).await;
        let on_gpu = answer("packed").await;
        assert_eq!(on_gpu, answer("plain").await, "{test}");
        let rows = format!("SELECT id, text, bytes FROM {{t}} WHERE {test} ORDER BY id");
        let rows = async |table: &str| fixture.answer(&rows.replace("{t}", table)).await;
        assert_eq!(rows("packed").await, rows("plain").await, "{test}");
    }
}

/// Nulls of text are known without reading it.
#[tokio::test]
async fn nulls_of_text_are_counted_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for sql in [
        "SELECT count(text), count(bytes), count(*) FROM {t} WHERE int > 3",
        "SELECT name, count(text), sum(CASE WHEN bytes IS NULL THEN int END) FROM {t} GROUP BY 1 ORDER BY 1",
        "SELECT text IS NULL, count(*), count(name) FROM {t} GROUP BY 1 ORDER BY 1",
        "SELECT id, text IS NOT NULL AND bytes IS NOT NULL AS both FROM {t} WHERE int % 5 = 1 ORDER BY id",
        "SELECT text IS NULL AS missing, text, bytes, bytes IS NULL AS other, id FROM {t} WHERE int % 5 = 2 ORDER BY id",
    ] {
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        let is_on_gpu =
            plan.contains("FusedAggregateExec") || plan.contains("gpu=filter and project");
        assert!(is_on_gpu, "{sql}: {plan}");
        fixture.same(sql).await;
    }
}

/// The GPU returns text as the type in the table, regardless of its encoding.
#[tokio::test]
async fn text_is_decoded_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for (columns, test) in [
        ("text", "int > 3"),
        ("id, text, bytes", "text LIKE '%number%77%'"),
        ("text, name, int", "byte = 7 AND bytes IS NULL"),
        ("bytes", "int >= -500"),
        ("name, dict, one", "name IS NULL OR int < 0"),
        ("text", "id = 9999"),
        ("text, text AS again", "id < 0"),
        ("text, bytes", "TRUE"),
    ] {
        let sql = format!("SELECT {columns} FROM {{t}} WHERE {test}");
        if !columns.contains("dict") {
            let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
            assert!(plan.contains("gpu=filter and project on"), "{sql}: {plan}");
        }
        let ordered = format!("SELECT * FROM ({sql}) ORDER BY ALL");
        fixture
            .same(&ordered.replace("ORDER BY ALL", &order(columns)))
            .await;
        let first = format!("SELECT text FROM {{t}} WHERE {test} ORDER BY id LIMIT 20");
        fixture.same(&first).await;
    }
}

/// Orders by all columns.
fn order(columns: &str) -> String {
    let count = columns.split(',').count();
    let positions: Vec<String> = (1..=count).map(|position| position.to_string()).collect();
    format!("ORDER BY {}", positions.join(", "))
}

/// Row groups whose text is in dictionaries, constant, null, in `fsst` and in `plain`.
#[tokio::test]
async fn text_of_several_encodings_is_decoded_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for data_type in [
        "Utf8",
        "LargeUtf8",
        "Utf8View",
        "Binary",
        "LargeBinary",
        "BinaryView",
    ] {
        let kept = format!("kept_{data_type}").to_lowercase();
        let packed = format!("packed_{data_type}").to_lowercase();
        let path = fixture.path(&format!("{packed}.vectile"));
        let sql = [
            format!(
                "CREATE TABLE {kept} AS SELECT value AS id, arrow_cast(CASE value / 2048
                   WHEN 0 THEN concat('key ', value % 5) WHEN 1 THEN 'same' WHEN 2 THEN NULL
                   WHEN 3 THEN CASE WHEN value % 7 > 0 THEN repeat('carefully final ', value % 9) END
                   ELSE md5(CAST(value AS VARCHAR)) END, '{data_type}') AS s
                 FROM range(0, 10500)"
            ),
            format!(
                "COPY {kept} TO '{}' STORED AS VECTILE OPTIONS (row_group_rows 2048)",
                path.display()
            ),
        ];
        for sql in sql {
            fixture.run(&sql).await.unwrap();
        }
        fixture.register(&packed, &path).await;
        for test in [
            "id % 2 = 0 AND id < 20000",
            "id > 5000",
            "id >= 0",
            "s IS NOT NULL",
        ] {
            let answer = async |table: &str| {
                let sql = format!("SELECT s, id FROM {table} WHERE {test} ORDER BY id");
                fixture.answer(&sql).await
            };
            assert_eq!(
                answer(&packed).await,
                answer(&kept).await,
                "{data_type}: {test}"
            );
        }
    }
}

/// Text that is no dictionary gets codes on the GPU.
#[tokio::test]
async fn keys_of_text_are_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let few = "CREATE TABLE few AS SELECT text, max(id) AS n FROM plain WHERE id % 50 = 3
               AND text IS NOT NULL GROUP BY text";
    fixture.run(few).await.unwrap();
    for (columns, sql) in [
        (
            "text, n, s",
            "SELECT text, count(*) AS n, sum(int) AS s FROM {t} GROUP BY text",
        ),
        (
            "text, one, m",
            "SELECT text, one, min(big) AS m FROM {t} WHERE text LIKE '%1%' GROUP BY text, one",
        ),
        (
            "bytes, n",
            "SELECT bytes, count(*) AS n FROM {t} WHERE int > 3 GROUP BY bytes",
        ),
        (
            "text",
            "SELECT DISTINCT text FROM {t} WHERE text < 'b' OR text IS NULL",
        ),
        ("n", "SELECT count(DISTINCT text) AS n FROM {t}"),
        (
            "i, n",
            "SELECT int % 3 AS i, count(DISTINCT text) AS n FROM {t} GROUP BY int % 3",
        ),
        (
            "n, s",
            "SELECT count(*) AS n, sum(int) AS s FROM {t} WHERE text IN (SELECT text FROM few)",
        ),
        (
            "n, s",
            "SELECT few.n, sum(int) AS s FROM {t} JOIN few ON {t}.text = few.text GROUP BY few.n",
        ),
        (
            "text, n, c",
            "SELECT {t}.text, few.n, count(*) AS c FROM {t} LEFT JOIN few ON {t}.text = few.text
             WHERE NOT starts_with({t}.text, 'z') GROUP BY {t}.text, few.n",
        ),
    ] {
        let sql = format!("SELECT * FROM ({sql}) {}", order(columns));
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        assert!(plan.contains("FusedAggregateExec"), "{sql}: {plan}");
        fixture.same(&sql).await;
    }
}

/// Minimum and maximum strings are keys of the kernel.
#[tokio::test]
async fn extremes_of_text_are_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let few = "CREATE TABLE few AS SELECT text, min(name) AS name, max(id) AS n FROM plain
               WHERE id % 50 = 3 AND text IS NOT NULL GROUP BY text";
    fixture.run(few).await.unwrap();
    for sql in [
        "SELECT max(text), count(*), sum(int), min(bytes), avg(byte) FROM {t} WHERE int % 9 = 4",
        "SELECT min(name), max(one), min(text), max(text) FROM {t} WHERE int % 3 > 0",
        "SELECT min(text), count(*) FROM {t} WHERE id < 0",
        "SELECT min(text), count(text), stddev(int) FROM {t} WHERE text IS NULL",
        "SELECT int % 3, min(text), max(name), count(*) FROM {t} GROUP BY 1 ORDER BY 1",
        "SELECT name, min(text), max(name), max(bytes) FROM {t} WHERE id < 0 GROUP BY 1 ORDER BY 1",
        "SELECT text, max(text), min(id) FROM {t} WHERE text LIKE '%1%' GROUP BY 1 ORDER BY 1",
        "SELECT min(text) FILTER (WHERE int > 3), max(upper(text)), count(DISTINCT text) FROM {t}",
        "SELECT min(few.text), max(few.name), max(few.n), min({t}.name) FROM {t} JOIN few ON {t}.text = few.text",
        "SELECT few.n, min({t}.text), max(few.name) FROM {t} JOIN few ON {t}.text = few.text GROUP BY 1 ORDER BY 1",
    ] {
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        assert!(plan.contains("FusedAggregateExec"), "{sql}: {plan}");
        fixture.same(sql).await;
    }
}

/// The error appears when the file shows that its text has no dictionary. Aggregates evaluate the tests as functions.
#[tokio::test]
async fn other_tests_of_text_are_not_on_the_gpu_in_scans() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for filter in ["upper(text) = 'X'", "text = repeat('long', 40)"] {
        let scan = format!("SELECT id FROM packed WHERE {filter}");
        let error = fixture.run(&scan).await.unwrap_err().to_string();
        assert!(error.contains("text is stored as"), "{scan}: {error}");
    }
    let aggregate = "SELECT count(*), sum(int) FROM {t} WHERE NOT (upper(text) = 'X')";
    fixture.same(aggregate).await;
}

/// A predicate over `text`, of up to `depth` levels.
fn predicate(random: &mut Random, depth: u32) -> String {
    let words = [
        "number", "1", "7 ", "al", "ph", "a", "", "er 9", "Beta", "é",
    ];
    let mut word = || words[random.below(words.len())];
    let (one, two, three) = (word(), word(), word());
    let number = random.below(24);
    match random.below(if depth > 0 { 15 } else { 12 }) {
        0 => format!("text LIKE '%{one}%{two}%'"),
        1 => format!("text NOT LIKE '{one}%'"),
        2 => format!("text LIKE '%{one}_{two}'"),
        3 => format!("text ILIKE '%{one}%'"),
        4 => format!("text >= '{one}' AND text < '{two}z'"),
        5 => format!("text IN ('{one}', 'alpha number {number}', '{two}')"),
        6 => format!("substr(text, {}, {}) = '{one}'", number % 7, number % 5),
        7 => format!("left(text, {}) <> '{one}'", number % 5),
        8 => format!("character_length(text) > {number}"),
        9 => format!("strpos(text, '{one}') = 0"),
        10 => format!("starts_with(text, '{one}') OR ends_with(text, '{two}')"),
        11 => format!("contains(text, '{one}') AND text IS NOT NULL"),
        12 => format!("NOT ({})", predicate(random, depth - 1)),
        13 => format!("({}) OR text = '{three}'", predicate(random, depth - 1)),
        _ => {
            let other = predicate(random, depth - 1);
            format!("({}) AND ({other})", predicate(random, depth - 1))
        }
    }
}

/// They share a kernel: automata are its arguments.
#[tokio::test]
async fn random_tests_of_text() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let (mut random, mut on_gpu) = (Random(16), 0);
    for _ in 0..150 {
        let test = predicate(&mut random, 2);
        let answer = async |table: &str| {
            let sql = format!("SELECT count(*) FROM {table} WHERE {test}");
            fixture
                .run(&sql)
                .await
                .map(|batches| format!("{batches:?}"))
        };
        let Ok(actual) = answer("packed").await else {
            continue;
        };
        on_gpu += 1;
        assert_eq!(actual, answer("plain").await.unwrap(), "{test}");
    }
    assert!(on_gpu > 100, "{on_gpu}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

/// The CPU compresses until the kernel is compiled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_that_compresses_is_compiled_in_the_background() {
    let Ok(device) = CpuDevice::new() else {
        return eprintln!("skipped: no C++ compiler");
    };
    let kernels = tempfile::tempdir().unwrap();
    let engine = Engine::new(Arc::new(device.with_cache(kernels.path())));
    let fixture = Fixture::on(Gpu::new(engine));
    let begun = Instant::now();
    let mut by_cpu = 0;
    loop {
        let path = fixture.path(&format!("{by_cpu}.vectile"));
        let copy = format!(
            "COPY (SELECT concat('comment ', value * 7919 % 10000, ' of special requests') AS text FROM range(20000))
             TO '{}' OPTIONS ('encoding.text' 'onpair')",
            path.display()
        );
        let (plan, _) = fixture.executed(&copy).await;
        if metric(&plan, "text_bytes_compressed_on_gpu") > 0 {
            break;
        }
        by_cpu += 1;
        assert!(begun.elapsed() < Duration::from_secs(120));
    }
    assert!(by_cpu > 0, "nothing waits for the compiler");
}

/// The CPU reads what the GPU compresses; `auto` opens no device for so little text, but uses one that is open.
#[tokio::test]
async fn text_is_compressed_on_the_gpu() {
    let Some(engine) = emulator() else { return };
    let fixture = Fixture::on(Gpu::later(move || Ok(Arc::clone(&engine))));
    let rows = "SELECT value AS id, CASE WHEN value % 7 > 0 THEN
        concat('comment ', value * 7919 % 10000, ' of special requests ', value % 97) END AS text FROM range(20000)";
    let write = async |name: &str, encoding: &str, gpu: &str| {
        let set = format!("SET vectile.gpu = '{gpu}'");
        fixture.run(&set).await.unwrap();
        let path = fixture.path(&format!("{name}.vectile"));
        let copy = format!(
            "COPY ({rows}) TO '{}' OPTIONS ('encoding.text' '{encoding}')",
            path.display()
        );
        let (plan, _) = fixture.executed(&copy).await;
        fixture.register(name, &path).await;
        let bytes = path.metadata().unwrap().len();
        (
            bytes,
            metric(&plan, "text_bytes_compressed_on_gpu") > 500_000,
        )
    };
    assert!(
        !write("at_first", "fsst", "auto").await.1,
        "the device is not open"
    );
    for encoding in ["fsst", "onpair"] {
        let name = |gpu: &str| format!("{encoding}_{gpu}");
        let (own, by_gpu) = write(&name("off"), encoding, "off").await;
        assert!(!by_gpu);
        for gpu in ["on", "auto"] {
            let (bytes, by_gpu) = write(&name(gpu), encoding, gpu).await;
            // codes of `fsst` do not cross strings where lanes meet: of a small file that is some 3%
            assert!(
                by_gpu && bytes <= own * 104 / 100,
                "{encoding}, {gpu}: {bytes}, {own}"
            );
            fixture.run("SET vectile.gpu = 'off'").await.unwrap();
            let all = format!("SELECT * FROM {} ORDER BY id", name(gpu));
            let expected = format!("{rows} ORDER BY id");
            assert_eq!(fixture.answer(&all).await, fixture.answer(&expected).await);
        }
    }
}
