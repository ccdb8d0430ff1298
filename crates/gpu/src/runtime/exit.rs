//! Has the end of the process wait for what the driver is doing on other threads: it crashes if it is unloaded
//! meanwhile.

use std::ffi::c_int;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The longest that the end waits.
const MOST: Duration = Duration::from_secs(1);

static AT_WORK: AtomicUsize = AtomicUsize::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

/// The driver is at work on this thread as long as this exists.
#[derive(Debug)]
pub(super) struct AtWork(());

impl AtWork {
    /// # Errors
    ///
    /// [`Error::Cancelled`] if the process ends.
    pub fn begin() -> Result<Self> {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        let work = Self(());
        match ENDS.load(Ordering::SeqCst) {
            true => Err(Error::Cancelled),
            false => Ok(work),
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has the end of this process wait for work. To be called when the driver is loaded: what is registered last runs
/// first, and the driver registers its own end when it is loaded.
pub(super) fn wait_at_exit() {
    static ONCE: Once = Once::new();
    static PROCESS: OnceLock<u32> = OnceLock::new();

    extern "C" fn wait() {
        // a fork has none of the threads
        if PROCESS.get() == Some(&process::id()) {
            ENDS.store(true, Ordering::SeqCst);
            wait_for_work(MOST);
        }
    }

    unsafe extern "C" {
        fn atexit(handler: extern "C" fn()) -> c_int;
    }

    ONCE.call_once(|| {
        let _ = PROCESS.set(process::id());
        // SAFETY: the function of the C library, which std links; the handler is there for ever, and cannot panic.
        // If it is not registered, nothing waits.
        let _ = unsafe { atexit(wait) };
    });
}

fn wait_for_work(most: Duration) {
    let begun = Instant::now();
    while AT_WORK.load(Ordering::SeqCst) > 0 && begun.elapsed() < most {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    const VARIABLE: &str = "VECTILE_TEST_EXIT";

    /// In a process of its own: it ends while a thread works, and has to wait for that.
    #[test]
    fn the_end_waits_for_work() {
        let test = concat!(module_path!(), "::the_end_waits_for_work");
        let test = test.split_once("::").unwrap().1;
        if env::var_os(VARIABLE).is_some() {
            wait_at_exit();
            let work = AtWork::begin().unwrap();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(300));
                println!("done");
                drop(work);
            });
            process::exit(7);
        }
        let itself = env::current_exe().unwrap();
        let mut command = Command::new(itself);
        command.args([test, "--exact", "--nocapture"]);
        let output = command.env(VARIABLE, "1").output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("done"), "{text}");
    }
}
