//! The caches of column chunks in host memory, one for each runtime.

use std::fs;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use vectile_scan::ChunkCache;

use crate::options::VectileOptions;

/// Part of the machine's memory for chunks, by default.
const MACHINE_SHARE: u64 = 8;

/// Part of a limited memory pool's bytes for chunks, by default. They are beside the pool, which cannot ask for them.
const POOL_SHARE: u64 = 4;

/// Default limit if the system does not tell the size of its memory.
const DEFAULT_BYTES: u64 = 1 << 30;

/// Caches by the runtime's cache of footers, which is what sessions of a runtime share: a runtime has no place for
/// extensions. Footers hold the cache of their files' chunks.
static CACHES: Mutex<Vec<(Weak<FileMetadataCache>, Weak<ChunkCache>)>> = Mutex::new(Vec::new());

/// The cache of the runtime that has these footers.
pub(crate) fn of_runtime(footers: &Arc<FileMetadataCache>) -> Arc<ChunkCache> {
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|(footers, chunks)| footers.strong_count() > 0 && chunks.strong_count() > 0);
    // the weak reference keeps the address from being used again
    let is_of = |other: &Weak<_>| ptr::addr_eq(other.as_ptr(), Arc::as_ptr(footers));
    let mut known = caches.iter().filter(|(other, _)| is_of(other));
    if let Some(chunks) = known.find_map(|(_, chunks)| chunks.upgrade()) {
        return chunks;
    }
    let chunks = Arc::new(ChunkCache::default());
    caches.push((Arc::downgrade(footers), Arc::downgrade(&chunks)));
    chunks
}

/// The most bytes of chunks to keep, by the settings of a session.
pub(crate) fn limit(options: &VectileOptions, pool: &dyn MemoryPool) -> usize {
    let default = || {
        let of_machine = machine_bytes().map_or(DEFAULT_BYTES, |bytes| bytes / MACHINE_SHARE);
        match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => of_machine.min(bytes as u64 / POOL_SHARE),
            MemoryLimit::Infinite | MemoryLimit::Unknown => of_machine,
        }
    };
    let bytes = options.cache_memory.unwrap_or_else(default);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Memory of this machine, or of the control group that is its root to this process. `None` except on Linux.
fn machine_bytes() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let total = total_memory(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let limits = [
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        let limits = limits.iter().filter_map(|path| {
            let limit = fs::read_to_string(path).ok()?;
            limit.trim().parse().ok()
        });
        Some(limits.fold(total, u64::min))
    })
}

/// Bytes of memory by the text of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    use super::*;

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemFree:  5 kB\nMemTotal:       16384 kB\nBuffers: 1 kB\n";
        assert_eq!(total_memory(text), Some(16 << 20));
        assert_eq!(total_memory("MemTotal: much"), None);
    }

    #[test]
    fn the_default_is_a_part_of_what_queries_may_take() {
        let mut options = VectileOptions::default();
        let pool = GreedyMemoryPool::new(4 << 20);
        assert_eq!(limit(&options, &pool), 1 << 20);
        let unlimited = limit(&options, &UnboundedMemoryPool::default());
        assert!(unlimited >= 16 << 20, "{unlimited}");
        options.cache_memory = Some(5 << 20);
        assert_eq!(limit(&options, &pool), 5 << 20);
    }

    #[test]
    fn runtimes_have_their_own() {
        let footers = || {
            let runtime = RuntimeEnvBuilder::new().build_arc().unwrap();
            runtime.cache_manager.get_file_metadata_cache()
        };
        let (a, b) = (footers(), footers());
        let of_a = of_runtime(&a);
        assert!(Arc::ptr_eq(&of_a, &of_runtime(&Arc::clone(&a))));
        assert!(!Arc::ptr_eq(&of_a, &of_runtime(&b)));
    }
}
