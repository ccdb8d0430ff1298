//! Registers Vectile in a session.

use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
#[cfg(feature = "gpu")]
use datafusion::catalog::TableFunction;
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference};
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, SortExpr, WindowUDF};
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{DataFrame, SessionContext};
use vectile_scan::ContainerFormat;

use crate::container::{ContainerFileFormatFactory, FORMATS, file_type};
use crate::dml::ChangedRows;
use crate::format::{EXTENSION, VectileFormat, VectileFormatFactory};
#[cfg(feature = "gpu")]
use crate::fused::{Gpu, functions, insert_rules};
use crate::options::VectileOptions;
use crate::partitions::{PartitionedTable, TableFactory, WritePartitions};
use crate::plan_cache::{Outlook, PlanCache};
use crate::pushdown::Rule;
use crate::{limits, nullable, one_snapshot, plan_cache, pushdown, sanity, sort, windows};

/// Registers everything in a session: `STORED AS VECTILE` and `STORED AS ORC`, `COPY ... TO`, `SET vectile.*`, the
/// functions `vectile_load`, `vectile_unload` and `vectile_pinned`, and the rules that run work on a GPU. The rule for
/// aggregates precedes DataFusion's `join_selection`, and is omitted if a session has no rule of that name. Call
/// `register` before statements are prepared: DataFusion builds a new state to change its rules, and gives no access to
/// the prepared statements of the old one.
///
/// It replaces DataFusion's two `FilterPushdown` rules, `PushdownSort`, `TopKAggregation`, `EnsureRequirements`,
/// `LimitPushdown` and `LimitPushPastWindows`: those of 55.2 may take a column for another one of the same name, push
/// filters and orders past a limit or an offset, push limits past a window function, and push down dynamic filters of
/// aggregates that drop rows. It also adds a rule for outer joins and grouping sets: 55.2 takes constants of the side
/// that gets nulls for constants of the join, constants that some grouping sets omit for constants of all, and the groups
/// of sets for sorted as the rows are. Each of these gives wrong results, over tables of any format. A rule of
/// the logical optimizer keeps `DELETE` and `UPDATE` from changing all rows where 55.2 loses their filters. Another rule
/// removes limits of ordered `DISTINCT`s, which fail with 55.2, and `SanityCheckPlan` accepts orders that it does not recognize there. `COPY .. PARTITIONED BY` uses Hive's
/// name for the directory of nulls, in any format; to read tables of other formats by that rule, register a
/// [`TableFactory`] for them.
///
/// # Errors
///
/// Returns an error if DataFusion rejects a registration.
pub fn register(ctx: &SessionContext) -> Result<()> {
    #[cfg(feature = "gpu")]
    return register_with_gpu(ctx, Gpu::of_machine());
    #[cfg(not(feature = "gpu"))]
    register_with_rules(ctx, insert_machine_rules)
}

/// Like [`register`], with another GPU than the machine's first, or none.
///
/// # Errors
///
/// Returns the errors of [`register`].
#[cfg(feature = "gpu")]
pub fn register_with_gpu(ctx: &SessionContext, gpu: Gpu) -> Result<()> {
    for (name, function) in functions(&gpu) {
        ctx.register_udtf(name, function);
    }
    register_with_rules(ctx, |rules| insert_gpu_rules(rules, gpu.clone()))?;
    ctx.state_ref()
        .write()
        .config_mut()
        .set_extension(Arc::new(gpu));
    Ok(())
}

/// Adds the rules for the machine's GPU, if this build supports GPUs.
#[cfg(feature = "gpu")]
fn insert_machine_rules(rules: &mut Vec<Rule>) -> Outlook {
    insert_gpu_rules(rules, Gpu::of_machine())
}

/// Adds the rules for `gpu`.
#[cfg(feature = "gpu")]
fn insert_gpu_rules(rules: &mut Vec<Rule>, gpu: Gpu) -> Outlook {
    insert_rules(rules, gpu.clone(), plan_cache::can_be_copied);
    Box::new(move || gpu.outlook())
}

#[cfg(not(feature = "gpu"))]
fn insert_machine_rules(_: &mut Vec<Rule>) -> Outlook {
    Box::new(|| 0)
}

