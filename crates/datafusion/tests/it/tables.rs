//! Files, directories, globs, partitioned trees, object stores; schemas that change.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use vectile_datafusion::{
    VectileReadOptions, VectileSessionContextExt, VectileSessionStateBuilderExt,
};

use crate::support::{Fixture, ROWS, metric};

#[tokio::test]
async fn a_file_in_sql() {
    let fixture = Fixture::new().await;
    let path = fixture.path("packed.vectile");
    fixture
        .run(&format!(
            "CREATE EXTERNAL TABLE t STORED AS VECTILE LOCATION '{}'",
            path.display()
        ))
        .await
        .unwrap();
    let batches = fixture
        .run("SELECT count(*) FROM t WHERE id < 10")
        .await
        .unwrap();
    assert_eq!(batches.len(), 1);
    let text = fixture
        .answer("SELECT count(*) AS n FROM t WHERE id < 10")
        .await;
    assert!(text.contains("| 10 |"), "{text}");
}

#[tokio::test]
async fn a_session_state_that_is_built() {
    let state = SessionStateBuilder::new_with_default_features()
        .with_vectile()
        .build();
    let ctx = SessionContext::new_with_state(state);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.vectile");
    let copy = format!(
        "COPY (VALUES (1), (2)) TO '{}' STORED AS VECTILE",
        path.display()
    );
    ctx.sql(&copy).await.unwrap().collect().await.unwrap();
    let frame = ctx
        .read_vectile(path.to_str().unwrap(), VectileReadOptions::default())
        .await
        .unwrap();
    assert_eq!(frame.count().await.unwrap(), 2);
    ctx.sql("SET vectile.row_group_rows = 100").await.unwrap();
}

#[tokio::test]
async fn a_directory_and_a_glob() {
    let fixture = Fixture::empty();
    for part in ["a1", "a2", "b1"] {
        let path = fixture.path(&format!("{part}.vectile"));
        let sql = format!(
            "COPY (SELECT '{part}' AS part, value FROM range(100)) TO '{}' STORED AS VECTILE",
            path.display()
        );
        fixture.run(&sql).await.unwrap();
    }
    std::fs::write(fixture.path("notes.txt"), "not a table").unwrap();
    let dir = fixture.dir.path().display().to_string();
    for (name, location, rows) in [
        ("d", format!("{dir}/"), 300),
        ("g", format!("{dir}/a*.vectile"), 200),
    ] {
        let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS VECTILE LOCATION '{location}'");
        fixture.run(&sql).await.unwrap();
        let (_, count) = fixture
            .executed(&format!("SELECT part, value FROM {name}"))
            .await;
        assert_eq!(count, rows, "{location}");
    }
    // Each file has one value of `part`: statistics rule out two of three, without opening them.
    let (plan, count) = fixture
        .executed("SELECT value FROM d WHERE part = 'a2'")
        .await;
    assert_eq!(count, 100);
    assert!(metric(&plan, "bytes_cached") > 0);
}

#[tokio::test]
async fn a_partitioned_tree() {
    let fixture = Fixture::new().await;
    let dir = fixture.path("tree");
    let sql = format!(
        "COPY (SELECT id, name, byte % 4 AS bucket FROM plain) TO '{}/' STORED AS VECTILE PARTITIONED BY (bucket)",
        dir.display()
    );
    fixture.run(&sql).await.unwrap();
    assert!(dir.join("bucket=3").is_dir());
    let sql = format!(
        "CREATE EXTERNAL TABLE tree (id BIGINT, name VARCHAR, bucket INT) STORED AS VECTILE PARTITIONED BY (bucket) LOCATION '{}/'",
        dir.display()
    );
    fixture.run(&sql).await.unwrap();
    let expected = fixture.answer("SELECT byte % 4 AS bucket, count(*) AS n, min(id) AS i, max(name) AS m FROM plain GROUP BY 1 ORDER BY 1").await;
    let actual = fixture.answer("SELECT bucket, count(*) AS n, min(id) AS i, max(name) AS m FROM tree GROUP BY 1 ORDER BY 1").await;
    let body = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&expected), body(&actual));
    let text = fixture
        .answer("SELECT count(*) AS n, min(bucket) AS b FROM tree WHERE bucket = 2 AND id > 5000")
        .await;
    let expected = fixture
        .answer(
            "SELECT count(*) AS n, min(byte % 4) AS b FROM plain WHERE byte % 4 = 2 AND id > 5000",
        )
        .await;
    assert_eq!(body(&text), body(&expected));
    let (_, rows) = fixture
        .executed("SELECT bucket FROM tree WHERE bucket + id > 9000 AND name = 'apple'")
        .await;
    let (_, expected) = fixture
        .executed("SELECT id FROM plain WHERE byte % 4 + id > 9000 AND name = 'apple'")
        .await;
    assert_eq!(rows, expected);

    let options = VectileReadOptions::default()
        .with_table_partition_cols(vec![("bucket".to_owned(), DataType::Int32)]);
    fixture
        .ctx
        .register_vectile("again", dir.to_str().unwrap(), options)
        .await
        .unwrap();
    assert_eq!(fixture.executed("SELECT * FROM again").await.1, ROWS);
}

