//! The scan in a plan: the operations it takes over from the operators above it.

use std::fmt::{self, Formatter, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::DataType;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileGroupPartitioner, FileOpener, FileScanConfig, FileScanConfigBuilder, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, DynamicFilterTracking,
};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, conjunction,
};
use datafusion::physical_expr_adapter::DefaultPhysicalExprAdapterFactory;
use datafusion::physical_expr_common::physical_expr::{fmt_sql, is_volatile};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{
    DisplayFormatType, ExecutionPlan, SortOrderPushdownResult, apply_expression_roots,
};
use object_store::ObjectStore;
use vectile_file::DEFAULT_ROW_GROUP_ROWS;
use vectile_scan::ContainerFormat;

use crate::chunk_cache;
use crate::file::is_local;
use crate::filters;
use crate::listing::Listings;
use crate::metrics::ScanMetrics;
use crate::opener::{CacheUse, Parts, VectileOpener};
use crate::options::VectileOptions;
use crate::order::RowGroupOrder;
use crate::pushdown;
use crate::selector::ScanDevice;
use crate::snapshot::Snapshot;
use crate::stack;

/// Byte ranges per partition into which a scan is split. Partitions take ranges from a common queue when they are
/// ready, so that no partition gets all row groups that were not pruned.
const RANGES_PER_PARTITION: usize = 4;

/// Scans Vectile files, or files of another [`ContainerFormat`]: a [`FileSource`] for [`FileScanConfig`].
///
/// It takes over filters (exactly, unless they are volatile), projections, limits and, as far as the order of files and
/// row groups goes, sort orders. It accepts filters only in a session in which Vectile is registered (see
/// [`register`](crate::register)): DataFusion's own rule for pushing filters down may take a column for another one of
/// the same name.
#[derive(Clone, Debug)]
pub struct VectileSource {
    format: &'static dyn ContainerFormat,
    table: TableSchema,
    projection: ProjectionExprs,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    pushdown_filters: bool,
    /// Shared by copies, because `EXPLAIN` prints the plan after each rule of the optimizer.
    described: Arc<Mutex<Option<Described>>>,
    order: Option<RowGroupOrder>,
    options: VectileOptions,
    footers: Option<Arc<FileMetadataCache>>,
    listings: Listings,
    memory: Arc<dyn MemoryPool>,
    batch_size: Option<usize>,
    /// Which parts of row groups the byte ranges of files have.
    parts: Parts,
    metrics: ExecutionPlanMetricsSet,
    /// The rows of a table in memory that the files stand for.
    snapshot: Option<Arc<Snapshot>>,
    /// Evaluates the filters instead of the scan, if set.
    device: Option<Arc<dyn ScanDevice>>,
    /// Why there is no device, if there is a GPU; or, if there is one, why the operators above were not fused.
    #[cfg(feature = "gpu")]
    gpu_note: Option<GpuNote>,
}

/// Description of how a scan evaluates its predicate, for `EXPLAIN`.
#[derive(Debug)]
struct Described {
    predicate: Arc<dyn PhysicalExpr>,
    /// The predicate as printed: dynamic filters and subqueries change.
    printed: String,
    pushdown_filters: bool,
    description: Arc<str>,
}

/// Why a scan, or the operators above it, are not on the GPU.
#[cfg(feature = "gpu")]
#[derive(Clone, Debug)]
pub(crate) struct GpuNote {
    pub(crate) reason: Arc<str>,
    /// True if the CPU is faster. The CPU then evaluates the scan's own filters, too.
    pub(crate) is_of_cost: bool,
}

/// True if a hash join can compute the least and greatest key of this type. Otherwise, DataFusion 55 fails the query if
/// a scan takes over the filter that the join builds.
fn join_bounds(data_type: &DataType) -> bool {
    !matches!(
        data_type,
        DataType::Map(_, _)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::Union(_, _)
            | DataType::RunEndEncoded(_, _)
    )
}

impl VectileSource {
    /// True if the scan takes over `filter`.
    fn accepts(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        let is_dynamic = filter.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
        let schema = self.table.table_schema();
        let mut types = collect_columns(filter)
            .into_iter()
            .filter_map(|column| schema.fields().get(column.index()))
            .map(|field| field.data_type());
        !is_volatile(filter) && (!is_dynamic || types.all(join_bounds))
    }

