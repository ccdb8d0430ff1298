//! Options of CSV and JSON files: types of columns, and the syntax of CSV.

use std::sync::Arc;

use arrow::array::{Array, Datum, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Fields, SchemaRef};
use clap::Args;
use datafusion::common::config::CsvOptions;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::SessionContext;

use crate::columns::no_column;
use crate::error::{CliError, Result};

/// Types of columns, and the syntax of CSV.
#[derive(Clone, Debug, Default, Args)]
pub struct TextArgs {
    /// Types of columns of CSV and JSON files, as in CREATE TABLE; those of others are inferred
    #[arg(long, value_name = "COLUMN TYPE,...")]
    schema: Option<String>,
    /// Text between the values of CSV files; '\t' is a tab
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter, allow_hyphen_values = true)]
    csv_delimiter: Option<u8>,
    /// CSV files have no line with the names of columns
    #[arg(long)]
    csv_no_header: bool,
    /// The text of nulls in CSV files, which is otherwise the empty text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    csv_null: Option<String>,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("expected one character of one byte, no quote and no line end".into()),
    }
}

/// Resolved [`TextArgs`], as an extension of a session.
#[derive(Clone, Debug, Default)]
pub struct TextOptions {
    /// The columns with given types.
    pub types: Fields,
    arguments: TextArgs,
}

impl TextArgs {
    /// Applies the options to tables that the session opens by their paths.
    pub async fn apply(&self, context: &SessionContext) -> Result<()> {
        let types = match &self.schema {
            Some(types) => parse_types(context, types).await?,
            None => Fields::empty(),
        };
        let options = TextOptions {
            types,
            arguments: self.clone(),
        };
        let state = context.state_ref();
        state.write().config_mut().set_extension(Arc::new(options));
        Ok(())
    }

    /// Fails if `schema`, of CSV and JSON files if `is_text`, lacks a column that has a given type.
    pub fn check(&self, context: &SessionContext, schema: &SchemaRef, is_text: bool) -> Result<()> {
        if self.schema.is_some() && !is_text {
            let only = "--schema is for CSV and JSON files; the types of others are in the files";
            return Err(CliError::Usage(only.into()));
        }
        let options = TextOptions::of(&context.state());
        let mut types = options.types.iter();
        match types.find(|field| schema.index_of(field.name()).is_err()) {
            Some(missing) => Err(no_column("--schema", schema, missing.name())),
            None => Ok(()),
        }
    }

    /// Refuses values that would be read as nulls because their text is that of nulls.
    pub fn check_nulls(&self, rows: &RecordBatch) -> Result<()> {
        let Some(null) = &self.csv_null else {
            return Ok(());
        };
        let text = StringArray::new_scalar(null.as_str());
        for (column, field) in rows.columns().iter().zip(rows.schema_ref().fields()) {
            // Values of most types are never written as this text.
            let value = cast(text.get().0, field.data_type());
            let may_be_null_text = value.is_ok_and(|value| value.logical_null_count() == 0);
            if may_be_null_text && eq(&cast(column, &DataType::Utf8)?, &text)?.true_count() > 0 {
                return Err(CliError::failed(format!(
                    "column {} has the text '{null}', which --csv-null gives to nulls",
                    field.name()
                )));
            }
        }
        Ok(())
    }

    /// The delimiter of CSV files.
    pub fn delimiter(&self) -> u8 {
        self.csv_delimiter.unwrap_or(b',')
    }

    /// Returns true if CSV files have a line with the names of columns.
    pub fn has_header(&self) -> bool {
        !self.csv_no_header
    }

    /// The text of nulls in CSV files.
    pub fn null(&self) -> &str {
        self.csv_null.as_deref().unwrap_or_default()
    }
}

impl TextOptions {
    /// The options of a session.
    pub fn of(state: &SessionState) -> Arc<Self> {
        let options = state.config().get_extension::<Self>();
        options.unwrap_or_default()
    }

    /// Applies the options given here.
    pub fn csv(&self, options: CsvOptions) -> CsvOptions {
        let given = &self.arguments;
        CsvOptions {
            has_header: Some(given.has_header()),
            delimiter: given.csv_delimiter.unwrap_or(options.delimiter),
            null_regex: match &given.csv_null {
                Some(text) => Some(exactly(text)),
                None => options.null_regex,
            },
            ..options
        }
    }
}

/// The regular expression that matches exactly one text.
fn exactly(text: &str) -> String {
    format!("^{}$", regex::escape(text))
}

async fn parse_types(context: &SessionContext, types: &str) -> Result<Fields> {
    let wrong = |what: &dyn std::fmt::Display| {
        CliError::Usage(format!("--schema: expected COLUMN TYPE,...: {what}"))
    };
    let create = format!("CREATE EXTERNAL TABLE t ({types}) STORED AS CSV LOCATION ''");
    let plan = context.state().create_logical_plan(&create).await;
    match plan.map_err(|error| wrong(&error))? {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create))
            if create.constraints.is_empty() && create.column_defaults.is_empty() =>
        {
            Ok(create.schema.as_arrow().fields().clone())
        }
        _ => Err(wrong(&"names and types only")),
    }
}
