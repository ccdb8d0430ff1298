//! Ctrl-C and termination requests, which commands can wait for.

use std::time::Duration;

use tokio::sync::watch;

use crate::error::{CliError, INTERRUPTED, Result};

/// Time for cancelled work to clean up after itself.
const CANCEL_TIME: Duration = Duration::from_millis(200);

/// Time for a command to end by itself. A query may compute for long without a check.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for a shell to cancel its statement.
const SHELL_PATIENCE: Duration = Duration::from_secs(1);

/// Resolves when the work must stop.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

/// Stops the work that waits for the corresponding `Interrupt`.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

impl Interrupt {
    /// Starts listening to the user. From now on Ctrl-C no longer ends the process by itself: the
    /// first one requests that the command cleans up and ends; the process ends at once on a second one,
    /// or if the command takes too long.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread to listen on.
    pub fn listen() -> Result<Self> {
        let asked = async {
            tokio::select! {
                () = ctrl_c() => (),
                () = end_requested() => (),
            }
        };
        Self::start(asked, PATIENCE)
    }

    /// As [`listen`](Self::listen), for termination requests only: in a shell, Ctrl-C is not one.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
    pub fn listen_in_shell() -> Result<Self> {
        Self::start(end_requested(), SHELL_PATIENCE)
    }

    fn start(asked: impl Future<Output = ()> + Send + 'static, patience: Duration) -> Result<Self> {
        let (sender, receiver) = watch::channel(false);
        // A thread and a runtime of its own: a query may keep every other thread busy.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listen = move || {
            runtime.block_on(async {
                asked.await;
                sender.send_replace(true);
                // Closing a terminal may send more than one SIGHUP.
                tokio::select! {
                    () = ctrl_c() => (),
                    () = tokio::time::sleep(patience) => (),
                }
            });
            std::process::exit(INTERRUPTED);
        };
        std::thread::Builder::new()
            .name("interrupt".into())
            .spawn(listen)?;
        Ok(Interrupt(receiver))
    }

    /// An interrupt that the program itself can also trigger for this part of its work.
    pub fn or_stop(&self) -> (Interrupt, Stop) {
        let (sender, receiver) = watch::channel(false);
        let stop = Stop(sender.clone());
        let user = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = user.wait() => drop(sender.send_replace(true)),
                () = sender.closed() => (),
            }
        });
        (Interrupt(receiver), stop)
    }

    /// Runs `work` unless interrupted. An interrupt drops the work, and waits a moment for the files that it was
    /// writing to be removed.
    pub async fn or<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            () = self.wait() => {
                tokio::time::sleep(CANCEL_TIME).await;
                Err(CliError::Interrupted)
            }
        }
    }

    /// Returns true if an interrupt was requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the request; forever if there is none.
    pub async fn wait(&self) {
        if self.0.clone().wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Stop {
    /// Stops the work.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

async fn ctrl_c() {
    drop(tokio::signal::ctrl_c().await);
}

/// Waits for SIGTERM, SIGQUIT or SIGHUP, which a terminal sends when it is closed.
#[cfg(unix)]
async fn end_requested() {
    use std::task::Poll;
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::hangup(), SignalKind::quit()];
    let kinds = kinds.into_iter().filter(|kind| !is_ignored(*kind));
    let kinds = kinds.chain([SignalKind::terminate()]);
    let mut signals: Vec<_> = kinds.filter_map(|kind| signal(kind).ok()).collect();
    std::future::poll_fn(|context| {
        let mut signals = signals.iter_mut();
        match signals.any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Returns true if the process was started with the signal ignored, as by `nohup`; false if the system cannot say, so
/// that the signal keeps its effect.
#[cfg(unix)]
fn is_ignored(signal: tokio::signal::unix::SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_none_or(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}

#[cfg(not(unix))]
async fn end_requested() {
    std::future::pending().await
}
