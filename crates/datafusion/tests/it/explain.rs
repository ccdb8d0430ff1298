//! The output of `EXPLAIN` and `EXPLAIN ANALYZE`.

use crate::support::{Fixture, ROWS, metric};

#[tokio::test]
async fn names_how_each_conjunct_is_evaluated() {
    let fixture = Fixture::new().await;
    let plan = fixture
        .plan(
            "SELECT id FROM packed WHERE id > 5 AND int IN (1, 2, 3, 4) AND name LIKE '%x%' AND int > byte",
        )
        .await;
    assert!(!plan.contains("FilterExec"), "{plan}");
    assert!(plan.contains("file_type=vectile"), "{plan}");
    let part = |name: &str| {
        let (_, rest) = plan
            .split_once(&format!("{name}=["))
            .unwrap_or_else(|| panic!("{name} in {plan}"));
        rest.split("], ").next().unwrap().to_owned()
    };
    assert!(part("encoded").contains("id@0 > 5"), "{plan}");
    assert!(part("encoded").contains("int@1 IN"), "{plan}");
    assert!(part("per_value").contains("LIKE"), "{plan}");
    assert!(part("decoded").contains("byte"), "{plan}");
    assert!(plan.contains("pruning_predicate="), "{plan}");
}

#[tokio::test]
async fn volatile_filters_stay_above() {
    let fixture = Fixture::new().await;
    let plan = fixture
        .plan("SELECT id FROM packed WHERE id > 5 AND random() < 0.5")
        .await;
    assert!(plan.contains("FilterExec: random"), "{plan}");
    assert!(plan.contains("predicate=id@0 > 5"), "{plan}");
}

#[tokio::test]
async fn counts_what_was_pruned_and_decoded() {
    let fixture = Fixture::new().await;
    fixture.run("SET vectile.cache_memory = 0").await.unwrap();
    let (plan, rows) = fixture
        .executed("SELECT id, name FROM packed WHERE id BETWEEN 5000 AND 5009")
        .await;
    assert_eq!(rows, 10);
    // Row groups of 4096 rows: one is left, and in it one vector of 1024.
    assert_eq!(metric(&plan, "row_groups_pruned_statistics"), 2);
    assert_eq!(metric(&plan, "vectors_pruned_statistics"), 3);
    assert_eq!(metric(&plan, "rows_filtered"), 1014);
    assert_eq!(metric(&plan, "rows_decoded"), 10);
    let pruned_bytes = metric(&plan, "bytes_scanned");
    assert!(pruned_bytes > 0);
    let (plan, rows) = fixture.executed("SELECT id, name FROM packed").await;
    assert_eq!(rows, ROWS);
    assert_eq!(metric(&plan, "rows_decoded"), ROWS);
    assert!(metric(&plan, "bytes_scanned") > pruned_bytes);
}

#[tokio::test]
async fn counts_files_that_zone_maps_exclude() {
    let fixture = Fixture::new().await;
    // both are outside of the bounds of all row groups; the prefix is no zone test of Vectile's own
    for filter in ["id < 0", "name LIKE 'ö%'"] {
        let sql = format!("SELECT id, name FROM packed WHERE {filter}");
        let (plan, rows) = fixture.executed(&sql).await;
        assert_eq!(rows, 0, "{filter}");
        assert!(
            metric(&plan, "files_ranges_pruned_statistics") > 0,
            "{filter}"
        );
        assert_eq!(metric(&plan, "row_groups_pruned_statistics"), 0, "{filter}");
        assert_eq!(metric(&plan, "bytes_scanned"), 0, "{filter}");
    }
}

