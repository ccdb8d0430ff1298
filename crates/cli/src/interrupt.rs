//! Ctrl-C and termination requests, as something commands can wait for.

use std::time::Duration;

use tokio::sync::watch;

use crate::error::{CliError, INTERRUPTED, Result};

/// Time for cancelled work to clean up after itself.
const CANCEL_TIME: Duration = Duration::from_millis(200);

/// Time for a command to end by itself. A query may compute for long without looking up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Resolves once the work is to stop.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

/// Stops the work that waits for the `Interrupt` it came with.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

impl Interrupt {
    /// Starts listening to the user. From now on Ctrl-C no longer ends the process by itself: the
    /// first one asks the command to clean up and end; the process ends at once on a second one,
    /// or if the command takes too long.
    ///
    /// # Errors
    ///
    /// Those of the system when it gives no thread to listen on.
    pub fn listen() -> Result<Self> {
        let (sender, receiver) = watch::channel(false);
        // A thread and a runtime of its own: a query may keep every other thread busy.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listen = move || {
            runtime.block_on(async {
                requested().await;
                sender.send_replace(true);
                tokio::select! {
                    () = requested() => (),
                    () = tokio::time::sleep(PATIENCE) => (),
                }
            });
            std::process::exit(INTERRUPTED);
        };
        std::thread::Builder::new()
            .name("interrupt".into())
            .spawn(listen)?;
        Ok(Interrupt(receiver))
    }

    /// An interrupt that also comes when the program itself stops this part of its work.
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

    /// Does `work` unless interrupted. What it was doing is cancelled by dropping it; there is
    /// a moment then for files that it was writing to be removed.
    pub async fn or<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            () = self.wait() => {
                tokio::time::sleep(CANCEL_TIME).await;
                Err(CliError::Interrupted)
            }
        }
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

#[cfg(unix)]
async fn requested() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => (),
                _ = terminate.recv() => (),
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
async fn requested() {
    drop(tokio::signal::ctrl_c().await);
}
