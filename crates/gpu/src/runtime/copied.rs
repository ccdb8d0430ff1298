//! Copies on a device of what the host has: each is made when a kernel wants it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use super::engine::Engine;
use super::memory::{Piece, Pool, lock};
use crate::error::Result;
use crate::plan::DeviceCopies;

/// A copy on one engine's device. Where memory is short, the engine drops it; the next kernel that wants it makes it
/// again.
#[derive(Debug)]
pub(crate) struct Copied {
    pool: Weak<Pool>,
    piece: Mutex<Option<Arc<Piece>>>,
    /// When it was wanted last, by the engine's clock.
    used: AtomicU64,
}

impl Copied {
    fn is_of(&self, pool: &Arc<Pool>) -> bool {
        std::ptr::eq(self.pool.as_ptr(), Arc::as_ptr(pool))
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes the copy away, unless a kernel uses it or it is being made.
    pub fn take_idle(&self) -> Option<Arc<Piece>> {
        let mut piece = match self.piece.try_lock() {
            Ok(piece) => piece,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        piece.take_if(|piece| Arc::strong_count(piece) == 1)
    }
}

impl Engine {
    /// The copy of a value on this engine's device: `copy` makes it if it is not there, while others wait for it. It stays
    /// as long as what is returned.
    pub(crate) fn copied(
        &self,
        copies: &DeviceCopies,
        copy: impl FnOnce() -> Result<Piece>,
    ) -> Result<Arc<Piece>> {
        let copied = self.copied_of(copies);
        copied.used.store(self.now(), Ordering::Relaxed);
        let mut piece = lock(&copied.piece);
        if let Some(piece) = &*piece {
            return Ok(Arc::clone(piece));
        }
        let made = Arc::new(copy()?);
        made.count_as_kept();
        Ok(Arc::clone(piece.insert(made)))
    }

    /// Copies of which that of this engine is there already.
    pub(crate) fn copies_with(&self, piece: Arc<Piece>) -> DeviceCopies {
        let copies = DeviceCopies::default();
        piece.count_as_kept();
        *lock(&self.copied_of(&copies).piece) = Some(piece);
        copies
    }

    fn copied_of(&self, copies: &DeviceCopies) -> Arc<Copied> {
        let mut copies = lock(copies);
        let known = copies.iter().cloned().filter_map(|of| of.downcast().ok());
        if let Some(known) = known
            .into_iter()
            .find(|of: &Arc<Copied>| of.is_of(self.pool()))
        {
            return known;
        }
        let copied = Arc::new(Copied {
            pool: Arc::downgrade(self.pool()),
            piece: Mutex::default(),
            used: AtomicU64::new(self.now()),
        });
        copies.push(Arc::clone(&copied) as _);
        self.register(&copied);
        copied
    }
}
