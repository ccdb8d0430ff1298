//! The column, row and order options of `convert`.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, SchemaRef};
use clap::Args;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, ExprSchemable, SortExpr, Volatility};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};

use crate::columns::{ColumnList, column_named, items};
use crate::copy::{Batches, timed};
use crate::error::{CliError, Result};
use crate::progress::Progress;

/// Memory for sorting, in addition to that of reading and writing.
pub const SORT_BYTES: usize = 1 << 30;

/// Which columns and rows to take over, and in which order.
#[derive(Debug, Default, Args)]
pub struct ArrangeArgs {
    /// Take over only these columns, in this order
    #[arg(long, value_name = "COLUMN,...", allow_hyphen_values = true)]
    columns: Option<ColumnList>,
    /// Take over only the rows for which this SQL condition is true
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Sort the rows of each OUT file by these columns
    #[arg(
        long,
        value_name = "COLUMN [DESC] [NULLS FIRST|LAST],...",
        allow_hyphen_values = true
    )]
    sort_by: Option<SortKeys>,
}

/// Columns to sort by, the first one first.
#[derive(Clone, Debug)]
struct SortKeys(Vec<SortKey>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SortKey {
    column: String,
    ascending: bool,
    nulls_first: bool,
}

impl FromStr for SortKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = items(text)?.into_iter().map(|item| {
            let (column, words) =
                item.name_and_words(&["asc", "desc", "nulls", "first", "last"])?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (ascending, nulls) = match words.as_slice() {
                ["asc", nulls @ ..] => (true, nulls),
                ["desc", nulls @ ..] => (false, nulls),
                nulls => (true, nulls),
            };
            let nulls_first = match nulls {
                // as in SQL, where nulls are larger than everything else
                [] => !ascending,
                ["nulls", "first"] => true,
                ["nulls", "last"] => false,
                _ => return Err(format!("expected {column} [ASC|DESC] [NULLS FIRST|LAST]")),
            };
            Ok(SortKey {
                column,
                ascending,
                nulls_first,
            })
        });
        keys.collect::<Result<_, _>>().map(SortKeys)
    }
}

/// The operations on the rows of a table.
#[derive(Debug)]
pub struct Arrangement {
    /// The columns to read: those to write, then those that only the condition and the order need.
    pub read: SchemaRef,
    /// The columns to write.
    pub schema: SchemaRef,
    condition: Option<Expr>,
    order: Vec<SortExpr>,
}

impl ArrangeArgs {
    #[cfg(test)]
    pub fn only_where(condition: &str) -> Self {
        Self {
            condition: Some(condition.into()),
            ..Self::default()
        }
    }

    /// Resolves the options for a table of `schema`.
    pub fn of(&self, context: &SessionContext, schema: &SchemaRef) -> Result<Arrangement> {
        let mut columns = match &self.columns {
            Some(columns) => columns.indices("--columns", schema)?,
            None => (0..schema.fields().len()).collect(),
        };
        let written = Arc::new(schema.project(&columns)?);
        let mut needed: Vec<usize> = Vec::new();
        let condition = match &self.condition {
            Some(text) => Some(condition(context, text, schema, &mut needed)?),
            None => None,
        };
        let mut order = Vec::new();
        for key in self.sort_by.iter().flat_map(|keys| &keys.0) {
            let index = column_named("--sort-by", schema, &key.column)?;
            let column = column_of(schema.field(index));
            order.push(column.sort(key.ascending, key.nulls_first));
            needed.push(index);
        }
        for index in needed {
            if !columns.contains(&index) {
                columns.push(index);
            }
        }
        Ok(Arrangement {
            read: Arc::new(schema.project(&columns)?),
            schema: written,
            condition,
            order,
        })
    }
}

/// The column of that name.
pub fn column_of(field: &Field) -> Expr {
    Expr::Column(Column::new_unqualified(field.name()))
}

/// Parses the condition; adds its columns to `needed`.
fn condition(
    context: &SessionContext,
    text: &str,
    schema: &SchemaRef,
    needed: &mut Vec<usize>,
) -> Result<Expr> {
    let table = DFSchema::try_from(Arc::clone(schema))?;
    let parsed = context.parse_sql_expr(text, &table);
    let condition = parsed.map_err(|error| not_a_condition(text, error.into()))?;
    let data_type = condition.get_type(&table);
    let data_type = data_type.map_err(|error| not_a_condition(text, error.into()))?;
    if !matches!(data_type, DataType::Boolean | DataType::Null) {
        let error = format!("it is {data_type}, not true or false");
        return Err(not_a_condition(text, CliError::failed(error)));
    }
    let is_of_rows = |expr: &Expr| {
        matches!(
            expr,
            Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
        )
    };
    if condition.exists(|expr| Ok(is_of_rows(expr)))? {
        let error =
            "it may be about the columns of one row only, without aggregates and subqueries";
        return Err(not_a_condition(text, CliError::failed(error)));
    }
    for column in condition.column_refs() {
        needed.push(schema.index_of(column.name())?);
    }
    needed.sort_unstable();
    Ok(condition)
}

fn not_a_condition(text: &str, error: CliError) -> CliError {
    error
        .context(format!("--where '{text}'"))
        .hint("a condition is SQL, such as \"year = 2013 AND name LIKE 'A%'\"; names with capitals need double quotes")
}

/// Arranged rows.
pub struct Arranged {
    /// The rows.
    pub batches: Batches,
    /// Counts rows as they are written.
    pub progress: Progress,
    /// Nanoseconds spent on reading, if rows were also filtered or sorted.
    pub reading: Option<Arc<AtomicU64>>,
}

