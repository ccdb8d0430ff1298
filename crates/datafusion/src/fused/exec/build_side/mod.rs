//! The build side of a join: its plan, and the key tables built from its rows.
//!
//! ```text
//!  plan ─▶ keys and payload ─▶ dense ids of distinct payload rows ─▶ a code for each key
//!    │                                 └─▶ values of each code          │
//!    └── cached by the plan's fingerprint ◀─────────────────────────────┘
//! ```

mod cpu_build;
mod payload;
mod tables;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};
use vectile_gpu::Error;

use super::batch_stream::ExecEnvironment;
use super::stage::{BuildInput, Stage};
use crate::error;
use crate::fused::cost_model::{Builds, ColumnId};
use crate::fused::device::Device;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::key_table_cache::{KeyTableCache, TableKey};
use crate::fused::lowering::build_output::{BuildColumns, BuildKeys, KeyTableSpec};
use crate::fused::lowering::expression::Lowering;
use crate::fused::lowering::probe::{LookupSpec, Purpose};
use crate::fused::pattern::files::num_rows;
use crate::fused::pattern::fingerprint::{PlanIdentity, is_fixed, with_default_settings};
use crate::fused::pattern::join::{Join, JoinKind, KeySource};
use crate::fused::table::Table;
use crate::pushdown::Rule;
use crate::source::VectileSource;

/// A build side of fewer rows takes the CPU little time, whatever the probe side has.
const MANY_ROWS: usize = 1 << 19;

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

