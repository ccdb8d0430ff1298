//! The runtime of queries.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;

/// The longest wait at the end for a kernel that compiles in the background.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Ends a runtime. A cancelled query has `time` to clean up; after that, its threads are abandoned. This waits for the
/// compiler, which would crash if the process ended while it runs.
pub fn end(runtime: Runtime, time: Duration) {
    runtime.shutdown_timeout(time);
    vectile_gpu::is_done_within(MOST_WAIT);
}

/// Stack bytes of a worker. DataFusion walks expressions recursively, and a condition of thousands of terms is as deep.
/// Unused stack takes no memory.
const STACK: usize = 64 << 20;

/// Worker threads for queries, one per processor.
pub fn workers() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.thread_stack_size(STACK).enable_all().build()?)
}
