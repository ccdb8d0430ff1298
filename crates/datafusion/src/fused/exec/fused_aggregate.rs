//! Node of a fused aggregate over a scan and its joins.
//!
//! ```text
//!  kernel ─┬─ totals ──────────────────────────────────────────────────────▶ result, without GROUP BY
//!          └─ groups of a batch ─▶ pruned, if they are all ─▶ states ─┬────▶ results, if each group occurs once
//!                                                                     ├─▶ merged by DataFusion's final aggregate
//!                                                                     └─▶ grouping sets, of groups by all keys
//! ```

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateMode;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, SendableRecordBatchStream};
use vectile_gpu::{Batch, Error, Execution};
use vectile_pipeline::{
    Expr, GroupKey, GroupTotals, Groups, Output, PostAggregation, Total, parallel,
};

use super::build_side::OtherExpr;
use super::fused_exec::FusedExec;
use super::fused_plan::FusedPlan;
use super::grouping_sets::{GroupingSets, SetGroups, schema_of};
use super::operation::{CollectedRows, Collector, Operation, RowContent, in_memory};
use crate::error;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::function::{self, Function, Named};
use crate::fused::lowering::group_key::Keys;
use crate::fused::lowering::group_pruning::{GroupPruning, ResultPruning};
use crate::fused::lowering::nested_aggregate::NestedAggregationPlan;
use crate::fused::lowering::payload_values::PayloadValues;
use crate::fused::pattern::aggregates::{Aggregates, of_mode};
use crate::fused::pattern::files::{num_rows, num_values};
use crate::fused::table::Tables;
use crate::options::GpuMode;

/// Computes an aggregate over a scan and its joins on the GPU.
pub(crate) type FusedAggregateExec = FusedExec<Aggregation>;

/// Up to this many groups, one core turns states into results.
const FEW_GROUPS: usize = 1 << 16;

/// With `auto`, the CPU takes queries with more groups, or possible groups. The limit is from when one core read results,
/// and was not measured since.
const MOST_VALUES: u64 = 1 << 22;

/// More grouping sets than this are made of each other, on the CPU, instead of the finest groups.
const MOST_SETS: usize = 32;

/// With `on`, the CPU takes over above this many groups: so many results take memory of the host.
const MOST_GROUPS: u64 = 1 << 24;

/// An aggregate whose groups a kernel computes.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    pub(crate) aggregates: Aggregates,
    /// One for each aggregate function.
    pub(crate) functions: Vec<Named>,
    pub(crate) keys: Keys,
    /// True if each group comes exactly once when all rows are in one batch.
    pub(crate) has_distinct_groups: bool,
    /// Nested aggregation of the kernel's groups. If set, `functions` and `keys` describe the outer aggregate.
    pub(crate) nested: Option<NestedAggregationPlan>,
    /// Grouping sets. If set, the partial step of `aggregates` groups by all keys.
    pub(crate) sets: Option<GroupingSets>,
    /// Group pruning, if the parents need only some groups.
    pub(crate) pruning: Option<ResultPruning>,
}

/// A grouping set that a device makes of a table of finer groups.
struct SetOfTable {
    /// The GROUP BY columns.
    columns: Vec<usize>,
    keys: Keys,
    /// The indices of the kernel's keys behind `keys`.
    of_kernel: Vec<usize>,
}

impl Aggregation {
    /// Adds a pruning of groups. Returns false, and changes nothing, if all groups are needed for it.
    pub(crate) fn prune(&mut self, pruning: &GroupPruning) -> Result<bool, FallbackReason> {
        let keys = self.keys.len();
        if !self.has_distinct_groups || keys == 0 || self.sets.is_some() {
            return Ok(false);
        }
        let mut groups = self.pruning.clone().unwrap_or_default();
        let narrows = groups.add(pruning, keys, &self.functions)?;
        if narrows {
            self.pruning = Some(groups);
        }
        Ok(narrows)
    }

