//! Statistics claim no more than is true.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::support::{Fixture, ROWS};

fn statistics_of(plan: &Arc<dyn ExecutionPlan>) -> Arc<Statistics> {
    StatisticsContext::new()
        .compute(plan.as_ref(), &StatisticsArgs::new())
        .unwrap()
}

#[tokio::test]
async fn are_exact_where_they_can_be() {
    let fixture = Fixture::new().await;
    let plan = fixture.ctx.sql("SELECT * FROM packed").await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let statistics = statistics_of(&plan);
    assert_eq!(statistics.num_rows, Precision::Exact(ROWS));
    let column = |name: &str| {
        let index = plan.schema().index_of(name).unwrap();
        statistics.column_statistics[index].clone()
    };
    let id = column("id");
    assert_eq!(id.null_count, Precision::Exact(0));
    assert_eq!(id.min_value, Precision::Exact(ScalarValue::Int64(Some(0))));
    assert_eq!(
        id.max_value,
        Precision::Exact(ScalarValue::Int64(Some(ROWS as i64 - 1)))
    );
    assert_eq!(id.byte_size, Precision::Exact(ROWS * 8));
    assert_eq!(column("void").null_count, Precision::Exact(ROWS));
    assert_eq!(column("void").min_value, Precision::Absent);
    // NaN is not a maximum that may answer `max`.
    assert_eq!(column("float").max_value, Precision::Absent);
    assert_eq!(column("list").min_value, Precision::Absent);
}

#[tokio::test]
async fn answer_aggregates_without_a_scan() {
    let fixture = Fixture::new().await;
    let plan = fixture
        .plan("SELECT count(*), min(id), max(id), count(int) FROM packed")
        .await;
    assert!(!plan.contains("DataSourceExec: file_groups"), "{plan}");
    fixture
        .same("SELECT count(*), min(id), max(id), count(int) FROM {t}")
        .await;
}

#[tokio::test]
async fn are_not_exact_below_a_filter() {
    let fixture = Fixture::new().await;
    let plan = fixture
        .ctx
        .sql("SELECT id FROM packed WHERE int > 3")
        .await
        .unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    assert_eq!(statistics_of(&plan).num_rows.is_exact(), Some(false));
    fixture
        .same("SELECT count(*), min(id), max(id) FROM {t} WHERE int > 3")
        .await;
}

#[tokio::test]
async fn of_long_strings_are_bounds_only() {
    let fixture = Fixture::empty();
    let path = fixture.path("long.vectile");
    let sql = format!(
        "COPY (SELECT repeat('x', 5000) || value AS s FROM range(10)) TO '{}' STORED AS VECTILE",
        path.display()
    );
    fixture.run(&sql).await.unwrap();
    fixture.register("long", &path).await;
    let text = fixture
        .answer("SELECT right(max(s), 1) AS m, length(max(s)) AS n FROM long")
        .await;
    assert!(text.contains("| 9 | 5001 |"), "{text}");
    assert_eq!(
        fixture
            .executed("SELECT s FROM long WHERE s = repeat('x', 5000) || '9'")
            .await
            .1,
        1
    );
    assert_eq!(
        fixture
            .executed("SELECT s FROM long WHERE s > repeat('x', 5000) || '8'")
            .await
            .1,
        1
    );
    assert_eq!(
        fixture
            .executed("SELECT s FROM long WHERE s <> repeat('x', 5000) || '9'")
            .await
            .1,
        9
    );
}