#[tokio::test]
async fn zone_maps_of_dictionaries_and_fields_prune() {
    let fixture = Fixture::empty();
    let path = fixture.path("packed.vectile");
    // Structs that are null have fields that are not.
    let sql = "
      SELECT value AS id,
        arrow_cast(CASE WHEN value % 7 > 0 THEN concat('k', 10 + value / 100) END,
          'Dictionary(Int8, Utf8)') AS d,
        named_struct('n', CASE WHEN value % 5 > 0 THEN value END,
          'm', named_struct('t', concat('t', 10000 + value), 'l', make_array(value))) AS s
      FROM range(8000)";
    let table = fixture.ctx.sql(sql).await.unwrap();
    let table = table.cache().await.unwrap();
    fixture
        .ctx
        .register_table("plain", table.into_view())
        .unwrap();
    let copy = format!(
        "COPY (SELECT * FROM plain ORDER BY id) TO '{}' STORED AS VECTILE OPTIONS (row_group_rows 2048)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    for (filter, stage, row_groups, vectors) in [
        ("d = 'k77'", "encoded", 3, 1),
        ("d IN ('k77', 'k78', 'none')", "encoded", 3, 1),
        ("d > 'k88'", "encoded", 3, 1),
        ("d LIKE 'k77%'", "per_value", 3, 0),
        ("s['n'] = 5000", "encoded", 3, 1),
        ("s['n'] > 7000 AND s['n'] < 7100", "encoded", 3, 1),
        ("s['m']['t'] IN ('t12000', 't15000')", "encoded", 2, 2),
        ("NOT (s['m']['t'] < 't17000')", "encoded", 3, 0),
        ("s['n'] IS NULL AND s['m']['t'] = 't15000'", "encoded", 3, 1),
        ("s['n'] IS NULL", "encoded", 0, 0),
    ] {
        fixture
            .same(&format!("SELECT * FROM {{t}} WHERE {filter} ORDER BY id"))
            .await;
        let sql = format!("SELECT id FROM packed WHERE {filter}");
        let plan = fixture.plan(&sql).await;
        assert!(plan.contains(&format!("{stage}=[")), "{filter}: {plan}");
        let (plan, _) = fixture.executed(&sql).await;
        assert_eq!(
            metric(&plan, "row_groups_pruned_statistics"),
            row_groups,
            "{filter}"
        );
        assert_eq!(
            metric(&plan, "vectors_pruned_statistics"),
            vectors,
            "{filter}"
        );
    }
}

