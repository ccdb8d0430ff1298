//! The optimizer rule: puts on the GPU what can be, and where it is expected to pay.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::conjunction;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use vectile_gpu::ir::{Expr, Filter, GroupKey, Literal, Output, Pipeline};

use super::aggregate::{Fused, GpuAggregateExec, MOST_GROUPS};
use super::grouping::Keys;
use super::load::Input;
use super::lower::{Lowering, Needs};
use super::reason::Reason;
use super::relation::Relation;
use super::scalar::literal;
use super::scan::GpuScan;
use super::star::{Star, StarLookup};
use super::{Device, Gpu, dimension, function};
use crate::options::{GpuMode, VectileOptions};
use crate::source::VectileSource;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Puts scans and aggregates on the GPU.
#[derive(Clone, Debug)]
pub(crate) struct FuseGpu {
    gpu: Gpu,
}

/// Before the rule of this name, plans are as they will be but for what runs them.
const BEFORE: &str = "EnsureCooperative";

/// Adds the rule, or puts it in the place of one for another GPU.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>, gpu: Gpu) {
    let rule = FuseGpu { gpu };
    rules.retain(|other| other.name() != rule.name());
    let place = rules.iter().position(|other| other.name() == BEFORE);
    rules.insert(place.unwrap_or(rules.len()), Arc::new(rule));
}

impl PhysicalOptimizerRule for FuseGpu {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = VectileOptions::of(config);
        if options.gpu == GpuMode::Off {
            return Ok(plan);
        }
        let fusing = Fusing {
            gpu: &self.gpu,
            config,
            options,
        };
        Ok(fusing.rewrite(plan, None)?.data)
    }

    fn name(&self) -> &str {
        "FuseGpu"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rule at work.
struct Fusing<'a> {
    gpu: &'a Gpu,
    config: &'a ConfigOptions,
    options: VectileOptions,
}

