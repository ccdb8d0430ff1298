//! Prepares the GPU in the background for queries that the CPU runs meanwhile.
//!
//! The work has few threads of its own, with low priority, so that it does not slow those queries down.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use datafusion::common::Result;
use tokio::runtime::{Builder, Handle, Id, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Maximum number of pending tasks. Further ones are dropped until a query starts them again.
const MOST_WAITING: usize = 1024;

/// Number of requests for which a failed task is skipped before it is retried.
const SKIPPED_REQUESTS: usize = 16;

/// The background uses at most one in this many cores.
pub(crate) const CORES_SHARE: usize = 4;

/// When a runtime ends, maximum wait for running work: a kernel may be compiling.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Runs background tasks: one of each kind at a time, each name at most once at a time.
#[derive(Debug)]
pub(crate) struct Background {
    /// Its threads, created with the first task; `None` if that failed.
    runtime: OnceLock<Option<Runtime>>,
    /// Dropped, and so cancelled, with the device.
    tasks: Mutex<JoinSet<()>>,
    /// For each runtime that started tasks, the end of that runtime.
    runtimes: Mutex<HashMap<Id, SessionEnd>>,
    turns: [Arc<Semaphore>; 3],
    known: Arc<Mutex<Known>>,
}

/// Kind of a task. Tasks wait only for others of their kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A whole query.
    Query,
    /// Row groups of a scan. Such tasks are many, and few of them help.
    RowGroups,
    /// Kernels that are the same for every query.
    Kernels,
}

/// Tasks by name.
#[derive(Debug, Default)]
struct Known {
    pending: HashSet<String>,
    /// Failed tasks, and how often each was skipped since.
    failed: HashMap<String, usize>,
}

/// Held by a session. Its tasks are cancelled when it is dropped.
#[derive(Debug)]
pub(crate) struct Session(watch::Sender<()>);

/// Signals the end of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionEnd(watch::Receiver<()>);

impl Session {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    pub(crate) fn end(&self) -> SessionEnd {
        SessionEnd(self.0.subscribe())
    }
}

impl SessionEnd {
    async fn wait(mut self) {
        // an error means that the sender was dropped
        while self.0.changed().await.is_ok() {}
    }

    fn has_come(&self) -> bool {
        self.0.has_changed().is_err()
    }
}

impl Background {
    pub(crate) fn new() -> Self {
        Self {
            runtime: OnceLock::new(),
            tasks: Mutex::default(),
            runtimes: Mutex::default(),
            turns: [(); 3].map(|()| Arc::new(Semaphore::new(1))),
            known: Arc::default(),
        }
    }

    /// True if the task `what` is running or waiting.
    pub(crate) fn is_pending(&self, what: &str) -> bool {
        lock(&self.known).pending.contains(what)
    }

    /// Starts the task `what`, unless it is pending or has failed lately.
    pub(crate) fn start(
        &self,
        kind: Kind,
        what: String,
        session: SessionEnd,
        work: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let Some(runtime) = self.runtime.get_or_init(runtime) else {
            return;
        };
        let mut known = lock(&self.known);
        if let Some(skipped) = known.failed.get_mut(&what)
            && *skipped < SKIPPED_REQUESTS
        {
            *skipped += 1;
            return;
        }
        if known.pending.len() >= MOST_WAITING || !known.pending.insert(what.clone()) {
            return;
        }
        known.failed.remove(&what);
        drop(known);
        let turn = Arc::clone(match kind {
            Kind::Query => &self.turns[0],
            Kind::RowGroups => &self.turns[1],
            Kind::Kernels => &self.turns[2],
        });
        let pending = Pending::new(&self.known, what);
        let work = async move {
            let mut pending = pending;
            let _turn = turn.acquire().await;
            pending.has_failed = work.await.is_err();
        };
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        let runtime_end = self.end_of_runtime().unwrap_or_else(|| session.clone());
        let until_end = async move {
            tokio::select! {
                () = session.wait() => (),
                () = runtime_end.wait() => (),
                () = work => (),
            }
        };
        tasks.spawn_on(until_end, runtime.handle());
    }

    /// Signals the end of the calling runtime. The runtime waits for running work when it ends, because a process
    /// that exits then would unload compiler and driver while they are in use.
    ///
    /// `None` on a task of the background: its own runtime lasts as long as the device.
    fn end_of_runtime(&self) -> Option<SessionEnd> {
        let runtime = Handle::try_current().ok()?;
        let own = self.runtime.get().and_then(Option::as_ref);
        if own.is_some_and(|own| own.handle().id() == runtime.id()) {
            return None;
        }
        let mut runtimes = lock(&self.runtimes);
        runtimes.retain(|_, end| !end.has_come());
        let end = runtimes.entry(runtime.id()).or_insert_with(|| {
            let session = Session::new();
            let end = session.end();
            let held = HeldByRuntime(Some(session));
            runtime.spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            end
        });
        Some(end.clone())
    }
}

/// Dropped with a runtime. Ends the session that represents it.
struct HeldByRuntime(Option<Session>);