#[tokio::test]
async fn partitions_of_nulls_and_of_other_texts() {
    let fixture = Fixture::new().await;
    let path = fixture.path("tree").to_str().unwrap().to_owned();
    let rows = "(VALUES (1, 7, 'x/y'), (2, NULL, NULL), (3, 0, '')) AS v(n, p, q)";
    let copy =
        format!("COPY (SELECT * FROM {rows}) TO '{path}/' STORED AS VECTILE PARTITIONED BY (p, q)");
    fixture.run(&copy).await.unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE tree (n BIGINT, p INT, q VARCHAR) STORED AS VECTILE
         PARTITIONED BY (p, q) LOCATION '{path}/'"
    );
    fixture.run(&create).await.unwrap();
    let partitions = [("p", DataType::Int32), ("q", DataType::Utf8)];
    let partitions = partitions.map(|(name, data_type)| (name.to_owned(), data_type));
    let options = VectileReadOptions::default().with_table_partition_cols(partitions.to_vec());
    let registered = fixture.ctx.register_vectile("again", &path, options).await;
    registered.unwrap();
    for table in ["tree", "again"] {
        for query in [
            "SELECT n, p, q FROM t ORDER BY n",
            "SELECT count(*) AS n, count(p) AS p, count(q) AS q, min(p) AS least FROM t",
            "SELECT n FROM t WHERE p IS NULL",
            "SELECT n FROM t WHERE NOT q = 'x/y'",
            "SELECT n FROM t WHERE q = 'x/y' AND p > 1",
            "SELECT n FROM t WHERE p + n > 3 OR q IS NULL ORDER BY n",
            "SELECT a.n FROM t a JOIN t b ON a.p = b.p ORDER BY a.n",
        ] {
            let of = |source: &str| format!("WITH t AS (SELECT * FROM {source}) {query}");
            let expected = fixture.answer(&of(rows)).await;
            assert_eq!(
                fixture.answer(&of(table)).await,
                expected,
                "{table}: {query}"
            );
        }
    }
}

#[tokio::test]
async fn an_object_store() {
    let fixture = Fixture::new().await;
    let url = ListingTableUrl::parse("memory://bucket/").unwrap();
    fixture
        .ctx
        .register_object_store(url.as_ref(), Arc::new(InMemory::new()));
    fixture
        .run("COPY (SELECT id, name FROM plain) TO 'memory://bucket/dir/t.vectile' STORED AS VECTILE OPTIONS (row_group_rows 2048)")
        .await
        .unwrap();
    fixture
        .run("CREATE EXTERNAL TABLE remote STORED AS VECTILE LOCATION 'memory://bucket/dir/t.vectile'")
        .await
        .unwrap();
    let expected = fixture
        .answer("SELECT name, count(*) AS n FROM plain WHERE id > 3000 GROUP BY name ORDER BY name")
        .await;
    let actual = fixture
        .answer(
            "SELECT name, count(*) AS n FROM remote WHERE id > 3000 GROUP BY name ORDER BY name",
        )
        .await;
    assert_eq!(expected, actual);
}

