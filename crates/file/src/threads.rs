//! The threads that encode columns.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};

/// A limit on the columns encoded in parallel, shared by all writers that have clones of this.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Semaphore>);

/// One thread's permit, until it is dropped.
pub(crate) type Thread = OwnedSemaphorePermit;

impl Threads {
    /// A limit of `count` threads, at least one, independent of all others.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a thread; first come, first served.
    pub(crate) async fn one(&self) -> Result<Thread> {
        let thread = Arc::clone(&self.0).acquire_owned().await;
        thread.map_err(|error| Error::Internal(format!("no thread encodes: {error}")))
    }
}

/// One per processor, shared by all writers of the process.
impl Default for Threads {
    fn default() -> Self {
        static OF_PROCESS: LazyLock<Threads> =
            LazyLock::new(|| Threads::new(available_parallelism().map_or(1, usize::from)));
        OF_PROCESS.clone()
    }
}
