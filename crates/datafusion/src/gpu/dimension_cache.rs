//! Tables of dimensions, kept from query to query.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use vectile_gpu::Engine;

use super::dimension::Table;
use super::load::key;
use crate::source::VectileSource;

/// The part of the device's memory for chunks that tables of dimensions may take besides.
const MEMORY_SHARE: u64 = 16;

/// Bytes that an entry takes beside its table.
const ENTRY_BYTES: usize = 1024;

/// What a plan reads and computes. Plans that are equal in it have the same rows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Identity {
    /// Operators, from the top down.
    operators: Vec<String>,
    /// Those of all operators: as text, some look alike that differ.
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    schemas: Vec<SchemaRef>,
    /// Files, with what tells their versions apart.
    files: Vec<String>,
}

impl Identity {
    /// That of a plan which reads nothing but Vectile files and is not given another result by
    /// anything else; `None` for others.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let mut identity = Self::default();
        let mut is_known = true;
        plan.apply(|node| {
            is_known &= identity.add(node)?;
            Ok(match is_known {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })?;
        Ok(is_known.then_some(identity))
    }

    /// Adds a node; false if it makes results that are not the same every time.
    fn add(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>() else {
                return Ok(false);
            };
            let table = source.table_schema();
            self.schemas.push(Arc::clone(table.table_schema()));
            for file in config.file_groups.iter().flat_map(|group| group.iter()) {
                let key = key(&config.object_store_url, &file.object_meta);
                let (range, parts) = (&file.range, &file.partition_values);
                self.files.push(format!("{key} {range:?} {parts:?}"));
            }
        } else if !is_deterministic(node) {
            return Ok(false);
        }
        let mut is_known = node.fetch().is_none();
        node.apply_expressions(&mut |expr| {
            is_known &= is_fixed(expr)?;
            self.expressions.push(Arc::clone(expr));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let line = DisplayableExecutionPlan::new(node.as_ref())
            .one_line()
            .to_string();
        self.operators.push(line);
        Ok(is_known)
    }
}

fn is_deterministic(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<HashJoinExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<RepartitionExec>()
}

/// Whether the value of an expression depends on its input alone. That of a dynamic filter or of a
/// subquery does not, however equal they look.
pub(crate) fn is_fixed(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let mut is_fixed = !is_volatile(expr);
    expr.apply(|expr| {
        is_fixed &= expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<BinaryExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<NegativeExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<LikeExpr>()
            || expr.is::<CaseExpr>()
            || expr.is::<CastExpr>()
            || expr.downcast_ref().is_some_and(is_immutable);
        Ok(match is_fixed {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_fixed)
}

fn is_immutable(function: &ScalarFunctionExpr) -> bool {
    function.fun().signature().volatility == Volatility::Immutable
}

/// What a table is known by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableKey {
    pub(crate) identity: Arc<Identity>,
    /// The key, and behind it the attributes.
    pub(crate) expressions: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) key_type: DataType,
    /// Whether keys may be there more than once.
    pub(crate) only_keys: bool,
}

/// A table, or why there is none.
type Outcome = Result<Arc<Table>, String>;

/// Tables of dimensions, of which those used last are kept. A reason why there is no table is kept
/// as well, so that it is not found out again and again.
#[derive(Debug)]
pub(crate) struct DimensionCache {
    most_bytes: usize,
    /// Those used last are at the end.
    entries: Mutex<VecDeque<(TableKey, Outcome)>>,
}

impl DimensionCache {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            entries: Mutex::default(),
        }
    }

    /// One beside the columns that an engine keeps.
    pub(crate) fn beside(engine: &Engine) -> Self {
        let bytes = engine.memory_limit() / MEMORY_SHARE;
        Self::new(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    pub(crate) fn get(&self, key: &TableKey) -> Option<Outcome> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let place = entries.iter().position(|(known, _)| known == key)?;
        let entry = entries.remove(place)?;
        let outcome = entry.1.clone();
        entries.push_back(entry);
        Some(outcome)
    }

    pub(crate) fn put(&self, key: TableKey, outcome: Outcome) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(known, _)| known != &key);
        entries.push_back((key, outcome));
        let mut bytes: usize = entries.iter().map(|(_, outcome)| bytes_of(outcome)).sum();
        while bytes > self.most_bytes
            && let Some((_, outcome)) = entries.pop_front()
        {
            bytes -= bytes_of(&outcome);
        }
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    ENTRY_BYTES + outcome.as_ref().map_or(0, |table| table.bytes())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array};
    use arrow::datatypes::Schema;
    use datafusion::datasource::memory::MemorySourceConfig;
    use vectile_gpu::Codes;

    use super::*;

    fn key(key_type: DataType) -> TableKey {
        TableKey {
            identity: Arc::default(),
            expressions: vec![],
            key_type,
            only_keys: true,
        }
    }

    fn table() -> Outcome {
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        Ok(Arc::new(Table {
            codes: Arc::new(Codes::of_keys(&keys).unwrap()),
            values: vec![],
        }))
    }

    #[test]
    fn those_used_last_are_kept() {
        let (a, b, c) = (
            key(DataType::Int8),
            key(DataType::Int16),
            key(DataType::Int32),
        );
        let cache = DimensionCache::new(2 * bytes_of(&table()));
        cache.put(a.clone(), table());
        cache.put(b.clone(), Err("why not".into()));
        assert!(cache.get(&a).is_some());
        cache.put(c.clone(), table());
        assert!(cache.get(&a).is_some_and(|table| table.is_ok()));
        assert!(cache.get(&b).is_none());
        assert!(cache.get(&c).is_some());
    }

    #[test]
    fn what_is_larger_than_the_cache_is_not_kept() {
        let cache = DimensionCache::new(10);
        cache.put(key(DataType::Int8), table());
        assert!(cache.get(&key(DataType::Int8)).is_none());
    }

    #[test]
    fn tables_in_memory_may_be_others_the_next_time() {
        let schema = Arc::new(Schema::empty());
        let plan: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![]], schema, None).unwrap();
        assert_eq!(Identity::of(&plan).unwrap(), None);
    }
}
