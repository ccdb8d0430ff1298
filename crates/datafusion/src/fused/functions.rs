//! Loads columns to the GPU and unloads them: table functions in SQL, and functions in Rust.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, internal_datafusion_err, plan_datafusion_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionContext;

use super::device::Gpu;
use super::preload::{Load, PinnedColumn, pinned};

const LOAD: &str = "vectile_load";
const UNLOAD: &str = "vectile_unload";
const PINNED: &str = "vectile_pinned";

/// The table functions of SQL, by name.
pub(crate) fn functions(gpu: &Gpu) -> [(&'static str, Arc<dyn TableFunctionImpl>); 3] {
    [LOAD, UNLOAD, PINNED].map(|name| {
        let gpu = gpu.clone();
        (name, Arc::new(Function { name, gpu }) as _)
    })
}

/// Loads columns of a table of Vectile files to the GPU, and keeps them there until they are unloaded. If `columns` is
/// empty, loads all columns that the GPU supports. Unpins earlier versions of the files.
/// `SELECT * FROM vectile_load(table, column, ..)` does the same in SQL.
///
/// Returns a row for each column. [`not_on_gpu`](PinnedColumn::not_on_gpu) is set for columns that cannot be loaded.
/// Sessions that use the same GPU share pinned columns.
///
/// ```no_run
/// use datafusion::prelude::SessionContext;
/// use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt};
///
/// # async fn start() -> datafusion::error::Result<()> {
/// let ctx = SessionContext::new();
/// vectile_datafusion::register(&ctx)?;
/// let options = VectileReadOptions::default();
/// ctx.register_vectile("lineorder", "lineorder.vectile", options).await?;
///
/// let columns = ["lo_discount", "lo_quantity"];
/// for column in vectile_datafusion::load_columns(&ctx, "lineorder", &columns).await? {
///     println!("{}: {} bytes", column.column, column.bytes);
/// }
/// vectile_datafusion::unload_columns(&ctx, Some("lineorder"), &[]).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if there is no such table or column, if no GPU can be used, if the columns do not fit its memory,
/// or if reading fails. Then no column is newly pinned.
pub async fn load_columns(
    ctx: &SessionContext,
    table: &str,
    columns: &[&str],
) -> Result<Vec<PinnedColumn>> {
    let state = ctx.state();
    let load = Load::plan(&state, gpu_of(ctx)?, table, &owned(columns)).await?;
    load.run(&state.task_ctx()).await
}

/// Unloads columns that [`load_columns`] has loaded: all columns of a table if `columns` is empty, of all tables if
/// `table` is `None`. Returns the unloaded columns. Their memory is free as soon as no query uses it.
///
/// # Errors
///
/// Returns an error if Vectile is not registered in the session, or if the GPU is lost.
pub async fn unload_columns(
    ctx: &SessionContext,
    table: Option<&str>,
    columns: &[&str],
) -> Result<Vec<PinnedColumn>> {
    let (gpu, config) = (gpu_of(ctx)?, ctx.copied_config());
    pinned(gpu, table, owned(columns), config.options(), true).await
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The GPU that the session was registered with.
fn gpu_of(ctx: &SessionContext) -> Result<Gpu> {
    let function = ctx.table_function(LOAD)?;
    let function: &dyn Any = function.function().as_ref();
    let function = function.downcast_ref::<Function>();
    let gpu = function.map(|function| function.gpu.clone());
    gpu.ok_or_else(|| plan_datafusion_err!("{LOAD} is not Vectile's"))
}

/// A table function.
#[derive(Debug)]
struct Function {
    name: &'static str,
    gpu: Gpu,
}

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let names = args.exprs().iter().map(|arg| match arg {
            Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
            _ => None,
        });
        let Some(mut names) = names.collect::<Option<Vec<String>>>() else {
            return plan_err!("{} takes names, as strings", self.name);
        };
        if self.name == LOAD && names.is_empty() {
            return plan_err!(
                "{LOAD} takes the name of a table, and names of its columns if not all"
            );
        }
        let columns = names.split_off(names.len().min(1));
        Ok(Arc::new(Call {
            name: self.name,
            gpu: self.gpu.clone(),
            table: names.pop(),
            columns,
            schema: schema_of(self.name),
            load: None,
        }))
    }
}

/// A call: a table whose rows are computed when it is read.
#[derive(Clone, Debug)]
struct Call {
    name: &'static str,
    gpu: Gpu,
    table: Option<String>,
    columns: Vec<String>,
    schema: SchemaRef,
    /// The load, once planned; `None` for other functions.
    load: Option<Load>,
}

#[async_trait]
impl TableProvider for Call {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut call = self.clone();
        if let Some(table) = self.table.as_ref().filter(|_| self.name == LOAD) {
            let state = state.as_any().downcast_ref::<SessionState>();
            let state = state.ok_or_else(|| internal_datafusion_err!("no session state"))?;
            let load = Load::plan(state, self.gpu.clone(), table, &self.columns);
            call.load = Some(load.await?);
        }
        let (schema, rows) = (Arc::clone(&self.schema), vec![Arc::new(call) as _]);
        let plan = StreamingTableExec::try_new(schema, rows, projection, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

impl Call {
    async fn run(self, context: &Arc<TaskContext>) -> Result<RecordBatch> {
        let columns = match self.load {
            Some(load) => load.run(context).await?,
            None => {
                let (table, config) = (self.table.as_deref(), context.session_config().options());
                pinned(self.gpu, table, self.columns, config, self.name == UNLOAD).await?
            }
        };
        batch(&columns, self.schema)
    }
}

impl PartitionStream for Call {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Starts when rows are polled.
    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (call, schema) = (self.clone(), Arc::clone(&self.schema));
        let rows = futures::stream::once(async move { call.run(&context).await });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// Schema of a function's rows, one for each column.
fn schema_of(name: &str) -> SchemaRef {
    let mut fields = vec![
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("row_groups", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
    ];
    if name == LOAD {
        fields.push(Field::new("not_on_gpu", DataType::Utf8, true));
    }
    Arc::new(Schema::new(fields))
}

fn batch(columns: &[PinnedColumn], schema: SchemaRef) -> Result<RecordBatch> {
    let rows = columns.iter();
    let tables = rows.clone().map(|row| Some(&row.table));
    let names = rows.clone().map(|row| Some(&row.column));
    let row_groups = rows.clone().map(|row| row.row_groups as u64);
    let bytes = rows.clone().map(|row| row.bytes);
    let reasons = rows.map(|row| row.not_on_gpu.as_ref());
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(tables)),
        Arc::new(StringArray::from_iter(names)),
        Arc::new(UInt64Array::from_iter(row_groups)),
        Arc::new(UInt64Array::from_iter(bytes)),
        Arc::new(StringArray::from_iter(reasons)),
    ];
    arrays.truncate(schema.fields().len());
    Ok(RecordBatch::try_new(schema, arrays)?)
}
