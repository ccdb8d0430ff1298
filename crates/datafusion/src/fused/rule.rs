//! The optimizer rules that move aggregates, joins and scans to the GPU where that is supported and expected to pay.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_datafusion_err, plan_err};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::limited_distinct_aggregation::LimitedDistinctAggregation;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};
use vectile_gpu::coded_columns;
use vectile_pipeline::{Filter, Output, Pipeline};

use super::background::{Session, SessionEnd};
use super::cost_model::{Missing, Work};
use super::device::Gpu;
use super::exec::auto::Auto;
use super::exec::build_side::{self, BuildSide};
use super::exec::column_loader::Input;
use super::exec::cpu_fallback::CpuPlan;
use super::exec::device_build::{BuildOutput, DeviceBuild};
use super::exec::fused_aggregate::{FusedAggregateExec, FusedParts, Replaced};
use super::exec::prewarm::{PrewarmCandidate, PrewarmExec};
use super::exec::scan::GpuScan;
use super::exec::star_pipeline::{LookupKey, StarLookup, StarTemplate};
use super::fallback_reason::FallbackReason;
use super::lowering::build_output::BuildColumns;
use super::lowering::expression::{Lowering, Needs};
use super::lowering::function::{self, Named};
use super::lowering::group_key::Keys;
use super::lowering::group_pruning::GroupPruning;
use super::lowering::join_filter;
use super::lowering::nested_aggregate::{
    AggregateOverGroups, BuildFromGroups, NestedAggregationPlan,
};
use super::lowering::output_rows::RowColumns;
use super::pattern::aggregates::Aggregates;
use super::pattern::eager::before_join;
use super::pattern::files::{num_bytes, num_rows};
use super::pattern::join::KeySource;
use super::pattern::relation::Relation;
use crate::error;
use crate::nullable;
use crate::options::{GpuMode, VectileOptions};
use crate::pushdown::Rule;
use crate::source::{GpuNote, VectileSource, scan_of};
use crate::stack;

/// Fuses aggregates and joins, with the scans below them, into nodes for the GPU.
///
/// Runs before the rules about joins, filters, distribution and order, which see only the build sides of fused nodes.
/// If the CPU has to take over, they and all later rules are applied to the original plan.
#[derive(Debug)]
struct FuseGpuAggregates {
    gpu: Gpu,
    /// The rules that run after it.
    later: Arc<[Rule]>,
    /// Held here and not by a later rule: plans hold the later rules, and tasks that end with the session hold plans.
    session: Session,
}

/// Moves filters and projections of scans to the GPU. Runs late, when they are known.
#[derive(Debug)]
struct FuseGpuScans {
    gpu: Gpu,
    end: SessionEnd,
    /// The session, if there is no rule for aggregates to hold it.
    _session: Option<Session>,
}

/// The name of each rule, and of the rule before which it runs.
const AGGREGATES: [&str; 2] = ["FuseGpuAggregates", nullable::RULE];
const SCANS: [&str; 2] = ["FuseGpuScans", "EnsureCooperative"];

/// Adds the rules, or replaces those of another GPU.
pub(crate) fn insert_rules(rules: &mut Vec<Rule>, gpu: Gpu) {
    rules.retain(|rule| ![AGGREGATES[0], SCANS[0]].contains(&rule.name()));
    let position_of = |rules: &[Rule], name| rules.iter().position(|rule| rule.name() == name);
    let session = Session::new();
    let scans = |session: Option<Session>, end| FuseGpuScans {
        gpu: gpu.clone(),
        end,
        _session: session,
    };
    let end = session.end();
    let of_scans = position_of(rules, SCANS[1]).unwrap_or(rules.len());
    // With other rules than ours, the partitions that operators above need may not be restored.
    let joins = position_of(rules, nullable::JOINS);
    match position_of(rules, AGGREGATES[1]).filter(|_| joins.is_some()) {
        Some(index) => {
            rules.insert(of_scans, Arc::new(scans(None, end)));
            let index = index + usize::from(of_scans <= index);
            let aggregates = FuseGpuAggregates {
                later: rules[index..].into(),
                gpu,
                session,
            };
            rules.insert(index, Arc::new(aggregates));
        }
        None => rules.insert(of_scans, Arc::new(scans(Some(session), end))),
    }
}

