//! Device copies of host values, each made when a kernel first needs it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use super::memory::{DeviceBuffer, Pool, lock};
use crate::error::Result;

/// A copy on one engine's device. When memory is short, the engine drops it; the next kernel that needs it makes it
/// again.
#[derive(Debug)]
pub(crate) struct Copied {
    pool: Weak<Pool>,
    buffer: Mutex<Option<Arc<DeviceBuffer>>>,
    /// Time of the last use, by the engine's clock.
    used: AtomicU64,
}

impl Copied {
    /// A copy to make on the device with this memory.
    pub fn new(pool: &Arc<Pool>, now: u64) -> Self {
        Self {
            pool: Arc::downgrade(pool),
            buffer: Mutex::default(),
            used: AtomicU64::new(now),
        }
    }

    /// Returns true if it is on the device with this memory.
    pub fn is_of(&self, pool: &Arc<Pool>) -> bool {
        std::ptr::eq(self.pool.as_ptr(), Arc::as_ptr(pool))
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The copy; `copy` makes it unless it is there. Concurrent callers wait.
    pub fn get_or_copy(
        &self,
        now: u64,
        copy: impl FnOnce() -> Result<DeviceBuffer>,
    ) -> Result<Arc<DeviceBuffer>> {
        self.used.store(now, Ordering::Relaxed);
        let mut slot = lock(&self.buffer);
        if let Some(buffer) = &*slot {
            return Ok(Arc::clone(buffer));
        }
        let buffer = Arc::new(copy()?);
        buffer.count_as_kept();
        Ok(Arc::clone(slot.insert(buffer)))
    }

    /// Sets the copy.
    pub fn set(&self, buffer: Arc<DeviceBuffer>) {
        buffer.count_as_kept();
        *lock(&self.buffer) = Some(buffer);
    }

    /// Takes the copy away, unless a kernel uses it or it is being made.
    pub fn take_idle(&self) -> Option<Arc<DeviceBuffer>> {
        let mut slot = match self.buffer.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        slot.take_if(|buffer| Arc::strong_count(buffer) == 1)
    }
}
