//! `vectile convert`: tables from any format to any other.

use std::collections::HashMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use clap::Args;
use datafusion::catalog::TableProvider;
use datafusion::common::Column as LogicalColumn;
use datafusion::datasource::listing::ListingTable;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use vectile_encodings::Pin;
use vectile_file::{Compression, WriterOptions};

use crate::arrange::{self, ArrangeArgs};
use crate::columns::{ColumnList, no_column};
use crate::compressor::GpuArgs;
use crate::contain::{contain, contain_stream};
use crate::copy::{Batches, copy};
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format, all_extensions, known_extension};
use crate::intact;
use crate::interrupt::Interrupt;
use crate::location::Destination;
use crate::merge::{adapt, merge_schemas, with_partitions};
use crate::report;
use crate::session;
use crate::side_by_side::{self, side_by_side};
use crate::source::{Input, InputFile};
use crate::text_options::TextArgs;
use crate::writer::{Output, Summary};

/// Convert tables between Vectile and other formats
///
/// Formats are told by file name: .vectile, .parquet, .orc (to read only), .csv, .json (or .jsonl, .ndjson: one object
/// per line), .arrow (or .feather, .ipc: IPC file), .arrows (IPC stream); CSV and JSON also with
/// .gz, .zst, .bz2, .xz behind. Several inputs to one OUT file are put one after the other, columns
/// matched by name; to an OUT directory each becomes a file of its own.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Files, directories (read recursively), quoted globs, or s3://, gs://, https:// URLs
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<String>,
    /// File, directory (one that exists, or a name ending in '/'), or URL to write
    #[arg(value_name = "OUT")]
    output: String,
    /// Use this encoding for a column of a Vectile OUT instead of choosing; may be repeated
    #[arg(long = "encoding", value_name = "COLUMN=NAME", value_parser = parse_pin, allow_hyphen_values = true)]
    encodings: Vec<(String, Pin)>,
    /// Compress the encoded values of a Vectile OUT as a whole: zstd, or none
    #[arg(long, value_name = "NAME")]
    compression: Option<Compression>,
    /// Rows of a row group of a Vectile OUT
    #[arg(long, value_name = "N")]
    row_group_rows: Option<NonZeroUsize>,
    /// Give these columns of a Vectile OUT a Bloom filter, which rules row groups out for = and IN
    #[arg(long, value_name = "COLUMN,...", allow_hyphen_values = true)]
    bloom: Option<ColumnList>,
    /// How often a Bloom filter may pass a value that is not there
    #[arg(long, value_name = "PROBABILITY", requires = "bloom")]
    bloom_fpp: Option<f64>,
    #[command(flatten)]
    arrange: ArrangeArgs,
    /// Format of the inputs, whatever their names
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Format to write, whatever the name of OUT
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Print what took how long
    #[arg(long, conflicts_with = "quiet")]
    timing: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn parse_pin(text: &str) -> Result<(String, Pin), String> {
    let (column, name) = text.rsplit_once('=').ok_or("expected COLUMN=NAME")?;
    let encoding = name.parse::<Pin>();
    Ok((
        column.to_string(),
        encoding.map_err(|error| error.to_string())?,
    ))
}

/// Runs `vectile convert`.
pub async fn run(args: ConvertArgs, interrupt: &Interrupt) -> Result<()> {
    let context = session::for_copying()?;
    args.text.apply(&context).await?;
    let mut inputs = Vec::with_capacity(args.inputs.len());
    for text in &args.inputs {
        inputs.push(Input::find(&context, text, args.from).await?);
    }
    let started = Instant::now();
    let conversions = plan(&context, &args, inputs).await?;
    let mut done = Vec::with_capacity(conversions.len());
    for conversion in conversions {
        let name = conversion.output.destination.display.clone();
        let summary = conversion.run(&context, &args, interrupt).await?;
        done.push((name, summary));
    }
    if args.quiet {
        return Ok(());
    }
    let elapsed = started.elapsed();
    let mut out = std::io::stdout().lock();
    if args.timing {
        report::write_times(&mut out, &done)?;
    }
    report::write_summaries(&mut out, &done, elapsed)?;
    Ok(out.flush()?)
}

/// Files to concatenate into one file.
struct Conversion {
    files: Vec<InputFile>,
    output: Output,
}