/// Replaces and adds rules of a session with this runtime; `insert` adds those for a GPU.
fn change_rules(
    rules: &mut Vec<Rule>,
    runtime: &Arc<RuntimeEnv>,
    insert: impl FnOnce(&mut Vec<Rule>) -> Outlook,
) -> PlanCache {
    pushdown::replace_rules(rules);
    limits::replace_rules(rules);
    nullable::insert_rule(rules);
    sanity::replace_rules(rules);
    plan_cache::insert_rule(rules);
    windows::insert_rule(rules);
    sort::insert_rule(rules);
    one_snapshot::insert_rule(rules);
    #[cfg(feature = "parquet")]
    crate::parquet::insert_rule(rules, runtime);
    #[cfg(not(feature = "parquet"))]
    let _ = runtime;
    PlanCache::new(insert(rules))
}

fn register_with_rules(
    ctx: &SessionContext,
    insert: impl FnOnce(&mut Vec<Rule>) -> Outlook,
) -> Result<()> {
    let state = ctx.state_ref();
    let mut state = state.write();
    let mut rules = state.physical_optimizers().to_vec();
    let plans = change_rules(&mut rules, state.runtime_env(), insert);
    let before = state.clone();
    let mut optimizers = state.optimizers().to_vec();
    optimizers.retain(|rule| rule.name() != ChangedRows.name());
    optimizers.push(Arc::new(ChangedRows));
    *state = SessionStateBuilder::new_from_existing(state.clone())
        .with_session_id(before.session_id().to_owned())
        .with_optimizer_rules(optimizers)
        .with_physical_optimizer_rules(rules)
        .build();
    restore_functions(&mut state, &before)?;
    state.register_file_format(Arc::new(VectileFormatFactory), true)?;
    add_table_factory(&mut state, &vectile_file::Format);
    for format in FORMATS {
        add_format(&mut state, format)?;
    }
    state.add_analyzer_rule(Arc::new(WritePartitions));
    state.config_mut().set_extension(Arc::new(plans));
    configure(state.config_mut().options_mut());
    Ok(())
}

/// Adds a format of containers to a session: `STORED AS` its name in upper case, for files that are read and not
/// written. Call [`register`] first.
///
/// # Errors
///
/// Returns an error if DataFusion rejects the registration.
pub fn register_format(ctx: &SessionContext, format: &'static dyn ContainerFormat) -> Result<()> {
    add_format(&mut ctx.state_ref().write(), format)
}

fn add_format(state: &mut SessionState, format: &'static dyn ContainerFormat) -> Result<()> {
    let factory = ContainerFileFormatFactory::new(format);
    state.register_file_format(Arc::new(factory), true)?;
    add_table_factory(state, format);
    Ok(())
}

fn add_table_factory(state: &mut SessionState, format: &dyn ContainerFormat) {
    let factory = Arc::new(TableFactory::default());
    state
        .table_factories_mut()
        .insert(file_type(format), factory);
}

/// Adds Vectile's settings, and shows that dynamic filters of aggregates are not pushed down.
fn configure(config: &mut ConfigOptions) {
    if config.extensions.get::<VectileOptions>().is_none() {
        config.extensions.insert(VectileOptions::default());
    }
    config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
}

/// Restores the functions that names refer to in `before`. Building a state registers functions anew, in any order: if
/// an alias of one is the name of another, the wrong one may come last.
fn restore_functions(state: &mut SessionState, before: &SessionState) -> Result<()> {
    restore(
        state,
        before.scalar_functions(),
        SessionState::scalar_functions,
        ScalarUDF::name,
        FunctionRegistry::register_udf,
    )?;
    restore(
        state,
        before.higher_order_functions(),
        SessionState::higher_order_functions,
        HigherOrderUDF::name,
        FunctionRegistry::register_higher_order_function,
    )?;
    restore(
        state,
        before.aggregate_functions(),
        SessionState::aggregate_functions,
        AggregateUDF::name,
        FunctionRegistry::register_udaf,
    )?;
    restore(
        state,
        before.window_functions(),
        SessionState::window_functions,
        WindowUDF::name,
        FunctionRegistry::register_udwf,
    )
}

/// Registers a function; returns the previous one of that name.
type Register<F> = fn(&mut SessionState, Arc<F>) -> Result<Option<Arc<F>>>;

