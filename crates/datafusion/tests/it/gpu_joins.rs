//! Joins with filters beside their keys, evaluated per match, entirely on the device.

use vectile_datafusion::Gpu;

use crate::support::{Fixture, emulator};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_meet_any_condition() {
    let Some(engine) = emulator() else { return };
    let fixture = Fixture::on(Gpu::new(engine));
    let set = async |value: &str| {
        let sql = format!("SET vectile.gpu = '{value}'");
        fixture.run(&sql).await.unwrap();
    };
    for (name, rows) in [
        (
            "sales",
            "value % 97 AS k, value % 50 AS a, value AS v FROM generate_series(1, 4000)",
        ),
        // Each key occurs six or seven times.
        (
            "offers",
            "value % 60 AS o_k, value % 31 AS b, value % 7 AS c FROM generate_series(1, 400)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    let both = "o_k = k AND b < a AND c > a % 5";
    for (kind, query) in [
        (
            "semi with a condition",
            format!("WHERE EXISTS (SELECT 1 FROM offers WHERE {both})"),
        ),
        (
            "anti with a condition",
            format!("WHERE NOT EXISTS (SELECT 1 FROM offers WHERE {both})"),
        ),
        (
            "outer with a condition",
            format!("LEFT JOIN offers ON {both} WHERE coalesce(c, 3) < 5"),
        ),
        (
            "outer",
            "WHERE EXISTS (SELECT 1 FROM offers WHERE o_k = k) OR a < 3".into(),
        ),
        (
            "inner",
            "JOIN offers ON o_k = k WHERE b = 3 OR a > 40".into(),
        ),
    ] {
        let query = format!("SELECT count(*), sum(v), sum(a * v) FROM sales {query}");
        set("off").await;
        let expected = fixture.answer(&query).await;
        set("require").await;
        assert_eq!(fixture.answer(&query).await, expected, "{query}");
        let plan = fixture.answer(&format!("EXPLAIN {query}")).await;
        assert!(plan.contains(&format!("({kind})")), "{plan}");
    }
}
