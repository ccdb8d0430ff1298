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
    piece: Mutex<Option<Arc<DeviceBuffer>>>,
    /// Time of the last use, by the engine's clock.
    used: AtomicU64,
}

impl Copied {
    /// A copy to make on the device with this memory.
    pub fn new(pool: &Arc<Pool>, now: u64) -> Self {
        Self {
            pool: Arc::downgrade(pool),
            piece: Mutex::default(),
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
        let mut piece = lock(&self.piece);
        if let Some(piece) = &*piece {
            return Ok(Arc::clone(piece));
        }
        let made = Arc::new(copy()?);
        made.count_as_kept();
        Ok(Arc::clone(piece.insert(made)))
    }

    /// Sets the copy.
    pub fn set(&self, made: Arc<DeviceBuffer>) {
        made.count_as_kept();
        *lock(&self.piece) = Some(made);
    }

    /// Takes the copy away, unless a kernel uses it or it is being made.
    pub fn take_idle(&self) -> Option<Arc<DeviceBuffer>> {
        let mut piece = match self.piece.try_lock() {
            Ok(piece) => piece,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        piece.take_if(|piece| Arc::strong_count(piece) == 1)
    }
}
