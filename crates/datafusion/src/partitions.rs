//! Partition columns, whose values are directory names: reading and writing follow Hive's rule.
//!
//! ```text
//! k=x%2Fy                       the text x/y: any byte may be written as % and two digits
//! k=                            the empty text
//! k=__HIVE_DEFAULT_PARTITION__  null, of any type
//! ```
//!
//! DataFusion 55.2 reads the name of the null partition as text, and writes nulls as `0`, `''` or 1970-01-01. So a
//! [`PartitionedTable`] reads partition columns as text and converts them to values, also in filters, and
//! [`WritePartitions`] makes `COPY` write them as text.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, ColumnStatistics, Constraints, DataFusionError, Result, ScalarValue, SchemaExt,
    Statistics, exec_err, not_impl_err, plan_err,
};
use datafusion::datasource::listing::helpers::expr_applicable_for_cols;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig, PartitionedFile};
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::execution::cache::cache_manager::FileStatisticsCache;
use datafusion::logical_expr::dml::{CopyTo, InsertOp};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, CreateExternalTable, Expr, LogicalPlan, Operator, Projection,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableProviderFilterPushDown,
    TableType, Volatility, cast as cast_expr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::expressions::{CastExpr, Column as PhysicalColumn};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;

/// The directory name of nulls.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The value of the part of a directory name behind `=`; `None` for null.
pub fn partition_value(name: &str) -> Option<String> {
    let text = decoded(name);
    (text != NULL).then_some(text)
}

/// Decodes `%` escapes. Returns the name unchanged if the bytes are not UTF-8.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, others @ ..] = rest {
        let code = match (first, others) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let (byte, len) = code.map_or((*first, 1), |(high, low)| ((high << 4) | low, 3));
        bytes.push(byte);
        rest = rest.get(len..).unwrap_or_default();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

