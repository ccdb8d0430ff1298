//! Columns pinned on the device until they are unloaded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::ResolvedTableReference;
use datafusion::common::runtime::SpawnedTask;
use vectile_gpu::{Engine, Resident};

/// The pinned columns of a device, for all sessions that use it. The engine does not drop chunks that are referenced
/// elsewhere, so a pin just holds references.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    pins: Mutex<Vec<Pin>>,
    followers: Mutex<Vec<Follower>>,
}

/// A task that pins the row groups which a table in memory gains. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) id: u64,
    pub(crate) table: ResolvedTableReference,
    /// The columns that are pinned, by name.
    pub(crate) columns: Arc<Mutex<Vec<String>>>,
    pub(crate) _task: SpawnedTask<()>,
}

/// A pinned column of a table, with its chunks.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) table: ResolvedTableReference,
    pub(crate) column: String,
    pub(crate) chunks: Vec<Arc<Resident>>,
}

impl Follower {
    /// A number that no other follower has.
    pub(crate) fn new_id() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

impl Pin {
    /// Bytes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes() as u64).sum()
    }

    /// True if `other` pins the same column.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.table == other.table && self.column == other.column
    }
}

impl Pins {
    /// Pins columns, all at once. Replaces earlier pins of the same columns.
    pub(crate) fn put(&self, new: Vec<Pin>) {
        let mut pins = self.lock();
        pins.retain(|pin| !new.iter().any(|new| new.is_of(pin)));
        pins.extend(new.into_iter().filter(|pin| !pin.chunks.is_empty()));
    }

    /// All pins.
    pub(crate) fn all(&self) -> Vec<Pin> {
        self.lock().clone()
    }

    /// The bytes of each pinned chunk, by its address.
    pub(crate) fn bytes(&self) -> HashMap<usize, u64> {
        bytes_of(self.lock().iter())
    }

    /// Bytes of all pinned chunks if `new` were pinned.
    pub(crate) fn bytes_with(&self, new: &[Pin]) -> u64 {
        let pins = self.lock();
        let stays = |pin: &&Pin| !new.iter().any(|new| new.is_of(pin));
        bytes_of(pins.iter().filter(stays).chain(new))
            .values()
            .sum()
    }

    /// Releases chunks of pins and returns these. Chunks without another pin are dropped from the device. Blocks.
    pub(crate) fn release(
        &self,
        engine: &Engine,
        is_released: impl Fn(&Pin, &Arc<Resident>) -> bool,
    ) -> Vec<Pin> {
        let mut released = Vec::new();
        self.lock().retain_mut(|pin| {
            let of = Pin {
                chunks: Vec::new(),
                ..pin.clone()
            };
            let released_chunks = pin.chunks.extract_if(.., |chunk| is_released(&of, chunk));
            let released_chunks: Vec<_> = released_chunks.collect();
            if !released_chunks.is_empty() {
                released.push(Pin {
                    chunks: released_chunks,
                    ..of
                });
            }
            !pin.chunks.is_empty()
        });
        let pinned = self.bytes();
        let dropped = released.iter().flat_map(|pin| pin.chunks.iter().cloned());
        let dropped = dropped.filter(|chunk| !pinned.contains_key(&address(chunk)));
        let dropped: Vec<_> = dropped.collect();
        if !dropped.is_empty() {
            engine.drop_chunks(dropped);
        }
        released
    }

    /// Replaces the follower of a table. The new one pins the columns of the other, too.
    pub(crate) fn follow(&self, follower: Follower) {
        let mut followers = lock(&self.followers);
        let others = followers.extract_if(.., |known| known.table == follower.table);
        for other in others {
            let mut columns = lock(&follower.columns);
            columns.append(&mut lock(&other.columns));
            columns.sort();
            columns.dedup();
        }
        followers.push(follower);
    }

    /// True if the follower was not replaced or ended.
    pub(crate) fn has_follower(&self, id: u64) -> bool {
        lock(&self.followers).iter().any(|known| known.id == id)
    }

    /// Ends a follower.
    pub(crate) fn end_follower(&self, id: u64) {
        let mut followers = lock(&self.followers);
        let ended: Vec<Follower> = followers.extract_if(.., |known| known.id == id).collect();
        drop(followers);
        drop(ended);
    }

    /// Ends following columns.
    pub(crate) fn unfollow(&self, is_ended: impl Fn(&ResolvedTableReference, &str) -> bool) {
        lock(&self.followers).retain(|follower| {
            let mut columns = lock(&follower.columns);
            columns.retain(|column| !is_ended(&follower.table, column));
            !columns.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pin>> {
        lock(&self.pins)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of each chunk, by its address.
fn bytes_of<'a>(pins: impl Iterator<Item = &'a Pin>) -> HashMap<usize, u64> {
    let chunks = pins.flat_map(|pin| &pin.chunks);
    let bytes = chunks.map(|chunk| (address(chunk), chunk.bytes() as u64));
    bytes.collect()
}

/// Identifies a chunk as long as it exists.
pub(crate) fn address(chunk: &Arc<Resident>) -> usize {
    Arc::as_ptr(chunk).addr()
}
