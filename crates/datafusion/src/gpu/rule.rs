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
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use vectile_gpu::Engine;
use vectile_gpu::ir::{Filter, Output, Pipeline};

use super::Gpu;
use super::aggregate::{self, Fused, GpuAggregateExec};
use super::load::Input;
use super::lower::Lowering;
use super::reason::Reason;
use super::relation::Relation;
use super::scan::GpuScan;
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
                Ok(Some(fused)) => return Ok(Transformed::yes(Arc::new(fused))),
                Ok(None) => reason = None,
                Err(why) => reason = Some(why),
            }
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
        {
            return Ok(match self.fuse_scan(config, source) {
                Ok(fused) => Transformed::yes(scan_of(config, fused)),
                Err(own) => match self.explain(source, reason.unwrap_or(own))? {
                    Some(noted) => Transformed::yes(scan_of(config, noted)),
                    None => Transformed::no(plan),
                },
            });
        }
        plan.map_children(|child| self.rewrite(child, reason.as_ref()))
    }

    /// The aggregate on the GPU; `None` if it is not over a scan of a Vectile table.
    fn fuse(&self, aggregate: &AggregateExec) -> Result<Option<GpuAggregateExec>, Reason> {
        if !matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
        ) {
            return Ok(None);
        }
        let Some(relation) = Relation::of(aggregate.input())? else {
            return Ok(None);
        };
        if !aggregate.group_expr().is_true_no_grouping() {
            return Err(Reason::Grouping);
        }
        self.check_rows(&relation.config)?;
        let table = relation.source.table_schema().clone();
        let mut lowering = Lowering::new(&table);
        let filter = lowering.filters(&relation.filters)?;
        let mut functions = Vec::new();
        let mut aggregates = Vec::new();
        for (expr, only_where) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
            let (function, lowered) =
                aggregate::lower(expr, only_where.as_ref(), &relation, &mut lowering)?;
            functions.push(function);
            aggregates.push(lowered);
        }
        let columns = lowering.into_columns();
        let engine = self.engine()?;
        let pipeline = Pipeline {
            columns: types_of(table.table_schema(), &columns),
            lookups: vec![],
            filter,
            output: Output::Aggregates(aggregates),
        };
        let predicate = (!relation.filters.is_empty()).then(|| conjunction(relation.filters));
        let fused = Fused {
            input: Input {
                engine,
                source: relation.source.pruning_by(predicate.clone()),
                config: relation.config,
                columns,
            },
            pipeline,
            functions,
            filter: predicate,
        };
        Ok(Some(GpuAggregateExec::new(
            fused,
            aggregate,
            self.options.clone(),
        )))
    }

    /// The engine, told how much memory it may take.
    fn engine(&self) -> Result<Arc<Engine>, Reason> {
        let engine = self.gpu.engine().map_err(Reason::NoDevice)?;
        if let Some(limit) = self.options.gpu_memory_limit {
            engine.set_memory_limit(limit);
        }
        if let Some(limit) = self.options.gpu_host_memory_limit {
            engine.set_host_memory_limit(limit);
        }
        Ok(engine)
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
        let columns = lowering.into_columns();
        let engine = self.engine()?;
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

/// Rows of the files of a scan, if all are known.
fn num_rows(config: &FileScanConfig) -> Option<usize> {
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