fn digit(hexadecimal: u8) -> Option<u8> {
    let digit = char::from(hexadecimal).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// A table of files whose partition columns follow Hive's rule.
#[derive(Debug)]
pub struct PartitionedTable {
    /// The table with text partition columns.
    listing: ListingTable,
    /// Partition columns are last.
    schema: SchemaRef,
    file_schema: SchemaRef,
    constraints: Option<Constraints>,
    defaults: HashMap<String, Expr>,
}

impl PartitionedTable {
    /// Applies Hive's rule to a table with partition columns; returns other tables unchanged. `statistics` is the cache
    /// for statistics of its files.
    ///
    /// # Errors
    ///
    /// Returns errors of DataFusion when it creates the table with text columns.
    pub fn of(
        table: ListingTable,
        statistics: Option<Arc<FileStatisticsCache>>,
    ) -> Result<Arc<dyn TableProvider>> {
        match Self::if_partitioned(&table, statistics)? {
            Some(partitioned) => Ok(Arc::new(partitioned)),
            None => Ok(Arc::new(table)),
        }
    }

    fn if_partitioned(
        table: &ListingTable,
        statistics: Option<Arc<FileStatisticsCache>>,
    ) -> Result<Option<Self>> {
        let partitions = &table.options().table_partition_cols;
        if partitions.is_empty() {
            return Ok(None);
        }
        let schema = table.schema();
        let metadata = schema.metadata().clone();
        let in_files = schema.fields().len().saturating_sub(partitions.len());
        let file_fields: Vec<_> = schema.fields().iter().take(in_files).cloned().collect();
        let partition_fields = partitions
            .iter()
            .map(|(name, data_type)| Arc::new(Field::new(name, data_type.clone(), true)));
        let fields: Vec<_> = file_fields
            .iter()
            .cloned()
            .chain(partition_fields)
            .collect();
        let file_schema = Arc::new(Schema::new_with_metadata(file_fields, metadata.clone()));

        let texts = partitions.iter();
        let texts = texts
            .map(|(name, _)| (name.clone(), DataType::Utf8))
            .collect();
        let options = table.options().clone().with_table_partition_cols(texts);
        let config = ListingTableConfig::new_with_multi_paths(table.table_paths().clone())
            .with_listing_options(options)
            .with_schema(Arc::clone(&file_schema));
        let defaults = schema.fields().iter().filter_map(|field| {
            let default = table.get_column_default(field.name())?;
            Some((field.name().clone(), default.clone()))
        });
        Ok(Some(Self {
            listing: ListingTable::try_new(config)?
                .with_cache(statistics)
                .with_definition(table.get_table_definition().map(str::to_owned)),
            schema: Arc::new(Schema::new_with_metadata(fields, metadata)),
            file_schema,
            constraints: table.constraints().cloned(),
            defaults: defaults.collect(),
        }))
    }

    /// The table of the same files, with text partition columns.
    pub fn listing(&self) -> &ListingTable {
        &self.listing
    }

    fn partition_fields(&self) -> &[Arc<Field>] {
        let in_files = self.file_schema.fields().len();
        self.schema.fields().get(in_files..).unwrap_or_default()
    }

    fn is_of_partitions(&self, filter: &Expr) -> bool {
        let names = self.partition_fields().iter();
        let names: Vec<&str> = names.map(|field| field.name().as_str()).collect();
        expr_applicable_for_cols(&names, filter)
    }

    /// Translates a filter to text columns, such that it is true where the filter is. If the filter compares a text
    /// column with a constant, adds that comparison: then fewer directories are listed.
    fn over_text(&self, filter: &Expr) -> Result<Vec<Expr>> {
        let typed = filter.clone().transform_up(|expr| {
            let field = match &expr {
                Expr::Column(column) => self.partition_field(column),
                _ => None,
            };
            Ok(match field {
                Some(field) => Transformed::yes(value_of(field)?),
                None => Transformed::no(expr),
            })
        })?;
        let is_true = Expr::IsTrue(Box::new(typed.data));
        Ok([is_true].into_iter().chain(self.text_of(filter)).collect())
    }

    fn partition_field(&self, column: &Column) -> Option<&Field> {
        let mut fields = self.partition_fields().iter();
        let field = fields.find(|field| field.name() == column.name());
        field.map(AsRef::as_ref)
    }

    /// Returns `column = text` if the filter has that form.
    fn text_of(&self, filter: &Expr) -> Option<Expr> {
        let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = filter
        else {
            return None;
        };
        let (column, value) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _))
            | (Expr::Literal(value, _), Expr::Column(column)) => (column, value),
            _ => return None,
        };
        self.partition_field(column)?;
        let text = value.try_as_str()??;
        let column = Column::new_unqualified(column.name());
        Some(Expr::Column(column).eq(lit(text)))
    }

    /// Sets the file's partition values and their statistics.
    fn typed(&self, file: PartitionedFile) -> Result<PartitionedFile> {
        let fields = self.partition_fields().iter();
        let values = fields.zip(&file.partition_values).map(|(field, text)| {
            let text = text.try_as_str().flatten();
            let text = text.filter(|text| *text != NULL);
            let value = match text {
                None => ScalarValue::try_new_null(field.data_type()),
                Some(text) => ScalarValue::try_from_string(text.to_owned(), field.data_type()),
            };
            value.map_err(|error| error.context(format!("{}", file.object_meta.location)))
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let statistics = file.statistics.as_deref().map(|of_text| {
            let mut statistics = of_text.clone();
            let columns = statistics.column_statistics.iter_mut();
            for (column, value) in columns.skip(self.file_schema.fields().len()).zip(&values) {
                *column = constant(value, statistics.num_rows);
            }
            Arc::new(statistics)
        });
        Ok(PartitionedFile {
            partition_values: values,
            statistics,
            ..file
        })
    }

    /// Merges statistics of files.
    fn together<'a>(&self, known: impl Iterator<Item = &'a Statistics>) -> Result<Statistics> {
        Statistics::try_merge_iter(known, &self.schema)
    }
}

/// Statistics of a column with one value.
fn constant(value: &ScalarValue, rows: Precision<usize>) -> ColumnStatistics {
    let unknown = ColumnStatistics::new_unknown();
    match value.is_null() {
        true => unknown.with_null_count(rows),
        false => unknown
            .with_null_count(Precision::Exact(0))
            .with_min_value(Precision::Exact(value.clone()))
            .with_max_value(Precision::Exact(value.clone()))
            .with_distinct_count(Precision::Exact(1)),
    }
}

/// The value of a partition column, as an expression over its text.
fn value_of(field: &Field) -> Result<Expr> {
    let text = Expr::Column(Column::new_unqualified(field.name()));
    let null = lit(ScalarValue::try_new_null(field.data_type())?);
    let value = cast_expr(text.clone(), field.data_type().clone());
    when(text.eq(lit(NULL)), null).otherwise(value)
}

