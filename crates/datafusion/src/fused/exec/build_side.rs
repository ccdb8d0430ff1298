//! The build side of a join: its plan, and the key tables built from its rows.
//!
//! ```text
//!  plan ─▶ keys and payload ─▶ dense ids of distinct payload rows ─▶ a code for each key
//!    │                                 └─▶ values of each code          │
//!    └── cached by the plan's fingerprint ◀─────────────────────────────┘
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{
    CastOptions, and, cast, cast_with_options, concat, filter, is_not_null, take,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, StatisticsArgs, StatisticsContext,
};
use futures::StreamExt;
use futures::future::try_join_all;
use vectile_gpu::Error;
use vectile_pipeline::KeyTable;

use super::batch_stream::ExecEnvironment;
use super::cpu_fallback::CpuPlan;
use super::metrics::GpuMetrics;
use super::stage::{BuildInput, Stage, TableOrigin};
use crate::error;
use crate::fused::composite_key::CompositeKey;
use crate::fused::dense_ids::{Numbered, concat_column};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::key_table_cache::{KeyTableCache, TableKey};
use crate::fused::lowering::build_output::{BuildColumns, BuildKeys, KeyTableSpec};
use crate::fused::lowering::expression::Lowering;
use crate::fused::lowering::probe::{LookupSpec, Purpose, missing_value};
use crate::fused::multimap::RowsByKey;
use crate::fused::pattern::files::num_rows;
use crate::fused::pattern::fingerprint::{PlanIdentity, is_fixed, with_default_settings};
use crate::fused::pattern::join::{Join, JoinKind, KeySource};
use crate::fused::table::Table;
use crate::options::{GpuMode, VectileOptions};
use crate::pushdown::Rule;
use crate::source::VectileSource;
use crate::stack;

/// Build side of a join.
#[derive(Clone, Debug)]
pub(crate) struct BuildSide {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// The join keys.
    keys: Vec<BuildKey>,
    /// True if the keys are packed into one integer, which kernels compute.
    is_packed: bool,
    pub(crate) kind: JoinKind,
    /// True if output or join condition need columns of this side; false if only the presence of keys counts.
    has_columns: bool,
    /// Fingerprint of the plan; `None` if another run may give another result.
    identity: Option<Arc<PlanIdentity>>,
    lookups: Vec<BuildLookup>,
    /// Rows of the largest Vectile table that the plan reads.
    scanned_rows: Option<usize>,
    most_rows: usize,
    /// How the device builds the tables, or why it cannot; `None` if that does not pay.
    building: Option<Result<Arc<dyn BuildTables>, Arc<str>>>,
    /// True if keys may be duplicate although the join needs columns.
    may_repeat: bool,
    /// Optimizer rules to apply to the plan before it runs.
    pub(crate) rules: Arc<[Rule]>,
}

/// Maps an expression to that of a copied plan, whose subqueries have results of their own.
pub(crate) type OtherExpr<'a> = &'a dyn Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>;

/// Builds the tables of a dimension on the device.
#[async_trait]
pub(crate) trait BuildTables: fmt::Debug + Send + Sync {
    /// Builds the tables.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] or another error, after which the CPU may try.
    async fn tables(&self, environment: &ExecEnvironment<'_>) -> Result<Built>;

    /// The columns that the stage reads and its joins, for `EXPLAIN`.
    fn stage(&self) -> String;
}

/// Tables built on the device.
pub(crate) struct Built {
    /// `None` if keys are duplicate and must not be.
    pub(crate) tables: Option<Vec<Table>>,
    pub(crate) read: BuildInput,
    /// Stages of the dimensions that the build joined.
    pub(crate) stages: Vec<Stage>,
}

/// Payload of one lookup of a dimension.
#[derive(Clone, Debug)]
pub(crate) struct BuildLookup {
    /// Expressions over the plan's schema.
    pub(crate) payload: Vec<Arc<dyn PhysicalExpr>>,
    /// Determines which rows get distinct codes.
    pub(crate) purpose: Purpose,
}

/// A join key, or a part of a composite one.
#[derive(Clone, Debug)]
struct BuildKey {
    /// Expression over the plan's schema.
    expr: Arc<dyn PhysicalExpr>,
    /// The probe side's key, for `EXPLAIN`.
    probe: String,
    /// Type of the probe side's key.
    data_type: DataType,
}

impl BuildSide {
    /// The build side of `join`. `found` says how the kernel computes keys, and `lookups` which payload it needs.
    pub(crate) fn new(
        join: &Join,
        found: &KeySource,
        lookups: Vec<BuildLookup>,
        most_rows: usize,
    ) -> Result<Self, FallbackReason> {
        // normalized, as they are compared with those of other queries
        let lookups = lookups.into_iter().map(|lookup| {
            let payload = lookup.payload.iter().map(with_default_settings);
            Ok::<_, DataFusionError>(BuildLookup {
                payload: payload.collect::<Result<_>>()?,
                ..lookup
            })
        });
        let (is_packed, types) = match found {
            KeySource::Column(_, data_type) => (false, vec![data_type]),
            KeySource::Packed(parts) => (true, parts.iter().map(|part| &part.data_type).collect()),
        };
        let keys = join.keys.iter().zip(types).map(|(key, data_type)| {
            let probe = match key.probe.downcast_ref::<Column>() {
                Some(column) => column.name().to_owned(),
                None => key.probe.to_string(),
            };
            Ok(BuildKey {
                expr: with_default_settings(&key.build)?,
                probe,
                data_type: data_type.clone(),
            })
        });
        Ok(Self {
            identity: PlanIdentity::of(&join.plan)?.map(Arc::new),
            plan: Arc::clone(&join.plan),
            keys: keys.collect::<Result<_>>()?,
            is_packed,
            kind: join.kind,
            has_columns: join.has_columns(),
            lookups: lookups.collect::<Result<_>>()?,
            scanned_rows: scanned_rows(&join.plan)?,
            most_rows,
            building: None,
            may_repeat: false,
            rules: Arc::default(),
        })
    }

