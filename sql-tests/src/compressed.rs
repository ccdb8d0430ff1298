//! Replaces the tables of a session by Vectile's with the same content: over files, or in memory.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, DataFusionError, Result, exec_err};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::file_format::format_as_file_type;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use vectile_datafusion::{TableOptions, VectileTable, VectileTableOptions};

use crate::gpu::register_vectile;
use crate::memory::memory_table;

/// The format whose files DataFusion writes, too.
const PARQUET: &str = "parquet";

/// How the rows of replaced tables are kept.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The file format: `vectile`, or another registered one, to distinguish effects of this
    /// harness from those of Vectile.
    pub format: String,
    /// Options of that format, as in `OPTIONS (...)` of SQL.
    pub options: HashMap<String, String>,
    /// True if replaced tables are in memory ([`VectileTable`]). The format is then that of the
    /// files that a test makes itself.
    pub in_memory: bool,
}

impl Layout {
    /// Files of the format under test, with its defaults. `SQL_TESTS_FORMAT` names another format,
    /// or is `memory`; `SQL_TESTS_ROW_GROUP_ROWS` sets the size of row groups.
    pub fn from_env() -> Self {
        let format = std::env::var("SQL_TESTS_FORMAT").ok();
        let in_memory = format.as_deref() == Some("memory");
        let layout = Layout {
            format: format
                .filter(|_| !in_memory)
                .unwrap_or_else(|| "vectile".into()),
            options: HashMap::new(),
            in_memory,
        };
        match std::env::var("SQL_TESTS_ROW_GROUP_ROWS") {
            Ok(rows) => layout.with_option("row_group_rows", &rows),
            Err(_) => layout,
        }
    }

    /// Parquet files of row groups of so many rows.
    pub fn parquet(row_group_rows: &str) -> Self {
        let layout = Layout {
            format: PARQUET.into(),
            options: HashMap::new(),
            in_memory: false,
        };
        layout.with_option("format.max_row_group_size", row_group_rows)
    }

    /// Keeps tables in memory.
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// Adds an option of the format.
    pub fn with_option(mut self, key: &str, value: &str) -> Self {
        self.options.insert(key.into(), value.into());
        self
    }
}

/// The layout of replaced tables, and the directory of their files.
#[derive(Debug)]
pub struct CompressedTables {
    layout: Layout,
    directory: TempDir,
    tables: AtomicUsize,
}

/// The definition of a table, without its rows.
struct Definition {
    schema: SchemaRef,
    constraints: Option<Constraints>,
    defaults: HashMap<String, Expr>,
    sql: Option<String>,
    order: Vec<Vec<SortExpr>>,
}

impl CompressedTables {
    /// Starts with an empty directory, removed on drop.
    pub fn try_new(layout: Layout) -> Result<Self> {
        Ok(CompressedTables {
            layout,
            directory: TempDir::new()?,
            tables: AtomicUsize::new(0),
        })
    }

    /// The file format of the tables.
    pub fn format(&self) -> &str {
        &self.layout.format
    }

