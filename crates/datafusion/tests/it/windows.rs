//! Window functions over sorted rows, beside DataFusion's operator over the same rows in small batches.

use crate::support::Fixture;

/// Functions over windows `w`.
const FUNCTIONS: &[&str] = &[
    "row_number() OVER w, rank() OVER w, dense_rank() OVER w",
    "lead(id) OVER w, lag(id) OVER w",
    "lead(name, 3) OVER w, lag(name, 2) OVER w, rank() OVER w",
    "lag(float, 5) OVER w, row_number() OVER w",
    "lead(int, -2) OVER w, lag(text, -4) OVER w",
];

/// Aggregates over frames.
const AGGREGATES: &[&str] = &[
    "sum(id) OVER w, count(*) OVER w, avg(id) OVER w",
    "sum(int) OVER w, count(int) OVER w, avg(int) OVER w, rank() OVER w",
    "sum(decimal) OVER w, avg(decimal) OVER w, dense_rank() OVER w",
    "sum(u64) OVER w, avg(few) OVER w, count(NULL) OVER w",
    "sum(wide) OVER w, count(wide) OVER w, avg(decimal64) OVER w",
];

/// Extremes, and first and last values, over frames that begin with the partition.
const EXTREMES: &[&str] = &[
    "min(int) OVER w, max(int) OVER w, sum(id) OVER w",
    "min(byte) OVER w, max(at) OVER w, row_number() OVER w",
    "max(few) OVER w, min(decimal) OVER w, lead(id, 3) OVER w, lag(name, 2) OVER w",
    "first_value(name) OVER w, last_value(id) OVER w",
    "first_value(few) OVER w, last_value(float) OVER w, max(id) OVER w",
    "first_value(long) OVER w, last_value(long) OVER w, lag(long) OVER w",
];

/// Frames from the first row on.
const GROWING: &[&str] = &[
    "PARTITION BY id / 3 ORDER BY id",
    "PARTITION BY name ORDER BY id / 50, id % 7, id",
    "PARTITION BY flag ORDER BY id DESC RANGE UNBOUNDED PRECEDING",
    "PARTITION BY name, flag ORDER BY float, id ROWS UNBOUNDED PRECEDING",
    "PARTITION BY flag ORDER BY int / 50, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ORDER BY id ROWS UNBOUNDED PRECEDING",
    "PARTITION BY id / 3 ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "PARTITION BY name, flag ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ORDER BY id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
];

/// Frames with rows that are equal in order, for functions whose results they share.
const PEERS: &[&str] = &[
    "PARTITION BY name ORDER BY int / 50, flag",
    "PARTITION BY flag ORDER BY name DESC NULLS LAST RANGE UNBOUNDED PRECEDING",
    "ORDER BY int / 100 GROUPS UNBOUNDED PRECEDING",
    "ORDER BY flag",
    "PARTITION BY name",
    "PARTITION BY id / 7, flag",
    "PARTITION BY id < 0",
];

/// Whole partitions.
const PARTITIONS: &[&str] = &[
    "PARTITION BY name",
    "PARTITION BY id / 7, flag",
    "PARTITION BY flag ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "PARTITION BY id < 0",
];

/// Frames of rows near each.
const NEAR: &[&str] = &[
    "PARTITION BY id / 3 ORDER BY id ROWS 1 PRECEDING",
    "PARTITION BY name ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING",
    "PARTITION BY flag ORDER BY int / 50, id ROWS BETWEEN CURRENT ROW AND 40 FOLLOWING",
    "ORDER BY id ROWS BETWEEN 20 PRECEDING AND CURRENT ROW",
    "ORDER BY id DESC ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
];

/// Windows of many, few and one partition, and with rows that are equal in order.
const WINDOWS: &[&str] = &[
    "PARTITION BY id / 3 ORDER BY id",
    "PARTITION BY name ORDER BY id DESC",
    "PARTITION BY name, flag ORDER BY float, id",
    "PARTITION BY flag ORDER BY int / 50, name NULLS FIRST, id",
    "ORDER BY id",
];