    /// Sets if the kernel accepts duplicate keys.
    pub(crate) fn may_repeat_keys(&mut self, may_repeat: bool) {
        self.may_repeat = may_repeat;
    }

    /// Sets how the device builds the tables, or why it cannot.
    pub(crate) fn built_by(&mut self, building: Result<Arc<dyn BuildTables>, FallbackReason>) {
        self.building = Some(building.map_err(|reason| reason.to_string().into()));
    }

    /// Replaces keys and payload expressions by `other` of them.
    pub(crate) fn with_exprs(mut self, other: OtherExpr<'_>) -> Result<Self> {
        for key in &mut self.keys {
            key.expr = other(&key.expr)?;
        }
        for lookup in &mut self.lookups {
            for expr in &mut lookup.payload {
                *expr = other(expr)?;
            }
        }
        Ok(self)
    }

    /// Where the build table is created, for `EXPLAIN`; empty for small ones.
    pub(crate) fn builder(&self) -> String {
        match &self.building {
            None => String::new(),
            Some(Ok(building)) => format!(", built on the GPU {}", building.stage()),
            Some(Err(reason)) => format!(", built on the CPU: {reason}"),
        }
    }

    /// Returns an error if the plan is known to have too many rows for a build on the CPU.
    pub(crate) fn check_rows(&self) -> Result<(), FallbackReason> {
        let statistics =
            StatisticsContext::new().compute(self.plan.as_ref(), &StatisticsArgs::new())?;
        match statistics.num_rows {
            Precision::Exact(rows) if rows > self.most_rows && !self.is_built_on_gpu() => {
                Err(FallbackReason::Join(too_many(self.most_rows)))
            }
            _ => Ok(()),
        }
    }

    /// True if another run of its plan gives the same rows.
    pub(crate) fn is_fixed(&self) -> bool {
        self.identity.is_some()
    }

