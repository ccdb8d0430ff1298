//! Filters, orders and limits that DataFusion pushes down.

use datafusion::logical_expr::Partitioning;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{JoinType, SessionConfig, SessionContext, col, lit};
use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt};

use crate::support::Fixture;

/// A number, as `count(*)` prints it.
async fn number(fixture: &Fixture, sql: &str) -> String {
    let answer = fixture.answer(sql).await;
    let row = answer.lines().nth(3).unwrap();
    row.trim_matches(['|', ' ']).to_owned()
}

/// Writes the rows of `query` to a file, and registers it.
async fn add(fixture: &Fixture, table: &str, query: &str) {
    let path = fixture.path(&format!("{table}.vectile"));
    let copy = format!("COPY ({query}) TO '{}' STORED AS VECTILE", path.display());
    fixture.run(&copy).await.unwrap();
    fixture.register(table, &path).await;
}

#[tokio::test]
async fn a_filter_above_an_outer_join_means_the_columns_it_names() {
    let fixture = Fixture::empty();
    add(
        &fixture,
        "f",
        "SELECT 1000 + value % 5000 AS fk1, value % 150 AS fk0 FROM generate_series(0, 19999)",
    )
    .await;
    add(
        &fixture,
        "d1",
        "SELECT value AS k FROM generate_series(1000, 5999)",
    )
    .await;
    add(
        &fixture,
        "d0",
        "SELECT value AS k, 5 AS a FROM generate_series(0, 149)",
    )
    .await;
    let sql = "SELECT count(*) FROM f JOIN d1 ON f.fk1 = d1.k RIGHT JOIN d0 ON f.fk0 = d0.k \
               WHERE d1.k + d0.a >= 500 OR d0.a > 100";
    assert_eq!(number(&fixture, sql).await, "20000");
}

/// Above an outer join, a column with one value has two: that value, and null.
#[tokio::test]
async fn columns_of_nullable_sides_have_no_one_value() {
    let mut config = SessionConfig::new().with_target_partitions(1);
    config = config.with_batch_size(64);
    let fixture = Fixture::with_config(config);
    let facts = "SELECT value % 7 AS c, (value * 7919) % 200 AS k FROM generate_series(0, 9999)";
    add(&fixture, "f", facts).await;
    let keys = "SELECT value AS k, value % 3 AS a FROM generate_series(0, 99)";
    add(&fixture, "d", keys).await;
    for side in [
        "SELECT k, a FROM d WHERE a = 2",
        "SELECT k, 2 AS a FROM d WHERE k % 3 = 2",
        "SELECT k, a FROM (SELECT k, k % 3 + 0 AS a FROM d) WHERE a = 2",
    ] {
        for join in [
            format!("f LEFT JOIN ({side}) s ON f.k = s.k"),
            format!("({side}) s RIGHT JOIN f ON f.k = s.k"),
            format!("f FULL JOIN ({side}) s ON f.k = s.k"),
            format!("f LEFT JOIN ({side}) s ON f.k = s.k AND f.c >= s.a - 5"),
            format!("f LEFT JOIN ({side}) s ON f.k <= s.k AND f.k >= s.k"),
        ] {
            let groups = format!("SELECT f.c, s.a FROM {join} GROUP BY f.c, s.a");
            let sql = format!("SELECT count(*) FROM ({groups})");
            assert_eq!(number(&fixture, &sql).await, "14", "{join}");
            let sorted = format!("SELECT s.a FROM {join} ORDER BY s.a NULLS FIRST LIMIT 5");
            let sql = format!("SELECT count(a) FROM ({sorted})");
            assert_eq!(number(&fixture, &sql).await, "0", "{join}");
        }
    }
    // Only the scan knows the value: the filter is above a projection until it is pushed down.
    let groups = "SELECT DISTINCT s.k FROM f LEFT JOIN (SELECT * FROM d WHERE k = 4) s ON f.k = s.k \
                  WHERE f.k IN (21, 4, NULL)";
    let sql = format!("SELECT count(*) FROM ({groups})");
    assert_eq!(number(&fixture, &sql).await, "2");
}

