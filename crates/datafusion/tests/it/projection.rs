//! Projections: columns as they were written, and expressions evaluated in the scan.

use datafusion::arrow::array::Array;

use crate::support::{Fixture, ROWS, table};

#[tokio::test]
async fn every_type_comes_back_as_it_was_written() {
    let fixture = Fixture::new().await;
    let batch = fixture.same("SELECT * FROM {t} ORDER BY id").await;
    assert_eq!(batch.num_rows(), ROWS);
    for (written, read) in table()
        .schema()
        .fields()
        .iter()
        .zip(batch.schema().fields())
    {
        assert_eq!(written.data_type(), read.data_type(), "{}", written.name());
    }
}

#[tokio::test]
async fn expressions_are_evaluated_in_the_scan() {
    let fixture = Fixture::new().await;
    for projection in [
        "id, id AS again, int",
        "one, id",
        "int + byte AS sum, name",
        "nested['x'] AS x, id",
        "upper(name) || '!' AS shout",
        "1 AS one, 'a' AS a",
        "CASE WHEN flag THEN int ELSE byte END AS either",
    ] {
        fixture
            .same(&format!("SELECT {projection} FROM {{t}} ORDER BY id"))
            .await;
        fixture
            .same(&format!(
                "SELECT {projection} FROM {{t}} WHERE int > 450 ORDER BY id"
            ))
            .await;
    }
    let plan = fixture.plan("SELECT nested['x'] AS x FROM packed").await;
    assert!(!plan.contains("ProjectionExec"), "{plan}");
}

#[tokio::test]
async fn batches_are_well_filled() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET datafusion.execution.target_partitions = 1")
        .await
        .unwrap();
    let batches = fixture
        .run("SELECT id, name FROM packed WHERE int % 20 = 0")
        .await
        .unwrap();
    assert_eq!(batches.len(), 1);
    assert!(batches[0].num_rows() > 300);
    assert!(batches[0].column(1).len() == batches[0].num_rows());
}
