//! What `docs/known-differences.md` says of DataFusion's answers.

use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use crate::support::Fixture;

const PAGE: &str = include_str!("../../../../docs/known-differences.md");

/// A query of the page.
struct Example<'a> {
    sql: &'a str,
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
            let found = rest.lines().find_map(|line| line.strip_prefix(&start));
            found.unwrap_or_else(|| panic!("no '{name}' behind {sql}"))
        };
        Example {
            sql,
            answers: line("answers").trim_matches('`'),
            right: line("right").trim_matches('`'),
            upstream: line("upstream"),
        }
    });
    examples.collect()
}

/// The only value that the last statement answers.
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

#[tokio::test]
async fn datafusion_answers_as_the_page_says() {
    let examples = examples();
    assert!(examples.len() > 9);
    for example in examples {
        let Example {
            sql,
            answers,
            right,
            upstream,
        } = example;
        assert_ne!(answers, right, "{sql}");
        assert!(
            upstream.contains("](https://github.com/apache/datafusion/"),
            "{sql}"
        );
        let found = match answer(&Fixture::empty().ctx, sql).await {
            Ok(found) => found,
            Err(error) => format!("error: {}", error.strip_backtrace()),
        };
        let is_as_said = match answers.strip_prefix("error: ") {
            Some(error) => found.starts_with("error: ") && found.contains(error),
            None => found == answers,
        };
        assert!(
            is_as_said,
            "the answer is {found}, and no longer {answers}: see docs/known-differences.md\n{sql}"
        );
    }
}