    /// Returns true if the plan reads a replaced table.
    pub fn read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut reads_ours = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Ok(provider) = source_as_provider(&scan.source)
            {
                reads_ours |= self.is_ours(provider.as_ref());
            }
            Ok(if reads_ours {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Continue
            })
        })?;
        Ok(reads_ours)
    }

    /// Replaces every table in memory of DataFusion.
    ///
    /// `sql` is the statement that created them. A comment in it may pin encodings, as in `/*
    /// encoding: column=ffor, other=dict */`.
    pub async fn replace_in_memory(&self, ctx: &SessionContext, sql: &str) -> Result<()> {
        let mut options = self.layout.options.clone();
        if self.layout.format != PARQUET {
            options.extend(pins(sql));
        }
        for (schema, name) in tables(ctx) {
            if let Some(provider) = schema.table(&name).await?
                && let Some(table) = provider.downcast_ref::<MemTable>()
                && may_swap(schema.as_ref(), &name, &provider)
            {
                let mut batches = vec![];
                for partition in &table.batches {
                    batches.extend(partition.read().await.iter().cloned());
                }
                let definition = Definition::of(provider.as_ref());
                let written = self.write(ctx, batches, definition, &options).await;
                // the writer has no values of some types: tables with those stay as they are
                let is_type = |error: &DataFusionError| {
                    matches!(error.find_root(), DataFusionError::ParquetError(_))
                };
                if self.layout.format != PARQUET || !written.as_ref().is_err_and(is_type) {
                    swap(schema.as_ref(), &name, written?)?;
                }
            }
        }
        Ok(())
    }

    /// Replaces every table over files of other formats, if it has rows: a test may fill the folder
    /// of an empty one later. Tables that cannot be read stay unchanged, because the query will
    /// report the error.
    pub async fn replace_external(&self, ctx: &SessionContext) -> Result<()> {
        for (schema, name) in tables(ctx) {
            if let Some(provider) = schema.table(&name).await?
                && provider.is::<ListingTable>()
                && !self.is_ours(provider.as_ref())
                && let Ok(batches) = read(Arc::clone(&provider)).await
                && batches.iter().any(|batch| batch.num_rows() > 0)
            {
                let definition = Definition::of(provider.as_ref());
                let options = &self.layout.options;
                let replacement = self.write(ctx, batches, definition, options).await?;
                swap(schema.as_ref(), &name, replacement)?;
            }
        }
        Ok(())
    }

    /// Restores in-memory tables of DataFusion, for statements that only those support (DELETE,
    /// UPDATE, TRUNCATE).
    pub async fn restore_all(&self, ctx: &SessionContext) -> Result<()> {
        for (schema, name) in tables(ctx) {
            let Some(provider) = schema.table(&name).await? else {
                continue;
            };
            if self.is_replacement(provider.as_ref()) {
                let definition = Definition::of(provider.as_ref());
                let batches = read(provider).await?;
                swap(schema.as_ref(), &name, definition.in_memory(batches)?)?;
            }
        }
        Ok(())
    }

    /// Returns true if the table is one of Vectile in memory, or its files have our format, written
    /// here or by the test itself.
    fn is_ours(&self, provider: &dyn TableProvider) -> bool {
        let files = provider.downcast_ref::<ListingTable>();
        provider.is::<VectileTable>()
            || files.is_some_and(|table| table.options().format.get_ext() == self.layout.format)
    }

    fn is_replacement(&self, provider: &dyn TableProvider) -> bool {
        let files = provider.downcast_ref::<ListingTable>();
        provider.is::<VectileTable>()
            || files.is_some_and(|table| {
                let directory = self.directory.path().to_string_lossy();
                table
                    .table_paths()
                    .iter()
                    .any(|path| path.as_str().contains(directory.as_ref()))
            })
    }

    async fn write(
        &self,
        ctx: &SessionContext,
        batches: Vec<RecordBatch>,
        definition: Definition,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn TableProvider>> {
        if self.layout.in_memory {
            return definition.in_vectile_memory(&batches, options).await;
        }
        let number = self.tables.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.path().join(number.to_string());
        std::fs::create_dir(&directory)?;
        let writer = writer_context()?;
        let rows = MemTable::try_new(Arc::clone(&definition.schema), vec![batches])?;
        let mut rows = writer.read_table(Arc::new(rows))?;
        if let [order] = definition.order.as_slice() {
            rows = rows.sort(order.clone())?;
        }
        self.write_file(&writer, rows, &directory, options.clone())
            .await?;
        self.table_over(ctx, &directory, definition)
    }

    async fn write_file(
        &self,
        writer: &SessionContext,
        rows: DataFrame,
        directory: &Path,
        options: HashMap<String, String>,
    ) -> Result<()> {
        let format = &self.layout.format;
        let Some(factory) = writer.state().get_file_format_factory(format) else {
            return exec_err!("no file format {format}");
        };
        let file = directory
            .join(format!("0.{format}"))
            .to_string_lossy()
            .into_owned();
        let copy = LogicalPlanBuilder::copy_to(
            rows.into_optimized_plan()?,
            file,
            format_as_file_type(factory),
            options,
            vec![],
        )?
        .build()?;
        writer.execute_logical_plan(copy).await?.collect().await?;
        Ok(())
    }

    fn table_over(
        &self,
        ctx: &SessionContext,
        directory: &Path,
        definition: Definition,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = ctx.state();
        let format = &self.layout.format;
        let Some(factory) = state.get_file_format_factory(format) else {
            return exec_err!("no file format {format}");
        };
        let options = ListingOptions::new(factory.create(&state, &self.layout.options)?)
            .with_file_extension(format!(".{format}"))
            .with_file_sort_order(definition.order.clone());
        let url = ListingTableUrl::parse(format!("{}/", directory.to_string_lossy()))?;
        let config = ListingTableConfig::new(url)
            .with_listing_options(options)
            .with_schema(definition.schema);
        let table = ListingTable::try_new(config)?
            .with_cache(ctx.runtime_env().cache_manager.get_file_statistic_cache())
            .with_constraints(definition.constraints.unwrap_or_default())
            .with_column_defaults(definition.defaults)
            .with_definition(definition.sql);
        Ok(Arc::new(table))
    }
}

