//! Grouping sets (`ROLLUP`, `CUBE`) of a fused aggregate, from its finest groups: those by all keys.
//!
//! ```text
//!  ROLLUP (a, b):  kernel ─▶ states of (a, b) ─┬─────────────────────────────────▶ results
//!                                              └─▶ states of (a) ─┬──────────────▶ results
//!                                                                 └─▶ states of () ─▶ results
//! ```
//!
//! A device makes all sets of its table of the finest groups, where it can. Elsewhere DataFusion's accumulators merge the
//! states, as they merge those of partitions. Then each set comes from the smallest set before it that has its keys. So a
//! level of a rollup hashes the groups of the level above instead of all rows.
//!
//! A sum of floats adds the sums of finer groups, in an order that depends on the rows only.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, collect_partitioned};

use crate::fused::lowering::function::{self, Named};

/// Up to this many groups, one core merges states.
const FEW_GROUPS: usize = 1 << 16;

/// The parts in which more groups are merged. Their number does not depend on the number of cores, because the order of
/// the merged groups depends on it.
const PARTS: usize = 16;

/// The sets of keys by which an aggregate groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupingSets {
    /// The keys of each set, in ascending order; a set may occur more than once.
    sets: Vec<Vec<usize>>,
    /// The number of all keys.
    num_keys: usize,
}

/// States of the groups by some of the keys.
#[derive(Debug)]
pub(crate) struct SetGroups {
    /// The keys, in ascending order.
    pub(crate) keys: Vec<usize>,
    /// Columns of those keys, then states of all functions.
    pub(crate) states: Vec<RecordBatch>,
}

impl GroupingSets {
    /// `None` if all rows are grouped in one way.
    pub(crate) fn of(group_by: &PhysicalGroupBy) -> Option<Self> {
        let keys_of = |omitted: &Vec<bool>| {
            let keys = omitted.iter().enumerate();
            keys.filter(|(_, omitted)| !**omitted)
                .map(|(key, _)| key)
                .collect()
        };
        (!group_by.is_single()).then(|| Self {
            sets: group_by.groups().iter().map(keys_of).collect(),
            num_keys: group_by.expr().len(),
        })
    }

    /// For `EXPLAIN`, with the names of all keys.
    pub(crate) fn display(&self, names: &[&str]) -> String {
        let sets = self.sets.iter().map(|keys| {
            let names = keys.iter().filter_map(|&key| names.get(key).copied());
            format!("({})", names.collect::<Vec<_>>().join(", "))
        });
        sets.collect::<Vec<_>>().join(", ")
    }

