//! What queries run on.

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;

/// Threads for queries, one for each processor.
pub fn workers() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.enable_all().build()?)
}