#[async_trait]
impl TableProvider for PartitionedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.constraints.as_ref()
    }

    fn table_type(&self) -> TableType {
        self.listing.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.listing.get_table_definition()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = filters
            .iter()
            .map(|filter| match self.is_of_partitions(filter) {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Inexact,
            });
        Ok(support.collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (of_partitions, others): (Vec<_>, Vec<_>) = filters
            .iter()
            .partition(|filter| self.is_of_partitions(filter));
        let of_partitions = of_partitions
            .into_iter()
            .map(|filter| self.over_text(filter));
        let of_partitions = of_partitions.collect::<Result<Vec<_>>>()?.concat();
        // Other filters are applied to rows afterwards, so that more than `limit` rows may be needed.
        let most_rows = limit.filter(|_| others.is_empty());
        let listed = self
            .listing
            .list_files_for_scan(state, &of_partitions, most_rows);
        let listed = listed.await?;
        let url = self.listing.table_paths().first();
        let Some(url) = url.filter(|_| !listed.file_groups.is_empty()) else {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema.project(columns)?),
                None => Arc::clone(&self.schema),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        };

        let groups = listed.file_groups.into_iter().map(|group| {
            let is_known = group.file_statistics(None).is_some();
            let files = group.into_inner().into_iter().map(|file| self.typed(file));
            let group = FileGroup::new(files.collect::<Result<_>>()?);
            if !is_known {
                return Ok(group);
            }
            let known = group.iter().filter_map(|file| file.statistics.as_deref());
            let known = self.together(known)?;
            Ok(group.with_statistics(Arc::new(known)))
        });
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let known = groups
            .iter()
            .filter_map(|group| group.file_statistics(None));
        let statistics = match (self.together(known)?, listed.statistics.num_rows) {
            (statistics, Precision::Exact(_)) => statistics,
            (statistics, _) => statistics.to_inexact(),
        };
        let ordering = self
            .listing
            .try_create_output_ordering(state.execution_props(), &groups)?;
        let format = &self.listing.options().format;
        let schema = TableSchemaBuilder::new(Arc::clone(&self.file_schema))
            .with_table_partition_cols(self.partition_fields().to_vec())
            .build();
        let scan = FileScanConfigBuilder::new(url.object_store(), format.file_source(schema))
            .with_file_groups(groups)
            .with_constraints(self.constraints.clone().unwrap_or_default())
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_output_ordering(ordering)
            .build();
        format.create_physical_plan(state, scan).await
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = input.schema();
        self.schema.logically_equivalent_names_and_types(&schema)?;
        let config = state.config_options();
        let columns = schema.fields().iter().enumerate().map(|(index, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(field.name(), index));
            let column = match index < self.file_schema.fields().len() {
                true => column,
                false => directory_name(column, &schema, config)?,
            };
            Ok((column, field.name().clone()))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let texts = ProjectionExec::try_new(columns, input)?;
        let inserted = self.listing.insert_into(state, Arc::new(texts), operation);
        inserted.await
    }
}

/// The directory name for a value of a partition column.
fn directory_name(
    column: Arc<dyn PhysicalExpr>,
    schema: &Schema,
    config: &ConfigOptions,
) -> Result<Arc<dyn PhysicalExpr>> {
    let data_type = column.data_type(schema)?;
    if !has_text(&data_type) {
        return not_impl_err!("writing partitions of type {data_type}");
    }
    let is_kept = config.execution.keep_partition_by_columns;
    let function = Arc::new(DirectoryName::function(is_kept));
    let config = Arc::new(config.clone());
    let name = ScalarFunctionExpr::try_new(function, vec![column], schema, config)?;
    // Kept columns have a type of their own.
    Ok(Arc::new(CastExpr::new(
        Arc::new(name),
        DataType::Utf8,
        None,
    )))
}

/// Creates tables of files for `CREATE EXTERNAL TABLE`. Partitioned ones follow Hive's rule.
#[derive(Debug, Default)]
pub struct TableFactory {
    tables: ListingTableFactory,
}

#[async_trait]
impl TableProviderFactory for TableFactory {
    async fn create(
        &self,
        state: &dyn Session,
        command: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let table = self.tables.create(state, command).await?;
        let Some(listing) = table.downcast_ref::<ListingTable>() else {
            return Ok(table);
        };
        let caches = &state.runtime_env().cache_manager;
        let statistics = caches.get_file_statistic_cache();
        Ok(
            match PartitionedTable::if_partitioned(listing, statistics)? {
                Some(partitioned) => Arc::new(partitioned),
                None => table,
            },
        )
    }
}

