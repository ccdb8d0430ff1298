//! Tables of Parquet files that Vectile's scans read, compared with DataFusion's reader of the same files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::Result;
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use vectile_datafusion::{physical_plan, register};

use crate::plan_cache::count_plans;
use crate::support::{Fixture, ROW_GROUP_ROWS, ROWS, metric, table};

/// Queries of the columns of [`table`].
const QUERIES: [&str; 22] = [
    "SELECT * FROM {t} ORDER BY id",
    "SELECT count(*), count(int), sum(int), min(big), max(big), count(DISTINCT byte) FROM {t}",
    "SELECT id, name FROM {t} WHERE id BETWEEN 4090 AND 4100 ORDER BY id",
    "SELECT id FROM {t} WHERE name = 'apple' AND int > 100 ORDER BY id",
    "SELECT id FROM {t} WHERE name IN ('élan', '') ORDER BY id LIMIT 20",
    "SELECT count(*) FROM {t} WHERE name IS NULL OR text LIKE '%9%'",
    "SELECT count(*) FROM {t} WHERE float > 1e9",
    "SELECT count(*) FROM {t} WHERE float = 0.0",
    "SELECT count(*) FROM {t} WHERE float IS NOT NULL AND float <> float",
    "SELECT id, float FROM {t} ORDER BY float DESC NULLS LAST, id LIMIT 30",
    "SELECT flag, count(*), sum(price), avg(price) FROM {t} GROUP BY flag ORDER BY flag",
    "SELECT name, count(*), min(text), max(bytes) FROM {t} GROUP BY name ORDER BY name",
    "SELECT date, sum(price) FROM {t} WHERE date < DATE '2011-02-01' GROUP BY date ORDER BY date",
    "SELECT max(time), min(time) FROM {t} WHERE time >= TIMESTAMP '2023-11-14T22:13:25'",
    "SELECT dict, count(*) FROM {t} WHERE dict >= 'b' GROUP BY dict ORDER BY dict",
    "SELECT count(*) FROM {t} WHERE big = 9223372036854775807 OR big < 0",
    "SELECT nested['y'], count(*) FROM {t} GROUP BY 1 ORDER BY 1",
    "SELECT id, list, nested FROM {t} WHERE nested['x'] > 490 ORDER BY id",
    "SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.byte WHERE b.int < 0",
    "SELECT count(void), count(*), min(one), max(one) FROM {t}",
    "SELECT id FROM {t} WHERE bytes = X'0102' OR bytes IS NULL ORDER BY id LIMIT 9",
    "SELECT count(*) FROM {t} WHERE id < -1",
];

/// A session with [`table`] in the Parquet file of the table `t`, written with `options`; text is in views, or not.
async fn fixture(has_views: bool, options: &str) -> Fixture {
    let config = SessionConfig::new().with_target_partitions(2).set_bool(
        "datafusion.execution.parquet.schema_force_view_types",
        has_views,
    );
    with_table(Fixture::with_config(config), options).await
}

/// Adds [`table`] as `plain` in memory, and in the Parquet file of the table `t`.
async fn with_table(fixture: Fixture, options: &str) -> Fixture {
    fixture.ctx.register_batch("plain", table()).unwrap();
    write(&fixture, "SELECT * FROM plain", options).await;
    let path = fixture.path("t.parquet");
    let read = ParquetReadOptions::default();
    let (ctx, path) = (&fixture.ctx, path.to_str().unwrap());
    ctx.register_parquet("t", path, read).await.unwrap();
    fixture
}

/// Row groups of that file.
const ROW_GROUPS: usize = ROWS.div_ceil(ROW_GROUP_ROWS);

async fn write(fixture: &Fixture, query: &str, options: &str) {
    let path = fixture.path("t.parquet");
    let sql = format!(
        "COPY ({query}) TO '{}' STORED AS PARQUET OPTIONS (max_row_group_size {ROW_GROUP_ROWS}{options})",
        path.display()
    );
    fixture.run(&sql).await.unwrap();
}

async fn set(ctx: &SessionContext, setting: &str) {
    let sql = format!("SET vectile.{setting}");
    ctx.sql(&sql).await.unwrap().collect().await.unwrap();
}