    /// True if the kernel has to see all rows of a group at once: to count distinct values, or for an extreme of text
    /// without keys.
    fn needs_all_rows(&self) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|(function, _)| match function {
            Function::CountDistinct => true,
            Function::Text => !self.has_groups(),
            _ => false,
        })
    }

    /// True if the kernel puts out groups, of which there may be none, and not totals.
    fn has_groups(&self) -> bool {
        self.nested.is_some() || !self.keys.of_kernel().is_empty()
    }

    /// Merges states of groups into results.
    fn merged(
        &self,
        states: Vec<RecordBatch>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows: usize = states.iter().map(RecordBatch::num_rows).sum();
        let partitions = context.session_config().target_partitions();
        let Aggregates { partial, last } = &self.aggregates;
        let states = MemorySourceConfig::try_new_exec(&[states], partial.schema(), None)?;
        if rows <= FEW_GROUPS || partitions < 2 || self.keys.is_empty() {
            return of_mode(last, AggregateMode::Final, states)?.execute(0, context);
        }
        let by = Partitioning::Hash(partial.output_group_expr(), partitions);
        let states = Arc::new(RepartitionExec::try_new(states, by)?);
        let results = of_mode(last, AggregateMode::FinalPartitioned, states)?;
        CoalescePartitionsExec::new(Arc::new(results)).execute(0, context)
    }

    /// The output row of an aggregate without keys.
    fn total(&mut self, mut totals: &[GroupTotals]) -> Result<CollectedRows> {
        let mut columns = Vec::new();
        for (function, aggregate) in &mut self.functions {
            let Some(own) = totals.split_off(..function.width()) else {
                return internal_err!("too few totals for {}", aggregate.name());
            };
            let state = function.states(own, aggregate)?;
            if *function == Function::CountDistinct {
                columns.extend(state);
                continue;
            }
            let mut accumulator = aggregate.create_accumulator()?;
            accumulator.merge_batch(&state)?;
            if self.aggregates.are_states() {
                for state in accumulator.state()? {
                    columns.push(state.to_array()?);
                }
                continue;
            }
            columns.push(accumulator.evaluate()?.to_array()?);
        }
        Ok(CollectedRows {
            batches: vec![RecordBatch::try_new(self.schema(), columns)?],
            content: RowContent::Results,
            memory: None,
        })
    }

    /// The grouping sets that a device makes of a table of the finest groups, and those groups if another set needs
    /// them.
    fn sets_of_table(&self) -> Option<Vec<SetOfTable>> {
        let mut functions = self.functions.iter();
        let are_merged = functions.all(|(function, aggregate)| match function {
            // an average of integers has a sum of floats
            Function::Count | Function::Text | Function::Value | Function::Average { .. } => {
                aggregate.state_fields().is_ok_and(|states| {
                    let mut states = states.iter();
                    states.all(|state| !state.data_type().is_floating())
                })
            }
            Function::CountDistinct | Function::Variance(_) | Function::Strings(_) => false,
        });
        if !are_merged || !self.has_distinct_groups {
            return None;
        }
        let of_columns = |columns: Vec<usize>| {
            let (keys, of_kernel) = self.keys.some(&columns)?;
            Some(SetOfTable {
                columns,
                keys,
                of_kernel,
            })
        };
        let sets = self.sets.as_ref()?;
        let wanted = sets.fine_to_coarse();
        let mut made: Vec<SetOfTable> = wanted.iter().cloned().filter_map(of_columns).collect();
        let is_made = |columns: &Vec<usize>| {
            let mut made = made.iter();
            made.any(|set| columns.iter().all(|column| set.columns.contains(column)))
        };
        if !wanted.iter().all(is_made) {
            made.push(of_columns(sets.all_keys())?);
        }
        (1..=MOST_SETS).contains(&made.len()).then_some(made)
    }

    /// The rows of groups by `keys`: results, or states.
    fn batch(
        &self,
        groups: &Groups,
        keys: &Keys,
        schema: &SchemaRef,
        functions: &mut [Named],
        payload: &PayloadValues<'_>,
        are_results: bool,
    ) -> Result<RecordBatch> {
        let batch = function::batch_of(groups, keys, payload, functions, schema)?;
        if !are_results {
            return Ok(batch);
        }
        let schema = self.aggregates.last.schema();
        function::results_of(&batch, self.keys.len(), functions, &schema)
    }

    /// The computation over the groups of a batch, before they are copied to the host. `is_all` says that the batch has
    /// all rows.
    fn post_aggregation(&self, is_all: bool) -> Result<Option<PostAggregation>> {
        match (&self.nested, &self.pruning) {
            (Some(nested), _) if is_all => nested.post_aggregation().map(Some),
            (Some(_), _) => {
                let reason = "groups of several launches, which are grouped again";
                Err(error::gpu(Error::Unsupported(reason.into())))
            }
            (None, Some(pruning)) if is_all => pruning.on_device(&self.functions).map(Some),
            (None, _) => Ok(None),
        }
    }
}