impl Definition {
    fn of(provider: &dyn TableProvider) -> Self {
        let schema = provider.schema();
        let defaults = schema.fields().iter().filter_map(|field| {
            let default = provider.get_column_default(field.name())?;
            Some((field.name().clone(), default.clone()))
        });
        Definition {
            constraints: provider.constraints().cloned(),
            defaults: defaults.collect(),
            sql: provider.get_table_definition().map(str::to_owned),
            order: provider
                .downcast_ref::<ListingTable>()
                .map(|table| table.options().file_sort_order.clone())
                .unwrap_or_default(),
            schema,
        }
    }

    fn in_memory(self, batches: Vec<RecordBatch>) -> Result<Arc<dyn TableProvider>> {
        let table = MemTable::try_new(self.schema, vec![batches])?
            .with_constraints(self.constraints.unwrap_or_default())
            .with_column_defaults(self.defaults);
        Ok(Arc::new(table))
    }

    async fn in_vectile_memory(
        self,
        batches: &[RecordBatch],
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn TableProvider>> {
        // tables in memory are sorted by columns alone
        let are_columns = |order: &Vec<SortExpr>| {
            order
                .iter()
                .all(|sort| matches!(sort.expr, Expr::Column(_)))
        };
        let order = self.order.into_iter().find(are_columns);
        let options = VectileTableOptions::default()
            .with_table(TableOptions::try_from_map(options)?)
            .with_sort_order(order.unwrap_or_default());
        let state = writer_context()?.state();
        let table = memory_table(&state, self.schema, batches, options)
            .await?
            .with_constraints(self.constraints.unwrap_or_default())
            .with_column_defaults(self.defaults)
            .with_definition(self.sql);
        Ok(Arc::new(table))
    }
}

/// Format options for the pins in a statement.
fn pins(sql: &str) -> Vec<(String, String)> {
    let hint = sql
        .split_once("/* encoding:")
        .and_then(|(_, rest)| rest.split_once("*/"));
    let pins = hint.into_iter().flat_map(|(pins, _)| pins.split(','));
    let pins = pins.filter_map(|pin| pin.trim().split_once('='));
    pins.map(|(column, encoding)| (format!("encoding.{column}"), encoding.into()))
        .collect()
}

/// Returns true if a session has tables.
pub(crate) fn has_tables(ctx: &SessionContext) -> bool {
    !tables(ctx).is_empty()
}

/// Every table of every schema except `information_schema`, which holds none.
fn tables(ctx: &SessionContext) -> Vec<(Arc<dyn SchemaProvider>, String)> {
    let catalogs = ctx
        .catalog_names()
        .into_iter()
        .filter_map(|name| ctx.catalog(&name));
    let schemas = catalogs.flat_map(|catalog| {
        let names = catalog.schema_names().into_iter();
        let names = names.filter(|name| name != "information_schema");
        names
            .filter_map(move |name| catalog.schema(&name))
            .collect::<Vec<_>>()
    });
    schemas
        .flat_map(|schema| {
            let names = schema.table_names();
            names
                .into_iter()
                .map(move |name| (Arc::clone(&schema), name))
        })
        .collect()
}

/// Returns true if the schema lets a table be replaced: some schemas of tests are fixed, and
/// deregistering does nothing, or fails.
fn may_swap(schema: &dyn SchemaProvider, name: &str, table: &Arc<dyn TableProvider>) -> bool {
    match schema.deregister_table(name) {
        Ok(Some(_)) => schema
            .register_table(name.into(), Arc::clone(table))
            .is_ok(),
        _ => false,
    }
}

fn swap(schema: &dyn SchemaProvider, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
    schema.deregister_table(name)?;
    schema.register_table(name.into(), table)?;
    Ok(())
}

/// All rows, in the order of the table's partitions.
async fn read(provider: Arc<dyn TableProvider>) -> Result<Vec<RecordBatch>> {
    let partitions = writer_context()?
        .read_table(provider)?
        .collect_partitioned()
        .await?;
    Ok(partitions.into_iter().flatten().collect())
}

/// A separate session, so that a test's settings (memory limits, batch sizes) do not affect the
/// writing of its tables.
fn writer_context() -> Result<SessionContext, DataFusionError> {
    let config = SessionConfig::new().with_target_partitions(1);
    let ctx = SessionContext::new_with_config(config);
    register_vectile(&ctx, None)?;
    Ok(ctx)
}
