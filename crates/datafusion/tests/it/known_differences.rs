//! Checks the answers in `docs/known-differences.md`.

use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::Result;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::support::Fixture;

const PAGE: &str = include_str!("../../../../docs/known-differences.md");

/// A query of the page.
struct Example<'a> {
    sql: &'a str,
    /// The answer of a session without Vectile, if a session with Vectile is right.
    plain: Option<&'a str>,
    /// The answer of a session with Vectile.
    answers: &'a str,
    right: &'a str,
    upstream: &'a str,
}

fn examples() -> Vec<Example<'static>> {
    let blocks = PAGE.split("```sql\n").skip(1);
    let examples = blocks.map(|block| {
        let (sql, rest) = block.split_once("```").unwrap();
        let line = |name: &str| {
            let start = format!("- {name}: ");
            let value = rest.lines().find_map(|line| line.strip_prefix(&start));
            value.map(|line| line.trim_matches('`'))
        };
        let needed = |name| line(name).unwrap_or_else(|| panic!("no '{name}' behind {sql}"));
        let upstream = needed("upstream");
        match line("DataFusion answers") {
            None => Example {
                sql,
                plain: None,
                answers: needed("answers"),
                right: needed("right"),
                upstream,
            },
            plain => Example {
                sql,
                plain,
                answers: needed("Vectile answers"),
                right: needed("Vectile answers"),
                upstream,
            },
        }
    });
    examples.collect()
}

/// The single value that the last statement returns.
async fn answer(ctx: &SessionContext, sql: &str) -> Result<String> {
    let mut batches = vec![];
    for statement in sql.split(';') {
        batches = ctx.sql(statement).await?.collect().await?;
    }
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 1, "{sql}");
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
    Ok(array_value_to_string(batch.column(0), 0)?)
}

async fn assert_answers(ctx: &SessionContext, sql: &str, answers: &str) {
    let actual = match answer(ctx, sql).await {
        Ok(actual) => actual,
        Err(error) => format!("error: {}", error.strip_backtrace()),
    };
    let is_as_said = match answers.strip_prefix("error: ") {
        Some(error) => actual.starts_with("error: ") && actual.contains(error),
        None => actual == answers,
    };
    assert!(
        is_as_said,
        "the answer is {actual}, and no longer {answers}: see docs/known-differences.md\n{sql}"
    );
}

#[tokio::test]
async fn datafusion_answers_as_the_page_says() {
    let examples = examples();
    let is_mended = |example: &&Example<'_>| example.plain.is_some();
    assert!(examples.len() > 17 && examples.iter().filter(is_mended).count() > 3);
    for example in examples {
        let Example {
            sql,
            plain,
            answers,
            right,
            upstream,
        } = example;
        assert_ne!(plain.unwrap_or(answers), right, "{sql}");
        assert!(
            upstream.contains("](https://github.com/apache/datafusion/")
                || upstream == "no issue found",
            "{sql}"
        );
        assert_answers(&Fixture::empty().ctx, sql, answers).await;
        if let Some(plain) = plain {
            let config = SessionConfig::new().with_target_partitions(2);
            assert_answers(&SessionContext::new_with_config(config), sql, plain).await;
        }
    }
}
