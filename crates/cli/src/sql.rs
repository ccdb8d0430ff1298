//! `vectile sql`: one statement, a script, or an interactive session.

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use clap::{Args, ValueEnum};
use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    CreateExternalTable, DdlStatement, DmlStatement, LogicalPlan, ResetVariable, SetVariable,
    Statement as PlannedStatement,
};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use futures::{StreamExt, TryStreamExt};
use vectile_datafusion::{
    PartitionedTable, compressor, execute_definition, physical_plan, plan_statement,
};
use vectile_file::WriterOptions;

use crate::connect::object_store;
use crate::copy::{Batches, copy};
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format, all_extensions};
use crate::interrupt::Interrupt;
use crate::location::{Destination, literal_url, parse_source};
use crate::parquet_schema;
use crate::print::{PrintFormat, print};
use crate::progress::Progress;
use crate::session;
use crate::source::{Input, further_directories};
use crate::text_options::TextArgs;
use crate::writer::Output;

/// Answer SQL over tables
///
/// Without a statement or a script, statements are read from standard input; if that is a
/// terminal, an interactive shell starts. Paths work as table names too:
/// SELECT * FROM 'flights.vectile'.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// A statement, or several with semicolons between them
    #[arg(conflicts_with = "file")]
    statement: Option<String>,
    /// Name a table: a file, a directory (read recursively), a quoted glob or a URL of Vectile,
    /// Parquet, ORC, CSV, JSON or Arrow files; may be repeated
    #[arg(short, long = "table", value_name = "NAME=PATH", value_parser = parse_table)]
    pub tables: Vec<(String, String)>,
    /// Run the statements of a script ('-' is standard input)
    #[arg(short, long)]
    file: Option<String>,
    /// How to print results
    #[arg(long, value_enum, default_value_t = PrintFormat::Table)]
    pub format: PrintFormat,
    /// Say on standard error how long each statement took, from its text to the last row, and how much of
    /// that went into planning it; each has an equal share of the time of parsing the script
    #[arg(long)]
    timing: bool,
    /// Write the last statement's result to a file (.vectile, .parquet, .arrow, .csv, .json)
    /// instead of printing any
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    #[command(flatten)]
    pub text: TextArgs,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// For benchmarks and tests: tables with at least this many rows get their key tables from the GPU
    #[arg(long, hide = true, value_name = "ROWS")]
    gpu_build_from_rows: Option<usize>,
    /// For benchmarks and tests: no query uses the key tables of earlier ones
    #[arg(long, hide = true)]
    no_key_table_cache: bool,
}

fn parse_table(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_string(), path.to_string()))
        }
        _ => Err("expected NAME=PATH".into()),
    }
}

impl SqlArgs {
    /// Returns true if no SQL is given, and standard input is a terminal.
    pub fn is_interactive(&self) -> bool {
        self.statement.is_none() && self.file.is_none() && std::io::stdin().is_terminal()
    }
}

/// Runs the statements of `vectile sql`.
pub async fn run(args: SqlArgs, interrupt: &Interrupt) -> Result<()> {
    let context = session::for_sql()?;
    session::set(&context, |options| {
        let tuning = &mut options.gpu_tuning;
        tuning.keep_key_tables = !args.no_key_table_cache;
        tuning.build_from_rows = args.gpu_build_from_rows.unwrap_or(tuning.build_from_rows);
    });
    args.text.apply(&context).await?;
    let output = output(&context, &args).await?;
    interrupt
        .or(register_tables(&context, &args.tables))
        .await?;
    let script = script(&args)?;
    let started = Instant::now();
    let statements = parse(&context, &script)?;
    // a script is parsed as a whole, before its first statement runs
    let parsed = started.elapsed() / u32::try_from(statements.len()).unwrap_or(u32::MAX).max(1);
    if statements.is_empty() {
        return Err(CliError::Usage("there is no SQL statement to run".into()));
    }
    let last = statements.len().saturating_sub(1);
    for (index, statement) in statements.into_iter().enumerate() {
        if index == last {
            session::make_nothing_ready(&context);
        }
        let started = Instant::now();
        let answer = interrupt.or(answer(&context, statement)).await?;
        let planned = started.elapsed();
        match &output {
            Some((destination, kind)) if index == last => {
                let output = Output {
                    destination: destination.clone(),
                    kind: *kind,
                    options: WriterOptions::default()
                        .with_compressor(compressor(context.state_ref().read().config())),
                    text: args.text.clone(),
                };
                write_result(answer, output, interrupt).await?;
            }
            Some(_) => interrupt.or(answer.drain()).await?,
            None => interrupt.or(print_result(answer, args.format)).await?,
        }
        if args.timing {
            let times = [started.elapsed(), planned];
            let [all, planned] = times.map(|time| (parsed + time).as_secs_f64() * 1e3);
            let number = index + 1;
            eprintln!("statement {number}: {all:.3} ms, of which planning {planned:.3}");
        }
    }
    Ok(())
}