    /// A source of all columns of a table of Vectile files, without filters.
    pub fn new(table: impl Into<TableSchema>) -> Self {
        Self::of_format(&vectile_file::Format, table.into())
    }

    /// A source of all columns of a table of files of a format, without filters.
    pub(crate) fn of_format(format: &'static dyn ContainerFormat, table: TableSchema) -> Self {
        let columns: Vec<usize> = (0..table.table_schema().fields().len()).collect();
        Self {
            format,
            projection: ProjectionExprs::from_indices(&columns, table.table_schema()),
            table,
            predicate: None,
            pushdown_filters: true,
            described: Arc::default(),
            order: None,
            options: VectileOptions::default(),
            footers: None,
            listings: Listings::default(),
            memory: Arc::new(UnboundedMemoryPool::default()),
            batch_size: None,
            parts: Parts::RowGroups,
            metrics: ExecutionPlanMetricsSet::new(),
            snapshot: None,
            device: None,
            #[cfg(feature = "gpu")]
            gpu_note: None,
        }
    }

    /// Uses the runtime's caches of footers and listings, and its memory pool for row groups in memory.
    pub fn with_runtime(mut self, runtime: &RuntimeEnv) -> Self {
        self.footers = Some(runtime.cache_manager.get_file_metadata_cache());
        self.listings = Listings::of(runtime);
        self.memory = Arc::clone(&runtime.memory_pool);
        self
    }

    /// Sets the rows of a table in memory that the files stand for.
    pub(crate) fn with_snapshot(mut self, snapshot: Option<Arc<Snapshot>>) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// The rows of a table in memory, if the scan is of one.
    pub(crate) fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// Sets the session's settings.
    pub fn with_options(mut self, options: VectileOptions) -> Self {
        self.options = options;
        self
    }

    /// Which parts of row groups byte ranges have. It is decided once for all of them.
    fn parts_of(&self, config: &FileScanConfig) -> Parts {
        if self.snapshot.is_some() {
            return Parts::Vectors;
        }
        if self.format.decodes_columns() {
            return Parts::RowGroups;
        }
        let limit = chunk_cache::limit(&self.options, self.memory.as_ref()) as u64;
        let has_cache = self.footers.is_some() && self.options.verify_checksums;
        let is_kept = has_cache && scan_bytes(config) <= limit / 2;
        match is_kept && is_local(&config.object_store_url) {
            true => Parts::Vectors,
            false => Parts::RowGroups,
        }
    }