async fn answer(ctx: &SessionContext, sql: &str) -> Result<RecordBatch> {
    let frame = ctx.sql(&sql.replace("{t}", "t")).await?;
    let schema: SchemaRef = Arc::clone(frame.schema().inner());
    Ok(concat_batches(&schema, &frame.collect().await?)?)
}

#[tokio::test]
async fn answers_are_those_of_datafusion() {
    let options = [
        "",
        ", compression 'snappy', writer_version '2.0'",
        ", dictionary_enabled false, compression 'zstd(3)'",
        ", compression 'lz4_raw', statistics_enabled 'page', bloom_filter_on_write true",
    ];
    for (has_views, options) in [true, false]
        .into_iter()
        .flat_map(|v| options.map(|o| (v, o)))
    {
        let fixture = fixture(has_views, options).await;
        for sql in QUERIES {
            set(&fixture.ctx, "parquet = off").await;
            let theirs = answer(&fixture.ctx, sql).await.unwrap();
            set(&fixture.ctx, "parquet = on").await;
            for fuse in ["off", "on"] {
                set(&fixture.ctx, &format!("fuse = {fuse}")).await;
                for run in ["first", "second"] {
                    let ours = answer(&fixture.ctx, sql).await;
                    let ours = ours.unwrap_or_else(|error| panic!("{sql} ({options}): {error}"));
                    assert_eq!(
                        ours, theirs,
                        "{sql} ({options}, views {has_views}, {run}, {fuse})"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn scans_are_ours_if_the_setting_says_so() {
    let fixture = fixture(true, "").await;
    let sql = "SELECT id FROM t WHERE name = 'apple' AND id < 100";
    let theirs = fixture.plan(sql).await;
    assert!(theirs.contains("FilterExec"), "{theirs}");
    set(&fixture.ctx, "parquet = on").await;
    let ours = fixture.plan(sql).await;
    assert!(
        ours.contains("file_type=parquet") && !ours.contains("FilterExec"),
        "{ours}"
    );
    let (plan, rows) = fixture.executed(sql).await;
    assert!(rows > 0);
    // the others have larger numbers
    assert_eq!(metric(&plan, "row_groups_pruned_statistics"), 2, "{ours}");
    set(&fixture.ctx, "parquet = default").await;
    assert_eq!(fixture.plan(sql).await, theirs);
    let wrong = fixture.run("SET vectile.parquet = 'some'").await;
    assert!(wrong.unwrap_err().to_string().contains("vectile.parquet"));
}

#[tokio::test]
async fn aggregates_are_fused() {
    let fixture = fixture(true, "").await;
    set(&fixture.ctx, "parquet = on").await;
    set(&fixture.ctx, "fuse = on").await;
    let sql = "SELECT name, sum(int), count(*) FROM t WHERE id > 10 GROUP BY name";
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("Fused"), "{plan}");
}

#[tokio::test]
async fn columns_stay_in_memory_whoever_reads_the_file_in_between() {
    let fixture = fixture(true, "").await;
    let sql = "SELECT sum(int), max(name) FROM t";
    let mut read = Vec::new();
    for mode in ["on", "off", "on", "off", "on"] {
        set(&fixture.ctx, &format!("parquet = {mode}")).await;
        let (plan, _) = fixture.executed(sql).await;
        if mode == "on" {
            read.push(metric(&plan, "bytes_scanned"));
        }
    }
    assert!(read[0] > 0);
    assert_eq!(read[1..], [0, 0], "{read:?}");
}

#[tokio::test]
async fn new_files_are_read_anew() {
    let fixture = fixture(true, "").await;
    set(&fixture.ctx, "parquet = on").await;
    let sql = "SELECT count(*), sum(id) FROM t WHERE id >= 0";
    let before = answer(&fixture.ctx, sql).await.unwrap();
    std::fs::remove_file(fixture.path("t.parquet")).unwrap();
    write(&fixture, "SELECT * FROM plain WHERE id < 5000", "").await;
    let after = answer(&fixture.ctx, sql).await.unwrap();
    assert_ne!(before, after);
    set(&fixture.ctx, "parquet = off").await;
    assert_eq!(answer(&fixture.ctx, sql).await.unwrap(), after);
}

#[tokio::test]
async fn plans_are_kept() {
    let fixture = fixture(true, "").await;
    let count = count_plans(&fixture.ctx);
    let plans = async |mode: &str| {
        set(&fixture.ctx, &format!("parquet = {mode}")).await;
        let mut rows = Vec::new();
        let before = count.load(Ordering::Relaxed);
        for _ in 0..3 {
            let frame = fixture
                .ctx
                .sql("SELECT sum(id) FROM t WHERE int > 5")
                .await
                .unwrap();
            let (state, query) = frame.into_parts();
            let plan = physical_plan(&state, &query).await.unwrap();
            rows.push(collect(plan, state.task_ctx()).await.unwrap());
        }
        assert_eq!((&rows[1], &rows[2]), (&rows[0], &rows[0]));
        (count.load(Ordering::Relaxed) - before, rows)
    };
    let (theirs, rows) = plans("off").await;
    let (ours, same) = plans("on").await;
    assert_eq!((theirs, ours), (3, 1));
    assert_eq!(rows, same);
}

#[tokio::test]
async fn folders_with_partitions_and_other_schemas_are_read() {
    let fixture = Fixture::empty();
    for (folder, query) in [
        ("year=1", "SELECT 1 AS a, 'x' AS b"),
        ("year=2", "SELECT CAST(2 AS BIGINT) AS a"),
        ("year=3", "SELECT 'y' AS b, CAST(3 AS SMALLINT) AS a"),
    ] {
        let path = fixture.path(folder).join("0.parquet");
        let copy = format!("COPY ({query}) TO '{}' STORED AS PARQUET", path.display());
        fixture.run(&copy).await.unwrap();
    }
    let create = format!(
        "CREATE EXTERNAL TABLE t (a BIGINT, b VARCHAR, year INT) STORED AS PARQUET
         PARTITIONED BY (year) LOCATION '{}/'",
        fixture.dir.path().display()
    );
    fixture.run(&create).await.unwrap();
    for sql in [
        "SELECT * FROM t ORDER BY a",
        "SELECT b, a FROM t WHERE year > 1 ORDER BY a",
        "SELECT count(*) FROM t WHERE b IS NULL",
        "SELECT year, sum(a) FROM t WHERE a > 1 GROUP BY year ORDER BY year",
    ] {
        set(&fixture.ctx, "parquet = off").await;
        let theirs = answer(&fixture.ctx, sql).await.unwrap();
        set(&fixture.ctx, "parquet = on").await;
        assert_eq!(answer(&fixture.ctx, sql).await.unwrap(), theirs, "{sql}");
    }
}

/// Scans with options that change the types of columns or distrust statistics stay with DataFusion's reader.
#[tokio::test]
async fn scans_with_options_of_datafusion_stay_its_own() {
    let fixture = fixture(true, "").await;
    set(&fixture.ctx, "parquet = on").await;
    let path = fixture.path("t.parquet");
    let url = ListingTableUrl::parse(path.to_str().unwrap()).unwrap();
    for (is_own, format) in [
        (false, ParquetFormat::default()),
        (true, ParquetFormat::default().with_enable_pruning(false)),
        (true, ParquetFormat::default().with_binary_as_string(true)),
        (
            true,
            ParquetFormat::default().with_coerce_int96(Some("us".into())),
        ),
    ] {
        let options = ListingOptions::new(Arc::new(format));
        let config = ListingTableConfig::new(url.clone()).with_listing_options(options);
        let config = config.infer_schema(&fixture.ctx.state()).await.unwrap();
        let other = Arc::new(ListingTable::try_new(config).unwrap());
        fixture.ctx.deregister_table("other").unwrap();
        fixture.ctx.register_table("other", other).unwrap();
        let plan = fixture.plan("SELECT id FROM other WHERE int > 7").await;
        assert_eq!(plan.contains("FilterExec"), is_own, "{plan}");
    }
}

#[tokio::test]
async fn damaged_files_are_errors_that_name_them() {
    let fixture = fixture(true, "").await;
    set(&fixture.ctx, "parquet = on").await;
    let path = fixture.path("t.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in &mut bytes[4..20_000] {
        *byte = 0x5a;
    }
    std::fs::write(&path, bytes).unwrap();
    let error = answer(&fixture.ctx, "SELECT sum(id), sum(int) FROM t").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("t.parquet"), "{error}");
}

/// A row group may have more values than such keys can number, and is decoded at once.
#[tokio::test]
async fn dictionaries_with_short_keys_stay_with_datafusion() {
    let fixture = Fixture::empty();
    let path = fixture.path("t.parquet");
    let path = path.display();
    let names = "SELECT arrow_cast(concat('n', value), 'Dictionary(UInt8, Utf8)') AS n
                 FROM generate_series(1, 200)";
    for sql in [
        format!("COPY ({names}) TO '{path}' STORED AS PARQUET"),
        format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{path}'"),
    ] {
        fixture.run(&sql).await.unwrap();
    }
    set(&fixture.ctx, "parquet = on").await;
    let sql = "SELECT n FROM t WHERE n = 'n7'";
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("FilterExec"), "{plan}");
    assert_eq!(answer(&fixture.ctx, sql).await.unwrap().num_rows(), 1);
}

/// Pages of every codec and encoding that devices know, with and without nulls.
#[tokio::test]
async fn a_device_decodes_pages() {
    let queries = [
        (
            "SELECT count(*), sum(id), min(date), max(date), sum(byte), min(byte), sum(price), min(price) FROM {t}",
            4,
        ),
        (
            "SELECT count(int), sum(int), count(big), min(big), max(big), count(time), max(time) FROM {t}",
            3,
        ),
        (
            "SELECT flag, count(float), min(float) FILTER (WHERE float BETWEEN 1.5 AND 40) FROM {t}
             GROUP BY flag ORDER BY flag",
            2,
        ),
        (
            "SELECT name, one, count(*) FROM {t} GROUP BY name, one ORDER BY name, one",
            2,
        ),
    ];
    let options = [
        ("compression 'uncompressed'", true),
        ("compression 'snappy'", true),
        (
            "compression 'gzip(4)', dictionary_page_size_limit 300",
            true,
        ),
        (
            "compression 'zstd(3)', data_page_row_count_limit 700, write_batch_size 100",
            true,
        ),
        ("compression 'lz4_raw', writer_version '2.0'", true),
        (
            "compression 'snappy', writer_version '2.0', dictionary_enabled false",
            false,
        ),
        (
            "compression 'snappy', dictionary_enabled false, data_page_row_count_limit 900",
            false,
        ),
        (
            "compression 'gzip(4)', writer_version '2.0', data_page_row_count_limit 900",
            true,
        ),
        (
            "compression 'snappy', dictionary_enabled false, 'encoding::price' 'byte_stream_split',
             'encoding::id' 'delta_binary_packed', 'encoding::float' 'byte_stream_split',
             'encoding::date' 'byte_stream_split', 'encoding::flag' 'rle'",
            false,
        ),
    ];
    for (options, has_dictionaries) in options {
        let Some(fixture) = Fixture::on_emulator() else {
            return;
        };
        let fixture = with_table(fixture, &format!(", {options}")).await;
        for (sql, columns) in queries {
            set(&fixture.ctx, "parquet = off").await;
            set(&fixture.ctx, "gpu = 'off'").await;
            let theirs = answer(&fixture.ctx, sql).await.unwrap();
            set(&fixture.ctx, "parquet = on").await;
            set(&fixture.ctx, "gpu = 'require'").await;
            let (plan, _) = fixture.executed(&sql.replace("{t}", "t")).await;
            assert_eq!(metric(&plan, "fallbacks"), 0, "{sql} ({options})");
            let is_text = sql.contains("name");
            let expected = if is_text && !has_dictionaries {
                0
            } else {
                columns
            };
            let decoded = metric(&plan, "columns_decoded_on_gpu");
            assert_eq!(decoded, expected * ROW_GROUPS, "{sql} ({options})");
            let ours = answer(&fixture.ctx, sql).await;
            let ours = ours.unwrap_or_else(|error| panic!("{sql} ({options}): {error}"));
            assert_eq!(ours, theirs, "{sql} ({options})");
        }
    }
}

/// Without `register`, there is no setting and no scan of ours.
#[tokio::test]
async fn other_sessions_are_as_before() {
    let ctx = SessionContext::new();
    assert!(ctx.sql("SET vectile.parquet = on").await.is_err());
    register(&ctx).unwrap();
    set(&ctx, "parquet = on").await;
}
