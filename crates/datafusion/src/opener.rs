//! Opens a file: reads its footer, fits filters and projection to its schema, prunes row groups.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction_opt};
use datafusion::physical_expr_adapter::rewrite::rewrite_input_file_name_in_projection;
use datafusion::physical_expr_adapter::{
    PhysicalExprAdapterFactory, replace_columns_with_literals,
};
use datafusion::physical_optimizer::pruning::FilePruner;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::VECTOR_LEN;
use vectile_file::ReadOptions;
use vectile_scan::object::{Handle, Version};
use vectile_scan::{
    CachedFile, Container, ContainerFormat, FileChunks, FileContainer, Filters, Role, Scan,
};

use crate::error;
use crate::file::{FileContext, ScanFile};
use crate::filters::filters;
use crate::footer::Footer;
use crate::listing::Listings;
use crate::memory::Reserved;
use crate::metrics::ScanMetrics;
use crate::order::RowGroupOrder;
use crate::projection::Projection;
use crate::pruning;
use crate::selector::{DeviceScan, PartitionDevice};
use crate::snapshot::segment_of;
use crate::stack;

/// Opens the files of one partition of a scan.
#[derive(Clone)]
pub(crate) struct VectileOpener {
    pub(crate) format: &'static dyn ContainerFormat,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) footers: Option<Arc<FileMetadataCache>>,
    pub(crate) listings: Listings,
    pub(crate) memory: Arc<dyn MemoryPool>,
    pub(crate) table: TableSchema,
    /// Expression over the table's schema, including partition columns.
    pub(crate) predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Expressions over the table's schema, including partition columns.
    pub(crate) projection: ProjectionExprs,
    pub(crate) adapters: Arc<dyn PhysicalExprAdapterFactory>,
    pub(crate) order: Option<RowGroupOrder>,
    /// True if the scan evaluates the predicate; false if it only prunes.
    pub(crate) pushdown_filters: bool,
    pub(crate) verify_checksums: bool,
    pub(crate) cache: CacheUse,
    /// Which parts of row groups byte ranges have, unless a device reads row groups, or they have an order.
    pub(crate) parts: Parts,
    pub(crate) batch_size: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) partition: usize,
    pub(crate) metrics: ScanMetrics,
    /// Evaluates the predicate instead of the scan, if set.
    pub(crate) device: Option<Arc<dyn PartitionDevice>>,
}

/// How a scan uses the runtime's cache of chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheUse {
    /// The most bytes of chunks to keep.
    pub(crate) limit: usize,
    /// Bytes of all files that the scan reads.
    pub(crate) scan_bytes: u64,
}

impl FileOpener for VectileOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let opener = self.clone();
        let open = async move {
            Ok(match opener.scan(file, opener.parts()).await? {
                Some((file, scan)) => {
                    let batches = scan.stream();
                    batches.map_err(move |error| file.error(error)).boxed()
                }
                None => futures::stream::empty().boxed(),
            })
        };
        Ok(open.boxed())
    }
}

/// An open file, and the place of its chunks in the runtime's cache, if it has one.
type OpenedFile = (Arc<dyn FileContainer>, Option<Arc<FileChunks>>);

/// Predicate and projection of a scan of one file.
struct Exprs {
    predicate: Option<Arc<dyn PhysicalExpr>>,
    projection: ProjectionExprs,
}

impl VectileOpener {
    /// Which parts of row groups a byte range has.
    fn parts(&self) -> Parts {
        match self.device.is_none() && self.order.is_none() {
            true => self.parts,
            false => Parts::RowGroups,
        }
    }