#[tokio::test]
async fn files_whose_schemas_differ() {
    let fixture = Fixture::empty();
    for (file, query) in [
        (
            "1",
            "SELECT arrow_cast(value, 'Int32') AS a, 'x' || value AS b FROM range(5)",
        ),
        (
            "2",
            "SELECT 'y' || value AS b, value * 1.5 AS c, arrow_cast(value + 100, 'Int32') AS a FROM range(5)",
        ),
        (
            "3",
            "SELECT arrow_cast(value + 200, 'Int32') AS a FROM range(5)",
        ),
    ] {
        let path = fixture.path(&format!("{file}.vectile"));
        fixture
            .run(&format!(
                "COPY ({query}) TO '{}' STORED AS VECTILE",
                path.display()
            ))
            .await
            .unwrap();
    }
    let dir = fixture.dir.path().display().to_string();
    fixture
        .run(&format!(
            "CREATE EXTERNAL TABLE t STORED AS VECTILE LOCATION '{dir}/'"
        ))
        .await
        .unwrap();
    assert_eq!(fixture.executed("SELECT a, b, c FROM t").await.1, 15);
    assert_eq!(
        fixture.executed("SELECT a FROM t WHERE b IS NULL").await.1,
        5
    );
    assert_eq!(
        fixture
            .executed("SELECT b FROM t WHERE c IS NULL AND a < 3")
            .await
            .1,
        3
    );
    assert_eq!(fixture.executed("SELECT c FROM t WHERE c > 4").await.1, 2);
    assert_eq!(
        fixture
            .executed("SELECT c FROM t WHERE coalesce(b, 'none') = 'none'")
            .await
            .1,
        5
    );
    let text = fixture
        .answer("SELECT count(b) AS b, count(c) AS c, sum(a) AS a FROM t")
        .await;
    assert!(text.contains("| 10 | 5 | 1530 |"), "{text}");

    // Declared wider than it was written: read with casts, filtered on the encoded form.
    let sql = format!(
        "CREATE EXTERNAL TABLE wide (a BIGINT, b VARCHAR, d DOUBLE) STORED AS VECTILE LOCATION '{dir}/'"
    );
    fixture.run(&sql).await.unwrap();
    assert_eq!(
        fixture
            .executed("SELECT a, d FROM wide WHERE a BETWEEN 3 AND 101")
            .await
            .1,
        4
    );
    assert_eq!(
        fixture
            .executed("SELECT a FROM wide WHERE a > 5000000000")
            .await
            .1,
        0
    );
    assert_eq!(
        fixture
            .executed("SELECT a FROM wide WHERE d IS NULL")
            .await
            .1,
        15
    );
    let text = fixture
        .answer("SELECT min(a) AS low, max(a) AS high FROM wide")
        .await;
    assert!(text.contains("| 0   | 204  |"), "{text}");
}

#[tokio::test]
async fn files_whose_types_differ() {
    let fixture = Fixture::empty();
    let dir = fixture.dir.path().display().to_string();
    for (file, integer, text) in [
        ("1", "Int32", "Utf8"),
        ("2", "Int64", "Utf8View"),
        ("3", "Int8", "LargeUtf8"),
    ] {
        let sql = format!(
            "COPY (SELECT arrow_cast(value, '{integer}') AS a, arrow_cast('x' || value, '{text}') AS b
             FROM range(100)) TO '{dir}/{file}.vectile' STORED AS VECTILE"
        );
        fixture.run(&sql).await.unwrap();
    }
    let sql = format!("CREATE EXTERNAL TABLE t STORED AS VECTILE LOCATION '{dir}/'");
    fixture.run(&sql).await.unwrap();
    let text = fixture
        .answer("SELECT DISTINCT arrow_typeof(a) AS a, arrow_typeof(b) AS b FROM t")
        .await;
    assert!(text.contains("| Int64 | LargeUtf8 |"), "{text}");
    for filter in [
        "a BETWEEN 10 AND 19",
        "b LIKE 'x1_'",
        "a + 1 > 10 AND b < 'x2' AND a < 20",
    ] {
        let rows = fixture
            .executed(&format!("SELECT a, b FROM t WHERE {filter}"))
            .await
            .1;
        assert_eq!(rows, 30, "{filter}");
    }
    let text = fixture
        .answer("SELECT min(a) AS l, max(b) AS h, sum(a) AS s, count(*) AS n FROM t")
        .await;
    assert!(text.contains("| 0 | x99 | 14850 | 300 |"), "{text}");
    assert_eq!(
        fixture.executed("SELECT a FROM t GROUP BY a, b").await.1,
        100
    );

    let sql = format!("COPY (SELECT 1.5 AS a) TO '{dir}/4.vectile' STORED AS VECTILE;");
    fixture.run(&sql).await.unwrap();
    let sql = format!("CREATE EXTERNAL TABLE u STORED AS VECTILE LOCATION '{dir}/'");
    let error = fixture.run(&sql).await.unwrap_err().to_string();
    assert!(
        error.contains("column a is Float64 in") && error.contains("4.vectile and Int64 in"),
        "{error}"
    );
}

