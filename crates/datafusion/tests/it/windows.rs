//! Window functions of positions, beside DataFusion's operator over the same rows in small batches.

use crate::support::Fixture;

/// Functions over windows `w`.
const FUNCTIONS: &[&str] = &[
    "row_number() OVER w, rank() OVER w, dense_rank() OVER w",
    "lead(id) OVER w, lag(id) OVER w",
    "lead(name, 3) OVER w, lag(name, 2) OVER w, rank() OVER w",
    "lag(float, 5) OVER w, row_number() OVER w",
    "lead(int, -2) OVER w, lag(text, -4) OVER w",
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
    let rows = "SELECT id, int, name, flag, float, text FROM packed WHERE id < 700";
    for size in [1, 7, 64, 8192] {
        let set = format!("SET datafusion.execution.batch_size = {size}");
        fixture.run(&set).await.unwrap();
        for window in WINDOWS {
            for functions in FUNCTIONS {
                let sql = format!(
                    "SELECT id, {functions} FROM ({rows}) t WINDOW w AS ({window}) ORDER BY id"
                );
                fixture.run("SET vectile.fuse = auto").await.unwrap();
                let plan = fixture.plan(&sql).await;
                assert!(plan.contains("PositionWindowExec"), "{sql}: {plan}");
                let ours = fixture.answer(&sql).await;
                fixture.run("SET vectile.fuse = off").await.unwrap();
                let plan = fixture.plan(&sql).await;
                assert!(plan.contains("BoundedWindowAggExec"), "{sql}: {plan}");
                assert_eq!(ours, fixture.answer(&sql).await, "{size}: {sql}");
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
        "sum(id)",
        "first_value(id)",
    ] {
        let sql = format!("SELECT {function} OVER (PARTITION BY name ORDER BY id) FROM packed");
        let plan = fixture.plan(&sql).await;
        assert!(!plan.contains("PositionWindowExec"), "{sql}: {plan}");
    }
}