impl Arrangement {
    /// The condition on rows to write, if its result for a row never changes.
    pub fn condition_of_rows(&self) -> Option<&Expr> {
        let depends_on_rows_alone = |expr: &Expr| match expr {
            Expr::ScalarFunction(function) => {
                function.func.signature().volatility == Volatility::Immutable
            }
            _ => true,
        };
        let is_wanted = |condition: &&Expr| {
            let other = condition.exists(|expr| Ok(!depends_on_rows_alone(expr)));
            other.is_ok_and(|is_other| !is_other)
        };
        self.condition.as_ref().filter(is_wanted)
    }

    /// Arranges `batches` of about `rows` rows for the file `name`. Sorting takes the memory that `context` has, and
    /// then the disk.
    pub async fn apply(
        self,
        context: &SessionContext,
        batches: Batches,
        name: &str,
        rows: Option<u64>,
    ) -> Result<Arranged> {
        if self.condition.is_none() && self.order.is_empty() {
            return Ok(Arranged {
                batches,
                progress: Progress::rows(name, rows),
                reading: None,
            });
        }
        let reading = Arc::new(AtomicU64::new(0));
        let progress = Progress::rows(name, rows);
        // A sort outputs rows only after it has read all; otherwise only rows read are counted.
        let writing = match self.order.is_empty() {
            true => Progress::hidden(),
            false => Progress::later(name, None),
        };
        let counted = timed(batches, Arc::clone(&reading))
            .inspect_ok(move |batch| progress.advance(batch.num_rows()));
        let input = Once {
            schema: Arc::clone(&self.read),
            batches: Mutex::new(Some(counted.boxed())),
        };
        let table = StreamingTable::try_new(Arc::clone(&self.read), vec![Arc::new(input)])?;
        let mut frame = context.read_table(Arc::new(table))?;
        if let Some(condition) = self.condition {
            let text = condition.to_string();
            let filtered = frame.filter(condition);
            frame = filtered.map_err(|error| not_a_condition(&text, error.into()))?;
        }
        if !self.order.is_empty() {
            frame = frame.sort(self.order)?;
        }
        if self.schema.fields().len() < self.read.fields().len() {
            let written = self.schema.fields().iter();
            frame = frame.select(written.map(|field| column_of(field)))?;
        }
        let schema = self.schema;
        let batches = frame.execute_stream().await?.map(move |batch| {
            let batch = batch?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let (schema, columns) = (Arc::clone(&schema), batch.columns().to_vec());
            Ok(RecordBatch::try_new_with_options(
                schema, columns, &options,
            )?)
        });
        Ok(Arranged {
            batches: batches.boxed(),
            progress: writing,
            reading: Some(reading),
        })
    }
}

/// A table whose rows can be read once.
struct Once {
    schema: SchemaRef,
    batches: Mutex<Option<Batches>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self
            .batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let second_read = || {
            let error = CliError::failed("the inputs can be read only once");
            futures::stream::once(async { Err(error) }).boxed()
        };
        let batches = batches.unwrap_or_else(second_read);
        let batches = batches.map_err(|error| DataFusionError::External(Box::new(error)));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        ))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::compute::concat_batches;
    use arrow::datatypes::Schema;

    use super::*;
    use crate::session;

    #[test]
    fn sort_keys_are_written_as_in_sql() {
        let key = |column: &str, ascending, nulls_first| SortKey {
            column: column.into(),
            ascending,
            nulls_first,
        };
        let SortKeys(keys) = "a, b c DESC ,\"d,\"\"e\" desc nulls last,desc,f NULLS FIRST"
            .parse()
            .unwrap();
        assert_eq!(
            keys,
            [
                key("a", true, false),
                key("b c", false, true),
                key("d,\"e", false, false),
                key("desc", true, false),
                key("f", true, true),
            ]
        );
        for wrong in ["", "a,", "a desc first", "a nulls", "\"a", "\"a\"b desc"] {
            assert!(wrong.parse::<SortKeys>().is_err(), "{wrong}");
        }
    }

    /// Memory suffices for a part of the rows only.
    #[tokio::test(flavor = "multi_thread")]
    async fn sorting_goes_on_to_disk() {
        const ROWS: i64 = 1 << 20;
        let field = |name| Field::new(name, DataType::Int64, false);
        let schema: SchemaRef = Arc::new(Schema::new(vec![field("a"), field("b")]));
        let of = Arc::clone(&schema);
        let batches = (0..ROWS).step_by(8192).map(move |start| {
            let a = Int64Array::from_iter_values((start..start + 8192).map(|i| (i * 77) % ROWS));
            let b = Int64Array::from_iter_values(start..start + 8192);
            Ok(RecordBatch::try_new(
                Arc::clone(&of),
                vec![Arc::new(a), Arc::new(b)],
            )?)
        });
        let context = session::for_arranging(12 << 20).unwrap();
        let args = ArrangeArgs {
            sort_by: Some("a DESC".parse().unwrap()),
            ..ArrangeArgs::default()
        };
        let arrangement = args.of(&context, &schema).unwrap();
        let batches = futures::stream::iter(batches).boxed();
        let arranged = arrangement.apply(&context, batches, "t", None);
        let sorted: Vec<_> = arranged.await.unwrap().batches.try_collect().await.unwrap();
        let sorted = concat_batches(&schema, &sorted).unwrap();
        let expected = Int64Array::from_iter_values((0..ROWS).rev());
        assert_eq!(sorted.column(0).as_ref(), &expected);
        let spilled = context.runtime_env().disk_manager.used_disk_space();
        assert_eq!(spilled, 0, "spilled files are gone");
    }
}
