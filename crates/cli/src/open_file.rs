//! Opens an input of `vectile convert`, and reads its rows.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
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

use crate::arrange;
use crate::contain::{contain, contain_stream};
use crate::copy::Batches;
use crate::error::{CliError, Result};
use crate::format::Format;
use crate::intact;
use crate::merge::{adapt, merge_schemas};
use crate::side_by_side::{self, side_by_side};
use crate::source::InputFile;

/// An input with a known schema, before its rows are read.
pub struct OpenFile {
    pub file: InputFile,
    pub schema: SchemaRef,
    table: Arc<ListingTable>,
    /// Plans that each read some of the columns.
    parts: Vec<Arc<dyn ExecutionPlan>>,
    /// Its number of rows, if it is known.
    pub rows: Option<u64>,
}

impl OpenFile {
    /// Opens a file.
    pub async fn open(context: &SessionContext, file: InputFile) -> Result<Self> {
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
    pub fn narrow(&mut self, context: &SessionContext, target: &Schema) -> Result<()> {
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
    pub async fn prune(
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

/// The rows of files, one file after the other, with the columns of `schema`.
pub fn read_in_turn(context: SessionContext, files: Vec<OpenFile>, schema: SchemaRef) -> Batches {
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
    use vectile_file::WriterOptions;

    use super::*;
    use crate::arrange::ArrangeArgs;
    use crate::format::FileKind;
    use crate::location::Destination;
    use crate::session;
    use crate::source::Input;
    use crate::text_options::TextArgs;
    use crate::writer::{Output, TableWriter};

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
