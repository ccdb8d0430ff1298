//! Kernels that are loaded, by their source. Those used last stay.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use super::driver::{Compiled, Kernel};
use super::memory::lock;
use crate::error::Result;

/// Kernels that stay loaded: each takes some 100 KB of the device's memory.
const MOST_KERNELS: usize = 512;

/// Stands for a source, which has some 66 KB. That two sources in use have the same is out of the
/// question: one of the hashes has a secret, so that nobody can look for such sources either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    bytes: usize,
    secret_hash: u64,
    crc: u32,
}

/// A kernel, compiled by the first who needs it.
type Slot = Arc<Mutex<Option<Arc<dyn Kernel>>>>;

#[derive(Debug)]
pub(crate) struct Kernels {
    secret: RandomState,
    loaded: Mutex<Loaded>,
    most: usize,
}

#[derive(Debug, Default)]
struct Loaded {
    slots: HashMap<SourceKey, (u64, Slot)>,
    /// Counts uses.
    clock: u64,
}

impl Default for Kernels {
    fn default() -> Self {
        Self {
            secret: RandomState::new(),
            loaded: Mutex::default(),
            most: MOST_KERNELS,
        }
    }
}

impl Kernels {
    /// The kernel of a source, made by `compile` if need be; and whether that ran the compiler.
    pub fn get(
        &self,
        source: &str,
        compile: impl FnOnce() -> Result<Compiled>,
    ) -> Result<(Arc<dyn Kernel>, bool)> {
        let slot = self.slot(source);
        // others who want this kernel wait here; if it does not compile, the next one tries
        let mut slot = lock(&slot);
        if let Some(kernel) = slot.as_ref() {
            return Ok((Arc::clone(kernel), false));
        }
        let made = compile()?;
        *slot = Some(Arc::clone(&made.kernel));
        Ok((made.kernel, !made.from_disk))
    }

    fn key(&self, source: &str) -> SourceKey {
        SourceKey {
            bytes: source.len(),
            secret_hash: self.secret.hash_one(source),
            crc: crc32fast::hash(source.as_bytes()),
        }
    }

    fn slot(&self, source: &str) -> Slot {
        let key = self.key(source);
        let mut loaded = lock(&self.loaded);
        loaded.clock += 1;
        let now = loaded.clock;
        if let Some((used, slot)) = loaded.slots.get_mut(&key) {
            *used = now;
            return Arc::clone(slot);
        }
        let mut dropped = None;
        if loaded.slots.len() >= self.most
            && let Some(oldest) = loaded.slots.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = *oldest.0;
            dropped = loaded.slots.remove(&oldest);
        }
        let slot = Slot::default();
        loaded.slots.insert(key, (now, Arc::clone(&slot)));
        drop(loaded);
        // unloads it, unless a query uses it
        drop(dropped);
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl Kernel for Counted {
        fn as_any(&self) -> &dyn Any {
            self
        }

        fn resident_blocks(&self, _: u32, _: u32) -> u32 {
            1
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A kernel that is counted as long as it is loaded.
    fn compiled(loaded: &Arc<AtomicUsize>) -> Result<Compiled> {
        loaded.fetch_add(1, Ordering::Relaxed);
        Ok(Compiled {
            kernel: Arc::new(Counted(Arc::clone(loaded))),
            from_disk: false,
        })
    }

    #[test]
    fn those_used_last_stay_loaded() {
        let loaded = Arc::new(AtomicUsize::new(0));
        let kernels = Kernels {
            most: 3,
            ..Kernels::default()
        };
        let ask = |source: &str| kernels.get(source, || compiled(&loaded)).unwrap();
        for source in ["a", "b", "c"] {
            assert!(ask(source).1);
        }
        assert!(!ask("a").1);
        let in_use = ask("d").0;
        assert_eq!(loaded.load(Ordering::Relaxed), 3);
        for (source, is_new) in [("a", false), ("c", false), ("b", true), ("e", true)] {
            assert_eq!(ask(source).1, is_new, "{source}");
        }
        assert_eq!(loaded.load(Ordering::Relaxed), 4, "one is in use");
        drop(in_use);
        assert_eq!(loaded.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let loaded = Arc::new(AtomicUsize::new(0));
        let kernels = Kernels::default();
        let failed = kernels.get("a", || Err(Error::Lost("gone".into())));
        assert!(matches!(failed, Err(Error::Lost(_))));
        assert!(kernels.get("a", || compiled(&loaded)).unwrap().1);
    }

    #[test]
    fn sources_have_keys_of_their_own() {
        let kernels = Kernels::default();
        assert_eq!(kernels.key("a"), kernels.key("a"));
        assert_ne!(kernels.key("a"), kernels.key("b"));
        assert!(size_of::<SourceKey>() <= 24);
    }
}