    /// The result rows of all sets, of `schema`. `levels` have the groups of some sets, and the keys of every set are among
    /// those of one of them. `memory` grows by the states of other groups.
    pub(crate) async fn results(
        &self,
        partial: &AggregateExec,
        functions: &[Named],
        schema: &SchemaRef,
        mut levels: Vec<SetGroups>,
        memory: &MemoryReservation,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<RecordBatch>> {
        for keys in self.fine_to_coarse() {
            if !levels.iter().any(|groups| groups.keys == keys) {
                let finer = SetGroups::smallest(&levels, &keys)?;
                let groups = finer.by(&keys, partial, memory, context).await?;
                levels.push(groups);
            }
        }
        let mut results = Vec::new();
        for (number, keys) in self.sets.iter().enumerate() {
            let groups = SetGroups::smallest(&levels, keys)?;
            if keys.is_empty() {
                let totals = groups.totals(functions)?;
                results.push(self.rows(number, &[], totals, 1, schema)?);
                continue;
            }
            for batch in &groups.states {
                let mut states = batch.columns();
                let keys = states.split_off(..keys.len()).unwrap_or_default();
                let of_functions = function::results(states, functions)?;
                results.push(self.rows(number, keys, of_functions, batch.num_rows(), schema)?);
            }
        }
        Ok(results)
    }

    /// All keys.
    pub(crate) fn all_keys(&self) -> Vec<usize> {
        (0..self.num_keys).collect()
    }

    /// True if one of the sets has all keys.
    pub(crate) fn have_finest(&self) -> bool {
        self.sets.iter().any(|keys| keys.len() == self.num_keys)
    }

    /// The different sets that have keys, those of more keys first.
    pub(crate) fn fine_to_coarse(&self) -> Vec<Vec<usize>> {
        let mut sets = self.sets.clone();
        sets.retain(|keys| !keys.is_empty());
        sets.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
        sets.dedup();
        sets
    }

    /// DataFusion's number of a set, from which it computes `grouping()`: a bit for each omitted key, that of the last key
    /// lowest; above them, the number of equal sets before this one.
    fn grouping_id(&self, number: usize, data_type: &DataType) -> Result<ScalarValue> {
        let Some((keys, before)) = self.sets.get(..=number).and_then(<[_]>::split_last) else {
            return Err(internal_datafusion_err!("no grouping set {number}"));
        };
        let equal = before.iter().filter(|other| *other == keys).count() as u64;
        let omitted =
            (0..self.num_keys).fold(0, |bits, key| bits << 1 | u64::from(!keys.contains(&key)));
        // an id has at most 64 bits, or else DataFusion would not have planned the aggregate
        let above = equal.checked_shl(self.num_keys as u32).unwrap_or(0);
        ScalarValue::UInt64(Some(above | omitted)).cast_to(data_type)
    }

    /// Result rows of a set, from its own keys and the results of functions. Keys that it omits are null.
    fn rows(
        &self,
        number: usize,
        keys: &[ArrayRef],
        results: Vec<ArrayRef>,
        rows: usize,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let own = self.sets.get(number).map_or(&[][..], Vec::as_slice);
        let own = |key| keys.get(own.binary_search(&key).ok()?).cloned();
        let nulls = |key| new_null_array(schema.field(key).data_type(), rows);
        let mut columns: Vec<ArrayRef> = (0..self.num_keys)
            .map(|key| own(key).unwrap_or_else(|| nulls(key)))
            .collect();
        let id = self.grouping_id(number, schema.field(self.num_keys).data_type())?;
        columns.push(id.to_array_of_size(rows)?);
        columns.extend(results);
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

impl SetGroups {
    /// The fewest of the groups that have `keys`: those by just these keys, if there are any.
    fn smallest<'a>(levels: &'a [Self], keys: &[usize]) -> Result<&'a Self> {
        let have_keys = |groups: &&Self| keys.iter().all(|key| groups.keys.contains(key));
        let finer = levels.iter().filter(have_keys);
        finer
            .min_by_key(|groups| (groups.num_rows(), groups.keys.len()))
            .ok_or_else(|| internal_datafusion_err!("no finest groups"))
    }

    /// The results over all groups, of which there may be none. A group's accumulator would take a count of zero for a
    /// value.
    fn totals(&self, functions: &[Named]) -> Result<Vec<ArrayRef>> {
        let mut first = self.keys.len();
        let totals = functions.iter().map(|(_, aggregate)| {
            let mut accumulator = aggregate.create_accumulator()?;
            let own = first..first + aggregate.state_fields()?.len();
            first = own.end;
            for states in &self.states {
                let own = states.columns().get(own.clone());
                let own = own.ok_or_else(|| internal_datafusion_err!("too few states"))?;
                accumulator.merge_batch(own)?;
            }
            accumulator.evaluate()?.to_array()
        });
        totals.collect()
    }

    fn num_rows(&self) -> usize {
        self.states.iter().map(RecordBatch::num_rows).sum()
    }

    /// The groups by `keys`, which are some of the keys, at least one. Merges states of equal groups.
    pub(crate) async fn by(
        &self,
        keys: &[usize],
        partial: &AggregateExec,
        memory: &MemoryReservation,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let columns = keys
            .iter()
            .filter_map(|key| self.keys.binary_search(key).ok());
        let schema = schema_of(partial, keys)?;
        let num_columns = self.keys.len() + schema.fields().len() - keys.len();
        let columns: Vec<usize> = columns.chain(self.keys.len()..num_columns).collect();
        let states = self.states.iter().map(|states| states.project(&columns));
        let states: Vec<RecordBatch> = states.collect::<Result<_, _>>()?;
        // partitions are merged at the same time, each with all rows of its groups
        // sums of floats depend on the order in which they arrive
        let has_floats = schema
            .fields()
            .iter()
            .any(|field| field.data_type().is_floating());
        let is_divided = self.num_rows() > FEW_GROUPS && states.len() > 1 && !has_floats;
        let states: Vec<Vec<RecordBatch>> = match is_divided {
            true => {
                let partitions = context.session_config().target_partitions();
                let each = states.len().div_ceil(partitions);
                states.chunks(each).map(<[_]>::to_vec).collect()
            }
            false => vec![states],
        };
        let mut input: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&states, Arc::clone(&schema), None)?;
        let names = schema.fields().iter().take(keys.len()).enumerate();
        let group_by = names.map(|(column, field)| {
            let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), column));
            (key, field.name().clone())
        });
        let group_by = PhysicalGroupBy::new_single(group_by.collect());
        if self.num_rows() > FEW_GROUPS {
            let by = Partitioning::Hash(group_by.input_exprs(), PARTS);
            input = Arc::new(RepartitionExec::try_new(input, by)?);
        }
        let functions = partial.aggr_expr().to_vec();
        let merging = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            group_by,
            functions,
            vec![None; partial.aggr_expr().len()],
            input,
            partial.input_schema(),
        )?;
        let parts = collect_partitioned(Arc::new(merging), Arc::clone(context)).await?;
        let states: Vec<RecordBatch> = parts.into_iter().flatten().collect();
        let mut bytes = RecordBatchMemoryCounter::new();
        states.iter().for_each(|states| {
            bytes.count_batch(states);
        });
        memory.try_grow(bytes.memory_usage())?;
        Ok(Self {
            keys: keys.to_vec(),
            states,
        })
    }
}

/// The schema of states of groups by `keys`, which are some of the keys of `partial`.
pub(crate) fn schema_of(partial: &AggregateExec, keys: &[usize]) -> Result<SchemaRef> {
    let all = partial.schema();
    let states = partial.group_expr().expr().len()..all.fields().len();
    let columns: Vec<usize> = keys.iter().copied().chain(states).collect();
    Ok(Arc::new(all.project(&columns)?))
}