#[tokio::test]
async fn batches_of_any_size_have_the_same_answers() {
    let fixture = Fixture::new().await;
    let rows = "SELECT id, int, name, flag, float, text, \
        CAST(int AS DECIMAL(12, 3)) AS decimal, arrow_cast(id % 256, 'UInt8') AS byte, \
        arrow_cast(id, 'Timestamp(Millisecond, None)') AS at, arrow_cast(id, 'UInt64') AS u64, \
        CASE WHEN int % 3 = 0 THEN CAST(id AS INT) END AS few, \
        CAST(int AS DECIMAL(38, 2)) AS wide, \
        arrow_cast(int, 'Decimal64(10, 2)') AS decimal64, concat(name, ' and more text, ', id) AS long FROM packed WHERE id < 160";
    for size in [7, 8192] {
        let set = format!("SET datafusion.execution.batch_size = {size}");
        fixture.run(&set).await.unwrap();
        let all = [
            (WINDOWS, FUNCTIONS),
            (GROWING, AGGREGATES),
            (GROWING, EXTREMES),
            (PEERS, AGGREGATES),
            (NEAR, AGGREGATES),
        ];
        let text: &[&str] = &["min(name) OVER w, max(long) OVER w, count(*) OVER w"];
        let all = all.into_iter().chain([(PARTITIONS, text)]);
        for (windows, functions) in all {
            for (window, functions) in windows
                .iter()
                .flat_map(|of| functions.iter().map(move |f| (of, f)))
            {
                let sql = format!(
                    "SELECT id, {functions} FROM ({rows}) t WINDOW w AS ({window}) ORDER BY id"
                );
                fixture.run("SET vectile.fuse = auto").await.unwrap();
                let plan = fixture.plan(&sql).await;
                assert!(plan.contains("SortedWindowExec"), "{sql}: {plan}");
                let ours = fixture.answer(&sql).await;
                fixture.run("SET vectile.fuse = off").await.unwrap();
                let plan = fixture.plan(&sql).await;
                assert!(plan.contains("WindowAggExec"), "{sql}: {plan}");
                let theirs = fixture.answer(&sql).await;
                let lines = ours.lines().zip(theirs.lines());
                let different = lines.filter(|(ours, theirs)| ours != theirs);
                let different: Vec<_> = different.take(3).collect();
                assert!(
                    different.is_empty() && ours == theirs,
                    "{size}: {sql}: {different:#?}"
                );
            }
        }
    }
}

/// Functions that need more than positions and few rows stay with DataFusion.
#[tokio::test]
async fn other_functions_are_left_alone() {
    let fixture = Fixture::new().await;
    for function in [
        "lead(id, 1025)",
        "lag(id, 1, 7)",
        "lead(int) IGNORE NULLS",
        "lag(list)",
        "percent_rank()",
        "min(float)",
        "max(name)",
        "stddev(id)",
        "nth_value(id, 3)",
        "first_value(int) IGNORE NULLS",
        "sum(id) FILTER (WHERE id > 3)",
        "count(*) FILTER (WHERE int % 2 = 0)",
        "count(DISTINCT int)",
    ] {
        let sql = format!("SELECT {function} OVER (PARTITION BY name ORDER BY id) FROM packed");
        let plan = fixture.plan(&sql).await;
        assert!(!plan.contains("SortedWindowExec"), "{sql}: {plan}");
    }
    for window in [
        "ORDER BY id ROWS 1025 PRECEDING",
        "ORDER BY id RANGE 3 PRECEDING",
        "ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
        "ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
        "ORDER BY float",
    ] {
        let sql = format!("SELECT sum(id) OVER ({window}) FROM packed");
        let plan = fixture.plan(&sql).await;
        assert!(!plan.contains("SortedWindowExec"), "{sql}: {plan}");
    }
}
