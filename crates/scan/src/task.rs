//! Background work of a scan: read-ahead. Work between which other tasks run.

use std::any::Any;
use std::future::poll_fn;
use std::panic::resume_unwind;
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

/// The results of work that takes long, in order, such as decoding the columns of a row group: each on a task of its own, so
/// that threads of the runtime that are idle take part. Without a runtime, one after the other. Dropping the future cancels
/// what has not begun.
///
/// # Errors
///
/// [`Error::External`] if the runtime ends meanwhile.
pub async fn each_on_a_task<T: Send + 'static>(
    works: Vec<impl FnOnce() -> T + Send + 'static>,
) -> Result<Vec<T>> {
    let Some(runtime) = Handle::try_current().ok().filter(|_| works.len() > 1) else {
        let mut results = Vec::with_capacity(works.len());
        for work in works {
            results.push(work());
            yield_now().await;
        }
        return Ok(results);
    };
    let mut tasks = JoinSet::new();
    for (number, work) in works.into_iter().enumerate() {
        tasks.spawn_on(async move { (number, work()) }, &runtime);
    }
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => results.push(result),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(error) => return Err(Error::external(error)),
        }
    }
    results.sort_unstable_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::ThreadId;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn results_are_in_order_and_threads_share_the_work() {
        let barrier = Arc::new(Barrier::new(2));
        let works = (0..2).map(|number| {
            let barrier = Arc::clone(&barrier);
            move || {
                barrier.wait();
                (number, thread::current().id())
            }
        });
        // both run at the same time, or neither ends
        let results = each_on_a_task(works.collect()).await.unwrap();
        let numbers: Vec<usize> = results.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1]);
        assert_ne!(results[0].1, results[1].1);
    }

    #[test]
    fn without_a_runtime_the_caller_does_it() {
        let works = vec![|| thread::current().id(); 3];
        let ids: Vec<ThreadId> = block_on(each_on_a_task(works)).unwrap();
        assert_eq!(ids, [thread::current().id(); 3]);
    }

    #[tokio::test]
    #[should_panic(expected = "a bug")]
    async fn panics_are_the_callers() {
        let works: Vec<fn()> = vec![|| panic!("a bug"), || ()];
        let _ = each_on_a_task(works).await;
    }
}