    /// Creates the opener for the files of one partition.
    pub(crate) fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
        metrics: ScanMetrics,
    ) -> VectileOpener {
        let adapters = config.expr_adapter_factory.clone();
        VectileOpener {
            format: self.format,
            store,
            footers: self.footers.clone(),
            listings: self.listings.clone(),
            memory: Arc::clone(&self.memory),
            table: self.table.clone(),
            predicate: self.predicate.clone(),
            projection: self.projection.clone(),
            adapters: adapters.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory)),
            order: self.order.clone(),
            pushdown_filters: self.pushdown_filters,
            verify_checksums: self.options.verify_checksums,
            cache: CacheUse {
                limit: chunk_cache::limit(&self.options, self.memory.as_ref()),
                scan_bytes: scan_bytes(config),
            },
            parts: self.parts,
            batch_size: self.batch_size.unwrap_or(8192).max(1),
            limit: config.limit,
            partition,
            metrics,
            device: self
                .device
                .as_ref()
                .map(|device| device.partition(&self.metrics, partition)),
        }
    }

    /// A copy with metrics of its own.
    pub(crate) fn fresh(&self) -> Self {
        Self {
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }
    }

    /// True if the scan evaluates its predicate; false if it only prunes by it.
    #[cfg(feature = "gpu")]
    pub(crate) fn evaluates_filters(&self) -> bool {
        self.pushdown_filters
    }

    /// Prunes by another predicate over the table's schema.
    #[cfg(feature = "gpu")]
    pub(crate) fn pruning_by(mut self, predicate: Option<Arc<dyn PhysicalExpr>>) -> Self {
        self.predicate = predicate;
        self.pushdown_filters = true;
        self
    }

    /// Replaces the predicate by `other` of it.
    pub(crate) fn with_predicate(
        mut self,
        other: impl FnOnce(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        self.predicate = self.predicate.as_ref().map(other).transpose()?;
        Ok(self)
    }

    /// Puts out these columns of the table.
    #[cfg(feature = "gpu")]
    pub(crate) fn with_columns(mut self, columns: &[usize]) -> Self {
        self.projection = ProjectionExprs::from_indices(columns, self.table.table_schema());
        self
    }

    /// Makes a device evaluate the filters.
    #[cfg(feature = "gpu")]
    pub(crate) fn with_device(mut self, device: Arc<dyn ScanDevice>) -> Self {
        self.device = Some(device);
        self
    }

    /// Sets, for `EXPLAIN`, why the scan does not run on the GPU; or, if it does, why the operators above were not
    /// fused.
    #[cfg(feature = "gpu")]
    pub(crate) fn with_gpu_note(mut self, note: GpuNote) -> Self {
        self.gpu_note = Some(note);
        self
    }

    /// The note of [`Self::with_gpu_note`].
    #[cfg(feature = "gpu")]
    pub(crate) fn gpu_note(&self) -> Option<&GpuNote> {
        self.gpu_note.as_ref()
    }

    fn with_order(&self, order: Option<LexOrdering>, reversed: bool) -> Self {
        Self {
            order: order.map(|order| RowGroupOrder { order, reversed }),
            ..self.clone()
        }
    }

    fn fmt_predicate(
        &self,
        predicate: &Arc<dyn PhysicalExpr>,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        let printed = predicate.to_string();
        write!(f, ", predicate={printed}")?;
        f.write_str(&self.described(predicate, printed)?)
    }

    /// How the scan evaluates `predicate`, which prints as `printed`. Computed only if either changes.
    fn described(
        &self,
        predicate: &Arc<dyn PhysicalExpr>,
        printed: String,
    ) -> Result<Arc<str>, fmt::Error> {
        let last = self.described.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref()
            && Arc::ptr_eq(&last.predicate, predicate)
            && last.printed == printed
            && last.pushdown_filters == self.pushdown_filters
        {
            return Ok(Arc::clone(&last.description));
        }
        let description: Arc<str> = self.describe(predicate)?.into();
        *last = Some(Described {
            predicate: Arc::clone(predicate),
            printed,
            pushdown_filters: self.pushdown_filters,
            description: Arc::clone(&description),
        });
        Ok(description)
    }

    fn describe(&self, predicate: &Arc<dyn PhysicalExpr>) -> Result<String, fmt::Error> {
        let mut text = String::new();
        match self.pushdown_filters {
            true => filters::describe(predicate, self.table.table_schema(), &mut text)?,
            false => text.push_str(", pruning_only=true"),
        }
        if DynamicFilterTracking::classify(predicate).contains_dynamic_filter() {
            text.push_str(", dynamic_pruning=eligible");
        }
        let pruning = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(self.table.table_schema()))
            .build(Arc::clone(predicate));
        if let Some(pruning) = pruning {
            write!(text, ", pruning_predicate={}", pruning.predicate_expr())?;
        }
        Ok(text)
    }
}