impl Fusing<'_> {
    /// `above` is why the operator that reads `plan` was not fused with it.
    fn rewrite(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        above: Option<&Reason>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let mut reason = above.cloned();
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            match self.fuse(aggregate) {
                Ok(Some(fused)) => return Ok(Transformed::yes(fused)),
                Ok(None) => reason = None,
                Err(why) => reason = Some(why),
            }
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
        {
            return Ok(match self.fuse_scan(config, source) {
                Ok(fused) => {
                    let fused = match reason {
                        Some(above) => fused.with_gpu_note(above.to_string()),
                        None => fused,
                    };
                    Transformed::yes(scan_of(config, fused))
                }
                Err(own) => match self.explain(source, reason.unwrap_or(own))? {
                    Some(noted) => Transformed::yes(scan_of(config, noted)),
                    None => Transformed::no(plan),
                },
            });
        }
        plan.map_children(|child| self.rewrite(child, reason.as_ref()))
    }

    /// The aggregate on the GPU; `None` if it is not over a scan of a Vectile table.
    fn fuse(&self, aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>, Reason> {
        if !matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
        ) {
            return Ok(None);
        }
        let Some(relation) = Relation::of(aggregate.input())? else {
            return Ok(None);
        };
        if !aggregate.group_expr().is_single() {
            return Err(Reason::GroupingSets);
        }
        self.check_rows(&relation.config)?;
        let limit = aggregate.limit_options();
        let any = limit.is_some_and(|limit| limit.descending().is_none());
        if any && self.options.gpu == GpuMode::Auto {
            return Err(Reason::AnyGroups);
        }
        let fused = self.fused(aggregate, relation)?;
        if aggregate.group_expr().is_empty() {
            return Ok(Some(self.node(fused, aggregate.clone())?));
        }
        if aggregate.properties().output_ordering().is_some() {
            return Err(Reason::OrderedGroups);
        }
        self.grouped(fused, aggregate).map(Some)
    }

    /// Whether `auto` leaves groups by `keys` of all rows to the CPU, because one of them has very many
    /// values. That is looked at again when chunks are at hand.
    fn check_groups(
        &self,
        config: &FileScanConfig,
        keys: &[GroupKey],
        columns: &[usize],
    ) -> Result<(), Reason> {
        if self.options.gpu != GpuMode::Auto {
            return Ok(());
        }
        let rows = num_rows(config).unwrap_or_default() as u128;
        for key in keys {
            let GroupKey::Value(Expr::Column(column)) = key else {
                continue;
            };
            let values = columns.get(*column).and_then(|&c| num_values(config, c));
            // Values that lie further apart are hashed: then only those that occur count.
            let many = values.filter(|&values| values > MOST_GROUPS.into() && values <= 2 * rows);
            if let Some(values) = many {
                let most = MOST_GROUPS;
                return Err(Reason::ManyGroups { values, most });
            }
        }
        Ok(())
    }

    /// What is to be computed on the device for an aggregate of `relation`.
    fn fused(&self, aggregate: &AggregateExec, relation: Relation) -> Result<Fused, Reason> {
        let table = relation.source.table_schema().clone();
        let filters = relation.filters();
        let mut lowering = Lowering::over(&relation);
        let filter = lowering.filters(&filters.of_table)?;
        let joins = relation.joins.iter();
        let joined = joins.map(|join| lowering.key_column(join.column));
        let joined: Vec<usize> = joined.collect::<Result<_, Reason>>()?;
        let joined_filters = lowering.joined_filters(&filters.joined)?;
        let (keys, group_keys) = Keys::lower(aggregate.group_expr(), &relation, &mut lowering)?;
        let mut functions = Vec::new();
        let mut aggregates = Vec::new();
        for (expr, only_where) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
            let (function, lowered) =
                function::lower(expr, only_where.as_ref(), &relation, &mut lowering)?;
            functions.push(function);
            aggregates.push(lowered);
        }
        let Needs { columns, lookups } = lowering.finish();
        if relation.joins.is_empty() && filters.of_table.is_empty() {
            self.check_groups(&relation.config, &group_keys, &columns)?;
        }
        let device = self.device()?;
        let schema = table.table_schema();
        let types = |column: usize| schema.field(column).data_type().clone();
        let most_rows = self.options.gpu_max_build_rows;
        let mut dimensions = dimension::dimensions(&relation.joins, &lookups, types, most_rows)?;
        for dimension in &mut dimensions {
            dimension.plan = self.dimension_plan(&dimension.plan)?;
        }
        let template = Pipeline {
            columns: types_of(schema, &columns),
            lookups: vec![],
            filter,
            output: match keys.is_empty() {
                true => Output::Aggregates(aggregates),
                false => Output::Groups(group_keys, aggregates),
            },
        };
        let of_table = (!filters.of_table.is_empty()).then(|| conjunction(filters.of_table));
        let all: Vec<_> = of_table.iter().cloned().chain(filters.joined).collect();
        Ok(Fused {
            star: Star {
                template: Arc::new(template),
                joined_filters,
                dimensions,
                lookups: StarLookup::all(&lookups, &joined),
            },
            input: Input {
                engine: device.engine,
                source: relation.source.pruning_by(of_table),
                config: relation.config,
                columns,
            },
            cache: device.dimensions,
            functions,
            keys,
            filter: (!all.is_empty()).then(|| conjunction(all)),
        })
    }

    /// The plan of a dimension, with what can be of it on the GPU. What cannot is no failure: the
    /// scan that the query is about is that of the fact table.
    fn dimension_plan(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>, Reason> {
        // Apart from the plan for the CPU, which runs if something fails here.
        let plan = reset_plan_states(Arc::clone(plan))?;
        Ok(self.lenient().rewrite(plan, None)?.data)
    }

    /// The same, for plans whose scans need not be on the GPU.
    fn lenient(&self) -> Self {
        let mut options = self.options.clone();
        if options.gpu == GpuMode::Require {
            options.gpu = GpuMode::Auto;
        }
        Self { options, ..*self }
    }

    fn node(
        &self,
        fused: Fused,
        aggregate: AggregateExec,
    ) -> Result<Arc<dyn ExecutionPlan>, Reason> {
        let mut cpu: Arc<dyn ExecutionPlan> = Arc::new(aggregate.clone());
        if !fused.star.dimensions.is_empty() {
            // A join may turn out to be no lookup: then its scans are on the GPU, each for itself.
            let lenient = self.lenient();
            cpu = cpu.map_children(|input| lenient.rewrite(input, None))?.data;
            // It is no part of the plan that later rules see.
            cpu = FilterPushdown::new_post_optimization().optimize(cpu, self.config)?;
        }
        let options = self.options.clone();
        Ok(Arc::new(GpuAggregateExec::new(
            fused, aggregate, cpu, options,
        )))
    }

    /// An aggregate with groups. What comes from the GPU is partial, as a group may come more than
    /// once, and in partitions of its own.
    fn grouped(
        &self,
        fused: Fused,
        aggregate: &AggregateExec,
    ) -> Result<Arc<dyn ExecutionPlan>, Reason> {
        let is_partial = *aggregate.mode() == AggregateMode::Partial;
        let partial = match is_partial {
            true => aggregate.clone(),
            false => of_mode(aggregate, AggregateMode::Partial, aggregate.input())?,
        };
        let mut plan = self.node(fused, partial)?;
        let mut mode = AggregateMode::Final;
        if let Some(partitioning) = partitioning_of_groups(aggregate)? {
            plan = Arc::new(RepartitionExec::try_new(plan, partitioning)?);
            mode = AggregateMode::FinalPartitioned;
        }
        Ok(match is_partial {
            true => plan,
            false => Arc::new(of_mode(aggregate, mode, &plan)?),
        })
    }

    /// The device, told how much memory it may take.
    fn device(&self) -> Result<Device, Reason> {
        let device = self.gpu.device().map_err(Reason::NoDevice)?;
        if let Some(limit) = self.options.gpu_memory_limit {
            device.engine.set_memory_limit(limit);
        }
        if let Some(limit) = self.options.gpu_host_memory_limit {
            device.engine.set_host_memory_limit(limit);
        }
        Ok(device)
    }

    /// Whether there may be enough rows. That is looked at again once zone maps have been.
    fn check_rows(&self, config: &FileScanConfig) -> Result<(), Reason> {
        let least = self.options.gpu_min_rows;
        match num_rows(config) {
            Some(rows) if self.options.gpu == GpuMode::Auto && rows < least => {
                Err(Reason::FewRows { rows, least })
            }
            _ => Ok(()),
        }
    }

    /// The scan with its filters on the GPU, and with its projection where there is a kernel.
    fn fuse_scan(
        &self,
        config: &FileScanConfig,
        source: &VectileSource,
    ) -> Result<VectileSource, Reason> {
        self.check_rows(config)?;
        let table = source.table_schema().clone();
        let predicate = source.filter().filter(|_| source.evaluates_filters());
        let mut lowering = Lowering::new(&table);
        let filter = lowering.filters(predicate.as_slice())?;
        let filters = !matches!(filter, Filter::Constant(true));
        if !filters && self.options.gpu == GpuMode::Auto {
            return Err(Reason::NoFilter);
        }
        let mut projecting = lowering.clone();
        let output = match projecting.projection(source.projection()) {
            Some(rows) => {
                lowering = projecting;
                Output::Rows(rows)
            }
            None if filters => Output::Selection,
            None => return Err(Reason::NoFilter),
        };
        let columns = lowering.finish().columns;
        let Device { engine, .. } = self.device()?;
        if self.options.gpu == GpuMode::Auto {
            let (bytes, limit) = (num_bytes(config), engine.memory_limit());
            if bytes > limit {
                return Err(Reason::TooLarge { bytes, limit });
            }
        }
        let pipeline = Pipeline {
            columns: types_of(table.table_schema(), &columns),
            lookups: vec![],
            filter,
            output,
        };
        Ok(source.clone().with_gpu(GpuScan {
            engine,
            pipeline: Arc::new(pipeline),
            columns,
            mode: self.options.gpu,
            store: config.object_store_url.clone(),
        }))
    }

    /// The scan with the reason why it is not fused; `None` where nobody asks.
    fn explain(&self, source: &VectileSource, reason: Reason) -> Result<Option<VectileSource>> {
        if self.options.gpu == GpuMode::Require {
            return plan_err!("vectile.gpu = require: {reason}");
        }
        let asked = self.gpu.is_open();
        Ok(asked.then(|| source.clone().with_gpu_note(reason.to_string())))
    }
}