/// A repartitioning between two limits is dropped, and what is left of the outer part is the inner one.
#[tokio::test]
async fn parts_of_parts_are_planned_to_the_end() {
    let fixture = Fixture::with_config(SessionConfig::new().with_target_partitions(4));
    let rows = "CREATE TABLE u AS SELECT value AS x FROM generate_series(0, 19)";
    fixture.run(rows).await.unwrap();
    let sort = |ascending| vec![col("x").sort(ascending, false)];
    let first = fixture.ctx.table("u").await.unwrap().sort(sort(true));
    let first = first.unwrap().limit(1, Some(5)).unwrap();
    let again = first.repartition(Partitioning::RoundRobinBatch(4)).unwrap();
    let last = again.sort(sort(false)).unwrap().limit(0, Some(3)).unwrap();
    let plan = last.clone().create_physical_plan().await.unwrap();
    let plan = displayable(plan.as_ref()).indent(true).to_string();
    assert!(plan.contains("GlobalLimitExec: skip=1"), "{plan}");
    assert!(!plan.contains("PartExec"), "{plan}");
    let rows = last.to_string().await.unwrap();
    let numbers: Vec<&str> = rows
        .split(['|', '\n', ' '])
        .filter(|x| x.parse::<i64>().is_ok())
        .collect();
    assert_eq!(numbers, ["5", "4", "3"], "{rows}");
}

/// Merge joins need sorted sides. A sort by a key of one value is not left out as one below the join would be.
#[tokio::test]
async fn nullable_sides_of_merge_joins_are_sorted() {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().optimizer.prefer_hash_join = false;
    let fixture = Fixture::with_config(config);
    for sql in [
        "CREATE TABLE f AS SELECT * FROM (VALUES (1), (2), (2), (NULL), (7)) t(k)",
        "CREATE TABLE d AS SELECT * FROM f WHERE k > 9",
    ] {
        fixture.run(sql).await.unwrap();
    }
    let side = "(SELECT * FROM d WHERE k = 2) s";
    for join in [
        format!("f LEFT JOIN {side} ON f.k = s.k"),
        format!("{side} RIGHT JOIN f ON f.k = s.k"),
        format!("f FULL JOIN {side} ON f.k = s.k"),
    ] {
        let sql = format!("SELECT count(*) FROM {join}");
        assert_eq!(number(&fixture, &sql).await, "5", "{join}");
    }
}

/// A column with one value is null in the groups of a grouping set without it.
#[tokio::test]
async fn columns_of_grouping_sets_have_no_one_value() {
    let fixture = Fixture::empty();
    let rows = "SELECT value AS k, value % 3 AS a FROM generate_series(0, 11)";
    add(&fixture, "d", rows).await;
    for rows in ["d WHERE a = 2", "(SELECT k, 2 AS a FROM d WHERE a = 2)"] {
        let groups = format!("SELECT a, k, count(*) AS c FROM {rows} GROUP BY CUBE (a, k)");
        let windows = format!("SELECT count(*) OVER (PARTITION BY a) AS n FROM ({groups})");
        let sql = format!("SELECT count(*) FROM ({windows}) WHERE n = 5");
        assert_eq!(number(&fixture, &sql).await, "10", "{rows}");
        let sorted = format!("{groups} ORDER BY a NULLS FIRST, k");
        let answer = fixture.answer(&sorted).await;
        let keys = answer.lines().skip(3).filter(|line| line.starts_with('|'));
        let keys: Vec<String> = keys.map(|line| line.replace([' ', '|'], "")).collect();
        let expected = [
            "21", "51", "81", "111", "4", "221", "251", "281", "2111", "24",
        ];
        assert_eq!(keys, expected, "{rows}\n{answer}");
    }
}

/// Rows of a file in the order of `ts`, in several row groups. `x` descends, and `k` repeats.
async fn sorted_table(partitions: usize) -> Fixture {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let fixture = Fixture::with_config(config);
    let path = fixture.path("t.vectile");
    let path = path.display();
    let rows =
        "SELECT value AS ts, 9999 - value AS x, value % 100 AS k FROM generate_series(0, 9999)";
    for sql in [
        format!("COPY ({rows}) TO '{path}' STORED AS VECTILE OPTIONS (row_group_rows 1024)"),
        format!("CREATE EXTERNAL TABLE t STORED AS VECTILE WITH ORDER (ts ASC) LOCATION '{path}'"),
    ] {
        fixture.run(&sql).await.unwrap();
    }
    add(
        &fixture,
        "d",
        "SELECT value AS k FROM generate_series(40, 44)",
    )
    .await;
    fixture
}