impl FusedPlan<Aggregation> {
    /// Returns an error if a query without filters or joins groups by a key with so many values that the CPU should do
    /// it. This is checked again when chunks are loaded.
    pub(crate) fn check_groups(&self) -> Result<(), FallbackReason> {
        let Aggregation { keys, nested, .. } = &self.operation;
        let is_unfiltered = self.star.dimensions.is_empty() && self.filter.is_none();
        let is_plain = is_unfiltered && nested.is_none();
        if self.options.gpu != GpuMode::Auto || !is_plain {
            return Ok(());
        }
        let rows = num_rows(&self.input.config).unwrap_or_default() as u128;
        for key in keys.of_kernel() {
            let GroupKey::Value(Expr::Column(column)) = key else {
                continue;
            };
            let column = self.input.columns.get(*column);
            let values = column.and_then(|&column| num_values(&self.input.config, column));
            // Values further apart are hashed: then only values that occur count.
            let many = values.filter(|&values| values > MOST_VALUES.into() && values <= 2 * rows);
            if let Some(values) = many {
                let most = MOST_VALUES;
                return Err(FallbackReason::ManyGroups { values, most });
            }
        }
        Ok(())
    }
}

impl Operation for Aggregation {
    const NAME: &'static str = "FusedAggregateExec";
    const OUTPUTS: &'static str = "aggr";

    type Collector = GroupCollector;

    fn schema(&self) -> SchemaRef {
        self.aggregates.last.schema()
    }

    fn num_rows(&self) -> Option<usize> {
        let is_total = self.keys.is_empty() && !self.aggregates.are_states();
        is_total.then_some(1)
    }

    fn outputs(&self) -> String {
        let names = self.functions.iter().map(|(_, aggregate)| aggregate.name());
        names.collect::<Vec<_>>().join(", ")
    }

    fn group_by(&self) -> Option<String> {
        let keys = self.aggregates.partial.group_expr().expr().iter();
        let keys = keys.map(|(key, name)| match key.to_string() {
            key if &key == name => key,
            key => format!("{key} as {name}"),
        });
        (!self.keys.is_empty()).then(|| keys.collect::<Vec<_>>().join(", "))
    }