/// The SQL to run.
fn script(args: &SqlArgs) -> Result<String> {
    match (&args.statement, &args.file) {
        (Some(statement), _) => Ok(statement.clone()),
        (None, Some(file)) if file != "-" => std::fs::read_to_string(file)
            .map_err(|error| CliError::from(error).context(format!("cannot read {file}"))),
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Ok(text)
        }
    }
}

async fn output(
    context: &SessionContext,
    args: &SqlArgs,
) -> Result<Option<(Destination, FileKind)>> {
    let Some(path) = &args.output else {
        return Ok(None);
    };
    let mut destination = Destination::parse(context, path).await?;
    let kind = FileKind::of_path(path).ok_or_else(|| {
        CliError::Usage(format!(
            "cannot tell the format of -o '{path}': known are {}",
            all_extensions()
        ))
    })?;
    destination.check_writable(args.force).await?;
    Ok(Some((destination, kind)))
}

/// Registers all tables of `-t`.
pub async fn register_tables(context: &SessionContext, tables: &[(String, String)]) -> Result<()> {
    for (name, path) in tables {
        register_table(context, name, path).await?;
    }
    Ok(())
}

/// Registers the files at `path` as a table.
pub async fn register_table(context: &SessionContext, name: &str, path: &str) -> Result<()> {
    let input = Input::find(context, path, None).await?;
    let table = input.table(context, name).await.map_err(|error| {
        error
            .of_file(path)
            .context(format!("cannot open table {name}"))
    })?;
    // As SQL reads it: `flights`, `Flights` and FLIGHTS are one name unless quoted.
    let reference = TableReference::bare(name.to_lowercase());
    context.register_table(reference, table)?;
    Ok(())
}

/// Runs SQL and prints the result of each statement.
pub async fn run_and_print(context: &SessionContext, sql: &str, format: PrintFormat) -> Result<()> {
    for statement in parse(context, sql)? {
        print_result(answer(context, statement).await?, format).await?;
    }
    Ok(())
}

/// The statements of a script.
pub fn parse(context: &SessionContext, script: &str) -> Result<Vec<Statement>> {
    let dialect = dialect(context)?;
    Ok(DFParser::parse_sql_with_dialect(script, dialect.as_ref())?.into())
}

/// The dialect of statements in `context`.
pub fn dialect(context: &SessionContext) -> Result<Box<dyn Dialect>> {
    let state = context.state_ref();
    let state = state.read();
    let name = &state.config().options().sql_parser.dialect;
    dialect_from_str(name).ok_or_else(|| CliError::failed(format!("unknown SQL dialect {name}")))
}

/// Executes a statement up to its rows: DDL and settings take effect here. Returns the plan of the rows, and the
/// session to plan it in.
async fn execute(
    context: &SessionContext,
    statement: Statement,
) -> Result<(SessionState, LogicalPlan)> {
    let state = context.state();
    let plan = state.statement_to_plan(statement).await?;
    let plan = with_resets(with_locations(context, plan).await?);
    if let LogicalPlan::Copy(copy) = &plan
        && copy.file_type.get_ext() == "parquet"
    {
        parquet_schema::check(copy.input.schema().as_arrow())?;
    }
    connect_stores(context, &plan).await?;
    Ok(match plan {
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => {
            execute_definition(context, plan).await?
        }
        query => (state, query),
    })
}

/// The statement, or if it is `RESET vectile.NAME`, which DataFusion refuses, `SET vectile.NAME = default`.
fn with_resets(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Statement(PlannedStatement::ResetVariable(ResetVariable { variable }))
            if variable.starts_with("vectile.") =>
        {
            let value = "default".to_owned();
            let set = SetVariable { variable, value };
            LogicalPlan::Statement(PlannedStatement::SetVariable(set))
        }
        other => other,
    }
}

/// The statement with locations as `vectile` interprets them, where DataFusion would take a name for a glob or a URL,
/// or its glob matches more.
async fn with_locations(context: &SessionContext, plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(mut create)) => {
            let mut locations = Vec::with_capacity(create.locations.len());
            for location in &create.locations {
                locations.extend(table_locations(context, &create, location).await?);
            }
            create.locations = locations;
            Ok(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)))
        }
        // EXPLAIN ANALYZE runs its input.
        LogicalPlan::Copy(_)
        | LogicalPlan::Dml(_)
        | LogicalPlan::Explain(_)
        | LogicalPlan::Analyze(_)
        | LogicalPlan::Statement(_) => Ok(plan.transform_down(with_output_location)?.data),
        query => Ok(query),
    }
}

fn with_output_location(node: LogicalPlan) -> Result<Transformed<LogicalPlan>, DataFusionError> {
    let external = |error: CliError| DataFusionError::External(Box::new(error));
    Ok(match node {
        LogicalPlan::Copy(mut copy) => {
            copy.output_url = literal_url(&copy.output_url).map_err(external)?;
            Transformed::yes(LogicalPlan::Copy(copy))
        }
        LogicalPlan::Dml(insert) => {
            check_insert(&insert).map_err(external)?;
            Transformed::no(LogicalPlan::Dml(insert))
        }
        node => Transformed::no(node),
    })
}