async fn plan(
    context: &SessionContext,
    args: &ConvertArgs,
    mut inputs: Vec<Input>,
) -> Result<Vec<Conversion>> {
    let out = Destination::parse(context, &args.output).await?;
    for input in &mut inputs {
        input.leave_out(&out);
    }
    if inputs.iter().all(|input| input.files.is_empty()) {
        return Err(CliError::failed("there is no file to read but OUT itself"));
    }
    let mut conversions = match one_file_kind(args, &inputs)? {
        Some(kind) => vec![Conversion {
            files: inputs.into_iter().flat_map(|input| input.files).collect(),
            output: output(args, out, kind)?,
        }],
        None => file_by_file(args, &out, inputs)?,
    };
    for conversion in &mut conversions {
        conversion
            .output
            .destination
            .check_writable(args.force)
            .await?;
    }
    Ok(conversions)
}

/// The kind of OUT if it is a file; `None` if OUT is a directory.
fn one_file_kind(args: &ConvertArgs, inputs: &[Input]) -> Result<Option<FileKind>> {
    let out = &args.output;
    if out.ends_with('/') || std::path::Path::new(out).is_dir() {
        return Ok(None);
    }
    let kind = match args.to {
        Some(format) => Some(FileKind::with_format(out, format)),
        None => FileKind::of_path(out),
    };
    let several = inputs.len() > 1 || inputs.iter().any(Input::is_collection);
    let has_extension = out
        .rsplit('/')
        .next()
        .is_some_and(|name| name.contains('.'));
    match kind {
        Some(_) if several && args.to.is_some() && !has_extension => Ok(None),
        Some(kind) => Ok(Some(kind)),
        None if several && !has_extension => Ok(None),
        None => Err(CliError::Usage(format!(
            "cannot tell the format of OUT '{out}': known are {}; --to names the format, \
             and a directory's name ends in '/'",
            all_extensions()
        ))),
    }
}

fn file_by_file(
    args: &ConvertArgs,
    out: &Destination,
    inputs: Vec<Input>,
) -> Result<Vec<Conversion>> {
    let format = args.to.unwrap_or(Format::Vectile);
    let files: Vec<InputFile> = inputs.into_iter().flat_map(|input| input.files).collect();
    if args.to.is_none() && files.iter().all(|file| file.kind.format == Format::Vectile) {
        return Err(CliError::Usage(
            "the inputs are Vectile files already: say with --to what they should become".into(),
        ));
    }
    let mut conversions: Vec<Conversion> = Vec::with_capacity(files.len());
    let mut taken = HashMap::new();
    for file in files {
        let known = known_extension(&file.relative);
        let stem = file.relative.strip_suffix(known).unwrap_or(&file.relative);
        let name = format!("{stem}.{}", format.extension());
        if let Some(other) = taken.insert(name.clone(), file.display()) {
            return Err(CliError::failed(format!(
                "{other} and {} would both become {name}",
                file.display()
            ))
            .hint("convert them into different directories"));
        }
        let output = output(args, out.join(&name)?, FileKind::plain(format))?;
        // Directories are preserved: partition columns are not repeated in the files.
        let file = InputFile {
            partitions: Vec::new(),
            ..file
        };
        conversions.push(Conversion {
            files: vec![file],
            output,
        });
    }
    Ok(conversions)
}

fn output(args: &ConvertArgs, destination: Destination, kind: FileKind) -> Result<Output> {
    let of_vectile = [
        ("--encoding", !args.encodings.is_empty()),
        ("--row-group-rows", args.row_group_rows.is_some()),
        ("--bloom", args.bloom.is_some()),
        ("--compression", args.compression.is_some()),
    ];
    if kind.format != Format::Vectile
        && let Some((option, _)) = of_vectile.iter().find(|(_, is_given)| *is_given)
    {
        return Err(CliError::Usage(format!(
            "{option} is for Vectile files; OUT is of another format"
        )));
    }
    let mut options = WriterOptions::default()
        .with_pins(args.encodings.iter().cloned())
        .with_compression(args.compression.unwrap_or_default())
        .with_compressor(args.gpu.compressor());
    if let Some(rows) = args.row_group_rows {
        options = options.with_row_group_rows(rows.get());
    }
    if let Some(fpp) = args.bloom_fpp {
        options = options.with_bloom_filter_fpp(fpp);
    }
    Ok(Output {
        destination,
        kind,
        options,
        text: args.text.clone(),
    })
}

