//! Runs a sqllogictest file record by record.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion_sqllogictest::{DFColumnType, df_value_validator, value_normalizer};
use futures::FutureExt;
use sqllogictest::{
    MakeConnection, Record, RecordOutput, Runner, TestError, TestErrorKind, parse_file,
    strict_column_validator,
};

use crate::engine::{Engine, first_word};

/// A record that takes longer counts as hung.
const RECORD_TIMEOUT: Duration = Duration::from_secs(300);

/// The outcome of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As the file expects, in order; or in another order if the query has none.
    Agrees,
    /// Not run: plans are expected to differ.
    PlanText,
    /// Other rows than expected.
    OtherRows {
        /// The query, to decide if the order of rows matters.
        sql: String,
        /// The rows, one per line.
        actual: String,
        /// The message for people.
        message: String,
    },
    /// An error, or an error other than expected, or none where one was expected, or a panic.
    Fails(String),
}

/// One record and its outcome.
#[derive(Debug)]
pub struct RecordRun {
    /// The line, or the included file and its line: the name of a record in lists and reports.
    pub location: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// True if it read a Vectile table.
    pub read_compressed: bool,
}

/// All statements and queries of a file, in order.
pub type FileRun = Vec<RecordRun>;

/// Runs all records of a file; a record that fails does not stop the next one.
pub async fn run_file(path: &Path, engine: &Engine) -> Result<FileRun> {
    let mut runner = new_runner(engine);
    let mut runs = vec![];
    for record in parse(path)? {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        let judged = judged(&record, path);
        let outcome = match &judged {
            Some((_, sql)) if first_word(sql) == "explain" => Outcome::PlanText,
            _ => match run_record(&mut runner, record).await {
                Some(outcome) => outcome,
                None => continue,
            },
        };
        let read_compressed = engine.take_read_compressed();
        if let Some((location, _)) = judged {
            runs.push(RecordRun {
                location,
                outcome,
                read_compressed,
            });
        }
    }
    runner.shutdown_async().await;
    Ok(runs)
}

/// The SQL of all statements and queries of a file.
pub fn statements(path: &Path) -> Result<Vec<String>> {
    let records = parse(path)?;
    Ok(records
        .iter()
        .filter_map(|record| judged(record, path))
        .map(|(_, sql)| sql)
        .collect())
}

/// Replaces the expected answers in a file by those of the engine.
pub async fn complete_file(path: &Path, engine: &Engine) -> Result<()> {
    let mut runner = new_runner(engine);
    let completed = runner.update_test_file(
        path,
        " ",
        df_value_validator,
        value_normalizer,
        strict_column_validator,
    );
    completed
        .await
        .map_err(|e| exec_datafusion_err!("completing {}: {e}", path.display()))
}

/// Returns true if two results hold the same rows, in the same order if the query has one.
pub fn same_rows(sql: &str, expected: &str, actual: &str) -> bool {
    let ordered =
        |rows: &str| -> Vec<String> { rows.lines().map(|row| row.trim_end().to_owned()).collect() };
    let (mut expected, mut actual) = (ordered(expected), ordered(actual));
    if !orders_rows(sql) {
        expected.sort_unstable();
        actual.sort_unstable();
    }
    expected == actual
}

fn new_runner(
    engine: &Engine,
) -> Runner<Engine, impl MakeConnection<Conn = Engine, MakeFuture: Send> + use<>> {
    let connection = engine.clone();
    let mut runner = Runner::new(move || {
        let engine = connection.clone();
        async move { Ok(engine) }
    });
    runner.add_label("Datafusion");
    runner.set_var("FORMAT".into(), engine.format());
    runner.with_column_validator(strict_column_validator);
    runner.with_normalizer(value_normalizer);
    runner.with_validator(df_value_validator);
    runner
}

fn parse(path: &Path) -> Result<Vec<Record<DFColumnType>>> {
    parse_file(path).map_err(|e| DataFusionError::External(Box::new(e)))
}

/// The location and SQL of records that have an outcome.
fn judged(record: &Record<DFColumnType>, path: &Path) -> Option<(String, String)> {
    let (Record::Statement { loc, sql, .. }
    | Record::Query { loc, sql, .. }
    | Record::Let { loc, sql, .. }) = record
    else {
        return None;
    };
    let line = loc.line();
    let included = Path::new(loc.file())
        .file_name()
        .filter(|_| Path::new(loc.file()) != path);
    let location = match included {
        Some(file) => format!("{}:{line}", file.to_string_lossy()),
        None => line.to_string(),
    };
    Some((location, sql.clone()))
}

async fn run_record(
    runner: &mut Runner<Engine, impl MakeConnection<Conn = Engine, MakeFuture: Send>>,
    record: Record<DFColumnType>,
) -> Option<Outcome> {
    let run = AssertUnwindSafe(runner.run_async(record)).catch_unwind();
    match tokio::time::timeout(RECORD_TIMEOUT, run).await {
        Err(_) => Some(Outcome::Fails(format!("no answer in {RECORD_TIMEOUT:?}"))),
        Ok(Err(panic)) => Some(Outcome::Fails(format!(
            "panicked: {}",
            panic_message(&*panic)
        ))),
        Ok(Ok(Ok(RecordOutput::Nothing))) => None,
        Ok(Ok(Ok(_))) => Some(Outcome::Agrees),
        Ok(Ok(Err(error))) => Some(outcome_of(error)),
    }
}

fn outcome_of(error: TestError) -> Outcome {
    match error.kind() {
        TestErrorKind::QueryResultMismatch {
            sql,
            expected,
            actual,
        } if same_rows(&sql, &expected, &actual) => Outcome::Agrees,
        TestErrorKind::QueryResultMismatch { sql, actual, .. } => Outcome::OtherRows {
            sql,
            actual,
            message: error.to_string(),
        },
        _ => Outcome::Fails(error.to_string()),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
        .to_owned()
}

/// Returns true if the statement has an ORDER BY of its own; one in a subquery orders nothing.
fn orders_rows(sql: &str) -> bool {
    let Ok(statements) = DFParser::parse_sql(sql) else {
        return sql.to_ascii_lowercase().contains("order by");
    };
    statements.iter().any(|statement| match statement {
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Query(query) => query.order_by.is_some(),
            _ => true,
        },
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_in_order_only_where_the_query_orders_them() {
        assert!(same_rows("SELECT a FROM t", "1\n2", "2\n1"));
        assert!(!same_rows("SELECT a FROM t", "1\n2", "2\n2"));
        assert!(!same_rows("SELECT a FROM t ORDER BY a", "1\n2", "2\n1"));
        assert!(same_rows(
            "SELECT a FROM (SELECT a FROM t ORDER BY a)",
            "1\n2",
            "2\n1"
        ));
    }
}