    fn fmt_groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.aggregates.are_states() {
            write!(f, ", mode=Partial")?;
        }
        if let Some(nested) = &self.nested {
            write!(f, "{nested}")?;
        }
        if let Some(sets) = &self.sets {
            let keys = self.aggregates.partial.group_expr().expr().iter();
            let names: Vec<&str> = keys.map(|(_, name)| name.as_str()).collect();
            write!(f, ", sets=[{}]", sets.display(&names))?;
        }
        match &self.pruning {
            Some(pruning) => write!(f, "{pruning}"),
            None => Ok(()),
        }
    }

    fn with_exprs(mut self, other: OtherExpr<'_>) -> Result<Self> {
        let other = |expr: Arc<dyn PhysicalExpr>| other(&expr);
        let pruning = self.pruning.map(|pruning| pruning.with_filters(other));
        self.pruning = pruning.transpose()?;
        let nested = self.nested.map(|nested| nested.with_exprs(other));
        self.nested = nested.transpose()?;
        Ok(self)
    }

    fn replace_outputs(&self, planned: &Self, output: &mut Output) {
        if self.nested.is_none() {
            function::replace(&planned.functions, &self.functions, output);
        }
    }

    /// Pruning, nested aggregation, grouping sets and sets of distinct values need all groups.
    fn needs_single_batch(&self) -> bool {
        let is_of_groups = self.pruning.is_some() || self.nested.is_some();
        is_of_groups || self.sets_of_table().is_some() || self.needs_all_rows()
    }

    /// The first groups of all in some order are among the first ones of each part.
    fn drop_unneeded(&self, parts: &mut [Groups]) -> Result<()> {
        let Some(pruning) = self.pruning.as_ref().filter(|_| self.has_distinct_groups) else {
            return Ok(());
        };
        // ignore the error: the operator above evaluates it again
        if let Ok(selected) = pruning.of(parts, &mut self.functions.clone()) {
            for (groups, selected) in parts.iter_mut().zip(&selected) {
                *groups = groups.filtered(selected).map_err(error::gpu)?;
            }
        }
        Ok(())
    }

    fn collector(self, tables: &Tables, rows: u64, context: &TaskContext) -> GroupCollector {
        GroupCollector {
            aggregation: self,
            rows,
            tables: tables.clone(),
            batches: Vec::new(),
            are_results: false,
            pending: Vec::new(),
            pending_memory: Vec::new(),
            sets: Vec::new(),
            threads: context.session_config().target_partitions(),
            memory: memory_of_groups(context),
        }
    }

    fn collected(
        mut self,
        execution: &vectile_cpu::Execution,
        groups: Vec<Groups>,
        tables: &Tables,
        context: &TaskContext,
    ) -> Result<(Self, CollectedRows)> {
        if !self.has_groups() {
            let totals = execution.totals().map_err(error::gpu)?;
            let totals: Vec<_> = totals.iter().map(GroupTotals::of_one).collect();
            let total = self.total(&totals)?;
            return Ok((self, total));
        }
        if groups.iter().all(|groups| groups.count == 0) {
            let none = self.of_no_rows()?;
            return Ok((self, none));
        }
        let is_all = self.has_distinct_groups;
        let mut collector = self.collector(tables, 0, context);
        collector.pending = groups;
        collector.finish_groups(is_all)
    }

    fn change_for_retry(&mut self, has_kernel: bool) -> Result<bool> {
        function::recompute(&mut self.functions, has_kernel)
    }

    fn of_no_rows(&self) -> Result<CollectedRows> {
        if self.has_groups() {
            return Ok(CollectedRows {
                batches: Vec::new(),
                content: RowContent::States,
                memory: None,
            });
        }
        let total = Total {
            count: 0,
            value: None,
        };
        let width = self.functions.iter().map(|(function, _)| function.width());
        self.clone()
            .total(&vec![GroupTotals::of_one(&total); width.sum()])
    }

    /// Makes the results of grouping sets of the states of groups by all keys.
    async fn completed(
        &self,
        rows: CollectedRows,
        context: &Arc<TaskContext>,
    ) -> Result<CollectedRows> {
        let Some(sets) = &self.sets else {
            return Ok(rows);
        };
        let CollectedRows {
            batches: states,
            content,
            memory,
        } = rows;
        let memory = memory.unwrap_or_else(|| memory_of_groups(context));
        let Aggregates { partial, last } = &self.aggregates;
        let keys = sets.all_keys();
        let levels = match content {
            RowContent::Sets(levels) => levels,
            RowContent::Results | RowContent::DistinctStates => vec![SetGroups { keys, states }],
            RowContent::States => {
                let states = SetGroups {
                    keys: keys.clone(),
                    states,
                };
                vec![states.by(&keys, partial, &memory, context).await?]
            }
        };
        let schema = last.schema();
        let results = sets.results(partial, &self.functions, &schema, levels, &memory, context);
        Ok(CollectedRows {
            batches: results.await?,
            content: RowContent::Results,
            memory: Some(memory),
        })
    }

    fn stream(
        &self,
        batches: Vec<RecordBatch>,
        content: &RowContent,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let needs_merge = match batches.is_empty() {
            // an aggregate without keys has a row for empty input, too; states of none are merged above
            true => self.keys.is_empty() && !self.aggregates.are_states(),
            false => matches!(content, RowContent::States),
        };
        match needs_merge {
            true => self.merged(batches, context),
            false => in_memory(batches, self.schema()),
        }
    }
}