#[tokio::test]
async fn filters_and_orders_pass_no_limit() {
    for partitions in [1, 2] {
        let fixture = sorted_table(partitions).await;
        for is_pushed in [true, false] {
            let set = format!("SET vectile.pushdown_filters = {is_pushed}");
            fixture.run(&set).await.unwrap();
            for (sql, expected) in [
                (
                    "SELECT min(ts) FROM (SELECT * FROM (SELECT * FROM t ORDER BY ts LIMIT 10) ORDER BY x LIMIT 3)",
                    "7",
                ),
                (
                    "SELECT max(ts) FROM (SELECT * FROM (SELECT * FROM t WHERE k <> 3 ORDER BY ts LIMIT 10) ORDER BY x LIMIT 3)",
                    "10",
                ),
                (
                    "SELECT count(*) FROM d JOIN (SELECT * FROM t ORDER BY ts LIMIT 1000) s ON s.k = d.k",
                    "50",
                ),
                (
                    "SELECT count(*) FROM d JOIN (SELECT * FROM t WHERE x > 5 ORDER BY ts LIMIT 1000) s ON s.k = d.k",
                    "50",
                ),
                (
                    "SELECT count(*) FROM d JOIN (SELECT k + 0 AS k FROM t ORDER BY ts LIMIT 1000) s ON s.k = d.k",
                    "50",
                ),
                (
                    "SELECT count(*) FROM d JOIN (SELECT * FROM t ORDER BY ts LIMIT 900 OFFSET 100) s ON s.k = d.k",
                    "45",
                ),
                (
                    "SELECT count(*) FROM (SELECT * FROM t ORDER BY ts LIMIT 1000) s WHERE k BETWEEN 40 AND 44",
                    "50",
                ),
                (
                    "SELECT count(*) FROM d JOIN (SELECT * FROM (SELECT * FROM t ORDER BY ts LIMIT 500) UNION ALL \
                  SELECT * FROM (SELECT * FROM t ORDER BY ts LIMIT 500)) s ON s.k = d.k",
                    "50",
                ),
                (
                    "SELECT min(ts) FROM (SELECT * FROM (SELECT * FROM t ORDER BY ts LIMIT 1500) ORDER BY k DESC, ts DESC LIMIT 2)",
                    "1399",
                ),
                (
                    "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY k DESC) AS r FROM (SELECT k FROM d LIMIT 3 OFFSET 1))",
                    "3",
                ),
                (
                    "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY ts, x) AS r FROM \
                  (SELECT * FROM t ORDER BY ts LIMIT 10 OFFSET 5))",
                    "10",
                ),
                (
                    "SELECT min(ts) FROM (SELECT ts, row_number() OVER (ORDER BY x) AS r FROM \
                  (SELECT * FROM t ORDER BY ts OFFSET 9990)) WHERE r > 0",
                    "9990",
                ),
            ] {
                let answer = number(&fixture, sql).await;
                assert_eq!(answer, expected, "{partitions} {is_pushed} {sql}");
            }
        }
    }
}

/// A limit of DISTINCT rows is kept if a merge join orders them.
#[tokio::test]
async fn limits_of_distinct_rows_may_be_ordered() {
    let fixture = Fixture::empty();
    let rows = "SELECT value % 7 AS k, value % 3 AS x FROM generate_series(0, 49)";
    add(&fixture, "f", rows).await;
    add(
        &fixture,
        "d",
        "SELECT value AS k, value * 2 AS name FROM generate_series(0, 5)",
    )
    .await;
    add(
        &fixture,
        "g",
        "SELECT value AS k FROM generate_series(3, 9)",
    )
    .await;
    for setting in [
        "execution.target_partitions = 2",
        "optimizer.prefer_hash_join = false",
    ] {
        let set = format!("SET datafusion.{setting}");
        fixture.run(&set).await.unwrap();
    }
    let distinct = "SELECT DISTINCT f.x, d.k, d.name FROM f LEFT JOIN (SELECT * FROM d WHERE name >= 0) d \
                    ON f.k = d.k WHERE NOT EXISTS (SELECT 1 FROM g WHERE g.k = d.k)";
    for (limit, expected) in [(1000, "12"), (5, "5")] {
        let sql = format!("SELECT count(*) FROM ({distinct} LIMIT {limit})");
        assert_eq!(number(&fixture, &sql).await, expected);
    }
}

