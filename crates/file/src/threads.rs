//! The threads that encode columns.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};

/// So many columns are encoded at the same time, by all writers that have clones of this.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Semaphore>);

/// One of them, until it is dropped.
pub(crate) type Thread = OwnedSemaphorePermit;

impl Threads {
    /// `count` threads, one at least, apart from all others.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a thread. Who asks first gets one first.
    pub(crate) async fn one(&self) -> Result<Thread> {
        let thread = Arc::clone(&self.0).acquire_owned().await;
        thread.map_err(|error| Error::Internal(format!("no thread encodes: {error}")))
    }
}

/// One for each processor, the same for all writers of the process.
impl Default for Threads {
    fn default() -> Self {
        static OF_PROCESS: LazyLock<Threads> =
            LazyLock::new(|| Threads::new(available_parallelism().map_or(1, usize::from)));
        OF_PROCESS.clone()
    }
}
