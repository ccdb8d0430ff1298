//! What queries run on.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;

/// The longest that the end waits for a kernel that is compiled in the background.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Ends a runtime. A cancelled query has `time` to clean up; after that, its work is left behind. The compiler is waited
/// for: it would crash if the process ended while it is at work.
pub fn end(runtime: Runtime, time: Duration) {
    runtime.shutdown_timeout(time);
    vectile_gpu::is_done_within(MOST_WAIT);
}

/// Bytes of a worker's stack. DataFusion walks expressions recursively, and a condition of thousands of terms is as deep.
/// What is not used takes no memory.
const STACK: usize = 64 << 20;

/// Threads for queries, one for each processor.
pub fn workers() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.thread_stack_size(STACK).enable_all().build()?)
}