/// The limit of a sort does not apply to the aggregate below it if an operator between them needs all groups, or
/// computes another column.
#[tokio::test]
async fn limits_pass_no_window_and_no_computed_column() {
    let fixture = Fixture::empty();
    let rows = "SELECT value AS k, value % 3 + 1 AS a FROM generate_series(0, 11)";
    add(&fixture, "d", rows).await;
    let groups = "(SELECT DISTINCT a FROM d)";
    let largest = "(SELECT a, max(k) AS m FROM d GROUP BY a)";
    for (sql, expected) in [
        (
            format!(
                "SELECT n FROM (SELECT a, count(*) OVER () AS n FROM {groups}) ORDER BY a LIMIT 1"
            ),
            "3",
        ),
        (
            format!(
                "SELECT n FROM (SELECT a, row_number() OVER (ORDER BY a DESC) AS n FROM {groups}) ORDER BY a LIMIT 1"
            ),
            "3",
        ),
        (
            format!(
                "SELECT n FROM (SELECT m, sum(m) OVER () AS n FROM {largest}) ORDER BY m DESC LIMIT 1"
            ),
            "30",
        ),
        (
            format!("SELECT -a AS a FROM {groups} ORDER BY a LIMIT 1"),
            "-3",
        ),
        (
            format!("SELECT a FROM (SELECT m AS a, a AS m FROM {largest}) ORDER BY a DESC LIMIT 1"),
            "11",
        ),
        (
            format!("SELECT a FROM {groups} ORDER BY a DESC LIMIT 1"),
            "3",
        ),
        (
            format!("SELECT m FROM {largest} ORDER BY m DESC LIMIT 1"),
            "11",
        ),
        (
            format!("SELECT DISTINCT -a AS a FROM {groups} ORDER BY a LIMIT 1"),
            "-3",
        ),
        (
            format!(
                "SELECT a FROM (SELECT a, count(*) OVER () AS n FROM {groups}) WHERE n = 3 GROUP BY a ORDER BY a LIMIT 1"
            ),
            "1",
        ),
    ] {
        assert_eq!(number(&fixture, &sql).await, expected, "{sql}");
    }
    for sql in [
        format!("SELECT a FROM {groups} ORDER BY a DESC LIMIT 1"),
        format!("SELECT m AS n FROM {largest} ORDER BY n DESC LIMIT 1"),
    ] {
        let plan = fixture.plan(&sql).await;
        assert!(plan.contains("lim=[1]"), "{plan}");
    }
}

/// The limit of a sort does not apply to windows, filters and joins below it, which may need all rows.
#[tokio::test]
async fn limits_of_sorts_pass_no_window_filter_or_join() {
    let running = "sum(x) OVER (ORDER BY x ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING) AS s";
    for (partitions, order) in [
        (1, ""),
        (4, ""),
        (1, " WITH ORDER (x ASC)"),
        (4, " WITH ORDER (x ASC)"),
    ] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let fixture = Fixture::with_config(config);
        let folder = fixture.path("t");
        let folder = folder.display();
        for (file, range) in [("1", "0, 29"), ("2", "30, 59")] {
            let rows = format!(
                "SELECT value AS x, value * 7 % 31 AS y FROM generate_series({range}) ORDER BY x"
            );
            let copy = format!("COPY ({rows}) TO '{folder}/{file}.vectile' STORED AS VECTILE");
            fixture.run(&copy).await.unwrap();
        }
        let table =
            format!("CREATE EXTERNAL TABLE t STORED AS VECTILE{order} LOCATION '{folder}/'");
        fixture.run(&table).await.unwrap();
        for is_hashed in [true, false] {
            let set = format!("SET datafusion.optimizer.prefer_hash_join = {is_hashed}");
            fixture.run(&set).await.unwrap();
            for (sql, expected) in [
                (
                    "SELECT count(*) OVER () FROM t ORDER BY x LIMIT 2".to_owned(),
                    "60",
                ),
                (
                    "SELECT x FROM (SELECT x, y, count(*) OVER () AS n FROM t) WHERE y > 20 AND n > 5 ORDER BY x LIMIT 2".to_owned(),
                    "3",
                ),
                (
                    "SELECT x FROM t WHERE x NOT IN (SELECT x FROM t WHERE x < 50) ORDER BY x LIMIT 3".to_owned(),
                    "50",
                ),
                (
                    format!("SELECT max(q) FROM (SELECT x, sum(s) OVER (ORDER BY x ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS q \
                      FROM (SELECT x, {running} FROM t) ORDER BY x LIMIT 3)"),
                    "54",
                ),
                (
                    "SELECT lag(x, -3) OVER (ORDER BY x ROWS UNBOUNDED PRECEDING) FROM t ORDER BY x LIMIT 1".to_owned(),
                    "3",
                ),
                (
                    "SELECT lead(CASE WHEN x % 6 = 0 THEN x END, 1) IGNORE NULLS OVER (ORDER BY x ROWS UNBOUNDED PRECEDING) \
                      FROM t ORDER BY x LIMIT 1".to_owned(),
                    "6",
                ),
            ] {
                let answer = number(&fixture, &sql).await;
                assert_eq!(answer, expected, "{partitions}{order} {is_hashed} {sql}");
            }
        }
        let sql = "SELECT x FROM t WHERE y > 20 ORDER BY y LIMIT 2";
        let plan = fixture.plan(sql).await;
        assert!(plan.contains("TopK(fetch=2)"), "{plan}");
        assert!(plan.contains("DynamicFilter"), "{plan}");
    }
}