    /// True if a key or a payload expression contains a subquery.
    pub(crate) fn has_subqueries(&self) -> Result<bool> {
        let keys = self.keys.iter().map(|key| &key.expr);
        for expr in keys.chain(self.payload()) {
            if expr.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_built_on_gpu(&self) -> bool {
        matches!(self.building, Some(Ok(_)))
    }

    /// The tables as outputs of a kernel. `over` maps an expression over the plan's schema to one over the kernel's
    /// table.
    pub(crate) fn build_columns(
        &self,
        over: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, FallbackReason>,
        lowering: &mut Lowering<'_>,
    ) -> Result<BuildColumns, FallbackReason> {
        let keys = self.keys.iter().map(|key| (&key.expr, &key.data_type));
        let keys = BuildKeys {
            keys: keys.collect(),
            is_packed: self.is_packed,
        };
        let tables = self.lookups.iter().map(|lookup| KeyTableSpec {
            attributes: &lookup.payload,
            is_by_value: lookup.purpose == Purpose::Groups,
            is_unique: self.has_columns,
        });
        let tables: Vec<KeyTableSpec<'_>> = tables.collect();
        BuildColumns::lower(&keys, &tables, &self.plan.schema(), over, lowering)
    }

    /// Rows of the largest Vectile table that the plan reads.
    pub(crate) fn scanned_rows(&self) -> Option<usize> {
        self.scanned_rows
    }

    /// The join condition, for `EXPLAIN`.
    pub(crate) fn on(&self) -> String {
        let keys = self.keys.iter().map(|key| {
            let build = match key.expr.downcast_ref::<Column>() {
                Some(column) => column.name().to_owned(),
                None => key.expr.to_string(),
            };
            format!("{} = {build}", key.probe)
        });
        keys.collect::<Vec<_>>().join(" AND ")
    }

    /// The expected share of the fact table's rows that the join keeps, if the dimension has `keys` keys. Assumes that
    /// without its filters the dimension has all keys of the fact table.
    pub(crate) fn share_kept(&self, keys: usize) -> f64 {
        let all = self.scanned_rows.unwrap_or(keys).max(keys).max(1);
        let found = keys as f64 / all as f64;
        match self.kind {
            JoinKind::Anti | JoinKind::NotIn => 1.0 - found,
            _ => found,
        }
    }

    /// Rows of the largest Vectile table that the plan reads, counted once more for each join in the plan; 0 if `cache`
    /// has all tables.
    pub(crate) fn rows_to_read(&self, cache: Option<&KeyTableCache>) -> Result<u64> {
        let keys = self.lookups.iter().map(|lookup| self.table_key(lookup));
        let keys: Vec<Option<TableKey>> = keys.collect::<Result<_>>()?;
        let is_cached = |cache: &KeyTableCache| {
            let mut keys = keys.iter();
            keys.all(|key| key.as_ref().is_some_and(|key| cache.get(key).is_some()))
        };
        Ok(match cache.is_some_and(is_cached) {
            true => 0,
            false => {
                let rows = self.scanned_rows.unwrap_or_default() as u64;
                rows.saturating_mul(1 + joins_in(&self.plan)?)
            }
        })
    }

    /// Returns the table of each lookup, and the stage for `EXPLAIN ANALYZE`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if no table can be built from the rows, and errors of the plan.
    pub(crate) async fn tables(
        &self,
        environment: &ExecEnvironment<'_>,
    ) -> Result<(Vec<Arc<Table>>, Stage)> {
        let begun = Instant::now();
        let (tables, origin) = self.cached_or_built(environment).await?;
        let stage = Stage::new(self.on(), origin, &tables, begun.elapsed());
        Ok((tables, stage))
    }

    /// Gets the tables from the cache or builds them.
    async fn cached_or_built(
        &self,
        environment: &ExecEnvironment<'_>,
    ) -> Result<(Vec<Arc<Table>>, TableOrigin)> {
        let cache = &environment.device.key_tables;
        let options = VectileOptions::of(environment.context.session_config().options());
        let keys = self
            .lookups
            .iter()
            .map(|lookup| match options.gpu_keep_lookups {
                true => self.table_key(lookup),
                false => Ok(None),
            });
        let keys: Vec<Option<TableKey>> = keys.collect::<Result<_>>()?;
        let cached = keys.iter().map(|key| cache.get(key.as_ref()?));
        if let Some(tables) = cached.collect::<Option<Vec<_>>>()
            && self.are_usable(&tables)
        {
            environment.metrics.lookups_cached.add(tables.len());
            let tables = tables.into_iter().map(|table| match table {
                Ok(table) if table.multimap.is_some() && !self.may_repeat => {
                    Err(unsupported(DUPLICATE_KEYS))
                }
                table => table.map_err(unsupported),
            });
            return Ok((tables.collect::<Result<_>>()?, TableOrigin::Kept));
        }
        let mut has_duplicate_keys = false;
        if let Some(Ok(building)) = &self.building {
            match building.tables(environment).await {
                Ok(Built { tables: None, .. }) if self.may_repeat => {
                    has_duplicate_keys = true;
                    let metrics = environment.metrics;
                    metrics.add_build_on_cpu(FallbackReason::from(unsupported(DUPLICATE_KEYS)));
                }
                Ok(Built {
                    tables,
                    read,
                    stages,
                }) => {
                    let built = match tables {
                        Some(tables) => Ok(tables.into_iter().map(Arc::new).collect()),
                        None => Err(DUPLICATE_KEYS.to_owned()),
                    };
                    let tables = self.cache_built(built, keys, environment)?;
                    return Ok((tables, TableOrigin::Gpu(read, stages)));
                }
                Err(error) if error::is_not_compiled(&error) => return Err(error),
                Err(error) => {
                    if options.gpu == GpuMode::Require && error::is_internal(&error) {
                        return Err(error);
                    }
                    let error = environment.device.defects.left_to_cpu(error)?;
                    environment
                        .metrics
                        .add_build_on_cpu(FallbackReason::from(error));
                }
            }
        }
        let (metrics, context) = (environment.metrics, environment.context);
        let built = self.tables_of_rows(keys, has_duplicate_keys, cache, metrics, context);
        let built = built.await;
        built.map(|(tables, read)| (tables, TableOrigin::Cpu(read)))
    }

    /// True if cached tables are consistent with each other and sufficient for this join.
    fn are_usable(&self, tables: &[Result<Arc<Table>, String>]) -> bool {
        let has_duplicates =
            |table: &Result<_, String>| matches!(table, Err(reason) if reason == DUPLICATE_KEYS);
        if self.may_repeat && tables.iter().any(has_duplicates) {
            return false;
        }
        let mut lists = tables.iter().flatten().map(|table| table.multimap.as_ref());
        let first = lists.next().flatten();
        lists.all(|other| match (first, other) {
            (Some(first), Some(other)) => first.is_like(other),
            (first, other) => first.is_none() && other.is_none(),
        })
    }

    /// Caches tables built on the device, or the reason why there are none.
    fn cache_built(
        &self,
        built: Result<Vec<Arc<Table>>, String>,
        keys: Vec<Option<TableKey>>,
        environment: &ExecEnvironment<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let cache = &environment.device.key_tables;
        for (number, key) in keys.into_iter().enumerate() {
            let Some(key) = key else {
                continue;
            };
            match &built {
                Ok(tables) => {
                    if let Some(table) = tables.get(number) {
                        cache.put(key, Ok(Arc::clone(table)));
                    }
                }
                Err(reason) => cache.put(key, Err(reason.clone())),
            }
        }
        let tables = built.map_err(unsupported)?;
        environment.metrics.lookups_built.add(tables.len());
        Ok(tables)
    }

    /// Builds the tables on the CPU from the plan's rows. `has_duplicate_keys` is set if the device found duplicate keys.
    async fn tables_of_rows(
        &self,
        keys: Vec<Option<TableKey>>,
        has_duplicate_keys: bool,
        cache: &Arc<KeyTableCache>,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<(Vec<Arc<Table>>, BuildInput)> {
        let consumer = MemoryConsumer::new("VectileGpuLookup");
        let reservation = consumer.register(context.memory_pool());
        let BuildRows {
            batches,
            has_rows,
            has_null,
            read,
        } = self.rows(&reservation, context).await?;
        metrics
            .build_rows
            .add(batches.iter().map(RecordBatch::num_rows).sum());
        let (this, cache) = (self.clone(), Arc::clone(cache));
        let build = SpawnedTask::spawn_blocking(move || {
            let mut first = this.keys.len();
            let row_keys = this.row_keys(&batches).and_then(|mut keys| {
                keys.list_by_key(has_duplicate_keys)?;
                Ok(keys)
            });
            let mut row_keys = match row_keys {
                Ok(keys) => Ok(keys),
                Err(error) => Err(unsupported_reason(error)?),
            };
            let tables = this.lookups.iter().zip(keys).map(|(lookup, key)| {
                let table = match &mut row_keys {
                    Ok(keys) => this.table(&batches, first, lookup, keys),
                    Err(reason) => Err(unsupported(reason.clone())),
                };
                first += lookup.payload.len();
                let table = match table {
                    Ok(table) => Ok(Arc::new(table.of_rows(has_rows, has_null))),
                    Err(error) => Err(unsupported_reason(error)?),
                };
                if let Some(key) = key {
                    cache.put(key, table.clone());
                }
                table.map_err(unsupported)
            });
            let tables = tables.collect::<Result<Vec<_>>>();
            drop(reservation);
            tables
        });
        let tables = build.join().await.map_err(error::interrupted)??;
        Ok((tables, read))
    }

    /// The cache key of a lookup's table; `None` if another run may give another table.
    fn table_key(&self, lookup: &BuildLookup) -> Result<Option<TableKey>> {
        let keys = self.keys.iter();
        let expressions = keys.clone().map(|key| &key.expr).chain(&lookup.payload);
        for expr in expressions.clone() {
            if !is_fixed(expr)? {
                return Ok(None);
            }
        }
        Ok(self.identity.as_ref().map(|identity| TableKey {
            identity: Arc::clone(identity),
            expressions: expressions.cloned().collect(),
            key_types: keys.map(|key| key.data_type.clone()).collect(),
            is_packed: self.is_packed,
            only_keys: !self.has_columns,
            purpose: match lookup.payload.is_empty() {
                true => Purpose::Groups,
                false => lookup.purpose,
            },
        }))
    }

    /// Runs the plan and evaluates keys and payload expressions.
    async fn rows(
        &self,
        reservation: &MemoryReservation,
        context: &Arc<TaskContext>,
    ) -> Result<BuildRows> {
        let rows = Arc::new(AtomicUsize::new(0));
        let has_rows = Arc::new(AtomicBool::new(false));
        let has_null = Arc::new(AtomicBool::new(false));
        let mut this = self.clone();
        if !self.rules.is_empty() {
            let cpu = CpuPlan {
                plan: Arc::clone(&self.plan),
                rules: Arc::clone(&self.rules),
            };
            this.plan = cpu.optimized(context.session_config().options())?;
        }
        let partitions = 0..this.plan.output_partitioning().partition_count();
        let tasks = partitions.map(|partition| {
            let (this, rows) = (this.clone(), Arc::clone(&rows));
            let (has_rows, has_null) = (Arc::clone(&has_rows), Arc::clone(&has_null));
            let (reservation, context) = (reservation.new_empty(), Arc::clone(context));
            let task = SpawnedTask::spawn(async move {
                let schema = this.schema()?;
                let mut stream = this.plan.execute(partition, context)?;
                let mut batches = Vec::new();
                while let Some(batch) = stream.next().await {
                    let batch = batch?;
                    has_rows.fetch_or(batch.num_rows() > 0, Ordering::Relaxed);
                    let (batch, any_null) = this.evaluate(&schema, &batch)?;
                    has_null.fetch_or(any_null, Ordering::Relaxed);
                    let before = rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                    if before + batch.num_rows() > this.most_rows {
                        return Err(unsupported(too_many(this.most_rows)));
                    }
                    reservation.try_grow(batch.get_array_memory_size())?;
                    batches.push(batch);
                }
                Ok((batches, reservation))
            });
            async move { task.join().await.map_err(error::interrupted).flatten() }
        });
        let mut all = Vec::new();
        for (batches, of_partition) in try_join_all(tasks).await? {
            reservation.grow(of_partition.free());
            all.extend(batches);
        }
        let [has_rows, has_null] = [has_rows, has_null].map(|any| any.load(Ordering::Relaxed));
        Ok(BuildRows {
            batches: all,
            has_rows,
            has_null,
            read: BuildInput::by(&this.plan)?,
        })
    }

    /// Schema of the batches that [`Self::evaluate`] returns.
    fn schema(&self) -> Result<SchemaRef> {
        let schema = self.plan.schema();
        let keys = self.keys.iter();
        let keys = keys.map(|key| Field::new("key", key.data_type.clone(), true));
        let mut fields: Vec<Field> = keys.collect();
        for expr in self.payload() {
            fields.push(Field::new("attribute", expr.data_type(&schema)?, true));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    fn payload(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.lookups.iter().flat_map(|lookup| &lookup.payload)
    }

    /// Evaluates keys and, behind them, payload expressions for rows that may match. Also returns true if a key is null
    /// in some row.
    fn evaluate(&self, schema: &SchemaRef, batch: &RecordBatch) -> Result<(RecordBatch, bool)> {
        let rows = batch.num_rows();
        // An operation that fails on a row may be one that the join filters out.
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| {
            let values = stack::evaluated(expr, batch).and_then(|values| values.into_array(rows));
            values.map_err(|error| unsupported(error.strip_backtrace()))
        };
        // A value outside the type has no match, but it is not null: NOT IN tells them apart.
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let (mut columns, mut present, mut has_null) = (Vec::new(), None, false);
        for key in &self.keys {
            let values = evaluate(&key.expr)?;
            has_null |= values.logical_null_count() > 0;
            let values = cast_with_options(&values, &key.data_type, &options)?;
            if values.null_count() > 0 {
                let own = is_not_null(&values)?;
                present = Some(match present {
                    Some(others) => and(&others, &own)?,
                    None => own,
                });
            }
            columns.push(values);
        }
        for expr in self.payload() {
            columns.push(evaluate(expr)?);
        }
        if let Some(present) = present {
            for column in &mut columns {
                *column = filter(column, &present)?;
            }
        }
        let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
        Ok((batch, has_null))
    }

    /// True if all keys are among `payload`, so that rows with distinct keys differ in them.
    fn are_all_different(&self, payload: &[Arc<dyn PhysicalExpr>]) -> bool {
        let is_among = |key: &BuildKey| payload.contains(&key.expr);
        self.has_columns && self.keys.iter().all(is_among)
    }

    /// The keys of rows. Returns an error if there can be no table for them.
    fn row_keys(&self, rows: &[RecordBatch]) -> Result<RowKeys> {
        let keys = self.keys.iter().enumerate();
        let mut keys = keys
            .map(|(column, key)| concat_column(rows, column, &key.data_type))
            .collect::<Result<Vec<_>>>()?;
        let packed = match self.is_packed {
            true => Some(CompositeKey::of(&keys)?),
            false => None,
        };
        let (packing, keys) = match (packed, keys.pop()) {
            (Some((packing, keys)), _) => (Some(packing), keys),
            (None, Some(keys)) => (None, keys),
            (None, None) => return internal_err!("a dimension without a key"),
        };
        Ok(RowKeys {
            packing,
            keys,
            rows_by_key: None,
        })
    }

    /// Builds the table of a lookup whose payload is in the columns of `rows` from `first` on.
    fn table(
        &self,
        rows: &[RecordBatch],
        first: usize,
        lookup: &BuildLookup,
        row_keys: &mut RowKeys,
    ) -> Result<Table> {
        let payload = &lookup.payload;
        let (packing, keys) = (row_keys.packing.clone(), Arc::clone(&row_keys.keys));
        if !self.has_columns {
            let codes = KeyTable::set(&keys).map_err(error::gpu)?;
            return Ok(Table::new(codes, packing, Vec::new()));
        }
        let schema = self.plan.schema();
        let types = payload.iter().map(|expr| expr.data_type(&schema));
        let types: Vec<DataType> = types.collect::<Result<_>>()?;
        let ids_of = |is_by_row| match payload.is_empty() {
            true => Ok(Numbered::all_alike(keys.len())),
            false => Numbered::new(rows, first, &types, is_by_row),
        };
        let values_of = |numbers: &Numbered, order: Option<UInt32Array>| {
            let values = numbers.values.iter().zip(payload).zip(types.iter());
            let values = values.map(|((values, expr), of)| {
                let mut values = cast(values, of)?;
                if let Some(order) = &order {
                    values = take(&values, order, None)?;
                }
                let missing = cast(&missing_value(expr, &schema)?, of)?;
                Ok(concat(&[&values, &missing])?)
            });
            values.collect::<Result<Vec<_>>>()
        };
        if row_keys.rows_by_key.is_none() {
            let is_by_row = lookup.purpose == Purpose::Rows || self.are_all_different(payload);
            let numbers = ids_of(is_by_row)?;
            let error = match KeyTable::new(&keys, &numbers.codes, numbers.count) {
                Ok(codes) => return Ok(Table::new(codes, packing, values_of(&numbers, None)?)),
                Err(error) => error,
            };
            row_keys.list_by_key(self.may_repeat)?;
            if row_keys.rows_by_key.is_none() {
                return Err(error::gpu(error));
            }
        }
        let rows_by_key = row_keys.rows_by_key.as_ref();
        let rows_by_key = rows_by_key.ok_or_else(|| unsupported(DUPLICATE_KEYS))?;
        // groups need codes by value; other lookups index values by the row's position in the list
        let is_by_value = lookup.purpose == Purpose::Groups;
        let numbers = ids_of(!is_by_value)?;
        let (multimap, order) = match is_by_value {
            true => (rows_by_key.with(&numbers.codes), None),
            false => (rows_by_key.coded_by_index(), Some(rows_by_key.rows())),
        };
        let codes = Arc::clone(&rows_by_key.codes);
        let table = Table::new(codes, packing, values_of(&numbers, order)?);
        Ok(table.with_multimap(Some(multimap)))
    }
}

/// The join keys of rows, none of which is null.
struct RowKeys {
    packing: Option<CompositeKey>,
    /// Composite keys are packed.
    keys: ArrayRef,
    /// Rows by key, shared by all lookups of the dimension. Computed lazily.
    rows_by_key: Option<RowsByKey>,
}

impl RowKeys {
    /// Lists rows by key, if `may_repeat` and some keys are duplicate.
    fn list_by_key(&mut self, may_repeat: bool) -> Result<()> {
        if may_repeat {
            self.rows_by_key = RowsByKey::of(&self.keys)?;
        }
        Ok(())
    }
}

/// Rows of a dimension.
struct BuildRows {
    /// One result of [`BuildSide::evaluate`] for each batch.
    batches: Vec<RecordBatch>,
    /// True if the plan has any row, with or without a key.
    has_rows: bool,
    /// True if a key is null in some row.
    has_null: bool,
    read: BuildInput,
}

fn scanned_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let mut most = None;
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>()
            && let Some((config, _)) = scan.downcast_to_file_source::<VectileSource>()
        {
            most = most.max(num_rows(config));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(most)
}

/// Why there is no table. Cached reasons are compared with it.
const DUPLICATE_KEYS: &str = "a key that is there more than once";

fn too_many(most: usize) -> String {
    format!("more rows than vectile.gpu.max_build_rows = {most}")
}

fn unsupported(reason: impl Into<String>) -> DataFusionError {
    error::gpu(Error::Unsupported(reason.into()))
}

/// The reason of an [`Error::Unsupported`]; returns other errors.
fn unsupported_reason(error: DataFusionError) -> Result<String> {
    match &error {
        DataFusionError::External(external) => match external.downcast_ref() {
            Some(Error::Unsupported(reason)) => Ok(reason.clone()),
            _ => Err(error),
        },
        _ => Err(error),
    }
}

/// Number of hash joins in a plan.
fn joins_in(plan: &Arc<dyn ExecutionPlan>) -> Result<u64> {
    let mut joins = 0;
    plan.apply(|node| {
        joins += u64::from(node.is::<HashJoinExec>());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(joins)
}

/// The dimensions of `joins`, each with the lookups in `wanted` that refer to it.
pub(crate) fn dimensions(
    joins: &[Join],
    wanted: &[LookupSpec],
    found: &[KeySource],
    most_rows: usize,
) -> Result<Vec<BuildSide>, FallbackReason> {
    let dimensions = joins.iter().zip(found).enumerate();
    let dimensions = dimensions.map(|(number, (join, found))| {
        let lookups = wanted.iter().filter(|wanted| wanted.join == number);
        let lookups = lookups.map(|wanted| BuildLookup {
            payload: wanted.attributes.clone(),
            purpose: wanted.purpose,
        });
        BuildSide::new(join, found, lookups.collect(), most_rows)
    });
    dimensions.collect()
}

#[cfg(test)]
mod tests {
    use crate::fused::pattern::join::JoinKey;
    use arrow::array::{AsArray, Float64Array, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn dimension(
        kind: JoinKind,
        columns: Vec<(&str, ArrayRef)>,
        key_type: DataType,
        lookups: &[&[usize]],
    ) -> BuildSide {
        let columns = columns
            .into_iter()
            .map(|(name, values)| (name, values, true));
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let schema = rows.schema();
        // In two partitions of half of the rows each.
        let half = rows.num_rows() / 2;
        let halves = [(0, half), (half, rows.num_rows() - half)];
        let halves = halves.map(|(start, count)| vec![rows.slice(start, count)]);
        let column = |i: &usize| Arc::new(Column::new(schema.field(*i).name(), *i)) as Arc<_>;
        let join = Join {
            plan: MemorySourceConfig::try_new_exec(&halves, Arc::clone(&schema), None).unwrap(),
            keys: vec![JoinKey {
                probe: column(&0),
                build: column(&0),
            }],
            kind,
            first: 0,
            condition: None,
        };
        let lookups = lookups.iter().map(|payload| BuildLookup {
            payload: payload.iter().map(column).collect(),
            purpose: Purpose::Groups,
        });
        let found = KeySource::Column(0, key_type);
        BuildSide::new(&join, &found, lookups.collect(), 100).unwrap()
    }

    async fn tables(dimension: &BuildSide) -> Result<Vec<Arc<Table>>> {
        let metrics = GpuMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let cache = Arc::new(KeyTableCache::new(1 << 20));
        let context = SessionContext::new().task_ctx();
        let keys = vec![None; dimension.lookups.len()];
        let tables = dimension.tables_of_rows(keys, false, &cache, &metrics, &context);
        let tables = tables.await.map(|(tables, _)| tables);
        assert_eq!(context.memory_pool().reserved(), 0);
        tables
    }

    fn numbers(values: Vec<Option<i32>>) -> ArrayRef {
        Arc::new(Int32Array::from(values))
    }

    #[tokio::test]
    async fn codes_follow_the_payload_of_each_lookup() {
        let keys = numbers(vec![Some(1), Some(2), None, Some(4), Some(5), Some(6)]);
        let text = StringArray::from(vec![Some("a"), Some("b"), Some("c"), None, Some("a"), None]);
        let long = Int64Array::from(vec![7, 7, 9, 7, 8, 8]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", keys),
            ("text", Arc::new(text)),
            ("long", Arc::new(long)),
        ];
        let lookups: [&[usize]; 3] = [&[1, 2], &[2], &[]];
        let dimension = dimension(JoinKind::Inner, columns, DataType::Int32, &lookups);
        let tables = tables(&dimension).await.unwrap();
        let counts: Vec<u32> = tables.iter().map(|table| table.codes.count()).collect();
        assert_eq!(counts, [5, 2, 1]);
        assert!(tables.iter().all(|table| table.codes.len() == 5));
        let [texts, longs] = [0, 1].map(|number| tables[0].all_values(number));
        let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("a"), Some("b"), None, Some("a"), None, None]);
        assert!(longs.is_null(5));
        let longs = tables[1].payload_column(0).unwrap();
        let longs = longs.values().unwrap();
        assert_eq!(longs.as_primitive::<Int64Type>().values(), &[7, 8]);
    }

    #[tokio::test]
    async fn duplicate_keys_are_allowed_for_semi_joins_only() {
        let columns = || vec![("key", numbers(vec![Some(1), Some(2), Some(1), None]))];
        for kind in [JoinKind::Inner, JoinKind::Outer] {
            let dimension = dimension(kind, columns(), DataType::Int32, &[&[]]);
            let error = tables(&dimension).await.unwrap_err().to_string();
            assert!(error.contains("more than once"), "{error}");
        }
        for kind in [JoinKind::Semi, JoinKind::Anti] {
            let dimension = dimension(kind, columns(), DataType::Int32, &[&[]]);
            let tables = tables(&dimension).await.unwrap();
            assert_eq!((tables[0].codes.len(), tables[0].width()), (2, 0));
        }
    }

    #[tokio::test]
    async fn build_sides_may_be_empty() {
        let columns = vec![("key", numbers(vec![])), ("value", numbers(vec![]))];
        let dimension = dimension(JoinKind::Inner, columns, DataType::Int32, &[&[1], &[]]);
        let tables = tables(&dimension).await.unwrap();
        assert!(tables.iter().all(|table| table.codes.is_empty()));
        assert_eq!(tables[0].all_values(0).len(), 1);
    }

    #[tokio::test]
    async fn keys_beyond_the_other_type_have_no_match() {
        let keys = Int64Array::from(vec![1, i64::MAX, -3]);
        let columns: Vec<(&str, ArrayRef)> = vec![("key", Arc::new(keys))];
        let dimension = dimension(JoinKind::Inner, columns, DataType::Int32, &[&[]]);
        assert_eq!(tables(&dimension).await.unwrap()[0].codes.len(), 2);
    }

    #[tokio::test]
    async fn floats_are_kept_as_they_are() {
        let floats = Float64Array::from(vec![0.0, -0.0, f64::NAN]);
        let keys = numbers(vec![Some(1), Some(2), Some(3)]);
        let columns: Vec<(&str, ArrayRef)> = vec![("key", keys), ("float", Arc::new(floats))];
        let dimension = dimension(JoinKind::Inner, columns, DataType::Int32, &[&[1]]);
        assert_eq!(tables(&dimension).await.unwrap()[0].codes.count(), 3);
    }

    #[tokio::test]
    async fn too_many_rows_fall_back_to_the_cpu() {
        let keys = numbers((0..200).map(Some).collect());
        let rows = RecordBatch::try_from_iter_with_nullable([("key", keys, true)]).unwrap();
        let schema = rows.schema();
        let plan = MemorySourceConfig::try_new_exec(&[vec![rows]], schema, None).unwrap();
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("key", 0));
        let join = Join {
            plan,
            keys: vec![JoinKey {
                probe: Arc::clone(&key),
                build: key,
            }],
            kind: JoinKind::Semi,
            first: 0,
            condition: None,
        };
        let found = KeySource::Column(0, DataType::Int32);
        let keys = || BuildLookup {
            payload: vec![],
            purpose: Purpose::Groups,
        };
        // At planning, if the number of rows is known,
        let dimension = BuildSide::new(&join, &found, vec![keys()], 100).unwrap();
        let reason = dimension.check_rows().unwrap_err();
        assert!(
            reason.to_string().contains("max_build_rows = 100"),
            "{reason}"
        );
        // else when the plan runs.
        let mut dimension = BuildSide::new(&join, &found, vec![keys()], 200).unwrap();
        dimension.most_rows = 100;
        let error = tables(&dimension).await.unwrap_err().to_string();
        assert!(error.contains("max_build_rows = 100"), "{error}");
    }
}
