//! Sums of doubles compared with those over plain Arrow data, as described in `docs/testing.md`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionConfig;

use crate::support::Fixture;

const ROWS: usize = 100_000;
const BATCH_ROWS: usize = 8192;

/// `plain` in batches of DataFusion's batch size, and `packed`, the same in a file.
async fn fixture() -> Fixture {
    let fixture = Fixture::with_config(SessionConfig::new().with_target_partitions(1));
    let hash = |i: usize| i.wrapping_mul(2_654_435_761) % 1_000_003;
    let id = Int64Array::from_iter_values(0..ROWS as i64);
    let group = Int64Array::from_iter_values((0..ROWS).map(|i| (hash(i) % 7) as i64));
    let value = Float64Array::from_iter_values((0..ROWS).map(|i| hash(i) as f64 / 999.0));
    let table = RecordBatch::try_from_iter([
        ("id", Arc::new(id) as ArrayRef),
        ("g", Arc::new(group) as ArrayRef),
        ("v", Arc::new(value) as ArrayRef),
    ])
    .unwrap();
    let starts = (0..ROWS).step_by(BATCH_ROWS);
    let batches = starts.map(|start| table.slice(start, BATCH_ROWS.min(ROWS - start)));
    let plain = MemTable::try_new(table.schema(), vec![batches.collect()]).unwrap();
    fixture
        .ctx
        .register_table("plain", Arc::new(plain))
        .unwrap();
    let path = fixture.path("packed.vectile");
    let copy = format!("COPY plain TO '{}' STORED AS VECTILE", path.display());
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    fixture
}

#[tokio::test]
async fn sums_of_groups_and_of_whole_tables_are_equal_in_one_partition() {
    let fixture = fixture().await;
    for sql in [
        "SELECT sum(v), avg(v) FROM {t}",
        "SELECT g, sum(v), avg(v) FROM {t} GROUP BY g ORDER BY g",
        "SELECT g, sum(v), avg(v) FROM {t} WHERE v > 300 AND id % 3 < 2 GROUP BY g ORDER BY g",
    ] {
        fixture.same(sql).await;
    }
}

#[tokio::test]
async fn filtered_sums_differ_by_rounding_only() {
    let fixture = fixture().await;
    for limit in [5, 300, 500, 900] {
        let mut sums = Vec::new();
        for table in ["plain", "packed"] {
            let sql = format!("SELECT sum(v) FROM {table} WHERE v > {limit}");
            let batches = fixture.run(&sql).await.unwrap();
            sums.push(batches[0].column(0).as_primitive::<Float64Type>().value(0));
        }
        let difference = (sums[0] - sums[1]).abs() / sums[0];
        assert!(difference < 1e-13, "{limit}: {sums:?}");
    }
}