/// A scan of sorted Parquet files below a merge returns the first rows, not any rows that pass its filter.
#[tokio::test]
async fn limits_of_merges_take_the_first_rows_of_parquet() {
    for partitions in [1, 2] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let fixture = Fixture::with_config(config);
        let folder = fixture.path("p");
        let folder = folder.display();
        let set = "SET datafusion.execution.parquet.pushdown_filters = true";
        fixture.run(set).await.unwrap();
        for (file, range) in [("1", "0, 99"), ("2", "100, 199")] {
            let rows = format!("SELECT value AS x FROM generate_series({range})");
            let options = "OPTIONS ('format.max_row_group_size' 10)";
            let copy =
                format!("COPY ({rows}) TO '{folder}/{file}.parquet' STORED AS PARQUET {options}");
            fixture.run(&copy).await.unwrap();
        }
        let table = format!(
            "CREATE EXTERNAL TABLE p STORED AS PARQUET WITH ORDER (x ASC) LOCATION '{folder}/'"
        );
        fixture.run(&table).await.unwrap();
        for sql in [
            "SELECT x FROM p WHERE x >= 5 ORDER BY x LIMIT 5",
            "SELECT x FROM p WHERE x >= 2 ORDER BY x LIMIT 5 OFFSET 3",
            "SELECT min(x) FROM (SELECT x, x + 1 AS y FROM p WHERE x >= 5 ORDER BY x LIMIT 5)",
        ] {
            assert_eq!(number(&fixture, sql).await, "5", "{partitions} {sql}");
        }
    }
}

/// An offset skips the first rows of the order, even by a column that is not in its output.
#[tokio::test]
async fn offsets_skip_in_the_order_of_any_column() {
    for partitions in [1, 4] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let fixture = Fixture::with_config(config);
        let rows = "SELECT value AS x, -value AS y FROM generate_series(0, 9)";
        add(&fixture, "u", rows).await;
        for (sql, expected) in [
            (
                "SELECT max(x) FROM (SELECT x FROM u ORDER BY y OFFSET 5)",
                "4",
            ),
            (
                "SELECT max(x) FROM (SELECT x FROM u ORDER BY y LIMIT 3 OFFSET 5)",
                "4",
            ),
            (
                "SELECT x FROM (SELECT x FROM u ORDER BY y OFFSET 5) ORDER BY x DESC LIMIT 2",
                "4",
            ),
            (
                "SELECT count(*) FROM u JOIN (SELECT x + 1 AS x FROM u ORDER BY y OFFSET 9) s USING (x)",
                "1",
            ),
            (
                "SELECT min(x) FROM (SELECT x FROM (SELECT x, y FROM u ORDER BY x OFFSET 1) ORDER BY y OFFSET 1)",
                "1",
            ),
        ] {
            assert_eq!(number(&fixture, sql).await, expected, "{partitions} {sql}");
        }
    }
}