impl Conversion {
    async fn run(
        mut self,
        context: &SessionContext,
        args: &ConvertArgs,
        interrupt: &Interrupt,
    ) -> Result<Summary> {
        let mut opened = Vec::with_capacity(self.files.len());
        for file in self.files {
            opened.push(OpenFile::open(context, file).await?);
        }
        let schemas: Vec<_> = opened
            .iter()
            .map(|open| {
                (
                    open.file.display(),
                    with_partitions(&open.file, &open.schema),
                )
            })
            .collect();
        let merged = merge_schemas(&schemas)?;
        let is_text = |open: &OpenFile| matches!(open.file.kind.format, Format::Csv | Format::Json);
        let is_text = opened.iter().any(is_text);
        args.text.check(context, &merged, is_text)?;
        let arrangement = args.arrange.of(context, &merged)?;
        let schema = Arc::clone(&arrangement.schema);
        check_pins(&self.output.options.pins, &schema)?;
        if let Some(columns) = &args.bloom {
            let columns = columns.indices("--bloom", &schema)?.into_iter();
            let names = columns.map(|column| schema.field(column).name());
            self.output.options = self.output.options.with_bloom_filters(names);
        }
        for open in &mut opened {
            open.narrow(context, &arrangement.read)?;
            if let Some(condition) = arrangement.condition_of_rows() {
                open.prune(context, &arrangement.read, condition).await?;
            }
        }
        let rows = opened.iter().map(|open| open.rows).sum();
        let batches = read_in_turn(context.clone(), opened, Arc::clone(&arrangement.read));
        let arranging = session::for_arranging(arrange::SORT_BYTES)?;
        let name = self.output.destination.display.clone();
        let arranged = arrangement.apply(&arranging, batches, &name, rows).await?;
        let (batches, progress) = (arranged.batches, arranged.progress);
        let summary = copy(&schema, batches, self.output, interrupt, &progress).await?;
        let Some(reading) = arranged.reading else {
            return Ok(summary);
        };
        let reading = Duration::from_nanos(reading.load(Ordering::Relaxed)).min(summary.reading);
        Ok(Summary {
            reading,
            arranging: summary.reading - reading,
            ..summary
        })
    }
}

fn check_pins(pins: &HashMap<String, Pin>, schema: &SchemaRef) -> Result<()> {
    match pins.keys().find(|column| schema.index_of(column).is_err()) {
        Some(missing) => Err(no_column("--encoding", schema, missing)),
        None => Ok(()),
    }
}

/// An input with a known schema, before its rows are read.
struct OpenFile {
    file: InputFile,
    schema: SchemaRef,
    table: Arc<ListingTable>,
    /// Plans that each read some of the columns.
    parts: Vec<Arc<dyn ExecutionPlan>>,
    rows: Option<u64>,
}

impl OpenFile {
    async fn open(context: &SessionContext, file: InputFile) -> Result<Self> {
        Self::open_with(context, file, side_by_side::readers()).await
    }

    async fn open_with(context: &SessionContext, file: InputFile, readers: usize) -> Result<Self> {
        let opened = contain(OpenFile::plan(context, &file, readers)).await;
        let (table, schema, parts) = opened.map_err(|error| cannot_read(&file, error))?;
        let rows = parts.first().and_then(|part| row_count(part.as_ref()));
        Ok(OpenFile {
            schema,
            table,
            rows,
            file,
            parts,
        })
    }

    async fn plan(
        context: &SessionContext,
        file: &InputFile,
        readers: usize,
    ) -> Result<(Arc<ListingTable>, SchemaRef, Vec<Arc<dyn ExecutionPlan>>)> {
        let is_parquet = file.kind.format == Format::Parquet;
        // text formats are read row by row, and decoding the others takes no time
        let by_column = is_parquet || file.kind.format == Format::Orc;
        let mut schema = intact::check(file).await?;
        if let Some(schema) = &schema {
            merge_schemas(&[(file.display(), Arc::clone(schema))])?;
        }
        if is_parquet {
            schema = None; // the session determines how some types are read
        }
        let table = Arc::new(file.table(context, schema).await?);
        let schema = table.schema();
        let shares = side_by_side::shares(schema.fields().len(), readers);
        if !by_column || shares.len() < 2 {
            let frame = context.read_table(Arc::clone(&table) as _)?;
            let plan = frame.create_physical_plan().await?;
            return Ok((table, plan.schema(), vec![plan]));
        }
        let rows = context.read_table(Arc::clone(&table) as _)?;
        let mut parts = Vec::with_capacity(shares.len());
        for columns in shares {
            let columns = columns.map(|index| arrange::column_of(schema.field(index)));
            let part = rows.clone().select(columns)?;
            parts.push(part.create_physical_plan().await?);
        }
        Ok((table, schema, parts))
    }

