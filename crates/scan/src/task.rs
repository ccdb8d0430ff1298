//! Background work of a scan: read-ahead. Work between which other tasks run.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;

use futures::channel::{mpsc, oneshot};
use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
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

/// The results of work that takes long, in order, such as decoding the columns of a row group. The caller does it, and
/// threads of the runtime that are idle take part. If none is, or there is no runtime, the caller does all. Dropping the
/// future cancels what has not begun.
pub async fn shared_work<T: Send + 'static>(
    works: Vec<impl FnOnce() -> T + Send + 'static>,
) -> Vec<T> {
    let count = works.len();
    let queue = Arc::new(Mutex::new(works.into_iter().enumerate()));
    let take = {
        let queue = Arc::clone(&queue);
        move || queue.lock().unwrap_or_else(PoisonError::into_inner).next()
    };
    let (sender, mut others) = mpsc::unbounded();
    let mut helpers = JoinSet::new();
    if let Ok(runtime) = Handle::try_current() {
        // the last task that a thread spawns is one that no other thread takes
        for _ in 0..if count > 1 { count } else { 0 } {
            let (take, sender) = (take.clone(), sender.clone());
            let help = async move {
                while let Some((number, work)) = take() {
                    let result = catch_unwind(AssertUnwindSafe(work));
                    // the caller may have ended
                    let _ = sender.unbounded_send((number, result));
                }
            };
            helpers.spawn_on(help, &runtime);
        }
    }
    drop(sender);
    // a caller that is dropped leaves nothing to others
    let _rest = Abandon(queue);
    let mut results = Vec::with_capacity(count);
    while let Some((number, work)) = take() {
        results.push((number, work()));
        yield_now().await;
    }
    while results.len() < count {
        match others.next().await {
            Some((number, Ok(result))) => results.push((number, result)),
            Some((_, Err(panic))) => resume_unwind(panic),
            None => break,
        }
    }
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Ends an iterator when dropped.
struct Abandon<I: Iterator>(Arc<Mutex<I>>);

impl<I: Iterator> Drop for Abandon<I> {
    fn drop(&mut self) {
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rest.by_ref().for_each(drop);
    }
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn results_are_in_order_and_idle_threads_take_part() {
        let barrier = Arc::new(Barrier::new(2));
        let works = (0..2).map(|number| {
            let barrier = Arc::clone(&barrier);
            move || {
                // both run at the same time, or neither ends
                barrier.wait();
                (number, thread::current().id())
            }
        });
        let works = works.collect();
        let results = tokio::spawn(shared_work(works)).await.unwrap();
        let numbers: Vec<usize> = results.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1]);
        assert_ne!(results[0].1, results[1].1);
    }

    #[test]
    fn without_a_runtime_the_caller_does_all() {
        let works = vec![|| thread::current().id(); 3];
        let ids: Vec<ThreadId> = block_on(shared_work(works));
        assert_eq!(ids, [thread::current().id(); 3]);
    }

    #[tokio::test]
    async fn the_caller_does_all_if_it_blocks_the_only_thread() {
        let works = (0..5).map(|number| move || number);
        let results: Vec<usize> = block_on(shared_work(works.collect()));
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    #[should_panic(expected = "a bug")]
    async fn panics_are_the_callers() {
        let works: Vec<fn()> = vec![|| (), || panic!("a bug"), || ()];
        shared_work(works).await;
    }

    #[tokio::test]
    async fn what_has_not_begun_is_cancelled() {
        let done = Arc::new(AtomicUsize::new(0));
        let works = (0..5).map(|_| {
            let done = Arc::clone(&done);
            move || done.fetch_add(1, Ordering::Relaxed)
        });
        let mut shared = Box::pin(shared_work(works.collect()));
        assert!(futures::poll!(&mut shared).is_pending());
        drop(shared);
        tokio::task::yield_now().await;
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
