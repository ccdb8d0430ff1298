//! Background work of a scan: read-ahead. Work between which other tasks run.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::error::{Error, Result};

/// Starts a future. Dropping the result cancels it at its next await.
pub type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) -> Box<dyn Any + Send + Sync> + Send + Sync>;

/// Spawns on the caller's runtime, or on a thread without one.
pub(crate) fn spawn(work: BoxFuture<'static, ()>) -> Box<dyn Any + Send + Sync> {
    let Ok(runtime) = Handle::try_current() else {
        return spawn_thread(work);
    };
    let mut task = JoinSet::new();
    task.spawn_on(work, &runtime);
    Box::new(task)
}

/// Lets other tasks run, and cancellation take effect, on any runtime: containers await it between columns, as decoding
/// one may take long.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Spawns on a thread. If none can be created, the work is dropped.
pub(crate) fn spawn_thread(work: BoxFuture<'static, ()>) -> Box<dyn Any + Send + Sync> {
    let (work, handle) = work.remote_handle();
    let named = thread::Builder::new().name("vectile-scan".into());
    let started = named.spawn(move || block_on(work));
    Box::new(started.is_ok().then_some(handle))
}

/// Background work with a result. Dropping this cancels it.
pub(crate) struct Task<T> {
    result: oneshot::Receiver<Result<T>>,
    _running: Box<dyn Any + Send + Sync>,
}

impl<T: Send + 'static> Task<T> {
    pub(crate) fn start(
        spawn: &Spawn,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        let (sender, result) = oneshot::channel();
        let send = work.map(|result| {
            // The scan may have ended.
            let _ = sender.send(result);
        });
        Self {
            result,
            _running: spawn(send.boxed()),
        }
    }

    /// Waits for the result.
    pub(crate) async fn join(self) -> Result<T> {
        let interrupted = |_| Error::external("reading ahead was interrupted");
        self.result.await.map_err(interrupted).flatten()
    }
}