    /// Drops the columns that are not in `target`.
    fn narrow(&mut self, context: &SessionContext, target: &Schema) -> Result<()> {
        let is_in_target = |field: &FieldRef| target.index_of(field.name()).is_ok();
        if self.schema.fields().iter().all(is_in_target) {
            return Ok(());
        }
        let mut narrowed = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let fields = part.schema();
            let columns = fields.fields().iter().enumerate();
            let columns = columns.filter(|(_, field)| is_in_target(field));
            let columns = columns.map(|(index, field)| {
                let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
                (column, field.name().clone())
            });
            let columns: Vec<_> = columns.collect();
            let has_columns = !columns.is_empty();
            let part: Arc<dyn ExecutionPlan> =
                Arc::new(ProjectionExec::try_new(columns, Arc::clone(part))?);
            // pushes the projection into the scan, which then reads no other columns
            let config = context.copied_config();
            let part = ProjectionPushdown::new().optimize(part, config.options())?;
            narrowed.push((has_columns, part));
        }
        // Rows of a file with none of the columns must still be counted.
        if narrowed.iter().any(|(has_columns, _)| *has_columns) {
            narrowed.retain(|(has_columns, _)| *has_columns);
        } else {
            narrowed.truncate(1);
        }
        self.parts = narrowed.into_iter().map(|(_, part)| part).collect();
        let kept = self.schema.fields().iter().enumerate();
        let kept = kept.filter(|(_, field)| is_in_target(field));
        let kept: Vec<usize> = kept.map(|(index, _)| index).collect();
        self.schema = Arc::new(self.schema.project(&kept)?);
        Ok(())
    }

    /// Drops rows for which `condition`, on columns of `target`, is not true, as in a query: row groups and pages that
    /// statistics and filters rule out are not read. A file with other columns or types is read in full.
    async fn prune(
        &mut self,
        context: &SessionContext,
        target: &Schema,
        condition: &Expr,
    ) -> Result<()> {
        let data_type = |schema: &Schema, column: &str| {
            let field = schema.field_with_name(column);
            field.ok().map(|field| field.data_type().clone())
        };
        let is_own = |column: &&LogicalColumn| {
            let own = data_type(&self.schema, column.name());
            own.is_some() && own == data_type(target, column.name())
        };
        let columns = condition.column_refs();
        if columns.is_empty() || !columns.iter().all(is_own) {
            return Ok(());
        }
        let rows = context.read_table(Arc::clone(&self.table) as _)?;
        let rows = rows.filter(condition.clone())?;
        for part in &mut self.parts {
            let fields = part.schema();
            let columns = fields.fields().iter();
            let columns = columns.map(|field| arrange::column_of(field));
            let part_of_rows = rows.clone().select(columns)?;
            *part = part_of_rows.create_physical_plan().await?;
        }
        // the number of remaining rows is not known
        self.rows = None;
        Ok(())
    }

    /// The rows, in order.
    fn read(&self, context: &SessionContext) -> Result<Batches> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let batches = execute_stream(Arc::clone(part), context.task_ctx())?;
            parts.push(contain_stream(batches.map_err(CliError::from).boxed()));
        }
        if parts.len() > 1 {
            return Ok(side_by_side(parts, Arc::clone(&self.schema)));
        }
        let none = || CliError::failed("there is nothing to read");
        parts.pop().ok_or_else(none)
    }
}

fn cannot_read(file: &InputFile, error: CliError) -> CliError {
    error.of_file(&file.display()).context("cannot read")
}

/// The number of rows, if the file has it.
fn row_count(plan: &dyn ExecutionPlan) -> Option<u64> {
    let statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new());
    let statistics = statistics.ok()?;
    statistics.num_rows.get_value().map(|rows| *rows as u64)
}