/// Collects groups, or leaves totals in the execution if there are no groups.
pub(crate) struct GroupCollector {
    aggregation: Aggregation,
    /// Rows in all batches together.
    rows: u64,
    tables: Tables,
    batches: Vec<RecordBatch>,
    /// True if batches are results; false if they are states to be merged.
    are_results: bool,
    /// Groups not yet added to `batches`. If no others follow, they are all groups: final results, which can be pruned.
    pending: Vec<Groups>,
    /// Memory reservations for `pending`.
    pending_memory: Vec<MemoryReservation>,
    /// States of the groups of grouping sets that the device has made.
    sets: Vec<SetGroups>,
    /// Threads that make batches of groups.
    threads: usize,
    /// Memory reservation for `batches`.
    memory: MemoryReservation,
}

impl Collector for GroupCollector {
    type Operation = Aggregation;

    fn begin(&self, execution: &mut Execution, mode: GpuMode) {
        execution.in_parts();
        match mode {
            GpuMode::Require => {}
            GpuMode::Auto => execution.limit_groups(MOST_VALUES),
            GpuMode::On | GpuMode::Off => execution.limit_groups(MOST_GROUPS),
        }
    }

    fn compile(&self, execution: &mut Execution, batch: &Batch) -> Result<()> {
        let stay = self.aggregation.nested.is_some() || self.aggregation.sets_of_table().is_some();
        let compiled = execution.compile_groups(batch, stay);
        compiled.map_err(error::gpu)
    }

    fn add(&mut self, execution: &mut Execution, batch: &Batch) -> Result<()> {
        let needs_all = self.aggregation.needs_all_rows();
        if !self.aggregation.has_groups() && !needs_all {
            return execution.aggregate(batch).map_err(error::gpu);
        }
        // reserves memory for tables and groups until they are batches
        let room = self.memory.new_empty();
        let reserve = |bytes| {
            let refused = |error: DataFusionError| Error::Refused {
                wanted: bytes,
                reason: error.strip_backtrace(),
            };
            room.try_resize(bytes).map_err(refused)
        };
        let is_all = batch.num_rows() as u64 == self.rows;
        if needs_all && !is_all {
            let reason = "distinct values or extremes of text of several batches";
            return Err(error::gpu(Error::Unsupported(reason.into())));
        }
        if is_all && let Some(sets) = self.aggregation.sets_of_table() {
            let of_kernel: Vec<_> = sets.iter().map(|set| set.of_kernel.clone()).collect();
            match execution.group_sets(batch, &of_kernel, reserve) {
                // the finest groups take less memory, and are merged here
                Err(Error::Unsupported(_) | Error::OutOfMemory { .. } | Error::Refused { .. }) => {}
                groups => return self.add_sets(sets, groups.map_err(error::gpu)?),
            }
        }
        let groups = match self.aggregation.post_aggregation(is_all)? {
            Some(computation) => execution.group_wanted(batch, &computation, reserve),
            None => execution.group(batch, reserve),
        };
        let groups = groups.map_err(error::gpu)?;
        let is_one = execution.groups_are_distinct();
        let may_be_all = self.batches.is_empty() && self.pending.is_empty() && is_one;
        if (self.aggregation.has_distinct_groups || !self.aggregation.has_groups()) && may_be_all {
            self.pending.extend(groups);
            self.pending_memory.push(room);
            return Ok(());
        }
        self.add_pending()?;
        self.add_groups(groups)
    }

    fn finish(mut self, execution: &Execution) -> Result<(Aggregation, CollectedRows)> {
        if !self.aggregation.has_groups() {
            let total = match self.aggregation.needs_all_rows() {
                true => self.total_of_group()?,
                false => {
                    let totals: Vec<_> =
                        execution.totals().iter().map(GroupTotals::of_one).collect();
                    self.aggregation.total(&totals)?
                }
            };
            return Ok((self.aggregation, total));
        }
        if !self.sets.is_empty() {
            let collected = CollectedRows {
                batches: Vec::new(),
                content: RowContent::Sets(self.sets),
                memory: Some(self.memory),
            };
            return Ok((self.aggregation, collected));
        }
        let is_all = self.aggregation.has_distinct_groups && !self.pending.is_empty();
        self.finish_groups(is_all)
    }
}