    /// Opens a file and returns it with its scan; `None` if its statistics exclude it.
    pub(crate) async fn scan(
        &self,
        file: PartitionedFile,
        parts: Parts,
    ) -> Result<Option<(Arc<ScanFile>, Scan)>> {
        let opening = self.metrics.time_opening.clone();
        let _timer = opening.timer();
        let projected = self.projection.iter().map(|projected| &projected.expr);
        // adapting them to a file may add a cast to each column
        let levels = 2 * stack::levels(self.predicate.iter().chain(projected));
        let exprs = stack::with_room(levels, || self.with_partition_values(&file))?;
        let object = &file.object_meta;
        let Some((opened, chunks)) = self.opened(&file, &exprs, levels).await? else {
            self.metrics.files.add_pruned(1);
            return Ok(None);
        };
        let within = parts.within(opened.as_ref(), object.size, file.range.as_ref());
        if within.is_empty() {
            self.metrics.files.add_matched(1);
            return Ok(None);
        }
        let container: Arc<dyn Container> = Arc::clone(&opened) as _;
        let adapted = || self.adapted_to(exprs, container.schema());
        let exprs = stack::with_room(levels, adapted)?;
        let role = match self.pushdown_filters {
            true => Role::Exact,
            false => Role::Prune,
        };
        let filters = || filters(exprs.predicate.as_ref(), Arc::clone(&container), role);
        let (filters, tests) = stack::with_room(levels, filters)?;
        let left = || self.row_groups(&within, opened.as_ref(), &filters, &tests);
        let Some(row_groups) = stack::with_room(levels, left)? else {
            self.metrics.files.add_pruned(1);
            return Ok(None);
        };
        self.metrics.files.add_matched(1);
        let opened = match self.chunks(chunks, object).await? {
            Some(chunks) => {
                let keeps = self.fits_cache(opened.as_ref(), object, &exprs, &filters);
                Arc::new(CachedFile::new(opened, chunks, keeps))
            }
            None => opened,
        };
        let container: Arc<dyn Container> = Arc::clone(&opened) as _;
        let output = Arc::new(self.projection.project_schema(self.table.table_schema())?);
        let projection =
            Projection::try_new(&exprs.projection, container.schema(), Arc::clone(&output))?;
        let consumer = MemoryConsumer::new(format!("VectileScan[{}]", self.partition));
        let reservation = consumer.register(&self.memory);
        let scanned = Arc::new(ScanFile {
            format: self.format,
            file: opened,
            listings: self.listings.clone(),
            metrics: self.metrics.clone(),
        });
        let mut scan = Scan::new(container);
        if let Some(device) = &self.device {
            let opened = device.open(DeviceScan {
                file: Arc::clone(&scanned),
                object,
                table: self.table.table_schema(),
                schema: &output,
                can_change: filters.can_change(),
                reservation: reservation.new_empty(),
            });
            scan.selector = opened.await?;
        }
        scan.filters = filters;
        scan.projection = Arc::new(projection);
        scan.row_groups = row_groups;
        let cut = within.into_iter();
        let cut = cut.filter_map(|(row_group, vectors)| Some((row_group, vectors?)));
        scan.vectors = cut.collect();
        scan.batch_size = self.batch_size;
        scan.limit = self.limit;
        scan.memory = Box::new(Reserved(reservation));
        scan.metrics = Arc::new(self.metrics.clone());
        scan.spawn = Arc::new(|work| Box::new(SpawnedTask::spawn(work)));
        Ok(Some((scanned, scan)))
    }

    /// The open file, with the place of its chunks in the cache; `None` if statistics exclude the file.
    async fn opened(
        &self,
        file: &PartitionedFile,
        exprs: &Exprs,
        levels: usize,
    ) -> Result<Option<OpenedFile>> {
        if let Some(segment) = segment_of(file) {
            return Ok(Some((segment, None)));
        }
        let Some(footer) = self.footer(file, exprs, levels).await? else {
            return Ok(None);
        };
        let options = ReadOptions::default().with_verify_checksums(self.verify_checksums);
        let opened = self.source().opened(&footer, &file.object_meta, options);
        Ok(Some((opened, footer.chunks)))
    }

    /// The metadata of a file; `None` if statistics known without it exclude the file. If the cache has the metadata, it
    /// is left to zone maps to exclude the file, as they are tested anyway.
    async fn footer(
        &self,
        file: &PartitionedFile,
        exprs: &Exprs,
        levels: usize,
    ) -> Result<Option<Footer>> {
        let (source, object) = (self.source(), &file.object_meta);
        if let Some(known) = source.known_footer(object) {
            return Ok(Some(known));
        }
        match stack::with_room(levels, || self.is_pruned(exprs, file))? {
            true => Ok(None),
            false => source.footer(object).await.map(Some),
        }
    }

