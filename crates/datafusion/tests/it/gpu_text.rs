//! Tests of text in splits, on the emulated GPU.

use crate::support::Fixture;

async fn fixture() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    fixture.add_tables().await;
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    Some(fixture)
}

/// Each of these has an automaton, so that the whole query is on the GPU.
#[tokio::test]
async fn tests_of_text_are_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for test in [
        "text LIKE '%9%'",
        "text LIKE '%number%77%'",
        "text NOT LIKE '%a%'",
        "text ILIKE '%NUMBER 1%'",
        "text LIKE '____ number%'",
        "starts_with(text, 'a') OR text LIKE '%5' OR text IS NULL",
        "text < 'd' AND text >= 'b'",
        "text IN ('alpha number 1', 'x', '')",
        "text NOT IN ('alpha number 1', 'x', '')",
        "text <> 'alpha number 1'",
        "substr(text, 1, 2) IN ('al', 'be', 'x')",
        "strpos(text, 'number 9') > 0",
        "text IS NOT NULL AND int > 3",
        "length(text) = 20 OR name = 'x'",
        "bytes > 'a'",
    ] {
        let sql =
            format!("SELECT count(*) AS n, sum(big) AS s, min(int) AS m FROM {{t}} WHERE {test}");
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        assert!(plan.contains("GpuAggregateExec"), "{plan}");
        let answer = async |table: &str| fixture.answer(&sql.replace("{t}", table)).await;
        let on_gpu = answer("packed").await;
        assert_eq!(on_gpu, answer("plain").await, "{test}");
        let rows = format!("SELECT id FROM {{t}} WHERE {test} ORDER BY id");
        let rows = async |table: &str| fixture.answer(&rows.replace("{t}", table)).await;
        assert_eq!(rows("packed").await, rows("plain").await, "{test}");
    }
}

/// What is no automaton is told once text has been found to be in no dictionary.
#[tokio::test]
async fn other_tests_of_text_are_not() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for sql in [
        "SELECT count(*) FROM packed WHERE upper(text) = 'X'",
        "SELECT count(*) FROM packed WHERE text = repeat('long', 30)",
        "SELECT text, count(*) FROM packed GROUP BY text",
    ] {
        let error = fixture.run(sql).await.unwrap_err().to_string();
        assert!(error.contains("text is stored as"), "{sql}: {error}");
    }
}
