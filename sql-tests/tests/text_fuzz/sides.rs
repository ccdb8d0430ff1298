//! Runs queries over tables in memory and over Vectile files with the same rows.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::MemTable;
use datafusion::common::Result;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use vectile_datafusion::physical_plan;
use vectile_sql_tests::{CompressedTables, GpuRun, Layout, register_vectile};

use crate::data::{Table, Tables};

/// A query that takes longer counts as hung.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Rows shown of a finding.
const SHOWN_ROWS: usize = 5;
const SHOWN_CHARACTERS: usize = 1000;

/// Sessions over the tables of a set.
pub struct Sides {
    /// Plain DataFusion, over rows in memory.
    pub plain: SessionContext,
    /// Vectile files.
    pub compressed: SessionContext,
    _files: CompressedTables,
}

/// An answer, and the plan that ran for it.
pub struct Answer {
    pub plan: Arc<dyn ExecutionPlan>,
    types: Vec<DataType>,
    rows: Vec<String>,
}

impl Sides {
    pub async fn new(tables: &Tables, config: SessionConfig, gpu: Option<&GpuRun>) -> Result<Self> {
        let mut layout = Layout::from_env();
        if let Some(rows) = tables.row_group_rows {
            layout = layout.with_option("row_group_rows", &rows.to_string());
        }
        let sides = Self {
            plain: SessionContext::new_with_config(config.clone()),
            compressed: SessionContext::new_with_config(config),
            _files: CompressedTables::try_new(layout)?,
        };
        register_vectile(&sides.compressed, gpu)?;
        for table in [&tables.facts, &tables.dimension] {
            for ctx in [&sides.plain, &sides.compressed] {
                let rows = MemTable::try_new(table.rows.schema(), vec![vec![table.rows.clone()]])?;
                ctx.register_table(table.name, Arc::new(rows))?;
            }
            sides
                ._files
                .replace_in_memory(&sides.compressed, &pins(table))
                .await?;
        }
        Ok(sides)
    }
}

/// Pins as a comment of SQL.
fn pins(table: &Table) -> String {
    let pins = table
        .pins
        .iter()
        .map(|(column, encoding)| format!("{column}={encoding}"));
    format!("/* encoding: {} */", pins.collect::<Vec<_>>().join(", "))
}

/// The answer of one side; errors and panics are text.
pub async fn answer(ctx: &SessionContext, sql: &str) -> Result<Answer, String> {
    let (ctx, sql) = (ctx.clone(), sql.to_owned());
    let answer = tokio::spawn(async move { answer_or_error(&ctx, &sql).await });
    match tokio::time::timeout(TIMEOUT, answer).await {
        Err(_) => Err(format!("no answer in {TIMEOUT:?}")),
        Ok(Err(panic)) => Err(format!("panicked: {panic}")),
        Ok(Ok(answer)) => answer.map_err(|error| error.strip_backtrace()),
    }
}

async fn answer_or_error(ctx: &SessionContext, sql: &str) -> Result<Answer> {
    let (state, plan) = ctx.sql(sql).await?.into_parts();
    let plan = physical_plan(&state, &plan).await?;
    let batches = collect(Arc::clone(&plan), state.task_ctx()).await?;
    let types = plan
        .schema()
        .fields()
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    let mut rows = vec![];
    for batch in &batches {
        rows.extend(rows_of(batch)?);
    }
    Ok(Answer { plan, types, rows })
}

/// Rows as text that distinguishes nulls and strings. Validates the arrays.
fn rows_of(batch: &RecordBatch) -> Result<Vec<String>, ArrowError> {
    let options = FormatOptions::new();
    let columns = batch.columns().iter();
    let columns: Vec<_> = columns
        .map(|array| {
            array.to_data().validate_full()?;
            Ok((array, ArrayFormatter::try_new(array, &options)?))
        })
        .collect::<Result<_, ArrowError>>()?;
    let rows = (0..batch.num_rows()).map(|row| {
        let values = columns
            .iter()
            .map(|(array, values)| match array.is_null(row) {
                true => "NULL".to_owned(),
                false => format!("{:?}", values.value(row).to_string()),
            });
        values.collect::<Vec<_>>().join(", ")
    });
    Ok(rows.collect())
}

impl Answer {
    /// A description of how this answer differs from the `expected` one.
    pub fn difference(&self, expected: &Self, is_ordered: bool) -> Option<String> {
        if self.types != expected.types {
            return Some(format!("types {:?}, not {:?}", self.types, expected.types));
        }
        let rows = |answer: &Self| {
            let mut rows = answer.rows.clone();
            if !is_ordered {
                rows.sort_unstable();
            }
            rows
        };
        let (rows, expected) = (rows(self), rows(expected));
        if rows == expected {
            return None;
        }
        let same = rows
            .iter()
            .zip(&expected)
            .take_while(|(row, expected)| row == expected)
            .count();
        let shown = |rows: &[String]| -> String {
            let rows = rows.iter().skip(same).take(SHOWN_ROWS);
            rows.map(|row| {
                format!(
                    "  {}\n",
                    row.chars().take(SHOWN_CHARACTERS).collect::<String>()
                )
            })
            .collect()
        };
        Some(format!(
            "{} rows, not {}; behind {same} equal ones:\n{}  instead of\n{}",
            rows.len(),
            expected.len(),
            shown(&rows),
            shown(&expected)
        ))
    }
}