/// Builds the tables of a build side on the device.
#[async_trait]
pub(crate) trait BuildTables: fmt::Debug + Send + Sync {
    /// Builds the tables.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] or another error, after which the CPU may try.
    async fn tables(&self, environment: &ExecEnvironment<'_>) -> Result<Built>;

    /// Bytes of the columns that are read, as of planning.
    fn bytes(&self) -> u64;

    /// The columns that are read.
    fn column_ids(&self) -> Vec<ColumnId>;

    /// Bytes of the columns that are read and not on the device.
    async fn missing_bytes(&self, device: &Device, context: &Arc<TaskContext>) -> Result<u64>;

    /// The columns that the stage reads and its joins, for `EXPLAIN`.
    fn stage(&self) -> String;
}

/// Tables built on the device.
pub(crate) struct Built {
    /// `None` if keys are duplicate and must not be.
    pub(crate) tables: Option<Vec<Table>>,
    pub(crate) read: BuildInput,
    /// Stages of the build sides that the build joined.
    pub(crate) stages: Vec<Stage>,
}

/// True if `cache` has the tables of all `keys`.
fn are_in(cache: &KeyTableCache, keys: &[TableKey]) -> bool {
    keys.iter().all(|key| cache.get(key).is_some())
}

/// Payload of one lookup of a build side.
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
    /// The build side of `join`. `key_source` says how the kernel computes keys, and `lookups` which payload it needs.
    pub(crate) fn new(
        join: &Join,
        key_source: &KeySource,
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
        let (is_packed, types) = match key_source {
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

    /// Returns an error if the plan has too many rows for a build on the CPU: more than are allowed, or than the probe side
    /// has, whose rows would then better be looked up.
    pub(crate) fn check_rows(&self, probe_rows: Option<usize>) -> Result<(), FallbackReason> {
        if self.is_built_on_gpu() {
            return Ok(());
        }
        let statistics =
            StatisticsContext::new().compute(self.plan.as_ref(), &StatisticsArgs::new())?;
        match statistics.num_rows {
            Precision::Exact(rows) if rows > self.most_rows => {
                return Err(FallbackReason::Join(too_many(self.most_rows)));
            }
            _ => {}
        }
        let rows = statistics.num_rows.get_value().copied().unwrap_or(0);
        let is_larger = probe_rows.is_some_and(|probe_rows| rows > probe_rows.max(MANY_ROWS));
        // groups are made in any case, and may be few
        if is_larger && !self.plan.exists(|node| Ok(node.is::<AggregateExec>()))? {
            let reason =
                "the CPU would read more rows of the joined table than the GPU of the other";
            return Err(FallbackReason::Join(reason.into()));
        }
        Ok(())
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
                // all rows of both sides have this key
                None if key.expr.is::<Literal>() => return "one row".to_owned(),
                None => key.expr.to_string(),
            };
            format!("{} = {build}", key.probe)
        });
        keys.collect::<Vec<_>>().join(" AND ")
    }

    /// The expected share of the probe side's rows that the join keeps, if the build side has `keys` keys. Assumes that
    /// without its filters the build side has all keys of the probe side.
    pub(crate) fn share_kept(&self, keys: usize) -> f64 {
        let all = self.scanned_rows.unwrap_or(keys).max(keys).max(1);
        let matched = keys as f64 / all as f64;
        self.kind.share_kept(matched)
    }

    /// The work to build the tables, unless `cache` has all of them: rows of the largest Vectile table that the plan
    /// reads, counted once more for each join in the plan.
    pub(crate) fn builds(&self, cache: Option<&KeyTableCache>) -> Result<Builds> {
        let keys = self.table_keys()?;
        if let (Some(keys), Some(cache)) = (&keys, cache)
            && are_in(cache, keys)
        {
            return Ok(Builds::default());
        }
        let rows = self.scanned_rows.unwrap_or_default() as u64;
        let rows = rows.saturating_mul(1 + joins_in(&self.plan)?);
        let is_on_device = self.device_build().is_some();
        Ok(Builds::one(rows, is_on_device, keys.is_some()))
    }

    /// Bytes of the columns from which the device builds the tables, as of planning; 0 if the CPU does.
    pub(crate) fn bytes(&self) -> u64 {
        self.device_build().map_or(0, |building| building.bytes())
    }

    /// The columns from which the device builds the tables.
    pub(crate) fn column_ids(&self) -> Vec<ColumnId> {
        let building = self.device_build();
        building.map_or_else(Vec::new, |building| building.column_ids())
    }

    /// Bytes of these columns that are not on the device; 0 if the tables are cached, or if the device cannot build them.
    pub(crate) async fn missing_bytes(
        &self,
        device: &Device,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let keys = self.table_keys()?;
        if keys.is_some_and(|keys| are_in(&device.key_tables, &keys)) {
            return Ok(0);
        }
        match self.device_build() {
            None => Ok(0),
            Some(building) => match building.missing_bytes(device, context).await {
                Err(error) if error::is_unsupported(&error) => Ok(0),
                bytes => bytes,
            },
        }
    }

    /// The cache keys of all tables; `None` if some cannot be kept.
    fn table_keys(&self) -> Result<Option<Vec<TableKey>>> {
        let keys = self.lookups.iter().map(|lookup| self.table_key(lookup));
        keys.collect()
    }

    fn device_build(&self) -> Option<&Arc<dyn BuildTables>> {
        self.building.as_ref().and_then(|of| of.as_ref().ok())
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

    fn payload(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.lookups.iter().flat_map(|lookup| &lookup.payload)
    }
}

/// Why there is no table. Cached reasons are compared with it.
const DUPLICATE_KEYS: &str = "duplicate join keys";

fn too_many(most: usize) -> String {
    format!("more rows than vectile.gpu.max_build_rows = {most}")
}

fn unsupported(reason: impl Into<String>) -> DataFusionError {
    error::gpu(Error::Unsupported(reason.into()))
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

/// Number of hash joins in a plan.
fn joins_in(plan: &Arc<dyn ExecutionPlan>) -> Result<u64> {
    let mut joins = 0;
    plan.apply(|node| {
        joins += u64::from(node.is::<HashJoinExec>());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(joins)
}

/// The build sides of `joins`, each with the lookups of `specs` that refer to it.
pub(crate) fn build_sides(
    joins: &[Join],
    specs: &[LookupSpec],
    key_sources: &[KeySource],
    most_rows: usize,
) -> Result<Vec<BuildSide>, FallbackReason> {
    let joins = joins.iter().zip(key_sources).enumerate();
    let build_sides = joins.map(|(number, (join, key_source))| {
        let specs = specs.iter().filter(|spec| spec.join == number);
        let lookups = specs.map(|spec| BuildLookup {
            payload: spec.attributes.clone(),
            purpose: spec.purpose,
        });
        BuildSide::new(join, key_source, lookups.collect(), most_rows)
    });
    build_sides.collect()
}
