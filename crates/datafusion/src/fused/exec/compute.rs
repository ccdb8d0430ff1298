//! Where the work of programs is done.

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error;

/// Does work on the thread of the task, like operators do, if it takes milliseconds and other threads of the runtime go
/// on: handing it to another thread would cost two switches, and there would be more threads than cores. Otherwise, a
/// thread that may block does it.
pub(super) async fn on_thread<T: Send + 'static>(
    is_short: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread if is_short => work(),
        _ => {
            let task = SpawnedTask::spawn_blocking(work);
            task.join().await.map_err(error::interrupted).flatten()
        }
    }
}