impl GroupCollector {
    /// Returns the rows of all groups. `is_all` says that those pending are all groups, each once.
    fn finish_groups(mut self, is_all: bool) -> Result<(Aggregation, CollectedRows)> {
        if is_all {
            self.aggregation.drop_unneeded(&mut self.pending)?;
        }
        let content = match self.aggregation.aggregates.are_states() {
            // states that are put out are merged above
            true => RowContent::Results,
            false if !is_all => RowContent::States,
            false if self.aggregation.sets.is_some() => RowContent::DistinctStates,
            false => {
                self.are_results = true;
                RowContent::Results
            }
        };
        self.add_pending()?;
        let collected = CollectedRows {
            batches: self.batches,
            content,
            memory: Some(self.memory),
        };
        Ok((self.aggregation, collected))
    }

    /// Adds the states of the groups of grouping sets.
    fn add_sets(&mut self, sets: Vec<SetOfTable>, groups: Vec<Vec<Groups>>) -> Result<()> {
        for (set, parts) in sets.into_iter().zip(groups) {
            let schema = schema_of(&self.aggregation.aggregates.partial, &set.columns)?;
            let states = self.batches_of(parts, &set.keys, &schema)?;
            self.sets.push(SetGroups {
                keys: set.columns,
                states,
            });
        }
        Ok(())
    }

    /// The output row of an aggregate without keys over the only group, or over no rows.
    fn total_of_group(&mut self) -> Result<CollectedRows> {
        let groups = match &self.pending[..] {
            [groups] => groups,
            _ => return internal_err!("totals of several tables"),
        };
        if groups.count == 0 {
            return self.aggregation.of_no_rows();
        }
        self.aggregation.total(&groups.totals)
    }

    /// Adds the groups that might have been all groups.
    fn add_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.add_groups(pending)?;
        self.pending_memory.clear();
        Ok(())
    }

    /// Adds the batch of each part.
    fn add_groups(&mut self, parts: Vec<Groups>) -> Result<()> {
        let keys = self.aggregation.keys.clone();
        let schema = self.aggregation.aggregates.partial.schema();
        let batches = self.batches_of(parts, &keys, &schema)?;
        self.batches.extend(batches);
        Ok(())
    }

    /// A batch of each part of groups by `keys`, for which memory is reserved. `schema` is that of their states.
    fn batches_of(
        &mut self,
        mut parts: Vec<Groups>,
        keys: &Keys,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        parts.retain(|groups| groups.count > 0);
        let rows = parts.iter().map(|groups| groups.count).sum();
        let threads = parallel::threads_for(rows, self.threads);
        let payload = &keys.payload(&parts, &self.tables)?;
        let are_results = self.are_results;
        let aggregation = &mut self.aggregation;
        let mut functions = aggregation.functions.iter();
        // some variances record what has to be computed again
        let is_recorded = functions.any(|(function, _)| match function {
            Function::Variance(variance) => variance.is_recorded(),
            _ => false,
        });
        let batches: Vec<Result<RecordBatch>> = match is_recorded {
            true => {
                let mut functions = std::mem::take(&mut aggregation.functions);
                let batches = parts.iter().map(|groups| {
                    aggregation.batch(groups, keys, schema, &mut functions, payload, are_results)
                });
                let batches = batches.collect();
                aggregation.functions = functions;
                batches
            }
            false => parallel::map(threads, parts, |groups| {
                let mut functions = aggregation.functions.clone();
                aggregation.batch(&groups, keys, schema, &mut functions, payload, are_results)
            }),
        };
        let batches: Vec<RecordBatch> = batches.into_iter().collect::<Result<_>>()?;
        // batches share the text of dictionaries
        let mut bytes = RecordBatchMemoryCounter::new();
        for batch in &batches {
            bytes.count_batch(batch);
        }
        self.memory.try_grow(bytes.memory_usage())?;
        Ok(batches)
    }
}

/// A memory reservation for states and results of groups.
fn memory_of_groups(context: &TaskContext) -> MemoryReservation {
    MemoryConsumer::new("VectileGpuGroups").register(context.memory_pool())
}