    fn source(&self) -> FileContext<'_> {
        FileContext {
            format: self.format,
            store: &self.store,
            footers: self.footers.as_ref(),
            listings: &self.listings,
        }
    }

    /// The chunks of a file in the runtime's cache; `None` if it is off. They are of the version that was listed,
    /// perhaps long ago, and a scan of them may read nothing that would notice another one. So this asks the store.
    async fn chunks(
        &self,
        chunks: Option<Arc<FileChunks>>,
        object: &ObjectMeta,
    ) -> Result<Option<Arc<FileChunks>>> {
        let Some(chunks) = chunks else {
            return Ok(None);
        };
        chunks.cache().set_limit(self.cache.limit);
        if self.cache.limit == 0 || !self.verify_checksums {
            return Ok(None);
        }
        if !chunks.is_empty() {
            let version = Version {
                store: &self.store,
                location: &object.location,
                e_tag: object.e_tag.as_deref(),
                handle: &Handle::default(),
                buffers: None,
            };
            if let Err(error) = version.check(object).await {
                if error.is_outdated() {
                    self.listings.forget(&object.location);
                }
                return Err(error::external(error));
            }
        }
        Ok(Some(chunks))
    }

    /// Returns true if all that the scan may read of its files, estimated from this one, fits half of the cache.
    /// Otherwise, chunks would drive out those of other scans, and each other before they are needed again.
    fn fits_cache(
        &self,
        file: &dyn FileContainer,
        object: &ObjectMeta,
        exprs: &Exprs,
        filters: &Filters,
    ) -> bool {
        let CacheUse { limit, scan_bytes } = self.cache;
        let mut columns = exprs.projection.column_indices();
        let filtered = exprs.predicate.iter().flat_map(collect_columns);
        columns.extend(filtered.map(|column| column.index()));
        columns.sort_unstable();
        columns.dedup();
        let row_groups = (0..file.num_row_groups()).filter(|&index| !filters.exclude(index));
        let bytes = row_groups.map(|index| file.data_bytes(index, &columns));
        let bytes = bytes.fold(0, usize::saturating_add);
        let files = scan_bytes as f64 / object.size.max(1) as f64;
        bytes as f64 * files <= limit as f64 / 2.0
    }

    /// Substitutes the values of partition columns, and the file's name, in predicate and projection.
    fn with_partition_values(&self, file: &PartitionedFile) -> Result<Exprs> {
        let columns = self
            .table
            .table_partition_cols()
            .iter()
            .zip(&file.partition_values);
        let values: HashMap<String, ScalarValue> = columns
            .map(|(field, value)| (field.name().clone(), value.clone()))
            .collect();
        let fix = |expr: Arc<dyn PhysicalExpr>| match values.is_empty() {
            true => Ok(expr),
            false => replace_columns_with_literals(expr, &values),
        };
        let projection = self.projection.clone().try_map_exprs(fix)?;
        let name = file.object_meta.location.as_ref();
        Ok(Exprs {
            predicate: self.predicate.clone().map(fix).transpose()?,
            projection: rewrite_input_file_name_in_projection(projection, name)?,
        })
    }

    /// True if statistics known without opening the file, or dynamic filters on partition columns, exclude it.
    fn is_pruned(&self, exprs: &Exprs, file: &PartitionedFile) -> Result<bool> {
        let Some(predicate) = &exprs.predicate else {
            return Ok(false);
        };
        let errors = self.metrics.pruning_errors.clone();
        let schema = self.table.file_schema();
        match FilePruner::try_new(Arc::clone(predicate), schema, file, errors) {
            Some(mut pruner) => pruner.should_prune(),
            None => Ok(false),
        }
    }

    /// Adapts expressions to the columns of the file: missing columns become nulls, columns of another type are cast.
    fn adapted_to(&self, exprs: Exprs, file: &SchemaRef) -> Result<Exprs> {
        let table = self.table.file_schema();
        let adapter = self.adapters.create(Arc::clone(table), Arc::clone(file))?;
        let simplifier = PhysicalExprSimplifier::new(file);
        let adapt = |expr| simplifier.simplify(adapter.rewrite(expr)?);
        Ok(Exprs {
            predicate: exprs.predicate.map(adapt).transpose()?,
            projection: match table == file {
                // The table's schema starts with the file's.
                true => exprs.projection,
                false => exprs.projection.try_map_exprs(adapt)?,
            },
        })
    }

    /// Those of the row groups `within` a range to scan, in order; `None` if zone maps exclude all row groups of the file.
    /// `tests` are the conjuncts that the zone tests of `filters` do not cover.
    fn row_groups(
        &self,
        within: &[(usize, Option<Range<usize>>)],
        file: &dyn FileContainer,
        filters: &Filters,
        tests: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Option<Vec<usize>>> {
        let tests = conjunction_opt(tests.iter().cloned());
        let kept =
            tests.map(|tests| pruning::row_groups(&tests, file, &self.metrics.pruning_errors));
        let excludes = |row_group: usize| {
            let kept = kept.as_ref().and_then(|kept| kept.get(row_group));
            filters.exclude(row_group) || kept == Some(&false)
        };
        let mut all = 0..file.num_row_groups();
        if all.all(|row_group| excludes(row_group) || filters.exclude_now(row_group)) {
            return Ok(None);
        }
        let mut row_groups: Vec<usize> = Vec::with_capacity(within.len());
        let counted = &self.metrics.row_groups;
        for (row_group, vectors) in within {
            // a row group that is cut counts where its first part is
            let is_first = usize::from(vectors.as_ref().is_none_or(|of| of.start == 0));
            if excludes(*row_group) {
                counted.add_pruned(is_first);
                continue;
            }
            counted.add_matched(is_first);
            if filters.cover(*row_group) {
                counted.add_fully_matched(is_first);
            }
            row_groups.push(*row_group);
        }
        if let Some(order) = &self.order {
            order.apply(&mut row_groups, file)?;
        }
        Ok(Some(row_groups))
    }
}