impl FileSource for VectileSource {
    fn create_file_opener(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let metrics = ScanMetrics::new(&self.metrics, partition);
        Ok(Arc::new(self.opener(
            object_store,
            base_config,
            partition,
            metrics,
        )))
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            batch_size: Some(batch_size),
            ..self.clone()
        })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.predicate.clone()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.format.name()
    }

    fn fmt_extra(&self, t: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        match (t, &self.predicate) {
            (DisplayFormatType::TreeRender, Some(predicate)) => {
                writeln!(f, "predicate={}", fmt_sql(predicate.as_ref()))
            }
            (DisplayFormatType::TreeRender, None) => Ok(()),
            (DisplayFormatType::Default | DisplayFormatType::Verbose, predicate) => {
                if let Some(predicate) = predicate {
                    let levels = stack::levels([predicate]);
                    stack::with_room(levels, || self.fmt_predicate(predicate, f))?;
                }
                if let Some(order) = &self.order {
                    write!(f, ", {order}")?;
                }
                if let Some(gpu) = &self.device {
                    write!(f, ", gpu={gpu}")?;
                }
                #[cfg(feature = "gpu")]
                if let Some(note) = &self.gpu_note {
                    let name = match self.device {
                        Some(_) => "not_fused",
                        None => "not_on_gpu",
                    };
                    write!(f, ", {name}={}", note.reason)?;
                }
                Ok(())
            }
        }
    }

    /// Splits files into more byte ranges than partitions, to balance the load.
    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        // Each range would read a row group for rows that the first range has.
        if config
            .limit
            .is_some_and(|limit| limit <= DEFAULT_ROW_GROUP_ROWS)
        {
            return Ok(None);
        }
        let ordered = output_ordering.is_some();
        let ranges = match ordered {
            true => target_partitions,
            false => target_partitions * RANGES_PER_PARTITION,
        };
        let groups = FileGroupPartitioner::new()
            .with_target_partitions(ranges)
            .with_repartition_file_min_size(repartition_file_min_size)
            .with_preserve_order_within_groups(ordered)
            .repartition_file_groups(&config.file_groups);
        Ok(groups.map(|groups| {
            let mut config = config.clone();
            config.file_source = Arc::new(Self {
                parts: self.parts_of(&config),
                ..self.clone()
            });
            config.file_groups = match ordered {
                true => groups,
                false => regroup(groups, target_partitions),
            };
            config
        }))
    }

    /// Accepts every filter that is not volatile, if its columns are proven to be those of the table.
    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let is_proven = pushdown::is_proven(config);
        let accepted: Vec<bool> = filters
            .iter()
            .map(|filter| is_proven && self.accepts(filter))
            .collect();
        let pushdown_filters = VectileOptions::of(config).pushdown_filters;
        let answers = accepted
            .iter()
            .map(|&accepted| match accepted && pushdown_filters {
                true => PushedDown::Yes,
                false => PushedDown::No,
            });
        let answer = FilterPushdownPropagation::with_parent_pushdown_result(answers.collect());
        let new = filters
            .into_iter()
            .zip(&accepted)
            .filter(|(_, accepted)| **accepted);
        let new: Vec<Arc<dyn PhysicalExpr>> = new.map(|(filter, _)| filter).collect();
        if new.is_empty() {
            return Ok(answer);
        }
        // The device's filters are fixed when it is set; dynamic filters may be added later.
        let dynamic = |filter: &Arc<dyn PhysicalExpr>| {
            let filter = filter.downcast_ref::<DynamicFilterPhysicalExpr>();
            filter.is_some()
        };
        let device = self.device.clone().filter(|_| new.iter().all(dynamic));
        let predicate = conjunction(self.predicate.iter().cloned().chain(new));
        let source = Self {
            predicate: Some(predicate),
            pushdown_filters,
            device,
            ..self.clone()
        };
        Ok(answer.with_updated_node(Arc::new(source)))
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let projection = self.projection.try_merge(projection)?;
        Ok(Some(Arc::new(Self {
            projection,
            ..self.clone()
        })))
    }

    /// Exact if files are declared to be sorted in that order. Otherwise inexact: row groups are scanned by ascending
    /// or descending minimum of the leading column, so that a top-k above sees its rows early and prunes the rest.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        eq_properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        let Some(sort_order) = LexOrdering::new(order.iter().cloned()) else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        if eq_properties.ordering_satisfy(order.iter().cloned())? {
            return Ok(SortOrderPushdownResult::Exact {
                inner: Arc::new(self.clone()),
            });
        }
        // A sort whose prefix is satisfied is best left to the operator above, which stops early.
        for prefix in 1..order.len() {
            if eq_properties.ordering_satisfy(order.iter().take(prefix).cloned())? {
                return Ok(SortOrderPushdownResult::Unsupported);
            }
        }
        let leading = sort_order.first();
        let by_statistics = leading.expr.downcast_ref::<Column>().is_some_and(|column| {
            self.table
                .file_schema()
                .field_with_name(column.name())
                .is_ok()
        });
        let reversed = match by_statistics {
            true => leading.options.descending,
            false if is_reverse(order, eq_properties)? => true,
            false => return Ok(SortOrderPushdownResult::Unsupported),
        };
        let inner = Arc::new(self.with_order(Some(sort_order), reversed));
        Ok(SortOrderPushdownResult::Inexact { inner })
    }

    fn reorder_files(&self, mut files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        let Some(RowGroupOrder { order, reversed }) = &self.order else {
            return files;
        };
        let Some(column) = order.first().expr.downcast_ref::<Column>() else {
            return files;
        };
        let Ok(index) = self.table.table_schema().index_of(column.name()) else {
            return files;
        };
        files.sort_by(|a, b| match (minimum(a, index), minimum(b, index)) {
            (Some(a), Some(b)) => {
                let order = a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
                if *reversed { order.reverse() } else { order }
            }
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        files
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let projected = self.projection.iter().map(|projected| &projected.expr);
        apply_expression_roots(self.predicate.iter().chain(projected), f)
    }
}

/// Plans the scan of `conf` with the settings of a session.
pub(crate) fn scan_plan(
    state: &dyn Session,
    conf: FileScanConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = VectileOptions::of(state.config_options());
    options.check()?;
    let source = conf.file_source().downcast_ref::<VectileSource>();
    let source = source.ok_or_else(|| internal_datafusion_err!("expected a VectileSource"))?;
    let source = source
        .clone()
        .with_runtime(state.runtime_env())
        .with_options(options);
    let conf = FileScanConfigBuilder::from(conf)
        .with_source(Arc::new(source))
        .build();
    Ok(DataSourceExec::from_data_source(conf))
}

/// A scan of `config` with another source.
pub(crate) fn scan_of(config: &FileScanConfig, source: VectileSource) -> Arc<dyn ExecutionPlan> {
    let config = FileScanConfigBuilder::from(config.clone());
    DataSourceExec::from_data_source(config.with_source(Arc::new(source)).build())
}

/// Bytes of the files of a scan, or of the ranges of them that it reads.
fn scan_bytes(config: &FileScanConfig) -> u64 {
    let files = config.file_groups.iter().flat_map(|group| group.iter());
    let bytes = files.map(|file| match &file.range {
        Some(range) => range.end.abs_diff(range.start),
        None => file.object_meta.size,
    });
    bytes.sum()
}

/// Regroups the ranges of `groups` into at most `partitions` groups of neighbours.
fn regroup(groups: Vec<FileGroup>, partitions: usize) -> Vec<FileGroup> {
    let files: Vec<PartitionedFile> = groups
        .iter()
        .flat_map(|group| group.iter().cloned())
        .collect();
    let per_group = files.len().div_ceil(partitions).max(1);
    files
        .chunks(per_group)
        .map(|files| FileGroup::new(files.to_vec()))
        .collect()
}

/// True if the files, each read backwards, satisfy `order`.
fn is_reverse(order: &[PhysicalSortExpr], eq_properties: &EquivalenceProperties) -> Result<bool> {
    let mut reversed = eq_properties.clone();
    reversed.clear_orderings();
    let orderings = eq_properties.oeq_class().iter();
    reversed.add_orderings(
        orderings
            .map(|ordering| {
                ordering
                    .iter()
                    .map(PhysicalSortExpr::reverse)
                    .collect::<Vec<_>>()
            })
            .collect::<Vec<_>>(),
    );
    reversed.ordering_satisfy(order.iter().cloned())
}

fn minimum(file: &PartitionedFile, column: usize) -> Option<&ScalarValue> {
    let statistics = file.statistics.as_ref()?;
    statistics
        .column_statistics
        .get(column)?
        .min_value
        .get_value()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    #[test]
    fn descriptions_are_kept_until_filters_change() -> Result<()> {
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, true)]);
        let column = col("v", &schema)?;
        let above = |value: i64| binary(Arc::clone(&column), Operator::Gt, lit(value), &schema);
        let filter = DynamicFilterPhysicalExpr::new(vec![Arc::clone(&column)], above(1)?);
        let filter = Arc::new(filter);
        let mut source = VectileSource::new(Arc::new(schema.clone()));
        source.predicate = Some(Arc::clone(&filter) as _);
        let described = |source: &VectileSource| {
            let predicate = source.predicate.as_ref().unwrap();
            source.described(predicate, predicate.to_string()).unwrap()
        };

        let first = described(&source);
        assert!(first.contains("v_max@0 > 1"), "{first}");
        assert!(Arc::ptr_eq(&first, &described(&source.fresh())));

        filter.update(above(2)?)?;
        let changed = described(&source);
        assert!(changed.contains("v_max@0 > 2"), "{changed}");

        let pruning = VectileSource {
            pushdown_filters: false,
            ..source.clone()
        };
        let pruning_only = described(&pruning);
        assert!(pruning_only.contains("pruning_only"), "{pruning_only}");

        source.predicate = Some(above(2)?);
        let fixed = described(&source);
        assert!(!fixed.contains("dynamic_pruning"), "{fixed}");
        Ok(())
    }
}