#[tokio::test]
async fn least_and_greatest_values_are_of_all_rows() {
    let config = SessionConfig::new().with_target_partitions(2);
    for (rows, sql, expected) in [
        (
            ["(1, NULL)", "(2, 7)"],
            "SELECT min(a), max(b) FROM t",
            "| 1        | 7        |",
        ),
        (
            ["(8, 1)", "(194, 2)"],
            "SELECT max(a + 10), min(b) FROM t",
            "| 204                  | 1        |",
        ),
    ] {
        for enabled in [None, Some(true)] {
            let mut config = config.clone();
            if let Some(enabled) = enabled {
                config
                    .options_mut()
                    .optimizer
                    .enable_aggregate_dynamic_filter_pushdown = enabled;
            }
            let fixture = Fixture::with_config(config);
            let dir = fixture.path("t");
            std::fs::create_dir(&dir).unwrap();
            for (file, row) in rows.iter().enumerate() {
                let copy = format!(
                    "COPY (SELECT arrow_cast(column1, 'Int32') AS a, arrow_cast(column2, 'Int32') AS b \
                     FROM (VALUES {row})) TO '{}/{file}.vectile' STORED AS VECTILE",
                    dir.display()
                );
                fixture.run(&copy).await.unwrap();
            }
            fixture.register("t", &dir).await;
            let answer = fixture.answer(sql).await;
            assert!(answer.contains(expected), "{sql}\n{answer}");
        }
    }
}

#[tokio::test]
async fn a_semi_join_filters_the_side_that_the_name_is_of() {
    let fixture = Fixture::empty();
    // d.k is not f.k, which is compared with d.j.
    add(
        &fixture,
        "f",
        "SELECT value AS k, value % 10 AS j FROM generate_series(0, 9999)",
    )
    .await;
    add(
        &fixture,
        "d",
        "SELECT value AS j, value + 100000 AS k FROM generate_series(0, 9999)",
    )
    .await;
    add(
        &fixture,
        "e",
        "SELECT value AS k FROM generate_series(0, 99)",
    )
    .await;
    let sql = "SELECT count(*) FROM e JOIN (SELECT * FROM f WHERE EXISTS \
               (SELECT 1 FROM d WHERE d.j = f.k AND d.k > f.j)) s ON e.k = s.k";
    assert_eq!(number(&fixture, sql).await, "100");
}

#[tokio::test]
async fn an_aggregate_filters_a_column_only_if_it_is_the_key() {
    let fixture = Fixture::empty();
    add(
        &fixture,
        "t",
        "SELECT value AS a FROM generate_series(0, 9999)",
    )
    .await;
    add(
        &fixture,
        "e",
        "SELECT value AS k FROM generate_series(100000, 100099)",
    )
    .await;
    // Named like the column that it is computed from.
    let key = (col("a") + lit(100_000_i64)).alias("a");
    let groups = fixture.ctx.table("t").await.unwrap();
    let groups = groups.aggregate(vec![key], Vec::new()).unwrap();
    let keys = fixture.ctx.table("e").await.unwrap();
    let joined = keys.join(groups, JoinType::Inner, &["k"], &["a"], None);
    assert_eq!(joined.unwrap().count().await.unwrap(), 100);
}

#[tokio::test]
async fn a_session_without_our_rules_keeps_filters_above_the_scan() {
    let fixture = Fixture::new().await;
    let ctx = SessionContext::new();
    let path = fixture.path("packed.vectile");
    let options = VectileReadOptions::default();
    ctx.register_vectile("packed", path.to_str().unwrap(), options)
        .await
        .unwrap();
    let frame = ctx.sql("SELECT id FROM packed WHERE id < 7").await.unwrap();
    let plan = frame.clone().create_physical_plan().await.unwrap();
    let plan = displayable(plan.as_ref()).indent(true).to_string();
    assert!(plan.contains("FilterExec"), "{plan}");
    assert!(!plan.contains("predicate="), "{plan}");
    assert_eq!(frame.count().await.unwrap(), 7);
}

#[tokio::test]
async fn filters_go_through_inner_joins() {
    let fixture = Fixture::new().await;
    let plan = fixture
        .plan(
            "SELECT a.id FROM packed a JOIN packed b ON a.id = b.int \
             WHERE a.byte > 5 AND b.byte > 7",
        )
        .await;
    assert!(!plan.contains("FilterExec"), "{plan}");
    assert!(plan.contains("DynamicFilter"), "{plan}");
}