/// DataFusion's locations for the `location` of a table.
async fn table_locations(
    context: &SessionContext,
    create: &CreateExternalTable,
    location: &str,
) -> Result<Vec<String>> {
    if location.contains("://") {
        return Ok(vec![location.to_string()]);
    }
    let url = parse_source(location)?;
    if url.get_glob().is_none() {
        return Ok(vec![literal_url(location)?]);
    }
    let theirs = ListingTableUrl::parse(location);
    let is_same = theirs.is_ok_and(|theirs| theirs.get_url() == url.get_url());
    let format = Format::from_str(&create.file_type, true).ok();
    let input = match Input::find(context, location, format).await {
        Ok(input) => input,
        // its files do not exist yet
        Err(_) if is_same => return Ok(vec![location.to_string()]),
        Err(error) => return Err(error),
    };
    if is_same && input.is_exact {
        return Ok(vec![location.to_string()]);
    }
    if !create.table_partition_cols.is_empty() {
        return Err(further_directories());
    }
    let files = input.file_urls()?.into_iter();
    Ok(files.map(|url| url.as_str().to_string()).collect())
}

/// Refuses to add files to a table whose glob would not take them.
fn check_insert(insert: &DmlStatement) -> Result<()> {
    let table = source_as_provider(&insert.target)?;
    let partitioned = table.downcast_ref::<PartitionedTable>();
    let partitioned = partitioned.map(PartitionedTable::listing);
    let Some(table) = partitioned.or_else(|| table.downcast_ref::<ListingTable>()) else {
        return Ok(());
    };
    let name = format!("0.{}", table.options().format.get_ext());
    let takes = |url: &ListingTableUrl| {
        url.get_glob()
            .as_ref()
            .is_none_or(|glob| glob.matches(&name))
    };
    match table.table_paths().iter().all(takes) {
        true => Ok(()),
        false => Err(CliError::failed(format!(
            "cannot add files to {}: they would have other names than its location takes",
            insert.table_name
        ))
        .hint("make a table of the directory")),
    }
}

/// Connects stores that the session does not know yet; statements may have options for them.
async fn connect_stores(context: &SessionContext, plan: &LogicalPlan) -> Result<()> {
    let none = HashMap::new();
    let (locations, options) = match plan {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) => {
            (create.locations.clone(), &create.options)
        }
        LogicalPlan::Copy(copy) => (vec![copy.output_url.clone()], &copy.options),
        _ => (Vec::new(), &none),
    };
    for location in locations {
        let url = ListingTableUrl::parse(location)?;
        object_store(context, url.get_url(), options).await?;
    }
    Ok(())
}

/// The result of a statement. It is planned, and runs as rows are requested.
pub struct Answer {
    /// Its columns; empty for a statement without a result.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Batches,
}

/// Plans a statement; DDL and settings take effect here.
pub async fn answer(context: &SessionContext, statement: Statement) -> Result<Answer> {
    if is_query(&statement) {
        let planned = plan_statement(context, statement).await?;
        let schema = Arc::clone(&planned.schema);
        let batches = planned.execute()?.map_err(CliError::from).boxed();
        return Ok(Answer { schema, batches });
    }
    let (state, plan) = execute(context, statement).await?;
    let schema = Arc::clone(plan.schema().inner());
    let task = state.task_ctx();
    let stream = execute_stream(physical_plan(&state, &plan).await?, task)?;
    let batches = stream.map_err(CliError::from).boxed();
    Ok(Answer { schema, batches })
}

/// True for a query itself. `EXECUTE`, `EXPLAIN` and the like are none.
fn is_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(sql) if matches!(**sql, SqlStatement::Query(_)))
}

impl Answer {
    /// Runs it to the end.
    pub async fn drain(self) -> Result<()> {
        self.batches.try_for_each(|_| async { Ok(()) }).await
    }
}

/// Prints the result of a statement.
pub async fn print_result(answer: Answer, format: PrintFormat) -> Result<()> {
    if answer.schema.fields().is_empty() {
        // DDL and settings have no result to print; they still have to run to the end.
        return answer.drain().await;
    }
    print(format, answer.schema, answer.batches).await.map(drop)
}

async fn write_result(answer: Answer, output: Output, interrupt: &Interrupt) -> Result<()> {
    let Answer { schema, batches } = answer;
    if schema.fields().is_empty() {
        return Err(
            CliError::failed("the last statement has no result to write")
                .hint("end the script with a SELECT, or leave out -o"),
        );
    }
    let progress = Progress::rows(&output.destination.display, None);
    copy(&schema, batches, output, interrupt, &progress)
        .await
        .map(drop)
}
