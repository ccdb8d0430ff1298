//! Caches key tables of dimensions across queries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use vectile_gpu::Engine;

use crate::fused::lowering::probe::Purpose;
use crate::fused::pattern::fingerprint::PlanIdentity;
use crate::fused::table::Table;

/// Divisor of the device's memory for chunks: the limit of the cache, in addition to that memory.
const MEMORY_SHARE: u64 = 16;

/// Bytes of a cache entry without its table.
const ENTRY_BYTES: usize = 1024;

/// Cache key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableKey {
    pub(crate) identity: Arc<PlanIdentity>,
    /// The keys, and behind them the payload expressions.
    pub(crate) expressions: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) key_types: Vec<DataType>,
    /// True if keys are packed into one integer.
    pub(crate) is_packed: bool,
    /// True if only the presence of keys counts. Keys may be duplicate then.
    pub(crate) only_keys: bool,
    /// Determines which rows get distinct codes.
    pub(crate) purpose: Purpose,
}

/// A table, or why there is none.
type CachedTable = Result<Arc<Table>, String>;

/// LRU cache of dimension tables. It also caches the reason if there can be no table, so that a failing build is not
/// repeated.
#[derive(Debug)]
pub(crate) struct KeyTableCache {
    most_bytes: AtomicUsize,
    /// Least recently used first.
    entries: Mutex<Entries>,
}

type Entries = VecDeque<(TableKey, CachedTable)>;

impl KeyTableCache {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes: AtomicUsize::new(most_bytes),
            entries: Mutex::default(),
        }
    }

    /// A cache sized for an engine's memory limit.
    pub(crate) fn beside(engine: &Engine) -> Self {
        Self::new(bytes_beside(engine))
    }

    /// Shrinks the cache to its share of the engine's current limit. Its tables are on the device, so they would
    /// otherwise take memory from columns.
    pub(crate) fn limit(&self, engine: &Engine) {
        self.set_most_bytes(bytes_beside(engine));
    }

    fn set_most_bytes(&self, bytes: usize) {
        if bytes < self.most_bytes.swap(bytes, Ordering::Relaxed) {
            self.shrink(&mut self.entries());
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &TableKey) -> Option<CachedTable> {
        let mut entries = self.entries();
        let index = entries.iter().position(|(known, _)| known == key)?;
        let entry = entries.remove(index)?;
        let cached = entry.1.clone();
        entries.push_back(entry);
        Some(cached)
    }

    pub(crate) fn put(&self, key: TableKey, cached: CachedTable) {
        let mut entries = self.entries();
        entries.retain(|(known, _)| known != &key);
        entries.push_back((key, cached));
        self.shrink(&mut entries);
    }

    /// Evicts the least recently used entries until the others fit.
    fn shrink(&self, entries: &mut Entries) {
        let most = self.most_bytes.load(Ordering::Relaxed);
        let mut bytes: usize = entries.iter().map(|(_, cached)| bytes_of(cached)).sum();
        while bytes > most
            && let Some((_, cached)) = entries.pop_front()
        {
            bytes -= bytes_of(&cached);
        }
    }
}

fn bytes_beside(engine: &Engine) -> usize {
    let bytes = engine.memory_limit() / MEMORY_SHARE;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn bytes_of(cached: &CachedTable) -> usize {
    ENTRY_BYTES + cached.as_ref().map_or(0, |table| table.bytes())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array};
    use arrow::datatypes::Schema;
    use datafusion::datasource::physical_plan::FileScanConfigBuilder;
    use datafusion::datasource::source::DataSourceExec;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::physical_plan::ExecutionPlan;
    use vectile_pipeline::KeyTable;

    use super::*;
    use crate::source::VectileSource;

    fn key(key_type: DataType) -> TableKey {
        let source = VectileSource::new(Arc::new(Schema::empty()));
        let store = ObjectStoreUrl::local_filesystem();
        let config = FileScanConfigBuilder::new(store, Arc::new(source)).build();
        let scan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
        TableKey {
            identity: Arc::new(PlanIdentity::of(&scan).unwrap().unwrap()),
            expressions: vec![],
            key_types: vec![key_type],
            is_packed: false,
            only_keys: true,
            purpose: Purpose::Groups,
        }
    }

    fn table() -> CachedTable {
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let codes = KeyTable::set(&keys).unwrap();
        Ok(Arc::new(Table::new(codes, None, vec![])))
    }

    #[test]
    fn least_recently_used_entries_are_evicted() {
        let (a, b, c) = (
            key(DataType::Int8),
            key(DataType::Int16),
            key(DataType::Int32),
        );
        let cache = KeyTableCache::new(2 * bytes_of(&table()));
        cache.put(a.clone(), table());
        cache.put(b.clone(), Err("why not".into()));
        assert!(cache.get(&a).is_some());
        cache.put(c.clone(), table());
        assert!(cache.get(&a).is_some_and(|table| table.is_ok()));
        assert!(cache.get(&b).is_none());
        assert!(cache.get(&c).is_some());
    }

    #[test]
    fn shrinking_evicts_least_recently_used_entries() {
        let (a, b) = (key(DataType::Int8), key(DataType::Int16));
        let cache = KeyTableCache::new(2 * bytes_of(&table()));
        cache.put(a.clone(), table());
        cache.put(b.clone(), table());
        cache.set_most_bytes(bytes_of(&table()));
        assert!(cache.get(&a).is_none());
        assert!(cache.get(&b).is_some());
        cache.set_most_bytes(2 * bytes_of(&table()));
        cache.put(a.clone(), table());
        assert!(cache.get(&a).is_some() && cache.get(&b).is_some());
    }

    #[test]
    fn entries_larger_than_the_cache_are_evicted() {
        let cache = KeyTableCache::new(10);
        cache.put(key(DataType::Int8), table());
        assert!(cache.get(&key(DataType::Int8)).is_none());
    }
}