fn read_in_turn(context: SessionContext, files: Vec<OpenFile>, schema: SchemaRef) -> Batches {
    futures::stream::iter(files)
        .map(move |open| {
            let batches = open.read(&context)?;
            let schema = Arc::clone(&schema);
            Ok::<_, CliError>(batches.map(move |batch| {
                let adapted = batch.and_then(|batch| adapt(&batch, &open.file, &schema));
                adapted.map_err(|error| cannot_read(&open.file, error))
            }))
        })
        .try_flatten()
        .boxed()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::RecordBatch;
    use arrow::compute::concat_batches;
    use datafusion::physical_plan::metrics::MetricValue;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    use super::*;
    use crate::writer::TableWriter;

    /// A few kilobytes of types that formats treat differently: numbers, texts, dictionaries, lists.
    const TABLE: &str = "
      SELECT value AS n, concat('text ', value) AS s, value % 2 = 0 AS b,
        arrow_cast(concat('k', value % 3), 'Dictionary(Int32, Utf8)') AS d,
        CASE WHEN value % 5 > 0 THEN make_array(value, 7) END AS l,
        arrow_cast(concat('longer than twelve bytes ', value), 'Utf8View') AS v
      FROM range(60)";

    async fn write(context: &SessionContext, path: &Path) {
        let table = context.sql(TABLE).await.unwrap();
        let schema = Arc::clone(table.schema().inner());
        let text = path.to_str().unwrap();
        let destination = Destination::parse(context, text).await.unwrap();
        let output = Output {
            destination,
            kind: FileKind::of_path(text).unwrap(),
            options: WriterOptions::default(),
            text: TextArgs::default(),
        };
        let mut writer = TableWriter::try_new(output, &schema).unwrap();
        for batch in table.collect().await.unwrap() {
            writer.write(&batch).await.unwrap();
        }
        writer.finish().await.unwrap();
    }

    /// Row groups and pages that `where` excludes are not read in any format, and the rows equal those without pruning.
    #[tokio::test(flavor = "multi_thread")]
    async fn row_groups_and_pages_without_matching_rows_are_not_read() {
        let context = session::for_copying().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let rows = "SELECT value AS n, concat('text ', value) AS s FROM range(20000)";
        for (format, options, metric, pruned) in [
            (
                "parquet",
                "max_row_group_size 5000",
                "row_groups_pruned_statistics",
                3,
            ),
            (
                "parquet",
                "data_page_row_count_limit 5000, write_batch_size 1000",
                "page_index_rows_pruned",
                15000,
            ),
            (
                "vectile",
                "row_group_rows 5000",
                "row_groups_pruned_statistics",
                3,
            ),
            (
                "vectile",
                "row_group_rows 20000",
                "vectors_pruned_statistics",
                19,
            ),
        ] {
            let path = dir.path().join(format!("{metric}.{format}"));
            let path = path.to_str().unwrap();
            let copy = format!("COPY ({rows}) TO '{path}' STORED AS {format} OPTIONS ({options})");
            context.sql(&copy).await.unwrap().collect().await.unwrap();
            for (condition, pruned) in [
                ("n BETWEEN 100 AND 200", pruned),
                ("s = 'text 150' AND n < 1000 AND length(s) > 3", pruned),
                ("n BETWEEN 100 AND 200 AND random() >= 0.0", 0),
                ("n BETWEEN 100 AND 200 AND now() IS NOT NULL", 0),
            ] {
                let input = Input::find(&context, path, None).await.unwrap();
                let file = input.files.into_iter().next().unwrap();
                let mut open = OpenFile::open_with(&context, file, 2).await.unwrap();
                let args = ArrangeArgs::only_where(condition);
                let arrangement = args.of(&context, &open.schema).unwrap();
                if let Some(condition) = arrangement.condition_of_rows() {
                    open.prune(&context, &arrangement.read, condition)
                        .await
                        .unwrap();
                }
                let parts = open.parts.clone();
                let read: Vec<_> = open.read(&context).unwrap().try_collect().await.unwrap();
                let read = concat_batches(&arrangement.read, &read).unwrap();
                let of_part = |part: &Arc<dyn ExecutionPlan>| metric_of(part, metric);
                let name = format!("{format} {metric} {condition}");
                assert!(
                    parts.iter().all(|part| of_part(part) == pruned),
                    "{name}: {:?}",
                    parts.iter().map(of_part).collect::<Vec<_>>()
                );
                let batches = futures::stream::iter([Ok(read)]).boxed();
                let arranged = arrangement
                    .apply(&context, batches, "t", None)
                    .await
                    .unwrap();
                let kept: Vec<RecordBatch> = arranged.batches.try_collect().await.unwrap();
                let expected = format!("SELECT n, s FROM ({rows}) WHERE {condition}");
                let expected = context
                    .sql(&expected)
                    .await
                    .unwrap()
                    .collect()
                    .await
                    .unwrap();
                let sum = |batches: &[RecordBatch]| {
                    batches.iter().map(RecordBatch::num_rows).sum::<usize>()
                };
                assert_eq!(sum(&kept), sum(&expected), "{name}");
            }
        }
    }

    /// The sum of a metric over the nodes of a plan; for pruning metrics, the pruned part.
    fn metric_of(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
        let metrics = plan.metrics().unwrap_or_default();
        let named = metrics.iter().map(|metric| metric.value());
        let named = named.filter(|value| value.name() == name);
        let own = named.map(|value| match value {
            MetricValue::PruningMetrics {
                pruning_metrics, ..
            } => pruning_metrics.pruned(),
            value => value.as_usize(),
        });
        let children = plan.children().into_iter();
        own.sum::<usize>() + children.map(|child| metric_of(child, name)).sum::<usize>()
    }

    /// The rows of a file whose columns `readers` tasks read.
    async fn read(context: &SessionContext, path: &Path, readers: usize) -> Result<RecordBatch> {
        let input = Input::find(context, path.to_str().unwrap(), None).await?;
        let mut opened = Vec::new();
        for file in input.files {
            let open = OpenFile::open_with(context, file, readers).await?;
            let is_parquet = open.file.kind.format == Format::Parquet;
            assert_eq!(open.parts.len(), if is_parquet { readers } else { 1 });
            opened.push(open);
        }
        let schema = Arc::clone(&opened[0].schema);
        let batches = read_in_turn(context.clone(), opened, Arc::clone(&schema));
        Ok(concat_batches(
            &schema,
            &batches.try_collect::<Vec<_>>().await?,
        )?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn columns_that_several_tasks_read_are_of_the_same_rows() {
        let context = session::for_copying().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let rows = context.sql(TABLE).await.unwrap().collect().await.unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(7));
        let file = std::fs::File::create(&path).unwrap();
        let schema = rows[0].schema();
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build())).unwrap();
        for batch in &rows {
            writer.write(batch).unwrap();
        }
        writer.close().unwrap();
        let one = read(&context, &path, 1).await.unwrap();
        assert_eq!(one.num_rows(), 60);
        for readers in [2, 4, 6] {
            assert_eq!(read(&context, &path, readers).await.unwrap(), one);
        }
    }

    /// For each damaged byte of a file: it is read, or the error names the file. Nothing panics or ends the process.
    #[tokio::test(flavor = "multi_thread")]
    async fn damaged_files_are_errors() {
        let context = session::for_copying().unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Several readers take longer, and their results differ little.
        for (extension, readers, step) in [
            ("arrow", 1, 2),
            ("arrows", 1, 2),
            ("parquet", 1, 2),
            ("parquet", 3, 22),
        ] {
            let intact = dir.path().join("intact").with_extension(extension);
            write(&context, &intact).await;
            assert_eq!(
                read(&context, &intact, readers).await.unwrap().num_rows(),
                60
            );
            let bytes = std::fs::read(&intact).unwrap();
            let mut errors = 0;
            for (at, mask) in (0..bytes.len())
                .step_by(step)
                .zip([0xff, 0x40].into_iter().cycle())
            {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                let name = format!("{at}-{mask}.{extension}");
                let path = dir.path().join(&name);
                std::fs::write(&path, damaged).unwrap();
                if let Err(error) = read(&context, &path, readers).await {
                    errors += 1;
                    assert!(error.to_string().contains(&name), "{name}: {error}");
                }
                std::fs::remove_file(&path).unwrap();
            }
            assert!(errors > bytes.len() / step / 10, "{extension}: {errors}");
            for len in (0..bytes.len()).step_by(8 * step + 1) {
                let name = format!("{len}.{extension}");
                let path = dir.path().join(&name);
                std::fs::write(&path, &bytes[..len]).unwrap();
                if let Err(error) = read(&context, &path, readers).await {
                    assert!(error.to_string().contains(&name), "{name}: {error}");
                }
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}