/// Restores the functions of one kind.
fn restore<F>(
    state: &mut SessionState,
    before: &HashMap<String, Arc<F>>,
    functions: fn(&SessionState) -> &HashMap<String, Arc<F>>,
    name_of: fn(&F) -> &str,
    register: Register<F>,
) -> Result<()> {
    for (name, function) in before {
        let is_same = |now: &Arc<F>| Arc::ptr_eq(now, function);
        if name == name_of(function) && !functions(state).get(name).is_some_and(is_same) {
            register(state, Arc::clone(function))?;
        }
    }
    Ok(())
}

/// Registers everything in a session state that is being built.
pub trait VectileSessionStateBuilderExt {
    /// Like [`register`]. Call it after `with_config`, `with_runtime_env`, `with_file_formats`, `with_table_functions` and
    /// `with_physical_optimizer_rules`, which would undo it.
    fn with_vectile(self) -> Self;
}

impl VectileSessionStateBuilderExt for SessionStateBuilder {
    fn with_vectile(mut self) -> Self {
        let formats = self.file_formats().get_or_insert_with(Vec::new);
        formats.push(Arc::new(VectileFormatFactory));
        for format in FORMATS {
            formats.push(Arc::new(ContainerFileFormatFactory::new(format)));
        }
        let runtime = Arc::clone(self.runtime_env().get_or_insert_default());
        let optimizer = self
            .physical_optimizers()
            .get_or_insert_with(PhysicalOptimizer::new);
        let plans = change_rules(&mut optimizer.rules, &runtime, insert_machine_rules);
        let config = self.config().get_or_insert_default();
        config.set_extension(Arc::new(plans));
        configure(config.options_mut());
        #[cfg(feature = "gpu")]
        config.set_extension(Arc::new(Gpu::of_machine()));
        #[cfg(feature = "gpu")]
        for (name, function) in functions(&Gpu::of_machine()) {
            let function = TableFunction::new(name.to_owned(), function);
            let functions = self.table_functions().get_or_insert_default();
            functions.insert(name.to_owned(), Arc::new(function));
        }
        let own: &dyn ContainerFormat = &vectile_file::Format;
        FORMATS
            .into_iter()
            .chain([own])
            .fold(self, |builder, format| {
                let factory = Arc::new(TableFactory::default());
                builder.with_table_factory(file_type(format), factory)
            })
            .with_analyzer_rule(Arc::new(WritePartitions))
            .with_optimizer_rule(Arc::new(ChangedRows))
    }
}

/// How to read a table. The defaults suit a file, or a directory of files with one schema.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VectileReadOptions {
    /// The schema; `None`: inferred from the files.
    pub schema: Option<SchemaRef>,
    /// Partition columns, which are in directory names (`year=2013/`), with their types.
    pub table_partition_cols: Vec<(String, DataType)>,
    /// Sort orders of each file, as alternative lists of sort expressions.
    pub file_sort_order: Vec<Vec<SortExpr>>,
}

impl VectileReadOptions {
    /// Sets [`schema`](Self::schema).
    #[must_use]
    pub fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets [`table_partition_cols`](Self::table_partition_cols).
    #[must_use]
    pub fn with_table_partition_cols(mut self, columns: Vec<(String, DataType)>) -> Self {
        self.table_partition_cols = columns;
        self
    }

    /// Sets [`file_sort_order`](Self::file_sort_order).
    #[must_use]
    pub fn with_file_sort_order(mut self, order: Vec<Vec<SortExpr>>) -> Self {
        self.file_sort_order = order;
        self
    }

    fn listing_options(&self) -> ListingOptions {
        ListingOptions::new(Arc::new(VectileFormat::default()))
            .with_file_extension(format!(".{EXTENSION}"))
            .with_table_partition_cols(self.table_partition_cols.clone())
            .with_file_sort_order(self.file_sort_order.clone())
    }

    async fn table(
        self,
        context: &SessionContext,
        url: ListingTableUrl,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = context.state();
        let listing = self.listing_options();
        let schema = match self.schema {
            Some(schema) => schema,
            None => listing.infer_schema(&state, &url).await?,
        };
        let config = ListingTableConfig::new(url)
            .with_listing_options(listing)
            .with_schema(schema);
        let caches = &state.runtime_env().cache_manager;
        let statistics = caches.get_file_statistic_cache();
        let table = ListingTable::try_new(config)?.with_cache(statistics.clone());
        PartitionedTable::of(table, statistics)
    }
}