#[tokio::test]
async fn bloom_filters_rule_out_row_groups() {
    let fixture = Fixture::empty();
    let path = fixture.path("packed.vectile");
    // Keys are unordered, so that zone maps cannot prune.
    let sql = "
      SELECT value AS id, (value * 7919) % 100003 AS key,
        CASE WHEN value % 6 > 0 THEN concat('k', (value * 7919) % 100003) END AS text,
        arrow_cast(CASE WHEN value % 6 > 0 THEN concat('k', (value * 7919) % 100003) END,
          'Dictionary(Int32, Utf8)') AS dict,
        arrow_cast((value * 7919) % 100003, 'Decimal128(20, 3)') AS price,
        CASE WHEN value % 2048 < 3 THEN -0.0 ELSE ((value * 7919) % 100003) * 0.5 END AS float,
        (value * 7919) % 100003 AS other
      FROM range(1, 8193)";
    let table = fixture.ctx.sql(sql).await.unwrap().cache().await.unwrap();
    fixture
        .ctx
        .register_table("plain", table.into_view())
        .unwrap();
    let copy = format!(
        "COPY (SELECT * FROM plain ORDER BY id) TO '{}' STORED AS VECTILE
         OPTIONS (row_group_rows 2048, bloom_filter 'key, text,dict,PRICE,float', bloom_filter_fpp 0.00001)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    // 63352 is the key of row 8; no row has 63353, 12345, 1 and 5.
    for (filter, pruned) in [
        ("key = 63352", 3),
        ("key = 63353", 4),
        ("key IN (63352, 12345, 1)", 3),
        ("key = 63352 AND id < 100", 0),
        ("key IS NOT DISTINCT FROM 63352", 3),
        ("key <> 63352", 0),
        ("key NOT IN (63352, 5)", 0),
        ("key > 63352", 0),
        ("key = 63352 OR text = 'k63352'", 3),
        ("key = 63352 OR other = 63352", 0),
        // Zone maps restrict where id may be 5000.
        ("key = 63352 OR id = 5000", 2),
        ("text = 'k63352'", 3),
        ("text IN ('k63352', 'none')", 3),
        ("dict = 'k63352'", 3),
        ("dict IN ('k1x', 'k50x')", 4),
        ("price = 63352.000", 3),
        ("price = arrow_cast(63353, 'Decimal128(20, 3)')", 4),
        ("float = 31676.0", 3),
        ("float = 31676.25", 4),
        // Zeros of both signs are equal, so the condition is a range.
        ("float = 0.0", 0),
        ("other = 63352", 0),
    ] {
        let answer = fixture
            .same(&format!("SELECT * FROM {{t}} WHERE {filter} ORDER BY id"))
            .await;
        let sql = format!("SELECT id FROM packed WHERE {filter}");
        let (plan, rows) = fixture.executed(&sql).await;
        assert_eq!(rows, answer.num_rows());
        assert_eq!(
            metric(&plan, "row_groups_pruned_by_bloom_filter"),
            pruned,
            "{filter}"
        );
    }
    let (filtered, _) = fixture
        .executed("SELECT id FROM packed WHERE key = 63353")
        .await;
    let (read, _) = fixture
        .executed("SELECT id FROM packed WHERE other = 63353")
        .await;
    assert_eq!(metric(&filtered, "rows_filtered"), 0);
    assert_eq!(metric(&read, "rows_filtered"), 8192);
    // Without pushdown, the filters only prune.
    fixture
        .run("SET vectile.pushdown_filters = false")
        .await
        .unwrap();
    let (plan, rows) = fixture
        .executed("SELECT id FROM packed WHERE key = 63352")
        .await;
    assert_eq!(rows, 1);
    assert_eq!(metric(&plan, "row_groups_pruned_by_bloom_filter"), 3);
}

#[tokio::test]
async fn bloom_filters_are_asked_about_the_keys_of_a_join() {
    let fixture = Fixture::empty();
    let path = fixture.path("packed.vectile");
    let copy = format!(
        "COPY (SELECT value AS id, (value * 7919) % 100003 AS key FROM range(8192)) TO '{}'
         STORED AS VECTILE OPTIONS (row_group_rows 1024, bloom_filter 'key', bloom_filter_fpp 0.00001)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    let few = "CREATE TABLE few AS SELECT * FROM (VALUES (63352, 'a'), (50001, 'b'), (95000, 'c')) AS few (k, name)";
    fixture.run(few).await.unwrap();
    let sql = "SELECT id, name FROM packed JOIN few ON key = k WHERE name <> 'd'";
    let (plan, rows) = fixture.executed(sql).await;
    assert_eq!(rows, 1);
    let pruned = metric(&plan, "row_groups_pruned_by_bloom_filter");
    assert!(
        pruned >= 5,
        "{pruned}: {}",
        fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await
    );
}

#[tokio::test]
async fn a_filter_that_covers_a_row_group_is_not_evaluated() {
    let fixture = Fixture::new().await;
    fixture.run("SET vectile.cache_memory = 0").await.unwrap();
    let (plan, rows) = fixture
        .executed("SELECT name FROM packed WHERE id >= 0")
        .await;
    assert_eq!(rows, ROWS);
    assert_eq!(metric(&plan, "rows_filtered"), 0);
    let (all, _) = fixture.executed("SELECT name FROM packed").await;
    assert_eq!(
        metric(&plan, "bytes_scanned"),
        metric(&all, "bytes_scanned")
    );
}

#[tokio::test]
async fn analyze_shows_the_metrics() {
    let fixture = Fixture::new().await;
    let text = fixture
        .answer("EXPLAIN ANALYZE SELECT name FROM packed WHERE id = 77")
        .await;
    for name in [
        "bytes_scanned=",
        "bytes_cached=",
        "row_groups_pruned_statistics=3 total → 1 matched",
        "vectors_pruned_statistics=4 total → 1 matched",
        "rows_decoded=1",
        "open_time=",
        "fetch_time=",
        "filter_time=",
        "decode_time=",
    ] {
        assert!(text.contains(name), "{name} in {text}");
    }
}

#[tokio::test]
async fn a_limit_stops_the_scan() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET datafusion.execution.target_partitions = 1")
        .await
        .unwrap();
    let (plan, rows) = fixture
        .executed("SELECT id, name FROM packed LIMIT 10")
        .await;
    assert_eq!(rows, 10);
    assert_eq!(metric(&plan, "rows_decoded"), 10);
    let (plan, rows) = fixture
        .executed("SELECT id FROM packed WHERE int > 0 LIMIT 10")
        .await;
    assert_eq!(rows, 10);
    assert_eq!(metric(&plan, "rows_decoded"), 10);
    assert_eq!(
        fixture.executed("SELECT id FROM packed LIMIT 9000").await.1,
        9000
    );
    assert_eq!(fixture.executed("SELECT id FROM packed LIMIT 0").await.1, 0);
}