/// True for types whose values DataFusion writes as directory names.
fn has_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_text(values),
        DataType::Boolean | DataType::Date32 | DataType::Date64 => true,
        other => other.is_integer() || other.is_floating() || other.is_string(),
    }
}

/// Makes `COPY .. PARTITIONED BY` write partition columns as text, which become directory names.
#[derive(Debug)]
pub(crate) struct WritePartitions;

impl AnalyzerRule for WritePartitions {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_down(|node| match node {
            LogicalPlan::Copy(copy) if !copy.partition_by.is_empty() => {
                let is_kept = match copy.options.get("execution.keep_partition_by_columns") {
                    Some(kept) => kept.trim() == "true",
                    None => config.execution.keep_partition_by_columns,
                };
                Ok(Transformed::yes(LogicalPlan::Copy(of_text(copy, is_kept)?)))
            }
            node => Ok(Transformed::no(node)),
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "write_partitions_of_text"
    }
}

fn of_text(copy: CopyTo, is_kept: bool) -> Result<CopyTo> {
    if let LogicalPlan::Projection(projection) = copy.input.as_ref()
        && projection.expr.iter().any(is_directory_name)
    {
        return Ok(copy);
    }
    let columns = copy.input.schema().iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match copy.partition_by.contains(field.name()) && has_text(field.data_type()) {
            true => {
                let function = Arc::new(DirectoryName::function(is_kept));
                Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![column]))
                    .alias_qualified(qualifier.cloned(), field.name())
            }
            false => column,
        }
    });
    let columns = columns.collect();
    let texts = Projection::try_new(columns, Arc::clone(&copy.input))?;
    let texts = Arc::new(LogicalPlan::Projection(texts));
    Ok(CopyTo::new(
        texts,
        copy.output_url,
        copy.partition_by,
        copy.file_type,
        copy.options,
    ))
}

fn is_directory_name(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_directory_name(&alias.expr),
        Expr::ScalarFunction(call) => call.func.name() == DirectoryName::NAME,
        _ => false,
    }
}

/// The function from values of a partition column to directory names.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DirectoryName {
    signature: Signature,
    /// True if the files get the column, too. It is then unchanged and must not have nulls, which DataFusion would
    /// replace by other values.
    is_kept: bool,
}

impl DirectoryName {
    const NAME: &'static str = "vectile_partition_name";

    fn function(is_kept: bool) -> ScalarUDF {
        ScalarUDF::from(Self {
            signature: Signature::any(1, Volatility::Immutable),
            is_kept,
        })
    }
}

impl ScalarUDFImpl for DirectoryName {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kept] if self.is_kept => Ok(kept.clone()),
            [_] => Ok(DataType::Utf8),
            _ => plan_err!("{} has one argument", Self::NAME),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let values = arguments.args.into_iter().next();
        let values = values
            .ok_or_else(|| DataFusionError::Internal(format!("{} got no argument", Self::NAME)))?;
        let values = values.into_array(rows)?;
        if self.is_kept {
            return match values.logical_null_count() {
                0 => Ok(ColumnarValue::Array(values)),
                _ => exec_err!(
                    "a partition column has nulls, which keep_partition_by_columns does not allow"
                ),
            };
        }
        let texts = cast(&values, &DataType::Utf8)?;
        let texts = datafusion::common::cast::as_string_array(&texts)?;
        if texts.iter().any(|text| text == Some(NULL)) {
            return exec_err!(
                "the text '{NULL}' cannot be the value of a partition: it means null"
            );
        }
        let names = texts.iter().map(|text| text.unwrap_or(NULL));
        let names = StringArray::from_iter_values(names);
        Ok(ColumnarValue::Array(Arc::new(names)))
    }
}

/// The listing table of a table of files; `None` for other tables.
pub(crate) fn listing_of(table: &dyn TableProvider) -> Option<&ListingTable> {
    let partitioned = table.downcast_ref::<PartitionedTable>();
    let listing = partitioned.map(PartitionedTable::listing);
    listing.or_else(|| table.downcast_ref::<ListingTable>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_are_decoded() {
        let text = |text: &str| Some(text.to_owned());
        for (name, value) in [
            ("x", text("x")),
            ("x%2Fy", text("x/y")),
            ("Z%C3%bCrich", text("Zürich")),
            ("", text("")),
            ("100%", text("100%")),
            ("%zz%2", text("%zz%2")),
            ("%252F", text("%2F")),
            ("%FF", text("%FF")),
            ("__HIVE_DEFAULT_PARTITION__", None),
        ] {
            assert_eq!(partition_value(name), value, "{name}");
        }
    }
}