/// A scan with another source.
fn scan_of(config: &FileScanConfig, source: VectileSource) -> Arc<dyn ExecutionPlan> {
    let config = FileScanConfigBuilder::from(config.clone());
    DataSourceExec::from_data_source(config.with_source(Arc::new(source)).build())
}

fn types_of(schema: &Schema, columns: &[usize]) -> Vec<DataType> {
    let fields = columns.iter().map(|&column| schema.field(column));
    fields.map(|field| field.data_type().clone()).collect()
}

/// Bytes of the files of a scan: what its columns take at most.
fn num_bytes(config: &FileScanConfig) -> u64 {
    let files = config.file_groups.iter().flat_map(|group| group.iter());
    let bytes = files.map(|file| match &file.range {
        Some(range) => (range.end - range.start).max(0) as u64,
        None => file.object_meta.size,
    });
    bytes.sum()
}

/// The partitions that groups have to be in for who reads them, and for finishing them; `None` if one
/// will do.
fn partitioning_of_groups(aggregate: &AggregateExec) -> Result<Option<Partitioning>, Reason> {
    let planned = aggregate.properties().output_partitioning();
    let partitions = planned.partition_count();
    if partitions <= 1 {
        return Ok(None);
    }
    match planned {
        Partitioning::Hash(by, _) if by.iter().all(|by| by.is::<Column>()) => {
            Ok(Some(planned.clone()))
        }
        Partitioning::Range(_) => Err(Reason::PartitionedGroups),
        // Nobody can tell which group is in which partition.
        _ if *aggregate.mode() == AggregateMode::Partial => Ok(None),
        _ => Ok(Some(Partitioning::Hash(
            aggregate.output_group_expr(),
            partitions,
        ))),
    }
}