/// DataFusion takes the groups of all sets for sorted, as the rows are.
#[tokio::test]
async fn grouping_sets_of_sorted_rows_are_whole() {
    let fixture = Fixture::new().await;
    let path = fixture.path("ordered.vectile");
    let path = path.display();
    for sql in [
        format!(
            "COPY (SELECT value % 3 AS kind, value % 4 AS region, value AS id FROM generate_series(0, 5999) \
             ORDER BY kind, region, id) TO '{path}' STORED AS VECTILE"
        ),
        format!(
            "CREATE EXTERNAL TABLE ordered STORED AS VECTILE WITH ORDER (kind, region, id) LOCATION '{path}'"
        ),
        "SET datafusion.optimizer.prefer_existing_sort = true".into(),
        "SET datafusion.execution.batch_size = 11".into(),
        "SET datafusion.execution.target_partitions = 2".into(),
        "SET vectile.fuse = off".into(),
    ] {
        fixture.run(&sql).await.unwrap();
    }
    let sql = "SELECT count(*), max(n) FROM (SELECT kind, region, count(*) AS n FROM ordered GROUP BY ROLLUP (kind, region)) g";
    let answer = fixture.answer(sql).await;
    assert!(answer.contains("16") && answer.contains("6000"), "{answer}");
}

#[tokio::test]
async fn declared_order_saves_the_sort() {
    let fixture = Fixture::new().await;
    let path = fixture.path("packed.vectile");
    let sql = format!(
        "CREATE EXTERNAL TABLE sorted STORED AS VECTILE WITH ORDER (id ASC) LOCATION '{}'",
        path.display()
    );
    fixture.run(&sql).await.unwrap();
    let plan = fixture
        .plan("SELECT id FROM sorted WHERE int > 5 ORDER BY id")
        .await;
    assert!(!plan.contains("SortExec"), "{plan}");
    let (_, rows) = fixture
        .executed("SELECT id FROM sorted ORDER BY id LIMIT 12")
        .await;
    assert_eq!(rows, 12);
    let actual = fixture
        .answer("SELECT id FROM sorted WHERE int > 490 ORDER BY id")
        .await;
    assert_eq!(
        actual,
        fixture
            .answer("SELECT id FROM plain WHERE int > 490 ORDER BY id")
            .await
    );
    let actual = fixture
        .answer("SELECT id FROM sorted ORDER BY id DESC LIMIT 3")
        .await;
    assert_eq!(
        actual,
        fixture
            .answer("SELECT id FROM plain ORDER BY id DESC LIMIT 3")
            .await
    );
}

#[tokio::test]
async fn a_file_is_split_by_row_groups() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET datafusion.optimizer.repartition_file_min_size = 1")
        .await
        .unwrap();
    fixture
        .run("SET datafusion.execution.target_partitions = 3")
        .await
        .unwrap();
    let plan = fixture.plan("SELECT id FROM packed WHERE int > 3").await;
    assert!(plan.contains("3 groups"), "{plan}");
    for sql in [
        "SELECT count(*), sum(id) FROM {t} WHERE int > 3",
        "SELECT * FROM {t} ORDER BY id",
        "SELECT id FROM {t} ORDER BY int, id LIMIT 10",
    ] {
        fixture.same(sql).await;
    }
}