/// Converts the path of an existing file or directory to a URL if it would be taken for a glob.
fn path_or_url(path: &str) -> Result<String> {
    let is_itself = ListingTableUrl::parse(path).is_ok_and(|url| url.get_glob().is_none());
    let (false, Ok(canonical)) = (is_itself, Path::new(path).canonicalize()) else {
        return Ok(path.to_owned());
    };
    let mut url = ListingTableUrl::parse("file:///")?.get_url().clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        for part in canonical.components() {
            match part {
                Component::Normal(name) => segments.push(&name.to_string_lossy()),
                Component::RootDir => continue,
                // No URL of this machine begins with a drive.
                _ => return Ok(path.to_owned()),
            };
        }
        if canonical.is_dir() {
            segments.push("");
        }
    }
    Ok(url.to_string())
}

/// Tables of Vectile files in a session. They work without [`register`], but then their scans take over no filters.
#[async_trait]
pub trait VectileSessionContextExt {
    /// Registers a file, directory, glob or URL as the table `name`. A path that exists is not a glob.
    ///
    /// # Errors
    ///
    /// Returns errors of listing the files and reading their footers.
    async fn register_vectile(
        &self,
        name: impl Into<TableReference> + Send,
        path: impl AsRef<str> + Send,
        options: VectileReadOptions,
    ) -> Result<()>;

    /// Returns a data frame of a file, directory, glob or URL. A path that exists is not a glob.
    ///
    /// # Errors
    ///
    /// Returns errors of listing the files and reading their footers.
    async fn read_vectile(
        &self,
        path: impl AsRef<str> + Send,
        options: VectileReadOptions,
    ) -> Result<DataFrame>;
}

#[async_trait]
impl VectileSessionContextExt for SessionContext {
    async fn register_vectile(
        &self,
        name: impl Into<TableReference> + Send,
        path: impl AsRef<str> + Send,
        options: VectileReadOptions,
    ) -> Result<()> {
        let name = name.into();
        let url = ListingTableUrl::parse(path_or_url(path.as_ref())?)?.with_table_ref(name.clone());
        let table = options.table(self, url).await?;
        self.register_table(name, table)?;
        Ok(())
    }

    async fn read_vectile(
        &self,
        path: impl AsRef<str> + Send,
        options: VectileReadOptions,
    ) -> Result<DataFrame> {
        let url = ListingTableUrl::parse(path_or_url(path.as_ref())?)?;
        self.read_table(options.table(self, url).await?)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::functions::math::{abs, sqrt};
    use datafusion::functions_aggregate::{min_max::max_udaf, sum::sum_udaf};
    use datafusion::functions_window::{rank::rank_udwf, row_number::row_number_udwf};

    use super::*;

    #[test]
    fn the_session_stays_the_same() {
        let ctx = SessionContext::new();
        let before = ctx.state().session_id().to_owned();
        register(&ctx).unwrap();
        assert_eq!(ctx.state().session_id(), before);
        assert_eq!(ctx.task_ctx().session_id(), before);
    }

    #[test]
    fn names_go_on_to_mean_the_same_functions() {
        // The order in which a state is built differs from one to the next.
        for _ in 0..16 {
            let ctx = SessionContext::new();
            ctx.register_udf(ScalarUDF::clone(&abs()).with_aliases(["sqrt"]));
            ctx.register_udf(ScalarUDF::clone(&sqrt()));
            ctx.register_udaf(AggregateUDF::clone(&sum_udaf()).with_aliases(["max"]));
            ctx.register_udaf(AggregateUDF::clone(&max_udaf()));
            ctx.register_udwf(WindowUDF::clone(&row_number_udwf()).with_aliases(["rank"]));
            ctx.register_udwf(WindowUDF::clone(&rank_udwf()));
            register(&ctx).unwrap();
            let state = ctx.state();
            assert_eq!(state.scalar_functions()["sqrt"].name(), "sqrt");
            assert_eq!(state.aggregate_functions()["max"].name(), "max");
            assert_eq!(state.window_functions()["rank"].name(), "rank");
        }
    }
}