/// The aggregate in another mode, over what that reads.
fn of_mode(
    aggregate: &AggregateExec,
    mode: AggregateMode,
    input: &Arc<dyn ExecutionPlan>,
) -> Result<AggregateExec> {
    let group_by = match mode {
        AggregateMode::Partial => aggregate.group_expr().clone(),
        _ => aggregate.group_expr().as_final(),
    };
    AggregateExec::try_new(
        mode,
        group_by,
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(input),
        aggregate.input_schema(),
    )
}

/// Integers from the smallest to the largest of a column of a scan, if all files say.
fn num_values(config: &FileScanConfig, column: usize) -> Option<u128> {
    let mut bounds: Option<(i128, i128)> = None;
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        let of_column = file.statistics.as_ref()?.column_statistics.get(column)?;
        let (low, high) = (
            of_column.min_value.get_value()?,
            of_column.max_value.get_value()?,
        );
        let (Literal::Int(low, _), Literal::Int(high, _)) = (literal(low)?, literal(high)?) else {
            return None;
        };
        let (lowest, highest) = bounds.unwrap_or((low, high));
        bounds = Some((lowest.min(low), highest.max(high)));
    }
    let (low, high) = bounds?;
    high.abs_diff(low).checked_add(1)
}

/// Rows of the files of a scan, if all are known.
pub(crate) fn num_rows(config: &FileScanConfig) -> Option<usize> {
    let mut rows: usize = 0;
    let mut last = None;
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        // Byte ranges of one file follow each other, and each has the rows of all.
        let location = Some(&file.object_meta.location);
        if file.range.is_some() && last == location {
            continue;
        }
        last = location;
        let of_file = file.statistics.as_ref()?.num_rows.get_value()?;
        rows = rows.saturating_add(*of_file);
    }
    Some(rows)
}