/// Byte ranges of a file with few row groups have vectors, and together all of them once.
#[tokio::test]
async fn few_row_groups_are_cut() {
    let fixture = Fixture::empty();
    let set = async |what: &str, to: usize| {
        fixture.run(&format!("SET {what} = {to}")).await.unwrap();
    };
    set("datafusion.optimizer.repartition_file_min_size", 1).await;
    let rows = "SELECT value AS id, value * 7919 % 100003 AS k, CASE WHEN value % 3 > 0 THEN value % 1000 END AS n,
                concat('text ', value % 5000) AS t FROM generate_series(0, 199999)";
    for (row_groups, rows_of_each) in [
        (1, 1usize << 20),
        (2, 130_000),
        (3, 70_000),
        (4, 65_000),
        (20, 10_240),
    ] {
        let name = format!("cut{row_groups}");
        set("vectile.row_group_rows", rows_of_each).await;
        fixture.make(&name, rows).await;
        for partitions in [1, 2, 3, 7] {
            set("datafusion.execution.target_partitions", partitions).await;
            for sql in [
                "SELECT count(*) AS a, sum(id) AS b, count(n) AS c, min(t) AS d FROM {t}",
                "SELECT count(*) AS a, sum(id) AS b FROM {t} WHERE n > 3 AND t LIKE '%99%'",
                "SELECT id, n, t FROM {t} WHERE k % 5000 = 3 ORDER BY id",
                "SELECT id FROM {t} WHERE id BETWEEN 102000 AND 102400 ORDER BY id",
                "SELECT a.id, b.t FROM {t} a JOIN {t} b ON a.id = b.k WHERE b.n = 5 AND a.n < 9 ORDER BY a.id, b.t",
                "SELECT id, n FROM {t} ORDER BY n DESC, id LIMIT 10",
            ] {
                let of_cut = fixture.answer(&sql.replace("{t}", &name)).await;
                let of_rows = fixture
                    .answer(&sql.replace("{t}", &format!("({rows})")))
                    .await;
                assert_eq!(
                    of_cut, of_rows,
                    "{partitions} partitions, {row_groups} row groups: {sql}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_empty_table() {
    let fixture = Fixture::empty();
    let path = fixture.path("empty.vectile");
    let sql = format!(
        "COPY (SELECT 1 AS a, 'x' AS b WHERE false) TO '{}' STORED AS VECTILE",
        path.display()
    );
    fixture.run(&sql).await.unwrap();
    fixture.register("empty", &path).await;
    assert_eq!(fixture.executed("SELECT * FROM empty").await.1, 0);
    let text = fixture
        .answer("SELECT count(*) AS n, max(a) AS m FROM empty WHERE b = 'x'")
        .await;
    assert!(text.contains("| 0 |   |"), "{text}");
}

/// Fields of null structs are null regardless of the values below them, in row groups of all kinds.
#[tokio::test]
async fn fields_of_null_structs_are_null() {
    let fixture = Fixture::empty();
    let path = fixture.path("structs.vectile");
    // All structs are null, some, none.
    let copy = format!(
        "COPY (SELECT value AS i, nullif(named_struct('a', value), named_struct('a',
            CASE WHEN value < 2048 OR value < 4096 AND value % 2 = 0 THEN value END)) AS s
          FROM generate_series(0, 6143)) TO '{}' STORED AS VECTILE OPTIONS (row_group_rows 2048)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("t", &path).await;
    for (sql, expected) in [
        ("SELECT count(*) FROM t WHERE s IS NULL", 3072),
        ("SELECT count(*) FROM t WHERE s['a'] IS NULL", 3072),
        ("SELECT count(*) FROM t WHERE s['a'] >= 0", 3072),
        ("SELECT count(*) FROM t WHERE s['a'] < 2050", 1),
        ("SELECT count(s['a']) FROM t", 3072),
        ("SELECT min(s['a']) FROM t", 2049),
        (
            "SELECT count(*) FROM t WHERE s['a'] IS NULL AND i >= 0 OR s['a'] + i < 0",
            3072,
        ),
    ] {
        let batches = fixture.run(sql).await.unwrap();
        let answer = batches[0].column(0).as_primitive::<Int64Type>();
        assert_eq!(answer.value(0), expected, "{sql}");
    }
}