/// Which parts of row groups a byte range has. All ranges of a file have the same kind of parts, or rows would be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Whole row groups: those whose first byte the range contains.
    RowGroups,
    /// Vectors, if there are so few row groups that some threads would have none: a row group's vectors share its bytes
    /// evenly. The columns of a row group are then fetched by several scans, so they should come from the cache.
    Vectors,
}

/// Fewer row groups are cut into vectors.
const FEW_ROW_GROUPS: usize = 8;

/// A row group of fewer vectors is not cut: opening the file once more takes as long as reading some of them.
const LEAST_VECTORS: usize = 64;

impl Parts {
    /// The row groups of a range of a file of `size` bytes, and which of their vectors if not all.
    fn within(
        self,
        file: &dyn FileContainer,
        size: u64,
        range: Option<&FileRange>,
    ) -> Vec<(usize, Option<Range<usize>>)> {
        let count = file.num_row_groups();
        let Some(range) = range else {
            return (0..count).map(|row_group| (row_group, None)).collect();
        };
        let start_of = |row_group: usize| file.row_group_start(row_group) as i64;
        if self == Self::RowGroups || count >= FEW_ROW_GROUPS {
            let is_within =
                |row_group: &usize| (range.start..range.end).contains(&start_of(*row_group));
            return (0..count).filter(is_within).map(|of| (of, None)).collect();
        }
        let parts = (0..count).filter_map(|row_group| {
            let vectors = file.rows(row_group).div_ceil(VECTOR_LEN);
            let start = start_of(row_group);
            if vectors < LEAST_VECTORS {
                let is_within = (range.start..range.end).contains(&start);
                return is_within.then_some((row_group, None));
            }
            let end = match row_group + 1 < count {
                true => start_of(row_group + 1),
                false => size as i64,
            };
            let bytes = end.saturating_sub(start).max(1) as i128;
            // vectors that start before a position
            let before = |position: i64| {
                let offset = i128::from(position.saturating_sub(start)).clamp(0, bytes);
                ((offset * vectors as i128 + bytes - 1) / bytes) as usize
            };
            let own = before(range.start)..before(range.end);
            (!own.is_empty()).then_some((row_group, Some(own)))
        });
        parts.collect()
    }
}