impl Drop for HeldByRuntime {
    fn drop(&mut self) {
        self.0 = None;
        vectile_gpu::is_done_within(MOST_WAIT);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> Option<Runtime> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads((cores / CORES_SHARE).max(1))
        .thread_name("vectile-background")
        .on_thread_start(vectile_gpu::lower_priority)
        .enable_all();
    builder.build().ok()
}

/// Marks a task as pending until dropped.
struct Pending {
    known: Arc<Mutex<Known>>,
    what: String,
    has_failed: bool,
}

impl Pending {
    fn new(known: &Arc<Mutex<Known>>, what: String) -> Self {
        Self {
            known: Arc::clone(known),
            what,
            has_failed: false,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        let what = std::mem::take(&mut self.what);
        known.pending.remove(&what);
        if self.has_failed {
            if known.failed.len() >= MOST_WAITING {
                known.failed.clear();
            }
            known.failed.insert(what, 0);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{self, Command};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::common::internal_err;
    use tokio::sync::Notify;

    use super::*;

    async fn until_idle(background: &Background) {
        while !lock(&background.known).pending.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn each_task_runs_once_at_a_time() {
        let (background, session) = (Background::new(), Session::new());
        let (go, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let start = |what: &str| {
            let (go, runs) = (Arc::clone(&go), Arc::clone(&runs));
            background.start(Kind::Query, what.into(), session.end(), async move {
                go.notified().await;
                runs.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        };
        start("a");
        start("a");
        start("b");
        assert_eq!(lock(&background.known).pending.len(), 2);
        go.notify_one();
        while runs.load(Ordering::Relaxed) < 1 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        until_idle(&background).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        start("a");
        go.notify_one();
        until_idle(&background).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn failed_tasks_are_skipped_for_a_while() {
        let (background, session) = (Background::new(), Session::new());
        let runs = Arc::new(AtomicUsize::new(0));
        for request in 0..SKIPPED_REQUESTS + 2 {
            assert_eq!(runs.load(Ordering::Relaxed), request.min(1), "{request}");
            let runs = Arc::clone(&runs);
            background.start(Kind::Query, "a".into(), session.end(), async move {
                runs.fetch_add(1, Ordering::Relaxed);
                internal_err!("no")
            });
            until_idle(&background).await;
        }
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn tasks_end_with_the_runtime_that_began_them() {
        let (background, session, held) = (Background::new(), Session::new(), Arc::new(()));
        for _ in 0..2 {
            let runtime = Builder::new_multi_thread().build().unwrap();
            runtime.block_on(async {
                let held = Arc::clone(&held);
                background.start(Kind::Query, "a".into(), session.end(), async move {
                    std::future::pending::<()>().await;
                    drop(held);
                    Ok(())
                });
            });
            assert_eq!(Arc::strong_count(&held), 2);
            drop(runtime);
            while Arc::strong_count(&held) > 1 {
                thread::yield_now();
            }
        }
    }

    /// In a process of its own. The compiler crashes if it is unloaded while it is at work.
    #[test]
    fn a_process_ends_well_while_a_kernel_is_compiled() {
        const VARIABLE: &str = "VECTILE_TEST_BACKGROUND_EXIT";
        let test = concat!(
            module_path!(),
            "::a_process_ends_well_while_a_kernel_is_compiled"
        );
        let test = test.split_once("::").unwrap().1;
        if env::var_os(VARIABLE).is_some() {
            // takes a second
            let lines = (1..5000).map(|i| format!("x = x * {i} + (x >> {});\n", i % 31));
            let body: String = lines.collect();
            let source =
                format!("extern \"C\" __global__ void k(int *p) {{ int x = *p; {body} *p = x; }}");
            let (background, session) = (Background::new(), Session::new());
            let runtime = Builder::new_multi_thread().build().unwrap();
            runtime.block_on(async {
                background.start(Kind::Query, "a".into(), session.end(), async move {
                    let compile = move || vectile_gpu::compile_cubin(&source, (9, 0));
                    let compiled = tokio::task::spawn_blocking(compile).await.unwrap();
                    println!("compiled {}", compiled.is_ok());
                    Ok(())
                });
            });
            thread::sleep(Duration::from_millis(200));
            drop(runtime);
            process::exit(7);
        }
        if let Err(error) = vectile_gpu::nvrtc() {
            return eprintln!("skipped: {error}");
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]);
        let output = command.env(VARIABLE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
    }

    #[tokio::test]
    async fn tasks_end_with_their_session() {
        let (background, session, other) = (Background::new(), Session::new(), Session::new());
        let held = Arc::new(());
        for (what, session) in [("a", &session), ("b", &session), ("c", &other)] {
            let held = Arc::clone(&held);
            background.start(Kind::Query, what.into(), session.end(), async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok(())
            });
        }
        drop(session);
        // a task is struck off after its work is dropped
        let is_running =
            || Arc::strong_count(&held) > 2 || lock(&background.known).pending.len() > 1;
        while is_running() {
            tokio::task::yield_now().await;
        }
        assert!(lock(&background.known).pending.contains("c"));
        drop(background);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