impl PhysicalOptimizerRule for FuseGpuAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(fusing) = Fusing::new(&self.gpu, self.session.end(), config) else {
            return Ok(plan);
        };
        // It shows which groups the query needs, and depends on no earlier rule.
        let plan = LimitedDistinctAggregation::new().optimize(plan, config)?;
        let plan = fusing
            .aggregates(plan, ParentContext::default(), &self.later)?
            .data;
        // These nodes are in no plan, so that the optimizer does not reach what is below them.
        let waiting = fusing.waiting.into_inner().into_iter();
        let waiting = waiting.filter_map(|PrewarmCandidate { node, reason }| {
            let mut rules = self.later.iter();
            let node = rules.try_fold(node as _, |node, rule| rule.optimize(node, config));
            let node = node.ok()?.downcast_ref::<FusedAggregateExec>().cloned()?;
            let node = Arc::new(node);
            Some(PrewarmCandidate { node, reason })
        });
        Ok(match waiting.collect::<Vec<_>>() {
            waiting if waiting.is_empty() => plan,
            waiting => Arc::new(PrewarmExec::new(plan, waiting)),
        })
    }

    fn name(&self) -> &str {
        AGGREGATES[0]
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for FuseGpuScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match Fusing::new(&self.gpu, self.end.clone(), config) {
            Some(mut fusing) => {
                fusing.is_opened = plan.exists(|node| Ok(node.is::<PrewarmExec>()))?;
                Ok(fusing.scans(plan)?.data)
            }
            None => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        SCANS[0]
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The result to compute from a relation.
enum FusionTarget<'a> {
    Aggregate(&'a AggregateExec),
    /// Groups from which key tables are built.
    Groups(&'a AggregateExec),
    /// The rows of a join; the plan has an estimate of their number.
    Rows(&'a Arc<dyn ExecutionPlan>),
    /// The key tables of a build side.
    Tables(&'a BuildSide),
}

/// The output columns of a kernel.
enum OutputColumns {
    /// Results of aggregate functions.
    Results,
    Rows(RowColumns),
    Tables(BuildColumns),
}

/// Decisions about the operators above, passed down the plan.
#[derive(Clone, Copy, Default)]
struct ParentContext<'a> {
    /// Why the operator that reads the plan was not fused with it.
    reason: Option<&'a FallbackReason>,
    /// True if an operator's cost was estimated together with the joins below it, and the CPU is faster.
    is_for_cpu: bool,
    /// How they restrict the rows, if they do.
    pruning: Option<&'a GroupPruning>,
}

/// Joins that become fused nodes of their own.
#[derive(Clone, Copy, PartialEq)]
enum Joins {
    All,
    /// Joins of a large table; others are not worth a kernel.
    Large,
    None,
}

/// Minimum number of rows of a large table.
const LARGE_ROWS: usize = 1 << 20;

/// One run of a rule, with its settings.
struct Fusing<'a> {
    gpu: &'a Gpu,
    session: SessionEnd,
    options: VectileOptions,
    /// Number of cores that the CPU would use.
    cores: usize,
    joins: Joins,
    /// True if an aggregate opens the device once the CPU has answered.
    is_opened: bool,
    /// Nodes that could run on the GPU, but are left to the CPU for now.
    waiting: RefCell<Vec<PrewarmCandidate>>,
}

impl<'a> Fusing<'a> {
    /// `None` if the GPU is switched off.
    fn new(gpu: &'a Gpu, session: SessionEnd, config: &ConfigOptions) -> Option<Self> {
        let options = VectileOptions::of(config);
        (options.gpu != GpuMode::Off).then_some(Self {
            gpu,
            session,
            options,
            cores: config.execution.target_partitions,
            joins: Joins::All,
            is_opened: false,
            waiting: RefCell::default(),
        })
    }

    /// Fuses the aggregates and joins of `plan` where possible.
    fn aggregates(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        parent: ParentContext<'_>,
        later: &Arc<[Rule]>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let mut reason = parent.reason.cloned();
        let mut is_for_cpu = parent.is_for_cpu;
        if let Some(aggregates) = Aggregates::of(&plan) {
            match self.fuse(&plan, aggregates, parent.pruning, later) {
                Ok(Some(fused)) => return Ok(Transformed::yes(fused)),
                Ok(None) => reason = None,
                Err(why) => {
                    self.check(&why)?;
                    is_for_cpu |= why.is_for_cpu();
                    reason = Some(why);
                }
            }
        } else if may_contain_join(&plan) && !is_for_cpu {
            match self.fuse_join(&plan, later) {
                Ok(Some(fused)) => return Ok(Transformed::yes(fused)),
                Ok(None) => {}
                // The filters of its scans may pay even if the join does not.
                Err(why) if why.is_for_cpu() => is_for_cpu = true,
                Err(why) => {
                    self.check(&why)?;
                    reason = reason.or(Some(why));
                }
            }
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
            && let Some(reason) = reason
        {
            return Ok(match self.with_note(source, &reason) {
                Some(noted) => Transformed::yes(scan_of(config, noted)),
                None => Transformed::no(plan),
            });
        }
        let propagated = || parent.pruning?.below(&plan).ok().flatten();
        let pruning = GroupPruning::of(&plan).or_else(propagated);
        let below = ParentContext {
            reason: reason.as_ref(),
            is_for_cpu,
            pruning: pruning.as_ref(),
        };
        plan.map_children(|child| stack::grown(|| self.aggregates(child, below, later)))
    }

    /// Moves the scans of `plan` to the GPU where possible.
    fn scans(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        if plan.is::<FusedAggregateExec>() {
            // The fused node has the main scan of the query.
            let lenient = self.lenient(Joins::None);
            return plan.map_children(|child| lenient.scans(child));
        }
        let Some(scan) = plan.downcast_ref::<DataSourceExec>() else {
            return plan.map_children(|child| stack::grown(|| self.scans(child)));
        };
        let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>() else {
            return Ok(Transformed::no(plan));
        };
        if source.gpu_note().is_some_and(|note| note.is_of_cost) {
            // If the CPU is cheaper for the operator above, filtering for it on the GPU does not pay either.
            return Ok(Transformed::no(plan));
        }
        let own = match self.fuse_scan(config, source) {
            Ok(fused) => return Ok(Transformed::yes(scan_of(config, fused))),
            Err(own) => own,
        };
        self.check(&own)?;
        if self.options.gpu == GpuMode::Require {
            let above = source.gpu_note().map(|note| Arc::clone(&note.reason));
            let reason = above.unwrap_or_else(|| own.to_string().into());
            return plan_err!("vectile.gpu = require: {reason}");
        }
        let noted = match source.gpu_note() {
            Some(_) => None,
            None => self.with_note(source, &own),
        };
        Ok(match noted {
            Some(noted) => Transformed::yes(scan_of(config, noted)),
            None => Transformed::no(plan),
        })
    }

    /// Reports a defect of Vectile instead of hiding it behind the CPU's answer.
    ///
    /// # Errors
    ///
    /// The defect, with `require` and on an emulator.
    fn check(&self, reason: &FallbackReason) -> Result<()> {
        let FallbackReason::Defect(defect) = reason else {
            return Ok(());
        };
        let error = internal_datafusion_err!("{defect}");
        match self.options.gpu {
            GpuMode::Require => Err(error::required(error)),
            _ => self.gpu.left_to_cpu(error).map(drop),
        }
    }

    /// Records in the scan why it, or the operator that reads it, is not fused; `None` if no GPU may be present.
    fn with_note(&self, source: &VectileSource, reason: &FallbackReason) -> Option<VectileSource> {
        let may_be_there = self.gpu.may_be_there();
        may_be_there.then(|| {
            source.clone().with_gpu_note(GpuNote {
                reason: reason.to_string().into(),
                is_of_cost: reason.is_of_cost(),
            })
        })
    }

    /// Fuses an aggregate; `None` if it is not over a scan of a Vectile table.
    fn fuse(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        aggregates: Aggregates,
        pruning: Option<&GroupPruning>,
        later: &Arc<[Rule]>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, FallbackReason> {
        let Some((partial, relation)) = relation_of(&aggregates)? else {
            return self.fuse_nested(plan, aggregates, pruning, later);
        };
        if !partial.group_expr().is_single() {
            return Err(FallbackReason::GroupingSets);
        }
        if partial.limit_options().is_some() && self.options.gpu != GpuMode::Require {
            return Err(FallbackReason::AnyGroups);
        }
        let (fused, _) =
            self.lower_relation(&FusionTarget::Aggregate(&partial), relation, later)?;
        // A join may turn out not to be a lookup: the operators below are then fused one by one.
        let cpu = match fused.star.dimensions.is_empty() {
            true => Arc::clone(plan),
            false => {
                let below = self.lenient(Joins::None);
                Arc::clone(plan)
                    .map_children(|partial| {
                        partial.map_children(|input| {
                            below.aggregates(input, ParentContext::default(), later)
                        })
                    })?
                    .data
            }
        };
        self.fused_node(fused, Replaced::Aggregates(aggregates), cpu, pruning, later)
    }

    /// Fuses an aggregate over the groups of another one; `None` if `plan` is something else.
    fn fuse_nested(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        outer: Aggregates,
        pruning: Option<&GroupPruning>,
        later: &Arc<[Rule]>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, FallbackReason> {
        let Some(groups) = AggregateOverGroups::of(&outer)? else {
            return Ok(None);
        };
        let Some((inner, relation)) = relation_of(&groups.inner)? else {
            return Ok(None);
        };
        let target = FusionTarget::Aggregate(&inner);
        let (mut fused, _) = self.lower_relation(&target, relation, later)?;
        // The original expressions have the names that the plan uses.
        let inner = &groups.inner.partial;
        // Without keys there is a group even for empty input.
        if !fused.has_distinct_groups || fused.keys.of_kernel().is_empty() {
            return Ok(None);
        }
        let functions = fused.functions.iter().copied();
        let functions: Vec<Named> = functions.zip(inner.aggr_expr().iter().cloned()).collect();
        let outer_groups = NestedAggregationPlan::lower(&outer, groups, &fused.keys, &functions)?;
        fused.again = Some(outer_groups.nested);
        fused.keys = outer_groups.keys;
        fused.functions = outer_groups.functions;
        fused.has_distinct_groups = outer_groups.has_distinct_groups;
        // If the groups take several launches, the inner aggregate is fused by itself.
        let below = self.lenient(Joins::None);
        let cpu = Arc::clone(plan).map_children(|partial| {
            partial.map_children(|input| below.aggregates(input, ParentContext::default(), later))
        })?;
        let replaced = Replaced::Aggregates(outer);
        self.fused_node(fused, replaced, cpu.data, pruning, later)
    }

    /// Fuses a join to compute its rows; `None` if it is not one with a Vectile table.
    fn fuse_join(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        later: &Arc<[Rule]>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, FallbackReason> {
        if self.joins == Joins::None {
            return Ok(None);
        }
        let Some(relation) = Relation::of(plan)?.filter(|relation| !relation.joins.is_empty())
        else {
            return Ok(None);
        };
        let is_large = num_rows(&relation.config).is_some_and(|rows| rows >= LARGE_ROWS);
        if self.joins == Joins::Large && !is_large {
            return Ok(None);
        }
        let (fused, columns) = self.lower_relation(&FusionTarget::Rows(plan), relation, later)?;
        let OutputColumns::Rows(columns) = columns else {
            return Err(FallbackReason::Failed("rows without columns".into()));
        };
        let below = self.lenient(Joins::None);
        let cpu = Arc::clone(plan)
            .map_children(|input| below.aggregates(input, ParentContext::default(), later))?;
        let replaced = Replaced::Join(Arc::clone(plan), columns);
        self.fused_node(fused, replaced, cpu.data, None, later)
    }

    /// The fused node that replaces `cpu`, or the reason why the CPU is used.
    fn fused_node(
        &self,
        fused: FusedParts,
        replaced: Replaced,
        cpu: Arc<dyn ExecutionPlan>,
        pruning: Option<&GroupPruning>,
        later: &Arc<[Rule]>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, FallbackReason> {
        if reads_work_table(&cpu) {
            return Err(FallbackReason::WorkTable);
        }
        let cpu = CpuPlan {
            plan: cpu,
            rules: Arc::clone(later),
        };
        let node = FusedAggregateExec::new(fused, replaced, cpu, self.options.clone());
        let pruned = pruning.map(|pruning| node.pruned(pruning)).transpose()?;
        let node = match pruned.flatten() {
            Some(pruned) => pruned,
            None => {
                node.check_groups()?;
                node
            }
        };
        let node = Arc::new(node);
        let reason = node.is_for_cpu(self.cores);
        // If the CPU answers, opening the device is part of prewarming.
        if reason.is_none() {
            self.gpu.open_in_background();
        }
        match reason {
            Some(reason) => {
                let mut waiting = self.waiting.borrow_mut();
                waiting.push(PrewarmCandidate {
                    node,
                    reason: reason.clone(),
                });
                Err(reason)
            }
            None => Ok(Some(node)),
        }
    }

    /// Lowers `relation` to a fused pipeline, and returns the output columns of its kernel too.
    fn lower_relation(
        &self,
        target: &FusionTarget<'_>,
        relation: Relation,
        later: &Arc<[Rule]>,
    ) -> Result<(FusedParts, OutputColumns), FallbackReason> {
        let table = relation.source.table_schema().clone();
        let filters = relation.filters();
        let mut lowering = Lowering::over(&relation);
        let filter = lowering.filters(&filters.of_table)?;
        let joins = relation.joins.iter();
        let key_sources = joins
            .clone()
            .map(|join| join.key_source(&relation.schema, table.table_schema()));
        let key_sources: Vec<KeySource> = key_sources.collect::<Result<_, FallbackReason>>()?;
        let lookup_keys = joins.zip(&key_sources).map(|(join, source)| match source {
            KeySource::Column(column, _) => Ok(LookupKey::Column(lowering.key_column(*column)?)),
            KeySource::Packed(parts) => {
                let keys = join.keys.iter().zip(parts);
                let keys = keys.map(|(key, part)| match part.text {
                    Some(column) => Ok(lowering.key_text(column)?),
                    None => lowering.value(&key.probe),
                });
                Ok(LookupKey::Computed(
                    keys.collect::<Result<_, FallbackReason>>()?,
                ))
            }
        });
        let lookup_keys: Vec<LookupKey> = lookup_keys.collect::<Result<_, FallbackReason>>()?;
        let joined_filters = lowering.joined_filters(&filters.joined)?;
        let conditions = join_filter::of(&relation.joins, &mut lowering)?;
        let mut keys = Keys::default();
        let (mut functions, mut aggregates) = (Vec::new(), Vec::new());
        let mut output_columns = OutputColumns::Results;
        match target {
            FusionTarget::Rows(_) => {
                output_columns = OutputColumns::Rows(RowColumns::lower(&relation, &mut lowering)?);
            }
            FusionTarget::Tables(dimension) => {
                let over = |expr: &Arc<dyn PhysicalExpr>| relation.over_table(expr);
                let columns = dimension.build_columns(over, &mut lowering)?;
                output_columns = OutputColumns::Tables(columns);
            }
            FusionTarget::Aggregate(aggregate) | FusionTarget::Groups(aggregate) => {
                keys = Keys::lower(aggregate.group_expr(), &relation, &mut lowering)?;
                let exprs = aggregate.aggr_expr().iter();
                for (expr, only_where) in exprs.zip(aggregate.filter_expr()) {
                    let (function, lowered) = function::lower(
                        expr,
                        only_where.as_ref(),
                        relation.columns(),
                        &mut keys,
                        &mut lowering,
                    )?;
                    functions.push(function);
                    aggregates.extend(lowered);
                }
            }
        }
        let Needs {
            columns,
            lookups,
            parameters,
        } = lowering.finish();
        let mut has_distinct_groups = true;
        for lookup in &lookups {
            has_distinct_groups &= lookup.has_code_per_group(&relation.joins)?;
        }
        let (selectivity, output_bytes) = match target {
            FusionTarget::Aggregate(aggregate) => match relation.joins.is_empty() {
                true => (selectivity(aggregate, &relation.config)?, 0),
                false => (0.0, 0),
            },
            FusionTarget::Rows(plan) => (0.0, output_bytes(plan, &relation.config)?),
            FusionTarget::Tables(_) | FusionTarget::Groups(_) => (0.0, 0),
        };
        let work = Work {
            joins: relation.joins.len(),
            states: keys.of_kernel().len() + aggregates.len(),
            passing: selectivity,
            returned: output_bytes,
            ..work(&relation.config, columns.len())
        };
        let auto = match target {
            // The cost depends on the kernel that looks the tables up.
            FusionTarget::Tables(_) | FusionTarget::Groups(_) => None,
            _ => self.estimated(work)?,
        };
        let schema = table.table_schema();
        let most_rows = self.options.gpu_max_build_rows;
        let mut dimensions =
            build_side::dimensions(&relation.joins, &lookups, &key_sources, most_rows)?;
        let is_aggregated = matches!(target, FusionTarget::Aggregate(_) | FusionTarget::Groups(_));
        let joins = relation.joins.iter().zip(&conditions);
        for (dimension, (join, condition)) in dimensions.iter_mut().zip(joins) {
            let has_kernel = join.condition.is_some() == condition.is_some();
            dimension.may_repeat_keys(has_kernel && (is_aggregated || join.reads_matches()));
            if let Some(building) = self.plan_build(dimension, later) {
                dimension.built_by(building.map(|building| Arc::new(building) as _));
            }
            dimension.check_rows()?;
            // The build side need not be on the GPU, even with `require`: the main scan of the query is the table's.
            let plan = Arc::clone(&dimension.plan);
            let lenient = self.lenient(Joins::Large);
            dimension.plan = lenient
                .aggregates(plan, ParentContext::default(), later)?
                .data;
        }
        let template = Pipeline {
            columns: types_of(schema, &columns),
            lookups: vec![],
            matches: vec![],
            filter,
            output: match (&output_columns, keys.of_kernel()) {
                (OutputColumns::Rows(rows), _) => Output::Rows(rows.of_kernel().to_vec()),
                (OutputColumns::Tables(tables), _) => Output::Rows(tables.of_kernel().to_vec()),
                (OutputColumns::Results, []) => Output::Aggregates(aggregates),
                (OutputColumns::Results, keys) => Output::Groups(keys.to_vec(), aggregates),
            },
        };
        let coded = coded_columns(&template).into_iter();
        let coded = coded.map(|column| columns[column]).collect();
        let parts = key_sources.iter().zip(&lookup_keys);
        let parts = parts.flat_map(|(source, key)| key.columns_of(source));
        let lookup_columns: Vec<usize> = parts.collect();
        let text_keys = template.key_columns().chain(lookup_columns);
        let text_keys = text_keys.map(|column| columns[column]).collect();
        let of_table = (!filters.of_table.is_empty()).then(|| conjunction(filters.of_table));
        let all: Vec<_> = of_table.iter().cloned().chain(filters.joined).collect();
        let fused = FusedParts {
            gpu: self.gpu.clone(),
            star: StarTemplate {
                template: Arc::new(template),
                joined_filters,
                dimensions,
                conditions,
                lookups: StarLookup::all(&lookups, &lookup_keys),
                parameters,
            },
            input: Input {
                source: relation.source.pruning_by(of_table),
                config: relation.config,
                columns,
                coded,
                keys: text_keys,
            },
            auto,
            has_distinct_groups: keys.match_kernel_groups() && has_distinct_groups,
            again: None,
            functions,
            keys,
            filter: (!all.is_empty()).then(|| conjunction(all)),
        };
        Ok((fused, output_columns))
    }

    /// Plans how the device builds the key tables of a build side, or why it cannot; `None` if it is too small.
    fn plan_build(
        &self,
        dimension: &BuildSide,
        later: &Arc<[Rule]>,
    ) -> Option<Result<DeviceBuild, FallbackReason>> {
        let rows = dimension.scanned_rows()?;
        let is_large = rows >= self.options.gpu_build_from_rows;
        is_large.then(|| {
            // A cached plan knows the subqueries of its own nodes only.
            if !dimension.is_fixed() {
                let reason = "what it reads may be another thing the next time";
                return Err(FallbackReason::Join(reason.into()));
            }
            if dimension.has_subqueries()? {
                return Err(FallbackReason::Join(
                    "it has the result of a subquery".into(),
                ));
            }
            match Relation::of(&dimension.plan)? {
                Some(relation) => self.build_from_rows(dimension, relation, later),
                None => self.build_from_groups(dimension, later),
            }
        })
    }

    fn build_from_rows(
        &self,
        dimension: &BuildSide,
        relation: Relation,
        later: &Arc<[Rule]>,
    ) -> Result<DeviceBuild, FallbackReason> {
        let (fused, columns) =
            self.lower_relation(&FusionTarget::Tables(dimension), relation, later)?;
        match columns {
            OutputColumns::Tables(columns) => {
                let post_aggregation = None;
                Ok(into_building(
                    fused,
                    vec![BuildOutput {
                        columns,
                        post_aggregation,
                    }],
                    later,
                ))
            }
            _ => Err(FallbackReason::Failed("tables without columns".into())),
        }
    }

    fn build_from_groups(
        &self,
        dimension: &BuildSide,
        later: &Arc<[Rule]>,
    ) -> Result<DeviceBuild, FallbackReason> {
        let no_groups = || FallbackReason::Join("it is no table, nor groups of one".into());
        let groups = AggregateOverGroups::below(&dimension.plan)?.ok_or_else(no_groups)?;
        let (inner, relation) = relation_of(&groups.inner)?.ok_or_else(no_groups)?;
        if !inner.group_expr().is_single() || inner.limit_options().is_some() {
            return Err(FallbackReason::GroupingSets);
        }
        let (fused, _) = self.lower_relation(&FusionTarget::Groups(&inner), relation, later)?;
        if !fused.has_distinct_groups || fused.keys.of_kernel().is_empty() {
            return Err(no_groups());
        }
        // The original expressions have the names that the plan uses.
        let functions = fused.functions.iter().copied();
        let named = groups.inner.partial.aggr_expr().iter().cloned();
        let functions: Vec<Named> = functions.zip(named).collect();
        let lower = |may_round| {
            let (keys, functions) = (&fused.keys, &functions);
            BuildFromGroups::lower(&groups, keys, functions, may_round, |over, lowering| {
                dimension.build_columns(over, lowering)
            })
        };
        let rounding = lower(true)?;
        // The alternative leaves to the CPU what kernels may be unable to round.
        let others = lower(false).ok();
        let others =
            others.filter(|others| others.columns.of_kernel() != rounding.columns.of_kernel());
        let built = [Some(rounding), others].into_iter().flatten();
        let outputs = built.map(|built| BuildOutput {
            columns: built.columns,
            post_aggregation: Some(built.post_aggregation),
        });
        let outputs = outputs.collect();
        Ok(into_building(fused, outputs, later))
    }

    /// The settings for plans whose scans need not be on the GPU.
    fn lenient(&self, joins: Joins) -> Self {
        let mut options = self.options.clone();
        if options.gpu == GpuMode::Require {
            options.gpu = GpuMode::Auto;
        }
        Self {
            options,
            joins,
            session: self.session.clone(),
            waiting: RefCell::default(),
            ..*self
        }
    }

    /// With `auto`, estimates the time on the CPU and on the GPU. The estimate is revised once zone maps and the
    /// device's memory have been inspected.
    ///
    /// # Errors
    ///
    /// There is no device, or the CPU would be faster than a device with all data in its memory.
    fn estimated(&self, work: Work) -> Result<Option<Auto>, FallbackReason> {
        self.gpu
            .opened()
            .transpose()
            .map_err(FallbackReason::NoDevice)?;
        if self.options.gpu != GpuMode::Auto {
            self.gpu.open_in_background();
            return Ok(None);
        }
        let costs = self.gpu.costs();
        let estimate = costs.estimate(None, work, Missing::default(), self.cores);
        if estimate.is_for_cpu() {
            return Err(FallbackReason::CpuIsFaster(estimate));
        }
        let background = Arc::clone(self.gpu.background());
        Ok(Some(Auto {
            estimate,
            planned: work,
            costs: Arc::clone(costs),
            background: self.options.gpu_background.then_some(background),
            session: self.session.clone(),
        }))
    }

    /// Moves the filters of a scan to the GPU, and its projection if that has a kernel.
    fn fuse_scan(
        &self,
        config: &FileScanConfig,
        source: &VectileSource,
    ) -> Result<VectileSource, FallbackReason> {
        let table = source.table_schema().clone();
        let predicate = source.filter().filter(|_| source.evaluates_filters());
        let mut lowering = Lowering::new(&table);
        let filter = lowering.filters(predicate.as_slice())?;
        let filters = !matches!(filter, Filter::Constant(true));
        if !filters && self.options.gpu != GpuMode::Require {
            return Err(FallbackReason::NoFilter);
        }
        let mut projecting = lowering.clone();
        let output = match projecting.projection(source.projection()) {
            Some(rows) => {
                lowering = projecting;
                Output::Rows(rows)
            }
            None if filters => Output::Selection,
            None => return Err(FallbackReason::NoFilter),
        };
        let Needs {
            columns,
            parameters,
            ..
        } = lowering.finish();
        if let Some(parameter) = parameters.first() {
            // Kernels of scans are generated when they are planned, before parameters are known.
            return Err(FallbackReason::Expr(parameter.to_string()));
        }
        let auto = self.estimated(work(config, columns.len()))?;
        if let Some(auto) = &auto
            && self.gpu.opened().is_none()
        {
            let reason = auto.cpu_is_faster_than_opening(None, 0, self.cores);
            if reason.is_none() || self.options.gpu_background && !self.is_opened {
                self.gpu.open_in_background();
            }
            reason.map_or(Ok(()), Err)?;
        }
        if self.options.gpu != GpuMode::Require
            && let Some(Ok(device)) = self.gpu.opened()
        {
            device.limit(&self.options);
            let (bytes, limit) = (num_bytes(config), device.engine.memory_limit());
            if bytes > limit {
                return Err(FallbackReason::TooLarge { bytes, limit });
            }
        }
        let pipeline = Pipeline {
            columns: types_of(table.table_schema(), &columns),
            lookups: vec![],
            matches: vec![],
            filter,
            output,
        };
        let coded = coded_columns(&pipeline).into_iter();
        Ok(source.clone().with_device(Arc::new(GpuScan {
            gpu: self.gpu.clone(),
            coded: coded.map(|column| columns[column]).collect(),
            pipeline: Arc::new(pipeline),
            columns,
            options: self.options.clone(),
            auto,
            store: config.object_store_url.clone(),
        })))
    }
}

/// Turns a fused pipeline into one from which the device builds key tables.
fn into_building(fused: FusedParts, outputs: Vec<BuildOutput>, later: &Arc<[Rule]>) -> DeviceBuild {
    let mut star = fused.star;
    for dimension in &mut star.dimensions {
        // These build sides are in no plan, so that the optimizer does not reach them.
        dimension.rules = Arc::clone(later);
    }
    DeviceBuild {
        input: fused.input,
        star,
        outputs,
    }
}

/// The relation that an aggregate reads, and the aggregate: a rewritten one (eager aggregation) if only that is over a
/// relation.
fn relation_of(
    aggregates: &Aggregates,
) -> Result<Option<(Arc<AggregateExec>, Relation)>, FallbackReason> {
    let partial = &aggregates.partial;
    let own = Relation::of(partial.input());
    if let Ok(Some(relation)) = own {
        return Ok(Some((Arc::clone(partial), relation)));
    }
    if let Some(other) = before_join(partial)?
        && let Some(relation) = Relation::of(other.input())?
    {
        return Ok(Some((Arc::new(other), relation)));
    }
    own.map(|_| None)
}

/// Returns true if `plan` reads the work table of a recursive query that it is a part of. The work table has its rows
/// for one reader, which the recursive query finds among the children of operators; a fallback plan is not one of them.
fn reads_work_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<RecursiveQueryExec>() {
        // The recursive term reads the query's own work table.
        Some(query) => reads_work_table(query.static_term()),
        None => plan.is::<WorkTableExec>() || plan.children().into_iter().any(reads_work_table),
    }
}

/// Returns true for joins, and for filters and projections, which may be over joins.
fn may_contain_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>() || plan.is::<FilterExec>() || plan.is::<ProjectionExec>()
}

fn types_of(schema: &Schema, columns: &[usize]) -> Vec<DataType> {
    let fields = columns.iter().map(|&column| schema.field(column));
    fields.map(|field| field.data_type().clone()).collect()
}

/// The minimal work of a query that reads this many columns of a table.
fn work(config: &FileScanConfig, columns: usize) -> Work {
    let schema = config.file_source.table_schema().table_schema();
    let all = schema.fields().len().max(1);
    let bytes = num_bytes(config) / all as u64;
    Work {
        // Without statistics, assumes a byte for each value.
        rows: num_rows(config).map_or(bytes, |rows| rows as u64),
        columns,
        bytes: bytes * columns as u64,
        ..Work::default()
    }
}

/// Estimated bytes of a join's rows.
fn output_bytes(
    plan: &Arc<dyn ExecutionPlan>,
    config: &FileScanConfig,
) -> Result<u64, FallbackReason> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let rows = statistics.num_rows.get_value().copied();
    let rows = rows.or(num_rows(config)).unwrap_or_default() as u64;
    let schema = plan.schema();
    let widths = schema.fields().iter().map(|field| {
        let width = field.data_type().primitive_width();
        width.unwrap_or(TEXT_BYTES) as u64
    });
    Ok(rows.saturating_mul(widths.sum()))
}

/// Estimated bytes of a string.
const TEXT_BYTES: usize = 32;

/// Estimated share of a table's rows that an aggregate reads.
fn selectivity(aggregate: &AggregateExec, config: &FileScanConfig) -> Result<f64, FallbackReason> {
    let input = aggregate.input().as_ref();
    let statistics = StatisticsContext::new().compute(input, &StatisticsArgs::new())?;
    let rows = num_rows(config).unwrap_or_default();
    Ok(match statistics.num_rows.get_value() {
        Some(&read) if rows > 0 => (read as f64 / rows as f64).min(1.0),
        _ => 1.0,
    })
}
