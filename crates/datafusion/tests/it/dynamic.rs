//! Dynamic filters, which are known only when the query runs.

use datafusion::prelude::SessionConfig;

use crate::support::{Fixture, metric};

#[tokio::test]
async fn a_join_prunes_its_probe_side() {
    let fixture = Fixture::new().await;
    fixture
        .run("CREATE TABLE few AS VALUES (5000, 'a'), (5001, 'b'), (5005, 'c')")
        .await
        .unwrap();
    let sql = "SELECT p.id, p.name, few.column2 FROM packed p JOIN few ON p.id = few.column1";
    let (plan, rows) = fixture.executed(sql).await;
    assert_eq!(rows, 3);
    let pruned = metric(&plan, "row_groups_pruned_dynamic_filter")
        + metric(&plan, "files_ranges_pruned_statistics");
    assert!(
        pruned > 0,
        "{}",
        fixture.answer(&format!("EXPLAIN ANALYZE {sql}")).await
    );
    assert_eq!(metric(&plan, "rows_decoded"), 3);
}

#[tokio::test]
async fn joins_have_the_same_answers() {
    for partitions in [1, 3] {
        // Hash tables rather than lists, and partitioned joins as well as broadcast ones.
        for threshold in [0, 1_000_000] {
            let mut config = SessionConfig::new().with_target_partitions(partitions);
            let optimizer = &mut config.options_mut().optimizer;
            optimizer.hash_join_single_partition_threshold = threshold;
            optimizer.hash_join_single_partition_threshold_rows = threshold;
            optimizer.hash_join_inlist_pushdown_max_distinct_values = partitions * 10;
            let fixture = Fixture::with_config(config);
            fixture.add_tables().await;
            for sql in [
                "SELECT count(*), sum(a.id) FROM {t} a JOIN {t} b ON a.int = b.id",
                "SELECT count(*), sum(a.id) FROM {t} a JOIN {t} b ON a.name = b.name AND a.int = b.int WHERE b.id < 500",
                "SELECT count(*), sum(a.id) FROM {t} a LEFT JOIN {t} b ON a.id = b.big WHERE a.byte = 7",
                "SELECT count(*) FROM {t} a WHERE a.int IN (SELECT byte FROM {t} WHERE id < 5)",
                "SELECT count(*) FROM {t} a WHERE a.int NOT IN (SELECT byte FROM {t} WHERE id < 5)",
                "SELECT count(*) FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.id = a.int AND b.name = 'zebra')",
                "SELECT count(*), sum(a.id) FROM {t} a JOIN {t} b ON a.name IS NOT DISTINCT FROM b.name WHERE b.id < 20",
                "SELECT count(*), sum(a.id) FROM {t} a FULL JOIN {t} b ON a.id = b.int + 600",
            ] {
                fixture.same(sql).await;
            }
        }
    }
}

#[tokio::test]
async fn a_top_k_prunes_as_it_tightens() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET datafusion.execution.target_partitions = 1")
        .await
        .unwrap();
    let (plan, rows) = fixture
        .executed("SELECT id, text FROM packed ORDER BY id DESC LIMIT 5")
        .await;
    assert_eq!(rows, 5);
    // The last row group is scanned first, and rules out the others.
    assert!(metric(&plan, "row_groups_pruned_dynamic_filter") >= 1);
    for sql in [
        "SELECT id FROM {t} ORDER BY id LIMIT 7",
        "SELECT id FROM {t} ORDER BY id DESC LIMIT 7",
        "SELECT int, id FROM {t} ORDER BY int DESC NULLS LAST, id LIMIT 20",
        "SELECT int, id FROM {t} ORDER BY int NULLS FIRST, id DESC LIMIT 20",
        "SELECT float, id FROM {t} ORDER BY float, id LIMIT 2000",
        "SELECT name, id FROM {t} WHERE byte > 20 ORDER BY name DESC, id LIMIT 11",
        "SELECT date, time, id FROM {t} ORDER BY date DESC, id LIMIT 11",
    ] {
        fixture.same(sql).await;
    }
}

#[tokio::test]
async fn aggregates_have_the_same_answers() {
    let fixture = Fixture::new().await;
    for sql in [
        "SELECT name, count(*), min(int), max(float), sum(price) FROM {t} GROUP BY name ORDER BY name",
        "SELECT min(id), max(id), min(float), max(float), min(name), max(text) FROM {t}",
        "SELECT min(date), max(time), count(int), count(void) FROM {t}",
        "SELECT min(id) FROM {t} WHERE int > 100",
        "SELECT id, row_number() OVER (PARTITION BY name ORDER BY id) FROM {t} WHERE id < 300 ORDER BY id",
    ] {
        fixture.same(sql).await;
    }
}

#[tokio::test]
async fn a_join_on_a_partition_column_skips_files() {
    let fixture = Fixture::new().await;
    let dir = fixture.path("tree");
    let copy = format!(
        "COPY (SELECT id, name, byte % 4 AS bucket FROM plain) TO '{}/' STORED AS VECTILE PARTITIONED BY (bucket)",
        dir.display()
    );
    fixture.run(&copy).await.unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE tree (id BIGINT, name VARCHAR, bucket INT) STORED AS VECTILE \
         PARTITIONED BY (bucket) LOCATION '{}/'",
        dir.display()
    );
    fixture.run(&create).await.unwrap();
    fixture
        .run("CREATE TABLE wanted AS SELECT arrow_cast(2, 'Int32') AS b")
        .await
        .unwrap();
    let sql = "SELECT tree.id FROM tree JOIN wanted ON tree.bucket = wanted.b";
    let (plan, rows) = fixture.executed(sql).await;
    let (_, expected) = fixture
        .executed("SELECT id FROM plain WHERE byte % 4 = 2")
        .await;
    assert_eq!(rows, expected);
    assert_eq!(metric(&plan, "rows_decoded"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn partitions_share_the_work() {
    let mut config = SessionConfig::new().with_target_partitions(4);
    config.options_mut().optimizer.repartition_file_min_size = 1;
    let fixture = Fixture::with_config(config);
    fixture.add_tables().await;
    for _ in 0..10 {
        for sql in [
            "SELECT count(*), sum(id) FROM {t} WHERE int > 3",
            "SELECT id, text FROM {t} ORDER BY id DESC LIMIT 100",
            "SELECT count(*), sum(a.id) FROM {t} a JOIN {t} b ON a.int = b.id AND b.name = 'apple'",
        ] {
            fixture.same(sql).await;
        }
    }
}
